"""Places where ledgers are kept, as an attacker sees them too: raw SQL, beside the API."""

import sqlite3
from contextlib import closing
from pathlib import Path

from hubbub.ledger import Account, Ledger
from hubbub.loss import Budget
from hubbub.unit import Unit

PATIENT = Unit("patient")


class File:
    """A ledger in a file."""

    def __init__(self, path: Path) -> None:
        self.address = str(path)

    def open(self) -> Ledger:
        return Ledger.open(self.address)

    def attack(self, text: str, given=()) -> list:
        with closing(sqlite3.connect(self.address, isolation_level=None)) as connection:
            return connection.execute(text, given).fetchall()

    def close(self) -> None:
        pass


def account(ledger: Ledger, epsilon=1, delta=0) -> Account:
    return ledger.account("visits", PATIENT, Budget(epsilon, delta))
