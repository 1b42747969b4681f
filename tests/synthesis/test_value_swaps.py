import numpy as np
import pytest

from hubbub.synthesis.graphical_model import GraphicalModel, Mask, Target
from hubbub.synthesis.row_generation import generate_cells, random_order
from hubbub.synthesis.value_swaps import round_to_tables

SIZES = (6, 7, 8, 5)
PAIRS = [(a, b) for a in range(4) for b in range(a + 1, 4)]


def model_of_pairs(masks=()):
    """Four columns of which all pairs depend on each other: 1,680 combinations, most of them rare."""
    random = np.random.default_rng(5)
    targets = []
    for pair in PAIRS:
        shape = (SIZES[pair[0]], SIZES[pair[1]])
        table = random.gamma(0.5, size=shape)
        targets.append(Target(pair, 2000 * table / table.sum(), np.full(shape, 20.0)))
    return GraphicalModel.uniform(SIZES, total=2000.0, masks=masks).fit(targets, sweeps=30)


def distance(model, cells, tables):
    total = 0.0
    for table in tables:
        counts = np.zeros([SIZES[v] for v in table])
        np.add.at(counts, tuple(cells[v] for v in table), 1)
        total += float(np.abs(counts / counts.sum() - model.marginal(table) / model.total).sum())
    return total


@pytest.mark.parametrize(("focus", "tables"), [(None, PAIRS), (3, [(0, 1, 3), (0, 2, 3), (1, 2, 3)])])
def test_tables_come_closer_to_the_model(focus, tables):
    model = model_of_pairs()
    # Each column has its own order: a start that is far from the model.
    cells = {v: own[random_order(own.size)] for v, own in generate_cells(model, 2000).items()}
    swapped = round_to_tables(model, cells, focus)
    assert distance(model, swapped, tables) < 0.7 * distance(model, cells, tables)


def test_each_column_keeps_its_values():
    model = model_of_pairs()
    cells = generate_cells(model, 501)
    swapped = round_to_tables(model, cells)
    for variable, size in enumerate(SIZES):
        counts = [np.bincount(each[variable], minlength=size).tolist() for each in (cells, swapped)]
        assert counts[0] == counts[1]


def test_no_swap_makes_a_combination_that_a_rule_excludes():
    possible = np.ones((SIZES[0], SIZES[1], SIZES[2]), dtype=bool)
    possible[:3, 2:5, ::2] = False
    model = model_of_pairs([Mask((0, 1, 2), possible)])
    cells = round_to_tables(model, generate_cells(model, 2000))
    assert possible[cells[0], cells[1], cells[2]].all()


@pytest.mark.parametrize("rows", [0, 1, 2, 3])
def test_few_rows_are_left_or_swapped(rows):
    model = model_of_pairs()
    cells = round_to_tables(model, generate_cells(model, rows))
    assert [each.size for each in cells.values()] == [rows] * 4


@pytest.mark.parametrize("focus", [None, 3])
def test_tables_that_the_model_does_not_have_are_approached(focus):
    model = model_of_pairs()
    expected = model.marginal((0, 1))
    # Another table with the same margins: a move of rows along two rows and two columns.
    other = expected.copy()
    moved = 0.8 * min(other[0, 0], other[1, 1])
    other[:2, :2] += moved * np.array([[-1, 1], [1, -1]])
    cells = round_to_tables(model, generate_cells(model, 20_000), focus, {(0, 1): other})
    table = np.zeros(expected.shape)
    np.add.at(table, (cells[0], cells[1]), 0.1)
    assert np.abs(table - other)[:2, :2].sum() < 0.5 * np.abs(table - expected)[:2, :2].sum()
