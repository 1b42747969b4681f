# ruff: noqa: S608 - names are quoted by sqlglot, values are parameters
"""PostgreSQL: the rows stay in the server, and only aggregates leave it.

All steps of a plan run in one transaction that only reads, on one snapshot. Nothing is created there: a table
is read through a sub-query in which every column has its declared kind, and lists of keys are sent as arrays.
"""

import struct
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from dataclasses import dataclass
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
    MIN_DATETIME,
    SQL_TYPES,
    clamp_finite,
    convert_kind,
    in_window,
    number_literal,
    restrict_years,
)
from hubbub.errors import EngineFailed, HubbubError, InvalidInput

__all__ = ["PostgreSQL"]

_OLDEST = 140_000
_LONGEST = 1 << 26
"""Bytes of a text that is read: the server cuts, changes and searches only what fits eight times in 1 GB."""
_CHUNK = 1 << 16
"""Rows that are read at a time."""
_MOST_KEYS = 1 << 19
"""Keys in one array."""
_KINDS = {
    **dict.fromkeys(("int2", "int4", "int8", "float4", "float8", "numeric"), Kind.NUMBER),
    **dict.fromkeys(("text", "varchar", "bpchar", "name"), Kind.TEXT),
    "bool": Kind.BOOLEAN,
    "date": Kind.DATE,
    "timestamp": Kind.TIMESTAMP,
    "timestamptz": Kind.TIMESTAMP,
}
_UNITS = {
    **dict.fromkeys(("int2", "int4", "int8"), "whole"),
    **dict.fromkeys(("text", "varchar", "bpchar", "name"), "text"),
    **{
        name: name
        for name in ("numeric", "float8", "uuid", "date", "timestamp", "timestamptz", "bytea", "bool")
    },
}
_READ = {"r", "p", "m"}
"""Tables, those that are parted, and views that are stored."""
_SETTINGS = (
    "SET LOCAL search_path = pg_catalog",  # no function or operator but the server's own
    "SET LOCAL standard_conforming_strings = on",  # else a text could end before its end
    "SET LOCAL transform_null_equals = off",
    "SET LOCAL client_encoding = 'UTF8'",  # else some texts could not be sent, and that would show
    "SET LOCAL TimeZone = 'UTC'",
    "SET LOCAL DateStyle = 'ISO, YMD'",
    "SET LOCAL IntervalStyle = postgres",
    "SET LOCAL bytea_output = hex",
    "SET LOCAL lc_monetary = 'C'",
    "SET LOCAL extra_float_digits = 1",
    "SET LOCAL array_nulls = on",  # else the key that is none would be a text
    "SET LOCAL row_security = off",  # else policies would choose rows; so it fails, whatever these are
    "SET LOCAL jit = off",
    "SET LOCAL client_min_messages = error",
)
_CLUSTER = "SELECT system_identifier::text, current_database()::text FROM pg_catalog.pg_control_system()"
"""Whichever of its addresses a server is called by."""
_RELATED = """
WITH RECURSIVE related AS (
    SELECT $1::oid AS oid UNION SELECT CASE WHEN i.inhparent = r.oid THEN i.inhrelid ELSE i.inhparent END
    FROM pg_inherits i JOIN related r ON r.oid IN (i.inhparent, i.inhrelid)
)
SELECT c.oid::text, n.nspname::text, c.relname::text
FROM related JOIN pg_class c USING (oid) JOIN pg_namespace n ON n.oid = c.relnamespace
"""
"""A table with its partitions and parents, and theirs: a row of one may be a row of another."""
_NUMBER = "SELECT pg_catalog.to_regclass($1)::pg_catalog.oid"
"""Of a table, by its name in the path; there is no operator in it that somebody else could have made."""
_COLUMNS = """
WITH RECURSIVE below AS (
    SELECT $1::oid AS oid UNION SELECT i.inhrelid FROM pg_inherits i JOIN below ON i.inhparent = below.oid
), found AS MATERIALIZED (
    SELECT c.oid, n.nspname, c.relname, CASE
        WHEN row_security_active(c.oid) THEN 'chosen by a policy'
        WHEN EXISTS (SELECT FROM below JOIN pg_class f USING (oid) WHERE f.relkind = 'f') THEN 'foreign'
        ELSE c.relkind::text END AS kind
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = $1::oid
)
SELECT a.attname, CASE WHEN b.typnamespace = 'pg_catalog'::regnamespace THEN b.typname
    ELSE format_type(b.oid, NULL) END, b.typtype::text, c.nspname, c.relname, c.kind
FROM found c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
JOIN pg_type t ON t.oid = a.atttypid
JOIN pg_type b ON b.oid = CASE WHEN t.typbasetype = 0 THEN t.oid ELSE t.typbasetype END
WHERE has_column_privilege(c.oid, a.attnum, 'SELECT') AND a.attgenerated <> 'v'
ORDER BY a.attnum
"""
"""A type by its full name unless it is the server's own; what is computed when it is read is no column."""


