"""Widths of sums, combinations and ratios, against the exact laws by convolution."""

import math
from fractions import Fraction
from functools import partial

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hubbub.errors import InvalidInput, Unsupported
from hubbub.mechanisms import Gaussian, Laplace, confidence_intervals
from hubbub.mechanisms.confidence_intervals import (
    combination_width,
    mixed_combination_width,
    ratio_interval,
    sum_width,
    width_from_norms,
)
from hubbub.mechanisms.noise_tails import half_width, laplace_sum_tail
from hubbub.sensitivity import Sensitivity
from refusing import refused

mp = mpmath.mp.clone()
mp.dps = 100


def laplace(scale, grid=None):
    return Laplace(Fraction(scale), Sensitivity(1), grid)


def gaussian(sigma, grid=None):
    return Gaussian(Fraction(sigma), Sensitivity(1), grid)


def law(mechanism):
    """The chances of −far … far, beyond which lies less than a double can tell."""
    scale = float(mechanism.scale)
    far = math.ceil(45 * scale)
    k = np.arange(-far, far + 1)
    if isinstance(mechanism, Laplace):
        return math.tanh(1 / (2 * scale)) * np.exp(-np.abs(k) / scale)
    inner, outer = (np.array([math.erfc(x) for x in (np.abs(k) + c) / scale / 2**0.5]) for c in (-0.5, 0.5))
    return (inner - outer) / 2


