"""Composed losses on a grid: reference values, enumeration, and the bounds that make them certain."""

import itertools
import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from hubbub.accounting import pld, pld_accountant
from hubbub.accounting.discrete_pairs import (
    DiscretePair,
    discrete_gaussian_pair,
    discrete_laplace_pair,
    epsilon_delta_pair,
    finite_pair,
    randomized_response_pair,
)
from hubbub.accounting.dominating_pairs import BinMasses, GaussianPair, LaplacePair
from hubbub.accounting.float_bounds import Uncertified
from hubbub.accounting.pld import ComposedPld, DiscretizedPld, TiltedPld
from hubbub.accounting.pld_accountant import PldAccountant, common_step
from hubbub.accounting.subsampled_pairs import SubsampledGaussianPair, SubsampledPair
from hubbub.noise.enclosures import gaussian_delta

mp = mpmath.mp.clone()
mp.dps = 50

# ε at δ, as (what, δ, lower, upper). "Arb": enclosures by ball arithmetic (python-flint), from the closed
# form or a finite sum by bisection; "Bromwich": tilted Laplace inversion, trapezoid rule at 160–200 bits.
REFERENCES = {
    # Arb
    "laplace 1": ([(LaplacePair(1.0), 1)], 1e-5, "0.9999799998999993333282", "0.9999799998999993333284"),
    "10 × laplace 1": ([(LaplacePair(1.0), 10)], 1e-5, "9.989962311150627798290", "9.989962311150627798292"),
    "100 × laplace 1": ([(LaplacePair(1.0), 100)], 1e-5, "68.2529510556142", "68.2529510556144"),
    "100 × laplace 0.1": (
        [(LaplacePair(0.1), 100)],
        1e-6,
        "4.692667414680188992867",
        "4.692667414680188992868",
    ),
    "10 × pure 1": (
        [(epsilon_delta_pair(1), 10)],
        1e-6,
        "9.999977065820732619024",
        "9.999977065820732619026",
    ),
    "100 × pure 0.1": (
        [(epsilon_delta_pair(0.1), 100)],
        1e-6,
        "4.774567588107986153285",
        "4.774567588107986153286",
    ),
    "100 × (0.1, 1e-8)": (
        [(epsilon_delta_pair(Fraction(1, 10), Fraction(1, 10**8)), 100)],
        1e-5,
        "4.329636714016605930299",
        "4.329636714016605930300",
    ),
    "discrete gaussian 4": (
        [(discrete_gaussian_pair(4, 1), 1)],
        1e-5,
        "2.01133982134770499",
        "2.01133982134770500",
    ),
    "10 × discrete gaussian 4": (
        [(discrete_gaussian_pair(4, 1), 10)],
        1e-5,
        "7.49525365788530579",
        "7.49525365788530581",
    ),
    "10 × gaussian 1": (
        [(GaussianPair(1.0), 10)],
        1e-5,
        "17.85658683010761392552",
        "17.85658683010761392552",
    ),
    "10 × gaussian 1, tiny δ": (
        [(GaussianPair(1.0), 10)],
        1e-30,
        "40.83029797732459890062",
        "40.83029797732459890063",
    ),
    # Bromwich
    "10 × laplace 0.5, 10 × gaussian 2": (
        [(LaplacePair(0.5), 10), (GaussianPair(0.25), 10)],
        1e-6,
        "11.409400420823102160657",
        "11.409400420823102160885",
    ),
}


@pytest.mark.sweep(5)
@pytest.mark.parametrize("name", REFERENCES)
def test_published_values_are_enclosed(name):
    sides, delta, below, above = REFERENCES[name]

    low, high = PldAccountant(sides).epsilon(delta)

    assert low <= mp.mpf(above)
    assert mp.mpf(below) <= high
    assert high - low <= 1e-8 * high


@pytest.mark.sweep(3)
@pytest.mark.parametrize(
    ("sides", "epsilon", "below", "above"),
    [
        # Arb
        ([(GaussianPair(1.0), 1)], 0.0, "0.38292492254802620727158", "0.38292492254802620727924"),
        ([(GaussianPair(1.0), 10)], 0.0, "0.88615370199334194971254", "0.88615370199334194973026"),
        ([(LaplacePair(1.0), 1)], 0.0, "0.39346934028736657639227", "0.39346934028736657640014"),
        ([(LaplacePair(1.0), 10)], 0.0, "0.83379997904098002208282", "0.83379997904098002209949"),
        ([(LaplacePair(1.0), 100)], 0.0, "0.99998647566137549944217", "0.99998647566137549946217"),
    ],
)
def test_published_deltas_are_enclosed(sides, epsilon, below, above):
    low, high = PldAccountant(sides).delta(epsilon)

    assert low <= mp.mpf(above)
    assert mp.mpf(below) <= high
    assert high - low <= 1e-8 * high


