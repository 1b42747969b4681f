"""Two who spend at once in PostgreSQL, in named interleavings: the first stops just before its commit."""

import threading
from fractions import Fraction

import pytest

from hubbub.accounting import Budget, PrivacyLoss
from hubbub.errors import BudgetExceeded, InvalidInput, LedgerFailed, Refused
from hubbub.ledger import Ledger
from internals import store_of
from ledger.storage import PATIENT, account

pytest.importorskip("psycopg", reason="psycopg is not installed")
from hubbub.ledger.postgres import PostgresStore

HALF, MOST = PrivacyLoss.pure(Fraction(1, 2)), PrivacyLoss.pure(Fraction(7, 10))


class Paused(PostgresStore):
    """A store that stops its next writer just before it commits, until it may go on."""

    def __init__(self, address):
        super().__init__(address)
        self.is_there, self.may_go, self.is_armed, self.fails = (
            threading.Event(),
            threading.Event(),
            False,
            False,
        )

    def write(self, work):
        def stopping(rows):
            out = work(rows)
            if self.is_armed:
                self.is_armed = False
                self.is_there.set()
                assert self.may_go.wait(60)
                if self.fails:
                    raise KeyboardInterrupt
            return out

        return super().write(stopping)


class Call(threading.Thread):
    """A call in a thread of its own, with what it gave or raised."""

    def __init__(self, call):
        super().__init__(daemon=True)
        self.call, self.gave, self.raised = call, None, None
        self.start()

    def run(self):
        try:
            self.gave = self.call()
        except BaseException as problem:
            self.raised = problem

    def ended(self):
        self.join(60)
        assert not self.is_alive()
        return type(self.raised) if self.raised is not None else None


class Two:
    """Two who share a ledger: the first stops before its commit, the second meets it there."""

    def __init__(self, database):
        self.database = database
        self.store = Paused(database.address)
        self.one, self.two = account(Ledger(self.store)), account(database.open())

    def overlap(self, first, second, *, fails=False, waits=True):
        self.store.is_armed, self.store.fails = True, fails
        calls = [Call(first)]
        assert self.store.is_there.wait(60)
        calls.append(Call(second))
        if waits:
            while not self.database.attack("SELECT 1 FROM pg_locks WHERE NOT granted"):
                assert calls[1].is_alive()
        else:
            calls[1].ended()
        self.store.may_go.set()
        return [call.ended() for call in calls], [call.gave for call in calls]

    def check(self, spent):
        ledger = self.database.open()
        assert ledger.account("visits").spent().epsilon == spent
        assert ledger.verify().ok


@pytest.fixture
def two(database):
    stores = Two(database)
    yield stores
    stores.store.close()


def test_interleaved_charges_that_both_fit(two):
    ends, _ = two.overlap(lambda: two.one.charge("a", HALF), lambda: two.two.charge("b", HALF))
    assert ends == [None, None]
    two.check(1)


def test_interleaved_charges_of_which_one_fits(two):
    ends, _ = two.overlap(lambda: two.one.charge("a", MOST), lambda: two.two.charge("b", MOST))
    assert ends == [None, BudgetExceeded]
    two.check(Fraction(7, 10))


def test_charge_fits_after_a_rolled_back_charge(two):
    ends, _ = two.overlap(lambda: two.one.charge("a", MOST), lambda: two.two.charge("b", MOST), fails=True)
    assert ends == [KeyboardInterrupt, None]
    two.check(Fraction(7, 10))


def test_interleaved_charges_of_one_key(two):
    _, gave = two.overlap(
        lambda: two.one.record_charge("a", HALF, key="k"), lambda: two.two.record_charge("a", HALF, key="k")
    )
    assert [charge.is_new for charge in gave] == [True, False]
    assert gave[0].number == gave[1].number
    two.check(Fraction(1, 2))


def test_charge_of_a_key_after_a_rollback(two):
    _, gave = two.overlap(
        lambda: two.one.record_charge("a", HALF, key="k"),
        lambda: two.two.record_charge("a", HALF, key="k"),
        fails=True,
    )
    assert gave[1].is_new
    two.check(Fraction(1, 2))


def test_charge_during_a_grant(two):
    ada = two.two.for_analyst("ada")
    ends, _ = two.overlap(lambda: two.one.grant("ada", Budget(1)), lambda: ada.charge("a", HALF))
    assert ends == [None, None]
    two.check(Fraction(1, 2))


def test_grant_during_a_charge(two):
    two.one.grant("ada", Budget(Fraction(1, 2)))
    ada = two.one.for_analyst("ada")
    ends, _ = two.overlap(lambda: ada.charge("a", HALF), lambda: two.two.grant("ada", Budget(Fraction(1, 4))))
    assert ends == [None, InvalidInput]  # what she spent a moment ago stays spent
    two.check(Fraction(1, 2))


def test_close_during_a_charge(two):
    ends, _ = two.overlap(lambda: two.one.charge("a", HALF), two.two.close)
    assert ends == [None, None]
    two.check(Fraction(1, 2))


def test_charge_during_a_close(two):
    ends, _ = two.overlap(two.one.close, lambda: two.two.charge("a", HALF))
    assert ends == [None, Refused]
    two.check(0)


