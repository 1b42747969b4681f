"""Spark: the rows stay on the cluster, and only aggregates come to the driver.

While a plan runs, each table of the catalog or data frame is read through a temporary view, so that all steps
see the same files. The session's settings are left as they are: no expression used here depends on its time
zone, its treatment of errors, or the width of its sums.
"""

import logging
import re
import threading
import warnings
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from typing import Any

import numpy as np
from sqlglot import exp

from hubbub.engines.data_identity import DataIdentity
from hubbub.engines.dialect import (
    BIN_INDEX,
    INEXACT,
    KEY_PLACE,
    Translations,
    call,
    is_wide_integer,
    replace_types,
    unsupported_node,
)
from hubbub.engines.engine import RETRY_HINT, KeySets, TableSource, table_changed
from hubbub.engines.remote_engine import Relation, RemoteColumn, RemoteEngine, quoted_column
from hubbub.engines.schema import Key, Kind, infer_kind, split_into_batches
from hubbub.engines.total_functions import BIGINT, DOUBLE, clamp_finite, number_literal, restrict_years
from hubbub.errors import EngineFailed, InvalidInput, Unsupported
from hubbub.noise.entropy import random_bytes

__all__ = ["Spark"]

_ARRAY_KEYS = 1 << 20
"""Group keys in one Arrow array."""
_MAX_LISTED_KEYS = 1 << 14
"""Up to this many group keys are sent as a list of rows; more are sent as Arrow columns."""
_INTEGERS = ("tinyint", "smallint", "int", "bigint")
_TEXTS = ("string", "varchar", "char")
_KINDS = {
    **dict.fromkeys((*_INTEGERS, "float", "double", "decimal"), Kind.NUMBER),
    **dict.fromkeys(_TEXTS, Kind.TEXT),
    "boolean": Kind.BOOLEAN,
    "date": Kind.DATE,
    "timestamp": Kind.TIMESTAMP,
    "timestamp_ntz": Kind.TIMESTAMP,
}
_UNIT_TYPES = {
    **dict.fromkeys(_INTEGERS, "integer"),
    **dict.fromkeys(_TEXTS, "text"),
    **{name: name for name in ("boolean", "date", "timestamp", "timestamp_ntz", "binary", "double")},
}
_KEY_TYPES = {
    Kind.TEXT: "string",
    Kind.NUMBER: "double",
    Kind.BOOLEAN: "boolean",
    Kind.DATE: "date",
    Kind.TIMESTAMP: "timestamp_ntz",
}
_ERRORS = {
    "TABLE_OR_VIEW_NOT_FOUND": ("a table is not there any more", "open the tables again"),
    "INSUFFICIENT_PERMISSIONS": ("it may not read a table", "let this user read it"),
}
"""By Spark's error condition, the reason for an error and its fix."""
_REFUSED_SETTINGS = {
    **{
        f"spark.sql.{kind}RebaseModeInRead": "EXCEPTION"
        for kind in ("parquet.datetime", "parquet.int96", "avro.datetime")
    },
    **{f"spark.sql.files.ignore{what}Files": "TRUE" for what in ("Corrupt", "Missing")},
}
"""With these, one old date fails a query, or one part of a query skips a file that another part reads."""
_PINNED_SETTINGS = {"spark.sql.unionOutputPartitioning": "false"}
"""Spark 4.1 and later place the parts of a UNION ALL side by side, and fail if their numbers of partitions
differ. These follow from the parts' sizes, that is, from the rows."""
_SESSION_LOCK = threading.RLock()
"""Settings belong to a session, and several datasets may share one: the first to end would unpin the settings
under the others. Not every version tells whether two sessions are the same, so one lock serves all."""
_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - in UTC
_MIN_MICROS, _MAX_MICROS = (
    int((end - _EPOCH) / timedelta(microseconds=1))
    for end in (datetime.min, datetime.max)  # noqa: DTZ901
)
_TIMESTAMP = exp.DataType(this=exp.DataType.Type.TIMESTAMPNTZ)
_DECIMAL = exp.DataType.build("DECIMAL(38, 0)")


