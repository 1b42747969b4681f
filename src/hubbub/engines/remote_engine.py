"""The base of remote engines: opening tables, compiling queries, batches, snapshots and errors.

A remote engine reads each table through a sub-query (a scan) in which every column has its declared kind, so
it creates nothing where the rows are. What differs between engines is mostly data: a table of types, a table
of translations, a table of error codes. The hooks below say what is left to write; docs/engines.md lists
them in order.
"""

from abc import ABC, abstractmethod
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from dataclasses import dataclass
from itertools import islice
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sqlglot import exp

from hubbub.engines.data_identity import DataIdentity
from hubbub.engines.dialect import Translations, output_names, translate
from hubbub.engines.engine import (
    RETRY_HINT,
    KeySets,
    RecordBatch,
    SnapshotLock,
    TableSource,
    concatenate_batches,
    query_distinct_values,
    resolve_kinds,
)
from hubbub.engines.schema import UNIT, Key, Kind, Table
from hubbub.engines.total_functions import convert_kind, in_window
from hubbub.errors import EngineFailed, HubbubError, InvalidInput

__all__ = ["BATCH_ROWS", "Relation", "RemoteColumn", "RemoteEngine", "quoted_column"]

_NOT_RUN = "the engine could not run the query"
BATCH_ROWS = 1 << 16
"""Rows of a result that are held at a time."""


@dataclass(frozen=True)
class RemoteColumn:
    """A column as the engine's catalog describes it."""

    name: str
    sql_type: str
    kind: Kind
    type_class: str = ""
    """The sort of type, where the catalog tells: PostgreSQL's `typtype`."""


@dataclass(frozen=True)
class Relation:
    """A table as the engine's catalog describes it when it is opened."""

    table: exp.Table
    """The relation that a query reads it from."""
    columns: tuple[RemoteColumn, ...]
    handle: Any = None
    """What else the engine needs to find the table again, and to see that it has not changed."""


@dataclass(frozen=True)
class _Scan:
    relation: Relation
    sql: exp.Expr
    """A query of all rows, in which every column has its declared kind."""
    unit_type: str | None


