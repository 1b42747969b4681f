"""Counts are integers: in every form of a result, with their intervals, and in SQL over them."""

import json

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hubbub as hb
from hubbub.sql.integer_outputs import round_estimate
from hubbub.sql.moments import Estimate
from hubbub.sql.result import Result

REALS = st.floats(-1e9, 1e9)


def estimate(value, low, high):
    return Estimate(*(np.array([end]) for end in (value, low, high)))


def open_data(**more):
    connection = duckdb.connect()
    connection.execute(
        "CREATE TABLE t AS SELECT i // 2 AS who, ['a', 'b'][1 + i % 2] AS g, i % 7 AS x FROM range(900) r(i)"
    )
    return hb.open(connection, table="t", unit="who", keys={"g": ["a", "b"]}, bounds={"x": (0, 6)}, **more)


@given(REALS, st.floats(0, 1e6), st.floats(0, 1e6), st.integers(-(10**9), 10**9))
def test_rounding_keeps_every_integer_between_the_ends(value, below, above, exact):
    ends = estimate(value, value - below, value + above)
    rounded = round_estimate(ends, is_exact_integer=True)
    assert rounded.low < rounded.high or below + above < 1e-6
    assert rounded.low <= rounded.value <= rounded.high
    assert all(float(end[0]).is_integer() for end in vars(rounded).values())
    if ends.low <= exact <= ends.high:
        assert rounded.low <= exact <= rounded.high


@given(REALS, st.floats(0, 1e6), st.floats(0, 1e6), st.floats(0, 1))
def test_rounding_outward_keeps_every_number_between_the_ends(value, below, above, share):
    ends = estimate(value, value - below, value + above)
    rounded = round_estimate(ends, is_exact_integer=False)
    for end in (ends.low, ends.high):  # but for what ends are moved outward for the rounding of doubles
        slack = 16 * np.spacing(np.abs(end))
        assert rounded.low - slack <= end <= rounded.high + slack
    assert rounded.low <= rounded.value <= rounded.high


def test_open_ends_stay_open_and_null_stays_null():
    rounded = round_estimate(estimate(np.nan, -np.inf, np.inf), is_exact_integer=True)
    assert np.isnan(rounded.value[0])
    assert [rounded.low[0], rounded.high[0]] == [-np.inf, np.inf]
    huge = round_estimate(estimate(2.0**70, 2.0**69, 2.0**71), is_exact_integer=True)
    assert huge.value[0] == 2.0**62
    assert huge.high[0] == np.inf


COUNTS = (
    "COUNT(*)",
    "COUNT(x)",
    "COUNT(DISTINCT who)",
    "COUNT(DISTINCT x)",
    "2 * (COUNT(*) - COUNT(x)) + 1",
    "COALESCE(NULLIF(COUNT(*), 0), 0)",
    "CASE WHEN COUNT(*) > 5 THEN COUNT(*) ELSE 0 END",
    "COUNT(*, contribution_bounds_per_group => (0, 2))",
)


@pytest.mark.sweep(3)
@pytest.mark.slow
@pytest.mark.parametrize("rows_per_unit", [1, 2])
@pytest.mark.parametrize("with_mean", ["", ", AVG(x) AS mean"])
def test_counts_are_integers_in_every_format(rows_per_unit, with_mean, tmp_path):
    data = open_data(rows_per_unit=rows_per_unit)
    for what in COUNTS:
        answers = data.sql(f"SELECT g, {what} AS n{with_mean} FROM t GROUP BY g", epsilon=1).run().value
        for name in ("n", "n_low", "n_high"):
            assert all(type(value) is int for value in answers[name]), what
            assert answers.to_arrow().schema.field(name).type == pa.int64()
            assert pa.table(answers).schema.field(name).type == pa.int64()
            assert str(answers.to_pandas()[name].dtype) == "Int64"
            assert str(answers.to_polars()[name].dtype) == "Int64"
        answers.write(tmp_path / "n.parquet")
        assert duckdb.sql(f"SELECT typeof(n_low) FROM '{tmp_path}/n.parquet'").fetchall()[0] == ("BIGINT",)
        answers.write(tmp_path / "n.json")
        for row in json.loads((tmp_path / "n.json").read_text())["rows"]:
            assert all(type(row[name]) is int for name in ("n", "n_low", "n_high"))
        assert Result.from_json(answers.to_json()).to_dict() == answers.to_dict()
        assert "." not in answers.to_csv().splitlines()[1].split(",")[1]


