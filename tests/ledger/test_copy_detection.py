"""A ledger is one thing: a copy, a moved file and an older state in its place are known for what they are."""

import json
import os
import shutil
import sqlite3
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import pytest

from cli.terminal import run
from hubbub.accounting import PrivacyLoss
from hubbub.errors import BudgetExceeded, HubbubError, InvalidInput, LedgerFailed, Refused
from hubbub.ledger import Ledger
from hubbub.ledger.copy_detection import is_same_location, locate
from hubbub.ledger.entries import Entries
from hubbub.ledger.sqlite import SQLiteStore
from ledger.storage import account, forget

TENTH, HALF, ALL = (PrivacyLoss.pure(Fraction(1, bottom)) for bottom in (10, 2, 1))


@pytest.fixture
def path(folder):
    """A ledger of which half is spent."""
    path = folder / "visits.ledger"
    with Ledger.open(path) as ledger:
        account(ledger).charge("a count", HALF)
    return path


def spend(path, loss=HALF):
    with Ledger.open(path) as ledger:
        account(ledger).charge("a count", loss)


def spent(path):
    with Ledger.open_read_only(path) as ledger:
        return ledger.account("visits").spent().epsilon


def copied(path):
    shutil.copy(path, path.with_name("copy"))
    return path.with_name("copy")


def moved(path):
    return path.rename(path.with_name("moved"))


def in_another_folder(path):
    (path.parent / "folder").mkdir()
    return path.rename(path.parent / "folder" / path.name)


def removed_and_copied_back(path):
    """A file that is made anew may get the number of the one that was removed."""
    content = path.read_bytes()
    path.unlink()
    path.write_bytes(content)
    return path


def linked_and_unlinked(path):
    os.link(path, path.with_name("second"))
    path.unlink()
    return path.with_name("second")


@pytest.mark.parametrize(
    "change", [copied, moved, in_another_folder, removed_and_copied_back, linked_and_unlinked]
)
def test_copied_or_moved_ledger_is_refused_until_restored(path, change):
    there = change(path)
    with pytest.raises(Refused, match="a copy, or was moved"):
        Ledger.open(there)
    with Ledger.open_read_only(there) as ledger:
        assert ledger.account("visits").spent().epsilon == Fraction(1, 2)
        assert "a copy, or was moved" in ledger.verify().problem
        with pytest.raises(Refused, match="opened read-only"):
            ledger.account("visits").charge("a count", TENTH)
    if change is copied:
        with pytest.raises(Refused, match="still exists"):
            Ledger.restore(there, spent_since={})
        path.unlink()
    assert Ledger.restore(there, spent_since={"visits": TENTH}).ok
    assert spent(there) == Fraction(6, 10)
    spend(there, TENTH)
    with pytest.raises(Refused, match="nothing to confirm"):
        Ledger.restore(there, spent_since={})


def test_folder_may_be_renamed_and_linked(path):
    (path.parent / "link").symlink_to(path)
    spend(path.parent / "link", TENTH)
    folder = path.parent / "inner"
    folder.mkdir()
    with Ledger.open(folder / "x") as ledger:
        account(ledger)
    folder = folder.rename(path.parent / "renamed")
    spend(folder / "x")
    assert spent(folder / "x") == Fraction(1, 2)


def test_location_ignores_the_device_number(path):
    here = locate(path)
    assert str(path.stat().st_dev) not in here.split()
    assert is_same_location(here, here)
    without = json.dumps({**json.loads(here), "created": None})
    assert is_same_location(without, here)
    assert not is_same_location(json.dumps({**json.loads(here), "created": "1"}), here)
    for odd in ("", "[]", "{}", "null", "[" * 10**5, None, 5):
        assert not is_same_location(odd, here)