# The dialect


_ESCAPED = re.compile(r"([\x00-\x1f\\']|\$(?={))")


def _translate_literal(node: exp.Expr) -> exp.Expr:
    """A double marked by its suffix; a text without characters that a setting could reinterpret.

    Spark substitutes variables of the session and the machine between ${ and }, even inside a text, and the
    meaning of a backslash is a setting.
    """
    if not node.is_string:
        return exp.Var(this=f"{node.name}D") if "e" in node.name.lower() else node
    if not _ESCAPED.search(node.name):
        return node
    # The pattern has one group, so every second part is a character to be escaped.
    parts = [
        call("CHR", exp.Literal.number(ord(part))) if index % 2 else exp.Literal.string(part)
        for index, part in enumerate(_ESCAPED.split(node.name))
    ]
    return call("CONCAT", *parts)


def _check_identifier(node: exp.Expr) -> exp.Expr:
    if "${" in node.name:
        raise unsupported_node(node, "a name contains ${, where Spark substitutes a variable of the machine")
    return node


def _round_double(node: exp.Expr) -> exp.Expr:
    """FLOOR or CEIL. Spark's own give 64 bits and cut what is beyond; doubles from 2^53 on are integers."""
    double = exp.Cast(this=type(node)(this=node.this), to=DOUBLE.copy())
    inside = exp.LT(this=exp.Abs(this=node.this.copy()), expression=number_literal(2.0**53))
    return exp.Case(ifs=[exp.If(this=inside, true=double)], default=node.this.copy())


_LIMB_BITS = 21
"""The sum of 2^42 integers of this many bits fits in 64 bits."""


def _sum_limbs(node: exp.Expr) -> exp.Expr:
    """A sum of integers of at most 2^61, in three limbs, so that none overflows; wide ones are decimals."""
    if any(is_wide_integer(part) for part in node.this.walk()):
        return node
    integer = exp.Cast(this=node.this, to=BIGINT.copy())
    total: exp.Expr | None = None
    for shift in (2 * _LIMB_BITS, _LIMB_BITS, 0):
        limb: exp.Expr = call("SHIFTRIGHT", integer.copy(), exp.Literal.number(shift)) if shift else integer
        if total is not None:
            mask = exp.Literal.number((1 << _LIMB_BITS) - 1)
            limb = exp.BitwiseAnd(this=limb, expression=mask)
        limb_sum = exp.Cast(this=exp.Sum(this=limb), to=_DECIMAL.copy())
        if total is not None:
            one = exp.Literal.number(1 << _LIMB_BITS)
            total = exp.Add(this=exp.Mul(this=exp.Paren(this=total), expression=one), expression=limb_sum)
        else:
            total = limb_sum
    assert total is not None
    return exp.Paren(this=total)


_DATE_PARTS = {
    "YEAR": "YEAR", "QUARTER": "QUARTER", "MONTH": "MONTH", "WEEK": "WEEKOFYEAR", "DAY": "DAY",
    "DOY": "DAYOFYEAR", "HOUR": "HOUR", "MINUTE": "MINUTE", "SECOND": "SECOND",
}  # fmt: skip


def _extract_part(node: exp.Expr) -> exp.Expr:
    part, one = node.name.upper(), exp.Literal.number(1)
    if part in {"DOW", "DAYOFWEEK"}:
        return exp.Sub(this=call("DAYOFWEEK", node.expression), expression=one)
    if part == "ISODOW":
        return exp.Add(this=call("WEEKDAY", node.expression), expression=one)
    return call(_DATE_PARTS[part], node.expression)


def _truncate_timestamp(node: exp.Expr) -> exp.Expr:
    unit = node.args["unit"].name.upper()
    day = exp.Cast(this=node.this, to=exp.DataType.build("DATE"))
    if unit == "DAY":
        return day
    if unit not in {"HOUR", "MINUTE"}:
        return call("TRUNC", day, exp.Literal.string(unit))
    zero = exp.Literal.number(0)
    minute = call("MINUTE", node.this.copy()) if unit == "MINUTE" else zero
    interval = call("MAKE_DT_INTERVAL", zero.copy(), call("HOUR", node.this.copy()), minute, zero.copy())
    return exp.Paren(this=exp.Add(this=exp.Cast(this=day, to=_TIMESTAMP.copy()), expression=interval))


