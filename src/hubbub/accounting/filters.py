"""Budgets for costs that are chosen while looking at earlier answers: a filter and an odometer.

Whole curves of privacy loss compose only where all of them were fixed beforehand. What stays true
whatever is asked next are sums: of pure ε, of Rényi ε(α) at orders fixed when the account is made, of
Gaussian μ², and of δ's. A `ComposableCost` holds these figures, a `PrivacyFilter` adds them up and refuses
what does
not fit its budget, an `PrivacyOdometer` adds them up and says where one stands.

Proof: docs/proofs/filters.md
"""

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from types import SimpleNamespace
from typing import Any, Protocol, Self

from hubbub.accounting.records import read_text, record, text_of
from hubbub.errors import BudgetExceeded, InvalidInput
from hubbub.noise.enclosures import exp_neg, gaussian_delta, log
from hubbub.numbers import (
    Number,
    format_down,
    parse_below_one,
    parse_nonnegative,
    parse_positive,
    parse_rational,
)

__all__ = [
    "ORDERS",
    "ComposableCost",
    "DeltaSplit",
    "OdometerReading",
    "PrivacyFilter",
    "PrivacyOdometer",
    "Remaining",
]

ORDERS: tuple[Fraction, ...] = (
    *(Fraction(quarters, 4) for quarters in (5, 6, 7, 8, 10, 12, 14, 16, 18)),
    *map(Fraction, (5, 6, 7, 8, 9, 10, 12, 14, 16, 20, 24, 28, 32, 40, 48, 64, 80, 96)),
    *map(Fraction, (128, 160, 192, 256, 320, 384, 512)),
)
"""The Rényi orders of an account that is not made with others."""

_BITS = 128
_ONE = 1 << _BITS
_LONGEST = 1 << 256
"""A figure with a larger denominator is rounded up to a multiple of 2^-128."""
_MOST = 1 << 64
"""A larger figure is said to be infinite: no budget is as large."""


class _Promise(Protocol):
    """What is read of a `Budget`, which stands in a higher module."""

    @property
    def epsilon(self) -> Fraction:
        """The ε that is promised."""

    @property
    def delta(self) -> Fraction:
        """The δ that is promised."""


