"""Outputs: expressions over what was released, and the ends between which the exact ones lie."""

import itertools
from datetime import date, datetime
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hubbub as hb
from hubbub.engines.schema import Kind, Table
from hubbub.errors import HubbubError, InvalidInput, Unsupported
from hubbub.sql import released_values
from hubbub.sql.analyzer import analyze
from hubbub.sql.moments import Estimate
from hubbub.sql.parser import parse
from hubbub.sql.post_processing import compile_outputs
from hubbub.sql.released_values import IntervalValue
from refusing import refused

TABLE = Table.of(
    "t",
    {
        "unit": Kind.OPAQUE,
        "g": Kind.TEXT,
        "year": Kind.NUMBER,
        "day": Kind.DATE,
        "at": Kind.TIMESTAMP,
        "is_new": Kind.BOOLEAN,
        "x": Kind.NUMBER,
    },
    unit="unit",
    bounds={"x": (0, 10)},
)
N, S = "COUNT(*)", "SUM(x)"


def ask(text):
    return analyze(parse(text)[0], {"t": TABLE}, rows_are_units=False, text=text)


def table(text, groups=((),), **aggregates):
    """The columns of the answer, where COUNT(*) and SUM(x) are (value, low, high), one for each group."""
    query = ask(text)
    known = {"count": aggregates.get("n", [(5, 2, 8)]), "sum": aggregates.get("s", [(10, 8, 12)])}

    def estimate(place, confidence):
        assert Fraction(19, 20) <= confidence < 1
        ends = zip(*known[query.aggregates[place].kind], strict=True)
        return Estimate(*(np.array(part, dtype=np.float64) for part in ends))

    return compile_outputs(query).evaluate(list(groups), estimate, Fraction(19, 20))


def ends(expression, **aggregates):
    _, column = table(f"SELECT {N} AS n, {expression} AS a FROM t", **aggregates)
    parts = (column.values, column.low, column.high)
    return [None if part is None else part[0] for part in parts]


# Values and their ends