def tail_of(mechanism, weights):
    """A function t → Pr[|Σ weight·X| > t], for whole weights."""
    whole = np.ones(1)
    one = law(mechanism)
    for weight in weights:
        spaced = np.zeros((len(one) - 1) * abs(weight) + 1)
        spaced[:: abs(weight)] = one
        whole = np.convolve(whole, spaced)
    size = np.abs(np.arange(len(whole)) - len(whole) // 2)
    return lambda t: float(whole[size > t].sum())


def least(tail, rare):
    t = 0
    while tail(t) > rare:
        t += 1
    return t


def sum_tail(scale, terms, m):
    """Pr[|S| > m] where S is a difference of two negative binomials: 1 − Σ over |S| ≤ m."""
    q = mp.exp(-mp.mpf(scale.denominator) / scale.numerator)
    last = m + int(100 * scale) + 20 * terms
    chance = [mp.binomial(n + terms - 1, n) * (1 - q) ** terms * q**n for n in range(last)]
    same = [sum(a * b for a, b in zip(chance, chance[k:], strict=False)) for k in range(m + 1)]
    return 1 - same[0] - 2 * sum(same[1:])


@pytest.mark.parametrize("terms", [1, 2, 3, 7])
@pytest.mark.parametrize("scale", [Fraction(1, 3), Fraction(1), Fraction(5, 2)])
@pytest.mark.parametrize("bits", [16, 128])
def test_the_tail_of_a_sum_is_enclosed_by_a_few_units(scale, terms, bits):
    for m in (0, 1, 4, 15):
        low, high = laplace_sum_tail(scale, terms, m, bits)
        assert low <= mp.ldexp(sum_tail(scale, terms, m), bits) <= high
        assert high - low <= 2


@pytest.mark.parametrize("terms", [2, 60, 256])
@pytest.mark.parametrize("scale", [Fraction(1, 1000), Fraction(7, 3), Fraction(2**32), Fraction(2**48)])
def test_the_tail_of_a_sum_is_enclosed_by_a_few_units_however_wide_the_noise(scale, terms):
    for far in (0, 5, 100, 1000):
        low, high = laplace_sum_tail(scale, terms, math.ceil(far * scale), 128)
        assert 0 <= low <= high <= low + 2 <= (1 << 128) + 2


def test_tail_of_a_sum_of_one_is_the_tail_of_one_draw():
    for scale in (1, 4, 1000):
        assert sum_width(laplace(scale), 1, 0.99) == laplace(scale).error(0.99)
        assert sum_width(gaussian(scale), 1, 0.99) == gaussian(scale).error(0.99)


@pytest.mark.parametrize("confidence", ["0.5", "0.95", "0.999"])
@pytest.mark.parametrize("terms", [1, 2, 3, 5])
@pytest.mark.parametrize("scale", [2, 3, 5])
def test_a_sum_of_laplace_noise_has_the_least_width(scale, terms, confidence):
    tail = tail_of(laplace(scale), [1] * terms)
    assert sum_width(laplace(scale), terms, Fraction(confidence)) == least(tail, 1 - float(confidence))


@pytest.mark.parametrize("confidence", ["0.5", "0.95", "0.999"])
@pytest.mark.parametrize("terms", [1, 2, 3, 5])
@pytest.mark.parametrize("sigma", [1, 2, 5])
def test_a_sum_of_gaussian_noise_has_the_least_width_but_for_half_a_step_a_term(sigma, terms, confidence):
    wide = sum_width(gaussian(sigma), terms, Fraction(confidence))
    needed = least(tail_of(gaussian(sigma), [1] * terms), 1 - float(confidence))
    assert needed <= wide <= needed + terms / 2 + 0.5


def test_width_of_a_long_sum_is_nearly_tight():
    exact = half_width(partial(laplace_sum_tail, Fraction(10**6), 300), 0.95, 1)
    assert exact <= sum_width(laplace(10**6), 300, 0.95) <= 1.01 * exact
    # The roundings of many Gaussian terms do not all go one way.
    sigma_root = 100 * 1000**0.5
    assert 1.959 * sigma_root <= sum_width(gaussian(100), 1000, 0.95) <= 1.967 * sigma_root + 2.1 * 1000**0.5


WEIGHTS = [
    (1,),
    (2, 1),
    (3, -3),
    (7, 1),
    (5, 4),
    (4, 2, 1),
    (3, 3, 3),
    (4, -4, 1, 1),
    (5, 4, 3, 2, 1),
    (1,) * 20,
]


@pytest.mark.parametrize("confidence", ["0.5", "0.95", "0.9999"])
@pytest.mark.parametrize("weights", WEIGHTS, ids=str)
@pytest.mark.parametrize("mechanism", [laplace(2), laplace(5), gaussian(1), gaussian(4)], ids=str)
def test_a_combination_stays_within_its_width(mechanism, weights, confidence):
    wide = float(combination_width(mechanism, weights, Fraction(confidence)))
    tail, rare = tail_of(mechanism, weights), 1 - float(confidence)
    assert tail(wide) <= rare
    # Not silly: the noise's own least width, a fifth more, and what the roundings to steps come to.
    assert wide <= 1.2 * (least(tail, rare) + max(weights)) + min(
        sum(map(abs, weights)), 2.7 * math.hypot(*weights)
    )


@pytest.mark.slow
@settings(max_examples=30)
@given(
    weights=st.lists(st.integers(-6, 6).filter(bool), min_size=1, max_size=5),
    scale=st.fractions(Fraction(1, 2), 4, max_denominator=10),
    confidence=st.sampled_from(["0.3", "0.9", "0.999"]),
    kind=st.sampled_from([laplace, gaussian]),
)
def test_any_combination_stays_within_its_width(weights, scale, confidence, kind):
    wide = float(combination_width(kind(scale), weights, Fraction(confidence)))
    assert tail_of(kind(scale), weights)(wide) <= 1 - float(confidence)


@pytest.mark.parametrize("confidence", [0.5, 0.95, 0.999])
@pytest.mark.parametrize(
    "mechanisms",
    [
        (laplace(2), laplace(3)),
        (laplace("0.3"), laplace(4)),
        (gaussian(2), gaussian(5)),
        (gaussian("0.4"), gaussian(3)),
        (laplace(2), gaussian(3)),
        (gaussian("0.5"), laplace(4)),
    ],
)
@pytest.mark.parametrize("share", [0.1, 0.5, 0.8])
def test_combination_of_two_mechanisms_matches_enumeration(mechanisms, share, confidence):
    width = mixed_combination_width([(mechanisms[0], share), (mechanisms[1], 1 - share)], confidence)
    chances = [law(mechanism) for mechanism in mechanisms]
    one, two = (np.arange(len(each)) - len(each) // 2 for each in chances)
    off = np.abs(share * one[:, np.newaxis] + (1 - share) * two)
    together = np.outer(*chances)
    assert float(together[off > width].sum()) <= 1 - confidence
    if all(mechanism.scale > 1 for mechanism in mechanisms) and type(mechanisms[0]) is type(mechanisms[1]):
        # And it is not much wider than it need be.
        assert float(together[off > 0.8 * width - 1].sum()) > 1 - confidence


@pytest.mark.parametrize("confidence", [0.5, 0.95, 0.999])
@pytest.mark.parametrize("scales", [(1, 2, 4), (4, 4, 4), (2, "2.01", 3), ("0.5", 3, 5)])
def test_combination_of_three_mechanisms_matches_enumeration(scales, confidence):
    shares = (0.5, 0.25, 0.25)
    width = mixed_combination_width(
        [(laplace(each), share) for each, share in zip(scales, shares, strict=True)], confidence
    )
    spaced = []
    for each, every in zip(scales, (2, 1, 1), strict=True):  # in quarters
        chances = law(laplace(each))
        spaced.append(np.zeros((len(chances) - 1) * every + 1))
        spaced[-1][::every] = chances
    whole = np.convolve(np.convolve(spaced[0], spaced[1]), spaced[2])
    off = np.abs(np.arange(len(whole)) - len(whole) // 2) / 4
    assert float(whole[off > width].sum()) <= 1 - confidence
    if scales == (1, 2, 4):
        assert float(whole[off > 0.8 * width - 1].sum()) > 1 - confidence


def test_combination_of_one_mechanism_is_that_mechanism():
    for mechanism in (laplace(7), gaussian(7)):
        assert mixed_combination_width([(mechanism, [1, 0.5])]) == combination_width(mechanism, [1, 0.5])
    with pytest.raises(Unsupported, match="not integers"):
        mixed_combination_width([(laplace(7, Fraction(1, 8)), 1)])
    with pytest.raises(Unsupported, match="not integers"):
        mixed_combination_width([])


def test_a_table_of_combinations_has_a_width_for_each():
    table = np.array([[1, 2, 0], [0.5, 0.5, 0.5], [0, 0, 0]])
    for mechanism in (laplace(30), gaussian(30)):
        wide = combination_width(mechanism, table)
        assert wide.shape == (3,)
        assert wide.tolist() == [float(combination_width(mechanism, row)) for row in table]
        assert wide[2] == 0
        assert combination_width(mechanism, np.zeros((4, 0))).tolist() == [0.0] * 4
        pairs = combination_width(mechanism, table[:, :2])
        assert pairs[2] == 0
        # Without one answer there is less noise.
        assert pairs[1] < wide[1]


@pytest.mark.parametrize("rare", [Fraction(1, 2), Fraction(1, 20), Fraction(1, 10**6), Fraction(1, 2**900)])
def test_two_terms_have_the_tail_of_the_closed_form(rare):
    ratios = np.array([0, 1e-12, 0.001, 0.3, 0.999, 1 - 1e-9, 1 - 1e-15])
    far = float(-mp.log(mp.mpf(rare.numerator) / rare.denominator))
    for ratio, tail in zip(ratios, confidence_intervals._pair_tail(ratios, np.full(7, far)), strict=True):
        r, t = mp.mpf(float(ratio)), mp.mpf(far)
        exact = (mp.exp(-t) - r**2 * (mp.exp(-t / r) if r else 0)) / (1 - r**2)
        assert abs(tail / exact - 1) < 1e-8
    quantiles = confidence_intervals._pair_quantiles(rare)
    assert (np.diff(quantiles) >= 0).all()
    assert abs(quantiles[-1] / confidence_intervals._sum_quantile(2, rare) - 1) < 1e-5


@pytest.mark.parametrize("rare", [Fraction(1, 2), Fraction(1, 20), Fraction(1, 10**6)])
def test_quantiles_of_continuous_sums_match_the_closed_form(rare):
    for terms in (1, 2, 5, 40):
        t = mp.mpf(confidence_intervals._sum_quantile(terms, rare))
        parts = [
            mp.binomial(2 * terms - 1 - j, terms - j) * mp.mpf(2) ** (j + 1 - 2 * terms)
            for j in range(terms + 1)
        ]
        tail = sum(parts[j] * mp.gammainc(j, t, regularized=True) for j in range(1, terms + 1))
        assert 0 <= 1 - tail * rare.denominator / rare.numerator < 1e-3


@pytest.mark.parametrize("rare", [Fraction(1, 2), Fraction(1, 20), Fraction(1, 10**6), Fraction(1, 2**400)])
def test_many_equal_terms_are_bounded_closely(rare):
    for terms in (17, 100):
        bound = float(confidence_intervals._laplace_width(*map(np.float64, (terms, terms**0.5, 1)), rare))
        truth = confidence_intervals._sum_quantile(terms, rare)
        assert truth <= bound <= truth * (1 + 0.5 / terms + 0.003)


def test_widths_of_reals_include_the_rounding_to_the_grid():
    grid = Fraction(1, 1024)
    for kind in (laplace, gaussian):
        fine, on_steps = kind(1, grid), kind(1024)
        for wide, terms in ((sum_width, 3), (sum_width, 300)):
            rounded = (wide(on_steps, terms) + terms / 2) / 1024
            assert rounded <= wide(fine, terms) <= rounded + 1.001 / 1024
        rounded = (combination_width(on_steps, [1, -3]) + 2) / 1024
        assert rounded <= combination_width(fine, [1, -3]) <= rounded * 1.000001
        one, two = ratio_interval([3.5], [4], fine), ratio_interval([3.5 * 1024], [4096], on_steps)
        assert two[1] - 0.001 <= one[1] <= two[1]


def test_width_of_many_terms_depends_on_norms_only():
    weights = np.array([0.3, -1, 0.2, 0.7])
    norms = np.abs(weights).sum(), math.hypot(*weights), 1
    for mechanism in (laplace(9), gaussian(9)):
        assert width_from_norms(mechanism, *norms) == pytest.approx(combination_width(mechanism, weights))
        assert width_from_norms(mechanism, [0, 1], [0, 1], [0, 1]).shape == (2,)


@pytest.mark.parametrize("mechanism", [laplace(2), laplace(6), gaussian(2), gaussian(6)], ids=str)
@pytest.mark.parametrize("exact", [(1, 0), (0, 3), (1, 1), (3, 9), (40, 2), (200, 300)], ids=str)
@pytest.mark.parametrize("confidence", [0.8, 0.95])
def test_ratio_interval_covers_with_its_confidence_under_the_exact_law(mechanism, exact, confidence):
    chance = law(mechanism)
    far = min(len(chance) // 2, 60)
    chance = chance[len(chance) // 2 - far : len(chance) // 2 + far + 1]
    noise = np.arange(-far, far + 1)
    _, low, high = ratio_interval(exact[0] + noise[:, None], exact[1] + noise, mechanism, confidence)
    share = exact[0] / sum(exact)
    covered = float((chance[:, None] * chance * ((low <= share) & (share <= high))).sum())
    assert covered >= confidence
    assert covered <= 1 - (1 - confidence) / 8  # what is beyond the confidence pays for the rounding to steps


@pytest.mark.slow
@settings(max_examples=100)
@given(
    top=st.integers(-30, 60),
    bottom=st.integers(-30, 60),
    mechanism=st.sampled_from([laplace(2), laplace(5), gaussian(3)]),
)
def test_ratio_interval_spans_all_ratios_not_excluded(top, bottom, mechanism):
    shares = np.linspace(0, 1, 257)
    if isinstance(mechanism, Laplace):
        wide = np.array(
            [confidence_intervals._pair_width(max(p, 1 - p), min(p, 1 - p), Fraction(1, 20)) for p in shares]
        )
        wide = wide * float(mechanism.scale) + 1
    else:
        wide = 1.96 * float(mechanism.scale) * np.hypot(shares, 1 - shares) + 0.5
    near = shares[np.abs((1 - shares) * top - shares * bottom) <= wide * (1 - 1e-2)]
    estimate, low, high = (float(end) for end in ratio_interval(top, bottom, mechanism))

    assert 0 <= low <= estimate <= high <= 1
    if near.size:
        assert low <= near[0]
        assert near[-1] <= high
        looser = shares[np.abs((1 - shares) * top - shares * bottom) <= wide * (1 + 1e-2)]
        assert looser[0] - 1 / 256 <= low
        assert high <= looser[-1] + 1 / 256


def test_ratio_of_nothing_has_the_whole_interval():
    for mechanism in (laplace(2), gaussian(2)):
        estimate, low, high = ratio_interval([0, -1, 1, 900], [0, -2, -1, -900], mechanism)
        assert low.tolist() == [0, 0, 0, 0]
        assert high.tolist() == [1, 1, 1, 1]
        assert estimate.tolist() == [0.5, 0.5, 1, 1]


def test_ratio_interval_handles_large_numbers():
    for mechanism in (laplace(2), gaussian(2)):
        estimate, low, high = ratio_interval(3 * 10**14, 10**14, mechanism)
        assert low < estimate == 0.75 < high
        assert high - low < 1e-13


@pytest.mark.parametrize("rare", [0.5, 0.05, 1e-6])
def test_width_of_a_difference_is_convex_in_the_ratio(rare):
    """What makes the shares that are excluded at either end an interval."""
    exact = confidence_intervals._pair_quantiles(Fraction(rare))
    light = np.arange(confidence_intervals._RATIOS + 1) / confidence_intervals._RATIOS
    wide, share = exact / (1 + light), light / (1 + light)  # as weights that add up to one
    slopes = np.diff(wide) / np.diff(share)
    assert (np.diff(slopes) >= -1e-6).all()
    assert slopes[-1] <= 1e-6


@pytest.mark.parametrize("bad", [1.0, [[1, math.nan]], [math.inf]])
def test_weights_must_be_finite(bad):
    with refused(InvalidInput, match="weights"):
        combination_width(laplace(1), bad)


@pytest.mark.parametrize("bad", [0, -1, 1.5, None])
def test_number_of_terms_must_be_a_positive_integer(bad):
    with refused(InvalidInput, match="terms"):
        sum_width(laplace(1), bad)


def test_a_confidence_lies_between_0_and_1_and_not_too_near_to_1():
    for ask in (
        lambda c: sum_width(gaussian(1), 2, c),
        lambda c: combination_width(laplace(1), [1, 2], c),
        lambda c: ratio_interval(1, 2, laplace(1), c),
    ):
        with refused(InvalidInput, match="confidence"):
            ask(1)
        with refused(Unsupported, match="confidence"):
            ask(1 - Fraction(1, 2**1001))
