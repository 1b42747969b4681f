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

from hubbub.loss import lattice
from hubbub.loss.grid import Cells

__all__ = ["Sketch", "common_step"]

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
        low = lattice.reach(lambda s: self.moments(tilt - s)[0] - moment + s * mean, variance, sure)
        high = lattice.reach(lambda s: self.moments(tilt + s)[0] - moment - s * mean, variance, sure)
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
        if unit < 1 / lattice.MOST_POINTS:
            return 0.0
    widest = max(float(np.ptp(atoms)) for atoms in laws)
    return widest / round(widest / (unit * most))