@dataclass(frozen=True)
class _Scan:
    """A table in the server: its name there, its columns' types, and how it is read."""

    name: str
    types: tuple[tuple[str, str, str], ...]
    codes: tuple[int, ...]
    """The types by the numbers that an answer has them by."""
    sql: exp.Expr
    unit: str | None


class PostgreSQL:
    """Tables of one database, read through one connection.

    Guarantee: it gives out aggregates, the same integers as any other engine, and leaves nothing behind.
    Assumes: the server is what it says it is, and stores UTF-8.
    Proof: docs/proofs/bounding.md, "Engines"
    """

    name = "PostgreSQL"
    dialect = "postgres"

    def __init__(self, address: str, sources: Mapping[str, TableSource]) -> None:
        self._address = address
        self._snapshot_lock = SnapshotLock()
        self._connection: Any = None
        self._connect()
        self._scans: dict[str, _Scan] = {}
        tables = {}
        try:
            for name, source in sources.items():
                tables[name] = self._opened(name, source)
        except HubbubError:
            self.close()
            raise
        except Exception as problem:  # noqa: BLE001 - whatever it is, its message may hold data
            self.close()
            raise _failed(problem) from None
        self.tables: Mapping[str, Table] = tables

    def execute(self, sql: exp.Expr, key_sets: Mapping[str, Sequence[Key]]) -> RecordBatch:
        """Run one query; see `Engine`."""
        return concatenate_batches(self.execute_in_batches(sql, key_sets))

    def execute_in_batches(
        self, sql: exp.Expr, key_sets: Mapping[str, Sequence[Key]]
    ) -> Generator[RecordBatch]:
        """Run one query, and give its rows out a piece at a time; see `Engine`."""
        text, given = _with_keys(self.compile(sql), key_sets)
        with self.snapshot():
            try:
                yield from self._fetched(text, given, names_of(sql))
            except HubbubError:
                raise
            except Exception as problem:  # noqa: BLE001
                raise _failed(problem) from None

    def distinct_values(self, table: str, column: str) -> Sequence[Key]:
        """The different values of a column of a public table; see `Engine`."""
        return query_distinct_values(self, table, column)

    def fingerprint(self, table: str) -> Any:
        """The cluster by its own number, the database, the table; see `Engine`."""
        return ["postgresql", *self._found(_CLUSTER)[0], self._scans[table].name]

    def identity(self, table: str) -> DataIdentity:
        """The table and all that inheritance or partitioning ties to it, by name and number; see `Engine`."""
        with self.snapshot():
            database = ("postgresql", *self._found(_CLUSTER)[0])
            related = self._found(_RELATED, [self._number(self._scans[table].name)])
        named = {(*database, "table", schema, name) for _, schema, name in related}
        return DataIdentity(frozenset(named | {(*database, "number", number) for number, *_ in related}))

    def _found(self, text: str, given: Sequence[Any] = ()) -> list[tuple[str, ...]]:
        import psycopg

        with self.snapshot():
            try:
                found: list[tuple[str, ...]] = (
                    psycopg.RawCursor(self._connection).execute(text, given).fetchall()
                )
            except Exception as problem:  # noqa: BLE001
                raise _failed(problem) from None
        return found

    def compile(self, sql: exp.Expr) -> str:
        """The SQL as PostgreSQL reads it; see `Engine`."""
        return translate(sql, _FORMS, {name: scan.sql for name, scan in self._scans.items()}, "postgres")

    def check_unchanged(self) -> None:
        """Nothing is known before the snapshot; see `Engine`."""

    def snapshot(self) -> AbstractContextManager[None]:
        """One snapshot for all that is asked inside; see `Engine`."""
        return self._snapshot_lock.hold(self._transaction)

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        try:
            self._begin()
            yield
        finally:
            with suppress(Exception):  # a connection that is lost has nothing to roll back
                self._connection.execute("ROLLBACK")

    def __del__(self) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the connection."""
        if getattr(self, "_connection", None) is not None:
            with suppress(Exception):
                self._connection.close()

    # The connection

    def _connect(self) -> None:
        import psycopg

        try:
            self._connection = psycopg.connect(
                self._address, autocommit=True, application_name="hubbub", connect_timeout=30
            )
            self._connection.prepare_threshold = None
            self._connection.adapters.register_dumper(_Array, _dumper())
            version = self._connection.info.server_version
            encoding = self._connection.execute("SHOW server_encoding").fetchone()[0]
        except psycopg.Error as problem:
            raise _failed(problem, "the database cannot be opened") from None
        if version < _OLDEST or encoding != "UTF8":
            self.close()
            raise InvalidInput(
                "the server is older than PostgreSQL 14, or does not store UTF-8",
                why="texts are compared byte by byte, and keys kept by a hash that older servers do not have",
                fix="move the table to a newer database",
            )

    def _begin(self) -> None:
        """A transaction that only reads, on tables that are still as they were when they were opened."""
        try:
            if self._connection.closed or self._connection.broken:
                self._connect()
            run = self._connection.execute
            run("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            for setting in _SETTINGS:
                run(setting)
            if run("SHOW statement_timeout").fetchone()[0] == "0":
                run("SET LOCAL statement_timeout = '1h'")
            run("SET LOCAL lock_timeout = '60s'")
            for scan in self._scans.values():
                # It is locked by that: from here on nobody can change the table's columns.
                run(f"SELECT FROM {scan.name} LIMIT 0")
                self._check(scan)
        except HubbubError:
            raise
        except Exception as problem:  # noqa: BLE001
            raise _failed(problem) from None

    def _fetched(self, text: str, given: list[Any], names: Sequence[str]) -> Iterator[RecordBatch]:
        """The columns of an answer, a piece at a time."""
        import psycopg

        size = _CHUNK if psycopg.pq.version() >= 170_000 else 1
        cursor = psycopg.RawCursor(self._connection)
        rows: Any = cursor.stream(text, given, binary=True, size=size)
        # Till it is closed the connection waits for it.
        with closing(cursor), closing(rows):
            while True:
                some = list(islice(rows, _CHUNK))
                columns = zip(*some, strict=True) if some else ([] for _ in names)
                yield {name: _column(name, list(values)) for name, values in zip(names, columns, strict=True)}
                if len(some) < _CHUNK:
                    break

    def _check(self, scan: _Scan) -> None:
        types, (*_, kind) = self._types(self._number(scan.name))
        # The catalog is seen as it was before the lock was waited for, the table as it is.
        if kind not in _READ or types != scan.types or self._codes(scan.name, types) != scan.codes:
            raise EngineFailed(
                "a table is not as it was when it was opened",
                why="its columns or their types have changed, and the plan was made for the old ones",
                fix=f"open it again and plan anew; {RETRY_HINT}",
            )

    # Opening

    def _number(self, name: str) -> int | None:
        import psycopg

        found = psycopg.RawCursor(self._connection).execute(_NUMBER, [name]).fetchone()
        return None if found is None else found[0]

    def _codes(self, name: str, types: Sequence[tuple[str, str, str]]) -> tuple[int, ...]:
        listed = ", ".join(exp.to_identifier(column, quoted=True).sql("postgres") for column, *_ in types)
        return tuple(
            column.type_code
            for column in self._connection.execute(f"SELECT {listed} FROM {name} LIMIT 0").description
        )

    def _types(self, number: int | None) -> tuple[tuple[tuple[str, str, str], ...], tuple[str, str, str]]:
        import psycopg

        found = psycopg.RawCursor(self._connection).execute(_COLUMNS, [number]).fetchall()
        if not found:
            raise EngineFailed(
                "a table is not there, or may not be read",
                why="nothing can be asked about it",
                fix=f"see that it exists, and GRANT SELECT on it; {RETRY_HINT}",
            )
        return tuple(row[:3] for row in found), found[0][3:]

    def _opened(self, name: str, source: TableSource) -> Table:
        if not isinstance(source.rows, str):
            raise InvalidInput(
                f"rows are of type {type(source.rows).__name__}, which is not in the database",
                why="everything that is joined is joined there",
                fix="name a table of the database, as schema.table",
            )
        number = self._number(_quoted(source.rows))
        with self.snapshot():
            types, (schema, table_name, kind) = self._types(number)
            if kind not in _READ:
                raise InvalidInput(
                    f"{name} is no table, or has rows of a foreign one, or rows that a policy chooses",
                    why="what is computed there may fail on some row, and whether it does would show",
                    fix="name a table that this user may read all of, or make the view a materialized one",
                )
            raw = exp.Table(
                this=exp.to_identifier(table_name, quoted=True), db=exp.to_identifier(schema, quoted=True)
            )
            codes = self._codes(raw.sql("postgres"), types)
        found = {
            column: _KINDS.get(typed, Kind.TEXT if of == "e" else Kind.OPAQUE) for column, typed, of in types
        }
        kinds = resolve_kinds(name, found, source.types)
        table = Table.of(
            name, kinds, unit=source.unit, bounds=source.bounds, keys=source.keys, is_public=source.is_public
        )
        sql = exp.Select().from_(raw)
        read = {}
        for column, typed, of in types:
            known, made = found[column], _read(column, typed, of)
            if known is Kind.OPAQUE and kinds[column] is not Kind.OPAQUE:
                known, made = Kind.TEXT, _short(_spelled(made))
            read[column] = convert_kind(made, known, kinds[column], column)
        for column, made in read.items():
            sql = sql.select(exp.alias_(made, column, quoted=True))
        if source.window is not None:
            sql = sql.where(in_window(source.window, table, read))
        unit = None
        if source.unit is not None:
            column = table.find(source.unit).name
            typed, of = next((typed, of) for each, typed, of in types if each == column)
            unit = self._unit_kind(column, "text" if of == "e" else typed)
            own = _read(column, typed, of) if of == "e" else _unit(column, unit)
            sql = sql.select(exp.alias_(own, UNIT, quoted=True))
        self._scans[name] = _Scan(raw.sql("postgres"), types, codes, sql, unit)
        return table

    def _unit_kind(self, column: str, typed: str) -> str:
        kind = _UNITS.get(typed)
        others = {scan.unit for scan in self._scans.values() if scan.unit is not None}
        if kind is None or others - {kind}:
            raise InvalidInput(
                f"the unit's column {column!r} is of a type that no unit has, or of another type in others",
                why="whether two keys are of one person would depend on how they are compared",
                fix="give it one type in all tables: a number, a text, a uuid or a date",
            )
        return kind


def _read(column: str, typed: str, of: str) -> exp.Expr:
    """The column as the kind that its type is; no value can make it fail."""
    name = exp.column(exp.to_identifier(column, quoted=True))
    kind = _KINDS.get(typed, Kind.TEXT if of == "e" else Kind.OPAQUE)
    cast = exp.Cast(this=name, to=exp.DataType.build(SQL_TYPES[kind]))
    if kind is Kind.OPAQUE or typed == "bool":
        return name
    if of == "e":
        return _spelled(name)
    if typed == "numeric":
        return _of_digits(name)
    if typed in {"float4", "float8"}:
        return clamp_finite(cast)
    if typed == "timestamptz":
        zone = exp.AtTimeZone(this=name, zone=exp.Literal.string("UTC"))
        return restrict_years(zone, kind)
    if kind is Kind.TEXT:
        return _short(cast)
    return restrict_years(name, kind) if kind in MIN_DATETIME else cast


def _spelled(name: exp.Expr) -> exp.Expr:
    """A value of any type as its type writes it; to cast it could call a function that somebody made."""
    shown = exp.Anonymous(this="FORMAT", expressions=[exp.Literal.string("%s"), name])
    is_there = exp.Not(this=exp.Is(this=name.copy(), expression=exp.Null()))
    return exp.Cast(this=exp.Case(ifs=[exp.If(this=is_there, true=shown)]), to=exp.DataType.build("VARCHAR"))


def _short(text: exp.Expr) -> exp.Expr:
    """The text, unless it is so long that the server's own functions could fail on it."""
    size = exp.Anonymous(this="OCTET_LENGTH", expressions=[text])
    inside = exp.LTE(this=size, expression=exp.Literal.number(_LONGEST))
    return exp.Case(ifs=[exp.If(this=inside, true=text.copy())])


