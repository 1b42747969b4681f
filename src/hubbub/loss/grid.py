"""A law on a grid of losses: split onto the points above it, merged around them below it.

A loss enters as cells: the P-mass of the outcomes whose loss lies between two neighbouring points of the
grid, and the loss of all of them taken as one. Splitting a cell onto its two ends so that both P and Q are
kept can only help the adversary (connect the dots): an upper bound, off by O(h²). Merging the outcomes
around a point into one can only hurt her: a lower bound, off by O(h²), too. Where all losses lie on one
grid, both are the truth.

Proof: docs/proofs/lattice.md
"""

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from hubbub.loss.pairs import LEAST, Masses
from hubbub.loss.sampled import Uncertified

__all__ = ["Cells", "Grid"]

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
