"""Counts that select their keys: the bar, what is shown, and where the exact counts lie."""

import math
from fractions import Fraction
from itertools import combinations_with_replacement

import mpmath
import numpy as np
import pytest

from hubbub.errors import HubbubError, InvalidInput, Refused
from hubbub.mechanisms import Gaussian, Laplace, StabilityHistogram, from_json
from hubbub.sensitivity import Bounded, Sensitivity
from hubbub.unit import Unit

TEN_ROWS = Sensitivity(10, l2_squared=100, linf=10)
LAWS = {
    "Laplace": Laplace.of(sensitivity=TEN_ROWS, epsilon=1),
    "steep Laplace": Laplace.of(sensitivity=TEN_ROWS, epsilon=20),
    "Gaussian": Gaussian(Fraction(7), Sensitivity(6, l2_squared=18, linf=3)),
    "narrow Gaussian": Gaussian(Fraction(1, 3), Sensitivity(1)),
}


def reaches(noise, least):
    """Pr[noise ≥ least], by a second opinion."""
    with mpmath.workdps(60):
        scale = mpmath.mpf(noise.scale.numerator) / noise.scale.denominator
        if isinstance(noise, Gaussian):
            return mpmath.erfc((least - mpmath.mpf(1) / 2) / scale / mpmath.sqrt(2)) / 2
        q = mpmath.exp(-1 / scale)
        return q**least / (1 + q) if least >= 1 else 1 - q ** (1 - least) / (1 + q)


def worst(noise, groups, threshold):
    """The largest sum of chances over all ways to have keys of one's own."""
    most, total = int(noise.sensitivity.linf), int(noise.sensitivity.l1)
    ways = combinations_with_replacement(range(most + 1), groups)
    chances = [reaches(noise, threshold - count) for count in range(most + 1)]
    with mpmath.workdps(60):
        return max(sum(chances[count] for count in way) for way in ways if sum(way) <= total)


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("groups", [1, 2, 5])
def test_delta_is_the_worst_case_exposure_rounded_up(law, groups):
    noise = LAWS[law]
    for delta in (1e-3, 1e-6, 1e-12):
        mechanism = StabilityHistogram.of(noise=noise, max_groups=groups, delta=delta)
        exact = worst(noise, groups, mechanism.threshold)
        with mpmath.workdps(60):
            stated_delta = mpmath.mpf(mechanism.delta.numerator) / mechanism.delta.denominator
            assert exact * (1 - mpmath.mpf(10) ** -40) <= stated_delta <= exact * (1 + mpmath.mpf(10) ** -30)
        assert mechanism.delta <= delta
        lower = mechanism.threshold - 1
        assert lower == int(noise.sensitivity.linf) or worst(noise, groups, lower) > delta


def test_keys_at_or_above_the_threshold_are_shown():
    # Noise is 0, but once in 10^17 times.
    noise = Laplace.of(sensitivity=1, epsilon=40, allow_large_epsilon=True)
    mechanism = StabilityHistogram(noise, 5, 1)
    release = mechanism.release([4, 5, 0, -3, 6])
    assert release.value.tolist() == [[1, 5], [4, 6]]
    assert release.loss == mechanism.loss()


def test_key_without_units_is_never_shown():
    mechanism = StabilityHistogram(Laplace.of(sensitivity=1, epsilon=Fraction(1, 1000)), 2, 1)
    result = mechanism.release(np.tile([0, -1, 1], 1000)).value
    assert set(result[:, 0] % 3) == {2}
    assert (result[:, 1] >= 2).all()


def test_empty_histogram_is_accepted():
    mechanism = StabilityHistogram(LAWS["Laplace"], 50, 10)
    release = mechanism.release(np.array([], dtype=np.int64))
    assert release.value.shape == (0, 2)


@pytest.mark.parametrize("law", LAWS)
def test_key_is_shown_with_the_stated_probability(law):
    mechanism = StabilityHistogram.of(noise=LAWS[law], max_groups=3, delta=1e-4)
    least = mechanism.min_count(0.9)
    assert reaches(mechanism.noise, mechanism.threshold - least) >= 0.9
    assert reaches(mechanism.noise, mechanism.threshold - least + 1) < 0.9


