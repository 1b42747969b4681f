"""The errors that hubbub raises.

    HubbubError
    ├── InvalidInput    a parameter or a value cannot be used (also a ValueError)
    ├── Unsupported     beyond what can be done exactly: refused rather than approximated
    ├── Refused         it could be done, but would not be private
    │   └── BudgetExceeded   it does not fit the remaining budget
    ├── AccessDenied    this person may not do that, or has not signed in
    ├── Unavailable     too much at once, or not now: nothing was charged, try again later
    ├── Halted          an interactive mechanism has given its last answer
    ├── EngineFailed    the engine that holds the rows failed
    └── LedgerFailed    the ledger could not be read or written, so nothing ran

Every error says what is wrong, why it matters and how to fix it, and holds no data: `what` may name a
parameter that a person typed, never a row or an exact answer.

Texts name parameters by placeholders, because Python and the shell spell them differently:

    text                      Python                          shell
    {epsilon}                 epsilon                         --epsilon
    {delta=1e-6}              delta=1e-6                      --delta 1e-6
    {override=True}           override=True                   --override
    {bounds=cost=0:100}       bounds={"cost": (0, 100)}       --bounds cost=0:100
    {open_account=visits}     pass its unit and budget, …     run `hubbub budget open visits …`

An exception shows Python's spelling; the command line renders the same texts with its own. The names in
`PARAMETERS`, which several commands share, are placeholders in every text; any other name only in an error
that is raised with `parameter` set to it.
"""

# ruff: noqa: N818 - the root is named an error; the leaves say what happened

import re
from collections.abc import Callable
from typing import Self

from hubbub.escaping import escape

__all__ = [
    "AccessDenied",
    "BudgetExceeded",
    "EngineFailed",
    "Halted",
    "HubbubError",
    "InvalidInput",
    "LedgerFailed",
    "Refused",
    "Unavailable",
    "Unsupported",
]

Spelling = Callable[[str, str | None], str]
"""Spells a parameter, given its name in Python and, where the text has one, its value."""

_MAPPINGS: dict[str, Callable[[str], str]] = {
    "bounds": lambda ends: '"auto"' if ends == "auto" else f"({ends.replace(':', ', ')})",
    "error": str,
    "keys": lambda values: '["' + '", "'.join(values.split(",")) + '"]',
    "types": lambda kind: f'"{kind}"',
}
"""Parameters that map names to values, and how Python writes such a value."""
PARAMETERS = (
    *("account", "again", "allow_large_epsilon", "analyst", "delta", "epsilon", "ledger", "new_rows"),
    *(
        "open_account",
        "override",
        "population",
        "public",
        "rows_per_unit",
        "table",
        "times",
        "unit",
        "version",
        "window",
        *_MAPPINGS,
    ),
)
_PLACEHOLDER = re.compile(r"\{([a-z][a-z0-9_]*)(?:=([^{}]+))?\}")


def _spell_in_python(name: str, value: str | None) -> str:
    if name == "open_account":
        return "pass its unit and its budget, as unit= and budget=Budget(1)"
    if value is None:
        return name
    if name in _MAPPINGS:
        column, _, entry = value.partition("=")
        return f'{name}={{"{column}": {_MAPPINGS[name](entry)}}}'
    return f"{name}={value}"


class HubbubError(Exception):
    """The root of the tree; its fields are for programs, its text for people.

    `parameter` is the parameter at fault, by its name in Python: the one that was passed, or else the first
    that `what` names, if any.

    >>> error = HubbubError(
    ...     "{epsilon} is 0", why="it would take infinite noise", fix="pass a positive {epsilon}"
    ... )
    >>> print(error)
    epsilon is 0: it would take infinite noise. Fix: pass a positive epsilon.
    >>> error.parameter
    'epsilon'
    """

    def __init__(self, what: str, *, why: str, fix: str, parameter: str | None = None) -> None:
        super().__init__(what, why, fix)
        self.templates = (what, why, fix)
        """The three texts with their placeholders."""
        # Other braces in a text may be part of a name that a person typed.
        self._placeholders = {*PARAMETERS, parameter}
        self.what, self.why, self.fix = self.render(_spell_in_python)
        names = (match[1] for match in _PLACEHOLDER.finditer(what) if match[1] in self._placeholders)
        self.parameter = next(names, None) if parameter is None else parameter

    def render(self, spelling: Spelling) -> tuple[str, str, str]:
        """Return what, why and fix, with each parameter spelled by `spelling`."""
        what, why, fix = (self._render(text, spelling) for text in self.templates)
        return what, why, fix

    def _render(self, text: str, spelling: Spelling) -> str:
        return _PLACEHOLDER.sub(
            lambda match: spelling(match[1], match[2]) if match[1] in self._placeholders else match[0], text
        )

    def reword(self, what: Callable[[str], str]) -> Self:
        """Return the same error with another `what`, made from this one's."""
        first, why, fix = self.templates
        return type(self)(what(first), why=why, fix=fix, parameter=self.parameter)

    def __str__(self) -> str:
        return escape(f"{self.what}: {self.why}. Fix: {self.fix}.")

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (type(self), *self.templates, self.parameter)


def _rebuild(
    kind: type[HubbubError], what: str, why: str, fix: str, parameter: str | None = None
) -> HubbubError:
    return kind(what, why=why, fix=fix, parameter=parameter)


class InvalidInput(HubbubError, ValueError):
    """A parameter or a value cannot be used."""


class Unsupported(HubbubError):
    """Beyond what can be done exactly; an approximation would have another law."""


class Refused(HubbubError):
    """It could be done, but would not be private."""


class BudgetExceeded(Refused):
    """It does not fit the remaining budget; nothing was spent."""


class AccessDenied(HubbubError):
    """This person may not do that, or has not signed in."""


class Unavailable(HubbubError):
    """Too much at once, or not now; nothing was charged."""


class Halted(HubbubError):
    """An interactive mechanism has given its last answer."""


class EngineFailed(HubbubError):
    """The engine that holds the rows failed; what was charged stays charged."""


class LedgerFailed(HubbubError):
    """The ledger could not be read or written; nothing ran that it does not know of."""
