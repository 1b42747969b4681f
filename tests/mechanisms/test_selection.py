import dataclasses
import math
from fractions import Fraction
from functools import cache, partial
from itertools import pairwise, permutations, product

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hubbub.errors import InvalidInput, Refused, Unsupported
from hubbub.mechanisms import (
    Exponential,
    PermuteAndFlip,
    ReportNoisyMax,
    ReportNoisyMaxWithGap,
    from_json,
    selection,
)
from hubbub.mechanisms import mechanism as scores_of
from hubbub.mechanisms.selection import WinnerWithGap
from hubbub.noise.inversion import MAX_DRAW
from hubbub.sensitivity import MAX_MAGNITUDE, Bounded, Sensitivity
from hubbub.unit import Neighbours, Unit
from internals import inject_bits
from mechanisms import reference
from mechanisms.reference import check_stored, fits, lead_at_least, mass, scripted, stream, up_to, worst_ratio
from refusing import refusal

INDEX_ONLY = [PermuteAndFlip, Exponential, ReportNoisyMax]
ALL = [*INDEX_ONLY, ReportNoisyMaxWithGap]
LAWS = {
    PermuteAndFlip: reference.permute_and_flip,
    Exponential: reference.exponential,
    ReportNoisyMax: reference.noisy_max,
    ReportNoisyMaxWithGap: reference.noisy_max,
}
HALF = Fraction(1, 2)
each = pytest.mark.parametrize("kind", ALL)
each_index_only = pytest.mark.parametrize("kind", INDEX_ONLY)


def _moves(delta, monotone, coordinates):
    return product(range(0 if monotone else -delta, delta + 1), repeat=coordinates)


def _neighbours(values, delta, monotone):
    """All pairs of neighbouring score vectors that start in `values`, either way round."""
    for scores in values:
        for move in _moves(delta, monotone, len(scores)):
            moved = tuple(score + step for score, step in zip(scores, move, strict=True))
            yield scores, moved
            yield moved, scores


def _from_zero(law):
    """Only differences count: laws of scores that start at 0 are all there are."""
    cached = cache(law)
    return lambda scores: cached(tuple(score - scores[0] for score in scores))


# Privacy: ratios of the exact laws, with e^−ε rational


SMALL = list(product([0], range(-2, 3), range(-2, 3)))
"""Scores of three candidates; only differences count."""


@pytest.mark.slow
@pytest.mark.parametrize(("delta", "monotone"), [(1, False), (1, True), (2, True)])
@pytest.mark.parametrize("kind", INDEX_ONLY)
def test_choice_probabilities_are_epsilon_private(kind, delta, monotone):
    z = Fraction(2, 3)  # e^−rate
    law = _from_zero(lambda scores: LAWS[kind](scores, z))
    most = z ** -(delta if monotone else 2 * delta)

    ratios = [worst_ratio(law(one), law(two)) for one, two in _neighbours(SMALL, delta, monotone)]

    assert max(ratios) <= most
    assert max(ratios) > Fraction(3, 4) * most  # and the bound is no waste
    if kind is PermuteAndFlip:
        assert max(ratios) == most


@pytest.mark.parametrize("kind", INDEX_ONLY)
def test_larger_sensitivities_are_protected(kind):
    z = Fraction(2, 3)
    law = _from_zero(lambda scores: LAWS[kind](scores, z))
    for delta in (2, 3):
        for one, two in _neighbours(product([0], range(-4, 5)), delta, False):
            assert worst_ratio(law(one), law(two)) <= z ** (-2 * delta)


@pytest.mark.parametrize("kind", INDEX_ONLY)
def test_half_the_noise_is_not_private_for_non_monotone_scores(kind):
    z = Fraction(2, 3)
    law = _from_zero(lambda scores: LAWS[kind](scores, z))

    assert worst_ratio(law((0, 3, 3)), law((-1, 4, 4))) > z**-1


def _leads(scores, z, order, most=4):
    """Pr[winner and lead], leads of `most` and more as one, ties by a fixed order."""
    law = []
    for winner in range(len(scores)):
        chances = [lead_at_least(scores, z, winner, least, order) for least in range(most + 1)]
        law += [one - two for one, two in pairwise(chances)] + chances[-1:]
    return law


@pytest.mark.slow
@pytest.mark.parametrize(("delta", "monotone"), [(1, False), (2, True)])
def test_winner_and_gap_are_private_under_any_tie_order(delta, monotone):
    # One order stands for all, as all scores are tried; so a random order is private too.
    z = HALF
    law = _from_zero(lambda scores: _leads(scores, z, (2, 1, 0)))
    most = z ** -(delta if monotone else 2 * delta)

    for one, two in _neighbours(SMALL, delta, monotone):
        assert worst_ratio(law(one), law(two)) <= most


