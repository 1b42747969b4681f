"""What an account promises: never overspent, charged once a key, one answer a charge, and roles."""

import copy
import json
import pickle
import secrets
from dataclasses import replace
from datetime import UTC, datetime
from fractions import Fraction
from functools import partial
from unittest import mock

import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import hubbub as hb
import hubbub.ledger.entries
from hubbub.accounting import Budget, PrivacyFilter, PrivacyLoss
from hubbub.accounting.codec import canonical_json
from hubbub.accounting.in_memory_account import InMemoryAccount
from hubbub.errors import BudgetExceeded, InvalidInput, Refused
from hubbub.ledger import Ledger
from hubbub.unit import Neighbours, Unit
from ledger.storage import PATIENT, account
from refusing import refusal, refused

TENTH = PrivacyLoss.pure(Fraction(1, 10))


def test_ten_charges_of_a_tenth_fit_and_the_eleventh_is_refused(storage):
    spender = account(storage.open())
    for _ in range(10):
        spender.charge("a count", TENTH)
    assert spender.spent().epsilon == 1
    assert spender.remaining().epsilon == 0
    with pytest.raises(BudgetExceeded, match=r"account 'visits'.* there is room for nothing"):
        spender.charge("a count", TENTH)
    assert spender.spent().epsilon == 1


def test_refusal_names_a_charge_that_fits(storage):
    spender = account(storage.open())
    spender.charge("a count", PrivacyLoss.pure(0.75))
    with pytest.raises(BudgetExceeded, match=r"room for a pure epsilon of 0\.25"):
        spender.charge("a count", PrivacyLoss.pure(0.5))
    spender.charge("a count", PrivacyLoss.pure(0.25))


@settings(max_examples=6, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.fractions(0, Fraction(1, 2), max_denominator=50).filter(bool), max_size=5))
def test_ledger_spends_like_a_privacy_filter(folder, prices):
    ledger = Ledger.open(folder / f"{secrets.token_hex(8)}.ledger")
    spender, model = account(ledger, 1, 1e-6), PrivacyFilter(Budget(1, 1e-6))
    for price in prices:
        loss = PrivacyLoss.gaussian(price)
        if model.allows(loss):
            spender.charge("noise", loss)
            model = model.charge(loss)
        else:
            with pytest.raises(BudgetExceeded):
                spender.charge("noise", loss)
    assert spender.privacy_filter == model
    assert ledger.verify().ok
    ledger.close()


def test_spending_survives_reopening(storage):
    with storage.open() as ledger:
        account(ledger).charge("a count", PrivacyLoss.pure(0.5))
    again = storage.open().account("visits")
    assert again.unit == PATIENT
    assert again.spent().epsilon == Fraction(1, 2)
    assert again.epsilon() == 0.5


def test_account_keeps_its_unit_relation_and_budget(storage):
    ledger = storage.open()
    account(ledger, 1, 1e-6)
    for unit in (Unit("doctor"), Unit("patient", Neighbours.SUBSTITUTE), Unit.row()):
        with pytest.raises(Refused, match="is for one patient"):
            ledger.account("visits", unit)
    for budget in (Budget(2, 1e-6), Budget(1, 1e-7)):
        with pytest.raises(Refused, match="another budget"):
            ledger.account("visits", PATIENT, budget)
    with pytest.raises(InvalidInput, match="no account 'nobody'"):
        ledger.account("nobody")
    assert ledger.accounts() == ["visits"]


def test_accounts_do_not_share_a_budget(storage):
    ledger = storage.open()
    account(ledger).charge("a count", PrivacyLoss.pure(1))
    other = ledger.account("sales", Unit("customer"), Budget(2))
    other.charge("a count", PrivacyLoss.pure(2))
    assert ledger.accounts() == ["sales", "visits"]
    assert {entry.account for entry in other.entries()} == {"sales"}
    assert ledger.verify().ok


# Keys


def test_key_is_charged_once(storage):
    spender = account(storage.open())
    first = spender.record_charge("a count", TENTH, key="monday")
    again = spender.record_charge("a count", TENTH, key="monday")
    assert (first.is_new, again.is_new, again.number) == (True, False, first.number)
    assert spender.spent().epsilon == Fraction(1, 10)


