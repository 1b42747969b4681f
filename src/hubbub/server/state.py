"""The server's own file: users, tokens, sessions, saved questions, publications, and the audit log.

It holds no rows, and no secret as such: passwords as scrypt hashes and SCRAM verifiers, tokens and sessions
as digests. What is charged and released is in the ledger, and nowhere else. Several processes on one machine
may share the file.
"""

import json
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from hubbub.errors import HubbubError, InvalidInput, LedgerFailed
from hubbub.ledger.entries import digest
from hubbub.noise.entropy import random_bytes
from hubbub.output_files import protect_paths
from hubbub.server.service_types import AuditRecord

__all__ = ["State", "moment", "now"]

_T = TypeVar("_T")
_FORMAT = 1
_APPLICATION = 0x68756273
_START = "0" * 64
_BUSY_SECONDS = 30.0
_TABLES = """
CREATE TABLE users (name TEXT PRIMARY KEY, password TEXT, verifier TEXT, subject TEXT UNIQUE,
    is_active INTEGER NOT NULL, created REAL NOT NULL) STRICT;
CREATE TABLE roles (user TEXT NOT NULL, dataset TEXT NOT NULL, role TEXT NOT NULL,
    PRIMARY KEY (user, dataset)) STRICT;
CREATE TABLE tokens (id TEXT PRIMARY KEY, user TEXT NOT NULL, digest TEXT NOT NULL, verifier TEXT NOT NULL,
    name TEXT NOT NULL, datasets TEXT, role TEXT NOT NULL, epsilon TEXT, spent TEXT NOT NULL,
    expires REAL NOT NULL, is_active INTEGER NOT NULL, created REAL NOT NULL) STRICT;
CREATE TABLE sessions (digest TEXT PRIMARY KEY, user TEXT NOT NULL, csrf TEXT NOT NULL,
    used REAL NOT NULL, expires REAL NOT NULL) STRICT;
CREATE TABLE failures (key TEXT PRIMARY KEY, count INTEGER NOT NULL, until REAL NOT NULL) STRICT;
CREATE TABLE questions (id TEXT PRIMARY KEY, user TEXT NOT NULL, dataset TEXT NOT NULL, name TEXT NOT NULL,
    body TEXT NOT NULL, is_shared INTEGER NOT NULL, updated REAL NOT NULL,
    UNIQUE (user, dataset, name)) STRICT;
CREATE TABLE asked (dataset TEXT NOT NULL, entry INTEGER NOT NULL, body TEXT NOT NULL,
    PRIMARY KEY (dataset, entry)) STRICT;
CREATE TABLE requests (user TEXT NOT NULL, key TEXT NOT NULL, digest TEXT NOT NULL, created REAL NOT NULL,
    PRIMARY KEY (user, key)) STRICT;
CREATE TABLE publications (dataset TEXT NOT NULL, entry INTEGER NOT NULL, title TEXT NOT NULL,
    published REAL NOT NULL, PRIMARY KEY (dataset, entry)) STRICT;
CREATE TABLE pauses (dataset TEXT NOT NULL, user TEXT NOT NULL, PRIMARY KEY (dataset, user)) STRICT;
CREATE TABLE raises (id TEXT PRIMARY KEY, dataset TEXT NOT NULL, analyst TEXT NOT NULL, epsilon TEXT NOT NULL,
    delta TEXT NOT NULL, requester TEXT NOT NULL, created REAL NOT NULL) STRICT;
CREATE TABLE audit (number INTEGER PRIMARY KEY, timestamp TEXT NOT NULL, user TEXT NOT NULL,
    action TEXT NOT NULL, dataset TEXT NOT NULL, detail TEXT NOT NULL, previous TEXT NOT NULL,
    digest TEXT NOT NULL) STRICT;
CREATE TABLE settings (name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT;
"""


def now() -> float:
    """Return the time in seconds since 1970."""
    return time.time()


def moment(seconds: float | None = None) -> str:
    """Return a moment as text, in UTC."""
    return datetime.fromtimestamp(now() if seconds is None else seconds, UTC).isoformat(timespec="seconds")