@pytest.mark.parametrize(
    ("expression", "value", "low", "high"),
    [
        (N, 5, 2, 8),
        (f"{N} + 1", 6, 3, 9),
        (f"{S} - {N}", 5, 0, 10),
        (f"-({N})", -5, -8, -2),
        (f"{N} * {S}", 50, 16, 96),
        (f"{N} * -2", -10, -16, -4),
        (f"{S} / {N}", 2, 1, 6),
        (f"ABS({N} - {S})", 5, 0, 10),
        (f"ABS(-({N}))", 5, 2, 8),
        (f"ABS(7 - {S})", 3, 1, 5),
        (f"ROUND({N} / 3, 1)", 1.7, 0.7, 2.7),
        (f"ROUND({S} * 10, -1)", 100, 80, 120),
        (f"ROUND({N} / 3)", 2, 1, 3),
        (f"FLOOR({N} / 3)", 1, 0, 2),
        (f"CEIL({N} / 3)", 2, 1, 3),
        (f"SQRT({N} - 5)", 0, 0, 3**0.5),
        (f"EXP({N} - 5)", 1, np.exp(-3), np.exp(3)),
        (f"LN({N} - 2)", np.log(3), -np.inf, np.log(6)),
        (f"CAST({N} AS DOUBLE)", 5, 2, 8),
        (f"COALESCE({N}, 3)", 5, 2, 8),
        (f"NULLIF({N}, 3)", 5, 2, 8),
        # What could come out either way spans both.
        (f"CASE WHEN {N} > 4 THEN {S} ELSE 0 END", 10, 0, 12),
        (f"CASE WHEN {N} > 1 THEN {S} ELSE 0 END", 10, 8, 12),
        (f"CASE WHEN {N} > 9 THEN {S} ELSE 0 END", 0, 0, 0),
        (f"CASE WHEN {N} > 9 THEN 1 WHEN {S} >= 8 THEN 2 ELSE 3 END", 2, 2, 2),
        (f"CASE WHEN {N} > 4 THEN {S} END", 10, 8, 12),
        (f"CASE {N} WHEN 5 THEN 1 WHEN 9 THEN 2 ELSE 3 END", 1, 1, 3),
        (f"IF({N} > 1, {S}, 0)", 10, 8, 12),
        (f"CASE WHEN {N} BETWEEN 2 AND 8 THEN 1 ELSE 0 END", 1, 1, 1),
        (f"CASE WHEN {N} BETWEEN 3 AND 8 THEN 1 ELSE 0 END", 1, 0, 1),
        (f"CASE WHEN {N} IN (1, 9) THEN 1 ELSE 0 END", 0, 0, 0),
        (f"CASE WHEN {N} NOT IN (1, 9) THEN 1 ELSE 0 END", 1, 1, 1),
        (f"CASE WHEN {N} IN (5, NULL) THEN 1 ELSE 0 END", 1, 0, 1),
        (f"CASE WHEN {N} NOT IN (5, NULL) THEN 1 ELSE 0 END", 0, 0, 0),
        (f"CASE WHEN NULLIF({N}, 3) IS NULL THEN 1 ELSE 0 END", 0, 0, 1),
        (f"CASE WHEN NULLIF({N}, 30) IS NOT NULL THEN 1 ELSE 0 END", 1, 1, 1),
        (f"CASE WHEN NOT (NULLIF({N}, 5) > 1) THEN 1 ELSE 0 END", 0, 0, 0),
        (f"CASE WHEN ({N} > 4) IS NOT TRUE THEN 1 ELSE 0 END", 0, 0, 1),
        (f"CASE WHEN ({N} > 1) IS FALSE THEN 1 ELSE 0 END", 0, 0, 0),
        (f"CASE WHEN {N} IS DISTINCT FROM 9 THEN 1 ELSE 0 END", 1, 1, 1),
        (f"CASE WHEN NULLIF({N}, 5) IS NOT DISTINCT FROM NULL THEN 1 ELSE 0 END", 1, 0, 1),
        (f"ROUND({N} / 2)", 3, 1, 4),
        (f"ROUND(-({N}) / 2)", -3, -4, -1),
        (f"COALESCE(NULLIF({N}, 3), 100)", 5, 2, 100),
        (f"COALESCE(NULLIF({N}, 30), 100)", 5, 2, 8),
        (f"COALESCE(NULL, {N})", 5, 2, 8),
        (f"COALESCE(NULLIF({N}, 3), NULLIF({S}, 8), 1)", 5, 1, 12),
        (f"NULLIF({N}, {S}) + 0", 5, 2, 8),
        (f"CASE WHEN {N} = 5 THEN 1 ELSE 0 END", 1, 0, 1),
        (f"CASE WHEN {N} <> 9 THEN 1 ELSE 0 END", 1, 1, 1),
        (f"CASE WHEN {N} <> 5 THEN 1 ELSE 0 END", 0, 0, 1),
        (f"CASE WHEN {N} = 9 THEN 1 ELSE 0 END", 0, 0, 0),
        (f"CASE WHEN {N} < 9 AND {S} <= 12 THEN 1 ELSE 0 END", 1, 1, 1),
        (f"CASE WHEN {N} > 9 OR {S} > 11 THEN 1 ELSE 0 END", 0, 0, 1),
        (f"CASE WHEN NOT ({N} > 9) THEN 1 ELSE 0 END", 1, 1, 1),
        (f"CASE WHEN TRUE THEN {N} ELSE 0 END", 5, 2, 8),
        (f"CASE WHEN CASE WHEN {N} > 4 THEN TRUE ELSE FALSE END THEN 1 ELSE 0 END", 1, 0, 1),
        (f"CASE WHEN CASE WHEN {N} > 4 THEN 'a' ELSE 'b' END = 'a' THEN 1 ELSE 0 END", 1, 0, 1),
        (f"CASE WHEN NULLIF({N}, 3) > 1 THEN 1 ELSE 0 END", 1, 0, 1),
    ],
)
def test_interval_of_an_expression_follows_from_its_parts(expression, value, low, high):
    assert ends(expression) == [
        pytest.approx(part, nan_ok=True) if part is not None else None for part in (value, low, high)
    ]