def _of_digits(name: exp.Expr) -> exp.Expr:
    """A decimal as a double, in range beforehand: a cast of what is beyond doubles would fail."""
    double = exp.DataType.build("DOUBLE")
    size = exp.Abs(this=name)
    least, most, end = (
        exp.Literal.number(repr(power)) for power in (2.0**-200, 2.0**200, 1.7976931348623157e308)
    )
    inside = exp.Between(this=size, low=least, high=most)
    positive = exp.If(
        this=exp.GT(this=name.copy(), expression=exp.Literal.number(0)), true=number_literal(2.0**200)
    )
    return exp.Case(
        ifs=[
            exp.If(this=inside, true=exp.Cast(this=name.copy(), to=double)),
            exp.If(this=exp.LT(this=size.copy(), expression=least.copy()), true=number_literal(0)),
            exp.If(
                this=exp.LTE(this=size.copy(), expression=end),
                true=exp.Case(ifs=[positive], default=number_literal(-(2.0**200))),
            ),
        ]
    )


def _unit(column: str, kind: str) -> exp.Expr:
    """The unit's key, of one type in all tables, in which equal is equal byte by byte."""
    name = exp.column(exp.to_identifier(column, quoted=True))
    to = {"whole": "BIGINT", "text": "VARCHAR"}.get(kind)
    return name if to is None else exp.Cast(this=name, to=exp.DataType.build(to))


