"""Composable costs: the figures of a release that add up under fully adaptive composition.

Proof: docs/proofs/filters.md, "The meaning of a cost"
"""

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from hubbub.errors import InvalidInput
from hubbub.numbers import Number, parse_nonnegative, parse_rational

__all__ = ["ORDERS", "ComposableCost", "check_same_orders", "parse_list", "parse_orders", "smallest_figure"]

ORDERS: tuple[Fraction, ...] = (
    *(Fraction(quarters, 4) for quarters in (5, 6, 7, 8, 10, 12, 14, 16, 18)),
    *map(Fraction, (5, 6, 7, 8, 9, 10, 12, 14, 16, 20, 24, 28, 32, 40, 48, 64, 80, 96)),
    *map(Fraction, (128, 160, 192, 256, 320, 384, 512)),
)
"""The default Rényi orders."""

_ONE = 1 << 128
_MAX_DENOMINATOR = 1 << 256
"""A figure with a larger denominator is rounded up to a multiple of 2^-128."""
_MAX_FIGURE = 1 << 64
"""A larger figure counts as infinite: no budget is as large."""


@dataclass(frozen=True)
class ComposableCost:
    """The cost of one or more releases, in figures that add up under fully adaptive composition.

    All figures except δ hold for the release with one and the same event of probability δ cut off. A figure
    that is unknown or infinite is None.

    >>> cost = ComposableCost.of(epsilon=0.1)
    >>> cost.rho, (cost + cost).epsilon
    (Fraction(1, 200), Fraction(1, 5))

    Guarantee: a sum is exact, or rounded up where it would grow beyond 256 bits.
    Assumes: each figure given holds for all neighbours, in both directions.
    Proof: docs/proofs/filters.md, "The meaning of a cost"
    """

    epsilon: Fraction | None
    """Pure ε."""
    delta: Fraction
    """The probability of the event that is cut off."""
    renyi: tuple[Fraction | None, ...]
    """Rényi ε(α) at each of the orders."""
    mu_squared: Fraction | None
    """μ² of Gaussian noise that dominates: δ(ε) lies below that of σ = Δ₂/μ, at every ε."""
    rho: Fraction | None
    """ρ of zCDP."""
    orders: tuple[Fraction, ...] = ORDERS

    def __post_init__(self) -> None:
        object.__setattr__(self, "orders", parse_orders(self.orders))
        curve = tuple(_round_figure(value, "renyi") for value in parse_list(self.renyi, "renyi"))
        if len(curve) != len(self.orders):
            raise InvalidInput(
                f"renyi has {len(curve)} figures for {len(self.orders)} orders",
                why="each order's sum needs its own",
                fix="pass one figure for each order, None if it is unknown",
            )
        object.__setattr__(self, "renyi", curve)
        delta = min(parse_nonnegative(self.delta, "delta"), Fraction(1))
        object.__setattr__(self, "delta", _round_figure(delta, "delta"))
        for name in ("epsilon", "mu_squared", "rho"):
            object.__setattr__(self, name, _round_figure(getattr(self, name), name))

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
        """The cost of one release, with the figures implied by those given.

        Pure ε is zCDP of ε²/2, Gaussian μ² is zCDP of μ²/2, and zCDP of ρ is αρ at each order α, where
        pure ε is also ε.

        Args:
            epsilon: the pure ε, if there is one.
            delta: the δ of the release.
            renyi: upper bounds of the Rényi divergence, one per order; None where there is none.
            mu_squared: the μ² of Gaussian differential privacy.
            rho: the ρ of zero-concentrated differential privacy.
            orders: the Rényi orders.

        Guarantee: the implied figures hold whenever the given ones do.
        Assumes: as `ComposableCost`.
        Proof: docs/proofs/filters.md, "Figures that imply others"
        """
        at = parse_orders(orders)
        pure, mu, zcdp = (
            _round_figure(epsilon, "epsilon"),
            _round_figure(mu_squared, "mu_squared"),
            _round_figure(rho, "rho"),
        )
        zcdp = smallest_figure(zcdp, None if pure is None else pure**2 / 2, None if mu is None else mu / 2)
        implied = tuple(smallest_figure(pure, None if zcdp is None else alpha * zcdp) for alpha in at)
        cost = cls(pure, parse_nonnegative(delta, "delta"), implied, mu, zcdp, at)
        if renyi is None:
            return cost
        stated_cost = replace(cost, renyi=parse_list(renyi, "renyi"))
        return replace(cost, renyi=tuple(map(smallest_figure, stated_cost.renyi, cost.renyi)))

    def __add__(self, other: "ComposableCost") -> "ComposableCost":
        """The cost of both, also if the second was chosen after seeing the first."""
        if not isinstance(other, ComposableCost):
            return NotImplemented
        check_same_orders(self.orders, other)
        # Nothing is implied by sums: only figures of single charges add up. Both costs were checked when they
        # were made, so their sum needs no check, and a ledger adds up millions.
        total = copy(self)
        for name in ("epsilon", "mu_squared", "rho"):
            object.__setattr__(total, name, _add_figures(getattr(self, name), getattr(other, name)))
        object.__setattr__(total, "delta", _round_figure(min(self.delta + other.delta, Fraction(1)), "delta"))
        object.__setattr__(total, "renyi", tuple(map(_add_figures, self.renyi, other.renyi)))
        return total

    def times(self, count: int) -> "ComposableCost":
        """The cost of `count` such releases.

        >>> ComposableCost.of(epsilon=0.25).times(3).epsilon
        Fraction(3, 4)
        """
        return replace(
            self,
            epsilon=_multiply_figure(self.epsilon, count),
            delta=self.delta * count,
            renyi=tuple(_multiply_figure(figure, count) for figure in self.renyi),
            mu_squared=_multiply_figure(self.mu_squared, count),
            rho=_multiply_figure(self.rho, count),
        )

    @property
    def figures(self) -> tuple[Fraction | None, ...]:
        """All figures, in a fixed order."""
        return (self.epsilon, self.delta, self.mu_squared, self.rho, *self.renyi)


