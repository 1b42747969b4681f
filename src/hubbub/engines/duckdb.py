# ruff: noqa: S608 - names are quoted, values are parameters or quoted
"""The embedded engine: files, data frames, Arrow and DuckDB's own tables, through DuckDB.

Each table becomes a view in which every column has its declared kind, by casts that no row can make
fail. Then the connection is locked: no other file, no attaching, no setting can be reached, whatever is
asked. The first wall is elsewhere: nothing a person wrote is ever run here.
"""

import os
import re
import threading
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
from numpy.typing import NDArray
from sqlglot import exp

from hubbub.engines.csv_rows import csv_format
from hubbub.engines.data_identity import DataIdentity, identify_database_table, identify_files, list_files
from hubbub.engines.duckdb_catalog import check_catalog, open_cursor, resolve_table
from hubbub.engines.duckdb_sources import (
    CSV,
    UNREADABLE,
    Csv,
    check_same,
    encoded,
    framed,
    identity,
    parquet,
    private_folder,
    resolve_files,
)
from hubbub.engines.duckdb_sources import Identity as State
from hubbub.engines.duckdb_sources import name as _name
from hubbub.engines.duckdb_sources import text as _text
from hubbub.engines.engine import (
    RETRY_HINT,
    RecordBatch,
    SnapshotLock,
    TableSource,
    query_distinct_values,
    resolve_kinds,
    table_changed,
)
from hubbub.engines.schema import UNIT, Key, Kind, Table, split_into_batches
from hubbub.engines.total_functions import (
    MIN_DATETIME,
    SQL_TYPES,
    clamp_finite,
    convert_kind,
    in_window,
    restrict_years,
)
from hubbub.errors import EngineFailed, HubbubError, InvalidInput
from hubbub.noise.entropy import random_bytes
from hubbub.output_files import protect_paths

__all__ = ["DuckDB"]

_RAW, _HELD = "_raw_", "_held_"
_PIECE = 1 << 16
"""Rows of an answer that are read at a time."""
_KEYS = 1 << 20
"""Keys that are handed over at a time."""
_NUMBERS = (
    "TINYINT",
    "SMALLINT",
    "INTEGER",
    "BIGINT",
    "HUGEINT",
    "UTINYINT",
    "USMALLINT",
    "UINTEGER",
    "UBIGINT",
)
_FLOATS = ("FLOAT", "DOUBLE", "DECIMAL", "UHUGEINT", "BIGNUM")
_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - the engine's have no zone
_SETTINGS = (
    "SET autoinstall_known_extensions = false",
    "SET autoload_known_extensions = false",
    "SET allow_community_extensions = false",
    "SET python_enable_replacements = false",
    "SET preserve_insertion_order = false",
    "SET perfect_ht_threshold = 17",  # bins and places of keys are small integers
    "SET pandas_analyze_sample = 0",  # else one value of an object column would choose its type
    "SET TimeZone = 'UTC'",
)
_RESERVED = (_RAW, _HELD, "_keys", "_answer_")
_SPELLED = {"UUID", "BLOB", "BIT", "INTERVAL", "JSON"}
"""Types of no kind of ours whose every value the engine can write as a text."""