@pytest.mark.sweep(3)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("rate", "sigma", "steps", "delta", "truth"),
    [
        # Bromwich
        (0.01, 1.1, 1000, 1e-5, "1.515361916664484"),
        (0.01, 1.1, 1000, 1e-10, "2.625675715225896"),
        (0.2, 1.0, 500, 1e-5, "38.170247206487791"),
        (0.5, 0.5, 1000, 1e-5, "877.65684585608578"),
    ],
)
def test_sampled_gaussian_steps_agree_with_the_integral(rate, sigma, steps, delta, truth):
    close = 1e-6
    low, high = PldAccountant(
        [(SubsampledGaussianPair(rate, sigma, added=False), steps)], accuracy=close
    ).epsilon(delta)

    assert low <= mp.mpf(truth) * (1 + 1e-15)
    assert mp.mpf(truth) * (1 - 1e-15) <= high
    assert high - low <= close * high


@pytest.mark.slow
def test_one_sampled_gaussian_step_has_the_exact_delta():
    # Bromwich; both directions, of which removing is the worse.
    for epsilon, truth in ((0.0, "0.1403209859888834446"), (1.0, "0.00076690908951407689")):
        removed, added = (
            PldAccountant([(SubsampledGaussianPair(0.01, 1.1, added), 1000)], accuracy=1e-5).delta(epsilon)
            for added in (False, True)
        )
        assert removed[0] <= mp.mpf(truth) <= removed[1]
        assert added[0] <= mp.mpf(truth) * (1 + 1e-15)


# ---- enumeration


def product(laws):
    """All outcomes of the composition with their two probabilities, exactly."""
    total = [(Fraction(1), Fraction(1))]
    for p, q in laws:
        total = [(a * x, b * y) for a, b in total for x, y in zip(p, q, strict=True) if x or y]
    return total


def real(x):
    return mp.mpf(x.numerator) / x.denominator


def true_delta(outcomes, epsilon):
    factor = mp.exp(mp.mpf(epsilon))
    return mp.fsum(max(mp.mpf(0), real(p) - factor * real(q)) for p, q in outcomes)


@st.composite
def small_laws(draw):
    size = draw(st.integers(2, 4))
    weights = st.lists(
        st.sampled_from([0, 1, 2, 3, 5, 7, 11, 100, 1000]), min_size=size, max_size=size
    ).filter(any)
    return tuple(tuple(Fraction(w, sum(ws)) for w in ws) for ws in (draw(weights), draw(weights)))


TINY = mp.mpf("1e-15")


@pytest.mark.slow
@settings(max_examples=60)
@given(
    st.lists(st.tuples(small_laws(), st.integers(1, 2)), min_size=1, max_size=2),
    st.floats(0, 6),
    st.sampled_from([0.3, 0.05, 1e-3, 1e-8]),
)
@example([(((Fraction(0), Fraction(1)), (Fraction(50, 51), Fraction(1, 51))), 1)], 0.0, 0.3)
@example([(((Fraction(1), Fraction(0)), (Fraction(0), Fraction(1))), 1)], 1.0, 0.3)
def test_small_pairs_lie_between_the_bounds(laws, epsilon, delta):
    outcomes = product([law for law, times in laws for _ in range(times)])
    composed = PldAccountant([(finite_pair(*law), times) for law, times in laws], accuracy=1e-5)

    low, high = composed.delta(epsilon)
    true = true_delta(outcomes, epsilon)
    assert low <= true * (1 + TINY)
    assert true * (1 - TINY) <= high
    assert high - low <= 1e-4 * high + 1e-12

    low, high = composed.epsilon(delta)
    if math.isfinite(high):
        assert true_delta(outcomes, high) <= delta * (1 + TINY)
    else:
        assert true_delta(outcomes, 1000) >= delta * (1 - TINY)
    if 0 < low < math.inf:
        assert true_delta(outcomes, low) >= delta * (1 - TINY)


def multinomial(law, times):
    """The composition of one law with itself, by how often each outcome came."""
    p, q = law
    for counts in itertools.product(range(times + 1), repeat=len(p) - 1):
        last = times - sum(counts)
        if last >= 0:
            ways = math.factorial(times)
            ours = theirs = Fraction(1)
            for count, x, y in zip((*counts, last), p, q, strict=True):
                ways //= math.factorial(count)
                ours, theirs = ours * x**count, theirs * y**count
            yield ways * ours, ways * theirs


