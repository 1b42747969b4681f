"""Poisson-subsampled Gaussian steps: their tilted loss on nodes, with rigorous quadrature.

P is the mixture (1−q)·N(0, σ²) + q·N(1, σ²) against Q = N(0, σ²) when a unit is removed, and the two
change places when it is added: L = ±ln r(x) with r(x) = 1 − q + q·e^((2x−1)/2σ²).

Proof: docs/proofs/fourier.md
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hubbub.accounting.float_bounds import Uncertified, log1p, log_mixture

__all__ = ["DecayBound", "QuadratureNodes", "SubsampledGaussians", "Uncertified"]

Complexes = NDArray[np.complex128]
Doubles = NDArray[np.float64]

_TAIL_DEVIATIONS = 9.5
# survives: How much is allowed for rounding is free, if it is some units more than is lost.
_ROUNDING = 2.0**-49
_OMITTED_SHARE = 0.12
"""The decay bound leaves out this share of the distribution on either side."""
# survives: How many points the core has is free: it bounds what lies between.
DECAY_POINTS = 129
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
_MAX_NODES, _MAX_NODES_PER_STEP = 2_000_000, 20_000


@dataclass(frozen=True)
class SubsampledGaussians:
    """Steps with sampling rates q, standard deviations σ for sensitivity 1, and counts."""

    rates: Doubles
    sigmas: Doubles
    counts: Doubles
    added: bool

    def quadrature(self, tilt: float, reach: float, *, rough: bool = False) -> "QuadratureNodes":
        """Nodes at which E[e^(zL)] is summed, for Re z = tilt and |Im z| ≤ reach.

        At any v < π the trapezoid rule of step h errs by no more than 2·e^(v²σ²/2 + v·reach − 2πvσ²/h) of
        e^K(c), times cos(v/2)^−c for an added unit: that is the integrand on Im x = ±vσ².
        """
        s = self.sigmas
        # A wide strip where σ is small, and one of a few σ where it is large.
        # survives: Any strip below π gives a bound of the error; which ones are tried only decides
        # how many nodes there are.
        v = np.minimum(np.array([[3.0], [2.0], [1.0]]), 8.5 / s)
        # survives: It only decides how many nodes there are, and how large the error is said to be.
        growth = v * v * s * s / 2 + v * reach
        if self.added:
            # survives: It only decides how many nodes there are, and how large the error is
            # said to be. It only decides how many nodes there are, and how large the error is
            # said to be: that is far below rounding either way.
            growth = growth - tilt * np.log(np.cos(v / 2))
        # survives: How small the error shall be is free: it is bounded, and added.
        wanted = 12.0 if rough else 40 + math.log(1 + float(self.counts.sum()))
        step = np.minimum((2 * math.pi * v * s * s / (wanted + growth)).max(axis=0), 0.7 * s)
        low = -_TAIL_DEVIATIONS * s - (tilt if self.added else 0.0)
        high = _TAIL_DEVIATIONS * s + (0.0 if self.added else 1.0 + tilt)
        count = int(np.ceil(((high - low) / step).max())) + 2
        if count > _MAX_NODES_PER_STEP or count * s.size > _MAX_NODES:
            raise Uncertified
        step = (high - low) / (count - 1)
        x = low[:, None] + step[:, None] * np.arange(count)
        variance = (s * s)[:, None]
        log_weight = np.log(step / (s * math.sqrt(2 * math.pi)))[:, None] - x * x / (2 * variance)
        odds = (x - 0.5) / variance
        loss = log_mixture(odds, self.rates[:, None])
        # Twice, for that the normal law sums to 1 is used, too, where losses are small.
        error = 4 * np.exp((growth - 2 * math.pi * v * s * s / step).min(axis=0))
        return QuadratureNodes(
            self, tilt, step=step, log_weight=log_weight, x=x, log_ratio=loss, quadrature=error
        )


class QuadratureNodes:
    """The tilted distribution of every step on its quadrature nodes."""

    def __init__(
        self,
        law: SubsampledGaussians,
        tilt: float,
        *,
        step: Doubles,
        log_weight: Doubles,
        x: Doubles,
        log_ratio: Doubles,
        quadrature: Doubles,
    ) -> None:
        self._law = law
        self._tilt = tilt
        self._x = x
        power = -tilt * log_ratio if law.added else (1 + tilt) * log_ratio
        loss = -log_ratio if law.added else log_ratio
        # survives: Where one formula takes over from the other is free: both are good there.
        if float(power.max()) < 30:
            # Where losses are small, e^K − 1 is small, too, and is summed without losing digits.
            share = np.exp(log_weight) * np.expm1(power)
            self.moments = np.log1p(share.sum(axis=1))
            spread = np.abs(share).sum(axis=1)
        else:
            highest = (power + log_weight).max(axis=1)
            self.moments = np.log(np.exp(power + log_weight - highest[:, None]).sum(axis=1)) + highest
            spread = 1 + np.abs(self.moments)
        self.moment = float(law.counts @ self.moments)
        self._chance = np.exp(power + log_weight - self.moments[:, None])
        self.mean = (self._chance * loss).sum(axis=1)
        self._centred = loss - self.mean[:, None]
        square = self._centred**2
        self.variance = (self._chance * square).sum(axis=1)
        self.absolute = (self._chance * np.abs(self._centred)).sum(axis=1)
        # Beyond the nodes the density falls at least like e^(−9.5·|x|/σ) from what it is at the last.
        # survives: What lies beyond the nodes is less than e^-45: this is far below what is allowed
        # for rounding.
        ends = (self._chance[:, 0] + self._chance[:, -1]) * (1 + law.sigmas / (_TAIL_DEVIATIONS * step))
        # The digits lost in the exponents are those of the largest power that counts.
        # survives: How much is allowed for rounding is free, if it is some units more than is lost.
        size = np.abs(power * (self._chance > 1e-30)).max(axis=1) + 1
        # Each sum is of blocks, the products of matrices have three of them, and D is got by doubling.
        # survives: How much is allowed for rounding is free, if it is some units more than is lost.
        self._rounding = _ROUNDING * (size + _BLOCK / 4 + 4 + self._chance.shape[1] / (4 * _BLOCK))
        self.error = float(law.counts @ (quadrature + ends + _ROUNDING * spread * size))

    def log_ratio(self, step: float, count: int) -> Complexes:
        """K(c+it) − K(c) of all steps together, at t = 0, step, 2·step, …"""
        # With D(t) = e^(itL) − 1, D(a + b) = D(a) + D(b) + D(a)·D(b): few a's and b's give all t, by products
        # of matrices, and no digits are lost where D is small.
        if self._chance.size * count > MAX_WORK:
            raise Uncertified
        # survives: Into how many near and far angles it is divided is free: all sums of both are
        # taken.
        fine = math.isqrt(count - 1) + 1
        coarse = -(-count // fine)
        nodes = -(-self._chance.shape[1] // _BLOCK) * _BLOCK
        # survives: How many steps are taken at a time is free.
        rows = max(1, MAX_BATCH // (nodes * (fine + coarse) + nodes // _BLOCK * fine * coarse))
        total = np.zeros(fine * coarse, dtype=np.complex128)
        for first in range(0, self._chance.shape[0], rows):
            some = slice(first, first + rows)
            # In blocks, so that no sum is long.
            # survives: Nodes of a block, in one row or in two, are summed all the same.
            chance, centred = (
                np.pad(array[some], ((0, 0), (0, nodes - array.shape[1]))).reshape(
                    -1, nodes // _BLOCK, 1, _BLOCK
                )
                for array in (self._chance, self._centred)
            )
            near, far = _rotations(step * centred, fine), _rotations(step * fine * centred, coarse) * chance
            excess = (far @ near.swapaxes(2, 3)).sum(axis=1)
            excess += far.sum(axis=3).sum(axis=1)[:, :, None]
            excess += (near * chance).sum(axis=3).sum(axis=1)[:, None, :]
            total += self._law.counts[some] @ log1p(excess.reshape(-1, fine * coarse))
        return total[:count] + 1j * step * np.arange(count) * float(self._law.counts @ self.mean)

    def error_bound(self, t: Doubles) -> Doubles:
        """An upper bound of the error of e^(K(z) − K(c)), all steps together."""
        counts = self._law.counts
        total: Doubles = self.error + _ROUNDING * np.abs(t * float(counts @ np.abs(self.mean)))
        # survives: At t = 0 nothing is added.
        for first in range(0, t.size, MAX_ROWS):
            some = slice(first, first + MAX_ROWS)
            moved = np.minimum(2.0, t[some, None] * self.absolute[None, :])
            total[some] += moved @ (self._rounding * counts)
        return total

    def decay_bound(self) -> "DecayBound":
        """A minorant of the middle of each step's tilted distribution, which makes its transform decay."""
        law, tilt = self._law, self._tilt
        passed = np.cumsum(self._chance, axis=1)
        row = np.arange(law.sigmas.size)
        # survives: Which middle part of the law is taken is free.
        left = self._x[row, (passed < _OMITTED_SHARE).sum(axis=1)]
        # survives: Which middle part of the law is taken is free.
        right = self._x[row, np.minimum((passed < 1 - _OMITTED_SHARE).sum(axis=1), self._x.shape[1] - 1)]
        s2 = (law.sigmas**2)[:, None]
        x = left[:, None] + (right - left)[:, None] * np.linspace(0, 1, DECAY_POINTS)
        gap = (right - left) / (DECAY_POINTS - 1)
        odds = (x - 0.5) / s2
        log_ratio = log_mixture(odds, law.rates[:, None])
        power = -tilt * log_ratio if law.added else (1 + tilt) * log_ratio
        log_density = power - x * x / (2 * s2) - np.log(2 * math.pi * s2) / 2 - self.moments[:, None]
        # Between two points a logarithm that bends upwards by no more than `bend` dips by no more than this.
        # survives: A lower bound that is lower is still one.
        dip = gap**2 / 8 * (1 + tilt) / 4 * law.sigmas**-4 + 1e-9
        least = np.exp(np.minimum(log_density[:, 1:], log_density[:, :-1]) - dip[:, None])
        mass = least * gap[:, None]
        beta = mass.sum(axis=1)
        # survives: It guards a division by 0 of a law without a middle, of one step or of all.
        if not beta.min() > 0:
            raise Uncertified
        middle = (log_ratio[:, 1:] + log_ratio[:, :-1]) / 2
        blur = np.diff(log_ratio, axis=1).max(axis=1) / 2
        distance = np.abs(middle - (mass * middle).sum(axis=1)[:, None] / beta[:, None])
        deviation = np.sqrt((mass * distance**2).sum(axis=1) / beta)
        third = ((mass * distance**3).sum(axis=1) / beta) ** (1 / 3)
        # The density of the loss is that of x over the loss's slope p/σ², p = q·e^u/r.
        slope = np.exp(np.log(law.rates)[:, None] + odds - log_ratio) / s2
        flat = (least / np.maximum(slope[:, 1:], slope[:, :-1])).min(axis=1)
        width = log_ratio[:, -1] - log_ratio[:, 0]
        # survives: The blur is less than the deviation.
        variance, most = np.maximum(deviation - blur, 0.0) ** 2, (deviation + blur) ** 2
        cube = (third + blur) ** 3
        with np.errstate(divide="ignore"):
            turn = float(np.minimum(1.5 * variance / cube, np.sqrt(2 / most)).min())
        # survives: A slack of 1e-9 stands for rounding of some 1e-14; turned round it is less than
        # a test can see.
        alpha = np.minimum(flat * width, 1.0) * (1 - 1e-9)
        # survives: A slack of 1e-9 stands for rounding of some 1e-14; turned round it is less than
        # a test can see.
        return DecayBound(beta * (1 - 1e-9), variance, cube, alpha, width, self._total_variation(), turn)

    def _total_variation(self) -> Doubles:
        """An upper bound of the total variation of each tilted loss's density; infinite if unknown.

        Between two nodes its logarithm rises above both by no more than gap²/8σ².
        """
        law, s2 = self._law, (self._law.sigmas**2)[:, None]
        gap = self._x[:, 1] - self._x[:, 0]
        odds = (self._x - 0.5) / s2
        share = np.log(law.rates)[:, None] + odds - log_mixture(odds, law.rates[:, None])
        with np.errstate(divide="ignore", over="ignore"):
            # survives: Between two nodes the density rises by next to nothing: gap²/8σ² is
            # small. There is one column.
            highest = (
                (np.log(self._chance) - share).max(axis=1) + np.log(s2[:, 0] / gap) + gap**2 / (8 * s2[:, 0])
            )
            # Two hills at most, and they lie within the nodes.
            return np.where(_TAIL_DEVIATIONS * law.sigmas >= 1.05, 4 * np.exp(highest) * (1 + 1e-9), np.inf)


