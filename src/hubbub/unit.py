"""Who is protected, and which two databases are neighbours.

A database is a histogram x over the universe of rows; ‖x − y‖₁ counts the rows in which two
databases differ. Adding or removing one row moves it by 1, substituting one by another by 2.
"""

import enum
from dataclasses import dataclass

from hubbub.errors import InvalidInput

__all__ = ["Neighbours", "Unit"]


class Neighbours(enum.Enum):
    """Which change of one unit makes two databases neighbours."""

    ADD_REMOVE = "add/remove"
    SUBSTITUTE = "substitute"

    @property
    def histogram_distance(self) -> int:
        """How far ‖x − y‖₁ one unit with one row moves a histogram: 1, or 2 under substitution."""
        return 1 if self is Neighbours.ADD_REMOVE else 2


@dataclass(frozen=True)
class Unit:
    """Who is protected: the value of a key column, or, said explicitly, the row.

    >>> Unit("patient")
    Unit(key='patient', neighbours=<Neighbours.ADD_REMOVE: 'add/remove'>)
    >>> Unit.row().key is None
    True
    """

    key: str | None
    neighbours: Neighbours = Neighbours.ADD_REMOVE

    def __post_init__(self) -> None:
        if self.key is not None and (not isinstance(self.key, str) or not self.key.strip()):
            raise InvalidInput(
                "the unit's key is not the name of a column",
                why="without it nobody knows who is protected",
                fix='pass Unit("patient"), or Unit.row() where one row is one person',
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

    def __str__(self) -> str:
        return f"one {self.key or 'row'}, {self.neighbours.value}"
