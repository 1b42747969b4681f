"""The process that an account belongs to: a fork is a copy of the memory, and of every budget in it."""

import os
from typing import NoReturn

from hubbub.errors import Refused

__all__ = ["refuse_copy", "refuse_fork"]


def refuse_fork(process: int, what: str, fix: str) -> None:
    """Refuse to go on in another process than the one that `what` was made in, by its number.

    >>> refuse_fork(os.getpid(), "an account in memory", "open a ledger")

    Guarantee: what is spent of a budget in memory, is spent in one process.
    """
    if os.getpid() != process:
        raise Refused(
            f"{what} belongs to the process that made it, and this is another",
            why="a fork copies the memory: each copy would spend the whole budget",
            fix=fix,
        )


def refuse_copy(what: str, fix: str) -> NoReturn:
    """Refuse to copy or pickle what spends: `copy` and `pickle` ask for how it is made again."""
    raise Refused(
        f"{what} cannot be copied or pickled",
        why="it spends one budget, from the process that opened it: a copy would be a second one",
        fix=fix,
    )
