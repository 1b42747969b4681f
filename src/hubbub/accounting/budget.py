"""The process that an account belongs to: a fork is a copy of the memory, and of every budget in it."""

import os
from dataclasses import dataclass
from fractions import Fraction
from typing import NoReturn, Protocol

from hubbub.accounting.privacy_loss import PrivacyLoss
from hubbub.errors import InvalidInput, Refused
from hubbub.numbers import Number, parse_integer, parse_nonnegative, parse_positive
from hubbub.unit import Unit

__all__ = [
    "Account",
    "Budget",
    "Receipt",
    "parse_spendable_epsilon",
    "refuse_copy",
    "refuse_fork",
    "refuse_large_delta",
    "refuse_large_epsilon",
    "refuse_other_unit",
]


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


# How much may be spent, and the small protocol through which everything spends.

_LARGE_DELTA = Fraction(1, 1000)
_LARGE_EPSILON = 20


@dataclass(frozen=True, init=False)
class Budget:
    """The most that may be spent: ε, δ, and the public population they are judged against.

    An ε above 20 protects next to nobody, and is taken only with `allow_large_epsilon=True`.

    >>> Budget(1, 1e-6)
    Budget(epsilon=Fraction(1, 1), delta=Fraction(1, 1000000), population=None)
    """

    epsilon: Fraction
    delta: Fraction
    population: int | None

    def __init__(
        self,
        epsilon: Number,
        delta: Number = 0,
        *,
        population: int | None = None,
        allow_large_epsilon: bool = False,
    ) -> None:
        object.__setattr__(self, "epsilon", parse_positive(epsilon, "epsilon"))
        refuse_large_epsilon(self.epsilon, allow=allow_large_epsilon)
        object.__setattr__(self, "delta", parse_nonnegative(delta, "delta"))
        people = None if population is None else parse_integer(population, "population")
        object.__setattr__(self, "population", people)
        refuse_large_delta(self.delta, population)


def refuse_large_delta(delta: Fraction, population: int | None) -> None:
    """Refuse to spend a δ of the order of 1/population; above 1/1000 the population must be known.

    Everything that spends a δ passes here: budgets, plans, fits, and mechanisms made for a δ.

    Guarantee: with δ below 1/population, "publish one row at random" is not allowed by δ alone.
    Assumes: the owner's word for the population, a public number; without it, a thousand people or more.
    Proof: docs/proofs/delta.md
    """
    if delta >= 1:
        raise Refused(
            "{delta} is 1 or more",
            why="publishing the whole table would be allowed",
            fix="choose {delta} far below 1/population",
        )
    if population is None and delta > _LARGE_DELTA:
        raise Refused(
            "{delta} is above 1/1000, and {population} is not given",
            why="with that chance anybody's whole record may be published",
            fix="pass a far smaller one, such as {delta=1e-6}, or the number of people as {population}",
        )
    if population is not None and delta * parse_integer(population, "population") >= 1:
        raise Refused(
            "{delta} is not below 1/population",
            why="a mechanism that publishes one person's whole record at random would be allowed",
            fix="choose {delta} far below 1/population, a hundredth of it or less",
        )


def refuse_large_epsilon(epsilon: Fraction, *, allow: bool) -> None:
    """Refuse to spend an ε above 20 unless it is confirmed.

    With ε = 20 what is likely about one person may become 485 million times as likely: a slip of the
    keyboard, or a number that was never meant to protect.
    """
    if not isinstance(allow, bool):
        raise InvalidInput(
            "{allow_large_epsilon} is neither True nor False",
            why="a large epsilon must be confirmed in so many words",
            fix="pass {allow_large_epsilon=True}, or leave it out",
        )
    if epsilon > _LARGE_EPSILON and not allow:
        raise Refused(
            f"{{epsilon}} is above {_LARGE_EPSILON}",
            why="so much noise as that adds hides nobody: answers are as good as exact",
            fix="pass an {epsilon} of about 1, or confirm it with {allow_large_epsilon=True}",
        )


def parse_spendable_epsilon(epsilon: Number, *, allow: bool) -> Fraction:
    """An ε above zero that may be spent: one above 20 only where that is confirmed.

    >>> parse_spendable_epsilon(0.5, allow=False)
    Fraction(1, 2)
    """
    wanted = parse_positive(epsilon, "epsilon")
    refuse_large_epsilon(wanted, allow=allow)
    return wanted


@dataclass(frozen=True)
class Receipt:
    """Proof that something was charged before it ran."""

    what: str
    loss: PrivacyLoss


class Account(Protocol):
    """What queries, training and interactive mechanisms spend through."""

    def charge(self, what: str, loss: PrivacyLoss, *, unit: Unit | None = None) -> Receipt:
        """Charge before anything runs; raises where it would not fit, or protects another unit."""


def refuse_other_unit(protected: Unit | None, unit: Unit | None) -> None:
    """Refuse to charge an account for whom it does not protect; None where that is not said.

    What an account of a window pays for must say so: only a dataset that was opened with the window leaves
    out all other rows.
    """
    is_unsaid = unit is None and (protected is None or protected.window is None)
    if protected is not None and unit != protected and not is_unsaid:
        raise Refused(
            f"the account protects {protected}, the charge {unit or 'nobody knows whom'}",
            why="its noise would protect somebody else, or too little",
            fix="charge an account of that unit; ask for a window through hubbub.open with it",
        )
