"""Tables from measured residuals: unbiased answers with known covariances, and what follows from them.

Every table, cell and sum of cells is a linear function of residuals with independent noise: its variance is
exact. Everything here is post-processing.

Proof: docs/proofs/synopsis.md, "Intervals"
"""

import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from statistics import NormalDist
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from hubbub.errors import InvalidInput
from hubbub.numbers import Number, parse_probability
from hubbub.sql.moments import Estimate
from hubbub.synthesis.domain import Domain
from hubbub.synthesis.workload import Names

__all__ = [
    "Combination",
    "GroupedCombinations",
    "MeasuredTables",
    "interval",
    "normal_quantile",
    "ratio_interval",
]

Floats = NDArray[np.float64]
_MARGIN = 1 + 1e-9
_MAX_COEFFICIENTS = 1 << 22


def normal_quantile(confidence: Number) -> float:
    """The z with Pr[|Z| ≤ z] at least the confidence."""
    sure = parse_probability(confidence, "confidence")
    return -NormalDist().inv_cdf(float((1 - Fraction(sure)) / 2)) * _MARGIN


Deviations = Callable[[Number], float]
"""From a confidence to the number of standard deviations on each side of an interval."""


class Residual(Protocol):
    """An estimated residual: unbiased, with noise of the same variance along every orthonormal contrast."""

    @property
    def values(self) -> Floats:
        """The residual in the shape of its table, in rows: zero sums along every axis."""

    @property
    def sigma(self) -> float:
        """The standard deviation along every orthonormal contrast, in rows."""

    @property
    def cell_sd(self) -> float:
        """The standard deviation of each cell of `values`."""


@dataclass(frozen=True)
class Combination:
    """Linear functions of one table, one for each group: values, and coordinates of their noise.

    The noise of function g is a vector of independent variables of variance 1 times `noise[g]`: variances are
    squared norms, covariances inner products.
    """

    values: Floats
    noise: Floats
    deviations: Deviations = normal_quantile

    @property
    def variances(self) -> Floats:
        """The variance of each."""
        squares: Floats = np.einsum("gj,gj->g", self.noise, self.noise)
        return squares

    def interval(self, confidence: Number) -> Estimate:
        """The values with intervals of this confidence each."""
        return interval(self.values, self.variances, confidence, self.deviations)

    def ratio(self, other: "Combination", confidence: Number) -> Estimate:
        """Quotients of two combinations, with their intervals."""
        covariance = np.einsum("gj,gj->g", self.noise, other.noise)
        return ratio_interval(
            (self.values, other.values),
            (self.variances, other.variances),
            covariance,
            confidence,
            self.deviations,
        )


@dataclass(frozen=True)
class GroupedCombinations:
    """Several linear functions of a table in each group, with all their covariances."""

    values: Floats
    """Of shape (groups, functions)."""
    covariances: Floats
    """Of shape (groups, functions, functions)."""
    deviations: Deviations = normal_quantile


def interval(
    values: Floats, variances: Floats, confidence: Number, deviations: Deviations = normal_quantile
) -> Estimate:
    """Noisy values with intervals of this confidence each; Gaussian ones, if nothing else is said."""
    width = deviations(confidence) * np.sqrt(np.maximum(variances, 0.0))
    return Estimate(values, values - width, values + width)


def ratio_interval(
    values: tuple[Floats, Floats],
    variances: tuple[Floats, Floats],
    covariance: Floats,
    confidence: Number,
    deviations: Deviations = normal_quantile,
) -> Estimate:
    """Quotients of noisy values, with Fieller's intervals: unbounded where the divisor may be 0.

    Proof: docs/proofs/synopsis.md, "Intervals"
    """
    z2 = deviations(confidence) ** 2
    top, bottom = values
    # All r with (top − r·bottom)² ≤ z²·Var(top − r·bottom): a·r² − 2b·r + c ≤ 0.
    a = bottom**2 - z2 * variances[1]
    b = top * bottom - z2 * covariance
    c = top**2 - z2 * variances[0]
    is_bounded = a > 0
    with np.errstate(divide="ignore", invalid="ignore"):
        value = np.where(bottom != 0, top / bottom, np.nan)
        root = np.sqrt(np.maximum(b * b - a * c, 0.0))
        low = np.where(is_bounded, (b - root) / a, -np.inf)
        high = np.where(is_bounded, (b + root) / a, np.inf)
    return Estimate(value, low, high)


