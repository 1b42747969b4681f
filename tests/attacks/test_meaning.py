"""SQL's own meaning.

| row | what an attacker does | mutant |
|---|---|---|
| A31-typed | an output, HAVING or ORDER BY that fails for some noisy counts only | tried_on_one_example |
| A32 | arithmetic on text keys of which only the first looks like a number | only_the_first_key |
| A51 | a text key is compared with a number in HAVING, a number with a text | tried_on_one_example |
| A52 | a CASE without ELSE as group key: the rows of its NULL vanish | without_the_null_group |
| A53 | an alias that has the name of a column, in GROUP BY and HAVING | alias_before_column |
| A53-not | NOT of a comparison with NULL keeps groups | unknown_is_false |
| A68 | ORDER BY … NULLS FIRST | nulls_always_last |
| A69 | a boolean, comparison or part of a date as key: the rows of NULL vanish | without_the_null_group |
| A74 | a missing number is shown as one that is none | shown_as_it_is |
| A74-refusals | what SQL has a plain meaning for is refused for another reason | refused_for_another_reason |
"""

import itertools
from fractions import Fraction
from functools import cache

import duckdb
import numpy as np

import hubbub as hb
from attacks import mutants_meaning as mutants
from attacks.rows import Row, both_tests
from hubbub.engines.schema import Kind, Table
from hubbub.sql.analyzer import analyze
from hubbub.sql.moments import Estimate
from hubbub.sql.parser import parse
from hubbub.sql.post_processing import ResultColumn, compile_outputs
from hubbub.sql.result import Result
from sql.test_differential import plan_of

TABLE = Table.of(
    "t",
    {"unit": Kind.OPAQUE, "g": Kind.TEXT, "k": Kind.NUMBER, "day": Kind.DATE, "ok": Kind.BOOLEAN},
    unit="unit",
    keys={"g": ["1", "x", "a", None], "k": [1, 2, 3]},
)
COUNTS = [0.0, 1.0, -1.0, 4.0, 6.0, 1e18, -(2.0**63), -0.0, float("nan"), float("inf"), float("-inf")]


def typed(query):
    """Ours: typed at planning, then computed for any groups and counts."""
    outputs = compile_outputs(query)

    def run(groups, counts):
        values = np.array(counts)
        result = Estimate(values, values - 3, values + 3)
        columns = outputs.evaluate(groups, lambda *_: result, Fraction(19, 20))
        return list(zip(*(column.values.tolist() for column in columns), strict=True))

    return run


def outcomes(target, text, keys):
    """What comes out for each key and count; None where the question is refused at planning."""
    query = analyze(parse(text)[0], {"t": TABLE}, rows_are_units=False, text=text)
    try:
        run = target(query)
    except hb.HubbubError:
        return None
    groups = [(key,) for key in keys] if keys else [()]
    out = []
    for count in COUNTS:
        try:
            out.append(run(groups, [count] * len(groups)))
        except Exception as problem:
            out.append(problem)
    return out


def fails(target, text, keys=()):
    result = outcomes(target, text, keys)
    return result is not None and any(isinstance(each, Exception) for each in result)


LATE = [
    ("SELECT (CASE WHEN COUNT(*) > 5 THEN 'x' END) < 5 AS n FROM t", ()),
    ("SELECT COUNT(*) AS n FROM t HAVING (CASE WHEN COUNT(*) > 5 THEN 'x' END) < 5", ()),
    (
        "SELECT g, COUNT(*) AS n FROM t GROUP BY g ORDER BY CASE WHEN g = 'a' THEN 'x' ELSE COUNT(*) END",
        ("1", "x", "a"),
    ),
    ("SELECT CASE WHEN COUNT(*) > 5 THEN 'x' ELSE 1 END * 2 AS n FROM t", ()),
]


def attack_A31(target):
    """Whether it fails is a bit of the noise, and each run of one charge draws another."""
    return any(fails(target, text, keys) for text, keys in LATE)


def attack_A32(target):
    text = "SELECT g * 1 AS a, COUNT(*) AS n FROM t GROUP BY g"
    return fails(target, text, ("1", "x"))


def attack_A51(target):
    """A comparison of two kinds is no error there, and no group is ever kept."""
    texts = [
        ("SELECT g, COUNT(*) AS n FROM t GROUP BY g HAVING g = 1", ("1", "x")),
        ("SELECT k, COUNT(*) AS n FROM t GROUP BY k HAVING k = '3'", (1.0, 3.0)),
    ]
    return any([] in (outcomes(target, text, keys) or ()) for text, keys in texts)


ROWS_OF_T = [
    (unit, g, k, day, ok)
    for unit, (g, k, day, ok) in enumerate(
        itertools.product(["a", "b", None], [1.0, 2.0, None], [None, "2024-03-01"], [True, None])
    )
]


