"""The shell opens what Python opens: servers, databases and several tables; and shows no password."""

import re
from datetime import date
from pathlib import Path

import duckdb
import pandas as pd
import pytest

import hubbub as hb
from cli.terminal import run
from hubbub.errors import InvalidInput

COUNT = "SELECT COUNT(*) AS n FROM visits"
PRICE = ("--unit", "patient", "--epsilon", "5", "--rows-per-unit", "1")
PASSWORD = "s3cr3t-of-ada"  # noqa: S105 - of a server that lives as long as the test


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pd.DataFrame({"patient": range(500), "cost": [7.0] * 500, "region": ["N", "S"] * 250}).to_parquet(
        "visits.parquet"
    )
    pd.DataFrame({"patient": range(500), "age": [40] * 500}).to_parquet("people.parquet")


@pytest.fixture
def database():
    with duckdb.connect("clinic.duckdb") as connection:
        for name in ("visits", "people"):
            connection.execute(f"CREATE TABLE {name} AS FROM '{name}.parquet'")
    return "clinic.duckdb"


@pytest.fixture
def address(server):
    psycopg = pytest.importorskip("psycopg")
    with psycopg.connect(server.address(), autocommit=True) as connection:
        connection.execute("DROP TABLE IF EXISTS visits")
        connection.execute(
            "CREATE TABLE visits AS SELECT i AS patient, 7.0 AS cost FROM generate_series(1, 500) AS i"
        )
    return server.address()


def count_of(out):
    assert out.code == 0, out.stderr
    return int(re.search(r"│\s+([\d,]+)", out.stdout)[1].replace(",", ""))


@pytest.mark.parametrize("command", ["query", "plan"])
def test_server_is_opened_by_its_address(address, command):
    out = run(command, address, COUNT, "--table", "visits", *PRICE)
    assert out.code == 0, out.stderr
    if command == "query":
        assert 480 < count_of(out) < 520
    assert run("limits", address, "--table", "visits", "--unit", "patient", "--epsilon", "1").code == 0
    assert run(command, address, COUNT, *PRICE).stderr.startswith("no --table is named")


def test_password_is_shown_and_stored_nowhere(address, monkeypatch):
    secret = address.replace("postgres@", f"postgres:{PASSWORD}@")
    run("budget", "open", "visits", "--unit", "patient", "--epsilon", "9", "--ledger", "l")
    ledger = ("--ledger", "l", "--account", "visits")
    lines = [
        run("query", secret, COUNT, "--table", "visits", *PRICE, *ledger),
        run("query", secret, COUNT, "--table", "visits", *PRICE, *ledger, "--explain"),
        run(
            "plan", secret, "SELECT AVG(cost) AS c FROM visits", "--table", "visits", *PRICE[:4], "--explain"
        ),
        run("init", secret, "--table", "visits", "--unit", "patient", "--yes"),
        run("report", "--ledger", "l"),
        run("query", secret.replace("127.0.0.1", "127.0.0.2"), COUNT, "--table", "visits", *PRICE),
        run("query", secret, COUNT, "--table", "nobody", *PRICE),
    ]
    assert "--again" not in lines[-1].stderr  # nothing was charged
    assert [out.code for out in lines[:5]] == [0, 0, 2, 0, 0], lines
    assert all(PASSWORD not in out.stdout + out.stderr for out in lines)
    assert all(PASSWORD.encode() not in file.read_bytes() for file in Path().iterdir() if file.is_file())
    assert f'url = "{address}"' in Path("hubbub.toml").read_text()
    assert 480 < count_of(run("query", "hubbub.toml", COUNT, "--epsilon", "5", "--rows-per-unit", "1")) < 520
    Path("hubbub.toml").write_text(f'url = "{secret}"\n[tables.visits]\nunit = "patient"\n')
    out = run("query", "hubbub.toml", COUNT, "--epsilon", "5")
    assert "url contains a password" in out.stderr
    assert PASSWORD not in out.stderr


