"""A dataset with a ledger: charged before it runs, kept before it is shown, asked again at no cost."""

import json
import threading
from fractions import Fraction
from unittest import mock

import duckdb
import pandas as pd
import pytest

import hubbub as hb
import hubbub.sql.composite_plan
from hubbub.accounting import Budget
from hubbub.errors import BudgetExceeded, EngineFailed, InvalidInput, Refused
from hubbub.estimators import StandardScaler
from hubbub.ledger import Ledger
from hubbub.sql.fingerprint import fingerprint
from internals import engine_of, origin_of

QUESTION = "SELECT g, COUNT(*) AS n FROM people GROUP BY g"
ROWS = pd.DataFrame({"who": range(100), "g": ["ab"[i % 2] for i in range(100)], "x": [1.0] * 100})


@pytest.fixture
def ledger(storage):
    with storage.open() as handle:
        handle.account("people", hb.Unit("who"), Budget(1))
        yield handle


def open_data(ledger, rows=ROWS, version="1", **options):
    return hb.open(
        {"people": rows},
        unit="who",
        ledger=ledger,
        keys={"g": ["a", "b"]},
        bounds={"x": (0, 2)},
        rows_per_unit=1,
        version=version,
        **options,
    )


def ask(data, text=QUESTION, epsilon=0.1):
    return data.run(data.sql(text, epsilon=epsilon))


def counting(data):
    """Counts how often the engine is asked."""
    return mock.patch.object(engine_of(data), "execute", wraps=engine_of(data).execute)


def test_question_is_charged_once_and_always_answered_the_same(ledger):
    data = open_data(ledger)
    first = ask(data)
    with counting(data) as engine:
        again = ask(data)
    assert engine.call_count == 0
    assert again.value.to_dict() == first.value.to_dict()
    assert again.loss == first.loss
    assert data.account.spent().epsilon == Fraction(1, 10)
    assert (first.label()["asked before"], again.label()["asked before"]) == (False, True)
    assert again.label()["as of"] == first.label()["as of"]
    assert ask(open_data(ledger)).value.to_dict() == first.value.to_dict()
    assert ledger.verify().ok


def test_ledger_entry_contains_only_public_facts(ledger):
    data = open_data(ledger)
    ask(data)
    charge = next(entry for entry in data.account.entries() if entry.kind == "charge")
    assert charge.body["description"] == QUESTION
    assert charge.body["fingerprint"] == fingerprint(data.sql(QUESTION, epsilon=0.1), origin_of(data))
    selection = json.loads(data.account.get_release(charge.number))
    assert selection["format"] == "hubbub result/1"


def test_charge_does_not_depend_on_the_rows(ledger):
    ask(open_data(ledger))
    other = ROWS.assign(x=2.0, g="a")[:7]
    with counting(data := open_data(ledger, other)) as engine:
        ask(data)
    assert engine.call_count == 0  # the same question on the same declared version
    with counting(data := open_data(ledger, other, version="2")) as engine:
        ask(data)
    assert engine.call_count == 1
    one, two = (entry.body for entry in data.account.entries() if entry.kind == "charge")
    # The attempt is a random name, and who runs.
    assert {name for name in one if one[name] != two[name]} == {"key", "attempt"}


def test_declared_version_is_recorded_with_each_answer(ledger, folder):
    path = folder / "people.csv"
    ROWS.to_csv(path, index=False)

    def of(version=None):
        return open_data(ledger, path, version, types={"who": "number", "x": "number"})

    first = ask(of("2026-10"))
    assert ask(of()).value.to_dict() == first.value.to_dict()
    second = ask(of("2026-11"))
    assert second.label()["version"] == "2026-11"
    assert of().version == "2026-11"
    assert of().account.spent().epsilon == Fraction(1, 5)
    again = ask(of("2026-10"))
    assert (again.label()["version"], again.value.to_dict()) == ("2026-10", first.value.to_dict())