def _find_bin(value: exp.Expr, ends: Sequence[exp.Expr]) -> exp.Expr:
    """Bisect an array of ends, padded to 2^k − 1: deep nests of conditions overflow the stack of Spark."""
    steps = [1 << k for k in reversed(range(len(ends).bit_length()))]
    padded = [*ends, *[ends[-1]] * (2 * steps[0] - 1 - len(ends))]
    array = exp.Array(expressions=[end.copy() for end in padded])
    at = exp.Add(this=exp.column("_before"), expression=exp.column("_step"))
    is_below = exp.LT(this=value, expression=call("ELEMENT_AT", array, at))
    body = exp.Case(ifs=[exp.If(this=is_below, true=exp.column("_before"))], default=at.copy())
    bisected = call(
        "AGGREGATE",
        exp.Array(expressions=[exp.Literal.number(step) for step in steps]),
        exp.Literal.number(0),
        exp.Lambda(this=body, expressions=[exp.to_identifier("_before"), exp.to_identifier("_step")]),
    )
    return exp.Least(this=bisected, expressions=[exp.Literal.number(len(ends))], ignore_nulls=True)


def _translate_function(node: exp.Expr) -> exp.Expr:
    if str(node.this) == BIN_INDEX:
        value, *ends = node.expressions
        return _find_bin(value, ends)
    if str(node.this) == KEY_PLACE:
        value, *keys = node.expressions
        zero, one = exp.Literal.number(0), exp.Literal.number(1)
        place = call("ARRAY_POSITION", exp.Array(expressions=keys), value)
        return exp.Paren(this=exp.Sub(this=exp.Nullif(this=place, expression=zero), expression=one))
    return call("XXHASH64", *node.expressions) if str(node.this).upper() == "HASH" else node


def _match_pattern(node: exp.Expr) -> exp.Expr:
    # In Java, $ also matches before a line end.
    pattern = "(?s)" + node.expression.name.removesuffix("$") + "(?!.)"
    return exp.RegexpLike(this=node.this, expression=exp.Literal.string(pattern))


def _check_window(node: exp.Expr) -> exp.Expr:
    if not node.args.get("partition_by"):
        # Nobody wrote this window: it numbers the rows where each row is its own unit.
        raise Unsupported(
            "this query cannot be run on Spark with rows as privacy units",
            why="rows may be numbered differently each time that Spark reads them",
            fix="declare a unit column, or open the data with DuckDB",
        )
    return node


_INTERVAL_PLACES = {"DAY": 0, "HOUR": 1, "MINUTE": 2, "SECOND": 3}


def _make_interval(node: exp.Expr) -> exp.Expr:
    """An interval by a function: what a literal of it may contain is a setting."""
    number = exp.Literal.number(node.this.name)
    unit = node.args["unit"].name
    if unit == "MONTH":
        return call("MAKE_YM_INTERVAL", exp.Literal.number(0), number)
    parts = [number if place == _INTERVAL_PLACES[unit] else exp.Literal.number(0) for place in range(4)]
    return call("MAKE_DT_INTERVAL", *parts)


def _subtract_dates(node: exp.Expr) -> exp.Expr:
    return call("DATEDIFF", node.this, node.expression)


_TRANSLATIONS: Translations = {
    **INEXACT,
    exp.Literal: _translate_literal,
    exp.Identifier: _check_identifier,
    exp.DataType: replace_types(
        {
            exp.DataType.Type.INT128: _DECIMAL,
            exp.DataType.Type.TIMESTAMP: _TIMESTAMP,
        }
    ),
    exp.Floor: _round_double,
    exp.Ceil: _round_double,
    exp.Sum: _sum_limbs,
    exp.Extract: _extract_part,
    exp.TimestampTrunc: _truncate_timestamp,
    exp.DateDiff: _subtract_dates,
    exp.Interval: _make_interval,
    exp.Anonymous: _translate_function,
    exp.RegexpLike: _match_pattern,
    exp.Window: _check_window,
}


