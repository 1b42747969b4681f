"""What a loss means, against tests and posteriors that can be written out."""

import math
from fractions import Fraction
from itertools import product
from statistics import NormalDist

import pytest

from hubbub.errors import InvalidInput
from hubbub.loss import Loss
from refusing import refused

NORMAL = NormalDist()


@pytest.mark.parametrize("alpha", ["0.001", "0.1", "0.25", "0.5", "0.9", "0.999"])
def test_the_tradeoff_of_randomized_response_is_exact(alpha):
    """Odds of 3: β is piecewise linear through (0, 1), (¼, ¼), (1, 0)."""
    at = Fraction(alpha)
    truth = 1 - 3 * at if at <= Fraction(1, 4) else (1 - at) / 3
    found = Loss.response(Fraction(3, 4)).tradeoff(at)
    assert truth - Fraction(1, 10**6) <= Fraction(found) <= truth


@pytest.mark.parametrize("mu", [0.5, 2.0])
def test_the_tradeoff_is_below_every_test(mu):
    loss = Loss.gaussian(mu)
    for threshold in (-1.0, 0.0, 0.5, 1.7, 3.0):
        alpha, beta = 1 - NORMAL.cdf(threshold), NORMAL.cdf(threshold - mu)
        found = loss.tradeoff(alpha)
        assert found <= beta * (1 + 1e-9)
        assert found >= beta * (1 - 1e-6)


@pytest.mark.parametrize("alpha", ["0.01", "0.1", "0.5", "0.99", "1e-12"])
def test_reference_values_of_the_gaussian_tradeoff(alpha):
    """Φ(Φ⁻¹(1 − α) − 1)."""
    truth = NORMAL.cdf(-NORMAL.inv_cdf(float(alpha)) - 1)
    assert Loss.gaussian(1).tradeoff(Fraction(alpha)) == pytest.approx(truth, rel=1e-8)


def test_the_ends_of_the_tradeoff():
    for loss in (Loss.pure(1), Loss.gaussian(1), Loss.gaussian(1).sampled(Fraction(1, 10))):
        assert loss.tradeoff(0) == 1
        assert loss.tradeoff(1) == 0
    assert Loss.approximate(1, Fraction(1, 4)).tradeoff(0) == 0.75
    assert Loss.pure(0).tradeoff(Fraction(1, 4)) == pytest.approx(0.75)
    with refused(InvalidInput, match="alpha"):
        Loss.pure(1).tradeoff(1.5)


@pytest.mark.parametrize(("prior", "epsilon"), [*product(["0.01", "0.5", "0.99"], [0.1, 1, 5])])
def test_posteriors_of_randomized_response(prior, epsilon):
    p = float(prior)
    found = Loss.pure(epsilon).posterior(Fraction(prior))
    assert found.at_most == pytest.approx(p / (p + (1 - p) * math.exp(-epsilon)), rel=1e-14)
    assert found.at_most >= p
    assert found.exception == 0


def test_the_exception_is_the_chance_of_a_larger_loss_and_not_delta():
    loss = Loss.gaussian(1)
    epsilon = loss.epsilon(1e-6)
    found = loss.posterior(0.5, epsilon)
    truth = 1 - NORMAL.cdf(epsilon - 0.5)
    assert found.exception == pytest.approx(truth, rel=1e-6)
    assert found.exception > 3 * loss.delta(epsilon)
    assert found.at_most == pytest.approx(1 / (1 + math.exp(-epsilon)))
    # Without a closed form a bound, above the truth: Laplace noise has its largest loss half of the time.
    many = Loss.laplace(1) * 2
    assert 0.25 <= many.posterior(0.5, Fraction(199, 100)).exception <= 1
    assert many.posterior(0.5, 2).exception == many.posterior(0.5).exception == 0
    sampled = Loss.gaussian(1).sampled(Fraction(1, 100)) * 1000
    at = sampled.epsilon(1e-6)
    assert 1e-6 < sampled.posterior(0.5, at).exception < 1e-3
    assert sampled.posterior(0.5, 0).exception == 1
    assert loss.posterior(0.5, 0).exception == pytest.approx(NORMAL.cdf(0.5))
    assert Loss.approximate(1, 0.25).posterior(0.5).exception == 0.25


def test_an_unbounded_loss_needs_an_epsilon():
    with refused(InvalidInput, match="no largest"):
        Loss.gaussian(1).posterior(0.5)
    for bad in (0, 1, -0.1, 2):
        with refused(InvalidInput, match="prior"):
            Loss.pure(1).posterior(bad)


def test_the_advantage_is_the_largest_difference():
    assert Loss.response(Fraction(3, 4)).advantage() == pytest.approx(0.5, rel=1e-12)
    assert Loss.gaussian(1).advantage() == pytest.approx(2 * NORMAL.cdf(0.5) - 1, rel=1e-12)


def test_a_loss_in_words():
    pure = Loss.pure(1).explain()
    assert pure.startswith("ε = 1.\n")
    assert "at most 2.72 times likelier" in pure
    assert "50 % sure" in pure
    assert "except" not in pure
    gaussian = Loss.gaussian(1).explain()
    assert "δ = 1e-06" in gaussian
    assert "ε is at most 4.88656" in gaussian
    assert "closed form" in gaussian
    assert "except with probability" in gaussian
    assert "∞" not in gaussian
    assert "e^" in Loss.pure(1000).explain()
    assert "times" in Loss.pure(20).explain()
    assert "50.0025 % sure at most" in Loss.pure(Fraction(1, 10**4)).explain()
    nothing = Loss.pure(0).explain()
    assert "1.00 times" in nothing
    assert "0.5 at most" in nothing
    assert "no ε that holds" in (Loss.approximate(1, 0.1) + Loss.gaussian(1)).explain(Fraction(1, 100))
