"""Ranges of one ordered column: prefix sums by a square-root factorization, exact noise on integers.

All prefix sums of n bins are B·x with B the lower triangular matrix of ones. B = L·L for the Toeplitz matrix
L with the coefficients f_0 = 1, f_k = f_{k−1}·(2k − 1)/(2k). Measuring L·x gives every range a variance that
grows with the logarithm of n, close to the least possible. Here L is rounded to integers first, and all that
follows is exact for the rounded matrix.

Proof: docs/proofs/synopsis.md, "Ranges"
"""

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from hubbub.errors import InvalidInput, Unsupported
from hubbub.mechanisms import Gaussian
from hubbub.numbers import Number, ceil_sqrt, parse_probability
from hubbub.sensitivity import MAX_MAGNITUDE, Bounded, Sensitivity
from hubbub.sql.bounding_sql import neighbour_sensitivity
from hubbub.synthesis.counting import Integers
from hubbub.synthesis.domain import Column, Domain
from hubbub.synthesis.measured_tables import GroupedCombinations, normal_quantile
from hubbub.unit import Unit

__all__ = ["MAX_BINS", "Floats", "MeasuredRange", "PrefixNoise", "RangeNoise", "check_bins", "range_column"]

Floats = NDArray[np.float64]
MAX_BINS = 2048
"""The maximum number of bins of a column with ranges."""
_FACTOR_BITS = 14
RULE = "Ranges"


@dataclass(frozen=True)
class PrefixNoise:
    """The noise of the ranges of one column, fixed before any row is read.

    Args:
        column: the column, with the bins of a fine public grid.
        unit: who is protected.
        scale: what a row of full weight counts.
        max_weight: what one unit counts at most, in rows of full weight.
        mu: the μ of the measurement.

    Guarantee: the release is a Gaussian mechanism of at most this μ.
    Proof: docs/proofs/synopsis.md, "Ranges"
    """

    column: Column
    unit: Unit
    scale: int
    max_weight: int
    mu: Fraction

    def __post_init__(self) -> None:
        check_bins(self.column)

    @property
    def coordinates(self) -> int:
        """The number of measured integers."""
        return self.column.size

    @property
    def figure(self) -> Fraction:
        """The cost of the measurement: μ²."""
        return self.mu**2

    @cached_property
    def factor(self) -> Integers:
        """The first column of the integer matrix: f_k·2^14, rounded to the nearest."""
        values = [1.0]
        for place in range(1, self.column.bins):
            values.append(values[-1] * (2 * place - 1) / (2 * place))
        return np.maximum(np.round(np.array(values) * (1 << _FACTOR_BITS)), 1.0).astype(np.int64)

    @cached_property
    def _square(self) -> int:
        """The squared norm of the longest column, the first one."""
        return sum(int(each) ** 2 for each in self.factor)

    @property
    def _null_weight(self) -> int:
        """What the cell for NULL is multiplied by: no more than the norm of the first column."""
        return math.isqrt(self._square)

    @cached_property
    def sensitivity(self) -> Sensitivity:
        """How far one unit moves the integers: non-negative, so that of two units squares add up."""
        most = self.scale * self.max_weight
        square = Fraction(self._square * most * most)
        largest = Fraction(int(self.factor.max()) * most)
        total = Fraction(int(self.factor.sum()) * most)
        largest = max(largest, Fraction(self._null_weight * most)) if self.column.is_nullable else largest
        return neighbour_sensitivity(self.unit.neighbours, max(total, ceil_sqrt(square)), square, largest)

    @cached_property
    def mechanism(self) -> Gaussian:
        """The noise on the integers."""
        return Gaussian(ceil_sqrt(self.sensitivity.l2_squared) / self.mu, self.sensitivity)

    def integers(self, histogram: Integers) -> Integers:
        """The integers that noise is added to, clamped to ±2^61. They are exact data."""
        bins, nulls = histogram[: self.column.bins], histogram[self.column.bins :]
        largest = float(np.abs(histogram).astype(np.float64).sum()) * float(self._null_weight)
        if largest < MAX_MAGNITUDE:
            sums = np.convolve(self.factor, bins)[: bins.size]
            return np.concatenate([sums, nulls * self._null_weight]).astype(np.int64)
        wide = np.convolve(self.factor.astype(object), bins.astype(object))[: bins.size]
        exact = np.concatenate([wide, nulls.astype(object) * self._null_weight])
        clamped: Integers = np.clip(exact, -MAX_MAGNITUDE, MAX_MAGNITUDE).astype(np.int64)
        return clamped

    def measure(self, histogram: Integers) -> "MeasuredRange":
        """Measure a histogram of the column, in units of `scale`.

        Guarantee: a Gaussian mechanism of at most μ, whatever the histogram is.
        Assumes: one unit adds a non-negative vector with ℓ1 norm at most scale·max_weight to it.
        Proof: docs/proofs/synopsis.md, "Ranges"
        """
        bounded = Bounded(self.integers(histogram), self.sensitivity, self.unit, RULE)
        return MeasuredRange(self, self.mechanism.release(bounded).value)

    @cached_property
    def inverse(self) -> Floats:
        """The inverse of the integer matrix: rows are bins, columns are measured integers; in rows."""
        size, bins = self.column.size, self.column.bins
        # The inverse of a lower triangular Toeplitz matrix is one, too.
        first = np.zeros(bins)
        factor = self.factor / float(self.factor[0])
        first[0] = 1.0
        for place in range(1, bins):
            first[place] = -float(factor[1 : place + 1] @ first[place - 1 :: -1][:place])
        matrix = np.zeros((size, size))
        for place in range(bins):
            matrix[place:bins, place] = first[: bins - place]
        matrix[:bins] /= float(self.factor[0])
        for cell in range(bins, size):
            matrix[cell, cell] = 1.0 / self._null_weight
        return matrix / self.scale

    @cached_property
    def sigma(self) -> float:
        """The standard deviation of the noise on each integer."""
        return math.sqrt(self.mechanism.variance)

    @staticmethod
    def deviations(confidence: Number) -> float:
        """The number of standard deviations on each side of an interval."""
        return normal_quantile(confidence)

    @cached_property
    def prefix_deviation(self) -> float:
        """The root mean square of the standard deviations of all prefix sums, in rows."""
        bins = self.column.bins
        sums = np.cumsum(self.inverse[:bins], axis=0)
        return self.sigma * math.sqrt(float((sums**2).sum()) / bins)


