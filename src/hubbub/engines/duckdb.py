# ruff: noqa: S608 - names are quoted, values are parameters or quoted
"""DuckDB, the embedded engine: for files, data frames, Arrow data and tables of DuckDB itself.

Each table becomes a view in which every column has its declared kind, by casts that no row can make fail.
Then the connection is locked: no query can reach another file, attach a database or change a setting. This is
the second wall; the first is that no SQL written by a user is ever run here.
"""

import os
import re
import threading
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
from numpy.typing import NDArray
from sqlglot import exp

from hubbub.engines.data_frames import find_encoded_texts, prepare_frame
from hubbub.engines.data_identity import (
    DataIdentity,
    expand_pattern,
    identify_database_table,
    identify_files,
    list_files,
)
from hubbub.engines.duckdb_catalog import check_catalog, open_cursor, resolve_table
from hubbub.engines.duckdb_columns import (
    INTEGERS,
    base_type,
    convert_column,
    decode_utf8,
    find_element,
    find_kind,
    parse_integer,
)
from hubbub.engines.engine import (
    RETRY_HINT,
    RecordBatch,
    SnapshotLock,
    TableSource,
    query_distinct_values,
    resolve_kinds,
    table_changed,
)
from hubbub.engines.file_endings import find_format
from hubbub.engines.file_formats import (
    FileState,
    JsonFiles,
    RowFiles,
    check_files_unchanged,
    make_private_folder,
    open_arrow_files,
    open_rows,
    quote_name,
    quote_text,
    read_file_state,
    resolve_files,
    scan_parquet,
)
from hubbub.engines.parquet_folders import FILE_COLUMN, join_partitions, read_partitions
from hubbub.engines.schema import UNIT, Key, Kind, Table, infer_kind, split_into_batches
from hubbub.engines.total_functions import (
    SQL_TYPES,
    in_window,
)
from hubbub.errors import EngineFailed, HubbubError, InvalidInput
from hubbub.noise.entropy import random_bytes
from hubbub.output_files import protect_paths

__all__ = ["DuckDB"]

_RAW, _INPUT = "_raw_", "_held_"
BATCH_ROWS = 1 << 16
"""Rows of a result that are read at a time."""
_ARRAY_KEYS = 1 << 20
"""Group keys that are inserted at a time."""
SETTINGS = (
    "SET autoinstall_known_extensions = false",
    "SET autoload_known_extensions = false",
    "SET allow_community_extensions = false",
    "SET python_enable_replacements = false",
    "SET preserve_insertion_order = false",
    "SET perfect_ht_threshold = 17",  # bins and indices of keys are small integers
    "SET pandas_analyze_sample = 0",  # else one value would decide the type of an object column
    "SET TimeZone = 'UTC'",
)
_RESERVED = (_RAW, _INPUT, "_keys", "_answer_")


