"""Pairs made of other pairs, cell by cell, against mpmath."""

import itertools
import math

import mpmath
import numpy as np
import pytest

from hubbub.accounting.discrete_pairs import DiscretePair, epsilon_delta_pair
from hubbub.accounting.dominating_pairs import BoundedRangePair, GaussianPair, LaplacePair
from hubbub.accounting.subsampled_pairs import (
    SubsampledGaussianGroupPair,
    SubsampledPair,
    SymmetrizedPair,
    symmetrize,
)

mp = mpmath.mp.clone()
mp.dps = 40
INF = math.inf


def between(left, right):
    """Pr[left < Z ≤ right], from the nearer tail."""
    if right <= 0:
        left, right = -right, -left
    return (mp.erfc(left / mp.sqrt(2)) - mp.erfc(right / mp.sqrt(2))) / 2


def check(pair, truth, edges, close=1e-13):
    """Masses and losses are as good as is said, and that is good."""
    masses = pair.bin_masses(np.array(edges, dtype=float))
    assert len({part.shape for part in masses}) == 1
    for k, (a, b) in enumerate(itertools.pairwise(edges)):
        p, q = truth(mp.mpf(a), mp.mpf(b))
        for mass, true in ((masses.p[k], p), (masses.q[k], q)):
            assert abs(mass - true) <= (masses.relative_mass_error[k] + close / 10) * true, (a, b)
        if p > 0:
            assert abs(masses.loss[k] - mp.log(p / q)) <= masses.loss_error[k] + close / 10, (a, b)
            assert 0 < masses.loss_error[k] <= close * (1 + abs(masses.loss[k]))
            assert 0 < masses.relative_mass_error[k] <= close


@pytest.mark.parametrize("width", [1e-9, 0.3, 1.0, 8.0, 90.0])
def test_bounded_range_pair_is_exact(width):
    w = mp.mpf(width)

    def truth(a, b):
        a, b = max(a, -w), min(b, w)
        if a >= b:
            return mp.mpf(0), mp.mpf(0)
        all_of = 2 * mp.sinh(w / 2)
        return (mp.exp(b / 2) - mp.exp(a / 2)) / all_of, (mp.exp(-a / 2) - mp.exp(-b / 2)) / all_of

    edges = [-INF, *(width * np.linspace(-1.2, 1.2, 14)).tolist(), INF]
    check(BoundedRangePair(width), truth, edges, 1e-12)
    low, high = BoundedRangePair(width).support
    assert -width * (1 + 1e-14) < low < -width < width < high < width * (1 + 1e-14)
    assert BoundedRangePair(width).coarse_grid.min() == -width
    assert BoundedRangePair(width).coarse_grid.max() == width


def mixture(mu_squared, rate):
    """P = (1 − q)·N(0, 1) + q·N(μ, 1) against Q = N(0, 1): the masses of losses in (a, b]."""
    mu, q = mp.sqrt(mp.mpf(mu_squared)), mp.mpf(rate)

    def inner(loss):
        odds = mp.expm1(loss) / q
        return (mp.log1p(odds) if odds > -1 else -mp.inf) / mu

    def bin_masses(a, b):
        ours, theirs = (between(inner(a) + move, inner(b) + move) for move in (-mu / 2, mu / 2))
        return q * ours + (1 - q) * theirs, theirs

    return bin_masses


@pytest.mark.parametrize(("mu_squared", "rate"), [(1.0, 1.0), (1.0, 0.2), (9.0, 0.5), (0.01, 0.01)])
def test_symmetrized_pair_mirrors_positive_losses(mu_squared, rate):
    base = mixture(mu_squared, rate)
    above = [float(x) for x in base(mp.mpf(0), mp.inf)]

    def truth(a, b):
        p = q = mp.mpf(0)
        if b > 0:
            p, q = base(max(a, mp.mpf(0)), b)
        if a < 0:
            theirs, ours = base(max(-b, mp.mpf(0)), -a)
            p, q = p + ours, q + theirs
        if a < 0 <= b:
            p, q = (x + 1 - sum(base(mp.mpf(0), mp.inf)) for x in (p, q))
        return p, q

    pair = symmetrize(
        SubsampledPair(GaussianPair(mu_squared), rate, added=False) if rate < 1 else GaussianPair(mu_squared)
    )
    assert isinstance(pair, SymmetrizedPair)
    wide = math.sqrt(mu_squared) * rate
    for edges in (
        [-2.0, -1.0, -0.1, 0.3, 1.0, 2.0],
        [-1.0, 0.0, 1.0],
        [-0.7, 1e-9],
        [-1e-9, 0.4],
        [-1e-5, 3e-5],
    ):
        check(pair, truth, [wide * edge for edge in edges], 1e-8 if rate == 1 else 1e-9)
    whole = pair.bin_masses(np.array([-INF, 0.0, INF]))
    assert whole.p[1] == pytest.approx(above[0], rel=1e-12)
    assert whole.q[1] == pytest.approx(above[1], rel=1e-12)
    assert whole.p.sum() == pytest.approx(1, abs=1e-12)
    assert whole.q.sum() == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize("mu_squared", [0.5, 1.0, 2.0, 3.0, 5.0, 7.0])
