"""What a loss may come to for one unit: parts in one order, what can be left out, its cost, words for it.

Proof: docs/proofs/loss.md
"""

import math
from collections.abc import Iterable, Sequence
from fractions import Fraction

from hubbub.accounting.composition import Composition
from hubbub.accounting.events import (
    BoundedRange,
    DiscreteGaussian,
    DiscreteLaplace,
    Event,
    Finite,
    Gaussian,
    Laplace,
    Pure,
    RandomizedResponse,
    Subsampled,
    SubsampledGroup,
)
from hubbub.accounting.filters import ComposableCost
from hubbub.accounting.float_bounds import above
from hubbub.accounting.renyi import Divergence, Parts, RenyiCurve, ZeroConcentrated
from hubbub.accounting.shuffling import ShuffledReports
from hubbub.errors import Unsupported
from hubbub.numbers import Number, format_up, parse_rational

__all__ = ["cost_of", "distinct", "gathered", "larger", "shown", "undominated"]

_MOST_WAYS = 64
_ADDED = (Pure, RandomizedResponse, BoundedRange, Laplace, DiscreteLaplace)


def gathered(parts: Iterable[tuple[Event, int]]) -> Parts:
    """Each part once, in one order: so what is composed in another order is the same loss."""
    counts: dict[str, tuple[Event, int]] = {}
    bell, concentrated = Fraction(0), Fraction(0)
    for part, count in parts:
        if isinstance(part, Gaussian):
            bell += count * part.mu_squared
        elif isinstance(part, ZeroConcentrated):
            concentrated += count * part.concentrated
        elif count and not part.is_nothing:
            known, times = counts.get(part.key, (part, 0))
            # What is only a bound stays one.
            counts[part.key] = known if not known.sharp else part, times + count
    _check_neighbours(part for part, _ in counts.values())
    if bell:
        counts["Bell"] = Gaussian(bell), 1
    if concentrated:
        counts["Zcdp"] = ZeroConcentrated(concentrated), 1
    return tuple(sorted(counts.values(), key=lambda item: (_ORDER[type(item[0])], item[0].key)))


def _check_neighbours(parts: Iterable[Event]) -> None:
    """Refuse to compose what is stated for different neighbours."""
    relations = {relation for part in parts if (relation := part.relation)}
    if len(relations) > 1:
        raise Unsupported(
            "these losses are about different neighbours",
            why="Poisson sampling is about a unit added or removed, samples of fixed size and shuffling are "
            "about one that is substituted",
            fix="state all of them for one relation",
        )


_ORDER: dict[type, int] = {
    kind: place
    for place, kind in enumerate(
        [
            *(Pure, RandomizedResponse, BoundedRange, Laplace, DiscreteLaplace, DiscreteGaussian),
            *(Finite, ShuffledReports, Subsampled, SubsampledGroup, RenyiCurve, ZeroConcentrated, Gaussian),
        ]
    )
}


def distinct(ways: Iterable[Parts]) -> tuple[Parts, ...]:
    """Each way once; too many are refused."""
    found = tuple(dict.fromkeys(ways))
    if len(found) > _MOST_WAYS:
        raise Unsupported(
            f"the loss may come to more than {_MOST_WAYS} different things",
            why="the worst of them is looked for each time",
            fix="compose the parts of a partition in fewer kinds",
        )
    return found


def undominated(ways: Sequence[Parts]) -> tuple[Parts, ...]:
    """Without those that are surely no worse than another one of the same kind."""
    kept: list[Parts] = []
    for way in ways:
        if not any(_no_worse(way, other) for other in kept):
            kept = [other for other in kept if not _no_worse(other, way)]
            kept.append(way)
    return tuple(kept)


def _no_worse(one: Parts, other: Parts) -> bool:
    """Whether one is dominated: at most as much Gaussian noise and pure ε, and nothing else."""
    if not one:
        return True
    if len(one) != len(other) or any(
        type(a) is not type(b) for (a, _), (b, _) in zip(one, other, strict=True)
    ):
        # survives: Only asked whether it is true.
        return False
    return all(
        isinstance(a, (Pure, Gaussian, Laplace)) and m <= n and _size(a) <= _size(b) and a.told <= b.told
        for (a, m), (b, n) in zip(one, other, strict=True)
    )


def _size(part: Event) -> Fraction:
    # survives: Sizes are compared with each other: what stands for none is free.
    return part.mu_squared if isinstance(part, Gaussian) else part.most or Fraction(0)


def cost_of(parts: Parts, orders: tuple[Number, ...]) -> ComposableCost:
    """What one way costs."""
    way = Composition(tuple((part.cut(), count) for part, count in parts))
    rhos = [None if part.rho is None else count * part.rho for part, count in way.parts]
    bells = [None if (bell := _bell(part)) is None else count * bell for part, count in way.parts]
    curve = (
        [Divergence(way.parts).at(above(parse_rational(alpha, "an order"))) for alpha in orders]
        if way.parts
        else [0.0] * len(orders)
    )
    return ComposableCost.of(
        way.most,
        delta=way.told[1],
        renyi=[None if math.isinf(value) else Fraction(value) for value in curve],
        mu_squared=_sum(bells),
        rho=_sum(rhos),
        orders=orders,
    )


def _bell(part: Event) -> Fraction | None:
    """μ² of Gaussian noise that dominates the part."""
    if isinstance(part, Gaussian):
        return part.mu_squared
    return part.base.mu_squared if isinstance(part, Subsampled) and isinstance(part.base, Gaussian) else None


def _sum(figures: Sequence[Fraction | int | None]) -> Fraction | None:
    known = [figure for figure in figures if figure is not None]
    return sum(map(Fraction, known), Fraction(0)) if len(known) == len(figures) else None


def larger(one: ComposableCost, other: ComposableCost) -> ComposableCost:
    """Figure by figure the larger: each holds for both."""

    def most(a: Fraction | None, b: Fraction | None) -> Fraction | None:
        return None if a is None or b is None else max(a, b)

    return ComposableCost(
        most(one.epsilon, other.epsilon),
        max(one.delta, other.delta),
        tuple(map(most, one.renyi, other.renyi)),
        most(one.mu_squared, other.mu_squared),
        most(one.rho, other.rho),
        one.orders,
    )


def shown(parts: Parts) -> str:
    """Pure parts and δ's added up, and the rest one by one."""
    pure = [(part, count) for part, count in parts if isinstance(part, _ADDED)]
    rest = [(part, count) for part, count in parts if not isinstance(part, _ADDED)]
    shown = [f"{count} × ({part})" if count > 1 else str(part) for part, count in rest]
    together = Composition(tuple(pure))
    # survives: Both bounds are shown alike: they are equal, or some 2^-128 apart.
    if together.told[1]:
        shown.insert(0, f"δ = {format_up(together.told[1])}")
    if pure or not rest:
        shown.insert(0, f"ε = {format_up(together.most or Fraction(0))}")
    return ", ".join(shown)
