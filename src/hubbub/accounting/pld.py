"""A law on a grid of losses: split onto the points above it, merged around them below it.

A loss enters as cells: the P-mass of the outcomes whose loss lies between two neighbouring points of the
grid, and the loss of all of them taken as one. Splitting a cell onto its two ends so that both P and Q are
kept can only help the adversary (connect the dots): an upper bound, off by O(h²). Merging the outcomes
around a point into one can only hurt her: a lower bound, off by O(h²), too. Where all losses lie on one
grid, both are the truth.

Proof: docs/proofs/lattice.md
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from hubbub.accounting.discrete_pairs import LEAST, Masses
from hubbub.accounting.float_bounds import Uncertified

__all__ = ["KINK", "MOST_POINTS", "Cells", "Grid", "Lattice", "TiltedCurve", "any_of", "reach"]

Doubles = NDArray[np.float64]

_UNIT = 2.0**-53
_MOST_CELLS = 1 << 21
_BATCH = 1 << 16
"""So many cells are asked for at a time: they fit a processor's cache."""


class Cells(Protocol):
    """A pair of laws, seen through its privacy loss L = ln(P/Q) under P."""

    @property
    def span(self) -> tuple[float, float]:
        """Between what all finite losses lie."""

    @property
    def outline(self) -> Doubles:
        """Losses between which the law is smooth enough for a first look."""

    @property
    def atoms(self) -> Doubles:
        """Losses that have a mass of their own."""

    @property
    def discrete(self) -> bool:
        """Whether there is nothing but atoms."""

    @property
    def certain(self) -> float:
        """The P-mass of outcomes that Q never gives: an infinite loss."""

    def masses(self, edges: Doubles) -> Masses:
        """What lies in (edges[k], edges[k+1]]; edges may repeat, and be infinite."""


@dataclass(frozen=True)
class Grid:
    """P-masses at losses origin + (start + k)·step: a pair that dominates a law, or is dominated by it.

    Guarantee: made by `above`, its δ(ε − slack) is at least the law's δ(ε); made by `below`, its
        δ(ε + slack) is at most that; made by `exact`, both. So it stays when grids are composed.
    Assumes: the law's masses, each to within `unsure`.
    Proof: docs/proofs/lattice.md
    """

    step: float
    origin: float
    start: int
    mass: Doubles
    unsure: Doubles
    slack: float
    infinite: float
    """At most, the chance of an infinite loss."""
    certain: float
    """At least, the chance of an infinite loss."""
    spread: float = 0.0
    """Made by `above`: how far, as a standard deviation, a loss was moved by splitting."""
    raised: float = 0.0
    """Made by `above`: the mass that was moved up to the first point."""

    @classmethod
    def above(cls, cells: Cells, step: float, *, origin: float = 0.0, within: tuple[float, float]) -> "Grid":
        """Connect the dots: a pair that dominates. Losses outside `within` are rounded up, to ∞ above it."""
        start, points = _points(step, origin, within)
        found = _masses(cells, np.concatenate([[-math.inf], points, [math.inf]]))
        p, rough = found.p[1:-1], found.accuracy[1:-1]
        rise = found.unsure[1:-1] + 4 * _UNIT * (np.abs(points[1:]) + step)
        loss = found.loss[1:-1] + rise
        # Of the cell's P-mass, what goes to its upper end.
        upper = (np.expm1(points[:-1] - loss) / math.expm1(-step)).clip(0.0, 1.0)
        over = np.maximum(loss - points[1:], 4 * rise)[p > 0]
        mass, unsure = np.zeros(points.size), np.zeros(points.size)
        mass[0], unsure[0] = found.p[0], found.p[0] * found.accuracy[0]
        for ends, share in ((slice(None, -1), 1 - upper), (slice(1, None), upper)):
            mass[ends] += p * share
            unsure[ends] += p * share * rough
        return cls(
            step=step,
            origin=origin,
            start=start,
            mass=mass,
            unsure=unsure,
            slack=float(over.max(initial=0.0)),
            infinite=cells.certain * (1 + 4 * _UNIT) + float(found.p[-1]) * 1.01 + 2 * LEAST * points.size,
            certain=cells.certain * (1 - 4 * _UNIT),
            spread=step / 2,
            raised=float(found.p[0]) * 1.01 + LEAST,
        )

    @classmethod
    def below(
        cls, cells: Cells, step: float, *, origin: float = 0.0, within: tuple[float, float], tilt: float = 1.0
    ) -> "Grid":
        """Outcomes merged around each point: a pair that is dominated; the tilt says where it matters."""
        start, points = _points(step, origin, within)
        edges = np.concatenate([[-math.inf], points - step / 2, [points[-1] + step / 2, math.inf]])
        found = _masses(cells, edges)
        for centred in () if cells.discrete else (True, False):
            # Edges are moved until merged losses lie at their points, and where that fails, above.
            lack = np.where(found.p[1:-1] > LEAST, points - found.loss[1:-1], 0.0)
            short = np.maximum(lack[:-1], lack[1:]).clip(min=0.0)
            edges[2:-2] += ((lack[:-1] + lack[1:]) / 2 if centred else 1.5 * short).clip(-step / 4, step / 4)
            found = _masses(cells, edges)
        p = np.where(found.p > LEAST, found.p, 0.0)
        loss = (found.loss - found.unsure)[1:-1] - 4 * _UNIT * (np.abs(points) + step)
        slack = _shift(points - loss, p[1:-1], tilt * loss, step)
        mass, unsure = np.zeros(points.size + 1), np.zeros(points.size + 1)
        # Rounded down to the point itself, less the slack, or to the one before.
        place = np.floor((loss + slack - points) / step).clip(-2, 0)
        for ends, inner in ((slice(1, None), place == 0), (slice(None, -1), place == -1)):
            mass[ends] += np.where(inner, p[1:-1], 0.0)
            unsure[ends] += np.where(inner, p[1:-1] * found.accuracy[1:-1], 0.0)
        mass[-1] += p[-1]
        unsure[-1] += p[-1] * found.accuracy[-1]
        certain = cells.certain * (1 - 4 * _UNIT)
        return cls(step, origin, start - 1, mass, unsure, slack, infinite=1.0, certain=certain)

    @classmethod
    def exact(cls, cells: Cells, step: float, *, origin: float = 0.0, within: tuple[float, float]) -> "Grid":
        """Atoms that lie on the grid: neither above nor below. What lies outside `within` is left out."""
        start, points = _points(step, origin, within)
        edges = np.concatenate([[-math.inf], points - step / 2, [points[-1] + step / 2, math.inf]])
        found = _masses(cells, edges)
        off = cells.atoms - origin
        aside = np.abs(off - step * np.rint(off / step)).max() + 4 * _UNIT * np.abs(points).max()
        p = found.p[1:-1]
        rest = float(found.p[0] + found.p[-1]) * 1.01 + 2 * LEAST * points.size
        return cls(
            step=step,
            origin=origin,
            start=start,
            mass=p,
            unsure=p * found.accuracy[1:-1],
            slack=float(aside + found.unsure.max()),
            infinite=cells.certain * (1 + 4 * _UNIT) + rest,
            certain=cells.certain * (1 - 4 * _UNIT),
        )


