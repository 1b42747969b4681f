"""Sampled Gaussian steps on nodes: their moments, and what is proved of them, against fine sums."""

import math
from fractions import Fraction

import mpmath as mp
import numpy as np
import pytest

from hubbub.accounting import subsampled_gaussian
from hubbub.accounting.float_bounds import Uncertified
from hubbub.accounting.smooth_partitions import ShiftedLines, Window, normal_cdf
from hubbub.accounting.subsampled_decay import Decay, minorant
from hubbub.accounting.subsampled_gaussian import SubsampledGaussians

CASES = [(0.01, 1.0, 3.0), (0.3, 0.6, 1.5), (0.9, 4.0, 20.0), (1e-4, 0.8, 12.0)]


def steps(rate, sigma, *, added, count=1.0):
    return SubsampledGaussians(np.array([rate]), np.array([sigma]), np.array([count]), added=added)


class Fine:
    """The tilted law on many points: E[e^(zL)] is a sum with an error beyond doubles."""

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
    scan = law.cumulants(np.array([tilt / 2, tilt]), None)[:, 1]
    assert scan[0] == pytest.approx(2 * fine.moment, rel=1e-6, abs=1e-9)
    assert scan[1] == pytest.approx(2 * fine.mean, rel=1e-3)
    assert scan[2] == pytest.approx(2 * float(fine.p @ (fine.loss - fine.mean) ** 2), rel=1e-2)
    nodes = law.quadrature(tilt, 0.0)
    assert nodes.mean[0] == pytest.approx(fine.mean, rel=1e-6)
    assert nodes.variance[0] == pytest.approx(float(fine.p @ (fine.loss - fine.mean) ** 2), rel=1e-6)


@pytest.mark.sweep(5)
@pytest.mark.parametrize("added", [False, True])
@pytest.mark.parametrize(("rate", "sigma", "tilt"), CASES)
def test_likelihood_ratios_along_the_contour_are_accurate(rate, sigma, tilt, added):
    fine = Fine(rate, sigma, tilt, added=added)
    spread = math.sqrt(float(fine.p @ (fine.loss - fine.mean) ** 2))
    step, count = min(1.0, 0.1 / spread), 37
    nodes = steps(rate, sigma, added=added, count=3.0).quadrature(tilt, count * step)
    result, above = nodes.log_ratio(step, count)
    assert above is None
    assert result.size == count
    unsure = nodes.error_bound(step * np.arange(count))
    assert unsure[0] == nodes.error
    assert (np.diff(unsure) >= 0).all()
    assert unsure[-1] < 1e-11
    for k in (0, 1, 2, 17, 36):
        truth = 3 * np.log(fine.p @ np.exp(1j * k * step * fine.loss))
        apart = (result[k] - truth).imag / (2 * math.pi)
        assert abs((result[k] - truth).real) <= 1e-12 + unsure[k]
        assert abs(apart - round(apart)) <= 1e-12 + unsure[k]


@pytest.mark.sweep(5)
@pytest.mark.parametrize("added", [False, True])
@pytest.mark.parametrize(("rate", "sigma", "tilt"), CASES)
def test_divided_outcomes_add_up_on_either_line(rate, sigma, tilt, added, monkeypatch):
    """What lies below a division and what lies above it, of the near outcomes, by fine sums."""
    fine = Fine(rate, sigma, tilt, added=added)
    law = steps(rate, sigma, added=added)
    near = Window(np.array([1 + 3 * sigma]), np.array([0.2 * sigma]))
    below = Window(np.array([0.5]), np.array([0.3 * sigma]))
    step, count = 0.5, 40
    near_mass = fine.p * normal_cdf((near.at - fine.x) / near.width)
    mass = float(near_mass.sum())
    first = near_mass / mass * normal_cdf((below.at - fine.x) / below.width)
    second = near_mass / mass - first
    for many in (10**6, 0):
        monkeypatch.setattr(subsampled_gaussian, "MANY_NODES", many)
        nodes = law.quadrature(tilt, step * count, near=near, below=below)
        assert nodes.moment == pytest.approx(fine.moment + math.log(mass), abs=1e-11)
        logs, gains = nodes.log_ratio(step, count)
        assert nodes.angle.any() == (many == 0)
        for k in (0, 1, 7, 39):
            phases = np.exp(1j * k * step * fine.loss)
            assert np.exp(logs[k]) == pytest.approx(complex(first @ phases), abs=1e-11)
            assert np.exp(logs[k] + gains[k]) == pytest.approx(complex((first + second) @ phases), abs=1e-11)
        assert nodes.error_bound(step * np.arange(count)).max() < 1e-9


