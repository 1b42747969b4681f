"""Bins of numeric columns, found privately: noisy prefix sums of a histogram on a fine public grid.

The grid follows from the declared bounds alone. Prefix sums of m cells are the product of the all-ones lower
triangle A = C·C with the histogram h, where C is the lower-triangular Toeplitz matrix of the coefficients of
1/√(1 − x): f₀ = 1, f_k = f_{k−1}·(2k − 1)/(2k). Noise is added to C·h, and A = C·C makes its error in a
prefix sum grow with log m only. Here f is rounded down to integers F = ⌊2^14·f⌋, so that F·h is a vector of
integers with an exact sensitivity; the estimate inverts F itself, so this rounding costs no accuracy.

Proof: docs/proofs/synthesis.md, "Bins"
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from hubbub.mechanisms import Gaussian
from hubbub.numbers import ceil_sqrt
from hubbub.sensitivity import Bounded, Sensitivity
from hubbub.synthesis.counting import Counts, Integers
from hubbub.synthesis.domain import Column
from hubbub.unit import Neighbours

__all__ = [
    "Bins",
    "choose_cuts",
    "fine_grid",
    "isotonic",
    "measure_histogram",
    "most_bins",
    "prefix_sensitivity",
    "transform_histogram",
]

Reals = NDArray[np.float64]
_LINEAR_CUTS = 1024
_LOG_CUTS = 1024
_LOG_RANGE = 20
"""Logarithmic cuts reach from the largest magnitude down to 2^-20 of it, or to the unit."""
_FACTOR_BITS = 14
_ATOM_SHARE = 0.7
"""A cell with this share of a bin's mass becomes a bin of its own."""
RULE = "Bins"


@dataclass(frozen=True, eq=False)
class Bins:
    """The bins of a column, and the masses of the grid's cells, by which values within a bin are chosen."""

    column: Column
    """The column with its bins."""
    grid: tuple[Fraction, ...]
    """The ends of the cells of the fine grid; every end of a bin is one of them."""
    masses: Reals
    """The estimated number of rows in each cell of the grid, not negative."""


def fine_grid(column: Column) -> tuple[Fraction, ...]:
    """Return the inner cuts of a fine grid: linear and logarithmic, with 0, 1 and the forced cuts.

    Where a unit is declared, cuts are multiples of it; if there are few multiples, all of them are cuts.

    >>> [int(cut) for cut in fine_grid(Column.of_numbers("age", (0, 5), unit=1))]
    [1, 2, 3, 4]
    """
    low, high = column.bounds
    unit = column.unit
    cuts = {Fraction(0), Fraction(1), *column.forced_cuts}
    if unit is not None and (high - low) / unit <= _LINEAR_CUTS:
        first, last = math.ceil(low / unit), math.floor(high / unit)
        cuts |= {multiple * unit for multiple in range(first, last + 1)}
    else:
        width = high - low
        cuts |= {_round_cut(low + width * Fraction(k, _LINEAR_CUTS), unit) for k in range(1, _LINEAR_CUTS)}
        largest = max(abs(low), abs(high))
        smallest = max(largest / (1 << _LOG_RANGE), unit or Fraction(0))
        signs = [sign for sign, end in ((-1, low), (1, high)) if sign * end > 0]
        steps = _LOG_CUTS // max(1, len(signs))
        ratio = float(largest / smallest)
        for k in range(steps):
            magnitude = Fraction(float(smallest) * ratio ** (k / steps))
            cuts |= {_round_cut(sign * magnitude, unit) for sign in signs}
    return tuple(sorted(cut for cut in cuts if low < cut < high))


def _round_cut(cut: Fraction, unit: Fraction | None) -> Fraction:
    if unit is not None:
        return round(cut / unit) * unit
    return Fraction(float(cut))  # a double, as the values are


def prefix_sensitivity(cells: int, counts: Counts) -> Sensitivity:
    """Return how far one unit moves the integers F·h, for a histogram of this many cells.

    Guarantee: one unit adds to h a vector of non-negative integers with ℓ1 norm at most w, so it moves F·h by
        at most w·‖F‖ in ℓ2, the norm of the first column; two such units differ by at most √2·w·‖F‖.
    Proof: docs/proofs/synthesis.md, "Bins"
    """
    factor = _factor(cells)
    weight = counts.scale * counts.max_weight
    times = 1 if counts.unit.neighbours is Neighbours.ADD_REMOVE else 2
    square = times * weight**2 * sum(int(f) ** 2 for f in factor)
    total = times * weight * sum(int(f) for f in factor)
    return Sensitivity(total, l2_squared=square)


def measure_histogram(counts: Counts, column: Column, mu: Fraction) -> tuple[Reals, float]:
    """Measure a column's histogram on its fine grid.

    Returns:
        The masses of the grid's cells, not negative, in rows; and about the standard deviation of the noise
        of a prefix sum.

    Guarantee: a Gaussian mechanism of at most μ.
    Assumes: the grid follows from the declared column alone.
    Proof: docs/proofs/synthesis.md, "Bins"
    """
    grid = fine_grid(column)
    histogram = counts.histogram(column.name, grid)[: len(grid) + 1]
    cells = histogram.size
    sensitivity = prefix_sensitivity(cells, counts)
    mechanism = Gaussian(ceil_sqrt(sensitivity.l2_squared) / mu, sensitivity)
    integers = transform_histogram(histogram)
    released = mechanism.release(Bounded(integers, sensitivity, counts.unit, RULE)).value
    noisy = _deconvolve(_factor(cells).astype(np.float64), np.asarray(released, dtype=np.float64))
    prefix = np.maximum(isotonic(np.cumsum(noisy) / counts.scale), 0.0)
    # The noise of the last prefix sum has the same norm as a column of F, again.
    norm = math.sqrt(sum(float(f) ** 2 for f in _factor(cells))) / (1 << _FACTOR_BITS)
    sd = math.sqrt(mechanism.variance) / (counts.scale << _FACTOR_BITS) * norm
    return np.diff(prefix, prepend=0.0), sd


