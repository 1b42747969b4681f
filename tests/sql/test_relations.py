"""Relations: what each rule makes of rows; refusals where it is unclear to which unit the rows belong."""

import duckdb
import pytest

import hubbub as hb
from hubbub.engines.duckdb import DuckDB
from hubbub.engines.engine import TableSource
from hubbub.errors import InvalidInput, Refused, Unsupported
from internals import connection_of
from refusing import refused

VISITS = [
    (1, "a", 10.0), (1, "a", 20.0), (1, "b", 30.0), (2, "a", 40.0), (2, None, 50.0), (3, "c", None),
    (None, "a", 60.0),
]  # fmt: skip
PEOPLE = [(1, 30.0), (2, 40.0), (4, 50.0), (None, 60.0)]
TOWNS = [("a", "Aarau"), ("a", "Aigle"), ("b", "Bern"), (None, "nowhere")]


@pytest.fixture(scope="module")
def connection():
    database = duckdb.connect()
    database.execute("CREATE TABLE visits (person BIGINT, g VARCHAR, cost DOUBLE)")
    database.execute("CREATE TABLE people (person BIGINT, age DOUBLE)")
    database.execute("CREATE TABLE towns (g VARCHAR, town VARCHAR)")
    database.executemany("INSERT INTO visits VALUES (?, ?, ?)", VISITS)
    database.executemany("INSERT INTO people VALUES (?, ?)", PEOPLE)
    database.executemany("INSERT INTO towns VALUES (?, ?)", TOWNS)
    return database


def open_data(connection, unit):
    from hubbub.accounting.in_memory_account import InMemoryAccount
    from hubbub.dataset import Dataset

    sources = {name: TableSource(name, unit=unit.key) for name in ("visits", "people")}
    return Dataset(
        DuckDB({**sources, "towns": TableSource("towns", is_public=True)}, connection),
        unit,
        InMemoryAccount(),
    )


@pytest.fixture(scope="module")
def data(connection):
    return open_data(connection, hb.Unit("person"))


@pytest.fixture(scope="module")
def rows(connection):
    return open_data(connection, hb.Unit.row())


# What comes out, counted exactly: no unit is above its limit, and the noise is a millionth of a row.

COUNTED = {
    "visits": 6,
    "visits WHERE cost > 15": 4,
    "visits AS v WHERE v.g IS NULL": 1,
    "visits JOIN towns USING (g)": 7,
    "visits JOIN towns ON visits.g = towns.g": 7,
    "visits, towns": 24,
    "visits CROSS JOIN towns": 24,
    "towns JOIN visits ON visits.g = towns.g AND cost > 15": 5,
    "visits LEFT JOIN towns ON visits.g = towns.g": 9,
    "visits JOIN people ON visits.person = people.person": 5,
    "people JOIN visits USING (person)": 5,
    "visits JOIN people ON people.person = visits.person AND age > 35": 2,
    "visits LEFT JOIN people ON visits.person = people.person": 6,
    "visits AS v JOIN visits AS w ON v.person = w.person": 14,
    "visits FULL JOIN people USING (person)": 7,
    "visits FULL JOIN people ON visits.person = people.person AND age > 35": 8,
    "visits RIGHT JOIN people USING (person)": 6,
    "visits RIGHT JOIN people ON visits.person = people.person AND cost > 15": 5,
    "towns RIGHT JOIN visits ON towns.g = visits.g": 9,
    "visits JOIN people USING (person) JOIN towns ON towns.g = visits.g": 7,
    "(SELECT * FROM visits) AS q": 6,
    "(SELECT DISTINCT person, g FROM visits) AS q": 5,
    "(SELECT person, COUNT(*) AS n FROM visits GROUP BY person) AS q": 3,
    "(SELECT person, COUNT(*) AS n FROM visits GROUP BY person) AS q WHERE n > 1": 2,
    "(SELECT person AS p, g AS h, MAX(cost) AS m FROM visits GROUP BY 1, h) AS q": 5,
    "(SELECT person, cost FROM visits UNION ALL SELECT person, age FROM people) AS q": 9,
    "(SELECT q.person FROM (SELECT person FROM visits) AS q JOIN people ON q.person = people.person) AS z": 5,
}


