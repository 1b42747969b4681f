"""Variance and expected error of additive noise, against mpmath and against the textbook's figures."""

import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hubbub.mechanisms import Gaussian, Laplace, from_json, noise_tails
from hubbub.mechanisms.noise_tails import (
    discrete_laplace_mean_size,
    discrete_laplace_variance,
    rounded_gaussian_mean_size,
    rounded_gaussian_variance,
)
from hubbub.noise import discrete_laplace, rounded_gaussian
from hubbub.sensitivity import Sensitivity
from mechanisms.reference import repeatable_bits

mp = mpmath.mp.clone()
mp.dps = 60
ONE = Sensitivity(1)


def real(x):
    return mp.mpf(x.numerator) / x.denominator


def rational(x):
    """A number of mpmath as a Fraction."""
    return Fraction(int(mp.floor(mp.ldexp(x, 600))), 1 << 600)


def laplace_moments(scale):
    """E|X| and E[X²] summed over the law: Pr[X = ±k] ∝ q^k."""
    q = mp.exp(-1 / real(scale))
    base = (1 - q) / (1 + q)
    size = mp.nsum(lambda k: 2 * k * base * q**k, [1, mp.inf]) if scale <= 20 else 2 * q / (1 - q * q)
    square = mp.nsum(lambda k: 2 * k * k * base * q**k, [1, mp.inf]) if scale <= 20 else 2 * q / (1 - q) ** 2
    return size, square


def gaussian_moments(sigma):
    """E|X| and E[X²] as sums of Φ((k+½)/σ) − Φ((k−½)/σ)."""
    root = real(sigma) * mp.sqrt(2)
    edges = [mp.erfc((k - mp.mpf(1) / 2) / root) for k in range(1, int(18 * sigma) + 22)]
    masses = [one - two for one, two in zip(edges, [*edges[1:], mp.mpf(0)], strict=True)]
    return (
        mp.fsum(k * mass for k, mass in enumerate(masses, 1)),
        mp.fsum(k * k * mass for k, mass in enumerate(masses, 1)),
    )


def check(bounds, true, relative):
    low, high = bounds
    assert low <= rational(true) * (1 + Fraction(1, 10**50))
    assert high >= rational(true) * (1 - Fraction(1, 10**50))
    assert high - low <= relative * high
    assert low > 0


@pytest.mark.parametrize(
    "scale",
    [Fraction(1, 60), Fraction(1, 3), Fraction(1), Fraction(7, 3), Fraction(20), Fraction(10**6), 2**48],
)
def test_the_moments_of_discrete_laplace_noise_are_enclosed(scale):
    size, square = laplace_moments(Fraction(scale))
    check(discrete_laplace_mean_size(Fraction(scale)), size, Fraction(1, 10**20))
    check(discrete_laplace_variance(Fraction(scale)), square, Fraction(1, 10**20))


SIGMAS = [
    *(Fraction(1, 30), Fraction(1, 10), Fraction(1, 3), Fraction(9, 10), Fraction(999, 1000), Fraction(1)),
    *(Fraction(1001, 1000), Fraction(3, 2), Fraction(4), Fraction(799, 100), Fraction(8), Fraction(33, 4)),
    *(Fraction(17), Fraction(60)),
]


@pytest.mark.parametrize("sigma", SIGMAS, ids=str)
def test_the_moments_of_a_rounded_gaussian_are_enclosed(sigma):
    size, square = gaussian_moments(sigma)
    check(rounded_gaussian_mean_size(sigma), size, Fraction(1, 10**15))
    check(rounded_gaussian_variance(sigma), square, Fraction(1, 10**20))


def test_the_two_ways_to_a_moment_meet(monkeypatch):
    """Just below σ = 1 and σ = 8 tails are summed, from there on a series: at the same σ they agree."""
    for moment, sigma in ((rounded_gaussian_variance, 1), (rounded_gaussian_mean_size, 8)):
        below, above = moment(sigma - Fraction(1, 10**30)), moment(Fraction(sigma))
        assert abs(below[0] - above[0]) < Fraction(1, 10**14)
        assert below[0] <= above[1]


