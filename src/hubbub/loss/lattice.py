"""δ(ε) of any losses on a grid, by a tilted fast Fourier transform, certified from both sides.

A loss enters as cells: the P-mass of the outcomes whose loss lies between two neighbouring points of the
grid, and the loss of all of them taken as one. Splitting a cell onto its two ends so that both P and Q are
kept can only help the adversary (connect the dots): an upper bound, off by O(h²). Merging the outcomes
around a point into one can only hurt her: a lower bound, off by O(h²), too. Where all losses lie on one
grid, both are the truth. Tilting by e^(cL) before the transform keeps the relative accuracy of a tiny δ.

Proof: docs/proofs/lattice.md
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from hubbub.loss.pairs import LEAST, Bell, Masses
from hubbub.loss.sampled import Uncertified

__all__ = ["Cells", "Composed", "Curve", "Grid", "Lattice"]

Complexes = NDArray[np.complex128]
Doubles = NDArray[np.float64]

_UNIT = 2.0**-53
_STAGE = 8 * _UNIT
"""What one of the log₂ N stages of a transform may lose, in units of Σ|x|."""
_FIRST_POINTS = 1 << 13
_MANY_POINTS = 1 << 18
_MOST_POINTS = 1 << 22
_MOST_CELLS = 1 << 21
_BATCH = 1 << 16
"""So many cells are asked for at a time: they fit a processor's cache."""
_CLOSE = 0.01
"""From here on, the last answer says better where to tilt to than the sketch."""
_ROW = 1024
_KINK = 0.4
"""Up to this spread, in units of 1/tilt, splitting is known to raise δ but little."""
_FAIR = 1e-6
"""So close is good enough where there are many points already."""
_NEGLIGIBLE = 1e-13
"""As a share of δ."""


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
        low = _reach(lambda s: _log_moment(tilted, -s), variance, sure)
        high = _reach(lambda s: _log_moment(tilted, s), variance, sure)
        first, last = max(bottom, math.floor(middle - low) - 1), min(top, math.ceil(middle + high) + 1)
        length = 1 << max(4, (last - first).bit_length())
        if length > _MOST_POINTS:
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
            infinite=_any([(part.grid.infinite, part.times) for part in tilted]) * (1 + 16 * _UNIT),
            certain=_any([(part.grid.certain, part.times) for part in tilted]) * (1 - 16 * _UNIT),
            spread=math.sqrt(math.fsum(part.times * part.grid.spread**2 for part in tilted)),
            raised=math.fsum(part.times * part.raised for part in tilted),
        )


def _any(chances: Sequence[tuple[float, int]]) -> float:
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


def _reach(log_moment: Callable[[float], float], variance: float, sure: float) -> float:
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
        if self.spread > 0.01 or self.tilt * self.spread > _KINK:
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


class _Part(NamedTuple):
    """One law as a few atoms, for a first look."""

    cells: Cells
    times: int
    edges: Doubles
    losses: Doubles
    p: Doubles

    @property
    def within(self) -> tuple[float, float]:
        """From the first edge to the last."""
        return float(self.edges[0]), float(self.edges[-1])

    def heaviest(self, tilt: float) -> float:
        """The loss of the largest tilted mass, or the atom or end of the law next to it."""
        heavy = float(self.losses[np.argmax(_log(self.p) + tilt * self.losses)])
        atoms = self.cells.atoms if self.cells.atoms.size else np.array(self.cells.span)
        nearest = float(atoms[np.abs(atoms - heavy).argmin()])
        return nearest if math.isfinite(nearest) else heavy


