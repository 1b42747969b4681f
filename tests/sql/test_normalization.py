"""SQL as people write it has the meaning that DuckDB gives it; what nobody could protect stays refused."""

# ruff: noqa: E501 - a query is one line

from datetime import UTC, datetime

import duckdb
import pandas as pd
import pytest

import hubbub as hb
from hubbub.sql.fingerprint import fingerprint

HUGE = 10**18


@pytest.fixture(scope="module")
def rows():
    connection = duckdb.connect()
    connection.execute(
        "CREATE TABLE people AS SELECT i AS person, ['a', 'b'][1 + i % 2] AS g, CAST(i % 7 AS DOUBLE) AS age FROM range(30) r(i);"
        "CREATE TABLE visits AS SELECT (i * 3) % 24 AS person, CASE WHEN i % 5 > 0 THEN ['a', 'b', 'c'][1 + i % 3] END AS g, CAST(i % 11 AS DOUBLE) AS cost, "
        "DATE '2024-01-01' + CAST(i % 9 AS INTEGER) AS day FROM range(80) r(i);"
        "CREATE TABLE towns AS SELECT * FROM (VALUES ('a', 1.0), ('b', 2.0), ('b', 3.0), (NULL, 4.0)) t(g, w)"
    )
    return connection


@pytest.fixture(scope="module")
def data(rows):
    tables = {name: rows.sql(f"FROM {name}").to_arrow_table() for name in ("people", "visits")}
    public = {"towns": rows.sql("FROM towns").to_arrow_table()}
    return hb.open(tables, unit="person", public=public, rows_per_unit=40)


