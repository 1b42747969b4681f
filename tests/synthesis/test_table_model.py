import numpy as np
import pytest

from hubbub.synthesis.graphical_model import GraphicalModel, Target
from hubbub.synthesis.table_model import (
    Measured,
    complete_residual,
    empirical_ridge,
    empty_cells,
    project_to_lower_tables,
    residual_of,
    residual_target,
)


@pytest.mark.parametrize("shape", [(5, 7), (16, 16), (4, 5, 3)])
def test_projected_table_is_not_negative_and_has_the_lower_tables(shape):
    random = np.random.default_rng(1)
    expected = random.gamma(0.5, 100, shape)
    noisy = complete_residual(residual_of(expected + random.normal(0, 30, shape)), expected)
    projected = project_to_lower_tables(noisy, expected)
    assert noisy.min() < -20
    assert projected.min() >= 0
    lower = expected - residual_of(expected)
    off = np.abs(projected - residual_of(projected) - lower).sum()
    assert off < 0.01 * expected.sum()
    assert np.abs(projected - expected).sum() < np.abs(noisy - expected).sum()


def test_table_without_negative_cells_is_left_as_it_is():
    table = np.array([[5.0, 3.0], [2.0, 7.0]])
    assert project_to_lower_tables(table, table).tolist() == table.tolist()


def test_noise_in_empty_cells_does_not_move_the_tables_of_one_column():
    random = np.random.default_rng(2)
    rows = np.sort(random.gamma(0.5, 4000, 16))
    one_way = [
        Target((column,), rows, 40.0**2 / (100 * (rows + 40)))  # as a synthesis weighs them
        for column in (0, 1)
    ]
    model = GraphicalModel.uniform((16, 16), total=rows.sum()).fit(one_way)
    expected = model.marginal((0, 1))
    noisy = complete_residual(residual_of(np.diag(rows) + random.normal(0, 32, (16, 16))), expected)
    target = Target((0, 1), project_to_lower_tables(noisy, expected), empirical_ridge(noisy, expected, 32.0))
    fitted = model.fit([target], sweeps=100)
    assert np.abs(fitted.marginal((0,)) - rows).sum() / 2 < 0.002 * rows.sum()
    assert all(np.abs(parameters).max() < 25 for parameters in fitted.parameters)


@pytest.mark.parametrize("shape", [(12, 10), (6, 8, 5)])
def test_values_that_are_further_off_the_model_are_held_back_less(shape):
    random = np.random.default_rng(3)
    expected = np.full(shape, 400.0)
    off = np.zeros(shape)
    off[0] = random.normal(0, 300, shape[1:])
    ridge = empirical_ridge(expected + off + random.normal(0, 40, shape), expected, 40.0)
    assert ridge.shape == shape
    assert ridge.min() > 0
    assert ridge[0].max() < ridge[1:].min() / 2


def test_noise_alone_is_held_back_everywhere_alike():
    random = np.random.default_rng(4)
    expected = random.gamma(2, 200, (15, 15))
    ridge = empirical_ridge(expected + random.normal(0, 40, (15, 15)), expected, 40.0) * (expected + 5)
    assert ridge.max() < 3 * ridge.min()


def test_empty_cells_are_found_where_a_column_tells_another():
    random = np.random.default_rng(5)
    rows = np.sort(random.gamma(0.8, 3000, 12))
    table = np.zeros((12, 24))
    table[np.arange(24) // 2, np.arange(24)] = np.repeat(rows / 2, 2)
    expected = np.outer(table.sum(1), table.sum(0)) / table.sum()
    measured = Measured(
        (0, 1), residual_of(table + random.normal(0, 30, table.shape)), 30.0, is_residual=True
    )
    is_empty = empty_cells(complete_residual(measured.values, expected), expected, 30.0)
    assert table[is_empty].sum() < 0.01 * table.sum()
    assert expected[is_empty].sum() > 0.9 * expected[table == 0].sum()
    target = residual_target(measured, expected)
    plain = project_to_lower_tables(complete_residual(measured.values, expected), expected)
    assert np.abs(target.values - table).sum() < 0.7 * np.abs(plain - table).sum()


@pytest.mark.parametrize("seed", range(5))
def test_no_cells_are_taken_for_empty_in_a_table_without_empty_ones(seed):
    random = np.random.default_rng(seed)
    expected = random.gamma(1.0, 150, (14, 18))
    table = expected * np.exp(random.normal(0, 0.5, (14, 18)))
    assert not empty_cells(table + random.normal(0, 35, table.shape), expected, 35.0).any()


def test_a_second_measurement_is_judged_by_what_the_model_was_before_the_first():
    random = np.random.default_rng(6)
    before = np.full((10, 10), 300.0)
    table = before + residual_of(random.normal(0, 200, (10, 10)))
    measured = Measured((0, 1), residual_of(table + random.normal(0, 30, (10, 10))), 30.0, is_residual=True)
    followed = complete_residual(measured.values, before)
    alone = residual_target(measured, followed)
    both = residual_target(measured, followed, before)
    assert both.ridge.max() < alone.ridge.min()
    assert both.values == pytest.approx(alone.values)
