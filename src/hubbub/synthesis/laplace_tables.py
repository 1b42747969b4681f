"""Tables measured with Laplace noise: synopses of pure ε, where δ = 0 is asked for.

Each table is measured whole, with exact discrete Laplace noise on its cells. A table tells of all smaller
ones that it contains, so the residual of a set of columns is pooled from all tables that contain these:
unbiased, with a known variance, and without correlation to other residuals. All that is asked later is a
linear function of independent Laplace noise, for which intervals follow from the variance alone.

Proof: docs/proofs/synopsis.md, "Pure ε"
"""

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cache, cached_property
from typing import ClassVar

import numpy as np

from hubbub.errors import InvalidInput, Unsupported
from hubbub.mechanisms import Laplace
from hubbub.numbers import Number, parse_probability
from hubbub.sensitivity import MAX_MAGNITUDE, Bounded, Sensitivity
from hubbub.sql.bounding_sql import neighbour_sensitivity
from hubbub.synthesis.counting import Integers
from hubbub.synthesis.domain import Domain
from hubbub.synthesis.measured_tables import MeasuredTables
from hubbub.synthesis.workload import MAX_WHOLE_COLUMNS, Floats, Names, Objective, Workload, round_shares
from hubbub.unit import Unit

__all__ = ["LaplaceNoise", "LaplacePlan", "LaplaceTable", "laplace_deviations", "plan_laplace", "pool_tables"]

RULE = "Weights by rows"
FINE_BITS = 20
"""Integers are multiplied by a power of two, so that the noise has a scale of at least 2^20 steps."""
_MAX_ROW_STEPS = 1 << 30
"""Counts are clamped to ±2^61 steps: with this many for a row, no table of fewer than 2^31 rows is."""
_STEPS, _CLOSE = 200, 1e-3
_LEAST_SHARE = 1e-3
"""A table with less than this of the mean share is not measured, if a larger one tells of it."""
_ROUNDING = 0.003
"""Rounding to integers moves an answer by at most this many of its standard deviations."""
_INTERVALS = 4000


@cache
def laplace_deviations(confidence: Number) -> float:
    """The number of standard deviations on each side of an interval, for sums of independent Laplace noise.

    >>> round(laplace_deviations(0.95), 2)
    2.16

    Guarantee: any linear function of independent discrete Laplace noise, each of a scale of 2^20 or more, is
        within this many of its standard deviations with at least this probability.
    Proof: docs/proofs/synopsis.md, "Pure ε"
    """
    allowed = float(1 - Fraction(parse_probability(confidence, "confidence")))
    low, high = 0.0, 1.0
    while _tail(high) > allowed:
        high *= 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if _tail(middle) > allowed else (low, middle)
    return high * (1 + 1e-6) + _ROUNDING


def _tail(width: float) -> float:
    """A bound of the probability beyond ±`width` standard deviations, for any such sum.

    Given exponential variables, the sum is Gaussian with variance W, and beyond ±t with probability
    g(W) = erfc(t/√(2W)): convex up to W = t²/3, and below its tangent from there on.
    """
    if width <= 0:
        return math.inf
    bend = width**2 / 3
    variances = (np.arange(_INTERVALS) + 0.5) * (bend / _INTERVALS)
    beyond = np.array([math.erfc(width / math.sqrt(2 * each)) for each in variances.tolist()])
    below = float((beyond * np.exp(-variances)).sum()) * bend / _INTERVALS
    slope: float = math.exp(-1.5) / math.sqrt(2 * math.pi) * width * bend**-1.5
    return below + math.exp(-bend) * (math.erfc(math.sqrt(1.5)) + slope)


def fine_factor(scale: Fraction, row: int) -> int:
    """The factor of the integers, computed from the public scale of their noise alone.

    Args:
        scale: the scale of the noise, without the factor.
        row: what a row of full weight counts, without the factor.

    Raises:
        Unsupported: if a row has more than 2^30 steps, since tables of 2^31 rows would be clamped.
    """
    factor = 1 << max(0, FINE_BITS - math.floor(math.log2(scale)))
    if factor * row > _MAX_ROW_STEPS:
        raise Unsupported(
            "so large an {epsilon} is asked for with {delta} of 0",
            why="counts are multiplied until their noise is fine, and large ones would not fit into 64 bits",
            fix="choose a smaller {epsilon}, up to about 1000 for each table, or pass {delta=1e-6}",
        )
    return factor


def multiply_clamped(integers: Integers, factor: int) -> Integers:
    """Integers times a factor, clamped to ±2^61, which moves no two apart further than the factor does."""
    largest = MAX_MAGNITUDE // factor
    return np.clip(integers, -largest, largest) * factor


