"""Large scales: |X| = H·2^m + L, H from a table, L uniform and accepted by its weight.

H has scale 32 to 64 whatever X's is, so that a small table serves and fewer than 3 % of the tries
are rejected. Which tries are rejected is independent of what is accepted in the end.

Proof: docs/proofs/samplers.md
"""

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import partial

import numpy as np
from numpy.typing import NDArray

from hubbub.noise import laws
from hubbub.noise.entropy import random_bits, random_bytes
from hubbub.noise.lazy import accept, coin
from hubbub.noise.real import exp_neg
from hubbub.noise.table import Table, below, saturated

__all__ = ["Blocks"]

# Single precision is good to 2^-20 here: a coin that falls within 2^-18 is decided by integers, and so
# is one whose block is far out in the tail.
_MARGIN = np.float32(2.0**-18)
_CHUNK = 3 << 13
"""Tries at a time: their arrays stay in the cache, and are not handed back to the system each time."""


@dataclass(frozen=True)
class Blocks:
    """A sampler of |X| for one law of large scale.

    The weight of h·2^m + l is that of block h times e^−x, where x = l/b for the geometric law and
    x = l·(2h·2^m + l)/2σ² for the bell. A rounded law takes l as a real number and rounds h·2^m + l.
    """

    table: Table
    shift: int
    scale: Fraction
    """b for the geometric law, σ² for the bell."""
    is_bell: bool = False
    is_rounded: bool = False

    @classmethod
    def geometric(cls, scale: Fraction) -> "Blocks":
        """Pr[k] ∝ e^(−k/scale) for k ≥ 0."""
        shift = math.floor(scale).bit_length() - 6
        return cls(Table(partial(laws.geometric, scale / 2**shift)), shift, scale)

    @classmethod
    def bell(cls, variance: Fraction, *, is_rounded: bool) -> "Blocks":
        """Pr[k] ∝ e^(−k²/2·variance) for k ≥ 0; or the size of a normal variable, rounded."""
        shift = math.isqrt(math.floor(variance)).bit_length() - 6
        table = Table(partial(laws.bell, variance / 4**shift))
        return cls(table, shift, variance, is_bell=True, is_rounded=is_rounded)

    def draw(self, count: int, *, signed: bool) -> NDArray[np.int64]:
        """`count` draws of |X|, or of X with an even sign."""
        values = np.empty(count, dtype=np.int64)
        done = 0
        while done < count:
            # How many tries are rejected tells nothing of those accepted.
            accepted = self._tries(min(_CHUNK, count - done + (count - done) // 32 + 64), signed=signed)
            part = accepted[: count - done]
            values[done : done + part.size] = part
            done += part.size
        return values

    def one(self) -> tuple[int, int]:
        """|X| and a sign bit; a zero with a minus sign is tried again (integer laws only)."""
        top, bottom = self.scale.numerator, self.scale.denominator
        while True:
            drawn = random_bits(192)
            block = self.table.pick(drawn >> 128) << self.shift
            low = (drawn >> 72) % (1 << self.shift)
            chance, sign = drawn >> 8 & (1 << 64) - 1, drawn & 1
            bend = low * (2 * block + low if self.is_bell else 2)
            accepted = coin((bend * bottom << 88) // (2 * top), 1, chance)
            if accepted is None:
                accepted = below(chance, 64, partial(exp_neg, self._exponent(block, Fraction(low))))
            if accepted and (sign == 0 or block + low):
                return block + low, sign

    def _exponent(self, block: int, low: Fraction) -> Fraction:
        return low * (2 * block + low) / (2 * self.scale) if self.is_bell else low / self.scale

    def _tries(self, count: int, *, signed: bool) -> NDArray[np.int64]:
        block, far = self.table.draw_apart(count)
        raw = np.frombuffer(random_bytes(8 * count), dtype=np.uint64)
        # Signed, because processors turn signed integers into floats faster: U = ½ + chance/2^32.
        chance = np.frombuffer(random_bytes(4 * count), dtype=np.int32)
        # L is the top m bits; a rounded law reads one more, and all of them as digits of a real number.
        size = (raw >> np.uint64(64 - self.shift - self.is_rounded)).view(np.int64)
        if self.is_rounded:
            part = (raw >> np.uint64(40)).view(np.int64).astype(np.float32)
            part *= np.float32(2.0**-24)
            size += 1
            size >>= 1
        else:
            part = size.astype(np.float32)
            part *= np.float32(2.0**-self.shift)
        lead = self._lead(block.astype(np.float32), part, chance)
        accepted = lead > 0
        for lane in np.flatnonzero(np.abs(lead, out=lead) < _MARGIN):
            accepted[lane] = self._decide(int(block[lane]), int(raw[lane]), int(chance[lane]))
        block <<= self.shift
        size += block
        for place, high in far.items():
            accepted[place] = self._decide(high, int(raw[place]), int(chance[place]))
            size[place] = saturated((high << self.shift) + int(size[place]))
        if signed:
            sign = (raw & np.uint64(1)).view(np.int64)
            if not self.is_rounded:
                accepted &= (sign == 0) | (size != 0)
            # Two's complement: x ^ -1 + 1 = −x.
            size ^= -sign
            size += sign
        return size[accepted]

    def _lead(
        self, block: NDArray[np.float32], part: NDArray[np.float32], chance: NDArray[np.int32]
    ) -> NDArray[np.float32]:
        """e^−x − U, good to 2^-20; blocks, and parts of blocks, are the units. Its arguments are used up."""
        if self.is_bell:
            block *= 2
            block += part
            part *= block
            part *= np.float32(-(4**self.shift) / (2 * self.scale))
        else:
            part *= np.float32(-(2**self.shift) / self.scale)
        lead = np.exp(part, out=part)
        u = chance.astype(np.float32)
        u *= np.float32(2.0**-32)
        u += np.float32(0.5)
        lead -= u
        return lead

    def _decide(self, block: int, raw: int, chance: int) -> bool:
        """The coin by exact integers."""
        start, chance = block << self.shift, chance + (1 << 31)
        if self.is_rounded:
            # Bits 1 to 63 of `raw` are the first digits of l/2^m; more are drawn as needed.
            exponent = lambda part: self._exponent(start, part * 2**self.shift)  # noqa: E731
            return accept(exponent, raw >> 1, 63, chance, 32)[0]
        return below(chance, 32, partial(exp_neg, self._exponent(start, Fraction(raw >> 64 - self.shift))))