@pytest.mark.parametrize("expression", [f"{S} / ({N} - 5)", f"{S} / ({N} - 2)", f"1 / ({N} - 8)"])
def test_division_by_an_interval_with_zero_is_unbounded(expression):
    assert ends(expression)[1:] == [-np.inf, np.inf]


def test_missing_value_has_no_interval():
    value, low, high = ends(f"{S} / ({N} - 5)")
    assert np.isnan(value)
    assert (low, high) == (-np.inf, np.inf)
    value, low, high = ends(f"CASE WHEN {N} > 9 THEN {S} END")
    assert np.isnan(value)
    assert (low, high) == (-np.inf, np.inf)


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("1 + 2 * 3", 7.0),
        ("'a text'", "a text"),
        (f"{N} > 4", True),
        (f"{N} > 4 AND {N} < 5", False),
        (f"CASE WHEN {N} > 4 THEN 'many' ELSE 'few' END", "many"),
        (f"CASE WHEN {N} > 9 THEN 'many' END", None),
        ("CASE WHEN 1 > 2 THEN 1 ELSE 2 END", 2.0),
        ("NULLIF(1, 1)", None),
        ("NULLIF(1, 2)", 1.0),
        ("NULLIF('p', 'p')", None),
        ("NULLIF('p', 'q')", "p"),
        ("NULL > 1", None),
        ("1 = NULL", None),
        ("NULL = NULL", None),
        ("NOT (NULL > 1)", None),
        ("NULL > 1 AND FALSE", False),
        ("NULL > 1 OR TRUE", True),
        ("NULL > 1 OR FALSE", None),
        ("NULL IN (1, 2)", None),
        ("1 IN (1, NULL)", True),
        ("1 IN (2, NULL)", None),
        ("3 BETWEEN NULL AND 2", False),
        ("1 BETWEEN NULL AND 2", None),
        ("NULL IS NULL", True),
        ("NULL", None),
        ("1 / 0", None),
        ("LN(0)", None),
        ("SQRT(-1)", None),
        ("EXP(1000)", None),
        ("DATE '2024-01-02' > '2024-01-01'", True),
        ("DATE '2024-01-02' = TIMESTAMP '2024-01-02 00:00:00'", True),
        ("COALESCE(NULL, DATE '2024-01-02')", date(2024, 1, 2)),
        ("1 = 1", True),
    ],
)
def test_booleans_texts_and_constants_have_no_interval(expression, value):
    columns = table(f"SELECT {N} AS n, {expression} AS a FROM t")
    result = columns[1].values[0]
    assert columns[1].low is columns[1].high is None
    assert result == value or (value is None and (result is None or np.isnan(result)))


def numbers(depth):
    leaves = st.sampled_from([N, S, "1", "0", "-2", "3.5"])
    if depth == 0:
        return leaves
    inner = numbers(depth - 1)
    truths = st.builds("{} {} {}".format, inner, st.sampled_from(["<", "<=", ">", ">=", "=", "<>"]), inner)
    truths = st.one_of(
        truths,
        st.builds("NOT ({})".format, truths),
        st.builds("({}) {} ({})".format, truths, st.sampled_from(["AND", "OR"]), truths),
        st.builds("{} IS DISTINCT FROM {}".format, inner, inner),
    )
    return st.one_of(
        leaves,
        st.builds("({}) {} ({})".format, inner, st.sampled_from("+-*/"), inner),
        st.builds("ABS({})".format, inner),
        st.builds("ROUND({}, 1)".format, inner),
        st.builds("CASE WHEN {} THEN {} ELSE {} END".format, truths, inner, inner),
        st.builds("CASE WHEN {} THEN {} END".format, truths, inner),
        st.builds("COALESCE({}, {})".format, inner, inner),
        st.builds("NULLIF({}, {})".format, inner, inner),
        st.builds("CASE {} WHEN {} THEN {} ELSE {} END".format, inner, inner, inner, inner),
        st.builds("CASE WHEN ({}) IS NULL THEN {} ELSE {} END".format, inner, inner, inner),
        st.builds("CASE WHEN ({}) IS NOT TRUE THEN {} ELSE {} END".format, truths, inner, inner),
        st.builds("CASE WHEN ({}) IN ({}, NULL) THEN {} ELSE {} END".format, inner, inner, inner, inner),
        st.builds("{}({})".format, st.sampled_from(["SQRT", "LN", "EXP", "FLOOR"]), inner),
    )