BOUNDS = {"cost": (0, 12), "age": (0, 10), "s": (0, 300), "b": (0, 12)}
SAME = [
    "SELECT SUM(DISTINCT cost) AS s, AVG(DISTINCT cost) AS a, VARIANCE(DISTINCT cost) AS v FROM visits",
    "SELECT SUM(DISTINCT cost) FILTER (WHERE cost > 3) AS s, COUNT(DISTINCT day) FILTER (WHERE cost > 3) AS n FROM visits",
    "SELECT COUNT(*) AS n FROM (SELECT person, day, LAG(day) OVER (PARTITION BY person ORDER BY day, cost) AS before FROM visits) AS t WHERE before IS NULL OR day > before + INTERVAL 2 DAY",
    "SELECT SUM(later) AS s FROM (SELECT person, LEAD(cost, 2) OVER (PARTITION BY person ORDER BY day, cost) AS later FROM visits) AS t",
    "SELECT SUM(first) AS s FROM (SELECT person, FIRST_VALUE(cost) OVER (PARTITION BY person ORDER BY day DESC, cost) AS first FROM visits) AS t",
    "SELECT DAYNAME(day) AS d, STRFTIME(day, '%m') AS m, COUNT(*) AS n FROM visits GROUP BY d, m HAVING COUNT(*) > 1",
    "SELECT SUM(TRUNC(cost / 3)) AS s, AVG(LOG10(cost + 1)) AS l, SUM(POWER(cost, 3)) AS p FROM visits",
    "SELECT COUNT(*) AS n FROM main.visits AS v WHERE v.cost > 2",
    "SELECT COUNT(*) AS n, COUNT(*) AS n, SUM(cost) FROM visits",
    "SELECT COUNT(*) AS n FROM (SELECT person, cost FROM (SELECT * FROM visits)) WHERE cost < 5",
    "SELECT COUNT(*) AS n FROM visits WHERE g NOT LIKE 'a%'",
    "SELECT COUNT(*) AS n FROM people p, visits v WHERE p.person = v.person AND v.cost > 1",
    "SELECT COUNT(*) AS n FROM visits v, towns t, people p WHERE t.g = v.g AND p.person = v.person AND w > 1",
    "SELECT COUNT(*) AS n, SUM(cost) AS s FROM people NATURAL JOIN visits",
    "SELECT COUNT(cost) AS n, COUNT(*) AS m FROM visits v RIGHT JOIN people p ON p.person = v.person",
    "SELECT COUNT(*) AS n FROM visits WHERE person IN (SELECT person FROM people WHERE age > 3)",
    "SELECT COUNT(*) AS n FROM people WHERE person NOT IN (SELECT person FROM visits WHERE cost > 5)",
    "SELECT COUNT(*) AS n FROM visits WHERE g IN (SELECT g FROM towns WHERE w > 1)",
    "SELECT SUM(cost) AS n FROM visits v WHERE EXISTS (SELECT 1 FROM towns t WHERE t.g = v.g AND t.w >= 2) AND cost > 1",
    "SELECT COUNT(*) AS n FROM people p WHERE EXISTS (SELECT * FROM visits v WHERE v.person = p.person AND v.g = p.g)",
    "SELECT COUNT(*) AS n FROM people p WHERE NOT EXISTS (SELECT * FROM visits v WHERE v.person = p.person AND v.cost > 8)",
    "SELECT COUNT(*) AS n FROM (SELECT * FROM people WHERE person IN (SELECT person FROM visits)) AS q WHERE age > 2",
    "SELECT COUNT(*) AS n FROM (SELECT person, g FROM visits UNION SELECT person, g FROM people) AS q",
    "SELECT COUNT(*) AS n FROM (SELECT person FROM people INTERSECT SELECT person FROM visits) AS q",
    "SELECT COUNT(*) AS n FROM (SELECT person FROM people EXCEPT SELECT person FROM visits WHERE cost > 9) AS q",
    "SELECT COUNT(*) AS n FROM (SELECT person, SUM(cost) AS s FROM visits GROUP BY person HAVING COUNT(*) > 2 AND s > 5) AS q",
    "SELECT COUNT(*) AS n FROM (SELECT person, ROW_NUMBER() OVER (PARTITION BY person ORDER BY day DESC, cost) AS r, cost FROM visits) WHERE r = 1 AND cost > 3",
    "SELECT SUM(cost) AS n FROM (SELECT person, cost FROM visits QUALIFY RANK() OVER (PARTITION BY person ORDER BY cost) <= 2) AS q",
    "SELECT COUNT(*) AS n FROM (SELECT person, SUM(cost) OVER (PARTITION BY person ORDER BY day) AS s, COUNT(*) OVER (PARTITION BY person, g) AS c FROM visits) AS q WHERE s > 9 AND c > 1",
    "SELECT COUNT(*) AS n FROM people p WHERE EXISTS (SELECT 1 FROM visits WHERE visits.person = p.person AND cost = age)",
    "SELECT COUNT(*) AS n FROM visits WHERE day < DATE '2023-10-31' + INTERVAL '3' MONTH - INTERVAL 27 DAY",
    "SELECT APPROX_COUNT_DISTINCT(g) AS n FROM visits",
    "SELECT VAR_SAMP(cost) AS v, STDDEV(cost) AS s FROM visits",
    "SELECT COUNT(*) AS n, CASE WHEN cost > 5 THEN 'high' END AS k FROM visits GROUP BY k",
    "SELECT DISTINCT cost > 5 AS high FROM visits",
    "SELECT COUNT(*) AS n, COUNT(v.cost) AS v, COUNT(p.age) AS p FROM people p FULL JOIN visits v ON p.person = v.person AND v.cost > 3",
    "SELECT COUNT(*) AS n, COUNT(v.cost) AS v, COUNT(p.age) AS p FROM people p FULL JOIN visits v ON p.person = v.person AND v.g = p.g AND p.age > 2 AND v.cost > 3",
    "SELECT COUNT(DISTINCT person) AS n, COUNT(*) AS m, SUM(cost) AS s FROM (SELECT * FROM people WHERE person > 20 OR age > 4) AS a FULL JOIN (SELECT * FROM visits WHERE cost > 2) AS b USING (person)",
    "SELECT COUNT(*) AS n FROM (SELECT person, COUNT(*) AS c FROM people FULL JOIN visits USING (person) GROUP BY person) AS q WHERE c > 3",
    "SELECT COUNT(*) AS n FROM visits a FULL JOIN people b USING (person, g) WHERE g = 'a' AND cost IS NULL",
    "SELECT COUNT(*) AS n FROM people FULL JOIN (SELECT person, MAX(cost) AS m FROM visits GROUP BY person) AS q USING (person) FULL JOIN (SELECT person, day FROM visits WHERE cost > 8) AS r USING (person)",
    "SELECT COUNT(*) AS n, SUM(cost) AS s, COUNT(age) AS a FROM people NATURAL FULL JOIN visits",
    "SELECT COUNT(*) AS n, COUNT(age) AS a FROM people NATURAL LEFT JOIN visits WHERE cost IS NULL",
    "SELECT COUNT(*) AS n, SUM(cost) AS s FROM visits RIGHT JOIN people USING (person)",
    "SELECT COUNT(*) AS n, COUNT(v.cost) AS s FROM towns t JOIN visits v ON t.g = v.g RIGHT JOIN people p ON p.person = v.person",
    "SELECT COUNT(*) AS n, COUNT(w) AS w FROM towns t RIGHT JOIN visits v ON t.g = v.g AND w > 1",
    "SELECT COUNT(*) AS n, COUNT(w.cost) AS c FROM people p LEFT JOIN visits v ON p.person = v.person AND v.cost > 9 LEFT JOIN visits w ON v.person = w.person AND w.cost < 2",
    "SELECT COUNT(DISTINCT v.person) AS n, SUM(v.cost) AS s FROM people JOIN visits v USING (person) WHERE people.person > 3",
    "SELECT COUNT(*) AS n FROM (SELECT * FROM people JOIN (SELECT person, cost FROM visits) AS v USING (person)) AS q WHERE person > 2",
    "SELECT COUNT(*) AS n FROM (SELECT a.*, b.cost FROM people AS a JOIN visits AS b USING (person)) AS q WHERE person > 2",
    "SELECT COUNT(*) AS n FROM visits v WHERE EXISTS (SELECT 1 FROM visits w WHERE w.person = v.person AND w.cost > v.cost)",
    "SELECT COUNT(*) AS n FROM visits v WHERE NOT EXISTS (SELECT 1 FROM visits w WHERE w.person = v.person AND v.day <= w.day AND w.cost > 3)",
    "SELECT COUNT(*) AS n FROM visits v WHERE EXISTS (SELECT 1 FROM visits w WHERE v.g <> w.g AND w.person = v.person)",
    "SELECT COUNT(*) AS n FROM visits v WHERE NOT EXISTS (SELECT 1 FROM towns t WHERE t.g = v.g AND t.w < v.cost)",
    "SELECT COUNT(*) AS n FROM people p WHERE age > 4 OR EXISTS (SELECT 1 FROM visits v WHERE v.person = p.person AND v.cost > 9)",
    "SELECT COUNT(*) AS n FROM people p WHERE age > 4 OR NOT EXISTS (SELECT 1 FROM visits v WHERE v.person = p.person AND v.cost > 5)",
    "SELECT COUNT(*) AS n FROM visits WHERE cost > 9 OR g IN (SELECT g FROM towns WHERE w > 1)",
    "SELECT SUM(CASE WHEN EXISTS (SELECT 1 FROM people p WHERE p.person = v.person AND p.age > 3) THEN cost ELSE 0 END) AS s FROM visits v",
    "SELECT COUNT(*) AS n FROM visits v WHERE cost > (SELECT AVG(cost) FROM visits w WHERE w.person = v.person)",
    "SELECT COUNT(*) AS n FROM people p WHERE (SELECT COUNT(*) FROM visits v WHERE v.person = p.person AND v.cost > 4) < 2",
    "SELECT COUNT(*) AS n FROM people p WHERE 1 + COALESCE((SELECT SUM(cost) - MIN(cost) FROM visits v WHERE v.person = p.person AND v.g = p.g), -5) < 2",
    "SELECT COUNT(*) AS n FROM visits WHERE cost > (SELECT 2 * AVG(w) FROM towns)",
    "SELECT COUNT(*) AS n FROM visits v WHERE cost > (SELECT MAX(w) FROM towns t WHERE t.g = v.g)",
    "SELECT COUNT(*) AS n FROM visits JOIN (SELECT g, COUNT(*) AS c, SUM(w) AS w FROM towns GROUP BY g) AS t ON t.g = visits.g AND c > 1",
    "SELECT COUNT(*) AS n FROM (SELECT person, MAX(cost) - MIN(cost) AS r, SUM(cost) / COUNT(*) AS m FROM visits GROUP BY person) AS q WHERE r > 5 AND m > 4",
    "SELECT COUNT(*) AS n FROM (SELECT person, BOOL_OR(cost > 8) AS a, BOOL_AND(cost > 1) AS b, COUNT_IF(g = 'a') AS c, MAX(cost) FILTER (WHERE g = 'b') AS d FROM visits GROUP BY person) AS q WHERE a OR b OR c > 1 OR d > 3",
    "SELECT COUNT(*) AS n FROM (SELECT person, day - LAG(day) OVER (PARTITION BY person ORDER BY day, cost) AS gap FROM visits) AS q WHERE gap > 2",
    "SELECT SUM(s) AS s FROM (SELECT person, SUM(cost) OVER (PARTITION BY person ORDER BY day, cost ROWS BETWEEN 2 PRECEDING AND 1 PRECEDING) AS s FROM visits) AS q",
    "SELECT COUNT(*) AS s FROM (SELECT person, LAST_VALUE(cost) OVER (PARTITION BY person ORDER BY day, cost ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING) AS s FROM visits) AS q WHERE s > 5",
    "SELECT SUM(b) AS s FROM (SELECT person, LAG(cost, 1, 3) OVER w AS b, COUNT(*) OVER (w ROWS 1 PRECEDING) AS c FROM visits WINDOW w AS (PARTITION BY person ORDER BY day, cost)) AS q WHERE c > 1",
    "SELECT COUNT(*) AS n FROM (SELECT DISTINCT ON (person) person, cost AS c FROM visits ORDER BY person, day DESC, c) AS q WHERE c > 3",
    "WITH q(who, total) AS (SELECT person, SUM(cost) FROM visits GROUP BY person) SELECT COUNT(*) AS n FROM q JOIN people ON who = person WHERE total > 9",
    "SELECT COUNT(*) AS n FROM (SELECT person, cost FROM visits) AS q(who, c) WHERE c > 3",
    "SELECT COUNT(*) AS n FROM (SELECT * FROM visits ORDER BY cost) AS q",
]


