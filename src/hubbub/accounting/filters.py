"""Privacy filters and odometers: budgets for costs that are chosen while looking at earlier answers.

Whole privacy loss curves compose only if all mechanisms were fixed beforehand. Sums stay valid whatever is
asked next: of pure ε, of Rényi ε(α) at orders fixed when the account is made, of Gaussian μ², and of δ. A
`PrivacyFilter` adds up `ComposableCost`s and refuses a charge that does not fit its budget; a
`PrivacyOdometer` adds them up and reads the ε so far.

Proof: docs/proofs/filters.md
"""

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from types import SimpleNamespace
from typing import Any, Protocol, Self

from hubbub.accounting.codec import read_record, read_text, write_text
from hubbub.accounting.composable_cost import (
    ORDERS,
    ComposableCost,
    check_same_orders,
    parse_list,
    parse_orders,
    smallest_figure,
)
from hubbub.errors import BudgetExceeded, InvalidInput
from hubbub.noise.enclosures import exp_neg, gaussian_delta, log
from hubbub.numbers import (
    Number,
    format_down,
    format_up,
    parse_below_one,
    parse_nonnegative,
    parse_positive,
    parse_rational,
)

__all__ = [
    "DeltaSplit",
    "OdometerReading",
    "PrivacyFilter",
    "PrivacyOdometer",
    "Remaining",
]

_BITS = 128
_ONE = 1 << _BITS


class _EpsilonDelta(Protocol):
    """The figures of a `Budget`, which is defined in a higher module."""

    @property
    def epsilon(self) -> Fraction:
        """The total ε."""

    @property
    def delta(self) -> Fraction:
        """The total δ."""


@dataclass(frozen=True)
class DeltaSplit:
    """How an account's δ is divided, before the first charge and for good.

    >>> from hubbub.accounting.budget import Budget
    >>> split = DeltaSplit.of(Budget(1, 1e-6))
    >>> split.approximate * 10**6, split.gaussian
    (Fraction(1, 16), Fraction(0, 1))
    >>> split.approximate + sum(split.renyi) == Fraction(1, 10**6)
    True
    """

    approximate: Fraction
    """For the sum of the δ's of approximate charges."""
    gaussian: Fraction
    """For the sum of μ²."""
    renyi: tuple[Fraction, ...]
    """For the sums of Rényi ε(α), order by order."""

    def __post_init__(self) -> None:
        for name in ("approximate", "gaussian"):
            object.__setattr__(self, name, parse_nonnegative(getattr(self, name), name))
        shares = tuple(parse_nonnegative(share, "renyi") for share in parse_list(self.renyi, "renyi"))
        object.__setattr__(self, "renyi", shares)

    @classmethod
    def of(
        cls,
        budget: _EpsilonDelta,
        *,
        orders: Sequence[Number] = ORDERS,
        approximate: Number = Fraction(1, 16),
        gaussian: Number = 0,
        favoured_order: Number | None = None,
    ) -> "DeltaSplit":
        """Shares of the budget's δ for approximate charges, for μ², and the rest for the Rényi orders.

        The order that is best for Gaussian noise within this budget gets 5/6 of the rest or more; one that is
        d places away gets 1/4^(d+1).

        Args:
            budget: The ε and δ to divide.
            orders: The Rényi orders of the account.
            approximate: The share of δ for the δ's of charges, such as partition selection.
            gaussian: The share of δ for the sum of μ².
            favoured_order: The order to favour instead, such as the best one of a planned training run.
        """
        at = parse_orders(orders)
        parts, mu = parse_nonnegative(approximate, "approximate"), parse_nonnegative(gaussian, "gaussian")
        if parts + mu > 1:
            raise InvalidInput(
                "approximate and gaussian are more than 1 together",
                why="they are shares of one delta",
                fix="pass shares that add up to 1 or less",
            )
        rest = (1 - parts - mu) * budget.delta
        room = _renyi_room(at, (rest,) * len(at))
        if favoured_order is None:
            # survives: Without a delta there is nothing to divide, whichever order is the best.
            best = max(range(len(at)), key=lambda j: (budget.epsilon + (room[j] or 0)) / at[j])
        else:
            wanted = parse_rational(favoured_order, "favoured_order")
            best = min(range(len(at)), key=lambda j: abs(at[j] - wanted))
        weights = [Fraction(1, 4 ** (abs(j - best) + 1)) for j in range(len(at))]
        weights[best] += 1 - sum(weights)
        return cls(parts * budget.delta, mu * budget.delta, tuple(weight * rest for weight in weights))


