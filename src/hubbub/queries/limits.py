"""What nobody declared, found privately: how many rows a unit may count, and the bounds of values.

The units' numbers of rows are put into bins that grow with them, and the bins' counts are released. From
these the limit is chosen whose error is least: what is cut off from the units above it, against the noise
that grows with it. The choice is post-processing.

Bounds are found the same way: values are put into bins by their sign and their power of two, and the bounds
are the ends of the outermost bins that stand out from the noise.

Proof: docs/proofs/bounding.md, "The limit on rows", "Bounds that are found"
"""

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np

from hubbub.bounded import Bounded
from hubbub.errors import Refused, Unsupported
from hubbub.mechanisms import Laplace
from hubbub.queries.measurement import Limits
from hubbub.queries.plan import Plan
from hubbub.queries.rules import LEAST_POWER, MAGNITUDES
from hubbub.tables.engine import Engine

__all__ = ["BINS", "found_bounds", "found_rows"]

BINS: tuple[int, ...] = tuple(min(math.ceil(2 ** (step / 4)), 2**20 - 1) for step in range(81))
"""The limits that may be chosen: four to each doubling, up to 2^20 rows."""
_LUCK = 100
"""Noise is taken for units with s rows once in so many times s queries."""
_SURE = 1 - Fraction(1, 2**30)
"""How sure it is that no bound comes from noise alone: it could be any power of two."""


def found_rows(plan: Plan, engine: Engine) -> Limits:
    """The plan's limits with the number of rows filled in.

    Guarantee: ε-private with the plan's ε for the search: a unit is in one bin.
    Proof: docs/proofs/bounding.md, "The limit on rows"
    """
    measured = plan.weighing(plan.limits).sizes(BINS)
    found = engine.aggregates(measured.sql, measured.key_sets)
    counts = np.zeros(len(BINS), dtype=np.int64)
    counts[found["b"]] = found["m0"]
    noise = Laplace.of(
        sensitivity=measured.sensitivity,
        epsilon=plan.epsilon_for_search,
        allow_large_epsilon=True,  # the plan's, which was confirmed
    )
    bounded = Bounded.derived(counts, measured.sensitivity, plan.unit, measured.because)
    noisy = noise.release(bounded).value
    sizes = np.array(BINS, dtype=np.float64)
    # What lies below its own noise is taken for nothing: the tail has many bins and few units. To take noise
    # for units costs as much as these have rows, so of larger bins more is asked.
    nothing = float(noise.scale) * np.log(_LUCK * len(BINS) * sizes)
    units = np.where(noisy > nothing, noisy, 0).astype(np.float64)
    cut = np.array([float((units * np.maximum(sizes - limit, 0)).sum()) for limit in sizes])
    groups = max(1, plan.query.cells if plan.query.keys and plan.query.is_public else 1)
    wide = 2**0.5 * sizes * len(plan.measures or (1,)) / float(plan.epsilon_for_measures)
    best = int(np.argmin(cut / groups + wide))
    while best and not _is_possible(plan, BINS[best]):
        best -= 1
    return replace(plan.limits, rows=BINS[best])


def found_bounds(plan: Plan, engine: Engine, limits: Limits) -> Plan:
    """The plan with the bounds filled in that were asked to be found.

    Guarantee: ε-private with the plan's ε for bounds, an equal share for each: a row is in one bin.
    Proof: docs/proofs/bounding.md, "Bounds that are found"
    """
    rows = limits.rows or (limits.groups or 1) * (limits.rows_per_group or 1)
    # Over all groups together: what is found holds for all of them.
    weighing = plan.weighing(Limits(rows))
    weighing = replace(weighing, query=replace(plan.query, keys=()))
    arguments = list(plan.query.arguments)
    for place in plan.autos:
        measured = weighing.magnitudes(place)
        found = engine.aggregates(measured.sql, measured.key_sets)
        counts = np.zeros(MAGNITUDES, dtype=np.int64)
        counts[found["b"]] = found["m0"]
        noise = Laplace.of(
            sensitivity=measured.sensitivity,
            epsilon=plan.epsilon_for_bounds / len(plan.autos),
            allow_large_epsilon=True,
        )
        bounded = Bounded.derived(counts, measured.sensitivity, plan.unit, measured.because)
        noisy = noise.release(bounded).value
        there = np.flatnonzero(noisy > noise.error(_SURE, cells=MAGNITUDES))
        if not there.size:
            raise Refused(
                f"no bounds stood out for {arguments[place].name}",
                why="there are too few values for so small an epsilon; what was charged stays charged",
                fix="declare the bounds, or ask with a larger epsilon",
            )
        low, high = _ends(int(there[0]))[0], _ends(int(there[-1]))[1]
        arguments[place] = replace(arguments[place], bounds=(low, high))
    return replace(plan, query=replace(plan.query, arguments=tuple(arguments)))


def _ends(place: int) -> tuple[Fraction, Fraction]:
    """The two ends of a bin of magnitudes; the middle one holds what is close to zero."""
    middle = MAGNITUDES // 2
    if place == middle:
        least = Fraction(2) ** LEAST_POWER
        return -least, least
    power = LEAST_POWER + abs(place - middle) - 1
    near, far = Fraction(2) ** power, Fraction(2) ** (power + 1)
    return (near, far) if place > middle else (-far, -near)


def _is_possible(plan: Plan, rows: int) -> bool:
    """Whether noise for so many rows can be made; that is public."""
    try:
        plan.check_noise(replace(plan.limits, rows=rows))
    except Unsupported:
        return False
    return True