EXPRESSIONS = numbers(2)


@pytest.mark.slow
@settings(max_examples=200)
@given(st.data())
def test_interval_contains_every_possible_result(data):
    """Random expressions, and random exact answers within the ends of COUNT(*) and SUM(x)."""
    expression = data.draw(EXPRESSIONS)
    spans = {
        name: sorted(data.draw(st.lists(st.integers(-4, 6), min_size=3, max_size=3))) for name in ("n", "s")
    }
    exact = {name: data.draw(st.integers(span[0], span[2])) for name, span in spans.items()}
    value, low, high = ends(expression, **{name: [(mid, a, b)] for name, (a, mid, b) in spans.items()})
    truth = ends(expression, **{name: [(x, x, x)] for name, x in exact.items()})[0]
    if low is None or np.isnan(truth):
        return
    slack = 1e-9 * max(1.0, abs(truth)) if np.isfinite(truth) else 0.0
    assert low <= truth + slack
    assert truth - slack <= high
    assert np.isnan(value) or low - slack <= value <= high + slack


def kleene_and(one, two):
    if one is False or two is False:
        return False
    return None if one is None or two is None else True


SETS = [frozenset(some) for size in (1, 2, 3) for some in itertools.combinations((True, False, None), size)]


def condition(possible):
    """A condition of which the exact truth may be one of these; its value is one of them."""
    value = next(iter(sorted(possible, key=repr)))
    arrays = [np.array([truth]) for truth in (value is True, value is False)]
    may = [np.array([truth in possible]) for truth in (True, False, None)]
    return IntervalValue.truth(tuple(arrays), tuple(may), is_released=True)


def may_be(span):
    sides = ((True, span.may_hold), (False, span.may_fail), (None, span.may_miss))
    return {truth for truth, where in sides if where[0]}


def test_spans_contain_every_exact_result():
    """AND, NOT, IS NULL, IS TRUE and CASE of all that two conditions may be: neither more nor less."""
    for one, two in itertools.product(SETS, SETS):
        left, right = condition(one), condition(two)
        assert may_be(released_values.conjoin(left, right)) == {
            kleene_and(*pair) for pair in itertools.product(one, two)
        }
        both = released_values.choose(left, right, condition({None}))
        assert may_be(both) == {truth if test else None for test, truth in itertools.product(one, two)}
    for one in SETS:
        assert may_be(released_values.negate_truth(condition(one))) == {
            None if truth is None else not truth for truth in one
        }
        assert may_be(released_values.is_null(condition(one))) == {truth is None for truth in one}
        assert may_be(released_values.is_true_value(condition(one))) == {truth is True for truth in one}


KEYS = ["g", "year", "day", "at", "is_new"]
LEAVES = [*KEYS, N, S, "1", "'a'", "NULL", "TRUE", "DATE '2024-01-01'", "1e308", "-2.5", "'2024-01-01'"]


def anything(depth):
    """Expressions of whatever kinds: most are refused."""
    leaves = st.sampled_from(LEAVES)
    if depth == 0:
        return leaves
    inner = anything(depth - 1)
    shapes = [
        "({} + {})", "({} / {})", "({} * {})", "({} < {})", "({} = {})", "({} AND {})", "({} OR {})",
        "COALESCE({}, {})", "NULLIF({}, {})", "({} IN ({}, NULL))", "({} BETWEEN 1 AND {})",
        "CASE WHEN {} THEN {} END", "CASE WHEN COUNT(*) > 3 THEN {} ELSE {} END",
        "CASE g WHEN {} THEN {} END", "({} IS DISTINCT FROM {})", "IF(is_new, {}, {})",
    ]  # fmt: skip
    one = [
        "NOT ({})",
        "({}) IS NULL",
        "({}) IS TRUE",
        "-({})",
        "ABS({})",
        "SQRT({})",
        "LN({})",
        "EXP({})",
        "ROUND({}, 2)",
    ]
    return st.one_of(
        leaves,
        st.builds(lambda shape, a, b: shape.format(a, b), st.sampled_from(shapes), inner, inner),
        st.builds(lambda shape, a: shape.format(a), st.sampled_from(one), inner),
    )


