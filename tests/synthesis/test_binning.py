from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hubbub.synthesis.binning import (
    choose_cuts,
    fine_grid,
    isotonic,
    measure_histogram,
    most_bins,
    prefix_sensitivity,
    transform_histogram,
)
from hubbub.synthesis.counting import InMemoryCounts
from hubbub.synthesis.domain import Column, Domain
from hubbub.unit import Neighbours


def counts_of(values, column, **options):
    return InMemoryCounts.of(Domain((column,)), {column.name: values}, **options)


AGE = Column.of_numbers("age", (0, 12), unit=1)


def test_grid_has_every_multiple_of_a_unit_if_they_are_few():
    assert fine_grid(AGE) == tuple(map(Fraction, range(1, 12)))


def test_grid_follows_from_the_bounds_and_has_zero_one_and_forced_cuts():
    column = Column.of_numbers("x", (-1000, 10**6)).with_forced_cuts([12345])
    grid = fine_grid(column)
    assert {Fraction(0), Fraction(1), Fraction(12345)} <= set(grid)
    assert 1500 < len(grid) < 2200
    assert all(-1000 < cut < 10**6 for cut in grid)
    in_units = fine_grid(Column.of_numbers("x", (0, 10**6), unit=100))
    assert all(cut % 100 == 0 or cut in {0, 1} for cut in in_units)


@pytest.mark.parametrize("neighbours", list(Neighbours))
def test_one_unit_moves_the_integers_by_at_most_the_sensitivity(neighbours):
    # All single rows, and all pairs of rows for a substitution.
    cells = len(fine_grid(AGE)) + 1
    empty = counts_of([], AGE, neighbours=neighbours)
    limit = prefix_sensitivity(cells, empty).l2_squared

    def integers(values):
        return [
            int(x)
            for x in transform_histogram(
                empty.histogram("age", fine_grid(AGE)) + np.bincount(values, minlength=cells)
            )
        ]

    base = integers([])
    worst = 0
    for one in range(cells):
        moved = [a - b for a, b in zip(integers([one]), base, strict=True)]
        worst = max(worst, sum(x * x for x in moved))
        if neighbours is Neighbours.SUBSTITUTE:
            for other in range(cells):
                moved = [a - b for a, b in zip(integers([one]), integers([other]), strict=True)]
                worst = max(worst, sum(x * x for x in moved))
    assert worst <= limit
    if neighbours is Neighbours.ADD_REMOVE:
        assert worst == limit  # a row in the first cell moves them all


def test_units_with_several_rows_move_the_integers_by_their_weight():
    counts = counts_of([0] * 50 + [11] * 50, AGE, units=[1] * 100, max_weight=3)
    cells = len(fine_grid(AGE)) + 1
    moved = [int(x) for x in transform_histogram(counts.histogram("age", fine_grid(AGE)))]
    assert sum(x * x for x in moved) <= prefix_sensitivity(cells, counts).l2_squared


def test_masses_are_those_of_the_rows_where_noise_is_small():
    values = [3] * 5000 + [7] * 3000 + [11] * 2000
    masses, sd = measure_histogram(counts_of(values, AGE), AGE, Fraction(10))
    assert sd < 1
    expected = np.bincount(values, minlength=12)
    # Prefix sums have a standard deviation below one row: eight of them are seen with probability 1e-15.
    assert np.abs(np.cumsum(masses) - np.cumsum(expected)).max() < 8


def test_noise_of_masses_has_the_stated_size():
    masses, sd = measure_histogram(counts_of([5] * 100_000, AGE), AGE, Fraction(1, 50))
    assert 50 < sd < 150
    assert abs(masses.sum() - 100_000) < 7 * sd


def test_heavy_cells_are_bins_of_their_own_and_others_share_the_mass():
    masses = np.array([1.0, 1, 1, 40, 1, 1, 1, 1, 1, 1, 1, 50])
    bins = choose_cuts(AGE, masses, 0.1, 5)
    edges = bins.column.edges
    assert Fraction(3) in edges
    assert Fraction(4) in edges
    assert Fraction(11) in edges
    assert not bins.column.finds_bins
    assert set(edges) <= set(bins.grid)


def test_forced_cuts_are_kept():
    column = AGE.with_forced_cuts([5])
    bins = choose_cuts(column, np.ones(12), 0.1, 2)
    assert Fraction(5) in bins.column.edges


def test_no_mass_gives_equal_bins():
    bins = choose_cuts(AGE, np.zeros(12), 1.0, 4)
    assert bins.column.bins == 4


def test_masses_are_evened_out_as_far_as_they_are_noise():
    masses = np.array([0.0, 0, 30, 0, 0, 0, 28, 0, 500, 0, 0, 0])
    bins = choose_cuts(AGE, masses, 20.0, 2)
    assert bins.masses.sum() == pytest.approx(masses.sum())
    assert bins.masses[8] == 500
    assert bins.masses[:7].max() < 20


@given(st.lists(st.floats(-100, 100), max_size=30))
def test_isotonic_regression_is_sorted_keeps_the_sum_and_leaves_sorted_values_alone(values):
    result = isotonic(values)
    assert (np.diff(result) >= 0).all()
    assert result.sum() == pytest.approx(sum(values), abs=1e-6)
    np.testing.assert_allclose(isotonic(sorted(values)), sorted(values), atol=1e-9)


@pytest.mark.parametrize("rows", [2**47 - 1, 2**47, 2**48, 2**60])
def test_integers_beyond_64_bits_are_clamped_and_never_wrap(rows):
    histogram = np.array([rows, 5, 7], dtype=np.int64)
    integers = transform_histogram(histogram)
    assert integers[0] == min(rows << 14, 1 << 61)
    assert (integers > 0).all()


def test_no_more_bins_are_found_than_was_planned_for():
    random = np.random.default_rng(4)
    for heavy in (0, 3, 12):
        masses = random.random(len(fine_grid(AGE)) + 1)
        masses[:heavy] += 50.0
        for bins in (4, 20):
            assert choose_cuts(AGE, masses, 1.0, bins).column.bins <= most_bins(AGE, bins)