@pytest.mark.slow
@pytest.mark.parametrize("times", [3, 40])
def test_atoms_off_the_grid_are_enclosed(times):
    law = (
        (Fraction(7, 17), Fraction(6, 17), Fraction(4, 17)),
        (Fraction(3, 13), Fraction(5, 13), Fraction(5, 13)),
    )
    outcomes = list(multinomial(law, times))
    composed = PldAccountant([(finite_pair(*law), times)])

    for epsilon in (0.0, 0.1 * times, 0.3 * times, math.log(7 * 13 / (3 * 17)) * times - 1e-9):
        low, high = composed.delta(epsilon)
        true = true_delta(outcomes, epsilon)
        assert low <= true <= high
        # So close to the largest loss, doubles tell no more.
        assert high - low <= (1e-6 if epsilon < 0.4 * times else 1e-2) * true
    for delta in (0.2, 1e-4, 1e-12):
        low, high = composed.epsilon(delta)
        assert true_delta(outcomes, high) <= delta <= true_delta(outcomes, low) or low == 0
        assert high - low <= 1e-6 * high


def test_discrete_loss_among_continuous_ones_is_enclosed_off_the_grid():
    """Laplace and three atoms that no step has in common, against quadrature."""
    law = (
        (Fraction(7, 17), Fraction(6, 17), Fraction(4, 17)),
        (Fraction(3, 13), Fraction(5, 13), Fraction(5, 13)),
    )
    epsilon = 0.37
    low, high = PldAccountant([(LaplacePair(1.0), 1), (finite_pair(*law), 2)]).delta(epsilon)

    def laplace(x):
        return (
            1 - mp.exp((x - 1) / 2) if abs(x) < 1 else max(mp.mpf(0), 1 - mp.exp(x)) if x <= -1 else mp.mpf(0)
        )

    true = mp.fsum(real(p) * laplace(epsilon - mp.log(real(p / q))) for p, q in product([law, law]))
    assert low <= true <= high
    assert high - low <= 1e-7 * true


def pure_delta(each, times, epsilon):
    """Σ over how many losses are −ε₀, from the largest sum that counts down to nothing."""
    each, epsilon = mp.mpf(each), mp.mpf(epsilon)
    often = 1 / (1 + mp.exp(-each))
    k = int(mp.floor((times - epsilon / each) / 2))
    total = mp.mpf(0)
    if k < 0:
        return total
    choose = mp.loggamma(times + 1) - mp.loggamma(k + 1) - mp.loggamma(times - k + 1)
    chance = mp.exp(choose + (times - k) * mp.log(often) - k * (mp.log1p(mp.exp(-each)) + each))
    while k >= 0:
        term = -chance * mp.expm1(epsilon - (times - 2 * k) * each)
        total += term
        if term < total * mp.mpf("1e-25") and chance < total * mp.mpf("1e-25"):
            break
        chance *= mp.mpf(k) / (times - k + 1) * mp.exp(each)
        k -= 1
    return total


@pytest.mark.slow
@pytest.mark.sweep(11)
@pytest.mark.parametrize("each", [1e-6, 0.1, 1.0, 50.0])
@pytest.mark.parametrize("times", [1, 7, 1000, 1_000_000])
@pytest.mark.parametrize("delta", [0.5, 1e-6, 1e-30])
def test_pure_losses_are_enclosed_at_every_scale(each, times, delta):
    low, high = PldAccountant([(epsilon_delta_pair(each), times)]).epsilon(delta)

    assert pure_delta(each, times, high) <= delta
    assert low == 0 or pure_delta(each, times, low) >= delta
    assert high - low <= 1e-8 * high or pure_delta(each, times, high * (1 - 2**-40)) <= delta * (1 + 1e-9)


def test_different_pure_losses_have_a_common_step():
    """0.1, 0.25 and 0.3 are all even or odd multiples of 0.05: enumerated by how often each is positive."""
    sides = [(epsilon_delta_pair(0.1), 3), (epsilon_delta_pair(0.25), 2), (epsilon_delta_pair(0.3), 4)]
    epsilon = 1.07
    true = mp.mpf(0)
    for signs in itertools.product(*([(1, -1)] * 9)):
        losses = [
            s * x
            for s, x in zip(signs, ["0.1"] * 3 + ["0.25"] * 2 + ["0.3"] * 4, strict=True)
            for x in [mp.mpf(x)]
        ]
        chance = mp.fprod(1 / (1 + mp.exp(-loss)) for loss in losses)
        true += chance * max(mp.mpf(0), -mp.expm1(epsilon - mp.fsum(losses)))

    low, high = PldAccountant(sides).delta(epsilon)
    assert low <= true <= high
    assert high - low <= 1e-11 * true