def test_gap_is_not_private_with_a_fixed_tie_order():
    z = Fraction(1, 10)
    order = (1, 0, 2, 3)  # candidate 0 wins ties with 1, and loses those with 2 and 3

    def tied(scores):
        """Pr[candidate 0 wins, at a distance of 0]."""
        ahead = mass(z)
        for score in scores[1:]:
            ahead *= up_to(z, 1, scores[0] - score - 1)
        return lead_at_least(scores, z, 0, 0, order) - ahead.total()

    one, two = (1, 1, 0, 0), (0, 0, 1, 1)
    assert tied(one) / tied(two) > 33 * z**-2
    assert worst_ratio(_leads(one, z, order), _leads(two, z, order)) <= z**-2


@pytest.mark.slow
def test_only_the_exponential_mechanism_has_a_bounded_range():
    # A21: the log-ratios between two neighbours lie in an interval of length ε, and there alone.
    z = Fraction(9, 10)

    def widest(law):
        spread = _from_zero(lambda scores: law(scores, z))
        pairs = _neighbours(SMALL, 1, False)
        return max(
            worst_ratio(spread(one), spread(two)) * worst_ratio(spread(two), spread(one))
            for one, two in pairs
        )

    assert widest(reference.exponential) <= z**-2
    assert widest(reference.permute_and_flip) > z**-3
    assert widest(reference.noisy_max) > z**-2


def test_permute_and_flip_would_break_the_charge_of_the_exponential_mechanism():
    # A21: its divergence at order 1 is above ε²/8, so that it may only be charged ε²/2.
    epsilon = Fraction(1)
    mechanism = PermuteAndFlip.of(sensitivity=1, epsilon=epsilon)
    z = mpmath.exp(-mpmath.mpf(1) / 2)
    one, two = reference.permute_and_flip((0, 1), z), reference.permute_and_flip((1, 0), z)
    divergence = sum(p * mpmath.log(p / q) for p, q in zip(one, two, strict=True))

    assert mpmath.mpf(1) / 8 < divergence <= mpmath.mpf(1) / 2
    assert mechanism.rho == Fraction(1, 2) == mechanism.loss().cost().rho
    assert ReportNoisyMax.of(sensitivity=1, epsilon=2).rho == 2
    assert ReportNoisyMaxWithGap.of(sensitivity=1, epsilon=2).rho == 2
    assert Exponential.of(sensitivity=3, epsilon=2, monotone=True).rho == HALF


@pytest.mark.slow
def test_exponential_mechanism_is_within_its_zcdp():
    z = mpmath.exp(-mpmath.mpf(1) / 2)  # ε = 1
    for one, two in _neighbours(SMALL, 1, False):
        p, q = reference.exponential(one, z), reference.exponential(two, z)
        for order in (2, 4, 16):
            renyi = mpmath.log(sum(a**order * b ** (1 - order) for a, b in zip(p, q, strict=True))) / (
                order - 1
            )
            assert renyi <= order * mpmath.mpf(1) / 8


# What is shipped follows these laws


@pytest.mark.slow
@each
@pytest.mark.parametrize("monotone", [False, True])
def test_release_follows_the_reference_law(kind, monotone):
    # χ² at a false alarm of 1e-9; and the bits are the same in every run.
    mechanism = kind.of(sensitivity=2, epsilon=Fraction(6, 5), monotone=monotone)
    scores = (4, 1, 4, 3)
    law = LAWS[kind](scores, mpmath.exp(-mpmath.mpf(6) / (10 if monotone else 20)))
    bounded = Bounded.user_asserted(list(scores), 2)
    counts = [0] * len(scores)

    with inject_bits(stream(f"{kind.__name__}/{monotone}")):
        for _ in range(3000):
            value = mechanism.release(bounded).value
            counts[value.winner if kind is ReportNoisyMaxWithGap else value] += 1

    assert fits(counts, law)
    assert not fits(counts, LAWS[kind](scores, mpmath.exp(-mpmath.mpf(6) / (20 if monotone else 10))))


@pytest.mark.slow
def test_gap_follows_the_reference_law():
    mechanism = ReportNoisyMaxWithGap.of(sensitivity=1, epsilon=2)
    scores, z = (2, 0, 1), mpmath.exp(-1)
    at_least = [reference.noisy_max(scores, z, least) for least in range(4)]
    law = [
        chance
        for winner in range(3)
        for chance in [
            *(at_least[g][winner] - at_least[g + 1][winner] for g in range(3)),
            at_least[3][winner],
        ]
    ]
    counts = [0] * len(law)

    with inject_bits(stream("leads")):
        for _ in range(3000):
            winner, gap = mechanism.release(list(scores)).value
            counts[4 * winner + min(gap, 3)] += 1

    assert fits(counts, law)


def _order_as_bytes(order):
    """Random bytes that put candidates in this order: the largest first."""
    return np.array([(rank + 1) << 40 for rank in order], dtype=np.uint64).tobytes()


