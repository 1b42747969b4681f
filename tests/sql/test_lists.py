"""Columns of lists: UNNEST makes rows of a unit's own row, and no element can make a query fail."""

# ruff: noqa: E501 - a query is one line

import duckdb
import pyarrow as pa
import pytest

import hubbub as hb
from hubbub.errors import InvalidInput, Refused
from internals import connection_of
from refusing import refused

HUGE = 10**18
MADE = """CREATE TABLE baskets AS SELECT * FROM (VALUES
    (1, ['gift', 'sale'], [1.5, 'nan'::DOUBLE, NULL, '-inf'::DOUBLE], 'x'),
    (1, ['sale', NULL, 'sale'], [1e308, -1e308], 'y'),
    (2, [], [], 'x'), (3, NULL, NULL, 'y'), (4, ['gift'], [3.0], NULL),
    (NULL, ['gift', 'new'], [7.0], 'x')) AS t(person, tags, costs, g)"""
PEOPLE = "CREATE TABLE people AS SELECT i AS person, CAST(i * 10 AS DOUBLE) AS age FROM range(6) r(i)"


@pytest.fixture(scope="module")
def rows():
    connection = duckdb.connect()
    connection.execute(MADE)
    connection.execute(PEOPLE)
    return connection


@pytest.fixture(scope="module")
def data(rows):
    tables = {name: rows.sql(f"FROM {name}").to_arrow_table() for name in ("baskets", "people")}
    return hb.open(tables, unit="person", rows_per_unit=20)


SAME = [
    "SELECT COUNT(*) AS n, COUNT(tag) AS m FROM baskets, UNNEST(tags) AS t(tag)",
    "SELECT COUNT(DISTINCT b.person) AS n FROM baskets AS b CROSS JOIN UNNEST(b.tags) AS t(tag) WHERE t.tag = 'gift'",
    "SELECT COUNT(*) AS n FROM baskets JOIN UNNEST(tags) AS t(tag) ON TRUE WHERE tag > 'h'",
    "SELECT COUNT(*) AS n FROM baskets, UNNEST(tags) AS tag WHERE tag IS NULL OR tag = 'sale'",
    "SELECT COUNT(*) AS n FROM (SELECT person, UNNEST(tags) AS tag FROM baskets) AS t WHERE tag LIKE 's%'",
    "SELECT COUNT(*) AS n FROM (SELECT *, UNNEST(tags) AS tag FROM baskets) AS t WHERE tag = 'sale' AND g = 'y'",
    "SELECT SUM(age) AS n FROM (SELECT person, UNNEST(tags) AS tag FROM baskets) AS t JOIN people USING (person)",
    "SELECT COUNT(*) AS n FROM (SELECT DISTINCT person, tag FROM baskets, UNNEST(tags) AS t(tag)) AS q",
    "SELECT COUNT(*) AS n FROM (SELECT person, tag, COUNT(*) AS c FROM baskets, UNNEST(tags) AS t(tag) GROUP BY person, tag) AS q WHERE c > 1",
    "SELECT COUNT(*) AS n FROM baskets WHERE list_contains(tags, 'gift') OR LEN(tags) = 0",
    "SELECT COUNT(*) AS n FROM baskets WHERE 'sale' = ANY(tags) AND array_length(tags) > 1",
    "SELECT COUNT(*) AS n FROM baskets WHERE NOT list_contains(tags, 'gift')",
    "SELECT COUNT(*) AS n FROM baskets, UNNEST(costs) AS t(cost) WHERE cost BETWEEN 1 AND 5",
]  # fmt: skip


