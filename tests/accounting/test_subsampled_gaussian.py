"""Sampled Gaussian steps on nodes: their moments, and what is proved of them, against fine sums."""

import math

import numpy as np
import pytest

from hubbub.accounting import subsampled_gaussian
from hubbub.accounting.float_bounds import Uncertified
from hubbub.accounting.subsampled_gaussian import SubsampledGaussians

CASES = [(0.01, 1.0, 3.0), (0.3, 0.6, 1.5), (0.9, 4.0, 20.0), (1e-4, 0.8, 12.0)]


def steps(rate, sigma, *, added, count=1.0):
    return SubsampledGaussians(np.array([rate]), np.array([sigma]), np.array([count]), added=added)


class Fine:
    """The tilted law on many points: E[e^(zL)] is a sum, whose error at these is beyond doubles."""

    def __init__(self, rate, sigma, tilt, *, added):
        self.step = 2.0**-11 * sigma
        self.x = np.arange(math.floor(-(40 * sigma + tilt) / self.step), (41 * sigma + tilt + 1) / self.step)
        self.x = self.x * self.step
        odds = (self.x - 0.5) / sigma**2
        self.epsilon = np.logaddexp(math.log1p(-rate), math.log(rate) + odds)
        self.loss = -self.epsilon if added else self.epsilon
        power = self.loss * tilt + (0.0 if added else self.epsilon)
        power = power - self.x**2 / (2 * sigma**2)
        peak = power.max()
        mass = np.exp(power - peak)
        self.moment = math.log(mass.sum() * self.step / (sigma * math.sqrt(2 * math.pi))) + peak
        self.p = mass / mass.sum()
        self.mean = float(self.p @ self.loss)
        # dL/dx, and so the density of the loss.
        self.density = self.p / self.step / (np.exp(math.log(rate) + odds - self.epsilon) / sigma**2)

    def fall(self, t):
        return abs(complex(self.p @ np.exp(1j * t * (self.loss - self.mean))))


@pytest.mark.parametrize("added", [False, True])
@pytest.mark.parametrize(("rate", "sigma", "tilt"), CASES)
def test_moments_match_a_fine_sum(rate, sigma, tilt, added):
    fine = Fine(rate, sigma, tilt, added=added)
    law = steps(rate, sigma, added=added, count=2.0)
    for reach in (0.0, 8.0):
        nodes = law.quadrature(tilt, reach)
        assert abs(nodes.moment - 2 * fine.moment) <= 1e-12 * (1 + abs(fine.moment))
        assert 0 < nodes.error <= 1e-11 * (1 + abs(fine.moment))
    rough = law.quadrature(tilt, 0.0, rough=True)
    assert rough.moments.size == 1
    assert rough.moment == pytest.approx(2 * fine.moment, rel=1e-3, abs=1e-5)
    for nodes in (rough, law.quadrature(tilt, 0.0)):
        assert nodes.mean[0] == pytest.approx(fine.mean, rel=1e-2)
        assert nodes.variance[0] == pytest.approx(float(fine.p @ (fine.loss - fine.mean) ** 2), rel=1e-2)
    nodes = law.quadrature(tilt, 0.0)
    assert nodes.absolute[0] == pytest.approx(float(fine.p @ np.abs(fine.loss - fine.mean)), rel=1e-2)


@pytest.mark.parametrize("added", [False, True])
@pytest.mark.parametrize(("rate", "sigma", "tilt"), CASES)
def test_likelihood_ratios_along_the_contour_are_accurate(rate, sigma, tilt, added):
    fine = Fine(rate, sigma, tilt, added=added)
    spread = math.sqrt(float(fine.p @ (fine.loss - fine.mean) ** 2))
    step, count = min(1.0, 0.1 / spread), 37
    nodes = steps(rate, sigma, added=added, count=3.0).quadrature(tilt, count * step)
    found = nodes.log_ratio(step, count)
    assert found.size == count
    unsure = nodes.error_bound(step * np.arange(count))
    assert unsure[0] == nodes.error
    # A dozen units of each step's distance from 1, or more.
    assert (
        unsure >= nodes.error + 36 * 2.0**-49 * np.minimum(2.0, step * np.arange(count) * nodes.absolute)
    ).all()
    assert unsure[-1] < 1e-11
    for k in (0, 1, 2, 17, 36):
        truth = 3 * np.log(fine.p @ np.exp(1j * k * step * fine.loss))
        apart = (found[k] - truth).imag / (2 * math.pi)
        assert abs((found[k] - truth).real) <= 1e-12 + unsure[k]
        assert abs(apart - round(apart)) <= 1e-12 + unsure[k]


