"""Grids composed: one distribution of the whole loss, by a tilted fast Fourier transform.

Tilting by e^(cL) before the transform keeps the relative accuracy of a tiny δ.

Proof: docs/proofs/lattice.md
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from hubbub.loss.curve import Curve
from hubbub.loss.grid import Grid
from hubbub.loss.pairs import LEAST
from hubbub.loss.sampled import Uncertified

__all__ = ["MOST_POINTS", "Lattice", "any_of", "reach"]

Complexes = NDArray[np.complex128]
Doubles = NDArray[np.float64]

MOST_POINTS = 1 << 22

_UNIT = 2.0**-53
_STAGE = 8 * _UNIT
"""What one of the log₂ N stages of a transform may lose, in units of Σ|x|."""


@dataclass(frozen=True)
class Lattice:
    """Grids of one step, each so many times, composed."""

    grids: Sequence[tuple[Grid, int]]

    def curve(self, tilt: float, sure: float = 45.0) -> "Curve":
        """The whole distribution, tilted so as to be accurate around one place, but for e^−sure of it."""
        step = self.grids[0][0].step
        tilted = [_Tilted.of(grid, times, tilt) for grid, times in self.grids]
        # All places are counted in steps from the sum of the origins.
        middle = math.fsum(part.times * (part.peak + part.mean) for part in tilted)
        bottom = sum(part.times * (part.peak + int(part.places[0])) for part in tilted)
        top = sum(part.times * (part.peak + int(part.places[-1])) for part in tilted)
        variance = math.fsum(part.times * part.variance for part in tilted)
        low = reach(lambda s: _log_moment(tilted, -s), variance, sure)
        high = reach(lambda s: _log_moment(tilted, s), variance, sure)
        first, last = max(bottom, math.floor(middle - low) - 1), min(top, math.ceil(middle + high) + 1)
        length = 1 << max(4, (last - first).bit_length())
        if length > MOST_POINTS:
            raise Uncertified
        spectrum, error = _spectrum(tilted, length)
        start = sum(part.times * part.peak for part in tilted)
        origin = math.fsum(part.times * part.grid.origin for part in tilted)
        slack = math.fsum(
            part.times * (part.grid.slack + 4 * _UNIT * abs(part.grid.origin)) for part in tilted
        )
        return Curve(
            step=step,
            first=origin + step * first,
            chances=np.roll(np.fft.irfft(spectrum, length), start - first),
            tilt=tilt,
            peak=start - first,
            moment=math.fsum(part.times * part.moment for part in tilted),
            relative=math.fsum(4 * _UNIT * part.times * (1 + abs(part.moment)) for part in tilted) + 2.0**-42,
            error=error,
            outside=0.0 if (first, last) == (bottom, top) else 2 * math.exp(1 - sure),
            slack=slack + 4 * _UNIT * (abs(origin) + step * (max(abs(first), abs(last)) + length)),
            infinite=any_of([(part.grid.infinite, part.times) for part in tilted]) * (1 + 16 * _UNIT),
            certain=any_of([(part.grid.certain, part.times) for part in tilted]) * (1 - 16 * _UNIT),
            spread=math.sqrt(math.fsum(part.times * part.grid.spread**2 for part in tilted)),
            raised=math.fsum(part.times * part.raised for part in tilted),
        )


def any_of(chances: Sequence[tuple[float, int]]) -> float:
    """The chance that any of them happens."""
    if any(chance >= 1 for chance, _ in chances):
        return 1.0
    return -math.expm1(math.fsum(count * math.log1p(-chance) for chance, count in chances))


@dataclass(frozen=True)
class _Tilted:
    """A grid's masses times e^(c·loss), made a distribution."""

    grid: Grid
    times: int
    peak: int
    """The number of the point whose tilted mass is largest: powers and places are taken from there."""
    places: NDArray[np.int64]
    masses: Doubles
    moment: float
    """ln E[e^(c(L − peak))]."""
    mean: float
    variance: float
    error: float
    """Of all tilted masses together."""
    raised: float
    """The tilted mass that was moved up to the first point."""

    @classmethod
    def of(cls, grid: Grid, times: int, tilt: float) -> "_Tilted":
        """Tilt one grid."""
        held = np.flatnonzero(grid.mass > LEAST)
        if not held.size:
            raise Uncertified
        rate = tilt * grid.step
        power = np.log(grid.mass[held]) + rate * held
        place = int(held[power.argmax()])
        # What is e^-600 of the largest is nothing, and slow.
        held = held[power > power.max() - 600]
        places = held - place
        factor = np.exp(rate * places)
        weight = grid.mass[held] * factor
        total = float(weight.sum())
        weight /= total
        mean = float(weight @ places)
        lost = float(grid.unsure[held] @ factor) / total + 4 * _UNIT * rate * float(weight @ np.abs(places))
        return cls(
            grid=grid,
            times=times,
            peak=grid.start + place,
            places=places,
            masses=weight,
            moment=math.log(total),
            mean=mean,
            variance=float(weight @ np.square(places - mean)),
            error=lost + 16 * _UNIT,
            raised=grid.raised * math.exp(-rate * place) / total,
        )

    @cached_property
    def logs(self) -> Doubles:
        """The logarithms of the masses."""
        return np.log(self.masses)


def _log_moment(tilted: Sequence[_Tilted], s: float) -> float:
    """The logarithm of E[e^(s·(J − E[J]))] of the sum J of all, in steps; rounded up."""
    total = []
    for part in tilted:
        power = part.logs + s * part.places
        peak = float(power.max())
        grown = math.log(float(np.exp(np.maximum(power - peak, -600.0)).sum()))
        lost = (
            8
            * _UNIT
            * (1 + abs(peak) + abs(s) * (abs(part.mean) + float(np.abs(part.places[[0, -1]]).max())))
        )
        total.append(part.times * (grown + peak - s * part.mean + lost))
    return math.fsum(total)


def reach(log_moment: Callable[[float], float], variance: float, sure: float) -> float:
    """How far on one side all but e^−sure of a law lies, by Chernoff with about the best power."""
    near = math.sqrt(2 * sure / max(variance, 1e-12))
    best = (log_moment(near) + sure) / near
    for factor in (0.5, 2.0):
        s = near * factor
        while (reach := (log_moment(s) + sure) / s) < 0.999 * best and 1e-9 < s / near < 1e9:
            best, s = reach, s * factor
    return best


def _spectrum(tilted: Sequence[_Tilted], length: int) -> tuple[Complexes, float]:
    """The transform of all together, and how far off its inverse may be: √Σ of the squares of all errors."""
    stages = (math.log2(length) + 2) * _STAGE
    spectrum = np.ones(length // 2 + 1, dtype=np.complex128)
    log_size, growth = np.zeros(length // 2 + 1), np.zeros(length // 2 + 1)
    for part in tilted:
        own = np.fft.rfft(np.bincount(part.places % length, weights=part.masses, minlength=length))
        size = np.abs(own) + (part.error + stages)
        log_size += part.times * np.log(size)
        growth += part.times * (part.error + stages) / size
        spectrum *= _power(own, part.times)
    error = np.exp(np.maximum(log_size, -600.0)) * (growth + stages)
    return spectrum, 1.01 * math.sqrt(2 * float(np.square(error).sum()) / length)


def _power(base: Complexes, count: int) -> Complexes:
    """base^count, by squaring."""
    result = base if count & 1 else np.ones_like(base)
    while count := count >> 1:
        base = base * base
        result = result * base if count & 1 else result
    return result
