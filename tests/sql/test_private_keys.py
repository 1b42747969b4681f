"""Private keys that an aggregate's own parts select, and what is said where none is shown."""

from fractions import Fraction

import duckdb
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
        ("AVG(x)", "its number of rows"),
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
