"""Decay: proved upper bounds of |E[e^(itL)]| of the tilted losses of subsampled Gaussians.

Proof: docs/proofs/fourier.md, "Decay"
"""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from hubbub.accounting.smooth_partitions import ShiftedLines, Window
from hubbub.accounting.subsampled_gaussian import QuadratureNodes, SubsampledGaussians

__all__ = ["DECAY_POINTS", "Decay"]

Doubles = NDArray[np.float64]

_OMITTED_SHARE = 0.12
"""The minorant leaves out this share of the distribution on either side."""
# survives: How many points the core has is free: it bounds what lies between.
DECAY_POINTS = 129


@dataclass(frozen=True)
class Minorant:
    """For each step: a part of mass β with these central moments, and a flat one of mass α.

    So |E[e^(itL)]| ≤ 1 − β·(vt²/2 − m₃t³/6), and ≤ 1 − α·(1 − 2/(t·width)), and ≤ variation/t.
    """

    beta: Doubles
    variance: Doubles
    most: Doubles
    """An upper bound of the variance, which itself is one from below."""
    third: Doubles
    alpha: Doubles
    width: Doubles
    variation: Doubles

    @cached_property
    def turn(self) -> float:
        """Up to here the first bound falls, for every step."""
        with np.errstate(divide="ignore"):
            return float(np.minimum(1.5 * self.variance / self.third, np.sqrt(2 / self.most)).min())

    def near(self, t: Doubles) -> Doubles:
        """The logarithm of the first bound: a row for each step, a column for each t."""
        v, m = self.variance[:, None], self.third[:, None]
        return np.asarray(np.log1p(np.maximum(-1.0, -self.beta[:, None] * (v * t * t / 2 - m * t**3 / 6))))

    def far(self, t: Doubles) -> Doubles:
        """The logarithm of the second and third bound, which fall in t; 0 if they are void."""
        with np.errstate(divide="ignore"):
            flat = np.log1p(-self.alpha[:, None] * np.maximum(0.0, 1 - 2 / (t * self.width[:, None])))
            return np.asarray(np.minimum(flat, np.log(self.variation[:, None] / t)))


class Decay:
    """Upper bounds of the modulus of the tilted transform, all steps together."""

    def __init__(
        self,
        law: SubsampledGaussians,
        nodes: QuadratureNodes,
        near: Window | None = None,
        below: Window | None = None,
    ) -> None:
        self._law, self._nodes, self._near, self._below = law, nodes, near, below

    @cached_property
    def minorant(self) -> Minorant:
        """A part of each step's tilted distribution of which much is known."""
        return minorant(self._law, self._nodes, self._near)

    def log_bound(self, t: Doubles, *, lines: bool = True) -> Doubles:
        """The k-th bounds all from t[k] to t[k+1], the last all from there on; closer with shifted lines."""
        counts = self._law.counts
        if self._below is not None:
            # |ΠM − ΠA| ≤ Σ n·|M − A|, all moduli being at most 1.
            shifted = self._lines
            own = shifted.log_decaying(t, shifted.above(self._below))[0] - self._nodes.moments[:, None]
            bound = np.log(counts)[:, None] + own
            return np.asarray(np.logaddexp.reduce(bound, axis=0))
        after = np.append(t[1:], math.inf)
        m = self.minorant
        each = np.minimum(m.far(t), np.where(after <= m.turn, m.near(np.minimum(t, m.turn)), 0.0))
        if lines:
            each = np.minimum(each, self._shifted(t))
        return np.asarray(counts @ np.minimum(each, 0.0))

    @cached_property
    def _lines(self) -> ShiftedLines:
        """Some lines to shift to."""
        law, nodes = self._law, self._nodes
        # survives: Any line gives a bound; which ones are tried only decides how close it is.
        share = np.array([0.12, 0.3, 0.7, 1.3, 2.0, 2.8])[:, None]
        v = np.minimum(share, 3 * share / law.sigmas)
        if self._near is not None:
            narrow = np.array([1.0, 2.0, 3.5, 5.0])[:, None] * self._near.width / law.sigmas**2
            v = np.concatenate([v, np.minimum(2.8, narrow)])
        return ShiftedLines(law, nodes.tilt, v, near=self._near, ends=(nodes.x[:, 0], nodes.x[:, -1]))

    def _shifted(self, t: Doubles) -> Doubles:
        """ln|M| ≤ ln(mass of A + |B|) for the best of some splits, and unsplit."""
        nodes, law, lines = self._nodes, self._law, self._lines
        passed = np.cumsum(nodes.chance, axis=1)
        row = np.arange(law.sigmas.size)
        splits = [
            Window(
                nodes.x[row, np.minimum((passed < share).sum(axis=1), nodes.x.shape[1] - 1)], law.split_width
            )
            for share in (0.9, 0.3, 0.03)
        ]
        whole, *above = (
            own - nodes.moments[:, None]
            for own in lines.log_decaying(t, 0.0, *(lines.above(split) for split in splits))
        )
        best = whole
        for split, own in zip(splits, above, strict=True):
            mass = (nodes.chance * split.below(nodes.x)).sum(axis=1) * (1 + 1e-12) + nodes.lost
            with np.errstate(divide="ignore"):
                best = np.minimum(best, np.logaddexp(np.log(mass)[:, None], own))
        return np.asarray(best)