@dataclass(frozen=True)
class Remaining:
    """The largest figures that one more charge may have, each by itself."""

    epsilon: Fraction
    """Pure ε."""
    delta: Fraction
    """The δ of an approximate charge, in addition to its other figures."""
    mu_squared: Fraction
    """μ² of Gaussian noise."""


@dataclass(frozen=True)
class OdometerReading:
    """The ε spent so far, None if it is infinite, and the δ it holds with."""

    epsilon: Fraction | None
    delta: Fraction


@dataclass(frozen=True, init=False)
class PrivacyFilter:
    """A budget that holds under fully adaptive composition. It is immutable: `charge` returns the next one.

    >>> from hubbub.accounting.budget import Budget
    >>> account = PrivacyFilter(Budget(1, 1e-6))
    >>> for _ in range(10):
    ...     account = account.charge(ComposableCost.of(epsilon=0.1))
    >>> account.spent.epsilon, account.remaining().epsilon
    (Fraction(1, 1), Fraction(0, 1))
    >>> account.allows(ComposableCost.of(epsilon=0.001))
    False
    >>> PrivacyFilter.from_json(account.to_json()) == account
    True

    Guarantee: all that is released through it is (ε, δ)-private, though every charge, and when to stop,
        may depend on the answers before it.
    Assumes: what each cost assumes; each is charged before anything of it is released, to a filter with
        the split of the first one. An interactive mechanism that answers between other charges
        has delta = 0 and no μ².
    Proof: docs/proofs/filters.md, "The filter"
    """

    epsilon: Fraction
    delta: Fraction
    split: DeltaSplit
    spent: ComposableCost

    def __init__(
        self,
        budget: _EpsilonDelta,
        orders: Sequence[Number] = ORDERS,
        split: DeltaSplit | None = None,
        *,
        spent: ComposableCost | None = None,
    ) -> None:
        at = parse_orders(orders)
        object.__setattr__(self, "epsilon", parse_positive(budget.epsilon, "epsilon"))
        object.__setattr__(self, "delta", parse_below_one(budget.delta, "delta"))
        object.__setattr__(self, "split", split or DeltaSplit.of(self, orders=at))
        object.__setattr__(self, "spent", spent or ComposableCost.of(0, mu_squared=0, orders=at))
        shares = (self.split.approximate, self.split.gaussian, *self.split.renyi)
        if len(self.split.renyi) != len(at) or sum(shares) > self.delta:
            raise InvalidInput(
                "the split does not divide the budget's delta over its orders",
                why="the shares must add up to no more than the budget's delta",
                fix="pass one share for each order, delta or less in all: see DeltaSplit.of",
            )
        check_same_orders(at, self.spent)
        if not self._fits(self.spent):
            raise InvalidInput(
                "more is spent than fits the budget",
                why="the filter could guarantee nothing",
                fix="pass a cost that a filter of this budget and split had spent",
            )

    @classmethod
    def for_queries(
        cls, budget: _EpsilonDelta, orders: Sequence[Number] = ORDERS, *, spent: ComposableCost | None = None
    ) -> Self:
        """The filter of an account for queries: half of δ is for partition selection.

        >>> from hubbub.accounting.budget import Budget
        >>> PrivacyFilter.for_queries(Budget(1, 1e-6)).split.approximate * 10**6
        Fraction(1, 2)
        """
        half = DeltaSplit.of(budget, orders=orders, approximate=Fraction(1, 2))
        return cls(budget, orders, half, spent=spent)

    @property
    def orders(self) -> tuple[Fraction, ...]:
        """The Rényi orders at which costs are added up."""
        return self.spent.orders

    def allows(self, cost: ComposableCost) -> bool:
        """True if the charge fits."""
        check_same_orders(self.orders, cost)
        return self._fits(self.spent + cost)

    def charge(self, cost: ComposableCost) -> "PrivacyFilter":
        """The filter after this charge; BudgetExceeded if it does not fit, and then nothing is spent."""
        check_same_orders(self.orders, cost)
        total = self.spent + cost
        if not self._fits(total):
            raise self._exceeded()
        after = copy(self)  # the same budget and split, which were checked when it was made
        object.__setattr__(after, "spent", total)
        return after

    def remaining(self) -> Remaining:
        """The largest figures of one more charge, rounded down."""
        # survives: Only what fits counts, and the search finds as much.
        sure = Fraction(0) if self.spent.epsilon is None else self.epsilon - self.spent.epsilon
        # survives: From how little on it is said that something is left is free.
        small = self.epsilon / (1 << 24)

        def pure(epsilon: Fraction) -> bool:
            return self.allows(ComposableCost.of(epsilon, orders=self.orders))

        # survives: The search finds 0 or more. Of nothing left nothing fits, either way.
        return Remaining(
            # The rest of the pure sum exactly, unless more fits by Rényi, or the sum is rounded.
            max(sure if sure > 0 and pure(sure) else Fraction(0), _largest_fitting(pure, small)),
            self.split.approximate - self.spent.delta,
            _largest_fitting(
                lambda v: self.allows(ComposableCost.of(mu_squared=v, orders=self.orders)), small**2
            ),
        )

    def reading(self) -> OdometerReading:
        """The ε spent so far, as an odometer reads it, at any moment.

        >>> from hubbub.accounting.budget import Budget
        >>> account = PrivacyFilter(Budget(1, 1e-6)).charge(ComposableCost.of(mu_squared=0.01))
        >>> round(float(account.reading().epsilon), 2)
        0.52

        Guarantee: as `PrivacyOdometer`.
        Assumes: as `PrivacyFilter`.
        Proof: docs/proofs/filters.md, "The odometer"
        """
        epsilon = smallest_figure(_epsilon_of_orders(self.spent, self.split.renyi), self.epsilon)
        return OdometerReading(epsilon, self.split.gaussian + sum(self.split.renyi) + self.spent.delta)

    def __repr__(self) -> str:
        reading = self.reading().epsilon
        spent = "∞" if reading is None else format_up(reading)
        return f"PrivacyFilter(ε = {spent} of {format_up(self.epsilon)} spent, δ = {format_up(self.delta)})"

    def to_json(self) -> str:
        """The text of the filter, as it is stored: exact numbers, with its split."""
        return write_text(
            "privacy-filter/1", epsilon=self.epsilon, delta=self.delta, split=self.split, spent=self.spent
        )

    @classmethod
    def from_json(cls, text: str) -> "PrivacyFilter":
        """Read a stored filter, exactly as `to_json` wrote it."""

        def make(*, epsilon: Any, delta: Any, split: Any, spent: Any) -> PrivacyFilter:
            budget: Any = SimpleNamespace(epsilon=epsilon, delta=delta)
            total = read_record(ComposableCost, spent)
            return cls(budget, total.orders, read_record(DeltaSplit, split), spent=total)

        return read_text(text, "privacy-filter/1", make)

    def _fits(self, total: ComposableCost) -> bool:
        """The rule of docs/proofs/filters.md: the pure sum, or μ², or the orders together."""
        if total.delta > self.split.approximate:
            # survives: Only asked whether it is true.
            return False
        if total.epsilon is not None and total.epsilon <= self.epsilon:
            return True
        if self.split.gaussian and total.mu_squared is not None:
            # μ² = 0 costs nothing, and has no Gaussian curve.
            # survives: It is compared with a share above 0.
            cost = gaussian_delta(self.epsilon, total.mu_squared) if total.mu_squared else 0
            if cost <= self.split.gaussian:
                return True
        return _orders_fit(_epsilon_by_order(total, self.split.renyi), self.epsilon)

    def _exceeded(self) -> BudgetExceeded:
        remaining = self.remaining()
        fits = [f"a pure epsilon of {format_down(remaining.epsilon)}"] if remaining.epsilon else []
        if remaining.mu_squared:
            fits.append(f"Gaussian noise with (sensitivity/sigma)² of {format_down(remaining.mu_squared)}")
        return BudgetExceeded(
            "the charge does not fit the remaining budget",
            why=f"of epsilon {format_down(self.epsilon)} and delta {format_down(self.delta)} "
            f"there is room for {' or '.join(fits) or 'nothing'}, "
            f"and for {format_down(remaining.delta)} of delta in approximate charges",
            fix="add more noise, or charge an account with a larger budget",
        )


