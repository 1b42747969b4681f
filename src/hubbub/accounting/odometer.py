"""A privacy odometer: it refuses nothing, and reads what was spent so far.

Proof: docs/proofs/filters.md, "The odometer"
"""

import math
from dataclasses import dataclass
from fractions import Fraction

from hubbub.accounting.filter_second_stage import OdometerReading, round_sum
from hubbub.accounting.gaussian_dominance import loss_facts, mu_squared_at
from hubbub.accounting.privacy_loss import PrivacyLoss
from hubbub.numbers import Number, parse_below_one, round_up

__all__ = ["PrivacyOdometer"]

_RESERVE_FACTOR = 64


@dataclass(frozen=True, init=False)
class PrivacyOdometer:
    """A running (ε, δ) without a budget: it refuses nothing and reads what was spent.

    >>> odometer = PrivacyOdometer(1e-6).charge(PrivacyLoss.gaussian(0.5))
    >>> round(float(odometer.reading().epsilon), 2)
    2.25

    Guarantee: all that was released with readings of at most (e, d), two numbers fixed beforehand, is
        (e, d)-private, though every charge may depend on the answers before it.
    Assumes: each loss is true of its mechanism, and is entered before anything of it is released.
    Proof: docs/proofs/filters.md, "The odometer"
    """

    delta: Fraction
    """The δ of the curve; a reading has those of approximate charges in addition."""
    pure: Fraction | None
    """The sum of pure ε; None if some charge had none."""
    sum_delta: Fraction
    """The sum of the δ's of charges, and of cuts."""
    spent: Fraction | None
    """The sum of μ²; None if some charge had none."""
    reserve: Fraction
    """The largest reserve of any charge: beside it every figure is true, in whatever order they came."""

    def __init__(self, delta: Number = Fraction(1, 10**6)) -> None:
        zero = Fraction(0)
        for name, value in (
            ("delta", parse_below_one(delta, "delta")),
            ("pure", zero),
            ("sum_delta", zero),
            ("spent", zero),
            ("reserve", zero),
        ):
            object.__setattr__(self, name, value)

    def charge(self, loss: PrivacyLoss, times: int = 1) -> "PrivacyOdometer":
        """The odometer after this charge, or after several like it."""
        facts = loss_facts(loss)
        cut = self.delta / 4 if facts.is_numeric else Fraction(0)
        reserve = self._reserve(facts.largest_event**2)
        figure = mu_squared_at(facts, reserve, cut)
        is_numeric_pure = figure is None and facts.epsilon is not None
        delta = facts.delta if is_numeric_pure else facts.closed_delta + cut
        after = object.__new__(PrivacyOdometer)
        pure = None
        if self.pure is not None and facts.epsilon is not None and facts.delta <= delta:
            pure = round_sum(self.pure + times * facts.epsilon)
        spent = None if self.spent is None or figure is None else round_sum(self.spent + times * figure)
        for name, value in (
            ("delta", self.delta),
            ("pure", pure),
            ("sum_delta", min(Fraction(1), round_sum(self.sum_delta + times * delta))),
            ("spent", spent),
            ("reserve", max(self.reserve, reserve)),
        ):
            object.__setattr__(after, name, value)
        return after

    def _reserve(self, square: Fraction) -> Fraction:
        """Enough for a close figure, but at most an eighth of what was spent: the reading includes it."""
        reserve = _RESERVE_FACTOR * _power_above(square)
        while reserve and 8 * reserve > (self.spent or 0):
            reserve = reserve / 2 if reserve > square else Fraction(0)
        return reserve

    @property
    def _curve(self) -> PrivacyLoss:
        assert self.spent is not None
        return PrivacyLoss.gaussian_from_mu_squared(self.spent + self.reserve)

    def epsilon(self, delta: Number) -> float:
        """The ε of everything charged, at this δ; infinite if there is none.

        Guarantee: everything charged is (ε, δ)-private if the charges were fixed beforehand. `reading` holds
            also for charges that depend on answers.
        """
        allowed = parse_below_one(delta, "delta")
        candidates = [math.inf]
        if self.pure is not None and self.sum_delta <= allowed:
            candidates.append(round_up(self.pure))
        if self.spent is not None and allowed > self.sum_delta:
            candidates.append(self._curve.epsilon(allowed - self.sum_delta))
        return min(candidates)

    def reading(self) -> OdometerReading:
        """The pair so far: the curve at the odometer's own δ, or the pure sum if that is smaller."""
        curve = math.inf
        if self.spent is not None and self.delta:
            curve = self._curve.epsilon(self.delta)
        if self.pure is not None and self.pure <= curve:
            # With δ's of charges, the curve's own δ counts too: otherwise she who asks could take the one
            # reading or the other, by the answers, and get more than either says.
            return OdometerReading(
                self.pure, min(Fraction(1), self.sum_delta + self.delta) if self.sum_delta else self.sum_delta
            )
        if math.isinf(curve):
            return OdometerReading(Fraction(1 << 20), Fraction(1))
        return OdometerReading(Fraction(curve), min(Fraction(1), self.sum_delta + self.delta))


def _power_above(x: Fraction) -> Fraction:
    """A power of two, at least x; 0 for 0."""
    if not x:
        return x
    return Fraction(2) ** (x.numerator.bit_length() - x.denominator.bit_length() + 1)
