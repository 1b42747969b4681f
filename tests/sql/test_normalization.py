"""SQL as people write it has the meaning that DuckDB gives it; what nobody could protect stays refused."""

# ruff: noqa: E501 - a query is one line

import duckdb
import pytest

import hubbub as hb

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


BOUNDS = {"cost": (0, 12), "age": (0, 10)}
SAME = [
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
]


def shown(result):
    table = result.to_dict()
    return list(zip(*(table[column.name] for column in result.columns), strict=True))


def rank(row):
    return [(value is None, str(value)) for value in row if not isinstance(value, float)]


@pytest.mark.parametrize("text", SAME)
def test_spellings_mean_what_they_mean_in_duckdb(rows, data, text):
    plan = data.sql(text, epsilon=HUGE, bounds=BOUNDS, allow_large_epsilon=True)
    ours = sorted(shown(data.run(plan).value), key=rank)
    theirs = sorted(
        rows.execute(text.replace("APPROX_COUNT_DISTINCT(g)", "COUNT(DISTINCT g)")).fetchall(), key=rank
    )
    if "DISTINCT cost" in text:  # declared keys are shown, also without rows
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
    ],
)
def test_googlesql_options_are_understood(rows, data, options, text, plain):
    plan = data.sql(GOOGLE.format(options) + text, epsilon=HUGE, allow_large_epsilon=True)
    ours = sorted(shown(data.run(plan).value), key=rank)
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
        "SELECT COUNT(*) AS n FROM (SELECT person, SUM(cost) OVER (PARTITION BY person ORDER BY day ROWS 2 PRECEDING) AS r FROM visits) AS q",
        "SELECT COUNT(*) AS n FROM (SELECT person, LAG(cost) OVER (PARTITION BY person ORDER BY day) AS r FROM visits) AS q",
        "SELECT COUNT(*) AS n FROM towns RIGHT JOIN visits USING (g) RIGHT JOIN towns AS w USING (g)",
        "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(privacy_unit_column=g) COUNT(*) AS n FROM visits",
        "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(group_selection_strategy=NONE) COUNT(*) AS n FROM visits",
        "SELECT DISTINCT person FROM visits",
    ],
)
def test_rows_of_other_units_stay_refused(data, text):
    with pytest.raises(hb.HubbubError):
        data.sql(text, epsilon=1, delta=1e-6, bounds=BOUNDS)