# ---- what must hold of every curve

SIDES = [
    [(LaplacePair(0.7), 5)],
    [(randomized_response_pair(Fraction(3, 5), 4), 6), (epsilon_delta_pair(0.2), 3)],
    [(SubsampledPair(LaplacePair(1.5), 0.1, True), 30)],
    [(SubsampledPair(epsilon_delta_pair(2), 0.2, False), 9), (GaussianPair(0.01), 2)],
    [(discrete_laplace_pair(3, 2), 4), (discrete_gaussian_pair(9, 2), 2)],
]


@pytest.mark.sweep(3)
@pytest.mark.parametrize("sides", SIDES)
def test_delta_falls_and_is_convex(sides):
    """In e^ε; as far as the bounds can tell."""
    composed = PldAccountant(sides, accuracy=1e-6)
    grid = [0.05 * k for k in range(9)]
    bounds = [composed.delta(x) for x in grid]
    for (low, _), (_, high) in itertools.pairwise(reversed(bounds)):
        assert low <= high
    for k in range(1, len(grid) - 1):
        left, middle, right = (math.exp(x) for x in grid[k - 1 : k + 2])
        chord = ((right - middle) * bounds[k - 1][1] + (middle - left) * bounds[k + 1][1]) / (right - left)
        assert bounds[k][0] <= chord * (1 + 1e-12)


@pytest.mark.sweep(3)
@pytest.mark.parametrize("sides", SIDES)
def test_epsilon_and_delta_agree(sides):
    composed = PldAccountant(sides, accuracy=1e-6)
    for delta in (1e-3, 1e-9):
        low, high = composed.epsilon(delta)
        assert 0 < low <= high <= low * (1 + 1e-5)
        assert composed.delta(high)[0] <= delta <= composed.delta(low)[1]


def test_order_and_repetition_do_not_matter():
    one, two = (LaplacePair(0.5), 3), (epsilon_delta_pair(0.25), 4)
    same = [
        PldAccountant([one, two]).epsilon(1e-4),
        PldAccountant([two, one]).epsilon(1e-4),
        PldAccountant([(one[0], 1), two, (one[0], 2), (GaussianPair(1.0), 0)]).epsilon(1e-4),
    ]
    assert same[0] == pytest.approx(same[1], rel=1e-12)
    assert same[0] == pytest.approx(same[2], rel=1e-12)


def test_gaussians_are_one_gaussian():
    low, high = PldAccountant([(GaussianPair(0.25), 2), (GaussianPair(0.5), 1)]).delta(1.0)
    assert low <= gaussian_delta(Fraction(1), Fraction(1)) <= high * (1 + 1e-15)


def test_composing_another_loss_costs_more():
    epsilons = [PldAccountant([(LaplacePair(0.3), times)]).epsilon(1e-5) for times in (1, 2, 5, 20)]
    assert all(before[1] < after[0] for before, after in itertools.pairwise(epsilons))


# ---- infinite losses, and ends


def test_no_losses_cost_zero():
    assert PldAccountant([]).delta(0.0) == (0, 0)
    assert PldAccountant([(epsilon_delta_pair(1), 0)]).epsilon(1e-9) == (0, 0)
    assert PldAccountant([]).epsilon(0.0) == (0, 0)


def test_infinite_losses_are_part_of_delta():
    infinite = [(epsilon_delta_pair(1, Fraction(1, 100)), 2)]
    certain = 1 - 0.99**2

    low, high = PldAccountant(infinite).delta(50.0)
    assert low <= certain <= high
    assert high - low < 1e-13
    assert PldAccountant(infinite).epsilon(0.01) == (math.inf, math.inf)
    assert PldAccountant(infinite).epsilon(low) == (0.0, math.inf)
    low, high = PldAccountant(infinite).epsilon(0.02)
    assert 1.9 < low <= high < 2.1


def test_infinity_mass_of_one_has_delta_one():
    infinite = [
        (finite_pair([Fraction(1), Fraction(0)], [Fraction(0), Fraction(1)]), 1),
        (LaplacePair(1.0), 2),
    ]

    assert PldAccountant(infinite).delta(0.3) == (1, 1)
    assert PldAccountant(infinite).epsilon(0.9) == (math.inf, math.inf)
    assert PldAccountant(infinite).epsilon(1.0) == (0, 0)


