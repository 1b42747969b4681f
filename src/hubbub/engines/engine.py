"""The engine protocol: an engine holds the rows and gives out aggregates as exact integers, nothing else.

A new engine subclasses `remote_engine.RemoteEngine`; docs/engines.md says what it takes.
"""

import threading
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from sqlglot import exp

from hubbub.engines.data_identity import DataIdentity
from hubbub.engines.schema import Key, KeyList, Kind, Table, find_bounds_kind
from hubbub.errors import EngineFailed, InvalidInput
from hubbub.unit import Window

__all__ = [
    "RETRY_HINT",
    "Engine",
    "RecordBatch",
    "SnapshotLock",
    "TableSource",
    "concatenate_batches",
    "query_distinct_values",
    "query_public_rows",
    "resolve_kinds",
    "table_changed",
]

RecordBatch = Mapping[str, NDArray[Any]]
"""Columns of a result by name: integers as int64, group keys as objects (None for SQL's NULL)."""

KeySets = Mapping[str, Sequence[Key]]
"""Public lists of group keys, by the name under which a query joins them."""

RETRY_HINT = "run it again with {again=True}, for another charge: what was charged stays charged"
"""The fix after a failure: with a ledger, the failure is the stored outcome of the charge."""


@dataclass(frozen=True)
class TableSource:
    """The location of a table's rows, and everything declared about the table."""

    rows: Any
    """A path, a data frame, Arrow data, or the name of a table in the engine."""
    types: Mapping[str, Kind] | None = None
    unit: str | None = None
    is_public: bool = False
    bounds: Mapping[str, Any] | None = None
    keys: Mapping[str, Any] | None = None
    window: Window | None = None
    """Rows outside this window are treated as absent."""
    has_quotes: bool = True
    """False: every line of a CSV file is one row, and quotes are ordinary characters."""
    encoding: str = "utf-8"
    """Encoding of a CSV file, by Python's name for it."""
    separator: str | None = None
    """The separator of a CSV file; None where its header line shows it."""
    partitions: tuple[str, ...] = ()
    """Columns of a folder of Parquet files that are written in the names of its folders."""

    @property
    def declared_columns(self) -> tuple[str, ...]:
        """The columns that are declared in any way, each once."""
        names = [*filter(None, [self.unit]), *(self.types or {}), *(self.bounds or {}), *(self.keys or {})]
        return tuple({name.lower(): name for name in reversed(names)}.values())[::-1]


class Engine(Protocol):
    """The system that holds the rows. It runs only queries that hubbub's rules have built."""

    name: str
    dialect: str
    """Name of the engine's SQL dialect in sqlglot."""

    @property
    def tables(self) -> Mapping[str, Table]:
        """The public side of each table, by name."""

    def execute(self, sql: exp.Expr, key_sets: KeySets) -> RecordBatch:
        """Run one query and return its columns.

        An error of the engine is raised as an `EngineFailed` that contains no data.

        Args:
            sql: a query built by the rules.
            key_sets: public lists that the query joins by name. Each is a table with the columns `key` and
                `place`, the index of the key from 0.
        """

    def execute_in_batches(self, sql: exp.Expr, key_sets: KeySets) -> Generator[RecordBatch]:
        """Run one query and yield its rows in batches, in the query's order; never hold all of them.

        There is at least one batch, possibly empty. A caller that stops early must close the generator: the
        engine may be busy with it until then.
        """

    def distinct_values(self, table: str, column: str) -> Sequence[Key]:
        """Distinct values of a public table's column, in order; None last, if present."""

    def fingerprint(self, table: str) -> Any:
        """What a question's fingerprint says about a table's rows, as JSON; None if nothing names them.

        For a protected table it is the location, and nothing of the rows. For a public table it may be a
        digest of the rows.
        """

    def identity(self, table: str) -> DataIdentity:
        """What identifies a table's rows under any name; it contains nothing of the rows."""

    def compile(self, sql: exp.Expr) -> str:
        """Return the SQL in this engine's dialect.

        Raises:
            Unsupported: the query would not mean the same on this engine.
        """

    def check_unchanged(self) -> None:
        """Refuse rows that are known to differ from those that were opened, before anything is charged."""

    def snapshot(self) -> AbstractContextManager[None]:
        """Fix one state of the rows for all queries inside; leave nothing behind."""

    def interrupt(self) -> None:
        """Stop the statement that another thread runs, if there is one: it raises `EngineFailed` there."""

    def close(self) -> None:
        """Release the rows."""


