"""Spark: the rows stay on the cluster, and only aggregates come to the driver.

A table of the catalog, or a data frame, is read through a view of our own while a plan runs, so that all of
its steps see the same files; it is dropped afterwards. The session's own settings are left as they are: no
form that is used here depends on its time zone, on how it treats errors, or on how wide its sums are.
"""

import logging
import re
import threading
import warnings
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlglot import exp

from hubbub.engines.data_identity import DataIdentity
from hubbub.engines.dialect import Translations, is_wide, names_of, refused_here, translate
from hubbub.engines.engine import (
    RETRY_HINT,
    RecordBatch,
    SnapshotLock,
    TableSource,
    concatenate_batches,
    query_distinct_values,
    resolve_kinds,
)
from hubbub.engines.schema import UNIT, Key, Kind, Table, split_into_batches
from hubbub.engines.total_functions import (
    BIGINT,
    DOUBLE,
    clamp_finite,
    convert_kind,
    in_window,
    number_literal,
    restrict_years,
)
from hubbub.errors import EngineFailed, HubbubError, InvalidInput
from hubbub.noise.entropy import random_bytes

__all__ = ["Spark"]

_CHUNK = 1 << 16
"""Rows that are read at a time."""
_KEYS = 1 << 20
"""Keys that are handed over at a time."""
_FEW = 1 << 14
"""Keys that are sent as a list; more are sent as columns."""
_WHOLE = {"tinyint", "smallint", "int", "bigint"}
_TEXTS = {"string", "varchar", "char"}
_UNITS = {"boolean", "date", "timestamp", "timestamp_ntz", "binary", "double"}
_REFUSED = {
    **{
        f"spark.sql.{kind}RebaseModeInRead": "EXCEPTION"
        for kind in ("parquet.datetime", "parquet.int96", "avro.datetime")
    },
    **{f"spark.sql.files.ignore{what}Files": "TRUE" for what in ("Corrupt", "Missing")},
}
"""With these one old date in a file fails, or one part of a query passes over a file that another reads."""
_PINNED = {"spark.sql.unionOutputPartitioning": "false"}
"""Spark 4.1 and later put the parts of a UNION ALL side by side and fail where they are not as many, which
follows from how large they are: from the rows."""
_ONE_PLAN = threading.RLock()
"""Settings are a session's, and several datasets may be of one: who ends first would take the pins away from
under the others. Whether two sessions are one cannot be told in every version, so it is one for all."""
_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - in Greenwich
_ENDS = [int((end - _EPOCH) / timedelta(microseconds=1)) for end in (datetime.min, datetime.max)]  # noqa: DTZ901


@dataclass(frozen=True)
class _Scan:
    """A table or data frame: its columns' types, and how the view of it is read."""

    rows: Any
    view: str
    types: tuple[tuple[str, str], ...]
    sql: exp.Expr
    unit: str | None