class State:
    """The open file. Every write is one transaction, and is on the disk when it returns.

    Args:
        path: where it is, or will be; it is created for its owner alone.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._lock = threading.RLock()
        protect_paths(self.path)
        try:
            if not self.path.exists():
                os.close(os.open(self.path, os.O_CREAT | os.O_WRONLY, 0o600))
            self._connection = sqlite3.connect(
                self.path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False
            )
            self._connection.execute("PRAGMA journal_mode = WAL")
            self._connection.execute("PRAGMA synchronous = FULL")
            self.write(self._create)
        except (OSError, sqlite3.Error):
            raise InvalidInput(
                f"the server's file {self.path.name} cannot be opened",
                why="users, tokens and the audit log are kept in it",
                fix="name a file in a folder that the server can write, as state in [server]",
            ) from None

    @staticmethod
    def _create(connection: sqlite3.Connection) -> None:
        [version] = connection.execute("PRAGMA user_version").fetchone()
        if version == 0:
            for statement in _TABLES.split(";"):
                connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {_FORMAT}")
            connection.execute(f"PRAGMA application_id = {_APPLICATION}")
            connection.execute("INSERT INTO settings VALUES ('secret', ?)", [random_bytes(32).hex()])
        elif version != _FORMAT:
            raise InvalidInput(
                "the server's file was written by another version of hubbub",
                why="its tables may mean something else",
                fix="use the version that wrote it, or name a new file as state in [server]",
            )

    def write(self, work: Callable[[sqlite3.Connection], _T]) -> _T:
        """Do something in one transaction; nothing of it stands if it raises."""
        return self._transact("BEGIN IMMEDIATE", work)

    def read(self, work: Callable[[sqlite3.Connection], _T]) -> _T:
        """Read one consistent state."""
        return self._transact("BEGIN", work)

    def _transact(self, begin: str, work: Callable[[sqlite3.Connection], _T]) -> _T:
        with self._lock, _failures():
            self._connection.execute(begin)
            try:
                value = work(self._connection)
                self._connection.execute("COMMIT")
            except BaseException:
                with suppress(sqlite3.Error):
                    self._connection.execute("ROLLBACK")
                raise
            return value

    @property
    def secret(self) -> bytes:
        """A secret of this file, from which unknown users get a salt of their own."""
        [text] = self.read(
            lambda connection: connection.execute(
                "SELECT value FROM settings WHERE name = 'secret'"
            ).fetchone()
        )
        return bytes.fromhex(text)

    # The audit log

    def audit(self, by: str, action: str, dataset: str = "", **detail: Any) -> None:
        """Append to the audit log in a transaction of its own."""
        self.write(lambda connection: append_audit(connection, by, action, dataset, **detail))

    def audit_records(self, after: int = 0, limit: int = 1000) -> list[AuditRecord]:
        """Return records of the audit log in order, after a number."""
        return self._read_audit("WHERE number > ? ORDER BY number LIMIT ?", [after, limit])

    def latest_audit_records(self, dataset: str, limit: int) -> list[AuditRecord]:
        """Return what the audit log says of a dataset and of all, the latest first."""
        return self._read_audit("WHERE dataset IN ('', ?) ORDER BY number DESC LIMIT ?", [dataset, limit])

    def _read_audit(self, choice: str, values: list[Any]) -> list[AuditRecord]:
        columns = "number, timestamp, user, action, dataset, detail, digest"
        rows = self.read(
            lambda connection: connection.execute(
                f"SELECT {columns} FROM audit {choice}",  # noqa: S608 - our own text
                values,
            ).fetchall()
        )
        return [
            AuditRecord(number, when, user, action, dataset, json.loads(detail), chained)
            for number, when, user, action, dataset, detail, chained in rows
        ]

    def verify_audit(self, head: str | None = None) -> list[str]:
        """Return what is wrong with the audit log: nothing, if no record was changed, dropped or reordered.

        Args:
            head: a digest that was kept elsewhere; with it a log that was cut off is found, too.
        """
        rows = self.read(
            lambda connection: connection.execute("SELECT * FROM audit ORDER BY number").fetchall()
        )
        problems, previous, has_head = [], _START, head is None
        for place, row in enumerate(rows, start=1):
            if row[0] != place or row[6] != previous or digest(list(row[:7])) != row[7]:
                problems.append(f"record {place} of the audit log is not as it was written")
                break
            previous = row[7]
            has_head = has_head or previous == head
        if not problems and not has_head:
            problems.append("the audit log does not contain the digest that was kept")
        return problems

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._connection.close()


def append_audit(
    connection: sqlite3.Connection, by: str, action: str, dataset: str = "", **detail: Any
) -> None:
    """Append to the audit log within a transaction.

    Guarantee: each record contains the digest of the one before. Secrets are no part of a detail.
    """
    last = connection.execute("SELECT number, digest FROM audit ORDER BY number DESC LIMIT 1").fetchone()
    number, previous = (1, _START) if last is None else (last[0] + 1, last[1])
    text = json.dumps(detail, ensure_ascii=True, sort_keys=True, default=str)
    row = [number, moment(), by, action, dataset, text, previous]
    connection.execute("INSERT INTO audit VALUES (?, ?, ?, ?, ?, ?, ?, ?)", [*row, digest(row)])


@contextmanager
def _failures() -> Iterator[None]:
    try:
        yield
    except HubbubError:
        raise
    except sqlite3.Error:
        raise LedgerFailed(
            "the server's file could not be read or written",
            why="without it nobody can be identified, so nothing was done",
            fix="check that its disk is there and has space, then try again",
        ) from None
