"""A ledger's file: its owner, how it is made, and what is said where it cannot be used."""

import errno
import multiprocessing
import os
import sqlite3
import stat
import threading
from fractions import Fraction
from pathlib import Path

import pytest

from forking import forking
from hubbub.accounting import Budget, PrivacyLoss
from hubbub.errors import InvalidInput, LedgerFailed, Refused
from hubbub.ledger import Ledger
from hubbub.ledger.sqlite import SQLiteStore
from internals import store_of
from ledger.storage import PATIENT, account
from refusing import refused

TENTH = PrivacyLoss.pure(Fraction(1, 10))


@pytest.fixture
def path(folder):
    return folder / "visits.ledger"


def test_ledger_files_are_readable_by_the_owner_only(path):
    before = os.umask(0)
    try:
        with Ledger.open(path) as ledger:
            account(ledger).charge("a count", TENTH)
            owner = ledger.account("visits")
            owner.record_release(owner.record_charge("a count", TENTH).number, "42")
            files = sorted(path.parent.iterdir())
            assert [file.name for file in files] == [
                f"visits.ledger{ending}" for ending in ("", "-shm", "-wal", ".head", ".key")
            ]
            assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}
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
def test_other_files_are_refused_and_unchanged(path, content):
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


@pytest.mark.parametrize(("version", "refusal"), [(1, "an earlier version"), (4, "a later version")])
def test_ledger_of_another_format_version_is_refused(path, version, refusal):
    Ledger.open(path).close()
    connection = sqlite3.connect(path)
    connection.execute(f"PRAGMA user_version = {version}")
    connection.close()
    with refused(InvalidInput, refusal):
        Ledger.open(path)


def test_missing_folder_is_not_created(path):
    with refused(InvalidInput, "folder does not exist"):
        Ledger.open(path.parent / "nowhere" / "x.ledger")


def test_moved_ledger_is_not_created_again(path):
    ledger = Ledger.open(path)
    account(ledger)
    ledger.close()
    path.rename(path.with_name("elsewhere"))
    with refused(Refused, "moved, removed or replaced"):
        ledger.account("visits")
    with refused(Refused, "there was a ledger here, and it is gone"):
        Ledger.open(path)
    assert not path.exists()


def test_unwritable_file_charges_nothing(path):
    with Ledger.open(path) as ledger:
        account(ledger)

    def read_only(_where, **options):
        return sqlite3.connect(f"file:{path}?mode=ro", **options)

    ledger = Ledger(SQLiteStore(path, connect=read_only))
    spender = ledger.account("visits")
    with refused(LedgerFailed, "cannot be used"):
        spender.charge("a count", TENTH)
    assert spender.spent().epsilon == 0
    assert ledger.verify().ok
    ledger.close()


def test_writer_times_out_on_a_locked_ledger(path, monkeypatch):
    with Ledger.open(path) as ledger:
        account(ledger)
    monkeypatch.setattr("hubbub.ledger.sqlite.LOCK_TIMEOUT_SECONDS", 0.0)
    blocker = sqlite3.connect(path, isolation_level=None)
    blocker.execute("BEGIN IMMEDIATE")
    with Ledger.open(path) as ledger:
        spender = ledger.account("visits")
        with refused(LedgerFailed, "locked by others"):
            spender.charge("a count", TENTH)
        assert spender.spent().epsilon == 0
        blocker.close()
        spender.charge("a count", TENTH)


def test_first_writer_waits_for_another_that_is_first_too(path, monkeypatch):
    with Ledger.open(path) as ledger:
        account(ledger)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    # SQLite says "locked" at once where two processes start the log; the other is done after the first wait.
    monkeypatch.setattr("hubbub.ledger.sqlite.time.sleep", lambda _: other.rollback())
    with Ledger.open(path) as ledger:
        ledger.account("visits").charge("a count", TENTH)
        assert ledger.account("visits").spent().epsilon == Fraction(1, 10)
    other.close()


