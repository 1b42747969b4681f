"""Inversion of one infinite uniform number, read as far as it is needed.

A law on 0, 1, 2, … is a function `steps(bits)` that yields enclosures of C₁, C₂, …, where
Cⱼ = Pr[X < j]. Every path below computes the same function of one uniform U with infinitely many
bits: the j with Cⱼ ≤ U < Cⱼ₊₁. Only the number of bits read differs, so the law is exact.

Proof: docs/proofs/samplers.md
"""

from bisect import bisect_right
from collections.abc import Callable, Iterator
from math import ceil, sqrt

import numpy as np
from numpy.typing import NDArray

from hubbub.noise.entropy import random_bits, random_bytes
from hubbub.noise.real import Enclosure, Real

__all__ = ["Steps", "Table", "below"]

Steps = Callable[[int], Iterator[Enclosure]]

_ONE = 1 << 64
_GUIDE_BITS = 16
_ASK_MORE = np.iinfo(np.int16).min
"""In the guide: this cell holds a threshold, so 16 bits do not decide."""
_CHUNK = 1 << 16
"""Draws at a time: their arrays stay in the cache."""


def below(u: int, bits: int, x: Real) -> bool:
    """Whether U < x, given the first `bits` bits of U; draws more as long as they do not decide."""
    while True:
        low, high = x(bits)
        if u < low:
            return True
        if u >= high:
            return False
        u, bits = u << 64 | random_bits(64), bits + 64


class Table:
    """An exact sampler for one law.

    Guarantee: `pick` and `draw` follow the law itself. A draw reads a fixed number of bits and does
        a fixed amount of work, but with probability below 2^-50 (a tie in 64 bits).
    Assumes: `steps` encloses the law's distribution function.
    Proof: docs/proofs/samplers.md
    """

    def __init__(self, steps: Steps, *, signed: bool = False) -> None:
        self._steps = steps
        self._signed = signed
        self._lows: list[int] = []
        self._highs: list[int] = []
        for low, high in steps(64):
            self._lows.append(low)
            if high >= _ONE:
                break
            self._highs.append(high)
        self._low_array = np.array([min(low, _ONE - 1) for low in self._lows], dtype=np.uint64)
        self._high_array = np.array(self._highs, dtype=np.uint64)
        self._guide: NDArray[np.int16] | None = None
        self._ambiguous = 0.0

    def pick(self, u: int) -> int:
        """The value at U, given its first 64 bits."""
        j = bisect_right(self._highs, u)
        return j if u < self._lows[j] else self._search(u, 64)

    def one(self) -> tuple[int, int]:
        """A value and a sign bit."""
        drawn = random_bits(72)
        return self.pick(drawn >> 8), drawn & 1

    def _search(self, u: int, bits: int) -> int:
        """The value at U where 64 bits are a tie or far out in the tail; at most once in 2^50 draws."""
        while True:
            u, bits = u << 64 | random_bits(64), bits + 64
            for j, (low, high) in enumerate(self._steps(bits)):
                if u < low:
                    return j
                if u < high:
                    break

    def draw(self, count: int, most: int) -> NDArray[np.int64]:
        """`count` values; those above `most` are given as `most`."""
        values = np.empty(count, dtype=np.int64)
        for start in range(0, count, _CHUNK):
            self._fill(values[start : start + _CHUNK], most)
        return values

    def _fill(self, values: NDArray[np.int64], most: int) -> None:
        guide = self._ready()
        cells = np.frombuffer(random_bytes(2 * values.size), dtype=np.uint16)
        guided = guide.take(cells)
        values[:] = guided
        # Which draws need more bits says something of their values, so the second level
        # always works on as many lanes, unused ones included.
        waiting = np.flatnonzero(guided == _ASK_MORE)
        lanes = self._lanes(values.size)
        for start in range(0, max(1, waiting.size), lanes):
            part = waiting[start : start + lanes]
            padded = np.zeros(lanes, dtype=np.intp)
            padded[: part.size] = part
            values[part] = self._refine(cells[padded], part.size, most)[: part.size]

    def _lanes(self, count: int) -> int:
        """So many that more are needed once in 10^15 vectors."""
        mean = count * self._ambiguous
        return ceil(mean + 8 * sqrt(mean) + 8)

    def _refine(self, cells: NDArray[np.uint16], used: int, most: int) -> NDArray[np.int64]:
        """The values of draws whose cell did not decide, from 64 bits of U."""
        prefix = _GUIDE_BITS - self._signed
        fresh = np.frombuffer(random_bytes(8 * cells.size), dtype=np.uint64)
        start = cells.astype(np.uint64) << np.uint64(64 - prefix)  # the sign bit falls off the top
        u = start | (fresh >> np.uint64(prefix))
        values, decided = self._locate(u)
        for lane in np.flatnonzero(~decided[:used]):
            values[lane] = min(self._search(int(u[lane]), 64), most)
        if self._signed:
            values = np.where(cells >> np.uint16(15), -values, values)
        return values

    def _locate(self, u: NDArray[np.uint64]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        values = np.searchsorted(self._high_array, u, side="right").astype(np.int64)
        return values, u < self._low_array[values]

    def _ready(self) -> NDArray[np.int16]:
        """The guide: what each value of the first 16 bits (sign, then U) decides."""
        if self._guide is None:
            shift = np.uint64(64 - _GUIDE_BITS + self._signed)
            starts = np.arange(1 << _GUIDE_BITS - self._signed, dtype=np.uint64) << shift
            values, _ = self._locate(starts)
            last, decided = self._locate(starts | (np.uint64(1) << shift) - np.uint64(1))
            sure = decided & (values == last)
            guide = np.where(sure, values, _ASK_MORE)
            if self._signed:
                guide = np.concatenate([guide, np.where(sure, -values, _ASK_MORE)])
            self._ambiguous = 1 - float(sure.mean())
            self._guide = guide.astype(np.int16)
        return self._guide