@dataclass(frozen=True)
class ComposableCost:
    """What a release costs, or many together, in figures that add up whatever comes next.

    All figures but δ are about the release with one and the same event of probability δ cut off. One
    that is not known, or infinite, is None.

    >>> cost = ComposableCost.of(epsilon=0.1)
    >>> cost.rho, (cost + cost).epsilon
    (Fraction(1, 200), Fraction(1, 5))

    Guarantee: a sum is exact, or rounded up where it would grow beyond 256 bits.
    Assumes: each figure given holds for all neighbours, in both directions.
    Proof: docs/proofs/filters.md, "What a cost says"
    """

    epsilon: Fraction | None
    """Pure ε."""
    delta: Fraction
    """The probability of what is cut off."""
    renyi: tuple[Fraction | None, ...]
    """Rényi ε(α) at each of the orders."""
    mu_squared: Fraction | None
    """μ², where the δ(ε) lies below that of Gaussian noise of σ = Δ₂/μ, at every ε."""
    rho: Fraction | None
    """zCDP."""
    orders: tuple[Fraction, ...] = ORDERS

    def __post_init__(self) -> None:
        object.__setattr__(self, "orders", _checked_orders(self.orders))
        curve = tuple(_figure(value, "renyi") for value in _listed(self.renyi, "renyi"))
        if len(curve) != len(self.orders):
            raise InvalidInput(
                f"renyi has {len(curve)} figures for {len(self.orders)} orders",
                why="each order's sum needs its own",
                fix="pass one figure for each order, None where it is not known",
            )
        object.__setattr__(self, "renyi", curve)
        delta = min(parse_nonnegative(self.delta, "delta"), Fraction(1))
        object.__setattr__(self, "delta", _figure(delta, "delta"))
        for name in ("epsilon", "mu_squared", "rho"):
            object.__setattr__(self, name, _figure(getattr(self, name), name))

    @classmethod
    def of(
        cls,
        epsilon: Number | None = None,
        *,
        delta: Number = 0,
        renyi: Sequence[Number | None] | None = None,
        mu_squared: Number | None = None,
        rho: Number | None = None,
        orders: Sequence[Number] = ORDERS,
    ) -> "ComposableCost":
        """The cost of one release, with what follows from the figures given.

        Pure ε is zCDP of ε²/2, Gaussian μ² is zCDP of μ²/2, and zCDP of ρ is αρ at each order α, where
        pure ε is also ε.

        Guarantee: what is filled in holds wherever what was given does.
        Assumes: as `ComposableCost`.
        Proof: docs/proofs/filters.md, "What follows from what"
        """
        at = _checked_orders(orders)
        pure, mu, zcdp = _figure(epsilon, "epsilon"), _figure(mu_squared, "mu_squared"), _figure(rho, "rho")
        zcdp = _least(zcdp, None if pure is None else pure**2 / 2, None if mu is None else mu / 2)
        implied = tuple(_least(pure, None if zcdp is None else alpha * zcdp) for alpha in at)
        cost = cls(pure, parse_nonnegative(delta, "delta"), implied, mu, zcdp, at)
        if renyi is None:
            return cost
        given = replace(cost, renyi=_listed(renyi, "renyi"))
        return replace(cost, renyi=tuple(map(_least, given.renyi, cost.renyi)))

    def __add__(self, other: "ComposableCost") -> "ComposableCost":
        """Both, also where the second was chosen after seeing the first."""
        if not isinstance(other, ComposableCost):
            return NotImplemented
        _check_orders(self.orders, other)
        # Nothing is inferred from sums: only what was true of each charge adds up. Both were checked when
        # they were made, so their sums need no check, and a ledger adds up millions.
        total = copy(self)
        for name in ("epsilon", "mu_squared", "rho"):
            object.__setattr__(total, name, _plus(getattr(self, name), getattr(other, name)))
        object.__setattr__(total, "delta", _figure(min(self.delta + other.delta, Fraction(1)), "delta"))
        object.__setattr__(total, "renyi", tuple(map(_plus, self.renyi, other.renyi)))
        return total

    def times(self, count: int) -> "ComposableCost":
        """The same cost so many times.

        >>> ComposableCost.of(epsilon=0.25).times(3).epsilon
        Fraction(3, 4)
        """
        return replace(
            self,
            epsilon=_many(self.epsilon, count),
            delta=self.delta * count,
            renyi=tuple(_many(figure, count) for figure in self.renyi),
            mu_squared=_many(self.mu_squared, count),
            rho=_many(self.rho, count),
        )

    @property
    def figures(self) -> tuple[Fraction | None, ...]:
        """All figures, in a fixed order."""
        return (self.epsilon, self.delta, self.mu_squared, self.rho, *self.renyi)


