"""Privacy filters: budgets for losses that are chosen while looking at earlier answers.

Whole privacy loss curves compose only if all mechanisms were fixed beforehand. A `PrivacyFilter` first adds
up (ε, δ) pairs: basic composition. A second stage opens with the first charge for which that would be
wasteful: it adds up Gaussian μ², or Rényi divergences, within what is left. Which stage a charge goes to
depends on charges alone, never on answers.

Proof: docs/proofs/filters.md
"""

import json
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Protocol

from hubbub.accounting.codec import canonical_json, decode, decode_rational, encode
from hubbub.accounting.composable_cost import ORDERS
from hubbub.accounting.filter_pricing import SMALL_SUM, holds, is_charge_true, price
from hubbub.accounting.filter_second_stage import (
    FilterCharge,
    GaussianStage,
    OdometerReading,
    Opening,
    RenyiStage,
    epsilon_of_orders,
    round_sum,
)
from hubbub.accounting.gaussian_dominance import LossFacts, loss_facts
from hubbub.accounting.privacy_loss import PrivacyLoss
from hubbub.accounting.serialization import loss_from_json, loss_to_json
from hubbub.errors import BudgetExceeded, InvalidInput
from hubbub.noise.enclosures import gaussian_delta
from hubbub.numbers import Number, format_down, parse_below_one, parse_nonnegative, parse_positive, round_up

__all__ = [
    "PURPOSES",
    "FilterCharge",
    "OdometerReading",
    "PrivacyFilter",
    "Remaining",
    "parse_purpose",
]

PURPOSES = ("", "training", "many queries", "few queries")
"""The purposes that an owner may declare. They change defaults only, never the guarantee."""
_MOST = 10**6


class _Budget(Protocol):
    """The figures of a `Budget`, which is defined in a higher module."""

    @property
    def epsilon(self) -> Fraction:
        """The total ε."""

    @property
    def delta(self) -> Fraction:
        """The total δ."""

    @property
    def purpose(self) -> str:
        """The purpose of the budget."""


@dataclass(frozen=True)
class Remaining:
    """The largest figures that one more charge may have, each by itself, rounded down."""

    epsilon: Fraction
    """Pure ε."""
    delta: Fraction
    """δ, in addition to its other figures."""
    mu_squared: Fraction
    """μ² of Gaussian noise."""


