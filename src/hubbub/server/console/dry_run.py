"""A dry run: the same question on made-up rows of the declared schema. Free; no row and no account is used.

The rows follow from the declaration alone: a value depends on the number of its row and the name of its
column. So the dry run tells nothing that the description of the dataset does not.
"""

import hashlib
import threading
from datetime import date, datetime, timedelta
from fractions import Fraction
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import duckdb

from hubbub.dataset import make_dataset
from hubbub.engines.schema import Kind
from hubbub.server.service_types import ColumnDescription, DatasetDescription, Question, TableDescription
from hubbub.sources import OpenArguments, open_sources
from hubbub.sql.result import Result

__all__ = ["run_dry"]

_ROWS = 500
_SECONDS = 5.0
_EPOCH = date(1970, 1, 1)
_SQL_TYPES = {
    Kind.NUMBER: "DOUBLE",
    Kind.TEXT: "VARCHAR",
    Kind.BOOLEAN: "BOOLEAN",
    Kind.DATE: "DATE",
    Kind.TIMESTAMP: "TIMESTAMP",
    Kind.OPAQUE: "BIGINT",
}
_DEFAULT_BOUNDS = (Fraction(0), Fraction(100))
_DEFAULT_DAYS = (Fraction(20_000), Fraction(20_365))
"""Where a column of dates has no bounds: a year from 2024-10-04 on."""


def run_dry(description: DatasetDescription, question: Question) -> Result:
    """Answer a question on made-up rows.

    Args:
        description: what is declared of the dataset, as everybody with a role in it may see it.
        question: one that was planned on the dataset itself, so that its caller may ask it.

    Guarantee: a function of the declaration, the question and fresh noise: neither the engine that holds the
        rows nor an account of the dataset is reached from here.
    """
    # Files, which need no package for data frames. A table's name may be no name of a file.
    with TemporaryDirectory(prefix="hubbub-") as folder:
        files = {
            table.name: _write_rows(table, description, Path(folder) / f"{number}.parquet")
            for number, table in enumerate(description.tables)
        }
        return _run(description, question, files)


def _run(description: DatasetDescription, question: Question, files: dict[str, Path]) -> Result:
    public = {table.name for table in description.tables if table.is_public}
    columns = [column for table in description.tables for column in table.columns]
    arguments = OpenArguments(
        {name: file for name, file in files.items() if name not in public},
        unit=description.unit_column or "row",
        bounds={column.name: _read_bounds(column) for column in columns if column.bounds is not None},
        keys={column.name: column.keys for column in columns if column.keys is not None},
        public={name: files[name] for name in public},
        rows_per_unit=description.rows_per_unit,
        groups_per_unit=description.groups_per_unit,
        population=description.population,
    )
    sources = open_sources(arguments)
    timer = threading.Timer(_SECONDS, sources.engine.interrupt)
    timer.start()
    try:
        dataset = make_dataset(sources)
        return dataset.run(dataset.sql(question.sql, **question.arguments())).value
    finally:
        timer.cancel()
        sources.engine.close()


def _write_rows(table: TableDescription, description: DatasetDescription, file: Path) -> Path:
    """Write made-up rows of a table; return the file."""
    names = ", ".join(f"{_quote(column.name)} {_SQL_TYPES[column.kind]}" for column in table.columns)
    per_unit = min(description.rows_per_unit or 1, 5)
    rows = [[_make_value(column, row, per_unit) for column in table.columns] for row in range(_ROWS)]
    places = ", ".join("?" * len(table.columns))
    with duckdb.connect() as connection:
        connection.execute(f"CREATE TABLE made_up ({names})")
        connection.executemany(f"INSERT INTO made_up VALUES ({places})", rows)  # noqa: S608 - our own text
        connection.table("made_up").write_parquet(str(file))
    return file


def _make_value(column: ColumnDescription, row: int, per_unit: int) -> Any:
    number = _scatter(column.name, row)
    if column.is_unit:
        unit = row // per_unit
        kinds: dict[Kind, Any] = {
            Kind.TEXT: f"unit {unit}",
            Kind.DATE: _EPOCH + timedelta(unit),
            Kind.TIMESTAMP: datetime(1970, 1, 1) + timedelta(unit),  # noqa: DTZ001 - SQL's have no zone
            Kind.BOOLEAN: unit % 2 == 0,
        }
        return kinds.get(column.kind, unit)
    if column.keys:
        return column.keys[number % len(column.keys)]
    share = Fraction(number % 10_007, 10_006)
    if column.kind is Kind.NUMBER:
        low, high = _DEFAULT_BOUNDS if column.bounds is None else map(Fraction, column.bounds)
        return float(low + share * (high - low))
    if column.kind in {Kind.DATE, Kind.TIMESTAMP}:
        low, high = _DEFAULT_DAYS if column.bounds is None else map(Fraction, column.bounds)
        day = _EPOCH + timedelta(int(low + share * (high - low)))
        return day if column.kind is Kind.DATE else datetime(day.year, day.month, day.day, number % 24)  # noqa: DTZ001
    if column.kind is Kind.BOOLEAN:
        return number % 2 == 0
    return f"{column.name} {number % 5}" if column.kind is Kind.TEXT else number % 1000


def _scatter(name: str, row: int) -> int:
    return int.from_bytes(hashlib.sha256(f"{name} {row}".encode()).digest()[:8], "big")


def _read_bounds(column: ColumnDescription) -> tuple[Any, Any]:
    assert column.bounds is not None
    low, high = map(Fraction, column.bounds)
    if column.kind in {Kind.DATE, Kind.TIMESTAMP}:
        return _EPOCH + timedelta(int(low)), _EPOCH + timedelta(int(high))
    return low, high


def _quote(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
