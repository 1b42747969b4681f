"""The interface of a store, and what SQLite and PostgreSQL share: the tables, and how a head is read.

A store runs work in transactions: alone, and as a whole or not at all.
"""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar

from hubbub.errors import InvalidInput, Refused
from hubbub.ledger.copy_detection import KnownHead

__all__ = [
    "COPIED_TABLES",
    "FORMAT",
    "TABLES",
    "Store",
    "Transaction",
    "check_format",
    "has_entry",
    "read_head",
    "read_ledger_id",
    "read_only_error",
]

_T = TypeVar("_T")
FORMAT = 3
"""The version of the stored format."""
TABLES = """
CREATE TABLE entries (
    number INTEGER PRIMARY KEY, account TEXT NOT NULL, kind TEXT NOT NULL, analyst TEXT NOT NULL,
    timestamp TEXT NOT NULL, body TEXT NOT NULL, previous TEXT NOT NULL, digest TEXT NOT NULL);
CREATE INDEX entries_by_kind ON entries (kind, account, analyst);
CREATE TABLE filters (
    account TEXT NOT NULL, analyst TEXT NOT NULL, state TEXT NOT NULL, digest TEXT NOT NULL,
    PRIMARY KEY (account, analyst));
CREATE TABLE charges (
    number INTEGER PRIMARY KEY, account TEXT NOT NULL, charge_key TEXT, released INTEGER,
    UNIQUE (account, charge_key));
CREATE TABLE views (number INTEGER NOT NULL, analyst TEXT NOT NULL, PRIMARY KEY (number, analyst));
CREATE TABLE releases (number INTEGER PRIMARY KEY, body TEXT NOT NULL);
CREATE TABLE location (ledger_id TEXT NOT NULL, kind TEXT NOT NULL, location TEXT NOT NULL);
"""
COPIED_TABLES = ("entries", "filters", "charges", "views", "releases")
"""The tables that a backup copies: all but the location."""


class Transaction(Protocol):
    """The statements of one transaction."""

    def execute(self, statement: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Run one statement, with ? for each parameter, and return all its rows."""

    def stream(self, statement: str, parameters: Sequence[Any] = ()) -> Iterator[tuple[Any, ...]]:
        """Run one statement, and iterate over its rows."""


class Store(Protocol):
    """The storage of a ledger."""

    @property
    def location(self) -> str:
        """Its path or URL."""

    def write(self, work: Callable[[Transaction], _T]) -> _T:
        """Run work alone: durable when it returns, rolled back if it raises."""

    def read(self, work: Callable[[Transaction], _T]) -> _T:
        """Run work on one consistent state."""

    def adopt(self, work: Callable[[Transaction], None]) -> None:
        """Run work like `write` in a ledger that was copied or moved, and make this its location.

        Only `restore` calls it, after the owner confirmed what was spent since.
        """

    def known_heads(self) -> set[KnownHead | None]:
        """Return the heads that the ledger at this location is known to have had."""

    def is_log_missing(self) -> bool:
        """Return whether the write-ahead log was left behind."""

    @property
    def key_path(self) -> Path | None:
        """The path of the key that authenticates releases; None if there is no folder for it."""

    def find_problem(self, transaction: Transaction, heads: set[KnownHead | None]) -> str | None:
        """Return what is wrong with the store itself, such as a corrupted index.

        Args:
            transaction: the state to check.
            heads: the heads known before that state was taken: others may write meanwhile.
        """

    def close(self) -> None:
        """Close all connections."""


def has_entry(transaction: Transaction, number: int, digest: str) -> bool:
    """Return whether the ledger has an entry with this number and digest."""
    return transaction.execute("SELECT digest FROM entries WHERE number = ?", (number,)) == [(digest,)]


def read_ledger_id(transaction: Transaction) -> str:
    """Return the ledger's id; copies share it up to the number of restores."""
    rows = transaction.execute("SELECT ledger_id FROM location")
    return str(rows[0][0]) if rows else ""


def read_head(transaction: Transaction) -> KnownHead:
    """Return the ledger's id, and the number and digest of its last entry."""
    (ledger_id,) = transaction.execute("SELECT ledger_id FROM location")[0]
    rows = transaction.execute("SELECT number, digest FROM entries ORDER BY number DESC LIMIT 1")
    return (ledger_id, *rows[0]) if rows else (ledger_id, 0, "-")


def read_only_error() -> Refused:
    """Return the error for a write to a ledger that was opened read-only."""
    return Refused(
        "the ledger was opened read-only",
        why="nothing is written to what may be a copy or a backup",
        fix="open it with Ledger.open",
    )


def check_format(version: int) -> None:
    """Refuse a ledger of another format version."""
    if version != FORMAT:
        is_later = version > FORMAT
        raise InvalidInput(
            f"this is a ledger of {'a later' if is_later else 'an earlier'} version",
            why="a stored format keeps its meaning only if it is read as it was written",
            fix="use a newer hubbub" if is_later else "use the version of hubbub that wrote it",
        )