@pytest.mark.sweep(3)
@pytest.mark.slow
@pytest.mark.parametrize("law", LAWS)
def test_interval_is_conditional_on_being_shown(law):
    """Of each exact count, by the sum over all noisy ones: no sampling."""
    noise = LAWS[law]
    mechanism = StabilityHistogram.of(noise=noise, max_groups=2, delta=1e-3)
    bar, wide = mechanism.threshold, math.ceil(40 * noise.scale) + 5
    noisy = np.arange(bar, bar + 3 * wide)
    low, high = mechanism.interval(noisy, 0.95)
    assert (np.diff(low) >= 0).all()
    for count in {1, 2, bar // 2, bar - 1, bar, bar + 1, bar + wide}:
        tails = [reaches(noise, int(y) - count) for y in (*noisy, noisy[-1] + 1)]
        missed = sum(
            above - below
            for above, below, start, end in zip(tails[:-1], tails[1:], low, high, strict=True)
            if not start <= count <= end
        )
        assert missed / tails[0] <= 0.05 + 1e-9
    # And it is no wider than it needs to be far from the bar.
    assert high[-1] - low[-1] <= 2 * noise.error(0.95)


def test_interval_just_above_the_threshold_has_no_lower_end():
    mechanism = StabilityHistogram(LAWS["Laplace"], 180, 10)
    low, high = mechanism.interval([180, 215, 216, 217, 400])
    assert low[:2].tolist() == [0, 0]
    assert low[-1] == 400 - LAWS["Laplace"].error(0.95)
    assert (high - [180, 215, 216, 217, 400] == LAWS["Laplace"].error(0.95)).all()
    for wrong in ([179], [180.5]):
        with pytest.raises(Refused, match="below the threshold"):
            mechanism.interval(wrong)
    assert [end.size for end in mechanism.interval([])] == [0, 0]


def test_interval_ends_are_rounded_outward():
    mechanism = StabilityHistogram(Laplace.of(sensitivity=1, epsilon=40, allow_large_epsilon=True), 2, 1)
    for count in (2**60 + 1, 2**60 + 200, 2**53 + 1):
        low, high = mechanism.interval([count])
        assert low[0] <= count - 1
        assert high[0] >= count + 1


def test_far_tails_of_the_normal_law_do_not_cancel():
    mechanism = StabilityHistogram(Gaussian(Fraction(10**9), Sensitivity(1)), 10**17, 1)
    values = mechanism._conditional_tail(np.array([10**17 + 20]), np.array([12345]))
    assert values[0] == pytest.approx(math.exp(-2), rel=1e-6)


def test_loss_is_that_of_noise_and_delta():
    for noise in LAWS.values():
        mechanism = StabilityHistogram.of(noise=noise, max_groups=4, delta=1e-5)
        assert mechanism.loss().delta(3) >= noise.loss().delta(3)
        assert mechanism.loss().delta(10**4) == pytest.approx(float(mechanism.delta))
        with pytest.raises(InvalidInput, match="no single error"):
            mechanism.error()
        with pytest.raises(InvalidInput):
            mechanism.release([10**6]).error()


@pytest.mark.parametrize(
    "moved",
    [
        Sensitivity(9, l2_squared=27, linf=3),
        Sensitivity(8, l2_squared=20, linf=3),
        Sensitivity(5, l2_squared=18, linf=4),
    ],
    ids=str,
)
def test_counts_above_the_declared_sensitivity_are_refused(moved):
    mechanism = StabilityHistogram(Gaussian(Fraction(7), Sensitivity(8, l2_squared=18, linf=3)), 180, 10)
    mechanism.release(Bounded.user_asserted(np.array([1000]), mechanism.noise.sensitivity, Unit.row()))
    with pytest.raises(HubbubError):
        mechanism.release(Bounded.user_asserted(np.array([1000, 2000]), moved, Unit.row()))


def test_invalid_histograms_are_refused():
    noise = LAWS["Laplace"]
    for wrong in (
        lambda: StabilityHistogram(noise, 10, 10),  # a bar that one unit could reach by itself
        lambda: StabilityHistogram(noise, 180, 0),
        lambda: StabilityHistogram(Laplace.of(sensitivity=1, epsilon=1, real=True), 180, 1),
        lambda: StabilityHistogram("noise", 180, 1),
        lambda: StabilityHistogram.of(noise=noise, max_groups=1, delta=0),
        lambda: StabilityHistogram.of(noise=noise, max_groups=1, delta=1),
        lambda: StabilityHistogram(noise, 180, 10).release(1000),
        lambda: StabilityHistogram(noise, 180, 10).release([0.5]),
    ):
        with pytest.raises(HubbubError):
            wrong()


def test_threshold_beyond_exact_integers_is_refused():
    noise = Laplace(Fraction(2**48), Sensitivity(1))
    with pytest.raises(HubbubError, match="2\\^61"):
        StabilityHistogram(noise, 2**61 + 1, 1)


def test_stability_histogram_survives_storage():
    for noise in LAWS.values():
        mechanism = StabilityHistogram.of(noise=noise, max_groups=4, delta=1e-5)
        assert from_json(mechanism.to_json()) == mechanism
        assert str(mechanism.threshold) in str(mechanism)
    with pytest.raises(InvalidInput):
        from_json(mechanism.to_json().replace('"max_groups"', '"groups"'))
