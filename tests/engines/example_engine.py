"""The smallest engine: docs/engines.md explains it. Its server is a DuckDB connection."""

from contextlib import contextmanager, suppress
from typing import ClassVar

from sqlglot import exp

from hubbub.engines.data_identity import DataIdentity
from hubbub.engines.engine import table_changed
from hubbub.engines.remote_engine import Relation, RemoteColumn, RemoteEngine, quoted_column
from hubbub.engines.schema import Kind, infer_kind
from hubbub.engines.total_functions import SQL_TYPES, clamp_finite
from hubbub.errors import InvalidInput

KINDS = {"BIGINT": Kind.NUMBER, "DOUBLE": Kind.NUMBER, "VARCHAR": Kind.TEXT}
COLUMNS = (
    "SELECT column_name, data_type FROM information_schema.columns WHERE table_name = ? "
    "ORDER BY ordinal_position"
)


class ExampleEngine(RemoteEngine):
    name = "Example"
    dialect = "duckdb"
    translations: ClassVar = {}  # every node of the rules' tree means here what it says
    unit_types = "an integer or a text"

    def __init__(self, connection, sources):
        self._connection = connection
        super().__init__(sources)

    def _describe(self, name, source):
        rows = self._connection.execute(COLUMNS, [source.rows]).fetchall()
        if not rows:
            raise InvalidInput(f"there is no table {name}", why="a query needs its rows", fix="name a table")
        columns = (RemoteColumn(column, kind, KINDS.get(kind, Kind.OPAQUE)) for column, kind in rows)
        return Relation(exp.to_table(source.rows), tuple(columns))

    def _read_column(self, column):
        name = quoted_column(column.name)
        if column.kind is not Kind.NUMBER:
            return name
        double = exp.Cast(this=name, to=exp.DataType.build("DOUBLE"))
        return double if column.sql_type == "BIGINT" else clamp_finite(double)  # no infinities, no NaN

    def _read_opaque(self, column, kind):
        raise InvalidInput(f"{column.name} is of no known type", why="a value could fail", fix="leave it out")

    def _unit_type(self, column):
        return {"BIGINT": "integer", "VARCHAR": "text"}.get(column.sql_type)

    def _read_unit(self, column, unit_type):
        return quoted_column(column.name)

    @contextmanager
    def _open_snapshot(self):
        self._connection.execute("BEGIN TRANSACTION")
        try:
            for scan in self._scans.values():
                rows = self._connection.execute(COLUMNS, [scan.relation.table.name]).fetchall()
                if rows != [(column.name, column.sql_type) for column in scan.relation.columns]:
                    raise table_changed()
            yield
        finally:
            self._connection.execute("ROLLBACK")  # it leaves nothing behind

    def _stream_rows(self, sql, key_sets):
        for name, keys in key_sets.items():
            self._connection.execute(
                f"CREATE TEMP TABLE {name} (key {SQL_TYPES[infer_kind(keys)]}, place INTEGER)"
            )
            rows = [[key, place] for place, key in enumerate(keys)]
            self._connection.executemany(f"INSERT INTO {name} VALUES (?, ?)", rows)
        result = self._connection.execute(self.compile(sql))
        while rows := result.fetchmany(1000):
            yield from rows

    def _explain(self, problem):
        return "its own message may contain data", "read the server's log"

    def fingerprint(self, table):
        return ["example", self._scans[table].relation.table.name]

    def identity(self, table):
        return DataIdentity(frozenset({("example", self._scans[table].relation.table.name)}))

    def interrupt(self):
        self._connection.interrupt()

    def close(self):
        with suppress(Exception):
            self._connection.close()
