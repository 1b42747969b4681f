"""What a refusal advises works: a query that follows it is planned."""

# ruff: noqa: E501 - a query is one line

import ast
import re
from pathlib import Path

import duckdb
import pytest

import hubbub as hb

SOURCES = Path(hb.__file__).parent / "sql"
GOOGLE = "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon = 1) "


@pytest.fixture(scope="module")
def data():
    connection = duckdb.connect()
    connection.execute(
        "CREATE TABLE t AS SELECT i AS u, i + 0.5 AS x, i % 3 AS y, ['a', 'b'][1 + i % 2] AS s, "
        "DATE '2024-01-01' + CAST(i AS INTEGER) AS d, TIMESTAMP '2024-01-01' AS m, i > 3 AS b, ['a', 'b'] AS tags FROM range(9) r(i);"
        "CREATE TABLE v AS SELECT * FROM t; CREATE TABLE p AS SELECT 'a' AS s, 1.5 AS w"
    )
    tables = {name: connection.sql(f"FROM {name}").to_arrow_table() for name in ("t", "v")}
    return hb.open(
        tables,
        unit="u",
        public={"p": connection.sql("FROM p").to_arrow_table()},
        rows_per_unit=2,
        bounds={"x": (0, 10), "y": (0, 3)},
        keys={"s": ["a", "b"]},
    )