class DuckDB:
    """Tables in one DuckDB connection: our own, locked; or its owner's, with temporary views only.

    Args:
        sources: the tables to open, by name.
        connection: the owner's connection, if the tables are in it.
    """

    name = "DuckDB"
    dialect = "duckdb"

    def __init__(
        self, sources: Mapping[str, TableSource], connection: duckdb.DuckDBPyConnection | None = None
    ) -> None:
        self._is_ours = connection is None
        self._result_lock = threading.Lock()  # a connection has one open result
        self._snapshot_lock = SnapshotLock()  # and one open transaction
        self._references: list[Any] = [connection]  # DuckDB does not keep frames alive
        self._file_states: dict[str, FileState] = {}
        self._unread_files: dict[str, RowFiles] = {}
        self._descriptions: dict[str, list[Any]] = {}
        self._fingerprints: dict[str, list[str] | None] = {}
        self._identities: dict[str, DataIdentity] = {}
        self._unit_type: str | None = None
        self.notes: list[str] = []
        """Facts that were taken from a header line, and not declared."""
        try:
            names = [str(source.rows) for source in sources.values() if isinstance(source.rows, (str, Path))]
            self._connection = (
                duckdb.connect(":memory:") if connection is None else open_cursor(connection, names)
            )
            if self._is_ours:
                for setting in SETTINGS:
                    self._connection.execute(setting)
                # Results that do not fit in memory go to a folder that only this user can read.
                self._connection.execute(f"SET temp_directory = {quote_text(make_private_folder(self))}")
            else:
                check_catalog(self._connection)
                rows = self._connection.execute("SELECT path FROM duckdb_databases() WHERE path IS NOT NULL")
                protect_paths(*(path for (path,) in rows.fetchall()))
            self.tables: Mapping[str, Table] = {
                name: self._open_table(name, source) for name, source in sources.items()
            }
            if self._is_ours:
                self._lock_connection()
        except duckdb.Error as problem:
            raise _open_failed(problem) from None

    def execute(self, sql: exp.Expr, key_sets: Mapping[str, Sequence[Key]]) -> RecordBatch:
        """Run one query; see `Engine`."""
        with self.snapshot():
            return self._run(self.compile(sql), key_sets)

    def execute_in_batches(
        self, sql: exp.Expr, key_sets: Mapping[str, Sequence[Key]]
    ) -> Generator[RecordBatch]:
        """Run one query into a temporary table, which may spill to disk; see `Engine`."""
        with self.snapshot():
            result = f"temp.{quote_name(f'_answer_{random_bytes(4).hex()}')}"
            self._run(f"CREATE TEMP TABLE {result} AS {self.compile(sql)}", key_sets)
            try:
                # Rows that are not committed have very high row numbers.
                [first] = self._run(f"SELECT COALESCE(MIN(rowid), 0) AS m0 FROM {result}", {})["m0"]
                start, has_more = int(first), True
                while has_more:
                    inside = f"rowid >= {start} AND rowid < {start + BATCH_ROWS}"
                    batch = self._run(f"SELECT * FROM {result} WHERE {inside} ORDER BY rowid", {})
                    start += BATCH_ROWS
                    has_more = len(next(iter(batch.values()))) == BATCH_ROWS
                    yield batch
            finally:
                with self._result_lock, suppress(duckdb.Error):
                    self._connection.execute(f"DROP TABLE IF EXISTS {result}")

    def _run(self, text: str, key_sets: Mapping[str, Sequence[Key]]) -> RecordBatch:
        with self._result_lock:
            try:
                self._read_files()
                for name, keys in key_sets.items():
                    self._create_key_table(name, keys)
                cursor = self._connection.execute(text)
                description = cursor.description or []
                columns = cursor.fetchnumpy()
            except HubbubError:
                raise
            except Exception:  # noqa: BLE001 - any message may contain data
                raise _query_failed() from None
            finally:
                for name in key_sets:
                    with suppress(duckdb.Error):
                        self._connection.execute(f"DROP TABLE IF EXISTS temp.{quote_name(name)}")
        dates = {name for name, kind, *_ in description if str(kind).upper() == "DATE"}
        return {
            name: _convert_column(name, values, is_date=name in dates) for name, values in columns.items()
        }

    def distinct_values(self, table: str, column: str) -> Sequence[Key]:
        """Distinct values of a public table's column; see `Engine`."""
        return query_distinct_values(self, table, column)

    def fingerprint(self, table: str) -> Any:
        """The path of a file or database; for a public table, a hash of its rows. See `Engine`."""
        if not self.tables[table].is_public:
            return self._fingerprints[table]
        with self.snapshot(), self._result_lock:
            try:
                self._read_files()
                text = f"SELECT COUNT(*)::VARCHAR, SUM(hash(rows))::VARCHAR FROM {quote_name(table)} AS rows"
                totals = self._connection.execute(text).fetchone()
            except duckdb.Error:
                raise _query_failed() from None
        return ["public", *(totals or ())]

    def identity(self, table: str) -> DataIdentity:
        """Files by their paths and numbers, tables by their database. See `Engine`."""
        return self._identities[table]

    def check_unchanged(self) -> None:
        """Check that files, or the owner's tables, functions and settings, are as they were; see `Engine`."""
        check_files_unchanged(self._file_states)
        if not self._is_ours:
            with self.snapshot():  # it begins with the same checks
                pass

    def snapshot(self) -> AbstractContextManager[None]:
        """Fix one state of the owner's tables; files are only checked. See `Engine`."""
        return self._check_files() if self._is_ours else self._snapshot_lock.hold(self._open_transaction)

    @contextmanager
    def _check_files(self) -> Iterator[None]:
        self.check_unchanged()
        yield

    @contextmanager
    def _open_transaction(self) -> Iterator[None]:
        try:
            self._begin()
            yield
        finally:
            with suppress(duckdb.Error):
                self._connection.execute("ROLLBACK")

    def _begin(self) -> None:
        """Begin a transaction in which every name means what it meant when the tables were opened."""
        try:
            self._connection.execute("BEGIN TRANSACTION")
            check_catalog(self._connection)
            for raw, types in self._descriptions.items():
                is_same = resolve_table(self._connection, _split_name(raw)) == _split_name(raw)
                if self._describe(raw) != types or not is_same:
                    raise table_changed()
        except duckdb.Error:
            raise _query_failed() from None

    def _describe(self, raw: str) -> list[Any]:
        return self._connection.execute(f"DESCRIBE SELECT * FROM {raw}").fetchall()

    def _read_files(self) -> None:
        """Read CSV and JSON files when the first query runs: planning reads no row."""
        for name in list(self._unread_files):
            query = self._unread_files[name].load(self._connection, _INPUT + name)
            check_files_unchanged(self._file_states)
            self._connection.execute(f"CREATE OR REPLACE TEMP VIEW {quote_name(_RAW + name)} AS {query}")
            del self._unread_files[name]

    def compile(self, sql: exp.Expr) -> str:
        """Return the SQL in DuckDB's dialect; see `Engine`."""
        return sql.sql("duckdb")

    def interrupt(self) -> None:
        """Stop what the connection runs; see `Engine`."""
        with suppress(duckdb.Error):
            self._connection.interrupt()

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    # Opening

    def _open_table(self, name: str, source: TableSource) -> Table:
        if name.lower().startswith(_RESERVED):
            raise InvalidInput(
                f"a table is named {name}",
                why=f"names that begin with {', '.join(_RESERVED)} are reserved for queries",
                fix="open it under another name",
            )
        raw, unreadable = self._register(name, source)
        description = self._describe(raw)
        if not self._is_ours:
            self._descriptions[raw] = description
        types = {str(row[0]): str(row[1]) for row in description if str(row[0]) not in unreadable}
        if not types:
            raise InvalidInput(
                f"{name} has no column that can be read",
                why="one value of a time of day, or in milliseconds, could make every query fail",
                fix="write timestamps in microseconds",
            )
        kinds = resolve_kinds(
            name,
            {column: find_kind(sql_type) for column, sql_type in types.items()},
            source.types,
            source.bounds,
        )
        typed_columns = [column for column, kind in kinds.items() if kind is not Kind.TEXT]
        if name in self._unread_files and typed_columns:
            self.notes.append(
                f"{name}: texts in {', '.join(typed_columns)} that are not of the declared type are NULL"
            )
        table = Table.of(
            name,
            kinds,
            unit=source.unit,
            bounds=source.bounds,
            keys=source.keys,
            elements={name: kind for name, each in types.items() if (kind := find_element(each)) is not None},
            is_public=source.is_public,
            is_json=isinstance(self._unread_files.get(name), JsonFiles),
        )
        # A collation makes texts equal, and other rows would decide which of them stands for both.
        bytewise = {
            column: "" if self._is_ours or kind is not Kind.TEXT else ' COLLATE "binary"'
            for column, kind in kinds.items()
        }
        read = {column: convert_column(column, types[column], kind) for column, kind in kinds.items()}
        parts = [
            f"{sql.sql('duckdb')}{bytewise[column]} AS {quote_name(column)}" for column, sql in read.items()
        ]
        if source.unit is not None:
            column = table.find(source.unit).name
            parts.append(
                f"{self._unit(column, types[column], kinds[column], bytewise[column])} AS {quote_name(UNIT)}"
            )
        where = (
            "" if source.window is None else f" WHERE {in_window(source.window, table, read).sql('duckdb')}"
        )
        self._connection.execute(
            f"CREATE TEMP VIEW {quote_name(name)} AS SELECT {', '.join(parts)} FROM {raw}{where}"
        )
        return table

    def _unit(self, column: str, sql_type: str, declared: Kind, bytewise: str) -> str:
        """The unit's key, of one type in all tables: joins then cast nothing, so nothing can fail."""
        is_text = find_kind(sql_type) is Kind.TEXT
        is_parsed = is_text and declared is Kind.NUMBER
        kind = "integer" if sql_type in INTEGERS or is_parsed else "text" if is_text else sql_type
        if self._unit_type is None:
            self._unit_type = kind
        if kind != self._unit_type:
            raise InvalidInput(
                f"the unit's column {column!r} is {base_type(sql_type)} in one table, and not in others",
                why="the conversion would decide which keys belong to one person",
                fix="give it one type in all files; where it is an integer in one and a text in others, as "
                f'all columns of CSV are, declare {column} = "number" there',
            )
        known = (
            f"CAST({quote_name(column)} AS VARCHAR)" if sql_type.startswith("ENUM") else quote_name(column)
        )
        if is_parsed:
            return parse_integer(known)
        return known + (bytewise if is_text else "")

    def _register(self, name: str, source: TableSource) -> tuple[str, tuple[str, ...]]:
        """Make the rows known to DuckDB; return their name there, and the columns that no query may read."""
        rows = source.rows
        if isinstance(rows, (str, Path)) and not self._is_ours:
            # By the full name, or our view of the same name would replace it.
            parts = resolve_table(self._connection, [part.strip('"') for part in str(rows).split(".")])
            location = self._locate(parts)
            self._fingerprints[name] = location
            identity = DataIdentity() if location is None else identify_database_table(*location[1:])
            self._identities[name] = identity
            return ".".join(quote_name(part) for part in parts), ()
        self._identities[name] = identify_files(list_files(rows))
        protect_paths(*list_files(rows))
        if isinstance(rows, (str, Path)):
            self._fingerprints[name] = ["file", os.path.realpath(rows)]
            try:
                return self._register_files(name, str(rows), source)
            except duckdb.Error as problem:
                raise _open_failed(problem, Path(rows).name) from None
        self._fingerprints[name] = None
        return self._register_frame(name, rows), ()

    def _register_frame(self, name: str, rows: Any) -> str:
        frame = prepare_frame(rows, name)
        self._references.append(frame)
        texts = find_encoded_texts(frame)
        try:
            self._connection.register((_INPUT if texts else _RAW) + name, frame)
        except (duckdb.Error, TypeError, ValueError):
            raise InvalidInput(
                f"rows are of type {type(rows).__name__}, and contain a type that cannot be read",
                why="the engine does not know the type",
                fix="leave that column out, or convert it to numbers, texts, dates or timestamps",
            ) from None
        if texts:
            decoded = ", ".join(f"{decode_utf8(column)} AS {quote_name(column)}" for column in texts)
            self._connection.execute(
                f"CREATE TEMP VIEW {quote_name(_RAW + name)} AS "
                f"SELECT * REPLACE ({decoded}) FROM {quote_name(_INPUT + name)}"
            )
        return quote_name(_RAW + name)

    def _locate(self, parts: Sequence[str]) -> list[str] | None:
        """The database file, schema and name of a table, if it is in a file of DuckDB's."""
        rows = self._connection.execute(
            "SELECT d.path, t.schema_name, t.table_name, t.database_name, d.type "
            "FROM duckdb_tables() AS t JOIN duckdb_databases() AS d USING (database_oid) "
            "WHERE lower(t.table_name) = lower(?)",
            [parts[-1]],
        ).fetchall()
        qualifiers = [part.lower() for part in parts[:-1]]
        # The first of two names is a schema or a database.
        matches = [
            row for row in rows if all(part in {row[1].lower(), row[3].lower()} for part in qualifiers)
        ]
        if len(matches) != 1 or matches[0][0] is None or matches[0][4] != "duckdb":
            return None
        path, schema, table, *_ = matches[0]
        return ["duckdb", os.path.realpath(path), schema, table]

    def _register_files(self, name: str, path: str, source: TableSource) -> tuple[str, tuple[str, ...]]:
        paths = resolve_files(path)
        self._file_states |= {each: read_file_state(each) for each in paths}
        file_format = find_format(paths[0])
        folders = read_partitions(path, expand_pattern(path), source.partitions)
        if file_format == "Arrow":
            return self._register_frame(name, open_arrow_files(paths)), ()
        if file_format == "Parquet":
            scan, unreadable = scan_parquet(self._connection, paths, name, FILE_COLUMN if folders else "")
            if folders:
                query = join_partitions(
                    self._connection, scan, folders, source.partitions, f"{_INPUT}{name}_folders"
                )
                self._connection.execute(f"CREATE TEMP VIEW {quote_name(_RAW + name)} AS {query}")
                return quote_name(_RAW + name), unreadable
            return scan if isinstance(scan, str) else self._register_frame(name, scan), unreadable
        rows, notes = open_rows(name, paths, source)
        self._unread_files[name] = rows
        self.notes += notes
        self._connection.execute(f"CREATE TEMP VIEW {quote_name(_RAW + name)} AS {rows.empty_query}")
        return quote_name(_RAW + name), ()

    def _lock_connection(self) -> None:
        run = self._connection.execute
        allowed = ", ".join(quote_text(path) for path in self._file_states)
        run(f"SET allowed_paths = [{allowed}]")
        run("SET enable_external_access = false")
        run("SET lock_configuration = true")

    def _create_key_table(self, name: str, keys: Sequence[Key]) -> None:
        kind = infer_kind(keys)
        self._connection.execute(
            f"CREATE TEMP TABLE {quote_name(name)} (key {SQL_TYPES[kind]}, place INTEGER)"
        )
        for number, batch in enumerate(split_into_batches(keys, _ARRAY_KEYS)):
            indices = np.arange(len(batch), dtype=np.int32) + number * _ARRAY_KEYS
            self._insert_keys(name, batch, indices, kind)

    def _insert_keys(self, name: str, keys: Sequence[Key], indices: NDArray[np.int32], kind: Kind) -> None:
        if kind is not Kind.TEXT and (kind is not Kind.NUMBER or None in keys):
            self._connection.execute(
                f"INSERT INTO temp.{quote_name(name)} SELECT UNNEST($keys), UNNEST($places)",
                {"keys": list(keys), "places": indices.tolist()},
            )
            return
        # As arrays: a list of 100,000 parameters takes five times as long.
        column = np.array(keys, dtype=np.float64 if kind is Kind.NUMBER else object)
        self._connection.register(_RAW + name, {"key": column, "place": indices})
        try:
            self._connection.execute(
                f"INSERT INTO temp.{quote_name(name)} SELECT key, place FROM {quote_name(_RAW + name)}"
            )
        finally:
            self._connection.unregister(_RAW + name)