@dataclass(frozen=True)
class DeltaSplit:
    """How an account's δ is divided before anything is charged; nothing can be moved later.

    >>> from hubbub.accounting.budget import Budget
    >>> split = DeltaSplit.of(Budget(1, 1e-6))
    >>> split.approximate * 10**6, split.gaussian
    (Fraction(1, 16), Fraction(0, 1))
    >>> split.approximate + sum(split.renyi) == Fraction(1, 10**6)
    True
    """

    approximate: Fraction
    """The most that the δ's of releases may add up to."""
    gaussian: Fraction
    """What the sum of μ² may cost."""
    renyi: tuple[Fraction, ...]
    """What the sums of Rényi ε(α) may cost, order by order."""

    def __post_init__(self) -> None:
        for name in ("approximate", "gaussian"):
            object.__setattr__(self, name, parse_nonnegative(getattr(self, name), name))
        shares = tuple(parse_nonnegative(share, "renyi") for share in _listed(self.renyi, "renyi"))
        object.__setattr__(self, "renyi", shares)

    @classmethod
    def of(
        cls,
        budget: _Promise,
        *,
        orders: Sequence[Number] = ORDERS,
        approximate: Number = Fraction(1, 16),
        gaussian: Number = 0,
        around: Number | None = None,
    ) -> "DeltaSplit":
        """Shares of the budget's δ: what is for neither approximate parts nor μ² is for the orders.

        The order that is best for Gaussian noise within this budget gets 5/6 of that or more; one that is
        d places away gets 1/4^(d+1). `around` names another order to favour, such as the best one of a
        training run that is planned.
        """
        at = _checked_orders(orders)
        parts, mu = parse_nonnegative(approximate, "approximate"), parse_nonnegative(gaussian, "gaussian")
        if parts + mu > 1:
            raise InvalidInput(
                "approximate and gaussian are more than 1 together",
                why="they are shares of one delta",
                fix="pass shares that add up to 1 or less",
            )
        rest = (1 - parts - mu) * budget.delta
        room = _room(at, (rest,) * len(at))
        if around is None:
            # survives: Without a delta there is nothing to divide, whichever order is the best.
            best = max(range(len(at)), key=lambda j: (budget.epsilon + (room[j] or 0)) / at[j])
        else:
            wanted = parse_rational(around, "around")
            best = min(range(len(at)), key=lambda j: abs(at[j] - wanted))
        weights = [Fraction(1, 4 ** (abs(j - best) + 1)) for j in range(len(at))]
        weights[best] += 1 - sum(weights)
        return cls(parts * budget.delta, mu * budget.delta, tuple(weight * rest for weight in weights))


@dataclass(frozen=True)
class Remaining:
    """What one more charge may cost: the most of each figure that fits by itself."""

    epsilon: Fraction
    """Pure ε."""
    delta: Fraction
    """The δ of an approximate part, which comes on top."""
    mu_squared: Fraction
    """μ² of Gaussian noise."""


@dataclass(frozen=True)
class OdometerReading:
    """Where an account stands: ε, None where it is infinite, and the δ it holds with."""

    epsilon: Fraction | None
    delta: Fraction


