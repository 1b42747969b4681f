"""Who is protected, and which two databases are neighbours.

A database is a histogram x over the universe of rows; ‖x − y‖₁ counts the rows in which two
databases differ. Adding or removing one row moves it by 1, substituting one by another by 2.
"""

import enum
import re
from dataclasses import dataclass, field
from datetime import date, timedelta
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hubbub.errors import InvalidInput

__all__ = ["Neighbours", "Unit", "Window", "cells", "has_type", "is_identifier", "unit_of_each_row"]

_PERIOD = re.compile(r"(\d{4})(?:-Q([1-4])|-(\d\d)(?:-(\d\d))?)?")


class Neighbours(enum.Enum):
    """Which change of one unit makes two databases neighbours."""

    ADD_REMOVE = "add/remove"
    SUBSTITUTE = "substitute"

    @property
    def histogram_distance(self) -> int:
        """How far ‖x − y‖₁ one unit with one row moves a histogram: 1, or 2 under substitution."""
        return 1 if self is Neighbours.ADD_REMOVE else 2


@dataclass(frozen=True)
class Window:
    """A stretch of time: the rows whose `column` is from `start` on and before `end`.

    With it a unit is one person within that stretch: data that grows can have a budget for each month, which
    pays for the rows of that month alone. What somebody loses over all months adds up.

    >>> str(Window.of("day", "2026-11")), str(Window.of("day", "2026-Q4"))
    ('day from 2026-11-01 to before 2026-12-01', 'day from 2026-10-01 to before 2027-01-01')
    """

    column: str
    start: date
    end: date

    def __post_init__(self) -> None:
        named = isinstance(self.column, str) and self.column.strip()
        if (
            not named
            or not all(type(end) is date for end in (self.start, self.end))
            or self.start >= self.end
        ):
            raise InvalidInput(
                "the window is not a column and two dates in order",
                why="it must be known which rows are in it",
                fix='pass Window.of("day", "2026-11"), or a column, a first day and the day after the last',
            )

    @classmethod
    def of(cls, column: str, period: str) -> "Window":
        """A year, a quarter, a month or a day: 2026, 2026-Q4, 2026-11 or 2026-11-15."""
        found = _PERIOD.fullmatch(str(period).strip())
        try:
            if found is None:
                raise ValueError  # noqa: TRY301 - one way out for whatever is wrong
            year, quarter, month, day = (None if part is None else int(part) for part in found.groups())
            if day is not None:
                start = date(year or 0, month or 0, day)
                return cls(column, start, start + timedelta(1))
            first = month or (3 * quarter - 2 if quarter else 1)
            months = 1 if month else 3 if quarter else 12
            start = date(year or 0, first, 1)
            return cls(
                column, start, date(start.year + (first + months > 12), (first + months - 1) % 12 + 1, 1)
            )
        except (ValueError, OverflowError):
            raise InvalidInput(
                "the window is not a year, a quarter, a month or a day",
                why="it must be known where it starts and ends",
                fix="write 2026, 2026-Q4, 2026-11 or 2026-11-15",
            ) from None

    def overlaps(self, other: "Window") -> bool:
        """Whether some day is in both."""
        return self.start < other.end and other.start < self.end

    def __str__(self) -> str:
        return f"{self.column} from {self.start} to before {self.end}"


@dataclass(frozen=True)
class Unit:
    """Who is protected: the value of a key column, or, said explicitly, the row; in all rows, or a window's.

    >>> Unit("patient")
    Unit(key='patient', neighbours=<Neighbours.ADD_REMOVE: 'add/remove'>)
    >>> Unit.row().key is None
    True
    """

    key: str | None
    neighbours: Neighbours = Neighbours.ADD_REMOVE
    window: Window | None = field(default=None, repr=False)
    """Where only one person's rows within a stretch of time are protected together."""

    def __post_init__(self) -> None:
        if self.window is not None and not isinstance(self.window, Window):
            raise InvalidInput(
                f"window is of type {type(self.window).__name__}",
                why="it must be known which rows are in it",
                fix='pass Window.of("day", "2026-11")',
            )
        if self.key is not None and (not isinstance(self.key, str) or not self.key.strip()):
            raise InvalidInput(
                "the unit's key is not the name of a column",
                why="without it nobody knows who is protected",
                fix='pass {unit="patient"}, or {unit=Unit.row()} where one row is one person',
            )
        if not isinstance(self.neighbours, Neighbours):
            raise InvalidInput(
                f"neighbours is of type {type(self.neighbours).__name__}",
                why="the guarantee speaks of neighbouring databases, so it must be known which are",
                fix="pass Neighbours.ADD_REMOVE or Neighbours.SUBSTITUTE",
            )

    @classmethod
    def row(cls, neighbours: Neighbours = Neighbours.ADD_REMOVE) -> "Unit":
        """One row is one person: to be said, never assumed."""
        return cls(None, neighbours)

    @property
    def name(self) -> str:
        """Who it is, for labels: the column, or row; and within which window."""
        within = "" if self.window is None else f" × window ({self.window})"
        return f"{self.key or 'row'}{within}"

    def __str__(self) -> str:
        return f"one {self.name}, {self.neighbours.value}"


# Columns of anything, cell by cell: none changes what another means, and none raises.
#
# A list becomes no array of one type: that type would be made from all cells, so that one person's cell would
# change what others' are.


def unit_of_each_row(units: Any, examples: int) -> list[NDArray[np.int64]]:
    """The places of each unit's examples. A key that is missing, or cannot be compared, names nobody.

    >>> [places.tolist() for places in unit_of_each_row(["a", None, "b", "a"], 4)]
    [[0, 3], [2]]

    Guarantee: which examples are a unit's depends on their own keys alone.
    Proof: docs/proofs/dpsgd.md, "What is assumed"
    """
    keys = cells(units)
    if keys.shape != (examples,):
        raise InvalidInput(
            "units is not one key for each example",
            why="it says whose each example is",
            fix="pass a vector as long as the data",
        )
    found: dict[Any, list[int]] = {}
    for place, key in enumerate(keys.tolist()):
        try:
            if is_identifier(key):
                found.setdefault(key, []).append(place)
        except Exception:  # noqa: BLE001, S112 - hashing and comparing run the keys' own code
            continue
    return [np.array(places, dtype=np.int64) for places in found.values()]


def has_type(given: Any) -> bool:
    """Whether it has a type of its own, as arrays do; that of a list would be made from all its cells."""
    return any(hasattr(given, name) for name in ("dtype", "dtypes", "__array__"))


def cells(given: Any) -> NDArray[Any]:
    """An array as it is; of anything else each cell by itself, so that none changes what another means."""
    if isinstance(given, np.ma.MaskedArray):
        raise InvalidInput(
            "y or units is masked",
            why="what a mask hides would count",
            fix="pass a plain array without these rows",
        )
    try:
        if has_type(given):
            return np.asarray(given)
        listed = list(given)
    except Exception:  # noqa: BLE001 - making a list runs its own code
        return np.zeros((0, 0))
    cells = np.empty(len(listed), dtype=object)
    for place, cell in enumerate(listed):
        cells[place] = cell
    return cells


def is_identifier(unit: Any) -> bool:
    """What does not equal itself, as NaN, names nobody."""
    if isinstance(unit, tuple):
        return all(map(is_identifier, unit))
    return unit is not None and bool(unit == unit)  # noqa: PLR0124
