"""Everything over released values is post-processing: any SQL, no cost, and no way back to rows."""

# ruff: noqa: E501 - a query is one line

import duckdb
import numpy as np
import pandas as pd
import pytest
from sqlglot import parse_one

import hubbub as hb
from hubbub.engines.schema import Kind
from hubbub.sql import released_sql
from hubbub.sql.composite_plan import CompositePlan
from hubbub.sql.post_processing import ResultColumn
from hubbub.sql.released_sql import compile_released_sql

HUGE = 10**18
KEYS = {"g": ["a", "b", "c"], "h": ["x", "y"]}


@pytest.fixture(scope="module")
def rows():
    connection = duckdb.connect()
    connection.execute(
        "CREATE TABLE t AS SELECT i AS unit, ['a', 'b', 'c'][1 + i % 3] AS g, ['x', 'y'][1 + i // 3 % 2] AS h, "
        "CAST(i * 7 % 50 AS DOUBLE) AS x, DATE '2024-01-01' + CAST(i % 60 AS INTEGER) AS day FROM range(60) r(i)"
    )
    connection.execute("SET ieee_floating_point_ops = false")
    connection.execute("SET error_on_division_by_zero = false")
    return connection


def open_data(rows, **options):
    table = rows.sql("FROM t").to_arrow_table()
    options = {"keys": KEYS, "bounds": {"x": (0, 50)}, "rows_per_unit": 1, **options}
    return hb.open({"t": table}, unit="unit", **options)


def rows_of(result):
    table = result.to_dict()
    return list(zip(*(table[column.name] for column in result.columns), strict=True))


def alike(one, two):
    if isinstance(one, float) and two is not None:
        return one == pytest.approx(float(two), rel=1e-6, abs=1e-6)
    return one == two


OUTER = [
    "SELECT g, COUNT(*) AS n, RANK() OVER (ORDER BY SUM(x) DESC) AS r FROM t GROUP BY g ORDER BY r",
    "SELECT MAX(n) - MIN(n) AS spread, AVG(s) AS s FROM (SELECT g, COUNT(*) AS n, SUM(x) AS s FROM t GROUP BY g)",
    "SELECT UPPER(g) || '!' AS loud, CAST(COUNT(*) AS INTEGER) AS n FROM t GROUP BY g ORDER BY loud",
    "SELECT g, h, COUNT(*) / SUM(COUNT(*)) OVER (PARTITION BY g) AS share FROM t GROUP BY g, h ORDER BY g, h",
    "SELECT g, n, SUM(n) OVER (ORDER BY g) AS so_far FROM (SELECT g, COUNT(*) AS n FROM t GROUP BY g) AS c ORDER BY g",
    "WITH c AS (SELECT g, COUNT(*) AS n FROM t GROUP BY g) SELECT g FROM c WHERE n >= (SELECT MAX(n) FROM c) ORDER BY g",
    "SELECT g, h, COUNT(*) AS n FROM t GROUP BY ROLLUP (g, h) ORDER BY g NULLS LAST, h NULLS LAST",
    "SELECT g, h, SUM(x) AS s FROM t GROUP BY CUBE (g, h) ORDER BY g NULLS LAST, h NULLS LAST",
    "SELECT h, COUNT(*) AS n, GROUPING(h) AS whole FROM t GROUP BY GROUPING SETS ((h), ()) ORDER BY whole, h",
    "SELECT g AS k, COUNT(*) AS n FROM t GROUP BY g UNION ALL SELECT h, COUNT(*) FROM t GROUP BY h ORDER BY k",
    "SELECT (SELECT COUNT(*) FROM t) AS n, (SELECT SUM(x) FROM t WHERE g = 'a') AS s",
    "SELECT g, COUNT(*) / (SELECT COUNT(*) FROM t) AS share FROM t GROUP BY g ORDER BY g",
    "SELECT g, h, COUNT(*) AS n FROM t GROUP BY g, h QUALIFY ROW_NUMBER() OVER (PARTITION BY g ORDER BY SUM(x) DESC) = 1  ORDER BY g",
    "SELECT * FROM (SELECT g, h, SUM(x) AS s FROM t GROUP BY g, h) PIVOT (SUM(s) FOR h IN ('x', 'y')) ORDER BY g",
    "SELECT g, COUNT(*) AS n FROM t GROUP BY g ORDER BY g LIMIT 1 OFFSET 1",
    "SELECT a.g, a.n + b.n AS both FROM (SELECT g, COUNT(*) AS n FROM t GROUP BY g) AS a JOIN (SELECT g, COUNT(*) AS n FROM t  WHERE h = 'x' GROUP BY g) AS b USING (g) ORDER BY a.g",
    "SELECT g, CASE WHEN AVG(x) BETWEEN 20 AND 30 THEN LEFT(g, 1) ELSE NULL END AS mid FROM t GROUP BY g ORDER BY g",
    "SELECT LN(COUNT(*)) AS l, POWER(AVG(x), 2) AS p, COS(SUM(x)) AS c, SUM(x) / 0 AS nothing FROM t",
    "SELECT h, LAG(COUNT(*)) OVER (ORDER BY h) AS earlier, NTILE(2) OVER (ORDER BY h) AS half FROM t GROUP BY h ORDER BY h",
    "SELECT g, COUNT(*) // 3 AS q, (COUNT(*) + 1) // 0 AS z FROM t GROUP BY g ORDER BY g",
    "SELECT CAST(n AS VARCHAR) AS a, n || ' rows' AS b, g || '-' || n AS c, CONCAT(g, n) AS d FROM (SELECT g, COUNT(*) AS n FROM t GROUP BY g) AS q ORDER BY g",
    "SELECT CAST(CAST('x1.0' AS VARCHAR) AS VARCHAR) || g AS a, (n / 8) || '' AS b, CAST(CAST(g AS INTEGER) AS DOUBLE) AS c FROM (SELECT '1.0' || g AS g, COUNT(*) AS n FROM t GROUP BY t.g) AS q WHERE g IS NULL",
]  # fmt: skip