@pytest.mark.sweep(7)
@pytest.mark.slow
@pytest.mark.parametrize("source", COUNTED)
def test_relation_has_the_rows_of_sql(data, source):
    plan = data.sql(
        f"SELECT COUNT(*) AS n FROM {source}", epsilon=10**6, rows_per_unit=100, allow_large_epsilon=True
    )
    assert plan.run().value["n"] == [pytest.approx(COUNTED[source], abs=0.01)]


@pytest.mark.slow
def test_with_clause_equals_its_subquery(data):
    first = "WITH v AS (SELECT * FROM visits WHERE cost > 15), w AS (SELECT person FROM v)"
    text = f"{first} SELECT COUNT(*) AS n FROM w"
    assert data.sql(text, epsilon=10**6, rows_per_unit=9, allow_large_epsilon=True).run().value["n"] == [
        pytest.approx(4, abs=0.01)
    ]
    text = "WITH visits AS (SELECT * FROM visits WHERE g = 'b') SELECT COUNT(*) AS n FROM visits"
    assert data.sql(text, epsilon=10**6, rows_per_unit=9, allow_large_epsilon=True).run().value["n"] == [
        pytest.approx(1, abs=0.01)
    ]


@pytest.mark.slow
def test_key_from_a_left_join_may_be_null(data):
    source = "people LEFT JOIN visits AS v ON people.person = v.person"
    text = f"SELECT COUNT(v.person) AS n, COUNT(DISTINCT people.person) AS m FROM {source}"
    result = data.sql(text, epsilon=10**6, rows_per_unit=100, allow_large_epsilon=True).run().value
    assert (result["n"], result["m"]) == ([pytest.approx(5, abs=0.01)], [pytest.approx(3, abs=0.01)])


def test_rows_that_are_units_may_be_multiplied_by_a_public_table(rows):
    text = "SELECT COUNT(*) AS n FROM visits JOIN towns USING (g)"
    result = rows.sql(text, epsilon=10**6, rows_per_unit=2, allow_large_epsilon=True).run().value
    assert result["n"] == [pytest.approx(9, abs=0.01)]


# What is refused, and why

REFUSED = {
    "keeps the rows of a public table": "towns LEFT JOIN visits ON towns.g = visits.g",
    "keeps the rows of a public": "visits RIGHT JOIN towns ON towns.g = visits.g",
    "keeps the rows of a": "visits JOIN people USING (person) RIGHT JOIN towns ON towns.g = visits.g",
    "keeps the rows of": "visits FULL OUTER JOIN towns ON towns.g = visits.g",
    "keeps the rows": "towns FULL OUTER JOIN visits ON towns.g = visits.g",
    "follows a comma": "people AS a, visits RIGHT JOIN people ON people.person = visits.person",
    "is not on equal columns": "visits FULL JOIN people ON visits.person = people.person AND cost > age",
    "a ANTI join": "visits ANTI JOIN towns ON towns.g = visits.g",
    "a SEMI join": "visits SEMI JOIN people ON people.person = visits.person",
    "not on the unit's key": "visits AS v JOIN visits AS w ON v.g = w.g",
    "not on the unit's key, ": "visits JOIN people ON visits.person = people.person OR cost > 1",
    "not on the unit's key, or": "visits, people",
    "not on the unit's": "visits JOIN people ON visits.person < people.person",
    "UNION without ALL": "(SELECT g FROM visits UNION SELECT g FROM visits) AS q",
    "LIMIT in a sub-query": "(SELECT * FROM visits LIMIT 3) AS q",
    "ORDER BY in a sub-query|LIMIT": "(SELECT * FROM visits ORDER BY cost LIMIT 3) AS q",
    "QUALIFY in a sub-query": "(SELECT * FROM visits QUALIFY row_number() OVER () < 3) AS q",
    "HAVING in a sub-query": "(SELECT person FROM visits GROUP BY person HAVING COUNT(*) > g) AS q",
    "goes over rows of several units": "(SELECT g, cost FROM visits GROUP BY g) AS q",
    "a window goes over rows": "(SELECT person, RANK() OVER (ORDER BY cost) AS r FROM visits) AS q",
    "no protected table": "towns",
}


