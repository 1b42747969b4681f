# ruff: noqa: S608 - names are quoted by sqlglot, values are parameters
"""PostgreSQL: the rows stay in the server, and only aggregates leave it.

All steps of a plan run in one read-only transaction, on one snapshot. Nothing is created in the database: key
sets are sent as arrays.
"""

import struct
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from typing import Any

from sqlglot import exp

from hubbub.engines.data_identity import DataIdentity
from hubbub.engines.dialect import BIN_INDEX, INEXACT, Translations, call, is_wide_integer, replace_types
from hubbub.engines.engine import RETRY_HINT, KeySets, TableSource, table_changed
from hubbub.engines.remote_engine import BATCH_ROWS, Relation, RemoteColumn, RemoteEngine, quoted_column
from hubbub.engines.schema import Key, Kind, infer_kind, split_into_batches
from hubbub.engines.total_functions import (
    BIGINT,
    DOUBLE,
    MIN_DATETIME,
    SQL_TYPES,
    clamp_finite,
    number_literal,
    restrict_years,
)
from hubbub.errors import EngineFailed, InvalidInput

__all__ = ["PostgreSQL"]

_MIN_VERSION = 140_000
_MAX_TEXT_BYTES = 1 << 26
"""Longer texts are NULL: the server's functions on texts fail where eight times the text exceeds 1 GB."""
_ARRAY_KEYS = 1 << 19
"""Group keys in one array."""
_KINDS = {
    **dict.fromkeys(("int2", "int4", "int8", "float4", "float8", "numeric"), Kind.NUMBER),
    **dict.fromkeys(("text", "varchar", "bpchar", "name"), Kind.TEXT),
    "bool": Kind.BOOLEAN,
    "date": Kind.DATE,
    "timestamp": Kind.TIMESTAMP,
    "timestamptz": Kind.TIMESTAMP,
}
_UNIT_TYPES = {
    **dict.fromkeys(("int2", "int4", "int8"), "integer"),
    **dict.fromkeys(("text", "varchar", "bpchar", "name"), "text"),
    **{
        name: name
        for name in ("numeric", "float8", "uuid", "date", "timestamp", "timestamptz", "bytea", "bool")
    },
}
_VARCHAR = exp.DataType.build("VARCHAR")
_KEY_TYPES = {
    Kind.TEXT: "text",
    Kind.NUMBER: "float8",
    Kind.BOOLEAN: "boolean",
    Kind.DATE: "date",
    Kind.TIMESTAMP: "timestamp",
}
_READABLE = {"r", "p", "m"}
"""`relkind` of tables, partitioned tables and materialized views."""
_ERRORS = {
    "42501": ("it may not read a table", "GRANT SELECT on the table to this user, without policies"),
    "42P01": ("a table is not there any more", "open the tables again"),
    "42703": ("a column is not there any more", "open the tables again"),
    "57014": ("it took longer than the server allows", "set a longer statement_timeout, or ask for less"),
    "55P03": ("a table is locked by somebody else", "try again later"),
    "53100": ("the server's disk is full", "free some space there"),
    "53200": ("the server has no memory left", "give it more"),
}
"""By `SQLSTATE`, which is public, the reason for an error and its fix."""
_SETTINGS = (
    "SET LOCAL search_path = pg_catalog",  # only the server's own functions and operators
    "SET LOCAL standard_conforming_strings = on",  # else a backslash could end a text early
    "SET LOCAL transform_null_equals = off",
    "SET LOCAL client_encoding = 'UTF8'",  # else some texts could not be sent: a failure that depends on rows
    "SET LOCAL TimeZone = 'UTC'",
    "SET LOCAL DateStyle = 'ISO, YMD'",
    "SET LOCAL IntervalStyle = postgres",
    "SET LOCAL bytea_output = hex",
    "SET LOCAL lc_monetary = 'C'",
    "SET LOCAL extra_float_digits = 1",
    "SET LOCAL array_nulls = on",  # else the key NULL would be a text
    "SET LOCAL row_security = off",  # fail rather than let a policy choose rows
    "SET LOCAL jit = off",
    "SET LOCAL client_min_messages = error",
)
_CLUSTER = "SELECT system_identifier::text, current_database()::text FROM pg_catalog.pg_control_system()"
"""Identifies the cluster whichever of its addresses is used."""
_RELATED = """
WITH RECURSIVE related AS (
    SELECT $1::oid AS oid UNION SELECT CASE WHEN i.inhparent = r.oid THEN i.inhrelid ELSE i.inhparent END
    FROM pg_inherits i JOIN related r ON r.oid IN (i.inhparent, i.inhrelid)
)
SELECT c.oid::text, n.nspname::text, c.relname::text
FROM related JOIN pg_class c USING (oid) JOIN pg_namespace n ON n.oid = c.relnamespace
"""
"""A table with its partitions, its parents, and theirs: a row of one may be a row of another."""
_OID = "SELECT pg_catalog.to_regclass($1)::pg_catalog.oid"
"""OID of a table by its name in the search path; it uses no operator that a user could have defined."""
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
"""Columns with their types, by full name unless built in; generated virtual columns are left out."""


