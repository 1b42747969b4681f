"""Power that is lost, disks that fail or are full, bytes that flip: at worst budget is wasted."""

import copy
import random
import sqlite3
from fractions import Fraction

import pytest

from hubbub.accounting import Budget, PrivacyLoss
from hubbub.errors import HubbubError, LedgerFailed
from hubbub.ledger import Ledger
from hubbub.ledger.sqlite import SQLiteStore
from hubbub.ledger.stored_outcomes import charge_and_run
from ledger.storage import PATIENT, account

apsw = pytest.importorskip("apsw", reason="apsw, which stands in for the disk, is not installed")
from ledger.disk import NAME, Disk  # noqa: E402 - it needs apsw

PRICE = PrivacyLoss.pure(Fraction(1, 1000))


@pytest.fixture
def path(folder):
    """An empty ledger in a file, which must be there for the store to ask the disk."""
    path = folder / "visits.ledger"
    Ledger.open(path).close()
    return path


@pytest.fixture
def image(path):
    """The file of a ledger with an account and a few charges."""
    with Ledger.open(path) as ledger:
        owner = account(ledger)
        for key in range(3):
            owner.record_release(
                owner.record_charge("a count", PRICE, key=f"old {key}").number, f"answer {key}"
            )
    return path.read_bytes()


class Life:
    """One process on a disk: what it was told, to be held against what is there after it."""

    def __init__(self, path, *, durable=True):
        self.path, self.durable = path, durable
        self.charged, self.answers = [], {f"old {key}": (None, f"answer {key}") for key in range(3)}
        self.attempts = 3

    def go_on(self, disk, keys):
        """Charge, run, record, key after key; stops at the first failure."""
        try:
            ledger = Ledger(
                SQLiteStore(self.path, connect=disk.connect, durable=self.durable, use_head_files=False)
            )
            spender = ledger.account("visits")
            for key in keys:
                self.attempts += key not in self.answers
                charge, text = charge_and_run(spender, self.run, what="a count", loss=PRICE, key=key)
                assert self.answers.setdefault(key, (charge.number, text)) == (charge.number, text)
            ledger.close()
        except LedgerFailed:
            return False
        return True

    def run(self, charge):
        """Nothing that was charged is run a second time, by whichever process."""
        self.charged.append(charge.number)
        return f"answer {random.random()}"

    def lost(self, disk):
        """What was acknowledged and is not there; all else must be consistent."""
        ledger = Ledger(SQLiteStore(self.path, connect=disk.connect, use_head_files=False))
        spender = ledger.account("visits")
        verdict = ledger.verify()
        assert verdict.ok, verdict.problem
        assert len(set(self.charged)) == len(self.charged)
        lines = {entry.number: entry.body["key"] for entry in spender.entries() if entry.kind == "charge"}
        assert spender.spent().epsilon == Fraction(len(lines), 1000)
        assert len(lines) <= self.attempts
        missing = [number for number in self.charged if number not in lines]
        stands = {key: number for number, key in lines.items()}  # the last one, where it was charged anew
        for key, (number, text) in self.answers.items():
            if key not in stands:
                missing.append(key)
            elif number not in {None, stands[key]} or spender.get_release(stands[key]) != text:
                missing.append(f"the release of {key}")
        ledger.close()
        return missing


def keys(rng):
    return [f"new {number}" for number in range(rng.randrange(1, 4))]


def power_losses(path, image, count, *, durable=True, seed=1):
    """Lose power at a random operation, again and again; how many acknowledged things were lost in all."""
    rng, losses, safe = random.Random(seed), 0, {NAME: image}
    for _ in range(count):
        life, disk = Life(path, durable=durable), Disk(safe)
        disk.fail_at, disk.is_sticky = rng.randrange(1, 170), True
        life.go_on(disk, keys(rng))
        after = disk.after_power_loss(rng)
        if rng.random() < 0.3:  # and once more while it recovers
            after.fail_at, after.is_sticky = rng.randrange(1, 60), True
            try:
                life.go_on(after, ["new 0"])
            except AssertionError:  # another answer to what was answered
                assert not durable
                losses += 1
            after = after.after_power_loss(rng)
        if durable:
            assert life.lost(after) == []
            assert life.go_on(after, ["one more"])
            assert life.lost(after) == []
        else:
            try:
                losses += len(life.lost(after))
            except (HubbubError, AssertionError):
                losses += 1
    return losses


