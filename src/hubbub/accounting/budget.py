"""Budgets, and the protocol through which queries, training and interactive mechanisms spend them."""

import os
from dataclasses import dataclass
from fractions import Fraction
from typing import NoReturn, Protocol

from hubbub.accounting.filters import parse_purpose
from hubbub.accounting.privacy_loss import PrivacyLoss
from hubbub.errors import InvalidInput, Refused
from hubbub.numbers import Number, format_up, parse_integer, parse_nonnegative, parse_positive
from hubbub.unit import Neighbours, Unit

__all__ = [
    "Account",
    "Budget",
    "Receipt",
    "check_unit_and_budget",
    "parse_spendable_epsilon",
    "refuse_copy",
    "refuse_fork",
    "refuse_large_delta",
    "refuse_large_epsilon",
    "refuse_other_relation",
    "refuse_other_unit",
]


def refuse_fork(process: int, what: str, fix: str) -> None:
    """Refuse to spend in another process than the one, by its id, in which `what` was made.

    >>> refuse_fork(os.getpid(), "an account in memory", "open a ledger")

    A fork copies the memory, and every budget in it.

    Guarantee: a budget in memory is spent in one process only.
    """
    if os.getpid() != process:
        raise Refused(
            f"{what} belongs to the process that made it, and this is another one",
            why="a fork copies the memory, and each copy would spend the whole budget",
            fix=fix,
        )


def refuse_copy(what: str, fix: str) -> NoReturn:
    """Refuse to copy or pickle an account; called from its `__reduce__`."""
    raise Refused(
        f"{what} cannot be copied or pickled",
        why="a copy would spend the same budget a second time",
        fix=fix,
    )


LARGE_DELTA = Fraction(1, 1000)
LARGE_EPSILON = 20
"""An ε above it protects almost nobody, and needs `allow_large_epsilon=True`."""


@dataclass(frozen=True, init=False)
class Budget:
    """The most that may be spent: ε and δ, and the public population that δ is judged against.

    >>> Budget(1, 1e-6)
    Budget(ε = 1, δ = 1e-6)

    Args:
        epsilon: The total ε.
        delta: The total δ, far below 1/population.
        population: The public number of people the data may hold; needed for a δ above 1/1000.
        purpose: What the budget is for, if that is known: "training", "many queries" or "few queries". It
            changes how charges are added up by default, never what is guaranteed (docs/budgets.md).
        allow_large_epsilon: Confirms an ε above `LARGE_EPSILON`, which protects almost nobody.
    """

    epsilon: Fraction
    delta: Fraction
    population: int | None
    purpose: str

    def __init__(
        self,
        epsilon: Number,
        delta: Number = 0,
        *,
        population: int | None = None,
        purpose: str = "",
        allow_large_epsilon: bool = False,
    ) -> None:
        object.__setattr__(self, "epsilon", parse_positive(epsilon, "epsilon"))
        refuse_large_epsilon(self.epsilon, allow=allow_large_epsilon)
        object.__setattr__(self, "delta", parse_nonnegative(delta, "delta"))
        people = None if population is None else parse_integer(population, "population")
        object.__setattr__(self, "population", people)
        object.__setattr__(self, "purpose", parse_purpose(purpose))
        refuse_large_delta(self.delta, population)

    def __str__(self) -> str:
        population = "" if self.population is None else f", population {self.population}"
        purpose = f", for {self.purpose}" if self.purpose else ""
        return f"ε = {format_up(self.epsilon)}, δ = {format_up(self.delta)}{population}{purpose}"

    def __repr__(self) -> str:
        return f"Budget({self})"

    def _repr_html_(self) -> str:
        return f"<b>Budget</b>: {self}"


def refuse_large_delta(delta: Fraction, population: int | None) -> None:
    """Refuse a δ of the order of 1/population; above 1/1000 the population must be given.

    Everything that spends a δ passes here: budgets, plans, fits, and mechanisms made for a δ.

    Guarantee: with δ below 1/population, "publish one row at random" is not allowed by δ alone.
    Assumes: the population is user-asserted, and public; without it, there are fewer than a thousand people.
    Proof: docs/proofs/delta.md
    """
    if delta >= 1:
        raise Refused(
            "{delta} is 1 or more",
            why="publishing the whole table would be allowed",
            fix="choose {delta} far below 1/population",
        )
    if population is None and delta > LARGE_DELTA:
        raise Refused(
            "{delta} is above 1/1000, and {population} is not given",
            why="with that probability somebody's whole record may be published",
            fix="pass a far smaller one, such as {delta=1e-6}, or the number of people as {population}",
        )
    if population is not None and delta * parse_integer(population, "population") >= 1:
        raise Refused(
            "{delta} is not below 1/population",
            why="a mechanism that publishes one person's whole record at random would be allowed",
            fix="choose {delta} far below 1/population, a hundredth of it or less",
        )