def test_without_delta_the_largest_loss_counts():
    low, high = PldAccountant([(epsilon_delta_pair(0.25), 8)]).epsilon(0.0)
    assert low <= 2 <= high < 2.00000001
    assert PldAccountant([(GaussianPair(1.0), 1)]).epsilon(0.0) == (math.inf, math.inf)
    assert PldAccountant([(epsilon_delta_pair(0.25), 8)]).delta(2.1) == (0, 0)


def test_epsilon_is_zero_where_delta_is_met_at_zero():
    assert PldAccountant([(LaplacePair(0.1), 1)]).epsilon(0.5) == (0, 0)
    assert PldAccountant([(epsilon_delta_pair(0.1), 3)]).epsilon(0.2) == (0, 0)


def test_single_loss_needs_no_common_step():
    pair = finite_pair([Fraction(1), Fraction(0)], [Fraction(1, 3), Fraction(2, 3)])
    low, high = PldAccountant([(pair, 3)]).delta(1.0)
    assert low <= 1 - math.e / 27 <= high
    assert high - low < 1e-12


# ---- grids


def grid_delta(grid, epsilon):
    losses = grid.origin + grid.step * (grid.start + np.arange(grid.mass.size))
    return float((grid.mass * -np.expm1(np.minimum(0.0, epsilon - losses))).sum())


LAWS = {
    "laplace": (LaplacePair(1.0), lambda x: 1 - math.exp((x - 1) / 2), (-1.0, 1.0)),
    "gaussian": (GaussianPair(1.0), lambda x: float(gaussian_delta(Fraction(x), Fraction(1))), (-9.0, 10.0)),
    "atoms": (
        finite_pair([Fraction(7, 10), Fraction(3, 10)], [Fraction(1, 3), Fraction(2, 3)]),
        lambda x: max(0.0, 0.7 - math.exp(x) / 3) + max(0.0, 0.3 - 2 * math.exp(x) / 3),
        (-0.8, 0.75),
    ),
}


@pytest.mark.parametrize("name", LAWS)
@pytest.mark.parametrize("step", [0.5, 0.03, 0.001])
@pytest.mark.parametrize("origin", [0.0, 0.01])
def test_pessimistic_dominates_and_optimistic_is_dominated(name, step, origin):
    cells, truth, within = LAWS[name]
    above = DiscretizedPld.pessimistic(cells, step, origin=origin, within=within)
    below = DiscretizedPld.optimistic(cells, step, origin=origin, within=within)

    for epsilon in (0.0, 0.2345, 0.5, 0.7):
        upper = above.infinity_mass_upper + grid_delta(above, epsilon - above.loss_error)
        lower = below.infinity_mass_lower + grid_delta(below, epsilon + below.loss_error)
        assert lower <= truth(epsilon) * (1 + 1e-13) <= upper * (1 + 1e-12)
        assert upper - lower <= 2 * step
        if name == "gaussian" or (name == "laplace" and step != 0.03 and not origin):
            assert upper - lower <= step * step


def test_splitting_keeps_both_masses():
    for cells, _, within in LAWS.values():
        grid = DiscretizedPld.pessimistic(cells, 0.01, within=within)
        losses = grid.step * (grid.start + np.arange(grid.mass.size))
        assert grid.mass.sum() == pytest.approx(1, abs=1e-12)
        assert (grid.mass * np.exp(-losses)).sum() == pytest.approx(1, abs=1e-12)


def test_losses_outside_the_range_are_rounded_safely():
    above = DiscretizedPld.pessimistic(GaussianPair(1.0), 0.1, within=(-1.0, 1.0))
    below = DiscretizedPld.optimistic(GaussianPair(1.0), 0.1, within=(-1.0, 1.0))
    # One point to spare at both ends.
    assert above.infinity_mass_upper == pytest.approx(1.01 * math.erfc(0.6 / math.sqrt(2)) / 2)
    assert above.mass_rounded_up == pytest.approx(1.01 * math.erfc(1.6 / math.sqrt(2)) / 2)
    assert below.infinity_mass_lower == 0
    assert below.mass.sum() == pytest.approx(1 - math.erfc(1.65 / math.sqrt(2)) / 2)


def test_a_grid_of_more_points_than_fit_is_refused():
    with pytest.raises(Uncertified):
        DiscretizedPld.pessimistic(LaplacePair(1.0), 1e-9, within=(-1.0, 1.0))


