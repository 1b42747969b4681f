"""Pairs of laws, seen through their loss, against mpmath and exact fractions."""

import itertools
import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hubbub.accounting import discrete_pairs
from hubbub.accounting.discrete_pairs import (
    DiscretePair,
    discrete_gaussian_pair,
    discrete_laplace_pair,
    epsilon_delta_pair,
    finite_pair,
    randomized_response_pair,
)
from hubbub.accounting.dominating_pairs import GaussianPair, LaplacePair
from hubbub.accounting.float_bounds import Uncertified, inverse_log_mixture, log_mixture
from hubbub.accounting.subsampled_pairs import SubsampledGaussianPair, SubsampledPair
from hubbub.errors import InvalidInput

mp = mpmath.mp.clone()
mp.dps = 60
SEEN = mp.mpf("1e-290")
INF = math.inf


def between(left, right):
    """Pr[left < Z ≤ right], from the nearer tail."""
    if right <= 0:
        left, right = -right, -left
    return (mp.erfc(left / mp.sqrt(2)) - mp.erfc(right / mp.sqrt(2))) / 2


def bell(mu_squared):
    mu = mp.sqrt(mp.mpf(mu_squared))

    def bin_masses(a, b):
        return tuple(between(a / mu + move, b / mu + move) for move in (-mu / 2, mu / 2))

    return bin_masses


def laplace(ratio):
    r = mp.mpf(ratio)

    def bin_masses(a, b):
        low, high = max(a, -r), min(b, r)
        p = q = mp.mpf(0)
        if low < high:
            p = (mp.exp((high - r) / 2) - mp.exp((low - r) / 2)) / 2
            q = (mp.exp(-(low + r) / 2) - mp.exp(-(high + r) / 2)) / 2
        for place, ours in ((r, mp.mpf(1) / 2), (-r, mp.exp(-r) / 2)):
            if a < place <= b:
                p, q = p + ours, q + ours * mp.exp(-place)
        return p, q

    return bin_masses


def check(pair, truth, edges):
    """Every mass and every loss is as good as is said; what is below 1e-290 may be anything as small."""
    masses = pair.bin_masses(np.array(edges, dtype=float))
    assert len({part.shape for part in masses}) == 1
    assert all(np.isfinite(part).all() for part in masses)
    for k, (a, b) in enumerate(itertools.pairwise(edges)):
        p, q = truth(mp.mpf(a), mp.mpf(b))
        for mass, true in ((masses.p[k], p), (masses.q[k], q)):
            assert abs(mass - true) <= masses.relative_mass_error[k] * true + SEEN
        if p > SEEN and q > 0:
            assert abs(masses.loss[k] - mp.log(p / q)) <= masses.loss_error[k], (a, b)


MU_SQUARED = [1e-12, 0.01, 1.0, 30.0, 1e4, 1e6]


@pytest.mark.parametrize("mu_squared", MU_SQUARED)
@pytest.mark.parametrize(
    ("low", "high", "count"),
    [
        (-12, 12, 60),
        (-38, 38, 20),
        (-1, 1.1, 300),
        (7, 7.01, 8),
        (-9.001, -9, 8),
        (-0.2, 30, 4),
        (2, 2.5, 40),
    ],
)
def test_gaussian_bins_enclose_the_exact_masses(mu_squared, low, high, count):
    mu = math.sqrt(mu_squared)
    edges = mu_squared / 2 + mu * np.linspace(low, high, count)
    check(GaussianPair(mu_squared), bell(mu_squared), [-INF, *edges.tolist(), INF])


def test_gaussian_bins_of_zero_width_are_empty():
    masses = GaussianPair(1.0).bin_masses(np.array([-INF, -INF, 0.0, 0.0, INF, INF]))

    assert masses.p[[0, 2, 4]].tolist() == [0, 0, 0]
    assert masses.p.sum() == pytest.approx(1, abs=1e-15)
    assert np.isfinite(masses.loss).all()


@pytest.mark.parametrize("ratio", [1e-9, 0.1, 1.0, 6.0, 60.0, 800.0, 1e6])
@pytest.mark.parametrize("count", [2, 3, 8, 61])
def test_laplace_bins_enclose_the_exact_masses(ratio, count):
    check(LaplacePair(ratio), laplace(ratio), np.linspace(-1.1 * ratio, 1.1 * ratio, count).tolist())
    check(LaplacePair(ratio), laplace(ratio), [-INF, *np.linspace(-ratio, ratio, count).tolist(), INF])