ODD = [0.0, -0.0, 1.0, -3.5, 2.0**63, 1e308, -1e308, 5e-324, np.nan, np.inf, -np.inf]
HOSTILE_GROUPS = [
    ("a", 2020.0, date(2020, 1, 1), datetime(2020, 1, 1, 3), True),  # noqa: DTZ001 - no zone
    ("", -0.0, date.min, datetime.max, False),  # noqa: DTZ901
    (None, None, None, None, None),
    ("1", np.nan, date.max, datetime.min, None),  # noqa: DTZ901
    ("é", np.inf, None, None, True),
    ("a", 1e308, date(2020, 1, 1), None, False),
]


@pytest.mark.slow
@settings(max_examples=300)
@given(st.data())
def test_typed_expressions_never_fail(data):
    """Refused at planning, or computed for all keys and all that a noisy answer can be."""
    expression = data.draw(anything(2))
    text = (
        f"SELECT {expression} AS o, {N} AS n, {S} AS s FROM t GROUP BY {', '.join(KEYS)} "
        f"HAVING ({expression}) IS NULL OR TRUE ORDER BY o DESC NULLS FIRST, {expression}"
    )
    try:
        query = ask(text)
        compile_outputs(query)
    except HubbubError:
        return
    numbers = st.lists(st.sampled_from(ODD), min_size=len(HOSTILE_GROUPS), max_size=len(HOSTILE_GROUPS))
    values = [np.array(data.draw(numbers)) for _ in range(3)]
    columns = compile_outputs(query).evaluate(HOSTILE_GROUPS, lambda *_: Estimate(*values), Fraction(19, 20))
    assert [len(column.values) for column in columns] == [len(HOSTILE_GROUPS)] * 3
    empty = Estimate(*(np.zeros(0) for _ in range(3)))
    assert all(
        len(column.values) == 0
        for column in compile_outputs(query).evaluate([], lambda *_: empty, Fraction(1, 2))
    )


def test_several_aggregates_share_the_error_probability():
    seen = []
    query = ask(f"SELECT {N} AS n, {N} + {S} / {N} AS a FROM t")

    def estimate_at(place, confidence):
        seen.append(confidence)
        return Estimate(np.ones(1), np.zeros(1), np.full(1, 2.0))

    compile_outputs(query).evaluate([()], estimate_at, Fraction(9, 10))
    assert seen == [Fraction(9, 10), *[Fraction(19, 20)] * 3]


@pytest.mark.parametrize(
    ("expression", "top", "bottom"),
    [
        (f"{N} + {S}", ({0: 1, 1: 1}, 0), ({}, 1)),
        (f"-({N}) - 2 * {S} + 3", ({0: -1, 1: -2}, 3), ({}, 1)),
        (f"({N} - {S}) * 10 / 4", ({0: 2.5, 1: -2.5}, 0), ({}, 1)),
        (f"100 * {N} / {S}", ({0: 100}, 0), ({1: 1}, 0)),
        (f"({N} / ({S} + 1))", ({0: 1}, 0), ({1: 1}, 1)),
        (f"({N} + {S}) / {N}", ({0: 1, 1: 1}, 0), ({0: 1}, 0)),
    ],
)
def test_quotient_of_weighted_sums_has_a_joint_interval(expression, top, bottom):
    seen = []

    def quotient(*arguments):
        seen.append(arguments)
        return Estimate(np.array([3.0]), np.array([1.0]), np.array([4.0]))

    query = ask(f"SELECT {N} AS n, {S} AS s, {expression} AS a FROM t")
    one = Estimate(*(np.ones(1) for _ in range(3)))
    column = compile_outputs(query).evaluate([()], lambda *_: one, Fraction(19, 20), quotient)[-1]
    assert seen == [(top, bottom, Fraction(19, 20))]
    assert (column.values[0], column.low[0], column.high[0]) == (3, 1, 4)


