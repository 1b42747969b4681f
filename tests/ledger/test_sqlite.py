"""A ledger's file: whose it is, how it is made, and what is said where it cannot be used."""

import multiprocessing
import os
import sqlite3
import stat
import threading
from fractions import Fraction

import pytest

from forking import forking
from hubbub.accounting import Budget, PrivacyLoss
from hubbub.errors import InvalidInput, LedgerFailed, Refused
from hubbub.ledger import Ledger
from hubbub.ledger.sqlite import SQLiteStore
from ledger.places import PATIENT, account
from refusing import refused

TENTH = PrivacyLoss.pure(Fraction(1, 10))


@pytest.fixture
def path(folder):
    return folder / "visits.ledger"


def test_only_its_owner_can_read_the_file_and_all_that_is_beside_it(path):
    before = os.umask(0)
    try:
        with Ledger.open(path) as ledger:
            account(ledger).charge("a count", TENTH)
            owner = ledger.account("visits")
            owner.record_release(owner.record_charge("a count", TENTH).number, "42")
            made = sorted(path.parent.iterdir())
            assert [file.name for file in made] == [
                f"visits.ledger{ending}" for ending in ("", "-shm", "-wal", ".head", ".key")
            ]
            assert {stat.S_IMODE(file.stat().st_mode) for file in made} == {0o600}
    finally:
        os.umask(before)
    left = sorted(file.name for file in path.parent.iterdir())
    assert left == ["visits.ledger", "visits.ledger.head", "visits.ledger.key"]


def test_every_commit_is_synced(path):
    store = SQLiteStore(path)
    settings = store.write(
        lambda rows: [rows.execute(f"PRAGMA {name}")[0][0] for name in ("synchronous", "journal_mode")]
    )
    assert settings == [3, "wal"]  # EXTRA
    at_rest = SQLiteStore(path)
    for one in (store, at_rest):
        one.close()
    assert at_rest.read(lambda rows: rows.execute("PRAGMA journal_mode")) == [("delete",)]


@pytest.mark.parametrize("content", [b"", b"not a database" * 100, None])
def test_what_is_not_a_ledger_is_refused_and_not_changed(path, content):
    if content is None:
        with sqlite3.connect(path) as connection:
            connection.execute("CREATE TABLE entries (number)")
        connection.close()
    else:
        path.write_bytes(content)
    before = path.read_bytes()
    with pytest.raises((InvalidInput, LedgerFailed)):
        Ledger.open(path)
    assert path.read_bytes() == before


@pytest.mark.parametrize(("version", "said"), [(1, "an earlier version"), (4, "a later version")])
def test_a_ledger_of_another_version_is_refused(path, version, said):
    Ledger.open(path).close()
    connection = sqlite3.connect(path)
    connection.execute(f"PRAGMA user_version = {version}")
    connection.close()
    with refused(InvalidInput, said):
        Ledger.open(path)


def test_a_folder_that_is_not_there_is_not_made(path):
    with refused(InvalidInput, "folder does not exist"):
        Ledger.open(path.parent / "nowhere" / "x.ledger")


def test_a_ledger_that_was_moved_away_is_missed_not_made_anew(path):
    ledger = Ledger.open(path)
    account(ledger)
    ledger.close()
    path.rename(path.with_name("elsewhere"))
    with refused(Refused, "moved, removed or replaced"):
        ledger.account("visits")
    with refused(Refused, "there was a ledger here, and it is gone"):
        Ledger.open(path)
    assert not path.exists()


def test_a_file_that_cannot_be_written_charges_nothing(path):
    with Ledger.open(path) as ledger:
        account(ledger)

    def read_only(_where, **named):
        return sqlite3.connect(f"file:{path}?mode=ro", **named)

    ledger = Ledger(SQLiteStore(path, connect=read_only))
    spender = ledger.account("visits")
    with refused(LedgerFailed, "cannot be used"):
        spender.charge("a count", TENTH)
    assert spender.spent.epsilon == 0
    assert ledger.verify().ok
    ledger.close()


def test_a_writer_does_not_wait_for_ever(path, monkeypatch):
    with Ledger.open(path) as ledger:
        account(ledger)
    monkeypatch.setattr("hubbub.ledger.sqlite._LOCK_TIMEOUT_SECONDS", 0.0)
    blocker = sqlite3.connect(path, isolation_level=None)
    blocker.execute("BEGIN IMMEDIATE")
    with Ledger.open(path) as ledger:
        spender = ledger.account("visits")
        with refused(LedgerFailed, "locked by others"):
            spender.charge("a count", TENTH)
        assert spender.spent.epsilon == 0
        blocker.close()
        spender.charge("a count", TENTH)


def test_an_interrupted_charge_is_undone_and_the_ledger_goes_on(path):
    ledger = Ledger.open(path)
    spender = account(ledger)

    def interrupted(rows):
        rows.execute("DELETE FROM entries")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ledger._store.write(interrupted)
    spender.charge("a count", TENTH)
    assert ledger.verify().ok
    ledger.close()