@pytest.mark.parametrize("state", ["locked", "corrupted"])
def test_backup_is_not_restored_beside_a_ledger_that_cannot_be_read_now(path, tmp_path, monkeypatch, state):
    with Ledger.open(path) as ledger:
        account(ledger).charge("a count", TENTH)
        ledger.backup(tmp_path / "backup")
    content = path.read_bytes()
    monkeypatch.setattr("hubbub.ledger.sqlite.LOCK_TIMEOUT_SECONDS", 0.0)
    other = sqlite3.connect(path, isolation_level=None)
    if state == "locked":
        other.execute("BEGIN EXCLUSIVE")
    else:
        path.write_bytes(content[:1000] + bytes(len(content) - 1000))
    with refused(Refused, "still exists"):
        Ledger.restore(tmp_path / "second.ledger", tmp_path / "backup", spent_since={})
    other.close()
    assert not (tmp_path / "second.ledger").exists()
    path.rename(path.with_name("away"))
    assert Ledger.restore(tmp_path / "second.ledger", tmp_path / "backup", spent_since={}).ok


def test_interrupted_charge_is_rolled_back(path):
    ledger = Ledger.open(path)
    spender = account(ledger)

    def interrupted(rows):
        rows.execute("DELETE FROM entries")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        store_of(ledger).write(interrupted)
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


def test_forked_process_must_open_the_ledger_itself(path):
    ledger = Ledger.open(path)
    spender = account(ledger)
    spender.charge("from the parent", TENTH)
    context = multiprocessing.get_context("fork")
    here, there = context.Pipe()
    child = context.Process(target=_charge_in_child, args=(ledger, path, there))
    with forking():
        child.start()
    child.join()
    assert (
        here.recv() == "a ledger that was opened belongs to the process that made it, and this is another one"
    )
    assert here.recv() == "charged"
    spender.charge("from the parent", TENTH)
    assert spender.spent().epsilon == Fraction(3, 10)
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
    assert spender.spent().epsilon == 2
    assert ledger.verify().ok
    ledger.close()


