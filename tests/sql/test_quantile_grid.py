"""The cells among which quantiles are selected: every value has one, and they keep its order."""

from fractions import Fraction

import duckdb
import numpy as np
import pandas as pd
import pytest

from hubbub.sql.quantile_grid import QuantileGrid

BOUNDS = [
    (30, 180), (0, 100), (0, 10**9), (-50, 50), (-(10**9), 1), ("0.001", 10**6), (0, 32768), (-5, 0),
    ("1/3", 10**6),
    ("1e-60", "1e-58"), (0, 2**200), (10**12, 10**12 + 1), (-2, -1), (1, "1.00000000000000000001"),
]  # fmt: skip


def grid(bounds):
    return QuantileGrid((Fraction(bounds[0]), Fraction(bounds[1])))


def try_out(cells):
    """Values all over the bounds, at many sizes, and at the edges and the doubles beside them."""
    rng = np.random.default_rng(1)
    low, high = map(float, cells.bounds)
    size = max(abs(low), abs(high))
    near = size * 2.0 ** rng.uniform(-60, 0, 4000) * rng.choice([-1, 1], 4000)
    edges = rng.choice(cells.edges, 2000)
    beside = [edges, np.nextafter(edges, -np.inf), np.nextafter(edges, np.inf)]
    spread = low + (high - low) * rng.random(4000)
    whole = np.arange(-200, 200, dtype=np.float64)
    return np.sort(np.clip(np.concatenate([near, *beside, spread, whole, [low, high, 0.0]]), low, high))


def located(cells, values):
    rows = pd.DataFrame({"v": values})
    with duckdb.connect() as connection:
        connection.register("r", rows)
        text = f"SELECT CAST({cells.index_sql('v')} AS BIGINT) AS b FROM r"
        return connection.execute(text).fetchnumpy()["b"]


@pytest.mark.parametrize("bounds", BOUNDS, ids=str)
def test_a_cell_holds_its_values(bounds):
    cells = grid(bounds)
    values = try_out(cells)
    result = located(cells, values)
    assert result.min() >= 0
    assert result.max() < cells.cells
    rounded = 2.0**-48 * np.abs(cells.edges).max()
    assert (cells.edges[result] - rounded <= values).all()
    assert (values <= cells.edges[result + 1] + rounded).all()


@pytest.mark.parametrize("bounds", BOUNDS, ids=str)
def test_cells_never_fall(bounds):
    cells = grid(bounds)
    assert (np.diff(located(cells, try_out(cells))) >= 0).all()
    assert (np.diff(cells.edges) >= 0).all()


@pytest.mark.parametrize("bounds", BOUNDS, ids=str)
def test_there_are_few_enough_cells(bounds):
    cells = grid(bounds)
    assert 2**15 <= cells.cells <= 2**16
    assert cells.measure.size == cells.cells
    assert cells.measure.min() >= 1
    assert int(cells.measure.sum()) * 64 < 2**46


def test_positions_and_weights_belong_together():
    for spreads_ties in (True, False):
        cells = QuantileGrid((Fraction(0), Fraction(100)), 16, spreads_ties)
        end = np.array([cells.cells * cells.parts])
        positions = np.random.default_rng(2).integers(0, cells.cells * cells.parts, 2000)
        near = cells.cells_of(np.array([42.0])) * cells.parts + np.arange(cells.parts)
        positions = np.concatenate([positions, near])
        before, behind = cells.measure_before(positions), cells.measure_before(positions + 1)
        assert (cells.locate(before) == positions).all()
        assert (cells.locate(behind - 1) == positions).all()
        assert (behind > before).all()
        extra = cells.extra_measure.sum()
        assert (extra > 0) == (not spreads_ties)
        assert cells.measure_before(end)[0] == cells.total == cells.measure.sum() * cells.parts + extra


@pytest.mark.parametrize("bounds", BOUNDS, ids=str)
def test_round_numbers_lie_in_their_cells(bounds):
    cells = QuantileGrid(grid(bounds).bounds, 16, spreads_ties=False)
    cell = np.flatnonzero(cells.round_part[:-1] >= 0)
    values = cells.values(cell * cells.parts + cells.round_part[cell])
    assert (located(cells, values) == cell).all()
    assert cells.extra_measure[-1] == 0
    if cell.size:
        # A third of the weight, but for what is rounded down.
        assert 0.33 < cells.extra_measure.sum() / cells.total < 0.34


def test_round_numbers_have_few_digits():
    cells = QuantileGrid((Fraction(0), Fraction(100)), 16, spreads_ties=False)
    for value in (42.0, 40.0, 7.5):
        [cell] = cells.cells_of(np.array([value])).tolist()
        assert cells.values(np.array([cell * 16 + cells.round_part[cell]])) == [value]
    weights = [int(cells.extra_measure[cells.cells_of(np.array([value]))[0]]) for value in (40.0, 42.0, 42.1)]
    assert weights == sorted(weights, reverse=True)
    assert weights[2] > 100 * cells.measure[20_000]


def test_a_value_has_few_digits_and_stays_in_its_part():
    cells = QuantileGrid((Fraction(0), Fraction(10**9)), 16, spreads_ties=False)
    positions = np.arange(0, cells.cells * cells.parts, 997)
    values = cells.values(positions)
    cell, part = np.divmod(positions, cells.parts)
    width = np.diff(cells.edges)[cell] / cells.parts
    is_round = cells.round_part[cell] == part
    is_close = np.abs(values - cells.edges[cell] - (part + 0.5) * width) <= width * (0.5 + 1e-6)
    assert (is_close | is_round).all()
    assert np.median([len(repr(float(value))) for value in values]) < 14


def test_values_far_below_the_bounds_are_kept_apart():
    cells = grid((0, 10**9))
    one, two = located(cells, np.array([100.0, 100.2]))
    assert one < two
    assert cells.edges[one + 1] - cells.edges[one] < 0.1
