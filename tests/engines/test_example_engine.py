"""The engine of docs/engines.md gives the integers that DuckDB gives, and fits on a page."""

import re
from pathlib import Path

import duckdb
import pytest

import hubbub as hb
from engines.example_engine import ExampleEngine
from hubbub.accounting.in_memory_account import InMemoryAccount
from hubbub.engines.duckdb import DuckDB
from hubbub.engines.engine import TableSource
from hubbub.errors import EngineFailed, InvalidInput

QUERIES = (
    "SELECT COUNT(*) AS n, SUM(cost) AS s FROM visits",
    "SELECT region, COUNT(*) AS n, AVG(cost) AS m FROM visits GROUP BY region",
    "SELECT region, COUNT(DISTINCT patient) AS n FROM visits WHERE cost > 20 GROUP BY region",
    "SELECT MEDIAN(cost) AS m FROM visits",
)


@pytest.fixture
def connection():
    with duckdb.connect() as database:
        database.execute(
            "CREATE TABLE visits AS SELECT i % 300 AS patient, (i * 7919 % 1000) / 10.0::DOUBLE AS cost, "
            "['North', 'South', 'East'][1 + i % 3] AS region FROM range(2000) r(i)"
        )
        database.execute(
            "INSERT INTO visits "
            "VALUES (1, 'nan'::DOUBLE, 'North'), (2, 'inf'::DOUBLE, NULL), (NULL, 5, 'East')"
        )
        yield database


def dataset(engine):
    unit = hb.Unit("patient")
    return hb.Dataset(engine, unit, InMemoryAccount(None, unit))


def source():
    return {
        "visits": TableSource(
            "visits", unit="patient", bounds={"cost": (0, 100)}, keys={"region": ["North", "South", "East"]}
        )
    }


@pytest.mark.sweep(3)
@pytest.mark.parametrize("sql", QUERIES)
def test_example_gives_the_integers_of_duckdb(connection, sql):
    answers = []
    for engine in (ExampleEngine(connection, source()), DuckDB(source(), connection)):
        data = dataset(engine)
        exact = data.exact(data.sql(sql, epsilon=1, rows_per_unit=5))
        answers.append([list(exact[column.name]) for column in exact.columns])
    assert answers[0] == answers[1]


def test_example_refuses_a_table_that_changed(connection):
    data = dataset(ExampleEngine(connection, source()))
    plan = data.sql(QUERIES[0], epsilon=1, rows_per_unit=5)
    connection.execute("ALTER TABLE visits ADD COLUMN more BIGINT")
    with pytest.raises(EngineFailed, match="changed since it was opened"):
        data.run(plan)
    with pytest.raises(InvalidInput, match="no table"):
        ExampleEngine(connection, {"v": TableSource("nowhere", unit="patient")})


def test_example_is_as_short_as_the_page_says():
    text = (Path(__file__).parent / "example_engine.py").read_text()
    page = (Path(__file__).parents[2] / "docs" / "engines.md").read_text()
    assert "tests/engines/example_engine.py" in page
    assert len(text.splitlines()) < 110
    hooks = [line.split("(")[0].split()[-1] for line in text.splitlines() if line.startswith("    def _")]
    assert all(f"`{name}`" in page for name in hooks if name != "__init__")
    [block] = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    contents = {line.partition("#")[0].strip() for line in text.splitlines()}
    assert {line.partition("#")[0].strip() for line in block.splitlines()} <= contents
