"""What hubbub raises.

    HubbubError
    ├── InvalidInput    a parameter or a value cannot be used as given (also a ValueError)
    ├── Unsupported     beyond what can be done exactly: refused rather than approximated
    ├── Refused         it could be done, but would not be private
    │   └── BudgetExceeded   it does not fit what is left of the budget
    ├── Halted          an interactive mechanism has given its last answer
    ├── EngineFailed    the engine that holds the rows could not do its part
    └── LedgerFailed    the ledger could not be read or written, so nothing ran

Every error says what is wrong, why it matters and how to mend it, and holds no data:
`what` may name a parameter that a person typed, never a row or an exact answer.
"""

# ruff: noqa: N818 - the root is named an error; the leaves say what happened

from hubbub.escaping import escape

__all__ = [
    "BudgetExceeded",
    "EngineFailed",
    "Halted",
    "HubbubError",
    "InvalidInput",
    "LedgerFailed",
    "Refused",
    "Unsupported",
]


class HubbubError(Exception):
    """The root of the tree; its three fields are for programs, its text for people.

    >>> error = HubbubError("epsilon is 0", why="it would take infinite noise", fix="pass a positive epsilon")
    >>> print(error)
    epsilon is 0: it would take infinite noise. To mend it: pass a positive epsilon.
    """

    def __init__(self, what: str, *, why: str, fix: str) -> None:
        super().__init__(what, why, fix)
        self.what = what
        self.why = why
        self.fix = fix

    def __str__(self) -> str:
        return escape(f"{self.what}: {self.why}. To mend it: {self.fix}.")

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (type(self), self.what, self.why, self.fix)


def _rebuild(kind: type[HubbubError], what: str, why: str, fix: str) -> HubbubError:
    return kind(what, why=why, fix=fix)


class InvalidInput(HubbubError, ValueError):
    """A parameter or a value cannot be used as given."""


class Unsupported(HubbubError):
    """Beyond what can be done exactly; an approximation would be a wrong law."""


class Refused(HubbubError):
    """It could be done, but the promise would not hold."""


class BudgetExceeded(Refused):
    """It does not fit what is left of the budget; nothing was spent."""


class Halted(HubbubError):
    """An interactive mechanism has given its last answer."""


class EngineFailed(HubbubError):
    """The engine that holds the rows could not do its part; what was charged stays charged."""


class LedgerFailed(HubbubError):
    """The ledger could not be read or written; nothing ran that it does not know of."""