WITH_PUBLIC = [
    "SELECT p.name, c.n FROM (SELECT g, COUNT(*) AS n FROM t GROUP BY g) AS c JOIN places p USING (g) ORDER BY 1",
    "SELECT p.name, COALESCE(c.n, -1) AS n, p.since FROM places p LEFT JOIN (SELECT g, COUNT(*) AS n FROM t GROUP BY g) AS c ON p.g = c.g ORDER BY 1",
    "WITH c AS (SELECT g, COUNT(*) AS n FROM t GROUP BY g) SELECT places.name, n / size AS r FROM c, places WHERE c.g = places.g ORDER BY 1",
    "SELECT * FROM (SELECT g, COUNT(*) AS n FROM t GROUP BY g) AS c WHERE g IN (SELECT g FROM places WHERE size > 1) ORDER BY 1",
    "SELECT c.g, q.name FROM (SELECT g, COUNT(*) AS n FROM t GROUP BY g) AS c JOIN (SELECT g, MAX(name) AS name FROM places GROUP BY g) AS q ON q.g = c.g ORDER BY 1",
    "SELECT COUNT(*) AS n FROM places p WHERE (SELECT COUNT(*) FROM t WHERE t.g = p.g) > 1",
    "SELECT p.name FROM places p WHERE (SELECT COUNT(*) FROM t WHERE t.g = p.g AND h = 'x') < 1 ORDER BY 1",
    "PIVOT (SELECT g, h, COUNT(*) AS n FROM t GROUP BY g, h) ON h IN ('x', 'y') USING SUM(n)",
]  # fmt: skip


@pytest.mark.sweep(3)
@pytest.mark.parametrize("text", WITH_PUBLIC)
def test_released_tables_are_joined_with_public_ones(rows, text):
    rows.execute(
        "CREATE OR REPLACE TABLE places AS FROM (VALUES ('a', 'A', 1, DATE '2020-02-02', true), "
        "('b', 'it''s', 2, NULL, NULL), (NULL, 'none', NULL, NULL, false), ('z', 'Z', 4, NULL, true)) "
        "AS v(g, name, size, since, ok)"
    )
    data = open_data(rows, public={"places": rows.sql("FROM places").to_arrow_table()})
    plan = data.sql(text, epsilon=HUGE, allow_large_epsilon=True)
    assert len(plan.parts) == 1
    assert ("the rows of places, which is public" in str(plan)) == ("places" in text)
    ours, theirs = rows_of(data.run(plan).value), rows.execute(text).fetchall()
    if "PIVOT" in text:
        ours, theirs = sorted(ours), sorted(theirs)
    assert len(ours) == len(theirs)
    assert all(
        alike(a, b) for one, two in zip(ours, theirs, strict=True) for a, b in zip(one, two, strict=True)
    )


