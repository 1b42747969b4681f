"""How much may be spent, and the small protocol through which everything spends."""

from dataclasses import dataclass
from fractions import Fraction
from typing import Protocol

from hubbub.errors import Refused
from hubbub.loss.loss import Loss
from hubbub.rational import Number, at_least_zero, positive, whole
from hubbub.unit import Unit

__all__ = ["Account", "Budget", "Receipt", "refuse_large_delta", "refuse_other_unit"]


@dataclass(frozen=True, init=False)
class Budget:
    """The most that may be spent: ε, δ, and the public population they are judged against.

    >>> Budget(1, 1e-6)
    Budget(epsilon=Fraction(1, 1), delta=Fraction(1, 1000000), population=None)
    """

    epsilon: Fraction
    delta: Fraction
    population: int | None

    def __init__(self, epsilon: Number, delta: Number = 0, *, population: int | None = None) -> None:
        object.__setattr__(self, "epsilon", positive(epsilon, "epsilon"))
        object.__setattr__(self, "delta", at_least_zero(delta, "delta"))
        people = None if population is None else whole(population, "population")
        object.__setattr__(self, "population", people)
        refuse_large_delta(self.delta, population)


def refuse_large_delta(delta: Fraction, population: int | None) -> None:
    """Refuse a δ of the order of 1/population.

    Guarantee: with δ below 1/population, "publish one row at random" is not allowed by δ alone.
    Assumes: the owner's word for the population, a public number.
    Proof: docs/proofs/delta.md
    """
    if delta >= 1:
        raise Refused(
            "delta is 1 or more",
            why="publishing the whole table would be allowed",
            fix="choose delta far below 1/population",
        )
    if population is not None and delta * whole(population, "population") >= 1:
        raise Refused(
            "delta is not below 1/population",
            why="a mechanism that publishes one person's whole record at random would be allowed",
            fix="choose delta far below 1/population, a hundredth of it or less",
        )


@dataclass(frozen=True)
class Receipt:
    """Proof that something was charged before it ran."""

    what: str
    loss: Loss


class Account(Protocol):
    """What queries, training and interactive mechanisms spend through."""

    def charge(self, what: str, loss: Loss, *, unit: Unit | None = None) -> Receipt:
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
