"""Composed events in one normal form: merging, dominance between alternatives, cost and description.

Proof: docs/proofs/privacy-loss.md
"""

import math
from collections.abc import Iterable, Sequence
from fractions import Fraction

from hubbub.accounting.composable_cost import ComposableCost
from hubbub.accounting.composition import Composition
from hubbub.accounting.discrete_events import (
    DiscreteGaussian,
    DiscreteLaplace,
    FiniteDistributions,
    RandomizedResponse,
)
from hubbub.accounting.events import (
    BoundedRange,
    EpsilonDelta,
    Event,
    Gaussian,
    Laplace,
    Subsampled,
    SubsampledGaussianGroup,
)
from hubbub.accounting.float_bounds import float_above
from hubbub.accounting.renyi import ComposedEvents, RenyiCurve, RenyiDivergence, ZeroConcentrated
from hubbub.accounting.shuffling import ShuffledReports
from hubbub.errors import Unsupported
from hubbub.numbers import Number, format_up, parse_rational

__all__ = [
    "composable_cost",
    "deduplicate",
    "describe_events",
    "drop_dominated",
    "elementwise_max",
    "normalize_events",
]

_MAX_ALTERNATIVES = 64
_PURE_EVENTS = (EpsilonDelta, RandomizedResponse, BoundedRange, Laplace, DiscreteLaplace)


def normalize_events(events: Iterable[tuple[Event, int]]) -> ComposedEvents:
    """Equal events merged, in one order: compositions in different orders are the same loss."""
    counts: dict[str, tuple[Event, int]] = {}
    gaussian, rho = Fraction(0), Fraction(0)
    for event, count in events:
        if isinstance(event, Gaussian):
            gaussian += count * event.mu_squared
        elif isinstance(event, ZeroConcentrated):
            rho += count * event.rho
        elif count and not event.is_zero:
            known, times = counts.get(event.key, (event, 0))
            # One that is not tight stays so.
            counts[event.key] = known if not known.tight else event, times + count
    _check_neighbours(event for event, _ in counts.values())
    if gaussian:
        counts["gaussian"] = Gaussian(gaussian), 1
    if rho:
        counts["zcdp"] = ZeroConcentrated(rho), 1
    return tuple(sorted(counts.values(), key=lambda item: (_SORT_ORDER[type(item[0])], item[0].key)))


def _check_neighbours(events: Iterable[Event]) -> None:
    """Refuse to compose events that are stated for different neighbouring relations."""
    relations = {relation for event in events if (relation := event.relation)}
    if len(relations) > 1:
        raise Unsupported(
            "the losses are stated for different neighbouring relations",
            why="Poisson subsampling is analysed under add/remove, samples of fixed size and shuffling "
            "under substitution",
            fix="state all of them for one relation",
        )


_SORT_ORDER: dict[type, int] = {
    kind: place
    for place, kind in enumerate(
        [
            *(EpsilonDelta, RandomizedResponse, BoundedRange, Laplace, DiscreteLaplace, DiscreteGaussian),
            *(
                FiniteDistributions,
                ShuffledReports,
                Subsampled,
                SubsampledGaussianGroup,
                RenyiCurve,
                ZeroConcentrated,
                Gaussian,
            ),
        ]
    )
}


def deduplicate(alternatives: Iterable[ComposedEvents]) -> tuple[ComposedEvents, ...]:
    """Each alternative once; too many are refused."""
    unique = tuple(dict.fromkeys(alternatives))
    if len(unique) > _MAX_ALTERNATIVES:
        raise Unsupported(
            f"the loss has more than {_MAX_ALTERNATIVES} alternatives",
            why="the worst of them is computed each time",
            fix="use fewer different losses in parallel composition",
        )
    return unique


def drop_dominated(alternatives: Sequence[ComposedEvents]) -> tuple[ComposedEvents, ...]:
    """Without alternatives that are surely dominated by another one of the same kind."""
    undominated: list[ComposedEvents] = []
    for alternative in alternatives:
        if not any(_is_dominated(alternative, second) for second in undominated):
            undominated = [second for second in undominated if not _is_dominated(second, alternative)]
            undominated.append(alternative)
    return tuple(undominated)


