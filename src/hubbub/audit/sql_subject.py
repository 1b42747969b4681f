"""A whole SQL query through hubbub as a subject of an audit: tables that differ in one person."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import duckdb

from hubbub.audit.outcomes import Failure, Outcomes
from hubbub.dataset import Dataset
from hubbub.dataset_opening import open as open_dataset
from hubbub.errors import HubbubError
from hubbub.unit import Neighbours, Unit

__all__ = ["SqlSubject"]


@dataclass(frozen=True)
class SqlSubject:
    """A query on a table `data(person, value)`, answered by hubbub at a stated ε.

    A database is a list with one entry per person: a number or a text, or a list of them for a person with
    several rows.
    """

    sql: str
    epsilon: Any
    delta: Any = 0
    bounds: Mapping[str, Any] = field(default_factory=dict)
    keys: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    """More arguments of `Dataset.sql`, such as `rows_per_unit`."""
    neighbours: Neighbours = Neighbours.ADD_REMOVE
    """What hubbub protects: an audit of substituted people needs a promise for these."""

    @property
    def name(self) -> str:
        """The query."""
        return self.sql

    def draw(self, database: Any, count: int) -> Outcomes:
        """Ask the query `count` times on a table of its own; a failure is an answer too.

        A query that cannot be planned is refused: planning reads no row, so there is nothing to audit.
        """
        with TemporaryDirectory(prefix="hubbub-audit-") as folder, self._open(database, folder) as data:
            plan = data.sql(
                self.sql,
                epsilon=self.epsilon,
                bounds=dict(self.bounds),
                keys=dict(self.keys),
                intervals=False,
                **({"delta": self.delta} if self.delta else {}),
                **self.options,
            )
            return Outcomes.of([_answer(data, plan) for _ in range(count)])

    def _open(self, database: Sequence[Any], folder: str) -> Dataset:
        """Open the table from a file: an owner's connection is checked whole at each answer."""
        rows = [
            (person, value)
            for person, entry in enumerate(database)
            for value in (entry if isinstance(entry, (list, tuple)) else [entry])
        ]
        kind = "VARCHAR" if any(isinstance(value, str) for _, value in rows) else "DOUBLE"
        if self.keys and kind == "DOUBLE" and not rows:
            kind = "VARCHAR"
        path = Path(folder) / "data.parquet"
        with duckdb.connect() as connection:
            connection.execute(f"CREATE TABLE data (person BIGINT, value {kind})")
            if rows:
                connection.executemany("INSERT INTO data VALUES (?, ?)", rows)
            connection.execute(f"COPY data TO '{str(path).replace(chr(39), chr(39) * 2)}' (FORMAT parquet)")
        return open_dataset(path, unit=Unit("person", self.neighbours), table="data")


def _answer(data: Dataset, plan: Any) -> Any:
    try:
        result = data.run(plan).value
    except HubbubError as problem:
        return Failure(type(problem).__name__)
    columns = [list(column.values) for column in result.columns]
    rows = [tuple(row) for row in zip(*columns, strict=True)]
    return rows[0] if len(rows) == 1 else rows
