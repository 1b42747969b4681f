"""Data identity: what identifies rows under any name they are opened by (files, tables, patterns)."""

import ctypes
import glob
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = [
    "DataIdentity",
    "expand_pattern",
    "identify_database_table",
    "identify_files",
    "list_files",
    "read_birth_time",
]

Name = tuple[str, ...]
_FOLDER_ENDINGS = (".parquet", ".pq")
# From Linux's statx(2), which Python does not wrap.
_AT_FDCWD = -100
_STATX_BTIME = 0x800
_BTIME_OFFSET, _BTIME_BYTES = 80, 12
"""The birth time in the kernel's answer: 8 bytes of seconds, 4 of nanoseconds."""


@dataclass(frozen=True)
class DataIdentity:
    """What distinguishes rows from others. It is empty for rows in memory, views and tables of Spark.

    A name (a path, a table) means the same rows whenever it is met, including later versions of them. A file
    number (the inode and the birth time) does so as long as the file exists; where the system does not report
    birth times, a new file may get the number of a deleted one.
    """

    names: frozenset[Name] = frozenset()
    numbers: frozenset[Name] = frozenset()
    unique_numbers: frozenset[Name] = frozenset()
    """File numbers that no other file can have had: with a birth time, or of a file with several names."""

    def overlaps(self, other: "DataIdentity") -> bool:
        """True if some rows belong to both, now."""
        return bool(self.names & other.names or self.numbers & other.numbers)


def expand_pattern(path: str | Path) -> list[str]:
    """The files that a path, a pattern or a folder matches, sorted; of a folder, its Parquet files."""
    text = str(path)
    if os.path.isdir(text):  # noqa: PTH112 - False where it may not be known
        return sorted(_walk_folder(text)) or [text]
    is_pattern = glob.has_magic(text) and not os.path.isfile(text)  # noqa: PTH113 - as above
    return sorted(glob.glob(text)) if is_pattern else [text]  # noqa: PTH207 - a text, as written


def _walk_folder(folder: str) -> Iterator[str]:
    """Yield the Parquet files below a folder; names that begin with a dot or a line are no data."""
    for where, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith((".", "_"))]
        for name in files:
            if name.lower().endswith(_FOLDER_ENDINGS) and not name.startswith((".", "_")):
                yield os.path.join(where, name)  # noqa: PTH118 - texts


def list_files(rows: Any) -> list[str]:
    """The files of a path, a pattern or an Arrow dataset; none for rows that live elsewhere."""
    if isinstance(rows, (str, Path)):
        return expand_pattern(rows)
    if not type(rows).__module__.startswith("pyarrow."):
        return []
    base = getattr(getattr(rows, "filesystem", None), "base_path", "")
    own = [os.path.join(base, path) for path in getattr(rows, "files", ())]  # noqa: PTH118 - texts
    parts = [path for part in getattr(rows, "children", ()) for path in list_files(part)]
    return [path for path in own if Path(path).is_file()] + parts


def identify_files(paths: Iterable[str | Path]) -> DataIdentity:
    """Identify files by their real paths and their file numbers."""
    return _identify((("file", os.path.realpath(path)), str(path), ()) for path in paths)


def identify_database_table(path: str | Path, *table: str) -> DataIdentity:
    """Identify a table in a DuckDB database file."""
    return _identify([(("duckdb", os.path.realpath(path), *table), str(path), table)])


def _identify(files: Iterable[tuple[Name, str, Name]]) -> DataIdentity:
    names, numbers, unique = set(), set(), set()
    for name, path, table in files:
        names.add(name)
        try:
            status = Path(path).stat()
        except OSError:  # the engine reports files that it cannot read
            continue
        born = read_birth_time(path, status)
        # The device number is a fallback: it may change when the machine restarts.
        number = ("number", str(status.st_ino), born or f"on {status.st_dev}", *table)
        numbers.add(number)
        if born is not None or status.st_nlink > 1:
            unique.add(number)
    return DataIdentity(frozenset(names), frozenset(numbers), frozenset(unique))


def read_birth_time(path: str | Path, status: os.stat_result) -> str | None:
    """When a file was created, if the system reports it: inode numbers of deleted files are reused."""
    born = getattr(status, "st_birthtime", None)
    if born is not None:
        return str(born)
    with suppress(AttributeError, OSError, TypeError):  # not on Linux, or an old C library
        answer = ctypes.create_string_buffer(256)
        if ctypes.CDLL(None).statx(_AT_FDCWD, os.fsencode(path), 0, _STATX_BTIME, answer) == 0:
            mask = int.from_bytes(answer.raw[:4], sys.byteorder)
            if mask & _STATX_BTIME:
                return answer.raw[_BTIME_OFFSET : _BTIME_OFFSET + _BTIME_BYTES].hex()
    return None