@pytest.mark.parametrize("why", REFUSED)
def test_mixing_units_is_refused(data, why):
    with refused(Refused, match=why.rstrip(" ,")):
        data.sql(f"SELECT COUNT(*) AS n FROM {REFUSED[why]}", epsilon=1)


@pytest.mark.parametrize(
    "source",
    [
        "visits AS v (a, b, c)", "(SELECT * FROM visits) AS q (g, person, c)", "visits TABLESAMPLE 10%",
        "read_csv('x.csv')", "'x.parquet'", "information_schema.tables", "duckdb_settings()", "range(10)",
        "other.nothing", "(VALUES (1)) AS q", "(SELECT 1) AS q", "visits ASOF JOIN people USING (person)",
        "visits NATURAL JOIN towns AS w (a)", "(FROM visits EXCEPT SELECT * FROM visits) AS q",
        "visits JOIN LATERAL (SELECT 1)",
        "(SELECT * EXCLUDE (g) FROM visits) AS q", "(SELECT person, person FROM visits) AS q",
        "(SELECT person AS _unit FROM visits) AS q", "(SELECT cost + 1 FROM visits) AS q", "visits, visits",
        "(SELECT person, STDDEV(cost) AS s FROM visits GROUP BY person) AS q",
        "(SELECT person, COUNT(person, g) AS s FROM visits GROUP BY person) AS q",
        "(SELECT person, SUM(DISTINCT cost) AS s FROM visits GROUP BY person) AS q",
        "(SELECT person, g, COUNT(*) AS n FROM visits GROUP BY person) AS q",
        "(SELECT person, cost FROM visits UNION ALL SELECT person FROM people) AS q",
        "(SELECT person, g FROM visits UNION ALL SELECT person, age FROM people) AS q",
        "(SELECT g FROM visits UNION ALL SELECT g FROM towns) AS q",
        "(SELECT _unit FROM visits) AS q", "visits PIVOT (SUM(cost) FOR g IN ('a'))",
    ],
)  # fmt: skip
def test_unknown_names_are_refused(data, source):
    with refused((Unsupported, InvalidInput, Refused)):
        data.sql(f"SELECT COUNT(*) AS n FROM {source}", epsilon=1)


@pytest.mark.parametrize(
    "source",
    [
        "(SELECT person, COUNT(DISTINCT o) AS n FROM odd GROUP BY person) AS q",
        "(SELECT person, o, COUNT(*) AS n FROM odd GROUP BY person, o) AS q",
        "(SELECT DISTINCT person, o FROM odd) AS q", "odd WHERE NULLIF(o, NULL) IS NULL",
    ],
)  # fmt: skip
def test_a_column_of_an_unknown_type_is_not_compared(source):
    """Whether two values are equal is its type's own affair, and may fail."""
    connection = duckdb.connect()
    connection.execute("CREATE TABLE odd AS SELECT 1 AS person, {'a': 1} AS o")
    data = hb.open(connection, table="odd", unit="person", rows_per_unit=1)
    with refused(InvalidInput, match="unknown type"):
        data.sql(f"SELECT COUNT(*) AS n FROM {source}", epsilon=1)
    assert not data.account.receipts


@pytest.mark.slow
def test_a_unit_of_an_unknown_type_is_grouped_by():
    connection = duckdb.connect()
    connection.execute("CREATE TABLE odd AS SELECT uuid() AS person, i AS x FROM range(100) r(i)")
    data = hb.open(connection, table="odd", unit="person", rows_per_unit=1)
    for source in (
        "SELECT person, COUNT(*) AS n FROM odd GROUP BY person",
        "SELECT DISTINCT person FROM odd",
    ):
        plan = data.sql(f"SELECT COUNT(*) AS n FROM ({source}) AS q", epsilon=100, allow_large_epsilon=True)
        assert round(data.run(plan).value["n"][0]) == 100


