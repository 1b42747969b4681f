"""Two walls: what is not on the list is refused before anything runs, and the engine is locked besides."""

import duckdb
import pytest

import hubbub as hb
from internals import connection_of

OTHER = "another.csv"
BEYOND = {
    "read_csv": "SELECT COUNT(*) FROM read_csv('{secret}')",
    "read_csv_auto": "SELECT COUNT(*) FROM read_csv_auto('{secret}')",
    "read_text": "SELECT COUNT(content) FROM read_text('{secret}')",
    "read_blob": "SELECT COUNT(content) FROM read_blob('{secret}')",
    "read_json": "SELECT COUNT(*) FROM read_json('{secret}')",
    "a file as a table": "SELECT COUNT(*) FROM '{secret}'",
    "a file as a quoted table": 'SELECT COUNT(*) FROM "{secret}"',
    "glob": "SELECT COUNT(*) FROM glob('{folder}/*')",
    "sniff_csv": "SELECT COUNT(*) FROM sniff_csv('{secret}')",
    "another parquet": "SELECT COUNT(*) FROM read_parquet('{folder}/other.parquet')",
    "metadata of another": "SELECT COUNT(*) FROM parquet_metadata('{folder}/other.parquet')",
    "ATTACH": "ATTACH '{folder}/other.db' AS other",
    "COPY out": "COPY visits TO '{folder}/out.csv'",
    "COPY in": "COPY visits FROM '{secret}'",
    "COPY a query": "COPY (SELECT 1) TO '{folder}/out.parquet'",
    "EXPORT": "EXPORT DATABASE '{folder}/out'",
    "IMPORT": "IMPORT DATABASE '{folder}/out'",
    "INSTALL": "INSTALL httpfs",
    "LOAD": "LOAD httpfs",
    "SET": "SET enable_external_access = true",
    "SET paths": "SET allowed_paths = ['{secret}']",
    "RESET": "RESET lock_configuration",
    "PRAGMA that sets": "PRAGMA enable_profiling",
    "the network": "SELECT COUNT(*) FROM read_parquet('https://localhost:1/x.parquet')",
    "a variable of Python": "SELECT COUNT(*) FROM a_frame_in_scope",
    "getenv": "SELECT getenv('HOME') FROM visits",
    "a sub-query of a file": "SELECT COUNT(*) FROM visits WHERE cost IN (SELECT * FROM read_csv('{secret}'))",
    "a join with a file": "SELECT COUNT(*) FROM visits JOIN read_csv('{secret}') AS f ON true",
}
"""What neither wall lets through."""

