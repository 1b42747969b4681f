"""Whatever is declared or asked, synopses answer or refuse; nothing else is raised."""

from fractions import Fraction

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hubbub as hb
from hubbub.errors import HubbubError
from hubbub.synthesis.declarations import parse_rule
from hubbub.synthesis.domain import Column, Domain

DOMAIN = Domain(
    (
        Column.of_categories("a", ["x", "y", None]),
        Column.of_numbers("n", (0, 10), cuts=(5,), unit=1),
        Column.of_numbers("r", (0, 1), cuts=(Fraction(1, 2),)),
        Column.of_categories("b", [False, True]),
    )
)
WORDS = st.sampled_from(
    ["a", "n", "r", "b", "'x'", "'q'", "5", "-1", "1e400", "0.5", "NULL", "TRUE", "AND", "OR", "NOT", "IN",
     "IS", "(", ")", "<", "<=", "=", "<>", ">", "BETWEEN", "+", "*", "/", "CASE", "WHEN", "THEN", "ELSE",
     "END", ","]
)  # fmt: skip
NUMBERS = st.one_of(
    st.integers(-(10**6), 10**6),
    st.floats(),
    st.sampled_from([10**400, -0.0, 1e308, float("nan"), None, "5", True]),
)


@settings(max_examples=150, deadline=None)
@given(st.lists(WORDS, max_size=8))
def test_rules_are_read_or_refused(words):
    try:
        rule = parse_rule(" ".join(words), DOMAIN)
    except HubbubError:
        return
    assert DOMAIN.mask(rule.columns).dtype == bool


@pytest.fixture(scope="module")
def data():
    connection = duckdb.connect()
    connection.execute("CREATE TABLE t AS SELECT ['x', 'y'][1 + i % 2] AS a, i % 11 AS n FROM range(50) r(i)")
    with hb.open(
        connection, table="t", unit=hb.Unit.row(), keys={"a": ["x", "y"]}, bounds={"n": (0, 10)}
    ) as dataset:
        yield dataset


@pytest.fixture(scope="module")
def synopsis(data):
    return data.plan_synopsis(2, epsilon=1, delta=1e-6, steps={"n": 1}).run().value


@settings(max_examples=60, deadline=None)
@given(st.lists(WORDS, max_size=7), st.lists(WORDS, max_size=3))
def test_questions_are_answered_or_refused(synopsis, condition, key):
    where = f" WHERE {' '.join(condition)}" if condition else ""
    by = f" GROUP BY {' '.join(key)}" if key else ""
    text = f"SELECT COUNT(*) AS c FROM t{where}{by}"
    try:
        result = synopsis.sql(text)
    except HubbubError:
        return
    assert all(
        low <= n <= high for low, n, high in zip(result["c_low"], result["c"], result["c_high"], strict=True)
    )


@settings(max_examples=60, deadline=None)
@given(
    st.lists(NUMBERS, max_size=4),
    st.tuples(NUMBERS, NUMBERS, NUMBERS),
    st.sampled_from([1, 2, 3, 0, -1, 2.5, [], [("a", "n")], [("a", "a")], [()], {("a",): 2}, {("n",): 0}]),
)
def test_plans_are_made_or_refused(data, cuts, numbers, workload):
    step, epsilon, delta = numbers
    try:
        plan = data.plan_synopsis(
            workload,
            epsilon=epsilon,
            delta=delta,
            cuts={"n": cuts},
            steps={"n": step} if step is not None else {},
        )
    except HubbubError:
        return
    assert plan.loss.epsilon(plan.delta) <= float(plan.epsilon) * 1.0001