def test_laplace_bins_close_to_the_ends():
    for ratio in (2.0, 900.0):
        for near in (1e-9, 0.4, 3.0):
            edges = sorted([-ratio - near, near - ratio, 0.0, ratio - near, ratio + near])
            check(LaplacePair(ratio), laplace(ratio), edges)


def mixture(masses, rate, added):
    """Cells of the mixture, from those of the mechanism."""
    q = mp.mpf(rate)

    def base(loss):
        if mp.isinf(loss):
            return loss
        odds = (mp.exp(loss) - 1) / q
        return mp.log1p(odds) if odds > -1 else -mp.inf

    def sampled(a, b):
        a, b = (-b, -a) if added else (a, b)
        ours, theirs = masses(base(a), base(b))
        both = (1 - q) * theirs + q * ours
        return (theirs, both) if added else (both, theirs)

    return sampled


@pytest.mark.parametrize("added", [False, True])
@pytest.mark.parametrize("rate", [1e-6, 0.3, 0.999, 1.0])
@pytest.mark.parametrize(
    ("base", "truth"),
    [(GaussianPair(0.5), bell(0.5)), (GaussianPair(100.0), bell(100.0)), (LaplacePair(2.0), laplace(2.0))],
    ids=["narrow", "wide", "laplace"],
)
def test_subsampled_bins_enclose_the_exact_masses(base, truth, rate, added):
    pair = SubsampledPair(base, rate, added)
    inner = np.quantile(pair.coarse_grid, np.linspace(0.01, 0.99, 24))
    # Between quantiles, so that no atom lies on an edge, where rounding decides.
    edges = np.unique(inner + 1e-7 * np.abs(inner))
    masses, true = pair.bin_masses(edges), mixture(truth, rate, added)
    for k, (a, b) in enumerate(zip(edges.tolist(), edges[1:].tolist(), strict=False)):
        p, q = true(mp.mpf(a), mp.mpf(b))
        # The edges themselves are rounded where they are mapped: by no more than this.
        moved = (mp.mpf(2) ** -46 * (abs(a) + abs(b) + 1)) / (b - a) + masses.relative_mass_error[k]
        # Close to ±ln(1 − rate), a small step of L is a large one of ℓ.
        steep = min(1 - (1 - rate) * math.exp(-abs_loss) for abs_loss in ((-a, -b) if added else (a, b)))
        if p > 1e-30 and moved < 1e-3 and steep > 1e-2:
            assert abs(masses.p[k] - p) <= 100 * moved * p, (a, b)
            assert a - 1e-13 <= masses.loss[k] <= b + 1e-13
            assert abs(masses.loss[k] - mp.log(p / q)) <= masses.loss_error[k] + 100 * moved * (b - a)
        if min(masses.p[k], masses.q[k]) > 1e-290:
            assert masses.loss[k] == pytest.approx(math.log(masses.p[k] / masses.q[k]), abs=1e-10)


def test_subsampled_bins_hold_all_mass():
    for pair in (
        SubsampledPair(GaussianPair(4.0), 0.2, False),
        SubsampledPair(LaplacePair(3.0), 0.2, True),
        SubsampledGaussianPair(0.2, 0.5, True),
    ):
        masses = pair.bin_masses(np.concatenate([[-INF], pair.coarse_grid, [INF]]))
        assert masses.p.sum() == pytest.approx(1, abs=1e-13)
        assert masses.q.sum() == pytest.approx(1, abs=1e-13)
        assert pair.infinity_mass == 0
        assert not pair.is_discrete
        low, high = pair.support
        assert low <= masses.loss.min()
        assert masses.loss.max() <= high


def test_a_subsampled_gaussian_pair_is_the_subsampled_gaussian_pair():
    step, pair = SubsampledGaussianPair(0.1, 2.0, False), SubsampledPair(GaussianPair(0.25), 0.1, False)
    edges = np.linspace(-0.1, 0.5, 9)

    assert step.support == pair.support
    assert step.coarse_grid.tolist() == pair.coarse_grid.tolist()
    assert step.atoms.size == 0 == pair.atoms.size
    assert all(
        (ours == theirs).all()
        for ours, theirs in zip(step.bin_masses(edges), pair.bin_masses(edges), strict=True)
    )


