"""Joins of protected tables: a unit's rows are capped before they are multiplied, by its own rows alone."""

import random
from collections import Counter
from math import prod

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hubbub as hb
from hubbub.errors import Refused
from hubbub.sql.joins import MAX_JOINED_ROWS, rows_to_keep
from internals import connection_of
from refusing import refused

PAIR = "SELECT COUNT(*) AS n FROM v AS a JOIN v AS b ON a.u = b.u"


def open_data(rows):
    connection = duckdb.connect()
    connection.execute("CREATE TABLE v (u INT, x DOUBLE, s VARCHAR, o TIME)")
    if rows:
        connection.executemany("INSERT INTO v VALUES (?, ?, ?, ?)", rows)
    return hb.open(connection, table="v", unit="u", rows_per_unit=5)


def rows(unit, count, seed=0):
    rng = random.Random(seed)
    texts = ["a", "b", None, "é"]
    return [
        (
            unit,
            rng.choice([None, -0.0, 0.0, float(rng.randrange(900))]),
            rng.choice(texts),
            rng.choice([None, "10:00:00"]),
        )
        for _ in range(count)
    ]


def capped_rows(data, text):
    """How many rows of each unit the query has, and its plan."""
    plan = data.sql(text, epsilon=1)
    listed = plan.query.rows.sql("duckdb")
    query = f"SELECT _unit, COUNT(*) FROM ({listed}) AS r GROUP BY _unit"
    return dict(connection_of(data).execute(query).fetchall()), plan


@given(st.lists(st.none() | st.integers(1, 10**7), min_size=2, max_size=6))
def test_join_respects_the_maximum_rows_per_unit(known):
    try:
        keep = rows_to_keep(known)
    except Refused:
        return
    assert prod(keep if most is None else min(most, keep) for most in known) <= MAX_JOINED_ROWS


def test_plan_states_the_row_cap_of_a_join():
    data = open_data(rows(1, 3000) + rows(2, 3))
    by_unit, plan = capped_rows(data, PAIR)
    assert by_unit == {1: MAX_JOINED_ROWS, 2: 9}
    assert "before tables are joined a unit keeps at most 1,000 rows of each" in str(plan)


def test_rows_kept_in_a_join_depend_on_the_unit_only():
    many, others = rows(1, 1300), rows(2, 1200, 1) + rows(3, 7)
    per_unit = "(SELECT u, COUNT(*) AS c FROM v GROUP BY u) AS c"
    first = f"v AS a JOIN {per_unit} ON a.u = c.u"
    text = f"SELECT SUM(b.x) AS n FROM {first} JOIN v AS b ON a.u = b.u AND a.x = b.x"
    results = []
    for seed in range(3):
        table = many + others
        random.Random(seed).shuffle(table)
        results.append(made_of(open_data(table), text))
    assert results[0] == results[1] == results[2]
    without = made_of(open_data(others), text)
    assert {unit: some for unit, some in results[0].items() if unit != 1} == without


def made_of(data, text):
    """By unit, how often each row comes out."""
    plan = data.sql(text, epsilon=1, bounds={"b.x": (0, 10), "x": (0, 10)})
    listed = plan.query.rows.sql("duckdb")
    records = (
        connection_of(data)
        .execute(f"SELECT _unit, x0 + 0, COUNT(*) FROM ({listed}) AS r GROUP BY ALL")
        .fetchall()
    )
    out = {}
    for unit, x, count in records:
        out.setdefault(unit, Counter())[x] += count
    return out


def test_join_that_multiplies_nothing_is_not_capped():
    data = open_data(rows(1, 3000))
    once = "SELECT u, COUNT(*) AS c FROM v GROUP BY u"
    by_unit, plan = capped_rows(data, f"SELECT COUNT(*) AS n FROM v AS a JOIN ({once}) AS b ON a.u = b.u")
    assert by_unit == {1: 3000}
    assert plan.query.rows_kept_for_join is None or plan.query.rows_kept_for_join >= 10**5
    assert "ROW_NUMBER" not in data.sql("SELECT COUNT(*) AS n FROM v", epsilon=1).explain()


@pytest.mark.parametrize("sides", [7, 8, 12])
def test_join_too_large_to_cap_is_refused(sides):
    joins = " ".join(f"JOIN v AS a{place} ON a0.u = a{place}.u" for place in range(1, sides))
    with refused(Refused):
        open_data([]).sql(f"SELECT COUNT(*) AS n FROM v AS a0 {joins}", epsilon=1)


def test_nested_joins_respect_the_cap():
    inner = "SELECT a.u AS u, a.x AS x FROM v AS a JOIN v AS b ON a.u = b.u"
    text = f"SELECT COUNT(*) AS n FROM ({inner}) AS c JOIN ({inner}) AS d ON c.u = d.u"
    by_unit, _ = capped_rows(open_data(rows(1, 60)), text)
    assert by_unit == {1: MAX_JOINED_ROWS}


@pytest.mark.sweep(3)
@pytest.mark.parametrize("name", ["_many", "_MANY", "_all", "_ranked"])
def test_table_may_be_named_like_a_join_step(name):
    connection = duckdb.connect()
    connection.execute(f'CREATE TABLE "{name}" AS SELECT i % 2 AS u, i AS x FROM range(4) AS r(i)')
    data = hb.open(connection, table=name, unit="u", rows_per_unit=9)
    text = f'SELECT COUNT(*) AS n FROM "{name}" AS a JOIN "{name}" AS b ON a.u = b.u JOIN '
    text += f'(SELECT c.u FROM "{name}" AS c JOIN "{name}" AS d ON c.u = d.u) AS e ON a.u = e.u'
    assert capped_rows(data, text)[0] == {0: 16, 1: 16}