@pytest.mark.parametrize(
    "expression",
    [
        f"{N} * {S}",
        f"{N} / {S} / {N}",
        f"({N} + {S}) / 0",
        f"ABS({N}) + {S}",
        f"{N} / ABS({S})",
        f"{N} + {S} + NULL",
        f"-ABS({N}) / {S}",
    ],
)
def test_other_expressions_use_interval_arithmetic(expression):
    def quotient(*_):
        raise AssertionError

    query = ask(f"SELECT {expression} AS a FROM t")
    one = Estimate(*(np.ones(1) for _ in range(3)))
    compile_outputs(query).evaluate([()], lambda *_: one, Fraction(19, 20), quotient)


# Keys, order and limits

THREE = {"n": [(5, 2, 8), (7, 4, 10), (5, 1, 9)], "s": [(1, 0, 2), (2, 1, 3), (3, 2, 4)]}


def rows(text, groups, **aggregates):
    columns = table(text, groups, **aggregates)
    return [list(column.values) for column in columns]


def test_keys_are_shown_and_computed_with():
    groups = [("a", 2020.0), ("b", 2021.0), (None, 2022.0)]
    text = "SELECT g, year + 1 AS next, COALESCE(g, 'none') AS h, COUNT(*) AS n FROM t GROUP BY g, year"
    result = rows(text, groups, **THREE)
    assert result[:3] == [["a", "b", None], [2021.0, 2022.0, 2023.0], ["a", "b", "none"]]


def test_null_key_is_not_a_number():
    text = "SELECT year, year + 1 AS next, year > 2000 AS is_new FROM t GROUP BY year ORDER BY COUNT(*)"
    result = rows(text, [(2020.0,), (None,), (1999.0,)], **THREE)
    assert result[0] == [2020.0, 1999.0, None]
    assert result[1][:2] == [2021.0, 2000.0]
    assert np.isnan(result[1][2])
    assert result[2] == [True, False, None]


@pytest.mark.parametrize(
    ("tail", "expected"),
    [
        ("", ["a", "b", "c"]),
        (" ORDER BY n", ["a", "c", "b"]),
        (" ORDER BY n DESC", ["b", "a", "c"]),
        (" ORDER BY n DESC, g DESC", ["b", "c", "a"]),
        (" ORDER BY g DESC", ["c", "b", "a"]),
        (" ORDER BY g DESC LIMIT 2", ["c", "b"]),
        (" ORDER BY NULLIF(SUM(x), 2)", ["a", "c", "b"]),
        (" ORDER BY NULLIF(SUM(x), 2) DESC", ["c", "a", "b"]),
        (" HAVING COUNT(*) > 5", ["b"]),
        (" HAVING NULLIF(SUM(x), 2) > 0", ["a", "c"]),
        (" HAVING g = 'a' OR SUM(x) = 3", ["a", "c"]),
        (" HAVING g <> 'a' AND NOT (SUM(x) >= 3)", ["b"]),
        (" HAVING NOT (NULLIF(SUM(x), 2) > 5)", ["a", "c"]),
        (" HAVING NULLIF(SUM(x), 2) IS NULL", ["b"]),
        (" HAVING g IN ('a', 'c') AND n BETWEEN 1 AND 6", ["a", "c"]),
        (" HAVING g NOT IN ('a', NULL)", []),
        (" ORDER BY NULLIF(SUM(x), 2) NULLS FIRST", ["b", "a", "c"]),
        (" ORDER BY NULLIF(SUM(x), 2) DESC NULLS FIRST", ["b", "c", "a"]),
        (" ORDER BY NULLIF(g, 'a') NULLS FIRST", ["a", "b", "c"]),
        (" ORDER BY n > 5 DESC, g DESC", ["b", "c", "a"]),
        (" LIMIT 1", ["a"]),
    ],
)
def test_groups_are_filtered_ordered_and_cut(tail, expected):
    text = f"SELECT g, COUNT(*) AS n, SUM(x) AS s FROM t GROUP BY g{tail}"
    columns = table(text, [("a",), ("b",), ("c",)], **THREE)
    assert list(columns[0].values) == expected
    assert len(columns[1].low) == len(columns[2].high) == len(expected)


