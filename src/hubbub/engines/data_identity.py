"""By what rows are known, under whatever name they are opened: files, tables of a database, patterns."""

import ctypes
import glob
import os
import sys
from collections.abc import Iterable
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
_AT_FDCWD = -100
_STATX_BTIME = 0x800
_BTIME_AT = 80
"""Where the moment of making is in what the kernel tells: 8 bytes of seconds, 4 of nanoseconds."""


@dataclass(frozen=True)
class DataIdentity:
    """What tells rows from others. Rows in memory, views and Spark's have none: it is empty.

    A name (a path, a table) means the same rows whenever it is met, also in a later version of them. A number
    (a file's on its disk, and when it was made) does so as long as the file is there; where the system does
    not tell when that was, another file may be given the number of one that is gone.
    """

    names: frozenset[Name] = frozenset()
    numbers: frozenset[Name] = frozenset()
    certain: frozenset[Name] = frozenset()
    """The numbers that no other file can have had: with a moment, or of a file that has several names now."""

    def meets(self, other: "DataIdentity") -> bool:
        """Whether some rows are of both, now."""
        return bool(self.names & other.names or self.numbers & other.numbers)


def expand_pattern(path: str | Path) -> list[str]:
    """The files that a path or a pattern means, in order."""
    text = str(path)
    return sorted(glob.glob(text)) if glob.has_magic(text) else [text]  # noqa: PTH207 - a text, as written


def identify_files(paths: Iterable[str | Path]) -> DataIdentity:
    """Files: by their real paths, and by their numbers on the disk."""
    return _known((("file", os.path.realpath(path)), str(path), ()) for path in paths)


def identify_database_table(path: str | Path, *table: str) -> DataIdentity:
    """A table in a database's file."""
    return _known([(("duckdb", os.path.realpath(path), *table), str(path), table)])


def _known(found: Iterable[tuple[Name, str, Name]]) -> DataIdentity:
    names, numbers, certain = set(), set(), set()
    for name, path, table in found:
        names.add(name)
        try:
            stated = Path(path).stat()
        except OSError:  # whether it can be read is for the engine to say
            continue
        made = read_birth_time(path, stated)
        # The device's own number may change when the machine starts anew.
        number = ("number", str(stated.st_ino), made or f"on {stated.st_dev}", *table)
        numbers.add(number)
        if made is not None or stated.st_nlink > 1:
            certain.add(number)
    return DataIdentity(frozenset(names), frozenset(numbers), frozenset(certain))


def read_birth_time(path: str | Path, stated: os.stat_result) -> str | None:
    """When a file was made, if the system tells: a number of a file that was removed is given to the next."""
    told = getattr(stated, "st_birthtime", None)
    if told is not None:
        return str(told)
    with suppress(AttributeError, OSError, TypeError):  # not on Linux, or an old library
        answer = ctypes.create_string_buffer(256)
        if ctypes.CDLL(None).statx(_AT_FDCWD, os.fsencode(path), 0, _STATX_BTIME, answer) == 0:
            mask = int.from_bytes(answer.raw[:4], sys.byteorder)
            if mask & _STATX_BTIME:
                return answer.raw[_BTIME_AT : _BTIME_AT + 12].hex()
    return None


def list_files(rows: Any) -> list[str]:
    """The files of a path, a pattern or an Arrow dataset; none where rows are elsewhere."""
    if isinstance(rows, (str, Path)):
        return expand_pattern(rows)
    if not type(rows).__module__.startswith("pyarrow."):
        return []
    base = getattr(getattr(rows, "filesystem", None), "base_path", "")
    own = [os.path.join(base, path) for path in getattr(rows, "files", ())]  # noqa: PTH118 - texts
    parts = [path for part in getattr(rows, "children", ()) for path in list_files(part)]
    return [path for path in own if Path(path).is_file()] + parts