def test_loss_error_of_a_small_bin_around_zero(mu_squared):
    """Of a Gaussian nothing is left, but for rounding."""
    masses = SymmetrizedPair(GaussianPair(mu_squared)).bin_masses(np.array([-1e-12, 1e-12]))
    p, q = mixture(mu_squared, 1)(mp.mpf(0), mp.mpf("1e-12"))
    assert abs(masses.p[0] - (p + q)) <= masses.relative_mass_error[0] * (p + q)
    assert abs(masses.q[0] - (p + q)) <= masses.relative_mass_error[0] * (p + q)
    assert abs(masses.loss[0]) <= masses.loss_error[0] <= 1e-12


def test_properties_of_a_symmetrized_pair():
    base = SubsampledPair(LaplacePair(2.0), 0.25, added=False)
    pair, top = SymmetrizedPair(base), math.log(0.75 + 0.25 * math.exp(2))
    assert pair.atoms == pytest.approx([-top, 0, top], rel=1e-14)
    assert pair.support == pytest.approx((-top, top), rel=1e-14)
    assert pair.support[1] >= top
    assert pair.coarse_grid == pytest.approx(-pair.coarse_grid[::-1])
    assert pair.coarse_grid.max() == pytest.approx(top)
    assert (np.diff(pair.coarse_grid) > 0).all()
    assert not pair.is_discrete
    assert pair.infinity_mass == 0
    masses = pair.bin_masses(
        np.array([-INF, -top - 1e-9, 1e-9 - top, -1e-9, 1e-9, top - 1e-9, top + 1e-9, INF])
    )
    # Half of the time the sampled unit is told as clearly as can be; never of the time it is not.
    assert masses.p[5] == pytest.approx(0.25 * 0.5 + 0.75 * math.exp(-2) / 2, rel=1e-6)
    assert masses.p[1] == pytest.approx(masses.q[5], rel=1e-6)
    assert masses.p[[0, 6]].tolist() == [0, 0]
    assert masses.p[3] == pytest.approx(masses.q[3], rel=1e-9)


def test_errors_of_mirrored_bins_are_equal():
    edges = np.array([-9.0, -3.0, -0.02, -0.01])
    masses, image = (
        SymmetrizedPair(GaussianPair(1.0)).bin_masses(edges),
        GaussianPair(1.0).bin_masses(-edges[::-1]),
    )
    assert masses.loss_error == pytest.approx(image.loss_error[::-1], rel=1e-9)
    assert masses.loss_error[0] > 10 * masses.loss_error[2]
    assert masses.relative_mass_error == pytest.approx(
        image.relative_mass_error[::-1] + 4 * 2.0**-53, rel=1e-9
    )


def test_an_atom_on_an_edge_lies_below_it():
    masses = SymmetrizedPair(LaplacePair(2.0)).bin_masses(np.array([-4.0, -2.0, 0.0, 2.0, 4.0]))
    assert masses.p[0] == pytest.approx(math.exp(-2) / 2, rel=1e-12)
    assert masses.q[0] == pytest.approx(0.5, rel=1e-12)
    assert masses.loss[0] == -2
    assert masses.q[2] == pytest.approx(masses.p[0] + (math.exp(-1) - math.exp(-2)) / 2, rel=1e-12)
    assert masses.p[3] == masses.q[3] == 0


