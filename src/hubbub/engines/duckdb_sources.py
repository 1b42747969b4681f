"""Files and rows in memory, as DuckDB is given them: under their own names, in types that never fail.

Parquet files state their types, but DuckDB fails on some values of some types; such columns are left out. CSV
files are read by DuckDB's reader only where it gives the rows that `csv_rows` defines; others are read here,
once, into a temporary table.

DuckDB silently renames columns that differ only in case, fails on a timestamp that its own unit cannot hold,
becomes unusable after a text that is not UTF-8, and empties a stream that can be read only once. So data
frames and Arrow data are prepared first, by their names and types; values are touched only where each becomes
a text by itself, or is checked to be one.
"""

# ruff: noqa: S608 - names and paths are quoted

import glob
import os
import shutil
import stat
import tempfile
import weakref
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import numpy as np

from hubbub.engines.csv_rows import CsvFormat, PlainCsv, detect_plain, read_batches, read_header
from hubbub.engines.engine import RETRY_HINT
from hubbub.errors import EngineFailed, InvalidInput

__all__ = [
    "CSV_SUFFIXES",
    "REPLACEMENT",
    "CsvFiles",
    "FileState",
    "check_files_unchanged",
    "find_encoded_texts",
    "make_private_folder",
    "prepare_frame",
    "quote_name",
    "quote_text",
    "read_file_state",
    "refuse_duplicate_names",
    "resolve_files",
    "scan_parquet",
]

fcntl: Any
try:
    import fcntl
except ImportError:  # without such locks, abandoned folders are not removed
    fcntl = None


# Files

_PARQUET_SUFFIXES, CSV_SUFFIXES = {".parquet", ".pq"}, {".csv", ".txt"}
FileState = tuple[int, int, int, int]
"""Device, inode, size and modification time of a file."""
_OPTIONS = "hive_partitioning = false, union_by_name = false, filename = false"
"""Folder names are no columns, and columns of several files are not matched by name."""
_SCHEMA = "name, type, type_length, num_children, converted_type, logical_type, scale, precision"


def quote_name(name: str) -> str:
    """A name in SQL, quoted."""
    return '"' + name.replace('"', '""') + '"'


def quote_text(text: str) -> str:
    """A text in SQL, quoted."""
    return "'" + text.replace("'", "''") + "'"


def resolve_files(path: str) -> list[str]:
    """The files that a path or a pattern matches, each once, all of one format."""
    is_pattern = glob.has_magic(path) and not Path(path).is_file()
    paths = sorted(glob.glob(path)) if is_pattern else [path]  # noqa: PTH207 - a text, as typed
    if not paths or not all(Path(each).is_file() for each in paths):
        raise InvalidInput(
            "the file is not there",
            why="a query needs its rows",
            fix="give the path of an existing file",
        )
    found = list(dict.fromkeys(str(Path(each).resolve()) for each in paths))
    if any(glob.has_magic(each) for each in found):
        raise InvalidInput(
            "the path of a file contains *, ? or [",
            why="the engine would treat it as a pattern, and read other files or the same one twice",
            fix="rename the file",
        )
    kinds = {Path(each).suffix.lower() for each in paths}
    if not (kinds <= _PARQUET_SUFFIXES or kinds <= CSV_SUFFIXES):
        raise InvalidInput(
            f"the file ends in {', '.join(sorted(kinds)) if any(kinds) else 'nothing'}",
            why="only Parquet and CSV files are read, and all files of a pattern have one format",
            fix="give .parquet or .csv files, or a DuckDB database (.duckdb)",
        )
    return found


def read_file_state(path: str) -> FileState:
    """The state of a file; all zero if it does not exist."""
    try:
        status = os.stat(path)  # noqa: PTH116 - a text, as the engine has it
    except OSError:
        return 0, 0, 0, 0
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def check_files_unchanged(states: dict[str, FileState]) -> None:
    """Refuse files that have changed since they were opened."""
    if any(read_file_state(path) != before for path, before in states.items()):
        raise EngineFailed(
            "a file is not as it was when it was opened",
            why="its header, its types and its lines were checked then",
            fix=f"open it again; {RETRY_HINT}",
        )


# Parquet