@dataclass(frozen=True, init=False)
class PrivacyFilter:
    """A budget that is kept whatever is asked next. It never changes: `charge` gives the next one.

    >>> from hubbub.accounting.budget import Budget
    >>> account = PrivacyFilter(Budget(1, 1e-6))
    >>> for _ in range(10):
    ...     account = account.charge(ComposableCost.of(epsilon=0.1))
    >>> account.spent.epsilon, account.left().epsilon
    (Fraction(1, 1), Fraction(0, 1))
    >>> account.allows(ComposableCost.of(epsilon=0.001))
    False
    >>> PrivacyFilter.from_json(account.to_json()) == account
    True

    Guarantee: all that is released through it is (ε, δ)-private, though every charge, and when to stop,
        may depend on the answers before it.
    Assumes: what each cost assumes; each is charged before anything of it is released, to a filter with
        the split of the first one. An interactive mechanism whose answers come between other charges
        has delta = 0 and no μ².
    Proof: docs/proofs/filters.md, "The filter"
    """

    epsilon: Fraction
    delta: Fraction
    split: DeltaSplit
    spent: ComposableCost

    def __init__(
        self,
        budget: _Promise,
        orders: Sequence[Number] = ORDERS,
        split: DeltaSplit | None = None,
        *,
        spent: ComposableCost | None = None,
    ) -> None:
        at = _checked_orders(orders)
        object.__setattr__(self, "epsilon", parse_positive(budget.epsilon, "epsilon"))
        object.__setattr__(self, "delta", parse_below_one(budget.delta, "delta"))
        object.__setattr__(self, "split", split or DeltaSplit.of(self, orders=at))
        object.__setattr__(self, "spent", spent or ComposableCost.of(0, mu_squared=0, orders=at))
        shares = (self.split.approximate, self.split.gaussian, *self.split.renyi)
        if len(self.split.renyi) != len(at) or sum(shares) > self.delta:
            raise InvalidInput(
                "the split does not divide the budget's delta over its orders",
                why="what its parts may cost must add up to no more than is promised",
                fix="pass one share for each order, delta or less in all: see Split.of",
            )
        _check_orders(at, self.spent)
        if not self._fits(self.spent):
            raise InvalidInput(
                "more is spent than fits the budget",
                why="there would be no promise to keep",
                fix="pass what a filter of this budget and split had spent",
            )

    @classmethod
    def for_queries(
        cls, budget: _Promise, orders: Sequence[Number] = ORDERS, *, spent: ComposableCost | None = None
    ) -> Self:
        """The filter of an account that is asked questions: half of δ is for keys that they select.

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
        """Whether it would fit."""
        _check_orders(self.orders, cost)
        return self._fits(self.spent + cost)

    def charge(self, cost: ComposableCost) -> "PrivacyFilter":
        """The filter after this charge; where it does not fit, BudgetExceeded, and nothing is spent."""
        _check_orders(self.orders, cost)
        total = self.spent + cost
        if not self._fits(total):
            raise self._exceeded()
        after = copy(self)  # the same budget and split, which were checked when it was made
        object.__setattr__(after, "spent", total)
        return after

    def left(self) -> Remaining:
        """What one more charge may cost, rounded down."""
        # survives: Only what fits counts, and the search finds as much.
        sure = Fraction(0) if self.spent.epsilon is None else self.epsilon - self.spent.epsilon
        # survives: From how little on it is said that something is left is free.
        small = self.epsilon / (1 << 24)

        def pure(epsilon: Fraction) -> bool:
            return self.allows(ComposableCost.of(epsilon, orders=self.orders))

        # survives: The search finds 0 or more. Of nothing left nothing fits, either way.
        return Remaining(
            # The rest of the pure sum exactly, unless more fits by Rényi, or the sum is too long to be exact.
            max(sure if sure > 0 and pure(sure) else Fraction(0), _largest(pure, small)),
            self.split.approximate - self.spent.delta,
            _largest(lambda v: self.allows(ComposableCost.of(mu_squared=v, orders=self.orders)), small**2),
        )

    def reading(self) -> OdometerReading:
        """Where the account stands, as an odometer would say it at this or any moment.

        >>> from hubbub.accounting.budget import Budget
        >>> account = PrivacyFilter(Budget(1, 1e-6)).charge(ComposableCost.of(mu_squared=0.01))
        >>> round(float(account.reading().epsilon), 2)
        0.52

        Guarantee: as `PrivacyOdometer`.
        Assumes: as `PrivacyFilter`.
        Proof: docs/proofs/filters.md, "The odometer"
        """
        epsilon = _least(_reached(self.spent, self.split.renyi), self.epsilon)
        return OdometerReading(epsilon, self.split.gaussian + sum(self.split.renyi) + self.spent.delta)

    def to_json(self) -> str:
        """The filter as it is stored: exact numbers, and the split as it was made."""
        return text_of("filter/1", epsilon=self.epsilon, delta=self.delta, split=self.split, spent=self.spent)

    @classmethod
    def from_json(cls, text: str) -> "PrivacyFilter":
        """Read a stored filter, which must be just what `to_json` wrote."""

        def made(*, epsilon: Any, delta: Any, split: Any, spent: Any) -> PrivacyFilter:
            budget: Any = SimpleNamespace(epsilon=epsilon, delta=delta)
            total = record(ComposableCost, spent)
            return cls(budget, total.orders, record(DeltaSplit, split), spent=total)

        return read_text(text, "filter/1", made)

    def _fits(self, total: ComposableCost) -> bool:
        """The rule of docs/proofs/filters.md: the pure sum, or μ², or the orders together."""
        if total.delta > self.split.approximate:
            # survives: Only asked whether it is true.
            return False
        if total.epsilon is not None and total.epsilon <= self.epsilon:
            return True
        if self.split.gaussian and total.mu_squared is not None:
            # No noise at all costs nothing, and has no Gaussian curve.
            # survives: It is compared with a share above 0.
            cost = gaussian_delta(self.epsilon, total.mu_squared) if total.mu_squared else 0
            if cost <= self.split.gaussian:
                return True
        return _fit_together(_alone(total, self.split.renyi), self.epsilon)

    def _exceeded(self) -> BudgetExceeded:
        left = self.left()
        fits = [f"a pure epsilon of {format_down(left.epsilon)}"] if left.epsilon else []
        if left.mu_squared:
            fits.append(f"Gaussian noise with (sensitivity/sigma)² of {format_down(left.mu_squared)}")
        return BudgetExceeded(
            "the charge does not fit what is left of the budget",
            why=f"of epsilon {format_down(self.epsilon)} and delta {format_down(self.delta)} "
            f"there is room for {' or '.join(fits) or 'nothing'}, "
            f"and for {format_down(left.delta)} of delta in approximate parts",
            fix="ask for less, with more noise, or of an account with a larger budget",
        )


@dataclass(frozen=True, init=False)
class PrivacyOdometer:
    """A running ε with no budget: it refuses nothing and says where one stands.

    >>> odometer = PrivacyOdometer(1e-6).after(ComposableCost.of(epsilon=0.5))
    >>> odometer = odometer.after(ComposableCost.of(mu_squared=0.25))
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
        _check_orders(_checked_orders(orders), self.spent)

    def after(self, cost: ComposableCost) -> "PrivacyOdometer":
        """The odometer after this charge."""
        _check_orders(self.spent.orders, cost)
        return PrivacyOdometer(self.delta, self.spent.orders, spent=self.spent + cost)

    def reading(self) -> OdometerReading:
        """The ε so far, rounded up; its δ is the odometer's own and those of approximate parts."""
        count = len(self.spent.orders)
        epsilon = _reached(self.spent, (self.delta / count,) * count)
        return OdometerReading(epsilon, self.delta + self.spent.delta)

    @classmethod
    def epsilon_of(cls, spent: ComposableCost, delta: Number) -> Fraction | None:
        """The ε at which all that was spent holds with this δ, that of approximate parts in it; None if none.

        >>> PrivacyOdometer.epsilon_of(ComposableCost.of(epsilon=0.5), 0)
        Fraction(1, 2)
        """
        rest = parse_below_one(delta, "delta") - spent.delta
        return cls(rest, spent.orders).after(spent).reading().epsilon if rest >= 0 else None

    def to_json(self) -> str:
        """The odometer as it is stored."""
        return text_of("odometer/1", delta=self.delta, spent=self.spent)

    @classmethod
    def from_json(cls, text: str) -> "PrivacyOdometer":
        """Read a stored odometer, which must be just what `to_json` wrote."""

        def made(*, delta: Any, spent: Any) -> PrivacyOdometer:
            total = record(ComposableCost, spent)
            return cls(delta, total.orders, spent=total)

        return read_text(text, "odometer/1", made)