@dataclass(frozen=True, init=False)
class PrivacyFilter:
    """A budget that holds under fully adaptive composition. It is immutable: `charge` returns the next one.

    >>> from hubbub.accounting.budget import Budget
    >>> account = PrivacyFilter(Budget(1, 1e-6))
    >>> for _ in range(10):
    ...     account = account.charge(PrivacyLoss.approximate(0.1, 1e-7))
    >>> account.spent(), account.remaining().epsilon
    (OdometerReading(ε = 1, δ = 1e-6), Fraction(0, 1))
    >>> account.allows(PrivacyLoss.pure(0.001))
    False
    >>> PrivacyFilter.from_json(account.to_json()) == account
    True

    Guarantee: all that is released through it is (ε, δ)-private, though every charge, and when to stop,
        may depend on the answers before it.
    Assumes: each loss is true of its mechanism, for one unit and neighbouring relation, and is charged before
        anything of it is released. An interactive mechanism that answers between other charges is pure, or
        a training run with fixed dominating pairs of its steps.
    Proof: docs/proofs/filters.md, "The filter"
    """

    epsilon: Fraction
    delta: Fraction
    purpose: str
    sum_epsilon: Fraction
    """Of the first stage."""
    sum_delta: Fraction
    """Of the first stage."""
    pure: Fraction | None
    """The sum of all pure ε, in both stages; None if some charge had none."""
    stage: GaussianStage | RenyiStage | None
    """The second stage; None until it opens."""

    def __init__(self, budget: _Budget) -> None:
        zero = Fraction(0)
        for name, value in (
            ("epsilon", parse_positive(budget.epsilon, "epsilon")),
            ("delta", parse_below_one(budget.delta, "delta")),
            ("purpose", parse_purpose(budget.purpose)),
            ("sum_epsilon", zero),
            ("sum_delta", zero),
            ("pure", zero),
            ("stage", None),
        ):
            object.__setattr__(self, name, value)

    # Charging

    def charge(self, loss: PrivacyLoss) -> "PrivacyFilter":
        """The filter after this charge; BudgetExceeded if it does not fit, and then nothing is spent."""
        return self.apply(loss, self.price(loss))

    def allows(self, loss: PrivacyLoss) -> bool:
        """True if the charge fits."""
        return price(self, _facts(loss)) is not None

    def price(self, loss: PrivacyLoss) -> FilterCharge:
        """What this filter charges for a loss; BudgetExceeded if it does not fit.

        Guarantee: `certifies` holds for it.
        """
        charge = price(self, _facts(loss))
        if charge is None:
            raise self._exceeded()
        return charge

    def apply(self, loss: PrivacyLoss, charge: FilterCharge) -> "PrivacyFilter":
        """The filter with these figures added up; BudgetExceeded if the sums do not fit.

        Assumes: `certifies(loss, charge)`, as is true of what `price` gave.
        """
        after = self.after(loss, charge)
        if after is None:
            raise self._exceeded()
        return after

    def after(self, loss: PrivacyLoss, charge: FilterCharge) -> "PrivacyFilter | None":
        """The filter after a charge; None if the sums do not fit: the rule of docs/proofs/filters.md."""
        stage, opens = self.stage, charge.opens
        if opens is not None:
            if stage is not None or not self._is_within(opens):
                return None
            stage = self._open(opens, loss)
            if opens.is_first:
                return self._next(pure=None, stage=stage)
        pure = None if self.pure is None or charge.epsilon is None else round_sum(self.pure + charge.epsilon)
        if stage is None:
            if charge.epsilon is None:
                return None
            epsilon = round_sum(self.sum_epsilon + charge.epsilon)
            delta = round_sum(self.sum_delta + charge.delta)
            fits = epsilon <= self.epsilon and delta <= self.delta
            return self._next(sum_epsilon=epsilon, sum_delta=delta, pure=pure) if fits else None
        # The pure sum needs no δ of its own: a history within it has no loss above ε.
        is_pure = pure is not None and pure <= self.epsilon
        after = stage.after(charge)
        if after.delta > stage.cuts or not (is_pure or stage.fits(charge)):
            return None
        return self._next(pure=pure, stage=after)

    def certifies(self, loss: PrivacyLoss, charge: FilterCharge) -> bool:
        """True if these figures are true of the loss, for this filter: what `verify` checks again.

        Guarantee: an inequality, not an equality: a later and sharper version may charge less.
        """
        opens = charge.opens
        if opens is not None and not self._certifies_opening(_facts(loss), opens):
            return False
        # A loss that opened the stage as part of the certificate is not in the sums.
        return (opens is not None and opens.is_first) or is_charge_true(loss, charge)

    def certifies_opener(self, loss: PrivacyLoss, charge: FilterCharge) -> bool:
        """True if this is what was charged for the loss that opened the second stage, and is true of it."""
        opens, stage = charge.opens, self.stage
        if opens is None or stage is None or _STAGES[type(stage)] != opens.kind or opens.cuts != stage.cuts:
            return False
        if isinstance(stage, RenyiStage):
            is_same = opens.shares == stage.shares
        else:
            first = loss_to_json(loss) if opens.is_first else None
            is_same = (opens.limit, first) == (stage.limit, stage.first)
        # The sums of the first stage are what they were when the second one opened.
        return is_same and self._next(stage=None).certifies(loss, charge)

    # Opening

    def _is_within(self, opens: Opening) -> bool:
        """True if the limits fit what is left of (ε, δ); for a first run, without the run."""
        epsilon, delta = self.epsilon - self.sum_epsilon, self.delta - self.sum_delta
        # A negative share would leave another one more than there is of δ.
        if epsilon <= 0 or min(opens.limit, opens.cuts, *opens.shares) < 0:
            return False
        if opens.kind == "renyi":
            return len(opens.shares) == len(ORDERS) and opens.cuts + sum(opens.shares) <= delta
        beyond = gaussian_delta(epsilon, opens.limit) if opens.limit else Fraction(0)
        return opens.kind == "gaussian" and opens.cuts + beyond <= delta

    def _certifies_opening(self, facts: LossFacts, opens: Opening) -> bool:
        if self.stage is not None or not self._is_within(opens):
            return False
        if not opens.is_first:
            return True
        epsilon, delta = self.epsilon - self.sum_epsilon, self.delta - self.sum_delta
        beside = facts.loss + PrivacyLoss.gaussian_from_mu_squared(opens.limit)
        return opens.kind == "gaussian" and holds(beside, epsilon, delta - opens.cuts)

    def _open(self, opens: Opening, loss: PrivacyLoss) -> GaussianStage | RenyiStage:
        if opens.kind == "renyi":
            left = self.epsilon - self.sum_epsilon
            return RenyiStage(left, opens.cuts, opens.shares, (Fraction(0),) * len(ORDERS))
        return GaussianStage(opens.limit, opens.cuts, loss_to_json(loss) if opens.is_first else None)

    def _next(self, **changes: Any) -> "PrivacyFilter":
        after = object.__new__(PrivacyFilter)
        for name in _FIELDS:
            object.__setattr__(after, name, changes[name] if name in changes else getattr(self, name))
        return after

    # Reading

    def spent(self) -> OdometerReading:
        """What was spent so far, at any moment: a pair (ε, δ) that holds, never above the budget.

        >>> from hubbub.accounting.budget import Budget
        >>> account = PrivacyFilter(Budget(1, 1e-6)).charge(PrivacyLoss.gaussian(0.1))
        >>> round(float(account.spent().epsilon), 2)
        0.4

        Guarantee: all that was released with readings of at most (e, d), two numbers fixed beforehand, is
            (e, d)-private. Of two readings the later may have the larger ε and the smaller δ.
        Assumes: as `PrivacyFilter`.
        Proof: docs/proofs/filters.md, "The odometer"
        """
        delta = self.sum_delta + (self.stage.delta if self.stage else 0)
        if self.stage is None:
            return OdometerReading(self.sum_epsilon, delta)
        # All cuts of the stage count, also those to come: which of them come may depend on answers.
        curve = self._curve_epsilon(self.delta - self.sum_delta - self.stage.cuts)
        if self.pure is not None and (curve is None or self.pure <= curve):
            return OdometerReading(self.pure, delta)
        epsilon = self.epsilon if curve is None else min(self.epsilon, curve)
        return OdometerReading(epsilon, self.delta)

    def spent_epsilon(self, delta: Number) -> float:
        """The ε of all that was spent so far, at this δ; infinite if there is none."""
        allowed = parse_below_one(delta, "delta")
        spent_delta = self.sum_delta + (self.stage.delta if self.stage else 0)
        candidates = [self.epsilon] if allowed >= self.delta else []
        if self.pure is not None and spent_delta <= allowed:
            candidates.append(self.pure)
        if self.stage is None and spent_delta <= allowed:
            candidates.append(self.sum_epsilon)
        if isinstance(self.stage, GaussianStage):
            curve = self._curve_epsilon(allowed - self.sum_delta - self.stage.cuts)
            candidates += [] if curve is None else [curve]
        return round_up(min(candidates)) if candidates else math.inf

    def spent_delta(self, epsilon: Number) -> Fraction:
        """The δ of all that was spent so far, at any ε: the curve holds for all ε at once; at most 1.

        Guarantee: for sums fixed beforehand, all that was released within them has this curve.
        Proof: docs/proofs/filters.md, "The odometer"
        """
        at = parse_nonnegative(epsilon, "epsilon")
        spent_delta = self.sum_delta + (self.stage.delta if self.stage else 0)
        bounds = [Fraction(1)]
        if self.pure is not None and at >= self.pure:
            bounds.append(spent_delta)
        if at >= self.epsilon:
            bounds.append(self.delta)
        stage, rest = self.stage, at - self.sum_epsilon
        if rest >= 0 and stage is None:
            bounds.append(spent_delta)
        if rest >= 0 and isinstance(stage, GaussianStage) and stage.reach <= stage.limit:
            loss = PrivacyLoss.gaussian_from_mu_squared(stage.reach)
            if stage.first is not None:
                loss += loss_from_json(stage.first)
            bounds.append(self.sum_delta + stage.cuts + Fraction(loss.delta(rest)))
        if isinstance(stage, RenyiStage):
            least = epsilon_of_orders(stage.spent, stage.shares)
            if least is not None and rest >= least:
                bounds.append(self.sum_delta + stage.cuts + sum(stage.shares))
        return min(bounds)

    def _curve_epsilon(self, delta: Fraction) -> Fraction | None:
        stage = self.stage
        if isinstance(stage, RenyiStage):
            epsilon = epsilon_of_orders(stage.spent, stage.shares)
            return None if epsilon is None else self.sum_epsilon + epsilon
        if not isinstance(stage, GaussianStage) or stage.reach > stage.limit or delta <= 0:
            return None
        loss = PrivacyLoss.gaussian_from_mu_squared(stage.reach)
        if stage.first is not None:
            loss += loss_from_json(stage.first)
        bound = loss.epsilon(delta)
        return None if math.isinf(bound) else self.sum_epsilon + Fraction(bound)

    def remaining(self) -> Remaining:
        """The largest figures of one more charge, rounded down."""
        small = self.epsilon / (1 << 24)
        sure = self.epsilon - (self.sum_epsilon if self.stage is None else self.pure or self.epsilon)

        def pure(epsilon: Fraction) -> bool:
            return self.allows(PrivacyLoss.pure(epsilon))

        def gaussian(mu_squared: Fraction) -> bool:
            return self.allows(PrivacyLoss.gaussian_from_mu_squared(mu_squared))

        return Remaining(
            max(sure if sure > 0 and pure(sure) else Fraction(0), _largest_fitting(pure, small)),
            self.delta - self.sum_delta if self.stage is None else self.stage.cuts - self.stage.delta,
            _largest_fitting(gaussian, small**2),
        )

    def count_more(self, loss: PrivacyLoss) -> int:
        """About how many more charges like this one fit; at most a million.

        >>> from hubbub.accounting.budget import Budget
        >>> PrivacyFilter(Budget(1, 1e-6)).count_more(PrivacyLoss.pure(0.1))
        10
        """
        return self.charge_times(loss, _MOST)[1]

    def charge_times(self, loss: PrivacyLoss, most: int) -> "tuple[PrivacyFilter, int]":
        """The filter after as many charges like this one as fit, up to a number; and how many they are."""
        state, count, facts = self, 0, _facts(loss)
        while count < most:
            charge = price(state, facts)
            after = None if charge is None else state.after(loss, charge)
            if charge is None or after is None:
                break
            state, count, jump = after, count + 1, 1
            # As many at once as fit with the same figures.
            while jump:
                further = state.after_many(loss, charge, jump) if count + jump <= most else None
                if further is None:
                    jump //= 2
                else:
                    state, count, jump = further, count + jump, 2 * jump
        return state, count

    def after_many(self, loss: PrivacyLoss, charge: FilterCharge, times: int) -> "PrivacyFilter | None":
        """The filter after equal charges, each with these figures; None if they do not fit.

        Args:
            loss: the loss of one charge.
            charge: its figures.
            times: the number of charges.
        """
        if charge.opens is not None and charge.opens.is_first:
            return None
        many = replace(
            charge,
            epsilon=None if charge.epsilon is None else times * charge.epsilon,
            delta=times * charge.delta,
            mu_squared=None if charge.mu_squared is None else times * charge.mu_squared,
            renyi=tuple(None if figure is None else times * figure for figure in charge.renyi),
            opens=None,
        )
        # Beyond small sums, if training is planned, the next price is another one.
        is_small = self.purpose == "training" and self.stage is None and charge.opens is None
        if is_small and self.sum_epsilon <= SMALL_SUM * self.epsilon < self.sum_epsilon + (many.epsilon or 0):
            return None
        # By the pure sum alone only one by one: that uses up the stage.
        if isinstance(self.stage, GaussianStage) and not self.stage.fits(many):
            return None
        return self.after(loss, many)

    # Storing

    def is_bound_to_another(self, purpose: str) -> bool:
        """True if something is spent already, for a budget of another purpose."""
        return self.purpose != purpose and self != PrivacyFilter(self)

    def to_json(self) -> str:
        """The text of the filter, as it is stored: exact numbers."""
        stage = self.stage
        stored = {
            "kind": _KIND,
            "epsilon": encode(self.epsilon),
            "delta": encode(self.delta),
            "purpose": self.purpose,
            "sums": encode((self.sum_epsilon, self.sum_delta, self.pure)),
            "stage": None if stage is None else {"kind": _STAGES[type(stage)], **encode(stage)},
        }
        return canonical_json(stored)

    @classmethod
    def from_json(cls, text: str) -> "PrivacyFilter":
        """Read a stored filter, exactly as `to_json` wrote it; one with sums that do not fit is refused."""
        try:
            stored = json.loads(text)
            state = _decode_filter(stored)
        except (AttributeError, KeyError, TypeError, ValueError, RecursionError):
            state = None
        if state is None or state.to_json() != text:
            raise InvalidInput(
                "the text is not a stored privacy filter",
                why="it is not what was written, or more is spent than fits the budget",
                fix="use the text that to_json() wrote, unchanged",
            )
        return state

    def _is_consistent(self) -> bool:
        """True if the sums fit the limits, and these the budget."""
        stage = self.stage
        if self.sum_epsilon > self.epsilon or self.sum_delta > self.delta:
            return False
        if stage is None:
            return True
        kind, limit = ("renyi", Fraction(0)) if isinstance(stage, RenyiStage) else ("gaussian", stage.limit)
        shares = stage.shares if isinstance(stage, RenyiStage) else ()
        if stage.delta > stage.cuts or not self._is_within(Opening(kind, limit, stage.cuts, shares)):
            return False
        is_pure = self.pure is not None and self.pure <= self.epsilon
        nothing = FilterCharge(Fraction(0), Fraction(0), Fraction(0), renyi=(Fraction(0),) * len(ORDERS))
        return is_pure or stage.fits(nothing)

    def _exceeded(self) -> BudgetExceeded:
        remaining = self.remaining()
        fits = [f"a pure epsilon of {format_down(remaining.epsilon)}"] if remaining.epsilon else []
        if remaining.mu_squared:
            fits.append(f"Gaussian noise with (sensitivity/sigma)² of {format_down(remaining.mu_squared)}")
        return BudgetExceeded(
            "the charge does not fit the remaining budget",
            why=f"of epsilon {format_down(self.epsilon)} and delta {format_down(self.delta)} "
            f"there is room for {' or '.join(fits) or 'nothing'}, "
            f"and for a delta of {format_down(remaining.delta)}",
            fix="pass a smaller {epsilon}, add more noise, or charge an account with a larger budget",
        )