def test_permute_and_flip_chooses_the_first_head_in_a_random_order(monkeypatch):
    calls = []
    for heads in product([False, True], repeat=3):
        if not any(heads):
            continue

        def coins(rate, gaps, fallen=heads):
            calls.append((rate, gaps.tolist()))
            return np.array(fallen)

        monkeypatch.setattr(selection, "bernoulli_exp_each", coins)
        for order in permutations(range(3)):
            with inject_bits(scripted(_order_as_bytes(order))):
                chosen = PermuteAndFlip.of(sensitivity=3, epsilon=1).release([5, 7, -(10**12)]).value
            assert chosen == max((i for i in range(3) if heads[i]), key=lambda i: order[i])
            assert type(chosen) is int

    assert calls == [(Fraction(1, 6), [2, 0, 10**12 + 7])] * (7 * 6)


def test_a_candidate_of_the_lowest_priority_still_wins_alone(monkeypatch):
    monkeypatch.setattr(selection, "bernoulli_exp_each", lambda rate, gaps: np.array([False, True]))

    with inject_bits(scripted(np.array([5, 1], dtype=np.uint64).tobytes())):
        assert PermuteAndFlip.of(sensitivity=1, epsilon=1).release([0, 0]).value == 1


@pytest.mark.parametrize(
    ("heads", "again"),
    [
        ([True, True, True], [7, 7, 2]),
        ([True, True, True], [2**63, 2, 2**63 + 1]),
        ([True, False, True], [0, 2, 1]),
        ([True, True, False], [9, 9, 2**40]),
    ],
    ids=["equal", "in 63 bits", "zeros", "of the heads"],
)
def test_two_equal_highest_priorities_are_drawn_again(monkeypatch, heads, again):
    monkeypatch.setattr(selection, "bernoulli_exp_each", lambda rate, gaps: np.array(heads))
    source = scripted(np.array(again, dtype=np.uint64).tobytes(), _order_as_bytes((0, 2, 1)))

    with inject_bits(source):
        chosen = PermuteAndFlip.of(sensitivity=1, epsilon=1).release([0, 0, 0]).value
    assert chosen == (1 if heads[1] else 2)
    assert source.left == []


@pytest.mark.parametrize(
    ("heads", "once"), [([True, True, True], [7, 7, 2**40]), ([False, True, True], [2**40, 7, 2**40])]
)
def test_equal_priorities_below_the_highest_head_change_nothing(monkeypatch, heads, once):
    monkeypatch.setattr(selection, "bernoulli_exp_each", lambda rate, gaps: np.array(heads))

    with inject_bits(scripted(np.array(once, dtype=np.uint64).tobytes())):
        assert PermuteAndFlip.of(sensitivity=1, epsilon=1).release([0, 0, 0]).value == 2


@pytest.mark.parametrize(("priorities", "heads"), [(2, 3), (3, 2), (4, 3)])
def test_every_head_is_chosen_as_often_over_all_priorities(monkeypatch, priorities, heads):
    # Exact: all tuples of priorities below a small bound, each as likely; ties of the highest count for none.
    among = [False] + [True] * heads
    monkeypatch.setattr(selection, "bernoulli_exp_each", lambda rate, gaps: np.array(among))
    mechanism, chosen = PermuteAndFlip.of(sensitivity=1, epsilon=1), [0] * (heads + 1)
    for draws in product(range(priorities), repeat=heads + 1):
        source = scripted(
            np.array([2 * x for x in draws], dtype=np.uint64).tobytes(), _order_as_bytes(range(heads + 1))
        )
        with inject_bits(source):
            value = mechanism.release([0] * (heads + 1)).value
        chosen[value] += bool(source.left)  # decided by the first priorities
    assert chosen[0] == 0
    assert len(set(chosen[1:])) == 1
    assert chosen[1] > 0


def test_an_order_with_two_equal_places_is_drawn_again_for_a_gap(monkeypatch):
    monkeypatch.setattr(scores_of, "discrete_laplace", lambda scale, size: np.array([3, 2, 0]))
    mechanism = ReportNoisyMaxWithGap.of(sensitivity=1, epsilon=1)
    for again in ([7, 7, 2], [9, 2**63, 2**63 + 1], [2**64 - 1, 0, 1]):
        for order, gap in (((2, 1, 0), 1), ((0, 2, 1), 0)):
            source = scripted(np.array(again, dtype=np.uint64).tobytes(), _order_as_bytes(order))
            with inject_bits(source):
                assert mechanism.release([0, 0, 0]).value == (0, gap)
            assert source.left == []


def test_random_order_uses_63_bits(monkeypatch):
    monkeypatch.setattr(selection, "bernoulli_exp_each", lambda rate, gaps: np.array([True, True]))

    with inject_bits(scripted(np.array([6, 4], dtype=np.uint64).tobytes())):
        assert PermuteAndFlip.of(sensitivity=1, epsilon=1).release([0, 0]).value == 0


