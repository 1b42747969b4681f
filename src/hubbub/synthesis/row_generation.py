"""Rows of a synthetic table, from a fitted model: by rounding, not by independent draws.

The columns are filled in along the junction tree. All rows that agree on what a column depends on are
numbered in random order, and the j-th of them gets the value at quantile (j + U)/count: counts differ from
what the model expects by less than one row in every cell, where independent draws would add their own noise.
All of it is post-processing; its random bits come from the project's one generator all the same.
"""

import numpy as np
from numpy.typing import NDArray

from hubbub.noise.entropy import random_bytes
from hubbub.synthesis.counting import Integers
from hubbub.synthesis.graphical_model import GraphicalModel, Reals
from hubbub.synthesis.junction_tree import Variables

__all__ = ["choose_values_within", "generate_cells", "random_order", "random_rows", "round_by_group"]


def generate_cells(model: GraphicalModel, rows: int) -> dict[int, Integers]:
    """Return the cell of every column, for this many rows.

    Guarantee: no row has a combination that the model excludes.
    """
    tree = model.tree
    columns: dict[int, Integers] = {}
    for clique in [0, *(child for _, child in tree.edges)]:
        variables = tree.cliques[clique]
        known = tuple(v for v in variables if v in columns)
        table = model.probabilities(clique)
        # The largest first: the smaller ones then depend on it, and are rounded within its values.
        for new in sorted((v for v in variables if v not in columns), key=lambda v: (-tree.sizes[v], v)):
            joint = _joint(table, variables, (*known, new))
            if known:
                parents = np.ravel_multi_index(tuple(columns[v] for v in known), tree.shape(known))
            else:
                parents = np.zeros(rows, dtype=np.int64)
            columns[new] = round_by_group(parents, joint.reshape(-1, tree.sizes[new]))
            known = (*known, new)
    return {variable: columns[variable] for variable in range(len(tree.sizes))}


def _joint(table: Reals, order: Variables, variables: Variables) -> Reals:
    """Sum a table over all columns but these, in their order."""
    axes = tuple(axis for axis, v in enumerate(order) if v not in variables)
    left = [v for v in order if v in variables]
    joint: Reals = table.sum(axis=axes).transpose([left.index(v) for v in variables])
    return joint


def round_by_group(groups: Integers, weights: Reals) -> Integers:
    """Return a value for each row, such that in every group they are as the group's weights say, rounded.

    Args:
        groups: the group of each row.
        weights: for each group one weight per value, not negative.

    Guarantee: a value of weight 0 is given only where all weights of the group are 0.
    """
    rows = groups.size
    size = weights.shape[1]
    if size == 1:
        return np.zeros(rows, dtype=np.int64)
    # Only groups that occur: a large table has many that do not.
    counts = np.bincount(groups, minlength=weights.shape[0])
    present = np.flatnonzero(counts)
    counts, groups = counts[present], (np.cumsum(counts > 0) - 1)[groups]
    rows_weights = weights[present]
    totals = rows_weights.sum(axis=1)
    rows_weights = np.where(totals[:, None] > 0, rows_weights, 1.0)
    cumulative = np.cumsum(rows_weights, axis=1)
    cumulative /= cumulative[:, -1:]
    order = _order_by_group(groups)
    starts = np.cumsum(counts) - counts
    sorted_groups = groups[order]
    ranks = np.arange(rows) - starts[sorted_groups]
    offsets = _uniform(present.size)
    quantiles = (ranks + offsets[sorted_groups]) / counts[sorted_groups]
    # One search for all groups: the cumulative shares of group g lie between g and g + 1.
    edges = (cumulative[:, :-1] + np.arange(present.size)[:, None]).ravel()
    places = np.searchsorted(edges, quantiles + sorted_groups, side="right") - sorted_groups * (size - 1)
    cells = np.clip(places, 0, size - 1)
    cells = _move_to_possible(cells, sorted_groups, rows_weights)
    values = np.empty(rows, dtype=np.int64)
    values[order] = cells
    return values


def _move_to_possible(cells: Integers, groups: Integers, weights: Reals) -> Integers:
    """Move values of weight 0, chosen by rounding at an edge, to the nearest possible ones."""
    wrong = np.flatnonzero(weights[groups, cells] <= 0)
    for row in wrong:
        possible = np.flatnonzero(weights[groups[row]] > 0)
        cells[row] = possible[np.abs(possible - cells[row]).argmin()]
    return cells


def random_order(count: int) -> Integers:
    """Return the numbers below `count` in random order."""
    return np.argsort(_random_integers(count))


def random_rows(rows: int, count: int) -> Integers:
    """Return about `count` of this many rows, each at most once, in random order."""
    if 2 * count > rows:
        return random_order(rows)[:count]
    # Of a large table, a random order of all rows would take longer than what is done to a few of them.
    draws = np.unique(_random_integers(count) % np.uint64(rows)).astype(np.int64)
    chosen: Integers = draws[random_order(draws.size)]
    return chosen


def _order_by_group(groups: Integers) -> Integers:
    """Return the rows sorted by group, and within a group in random order."""
    bits = np.uint64(64 - int(groups.max(initial=0)).bit_length())
    # Ties of random bits are as likely as collisions: their order says nothing.
    return np.argsort(
        (groups.astype(np.uint64) << bits) | (_random_integers(groups.size) >> (np.uint64(64) - bits))
    )


def _random_integers(count: int) -> NDArray[np.uint64]:
    return np.frombuffer(random_bytes(8 * count), dtype=np.uint64)


def _uniform(count: int) -> Reals:
    uniform: Reals = (_random_integers(count) >> np.uint64(11)).astype(np.float64) * 2.0**-53
    return uniform


def choose_values_within(
    low: Reals, high: Reals, unit: float | None, includes_high: NDArray[np.bool_] | None = None
) -> Reals:
    """Return a value between each low (included) and high; multiples of the unit, if there is one.

    Args:
        low: where the cell of each row begins.
        high: where it ends.
        unit: values are multiples of it.
        includes_high: whether high itself is a value of the cell; it is not, if omitted.
    """
    uniform = _uniform(low.size)
    if unit is None:
        values: Reals = low + uniform * (high - low)
        return values
    first = np.ceil(low / unit)
    last = np.ceil(high / unit) - 1
    if includes_high is not None:
        last = np.where(includes_high, np.floor(high / unit), last)
    steps = np.maximum(last - first + 1, 1)
    multiples: Reals = (first + np.minimum(np.floor(uniform * steps), steps - 1)) * unit
    return multiples
