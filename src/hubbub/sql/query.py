"""The analyzed query: its aggregates, group keys and outputs, and bounded aggregates with their sensitivity.

Proof: docs/proofs/bounding.md
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from fractions import Fraction
from itertools import product
from math import prod
from typing import final, overload

import numpy as np
from sqlglot import exp

from hubbub.engines.schema import Bounds, Key, Kind
from hubbub.errors import InvalidInput, Unsupported
from hubbub.sensitivity import Sensitivity

__all__ = [
    "AggregateCall",
    "Argument",
    "BoundedAggregate",
    "ContributionBounds",
    "GroupKey",
    "Groups",
    "Order",
    "Output",
    "Query",
]


@dataclass(frozen=True)
class ContributionBounds:
    """The contribution bounds of one unit."""

    rows: int | None = None
    """Rows, all groups together; or values of a COUNT(DISTINCT …)."""
    groups: int | None = None
    rows_per_group: int | None = None

    def __post_init__(self) -> None:
        for name in ("rows", "groups", "rows_per_group"):
            bound = getattr(self, name)
            if bound is not None and (
                isinstance(bound, bool) or not isinstance(bound, int) or not 0 < bound < 2**20
            ):
                raise InvalidInput(
                    f"{name.replace('_', ' ')} per unit is not a whole number from 1 to 2^20 - 1",
                    why="the noise is calibrated to this bound",
                    fix="pass how much one unit may contribute, as 5",
                )


@dataclass(frozen=True)
class BoundedAggregate:
    """One query to the engine: for each group some integers, and how far one unit moves them all.

    Guarantee: between neighbouring databases the vector of all its integers moves by `sensitivity` at most.
    Assumes: what `Query` guarantees of its rows; the engine's integers are integers.
    Proof: docs/proofs/bounding.md
    """

    sql: exp.Select
    columns: int
    """The number of integers of a group: the columns m0, m1, …"""
    sensitivity: Sensitivity
    step: Fraction
    """The value of one step, in rows or units."""
    rule: str
    """The rule, as a section of the proof page."""
    key_sets: Mapping[str, Sequence[Key]] = field(default_factory=dict)
    bins: int = 1
    """For a histogram of values: how many bins a group has; the column `b` says which."""
    counts_units: bool = False
    """True if a column `u` counts the units that keep the group, as `key_candidates` does."""
    is_weighted: bool = False
    """True if units above a bound count less: then each of their rows loses up to 2^-39."""


# What is asked: immutable, the same whether it was written in SQL or built in Python.
#
# A query is a row-level relation (keys `k0, k1, …` and arguments `x0, x1, …` of each row, and its unit),
# aggregates of these, and outputs: expressions over keys and aggregates that are computed from what was
# released, so they cost nothing more.

_MAX_KEYS = 1 << 24
_MULTIPLYING = (exp.Join, exp.SetOperation, exp.Lateral, exp.Unnest)
"""Constructs that may make more rows of a unit than its tables have."""


@dataclass(frozen=True)
class GroupKey:
    """One column of the GROUP BY."""

    name: str
    kind: Kind
    values: Sequence[Key] | None
    """Those of the answer's rows, public; None where they are to be selected privately."""
    is_complete: bool = False
    """True if no row can have another value; else such rows are left out, and the plan says so."""


@dataclass(frozen=True)
class Argument:
    """The argument of an aggregate."""

    name: str
    kind: Kind
    bounds: Bounds | None
    is_auto: bool = False
    """True if its bounds are estimated privately."""


@dataclass(frozen=True)
class AggregateCall:
    """One call of an aggregate function: its kind and the indices of its arguments."""

    kind: str
    """count, units, distinct, sum, mean, variance, deviation, quantile, covariance, correlation, slope; those
    of distinct values are "distinct sum" and its like."""
    arguments: tuple[int, ...] = ()
    fraction: Fraction | None = None
    """The fraction of a quantile."""
    is_sample: bool = False
    """True for a sample's variance: divided by n − 1."""
    per_group: tuple[str, Fraction, Fraction] | None = None
    """Taken of each unit's own count, sum or mean in a group, clamped between two ends."""
    note: str = ""
    """A note for readers, such as that a MAX is a high quantile."""

    @property
    def is_distinct(self) -> bool:
        """True if it is taken of distinct values."""
        return self.kind.startswith("distinct")


@dataclass(frozen=True)
class Output:
    """A column of the answer: an expression over the columns k0… and a0…"""

    name: str
    sql: exp.Expr

    @property
    def key(self) -> int | None:
        """The index of its group key, if the output is just that key."""
        return int(self.sql.name[1:]) if _is(self.sql, "k") else None

    @property
    def aggregate(self) -> int | None:
        """The index of its aggregate, if the output is just that aggregate."""
        return int(self.sql.name[1:]) if _is(self.sql, "a") else None


@dataclass(frozen=True)
class Order:
    """One column of the ORDER BY."""

    sql: exp.Expr
    is_descending: bool
    nulls_first: bool = False