def rows_of(result):
    table = result.to_dict()
    return list(zip(*(table[column.name] for column in result.columns), strict=True))


def rank(row):
    return [(value is None, str(value)) for value in row if not isinstance(value, float)]


@pytest.mark.sweep(7)
@pytest.mark.parametrize("text", SAME)
def test_spellings_mean_what_they_mean_in_duckdb(rows, data, text):
    plan = data.sql(text, epsilon=HUGE, bounds=BOUNDS, allow_large_epsilon=True)
    ours = sorted(rows_of(data.run(plan).value), key=rank)
    theirs = sorted(
        rows.execute(text.replace("APPROX_COUNT_DISTINCT(g)", "COUNT(DISTINCT g)")).fetchall(), key=rank
    )
    if "SELECT DISTINCT cost" in text:  # declared keys are shown, also without rows
        ours = [row for row in ours if row in theirs]
    assert len(ours) == len(theirs)
    for one, two in zip(ours, theirs, strict=True):
        for a, b in zip(one, two, strict=True):
            assert a == (pytest.approx(float(b), rel=1e-6) if isinstance(a, float) and b is not None else b)


def test_top_is_a_limit(rows, data):
    plan = data.sql(
        "SELECT TOP 1 g, COUNT(*) AS n FROM visits GROUP BY g ORDER BY n DESC",
        epsilon=HUGE,
        keys={"g": ["a", "b"]},
        allow_large_epsilon=True,
    )
    assert len(data.run(plan).value) == 1