def test_key_pays_for_one_question_at_one_cost(storage):
    spender = account(storage.open())
    spender.record_charge("a count", TENTH, key="monday")
    for what, loss in (("another count", TENTH), ("a count", PrivacyLoss.pure(1))):
        with pytest.raises(Refused, match="another question, or at another cost"):
            spender.record_charge(what, loss, key="monday")
    assert spender.spent().epsilon == Fraction(1, 10)


def test_charge_with_a_lost_outcome_is_charged_again_once(storage):
    ledger = storage.open()
    spender = account(ledger)
    first = spender.record_charge("a count", TENTH, key="monday", attempt="one")
    pending = spender.record_charge("a count", TENTH, key="monday", attempt="two")
    assert (pending.is_new, pending.has_outcome, pending.attempt) == (False, False, "one")
    second = spender.record_charge("a count", TENTH, key="monday", attempt="two", replace_lost=first.number)
    assert second.is_new
    assert spender.spent().epsilon == Fraction(1, 5)
    late = spender.record_charge("a count", TENTH, key="monday", attempt="three", replace_lost=first.number)
    assert (late.is_new, late.number, late.attempt) == (False, second.number, "two")  # one was faster
    assert spender.record_release(first.number, "41") == "41"  # paid for, and nobody else's
    assert spender.record_release(second.number, "42") == "42"
    again = spender.record_charge("a count", TENTH, key="monday", replace_lost=second.number)
    assert (again.is_new, again.has_outcome, again.number) == (False, True, second.number)
    assert spender.spent().epsilon == Fraction(1, 5)
    assert ledger.verify().ok


def test_charge_without_a_key_is_always_new(storage):
    spender = account(storage.open())
    assert spender.record_charge("a", TENTH).number != spender.record_charge("a", TENTH).number
    assert spender.spent().epsilon == Fraction(1, 5)


# Releases


def test_first_recorded_release_is_shown(storage):
    spender = account(storage.open())
    charge = spender.record_charge("a count", TENTH, key="monday")
    assert spender.get_release(charge.number) is None
    assert spender.record_release(charge.number, "42") == "42"
    assert spender.record_release(charge.number, "43") == "42"
    assert account(storage.open()).get_release(charge.number) == "42"


def test_only_a_charge_has_a_release(storage):
    spender = account(storage.open())
    for number in (1, 7, -1):
        with pytest.raises(InvalidInput, match="not a charge"):
            spender.record_release(number, "42")
        with pytest.raises(InvalidInput, match="not a charge"):
            spender.get_release(number)


def test_release_of_another_account_is_refused(storage):
    ledger = storage.open()
    number = account(ledger).record_charge("a count", TENTH).number
    other = ledger.account("sales", PATIENT, Budget(1))
    with pytest.raises(InvalidInput, match="not a charge of this account"):
        other.record_release(number, "42")


# Analysts and readers


def test_analyst_spends_within_her_budget_and_the_accounts(storage):
    owner = account(storage.open())
    owner.grant("ada", Budget(0.3))
    owner.grant("bob", Budget(2))
    ada, bob = owner.for_analyst("ada"), owner.for_analyst("bob")
    for _ in range(3):
        ada.charge("a count", TENTH)
    with pytest.raises(BudgetExceeded, match="the budget of ada"):
        ada.charge("a count", TENTH)
    assert bob.remaining().epsilon == Fraction(7, 10)
    with pytest.raises(BudgetExceeded, match="account 'visits'"):
        bob.charge("a count", PrivacyLoss.pure(1))
    assert (owner.spent().epsilon, ada.spent().epsilon, bob.spent().epsilon) == (
        Fraction(3, 10),
        Fraction(3, 10),
        0,
    )


def test_a_grant_in_use_keeps_its_purpose(storage):
    owner = account(storage.open())
    owner.grant("ada", Budget(0.3, 1e-6))
    owner.grant("ada", Budget(0.3, 1e-6, purpose="training"))
    owner.for_analyst("ada").charge("a count", TENTH)
    with pytest.raises(InvalidInput, match="fixed before anything was spent"):
        owner.grant("ada", Budget(0.3, 1e-6, purpose="few queries"))
    owner.grant("ada", Budget(0.4, 1e-6, purpose="training"))
    assert owner.for_analyst("ada").remaining().epsilon < Fraction(4, 10)


