"""The catalogs: `pg_catalog` and `information_schema` as drivers expect them, from the declared schema alone.

Rows of PostgreSQL's own catalogs (types, operators, functions) come from a file that was written by a real
PostgreSQL 15; rows about tables come from what the owner declared. They live in a DuckDB database of their
own, which can read no file, holds no protected row, and answers within limits of time, memory and rows.
"""

import gzip
import json
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import duckdb
import numpy as np

from hubbub.engines.schema import Kind
from hubbub.server.pgwire.catalog_sql import CATALOG, INFORMATION, rewrite
from hubbub.server.pgwire.messages import Column, WireError
from hubbub.server.pgwire.values import Type, type_of_kind
from hubbub.server.service_types import TableDescription

__all__ = ["Catalog", "Live", "catalog_columns"]

_FILE = Path(__file__).with_name("catalog_rows.json.gz")
_FUNCTIONS = Path(__file__).with_name("catalog_functions.sql")
_FIRST_OID = 16384
"""PostgreSQL's first OID of what users make."""
_PUBLIC = 2200
_OWNER = 10
_MAX_ROWS = 100_000
_SECONDS = 5.0
_TYPES = {
    "oid": "UINTEGER", "bool": "BOOLEAN", "int2": "SMALLINT", "int4": "INTEGER", "int8": "BIGINT",
    "float4": "REAL", "float8": "DOUBLE", "timestamptz": "TIMESTAMP WITH TIME ZONE",
    "int2vector": "SMALLINT[]", "oidvector": "UINTEGER[]", "cardinal_number": "INTEGER",
    "_oid": "UINTEGER[]", "_int2": "SMALLINT[]", "_int4": "INTEGER[]", "_float4": "REAL[]",
    "_text": "VARCHAR[]", "_name": "VARCHAR[]", "_char": "VARCHAR[]", "_regtype": "UINTEGER[]",
}  # fmt: skip
"""Types of the catalogs' columns; all others are texts."""
_OIDS = {
    "BOOLEAN": Type.BOOL, "TINYINT": Type.INT2, "SMALLINT": Type.INT2, "INTEGER": Type.INT4,
    "BIGINT": Type.INT8, "UTINYINT": Type.INT2, "USMALLINT": Type.INT4, "UINTEGER": Type.OID,
    "UBIGINT": Type.NUMERIC, "HUGEINT": Type.NUMERIC, "FLOAT": Type.FLOAT4, "DOUBLE": Type.FLOAT8,
    "DATE": Type.DATE, "TIMESTAMP": Type.TIMESTAMP, "TIMESTAMP WITH TIME ZONE": Type.TIMESTAMPTZ,
    "VARCHAR": Type.TEXT,
}  # fmt: skip
_ARRAY_OIDS = {
    "BOOLEAN[]": 1000, "SMALLINT[]": 1005, "INTEGER[]": 1007, "BIGINT[]": 1016, "UINTEGER[]": 1028,
    "FLOAT[]": 1021, "DOUBLE[]": 1022, "VARCHAR[]": 1009,
}  # fmt: skip

Live = Mapping[str, Callable[[], tuple[Sequence[tuple[str, str]], Sequence[Sequence[Any]]]]]
"""Relations that are made for one query, by name: their columns with types of DuckDB, and their rows."""


@cache
def _stored() -> dict[str, Any]:
    with gzip.open(_FILE) as file:
        stored: dict[str, Any] = json.load(file)
    return stored


@cache
def _functions() -> str:
    return _FUNCTIONS.read_text(encoding="utf-8")


@cache
def _macro_names() -> frozenset[str]:
    return frozenset(re.findall(r"CREATE MACRO (\w+)", _functions()))


@cache
def catalog_columns() -> Mapping[str, Mapping[str, str]]:
    """Return the columns of all catalogs, with their types in PostgreSQL, by `schema.relation`."""
    return {name: dict(columns) for name, columns in _stored()["relations"].items()}


@cache
def _function_columns() -> frozenset[str]:
    columns = (each for columns in catalog_columns().values() for each in columns.items())
    return frozenset(name for name, kind in columns if kind == "regproc")


@dataclass(frozen=True)
class _Table:
    """A declared table with the OIDs of its class, its row type and its array type."""

    table: TableDescription
    oid: int

    @property
    def type(self) -> int:
        return self.oid + 2

    @property
    def array(self) -> int:
        return self.oid + 1


