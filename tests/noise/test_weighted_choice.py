"""Choices by weights m·e^(−rate·gap): floats and integers make the same ones, and they have the law."""

import math
from fractions import Fraction

import numpy as np

from hubbub.noise.weighted_choice import choose_by_floats, locate_exactly
from internals import inject_bits


def test_floats_and_integers_choose_the_same():
    rng = np.random.default_rng(0)
    starts = np.arange(0, 3000, 30)
    for rate in (Fraction(1, 3), Fraction(1, 10**12), Fraction(50), Fraction(10**400)):
        weights, gaps = rng.integers(1, 2**40, 3000), rng.integers(0, 100, 3000)
        with inject_bits(rng.bytes):
            result = choose_by_floats(weights, gaps, rate, starts)
        assert not result.undecided.any()
        for choice, start in enumerate(starts):
            part = slice(start, start + 30)
            place = locate_exactly(
                int(result.words[choice]), rate, gaps[part].tolist(), weights[part].tolist()
            )
            assert start + place == result.places[choice]


def test_close_calls_are_left_to_integers():
    weights, gaps, starts = np.array([1, 1]), np.array([0, 0]), np.array([0])
    for u, is_close in ((2**63, True), (2**63 - 2**20, True), (2**62, False), (0, True), (2**64 - 1, True)):
        with inject_bits(lambda _, u=u: u.to_bytes(8, "big")):
            assert choose_by_floats(weights, gaps, Fraction(1), starts).undecided[0] == is_close
    assert locate_exactly(2**63, Fraction(1), [0, 0], [1, 1]) == 1
    assert locate_exactly(2**63 - 1, Fraction(1), [0, 0], [1, 1]) == 0


def test_no_weight_is_too_small_to_be_chosen():
    """Of weights 1 and e^-2000 the second is chosen where U is that small."""
    with inject_bits(bytes):
        assert locate_exactly(0, Fraction(1), [2000, 0], [1, 1]) == 0


def test_law_is_the_one_of_the_weights():
    """40,000 choices among three candidates; each is off by 8 standard deviations once in 10^15."""
    copies, rate = 40_000, Fraction(1, 2)
    weights, gaps = np.tile([3, 1, 5], copies), np.tile([2, 0, 7], copies)
    result = choose_by_floats(weights[:30_000], gaps[:30_000], rate, np.arange(0, 30_000, 3))
    counts = np.bincount((result.places % 3)[~result.undecided], minlength=3)
    chances = np.array([3 * math.exp(-1), 1, 5 * math.exp(-3.5)])
    chances /= chances.sum()
    assert (np.abs(counts - 10_000 * chances) < 8 * np.sqrt(10_000 * chances)).all()


def test_integers_of_any_size_are_gaps():
    gaps = np.array([2**70, 2**70 + 3, 5 * 2**70], dtype=object)
    values = choose_by_floats(np.array([1, 2**30, 2**40]), gaps, Fraction(1, 7), np.array([0]))
    assert values.places[0] in {0, 1}
