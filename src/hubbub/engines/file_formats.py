"""File formats: Parquet and CSV files as DuckDB is given them, and the temporary folders that they need.

Parquet files state their types, but DuckDB fails on some values of some types; such columns are left out. CSV
files are read by DuckDB's reader only where it gives the rows that `csv_rows` defines; others are read here,
once, into a temporary table.
"""

# ruff: noqa: S608 - names and paths are quoted

import glob
import os
import shutil
import stat
import tempfile
import weakref
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb

from hubbub.engines.csv_rows import CsvFormat, PlainCsv, detect_plain, read_batches, read_header
from hubbub.engines.engine import RETRY_HINT
from hubbub.engines.schema import refuse_duplicate_names
from hubbub.errors import EngineFailed, InvalidInput

__all__ = [
    "CSV_SUFFIXES",
    "CsvFiles",
    "FileState",
    "check_files_unchanged",
    "make_private_folder",
    "quote_name",
    "quote_text",
    "read_file_state",
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
            "the file does not exist",
            why="a query needs its rows",
            fix="give the path of an existing file",
        )
    files = list(dict.fromkeys(str(Path(each).resolve()) for each in paths))
    if any(glob.has_magic(each) for each in files):
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
    return files


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
) -> tuple[Any, tuple[str, ...]]:
    """The SQL that reads Parquet files of one schema, or Arrow data to read instead; and unreadable columns.

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
    decoding = ""
    if any(node[1] == "BYTE_ARRAY" for nodes in columns for node in nodes):
        if not decodes_any_text(connection):
            return _open_dataset(paths), unreadable
        decoding = ", utf8_validation = 'replace'"
    return f"read_parquet([{listed}], {_OPTIONS}{decoding})", unreadable


def decodes_any_text(connection: duckdb.DuckDBPyConnection) -> bool:
    """True if this version of DuckDB can read texts that are not UTF-8; before 2 they fail the query."""
    readers = connection.execute(
        "SELECT parameters FROM system.main.duckdb_functions() WHERE function_name = 'read_parquet'"
    ).fetchall()
    return any("utf8_validation" in row[0] for row in readers)


def _open_dataset(paths: Sequence[str]) -> Any:
    """Parquet files as an Arrow dataset, the texts of which can be read as bytes."""
    try:
        from pyarrow import ArrowException, dataset
    except ImportError:
        raise InvalidInput(
            "this version of DuckDB fails on text in Parquet that is not UTF-8",
            why="one person's row could make every query fail, and the failure would show",
            fix="pip install 'duckdb>=2', or pip install pyarrow",
        ) from None
    try:
        return dataset.dataset(list(paths), format="parquet")
    except (ArrowException, OSError):
        raise InvalidInput(
            "the data cannot be opened",
            why="Arrow refuses it; its message may contain data, so it is not shown",
            fix="check that the file is complete, or pip install 'duckdb>=2'",
        ) from None


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
