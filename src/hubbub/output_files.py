"""Files that we write: never over rows, a ledger, a declaration or a key; and whole, or not at all."""

import os
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from hubbub.errors import InvalidInput, Refused

__all__ = ["CONFIG_NAME", "check_output_path", "protect_paths", "write_declaration", "write_output"]

CONFIG_NAME = "hubbub.toml"
"""The name of a declaration's file."""
_GUARDED: set[str] = set()
"""What this process has opened as rows, ledgers, declarations and keys, by their real paths."""
_DATABASES = ((0, b"SQLite format 3\0"), (8, b"DUCK"))
"""Where a database's file says that it is one: rows may be in it, or what was spent."""


def protect_paths(*paths: str | Path) -> None:
    """From now on no output of this process is this file, or leads to it."""
    _GUARDED.update(os.path.realpath(path) for path in paths)


def check_output_path(path: str | Path, endings: Sequence[str] = ()) -> Path:
    """Where it will be written; refuses, before anything is charged, what cannot be or must not be.

    Guarantee: what is given is no file that holds rows, what was spent, what was declared or a key, as far as
        this process has opened it or it is a database; by whatever link.
    """
    original = Path(path)
    ending, target = original.suffix.lower(), Path(os.path.realpath(original))
    if target.is_dir():
        raise _cannot_write(original, "it is a folder")
    if endings and ending not in endings:
        raise InvalidInput(
            f"the output ends in {ending or 'nothing'}",
            why="its ending names its format, and a program that opens it would not understand another",
            fix=f"use one of: {', '.join(filter(None, endings))}",
            parameter="output",
        )
    if target.exists() and not target.is_file():
        raise _cannot_write(original, "it is not a regular file")
    if not target.parent.is_dir():
        raise _cannot_write(original, "its folder does not exist")
    if CONFIG_NAME in {original.name, target.name} or str(target) in _GUARDED or _is_kept(target):
        raise _would_be_lost(original)
    if target.exists() and not os.access(target, os.W_OK):
        raise _cannot_write(original, "the file may not be written")
    try:  # to know is to try: a disk may be full, or only to read
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=".hubbub-"):
            pass
    except OSError as problem:
        raise _cannot_write(original, problem.strerror) from None
    return target


def write_output(
    path: str | Path, content: str | Callable[[Path], object], endings: Sequence[str] = ()
) -> None:
    """Write a text, or what `content` writes to the path it is given; until all is there, nothing is.

    It is made in a folder beside it that only this user can look into, and then renamed.
    """
    _write(check_output_path(path, endings), content)


def write_declaration(path: Path, text: str) -> None:
    """Write a hubbub.toml, over one that was there; where that was a link, what it led to stays."""
    _write(path, text)


def _write(target: Path, content: str | Callable[[Path], object]) -> None:
    try:
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=".hubbub-") as folder:
            part = Path(folder) / f"part{target.suffix}"
            if isinstance(content, str):
                part.write_text(content, encoding="utf-8", newline="")
            else:
                content(part)
            part.replace(target)
    except OSError as problem:
        raise _cannot_write(target, problem.strerror) from None


def _is_kept(target: Path) -> bool:
    """True if it is a file that is guarded, by another name, or a database."""
    with suppress(OSError):
        mine = target.stat()
        if any(_same(mine, path) for path in _GUARDED):
            return True
        with target.open("rb") as file:
            start = file.read(24)
        return any(start[place:].startswith(mark) for place, mark in _DATABASES)
    return False


def _same(mine: os.stat_result, path: str) -> bool:
    with suppress(OSError):
        return os.path.samestat(mine, os.stat(path))  # noqa: PTH116 - beside samestat
    return False


def _would_be_lost(target: Path) -> Refused:
    return Refused(
        f"the output {target} is, or leads to, a file of rows, a ledger, a declaration or a key",
        why="it would be lost",
        fix="give the output another name",
        parameter="output",
    )


def _cannot_write(path: Path, why: str | None) -> InvalidInput:
    return InvalidInput(
        f"the output {path} cannot be written",
        why=(why or "the system refused").lower(),
        fix="pass a file in a folder that may be written to",
        parameter="output",
    )
