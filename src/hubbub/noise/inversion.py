"""Inverse transform sampling from a uniform number with infinitely many bits; only the bits needed are read.

A distribution on 0, 1, 2, … is a function `steps(bits)` that yields enclosures of C₁, C₂, … without end,
where Cⱼ = Pr[X < j]. Every path below computes the same function of one uniform U: the j with
Cⱼ ≤ U < Cⱼ₊₁. Only the number of bits read differs, so the distribution is exact.

Proof: docs/proofs/samplers.md
"""

from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterator
from fractions import Fraction
from itertools import count
from math import ceil, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hubbub.noise.enclosures import Enclosure, Real, divide, exp_neg, normal_central
from hubbub.noise.entropy import random_bits, random_bytes

__all__ = [
    "MAX_DRAW",
    "CdfSteps",
    "Table",
    "discrete_gaussian_size",
    "discrete_laplace_size",
    "gaussian_stairs",
    "geometric",
    "half_gaussian",
    "is_below",
    "lanes_needed",
    "padded_rounds",
    "rounded_gaussian_size",
    "saturate",
]

CdfSteps = Callable[[int], Iterator[Enclosure]]

MAX_DRAW = 1 << 62
"""Vectors store a draw beyond ±2^62 as ±2^62; at scale 2^48 its probability is below e^-16000."""

_ONE = 1 << 64
_GUIDE_BITS = 16
_UNDECIDED = np.iinfo(np.int16).min
"""In the guide: this cell holds a threshold, so that 16 bits do not decide."""
_CHUNK = 1 << 17
"""Draws per batch: small arrays are reused by the allocator."""


def saturate(draw: int) -> int:
    """Return the 64-bit value that a vector stores for `drawn`."""
    return max(-MAX_DRAW, min(MAX_DRAW, draw))


def is_below(u: int, bits: int, x: Real) -> bool:
    """Return whether U < x, given the first `bits` bits of U; draws more while these do not decide."""
    while True:
        low, high = x(bits)
        if u < low:
            return True
        if u >= high:
            return False
        # survives: Bits are drawn in bytes: of one more the last is cut off again.
        u, bits = u << 64 | random_bits(64), bits + 64


def lanes_needed(mean: float) -> int:
    """Return a number of lanes that suffices for all but one in 2^50 vectors, given the mean needed."""
    return ceil(mean + 9 * sqrt(mean) + 9)


def padded_rounds(
    waiting: NDArray[np.intp], lanes: int
) -> Iterator[tuple[NDArray[np.intp], NDArray[np.intp]]]:
    """Yield the waiting positions, up to `lanes` at a time, and the same padded to `lanes`; at least once.

    Which draws need more work depends on their values, so all lanes do it, unused ones included.
    """
    for start in range(0, max(1, waiting.size), lanes):
        part = waiting[start : start + lanes]
        padded = np.zeros(lanes, dtype=np.intp)
        padded[: part.size] = part
        yield part, padded