def test_protected_tables_are_not_joined_with_released_ones(rows):
    data = open_data(rows, public={"places": rows.sql("FROM t").to_arrow_table()})
    for join in (
        "JOIN t USING (g)",
        ", t",
        "JOIN (SELECT g FROM t) AS t USING (g)",
        "JOIN t AS places USING (g)",
    ):
        with pytest.raises(hb.HubbubError):
            data.sql(f"SELECT * FROM (SELECT g, COUNT(*) AS n FROM t GROUP BY g) AS c {join}", epsilon=1)
    with pytest.raises(hb.HubbubError):  # a name of WITH comes before that of a table
        data.sql("WITH c AS (SELECT g, COUNT(*) AS n FROM t GROUP BY g), places AS (SELECT * FROM t) "
                 "SELECT * FROM c JOIN places USING (g)", epsilon=1)  # fmt: skip


@pytest.mark.sweep(7)
@pytest.mark.parametrize("text", OUTER)
def test_outer_sql_agrees_with_duckdb(rows, text):
    data = open_data(rows)
    plan = data.sql(text, epsilon=HUGE, allow_large_epsilon=True)
    assert isinstance(plan, CompositePlan)
    ours, theirs = rows_of(data.run(plan).value), rows.execute(text).fetchall()
    assert len(ours) == len(theirs)
    assert all(
        alike(a, b) for one, two in zip(ours, theirs, strict=True) for a, b in zip(one, two, strict=True)
    )


def test_parts_share_the_price(rows):
    data = open_data(rows, budget=hb.Budget(1))
    plan = data.sql("SELECT COUNT(*) / (SELECT COUNT(*) FROM t WHERE g = 'a') AS r FROM t", epsilon=1)
    assert [part.epsilon for part in plan.parts] == [plan.epsilon / 2] * 2
    assert plan.loss.epsilon(0) <= 1
    data.run(plan)
    with pytest.raises(hb.errors.BudgetExceeded):
        data.sql("SELECT COUNT(*) AS n FROM t", epsilon=0.01).run()


@pytest.mark.slow
def test_other_outer_sql_over_the_same_release_is_free(rows, tmp_path):
    with open_data(rows, ledger=tmp_path / "one.ledger", budget=hb.Budget(1), version="1") as data:
        inner = "SELECT g, COUNT(*) AS n FROM t GROUP BY g"
        plain = data.run(data.sql(inner, epsilon=1)).value
        for text in (f"SELECT MAX(n) AS n FROM ({inner})", f"SELECT SUM(n) AS n FROM ({inner})"):
            result = data.run(data.sql(text, epsilon=1)).value
            function = max if "MAX" in text else sum
            assert result["n"] == [pytest.approx(function(plain["n"]))]
            assert result.facts["asked before"]


@pytest.mark.slow
def test_a_stored_composite_is_read_back(rows, tmp_path):
    with open_data(rows, ledger=tmp_path / "one.ledger", budget=hb.Budget(1), version="1") as data:
        text = "SELECT g, h, COUNT(*) AS n FROM t GROUP BY ROLLUP (g, h)"
        first, second = (data.run(data.sql(text, epsilon=1)).value for _ in range(2))
        assert first.to_dict() == second.to_dict()
        assert len(first) == 10


def test_intervals_of_plain_columns_are_carried(rows):
    data = open_data(rows)
    plan = data.sql(
        "SELECT g, n AS m, 2 * n AS twice FROM (SELECT g, COUNT(*) AS n FROM t GROUP BY g) AS c", epsilon=1
    )
    result = data.run(plan).value
    assert [column.low is not None for column in result.columns] == [False, True, False]
    assert all(
        low < n < high for low, n, high in zip(*(result[c] for c in ("m_low", "m", "m_high")), strict=True)
    )
    assert "twice: computed from what is released, without an interval" in str(plan)


