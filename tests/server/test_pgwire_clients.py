"""Real clients on loopback: each asks its own question, sees the same answer, and is charged exactly once."""

import asyncio
import csv
import io
import os
import re
import shutil
import subprocess
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from server.hospital import PASSWORD, open_hospital
from server.wire import running_listener, url

JAR = Path("/usr/share/java/postgresql.jar")
COLUMNS = ["region", "n", "n_low", "n_high"]


def age_of(client):
    """The age in the question of one client alone: the same question of another would be free."""
    return 20 + list(CLIENTS).index(client)


def age_in(sql):
    """The age in a question, however the client wrote it."""
    return float(re.search(r"age\s*>\s*([\d.]+)", sql)[1])


def question(client):
    return f"SELECT region, COUNT(*) AS n FROM visits WHERE age > {age_of(client)} GROUP BY region"


def psql(port, *commands):
    words = [word for command in commands for word in ("-c", command)]
    environment = {**os.environ, "PGPASSWORD": PASSWORD, "PSQLRC": "/dev/null", "PAGER": ""}
    done = subprocess.run(
        ["psql", "-X", "-A", "-t", url(port), *words],
        env=environment, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.stderr == "", done.stderr
    return done.stdout


def by_psql(port, sql):
    return [line.split("|") for line in psql(port, sql).splitlines()]


def by_psql_copy(port, sql):
    return list(csv.reader(io.StringIO(psql(port, f"\\copy ({sql}) TO STDOUT CSV"))))


def by_psycopg(port, sql):
    import psycopg

    with psycopg.connect(url(port)) as connection:
        text = connection.execute(sql).fetchall()
        binary = connection.execute(sql, binary=True).fetchall()
        with connection.cursor("rows") as cursor:
            fetched = [*cursor.execute(sql).fetchmany(1), *cursor.fetchall()]
        assert text == binary == fetched
        with connection.cursor().copy(f"COPY ({sql}) TO STDOUT (FORMAT binary)") as copy:
            copy.set_types(["text", "float8", "float8", "float8"])
            assert list(copy.rows()) == text
    return text


def by_psycopg_parameters(port, sql):
    import psycopg

    sql, _, rest = sql.partition("age > ")
    age, _, rest = rest.partition(" ")
    with psycopg.connect(url(port)) as connection:
        text = connection.execute(f"{sql}age > %s {rest}", [int(age)]).fetchall()
        assert connection.execute(f"{sql}age > %b {rest}", [float(age)], binary=True).fetchall() == text
        assert connection.execute(f"{sql}age > %s {rest}", [age], prepare=True).fetchall() == text
    return text


def by_psycopg2(port, sql):
    import psycopg2

    connection = psycopg2.connect(url(port))
    try:
        cursor = connection.cursor()
        cursor.execute(sql)
        rows = cursor.fetchall()
        names = connection.cursor("rows")
        names.execute(sql)
        assert names.fetchmany(1) == rows[:1]
        assert [column.name for column in cursor.description] == COLUMNS
        connection.rollback()
        assert "ROLLBACK gives nothing back" in connection.notices[-1]
    finally:
        connection.close()
    return rows


def by_asyncpg(port, sql):
    import asyncpg

    async def main():
        connection = await asyncpg.connect(
            host="127.0.0.1", port=port, user="ada", password=PASSWORD, database="visits",
            server_settings={"hubbub.epsilon": "0.01"},
        )  # fmt: skip
        before, _, rest = sql.partition("age > ")
        age, _, after = rest.partition(" ")
        rows = await connection.fetch(f"{before}age > $1 {after}", int(age))
        async with connection.transaction():
            assert [row async for row in connection.cursor(sql, prefetch=1)] == rows
        await connection.reset()
        await connection.close()
        return [tuple(row) for row in rows]

    return asyncio.run(main())


def by_pg8000(port, sql):
    import pg8000.native

    connection = pg8000.native.Connection(
        "ada", host="127.0.0.1", port=port, database="visits", password=PASSWORD
    )
    connection.run("SET hubbub.epsilon = 0.01")
    rows = connection.run(sql)
    assert [column["name"] for column in connection.columns] == COLUMNS
    connection.close()
    return rows


def by_sqlalchemy_and_pandas(port, sql):
    import pandas as pd
    import sqlalchemy

    engine = sqlalchemy.create_engine(url(port).replace("postgresql:", "postgresql+psycopg:"))
    try:
        frame = pd.read_sql(sql, engine)
        with engine.connect().execution_options(stream_results=True) as connection:
            parts = list(pd.read_sql(sql, connection, chunksize=1))
        assert pd.concat(parts, ignore_index=True).equals(frame)
    finally:
        engine.dispose()
    assert list(frame.columns) == COLUMNS
    return frame.itertuples(index=False, name=None)


def by_connectorx(port, sql):
    import polars as pl

    return pl.read_database_uri(sql, url(port), engine="connectorx").rows()


def by_adbc(port, sql):
    import polars as pl

    frame = pl.read_database_uri(sql, url(port), engine="adbc")
    assert [str(kind) for kind in frame.dtypes] == ["String", "Float64", "Float64", "Float64"]
    return frame.rows()


def by_jdbc(port, sql):
    lines = run_java(port, "rows", sql)
    return [line.split("|") for line in lines]


def by_prepared_jdbc(port, sql):
    age = str(age_of("JDBC, prepared"))
    return [line.split("|") for line in run_java(port, "prepared", sql.replace(age, "?"), age)]


CLIENTS = {
    "psql": by_psql,
    "psql \\copy": by_psql_copy,
    "psycopg 3": by_psycopg,
    "psycopg 3 with parameters": by_psycopg_parameters,
    "psycopg 2": by_psycopg2,
    "asyncpg": by_asyncpg,
    "pg8000": by_pg8000,
    "SQLAlchemy and pandas": by_sqlalchemy_and_pandas,
    "Polars by ConnectorX": by_connectorx,
    "Polars by ADBC": by_adbc,
    "JDBC": by_jdbc,
    "JDBC, prepared": by_prepared_jdbc,
}
NEEDED = {"psql": "psql", "psql \\copy": "psql", "JDBC": "javac", "JDBC, prepared": "javac"}
"""Programs that are not Python's."""


def run_java(port, *words):
    address = (
        f"jdbc:postgresql://127.0.0.1:{port}/visits?user=ada&password={PASSWORD.replace(' ', '%20')}"
        "&options=-c%20hubbub.epsilon=0.01"
    )
    command = ["java", "-Xshare:auto", "-XX:TieredStopAtLevel=1", "-cp", f"{JAR}:{run_java.folder}", "Client"]
    done = subprocess.run(
        [*command, address, *words], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def is_missing(client):
    program = NEEDED.get(client)
    return program is not None and (
        shutil.which(program) is None or (program == "javac" and not JAR.exists())
    )


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """A listener, with what each client saw. All ask at once: each waits mostly for its own start."""
    folder = tmp_path_factory.mktemp("wire")
    service = open_hospital(folder / "hospital", "requests_per_minute = 100000")
    run_java.folder = folder
    if not is_missing("JDBC"):
        source = Path(__file__).with_name("Client.java")
        subprocess.run(["javac", "-d", folder, source], check=True, timeout=120)
    with running_listener(service) as port, ThreadPoolExecutor(3) as pool:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of drivers
            futures = {
                client: pool.submit(ask, port, question(client))
                for client, ask in CLIENTS.items()
                if not is_missing(client)
            }
            seen = {client: future.exception() or future.result() for client, future in futures.items()}
        yield service, port, seen
    service.close()


def need(client):
    if is_missing(client):
        pytest.skip(f"{NEEDED[client]} or the JDBC driver is not installed")


@pytest.mark.slow
@pytest.mark.parametrize("client", CLIENTS)
def test_client_sees_the_answer_and_is_charged_once(served, client):
    need(client)
    service, _, seen = served
    if isinstance(seen[client], Exception):
        raise seen[client]
    ada = service.auth.sign_in("ada", PASSWORD)
    charges = [
        item for item in service.history(ada, "visits", limit=1000) if age_in(item.sql) == age_of(client)
    ]

    assert len(charges) == 1
    answer = service.stored_answer(ada, "visits", charges[0].entry)
    expected = list(zip(*(answer.result[name] for name in COLUMNS), strict=True))
    rows = [(row[0], *map(float, row[1:])) for row in seen[client]]
    assert rows == expected


@pytest.mark.slow
def test_ten_clients_are_tested():
    assert len(CLIENTS) >= 10


@pytest.mark.slow
def test_psql_describes_what_is_declared(served):
    need("psql")
    _, port, _ = served

    assert psql(port, "\\dt").split("|")[:3] == ["public", "visits", "table"]
    assert [line.split("|")[:2] for line in psql(port, "\\d visits").splitlines()] == [
        ["patient", "text"], ["region", "text"], ["age", "double precision"], ["cost", "double precision"],
    ]  # fmt: skip
    assert [line.split("|")[0] for line in psql(port, "\\l").splitlines()] == ["visits"]
    assert psql(port, "\\df") == ""
    assert "privacy unit" in psql(port, "\\d+ visits")
    assert psql(port, "\\dn").split("|")[0] == "public"
    assert psql(port, "SELECT version()").startswith("PostgreSQL 15")


@pytest.mark.slow
@pytest.mark.parametrize("driver", ["psycopg", "psycopg2"])
def test_sqlalchemy_inspects_what_is_declared(served, driver):
    import sqlalchemy

    _, port, _ = served
    engine = sqlalchemy.create_engine(url(port).replace("postgresql:", f"postgresql+{driver}:"))
    try:
        inspector = sqlalchemy.inspect(engine)
        assert inspector.get_schema_names() == ["information_schema", "public"]
        assert inspector.get_table_names() == ["visits"]
        assert inspector.get_view_names() == []
        columns = {each["name"]: str(each["type"]) for each in inspector.get_columns("visits")}
        assert columns == {
            "patient": "TEXT", "region": "TEXT", "age": "DOUBLE PRECISION", "cost": "DOUBLE PRECISION",
        }  # fmt: skip
        assert inspector.get_pk_constraint("visits")["constrained_columns"] == []
        assert inspector.get_foreign_keys("visits") == []
        assert inspector.get_indexes("visits") == []
        assert "privacy unit" in inspector.get_table_comment("visits")["text"]
        metadata = sqlalchemy.MetaData()
        metadata.reflect(engine)
        assert list(metadata.tables) == ["visits"]
    finally:
        engine.dispose()


@pytest.mark.slow
def test_jdbc_reads_metadata(served):
    need("JDBC")
    _, port, _ = served

    counts = dict(line.split() for line in run_java(port, "metadata"))

    assert counts == {
        "schemas": "3", "catalogs": "1", "tables": "1", "columns": "4", "keys": "0", "indexes": "0",
        "imported": "0", "types": "407", "functions": "0",
    }  # fmt: skip


@pytest.mark.slow
def test_adbc_reads_the_schema(served):
    import adbc_driver_postgresql.dbapi as adbc

    _, port, _ = served
    with adbc.connect(url(port)) as connection:
        schema = connection.adbc_get_table_schema("visits")

    assert {field.name: str(field.type) for field in schema} == {
        "patient": "string", "region": "string", "age": "double", "cost": "double",
    }  # fmt: skip