def test_bin_masses_are_computed_in_batches(monkeypatch):
    grids = []
    for batch in (7, 1 << 16):
        monkeypatch.setattr(pld, "BATCH", batch)
        laws = (LaplacePair(1.0), epsilon_delta_pair(0.5), SubsampledPair(LaplacePair(2.0), 0.25, True))
        grids += [DiscretizedPld.pessimistic(cells, 0.05, within=(-1.0, 1.0)) for cells in laws]
    for one, other in zip(grids[:3], grids[3:], strict=True):
        assert one.mass == pytest.approx(other.mass, abs=1e-16)
        assert one.mass.sum() + one.infinity_mass_upper == pytest.approx(1, abs=1e-2)


class Rough:
    """A law with a cell of a loss that no point can take, and one with none at all."""

    support = (-1.0, 1.0)
    coarse_grid = np.linspace(-1.0, 1.0, 5)
    atoms = np.zeros(0)
    infinity_mass = 0.0

    def __init__(self, loss, discrete=True):
        self.loss = loss
        self.is_discrete = discrete

    def bin_masses(self, edges):
        p = np.zeros(edges.size - 1)
        p[1:-1] = 1 / max(1, p.size - 2)
        loss = np.where(np.isfinite(edges[:-1]), edges[:-1], 0.0) + self.loss
        return BinMasses(p, p, loss, np.full(p.size, 1e-15), np.full(p.size, 1e-15))


def test_optimistic_merging_lowers_losses_as_little_as_possible():
    step = 0.25
    near = DiscretizedPld.optimistic(Rough(step / 2 - 1e-6), step, within=(-1.0, 1.0))
    assert near.loss_error == pytest.approx(1e-6, rel=1e-6)
    # All by the same: then all points are moved.
    far = DiscretizedPld.optimistic(Rough(-0.2 * step), step, within=(-1.0, 1.0))
    assert far.loss_error == pytest.approx(0.7 * step)
    assert far.mass.sum() == pytest.approx(1)
    # No edges make a loss as low as this; it is dropped, not moved up.
    assert DiscretizedPld.optimistic(Rough(-1.6 * step), step, within=(-1.0, 1.0)).mass.sum() == 0


def test_distribution_without_mass_in_range_is_refused():
    grid = DiscretizedPld.optimistic(LaplacePair(1.0), 0.25, within=(5.0, 6.0))
    assert grid.mass.sum() == 0
    with pytest.raises(Uncertified):
        ComposedPld([(grid, 1)]).tilted(1.0)


# ---- the transform