@pytest.mark.sweep(5)
@pytest.mark.parametrize("text", SAME)
def test_lists_mean_what_they_mean_in_duckdb(rows, data, text):
    plan = data.sql(text, epsilon=HUGE, bounds={"age": (0, 100)}, allow_large_epsilon=True)
    answers = data.run(plan).value.to_dict()
    # Rows without a unit are nobody's.
    plain = text.replace("baskets", "(FROM baskets WHERE person IS NOT NULL) AS baskets", 1)
    if "baskets AS b" in text:
        plain = text.replace("baskets AS b", "(FROM baskets WHERE person IS NOT NULL) AS b")
    (expected,) = rows.execute(plain).fetchall()
    assert [answers[each][0] for each in list(answers)[: len(expected)]] == [
        pytest.approx(float(value)) for value in expected
    ]


def test_elements_are_grouped_by(data):
    text = "SELECT tag, COUNT(*) AS n FROM baskets, UNNEST(tags) AS t(tag) GROUP BY tag"
    plan = data.sql(text, epsilon=HUGE, allow_large_epsilon=True, keys={"tag": ["gift", "sale", "new", None]})
    answers = data.run(plan).value.to_dict()
    assert dict(zip(answers["tag"], map(round, answers["n"]), strict=True)) == {
        "gift": 2,
        "sale": 3,
        "new": 0,
        None: 1,
    }


@pytest.mark.slow
def test_elements_of_a_unit_count_as_its_rows():
    connection = duckdb.connect()
    connection.execute("CREATE TABLE t AS SELECT 1 AS u, range(5000) AS xs UNION ALL SELECT 2, [1, 2]")
    for unit, most in (("u", 3), ("row", 3)):
        dataset = hb.open(connection, table="t", unit=unit)
        text = "SELECT COUNT(*) AS n FROM t, UNNEST(xs) AS e(x)"
        plan = dataset.sql(text, epsilon=HUGE, rows_per_unit=most, allow_large_epsilon=True)
        assert dataset.run(plan).value["n"] == [pytest.approx(5, abs=1e-3)]


def test_elements_are_total():
    """Texts that are no UTF-8, and numbers that are none, are elements like any other."""
    broken = pa.array([b"\xff\xfe", b"ok", None], pa.binary()).view(pa.string())
    tags = pa.ListArray.from_arrays(pa.array([0, 2, 3]), broken)
    numbers = pa.array([[float("nan"), float("inf"), 1e308], [-2.0, None]])
    days = duckdb.sql(
        "SELECT ['infinity'::DATE, DATE '2024-01-01'] AS d UNION ALL SELECT NULL"
    ).to_arrow_table()
    table = pa.table({"u": [1, 2], "tags": tags, "xs": numbers, "d": days["d"]})
    data = hb.open(table, table="t", unit="u", rows_per_unit=9)
    counts = {
        "UNNEST(tags) AS e(x) WHERE LENGTH(UPPER(x)) > 0": 2,
        "UNNEST(tags) AS e(x) WHERE x || 'a' LIKE '%a'": 2,
        "UNNEST(xs) AS e(x) WHERE x * x >= 0": 2,
        "UNNEST(d) AS e(x) WHERE EXTRACT(year FROM x) = 2024": 1,
    }
    for source, count in counts.items():
        plan = data.sql(f"SELECT COUNT(*) AS n FROM t, {source}", epsilon=HUGE, allow_large_epsilon=True)
        assert data.run(plan).value["n"] == [pytest.approx(count, abs=1e-3)], source


