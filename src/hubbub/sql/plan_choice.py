"""Chooses the plan with the least expected error among those that keep the same promise, by public facts.

Laplace noise or Gaussian noise, where a δ allows both; weights by rows or by groups, where limits for both
are declared. Nothing of the rows decides but limits that were released before, so the choice costs nothing.
And the least ε that keeps an error.
"""

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING

from hubbub.errors import InvalidInput, Refused, Unsupported
from hubbub.numbers import Number, parse_positive
from hubbub.sql.planned_aggregates import NoisyAggregate
from hubbub.sql.query import Query

if TYPE_CHECKING:
    from hubbub.sql.plan import Plan

__all__ = ["choose_plan", "find_cheapest_plan", "parse_errors"]

_MAX_EPSILON, _MIN_EPSILON = Fraction(2**10), Fraction(1, 2**40)
"""Between which ε is searched for a wanted error."""
_STEPS_BELOW = tuple(Fraction(round(1000 * 2 ** (-step / 16)), 1000) for step in range(16, 0, -1))
"""Multiples of an ε at which a smaller one is looked for: measured limits differ by a sixth or more."""


def choose_plan(candidates: Sequence[tuple[str, "Plan"]], use_limits: Callable[["Plan"], "Plan"]) -> "Plan":
    """The plan with the least expected noise, in the geometric mean over its aggregates; the first of equals.

    It remembers by how much the others are worse, for `explain`.

    Args:
        candidates: the plans by their names.
        use_limits: fills in contribution bounds that were released before. All plans are compared with those
            of the first one, and the one that is chosen has its own.
    """
    first = use_limits(candidates[0][1])
    if len(candidates) == 1:
        return first
    known = {each.kind: each.limit for each in first.found_limits if not each.is_declared}
    plans = [each for _, each in candidates]
    if known:
        plans = [first, *(replace(each.with_limits(**known), split=first.split) for each in plans[1:])]
    errors = [_expected_error(each) for each in plans]
    best = min(range(len(candidates)), key=errors.__getitem__)
    others = [
        (other, error / errors[best])
        for place, ((other, _), error) in enumerate(zip(candidates, errors, strict=True))
        if place != best
    ]
    name, plan = candidates[best]
    chosen = first if best == 0 else use_limits(plan)
    object.__setattr__(chosen, "choice", (name, tuple(others)))  # no figure depends on it
    return chosen


def _expected_error(plan: "Plan") -> float:
    """The mean of |noise| in rows or units; of quantiles that are selected, how far one unit moves counts.

    Where a noisy count selects the keys its threshold is one more of them: what is below is not shown at all.
    """
    try:
        aggregates = plan.aggregates
        selection = plan.stability_histogram if plan.counts_threshold else None
    except Unsupported:  # noise too wide to be sampled; if all are, the plan that is chosen is refused
        return math.inf
    logs = []
    for each in aggregates:
        steps = float(each.bounded.sensitivity.l1)
        if isinstance(each, NoisyAggregate):
            steps = each.noise.expected_error
        # A huge ε leaves an error of 0.
        logs.append(math.log(max(steps * float(each.bounded.step), sys.float_info.min)))
    if selection is not None and plan.selecting is not None:
        logs.append(math.log(float(selection.threshold * plan.selecting.bounded.step)))
    return math.exp(sum(logs) / len(logs)) if logs else 1.0


def parse_errors(query: Query, error: Mapping[str, Number]) -> dict[int, Fraction]:
    """The wanted half-width of each aggregate call, by its index."""
    if not isinstance(error, Mapping):
        raise InvalidInput(
            "{error} does not name an output",
            why="each answer has an error of its own",
            fix="name the output and the half-width of its interval: {error=n=50}",
        )
    widths = {}
    for name, width in error.items():
        output = next((each for each in query.outputs if each.name.lower() == name.lower()), None)
        if output is None or output.aggregate is None:
            raise InvalidInput(
                f"an error is asked for {name!r}, which is not an aggregate of the answer",
                why="only counts and sums have an error that is known beforehand",
                fix="use the name of a COUNT or SUM in the SELECT",
            )
        widths[output.aggregate] = parse_positive(width, f"the error of {name}")
    return widths


def find_cheapest_plan(at: Callable[[Fraction], "Plan"], widths: Mapping[int, Fraction]) -> "Plan":
    """The plan with the least ε, to three digits, that keeps every wanted half-width.

    With limits that were measured, an error may be kept at one ε and not at a larger one, which has a larger
    limit: so less is tried, too, and what is rounded up is checked again.
    """

    def fits(price: Fraction) -> bool:
        plan = at(price)
        for index, wanted_width in widths.items():
            width = plan.half_width(index)
            if width is None:
                raise InvalidInput(
                    "the error of this aggregate depends on the data",
                    why="that of a mean or a quantile depends on how many rows there are",
                    fix="ask for the error of its count or sum, or give {epsilon}",
                )
            if plan.bounded.estimates_limits:
                raise _limit_is_open(plan)
            if width > wanted_width:
                return False
        return True

    high = Fraction(1)
    while not fits(high):
        high *= 2
        if high > _MAX_EPSILON:
            raise _no_epsilon(at(Fraction(1)))
    low = high / 2
    while fits(low) and low > _MIN_EPSILON:
        low /= 2
    high = 2 * low if not fits(low) else low
    low, high = _bisect(fits, low, high)
    if _reuses_limits(at(high)):
        less = next((each for each in _STEPS_BELOW if fits(high * each)), None)
        if less is not None:
            low, high = _bisect(fits, high * less * _STEPS_BELOW[-1], high * less)
    # In three digits, rounded up.
    digits = 2 - math.floor(math.log10(high))
    rounded = Fraction(math.ceil(high * Fraction(10) ** digits)) / Fraction(10) ** digits
    return at(rounded if fits(rounded) else high)


def _bisect(fits: Callable[[Fraction], bool], low: Fraction, high: Fraction) -> tuple[Fraction, Fraction]:
    """Two prices close to each other, of which the higher one fits, as it does at the beginning."""
    for _ in range(12):
        middle = (low + high) / 2
        low, high = (low, middle) if fits(middle) else (middle, high)
    return low, high


def _reuses_limits(plan: "Plan") -> bool:
    """True if a limit that was released before is chosen by the plan's ε."""
    return any(not each.is_declared for each in plan.found_limits)


def _no_epsilon(plan: "Plan") -> Refused:
    """Refuses an error that no ε keeps."""
    if not _reuses_limits(plan):
        return Refused(
            "no epsilon is large enough",
            why="an error that small would need noise that protects nobody",
            fix="ask for a larger error",
        )
    limit = " or ".join(f"{{{each.kind}_per_unit}}" for each in plan.found_limits if not each.is_declared)
    return Refused(
        "no epsilon is large enough with the limits that were measured",
        why="a larger epsilon has a larger limit, which cuts off less and needs more noise",
        fix=f"declare {limit}, or ask for a larger error",
    )


def _limit_is_open(plan: "Plan") -> Refused:
    """Refuses an error that depends on a limit which is only estimated when the query runs."""
    by_groups = any(each.aggregate.is_by_groups for each in plan.aggregates)
    limit, of = ("groups_per_unit", "groups") if by_groups else ("rows_per_unit", "rows")
    return Refused(
        f"{{error}} is given, and the limit on {of} per unit is estimated when the query runs",
        why="the error grows with that limit, so no error can be promised beforehand",
        fix=f"declare {{{limit}}}, measure it once (`hubbub limits`, `Dataset.limits()`) or give {{epsilon}}",
        parameter=limit,
    )