# The dialect


def _compare_bytewise(text: exp.Expr) -> exp.Expr:
    return exp.Collate(this=text, expression=exp.to_identifier("C", quoted=True))


_PLAIN_TEXTS = (
    *(exp.Cast, exp.RegexpLike, exp.Trim, exp.Translate, exp.Pad, exp.Like, exp.AtTimeZone),
    exp.Interval,
)
"""Expressions in which a text is not compared."""


def _translate_literal(node: exp.Expr) -> exp.Expr:
    plain = (
        exp.Cast,
        exp.RegexpLike,
        exp.Trim,
        exp.Translate,
        exp.Pad,
        exp.Like,
        exp.AtTimeZone,
        exp.Interval,
    )
    if not node.is_string or isinstance(node.parent, plain):
        return node
    return _compare_bytewise(node.copy())


def _translate_cast(node: exp.Expr) -> exp.Expr:
    cast = exp.Cast(this=node.this, to=node.args["to"])
    return _compare_bytewise(cast) if cast.args["to"].this.name in {"VARCHAR", "TEXT"} else cast


def _divide_integers(node: exp.Expr) -> exp.Expr:
    if is_wide_integer(node.this):
        return call("DIV", node.this, node.expression)
    return exp.Div(this=node.this, expression=node.expression, typed=True, safe=False)


def _truncate_timestamp(node: exp.Expr) -> exp.Expr:
    timestamp = exp.Cast(this=node.this, to=exp.DataType.build("TIMESTAMP"))
    return call("DATE_TRUNC", exp.Literal.string(node.args["unit"].name), timestamp)


def _find_text(node: exp.Expr) -> exp.Expr:
    return call("STRPOS", node.this, node.args["substr"])


def _translate_function(node: exp.Expr) -> exp.Expr:
    if str(node.this) == BIN_INDEX:
        value, *ends = node.expressions
        kind = ends[0].args["to"] if isinstance(ends[0], exp.Cast) else DOUBLE
        array = exp.Cast(this=exp.Array(expressions=ends), to=exp.DataType.build(f"{kind.sql()}[]"))
        return call("WIDTH_BUCKET", value, array)
    if str(node.this).upper() != "HASH":
        return node
    parts = [part for part in node.expressions if not isinstance(part, exp.Collate)]  # all but the salt
    return call("HASH_RECORD_EXTENDED", call("ROW", *parts), exp.Literal.number(0))


_TRANSLATIONS: Translations = {
    **INEXACT,
    exp.Literal: _translate_literal,
    exp.Cast: _translate_cast,
    exp.TryCast: _translate_cast,  # its argument matches a pattern first, so it cannot fail
    exp.DataType: replace_types({exp.DataType.Type.INT128: exp.DataType.build("DECIMAL")}),
    exp.IntDiv: _divide_integers,
    exp.TimestampTrunc: _truncate_timestamp,
    exp.StrPosition: _find_text,
    exp.Anonymous: _translate_function,
}


# The engine