def test_atoms_are_mirrored_one_by_one():
    pair = symmetrize(DiscretePair((1.0, -1.0, 0.0), (0.5, 0.1, 0.1), (0.2, 0.3, 0.1), infinity_mass=0.25))
    assert isinstance(pair, DiscretePair)
    assert pair.losses == (1.0, -1.0, 0.0)
    assert pair.p == pytest.approx((0.5, 0.2, 0.05))
    assert pair.q == pytest.approx((0.2, 0.5, 0.05))
    assert pair.infinity_mass == pair.negative_infinity_mass == 0.25
    assert 8 * 2.0**-53 < pair.relative_mass_error < 32 * 2.0**-53
    assert symmetrize(epsilon_delta_pair(0)).losses == (0.0,)
    assert symmetrize(epsilon_delta_pair(0)).p == (1.0,)
    assert isinstance(symmetrize(SubsampledPair(epsilon_delta_pair(1), 0.5, added=False)), DiscretePair)


@pytest.mark.parametrize("added", [False, True])
@pytest.mark.parametrize(
    ("rate", "mu_squared", "size"), [(0.3, 1.0, 3), (0.01, 0.25, 2), (0.9, 4.0, 2), (0.5, 0.01, 8)]
)
def test_sampled_group_mixes_binomially(rate, mu_squared, size, added):
    q, m2 = mp.mpf(rate), mp.mpf(mu_squared)
    mu, weights = mp.sqrt(m2), [mp.binomial(size, j) * q**j * (1 - q) ** (size - j) for j in range(size + 1)]

    def ratio(x):
        return mp.log(sum(w * mp.exp(j * x - j * j * m2 / 2) for j, w in enumerate(weights)))

    scores = [mp.mpf(float(x)) for x in np.linspace(-6, 6 + size * float(mu), 9) * float(mu)]
    edges = [float(ratio(x)) for x in scores]
    # Back to the scores of the rounded edges.
    slope = [(ratio(x + mp.mpf("1e-12")) - ratio(x)) * 10**12 for x in scores]
    exact = [x + (mp.mpf(e) - ratio(x)) / s for x, e, s in zip(scores, edges, slope, strict=True)]
    place = dict(zip(edges, exact, strict=True)) | {-INF: -mp.inf, INF: mp.inf}

    def truth(a, b):
        a, b = (-b, -a) if added else (a, b)
        left, right = place[float(a)], place[float(b)]
        both = sum(w * between((left - j * m2) / mu, (right - j * m2) / mu) for j, w in enumerate(weights))
        plain = between(left / mu, right / mu)
        return (plain, both) if added else (both, plain)

    pair = SubsampledGaussianGroupPair(rate, mu_squared, size, added)
    inner = [-edge for edge in reversed(edges)] if added else edges
    masses = pair.bin_masses(np.array([-INF, *inner, INF]))
    for k, (a, b) in enumerate(itertools.pairwise([-INF, *inner, INF])):
        p, theirs = truth(mp.mpf(a), mp.mpf(b))
        assert masses.p[k] == pytest.approx(float(p), rel=1e-6, abs=1e-300), (a, b)
        assert masses.q[k] == pytest.approx(float(theirs), rel=1e-6, abs=1e-300), (a, b)
        assert a <= masses.loss[k] + 1e-9
        assert masses.loss[k] <= b + 1e-9
        # What counts: the loss of what is held, however the edges were met.
        assert masses.loss[k] == pytest.approx(math.log(masses.p[k] / masses.q[k]), rel=1e-9, abs=1e-12)
        assert 0 < masses.loss_error[k] < 1e-9 * (1 + abs(masses.loss[k]))
        assert 0 < masses.relative_mass_error[k] < 1e-10
    none = -size * math.log1p(-rate)
    low, high = pair.support if added else (-pair.support[1], -pair.support[0])
    assert low == -INF
    assert none < high < none * (1 + 1e-14)
    coarse_grid = pair.coarse_grid
    assert (np.diff(coarse_grid) > 0).all()
    assert coarse_grid.size > 500
    whole = pair.bin_masses(np.array([-INF, *coarse_grid.tolist(), INF]))
    assert whole.p.sum() == pytest.approx(1, abs=1e-12)
    assert whole.q.sum() == pytest.approx(1, abs=1e-12)


def test_a_group_that_is_always_sampled_moves_by_all_of_it():
    pair, plain = SubsampledGaussianGroupPair(1.0, 0.25, 2, added=False), GaussianPair(1.0)
    assert pair.support == (-INF, INF)
    edges = np.linspace(-3.0, 4.0, 8)
    masses, true = pair.bin_masses(edges), plain.bin_masses(edges)
    assert masses.p == pytest.approx(true.p, rel=1e-12)
    assert masses.q == pytest.approx(true.q, rel=1e-12)
    assert masses.loss == pytest.approx(true.loss, rel=1e-12)