def _column(name: str, values: list[Any]) -> NDArray[Any]:
    if name[:1] != "k":
        return np.array(values, dtype=np.int64)
    column = np.empty(len(values), dtype=object)
    column[:] = values
    return column


def _with_keys(text: str, key_sets: Mapping[str, Sequence[Key]]) -> tuple[str, list[Any]]:
    """The query with its lists of keys as arrays that are sent beside it, and these."""
    given: list[Any] = []
    parts = []
    for name, keys in key_sets.items():
        typed = _key_type(keys)
        pieces = []
        for start in range(0, len(keys), _MOST_KEYS):
            given.append(_array(keys[start : start + _MOST_KEYS], typed))
            listed = f"unnest(${len(given)}::{typed}[]) WITH ORDINALITY AS _listed(key, place)"
            pieces.append(f"SELECT key, (place + {start - 1})::int AS place FROM {listed}")
        key = 'key COLLATE "C" AS key' if typed == "text" else "key"
        listed = " UNION ALL ".join(pieces)
        parts.append(f"{name} AS MATERIALIZED (SELECT {key}, place FROM ({listed}) AS _all)")
    if not parts:
        return text, given
    assert text.startswith("WITH ")
    return f"WITH {', '.join(parts)}, {text.removeprefix('WITH ')}", given


