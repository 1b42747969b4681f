"""Folders of Parquet files: columns that are written in the names of folders, `year=2024/region=North/`.

A name decides a column only if the owner declares it, and then for all files of the folder alike: otherwise
the name of one folder could replace a column, or add one. Values are texts; what they mean is the declared
type's.
"""

# ruff: noqa: S608 - names and paths are quoted

from collections.abc import Sequence
from pathlib import Path
from urllib.parse import unquote

import duckdb

from hubbub.engines.file_formats import quote_name
from hubbub.engines.schema import is_valid_text, refuse_duplicate_names
from hubbub.errors import InvalidInput

__all__ = ["FILE_COLUMN", "PartitionValues", "join_partitions", "read_partitions"]

FILE_COLUMN = "_hubbub_file"
"""The column in which DuckDB says which file a row is from."""
_HIVE_NULL = "__HIVE_DEFAULT_PARTITION__"
PartitionValues = dict[str, tuple[str | None, ...]]
"""The partitions of each file, by its real path."""


def read_partitions(root: str, paths: Sequence[str], partitions: Sequence[str]) -> PartitionValues:
    """The values in the names of the folders between `root` and each file.

    Guarantee: a file's values are a function of its own path; every file has all of them, or all are refused.
    """
    values: PartitionValues = {}
    for path in paths:
        folders = Path(path).relative_to(root).parts[:-1] if Path(root).is_dir() else ()
        names = [folder.partition("=")[0] for folder in folders if "=" in folder]
        if not partitions and not names:
            continue
        is_as_declared = [name.lower() for name in names] == [name.lower() for name in partitions]
        if not is_as_declared or len(folders) != len(names):
            listed_names = ", ".join(names) or "nothing"
            raise InvalidInput(
                f"folders of {Path(root).name} are named by {listed_names}, and "
                f"{', '.join(partitions) or 'nothing'} is declared",
                why="folder names become columns only if the owner declares all of them, in order",
                fix=f"declare them in order, as {{partitions={','.join(names) or 'year,region'}}}",
                parameter="partitions",
            )
        real = str(Path(path).resolve())
        if real in values:
            raise InvalidInput(
                f"{Path(root).name} has one file in two folders",
                why="its rows would be counted twice",
                fix="remove the link",
            )
        values[real] = tuple(_decode(folder.partition("=")[2]) for folder in folders)
    return values


def _decode(value: str) -> str | None:
    text = unquote(value, errors="replace")
    return text if value != _HIVE_NULL and text and is_valid_text(text) else None


def join_partitions(
    connection: duckdb.DuckDBPyConnection,
    scan: str,
    values: PartitionValues,
    partitions: Sequence[str],
    table: str,
) -> str:
    """A query of the files' own columns and those of their folders.

    Args:
        connection: where the folders' values are kept, in a temporary table.
        scan: reads the files, with `FILE_COLUMN`.
        values: of every file of the scan.
        partitions: names of the columns.
        table: name of the temporary table.
    """
    own = [row[0] for row in connection.execute(f"DESCRIBE SELECT * FROM {scan}").fetchall()]
    refuse_duplicate_names([*own, *partitions], "the folder, with the names of its folders,")
    columns = ", ".join(f"v{index} VARCHAR" for index in range(len(partitions)))
    folders_table = f"temp.{quote_name(table)}"
    connection.execute(f"CREATE TEMP TABLE {quote_name(table)} (file VARCHAR, {columns})")
    marks = ", ".join("?" for _ in range(len(partitions) + 1))
    connection.executemany(
        f"INSERT INTO {folders_table} VALUES ({marks})", [[path, *row] for path, row in values.items()]
    )
    listed = ", ".join(f"p.v{index} AS {quote_name(name)}" for index, name in enumerate(partitions))
    return (
        f"SELECT r.* EXCLUDE ({quote_name(FILE_COLUMN)}), {listed} "
        f"FROM {scan} AS r JOIN {folders_table} AS p ON r.{quote_name(FILE_COLUMN)} = p.file"
    )