def test_failing_outer_sql_returns_the_released_table(rows):
    data = open_data(rows)
    # Of the values that are tried at planning, none is so large that its sixth power overflows.
    text = "SELECT n * n * n * n * n * n AS big FROM (SELECT CAST(s AS BIGINT) AS n FROM (SELECT SUM(x + 3) AS s FROM t))"
    plan = data.sql(text, epsilon=HUGE, allow_large_epsilon=True)
    result = data.run(plan).value
    assert result["s"] == [pytest.approx(1600, rel=0.1)]
    assert "post-processing failed" in result.facts


@pytest.mark.sweep(5)
@pytest.mark.parametrize(
    "text",
    [
        "SELECT random() AS r FROM (SELECT COUNT(*) AS n FROM t)",
        "SELECT transaction_timestamp() AS r FROM (SELECT COUNT(*) AS n FROM t)",
        "SELECT IFF(n > 1, 1) AS r FROM (SELECT COUNT(*) AS n FROM t)",
        "SELECT n, (SELECT COUNT(*) FROM read_csv('/etc/passwd')) AS r FROM (SELECT COUNT(*) AS n FROM t)",
        "SELECT n FROM (SELECT COUNT(*) AS n FROM t), duckdb_settings()",
        "SELECT n FROM (SELECT COUNT(*) AS n FROM t), '/etc/passwd'",
        "SELECT getenv('HOME') AS h FROM (SELECT COUNT(*) AS n FROM t)",
        "SELECT current_setting('threads') AS h FROM (SELECT COUNT(*) AS n FROM t)",
        "SELECT nextval('s') AS h FROM (SELECT COUNT(*) AS n FROM t)",
        "SELECT n, x FROM (SELECT COUNT(*) AS n FROM t), t",
        "SELECT n FROM (SELECT COUNT(*) AS n FROM t) WHERE EXISTS (SELECT unit FROM t WHERE unit = 3)",
        "SELECT n, (SELECT MAX(unit) FROM t GROUP BY unit LIMIT 1) AS u FROM (SELECT COUNT(*) AS n FROM t)",
        "SELECT unit, RANK() OVER (ORDER BY unit) AS r FROM t GROUP BY unit",
        "SELECT x, RANK() OVER (ORDER BY x) AS r FROM t",
        "SELECT * FROM t UNION ALL SELECT * FROM t",
        "SELECT LIST(n) AS l FROM (SELECT g, COUNT(*) AS n FROM t GROUP BY g)",
        "WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM r) SELECT n FROM r, (SELECT COUNT(*) AS m FROM t)",
    ],
)  # fmt: skip
def test_outer_sql_sees_only_released_values(rows, text):
    with pytest.raises(hb.HubbubError):
        open_data(rows).sql(text, epsilon=1)


def test_released_sql_runs_on_a_locked_connection():
    table = {"n": Kind.NUMBER}
    compiled = compile_released_sql(parse_one("SELECT n FROM _released0"), [table])
    assert compiled.names == ("n",)
    for text in ("SELECT * FROM 'a.csv'", "SELECT * FROM glob('*')", "SELECT read_text('/etc/passwd')"):
        with pytest.raises(hb.HubbubError):
            compile_released_sql(parse_one(text, read="duckdb"), [table])


def test_keys_of_parts_are_declared_once(rows):
    data = open_data(rows, keys=None)
    text = "SELECT g AS k, COUNT(*) AS n FROM t GROUP BY g UNION ALL SELECT h, COUNT(*) FROM t GROUP BY h"
    plan = data.sql(text, epsilon=1, keys=KEYS)
    assert len(data.run(plan).value) == 5
    with pytest.raises(hb.InvalidInput, match="does not group by"):
        data.sql(text, epsilon=1, keys={**KEYS, "day": ["2024-01-01"]})


def test_exact_answers_of_the_owner_pass_through_the_outer_sql(rows):
    data = open_data(rows)
    exact = data.exact(
        data.sql("SELECT MAX(n) AS n FROM (SELECT g, COUNT(*) AS n FROM t GROUP BY g)", epsilon=1)
    )
    assert exact["n"] == [20.0]
    assert "EXACT" in exact.facts


CROSS = (
    "WITH c AS (SELECT g, COUNT(*) AS n FROM t GROUP BY g), a0 AS (SELECT c.n FROM c, c AS c2, c AS c3), a1 AS (SELECT x.n FROM a0 AS x, a0 AS y), "
    "a2 AS (SELECT x.n FROM a1 AS x, a1 AS y), a3 AS (SELECT x.n FROM a2 AS x, a2 AS y) "
)


