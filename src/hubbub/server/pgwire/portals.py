"""Portals: prepared statements, their sources of rows, and how far these were read."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from hubbub.server.pgwire.messages import Column, WireError
from hubbub.server.pgwire.statements import Command, Statement
from hubbub.server.pgwire.values import Type
from hubbub.server.pgwire.variables import Variables

__all__ = ["Answers", "Portal", "Prepared", "Rows", "Source", "TextTable"]


@dataclass(frozen=True)
class Rows:
    """The rows of an answer."""

    columns: tuple[Column, ...]
    rows: Sequence[Sequence[Any]]
    is_charged: bool = False
    """True if something was charged for them just now."""


class Source(Protocol):
    """Something that is described for free, and has rows once it is asked."""

    async def columns(self) -> tuple[Column, ...]:
        """Return the columns; free."""
        ...

    async def rows(self) -> Rows:
        """Return the rows; questions about protected tables are charged."""
        ...


class Answers(Protocol):
    """Where sources come from: plans and answers of the service, and the catalogs."""

    def open(self, text: str, variables: Variables) -> Source:
        """Return the source of a query."""
        ...

    def explain(self, text: str, variables: Variables, *, is_verbose: bool) -> Source:
        """Return the plan of a query, its cost and its error, as lines."""
        ...

    async def parameter_types(self, statement: Statement, stated: Sequence[int]) -> tuple[int, ...]:
        """Return the types of a statement's parameters, where the client stated none by context."""
        ...

    def placeholders(self, types: Sequence[int]) -> list[Any]:
        """Return a value of each type, with which a statement is described before values are known."""
        ...


@dataclass(frozen=True)
class TextTable:
    """Rows that are there already: of SHOW."""

    names: tuple[str, ...]
    lines: Sequence[tuple[str, ...]]

    async def columns(self) -> tuple[Column, ...]:
        """Return the columns, all texts."""
        return tuple(Column(name, Type.TEXT) for name in self.names)

    async def rows(self) -> Rows:
        """Return the lines."""
        return Rows(await self.columns(), self.lines)


@dataclass
class Prepared:
    """A statement with the types of its parameters."""

    command: Command
    statement: Statement
    types: tuple[int, ...]
    columns: tuple[Column, ...] | None = None
    """As the client was told; answers must have them."""


@dataclass
class Portal:
    """A statement with its values: a source, its rows once it is executed, and how far they were read."""

    command: Command
    source: Source | None
    formats: tuple[int, ...] = ()
    columns: tuple[Column, ...] | None = None
    rows: Rows | None = None
    place: int = 0
    is_cursor: bool = False
    is_holdable: bool = False

    def spread(self, columns: Sequence[Column]) -> list[int]:
        """Return the format of each column: none stated, one for all, or one for each."""
        if len(self.formats) in {0, 1}:
            return [*(self.formats or (0,))] * len(columns)
        if len(self.formats) != len(columns):
            raise WireError("08P01", "there are not as many result formats as columns")
        return list(self.formats)
