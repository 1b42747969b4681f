"""The released table: columns of keys, columns of values with their intervals, and a label.

It is public, and converts to pandas, Polars, Arrow, CSV, JSON, HTML and SVG.
"""

import csv
import html
import io
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hubbub.accounting.codec import decode_cell, encode_cell
from hubbub.engines.schema import Kind
from hubbub.engines.total_functions import SQL_TYPES
from hubbub.errors import InvalidInput
from hubbub.escaping import escape
from hubbub.numbers import format_estimate, format_up
from hubbub.output_files import write_output
from hubbub.sql.post_processing import ResultColumn

__all__ = ["Result", "cells"]

_FORMAT = "hubbub result/1"
_EXACT = 2.0**53
"""Below it every whole number is a double."""
_ENDINGS = (".parquet", ".pq", ".csv", ".json", ".svg", ".txt")


@dataclass(frozen=True, eq=False)
class Result:
    """A released table of answers.

    >>> column = ResultColumn("n", np.array([5.0]), np.array([2.0]), np.array([8.0]))
    >>> result = Result((column,), {"epsilon": "1"})
    >>> result.to_dict()
    {'n': [5.0], 'n_low': [2.0], 'n_high': [8.0]}
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
        """Return the columns by name, with the ends of the intervals."""
        out: dict[str, list[Any]] = {}
        for column in self.columns:
            out[column.name] = [_plain(value) for value in column.values]
            if column.low is not None and column.high is not None:
                out[f"{column.name}_low"] = [float(value) for value in column.low]
                out[f"{column.name}_high"] = [float(value) for value in column.high]
        return out

    def to_pandas(self) -> Any:
        """Return a pandas data frame."""
        import pandas as pd

        # Of texts: objects, or in newer versions texts of their own.
        types: dict[Kind | None, Any] = {
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

        types: dict[Kind | None, Any] = {
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

        types: dict[Kind | None, Any] = {
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
        """Return comma-separated values, with a header."""
        paper = io.StringIO()
        writer = csv.writer(paper, lineterminator="\n")
        table = cells(self)
        writer.writerow(table)
        writer.writerows(zip(*table.values(), strict=True))
        return paper.getvalue()

    def to_json(self) -> str:
        """Return the table and its label as JSON; `from_json` reads it back."""
        columns = [_stored_column(column) for column in self.columns]
        stored = {"format": _FORMAT, "columns": columns, "label": dict(self.facts)}
        return json.dumps(stored, ensure_ascii=False, allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> "Result":
        """Read what `to_json` wrote."""
        try:
            stored = json.loads(text)
            if stored["format"] != _FORMAT:
                raise ValueError  # noqa: TRY301 - said below, with all else that may be wrong
            columns = tuple(_read_column(column) for column in stored["columns"])
            return cls(columns, dict(stored["label"]))
        except (KeyError, TypeError, ValueError, AttributeError):
            raise InvalidInput(
                "the text is not a stored table of answers",
                why="it cannot be read",
                fix="pass what to_json() wrote",
            ) from None

    def write(self, path: str | Path) -> None:
        """Write a file; its suffix decides the format: Parquet, CSV, JSON, SVG or text.

        The file appears only when it is complete. A file of rows, a ledger or a key is never overwritten.
        """
        kind = Path(path).suffix.lower()
        texts = {".csv": self.to_csv, ".json": self.to_json, ".svg": self.svg, ".txt": self.__str__}
        render = texts.get(kind)
        write_output(
            path,
            (lambda part: self.relation().write_parquet(str(part))) if render is None else render(),
            _ENDINGS,
        )

    def relation(self, connection: Any = None) -> Any:
        """Return the table as a DuckDB relation, in `connection` or in a new in-memory database."""
        import duckdb

        connection = connection or duckdb.connect(":memory:")
        # The values do not determine the types: all may be missing, or there may be none.
        types = {
            name: None if kind is None else SQL_TYPES[kind] for name, kind in _kinds(self.columns).items()
        }
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
        [5.0, 0.0, 0.0]

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
            _with_column(table, name, answers, note)
            for table, answers in zip((self, *totals), (fit, *sums), strict=True)
        )

    # For people

    def __str__(self) -> str:
        return _text(self)

    def __repr__(self) -> str:
        names = ", ".join(escape(column.name) for column in self.columns)
        return f"Result({len(self)} rows of {names})"

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{html.escape(escape(column.name))}</th>" for column in self.columns)
        rows = "".join(
            "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in cells) + "</tr>"
            for cells in _cells(self)
        )
        caption = html.escape(_caption(self.facts))
        return f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table><p>{caption}</p>"

    def svg(self, column: str | None = None) -> str:
        """Return a chart of one column with its error bars, as SVG."""
        from hubbub.report.charts import draw_result

        return draw_result(self, column)


def _noisy_column(table: Result, column: str | None) -> tuple[str, NDArray[np.float64], NDArray[np.float64]]:
    """The name of a column, its values, and the squares of their half-widths: variances, but for a factor."""
    noisy = {each.name: each for each in table.columns if each.low is not None and each.high is not None}
    if column is None and len(noisy) == 1:
        (column,) = noisy
    if column not in noisy:
        raise InvalidInput(
            "the column is not one of the answers with an interval"
            if column is not None
            else "there is not just one column of answers",
            why="counts are adjusted by how precise each is",
            fix="pass the name of a column of counts, or of sums that cannot be negative",
        )
    cells = noisy[column]
    values = np.asarray(cells.values, dtype=np.float64)
    with np.errstate(invalid="ignore"):
        half = (np.asarray(cells.high, dtype=np.float64) - np.asarray(cells.low, dtype=np.float64)) / 2
    if not (np.isfinite(values).all() and np.isfinite(half).all() and (half > 0).all()):
        raise InvalidInput(
            "an answer of the column is NULL, or its interval is unbounded or empty",
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


def _with_column(table: Result, column: str, answers: NDArray[Any], note: str) -> Result:
    name = f"{column}_consistent"
    if name in table.to_dict():
        raise InvalidInput(
            f"there is a column {name} already",
            why="two columns of one name could not be told apart",
            fix="rename that column in the query",
        )
    values = np.empty(len(answers), dtype=object)
    values[:] = [float(answer) for answer in answers]
    columns: list[ResultColumn] = []
    for each in table.columns:
        columns.append(each)
        if each.name == column:
            columns.append(ResultColumn(name, values, kind=Kind.NUMBER))
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


def cells(answers: Result) -> dict[str, list[Any]]:
    """As `to_dict`, for text formats: a key that is an integer is written without a decimal point."""
    table = answers.to_dict()
    keys = {column.name for column in answers.columns if column.low is None}
    return {name: list(map(_whole, values)) if name in keys else values for name, values in table.items()}


def _whole(value: Any) -> Any:
    is_whole = isinstance(value, float) and value.is_integer() and abs(value) < _EXACT
    return int(value) if is_whole else value


def _kinds(columns: Sequence[ResultColumn]) -> dict[str, Kind | None]:
    """The planned kind of every column, intervals included."""
    out: dict[str, Kind | None] = {}
    for column in columns:
        out[column.name] = column.kind
        if column.low is not None and column.high is not None:
            out[f"{column.name}_low"] = out[f"{column.name}_high"] = Kind.NUMBER
    return out


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _cast(sql: str, to: str | None) -> str:
    return sql if to is None else f"CAST({sql} AS {to})"


def _cells(answers: Result) -> list[list[str]]:
    return [[_cell(column, place) for column in answers.columns] for place in range(len(answers))]


def _cell(column: ResultColumn, place: int) -> str:
    value = column.values[place]
    if _plain(value) is None:
        return "NULL"
    if column.low is None or column.high is None:
        return _short(value)
    low, high = float(column.low[place]), float(column.high[place])
    width = (high - low) / 2
    middle, *ends = (format_estimate(each, width) for each in (float(value), low, high))
    return f"{middle}  [{', '.join(ends)}]"


def _short(value: Any) -> str:
    return escape(_whole(_plain(value)))


def _text(answers: Result) -> str:
    from hubbub.report.tables import align_rows

    rows = align_rows([[escape(column.name) for column in answers.columns], *_cells(answers)])
    why = [escape(str(answers.facts["nothing shown"]))] if "nothing shown" in answers.facts else []
    return "\n".join([*rows, *why])


_CAPTION = ("unit", "neighbours", "mechanism", "confidence", "as of")


def _caption(facts: Mapping[str, Any]) -> str:
    """The guarantee in one line; `facts` has the rest."""
    epsilon, delta = (facts.get(name) for name in ("epsilon", "delta"))
    cost = [f"ε = {format_up(Fraction(epsilon))}"] if epsilon else []
    cost += [f"δ = {format_up(Fraction(delta))}"] if delta and Fraction(delta) else []
    return ", ".join(
        escape(text) for text in (*cost, *(f"{name}: {facts[name]}" for name in _CAPTION if name in facts))
    )


def _plain(value: Any) -> Any:
    """The value as a Python object; a missing number is None."""
    plain = value.item() if isinstance(value, np.generic) else value
    return None if isinstance(plain, float) and math.isnan(plain) else plain


def _stored_column(column: ResultColumn) -> dict[str, Any]:
    is_key = column.low is None and column.kind is not None
    return {
        "name": column.name,
        **({} if column.kind is None else {"kind": column.kind.value}),
        "values": [_whole(_stored(value)) if is_key else _stored(value) for value in column.values],
        "low": None if column.low is None else [_stored(float(value)) for value in column.low],
        "high": None if column.high is None else [_stored(float(value)) for value in column.high],
    }


def _stored(value: Any) -> Any:
    return encode_cell(_plain(value))


def _read_column(stored: Mapping[str, Any]) -> ResultColumn:
    kind = Kind(stored["kind"]) if "kind" in stored else None
    values = [decode_cell(value) for value in stored["values"]]
    if kind is Kind.NUMBER:
        values = [None if value is None else float(value) for value in values]
    low, high = stored["low"], stored["high"]
    if low is None:
        out = np.empty(len(values), dtype=object)
        out[:] = values
        return ResultColumn(str(stored["name"]), out, kind=kind)
    ends = [np.array([decode_cell(value) for value in end], dtype=np.float64) for end in (low, high)]
    return ResultColumn(str(stored["name"]), np.array(values, dtype=np.float64), ends[0], ends[1], kind)
