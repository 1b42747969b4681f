"""Laws as a few atoms, for a first look: it chooses a tilt, a window and a step, and proves nothing.

Proof: docs/proofs/lattice.md
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hubbub.accounting import pld
from hubbub.accounting.dominating_pairs import GaussianPair
from hubbub.accounting.float_bounds import Uncertified
from hubbub.accounting.pld import KINK, Cells, Grid, Lattice, TiltedCurve, any_of

__all__ = ["Composed", "Sketch", "common_step"]

Doubles = NDArray[np.float64]

_NEGLIGIBLE = 1e-13
"""As a share of δ."""


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
class Sketch:
    """All laws as a few atoms: good enough to choose a tilt, a window and a step."""

    parts: tuple[_Part, ...]

    @classmethod
    def of(cls, sides: Sequence[tuple[Cells, int]]) -> "Sketch":
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

    def cropped(self, tilt: float, likely: float, sure: float, *, exact: bool) -> "Sketch":
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
        return Sketch(tuple(parts))

    def window(self, tilt: float, sure: float) -> float:
        """How wide all but e^−sure of the tilted law is, about."""
        moment, mean, variance = self.moments(tilt)
        low = pld.reach(lambda s: self.moments(tilt - s)[0] - moment + s * mean, variance, sure)
        high = pld.reach(lambda s: self.moments(tilt + s)[0] - moment - s * mean, variance, sure)
        return max(min(low + high, self.width), *self.widths)


def _log(p: Doubles) -> Doubles:
    """The logarithm, −∞ at 0."""
    with np.errstate(divide="ignore"):
        return np.log(p)


def _log_sum(power: Doubles) -> float:
    """The logarithm of Σ e^power."""
    peak = float(power.max())
    return math.log(float(np.exp(power - peak).sum())) + peak


def common_step(laws: Sequence[Doubles]) -> float:
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
        if unit < 1 / pld.MOST_POINTS:
            return 0.0
    widest = max(float(np.ptp(atoms)) for atoms in laws)
    return widest / round(widest / (unit * most))


# δ(ε) and ε(δ) of any losses on a grid, with as many points as it takes.
#
# Proved in docs/proofs/lattice.md

_UNIT = 2.0**-53
_FIRST_POINTS = 1 << 13
_MANY_POINTS = 1 << 18
_CLOSE = 0.01
"""From here on, the last answer says better where to tilt to than the sketch."""
_FAIR = 1e-6
"""So close is good enough where there are many points already."""


@dataclass(frozen=True)
class Composed:
    """Pairs of laws, each so many times, composed: δ(ε) and ε(δ) between certified bounds.

    >>> from hubbub.accounting.dominating_pairs import two_points
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

        def ask(below: TiltedCurve, above: TiltedCurve) -> tuple[float, float]:
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

        def ask(below: TiltedCurve, above: TiltedCurve) -> tuple[float, float]:
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
        bell = math.fsum(
            count * cells.mu_squared for cells, count in self.sides if isinstance(cells, GaussianPair)
        )
        for cells, count in self.sides:
            if count and not isinstance(cells, GaussianPair):
                counts[cells] = counts.get(cells, 0) + count
        return [*counts.items(), *([(GaussianPair(bell), 1)] if bell else [])]

    @cached_property
    def _sketch(self) -> Sketch:
        return Sketch.of(self._sides)

    @cached_property
    def _top(self) -> float:
        """No finite loss is larger."""
        return math.fsum(count * cells.span[1] for cells, count in self._sides) * (1 + 4 * _UNIT)

    @cached_property
    def _certain(self) -> tuple[float, float]:
        """The chance of an infinite loss."""
        chance = any_of([(cells.certain, count) for cells, count in self._sides])
        return (1.0, 1.0) if chance >= 1 else (chance * (1 - 16 * _UNIT), min(1.0, chance * (1 + 16 * _UNIT)))

    @cached_property
    def _steps(self) -> tuple[float, bool]:
        """The step that atoms ask for, or 0, and whether everything lies on it."""
        atoms = [cells.atoms for cells, _ in self._sides]
        unit = common_step([own for own in atoms if own.size])
        if not all(cells.discrete for cells, _ in self._sides):
            return unit, False
        if unit == 0:
            return float(alone := all(np.ptp(own) == 0 for own in atoms)), alone
        off = [np.abs(own - own[0] - unit * np.rint((own - own[0]) / unit)).max() for own in atoms]
        return unit, all(most <= 2.0**-46 * np.abs(own).max() for most, own in zip(off, atoms, strict=True))

    def _narrowed(
        self,
        ask: Callable[[TiltedCurve, TiltedCurve], tuple[float, float]],
        epsilon: float,
        likely: float,
        *,
        seek: bool,
    ) -> tuple[float, float]:
        """Ask with more and more points, until the answer is as close as is wanted, or cannot be closer."""
        low, high, last, points = 0.0, math.inf, math.inf, _FIRST_POINTS
        # Many laws are many grids.
        most = max(points, pld.MOST_POINTS // -(-len(self._sides) // 4))
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
            if enough or points >= most or stuck:
                return low, high
            last = gap
            epsilon = high if seek and gap < _CLOSE else epsilon
            # The gap falls with the square of the step.
            more = min(64.0, 1.3 * math.sqrt(gap / self.accuracy))
            points = min(most, points << max(1, math.ceil(math.log2(more))))

    def _curves(self, epsilon: float, likely: float, points: int) -> tuple[TiltedCurve, TiltedCurve]:
        """A lower and an upper curve, good around ε; one and the same where everything lies on one grid."""
        unit, exact = self._steps
        tilt = self._sketch.tilt_for_epsilon(epsilon)
        # What is left out may be a hundredth of what is wanted, also where e^(K − cε) is far above δ.
        peak = self._sketch.moments(tilt)[0] - tilt * epsilon - math.log(likely)
        sure = max(45.0 if exact else 0.0, math.log(100 / self.accuracy) + 1 + max(0.0, peak))
        sketch = self._sketch.cropped(tilt, likely, sure, exact=exact)
        window = sketch.window(tilt, sure)
        laws = [(part.cells, part.times, part.heaviest(tilt), part.within) for part in sketch.parts]
        if exact and window <= unit * pld.MOST_POINTS:
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
        if beside and tilt * above.spread <= KINK:
            # Atoms beside the grid would lose a step when merged, so the lower bound is had from splitting.
            return above, above
        below = [
            (Grid.below(cells, step, origin=at, within=ends, tilt=tilt), times)
            for cells, times, at, ends in laws
        ]
        return Lattice(below).curve(tilt, sure), above
