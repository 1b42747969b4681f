import tracemalloc
from itertools import combinations, pairwise
from math import prod

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hubbub.errors import InvalidInput
from hubbub.synthesis.graphical_model import GraphicalModel, Mask, Target
from hubbub.synthesis.junction_tree import JunctionTree, count_cells, find_cliques

SIZES = (2, 3, 2, 4, 1)


def tables_of(count):
    """All tables of up to three of `count` columns."""
    return [t for k in (1, 2, 3) for t in combinations(range(count), k)]


some_tables = st.lists(st.sampled_from(tables_of(len(SIZES))), max_size=6, unique=True)
seeds = st.integers(0, 2**32 - 1)


def joint_of(model):
    """The whole distribution, from its definition: a product of factors, normalised."""
    logs = np.zeros(model.sizes)
    for target, parameters in zip(model.targets, model.parameters, strict=True):
        logs = logs + spread(parameters, target.variables, model.sizes)
    weights = np.exp(logs)
    for mask in model.masks:
        weights = weights * spread(mask.possible, mask.variables, model.sizes)
    return model.total * weights / weights.sum()


def spread(table, variables, sizes):
    return np.asarray(table).reshape([size if v in variables else 1 for v, size in enumerate(sizes)])


def sum_to(joint, variables):
    return joint.sum(axis=tuple(v for v in range(joint.ndim) if v not in variables))


def random_targets(tables, seed, total=1000.0, sizes=SIZES):
    """Noisy tables of one random distribution."""
    random = np.random.default_rng(seed)
    joint = random.gamma(0.3, size=sizes) + 0.01
    joint *= total / joint.sum()
    targets = []
    for table in tables:
        values = sum_to(joint, table)
        values = values + random.normal(0, 3, values.shape)
        values += (total - values.sum()) / values.size
        targets.append(Target(table, values, random.uniform(0.5, 20, values.shape)))
    return targets


@given(some_tables)
def test_cliques_contain_every_table_and_every_column(tables):
    cliques = find_cliques(SIZES, tables)
    assert {v for clique in cliques for v in clique} == set(range(len(SIZES)))
    for table in tables:
        assert any(set(table) <= set(clique) for clique in cliques)
    assert not any(set(one) < set(other) for one in cliques for other in cliques)


@given(some_tables)
def test_cliques_with_a_common_column_are_connected_through_it(tables):
    tree = JunctionTree.of(SIZES, tables)
    assert len(tree.edges) == len(tree.cliques) - 1
    for variable in range(len(SIZES)):
        inside = {at for at, clique in enumerate(tree.cliques) if variable in clique}
        edges = [edge for edge in tree.edges if set(edge) <= inside]
        assert len(edges) == len(inside) - 1  # a forest with one edge less than vertices is a tree
    assert tree.cells == count_cells(SIZES, tables) == sum(prod(tree.shape(c)) for c in tree.cliques)


@given(some_tables)
def test_euler_tour_walks_every_edge_there_and_back(tables):
    tree = JunctionTree.of(SIZES, tables)
    tour = tree.euler_tour()
    steps = list(pairwise(tour))
    assert sorted(steps) == sorted([*tree.edges, *((b, a) for a, b in tree.edges)])
    assert tour[0] == tour[-1] == 0


def test_cells_are_those_of_the_triangulated_graph_and_not_of_the_tables():
    ring = [(v, (v + 1) % 6) for v in range(6)]
    tables = [tuple(sorted(t)) for t in ring]
    assert count_cells([10] * 6, tables) == 4 * 1000  # six tables of a hundred


