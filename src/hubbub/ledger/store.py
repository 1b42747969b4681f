"""Where a ledger is kept: a file of SQLite's, whose every commit is on the disk before it is said to be.

A store does one thing: work that nobody else is in the midst of, which happens as a whole or not at all.
"""

import os
import sqlite3
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, Protocol, TypeVar

from hubbub.errors import InvalidInput, LedgerFailed, Refused
from hubbub.output import guard

__all__ = ["TABLES", "Rows", "SQLite", "Store"]

_T = TypeVar("_T")
_WAIT = 60.0
"""Seconds that a writer waits for its turn before it is told so."""
_MARK = 0x68756262
"""SQLite's place for whose file it is: hubb."""
_FORMAT = 1
_FAILURES = (sqlite3.Error, MemoryError, UnicodeError)
"""What a file that is damaged may end in; the last where even the error's own text is."""
_DURABLE = ("PRAGMA synchronous = FULL", "PRAGMA fullfsync = ON", "PRAGMA checkpoint_fullfsync = ON")
TABLES = """
CREATE TABLE entries (
    number INTEGER PRIMARY KEY, account TEXT NOT NULL, kind TEXT NOT NULL, who TEXT NOT NULL,
    moment TEXT NOT NULL, body TEXT NOT NULL, previous TEXT NOT NULL, digest TEXT NOT NULL);
CREATE INDEX entries_by_kind ON entries (kind, account, who);
CREATE TABLE totals (
    account TEXT NOT NULL, who TEXT NOT NULL, state TEXT NOT NULL, seal TEXT NOT NULL,
    PRIMARY KEY (account, who));
CREATE TABLE charges (
    number INTEGER PRIMARY KEY, account TEXT NOT NULL, charge_key TEXT, released INTEGER,
    UNIQUE (account, charge_key));
CREATE TABLE seen (number INTEGER NOT NULL, who TEXT NOT NULL, PRIMARY KEY (number, who));
CREATE TABLE releases (number INTEGER PRIMARY KEY, body TEXT NOT NULL);
"""