def test_many_steps_are_computed_in_batches(monkeypatch):
    law = SubsampledGaussians(
        np.array([0.1, 0.2, 0.3]), np.array([1.0, 2.0, 3.0]), np.array([1.0, 5.0, 2.0]), added=False
    )
    whole = law.quadrature(2.0, 5.0)
    alone = [
        steps(0.1 * k, float(k), added=False, count=n).quadrature(2.0, 5.0)
        for k, n in ((1, 1.0), (2, 5.0), (3, 2.0))
    ]
    apart = sum(nodes.log_ratio(0.05, 50) for nodes in alone)
    assert np.abs(whole.log_ratio(0.05, 50) - apart).max() < 1e-13
    t = 0.05 * np.arange(50)
    unsure = whole.error_bound(t)
    monkeypatch.setattr(subsampled_gaussian, "MAX_BATCH", 1)
    monkeypatch.setattr(subsampled_gaussian, "MAX_ROWS", 7)
    assert np.abs(whole.log_ratio(0.05, 50) - apart).max() < 1e-13
    assert whole.error_bound(t) == pytest.approx(unsure, rel=1e-12)


@pytest.mark.parametrize("added", [False, True])
@pytest.mark.parametrize(("rate", "sigma", "tilt"), CASES)
def test_decay_bound_holds_and_is_not_too_loose(rate, sigma, tilt, added):
    fine = Fine(rate, sigma, tilt, added=added)
    core = steps(rate, sigma, added=added).quadrature(tilt, 500.0).decay_bound()
    passed = np.cumsum(fine.p)
    inside = (passed >= 0.12) & (passed <= 0.88)
    p, loss, density = fine.p[inside], fine.loss[inside], fine.density[inside]
    mass = p.sum()
    mean = p @ loss / mass
    assert core.beta[0] == pytest.approx(mass, rel=0.1)
    assert core.beta[0] < mass * 1.05
    assert core.variance[0] == pytest.approx(p @ (loss - mean) ** 2 / mass, rel=0.15)
    assert core.third[0] == pytest.approx(p @ np.abs(loss - mean) ** 3 / mass, rel=0.2)
    assert core.width[0] == pytest.approx(np.ptp(loss), rel=0.05)
    assert core.alpha[0] == pytest.approx(density.min() * np.ptp(loss), rel=0.15)
    assert 4 * fine.density.max() * (1 - 1e-3) <= core.variation[0] <= 4.5 * fine.density.max()
    turn = min(1.5 * core.variance[0] / core.third[0], math.sqrt(2 / core.variance[0]))
    assert turn * 0.9 <= core.turn <= turn
    for share in (0.1, 0.5, 0.99):
        t = share * core.turn
        assert math.log(fine.fall(t)) <= core.near(t)[0]
        fall = core.beta[0] * (core.variance[0] * t**2 / 2 - core.third[0] * t**3 / 6)
        assert 0 < fall == pytest.approx(-math.expm1(core.near(t)[0]), rel=1e-12)
    for times in (1.0, 3.0, 10.0, 30.0):
        t = times * core.turn
        assert math.log(fine.fall(t)) <= core.far(t)[0] <= 0
    assert core.far(1e6 / core.width[0])[0] == pytest.approx(
        math.log(core.variation[0] * core.width[0] / 1e6)
    )
    assert core.far(1.9 / core.width[0])[0] <= 0


def test_decay_bound_is_unbounded_for_little_noise():
    assert steps(0.5, 0.1, added=False).quadrature(1.0, 0.0).decay_bound().variation.tolist() == [math.inf]
    assert steps(0.5, 0.12, added=False).quadrature(1.0, 0.0).decay_bound().variation[0] < math.inf


def test_too_much_work_is_uncertified(monkeypatch):
    with pytest.raises(Uncertified):
        steps(0.1, 1.0, added=False).quadrature(1e6, 0.0)
    many = SubsampledGaussians(np.full(10_000, 0.1), np.full(10_000, 1.0), np.ones(10_000), added=False)
    with pytest.raises(Uncertified):
        many.quadrature(200.0, 0.0)
    nodes = steps(0.1, 1.0, added=False).quadrature(1.0, 0.0)
    assert nodes.log_ratio(0.1, 1).tolist() == [0]
    # Two hills, and nothing known of what lies between.
    hills = steps(math.exp(-1 / (2 * 0.03**2)), 0.03, added=False).quadrature(1.0, 0.0)
    monkeypatch.setattr(subsampled_gaussian, "DECAY_POINTS", 2)
    with pytest.raises(Uncertified):
        hills.decay_bound()
    monkeypatch.setattr(subsampled_gaussian, "MAX_WORK", 100)
    with pytest.raises(Uncertified):
        nodes.log_ratio(0.1, 10)
