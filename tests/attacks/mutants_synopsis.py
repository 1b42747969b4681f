"""Weak versions of synopses, each with the hole that one attack finds."""

from collections import Counter
from dataclasses import replace
from fractions import Fraction

import numpy as np

from hubbub.synthesis.release_budget import floor_sqrt
from hubbub.synthesis.residuals import contrast_transform, residual_cost
from hubbub.unit import Neighbours


def categories_of_the_rows(values):
    """A78: the cells are the categories that occur."""
    return sorted(set(values))


def rows_scaled_up(shape, neighbours):
    """A79: every contrast is multiplied by a norm that is rounded up, not down."""
    cells = int(np.prod(shape))
    tables = np.eye(cells, dtype=np.int64).reshape(cells, *shape)
    rows = np.stack([contrast_transform(table).ravel() for table in tables])
    norms = np.sqrt((rows.astype(float) ** 2).sum(axis=0))
    largest = int(norms.max()) + 1
    return rows * np.ceil(largest / norms).astype(np.int64), residual_cost(shape, neighbours) * largest**2


def substitution_as_two_units(shape, _neighbours):
    """A80: two units are charged as independent ones: twice the square of one."""
    cells = int(np.prod(shape))
    tables = np.eye(cells, dtype=np.int64).reshape(cells, *shape)
    rows = np.stack([contrast_transform(table).ravel() for table in tables]) * 64
    norms = np.sqrt((rows.astype(float) ** 2).sum(axis=0))
    scaled = (rows * (64 / norms)).astype(np.int64) * 64
    return scaled, 2 * residual_cost(shape, Neighbours.ADD_REMOVE) * 4096**2


def free_row_count(plan):
    """A81: the number of rows is released besides, for nothing."""
    return [
        plan.noise(names).mechanism.loss().rho for names in plan.workload.residuals
    ], plan.mu_squared / 2 - (plan.noise(()).mechanism.loss().rho)


def tables_in_parallel(plan):
    """A91: every table has the whole ε, as if one unit were in one of them only."""
    return [replace(plan.noise(names), epsilon=plan.epsilon) for names in plan.shares]


def rows_as_they_are(rows, limit):
    """A82: each row counts one, however many its unit has."""
    return Counter(cell for _, cell in rows), limit


def batch_charged_once(budget, rho, times):
    """A83: all selections of a batch have the ε of one."""
    return budget.spend_selection(rho), Fraction(times)


def selection_beside_the_past(budget, rho):
    """A90: a selection is priced beside half of the whole budget, whether it is spent or not."""
    figure = 2 * rho
    return floor_sqrt(4 * figure / (1 + figure / (budget.mu_squared / 2)))