@lru_cache(maxsize=256)
def _room(orders: tuple[Fraction, ...], deltas: tuple[Fraction, ...]) -> tuple[Fraction | None, ...]:
    """What is added to a budget's ε to make the largest Rényi ε(α) that fits it with δ; as a rule below 0.

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


def _alone(total: ComposableCost, deltas: tuple[Fraction, ...]) -> list[tuple[Fraction, Fraction]]:
    """Of each order α with a share and a finite sum: α−1, and the least ε at which it fits by itself."""
    room = _room(total.orders, deltas)
    # survives: Lengths were checked when the costs were made.
    return [
        (alpha - 1, figure - space)
        for alpha, space, figure in zip(total.orders, room, total.renyi, strict=True)
        if space is not None and figure is not None
    ]


def _fit_together(alone: list[tuple[Fraction, Fraction]], epsilon: Fraction) -> bool:
    """Whether the orders' parts of the work at ε, e^((α−1)·(ε − ε_alone)), add up to 1.

    Guarantee: true only if Σ δ(α)/δ'(α) ≥ 1, with δ(α) the order's share, and δ'(α) what its sum costs at ε.
    Proof: docs/proofs/filters.md, "Many orders at once"
    """
    # survives: Where they are equal that order's part of the work is just 1.
    if any(least <= epsilon for _, least in alone):
        return True
    # survives: A sum of irrational numbers, rounded down, is not just 1.
    return sum(exp_neg(power * (least - epsilon), _BITS)[0] for power, least in alone) >= _ONE


def _reached(total: ComposableCost, deltas: tuple[Fraction, ...]) -> Fraction | None:
    """The least ε at which the sums fit, to 2^-40 and rounded up; None where none does."""
    alone = _alone(total, deltas)
    if not alone:
        return total.epsilon
    unit = Fraction(1, 1 << 40)
    # survives: From a larger upper end the bisection comes to the same. A reading of next to nothing
    # may be rounded up by a unit or two of 2^-40 more.
    low, high = -1, max(0, -(-min(least for _, least in alone) // unit))
    # survives: A reading that is rounded up by one unit of 2^-40 more is still one.
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if _fit_together(alone, middle * unit) else (middle, high)
    return _least(total.epsilon, high * unit)


def _largest(fits: Callable[[Fraction], bool], small: Fraction) -> Fraction:
    """About the largest that fits, five digits of it, rounded down; 0 where `small` does not."""
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


def _figure(value: Any, name: str) -> Fraction | None:
    """A figure of bounded size: rounded up, so that no sum is too small."""
    if value is None:
        return None
    # Sums come here again and again: what needs no check is not checked.
    # survives: It only spares a check, which 0 would pass. It only spares a check, which these numbers
    # would pass.
    exact = value if type(value) is Fraction and value.numerator >= 0 else parse_nonnegative(value, name)
    if exact.numerator > _MOST * exact.denominator:
        return None
    if exact.denominator > _LONGEST:
        return Fraction(-(-exact.numerator * _ONE // exact.denominator), _ONE)
    return exact


def _plus(one: Fraction | None, other: Fraction | None) -> Fraction | None:
    """The sum of two figures, which is one too."""
    return None if one is None or other is None else _figure(one + other, "a sum")


def _many(figure: Fraction | None, count: int) -> Fraction | None:
    return None if figure is None else figure * count


def _least(*figures: Fraction | None) -> Fraction | None:
    return min((figure for figure in figures if figure is not None), default=None)


def _checked_orders(orders: Sequence[Number]) -> tuple[Fraction, ...]:
    if orders is ORDERS or (isinstance(orders, tuple) and orders == ORDERS):  # what is read back is equal
        return ORDERS
    exact = tuple(parse_rational(alpha, "an order") for alpha in _listed(orders, "orders"))
    rising = all(low < high for low, high in zip((Fraction(1), *exact), exact, strict=False))
    if not (exact and rising and exact[-1] <= _MOST and max(alpha.denominator for alpha in exact) <= _MOST):
        raise InvalidInput(
            "orders are not a rising list of numbers above 1",
            why="divergence is added up at each of them, once",
            fix="pass such as (2, 4, 8, 16, 32), of no more than 64 bits",
        )
    return exact


def _listed(values: Any, name: str) -> tuple[Any, ...]:
    if isinstance(values, (list, tuple)):
        return tuple(values)
    kind = type(values).__name__
    raise InvalidInput(f"{name} is of type {kind}", why="it is many numbers", fix="pass a list or a tuple")


def _check_orders(orders: tuple[Fraction, ...], cost: Any) -> None:
    if not isinstance(cost, ComposableCost):
        raise InvalidInput(
            f"cost is of type {type(cost).__name__}", why="exact figures are added up", fix="pass a Cost"
        )
    if cost.orders != orders:
        raise InvalidInput(
            "the cost is for other orders",
            why="figures add up only at the same order",
            fix="state the cost at the account's orders",
        )