@pytest.mark.sweep(5)
@pytest.mark.parametrize(
    "text",
    [
        "select g, count(*) as n from PEOPLE where X > 1 and g = 'a' group by G",
        "SELECT g,\n\tCOUNT( * ) AS n FROM people -- a comment\nWHERE x>1 AND g='a' GROUP BY g",
        "SELECT g, COUNT(*) AS n FROM people WHERE g = 'a' AND x > 1 GROUP BY g",
        "SELECT g, COUNT(*) AS n FROM people WHERE x > 1 AND g = 'a' GROUP BY 1",
    ],
)
def test_equivalent_queries_are_one_question(ledger, text):
    data = open_data(ledger)
    plan = data.sql("SELECT g, COUNT(*) AS n FROM people WHERE x > 1 AND g = 'a' GROUP BY g", epsilon=0.1)
    assert fingerprint(data.sql(text, epsilon=0.1)) == fingerprint(plan)


@pytest.mark.sweep(5)
@pytest.mark.parametrize(
    "text",
    [
        "SELECT g, COUNT(*) AS m FROM people WHERE x > 1 AND g = 'a' GROUP BY g",
        "SELECT g, COUNT(*) AS n FROM people WHERE x > 1 AND g = 'A' GROUP BY g",
        "SELECT g, COUNT(*) AS n FROM people WHERE x > 1 OR g = 'a' GROUP BY g",
        "SELECT g, COUNT(*) AS n FROM people WHERE x >= 1 AND g = 'a' GROUP BY g",
        "SELECT g, COUNT(DISTINCT who) AS n FROM people WHERE x > 1 AND g = 'a' GROUP BY g",
        "SELECT COUNT(*) AS n, g FROM people WHERE x > 1 AND g = 'a' GROUP BY g",
        "SELECT g, COUNT(*) AS n FROM people WHERE x > 1 AND g = 'a' GROUP BY g ORDER BY n",
        "SELECT g, COUNT(*) AS n FROM people WHERE x > 1 AND g = 'a' GROUP BY g LIMIT 1",
        "SELECT g, COUNT(*) AS n FROM people WHERE x > 1 AND g = 'a' GROUP BY g HAVING COUNT(*) > 1",
    ],
)
def test_different_queries_are_different_questions(ledger, text):
    data = open_data(ledger)
    plan = data.sql("SELECT g, COUNT(*) AS n FROM people WHERE x > 1 AND g = 'a' GROUP BY g", epsilon=0.1)
    assert fingerprint(data.sql(text, epsilon=0.1)) != fingerprint(plan)


def test_other_parameters_make_another_question(ledger):
    data = open_data(ledger)
    text = "SELECT g, SUM(x) AS s FROM people GROUP BY g"
    marks = [
        fingerprint(data.sql(text, epsilon=0.1)),
        fingerprint(data.sql(text, epsilon=0.1), [["people", "/data/people.csv"]]),
        fingerprint(data.sql(text, epsilon=0.2)),
        fingerprint(data.sql(text, epsilon=0.1, delta=1e-9)),
        fingerprint(data.sql(text, epsilon=0.1, rows_per_unit=2)),
        fingerprint(data.sql(text, epsilon=0.1, bounds={"x": (0, 1)})),
        fingerprint(data.sql(text, epsilon=0.1, keys={"g": ["a"]})),
        fingerprint(data.sql(text, epsilon=0.1, keys={"g": ["b", "a"]})),
        fingerprint(data.sql(text, epsilon=0.1, confidence=0.9)),
    ]
    assert len(set(marks)) == len(marks)


