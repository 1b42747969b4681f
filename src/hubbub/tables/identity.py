"""By what rows are known, under whatever name they are opened: files, tables of a database, patterns."""

import glob
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["Identity", "files_of", "members", "of_database", "of_files"]

Name = tuple[str, ...]


@dataclass(frozen=True)
class Identity:
    """What tells rows from others. Rows in memory, views and Spark's have none: it is empty.

    A name (a path, a table) means the same rows whenever it is met, also in a later version of them. A number
    (a file's on its disk) does so as long as the file is there: later another file may be given it.
    """

    names: frozenset[Name] = frozenset()
    numbers: frozenset[Name] = frozenset()
    linked: frozenset[Name] = frozenset()
    """The numbers of files that have several names just now: hard links."""

    def meets(self, other: "Identity") -> bool:
        """Whether some rows are of both, now."""
        return bool(self.names & other.names or self.numbers & other.numbers)


def members(path: str | Path) -> list[str]:
    """The files that a path or a pattern means, in order."""
    text = str(path)
    return sorted(glob.glob(text)) if glob.has_magic(text) else [text]  # noqa: PTH207 - a text, as written


def of_files(paths: Iterable[str | Path]) -> Identity:
    """Files: by their real paths, and by their numbers on the disk."""
    return _known((("file", os.path.realpath(path)), str(path), ()) for path in paths)


def of_database(path: str | Path, *table: str) -> Identity:
    """A table in a database's file."""
    return _known([(("duckdb", os.path.realpath(path), *table), str(path), table)])


def _known(found: Iterable[tuple[Name, str, Name]]) -> Identity:
    names, numbers, linked = set(), set(), set()
    for name, path, table in found:
        names.add(name)
        try:
            stated = Path(path).stat()
        except OSError:  # whether it can be read is for the engine to say
            continue
        number = ("number", str(stated.st_dev), str(stated.st_ino), *table)
        numbers.add(number)
        if stated.st_nlink > 1:
            linked.add(number)
    return Identity(frozenset(names), frozenset(numbers), frozenset(linked))


def files_of(rows: Any) -> list[str]:
    """The files of a path, a pattern or an Arrow dataset; none where rows are elsewhere."""
    if isinstance(rows, (str, Path)):
        return members(rows)
    if type(rows).__module__.startswith("pyarrow.") and isinstance(getattr(rows, "files", None), list):
        return [path for path in rows.files if Path(path).is_file()]
    return []