class Rows(Protocol):
    """What can be done within a transaction."""

    def run(self, text: str, given: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Run one statement, with ? for each value, and give all its rows."""

    def each(self, text: str, given: Sequence[Any] = ()) -> Iterator[tuple[Any, ...]]:
        """Run one statement, and give its rows one by one."""


class Store(Protocol):
    """Where entries are kept."""

    @property
    def where(self) -> str:
        """Its path or address."""

    def write(self, work: Callable[[Rows], _T]) -> _T:
        """Do work that is alone: durable when it returns, undone where it raises."""

    def read(self, work: Callable[[Rows], _T]) -> _T:
        """Look at one moment."""

    def check(self, rows: Rows) -> str | None:
        """What is wrong with the store itself, such as an index that does not show what is there."""

    def close(self) -> None:
        """Let go."""


class SQLite:
    """A ledger in a file, which only its owner can read: made with mode 0600.

    Guarantee: when `write` returns, what was written has been synced to the disk.
    Assumes: the disk keeps what it said was synced, and the file is on this machine's own disk.
    Proof: docs/proofs/ledger.md, "Durable"
    """

    def __init__(
        self, path: str | Path, *, connect: Callable[..., Any] = sqlite3.connect, durable: bool = True
    ) -> None:
        # The last two are the tests' private door: another file layer, and a control that loses charges.
        self.path = Path(path).absolute()
        guard(*(f"{self.path}{ending}" for ending in ("", "-wal", "-shm", "-journal")))
        self._connect = connect
        self._settings = _DURABLE if durable else ("PRAGMA synchronous = NORMAL",)
        self._idle: list[Any] = []
        self._process = os.getpid()
        if not self.path.exists():
            self._create()
        self.read(_check_format)

    @property
    def where(self) -> str:
        """The file's path."""
        return str(self.path)

    def write(self, work: Callable[[Rows], _T]) -> _T:
        """Do work that is alone."""
        return self._transaction("BEGIN IMMEDIATE", work)

    def read(self, work: Callable[[Rows], _T]) -> _T:
        """Look at one moment."""
        return self._transaction("BEGIN", work)

    def check(self, rows: Rows) -> str | None:
        """SQLite's own check of its pages and indexes."""
        found = rows.run("PRAGMA integrity_check(1)")
        return None if found == [("ok",)] else "the file is damaged: SQLite's own check fails"

    def close(self) -> None:
        """Close this process's connections."""
        while self._idle:
            with suppress(sqlite3.Error):  # all that was written is in the log already
                self._idle.pop().close()

    def _transaction(self, begin: str, work: Callable[[Rows], _T]) -> _T:
        try:
            connection = self._taken()
        except _FAILURES as problem:
            raise _failed(problem) from None
        try:
            connection.execute(begin)
            out = work(_Rows(connection))
            connection.execute("COMMIT")
        except BaseException as problem:
            # A connection that failed is not used again: the next one reads the file anew.
            with suppress(sqlite3.Error):
                connection.execute("ROLLBACK")
            with suppress(sqlite3.Error):
                connection.close()
            if isinstance(problem, _FAILURES):
                raise _failed(problem) from None
            raise
        self._idle.append(connection)
        return out

    def _taken(self) -> Any:
        """A connection that nobody uses; a forked process takes none of its parent's."""
        if os.getpid() != self._process:
            _INHERITED.extend(self._idle)
            self._idle, self._process = [], os.getpid()
        with suppress(IndexError):
            return self._idle.pop()
        self._refuse_links()
        # mode=rw: a ledger that was moved away is missed, not made anew.
        where = f"file:{_quoted(self.path)}?mode=rw"
        made = self._connect(where, uri=True, timeout=_WAIT, isolation_level=None, check_same_thread=False)
        try:
            for setting in (*self._settings, "PRAGMA trusted_schema = OFF", "PRAGMA cell_size_check = ON"):
                made.execute(setting)
        except BaseException:
            made.close()
            raise
        return made

    def _refuse_links(self) -> None:
        """Refuse a file with two names: SQLite keeps its log by the name, so charges would be lost."""
        with suppress(FileNotFoundError):
            if self.path.stat().st_nlink > 1:
                for other in self.path.parent.iterdir():  # what `_create` has not removed yet, or could not
                    if other.name.startswith(f".{self.path.name}.") and other.samefile(self.path):
                        other.unlink(missing_ok=True)
            if self.path.stat().st_nlink > 1:
                raise Refused(
                    "the ledger's file has a second name",
                    why="who charges under one name does not see what is charged under the other",
                    fix="remove the other hard link; use a symbolic one",
                )

    def _create(self) -> None:
        """Made whole beside its place, then put there: nobody ever sees half of one."""
        folder = self.path.parent
        if not folder.is_dir():
            raise InvalidInput(
                "the ledger's folder is not there",
                why="a ledger is a file in it",
                fix="make the folder first",
            )
        try:
            opened, name = tempfile.mkstemp(prefix=f".{self.path.name}.", dir=folder)  # mode 0600
            os.close(opened)
        except OSError as problem:
            raise _failed(problem) from None
        made = Path(name)
        try:
            with closing(sqlite3.connect(made, isolation_level=None)) as connection:
                connection.executescript(
                    f"PRAGMA application_id = {_MARK}; PRAGMA user_version = {_FORMAT};{TABLES}"
                    "PRAGMA journal_mode = WAL;"
                )
            _synced(made)
            with suppress(FileExistsError):  # somebody else's was first
                os.link(made, self.path)
            _synced(folder)
        except (OSError, sqlite3.Error) as problem:
            raise _failed(problem) from None
        finally:
            for ending in ("", "-wal", "-shm", "-journal"):
                made.with_name(made.name + ending).unlink(missing_ok=True)


_INHERITED: list[Any] = []
"""Connections of a parent process: SQLite's may be neither used nor closed after a fork."""


class _Rows:
    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def run(self, text: str, given: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Run one statement."""
        return list(self.each(text, given))

    def each(self, text: str, given: Sequence[Any] = ()) -> Iterator[tuple[Any, ...]]:
        """Run one statement, row by row."""
        rows: Iterator[tuple[Any, ...]] = self._connection.execute(text, tuple(given))
        return rows


def _check_format(rows: Rows) -> None:
    mark, version = (rows.run(f"PRAGMA {name}")[0][0] for name in ("application_id", "user_version"))
    if mark != _MARK or version != _FORMAT:
        later = mark == _MARK and version > _FORMAT
        raise InvalidInput(
            "the file is a ledger of a later version" if later else "the file is not a ledger",
            why="what is stored keeps its meaning only where it is read as it was written",
            fix="use a newer hubbub" if later else "give the path of a ledger, or of no file to make one",
        )


def _synced(path: Path) -> None:
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def _quoted(path: Path) -> str:
    from urllib.parse import quote

    return quote(str(path))


def _failed(problem: BaseException) -> LedgerFailed:
    if "locked" in str(problem) or "busy" in str(problem):
        return LedgerFailed(
            "the ledger is in use by others for too long",
            why="charges are made one after the other, so that none is lost",
            fix="try again",
        )
    return LedgerFailed(
        f"the ledger's file cannot be used ({type(problem).__name__})",
        why="nothing runs unless its charge is on the disk",
        fix="see that the disk has room, the file may be written, and `hubbub ledger verify` finds it whole",
    )
