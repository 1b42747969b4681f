"""Whoever changes, drops, moves or cuts lines is found, and so is what no longer follows from them."""

from fractions import Fraction

import pytest

from hubbub.accounting import Budget, PrivacyFilter, PrivacyLoss
from hubbub.accounting.codec import canonical_json
from hubbub.errors import LedgerFailed
from hubbub.ledger.entries import START, Entry, digest
from hubbub.ledger.verify import Replay
from hubbub.report.history import History
from hubbub.report.label import label
from hubbub.unit import Neighbours, Unit, Window
from ledger.storage import File, account

TENTH = PrivacyLoss.pure(Fraction(1, 10))
COLUMNS = ("account", "kind", "analyst", "timestamp", "body", "previous", "digest")


@pytest.fixture
def history(storage):
    """A ledger in which everything happened that can."""
    with storage.open() as ledger:
        owner = account(ledger)
        owner.grant("ada", Budget(0.5))
        owner.grant("bob", Budget(0.5))
        ada, bob = owner.for_analyst("ada"), owner.for_analyst("bob")
        ada.record_release(ada.record_charge("a count", TENTH, key="monday").number, "42")
        bob.record_charge("a count", TENTH, key="monday")
        owner.record_nonprivate_access("rows")
        owner.record_version("2", "visits")
        bob.record_release(bob.record_charge("a sum", TENTH).number, "43")
        owner.grant("bob", Budget(0.6))
        owner.close()
    return storage


def verdict(storage, head=None):
    with storage.look() as ledger:
        return ledger.verify(head)


def head(storage):
    with storage.look() as ledger:
        return ledger.head_digest()


def lines(storage):
    with storage.look() as ledger:
        return list(ledger.entries())


def test_untouched_ledger_verifies(history):
    result = verdict(history)
    assert (result.ok, result.entries, result.head_digest) == (True, 12, head(history))


def test_empty_ledger_verifies(storage):
    storage.open().close()
    result = verdict(storage)
    assert (result.ok, result.entries, result.head_digest) == (True, 0, START)


@pytest.mark.parametrize("column", COLUMNS)
@pytest.mark.parametrize("number", [1, 4, 5, 12])
def test_edit_of_any_entry_in_any_column_is_found(history, number, column):
    history.attack(f"UPDATE entries SET {column} = {column} || ' ' WHERE number = ?", (number,))
    assert f"entry {number}" in verdict(history).problem


@pytest.mark.parametrize("number", range(1, 12))
def test_deleted_entry_is_found(history, number):
    history.attack("DELETE FROM entries WHERE number = ?", (number,))
    assert verdict(history).problem == f"entry {number} is missing or out of order"


def test_swapped_entries_are_found(history):
    for one, other in ((4, 99), (8, 4), (99, 8)):
        history.attack("UPDATE entries SET number = ? WHERE number = ?", (other, one))
    assert "entry 4" in verdict(history).problem


def test_truncation_is_found_with_the_head_digest(storage):
    with storage.open() as ledger:
        owner = account(ledger)
        owner.charge("a count", TENTH)
        remaining = ledger.head_digest()
        owner.record_nonprivate_access("rows")
        latest = ledger.head_digest()
    assert verdict(storage, remaining).ok
    assert verdict(storage, latest).ok
    storage.attack("DELETE FROM entries WHERE number = 3")
    storage.forget()
    assert verdict(storage).ok  # a line that changed no total leaves no trace
    assert "the given head digest is not in the chain" in verdict(storage, latest).problem


def test_truncated_charge_is_found_by_the_filters(storage):
    with storage.open() as ledger:
        account(ledger).charge("a count", TENTH)
    storage.attack("DELETE FROM entries WHERE number = 2")
    assert "filters" in verdict(storage).problem


def test_rewritten_ledger_is_found_with_the_head_digest(history):
    remaining = head(history)
    for table in ("entries", "filters", "charges", "views", "releases"):
        history.attack(f"DELETE FROM {table}")
    history.forget()
    with history.open() as ledger:
        account(ledger)
    assert verdict(history).ok
    assert "rewritten" in verdict(history, remaining).problem


