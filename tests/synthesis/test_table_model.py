import numpy as np
import pytest

from hubbub.synthesis.graphical_model import GraphicalModel, Target
from hubbub.synthesis.table_model import (
    complete_residual,
    empirical_ridge,
    project_to_lower_tables,
    residual_of,
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
