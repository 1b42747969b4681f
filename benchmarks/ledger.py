"""Durable charges a second beside the disk's own syncs; a ledger of many lines.

python benchmarks/ledger.py [LINES] [FOLDER]
"""

import os
import sqlite3
import sys
import tempfile
import time
from fractions import Fraction
from pathlib import Path

from hubbub.ledger import Ledger
from hubbub.loss import Budget, Loss
from hubbub.unit import Unit

PRICE = Loss.pure(Fraction(1, 10**9))


def a_second(work, seconds=3.0):
    done, start = 0, time.perf_counter()
    while time.perf_counter() - start < seconds:
        work()
        done += 1
    return done / (time.perf_counter() - start)


def syncs(folder):
    with (folder / "sync").open("wb", buffering=0) as file:

        def one():
            file.write(bytes(4096))
            os.fsync(file.fileno())

        return a_second(one)


def lengthen(path, lines):
    """Many lines at once, without their digests: for reading and charging, not for verifying."""
    connection = sqlite3.connect(path)
    connection.execute(
        "WITH RECURSIVE n(value) AS (SELECT 1 UNION ALL SELECT value + 1 FROM n WHERE value < ?) "
        "INSERT INTO entries SELECT -value, account, kind, who, moment, body, previous, digest "
        "FROM n, (SELECT * FROM entries WHERE kind = 'charge' LIMIT 1)",
        (lines,),
    )
    connection.commit()
    connection.close()


def main() -> None:
    lines = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    with tempfile.TemporaryDirectory(dir=sys.argv[2] if len(sys.argv) > 2 else None) as made:
        folder, path = Path(made), Path(made) / "x.ledger"
        print(f"syncs of the disk: {syncs(folder):.0f} a second")
        with Ledger.open(path) as ledger:
            account = ledger.account("visits", Unit("patient"), Budget(1))
            rate = a_second(lambda: account.charge("a count", PRICE))
            print(f"durable charges: {rate:.0f} a second")
            start = time.perf_counter()
            found = ledger.verify()
            print(f"verify: {found.entries / (time.perf_counter() - start):.0f} lines a second")
        lengthen(path, lines)
        start = time.perf_counter()
        with Ledger.open(path) as ledger:
            account = ledger.account("visits")
            account.left()
            took = 1000 * (time.perf_counter() - start)
            print(f"{lines} lines more, {path.stat().st_size >> 20} MB: opened in {took:.0f} ms")
            rate = a_second(lambda: account.charge("a count", PRICE))
            print(f"durable charges: {rate:.0f} a second")


if __name__ == "__main__":
    main()
