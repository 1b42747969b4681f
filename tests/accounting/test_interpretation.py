"""What a loss means, against tests and posteriors that can be written out."""

import math
from fractions import Fraction
from itertools import product
from statistics import NormalDist

import mpmath
import pytest

from hubbub.accounting import PrivacyLoss, interpretation
from hubbub.errors import InvalidInput
from refusing import refused

NORMAL = NormalDist()
mp = mpmath.mp.clone()
mp.dps = 40


@pytest.mark.parametrize("alpha", ["0.001", "0.1", "0.25", "0.5", "0.9", "0.999"])
def test_the_tradeoff_of_randomized_response_is_exact(alpha):
    """Odds of 3: β is piecewise linear through (0, 1), (¼, ¼), (1, 0)."""
    at = Fraction(alpha)
    truth = 1 - 3 * at if at <= Fraction(1, 4) else (1 - at) / 3
    beta = PrivacyLoss.randomized_response(Fraction(3, 4)).tradeoff(at)
    assert truth - Fraction(1, 10**6) <= Fraction(beta) <= truth


@pytest.mark.parametrize("mu", [0.5, 2.0])
def test_the_tradeoff_is_below_every_test(mu):
    loss = PrivacyLoss.gaussian(mu)
    for threshold in (-1.0, 0.0, 0.5, 1.7, 3.0):
        alpha, beta = 1 - NORMAL.cdf(threshold), NORMAL.cdf(threshold - mu)
        tradeoff = loss.tradeoff(alpha)
        assert tradeoff <= beta * (1 + 1e-9)
        assert tradeoff >= beta * (1 - 1e-6)


@pytest.mark.parametrize("alpha", ["0.01", "0.1", "0.5", "0.99", "1e-12"])
def test_reference_values_of_the_gaussian_tradeoff(alpha):
    """Φ(Φ⁻¹(1 − α) − 1)."""
    truth = NORMAL.cdf(-NORMAL.inv_cdf(float(alpha)) - 1)
    assert PrivacyLoss.gaussian(1).tradeoff(Fraction(alpha)) == pytest.approx(truth, rel=1e-8)


@pytest.mark.parametrize("alpha", ["1e-3", "0.15", "0.2", "0.4", "0.5", "0.8", "0.999", "1e-30"])
@pytest.mark.parametrize("epsilon", [Fraction(1, 10), 1, 5])
def test_tradeoff_of_laplace_noise_matches_the_closed_form(alpha, epsilon):
    """Of the tests "is x above a threshold?", there are three kinds: left of both centres, between, right."""
    a, fall = mp.mpf(alpha), mp.exp(-mp.mpf(float(epsilon)))
    truth = 1 - a / fall if a < fall / 2 else fall / (4 * a) if a < 0.5 else fall * (1 - a)
    beta = PrivacyLoss.laplace(epsilon).tradeoff(Fraction(alpha))
    assert truth * (1 - mp.mpf("1e-7")) <= beta <= truth * (1 + mp.mpf("1e-16"))


@pytest.mark.parametrize("alpha", ["0.001", "0.1", "0.3", "0.5", "0.7", "0.95"])
def test_the_tradeoff_of_many_responses_is_that_of_the_likeliest_outcomes(alpha):
    """The best test alarms at the largest losses first, and draws lots at the last of them."""
    p, k = Fraction(3, 4), 5
    left, caught = Fraction(alpha), Fraction(0)
    for ones in range(k, -1, -1):
        ours, theirs = (math.comb(k, ones) * x**ones * (1 - x) ** (k - ones) for x in (p, 1 - p))
        share = min(Fraction(1), left / theirs)
        left, caught = left - share * theirs, caught + share * ours
    beta = Fraction((PrivacyLoss.randomized_response(p) * k).tradeoff(Fraction(alpha)))
    assert (1 - caught) * (1 - Fraction(1, 10**7)) <= beta <= 1 - caught


def test_tradeoff_handles_probabilities_beyond_doubles():
    tiny = Fraction(1, 10**400)
    assert PrivacyLoss.gaussian(1).tradeoff(tiny) == pytest.approx(1, abs=1e-15)
    assert PrivacyLoss.gaussian(1).tradeoff(1 - tiny) == 0
    assert PrivacyLoss.laplace(1).tradeoff(tiny) == pytest.approx(1, abs=1e-15)
    assert PrivacyLoss.gaussian(100).tradeoff(Fraction(1, 2)) == 0
    assert PrivacyLoss.pure(1).tradeoff(1 - Fraction(1, 10**20)) == pytest.approx(1e-20 / math.e, rel=1e-6)


