"""NULL as a group, names as SQL binds them, and what a plan says of rows that are left out."""

import duckdb
import pandas as pd
import pytest

import hubbub as hb
from hubbub.sql.result import Result
from refusing import refused
from sql.test_differential import plan_of

MADE = "CREATE TABLE visits (patient BIGINT, region VARCHAR, age DOUBLE, day DATE, ok BOOLEAN)"
ROWS = [
    (1, "a", 20.0, "2024-01-01", True),
    (2, "b", 40.0, None, False),
    (3, None, None, "2024-02-01", None),
    (4, "c", 20.0, None, None),
]


def open_data(**keywords):
    connection = duckdb.connect(config={"threads": 1})
    connection.execute(MADE)
    connection.executemany("INSERT INTO visits VALUES (?, ?, ?, ?, ?)", ROWS)
    options = {"keys": {"region": ["a", "b"], "age": [20, 40]}, "bounds": {"age": (0, 100)}, **keywords}
    return hb.open(connection, table="visits", unit="patient", rows_per_unit=1, **options)


def counts(text, data=None):
    """The counts of a query at an ε that hides nothing, by key."""
    data = data or open_data()
    answers = data.run(plan_of(data, text)).value
    return dict(zip(answers["key"], (round(n) for n in answers["n"]), strict=True))


@pytest.mark.sweep(5)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("ok", {False: 1, True: 1, None: 2}),
        ("NOT ok", {False: 1, True: 1, None: 2}),
        ("age > 30", {False: 2, True: 1, None: 1}),
        ("age BETWEEN 30 AND 50", {False: 2, True: 1, None: 1}),
        ("region IN ('a', 'c')", {False: 1, True: 2, None: 1}),
        ("region LIKE 'a%'", {False: 2, True: 1, None: 1}),
        ("ok AND age > 30", {False: 3, True: 0, None: 1}),
        ("age IS NULL", {False: 3, True: 1}),
        ("ok IS TRUE", {False: 3, True: 1}),
        ("age IS NULL OR ok IS NULL", {False: 2, True: 2}),
        ("CASE WHEN age > 30 THEN 'old' WHEN age < 25 THEN 'young' END", {"old": 1, "young": 2, None: 1}),
        ("CASE WHEN age > 30 THEN 'old' ELSE 'other' END", {"old": 1, "other": 3}),
        ("CASE WHEN ok THEN 1 ELSE 0 END", {1.0: 1, 0.0: 3}),
        ("CAST(ok AS INTEGER)", {0.0: 1, 1.0: 1, None: 2}),
        ("COALESCE(ok, FALSE)", {False: 3, True: 1}),
        ("NULLIF(ok, TRUE)", {False: 1, True: 0, None: 3}),
        ("EXTRACT(quarter FROM day)", {1.0: 2, 2.0: 0, 3.0: 0, 4.0: 0, None: 2}),
    ],
)
def test_null_is_a_group_if_keys_follow_from_the_expression(key, expected):
    text = f"SELECT {key} AS key, COUNT(*) AS n FROM visits GROUP BY {key}"
    assert counts(text) == expected
    assert list(counts(text)) == list(expected)
    assert open_data().sql(text, epsilon=1).query.notes == []


@pytest.mark.parametrize(
    ("key", "note"),
    [
        ("region", "rows are left out if key is NULL or not among its 2 keys"),
        ("COALESCE(region, 'none')", "rows are left out if key is NULL or not among its 3 keys"),
        ("CASE WHEN ok THEN region END", "rows are left out if key is not among its 3 keys"),
    ],
)
def test_plan_and_label_state_rows_outside_declared_keys(key, note):
    plan = open_data().sql(f"SELECT {key} AS key, COUNT(*) AS n FROM visits GROUP BY {key}", epsilon=1)
    assert note in str(plan)
    assert plan.label()["notes"] == plan.run().value.facts["notes"] == [note]


def test_declared_boolean_keys_are_used_as_declared():
    data = open_data(keys={"ok": [True]})
    text = "SELECT ok AS key, COUNT(*) AS n FROM visits GROUP BY ok"
    assert "rows are left out if key is NULL or not its one key" in str(data.sql(text, epsilon=1))
    assert counts("SELECT ok AS key, COUNT(*) AS n FROM visits GROUP BY ok", data) == {True: 1}


def test_outer_join_has_a_null_group():
    towns = pd.DataFrame({"town": ["a", "b"], "big": ["yes", "no"]})
    frame = pd.DataFrame({"patient": [1, 2, 3], "town": ["a", "b", "x"]})
    data = hb.open(frame, table="t", unit="patient", public={"towns": towns}, rows_per_unit=1)
    text = "SELECT big AS key, COUNT(*) AS n FROM t {} JOIN towns ON t.town = towns.town GROUP BY big"
    assert counts(text.format("LEFT"), data) == {"no": 1, "yes": 1, None: 1}
    assert counts(text.format("INNER"), data) == {"no": 1, "yes": 1}