def refuse_large_epsilon(epsilon: Fraction, *, allow: bool) -> None:
    """Refuse an ε above `LARGE_EPSILON` unless it is confirmed.

    At ε = 20 an outcome may be 485 million times as likely with a person as without: a typing error, or a
    number that was never meant to protect.
    """
    if not isinstance(allow, bool):
        raise InvalidInput(
            "{allow_large_epsilon} is neither True nor False",
            why="a large epsilon must be confirmed explicitly",
            fix="pass {allow_large_epsilon=True}, or leave it out",
        )
    if epsilon > LARGE_EPSILON and not allow:
        raise Refused(
            f"{{epsilon}} is above {LARGE_EPSILON}",
            why="so little noise hides nobody: answers are as good as exact",
            fix="pass about {epsilon=1}, or confirm it with {allow_large_epsilon=True}",
        )


def parse_spendable_epsilon(epsilon: Number, *, allow: bool) -> Fraction:
    """A positive ε; a large one only if it is confirmed.

    >>> parse_spendable_epsilon(0.5, allow=False)
    Fraction(1, 2)
    """
    price = parse_positive(epsilon, "epsilon")
    refuse_large_epsilon(price, allow=allow)
    return price


@dataclass(frozen=True)
class Receipt:
    """The record of a charge that was made before its mechanism ran."""

    what: str
    loss: PrivacyLoss


class Account(Protocol):
    """The account that queries, training and interactive mechanisms charge."""

    def charge(self, what: str, loss: PrivacyLoss, *, unit: Unit | None = None) -> Receipt:
        """Charge before anything runs; raises if it does not fit, or protects another unit.

        Args:
            what: a description of the release, without data.
            loss: the privacy loss to charge.
            unit: the unit that the release protects; the account's own if omitted.
        """


def check_unit_and_budget(unit: object, budget: object) -> None:
    """Refuse a name in place of a unit, or a number in place of a budget; None if it is unspecified."""
    for name, value, kind, example in (
        ("unit", unit, Unit, 'hb.Unit("patient")'),
        ("budget", budget, Budget, "hb.Budget(1)"),
    ):
        if not (value is None or isinstance(value, kind)):
            raise InvalidInput(
                f"{name} is of type {type(value).__name__}",
                why=f"an account is opened with a {kind.__name__}",
                fix=f"pass {name}={example}",
                parameter=name,
            )


def refuse_other_unit(protected: Unit | None, unit: Unit | None) -> None:
    """Refuse a charge for another unit than the account protects; None if it is unspecified.

    A charge to an account of a window must name it: only a dataset that was opened with the window leaves out
    all other rows.
    """
    is_unspecified = unit is None and (protected is None or protected.window is None)
    if protected is not None and unit != protected and not is_unspecified:
        raise Refused(
            f"the account protects {protected}, the charge {unit or 'an unspecified unit'}",
            why="the noise would protect somebody else, or too little",
            fix="charge an account of that unit; ask about a window through hubbub.open with it",
        )


def refuse_other_relation(protected: Neighbours | None, loss: PrivacyLoss, known: str = "") -> str:
    """Refuse a loss that is stated for another neighbouring relation than the account's charges.

    Args:
        protected: the account's neighbouring relation; None if it is unspecified.
        loss: the loss to charge.
        known: the relation that earlier charges were stated for; empty if they hold for any.

    Returns the relation that this charge or earlier ones are stated for.

    Guarantee: all losses of an account are true of one and the same relation, as filters assume.
    """
    stated = loss.relations | ({known} if known else set())
    allowed = stated if protected is None else {_RELATIONS[protected]}
    if len(stated | allowed) > 1:
        raise Refused(
            "the loss and the account are stated for different neighbouring relations",
            why="Poisson samples are analysed under add/remove, samples of fixed size and shuffling "
            "under substitution, and losses of both do not add up",
            fix="state the loss for the account's relation, or charge an account of the other one",
        )
    return next(iter(stated), "")


_RELATIONS = {Neighbours.ADD_REMOVE: "add/remove", Neighbours.SUBSTITUTE: "substitution"}
"""The relations as events of the accountant name them."""