@dataclass(frozen=True)
class _Sketch:
    """All laws as a few atoms: good enough to choose a tilt, a window and a step."""

    parts: tuple[_Part, ...]

    @classmethod
    def of(cls, sides: Sequence[tuple[Cells, int]]) -> "_Sketch":
        """Look at each law through its outline."""
        parts = []
        for cells, count in sides:
            # An atom gets a cell of its own.
            beside = np.empty(0) if cells.discrete else cells.atoms - 2.0**-45 * np.abs(cells.atoms)
            inner = np.unique(np.concatenate([cells.outline, cells.atoms, beside]))
            edges = np.concatenate([[-math.inf], inner, [math.inf]])
            found = cells.masses(edges)
            edges[0], edges[-1] = edges[1], edges[-2]
            parts.append(_Part(cells, count, edges, found.loss.clip(edges[0], edges[-1]), found.p))
        return cls(tuple(parts))

    def moments(self, tilt: float) -> tuple[float, float, float]:
        """K, K′ and K″ of the finite losses at a real tilt."""
        total = np.zeros(3)
        for part in self.parts:
            held = part.p > 0
            losses = part.losses[held]
            power = tilt * losses + np.log(part.p[held])
            peak = float(power.max())
            weight = np.exp(power - peak)
            size = float(weight.sum())
            mean = float(weight @ losses) / size
            spread = float(weight @ np.square(losses - mean)) / size
            total += part.times * np.array([math.log(size) + peak, mean, spread])
        return float(total[0]), float(total[1]), float(total[2])

    @cached_property
    def widths(self) -> list[float]:
        """How far apart the largest and the least loss of each law may lie."""
        return [float(np.ptp(part.edges)) for part in self.parts]

    @cached_property
    def width(self) -> float:
        """How far apart the largest and the least loss may lie, all together."""
        return math.fsum(part.times * width for part, width in zip(self.parts, self.widths, strict=True))

    def tilt_for_epsilon(self, epsilon: float) -> float:
        """Where e^(K(c) − cε)/(c(1+c)) is least: there errors count least."""
        return self._tilt(lambda c: self.epsilon_at(c)[0] - epsilon, epsilon)

    def tilt_for_delta(self, delta: float) -> float:
        """The same for the ε at which δ is about this."""
        return self._tilt(lambda c: math.log(delta) - self.epsilon_at(c)[1], 0.0)

    def epsilon_at(self, c: float) -> tuple[float, float]:
        """The ε whose best tilt is c, and ln δ there, by the saddle-point formula."""
        moment, mean, variance = self.moments(c)
        epsilon = mean - 1 / c - 1 / (1 + c)
        curve = variance + c**-2 + (1 + c) ** -2
        return epsilon, moment - c * epsilon - math.log(c * (1 + c)) - math.log(2 * math.pi * curve) / 2

    def _tilt(self, rising: Callable[[float], float], epsilon: float) -> float:
        """Where a rising function crosses zero, within what makes sense for losses of this size."""
        size = math.fsum(part.times * float(np.abs(part.edges).max()) for part in self.parts) + abs(epsilon)
        low, high = -math.log(4 * size + 1e-300), math.log(2.0**36 / (size + 1e-300))
        while high - low > 0.02:
            middle = (low + high) / 2
            low, high = (middle, high) if rising(math.exp(middle)) < 0 else (low, middle)
        return math.exp((low + high) / 2)

    def cropped(self, tilt: float, likely: float, sure: float, *, exact: bool) -> "_Sketch":
        """Without the ends of each law that do not matter at this tilt, for δ of about this size."""
        parts = []
        for part in self.parts:
            power = tilt * part.losses + _log(part.p)
            weight = np.exp(power - float(power.max()))
            weight /= weight.sum()
            small = math.exp(-sure) / part.times
            spare = _NEGLIGIBLE * likely / (part.times * len(self.parts))
            # Above, masses are counted as infinite losses; below, they are moved up to the end.
            top = np.cumsum(part.p[::-1])[::-1]
            over = (np.cumsum(weight[::-1])[::-1] <= small) & (top <= spare)
            under = np.cumsum(part.p)
            if exact:
                beneath = under <= spare
            else:
                beneath = _log(under) + tilt * part.edges[1:] <= math.log(small) + _log_sum(power)
            keep = slice(int(beneath.argmin()), over.size - int((~over)[::-1].argmax()))
            parts.append(
                _Part(
                    part.cells,
                    part.times,
                    part.edges[keep.start : keep.stop + 1],
                    part.losses[keep],
                    part.p[keep],
                )
            )
        return _Sketch(tuple(parts))

    def window(self, tilt: float, sure: float) -> float:
        """How wide all but e^−sure of the tilted law is, about."""
        moment, mean, variance = self.moments(tilt)
        low = _reach(lambda s: self.moments(tilt - s)[0] - moment + s * mean, variance, sure)
        high = _reach(lambda s: self.moments(tilt + s)[0] - moment - s * mean, variance, sure)
        return max(min(low + high, self.width), *self.widths)