class DuckDB:
    """Tables in one DuckDB connection: our own, locked; or a person's, with nothing but temporary views."""

    name = "DuckDB"
    dialect = "duckdb"

    def __init__(
        self, sources: Mapping[str, TableSource], connection: duckdb.DuckDBPyConnection | None = None
    ) -> None:
        self._is_ours = connection is None
        self._busy = threading.Lock()  # a connection has one open result
        self._snapshot_lock = SnapshotLock()  # and one open transaction
        self._kept: list[Any] = [connection]
        self._files: dict[str, State] = {}
        self._unread: dict[str, Csv] = {}
        self._types: dict[str, list[Any]] = {}
        self._places: dict[str, list[str] | None] = {}
        self._identities: dict[str, DataIdentity] = {}
        self._unit_type: str | None = None
        try:
            named = [str(source.rows) for source in sources.values() if isinstance(source.rows, (str, Path))]
            self._connection = (
                duckdb.connect(":memory:") if connection is None else open_cursor(connection, named)
            )
            if self._is_ours:
                for setting in _SETTINGS:
                    self._connection.execute(setting)
                # What does not fit in memory goes to a folder that only this user can read.
                self._connection.execute(f"SET temp_directory = {_text(private_folder(self))}")
            else:
                check_catalog(self._connection)
                found = self._connection.execute("SELECT path FROM duckdb_databases() WHERE path IS NOT NULL")
                protect_paths(*(path for (path,) in found.fetchall()))
            self.tables: Mapping[str, Table] = {
                name: self._opened(name, source) for name, source in sources.items()
            }
            if self._is_ours:
                self._lock()
        except duckdb.Error as problem:
            raise _cannot_open(problem) from None

    def execute(self, sql: exp.Expr, key_sets: Mapping[str, Sequence[Key]]) -> RecordBatch:
        """Run one query; see `Engine`."""
        with self.snapshot():
            return self._asked(self.compile(sql), key_sets)

    def execute_in_batches(
        self, sql: exp.Expr, key_sets: Mapping[str, Sequence[Key]]
    ) -> Generator[RecordBatch]:
        """Run one query into a table that goes to disk where it is too large; see `Engine`."""
        with self.snapshot():
            answer = f"temp.{_name(f'_answer_{random_bytes(4).hex()}')}"
            self._asked(f"CREATE TEMP TABLE {answer} AS {self.compile(sql)}", key_sets)
            try:
                # Of rows that are not committed the first has a very high number.
                [first] = self._asked(f"SELECT COALESCE(MIN(rowid), 0) AS m0 FROM {answer}", {})["m0"]
                start, is_more = int(first), True
                while is_more:
                    inside = f"rowid >= {start} AND rowid < {start + _PIECE}"
                    piece = self._asked(f"SELECT * FROM {answer} WHERE {inside} ORDER BY rowid", {})
                    start += _PIECE
                    is_more = len(next(iter(piece.values()))) == _PIECE
                    yield piece
            finally:
                with self._busy, suppress(duckdb.Error):
                    self._connection.execute(f"DROP TABLE IF EXISTS {answer}")

    def _asked(self, text: str, key_sets: Mapping[str, Sequence[Key]]) -> RecordBatch:
        with self._busy:
            try:
                self._read_files()
                for name, keys in key_sets.items():
                    self._key_table(name, keys)
                cursor = self._connection.execute(text)
                description = cursor.description or []
                found = cursor.fetchnumpy()
            except HubbubError:
                raise
            except Exception:  # noqa: BLE001 - whatever it is, its message may hold data
                raise _failed() from None
            finally:
                for name in key_sets:
                    with suppress(duckdb.Error):
                        self._connection.execute(f"DROP TABLE IF EXISTS temp.{_name(name)}")
        dates = {name for name, kind, *_ in description if str(kind).upper() == "DATE"}
        return {name: _column(name, values, is_date=name in dates) for name, values in found.items()}

    def distinct_values(self, table: str, column: str) -> Sequence[Key]:
        """The different values of a column of a public table; see `Engine`."""
        return query_distinct_values(self, table, column)

    def fingerprint(self, table: str) -> Any:
        """The path of a file, or of a database and the table; what a public one holds. See `Engine`."""
        if not self.tables[table].is_public:
            return self._places[table]
        with self.snapshot(), self._busy:
            try:
                self._read_files()
                text = f"SELECT COUNT(*)::VARCHAR, SUM(hash(rows))::VARCHAR FROM {_name(table)} AS rows"
                found = self._connection.execute(text).fetchone()
            except duckdb.Error:
                raise _failed() from None
        return ["public", *(found or ())]

    def identity(self, table: str) -> DataIdentity:
        """Files by their paths and numbers, tables by their database; a view has none. See `Engine`."""
        return self._identities[table]

    def check_unchanged(self) -> None:
        """Whether files, or a person's tables and what is beside them, are as they were; see `Engine`."""
        check_same(self._files)
        if not self._is_ours:
            with self.snapshot():  # it begins with the same questions
                pass

    def snapshot(self) -> AbstractContextManager[None]:
        """One state of a person's tables for all steps; files are as they are. See `Engine`."""
        return self._own_state() if self._is_ours else self._snapshot_lock.hold(self._transaction)

    @contextmanager
    def _own_state(self) -> Iterator[None]:
        self.check_unchanged()
        yield

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        try:
            self._begun()
            yield
        finally:
            with suppress(duckdb.Error):
                self._connection.execute("ROLLBACK")

    def _begun(self) -> None:
        """A transaction in which every name means what it meant when the tables were opened."""
        try:
            self._connection.execute("BEGIN TRANSACTION")
            check_catalog(self._connection)
            for raw, types in self._types.items():
                is_same = resolve_table(self._connection, _parts(raw)) == _parts(raw)
                if self._described(raw) != types or not is_same:
                    raise table_changed()
        except duckdb.Error:
            raise _failed() from None

    def _described(self, raw: str) -> list[Any]:
        return self._connection.execute(f"DESCRIBE SELECT * FROM {raw}").fetchall()

    def _read_files(self) -> None:
        """Lines are looked at when the first question is asked: what is planned alone reads no row."""
        for name in list(self._unread):
            query = self._unread[name].read(self._connection, _HELD + name)
            check_same(self._files)
            self._connection.execute(f"CREATE OR REPLACE TEMP VIEW {_name(_RAW + name)} AS {query}")
            del self._unread[name]

    def compile(self, sql: exp.Expr) -> str:
        """The SQL as DuckDB reads it."""
        return sql.sql("duckdb")

    def close(self) -> None:
        """Let go of the rows."""
        self._connection.close()

    # Opening

    def _opened(self, name: str, source: TableSource) -> Table:
        if name.lower().startswith(_RESERVED):
            raise InvalidInput(
                f"a table is named {name}",
                why=f"names that begin with {', '.join(_RESERVED)} are used while a query runs",
                fix="open it under another name",
            )
        raw, unreadable = self._raw(name, source)
        found = self._described(raw)
        if not self._is_ours:
            self._types[raw] = found
        types = {str(row[0]): str(row[1]) for row in found if str(row[0]) not in unreadable}
        if not types:
            raise InvalidInput(
                f"{name} has no column that can be read",
                why="of times of day and milliseconds one value could make every query fail",
                fix="write timestamps in microseconds",
            )
        kinds = resolve_kinds(
            name, {column: _kind(sql_type) for column, sql_type in types.items()}, source.types
        )
        table = Table.of(
            name, kinds, unit=source.unit, bounds=source.bounds, keys=source.keys, is_public=source.is_public
        )
        # Where a collation makes texts equal, which of them stands for both would depend on other rows.
        bytewise = {
            column: "" if self._is_ours or kind is not Kind.TEXT else ' COLLATE "binary"'
            for column, kind in kinds.items()
        }
        read = {column: _cast(column, types[column], kind) for column, kind in kinds.items()}
        parts = [f"{sql.sql('duckdb')}{bytewise[column]} AS {_name(column)}" for column, sql in read.items()]
        if source.unit is not None:
            column = table.find(source.unit).name
            parts.append(
                f"{self._unit(column, types[column], kinds[column], bytewise[column])} AS {_name(UNIT)}"
            )
        where = (
            "" if source.window is None else f" WHERE {in_window(source.window, table, read).sql('duckdb')}"
        )
        self._connection.execute(
            f"CREATE TEMP VIEW {_name(name)} AS SELECT {', '.join(parts)} FROM {raw}{where}"
        )
        return table

    def _unit(self, column: str, sql_type: str, declared: Kind, bytewise: str) -> str:
        """The unit's key, of one type in all tables: where they meet nothing is cast, so nothing can fail."""
        is_text = _kind(sql_type) is Kind.TEXT
        is_written = is_text and declared is Kind.NUMBER
        kind = "whole" if sql_type in _NUMBERS or is_written else "text" if is_text else sql_type
        if self._unit_type is None:
            self._unit_type = kind
        if kind != self._unit_type:
            raise InvalidInput(
                f"the unit's column {column!r} is {_base(sql_type)} in one table, and not so in others",
                why="whether two keys are of one person would depend on how they are made alike",
                fix="give it one type in all files; where it is whole numbers in one and texts in others, as "
                f'all columns of CSV are, declare {column} = "number" there',
            )
        known = f"CAST({_name(column)} AS VARCHAR)" if sql_type.startswith("ENUM") else _name(column)
        if is_written:
            return _written_whole(known)
        return known + (bytewise if is_text else "")

    def _raw(self, name: str, source: TableSource) -> tuple[str, tuple[str, ...]]:
        """The rows as they are, in DuckDB's words; and the columns that no query may touch."""
        rows = source.rows
        if isinstance(rows, (str, Path)) and not self._is_ours:
            # In full, or our view of the same name would stand for it.
            parts = resolve_table(self._connection, [part.strip('"') for part in str(rows).split(".")])
            place = self._in_database(parts)
            self._places[name] = place
            self._identities[name] = DataIdentity() if place is None else identify_database_table(*place[1:])
            return ".".join(_name(part) for part in parts), ()
        self._identities[name] = identify_files(list_files(rows))
        protect_paths(*list_files(rows))
        if isinstance(rows, (str, Path)):
            self._places[name] = ["file", os.path.realpath(rows)]
            return self._file(name, str(rows), source)
        self._places[name] = None
        frame = framed(rows, name)
        self._kept.append(frame)
        texts = encoded(frame)
        try:
            self._connection.register((_HELD if texts else _RAW) + name, frame)
        except (duckdb.Error, TypeError, ValueError):
            raise InvalidInput(
                f"rows are of type {type(rows).__name__}, and hold a type that cannot be read",
                why="the engine does not know it",
                fix="leave that column out, or make it numbers, texts, dates or timestamps",
            ) from None
        if texts:
            decoded = ", ".join(f"{_utf8(column)} AS {_name(column)}" for column in texts)
            self._connection.execute(
                f"CREATE TEMP VIEW {_name(_RAW + name)} AS "
                f"SELECT * REPLACE ({decoded}) FROM {_name(_HELD + name)}"
            )
        return _name(_RAW + name), ()

    def _in_database(self, parts: Sequence[str]) -> list[str] | None:
        """The table that is meant, if there is just one such in a file of DuckDB's, and it is no view."""
        found = self._connection.execute(
            "SELECT d.path, t.schema_name, t.table_name, t.database_name, d.type "
            "FROM duckdb_tables() AS t JOIN duckdb_databases() AS d USING (database_oid) "
            "WHERE lower(t.table_name) = lower(?)",
            [parts[-1]],
        ).fetchall()
        before = [part.lower() for part in parts[:-1]]
        # Of two names, the first is a schema or a database.
        meant = [row for row in found if all(part in {row[1].lower(), row[3].lower()} for part in before)]
        if len(meant) != 1 or meant[0][0] is None or meant[0][4] != "duckdb":
            return None
        path, schema, table, *_ = meant[0]
        return ["duckdb", os.path.realpath(path), schema, table]

    def _file(self, name: str, path: str, source: TableSource) -> tuple[str, tuple[str, ...]]:
        paths = resolve_files(path)
        self._files |= {each: identity(each) for each in paths}
        if Path(paths[0]).suffix.lower() not in CSV:
            return parquet(self._connection, paths, name)
        how = csv_format(has_quotes=source.has_quotes, encoding=source.encoding)
        csv = self._unread[name] = Csv.of(paths, how, name)
        self._connection.execute(f"CREATE TEMP VIEW {_name(_RAW + name)} AS {csv.empty}")
        return _name(_RAW + name), ()

    def _lock(self) -> None:
        run = self._connection.execute
        allowed = ", ".join(_text(path) for path in self._files)
        run(f"SET allowed_paths = [{allowed}]")
        run("SET enable_external_access = false")
        run("SET lock_configuration = true")

    def _key_table(self, name: str, keys: Sequence[Key]) -> None:
        kind = next((type(key) for key in keys if key is not None), str)
        sql_type = {bool: "BOOLEAN", float: "DOUBLE", str: "VARCHAR"}.get(kind)
        if sql_type is None:
            sql_type = (
                "TIMESTAMP" if hasattr(next(key for key in keys if key is not None), "hour") else "DATE"
            )
        self._connection.execute(f"CREATE TEMP TABLE {_name(name)} (key {sql_type}, place INTEGER)")
        for number, piece in enumerate(split_into_batches(keys, _KEYS)):
            places = np.arange(len(piece), dtype=np.int32) + number * _KEYS
            self._key_rows(name, piece, places, kind)

    def _key_rows(self, name: str, keys: Sequence[Key], places: NDArray[np.int32], kind: type) -> None:
        if kind is not str and (kind is not float or None in keys):
            self._connection.execute(
                f"INSERT INTO temp.{_name(name)} SELECT UNNEST($keys), UNNEST($places)",
                {"keys": list(keys), "places": places.tolist()},
            )
            return
        # As arrays: a list of 100,000 parameters takes five times as long.
        column = np.array(keys, dtype=np.float64 if kind is float else object)
        self._connection.register(_RAW + name, {"key": column, "place": places})
        try:
            self._connection.execute(
                f"INSERT INTO temp.{_name(name)} SELECT key, place FROM {_name(_RAW + name)}"
            )
        finally:
            self._connection.unregister(_RAW + name)