@pytest.mark.parametrize("kind", [ReportNoisyMax, ReportNoisyMaxWithGap])
def test_a_noisy_maximum_is_that_of_the_sums_with_ties_by_the_order(monkeypatch, kind):
    scores = [3, 4, 2]
    mechanism = kind.of(sensitivity=2, epsilon=HALF)
    scales = set()
    for noise in product([-1, 0, 1, 2], repeat=3):

        def draw(scale, size, noise=noise):
            scales.add((scale, size))
            return np.array(noise)

        monkeypatch.setattr(scores_of, "discrete_laplace", draw)
        sums = [score + step for score, step in zip(scores, noise, strict=True)]
        for order in permutations(range(3)):
            with inject_bits(scripted(_order_as_bytes(order))):
                answer = mechanism.release(scores).value
            best, second, _ = sorted(((s, order[i], i) for i, s in enumerate(sums)), reverse=True)
            if kind is ReportNoisyMax:
                assert answer == best[2]
                assert type(answer) is int
            else:
                wins = next(lead for lead in range(20, -1, -1) if (best[0] - lead, best[1]) > second[:2])
                assert answer == (best[2], wins)
                assert type(answer) is WinnerWithGap
                assert (type(answer.winner), type(answer.gap)) == (int, int)
    assert scales == {(Fraction(8), 3)}


@pytest.mark.parametrize(("monotone", "scale"), [(False, Fraction(20, 3)), (True, Fraction(10, 3))])
@pytest.mark.parametrize("kind", [ReportNoisyMax, ReportNoisyMaxWithGap])
def test_noise_on_the_maximum_is_twice_delta_over_epsilon_or_half_of_it_for_monotone(
    monkeypatch, kind, monotone, scale
):
    scales = []
    monkeypatch.setattr(
        scores_of, "discrete_laplace", lambda b, size: scales.append(b) or np.zeros(size, dtype=np.int64)
    )
    kind.of(sensitivity=2, epsilon=Fraction(3, 5), monotone=monotone).release([1, 2])

    assert scales == [scale]


def test_gap_wider_than_64_bits_is_exact(monkeypatch):
    monkeypatch.setattr(
        scores_of, "discrete_laplace", lambda scale, size: np.array([MAX_DRAW - 1, 1 - MAX_DRAW])
    )

    answer = ReportNoisyMaxWithGap.of(sensitivity=1, epsilon=1).release([MAX_MAGNITUDE, -MAX_MAGNITUDE]).value

    assert answer.winner == 0
    assert 2 * MAX_MAGNITUDE + 2 * MAX_DRAW - 3 <= answer.gap <= 2 * MAX_MAGNITUDE + 2 * MAX_DRAW - 2


# The exponential mechanism, bit by bit


def _edges(scores, rate, digits=60):
    """Where U passes from one candidate to the next, by mpmath."""
    with mpmath.workdps(digits):
        best = max(scores)
        weights = [mpmath.exp(-mpmath.mpf(rate.numerator) * (best - s) / rate.denominator) for s in scores]
        whole = mpmath.fsum(weights)
        return [mpmath.fsum(weights[:j]) / whole for j in range(1, len(scores))]


def _bits(number, words):
    """The first 64·words binary digits of a number below 1."""
    with mpmath.workprec(64 * words + 64):
        return int(mpmath.floor(mpmath.ldexp(number, 64 * words)))


def _words(u, words):
    return [(u >> 64 * (words - 1 - word) & (1 << 64) - 1).to_bytes(8, "big") for word in range(words)]


CASES = [
    ((3, 1, 4, 1, 5), Fraction(1, 2)),
    ((0, 0, 0), Fraction(7)),
    ((0, 0, 0, 10**12), Fraction(1, 10**12)),
    ((MAX_MAGNITUDE, -MAX_MAGNITUDE, 0), Fraction(3, 10**18)),
    ((5, 4), Fraction(1, 10**400)),
    ((5, 5, 4), Fraction(10**400)),
    ((5, 5, 4), Fraction(600)),
    ((0, 30, 32), Fraction(2, 3)),
]


@pytest.mark.parametrize(("scores", "rate"), CASES)
def test_every_digit_of_the_uniform_number_counts(scores, rate):
    mechanism = Exponential.of(sensitivity=1, epsilon=rate, monotone=True, allow_large_epsilon=True)
    edges = _edges(scores, rate, 500)
    for place, edge in enumerate(edges):
        start = _bits(edge, 3)
        for u in (start - 2, start - 1, start + 1, start + 2):
            if not 0 <= u < 1 << 192:
                continue
            with mpmath.workdps(500):
                expected = sum(mpmath.ldexp(u, -192) >= other for other in edges)
            assert expected in range(place + (u > start) + 1) or expected > place
            source = scripted(*_words(u, 3), b"\0" * 7 + b"\1")
            with inject_bits(source):
                assert mechanism.release(list(scores)).value == expected


