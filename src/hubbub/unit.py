"""The privacy unit: who is protected, which databases are neighbours, and which rows belong to which unit.

A database is a histogram x over the universe of rows, and ‖x − y‖₁ counts the rows in which two databases
differ. Adding or removing one row moves it by 1, substituting one row by 2.
"""

import enum
import re
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hubbub.errors import InvalidInput

__all__ = [
    "Neighbours",
    "Unit",
    "Window",
    "elementwise_array",
    "group_rows_by_unit",
    "has_dtype",
    "is_valid_identifier",
]

_PERIOD = re.compile(r"(\d{4})(?:-Q([1-4])|-(\d\d)(?:-(\d\d))?)?")


class Neighbours(enum.Enum):
    """The neighbouring relation: the change of one unit between two neighbouring databases."""

    ADD_REMOVE = "add/remove"
    SUBSTITUTE = "substitute"

    @property
    def histogram_distance(self) -> int:
        """‖x − y‖₁ of two neighbours that differ in one row: 1, or 2 under substitution."""
        return 1 if self is Neighbours.ADD_REMOVE else 2


@dataclass(frozen=True)
class Window:
    """A period of time: the rows with `column` from `start` on and before `end`.

    With a window, a unit is one person within that period. Growing data can then have a budget for each
    month, which covers that month's rows alone. What one person loses over several months adds up.

    >>> str(Window.of("day", "2026-11")), str(Window.of("day", "2026-Q4"))
    ('day from 2026-11-01 to before 2026-12-01', 'day from 2026-10-01 to before 2027-01-01')
    """

    column: str
    start: date
    end: date

    def __post_init__(self) -> None:
        has_column = isinstance(self.column, str) and self.column.strip()
        if (
            not has_column
            or not all(type(end) is date for end in (self.start, self.end))
            or self.start >= self.end
        ):
            raise InvalidInput(
                "the window is not a column and two dates in order",
                why="they decide which rows are in it",
                fix='pass Window.of("day", "2026-11"), or a column, the first day and the day after the last',
            )

    @classmethod
    def of(cls, column: str, period: str) -> "Window":
        """Make the window of a year, a quarter, a month or a day.

        Args:
            column: the column with the dates.
            period: written as 2026, 2026-Q4, 2026-11 or 2026-11-15.
        """
        match = _PERIOD.fullmatch(str(period).strip())
        try:
            if match is None:
                raise ValueError  # noqa: TRY301 - one error for all malformed periods
            year, quarter, month, day = (None if part is None else int(part) for part in match.groups())
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
                why="its start and its end must be unambiguous",
                fix="write 2026, 2026-Q4, 2026-11 or 2026-11-15",
            ) from None

    def overlaps(self, other: "Window") -> bool:
        """Return whether some day is in both windows."""
        return self.start < other.end and other.start < self.end

    def __str__(self) -> str:
        return f"{self.column} from {self.start} to before {self.end}"


@dataclass(frozen=True, repr=False)
class Unit:
    """The privacy unit: all rows with one value of the key column, or, if stated explicitly, one row.

    >>> Unit("patient")
    Unit('patient', add/remove)
    >>> Unit.row().key is None
    True
    """

    key: str | None
    neighbours: Neighbours = Neighbours.ADD_REMOVE
    window: Window | None = None
    """If given, the rows of one unit outside this period are not protected together with those inside."""

    def __post_init__(self) -> None:
        if self.window is not None and not isinstance(self.window, Window):
            raise InvalidInput(
                f"window is of type {type(self.window).__name__}",
                why="it decides which rows are protected together",
                fix='pass Window.of("day", "2026-11")',
            )
        if self.key is not None and (not isinstance(self.key, str) or not self.key.strip()):
            raise InvalidInput(
                "the unit's key is not the name of a column",
                why="it defines who is protected",
                fix='pass {unit="patient"}, or {unit=Unit.row()} if one row is one person',
            )
        if not isinstance(self.neighbours, Neighbours):
            raise InvalidInput(
                f"neighbours is of type {type(self.neighbours).__name__}",
                why="the guarantee holds between neighbouring databases",
                fix="pass Neighbours.ADD_REMOVE or Neighbours.SUBSTITUTE",
            )

    @classmethod
    def row(cls, neighbours: Neighbours = Neighbours.ADD_REMOVE) -> "Unit":
        """Make the unit of one row. It must be stated; it is never assumed."""
        return cls(None, neighbours)

    @property
    def name(self) -> str:
        """The name for labels: the key column or "row", and the window."""
        within = "" if self.window is None else f" × window ({self.window})"
        return f"{self.key or 'row'}{within}"

    def __str__(self) -> str:
        return f"one {self.name}, {self.neighbours.value}"

    def __repr__(self) -> str:
        window = "" if self.window is None else f", {self.window}"
        return f"Unit({'row' if self.key is None else repr(self.key)}, {self.neighbours.value}{window})"


# Columns of unit identifiers, for training and estimators.
#
# A list is never converted to an array of one type: numpy would infer that type from all elements, so that
# one element would change how the others are read. Each element is read by itself, and none can raise.


def group_rows_by_unit(units: Any, examples: int) -> list[NDArray[np.int64]]:
    """Return the row indices of each unit. A missing or incomparable identifier names no unit.

    >>> [rows.tolist() for rows in group_rows_by_unit(["a", None, "b", "a"], 4)]
    [[0, 3], [2]]

    Guarantee: a row's unit depends on its own identifier alone.
    Proof: docs/proofs/dpsgd.md, "Assumptions"
    """
    identifiers = elementwise_array(units)
    if identifiers.shape != (examples,):
        raise InvalidInput(
            "units is not one identifier for each example",
            why="it defines which examples are protected together",
            fix="pass a vector as long as the data",
        )
    rows: dict[Any, list[int]] = {}
    for row, identifier in enumerate(identifiers.tolist()):
        try:
            if is_valid_identifier(identifier):
                rows.setdefault(identifier, []).append(row)
        except Exception:  # noqa: BLE001, S112 - hashing and comparing run the identifier's own code
            continue
    return [np.array(indices, dtype=np.int64) for indices in rows.values()]


def elementwise_array(column: Any) -> NDArray[Any]:
    """Return an array unchanged, and anything else as an array of objects, each element by itself."""
    if isinstance(column, np.ma.MaskedArray):
        raise InvalidInput(
            "y or units is masked",
            why="the masked rows would still count",
            fix="pass a plain array without these rows",
        )
    try:
        if has_dtype(column):
            return np.asarray(column)
        elements = list(column)
    except Exception:  # noqa: BLE001 - iterating runs the column's own code
        return np.zeros((0, 0))
    array = np.empty(len(elements), dtype=object)
    for row, element in enumerate(elements):
        array[row] = element
    return array


def has_dtype(column: Any) -> bool:
    """Return whether the column has a type of its own, as arrays and data frames do and lists do not."""
    return any(hasattr(column, name) for name in ("dtype", "dtypes", "__array__"))


def is_valid_identifier(unit: Any) -> bool:
    """Return whether it can name a unit: None cannot, nor NaN, which does not equal itself."""
    if isinstance(unit, tuple):
        return all(map(is_valid_identifier, unit))
    return unit is not None and bool(unit == unit)  # noqa: PLR0124
