"""A sampled mechanism with a closed form, against mpmath; and the search for the least double."""

import math
from fractions import Fraction

import mpmath
import pytest

from hubbub.accounting import PrivacyLoss
from hubbub.accounting.closed_form import ClosedForm, SubsampledClosedForm, largest_mu, rough_log

mp = mpmath.mp.clone()
mp.dps = 400
CLOSE = mp.mpf(2) ** -44


def real(x):
    return mp.mpf(Fraction(x).numerator) / Fraction(x).denominator


def gaussian(epsilon, mu):
    def tail(z):
        return mp.erfc(z / mp.sqrt(2)) / 2

    return tail(epsilon / mu - mu / 2) - mp.exp(epsilon) * tail(epsilon / mu + mu / 2)


def both_directions(epsilon, mu, rate):
    """δ of the sampled Gaussian when the unit is removed, and when it is added."""
    removed = rate * gaussian(mp.log1p(mp.expm1(epsilon) / rate), mu)
    rest = 1 - (1 - rate) * mp.exp(epsilon)
    added = rest * gaussian(mp.log(rate * mp.exp(epsilon) / rest), mu) if rest > 0 else mp.mpf(0)
    return removed, added


@pytest.mark.sweep(5)
@pytest.mark.parametrize("mu", [Fraction(1, 2), Fraction(3), Fraction(25)])
@pytest.mark.parametrize(
    "rate", [Fraction(1, 100), Fraction(1, 2), Fraction(999, 1000), 1 - Fraction(1, 2**300)]
)
def test_delta_of_a_subsampled_gaussian_is_enclosed(mu, rate):
    sample = SubsampledClosedForm(ClosedForm(Fraction(0), mu**2), rate)
    for epsilon in (0, Fraction(1, 10**9), Fraction(1, 1000), Fraction(1, 2), 4, 150, 201, 230):
        removed, added = both_directions(real(epsilon), real(mu), real(rate))
        if removed < mp.mpf("1e-300"):
            continue
        high, low = sample.delta_upper(Fraction(epsilon)), sample.delta_lower(Fraction(epsilon))
        # Where nearly all are sampled, and e^ε is not written out, only a bound is told.
        loose = epsilon > 200 and 1 - rate < Fraction(1, 2**256)
        most = gaussian(real(epsilon - 1), real(mu)) if loose else max(removed, added)
        assert max(removed, added) <= real(high) <= most * (1 + CLOSE), epsilon
        assert removed * (1 - CLOSE) <= real(low) <= removed, epsilon


@pytest.mark.parametrize("rate", [Fraction(1, 100), Fraction(9, 10)])
def test_delta_of_subsampled_composition_is_at_least_that_of_each(rate):
    alone = SubsampledClosedForm(ClosedForm(Fraction(0), Fraction(1)), rate)
    both = SubsampledClosedForm(ClosedForm(Fraction(1), Fraction(1)), rate)
    for epsilon in (Fraction(0), Fraction(1, 10), Fraction(2)):
        assert (
            both.delta_upper(epsilon)
            > both.delta_lower(epsilon)
            > alone.delta_upper(epsilon)
            > alone.delta_lower(epsilon)
        )


@pytest.mark.parametrize("rate", [Fraction(1, 1000), Fraction(1, 2), Fraction(99, 100)])
@pytest.mark.parametrize("delta", [Fraction(1, 10**3), Fraction(1, 10**6), Fraction(1, 10**40)])
def test_epsilon_of_a_subsampled_gaussian(rate, delta):
    sample = SubsampledClosedForm(ClosedForm(Fraction(0), Fraction(1)), rate)
    result, surely = sample.epsilon_upper(delta), sample.epsilon_lower(delta)
    if rate == Fraction(1, 1000) and delta == Fraction(1, 10**3):
        assert result == 0
        return
    assert both_directions(real(Fraction(result)), mp.mpf(1), real(rate))[0] <= real(delta) * (1 + CLOSE)
    before = Fraction(math.nextafter(result, 0.0))
    assert both_directions(real(before), mp.mpf(1), real(rate))[0] >= real(delta) * (1 - CLOSE)
    assert result * (1 - 1e-12) <= surely < result
    assert PrivacyLoss.gaussian(1).poisson_subsampled(rate).epsilon_bounds(delta)[:2] == (surely, result)


def test_epsilon_is_zero_if_delta_is_met_at_zero():
    sample = SubsampledClosedForm(ClosedForm(Fraction(0), Fraction(1)), Fraction(1, 2))
    least = sample.delta_upper(Fraction(0))
    assert sample.epsilon_upper(least) == 0
    assert sample.epsilon_upper(least - Fraction(1, 10**9)) > 0
    assert (
        ClosedForm(Fraction(0), Fraction(1)).epsilon_upper(
            ClosedForm(Fraction(0), Fraction(1)).delta_upper(Fraction(0))
        )
        == 0
    )


@pytest.mark.parametrize(
    "x", ["1e-400", "1e-5", "0.49", "0.51", "0.999999999999", "1", "1.4999", "1.51", "1e400"]
)
def test_rough_logarithms_are_close(x):
    truth = mp.log(real(x))
    assert abs(rough_log(Fraction(x)) - truth) <= mp.mpf("2e-15") * (
        abs(truth) + (0 if abs(truth) < 0.5 else 1)
    )


def test_largest_mu_of_tiny_epsilon_and_delta():
    mu = largest_mu(Fraction(1, 10**30), Fraction(1, 10**20))
    truth = mp.mpf("1e-20") * mp.sqrt(2 * mp.pi)
    assert abs(real(mu) / truth - 1) < mp.mpf("1e-9")
