# ruff: noqa: S608 - names and paths are quoted
"""Files for the embedded engine: which are meant, what their columns are, and the SQL that reads them.

Parquet says its own types, but one value can still make the engine fail on some of them; such columns are no
part of the table. Of CSV the engine's reader is asked only for files that it reads as `delimited` defines;
others are read here, once, into a table of the engine's.
"""

import glob
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb

from hubbub.errors import EngineFailed, InvalidInput
from hubbub.tables.delimited import Plain, Reading, batches, header, plain
from hubbub.tables.engine import ANEW
from hubbub.tables.frames import refuse_alike

__all__ = ["CSV", "Csv", "Identity", "check_same", "files_of", "identity", "name", "parquet", "text"]

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


def files_of(path: str) -> list[str]:
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
            fix="give a .parquet or .csv file; open a DuckDB database with duckdb.connect and pass that",
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
            fix=f"open it again; {ANEW}",
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
    unreadable = tuple(str(nodes[0][0]) for nodes in columns if not all(map(_is_total, nodes)))
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


def _is_total(node: Any) -> bool:
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
    how: Reading
    names: tuple[str, ...]
    """Of all columns; empty where one has none, and so is no part of the table."""

    @classmethod
    def of(cls, paths: Sequence[str], how: Reading, table: str) -> "Csv":
        """The files, by their headers alone."""
        names, *others = (header(Path(path), how) for path in paths)
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
        ordinary: dict[Plain, list[str]] = {}
        others = []
        for path in self.paths:
            kind = plain(Path(path), self.how, width)
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
            for found in batches(Path(path), self.how, width):
                connection.register(batch, {f"c{place}": column for place, column in enumerate(found)})
                try:
                    connection.execute(f"INSERT INTO temp.{name(held)} SELECT * FROM {name(batch)}")
                finally:
                    connection.unregister(batch)

    def _listed(self, value: str | None = None) -> str:
        return ", ".join(
            f"{value or f'c{place}'} AS {name(each)}" for place, each in enumerate(self.names) if each
        )


def _read_csv(paths: Sequence[str], width: int, kind: Plain) -> str:
    columns = ", ".join(f"'c{place}': 'VARCHAR'" for place in range(width))
    quote = text('"' if kind.is_quoted else "")
    # Lines are told apart in parallel only where every line feed ends one.
    return (
        f"read_csv([{', '.join(map(text, paths))}], columns = {{{columns}}}, delim = ',', quote = {quote}, "
        f"escape = {quote}, new_line = '{kind.newline}', header = true, nullstr = '', auto_detect = false, "
        f"strict_mode = false, compression = 'none', parallel = {str(not kind.is_quoted).lower()}, {_OFF})"
    )