@pytest.mark.parametrize(
    ("attack", "problem"),
    [
        ("UPDATE filters SET state = replace(state, '1/5', '0') WHERE analyst = ''", "filters"),
        ("DELETE FROM filters WHERE analyst = 'ada'", "filters"),
        (
            "INSERT INTO filters SELECT account, 'eve', state, digest FROM filters WHERE analyst = 'ada'",
            "filters",
        ),
        ("UPDATE charges SET charge_key = 'x' WHERE number = 4", "the key of the charge in entry"),
        ("UPDATE charges SET released = NULL WHERE number = 4", "the key of the charge in entry"),
        ("DELETE FROM charges WHERE number = 9", "the key of the charge in entry"),
        ("DELETE FROM views", "views differ"),
        ("INSERT INTO views VALUES (9, 'ada')", "views differ"),
        ("UPDATE releases SET body = '44' WHERE number = 4", "release of entry 4 has been changed"),
        ("DELETE FROM releases WHERE number = 9", "release of entry 9 is missing"),
        ("INSERT INTO releases VALUES (2, '1')", "release of entry 2 has been changed"),
    ],
)
def test_tables_that_differ_from_the_entries_are_found(history, attack, problem):
    before = digest(
        [history.attack(f"SELECT * FROM {table}") for table in ("filters", "charges", "releases")]
    )
    seen = history.attack("SELECT * FROM views")
    history.attack(attack)
    after = digest([history.attack(f"SELECT * FROM {table}") for table in ("filters", "charges", "releases")])
    assert before != after or seen != history.attack("SELECT * FROM views")
    assert problem in verdict(history).problem


def test_lowered_filter_is_noticed_before_a_charge(storage):
    with storage.open() as ledger:
        account(ledger).charge("a count", TENTH)
    storage.attack("UPDATE filters SET state = replace(state, '1/10', '1/99')")
    with storage.open() as ledger, pytest.raises(LedgerFailed, match="a filter of the ledger was changed"):
        account(ledger).charge("a count", TENTH)


def test_nothing_is_appended_to_a_changed_entry(storage):
    with storage.open() as ledger:
        account(ledger).charge("a count", TENTH)
    storage.attack("UPDATE entries SET analyst = 'eve' WHERE number = 2")
    with storage.open() as ledger, pytest.raises(LedgerFailed, match="entry 2 of the ledger was changed"):
        account(ledger).charge("a count", TENTH)


@pytest.mark.parametrize(
    "attack",
    [
        "DELETE FROM releases",
        "UPDATE releases SET body = '44'",
        "UPDATE charges SET released = NULL",
        "UPDATE charges SET released = 1",
    ],
)
def test_charge_with_a_missing_release_gets_no_second_answer(storage, attack):
    with storage.open() as ledger:
        owner = account(ledger)
        number = owner.record_charge("a count", TENTH).number
        owner.record_release(number, "42")
    storage.attack(attack)
    with storage.open() as ledger:
        for look in (
            account(ledger).get_release,
            lambda number: account(ledger).record_release(number, "43"),
        ):
            with pytest.raises(LedgerFailed, match="release"):
                look(number)


# A forger who knows how lines are chained, but cannot make them follow from each other


def forged(storage, change):
    """The lines with one of them replaced, and all digests computed anew."""
    previous, out = START, []
    for entry in lines(storage):
        kind, who, body = change(entry.number, entry.kind, entry.analyst, entry.body)
        parts = (entry.number, entry.account, kind, who, entry.timestamp, canonical_json(body), previous)
        out.append(Entry(*parts, digest(list(parts))))
        previous = out[-1].digest
    return out


def problem_of(entries):
    replay = Replay()
    return next((result for entry in entries if (result := replay.apply(entry))), None)


def given_up(storage):
    """A key that was charged anew and released after its first outcome was lost, and another, released."""
    with storage.open() as ledger:
        owner = account(ledger)
        owner.record_release(owner.record_charge("a count", TENTH, key="other").number, "41")
        lost = owner.record_charge("a count", TENTH, key="monday")
        anew = owner.record_charge("a count", TENTH, key="monday", replace_lost=lost.number)
        owner.record_release(anew.number, "42")
        assert ledger.verify().ok
    return storage


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda b: b, None),
        (lambda b: {name: part for name, part in b.items() if name != "replaces"}, "charges a key again"),
        (lambda b: {**b, "replaces": 2}, "charges a key again"),
        (lambda b: {**b, "key": "other", "replaces": 2}, None),  # what was released there had no mark
        (lambda b: {**b, "key": None}, "charges a key again"),
        (lambda b: {**b, "key": "tuesday"}, "charges a key again"),
    ],
)
def test_replaced_charge_must_have_had_the_key(storage, change, problem):
    entries = forged(
        given_up(storage), lambda n, kind, who, body: (kind, who, change(body) if n == 5 else body)
    )
    assert problem_of(entries) == problem


