"""Poisson-subsampled Gaussian steps: their tilted loss on nodes, with rigorous quadrature.

P is the mixture (1−q)·N(0, σ²) + q·N(1, σ²) against Q = N(0, σ²) when a unit is removed, and the two
change places when it is added: L = ±ln r(x) with r(x) = 1 − q + q·e^((2x−1)/2σ²).

Outcomes are divided smoothly, so that transforms keep decaying: into those far out, of which it is known what
a composition with one of them contributes, and those `near`; and these, if asked, into the ones `below`,
close to the atom at ln(1−q), and the others.

Proof: docs/proofs/fourier.md
"""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from hubbub.accounting.float_bounds import Uncertified, log1p, log_mixture
from hubbub.accounting.phase_sums import DIRECT, block_products, rotations
from hubbub.accounting.smooth_partitions import (
    TAIL_DEVIATIONS,
    ShiftedLines,
    Window,
    even_nodes,
    normal_cdf,
    polar,
)

__all__ = ["QuadratureNodes", "SubsampledGaussians"]

Complexes = NDArray[np.complex128]
Doubles = NDArray[np.float64]

_UNIT = 2.0**-53
# survives: How many nodes are summed at a time changes the sum by rounding only.
_BLOCK = 32
"""Nodes summed at a time."""
# survives: From how much work on it is left to others is free.
MAX_WORK = 1 << 29
"""Nodes times points: what takes longer than about a second is uncertified."""
# survives: How many numbers are kept at a time changes none of them.
MAX_BATCH, MAX_ROWS = 1 << 18, 1 << 10
"""Numbers and rows held in memory at a time."""
# survives: From how much work on it is left to others is free.
MAX_NODES, _MAX_NODES_PER_STEP = 2_000_000, 20_000
_MAX_SCAN_NODES = 3000
# survives: From how many different steps on bounds in closed form are taken is free.
_FEW_ROWS = 16
# survives: How small the error of quadrature shall be is free: it is bounded, and added.
NODES_EXPONENT = 36.0
# survives: From how large an error on it is left to others is free.
MAX_LOST = 0.01
# survives: From how many nodes on another line is taken is free.
MANY_NODES = 500
NEGLIGIBLE = 48.0
"""Nodes end where the tilted density is below e^-48 of its peak; over the number of steps if divided."""