def test_charge_never_scans_the_entries(path):
    """So that it takes as long in a ledger of a million lines as in one of ten."""
    refusal = []

    class Watched(sqlite3.Connection):
        def execute(self, text, arguments=()):
            if text.startswith(("SELECT", "INSERT", "UPDATE")):
                refusal.append(text)
                for row in super().execute(f"EXPLAIN QUERY PLAN {text}", arguments):
                    plan = row[3]
                    is_short = "ORDER BY number DESC LIMIT 1" in text or "FROM location" in text
                    assert not plan.startswith("SCAN") or is_short, (text, plan)
            return super().execute(text, arguments)

    store = SQLiteStore(
        path, connect=lambda *arguments, **options: sqlite3.connect(*arguments, factory=Watched, **options)
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
    assert len(refusal) > 20
    ledger.close()


def test_errors_contain_no_data(path):
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


def test_concurrent_creation_makes_one_ledger(path):
    ledgers = []
    threads = [threading.Thread(target=lambda: ledgers.append(Ledger.open(path))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(ledgers) == 8
    for ledger in ledgers:
        ledger.account("visits", PATIENT, Budget(1)).charge("a count", TENTH)
    assert ledgers[0].account("visits").spent().epsilon == Fraction(8, 10)
    assert ledgers[0].verify().entries == 9
    for ledger in ledgers:
        ledger.close()
    assert sorted(file.name for file in path.parent.iterdir()) == ["visits.ledger", "visits.ledger.head"]


def test_relative_path_is_resolved_at_opening(path, monkeypatch, tmp_path):
    monkeypatch.chdir(path.parent)
    ledger = Ledger.open(path.name)
    account(ledger)
    ledger.close()
    monkeypatch.chdir(tmp_path)
    ledger.account("visits").charge("a count", TENTH)
    ledger.close()
    with Ledger.open(path) as again:
        assert again.account("visits").spent().epsilon == Fraction(1, 10)
    assert not list(tmp_path.iterdir())


def test_file_name_that_looks_like_a_url_is_a_file(folder):
    path = folder / "a b?mode=memory#c%20d.ledger"
    with Ledger.open(path) as ledger:
        account(ledger).charge("a count", TENTH)
    with Ledger.open(path) as ledger:
        assert ledger.account("visits").spent().epsilon == Fraction(1, 10)
    assert sorted(file.name for file in folder.iterdir()) == [path.name, f"{path.name}.head"]


def test_hard_link_is_refused_and_a_leftover_of_creation_is_removed(folder):
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


def every_door(path, other):
    """What opens a ledger at a path, or writes a backup there."""
    yield lambda: Ledger.open(path).close()
    yield lambda: Ledger.open_read_only(path).close()
    yield lambda: Ledger.restore(path, spent_since={})
    yield lambda: Ledger.restore(other.with_name("new.ledger"), path, spent_since={})
    yield lambda: other_ledger_backup(other, path)


def other_ledger_backup(other, path):
    with Ledger.open(other) as ledger:
        ledger.backup(path)


@pytest.mark.parametrize(
    ("name", "kind", "match"),
    [
        ("n" * 300, LedgerFailed, "too long"),
        ("n" * 250, LedgerFailed, "too long"),  # its log would be
        ("d/" * 3000 + "l.db", LedgerFailed, "too long"),
        ("circle", InvalidInput, "leads to no file"),
        ("circle/visits.ledger", InvalidInput, "leads to no file"),
        ("/", InvalidInput, "^/, given as the ledger, is a folder"),
        ("a\0b", InvalidInput, "leads to no file"),
        ("a\udcff", InvalidInput, "leads to no file"),
        ("folder", InvalidInput, "folder, given as the ledger, is a folder"),
        ("pipe", InvalidInput, "is no regular file"),
        (5, InvalidInput, "neither a path nor a URL"),
        (b"visits.ledger", InvalidInput, "neither a path nor a URL"),
    ],
    ids=lambda each: repr(each)[:20],
)
def test_paths_of_no_ledger_are_refused_in_our_words(folder, monkeypatch, name, kind, match):
    """Errors of the system came out of the look for a log, and of the path itself."""
    (folder / "folder").mkdir()
    (folder / "circle").symlink_to("circle")
    os.mkfifo(folder / "pipe")
    monkeypatch.chdir(folder)
    for door in every_door(name, folder / "other.ledger"):
        with refused(kind, match):
            door()
    left = {each.name.partition(".")[0] for each in folder.iterdir()}
    assert left <= {"folder", "circle", "pipe", "other"}  # no half of a file


@pytest.mark.parametrize(
    ("ending", "is_there"), [("", True), ("", False), ("-wal", True), ("-wal", False), ("-journal", False)]
)
def test_a_folder_closed_to_this_user_is_an_error_of_ours(folder, monkeypatch, ending, is_there):
    path = folder / "visits.ledger"
    if is_there:
        with Ledger.open(path) as ledger:
            account(ledger)
    look = Path.stat

    def refuse(self, **options):
        if self.name == f"visits.ledger{ending}":
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(self))
        return look(self, **options)

    monkeypatch.setattr(Path, "stat", refuse)
    doors = list(every_door(path, folder / "other.ledger"))
    for door in doors if ending == "" else doors[:1]:
        with refused(LedgerFailed, r"visits.ledger cannot be used \(permission denied\)"):
            door()


def test_an_open_ledger_in_a_folder_that_is_closed_since_charges_nothing(path, monkeypatch):
    with Ledger.open(path) as ledger:
        spender = account(ledger)

        def refuse(*_):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

        with monkeypatch.context() as patch:
            patch.setattr(os, "stat", refuse)
            patch.setattr(Path, "stat", refuse)
            with pytest.raises((LedgerFailed, Refused)):
                spender.charge("a count", TENTH)
        assert Ledger.open(path).account("visits").spent().epsilon == 0
