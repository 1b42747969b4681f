"""δ and ε from a tilted distribution of the whole loss.

Proof: docs/proofs/lattice.md
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["KINK", "Curve"]

Doubles = NDArray[np.float64]

KINK = 0.4
"""Up to this spread, in units of 1/tilt, splitting is known to raise δ but little."""

_UNIT = 2.0**-53
_ROW = 1024


class _Value(NamedTuple):
    """δ on the grid at one ε."""

    value: float
    error: float
    """How far off it may be."""
    excess: float
    """By how much it may be too large besides, because losses were split."""
    fall: float
    """How fast it falls: e^ε·Q's part of it."""


@dataclass(frozen=True)
class Curve:
    """A tilted distribution of the whole loss, good for δ around where it was tilted to."""

    step: float
    first: float
    """The loss of the first chance."""
    chances: Doubles
    tilt: float
    peak: int
    """The number of the chance that powers are taken from; it may be none of these."""
    moment: float
    relative: float
    """The relative error of e^moment and of sums."""
    error: float
    """Of the chances: √Σ of the squares of all errors."""
    outside: float
    """Of all chances that are not in the window."""
    slack: float
    """How far all losses together may lie beside the grid."""
    infinite: float
    """At most, the chance that any loss is infinite."""
    certain: float
    """At least, the chance that any loss is infinite."""
    spread: float
    raised: float
    """As a grid's, all together; below is a lower bound in spite of them."""

    def above(self, epsilon: float) -> float:
        """An upper bound of δ(ε)."""
        found = self.at(epsilon - self.slack - 4 * _UNIT * abs(epsilon))
        return min(1.0, self.infinite + found.value + found.error)

    def below(self, epsilon: float) -> float:
        """A lower bound of δ(ε)."""
        found = self.at(epsilon + self.slack + 4 * _UNIT * abs(epsilon))
        return self.certain + max(0.0, found.value - found.error - found.excess)

    def epsilon_above(self, delta: float, start: float) -> float:
        """An ε ≥ 0 at which δ is met for sure, and about the least; infinite where none is found."""
        most = (delta - self.infinite) * (1 - 4 * _UNIT)
        root = self._root(most, start, 1) if most > 0 else math.inf
        return max(0.0, root + self.slack + 8 * _UNIT * abs(root))

    def epsilon_below(self, delta: float, start: float) -> float:
        """An ε ≥ 0 below which δ is not met for sure, and about the largest."""
        root = self._root((delta - self.certain) * (1 + 4 * _UNIT), start, -1)
        return max(0.0, root - self.slack - 8 * _UNIT * abs(root))

    def at(self, epsilon: float) -> _Value:
        """The finite losses' part of δ(ε), on the grid."""
        skip = min(max(0, math.floor((epsilon - self.first) / self.step) + 1), self.chances.size)
        # ε enters only here, so that a rounded gap is a rounded ε.
        gap = self.first + self.step * skip - epsilon
        steps = self.tilt * self.step * (self.peak - skip)
        power = steps + self.tilt * gap + self.moment
        if power > 700:
            return _Value(0.0, math.inf, math.inf, 0.0)
        # Beyond e^-60 nothing is summed.
        chances = self.chances[skip : skip + int(60 / (self.tilt * self.step)) + 2]
        rows = chances.size // _ROW
        rest = np.zeros(_ROW)
        rest[: chances.size - rows * _ROW] = chances[rows * _ROW :]
        # 1 − e^−(a+b) = (1 − e^−a) + e^−a·(1 − e^−b): sums of products, in which nothing cancels.
        inner = self.step * np.arange(_ROW)
        outer = max(0.0, gap) + self.step * _ROW * np.arange(rows + 1)
        weight, start, share = np.exp(-self.tilt * inner), np.exp(-self.tilt * outer), -np.expm1(-outer)
        sides = np.stack([weight, weight * -np.expm1(-inner)], axis=1)
        parts = np.vstack([chances[: rows * _ROW].reshape(rows, _ROW) @ sides, rest @ sides])

        value = float((start * (share * parts[:, 0] + (1 - share) * parts[:, 1])).sum())
        peak = math.exp(power)
        squares = np.square(sides).sum(axis=0)
        kernel = np.square(start) * (np.square(share) * squares[0] + np.square(1 - share) * squares[1])
        lost = 1.001 * self.error * math.sqrt(2 * float(kernel.sum())) + self.outside
        lost += (self.relative + 8 * _UNIT * abs(steps)) * abs(value)
        lost += 2 * math.exp(-60) * (1 + self.error * self.chances.size)
        fall = float((start * parts[:, 0]).sum()) - value
        return _Value(peak * value, peak * lost, self._excess(epsilon, peak), peak * fall)

    def _excess(self, epsilon: float, peak: float) -> float:
        """By how much splitting may have raised δ(ε): only losses close to ε count.

        Splitting moves the whole loss by H with E[e^−H] = 1 and tails as those of a normal law of this
        spread: δ is raised by no more than 2.5·spread·E[e^(−(L−ε)²/2(1.01·spread)²)].
        """
        if not self.spread:
            return 0.0
        if self.spread > 0.01 or self.tilt * self.spread > KINK:
            return math.inf
        wide = 1.01 * self.spread
        low = math.floor((epsilon - 10 * wide - self.first) / self.step)
        high = math.ceil((epsilon + 10 * wide - self.first) / self.step) + 1
        near = slice(max(0, low), max(0, high))
        gap = self.first + self.step * np.arange(self.chances.size)[near] - epsilon
        bump = np.exp(-self.tilt * gap - np.square(gap / wide) / 2)
        share = 1.001 * float((self.chances[near] * bump).sum())
        share += self.error * math.sqrt(float(np.square(bump).sum())) + self.outside
        return peak * (2.5 * self.spread * share + math.exp(-45) + self.raised)

    def _root(self, target: float, start: float, sign: int) -> float:
        """Where value + sign·error is at most the target (sign 1), or at least (−1); ±∞ where nowhere."""
        low, high, x = -math.inf, math.inf, start
        for step in range(60):
            found = self.at(x)
            size = found.value + (found.error if sign > 0 else -found.error - found.excess)
            low, high = (x, high) if size > target or math.isinf(size) else (low, x)
            move = _newton(size, target, found.fall)
            if abs(move) <= 2.0**-46 * abs(x):
                break
            if not low < x + move < high:
                # Halve, or where one side is open, go there in growing steps.
                far = 2.0**step / self.tilt
                move = (low + high) / 2 - x if math.isfinite(high - low) else far if low == x else -far
            x += move
        pad = 2.0**-48 * (abs(x) + 1 / self.tilt)
        for _ in range(12):
            found = self.at(x + sign * pad)
            if sign * (target - found.value) >= found.error + (0.0 if sign > 0 else found.excess):
                return x + sign * pad
            pad *= 8
        return sign * math.inf


def _newton(size: float, target: float, fall: float) -> float:
    """How far to go where δ is `size`: exact where δ = A − B·e^ε, and along e^−aε where that is far."""
    if not (0 < size < math.inf and fall > 0):
        return math.nan
    if abs(size - target) < 0.5 * min(size, fall):
        return math.log1p((size - target) / fall)
    return size / fall * math.log(size / target)
