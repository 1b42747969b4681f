"""A released table of many groups, read in batches: neither keys nor answers are ever all in memory.

The engine returns its integers in the order of the groups. Noise is added to each batch as it arrives, and
the noisy integers, which are public, are written to an unnamed file. Answers are computed from it when they
are read, as often as needed.
"""

import tempfile
import threading
import weakref
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from sqlglot import exp

from hubbub.engines.engine import Engine
from hubbub.errors import EngineFailed, Unsupported
from hubbub.output_files import write_output
from hubbub.report.result_files import csv_line, shown_cells
from hubbub.sql.composite_plan import AnyPlan, CompositePlan
from hubbub.sql.executor import (
    Integers,
    ReleasedAggregate,
    fill_table,
    group_indices,
    make_columns,
    resolve_bounds,
)
from hubbub.sql.plan import Plan
from hubbub.sql.planned_aggregates import PlannedAggregate
from hubbub.sql.query import BoundedAggregate
from hubbub.sql.result import Result

__all__ = ["Stream", "check_streamable", "execute_stream"]

MAX_GROUPS = 1 << 16
_INTEGERS = 1 << 21
"""The largest numbers of groups and of integers in a piece."""
_SMALL: dict[str, str | bool | int | float | list[str]] = {"memory_limit": "256MB", "threads": "1"}
"""Settings of a connection that only concatenates pieces."""


@dataclass(frozen=True)
class _SpooledAggregate:
    """The noisy integers of an aggregate, group by group, in an unnamed file."""

    source: PlannedAggregate
    file: BinaryIO
    lock: threading.Lock = field(default_factory=threading.Lock)
    """A file has one position at which it is read."""

    def read(self, start: int, stop: int) -> ReleasedAggregate:
        """The integers of the groups from `start` to before `stop`."""
        size = self.source.vector_size
        with self.lock:
            self.file.seek(8 * start * size)
            stored = self.file.read(8 * (stop - start) * size)
        return ReleasedAggregate(self.source, np.frombuffer(stored, np.int64).reshape(-1, size))


class Stream:
    """A released table that is read in batches, in the order of its keys. It is public.

    >>> import duckdb, hubbub
    >>> connection = duckdb.connect()
    >>> _ = connection.execute("CREATE TABLE t AS SELECT i AS person, i % 3 AS x FROM range(1000) r(i)")
    >>> data = hubbub.open(connection, table="t", unit="person", rows_per_unit=1, keys={"x": range(10**5)})
    >>> plan = data.sql("SELECT x, COUNT(*) AS n FROM t GROUP BY x", epsilon=1)
    >>> stream = data.stream(plan).value
    >>> sum(len(answers) for answers in stream)
    100000
    """

    def __init__(self, plan: Plan, spooled: Sequence[_SpooledAggregate], facts: dict[str, Any]) -> None:
        self._plan = plan
        self._spooled = spooled
        self.facts = facts
        """What was protected, how, and at what cost."""

    def __iter__(self) -> Iterator[Result]:
        groups = self._plan.query.groups()
        size = _groups_per_batch([each.source.vector_size for each in self._spooled])
        for start in range(0, len(groups), size):
            listed = groups[start : start + size]
            released = [each.read(start, start + len(listed)) for each in self._spooled]
            yield Result(tuple(make_columns(self._plan, listed, released, {})), self.facts)

    def write(self, path: str | Path) -> None:
        """Write a Parquet or CSV file, by its suffix; the file appears only when it is complete."""
        writers = {".parquet": self._parquet, ".csv": self._csv}
        write_output(path, writers.get(Path(path).suffix.lower(), self._parquet), tuple(writers))

    def _csv(self, path: Path) -> None:
        with path.open("w", encoding="utf-8", newline="") as paper:
            for number, answers in enumerate(self):
                table = shown_cells(answers)
                if not number:
                    paper.write(csv_line(table))
                paper.writelines(map(csv_line, zip(*table.values(), strict=True)))

    def _parquet(self, path: Path) -> None:
        import duckdb

        with duckdb.connect(str(path.with_name("answers")), config=_SMALL) as connection:
            for number, answers in enumerate(self):
                rows = answers.relation(connection)
                (rows.insert_into if number else rows.create)("answers")
            connection.table("answers").write_parquet(str(path))

    def __repr__(self) -> str:
        outputs = ", ".join(output.name for output in self._plan.query.outputs)
        return f"Stream({self._plan.query.cells} groups of {outputs})"