@pytest.mark.sweep(5)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("sql", "is_integer"),
    [
        ("SELECT SUM(n) AS a FROM (SELECT g, COUNT(*) AS n FROM t GROUP BY g)", True),
        ("SELECT n AS a FROM (SELECT g, COUNT(*) AS n FROM t GROUP BY g) ORDER BY n", True),
        ("WITH c AS (SELECT g, COUNT(*) AS n FROM t GROUP BY g) SELECT MAX(n) - MIN(n) AS a FROM c", True),
        ("SELECT AVG(n) AS a FROM (SELECT g, COUNT(*) AS n FROM t GROUP BY g)", False),
        ("SELECT n / 2 AS a FROM (SELECT g, COUNT(*) AS n FROM t GROUP BY g)", False),
        ("SELECT SUM(n) AS a FROM (SELECT g, COUNT(*) / 2 AS n FROM t GROUP BY g)", False),
        ("SELECT g, COUNT(*) AS n, RANK() OVER (ORDER BY COUNT(*)) AS a FROM t GROUP BY g", True),
        ("SELECT SUM(x) AS a FROM t", False),
    ],
)
def test_sql_over_released_counts_keeps_integers(sql, is_integer):
    column = {each.name: each for each in open_data(rows_per_unit=2).sql(sql, epsilon=1).run().value.columns}[
        "a"
    ]
    assert column.is_integer is is_integer


@pytest.mark.slow
def test_having_sees_the_integers_that_are_shown():
    data = open_data(rows_per_unit=1)
    for _ in range(20):
        text = "SELECT g, COUNT(*) AS n, AVG(x) AS m FROM t GROUP BY g HAVING COUNT(*) >= 225"
        assert all(n >= 225 for n in data.sql(text, epsilon=1).run().value["n"])


@pytest.mark.slow
def test_exact_counts_of_weighted_rows_are_not_rounded():
    data = open_data(rows_per_unit=1)
    frame = pd.DataFrame({"g": ["a", "a", "b"], "who": [1, 1, 1]})
    three = hb.open(frame, table="t", unit="who", keys={"g": ["a", "b"]}, rows_per_unit=1)
    exact = three.exact(three.sql("SELECT g, COUNT(*) AS n FROM t GROUP BY g", epsilon=1))
    assert exact["n"] == pytest.approx([2 / 3, 1 / 3], abs=1e-5)
    assert data.exact(data.sql("SELECT COUNT(*) AS n FROM t", epsilon=1))["n"] == [450]


@pytest.mark.sweep(3)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("what", "names"),
    [
        ("COUNT(*)", ["count"]),
        ("COUNT(*), COUNT(*) + 1, COUNT(*)", ["count", "count_plus_1", "count_1"]),
        ("AVG(x), MEDIAN(x), COUNT(DISTINCT who)", ["avg_x", "median_x", "count_distinct_who"]),
        ("SUM(x) / COUNT(*)", ["sum_x_over_count"]),
        ("COUNT(*) AS n, AVG(x) AS count", ["n", "count"]),
    ],
)
def test_outputs_without_an_alias_have_plain_names(what, names):
    data = open_data(rows_per_unit=1)
    answers = data.sql(f"SELECT {what} FROM t", epsilon=10).run().value
    assert [column.name for column in answers.columns] == names
    outer = data.sql(f"SELECT g, {what}, RANK() OVER (ORDER BY COUNT(*)) AS r FROM t GROUP BY g", epsilon=10)
    assert [column.name for column in outer.run().value.columns] == ["g", *names, "r"]


@pytest.mark.slow
def test_keys_that_few_have_are_marked_as_luck():
    rows = pd.DataFrame({"who": range(1000), "g": ["common"] * 960 + ["rare"] * 40})
    data = hb.open(rows, table="t", unit="who")
    plan = data.sql("SELECT g, COUNT(*) AS n FROM t GROUP BY g", epsilon=0.25, delta=1e-6, rows_per_unit=1)
    seen = set()
    for _ in range(60):
        answers = plan.run().value
        luck = answers.facts.get("selected by luck", "")
        seen.add(("rare" in answers["g"], "rare" in luck))
        assert "common" not in luck
        assert ("rare" in luck) <= ("rare" in answers["g"])
    assert (False, True) not in seen