@dataclass(frozen=True)
class SubsampledGaussians:
    """Steps with sampling rates q, standard deviations σ for sensitivity 1, and counts."""

    rates: Doubles
    sigmas: Doubles
    counts: Doubles
    added: bool

    def log_ratio(self, x: Doubles) -> Doubles:
        """Ln r at outcomes x, one row for each step."""
        return log_mixture((x - 0.5) / (self.sigmas**2)[:, None], self.rates[:, None])

    def ratio_units(self, log_ratio: Doubles) -> Doubles:
        """By how many units ln r may be off: e^u is off by units of u, which may be ln(1/q)."""
        return np.asarray((28 - 4 * np.log(self.rates))[:, None] * np.abs(log_ratio))

    def share_units(self, x: Doubles, log_ratio: Doubles) -> Doubles:
        """By how many units of itself the chance of having been sampled may be off."""
        log_rate = np.log(self.rates)[:, None]
        power = (x - 0.5) / (self.sigmas**2)[:, None]
        rounding = 4 * np.abs(power) - 8 * log_rate + 2 * np.abs(log_rate + power) + 2 * np.abs(log_ratio) + 8
        return np.asarray(rounding + self.ratio_units(log_ratio))

    def loss(self, log_ratio: Doubles) -> Doubles:
        """L = ln r if a unit is removed, −ln r if it is added."""
        return -log_ratio if self.added else log_ratio

    def share(self, x: Doubles, log_ratio: Doubles) -> Doubles:
        """q·e^u/r at outcomes x: the chance that the unit was sampled."""
        odds = np.log(self.rates)[:, None] + (x - 0.5) / (self.sigmas**2)[:, None]
        return np.asarray(np.exp(np.minimum(0.0, odds - log_ratio)))

    def log_density(self, x: Doubles, tilt: float, log_ratio: Doubles) -> Doubles:
        """The logarithm of φ_σ(x)·e^(tilt·L)·dP/dN(0, σ²)."""
        s = self.sigmas[:, None]
        power = -tilt * log_ratio if self.added else (1 + tilt) * log_ratio
        return power - x * x / (2 * s * s) - np.log(s * math.sqrt(2 * math.pi))

    def outcome(self, log_ratio: Doubles) -> Doubles:
        """The x with ln r(x) = log_ratio, one for each step, rounded up; −∞ if there is none."""
        with np.errstate(all="ignore"):
            excess = np.expm1(np.minimum(log_ratio, 600.0)) / self.rates
            excess = excess + 1 + 2.0**-48 * (1 + np.abs(excess))
            odds = np.where(log_ratio > 600, log_ratio - np.log(self.rates), np.log(np.maximum(excess, 0.0)))
            x = 0.5 + self.sigmas**2 * odds
            return np.asarray(np.where(np.isfinite(x), x + 2.0**-40 * (1 + np.abs(x)), x))

    @cached_property
    def tops(self) -> Doubles:
        """−ln(1 − q): how far the loss may lie below 0 (removed) or above (added), rounded up."""
        with np.errstate(divide="ignore"):
            return np.asarray(-np.log1p(-self.rates) * (1 + 2.0**-48))

    def ends(self, tilt: float) -> tuple[Doubles, Doubles]:
        """Beyond these the tilted density falls at least like e^(−9.5·|x|/σ)."""
        s = self.sigmas
        low = -TAIL_DEVIATIONS * s - (tilt if self.added else 0.0)
        high = TAIL_DEVIATIONS * s + (0.0 if self.added else 1.0 + tilt)
        return low, high

    def outline(self, tilt: float) -> tuple[Doubles, Doubles]:
        """About where the tilted density counts: what an added unit gains is at most c·ln(1/(1−q))."""
        low, high = self.ends(tilt)
        if self.added:
            low = np.maximum(low, -self.sigmas * (1 + np.sqrt(2 * (tilt * np.minimum(self.tops, 1e9) + 60))))
        return low, high

    def bulk(self, tilt: float, window: Window | None) -> tuple[Doubles, Doubles, NDArray[np.bool_]]:
        """Between these the tilted density counts: found on a grid, not proved; and where K is small."""
        low, high = self.outline(tilt)
        more = 0.0
        if window is not None:
            # What lies outside is missed by every step, and may be much of what is rare.
            more = math.log1p(self.counts.sum())
            high = np.maximum(low + self.sigmas, np.minimum(high, window.at + 14 * window.width))
        count = min(4096, 16 + int(np.ceil(((high - low) / (0.4 * self.sigmas)).max())))
        x = low[:, None] + (high - low)[:, None] * np.linspace(0, 1, count)
        density = self.log_density(x, tilt, self.log_ratio(x))
        if window is not None:
            with np.errstate(divide="ignore"):
                density = density + np.log(window.below(x))
        is_large = density > density.max(axis=1)[:, None] - NEGLIGIBLE - more
        first, last = is_large.argmax(axis=1), count - 1 - is_large[:, ::-1].argmax(axis=1)
        row = np.arange(low.size)
        first, last = x[row, np.maximum(first - 1, 0)], x[row, np.minimum(last + 1, count - 1)]
        # Where K is small, e^K − 1 is summed, which needs the whole normal law.
        normal = math.sqrt(TAIL_DEVIATIONS**2 + 2 * more) * self.sigmas
        top = normal if window is None else np.minimum(normal, window.at + TAIL_DEVIATIONS * window.width)
        peak = density.max(axis=1)
        moment = np.log(np.exp(density - peak[:, None]).sum(axis=1) * (x[:, 1] - x[:, 0])) + peak
        small = np.abs(moment) < 1
        return (
            np.where(small, np.minimum(first, -normal), first),
            np.where(small, np.maximum(last, top), last),
            small,
        )

    def _scan_nodes(self, tilts: Doubles, near: Window | None) -> tuple[Doubles, Doubles, int]:
        """Nodes for cumulants at some tilts, normal weights there, and how many tilts they serve."""
        s = self.sigmas
        v = np.minimum(2.5, 7.0 / s)
        step = 2 * math.pi * v * s * s / (18 + math.log1p(self.counts.sum()) + (v * s) ** 2 / 2)
        step = np.minimum(0.7 * s, step)
        if near is not None:
            step = np.minimum(step, 0.9 * near.width)
        for last in range(tilts.size, 0, -1):
            low, high = self.outline(float(tilts[last - 1]))
            if near is not None:
                high = np.maximum(low + s, np.minimum(high, near.at + 14 * near.width))
            count = int(np.ceil(((high - low) / step).max())) + 1
            if count <= _MAX_SCAN_NODES and count * last * s.size <= 1 << 23:
                break
        else:
            # A sum of that length is left to others at any tilt.
            if count > _MAX_NODES_PER_STEP:
                raise Uncertified
        step = (high - low) / (count - 1)
        x = low[:, None] + step[:, None] * np.arange(count)
        weight = np.log(step / (s * math.sqrt(2 * math.pi)))[:, None] - x * x / (2 * (s * s)[:, None])
        return x, weight, last

    def moments_below(self, tilts: Doubles, at: Doubles, width: float) -> Doubles:
        """K of outcomes below some divisions (rows) at some tilts (columns), unproved; one kind of step."""
        x, weight, last = self._scan_nodes(tilts, Window(at.max(keepdims=True), np.full(1, width)))
        loss = self.log_ratio(x)[0]
        power = (1 + tilts[:last, None]) * loss + weight[0]
        out = np.full((at.size, tilts.size), np.inf)
        with np.errstate(divide="ignore"):
            shares = np.log(normal_cdf((at[:, None] - x) / width))
        peaks = self._peak_beyond(0, 1 + tilts[:last], at[:, None], width)
        for row, share, beyond in zip(out, shares, peaks, strict=True):
            whole = power + share
            peak = whole.max(axis=1)
            moment = np.log(np.exp(whole - peak[:, None]).sum(axis=1)) + peak
            moment[beyond > moment - NEGLIGIBLE] = np.inf
            row[:last] = float(self.counts[0]) * moment
        return out

    def _peak_beyond(self, row: int, exponents: Doubles, at: Doubles | float, width: float) -> Doubles:
        """About the largest log density far above a division, at some tilts: one that counts is of no use."""
        v, w = self.sigmas[row] ** 2, width**2
        rise = 0.0 if self.added else exponents
        # There the ratio is about q·e^u: the top of a parabola.
        far = np.maximum(at + 16 * width, (rise / v + at / w) / (1 / v + 1 / w))
        ratio = log_mixture((far - 0.5) / v, self.rates[row])
        return np.asarray(
            (-ratio if self.added else ratio) * exponents - far**2 / (2 * v) - (far - at) ** 2 / (2 * w)
        )

    def cumulants(self, tilts: Doubles, near: Window | None) -> Doubles:
        """K, K′ and K″ of all steps together at rising tilts, unproved; at fewer where that takes long."""
        s = self.sigmas
        x, weight, last = self._scan_nodes(tilts, near)
        tilts = tilts[:last]
        log_ratio = self.log_ratio(x)
        missing = np.zeros(s.size)
        if near is not None:
            with np.errstate(divide="ignore"):
                weight = weight + np.log(near.below(x))
            missing = normal_cdf(-near.at / np.sqrt(s * s + near.width**2))
        out = np.zeros((3, last))
        loss = -log_ratio if self.added else log_ratio
        exponents = tilts if self.added else 1 + tilts
        for k in range(s.size):
            power = exponents[:, None] * loss[k]
            whole = power + weight[k]
            peak = whole.max(axis=1)
            chance = np.exp(whole - peak[:, None])
            total = chance.sum(axis=1)
            moment = np.log(total) + peak
            small = np.abs(moment) < 1
            if small.any():
                excess = np.exp(weight[k]) * np.expm1(np.minimum(power[small], 600.0))
                moment[small] = np.log1p(excess.sum(axis=1) - missing[k])
            if near is not None:
                most = self._peak_beyond(k, exponents, float(near.at[k]), float(near.width[k]))
                moment[most > moment - 100] = np.inf
            mean = chance @ loss[k] / total
            square = chance @ (loss[k] ** 2) / total
            spread = np.maximum(square - mean**2, 1e-14 * square)
            out += self.counts[k] * np.stack([moment, mean, spread])
        return out

    @property
    def split_width(self) -> Doubles:
        """The width of a split close to the atom."""
        return np.minimum(0.3 * self.sigmas**2, 0.5 * self.sigmas)

    def _growth(
        self,
        tilt: float,
        v: Doubles,
        reach: float,
        *,
        ends: tuple[Doubles, Doubles],
        parts: tuple[Window | None, Window | None],
        small: NDArray[np.bool_],
    ) -> tuple[ShiftedLines, Doubles, Doubles, ShiftedLines | None]:
        """Lines, the logarithms of integrals on them, the largest of all parts and above; normal lines."""
        near, below = parts
        lines = ShiftedLines(self, tilt, v, near=near, ends=ends)
        growth = above = lines.log_growing(reach)
        if below is not None:
            growth = np.maximum(growth, lines.log_growing(reach, lines.below(below)))
            above = lines.log_growing(reach, lines.above(below))
        normal = None
        if small.any():
            # There, that the normal law sums to 1 is used, too.
            normal = ShiftedLines(self, 0.0 if self.added else -1.0, v, near=near, ends=ends)
            growth = np.maximum(growth, np.where(small, normal.log_growing(0.0), -math.inf))
        return lines, growth, above, normal

    def _plain_quadrature(
        self, tilt: float, reach: float, log_accuracy: float, most: float
    ) -> "QuadratureNodes | None":
        """Nodes with a bound in closed form, which is soon computed: |r| ≤ r(x), |arg r| ≤ v on the lines.

        The integrand on Im x = ±vσ² is at most e^(v²σ²/2 + v·reach)·e^K, times cos(v/2)^−c if added.
        None if a step needs more than `most` nodes.
        """
        s = self.sigmas
        # survives: Any strip below π gives a bound of the error; which ones are tried only decides
        # how many nodes there are.
        v = np.minimum(np.array([[3.0], [2.0], [1.0], [0.4], [0.15]]), 8.5 / s)
        growth = v * v * s * s / 2 + v * reach
        if self.added:
            growth = growth - tilt * np.log(np.cos(v / 2))
        step = np.minimum((2 * math.pi * v * s * s / (log_accuracy + growth)).max(axis=0), 0.7 * s)
        low, high = self.ends(tilt)
        count = int(np.ceil(((high - low) / step).max())) + 2
        if count > most:
            return None
        if count > _MAX_NODES_PER_STEP or count * s.size > MAX_NODES:
            raise Uncertified
        x, step = even_nodes(low, high, count)
        size = (growth - 2 * math.pi * v * s * s / step).min(axis=0) + math.log(4.01)
        small = (1 + tilt) * np.abs(self.log_ratio(x)).max(axis=1) < 500
        return QuadratureNodes(
            self,
            tilt,
            x=x,
            turn=0 * s,
            log_error=(size, size),
            log_beyond=None,
            small=small,
            near=None,
            below=None,
        )

    def quadrature(
        self,
        tilt: float,
        reach: float,
        *,
        near: Window | None = None,
        below: Window | None = None,
        splits: bool = False,
        closed: bool = False,
    ) -> "QuadratureNodes":
        """Nodes at which E[e^(zL)] is summed, for Re z = tilt and |Im z| ≤ reach.

        Args:
            tilt: Re z.
            reach: The largest |Im z|.
            near: The division below which outcomes are summed.
            below: Another division, below which outcomes are summed by themselves.
            splits: Nodes for any division close to the atom.
            closed: A bound in closed form, which is sooner computed, unless it needs many nodes.

        The trapezoid rule of step h errs by no more than the integrals of the integrand's modulus on the two
        lines Im x = ±vσ², over e^(2πvσ²/h) − 1, for any v < π.
        """
        s = self.sigmas
        # survives: How small the error shall be is free: it is bounded, and added.
        log_accuracy = NODES_EXPONENT + math.log(1 + float(self.counts.sum()))
        many = s.size > _FEW_ROWS
        if near is None and below is None and not splits and (closed or many):
            nodes = self._plain_quadrature(tilt, reach, log_accuracy, math.inf if many else MANY_NODES)
            if nodes is not None:
                return nodes
        low, high, small = self.bulk(tilt, near)
        narrow = s if near is None else np.minimum(s, near.width)
        if below is not None or splits:
            narrow = np.minimum(narrow, self.split_width if below is None else below.width)
        # survives: Any strip below π gives a bound of the error; which ones are tried only decides
        # how many nodes there are.
        most = np.minimum(3.0, 8.5 * narrow / s**2)
        least = np.minimum(most / 5, 15 / max(reach, 1e-9))
        v = np.concatenate([np.zeros((1, s.size)), np.geomspace(most, least, 5 if reach else 2)])
        ends, parts = (low, high), (near, below)
        lines, growth, above, normal = self._growth(tilt, v, reach, ends=ends, parts=parts, small=small)
        moment = lines.log_growing(0.0)[0]
        if splits:
            # |Φ| of any split of this width on the line.
            growth = growth + (v * s * s / self.split_width) ** 2 / 2
        steps = 2 * math.pi * v * s * s / (log_accuracy + np.maximum(0.0, growth - moment))
        best, row = steps.argmax(axis=0), np.arange(s.size)
        step, size, strip = np.minimum(steps[best, row], 0.7 * s), growth[best, row], v[best, row]
        above = above[best, row]
        turn, edges = np.zeros(s.size), [0]
        if reach and not ((high - low) / step).max() < MANY_NODES:
            # On a line where e^(itL) decays, its oscillations need no more nodes the larger t is.
            # survives: Any such line is valid; which ones are tried only decides how many nodes there are.
            turns = np.minimum(1.4, 1.5 * narrow / s**2) * np.array([[1.0], [0.5], [0.2], [0.06]])
            v = np.concatenate([0 * turns[:1], 2 * turns])
            lines, growth, above, normal = self._growth(tilt, v, 0.0, ends=ends, parts=parts, small=small)
            growth, above = np.maximum(growth[0], growth[1:]), np.maximum(above[0], above[1:])
            steps = 2 * math.pi * turns * s * s / (log_accuracy + np.maximum(0.0, growth - moment))
            k = int((((high - low) / steps).max(axis=1)).argmin())
            turn, size, above, edges = turns[k], growth[k], above[k], [0, k + 1]
            step, strip = np.minimum(steps[k], 0.7 * s), turn
        if not step.min() > 0:
            raise Uncertified
        count = int(min(1e9, np.ceil(((high - low) / step).max()))) + 2
        if count > _MAX_NODES_PER_STEP or count * s.size > MAX_NODES:
            raise Uncertified
        x, step = even_nodes(low, high, count)
        # Two lines, and twice: that the normal law sums to 1 is used, too.
        fall = 2 * math.pi * strip * s * s / step - math.log(4.01)
        beyond = lines.log_beyond(step)[edges].max(axis=0)
        if normal is not None:
            beyond = np.maximum(beyond, np.where(small, normal.log_beyond(step)[0], -math.inf))
        return QuadratureNodes(
            self,
            tilt,
            x=x,
            turn=turn,
            log_error=(size - fall, above - fall),
            log_beyond=beyond,
            small=small,
            near=near,
            below=below,
        )


