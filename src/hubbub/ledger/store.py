"""Where a ledger is kept: a file of SQLite's, whose every commit is on the disk before it is said to be.

A store gives one thing: a transaction that nobody else is in, which happens as a whole or not at all.
"""

import os
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol

from hubbub.errors import InvalidInput, LedgerFailed

__all__ = ["Rows", "SQLite", "Store"]

_WAIT = 60.0
"""Seconds that a writer waits for its turn before it is told so."""
_TABLES = """
CREATE TABLE IF NOT EXISTS entries (
    number INTEGER PRIMARY KEY, account TEXT NOT NULL, kind TEXT NOT NULL, who TEXT NOT NULL,
    moment TEXT NOT NULL, body TEXT NOT NULL, previous TEXT NOT NULL, digest TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS totals (
    account TEXT NOT NULL, who TEXT NOT NULL, state TEXT NOT NULL, PRIMARY KEY (account, who));
CREATE TABLE IF NOT EXISTS charges (
    account TEXT NOT NULL, charge_key TEXT NOT NULL, number INTEGER NOT NULL,
    PRIMARY KEY (account, charge_key));
CREATE TABLE IF NOT EXISTS releases (
    number INTEGER PRIMARY KEY, account TEXT NOT NULL, fingerprint TEXT NOT NULL, body TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS releases_by_fingerprint ON releases (account, fingerprint);
"""


class Rows(Protocol):
    """What can be done within a transaction."""

    def run(self, text: str, given: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Run one statement, with ? for each value, and give all its rows."""


class Store(Protocol):
    """Where entries are kept."""

    def writing(self) -> AbstractContextManager[Rows]:
        """A transaction that is alone; durable when it ends, undone where it raises."""

    def reading(self) -> AbstractContextManager[Rows]:
        """A view of one moment."""

    def close(self) -> None:
        """Let go."""


class SQLite:
    """A ledger in a file, which only its owner can read: made with mode 0600.

    Guarantee: when `writing` ends without an error, what was written has been synced to the disk.
    Assumes: the disk keeps what it said was synced, and the file is on this machine.
    Proof: docs/proofs/ledger.md, "Durable"
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._own = threading.local()
        self._all: list[sqlite3.Connection] = []
        self._process = os.getpid()
        if not self.path.parent.is_dir():
            raise InvalidInput(
                "the ledger's folder is not there",
                why="a ledger is a file in it",
                fix="make the folder first",
            )
        with suppress(FileExistsError):
            os.close(os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        with self.writing() as rows:
            for statement in _TABLES.split(";"):
                if statement.strip():
                    rows.run(statement)

    @contextmanager
    def writing(self) -> Iterator[Rows]:
        """A transaction that is alone."""
        with self._transaction("BEGIN IMMEDIATE") as rows:
            yield rows

    @contextmanager
    def reading(self) -> Iterator[Rows]:
        """A view of one moment."""
        with self._transaction("BEGIN") as rows:
            yield rows

    def close(self) -> None:
        """Close all connections of this process."""
        for connection in self._all:
            connection.close()
        self._all.clear()
        self._own = threading.local()

    @contextmanager
    def _transaction(self, begin: str) -> Iterator[Rows]:
        try:
            connection = self._connection()
            connection.execute(begin)
            try:
                yield _Rows(connection)
                connection.execute("COMMIT")
            except BaseException:
                with suppress(sqlite3.Error):
                    connection.execute("ROLLBACK")
                raise
        except sqlite3.Error as problem:
            raise _failed(problem) from None

    def _connection(self) -> sqlite3.Connection:
        """One a thread, and new ones after a fork: SQLite's are not to be carried over either."""
        if os.getpid() != self._process:
            self._own, self._all, self._process = threading.local(), [], os.getpid()
        known: sqlite3.Connection | None = getattr(self._own, "connection", None)
        if known is None:
            known = sqlite3.connect(self.path, timeout=_WAIT, isolation_level=None, check_same_thread=False)
            known.execute("PRAGMA journal_mode = WAL")
            known.execute("PRAGMA synchronous = FULL")
            known.execute("PRAGMA trusted_schema = OFF")
            self._own.connection = known
            self._all.append(known)
        return known


class _Rows:
    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def run(self, text: str, given: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Run one statement."""
        return self._connection.execute(text, tuple(given)).fetchall()


def _failed(problem: sqlite3.Error) -> LedgerFailed:
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