def scan_parquet(
    connection: duckdb.DuckDBPyConnection, paths: Sequence[str], table: str
) -> tuple[str, tuple[str, ...]]:
    """The SQL that reads Parquet files of one schema, and the columns that no query may read.

    Guarantee: no value of the other columns can make the scan fail.
    Proof: docs/proofs/bounding.md, "Files"
    """
    schemas = [
        connection.execute(f"SELECT {_SCHEMA} FROM parquet_schema({quote_text(path)})").fetchall()
        for path in paths
    ]
    if any(schema[1:] != schemas[0][1:] for schema in schemas[1:]):
        raise InvalidInput(
            "the files of the pattern have different columns or types",
            why="the engine would cast them row by row, and one value could make a query fail",
            fix="write them with one schema, or open each as its own table",
        )
    columns = list(_columns(schemas[0]))
    refuse_duplicate_names([str(nodes[0][0]) for nodes in columns], table)
    unreadable = tuple(str(nodes[0][0]) for nodes in columns if not all(map(_is_total_column, nodes)))
    listed = ", ".join(map(quote_text, paths))
    readers = connection.execute(
        "SELECT parameters FROM system.main.duckdb_functions() WHERE function_name = 'read_parquet'"
    ).fetchall()
    # Newer versions can read texts that are not UTF-8; in older ones such a text fails the query.
    decoding = ", utf8_validation = 'replace'" if any("utf8_validation" in row[0] for row in readers) else ""
    return f"read_parquet([{listed}], {_OPTIONS}{decoding})", unreadable


def _columns(schema: Sequence[Any]) -> Iterator[list[Any]]:
    """The columns, each with its nested nodes; the first row of the schema is the table itself."""
    index = 1
    while index < len(schema):
        start, open_nodes = index, 1
        while open_nodes and index < len(schema):
            open_nodes += int(schema[index][3] or 0) - 1
            index += 1
        yield list(schema[start:index])


def _is_total_column(node: Any) -> bool:
    """True if DuckDB reads every value of a Parquet type.

    It fails on a time that is not within a day, and on milliseconds that overflow as microseconds.
    """
    converted, logical = str(node[4] or "").upper(), str(node[5] or "").upper()
    is_time = converted.startswith("TIME_") or logical.startswith("TIMETYPE")
    is_coarse = converted == "TIMESTAMP_MILLIS" or "MILLIS=MILLI" in logical
    return not is_time and not is_coarse


# CSV


@dataclass(frozen=True)
class CsvFiles:
    """CSV files with one header."""

    paths: tuple[str, ...]
    csv_format: CsvFormat
    names: tuple[str, ...]
    """Names of all columns; an empty name is a column without one, which is left out."""

    @classmethod
    def open(cls, paths: Sequence[str], csv_format: CsvFormat, table: str) -> "CsvFiles":
        """Read the files' headers, and nothing else."""
        names, *others = (read_header(Path(path), csv_format) for path in paths)
        refuse_duplicate_names([each for each in names if each], table)
        if any(other != names for other in others):
            raise InvalidInput(
                "the files of the pattern have different headers",
                why="columns are matched by position, which would differ between them",
                fix="give all of them the same header, or open each as its own table",
            )
        return cls(tuple(paths), csv_format, names)

    @property
    def empty_query(self) -> str:
        """A query with the same columns and no rows."""
        return f"SELECT {self._select_list('NULL::VARCHAR')} WHERE false"

    def load(self, connection: duckdb.DuckDBPyConnection, table: str) -> str:
        """A query of all rows. Files that DuckDB would misread are first copied into a temporary table.

        Args:
            connection: where the temporary table is made.
            table: its name.
        """
        width = len(self.names)
        plain: dict[PlainCsv, list[str]] = {}
        others = []
        for path in self.paths:
            options = detect_plain(Path(path), self.csv_format, width)
            plain.setdefault(options, []).append(path) if options else others.append(path)
        parts = [
            f"SELECT {self._select_list()} FROM {_read_csv(paths, width, options)}"
            for options, paths in plain.items()
        ]
        if others:
            self._copy(connection, table, others)
            parts.append(f"SELECT {self._select_list()} FROM temp.{quote_name(table)}")
        return " UNION ALL ".join(parts)

    def _copy(self, connection: duckdb.DuckDBPyConnection, table: str, paths: Sequence[str]) -> None:
        """Copy the rows that `csv_rows` defines into a temporary table, which may spill to disk."""
        width = len(self.names)
        columns = ", ".join(f"c{index} VARCHAR" for index in range(width))
        connection.execute(f"CREATE OR REPLACE TEMP TABLE {quote_name(table)} ({columns})")
        view = f"{table}_batch"
        for path in paths:
            for batch in read_batches(Path(path), self.csv_format, width):
                connection.register(view, {f"c{index}": column for index, column in enumerate(batch)})
                try:
                    connection.execute(
                        f"INSERT INTO temp.{quote_name(table)} SELECT * FROM {quote_name(view)}"
                    )
                finally:
                    connection.unregister(view)

    def _select_list(self, value: str | None = None) -> str:
        return ", ".join(
            f"{value or f'c{index}'} AS {quote_name(name)}" for index, name in enumerate(self.names) if name
        )