# The engine


@contextmanager
def _silence() -> Iterator[None]:
    """Turn off Spark's own log of a failed query, and warnings of pandas, which is not used here."""
    loggers = [logging.getLogger(name) for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger")]
    before = [logger.disabled for logger in loggers]
    for logger in loggers:
        logger.disabled = True
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, was_disabled in zip(loggers, before, strict=True):
            logger.disabled = was_disabled


class Spark(RemoteEngine):
    """Tables of a Spark session, or data frames.

    Assumes: a table has fewer than 2^47 rows; the session's optimiser preserves the meaning of SQL.
    """

    name = "Spark"
    dialect = "spark"
    translations = _TRANSLATIONS
    unit_types = "an integer, a text or a date"
    _silence = staticmethod(_silence)

    def __init__(self, session: Any, sources: Mapping[str, TableSource]) -> None:
        self._session = session
        self._settings_before: dict[str, str | None] = {}
        self._token = random_bytes(4).hex()
        with self._guard("the data cannot be opened"):
            self._check_settings()
        super().__init__(sources, _SESSION_LOCK)

    def interrupt(self) -> None:
        """Cancel the jobs of the session, in which one plan runs at a time; see `Engine`."""
        with suppress(Exception):
            if hasattr(self._session, "interruptAll"):
                self._session.interruptAll()
            else:
                self._session.sparkContext.cancelAllJobs()

    def close(self) -> None:
        """Do nothing: the session belongs to its owner."""

    def fingerprint(self, table: str) -> Any:
        """None: the session decides what a name means, and a data frame has none. See `Engine`."""
        del table

    def identity(self, table: str) -> DataIdentity:
        """Empty: the session decides what a name means. See `Engine`."""
        del table
        return DataIdentity()

    # Snapshots

    @contextmanager
    def _open_snapshot(self) -> Iterator[None]:
        """Fix one list of files for each table, and fail if it has changed at the end."""
        try:
            with self._guard():
                self._check_settings()
                self._pin_settings()
                before = {name: self._create_view(scan.relation) for name, scan in self._scans.items()}
            yield
            with self._guard():
                after = {
                    name: _list_files(self._load_frame(scan.relation.handle))
                    for name, scan in self._scans.items()
                }
                self._check_pinned()
            if after != before:
                # A single query may list files twice, too, and then bound other rows than it adds up.
                raise EngineFailed(
                    "a table was written to while it was queried",
                    why="parts of the answer would come from different states of the table",
                    fix=f"wait until it is written, or open a data frame of one version; {RETRY_HINT}",
                )
        finally:
            self._restore_settings()
            for scan in self._scans.values():
                self._drop_view(scan.relation.table.name)

    def _create_view(self, relation: Relation) -> frozenset[str]:
        frame = self._load_frame(relation.handle)
        if _describe_columns(frame) != relation.columns:
            raise table_changed()
        frame.createOrReplaceTempView(relation.table.name)
        return _list_files(frame)

    def _drop_view(self, view: str) -> None:
        with suppress(Exception), warnings.catch_warnings():
            self._session.catalog.dropTempView(view)

    def _load_frame(self, rows: Any) -> Any:
        return self._session.table(rows) if isinstance(rows, str) else rows

    def _check_settings(self) -> None:
        for setting, value in _REFUSED_SETTINGS.items():
            if str(self._session.conf.get(setting)).upper() == value:
                raise EngineFailed(
                    f"the session's setting {setting} is {value}",
                    why="one row could fail a query, or one part of a query read a file that others skip",
                    fix=f"set it to another value; {RETRY_HINT}",
                )

    def _pin_settings(self) -> None:
        """Set what a query must not depend on while it runs; the session belongs to its owner."""
        self._settings_before = {name: self._session.conf.get(name, None) for name in _PINNED_SETTINGS}
        for name, value in _PINNED_SETTINGS.items():
            self._session.conf.set(name, value)

    def _check_pinned(self) -> None:
        """Another user of the session may have changed a setting: fail then, whatever the rows are."""
        for name, value in _PINNED_SETTINGS.items():
            if self._session.conf.get(name, None) != value:
                raise EngineFailed(
                    f"the session's setting {name} was changed while a plan ran",
                    why="a failure of the query could depend on the rows",
                    fix=f"leave it alone while plans run; {RETRY_HINT}",
                )

    def _restore_settings(self) -> None:
        with suppress(Exception), warnings.catch_warnings():
            for name, value in self._settings_before.items():
                self._session.conf.unset(name) if value is None else self._session.conf.set(name, value)
        self._settings_before = {}

    # Queries

    def _stream_rows(self, sql: exp.Expr, key_sets: KeySets) -> Generator[Sequence[Any]]:
        views = {name: f"_hubbub_{self._token}{name}" for name in key_sets}
        text = self.compile(sql.transform(lambda node: _replace_key_set(node, views)))
        try:
            for name, keys in key_sets.items():
                self._make_key_frame(keys).createOrReplaceTempView(views[name])
            yield from self._session.sql(text).toLocalIterator()
        finally:
            for view in views.values():
                self._drop_view(view)

    def _make_key_frame(self, keys: Sequence[Key]) -> Any:
        """A data frame of group keys and their indices."""
        sql_type = _KEY_TYPES[infer_kind(keys)]
        if len(keys) > _MAX_LISTED_KEYS:
            with suppress(ImportError):
                import pyarrow as pa

                # The type is given: a batch that contains only None has none of its own.
                arrow_type = pa.array([next((key for key in keys if key is not None), "")]).type
                arrays = [pa.array(batch, arrow_type) for batch in split_into_batches(keys, _ARRAY_KEYS)]
                indices = np.arange(len(keys), dtype=np.int32)
                table = pa.table({"key": pa.chunked_array(arrays), "place": indices})
                frame = self._session.createDataFrame(table)
                return frame.selectExpr(f"CAST(key AS {sql_type}) AS key", "place")
        rows = list(zip(keys, range(len(keys)), strict=True))
        return self._session.createDataFrame(rows, f"key {sql_type}, place int")

    def _explain(self, problem: Exception) -> tuple[str, str]:
        condition = ""
        with suppress(Exception):
            condition = str(getattr(problem, "getCondition", lambda: "")() or "").partition(".")[0]
        unknown = ("its own message may contain data", "check that the cluster runs and has its files")
        return _ERRORS.get(condition, unknown)

    # Opening

    def _describe(self, name: str, source: TableSource) -> Relation:
        if not isinstance(source.rows, str) and type(source.rows).__name__ != "DataFrame":
            raise InvalidInput(
                f"rows are of type {type(source.rows).__name__}, which Spark does not hold",
                why="all tables of a query are joined in Spark",
                fix="name a table of its catalog, or pass a Spark data frame",
            )
        frame = self._load_frame(source.rows)
        _check_deterministic(name, frame)
        view = exp.Table(this=exp.to_identifier(f"_hubbub_{self._token}_{len(self._scans)}"))
        return Relation(view, _describe_columns(frame), source.rows)

    def _read_column(self, column: RemoteColumn) -> exp.Expr:
        name = quoted_column(column.name)
        if column.kind is Kind.NUMBER:
            double = exp.Cast(this=name, to=DOUBLE.copy())
            return clamp_finite(double) if column.sql_type in {"float", "double"} else double
        if column.sql_type == "timestamp":
            # In UTC, whatever the session's own time zone is.
            micros = exp.func("unix_micros", name)
            inside = exp.Between(this=micros, low=_integer(_MIN_MICROS), high=_integer(_MAX_MICROS))
            return exp.Case(ifs=[exp.If(this=inside, true=_timestamp_from_micros(micros.copy()))])
        if column.kind in {Kind.DATE, Kind.TIMESTAMP}:
            return restrict_years(name, column.kind)
        return _read_text(column)

    def _read_opaque(self, column: RemoteColumn, kind: Kind) -> exp.Expr:
        raise InvalidInput(
            f"the column {column.name!r} is of a type without a kind, and declared as a {kind.value}",
            why="every engine and every session writes its values differently",
            fix="leave its type out, or cast it in a data frame",
        )

    def _unit_type(self, column: RemoteColumn) -> str | None:
        base = _base_type(column.sql_type)
        # Decimals of different precision are different types.
        return column.sql_type if base == "decimal" else _UNIT_TYPES.get(base)

    def _read_unit(self, column: RemoteColumn, unit_type: str) -> exp.Expr:
        if unit_type == "integer":
            return exp.Cast(this=quoted_column(column.name), to=BIGINT.copy())
        return _read_text(column)


def _replace_key_set(node: exp.Expr, views: Mapping[str, str]) -> exp.Expr:
    """A key set, read through its view."""
    if not isinstance(node, exp.Table) or node.name not in views or node.this.quoted:
        return node
    return exp.alias_(exp.Table(this=exp.to_identifier(views[node.name])), node.name, table=True)


def _describe_columns(frame: Any) -> tuple[RemoteColumn, ...]:
    """The columns of a data frame. It reports CHAR(n), which is padded with spaces, only as metadata."""
    declared = [str(field.metadata.get("__CHAR_VARCHAR_TYPE_STRING", "")) for field in frame.schema.fields]
    columns = []
    for (name, reported), stored in zip(frame.dtypes, declared, strict=True):
        sql_type = stored if stored.startswith("char(") and reported == "string" else str(reported)
        columns.append(RemoteColumn(str(name), sql_type, _KINDS.get(_base_type(sql_type), Kind.OPAQUE)))
    return tuple(columns)


def _base_type(sql_type: str) -> str:
    """A type without its parameters and collation."""
    return sql_type.partition("(")[0].partition(" ")[0]


def _list_files(frame: Any) -> frozenset[str]:
    """The files that contain a data frame's rows; empty if there are none."""
    return frozenset(map(str, frame.inputFiles()))


def _check_deterministic(name: str, frame: Any) -> None:
    """Refuse a frame that Spark itself knows to differ each time; Spark Connect does not tell."""
    inner = getattr(frame, "_jdf", None)
    if inner is not None and not inner.queryExecution().analyzed().deterministic():
        raise InvalidInput(
            f"{name} is computed with random numbers, or from the order of rows",
            why="parts of a query would see different rows, and one person would change the rows of others",
            fix="write it to a table first, or leave that column out",
        )


def _timestamp_from_micros(micros: exp.Expr) -> exp.Expr:
    """A timestamp without time zone, from microseconds since 1970."""
    seconds = exp.Div(
        this=exp.Cast(this=micros, to=exp.DataType.build("DECIMAL(20, 0)")),
        expression=exp.Cast(this=exp.Literal.number(1000000), to=exp.DataType.build("DECIMAL(7, 0)")),
        typed=True,
        safe=False,
    )
    exact = exp.Cast(this=seconds, to=exp.DataType.build("DECIMAL(18, 6)"))
    zero = exp.Literal.number(0)
    start = exp.Cast(this=exp.Literal.string("1970-01-01 00:00:00"), to=_TIMESTAMP.copy())
    interval = call("MAKE_DT_INTERVAL", zero, zero.copy(), zero.copy(), exact)
    return exp.Paren(this=exp.Add(this=start, expression=interval))


def _read_text(column: RemoteColumn) -> exp.Expr:
    """A text in valid UTF-8, compared byte by byte; a column of another type as it is."""
    name = quoted_column(column.name)
    if column.kind is not Kind.TEXT:
        return name
    text: exp.Expr = name
    if "collate" in column.sql_type:
        text = exp.Collate(this=name, expression=exp.Var(this="UTF8_BINARY"))
    if column.sql_type.startswith("char("):
        text = exp.Trim(this=text, expression=exp.Literal.string(" "), position="TRAILING")
    return exp.Case(ifs=[exp.If(this=call("is_valid_utf8", name.copy()), true=text)])


def _integer(number: int) -> exp.Expr:
    return exp.Literal.number(number) if number >= 0 else exp.Neg(this=exp.Literal.number(-number))