def test_rate_one_is_the_mechanism_itself():
    edges = np.linspace(-3, 3, 7)
    masses, base = (
        SubsampledPair(LaplacePair(2.0), 1.0, False).bin_masses(edges),
        LaplacePair(2.0).bin_masses(edges),
    )

    assert masses.p == pytest.approx(base.p, rel=1e-15)
    assert masses.loss.tolist() == base.loss.tolist()


rates = st.fractions(Fraction(1, 10**6), 1, max_denominator=10**6)


def distributions(weights):
    return [Fraction(w, sum(weights)) for w in weights]


@st.composite
def finite_pairs(draw):
    size = draw(st.integers(2, 5))
    weights = st.lists(st.integers(0, 30), min_size=size, max_size=size).filter(any)
    return distributions(draw(weights)), distributions(draw(weights))


def true_log(ratio):
    return mp.log(mp.mpf(ratio.numerator) / ratio.denominator)


@given(finite_pairs())
def test_finite_pairs_have_the_given_masses(pair):
    p, q = pair
    atoms = finite_pair(p, q)

    both = [(x, y) for x, y in zip(p, q, strict=True) if x and y]
    assert atoms.infinity_mass == float(sum(x for x, y in zip(p, q, strict=True) if not y))
    assert atoms.negative_infinity_mass == float(sum(y for x, y in zip(p, q, strict=True) if not x))
    if both:
        assert list(atoms.p) == [float(x) for x, _ in both]
        assert list(atoms.q) == [float(y) for _, y in both]
        for loss, (x, y) in zip(atoms.losses, both, strict=True):
            assert abs(loss - true_log(x / y)) <= atoms.relative_loss_error * abs(true_log(x / y))
        low, high = atoms.support
        assert low <= min(true_log(x / y) for x, y in both)
        assert max(true_log(x / y) for x, y in both) <= high
    else:
        assert atoms.losses == (0.0,)
        assert atoms.p == (0.0,)


def test_ratios_beyond_doubles_have_a_loss():
    huge = finite_pair(
        [1 - Fraction(1, 10**400), Fraction(1, 10**400)], [Fraction(1, 10**400), 1 - Fraction(1, 10**400)]
    )
    assert huge.losses[0] == pytest.approx(400 * math.log(10), rel=1e-14)
    assert huge.losses[1] == -huge.losses[0]

    close = finite_pair(
        [Fraction(1, 2) + Fraction(1, 10**30), Fraction(1, 2) - Fraction(1, 10**30)], [Fraction(1, 2)] * 2
    )
    assert close.losses == pytest.approx((2e-30, -2e-30), rel=1e-15)


@pytest.mark.parametrize(
    ("p", "q"),
    [
        ([Fraction(1)], [Fraction(1, 2), Fraction(1, 2)]),
        ([Fraction(1, 2)] * 2, [Fraction(1, 2), Fraction(1, 3)]),
        ([Fraction(1, 3)] * 2, [Fraction(1, 2)] * 2),
        ([Fraction(3, 2), Fraction(-1, 2)], [Fraction(1, 2)] * 2),
    ],
)
def test_invalid_distributions_are_refused(p, q):
    with pytest.raises(InvalidInput, match="not two distributions"):
        finite_pair(p, q)


@given(finite_pairs(), st.lists(st.floats(-4, 4), min_size=2, max_size=6, unique=True))
def test_atoms_are_merged_as_one_outcome(pair, edges):
    atoms = finite_pair(*pair)
    edges = sorted(edges)
    masses = atoms.bin_masses(np.array(edges))

    for k, (a, b) in enumerate(itertools.pairwise(edges)):
        inside = [i for i, loss in enumerate(atoms.losses) if a < loss <= b]
        ours, theirs = sum(atoms.p[i] for i in inside), sum(atoms.q[i] for i in inside)
        assert masses.p[k] == pytest.approx(ours, rel=1e-14)
        assert masses.q[k] == pytest.approx(theirs, rel=1e-14)
        if ours:
            assert masses.loss[k] == pytest.approx(math.log(ours / theirs), abs=1e-14)
        assert np.isfinite(masses.loss[k])


