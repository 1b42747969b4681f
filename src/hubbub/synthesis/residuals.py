"""Residuals of tables, measured with exact noise on integers.

The residual of a table is what its lower tables do not tell: its part with zero sums along every axis. Its
coordinates in the Helmert contrasts h_j = (1, …, 1, −j, 0, …) are integers, for several columns in their
Kronecker products. Row j is multiplied by the integer m_j = ⌊L/‖h_j‖⌋, so that all rows have about the same
norm, and the vector of these integers gets Gaussian noise of scale σ·L. No noise is ever projected: what
would have been lost by that is not paid for.

Proof: docs/proofs/synopsis.md, "Residuals"
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from hubbub.errors import Unsupported
from hubbub.mechanisms import Gaussian
from hubbub.numbers import Number, ceil_sqrt, parse_positive
from hubbub.sensitivity import MAX_MAGNITUDE, Bounded, Sensitivity
from hubbub.synthesis.counting import Counts, Integers
from hubbub.unit import Neighbours, Unit

__all__ = ["Residual", "ResidualNoise", "contrast_transform", "measure_residual", "residual_cost"]

Floats = NDArray[np.float64]
_ROW_BITS = 7
"""Rows of the integer transform fall short of the norm L by at most 2^-7 of it."""
_MAX_ROW_BITS = 30
_MAX_NOISE_BITS = 46
RULE = "Residuals"


def residual_cost(shape: Sequence[int], neighbours: Neighbours) -> Fraction:
    """The square of the ℓ2 sensitivity of a residual in orthonormal contrasts, for one unit of weight 1.

    >>> residual_cost((2, 3), Neighbours.ADD_REMOVE), residual_cost((2, 3), Neighbours.SUBSTITUTE)
    (Fraction(1, 3), Fraction(4, 3))

    Guarantee: no unit that adds a non-negative vector with ℓ1 norm at most 1 to the table moves its
        residual further; under substitution, no two such units do.
    Proof: docs/proofs/synopsis.md, "Residuals"
    """
    one = math.prod((Fraction(size - 1, size) for size in shape), start=Fraction(1))
    if neighbours is Neighbours.ADD_REMOVE or not shape or not one:
        return one
    least = min(shape)
    return 2 * one * Fraction(least, least - 1)


def contrast_transform(table: Integers) -> NDArray[np.int64]:
    """The integer coordinates h_j · n along every axis: of shape (k_1 − 1, …, k_d − 1)."""
    result = table
    for axis in range(table.ndim):
        moved = np.moveaxis(result, axis, 0)
        size = moved.shape[0]
        order = np.arange(1, size).reshape(-1, *(1,) * (moved.ndim - 1))
        sums = np.cumsum(moved, axis=0)[:-1]
        result = np.moveaxis(sums - order * moved[1:], 0, axis)
    return np.ascontiguousarray(result).reshape(result.shape)


def inverse_contrasts(coordinates: Floats) -> Floats:
    """Σ_j z_j h_j along every axis: of shape (k_1, …, k_d)."""
    result = coordinates
    for axis in range(coordinates.ndim):
        moved = np.moveaxis(result, axis, 0)
        size = moved.shape[0] + 1
        padded = np.zeros((size + 1, *moved.shape[1:]))
        padded[1:size] = moved
        order = np.arange(size).reshape(-1, *(1,) * (moved.ndim - 1))
        later = np.cumsum(padded[::-1], axis=0)[::-1][1:]
        result = np.moveaxis(later - order * padded[:-1], 0, axis)
    return np.ascontiguousarray(result).reshape(result.shape)


def _squared_norms(shape: Sequence[int]) -> Integers:
    """‖h_j‖² = ∏ j_i (j_i + 1), exact in 64 bits for up to 2^30 cells."""
    total = np.ones((1,) * len(shape), dtype=np.int64)
    for axis, size in enumerate(shape):
        order = np.arange(1, size, dtype=np.int64)
        along = [-1 if other == axis else 1 for other in range(len(shape))]
        total = total * (order * (order + 1)).reshape(along)
    return total


@dataclass(frozen=True)
class ResidualNoise:
    """The noise of one residual, fixed before any row is read.

    Args:
        shape: the sizes of the table's columns.
        unit: who is protected.
        scale: what a row of full weight counts.
        max_weight: what one unit counts at most, in rows of full weight.
        mu: the μ of the measurement.

    Guarantee: the release is a Gaussian mechanism of at most this μ.
    Proof: docs/proofs/synopsis.md, "Residuals"
    """

    shape: tuple[int, ...]
    unit: Unit
    scale: int
    max_weight: int
    mu: Fraction

    @cached_property
    def cost(self) -> Fraction:
        """The squared ℓ2 sensitivity for units of weight 1."""
        return residual_cost(self.shape, self.unit.neighbours)

    @property
    def coordinates(self) -> int:
        """The number of contrasts."""
        return math.prod(size - 1 for size in self.shape)

    @cached_property
    def row_norm(self) -> int:
        """L, the norm that no row of the integer transform exceeds: a power of two, from public facts."""
        needed = _ROW_BITS + max(0, math.ceil(math.log2(max(1, math.prod(self.shape)))))
        # The noise in integers has to stay within 2^46.
        noise = math.log2(self.scale * self.max_weight) + math.log2(float(ceil_sqrt(self.cost) / self.mu))
        bits = min(needed, _MAX_ROW_BITS, math.floor(_MAX_NOISE_BITS - noise))
        if bits < needed - _ROW_BITS:
            raise Unsupported(
                f"the noise of a table of {math.prod(self.shape)} cells is wider than 2^46 steps",
                why="its law would no longer be exact in 64 bits",
                fix="choose a larger {epsilon}, fewer columns for each table, or fewer rows per unit",
            )
        return 1 << bits

    @cached_property
    def multipliers(self) -> Integers:
        """m_j = ⌊L/‖h_j‖⌋, exactly: 1 at least."""
        squares = _squared_norms(self.shape)
        first = np.maximum(np.floor(self.row_norm / np.sqrt(squares)), 1.0)
        # One too many by the rounding of doubles: m ≤ L²/(‖h‖²·m) is checked in integers.
        values = first.astype(np.int64)
        over = values > self.row_norm**2 // squares // values
        return np.maximum(np.where(over, values - 1, values), 1)

    @cached_property
    def sensitivity(self) -> Sensitivity:
        """The sensitivity of the integers."""
        square = self.cost * (self.row_norm * self.scale * self.max_weight) ** 2
        return Sensitivity(ceil_sqrt(square * max(1, self.coordinates)), l2_squared=square)

    @cached_property
    def mechanism(self) -> Gaussian:
        """The noise on the integers."""
        return Gaussian(ceil_sqrt(self.sensitivity.l2_squared) / self.mu, self.sensitivity)

    @cached_property
    def sigma(self) -> float:
        """The standard deviation along every orthonormal contrast, in rows: at most this, hardly less."""
        worst = float(
            (self.row_norm / (self.multipliers * np.sqrt(_squared_norms(self.shape)))).max(initial=1.0)
        )
        return math.sqrt(self.mechanism.variance) / (self.row_norm * self.scale) * worst

    @cached_property
    def _steps(self) -> Floats:
        """The factor of each integer in the sum of contrasts."""
        return 1.0 / (self.multipliers * _squared_norms(self.shape) * self.scale)

    def measure(self, table: Integers) -> "Residual":
        """Measure the residual of an exact table, in units of `scale`.

        Guarantee: a Gaussian mechanism of at most μ, whatever the table is.
        Assumes: one unit adds a non-negative vector with ℓ1 norm at most scale·max_weight to the table.
        Proof: docs/proofs/synopsis.md, "Residuals"
        """
        integers = self.integers(table)
        bounded = Bounded.borrow(integers, self.sensitivity, self.unit, RULE)
        return Residual(self, self.mechanism.release(bounded).value)

    def integers(self, table: Integers) -> Integers:
        """The integers that noise is added to, clamped to ±2^61. They are exact data."""
        largest = float(np.abs(table).astype(np.float64).sum()) * self.row_norm
        if largest < MAX_MAGNITUDE:
            small: Integers = (contrast_transform(table) * self.multipliers).ravel()
            return small
        # Too many rows for 64 bits on the way; the result is clamped, and never wraps.
        exact = contrast_transform(table.astype(object)) * self.multipliers.astype(object)
        clamped: Integers = np.clip(exact.ravel(), -MAX_MAGNITUDE, MAX_MAGNITUDE).astype(np.int64)
        return clamped


@dataclass(frozen=True, eq=False)
class Residual:
    """A measured residual: noisy integers, and what they mean."""

    noise: ResidualNoise
    noisy: Integers
    """The released integers."""

    @property
    def sigma(self) -> float:
        """The standard deviation along every orthonormal contrast, in rows."""
        return self.noise.sigma

    @cached_property
    def values(self) -> Floats:
        """The unbiased residual in the shape of the table, in rows: zero sums along every axis."""
        shape = tuple(size - 1 for size in self.noise.shape)
        return inverse_contrasts(self.noisy.reshape(shape) * self.noise._steps)  # noqa: SLF001 - of this module

    @property
    def cell_sd(self) -> float:
        """The standard deviation of each cell of `values`."""
        return self.sigma * math.sqrt(math.prod((1 - 1 / size for size in self.noise.shape), start=1.0))


def measure_residual(counts: Counts, names: tuple[str, ...], table: Integers, mu: Number) -> Residual:
    """Measure the residual of a counted table with Gaussian noise of this μ.

    Guarantee: a Gaussian mechanism of at most μ.
    Proof: docs/proofs/synopsis.md, "Residuals"
    """
    shape = counts.domain.shape(names)
    noise = ResidualNoise(shape, counts.unit, counts.scale, counts.max_weight, parse_positive(mu, "mu"))
    return noise.measure(table)