@pytest.mark.slow
def test_outer_sql_that_does_not_end_is_refused_before_the_charge(rows, monkeypatch):
    monkeypatch.setattr(released_sql, "PLANNING_SECONDS", 0.3)
    data = open_data(rows)
    with pytest.raises(hb.Unsupported, match="takes more than"):
        data.sql(CROSS + "SELECT SUM(SQRT(n)) AS n FROM a3", epsilon=1)


def test_a_result_that_is_too_large_says_so(rows, monkeypatch):
    monkeypatch.setattr(released_sql, "MAX_CELLS", 20)
    text = "WITH c AS (SELECT g, COUNT(*) AS n FROM t GROUP BY g) SELECT x.n FROM c AS x, c AS y, c AS z"
    result = open_data(rows).sql(text, epsilon=1).run().value
    assert len(result) == 3
    assert "too many rows" in result.facts["post-processing failed"]


@pytest.mark.parametrize(
    "text",
    [
        "REPLACE(" * 9 + "g" + ", 'a', 'aaaaaaaaaa')" * 9,
        "REPLACE(g, 'a', g)",
        "REPLACE(g, 'a', '" + "a" * 33 + "')",
        "REGEXP_REPLACE(g, 'a', '" + "a" * 33 + "')",
        " || ".join(["g"] * 80),
        f"CONCAT({', '.join(['g'] * 80)})",
        f"g || '{'a' * 1001}'",
    ],
)
def test_outer_sql_makes_no_long_texts(rows, text):
    with pytest.raises(hb.Unsupported, match="long texts"):
        open_data(rows).sql(f"SELECT {text} AS a FROM (SELECT g, COUNT(*) AS n FROM t GROUP BY g)", epsilon=1)


def test_texts_of_outer_sql_are_cut(rows):
    text = "REPLACE(" * 8 + "g" + ", 'a', 'aaaaaaaaaa')" * 8
    result = open_data(rows).sql(
        f"SELECT {text} AS a FROM (SELECT g, COUNT(*) AS n FROM t GROUP BY g) WHERE g = 'a'", epsilon=1
    )
    assert result.run().value["a"] == ["a" * 1000]


@pytest.mark.parametrize(
    "text",
    [
        "WITH _released1 AS (SELECT COUNT(*) AS n FROM t WHERE h = 'x') SELECT a.n AS a, b.n AS b FROM _released1 AS a, (SELECT COUNT(*) AS n FROM t) AS b",
        'SELECT MAX(n) AS n FROM (SELECT g, COUNT(*) AS n FROM t GROUP BY g) AS "_RELEASED0"',
        "SELECT g AS _grouping0, GROUPING(g) AS q, COUNT(*) AS n FROM t GROUP BY ROLLUP(g)",
    ],
)
def test_names_of_released_tables_are_reserved(rows, text):
    with pytest.raises(hb.Unsupported, match="another name"):
        open_data(rows).sql(text, epsilon=1)


@pytest.mark.parametrize(
    "text",
    [
        "SELECT SUM(p.w) AS s FROM t JOIN p ON t.g = p.g",
        "SELECT t.g, SUM(p.w) + 1 AS s FROM t JOIN p ON t.g = p.g GROUP BY t.g",
        "SELECT COUNT(*) AS s FROM t WHERE g IN (SELECT g FROM p)",
    ],
)
def test_rows_are_not_joined_with_a_public_table_that_with_hides(rows, text):
    public = {
        "p": rows.sql("SELECT * FROM (VALUES ('a', 1.0), ('b', 10.0), ('c', 100.0)) v(g, w)").to_arrow_table()
    }
    data = open_data(rows, public=public)
    clause = "WITH p AS (SELECT g, COUNT(*) AS w FROM t GROUP BY g) "
    row_clause = (
        clause[:-1] + ", q AS (SELECT t.unit, t.g, p.w FROM t JOIN p ON t.g = p.g) SELECT SUM(w) AS s FROM q"
    )
    for each in (clause + text, row_clause):
        with pytest.raises(hb.HubbubError):
            data.sql(each, epsilon=1, bounds={"w": (0, 100)})
    beside = clause + "SELECT COUNT(*) / (SELECT MAX(w) FROM p) AS r FROM t"
    assert data.sql(beside, epsilon=HUGE, allow_large_epsilon=True).run().value["r"] == [pytest.approx(3)]


