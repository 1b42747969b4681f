"""A ledger that a team shares, in PostgreSQL: the same lines, and roles that the database keeps.

Who charges takes a turn: the lock on one row, which only those who may charge can take. Analysts and readers
are roles of the database that can look at what is theirs; what an analyst charges, a function writes.

Proof: docs/proofs/ledger.md, "Never overspent"
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from hubbub.errors import InvalidInput, LedgerFailed
from hubbub.ledger.account import check_name
from hubbub.ledger.roles import MINE, AnalystRows, admitting
from hubbub.ledger.store import TABLES, Rows

__all__ = ["Postgres", "is_address"]

_T = TypeVar("_T")
_FORMAT = 1
_WAIT = "60s"
_TRIES = 20
_BEGIN_WRITING = (
    "BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL lock_timeout = '{wait}'; "
    "SET LOCAL synchronous_commit = on; SET LOCAL search_path = hubbub; {turn}"
)
_MY_TURN = "SELECT version FROM turn FOR UPDATE"
_ANALYST_S_TURN = "SELECT take_turn()"
_BEGIN_READING = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SET LOCAL search_path = hubbub"


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
        self._may_write = self._once(_may_write)

    @property
    def where(self) -> str:
        """The database's address."""
        return self._address

    def write(self, work: Callable[[Rows], _T]) -> _T:
        """Do work that is alone; again where the database undid it for another's sake."""
        turn = _MY_TURN if self._may_write else _ANALYST_S_TURN
        begin = _BEGIN_WRITING.format(wait=self._wait, turn=turn)
        if self._may_write:
            return self._transaction(begin, work)
        return self._transaction(begin, lambda rows: _through_function(rows, work))

    def read(self, work: Callable[[Rows], _T]) -> _T:
        """Look at one moment."""
        return self._transaction(_BEGIN_READING, work)

    def check(self, rows: Rows) -> str | None:
        """The database checks its own pages: nothing to add."""
        del rows
        return None

    def admit(self, name: str, role: str) -> None:
        """Let a role of the database in: as a spender (who holds the rows), an analyst or a reader.

        A spender can add lines and can change none. An analyst sees and adds lines of her own name, within
        her budget; a reader sees all and adds none.
        """
        check_name(name, "the role")
        statements = f"SET LOCAL search_path = hubbub; {admitting(name, role)}"
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
            # Keys are compared byte by byte, as SQLite does, whatever the language of the database.
            tables = TABLES.replace("INTEGER", "BIGINT").replace(
                "charge_key TEXT", 'charge_key TEXT COLLATE "C"'
            )
            secured = "".join(f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY;" for table in MINE)
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


def _through_function(rows: Rows, work: Callable[[Rows], _T]) -> _T:
    mine = AnalystRows(rows)
    out = work(mine)
    mine.finish()
    return out


def _may_write(connection: Any) -> bool:
    """Whether this role adds lines by itself: all others ask a function that does it for them."""
    found = connection.execute("SELECT has_table_privilege('hubbub.entries', 'INSERT')").fetchone()
    return bool(found[0])


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