def check_streamable(plan: AnyPlan) -> Plan:
    """Refuse, before anything is charged, a query that needs all groups at once."""
    if isinstance(plan, CompositePlan):
        raise Unsupported(
            "a query with SQL over its released values is not streamed",
            why="that needs all groups at once",
            fix="stream the grouped query itself, or use run",
        )
    query = plan.query
    if not query.is_public or query.is_top or query.order or query.limit is not None:
        raise Unsupported(
            "the answer cannot be streamed",
            why="its keys are selected privately, or it has ORDER BY or LIMIT, so all of it is needed first",
            fix="declare the keys and leave ORDER BY and LIMIT out, or use run()",
        )
    query.check_groups()
    return plan


def execute_stream(
    plan: Plan, engine: Engine, progress: Callable[[str], None], charged: Mapping[str, Any]
) -> Stream:
    """Run a plan that has been charged, and return its answers as a stream; `charged` is added to its label.

    Guarantee: as `execute`; noise is independent between coordinates, so adding it batch by batch is adding
        it at once.
    Assumes: the batches come from one query, with contribution bounds over the whole table.
    Proof: docs/proofs/bounding.md, "A plan"
    """
    check_streamable(plan)
    plan, above = resolve_bounds(plan, engine, progress)
    spooled = []
    with ExitStack() as files:
        for each in plan.aggregates:
            progress("counting")
            spool = _SpooledAggregate(each, files.enter_context(tempfile.TemporaryFile()))
            size = _groups_per_batch([max(each.vector_size, each.bounded.bins)])
            with closing(_tables(plan, each.bounded, engine, size)) as tables:
                for table in tables:
                    spool.file.write(each.release(table, plan.unit).tobytes())
            spooled.append(spool)
        stream = Stream(plan, spooled, {**plan.label(above), **charged})
        weakref.finalize(stream, files.pop_all().close)
    return stream


def _tables(plan: Plan, bounded: BoundedAggregate, engine: Engine, size: int) -> Generator[Integers]:
    """The engine's integers, `size` groups at a time; zeros where a group has no rows."""
    keys = len(plan.query.keys)
    by = [f"p{number}" for number in range(keys)] + (["b"] if bounded.bins > 1 else [])
    ordered = bounded.sql.order_by(*(exp.column(name) for name in by)) if by else bounded.sql
    cells, start, last = plan.query.cells, 0, -1
    table = _zeros(bounded, min(size, cells))
    with closing(engine.execute_in_batches(ordered, bounded.key_sets)) as pieces:
        for batch in pieces:
            indices = group_indices(bounded, batch, keys)
            rows = indices * bounded.bins + (batch["b"] if bounded.bins > 1 else 0)
            if np.any(np.diff(rows, prepend=last) <= 0):
                raise EngineFailed(
                    "the engine gave its rows in another order than it was asked for, or one twice",
                    why="a group could get noise twice, or more rows than its noise covers",
                    fix="use run(); what was charged stays charged",
                )
            last = int(rows[-1]) if rows.size else last
            at = 0
            while at < indices.size:
                while indices[at] >= start + size:
                    yield table
                    start += size
                    table = _zeros(bounded, min(size, cells - start))
                stop = int(np.searchsorted(indices, start + size))
                part = {name: column[at:stop] for name, column in batch.items()}
                table += fill_table(bounded, part, indices[at:stop] - start, len(table) // bounded.bins)
                at = stop
    while start < cells:
        yield table
        start += size
        table = _zeros(bounded, min(size, cells - start))


def _zeros(bounded: BoundedAggregate, groups: int) -> Integers:
    return np.zeros((max(0, groups) * bounded.bins, bounded.columns), np.int64)


def _groups_per_batch(sizes: Sequence[int]) -> int:
    """Number of groups in a batch, from the integers that each group has."""
    return max(1, min(MAX_GROUPS, _INTEGERS // max(sizes, default=1)))