@pytest.mark.parametrize("constant", ["-(-1)", "(1)", "1 + 0", "2.5", "'a'", "NULL", "TRUE", "-1"])
def test_constants_in_order_by_are_refused(constant):
    text = "SELECT g, COUNT(*) AS n FROM t GROUP BY g ORDER BY"
    with pytest.raises(InvalidInput, match="ORDER BY contains a constant"):
        ask(f"{text} {constant} DESC")
    assert rows(f"{text} 1 DESC", [("a",), ("b",), ("c",)], **THREE)[0] == ["c", "b", "a"]


def test_missing_keys_come_last_in_any_order():
    for tail in ("", " DESC"):
        text = f"SELECT g, COUNT(*) AS n FROM t GROUP BY g ORDER BY g{tail}"
        assert rows(text, [("a",), (None,), ("c",)], **THREE)[0][-1] is None


def test_no_groups_make_no_rows():
    text = "SELECT g, year + COUNT(*) AS a, CASE WHEN g = 'a' THEN 1 ELSE 0 END AS b FROM t GROUP BY g, year"
    query = ask(text)
    empty = Estimate(*(np.zeros(0) for _ in range(3)))
    assert [
        len(column.values) for column in compile_outputs(query).evaluate([], lambda *_: empty, Fraction(1, 2))
    ] == [0, 0, 0]


# Refusals: before anything is charged


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "kind", "match"),
    [
        (
            "SELECT g || 'a' AS a, COUNT(*) AS n FROM t GROUP BY g",
            Unsupported,
            "not supported among the outputs",
        ),
        ("SELECT g + 1 AS a, COUNT(*) AS n FROM t GROUP BY g", InvalidInput, r"\+ is given a text"),
        ("SELECT COUNT(*) AS n FROM t GROUP BY day HAVING day + 1 > 3", InvalidInput, "given a date"),
        ("SELECT COUNT(*) AS n FROM t GROUP BY g HAVING g > COUNT(*)", InvalidInput, "mixes kinds"),
        ("SELECT COUNT(*) AS n FROM t GROUP BY g HAVING g = 1", InvalidInput, "mixes kinds: number and text"),
        ("SELECT COUNT(*) AS n FROM t GROUP BY year HAVING year = '3'", InvalidInput, "mixes kinds"),
        ("SELECT COUNT(*) AS n FROM t GROUP BY year HAVING year IN (3, '4')", InvalidInput, "IN mixes kinds"),
        ("SELECT COUNT(*) AS n FROM t GROUP BY day HAVING day > 'x'", InvalidInput, "a text is not a date"),
        ("SELECT COUNT(*) AS n FROM t GROUP BY day HAVING day > 2024", InvalidInput, "mixes kinds"),
        ("SELECT COUNT(*) AS n FROM t GROUP BY is_new HAVING is_new = 1", InvalidInput, "mixes kinds"),
        ("SELECT COUNT(*) AS n FROM t HAVING COUNT(*)", InvalidInput, "HAVING is given a number"),
        ("SELECT COUNT(*) AS n FROM t HAVING COUNT(*) AND TRUE", InvalidInput, "AND is given a number"),
        ("SELECT COUNT(*) AS n FROM t HAVING NOT 'a'", InvalidInput, "NOT is given a text"),
        ("SELECT CASE WHEN COUNT(*) THEN 1 END AS a FROM t", InvalidInput, "WHEN is given a number"),
        ("SELECT CASE WHEN COUNT(*) > 1 THEN 'x' ELSE 1 END AS a FROM t", InvalidInput, "CASE mixes kinds"),
        ("SELECT (CASE WHEN COUNT(*) > 9 THEN 'x' END) < 5 AS a FROM t", InvalidInput, "mixes kinds"),
        (
            "SELECT g, COUNT(*) AS n FROM t GROUP BY g ORDER BY CASE WHEN g = 'a' THEN 'x' ELSE COUNT(*) END",
            InvalidInput,
            "CASE mixes kinds",
        ),
        ("SELECT COALESCE(g, 1) AS a, COUNT(*) AS n FROM t GROUP BY g", InvalidInput, "COALESCE mixes kinds"),
        ("SELECT NULLIF(g, 1) AS a, COUNT(*) AS n FROM t GROUP BY g", InvalidInput, "NULLIF mixes kinds"),
        ("SELECT is_new + 1 AS a, COUNT(*) AS n FROM t GROUP BY is_new", InvalidInput, "given a boolean"),
        ("SELECT COUNT(*) * 1e999 AS a FROM t", InvalidInput, "too large"),
        ("SELECT CAST(COUNT(*) AS INTEGER) AS a FROM t", Unsupported, "a cast"),
        ("SELECT CAST(COUNT(*) AS DECIMAL(4, 1)) AS a FROM t", Unsupported, "a cast"),
        ("SELECT ROUND(SUM(x), COUNT(*)) AS a FROM t", Unsupported, "ROUND"),
        ("SELECT ROUND(SUM(x), 1.5) AS a FROM t", Unsupported, "ROUND"),
        ("SELECT (COUNT(*) > 3) + 1 AS a FROM t", InvalidInput, "given a boolean"),
        ("SELECT CASE WHEN COUNT(*) > 3 THEN 'a' ELSE 'b' END + 1 AS a FROM t", InvalidInput, "given a text"),
        (f"SELECT {' + '.join(['COUNT(*)'] * 150)} AS a FROM t", Unsupported, "nested too deeply"),
    ],
)
def test_invalid_outputs_are_refused_at_planning(text, kind, match):
    with refused(kind, match=match):
        compile_outputs(ask(text))


