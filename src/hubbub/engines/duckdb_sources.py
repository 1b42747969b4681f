"""A folder that only this user can read, gone when it is no longer used; also after a process was killed."""

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

from hubbub.engines.csv_rows import CsvFormat, PlainCsv, check_plain, read_batches, read_header
from hubbub.engines.engine import RETRY_HINT
from hubbub.errors import EngineFailed, InvalidInput

__all__ = [
    "CSV",
    "UNREADABLE",
    "Csv",
    "Identity",
    "check_same",
    "encoded",
    "framed",
    "identity",
    "name",
    "parquet",
    "private_folder",
    "refuse_alike",
    "resolve_files",
    "text",
]

fcntl: Any
try:
    import fcntl
except ImportError:  # where there are no such locks, nothing is swept
    fcntl = None


_PREFIX = "hubbub-"
_LOCK = ".in-use"


def private_folder(owner: object) -> str:
    """A new folder of mode 0700 that lives as long as its owner; those of dead processes are removed."""
    root = Path(tempfile.gettempdir())
    _sweep(root)
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=root))
    lock = None
    if fcntl is not None:
        # Under another name until it is locked: a lock that can be had belongs to nobody alive.
        making = folder / f"{_LOCK}.new"
        lock = os.open(making, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        making.rename(folder / _LOCK)
    weakref.finalize(owner, _removed, folder, lock, os.getpid())
    return str(folder)


def _removed(folder: Path, lock: int | None, process: int) -> None:
    if os.getpid() != process:  # a child: the folder is its parent's
        return
    shutil.rmtree(folder, ignore_errors=True)
    if lock is not None:
        with suppress(OSError):
            os.close(lock)


def _sweep(root: Path) -> None:
    """Remove what processes left that did not end by themselves."""
    if fcntl is None:
        return
    for folder in root.glob(f"{_PREFIX}*"):
        with suppress(OSError):
            known = folder.lstat()
            if not stat.S_ISDIR(known.st_mode) or known.st_uid != os.geteuid():
                continue
            lock = os.open(folder / _LOCK, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(lock)


# Rows in memory, as the embedded engine is handed them: by their own names, and in types that never fail.
#
# The engine renames columns that differ only in case before anybody can see them, fails on a moment that its
# own unit does not hold, is lost for good by a text that is no UTF-8, and empties what can be read only once.
# So what is handed over is looked at first, by its names and types; values are looked at only where each is
# made a text by itself, or seen to be one.

UNREADABLE = "\ufffd"
"""What stands for a text that cannot be read."""
_ENCODED = {b"hubbub": b"text"}
"""Marks a column of bytes that are texts in UTF-8, or should be."""
_TYPED_BY_ROWS = {"csv", "json"}


def framed(rows: Any, name: str) -> Any:
    """A data frame of pandas or Polars, or Arrow data; what can be read only once is read here.

    Guarantee: the engine can read every value of what comes back, and knows its columns by their own names.
    Proof: docs/proofs/bounding.md, "Files"
    """
    kind = type(rows)
    home, _, _ = kind.__module__.partition(".")
    if home == "pandas" and kind.__name__ == "DataFrame":
        refuse_alike([str(column) for column in rows.columns], name)
        return _of_pandas(rows)
    if home == "polars" and kind.__name__ == "LazyFrame":
        return framed(rows.collect(), name)
    table = _as_arrow(rows, home)
    if table is None:
        raise InvalidInput(
            f"rows are of type {kind.__name__}, which cannot be read",
            why="files, data frames, Arrow data and DuckDB connections can",
            fix="pass a path to CSV or Parquet, a pandas or Polars data frame, or an Arrow table",
        )
    refuse_alike(list(table.schema.names), name)
    return _of_arrow(table)


def encoded(frame: Any) -> tuple[str, ...]:
    """The columns of what `framed` gives that are bytes, and for the engine to decode."""
    fields = getattr(frame, "schema", ()) if type(frame).__module__.startswith("pyarrow.") else ()
    return tuple(field.name for field in fields if _ENCODED.items() <= (field.metadata or {}).items())


def refuse_alike(names: Sequence[str], table: str) -> None:
    """Refuse two columns that differ only in case: the engine would rename one of them."""
    if len({name.lower() for name in names}) < len(names):
        raise InvalidInput(
            f"two columns of {table} have one name, or names that differ only in case",
            why="in SQL they are the same, and the one that is meant would not be the one that is read",
            fix="rename one of them",
        )


# pandas


def _of_pandas(frame: Any) -> Any:
    changed = {}
    for place, dtype in enumerate(frame.dtypes):
        column = frame.iloc[:, place]
        if getattr(dtype, "storage", "") == "pyarrow":
            import pyarrow as pa

            held = column.array.__arrow_array__()
            held = held if isinstance(held, pa.ChunkedArray) else pa.chunked_array([held])
            if not _are_utf8(held):
                changed[frame.columns[place]] = _texts(_as_utf8(held).to_pylist())
        elif dtype.kind == "O" and type(dtype).__name__ != "ArrowDtype":  # categories too
            changed[frame.columns[place]] = _texts(column)
        elif type(dtype).__name__ == "DatetimeTZDtype" and dtype.unit in {"s", "ms"}:
            # The moment in Greenwich, in its own unit, which the engine then reads without multiplying.
            changed[frame.columns[place]] = column.to_numpy(dtype=f"M8[{dtype.unit}]")
    if changed:
        import pandas as pd

        # A new frame, so that the person's own stays as it is; without its index, which is no column.
        columns = {name: changed.get(name, frame[name].array) for name in frame.columns}
        frame = pd.DataFrame({name: pd.Series(values) for name, values in columns.items()})
    if not any(type(dtype).__name__ == "ArrowDtype" for dtype in frame.dtypes):
        return frame
    import pyarrow as pa

    # Objects are texts by now: of a column of several types Arrow's message would show one.
    return _of_arrow(pa.Table.from_pandas(frame, preserve_index=False))


def _texts(values: Iterable[Any]) -> Any:
    """Objects as texts, each by itself: whatever they are, none of them fails."""
    listed = [_text(value) for value in values]
    import pandas as pd

    out = np.empty(len(listed), dtype=object)
    out[:] = listed
    return pd.Series(out, dtype=object)


def _text(value: Any) -> str | None:
    if value is None or type(value).__name__ in {"NAType", "NaTType"}:
        return None
    if isinstance(value, float) and value != value:  # noqa: PLR0124 - not-a-number
        return None
    try:
        return str(value).encode("utf-8", "replace").decode()
    except Exception:  # noqa: BLE001 - of any class: which one would tell about the row
        return UNREADABLE


# Arrow


def _as_arrow(rows: Any, home: str) -> Any:
    """Arrow data that can be read again and again; None where there is none."""
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
        return pa.table(rows)  # a stream: it can be read once, and is read now
    except Exception:  # noqa: BLE001 - its message may hold data
        return None


def _of_arrow(table: Any) -> Any:
    import pyarrow as pa
    from pyarrow import dataset

    if isinstance(table, dataset.InMemoryDataset):
        table = table.to_table()
    if not isinstance(table, pa.Table):
        return _with_bytes(table)
    for place, field in enumerate(table.schema):
        plain = _without_zone(field.type)
        if plain is not None:
            # The same numbers; the engine would multiply those that have a zone, and some would overflow.
            table = table.set_column(place, field.name, table.column(place).cast(plain))
        elif _is_text(field.type) and not _are_utf8(table.column(place)):
            table = table.set_column(place, field.name, _as_utf8(table.column(place)))
    # Not only named: the engine reads the first column also where rows alone are counted.
    kept = [field.name for field in table.schema if _is_total(field.type)]
    return table if len(kept) == len(table.schema) else table.select(kept)


def _with_bytes(source: Any) -> Any:
    """A data set of files, which is read anew by each query: its texts as bytes, for the engine to decode.

    Assumes: what is in the names of folders is UTF-8, as Arrow itself makes sure.
    """
    import pyarrow as pa
    from pyarrow import dataset

    parts = _parts(source)
    if any(getattr(part.format, "default_extname", "") in _TYPED_BY_ROWS for part in parts):
        raise InvalidInput(
            "the data set is of CSV or JSON files",
            why="Arrow takes their types from the first rows, and fails on a later one that does not fit",
            fix="open the CSV files themselves by their path, or write them as Parquet",
        )
    if not parts:
        kept = [field for field in source.schema if _is_total(field.type)]
        return source if len(kept) == len(source.schema) else source.replace_schema(pa.schema(kept))
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


def _parts(source: Any) -> list[Any]:
    """The data sets of files that it is made of; none if it is made of others too."""
    from pyarrow import dataset

    if type(source) is dataset.FileSystemDataset:
        return [source]
    parts = [_parts(part) for part in getattr(source, "children", ())]
    return [each for part in parts for each in part] if all(parts) else []


def _is_text(kind: Any) -> bool:
    """Whether the engine takes each value for a text, and so for UTF-8; what is nested it never reads so."""
    from pyarrow import types

    if types.is_dictionary(kind):
        return _is_text(kind.value_type)
    kind = getattr(kind, "storage_type", kind)  # of an extension, as of JSON
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def _is_recoded(kind: Any) -> bool:
    """Whether Arrow's reader of Parquet makes such a dictionary of another, and then checks its texts."""
    from pyarrow import int32, types

    return bool(types.is_dictionary(kind) and _is_text(kind) and kind.index_type != int32())


def _are_utf8(column: Any) -> bool:
    from pyarrow import ArrowInvalid

    try:
        column.validate(full=True)
    except ArrowInvalid:
        return False
    return True


def _as_utf8(column: Any) -> Any:
    """The same column, with U+FFFD where a text is no UTF-8."""
    import pyarrow as pa

    return pa.chunked_array([_repaired(chunk) for chunk in column.chunks], column.type)


def _repaired(texts: Any) -> Any:
    import pyarrow as pa

    if isinstance(texts, pa.DictionaryArray):
        return pa.DictionaryArray.from_arrays(texts.indices, _repaired(texts.dictionary))
    if isinstance(texts, pa.ExtensionArray):
        return pa.ExtensionArray.from_storage(texts.type, _repaired(texts.storage))
    held = (each.as_buffer() for each in texts)  # not every version casts every type of texts to bytes
    return pa.array([None if each is None else _decoded(each.to_pybytes()) for each in held], texts.type)


def _decoded(text: bytes) -> str:
    try:
        return text.decode()
    except UnicodeDecodeError:
        return UNREADABLE


def _without_zone(kind: Any) -> Any:
    from pyarrow import timestamp, types

    if types.is_timestamp(kind) and kind.tz is not None and kind.unit in {"s", "ms"}:
        return timestamp(kind.unit)
    return None


def _is_total(kind: Any) -> bool:
    """Whether the engine reads every value of an Arrow type."""
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
        return all(_is_total(kind.field(place).type) for place in range(kind.num_fields))
    return True


# Files for the embedded engine: which are meant, what their columns are, and the SQL that reads them.
#
# Parquet says its own types, but one value can still make the engine fail on some of them; such columns are
# no
# part of the table. Of CSV the engine's reader is asked only for files that it reads as `delimited` defines;
# others are read here, once, into a table of the engine's.

# ruff: noqa: S608 - names and paths are quoted


_PARQUET, CSV = {".parquet", ".pq"}, {".csv", ".txt"}
Identity = tuple[int, int, int, int]
"""Of a file: where it is on the disk, how large it is, and when it was written."""
_OFF = "hive_partitioning = false, union_by_name = false, filename = false"
"""What is in a path is no column, and columns are not matched behind our back."""
_SCHEMA = "name, type, type_length, num_children, converted_type, logical_type, scale, precision"


def name(text: str) -> str:
    """A name in SQL."""
    return '"' + text.replace('"', '""') + '"'


def text(text: str) -> str:
    """A text in SQL."""
    return "'" + text.replace("'", "''") + "'"


def resolve_files(path: str) -> list[str]:
    """The files that a path or a pattern means, each once, all of one kind."""
    is_pattern = glob.has_magic(path) and not Path(path).is_file()
    paths = sorted(glob.glob(path)) if is_pattern else [path]  # noqa: PTH207 - a text, as typed
    if not paths or not all(Path(each).is_file() for each in paths):
        raise InvalidInput(
            "the file is not there",
            why="there is nothing to ask about",
            fix="give the path of a file that is",
        )
    found = list(dict.fromkeys(str(Path(each).resolve()) for each in paths))
    if any(glob.has_magic(each) for each in found):
        raise InvalidInput(
            "the path of a file holds *, ? or [",
            why="the engine would take it for a pattern, and read other files or the same one twice",
            fix="rename it",
        )
    kinds = {Path(each).suffix.lower() for each in paths}
    if not (kinds <= _PARQUET or kinds <= CSV):
        raise InvalidInput(
            f"the file ends in {', '.join(sorted(kinds)) if any(kinds) else 'nothing'}",
            why="only Parquet and CSV are read as files, and files of one kind together",
            fix="give .parquet or .csv files, or a DuckDB database (.duckdb)",
        )
    return found


def identity(path: str) -> Identity:
    """Which file it is, in which state; all zero if it is not there."""
    try:
        known = os.stat(path)  # noqa: PTH116 - a text, as the engine has it
    except OSError:
        return 0, 0, 0, 0
    return known.st_dev, known.st_ino, known.st_size, known.st_mtime_ns


def check_same(known: dict[str, Identity]) -> None:
    """Refuse files that are not as they were when they were opened."""
    if any(identity(path) != before for path, before in known.items()):
        raise EngineFailed(
            "a file is not as it was when it was opened",
            why="its header, its types and its lines were looked at then",
            fix=f"open it again; {RETRY_HINT}",
        )


# Parquet


def parquet(
    connection: duckdb.DuckDBPyConnection, paths: Sequence[str], table: str
) -> tuple[str, tuple[str, ...]]:
    """The SQL that reads Parquet files of one schema, and the columns that no query may touch.

    Guarantee: no value of the other columns can make the scan fail.
    Proof: docs/proofs/bounding.md, "Files"
    """
    schemas = [
        connection.execute(f"SELECT {_SCHEMA} FROM parquet_schema({text(path)})").fetchall() for path in paths
    ]
    if any(schema[1:] != schemas[0][1:] for schema in schemas[1:]):
        raise InvalidInput(
            "the files of the pattern have unlike columns or types",
            why="the engine would cast them row by row, and one value could make a query fail",
            fix="write them with one schema, or open them as tables of their own",
        )
    columns = list(_columns(schemas[0]))
    refuse_alike([str(nodes[0][0]) for nodes in columns], table)
    unreadable = tuple(str(nodes[0][0]) for nodes in columns if not all(map(_is_total_column, nodes)))
    listed = ", ".join(map(text, paths))
    known = connection.execute(
        "SELECT parameters FROM system.main.duckdb_functions() WHERE function_name = 'read_parquet'"
    ).fetchall()
    # Newer versions can read texts that are no UTF-8; in older ones such a text fails the query.
    decoding = ", utf8_validation = 'replace'" if any("utf8_validation" in row[0] for row in known) else ""
    return f"read_parquet([{listed}], {_OFF}{decoding})", unreadable


def _columns(schema: Sequence[Any]) -> Iterator[list[Any]]:
    """The columns, each with all that is inside of it; the first line is the table itself."""
    place = 1
    while place < len(schema):
        start, open_nodes = place, 1
        while open_nodes and place < len(schema):
            open_nodes += int(schema[place][3] or 0) - 1
            place += 1
        yield list(schema[start:place])


def _is_total_column(node: Any) -> bool:
    """Whether the engine reads every value of a Parquet type.

    It fails on a time that is not within a day, and on milliseconds that it cannot make microseconds of.
    """
    converted, logical = str(node[4] or "").upper(), str(node[5] or "").upper()
    is_time = converted.startswith("TIME_") or logical.startswith("TIMETYPE")
    is_coarse = converted == "TIMESTAMP_MILLIS" or "MILLIS=MILLI" in logical
    return not is_time and not is_coarse


# CSV


@dataclass(frozen=True)
class Csv:
    """CSV files with one header."""

    paths: tuple[str, ...]
    how: CsvFormat
    names: tuple[str, ...]
    """Of all columns; empty where one has none, and so is no part of the table."""

    @classmethod
    def of(cls, paths: Sequence[str], how: CsvFormat, table: str) -> "Csv":
        """The files, by their headers alone."""
        names, *others = (read_header(Path(path), how) for path in paths)
        refuse_alike([each for each in names if each], table)
        if any(other != names for other in others):
            raise InvalidInput(
                "the files of the pattern have unlike headers",
                why="a column is found by its place, which would be another in some of them",
                fix="give all of them the same header, or open them as tables of their own",
            )
        return cls(tuple(paths), how, names)

    @property
    def empty(self) -> str:
        """A query with the same columns and no rows."""
        return f"SELECT {self._listed('NULL::VARCHAR')} WHERE false"

    def read(self, connection: duckdb.DuckDBPyConnection, held: str) -> str:
        """A query that gives all rows; those that the engine would misread are put into the table `held`."""
        width = len(self.names)
        ordinary: dict[PlainCsv, list[str]] = {}
        others = []
        for path in self.paths:
            kind = check_plain(Path(path), self.how, width)
            ordinary.setdefault(kind, []).append(path) if kind else others.append(path)
        parts = [
            f"SELECT {self._listed()} FROM {_read_csv(paths, width, kind)}"
            for kind, paths in ordinary.items()
        ]
        if others:
            self._hold(connection, held, others)
            parts.append(f"SELECT {self._listed()} FROM temp.{name(held)}")
        return " UNION ALL ".join(parts)

    def _hold(self, connection: duckdb.DuckDBPyConnection, held: str, paths: Sequence[str]) -> None:
        """Rows as `delimited` reads them, into a table that goes to disk where it is too large."""
        width = len(self.names)
        columns = ", ".join(f"c{place} VARCHAR" for place in range(width))
        connection.execute(f"CREATE OR REPLACE TEMP TABLE {name(held)} ({columns})")
        batch = f"{held}_batch"
        for path in paths:
            for found in read_batches(Path(path), self.how, width):
                connection.register(batch, {f"c{place}": column for place, column in enumerate(found)})
                try:
                    connection.execute(f"INSERT INTO temp.{name(held)} SELECT * FROM {name(batch)}")
                finally:
                    connection.unregister(batch)

    def _listed(self, value: str | None = None) -> str:
        return ", ".join(
            f"{value or f'c{place}'} AS {name(each)}" for place, each in enumerate(self.names) if each
        )


def _read_csv(paths: Sequence[str], width: int, kind: PlainCsv) -> str:
    columns = ", ".join(f"'c{place}': 'VARCHAR'" for place in range(width))
    quote = text('"' if kind.is_quoted else "")
    # Lines are told apart in parallel only where every line feed ends one.
    return (
        f"read_csv([{', '.join(map(text, paths))}], columns = {{{columns}}}, delim = ',', quote = {quote}, "
        f"escape = {quote}, new_line = '{kind.newline}', header = true, nullstr = '', auto_detect = false, "
        f"strict_mode = false, compression = 'none', parallel = {str(not kind.is_quoted).lower()}, {_OFF})"
    )