def test_failed_query_stays_charged(ledger):
    data = open_data(ledger)
    with counting(data) as engine, pytest.raises(BudgetExceeded):
        ask(data, epsilon=2)
    assert engine.call_count == 0
    with mock.patch.object(engine_of(data), "execute", side_effect=RuntimeError), pytest.raises(EngineFailed):
        ask(data)
    assert data.account.spent().epsilon == Fraction(1, 10)
    with counting(data) as engine, pytest.raises(EngineFailed, match="the run failed after it was charged"):
        ask(data)
    assert engine.call_count == 0  # that it failed is the outcome
    assert data.account.spent().epsilon == Fraction(1, 10)
    ask(data, epsilon=0.2)
    assert data.account.spent().epsilon == Fraction(3, 10)


def test_values_without_bounds_stay_null(ledger):
    """Asked for again they would be drawn again: the charge pays for one search."""
    data = open_data(ledger, rows=ROWS[:3])
    plan = data.sql("SELECT COUNT(*) AS n, SUM(x) AS s FROM people", epsilon=0.1, bounds={"x": "auto"})
    first = data.run(plan).value.to_dict()
    for again in (data, open_data(ledger, rows=ROWS[:3])):
        query = again.sql("SELECT COUNT(*) AS n, SUM(x) AS s FROM people", epsilon=0.1, bounds={"x": "auto"})
        with counting(again) as engine:
            assert again.run(query).value.to_dict() == first
        assert engine.call_count == 0
    assert data.account.spent().epsilon == Fraction(1, 10)
    assert ledger.verify().ok


def test_concurrent_question_waits_for_the_running_answer(ledger):
    """The second of two threads is there before the first has drawn its noise."""
    one, two = open_data(ledger), open_data(ledger)
    second, waits = [], threading.Event()

    def ask_too():
        plan = two.sql(QUESTION, epsilon=0.1)
        second.append(two.run(plan, lambda step: waits.set() if "waiting" in step else None))

    def slow(*arguments, **options):
        thread.start()
        assert waits.wait(60)
        return hubbub.sql.executor.execute(*arguments, **options)

    thread = threading.Thread(target=ask_too)
    with mock.patch.object(hubbub.sql.composite_plan, "execute", slow):
        first = ask(one)
        thread.join(60)
    assert second[0].value.to_dict() == first.value.to_dict()
    assert one.account.spent().epsilon == Fraction(1, 10)


def test_question_asked_within_its_own_run_is_charged_again(ledger):
    one, two = open_data(ledger), open_data(ledger)
    inner = []

    def meanwhile(*arguments, **options):
        if not inner:
            inner.append(None)
            inner[0] = ask(two)
        return hubbub.sql.executor.execute(*arguments, **options)

    with mock.patch.object(hubbub.sql.composite_plan, "execute", meanwhile):
        outer = ask(one)
    assert outer.label()["entry"] != inner[0].label()["entry"]
    assert one.account.spent().epsilon == Fraction(1, 5)
    assert ledger.verify().ok


def test_stored_answer_costs_another_analyst_only_her_own_budget(ledger):
    owner = ledger.account("people")
    owner.grant("ada", Budget(0.5))
    owner.grant("bob", Budget(0.15))
    ada, bob = open_data(ledger, analyst="ada"), open_data(ledger, analyst="bob")
    answer = ask(ada)
    for _ in range(2):
        assert ask(bob).value.to_dict() == answer.value.to_dict()
    assert (owner.spent().epsilon, bob.account.spent().epsilon) == (Fraction(1, 10), Fraction(1, 10))
    ask(ada, QUESTION.replace("AS n", "AS m"))
    with pytest.raises(BudgetExceeded, match="the budget of bob"):
        ask(bob, QUESTION.replace("AS n", "AS m"))
    with pytest.raises(Refused, match="eve has no budget"):
        ask(open_data(ledger, analyst="eve"))