@pytest.mark.parametrize("sigma", [Fraction(10**6), Fraction(2**40) + Fraction(1, 3), Fraction(2**48)])
def test_wide_gaussian_noise_has_the_moments_of_the_continuous_law(sigma):
    low, high = rounded_gaussian_variance(sigma)
    assert low <= sigma**2 + Fraction(1, 12) <= high + Fraction(1, 10**40)
    assert high - low < Fraction(1, 10**40) * sigma**2
    low, high = rounded_gaussian_mean_size(sigma)
    true = real(sigma) * mp.sqrt(2 / mp.pi) * (1 - 1 / (24 * real(sigma) ** 2))
    assert abs(rational(true) - low) < Fraction(1, 10**17)
    assert high - low < Fraction(1, 10**17) * sigma


@pytest.mark.slow
def test_noise_that_is_almost_never_there_has_moments_next_to_0():
    for moment in (rounded_gaussian_variance, rounded_gaussian_mean_size):
        low, high = moment(Fraction(1, 10**9))
        assert (low, high) == (0, Fraction(1, 2**1200))
        for sigma in (Fraction(1, 98), Fraction(1, 97), Fraction(1, 60)):  # around e^−1200, and 2^-650
            low, high = moment(sigma)
            assert low <= rational(2 * mp.exp(-1 / (8 * real(sigma) ** 2))) + Fraction(1, 2**590)
            assert Fraction(1, 2**1400) < high < Fraction(1, 2**640)
        assert low > 0
    for moment in (discrete_laplace_variance, discrete_laplace_mean_size):
        low, high = moment(Fraction(1, 10**9))
        assert low == 0 < high < Fraction(1, 2**1200)
    for mechanism in (Gaussian(Fraction(1, 10**9), ONE), Laplace(Fraction(1, 10**9), ONE)):
        assert mechanism.variance_bounds == mechanism.expected_error_bounds == (0.0, 5e-324)


def test_safe_end_of_every_enclosure_is_used(monkeypatch):
    """With enclosures that are far too wide on both sides, bounds are wide on both sides too."""
    cases = [
        (discrete_laplace_variance, Fraction(3)),
        (discrete_laplace_mean_size, Fraction(3)),
        (rounded_gaussian_variance, Fraction(1, 2)),
        (rounded_gaussian_variance, Fraction(1)),
        (rounded_gaussian_mean_size, Fraction(1, 2)),
        (rounded_gaussian_mean_size, Fraction(9)),
    ]
    tight = [moment(scale) for moment, scale in cases]
    for name in ("exp_neg", "normal_tail", "root_two_over_pi"):
        for up in (True, False):
            with monkeypatch.context() as patch:
                patch.setattr(noise_tails, name, widened(getattr(noise_tails, name), up=up))
                loose = [moment(scale) for moment, scale in cases]
            for one, two in zip(tight, loose, strict=True):
                assert two[0] <= one[1]
                assert one[0] <= two[1]


