"""Chooses the plan with the least expected error among those that keep the same promise, by public facts.

Laplace noise or Gaussian noise, where a δ allows both; weights by rows or by groups, where limits for both
are declared. Nothing of the rows decides, so the choice costs nothing.
"""

import math
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from hubbub.sql.planned_aggregates import NoisyAggregate

if TYPE_CHECKING:
    from hubbub.sql.plan import Plan

__all__ = ["choose_plan"]


def choose_plan(candidates: Sequence[tuple[str, "Plan"]]) -> "Plan":
    """The plan with the least expected noise, in the geometric mean over its aggregates; the first of equals.

    It remembers by how much the others are worse, for `explain`.
    """
    errors = [_expected_error(plan) for _, plan in candidates]
    best = min(range(len(candidates)), key=errors.__getitem__)
    name, chosen = candidates[best]
    others = [
        (other, error / errors[best])
        for place, ((other, _), error) in enumerate(zip(candidates, errors, strict=True))
        if place != best
    ]
    object.__setattr__(chosen, "choice", (name, tuple(others)))  # no figure depends on it
    return chosen


def _expected_error(plan: "Plan") -> float:
    """The mean of |noise| in rows or units; of quantiles that are selected, how far one unit moves counts."""
    logs = []
    for each in plan.aggregates:
        steps = float(each.bounded.sensitivity.l1)
        if isinstance(each, NoisyAggregate):
            steps = each.noise.expected_error
        # A huge ε leaves an error of 0.
        logs.append(math.log(max(steps * float(each.bounded.step), sys.float_info.min)))
    return math.exp(sum(logs) / len(logs)) if logs else 1.0