class Spark:
    """Tables of a Spark session, or data frames.

    Guarantee: it gives out aggregates, the same integers as any other engine, and leaves nothing behind.
    Assumes: a table has fewer than 2^47 rows; the session's optimiser keeps what SQL says.
    Proof: docs/proofs/bounding.md, "Engines"
    """

    name = "Spark"
    dialect = "spark"

    def __init__(self, session: Any, sources: Mapping[str, TableSource]) -> None:
        self._session = session
        self._snapshot_lock = SnapshotLock()
        self._before: dict[str, str | None] = {}
        self._token = random_bytes(4).hex()
        self._scans: dict[str, _Scan] = {}
        tables = {}
        with _quietly("the data cannot be opened"):
            self._check_settings()
            for name, source in sources.items():
                tables[name] = self._opened(name, source)
        self.tables: Mapping[str, Table] = tables

    def execute(self, sql: exp.Expr, key_sets: Mapping[str, Sequence[Key]]) -> RecordBatch:
        """Run one query; see `Engine`."""
        return concatenate_batches(self.execute_in_batches(sql, key_sets))

    def execute_in_batches(
        self, sql: exp.Expr, key_sets: Mapping[str, Sequence[Key]]
    ) -> Generator[RecordBatch]:
        """Run one query, and give its rows out a piece at a time; see `Engine`."""
        views = {name: f"_hubbub_{self._token}{name}" for name in key_sets}
        text = self.compile(sql.transform(lambda node: _through_view(node, views)))
        with self.snapshot(), _quietly():
            try:
                for name, keys in key_sets.items():
                    self._listed(keys).createOrReplaceTempView(views[name])
                yield from _fetched(self._session.sql(text), names_of(sql))
            finally:
                for view in views.values():
                    self._dropped(view)

    def distinct_values(self, table: str, column: str) -> Sequence[Key]:
        """The different values of a column of a public table; see `Engine`."""
        return query_distinct_values(self, table, column)

    def fingerprint(self, table: str) -> Any:
        """None: what a name means is the session's, and a data frame has none. See `Engine`."""
        del table

    def identity(self, table: str) -> DataIdentity:
        """None: what a name means is the session's. See `Engine`."""
        del table
        return DataIdentity()

    def compile(self, sql: exp.Expr) -> str:
        """The SQL as Spark reads it; see `Engine`."""
        return translate(sql, _FORMS, {name: scan.sql for name, scan in self._scans.items()}, "spark")

    def check_unchanged(self) -> None:
        """Nothing is known before the snapshot; see `Engine`."""

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """One list of files for all that is asked inside; see `Engine`."""
        with _ONE_PLAN, self._snapshot_lock.hold(self._viewed):
            yield

    @contextmanager
    def _viewed(self) -> Iterator[None]:
        try:
            with _quietly():
                self._check_settings()
                self._pin()
                before = {name: self._viewed_files(scan) for name, scan in self._scans.items()}
            yield
            with _quietly():
                after = {name: _files(self._frame(scan.rows)) for name, scan in self._scans.items()}
                self._check_pinned()
            if after != before:
                # One query may list files twice, too, and then weigh other rows than it adds up.
                raise EngineFailed(
                    "a table was written to while it was asked",
                    why="not all that is measured would be of one state of it",
                    fix=f"wait until it is written, or open a data frame of one version; {RETRY_HINT}",
                )
        finally:
            self._unpin()
            for scan in self._scans.values():
                self._dropped(scan.view)

    def _pin(self) -> None:
        """Set what a query must not depend on, as long as it runs; the session is its owner's."""
        self._before = {name: self._session.conf.get(name, None) for name in _PINNED}
        for name, value in _PINNED.items():
            self._session.conf.set(name, value)

    def _check_pinned(self) -> None:
        """Whoever else has the session may set it meanwhile; then it fails whatever the rows are."""
        for name, value in _PINNED.items():
            if self._session.conf.get(name, None) != value:
                raise EngineFailed(
                    f"the session's setting {name} was changed while a plan ran",
                    why="whether a query fails could follow from the rows",
                    fix=f"leave it alone meanwhile; {RETRY_HINT}",
                )

    def _unpin(self) -> None:
        with suppress(Exception), warnings.catch_warnings():
            for name, value in self._before.items():
                self._session.conf.unset(name) if value is None else self._session.conf.set(name, value)
        self._before = {}

    def _viewed_files(self, scan: _Scan) -> frozenset[str]:
        frame = self._frame(scan.rows)
        _check(scan, frame)
        frame.createOrReplaceTempView(scan.view)
        return _files(frame)

    def _check_settings(self) -> None:
        for setting, value in _REFUSED.items():
            if str(self._session.conf.get(setting)).upper() == value:
                raise EngineFailed(
                    f"the session's setting {setting} is {value}",
                    why="one row could make a query fail, or one part of it read a file that others do not",
                    fix=f"set it to another value; {RETRY_HINT}",
                )

    def close(self) -> None:
        """The session is its owner's."""

    def _dropped(self, view: str) -> None:
        with suppress(Exception), warnings.catch_warnings():
            self._session.catalog.dropTempView(view)

    def _frame(self, rows: Any) -> Any:
        return self._session.table(rows) if isinstance(rows, str) else rows

    def _listed(self, keys: Sequence[Key]) -> Any:
        """A list of keys with their places, as a data frame."""
        first = next((key for key in keys if key is not None), "")
        kind = (
            "boolean"
            if isinstance(first, bool)
            else {str: "string", float: "double"}.get(type(first))
            or ("timestamp_ntz" if hasattr(first, "hour") else "date")
        )
        schema = f"key {kind}, place int"
        if len(keys) > _FEW:
            with suppress(ImportError):
                import pyarrow as pa

                # Said, for a piece may be None alone, which has no type.
                typed = pa.array([first]).type
                listed = pa.chunked_array(
                    [pa.array(piece, typed) for piece in split_into_batches(keys, _KEYS)]
                )
                columns = {"key": listed, "place": np.arange(len(keys), dtype=np.int32)}
                return self._session.createDataFrame(pa.table(columns)).selectExpr(
                    f"CAST(key AS {kind}) AS key", "place"
                )
        return self._session.createDataFrame(list(zip(keys, range(len(keys)), strict=True)), schema)

    # Opening

    def _opened(self, name: str, source: TableSource) -> Table:
        if not isinstance(source.rows, str) and type(source.rows).__name__ != "DataFrame":
            raise InvalidInput(
                f"rows are of type {type(source.rows).__name__}, which Spark does not hold",
                why="everything that is joined is joined there",
                fix="name a table of its catalog, or pass a data frame of Spark's",
            )
        frame = self._frame(source.rows)
        _check_repeatable(name, frame)
        types = _types(frame)
        found = {column: _kind(typed) for column, typed in types}
        kinds = resolve_kinds(name, found, source.types)
        for column, kind in kinds.items():
            if found[column] is Kind.OPAQUE and kind is not Kind.OPAQUE:
                raise InvalidInput(
                    f"the column {column!r} is of no type that is known here, and declared as a {kind.value}",
                    why="its values are written otherwise on every engine, and in every session",
                    fix="leave its type out, or cast it in a data frame",
                )
        table = Table.of(
            name, kinds, unit=source.unit, bounds=source.bounds, keys=source.keys, is_public=source.is_public
        )
        view = f"_hubbub_{self._token}_{len(self._scans)}"
        sql = exp.Select().from_(exp.Table(this=exp.to_identifier(view)))
        read = {
            column: convert_kind(_read(column, typed), found[column], kinds[column], column)
            for column, typed in types
        }
        for column, made in read.items():
            sql = sql.select(exp.alias_(made, column, quoted=True))
        if source.window is not None:
            sql = sql.where(in_window(source.window, table, read))
        unit = None
        if source.unit is not None:
            column = table.find(source.unit).name
            typed = dict(types)[column]
            unit = self._unit_kind(column, typed)
            made = (
                exp.Cast(this=_name(column), to=BIGINT.copy())
                if unit == "whole"
                else _read_text(column, typed)
            )
            sql = sql.select(exp.alias_(made, UNIT, quoted=True))
        self._scans[name] = _Scan(source.rows, view, types, sql, unit)
        return table

    def _unit_kind(self, column: str, typed: str) -> str:
        base = typed.partition("(")[0].partition(" ")[0]
        kind = "whole" if base in _WHOLE else "text" if base in _TEXTS else None
        kind = typed if base == "decimal" else base if base in _UNITS else kind
        others = {scan.unit for scan in self._scans.values() if scan.unit is not None}
        if kind is None or others - {kind}:
            raise InvalidInput(
                f"the unit's column {column!r} is of a type that no unit has, or of another type in others",
                why="whether two keys are of one person would depend on how they are compared",
                fix="give it one type in all tables: a whole number, a text or a date",
            )
        return kind