@pytest.mark.parametrize("change", [copied, moved, in_another_folder])
def test_open_ledger_refuses_a_replaced_file(path, change):
    ledger = Ledger.open(path)
    spender = ledger.account("visits")
    spender.charge("a count", TENTH)
    there = change(path)
    if change is copied:
        spender.charge("a count", TENTH)
    else:
        with pytest.raises(Refused, match="moved, removed or replaced"):
            spender.charge("a count", TENTH)
        with pytest.raises(HubbubError):
            ledger.account("visits")
    with pytest.raises(HubbubError):  # the log was left behind
        Ledger.restore(there, spent_since={})
    ledger.close()


def test_open_ledger_leaves_the_replacing_file_alone(path):
    ledger = Ledger.open(path)
    spender = ledger.account("visits")
    spender.charge("a count", TENTH)
    removed_and_copied_back(path)
    with pytest.raises(Refused, match="moved, removed or replaced"):
        spender.charge("a count", TENTH)
    Ledger.restore(path, spent_since={})  # with what is in the log, which lies under its name
    other = Ledger.open(path)
    other.account("visits").charge("a count", TENTH)
    ledger.close()
    other.account("visits").charge("a count", TENTH)
    other.close()
    assert spent(path) == Fraction(8, 10)
    with Ledger.open(path) as result:
        assert result.verify().ok


def test_older_state_copied_over_the_ledger_is_refused(path):
    before = path.read_bytes()
    spend(path)
    path.write_bytes(before)
    with pytest.raises(Refused, match="replaced by an older state"):
        Ledger.open(path)
    with Ledger.open_read_only(path) as ledger:
        assert "an older state" in ledger.verify().problem
    with pytest.raises(Refused, match="something was spent since"):
        Ledger.restore(path, spent_since={})
    Ledger.restore(path, spent_since={"visits": HALF})
    assert spent(path) == 1


def test_older_state_with_an_older_head_file_is_refused(path):
    note = path.with_name("visits.ledger.head")
    before = path.read_bytes(), note.read_bytes()
    spend(path)
    path.write_bytes(before[0])
    note.write_bytes(before[1])
    with pytest.raises(Refused, match="replaced by an older state"):
        Ledger.open(path)
    Ledger.restore(path, spent_since={"visits": HALF})
    assert spent(path) == 1


def test_verify_during_charges_reports_no_older_state(path, monkeypatch):
    with Ledger.open(path) as ledger:
        account(ledger).charge("a count", TENTH)
        real = Entries.iterate

        def meanwhile(self):
            yield from real(self)
            monkeypatch.setattr(Entries, "iterate", real)
            spend(path, TENTH)

        monkeypatch.setattr(Entries, "iterate", meanwhile)
        assert ledger.verify().ok
    assert spent(path) == Fraction(7, 10)


def test_user_without_a_home_folder_can_keep_a_ledger(path, monkeypatch):
    for name in ("XDG_STATE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Path, "home", _nowhere)
    spend(path, TENTH)
    assert spent(path) == Fraction(6, 10)


def test_relative_xdg_folder_is_ignored(path, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", "state")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    spend(path, TENTH)
    assert [each.name for each in tmp_path.iterdir()] == ["home"]


def _nowhere():
    raise RuntimeError


def test_restore_by_one_user_holds_for_others(path, monkeypatch, tmp_path):
    before = path.read_bytes()
    spend(path, TENTH)
    path.write_bytes(before)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))  # hers, who knows less
    Ledger.restore(path, spent_since={"visits": TENTH})
    monkeypatch.undo()
    spend(path, TENTH)


def test_open_ledger_finds_an_older_state_without_head_files(path):
    before = path.read_bytes()
    with Ledger.open(path) as ledger:
        spender = ledger.account("visits")
        spender.charge("a count", TENTH)
        ledger.close()
        forget(path)
        path.write_bytes(before)
        with pytest.raises(Refused, match="an older state"):
            spender.charge("a count", TENTH)


@pytest.mark.parametrize("content", ["", "nonsense", "a b c", "x 1 y", "\0" * 50])
def test_head_files_may_be_lost(path, content):
    path.with_name("visits.ledger.head").write_text(content)
    spend(path, TENTH)
    assert len(path.with_name("visits.ledger.head").read_text().split()) == 4


