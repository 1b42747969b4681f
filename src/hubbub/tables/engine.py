"""What an engine is: it holds the rows, and gives out aggregates as exact integers, nothing else."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from sqlglot import exp

from hubbub.tables.schema import Key, Table

__all__ = ["Columns", "Engine"]

Columns = Mapping[str, NDArray[Any]]
"""What comes back: by name, integers as int64, keys as objects (None where there is none)."""


class Engine(Protocol):
    """Where the rows live. It is handed only what the rules have built."""

    name: str
    dialect: str
    """Of sqlglot, in which its SQL is written."""
    tables: Mapping[str, Table]

    def aggregates(self, sql: exp.Expr, key_sets: Mapping[str, Sequence[Key]]) -> Columns:
        """Run one query and give back its columns.

        `key_sets` are public lists that it joins by name, each a table with the columns `key` and
        `place`, its number from 0. An error of the engine is raised as one of ours that holds no data.
        """

    def public_keys(self, table: str, column: str) -> Sequence[Key]:
        """The different values of a column of a public table, in order; None last, if it is one."""

    def shown(self, sql: exp.Expr) -> str:
        """The SQL as this engine reads it."""

    def close(self) -> None:
        """Let go of the rows."""


def as_keys(column: NDArray[Any]) -> NDArray[Any]:
    """A column of keys as Python values, None where there is none."""
    if isinstance(column, np.ma.MaskedArray):
        plain = np.asarray(column.data, dtype=object)
        plain[np.ma.getmaskarray(column)] = None
        return plain
    return np.asarray(column, dtype=object)