class _Array(bytes):
    """A list of keys as the server reads it; as Python's own values it would take five times as much."""


def _array(keys: Sequence[Key], typed: str) -> Any:
    number = {"text": 25, "float8": 701}.get(typed)
    if number is None:
        return list(keys)
    made = bytearray(struct.pack("!iiIii", 1, int(None in keys), number, len(keys), 1))
    for piece in split_into_batches(keys, _CHUNK):
        made += b"".join(map(_encoded, piece))
    return _Array(made)


def _encoded(key: Key) -> bytes:
    if key is None:
        return b"\xff\xff\xff\xff"
    if isinstance(key, str):
        text = key.encode()
        return len(text).to_bytes(4, "big") + text
    return struct.pack("!id", 8, key)


def _key_type(keys: Sequence[Key]) -> str:
    first = next((key for key in keys if key is not None), "")
    if isinstance(first, bool):
        return "boolean"
    if isinstance(first, (str, float)):
        return "text" if isinstance(first, str) else "float8"
    return "timestamp" if hasattr(first, "hour") else "date"


def _dumper() -> Any:
    from psycopg.adapt import Dumper
    from psycopg.pq import Format

    class AsItIs(Dumper):
        format = Format.BINARY

        def dump(self, obj: Any) -> bytes:
            return bytes(obj)

    return AsItIs


