"""Divergences of composed parts, and the (ε, δ) that follow, against formulas written out."""

import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest

from hubbub.accounting import PrivacyLoss
from hubbub.accounting.events import EpsilonDelta, Gaussian, Subsampled
from hubbub.accounting.renyi import RenyiCurve, RenyiDivergence

mp = mpmath.mp.clone()
mp.dps = 30


def least(rho, *, epsilon=None, delta=None):
    """The best order of a fine grid, and of a finer one around it: ln δ at ε, or ε at δ."""

    def bound(place):
        a = 1 + np.exp(place)
        room = a * np.log(a) - (a - 1) * place
        if delta is None:
            return (a - 1) * (a * rho - epsilon) - room
        return a * rho - (room + math.log(delta)) / (a - 1)

    places = np.linspace(-11, 13, 2401)
    near = places[bound(places).argmin()]
    return float(bound(np.linspace(near - 0.01, near + 0.01, 20_001)).min())


@pytest.mark.parametrize("count", [1, 7])
@pytest.mark.parametrize("rho", ["1/1000000", "1/2", "50"])
def test_best_renyi_order_is_found(rho, count):
    divergence = RenyiDivergence(((Gaussian(2 * Fraction(rho)), count),))
    for delta in (1e-2, 1e-6, 1e-100):
        truth = max(0.0, least(count * float(Fraction(rho)), delta=delta))
        assert truth * (1 - 1e-9) <= divergence.epsilon(delta) <= truth * (1 + 1e-9)
    for epsilon in (1e-3, 1.0, 30.0, 400.0):
        truth = least(count * float(Fraction(rho)), epsilon=epsilon)
        if -700 < truth < 0:
            assert 0 <= math.log(divergence.delta(epsilon)) - truth <= 1e-9 * (1 - truth)


def test_rounding_raises_divergences():
    """At an order that is known, the bound is a formula: it may be above it, never below."""
    order, value = Fraction(8), Fraction(1, 3)
    divergence = RenyiDivergence(((RenyiCurve(((order, value),)), 3),))
    room = 8 * math.log(8) - 7 * math.log(7)
    truth = 1.0 - (room + math.log(1e-9)) / 7
    assert truth < divergence.epsilon(1e-9) < truth * (1 + 1e-9)
    small = math.exp(7 * (1.0 - 6.0) - room)
    assert small < divergence.delta(6.0) < small * (1 + 1e-8)
    assert 1.0 < divergence.at(8.0) < 1 + 1e-10
    assert divergence.at(8.5) == math.inf


def test_conversion_term_is_rounded_down():
    """Without a divergence, only what is taken off decides."""
    room = 8 * mp.log(8) - 7 * mp.log(7)
    delta = float(mp.exp(-room - mp.mpf("1e-6")))
    truth = -(room + mp.log(delta)) / 7
    assert truth <= PrivacyLoss.from_renyi({8: 0}).epsilon(delta) <= truth + mp.mpf("1e-11")


def test_orders_close_to_one_are_accepted():
    for order in (Fraction(3, 2), 1 + Fraction(1, 2**40)):
        assert PrivacyLoss.from_renyi({order: 0}).epsilon(0.5) < math.inf
    assert PrivacyLoss.from_renyi({1 + Fraction(1, 10**30): 0}).epsilon(0.5) == math.inf


def test_renyi_delta_lies_above_zero_and_at_most_one():
    divergence = RenyiDivergence(((Gaussian(Fraction(10**4)), 1),))
    assert divergence.delta(0.0) == 1
    assert divergence.delta(1e9) == 5e-324
    assert RenyiDivergence(((EpsilonDelta(Fraction(1, 10**6)), 1),)).epsilon(0.9) == 0
    assert (
        RenyiDivergence(((RenyiCurve(((Fraction(3, 2), Fraction(1)),)).for_group(2), 1),)).epsilon(0.1)
        == math.inf
    )
    assert RenyiDivergence(((RenyiCurve(()), 1),)).delta(1.0) == 1


def test_large_schedule_is_summed_step_by_step():
    steps = [Subsampled(Gaussian(Fraction(1, k)), Fraction(1, 10)) for k in (1, 2)]
    alpha = 1e6
    apart = sum(RenyiDivergence(((step, 5),)).at(alpha) for step in steps)
    assert RenyiDivergence(tuple((step, 5) for step in steps)).at(alpha) == pytest.approx(apart, rel=1e-10)


def test_the_worse_direction_of_a_schedule_counts():
    """E_Q[(P/Q)^α] of a mixture, by the trapezoid rule."""
    x = np.linspace(-40, 45, 400_001)

    def growth(rate, sigma, alpha):
        q = np.exp(-(x**2) / (2 * sigma**2)) / (sigma * math.sqrt(2 * math.pi))
        ratio = 1 - rate + rate * np.exp((2 * x - 1) / (2 * sigma**2))
        return [
            math.log((q * ratio**power).sum() * 85 / 400_000) / (alpha - 1) for power in (alpha, 1 - alpha)
        ]

    loss = (
        PrivacyLoss.gaussian(1).poisson_subsampled(Fraction(1, 10)) * 3
        + PrivacyLoss.gaussian(Fraction(1, 2)).poisson_subsampled(Fraction(1, 5)) * 4
    )
    for alpha in (1.5, 4.0):
        one, two = growth(0.1, 1.0, alpha), growth(0.2, 2.0, alpha)
        truth = max(3 * a + 4 * b for a, b in zip(one, two, strict=True))
        assert truth * (1 - 1e-12) <= loss.renyi(alpha) <= truth * (1 + 1e-9)


def test_samples_of_fixed_size_have_the_sum_of_their_divergences():
    losses = [PrivacyLoss.gaussian(mu).subsampled_without_replacement(10, 1) for mu in (1, 2)]
    apart = sum(loss.renyi(4) for loss in losses)
    assert (losses[0] + losses[1]).renyi(4) == pytest.approx(apart, rel=1e-9)