def _base(sql_type: str) -> str:
    """A type without what is in it: of an enumeration that may be from rows."""
    return sql_type.partition("(")[0].upper()


def _kind(sql_type: str) -> Kind:
    base = _base(sql_type)
    if base in _NUMBERS or base in _FLOATS:
        return Kind.NUMBER
    if base in {"VARCHAR", "ENUM"}:
        return Kind.TEXT
    if base == "BOOLEAN":
        return Kind.BOOLEAN
    if base == "DATE":
        return Kind.DATE
    if base.startswith("TIMESTAMP") and "[" not in base:
        return Kind.TIMESTAMP
    return Kind.OPAQUE


def _cast(column: str, sql_type: str, kind: Kind) -> exp.Expr:
    """The column as its kind, in a form that is the same on every engine; no value can make it fail."""
    known = _kind(sql_type)
    if known is Kind.OPAQUE is not kind and sql_type.upper() not in _SPELLED:
        raise InvalidInput(
            f"the column {column!r} is {_base(sql_type)}, and declared as a {kind.value}",
            why="the engine cannot write every value of that type as a text",
            fix="leave its type out: such a column can be counted, or be the unit",
        )
    return convert_kind(_read(column, sql_type), known, kind, column)


def _read(column: str, sql_type: str) -> exp.Expr:
    """The column as the kind that its type is."""
    name: exp.Expr = exp.column(exp.to_identifier(column, quoted=True))
    known, base = _kind(sql_type), sql_type.partition("(")[0].upper()
    as_text = exp.Cast(this=name.copy(), to=exp.DataType.build("VARCHAR"))
    if known is Kind.TEXT:
        return as_text if base == "ENUM" else name
    if known is Kind.NUMBER:
        if base in {"HUGEINT", "UHUGEINT", "BIGNUM", "DECIMAL"}:
            # Digit by digit: else what is beyond 2^53 would be rounded twice.
            name = as_text
        double = exp.TryCast(this=name, to=exp.DataType.build("DOUBLE"))
        return double if base in _NUMBERS else clamp_finite(double)
    if base in {"TIMESTAMP WITH TIME ZONE", "TIMESTAMPTZ_NS"}:
        if base == "TIMESTAMPTZ_NS":
            name = exp.TryCast(this=name, to=exp.DataType.build("TIMESTAMPTZ"))
        # As it is in Greenwich, whatever the connection's own zone is.
        micros = exp.func("epoch_us", name)
        ends = [int((end - _EPOCH) / timedelta(microseconds=1)) for end in (datetime.min, datetime.max)]  # noqa: DTZ901
        inside = exp.Between(this=micros, low=_plain(ends[0]), high=_plain(ends[1]))
        return exp.Case(ifs=[exp.If(this=inside, true=exp.func("make_timestamp", micros.copy()))])
    if known in MIN_DATETIME:
        is_plain = base == SQL_TYPES[known]
        to = exp.DataType.build(SQL_TYPES[known])
        return restrict_years(name if is_plain else exp.TryCast(this=name, to=to), known)
    return name