def _masses(cells: Cells, edges: Doubles) -> Masses:
    """All cells, a batch at a time."""
    batches = [cells.masses(edges[start : start + _BATCH + 1]) for start in range(0, edges.size - 1, _BATCH)]
    return Masses(*(np.concatenate(parts) for parts in zip(*batches, strict=True)))


def _points(step: float, origin: float, within: tuple[float, float]) -> tuple[int, Doubles]:
    """The grid's points that enclose the range, with one to spare: the first one's number, and all."""
    first, last = math.floor((within[0] - origin) / step) - 1, math.ceil((within[1] - origin) / step) + 1
    if last - first > _MOST_CELLS:
        raise Uncertified
    return first, np.asarray(origin + step * np.arange(first, last + 1), dtype=np.float64)


def _shift(lack: Doubles, p: Doubles, power: Doubles, step: float) -> float:
    """By how much all points are best moved down, so that few merged losses lie below their point."""
    held = p > 0
    if not held.any():
        return 0.0
    weight = p[held] * np.exp(power[held] - float(power[held].max()))
    weight /= weight.sum()
    lack = lack[held]
    choices = np.unique(np.concatenate([[0.0], lack[lack > 0].max(initial=0.0) * 1.5 ** -np.arange(60.0)]))
    # Who still lies below goes down a whole step.
    missed = np.cumsum(np.histogram(lack, [*choices, math.inf], weights=weight)[0][::-1])[::-1]
    missed[-1] = 0.0
    return float(choices[np.argmin(choices + step * missed)])


# δ and ε from a tilted distribution of the whole loss.
#
# Proved in docs/proofs/lattice.md

KINK = 0.4
"""Up to this spread, in units of 1/tilt, splitting is known to raise δ but little."""

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
class TiltedCurve:
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


# Grids composed: one distribution of the whole loss, by a tilted fast Fourier transform.
#
# Tilting by e^(cL) before the transform keeps the relative accuracy of a tiny δ.
#
# Proved in docs/proofs/lattice.md

Complexes = NDArray[np.complex128]

MOST_POINTS = 1 << 22

_STAGE = 8 * _UNIT
"""What one of the log₂ N stages of a transform may lose, in units of Σ|x|."""


@dataclass(frozen=True)
class Lattice:
    """Grids of one step, each so many times, composed."""

    grids: Sequence[tuple[Grid, int]]

    def curve(self, tilt: float, sure: float = 45.0) -> "TiltedCurve":
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
        return TiltedCurve(
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
