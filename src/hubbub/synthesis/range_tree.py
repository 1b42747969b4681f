"""Ranges of one ordered column at a pure ε: counts of a tree of bins with Laplace noise.

Each level of the tree counts every row once: single bins, groups of 16 of them, groups of 256. A range is a
sum of few nodes. The histogram is the least-squares estimate from all levels.

Proof: docs/proofs/synopsis.md, "Pure ε"
"""

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np

from hubbub.mechanisms import Laplace
from hubbub.numbers import Number
from hubbub.sensitivity import Bounded, Sensitivity
from hubbub.sql.bounding_sql import neighbour_sensitivity
from hubbub.synthesis.counting import Integers
from hubbub.synthesis.domain import Column
from hubbub.synthesis.laplace_tables import fine_factor, laplace_deviations, multiply_clamped
from hubbub.synthesis.prefix_sums import Floats, MeasuredRange, check_bins
from hubbub.unit import Unit

__all__ = ["TreeNoise"]

_BRANCHES = 16
RULE = "Pure ε"


@dataclass(frozen=True)
class TreeNoise:
    """The noise of the ranges of one column, fixed before any row is read.

    Args:
        column: the column, with the bins of a fine public grid.
        unit: who is protected.
        scale: what a row of full weight counts.
        max_weight: what one unit counts at most, in rows of full weight.
        epsilon: the ε of the measurement.

    Guarantee: the release is a Laplace mechanism of at most this ε.
    Proof: docs/proofs/synopsis.md, "Pure ε"
    """

    column: Column
    unit: Unit
    scale: int
    max_weight: int
    epsilon: Fraction

    def __post_init__(self) -> None:
        check_bins(self.column)

    @cached_property
    def widths(self) -> tuple[int, ...]:
        """The number of bins of a node, by level."""
        widths = [1]
        while math.ceil(self.column.bins / widths[-1]) > _BRANCHES:
            widths.append(widths[-1] * _BRANCHES)
        return tuple(widths)

    @cached_property
    def nodes(self) -> Integers:
        """The integer matrix: a row for each node, a column for each bin; NULL counts as often as a bin."""
        bins, size = self.column.bins, self.column.size
        levels = [
            (np.arange(bins) // width == np.arange(math.ceil(bins / width))[:, np.newaxis])
            for width in self.widths
        ]
        matrix = np.zeros((sum(map(len, levels)) + size - bins, size), dtype=np.int64)
        matrix[: sum(map(len, levels)), :bins] = np.concatenate(levels)
        for cell in range(bins, size):
            matrix[cell - size, cell] = len(self.widths)
        return matrix

    @property
    def coordinates(self) -> int:
        """The number of measured integers."""
        return len(self.nodes)

    @property
    def figure(self) -> Fraction:
        """The cost of the measurement: ε."""
        return self.epsilon

    def _bound(self, factor: int) -> Sensitivity:
        most = Fraction(self.scale * self.max_weight * factor)
        levels = len(self.widths)
        return neighbour_sensitivity(self.unit.neighbours, levels * most, (levels * most) ** 2, levels * most)

    @cached_property
    def factor(self) -> int:
        """The factor of the counts."""
        return fine_factor(self._bound(1).l1 / self.epsilon, self.scale)

    @cached_property
    def sensitivity(self) -> Sensitivity:
        """The sensitivity of the integers: a unit's rows count once in each level."""
        return self._bound(self.factor)

    @cached_property
    def mechanism(self) -> Laplace:
        """The noise on the integers."""
        return Laplace(self.sensitivity.l1 / self.epsilon, self.sensitivity)

    def integers(self, histogram: Integers) -> Integers:
        """The integers that noise is added to, clamped to ±2^61. They are exact data."""
        # Sums of at most 2,048 bins of 2^48 at most stay within 64 bits.
        most = 1 << 48
        return multiply_clamped(self.nodes @ np.clip(histogram, -most, most), self.factor)

    def measure(self, histogram: Integers) -> MeasuredRange:
        """Measure a histogram of the column, in units of `scale`.

        Guarantee: a Laplace mechanism of at most ε, whatever the histogram is.
        Assumes: one unit adds a non-negative vector with ℓ1 norm at most scale·max_weight to it.
        Proof: docs/proofs/synopsis.md, "Pure ε"
        """
        bounded = Bounded(self.integers(histogram), self.sensitivity, self.unit, RULE)
        return MeasuredRange(self, self.mechanism.release(bounded).value)

    @cached_property
    def inverse(self) -> Floats:
        """The least-squares inverse: rows are bins, columns are measured integers; in rows."""
        matrix = self.nodes.astype(np.float64)
        inverse = np.linalg.solve(matrix.T @ matrix, matrix.T).astype(np.float64)
        return inverse / float(self.factor * self.scale)

    @cached_property
    def sigma(self) -> float:
        """The standard deviation of the noise on each integer."""
        return math.sqrt(self.mechanism.variance)

    @cached_property
    def prefix_deviation(self) -> float:
        """The root mean square of the standard deviations of all prefix sums, in rows."""
        bins = self.column.bins
        sums = np.cumsum(self.inverse[:bins], axis=0)
        return self.sigma * math.sqrt(float((sums**2).sum()) / bins)

    @staticmethod
    def deviations(confidence: Number) -> float:
        """The number of standard deviations on each side of an interval."""
        return laplace_deviations(confidence)
