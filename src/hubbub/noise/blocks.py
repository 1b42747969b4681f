"""Large scales: blocks of 2^m integers, and stairs that cover the curve of weights.

Let w_h be the weight of h·2^m. In block h everything up to the height w_{h+1} is under the curve, and is
drawn without a coin. What is between the stairs w_{h+1} and w_h may be above it. All that adds up to one
block as high as w₀, the rest to blocks as high as w₁, w₂, …: so one draw with chances ∝ w_h says "between
the stairs" by a 0, and "block h − 1" by an h. Only between the stairs, 1 to 3 in 100, tries are rejected;
which ones is independent of what is accepted in the end.

Proof: docs/proofs/samplers.md
"""

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, partial
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from hubbub.noise import laws
from hubbub.noise.entropy import random_bits, random_bytes
from hubbub.noise.lazy import accept, coin
from hubbub.noise.real import exp_neg
from hubbub.noise.table import Table, below, enough, rounds, saturated

__all__ = ["Blocks"]

_Block = TypeVar("_Block", int, NDArray[np.int64])

_MARGIN = 2.0**-40
"""Double precision is good to 2^-44 here: a height this close to the curve is compared by integers."""
_CHUNK = 1 << 18
"""Bytes of words at a time: their arrays are not handed back to the system each time."""