@pytest.mark.parametrize("is_beside", [True, False], ids=["beside", "in the state folder"])
@pytest.mark.parametrize("length", [0, 60, 130], ids=["empty", "half", "another's checksum"])
def test_deleted_ledger_with_a_damaged_head_file_is_not_replaced_by_a_new_one(path, length, is_beside):
    # A machine that stops while the head is written keeps half of it, and has lost no ledger by that.
    head = path.with_name("visits.ledger.head")
    whole = head.read_bytes()
    if is_beside:
        forget(path)
    for file in path.parent.iterdir():
        file.unlink()
    if not is_beside:
        with pytest.raises(Refused, match="there was a ledger here") as refused:
            Ledger.open(path)
        head = Path(refused.value.fix.rpartition(", and ")[2])
    head.write_bytes(whole[:length] + b"0" * (len(whole) - length) if length else b"")
    with pytest.raises(Refused, match="there was a ledger here"):
        Ledger.open(path)
    head.unlink()
    spend(path, ALL)


def test_head_that_is_half_written_is_read_again(path, monkeypatch):
    # A reader may see half of one write and half of the next: a number with the digest of another entry.
    note = path.with_name("visits.ledger.head")
    spend(path, TENTH)
    whole = note.read_text()
    ledger_id, number, digest, check = whole.split()
    note.write_text(f"{ledger_id} {number} {digest[:32]}{'0' * 32} {check}\n")
    pauses = []
    monkeypatch.setattr(
        "hubbub.ledger.copy_detection.time.sleep", lambda _: (pauses.append(1), note.write_text(whole))
    )
    spend(path, TENTH)
    assert pauses == [1]
    assert spent(path) == Fraction(7, 10)


@pytest.mark.parametrize("is_renamed", [False, True], ids=["here", "renamed folder"])
def test_deleted_ledger_is_not_replaced_by_a_new_one(path, is_renamed):
    for file in path.parent.iterdir():
        file.unlink()  # rm visits.ledger*, head file and all
    if is_renamed:
        path = path.parent.rename(path.parent.with_name(f"{path.parent.name} renamed")) / path.name
    with pytest.raises(Refused, match="there was a ledger here") as refused:
        Ledger.open(path)
    assert not list(path.parent.iterdir())
    Path(refused.value.fix.rpartition(", and ")[2]).unlink()  # on purpose, as the refusal says
    spend(path, ALL)
    if is_renamed:
        path.parent.rename(path.parent.with_name(path.parent.name.removesuffix(" renamed")))


def test_deleted_ledger_is_restored_from_a_backup(path, tmp_path):
    with Ledger.open(path) as ledger:
        ledger.backup(tmp_path / "backup")
    for file in path.parent.iterdir():
        file.unlink()
    Ledger.restore(path, tmp_path / "backup", spent_since={})
    assert spent(path) == Fraction(1, 2)
    spend(path)


def test_ledger_in_a_new_folder_of_the_same_name_is_a_new_one(path):
    old, new = path.parent / "old" / path.name, path.parent / "new" / path.name
    for each in (old, new):
        each.parent.mkdir()
        spend(each, ALL)
    shutil.rmtree(new.parent)
    new.parent.mkdir()
    spend(new, ALL)


def test_empty_ledger_may_be_deleted(folder):
    Ledger.open(folder / "empty.ledger").close()
    (folder / "empty.ledger").unlink()
    spend(folder / "empty.ledger", ALL)


def test_no_new_ledger_is_created_where_one_is_missing(path):
    path.rename(path.with_name("elsewhere"))
    with pytest.raises(Refused, match="there was a ledger here") as refused:
        spend(path)
    path.with_name("visits.ledger.head").unlink()
    Path(refused.value.fix.rpartition(", and ")[2]).unlink()
    spend(path)