class QuadratureNodes:
    """The tilted distribution of every step on its quadrature nodes, x or x ± ivσ²."""

    def __init__(
        self,
        law: SubsampledGaussians,
        tilt: float,
        *,
        x: Doubles,
        turn: Doubles,
        log_error: tuple[Doubles, Doubles],
        log_beyond: Doubles | None,
        small: NDArray[np.bool_],
        near: Window | None,
        below: Window | None,
    ) -> None:
        self._law = law
        self.tilt = tilt
        self.x = x
        s, step = law.sigmas, x[:, 1] - x[:, 0]
        log_step = np.log(step / (s * math.sqrt(2 * math.pi)))[:, None]
        log_weight = log_step - x * x / (2 * (s * s)[:, None])
        missing, log_share = np.zeros(s.size), np.zeros_like(x)
        if near is not None:
            missing = normal_cdf(-near.at / np.sqrt(s * s + near.width**2))
            with np.errstate(divide="ignore"):
                log_share = np.log(near.below(x))
        log_ratio = law.log_ratio(x)
        exponent = -tilt if law.added else 1 + tilt
        power = exponent * log_ratio
        whole = power + log_weight + log_share
        highest = whole.max(axis=1)
        self.moments = np.log(np.exp(whole - highest[:, None]).sum(axis=1)) + highest
        self.chance = np.exp(whole - self.moments[:, None])
        # By how many units a weight is off, but for its power.
        # survives: How much is allowed for rounding is free, if it is some units more than is lost.
        units = 5 * x * x / (s * s)[:, None] + 12 * np.abs(log_step)
        units = units if near is None else units + near.units(x)
        size = units + abs(exponent) * law.ratio_units(log_ratio) + 4 * np.abs(power)
        rounding = 4 * np.abs(self.moments) + (self.chance * (size + 160)).sum(axis=1)
        small = small & (np.abs(self.moments) < 1.5)
        if small.any():
            parts = (array[small] for array in (log_weight + log_share, power, units, missing, law.rates))
            self.moments[small], rounding[small] = _small_moments(*parts)
            self.chance[small] = np.exp(whole[small] - self.moments[small, None])
        if not np.isfinite(self.moments).all():
            raise Uncertified
        self.moment = math.fsum(law.counts * self.moments)
        self.mean = (self.chance * law.loss(log_ratio)).sum(axis=1)
        self.variance = (self.chance * (law.loss(log_ratio) - self.mean[:, None]) ** 2).sum(axis=1)
        self._weigh(turn, log_weight, near, size)
        with np.errstate(over="ignore", under="ignore"):
            # Beyond the nodes both laws fall at least like e^(−9.5·|x|/σ) from what they are at the last.
            beyond = (self.chance[:, 0] + self.chance[:, -1]) * (1 + s / (TAIL_DEVIATIONS * step)) + 1e-19
            base = np.zeros(s.size)
            if log_beyond is not None:
                beyond, base = 4 * np.exp(log_beyond - self.moments), self.moments
            # Where shares are tiny their digits are lost, but a large tilt may count them.
            if near is not None:
                beyond += np.exp(power + log_weight + near.log_tiny(x) - self.moments[:, None]).sum(axis=1)
            self.lost, lost_above = (np.exp(log - base) + beyond for log in log_error)
        # Nodes that miss part of the distribution are of no use.
        if not self.lost.max() < MAX_LOST:
            raise Uncertified
        self.error = float(law.counts @ (self.lost + _UNIT * rounding))
        self.above: Complexes | Doubles | None = None
        if below is not None:
            self._divide(below, turn, lost_above)
        size = np.abs(self.weight) * self._size
        self.absolute, self._most = (size * self._away).sum(axis=1), 2 * size.sum(axis=1)
        self._phase = float(law.counts @ (np.abs(self.weight) * self._swing).sum(axis=1))

    @property
    def _side(self) -> float:
        """The side on which e^(itL) decays: above the real line if a unit is removed, below it if added."""
        return -1.0 if self._law.added else 1.0

    def _weigh(self, turn: Doubles, log_weight: Doubles, near: Window | None, size: Doubles) -> None:
        """The weights of the nodes, on the real line or on x ± ivσ², and how many units they lose."""
        law, x, s = self._law, self.x, self._law.sigmas
        self.weight: Complexes | Doubles = self.chance
        self.angle = np.zeros_like(x)
        real = law.log_ratio(x)
        units = law.ratio_units(real)
        if turn.any():
            side, exponent = self._side, -self.tilt if law.added else 1 + self.tilt
            share = law.share(x, real)
            # survives: How much is allowed for rounding is free, if it is some units more than is lost.
            more = share * (4 * law.share_units(x, real) + 100)
            units = units + more
            real, self.angle = polar(real, share, turn[:, None])
            power = exponent * (real + 1j * side * self.angle)
            power = power + log_weight + ((turn * s) ** 2 / 2)[:, None] - 1j * side * turn[:, None] * x
            self.weight = np.exp(power - self.moments[:, None])
            if near is not None:
                self.weight = self.weight * near.shares(x, side * turn * s * s)[0]
            size = size + abs(exponent) * (more + 4 * self.angle)
            size = size + 8 * np.abs(turn[:, None] * x) + 4 * ((turn * s) ** 2)[:, None] + 80
        loss = law.loss(real)
        self._centred = loss - self.mean[:, None]
        self._away = np.abs(self._centred) + self.angle
        # survives: How much is allowed for rounding is free, if it is some units more than is lost.
        self._swing = units + 16 * (np.abs(loss) + self._away)
        # Each sum is of blocks, the products of matrices have three of them; then steps are added.
        # survives: How much is allowed for rounding is free, if it is some units more than is lost.
        self._size = size + 80 + _BLOCK + x.shape[1] / _BLOCK + x.shape[0]

    def _divide(self, below: Window, turn: Doubles, lost: Doubles) -> None:
        """The weights of what lies below a division, and above it."""
        counts = self._law.counts
        share, rest = below.shares(self.x, self._side * turn * self._law.sigmas**2)
        self.above, self.weight = self.weight * rest, self.weight * share
        # Each share is off by units of itself: the one above is not known the worse the further below it is.
        size = self._size + below.units(2 * below.at[:, None] - self.x)
        self._size = self._size + below.units(self.x)
        modulus = np.abs(self.above)
        self.above_mass = float(counts @ modulus.sum(axis=1))
        # What lies above is summed itself, not less its mass: some units of the mass are lost.
        self._above_error = float(counts @ (lost + _UNIT * (modulus * (size + 1000)).sum(axis=1)))
        self._above_phase = float(counts @ (modulus * self._swing).sum(axis=1))

    def log_ratio(self, step: float, count: int) -> tuple[Complexes, Complexes | None]:
        """K(c+it) − K(c) of all steps together, at t = 0, step, 2·step, …

        With a division, that of the outcomes below, ln A, and what the others add to it, ln((A + B)/A).
        """
        # With D(t) = e^(itL) − 1, D(a + b) = D(a) + D(b) + D(a)·D(b): few a's and b's give all t, by products
        # of matrices, and no digits are lost where D is small.
        if self.chance.size * count > MAX_WORK:
            raise Uncertified
        # survives: Into how many near and far angles it is divided is free: all sums of both are
        # taken.
        fine = math.isqrt(count - 1) + 1
        coarse = -(-count // fine)
        nodes = -(-self.chance.shape[1] // _BLOCK) * _BLOCK
        # survives: How many steps are taken at a time is free.
        rows = max(1, MAX_BATCH // (nodes * (fine + coarse) + nodes // _BLOCK * fine * coarse))
        weights = [self.weight] if self.above is None else [self.weight, self.above]
        total = np.zeros(fine * coarse, dtype=np.complex128)
        gain = np.zeros(fine * coarse, dtype=np.complex128)
        for first in range(0, self.chance.shape[0], rows):
            some = slice(first, first + rows)
            # In blocks, so that no sum is long.
            # survives: Nodes of a block, in one row or in two, are summed all the same.
            centred, angle, *chances = (
                np.pad(array[some], ((0, 0), (0, nodes - array.shape[1]))).reshape(
                    -1, nodes // _BLOCK, 1, _BLOCK
                )
                for array in (self._centred, self.angle, *weights)
            )
            near, plain = (
                rotations(step * centred, step * angle, fine),
                rotations(step * fine * centred, step * fine * angle, coarse),
            )
            sums = []
            for chance in chances:
                far = plain * chance
                excess = block_products(far, near)
                excess += far.sum(axis=3).sum(axis=1)[:, :, None]
                excess += (near * chance).sum(axis=3).sum(axis=1)[:, None, :]
                sums.append(excess.reshape(-1, fine * coarse))
            counts = self._law.counts[some]
            if self.above is None:
                total += counts @ log1p(sums[0])
            else:
                above = sums[1] + self.above[some].sum(axis=1)[:, None]
                # A and B are 1 together where t is 0.
                below = sums[0] - self.above[some].sum(axis=1)[:, None]
                total += counts @ log1p(below)
                gain += counts @ log1p(above / (1 + below))
        turn = 1j * step * np.arange(count) * math.fsum(self._law.counts * self.mean)
        return total[:count] + turn, None if self.above is None else gain[:count]

    def error_bound(self, t: Doubles) -> Doubles:
        """An upper bound of the error of e^(K(z) − K(c)), all steps together."""
        counts = self._law.counts
        # Rotations beyond the first are got by doubling, which costs some nine units each time.
        doublings = max(0.0, math.ceil(math.log2((math.isqrt(t.size) + 2) / DIRECT)))
        # A phase t·L is off by some units of itself; so is that of the mean.
        total: Doubles = self.error + _UNIT * np.abs(t) * (
            self._phase + 16 * float(counts @ np.abs(self.mean))
        )
        # survives: At t = 0 nothing is added.
        for first in range(0, t.size, MAX_ROWS):
            some = slice(first, first + MAX_ROWS)
            moved = np.minimum(self._most, t[some, None] * self.absolute[None, :])
            total[some] += _UNIT * (1 + doublings / 8) * (moved @ counts)
        if self.above is None:
            return total
        # |(M + dM)^n − (A + dA)^n − M^n + A^n| ≤ n·min(2, n|B|)·|dA| + n·|dB|.
        return min(2.0, self.above_mass) * total + self._above_error + _UNIT * np.abs(t) * self._above_phase


def _small_moments(
    log_weight: Doubles, power: Doubles, units: Doubles, missing: Doubles, rates: Doubles
) -> tuple[Doubles, Doubles]:
    """K of small losses, and by how many units it may be off: e^K − 1 is summed without losing digits."""
    share = np.exp(log_weight) * np.expm1(np.minimum(power, 600.0))
    # survives: How much is allowed for rounding is free, if it is some units more than is lost.
    lost = units + (32 - 4 * np.log(rates))[:, None] * (1 + np.abs(power)) + 80
    rounding = (np.abs(share) * lost).sum(axis=1) + 2.0**12 * missing
    # Where far outcomes are missing, K may be as low as −1.5, and ln(1 + y) off by more than y is.
    return np.log1p(share.sum(axis=1) - missing), rounding * np.where(missing > 0, 5, 1)
