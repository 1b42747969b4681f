from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hubbub.synthesis.graphical_model import GraphicalModel, Mask, Target
from hubbub.synthesis.row_generation import choose_values_within, generate_cells, random_rows, round_by_group


@given(st.lists(st.integers(0, 4), max_size=60), st.integers(0, 2**32 - 1))
def test_counts_of_a_group_are_its_weights_rounded(groups, seed):
    weights = np.random.default_rng(seed).gamma(0.5, size=(5, 4))
    values = round_by_group(np.array(groups, dtype=np.int64), weights)
    for group in set(groups):
        own = values[np.array(groups) == group]
        expected = weights[group] / weights[group].sum() * own.size
        assert np.abs(np.bincount(own, minlength=4) - expected).max() < 1 + 1e-9


@given(st.integers(0, 2**32 - 1))
def test_values_of_weight_zero_are_never_chosen(seed):
    random = np.random.default_rng(seed)
    weights = random.random((6, 5)) * (random.random((6, 5)) < 0.4)
    weights[weights.sum(axis=1) == 0, 2] = 1e-300
    groups = random.integers(0, 6, 500)
    assert (weights[groups, round_by_group(groups, weights)] > 0).all()


def test_no_rows_and_one_value():
    assert round_by_group(np.zeros(0, dtype=np.int64), np.ones((1, 3))).size == 0
    assert round_by_group(np.zeros(3, dtype=np.int64), np.ones((1, 1))).tolist() == [0, 0, 0]


def fitted(sizes, tables, masks=(), total=1000.0, seed=1):
    random = np.random.default_rng(seed)
    targets = []
    for table in tables:
        values = random.gamma(0.7, size=[sizes[v] for v in table])
        targets.append(Target(table, values * total / values.sum(), np.full(values.shape, 0.01)))
    return GraphicalModel.uniform(sizes, total=total, masks=masks).fit(targets, sweeps=20)


def test_rows_follow_the_model():
    model = fitted((3, 4, 2, 5), [(0, 1), (1, 2), (3,)])
    cells = generate_cells(model, 20_000)
    for table in [(0,), (1,), (0, 1), (1, 2), (3,)]:
        expected = model.marginal(table) * 20
        counts = np.zeros(expected.shape)
        np.add.at(counts, tuple(cells[v] for v in table), 1)
        # Each cell is a sum of at most 20 groups that are rounded each.
        assert np.abs(counts - expected).max() < 21


def test_impossible_combinations_are_never_generated():
    masks = [
        Mask((0, 1), np.eye(4, dtype=bool)),
        Mask((1, 2), np.tri(4, dtype=bool)),
        Mask((0, 3), np.arange(12).reshape(4, 3) % 5 != 0),
    ]
    model = fitted((4, 4, 4, 3), [(0, 1), (1, 2), (2, 3)], masks)
    cells = generate_cells(model, 5000)
    for mask in masks:
        assert mask.possible[tuple(cells[v] for v in mask.variables)].all()


@pytest.mark.parametrize(("unit", "low", "high"), list(product([1.0, 0.5, 10.0], [0.0, -20.0], [30.0])))
def test_values_are_multiples_of_the_unit_inside_their_cell(unit, low, high):
    values = choose_values_within(np.full(500, low), np.full(500, high), unit)
    assert (values >= low).all()
    assert (values < high).all()
    assert all(Fraction(value) % Fraction(unit) == 0 for value in values.tolist())
    ends = choose_values_within(np.full(9000, low), np.full(9000, high), unit, np.ones(9000, dtype=bool))
    assert ends.max() == high  # 9000 draws of at most 101 values: e^-89


@settings(max_examples=20)
@given(st.floats(-1e6, 1e6), st.floats(1e-3, 1e6))
def test_values_without_a_unit_are_inside_their_cell(low, width):
    values = choose_values_within(np.full(50, low), np.full(50, low + width), None)
    assert (values >= low).all()
    assert (values <= low + width).all()


@pytest.mark.parametrize(("rows", "count"), [(10, 10), (10, 6), (10**6, 1000), (1, 0)])
def test_rows_are_chosen_at_most_once(rows, count):
    chosen = random_rows(rows, count)
    assert len(set(chosen.tolist())) == chosen.size <= count
    # Of a thousand draws among a million, half a collision is expected.
    assert chosen.size >= 0.9 * count
    assert all(0 <= row < rows for row in chosen)