def _written_whole(sql: str) -> str:
    """The whole number that a text is, digit by digit; NULL of other texts: such a row is nobody's."""
    digits = f"regexp_extract({sql}, '^ *([+-]?[0-9]{{1,38}})([.]0*)? *$', 1)"
    return f"TRY_CAST(replace({digits}, '+', '') AS HUGEINT)"


def _utf8(column: str) -> str:
    """Bytes as a text, in SQL; one that is not UTF-8 is U+FFFD, and no bytes fail."""
    known = _name(column)
    return f"COALESCE(TRY(decode({known})), CASE WHEN {known} IS NOT NULL THEN {_text(UNREADABLE)} END)"


def _plain(number: int) -> exp.Expr:
    return exp.Literal.number(number) if number >= 0 else exp.Neg(this=exp.Literal.number(-number))


def _column(name: str, values: Any, *, is_date: bool) -> Any:
    if name[:1] != "k":
        return np.ma.filled(values, 0).astype(np.int64)
    if values.dtype.kind != "M":
        return _mask_to_none(values)
    # Moments as Python has them: days for dates, microseconds for the rest.
    moments = np.asarray(np.ma.getdata(values)).astype("M8[D]" if is_date else "M8[us]").astype(object)
    moments[np.ma.getmaskarray(values)] = None
    return moments


def _mask_to_none(column: NDArray[Any]) -> NDArray[Any]:
    """Group keys as Python values, None where the array is masked."""
    if isinstance(column, np.ma.MaskedArray):
        plain = np.asarray(column.data, dtype=object)
        plain[np.ma.getmaskarray(column)] = None
        return plain
    return np.asarray(column, dtype=object)


def _parts(raw: str) -> tuple[str, ...]:
    """The names in a full one."""
    return tuple(part[1:-1].replace('""', '"') for part in re.findall(r'"(?:[^"]|"")*"', raw))


def _failed() -> EngineFailed:
    return EngineFailed(
        "the engine could not run the query",
        why="its own message may hold data, so it is not shown",
        fix=f"see that the file is still there and as declared; {RETRY_HINT}",
    )


def _cannot_open(problem: duckdb.Error) -> InvalidInput:
    kind = type(problem).__name__.removesuffix("Exception")
    return InvalidInput(
        f"the data cannot be opened ({kind})",
        why="the engine refuses it; its message may hold data, so it is not shown",
        fix="see that the file is whole, readable, and of the kind its name says",
    )