def _read_csv(paths: Sequence[str], width: int, options: PlainCsv) -> str:
    columns = ", ".join(f"'c{index}': 'VARCHAR'" for index in range(width))
    files = ", ".join(map(quote_text, paths))
    quote = quote_text('"' if options.is_quoted else "")
    # DuckDB can find lines in parallel only where every line feed ends one.
    is_parallel = str(not options.is_quoted).lower()
    return (
        f"read_csv([{files}], columns = {{{columns}}}, delim = ',', quote = {quote}, escape = {quote}, "
        f"new_line = '{options.newline}', header = true, nullstr = '', auto_detect = false, "
        f"strict_mode = false, compression = 'none', parallel = {is_parallel}, {_OPTIONS})"
    )


# Rows in memory

REPLACEMENT = "\ufffd"
"""The replacement character: stands for a text that is not UTF-8."""
_ENCODED = {b"hubbub": b"text"}
"""Marks a column of bytes that DuckDB decodes as UTF-8."""
_INFERRED_FORMATS = {"csv", "json"}
"""Formats for which Arrow infers the column types from rows."""


def prepare_frame(rows: Any, name: str) -> Any:
    """A data frame of pandas or Polars, or Arrow data, ready for DuckDB; a stream is read into memory.

    Guarantee: DuckDB can read every value of the result, and knows its columns by their own names.
    Proof: docs/proofs/bounding.md, "Files"
    """
    kind = type(rows)
    home, _, _ = kind.__module__.partition(".")
    if home == "pandas" and kind.__name__ == "DataFrame":
        refuse_duplicate_names([str(column) for column in rows.columns], name)
        return _prepare_pandas(rows)
    if home == "polars" and kind.__name__ == "LazyFrame":
        return prepare_frame(rows.collect(), name)
    table = _as_arrow(rows, home)
    if table is None:
        raise InvalidInput(
            f"rows are of type {kind.__name__}, which cannot be read",
            why="only files, data frames, Arrow data and DuckDB connections can be read",
            fix="pass a path to CSV or Parquet, a pandas or Polars data frame, or an Arrow table",
        )
    refuse_duplicate_names(list(table.schema.names), name)
    return _prepare_arrow(table)


def find_encoded_texts(frame: Any) -> tuple[str, ...]:
    """The columns of a prepared frame that are bytes for DuckDB to decode."""
    fields = getattr(frame, "schema", ()) if type(frame).__module__.startswith("pyarrow.") else ()
    return tuple(field.name for field in fields if _ENCODED.items() <= (field.metadata or {}).items())


def refuse_duplicate_names(names: Sequence[str], table: str) -> None:
    """Refuse two columns that differ only in case: DuckDB would rename one of them."""
    if len({name.lower() for name in names}) < len(names):
        raise InvalidInput(
            f"two columns of {table} have one name, or names that differ only in case",
            why="SQL cannot distinguish them, and a query could read the wrong one",
            fix="rename one of them",
        )


# pandas


def _prepare_pandas(frame: Any) -> Any:
    changed = {}
    for place, dtype in enumerate(frame.dtypes):
        column = frame.iloc[:, place]
        if getattr(dtype, "storage", "") == "pyarrow":
            import pyarrow as pa

            held = column.array.__arrow_array__()
            held = held if isinstance(held, pa.ChunkedArray) else pa.chunked_array([held])
            if not _are_utf8(held):
                changed[frame.columns[place]] = _make_texts(_repair_texts(held).to_pylist())
        elif dtype.kind == "O" and type(dtype).__name__ != "ArrowDtype":  # categories too
            changed[frame.columns[place]] = _make_texts(column)
        elif type(dtype).__name__ == "DatetimeTZDtype" and dtype.unit in {"s", "ms"}:
            # In UTC, in its own unit, which DuckDB then reads without multiplying.
            changed[frame.columns[place]] = column.to_numpy(dtype=f"M8[{dtype.unit}]")
    if changed:
        import pandas as pd

        # A new frame, so that the caller's stays unchanged; without the index, which is no column.
        columns = {name: changed.get(name, frame[name].array) for name in frame.columns}
        frame = pd.DataFrame({name: pd.Series(values) for name, values in columns.items()})
    if not any(type(dtype).__name__ == "ArrowDtype" for dtype in frame.dtypes):
        return frame
    import pyarrow as pa

    # Objects are texts by now: an error of Arrow's on mixed types would show a value.
    return _prepare_arrow(pa.Table.from_pandas(frame, preserve_index=False))