def test_refused_charge_changes_neither_budget(storage):
    owner = account(storage.open())
    owner.grant("ada", Budget(0.3))
    with pytest.raises(BudgetExceeded):
        owner.for_analyst("ada").charge("a count", PrivacyLoss.pure(0.5))
    assert owner.spent().epsilon == 0


def test_analyst_without_a_grant_cannot_charge(storage):
    owner = account(storage.open())
    with pytest.raises(Refused, match="eve has no budget"):
        owner.for_analyst("eve").charge("a count", TENTH)
    assert owner.spent().epsilon == 0


def test_raised_grant_keeps_what_was_spent(storage):
    owner = account(storage.open())
    owner.grant("ada", Budget(0.1))
    ada = owner.for_analyst("ada")
    ada.charge("a count", TENTH)
    owner.grant("ada", Budget(0.2))
    ada.charge("a count", TENTH)
    with pytest.raises(BudgetExceeded):
        ada.charge("a count", TENTH)
    with pytest.raises(InvalidInput, match="more is spent"):
        owner.grant("ada", Budget(0.1))
    assert {who: total.spent().epsilon for who, total in owner.analysts().items()} == {"ada": Fraction(1, 5)}


def test_viewing_a_release_costs_the_analyst_once_and_the_account_nothing(storage):
    owner = account(storage.open())
    for who in ("ada", "bob"):
        owner.grant(who, Budget(0.15))
    ada, bob = owner.for_analyst("ada"), owner.for_analyst("bob")
    number = ada.record_charge("a count", TENTH, key="monday").number
    ada.record_release(number, "42")
    with pytest.raises(Refused, match="another analyst's"):
        bob.get_release(number)
    for _ in range(2):
        assert bob.record_charge("a count", TENTH, key="monday").number == number
        assert bob.get_release(number) == "42"
    assert (owner.spent().epsilon, bob.spent().epsilon) == (Fraction(1, 10), Fraction(1, 10))
    ada.record_release(ada.record_charge("a count", PrivacyLoss.pure(0.05), key="tuesday").number, "43")
    bob.record_charge("a count", PrivacyLoss.pure(0.05), key="tuesday")
    owner_s = owner.record_charge("a count", PrivacyLoss.pure(0.01), key="wednesday")
    assert owner_s.is_new
    spent = bob.spent()
    assert not bob.record_charge("a count", PrivacyLoss.pure(0.01), key="wednesday").has_outcome
    assert bob.spent() == spent  # there is nothing to see yet
    owner.record_release(owner_s.number, "44")
    with pytest.raises(BudgetExceeded, match="the budget of bob"):
        bob.record_charge("a count", PrivacyLoss.pure(0.01), key="wednesday")
    assert storage.open().verify().ok


def test_analyst_sees_her_own_entries_and_reader_sees_all(storage):
    owner = account(storage.open())
    for who in ("ada", "bob"):
        owner.grant(who, Budget(1))
        owner.for_analyst(who).charge(f"the question of {who}", TENTH)
    ada, reader = owner.for_analyst("ada"), owner.for_reader()
    assert [entry.body["description"] for entry in ada.entries()] == ["the question of ada"]
    assert list(ada.analysts()) == ["ada"]
    assert len(list(reader.entries())) == len(list(owner.entries())) == 5
    for someone in (ada, reader):
        for what in (
            lambda me: me.grant("ada", Budget(5)),
            lambda me: me.close(),
            lambda me: me.record_nonprivate_access("all rows"),
            lambda me: me.record_version("2", "visits"),
            lambda me: me.for_analyst("bob"),
            lambda me: me.for_reader(),
        ):
            with pytest.raises(Refused, match="only the owner can"):
                what(someone)
    with pytest.raises(Refused, match="a reader cannot charge"):
        reader.charge("a count", TENTH)
    with pytest.raises(Refused, match="a reader cannot release"):
        reader.record_release(3, "42")
    assert len(list(owner.entries())) == 5


def test_closed_account_refuses_charges_and_still_shows_releases(storage):
    owner = account(storage.open())
    number = owner.record_charge("a count", TENTH, key="monday").number
    owner.record_release(number, "42")
    owner.close()
    assert owner.is_closed
    for what in (
        lambda: owner.charge("a count", TENTH),
        lambda: owner.grant("ada", Budget(1)),
        owner.close,
    ):
        with pytest.raises(Refused, match="is closed"):
            what()
    assert owner.get_release(owner.record_charge("a count", TENTH, key="monday").number) == "42"
    assert storage.open().verify().ok