def _charge_in_child(ledger, path, pipe):
    try:
        ledger.account("visits").charge("from the child", TENTH)
    except Refused as refusal:
        pipe.send(refusal.what)
    ledger.close()
    with Ledger.open(path) as mine:
        mine.account("visits").charge("from the child", TENTH)
    pipe.send("charged")


def test_a_forked_process_opens_a_ledger_of_its_own(path):
    ledger = Ledger.open(path)
    spender = account(ledger)
    spender.charge("from the parent", TENTH)
    context = multiprocessing.get_context("fork")
    here, there = context.Pipe()
    child = context.Process(target=_charge_in_child, args=(ledger, path, there))
    with forking():
        child.start()
    child.join()
    assert here.recv() == "a ledger that was opened belongs to the process that made it, and this is another"
    assert here.recv() == "charged"
    spender.charge("from the parent", TENTH)
    assert spender.spent.epsilon == Fraction(3, 10)
    assert ledger.verify().ok
    ledger.close()


def test_threads_share_a_ledger(path):
    ledger = Ledger.open(path)
    spender = account(ledger, 2)
    threads = [
        threading.Thread(target=lambda: [spender.charge("a count", TENTH) for _ in range(5)])
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert spender.spent.epsilon == 2
    assert ledger.verify().ok
    ledger.close()


def test_no_step_of_a_charge_looks_through_the_lines(path):
    """So that it takes as long in a ledger of a million lines as in one of ten."""
    said = []

    class Watched(sqlite3.Connection):
        def execute(self, text, given=()):
            if text.startswith(("SELECT", "INSERT", "UPDATE")):
                said.append(text)
                for row in super().execute(f"EXPLAIN QUERY PLAN {text}", given):
                    plan = row[3]
                    is_short = "ORDER BY number DESC LIMIT 1" in text or "FROM location" in text
                    assert not plan.startswith("SCAN") or is_short, (text, plan)
            return super().execute(text, given)

    store = SQLiteStore(
        path, connect=lambda *given, **named: sqlite3.connect(*given, factory=Watched, **named)
    )
    ledger = Ledger(store)
    owner = account(ledger)
    owner.grant("ada", Budget(1))
    owner.grant("bob", Budget(1))
    ada = owner.for_analyst("ada")
    number = ada.record_charge("a count", TENTH, key="monday").number
    ada.record_release(number, "42")
    owner.for_analyst("bob").record_charge("a count", TENTH, key="monday")
    assert ada.get_release(number) == "42"
    assert ledger.account("visits").remaining().epsilon == Fraction(9, 10)
    assert ledger.accounts() == ["visits"]
    assert len(said) > 20
    ledger.close()


def test_errors_hold_no_data(path):
    with Ledger.open(path) as ledger:
        spender = account(ledger)
        with sqlite3.connect(path) as connection:
            connection.execute("DROP TABLE views")
            connection.execute("ALTER TABLE charges RENAME TO secret_of_alice")
        connection.close()
        with refused(LedgerFailed) as caught:
            spender.charge("a count", TENTH)
    assert "alice" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_two_who_make_it_at_once_make_one(path):
    ledgers = []
    threads = [threading.Thread(target=lambda: ledgers.append(Ledger.open(path))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(ledgers) == 8
    for ledger in ledgers:
        ledger.account("visits", PATIENT, Budget(1)).charge("a count", TENTH)
    assert ledgers[0].account("visits").spent.epsilon == Fraction(8, 10)
    assert ledgers[0].verify().entries == 9
    for ledger in ledgers:
        ledger.close()
    assert sorted(file.name for file in path.parent.iterdir()) == ["visits.ledger", "visits.ledger.head"]


def test_a_path_means_the_same_file_wherever_one_goes(path, monkeypatch, tmp_path):
    monkeypatch.chdir(path.parent)
    ledger = Ledger.open(path.name)
    account(ledger)
    ledger.close()
    monkeypatch.chdir(tmp_path)
    ledger.account("visits").charge("a count", TENTH)
    ledger.close()
    with Ledger.open(path) as again:
        assert again.account("visits").spent.epsilon == Fraction(1, 10)
    assert not list(tmp_path.iterdir())


def test_a_name_that_looks_like_an_address_is_a_file_s(folder):
    path = folder / "a b?mode=memory#c%20d.ledger"
    with Ledger.open(path) as ledger:
        account(ledger).charge("a count", TENTH)
    with Ledger.open(path) as ledger:
        assert ledger.account("visits").spent.epsilon == Fraction(1, 10)
    assert sorted(file.name for file in folder.iterdir()) == [path.name, f"{path.name}.head"]


def test_a_file_with_two_names_is_refused_and_one_left_by_its_maker_is_mended(folder):
    path = folder / "visits.ledger"
    Ledger.open(path).close()
    os.link(path, folder / ".visits.ledger.abc")  # as a crash may leave it
    Ledger.open(path).close()
    assert not (folder / ".visits.ledger.abc").exists()
    (folder / "symbolic").symlink_to(path)
    Ledger.open(folder / "symbolic").close()
    os.link(path, folder / "second")
    for name in (path, folder / "second"):
        with pytest.raises(Refused, match="second name"):
            Ledger.open(name)
