"""The second stage of a privacy filter: sums of Gaussian μ², or of Rényi divergences at fixed orders.

A stage opens once, with limits that follow from what is left of the budget at that moment, and keeps them.

Proof: docs/proofs/filters.md
"""

from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from typing import Any

from hubbub.accounting.codec import decode, encode
from hubbub.accounting.composable_cost import ORDERS
from hubbub.noise.enclosures import exp_neg, log
from hubbub.numbers import format_up

__all__ = [
    "FilterCharge",
    "GaussianStage",
    "OdometerReading",
    "Opening",
    "RenyiStage",
    "decode_charge",
    "encode_charge",
    "epsilon_of_orders",
    "orders_fit",
    "round_sum",
    "split_delta",
]

_BITS = 128
_ONE = 1 << _BITS
_MAX_DENOMINATOR = 1 << 256
_MAX_FIGURE = 1 << 64


def round_sum(value: Fraction) -> Fraction:
    """A sum of bounded size: rounded up to a multiple of 2^-128 if its denominator is beyond 2^256."""
    if value.denominator <= _MAX_DENOMINATOR:
        return value
    return Fraction(-(-value.numerator * _ONE // value.denominator), _ONE)


@dataclass(frozen=True)
class OdometerReading:
    """What was spent so far: a pair (ε, δ) that holds."""

    epsilon: Fraction
    delta: Fraction

    def __repr__(self) -> str:
        return f"OdometerReading(ε = {format_up(self.epsilon)}, δ = {format_up(self.delta)})"


@dataclass(frozen=True)
class Opening:
    """The limits of a second stage, as they were fixed when it opened."""

    kind: str
    """gaussian, or renyi."""
    limit: Fraction
    """Gaussian: the largest sum of μ², V. Rényi: 0."""
    cuts: Fraction
    """The largest sum of δ's from now on, D."""
    shares: tuple[Fraction, ...] = ()
    """Rényi: the share of δ of each order."""
    is_first: bool = False
    """True if the charge that opens the stage is part of the certificate itself, and not of the sums."""


@dataclass(frozen=True)
class FilterCharge:
    """What a filter charged for a loss: the figures that it added up, rounded up."""

    epsilon: Fraction | None
    """Pure ε; None if the losses are unbounded."""
    delta: Fraction
    """The probability of what is cut off."""
    mu_squared: Fraction | None = None
    """Gaussian stage: μ² that dominates the rest, beside the reserve."""
    reserve: Fraction = Fraction(0)
    """Gaussian stage: μ² that must be left after this charge."""
    renyi: tuple[Fraction | None, ...] = ()
    """Rényi stage: ε(α) at each order."""
    opens: Opening | None = None
    """The stage that this charge opens."""


@dataclass(frozen=True)
class GaussianStage:
    """Sums of μ² and of δ, within limits."""

    limit: Fraction
    cuts: Fraction
    first: str | None
    """The stored loss that opened the stage, if it is part of the certificate."""
    spent: Fraction = Fraction(0)
    reach: Fraction = Fraction(0)
    """The largest sum with its reserve: the odometer reads this."""
    delta: Fraction = Fraction(0)

    def fits(self, charge: FilterCharge) -> bool:
        """True if the charge's μ² fits, with its reserve."""
        # As it will be stored: rounded up.
        return (
            charge.mu_squared is not None
            and round_sum(self.spent + charge.mu_squared) + charge.reserve <= self.limit
        )

    def after(self, charge: FilterCharge) -> "GaussianStage":
        """The stage with the charge added; used up for good if it does not fit."""
        delta = round_sum(self.delta + charge.delta)
        if charge.mu_squared is None or not self.fits(charge):
            return replace(self, spent=self.limit + 1, reach=self.limit + 1, delta=delta)
        spent = round_sum(self.spent + charge.mu_squared)
        return replace(self, spent=spent, reach=max(self.reach, spent + charge.reserve), delta=delta)


@dataclass(frozen=True)
class RenyiStage:
    """Sums of Rényi divergences at fixed orders, and of δ."""

    epsilon: Fraction
    """The remaining ε when the stage opened."""
    cuts: Fraction
    shares: tuple[Fraction, ...]
    spent: tuple[Fraction | None, ...]
    delta: Fraction = Fraction(0)

    def fits(self, charge: FilterCharge) -> bool:
        """True if the orders fit together."""
        return orders_fit(epsilon_by_order(self.after(charge).spent, self.shares), self.epsilon)

    def after(self, charge: FilterCharge) -> "RenyiStage":
        """The stage with the charge added."""
        figures = charge.renyi or (None,) * len(self.spent)
        sums = tuple(
            None if a is None or b is None or a + b > _MAX_FIGURE else round_sum(a + b)
            for a, b in zip(self.spent, figures, strict=True)
        )
        return replace(self, spent=sums, delta=round_sum(self.delta + charge.delta))


def split_delta(epsilon: Fraction, delta: Fraction) -> tuple[Fraction, ...]:
    """δ divided over the default orders: most of it for the one that is best for Gaussian noise.

    >>> sum(split_delta(Fraction(1), Fraction(1, 10**6)))
    Fraction(1, 1000000)
    """
    room = renyi_room(ORDERS, (delta,) * len(ORDERS))
    best = max(range(len(ORDERS)), key=lambda j: (epsilon + (room[j] or 0)) / ORDERS[j])
    weights = [Fraction(1, 4 ** (abs(j - best) + 1)) for j in range(len(ORDERS))]
    weights[best] += 1 - sum(weights)
    return tuple(weight * delta for weight in weights)


@lru_cache(maxsize=256)
def renyi_room(orders: tuple[Fraction, ...], deltas: tuple[Fraction, ...]) -> tuple[Fraction | None, ...]:
    """The largest Rényi ε(α) that fits (ε, δ), minus ε; usually negative.

    It is ln(α/(α−1)) + ln(αδ)/(α−1), rounded down, and None where δ is 0.

    Proof: docs/proofs/filters.md, "From Rényi to (ε, δ)"
    """
    return tuple(
        (Fraction(log(alpha / (alpha - 1), _BITS)[0]) + log(alpha * delta, _BITS)[0] / (alpha - 1)) / _ONE
        if delta
        else None
        for alpha, delta in zip(orders, deltas, strict=True)
    )


def epsilon_by_order(
    sums: tuple[Fraction | None, ...], shares: tuple[Fraction, ...]
) -> list[tuple[Fraction, Fraction]]:
    """For each order α with a share and a finite sum: α−1, and the smallest ε at which it fits alone."""
    room = renyi_room(ORDERS, shares)
    return [
        (alpha - 1, figure - space)
        for alpha, space, figure in zip(ORDERS, room, sums, strict=True)
        if space is not None and figure is not None
    ]


def orders_fit(alone: list[tuple[Fraction, Fraction]], epsilon: Fraction) -> bool:
    """True if the orders fit together at ε: the terms e^((α−1)·(ε − ε_alone)) add up to 1 or more.

    Guarantee: true only if Σ δ(α)/δ'(α) ≥ 1, with δ(α) the order's share, and δ'(α) what its sum costs at ε.
    Proof: docs/proofs/filters.md, "Many orders at once"
    """
    if any(least <= epsilon for _, least in alone):
        return True
    return sum(exp_neg(power * (least - epsilon), _BITS)[0] for power, least in alone) >= _ONE


def epsilon_of_orders(sums: tuple[Fraction | None, ...], shares: tuple[Fraction, ...]) -> Fraction | None:
    """The smallest ε at which the sums fit, rounded up to 2^-40; None if there is none."""
    alone = epsilon_by_order(sums, shares)
    if not alone:
        return None
    unit = Fraction(1, 1 << 40)
    low, high = -1, max(0, -(-min(least for _, least in alone) // unit))
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if orders_fit(alone, middle * unit) else (middle, high)
    return high * unit


def encode_charge(charge: FilterCharge) -> dict[str, Any]:
    """The JSON value of what was charged, as part of a stored entry; what is not used is left out."""
    # A figure of 0 is stored: without it, the charge would say nothing of its loss.
    unused: dict[str, Any] = {"mu_squared": None, "reserve": "0", "renyi": [], "opens": None}
    return {
        name: value for name, value in encode(charge).items() if name not in unused or value != unused[name]
    }


def decode_charge(stored: dict[str, Any]) -> FilterCharge:
    """What was charged, from its JSON value; ValueError or TypeError if it is not one."""
    fields = dict(stored)
    opens = fields.pop("opens", None)
    figures = {name: decode(value) for name, value in fields.items()}
    if opens is not None:
        kind, is_first = opens["kind"], opens["is_first"]
        if not isinstance(kind, str) or not isinstance(is_first, bool):
            raise TypeError
        limits = {name: decode(opens[name]) for name in ("limit", "cuts", "shares")}
        opens = Opening(kind, is_first=is_first, **limits)
    charge = FilterCharge(opens=opens, **figures)
    if encode_charge(charge) != stored:
        raise ValueError
    return charge
