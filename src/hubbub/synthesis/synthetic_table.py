"""Synthetic rows as a released table, and a model of the tables of a synopsis: all is post-processing."""

import math
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hubbub.engines.schema import Kind, infer_kind
from hubbub.errors import InvalidInput, Unsupported
from hubbub.numbers import parse_integer
from hubbub.sql.post_processing import ResultColumn
from hubbub.sql.result import Result
from hubbub.synthesis.counting import Integers
from hubbub.synthesis.domain import Column, ColumnKind, Domain
from hubbub.synthesis.graphical_model import GraphicalModel, Reals, Target
from hubbub.synthesis.junction_tree import count_cells
from hubbub.synthesis.measured_tables import MeasuredTables
from hubbub.synthesis.modelled_columns import compute_large_functions
from hubbub.synthesis.row_generation import generate_cells
from hubbub.synthesis.table_model import TableModel, empirical_ridge
from hubbub.synthesis.value_swaps import round_to_tables

__all__ = ["fit_to_tables", "make_consistent_rows", "make_metadata", "make_rows"]

_SWEEPS = 100
_MAX_ROWS = 1 << 27
_MAX_MODEL_CELLS = 1 << 25
_MAX_CONSISTENT = 1 << 22
_CONSISTENT_SWEEPS = 40
_LEAST_SD = 1e-3
"""In rows. Noise that is rounded to 0, at an enormous ε, has a variance of 0, and precisions are finite."""
NOTES = (
    "the rows are made up: none of them is a person's, and rows that look alike say nothing about anybody",
    "standard errors computed from these rows as if they were data are too small: they ignore the noise",
)


def make_rows(model: TableModel, rows: int | None, facts: Mapping[str, Any]) -> Result:
    """Synthetic rows, with the columns of the source in their order.

    Args:
        model: the fitted model.
        rows: how many; the estimated number of rows of the source if None.
        facts: the label of what was measured.
    """
    count = None if rows is None else parse_integer(rows, "rows")
    if count is not None and count > _MAX_ROWS:
        raise InvalidInput(
            f"more than {_MAX_ROWS} rows are asked for",
            why="they are made in memory",
            fix="make them in several files",
        )
    cells = model.generate_cells(count)
    values = model.decode(cells)
    columns = tuple(
        ResultColumn(
            column.name,
            _plain(values[column.name], column),
            kind=_kind(column),
            is_integer=column.holds_integers,
        )
        for column in model.columns.domain.columns
    )
    notes = [*facts.get("notes", []), *NOTES]
    return Result(columns, {**facts, "synthetic rows": True, **_describe_fit(model, cells), "notes": notes})


def _describe_fit(model: TableModel, cells: Mapping[str, Integers]) -> dict[str, Any]:
    """Which tables the rows follow, how well, and which they do not: compared with what was released."""
    if not model.measured:
        names = model.columns.names
        tables = [" × ".join(names[v] for v in target.variables) for target in model.model.targets]
        return {"follows the tables of": tables, "does not follow": "any other table"}
    errors = model.compare(cells)
    pairs = [" × ".join(pair) for pair in model.unmeasured_pairs]
    return {
        "rows in wrong cells of measured tables": {
            ("residual of " if each.is_residual else "") + " × ".join(each.columns): {
                "noise": round(each.noise, 1),
                "model": round(each.model, 1),
                "rows": round(each.rows, 1),
            }
            for each in errors
        },
        "pairs that were not measured": pairs,
        "does not follow": "tables of three columns and more, except those above",
    }


def _kind(column: Column) -> Kind:
    if column.kind is ColumnKind.CATEGORIES:
        return infer_kind(column.categories)
    return Kind.NUMBER if column.kind is ColumnKind.NUMBERS else Kind.DATE


def _plain(values: NDArray[Any], column: Column) -> NDArray[Any]:
    if _kind(column) is not Kind.NUMBER:
        return values.astype(object)
    # A number that is NULL is NaN in a result, and so is one of other categories: it has no value.
    is_known = [isinstance(value, (int, float)) for value in values.tolist()]
    return np.where(is_known, values, math.nan).astype(np.float64)


def make_metadata(name: str, domain: Domain) -> dict[str, Any]:
    """The columns of synthetic rows, as the metadata of SDV describes tables (METADATA_SPEC_VERSION V1).

    Args:
        name: the table's name.
        domain: its columns.
    """
    columns: dict[str, Any] = {}
    for column in domain.columns:
        kind = _kind(column)
        if column.kind is ColumnKind.CATEGORIES:
            columns[column.name] = {"sdtype": "boolean" if kind is Kind.BOOLEAN else "categorical"}
        elif kind is Kind.DATE:
            columns[column.name] = {"sdtype": "datetime", "datetime_format": "%Y-%m-%d"}
        else:
            stored = {"computer_representation": "Int64"} if column.holds_integers else {}
            columns[column.name] = {"sdtype": "numerical", **stored}
    return {"METADATA_SPEC_VERSION": "V1", "tables": {name: {"columns": columns}}, "relationships": []}