@pytest.mark.parametrize("name", ["_rank", '"_RANK"', "_rank_"])
def test_no_column_name_lifts_the_cap(name):
    many = [(1, float(number), None, None) for number in range(1500)]
    data = open_data(many + rows(2, 9))
    text = f"WITH h AS (SELECT u, x, 0 AS {name}, 1 AS _rank__ FROM v) SELECT COUNT(*) AS n FROM h AS a "
    text += f"JOIN h AS b ON a.u = b.u AND a.x = b.x WHERE a.{name} = 0 AND b._rank__ = 1 AND a.x >= 1000"
    result = data.exact(data.sql(text, epsilon=1)).to_dict()
    assert result["n"] == [0.0]  # the first 1000 rows are kept, by their content
    of_all = data.exact(data.sql("SELECT COUNT(*) AS n FROM v WHERE x >= 1000", epsilon=1)).to_dict()
    assert of_all["n"][0] > 4


# Outer joins, by enumeration of small databases

CONTENTS = {"t": [[], ["a"], ["a", "b"]], "s": [[], ["b", "b"]]}
OUTER = [
    "SELECT COUNT(DISTINCT t.g || s.g) AS n FROM t FULL JOIN s ON t.u = s.u",
    "SELECT COUNT(DISTINCT t.g || s.g) AS n FROM t FULL JOIN s USING (u)",
    "SELECT COUNT(DISTINCT g) AS n FROM t FULL JOIN s USING (u, g)",
    "SELECT COUNT(DISTINCT g) AS n FROM t NATURAL FULL JOIN s",
    "SELECT COUNT(DISTINCT t.g || s.g) AS n FROM t FULL JOIN s ON t.u = s.u AND t.g = s.g AND s.g = 'b'",
    "SELECT COUNT(DISTINCT t.g || s.g) AS n FROM t FULL JOIN s ON s.u = t.u AND t.g = 'a' AND s.g = 'b'",
    "SELECT COUNT(r.g) AS n FROM t FULL JOIN s USING (u) FULL JOIN t AS r USING (u)",
    "SELECT COUNT(r.g) AS n FROM t FULL JOIN s ON t.u = s.u FULL JOIN t AS r ON s.u = r.u",
    "SELECT COUNT(s.g) AS n FROM s RIGHT JOIN t ON t.u = s.u AND t.g = s.g",
    "SELECT COUNT(s.g) AS n FROM p JOIN s ON s.g = p.g RIGHT JOIN t ON t.u = s.u",
    "SELECT COUNT(p.w) AS n FROM p RIGHT JOIN t ON t.g = p.g",
    "SELECT COUNT(r.g) AS n FROM t LEFT JOIN s ON t.u = s.u LEFT JOIN s AS r ON s.u = r.u",
    "SELECT COUNT(g) AS n FROM t WHERE EXISTS (SELECT 1 FROM s WHERE s.u = t.u AND s.g > t.g)",
    "SELECT COUNT(g) AS n FROM t WHERE g = (SELECT MAX(g) FROM s WHERE s.u = t.u) OR g IN (SELECT g FROM p)",
    (
        "SELECT COUNT(DISTINCT c) AS n FROM (SELECT u, CAST(COUNT(*) AS VARCHAR) || MAX(s.g) AS c "
        "FROM t FULL JOIN s USING (u) GROUP BY u) AS q"
    ),
]


def small(connection, schema, contents):
    """Tables of two units: the texts that each has in t and in s."""
    connection.execute(f"CREATE SCHEMA {schema}")
    for name, place in (("t", 0), ("s", 1)):
        rows = [f"({unit}, '{text}')" for unit, own in contents.items() for text in own[place]]
        values = f"VALUES {', '.join(rows)}" if rows else "SELECT 1, 'a' WHERE FALSE"
        connection.execute(f"CREATE TABLE {schema}.{name} AS SELECT * FROM ({values}) AS r(u, g)")


@pytest.mark.slow
def test_rows_of_an_outer_join_are_a_function_of_one_unit():
    """In all databases of two units: the rows of one are the same, whatever the other has."""
    owned = [(t, s) for t in CONTENTS["t"] for s in CONTENTS["s"]]
    pairs = [(one, two) for one in range(len(owned)) for two in range(len(owned))]
    connection = duckdb.connect(config={"threads": 1})
    connection.execute("CREATE TABLE p AS SELECT 'a' AS g, 1.0 AS w UNION ALL SELECT 'z', 2.0")
    connection.execute("CREATE TABLE t (u INT, g VARCHAR); CREATE TABLE s (u INT, g VARCHAR)")
    data = hb.open(connection, table=["t", "s"], unit="u", public={"p": "p"}, rows_per_unit=9)
    for one, two in pairs:
        small(connection, f"of_{one}_{two}", {1: owned[one], 2: owned[two]})
    for text in OUTER:
        inner = data.sql(text, epsilon=1).query.rows.sql("duckdb")
        outcomes = {}
        for one, two in pairs:
            # As the engine's own views do: the unit's key is carried along.
            own = f"(SELECT *, u AS _unit FROM of_{one}_{two}"
            views = ", ".join(f'"{name}" AS {own}.{name})' for name in "ts")
            listed = f"WITH {views} SELECT * FROM ({inner}) AS q ORDER BY ALL"
            rows = connection.execute(listed).fetchall()
            assert all(row[0] in {1, 2} for row in rows), text
            for unit, place in ((1, one), (2, two)):
                mine = [row[1:] for row in rows if row[0] == unit]
                assert mine == outcomes.setdefault(place, mine), text
        assert len({str(rows) for rows in outcomes.values()}) > 1, text