def test_a_public_table_of_lists_is_refused_by_name(rows):
    data = open_data(rows, public={"lists": rows.sql("SELECT [1] AS l").to_arrow_table()})
    with pytest.raises(hb.Unsupported, match="lists has no column that can be read"):
        data.sql("SELECT COUNT(*) AS c FROM (SELECT g, COUNT(*) AS n FROM t GROUP BY g), lists", epsilon=1)


def test_dates_that_python_does_not_know_are_missing(rows):
    text = (
        "SELECT DATE '2024-01-01' + CAST(n * 1000000 AS INTEGER) AS a FROM (SELECT COUNT(*) AS n FROM t) AS q"
    )
    assert open_data(rows).sql(text, epsilon=HUGE, allow_large_epsilon=True).run().value["a"] == [None]
    with pytest.raises(hb.Unsupported, match="infinity"):
        open_data(rows).sql(
            "SELECT n, CAST('Infinity' AS DATE) AS a FROM (SELECT COUNT(*) AS n FROM t) AS q", epsilon=1
        )


def test_many_released_rows_are_read_at_once(rows):
    keys = [f"k{number}" for number in range(20_500)]
    compiled = compile_released_sql(
        parse_one("SELECT COUNT(*) AS m, SUM(n) AS s, MAX(k) AS k FROM _released0"),
        [{"k": Kind.TEXT, "n": Kind.NUMBER}],
    )
    columns = [ResultColumn("k", np.array(keys, dtype=object)), ResultColumn("n", np.ones(len(keys)))]
    count, total, last = compiled.evaluate([columns])
    assert (count.values[0], total.values[0], last.values[0]) == (20_500, 20_500, max(keys))


INNER = "(SELECT g, COUNT(*) AS n FROM t GROUP BY g) AS c"


@pytest.mark.slow
def test_a_sub_query_for_one_value_has_one_row(rows):
    data = open_data(rows)
    for condition in (
        "n > (SELECT k FROM (SELECT h, COUNT(*) AS k FROM t GROUP BY h) AS k)",
        "n > (SELECT COUNT(*) FROM t GROUP BY h)",
    ):
        with pytest.raises(hb.Unsupported, match="several rows"):
            data.sql(f"SELECT g, n FROM {INNER} WHERE {condition}", epsilon=1)
    for query in (
        "SELECT MAX(k) FROM (SELECT h, COUNT(*) AS k FROM t GROUP BY h) AS k",
        "SELECT COUNT(*) FROM t",
    ):
        data.sql(f"SELECT g, n FROM {INNER} WHERE n <> ({query}) AND g IN (SELECT g FROM {INNER})", epsilon=1)


@pytest.mark.slow
def test_plans_say_that_excluded_keys_are_empty_groups(rows):
    data = open_data(rows)
    for condition, is_noted in (("g <> 'a'", True), ("g <> 'a' AND x > 1", True), ("x > 1", False)):
        text = f"SELECT MIN(n) AS n FROM (SELECT g, COUNT(*) AS n FROM t WHERE {condition} GROUP BY g)"
        assert ("empty groups" in str(data.sql(text, epsilon=1))) == is_noted


