"""Private keys that an aggregate's own parts select, and what is said where none is shown."""

from fractions import Fraction

import duckdb
import pandas as pd
import pytest

import hubbub as hb
from hubbub.mechanisms import StabilityHistogram, VectorStabilityHistogram


@pytest.fixture(scope="module")
def data():
    connection = duckdb.connect()
    connection.execute(
        "CREATE TABLE t AS SELECT i // 2 AS who, CASE WHEN i < 4 THEN 'rare' ELSE 'g' || (i % 3) END AS g, "
        "(i % 10) * 1.0 AS x FROM range(9000) r(i)"
    )
    return hb.open(connection, table="t", unit="who", rows_per_unit=2, bounds={"x": (0, 9)})


@pytest.mark.sweep(3)
@pytest.mark.slow
@pytest.mark.parametrize("what", ["AVG(x)", "SUM(x)", "STDDEV(x)", "COUNT(*) + AVG(x)", "SUM(x) / COUNT(*)"])
def test_any_sum_or_mean_selects_its_keys_without_epsilon_of_its_own(data, what):
    plan = data.sql(f"SELECT g, {what} AS a FROM t GROUP BY g", epsilon=1, delta=1e-6)
    assert plan.split.keys == 0
    assert plan.partition_selection is None
    assert isinstance(plan.stability_histogram, VectorStabilityHistogram)
    answers = plan.run().value
    # A key of two units is shown with a chance below 1e-6 · (two units): never in a test.
    assert answers["g"] == ["g0", "g1", "g2"]


@pytest.mark.parametrize("epsilon", [10**3, 10**8, 10**15, 10**18])
def test_a_mean_at_an_enormous_epsilon_does_not_fail_after_its_charge(epsilon):
    frame = pd.DataFrame({"g": ["a", "b"] * 1000, "x": [1.0, 2.0] * 1000})
    with hb.open(frame, table="t", unit=hb.Unit.row(), bounds={"x": (0, 9)}) as rows:
        plan = rows.sql(
            "SELECT g, AVG(x) AS a FROM t GROUP BY g", epsilon=epsilon, delta=1e-6, allow_large_epsilon=True
        )
        answers = plan.run().value
    assert answers["g"] == ["a", "b"]
    # With noise of a hundredth on a count of 1000 it is further off with chance below e^-1000.
    assert answers["a"] == pytest.approx([1, 2], abs=0.1)


def test_a_mean_is_what_it_is_with_declared_keys(data):
    text = "SELECT g, AVG(x) AS a, SUM(x) AS s FROM t GROUP BY g"
    selected = data.sql(text, epsilon=10, delta=1e-9).run().value
    assert selected["a"] == pytest.approx([4.5] * 3, abs=0.3)
    assert selected["s"] == pytest.approx([13_500] * 3, abs=500)
    for low, a, high in zip(selected["a_low"], selected["a"], selected["a_high"], strict=True):
        assert low <= a <= high


def test_a_count_beside_a_mean_of_another_value_selects(data):
    plan = data.sql(
        "SELECT g, COUNT(DISTINCT who) AS n, AVG(x) AS a FROM t GROUP BY g", epsilon=1, delta=1e-6
    )
    assert isinstance(plan.stability_histogram, StabilityHistogram)


@pytest.mark.slow
@pytest.mark.parametrize("rows", [1, 2])
def test_the_threshold_is_said_before_and_where_nothing_is_shown(rows):
    connection = duckdb.connect()
    connection.execute("CREATE TABLE t AS SELECT i AS who, 'g' || i AS g, 1.0 AS x FROM range(50) r(i)")
    data = hb.open(connection, table="t", unit="who", rows_per_unit=rows, bounds={"x": (0, 9)})
    for what, count in (
        ("AVG(x)", "its number of rows with a value of x"),
        ("COUNT(*)", "a"),
        ("MEDIAN(x)", "number of units"),
    ):
        plan = data.sql(f"SELECT g, {what} AS a FROM t GROUP BY g", epsilon=1, delta=1e-9)
        answers = plan.run().value
        assert len(answers) == 0
        note = answers.facts["nothing shown"]
        assert note.startswith("no key was shown: one is shown with 95 % where")
        assert note in str(answers)
        assert count in note
        assert "a larger epsilon or delta" in note
        # A limit of 1 cannot be made smaller.
        assert ("a smaller limit on" in note) is (rows > 1)
        least = note.split(" is ")[2].split(" or ")[0]
        assert f" {least} " in str(plan)
        assert ("a smaller limit on" in str(plan)) is (rows > 1)


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("SELECT g FROM t GROUP BY g ORDER BY COUNT(*)", "its number of rows"),
        ("SELECT g FROM t GROUP BY g ORDER BY COUNT(DISTINCT u)", "its number of units"),
        ("SELECT g, AVG(x) AS a, COUNT(*) AS n FROM t GROUP BY g", "its number of rows"),
        ("SELECT g, COUNT(x) AS n FROM t GROUP BY g", "its number of rows with a value of x"),
        (
            "SELECT g, AVG(x, contribution_bounds_per_group => (0, 9)) AS a FROM t GROUP BY g",
            "its number of units with a value of x",
        ),
    ],
)
def test_a_threshold_names_what_has_to_reach_it(text, count):
    """No row has a value: a key with any number of such rows is not shown by a mean of them."""
    rows = pd.DataFrame({"u": range(4), "g": list("abcd"), "x": [None] * 4}).astype({"x": "float64"})
    with hb.open(rows, table="t", unit="u", bounds={"x": (0, 9)}) as data:
        plan = data.sql(text, epsilon=1, delta=1e-12, rows_per_unit=1, groups_per_unit=1)
        assert f"a key is shown where {count}, with noise, reaches " in str(plan)
        nothing = plan.run().value.facts["nothing shown"]
    assert nothing.startswith(f"no key was shown: one is shown with 95 % where {count} is ")


def test_a_union_without_keys_says_why():
    rows = pd.DataFrame({"u": range(4), "g": list("abcd"), "h": list("efgh")})
    text = " UNION ALL ".join(f"SELECT {key} AS k, COUNT(*) AS n FROM t GROUP BY {key}" for key in "gh")
    with hb.open(rows, table="t", unit="u") as data:
        answers = data.sql(text, epsilon=1, delta=1e-12, rows_per_unit=1).run().value
    assert len(answers) == 0
    assert answers.facts["nothing shown"].startswith("no key was shown: one is shown with 95 % where n is")
    assert answers.facts["nothing shown"] in str(answers)


def test_with_limits_to_be_found_the_threshold_is_said_for_several(data):
    connection = duckdb.connect()
    connection.execute("CREATE TABLE t AS SELECT i AS who, 'g' || i AS g, 1.0 AS x FROM range(50) r(i)")
    other = hb.open(connection, table="t", unit="who", bounds={"x": (0, 9)})
    note = str(other.sql("SELECT g, AVG(x) AS a FROM t GROUP BY g", epsilon=1, delta=1e-6))
    assert "at a limit on rows per unit of 1, " in note
    assert " at 100 with 95 %" in note


def test_a_smaller_delta_raises_the_threshold(data):
    text = "SELECT g, AVG(x) AS a FROM t GROUP BY g"
    one, two = (data.sql(text, epsilon=1, delta=delta).stability_histogram for delta in (1e-4, 1e-8))
    assert two.threshold > one.threshold
    assert one.delta <= Fraction(1, 10**4)