def _make_texts(values: Iterable[Any]) -> Any:
    """Objects as texts, each by itself; none of them can fail."""
    texts = [_make_text(value) for value in values]
    import pandas as pd

    column = np.empty(len(texts), dtype=object)
    column[:] = texts
    return pd.Series(column, dtype=object)


def _make_text(value: Any) -> str | None:
    if value is None or type(value).__name__ in {"NAType", "NaTType"}:
        return None
    if isinstance(value, float) and value != value:  # noqa: PLR0124 - not-a-number
        return None
    try:
        return str(value).encode("utf-8", "replace").decode()
    except Exception:  # noqa: BLE001 - the class of the error would tell about the row
        return REPLACEMENT


# Arrow


def _as_arrow(rows: Any, home: str) -> Any:
    """The rows as Arrow data that can be read repeatedly; None if they are not Arrow data."""
    if home == "polars" and hasattr(rows, "to_arrow") and hasattr(rows, "columns"):
        return rows.to_arrow()
    if home != "pyarrow" and not hasattr(rows, "__arrow_c_stream__"):
        return None
    try:
        import pyarrow as pa
        from pyarrow import dataset
    except ImportError:
        return None
    if isinstance(rows, (pa.Table, dataset.Dataset)):
        return rows
    try:
        if isinstance(rows, dataset.Scanner):
            return rows.to_table()
        if isinstance(rows, pa.RecordBatch):
            return pa.Table.from_batches([rows])
        return pa.table(rows)  # a stream, which can be read only once
    except Exception:  # noqa: BLE001 - its message may hold data
        return None


def _prepare_arrow(table: Any) -> Any:
    import pyarrow as pa
    from pyarrow import dataset

    if isinstance(table, dataset.InMemoryDataset):
        table = table.to_table()
    if not isinstance(table, pa.Table):
        return _prepare_dataset(table)
    for index, field in enumerate(table.schema):
        plain = _without_zone(field.type)
        if plain is not None:
            # The same numbers; DuckDB would multiply those with a time zone, and some would overflow.
            table = table.set_column(index, field.name, table.column(index).cast(plain))
        elif _is_text(field.type) and not _are_utf8(table.column(index)):
            table = table.set_column(index, field.name, _repair_texts(table.column(index)))
    # Columns must be dropped, not just ignored: DuckDB reads the first one even to count rows.
    readable = [field.name for field in table.schema if _is_total(field.type)]
    return table if len(readable) == len(table.schema) else table.select(readable)


def _prepare_dataset(source: Any) -> Any:
    """A dataset of files, which each query reads again: its texts as bytes, for DuckDB to decode.

    Assumes: folder names are UTF-8, which Arrow itself checks.
    """
    import pyarrow as pa
    from pyarrow import dataset

    parts = _list_file_datasets(source)
    if any(getattr(part.format, "default_extname", "") in _INFERRED_FORMATS for part in parts):
        raise InvalidInput(
            "the dataset consists of CSV or JSON files",
            why="Arrow infers their types from the first rows, and fails on a later one that does not fit",
            fix="open the CSV files themselves by their path, or write them as Parquet",
        )
    if not parts:
        readable = [field for field in source.schema if _is_total(field.type)]
        return source if len(readable) == len(source.schema) else source.replace_schema(pa.schema(readable))
    files = [(part, list(part.get_fragments())) for part in parts]
    folders = {
        name
        for part, fragments in files
        for known in (part.partition_expression, *(each.partition_expression for each in fragments))
        for name in dataset.get_partition_keys(known)
    }
    is_parquet = any(type(part.format) is dataset.ParquetFileFormat for part in parts)
    schema = pa.schema(
        field.with_type(pa.large_binary()).with_metadata(_ENCODED)
        if _is_text(field.type) and field.name not in folders
        else field
        for field in source.schema
        if _is_total(field.type) and not (is_parquet and _is_recoded(field.type))
    )
    made = [
        dataset.FileSystemDataset(
            fragments, schema, part.format, part.filesystem, root_partition=part.partition_expression
        )
        for part, fragments in files
    ]
    return dataset.UnionDataset(schema, made) if len(made) > 1 else made[0]