def test_charge_survives_power_loss(path, image):
    assert power_losses(path, image, 80) == 0


def test_power_loss_loses_charges_without_sync(path, image):
    assert power_losses(path, image, 80, durable=False) > 10


@pytest.mark.long
def test_charges_survive_fifty_thousand_power_losses(path, image):
    assert power_losses(path, image, 50_000, seed=2) == 0


@pytest.mark.long
def test_unsynced_commits_lose_charges_in_five_thousand_power_losses(path, image):
    assert power_losses(path, image, 5_000, durable=False, seed=2) > 500


@pytest.mark.parametrize("error", ["IOError", "FullError"])
@pytest.mark.parametrize("is_sticky", [False, True], ids=["once", "sticky"])
def test_disk_error_at_any_operation_loses_no_charge(path, image, error, is_sticky):
    at, reached = 0, True
    while reached:
        at += 1
        disk, life = Disk({NAME: image}), Life(path)
        disk.fail_at, disk.is_sticky, disk.error = at, is_sticky, getattr(apsw, error)
        life.go_on(disk, ["new 0"])
        reached = disk.failed()
        disk.fail_at = None
        assert life.lost(disk) == []
        assert life.go_on(disk, ["new 0"])
    assert at > 20


@pytest.mark.parametrize("error", ["IOError", "FullError"])
@pytest.mark.parametrize("is_sticky", [False, True], ids=["once", "sticky"])
def test_disk_error_during_recovery_loses_no_charge(path, image, error, is_sticky):
    crashed = Disk({NAME: image})
    crashed.fail_at, crashed.is_sticky = 54, True
    life = Life(path)
    life.go_on(crashed, ["new 0", "new 1", "new 2"])
    files = {name: bytes(file.now) for name, file in crashed.files.items()}
    assert len(files) == 2  # there is something to recover
    assert life.charged
    at, reached = 0, True
    while reached:
        at += 1
        disk, after = Disk(files), copy.deepcopy(life)
        disk.fail_at, disk.is_sticky, disk.error = at, is_sticky, getattr(apsw, error)
        after.go_on(disk, ["new 0"])
        reached = disk.failed()
        disk.fail_at = None
        assert after.lost(disk) == []
    assert at > 10


def test_disk_error_message_contains_no_data(path, image):
    disk = Disk({NAME: image})
    ledger = Ledger(SQLiteStore(path, connect=disk.connect, use_head_files=False))
    spender = ledger.account("visits")
    disk.fail_at, disk.is_sticky, disk.error = disk.operations + 1, True, apsw.FullError
    with pytest.raises(LedgerFailed, match="nothing runs unless its charge is on the disk"):
        spender.charge("a count", PRICE)
    disk.fail_at = None
    spender.charge("a count", PRICE)
    ledger.close()


# Bytes that flip


def flips(path, image, count, seed):
    """Flip a byte: either nothing changed that counts, or it is an error, or `verify` finds it."""
    rng = random.Random(seed)
    with Ledger.open(path) as ledger:
        before = ledger.account("visits").privacy_filter
    silent = 0
    for _ in range(count):
        place, change = rng.randrange(len(image)), rng.randrange(1, 256)
        path.write_bytes(image[:place] + bytes([image[place] ^ change]) + image[place + 1 :])
        try:
            with Ledger.open(path) as ledger:
                is_whole = ledger.verify().ok
                after = ledger.account("visits", PATIENT, Budget(1)).privacy_filter
        except HubbubError:
            continue
        if is_whole:
            silent += 1
            assert after == before
    return silent


def test_account_with_a_corrupted_opening_is_not_opened_again(path, image):
    connection = sqlite3.connect(path)
    connection.executescript("DELETE FROM entries WHERE kind = 'open'")
    connection.close()
    with Ledger.open(path) as ledger, pytest.raises(LedgerFailed, match="the opening of the account"):
        account(ledger)


def test_corrupted_index_is_found(path, image):
    at = image.rindex(b"openvisits")  # the last of them is in the index
    path.write_bytes(image[:at] + b"oqenvisits" + image[at + 10 :])
    with Ledger.open(path) as ledger:
        result = ledger.verify()
    assert not result.ok


def test_flipped_byte_never_raises_the_budget(path, image):
    assert flips(path, image, 150, seed=3) < 150


@pytest.mark.long
def test_ten_thousand_flipped_bytes_never_raise_the_budget(path, image):
    assert flips(path, image, 10_000, seed=4) < 10_000