def _is_dominated(first: ComposedEvents, second: ComposedEvents) -> bool:
    """True if the first is dominated: at most as much Gaussian noise and pure ε, and nothing else."""
    if not first:
        return True
    if len(first) != len(second) or any(
        type(a) is not type(b) for (a, _), (b, _) in zip(first, second, strict=True)
    ):
        # survives: Only asked whether it is true.
        return False
    return all(
        isinstance(a, (EpsilonDelta, Gaussian, Laplace))
        and m <= n
        and _magnitude(a) <= _magnitude(b)
        and a.infinity_mass <= b.infinity_mass
        for (a, m), (b, n) in zip(first, second, strict=True)
    )


def _magnitude(event: Event) -> Fraction:
    # survives: Sizes are compared with each other: what stands for none is free.
    return event.mu_squared if isinstance(event, Gaussian) else event.max_loss or Fraction(0)


def composable_cost(events: ComposedEvents, orders: tuple[Number, ...]) -> ComposableCost:
    """The composable cost of one alternative."""
    alternative = Composition(tuple((event.truncated(), count) for event, count in events))
    rhos = [None if event.rho is None else count * event.rho for event, count in alternative.events]
    gaussians = [
        None if (gaussian := _gaussian_mu_squared(event)) is None else count * gaussian
        for event, count in alternative.events
    ]
    curve = (
        [
            RenyiDivergence(alternative.events).at(float_above(parse_rational(alpha, "an order")))
            for alpha in orders
        ]
        if alternative.events
        else [0.0] * len(orders)
    )
    return ComposableCost.of(
        alternative.max_loss,
        delta=alternative.infinity_mass_bounds[1],
        renyi=[None if math.isinf(value) else Fraction(value) for value in curve],
        mu_squared=_sum_figures(gaussians),
        rho=_sum_figures(rhos),
        orders=orders,
    )


def _gaussian_mu_squared(event: Event) -> Fraction | None:
    """μ² of Gaussian noise that dominates the event; None if there is none."""
    if isinstance(event, Gaussian):
        return event.mu_squared
    return (
        event.base.mu_squared if isinstance(event, Subsampled) and isinstance(event.base, Gaussian) else None
    )


def _sum_figures(figures: Sequence[Fraction | int | None]) -> Fraction | None:
    known = [figure for figure in figures if figure is not None]
    return sum(map(Fraction, known), Fraction(0)) if len(known) == len(figures) else None


def elementwise_max(first: ComposableCost, second: ComposableCost) -> ComposableCost:
    """The larger of each figure, which holds for both."""

    def larger(a: Fraction | None, b: Fraction | None) -> Fraction | None:
        return None if a is None or b is None else max(a, b)

    return ComposableCost(
        larger(first.epsilon, second.epsilon),
        max(first.delta, second.delta),
        tuple(map(larger, first.renyi, second.renyi)),
        larger(first.mu_squared, second.mu_squared),
        larger(first.rho, second.rho),
        first.orders,
    )


def describe_events(events: ComposedEvents) -> str:
    """A description: pure ε and δ added up, and the other events one by one."""
    pure = [(event, count) for event, count in events if isinstance(event, _PURE_EVENTS)]
    rest = [(event, count) for event, count in events if not isinstance(event, _PURE_EVENTS)]
    words = [f"{count} × ({event})" if count > 1 else str(event) for event, count in rest]
    composed = Composition(tuple(pure))
    # survives: Both bounds are printed alike: they are equal, or some 2^-128 apart.
    if composed.infinity_mass_bounds[1]:
        words.insert(0, f"δ = {format_up(composed.infinity_mass_bounds[1])}")
    if pure or not rest:
        words.insert(0, f"ε = {format_up(composed.max_loss or Fraction(0))}")
    return ", ".join(words)
