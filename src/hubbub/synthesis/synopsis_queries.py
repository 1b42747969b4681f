"""SQL over a synopsis: every answer is a sum of cells of one measured table, with its interval.

The cells of the table are public: each is written out as rows with its values, the query's own row-level SQL
is run on these, and says which cells count in which group. A condition that divides a bin is refused.
Everything here is post-processing; no protected row is near.

Proof: docs/proofs/synopsis.md, "Intervals"
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import duckdb
import numpy as np
from numpy.typing import NDArray
from sqlglot import exp

from hubbub.engines.duckdb import DuckDB
from hubbub.engines.engine import TableSource
from hubbub.engines.schema import Key, Kind, Table, infer_kind
from hubbub.errors import InvalidInput, Unsupported
from hubbub.numbers import Number, parse_probability
from hubbub.sql.aggregate import Affine
from hubbub.sql.analyzer import analyze, parse
from hubbub.sql.moments import Estimate
from hubbub.sql.post_processing import ResultColumn, compile_outputs
from hubbub.sql.query import Groups, Query
from hubbub.synthesis.domain import Column, ColumnKind, Domain, Interval, to_date
from hubbub.synthesis.measured_tables import GroupedCombinations, MeasuredTables, interval, ratio_interval
from hubbub.synthesis.prefix_sums import MeasuredRange
from hubbub.synthesis.synopsis_points import choose_points, is_bare
from hubbub.synthesis.workload import Names

__all__ = ["answer_query"]

_MAX_ROWS = 1 << 21
_MAX_GROUPS = 1 << 16
_SUPPORTED = "use COUNT(*), COUNT(x), COUNT(*) FILTER (WHERE …), SUM and AVG of values that bins determine"


def answer_query(
    text: str, table: str, measured: MeasuredTables | MeasuredRange, confidence: Number
) -> tuple[list[ResultColumn], Names]:
    """The columns of an answer, and the columns of the measured table that it is computed from.

    Args:
        text: one SELECT statement over the synopsis's table.
        table: the name of that table.
        measured: the measured tables.
        confidence: the confidence of each interval.
    """
    statement, _ = parse(text)
    sure = parse_probability(confidence, "confidence")
    _check_shape(statement)
    domain = measured.domain
    schema = _schema(table, domain)
    query = analyze(statement, {table: schema}, rows_are_units=True, text=text)
    post_processing = compile_outputs(query)
    # The rows of the table are listed with all columns; those that the query itself names are outside it.
    outer = [*query.rows.expressions, *([query.rows.args["where"]] if query.rows.args.get("where") else [])]
    used = {node.name.lower() for part in outer for node in part.find_all(exp.Column)}
    names = tuple(name for name in domain.names if name.lower() in used)
    if not measured.covers(names):
        measured.estimate(names)  # raises, and says what was measured
    cells = _Cells(domain, names, query, table, schema)
    groups = cells.groups
    if len(groups) > _MAX_GROUPS:
        raise Unsupported(
            f"the answer has more than {_MAX_GROUPS} groups",
            why="each has an interval of its own",
            fix="group by fewer columns",
        )
    functions = _Functions(query, cells)
    combined = measured.combine_groups(names, cells.group_of_cell, len(groups), functions.weights)
    answers = _Answers(combined, functions)
    return post_processing.evaluate(groups, answers.estimate, sure, answers.ratio), names


def _check_shape(statement: exp.Expr) -> None:
    source = statement.args.get("from_") or statement.args.get("from")
    is_plain = source is not None and isinstance(source.this, exp.Table)
    if not is_plain or statement.find(exp.Join, exp.Subquery, exp.CTE, exp.SetOperation, exp.Window):
        raise Unsupported(
            "the query is not one plain SELECT from one table",
            why="a synopsis holds tables of counts, and no rows to join",
            fix="write SELECT … FROM one table, with WHERE, GROUP BY, HAVING and ORDER BY",
        )


def _schema(table: str, domain: Domain) -> Table:
    kinds: dict[str, Kind] = {}
    for column in domain.columns:
        if column.kind is ColumnKind.NUMBERS:
            kinds[column.name] = Kind.NUMBER
        elif column.kind is ColumnKind.DATES:
            kinds[column.name] = Kind.DATE
        else:
            kinds[column.name] = infer_kind(column.categories)
    bounds = {column.name: column.bounds for column in domain.columns if column.kind is ColumnKind.NUMBERS}
    keys = {
        column.name: [*column.categories, *([None] if column.is_nullable else [])]
        for column in domain.columns
        if not column.is_binned and (column.categories or column.is_nullable)
    }
    return Table.of(table, kinds, bounds=bounds, keys=keys)


class _Cells:
    """Which cells of a table a query counts in which group, from its own SQL on their values."""

    def __init__(self, domain: Domain, names: Names, query: Query, table: str, schema: Table) -> None:
        self._domain, self._names, self._query = domain, names, query
        self._shape = domain.shape(names)
        points = [choose_points(domain.column(name), query) for name in names]
        if math.prod(len(each.values) for each in points) > _MAX_ROWS:
            raise Unsupported(
                "the query has too many cells",
                why="it is evaluated on the values of every cell",
                fix="use fewer columns in one query",
            )
        sizes = [len(each.values) for each in points]
        index = np.indices(sizes).reshape(len(points), math.prod(sizes))
        own = [each.cells[place] for each, place in zip(points, index, strict=True)]
        self._cell = np.ravel_multi_index(tuple(own), self._shape) if names else np.zeros(1, dtype=np.int64)
        self._own = dict(zip(names, own, strict=True))
        columns = {
            name: [each.values[place] for place in places]
            for name, each, places in zip(names, points, index, strict=True)
        }
        self._evaluated = _evaluate(query, table, schema, columns, max(1, self._cell.size))

    @cached_property
    def _is_inside(self) -> NDArray[np.bool_]:
        inside = np.zeros(self._cell.size, dtype=bool)
        inside[self._evaluated["m0"]] = True
        return inside

    def column(self, name: str) -> NDArray[Any]:
        """The values of an expression, by point; None for points that the WHERE leaves out."""
        values = np.full(self._cell.size, None, dtype=object)
        values[self._evaluated["m0"]] = self._evaluated[name]
        return values

    def by_cell(self, values: Sequence[Any], *, is_summed: bool = False) -> list[Any]:
        """The one value of each cell; refuses values that differ within a cell."""
        result: list[Any] = [_UNSET] * math.prod(self._shape)
        for cell, value in zip(self._cell.tolist(), values, strict=True):
            if result[cell] is _UNSET:
                result[cell] = value
            elif result[cell] != value:
                raise self._sums_a_bin() if is_summed else self._divides_a_bin()
        return result

    def _sums_a_bin(self) -> InvalidInput:
        return InvalidInput(
            "the values of a bin differ, so that they have no sum",
            why="only the rows of a bin were counted",
            fix="count rows by bin; sums need a step, and a bin for each value",
        )

    def _divides_a_bin(self) -> InvalidInput:
        binned = [name for name in self._names if self._domain.column(name).is_binned]
        listed = "; ".join(f"{name} at {_describe_cuts(self._domain.column(name))}" for name in binned)
        return InvalidInput(
            "the query divides a bin",
            why="only whole bins were counted",
            fix=f"use the cuts of the bins: {listed}",
        )

    @cached_property
    def is_counted(self) -> NDArray[np.bool_]:
        """True for the cells that the WHERE keeps."""
        return np.array([value is True for value in self.by_cell(self._is_inside.tolist())], dtype=bool)

    @cached_property
    def _keys(self) -> list[list[Any]]:
        """The group keys of every cell; of a bare binned column, the start of the bin."""
        keys = []
        for place, key in enumerate(self._query.keys):
            values = self.column(f"k{place}")
            column = self._bare_binned(place)
            if column is not None:
                starts = [_start(column, cell) for cell in range(column.size)]
                values = np.array([starts[cell] for cell in self._own[column.name]], dtype=object)
                values[~self._is_inside] = None
            keys.append(self.by_cell([_plain(value, key.kind) for value in values.tolist()]))
        return keys

    def _bare_binned(self, place: int) -> Column | None:
        expression = next(each for each in self._query.rows.expressions if each.alias == f"k{place}")
        name = next((each for each in self._names if is_bare(expression.this, each)), None)
        if name is None or self._query.keys[place].name.lower() != name.lower():
            return None
        column = self._domain.column(name)
        return column if column.is_binned else None

    @cached_property
    def groups(self) -> Groups:
        """All groups: of declared categories all, of other expressions those that some cell has."""
        listed: list[tuple[Key, ...]] = []
        for key, values in zip(self._query.keys, self._keys, strict=True):
            if key.values is not None:
                listed.append(tuple(key.values))
                continue
            distinct = {value for value, is_in in zip(values, self.is_counted, strict=True) if is_in}
            listed.append(tuple(sorted(distinct, key=lambda value: (value is None, value))))
        return Groups(tuple(listed))

    @cached_property
    def group_of_cell(self) -> NDArray[np.int64]:
        """The group of each cell, −1 for none; of the table's shape."""
        place = {group: index for index, group in enumerate(self.groups)}
        rows = zip(*self._keys, strict=True) if self._keys else itertools.repeat((), self.is_counted.size)
        index = [place.get(tuple(row), -1) for row in rows]
        return np.where(self.is_counted, index, -1).astype(np.int64).reshape(self._shape)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the table."""
        return self._shape


_UNSET = object()


class _Functions:
    """The linear functions of cells that the aggregate calls are made of."""

    def __init__(self, query: Query, cells: _Cells) -> None:
        self._cells = cells
        self._list: list[NDArray[np.float64]] = []
        self.parts: list[tuple[int, int | None]] = []
        """For each call the index of its function, and of the one that it is divided by, if any."""
        for call in query.aggregates:
            if call.per_group is not None or call.kind not in {"count", "units", "sum", "mean"}:
                raise Unsupported(
                    f"{call.kind} is not an answer of a synopsis",
                    why="it holds counts of cells",
                    fix=_SUPPORTED,
                )
            if not call.arguments:
                self.parts.append((self._add(np.ones(cells.shape)), None))
                continue
            points = cells.column(f"kx{call.arguments[0]}")
            # A count needs no value: the values of a bin may differ, if all or none of them are NULL.
            is_present = cells.by_cell([value is not None for value in points.tolist()])
            present = np.array(is_present, dtype=np.float64)
            if call.kind == "count":
                self.parts.append((self._add(present.reshape(cells.shape)), None))
                continue
            values = cells.by_cell(points.tolist(), is_summed=True)
            numbers = np.array([_number(value) for value in values])
            total = self._add(numbers.reshape(cells.shape))
            divisor = self._add(present.reshape(cells.shape)) if call.kind == "mean" else None
            self.parts.append((total, divisor))

    def _add(self, weights: NDArray[np.float64]) -> int:
        self._list.append(weights)
        return len(self._list) - 1

    @property
    def weights(self) -> NDArray[np.float64]:
        """All functions, stacked."""
        return np.stack(self._list) if self._list else np.zeros((0, *self._cells.shape))


@dataclass(frozen=True)
class _Answers:
    """Estimates of the aggregate calls."""

    combined: GroupedCombinations
    functions: _Functions

    def estimate(self, index: int, confidence: Number) -> Estimate:
        top, bottom = self.functions.parts[index]
        values, covariances = self.combined.values, self.combined.covariances
        if bottom is None:
            return interval(values[:, top], covariances[:, top, top], confidence, self.combined.deviations)
        return ratio_interval(
            (values[:, top], values[:, bottom]),
            (covariances[:, top, top], covariances[:, bottom, bottom]),
            covariances[:, top, bottom],
            confidence,
            self.combined.deviations,
        )

    def ratio(self, top: Affine, bottom: Affine, confidence: Number) -> Estimate | None:
        used = {*top[0], *bottom[0]}
        if any(self.functions.parts[index][1] is not None for index in used):
            return None
        one, two = self._row(top[0]), self._row(bottom[0])
        covariances = self.combined.covariances
        return ratio_interval(
            (self.combined.values @ one + top[1], self.combined.values @ two + bottom[1]),
            (
                np.einsum("a,gab,b->g", one, covariances, one),
                np.einsum("a,gab,b->g", two, covariances, two),
            ),
            np.einsum("a,gab,b->g", one, covariances, two),
            confidence,
            self.combined.deviations,
        )

    def _row(self, form: Mapping[int, float]) -> NDArray[np.float64]:
        row = np.zeros(self.combined.values.shape[1])
        for index, factor in form.items():
            row[self.functions.parts[index][0]] += factor
        return row


def _evaluate(
    query: Query, table: str, schema: Table, columns: Mapping[str, list[Any]], count: int
) -> Mapping[str, NDArray[Any]]:
    """The query's row-level SQL on public values: keys and arguments, and the numbers of rows it keeps."""
    tree = query.rows.copy()
    listing = (tree.args.get("from_") or tree.args["from"]).this
    # Rows are numbered in a column of their own, which no query can name.
    number_name, known = "number", {column.name.lower() for column in schema.columns}
    while number_name in known:
        number_name += "_"
    number = exp.column(exp.to_identifier(number_name, quoted=True))
    listing.this.append("expressions", number.copy())
    number.set("table", exp.to_identifier(listing.alias_or_name, quoted=True))
    for each in tree.expressions:
        if each.alias.startswith("x"):  # as a key, so that the engine keeps what is NULL
            each.set("alias", exp.to_identifier(f"k{each.alias}"))
    tree.append("expressions", exp.alias_(exp.Cast(this=number, to=exp.DataType.build("BIGINT")), "m0"))
    types = {Kind.NUMBER: "DOUBLE", Kind.DATE: "DATE", Kind.BOOLEAN: "BOOLEAN", Kind.TIMESTAMP: "TIMESTAMP"}
    parameters: dict[str, list[Any]] = {}
    listed = [f'CAST(UNNEST(range({count})) AS DOUBLE) AS "{number_name}"']
    for place, column in enumerate(schema.columns):
        kind = types.get(column.kind, "VARCHAR")
        name = '"' + column.name.replace('"', '""') + '"'
        if column.name in columns:
            parameters[f"c{place}"] = columns[column.name]
            listed.append(f"CAST(UNNEST($c{place}) AS {kind}) AS {name}")
        else:
            listed.append(f"CAST(NULL AS {kind}) AS {name}")
    quoted = '"' + table.replace('"', '""') + '"'
    with duckdb.connect(":memory:") as connection:
        connection.execute(f"CREATE TABLE {quoted} AS SELECT {', '.join(listed)}", parameters)
        kinds = {column.name: column.kind for column in schema.columns}
        source = TableSource(table, types={**kinds, number_name: Kind.NUMBER})
        engine = DuckDB({table: source}, connection)
        return engine.execute(tree, {})


def _describe_cuts(column: Column) -> str:
    cuts = [
        str(to_date(cut)) if column.kind is ColumnKind.DATES else f"{float(cut):g}" for cut in column.cuts
    ]
    return ", ".join(cuts[:8]) + (", …" if len(cuts) > 8 else "")


def _start(column: Column, cell: int) -> Key:
    label = column.decode(cell)
    if not isinstance(label, Interval):
        return None
    return to_date(label.low) if column.kind is ColumnKind.DATES else float(label.low)


def _plain(value: Any, kind: Kind) -> Any:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return None
    return float(value) if kind is Kind.NUMBER else value


def _number(value: Any) -> float:
    return float(value) if isinstance(value, (int, float, np.floating, np.integer)) else 0.0
