"""The released table: columns of keys, columns of values with their intervals, and a label.

It is public, and converts to pandas, Polars, Arrow, CSV, JSON, Markdown, HTML, Excel, SVG and PNG.
"""

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hubbub.accounting.codec import decode_cell, encode_cell
from hubbub.engines.schema import Kind
from hubbub.engines.total_functions import SQL_TYPES
from hubbub.errors import InvalidInput
from hubbub.escaping import escape
from hubbub.numbers import format_up
from hubbub.output_files import check_output_path, write_output
from hubbub.report import result_files
from hubbub.report.pages import html_text
from hubbub.report.text_tables import (
    align_rows,
    count_of,
    describe_cuts,
    describe_post_processing,
    format_rows,
)
from hubbub.sql.post_processing import ResultColumn

if TYPE_CHECKING:
    from hubbub.report.result_charts import Chart

__all__ = ["Result"]

_FORMAT = "hubbub result/1"
_EXACT = 2.0**53
"""Below it every whole number is a double."""
_HTML_ROWS = 60


@dataclass(frozen=True, eq=False)
class Result:
    """A released table of answers.

    >>> column = ResultColumn("n", np.array([5.0]), np.array([2.0]), np.array([8.0]), is_integer=True)
    >>> result = Result((column,), {"epsilon": "1"})
    >>> result.to_dict()
    {'n': [5], 'n_low': [2], 'n_high': [8]}
    >>> Result.from_json(result.to_json()).to_dict() == result.to_dict()
    True
    """

    columns: tuple[ResultColumn, ...]
    facts: Mapping[str, Any]
    """What was protected, how, and at what cost."""

    def __len__(self) -> int:
        return len(self.columns[0].values) if self.columns else 0

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Iterate over the rows, as dictionaries."""
        table = self.to_dict()
        for place in range(len(self)):
            yield {name: values[place] for name, values in table.items()}

    def __getitem__(self, name: str) -> list[Any]:
        """Return a column; an answer `n` also has `n_low` and `n_high`."""
        return self.to_dict()[name]

    def to_dict(self) -> dict[str, list[Any]]:
        """Return the columns by name, with the ends of the intervals. Counts are integers.

        A missing value is None, and so is the end of a count's interval that is open there.
        """
        out: dict[str, list[Any]] = {}
        for column in self.columns:
            number = _to_integer if column.is_integer else _plain
            out[column.name] = [number(value) for value in column.values]
            if column.low is not None and column.high is not None:
                end = _to_integer if column.is_integer else float
                out[f"{column.name}_low"] = [end(value) for value in column.low]
                out[f"{column.name}_high"] = [end(value) for value in column.high]
        return out

    def to_pandas(self) -> Any:
        """Return a pandas data frame."""
        import pandas as pd

        # Of texts: objects, or in newer versions texts of their own.
        types: dict[_ColumnType, Any] = {
            _INTEGER: "Int64",
            Kind.NUMBER: "float64",
            Kind.BOOLEAN: "boolean",
            Kind.TIMESTAMP: "datetime64[us]",
            Kind.TEXT: pd.Series(["a"]).dtype,
        }
        kinds = _kinds(self.columns)
        return pd.DataFrame(
            {
                name: pd.Series(values, dtype=types.get(kinds[name], None if values else "object"))
                for name, values in self.to_dict().items()
            }
        )

    def to_polars(self) -> Any:
        """Return a Polars data frame."""
        import polars as pl

        types: dict[_ColumnType, Any] = {
            _INTEGER: pl.Int64,
            Kind.NUMBER: pl.Float64,
            Kind.TEXT: pl.String,
            Kind.BOOLEAN: pl.Boolean,
            Kind.DATE: pl.Date,
            Kind.TIMESTAMP: pl.Datetime("us"),
        }
        schema = {name: types.get(kind) for name, kind in _kinds(self.columns).items()}
        return pl.DataFrame(self.to_dict(), schema=schema, strict=False)

    def to_arrow(self) -> Any:
        """Return a pyarrow table."""
        import pyarrow as pa

        types: dict[_ColumnType, Any] = {
            _INTEGER: pa.int64(),
            Kind.NUMBER: pa.float64(),
            Kind.TEXT: pa.string(),
            Kind.BOOLEAN: pa.bool_(),
            Kind.DATE: pa.date32(),
            Kind.TIMESTAMP: pa.timestamp("us"),
        }
        kinds = _kinds(self.columns)
        return pa.table(
            {name: pa.array(values, types.get(kinds[name])) for name, values in self.to_dict().items()}
        )

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """Export the table through Arrow's C stream interface; needs no pyarrow."""
        return self.relation().__arrow_c_stream__(requested_schema)

    def to_csv(self) -> str:
        """Return comma-separated values, with a header; digits follow the widths of intervals."""
        return result_files.render_text(self, "csv")

    def to_markdown(self) -> str:
        """Return the table and its guarantee as Markdown."""
        return result_files.render_text(self, "md")

    def to_html(self) -> str:
        """Return a page that stands alone: the question, the table, a chart and the guarantee."""
        return result_files.render_html(self)

    def to_json(self) -> str:
        """Return the table and its label as they are stored: by columns, with all digits.

        `from_json` reads it back. A file that `write` makes has a row for each group instead.
        """
        columns = [_stored_column(column) for column in self.columns]
        stored = {"format": _FORMAT, "columns": columns, "label": dict(self.facts)}
        return json.dumps(stored, ensure_ascii=False, allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> "Result":
        """Read what `to_json` returned, or a JSON file that `write` made."""
        try:
            stored = json.loads(text)
            if stored["format"] not in {_FORMAT, result_files.TABLE_FORMAT}:
                raise ValueError  # noqa: TRY301 - said below, with all else that may be wrong
            columns = [
                _read_column(each) if stored["format"] == _FORMAT else _column_of_rows(each, stored["rows"])
                for each in stored["columns"]
            ]
            return cls(tuple(columns), dict(stored["label"]))
        except (KeyError, TypeError, ValueError, AttributeError):
            raise InvalidInput(
                "the text is not a stored table of answers",
                why="it cannot be read",
                fix="pass what to_json() wrote",
            ) from None

    def write(self, path: str | Path) -> None:
        """Write a file; its suffix decides the format.

        .csv, .json, .ndjson, .parquet, .html, .md, .xlsx, .svg, .png or .txt. The file appears only when it
        is complete. A file of rows, a ledger or a key is never overwritten.
        """
        check_output_path(path, tuple(result_files.ENDINGS))
        form = result_files.ENDINGS[Path(path).suffix.lower()]
        result_files.check_format(form)
        write_output(path, self._render(form), tuple(result_files.ENDINGS))

    def _render(self, form: str) -> str | Callable[[Path], object]:
        if form == "parquet":
            return lambda part: self.relation().write_parquet(str(part))
        if form in {"xlsx", "png"}:
            content = result_files.render_bytes(self, form)
            return lambda part: part.write_bytes(content)
        return result_files.render_text(self, form)

    def relation(self, connection: Any = None) -> Any:
        """Return the table as a DuckDB relation, in `connection` or in a new in-memory database."""
        import duckdb

        connection = connection or duckdb.connect(":memory:")
        # The values do not determine the types: all may be missing, or there may be none.
        types = {name: _sql_type(kind) for name, kind in _kinds(self.columns).items()}
        if len(self) and (arrays := _arrays(self.columns)) is not None:
            connection.register("_answers", arrays)
            return connection.table("_answers").project(
                ", ".join(f"{_cast(_quoted(name), types[name])} AS {_quoted(name)}" for name in arrays)
            )
        table = self.to_dict()
        names = ", ".join(map(_quoted, table))
        parts = ", ".join(_cast(f"UNNEST($c{place})", types[name]) for place, name in enumerate(table))
        parameters = {f"c{place}": values for place, values in enumerate(table.values())}
        return connection.sql(
            f"SELECT * FROM (SELECT {parts}) AS answers({names})",  # noqa: S608 - names are quoted
            params=parameters,
        )

    # Free post-processing

    def consistent(self, column: str | None = None, *, integer: bool = True) -> "Result":
        """Return the table with one more column: non-negative answers with the same total.

        For many small counts it is closer to the truth than the raw answers, on average, and it adds up to
        the same total; clipping at 0 would not. It is biased and has no interval. The raw column stays.

        >>> column = ResultColumn("n", np.array([7.2, -3.0, 0.8]), np.zeros(3) - 9, np.zeros(3) + 9)
        >>> Result((column,), {}).consistent("n")["n_consistent"]
        [5, 0, 0]

        Args:
            column: a column of counts, or of sums that cannot be negative; may be left out if there is one.
            integer: false for sums that are not integers.

        Guarantee: a function of this table alone.
        Proof: docs/proofs/post-processing.md
        """
        return self.consistent_with((), column, integer=integer)[0]

    def consistent_with(
        self, totals: Sequence["Result"], column: str | None = None, *, integer: bool = True
    ) -> tuple["Result", ...]:
        """Return this table and tables of totals, each with one more column, with sums that agree.

        Non-negative least squares, each answer weighted by the width of its interval; then rounding.

        Args:
            totals: tables by fewer keys, with the same column. The groups of this table must cover all rows
                that a total counts.
            column: as in `consistent`.
            integer: as in `consistent`.

        Guarantee: a function of these tables alone.
        Proof: docs/proofs/post-processing.md
        """
        from hubbub.sql import consistency

        name, values, variances = _noisy_column(self, column)
        margins = [_margin(self, other, name) for other in totals]
        if not margins:
            total = max(0.0, float(values.sum()))
            place = np.zeros(values.size, dtype=np.intp)
            margins = [consistency.Margin(place, np.array([total]), np.zeros(1))]
        fit: NDArray[Any] = consistency.fit_nonnegative(values, variances, margins)
        if integer:
            finest = max(margins, key=lambda margin: margin.totals.size)
            fit = consistency.round_to_totals(fit, finest.places, finest.totals.size)
        sums = [margin.sums(fit.astype(np.float64)) for margin in margins[: len(totals)]]
        note = "non-negative, post-processed; biased, no interval; adds up to " + (
            "the same total" if not totals else "totals that agree"
        )
        return tuple(
            _with_column(table, name, answers, note, integer=integer)
            for table, answers in zip((self, *totals), (fit, *sums), strict=True)
        )

    # For people

    def __str__(self) -> str:
        why = [str(self.facts["nothing shown"])] if "nothing shown" in self.facts else []
        processed = describe_post_processing(self.facts)
        notes = map(escape, [*describe_cuts(self.facts, declared=True), *why, *processed])
        return "\n".join([*align_rows(format_rows(self)), *notes])

    def __repr__(self) -> str:
        names = ", ".join(escape(column.name) for column in self.columns)
        return f"Result({count_of(len(self), 'row')} of {names})"

    def _repr_html_(self) -> str:
        caption = html_text(_caption(self.facts))
        return f"{result_files.html_table(self, _HTML_ROWS)}<p><small>{caption}</small></p>"

    def svg(self, column: str | None = None) -> str:
        """Return a chart of one answer, or of all, with intervals, as SVG."""
        from hubbub.report.result_charts import draw_result

        return draw_result(self, column)

    def plot(self, column: str | None = None) -> "Chart":
        """Return a chart that a notebook shows; `plot().svg` is its SVG.

        Args:
            column: the answer to draw; all of them, up to six, if omitted.
        """
        from hubbub.report.result_charts import Chart

        return Chart(self.svg(column))


_ADDITIVE = frozenset({"count", "units", "sum"})
"""Kinds of answers that are 0 or more, and add up."""


def _noisy_column(table: Result, column: str | None) -> tuple[str, NDArray[np.float64], NDArray[np.float64]]:
    """The name of a column, its values, and the squares of their half-widths: variances, but for a factor."""
    noisy = {each.name: each for each in table.columns if each.low is not None and each.high is not None}
    if column is None and len(noisy) == 1:
        (column,) = noisy
    if column not in noisy:
        is_computed = any(column == each.name and each.kind is Kind.NUMBER for each in table.columns)
        sums = "; for totals by ROLLUP, CUBE or GROUPING SETS ask for the finest groups, and add up their"
        raise InvalidInput(
            "the column is not one of the answers with an interval"
            if column is not None
            else "there is not exactly one column of answers",
            why="counts are adjusted by how precise each is, and sums may be negative",
            fix="pass the name of a column of counts, or of sums that cannot be negative"
            + (f": {', '.join(noisy)}" if noisy else "")
            + (f"{sums} consistent answers" if is_computed else ""),
        )
    kinds = table.facts.get("answers")
    if kinds is not None and kinds.get(column) not in _ADDITIVE:
        raise InvalidInput(
            f"the answers of {column!r} are no counts, and no sums that cannot be negative",
            why="others do not add up, or are not 0 or more",
            fix="pass the name of a column of counts, or of sums with bounds from 0 on",
        )
    cells = noisy[column]
    values = np.asarray(cells.values, dtype=np.float64)
    with np.errstate(invalid="ignore"):
        half = (np.asarray(cells.high, dtype=np.float64) - np.asarray(cells.low, dtype=np.float64)) / 2
    half = np.where(half == 0, 0.5, half)  # of a count that noise hardly moves: it is rounded all the same
    if not (np.isfinite(values).all() and np.isfinite(half).all()):
        raise InvalidInput(
            "an answer of the column is NULL, or its interval is unbounded",
            why="it cannot be weighed against the others",
            fix="filter such rows out by HAVING first",
        )
    return column, values, half * half


def _key_columns(table: Result) -> dict[str, NDArray[Any]]:
    processed = table.facts.get("post-processed", {})
    keys = [each for each in table.columns if each.low is None and each.name not in processed]
    return {each.name: each.values for each in keys}


def _margin(parts: Result, totals: Result, column: str) -> Any:
    """The totals of one table, and of which of them each row of `parts` is a part."""
    from hubbub.sql.consistency import Margin

    _, values, variances = _noisy_column(totals, column)
    if any(table.facts.get("answers", {}).get(column) == "units" for table in (parts, totals)):
        raise InvalidInput(
            "the answers are numbers of units",
            why="a unit may be in several groups, so the groups of a total have more units than it",
            fix="ask for counts of rows, or call consistent() without totals",
        )
    keys, ours = list(_key_columns(totals)), _key_columns(parts)
    public = all(table.facts.get("keys", "public") == "public" for table in (parts, totals))
    if not public or not set(keys) <= set(ours) or len(keys) == len(ours):
        raise InvalidInput(
            "the totals are not by fewer of the same public keys",
            why="each total must be the sum of its groups",
            fix="pass results of the same table by some of its keys, or by none, with declared keys",
        )
    rows = zip(*(map(_plain, totals[key]) for key in keys), strict=True) if keys else [()]
    places = {row: place for place, row in enumerate(rows)}
    indices = [
        places.get(row, -1)
        for row in (
            zip(*(map(_plain, ours[key]) for key in keys), strict=True) if keys else [()] * len(parts)
        )
    ]
    if len(places) != len(totals) or set(indices) != set(range(len(totals))):
        raise InvalidInput(
            "a group has no total, or a total has no groups",
            why="each total must be the sum of its groups",
            fix="declare the same keys for all tables",
        )
    return Margin(np.array(indices, dtype=np.intp), values, variances)


def _with_column(table: Result, column: str, answers: NDArray[Any], note: str, *, integer: bool) -> Result:
    name = f"{column}_consistent"
    if name in table.to_dict():
        raise InvalidInput(
            f"there is a column {name} already",
            why="two columns of one name could not be told apart",
            fix="rename that column in the query",
        )
    values = np.asarray(answers, dtype=np.float64)
    columns: list[ResultColumn] = []
    for each in table.columns:
        columns.append(each)
        if each.name == column:
            columns.append(ResultColumn(name, values, kind=Kind.NUMBER, is_integer=integer))
    processed = {**table.facts.get("post-processed", {}), name: note}
    return Result(tuple(columns), {**table.facts, "post-processed": processed})


def _arrays(columns: Sequence[ResultColumn]) -> dict[str, NDArray[Any]] | None:
    """The columns as arrays, if all are numbers or texts and none is missing: faster than lists."""
    out: dict[str, NDArray[Any]] = {}
    for column in columns:
        values = column.values
        if values.dtype == object and all(isinstance(value, float) for value in values):
            values = values.astype(np.float64)
        is_number = values.dtype == np.float64 and not np.isnan(values).any()
        if not is_number and not all(isinstance(value, str) for value in values):
            return None
        out[column.name] = values
        if column.low is not None and column.high is not None:
            out[f"{column.name}_low"], out[f"{column.name}_high"] = column.low, column.high
    return out


def _to_integer(value: Any) -> int | None:
    return int(value) if math.isfinite(value) else None


_INTEGER = "integer"
_ColumnType = Kind | str | None
"""The type of a column: its kind, or that it holds integers."""


def _kinds(columns: Sequence[ResultColumn]) -> dict[str, _ColumnType]:
    """The planned type of every column, intervals included."""
    out: dict[str, _ColumnType] = {}
    for column in columns:
        number = _INTEGER if column.is_integer else Kind.NUMBER
        out[column.name] = number if column.is_integer else column.kind
        if column.low is not None and column.high is not None:
            out[f"{column.name}_low"] = out[f"{column.name}_high"] = number
    return out


def _sql_type(kind: _ColumnType) -> str | None:
    if isinstance(kind, Kind):
        return SQL_TYPES[kind]
    return None if kind is None else "BIGINT"


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _cast(sql: str, to: str | None) -> str:
    # The open end of a count's interval is no integer, but NULL.
    return sql if to is None else f"{'TRY_CAST' if to == 'BIGINT' else 'CAST'}({sql} AS {to})"


_CAPTION = ("unit", "neighbours", "mechanism", "confidence", "as of")


def _caption(facts: Mapping[str, Any]) -> str:
    """The guarantee in one line; `facts` has the rest."""
    epsilon, delta = (facts.get(name) for name in ("epsilon", "delta"))
    cost = [f"ε = {format_up(Fraction(epsilon))}"] if epsilon else []
    cost += [f"δ = {format_up(Fraction(delta))}"] if delta and Fraction(delta) else []
    known = [f"{name}: {facts[name]}" for name in _CAPTION if name in facts]
    lines = [", ".join([*cost, *known]), *describe_post_processing(facts)]
    return "; ".join(map(escape, filter(None, lines)))


def _plain(value: Any) -> Any:
    """The value as a Python object; a missing number is None."""
    plain = value.item() if isinstance(value, np.generic) else value
    return None if isinstance(plain, float) and math.isnan(plain) else plain


def _stored_column(column: ResultColumn) -> dict[str, Any]:
    is_whole = column.is_integer or (column.low is None and column.kind is not None)
    ends = [
        None
        if end is None
        else [_whole(_stored(float(value))) if is_whole else _stored(float(value)) for value in end]
        for end in (column.low, column.high)
    ]
    return {
        "name": column.name,
        **({} if column.kind is None else {"kind": column.kind.value}),
        **({"integer": True} if column.is_integer else {}),
        "values": [_whole(_stored(value)) if is_whole else _stored(value) for value in column.values],
        "low": ends[0],
        "high": ends[1],
    }


def _stored(value: Any) -> Any:
    return encode_cell(_plain(value))


def _whole(value: Any) -> Any:
    is_whole = isinstance(value, float) and value.is_integer() and abs(value) < _EXACT
    return int(value) if is_whole else value


def _read_column(stored: Mapping[str, Any]) -> ResultColumn:
    values = [decode_cell(value) for value in stored["values"]]
    ends = [
        None if end is None else [decode_cell(value) for value in end]
        for end in (stored["low"], stored["high"])
    ]
    return _make_column(stored, values, ends)


def _column_of_rows(stored: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> ResultColumn:
    """A column of a table that is stored by rows; the ends that are open there are null."""
    name, kind = stored["name"], Kind(stored["kind"]) if "kind" in stored else None
    parsers: dict[Kind | None, Callable[[Any], Any]] = {
        Kind.DATE: date.fromisoformat,
        Kind.TIMESTAMP: datetime.fromisoformat,
    }
    parse = parsers.get(kind, lambda value: value)
    values = [None if row[name] is None else parse(row[name]) for row in rows]
    if not stored["interval"]:
        return _make_column(stored, values, [None, None])
    ends = [
        [infinite if row[f"{name}_{end}"] is None else row[f"{name}_{end}"] for row in rows]
        for end, infinite in (("low", -math.inf), ("high", math.inf))
    ]
    return _make_column(stored, values, ends)


def _make_column(
    stored: Mapping[str, Any], values: list[Any], ends: Sequence[list[Any] | None]
) -> ResultColumn:
    name, is_integer = str(stored["name"]), bool(stored.get("integer", False))
    kind = Kind(stored["kind"]) if "kind" in stored else None
    if kind is Kind.NUMBER:
        values = [None if value is None else float(value) for value in values]
    low, high = (None if end is None else np.array(end, dtype=np.float64) for end in ends)
    if low is None:
        if is_integer:
            return ResultColumn(name, np.array(values, dtype=np.float64), kind=kind, is_integer=True)
        out = np.empty(len(values), dtype=object)
        out[:] = values
        return ResultColumn(name, out, kind=kind)
    return ResultColumn(name, np.array(values, dtype=np.float64), low, high, kind, is_integer)
