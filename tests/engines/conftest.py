"""Engines that are servers: started once, and only where a test needs them."""

import shutil
import warnings
from contextlib import suppress

import pytest

from engine_tables import DuckDBTables, PostgreSQLTables, SparkTables
from servers import in_memory, needed, running_server


@pytest.fixture(scope="session")
def server():
    pytest.importorskip("psycopg", reason="psycopg is not installed")
    with running_server() as running:
        yield running


@pytest.fixture(scope="session")
def session():
    """One Spark for all tests: it takes seconds to start."""
    pytest.importorskip("pyspark", reason="pyspark is not installed")
    needed("" if shutil.which("java") else "Java is not installed")
    with in_memory() as postgres, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from pyspark.sql import SparkSession

        builder = SparkSession.builder.master("local[2]").appName("tests")
        settings = {
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.warehouse.dir": f"{postgres}/warehouse",
            "spark.local.dir": postgres,
            # It remembers a thousand queries for pages that nobody looks at, and is asked many thousands.
            "spark.driver.memory": "2g",
            **dict.fromkeys(("spark.sql.ui.retainedExecutions", "spark.ui.retainedJobs"), "10"),
            **dict.fromkeys(("spark.ui.retainedStages", "spark.ui.retainedTasks"), "100"),
            # What a session may be set to, and what must not matter.
            "spark.sql.session.timeZone": "America/St_Johns",
            # Small tables are compiled longer than they are read.
            "spark.sql.codegen.wholeStage": "false",
            "spark.sql.codegen.factoryMode": "NO_CODEGEN",
            "spark.sql.adaptive.enabled": "false",
        }
        for name, value in settings.items():
            builder = builder.config(name, value)
        running = builder.getOrCreate()
        running.sparkContext.setLogLevel("OFF")
        yield running
        running.stop()


@pytest.fixture(scope="session")
def tables_in(request):
    """Make tables in an engine, which is named."""
    rows = []

    def at(name):
        if name == "DuckDB":
            tables = DuckDBTables()
        elif name == "PostgreSQL":
            tables = PostgreSQLTables(request.getfixturevalue("server").address())
        else:
            tables = SparkTables(request.getfixturevalue("session"))
        rows.append(tables)
        return tables

    yield at
    for tables in rows:
        with suppress(Exception):  # its server may have been stopped before
            tables.close()
