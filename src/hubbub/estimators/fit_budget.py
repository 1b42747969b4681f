"""The privacy budget of one fit, and the measurer that spends it in shares.

An estimator learns from rows only through `FitMeasurer.measure`: exact integers go in, integers with noise
come out.

Proof: docs/proofs/estimators.md
"""

import json
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hubbub.accounting import Account, PrivacyLoss, largest_mu, refuse_large_delta, refuse_large_epsilon
from hubbub.accounting.codec import canonical_json
from hubbub.errors import InvalidInput, Refused
from hubbub.mechanisms import Gaussian, Laplace
from hubbub.numbers import Number, ceil_sqrt, parse_below_one, parse_integer, parse_positive, round_up
from hubbub.release import Release
from hubbub.sensitivity import Bounded, Sensitivity
from hubbub.unit import Unit

__all__ = ["FitBudget", "FitMeasurer", "FitRecord"]

Integers = NDArray[np.int64]


@dataclass(frozen=True)
class FitBudget:
    """What a fit may cost one unit, and how much a unit may contribute: checked, not charged yet.

    >>> budget = FitBudget.of(epsilon=1, delta=1e-5)
    >>> str(budget.loss), budget.norm_order
    ('Gaussian μ = 0.268052', 2)
    >>> str(FitBudget.of(epsilon=1).loss)
    'ε = 1'
    """

    loss: PrivacyLoss
    norm_order: int
    """The norm in which a row is bounded: 2 for Gaussian noise, 1 for Laplace noise."""
    total: Fraction
    """What the shares add up to: μ² of Gaussian noise, ε of Laplace noise."""
    unit: Unit
    rows_bound: int
    """How many rows one unit may add to a sum, or remove from it."""

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
    ) -> "FitBudget":
        """Return a budget of Gaussian noise for δ > 0, and of Laplace noise (pure ε) for δ = 0.

        Args:
            epsilon: the ε of the fit.
            delta: the δ of the fit.
            unit: the unit of privacy; one row by default.
            rows_per_unit: how many rows of a unit count.
            population: the public number of people, for a δ above 1/1000.
            allow_large_epsilon: confirms a large ε, as for `Budget`.

        Guarantee: `loss` is (ε, δ)-private.
        Proof: docs/proofs/estimators.md, "The budget of a fit"
        """
        protected = Unit.row() if unit is None else unit
        if not isinstance(protected, Unit):
            raise InvalidInput(
                f"unit is of type {type(unit).__name__}",
                why="it must be known who is protected",
                fix='pass Unit("patient"), or None where one row is one person',
            )
        rows = parse_integer(rows_per_unit, "rows_per_unit")
        if protected.key is None and rows != 1:
            raise InvalidInput(
                "rows_per_unit is not 1, but a row is the unit",
                why="a unit that is a row has one row",
                fix='pass unit=Unit("patient"), and units= to fit',
            )
        price, slack = parse_positive(epsilon, "epsilon"), parse_below_one(delta, "delta")
        refuse_large_epsilon(price, allow=allow_large_epsilon)
        rows_bound = rows * protected.neighbours.histogram_distance
        if not slack:
            return cls(PrivacyLoss.pure(price), 1, price, protected, rows_bound)
        refuse_large_delta(slack, population)
        total = largest_mu(price, slack) ** 2
        return cls(PrivacyLoss.gaussian_from_mu_squared(total), 2, total, protected, rows_bound)

    def mechanism(self, row_sensitivity: Sensitivity, share: Fraction) -> Gaussian | Laplace:
        """Return the mechanism that this share of the budget pays for.

        Args:
            row_sensitivity: how far one row, added or removed, moves the integers.
            share: the share of the budget.

        Guarantee: its loss is no more than this share of the budget.
        Proof: docs/proofs/estimators.md, "The budget of a fit"
        """
        sensitivity = self._unit_sensitivity(row_sensitivity)
        scale = self.noise_scale(row_sensitivity, share)
        return Gaussian(scale, sensitivity) if self.norm_order == 2 else Laplace(scale, sensitivity)

    def noise_scale(self, row_sensitivity: Sensitivity, share: Fraction) -> Fraction:
        """Return the σ or b of that noise, even if it is too large to be sampled."""
        sensitivity = self._unit_sensitivity(row_sensitivity)
        # As doubles, rounded up: as exact as any rational, and short to store.
        if self.norm_order == 2:
            return Fraction(round_up(ceil_sqrt(sensitivity.l2_squared / (share * self.total))))
        return Fraction(round_up(sensitivity.l1 / (share * self.total)))

    def _unit_sensitivity(self, row_sensitivity: Sensitivity) -> Sensitivity:
        """Return the sensitivity to one unit from the sensitivity to one row."""
        return Sensitivity(
            row_sensitivity.l1 * self.rows_bound,
            l2_squared=row_sensitivity.l2_squared * self.rows_bound**2,
            linf=row_sensitivity.linf * self.rows_bound,
        )