@dataclass(frozen=True, eq=False)
class MeasuredTables:
    """Residuals that were measured, and the tables that they determine."""

    domain: Domain
    residuals: Mapping[Names, Residual]
    deviations: Deviations = normal_quantile
    """How wide intervals are: by the law of the noise."""
    tables: Mapping[Names, Any] = field(default_factory=dict)
    """The tables with Laplace noise that residuals were pooled from, if these were not measured."""

    def covers(self, names: Names) -> bool:
        """True if the table of these columns is measured, by itself or within a larger one."""
        return self._subset(names) in self.residuals

    def _subset(self, names: Names) -> Names:
        """The columns in the domain's order, without those of one cell."""
        return tuple(name for name in self.domain.ordered(names) if self.domain.column(name).size > 1)

    def _parts(self, names: Names) -> list[tuple[Names, Residual]]:
        own = self._subset(names)
        if own not in self.residuals:
            largest = sorted({each for each in self.residuals if each}, key=lambda each: (-len(each), each))
            listed = "; ".join(", ".join(each) for each in largest[:5]) or "none: the total"
            raise InvalidInput(
                f"the table of {', '.join(names)} was not measured",
                why="no noise was drawn for it, so its error is not known",
                fix=f"ask by columns that were measured together, such as {listed}; or name "
                "this table in the workload of another synopsis",
            )
        subsets = (each for size in range(len(own) + 1) for each in itertools.combinations(own, size))
        return [(each, self.residuals[each]) for each in subsets]

    @property
    def total(self) -> tuple[float, float]:
        """The number of rows, and its standard deviation."""
        only = self.residuals[()]
        return float(only.values), only.sigma

    def estimate(self, names: Names) -> Floats:
        """The unbiased table of these columns, in their order."""
        ordered = self.domain.ordered(names)
        shape = self.domain.shape(ordered)
        total = np.zeros(shape)
        for own, residual in self._parts(names):
            outside = math.prod(k for name, k in zip(ordered, shape, strict=True) if name not in own)
            own_shape = [self.domain.column(name).size if name in own else 1 for name in ordered]
            total += residual.values.reshape(own_shape) / outside
        return total.transpose([ordered.index(name) for name in names])

    def standard_deviation(self, names: Names) -> float:
        """The standard deviation of every cell of a table."""
        variance = 0.0
        for own, residual in self._parts(names):
            outside = self.domain.cells(names) / self.domain.cells(own)
            variance += (residual.cell_sd / outside) ** 2
        return math.sqrt(variance)

    def combine(self, names: Names, coefficients: Floats) -> Combination:
        """Linear functions of a table: their values and noise.

        Args:
            names: the columns of the table.
            coefficients: of shape (functions, cells of each column …).
        """
        count = coefficients.shape[0]
        values, noise = np.zeros(count), []
        for residual, flat in self._inner(names, coefficients):
            values += flat @ residual.values.ravel()
            noise.append(flat * residual.sigma)
        return Combination(values, np.concatenate(noise, axis=1), self.deviations)

    def combine_groups(
        self, names: Names, group: NDArray[np.int64], count: int, weights: Floats
    ) -> GroupedCombinations:
        """Sums of weighted cells by group: values and covariances, without all coefficients at once.

        Args:
            names: the columns of the table.
            group: the group of each cell, −1 for none; of the table's shape.
            count: the number of groups.
            weights: of shape (functions, cells of each column …).
        """
        functions, cells = weights.shape[0], max(1, group.size)
        values = np.zeros((count, functions))
        covariances = np.zeros((count, functions, functions))
        chunk = max(1, _MAX_COEFFICIENTS // (cells * functions))
        for start in range(0, count, chunk):
            own = np.arange(start, min(count, start + chunk))
            inside = group == own.reshape(-1, *(1,) * group.ndim)
            stacked = (inside[:, np.newaxis] * weights).reshape(own.size * functions, *group.shape)
            for residual, flat in self._inner(names, stacked):
                values[own] += (flat @ residual.values.ravel()).reshape(own.size, functions)
                parts = flat.reshape(own.size, functions, -1)
                covariances[own] += residual.sigma**2 * np.einsum("gaj,gbj->gab", parts, parts)
        return GroupedCombinations(values, covariances, self.deviations)

    def _inner(self, names: Names, coefficients: Floats) -> Iterator[tuple[Residual, Floats]]:
        """For each residual, the coefficients of its own contrasts, flat."""
        count = coefficients.shape[0]
        for own, residual in self._parts(names):
            away = tuple(axis + 1 for axis, name in enumerate(names) if name not in own)
            outside = math.prod(self.domain.shape([name for name in names if name not in own]))
            inner = coefficients.sum(axis=away) / outside if away else coefficients
            order = [name for name in names if name in own]
            inner = inner.transpose([0, *(order.index(name) + 1 for name in own)])
            for axis in range(1, inner.ndim):
                inner = inner - inner.mean(axis=axis, keepdims=True)
            yield residual, inner.reshape(count, -1)

    def nonnegative(self, names: Names, *, integer: bool = False) -> Floats:
        """The table with no negative cell and none that a rule excludes, with the same total for all tables.

        The closest such table in least squares; with `integer` it is then rounded by largest remainders.
        It is biased, and has no intervals.
        """
        possible = self.domain.mask(names)
        total = max(0.0, self.total[0])
        if integer:
            total = float(round(total))
        cells = self.estimate(names)
        fit = np.zeros(cells.shape)
        fit[possible] = _project(cells[possible], total)
        return _round(fit, possible) if integer else fit


def _project(values: Floats, total: float) -> Floats:
    """The closest vector of non-negative numbers with this sum."""
    ordered = np.sort(values)[::-1]
    excess = (np.cumsum(ordered) - total) / np.arange(1, values.size + 1)
    last = int(np.flatnonzero(ordered - excess > 0)[-1]) if total > 0 else -1
    return np.maximum(values - excess[last], 0.0) if last >= 0 else np.zeros(values.size)


def _round(values: Floats, possible: NDArray[np.bool_]) -> Floats:
    """Whole numbers with the same sum, by largest remainders."""
    below = np.floor(values)
    missing = round(float(values.sum() - below.sum()))
    remainders = np.where(possible, values - below, -1.0).ravel()
    rounded = below.ravel()
    rounded[np.argsort(-remainders, kind="stable")[:missing]] += 1
    result: Floats = rounded.reshape(values.shape)
    return result