INSIDE = {
    "metadata": "SELECT SUM(num_values) FROM parquet_metadata('{visits}')",
    "file metadata": "SELECT num_rows FROM parquet_file_metadata('{visits}')",
    "schema": "SELECT COUNT(*) FROM parquet_schema('{visits}')",
    "the file itself": "SELECT COUNT(*) FROM '{visits}'",
    "read_parquet": "SELECT COUNT(*) FROM read_parquet('{visits}')",
    "duckdb_tables": "SELECT COUNT(*) FROM duckdb_tables()",
    "duckdb_settings": "SELECT COUNT(*) FROM duckdb_settings()",
    "duckdb_views": "SELECT sql FROM duckdb_views()",
    "duckdb_columns": "SELECT COUNT(*) FROM duckdb_columns()",
    "duckdb_secrets": "SELECT COUNT(*) FROM duckdb_secrets()",
    "information_schema": "SELECT COUNT(*) FROM information_schema.tables",
    "sqlite_master": "SELECT COUNT(*) FROM sqlite_master",
    "pg_catalog": "SELECT COUNT(*) FROM pg_catalog.pg_class",
    "current_setting": "SELECT COUNT(current_setting('allowed_paths')) FROM visits",
    "version": "SELECT version(), COUNT(*) FROM visits",
    "clock": "SELECT COUNT(*) FROM visits WHERE transaction_timestamp() > '2024-01-01'",
    "random": "SELECT SUM(random()) FROM visits",
    "nextval": "SELECT nextval('s') FROM visits",
    "row numbers": "SELECT SUM(rowid) FROM visits",
    "file names": "SELECT filename, COUNT(*) FROM visits GROUP BY filename",
    "range": "SELECT COUNT(*) FROM range(10)",
    "unnest": "SELECT COUNT(*) FROM visits, UNNEST([1, 2]) AS u(x)",
    "values": "SELECT COUNT(*) FROM (VALUES (1)) AS v(x)",
    "CALL": "CALL pragma_table_info('visits')",
    "PRAGMA": "PRAGMA table_info('visits')",
    "SHOW": "SHOW TABLES",
    "DESCRIBE": "DESCRIBE visits",
    "SUMMARIZE": "SUMMARIZE visits",
    "EXPLAIN ANALYZE": "EXPLAIN ANALYZE SELECT COUNT(*) FROM visits",
    "CREATE": "CREATE TABLE t AS SELECT * FROM visits",
    "INSERT": "INSERT INTO visits VALUES (1)",
    "DELETE": "DELETE FROM visits",
    "DROP": "DROP VIEW visits",
    "two statements": "SELECT COUNT(*) FROM visits; DROP VIEW visits",
    "list": "SELECT list(cost) FROM visits",
    "string_agg": "SELECT string_agg(region, ',') FROM visits",
    "first": "SELECT first(cost) FROM visits",
    "arg_max": "SELECT arg_max(region, cost) FROM visits",
    "histogram": "SELECT histogram(cost) FROM visits",
    "error": "SELECT COUNT(error('x')) FROM visits",
    "hash": "SELECT SUM(hash(region)) FROM visits",
    "rows": "SELECT * FROM visits",
    "a column": "SELECT cost FROM visits",
    "by the unit": "SELECT patient, COUNT(*) FROM visits GROUP BY patient",
    "a window": "SELECT SUM(cost) OVER () FROM visits",
    "a scalar sub-query": "SELECT COUNT(*) FROM visits WHERE cost > (SELECT AVG(cost) FROM visits)",
    "except": "SELECT COUNT(*) FROM (SELECT region FROM visits EXCEPT SELECT region FROM visits) AS e",
    "the other's view": 'SELECT COUNT(*) FROM "_raw_visits"',
    "a schema": "SELECT COUNT(*) FROM temp.visits",
    "our keys": "SELECT COUNT(*) FROM _keys0",
}
"""What a locked engine would still answer: the first wall alone carries these."""


@pytest.fixture(scope="module")
def paths(tmp_path_factory):
    tmp_path = tmp_path_factory.mktemp("walls")
    (tmp_path / OTHER).write_text("a\n1\n")
    for name in ("visits", "other"):
        duckdb.connect().execute(
            "COPY (SELECT 1 AS patient, 'a' AS region, 2.0 AS cost) TO '"
            + str(tmp_path / f"{name}.parquet")
            + "'"
        )
    return {"folder": tmp_path, "secret": tmp_path / OTHER, "visits": tmp_path / "visits.parquet"}


@pytest.fixture(scope="module")
def data(paths):
    with hb.open(paths["visits"], unit="patient", bounds={"cost": (0, 9)}, rows_per_unit=1) as dataset:
        yield dataset


@pytest.mark.parametrize("name", [*BEYOND, *INSIDE])
def test_the_front_end_refuses(name, data, paths):
    with pytest.raises(hb.HubbubError):
        data.sql({**BEYOND, **INSIDE}[name].format(**paths), epsilon=1, delta=1e-6)
    assert not data.account.receipts


@pytest.mark.parametrize("name", BEYOND)
def test_the_engine_is_locked(name, data, paths):
    a_frame_in_scope = {"x": [1]}
    with pytest.raises(duckdb.Error):
        connection_of(data).execute(BEYOND[name].format(**paths)).fetchall()
    del a_frame_in_scope
    there = sorted(path.name for path in paths["folder"].iterdir())
    assert there == [OTHER, "other.parquet", "visits.parquet"]