@dataclass(frozen=True)
class FitRecord:
    """What a fit measured: its mechanisms in order."""

    what: str
    mechanisms: tuple[Gaussian | Laplace, ...]
    is_charged: bool = True
    """True if an account paid for it."""

    error_kind = "none"

    def error(self, confidence: Number = 0.95, *, coordinates: int = 1) -> float:  # noqa: ARG002 - a source's shape
        """Raise: the error of a model does not follow from the errors of its sums."""
        raise InvalidInput(
            "a model has no error of its own",
            why="it was computed from several noisy sums",
            fix="measure its accuracy on public rows",
        )

    def to_json(self) -> str:
        """Return the mechanisms as they are stored."""
        mechanisms = [json.loads(mechanism.to_json()) for mechanism in self.mechanisms]
        return canonical_json({"what": self.what, "mechanisms": mechanisms})


class FitMeasurer:
    """The measurements of one fit, which is charged when this is created, before it sees a row.

    Guarantee: whatever is computed from what `measure` returned costs no unit more than `budget.loss`.
    Assumes: what is measured moves by no more than its `row_sensitivity` if one row is added or removed.
    Proof: docs/proofs/estimators.md
    """

    def __init__(self, what: str, budget: FitBudget, account: Account | None = None) -> None:
        self.budget = budget
        self.receipt = None if account is None else account.charge(what, budget.loss, unit=budget.unit)
        self._what = what
        self._remaining_share = Fraction(1)
        self._mechanisms: list[Gaussian | Laplace] = []

    def measure(self, exact: Any, row_sensitivity: Sensitivity, share: Fraction, reason: str) -> Integers:
        """Return the integers with noise, for this share of the budget.

        Args:
            exact: the integers.
            row_sensitivity: how far one row, added or removed, moves them.
            share: the share of the budget to spend.
            reason: why the sensitivity holds.
        """
        if not 0 < share <= self._remaining_share:
            raise Refused(
                "the budget of the fit is used up",
                why="it was charged once",
                fix="let the shares of all measurements add up to 1",
            )
        mechanism = self.budget.mechanism(row_sensitivity, share)
        self._remaining_share -= share
        self._mechanisms.append(mechanism)
        value = Bounded(
            np.asarray(exact, dtype=np.int64).ravel(), mechanism.sensitivity, self.budget.unit, reason
        )
        noisy: Integers = mechanism.release(value).value
        return noisy.reshape(np.shape(exact))

    @property
    def remaining_share(self) -> Fraction:
        """The share of the budget that is not used yet."""
        return self._remaining_share

    def noise_std(self, row_sensitivity: Sensitivity, share: Fraction) -> float:
        """Return the standard deviation of the noise that `measure` would add: public, and free."""
        scale = float(self.budget.noise_scale(row_sensitivity, share))
        return scale if self.budget.norm_order == 2 else scale * 2**0.5

    def release(self, value: Any) -> Release:
        """Return a model made from the measurements, with what all of them cost."""
        record = FitRecord(self._what, tuple(self._mechanisms), is_charged=self.receipt is not None)
        return Release(
            value, self.budget.loss, record, self.budget.unit, user_asserted=False, post_processed=True
        )