def test_null_group_does_not_raise_the_sensitivity():
    """A row is in one group, be it that of NULL; rounding adds a step in each of the two other groups."""
    plan = open_data().sql("SELECT ok, COUNT(*) AS n FROM visits GROUP BY ok", epsilon=1)
    [measured] = plan.bounded.bounded_aggregates
    assert measured.sensitivity.l1 * measured.step == 1 + 2 * measured.step
    assert measured.sensitivity.linf * measured.step == 1


# Names


@pytest.mark.sweep(3)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SELECT age * 1000 AS age, COUNT(*) AS n FROM visits GROUP BY age HAVING age < 30", {20000.0: 2}),
        ("SELECT -age AS age, COUNT(*) AS n FROM visits GROUP BY age ORDER BY age", {-40.0: 1, -20.0: 2}),
        ("SELECT -age AS age, COUNT(*) AS n FROM visits GROUP BY age ORDER BY age + 0", {-20.0: 2, -40.0: 1}),
        ("SELECT age AS key, COUNT(*) AS age FROM visits GROUP BY age ORDER BY 1 DESC", {40.0: 1, 20.0: 2}),
    ],
)
def test_names_are_bound_as_in_duckdb(text, expected):
    data = open_data()
    answers = data.run(plan_of(data, text)).value
    first, second = (answers[column.name] for column in answers.columns)
    assert list(zip(first, map(round, second), strict=True)) == list(expected.items())


@pytest.mark.parametrize(
    "text",
    [
        "SELECT region AS age, COUNT(*) AS n FROM visits GROUP BY region HAVING age = 'a'",
        "SELECT age > 30 AS key, COUNT(*) AS age FROM visits GROUP BY age > 30 HAVING age > 30",
    ],
)
def test_ambiguously_bound_name_is_refused(text):
    with refused(hb.InvalidInput, match="engines disagree on which of them HAVING means"):
        open_data().sql(text, epsilon=1)


@pytest.mark.slow
def test_ambiguous_alias_is_refused_in_googlesql():
    query = "age * 10 AS age, COUNT(*) AS n FROM visits GROUP BY age"
    text = f"SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1) {query}"
    with refused(hb.InvalidInput, match="to GoogleSQL it is the output"):
        open_data().sql(text)
    assert open_data().sql(text.replace("AS age", "AS ages"))


@pytest.mark.slow
def test_ungrouped_column_is_refused():
    for text in (
        "SELECT COUNT(*) AS age, age + 1 AS m FROM visits",
        "SELECT COUNT(*) AS age FROM visits ORDER BY age + 1",
    ):
        with refused(hb.Refused, match="neither grouped by nor aggregated"):
            open_data().sql(text, epsilon=1)
    with refused(hb.InvalidInput, match="ORDER BY 3 has no such column"):
        open_data().sql("SELECT COUNT(*) AS n FROM visits ORDER BY 3", epsilon=1)


# Constants


def test_sum_of_a_constant_is_a_multiple_of_the_count():
    data = open_data()
    answers = data.run(plan_of(data, "SELECT SUM(1) AS n, SUM(-2.5) / 2 AS m FROM visits")).value
    assert [round(answers["n"][0]), answers["m"][0]] == [4, pytest.approx(-5)]
    with refused(hb.Unsupported, match="of a literal"):
        data.sql("SELECT AVG(1) AS n FROM visits", epsilon=1)


@pytest.mark.slow
@pytest.mark.parametrize("condition", ["1 = NULL", "NULL = NULL", "age = NULL", "NOT (NULL > 1)"])
def test_unknown_condition_does_not_select_rows(condition):
    data = open_data()
    answers = data.run(plan_of(data, f"SELECT COUNT(*) AS n FROM visits WHERE {condition}")).value
    assert round(answers["n"][0]) == 0


def test_quantiles_state_that_they_do_not_interpolate():
    plan = open_data().sql("SELECT MEDIAN(age) AS m FROM visits", epsilon=1)
    assert "not interpolated between two rows" in str(plan)
    assert any("not interpolated" in note for note in plan.label()["notes"])


@pytest.mark.slow
def test_missing_answers_are_null_in_every_format():
    data = open_data()
    output = "age AS key, NULLIF(COUNT(*), COUNT(*)) AS n, NULLIF(age, 20) AS m, age > NULL AS b"
    text = f"SELECT {output} FROM visits GROUP BY age"
    answers = data.run(plan_of(data, text)).value
    assert [answers["n"], answers["m"], answers["b"]] == [[None, None], [None, 40.0], [None, None]]
    assert answers.to_csv().splitlines()[1].startswith("20,,")
    assert "nan" not in (answers.to_json() + str(answers) + answers.to_csv()).lower()
    assert Result.from_json(answers.to_json()).to_dict() == answers.to_dict()
    assert answers.relation().fetchall()[0][1] is None
