"""Trees of counts: exact without noise, consistent with it, and intervals that cover as often as they say."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hubbub.errors import InvalidInput, Unsupported
from hubbub.mechanisms import Gaussian, Laplace
from hubbub.mechanisms.confidence_intervals import width_from_norms
from hubbub.sensitivity import MAX_MAGNITUDE, Sensitivity
from hubbub.sql.quantile_tree import Tree
from refusing import refused

SILENT = Laplace(Fraction(1, 1000), Sensitivity(1))
"""Noise that is zero but for e^-1000."""


def count(tree, values):
    """The exact counts of these values' bins."""
    bins = np.clip(np.searchsorted(tree.edges, values, side="right") - 1, 0, tree.leaves - 1)
    return tree.nodes(*np.unique(bins, return_counts=True))


def true_quantile(values, fraction):
    """The least t with F(t) ≥ fraction·N."""
    return np.sort(values)[math.ceil(Fraction(fraction) * len(values)) - 1]


def least_squares(tree):
    """The matrix that takes noisy counts to bins' counts, by the textbook: (AᵀA)⁻¹Aᵀ."""
    rows = [
        np.repeat(np.eye(tree.branching**level), tree.branching ** (tree.depth - level), axis=1)
        for level in range(1, tree.depth + 1)
    ]
    return np.linalg.pinv(np.concatenate(rows))


