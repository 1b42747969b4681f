"""Pairs made of other pairs: bounded ranges, samples of fixed size, groups in a sample.

Proof: docs/proofs/pairs.md
"""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from hubbub.loss.cells import Masses, Smooth, within
from hubbub.loss.pairs import Atoms, Bell, Mixed

__all__ = ["Group", "Mirrored", "Range", "mirrored"]

Doubles = NDArray[np.float64]

_UNIT = 2.0**-53
_TABLE = 4096


@dataclass(frozen=True)
class Range(Smooth):
    """The worst of all whose losses lie in one interval of length `width`: a density e^(L/2) on ±width.

    >>> Range(1.0).masses(np.array([-1.0, 0.0, 1.0])).p.round(4)
    array([0.3775, 0.6225])
    """

    width: float

    @property
    def span(self) -> tuple[float, float]:
        """No loss is beyond ±width."""
        most = self.width * (1 + 16 * _UNIT)
        return -most, most

    @property
    def outline(self) -> Doubles:
        """Losses evenly over the whole, and closer at both ends."""
        return within(self.width)

    def masses(self, edges: Doubles) -> Masses:
        """P- and Q-mass of losses in (edges[k], edges[k+1]]."""
        w = self.width
        inner = edges.clip(-w, w)
        left, right = inner[:-1], inner[1:]
        share = np.expm1((left - right) / 2) / math.expm1(-w)
        p, q = share * np.exp((right - w) / 2), share * np.exp(-(left + w) / 2)
        accuracy = np.full(p.size, _UNIT * (24 + 2 * min(w, 700.0)))
        return Masses(p, q, left / 2 + right / 2, accuracy, np.full(p.size, 16 * _UNIT * min(4 * w, w + 1)))


def mirrored(base: Bell | Atoms | Mixed) -> "Atoms | Mirrored":
    """A pair's losses above 0, and their mirror image below: what is left has no loss.

    >>> mirrored(Atoms((1.0, -1.0), (0.5, 0.1), (0.2, 0.3))).losses
    (1.0, -1.0, 0.0)
    """
    if isinstance(base, Mixed) and base._atoms:  # noqa: SLF001
        base = base._atoms  # noqa: SLF001
    if not isinstance(base, Atoms):
        return Mirrored(base)
    positive = [(loss, p, q) for loss, p, q in zip(base.losses, base.p, base.q, strict=True) if loss > 0]
    losses, p, q = zip(*positive, strict=True) if positive else ((), (), ())
    rest = max(0.0, 1 - math.fsum(p) - math.fsum(q) - base.certain)
    return Atoms(
        (*losses, *(-loss for loss in losses), 0.0),
        (*p, *q, rest),
        (*q, *p, rest),
        base.certain,
        base.certain,
        base.accuracy + 4 * _UNIT,
        base.precision,
        base.open,
    )


@dataclass(frozen=True)
class Mirrored:
    """Losses above 0 as a pair has them, and their mirror image below 0: what is left has no loss."""

    base: Bell | Mixed

    @property
    def certain(self) -> float:
        """No loss is infinite."""
        return self.base.certain

    @property
    def span(self) -> tuple[float, float]:
        """As far down as up."""
        top = self.base.span[1]
        return -top, top

    @property
    def atoms(self) -> Doubles:
        """Those of the pair, on both sides, and 0."""
        above = self.base.atoms[self.base.atoms > 0]
        return np.concatenate([-above[::-1], [0.0], above])

    @property
    def discrete(self) -> bool:
        """As the pair's."""
        return self.base.discrete

    @property
    def outline(self) -> Doubles:
        """The pair's, on both sides."""
        above = self.base.outline[self.base.outline > 0]
        return np.concatenate([-above[::-1], [0.0], above])

    @cached_property
    def _rest(self) -> tuple[float, float]:
        """The mass of no loss, and how far off it may be."""
        whole = self.base.masses(np.array([0.0, math.inf]))
        p, q = float(whole.p[0]), float(whole.q[0])
        return max(0.0, 1 - p - q), (p + q) * (float(whole.accuracy[0]) + 4 * _UNIT)

    def masses(self, edges: Doubles) -> Masses:
        """P- and Q-mass of losses in (edges[k], edges[k+1]]."""
        up = self.base.masses(edges.clip(min=0.0))
        # Of −L what lies in (a, b] is L in [−b, −a).
        with np.errstate(over="ignore"):
            turned = np.nextafter(-edges[::-1].clip(max=0.0), -math.inf).clip(min=0.0)
        down = self.base.masses(turned)
        low = Masses(down.q[::-1], down.p[::-1], -down.loss[::-1], down.accuracy[::-1], down.unsure[::-1])
        p, q = up.p + low.p, up.q + low.q
        holds_none = (edges[:-1] < 0) & (edges[1:] >= 0)
        rest, off = self._rest
        p, q = p + np.where(holds_none, rest, 0.0), q + np.where(holds_none, rest, 0.0)
        loss = np.where(edges[:-1] >= 0, up.loss, low.loss)
        accuracy = np.maximum(up.accuracy, low.accuracy) + 4 * _UNIT
        unsure = np.where(edges[:-1] >= 0, up.unsure, low.unsure)
        for k in np.flatnonzero(holds_none):
            # From both sides and no loss: P − Q is small beside either, and is summed by itself.
            sides = [(float(side.p[k]), float(side.loss[k])) for side in (up, low) if side.p[k] > 0]
            apart = math.fsum(-mass * math.expm1(-value) for mass, value in sides)
            loss[k] = math.log1p(apart / q[k]) if q[k] > 0 and apart > -q[k] else 0.0
            widest = max((abs(value) for _, value in sides), default=0.0)
            missed = off / p[k] if p[k] > 0 else 1.0
            accuracy[k] += missed
            unsure[k] = float(up.unsure[k] + low.unsure[k]) + (missed + 32 * _UNIT) * min(1.0, widest)
        return Masses(p, q, loss, accuracy, unsure)