KILLED = """
import os, signal, sys
from hubbub.ledger import Ledger
from hubbub.accounting import PrivacyLoss
ledger = Ledger.open(sys.argv[1])
ledger.account("visits").charge("a count", PrivacyLoss.pure(0.25))
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_log_of_a_killed_process_is_not_lost_by_a_move(path):
    subprocess.run([sys.executable, "-c", KILLED, str(path)], check=False)
    log = path.with_name("visits.ledger-wal")
    assert log.stat().st_size > 0
    there = moved(path)
    with pytest.raises(Refused, match="left behind"):
        Ledger.restore(there, spent_since={})
    assert run("ledger", "verify", "--ledger", str(there)).code == 1
    with pytest.raises(Refused, match="left behind"):  # looking changes nothing
        Ledger.restore(there, spent_since={})
    with pytest.raises(Refused, match="there was a ledger here"):
        Ledger.open(path)
    shutil.copy(log, there.with_name("moved-wal"))
    Ledger.restore(there, spent_since={})
    assert spent(there) == Fraction(3, 4)
    with Ledger.open(there) as ledger:
        ledger.backup(there.with_name("backup"))
    there.unlink()
    with pytest.raises(Refused, match="the log of an earlier ledger"):
        Ledger.restore(path, there.with_name("backup"), spent_since={})


NOT_CLOSED = """
import sys
from hubbub.ledger import Ledger
from hubbub.accounting import PrivacyLoss
ledger = Ledger.open(sys.argv[1])
ledger.account("visits").charge("a count", PrivacyLoss.pure(0.25))
"""


def test_unclosed_ledger_is_one_file_after_exit(path):
    subprocess.run([sys.executable, "-c", NOT_CLOSED, str(path)], check=True)
    assert sorted(file.name for file in path.parent.iterdir()) == ["visits.ledger", "visits.ledger.head"]
    there = moved(path)
    Ledger.restore(there, spent_since={})
    assert spent(there) == Fraction(3, 4)


# Backups


def test_backup_is_complete_and_cannot_be_spent_from(path, tmp_path):
    copy = tmp_path / "visits.backup"
    with Ledger.open(path) as ledger:
        ledger.account("visits").charge("a count", TENTH)
        ledger.backup(copy)
        ledger.account("visits").charge("a count", TENTH)
        with pytest.raises(InvalidInput, match="exists already"):
            ledger.backup(copy)
    assert copy.stat().st_mode & 0o777 == 0o600
    with pytest.raises(Refused, match="a backup of a ledger"):
        Ledger.open(copy)
    with Ledger.open_read_only(copy) as ledger:
        assert ledger.account("visits").spent().epsilon == Fraction(6, 10)
        assert "a backup" in ledger.verify().problem
    with pytest.raises(Refused, match="still exists"):
        Ledger.restore(tmp_path / "again", copy, spent_since={})
    with pytest.raises(Refused, match="there is a ledger at this location"):
        Ledger.restore(path, copy, spent_since={})
    path.unlink()
    with pytest.raises(Refused, match="something was spent since"):
        Ledger.restore(path, copy, spent_since={})
    assert Ledger.restore(path, copy, spent_since={"visits": TENTH}).ok
    assert spent(path) == Fraction(7, 10)
    spend(path, TENTH)
    assert [entry.kind for entry in Ledger.open_read_only(path).entries()][-2:] == ["restore", "charge"]


def test_backup_is_restored_after_a_later_restore(path, tmp_path):
    with Ledger.open(path) as ledger:
        ledger.backup(tmp_path / "b")
    there = moved(path)
    Ledger.restore(there, spent_since={})
    spend(there, TENTH)
    there.unlink()
    for place in (path, tmp_path / "new"):
        with pytest.raises(Refused, match="something was spent since"):
            Ledger.restore(place, tmp_path / "b", spent_since={})
        assert Ledger.restore(place, tmp_path / "b", spent_since={"visits": TENTH}).ok
        spend(place, TENTH)
        place.unlink()


def test_releases_are_shown_again_after_a_restore(path, tmp_path):
    with Ledger.open(path) as ledger:
        owner = ledger.account("visits")
        owner.record_release(owner.record_charge("a sum", TENTH, key="k", fingerprint="q").number, "42")
        ledger.backup(tmp_path / "b")
    path.unlink()
    Ledger.restore(tmp_path / "new", tmp_path / "b", spent_since={})
    with Ledger.open(tmp_path / "new") as ledger:
        again = ledger.account("visits").record_charge("a sum", TENTH, key="k", fingerprint="q")
        assert (again.is_new, ledger.account("visits").get_release(again.number)) == (False, "42")


def test_restore_beyond_the_budget_closes_the_account(path):
    there = moved(path)
    assert Ledger.restore(there, spent_since={"visits": ALL}).ok
    with Ledger.open(there) as ledger:
        assert ledger.account("visits").is_closed
        with pytest.raises(Refused, match="is closed"):
            ledger.account("visits").charge("a count", TENTH)
        last = list(ledger.entries())[-1]
        assert (last.kind, last.body["fits"]) == ("restore", False)


def test_corrupted_ledger_is_not_restored(path):
    there = moved(path)
    connection = sqlite3.connect(there)
    connection.execute("UPDATE filters SET state = replace(state, '1/2', '1/4')")
    connection.commit()
    connection.close()
    with pytest.raises(LedgerFailed, match="was changed after it was written"):
        Ledger.restore(there, spent_since={})
    with pytest.raises(Refused):
        Ledger.open(there)


def test_restore_refuses_unknown_accounts(path):
    there = moved(path)
    with pytest.raises(InvalidInput, match="no account 'sales'"):
        Ledger.restore(there, spent_since={"sales": TENTH})


def test_lowered_restore_entry_is_found(path):
    there = moved(path)
    Ledger.restore(there, spent_since={"visits": TENTH})
    connection = sqlite3.connect(there)
    connection.execute("UPDATE entries SET body = replace(body, '1/10', '1/99') WHERE kind = 'restore'")
    connection.commit()
    connection.close()
    with Ledger.open_read_only(there) as ledger:
        assert not ledger.verify().ok


def test_restored_budgets_hold(path):
    there = moved(path)
    Ledger.restore(there, spent_since={"visits": TENTH})
    spend(there, PrivacyLoss.pure(Fraction(4, 10)))
    with pytest.raises(BudgetExceeded):
        spend(there, PrivacyLoss.pure(Fraction(1, 100)))


def test_simulated_disk_reports_the_ledger_location(path):
    store = SQLiteStore(path, use_head_files=False)
    assert store.known_heads() == set()
    store.close()


# From the shell


def test_from_the_shell(path, tmp_path, monkeypatch):
    monkeypatch.setenv("HUBBUB_LEDGER", str(path))
    copy = tmp_path / "visits.backup"
    assert "written" in run("ledger", "backup", str(copy)).stdout
    out = run("ledger", "verify", "--ledger", str(copy))
    assert (out.code, "is a backup" in out.stdout) == (1, True)
    assert run("ledger", "list", "--ledger", str(copy)).code == 0
    spend(path, TENTH)
    Path(path).unlink()
    assert (
        "there was a ledger here" in run("budget", "open", "visits", "--unit", "p", "--epsilon", "1").stderr
    )
    for words in ([], ["--nothing-since", "--spent-since", "1"]):
        assert "--spent-since" in run("ledger", "restore", str(copy), *words).stderr
    assert "something was spent" in run("ledger", "restore", str(copy), "--nothing-since").stderr
    assert "--spent-since" in run("ledger", "restore", str(copy), "--spent-since", "nonsense").stderr
    out = run("ledger", "restore", str(copy), "--spent-since", "0.1")
    assert (out.code, "is the ledger from now on" in out.stdout) == (0, True)
    assert spent(path) == Fraction(6, 10)
    there = moved(path)
    out = run("ledger", "restore", "--ledger", str(there), "--spent-since", "visits=0.1,0")
    assert (out.code, spent(there)) == (0, Fraction(7, 10))
    assert "OK" in run("ledger", "verify", "--ledger", str(there)).stdout
