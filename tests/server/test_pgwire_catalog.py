"""The catalogs answer what drivers ask as a real PostgreSQL 15 does, and hold nothing but what is declared.

`driver_queries.json` has the queries with PostgreSQL's answers; `driver_queries.py` writes it.
"""

import json
from pathlib import Path

import pytest

from hubbub.engines.schema import Kind
from hubbub.server.pgwire.catalog import Catalog, catalog_columns
from hubbub.server.pgwire.catalog_sql import read_catalog_query
from hubbub.server.pgwire.messages import WireError
from hubbub.server.service_types import ColumnDescription, TableDescription

QUERIES = json.loads(Path(__file__).with_name("driver_queries.json").read_text())
TABLE = TableDescription(
    "visits",
    (
        ColumnDescription("patient", Kind.TEXT, is_unit=True),
        ColumnDescription("region", Kind.TEXT),
        ColumnDescription("age", Kind.NUMBER),
        ColumnDescription("cost", Kind.NUMBER),
    ),
)
CONSTANTS = {
    **dict.fromkeys(("current_user", "session_user", "user"), "postgres"),
    **dict.fromkeys(("current_database", "current_catalog"), "postgres"),
    **dict.fromkeys(("version", "current_version"), "PostgreSQL 15.18"),
    "current_schema": "public",
    "pg_backend_pid": 1,
    "settings": {"server_version_num": "150018", "default_table_access_method": "heap"},
}


SETTINGS = {"standard_conforming_strings": "on", "max_index_keys": "32"}
LIVE = {
    "pg_catalog.pg_settings": lambda: (
        [("name", "VARCHAR"), ("setting", "VARCHAR")],
        [list(each) for each in SETTINGS.items()],
    )
}
"""Relations that the service makes for whoever asks."""
OTHERWISE = {
    "pg_database": "only datasets with a role of the user",
    "pg_extension": "no extensions",
    "pg_roles": "nobody but the user",
    "version()": "another version text",
    "nspacl": "no privileges, no pg_toast",
    "n.oid, n.*": "no privileges, no pg_toast",
    "attrelid,\n    attname": "neither system columns nor indexes",
    "c.reloptions ||": "NULL for no options",
}
"""Parts of queries that are answered otherwise on purpose, and why; their columns are the same."""
OWNERS = {"postgres": "hubbub", "pg_database_owner": "hubbub"}


@pytest.fixture(scope="module")
def catalog():
    return Catalog("postgres", [TABLE], "patient")


def ask(catalog, sql):
    tree = read_catalog_query(sql, catalog.tables, frozenset(catalog_columns()))
    assert tree is not None, "taken for a question"
    columns, rows = catalog.execute(tree, LIVE, CONSTANTS)
    return [column.name for column in columns], [[plain(value) for value in row] for row in rows]


def plain(value):
    if isinstance(value, (list, tuple)):
        return [plain(each) for each in value]
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)


def normal(rows, sql):
    """Rows with one owner, in an order of their own where the query states none."""
    out = [[OWNERS.get(value, value) if isinstance(value, str) else value for value in row] for row in rows]
    return out if "order by" in sql.lower() else sorted(out, key=repr)


@pytest.mark.sweep(7)
@pytest.mark.parametrize("place", range(len(QUERIES)))
def test_drivers_see_what_postgresql_tells(catalog, place):
    expected = QUERIES[place]
    sql = expected["sql"]

    columns, rows = ask(catalog, sql)

    assert columns == expected["columns"]
    if any(part in sql for part in OTHERWISE):
        return
    if isinstance(expected["rows"], int):
        assert len(rows) == expected["rows"]
    else:
        assert normal(rows, sql) == normal(expected["rows"], sql)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM read_csv('/etc/passwd')",
        "SELECT * FROM read_text('/etc/passwd')",
        "SELECT * FROM read_parquet('x.parquet')",
        "SELECT * FROM glob('/*')",
        "SELECT * FROM pg_read_file('/etc/passwd')",
        "SELECT pg_read_file('/etc/passwd')",
        "SELECT getenv('HOME')",
        "SELECT * FROM duckdb_settings()",
        "SELECT * FROM query('SELECT 1')",
        "SELECT query('SELECT 1')",
        "SELECT pg_sleep(100)",
        "SELECT lo_import('/etc/passwd')",
        "SELECT nextval('a')",
        "SELECT hub_last('a')",
        "SELECT 1 INTO t",
        "SELECT 1 FROM pg_class FOR UPDATE",
    ],
)
def test_functions_and_files_beyond_the_catalogs_are_refused(catalog, sql):
    tree = read_catalog_query(sql, catalog.tables, frozenset(catalog_columns()))
    if tree is None:
        return  # a question, which the planner refuses
    with pytest.raises(WireError) as refusal:
        catalog.execute(tree, {}, CONSTANTS)
    assert refusal.value.code in {"0A000", "42883"}


@pytest.mark.parametrize(
    "sql", ["SELECT * FROM '/etc/passwd'", 'SELECT * FROM "/etc/passwd"', "SELECT * FROM visits"]
)
def test_other_relations_are_questions(catalog, sql):
    assert read_catalog_query(sql, catalog.tables, frozenset(catalog_columns())) is None


@pytest.mark.slow
def test_answers_have_a_limit(catalog):
    sql = "SELECT a.oid FROM pg_proc a, pg_proc b"
    tree = read_catalog_query(sql, catalog.tables, frozenset(catalog_columns()))
    with pytest.raises(WireError) as refusal:
        catalog.execute(tree, {}, CONSTANTS)
    assert refusal.value.code == "54000"


def test_catalogs_have_no_statistics_of_rows(catalog):
    (row,) = ask(catalog, "SELECT reltuples, relpages FROM pg_class WHERE relname = 'visits'")[1]
    assert row == [-1, 0]
    assert ask(catalog, "SELECT pg_relation_size('visits'::regclass)")[1] == [[0]]
    for relation in ("pg_statistic", "pg_stats", "pg_stat_user_tables", "pg_stat_activity"):
        assert ask(catalog, f"SELECT * FROM {relation}")[1] == []
