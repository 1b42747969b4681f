"""What an engine is: it holds the rows, and gives out aggregates as exact integers, nothing else."""

import threading
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from sqlglot import exp

from hubbub.engines.data_identity import DataIdentity
from hubbub.engines.schema import Key, KeyList, Kind, Table
from hubbub.errors import InvalidInput
from hubbub.unit import Window

__all__ = [
    "RETRY_HINT",
    "Engine",
    "RecordBatch",
    "SnapshotLock",
    "TableSource",
    "as_keys",
    "concatenate_batches",
    "query_distinct_values",
    "resolve_kinds",
]

RecordBatch = Mapping[str, NDArray[Any]]
"""What comes back: by name, integers as int64, keys as objects (None where there is none)."""


@dataclass(frozen=True)
class TableSource:
    """Where a table's rows are, and what is declared of it."""

    rows: Any
    """A path, a data frame, Arrow data, or the name of a table where the engine is."""
    types: Mapping[str, Kind] | None = None
    unit: str | None = None
    is_public: bool = False
    bounds: Mapping[str, Any] | None = None
    keys: Mapping[str, Any] | None = None
    window: Window | None = None
    """Which stretch of time is meant: all other rows are as if they were not there."""
    has_quotes: bool = True
    """Whether a CSV file quotes fields; without, each line is a row whatever is in it."""
    encoding: str = "utf-8"
    """Of a CSV file, one of Python's."""


class Engine(Protocol):
    """Where the rows live. It is handed only what the rules have built."""

    name: str
    dialect: str
    """Of sqlglot, in which its SQL is written."""

    @property
    def tables(self) -> Mapping[str, Table]:
        """What is public of its tables."""

    def execute(self, sql: exp.Expr, key_sets: Mapping[str, Sequence[Key]]) -> RecordBatch:
        """Run one query and give back its columns.

        `key_sets` are public lists that it joins by name, each a table with the columns `key` and
        `place`, its number from 0. An error of the engine is raised as one of ours that holds no data.
        """

    def execute_in_batches(
        self, sql: exp.Expr, key_sets: Mapping[str, Sequence[Key]]
    ) -> Generator[RecordBatch]:
        """As `aggregates`, some rows at a time in the query's order; never all of them are held here.

        Who does not read to the end must close it: an engine may be busy with it till then.
        """

    def distinct_values(self, table: str, column: str) -> Sequence[Key]:
        """The different values of a column of a public table, in order; None last, if it is one."""

    def fingerprint(self, table: str) -> Any:
        """Where a table's rows are, as JSON can hold it: no others are there. None where they have no place.

        Of a protected table nothing of the rows is in it; of a public one what its rows are may be.
        """

    def identity(self, table: str) -> DataIdentity:
        """By what a table's rows are known, under whatever name; nothing of the rows is in it."""

    def compile(self, sql: exp.Expr) -> str:
        """The SQL as this engine reads it; raises `Unsupported` where it would not mean the same here."""

    def check_unchanged(self) -> None:
        """Refuse rows that are known not to be those that were opened: before anything is charged."""

    def snapshot(self) -> AbstractContextManager[None]:
        """One state of the rows for all that is asked inside; nothing of ours is left behind."""

    def close(self) -> None:
        """Let go of the rows."""


RETRY_HINT = "ask then with {again=True}, for another charge: what was charged stays charged"
"""What helps after a failure: with a ledger it is what comes out whenever the same is asked."""


class SnapshotLock:
    """One at a time; who is inside may enter again, and only the outermost begins and ends."""

    def __init__(self) -> None:
        self._busy = threading.RLock()
        self._is_inside = False

    @contextmanager
    def hold(self, snapshot: Callable[[], AbstractContextManager[None]]) -> Iterator[None]:
        """Inside of a state, which is entered if nobody has."""
        with self._busy:
            if self._is_inside:
                yield
                return
            with snapshot():
                self._is_inside = True
                try:
                    yield
                finally:
                    self._is_inside = False


def as_keys(column: NDArray[Any]) -> NDArray[Any]:
    """A column of keys as Python values, None where there is none."""
    if isinstance(column, np.ma.MaskedArray):
        plain = np.asarray(column.data, dtype=object)
        plain[np.ma.getmaskarray(column)] = None
        return plain
    return np.asarray(column, dtype=object)


def concatenate_batches(pieces: Generator[RecordBatch]) -> RecordBatch:
    """All pieces in one; there is always one, though it may have no rows."""
    with closing(pieces):
        listed = list(pieces)
    return {name: np.concatenate([piece[name] for piece in listed]) for name in listed[0]}


def query_distinct_values(engine: Engine, table: str, column: str) -> Sequence[Key]:
    """The different values of a column of a public table, in order; None last, if it is one."""
    known = engine.tables[table]
    assert known.is_public
    name = exp.column(exp.to_identifier(known.find(column).name, quoted=True))
    rows = exp.Table(this=exp.to_identifier(known.name, quoted=True))
    asked = exp.Select().select(exp.alias_(name, "k0")).distinct().from_(rows)
    # Texts are ordered byte by byte, on every engine.
    asked = asked.order_by(exp.Ordered(this=exp.column("k0"), nulls_first=False))
    kind = known.find(column).kind
    with closing(engine.execute_in_batches(asked, {})) as found:
        pieces = (piece["k0"].tolist() for piece in found)
        if kind in {Kind.TEXT, Kind.NUMBER}:
            return KeyList.from_batches(pieces, are_texts=kind is Kind.TEXT)
        return [key for piece in pieces for key in piece]


def resolve_kinds(
    table: str, found: Mapping[str, Kind], declared: Mapping[str, Kind] | None
) -> Mapping[str, Kind]:
    """The kind of each column: as declared, or as it was found in the schema."""
    wanted = {column.lower(): kind for column, kind in (declared or {}).items()}
    for column in wanted:
        if column not in {known.lower() for known in found}:
            raise InvalidInput(
                f"a type is declared for {column!r}, which is not a column of {table}",
                why="it would be passed over in silence",
                fix=f"use one of: {', '.join(found)}",
            )
    return {column: wanted.get(column.lower(), kind) for column, kind in found.items()}