class Table:
    """An exact sampler for one distribution.

    Guarantee: `value_at` and `draw` have exactly this distribution. A draw reads a fixed number of bits and
        does a fixed amount of work, except with probability below 2^-50 (a tie in 64 bits).
    Assumes: `steps` encloses the distribution function.
    Proof: docs/proofs/samplers.md
    """

    def __init__(self, steps: CdfSteps, *, signed: bool = False) -> None:
        self._steps = steps
        self._signed = signed
        lows: list[int] = []
        highs: list[int] = []
        # survives: The first upper end is 1 or more.
        rising = 0
        for low, high in steps(64):  # pragma: no branch - steps never end
            lows.append(low)
            rising = max(rising, high)  # the steps rise, so this is a bound too, and sorted
            if rising >= _ONE:
                break
            highs.append(rising)
        # With 2^k − 1 entries every search takes k steps. Where those added are reached, nothing is decided.
        whole = (1 << len(highs).bit_length()) - 1
        # survives: Where the entries added are reached nothing is decided: all go to the search.
        highs += [_ONE - 1] * (whole - len(highs))
        # survives: No U that gets there is 0, so no test passes. Lower ends beyond those that a
        # search can end at are never read.
        lows += [0] * (whole + 1 - len(lows))
        # Packed closely, so that rare values are not far from the processor.
        self._highs, self._lows = array("Q", highs), array("Q", lows)
        self._high_array, self._low_array = np.array(highs, np.uint64), np.array(lows, np.uint64)
        self._guide: NDArray[np.int16] | None = None
        self._ambiguous = 0.0
        self.largest = whole
        """The largest value that 64 bits decide, or more."""
        self.chance_of_zero = lows[0] / _ONE
        """Pr[X = 0] to 64 bits, for sizes of buffers."""

    def value_at(self, u: int) -> int:
        """Return the value at U, given its first 64 bits."""
        j = bisect_right(self._highs, u)
        return j if u < self._lows[j] else self._search(u, 64)

    def draw_one(self) -> tuple[int, int]:
        """Draw a value and a sign bit."""
        # survives: Bits are drawn in bytes: of one more the last is cut off again.
        word = random_bits(72)
        return self.value_at(word >> 8), word & 1

    def _search(self, u: int, bits: int) -> int:
        """Return the value at U where 64 bits do not decide it; at most once in 2^50 draws."""
        # survives: Bits are drawn in bytes: of one more the last is cut off again.
        return self.resolve(u << 64 | random_bits(64), bits + 64)[0]

    def resolve(self, u: int, bits: int) -> tuple[int, int, int]:
        """Return the value at U, the bits of U that decide it, and their number; `u` are the first `bits`."""
        while True:
            for j, (low, high) in enumerate(self._steps(bits)):  # pragma: no branch - steps never end
                if u < low:
                    return j, u, bits
                if u < high:
                    break
            # survives: Bits are drawn in bytes: of one more the last is cut off again.
            u, bits = u << 64 | random_bits(64), bits + 64

    def draw(self, count: int) -> NDArray[np.int64]:
        """Draw `count` values; those beyond ±2^62 are returned as ±2^62."""
        values = np.empty(count, dtype=np.int64)
        for start in range(0, count, _CHUNK):
            self._fill(values[start : start + _CHUNK], _UNDECIDED)
        return values

    def draw_with_zeros(
        self, count: int, dtype: type[np.signedinteger[Any]] = np.int64
    ) -> tuple[NDArray[np.signedinteger[Any]], NDArray[np.intp], dict[int, int]]:
        """Draw `count` values; return them, the positions of zeros, and by position what 64 bits leave open.

        The last are unbounded: the vector may not hold them. For unsigned distributions with few zeros.
        """
        values: NDArray[np.signedinteger[Any]] = np.empty(count, dtype=dtype)
        low, far = [np.empty(0, dtype=np.intp)], dict[int, int]()
        for start in range(0, count, _CHUNK):
            # survives: The places of ones are looked at too, and then are not those of zeros.
            places, apart = self._fill(values[start : start + _CHUNK], 0)
            low.append(places + start)
            far |= {start + place: value for place, value in apart.items()}
        places = np.concatenate(low)
        return values, places[values[places] == 0], far

    def _fill(
        self, values: NDArray[np.signedinteger[Any]], most: int
    ) -> tuple[NDArray[np.intp], dict[int, int]]:
        """Fill `values` with draws.

        Returns the positions where the guide has `most` or less, and by position what 64 bits leave open.
        """
        guide = self._get_guide()
        cells = np.frombuffer(random_bytes(2 * values.size), dtype=np.uint16)
        guided = guide.take(cells.astype(np.intp))
        values[:] = guided
        low = (guided <= most).nonzero()[0]
        # survives: Only a shortcut: those at or below the least are all undecided.
        undecided = low if most == _UNDECIDED else low[guided[low] == _UNDECIDED]
        far: dict[int, int] = {}
        for part, padded in padded_rounds(undecided, self._lanes(values.size)):
            refined, u, decided = self._refine(cells[padded])
            values[part] = refined[: part.size]
            for lane in (~decided[: part.size]).nonzero()[0]:
                place, size = int(part[lane]), self._search(int(u[lane]), 64)
                far[place] = -size if self._signed and cells[place] >> 15 else size
                # Half of what the type holds, at most: 2^62 in 64 bits.
                magnitude = min(abs(far[place]), np.iinfo(values.dtype).max + 1 >> 1)
                values[place] = magnitude if far[place] > 0 else -magnitude
        return low, far

    def values_at(self, u: NDArray[np.uint64]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Return the value at each U, given its first 64 bits, and whether they decide it; without signs."""
        guided = self._get_guide().take((u >> np.uint64(64 - _GUIDE_BITS)).view(np.int64))
        values, decided = guided.astype(np.int64), np.ones(u.size, dtype=np.bool_)
        for part, padded in padded_rounds((guided == _UNDECIDED).nonzero()[0], self._lanes(u.size)):
            part_values, sure = self._locate(u[padded])
            values[part], decided[part] = part_values[: part.size], sure[: part.size]
        return values, decided

    def _lanes(self, count: int) -> int:
        return lanes_needed(count * self._ambiguous)

    def _refine(
        self, cells: NDArray[np.uint16]
    ) -> tuple[NDArray[np.int64], NDArray[np.uint64], NDArray[np.bool_]]:
        """Draw more bits where 16 decide nothing: return values, 64 bits of each U, and which they decide."""
        prefix = _GUIDE_BITS - self._signed
        fresh = np.frombuffer(random_bytes(8 * cells.size), dtype=np.uint64)
        start = cells.astype(np.uint64) << np.uint64(64 - prefix)  # the sign bit falls off the top
        u = start | (fresh >> np.uint64(prefix))
        values, decided = self._locate(u)
        if self._signed:
            values = np.where(cells >> np.uint16(15), -values, values)
        return values, u, decided

    def _locate(self, u: NDArray[np.uint64]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        values = self._high_array.searchsorted(u, side="right").astype(np.int64, copy=False)
        return values, u < self._low_array[values]

    def _get_guide(self) -> NDArray[np.int16]:
        """Return the guide: the value for each of the 2^16 first bits (sign, then U), or `_UNDECIDED`."""
        if self._guide is None:
            shift = np.uint64(64 - _GUIDE_BITS + self._signed)
            starts = np.arange(1 << _GUIDE_BITS - self._signed, dtype=np.uint64) << shift
            values, _ = self._locate(starts)
            last, decided = self._locate(starts | (np.uint64(1) << shift) - np.uint64(1))
            sure = decided & (values == last)
            guide = np.where(sure, values, _UNDECIDED)
            if self._signed:
                guide = np.concatenate([guide, np.where(sure, -values, _UNDECIDED)])
            self._ambiguous = 1 - float(sure.mean())
            self._guide = guide.astype(np.int16)
        return self._guide


# Distributions, each as the steps of its distribution function (see `Table`).
#
# All start from enclosures of e^−x and Pr[|Z| < x] and multiply intervals rounded outward, with spare bits.

# survives: How many spare bits are carried is free: an enclosure from one more or less still encloses.
_SPARE_BITS = 32


def geometric(scale: Fraction, bits: int) -> Iterator[Enclosure]:
    """Yield the steps of Pr[X = k] ∝ e^(−k/scale), k ≥ 0: Cⱼ = 1 − qʲ with q = e^(−1/scale)."""
    work = bits + _SPARE_BITS
    one = 1 << work
    for low, high in _powers(exp_neg(1 / scale, work), work):  # pragma: no branch - they never end
        yield one - high >> _SPARE_BITS, -(low - one >> _SPARE_BITS)


def discrete_laplace_size(scale: Fraction, bits: int) -> Iterator[Enclosure]:
    """Yield the steps of |X| where Pr[X = k] ∝ e^(−|k|/scale): Cⱼ = 1 − 2qʲ/(1+q)."""
    work = bits + _SPARE_BITS
    one = 1 << work
    q = exp_neg(1 / scale, work)
    # survives: 2qʲ/(1 + q) rises in q: with the same q above and below its ends are its own.
    factor = divide((2 << work, 2 << work), (one + q[0], one + q[1]), work)
    for low, high in _powers(q, work):  # pragma: no branch - they never end
        # survives: An upper end that is rounded up by one unit more is still an upper end.
        tail = low * factor[0] >> work, (high * factor[1] >> work) + 1
        yield one - tail[1] >> _SPARE_BITS, -(tail[0] - one >> _SPARE_BITS)


def rounded_gaussian_size(sigma: Fraction, bits: int) -> Iterator[Enclosure]:
    """Yield the steps of |X| where X = σZ rounded to the nearest integer: Cⱼ = Pr[|σZ| < j − ½]."""
    for j in count(1):  # pragma: no branch - it never ends
        yield normal_central((2 * j - 1) / (2 * sigma), bits)


def half_gaussian(variance: Fraction, bits: int) -> Iterator[Enclosure]:
    """Yield the steps of Pr[X = k] ∝ e^(−k²/2·variance) for k ≥ 0."""
    return _normalised(_gaussian_weights(variance, bits + _SPARE_BITS), bits)


def gaussian_stairs(variance: Fraction, bits: int) -> Iterator[Enclosure]:
    """Yield the steps of the k with w_{k+1} ≤ y < w_k, y uniform: Cⱼ = 1 − w_j, w_j = e^(−j²/2·variance)."""
    one = 1 << bits + _SPARE_BITS
    weights, _ = _gaussian_weights(variance, bits + _SPARE_BITS)
    for low, high in weights[1:]:
        yield one - high >> _SPARE_BITS, -(low - one >> _SPARE_BITS)
    while True:
        # survives: A lower end that is lower is still a lower end.
        yield (1 << bits) - 1, 1 << bits


def discrete_gaussian_size(variance: Fraction, bits: int) -> Iterator[Enclosure]:
    """Yield the steps of |X| where Pr[X = k] ∝ e^(−k²/2·variance) for all k: sizes above 0 count twice."""
    weights, rest = _gaussian_weights(variance, bits + _SPARE_BITS)
    twice = [(low, high) if k == 0 else (2 * low, 2 * high) for k, (low, high) in enumerate(weights)]
    return _normalised((twice, 2 * rest), bits)


def _powers(q: Enclosure, work: int) -> Iterator[Enclosure]:
    """Yield enclosures of q, q², q³, …"""
    low, high = q
    while True:
        yield low, high
        low = low * q[0] >> work
        # survives: An upper end that is rounded up by one unit more is still an upper end.
        high = (high * q[1] >> work) + 1


def _gaussian_weights(variance: Fraction, work: int) -> tuple[list[Enclosure], int]:
    """Return e^(−k²/2·variance), k = 0, 1, …, down to one unit, and an upper bound of the others' sum."""
    one = 1 << work
    r = exp_neg(1 / (2 * variance), work)
    # survives: An upper end that is rounded up by one unit more is still an upper end.
    square = r[0] * r[0] >> work, (r[1] * r[1] >> work) + 1
    low, high = one, one
    step = r  # r^(2k+1), the ratio of the next weight to this one
    weights = []
    while high > 1:
        weights.append((low, high))
        low, high = low * step[0] >> work, (high * step[1] >> work) + 1
        # survives: An upper end that is rounded up by one unit more is still an upper end.
        step = step[0] * square[0] >> work, (step[1] * square[1] >> work) + 1
    # The weights left out start below `high` and shrink at least by `step` each.
    return weights, -(-(high << work) // (one - step[1]))


def _normalised(weights_and_rest: tuple[list[Enclosure], int], bits: int) -> Iterator[Enclosure]:
    """Yield partial sums over the total; beyond the weights all that is known is Cⱼ < 1."""
    weights, rest = weights_and_rest
    total = sum(low for low, _ in weights), sum(high for _, high in weights) + rest
    low = high = 0
    for weight in weights:
        low, high = low + weight[0], high + weight[1]
        # Cⱼ < 1 always: a bound above 1 is the rounding's.
        yield (low << bits) // total[1], min(-(-(high << bits) // total[0]), 1 << bits)
    while True:
        yield (low << bits) // total[1], 1 << bits