class Catalog:
    """The catalogs of one dataset.

    Args:
        dataset: Its name, which is the database's.
        tables: The declared tables.
        unit: The privacy unit, for comments.
    """

    def __init__(self, dataset: str, tables: Sequence[TableDescription], unit: str = "") -> None:
        self.dataset, self._unit = dataset, unit
        # Three OIDs for each table, as CREATE TABLE takes them.
        self._tables = [_Table(each, _FIRST_OID + 3 * place) for place, each in enumerate(tables)]
        self._connection: duckdb.DuckDBPyConnection | None = None
        self._lock = threading.Lock()

    @property
    def columns(self) -> dict[str, Kind]:
        """The kinds of declared columns by their names in lower case."""
        return {column.name.lower(): column.kind for each in self._tables for column in each.table.columns}

    @property
    def tables(self) -> frozenset[str]:
        """The names of declared tables, in lower case."""
        return frozenset(each.table.name.lower() for each in self._tables)

    def execute(
        self, tree: Any, live: Live, constants: Mapping[str, Any]
    ) -> tuple[tuple[Column, ...], list[tuple[Any, ...]]]:
        """Answer a query of the catalogs.

        Args:
            tree: Its syntax tree, in which only catalogs are named.
            live: Relations that depend on who asks.
            constants: Values of functions such as `current_user`, which depend on who asks.
        """
        names = {"macros": _macro_names(), "functions": _function_columns()}
        sql, used = rewrite(tree, {**constants, **names}, frozenset(live))
        with self._cursor() as cursor:
            for name in used:
                columns, rows = live[name]()
                _create(cursor, name, columns, rows)
            try:
                cursor.execute(sql)
                rows = cursor.fetchmany(_MAX_ROWS + 1)
            except (duckdb.Error, RuntimeError, OverflowError):
                # The text would tell of our rewriting, and of nothing that the client wrote.
                raise WireError(
                    "0A000",
                    "this query of the catalogs is not supported",
                    hint="information_schema.columns and hubbub.functions have what is declared.",
                ) from None
            if len(rows) > _MAX_ROWS:
                raise WireError("54000", f"the answer has more than {_MAX_ROWS:,} rows", hint="Add a LIMIT.")
            return _describe(cursor), [tuple(map(_plain, row)) for row in rows]

    def prepare(self) -> None:
        """Make the catalogs now, so that nobody waits for them later."""
        with self._lock:
            if self._connection is None:
                self._connection = self._open()

    @contextmanager
    def _cursor(self) -> Iterator[duckdb.DuckDBPyConnection]:
        self.prepare()
        assert self._connection is not None
        cursor = self._connection.cursor()
        timer = threading.Timer(_SECONDS, cursor.interrupt)
        timer.daemon = True
        timer.start()
        try:
            yield cursor
        finally:
            timer.cancel()
            cursor.close()

    # Making it

    def _open(self) -> duckdb.DuckDBPyConnection:
        connection = duckdb.connect(
            ":memory:",
            config={
                "threads": 1,
                "memory_limit": "256MB",
                "temp_directory": "",
                "autoinstall_known_extensions": "false",
                "autoload_known_extensions": "false",
            },
        )
        connection.begin()
        for schema in (CATALOG, INFORMATION, "hubbub"):
            connection.execute(f"CREATE SCHEMA {schema}")
        declared = dict(self._declared_rows())
        for name, columns in _stored()["relations"].items():
            schema, _, relation = name.partition(".")
            home = CATALOG if schema == "pg_catalog" else INFORMATION
            if f"CREATE VIEW {home}.{relation} " in _functions():
                continue
            own = (
                _stored()["rows"].get(relation, [[] for _ in columns])
                if home == CATALOG
                else [[] for _ in columns]
            )
            _load(connection, f'{home}."{relation}"', columns, own, declared.pop(relation, []))
        assert not declared, declared
        connection.execute(f"CREATE TABLE {CATALOG}.hub_dataset AS SELECT ? AS name", [self.dataset])
        connection.execute(_functions())
        connection.commit()
        connection.execute("SET enable_external_access = false")
        connection.execute("SET lock_configuration = true")
        return connection

    def _declared_rows(self) -> Iterator[tuple[str, list[dict[str, Any]]]]:
        """Rows about declared tables, by catalog; what is not stated is 0, false, empty or NULL."""
        yield "pg_class", [
            {
                "oid": each.oid, "relname": each.table.name, "relnamespace": _PUBLIC, "reltype": each.type,
                "reloftype": 0, "relowner": _OWNER, "relam": 2, "relfilenode": each.oid, "reltablespace": 0,
                "relpages": 0, "reltuples": -1, "relallvisible": 0, "reltoastrelid": 0, "relhasindex": False,
                "relisshared": False, "relpersistence": "p", "relkind": "r",
                "relnatts": len(each.table.columns), "relchecks": 0, "relhasrules": False,
                "relhastriggers": False, "relhassubclass": False, "relrowsecurity": False,
                "relforcerowsecurity": False, "relispopulated": True, "relreplident": "d",
                "relispartition": False, "relrewrite": 0,
            }
            for each in self._tables
        ]  # fmt: skip
        yield "pg_attribute", [
            {
                "attrelid": each.oid, "attname": column.name, "atttypid": type_of_kind(column.kind),
                "attstattarget": -1, "attlen": _LENGTHS.get(type_of_kind(column.kind), -1), "attnum": place,
                "attndims": 0, "attcacheoff": -1, "atttypmod": -1,
                "attbyval": type_of_kind(column.kind) != Type.TEXT, "attalign": "d",
                "attstorage": "x" if type_of_kind(column.kind) == Type.TEXT else "p",
                "attcompression": "", "attnotnull": False, "atthasdef": False, "atthasmissing": False,
                "attidentity": "", "attgenerated": "", "attisdropped": False,
                "attislocal": True, "attinhcount": 0,
                "attcollation": 100 if type_of_kind(column.kind) == Type.TEXT else 0,
            }
            for each in self._tables
            for place, column in enumerate(each.table.columns, 1)
        ]  # fmt: skip
        yield "pg_type", [row for each in self._tables for row in _row_types(each)]
        yield (
            "pg_description",
            [
                {"objoid": each.oid, "classoid": 1259, "objsubid": place, "description": text}
                for each in self._tables
                for place, text in self._comments(each.table)
            ],
        )

    def _comments(self, table: TableDescription) -> Iterator[tuple[int, str]]:
        """Declarations other than types: the unit, bounds, public keys."""
        yield 0, "public table" if table.is_public else f"protected; privacy unit: {self._unit}"
        for place, column in enumerate(table.columns, 1):
            parts = ["privacy unit"] if column.is_unit else []
            if column.bounds is not None:
                parts.append(f"bounds {column.bounds[0]} to {column.bounds[1]}")
            if column.keys is not None:
                first = ", ".join(map(str, column.keys[:10]))
                more = (column.key_count or 0) - 10
                parts.append(f"public keys: {first}" + (f" and {more} more" if more > 0 else ""))
            if parts:
                yield place, "; ".join(parts)


