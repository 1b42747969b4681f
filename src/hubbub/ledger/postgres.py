"""A ledger in PostgreSQL: the same entries, and roles that the database enforces.

A writer takes the write lock: the lock on one row, which only roles that may charge can take. Only the
process that holds the rows writes; analysts ask through it. Readers are database roles with read access.

Proof: docs/proofs/ledger.md, "Never overspent"
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from hubbub.accounting.budget import refuse_fork
from hubbub.errors import InvalidInput, LedgerFailed, Refused
from hubbub.ledger.copy_detection import (
    HeadFile,
    KnownHead,
    new_ledger_id,
    refuse_older_state,
    refuse_other_location,
    restored_ledger_id,
    user_folder,
)
from hubbub.ledger.entries import check_name
from hubbub.ledger.store import (
    FORMAT,
    TABLES,
    Transaction,
    check_format,
    has_entry,
    read_head,
    read_ledger_id,
    read_only_error,
)

__all__ = ["LOCATION_QUERY", "PostgresStore", "is_postgres_url"]

_T = TypeVar("_T")
LOCATION_QUERY = (
    "SELECT json_build_object('cluster', system_identifier::text, 'database', "
    "(SELECT oid::bigint FROM pg_catalog.pg_database WHERE datname = current_database()))::text "
    "FROM pg_catalog.pg_control_system()"
)
"""The location of a database: its cluster and its oid. A restored dump is at another location."""
_LOCK_TIMEOUT = "60s"
_MAX_ATTEMPTS = 20
_BEGIN_WRITE = (
    "BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL lock_timeout = '{lock_timeout}'; "
    "SET LOCAL synchronous_commit = on; SET LOCAL search_path = hubbub; "
    "SELECT version FROM write_lock FOR UPDATE"
)
_BEGIN_READ = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SET LOCAL search_path = hubbub"
_GRANTS = {
    "spender": "GRANT SELECT, UPDATE ON write_lock TO {name}; "
    "GRANT SELECT, INSERT ON entries, views, releases, charges, location TO {name}; "
    "GRANT UPDATE (charge_key, released) ON charges TO {name}; "
    "GRANT SELECT, INSERT, UPDATE ON filters TO {name};",
    "reader": "GRANT SELECT ON write_lock, entries, filters, charges, views, releases, location TO {name};",
}


def is_postgres_url(location: object) -> bool:
    """Return whether a location is a database's URL and not a path."""
    return isinstance(location, str) and location.startswith(("postgresql://", "postgres://"))