class PostgreSQL(RemoteEngine):
    """Tables of one database, read through one connection.

    Assumes: the server is what it claims to be, and stores UTF-8.
    """

    name = "PostgreSQL"
    dialect = "postgres"
    translations = _TRANSLATIONS
    unit_types = "a number, a text, a uuid or a date"

    def __init__(self, address: str, sources: Mapping[str, TableSource]) -> None:
        self._address = address
        self._connection: Any = None
        with self._guard("the database cannot be opened"):
            self._connect()
        try:
            super().__init__(sources)
        except BaseException:
            self.close()
            raise

    def __del__(self) -> None:
        self.close()

    def interrupt(self) -> None:
        """Ask the server to cancel what the connection runs; see `Engine`."""
        with suppress(Exception):
            self._connection.cancel_safe(timeout=5)

    def close(self) -> None:
        """Close the connection."""
        if getattr(self, "_connection", None) is not None:
            with suppress(Exception):
                self._connection.close()

    def fingerprint(self, table: str) -> Any:
        """The cluster's own identifier, the database and the table; see `Engine`."""
        return ["postgresql", *self._query(_CLUSTER)[0], self._sql_name(self._scans[table].relation)]

    def identity(self, table: str) -> DataIdentity:
        """The table and all tables tied to it by inheritance or partitioning; see `Engine`."""
        with self.snapshot():
            database = ("postgresql", *self._query(_CLUSTER)[0])
            oid = self._find_oid(self._sql_name(self._scans[table].relation))
            related = self._query(_RELATED, [oid])
        names = {(*database, "table", schema, name) for _, schema, name in related}
        return DataIdentity(frozenset(names | {(*database, "number", oid) for oid, *_ in related}))

    def _query(self, text: str, arguments: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        with self.snapshot(), self._guard():
            return self._fetch(text, arguments)

    # The connection

    def _connect(self) -> None:
        """Connect; the caller guards it, who knows whether something has been charged."""
        import psycopg

        self._connection = psycopg.connect(
            self._address, autocommit=True, application_name="hubbub", connect_timeout=30
        )
        self._connection.prepare_threshold = None
        self._connection.adapters.register_dumper(_BinaryArray, _make_dumper())
        version = self._connection.info.server_version
        encoding = self._connection.execute("SHOW server_encoding").fetchone()[0]
        if version < _MIN_VERSION or encoding != "UTF8":
            self.close()
            raise InvalidInput(
                "the server is older than PostgreSQL 14, or does not store UTF-8",
                why="texts are compared byte by byte, and keys are chosen by a hash that older servers lack",
                fix="move the table to a newer database",
            )

    @contextmanager
    def _open_snapshot(self) -> Iterator[None]:
        try:
            with self._guard():
                self._begin()
            yield
        finally:
            with suppress(Exception):  # a lost connection has nothing to roll back
                self._connection.execute("ROLLBACK")

    def _begin(self) -> None:
        """Begin a read-only transaction on tables that are still as they were when they were opened."""
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
            # This takes a lock: from here on nobody can change the table's columns.
            run(f"SELECT FROM {self._sql_name(scan.relation)} LIMIT 0")
            self._check_relation(scan.relation)

    def _check_relation(self, relation: Relation) -> None:
        name = self._sql_name(relation)
        columns, (*_, kind) = self._read_catalog(self._find_oid(name))
        # The catalog is seen as it was before the lock was waited for, the table's type codes as they are.
        is_same = columns == relation.columns and self._type_codes(name, columns) == relation.handle
        if kind not in _READABLE or not is_same:
            raise table_changed()

    def _stream_rows(self, sql: exp.Expr, key_sets: KeySets) -> Generator[Sequence[Any]]:
        import psycopg

        text, arguments = _with_key_sets(self.compile(sql), key_sets)
        # Older client libraries cannot receive rows in chunks.
        size = BATCH_ROWS if psycopg.pq.version() >= 170_000 else 1
        cursor = psycopg.RawCursor(self._connection)
        rows: Any = cursor.stream(text, arguments, binary=True, size=size)
        # The connection is busy until both are closed.
        with closing(cursor), closing(rows):
            yield from rows

    def _explain(self, problem: Exception) -> tuple[str, str]:
        state = str(getattr(problem, "sqlstate", None) or "")
        if state in _ERRORS:
            return _ERRORS[state]
        if not state or state[:2] in {"08", "57"}:
            return "the connection was refused or lost", "check that the server runs and lets this user in"
        return "its own message may contain data", "read the server's log"

    # Opening

    def _describe(self, name: str, source: TableSource) -> Relation:
        if not isinstance(source.rows, str):
            raise InvalidInput(
                f"rows are of type {type(source.rows).__name__}, which is not in the database",
                why="all tables of a query are joined in the database",
                fix="name a table of the database, as schema.table",
            )
        # The user's name is looked up in the user's search path, which a snapshot replaces.
        oid = self._find_oid(_quote_name(source.rows))
        with self.snapshot():
            columns, (schema, table_name, kind) = self._read_catalog(oid)
            if kind not in _READABLE:
                raise InvalidInput(
                    f"{name} is not a table, has rows of a foreign table, or has rows that a policy selects",
                    why="what is computed while it is read may fail on some row, and the failure would show",
                    fix="name a table that this user may read in full, or make the view a materialized one",
                )
            table = exp.Table(
                this=exp.to_identifier(table_name, quoted=True), db=exp.to_identifier(schema, quoted=True)
            )
            return Relation(table, columns, self._type_codes(table.sql("postgres"), columns))

    @staticmethod
    def _sql_name(relation: Relation) -> str:
        return relation.table.sql("postgres")

    def _fetch(self, text: str, arguments: Sequence[Any]) -> list[tuple[Any, ...]]:
        import psycopg

        rows: list[tuple[Any, ...]] = psycopg.RawCursor(self._connection).execute(text, arguments).fetchall()
        return rows

    def _find_oid(self, name: str) -> int | None:
        rows = self._fetch(_OID, [name])
        return rows[0][0] if rows else None

    def _type_codes(self, name: str, columns: Sequence[RemoteColumn]) -> tuple[int, ...]:
        """The columns' types by OID, as the table itself has them now."""
        listed = ", ".join(quoted_column(column.name).sql("postgres") for column in columns)
        empty = self._connection.execute(f"SELECT {listed} FROM {name} LIMIT 0")
        return tuple(column.type_code for column in empty.description)

    def _read_catalog(self, oid: int | None) -> tuple[tuple[RemoteColumn, ...], tuple[str, str, str]]:
        """A table's columns; its schema, name and kind."""
        rows = self._fetch(_COLUMNS, [oid])
        if not rows:
            is_charged = hasattr(self, "tables")  # they are open, and a plan runs
            raise EngineFailed(
                "a table does not exist, or may not be read",
                why="no query can be answered without it",
                fix="check that it exists, and GRANT SELECT on it" + f"; {RETRY_HINT}" * is_charged,
            )
        columns = tuple(
            RemoteColumn(name, sql_type, _find_kind(sql_type, type_class), type_class)
            for name, sql_type, type_class, *_ in rows
        )
        schema, table, kind = rows[0][3:]
        return columns, (schema, table, kind)

    def _read_column(self, column: RemoteColumn) -> exp.Expr:
        name = quoted_column(column.name)
        cast = exp.Cast(this=name, to=exp.DataType.build(SQL_TYPES[column.kind]))
        if column.kind is Kind.OPAQUE or column.sql_type == "bool":
            return name
        if column.type_class == "e":
            return _format_value(name)
        if column.sql_type == "numeric":
            return _decimal_to_double(name)
        if column.sql_type in {"float4", "float8"}:
            return clamp_finite(cast)
        if column.sql_type == "timestamptz":
            utc = exp.AtTimeZone(this=name, zone=exp.Literal.string("UTC"))
            return restrict_years(utc, column.kind)
        if column.kind is Kind.TEXT:
            return _drop_long(cast)
        return restrict_years(name, column.kind) if column.kind in MIN_DATETIME else cast

    def _read_opaque(self, column: RemoteColumn, kind: Kind) -> exp.Expr:
        del kind
        return _drop_long(_format_value(self._read_column(column)))

    def _unit_type(self, column: RemoteColumn) -> str | None:
        return "text" if column.type_class == "e" else _UNIT_TYPES.get(column.sql_type)

    def _read_unit(self, column: RemoteColumn, unit_type: str) -> exp.Expr:
        if column.type_class == "e":
            return self._read_column(column)
        name = quoted_column(column.name)
        to = {"integer": BIGINT, "text": _VARCHAR}.get(unit_type)
        return name if to is None else exp.Cast(this=name, to=to.copy())


def _find_kind(sql_type: str, type_class: str) -> Kind:
    return _KINDS.get(sql_type, Kind.TEXT if type_class == "e" else Kind.OPAQUE)


def _format_value(value: exp.Expr) -> exp.Expr:
    """A value of any type as its type writes it; a cast could call a function that a user defined."""
    text = call("FORMAT", exp.Literal.string("%s"), value)
    is_there = exp.Not(this=exp.Is(this=value.copy(), expression=exp.Null()))
    return exp.Cast(this=exp.Case(ifs=[exp.If(this=is_there, true=text)]), to=_VARCHAR.copy())


def _drop_long(text: exp.Expr) -> exp.Expr:
    """NULL for a text so long that the server's own functions could fail on it."""
    is_short = exp.LTE(this=call("OCTET_LENGTH", text), expression=exp.Literal.number(_MAX_TEXT_BYTES))
    return exp.Case(ifs=[exp.If(this=is_short, true=text.copy())])


def _decimal_to_double(decimal: exp.Expr) -> exp.Expr:
    """A decimal as a double. It is clamped first: a cast of a number beyond the doubles would fail."""
    double = exp.DataType.build("DOUBLE")
    size = exp.Abs(this=decimal)
    smallest, largest, end = (
        exp.Literal.number(repr(power)) for power in (2.0**-200, 2.0**200, 1.7976931348623157e308)
    )
    inside = exp.Between(this=size, low=smallest, high=largest)
    positive = exp.If(
        this=exp.GT(this=decimal.copy(), expression=exp.Literal.number(0)), true=number_literal(2.0**200)
    )
    return exp.Case(
        ifs=[
            exp.If(this=inside, true=exp.Cast(this=decimal.copy(), to=double)),
            exp.If(this=exp.LT(this=size.copy(), expression=smallest.copy()), true=number_literal(0)),
            exp.If(
                this=exp.LTE(this=size.copy(), expression=end),
                true=exp.Case(ifs=[positive], default=number_literal(-(2.0**200))),
            ),
        ]
    )


def _quote_name(name: str) -> str:
    """A name as a person wrote it, schema and table, quoted for the server."""
    return ".".join('"' + part.replace('"', '""') + '"' for part in name.split("."))


# Key sets


def _with_key_sets(text: str, key_sets: KeySets) -> tuple[str, list[Any]]:
    """The query with its key sets as parameters, and the arrays for these."""
    arrays: list[Any] = []
    tables = []
    for name, keys in key_sets.items():
        kind = infer_kind(keys)
        sql_type = _KEY_TYPES[kind]
        parts = []
        for start in range(0, len(keys), _ARRAY_KEYS):
            arrays.append(_make_parameter(keys[start : start + _ARRAY_KEYS], kind))
            listed = f"unnest(${len(arrays)}::{sql_type}[]) WITH ORDINALITY AS _listed(key, place)"
            parts.append(f"SELECT key, (place + {start - 1})::int AS place FROM {listed}")
        key = 'key COLLATE "C" AS key' if kind is Kind.TEXT else "key"
        listed = " UNION ALL ".join(parts)
        tables.append(f"{name} AS MATERIALIZED (SELECT {key}, place FROM ({listed}) AS _all)")
    if not tables:
        return text, arrays
    assert text.startswith("WITH ")
    return f"WITH {', '.join(tables)}, {text.removeprefix('WITH ')}", arrays


class _BinaryArray(bytes):
    """An array in the server's binary format; as Python's own values it would take five times the memory."""


def _make_parameter(keys: Sequence[Key], kind: Kind) -> Any:
    oid = {Kind.TEXT: 25, Kind.NUMBER: 701}.get(kind)
    if oid is None:
        return list(keys)
    # One dimension, has NULLs, element type, length, lower bound.
    array = bytearray(struct.pack("!iiIii", 1, int(None in keys), oid, len(keys), 1))
    for batch in split_into_batches(keys, BATCH_ROWS):
        array += b"".join(map(_encode_key, batch))
    return _BinaryArray(array)


def _encode_key(key: Key) -> bytes:
    if key is None:
        return b"\xff\xff\xff\xff"
    if isinstance(key, str):
        text = key.encode()
        return len(text).to_bytes(4, "big") + text
    return struct.pack("!id", 8, key)


def _make_dumper() -> Any:
    from psycopg.adapt import Dumper
    from psycopg.pq import Format

    class BinaryArrayDumper(Dumper):
        format = Format.BINARY

        def dump(self, obj: Any) -> bytes:
            return bytes(obj)

    return BinaryArrayDumper
