"""Tails and widths against mpmath, and against the textbook's bounds."""

from fractions import Fraction
from functools import partial
from math import ceil

import mpmath
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hubbub.errors import InvalidInput
from hubbub.mechanisms import noise_tails
from hubbub.mechanisms.noise_tails import (
    discrete_laplace_tail,
    half_width,
    rounded_gaussian_tail,
    smallest_integer,
)
from refusing import refused

mp = mpmath.mp.clone()
mp.dps = 120


def real(x):
    return mp.mpf(x.numerator) / x.denominator if isinstance(x, Fraction) else mp.mpf(x)


def laplace_tail(scale, m):
    q = mp.exp(-1 / real(scale))
    return 2 * q ** (m + 1) / (1 + q)


def gaussian_tail(sigma, m):
    return mp.erfc((2 * m + 1) / (2 * real(sigma)) / mp.sqrt(2))


LAWS = [(discrete_laplace_tail, laplace_tail), (rounded_gaussian_tail, gaussian_tail)]


@pytest.mark.parametrize(("beyond", "tail"), LAWS)
@pytest.mark.parametrize(
    "scale", [Fraction(1, 5), Fraction(1), Fraction(7, 3), Fraction(1000), Fraction(2**32)]
)
@pytest.mark.parametrize("far", [0, Fraction(1, 2), 1, 4, 5, 12, 60])
@pytest.mark.parametrize("bits", [32, 128])
def test_the_tail_is_enclosed_by_a_few_units(beyond, tail, scale, far, bits):
    m = int(far * scale)
    low, high = beyond(scale, m, bits)

    assert 0 <= low <= mp.ldexp(tail(scale, m), bits) <= high
    assert high - low <= 5


@pytest.mark.parametrize(("beyond", "tail"), LAWS)
def test_the_tail_is_enclosed_however_few_the_bits(beyond, tail):
    for bits in range(3, 15):
        for scale in (Fraction(1, 2), Fraction(1), Fraction(5, 2), Fraction(9)):
            for m in range(6):
                low, high = beyond(scale, m, bits)
                assert low <= mp.ldexp(tail(scale, m), bits) <= high


def test_laplace_tail_uses_the_safe_end_of_every_enclosure(monkeypatch):
    exact = noise_tails.exp_neg

    def vague(x, bits):
        low, high = exact(x, bits)
        return low - (low >> 20), high + (high >> 20)

    monkeypatch.setattr(noise_tails, "exp_neg", vague)
    for m in (0, 3):
        for scale in (Fraction(1), Fraction(20)):
            low, high = discrete_laplace_tail(scale, m, 64)
            share = mp.exp(-1 / real(scale))
            # Both the numerator and the denominator are off, and must not make up for each other.
            off = mp.ldexp(1, -20) * (1 + share / (1 + share))
            assert low <= mp.ldexp(laplace_tail(scale, m), 64) * (1 - off * mp.mpf("0.99"))
            assert high >= mp.ldexp(laplace_tail(scale, m), 64) * (1 + off * mp.mpf("0.99"))


@pytest.mark.parametrize("coordinates", [1, 2, 3, 7, 1000, 10**9])
@pytest.mark.parametrize("confidence", ["0.1", "0.5", "0.9", "0.95", "0.999", "0.123456789"])
def test_tail_one_unit_too_heavy_is_rejected(confidence, coordinates):
    """Just 1 − confidence^(1/coordinates) may lie outside, of which three units at most are lost."""
    level = Fraction(confidence)
    truth = 1 - real(level) ** (mp.mpf(1) / coordinates)

    def width(more):
        def beyond(m, bits):
            weight = int(mp.floor(mp.ldexp(truth, bits))) + more
            return (weight, weight) if m == 0 else (0, 0)

        return half_width(beyond, level, coordinates)

    assert width(1) == 1
    assert width(-3) == 0


@pytest.mark.slow
@pytest.mark.parametrize(("beyond", "tail"), LAWS)
@settings(max_examples=40)
@given(
    scale=st.fractions(Fraction(1, 5), 10**6, max_denominator=100),
    confidence=st.sampled_from(["0.5", "0.95", "0.999999"]),
    coordinates=st.sampled_from([1, 2, 10**6]),
)
def test_width_is_the_least_integer_that_covers_all_coordinates(beyond, tail, scale, confidence, coordinates):
    wide = half_width(partial(beyond, scale), Fraction(confidence), coordinates)

    level = real(Fraction(confidence))
    assert (1 - tail(scale, wide)) ** coordinates >= level
    assert wide == 0 or (1 - tail(scale, wide - 1)) ** coordinates < level


@pytest.mark.parametrize(("epsilon", "wide"), [("0.1", 30), ("0.5", 6), ("1", 3), ("2", 1), ("5", 0)])
def test_widths_of_counts_match_the_table(epsilon, wide):
    assert half_width(partial(discrete_laplace_tail, 1 / Fraction(epsilon)), 0.95, 1) == wide


@pytest.mark.slow
@pytest.mark.parametrize("beyond", [discrete_laplace_tail, rounded_gaussian_tail])
def test_width_at_extreme_confidence(beyond):
    law = partial(beyond, Fraction(1))
    tail = dict(LAWS)[beyond]
    for rare in (Fraction(1, 10**60), Fraction(1, 10**300), Fraction(1, 2**1200)):
        wide = half_width(law, 1 - rare, 1)
        assert tail(Fraction(1), wide) <= real(rare) < tail(Fraction(1), wide - 1)
    assert half_width(law, Fraction(1, 10**300), 1) == 0
    # All of a million with probability e^-691: one in 1448 may be outside.
    assert tail(Fraction(1), half_width(law, Fraction(1, 10**300), 10**6)) <= mp.mpf(1) / 1448
    assert tail(Fraction(1), half_width(law, Fraction(1, 10**300), 10**6) - 1) > mp.mpf(1) / 1447
    assert half_width(law, 0.95, 10**40) > half_width(law, 0.95, 10**30)


def test_the_union_bound_rounded_up_to_a_whole_number_holds_for_the_discrete_law():
    """Theorem 3.8 for whole numbers: Pr[|X| > ⌈b·ln(k/β)⌉] ≤ β/k, because 2q ≤ 1 + q."""
    for scale in (Fraction(1, 3), Fraction(1), Fraction(10), Fraction(1000)):
        for beta in ("0.5", "0.05", "0.000001"):
            for coordinates in (1, 7, 10_000):
                bound = real(scale) * mp.log(coordinates / real(Fraction(beta)))
                assert laplace_tail(scale, ceil(bound)) <= real(Fraction(beta)) / coordinates
                assert half_width(
                    partial(discrete_laplace_tail, scale), 1 - Fraction(beta), coordinates
                ) <= ceil(bound)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), 0, 1, -0.5, 1.5, "0.95", True, None])
def test_a_confidence_lies_between_0_and_1(bad):
    with refused(InvalidInput, match="confidence"):
        half_width(partial(discrete_laplace_tail, Fraction(1)), bad, 1)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), 0, -1, 1.5, "1", True, None])
def test_coordinates_must_be_positive_integers(bad):
    with refused(InvalidInput, match="coordinates"):
        half_width(partial(discrete_laplace_tail, Fraction(1)), 0.95, bad)


@given(st.integers(0, 10**6))
def test_least_integer_search_is_exact(least):
    calls = []

    def holds(m):
        calls.append(m)
        return m >= least

    assert smallest_integer(holds) == least
    assert len(calls) <= 2 * least.bit_length() + 2
