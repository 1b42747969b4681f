"""Captures what drivers and tools ask of the catalogs, with the answers of a real PostgreSQL 15, as fixtures.

    python tests/server/driver_queries.py tests/server/driver_queries.json

Drivers run against a listener of this process, which notes their queries; queries of tools that cannot be
run here are in `tool_queries.sql`. Each is then asked of a PostgreSQL with a table of the same columns.
"""

import contextlib
import json
import sys
import tempfile
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from hubbub.server.pgwire.query_routing import ServiceAnswers
from hubbub.server.pgwire.statements import split_statements
from server.hospital import open_hospital
from server.wire import running_listener, url
from servers import running_server

TABLE = "CREATE TABLE visits (patient text, region text, age float8, cost float8)"
PSQL = (
    "\\dt",
    "\\d visits",
    "\\d+ visits",
    "\\l",
    "\\df",
    "\\dn",
    "\\dv",
    "\\di",
    "\\dT",
    "\\d",
    "\\dx",
    "\\ds",
    "\\dp",
)
TOOLS = Path(__file__).with_name("tool_queries.sql")


def run_drivers(port):
    """Everything that the installed drivers ask of the catalogs, by driver."""
    import adbc_driver_postgresql.dbapi as adbc
    import sqlalchemy

    from server.test_pgwire_clients import psql, run_java

    run_drivers.name = "psql"
    for command in PSQL:
        with contextlib.suppress(AssertionError):  # psql says where nothing was found
            psql(port, command)
    for driver in ("psycopg", "psycopg2"):
        run_drivers.name = f"SQLAlchemy with {driver}"
        engine = sqlalchemy.create_engine(url(port).replace("postgresql:", f"postgresql+{driver}:"))
        inspector = sqlalchemy.inspect(engine)
        inspector.get_schema_names()
        inspector.get_view_names()
        inspector.get_sequence_names()
        inspector.get_enums()
        inspector.get_materialized_view_names()
        inspector.has_table("visits")
        sqlalchemy.MetaData().reflect(engine)
        engine.dispose()
    run_drivers.name = "ADBC"
    with adbc.connect(url(port)) as connection:
        connection.adbc_get_table_schema("visits")
        connection.adbc_get_objects(depth="columns").read_all()
    run_drivers.name = "JDBC"
    run_java(port, "metadata")


def capture():
    """The queries by driver, each once."""
    import subprocess

    from server import test_pgwire_clients

    queries = {}
    plain = ServiceAnswers.read_catalog

    async def noting(self, text):
        tree = await plain(self, text)
        if tree is not None:
            queries.setdefault(text, run_drivers.name)
        return tree

    ServiceAnswers.read_catalog = noting
    with tempfile.TemporaryDirectory() as folder:
        test_pgwire_clients.run_java.folder = folder
        subprocess.run(["javac", "-d", folder, Path(__file__).with_name("Client.java")], check=True)
        service = open_hospital(Path(folder) / "hospital", "requests_per_minute = 100000")
        with running_listener(service) as port, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            run_drivers(port)
        service.close()
    for part in TOOLS.read_text(encoding="utf-8").split("-- tool: ")[1:]:
        tool, _, texts = part.partition("\n")
        queries.update(dict.fromkeys((each.text for each in split_statements(texts)), tool))
    return queries


def cell(value):
    """As JSON can hold it."""
    if isinstance(value, list):
        return [cell(each) for each in value]
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)


def main(path):
    import psycopg

    queries = capture()
    with running_server() as server, psycopg.connect(server.address(), autocommit=True) as connection:
        connection.execute(TABLE)
        connection.execute("COMMENT ON TABLE visits IS 'protected; privacy unit: patient'")
        connection.execute("COMMENT ON COLUMN visits.patient IS 'privacy unit'")
        stored = []
        for text, driver in queries.items():
            try:
                cursor = connection.execute(text.encode())
            except psycopg.Error as problem:
                print(driver, problem, text[:200])
                continue
            columns = [column.name for column in cursor.description]
            rows = [[cell(value) for value in row] for row in cursor.fetchall()]
            stored.append(
                {
                    "driver": driver,
                    "sql": text,
                    "columns": columns,
                    "rows": rows if len(rows) <= 50 else len(rows),
                }
            )
    Path(path).write_text(json.dumps(stored, indent=1, ensure_ascii=True, default=str) + "\n")
    print(len(stored), Path(path).stat().st_size)


if __name__ == "__main__":
    main(sys.argv[1])