def test_many_steps_are_computed_in_batches(monkeypatch):
    law = SubsampledGaussians(
        np.array([0.1, 0.2, 0.3]), np.array([1.0, 2.0, 3.0]), np.array([1.0, 5.0, 2.0]), added=False
    )
    whole = law.quadrature(2.0, 5.0)
    alone = [
        steps(0.1 * k, float(k), added=False, count=n).quadrature(2.0, 5.0)
        for k, n in ((1, 1.0), (2, 5.0), (3, 2.0))
    ]
    apart = sum(nodes.log_ratio(0.05, 50)[0] for nodes in alone)
    assert np.abs(whole.log_ratio(0.05, 50)[0] - apart).max() < 1e-13
    t = 0.05 * np.arange(50)
    unsure = whole.error_bound(t)
    monkeypatch.setattr(subsampled_gaussian, "MAX_BATCH", 1)
    monkeypatch.setattr(subsampled_gaussian, "MAX_ROWS", 7)
    assert np.abs(whole.log_ratio(0.05, 50)[0] - apart).max() < 1e-13
    assert whole.error_bound(t) == pytest.approx(unsure, rel=1e-12)


@pytest.mark.sweep(5)
@pytest.mark.parametrize("added", [False, True])
@pytest.mark.parametrize(("rate", "sigma", "tilt"), CASES)
def test_decay_bound_holds_and_is_not_too_loose(rate, sigma, tilt, added):
    fine = Fine(rate, sigma, tilt, added=added)
    law = steps(rate, sigma, added=added)
    core = minorant(law, law.quadrature(tilt, 500.0), None)
    passed = np.cumsum(fine.p)
    inside = (passed >= 0.12) & (passed <= 0.88)
    p, loss, density = fine.p[inside], fine.loss[inside], fine.density[inside]
    mass = p.sum()
    mean = p @ loss / mass
    assert core.beta[0] == pytest.approx(mass, rel=0.3)
    assert core.variance[0] == pytest.approx(p @ (loss - mean) ** 2 / mass, rel=0.4)
    assert core.third[0] == pytest.approx(p @ np.abs(loss - mean) ** 3 / mass, rel=0.5)
    assert core.width[0] == pytest.approx(np.ptp(loss), rel=0.3)
    assert core.alpha[0] == pytest.approx(density.min() * np.ptp(loss), rel=0.5)
    hills = 2 if added else 4
    assert hills * (1 - 1e-3) <= core.variation[0] / fine.density.max() <= hills * 1.125
    turn = min(1.5 * core.variance[0] / core.third[0], math.sqrt(2 / core.variance[0]))
    assert turn * 0.9 <= core.turn <= turn
    for share in (0.1, 0.5, 0.99):
        t = share * core.turn
        assert math.log(fine.fall(t)) <= core.near(np.array([t]))[0, 0]
        fall = core.beta[0] * (core.variance[0] * t**2 / 2 - core.third[0] * t**3 / 6)
        assert 0 < fall == pytest.approx(-math.expm1(core.near(np.array([t]))[0, 0]), rel=1e-12)
    for times in (1.0, 3.0, 10.0, 30.0):
        t = times * core.turn
        assert math.log(fine.fall(t)) <= core.far(np.array([t]))[0, 0] <= 0
    assert core.far(np.array([1e6 / core.width[0]]))[0, 0] == pytest.approx(
        math.log(core.variation[0] * core.width[0] / 1e6)
    )