GOOGLE = "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1{}) "


@pytest.mark.parametrize(
    ("options", "text", "plain"),
    [
        (
            "",
            "SUM(cost, contribution_bounds_per_row => (2, 6)) AS s FROM visits",
            "SELECT SUM(LEAST(GREATEST(cost, 2), 6)) FROM visits",
        ),
        (", privacy_unit_column=v.person", "COUNT(*) AS n FROM visits AS v", "SELECT COUNT(*) FROM visits"),
        (
            ", privacy_unit_column=who",
            "COUNT(*) AS n FROM (SELECT person AS who FROM visits)",
            "SELECT COUNT(*) FROM visits",
        ),
        (
            ", max_groups_contributed=NULL, max_rows_contributed=40",
            "COUNT(*) AS n FROM visits",
            "SELECT COUNT(*) FROM visits",
        ),
        (
            ", min_privacy_units_per_group=20",
            "cost > 8 AS k, COUNT(*) AS n FROM visits GROUP BY k",
            "SELECT cost > 8 AS k, COUNT(*) FROM visits GROUP BY k HAVING COUNT(DISTINCT person) >= 20",
        ),
        (
            ", group_selection_strategy=PUBLIC_GROUPS",
            "w, COUNT(person) AS n FROM visits RIGHT OUTER JOIN towns USING (g) GROUP BY w",
            "SELECT w, COUNT(person) FROM visits RIGHT JOIN towns USING (g) GROUP BY w",
        ),
        (
            ", group_selection_strategy=PUBLIC_GROUPS",
            "w, COUNT(person) AS n FROM (SELECT p.person, p.g FROM people p LEFT JOIN visits v ON v.person = p.person AND v.cost > 8) q RIGHT JOIN towns ON q.g = towns.g GROUP BY w",
            "SELECT w, COUNT(person) FROM (SELECT p.person, p.g FROM people p LEFT JOIN visits v ON v.person = p.person AND v.cost > 8) q RIGHT JOIN towns ON q.g = towns.g GROUP BY w",
        ),
        (
            "",
            "APPROX_QUANTILES(cost, 2, contribution_bounds_per_row => (0, 12))[OFFSET(1)] > 3 AS m FROM visits",
            "SELECT MEDIAN(cost) > 3 FROM visits",
        ),
        (
            "",
            "EXTRACT(DAYOFWEEK FROM DATE_ADD(DATE '2024-01-07', INTERVAL 3 DAY)) AS k, COUNT(*) AS n FROM visits GROUP BY k HAVING n > 1",
            "SELECT 4, COUNT(*) FROM visits",
        ),
    ],
)
def test_googlesql_options_are_understood(rows, data, options, text, plain):
    plan = data.sql(GOOGLE.format(options) + text, epsilon=HUGE, allow_large_epsilon=True)
    ours = sorted(rows_of(data.run(plan).value), key=rank)
    theirs = sorted(rows.execute(plain).fetchall(), key=rank)
    assert [[pytest.approx(float(v), abs=1e-4) for v in row] for row in sorted(theirs)] == [
        list(map(float, row)) for row in sorted(ours)
    ]