def widened(enclose, *, up):
    """The same enclosure with one end a millionth further out."""

    def wide(*args):
        low, high = enclose(*args)
        return (low, high + high // 10**6 + 1) if up else (low - low // 10**6, high)

    return wide


@pytest.mark.slow
@settings(max_examples=25)
@given(st.fractions(Fraction(1, 20), 100))
def test_bounds_are_in_order_and_close(scale):
    for moment in (
        discrete_laplace_variance,
        discrete_laplace_mean_size,
        rounded_gaussian_variance,
        rounded_gaussian_mean_size,
    ):
        low, high = moment(scale)
        assert 0 < low <= high <= low * (1 + Fraction(1, 10**15))
    # Discrete noise is never wider than the continuous one, but for the rounding of the Gaussian's.
    assert discrete_laplace_variance(scale)[1] < 2 * scale**2
    assert discrete_laplace_mean_size(scale)[1] < scale
    assert rounded_gaussian_variance(scale)[0] < scale**2 + Fraction(1, 12)
    assert rounded_gaussian_mean_size(scale)[0] < rational(real(scale) * mp.sqrt(2 / mp.pi))


# The mechanisms


@pytest.mark.parametrize("epsilon", [0.01, 0.1, 1, 3])
def test_the_textbooks_figures_of_a_count(epsilon):
    """Variance 2/ε² and expected error 1/ε: on reals to seven digits, on integers a little less."""
    whole = Laplace.of(sensitivity=1, epsilon=epsilon)
    fine = Laplace.of(sensitivity=1, epsilon=epsilon, real=True)
    assert math.isclose(fine.variance, 2 / epsilon**2, rel_tol=1e-7)
    assert math.isclose(fine.expected_error, 1 / epsilon, rel_tol=1e-7)
    assert 2 / epsilon**2 - 1 / 6 <= whole.variance < 2 / epsilon**2
    assert 1 / epsilon - epsilon / 6 <= whole.expected_error < 1 / epsilon


def test_the_figures_of_a_gaussian():
    whole = Gaussian.of(sensitivity=1, epsilon=1, delta=1e-6)
    fine = Gaussian.of(sensitivity=1, epsilon=1, delta=1e-6, real=True)
    assert math.isclose(whole.variance, float(whole.sigma) ** 2 + 1 / 12, rel_tol=1e-12)
    assert math.isclose(fine.variance, float(fine.sigma) ** 2, rel_tol=1e-12)
    assert math.isclose(fine.expected_error, float(fine.sigma) * math.sqrt(2 / math.pi), rel_tol=1e-9)


def test_figures_are_rounded_outward_and_kept():
    for mechanism in (Laplace(Fraction(7, 3), ONE), Gaussian(Fraction(7, 3), ONE)):
        exact = (
            laplace_moments(mechanism.scale)
            if type(mechanism) is Laplace
            else gaussian_moments(mechanism.scale)
        )
        size, square = map(rational, exact)
        assert Fraction(mechanism.variance_bounds[0]) <= square <= Fraction(mechanism.variance)
        assert Fraction(mechanism.expected_error_bounds[0]) <= size <= Fraction(mechanism.expected_error)
        assert mechanism.variance - mechanism.variance_bounds[0] < 1e-14
        assert mechanism.expected_error - mechanism.expected_error_bounds[0] < 1e-14
        assert mechanism.variance_bounds[1] == mechanism.variance
        again = from_json(mechanism.to_json())
        assert again == mechanism
        assert again.variance == mechanism.variance


def test_on_a_grid_figures_are_in_units_of_the_value_and_include_the_rounding():
    grid = Fraction(1, 4)
    for kind, size in ((Laplace, discrete_laplace_mean_size), (Gaussian, rounded_gaussian_mean_size)):
        mechanism = kind(Fraction(5), ONE, grid, 1)
        steps = kind(Fraction(20), ONE)
        assert math.isclose(mechanism.variance, steps.variance / 16, rel_tol=1e-15)
        low, high = (float(end) for end in size(Fraction(20)))
        assert math.isclose(mechanism.expected_error, (high + 0.5) / 4, rel_tol=1e-15)
        assert math.isclose(mechanism.expected_error_bounds[0], (low - 0.5) / 4, rel_tol=1e-15)
        tiny = kind(Fraction(1, 100), ONE, grid, 1)  # hardly any noise: the rounding is all there is
        assert tiny.expected_error_bounds[0] == 0
        assert 0.125 <= tiny.expected_error < 0.13


@pytest.mark.parametrize(("kind", "draw"), [(Laplace, discrete_laplace), (Gaussian, rounded_gaussian)])
@pytest.mark.parametrize("scale", [Fraction(1, 2), Fraction(3), Fraction(200)])
def test_draws_have_the_stated_moments(kind, draw, scale):
    # The bits are the same in every run; seven standard errors would be a chance of 3e-12.
    mechanism, count = kind(scale, ONE), 40_000
    with repeatable_bits(f"{kind.__name__}/{scale}"):
        draws = np.asarray(draw(scale, count), dtype=np.float64)
    for seen, expected in ((draws**2, mechanism.variance), (np.abs(draws), mechanism.expected_error)):
        assert abs(seen.mean() - expected) < 7 * seen.std() / math.sqrt(count)