def test_fourier_transform_error_is_within_its_bound():
    rng = np.random.default_rng(5)
    for length in (16, 128):
        x = rng.random(length) ** 8
        x /= x.sum()
        result = np.fft.rfft(x)
        for k in range(length // 2 + 1):
            true = mp.fsum(
                mp.mpf(v) * mp.expjpi(mp.mpf(-2 * j * k) / length) for j, v in enumerate(x.tolist())
            )
            assert abs(mp.mpc(result[k]) - true) <= pld.STAGE_ERROR * math.log2(length)


@settings(max_examples=30)
@given(
    st.lists(st.integers(0, 50), min_size=2, max_size=6).filter(lambda w: w[0] and w[-1]), st.integers(1, 6)
)
def test_convolution_errors_are_within_their_bounds(weights, times):
    mass = np.array([Fraction(w, sum(weights)) for w in weights])
    grid = DiscretizedPld(0.1, 0.0, -2, mass.astype(float), 2.0**-53 * mass.astype(float), 0.0, 0.0, 0.0)
    tilt = 3.0
    curve = ComposedPld([(grid, times)]).tilted(tilt)

    true = np.array([Fraction(1)])
    for _ in range(times):
        true = np.convolve(true, mass)
    for k, chance in enumerate(true.tolist()):
        peak = mp.mpf(0.1) * tilt * curve.peak
        first = round(curve.first_loss / 0.1)
        tilted = real(chance) * mp.exp(mp.mpf(0.1) * tilt * (k - 2 * times - first) - peak - curve.moment)
        place = k - 2 * times - first
        assert abs(curve.probabilities[place] - tilted) <= curve.error + (curve.relative + 1e-14) * tilted


def test_tilted_sum_matches_its_definition():
    grid = DiscretizedPld.pessimistic(LaplacePair(1.0), 2.0**-10, within=(-1.0, 1.0))
    curve = ComposedPld([(grid, 4)]).tilted(2.0)
    losses = curve.first_loss + curve.step * np.arange(curve.probabilities.size)
    untilted = curve.probabilities * np.exp(
        -2.0 * (losses - curve.first_loss - curve.step * curve.peak) + curve.moment
    )

    for epsilon in (-0.3, 0.0, 0.77, 1.5, 3.2, 3.9995, 4.0):
        plain = (untilted * -np.expm1(np.minimum(0.0, epsilon - losses))).sum()
        result = curve.evaluate(epsilon)
        assert result.value == pytest.approx(plain, rel=1e-10, abs=1e-16)
        assert result.fall == pytest.approx(untilted[losses > epsilon].sum() - plain, rel=1e-9, abs=1e-13)


def test_a_tilted_pld_is_vacuous_far_from_its_tilt():
    curve = ComposedPld(
        [(DiscretizedPld.pessimistic(GaussianPair(1.0), 0.01, within=(-9.0, 30.0)), 100)]
    ).tilted(20.0)

    assert curve.delta_upper(0.0) == 1
    assert curve.delta_lower(0.0) == 0
    assert curve.epsilon_upper(0.9, 0.0) > 0


def test_a_window_that_does_not_fit_is_refused(monkeypatch):
    monkeypatch.setattr(pld, "MAX_POINTS", 1 << 10)
    with pytest.raises(Uncertified):
        ComposedPld([(DiscretizedPld.pessimistic(GaussianPair(1.0), 0.01, within=(-9.0, 10.0)), 100)]).tilted(
            1.0
        )


def test_powers_use_squaring():
    base = np.array([0.5 + 0.5j, -1j, 0.9])
    for count in (1, 2, 7, 12):
        assert pld.power_by_squaring(base, count) == pytest.approx(base**count)


# ---- steps that atoms have in common


@pytest.mark.parametrize(
    ("laws", "unit"),
    [
        ([[0.1, -0.1], [0.25, -0.25]], 0.1),
        ([[1.0, -1.0]], 2.0),
        ([[0.3, 0.1, 0.0]], 0.1),
        ([[0.0, 1.0], [0.0, math.sqrt(2)]], 0.0),
        ([[3.0]], 0.0),
        ([], 0.0),
    ],
)
def test_common_step_divides_all_distances(laws, unit):
    assert common_step([np.array(law) for law in laws]) == pytest.approx(unit)


def test_too_many_distances_have_no_step():
    assert common_step([np.cumsum(np.sqrt(np.arange(1.0, 6000.0)))]) == 0


def test_a_common_step_that_is_too_fine_is_not_used():
    """Two losses a millionth of a step apart: on one grid there would be too many points."""
    sides = [(epsilon_delta_pair(1.0), 2), (epsilon_delta_pair(1.0 + 2.0**-20), 50)]
    low, high = PldAccountant(sides, accuracy=1e-5).epsilon(1e-6)
    outer = PldAccountant([(epsilon_delta_pair(1.0 + 2.0**-20), 52)]).epsilon(1e-6)[1]
    inner = PldAccountant([(epsilon_delta_pair(1.0), 52)]).epsilon(1e-6)[0]
    assert inner <= high
    assert low <= outer


# ---- no answer, and no hang


def test_impossible_requests_are_uncertified(monkeypatch):
    monkeypatch.setattr(pld, "MAX_POINTS", 1 << 4)
    monkeypatch.setattr(pld_accountant, "FIRST_POINTS", 1 << 4)
    with pytest.raises(Uncertified):
        PldAccountant([(LaplacePair(1.0), 10**6)]).delta(1.0)
    # What is still known is said.
    low, high = PldAccountant([(LaplacePair(1.0), 10**6)]).epsilon(1e-5)
    assert low <= 371334.5 <= high <= 10**6 * (1 + 1e-12)


def test_contradicting_bounds_are_uncertified(monkeypatch):
    monkeypatch.setattr(TiltedPld, "delta_lower", lambda self, epsilon: 0.9)
    with pytest.raises(Uncertified):
        PldAccountant([(LaplacePair(1.0), 2)]).delta(1.0)


EXTREME = [
    [(LaplacePair(1e-6), 1)],
    [(LaplacePair(50.0), 1)],
    [(LaplacePair(50.0), 100)],
    [(LaplacePair(1e-6), 10**6)],
    pytest.param([(LaplacePair(1.0), 10**6)], marks=pytest.mark.long),
    [(SubsampledPair(LaplacePair(2.0), 1e-4, False), 10**4)],
    [(SubsampledPair(LaplacePair(0.1), 0.01, True), 1)],
    [(SubsampledPair(epsilon_delta_pair(20), 1e-3, True), 10**6)],
    [(SubsampledGaussianPair(1e-8, 0.1, False), 10**6)],
    [(SubsampledGaussianPair(1e-8, 0.1, True), 10**6)],
    [(SubsampledGaussianPair(0.7, 0.05, False), 3)],
    [(SubsampledGaussianPair(0.01, 1e3, False), 10)],
    [(GaussianPair(1e6), 1)],
    [(GaussianPair(1e-12), 1)],
    [(discrete_gaussian_pair(400, 7), 100)],
    [(discrete_laplace_pair(Fraction(1, 50), 3), 4)],
    [(LaplacePair(1e-3), 5), (LaplacePair(30.0), 2), (epsilon_delta_pair(1e-5), 3)],
    [(DiscretePair((1e6, -1e6), (1.0, 0.0), (0.0, 1.0)), 2)],
]


@pytest.mark.sweep(7)
@pytest.mark.parametrize("sides", EXTREME, ids=str)
@pytest.mark.parametrize(
    "delta", [pytest.param(0.5, marks=pytest.mark.long), 1e-6, pytest.param(1e-30, marks=pytest.mark.long)]
)
def test_no_input_hangs_or_is_not_a_number(sides, delta):
    composed = PldAccountant(sides, accuracy=1e-3)
    low, high = composed.epsilon(delta)
    assert 0 <= low <= high < math.inf
    for epsilon in {0.0, 0.99 * low, high}:
        below, above = composed.delta(epsilon)
        assert 0 <= below <= above <= 1
    # What was found for δ and for ε fits together.
    assert composed.delta(high)[0] <= delta
    assert low == 0 or composed.delta(low)[1] >= delta * (1 - 1e-12)


# ---- close to where doubles end: each of these once came out below the truth


@pytest.mark.sweep(3)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("missing", "mu_squared", "epsilon", "truth"),
    [
        (2.0**-33, 93.71484211298117, 22.87385695828612, 1.009e-10),
        (2.0**-30, 106.8532744789202, 20.794415416797463, 5.79e-13),
        (2.0**-26, 162.89688248051604, 18.021826693368023, 1.18991e-9),
        (2.0**-23, 49.56181900130267, 15.942385152243844, 1.916e-11),
    ],
)
def test_sampling_rates_close_to_one_are_enclosed(missing, mu_squared, epsilon, truth):
    _, above = PldAccountant([(SubsampledPair(GaussianPair(mu_squared), 1 - missing, True), 1)]).delta(
        epsilon
    )
    assert above >= truth * (1 - 1e-3)


