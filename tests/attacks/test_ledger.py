"""The ledger is one thing.

| row | what an attacker does | mutant |
|---|---|---|
| A40-copy | copies the file of an open ledger, without its log: the copy has a fresh budget | Anywhere |
| A40-moved | moves an open ledger: the old handle and a new one each spend the whole budget | Anywhere |
| A40-older | puts an older copy over the ledger, or into its place after it was removed | Anywhere |
| A40-gone | moves the ledger away, and opens a new one of the same name | Anywhere |
| A40-deleted | deletes the ledger and all files beside it, and opens a new one | Anywhere |
| A41 | forks eight children, of which each spends the whole of an account in memory | InEveryChild |
| A42 | plants a made-up answer under a question that somebody will ask | Believing |
| A42-blocked | keeps everybody from asking a question by a line of cost 0 under its key | Blocked |
| A42-odd | writes lines with JSON that makes `verify` fail | raises_at_odd_lines |
| A45 | charges a loss of a class of her own, which says that it costs nothing | TakesItsWord |
"""

import os
import shutil
import subprocess
import sys
import tempfile
from contextlib import contextmanager, suppress
from fractions import Fraction
from pathlib import Path

from attacks import mutants_ledger as mutants
from attacks.rows import Row, both_tests
from hubbub.accounting import Budget, ComposableCost, PrivacyLoss
from hubbub.accounting.in_memory_account import InMemoryAccount
from hubbub.errors import HubbubError
from hubbub.ledger import Ledger, LedgerAccount
from hubbub.ledger.entries import Entries, digest
from hubbub.ledger.signing import Seal
from hubbub.ledger.sqlite import SQLiteStore
from hubbub.unit import Unit
from internals import seal_of, store_of

PATIENT = Unit("patient")
MOST = PrivacyLoss.pure(Fraction(9, 10))


@contextmanager
def _folder():
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


def _open_data(store, path):
    ledger = Ledger(store(path))
    return ledger, ledger.account("visits", PATIENT, Budget(1))


def _spends(store, path):
    """Whether most of a budget could be spent there."""
    try:
        ledger, account = _open_data(store, path)
    except HubbubError:
        return False
    return _charges(account, ledger)


def _charges(account, ledger=None):
    try:
        account.charge("a count", MOST)
    except HubbubError:
        return False
    finally:
        if ledger is not None:
            ledger.close()
    return True


ELSEWHERE = """
import importlib, sys
from attacks.test_ledger import _spends
store = getattr(importlib.import_module(sys.argv[1]), sys.argv[2])
sys.exit(0 if _spends(store, __import__("pathlib").Path(sys.argv[3])) else 1)
"""


def _spends_in_another_process(store, path):
    """SQLite knows within one process that two names are of one file; two processes do not."""
    words = [sys.executable, "-c", ELSEWHERE, store.__module__, store.__name__, str(path)]
    process = subprocess.run(words, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}, check=False)
    return process.returncode == 0


def attack_A40_copy(target):
    with _folder() as folder:
        path = folder / "visits.ledger"
        _open_data(target, path)[0].close()
        ledger, account = _open_data(target, path)
        spent = _charges(account)
        shutil.copy(path, folder / "copy")
        spent_again = _spends(target, folder / "copy")
        ledger.close()
        return spent and spent_again


def attack_A40_moved(target):
    with _folder() as folder:
        path = folder / "visits.ledger"
        _open_data(target, path)[0].close()
        ledger, account = _open_data(target, path)
        account.record_nonprivate_access("all rows")  # what is open is in use
        path.rename(folder / "moved")
        spent = [_charges(account), _spends_in_another_process(target, folder / "moved")]
        ledger.close()
        return all(spent)


def attack_A40_older(target):
    def over(path, before):
        path.write_bytes(before)

    def instead(path, before):
        path.unlink()
        path.write_bytes(before)

    results = []
    for replace in (over, instead):
        with _folder() as folder:
            path = folder / "visits.ledger"
            _open_data(target, path)[0].close()
            before = path.read_bytes()
            spent = _spends(target, path)
            replace(path, before)
            results.append(spent and _spends(target, path))
    return any(results)


def attack_A40_gone(target):
    with _folder() as folder:
        path = folder / "visits.ledger"
        spent = _spends(target, path)
        path.rename(folder / "away")
        return spent and _spends(target, path)


def attack_A40_deleted(target):
    with _folder() as folder:
        path = folder / "visits.ledger"
        spent = _spends(target, path)
        for file in folder.glob("visits.ledger*"):
            file.unlink()
        return spent and _spends(target, path)


def attack_A41(target):
    account = target(Budget(1))
    children = []
    for _ in range(8):
        child = os.fork()
        if child == 0:
            code = 1
            with suppress(HubbubError):
                account.charge("a count", PrivacyLoss.pure(1))
                code = 0
            os._exit(code)
        children.append(child)
    return sum(os.waitpid(child, 0)[1] == 0 for child in children) > 1