@dataclass(frozen=True)
class LaplaceNoise:
    """The noise of one whole table, fixed before any row is read.

    Args:
        shape: the sizes of the table's columns.
        unit: who is protected.
        scale: what a row of full weight counts.
        max_weight: what one unit counts at most, in rows of full weight.
        epsilon: the ε of the measurement.

    Guarantee: the release is a Laplace mechanism of at most this ε.
    Proof: docs/proofs/synopsis.md, "Pure ε"
    """

    shape: tuple[int, ...]
    unit: Unit
    scale: int
    max_weight: int
    epsilon: Fraction

    @cached_property
    def factor(self) -> int:
        """What the counts are multiplied by."""
        return fine_factor(self._bound(1).l1 / self.epsilon, self.scale)

    def _bound(self, factor: int) -> Sensitivity:
        most = Fraction(self.scale * self.max_weight * factor)
        return neighbour_sensitivity(self.unit.neighbours, most, most**2, most)

    @cached_property
    def mechanism(self) -> Laplace:
        """The noise on the integers."""
        sensitivity = self._bound(self.factor)
        return Laplace(sensitivity.l1 / self.epsilon, sensitivity)

    @cached_property
    def sigma(self) -> float:
        """The standard deviation of each cell, in rows."""
        return math.sqrt(self.mechanism.variance) / (self.factor * self.scale)

    @property
    def coordinates(self) -> int:
        """The number of cells."""
        return math.prod(self.shape)

    def measure(self, table: Integers) -> "LaplaceTable":
        """Measure an exact table, in units of `scale`.

        Guarantee: a Laplace mechanism of at most ε, whatever the table is.
        Assumes: one unit adds a non-negative vector with ℓ1 norm at most scale·max_weight to the table.
        Proof: docs/proofs/synopsis.md, "Pure ε"
        """
        integers = multiply_clamped(table.ravel(), self.factor)
        bounded = Bounded(integers, self.mechanism.sensitivity, self.unit, RULE)
        return LaplaceTable(self, self.mechanism.release(bounded).value)


@dataclass(frozen=True, eq=False)
class LaplaceTable:
    """A measured table: noisy integers, and what they mean."""

    noise: LaplaceNoise
    noisy: Integers
    """The released integers."""

    @property
    def values(self) -> Floats:
        """The noisy table, in rows."""
        steps = self.noise.factor * self.noise.scale
        return self.noisy.reshape(self.noise.shape).astype(np.float64) / steps


@dataclass(frozen=True, eq=False)
class PooledResidual:
    """A residual, estimated from all measured tables that contain its columns."""

    values: Floats
    sigma: float

    @property
    def cell_sd(self) -> float:
        """The standard deviation of each cell of `values`."""
        return self.sigma * math.sqrt(math.prod((1 - 1 / size for size in self.values.shape), start=1.0))


def _subsets(names: Names) -> Iterator[Names]:
    for size in range(len(names) + 1):
        yield from itertools.combinations(names, size)


def pool_tables(domain: Domain, tables: Mapping[Names, LaplaceTable]) -> MeasuredTables:
    """The tables with Laplace noise, as residuals: the best linear unbiased estimate of each.

    Args:
        domain: the columns.
        tables: measured tables of columns with two cells or more.
    """
    sums: dict[Names, Floats] = {}
    precisions: dict[Names, float] = {}
    for names, table in tables.items():
        for own in _subsets(names):
            away = tuple(axis for axis, name in enumerate(names) if name not in own)
            values = table.values.sum(axis=away)
            for axis in range(values.ndim):
                values = values - values.mean(axis=axis, keepdims=True)
            outside = domain.cells(names) // domain.cells(own)
            precision = 1 / (table.noise.sigma**2 * outside)
            sums[own] = sums.get(own, 0.0) + precision * values
            precisions[own] = precisions.get(own, 0.0) + precision
    residuals = {
        names: PooledResidual(np.asarray(sums[names] / precision), 1 / math.sqrt(precision))
        for names, precision in precisions.items()
    }
    return MeasuredTables(domain, residuals, laplace_deviations, tables)


@dataclass(frozen=True)
class LaplacePlan:
    """The noise of every measured table of a workload, and the error that it gives to all tables."""

    workload: Workload
    objective: Objective
    unit: Unit
    scale: int
    max_weight: int
    epsilon: Fraction
    """The ε of all measurements together."""
    shares: Mapping[Names, Fraction]
    """The share of ε of each measured table; their sum is at most 1."""

    law: ClassVar[str] = "Laplace"

    @property
    def figure(self) -> Fraction:
        """What all measurements together cost: ε."""
        return self.epsilon

    def noise(self, names: Names) -> LaplaceNoise:
        """The noise of one measured table, exactly."""
        shape = self.workload.domain.shape(names)
        return LaplaceNoise(shape, self.unit, self.scale, self.max_weight, self.epsilon * self.shares[names])

    @cached_property
    def _variances(self) -> dict[Names, float]:
        """σ² of each residual, in rows."""
        domain = self.workload.domain
        precisions: dict[Names, float] = {}
        for names in self.shares:
            sigma = self.noise(names).sigma
            for own in _subsets(names):
                outside = domain.cells(names) // domain.cells(own)
                precisions[own] = precisions.get(own, 0.0) + 1 / (sigma**2 * outside)
        return {names: 1 / precision for names, precision in precisions.items()}

    def standard_deviation(self, names: Names) -> float:
        """The standard deviation of each cell of a table, in rows."""
        domain = self.workload.domain
        own = tuple(name for name in domain.ordered(names) if domain.column(name).size > 1)
        if own not in self._variances:
            raise InvalidInput(
                "this table is not measured",
                why="the workload does not contain it",
                fix="add it to the workload",
            )
        return math.sqrt(
            sum(self._variances[each] * _cell_factor(domain, own, each) for each in _subsets(own))
        )

    @cached_property
    def errors(self) -> dict[Names, float]:
        """The standard deviation of each cell, by table."""
        return {names: self.standard_deviation(names) for names in self.workload.tables}

    @property
    def root_mean_square(self) -> float:
        """The root mean square error over all cells of all tables."""
        cells = [self.workload.domain.cells(names) for names in self.errors]
        total = sum(count * sd**2 for count, sd in zip(cells, self.errors.values(), strict=True))
        return math.sqrt(total / sum(cells))