def test_intersection_of_two_lines_is_found():
    def meeting(*heights):
        return interpretation.intersection([(float(k), Fraction(height)) for k, height in enumerate(heights)])

    assert meeting(0, 2, 2, 0) == (3.0, 1.5)
    assert meeting(0, 1, 2, 3) == meeting(3, 2, 2, 3) == (0.0, 0.0)
    # Where they meet beside the middle, there is nothing to find between.
    assert meeting(0, 4, 1, 0) == (0.0, 0.0)


def test_tradeoff_at_alpha_zero_and_one():
    for loss in (
        PrivacyLoss.pure(1),
        PrivacyLoss.gaussian(1),
        PrivacyLoss.gaussian(1).poisson_subsampled(Fraction(1, 10)),
    ):
        assert loss.tradeoff(0) == 1
        assert loss.tradeoff(1) == 0
    assert PrivacyLoss.approximate(1, Fraction(1, 4)).tradeoff(0) == 0.75
    assert PrivacyLoss.pure(0).tradeoff(Fraction(1, 4)) == pytest.approx(0.75)
    with refused(InvalidInput, match="alpha"):
        PrivacyLoss.pure(1).tradeoff(1.5)


@pytest.mark.parametrize(("prior", "epsilon"), [*product(["0.01", "0.5", "0.99"], [0.1, 1, 5])])
def test_posteriors_of_randomized_response_are_exact(prior, epsilon):
    p = float(prior)
    posterior = PrivacyLoss.pure(epsilon).posterior(Fraction(prior))
    assert posterior.upper_bound == pytest.approx(p / (p + (1 - p) * math.exp(-epsilon)), rel=1e-14)
    assert posterior.upper_bound >= p
    assert posterior.exception_probability == 0


@pytest.mark.slow
def test_exception_probability_is_that_of_a_larger_loss():
    loss = PrivacyLoss.gaussian(1)
    epsilon = loss.epsilon(1e-6)
    posterior = loss.posterior(0.5, epsilon)
    truth = 1 - NORMAL.cdf(epsilon - 0.5)
    assert posterior.exception_probability == pytest.approx(truth, rel=1e-6)
    assert posterior.exception_probability > 3 * loss.delta(epsilon)
    assert posterior.upper_bound == pytest.approx(1 / (1 + math.exp(-epsilon)))
    # Without a closed form a bound, above the truth: Laplace noise has its largest loss half of the time.
    many = PrivacyLoss.laplace(1) * 2
    assert 0.25 <= many.posterior(0.5, Fraction(199, 100)).exception_probability <= 1
    assert many.posterior(0.5, 2).exception_probability == many.posterior(0.5).exception_probability == 0
    sampled = PrivacyLoss.gaussian(1).poisson_subsampled(Fraction(1, 100)) * 1000
    at = sampled.epsilon(1e-6)
    assert 1e-6 < sampled.posterior(0.5, at).exception_probability < 1e-3
    assert sampled.posterior(0.5, 0).exception_probability == 1
    assert loss.posterior(0.5, 0).exception_probability == pytest.approx(NORMAL.cdf(0.5))
    assert PrivacyLoss.approximate(1, 0.25).posterior(0.5).exception_probability == 0.25


@pytest.mark.sweep(7)
@pytest.mark.parametrize("mu", [Fraction(1, 10), 1, 3])
@pytest.mark.parametrize("epsilon", [0, Fraction(1, 10), 3, 12, 40])
def test_posteriors_of_a_gaussian_are_rounded_up_and_no_further(mu, epsilon):
    posterior = PrivacyLoss.gaussian(mu).posterior(Fraction(1, 10), epsilon)
    e, m = mp.mpf(float(epsilon)), mp.mpf(mu.numerator) / mu.denominator
    e = mp.mpf(Fraction(epsilon).numerator) / Fraction(epsilon).denominator
    sure = 1 / (1 + 9 * mp.exp(-e))
    exceeded = mp.erfc((e / m - m / 2) / mp.sqrt(2)) / 2
    assert sure <= posterior.upper_bound <= min(1, sure * (1 + mp.mpf("3e-16")))
    assert exceeded <= posterior.exception_probability <= exceeded * (1 + mp.mpf("3e-16")) + 5e-324