def minorant(law: SubsampledGaussians, nodes: QuadratureNodes, near: Window | None) -> Minorant:
    """A minorant of the middle of each step's tilted distribution, which makes its transform decay."""
    tilt = nodes.tilt
    passed = np.cumsum(nodes.chance, axis=1)
    row = np.arange(law.sigmas.size)
    # survives: Which middle part of the law is taken is free.
    left = nodes.x[row, (passed < _OMITTED_SHARE).sum(axis=1)]
    # survives: Which middle part of the law is taken is free.
    right = nodes.x[row, np.minimum((passed < 1 - _OMITTED_SHARE).sum(axis=1), nodes.x.shape[1] - 1)]
    x = left[:, None] + (right - left)[:, None] * np.linspace(0, 1, DECAY_POINTS)
    gap = (right - left) / (DECAY_POINTS - 1)
    s2 = (law.sigmas**2)[:, None]
    log_ratio = law.log_ratio(x)
    log_density = law.log_density(x, tilt, log_ratio) - nodes.moments[:, None]
    if near is not None:
        with np.errstate(divide="ignore"):
            log_density = log_density + np.log(near.below(x))
    # Between two points a logarithm that bends upwards by no more than `bend` dips by no more than this.
    # survives: A lower bound that is lower is still one.
    dip = gap**2 / 8 * (1 + tilt) / 4 * law.sigmas**-4 + 1e-9
    least = np.exp(np.minimum(log_density[:, 1:], log_density[:, :-1]) - dip[:, None])
    mass = least * gap[:, None]
    beta = mass.sum(axis=1)
    # survives: It guards a division by 0 of a law without a middle, of one step or of all.
    if not beta.min() > 0:
        zero, huge = np.zeros(beta.size), np.full(beta.size, math.inf)
        return Minorant(zero, zero + 1e-300, huge, huge, zero, zero + 1e-300, huge)
    middle = (log_ratio[:, 1:] + log_ratio[:, :-1]) / 2
    blur = np.diff(log_ratio, axis=1).max(axis=1) / 2
    distance = np.abs(middle - (mass * middle).sum(axis=1)[:, None] / beta[:, None])
    deviation = np.sqrt((mass * distance**2).sum(axis=1) / beta)
    third = ((mass * distance**3).sum(axis=1) / beta) ** (1 / 3)
    # The density of the loss is that of x over the loss's slope p/σ², p = q·e^u/r.
    slope = np.exp(np.log(law.rates)[:, None] + (x - 0.5) / s2 - log_ratio) / s2
    with np.errstate(divide="ignore"):
        flat = (least / np.maximum(slope[:, 1:], slope[:, :-1])).min(axis=1)
    width = log_ratio[:, -1] - log_ratio[:, 0]
    # survives: The blur is less than the deviation.
    variance, most = np.maximum(deviation - blur, 0.0) ** 2, (deviation + blur) ** 2
    # survives: A slack of 1e-9 stands for rounding of some 1e-14; turned round it is less than
    # a test can see.
    alpha = np.minimum(flat * width, 1.0) * (1 - 1e-9)
    variation = _total_variation(law, nodes) if near is None else np.full(beta.size, math.inf)
    # survives: A slack of 1e-9 stands for rounding of some 1e-14; turned round it is less than
    # a test can see.
    return Minorant(
        beta * (1 - 1e-9),
        np.maximum(variance, 1e-300),
        np.maximum(most, 1e-300),
        np.maximum((third + blur) ** 3, 1e-300),
        alpha,
        np.maximum(width, 1e-300),
        variation,
    )


def _total_variation(law: SubsampledGaussians, nodes: QuadratureNodes) -> Doubles:
    """An upper bound of the total variation of each tilted loss's density; infinite if unknown.

    Its logarithm is concave in x if a unit is added at a tilt of 1 or more; else it rises between two points
    above both by no more than gap²/8σ².
    """
    s2, tilt = (law.sigmas**2)[:, None], nodes.tilt
    is_concave = law.added and tilt >= 1
    if is_concave:
        x, more = _hilltop(law, tilt)
    else:
        low, high = -1.0 - (tilt if law.added else 0.0), 0.0 if law.added else 1.0 + tilt
        gap = (high - low) / 512
        x = np.broadcast_to(low + gap * np.arange(513), (law.sigmas.size, 513))
        more = gap**2 / (8 * s2[:, 0])
    log_ratio = law.log_ratio(x)
    share = np.log(law.rates)[:, None] + (x - 0.5) / s2 - log_ratio
    with np.errstate(divide="ignore", over="ignore"):
        highest = (law.log_density(x, tilt, log_ratio) - share).max(axis=1) - nodes.moments
        # Two hills at most, and they lie within these points.
        hills = 2 if is_concave else 4
        return np.asarray(hills * np.exp(highest + np.log(s2[:, 0]) + more) * (1 + 1e-9))


def _hilltop(law: SubsampledGaussians, tilt: float) -> tuple[Doubles, Doubles]:
    """About where the density of an added unit's tilted loss is largest, and how much its ln may rise."""
    s2 = (law.sigmas**2)[:, None]

    def slope(x: Doubles) -> Doubles:
        return np.asarray((1 - tilt) * law.share(x, law.log_ratio(x)) - 1 - x)

    low, high = np.full_like(s2, -1 - tilt), np.zeros_like(s2)
    # survives: How close it comes is free: what lies between is counted.
    for _ in range(60):
        middle = (low + high) / 2
        rises = slope(middle) > 0
        low, high = np.where(rises, middle, low), np.where(rises, high, middle)
    rise = np.maximum(0.0, slope(low)) + 1e-9 * (1 + tilt)
    return low, (rise * (high - low) / s2)[:, 0] + 1e-9
