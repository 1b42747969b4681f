"""Where rows can live: the same tables in every engine, so that the same plans can be run on them."""

import itertools
import os

import duckdb

from hubbub.engines.duckdb import DuckDB

BEYOND = "beyond"
"""A date or a moment that Python does not have, in whatever way the engine has one."""
IN_POSTGRESQL = {"VARCHAR": "TEXT", "DOUBLE": "DOUBLE PRECISION"}
IN_SPARK = {"VARCHAR": "STRING", "TIMESTAMP": "TIMESTAMP_NTZ", "TIMESTAMPTZ": "TIMESTAMP"}
_NUMBERS = itertools.count()


def is_beyond(text):
    """Whether it is such a date, as DuckDB writes them."""
    return isinstance(text, str) and (text.endswith("infinity") or "(BC)" in text or text[:5].isdigit())


class DuckDBTables:
    """Tables of a connection."""

    name = "DuckDB"

    def __init__(self):
        self.connection = duckdb.connect(config={"threads": "1"})

    def create(self, table, columns):
        listed = ", ".join(f'"{name}" {kind}' for name, kind in columns.items())
        self.connection.execute(f'CREATE OR REPLACE TABLE "{table}" ({listed})')
        return table

    def put(self, table, columns, rows):
        self.connection.execute(f'DELETE FROM "{table}"')
        if rows:
            cells = dict(zip(columns, map(list, zip(*rows, strict=True)), strict=True))
            parts = ", ".join(f"CAST(UNNEST(${name}) AS {kind})" for name, kind in columns.items())
            self.connection.execute(f'INSERT INTO "{table}" SELECT {parts}', cells)

    def engine(self, sources):
        return DuckDB(sources, self.connection)

    def close(self):
        self.connection.close()


class PostgreSQLTables:
    """A schema of its own in a server."""

    name = "PostgreSQL"

    def __init__(self, address):
        import psycopg

        self.address = address
        self.connection = psycopg.connect(address, autocommit=True)
        self.schema = f"place{os.getpid()}_{next(_NUMBERS)}"
        self.connection.execute(f"CREATE SCHEMA {self.schema}")

    def create(self, table, columns):
        listed = ", ".join(f'"{name}" {IN_POSTGRESQL.get(kind, kind)}' for name, kind in columns.items())
        self.connection.execute(f'DROP TABLE IF EXISTS {self.schema}."{table}"')
        self.connection.execute(f'CREATE TABLE {self.schema}."{table}" ({listed})')
        return f"{self.schema}.{table}"

    def put(self, table, columns, rows):
        self.connection.execute(f'TRUNCATE {self.schema}."{table}"')
        if rows:
            plain = [IN_POSTGRESQL.get(kind, kind).partition(" COLLATE")[0] for kind in columns.values()]
            listed = ", ".join(f"CAST(%s AS {kind})" for kind in plain)
            cells = [
                [self._value(value, kind) for value, kind in zip(row, columns.values(), strict=True)]
                for row in rows
            ]
            with self.connection.cursor() as cursor:
                cursor.executemany(f'INSERT INTO {self.schema}."{table}" VALUES ({listed})', cells)

    @staticmethod
    def _value(value, kind):
        if kind in {"DATE", "TIMESTAMP"} and value is not None and is_beyond(value):
            return "0044-03-15 BC" if "BC" in str(value) else "infinity"
        return value.replace("\0", "0") if isinstance(value, str) else value

    def engine(self, sources):
        from hubbub.engines.postgres import PostgreSQL

        return PostgreSQL(self.address, sources)

    def close(self):
        self.connection.execute(f"DROP SCHEMA {self.schema} CASCADE")
        self.connection.close()


class SparkTables:
    """Tables of a session, as temporary views of Parquet or of lists."""

    name = "Spark"

    def __init__(self, session):
        self.session = session
        self.prefix = f"place{next(_NUMBERS)}_"

    def create(self, table, columns):
        self.put(table, columns, [])
        return self.prefix + table

    def put(self, table, columns, rows):
        # All as texts, and cast: so every engine is handed the same values.
        cells = [
            [value if isinstance(value, (float, str, type(None))) else str(value) for value in row]
            for row in rows
        ]
        raw = ", ".join(
            f"`{name}` {'DOUBLE' if kind == 'DOUBLE' else 'STRING'}" for name, kind in columns.items()
        )
        parts = [self._cast(f"`{name}`", kind) + f" AS `{name}`" for name, kind in columns.items()]
        frame = self.session.createDataFrame(self._plain(cells, columns), raw).selectExpr(*parts)
        frame.createOrReplaceTempView(self.prefix + table)

    @staticmethod
    def _plain(rows, columns):
        kinds = list(columns.values())
        moments = {"DATE", "TIMESTAMP"}
        return [
            [
                BEYOND
                if kind in moments and is_beyond(value)
                else float(value)
                if kind == "DOUBLE" and value
                else value
                for value, kind in zip(row, kinds, strict=True)
            ]
            for row in rows
        ]

    @staticmethod
    def _cast(name, kind):
        typed = IN_SPARK.get(kind, kind)
        if kind not in {"DATE", "TIMESTAMP"}:
            return f"CAST({name} AS {typed})"
        far = f"{typed}'-4000-01-01'"
        return (
            f"CASE WHEN {name} = '{BEYOND}' THEN {far} ELSE CAST(NULLIF({name}, '{BEYOND}') AS {typed}) END"
        )

    def engine(self, sources):
        from hubbub.engines.spark import Spark

        return Spark(self.session, sources)

    def close(self):
        for _, name, _ in self.session.sql("SHOW TABLES").collect():
            if name.startswith(self.prefix):
                self.session.catalog.dropTempView(name)