class RangeNoise(Protocol):
    """The noise of the ranges of one column: `PrefixNoise`, or `TreeNoise` at a pure ε."""

    @property
    def column(self) -> Column:
        """The column, with the bins of a fine public grid."""

    @property
    def inverse(self) -> Floats:
        """The unbiased estimate: rows are bins, columns are measured integers; in rows."""

    @property
    def sigma(self) -> float:
        """The standard deviation of the noise on each integer."""

    def deviations(self, confidence: Number) -> float:
        """The number of standard deviations on each side of an interval."""


def check_bins(column: Column) -> None:
    """Refuse ranges of a column without order, or with too many bins."""
    if not column.is_binned or column.bins > MAX_BINS:
        raise Unsupported(
            f"ranges of {column.name} have no order, or more than {MAX_BINS} bins",
            why="ranges are of numbers and dates, on a grid that fits into memory",
            fix="choose a wider step for its ranges",
        )


@dataclass(frozen=True, eq=False)
class MeasuredRange:
    """Measured ranges of one column: any sum of its bins has a known variance."""

    noise: Any
    """A `RangeNoise`."""
    noisy: Integers
    """The released integers."""

    @cached_property
    def domain(self) -> Domain:
        """The one column."""
        return Domain((self.noise.column,))

    @cached_property
    def values(self) -> Floats:
        """The unbiased histogram, in rows."""
        result: Floats = self.noise.inverse @ self.noisy.astype(np.float64)
        return result

    def covers(self, names: tuple[str, ...]) -> bool:
        """True for the table of this column, and for the total."""
        return set(names) <= {self.noise.column.name}

    def estimate(self, names: tuple[str, ...]) -> Floats:
        """The unbiased histogram, or the total."""
        return self.values if names else np.array(self.values.sum())

    def combine_groups(
        self, names: tuple[str, ...], group: NDArray[np.int64], count: int, weights: Floats
    ) -> GroupedCombinations:
        """Sums of weighted bins by group, as `MeasuredTables.combine_groups`."""
        size = self.noise.column.size
        flat_group = np.broadcast_to(group.reshape(-1), (size,)) if not names else group.reshape(-1)
        flat_weights = np.broadcast_to(weights.reshape(weights.shape[0], -1), (weights.shape[0], size))
        values = np.zeros((count, weights.shape[0]))
        covariances = np.zeros((count, weights.shape[0], weights.shape[0]))
        for index in range(count):
            rows = (flat_weights * (flat_group == index)) @ self.noise.inverse
            values[index] = rows @ self.noisy.astype(np.float64)
            covariances[index] = self.noise.sigma**2 * rows @ rows.T
        return GroupedCombinations(values, covariances, self.noise.deviations)

    def quantile(self, fraction: Number, confidence: Number) -> tuple[float, float, float]:
        """The value that a share of the rows is below, to the width of a bin, with its interval.

        Proof: docs/proofs/synopsis.md, "Ranges"
        """
        share = float(parse_probability(fraction, "fraction"))
        column = self.noise.column
        bins = column.bins
        edges = [float(edge) for edge in column.edges]
        below = np.tril(np.ones((bins, bins)))
        # Of each edge: how many rows are below it, less the share of all that are not NULL.
        coefficients = np.zeros((bins, column.size))
        coefficients[:, :bins] = below - share
        rows = coefficients @ self.noise.inverse
        excess = rows @ self.noisy.astype(np.float64)
        width = self.noise.deviations(confidence) * self.noise.sigma * np.sqrt((rows**2).sum(axis=1))
        value = edges[_first(excess >= 0, bins - 1) + 1]
        # From the left up to the first edge that may be above, from the right down to the last below.
        low = edges[_first(excess + width >= 0, bins - 1)]
        last = bins - _first((excess - width < 0)[::-1], bins)
        high = edges[min(bins, last + 1)]
        return value, min(low, value), max(high, value)


def _first(conditions: NDArray[np.bool_], default: int) -> int:
    places = np.flatnonzero(conditions)
    return int(places[0]) if places.size else default


def range_column(column: Column, step: Fraction) -> Column:
    """The column with bins of one step each, for ranges."""
    low, high = column.bounds if column.is_binned else (Fraction(0), Fraction(0))
    if low == high or (high - low) / step > MAX_BINS:
        raise InvalidInput(
            f"ranges of {column.name} are not possible with this step",
            why=f"they are of numbers and dates, in at most {MAX_BINS} bins",
            fix="choose a wider step, or another column",
        )
    return column.with_cuts(low + step * place for place in range(1, math.ceil((high - low) / step)))