def test_a_with_cannot_rename_columns_or_call_itself(data):
    with refused(Unsupported, match="renamed"):
        data.sql("WITH v (g) AS (SELECT person, g FROM visits) SELECT COUNT(*) AS n FROM v", epsilon=1)
    with refused(Refused, match="recursive"):
        data.sql(
            "WITH RECURSIVE v AS (SELECT * FROM visits UNION ALL SELECT * FROM v) SELECT COUNT(*) FROM v",
            epsilon=1,
        )


TWICE = (
    "(SELECT * FROM visits UNION ALL SELECT * FROM visits) AS q",
    "visits JOIN people ON visits.person = people.person",
    "c UNION ALL c",
)


@pytest.mark.parametrize("source", TWICE)
def test_a_row_that_is_a_unit_comes_in_once(rows, source):
    """In a WITH that is named twice, too: there it once counted twice, at the price of one."""
    text = f"SELECT COUNT(*) AS n FROM {source}"
    if source == "c UNION ALL c":
        inner = "(SELECT * FROM c UNION ALL SELECT * FROM c) AS q"
        text = f"WITH c AS (SELECT * FROM visits) SELECT COUNT(*) AS n FROM {inner}"
    with refused(Refused, match="more than once"):
        rows.sql(text, epsilon=1)


def test_a_row_that_is_a_unit_is_not_aggregated_or_made_distinct(rows):
    for source in (
        "(SELECT DISTINCT person, g FROM visits) AS q",
        "(SELECT DISTINCT g, cost FROM visits) AS q",
    ):
        with refused(Refused, match="several units"):
            rows.sql(f"SELECT COUNT(*) AS n FROM {source}", epsilon=1)


@pytest.mark.long
def test_exponentially_growing_with_is_refused(data):
    parts = ["c0 AS (SELECT * FROM visits)"]
    parts += [f"c{i} AS (SELECT * FROM c{i - 1} UNION ALL SELECT * FROM c{i - 1})" for i in range(1, 40)]
    with refused(Unsupported, match="200 times"):
        data.sql(f"WITH {', '.join(parts)} SELECT COUNT(*) AS n FROM c39", epsilon=1)


def test_queries_about_single_people_are_refused(data):
    for text, why in {
        "SELECT person, COUNT(*) AS n FROM visits GROUP BY person": "one person",
        "SELECT * FROM visits": "rows themselves",
        "SELECT cost FROM visits": "single rows",
        "SELECT g, COUNT(*) AS n FROM visits GROUP BY g ORDER BY cost": "single rows",
        "SELECT g, COUNT(*) AS n FROM visits GROUP BY g HAVING cost > 1": "single rows",
        "SELECT COUNT(*) OVER () AS n FROM visits": "other units",
        "SELECT (SELECT COUNT(*) FROM visits) AS n FROM visits": "",
    }.items():
        with refused((Refused, Unsupported)) as caught:
            data.sql(text, epsilon=1, delta=1e-6)
        assert why in caught.value.why


# The engine's side


@pytest.mark.slow
def test_units_of_different_types_are_refused():
    connection = duckdb.connect()
    connection.execute("CREATE TABLE a AS SELECT 1::BIGINT AS u; CREATE TABLE b AS SELECT 'one' AS u")
    connection.execute("CREATE TABLE c AS SELECT 2::INTEGER AS u")
    with refused(InvalidInput, match="unit's column"):
        DuckDB({name: TableSource(name, unit="u") for name in "ab"}, connection)
    DuckDB({name: TableSource(name, unit="u") for name in "ac"}, connection)