def make_consistent_rows(model: TableModel, measured: MeasuredTables) -> list[Integers]:
    """The cells of made-up rows, by column, with tables near all measured ones of one and two columns.

    Tables that are counted of them are whole, not negative, obey all rules, and agree with each other.

    Args:
        model: the model of the measured tables.
        measured: the tables.
    """
    count = round(max(0.0, measured.total[0]))
    if count > _MAX_CONSISTENT:
        raise Unsupported(
            f"consistent tables of more than {_MAX_CONSISTENT} rows are asked for",
            why="they are counted from rows that are made in memory",
            fix='use version="integer", where only the total agrees',
        )
    names = model.columns.names
    pairs: dict[tuple[int, ...], Reals] = {
        (one, two): measured.nonnegative((names[one], names[two]))
        for one, two in combinations(range(len(names)), 2)
        if measured.covers((names[one], names[two]))
    }
    cells = round_to_tables(model.model, generate_cells(model.model, count), None, pairs, _CONSISTENT_SWEEPS)
    completed = model.complete(cells)
    return [completed[name] for name in measured.domain.names]


def fit_to_tables(measured: MeasuredTables) -> TableModel:
    """A model of all columns, fitted to the tables of one column and a tree of pairs of a synopsis.

    The pairs are those that depend on each other most, by their own noisy tables: a maximum spanning tree, or
    a star if there is a focus. Pairs that were not measured are taken to be independent.
    """
    domain = measured.domain
    missing = [name for name in domain.names if not measured.covers((name,))]
    if missing:
        raise InvalidInput(
            f"the table of {missing[0]} was not measured",
            why="every column of a synthetic row needs its own table",
            fix="measure all tables of one column, as workload=1 or 2 does",
        )
    columns = compute_large_functions(domain)
    names, masks = columns.names, columns.masks()
    pairs = _choose_pairs(measured, names)
    cells = count_cells(columns.sizes, [*pairs, *(mask.variables for mask in masks)])
    if cells > _MAX_MODEL_CELLS:
        raise Unsupported(
            f"the rules connect columns to tables of up to {cells} cells",
            why="all columns of connected rules are modelled together",
            fix="ask the synopsis for answers; or make another with fewer rules or coarser categories",
        )
    total = max(1.0, measured.total[0])
    targets = []
    for variable, name in enumerate(names):
        values, sd = measured.estimate((name,)), max(_LEAST_SD, measured.standard_deviation((name,)))
        values = values + (total - values.sum()) / values.size
        targets.append(Target((variable,), values, sd**2 / (100 * (np.maximum(values, 0.0) + sd))))
    model = GraphicalModel.uniform(columns.sizes, total=total, masks=masks).fit(targets)
    tables = []
    for one, two in pairs:
        pair = (names[one], names[two])
        values, sd = measured.estimate(pair), max(_LEAST_SD, measured.standard_deviation(pair))
        values = values + (total - values.sum()) / values.size
        tables.append(Target((one, two), values, empirical_ridge(values, model.marginal((one, two)), sd)))
    return TableModel(columns, model.fit(tables, sweeps=_SWEEPS), ())


def _choose_pairs(measured: MeasuredTables, names: Sequence[str]) -> list[tuple[int, int]]:
    """A tree of pairs: those of the focus first, then those with the most mutual information."""
    focus = measured.domain.focus
    scored = []
    for one in range(len(names)):
        for two in range(one + 1, len(names)):
            pair = (names[one], names[two])
            if measured.covers(pair) and min(measured.domain.shape(pair)) > 1:
                is_function = any(
                    {each.target, each.source} == set(pair) for each in measured.domain.functions
                )
                scored.append((not is_function, focus not in pair, -_dependence(measured, pair), one, two))
    parents = list(range(len(names)))

    def root(variable: int) -> int:
        while parents[variable] != variable:
            variable = parents[variable]
        return variable

    chosen = []
    for *_, one, two in sorted(scored):
        if root(one) != root(two):
            parents[root(one)] = root(two)
            chosen.append((one, two))
    return chosen


def _dependence(measured: MeasuredTables, pair: tuple[str, str]) -> float:
    """How far a noisy table is from independence, beyond what its noise explains, in rows."""
    table = measured.estimate(pair)
    total = max(1.0, float(table.sum()))
    one, two = np.maximum(table.sum(1), 0.0), np.maximum(table.sum(0), 0.0)
    expected = np.outer(one, two) / total
    sd = measured.standard_deviation(pair)
    return float(np.maximum(np.abs(table - expected) - 0.8 * sd, 0.0).sum())
