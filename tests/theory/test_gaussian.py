"""The Gaussian mechanism: what in the classic formula is the deviation, and where the formula ends."""

from fractions import Fraction
from itertools import product
from math import log, sqrt

import pytest

from hubbub import Gaussian, PrivacyLoss, Sensitivity
from hubbub.accounting import largest_mu
from hubbub.noise.enclosures import exp
from hubbub.noise.inversion import rounded_gaussian_size
from theory.exact_laws import CLOSE

EPSILONS = [0.1, 0.3, 0.5, 0.9, 0.999]
DELTAS = [1e-2, 1e-5, 1e-9]


def classic(epsilon, delta):
    """c/ε with c² = 2·ln(1.25/δ): the text's σ for sensitivity 1."""
    return sqrt(2 * log(1.25 / delta)) / epsilon


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("delta", DELTAS)
def test_the_classic_sigma_is_private_enough_and_more_than_needed(epsilon, delta):
    """Theorem 3.22 (ε < 1): σ ≥ cΔ/ε gives (ε, δ); the exact curve needs less."""
    sigma = classic(epsilon, delta)

    assert PrivacyLoss.gaussian(1 / sigma).delta(epsilon) <= delta
    assert Gaussian.of(sensitivity=1, epsilon=epsilon, delta=delta, population=50).sigma < sigma


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("delta", DELTAS)
def test_classic_sigma_as_a_variance_is_not_private(epsilon, delta):
    """A misprint: "variance cΔ/ε". Then σ = √(c/ε) is too little noise: δ(ε) is above the δ promised."""
    sigma = sqrt(classic(epsilon, delta))

    assert sigma < classic(epsilon, delta)
    assert PrivacyLoss.gaussian(1 / sigma).delta(epsilon) > 1.1 * delta


def test_beyond_epsilon_1_the_classic_formula_promises_too_much():
    """The theorem says ε < 1: at ε = 10 its σ has almost twice the δ it promises."""
    sigma = classic(10, 1e-6)

    assert PrivacyLoss.gaussian(1 / sigma).delta(10) > 1.5e-6
    assert Gaussian.of(sensitivity=1, epsilon=10, delta=1e-6).sigma > sigma


def test_the_shipped_sigma_is_the_least_of_the_exact_curve():
    for epsilon, delta in product((Fraction(1, 2), 1, 4), (Fraction(1, 10**3), Fraction(1, 10**9))):
        sigma = Gaussian.of(sensitivity=1, epsilon=epsilon, delta=delta).sigma
        assert PrivacyLoss.gaussian(1 / sigma).delta(epsilon) <= delta
        assert PrivacyLoss.gaussian(1 / (sigma * Fraction(999_999, 10**6))).delta(epsilon) > delta
        assert largest_mu(Fraction(epsilon), delta) * sigma - 1 < Fraction(1, 10**9)


def test_gaussian_noise_scales_with_l2_sensitivity():
    """d cells that one unit moves by 1 each: √d times the noise, where Laplace needs d times."""
    one = Gaussian.of(sensitivity=1, epsilon=1, delta=1e-6).sigma
    many = Gaussian.of(sensitivity=Sensitivity(100, linf=1), epsilon=1, delta=1e-6).sigma

    assert abs(many / one - 10) < Fraction(1, 10**9)


def test_gaussian_losses_add_in_squares():
    """k releases of μ each are one of √k·μ: exact."""
    assert PrivacyLoss.gaussian(Fraction(1, 2)) * 9 == PrivacyLoss.gaussian(Fraction(3, 2))
    assert PrivacyLoss.gaussian(3) + PrivacyLoss.gaussian(4) == PrivacyLoss.gaussian(5)


# Densities and lots


def test_the_laplace_density_without_its_minus_is_no_density():
    """A misprint: exp(|x|/b)/2b. On integers the weights (1−q)/(1+q)·q^±|k|: one sums to 1, one never."""
    q = Fraction(1, 2)
    sums = {
        sign: [sum((1 - q) / (1 + q) * q ** (sign * abs(k)) for k in range(-n, n + 1)) for n in (1, 10, 200)]
        for sign in (1, -1)
    }

    assert all(total < 1 for total in sums[1])
    assert 1 - sums[1][-1] < CLOSE
    assert all(total > 1 for total in sums[-1])
    assert sums[-1][-1] > 2**200


@pytest.mark.parametrize("lot", [1, 10, 256, 10_000])
@pytest.mark.parametrize("multiplier", [Fraction(1, 2), Fraction(11, 10), Fraction(4)])
def test_noise_belongs_into_the_sum_before_it_is_divided_by_the_lot(lot, multiplier):
    """Algorithm 1 of DP-SGD: (1/L)·(Σ clipped + N(0, σ²C²I)). Added after dividing, it is L times too much.

    One example moves the sum by C and the average by C/L: that is what the noise is measured against.
    """
    clip = Fraction(3)
    deviation = multiplier * clip
    inside = deviation / lot
    outside = deviation

    assert outside == lot * inside
    # The loss of the sum and of the average with the noise inside is the same, μ = 1/σ …
    of_the_sum = PrivacyLoss.gaussian(clip / deviation)
    assert of_the_sum == PrivacyLoss.gaussian((clip / lot) / inside) == PrivacyLoss.gaussian(1 / multiplier)
    # … while outside it has the accuracy of a loss L times smaller, which nobody asked for.
    assert PrivacyLoss.gaussian((clip / lot) / outside) == PrivacyLoss.gaussian(1 / (lot * multiplier))


@pytest.mark.parametrize("epsilon", [Fraction(0), Fraction(1, 2), Fraction(1)])
def test_rounding_to_integers_is_post_processing_so_the_shipped_law_is_within_the_curve(epsilon):
    """δ(ε) of the rounded law, from the thresholds the sampler inverts, is within the continuous one's."""
    sigma, bits = Fraction(2), 160
    steps = rounded_gaussian_size(sigma, bits)
    sizes = [(0, 0), *(next(steps) for _ in range(40))]
    factor = Fraction(exp(epsilon, bits)[1], 1 << bits)

    def between(k):
        """Bounds of Pr[X = k], the size |k| with one of two signs."""
        (low_before, high_before), (low, high) = sizes[abs(k)], sizes[abs(k) + 1]
        signs = (2 if k else 1) << bits
        return Fraction(low - high_before, signs), Fraction(high - low_before, signs)

    at_least = sum(max(0, between(k)[0] - factor * between(k - 1)[1]) for k in range(-38, 39))
    curve = Fraction(PrivacyLoss.gaussian(1 / sigma).delta(epsilon))
    assert Fraction(3, 4) * curve < at_least <= curve
