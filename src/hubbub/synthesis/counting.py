"""Counting: the exact tables that mechanisms measure, with their sensitivity; from an engine or from memory.

A table counts rows by cells. Where units have several rows, a row counts an integer weight: a row of full
weight counts `scale`, and all rows of one unit count at most `scale · max_weight` together, in every table.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from hubbub.errors import InvalidInput
from hubbub.sensitivity import Bounded, Sensitivity
from hubbub.sql.bounding_sql import neighbour_sensitivity
from hubbub.synthesis.domain import Column, Domain
from hubbub.unit import Neighbours, Unit, group_rows_by_unit

__all__ = [
    "WEIGHT_BITS",
    "Counts",
    "InMemoryCounts",
    "Integers",
    "bound_table",
    "merge_shape",
    "table_sensitivity",
]

Integers = NDArray[np.int64]
WEIGHT_BITS = 12
"""A row of full weight counts 2^12, where units may have several rows."""
RULE = "Weights by rows"


class Counts(Protocol):
    """Exact counts of one table's rows. They may leave only through a mechanism.

    Guarantee: one unit adds to every table a vector of non-negative integers with ℓ1 norm at most
        `scale · max_weight`, the same sum in every table; all tables are marginals of one.
    Proof: docs/proofs/bounding.md, "Weights by rows"
    """

    @property
    def domain(self) -> Domain:
        """The cells."""

    @property
    def unit(self) -> Unit:
        """The protected unit."""

    @property
    def scale(self) -> int:
        """The count of a row of full weight."""

    @property
    def max_weight(self) -> int:
        """The maximum number of rows per unit: what one unit counts at most, in rows of full weight."""

    def count(self, names: tuple[str, ...]) -> Integers:
        """The table of these columns, of shape `domain.shape(names)`; of none, the total."""

    def count_many(
        self, tables: Iterable[tuple[str, ...]], groups: Mapping[str, Integers] | None = None
    ) -> dict[tuple[str, ...], Integers]:
        """Several tables, in as few scans as possible.

        Args:
            tables: the columns of each.
            groups: of columns with cells that are added up, the group of each cell.
        """

    def histogram(self, name: str, cuts: Sequence[Fraction]) -> Integers:
        """The counts of one column with other cuts, for instance a public fine grid; NULL has its cell."""

    def with_domain(self, domain: Domain) -> "Counts":
        """The same rows, in the cells of another domain with the same columns and other bins."""


def merge_shape(
    domain: Domain, names: Sequence[str], groups: Mapping[str, Integers] | None
) -> tuple[int, ...]:
    """The shape of a table in which the cells of some columns are added up by group."""
    merged = groups or {}
    return tuple(
        int(merged[name].max()) + 1 if name in merged else domain.column(name).size for name in names
    )


def table_sensitivity(counts: Counts) -> Sensitivity:
    """How far one unit moves one table of counts, in the integers that are counted.

    Guarantee: as the sensitivity of a vector of non-negative integers with ℓ1 norm at most
        `scale · max_weight` per unit.
    Proof: docs/proofs/bounding.md, "Weights by rows"
    """
    most = Fraction(counts.scale * counts.max_weight)
    return neighbour_sensitivity(counts.unit.neighbours, most, most**2, most)


def bound_table(counts: Counts, table: Integers) -> Bounded:
    """A table that was counted, flat, with its sensitivity, for a mechanism."""
    return Bounded(table.ravel(), table_sensitivity(counts), counts.unit, RULE)


@dataclass(frozen=True, eq=False)
class InMemoryCounts:
    """Rows in memory: for tests, and for tables that fit. The same integers as an engine's."""

    domain: Domain
    unit: Unit
    scale: int
    max_weight: int
    _values: Mapping[str, Any]
    _weights: Integers
    _cells: Mapping[str, Integers]

    @classmethod
    def of(
        cls,
        domain: Domain,
        values: Mapping[str, Sequence[Any] | NDArray[Any]],
        *,
        neighbours: Neighbours = Neighbours.ADD_REMOVE,
        units: Sequence[Any] | None = None,
        max_weight: int = 1,
    ) -> "InMemoryCounts":
        """Make counts from columns of values.

        Args:
            domain: the cells.
            values: the values of each column of the domain.
            neighbours: the neighbouring relation.
            units: the identifier of each row's unit; each row is a unit if omitted.
            max_weight: the maximum number of rows per unit.
        """
        missing = [name for name in domain.names if name not in values]
        if missing or len({len(values[name]) for name in domain.names}) > 1:
            raise InvalidInput(
                "a column has no values, or columns differ in length",
                why="every row has one value of each column",
                fix="pass one list for each column of the domain, all of the same length",
            )
        cells = {column.name: column.encode(values[column.name]) for column in domain.columns}
        inside = np.all([each >= 0 for each in cells.values()], axis=0)
        if units is None:
            unit, scale = Unit.row(neighbours), 1
            weights = inside.astype(np.int64)
        else:
            unit, scale = Unit("unit", neighbours), 1 << WEIGHT_BITS
            weights = np.zeros(inside.size, dtype=np.int64)
            for rows in group_rows_by_unit(units, inside.size):
                own = rows[inside[rows]]
                if own.size:
                    weights[own] = scale if own.size <= max_weight else max_weight * scale // own.size
        inner_cells = {name: np.where(inside, each, 0) for name, each in cells.items()}
        return cls(
            domain, unit, scale, max_weight if units is not None else 1, dict(values), weights, inner_cells
        )

    def count(self, names: tuple[str, ...]) -> Integers:
        """The table of these columns."""
        return self._count([self._cells[name] for name in names], self.domain.shape(names))

    def count_many(
        self, tables: Iterable[tuple[str, ...]], groups: Mapping[str, Integers] | None = None
    ) -> dict[tuple[str, ...], Integers]:
        """Several tables."""
        own = dict(self._cells)
        own.update({name: group[own[name]] for name, group in (groups or {}).items()})
        return {
            names: self._count([own[name] for name in names], merge_shape(self.domain, names, groups))
            for names in tables
        }

    def histogram(self, name: str, cuts: Sequence[Fraction]) -> Integers:
        """The counts of one column with other cuts."""
        column = self.domain.column(name).with_cuts(cuts)
        cells = np.where(self._weights > 0, column.encode(self._values[name]), 0)
        return self._count([cells], (column.size,))

    def with_domain(self, domain: Domain) -> "InMemoryCounts":
        """The same rows with other bins."""
        changed: list[Column] = [
            column for column in domain.columns if column != self.domain.column(column.name)
        ]
        cells = dict(self._cells)
        for column in changed:
            cells[column.name] = np.where(self._weights > 0, column.encode(self._values[column.name]), 0)
        return InMemoryCounts(
            domain, self.unit, self.scale, self.max_weight, self._values, self._weights, cells
        )

    def _count(self, cells: Sequence[Integers], shape: tuple[int, ...]) -> Integers:
        if not cells:
            return np.array(int(self._weights.sum()), dtype=np.int64)
        index = np.ravel_multi_index(tuple(cells), shape)
        # Doubles count exactly up to 2^53.
        total = np.zeros(int(np.prod(shape)), dtype=np.int64)
        np.add.at(total, index, self._weights)
        return total.reshape(shape)