def _through_view(node: exp.Expr, views: Mapping[str, str]) -> exp.Expr:
    """A list of keys, read through the view of it."""
    if not isinstance(node, exp.Table) or node.name not in views or node.this.quoted:
        return node
    return exp.alias_(exp.Table(this=exp.to_identifier(views[node.name])), node.name, table=True)


def _types(frame: Any) -> tuple[tuple[str, str], ...]:
    """Of texts that are filled up with spaces the frame itself says only that they are texts."""
    declared = [str(field.metadata.get("__CHAR_VARCHAR_TYPE_STRING", "")) for field in frame.schema.fields]
    return tuple(
        (str(name), filled if filled.startswith("char(") and typed == "string" else str(typed))
        for (name, typed), filled in zip(frame.dtypes, declared, strict=True)
    )


def _files(frame: Any) -> frozenset[str]:
    """Which files its rows are in; none where they are in none."""
    return frozenset(map(str, frame.inputFiles()))


def _check(scan: _Scan, frame: Any) -> None:
    if _types(frame) != scan.types:
        raise EngineFailed(
            "a table is not as it was when it was opened",
            why="its columns or their types have changed, and the plan was made for the old ones",
            fix=f"open it again and plan anew; {RETRY_HINT}",
        )


def _check_repeatable(name: str, frame: Any) -> None:
    """Refuse what Spark itself knows to be another each time; through Spark Connect it does not say."""
    inner = getattr(frame, "_jdf", None)
    if inner is not None and not inner.queryExecution().analyzed().deterministic():
        raise InvalidInput(
            f"{name} is computed with random numbers, or with the places of rows",
            why="parts of a query would see unlike rows, and one person would move the rows of others",
            fix="write it to a table first, or leave that out",
        )