def _convert_column(name: str, values: Any, *, is_date: bool) -> Any:
    if name[:1] != "k":
        return np.ma.filled(values, 0).astype(np.int64)
    if values.dtype.kind != "M":
        return _mask_to_none(values)
    # As Python has them: days for dates, microseconds for timestamps.
    datetimes = np.asarray(np.ma.getdata(values)).astype("M8[D]" if is_date else "M8[us]").astype(object)
    datetimes[np.ma.getmaskarray(values)] = None
    return datetimes


def _mask_to_none(column: NDArray[Any]) -> NDArray[Any]:
    """Group keys as Python values, None where the array is masked."""
    if isinstance(column, np.ma.MaskedArray):
        plain = np.asarray(column.data, dtype=object)
        plain[np.ma.getmaskarray(column)] = None
        return plain
    return np.asarray(column, dtype=object)


def _split_name(raw: str) -> tuple[str, ...]:
    """The parts of a quoted full name."""
    return tuple(part[1:-1].replace('""', '"') for part in re.findall(r'"(?:[^"]|"")*"', raw))


def _query_failed() -> EngineFailed:
    return EngineFailed(
        "the engine could not run the query",
        why="its own message may contain data, so it is not shown",
        fix=f"check that the file is still there and as declared; {RETRY_HINT}",
    )


def _open_failed(problem: duckdb.Error, name: str = "the data") -> InvalidInput:
    kind = type(problem).__name__.removesuffix("Exception")
    return InvalidInput(
        f"{name} cannot be opened ({kind})",
        why="the engine refuses it; its message may contain data, so it is not shown",
        fix="check that the file is complete, readable, and in the format that its name says",
    )