def test_atoms_far_apart_in_one_bin_do_not_overflow():
    masses = DiscretePair((-1e6, 0.0, 1e6), (0.0, 0.5, 0.5), (0.5, 0.5, 0.0)).bin_masses(
        np.array([-INF, INF])
    )

    assert masses.p.tolist() == [1.0]
    assert masses.loss[0] == 0


@given(finite_pairs(), rates, st.booleans())
@example(([Fraction(0), Fraction(1)], [Fraction(1), Fraction(0)]), Fraction(1, 10**6), False)
@example(([Fraction(0), Fraction(1)], [Fraction(1), Fraction(0)]), Fraction(1, 10**6), True)
def test_subsampled_atoms_are_mixtures(pair, rate, added):
    p, q = pair
    both = [(1 - rate) * y + rate * x for x, y in zip(p, q, strict=True)]
    true = finite_pair(q, both) if added else finite_pair(both, q)
    result = SubsampledPair(finite_pair(p, q), float(rate), added)

    assert result.is_discrete
    assert result.infinity_mass == pytest.approx(true.infinity_mass, rel=1e-14)
    # Outcomes of one loss may come as one.
    assert result.atoms.min() == pytest.approx(min(true.losses), rel=1e-9, abs=1e-15)
    assert result.atoms.max() == pytest.approx(max(true.losses), rel=1e-9, abs=1e-15)
    assert result.support[0] <= min(true.losses)
    assert max(true.losses) <= result.support[1]
    assert result.coarse_grid.tolist() == np.unique(result.atoms).tolist()
    z = np.array([0.3 + 2j])
    if any(true.p):
        assert result.log_moment(z) == pytest.approx(true.log_moment(z), rel=1e-9, abs=1e-13)
        assert result.derivatives(0.7) == pytest.approx(true.derivatives(0.7), rel=1e-9, abs=1e-13)
    edges = np.array([-INF, -0.71, -0.13, 0.017, 0.29, INF])
    assert result.bin_masses(edges).p == pytest.approx(true.bin_masses(edges).p, rel=1e-12, abs=1e-300)


def test_a_subsampled_continuous_pair_has_no_closed_form_moments():
    for ask in (lambda pair: pair.log_moment(np.array([1j])), lambda pair: pair.derivatives(1.0)):
        with pytest.raises(Uncertified):
            ask(SubsampledPair(GaussianPair(1.0), 0.5, False))


def exact_moment(pair, z):
    """E[e^(zL)] by its definition."""
    z = mp.mpc(z)
    if isinstance(pair, GaussianPair):
        m = mp.mpf(pair.mu_squared)
        return mp.exp(m * (z + z * z) / 2)
    if isinstance(pair, LaplacePair):
        r = mp.mpf(pair.epsilon)
        tail = mp.exp(-r) / 2
        half = z + mp.mpf(1) / 2
        inner = mp.exp(-r / 2) * mp.sinh(half * r) / half / 2
        return mp.exp(r * z) / 2 + tail * mp.exp(-r * z) + inner
    if len(pair.losses) == 2 and not pair.infinity_mass:
        e = mp.mpf(max(pair.losses))
        return (mp.exp(z * e) + mp.exp(-(1 + z) * e)) / (1 + mp.exp(-e))
    return mp.fsum(mp.mpf(p) * mp.exp(z * mp.mpf(loss)) for loss, p in zip(pair.losses, pair.p, strict=True))