@dataclass(frozen=True, init=False)
class PrivacyOdometer:
    """A running ε without a budget: it refuses nothing and reads what was spent.

    >>> odometer = PrivacyOdometer(1e-6).charge(ComposableCost.of(epsilon=0.5))
    >>> odometer = odometer.charge(ComposableCost.of(mu_squared=0.25))
    >>> reading = odometer.reading()
    >>> round(float(reading.epsilon), 2), float(reading.delta)
    (3.16, 1e-06)

    Guarantee: stop at any moment, by any rule that looks at the answers. For every event S then
        Pr[S] ≤ E'[e^ε·1_S] + δ, with ε the reading at that moment, δ the odometer's, and Pr and E' of two
        neighbours, if nothing was approximate. And all that was released with readings of at most
        (e, d), two numbers fixed beforehand, is (e, d)-private.
    Assumes: what each cost assumes; each is entered before anything is released.
    Proof: docs/proofs/filters.md, "The odometer"
    """

    delta: Fraction
    spent: ComposableCost

    def __init__(
        self, delta: Number = 0, orders: Sequence[Number] = ORDERS, *, spent: ComposableCost | None = None
    ) -> None:
        object.__setattr__(self, "delta", parse_below_one(delta, "delta"))
        object.__setattr__(self, "spent", spent or ComposableCost.of(0, mu_squared=0, orders=orders))
        check_same_orders(parse_orders(orders), self.spent)

    def charge(self, cost: ComposableCost) -> "PrivacyOdometer":
        """The odometer after this charge."""
        check_same_orders(self.spent.orders, cost)
        return PrivacyOdometer(self.delta, self.spent.orders, spent=self.spent + cost)

    def reading(self) -> OdometerReading:
        """The ε so far, rounded up; its δ is the odometer's own plus those of approximate charges."""
        count = len(self.spent.orders)
        epsilon = _epsilon_of_orders(self.spent, (self.delta / count,) * count)
        return OdometerReading(epsilon, self.delta + self.spent.delta)

    @classmethod
    def epsilon_of(cls, spent: ComposableCost, delta: Number) -> Fraction | None:
        """The ε of everything spent at this δ, which includes that of approximate charges; None if infinite.

        >>> PrivacyOdometer.epsilon_of(ComposableCost.of(epsilon=0.5), 0)
        Fraction(1, 2)
        """
        rest = parse_below_one(delta, "delta") - spent.delta
        return cls(rest, spent.orders).charge(spent).reading().epsilon if rest >= 0 else None

    def to_json(self) -> str:
        """The text of the odometer, as it is stored."""
        return write_text("privacy-odometer/1", delta=self.delta, spent=self.spent)

    @classmethod
    def from_json(cls, text: str) -> "PrivacyOdometer":
        """Read a stored odometer, exactly as `to_json` wrote it."""

        def make(*, delta: Any, spent: Any) -> PrivacyOdometer:
            total = read_record(ComposableCost, spent)
            return cls(delta, total.orders, spent=total)

        return read_text(text, "privacy-odometer/1", make)