def test_exact_answers_of_a_server_take_a_ledger(address):
    out = run("query", address, COUNT, "--table", "visits", *PRICE, "--exact")
    assert out.stderr.startswith("--exact is given for a server, without a ledger")


@pytest.mark.long
def test_spark_is_declared_by_its_master(session):
    frame = session.createDataFrame([(i, 7.0) for i in range(500)], "patient INT, cost DOUBLE")
    frame.write.mode("overwrite").saveAsTable("visits")
    try:
        Path("hubbub.toml").write_text('spark = "local[2]"\n[tables.visits]\nunit = "patient"\n')
        assert (
            480 < count_of(run("query", "hubbub.toml", COUNT, "--epsilon", "5", "--rows-per-unit", "1")) < 520
        )
    finally:
        session.sql("DROP TABLE visits")


JOIN = "SELECT AVG(age) AS a FROM visits JOIN people ON visits.patient = people.patient"


def test_database_is_opened_by_its_tables(database):
    assert 480 < count_of(run("query", database, COUNT, "--table", "visits", *PRICE)) < 520
    joined = run(
        "query", database, JOIN, "--table", "visits", "--table", "people", *PRICE, "--bounds", "age=0:100"
    )
    assert joined.code == 0, joined.stderr
    renamed = run("query", database, "SELECT COUNT(*) AS n FROM v", "--table", "v=main.visits", *PRICE)
    assert 480 < count_of(renamed) < 520


def test_files_are_joined_by_name():
    out = run(
        "query", "visits.parquet", JOIN, "--table", "people=people.parquet", *PRICE, "--bounds", "age=0:100"
    )
    assert out.code == 0, out.stderr
    out = run("query", "visits.parquet", JOIN, "--table", "a", "--table", "b", *PRICE)
    assert out.stderr.startswith("--table names several tables")
    out = run("query", "visits.parquet", JOIN, "--table", "a=", *PRICE)
    assert out.stderr.startswith("--table a= is not of the form")


def test_declared_database_is_opened_as_declared(database):
    Path("hubbub.toml").write_text(
        'database = "clinic.duckdb"\nledger = "l"\n[budget]\nepsilon = 9\n'
        '[tables.visits]\nunit = "patient"\n[tables.p]\ntable = "people"\nunit = "patient"\n'
    )
    assert 480 < count_of(run("query", "hubbub.toml", COUNT, "--epsilon", "5", "--rows-per-unit", "1")) < 520
    assert count_of(
        run("query", database, COUNT, "--epsilon", "3", "--rows-per-unit", "1", "--table", "visits")
    )
    out = run("query", database, COUNT, "--unit", "row", "--epsilon", "1", "--table", "visits")
    assert "declares another unit" in out.stderr
    out = run("query", database, "SELECT COUNT(*) FROM people", "--epsilon", "1", "--table", "people")
    assert out.stderr.startswith("people is not among the tables that")


def test_database_is_declared_by_init(database):
    assert run("init", database, "--table", "visits", "--unit", "patient", "--yes").code == 0
    assert Path("hubbub.toml").read_text().startswith('database = "clinic.duckdb"\n')
    assert run("query", "hubbub.toml", COUNT, "--epsilon", "1", "--rows-per-unit", "1").code == 0
    assert run("init", database, "--unit", "patient", "--yes", "--force").stderr.startswith(
        "no --table is named"
    )


@pytest.mark.parametrize(
    ("lines", "what"),
    [
        ('url = "mysql://x"', "url is not an address of PostgreSQL"),
        ('url = "postgresql://x"\nspark = "sc://x"', "url and spark are given"),
        ('database = "no.duckdb"', "database leads to no file"),
        ("url = 3", "url is not a text"),
        (
            'url = "postgresql://x"\n[tables.t]\nunit = "u"\npath = "t.csv"',
            "path is given for a table of a database",
        ),
        ('[tables.t]\nunit = "u"\npath = "visits.parquet"\ntable = "t"', "tables.t.table is given for files"),
        (
            '[tables.t]\nunit = "u"\npath = "visits.parquet"\npartitions = "year"',
            "partitions is not a list of names",
        ),
        ('[tables.t]\nunit = "u"\npath = "visits.parquet"\nseparator = "x"', "tables.t.separator"),
    ],
)
def test_wrong_declarations_of_sources_are_named(lines, what):
    Path("hubbub.toml").write_text(lines + ("" if "tables" in lines else '\n[tables.t]\nunit = "u"\n'))
    assert what in run("plan", "hubbub.toml", COUNT, "--epsilon", "1").stderr


