"""`hubbub.open`: rows, a privacy unit and an account as a dataset."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from hubbub.accounting import Budget
from hubbub.dataset import Dataset, make_dataset
from hubbub.ledger import Ledger
from hubbub.sources import OpenArguments, open_sources
from hubbub.unit import Unit, Window

__all__ = ["open"]


def open(  # noqa: A001 - hubbub.open is its name
    data: Any,
    *,
    unit: Unit | str | None = None,
    table: str | Sequence[str] | Mapping[str, str] | None = None,
    budget: Budget | None = None,
    ledger: Ledger | str | Path | None = None,
    account: str | None = None,
    analyst: str | None = None,
    version: str | None = None,
    window: Window | str | None = None,
    types: Mapping[str, str] | None = None,
    bounds: Mapping[str, Any] | None = None,
    keys: Mapping[str, Iterable[Any]] | None = None,
    public: Mapping[str, Any] | None = None,
    population: int | None = None,
    rows_per_unit: int | None = None,
    groups_per_unit: int | None = None,
    max_rows_per_unit: int | None = None,
    quotes: bool | None = None,
    encoding: str | None = None,
    separator: str | None = None,
    partitions: Sequence[str] | None = None,
    new_rows: bool = False,
    override: bool = False,
) -> Dataset:
    """Open a file, a data frame, Arrow data, a DuckDB connection or a database as a dataset.

    `postgresql://user@host/database` opens tables of a PostgreSQL server; a Spark session opens tables of its
    catalog, a Spark data frame itself. The rows stay where they are.

    What a `hubbub.toml` in the file's folder, or in one above, declares need not be passed. Types, bounds,
    keys and contribution bounds that are passed win; a unit, ledger, account or budget other than the
    declared one, or a smaller population, is refused, unless the owner passes `override=True`, which the
    declared ledger records.

    With a `ledger`, the same query on the same `version` has the same answer, at no further cost. Rows in
    memory, and those of Spark, have no data identity: unless `version` is passed, their queries are asked
    anew at each opening. One account pays for the same rows, by whatever name they are opened: a second one
    is refused.

    Args:
        data: A path, a pattern, a folder of Parquet files, a data frame, Arrow data, a connection, a URL;
            a mapping from names to these for several protected tables, each with the unit's column; or the
            path of a `hubbub.toml`, to open all its tables.
        unit: Who is protected: a column, or `"row"` where one row is one person.
        table: The table's name in queries; of a database, the name of one table or of several, or a mapping
            from names in queries to names there.
        budget: What all releases together may cost; unlimited if omitted.
        ledger: Where all charges are recorded: a path or a `postgresql://…` address. In memory if omitted.
        account: The account of the ledger that pays; it is named as the table if omitted.
        analyst: The analyst who asks, with a budget granted by the owner; the owner if omitted.
        version: The owner's name for this state of the data.
        window: A period such as `Window.of("day", "2026-11")`: only its rows are there, the unit is one
            person within it, and the budget is the window's, so that growing data can be queried forever.
            Every label says what all windows cost together.
        types: Types of columns, where the data has none: number, text, boolean, date or timestamp.
        bounds: Public bounds of columns: `{"cost": (0, 5000)}`.
        keys: Public group keys of columns: `{"region": ["North", "South"]}`.
        public: Public tables by name, to join.
        population: The public number of people; δ must be below 1/population.
        rows_per_unit: The maximum number of rows per privacy unit that count.
        groups_per_unit: The maximum number of groups per privacy unit.
        max_rows_per_unit: A public fact: no unit has more rows in any table. It is the limit unless a smaller
            one is declared, nothing is cut off, and intervals cover the exact answers.
        quotes: False makes each line of a CSV file a row, whatever is in it; otherwise a hostile line that
            opens a quote swallows those that follow.
        encoding: The encoding of CSV files, by Python's name; UTF-8 if omitted. What cannot be decoded is
            U+FFFD.
        separator: `","`, `";"`, a tab or `"|"` between the fields of CSV files; if omitted, that with which
            the header line has most names, as `notes` says.
        partitions: Columns in the names of a folder's folders: `["year"]` for year=2026.
        new_rows: The owner asserts that no other account of the ledger pays for these rows; recorded.
        override: The owner ignores the declared unit, ledger, account or budget; recorded.

    >>> import duckdb
    >>> connection = duckdb.connect()
    >>> _ = connection.execute("CREATE TABLE t AS SELECT i AS person, i % 3 AS x FROM range(1000) r(i)")
    >>> data = open(connection, table="t", unit="person", keys={"x": [0, 1, 2]}, rows_per_unit=1)
    >>> plan = data.sql("SELECT x, COUNT(*) AS n FROM t GROUP BY x", epsilon=1)
    >>> [round(n / 100) for n in data.run(plan).value["n"]]
    [3, 3, 3]
    """
    arguments = OpenArguments(
        data,
        unit=unit,
        table=table,
        budget=budget,
        ledger=ledger,
        account=account,
        analyst=analyst,
        version=version,
        window=window,
        types=types,
        bounds=bounds,
        keys=keys,
        public=public,
        population=population,
        rows_per_unit=rows_per_unit,
        groups_per_unit=groups_per_unit,
        max_rows_per_unit=max_rows_per_unit,
        quotes=quotes,
        encoding=encoding,
        separator=separator,
        partitions=partitions,
        new_rows=new_rows,
        override=override,
    )
    return make_dataset(open_sources(arguments))