def _kind(typed: str) -> Kind:
    base = typed.partition("(")[0].partition(" ")[0]
    if base in _WHOLE or base in {"float", "double", "decimal"}:
        return Kind.NUMBER
    known = {
        "boolean": Kind.BOOLEAN, "date": Kind.DATE, "timestamp": Kind.TIMESTAMP,
        "timestamp_ntz": Kind.TIMESTAMP,
    }  # fmt: skip
    return Kind.TEXT if base in _TEXTS else known.get(base, Kind.OPAQUE)


def _name(column: str) -> exp.Expr:
    return exp.column(exp.to_identifier(column, quoted=True))


def _read(column: str, typed: str) -> exp.Expr:
    """The column as the kind that its type is; no value can make it fail."""
    name, kind = _name(column), _kind(typed)
    if kind is Kind.NUMBER:
        double = exp.Cast(this=name, to=DOUBLE.copy())
        return clamp_finite(double) if typed in {"float", "double"} else double
    if typed == "timestamp":
        # As it is in Greenwich, whatever the session's own zone is.
        micros = exp.func("unix_micros", name)
        inside = exp.Between(this=micros, low=_plain(_ENDS[0]), high=_plain(_ENDS[1]))
        return exp.Case(ifs=[exp.If(this=inside, true=_since_epoch(micros.copy()))])
    if kind in {Kind.DATE, Kind.TIMESTAMP}:
        return restrict_years(name, kind)
    return _read_text(column, typed)


def _since_epoch(micros: exp.Expr) -> exp.Expr:
    """A moment without a zone, from its microseconds."""
    seconds = exp.Div(
        this=exp.Cast(this=micros, to=exp.DataType.build("DECIMAL(20, 0)")),
        expression=exp.Cast(this=exp.Literal.number(1000000), to=exp.DataType.build("DECIMAL(7, 0)")),
        typed=True,
        safe=False,
    )
    exact = exp.Cast(this=seconds, to=exp.DataType.build("DECIMAL(18, 6)"))
    zero = exp.Literal.number(0)
    start = exp.Cast(this=exp.Literal.string("1970-01-01 00:00:00"), to=_moment())
    past = _call("MAKE_DT_INTERVAL", zero, zero.copy(), zero.copy(), exact)
    return exp.Paren(this=exp.Add(this=start, expression=past))


def _read_text(column: str, typed: str) -> exp.Expr:
    """A text that is one, and is compared byte by byte; other types as they are."""
    name = _name(column)
    if _kind(typed) is not Kind.TEXT:
        return name
    plain = exp.Collate(this=name, expression=exp.Var(this="UTF8_BINARY")) if "collate" in typed else name
    if typed.startswith("char("):
        plain = exp.Trim(this=plain, expression=exp.Literal.string(" "), position="TRAILING")
    return exp.Case(
        ifs=[exp.If(this=exp.Anonymous(this="is_valid_utf8", expressions=[name.copy()]), true=plain)]
    )