@pytest.mark.parametrize(
    "text",
    [
        "SELECT COUNT(*) AS n FROM visits a, visits b WHERE a.g = b.g",
        "SELECT COUNT(*) AS n FROM visits v, people p WHERE v.person = p.person OR v.cost > 1",
        "SELECT COUNT(*) AS n FROM visits WHERE cost IN (SELECT cost FROM visits WHERE person = 3)",
        "SELECT COUNT(*) AS n FROM visits WHERE g NOT IN (SELECT g FROM towns)",
        "SELECT COUNT(*) AS n FROM visits v WHERE EXISTS (SELECT 1 FROM visits w WHERE w.g = v.g)",
        "SELECT COUNT(*) AS n FROM visits v WHERE EXISTS (SELECT 1 FROM visits w WHERE w.person <> v.person)",
        "SELECT COUNT(*) AS n FROM visits WHERE EXISTS (SELECT 1 FROM people WHERE age > 3)",
        "SELECT COUNT(*) AS n FROM visits WHERE cost > (SELECT AVG(cost) FROM visits)",
        "SELECT COUNT(*) AS n FROM (SELECT g FROM visits UNION SELECT g FROM people) AS q",
        "SELECT COUNT(*) AS n FROM (SELECT g FROM visits INTERSECT SELECT g FROM people) AS q",
        "SELECT COUNT(*) AS n FROM (SELECT DISTINCT g FROM visits) AS q",
        "SELECT COUNT(*) AS n FROM (SELECT person, ROW_NUMBER() OVER (ORDER BY cost) AS r FROM visits) AS q WHERE r = 1",
        "SELECT COUNT(*) AS n FROM (SELECT person, RANK() OVER (PARTITION BY g ORDER BY cost) AS r FROM visits) AS q",
        "SELECT COUNT(*) AS n FROM (SELECT person, SUM(cost) OVER (PARTITION BY person ORDER BY cost RANGE 2 PRECEDING) AS r FROM visits) AS q",
        "SELECT COUNT(*) AS n FROM (SELECT person, SUM(cost) OVER (PARTITION BY g ORDER BY day ROWS 2 PRECEDING) AS r FROM visits) AS q",
        "SELECT COUNT(*) AS n FROM (SELECT person, SUM(cost) OVER (PARTITION BY person ORDER BY day ROWS BETWEEN CURRENT ROW AND 1 PRECEDING) AS r FROM visits) AS q",
        "SELECT COUNT(*) AS n FROM (SELECT person, ROW_NUMBER() OVER w AS r FROM visits WINDOW w AS (ORDER BY day)) AS q",
        "SELECT COUNT(*) AS n FROM (SELECT DISTINCT ON (g) person, g FROM visits ORDER BY g, day) AS q",
        "SELECT COUNT(*) AS n FROM (SELECT person, MAX(cost) + cost AS r FROM visits GROUP BY person) AS q",
        "SELECT COUNT(*) AS n FROM visits v WHERE EXISTS (SELECT 1 FROM visits w WHERE w.g = v.g AND w.cost > v.cost)",
        "SELECT COUNT(*) AS n FROM visits v WHERE EXISTS (SELECT 1 FROM visits w WHERE w.person = v.person AND w.cost > v.cost AND w.day > v.day)",
        "SELECT COUNT(*) AS n FROM visits v WHERE g = 'a' OR EXISTS (SELECT 1 FROM visits w WHERE w.g = v.g)",
        "SELECT COUNT(*) AS n FROM visits v WHERE NOT (cost > 3 AND g IN (SELECT g FROM towns))",
        "SELECT COUNT(*) AS n FROM visits v WHERE cost > (SELECT AVG(cost) FROM visits w WHERE w.g = v.g)",
        "SELECT COUNT(*) AS n FROM towns FULL JOIN visits ON towns.g = visits.g",
        "SELECT COUNT(*) AS n FROM visits FULL JOIN towns USING (g)",
        "SELECT COUNT(*) AS n FROM visits v FULL JOIN visits w ON v.g = w.g",
        "SELECT COUNT(*) AS n FROM visits v FULL JOIN people p ON v.person = p.person AND v.cost > p.age",
        "SELECT COUNT(*) AS n FROM visits v JOIN people p ON v.person = p.person RIGHT JOIN towns ON towns.g = v.g",
        "SELECT COUNT(*) AS n FROM people, visits RIGHT JOIN people AS p ON p.person = visits.person WHERE people.person = visits.person",
        "SELECT COUNT(*) AS n FROM (SELECT person, LAG(cost) OVER (PARTITION BY g ORDER BY day) AS r FROM visits) AS q",
        "SELECT COUNT(*) AS n FROM towns RIGHT JOIN visits USING (g) RIGHT JOIN towns AS w USING (g)",
        "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(privacy_unit_column=g) COUNT(*) AS n FROM visits",
        "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(group_selection_strategy=NONE) COUNT(*) AS n FROM visits",
        "SELECT DISTINCT person FROM visits",
    ],
)
def test_rows_of_other_units_stay_refused(data, text):
    with pytest.raises(hb.HubbubError):
        data.sql(text, epsilon=1, delta=1e-6, bounds=BOUNDS)