@pytest.mark.sweep(2)
def test_charge_for_another_relation_is_found(storage):
    """A sample of fixed size, in an account for units that are added or removed."""
    with storage.open() as ledger:
        loss = PrivacyLoss.gaussian(Fraction(1, 10)).subsampled_without_replacement(1000, 10)
        unit = Unit("patient", Neighbours.SUBSTITUTE)
        ledger.account("visits", unit, Budget(1, 1e-6)).charge("a sample", loss)
        assert ledger.verify().ok

    def change(number, kind, who, body):
        return kind, who, {**body, "neighbours": "add/remove"} if "neighbours" in body else body

    assert problem_of(forged(storage, change)) == "was charged for another neighbouring relation"


def test_key_moved_to_another_entry_is_found(storage):
    given_up(storage)
    storage.attack("UPDATE charges SET charge_key = 'tuesday' WHERE number = 4")
    assert verdict(storage).problem == "the key of the charge in entry 4 differs from the entry"


def charged(body, epsilon):
    return {**body, "charged": {who: {**each, "epsilon": epsilon} for who, each in body["charged"].items()}}


def cheaper(body):
    return charged(body, "1/1000")


@pytest.mark.parametrize(
    ("number", "change", "problem"),
    [
        (4, lambda k, w, b: (k, w, cheaper(b)), "charged less than it costs"),
        (4, lambda k, w, b: (k, "eve", b), "was not charged to all who pay"),
        (4, lambda k, w, b: ("gift", w, b), "of a kind that cannot be here"),
        (1, lambda k, w, b: ("close", w, b), "of a kind that cannot be here"),
        (2, lambda k, w, b: ("open", w, b), "of a kind that cannot be here"),
        (8, lambda k, w, b: ("close", w, b), "after the account was closed"),
        (4, lambda k, w, b: (k, w, {**b, "loss": {"kind": "loss/2"}}), "is malformed"),
        (9, lambda k, w, b: (k, w, {**b, "key": "monday"}), "charges a key again"),
        (5, lambda k, w, b: (k, w, {**b, "charge": 1}), "is malformed"),
        (10, lambda k, w, b: (k, w, {**b, "charge": 4}), "releases what was not charged"),
        (6, lambda k, w, b: (k, w, {"charge": 9}), "is malformed"),
        (6, lambda k, w, b: (k, w, ["charge"]), "is malformed"),
        (
            3,
            lambda k, w, b: (k, w, {**b, "filter": PrivacyFilter(Budget(1)).charge(TENTH).to_json()}),
            "grants a budget other than it states",
        ),
        (
            3,
            lambda k, w, b: (k, w, {**b, "filter": PrivacyFilter(Budget(0.01)).to_json()}),
            "does not fit the budget",
        ),
        (2, lambda k, w, b: (k, w, {**b, "analyst": ""}), "grants a budget to the owner"),
        (
            11,
            lambda k, w, b: (
                k,
                w,
                {**b, "filter": PrivacyFilter(Budget(0.6, purpose="training")).to_json()},
            ),
            "changes the purpose",
        ),
        (1, lambda k, w, b: (k, w, {**b, "epsilon": "2"}), "a budget other than it states"),
        (1, lambda k, w, b: (k, w, {**b, "delta": "1/2"}), "a budget other than it states"),
        (4, lambda k, w, b: (k, w, {**b, "unit": "somebody else"}), "for another unit"),
        (4, lambda k, w, b: (k, w, {**b, "neighbours": "substitute"}), "for another unit"),
        (2, lambda k, w, b: (k, "mallory", b), "by the owner only"),
        (7, lambda k, w, b: (k, "mallory", b), "by the owner only"),
        (12, lambda k, w, b: (k, "ada", b), "by the owner only"),
        (10, lambda k, w, b: (k, "ada", b), "releases what was not charged"),
    ],
)
def test_impossible_forged_entry_is_found(history, number, change, problem):
    entries = forged(
        history, lambda n, kind, who, body: change(kind, who, body) if n == number else (kind, who, body)
    )
    assert problem in (problem_of(entries) or "")