@pytest.mark.parametrize("epsilon", [1, 3, 5, 7, 9])
def test_exception_probability_of_many_responses_is_an_upper_bound(epsilon):
    """Odds of e in ten responses: a loss of 2k − 10 with a binomial chance; the bound is from δ before ε."""
    p = 1 / (1 + math.exp(-1))
    truth = math.fsum(
        math.comb(10, k) * p**k * (1 - p) ** (10 - k) for k in range(11) if 2 * k - 10 > epsilon
    )
    posterior = (PrivacyLoss.pure(1) * 10).posterior(Fraction(1, 2), epsilon).exception_probability
    assert truth * (1 - 1e-9) <= posterior <= min(1.0, 2.5 * truth)


def test_an_unbounded_loss_needs_an_epsilon():
    with refused(InvalidInput, match="no largest"):
        PrivacyLoss.gaussian(1).posterior(0.5)
    for bad in (0, 1, -0.1, 2):
        with refused(InvalidInput, match="prior"):
            PrivacyLoss.pure(1).posterior(bad)


def test_the_advantage_is_the_largest_difference():
    assert PrivacyLoss.randomized_response(Fraction(3, 4)).advantage() == pytest.approx(0.5, rel=1e-12)
    assert PrivacyLoss.gaussian(1).advantage() == pytest.approx(2 * NORMAL.cdf(0.5) - 1, rel=1e-12)


WORDS = [
    (
        PrivacyLoss.pure(1) * 5,
        Fraction(1, 1000),
        """\
ε = 5.
Any outcome is at most 148.42 times likelier with a person's data than without, or the reverse.
At δ = 0.001, ε is at most 4.9952 and at least 4.99519 (PLD): no event is more than 147.71 times \
likelier with a person's data than without, up to an additive 0.001.
An attacker who knows all other data, and guesses if a person is in, from even odds, is right with \
probability 0.875508 at most.
A belief about a person of 50 % becomes at most 99.3308 %, \
and one of 10 % at most 94.2826 %.""",
    ),
    (
        PrivacyLoss.gaussian(1),
        None,
        """\
Gaussian μ = 1.
At δ = 1e-6, ε is at most 4.88656 and at least 4.88655 (closed form): no event is more than 132.50 times \
likelier with a person's data than without, up to an additive 1e-6.
An attacker who knows all other data, and guesses if a person is in, from even odds, is right with \
probability 0.691463 at most.
A belief about a person of 50 % becomes at most 99.251 %, and one of 10 % at most 93.6395 %, \
except with probability 5.75803e-6.""",
    ),
    (
        PrivacyLoss.approximate(1, 0.1) + PrivacyLoss.gaussian(1),
        Fraction(1, 100),
        """\
ε = 1, δ = 0.1, Gaussian μ = 1.
At δ = 0.01 no finite ε holds.
An attacker who knows all other data, and guesses if a person is in, from even odds, is right with \
probability 0.788678 at most.""",
    ),
]


@pytest.mark.parametrize(("loss", "delta", "words"), WORDS)
def test_explain_describes_a_loss(loss, delta, words):
    assert loss.explain(delta) == words


@pytest.mark.parametrize(
    ("epsilon", "times"),
    [
        (0, "1.00 times"),
        (1, "2.72 times"),
        (Fraction("9.2103"), "9999.60 times"),
        (Fraction("9.2104"), "10000.6 times"),
        (700, "1.01424e304 times"),
        (701, "e^701 times"),
    ],
)
def test_explain_states_the_likelihood_ratio(epsilon, times):
    assert f"at most {times} likelier" in PrivacyLoss.pure(epsilon).explain()


@pytest.mark.slow
def test_explain_handles_tiny_and_loose_losses():
    assert "becomes at most 50.0025 %" in PrivacyLoss.pure(Fraction(1, 10**4)).explain()
    assert "0.5 at most" in PrivacyLoss.pure(0).explain()
    assert "no tighter one could be certified" in PrivacyLoss.zcdp(Fraction(1, 2)).explain()
    assert "certified" not in PrivacyLoss.gaussian(1).explain()
    assert "With δ" not in PrivacyLoss.pure(1).explain()