@given(
    st.lists(st.integers(-40, 40), min_size=1, max_size=8),
    st.fractions(Fraction(1, 50), 3),
    st.integers(0, 2**64 - 1),
)
def test_uniform_number_selects_the_candidate_of_its_share(scores, rate, u):
    mechanism = Exponential.of(sensitivity=1, epsilon=2 * rate)

    with inject_bits(scripted(*_words(u, 1), *[b"\x55" * 8] * 4)):
        chosen = mechanism.release(scores).value

    exact = mpmath.mpf(u) / 2**64 + mpmath.mpf(1) / 3 / 2**64
    with mpmath.workdps(60):
        assert chosen == sum(exact >= edge for edge in _edges(scores, rate))


def test_a_clear_case_reads_64_bits_and_a_tie_reads_on():
    mechanism = Exponential.of(sensitivity=1, epsilon=1)
    for u, words in ((3 << 62, 1), (1 << 62, 1), (1 << 63, 2), ((1 << 63) - 1, 2)):
        source = scripted(*_words(u, 1), *[b"\x55" * 8] * 4)
        with inject_bits(source):
            assert mechanism.release([7, 7]).value == u >> 63
        # Equal weights: the edge is exactly 1/2, at which U itself belongs to the second.
        assert len(source.left) in (4, 5 - words)


def test_rational_boundary_is_decided_with_the_digits_it_needs():
    source = scripted(*[b"\x80" + b"\0" * 7], *[b"\0" * 8] * 3, b"\0" * 7 + b"\1", b"\0" * 8)
    with inject_bits(source):
        assert Exponential.of(sensitivity=1, epsilon=1).release([7, 7]).value == 1


def test_no_weight_is_too_small_to_be_chosen():
    # A28: e^−2000 is far below the smallest double; it is chosen just where U is below it.
    mechanism = Exponential.of(sensitivity=1, epsilon=2)
    share = _edges((-2000, 0), Fraction(1), 1000)[0]
    words = 48
    for u, expected in ((0, 0), (_bits(share, words) - 2**64, 0), (_bits(share, words) + 2**64, 1)):
        with inject_bits(scripted(*_words(u, words), *[b"\0" * 8] * 8)):
            assert mechanism.release([-2000, 0]).value == expected


def test_scores_far_apart_are_accepted():
    for kind in INDEX_ONLY:
        mechanism = kind.of(sensitivity=1, epsilon=1)
        assert mechanism.release([-(10**12), 10**12, 0]).value == 1
        assert mechanism.release([-MAX_MAGNITUDE, MAX_MAGNITUDE]).value == 1


def test_numpy_error_settings_do_not_matter():
    with np.errstate(all="raise"):
        for rate in (Fraction(1, 10**320), Fraction(10**320), Fraction(745)):
            mechanism = Exponential.of(sensitivity=1, epsilon=2 * rate, allow_large_epsilon=True)
            assert mechanism.release([3]).value == 0
            assert mechanism.release([3, 2, -(10**6)]).value in range(3)


def test_many_candidates_share_evenly():
    mechanism = Exponential.of(sensitivity=1, epsilon=1)
    for part in (1, 1234, 4999):
        u = (2 * part + 1 << 64) // 10_000
        with inject_bits(scripted(*_words(u, 1))):
            assert mechanism.release(np.full(5000, 17)).value == part