@dataclass(frozen=True)
class Query:
    """A query of a dataset, analyzed and frozen.

    Guarantee: `rows` gives each row with its unit, and a row is a function of its unit's rows alone.
    Proof: docs/proofs/bounding.md
    """

    text: str
    """As it was written, for people."""
    rows: exp.Select
    is_keyed: bool
    """True if `rows` has the column of the unit; else each row is a unit."""
    is_numbered: bool
    """True if that column is a row's number, which only tells which rows belong to one unit."""
    keys: tuple[GroupKey, ...]
    arguments: tuple[Argument, ...]
    aggregates: tuple[AggregateCall, ...]
    outputs: tuple[Output, ...]
    having: exp.Expr | None = None
    order: tuple[Order, ...] = ()
    limit: int | None = None
    max_rows_per_unit: int | None = None
    """How many rows a unit has at most, where the query itself sees to that, or the owner declares it."""
    rows_kept_for_join: int | None = None
    """How many rows of a unit each side of a join of protected tables keeps; None where none are joined."""
    is_top: bool = False
    """True if only the keys of the largest counts are asked for: a private selection of the top k."""
    now: datetime | None = None
    """What NOW() and CURRENT_DATE are in it, in UTC, if it asks for the time."""
    derived_bounds: tuple[int, ...] = ()
    """The arguments with bounds that follow from those of their columns."""
    cuts_quotients: bool = False
    """True if it has a quotient x // y of rows, which is cut towards zero."""

    def with_cap(self, rows: int | None) -> "Query":
        """The query where it is known that no unit has more rows in any table.

        A join or a union may make more of them: then nothing is known.
        """
        if rows is None or not self.is_keyed or self.rows.find(*_MULTIPLYING) is not None:
            return self
        return replace(self, max_rows_per_unit=min(rows, self.max_rows_per_unit or rows))

    @property
    def is_public(self) -> bool:
        """True if all group keys are public."""
        return all(key.values is not None for key in self.keys)

    @property
    def cells(self) -> int:
        """The number of groups, if all keys are public."""
        return prod(len(key.values or ()) for key in self.keys)

    @property
    def notes(self) -> list[str]:
        """Notes on the result: where it differs from SQL, and which rows are left out."""
        notes = [kind.note for kind in self.aggregates if kind.note]
        if any(kind.kind == "quantile" and not kind.note for kind in self.aggregates):
            notes.append(
                "a median or quantile is the least value that this share of the rows does not exceed, to the "
                "width of a bin; it is not interpolated between two rows"
            )
        for key in self.keys:
            if key.values is not None and not key.is_complete:
                nothing = "" if None in key.values else "NULL or "
                others = f"not among its {len(key.values)} keys" if len(key.values) > 1 else "not its one key"
                notes.append(f"rows are left out if {key.name} is {nothing}{others}")
        for place in self.derived_bounds:
            argument = self.arguments[place]
            if argument.bounds is not None:
                low, high = (f"{float(end):.6g}" for end in argument.bounds)
                notes.append(f"{argument.name} is from {low} to {high}, by the bounds or keys of its columns")
        if self.cuts_quotients:
            notes.append("x // y is cut towards zero, of fractions too; DuckDB divides fractions exactly")
        if self.now is not None:
            notes.append(f"NOW() and CURRENT_DATE are those of {self.now} (UTC), when it was planned")
        return notes

    def check_groups(self) -> None:
        """Refuse more groups than can be released."""
        if self.cells > _MAX_KEYS:
            raise Unsupported(
                "there are more than 2^24 groups",
                why="every one of them would be released, most of them empty",
                fix="declare fewer keys, or leave them to be selected privately",
            )

    def groups(self) -> "Groups":
        """All groups, in the order of their declared keys."""
        self.check_groups()
        return Groups(tuple(key.values or () for key in self.keys))


@final
class Groups(Sequence[tuple[Key, ...]]):
    """All groups of public keys, each made on access: there may be 2^24.

    >>> groups = Groups((("a", "b"), (0.0, 1.0, 2.0)))
    >>> len(groups), groups[4], list(groups)[4]
    (6, ('b', 1.0), ('b', 1.0))
    """

    def __init__(self, keys: tuple[Sequence[Key], ...]) -> None:
        self._keys = keys

    def __len__(self) -> int:
        return prod(map(len, self._keys))

    def __iter__(self) -> Iterator[tuple[Key, ...]]:
        return product(*self._keys)

    @overload
    def __getitem__(self, place: int) -> tuple[Key, ...]: ...
    @overload
    def __getitem__(self, place: slice) -> list[tuple[Key, ...]]: ...
    def __getitem__(self, place: int | slice) -> tuple[Key, ...] | list[tuple[Key, ...]]:
        if not isinstance(place, slice):
            at = range(len(self))[place]
            return self[at : at + 1][0]
        if len(self._keys) == 1:
            return [(key,) for key in self._keys[0][place]]
        rest, columns = np.arange(*place.indices(len(self))), []
        for keys in reversed(self._keys):
            rest, own = np.divmod(rest, len(keys))
            columns.append([keys[each] for each in own.tolist()])
        return list(zip(*reversed(columns), strict=True)) if columns else [()] * len(rest)


def _is(node: exp.Expr, letter: str) -> bool:
    return isinstance(node, exp.Column) and node.name[:1] == letter