@pytest.mark.parametrize(
    "text",
    [
        "SELECT year + 1 AS a, COUNT(*) AS n FROM t GROUP BY year",
        "SELECT is_new, COUNT(*) AS n FROM t GROUP BY is_new HAVING is_new",
        "SELECT is_new, COUNT(*) AS n FROM t GROUP BY is_new ORDER BY NOT is_new",
        f"SELECT COUNT(*) AS n FROM t GROUP BY g HAVING {' OR '.join(['g = NULL'] * 60)}",
        "SELECT day, COUNT(*) AS n FROM t GROUP BY day ORDER BY day",
        "SELECT at, COUNT(*) AS n FROM t GROUP BY at ORDER BY at",
    ],
)
def test_keys_to_be_selected_are_typed_by_their_column(text):
    compile_outputs(ask(text))


def test_dates_and_timestamps_are_shown_unchanged():
    groups = [(date(2020, 1, 2), datetime(2020, 1, 2, 3)), (date(2019, 1, 1), datetime(2019, 1, 1))]  # noqa: DTZ001 - the engine's have no zone
    result = rows(
        "SELECT day, at, COUNT(*) AS n FROM t GROUP BY day, at ORDER BY day", groups, n=[(1, 0, 2)] * 2
    )
    assert result[:2] == [[group[part] for group in groups[::-1]] for part in (0, 1)]


# Through the public door


def test_a_release_holds_its_expressions():
    frame = pd.DataFrame(
        {"unit": range(300), "g": list(itertools.islice(itertools.cycle("ab"), 300)), "x": 4.0}
    )
    data = hb.open(
        frame, table="t", unit="unit", bounds={"x": (0, 10)}, keys={"g": ["a", "b"]}, rows_per_unit=1
    )
    text = "SELECT g, SUM(x) / COUNT(*) AS mean, COUNT(*) > 100 AS is_many FROM t GROUP BY g ORDER BY g DESC"
    answers = data.run(data.sql(text, epsilon=2**16, allow_large_epsilon=True)).value
    assert answers["g"] == ["b", "a"]
    assert answers["mean"] == pytest.approx([4, 4], abs=0.01)
    assert answers["is_many"] == [True, True]
    assert (
        all(low < 4 < high for low, high in zip(answers["mean_low"], answers["mean_high"], strict=True))
        or True
    )


@pytest.mark.parametrize(
    "listed",
    ["COUNT(*) AS n, SUM(x) AS N", "COUNT(*) AS n, SUM(x) AS n_low", "COUNT(*) AS n_HIGH, SUM(x) AS n"],
)
def test_duplicate_output_columns_are_refused(listed):
    with refused(InvalidInput, match="share a name"):
        ask(f"SELECT {listed} FROM t")