def test_anonymization_is_the_older_name_of_differential_privacy(rows, data):
    text = """SELECT WITH ANONYMIZATION OPTIONS(epsilon=1, delta=1e-6, kappa=3) cost > 8 AS k,
        ANON_SUM(cost CLAMPED BETWEEN 0 AND 100) AS s, ANON_COUNT(*) AS n,
        ANON_VAR_POP(cost CLAMPED BETWEEN 0 AND 12) AS v FROM visits GROUP BY k ORDER BY k"""
    plan = data.sql(text, epsilon=HUGE, delta=0, allow_large_epsilon=True)
    plain = "SELECT cost > 8 AS k, SUM(cost), COUNT(*), VAR_POP(cost) FROM visits GROUP BY k ORDER BY k"
    groups = [row for row in rows_of(data.run(plan).value) if row[0] is not None]
    for ours, theirs in zip(groups, rows.execute(plain).fetchall(), strict=True):
        assert list(map(float, ours)) == [pytest.approx(float(value), rel=1e-4) for value in theirs]


def test_weeks_of_googlesql_are_not_taken_for_iso_s(data):
    for part in ("EXTRACT(WEEK FROM DATE '2024-01-07')", "DATE_TRUNC(DATE '2024-01-07', WEEK)"):
        with pytest.raises(hb.HubbubError, match="weeks that begin on another day"):
            data.sql(GOOGLE.format("") + f"COUNT({part}) AS n FROM visits", epsilon=1)