def test_nonprivate_access_is_recorded_first_and_for_the_owner_only(ledger):
    data = open_data(ledger)
    plan = data.sql(QUESTION, epsilon=0.1)
    with mock.patch.object(engine_of(data), "execute", side_effect=RuntimeError), pytest.raises(RuntimeError):
        data.exact(plan)
    *_, entry = data.account.entries()
    assert (entry.kind, entry.body) == ("nonprivate_access", {"description": QUESTION})
    assert data.exact(plan)["n"] == [50, 50]
    before = len(list(data.account.entries()))
    with pytest.raises(InvalidInput, match="by another dataset"):
        open_data(ledger).exact(plan)
    assert len(list(data.account.entries())) == before
    data.account.grant("ada", Budget(1))
    analyst = open_data(ledger, analyst="ada")
    with counting(analyst) as engine, pytest.raises(Refused, match="only the owner"):
        analyst.exact(analyst.sql(QUESTION, epsilon=0.1))
    assert engine.call_count == 0


def test_ledger_is_opened_by_its_path(folder):
    path = folder / "people.csv"
    ROWS.to_csv(path, index=False)
    options = {"unit": "who", "types": {"x": "number"}, "keys": {"g": ["a", "b"]}, "rows_per_unit": 1}
    where = folder / "people.ledger"
    with hb.open(path, ledger=where, budget=Budget(1), **options) as data:
        first = ask(data).value.to_dict()
    with hb.open(path, ledger=str(where), **options) as data:
        assert ask(data).value.to_dict() == first
        assert data.account.name == "people"
    with Ledger.open(where) as ledger:
        assert ledger.verify().ok
    with pytest.raises(InvalidInput, match="no account 'other'"):
        hb.open(path, ledger=where, account="other", **options)


def test_same_table_name_in_two_databases_is_two_identities(folder):
    origins = []
    for name in ("one", "two"):
        path = folder / f"{name}.duckdb"
        connection = duckdb.connect(str(path))
        connection.execute("CREATE TABLE people AS SELECT i AS who, 'a' AS g FROM range(9) r(i)")
        connection.close()
        with hb.open(
            path, table="people", unit="who", ledger=folder / "x.ledger", budget=Budget(1), keys={"g": ["a"]}
        ) as data:
            origins.append(origin_of(data))
            data.run(data.sql(QUESTION, epsilon=0.1, rows_per_unit=1))
            spent = data.account.spent().epsilon
    assert origins[0] != origins[1]
    assert spent == Fraction(1, 5)


@pytest.mark.parametrize("name", ["account", "analyst", "version"])
def test_ledger_options_are_refused_without_a_ledger(name):
    with pytest.raises(InvalidInput, match=f"{name} is given without a ledger"):
        hb.open(ROWS, unit="who", **{name: "x"})


def test_interactive_mechanism_spends_from_the_same_account(ledger):
    account = ledger.account("people")
    mechanism = hb.AboveThreshold.of(epsilon=0.5, threshold=10, sensitivity=1)
    for other in (None, hb.Unit.row(), hb.Unit("who", hb.Neighbours.SUBSTITUTE)):
        with pytest.raises(Refused, match="the account protects"):
            mechanism.open(account=account, unit=other)
    assert account.spent().epsilon == 0
    session = mechanism.open(account=account, unit=account.unit)
    assert session.receipt is not None
    assert account.spent().epsilon == Fraction(1, 2)


def test_training_spends_from_the_same_account(ledger):
    account = ledger.account("rows", hb.Unit.row(), Budget(1))
    account.grant("ada", Budget(1))
    for spender in (account, account.for_analyst("ada")):
        scaler = StandardScaler(epsilon=0.25, bounds=(0, 1), account=spender, unit=spender.unit)
        scaler.fit([[0.5], [1.0]])
    charges = [entry for entry in account.entries() if entry.kind == "charge"]
    assert [(entry.analyst, entry.body["description"]) for entry in charges] == [
        ("", "StandardScaler.fit"),
        ("ada", "StandardScaler.fit"),
    ]
    assert account.remaining().epsilon == Fraction(1, 2)
    assert ledger.verify().ok
    with pytest.raises(BudgetExceeded):
        StandardScaler(epsilon=0.75, bounds=(0, 1), account=account, unit=account.unit).fit([[0.5], [1.0]])
