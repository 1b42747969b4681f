import numpy as np
import pytest

from hubbub.synthesis.domain import Column, Domain
from hubbub.synthesis.modelled_columns import choose_columns
from hubbub.synthesis.smoothing import smooth_deviations


def shrink(values, expected, deviations, sd):
    gain = deviations**2 / (deviations**2 + sd**2)
    return expected + gain * (values - expected)


def table(random, off):
    expected = random.gamma(2, 150, off.shape)
    return expected, expected + off


def test_deviations_that_change_slowly_along_a_column_are_found():
    random = np.random.default_rng(1)
    off = 60 * np.sin(np.arange(18) / 4)[:, None] * random.choice([-1, 1], 6)
    expected, true = table(random, off)
    noisy, deviations = true + random.normal(0, 40, true.shape), np.full(true.shape, 50.0)
    smoothed = smooth_deviations(noisy, expected, deviations, 40.0, (18, 0))
    own = np.abs(shrink(noisy, expected, deviations, 40.0) - true).sum()
    assert np.abs(shrink(smoothed, expected, deviations, 40.0) - true).sum() < 0.7 * own


def test_deviations_that_differ_from_cell_to_cell_stay():
    random = np.random.default_rng(2)
    expected, true = table(random, random.normal(0, 100, (16, 12)))
    noisy = true + random.normal(0, 40, true.shape)
    smoothed = smooth_deviations(noisy, expected, np.full(true.shape, 100.0), 40.0, (16, 12))
    assert smoothed == pytest.approx(noisy)


def test_a_cell_of_null_has_no_neighbours():
    random = np.random.default_rng(3)
    off = np.full((9, 8), 80.0)
    off[8] = -80
    expected, true = table(random, off)
    noisy, deviations = true + random.normal(0, 40, true.shape), np.full(true.shape, 80.0)
    smoothed = smooth_deviations(noisy, expected, deviations, 40.0, (8, 0))
    assert smoothed[8] == pytest.approx(noisy[8])
    assert smoothed[:8] != pytest.approx(noisy[:8])


@pytest.mark.parametrize(
    ("shape", "ordered"), [((9, 8), (0, 0)), ((9, 8), (3, 0)), ((50, 50), (50, 50)), ((9, 8), ())]
)
def test_categories_few_cells_and_large_tables_are_left_as_they_are(shape, ordered):
    random = np.random.default_rng(4)
    expected, true = table(random, random.normal(0, 100, shape))
    assert smooth_deviations(true, expected, np.full(shape, 50.0), 40.0, ordered) is true


def test_three_columns_are_smoothed_along_those_in_order():
    random = np.random.default_rng(5)
    off = 60 * np.sin(np.arange(12) / 3)[None, :, None] * random.choice([-1, 1], (5, 1, 4))
    expected, true = table(random, off)
    noisy, deviations = true + random.normal(0, 40, true.shape), np.full(true.shape, 50.0)
    smoothed = smooth_deviations(noisy, expected, deviations, 40.0, (0, 12, 0))
    assert np.abs(smoothed - true).sum() < np.abs(noisy - true).sum()


def test_order_of_cells_follows_from_the_declared_columns():
    columns = (
        Column.of_numbers("age", (0, 80), unit=1, cuts=[20, 40, 60], is_nullable=True),
        Column.of_categories("region", "abc"),
    )
    modelled = choose_columns(Domain(columns))
    assert modelled.sizes == (5, 3)
    assert modelled.ordered((0, 1)) == (4, 0)