ADVICE = {
    "ask for COUNT(*), SUM, AVG, … and GROUP BY public keys": ("SELECT 1 AS one FROM t", "SELECT s, COUNT(*) AS n, SUM(x) AS t, AVG(x) AS a FROM t GROUP BY s"),
    "write QUANTILE_CONT(x, 0.5); for the ends, MIN(x) or MAX(x)": ("SELECT QUANTILE_CONT(x, 1) AS q FROM t", "SELECT QUANTILE_CONT(x, 0.5) AS q, MIN(x) AS l, MAX(x) AS h FROM t"),
    "use CASE inside it": ("SELECT COUNT(DISTINCT x, y) FILTER (WHERE b) AS n FROM t", "SELECT COUNT(DISTINCT CASE WHEN b THEN x END) AS n FROM t"),
    "write LIMIT 10": ("SELECT s, COUNT(*) AS n FROM t GROUP BY s LIMIT 'a'", "SELECT s, COUNT(*) AS n FROM t GROUP BY s LIMIT 10"),
    "write LIMIT 1 or more; to see the columns and the cost, plan it without running it": ("SELECT s, COUNT(*) AS n FROM t GROUP BY s LIMIT 0", "SELECT s, COUNT(*) AS n FROM t GROUP BY s LIMIT 1"),
    "write SELECT … FROM … GROUP BY …": ("DELETE FROM t", "SELECT s, COUNT(*) AS n FROM t GROUP BY s"),
    "take it of a column, or ask for COUNT(*)": ("SELECT AVG(1) AS n FROM t", "SELECT AVG(x) AS a, COUNT(*) AS n FROM t"),
    "use QUANTILE_CONT(x, 0.5)": ("SELECT MODE() WITHIN GROUP (ORDER BY x) AS m FROM t", "SELECT QUANTILE_CONT(x, 0.5) AS m FROM t"),
    "add it to the GROUP BY, or take an aggregate of it": ("SELECT y, COUNT(*) AS n FROM t GROUP BY s", "SELECT AVG(y) AS y, COUNT(*) AS n FROM t GROUP BY s"),
    "take parts of dates with EXTRACT, and differences with DATE_DIFF": ("SELECT COUNT(CAST(d AS DOUBLE)) AS n FROM t", "SELECT COUNT(EXTRACT(year FROM d)) AS n, COUNT(DATE_DIFF('day', d, d)) AS m FROM t"),
    "cast to DOUBLE, INTEGER, VARCHAR, BOOLEAN, DATE or TIMESTAMP": ("SELECT COUNT(CAST(s AS BLOB)) AS n FROM t", "SELECT COUNT(CAST(s AS DOUBLE)) AS n, COUNT(CAST(s AS INTEGER)) AS i, COUNT(CAST(x AS VARCHAR)) AS v, COUNT(CAST(s AS BOOLEAN)) AS o, COUNT(CAST(s AS DATE)) AS d, COUNT(CAST(s AS TIMESTAMP)) AS m FROM t"),
    "write ROUND(CAST(… AS DOUBLE), 2)": ("SELECT COUNT(CAST(s AS DECIMAL(10, 2))) AS n FROM t", "SELECT COUNT(ROUND(CAST(s AS DOUBLE), 2)) AS n FROM t"),
    "write DECIMAL(18, 3), or ROUND": ("SELECT COUNT(CAST(x AS DECIMAL(38, 20))) AS n FROM t", "SELECT COUNT(CAST(x AS DECIMAL(18, 3))) AS n, COUNT(ROUND(x, 2)) AS r FROM t"),
    "take an aggregate of it, one group by WHERE, or LIMIT 1": ("SELECT n FROM (SELECT COUNT(*) AS n FROM t) AS q WHERE n > (SELECT c FROM (SELECT s, COUNT(*) AS c FROM t GROUP BY s) AS r)", "SELECT n FROM (SELECT COUNT(*) AS n FROM t) AS q WHERE n > (SELECT MAX(c) FROM (SELECT s, COUNT(*) AS c FROM t GROUP BY s) AS r)"),
    "write INTERVAL 7 DAY: of seconds, minutes, hours, days, weeks, months, quarters or years": ("SELECT COUNT(*) AS n FROM t WHERE m + INTERVAL '1 day 2 hours' > d", "SELECT COUNT(*) AS n FROM t WHERE m + INTERVAL 7 DAY > d"),
    "write LOG(2, x), LN(x) or LOG10(x)": ("SELECT COUNT(LOG(y, x)) AS n FROM t", "SELECT COUNT(LOG(2, x)) AS n, COUNT(LN(x)) AS l, COUNT(LOG10(x)) AS m FROM t"),
    "write WIDTH_BUCKET(x, 0, 100, 10)": ("SELECT COUNT(WIDTH_BUCKET(x, 5, 5, 2)) AS n FROM t", "SELECT COUNT(WIDTH_BUCKET(x, 0, 100, 10)) AS n FROM t"),
    "write ISOWEEK, or WEEK(MONDAY)": (GOOGLE + "COUNT(DATE_TRUNC(d, WEEK)) AS n FROM t", GOOGLE + "COUNT(DATE_TRUNC(d, ISOWEEK)) AS n, COUNT(DATE_TRUNC(d, WEEK(MONDAY))) AS m FROM t"),
    "write FROM t CROSS JOIN UNNEST(t.tags) AS u(tag), with the table that has the list": ("SELECT COUNT(*) AS n FROM t CROSS JOIN UNNEST(t.s) AS u(tag)", "SELECT COUNT(*) AS n FROM t CROSS JOIN UNNEST(t.tags) AS u(tag)"),
    "write CROSS JOIN or JOIN … ON in place of the comma": ("SELECT COUNT(*) AS n FROM p, t RIGHT JOIN v ON t.u = v.u", "SELECT COUNT(*) AS n FROM p CROSS JOIN t RIGHT JOIN v ON t.u = v.u"),
    "join ON equal columns, such as the unit's key, and filter with WHERE": ("SELECT COUNT(*) AS n FROM t FULL JOIN v ON t.u = v.u AND t.x < v.x", "SELECT COUNT(*) AS n FROM t FULL JOIN v ON t.u = v.u WHERE t.x < v.x"),
    "write the window out, as OVER (PARTITION BY … ORDER BY …)": ("SELECT COUNT(*) AS n FROM (SELECT u, RANK() OVER (w PARTITION BY u) AS r FROM t) AS q", "SELECT COUNT(*) AS n FROM (SELECT u, RANK() OVER (PARTITION BY u ORDER BY x) AS r FROM t) AS q"),
    "write ROWS BETWEEN 6 PRECEDING AND CURRENT ROW, or leave the frame out": ("SELECT COUNT(*) AS n FROM (SELECT u, SUM(x) OVER (PARTITION BY u ORDER BY y RANGE 2 PRECEDING) AS r FROM t) AS q", "SELECT COUNT(*) AS n FROM (SELECT u, SUM(x) OVER (PARTITION BY u ORDER BY d ROWS BETWEEN 6 PRECEDING AND CURRENT ROW) AS r FROM t) AS q"),
    "write AVG(x, contribution_bounds_per_group => (0, 5)), and OPTIONS(epsilon = 1, …)": (GOOGLE + "AVG(x, contribution_bounds_per_group => 5) AS a FROM t", GOOGLE + "AVG(x, contribution_bounds_per_group => (0, 5)) AS a FROM t"),
    "write LAPLACE_THRESHOLD or PUBLIC_GROUPS": ("SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(group_selection_strategy = NONE) COUNT(*) AS n FROM t", "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(group_selection_strategy = LAPLACE_THRESHOLD) COUNT(*) AS n FROM t"),
    "GROUP BY the unit's key in the sub-query": ("SELECT AVG(n) AS a FROM (SELECT COUNT(*) AS n, y FROM t GROUP BY y) AS q WHERE EXISTS (SELECT 1 FROM v)", "SELECT COUNT(*) AS a FROM (SELECT u, COUNT(*) AS n FROM t GROUP BY u) AS q"),
    "write UNION ALL": ("SELECT COUNT(*) AS n FROM (SELECT s FROM t UNION SELECT s FROM v) AS q", "SELECT COUNT(*) AS n FROM (SELECT s FROM t UNION ALL SELECT s FROM v) AS q"),
    "add it to the GROUP BY, or aggregate it": ("SELECT COUNT(*) AS n FROM (SELECT u, x FROM t GROUP BY u) AS q", "SELECT COUNT(*) AS n FROM (SELECT u, MAX(x) AS x FROM t GROUP BY u) AS q"),
    "list values and groups: PIVOT t ON c IN ('a', 'b') USING COUNT(*) GROUP BY g": ("PIVOT t ON x USING COUNT(*)", "PIVOT t ON s IN ('a', 'b') USING COUNT(*) GROUP BY b"),
    "write PIVOT (SUM(n) FOR column IN ('a', 'b'))": ("SELECT * FROM (SELECT s, COUNT(*) AS n FROM t GROUP BY s) UNPIVOT (n FOR s IN (a))", "SELECT * FROM (SELECT s, COUNT(*) AS n FROM t GROUP BY s) PIVOT (SUM(n) FOR s IN ('a', 'b'))"),
    "cast to INTEGER, BIGINT, DOUBLE, DECIMAL, VARCHAR, BOOLEAN, DATE or TIMESTAMP": ("SELECT CAST(n AS BLOB) AS k FROM (SELECT COUNT(*) AS n FROM t) AS q", "SELECT CAST(n AS BIGINT) AS k FROM (SELECT COUNT(*) AS n FROM t) AS q"),
    "add PARTITION BY with the unit's key, or compute it from the released table": ("SELECT COUNT(*) AS n FROM (SELECT u, RANK() OVER (ORDER BY x) AS r FROM t) AS q", "SELECT COUNT(*) AS n FROM (SELECT u, RANK() OVER (PARTITION BY u ORDER BY x) AS r FROM t) AS q"),
    "write a replacement that is no longer, or use CASE": ("SELECT COUNT(REPLACE(s, 'a', 'long')) AS n FROM t", "SELECT COUNT(REPLACE(s, 'a', 'b')) AS n, COUNT(CASE WHEN s = 'a' THEN 'long' ELSE s END) AS c FROM t"),
    "leave DISTINCT out": ("SELECT COUNT(*) AS n FROM (SELECT u, SUM(DISTINCT x) OVER (PARTITION BY u) AS r FROM t) AS q", "SELECT COUNT(*) AS n FROM (SELECT u, SUM(x) OVER (PARTITION BY u) AS r FROM t) AS q"),
}  # fmt: skip
"""By what is advised: a query that is told so, and one that does so."""

