"""A ledger that a team shares, in PostgreSQL: the same lines, and roles that the database keeps.

Who charges takes a turn: the lock on one row, which only those who may charge can take. Analysts and readers
are roles of the database that can look at what is theirs, and write nothing.

Proof: docs/proofs/ledger.md, "Never overspent"
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from hubbub.errors import InvalidInput, LedgerFailed
from hubbub.ledger.account import check_name
from hubbub.ledger.store import TABLES, Rows

__all__ = ["Postgres", "is_address"]

_T = TypeVar("_T")
_FORMAT = 1
_WAIT = "60s"
_TRIES = 20
_BEGIN_WRITING = (
    "BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL lock_timeout = '{wait}'; "
    "SET LOCAL synchronous_commit = on; SET LOCAL search_path = hubbub; SELECT version FROM turn FOR UPDATE"
)
_BEGIN_READING = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SET LOCAL search_path = hubbub"
_SPENDER = """
GRANT SELECT, UPDATE ON turn TO {name};
GRANT SELECT, INSERT ON entries, seen, releases, charges TO {name};
GRANT UPDATE (released) ON charges TO {name};
GRANT SELECT, INSERT, UPDATE ON totals TO {name};
"""
_LOOKER = "GRANT SELECT ON turn, entries, totals, charges, seen, releases TO {name};"
_MINE = {
    "entries": "who = CURRENT_USER OR kind IN ('open', 'version', 'close')",
    "totals": "who IN (CURRENT_USER, '')",
    "seen": "who = CURRENT_USER",
    "charges": "number IN (SELECT number FROM entries WHERE who = CURRENT_USER AND kind = 'charge') "
    "OR number IN (SELECT number FROM seen WHERE who = CURRENT_USER)",
    "releases": "number IN (SELECT number FROM entries WHERE who = CURRENT_USER AND kind = 'charge') "
    "OR number IN (SELECT number FROM seen WHERE who = CURRENT_USER)",
}


def is_address(where: object) -> bool:
    """Whether it names a database and not a file."""
    return isinstance(where, str) and where.startswith(("postgresql://", "postgres://"))


class Postgres:
    """A ledger in the schema `hubbub` of a database.

    Guarantee: when `write` returns, what was written is committed, and the server has said it is on its disk.
    Assumes: the server syncs what it commits (fsync = on).
    Proof: docs/proofs/ledger.md, "Durable"
    """

    def __init__(self, address: str, *, wait: str = _WAIT) -> None:
        self._address = address
        self._wait = wait
        self._idle: list[Any] = []
        self._process = os.getpid()
        self._once(self._create)

    def write(self, work: Callable[[Rows], _T]) -> _T:
        """Do work that is alone; again where the database undid it for another's sake."""
        return self._transaction(_BEGIN_WRITING.format(wait=self._wait), work)

    def read(self, work: Callable[[Rows], _T]) -> _T:
        """Look at one moment."""
        return self._transaction(_BEGIN_READING, work)

    def check(self, rows: Rows) -> str | None:
        """The database checks its own pages: nothing to add."""
        del rows
        return None

    def admit(self, name: str, role: str) -> None:
        """Let a role of the database in: as a spender (who holds the rows), an analyst or a reader.

        A spender can add lines and can change none; an analyst sees the lines of her own name; a reader sees
        all. Neither of these can write.
        """
        check_name(name, "the role")
        from psycopg import sql

        named = sql.Identifier(name).as_string()
        if role not in {"spender", "analyst", "reader"}:
            raise InvalidInput(
                "there is no such role", why="it must be known what it may do", fix="see admit()"
            )
        text = (_SPENDER if role == "spender" else _LOOKER).format(name=named)
        for table, mine in _MINE.items():
            policy = sql.Identifier(f"{role} {name}"[:63]).as_string()
            which = mine if role == "analyst" else "true"
            what = "ALL" if role == "spender" else "SELECT"
            text += f"DROP POLICY IF EXISTS {policy} ON {table}; CREATE POLICY {policy} ON {table} "
            text += f"FOR {what} TO {named} USING ({which});"
        statements = f"GRANT USAGE ON SCHEMA hubbub TO {named}; SET LOCAL search_path = hubbub; {text}"
        self._once(lambda connection: connection.execute(f"BEGIN; {statements} COMMIT"))

    def close(self) -> None:
        """Close this process's connections."""
        while self._idle:
            self._idle.pop().close()

    def _transaction(self, begin: str, work: Callable[[Rows], _T]) -> _T:
        from psycopg import errors

        for _ in range(_TRIES):
            # Undone as a whole, by the database's own word: it can be done again, and is charged once.
            with suppress(errors.SerializationFailure, errors.DeadlockDetected):
                return self._once(lambda connection: _done(connection, begin, work))
        raise _failed(TimeoutError())

    def _once(self, work: Callable[[Any], _T]) -> _T:
        import psycopg

        if os.getpid() != self._process:
            _INHERITED.extend(self._idle)
            self._idle, self._process = [], os.getpid()
        connection = None
        try:
            try:
                connection = self._idle.pop()
            except IndexError:
                connection = psycopg.connect(self._address, autocommit=True)
            out = work(connection)
        except BaseException as problem:
            if connection is not None:
                with suppress(psycopg.Error):
                    connection.close()  # which undoes what was not committed
            again = (psycopg.errors.SerializationFailure, psycopg.errors.DeadlockDetected)
            if isinstance(problem, psycopg.Error) and not isinstance(problem, again):
                raise _failed(problem) from None
            raise
        self._idle.append(connection)
        return out

    @staticmethod
    def _create(connection: Any) -> None:
        if connection.execute("SELECT to_regclass('hubbub.turn')").fetchone()[0] is None:
            tables = TABLES.replace("INTEGER", "BIGINT")
            secured = "".join(f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY;" for table in _MINE)
            connection.execute(
                "BEGIN; SELECT pg_advisory_xact_lock(7526764); CREATE SCHEMA IF NOT EXISTS hubbub; "
                "SET LOCAL search_path = hubbub; DO $$ BEGIN IF to_regclass('hubbub.turn') IS NULL THEN "
                f"{tables} CREATE TABLE turn AS SELECT {_FORMAT}::bigint AS version; "
                f"{secured} END IF; END $$; COMMIT"
            )
        version = connection.execute("SELECT version FROM hubbub.turn").fetchone()[0]
        if version != _FORMAT:
            raise InvalidInput(
                "the ledger is of a later version",
                why="what is stored keeps its meaning only where it is read as it was written",
                fix="use a newer hubbub",
            )


_INHERITED: list[Any] = []
"""Connections of a parent process, which a child must neither use nor close."""


class _Rows:
    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def run(self, text: str, given: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Run one statement."""
        cursor = self._connection.execute(text.replace("?", "%s"), tuple(given))
        return cursor.fetchall() if cursor.description else []

    def each(self, text: str, given: Sequence[Any] = ()) -> Iterator[tuple[Any, ...]]:
        """Run one statement, row by row."""
        with self._connection.cursor(name="lines") as cursor:
            cursor.itersize = 1000
            yield from cursor.execute(text.replace("?", "%s"), tuple(given))


def _done(connection: Any, begin: str, work: Callable[[Rows], _T]) -> _T:
    connection.execute(begin)
    try:
        out = work(_Rows(connection))
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")
    return out


def _failed(problem: BaseException) -> LedgerFailed:
    if type(problem).__name__ in {"LockNotAvailable", "TimeoutError"}:
        return LedgerFailed(
            "the ledger is in use by others for too long",
            why="charges are made one after the other, so that none is lost",
            fix="try again",
        )
    return LedgerFailed(
        f"the ledger's database cannot be used ({type(problem).__name__})",
        why="nothing runs unless its charge is committed",
        fix="see that the server can be reached, and that your role may do this",
    )