class PostgresStore:
    """A ledger in the schema `hubbub` of a database.

    Guarantee: when `write` returns, the server has committed what was written, and reported it as synced.
    Assumes: the server syncs what it commits (fsync = on).
    Proof: docs/proofs/ledger.md, "Durable"
    """

    def __init__(
        self,
        url: str,
        *,
        read_only: bool = False,
        for_restore: bool = False,
        lock_timeout: str = _LOCK_TIMEOUT,
    ) -> None:
        self._url = url
        self._read_only = read_only
        self._for_restore = for_restore
        self._lock_timeout = lock_timeout
        self._idle_connections: list[Any] = []
        self._process = os.getpid()
        self._last_head: KnownHead | None = None
        """The head that this process saw last."""
        self._with_connection(self._create)
        if not read_only:
            heads = self.known_heads()
            self.read(lambda transaction: _refuse_other_location(transaction, heads))

    @property
    def location(self) -> str:
        """The database's URL."""
        return self._url

    def write(self, work: Callable[[Transaction], _T]) -> _T:
        """Run work alone; again if the database rolled it back because of a conflict."""
        if self._read_only:
            raise read_only_error()

        def checked(transaction: Transaction) -> _T:
            # Read while nobody else can commit: the head file cannot be ahead of this state.
            head = HeadFile.in_user_folder(read_ledger_id(transaction)).read()
            _refuse_other_location(transaction, {head, self._last_head})
            return work(transaction)

        return self._write(checked)

    def read(self, work: Callable[[Transaction], _T]) -> _T:
        """Run work on one consistent state."""
        return self._run(_BEGIN_READ, work)

    def adopt(self, work: Callable[[Transaction], None]) -> None:
        """Make this database the ledger: its stored location becomes its current one."""

        def adopt_here(transaction: Transaction) -> None:
            work(transaction)
            ledger_id = read_ledger_id(transaction)
            ledger_id = restored_ledger_id(ledger_id, [HeadFile.in_user_folder(ledger_id).read()])
            transaction.execute(
                "UPDATE location SET ledger_id = ?, kind = 'ledger', location = ?",
                (ledger_id, *transaction.execute(LOCATION_QUERY)[0]),
            )

        self._last_head = None
        self._write(adopt_here)

    def known_heads(self) -> set[KnownHead | None]:
        """Return the head in the user's state folder: a dump may be restored over the ledger."""
        return {HeadFile.in_user_folder(self.read(read_ledger_id)).read()}

    def is_log_missing(self) -> bool:
        """Return False: a database has no log of its own to lose."""
        return False

    @property
    def key_path(self) -> Path | None:
        """In the configuration folder of the user who holds the rows, and never in the database."""
        folder = user_folder("XDG_CONFIG_HOME", ".config")
        return None if folder is None else folder / f"{self.read(read_ledger_id).partition('.')[0]}.key"

    def find_problem(self, transaction: Transaction, heads: set[KnownHead | None]) -> str | None:
        """Check the location; the database checks its own pages."""
        try:
            _refuse_other_location(transaction, heads)
        except Refused as refusal:
            return refusal.what
        return None

    def grant_role(self, name: str, role: str) -> None:
        """Give a database role access to the ledger.

        Args:
            name: the database role.
            role: "spender" for the process that holds the rows: it can add entries and change none; or
                "reader", which sees all entries and adds none.
        """
        from psycopg import sql

        check_name(name, "the role")
        if role not in _GRANTS:
            raise InvalidInput(
                "there is no such role", why="it determines what is allowed", fix="pass spender or reader"
            )
        quoted = sql.Identifier(name).as_string()
        # Its earlier rights end first.
        statements = (
            f"SET LOCAL search_path = hubbub; REVOKE ALL ON ALL TABLES IN SCHEMA hubbub FROM {quoted}; "
            f"GRANT USAGE ON SCHEMA hubbub TO {quoted}; {_GRANTS[role].replace('{name}', quoted)}"
        )
        self._with_connection(lambda connection: connection.execute(f"BEGIN; {statements} COMMIT"))

    def close(self) -> None:
        """Close this process's connections."""
        while self._idle_connections and os.getpid() == self._process:  # a child leaves its parent's alone
            self._idle_connections.pop().close()

    def _write(self, work: Callable[[Transaction], _T]) -> _T:
        def work_and_head(transaction: Transaction) -> tuple[_T, KnownHead]:
            return work(transaction), read_head(transaction)

        before = self._last_head
        begin = _BEGIN_WRITE.format(lock_timeout=self._lock_timeout)
        out, self._last_head = self._run(begin, work_and_head)
        HeadFile.in_user_folder(self._last_head[0]).write(self._last_head)
        if self._last_head[1] and (before is None or before[0] != self._last_head[0]):
            # Once per process is enough: it records that the database had a ledger.
            here = self.read(lambda transaction: transaction.execute(LOCATION_QUERY))[0][0]
            HeadFile.of_database(here).write(self._last_head)
        return out

    def _run(self, begin: str, work: Callable[[Transaction], _T]) -> _T:
        from psycopg import errors

        for _ in range(_MAX_ATTEMPTS):
            # The database rolled back everything: it can be run again, and is charged once.
            with suppress(errors.SerializationFailure, errors.DeadlockDetected):
                return self._with_connection(lambda connection: _run_transaction(connection, begin, work))
        raise _store_error(TimeoutError())

    def _with_connection(self, work: Callable[[Any], _T]) -> _T:
        import psycopg

        refuse_fork(self._process, "a ledger that was opened", "open the ledger in the new process")
        connection = None
        try:
            try:
                connection = self._idle_connections.pop()
            except IndexError:
                connection = psycopg.connect(self._url, autocommit=True)
            out = work(connection)
        except BaseException as problem:
            if connection is not None:
                with suppress(psycopg.Error):
                    connection.close()  # rolls back what was not committed
            retryable = (psycopg.errors.SerializationFailure, psycopg.errors.DeadlockDetected)
            if isinstance(problem, psycopg.Error) and not isinstance(problem, retryable):
                raise _store_error(problem) from None
            raise
        self._idle_connections.append(connection)
        return out

    def _create(self, connection: Any) -> None:
        # Read first: a ledger that another process creates meanwhile is not one that is missing.
        head_file = None
        if not (self._read_only or self._for_restore):
            head_file = HeadFile.of_database(connection.execute(LOCATION_QUERY).fetchone()[0])
            head_file = head_file if head_file.exists else None
        if connection.execute("SELECT to_regclass('hubbub.write_lock')").fetchone()[0] is None:
            if self._read_only:
                raise InvalidInput(
                    "there is no ledger at this location",
                    why="reading does not create one",
                    fix="pass the URL of a ledger",
                )
            if head_file is not None:
                raise Refused(
                    "the ledger of this database is gone: its schema was dropped",
                    why="a new one would have the whole budget again",
                    fix="restore a backup: hubbub ledger restore BACKUP --ledger ADDRESS; or, if nothing "
                    f"that it paid for is asked about again, remove {head_file.path}",
                )
            # Keys are compared byte by byte, as SQLite does, whatever the database's collation.
            tables = TABLES.replace("INTEGER", "BIGINT").replace(
                "charge_key TEXT", 'charge_key TEXT COLLATE "C"'
            )
            connection.execute(
                "BEGIN; SELECT pg_advisory_xact_lock(7526764); CREATE SCHEMA IF NOT EXISTS hubbub; "
                "SET LOCAL search_path = hubbub; "
                "DO $$ BEGIN IF to_regclass('hubbub.write_lock') IS NULL THEN "
                f"{tables} CREATE TABLE write_lock AS SELECT {FORMAT}::bigint AS version; "
                f"INSERT INTO location SELECT '{new_ledger_id()}', 'ledger', ({LOCATION_QUERY}); "
                "END IF; END $$; COMMIT"
            )
        check_format(connection.execute("SELECT version FROM hubbub.write_lock").fetchone()[0])