def _quoted(name: str) -> str:
    """A name as a person gave it, schema and table, as the server reads it."""
    return ".".join('"' + part.replace('"', '""') + '"' for part in name.split("."))


def _failed(problem: Exception, what: str = "the engine could not run the query") -> EngineFailed:
    """Our own words for an error of the server's, whose message may hold data; its class is public."""
    state = str(getattr(problem, "sqlstate", None) or "")
    known = {
        "42501": ("it may not read a table", "GRANT SELECT on the table to this user, without policies"),
        "42P01": ("a table is not there any more", "open the tables anew"),
        "42703": ("a column is not there any more", "open the tables anew"),
        "57014": ("it took longer than the server allows", "set a longer statement_timeout, or ask for less"),
        "55P03": ("a table is locked by somebody else", "try again later"),
        "53100": ("the server's disk is full", "free some space there"),
        "53200": ("the server has no memory left", "give it more"),
    }
    is_lost = not state or state[:2] in {"08", "57"}
    lost = ("the connection was refused or lost", "see that the server runs and lets this user in")
    why, fix = known.get(
        state, lost if is_lost else ("its own message may hold data", "see the server's log")
    )
    return EngineFailed(what, why=why, fix=f"{fix}; {RETRY_HINT}")


# How PostgreSQL writes what means something else there


def _literal(node: exp.Expr) -> exp.Expr:
    plain = (exp.Cast, exp.RegexpLike, exp.Trim, exp.Translate, exp.Pad, exp.Like, exp.AtTimeZone)
    if not node.is_string or isinstance(node.parent, plain):
        return node
    return _bytewise(node.copy())


def _bytewise(text: exp.Expr) -> exp.Expr:
    return exp.Collate(this=text, expression=exp.to_identifier("C", quoted=True))


def _cast(node: exp.Expr) -> exp.Expr:
    made = exp.Cast(this=node.this, to=node.args["to"])
    return _bytewise(made) if made.args["to"].this.name in {"VARCHAR", "TEXT"} else made


def _type(node: exp.Expr) -> exp.Expr:
    return exp.DataType.build("DECIMAL") if node.this is exp.DataType.Type.INT128 else node


def _whole_division(node: exp.Expr) -> exp.Expr:
    if is_wide(node.this):
        return exp.Anonymous(this="DIV", expressions=[node.this, node.expression])
    return exp.Div(this=node.this, expression=node.expression, typed=True, safe=False)


def _truncated(node: exp.Expr) -> exp.Expr:
    moment = exp.Cast(this=node.this, to=exp.DataType.build("TIMESTAMP"))
    return exp.Anonymous(this="DATE_TRUNC", expressions=[exp.Literal.string(node.args["unit"].name), moment])


def _hashed(node: exp.Expr) -> exp.Expr:
    if str(node.this).upper() != "HASH":
        return node
    parts = [part for part in node.expressions if not isinstance(part, exp.Collate)]  # all but the salt
    row = exp.Anonymous(this="ROW", expressions=parts)
    return exp.Anonymous(this="HASH_RECORD_EXTENDED", expressions=[row, exp.Literal.number(0)])


def _refused(node: exp.Expr) -> exp.Expr:
    raise refused_here(node, "its last bit is not the same on every machine")


_FORMS: Translations = {
    exp.Literal: _literal,
    exp.Cast: _cast,
    exp.TryCast: _cast,  # of what looks like one, letter by letter, so that it cannot fail
    exp.DataType: _type,
    exp.IntDiv: _whole_division,
    exp.TimestampTrunc: _truncated,
    exp.Anonymous: _hashed,
    exp.Ln: _refused,
    exp.Exp: _refused,
    exp.Pow: _refused,
}