@pytest.mark.parametrize(
    "pair",
    [
        GaussianPair(0.3),
        *(LaplacePair(r) for r in (1e-9, 1e-4, 0.3, 1.0, 1.1, 30.0, 1e3)),
        epsilon_delta_pair(2**-40),
        epsilon_delta_pair(3.0),
        epsilon_delta_pair(60.0),
        finite_pair(
            [Fraction(1, 8), Fraction(3, 8), Fraction(1, 2), 0],
            [Fraction(1, 2), Fraction(1, 4), 0, Fraction(1, 4)],
        ),
    ],
    ids=str,
)
@pytest.mark.parametrize("c", [1e-4, 0.3, 1.0, 40.0])
def test_moments(pair, c):
    t = [0.0, 1e-3, 0.7, 30.0, 1e4]
    values = pair.log_moment(np.array([complex(c, x) for x in t]))
    for x, value in zip(t, values.tolist(), strict=True):
        true = mp.log(exact_moment(pair, complex(c, x)))
        # The phase is known but for whole turns.
        off = mp.mpc(value) - true
        off = abs(mp.mpc(off.real, off.imag - 2 * mp.pi * mp.nint(off.imag / (2 * mp.pi))))
        size = max(abs(value), abs(true))
        assert off <= 2**-48 * size * (1 + abs(x) * pair.support[1] if pair.support[1] < INF else 1)


@pytest.mark.parametrize(
    "pair",
    [
        GaussianPair(0.3),
        *(LaplacePair(r) for r in (1e-3, 0.05, 0.3, 4.0, 700.0)),
        randomized_response_pair(Fraction(2, 3), 5),
    ],
    ids=str,
)
@pytest.mark.parametrize("c", [0.05, 1.0, 9.0])
def test_derivatives_are_those_of_the_moments(pair, c):
    def moment(x):
        return mp.log(exact_moment(pair, x)).real

    result = pair.derivatives(c)
    assert result[0] == pytest.approx(float(moment(c)), rel=1e-12)
    assert result[1] == pytest.approx(float(mp.diff(moment, c)), rel=1e-9)
    assert result[2] == pytest.approx(float(mp.diff(moment, c, 2)), rel=1e-6, abs=1e-9)


def test_gaussian_moments_decay():
    assert GaussianPair(2.0).decay(np.array([3.0]), 1.0) == -9


@pytest.mark.parametrize("epsilon", [1e-3, 0.1, 1.0, 3.0])
@pytest.mark.parametrize("tilt", [1e-3, 0.5, 4.0, 60.0])
def test_laplace_moments_decay_at_least_as_is_said_from_there_on(epsilon, tilt):
    pair = LaplacePair(epsilon)
    t = np.linspace(0.0, 45 / epsilon, 6001)[1:]
    moment = pair.log_moment(tilt + 1j * t).real - pair.derivatives(tilt)[0]
    later = np.maximum.accumulate(moment[::-1])[::-1]
    bound = pair.decay(t, tilt)
    assert (later <= bound + 1e-12).all()
    # It is of use for many steps: losses between the atoms have a share of about ε/2, or 1/tilt.
    assert tilt > 10 or bound[-1] < -0.3 * min(epsilon / 2, 0.5 / (1 + tilt))


@pytest.mark.parametrize("epsilon", [1e-3, 0.1, 0.9, 1.1, 4.0])
def test_laplace_moments_err_no_more_than_is_said(epsilon):
    pair = LaplacePair(epsilon)
    for c in (0.01, 2.0, 30.0):
        for turn in (0.0, 0.01, 0.5, 1.4, 1.6, 3.2, 6.3, 40.0):
            z = complex(c, turn / epsilon)
            value = pair.log_moment(np.array([z]))[0]
            off = abs(mp.exp(mp.mpc(value.real, value.imag)) - laplace_moment(epsilon, z))
            size = abs(value) + float(pair.moment_error(np.array([z]))[0])
            assert off <= size * 2.0**-48 * abs(laplace_moment(epsilon, complex(c)))


def laplace_moment(epsilon, z):
    r, z = mp.mpf(epsilon), mp.mpc(z.real, z.imag)
    w = (z + mp.mpf(1) / 2) * r
    return mp.exp(-r / 2) * (mp.cosh(w) + r / 2 * mp.sinh(w) / w)


def test_epsilon_delta_pair_is_randomized_response():
    third = randomized_response_pair(Fraction(3, 4), 2)
    assert epsilon_delta_pair(math.log(3)).p == pytest.approx(third.p)
    assert epsilon_delta_pair(math.log(3)).losses == pytest.approx(third.losses)
    infinite = epsilon_delta_pair(1, Fraction(1, 8))
    assert (infinite.infinity_mass, infinite.negative_infinity_mass, sum(infinite.p)) == (0.125, 0.125, 0.875)