@pytest.mark.sweep(5)
@pytest.mark.parametrize("added", [False, True])
@pytest.mark.parametrize(("rate", "sigma", "tilt"), CASES)
def test_all_decay_bounds_hold(rate, sigma, tilt, added):
    fine = Fine(rate, sigma, tilt, added=added)
    law = steps(rate, sigma, added=added)
    nodes = law.quadrature(tilt, 0.0, splits=True)
    # As far as the fine sum itself can follow.
    t = np.geomspace(0.3, 20.0, 12) / math.sqrt(nodes.variance[0])
    truth = np.array([fine.fall(at) for at in t])
    bound = Decay(law, nodes).log_bound(t)
    assert (bound <= Decay(law, nodes).log_bound(t, lines=False)).all()
    assert (np.log(truth) <= np.maximum(bound, math.log(1e-12)) + 1e-9).all()
    # Of what lies above a division alone.
    split = Window(np.array([0.5]), law.split_width)
    own = fine.p * normal_cdf((fine.x - split.at) / split.width)
    truth = np.array([abs(complex(own @ np.exp(1j * at * (fine.loss - fine.mean)))) for at in t])
    bound = Decay(law, nodes, None, split).log_bound(t)
    assert (np.log(truth) <= np.maximum(bound, math.log(1e-12)) + 1e-9).all()


@pytest.mark.parametrize(("rate", "sigma", "tilt"), [(0.011, 1.12, 7e3), (0.74, 1.8, 3e4), (0.3, 0.6, 0.4)])
def test_decay_of_an_added_unit_holds_at_large_tilts(rate, sigma, tilt):
    """Its density has one narrow hill far from 0, which points far apart would not show."""
    law = steps(rate, sigma, added=True)
    nodes = law.quadrature(tilt, 0.0)
    x = np.linspace(-16, 3, 200_001) * sigma
    loss = -np.logaddexp(math.log1p(-rate), math.log(rate) + (x - 0.5) / sigma**2)
    power = tilt * loss - x**2 / (2 * sigma**2)
    chance = np.exp(power - power.max())
    chance /= chance.sum()
    t = np.geomspace(0.3, 20.0, 12) / math.sqrt(nodes.variance[0])
    truth = [abs(complex(chance @ np.exp(1j * at * (loss - nodes.mean[0])))) for at in t]
    bound = Decay(law, nodes).log_bound(t, lines=False)
    assert (np.log(truth) <= bound + 1e-9).all()
    assert bound[-1] < 0


def test_tails_that_a_tilt_counts_far_above_a_division_are_not_lost():
    """Shares below underflow there, but e^(cL) may be larger still."""
    law, near = steps(1e-8, 1.0, added=False), Window(np.array([2.0]), np.array([0.3]))
    assert law.quadrature(100.0, 0.0, near=near).moment == pytest.approx(-0.0280958266)
    with pytest.raises(Uncertified):
        law.quadrature(1000.0, 0.0, near=near)
    # K is 24,254 there.
    assert np.isinf(law.cumulants(np.array([1000.0]), near)[0, 0])
    assert np.isinf(law.moments_below(np.array([1000.0]), near.at, 0.3)[0, 0])
    x = np.array([[10.0, 14.0, 60.0]])
    bound = near.log_below(x)[0]
    assert bound[0] == pytest.approx(float(mp.log(mp.ncdf((2 - 10) / 0.3))), rel=1e-12)
    assert all(float(mp.log(mp.ncdf((2 - at) / 0.3))) <= b for at, b in zip(x[0, 1:], bound[1:], strict=True))


def test_logarithms_of_shares_are_off_by_few_units():
    near = Window(np.array([0.7]), np.array([0.3]))
    x = np.linspace(-1.0, 11.0, 40)[None, :]
    log_share, units = near.log_below(x)[0], near.units(x)[0]
    with mp.workdps(60):
        for at, mine, most in zip(x[0].tolist(), log_share.tolist(), units.tolist(), strict=True):
            exact = mp.log(mp.ncdf((mp.mpf(0.7) - mp.mpf(at)) / mp.mpf(0.3)))
            assert abs(mine - exact) * 2**53 <= most


def test_a_tilt_of_too_many_nodes_is_uncertified():
    """The tilt of an ε far above all losses: billions of nodes took hours."""
    law = steps(1e-5, 1.0, added=False, count=10.0)
    with pytest.raises(Uncertified):
        law.cumulants(np.array([1e8, 1e9]), None)