# What is written


def test_entry_contains_no_data(storage):
    owner = account(storage.open())
    owner.record_charge("SELECT COUNT(*) FROM visits", TENTH, key="monday")
    *_, entry = owner.entries()
    body = entry.body
    assert set(body) == {
        "description",
        "dataset",
        "loss",
        "charged",
        "unit",
        "neighbours",
        "fingerprint",
        "key",
    }
    assert body["loss"] == {
        "kind": "privacy-loss/1",
        "alternatives": [
            [
                {
                    "count": 1,
                    "event": {"kind": "epsilon-delta/1", "epsilon": "1/10", "delta": "0", "tight": True},
                }
            ]
        ],
    }
    assert (body["unit"], body["neighbours"], entry.kind, entry.analyst) == (
        "patient",
        "add/remove",
        "charge",
        "",
    )


def test_the_clock_may_go_backwards(storage):
    owner = account(storage.open())
    with mock.patch.object(hubbub.ledger.entries, "datetime") as clock:
        clock.now.return_value = datetime(1999, 1, 1, tzinfo=UTC)
        owner.charge("a count", TENTH)
    owner.charge("a count", TENTH)
    moments = [entry.timestamp[:4] for entry in owner.entries()]
    assert moments[1] == "1999"
    assert moments[2] > "2000"
    assert owner.spent().epsilon == Fraction(1, 5)
    assert storage.open().verify().ok


def test_filters_at_replays_the_entries(storage):
    ledger = storage.open()
    owner = account(ledger)
    for _ in range(4):
        owner.charge("a count", TENTH)
    spent = [ledger.filters_at(until)["visits", ""].spent().epsilon for until in range(1, 6)]
    assert spent == [Fraction(done, 10) for done in range(5)]


def test_nonprivate_accesses_and_versions_are_recorded(storage):
    owner = account(storage.open())
    owner.record_nonprivate_access("SELECT 1")
    for version in ("1", "1", "2", "2"):
        owner.record_version(version, "visits")
    kinds = [(entry.kind, entry.body.get("version")) for entry in owner.entries()]
    assert kinds == [("open", None), ("nonprivate_access", None), ("version", "1"), ("version", "2")]


@pytest.mark.sweep(5)
@pytest.mark.parametrize("name", ["", " ", "a\nb", "x" * 201, None, 5, "a\0b", "\ud800"])
def test_names_are_short_and_printable(name, storage):
    owner = account(storage.open())
    with refused(InvalidInput, "has no name"):
        owner.grant(name, Budget(1))
    with refused(InvalidInput, "has no name"):
        storage.open().account(name, PATIENT, Budget(1))
    if name is not None:
        with refused(InvalidInput, "has no name"):
            owner.record_charge("a count", TENTH, key=name)


@pytest.mark.parametrize("what", [None, 5, "\ud800", "a\0b", "x" * 100_001])
def test_descriptions_that_cannot_be_stored_are_refused(what, storage):
    owner = account(storage.open())
    with refused(InvalidInput, "not a text"):
        owner.charge(what, TENTH)
    assert owner.spent().epsilon == 0


def test_any_text_is_stored_unchanged(storage):
    owner = account(storage.open())
    text = json.dumps(["Ünïcødé \u202e 🎲", "\\", '"', "'; DROP TABLE entries; --"], ensure_ascii=False)
    number = owner.record_charge(text, TENTH).number
    assert owner.record_release(number, text) == owner.get_release(number) == text
    assert [entry.body["description"] for entry in owner.entries() if entry.kind == "charge"] == [text]
    assert storage.open().verify().ok


COPIES = [pickle.dumps, copy.copy, copy.deepcopy, lambda one: copy.deepcopy({"held": [one]})]


@pytest.mark.sweep(5)
@pytest.mark.parametrize("make", COPIES)
def test_accounts_and_ledgers_cannot_be_copied_or_pickled(storage, make):
    """It says what to do instead, and not what Python cannot do with a connection."""
    with storage.open() as ledger, hb.open(pd.DataFrame({"p": [1]}), table="t", unit="p") as data:
        owner = account(ledger)
        for one in (owner, owner.for_reader(), ledger, data, InMemoryAccount(Budget(1)), InMemoryAccount()):
            with pytest.raises(Refused, match=r"cannot be copied or pickled.*Fix"):
                make(one)
        owner.charge("a count", PrivacyLoss.pure(1))
        assert owner.remaining().epsilon == 0