@dataclass(frozen=True)
class Blocks:
    """A sampler for one law of large scale, of integers or (if rounded) of reals that are then rounded.

    The weight of x is e^(−|x|/b) for the geometric law and e^(−x²/2σ²) for the bell. With a sign,
    h·2^m + l stands for itself and for −1 − h·2^m − l: so zero has one sign. Rounded laws are even.

    Guarantee: `draw` and `one` follow the law itself, and their work does not depend on what they draw,
        but with probability below 2^-38 (in a vector, for each lane: a height next to the curve).
    Assumes: numpy's exp is off by less than 2^-45.
    Proof: docs/proofs/samplers.md
    """

    table: Table
    """Draws h with chances ∝ w_h."""
    shift: int
    """m"""
    scale: Fraction
    """b for the geometric law, σ² for the bell."""
    is_bell: bool = False
    is_rounded: bool = False
    is_signed: bool = True
    """Whether `draw` gives negative numbers too."""

    @classmethod
    def geometric(cls, scale: Fraction, *, is_signed: bool) -> "Blocks":
        """Pr[k] ∝ e^(−|k|/scale) for all k, or for k ≥ 0."""
        shift = math.floor(scale).bit_length() - 7
        return cls(Table(partial(laws.geometric, scale / 2**shift)), shift, scale, is_signed=is_signed)

    @classmethod
    def bell(cls, variance: Fraction, *, is_rounded: bool) -> "Blocks":
        """Pr[k] ∝ e^(−k²/2·variance) for all k; or a normal variable, rounded."""
        shift = math.isqrt(math.floor(variance)).bit_length() - 6
        table = Table(partial(laws.bell, variance / 4**shift))
        return cls(table, shift, variance, is_bell=True, is_rounded=is_rounded)

    def draw(self, count: int) -> NDArray[np.int64]:
        """`count` values; those beyond ±2^62 are given as ±2^62."""
        # Half of those between the stairs are rejected; as many to spare as there are is twice enough.
        tries, rejected = self._tries(count + math.ceil(count * self.table.chance_of_zero) + 64)
        # Which tries are rejected tells nothing of those accepted: spare ones take their places.
        is_fit = np.ones(tries.size, dtype=np.bool_)
        is_fit[rejected] = False
        spare = tries[count:][is_fit[count:]]
        holes = rejected[: rejected.searchsorted(count)]
        if spare.size < holes.size:
            spare = np.concatenate([spare, self.draw(holes.size - spare.size)])
        values = tries[:count]
        values[holes] = spare[: holes.size]
        return values

    def one(self) -> tuple[int, int]:
        """|X| and a sign bit; a zero with a minus sign is tried again (integer laws only)."""
        top, bottom = self.scale.numerator, self.scale.denominator
        while True:
            drawn = random_bits(192)
            block = self.table.pick(drawn >> 128) << self.shift
            low = (drawn >> 72) % (1 << self.shift)
            chance, sign = drawn >> 8 & (1 << 64) - 1, drawn & 1
            # The weight of block + low is that of the block times e^−x: 2x = bend/scale.
            bend = low * (2 * block + low if self.is_bell else 2)
            accepted = coin((bend * bottom << 88) // (2 * top), 1, chance)
            if accepted is None:
                accepted = below(chance, 64, partial(exp_neg, Fraction(bend) / (2 * self.scale)))
            if accepted and block + low >= sign:
                return block + low, sign

    def _tries(self, count: int) -> tuple[NDArray[np.int64], NDArray[np.intp]]:
        """`count` tries, and the places of those that are rejected."""
        values, waiting, far = self.table.draw_apart(count)
        at_once = 8 * _CHUNK // self._width
        for start in range(0, count, at_once):
            part = values[start : start + at_once]
            part -= 1
            self._place(part, self._words(part.size, self._width), self._width)
        for place, high in far.items():
            if high:
                (word,) = self._words(1, 64)
                values[place] = saturated(self._place(high - 1, int(word), 64))
        rejected = []
        lanes = enough(count * self.table.chance_of_zero)
        for places, _ in rounds(waiting, lanes):
            between, is_under = self._between(lanes)
            values[places] = between[: places.size]
            rejected.append(places[~is_under[: places.size]])
        return values, np.concatenate(rejected)

    @cached_property
    def _width(self) -> int:
        """Bits of a word that holds a sign and all digits of l, of which a rounded law has one more."""
        return next(width for width in (16, 32, 64) if width > self.shift + self.is_rounded)

    def _words(self, count: int, width: int) -> NDArray[np.signedinteger[Any]]:
        """Random integers of 16, 32 or 64 bits, the first of them the sign."""
        words = np.frombuffer(random_bytes(count * width // 8), dtype=f"i{width // 8}")
        return words if self.is_signed else words & np.iinfo(words.dtype).max

    def _place(self, block: _Block, word: Any, width: int) -> _Block:
        """The value in block h (an array is used up) that a random word stands for.

        x = h·2^m + l or, if the word is negative, −1 − x; rounded laws: ±x rounded, from one bit more.
        """
        digits = self.shift + self.is_rounded
        block <<= digits
        # A negative word has the complements of its digits, and one ^ makes the complement of it all.
        block ^= word >> width - 1 - digits
        if self.is_rounded:
            block += 1
            block >>= 1
        return block

    def _between(self, count: int) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """`count` places between the stairs, and whether each is under the curve.

        Their heights y are uniform below w₀ = 1; the block is that with w_{h+1} ≤ y < w_h.
        """
        u = np.frombuffer(random_bytes(8 * count), dtype=np.uint64)
        words = self._words(count, 64)
        block, is_decided = self._stairs.find(u)  # the table rises with U = 1 − y
        values = self._place(block.copy(), words, 64)
        if self.is_rounded:
            size = block + (words ^ words >> 63) * 2.0**-63
        else:
            size = np.abs(values) * 2.0**-self.shift
        lead = np.exp((size * size if self.is_bell else size) * self._fall)
        lead -= (~u >> np.uint64(11)).view(np.int64) * 2.0**-53
        is_under = lead > 0
        for lane in (~is_decided | (np.abs(lead) < _MARGIN)).nonzero()[0]:
            values[lane], is_under[lane] = self._decide(int(u[lane]), int(words[lane]))
        return values, is_under

    def _decide(self, u: int, word: int) -> tuple[int, bool]:
        """One place between the stairs, by exact integers."""
        block, u, bits = self._stairs.settle(u, 64)
        height = (1 << bits) - 1 - u
        value = self._place(block, word, 64)
        if self.is_rounded:
            # 63 bits of the word are the first digits of l/2^m; more are drawn as needed.
            curve = lambda part: self._exponent(block + part)  # noqa: E731
            return saturated(value), accept(curve, word ^ word >> 63, 63, height, bits)[0]
        weight = partial(exp_neg, self._exponent(Fraction(abs(value), 1 << self.shift)))
        return saturated(value), below(height, bits, weight)

    @cached_property
    def _stairs(self) -> Table:
        """Draws h with chances w_h − w_{h+1}: the stairs that a height is between."""
        return Table(partial(laws.bell_stairs, self.scale / 4**self.shift)) if self.is_bell else self.table

    @cached_property
    def _fall(self) -> float:
        """The logarithm of w₁."""
        return -float(self._exponent(Fraction(1)))

    def _exponent(self, size: Fraction) -> Fraction:
        """The x of the weight e^−x, for a size in blocks."""
        size *= 1 << self.shift
        return size * size / (2 * self.scale) if self.is_bell else size / self.scale