class RemoteEngine(ABC):
    """An engine that reads rows which live elsewhere.

    Guarantee: it gives out aggregates, the same integers as any other engine, and leaves nothing behind.
    Proof: docs/proofs/bounding.md, "Engines"
    """

    name: str
    dialect: str
    """Name of the engine's SQL dialect in sqlglot."""
    translations: ClassVar[Translations]
    """For each node that means something else on this engine, an equivalent."""
    unit_types: ClassVar[str]
    """The types that a unit's key may have, for an error message."""

    def __init__(self, sources: Mapping[str, TableSource], lock: Any = None) -> None:
        self._snapshot_lock = SnapshotLock(lock)
        self._scans: dict[str, _Scan] = {}
        with self._guard("the data cannot be opened"):
            self.tables: Mapping[str, Table] = {
                name: self._open_table(name, source) for name, source in sources.items()
            }

    # The protocol

    def execute(self, sql: exp.Expr, key_sets: KeySets) -> RecordBatch:
        """Run one query; see `Engine`."""
        return concatenate_batches(self.execute_in_batches(sql, key_sets))

    def execute_in_batches(self, sql: exp.Expr, key_sets: KeySets) -> Generator[RecordBatch]:
        """Run one query and yield its rows in batches; see `Engine`."""
        names = output_names(sql)
        with self.snapshot(), self._guard(), closing(self._stream_rows(sql, key_sets)) as rows:
            while True:
                batch = list(islice(rows, BATCH_ROWS))
                columns = zip(*batch, strict=True) if batch else ([] for _ in names)
                yield {
                    name: _make_array(name, list(values)) for name, values in zip(names, columns, strict=True)
                }
                if len(batch) < BATCH_ROWS:
                    break

    def distinct_values(self, table: str, column: str) -> Sequence[Key]:
        """Distinct values of a public table's column; see `Engine`."""
        return query_distinct_values(self, table, column)

    def compile(self, sql: exp.Expr) -> str:
        """Return the SQL in this engine's dialect; see `Engine`."""
        scans = {name: scan.sql for name, scan in self._scans.items()}
        return translate(sql, self.translations, scans, self.dialect)

    def check_unchanged(self) -> None:  # noqa: B027 - not abstract: no remote engine knows more
        """Do nothing: changes are found when the snapshot is opened; see `Engine`."""

    def snapshot(self) -> AbstractContextManager[None]:
        """Fix one state of the rows for all queries inside; see `Engine`."""
        return self._snapshot_lock.hold(self._open_snapshot)

    @abstractmethod
    def fingerprint(self, table: str) -> Any:
        """What a question's fingerprint says about a table's rows; see `Engine`."""

    @abstractmethod
    def identity(self, table: str) -> DataIdentity:
        """What identifies a table's rows; see `Engine`."""

    @abstractmethod
    def interrupt(self) -> None:
        """Stop the statement that another thread runs; see `Engine`."""

    @abstractmethod
    def close(self) -> None:
        """Release the connection; see `Engine`."""

    # What each engine adds

    @abstractmethod
    def _describe(self, name: str, source: TableSource) -> Relation:
        """Read a table's columns from the catalog, never from rows; refuse what may not be read."""

    @abstractmethod
    def _read_column(self, column: RemoteColumn) -> exp.Expr:
        """A column as its catalog kind, by an expression that no value can make fail."""

    @abstractmethod
    def _read_opaque(self, column: RemoteColumn, kind: Kind) -> exp.Expr:
        """A column of a type without a kind, declared as `kind`: as a text; or refuse it."""

    @abstractmethod
    def _unit_type(self, column: RemoteColumn) -> str | None:
        """The type in which the unit's keys are compared; None if they cannot be."""

    @abstractmethod
    def _read_unit(self, column: RemoteColumn, unit_type: str) -> exp.Expr:
        """The unit's key, of one type in all tables, equal only where it is equal byte by byte."""

    @abstractmethod
    def _open_snapshot(self) -> AbstractContextManager[None]:
        """Begin a snapshot in which every relation is as it was when it was opened, and end it."""

    @abstractmethod
    def _stream_rows(self, sql: exp.Expr, key_sets: KeySets) -> Generator[Sequence[Any]]:
        """Run a query inside the snapshot, with its key sets, and yield its rows as they come."""

    @abstractmethod
    def _explain(self, problem: Exception) -> tuple[str, str]:
        """The reason for an error and its fix, in words without data."""

    @staticmethod
    def _silence() -> AbstractContextManager[None]:
        """Keep the engine's client from writing to a log or a terminal; by default it does not."""
        return nullcontext()

    # Opening

    def _open_table(self, name: str, source: TableSource) -> Table:
        relation = self._describe(name, source)
        catalog = {column.name: column.kind for column in relation.columns}
        kinds = resolve_kinds(name, catalog, source.types, source.bounds)
        table = Table.of(
            name, kinds, unit=source.unit, bounds=source.bounds, keys=source.keys, is_public=source.is_public
        )
        read = {column.name: self._convert(column, kinds[column.name]) for column in relation.columns}
        sql = exp.Select().from_(relation.table)
        for column_name, expression in read.items():
            sql = sql.select(exp.alias_(expression, column_name, quoted=True))
        if source.window is not None:
            sql = sql.where(in_window(source.window, table, read))
        unit_type = None
        if source.unit is not None:
            key = table.find(source.unit).name
            column = next(each for each in relation.columns if each.name == key)
            unit_type = self._check_unit(column)
            sql = sql.select(exp.alias_(self._read_unit(column, unit_type), UNIT, quoted=True))
        self._scans[name] = _Scan(relation, sql, unit_type)
        return table

    def _convert(self, column: RemoteColumn, kind: Kind) -> exp.Expr:
        if column.kind is Kind.OPAQUE is not kind:
            return convert_kind(self._read_opaque(column, kind), Kind.TEXT, kind, column.name)
        return convert_kind(self._read_column(column), column.kind, kind, column.name)

    def _check_unit(self, column: RemoteColumn) -> str:
        unit_type = self._unit_type(column)
        others = {scan.unit_type for scan in self._scans.values() if scan.unit_type is not None}
        if unit_type is None or others - {unit_type}:
            raise InvalidInput(
                f"the unit's column {column.name!r} has a type that no unit has, or another type elsewhere",
                why="the comparison would decide which keys belong to one person",
                fix=f"give it one type in all tables: {self.unit_types}",
            )
        return unit_type

    # Errors

    @contextmanager
    def _guard(self, what: str = _NOT_RUN) -> Iterator[None]:
        """Replace the engine's errors by ours: its messages contain the query, and may contain data."""
        try:
            with self._silence():
                yield
        except HubbubError:
            raise
        except Exception as problem:  # noqa: BLE001 - any message may contain data
            why, fix = self._explain(problem)
            # Where it was only opened, nothing is charged.
            hint = f"{fix}; {RETRY_HINT}" if what == _NOT_RUN else fix
            raise EngineFailed(what, why=why, fix=hint) from None


def quoted_column(name: str) -> exp.Column:
    """A column by its exact name."""
    return exp.column(exp.to_identifier(name, quoted=True))


def _make_array(name: str, values: list[Any]) -> NDArray[Any]:
    """An array of group keys, in columns named k…, or of integers."""
    if name[:1] != "k":
        return np.array(values, dtype=np.int64)
    column = np.empty(len(values), dtype=object)
    column[:] = values
    return column