@pytest.mark.parametrize(
    ("text", "names", "counts"),
    [
        ("SELECT c.*, p.* FROM {0} AS c JOIN p ON c.g = p.g", "g N m g_1 title n_1", {"N"}),
        ("SELECT * FROM {0} AS c JOIN p ON c.g = p.g", "g N m g_1 title n_1", {"N"}),
        ("SELECT p.*, c.* FROM {0} AS c JOIN p USING (g)", "g title n g_1 N_1 m", {"N_1"}),
        ("SELECT * FROM {0} AS c JOIN p USING (g)", "g N m title n_1", {"N"}),
        ("SELECT * FROM {0} AS c NATURAL JOIN (SELECT g, title FROM p) AS q", "g N m title", {"N"}),
        ("SELECT * FROM {0} AS c SEMI JOIN p ON c.g = p.g", "g N m", {"N"}),
        ("SELECT d.*, c.N FROM {0} AS c JOIN {0} AS d ON c.g = d.g", "g N m N_1", {"N", "N_1"}),
        (
            "SELECT q.* FROM (SELECT p.*, c.* FROM {0} AS c JOIN p USING (g)) AS q",
            "g title n g_1 N_1 m",
            {"N_1"},
        ),
        ("SELECT p.n, c.N FROM {0} AS c JOIN p USING (g)", "n N_1", {"N_1"}),
        ("SELECT c.* FROM {0} AS c", "g N m", {"N"}),
        (
            "SELECT c.N / 2, MAX(N) OVER () - N, m FROM {0} AS c",
            "n_over_2 max_n_over_minus_n m",
            {"max_n_over_minus_n"},
        ),
    ],
)
def test_outputs_of_stars_have_the_names_of_their_columns_and_counts_are_integers(text, names, counts):
    """N is a count here, n of the public table is not."""
    rows = pd.DataFrame({"u": range(40), "g": ["a", "b"] * 20, "x": 1.5})
    public = pd.DataFrame({"g": ["a", "b"], "title": ["A", "B"], "n": [0.5, 1.5]})
    declared = {"keys": {"g": ["a", "b"]}, "bounds": {"x": (0, 2)}, "public": {"p": public}}
    data = hb.open(rows, table="t", unit="u", **declared)
    plan = data.sql(text.format("(SELECT g, COUNT(*) AS N, AVG(x) AS m FROM t GROUP BY g)"), epsilon=1)
    columns = data.run(plan).value.columns
    assert " ".join(each.name for each in columns) == names
    assert {each.name for each in columns if each.is_integer} == counts


@pytest.mark.parametrize("change", ["REPLACE (n * 2 AS n)", "EXCLUDE (g)", "RENAME (n AS m)"])
def test_star_with_other_columns_is_refused(rows, change):
    inner = "(SELECT g, COUNT(*) AS n FROM t GROUP BY g) AS c"
    for text in (f"SELECT * {change} FROM {inner}", f"SELECT * FROM (SELECT * {change} FROM {inner}) AS d"):
        with pytest.raises(hb.HubbubError, match=r"columns of \* are"):
            open_data(rows).sql(text, epsilon=1)


@pytest.mark.parametrize(
    ("text", "kinds"),
    [
        ("SELECT g, n AS s, s AS n FROM ({}) AS q", {"s": "count", "n": "sum"}),
        ("SELECT g, s AS n FROM ({}) AS q", {"n": "sum"}),
        ("WITH q AS ({}) SELECT * FROM (SELECT g, s AS n FROM q) AS r", {"n": "sum"}),
        ("SELECT g AS n, n AS m, n + 1 AS s FROM ({}) AS q", {"m": "count"}),
        ("SELECT g, SUM(n) AS n FROM ({}) AS q GROUP BY g", {}),
    ],
)
def test_errors_are_those_of_the_renamed_column(rows, text, kinds):
    """They were looked up by the name that another column had in the sub-query."""
    inner = "SELECT g, COUNT(*) AS n, SUM(x) AS s FROM t GROUP BY g"
    with open_data(rows) as data:
        parts = dict(
            zip(("count", "sum"), (text for _, text in data.sql(inner, epsilon=1).errors), strict=True)
        )
        plan = data.sql(text.format(inner), epsilon=1)
        errors = {output.name: error for output, error in plan.errors}
        assert {name: errors[name] for name in kinds} == {name: parts[kind] for name, kind in kinds.items()}
        assert all("without an interval" in errors[name] for name in errors.keys() - kinds)
        answers = plan.run().value
        assert answers.facts["answers"] == plan.label()["answers"] == kinds
        assert (answers.facts["interval covers"] is None) == (not kinds)
        assert {each.name for each in answers.columns if each.low is not None} == set(kinds)


@pytest.mark.slow
def test_notes_say_of_which_query_they_are(rows):
    """Totals of ROLLUP count rows of all keys; "rows are left out" was said of the whole."""
    with open_data(rows) as data:
        notes = data.sql("SELECT g, COUNT(*) AS n FROM t GROUP BY ROLLUP(g)", epsilon=1).label()["notes"]
        assert notes[0] == "query 1: rows are left out if g is NULL or not among its 3 keys"
        both = data.sql(
            "SELECT g, COUNT(*) AS n FROM t GROUP BY g UNION ALL SELECT g, SUM(x) FROM t GROUP BY g",
            epsilon=1,
        )
        assert both.label()["notes"][0] == "rows are left out if g is NULL or not among its 3 keys"