@lru_cache(maxsize=256)
def _renyi_room(orders: tuple[Fraction, ...], deltas: tuple[Fraction, ...]) -> tuple[Fraction | None, ...]:
    """The largest Rényi ε(α) that fits (ε, δ), minus ε; usually negative.

    It is ln(α/(α−1)) + ln(αδ)/(α−1), rounded down, and None where δ is 0.

    Proof: docs/proofs/filters.md, "From Rényi to (ε, δ)"
    """
    # survives: Lengths were checked when the costs were made.
    return tuple(
        (Fraction(log(alpha / (alpha - 1), _BITS)[0]) + log(alpha * delta, _BITS)[0] / (alpha - 1)) / _ONE
        if delta
        else None
        for alpha, delta in zip(orders, deltas, strict=True)
    )


def _epsilon_by_order(total: ComposableCost, deltas: tuple[Fraction, ...]) -> list[tuple[Fraction, Fraction]]:
    """For each order α with a share and a finite sum: α−1, and the smallest ε at which it fits alone."""
    room = _renyi_room(total.orders, deltas)
    # survives: Lengths were checked when the costs were made.
    return [
        (alpha - 1, figure - space)
        for alpha, space, figure in zip(total.orders, room, total.renyi, strict=True)
        if space is not None and figure is not None
    ]