_KIND = "privacy-filter/2"
_STAGES: dict[type, str] = {GaussianStage: "gaussian", RenyiStage: "renyi"}
_FIELDS = ("epsilon", "delta", "purpose", "sum_epsilon", "sum_delta", "pure", "stage")


def parse_purpose(purpose: Any) -> str:
    """What a budget is for; InvalidInput if it is not known."""
    if purpose not in PURPOSES:
        raise InvalidInput(
            "{purpose} is not known",
            why="it chooses how charges are added up",
            fix=f"use one of: {', '.join(PURPOSES[1:])}; or leave it out",
            parameter="purpose",
        )
    return str(purpose)


def _facts(loss: Any) -> LossFacts:
    if not isinstance(loss, PrivacyLoss):
        raise InvalidInput(
            f"the charge is of type {type(loss).__name__}",
            why="a filter charges privacy losses",
            fix="pass a PrivacyLoss",
        )
    return loss_facts(loss)


def _decode_filter(stored: dict[str, Any]) -> PrivacyFilter | None:
    after = object.__new__(PrivacyFilter)
    sum_epsilon, sum_delta, pure = stored["sums"]
    stage = stored["stage"]
    for name, value in (
        ("epsilon", decode_rational(stored["epsilon"])),
        ("delta", decode_rational(stored["delta"])),
        ("purpose", stored["purpose"]),
        ("sum_epsilon", decode_rational(sum_epsilon)),
        ("sum_delta", decode_rational(sum_delta)),
        ("pure", decode(pure)),
        ("stage", None if stage is None else _decode_stage(stage)),
    ):
        object.__setattr__(after, name, value)
    is_known = stored["kind"] == _KIND and after.purpose in PURPOSES and after.epsilon > 0 and after.delta < 1
    return after if is_known and after._is_consistent() else None


def _decode_stage(stored: dict[str, Any]) -> GaussianStage | RenyiStage:
    fields = {name: value for name, value in stored.items() if name not in {"kind", "first"}}
    figures = {name: decode(value) for name, value in fields.items()}
    if stored["kind"] == "renyi":
        return RenyiStage(**figures)
    if stored["first"] is not None:
        loss_from_json(stored["first"])
    return GaussianStage(first=stored["first"], **figures)


def _largest_fitting(fits: Callable[[Fraction], bool], small: Fraction) -> Fraction:
    """About the largest number that fits, five digits, rounded down; 0 if `small` does not fit."""
    if not fits(small):
        return Fraction(0)
    power, beyond = 0, 64
    while beyond - power > 1:
        middle = (power + beyond) // 2
        power, beyond = (middle, beyond) if fits(small * (1 << middle)) else (power, middle)
    best = step = small * (1 << power)
    for _ in range(17):
        step /= 2
        best += step if fits(best + step) else 0
    return best