@pytest.mark.sweep(5)
@pytest.mark.slow
@pytest.mark.parametrize("base", [LaplacePair(31.0), epsilon_delta_pair(31)])
@pytest.mark.parametrize("rate", [1e-16, 1e-20, 1e-30])
def test_tiny_sampling_rates_are_enclosed(base, rate):
    """The largest loss is ln(1 + rate·(e^31 − 1)), and δ(0) is rate times the base's."""
    sampled = PldAccountant([(SubsampledPair(base, rate, False), 1)])
    assert sampled.epsilon(0.0)[1] >= math.log1p(rate * math.expm1(31)) * (1 - 1e-15)
    low, high = sampled.delta(0.0)
    truth = rate * (-math.expm1(-15.5) if isinstance(base, LaplacePair) else math.tanh(15.5))
    assert low <= truth * (1 + 1e-12)
    assert high >= truth * (1 - 1e-12)


def test_unbounded_distribution_has_no_largest_loss():
    """Of the discrete Gaussian all but 1e-300 is kept, and what was cut off may have any loss."""
    cut = PldAccountant([(discrete_gaussian_pair(4, 1), 1)])
    assert cut.epsilon(0.0)[1] == math.inf
    assert 0 < cut.delta(100.0)[1] < 1e-250


def test_loss_below_doubles_is_not_rounded_to_zero():
    with pytest.raises(Uncertified):
        epsilon_delta_pair(Fraction(1, 10**330))
    assert epsilon_delta_pair(0).losses == (0.0, 0.0)


def test_losses_no_grid_can_resolve_are_uncertified(monkeypatch):
    composed = PldAccountant([(epsilon_delta_pair(1), 3)])
    monkeypatch.setattr(PldAccountant, "refine", lambda *_, **__: (0.0, math.inf))
    with pytest.raises(Uncertified):
        composed.epsilon(1e-3)
    monkeypatch.setattr(PldAccountant, "refine", lambda *_, **__: (0.0, 1.0))
    with pytest.raises(Uncertified):
        composed.delta(0.5)
