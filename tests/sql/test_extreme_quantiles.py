"""MIN, MAX and quantiles near them: selected some rows from the end, then moved to where counts show rows."""

import math
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest

import hubbub as hb
from hubbub.mechanisms import Laplace
from hubbub.sql.quantile_grid import QuantileGrid
from hubbub.sql.quantile_selection import CellCounts, QuantileSelection

TOP, BOTTOM, NINTH = Fraction(199, 200), Fraction(1, 200), Fraction(9, 10)
CELLS = 1 << 15


def make_selection(*fractions, bounds=(30, 180)):
    grid = QuantileGrid(tuple(map(Fraction, bounds)), 16, len(fractions) > 1)
    noise = Laplace.of(sensitivity=1, epsilon=Fraction(35, 100))
    return QuantileSelection(grid, fractions, Fraction(65, 100), Fraction(1), noise=noise)


def display(selection, positions, rows):
    """The values for positions, and for the counts of rows that lie in these cells, without noise."""
    places = np.array([[cell * selection.grid.parts for cell in positions]])
    cell, tally = np.array(sorted(rows.items())).T
    counts = CellCounts(1, np.zeros_like(cell), cell, tally)
    table = np.concatenate([places, selection.bin_counts(counts, places)], axis=1)
    value, low, high = selection.estimate(table, Fraction(19, 20))
    assert (low <= value).all()
    assert (value <= high).all()
    return (value[:, 0] - 30) / 150 * CELLS


def test_maximum_moves_to_the_last_rows_that_are_seen():
    selection = make_selection(TOP)
    [value] = display(selection, [10_000], {9_000: 200, 11_500: 15, 15_000: 10})
    assert 10_000 + 4096 < value < 10_000 + 8192  # the bin of cell 15,000
    [value] = display(selection, [10_000], {9_000: 200, 11_500: 15, 15_000: 3})
    assert 10_000 + 1024 < value < 10_000 + 2048  # three rows may be noise: its scale is 2.9
    [value] = display(selection, [10_000], {9_000: 200})
    assert value == pytest.approx(10_000, abs=1)


def test_minimum_moves_the_other_way():
    [value] = display(make_selection(BOTTOM), [20_000], {21_000: 200, 18_500: 15, 15_000: 10})
    assert 20_000 - 8192 < value < 20_000 - 4096


def test_rows_that_belong_beyond_the_quantile_do_not_move_it():
    """Of 10,000 rows, 50 are above the 99.5 % quantile: more than it is kept away from the end."""
    assert display(make_selection(TOP), [10_000], {9_000: 10_000, 15_000: 80})[0] == pytest.approx(
        10_000, abs=1
    )
    # Of 200 rows, 20 are above the 90 % quantile.
    assert display(make_selection(NINTH), [10_000], {9_000: 180, 15_000: 20})[0] == pytest.approx(
        10_000, abs=1
    )
    assert display(make_selection(NINTH), [10_000], {9_000: 160, 15_000: 40})[0] > 14_000


def test_quantiles_stay_in_order():
    lower, upper = display(make_selection(NINTH, TOP), [10_000, 12_000], {9_000: 100, 16_000: 60})
    assert 12_000 <= lower <= upper


def test_median_is_never_moved():
    selection = make_selection(Fraction(1, 2), TOP)
    middle, top = display(selection, [10_000, 12_000], {11_000: 5000, 16_000: 20})
    assert middle == pytest.approx(10_000, abs=1)
    assert top >= 12_000


def test_wide_bins_need_more_rows():
    """Where bounds are far too wide, noise must not move a maximum of 100 to a million."""
    selection = make_selection(TOP, bounds=(0, 10**12))
    grid = selection.grid
    cell = int(grid.cells_of(np.array([100.0]))[0])
    table = np.zeros((1, 1 + selection.bins), dtype=np.int64)
    table[0, 0] = cell * grid.parts
    table[0, -1] = 20  # 7 scales: noise is as large once in 2,000 times
    assert selection.estimate(table, NINTH)[0][0, 0] == pytest.approx(100, rel=0.01)
    table[0, -1] = 200
    assert selection.estimate(table, NINTH)[0][0, 0] > 10**6


@pytest.mark.slow
@pytest.mark.parametrize("intervals", [True, False])
def test_maximum_of_few_rows_is_close_where_the_bounds_fit(intervals):
    """300 rows of 0 to 100 in each of 300 groups: 24 rows from the end would be 8 off.

    An answer is more than 5 off with a chance below 0.15; more than half of 300 are with one below 1e-25.
    """
    values = np.tile(np.arange(300) / 3, 300)
    rows = pd.DataFrame({"g": np.repeat(np.arange(300), 300), "x": values})
    about = {"bounds": {"x": (0, 100)}, "keys": {"g": range(300)}}
    with hb.open(rows, table="t", unit=hb.Unit.row(), **about) as data:
        plan = data.sql("SELECT g, MAX(x) AS most FROM t GROUP BY g", epsilon=1, intervals=intervals)
        assert plan.loss.epsilon(0) == 1
        assert "it is moved on to where noisy counts show rows" in str(plan)
        answers = np.array(plan.run().value.to_dict()["most"])
        exact = data.exact(plan).to_dict()["most"]
    assert exact == pytest.approx([values[math.ceil(300 * 0.995) - 1]] * 300, abs=0.01)
    assert (np.abs(answers - exact[0]) < 5).mean() > 0.5