TREES = [Tree(0, 1, branching=b, depth=d) for b, d in ((2, 1), (2, 4), (3, 3), (5, 2), (16, 1))]
SHAPES = {
    "even": lambda rng, n: rng.random(n),
    "one bin": lambda rng, n: np.full(n, 0.3),
    "two spikes": lambda rng, n: np.where(np.arange(n) < n // 2, 0.1, 0.9),
    "the ends": lambda rng, n: np.where(np.arange(n) < n // 3, 0.0, 1.0),
    "skew": lambda rng, n: rng.random(n) ** 6,
}


def test_every_group_is_the_sum_of_its_bins():
    tree = Tree(0, 1, branching=3, depth=2)
    assert tree.nodes([8, 0], [5, 2]).tolist() == [2, 0, 5, 2, 0, 0, 0, 0, 0, 0, 0, 5]
    assert tree.nodes([], []).tolist() == [0] * 12
    assert tree.edges.tolist() == pytest.approx([i / 9 for i in range(10)])
    assert tree.edges[0] == 0
    assert tree.edges[-1] == 1


@pytest.mark.slow
@settings(max_examples=60)
@given(st.data())
def test_a_unit_moves_the_counts_within_the_sensitivity(data):
    tree = data.draw(st.sampled_from(TREES))
    bins = range(tree.leaves)
    one, other = (
        dict.fromkeys(bins, 0) | data.draw(st.dictionaries(st.sampled_from(bins), st.integers(0, 9)))
        for _ in range(2)
    )
    weight = sum(abs(one[i] - other[i]) for i in bins)
    moved = tree.nodes(list(one), list(one.values())) - tree.nodes(list(other), list(other.values()))
    bound = tree.sensitivity(weight)
    assert np.abs(moved).sum() <= bound.l1 == tree.depth * weight
    assert (moved**2).sum() <= bound.l2_squared <= tree.depth * weight**2
    assert np.abs(moved).max() <= bound.linf


def test_no_count_overflows():
    tree = Tree(0, 1, branching=4, depth=2)
    nodes = tree.nodes(np.arange(16), np.full(16, 2**63 - 1))
    assert set(nodes.tolist()) == {MAX_MAGNITUDE}
    assert tree.nodes([3], np.array([-(2**63)])).min() == -MAX_MAGNITUDE
    most = MAX_MAGNITUDE // 4
    assert tree.nodes(np.arange(4), np.array([most, most, most, most - 1]))[0] == MAX_MAGNITUDE - 1


@pytest.mark.parametrize("tree", TREES, ids=str)
def test_the_bins_fit_all_counts_best(tree):
    rng = np.random.default_rng(1)
    noisy = rng.normal(size=sum(tree.branching**level for level in range(1, tree.depth + 1)))
    best = least_squares(tree) @ noisy
    assert np.diff(tree._ranks(noisy[np.newaxis])[0][0]) == pytest.approx(best, abs=1e-12)


@pytest.mark.parametrize("tree", TREES, ids=str)
@pytest.mark.parametrize("fraction", ["0.5", "0.1", "0.99"])
def test_the_norms_are_those_of_the_weights(tree, fraction):
    ranks = np.tri(tree.leaves + 1, tree.leaves, -1) @ least_squares(tree)
    weights = ranks - float(fraction) * ranks[-1]
    norms = tree._norms(Fraction(fraction))
    assert norms.l1 == pytest.approx(np.abs(weights).sum(axis=1))
    assert norms.l2 == pytest.approx(np.linalg.norm(weights, axis=1))
    assert norms.linf == pytest.approx(np.abs(weights).max(axis=1))
    total = [norm[0] for norm in tree._total]
    assert total == pytest.approx([np.linalg.norm(ranks[-1], kind) for kind in (1, 2, np.inf)])


@pytest.mark.sweep(7)
@pytest.mark.slow
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("tree", [*TREES, Tree(0, 1)], ids=str)
def test_without_noise_a_quantile_is_exact_up_to_its_bin(tree, shape):
    values = SHAPES[shape](np.random.default_rng(2), 3055)
    fractions = ["0.01", "0.1", "0.25", "0.5", "0.75", "0.99"]
    answers = tree.quantiles(count(tree, values), SILENT, map(Fraction, fractions))
    for fraction, quantile in zip(fractions, answers, strict=True):
        exact = true_quantile(values, fraction)
        assert quantile.low <= exact <= quantile.high
        assert quantile.low <= quantile.value <= quantile.high
        assert abs(quantile.value - exact) <= 1.0001 / tree.leaves
        assert quantile.high - quantile.low == pytest.approx(1 / tree.leaves)


def test_a_quantile_at_the_end_of_a_bin_is_not_in_the_next():
    tree = Tree(0, 10, branching=10, depth=1)
    [quantile] = tree.quantiles(tree.nodes([1, 7], [3, 7]), SILENT, [0.3])
    assert 1.9 < quantile.value <= 2
    assert quantile.low == 1


@pytest.mark.sweep(5)
@pytest.mark.slow
@pytest.mark.parametrize("kind", ["laplace", "gaussian"])
@pytest.mark.parametrize("shape", [*SHAPES, "empty"])
def test_interval_covers_with_its_confidence(shape, kind):
    """Of 2000 releases with 2 fractions each; a false alarm comes in less than one of 10^9."""
    tree = Tree(0, 1, branching=4, depth=3)
    rng = np.random.default_rng(3)
    values = rng.random(0) if shape == "empty" else SHAPES[shape](rng, 400)
    exact = count(tree, values)
    mechanism = (
        Laplace(Fraction(3), Sensitivity(3)) if kind == "laplace" else Gaussian(Fraction(5), Sensitivity(3))
    )
    noise = mechanism._draw_noise(2000 * exact.size).reshape(2000, -1)
    covered = {"0.2": 0, "0.5": 0}
    for row in exact + noise:
        answers = tree.quantiles(row, mechanism, map(Fraction, covered), 0.9)
        for fraction, quantile in zip(covered, answers, strict=True):
            assert 0 <= quantile.low <= quantile.value <= quantile.high <= 1
            inside = (
                (quantile.low, quantile.high) == (0, 1)
                if shape == "empty"
                else quantile.low <= true_quantile(values, fraction) <= quantile.high
            )
            covered[fraction] += inside
    # With chance 0.9 each, fewer than 1710 of 2000 come up with a chance below 1e-9.
    tail = sum(math.comb(2000, k) * 9**k for k in range(1710))
    assert tail * 10**9 < 10**2000
    assert min(covered.values()) >= 1710


def test_spike_is_distinguished_from_noise():
    tree = Tree(-5, 5)
    mechanism = Laplace.of(sensitivity=tree.sensitivity(1), epsilon=1)
    empty = mechanism._draw_noise(sum(16**level for level in range(1, 5)))
    spike = count(tree, np.full(5000, 1.2345))
    for fraction in (0.3, 0.5, 0.7):
        [answers] = tree.quantiles(empty + spike, mechanism, [fraction], 1 - 1e-12)
        assert answers.low <= 1.2345 <= answers.high
        assert answers.high - answers.low == pytest.approx(10 / tree.leaves)
        [answers] = tree.quantiles(empty, mechanism, [fraction], 1 - 1e-12)
        assert (answers.low, answers.high) == (-5, 5)
        assert -5 <= answers.value <= 5


def test_negative_counts_have_a_quantile():
    tree = Tree(0, 1, branching=2, depth=2)
    assert tree.quantiles([-5.0] * 6, SILENT, [0.5]) == [(0, 0, 1)]


def test_contradicting_counts_have_a_quantile():
    for counts in ([-1000, 2000, -400], [5, -1, -1], [0, 0, 1]):
        [answers] = Tree(0, 1, branching=3, depth=1).quantiles(counts, SILENT, [0.5])
        assert 0 <= answers.low <= answers.value <= answers.high <= 1


@pytest.mark.slow
@settings(max_examples=50)
@given(st.data())
def test_a_larger_fraction_has_no_smaller_value(data):
    tree = data.draw(st.sampled_from(TREES))
    size = sum(tree.branching**level for level in range(1, tree.depth + 1))
    noisy = data.draw(st.lists(st.integers(-100, 100), min_size=size, max_size=size))
    answers = tree.quantiles(noisy, SILENT, [i / 20 for i in range(1, 20)])
    values = [quantile.value for quantile in answers]
    assert values == sorted(values)


@pytest.mark.sweep(7)
@pytest.mark.parametrize("kind", ["laplace", "gaussian"])
@pytest.mark.parametrize("shape", SHAPES)
def test_rank_error_is_within_its_bound(shape, kind):
    """300 releases; with chance 0.9 each, fewer than 230 are within with a chance below 1e-9."""
    tree = Tree(0, 1, branching=4, depth=2)
    values = SHAPES[shape](np.random.default_rng(4), 400)
    exact = count(tree, values)
    mechanism = (
        Laplace(Fraction(2), Sensitivity(2)) if kind == "laplace" else Gaussian(Fraction(4), Sensitivity(2))
    )
    error = tree.rank_error(mechanism, 0.9, fraction=0.4)
    ranks = np.concatenate(([0], np.cumsum(exact[-tree.leaves :])))
    within = 0
    for row in exact + mechanism._draw_noise(300 * exact.size).reshape(300, -1):
        value = tree.quantiles(row, mechanism, [0.4], 0.9)[0].value
        first = max(0, math.ceil(value * tree.leaves) - 1)
        within += ranks[first] <= 160 + error and ranks[first + 1] >= 160 - error
    assert within >= 230


def test_the_rank_error_is_that_of_the_worst_edge():
    tree = Tree(0, 1, branching=4, depth=2)
    mechanism = Gaussian(Fraction(40), Sensitivity(2))
    wide = width_from_norms(mechanism, *tree._norms(Fraction(1, 2)), 1 - Fraction(1, 20 * 17))
    assert tree.rank_error(mechanism) == wide.max()


@pytest.mark.parametrize(
    ("bins", "counts"),
    [
        ([0, 0], [1, 1]),
        ([4], [1]),
        ([-1], [1]),
        ([0.0], [1]),
        ([0], [1.0]),
        ([0, 1], [1]),
        (0, 1),
        ([True], [1]),
    ],
)
def test_repeated_bins_and_fractional_counts_are_refused(bins, counts):
    with refused(InvalidInput, match="counts"):
        Tree(0, 1, branching=2, depth=2).nodes(bins, counts)


def test_batch_of_trees_equals_single_trees():
    tree = Tree(0, 1, branching=3, depth=3)
    noise = Laplace.of(sensitivity=tree.sensitivity(2), epsilon=1)
    bins = np.random.default_rng(2).integers(0, 40, (20, 27)) * np.arange(20)[:, np.newaxis] ** 2
    nodes = tree.filled(bins)
    assert all((tree.nodes(np.arange(27), row) == node).all() for row, node in zip(bins, nodes, strict=True))
    noisy = noise.release(nodes.ravel()).value.reshape(nodes.shape)
    fractions = [0.01, 0.3, 0.5, 0.99]
    tables = np.array(tree.tables(noisy, noise, fractions))
    single = np.array([tree.quantiles(row, noise, fractions) for row in noisy])
    assert (tables == single.transpose(2, 1, 0)).all()
    assert tree.tables(noisy[:0], noise, fractions)[0].shape == (4, 0)
    assert tree.filled(bins[:0]).shape == (0, tree.size)


def test_bin_table_must_be_integers_for_all_bins():
    tree = Tree(0, 1, branching=2, depth=2)
    for bad in (np.zeros((1, 3), np.int64), np.zeros(4, np.int64), np.zeros((1, 4))):
        with refused(InvalidInput, match="whole numbers"):
            tree.filled(bad)
    assert set(tree.filled(np.full((1, 4), MAX_MAGNITUDE))[0].tolist()) == {MAX_MAGNITUDE}


def test_noisy_counts_are_those_of_the_tree():
    tree = Tree(0, 1, branching=2, depth=2)
    for bad in ([1.0] * 5, [math.nan] * 6, [[1.0] * 6]):
        with refused(InvalidInput, match="noisy"):
            tree.quantiles(bad, SILENT, [0.5])
    for fraction in (0, 1, 2):
        with refused(InvalidInput, match="fraction"):
            tree.quantiles([1.0] * 6, SILENT, [fraction])


def test_a_tree_has_bounds_and_a_size():
    with refused(InvalidInput, match="low"):
        Tree(1, 1)
    with refused(InvalidInput, match="high"):
        Tree(0, math.inf)
    with refused(InvalidInput, match="branching"):
        Tree(0, 1, branching=1)
    with refused(InvalidInput, match="depth"):
        Tree(0, 1, depth=0)
    for depth in (6, 10**9):
        with refused(Unsupported, match="bins"):
            Tree(0, 1, depth=depth)