@settings(max_examples=40, deadline=None, derandomize=True)
@given(some_tables, seeds)
def test_marginals_are_those_of_the_product_of_factors(tables, seed):
    model = GraphicalModel.uniform(SIZES, total=1000.0).fit(random_targets(tables, seed), sweeps=3)
    joint = joint_of(model)
    for table in tables_of(len(SIZES)):
        np.testing.assert_allclose(model.marginal(table), sum_to(joint, table), rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(model.marginal((3, 1)), sum_to(joint, (1, 3)).T, rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(model.marginal((0, 1, 2, 3, 4)), joint, rtol=1e-8, atol=1e-9)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(some_tables, seeds)
def test_all_pairs_are_the_marginals(tables, seed):
    model = GraphicalModel.uniform(SIZES, total=1000.0).fit(random_targets(tables, seed), sweeps=2)
    pairs = dict(model.pairs())
    assert sorted(pairs) == list(combinations(range(len(SIZES)), 2))
    for pair, table in pairs.items():
        np.testing.assert_allclose(table, model.marginal(pair), rtol=1e-4, atol=1e-3)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(some_tables, seeds, st.integers(0, len(SIZES) - 1))
def test_all_pairs_with_a_focus_are_the_marginals(tables, seed, focus):
    star = [tuple(sorted((focus, v))) for v in range(len(SIZES)) if v != focus]
    model = GraphicalModel.uniform(SIZES, total=1000.0)
    model = model.fit(random_targets([*tables, *star], seed), sweeps=2)
    others = [v for v in range(len(SIZES)) if v != focus]
    triples = dict(model.pairs(focus))
    assert sorted(triples) == list(combinations(others, 2))
    for pair, table in triples.items():
        np.testing.assert_allclose(table, model.marginal((focus, *pair)), rtol=1e-4, atol=1e-3)


def test_all_pairs_of_a_large_model_are_the_marginals():
    sizes = (30, 30, 30, 30, 3, 4)
    targets = random_targets([(3, 4), (4, 5)], 3, sizes=(1, 1, 1, 30, 3, 4))
    large = Target((0, 1, 2, 3), np.full((30,) * 4, 1000.0 / 30**4), np.ones((30,) * 4))
    model = GraphicalModel.uniform(sizes, total=1000.0).fit([large, *targets], sweeps=1)
    pairs = dict(model.pairs())
    assert sorted(pairs) == list(combinations(range(6), 2))
    for pair, table in pairs.items():
        np.testing.assert_allclose(table, model.marginal(pair), rtol=1e-4, atol=1e-3)


def test_all_pairs_of_a_model_that_takes_several_passes_are_the_marginals():
    """Its columns are divided between passes, and each pass needs the probabilities as they were."""
    sizes = (500, 500, 500, 400, 3)
    random = np.random.default_rng(5)
    targets = []
    for table in ((0, 1), (1, 2), (2, 3), (3, 4)):
        values = random.gamma(0.3, size=[sizes[v] for v in table])
        targets.append(Target(table, values * (1e6 / values.sum()), np.ones(values.shape)))
    model = GraphicalModel.uniform(sizes, total=1e6).fit(targets, sweeps=1)
    pairs = dict(model.pairs())
    assert sorted(pairs) == list(combinations(range(5), 2))
    for pair, table in pairs.items():
        np.testing.assert_allclose(table, model.marginal(pair), rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize(
    "tables",
    [
        [(0,)],
        [(0, 1), (2, 3)],
        [(0, 1), (1, 2), (2, 3), (0, 3)],
        [(0, 1, 2), (1, 3), (0, 3, 4)],
        [(1, 3), (0, 1), (0, 3)],
    ],
)
def test_a_fit_reaches_the_optimum(tables):
    # The objective is convex; its gradient is expected − measured + ridge·λ, and 0 at the optimum.
    model = GraphicalModel.uniform(SIZES, total=1000.0).fit(random_targets(tables, 3), sweeps=100)
    joint = joint_of(model)
    for target, parameters in zip(model.targets, model.parameters, strict=True):
        gradient = sum_to(joint, target.variables) - target.values + target.ridge * parameters
        assert np.abs(parameters).max() < 25
        assert np.abs(gradient).max() < 0.05


def test_a_warm_start_reaches_the_same_optimum():
    targets = random_targets([(0, 1), (1, 3), (0, 3), (2,)], 5)
    at_once = GraphicalModel.uniform(SIZES, total=1000.0).fit(targets, sweeps=500)
    model = GraphicalModel.uniform(SIZES, total=1000.0)
    for target in targets:
        model = model.fit([target], sweeps=100)
    model = model.fit(sweeps=500)
    for table in tables_of(len(SIZES)):
        np.testing.assert_allclose(model.marginal(table), at_once.marginal(table), atol=1e-5)


def test_a_fit_leaves_the_model_it_started_from_alone():
    targets = random_targets([(0, 1), (1, 3)], 6)
    first = GraphicalModel.uniform(SIZES, total=1000.0).fit(targets, sweeps=5)
    before = first.marginal((0, 1, 3)), [p.copy() for p in first.parameters]
    first.fit(random_targets([(0, 3)], 7), sweeps=5)
    assert np.array_equal(first.marginal((0, 1, 3)), before[0])
    assert all(np.array_equal(a, b) for a, b in zip(first.parameters, before[1], strict=True))


@settings(max_examples=40, deadline=None, derandomize=True)
@given(some_tables, seeds)
def test_impossible_cells_stay_empty(tables, seed):
    random = np.random.default_rng(seed)
    masks = []
    for table in [(0, 1), (1, 3), (0, 2, 3)]:
        possible = random.random([SIZES[v] for v in table]) < 0.7
        possible[(0,) * len(table)] = True
        masks.append(Mask(table, possible))
    model = GraphicalModel.uniform(SIZES, total=1000.0, masks=masks)
    model = model.fit(random_targets(tables, seed), sweeps=20)
    joint = joint_of(model)
    for mask in masks:
        assert model.marginal(mask.variables)[~mask.possible].sum() == 0
    for table in tables_of(len(SIZES)):
        np.testing.assert_allclose(model.marginal(table), sum_to(joint, table), rtol=1e-7, atol=1e-8)


def test_rules_that_leave_no_combination_are_refused():
    one = Mask((0, 1), np.array([[True, False], [False, False]]))
    other = Mask((1, 2), np.array([[False, False], [True, True]]))
    with pytest.raises(InvalidInput, match="the rules leave no combination of values"):
        GraphicalModel.uniform((2, 2, 2), total=10.0, masks=[one, other])


def test_parameters_are_clipped_and_totals_stay_finite():
    # Tables that contradict each other, hardly shrunk, in cells that rules allow in part.
    masks = [Mask((0, 1), np.eye(4, dtype=bool)), Mask((1, 2), np.tri(4, dtype=bool))]
    targets = []
    for table in [(0, 1), (1, 2), (0, 2), (0,), (1,), (2,)] * 3:
        values = np.zeros([4] * len(table))
        values[(3,) * len(table) if len(targets) % 2 else (0,) * len(table)] = 1e6
        targets.append(Target(table, values, np.full(values.shape, 1e-9)))
    model = GraphicalModel.uniform((4, 4, 4), total=1e6, masks=masks).fit(targets, sweeps=50)
    assert all(np.abs(p).max() <= 25 for p in model.parameters)
    for table in tables_of(3):
        marginal = model.marginal(table)
        assert np.isfinite(marginal).all()
        assert marginal.sum() == pytest.approx(1e6)


def test_far_tails_do_not_become_impossible_by_underflow():
    # A chain: each table pulls its last cell down by e^25, so that products fall below e^-745.
    count = 40
    tables = [(v, v + 1) for v in range(count - 1)]
    targets = []
    for table in tables:
        values = np.array([[1e9, 0.0], [0.0, 0.0]])
        targets.append(Target(table, values, np.full((2, 2), 1e-12)))
    model = GraphicalModel.uniform((2,) * count, total=1e9).fit(targets, sweeps=5)
    pull = Target((count - 1,), np.array([0.0, 1e9]), np.full(2, 1e-12))
    model = model.fit([pull], sweeps=5)
    assert model.marginal((count - 1,))[1] > 0
    assert np.isfinite(model.marginal((0, count - 1))).all()


def test_one_column_with_one_value():
    model = GraphicalModel.uniform((1,), total=7.0)
    model = model.fit([Target((0,), np.array([7.0]), np.ones(1))])
    assert model.marginal((0,)).tolist() == [7.0]
    assert list(model.pairs()) == []


def test_total_may_change():
    model = GraphicalModel.uniform((2, 2), total=1.0).fit(
        [Target((0,), np.array([30.0, 10.0]), np.full(2, 1e-6))], total=40.0
    )
    np.testing.assert_allclose(model.marginal((0,)), [30.0, 10.0], rtol=1e-4)


def test_pairs_that_nobody_wants_are_not_computed():
    sizes = (2, 20_000, 20_000)
    targets = [
        Target((0, v), np.random.default_rng(v).random((2, size)), np.ones((2, size)))
        for v, size in enumerate(sizes)
        if v
    ]
    model = GraphicalModel.uniform(sizes, total=100.0).fit(targets, sweeps=2)
    tracemalloc.start()
    tables = dict(model.pairs(None, lambda pair: 0 in pair))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert tables.keys() == {(0, 1), (0, 2)}
    assert peak < 1 << 28  # the table of the two large columns alone has 1.6 gigabytes


def test_wanted_pairs_are_those_of_all_pairs():
    random = np.random.default_rng(1)
    sizes = (2, 3, 4, 5, 3)
    targets = [
        Target(pair, random.random([sizes[v] for v in pair]), np.ones([sizes[v] for v in pair]))
        for pair in ((0, 1), (1, 2), (2, 3), (3, 4))
    ]
    model = GraphicalModel.uniform(sizes, total=100.0).fit(targets, sweeps=5)
    tables = dict(model.pairs())
    few = {(0, 1), (0, 3), (1, 4)}
    some = dict(model.pairs(None, few.__contains__))
    assert some.keys() == few
    for pair in few:
        np.testing.assert_allclose(some[pair], tables[pair], rtol=1e-6)
