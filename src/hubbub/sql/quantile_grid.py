"""The cells among which a quantile is selected: equal ones, united with those of floating-point numbers.

Equal cells are good where the bounds fit the values. Where the bounds are far too wide all values share a few
of these, close to zero; there the cells of floating-point numbers, 512 or 1,024 for each power of two, keep
them apart. A value's cell is the number of its equal cell plus the number of its floating-point cell: both
never fall as the value rises, so the sum rises wherever one of them does.

Proof: docs/proofs/quantiles.md, "Cells"
"""

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from hubbub.engines.schema import Bounds
from hubbub.engines.total_functions import format_double

__all__ = ["QuantileGrid"]

_LINEAR = 1 << 15
_OCTAVES = 31
_NEAR_BITS = 7
_MIN_EXPONENT = -900
"""Below it powers of two come near the least doubles, where products are not exact."""
_MEASURE = 1 << 36
_NARROWEST = 1e-200


@dataclass(frozen=True)
class QuantileGrid:
    """The cells of [low, high], at most 65,536, and how likely each is where nothing is known of the rows.

    >>> grid = QuantileGrid((Fraction(30), Fraction(180)))  # zero is far: equal cells only
    >>> grid.cells, float(grid.edges[1] - grid.edges[0])
    (32768, 0.00457763671875)
    >>> wide = QuantileGrid((Fraction(0), Fraction(10**9)))
    >>> wide.cells, float(np.diff(wide.edges)[wide.edges[:-1] == 100][0])
    (64513, 0.0625)
    """

    bounds: Bounds
    parts: int = 16
    """A cell's count is spread evenly over its parts: more digits of a value, and ranks within ties."""

    @property
    def _width(self) -> Fraction:
        return (self.bounds[1] - self.bounds[0]) / _LINEAR

    @property
    def _bits(self) -> int:
        """Number of leading bits that a floating-point cell has in common."""
        return 9 if self.bounds[0] < 0 < self.bounds[1] else 10

    @property
    def _exponents(self) -> range:
        """Exponents of the floating-point numbers that have cells: those up to 128 equal cells from zero.

        Further away an equal cell is less than a hundredth of a value, and engines compare but once.
        """
        stop = _floor_log2(self._width) + _NEAR_BITS
        least = stop - _OCTAVES
        nearest = min(abs(end) for end in self.bounds) if self.bounds[0] * self.bounds[1] > 0 else Fraction(0)
        if nearest:
            least = max(least, _floor_log2(nearest))
        return range(max(least, _MIN_EXPONENT), stop)

    @cached_property
    def _float_edges(self) -> NDArray[np.float64]:
        """Where the numbers of floating-point cells rise, above zero: sorted, and exact."""
        steps = (1 << self._bits) + np.arange(1 << self._bits)
        edges = [np.ldexp(steps, exponent - self._bits) for exponent in self._exponents]
        return np.concatenate([*edges, [2.0**self._exponents.stop]]) if edges else np.empty(0)

    @cached_property
    def edges(self) -> NDArray[np.float64]:
        """The ends of the cells, from low to high; two may be the same where both kinds of cells end."""
        low, high = map(float, self.bounds)
        share = np.arange(_LINEAR + 1) / _LINEAR
        above, below = self._float_edges, -self._float_edges
        # A cell above zero holds its lower end, one below zero its upper end.
        inside = above[(above > low) & (above <= high)], below[(below >= low) & (below < high)]
        edges = np.sort(np.concatenate([low * (1 - share) + high * share, *inside]))
        edges[0], edges[-1] = low, high  # whatever the products were rounded to
        return np.asarray(edges)

    @cached_property
    def cells(self) -> int:
        """Number of cells; cell i is between edges[i] and edges[i + 1]."""
        return self.edges.size - 1

    @cached_property
    def measure(self) -> NDArray[np.int64]:
        """The weight of each part of a cell: half by width, half the same for every cell; at least 1."""
        span = self.edges[-1] - self.edges[0] or 1.0  # bounds that are one double
        by_width = np.floor(np.maximum(np.diff(self.edges) / span, 0) * _MEASURE).astype(np.int64)
        return np.asarray(by_width + _MEASURE // self.cells)

    @cached_property
    def _cumulated(self) -> NDArray[np.int64]:
        return np.concatenate([[0], np.cumsum(self.measure) * self.parts])

    def measure_before(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """The weight of all parts of cells before these, which are counted through from 0 on."""
        cell, part = np.divmod(positions, self.parts)
        return np.asarray(self._cumulated[cell] + part * np.append(self.measure, 0)[cell])

    def locate(self, measures: NDArray[np.int64]) -> NDArray[np.int64]:
        """The parts of cells in which these weights, counted from the beginning, are reached."""
        cell = np.searchsorted(self._cumulated, measures, side="right") - 1
        return np.asarray(cell * self.parts + (measures - self._cumulated[cell]) // self.measure[cell])

    def values(self, positions: NDArray[np.int64]) -> NDArray[np.float64]:
        """The middle of each part of a cell, rounded to as few digits as stay inside it."""
        cell, part = np.divmod(positions, self.parts)
        share = (part + 0.5) / self.parts
        middle = self.edges[cell] * (1 - share) + self.edges[cell + 1] * share
        width = np.maximum((self.edges[cell + 1] - self.edges[cell]) / self.parts, _NARROWEST)
        # Multiples of a power of ten that is no wider than a part: half of it is less than half a part.
        digits = np.ceil(-np.log10(width))
        power = 10.0 ** np.abs(digits)
        rounded = np.where(digits > 0, np.rint(middle * power) / power, np.rint(middle / power) * power)
        is_inside = (np.abs(rounded - middle) <= width / 2) & (width > _NARROWEST)
        return np.asarray(np.where(is_inside, rounded, middle))

    def index_sql(self, value: str) -> str:
        """The cell of a value within the bounds, as SQL: a whole number from 0 to `cells` − 1.

        Only comparisons, products with powers of two, FLOOR, and one product that is rounded as IEEE says:
        the same on every engine.
        """
        low = format_double(self.bounds[0])
        factor = format_double(_LINEAR / (self.bounds[1] - self.bounds[0]))
        # Not below 0: no value is below the lower bound.
        linear = f"LEAST(FLOOR(({value} - {low}) * {factor}), {_LINEAR - 1})"
        if self.cells == _LINEAR:
            return linear
        start = self._float_index(float(self.bounds[0]))
        return f"{linear} + ({self._float_index_sql(value)}) - {start}"

    def _float_index(self, value: float) -> int:
        index = int(np.searchsorted(self._float_edges, abs(value), side="right"))
        return index if value >= 0 else -index

    def _float_index_sql(self, value: str) -> str:
        exponents, most = self._exponents, len(self._float_edges)
        end = format_double(Fraction(2) ** exponents.stop)
        least = format_double(Fraction(2) ** exponents.start)
        above, below = self._octave_sql(value, exponents), self._octave_sql(f"(-{value})", exponents)
        tests = [f"WHEN {value} >= {end} THEN {most}"] if self.bounds[1] > 0 else []
        tests += [f"WHEN {value} <= -{end} THEN {-most}"] if self.bounds[0] < 0 else []
        tests += [f"WHEN {value} >= {least} THEN {above}"] if self.bounds[1] > 0 else []
        tests += [f"WHEN {value} <= -{least} THEN -({below})"] if self.bounds[0] < 0 else []
        return f"CASE {' '.join(tests)} ELSE 0 END"

    def _octave_sql(self, size: str, exponents: range) -> str:
        """The number of the cell of a size within these powers of two, halving what is left."""
        if len(exponents) == 1:
            [exponent] = exponents
            steps = 1 << self._bits
            before = (exponent - self._exponents.start) * steps - steps + 1
            factor = format_double(Fraction(2) ** (self._bits - exponent))
            return f"FLOOR({size} * {factor}) + {before}"
        middle = exponents[len(exponents) // 2]
        lower, upper = range(exponents.start, middle), range(middle, exponents.stop)
        test = f"{size} < {format_double(Fraction(2) ** middle)}"
        return (
            f"CASE WHEN {test} THEN {self._octave_sql(size, lower)} ELSE {self._octave_sql(size, upper)} END"
        )


def _floor_log2(value: Fraction) -> int:
    """The largest e with 2^e ≤ value."""
    exponent = value.numerator.bit_length() - value.denominator.bit_length()
    return exponent if Fraction(2) ** exponent <= value else exponent - 1
