"""δ(ε) and ε(δ) of any losses on a grid, with as many points as it takes.

Proof: docs/proofs/lattice.md
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from hubbub.loss import lattice
from hubbub.loss.curve import KINK, Curve
from hubbub.loss.grid import Cells, Grid
from hubbub.loss.lattice import Lattice, any_of
from hubbub.loss.pairs import Bell
from hubbub.loss.sampled import Uncertified
from hubbub.loss.sketch import Sketch, common_step

__all__ = ["Composed"]

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
        self, ask: Callable[[Curve, Curve], tuple[float, float]], epsilon: float, likely: float, *, seek: bool
    ) -> tuple[float, float]:
        """Ask with more and more points, until the answer is as close as is wanted, or cannot be closer."""
        low, high, last, points = 0.0, math.inf, math.inf, _FIRST_POINTS
        # Many laws are many grids.
        most = max(points, lattice.MOST_POINTS // -(-len(self._sides) // 4))
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
        if exact and window <= unit * lattice.MOST_POINTS:
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
