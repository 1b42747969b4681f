"""Samplers for large scales: rejection from a staircase over blocks of 2^m integers.

Let w_h be the weight of h·2^m. In block h all points up to the height w_{h+1} are under the curve of weights
and are accepted without a coin flip; points between the stairs w_{h+1} and w_h may be above it. Over all
blocks, the areas between the stairs add up to one block of height w₀, and the rest to blocks of heights w₁,
w₂, …. So one draw with probabilities ∝ w_h decides both: 0 means "between the stairs", h "block h − 1". Only
proposals between the stairs, 1 to 3 % of all, can be rejected; which ones are is independent of the values
that are accepted.

Proof: docs/proofs/samplers.md
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache, partial
from math import factorial
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from hubbub.noise import inversion
from hubbub.noise.enclosures import exp_neg
from hubbub.noise.entropy import random_bits, random_bytes
from hubbub.noise.inversion import (
    Table,
    geometric,
    half_gaussian,
    is_below,
    lanes_needed,
    padded_rounds,
    saturate,
)

__all__ = ["Blocks", "accept_exactly", "flip_by_series", "floor_exponential", "rounded_normal"]

# One draw at a time, of any scale, from one standard law with infinitely many digits.
#
# A geometric variable is ⌊b·E⌋ for E exponential, a rounded Gaussian is round(σZ) for Z normal. So two
# tables serve every scale: E and |Z| are a narrow cell plus a uniform offset, accepted with the ratio of the
# densities. Digits of the offset are drawn until the integer is decided: always 120, more with
# probability below 2^-50.
#
# Proved in docs/proofs/samplers.md

# Cells per unit: few, for a small table; enough that most offsets are accepted.
_EXPONENTIAL_CELLS = 16
_NORMAL_CELLS = 64

_FIXED = 88
_UNITY = 1 << _FIXED
_QUARTER = 1 << _FIXED - 2
_SERIES_ERROR = 1 << 19
"""Fourteen terms give e^−y within 2^-69 for y < 1/4."""
_DIGITS = (1 << 120) - 1
_CHANCE = (1 << 64) - 1
# survives: One term more is as good.
_SERIES = tuple(_UNITY // factorial(n) for n in range(14, -1, -1))


def floor_exponential(scale: Fraction) -> tuple[int, int]:
    """Draw ⌊scale·E⌋ for a standard exponential E, and an independent sign bit."""
    table = _exponential()
    while True:
        # survives: Bits are drawn in bytes: of one more the last is cut off again.
        word = random_bits(256)
        cell = table.value_at(word >> 192)
        digits, bits = word >> 72 & _DIGITS, 120
        chance = word >> 8 & _CHANCE
        # survives: A wider slack leaves more to the integers, which decide it rightly.
        accepted = flip_by_series(digits >> 60 << 24, 1 << 24, chance)  # 2^88·ℓ/16, where ℓ is known to 2^-60
        if accepted is None:
            accepted, digits, bits = accept_exactly(_fall, digits, bits, chance, 64)
        if accepted:
            return _whole_part(scale, _EXPONENTIAL_CELLS, cell, digits, bits, half=0), word & 1


def rounded_normal(sigma: Fraction) -> tuple[int, int]:
    """Draw |σZ| for a standard normal Z, rounded to the nearest integer, and an independent sign bit."""
    table = _normal()
    while True:
        # survives: Bits are drawn in bytes: of one more the last is cut off again.
        word = random_bits(256)
        cell = table.value_at(word >> 192)
        digits, bits = word >> 72 & _DIGITS, 120
        chance = word >> 8 & _CHANCE
        top = digits >> 60
        # 2^88·(hℓ + ℓ²/2)/64², where ℓ is known to 2^-60
        # survives: _SERIES_ERROR is 8·2^16 units, the series may drop 3.4·2^16: the 3·2^16 that are
        # lacking are covered. A wider slack leaves more to the integers, which decide it rightly.
        accepted = flip_by_series(top * ((cell << 61) + top) >> 45, cell + 2 << 16, chance)
        if accepted is None:
            accepted, digits, bits = accept_exactly(partial(_bend, cell), digits, bits, chance, 64)
        if accepted:
            return _whole_part(sigma, _NORMAL_CELLS, cell, digits, bits, half=1), word & 1


def flip_by_series(x: int, slack: int, chance: int) -> bool | None:
    """Return whether U < e^−y for all y with x ≤ 2^88·y ≤ x + slack; None if it is undecided.

    It always sums fourteen terms of the series. They do not suffice beyond y = 1/4: undecided.

    Args:
        x: the lower end of 2^88·y.
        slack: the width of the interval.
        chance: the first 64 bits of U.
    """
    # survives: It is multiplied by less than 1/4 fourteen times more, and _SERIES_ERROR covers a unit.
    total = 0
    for coefficient in _SERIES:
        total = coefficient - (x * total >> _FIXED)
    if x >= _QUARTER:
        return None
    if chance + 1 << _FIXED - 64 <= total - slack - _SERIES_ERROR:
        return True
    if chance << _FIXED - 64 >= total + _SERIES_ERROR:
        return False
    return None


def accept_exactly(
    exponent: Callable[[Fraction], Fraction], digits: int, bits: int, chance: int, chance_bits: int
) -> tuple[bool, int, int]:
    """Return whether U < e^−exponent(ℓ), in exact integers, and the digits of ℓ that were drawn.

    The answer holds whatever digits follow, so those not drawn yet are still uniform.

    Args:
        exponent: an increasing function of ℓ.
        digits: the first bits of ℓ.
        bits: how many they are.
        chance: the first bits of U.
        chance_bits: how many they are.
    """
    while True:
        least = exponent(Fraction(digits, 1 << bits))
        # survives: From a wider interval more digits are drawn, and the answer still holds for all
        # that follow.
        most = exponent(Fraction(digits + 1, 1 << bits))
        if chance < exp_neg(most, chance_bits)[0]:
            return True, digits, bits
        if chance >= exp_neg(least, chance_bits)[1]:
            return False, digits, bits
        # survives: Bits are drawn in bytes: of one more the last is cut off again.
        digits, bits = digits << 64 | random_bits(64), bits + 64
        # survives: Bits are drawn in bytes: of one more the last is cut off again.
        chance, chance_bits = chance << 64 | random_bits(64), chance_bits + 64


def _fall(low: Fraction) -> Fraction:
    """Return −ln of the exponential density at `low` in a cell, relative to the start of the cell."""
    return low / _EXPONENTIAL_CELLS


def _bend(cell: int, low: Fraction) -> Fraction:
    """Return −ln of the normal density at `low` in a cell, relative to the start of the cell."""
    return low * (2 * cell + low) / (2 * _NORMAL_CELLS**2)


def _whole_part(scale: Fraction, cells: int, cell: int, digits: int, bits: int, *, half: int) -> int:
    """Return ⌊scale·(cell + ℓ)/cells + half/2⌋; draws more digits of ℓ while they matter."""
    top, unit = scale.numerator, scale.denominator * cells
    while True:
        whole = 2 * unit << bits
        # As the quotient has 2^62 on top, dividing takes as long for a small one as for a large one.
        start = 2 * top * ((cell << bits) + digits) + (half * unit << bits) + (whole << 62)
        least = start // whole
        # survives: Start and whole are even, so an odd number is never a multiple of the whole.
        if least == (start + 2 * top - 1) // whole:
            return least - (1 << 62)
        # survives: Bits are drawn in bytes: of one more the last is cut off again.
        digits, bits = digits << 64 | random_bits(64), bits + 64


@lru_cache(maxsize=1)
def _exponential() -> Table:
    return Table(partial(geometric, Fraction(_EXPONENTIAL_CELLS)))


@lru_cache(maxsize=1)
def _normal() -> Table:
    return Table(partial(half_gaussian, Fraction(_NORMAL_CELLS**2)))


_Block = TypeVar("_Block", int, NDArray[Any])

_MARGIN = 2.0**-40
"""Doubles are accurate to 2^-44 here: a height this close to the curve is compared in integers."""
_CHUNK = 1 << 18
"""Bytes of random words per batch: small arrays are reused by the allocator."""


@dataclass(frozen=True)
class Blocks:
    """A sampler for one distribution of large scale: discrete, or (if rounded) continuous and then rounded.

    The weight of x is e^(−|x|/b) for the geometric distribution and e^(−x²/2σ²) for the Gaussian. With a
    sign, h·2^m + l stands for itself and for −1 − h·2^m − l: zero has one sign. Rounded ones are symmetric.

    Guarantee: `draw` and `draw_one` have exactly this distribution, and their work does not depend on the
        values drawn, except with probability below 2^-38 (per coordinate: a height next to the curve).
    Assumes: numpy's exp is accurate to 2^-45.
    Proof: docs/proofs/samplers.md
    """

    table: Table
    """Draws h with probabilities ∝ w_h."""
    shift: int
    """The exponent m of the block size."""
    scale: Fraction
    """b of the geometric distribution, σ² of the Gaussian."""
    is_gaussian: bool = False
    is_rounded: bool = False
    is_signed: bool = True
    """True if `draw` returns negative numbers too."""

    @classmethod
    def geometric(cls, scale: Fraction, *, is_signed: bool) -> "Blocks":
        """Make a sampler with Pr[k] ∝ e^(−|k|/scale), for all k if it is signed, else for k ≥ 0."""
        shift = math.floor(scale).bit_length() - 7
        return cls(Table(partial(inversion.geometric, scale / 2**shift)), shift, scale, is_signed=is_signed)

    @classmethod
    def gaussian(cls, variance: Fraction, *, is_rounded: bool) -> "Blocks":
        """Make a sampler with Pr[k] ∝ e^(−k²/2·variance) for all k; or of a rounded normal variable."""
        shift = math.isqrt(math.floor(variance)).bit_length() - 6
        table = Table(partial(inversion.half_gaussian, variance / 4**shift))
        return cls(table, shift, variance, is_gaussian=True, is_rounded=is_rounded)

    def draw(self, count: int) -> NDArray[np.int64]:
        """Draw `count` values; those beyond ±2^62 are returned as ±2^62."""
        # Half of those between the stairs are rejected: as many spare proposals are twice enough.
        tries, rejected = self._propose(count + math.ceil(count * self.table.chance_of_zero) + 64)
        # Rejections are independent of accepted values: spare proposals take the places of rejected ones.
        is_fit = np.ones(tries.size, dtype=np.bool_)
        is_fit[rejected] = False
        spare = tries[count:][is_fit[count:]]
        holes = rejected[: rejected.searchsorted(count)]
        # survives: Where none is missing, none more are drawn.
        if spare.size < holes.size:
            spare = np.concatenate([spare, self.draw(holes.size - spare.size)])
        values = tries[:count]
        values[holes] = spare[: holes.size]
        return values

    def draw_one(self) -> tuple[int, int]:
        """Draw |X| and a sign bit; a zero with a minus sign is rejected (discrete distributions only)."""
        top, bottom = self.scale.numerator, self.scale.denominator
        while True:
            # survives: Bits are drawn in bytes: of one more the last is cut off again.
            word = random_bits(192)
            block = self.table.value_at(word >> 128) << self.shift
            low = (word >> 72) % (1 << self.shift)
            chance, sign = word >> 8 & (1 << 64) - 1, word & 1
            # The weight of block + low is that of the block times e^−x: 2x = bend/scale.
            bend = low * (2 * block + low if self.is_gaussian else 2)
            # survives: A wider slack leaves more to the integers, and the unit that a narrower
            # one lacks is covered by the coin's _SERIES_ERROR.
            accepted = flip_by_series((bend * bottom << 88) // (2 * top), 1, chance)
            if accepted is None:
                accepted = is_below(chance, 64, partial(exp_neg, Fraction(bend) / (2 * self.scale)))
            if accepted and block + low >= sign:
                return block + low, sign

    def _propose(self, count: int) -> tuple[NDArray[np.int64], NDArray[np.intp]]:
        """Draw `count` proposals; return them with the positions of those that are rejected."""
        blocks, waiting, far = self.table.draw_with_zeros(count, self._integer)
        values = np.empty(count, dtype=np.int64)
        at_once = 8 * _CHUNK // self._width
        for start in range(0, count, at_once):
            part = blocks[start : start + at_once]
            part -= 1
            values[start : start + at_once] = self._place(
                part, self._words(part.size, self._width), self._width
            )
        for place, high in far.items():
            if high:
                # survives: Bits are drawn in bytes: of one more the last is cut off again.
                (word,) = self._words(1, 64)
                values[place] = saturate(self._place(high - 1, int(word), 64))
        rejected = []
        lanes = lanes_needed(count * self.table.chance_of_zero)
        for places, _ in padded_rounds(waiting, lanes):
            between, is_under = self._draw_between_stairs(lanes)
            values[places] = between[: places.size]
            rejected.append(places[~is_under[: places.size]])
        return values, np.concatenate(rejected)

    @cached_property
    def _width(self) -> int:
        """Bits of a word that holds a sign and all digits of l; a rounded distribution has one digit more."""
        return next(width for width in (16, 32, 64) if width > self.shift + self.is_rounded)

    @cached_property
    def _integer(self) -> type[np.signedinteger[Any]]:
        """The type of the values: 32 bits where they suffice, which is twice as fast."""
        # survives: Only a shortcut: 64 bits give the same integers.
        return np.int32 if self.table.largest << self.shift + self.is_rounded < 1 << 31 else np.int64

    def _words(self, count: int, width: int) -> NDArray[np.signedinteger[Any]]:
        """Draw integers of 16, 32 or 64 random bits, the first of which is the sign."""
        words = np.frombuffer(random_bytes(count * width // 8), dtype=f"i{width // 8}")
        return words if self.is_signed else words & np.iinfo(words.dtype).max

    def _place(self, block: _Block, word: Any, width: int) -> _Block:
        """Return the value in block h that a random word selects; an array `block` is overwritten.

        It is x = h·2^m + l or, if the word is negative, −1 − x; if rounded, ±x with one bit more, rounded.
        """
        digits = self.shift + self.is_rounded
        block <<= digits
        # A negative word has the complements of its digits, and one ^ makes the complement of it all.
        block ^= word >> width - 1 - digits
        if self.is_rounded:
            block += 1
            block >>= 1
        return block

    def _draw_between_stairs(self, count: int) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Draw `count` points between the stairs; return their values, and which are under the curve.

        Their heights y are uniform below w₀ = 1; the block is the one with w_{h+1} ≤ y < w_h.
        """
        u = np.frombuffer(random_bytes(8 * count), dtype=np.uint64)
        words = self._words(count, 64)
        block, is_decided = self._stairs.values_at(u)  # the table rises with U = 1 − y
        values = self._place(block.copy(), words, 64)
        if self.is_rounded:
            # survives: The sign is all that is left, or with one bit more the last of 63
            # digits, far beyond the margin.
            size = block + (words ^ words >> 63) * 2.0**-63
        else:
            size = np.abs(values) * 2.0**-self.shift
        lead = np.exp((size * size if self.is_gaussian else size) * self._fall)
        lead -= (~u >> np.uint64(11)).view(np.int64) * 2.0**-53
        is_under = lead > 0
        for lane in (~is_decided | (np.abs(lead) < _MARGIN)).nonzero()[0]:
            values[lane], is_under[lane] = self._decide_by_integers(int(u[lane]), int(words[lane]))
        return values, is_under

    def _decide_by_integers(self, u: int, word: int) -> tuple[int, bool]:
        """Return one point between the stairs and whether it is under the curve, in exact integers."""
        block, u, bits = self._stairs.resolve(u, 64)
        height = (1 << bits) - 1 - u
        value = self._place(block, word, 64)
        if self.is_rounded:
            # 63 bits of the word are the first digits of l/2^m; more are drawn as needed.
            curve = lambda part: self._exponent(block + part)  # noqa: E731
            # survives: A word has 63 digits: beyond them only its sign is left.
            return saturate(value), accept_exactly(curve, word ^ word >> 63, 63, height, bits)[0]
        weight = partial(exp_neg, self._exponent(Fraction(abs(value), 1 << self.shift)))
        return saturate(value), is_below(height, bits, weight)

    @cached_property
    def _stairs(self) -> Table:
        """The table that draws h with probability w_h − w_{h+1}: the stairs that a height is between."""
        return (
            Table(partial(inversion.gaussian_stairs, self.scale / 4**self.shift))
            if self.is_gaussian
            else self.table
        )

    @cached_property
    def _fall(self) -> float:
        """The logarithm of w₁."""
        return -float(self._exponent(Fraction(1)))

    def _exponent(self, size: Fraction) -> Fraction:
        """Return the x of the weight e^−x, for a size in blocks."""
        size *= 1 << self.shift
        return size * size / (2 * self.scale) if self.is_gaussian else size / self.scale