def _orders_fit(alone: list[tuple[Fraction, Fraction]], epsilon: Fraction) -> bool:
    """True if the orders fit together at ε: the terms e^((α−1)·(ε − ε_alone)) add up to 1 or more.

    Guarantee: true only if Σ δ(α)/δ'(α) ≥ 1, with δ(α) the order's share, and δ'(α) what its sum costs at ε.
    Proof: docs/proofs/filters.md, "Many orders at once"
    """
    # survives: Where they are equal that order's part of the work is just 1.
    if any(least <= epsilon for _, least in alone):
        return True
    # survives: A sum of irrational numbers, rounded down, is not just 1.
    return sum(exp_neg(power * (least - epsilon), _BITS)[0] for power, least in alone) >= _ONE


def _epsilon_of_orders(total: ComposableCost, deltas: tuple[Fraction, ...]) -> Fraction | None:
    """The smallest ε at which the sums fit, rounded up to 2^-40; None if there is none."""
    alone = _epsilon_by_order(total, deltas)
    if not alone:
        return total.epsilon
    unit = Fraction(1, 1 << 40)
    # survives: From a larger upper end the bisection comes to the same. A reading of next to nothing
    # may be rounded up by a unit or two of 2^-40 more.
    low, high = -1, max(0, -(-min(least for _, least in alone) // unit))
    # survives: A reading that is rounded up by one unit of 2^-40 more is still one.
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if _orders_fit(alone, middle * unit) else (middle, high)
    return smallest_figure(total.epsilon, high * unit)


def _largest_fitting(fits: Callable[[Fraction], bool], small: Fraction) -> Fraction:
    """About the largest number that fits, five digits, rounded down; 0 if `small` does not fit."""
    if not fits(small):
        return Fraction(0)
    # survives: Where the search begins is free; what it gives fits.
    power, beyond = 0, 64
    while beyond - power > 1:
        middle = (power + beyond) // 2
        power, beyond = (middle, beyond) if fits(small * (1 << middle)) else (power, middle)
    best = step = small * (1 << power)
    # survives: How many digits are found is free; what it gives fits.
    for _ in range(17):
        step /= 2
        best += step if fits(best + step) else 0
    return best