_LENGTHS = {Type.BOOL: 1, Type.FLOAT8: 8, Type.DATE: 4, Type.TIMESTAMP: 8}


def _row_types(each: _Table) -> Iterator[dict[str, Any]]:
    """The row type of a table and the array of it."""
    shared = {
        "typnamespace": _PUBLIC, "typowner": _OWNER, "typlen": -1, "typbyval": False, "typispreferred": False,
        "typisdefined": True, "typdelim": ",", "typsubscript": "-", "typmodin": "-", "typmodout": "-",
        "typanalyze": "-", "typalign": "d", "typstorage": "x", "typnotnull": False, "typbasetype": 0,
        "typtypmod": -1, "typndims": 0, "typcollation": 0,
    }  # fmt: skip
    record = {
        "typinput": "record_in",
        "typoutput": "record_out",
        "typreceive": "record_recv",
        "typsend": "record_send",
    }
    array = {
        "typinput": "array_in",
        "typoutput": "array_out",
        "typreceive": "array_recv",
        "typsend": "array_send",
    }
    yield {
        **shared, **record, "oid": each.type, "typname": each.table.name, "typtype": "c", "typcategory": "C",
        "typrelid": each.oid, "typelem": 0, "typarray": each.array,
    }  # fmt: skip
    yield {
        **shared, **array, "oid": each.array, "typname": f"_{each.table.name}", "typtype": "b",
        "typcategory": "A", "typrelid": 0, "typelem": each.type, "typarray": 0,
    }  # fmt: skip


def _load(
    connection: duckdb.DuckDBPyConnection,
    name: str,
    columns: Sequence[Sequence[str]],
    stored: Sequence[Sequence[str | None]],
    declared: Sequence[Mapping[str, Any]],
) -> None:
    """Create a relation with stored rows, all texts, and declared ones."""
    listed = ", ".join(f'"{column}" {_TYPES.get(kind, "VARCHAR")}' for column, kind in columns)
    connection.execute(f"CREATE TABLE {name} ({listed})")
    texts = [
        [*values, *(None if row.get(column) is None else str(row[column]) for row in declared)]
        for (column, _), values in zip(columns, stored, strict=True)
    ]
    if texts and texts[0]:
        connection.register(
            "_rows", {f"c{place}": np.array(each, dtype=object) for place, each in enumerate(texts)}
        )
        cast = ", ".join(
            f"CAST(c{place} AS {_TYPES.get(kind, 'VARCHAR')})" for place, (_, kind) in enumerate(columns)
        )
        connection.execute(f"INSERT INTO {name} SELECT {cast} FROM _rows")  # noqa: S608 - our own names
        connection.unregister("_rows")


def _create(
    cursor: duckdb.DuckDBPyConnection,
    name: str,
    columns: Sequence[tuple[str, str]],
    rows: Sequence[Sequence[Any]],
) -> None:
    listed = ", ".join(f'"{column}" {kind}' for column, kind in columns)
    cursor.execute(f'CREATE TEMP TABLE "{name}" ({listed})')
    if rows:
        marks = ", ".join("?" * len(columns))
        cursor.executemany(f'INSERT INTO "{name}" VALUES ({marks})', [list(row) for row in rows])  # noqa: S608


def _describe(cursor: duckdb.DuckDBPyConnection) -> tuple[Column, ...]:
    columns = []
    for name, kind, *_ in cursor.description or ():
        text = str(kind)
        oid = _ARRAY_OIDS.get(text) or _OIDS.get(text)
        if oid is None:
            oid = Type.NUMERIC if text.startswith("DECIMAL") else 1009 if text.endswith("[]") else Type.TEXT
        columns.append(Column(name, oid))
    return tuple(columns)


def _plain(value: Any) -> Any:
    return value.isoformat() if hasattr(value, "isoformat") and not hasattr(value, "year") else value