# Types by bounds, bounds by outputs, rows as units


@pytest.fixture
def texts():
    rows = "".join(f"{i};{i % 50};2026-01-{1 + i % 28:02}\n" for i in range(1000))
    Path("t.csv").write_text("person;cost;day\n" + rows + "1000;nonsense;never\n")
    return "t.csv"


def test_bounds_imply_a_number(texts):
    price = ("--unit", "person", "--epsilon", "20", "--rows-per-unit", "1")
    out = run("query", texts, "SELECT AVG(cost) AS c FROM t", *price, "--bounds", "cost=0:100")
    assert out.code == 0, out.stderr
    assert out.stderr == "note: t.csv: a semicolon separates fields, by the header line\n"
    for how in ({"bounds": {"cost": (0, 100)}}, {}):
        with hb.open(texts, unit="person", rows_per_unit=1, **how) as data:
            plan = data.sql(
                "SELECT AVG(cost) AS c, COUNT(cost) AS n FROM t", epsilon=20, bounds={"cost": (0, 100)}
            )
            result = data.run(plan).value
            assert result["c"][0] == pytest.approx(24.5, abs=2)
            assert result["n"][0] == pytest.approx(1000, abs=10)  # what is no number is NULL


def test_date_bounds_imply_dates_and_bound_their_differences(texts):
    ends = (date(2026, 1, 1), date(2026, 1, 28))
    sql = "SELECT AVG(DATE_DIFF('day', day, day)) AS d, COUNT(day) AS n FROM t"
    with hb.open(texts, unit="person", rows_per_unit=1, bounds={"day": ends}) as data:
        result = data.run(data.sql(sql, epsilon=20)).value
        assert result["n"][0] == pytest.approx(1000, abs=10)
    with hb.open(texts, unit="person", rows_per_unit=1) as data:
        assert "27" in data.sql(sql, epsilon=20, bounds={"day": ends}).explain()
    out = run(
        "plan", texts, sql, "--unit", "person", "--epsilon", "1", "--bounds", "day=2026-01-01:2026-01-28"
    )
    assert out.code == 0, out.stderr
    assert (
        "is not a date"
        in run("plan", texts, sql, "--unit", "row", "--bounds", "day=2026-01-01:2026-31-28").stderr
    )


def test_bounds_are_given_by_the_name_of_an_output():
    with hb.open("visits.parquet", unit="patient", rows_per_unit=1) as data:
        plan = data.sql(
            "SELECT SUM(cost * cost) AS squares FROM visits", epsilon=20, bounds={"squares": (0, 100)}
        )
        [squares] = data.run(plan).value["squares"]
        assert squares == pytest.approx(500 * 49, rel=0.05)
        with pytest.raises(InvalidInput, match="has no bounds"):  # of which of the two?
            data.sql("SELECT SUM(cost) / SUM(cost + 1) AS r FROM visits", epsilon=1, bounds={"r": (0, 100)})


def test_row_is_a_unit_by_its_name():
    with hb.open("visits.parquet", unit="row") as data:
        assert data.unit == hb.Unit.row()


def test_init_suggests_types_by_names_alone():
    Path("u.csv").write_text("person,visit_date,totalCost,isMember,region\n")
    out = run("init", "u.csv", typed="person\n" + "\n" * 20)
    assert out.code == 0, out.stderr
    assert '[tables.u.types]\nvisit_date = "date"\ntotalCost = "number"\nisMember = "boolean"\n' in (
        Path("hubbub.toml").read_text()
    )
    silent = run("init", "u.csv", "--unit", "person", "--yes", "--force")
    assert silent.code == 0
    assert "types" not in Path("hubbub.toml").read_text()
