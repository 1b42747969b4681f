"""Durable charges a second beside the disk's own syncs; a ledger of a million lines, opened and verified."""

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import BinaryIO

from measure import Target, show, show_targets

from hubbub.accounting import Budget, PrivacyLoss
from hubbub.ledger import Ledger
from hubbub.ledger.entries import Entries, Entry, read_charge, read_loss
from hubbub.unit import Unit

LINES = 1_000_000
PRICE = PrivacyLoss.pure(Fraction(1, 10**9))
_BATCH = 50_000
_TURNS, _TURN = 9, 0.5


def run(lines: int = LINES, folder: str | None = None) -> None:
    with tempfile.TemporaryDirectory(dir=folder) as directory:
        path = Path(directory) / "x.ledger"
        with Ledger.open(path) as ledger, (Path(directory) / "sync").open("wb", buffering=0) as file:
            syncs, charges, took = _in_turns(file, ledger)
        shared = _shared()
        rows = [
            ("syncs of the disk, 4 KiB each", f"{syncs:,.0f}", ""),
            ("durable charges, SQLite", f"{charges:,.0f}", f"{1e3 * took:.2f} ms of CPU each"),
            ("… over syncs", f"{charges / syncs:.2f}×", ""),
            ("charges, PostgreSQL on the same disk", *(shared or ("not there", ""))),
        ]
        show("Charges a second, one process", ("", "", ""), rows)
        start = time.perf_counter()
        with Ledger.open(path) as ledger:
            lengthen(ledger, lines)
        built = time.perf_counter() - start
        start = time.perf_counter()
        ledger = Ledger.open(path)
        account = ledger.account("visits")
        left = account.remaining()
        opening_time = time.perf_counter() - start
        many, cpu = _charges(ledger)
        start, used = time.perf_counter(), time.process_time()
        result = ledger.verify()
        verified, used = time.perf_counter() - start, time.process_time() - used
        ledger.close()
        assert result.ok, result.problem
        assert left.epsilon > 0
        size = path.stat().st_size >> 20
        rows = [
            ("lines", f"{result.entries:,}"),
            ("size", f"{size:,} MB"),
            ("written in", f"{built:.0f} s"),
            ("opened, and what is left", f"{1e3 * opening_time:.0f} ms"),
            ("durable charges a second", f"{many:,.0f}; {1e3 * cpu:.2f} ms of CPU each"),
            (
                "verified in",
                f"{verified:.0f} s, {used:.0f} s of CPU: {result.entries / used:,.0f} lines a second",
            ),
        ]
        show("A long ledger", ("", ""), rows)
    show_targets(
        [
            Target("durable charges a second", "hundreds", f"{charges:,.0f}", charges >= 200),
            Target(f"{lines:,} lines open", "< 1 s", f"{opening_time:.3f} s", opening_time < 1),
            Target(f"a charge after {lines:,} lines", "milliseconds", f"{1e3 / many:.1f} ms", many >= 100),
            Target(f"{lines:,} lines verified", "minutes", f"{verified / 60:.1f} min", verified < 600),
        ]
    )


def lengthen(ledger: Ledger, lines: int) -> None:
    """Many charges like the last one, with their digests and their sum, in few transactions."""
    for start in range(0, lines, _BATCH):
        more = min(_BATCH, lines - start)
        ledger._store.write(lambda rows: _more(Entries(rows), more))  # noqa: B023, SLF001 - it is done at once


def _more(entries: Entries, lines: int) -> None:
    last = entries.last()
    assert last is not None
    number, previous = last.number, last.digest
    for _ in range(lines):
        number += 1
        parts = (number, last.account, "charge", "", last.timestamp, last.text, previous)
        previous = Entry(*parts, "").expected_digest()
        entries.transaction.execute("INSERT INTO entries VALUES (?, ?, ?, ?, ?, ?, ?, ?)", (*parts, previous))
        entries.store_charge(last.account, None, number)
    total = entries.get_filter(last.account, "")
    assert total is not None
    after = total.after_many(read_loss(last.body["loss"]), read_charge(last.body["charged"][""]), lines)
    assert after is not None
    entries.store_filter(last.account, "", after)


def _in_turns(file: BinaryIO, ledger: Ledger) -> tuple[float, float, float]:
    """Syncs and charges a second, medians of short turns, as others use the disk; the CPU of a charge."""
    syncs, charges, cpu = [], [], []
    for _ in range(_TURNS):
        syncs.append(_a_second(lambda: _synced(file))[0])
        rate, used = _charges(ledger, _TURN)
        charges.append(rate)
        cpu.append(used)
    return statistics.median(syncs), statistics.median(charges), min(cpu)


def _charges(ledger: Ledger, seconds: float = 3.0) -> tuple[float, float]:
    """How many a second, and the CPU of one."""
    account = ledger.account("visits", Unit("patient"), Budget(1))
    account.charge("a count", PRICE)
    return _a_second(lambda: account.charge("a count", PRICE), seconds)


def _a_second(work: Callable[[], object], seconds: float = 0.5) -> tuple[float, float]:
    done, start, used = 0, time.perf_counter(), time.process_time()
    while time.perf_counter() - start < seconds:
        work()
        done += 1
    return done / (time.perf_counter() - start), (time.process_time() - used) / done


def _synced(file: BinaryIO) -> None:
    file.write(bytes(4096))
    os.fsync(file.fileno())


def _shared() -> tuple[str, str] | None:
    """The same on a PostgreSQL of its own, which syncs; None where there is none."""
    try:
        import psycopg  # noqa: F401 - whether it is there
    except ImportError:
        return None
    sys.path.append(str(Path(__file__).parents[1] / "tests"))
    from servers import WHY_NOT, Server

    if WHY_NOT:
        return None
    with tempfile.TemporaryDirectory() as folder:
        server = Server(Path(folder), "-c fsync=on")
        try:
            with Ledger.open(server.address()) as ledger:
                rate, cpu = _charges(ledger)
        finally:
            server.stop()
    return f"{rate:,.0f}", f"{1e3 * cpu:.2f} ms of CPU each in the client"


if __name__ == "__main__":
    run(int(sys.argv[1]) if len(sys.argv) > 1 else LINES)
