"""A fit that has been charged: it hands out what it paid for in shares, and adds the noise.

Everything an estimator learns of rows it learns by `Measuring.measure`: exact integers go in, integers
with noise come out.

Proof: docs/proofs/estimators.md
"""

import json
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hubbub.accounting import Account, PrivacyLoss, largest_mu, refuse_large_delta, refuse_large_epsilon
from hubbub.errors import InvalidInput, Refused
from hubbub.mechanisms import Gaussian, Laplace
from hubbub.numbers import Number, ceil_sqrt, parse_below_one, parse_integer, parse_positive, round_up
from hubbub.release import Release
from hubbub.sensitivity import Bounded, Sensitivity
from hubbub.unit import Unit

__all__ = ["Measured", "Measuring", "Price"]

Integers = NDArray[np.int64]


@dataclass(frozen=True)
class Price:
    """What a fit may cost one unit, and how much a unit may contribute: all checked, nothing charged yet.

    >>> price = Price.of(epsilon=1, delta=1e-5)
    >>> str(price.loss), price.norm
    ('Gaussian μ = 0.268052', 2)
    >>> str(Price.of(epsilon=1).loss)
    'ε = 1'
    """

    loss: PrivacyLoss
    norm: int
    """The norm in which a row is bounded: 2 where the noise is Gaussian, 1 where it is Laplace."""
    amount: Fraction
    """What adds up over the shares: μ² of Gaussian noise, ε of Laplace."""
    unit: Unit
    factor: int
    """How many rows' worth one unit may move a sum."""

    @classmethod
    def of(
        cls,
        epsilon: Number,
        delta: Number = 0,
        unit: Unit | None = None,
        rows_per_unit: int = 1,
        *,
        population: int | None = None,
        allow_large_epsilon: bool = False,
    ) -> "Price":
        """Gaussian noise for δ > 0, with all of its curve; Laplace noise and pure ε for δ = 0.

        Guarantee: `loss` is (ε, δ)-private.
        Proof: docs/proofs/estimators.md, "The price of a fit"
        """
        who = Unit.row() if unit is None else unit
        if not isinstance(who, Unit):
            raise InvalidInput(
                f"unit is of type {type(unit).__name__}",
                why="it must be known who is protected",
                fix='pass Unit("patient"), or None where one row is one person',
            )
        rows = parse_integer(rows_per_unit, "rows_per_unit")
        if who.key is None and rows != 1:
            raise InvalidInput(
                "rows_per_unit is not 1, but a row is the unit",
                why="a unit that is a row has one row",
                fix='pass unit=Unit("patient"), and units= to fit',
            )
        wanted, allowed = parse_positive(epsilon, "epsilon"), parse_below_one(delta, "delta")
        refuse_large_epsilon(wanted, allow=allow_large_epsilon)
        factor = rows * who.neighbours.histogram_distance
        if not allowed:
            return cls(PrivacyLoss.pure(wanted), 1, wanted, who, factor)
        refuse_large_delta(allowed, population)
        amount = largest_mu(wanted, allowed) ** 2
        return cls(PrivacyLoss.gaussian_from_mu_squared(amount), 2, amount, who, factor)

    def mechanism(self, row: Sensitivity, share: Fraction) -> Gaussian | Laplace:
        """The noise of which this share of the price pays, on integers that one row moves so far.

        Guarantee: its loss is no more than this share of the price.
        Proof: docs/proofs/estimators.md, "The price of a fit"
        """
        moved = self._moved(row)
        scale = self.scale(row, share)
        return Gaussian(scale, moved) if self.norm == 2 else Laplace(scale, moved)

    def scale(self, row: Sensitivity, share: Fraction) -> Fraction:
        """The σ or b of that noise, whether or not it can be sampled."""
        moved = self._moved(row)
        # As doubles, rounded up: as exact as any rational, and short to store.
        if self.norm == 2:
            return Fraction(round_up(ceil_sqrt(moved.l2_squared / (share * self.amount))))
        return Fraction(round_up(moved.l1 / (share * self.amount)))

    def _moved(self, row: Sensitivity) -> Sensitivity:
        """How far one unit moves what one row moves so far."""
        return Sensitivity(
            row.l1 * self.factor,
            l2_squared=row.l2_squared * self.factor**2,
            linf=row.linf * self.factor,
        )


@dataclass(frozen=True)
class Measured:
    """What a fit measured, in order: the mechanisms with their shares of the price."""

    what: str
    mechanisms: tuple[Gaussian | Laplace, ...]
    is_charged: bool = True
    """Whether an account paid for it."""

    error_kind = "none"

    def error(self, confidence: Number = 0.95, *, coordinates: int = 1) -> float:  # noqa: ARG002 - a source's shape
        """None is promised: how far a model is off is not how far a sum is off."""
        raise InvalidInput(
            "a model has no error of its own",
            why="it was computed from several noisy sums",
            fix="measure its accuracy on rows that are nobody's secret",
        )

    def to_json(self) -> str:
        """The mechanisms as they are stored."""
        noises = [json.loads(mechanism.to_json()) for mechanism in self.mechanisms]
        return json.dumps({"what": self.what, "mechanisms": noises}, sort_keys=True, ensure_ascii=False)


class Measuring:
    """One fit: charged when it is made, before it sees a row.

    Guarantee: whatever is computed from what `measure` returned costs no unit more than `price.loss`.
    Assumes: between neighbours that differ in one row, what is measured moves by no more than it says.
    Proof: docs/proofs/estimators.md
    """

    def __init__(self, what: str, price: Price, account: Account | None = None) -> None:
        self.price = price
        self.receipt = None if account is None else account.charge(what, price.loss, unit=price.unit)
        self._what = what
        self._left = Fraction(1)
        self._mechanisms: list[Gaussian | Laplace] = []

    def measure(self, exact: Any, row: Sensitivity, share: Fraction, because: str) -> Integers:
        """The integers with noise, for this share of the price.

        `row` says how far one row, added or removed, moves them.
        """
        if not 0 < share <= self._left:
            raise Refused(
                "the fit's price is used up",
                why="its noise was paid for once",
                fix="let the shares of all that is measured add up to 1",
            )
        mechanism = self.price.mechanism(row, share)
        self._left -= share
        self._mechanisms.append(mechanism)
        value = Bounded(
            np.asarray(exact, dtype=np.int64).ravel(), mechanism.sensitivity, self.price.unit, because
        )
        noisy: Integers = mechanism.release(value).value
        return noisy.reshape(np.shape(exact))

    @property
    def left(self) -> Fraction:
        """The share of the price that is not used yet."""
        return self._left

    def deviation(self, row: Sensitivity, share: Fraction) -> float:
        """The standard deviation of the noise that `measure` would add: public, and free."""
        scale = float(self.price.scale(row, share))
        return scale if self.price.norm == 2 else scale * 2**0.5

    def release(self, value: Any) -> Release:
        """A model made of what was measured, with what all of it cost."""
        made_by = Measured(self._what, tuple(self._mechanisms), is_charged=self.receipt is not None)
        return Release(
            value, self.price.loss, made_by, self.price.unit, user_asserted=False, post_processed=True
        )