@pytest.mark.slow
def test_texts_are_equal_if_their_bytes_are():
    connection = duckdb.connect()
    connection.execute("CREATE TABLE t (u VARCHAR COLLATE NOCASE, g VARCHAR COLLATE NOCASE)")
    connection.execute("INSERT INTO t VALUES ('a', 'x'), ('A', 'X'), ('b', 'x')")
    data = hb.open(connection, table="t", unit="u", rows_per_unit=2)
    text = "SELECT COUNT(DISTINCT u) AS n, COUNT(DISTINCT g) AS m FROM t"
    result = data.sql(text, epsilon=1000, allow_large_epsilon=True).run().value
    assert (result["n"], result["m"]) == ([pytest.approx(3, abs=0.1)], [pytest.approx(2, abs=0.1)])
    connection.execute("SET default_collation = 'NOCASE'")
    with refused(InvalidInput, match="collation"):
        hb.open(connection, table="t", unit="u")


def test_units_beyond_doubles_stay_apart():
    connection = duckdb.connect()
    connection.execute("CREATE TABLE t AS SELECT 9007199254740992 + i AS u FROM range(4) r(i)")
    data = hb.open(connection, table="t", unit="u")
    result = (
        data.sql("SELECT COUNT(DISTINCT u) AS n FROM t", epsilon=1000, allow_large_epsilon=True)
        .run()
        .value["n"]
    )
    assert result == [pytest.approx(4, abs=0.1)]


@pytest.mark.slow
def test_one_value_does_not_choose_the_type_of_a_column():
    pandas = pytest.importorskip("pandas")
    kinds = set()
    for odd in (3, "x", b"\xff", None, 2.5, {"a": 1}):
        frame = pandas.DataFrame({"u": [1, 2, 3], "x": pandas.Series([1, 2, odd], dtype=object)})
        data = hb.open(frame, unit="u", rows_per_unit=1)
        kinds.add(data.tables["data"].find("x").kind)
        data.sql("SELECT COUNT(x) AS n FROM data", epsilon=1).run()
    assert len(kinds) == 1


@pytest.mark.parametrize(
    "odd", [b"3,\xff\xfe\n", b'3,"abc\n4,5\n', b"3,4,5,6\n", b"3\n", b"3,\0\n", b"\n\n", b"3,1e999\r4"]
)
def test_no_line_of_a_csv_file_stops_it_from_being_read(tmp_path, odd):
    path = tmp_path / "t.csv"
    path.write_bytes(b"u,x\n1,2\n2,3\n" + odd)
    data = hb.open(str(path), unit="u", types={"x": "number"}, bounds={"x": (0, 9)}, rows_per_unit=1)
    data.sql("SELECT SUM(x) AS n FROM t", epsilon=1).run()


def test_a_plan_runs_only_where_it_was_made(data, rows):
    plan = rows.sql("SELECT COUNT(*) AS n FROM visits", epsilon=1)
    with refused(InvalidInput, match="another"):
        data.run(plan)
    other = open_data(connection_of(data).cursor(), data.unit)
    with refused(InvalidInput, match="another"):
        other.run(data.sql("SELECT COUNT(*) AS n FROM visits", epsilon=1, rows_per_unit=1))


def test_unrunnable_plan_is_refused_before_the_charge(data):
    many = [str(i) for i in range(5000)]
    for text, how in {
        "SELECT g, g || 'x' AS h, COUNT(*) AS n FROM visits GROUP BY g, h": {"keys": {"g": many, "h": many}},
        "SELECT SUM(cost) AS n FROM visits": {"bounds": {"cost": (0, 1)}, "rows_per_unit": 2**20 - 1},
    }.items():
        with refused(Unsupported):
            data.sql(text, epsilon=1, **how)


def test_largest_groups_are_ranked_by_the_given_count(data):
    text = "SELECT g FROM visits GROUP BY g ORDER BY COUNT(*) FILTER (WHERE cost > 25) DESC LIMIT 1"
    plan = data.sql(text, epsilon=10**6, keys={"g": ["a", "b"]}, rows_per_unit=9, allow_large_epsilon=True)
    assert plan.query.is_top
    text = "SELECT g FROM visits GROUP BY g ORDER BY COUNT(*) FILTER (WHERE cost = 30) DESC LIMIT 1"
    assert data.sql(
        text, epsilon=10**6, keys={"g": ["a", "b"]}, rows_per_unit=9, allow_large_epsilon=True
    ).run().value["g"] == ["b"]