@cache
def open_data():
    connection = duckdb.connect(config={"threads": 1})
    connection.execute("CREATE TABLE t (unit BIGINT, g VARCHAR, k DOUBLE, day DATE, ok BOOLEAN)")
    connection.executemany("INSERT INTO t VALUES (?, ?, ?, ?, ?)", ROWS_OF_T)
    keys = {"g": ["a", "b", None], "k": [1, 2, None]}
    return hb.open(connection, table="t", unit="unit", keys=keys, rows_per_unit=1), connection


def vanish(target, keys):
    """Whether rows are in no group, and nothing is said of it."""
    data, _ = open_data()
    for key in keys:
        plan = target(plan_of(data, f"SELECT {key} AS key, COUNT(*) AS n FROM t GROUP BY {key}"))
        count = round(sum(data.run(plan).value["n"]))
        if count < len(ROWS_OF_T) and not plan.label()["notes"]:
            return True
    return False


def attack_A52(target):
    return vanish(target, ["CASE WHEN k > 1 THEN 'high' WHEN k < 1 THEN 'low' END"])


def attack_A69(target):
    return vanish(
        target, ["ok", "k > 1", "NOT ok", "EXTRACT(month FROM day)", "NULLIF(g, 'a')", "g IN ('a')"]
    )


def asked_of_ours(text, _connection):
    answers = open_data()[0].run(plan_of(open_data()[0], text)).value
    return list(zip(*(answers[column.name] for column in answers.columns), strict=True))


def differs(target, *texts, is_ordered=False):
    _, connection = open_data()
    for text in texts:
        rows = [target(text, connection), connection.execute(text).fetchall()]
        if not is_ordered:
            rows = [sorted(each, key=repr) for each in rows]
        if [tuple(map(_plain, row)) for row in rows[0]] != [tuple(map(_plain, row)) for row in rows[1]]:
            return True
    return False


def _plain(value):
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else value


def attack_A53(target):
    text = "SELECT k * 1000 AS k, COUNT(*) AS n FROM t GROUP BY k HAVING k < 30 ORDER BY k"
    return differs(target, text)


def attack_A53_not(target):
    return differs(
        target,
        "SELECT k, COUNT(*) AS n FROM t GROUP BY k HAVING NOT (k > 1) ORDER BY k",
        "SELECT k, CASE WHEN NOT (k > 5) THEN 'few' ELSE 'other' END AS c, COUNT(*) AS n FROM t GROUP BY k",
    )


def attack_A68(target):
    text = "SELECT g, COUNT(*) AS n FROM t GROUP BY g ORDER BY g DESC NULLS FIRST"
    return differs(target, text, is_ordered=True)


def every_form(values):
    ends = np.full_like(values, np.inf)
    answers = Result((ResultColumn("n", values, -ends, ends), ResultColumn("m", values)), {})
    return "\n".join([answers.to_csv(), str(answers), answers.to_json(), repr(answers.to_dict()["m"])])


def attack_A74(target):
    return "nan" in target(np.array([1.0, np.nan])).lower()


def attack_A74_refusals(target):
    for text in (
        "SELECT SUM(1) AS n FROM t",
        "SELECT COUNT(*) AS n FROM t WHERE 1 = NULL",
        "SELECT COUNT(*) AS n FROM t HAVING NULL = NULL",
        "SELECT NULLIF(g, 'p') AS h, COUNT(*) AS n FROM t GROUP BY g",
    ):
        try:
            target(text)
        except hb.HubbubError:
            return True
    return False


DOOR = {"the public door": asked_of_ours}

ROWS = [
    Row("A31-typed", attack_A31, {"outputs": typed}, mutants.tried_on_one_example),
    Row("A32", attack_A32, {"outputs": typed}, mutants.only_the_first_key),
    Row("A51", attack_A51, {"outputs": typed}, mutants.tried_on_one_example),
    Row("A52", attack_A52, {"plan": lambda plan: plan}, mutants.without_the_null_group),
    Row("A53", attack_A53, DOOR, mutants.alias_before_column),
    Row("A53-not", attack_A53_not, DOOR, mutants.unknown_is_false),
    Row("A68", attack_A68, DOOR, mutants.nulls_always_last),
    Row("A69", attack_A69, {"plan": lambda plan: plan}, mutants.without_the_null_group),
    Row("A74", attack_A74, {"every form": every_form}, mutants.shown_as_it_is),
    Row(
        "A74-refusals",
        attack_A74_refusals,
        {"planning": lambda text: plan_of(open_data()[0], text)},
        mutants.refused_for_another_reason,
    ),
]

test_ours_resists, test_mutant_falls = both_tests(ROWS)