@pytest.mark.parametrize("period", ["2026-11", "2026", None])
def test_two_budgets_for_the_same_rows_are_found(storage, period):
    with storage.open() as ledger:
        for month in ("2026-11", "2026-12"):
            ledger.account("visits", Unit("patient", window=Window.of("day", month)), Budget(1))

    def moved(n, kind, who, body):
        if n != 2:
            return kind, who, body
        if period is None:
            return kind, who, {name: value for name, value in body.items() if name != "window"}
        window = Window.of("day", period)
        ends = {"column": "day", "start": str(window.start), "end": str(window.end)}
        return kind, who, {**body, "window": ends}

    assert problem_of(forged(storage, moved)) == "opens a second budget for the same rows"
    assert problem_of(lines(storage)) is None


@pytest.mark.parametrize("other", [{"unit": "doctor"}, {"neighbours": "substitute"}, {"window": "hour"}])
def test_windows_of_another_unit_or_column_are_found(storage, other):
    with storage.open() as ledger:
        for month in ("2026-11", "2026-12"):
            ledger.account("visits", Unit("patient", window=Window.of("day", month)), Budget(1))

    def changed(n, kind, who, body):
        if n == 2:
            window = {**body["window"], "column": other.get("window", "day")}
            body = {**body, **other, "window": window}
        return kind, who, body

    assert problem_of(forged(storage, changed)) == "opens a window for another unit, or by another column"


def rewritten(storage, entries):
    for entry in entries:
        values = (entry.kind, entry.analyst, entry.text, entry.previous, entry.digest, entry.number)
        storage.attack(
            "UPDATE entries SET kind = ?, analyst = ?, body = ?, previous = ?, digest = ? WHERE number = ?",
            values,
        )


@pytest.mark.parametrize("grants", [False, True])
def test_first_entry_beyond_a_budget_is_named_in_a_batch(storage, grants):
    with storage.open() as ledger:
        owner = account(ledger)
        for _ in range(9):
            owner.charge("a count", TENTH)
        if grants:
            owner.grant("ada", Budget(1))

    def smaller(n, kind, who, body):
        less = PrivacyFilter(Budget(Fraction(1, 4))).to_json()
        return kind, who, {**body, "filter": less, "epsilon": "1/4"} if n == 1 else body

    rewritten(storage, forged(storage, smaller))
    result = verdict(storage)
    assert (result.entries, result.problem) == (4, "entry 4 does not fit the budget")


def test_cost_overstated_by_an_older_version_verifies(history):
    def dearer(n, kind, who, body):
        return kind, who, charged(body, "1/5") if n == 4 else body

    assert problem_of(forged(history, dearer)[:5]) is None


def test_one_bad_entry_does_not_hide_another(history):
    for number in (4, 9):
        history.attack("UPDATE entries SET timestamp = 'never' WHERE number = ?", (number,))
    result = verdict(history).problems
    assert {f"entry {number} has been changed" for number in (4, 9)} <= set(result)
    assert result[0] == "entry 4 has been changed"


@pytest.mark.parametrize("column", ["account", "kind", "analyst", "timestamp", "body", "previous", "digest"])
def test_bytes_in_text_columns_are_found(folder, column):
    place = File(folder / "visits.ledger")
    with place.open() as ledger:
        owner = account(ledger)
        owner.record_release(owner.record_charge("a count", TENTH).number, "42")
    place.attack(f"UPDATE entries SET {column} = CAST({column} AS BLOB) WHERE number = 2")
    assert "entry 2" in verdict(place).problem
    place.attack(f"UPDATE entries SET {column} = CAST({column} AS TEXT) WHERE number = 2")
    place.attack("UPDATE releases SET body = CAST(body AS BLOB)")
    assert "the release of entry 2 has been changed" in verdict(place).problem


@pytest.mark.parametrize("kind", ["charge", "release", "version"])
@pytest.mark.parametrize("body", ["{}", '{"charge": {}, "charged": [], "dataset": {}, "loss": 5}'])
def test_reading_a_malformed_entry_raises_a_ledger_error(storage, kind, body):
    with storage.open() as ledger:
        owner = account(ledger)
        owner.record_version("1", "visits")
        owner.record_release(owner.record_charge("a count", TENTH).number, "42")
    storage.attack("UPDATE entries SET body = ? WHERE kind = ?", (body, kind))
    storage.forget()
    with storage.look() as ledger:
        for look in (History.of, label):
            with pytest.raises(LedgerFailed, match="was changed after it was written"):
                look(ledger.account("visits"))