def _refuse_other_location(transaction: Transaction, heads: set[KnownHead | None]) -> None:
    """Refuse a database that was copied from the ledger's, and one that lacks entries it had."""
    ((ledger_id, kind, stored),) = transaction.execute("SELECT ledger_id, kind, location FROM location")
    ((here,),) = transaction.execute(LOCATION_QUERY)
    refuse_other_location(kind, stored, here)
    refuse_older_state(ledger_id, lambda number, digest: has_entry(transaction, number, digest), heads)


class _PostgresTransaction:
    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def execute(self, statement: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Run one statement, and return all its rows."""
        cursor = self._connection.execute(statement.replace("?", "%s"), tuple(parameters))
        return cursor.fetchall() if cursor.description else []

    def stream(self, statement: str, parameters: Sequence[Any] = ()) -> Iterator[tuple[Any, ...]]:
        """Run one statement, and iterate over its rows."""
        with self._connection.cursor(name="entries") as cursor:
            cursor.itersize = 1000
            yield from cursor.execute(statement.replace("?", "%s"), tuple(parameters))


def _run_transaction(connection: Any, begin: str, work: Callable[[Transaction], _T]) -> _T:
    connection.execute(begin)
    try:
        out = work(_PostgresTransaction(connection))
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")
    return out


def _store_error(problem: BaseException) -> LedgerFailed:
    if type(problem).__name__ in {"LockNotAvailable", "TimeoutError"}:
        return LedgerFailed(
            "the ledger was locked by others for too long",
            why="charges are made one after the other, so that none is lost",
            fix="try again",
        )
    if type(problem).__name__ == "InsufficientPrivilege":
        return LedgerFailed(
            "the database role may not do this with the ledger",
            why="it was not admitted, or only as a reader",
            fix="ask the ledger's owner: hubbub ledger admit ROLE --role spender",
        )
    if type(problem).__name__ == "UndefinedObject":
        return LedgerFailed(
            "the database has no such role",
            why="only a role of the database can be admitted",
            fix="make it first, as CREATE ROLE rita LOGIN",
        )
    return LedgerFailed(
        f"the ledger's database cannot be used ({type(problem).__name__})",
        why="nothing runs unless its charge is committed",
        fix="check that the server can be reached, and that your role has the right to do this",
    )