ELSEWHERE = {
    "use the name of a COUNT or SUM in the SELECT": "a name of an output",
    "name it in the FROM": "a name of a table",
    "write ROUND(x, 2)": "of released values, in test_post_processing",
    "write the window after OVER": "a clause that the analyzer refuses before",
    "write GROUP BY": "SELECT DISTINCT is rewritten before",
    "write GROUPING SETS": "of three forms that mean the same",
    "leave it out, or ROUND": "of any function",
    "write IS NULL, or a comparison": "of released values, in test_post_processing",
    "write a date, or NULL": "of released values",
    "filter such rows out by HAVING first": "of values in Python",
    "declare the keys and leave ORDER BY and LIMIT out, or use run()": "of streams",
    "write one SELECT": "several statements",
    "write one SELECT of at most 100,000 characters": "no statement",
}
"""Advice with a word of SQL that is not a query to try, and what it is about."""


@pytest.mark.sweep(7)
@pytest.mark.slow
@pytest.mark.parametrize("advice", ADVICE)
def test_query_that_follows_the_advice_is_planned(data, advice):
    refused, accepted = ADVICE[advice]
    with pytest.raises(hb.HubbubError) as caught:
        data.sql(refused, epsilon=1)
    assert advice in caught.value.fix
    data.sql(accepted, epsilon=1)


@pytest.mark.slow
def test_all_advice_with_sql_in_it_is_tried():
    advice = set()
    for path in sorted(SOURCES.glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.keyword) and node.arg == "fix" and isinstance(node.value, ast.Constant):
                advice |= {node.value.value} if re.search("[A-Z]{3}", node.value.value) else set()
    assert advice == {*ADVICE, *ELSEWHERE}
