"""The cells among which a quantile is selected: equal ones, united with those of floating-point numbers.

Equal cells are good where the bounds fit the values. Where the bounds are far too wide all values share a few
of these, close to zero; there the cells of floating-point numbers, 512 or 1,024 for each power of two, keep
them apart. A value's cell is the number of its equal cell plus the number of its floating-point cell: both
never fall as the value rises, so the sum rises wherever one of them does.

Many values are round: ages, wages, prices. A third of the weight is on the cells of round numbers.

Proof: docs/proofs/quantiles.md, "Cells"
"""

import math
from collections.abc import Iterator
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
_MAX_ROUND = 2000
"""Multiples of a power of ten are round if the bounds hold at most this many of them."""
_MIN_ROUND = 8
"""And if it holds more than this many: one or two of them, often the bounds themselves, are not likelier."""
_DECADES = 9
"""Where values may be close to zero, numbers of one or two digits are round in this many decades."""


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
    spreads_ties: bool = True
    """False if one quantile is selected: then the part with a round number stands for all of its cell."""

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
    def _round_numbers(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Of each cell its roundest number, or not a number, and its share of the weight of round numbers."""
        values, shares = np.full(self.cells + 1, np.nan), np.zeros(self.cells + 1)
        levels = list(self._round_levels())
        for level in reversed(levels):  # the roundest last
            cells = self.cells_of(level)
            values[cells] = level
            np.add.at(shares, cells, 1 / (len(levels) * level.size))
        return values, shares

    def _round_levels(self) -> Iterator[NDArray[np.float64]]:
        """Multiples of powers of ten within the bounds, the largest first; then numbers of few digits."""
        low, high = self.bounds
        top = max(_floor_log10(max(abs(low), abs(high))), -300)
        for exponent in range(min(top, 300), max(top - 20, -300), -1):
            power = Fraction(10) ** exponent
            first, last = math.ceil(low / power), math.floor(high / power)
            if last - first >= _MAX_ROUND or max(abs(first), abs(last)) >= 2**53:
                break
            if last - first >= _MIN_ROUND:
                yield _scale(np.arange(first, last + 1), exponent)
        if self.cells == _LINEAR:
            return
        for digits in (1, 2):
            counts = np.arange(10 ** (digits - 1), 10**digits)
            sizes = [
                _scale(counts, exponent + 1 - digits)
                for exponent in range(top, max(top - _DECADES, -290), -1)
            ]
            both = np.concatenate([*sizes, *(-size for size in sizes)])
            inside = both[(both >= float(low)) & (both <= float(high))]
            if inside.size:
                yield inside

    @cached_property
    def round_part(self) -> NDArray[np.int64]:
        """The part of each cell that holds its roundest number and stands for all of the cell; −1 if none."""
        places, values = np.full(self.cells + 1, -1), self._round_numbers[0]
        if not self.spreads_ties:
            cell = np.flatnonzero(~np.isnan(values))
            start, width = self.edges[cell], np.diff(self.edges)[cell]
            share = np.where(width > 0, values[cell] - start, 0) / np.where(width > 0, width, 1)
            places[cell] = np.clip(np.floor(share * self.parts), 0, self.parts - 1)
        return places

    @cached_property
    def _round_measure(self) -> NDArray[np.int64]:
        """The weight that a cell has for its round numbers, in all its parts together."""
        return np.floor(self._round_numbers[1] * _MEASURE).astype(np.int64) * self.parts

    @cached_property
    def extra_measure(self) -> NDArray[np.int64]:
        """The further weight of the part with a round number; 0 where that is spread over all parts."""
        return np.where(self.round_part >= 0, self._round_measure, 0)

    @cached_property
    def measure(self) -> NDArray[np.int64]:
        """The weight of each part of a cell: by width, the same for every cell, and for round numbers.

        A third each; at least 1. The last is left out where one part of the cell has it: `extra_measure`.
        """
        span = self.edges[-1] - self.edges[0] or 1.0  # bounds that are one double
        by_width = np.floor(np.maximum(np.diff(self.edges) / span, 0) * _MEASURE).astype(np.int64)
        spread = ((self._round_measure - self.extra_measure) // self.parts)[:-1]
        return np.asarray(by_width + _MEASURE // self.cells + spread)

    @cached_property
    def total(self) -> int:
        """The weight of all parts."""
        return int(self._cumulated[-1])

    @cached_property
    def _cumulated(self) -> NDArray[np.int64]:
        return np.concatenate([[0], np.cumsum(self.measure * self.parts + self.extra_measure[:-1])])

    def measure_before(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """The weight of all parts of cells before these, which are counted through from 0 on."""
        cell, part = np.divmod(positions, self.parts)
        extra = np.where(part > self.round_part[cell], self.extra_measure[cell], 0)
        return np.asarray(self._cumulated[cell] + part * np.append(self.measure, 0)[cell] + extra)

    def locate(self, measures: NDArray[np.int64]) -> NDArray[np.int64]:
        """The parts of cells in which these weights, counted from the beginning, are reached."""
        cell = np.searchsorted(self._cumulated, measures, side="right") - 1
        rest, each, extra = measures - self._cumulated[cell], self.measure[cell], self.extra_measure[cell]
        place = self.round_part[cell]
        # Before the part with a round number, within it, or behind it.
        part = np.where(rest < place * each, rest // each, np.maximum(place, (rest - extra) // each))
        return np.asarray(cell * self.parts + part)

    def cells_of(self, values: NDArray[np.float64]) -> NDArray[np.int64]:
        """The cells of values within the bounds: the same as `index_sql` computes."""
        factor = float(_LINEAR / (self.bounds[1] - self.bounds[0]))
        linear = np.minimum(np.floor((values - float(self.bounds[0])) * factor), _LINEAR - 1)
        index = np.maximum(linear, 0).astype(np.int64)
        if self.cells == _LINEAR:
            return index
        far = np.searchsorted(self._float_edges, np.abs(values), side="right")
        return np.asarray(index + np.where(values >= 0, far, -far) - self._float_index(float(self.bounds[0])))

    def values(self, positions: NDArray[np.int64]) -> NDArray[np.float64]:
        """The round number of each part, or its middle, rounded to as few digits as stay inside it."""
        cell, part = np.divmod(positions, self.parts)
        share = (part + 0.5) / self.parts
        middle = self.edges[cell] * (1 - share) + self.edges[cell + 1] * share
        width = np.maximum((self.edges[cell + 1] - self.edges[cell]) / self.parts, _NARROWEST)
        # Multiples of a power of ten that is no wider than a part: half of it is less than half a part.
        digits = np.ceil(-np.log10(width))
        power = 10.0 ** np.abs(digits)
        rounded = np.where(digits > 0, np.rint(middle * power) / power, np.rint(middle / power) * power)
        is_inside = (np.abs(rounded - middle) <= width / 2) & (width > _NARROWEST)
        exact = self._round_numbers[0][cell]
        is_round = ~np.isnan(exact) & (self.spreads_ties | (part == self.round_part[cell]))
        return np.asarray(np.where(is_round, exact, np.where(is_inside, rounded, middle)))

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


def _floor_log10(value: Fraction) -> int:
    """The largest e with 10^e ≤ value; 0 for 0."""
    if not value:
        return 0
    exponent = math.floor((value.numerator.bit_length() - value.denominator.bit_length()) * math.log10(2))
    while Fraction(10) ** exponent > value:
        exponent -= 1
    while Fraction(10) ** (exponent + 1) <= value:
        exponent += 1
    return exponent


def _scale(counts: NDArray[np.int64], exponent: int) -> NDArray[np.float64]:
    """The doubles closest to these multiples of a power of ten, as they are read from text."""
    return np.array([float(f"{count}e{exponent}") for count in counts.tolist()])
