"""Moments from noisy sums: exact without noise, sane without rows, and hardly wider than the noise is."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hubbub.mechanisms import Gaussian, Laplace
from hubbub.mechanisms.confidence_intervals import sum_width, width_from_norms
from hubbub.sensitivity import Sensitivity
from hubbub.sql.moments import Moments, estimate_linear, linear_half_width

SILENT = Laplace(Fraction(1, 1000), Sensitivity(1))
"""Noise that is zero but for e^-1000."""
LAPLACE = Laplace.of(sensitivity=2**16 * 5, epsilon=1)
GAUSSIAN = Gaussian.of(sensitivity=2**16 * 5, epsilon=1, delta=1e-6)
STEP = Fraction(1, 2**16)


def parts(t, degree):
    return [t, 1 - t] if degree == 1 else [t * t, 2 * t * (1 - t), (1 - t) ** 2]


def sums(*values, degrees):
    """The sums of all parts, in steps."""
    cells = parts(values[0], degrees[0])
    if len(values) == 2:
        cells = [one * two for one in cells for two in parts(values[1], degrees[1])]
    return np.array([round(cell.sum() * 2**16) for cell in cells])


def released(exact, noise, copies):
    noisy = noise.release(np.tile(exact, copies)).value
    return noisy.reshape(copies, len(exact)).astype(np.float64)


def pair(n=500, seed=3):
    rng = np.random.default_rng(seed)
    x = np.clip(rng.normal(0.4, 0.15, n), 0, 1)
    return x, np.clip(0.2 + 0.5 * x + rng.normal(0, 0.1, n), 0, 1)


def of(exact, degrees, noise=SILENT):
    return Moments(np.atleast_2d(exact).astype(np.float64), degrees, noise, STEP)


def test_without_noise_all_moments_are_those_of_the_values():
    x, y = pair()
    single, double = of(sums(x, degrees=(2,)), (2,)), of(sums(x, y, degrees=(2, 2)), (2, 2))
    plain = of(sums(x, y, degrees=(1, 1)), (1, 1))
    expected = [
        (of(sums(x, degrees=(1,)), (1,)).mean(0.95), x.mean()),
        (single.mean(0.95), x.mean()),
        (double.mean(0.95, 0), x.mean()),
        (double.mean(0.95, 1), y.mean()),
        (single.variance(0.95, is_sample=False), x.var()),
        (single.variance(0.95, is_sample=True), x.var(ddof=1)),
        (plain.covariance(0.95, is_sample=False), np.cov(x, y, ddof=0)[0, 1]),
        (plain.covariance(0.95, is_sample=True), np.cov(x, y)[0, 1]),
        (double.covariance(0.95, is_sample=True), np.cov(x, y)[0, 1]),
        (double.correlation(0.95), np.corrcoef(x, y)[0, 1]),
    ]
    for result, truth in expected:
        assert result.value[0] == pytest.approx(truth, abs=1e-6)
        assert result.low[0] <= result.value[0] <= result.high[0]
        assert result.high[0] - result.low[0] < 1e-5  # a step of noise, no more


@pytest.mark.parametrize("noise", [LAPLACE, GAUSSIAN], ids=["Laplace", "Gaussian"])
def test_intervals_are_hardly_wider_than_the_errors_are(noise):
    """The half width against the 95 % quantile of the true error, over 2000 releases of 20,000 rows."""
    x, y = pair(20_000)
    single, double = (
        released(sums(x, degrees=(2,)), noise, 2000),
        released(sums(x, y, degrees=(2, 2)), noise, 2000),
    )
    results = {
        "mean": (of(single, (2,), noise).mean(0.95), x.mean()),
        "variance": (of(single, (2,), noise).variance(0.95, is_sample=True), x.var(ddof=1)),
        "covariance": (of(double, (2, 2), noise).covariance(0.95, is_sample=True), np.cov(x, y)[0, 1]),
        "correlation": (of(double, (2, 2), noise).correlation(0.95), np.corrcoef(x, y)[0, 1]),
    }
    for name, (estimate, truth) in results.items():
        error = np.quantile(np.abs(estimate.value - truth), 0.95)
        half = np.mean(estimate.high - estimate.low) / 2
        assert half / error < 1.6, name
        # Nor is it biased: within a fifth of what it is off.
        assert abs(np.mean(estimate.value - truth)) < error / 5, name


@pytest.mark.parametrize("noise", [LAPLACE, GAUSSIAN], ids=["Laplace", "Gaussian"])
def test_empty_group_has_a_value_within_bounds_and_the_widest_interval(noise):
    copies = 500
    single = of(released(np.zeros(3, np.int64), noise, copies), (2,), noise)
    double = of(released(np.zeros(9, np.int64), noise, copies), (2, 2), noise)
    for result, least, most in (
        (single.mean(0.95), 0, 1),
        (single.variance(0.95, is_sample=True), 0, 0.5),
        (single.variance(0.95, is_sample=False), 0, 0.25),
        (double.covariance(0.95, is_sample=True), -0.5, 0.5),
        (double.correlation(0.95), -1, 1),
    ):
        assert np.isfinite([result.value, result.low, result.high]).all()
        assert ((least <= result.low) & (result.low <= result.value) & (result.value <= result.high)).all()
        assert (result.high <= most).all()
        whole = (result.low == least) & (result.high == most)
        assert whole.mean() > 0.8


def test_sums_far_below_zero_give_the_widest_interval():
    result = of([[-1e9, -1e9, -1e9], [1e9, -4e9, 1e10]], (2,), LAPLACE)
    mean, variance = result.mean(0.95), result.variance(0.95, is_sample=True)
    assert [mean.low[0], mean.high[0]] == [0, 1]
    assert [variance.low[0], variance.high[0]] == [0, 0.5]
    # A mean below all values: nothing explains it.
    assert [mean.low[1], mean.high[1]] == [0, 1]


def test_a_sample_of_less_than_two_rows_at_most_doubles_its_variance():
    one = of(sums(np.array([0.0, 1.0]) * 1.0, degrees=(2,)) // 2, (2,))  # two rows that count half
    assert one.variance(0.95, is_sample=True).value[0] == pytest.approx(0.5, abs=1e-3)
    assert one.variance(0.95, is_sample=False).value[0] == pytest.approx(0.25, abs=1e-3)


@pytest.mark.slow
@given(st.lists(st.integers(-(2**20), 2**24), min_size=3, max_size=3), st.integers(0, 1000))
def test_every_mean_that_is_not_excluded_is_within_the_interval(noisy, thousandth):
    mean = thousandth / 1000
    weights = np.array([1, 0.5, 0]) - mean
    wide = width_from_norms(
        LAPLACE, np.abs(weights).sum(), np.sqrt((weights**2).sum()), np.abs(weights).max(), 0.95
    )
    result = of(noisy, (2,), LAPLACE).mean(0.95)
    if abs(weights @ noisy) <= wide:
        assert result.low[0] <= mean <= result.high[0]


def test_combination_includes_rounding_errors():
    table = np.array([[2.0**60, 1.0], [5.0, 7.0]])
    values = estimate_linear(table, np.array([1.0, -1.0]), LAPLACE, 0.95)
    assert values.value.tolist() == [2.0**60 - 1, -2.0]
    half = (values.high - values.low) / 2
    assert half[0] > 2**10 + half[1]


@pytest.mark.parametrize("epsilon", [0.3, 1, 2])
def test_a_plain_count_has_the_least_width(epsilon):
    for noise in (
        Laplace.of(sensitivity=1, epsilon=epsilon),
        Gaussian.of(sensitivity=1, epsilon=epsilon, delta=1e-6),
    ):
        values = estimate_linear(np.array([[7.0]]), np.ones(1), noise, 0.95)
        assert (values.high - values.low)[0] / 2 == pytest.approx(noise.error(0.95))
    noise = Laplace.of(sensitivity=1, epsilon=epsilon)
    assert linear_half_width(np.array([0.5, 0, -0.5]), noise, 0.95) == pytest.approx(
        sum_width(noise, 2, 0.95) / 2
    )
    assert linear_half_width(np.zeros(2), noise, 0.95) == 0
