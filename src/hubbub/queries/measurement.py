"""What the engine is asked for: integers of which it is known how far one unit moves them, within limits.

Proof: docs/proofs/bounding.md
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from sqlglot import exp

from hubbub.bounded import Sensitivity
from hubbub.errors import InvalidInput
from hubbub.tables.schema import Key

__all__ = ["Limits", "Measurement"]


@dataclass(frozen=True)
class Limits:
    """How much one unit may contribute."""

    rows: int | None = None
    """Rows, all groups together; or values of a COUNT(DISTINCT …)."""
    groups: int | None = None
    rows_per_group: int | None = None

    def __post_init__(self) -> None:
        for name in ("rows", "groups", "rows_per_group"):
            given = getattr(self, name)
            if given is not None and (
                isinstance(given, bool) or not isinstance(given, int) or not 0 < given < 2**20
            ):
                raise InvalidInput(
                    f"{name.replace('_', ' ')} per unit is not a whole number from 1 to 2^20 - 1",
                    why="the noise is made for just so much",
                    fix="pass how much one unit may contribute, as 5",
                )


@dataclass(frozen=True)
class Measurement:
    """One query to the engine: for each group some integers, and how far one unit moves them all.

    Guarantee: between neighbouring databases the vector of all its integers moves by `sensitivity` at most.
    Assumes: what `Query` guarantees of its rows; the engine's integers are integers.
    Proof: docs/proofs/bounding.md
    """

    sql: exp.Select
    columns: int
    """How many integers a group has: the columns m0, m1, …"""
    sensitivity: Sensitivity
    step: Fraction
    """What one step is worth, in rows or units."""
    because: str
    """The rule, as a section of the proof page."""
    key_sets: Mapping[str, Sequence[Key]] = field(default_factory=dict)
    bins: int = 1
    """For a histogram of values: how many bins a group has; the column `b` says which."""
    counts_units: bool = False
    """Whether a column `u` says how many units keep the group, as `candidates` would: keys are not public."""
    is_weighed: bool = False
    """Whether units above a limit count less: of each of their rows, then, up to 2^-39 is cut."""
