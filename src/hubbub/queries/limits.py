"""How many rows a unit may count, found privately where nobody declared it.

The units' numbers of rows are put into bins that grow with them, and the bins' counts are released. From
these the limit is chosen whose error is least: what is cut off from the units above it, against the noise
that grows with it. The choice is post-processing.

Proof: docs/proofs/bounding.md, "The limit on rows"
"""

import math
from dataclasses import replace

import numpy as np

from hubbub.bounded import Bounded
from hubbub.errors import Unsupported
from hubbub.mechanisms import Laplace
from hubbub.queries.plan import Plan
from hubbub.queries.rules import Limits
from hubbub.tables.engine import Engine

__all__ = ["BINS", "found_rows"]

BINS: tuple[int, ...] = tuple(min(math.ceil(2 ** (step / 4)), 2**20 - 1) for step in range(81))
"""The limits that may be chosen: four to each doubling, up to 2^20 rows."""


def found_rows(plan: Plan, engine: Engine) -> Limits:
    """The plan's limits with the number of rows filled in.

    Guarantee: ε-private with the plan's ε for the search: a unit is in one bin.
    Proof: docs/proofs/bounding.md, "The limit on rows"
    """
    measured = plan.weighing(plan.limits).sizes(BINS)
    found = engine.aggregates(measured.sql, measured.key_sets)
    counts = np.zeros(len(BINS), dtype=np.int64)
    counts[found["b"]] = found["m0"]
    noise = Laplace.of(sensitivity=measured.sensitivity, epsilon=plan.epsilon_for_search)
    bounded = Bounded.derived(counts, measured.sensitivity, plan.unit, measured.because)
    noisy = noise.release(bounded).value
    # What lies below its own noise is taken for nothing: the tail has many bins and few units.
    units = np.where(noisy > noise.error(0.99, cells=len(BINS)), noisy, 0).astype(np.float64)
    sizes = np.array(BINS, dtype=np.float64)
    cut = np.array([float((units * np.maximum(sizes - limit, 0)).sum()) for limit in sizes])
    groups = max(1, plan.query.cells if plan.query.keys and plan.query.is_public else 1)
    spread = 2**0.5 * sizes * len(plan.measures or (1,)) / float(plan.epsilon_for_measures)
    best = int(np.argmin(cut / groups + spread))
    while best and not _is_possible(plan, BINS[best]):
        best -= 1
    return replace(plan.limits, rows=BINS[best])


def _is_possible(plan: Plan, rows: int) -> bool:
    """Whether noise for so many rows can be made; that is public."""
    try:
        plan.check_noise(replace(plan.limits, rows=rows))
    except Unsupported:
        return False
    return True