class SnapshotLock:
    """A reentrant lock around a snapshot: only the outermost holder opens and closes it."""

    def __init__(self, lock: "threading.RLock | None" = None) -> None:
        """Args: lock: shared with other engines, if their snapshots must not overlap either."""
        self._lock = lock or threading.RLock()
        self._is_open = False

    @contextmanager
    def hold(self, open_snapshot: Callable[[], AbstractContextManager[None]]) -> Iterator[None]:
        """Run the body inside the snapshot, and open it first if it is not open."""
        with self._lock:
            if self._is_open:
                yield
                return
            with open_snapshot():
                self._is_open = True
                try:
                    yield
                finally:
                    self._is_open = False


def concatenate_batches(batches: Generator[RecordBatch]) -> RecordBatch:
    """Join all batches into one, and close the generator."""
    with closing(batches):
        collected = list(batches)
    return {name: np.concatenate([batch[name] for batch in collected]) for name in collected[0]}


def query_distinct_values(engine: Engine, table: str, column: str) -> Sequence[Key]:
    """Query the distinct values of a public table's column, in order; None last, if present."""
    schema = engine.tables[table]
    assert schema.is_public
    known = schema.find(column)
    name = exp.column(exp.to_identifier(known.name, quoted=True))
    rows = exp.Table(this=exp.to_identifier(schema.name, quoted=True))
    query = exp.Select().select(exp.alias_(name, "k0")).distinct().from_(rows)
    # Texts are ordered byte by byte on every engine.
    query = query.order_by(exp.Ordered(this=exp.column("k0"), nulls_first=False))
    with closing(engine.execute_in_batches(query, {})) as batches:
        values = (batch["k0"].tolist() for batch in batches)
        if known.kind in {Kind.TEXT, Kind.NUMBER}:
            return KeyList.from_batches(values, are_texts=known.kind is Kind.TEXT)
        return [key for batch in values for key in batch]


def query_public_rows(engine: Engine, table: str, max_cells: int) -> dict[str, list[Key]] | None:
    """Query all rows of a public table, by column; None if they are too many. Opaque columns are left out."""
    schema = engine.tables[table]
    assert schema.is_public
    columns = [column for column in schema.columns if column.kind is not Kind.OPAQUE]
    names = [exp.column(exp.to_identifier(column.name, quoted=True)) for column in columns]
    query = exp.Select().select(*(exp.alias_(name, f"k{place}") for place, name in enumerate(names)))
    query = query.from_(exp.Table(this=exp.to_identifier(schema.name, quoted=True)))
    values: dict[str, list[Key]] = {column.name: [] for column in columns}
    with closing(engine.execute_in_batches(query, {})) as batches:
        for batch in batches:
            for place, column in enumerate(values):
                values[column] += batch[f"k{place}"].tolist()
            if sum(map(len, values.values())) > max_cells:
                return None
    return values


def resolve_kinds(
    table: str,
    catalog: Mapping[str, Kind],
    declared: Mapping[str, Kind] | None,
    bounds: Mapping[str, Any] | None = None,
) -> Mapping[str, Kind]:
    """The kind of each column: as declared, or as its bounds imply of a text, or its own."""
    declarations = {column.lower(): kind for column, kind in (declared or {}).items()}
    for column in declarations:
        if column not in {known.lower() for known in catalog}:
            raise InvalidInput(
                f"a type is declared for {column!r}, which is not a column of {table}",
                why="the declaration would be ignored",
                fix=f"use one of: {', '.join(catalog)}",
            )
    implied = {column.lower(): find_bounds_kind(ends) for column, ends in (bounds or {}).items()}
    return {
        column: declarations.get(column.lower())
        or (implied.get(column.lower()) if kind is Kind.TEXT else None)
        or kind
        for column, kind in catalog.items()
    }


def table_changed() -> EngineFailed:
    """The error for a table with other columns than when it was opened."""
    return EngineFailed(
        "a table has changed since it was opened",
        why="its columns or their types have changed, and the plan was made for the old ones",
        fix=f"open it again and make a new plan; {RETRY_HINT}",
    )