def attack_A42(target):
    """She can write the database, or the file; she does not have the key."""
    with _folder() as folder:
        store = SQLiteStore(folder / "visits.ledger")
        account = Ledger(store, target()).account("visits", PATIENT, Budget(1))
        requests = {"key": "k", "fingerprint": "q"}
        number = account.record_charge("a count", PrivacyLoss.pure(Fraction(1, 10)), **requests).number
        first = account.record_charge("a sum", PrivacyLoss.pure(Fraction(1, 10))).number
        account.record_release(first, "a true answer of another question")

        def plant(text):
            def work(rows):
                entries = Entries(rows)
                line = entries.append("visits", "release", "", {"charge": number, "digest": digest(text)})
                rows.execute("DELETE FROM releases WHERE number = ?", (number,))
                entries.store_release(number, line.number, text)

            return work

        copied = store.read(lambda rows: Entries(rows).get_release("visits", first))
        seen = []
        for text in ("made up", f"hmac/1 {'0' * 64} made up", "hmac/1  made up", copied):
            store.write(plant(text))
            charge = account.record_charge("a count", PrivacyLoss.pure(Fraction(1, 10)), **requests)
            seen.append(None if charge.is_new else account.get_release(charge.number))
            number = charge.number
        store.close()
        return any(text is not None for text in seen)


def attack_A42_blocked(target):
    with _folder() as folder:
        store = SQLiteStore(folder / "visits.ledger")
        ledger = Ledger(store)
        ledger.account("visits", PATIENT, Budget(1))
        account = target(store, "visits", PATIENT, seal=seal_of(ledger))
        blocked = 0
        bodies = [
            {
                "fingerprint": "q",
                "loss": {"kind": "privacy-loss/1", "alternatives": [[]]},
                "charged": {"": {"epsilon": "0", "delta": "0"}},
            },
            {"fingerprint": "other", "key": "k", "loss": None, "charged": None},
            {},
        ]
        for number, body in enumerate(bodies):
            key = f"k{number}"

            def plant(rows, body=body, key=key):
                line = Entries(rows).append("visits", "charge", "eve", body)
                Entries(rows).store_charge("visits", key, line.number)

            store.write(plant)
            try:
                account.record_charge("a count", PrivacyLoss.pure(Fraction(1, 10)), key=key, fingerprint="q")
            except HubbubError:
                blocked += 1
        store.close()
        return blocked > 0


ODD = [
    {"charged": {"": {"epsilon": "1/0", "delta": "0"}}},
    {"charged": {"": {"epsilon": "1e999999999", "delta": "0"}}},
    {"charged": {"": {"epsilon": float("nan")}}, "loss": float("inf")},
    {"key": [], "charge": {}, "names": {}, "replaces": []},
    [[[[]]]],
    {"filter": "1e9", "window": {"start": 5}, "loss": {"kind": "privacy-loss/1", "alternatives": 5}},
]


def attack_A42_odd(target):
    with _folder() as folder:
        ledger = Ledger.open(folder / "visits.ledger")
        account = ledger.account("visits", PATIENT, Budget(1))
        account.charge("a count", PrivacyLoss.pure(Fraction(1, 10)))
        facts = list(ledger.entries())[-1].body
        for kind in ("charge", "release", "view", "grant", "open", "claim", "restore", "version", "close"):
            for odd in ODD:
                body = {**facts, **odd} if isinstance(odd, dict) else odd
                store_of(ledger).write(
                    lambda rows, kind=kind, body=body: Entries(rows).append("visits", kind, "", body)
                )
        try:
            target(ledger)
        except Exception:
            return True
        finally:
            ledger.close()
    return False


class _Cheap(PrivacyLoss):
    """A loss that says it costs nothing."""

    def cost(self, orders=None):
        del orders
        return ComposableCost.of(0, mu_squared=0)


def attack_A45(target):
    account = target(Budget(1))
    try:
        account.charge("everything", _Cheap(PrivacyLoss.pure(50).alternatives))
    except HubbubError:
        return False
    return True


STORES = {"SQLite": SQLiteStore}

ROWS: list[Row] = [
    Row("A40-copy", attack_A40_copy, STORES, mutants.Anywhere),
    Row("A40-moved", attack_A40_moved, STORES, mutants.Anywhere),
    Row("A40-older", attack_A40_older, STORES, mutants.Anywhere),
    Row("A40-gone", attack_A40_gone, STORES, mutants.Anywhere),
    Row("A40-deleted", attack_A40_deleted, STORES, mutants.Anywhere),
    Row("A41", attack_A41, {"Spending": InMemoryAccount}, mutants.InEveryChild),
    Row("A42", attack_A42, {"Seal": Seal}, mutants.Believing),
    Row("A42-blocked", attack_A42_blocked, {"Account": LedgerAccount}, mutants.Blocked),
    Row("A42-odd", attack_A42_odd, {"verify": Ledger.verify}, mutants.raises_at_odd_lines),
    Row("A45", attack_A45, {"Spending": InMemoryAccount}, mutants.TakesItsWord),
]

test_ours_resists, test_mutant_falls = both_tests(ROWS)
