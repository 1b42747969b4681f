"""A fitted model of a table, from which synthetic rows are made: all of it is post-processing."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from itertools import combinations, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hubbub.synthesis.binning import Bins
from hubbub.synthesis.counting import Integers
from hubbub.synthesis.domain import MAX_CELLS, OTHER, Column, ColumnKind, to_date
from hubbub.synthesis.domain_storage import decode_domain, decode_rational, encode_domain
from hubbub.synthesis.graphical_model import GraphicalModel, Reals, Target, tilt
from hubbub.synthesis.junction_tree import Variables
from hubbub.synthesis.modelled_columns import Merging, ModelledColumns, choose_columns
from hubbub.synthesis.row_generation import choose_values_within, generate_cells, round_by_group
from hubbub.synthesis.smoothing import smooth_deviations
from hubbub.synthesis.value_swaps import round_to_tables

__all__ = [
    "Measured",
    "TableError",
    "TableModel",
    "complete_residual",
    "empirical_ridge",
    "empty_cells",
    "project_to_lower_tables",
    "residual_of",
    "residual_target",
]

_MAX_TOTAL = 1e15
_MARGIN_SWEEPS = 20
_PROJECTIONS = 50
_PROJECTED_TO = 1e-3
"""Cells may be negative by this share of the mean cell: they are set to 0 afterwards."""
_FACTOR_STEPS = 20
_HELD_BY = 10.0
_GUARD = 5.0
"""Cells are off by some rows, even if none is expected."""
_LOOSER = 1.5
"""A table is held back less than would be best for it alone: it also tells what other tables leave open."""
_EMPTY_STEPS = 30
_LEAST_EMPTY = 0.2
"""Cells are taken for empty only where at least this share of them seems to be."""


@dataclass(frozen=True, eq=False)
class Measured:
    """A table as it was released, by the positions of modelled columns."""

    variables: Variables
    values: Reals
    sd: float
    """The standard deviation of the noise of one cell."""
    is_residual: bool
    """True if only the part with zero sums along every axis was measured."""


@dataclass(frozen=True)
class TableError:
    """How far a measured table is from the model and from synthetic rows: in rows that are in wrong cells."""

    columns: tuple[str, ...]
    is_residual: bool
    """True if only the part that lower tables do not tell was measured, and is compared."""
    noise: float
    """What the noise of the measurement amounts to: a fit that comes closer has fitted noise."""
    model: float
    """The distance between the measurement and the fitted model."""
    rows: float
    """The distance between the measurement and the synthetic rows."""


@dataclass(frozen=True, eq=False)
class TableModel:
    """A distribution over the columns of a table, with its number of rows; it holds no row of the data."""

    columns: ModelledColumns
    model: GraphicalModel
    measured: tuple[Measured, ...]

    @property
    def rows(self) -> int:
        """The estimated number of rows of the table."""
        return max(1, round(self.model.total))

    @cached_property
    def tables_beyond(self) -> dict[Variables, Reals]:
        """Measured pairs that did not fit the model, each as the model with this table would have it."""
        fitted = {target.variables for target in self.model.targets}
        return {
            each.variables: _adjust(
                self.model.marginal(each.variables), each, self.columns.ordered(each.variables)
            )
            for each in self.measured
            if len(each.variables) == 2 and each.is_residual and each.variables not in fitted
        }

    def expected(self, variables: Variables) -> Reals:
        """Return the table of these columns that rows are to have."""
        beyond = self.tables_beyond.get(variables)
        return self.model.marginal(variables) if beyond is None else beyond

    def generate_cells(self, rows: int | None = None) -> dict[str, Integers]:
        """Return the cell of every column of the domain, for this many rows, in random order.

        Guarantee: no row breaks a declared rule or function.
        """
        count = self.rows if rows is None else rows
        generated = round_to_tables(
            self.model, generate_cells(self.model, count), self.columns.focus, self.tables_beyond
        )
        return self.complete(generated)

    def complete(self, generated: Mapping[int, Integers]) -> dict[str, Integers]:
        """The cells of all columns, from those of the modelled ones."""
        cells: dict[str, Integers] = {}
        for variable, name in enumerate(self.columns.names):
            cells[name] = self._split_group(name, generated[variable])
        for each in self.columns.refined:
            cells[each.source] = self._split_group(each.source, cells[each.target])
        for each in self.columns.computed:
            cells[each.target] = np.array(each.table, dtype=np.int64)[cells[each.source]]
        return {name: cells[name] for name in self.columns.domain.names}

    def generate(self, rows: int | None = None) -> dict[str, NDArray[Any]]:
        """Return synthetic rows: the values of every column, NULL as None."""
        return self.decode(self.generate_cells(rows))

    def decode(self, cells: Mapping[str, Integers]) -> dict[str, NDArray[Any]]:
        """Return values of every column from its cells, as `generate_cells` returns them."""
        return {
            column.name: _decode(column, cells[column.name], self.columns.bins.get(column.name))
            for column in self.columns.domain.columns
        }

    def compare(self, cells: Mapping[str, Integers]) -> list[TableError]:
        """Compare the measured tables with the model and with synthetic rows; free, and not with the data.

        Args:
            cells: the rows, as `generate_cells` returns them.

        Returns:
            For every measured table, in the order of measurement, how many rows are in wrong cells.
        """
        errors = []
        for each in self.measured:
            names = tuple(self.columns.names[v] for v in each.variables)
            model = self.expected(each.variables)
            rows = self._count(each.variables, cells)
            rows *= self.model.total / max(rows.sum(), 1.0)
            if each.is_residual:
                model, rows = residual_of(model), residual_of(rows)
            errors.append(
                TableError(
                    names,
                    is_residual=each.is_residual,
                    noise=each.sd * math.sqrt(2 / math.pi) * each.values.size / 2,
                    model=float(np.abs(model - each.values).sum() / 2),
                    rows=float(np.abs(rows - each.values).sum() / 2),
                )
            )
        return errors

    @property
    def unmeasured_pairs(self) -> list[tuple[str, str]]:
        """The pairs of modelled columns that no measured table contains: made up from other tables."""
        names = self.columns.names
        measured = [set(each.variables) for each in self.measured]
        return [
            (names[a], names[b])
            for a, b in combinations(range(len(names)), 2)
            if not any({a, b} <= table for table in measured)
        ]

    def _count(self, variables: Variables, cells: Mapping[str, Integers]) -> Reals:
        """Count rows in modelled cells."""
        shape = self.model.tree.shape(variables)
        places = []
        for v in variables:
            name = self.columns.names[v]
            merging = self.columns.mergings.get(name)
            places.append(cells[name] if merging is None else merging.groups[cells[name]])
        index = np.ravel_multi_index(tuple(places), shape)
        return np.bincount(index, minlength=math.prod(shape)).astype(np.float64).reshape(shape)

    def to_json(self) -> dict[str, Any]:
        """The model as JSON: what was released, and what was computed from it."""
        return {
            "domain": encode_domain(self.columns.domain),
            "mergings": {
                name: [each.groups.tolist(), each.masses.tolist()]
                for name, each in self.columns.mergings.items()
            },
            "bins": {
                name: [[str(edge) for edge in each.grid], each.masses.tolist()]
                for name, each in self.columns.bins.items()
            },
            "total": self.model.total,
            "measured": [
                [list(each.variables), each.values.tolist(), each.sd, each.is_residual]
                for each in self.measured
            ],
            "targets": [
                [list(target.variables), target.values.tolist(), target.ridge.tolist(), parameters.tolist()]
                for target, parameters in zip(self.model.targets, self.model.parameters, strict=True)
            ],
        }

    @classmethod
    def from_json(cls, stored: Any) -> "TableModel":
        """The model that `to_json` stored; anything else raises KeyError, TypeError or ValueError."""
        domain = decode_domain(stored["domain"])
        bins = {name: _decode_bins(domain.column(name), *each) for name, each in stored["bins"].items()}
        mergings = {
            name: _decode_merging(domain.column(name), *each) for name, each in stored["mergings"].items()
        }
        columns = replace(choose_columns(domain, bins), mergings=mergings)
        total = float(stored["total"])
        if not 0 < total <= _MAX_TOTAL:
            raise ValueError
        targets, parameters = [], []
        for variables, values, ridge, fitted in stored["targets"]:
            shape = _decode_shape(columns, variables)
            targets.append(
                Target(tuple(variables), _decode_array(values, shape), _decode_array(ridge, shape))
            )
            parameters.append(_decode_array(fitted, shape))
        model = GraphicalModel.restore(
            columns.sizes, total, columns.masks(), tuple(targets), tuple(parameters)
        )
        measured = tuple(
            Measured(
                tuple(variables),
                _decode_array(values, _decode_shape(columns, variables)),
                float(_decode_array(sd, ())),
                is_residual=bool(is_residual),
            )
            for variables, values, sd, is_residual in stored["measured"]
        )
        if any(each.sd <= 0 for each in measured):
            raise ValueError
        return cls(columns, model, measured)

    def _split_group(self, name: str, groups: Integers) -> Integers:
        """Choose a cell within its merged group, by the noisy one-way table."""
        if name not in self.columns.mergings:
            return groups
        merging = self.columns.mergings[name]
        weights = np.zeros((merging.size, merging.groups.size))
        weights[merging.groups, np.arange(merging.groups.size)] = merging.masses
        return round_by_group(groups, weights)


def _decode_array(values: Any, shape: tuple[int, ...]) -> Reals:
    """Stored numbers of this shape, all finite; anything else raises ValueError or TypeError."""
    array = np.array(values)
    if array.shape != shape or array.dtype.kind not in "if" or not np.isfinite(array).all():
        raise ValueError
    return array.astype(np.float64)


def _decode_shape(columns: ModelledColumns, variables: Any) -> tuple[int, ...]:
    sizes = columns.sizes
    if not variables or list(variables) != sorted(set(variables)) or variables[0] < 0:
        raise ValueError
    return tuple(sizes[variable] for variable in variables)


def _decode_bins(column: Column, grid: Any, masses: Any) -> Bins:
    edges = tuple(map(decode_rational, grid))
    is_sorted = all(low < high for low, high in pairwise(edges))
    numbers = _decode_array(masses, (len(edges) - 1,))
    if not column.is_binned or not is_sorted or not set(column.edges) <= set(edges) or numbers.min() < 0:
        raise ValueError
    return Bins(column, edges, numbers)


def _decode_merging(column: Column, groups: Any, masses: Any) -> Merging:
    cells, numbers = np.array(groups), _decode_array(masses, (column.size,))
    is_known = cells.dtype.kind == "i" and cells.shape == (column.size,)
    if not is_known or cells.min() < 0 or cells.max() >= MAX_CELLS or numbers.min() < 0:
        raise ValueError
    return Merging(cells.astype(np.int64), numbers)


def _decode(column: Column, cells: Integers, bins: Bins | None) -> NDArray[Any]:
    if not column.is_binned:
        values = np.array([None] * column.size, dtype=object)
        for cell in range(column.size):
            value = column.decode(cell)
            values[cell] = column.other_name if value is OTHER else value
        return values[cells]
    numbers = _decode_numbers(column, cells, bins)
    whole = column.holds_integers
    is_null = cells == column.null_cell if column.null_cell is not None else np.zeros(cells.size, dtype=bool)
    if column.kind is ColumnKind.DATES:
        decoded: list[Any] = [to_date(Fraction(day)) for day in numbers]
    elif whole:
        decoded = numbers.astype(np.int64).tolist()
    else:
        decoded = numbers.tolist()
    if not is_null.any() and column.kind is not ColumnKind.DATES:
        return numbers.astype(np.int64) if whole else numbers
    values = np.array(decoded, dtype=object)
    values[is_null] = None
    return values


def _decode_numbers(column: Column, cells: Integers, bins: Bins | None) -> Reals:
    """Return a number within each bin: first a cell of the fine grid by its mass, then evenly within it."""
    edges = np.array([float(edge) for edge in column.edges])
    inner = np.minimum(cells, column.bins - 1)
    low, high = edges[inner], edges[inner + 1]
    if bins is not None:
        grid = np.array([float(edge) for edge in bins.grid])
        bin_of = np.clip(np.searchsorted(edges, grid[:-1], side="right") - 1, 0, column.bins - 1)
        weights = np.zeros((column.bins, bin_of.size))
        # A little for the width of a cell, where no mass was found in a bin.
        even = np.diff(grid) / (grid[-1] - grid[0])
        weights[bin_of, np.arange(bin_of.size)] = bins.masses + 1e-6 * even
        fine = round_by_group(inner, weights)
        low, high = grid[fine], grid[fine + 1]
    if column.unit is None:
        return choose_values_within(low, high, None)
    is_last = (high >= edges[-1]) & (not column.ends_after_last)
    return choose_values_within(low, high, float(column.unit), is_last)


def complete_residual(measured: Reals, expected: Reals) -> Reals:
    """Return a measured residual, completed by what a model expects of its lower tables; it keeps the sum."""
    completed: Reals = measured + expected - residual_of(expected)
    completed += (expected.sum() - completed.sum()) / completed.size
    return completed


def project_to_lower_tables(values: Reals, expected: Reals) -> Reals:
    """Return about the nearest table without negative cells that has the lower tables of the expected one.

    No model has a negative cell: if noise made cells negative, a fit would raise the others of the same row
    beyond what was measured, against the tables of one column, until parameters reach their limit.

    >>> project_to_lower_tables(np.array([[9.0, -3.0], [-3.0, 9.0]]), np.full((2, 2), 3.0)).round(6).tolist()
    [[6.0, 0.0], [0.0, 6.0]]
    """
    lower = expected - residual_of(expected)
    nearest, correction = values, np.zeros(values.shape)
    tolerance = _PROJECTED_TO * expected.sum() / values.size
    # Dykstra's alternating projections onto cells that are not negative, and onto tables with these margins.
    for _ in range(_PROJECTIONS):
        if nearest.min() >= -tolerance:
            break
        shifted = nearest + correction
        positive = np.maximum(shifted, 0.0)
        correction = shifted - positive
        nearest = residual_of(positive) + lower
    projected: Reals = np.maximum(nearest, 0.0)
    projected *= expected.sum() / max(float(projected.sum()), 1e-300)
    return projected


def empirical_ridge(values: Reals, expected: Reals, sd: float) -> Reals:
    """Return the ridge of a measured table: how far its cells seem to be off the model, by itself."""
    return _make_ridge(_estimate_deviations(values, expected, sd), expected, sd)


def _make_ridge(deviations: Reals, expected: Reals, sd: float) -> Reals:
    ridge: Reals = sd**2 * (np.maximum(expected, 0.0) + _GUARD) / (_LOOSER * deviations**2)
    return ridge


def _estimate_deviations(values: Reals, expected: Reals, sd: float) -> Reals:
    """Return how far each cell is off the model: the standard deviation, before it is measured, in rows.

    The relative deviation of a cell is taken to have variance v times one factor for each column's value:
    some values are further off than others. v is estimated from the table beyond its noise, and the factors
    by expectation and maximisation, each held near 1 as by `_HELD_BY` cells.
    """
    weights = 1 / (expected + sd) ** 2
    squares = (values - expected) ** 2
    beyond = float((weights * (squares - sd**2)).sum())
    variance = min(max(beyond / float((weights * expected**2).sum() + 1e-300), 0.03), 16.0)
    guarded = np.maximum(expected, 0.0) + _GUARD
    factors = [
        np.ones([size if at == axis else 1 for at, size in enumerate(values.shape)])
        for axis in range(values.ndim)
    ]
    for _ in range(_FACTOR_STEPS):
        signal = variance * math.prod(factors) * guarded**2
        gain = signal / (signal + sd**2)
        # The expected square of the deviation, given the measurement, in units of v.
        relative = (gain**2 * squares + (1 - gain) * signal) / (variance * guarded**2)
        for axis, own in enumerate(factors):
            away = tuple(at for at in range(values.ndim) if at != axis)
            without = math.prod(factors) / own
            evidence = (gain * relative / without).sum(axis=away, keepdims=True)
            factors[axis] = (evidence + _HELD_BY) / (gain.sum(axis=away, keepdims=True) + _HELD_BY)
    deviations: Reals = np.sqrt(variance * math.prod(factors)) * guarded
    return deviations


def empty_cells(values: Reals, expected: Reals, sd: float) -> NDArray[np.bool_]:
    """Return which cells of a measured table are probably empty, if many are: where one column tells another.

    A cell is either empty, or off the model by a relative deviation of variance v: the share of empty cells
    and v are estimated from the table, by expectation and maximisation.

    >>> empty_cells(np.diag([90.0, 80.0, 70.0]) + 4.0, np.full((3, 3), 27.0), 5.0).tolist()
    [[False, True, True], [True, False, True], [True, True, False]]
    """
    positive = np.maximum(expected, 1e-9)
    squares, weights = (values - positive) ** 2, 1 / (positive + sd) ** 2
    evidence = positive / (positive + sd)
    share, is_empty = 0.1, np.full(values.shape, 0.1)
    for _ in range(_EMPTY_STEPS):
        remaining = weights * (1 - is_empty)
        off = float((remaining * (squares - sd**2)).sum()) / max(
            float((remaining * positive**2).sum()), 1e-300
        )
        spread = sd**2 + min(max(off, 0.03), 1000.0) * positive**2
        log_odds = math.log(share / (1 - share)) - math.log(sd) + np.log(spread) / 2
        log_odds += squares / (2 * spread) - values**2 / (2 * sd**2)
        is_empty = 1 / (1 + np.exp(-np.clip(log_odds, -500.0, 500.0)))
        # As if ten cells more were known, and one of them was empty.
        share = min((float((evidence * is_empty).sum()) + 1) / (float(evidence.sum()) + 10), 0.98)
    result: NDArray[np.bool_] = (is_empty > 0.5) & (share > _LEAST_EMPTY)
    return result


def residual_target(
    measured: Measured, expected: Reals, before: Reals | None = None, ordered: Sequence[int] = ()
) -> Target:
    """Return what a model is to be fitted to: a measured residual, as far as it is not noise.

    Args:
        measured: the residual.
        expected: the table as the model has it, for its lower tables.
        before: the table as the model had it before it was measured, if that is another.
        ordered: for each column how many of its cells, from the first, are in order.
    """
    before, sd = expected if before is None else before, measured.sd
    values = complete_residual(measured.values, expected)
    whole = values if before is expected else complete_residual(measured.values, before)
    is_empty = empty_cells(whole, before, sd)
    deviations = _estimate_deviations(whole, before, sd)
    if is_empty.any():
        likely = np.where(is_empty, 0.0, values)
    else:
        likely = values + smooth_deviations(whole, before, deviations, sd, ordered) - whole
    ridge = _make_ridge(deviations, before, sd)
    return Target(measured.variables, project_to_lower_tables(likely, expected), ridge)


def _adjust(expected: Reals, measured: Measured, ordered: Sequence[int]) -> Reals:
    """Move a table of the model to its measurement as far as that is not noise; its margins stay."""
    table = tilt(expected, residual_target(measured, expected, ordered=ordered))
    for axis in (1, 0) * _MARGIN_SWEEPS:
        sums = table.sum(axis=axis, keepdims=True)
        table *= np.where(sums > 0, expected.sum(axis=axis, keepdims=True) / np.maximum(sums, 1e-300), 0.0)
    return table


def residual_of(table: Reals) -> Reals:
    """Return the part of a table with zero sums along every axis."""
    result = table
    for axis in range(table.ndim):
        result = result - result.mean(axis=axis, keepdims=True)
    return result