@pytest.mark.parametrize(
    "source",
    [
        "baskets, UNNEST(g) AS t(x)", "baskets, UNNEST(person) AS t(x)", "baskets, UNNEST(nothing) AS t(x)",
        "baskets, UNNEST(tags) AS t(x), UNNEST(costs) AS s(y)", "baskets, UNNEST([1, 2]) AS t(x)",
        "(SELECT person, UNNEST(tags) AS x, tags FROM baskets) AS q, UNNEST(tags) AS t(y)",
        "(SELECT person, UNNEST(tags) AS x, UNNEST(costs) AS y FROM baskets) AS q",
        "(SELECT person, tags, ROW_NUMBER() OVER (PARTITION BY person) AS r FROM baskets) AS q, UNNEST(tags) AS t(x)",
        "(SELECT a.person, a.tags FROM baskets a JOIN baskets b ON a.person = b.person) AS q, UNNEST(tags) AS t(x)",
        "(SELECT a.person, LEN(a.tags) AS x FROM baskets a JOIN baskets b ON a.person = b.person) AS q",
        "baskets LEFT JOIN UNNEST(tags) AS t(x) ON TRUE", "UNNEST(tags) AS t(x)", "UNNEST([1, 2]) AS t(x)",
        "baskets, UNNEST(tags) WITH ORDINALITY AS t(x, i)", "baskets, UNNEST(tags) AS t(x, y)",
        "(SELECT DISTINCT person, tags FROM baskets) AS q",
        *(
            f"(SELECT person, {expression} AS x FROM baskets) AS q"
            for expression in (
                "LAG(LEN(tags)) OVER (PARTITION BY person ORDER BY g)",
                "FIRST_VALUE(LEN(tags)) OVER (PARTITION BY person ORDER BY g)",
                "ROW_NUMBER() OVER (PARTITION BY person ORDER BY LEN(tags))",
                "SUM(LEN(tags)) OVER (PARTITION BY person ORDER BY g ROWS BETWEEN 1 PRECEDING AND CURRENT ROW)",
                "ROW_NUMBER() OVER (PARTITION BY person ORDER BY g) = 1 AND list_contains(tags, 'b')",
                "LEN(tags) AS y, ROW_NUMBER() OVER (PARTITION BY person ORDER BY g)",
            )
        ),
        "(SELECT DISTINCT ON (person) person, LEN(tags) AS x FROM baskets ORDER BY person, g) AS q",
        "(SELECT person, LEN(tags) AS x FROM baskets QUALIFY ROW_NUMBER() OVER (PARTITION BY person ORDER BY g) = 1) AS q",
    ],
)  # fmt: skip
def test_lists_that_could_show_which_rows_were_kept_stay_closed(data, source):
    """Rows are numbered and capped by what can be seen of them, which is not what a list holds."""
    with refused((InvalidInput, Refused, hb.HubbubError)):
        data.sql(f"SELECT COUNT(*) AS n FROM {source}", epsilon=1)


def test_sizes_of_lists_are_columns_of_windows_around_them(data):
    """There they break ties, like every other column."""
    inner = "SELECT person, g, LEN(tags) AS size FROM baskets"
    text = f"SELECT DISTINCT ON (person) person, size FROM ({inner}) AS q ORDER BY person, g"
    data.sql(f"SELECT COUNT(*) AS n FROM ({text}) AS r WHERE size > 0", epsilon=1)


def test_unnest_beside_a_join_is_refused(data):
    text = "SELECT COUNT(*) AS n FROM baskets b JOIN people p ON b.person = p.person CROSS JOIN UNNEST(b.tags) AS t(x)"
    with refused(Refused, match="next to a join"):
        data.sql(text, epsilon=1)


@pytest.mark.slow
def test_one_units_lists_change_no_other_units_rows(rows, data):
    """By enumeration: for each unit, the rows of the others are the same with and without it."""
    text = "SELECT COUNT(x) AS n FROM (SELECT person, UNNEST(tags) AS x FROM baskets) AS q JOIN people USING (person)"
    inner = data.sql(text, epsilon=1).query.rows.sql("duckdb")
    listed = f"SELECT _unit, x0 FROM ({inner}) AS q ORDER BY ALL"
    whole = connection_of(data).execute(listed).fetchall()
    for unit in (1, 2, 3, 4):
        tables = {
            name: rows.sql(f"FROM {name} WHERE person IS DISTINCT FROM {unit}").to_arrow_table()
            for name in ("baskets", "people")
        }
        other = hb.open(tables, unit="person", rows_per_unit=20)
        assert connection_of(other).execute(listed).fetchall() == [row for row in whole if row[0] != unit]