@dataclass(frozen=True)
class Group(Smooth):
    """`size` units in one Poisson sample of a Gaussian mechanism: it moves by as many μ as were sampled.

    P is the mixture Σ Bin(size, rate)(j)·N(jμ, 1) against N(0, 1), or the other way round if `added`.

    >>> Group(0.5, 1.0, 1, added=False).span == Mixed(Bell(1.0), 0.5, added=False).span
    True
    """

    rate: float
    mu_squared: float
    size: int
    added: bool

    @cached_property
    def _weights(self) -> Doubles:
        chances = [
            math.comb(self.size, j) * self.rate**j * (1 - self.rate) ** (self.size - j)
            for j in range(self.size + 1)
        ]
        return np.array(chances)

    @property
    def span(self) -> tuple[float, float]:
        """From no one sampled up, or from its negative down."""
        none = self.size * math.log1p(-self.rate) if self.rate < 1 else -math.inf
        none -= 16 * _UNIT * abs(none) if math.isfinite(none) else 0.0
        return (-math.inf, -none) if self.added else (none, math.inf)

    @cached_property
    def _table(self) -> tuple[Doubles, Doubles]:
        """Scores, and the log-ratio at each."""
        mu = math.sqrt(self.mu_squared)
        score = mu * np.linspace(-42.0, 42.0 + self.size * mu, _TABLE)
        return score, self._mixed(self._alone(score))[0]

    @property
    def outline(self) -> Doubles:
        """Losses at scores evenly apart."""
        ratio = np.unique(self._table[1][::4])
        return -ratio[::-1] if self.added else ratio

    def masses(self, edges: Doubles) -> Masses:
        """P- and Q-mass of losses in (edges[k], edges[k+1]]."""
        score = self._score(-edges[::-1] if self.added else edges)
        # Of j sampled, the loss alone is jx − j²μ²/2 at the score x, which is N(0, μ²) under Q.
        alone = [
            Bell(j * j * self.mu_squared).masses(j * score - j * j * self.mu_squared / 2)
            for j in range(1, self.size + 1)
        ]
        plain = alone[0]
        ratio, share = self._mixed(np.stack([np.zeros(plain.p.size), *(one.loss for one in alone)]))
        both = self._weights[0] * plain.q + sum(
            w * one.p for w, one in zip(self._weights[1:], alone, strict=True)
        )
        errors = np.stack([np.zeros(plain.p.size), *(one.unsure for one in alone)])
        unsure = (share * errors).sum(axis=0) + 64 * _UNIT * self.size * (1 + np.abs(ratio))
        accuracy = np.max([one.accuracy for one in alone], axis=0) + 32 * _UNIT * self.size
        if self.added:
            return Masses(plain.q[::-1], both[::-1], -ratio[::-1], accuracy[::-1], unsure[::-1])
        return Masses(both, plain.q, ratio, accuracy, unsure)

    def _mixed(self, losses: Doubles) -> tuple[Doubles, Doubles]:
        """From the loss of each number sampled: the mixture's, ln Σ w_j·e^ℓ_j, and each one's share."""
        small = np.abs(losses).max(axis=0) < 1
        weight = self._weights[:, None]
        with np.errstate(divide="ignore"):
            power = losses + np.log(weight)
        peak = power.max(axis=0)
        share = np.exp(power - peak)
        total = share.sum(axis=0)
        near = np.log1p((weight * np.expm1(np.where(small, losses, 0.0))).sum(axis=0))
        return np.where(small, near, np.log(total) + peak), share / total

    def _alone(self, score: Doubles) -> Doubles:
        """The loss jx − j²μ²/2 of each number j sampled, at a score x."""
        j = np.arange(self.size + 1)[:, None]
        return np.asarray(j * score - j * j * self.mu_squared / 2)

    def _score(self, ratio: Doubles) -> Doubles:
        """The score at which the log-ratio is this, as closely as doubles tell; ±∞ beyond what counts."""
        score, known = self._table
        x = np.interp(ratio, known, score)
        inside = (ratio > known[0]) & (ratio < known[-1])
        for _ in range(8):
            # Newton; the log-ratio is convex and rising, and its slope is the mean number sampled.
            found, share = self._mixed(self._alone(x[inside]))
            slope = np.arange(self.size + 1) @ share
            move = (ratio[inside] - found) / np.maximum(slope, 1e-300)
            x[inside] = (x[inside] + move).clip(score[0], score[-1])
        x = np.where(ratio <= known[0], -math.inf, np.where(ratio >= known[-1], math.inf, x))
        return np.asarray(np.maximum.accumulate(x))
