"""Finds the engine that holds rows, by what is handed in: an address, a file, a data frame or a session."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hubbub.errors import EngineFailed, InvalidInput

if TYPE_CHECKING:
    # The shell asks what an address is at every start: sqlglot, which engines need, is left for later.
    from hubbub.engines.engine import Engine, TableSource

__all__ = ["is_database", "is_server", "open_connection", "open_engine", "open_spark"]

_CONNECT = "sc://"
_SPARK = (_CONNECT, "spark://")
_DUCKDB_SUFFIXES = {".duckdb", ".ddb", ".db"}


def open_connection(data: Any) -> Any:
    """Return a DuckDB connection: `data` itself, or a read-only one to the database file that it names."""
    if type(data).__name__ == "DuckDBPyConnection":
        return data
    if _is_duckdb_file(data):
        import duckdb

        from hubbub.engines.file_formats import make_private_folder

        try:
            connection = duckdb.connect(str(data), read_only=True)
            folder = make_private_folder(connection).replace("'", "''")
            return connection.execute(f"SET temp_directory = '{folder}'")
        except duckdb.Error:
            is_there = Path(data).is_file()
            raise InvalidInput(
                f"{data} {'cannot be opened as a database' if is_there else 'does not exist'}",
                why="it is not a DuckDB database, or is in use" if is_there else "a query needs its rows",
                fix="give the path of a DuckDB database that nobody is writing to",
            ) from None
    return None


def _is_duckdb_file(data: Any) -> bool:
    """Return True for the path of a DuckDB database, by its ending."""
    return isinstance(data, (str, Path)) and Path(data).suffix.lower() in _DUCKDB_SUFFIXES


def is_database(data: Any) -> bool:
    """Return True for a text that leads to a database, where tables have names: an address, or its file."""
    return is_server(data) or _is_duckdb_file(data)


def open_spark(address: str) -> Any:
    """Return a Spark session, by the address of a Connect server or by a master."""
    try:
        from pyspark.sql import SparkSession

        builder: Any = SparkSession.builder
        is_connect = address.startswith(_CONNECT)
        return (builder.remote if is_connect else builder.master)(address).getOrCreate()
    except Exception:  # noqa: BLE001 - its message may contain settings
        raise EngineFailed(
            "the Spark session cannot be opened",
            why="pyspark is not installed, Java is missing, or no server answers there",
            fix="pip install 'hubbub[spark]', or check the address",
        ) from None


def open_engine(data: Any, sources: Mapping[str, "TableSource"], connection: Any) -> "Engine":
    """Open what holds the rows; each engine is imported only where it is used."""
    if _is_address(data):
        from hubbub.engines.postgres import PostgreSQL

        return PostgreSQL(str(data), sources)
    frames = (source.rows for source in sources.values() if _is_spark(source.rows, "DataFrame"))
    session = data if _is_spark(data, "SparkSession") else getattr(next(frames, None), "sparkSession", None)
    if isinstance(data, str) and data.startswith(_SPARK):
        session = open_spark(data)
    if session is not None:
        from hubbub.engines.spark import Spark

        return Spark(session, sources)
    from hubbub.engines.duckdb import DuckDB

    return DuckDB(sources, connection)


def is_server(data: Any) -> bool:
    """Return True if the rows are in a server, where tables have names."""
    is_spark = isinstance(data, str) and data.startswith(_SPARK)
    return _is_address(data) or is_spark or _is_spark(data, "SparkSession")


def _is_address(data: Any) -> bool:
    return isinstance(data, str) and data.startswith(("postgresql://", "postgres://"))


def _is_spark(data: Any, name: str) -> bool:
    """Return True for Spark's class of this name, classic or Connect; nothing is imported to know."""
    kind = type(data)
    return kind.__module__.startswith("pyspark.sql.") and kind.__name__ == name