def _plain(number: int) -> exp.Expr:
    return exp.Literal.number(number) if number >= 0 else exp.Neg(this=exp.Literal.number(-number))


def _fetched(frame: Any, names: Sequence[str]) -> Iterator[RecordBatch]:
    """The columns of an answer, a piece at a time."""
    rows = iter(frame.toLocalIterator())
    while True:
        some = list(islice(rows, _CHUNK))
        columns = zip(*some, strict=True) if some else ([] for _ in names)
        yield {name: _column(name, list(values)) for name, values in zip(names, columns, strict=True)}
        if len(some) < _CHUNK:
            break


def _column(name: str, values: list[Any]) -> NDArray[Any]:
    if name[:1] != "k":
        return np.array(values, dtype=np.int64)
    column = np.empty(len(values), dtype=object)
    column[:] = values
    return column


@contextmanager
def _quietly(what: str = "the engine could not run the query") -> Iterator[None]:
    """Errors in our own words: Spark's hold the query, and may hold data, and so may what it logs of them."""
    loggers = [logging.getLogger(name) for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger")]
    before = [logger.disabled for logger in loggers]
    for logger in loggers:
        logger.disabled = True
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of pandas, which is not used here
            yield
    except HubbubError:
        raise
    except Exception as problem:  # noqa: BLE001 - whatever it is, its message may hold data
        raise _failed(problem, what) from None
    finally:
        for logger, was in zip(loggers, before, strict=True):
            logger.disabled = was


def _failed(problem: Exception, what: str) -> EngineFailed:
    known = {
        "TABLE_OR_VIEW_NOT_FOUND": ("a table is not there any more", "open the tables anew"),
        "INSUFFICIENT_PERMISSIONS": ("it may not read a table", "let this user read it"),
    }
    condition = ""
    with suppress(Exception):
        condition = str(getattr(problem, "getCondition", lambda: "")() or "").partition(".")[0]
    why, fix = known.get(
        condition, ("its own message may hold data", "see that the cluster runs and has its files")
    )
    return EngineFailed(what, why=why, fix=f"{fix}; {RETRY_HINT}")


# How Spark writes what means something else there


def _call(function: str, *parts: exp.Expr) -> exp.Expr:
    return exp.Anonymous(this=function, expressions=list(parts))


def _literal(node: exp.Expr) -> exp.Expr:
    """A double that is one by its letter; a text with nothing in it that a session could read otherwise.

    Between ${ and } Spark puts what it or the machine is set to, and a backslash is what the session says.
    """
    if not node.is_string:
        return exp.Var(this=f"{node.name}D") if "e" in node.name.lower() else node
    if not _READ_OTHERWISE.search(node.name):
        return node
    plain, odd = exp.Literal.string, lambda character: _call("CHR", exp.Literal.number(ord(character)))
    # Where a text is split at what is in parentheses, every second part is such.
    parts = _READ_OTHERWISE.split(node.name)
    return _call("CONCAT", *((odd if place % 2 else plain)(part) for place, part in enumerate(parts)))


_READ_OTHERWISE = re.compile(r"([\x00-\x1f\\']|\$(?={))")


def _identifier(node: exp.Expr) -> exp.Expr:
    if "${" in node.name:
        raise refused_here(node, "a name holds ${, where Spark puts what the machine is set to")
    return node


def _moment() -> exp.Expr:
    return exp.DataType(this=exp.DataType.Type.TIMESTAMPNTZ)


def _type(node: exp.Expr) -> exp.Expr:
    if node.this is exp.DataType.Type.INT128:
        return exp.DataType.build("DECIMAL(38, 0)")
    return _moment() if node.this is exp.DataType.Type.TIMESTAMP else node


def _rounded(node: exp.Expr) -> exp.Expr:
    """FLOOR and CEIL give 64 bits there, and cut what is beyond; doubles from 2^53 on are whole already."""
    double = exp.Cast(this=type(node)(this=node.this), to=DOUBLE.copy())
    inside = exp.LT(this=exp.Abs(this=node.this.copy()), expression=number_literal(2.0**53))
    return exp.Case(ifs=[exp.If(this=inside, true=double)], default=node.this.copy())


_PART_BITS = 21
"""Sums of 2^42 integers of so many bits fit in 64."""


def _summed(node: exp.Expr) -> exp.Expr:
    """A sum of integers of at most 2^61 in three parts, so that none overflows; wide ones are decimals."""
    if any(is_wide(part) for part in node.this.walk()):
        return node
    whole = exp.Cast(this=node.this, to=BIGINT.copy())
    total: exp.Expr | None = None
    for shift in (2 * _PART_BITS, _PART_BITS, 0):
        part: exp.Expr = _call("SHIFTRIGHT", whole.copy(), exp.Literal.number(shift)) if shift else whole
        if total is not None:
            mask = exp.Literal.number((1 << _PART_BITS) - 1)
            part = exp.BitwiseAnd(this=part, expression=mask)
        added = exp.Cast(this=exp.Sum(this=part), to=exp.DataType.build("DECIMAL(38, 0)"))
        if total is not None:
            one = exp.Literal.number(1 << _PART_BITS)
            total = exp.Add(this=exp.Mul(this=exp.Paren(this=total), expression=one), expression=added)
        else:
            total = added
    assert total is not None
    return exp.Paren(this=total)


_PARTS = {
    "YEAR": "YEAR", "QUARTER": "QUARTER", "MONTH": "MONTH", "WEEK": "WEEKOFYEAR", "DAY": "DAY",
    "DOY": "DAYOFYEAR", "HOUR": "HOUR", "MINUTE": "MINUTE",
}  # fmt: skip


def _extracted(node: exp.Expr) -> exp.Expr:
    part, one = node.name.upper(), exp.Literal.number(1)
    if part in {"DOW", "DAYOFWEEK"}:
        return exp.Sub(this=_call("DAYOFWEEK", node.expression), expression=one)
    if part == "ISODOW":
        return exp.Add(this=_call("WEEKDAY", node.expression), expression=one)
    return _call(_PARTS[part], node.expression)


def _truncated(node: exp.Expr) -> exp.Expr:
    unit = node.args["unit"].name.upper()
    day = exp.Cast(this=node.this, to=exp.DataType.build("DATE"))
    if unit == "DAY":
        return day
    if unit not in {"HOUR", "MINUTE"}:
        return _call("TRUNC", day, exp.Literal.string(unit))
    zero = exp.Literal.number(0)
    minute = _call("MINUTE", node.this.copy()) if unit == "MINUTE" else zero
    past = _call("MAKE_DT_INTERVAL", zero.copy(), _call("HOUR", node.this.copy()), minute, zero.copy())
    return exp.Paren(this=exp.Add(this=exp.Cast(this=day, to=_moment()), expression=past))


def _function(node: exp.Expr) -> exp.Expr:
    if str(node.this).upper() == "HASH":
        return _call("XXHASH64", *node.expressions)
    return node


def _looks(node: exp.Expr) -> exp.Expr:
    # Java's $ lets a line end follow.
    pattern = "(?s)" + node.expression.name.removesuffix("$") + "(?!.)"
    return exp.RegexpLike(this=node.this, expression=exp.Literal.string(pattern))


def _window(node: exp.Expr) -> exp.Expr:
    if not node.args.get("partition_by"):
        raise refused_here(node, "rows have no numbers there that stay the same when they are read twice")
    return node


def _days(node: exp.Expr) -> exp.Expr:
    return _call("DATEDIFF", node.this, node.expression)


def _refused(node: exp.Expr) -> exp.Expr:
    raise refused_here(node, "its last bit is not the same on every machine")


_FORMS: Translations = {
    exp.Literal: _literal,
    exp.Identifier: _identifier,
    exp.DataType: _type,
    exp.Floor: _rounded,
    exp.Ceil: _rounded,
    exp.Sum: _summed,
    exp.Extract: _extracted,
    exp.TimestampTrunc: _truncated,
    exp.DateDiff: _days,
    exp.Anonymous: _function,
    exp.RegexpLike: _looks,
    exp.Window: _window,
    exp.Ln: _refused,
    exp.Exp: _refused,
    exp.Pow: _refused,
}
