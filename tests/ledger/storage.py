"""Where ledgers are stored, as an attacker sees it too: raw SQL, beside the API."""

import sqlite3
from contextlib import closing
from pathlib import Path

from hubbub.accounting import Budget
from hubbub.ledger import Ledger, LedgerAccount
from hubbub.ledger.copy_detection import HeadFile
from hubbub.ledger.postgres import LOCATION_QUERY
from hubbub.ledger.sqlite import SQLiteStore, read_ledger_id
from hubbub.unit import Unit

PATIENT = Unit("patient")


def forget(path) -> None:
    """Nothing is remembered of how long a ledger was."""
    store = SQLiteStore(path, read_only=True)
    for note in (*store._head_files, store._location_file):
        note.path.unlink(missing_ok=True)


class File:
    """A ledger in a file."""

    def __init__(self, path: Path) -> None:
        self.address = str(path)

    def open(self) -> Ledger:
        return Ledger.open(self.address)

    def look(self) -> Ledger:
        return Ledger.open_read_only(self.address)

    def forget(self) -> None:
        """What an attacker does who knows what lies beside the file, and in the user's own folder."""
        forget(self.address)

    def attack(self, text: str, arguments=()) -> list:
        with closing(sqlite3.connect(self.address, isolation_level=None)) as connection:
            return connection.execute(text, arguments).fetchall()


class Database:
    """A ledger in PostgreSQL."""

    def __init__(self, server) -> None:
        self.server = server
        self.address = server.address()
        self._ledgers: list[Ledger] = []

    def open(self) -> Ledger:
        self._ledgers.append(Ledger.open(self.address))
        return self._ledgers[-1]

    def look(self) -> Ledger:
        self._ledgers.append(Ledger.open_read_only(self.address))
        return self._ledgers[-1]

    def forget(self) -> None:
        """Nothing lies beside a database: what is remembered is in the user's own folder."""
        with Ledger.open_read_only(self.address) as ledger:
            HeadFile.in_user_folder(ledger._store.read(read_ledger_id)).path.unlink(missing_ok=True)

    def connect(self, user: str = "postgres"):
        import psycopg

        return psycopg.connect(
            self.server.address(user), autocommit=True, options="-c search_path=hubbub -c lock_timeout=30s"
        )

    def attack(self, text: str, arguments=(), user: str = "postgres") -> list:
        with self.connect(user) as connection:
            cursor = connection.execute(text.replace("?", "%s"), arguments or None)
            return cursor.fetchall() if cursor.description else []

    def close(self) -> None:
        for ledger in self._ledgers:
            ledger.close()
        self.attack("DROP SCHEMA IF EXISTS hubbub CASCADE")
        # Which is found: the next test's is another ledger.
        HeadFile.of_database(self.attack(LOCATION_QUERY)[0][0]).path.unlink(missing_ok=True)


def account(ledger: Ledger, epsilon=1, delta=0) -> LedgerAccount:
    return ledger.account("visits", PATIENT, Budget(epsilon, delta))
