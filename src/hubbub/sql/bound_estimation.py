"""Private estimates of what nobody declared: the maximum of rows per unit, and the bounds of values.

The units' numbers of rows are put into bins that grow with them, and the bins' counts are released. From
these the maximum with the least error is chosen: what is cut off from the units above it, against the noise
that grows with it. The choice is post-processing.

Bounds are estimated the same way: values are put into bins by their sign and their power of two, and the
bounds are the ends of the outermost bins that stand out from the noise.

Proof: docs/proofs/bounding.md, "The limit on rows", "Bounds that are found"
"""

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from hubbub.engines.engine import Engine
from hubbub.errors import Refused, Unsupported
from hubbub.mechanisms import Laplace
from hubbub.sensitivity import Bounded
from hubbub.sql.contribution_bounding import MAGNITUDES, MIN_POWER, ContributionBounding
from hubbub.sql.plan import Plan
from hubbub.sql.query import BoundedAggregate, ContributionBounds

__all__ = ["ROW_BINS", "estimate_bounds", "estimate_rows_per_unit"]

ROW_BINS: tuple[int, ...] = tuple(min(math.ceil(2 ** (step / 4)), 2**20 - 1) for step in range(81))
"""The maximums of rows that may be chosen: four to each doubling, up to 2^20."""
_FALSE_ALARMS = 100
"""Noise is taken for units with s rows once in this many times s queries."""
_SURE = 1 - Fraction(1, 2**30)
"""The confidence that no bound comes from noise alone: it could be any power of two."""


def estimate_rows_per_unit(plan: Plan, engine: Engine) -> Plan:
    """The plan for a maximum of rows per unit that is chosen from noisy counts.

    Guarantee: ε-private with the plan's share for rows: a unit is in one bin.
    Proof: docs/proofs/bounding.md, "The limit on rows"
    """
    bounded, query = plan.bounded, plan.query
    bounding = ContributionBounding(query, plan.contribution_bounds, plan.unit.neighbours)
    noisy, noise = _release_histogram(plan, engine, bounding.row_count_histogram(ROW_BINS), plan.split.rows)
    sizes = np.array(ROW_BINS, dtype=np.float64)
    # What lies below its own noise is taken for nothing: the tail has many bins and few units. To take noise
    # for units costs as much as these have rows, so of larger bins more is asked.
    threshold = float(noise.scale) * np.log(_FALSE_ALARMS * len(ROW_BINS) * sizes)
    units = np.where(noisy > threshold, noisy, 0).astype(np.float64)
    clipped = np.array([float((units * np.maximum(sizes - most, 0)).sum()) for most in sizes])
    groups = max(1, query.cells if query.keys and query.is_public else 1)
    noise_width = 2**0.5 * sizes * len(bounded.aggregates or (1,)) / float(plan.split.aggregates)
    best = int(np.argmin(clipped / groups + noise_width))
    while True:
        chosen = plan.with_rows_per_unit(ROW_BINS[best])
        if not best or _is_possible(chosen):
            return chosen
        best -= 1


def estimate_bounds(plan: Plan, engine: Engine) -> Plan:
    """The plan for bounds of values that are chosen from noisy counts.

    Guarantee: ε-private with the plan's share for bounds, an equal part for each: a row is in one bin.
    Proof: docs/proofs/bounding.md, "Bounds that are found"
    """
    limits = plan.contribution_bounds
    rows = limits.rows or (limits.groups or 1) * (limits.rows_per_group or 1)
    # Over all groups together: the bounds hold for all of them.
    query = replace(plan.query, keys=())
    bounding = ContributionBounding(query, ContributionBounds(rows), plan.unit.neighbours)
    estimated = plan.bounded.estimated_arguments
    bounds = {}
    for index in estimated:
        share = plan.split.bounds / len(estimated)
        noisy, noise = _release_histogram(plan, engine, bounding.magnitude_histogram(index), share)
        outstanding = np.flatnonzero(noisy > noise.error(_SURE, coordinates=MAGNITUDES))
        if not outstanding.size:
            raise Refused(
                f"no bounds stood out for {plan.query.arguments[index].name}",
                why="there are too few values for so small an epsilon; what was charged stays charged",
                fix="declare the bounds, or ask with a larger epsilon",
            )
        bounds[index] = _bin_ends(int(outstanding[0]))[0], _bin_ends(int(outstanding[-1]))[1]
    return plan.with_value_bounds(bounds)


def _release_histogram(
    plan: Plan, engine: Engine, bounded: BoundedAggregate, epsilon: Fraction
) -> tuple[NDArray[np.int64], Laplace]:
    """The noisy counts of all bins, and their noise."""
    found = engine.execute(bounded.sql, bounded.key_sets)
    counts = np.zeros(bounded.bins, dtype=np.int64)
    counts[found["b"]] = found["m0"]
    noise = Laplace.of(
        sensitivity=bounded.sensitivity,
        epsilon=epsilon,
        allow_large_epsilon=True,  # the plan's, which was confirmed
    )
    value = Bounded(counts, bounded.sensitivity, plan.unit, bounded.rule)
    return noise.release(value).value, noise


def _bin_ends(index: int) -> tuple[Fraction, Fraction]:
    """The two ends of a bin of magnitudes; the middle one holds what is close to zero."""
    middle = MAGNITUDES // 2
    if index == middle:
        least = Fraction(2) ** MIN_POWER
        return -least, least
    power = MIN_POWER + abs(index - middle) - 1
    near, far = Fraction(2) ** power, Fraction(2) ** (power + 1)
    return (near, far) if index > middle else (-far, -near)


def _is_possible(plan: Plan) -> bool:
    """True if the plan's noise can be sampled exactly; that is public."""
    try:
        plan.check()
    except Unsupported:
        return False
    return True