def test_time_of_planning_is_a_constant_of_the_plan(data):
    before = datetime.now(UTC).replace(tzinfo=None, microsecond=0)
    plan = data.sql("SELECT COUNT(CASE WHEN NOW() > '2024-01-01' THEN 1 END) AS n FROM visits", epsilon=1)
    assert before <= plan.query.now <= datetime.now(UTC).replace(tzinfo=None)
    assert f"NOW() and CURRENT_DATE are those of {plan.query.now} (UTC)" in str(plan)
    assert str(plan.query.now) in plan.query.rows.sql("duckdb")
    today = [
        data.sql("SELECT COUNT(*) AS n FROM visits WHERE CURRENT_DATE > '2024-01-01'", epsilon=1)
        for _ in "ab"
    ]
    assert fingerprint(today[0]) == fingerprint(today[1])


@pytest.mark.sweep(7)
@pytest.mark.parametrize(
    ("text", "low", "high"),
    [
        ("LN(1 + cost)", 0, 2.5649493574615367),
        ("SQRT(cost)", 0, 3.4641016151377544),
        ("EXP(cost / -12)", 0.36787944117144233, 1),
        ("POWER(cost - 4, 2)", 0, 64),
        ("POWER(cost - 4, 3)", -64, 512),
        ("cost * age", 0, 120),
        ("(cost - 4) * (age - 2)", -32, 64),
        ("cost / (age + 1)", 0, 12),
        ("cost % 5", 0, 5),
        ("(cost - 4) % 5", -4, 5),
        ("ROUND(cost / 7, 1)", 0, 1.7),
        ("ABS(cost - 4)", 0, 8),
        ("LOG10(1 + cost)", 0, 1.1139433523068367),
        ("CASE WHEN age > 3 THEN cost ELSE -age END", -10, 12),
        ("2024 - age", 2014, 2024),
    ],
)  # fmt: skip
def test_bounds_of_expressions_follow_from_those_of_columns(data, text, low, high):
    plan = data.sql(
        f"SELECT AVG({text}) AS a FROM (SELECT v.person, cost, age FROM visits v JOIN people p ON p.person = v.person) AS q",
        epsilon=1,
        bounds=BOUNDS,
    )
    assert tuple(map(float, plan.query.arguments[0].bounds)) == pytest.approx((low, high))
    assert "by the bounds or keys of its columns" in str(plan)


def test_plan_says_that_quotients_are_cut(data):
    assert "x // y is cut towards zero" in str(
        data.sql("SELECT COUNT(cost // 2) AS n FROM visits", epsilon=1)
    )
    assert "//" not in str(data.sql("SELECT COUNT(cost / 2) AS n FROM visits", epsilon=1))