@pytest.mark.parametrize("candidates", [2, 4, 64])
def test_floats_decide_only_beyond_the_proved_margin(monkeypatch, candidates):
    monkeypatch.setattr(selection, "_locate_by_integers", lambda u, rate, gaps: "integers")
    mechanism = Exponential.of(sensitivity=1, epsilon=1)
    margin = candidates + 16 << 16  # 2^-48 of the whole, in units of U's 64th digit
    for edge in (0, candidates // 2, candidates):
        start = (edge << 64) // candidates
        for away, decided in (
            (margin - (1 << 15), "integers"),
            (margin + (1 << 15), edge),
            ((1 << 15) - margin, "integers"),
            (-(1 << 15) - margin, edge - 1),
        ):
            if 0 <= start + away < 1 << 64:
                with inject_bits(scripted(*_words(start + away, 1))):
                    assert mechanism.release([7] * candidates).value == decided


def test_loose_enclosures_decide_nothing_wrongly(monkeypatch):
    tight = selection.exp_neg

    def loose(x, bits):
        low, high = tight(x, bits)
        slack = 1 << bits // 2
        return max(0, low - slack), high + slack

    monkeypatch.setattr(selection, "exp_neg", loose)
    scores, rate = (3, 1, 4, 1, 5), HALF
    edges = _edges(scores, rate, 100)
    for edge in edges:
        for away in range(20, 60, 3):
            for u in (_bits(edge, 4) - (1 << 256 - away), _bits(edge, 4) + (1 << 256 - away)):
                with mpmath.workdps(100):
                    expected = sum(mpmath.ldexp(u, -256) >= other for other in edges)
                with inject_bits(scripted(*_words(u, 4)[1:])):
                    assert (
                        selection._locate_by_integers(u >> 192, rate, [5 - score for score in scores])
                        == expected
                    )


# Regret


def _worst(law, gap, coordinates, z):
    """Pr[regret ≥ gap] at its worst: one candidate ahead, all others just so far behind."""
    return 1 - law((gap,) + (0,) * (coordinates - 1), z)[0]


@pytest.mark.parametrize("monotone", [False, True])
@pytest.mark.parametrize("confidence", [Fraction(1, 10), HALF, Fraction(19, 20), Fraction(999, 1000)])
def test_exponential_mechanism_regret_is_minimal(confidence, monotone):
    mechanism = Exponential.of(sensitivity=2, epsilon=1, monotone=monotone)
    z = mpmath.exp(-mpmath.mpf(1) / (2 if monotone else 4))
    allowed = 1 - mpmath.mpf(confidence.numerator) / confidence.denominator
    for coordinates in (1, 2, 5):
        m = mechanism.error(confidence, coordinates=coordinates)
        assert _worst(reference.exponential, m + 1, coordinates, z) <= allowed
        assert m == 0 or _worst(reference.exponential, m, coordinates, z) > allowed
        assert type(m) is int


@pytest.mark.parametrize(
    "confidence", [Fraction(1, 10), HALF, Fraction(4, 5), Fraction(19, 20), Fraction(999, 1000)]
)
@pytest.mark.parametrize("kind", [PermuteAndFlip, ReportNoisyMax])
def test_other_regrets_hold_and_are_nearly_tight(kind, confidence):
    mechanism = kind.of(sensitivity=1, epsilon=1)
    z = mpmath.exp(-mpmath.mpf(1) / 2)
    law = LAWS[kind]
    allowed = 1 - mpmath.mpf(confidence.numerator) / confidence.denominator
    for coordinates in (1, 2, 3):
        m = mechanism.error(confidence, coordinates=coordinates)
        assert _worst(law, m + 1, coordinates, z) <= allowed
        assert m <= 2 or _worst(law, m - 2, coordinates, z) > allowed
        assert kind is ReportNoisyMax or m <= Exponential.of(sensitivity=1, epsilon=1).error(
            confidence, coordinates=coordinates
        )


@pytest.mark.slow
def test_worst_case_scores_have_one_leader():
    z = HALF
    for law in (reference.permute_and_flip, reference.exponential, reference.noisy_max):
        for scores in product(range(3), repeat=3):
            chosen = law(scores, z)
            for gap in (1, 2):
                regretted = sum(
                    p for p, score in zip(chosen, scores, strict=True) if max(scores) - score >= gap
                )
                assert regretted <= _worst(law, gap, 3, z)


def test_regret_is_rounded_up_however_close_the_next_whole_number_is():
    # A rate just below ln 3: at odds of 3 a regret of 1 is a hair too likely, and so counts.
    with mpmath.workdps(60):
        near = int(mpmath.floor(mpmath.ldexp(mpmath.log(3), 128)))
    for rate, regret in ((Fraction(near, 2**128), 1), (Fraction(near + 3, 2**128), 0)):
        exact = Exponential.of(sensitivity=1, epsilon=rate, monotone=True)
        halved = PermuteAndFlip.of(sensitivity=1, epsilon=rate, monotone=True)
        assert exact.error(Fraction(3, 4), coordinates=2) == regret
        assert halved.error(Fraction(5, 6), coordinates=2) == regret


@pytest.mark.parametrize("kind", [PermuteAndFlip, Exponential])
def test_regret_keeps_the_textbook_bound(kind):
    for coordinates, confidence, epsilon in ((2, 0.5, 1), (1000, 0.95, 0.1), (10**9, 0.999, 3)):
        t = math.log(1 / (1 - confidence))
        for monotone, times in ((False, 2), (True, 1)):
            m = kind.of(sensitivity=5, epsilon=epsilon, monotone=monotone).error(
                confidence, coordinates=coordinates
            )
            assert m <= times * 5 / epsilon * (math.log(coordinates) + t)
            assert m >= times * 5 / epsilon * (math.log(coordinates / 2) + t - 1) - 1


def test_errors_match_the_table():
    assert PermuteAndFlip.of(sensitivity=1, epsilon=0.1).error(coordinates=1000) == 184
    assert Exponential.of(sensitivity=1, epsilon=0.1).error(coordinates=1000) == 197
    assert ReportNoisyMax.of(sensitivity=1, epsilon=0.1).error(coordinates=1000) == 222
    assert (
        ReportNoisyMaxWithGap.of(sensitivity=1, epsilon=0.1, monotone=True).error(0.95, coordinates=1000)
        == 111
    )
    assert (
        ReportNoisyMax.of(sensitivity=1, epsilon=Fraction(1, 2**46)).error(1 - 1e-12, coordinates=10**6)
        < 2**53
    )
    assert Exponential.of(sensitivity=1, epsilon=0.01).error(0.6, coordinates=2) == 81  # 200·ln 1.5, less one
    for kind in ALL:
        # However sure, and however many: about (ln coordinates + ln 1/β)/rate.
        far = kind.of(sensitivity=1, epsilon=1).error(1 - Fraction(1, 10**300), coordinates=10**80)
        assert 1740 < far < 1770
        assert kind.of(sensitivity=1, epsilon=0.1).error() == 0
        assert kind.of(sensitivity=1, epsilon=1000, allow_large_epsilon=True).error(coordinates=10) == 0


@each
def test_invalid_confidence_or_candidates_are_refused(kind):
    mechanism = kind.of(sensitivity=1, epsilon=1)
    for bad in (0, 1, -1, 2, math.nan, "0.95", None):
        assert refusal(InvalidInput, mechanism.error, bad).what.startswith("confidence")
    for bad in (0, -1, 1.5, math.nan, "3"):
        assert refusal(InvalidInput, mechanism.error, 0.95, coordinates=bad).what.startswith("coordinates")


def test_release_states_its_regret():
    release = PermuteAndFlip.of(sensitivity=1, epsilon=0.5).release([1, 2, 3])

    assert release.coordinates == 3
    assert release.error(0.95) == release.source.error(0.95, coordinates=3)
    refusal(InvalidInput, release.interval)


# Only the index leaves


SECRETS = [987654321, 987654320, 987654000]


@each
def test_release_contains_only_the_choice(kind):
    mechanism = kind.of(sensitivity=1, epsilon=1)
    release = mechanism.release(SECRETS)

    assert release.source is mechanism
    assert release.loss == mechanism.loss()
    assert release.loss.epsilon() == 1
    text = repr(release) + release.source.to_json() + repr(mechanism) + str(mechanism)
    assert "98765" not in text
    if kind is ReportNoisyMaxWithGap:
        assert type(release.value) is WinnerWithGap
        assert release.value.winner in range(3)
        assert 0 <= release.value.gap < 1000
    else:
        assert type(release.value) is int
        assert release.value in range(3)


@each_index_only
def test_single_candidate_is_chosen(kind):
    assert kind.of(sensitivity=1, epsilon=1).release([5]).value == 0


def test_single_candidate_has_no_gap():
    assert (
        "one candidate"
        in refusal(InvalidInput, ReportNoisyMaxWithGap.of(sensitivity=1, epsilon=1).release, [5]).what
    )


# What goes in


@pytest.mark.parametrize(
    ("parameters", "at"),
    [
        ({"epsilon": 0}, "epsilon"),
        ({"epsilon": -1}, "epsilon"),
        ({"epsilon": math.nan}, "epsilon"),
        ({"epsilon": math.inf}, "epsilon"),
        ({"epsilon": "1"}, "epsilon"),
        ({"sensitivity": 0}, "the ℓ∞ sensitivity"),
        ({"sensitivity": Sensitivity(1, linf=0)}, "the ℓ∞ sensitivity"),
        ({"sensitivity": 0.5}, "the ℓ∞ sensitivity"),
        ({"sensitivity": Fraction(3, 2)}, "the ℓ∞ sensitivity"),
        ({"sensitivity": -1}, "sensitivity"),
        ({"sensitivity": math.nan}, "sensitivity"),
        ({"sensitivity": None}, "sensitivity"),
        ({"monotone": 1}, "monotone"),
        ({"monotone": None}, "monotone"),
        ({"monotone": "no"}, "monotone"),
    ],
)
def test_invalid_parameters_are_refused(parameters, at):
    for kind in ALL:
        assert refusal(
            InvalidInput, kind.of, **{"sensitivity": 1, "epsilon": 1, **parameters}
        ).what.startswith(at)


@each
def test_plain_constructor_checks_parameters(kind):
    assert "int" in refusal(InvalidInput, kind, 1, Fraction(1)).what
    refusal(InvalidInput, kind, Sensitivity(1), Fraction(0))
    assert kind(Sensitivity(1), 0.1) == kind.of(sensitivity=1, epsilon=0.1)
    assert type(kind(Sensitivity(1), 1).epsilon) is Fraction


def test_noise_too_wide_for_exact_sampling_is_refused():
    for kind in (ReportNoisyMax, ReportNoisyMaxWithGap):
        assert kind.of(sensitivity=1, epsilon=Fraction(1, 2**47)).rate == Fraction(1, 2**48)
        assert "2^48" in refusal(Unsupported, kind.of, sensitivity=1, epsilon=Fraction(1, 2**47 + 1)).what
    for kind in (PermuteAndFlip, Exponential):
        assert kind.of(sensitivity=1, epsilon=Fraction(1, 2**100)).release([1, 2]).value in (0, 1)


@each
def test_largest_sensitivity_of_one_score_counts(kind):
    mechanism = kind.of(sensitivity=2, epsilon=1)

    assert mechanism.release(Bounded.user_asserted([1, 2, 3], Sensitivity(100, linf=2))).coordinates == 3
    error = refusal(Refused, mechanism.release, Bounded.user_asserted([1, 2, 3], Sensitivity(3)))
    assert "sensitivity" in error.what


@each
def test_monotone_is_refused_under_substitution(kind):
    unit = Unit.row(Neighbours.SUBSTITUTE)
    bounded = Bounded([1, 2], Sensitivity(2, linf=1), unit, "histogram")

    release = kind.of(sensitivity=1, epsilon=1).release(bounded)
    assert (release.unit, release.user_asserted) == (unit, False)
    error = refusal(Refused, kind.of(sensitivity=1, epsilon=1, monotone=True).release, bounded)
    assert "substitution" in error.what


@each
def test_user_asserted_sensitivity_is_stated(kind):
    unit = Unit("patient")
    bounded = Bounded([1, 2], Sensitivity(2, linf=1), unit, "counts")
    plain, monotone = kind.of(sensitivity=1, epsilon=1), kind.of(sensitivity=1, epsilon=1, monotone=True)

    assert not plain.release(bounded).user_asserted
    assert plain.release([1, 2]).user_asserted
    assert monotone.release(bounded).user_asserted
    assert plain.release(bounded).unit == unit


@each
def test_monotone_doubles_the_rate(kind):
    assert kind.of(sensitivity=3, epsilon=HALF).rate == Fraction(1, 12)
    assert kind.of(sensitivity=3, epsilon=HALF, monotone=True).rate == Fraction(1, 6)
    assert kind.of(sensitivity=3, epsilon=HALF).loss().epsilon() == HALF


# What is stored and shown


STORED = {
    "permute-and-flip/1": PermuteAndFlip.of(sensitivity=1, epsilon=0.1),
    "exponential/1": Exponential.of(sensitivity=Sensitivity(7, linf=2), epsilon=3, monotone=True),
    "report-noisy-max/1": ReportNoisyMax.of(sensitivity=1, epsilon=0.1),
    "report-noisy-max-with-gap/1": ReportNoisyMaxWithGap.of(sensitivity=1, epsilon=0.1),
}


@pytest.mark.parametrize("kind", STORED)
def test_mechanism_survives_storage(kind):
    mechanism = STORED[kind]
    check_stored(mechanism, kind)
    with pytest.raises(dataclasses.FrozenInstanceError):
        mechanism.epsilon = Fraction(2)


def test_stored_form_is_stable():
    one = '{"l1":"1","l2_squared":"1","linf":"1"}'
    inner = f'{{"epsilon":"1/10","kind":"permute-and-flip/1","monotone":false,"sensitivity":{one}}}'

    assert STORED["permute-and-flip/1"].to_json() == inner


@pytest.mark.parametrize(
    "text",
    [
        '{"epsilon":"0","kind":"permute-and-flip/1","monotone":false,"sensitivity":"1"}',
        '{"epsilon":"1","kind":"permute-and-flip/1","monotone":false,"sensitivity":"1"}',
    ],
)
def test_altered_stored_mechanism_is_refused(text):
    refusal(InvalidInput, from_json, text)


def test_mechanisms_describe_themselves():
    how = "integer scores that one unit moves by at most 1: ε = 0.1"
    assert str(STORED["permute-and-flip/1"]) == f"Permute-and-flip on {how}"
    assert str(STORED["exponential/1"]) == (
        "Exponential mechanism on integer scores that one unit raises by at most 2: ε = 3"
    )
    assert str(STORED["report-noisy-max/1"]) == f"Report noisy max with Laplace noise of scale 20 on {how}"
    assert str(STORED["report-noisy-max-with-gap/1"]) == (
        f"Report noisy max with gap, Laplace noise of scale 20 on {how}"
    )


@each
@given(
    scores=st.lists(st.integers(-(10**15), 10**15), min_size=2, max_size=40),
    epsilon=st.fractions(Fraction(1, 10**6), 10**6),
    delta=st.integers(1, 10**6),
    monotone=st.booleans(),
)
def test_choice_is_one_of_the_candidates(kind, scores, epsilon, delta, monotone):
    make = partial(kind.of, sensitivity=delta, epsilon=epsilon, monotone=monotone, allow_large_epsilon=True)
    value = make().release(scores).value

    assert (value.winner if kind is ReportNoisyMaxWithGap else value) in range(len(scores))
    assert kind is not ReportNoisyMaxWithGap or value.gap >= 0
    assert from_json(make().to_json()) == make()