def most_bins(column: Column, bins: int) -> int:
    """Return the largest number of bins that `choose_cuts` makes of about this many."""
    # A heavy cell has a share of 0.7/bins or more and two ends, any other bin a share of 1/bins.
    return math.floor(2 * bins / _ATOM_SHARE) + len(column.forced_cuts) + 2


def choose_cuts(column: Column, masses: Reals, sd: float, bins: int) -> Bins:
    """Choose about `bins` bins of equal mass along the fine grid; heavy cells are bins of their own.

    Post-processing of the masses. Within bins the masses are evened out as far as they are noise.
    """
    grid = fine_grid(column)
    low, high = column.bounds
    edges = (low, *grid, high)
    # A thousandth spread evenly: without it, no mass at all would be one bin.
    share = masses + max(masses.sum(), 1.0) * 1e-3 / masses.size
    share = share / share.sum()
    cuts: set[Fraction] = set()
    collected = 0.0
    for cell, mass in enumerate(share):
        if mass >= _ATOM_SHARE / bins:
            cuts |= {edges[cell], edges[cell + 1]}
            collected = 0.0
            continue
        collected += mass
        if collected >= 1 / bins:
            cuts.add(edges[cell + 1])
            collected = 0.0
    binned = column.with_cuts(cuts)
    return Bins(binned, edges, _even_out(masses, edges, set(binned.edges), sd))


def _even_out(masses: Reals, edges: Sequence[Fraction], ends: set[Fraction], sd: float) -> Reals:
    """Spread masses evenly over stretches of cells that hold no more than twice the noise of a prefix sum.

    The nearest non-decreasing prefix sums are steps: all mass between two steps would be at one place.
    """
    even = masses.copy()
    start, collected = 0, 0.0
    widths = np.array([float(high - low) for low, high in pairwise(edges)])

    def close(stop: int) -> None:
        if stop > start:
            even[start:stop] = collected * widths[start:stop] / widths[start:stop].sum()

    for cell, mass in enumerate(masses):
        if mass >= 3 * sd:
            close(cell)
            start, collected = cell + 1, 0.0
            continue
        collected += mass
        if collected >= 2 * sd or edges[cell + 1] in ends:
            close(cell + 1)
            start, collected = cell + 1, 0.0
    close(masses.size)
    return even


def _factor(cells: int) -> Integers:
    """F_k = ⌊2^14·f_k⌋ with f the coefficients of 1/√(1 − x)."""
    exact = Fraction(1)
    values = []
    for k in range(cells):
        if k:
            # Truncated at 80 bits: f itself is free, only the integers F count.
            exact = Fraction(math.floor(exact * Fraction(2 * k - 1, 2 * k) * (1 << 80)), 1 << 80)
        values.append(math.floor(exact * (1 << _FACTOR_BITS)))
    return np.array(values, dtype=np.int64)


def transform_histogram(histogram: Integers) -> Integers:
    """Return F·h: the integers that noise is added to, exact, clamped to ±2^61.

    Guarantee: between neighbours they move by at most `prefix_sensitivity`; clamping moves nothing further.
    Proof: docs/proofs/synthesis.md, "Bins"
    """
    factor, values = _factor(histogram.size), histogram
    if int(factor[0]) * sum(map(abs, histogram.tolist())) >= 1 << 61:
        factor, values = factor.astype(object), histogram.astype(object)
    total = np.zeros(histogram.size, dtype=values.dtype)
    for cell in range(histogram.size):
        total[cell:] += factor[: histogram.size - cell] * values[cell]
    return np.clip(total, -(1 << 61), 1 << 61).astype(np.int64)


def _deconvolve(factor: Reals, values: Reals) -> Reals:
    """Solve the lower-triangular Toeplitz system: the x with factor * x = values."""
    solution = np.zeros(values.size)
    reverse = factor[::-1]
    size = values.size
    for k in range(size):
        solution[k] = (values[k] - reverse[size - 1 - k : size - 1] @ solution[:k]) / factor[0]
    return solution


def isotonic(values: Sequence[float] | Reals) -> Reals:
    """Return the nearest non-decreasing sequence (pool adjacent violators).

    >>> isotonic([1.0, 3.0, 2.0, 4.0]).tolist()
    [1.0, 2.5, 2.5, 4.0]
    """
    means: list[float] = []
    weights: list[int] = []
    for value in values:
        mean, weight = float(value), 1
        while means and means[-1] >= mean:
            mean = (mean * weight + means[-1] * weights[-1]) / (weight + weights[-1])
            weight += weights.pop()
            means.pop()
        means.append(mean)
        weights.append(weight)
    return np.repeat(means, weights)
