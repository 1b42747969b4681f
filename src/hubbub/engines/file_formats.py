"""File formats: files as DuckDB is given them, and the temporary folders that they need.

Parquet files state their types, but DuckDB fails on some values of some types; such columns are left out. CSV
files are read by DuckDB's reader only where it gives the rows that `csv_rows` defines; others, and JSON
files, are read here, once, into a temporary table. Feather files are read as Arrow data.
"""

# ruff: noqa: S608 - names and paths are quoted

import glob
import os
import shutil
import stat
import tempfile
import weakref
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
from numpy.typing import NDArray

from hubbub.engines.csv_rows import (
    SEPARATORS,
    CsvFormat,
    PlainCsv,
    detect_plain,
    detect_separator,
    make_csv_format,
    read_batches,
    read_header,
)
from hubbub.engines.data_identity import expand_pattern
from hubbub.engines.engine import RETRY_HINT, TableSource
from hubbub.engines.file_endings import FORMATS, TAB_ENDING, file_ending, find_compression, find_format
from hubbub.engines.json_rows import check_array, read_json_batches
from hubbub.engines.schema import refuse_duplicate_names
from hubbub.errors import EngineFailed, InvalidInput

__all__ = [
    "CsvFiles",
    "FileState",
    "JsonFiles",
    "RowFiles",
    "check_files_unchanged",
    "make_private_folder",
    "open_arrow_files",
    "open_rows",
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

FileState = tuple[int, int, int, int]
"""Device, inode, size and modification time of a file."""
_OPTIONS = "hive_partitioning = false, union_by_name = false"
"""Folder names are no columns, and columns of several files are not matched by name."""
_SCHEMA = "name, type, type_length, num_children, converted_type, logical_type, scale, precision"


def quote_name(name: str) -> str:
    """A name in SQL, quoted."""
    return '"' + name.replace('"', '""') + '"'


def quote_text(text: str) -> str:
    """A text in SQL, quoted."""
    return "'" + text.replace("'", "''") + "'"


def resolve_files(path: str) -> list[str]:
    """The files that a path, a pattern or a folder matches, each once, all of one format."""
    paths = expand_pattern(path)
    missing = next((each for each in paths if not Path(each).is_file()), None if paths else path)
    if missing is not None:
        raise _no_file(missing, is_pattern=not paths)
    files = list(dict.fromkeys(str(Path(each).resolve()) for each in paths))
    if any(glob.has_magic(each) for each in files):
        raise InvalidInput(
            "the path of a file contains *, ? or [",
            why="the engine would treat it as a pattern, and read other files or the same one twice",
            fix="rename the file",
        )
    formats = {find_format(each) for each in paths}
    if len(formats) > 1:
        raise InvalidInput(
            f"files of {path} have several formats",
            why="one table is read in one way",
            fix="give each format as its own table",
        )
    if formats == {None}:
        raise _unknown_format(paths[0])
    return files


def _no_file(path: str, *, is_pattern: bool) -> InvalidInput:
    if Path(path).is_dir():
        return InvalidInput(
            f"{path} is a folder without files that can be read",
            why="a query needs its rows",
            fix=f"give a folder of .parquet files, or a pattern such as {Path(path).name}/*.csv",
        )
    if is_pattern and glob.has_magic(path):
        return InvalidInput(
            f"no file matches {path}", why="a query needs its rows", fix="correct the pattern, in quotes"
        )
    return InvalidInput(
        f"{path} is not a file" if Path(path).exists() else f"{path} does not exist",
        why="a query needs its rows",
        fix="give the path of an existing file",
    )


def _unknown_format(path: str) -> InvalidInput:
    ending = Path(path).suffix.lower()
    if ending in {".xlsx", ".xls", ".xlsm", ".ods"}:
        return InvalidInput(
            f"{Path(path).name} is a spreadsheet",
            why="its columns have no types, and those of its cells may differ from row to row",
            fix="save the sheet as CSV (UTF-8), and open that",
        )
    if find_compression(path):
        return InvalidInput(
            f"{Path(path).name} is a compressed file that is neither CSV nor JSON",
            why="other formats compress their own contents",
            fix="decompress it, or name it as .csv.gz, .tsv.gz or .ndjson.gz if it is one",
        )
    return InvalidInput(
        f"{Path(path).name} ends in {ending or 'nothing'}",
        why="the ending decides how a file is read",
        fix=f"give a file that ends in {', '.join(FORMATS)}, also with .gz or .zst for texts, "
        "or a DuckDB database (.duckdb)",
    )


def read_file_state(path: str) -> FileState:
    """The state of a file; all zero if it does not exist."""
    try:
        status = os.stat(path)  # noqa: PTH116 - a text, as the engine has it
    except OSError:
        return 0, 0, 0, 0
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def check_files_unchanged(states: dict[str, FileState]) -> None:
    """Refuse files that have changed since they were opened."""
    changed = next((path for path, before in states.items() if read_file_state(path) != before), None)
    if changed is not None:
        raise EngineFailed(
            f"{Path(changed).name} has changed since it was opened",
            why="its header, its types and its lines were checked then",
            fix=f"open it again; {RETRY_HINT}",
        )


# Parquet


def scan_parquet(
    connection: duckdb.DuckDBPyConnection, paths: Sequence[str], table: str, file_column: str = ""
) -> tuple[Any, tuple[str, ...]]:
    """The SQL that reads Parquet files of one schema, or Arrow data to read instead; and unreadable columns.

    Args:
        connection: DuckDB's.
        paths: the files.
        table: its name, for errors.
        file_column: a column that tells which file a row is from, if it is needed.

    Guarantee: no value of the other columns can make the scan fail.
    Proof: docs/proofs/bounding.md, "Files"
    """
    schemas = [
        connection.execute(f"SELECT {_SCHEMA} FROM parquet_schema({quote_text(path)})").fetchall()
        for path in paths
    ]
    if any(schema[1:] != schemas[0][1:] for schema in schemas[1:]):
        raise _different_schemas()
    columns = list(_columns(schemas[0]))
    refuse_duplicate_names([str(nodes[0][0]) for nodes in columns], table)
    unreadable = tuple(str(nodes[0][0]) for nodes in columns if not all(map(_is_total_column, nodes)))
    listed = ", ".join(map(quote_text, paths))
    decoding = ""
    if any(node[1] == "BYTE_ARRAY" for nodes in columns for node in nodes):
        if not decodes_any_text(connection):
            if file_column:
                raise InvalidInput(
                    "this version of DuckDB fails on text in Parquet that is not UTF-8",
                    why="one person's row could make every query fail, and the failure would show",
                    fix="pip install 'duckdb>=2' to read folders by the names of their folders",
                )
            return _open_dataset(paths), unreadable
        decoding = ", utf8_validation = 'replace'"
    filename = quote_text(file_column) if file_column else "false"
    return f"read_parquet([{listed}], {_OPTIONS}, filename = {filename}{decoding})", unreadable


def _different_schemas() -> InvalidInput:
    return InvalidInput(
        "the files of one table have different columns or types",
        why="the engine would cast them row by row, and one value could make a query fail",
        fix="write them with one schema, or open each as its own table",
    )


def decodes_any_text(connection: duckdb.DuckDBPyConnection) -> bool:
    """True if this version of DuckDB can read texts that are not UTF-8; before 2 they fail the query."""
    readers = connection.execute(
        "SELECT parameters FROM system.main.duckdb_functions() WHERE function_name = 'read_parquet'"
    ).fetchall()
    return any("utf8_validation" in row[0] for row in readers)


def open_arrow_files(paths: Sequence[str]) -> Any:
    """Feather files of one schema, as an Arrow dataset."""
    try:
        from pyarrow import ArrowException, dataset
    except ImportError:
        raise InvalidInput(
            f"{Path(paths[0]).name} needs a library that is not installed",
            why="DuckDB itself does not read Feather files",
            fix="pip install pyarrow",
        ) from None
    try:
        files = dataset.dataset(list(paths), format="feather")
        schemas = [fragment.physical_schema for fragment in files.get_fragments()]
    except (ArrowException, OSError):
        raise InvalidInput(
            f"{Path(paths[0]).name} cannot be opened as a Feather file",
            why="Arrow refuses it; its message may contain data, so it is not shown",
            fix="check that the files are complete, and in the file format, not the streaming format",
        ) from None
    if any(not schema.equals(schemas[0]) for schema in schemas[1:]):
        raise _different_schemas()
    return files


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


# CSV and JSON


@dataclass(frozen=True)
class RowFiles(ABC):
    """Files of texts: every column is a text, and the rows are read when the first query runs."""

    paths: tuple[str, ...]
    names: tuple[str, ...]
    """Names of all columns; an empty name is a column without one, which is left out."""

    @property
    def empty_query(self) -> str:
        """A query with the same columns and no rows."""
        return f"SELECT {self._select_list('NULL::VARCHAR')} WHERE false"

    def load(self, connection: duckdb.DuckDBPyConnection, table: str) -> str:
        """A query of all rows, which are copied into a temporary table that may spill to disk.

        Args:
            connection: where the temporary table is made.
            table: its name.
        """
        return self._copy(connection, table, self.paths)

    def _copy(self, connection: duckdb.DuckDBPyConnection, table: str, paths: Sequence[str]) -> str:
        columns = ", ".join(f"c{index} VARCHAR" for index in range(len(self.names)))
        connection.execute(f"CREATE OR REPLACE TEMP TABLE {quote_name(table)} ({columns})")
        view = f"{table}_batch"
        for path in paths:
            for batch in self._read(Path(path)):
                connection.register(view, {f"c{index}": column for index, column in enumerate(batch)})
                try:
                    connection.execute(
                        f"INSERT INTO temp.{quote_name(table)} SELECT * FROM {quote_name(view)}"
                    )
                finally:
                    connection.unregister(view)
        return f"SELECT {self._select_list()} FROM temp.{quote_name(table)}"

    @abstractmethod
    def _read(self, path: Path) -> Iterator[list[NDArray[np.object_]]]:
        """Yield the rows of a file in batches, as columns of texts and None."""

    def _select_list(self, value: str | None = None) -> str:
        return ", ".join(
            f"{value or f'c{index}'} AS {quote_name(name)}" for index, name in enumerate(self.names) if name
        )


@dataclass(frozen=True)
class CsvFiles(RowFiles):
    """CSV files with one header."""

    csv_format: CsvFormat

    @classmethod
    def open(cls, paths: Sequence[str], csv_format: CsvFormat, table: str) -> "CsvFiles":
        """Read the files' headers, and nothing else."""
        names, *others = (read_header(Path(path), csv_format) for path in paths)
        refuse_duplicate_names([each for each in names if each], table)
        if any(other != names for other in others):
            raise InvalidInput(
                "the files of one table have different headers",
                why="columns are matched by position, which would differ between them",
                fix="give all of them the same header, or open each as its own table",
            )
        return cls(tuple(paths), names, csv_format)

    def load(self, connection: duckdb.DuckDBPyConnection, table: str) -> str:
        """A query of all rows. Only files that DuckDB would misread are copied; see `RowFiles`."""
        width = len(self.names)
        plain: dict[tuple[PlainCsv, str], list[str]] = {}
        others = []
        for path in self.paths:
            options = detect_plain(Path(path), self.csv_format, width)
            if options is None:
                others.append(path)
            else:
                plain.setdefault((options, find_compression(path)), []).append(path)
        parts = [
            f"SELECT {self._select_list()} FROM {self._scan(paths, options, compression)}"
            for (options, compression), paths in plain.items()
        ]
        if others:
            parts.append(self._copy(connection, table, others))
        return " UNION ALL ".join(parts)

    def _read(self, path: Path) -> Iterator[list[NDArray[np.object_]]]:
        return read_batches(path, self.csv_format, len(self.names))

    def _scan(self, paths: Sequence[str], options: PlainCsv, compression: str) -> str:
        columns = ", ".join(f"'c{index}': 'VARCHAR'" for index in range(len(self.names)))
        files = ", ".join(map(quote_text, paths))
        quote = quote_text('"' if options.is_quoted else "")
        separator = quote_text(self.csv_format.separator)
        # DuckDB can find lines in parallel only where every line feed ends one.
        is_parallel = str(not options.is_quoted).lower()
        return (
            f"read_csv([{files}], columns = {{{columns}}}, delim = {separator}, quote = {quote}, "
            f"escape = {quote}, new_line = '{options.newline}', header = true, nullstr = '', "
            f"auto_detect = false, strict_mode = false, compression = '{compression or 'none'}', "
            f"parallel = {is_parallel}, {_OPTIONS}, filename = false)"
        )


@dataclass(frozen=True)
class JsonFiles(RowFiles):
    """JSON files: lines, or one array each."""

    is_array: bool

    @classmethod
    def open(cls, paths: Sequence[str], names: Sequence[str], table: str) -> "JsonFiles":
        """Check how arrays begin; nothing else is read, and columns are those that are declared."""
        if not names:
            raise InvalidInput(
                f"no column of {table} is declared",
                why="JSON has no header, and what columns there are is never learned from rows",
                fix="declare each with its type, as {types=cost=number}",
            )
        refuse_duplicate_names(names, table)
        is_array = find_format(paths[0]) == "JSON"
        for path in paths if is_array else ():
            check_array(Path(path))
        return cls(tuple(paths), tuple(names), is_array)

    def _read(self, path: Path) -> Iterator[list[NDArray[np.object_]]]:
        return read_json_batches(path, self.names, is_array=self.is_array)


def open_rows(name: str, paths: Sequence[str], source: TableSource) -> tuple[RowFiles, tuple[str, ...]]:
    """CSV or JSON files, and notes on what was not declared; of their contents, only headers are read."""
    if find_format(paths[0]) != "CSV":
        return JsonFiles.open(paths, source.declared_columns, name), ()
    options: dict[str, Any] = {"has_quotes": source.has_quotes, "encoding": source.encoding}
    first, separator = Path(paths[0]), source.separator
    notes: tuple[str, ...] = ()
    if separator is None and file_ending(first) == TAB_ENDING:
        separator = "\t"
    if separator is None:
        separator = detect_separator(first, **options)
        if separator != ",":
            notes = (f"{first.name}: {SEPARATORS[separator]} separates fields, by the header line",)
    return CsvFiles.open(paths, make_csv_format(**options, separator=separator), name), notes


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