def _list_file_datasets(source: Any) -> list[Any]:
    """The datasets of files that a dataset consists of; none if it contains others too."""
    from pyarrow import dataset

    if type(source) is dataset.FileSystemDataset:
        return [source]
    parts = [_list_file_datasets(part) for part in getattr(source, "children", ())]
    return [each for part in parts for each in part] if all(parts) else []


def _is_text(kind: Any) -> bool:
    """True if DuckDB reads each value as a text, and so as UTF-8; it never does so inside nested types."""
    from pyarrow import types

    if types.is_dictionary(kind):
        return _is_text(kind.value_type)
    kind = getattr(kind, "storage_type", kind)  # of an extension type, such as JSON
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def _is_recoded(kind: Any) -> bool:
    """True if Arrow's Parquet reader re-encodes such a dictionary, and then checks its texts."""
    from pyarrow import int32, types

    return bool(types.is_dictionary(kind) and _is_text(kind) and kind.index_type != int32())


def _are_utf8(column: Any) -> bool:
    from pyarrow import ArrowInvalid

    try:
        column.validate(full=True)
    except ArrowInvalid:
        return False
    return True


def _repair_texts(column: Any) -> Any:
    """The same column, with U+FFFD for each text that is not UTF-8."""
    import pyarrow as pa

    return pa.chunked_array([_repair_array(chunk) for chunk in column.chunks], column.type)


def _repair_array(texts: Any) -> Any:
    import pyarrow as pa

    if isinstance(texts, pa.DictionaryArray):
        return pa.DictionaryArray.from_arrays(texts.indices, _repair_array(texts.dictionary))
    if isinstance(texts, pa.ExtensionArray):
        return pa.ExtensionArray.from_storage(texts.type, _repair_array(texts.storage))
    # Not every version can cast every type of text to bytes.
    buffers = (text.as_buffer() for text in texts)
    decoded = [None if buffer is None else _decode(buffer.to_pybytes()) for buffer in buffers]
    return pa.array(decoded, texts.type)


def _decode(text: bytes) -> str:
    try:
        return text.decode()
    except UnicodeDecodeError:
        return REPLACEMENT


def _without_zone(kind: Any) -> Any:
    """The type without its time zone, where DuckDB would multiply its values; else None."""
    from pyarrow import timestamp, types

    if types.is_timestamp(kind) and kind.tz is not None and kind.unit in {"s", "ms"}:
        return timestamp(kind.unit)
    return None


def _is_total(kind: Any) -> bool:
    """True if DuckDB reads every value of an Arrow type."""
    from pyarrow import types

    if types.is_timestamp(kind):
        return kind.tz is None or kind.unit in {"us", "ns"}
    if types.is_duration(kind):
        return kind.unit in {"us", "ns"}
    if types.is_time(kind) or types.is_interval(kind):
        return False
    if types.is_dictionary(kind):
        return _is_total(kind.value_type)
    if types.is_nested(kind):
        return all(_is_total(kind.field(index).type) for index in range(kind.num_fields))
    return True


# Temporary folders, readable by this user alone

_PREFIX = "hubbub-"
_LOCK = ".in-use"


def make_private_folder(owner: object) -> str:
    """Make a folder of mode 0700 that lives as long as its owner; remove those of dead processes."""
    root = Path(tempfile.gettempdir())
    _remove_abandoned(root)
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=root))
    lock = None
    if fcntl is not None:
        # Under another name until it is locked: a lock that can be acquired belongs to a dead process.
        pending = folder / f"{_LOCK}.new"
        lock = os.open(pending, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        pending.rename(folder / _LOCK)
    weakref.finalize(owner, _remove, folder, lock, os.getpid())
    return str(folder)


def _remove(folder: Path, lock: int | None, process: int) -> None:
    if os.getpid() != process:  # a child process: the folder belongs to its parent
        return
    shutil.rmtree(folder, ignore_errors=True)
    if lock is not None:
        with suppress(OSError):
            os.close(lock)


def _remove_abandoned(root: Path) -> None:
    """Remove the folders of processes that were killed."""
    if fcntl is None:
        return
    for folder in root.glob(f"{_PREFIX}*"):
        with suppress(OSError):
            status = folder.lstat()
            if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
                continue
            lock = os.open(folder / _LOCK, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(lock)