def test_name_of_two_outputs_is_not_ordered_by(data):
    with pytest.raises(hb.HubbubError, match="two outputs are named"):
        data.sql("SELECT COUNT(*) AS n, SUM(cost) AS n FROM visits ORDER BY n", epsilon=1, bounds=BOUNDS)


PIVOTS = {
    "PIVOT t ON h IN ('p', 'q') USING COUNT(*) GROUP BY g": ["g", "p", "q"],
    "PIVOT (SELECT g, h, x FROM t) ON h USING SUM(x)": ["g", "p", "q", "r"],
    "PIVOT (SELECT g, h, x FROM t) ON h USING SUM(x) AS s, COUNT(*) AS n GROUP BY g": [
        *("g", "p_s", "p_n", "q_s", "q_n", "r_s", "r_n")
    ],
    "PIVOT t ON m USING COUNT(*) AS n GROUP BY g": ["g", "0_n", "1_n"],
    "WITH z AS (SELECT * FROM t WHERE x > 5) PIVOT z ON h IN ('p') USING SUM(x) GROUP BY g": ["g", "p"],
    "SELECT g, p FROM (PIVOT t ON h IN ('p') USING COUNT(*) GROUP BY g) AS z": ["g", "p"],
}


def test_pivots_are_those_of_duckdb():
    t = pd.DataFrame({"u": range(60), "g": ["a", "b"] * 30, "h": ["p", "q", "r"] * 20, "m": [0.0, 1.0] * 30})
    t["x"] = t["u"] % 11
    keys = {"g": ["a", "b"], "h": ["r", "p", "q"], "m": [1, 0]}
    with hb.open({"t": t}, unit="u", rows_per_unit=1, bounds={"x": (0, 10)}, keys=keys) as data:
        for text, names in PIVOTS.items():
            plan = data.sql(text, epsilon=10**18, allow_large_epsilon=True)
            result = data.run(plan).value
            assert [column.name for column in result.columns] == names
            rows = sorted(zip(*(result[name] for name in names), strict=True))
            expected = sorted(duckdb.sql(text).fetchall())
            assert len(rows) == len(expected)
            for one, two in zip(rows, expected, strict=True):
                assert one[0] == two[0]
                assert one[1:] == pytest.approx([float(each) for each in two[1:]], abs=1e-6)
        for text in (
            "PIVOT t ON h USING COUNT(*)",  # of which groups?
            "PIVOT t ON x USING COUNT(*) GROUP BY g",  # of which values?
            "WITH t AS (SELECT u, g, x AS h FROM t) PIVOT t ON h USING COUNT(*) GROUP BY g",
            "PIVOT t ON h IN ('p') USING COUNT(*) GROUP BY u",
        ):
            with pytest.raises(hb.HubbubError):
                data.sql(text, epsilon=1)
        values = ", ".join(f"'v{i}'" for i in range(101))
        with pytest.raises(hb.Unsupported, match="more than 200 columns"):
            data.sql(f"PIVOT t ON h IN ({values}) USING SUM(x), COUNT(*) GROUP BY g", epsilon=1)


def test_numeric_keys_are_bounds():
    t = pd.DataFrame({"u": range(60), "m": [0.0, 1.0, 7.0] * 20})
    with hb.open({"t": t}, unit="u", rows_per_unit=1, keys={"m": [0, 1, None]}) as data:
        plan = data.sql("SELECT SUM(m) AS s FROM t", epsilon=10**18, allow_large_epsilon=True)
        assert plan.query.arguments[0].bounds == (0, 1)
        assert "m is from 0 to 1, by the bounds or keys of its columns" in str(plan)
        assert data.run(plan).value["s"] == [pytest.approx(40)]  # 7 is clamped
    one = hb.open({"t": t}, unit="u", rows_per_unit=1, keys={"m": [1]})
    with one, pytest.raises(hb.HubbubError, match="no bounds"):
        one.sql("SELECT SUM(m) AS s FROM t", epsilon=1)