def test_randomized_response_has_a_third_loss_of_zero():
    pair = randomized_response_pair(Fraction(1, 2), 6)

    assert pair.losses == (math.log(5), -math.log(5), 0.0)
    assert pair.p == (0.5, 0.1, 0.4)
    assert pair.q == (0.1, 0.5, 0.4)


def collected(outcomes):
    """P and Q by their loss, rounded."""
    total = {}
    for p, q in outcomes:
        key = round(float(mp.log(p / q)), 9)
        ours, theirs = total.get(key, (mp.mpf(0), mp.mpf(0)))
        total[key] = ours + p, theirs + q
    return total


@pytest.mark.parametrize(
    ("pair", "weight", "reach", "shift"),
    [
        (discrete_laplace_pair(2, 1), lambda x: mp.exp(-abs(x) / mp.mpf(2)), 200, 1),
        (discrete_laplace_pair(Fraction(1, 3), 4), lambda x: mp.exp(-abs(x) * 3), 40, 4),
        (discrete_laplace_pair(Fraction(1, 1000), 1), lambda x: mp.exp(-abs(x) * 1000), 3, 1),
        (discrete_gaussian_pair(4, 1), lambda x: mp.exp(-x * x / mp.mpf(8)), 90, 1),
        (discrete_gaussian_pair(Fraction(1, 4), 3), lambda x: mp.exp(-2 * x * x), 40, 3),
    ],
)
def test_discrete_noise_pairs(pair, weight, reach, shift):
    total = mp.fsum(weight(mp.mpf(x)) for x in range(-reach, reach + 1))
    true = collected(
        (weight(mp.mpf(x - shift)) / total, weight(mp.mpf(x)) / total)
        for x in range(-reach, reach + shift + 1)
    )

    for loss, p, q in zip(pair.losses, pair.p, pair.q, strict=True):
        ours, theirs = true.get(round(loss, 9), (0, 0))
        if min(p, q) > 1e-200:
            assert abs(p - ours) <= pair.relative_mass_error * ours
            assert abs(q - theirs) <= pair.relative_mass_error * theirs
    assert sum(pair.p) == pytest.approx(1, abs=1e-14)


def test_too_many_atoms_are_uncertified():
    for ask in (lambda: discrete_gaussian_pair(10**9, 1), lambda: discrete_laplace_pair(1, 1 << 20)):
        with pytest.raises(Uncertified):
            ask()
    with pytest.raises(Uncertified):
        discrete_laplace_pair(1, 0)
    assert discrete_gaussian_pair(9, 0).support == (0, 0)


def test_losses_stay_finite_however_large():
    loss = np.array([-1e6, -800.0, -30.0, -1e-9, 0.0, 1e-9, 30.0, 31.0, 800.0, 1e6])
    for rate in (1e-8, 0.5, 1 - 2**-40, 1.0):
        sampled = log_mixture(loss, rate)
        true = [mp.log(1 - mp.mpf(rate) + mp.mpf(rate) * mp.exp(mp.mpf(x))) for x in loss.tolist()]
        for masses, value in zip(sampled.tolist(), true, strict=True):
            assert abs(masses - value) <= 2**-48 * abs(value)
        back = inverse_log_mixture(sampled, rate)
        assert back[4:] == pytest.approx(loss[4:], rel=1e-7, abs=1e-15)
    for pair in (
        GaussianPair(2e6),
        LaplacePair(1e6),
        SubsampledPair(GaussianPair(2e6), 0.01, True),
        SubsampledPair(LaplacePair(1e6), 0.01, False),
    ):
        masses = pair.bin_masses(np.concatenate([[-INF], np.linspace(-2e6, 2e6, 50), [INF]]))
        assert all(np.isfinite(part).all() for part in masses)
        assert masses.p.sum() == pytest.approx(1, abs=1e-9)


def test_moments_of_many_atoms_are_taken_in_batches(monkeypatch):
    monkeypatch.setattr(discrete_pairs, "BATCH", 8)
    pair = discrete_laplace_pair(2, 3)
    z = 0.5 + 1j * np.arange(9.0)

    assert pair.log_moment(z) == pytest.approx([complex(mp.log(exact_moment(pair, x))) for x in z.tolist()])