def _log(p: Doubles) -> Doubles:
    """The logarithm, −∞ at 0."""
    with np.errstate(divide="ignore"):
        return np.log(p)


def _log_sum(power: Doubles) -> float:
    """The logarithm of Σ e^power."""
    peak = float(power.max())
    return math.log(float(np.exp(power - peak).sum())) + peak


def _unit(laws: Sequence[Doubles]) -> float:
    """The step of the coarsest grid on which all distances of atoms lie; 0 where there is none."""
    distances = np.concatenate([np.diff(np.unique(atoms)) for atoms in laws] or [np.zeros(0)])
    most = float(distances.max(initial=0.0))
    if most == 0:
        return 0.0
    distances = np.unique(np.rint(distances / most * 2.0**40))[::-1] / 2.0**40
    if distances.size > 4096:
        return 0.0
    unit = 1.0
    for distance in distances.tolist():
        # Euclid's algorithm; a rest that rounding can explain is none.
        rest = distance
        while rest > 2.0**-30:
            unit, rest = rest, abs(math.remainder(unit, rest))
        if unit < 1 / _MOST_POINTS:
            return 0.0
    widest = max(float(np.ptp(atoms)) for atoms in laws)
    return widest / round(widest / (unit * most))


@dataclass(frozen=True)
class Composed:
    """Pairs of laws, each so many times, composed: δ(ε) and ε(δ) between certified bounds.

    >>> from hubbub.loss.pairs import two_points
    >>> low, high = Composed([(two_points(1), 10)]).epsilon(1e-6)
    >>> low <= 9.999977065820732 <= high
    True

    Guarantee: the true value of the composition lies between the two that are returned.
    Assumes: numpy's transform loses no more than 8 units in each stage; doubles round correctly.
    Proof: docs/proofs/lattice.md
    """

    sides: Sequence[tuple[Cells, int]]
    accuracy: float = 1e-8
    """How close, relatively, the two should come, if the number of points allows."""

    def delta(self, epsilon: float) -> tuple[float, float]:
        """Certified (lower, upper) of δ at ε ≥ 0."""
        if epsilon >= self._top or self._certain[0] == 1:
            return self._certain
        tilt = self._sketch.tilt_for_epsilon(epsilon)
        likely = math.exp(min(0.0, max(-690.0, self._sketch.epsilon_at(tilt)[1])))

        def ask(below: Curve, above: Curve) -> tuple[float, float]:
            return below.below(epsilon), above.above(epsilon)

        found = self._narrowed(ask, epsilon, likely, seek=False)
        if found == (0.0, 1.0):
            raise Uncertified
        return found

    def epsilon(self, delta: float) -> tuple[float, float]:
        """Certified (lower, upper) of the least ε ≥ 0 at which δ is met; infinite where none does."""
        low, high = self._certain
        if delta >= 1:
            return 0.0, 0.0
        if delta < low:
            return math.inf, math.inf
        if delta <= high:
            # With no infinite loss, this is δ = 0.
            return (0.0, math.inf) if high else (max(0.0, self._top * (1 - 2.0**-20)), max(0.0, self._top))
        if self._top <= 0:
            return 0.0, 0.0
        tilt = self._sketch.tilt_for_delta(min(delta - low, 0.99))
        start = max(0.0, self._sketch.epsilon_at(tilt)[0])

        def ask(below: Curve, above: Curve) -> tuple[float, float]:
            nonlocal start
            over = above.epsilon_above(delta, start)
            start = over if math.isfinite(over) else start
            return below.epsilon_below(delta, start), over

        found = self._narrowed(ask, start, delta - low, seek=True)
        if math.isinf(found[1]):
            raise Uncertified
        return found[0], min(found[1], self._top)

    @cached_property
    def _sides(self) -> list[tuple[Cells, int]]:
        """Each law once, and all Gaussians as one."""
        counts: dict[Cells, int] = {}
        bell = math.fsum(count * cells.mu_squared for cells, count in self.sides if isinstance(cells, Bell))
        for cells, count in self.sides:
            if count and not isinstance(cells, Bell):
                counts[cells] = counts.get(cells, 0) + count
        return [*counts.items(), *([(Bell(bell), 1)] if bell else [])]

    @cached_property
    def _sketch(self) -> _Sketch:
        return _Sketch.of(self._sides)

    @cached_property
    def _top(self) -> float:
        """No finite loss is larger."""
        return math.fsum(count * cells.span[1] for cells, count in self._sides) * (1 + 4 * _UNIT)

    @cached_property
    def _certain(self) -> tuple[float, float]:
        """The chance of an infinite loss."""
        chance = _any([(cells.certain, count) for cells, count in self._sides])
        return (1.0, 1.0) if chance >= 1 else (chance * (1 - 16 * _UNIT), min(1.0, chance * (1 + 16 * _UNIT)))

    @cached_property
    def _steps(self) -> tuple[float, bool]:
        """The step that atoms ask for, or 0, and whether everything lies on it."""
        atoms = [cells.atoms for cells, _ in self._sides]
        unit = _unit([own for own in atoms if own.size])
        if not all(cells.discrete for cells, _ in self._sides):
            return unit, False
        if unit == 0:
            return float(alone := all(np.ptp(own) == 0 for own in atoms)), alone
        off = [np.abs(own - own[0] - unit * np.rint((own - own[0]) / unit)).max() for own in atoms]
        return unit, all(most <= 2.0**-46 * np.abs(own).max() for most, own in zip(off, atoms, strict=True))

    def _narrowed(
        self, ask: Callable[[Curve, Curve], tuple[float, float]], epsilon: float, likely: float, *, seek: bool
    ) -> tuple[float, float]:
        """Ask with more and more points, until the answer is as close as is wanted, or cannot be closer."""
        low, high, last, points = 0.0, math.inf, math.inf, _FIRST_POINTS
        while True:
            try:
                found = ask(*self._curves(epsilon, likely, points))
            except Uncertified:
                gap = math.inf
            else:
                low, high = max(low, found[0]), min(high, found[1])
                gap = (high - low) / high if 0 < high < math.inf else high
            if low > high:
                raise Uncertified
            # Where more points did not help, still more will not, unless there were very few.
            stuck = gap > last / 2 and (gap < _CLOSE or points > _MANY_POINTS)
            enough = gap <= self.accuracy or (gap <= _FAIR and points >= _MANY_POINTS)
            if enough or points >= _MOST_POINTS or stuck:
                return low, high
            last = gap
            epsilon = high if seek and gap < _CLOSE else epsilon
            # The gap falls with the square of the step.
            more = min(64.0, 1.3 * math.sqrt(gap / self.accuracy))
            points = min(_MOST_POINTS, points << max(1, math.ceil(math.log2(more))))

    def _curves(self, epsilon: float, likely: float, points: int) -> tuple[Curve, Curve]:
        """A lower and an upper curve, good around ε; one and the same where everything lies on one grid."""
        unit, exact = self._steps
        tilt = self._sketch.tilt_for_epsilon(epsilon)
        # What is left out may be a hundredth of what is wanted, also where e^(K − cε) is far above δ.
        peak = self._sketch.moments(tilt)[0] - tilt * epsilon - math.log(likely)
        sure = max(45.0 if exact else 0.0, math.log(100 / self.accuracy) + 1 + max(0.0, peak))
        sketch = self._sketch.cropped(tilt, likely, sure, exact=exact)
        window = sketch.window(tilt, sure)
        laws = [(part.cells, part.times, part.heaviest(tilt), part.within) for part in sketch.parts]
        if exact and window <= unit * _MOST_POINTS:
            exactly = [
                (Grid.exact(cells, unit, origin=at, within=ends), times) for cells, times, at, ends in laws
            ]
            curve = Lattice(exactly).curve(tilt, sure)
            return curve, curve
        # Points that differ only in their last digits are none.
        step = max(1.05 * window / points, 2.0**-40 * max(abs(end) for _, _, _, ends in laws for end in ends))
        if unit >= step:
            step = unit / math.floor(unit / step)
        above = Lattice(
            [(Grid.above(cells, step, origin=at, within=ends), times) for cells, times, at, ends in laws]
        ).curve(tilt, sure)
        beside = unit < step and any(cells.atoms.size for cells, _ in self._sides)
        if beside and tilt * above.spread <= _KINK:
            # Atoms beside the grid would lose a step when merged, so the lower bound is had from splitting.
            return above, above
        below = [
            (Grid.below(cells, step, origin=at, within=ends, tilt=tilt), times)
            for cells, times, at, ends in laws
        ]
        return Lattice(below).curve(tilt, sure), above