# One neighbouring relation

POISSON = PrivacyLoss.gaussian(Fraction(1, 10)).poisson_subsampled(Fraction(1, 100))
FIXED_SIZE = PrivacyLoss.gaussian(Fraction(1, 10)).subsampled_without_replacement(10, 1)


@pytest.mark.sweep(3)
@pytest.mark.parametrize(
    ("neighbours", "own", "other"),
    [(Neighbours.ADD_REMOVE, POISSON, FIXED_SIZE), (Neighbours.SUBSTITUTE, FIXED_SIZE, POISSON)],
)
def test_losses_of_another_relation_are_refused(storage, neighbours, own, other):
    unit = Unit("patient", neighbours)
    ledger = storage.open()
    for spender in (ledger.account("visits", unit, Budget(1, 1e-6)), InMemoryAccount(Budget(1, 1e-6), unit)):
        spender.charge("its own relation", own)
        spender.charge("any relation", TENTH)
        with pytest.raises(Refused, match="different neighbouring relations"):
            spender.charge("another relation", other)
    assert ledger.verify().ok


def test_an_account_without_a_unit_keeps_the_relation_of_its_first_charge():
    spender = InMemoryAccount(Budget(1, 1e-6))
    spender.charge("any relation", TENTH)
    spender.charge("a sample of fixed size", FIXED_SIZE)
    with pytest.raises(Refused, match="different neighbouring relations"):
        spender.charge("a Poisson sample", POISSON)
    with pytest.raises(Refused, match="different neighbouring relations"):
        spender.charge("any relation", TENTH, unit=Unit("patient", Neighbours.ADD_REMOVE))
    spender.charge("any relation", TENTH, unit=Unit("patient", Neighbours.SUBSTITUTE))


def test_filters_are_read_while_another_thread_clears_what_is_remembered(storage, monkeypatch):
    spender = account(storage.open())
    spender.charge("a count", TENTH)
    hubbub.ledger.entries._FILTERS.clear()
    monkeypatch.setattr(hubbub.ledger.entries, "_cache_filter", lambda *_: None)
    assert spender.spent().epsilon == Fraction(1, 10)


@pytest.mark.sweep(3)
@pytest.mark.parametrize("is_run", [True, False])
def test_the_charge_that_opened_a_stage_is_certified_anew_when_its_key_is_asked_again(storage, is_run):
    run = PrivacyLoss.gaussian(Fraction(1, 10))
    if is_run:
        run = run.poisson_subsampled(Fraction(1, 100)) * 100
    ledger = storage.open()
    spender = ledger.account("visits", PATIENT, Budget(4, 1e-6))
    charge = spender.record_charge("a run", run, key="run")
    assert not spender.record_charge("a run", run, key="run").is_new
    entry, payer = spender.entry(charge.number), spender.privacy_filter
    assert hubbub.ledger.entries.is_fully_paid(entry, payer)
    opens = entry.body["charged"][""]["opens"]
    for change in ({"limit": "0"}, {"cuts": "0"}, {"limit": "1"}):
        forged = copy.deepcopy(entry.body)
        forged["charged"][""]["opens"] = {**opens, **change}
        assert not hubbub.ledger.entries.is_fully_paid(replace(entry, text=canonical_json(forged)), payer)


@pytest.mark.parametrize("location", ["visits.ledger", None, 3])
def test_ledger_of_a_location_is_refused_and_names_how_to_open_one(location):
    assert 'hb.Ledger.open("visits.ledger")' in refusal(InvalidInput, hb.Ledger, location).fix


def test_account_of_a_number_or_a_name_is_refused_and_names_what_to_pass(folder):
    with Ledger.open(folder / "typed.ledger") as ledger:
        for open_account in (partial(ledger.account, "visits"), InMemoryAccount):
            error = refusal(InvalidInput, open_account, unit=PATIENT, budget=3)
            assert (error.parameter, error.fix) == ("budget", "pass budget=hb.Budget(1)")
            error = refusal(InvalidInput, open_account, unit="patient", budget=Budget(3))
            assert (error.parameter, error.fix) == ("unit", 'pass unit=hb.Unit("patient")')