def _rotations(angle: Doubles, count: int) -> Complexes:
    """e^(ikx) − 1 for k = 0, 1, …, along the third axis, accurate relatively also where it is small."""
    out: Complexes = np.zeros((*angle.shape[:2], count, angle.shape[3]), dtype=np.complex128)
    if count > 1:
        out.real[:, :, 1:2] = -2 * np.sin(angle / 2) ** 2
        out.imag[:, :, 1:2] = np.sin(angle)
    decay = 2
    while decay < count:
        # D(m + k) from D(m) and D(k), m being the last known: their number doubles.
        more = min(decay - 1, count - decay)
        last, new = out[:, :, decay - 1 : decay], out[:, :, decay : decay + more]
        np.multiply(last, out[:, :, 1 : 1 + more], out=new)
        new += last
        new += out[:, :, 1 : 1 + more]
        decay += more
    return out


class DecayBound(NamedTuple):
    """For each step: a minorant of mass β with these central moments, and a flat one of mass α.

    So |E[e^(itL)]| ≤ 1 − β·(vt²/2 − m₃t³/6), and ≤ 1 − α·(1 − 2/(t·width)), and ≤ variation/t.
    """

    beta: Doubles
    variance: Doubles
    third: Doubles
    alpha: Doubles
    width: Doubles
    variation: Doubles
    turn: float
    """Up to here the first bound falls, for every step."""

    def near(self, t: float) -> Doubles:
        """The logarithm of the first bound, for each step."""
        bound: Doubles = np.log1p(-self.beta * (self.variance * t * t / 2 - self.third * t**3 / 6))
        return bound

    def far(self, t: float) -> Doubles:
        """The logarithm of the second bound, which falls in t; 0 if it is void."""
        flat = np.log1p(-self.alpha * np.maximum(0.0, 1 - 2 / (t * self.width)))
        bound: Doubles = np.minimum(flat, np.log(self.variation / t))
        return bound