@pytest.mark.sweep(3)
@pytest.mark.parametrize("added", [False, True])
@pytest.mark.parametrize(("rate", "sigma", "tilt"), CASES)
def test_shifted_lines_bound_the_modulus(rate, sigma, tilt, added):
    fine = Fine(rate, sigma, tilt, added=added)
    law = steps(rate, sigma, added=added)
    ends = (np.array([-9.0 * sigma]), np.array([1 + 9.0 * sigma]))
    near = Window(np.array([1.0]), np.array([0.3 * sigma]))
    for v in (0.0, 0.4, 1.3, 2.5):
        lines = ShiftedLines(law, tilt, np.array([[v]]), ends=ends)
        x = fine.x + 1j * v * sigma**2
        ratio = 1 - rate + rate * np.exp(np.clip((x - 0.5).real / sigma**2, -700, 700) + 1j * v)
        power = -(fine.x**2) / (2 * sigma**2) + (v * sigma) ** 2 / 2
        power = power + (-tilt if added else 1 + tilt) * np.log(np.abs(ratio))
        size = np.exp(power) / (sigma * math.sqrt(2 * math.pi)) * fine.step
        angle = np.angle(ratio)
        share = [
            abs(complex(mp.erfc(-mp.mpc(a, -v * sigma**2 / near.width[0]) / mp.sqrt(2)) / 2))
            for a in ((near.at - fine.x[::64]) / near.width).tolist()
        ]
        for t in (0.0, 2.0):
            growth, fallen = (float((size * np.exp(sign * t * angle)).sum()) for sign in (1, -1))
            assert math.log(growth) <= lines.log_growing(t)[0, 0] <= math.log(growth) + 2
            assert math.log(fallen) <= lines.log_decaying(np.array([t]), 0.0)[0][0, 0] <= math.log(fallen) + 2
            divided = 64 * float((size[::64] * np.exp(t * angle[::64]) * share).sum())
            assert math.log(divided) <= lines.log_growing(t, lines.below(near))[0, 0] + 1e-6


def test_too_much_work_is_uncertified(monkeypatch):
    with pytest.raises(Uncertified):
        steps(0.1, 1.0, added=False).quadrature(1e6, 0.0)
    monkeypatch.setattr(subsampled_gaussian, "MAX_NODES", 100)
    many = SubsampledGaussians(np.full(10, 0.1), np.full(10, 1.0), np.ones(10), added=False)
    with pytest.raises(Uncertified):
        many.quadrature(2.0, 0.0)
    monkeypatch.undo()
    nodes = steps(0.1, 1.0, added=False).quadrature(1.0, 0.0)
    assert nodes.log_ratio(0.1, 1)[0].tolist() == [0]
    monkeypatch.setattr(subsampled_gaussian, "MAX_WORK", 100)
    with pytest.raises(Uncertified):
        nodes.log_ratio(0.1, 10)


@pytest.mark.parametrize("rate", [0.7, 0.3, 1e-3, 1e-6, 1e-20])
def test_ratios_are_off_by_few_units(rate):
    """Of tiny rates by more than others: the error of the exponent counts about ln(1/q) times."""
    sigma = 0.7000000000000001
    law = SubsampledGaussians(np.array([rate]), np.array([sigma]), np.ones(1), added=False)
    x = np.linspace(-3 * sigma, 1 + sigma**2 * (3 - math.log(rate)), 60)[None, :]
    ratio = law.log_ratio(x)
    share = law.share(x, ratio)
    units, share_units = law.ratio_units(ratio), law.share_units(x, ratio)
    worst = 0.0
    with mp.workdps(60):
        for k, at in enumerate(x[0].tolist()):
            sampled = mp.mpf(rate) * mp.exp((mp.mpf(at) - 0.5) / mp.mpf(sigma) ** 2)
            exact = 1 - mp.mpf(rate) + sampled
            off = abs(ratio[0, k] - mp.log(exact)) * 2**53
            assert off <= units[0, k]
            assert abs(share[0, k] / (sampled / exact) - 1) * 2**53 <= share_units[0, k]
            worst = max(worst, off / abs(ratio[0, k]))
    # Without the logarithm of the rate it would be too few.
    assert worst > 28 or rate > 1e-20


def test_nodes_are_exact_multiples_of_their_distance():
    law = SubsampledGaussians(np.array([0.01, 0.1]), np.array([1.1, 7 / 3]), np.ones(2), added=False)
    for row in law.quadrature(3.3, 5.0).x:
        step = Fraction(row[1]) - Fraction(row[0])
        assert all(Fraction(x) == Fraction(row[0]) + k * step for k, x in enumerate(row.tolist()))