HOSTILE_NAMES = [
    'a"b', "a'b", "a; DROP VIEW visits; --", 'x" FROM visits; --', "a\\b", "a b", "é🙂", "SELECT", "a.b",
    "a)--", "/*", "$1", "?", "%s", "{0}", "_rows", "k0", "\u202e", "count(*)",
]  # fmt: skip


@pytest.mark.sweep(5)
@pytest.mark.parametrize("name", HOSTILE_NAMES)
def test_columns_tables_files_and_keys_may_have_any_name(name, tmp_path):
    """A column, a table, a file and a key of any name are just that."""
    quoted = '"' + name.replace('"', '""') + '"'
    source = duckdb.connect()
    source.execute(f"CREATE TABLE t (patient BIGINT, {quoted} VARCHAR, x DOUBLE)")
    source.executemany(
        "INSERT INTO t VALUES (?, ?, ?)", [(i, name if i % 2 else "other", 1) for i in range(100)]
    )
    path = tmp_path / (name.replace("/", "-").replace("*", "-").replace("?", "-") + ".parquet")
    source.execute("COPY t TO '" + str(path).replace("'", "''") + "' (FORMAT parquet)")
    data = hb.open(
        path, table=name, unit="patient", keys={name: [name, "other"]}, bounds={"x": (0, 1)}, rows_per_unit=1
    )
    text = f'SELECT {quoted}, COUNT(*) AS n, SUM(x) AS {quoted[:-1]}s" FROM {quoted} GROUP BY {quoted}'
    answers = data.run(data.sql(text, epsilon=10_000, allow_large_epsilon=True)).value
    assert answers[name] == [name, "other"]
    assert [round(n) for n in answers["n"]] == [50, 50]
    literal = "'" + name.replace("'", "''") + "'"
    one = data.sql(
        f"SELECT COUNT(*) AS n FROM {quoted} WHERE {quoted} = {literal}",
        epsilon=10_000,
        allow_large_epsilon=True,
    )
    assert round(data.run(one).value["n"][0]) == 50


NO_BOUNDS = [("0", "1"), (0, "1; DROP"), (0, float("nan")), (0, float("inf")), (1, 0), (0,)]
NO_BOUNDS += ["01", (0, None), (0, 10**400)]


@pytest.mark.parametrize("bounds", NO_BOUNDS)
def test_bounds_must_be_numbers(bounds, data):
    with pytest.raises(hb.HubbubError):
        data.sql("SELECT SUM(cost) FROM visits", epsilon=1, bounds={"cost": bounds})


@pytest.mark.parametrize("keys", ["a", [["a"]], [1], [b"a"], ["a", "a"], [], [object()], {"a": 1}.items()])
def test_keys_of_another_type_are_refused(keys, data):
    with pytest.raises(hb.HubbubError):
        data.sql("SELECT region, COUNT(*) FROM visits GROUP BY region", epsilon=1, keys={"region": keys})


def test_a_pattern_in_the_name_of_a_file_is_refused(tmp_path):
    """The engine would read the files that it matches, or the same rows twice."""
    for name in ("a*.csv", "ab.csv"):
        (tmp_path / name).write_text("patient\n1\n")
    with pytest.raises(hb.InvalidInput, match="pattern"):
        hb.open(tmp_path / "a*.csv", unit=hb.Unit.row())


def test_file_named_twice_is_read_once(tmp_path):
    (tmp_path / "a1.csv").write_text("patient\n1\n")
    (tmp_path / "a2.csv").symlink_to(tmp_path / "a1.csv")
    data = hb.open(tmp_path / "a?.csv", table="a", unit=hb.Unit.row())
    assert (
        round(
            data.run(data.sql("SELECT COUNT(*) AS n FROM a", epsilon=1000, allow_large_epsilon=True)).value[
                "n"
            ][0]
        )
        == 1
    )