def _round_figure(value: Any, name: str) -> Fraction | None:
    """A figure of bounded size: rounded up, so that no sum is too small."""
    if value is None:
        return None
    # Sums pass here very often, so nonnegative fractions skip the check.
    # survives: It only spares a check, which 0 would pass. It only spares a check, which these numbers
    # would pass.
    exact = value if type(value) is Fraction and value.numerator >= 0 else parse_nonnegative(value, name)
    if exact.numerator > _MAX_FIGURE * exact.denominator:
        return None
    if exact.denominator > _MAX_DENOMINATOR:
        return Fraction(-(-exact.numerator * _ONE // exact.denominator), _ONE)
    return exact


def _add_figures(one: Fraction | None, other: Fraction | None) -> Fraction | None:
    """The sum of two figures; None if either is unknown."""
    return None if one is None or other is None else _round_figure(one + other, "a sum")


def _multiply_figure(figure: Fraction | None, count: int) -> Fraction | None:
    return None if figure is None else figure * count


def smallest_figure(*figures: Fraction | None) -> Fraction | None:
    """The smallest of those that are known; None if none is."""
    return min((figure for figure in figures if figure is not None), default=None)


def parse_orders(orders: Sequence[Number]) -> tuple[Fraction, ...]:
    """Rényi orders as rationals, rising and above 1."""
    if orders is ORDERS or (isinstance(orders, tuple) and orders == ORDERS):  # what is read back is equal
        return ORDERS
    exact = tuple(parse_rational(alpha, "an order") for alpha in parse_list(orders, "orders"))
    rising = all(low < high for low, high in zip((Fraction(1), *exact), exact, strict=False))
    if not (
        exact
        and rising
        and exact[-1] <= _MAX_FIGURE
        and max(alpha.denominator for alpha in exact) <= _MAX_FIGURE
    ):
        raise InvalidInput(
            "orders are not a rising list of numbers above 1",
            why="divergences are added up at each order, once",
            fix="pass orders such as (2, 4, 8, 16, 32), each of at most 64 bits",
        )
    return exact


def parse_list(values: Any, name: str) -> tuple[Any, ...]:
    """A list or a tuple as a tuple."""
    if isinstance(values, (list, tuple)):
        return tuple(values)
    kind = type(values).__name__
    raise InvalidInput(
        f"{name} is of type {kind}", why="it holds several numbers", fix="pass a list or a tuple"
    )


def check_same_orders(orders: tuple[Fraction, ...], cost: Any) -> None:
    """Refuse what is not a cost at these orders."""
    if not isinstance(cost, ComposableCost):
        raise InvalidInput(
            f"cost is of type {type(cost).__name__}",
            why="exact figures are added up",
            fix="pass a ComposableCost",
        )
    if cost.orders != orders:
        raise InvalidInput(
            "the cost is for other orders",
            why="figures add up only at the same order",
            fix="state the cost at the account's orders",
        )