def _cell_factor(domain: Domain, names: Names, subset: Names) -> float:
    """The variance of a cell of a table per σ² of one of its residuals."""
    return math.prod(
        (1 - 1 / k if name in subset else 1 / k**2) for name in names if (k := domain.column(name).size)
    )


def plan_laplace(
    workload: Workload,
    *,
    epsilon: Fraction,
    unit: Unit,
    scale: int = 1,
    max_weight: int = 1,
    objective: Objective = "tables",
) -> LaplacePlan:
    """The noise of the tables of a workload at a pure ε, by a short iteration.

    Args:
        workload: the tables.
        epsilon: the ε of all measurements together.
        unit: who is protected.
        scale: what a row of full weight counts.
        max_weight: the maximum number of rows per unit.
        objective: "tables" (each table counts the same), "cells" (each cell does), or "worst".

    Guarantee: the measurements together are ε-differentially private.
    Proof: docs/proofs/synopsis.md, "Pure ε"
    """
    domain, residuals = workload.domain, workload.residuals
    if len(residuals[-1]) > MAX_WHOLE_COLUMNS:
        raise Unsupported(
            f"a table of {len(residuals[-1])} columns is to be measured with {{delta}} of 0",
            why=f"it is measured whole, and so are its parts: at most {MAX_WHOLE_COLUMNS} columns",
            fix="pass {delta=1e-6}, or name smaller tables",
        )
    place = {names: index for index, names in enumerate(residuals)}
    # Pairs of a table that may be measured and a residual that it tells of: the cells that it sums over.
    pairs = [(place[names], place[own], domain.cells(names) // domain.cells(own))
             for names in residuals for own in _subsets(names)]  # fmt: skip
    measured, told_of, outside = (np.array(each) for each in zip(*pairs, strict=True))
    uses = [
        (row, place[own], _cell_factor(domain, columns, own))
        for row, names in enumerate(workload.tables)
        for columns in [tuple(name for name in names if domain.column(name).size > 1)]
        for own in _subsets(columns)
    ]
    table, residual, factor = (np.array(each) for each in zip(*uses, strict=True))
    target = np.array(list(workload.weights.values()))
    if objective == "cells":
        target = target * np.array([float(domain.cells(names)) for names in workload.tables])
    count = len(residuals)

    def improve(shares: Floats, weights: Floats) -> Floats:
        precisions = np.bincount(told_of, shares[measured] ** 2 / outside, count)
        worth = np.bincount(residual, weights[table] * factor, count) / precisions**2
        # By the derivative: exact at once if no table told of another.
        gains = np.bincount(measured, worth[told_of] / outside, count) * shares
        changed = shares * np.cbrt(gains)
        positive: Floats = np.maximum(changed / changed.sum(), 1e-12)
        return positive

    def variances(shares: Floats) -> Floats:
        precisions = np.bincount(told_of, shares[measured] ** 2 / outside, count)
        errors: Floats = np.bincount(table, factor / precisions[residual], len(target)) * target
        return errors

    shares = np.full(count, 1 / count)
    for _ in range(_STEPS):
        before, shares = shares, improve(shares, target)
        if np.abs(shares - before).max() < _CLOSE / count:
            break
    if objective == "worst":
        weights, trial = target, shares
        for _ in range(_STEPS):
            errors = variances(trial)
            weights = weights * np.sqrt(errors / errors.max())
            weights = np.maximum(weights / weights.sum(), 1e-12)
            trial = improve(trial, weights)
            # The least worst table has no closed form, and the way to it may go up and down.
            if variances(trial).max() < variances(shares).max():
                shares = trial
    largest = set(_maximal(residuals))
    is_left = (shares >= _LEAST_SHARE / count) | np.array([names in largest for names in residuals])
    chosen = [names for names, keep in zip(residuals, is_left, strict=True) if keep]
    exact = round_shares(shares[is_left] / shares[is_left].sum())
    return LaplacePlan(
        workload, objective, unit, scale, max_weight, epsilon, dict(zip(chosen, exact, strict=True))
    )


def _maximal(residuals: tuple[Names, ...]) -> list[Names]:
    """The sets that no other one contains."""
    inner = {own for names in residuals if names for own in itertools.combinations(names, len(names) - 1)}
    return [names for names in residuals if names not in inner]