def test_interleaved_releases_of_one_charge(two):
    number = two.one.record_charge("a", HALF).number
    _, gave = two.overlap(
        lambda: two.one.record_release(number, "42"), lambda: two.two.record_release(number, "43")
    )
    assert gave == ["42", "42"]
    two.check(Fraction(1, 2))


def test_release_after_a_rolled_back_release(two):
    number = two.one.record_charge("a", HALF).number
    _, gave = two.overlap(
        lambda: two.one.record_release(number, "42"), lambda: two.two.record_release(number, "43"), fails=True
    )
    assert gave == [None, "43"]
    two.check(Fraction(1, 2))


def test_interleaved_openings_of_one_account(two):
    ledgers = [Ledger(two.store), two.database.open()]
    ends, _ = two.overlap(
        lambda: ledgers[0].account("new", PATIENT, Budget(1)),
        lambda: ledgers[1].account("new", PATIENT, Budget(1)),
    )
    assert ends == [None, None]
    assert [entry.kind for entry in ledgers[1].entries() if entry.account == "new"] == ["open"]


def test_interleaved_openings_with_different_budgets(two):
    ledgers = [Ledger(two.store), two.database.open()]
    ends, _ = two.overlap(
        lambda: ledgers[0].account("new", PATIENT, Budget(1)),
        lambda: ledgers[1].account("new", PATIENT, Budget(9)),
    )
    assert ends == [None, Refused]


def test_interleaved_charges_of_one_key_by_two_analysts(two):
    for who in ("ada", "bob"):
        two.one.grant(who, Budget(1))
    ada, bob = two.one.for_analyst("ada"), two.two.for_analyst("bob")
    ends, gave = two.overlap(
        lambda: ada.record_charge("a", HALF, key="k"), lambda: bob.record_charge("a", HALF, key="k")
    )
    assert ends == [None, None]
    assert [charge.is_new for charge in gave] == [True, False]
    assert bob.spent().epsilon == 0  # there is nothing to see yet
    ada.record_release(gave[0].number, "42")
    assert bob.record_charge("a", HALF, key="k").has_outcome
    assert bob.spent().epsilon == Fraction(1, 2)
    two.check(Fraction(1, 2))


def test_interleaved_replacements_of_a_lost_charge(two):
    first = two.one.record_charge("a", PrivacyLoss.pure(Fraction(1, 4)), key="k").number
    _, gave = two.overlap(
        *(
            lambda who=who: who.record_charge(
                "a", PrivacyLoss.pure(Fraction(1, 4)), key="k", replace_lost=first
            )
            for who in (two.one, two.two)
        )
    )
    assert [charge.is_new for charge in gave] == [True, False]
    assert gave[0].number == gave[1].number
    two.check(Fraction(1, 2))


def test_read_during_a_charge(two):
    """Who looks does not wait, and sees nothing that is not committed."""
    _, gave = two.overlap(lambda: two.one.charge("a", HALF), lambda: two.two.spent().epsilon, waits=False)
    assert gave[1] == 0
    two.check(Fraction(1, 2))


def test_verify_during_a_charge(two):
    ledger = two.database.open()
    _, gave = two.overlap(lambda: two.one.charge("a", HALF), ledger.verify, waits=False)
    assert (gave[1].ok, gave[1].entries) == (True, 1)
    two.check(Fraction(1, 2))


def test_serialization_failure_and_deadlock_are_retried_and_charged_once(two, monkeypatch):
    failures = ["serialization_failure", "deadlock_detected"]
    write = PostgresStore.write

    def unlucky(store, work):
        def trying(rows):
            out = work(rows)  # all is done, and then undone
            if failures:
                rows.execute(f"DO $$ BEGIN RAISE EXCEPTION USING ERRCODE = '{failures.pop()}'; END $$")
            return out

        return write(store, trying)

    monkeypatch.setattr(PostgresStore, "write", unlucky)
    two.two.charge("a", HALF)
    assert not failures
    two.check(Fraction(1, 2))


def test_retries_are_bounded(two):
    text = "DO $$ BEGIN RAISE EXCEPTION USING ERRCODE = 'serialization_failure'; END $$"
    with pytest.raises(LedgerFailed, match="locked by others"):
        store_of(two.two).write(lambda rows: rows.execute(text))
    two.check(0)


def test_cut_connection_charges_nothing(two):
    def cut():
        two.database.attack(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE state = 'idle in transaction'"
        )

    ends, _ = two.overlap(lambda: two.one.charge("a", HALF), cut, waits=False)
    assert ends == [LedgerFailed, None]
    two.check(0)
    two.one.charge("a", HALF)  # with a new connection
    two.check(Fraction(1, 2))


def test_lock_waits_are_bounded(two):
    impatient = account(Ledger(PostgresStore(two.database.address, lock_timeout="1ms")))
    ends, _ = two.overlap(lambda: two.one.charge("a", HALF), lambda: impatient.charge("b", HALF), waits=False)
    assert ends == [None, LedgerFailed]
    two.check(Fraction(1, 2))
    store_of(impatient).close()
