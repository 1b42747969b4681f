"""A ledger in PostgreSQL: the same lines, and roles that the database keeps.

Who charges takes a turn: the lock on one row, which only those who may charge can take. Only the process
that holds the rows writes; analysts ask through it. Readers are roles of the database that can only look.

Proof: docs/proofs/ledger.md, "Never overspent"
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from hubbub.accounting.budget import refuse_fork
from hubbub.errors import InvalidInput, LedgerFailed, Refused
from hubbub.ledger.account import check_name
from hubbub.ledger.location import (
    Note,
    Remembered,
    at_home,
    first_name,
    next_name,
    refuse_elsewhere,
    refuse_older,
)
from hubbub.ledger.sqlite import TABLES, Rows, has_line, head_of, name_of, only_looked_at

__all__ = ["Postgres", "is_address"]

_T = TypeVar("_T")
_FORMAT = 2
_HERE = (
    "SELECT json_build_object('cluster', system_identifier::text, 'database', "
    "(SELECT oid::bigint FROM pg_catalog.pg_database WHERE datname = current_database()))::text "
    "FROM pg_catalog.pg_control_system()"
)
"""Where a database lies: in this cluster, made as this database. A dump that was restored lies elsewhere."""
_WAIT = "60s"
_TRIES = 20
_BEGIN_WRITING = (
    "BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL lock_timeout = '{wait}'; "
    "SET LOCAL synchronous_commit = on; SET LOCAL search_path = hubbub; SELECT version FROM turn FOR UPDATE"
)
_GRANTS = {
    "spender": "GRANT SELECT, UPDATE ON turn TO {name}; "
    "GRANT SELECT, INSERT ON entries, seen, releases, charges, place TO {name}; "
    "GRANT UPDATE (charge_key, released) ON charges TO {name}; "
    "GRANT SELECT, INSERT, UPDATE ON totals TO {name};",
    "reader": "GRANT SELECT ON turn, entries, totals, charges, seen, releases, place TO {name};",
}
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

    def __init__(
        self, address: str, *, is_looked_at: bool = False, is_restored: bool = False, wait: str = _WAIT
    ) -> None:
        self._address = address
        self._is_looked_at = is_looked_at
        self._is_restored = is_restored
        self._wait = wait
        self._idle: list[Any] = []
        self._process = os.getpid()
        self._known: Remembered | None = None
        """The head that this process saw last."""
        self._once(self._create)
        if not is_looked_at:
            before = self.remembered()
            self.read(lambda rows: _refuse_elsewhere(rows, before))

    @property
    def where(self) -> str:
        """The database's address."""
        return self._address

    def write(self, work: Callable[[Rows], _T]) -> _T:
        """Do work that is alone; again where the database undid it for another's sake."""
        if self._is_looked_at:
            raise only_looked_at()

        def checked(rows: Rows) -> _T:
            # Read while nobody else can commit: it never says more than was committed by then.
            _refuse_elsewhere(rows, {Note.at_home(name_of(rows)).read(), self._known})
            return work(rows)

        return self._written(checked)

    def read(self, work: Callable[[Rows], _T]) -> _T:
        """Look at one moment."""
        return self._transaction(_BEGIN_READING, work)

    def adopt(self, work: Callable[[Rows], None]) -> None:
        """Make this database the ledger, by the owner's word."""

        def adopted(rows: Rows) -> None:
            work(rows)
            name = name_of(rows)
            name = next_name(name, [Note.at_home(name).read()])
            rows.run("UPDATE place SET id = ?, kind = 'ledger', lies = ?", (name, *rows.run(_HERE)[0]))

        self._known = None
        self._written(adopted)

    def remembered(self) -> set[Remembered | None]:
        """What the user's own folder says of how long the ledger was: a dump may be put back in its place."""
        return {Note.at_home(self.read(name_of)).read()}

    def lacks_log(self) -> bool:
        """A database is one thing."""
        return False

    @property
    def key_path(self) -> Path | None:
        """In the configuration of who runs the process that holds the rows, and never in the database."""
        folder = at_home("XDG_CONFIG_HOME", ".config")
        return None if folder is None else folder / f"{self.read(name_of).partition('.')[0]}.key"

    def check(self, rows: Rows, before: set[Remembered | None]) -> str | None:
        """Whether it lies where it was; the database checks its own pages."""
        try:
            _refuse_elsewhere(rows, before)
        except Refused as refusal:
            return refusal.what
        return None

    def admit(self, name: str, role: str) -> None:
        """Let a role of the database in: as spender, for the process that holds the rows, or as reader.

        A spender can add lines and can change none; a reader sees all and adds none.
        """
        from psycopg import sql

        check_name(name, "the role")
        if role not in _GRANTS:
            raise InvalidInput(
                "there is no such role", why="it must be known what it may do", fix="pass spender or reader"
            )
        named = sql.Identifier(name).as_string()
        # What it may do as another role ends first.
        statements = (
            f"SET LOCAL search_path = hubbub; REVOKE ALL ON ALL TABLES IN SCHEMA hubbub FROM {named}; "
            f"GRANT USAGE ON SCHEMA hubbub TO {named}; {_GRANTS[role].replace('{name}', named)}"
        )
        self._once(lambda connection: connection.execute(f"BEGIN; {statements} COMMIT"))

    def close(self) -> None:
        """Close this process's connections."""
        while self._idle and os.getpid() == self._process:  # a child leaves its parent's alone
            self._idle.pop().close()

    def _written(self, work: Callable[[Rows], _T]) -> _T:
        def told(rows: Rows) -> tuple[_T, Remembered]:
            return work(rows), head_of(rows)

        before = self._known
        out, self._known = self._transaction(_BEGIN_WRITING.format(wait=self._wait), told)
        Note.at_home(self._known[0]).write(self._known)
        if self._known[1] and (before is None or before[0] != self._known[0]):
            # Once is enough: that a ledger was here.
            Note.of_database(self.read(lambda rows: rows.run(_HERE))[0][0]).write(self._known)
        return out

    def _transaction(self, begin: str, work: Callable[[Rows], _T]) -> _T:
        from psycopg import errors

        for _ in range(_TRIES):
            # Undone as a whole, by the database's own word: it can be done again, and is charged once.
            with suppress(errors.SerializationFailure, errors.DeadlockDetected):
                return self._once(lambda connection: _done(connection, begin, work))
        raise _failed(TimeoutError())

    def _once(self, work: Callable[[Any], _T]) -> _T:
        import psycopg

        refuse_fork(self._process, "a ledger that was opened", "open the ledger in the new process")
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

    def _create(self, connection: Any) -> None:
        # Read first: one that another process makes meanwhile is not one that is missing.
        was = None
        if not (self._is_looked_at or self._is_restored):
            was = Note.of_database(connection.execute(_HERE).fetchone()[0])
            was = None if was.read() is None else was
        if connection.execute("SELECT to_regclass('hubbub.turn')").fetchone()[0] is None:
            if self._is_looked_at:
                raise InvalidInput(
                    "the ledger is not there",
                    why="looking does not make one",
                    fix="give the address of a ledger",
                )
            if was is not None:
                raise Refused(
                    "the ledger that was in this database is gone: its schema was dropped",
                    why="in a new one all that was spent would be spent once more",
                    fix="restore a backup: hubbub ledger restore BACKUP --ledger ADDRESS; or, if nothing "
                    f"that it paid for is asked about again, remove {was.path}",
                )
            # Keys are compared byte by byte, as SQLite does, whatever the language of the database.
            tables = TABLES.replace("INTEGER", "BIGINT").replace(
                "charge_key TEXT", 'charge_key TEXT COLLATE "C"'
            )
            connection.execute(
                "BEGIN; SELECT pg_advisory_xact_lock(7526764); CREATE SCHEMA IF NOT EXISTS hubbub; "
                "SET LOCAL search_path = hubbub; DO $$ BEGIN IF to_regclass('hubbub.turn') IS NULL THEN "
                f"{tables} CREATE TABLE turn AS SELECT {_FORMAT}::bigint AS version; "
                f"INSERT INTO place SELECT '{first_name()}', 'ledger', ({_HERE}); "
                "END IF; END $$; COMMIT"
            )
        version = connection.execute("SELECT version FROM hubbub.turn").fetchone()[0]
        if version != _FORMAT:
            later = version > _FORMAT
            raise InvalidInput(
                f"the ledger is of {'a later' if later else 'an earlier'} version",
                why="what is stored keeps its meaning only where it is read as it was written",
                fix="use a newer hubbub" if later else "go on with the version of hubbub that wrote it",
            )


def _refuse_elsewhere(rows: Rows, before: set[Remembered | None]) -> None:
    """Refuse a database that was copied from the ledger's, and one that holds less than it did."""
    ((name, kind, stored),) = rows.run("SELECT id, kind, lies FROM place")
    ((here,),) = rows.run(_HERE)
    refuse_elsewhere(kind, stored, here)
    refuse_older(name, lambda number, digest: has_line(rows, number, digest), before)


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
