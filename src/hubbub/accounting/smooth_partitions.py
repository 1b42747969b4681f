"""Smooth divisions of outcomes, and integrals of moduli on lines beside the real one.

Proof: docs/proofs/fourier.md, "Quadrature in x" and "Decay"
"""

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from hubbub.accounting.float_bounds import Uncertified

if TYPE_CHECKING:
    from hubbub.accounting.subsampled_gaussian import SubsampledGaussians

__all__ = ["TAIL_DEVIATIONS", "ShiftedLines", "Window", "even_nodes", "legendre_rule", "normal_cdf", "polar"]

Complexes = NDArray[np.complex128]
Doubles = NDArray[np.float64]

TAIL_DEVIATIONS = 9.5
# survives: Into how many cells the line is divided is free: an upper sum is one.
_CELLS, _OUTER_CELLS = 192, 48
# survives: What is left out is counted, too.
_LEAST_WEIGHT = math.exp(-90.0)


_PER_UNIT, _TERMS = 256, 10
"""Φ is expanded at multiples of 1/256, with ten terms."""
# survives: Up to how few numbers are computed one by one is free.
_FEW = 400
_LEAST, _MOST = -37.25, 8.5
"""Below, Φ is close to underflow; above, it is 1 to half a unit."""
_TINY = -37.0
"""Below, Φ(a) is at most e^(−a²/2), and its double may have few digits, or be 0."""


def normal_cdf(x: Doubles) -> Doubles:
    """Pr[Z ≤ x] of a standard normal Z, to (x² + 8)·2^-52 of itself."""
    if x.size <= _FEW:
        return _each_normal_cdf(x)
    near = np.clip(x, _LEAST, _MOST)
    place = np.rint(near * _PER_UNIT)
    start, density = (values[(place - _LEAST * _PER_UNIT).astype(np.intp)] for values in _tables())
    place /= _PER_UNIT
    # Exact, as both lie close together.
    away = near - place
    # Φ(a + h) = Φ(a) + φ(a)·Σ (−1)^k·He_k(a)·h^(k+1)/(k+1)!, by the recurrence of Hermite's polynomials.
    place *= away
    square = away * away
    before, term, total = np.zeros_like(away), away, away.copy()
    for k in range(1, _TERMS):
        before, term = term, place * term * (-1 / (k + 1)) - square * before * ((k - 1) / (k * (k + 1)))
        total += term
    out = start + density * total
    low = x < _LEAST
    if low.any():
        out[low] = _each_normal_cdf(x[low])
    return np.asarray(out)


def _each_normal_cdf(x: Doubles) -> Doubles:
    root = -math.sqrt(0.5)
    return np.array([math.erfc(root * y) / 2 for y in x.ravel().tolist()]).reshape(x.shape)


@lru_cache(maxsize=1)
def _tables() -> tuple[Doubles, Doubles]:
    """Φ and φ at multiples of 1/256."""
    a = np.arange(_LEAST * _PER_UNIT, _MOST * _PER_UNIT + 1) / _PER_UNIT
    return _each_normal_cdf(a), np.exp(-a * a / 2) / math.sqrt(2 * math.pi)


@dataclass(frozen=True)
class Window:
    """A smooth division of the outcomes of each step: Φ((at − x)/width) of x lies below, the rest above."""

    at: Doubles
    width: Doubles

    def below(self, x: Doubles) -> Doubles:
        """The share of outcomes x that lies below, one row for each step."""
        return normal_cdf((self.at[:, None] - x) / self.width[:, None])

    def log_below(self, x: Doubles) -> Doubles:
        """Ln of the share below; an upper bound of it where the share is a tiny number."""
        away = (self.at[:, None] - x) / self.width[:, None]
        with np.errstate(divide="ignore"):
            return np.asarray(np.where(away < _TINY, -away * away / 2, np.log(normal_cdf(away))))

    def log_tiny(self, x: Doubles) -> Doubles:
        """The same where the share is so tiny that its digits may be lost; −∞ elsewhere."""
        away = (self.at[:, None] - x) / self.width[:, None]
        return np.asarray(np.where(away < _TINY, -away * away / 2, -np.inf))

    def units(self, x: Doubles) -> Doubles:
        """How many units a share below may be off, and its logarithm: as its distance squared, and more."""
        away = np.minimum(0.0, (self.at[:, None] - x) / self.width[:, None])
        return np.asarray(32 + 10 * away**2)

    def shares(self, x: Doubles, y: Doubles) -> tuple[Complexes | Doubles, Complexes | Doubles]:
        """The shares below and above at x + iy, neither as the difference of the other from 1."""
        away = (self.at[:, None] - x) / self.width[:, None]
        if not y.any():
            return normal_cdf(away), normal_cdf(-away)
        beside = _imaginary_step(away, -(y / self.width)[:, None])
        return normal_cdf(away) + beside, normal_cdf(-away) - beside


@lru_cache(maxsize=4)
def legendre_rule(points: int) -> tuple[Doubles, Doubles]:
    """Nodes and weights of Gauss and Legendre's rule on ±1, right to two units; numpy's weights are not.

    >>> at, weight = legendre_rule(2)
    >>> (3 * at**2).round(12).tolist(), weight.tolist()
    ([1.0, 1.0], [1.0, 1.0])
    """
    bits = 128
    one = 1 << bits
    nodes, weights = [], []
    for start in np.polynomial.legendre.leggauss(points)[0].tolist():
        x = math.floor(start * 2.0**64) << bits - 64
        for _ in range(3):
            before, value = one, x
            for k in range(1, points):
                before, value = value, ((2 * k + 1) * (x * value >> bits) - k * before) // (k + 1)
            rest = one - (x * x >> bits)
            slope = points * (before - (x * value >> bits)) * one // rest
            x -= value * one // slope
        nodes.append(x / one)
        weights.append(2 * one**3 // (rest * slope * slope >> bits) / one)
    return np.array(nodes), np.array(weights)


def _imaginary_step(a: Doubles, b: Doubles) -> Complexes:
    """Φ(a + ib) − Φ(a) = iφ(a)·∫ e^(η²/2 − iaη) dη over 0 … b, for |b| ≤ 2, by Gauss and Legendre's rule.

    Φ(−a − ib) − Φ(−a) is as much with the other sign.
    """
    half = a * b / 2
    even, odd = np.zeros_like(half), np.zeros_like(half)
    # Nodes lie at ± the same distance from the middle: the phase of both is a cosine and a sine.
    for at, weight in zip(*(values[20:] for values in legendre_rule(40)), strict=True):
        after, before = (weight * np.exp((b * (1 + side) / 2) ** 2 / 2) for side in (at, -at))
        turn = half * at
        even += (after + before) * np.cos(turn)
        odd += (after - before) * np.sin(turn)
    size = b / 2 * np.exp(-a * a / 2) / math.sqrt(2 * math.pi)
    # i·(even − i·odd)·e^(−i·half)
    cosine, sine = np.cos(half), np.sin(half)
    out: Complexes = np.empty(half.shape, dtype=np.complex128)
    out.real = size * (even * sine + odd * cosine)
    out.imag = size * (even * cosine - odd * sine)
    return out


class ShiftedLines:
    """Upper bounds of ∫ |φ_σ(x)·share(x)·e^(zL)| dx on lines Im x = ±vσ²: first axis v, second the steps.

    An upper sum over cells: each factor of the modulus is the largest it can be in the cell.
    """

    def __init__(
        self,
        law: "SubsampledGaussians",
        tilt: float,
        v: Doubles,
        *,
        near: Window | None = None,
        ends: tuple[Doubles, Doubles],
    ) -> None:
        self._law, self.v = law, v
        s, low, high = law.sigmas[:, None], ends[0][:, None], ends[1][:, None]
        far_low, far_high = (end[:, None] for end in law.ends(tilt))
        far_low, far_high = np.minimum(far_low, low), np.maximum(far_high, high)
        # Even cells where the density counts, and growing ones out to where it surely falls.
        inner = np.linspace(0, 1, _CELLS + 1)
        edges = np.concatenate(
            [
                (low - _growing(low - far_low, (high - low) / _CELLS))[:, ::-1],
                low + (high - low) * inner,
                high + _growing(far_high - high, (high - low) / _CELLS),
            ],
            axis=1,
        )
        self._edges = edges = np.maximum.accumulate(edges, axis=1)
        left, right = edges[:, :-1], edges[:, 1:]
        turn = v[:, :, None]
        log_ratio = law.log_ratio(edges)
        share = law.share(edges, log_ratio)
        bend = share * np.maximum(0.0, 1 - share)
        self._angle = np.arctan2(share * np.sin(turn), np.maximum(0.0, 1 - share) + share * np.cos(turn))
        # |r|² on the line is r²·(1 − 4s(1 − s)·sin²(v/2)).
        if law.added:
            power = _largest_concave(-tilt * log_ratio, -tilt * share / (s * s), edges, s)
            crosses = (share[:, :-1] < 0.5) & (share[:, 1:] > 0.5)
            bend = np.where(crosses, 0.25, np.maximum(bend[:, :-1], bend[:, 1:]))
            fall = -tilt / 2
        else:
            power = _largest_convex((1 + tilt) * log_ratio, edges, s)
            bend = np.minimum(bend[:, :-1], bend[:, 1:])
            fall = (1 + tilt) / 2
        with np.errstate(divide="ignore"):
            decay = fall * np.log1p(np.maximum(-1.0, -4 * bend * np.sin(turn / 2) ** 2))
        # survives: How much is allowed for rounding is free, if it is some units more than is lost.
        log = power + decay + 1e-9 * (1 + np.abs(power) + np.abs(decay))
        log = log + (turn * s) ** 2 / 2 - np.log(s * math.sqrt(2 * math.pi))
        if near is not None and not law.added:
            # Above a division a large tilt and the share are bounded together: either is huge by itself.
            both = _largest_beside((1 + tilt) * log_ratio, edges, s, near)
            both = both + decay + ((turn * s) ** 2 + (turn * s**2 / near.width[:, None]) ** 2) / 2
            both = both - np.log(s * math.sqrt(2 * math.pi)) + 1e-9
        self._height = _with_tails(log)
        # Beyond the last edges the density falls at least like e^(−9.5·|x|/σ) from that of the last cell.
        self._width = np.concatenate([s / TAIL_DEVIATIONS, right - left, s / TAIL_DEVIATIONS], axis=1)
        if near is not None:
            self._height = self._height + self.below(near)
            if not law.added:
                self._height[..., 1:-1] = np.minimum(self._height[..., 1:-1], both)
        with np.errstate(divide="ignore"):
            self.log = self._height + np.log(self._width)

    def above(self, window: Window) -> Doubles:
        """What has to be added for the share of outcomes above a division."""
        return self._share(window, -1)

    def below(self, window: Window) -> Doubles:
        """What has to be added for the share of outcomes below a division."""
        return self._share(window, 1)

    def _share(self, window: Window, sign: int) -> Doubles:
        """The logarithm of an upper bound of |Φ(sign·(at − x)/width)|, in each cell and in both tails.

        |Φ(a + ib)| ≤ e^(b²/2)·Φ(a), and so ≤ 1 + e^(b²/2)·Φ(−a).
        """
        turn = (self.v * self._law.sigmas**2 / window.width)[:, :, None]
        mirrored = 2 * window.at[:, None] - self._edges
        own, other = window.log_below(self._edges), window.log_below(mirrored)
        if sign < 0:
            own, other = other, own
        growth = turn * turn / 2
        # Both rise or fall along a cell.
        first = np.maximum(own[:, :-1], own[:, 1:]) + growth
        second = np.logaddexp(0.0, np.maximum(other[:, :-1], other[:, 1:]) + growth)
        second = np.where(turn == 0, 0.0, second)
        out = _with_tails(np.minimum(first, second))
        # In a tail that bound holds which falls outwards.
        out[..., 0], out[..., -1] = (second, first)[sign < 0][..., 0], (first, second)[sign < 0][..., -1]
        return np.asarray(out + 1e-9)

    def log_growing(self, reach: float, share: Doubles | float = 0.0) -> Doubles:
        """At Im z = reach, on the side where e^(tθ) grows: the angle rises with x, up to v."""
        last = np.broadcast_to(self.v[:, :, None], (*self.v.shape, 1))
        angle = np.concatenate([self._angle, last], axis=2)
        return _log_sum(self.log + share + reach * angle) + 1e-9

    def log_decaying(self, t: Doubles, *shares: Doubles | float) -> list[Doubles]:
        """At many t > 0, on the side where e^(−tθ) decays: for each share the least over v, by step and t."""
        zero = np.zeros((*self.v.shape, 1))
        angle = np.concatenate([zero, self._angle], axis=2)
        logs = [self.log + share for share in shares]
        if not all(np.isfinite(log).any(axis=2).all() for log in logs):
            return [np.full((self.v.shape[1], t.size), math.inf)] * len(shares)
        # Each line at a few t, and of the best ones all.
        some = -t[None, None, :: max(1, t.size // 4), None] * angle[:, :, None, :]
        peaks = [log.max(axis=2) for log in logs]
        weights = [np.exp(log - peak[..., None]) for log, peak in zip(logs, peaks, strict=True)]
        best: set[int] = set()
        with np.errstate(divide="ignore"):
            fall = np.exp(some)
            for weight, peak in zip(weights, peaks, strict=True):
                rough = np.log((fall @ weight[..., None])[..., 0]) + peak[..., None]
                best.update(rough.sum(axis=1).argmin(axis=0).tolist())
        chosen = sorted(best)
        counts = np.max([weight[chosen].max(axis=(0, 1)) for weight in weights], axis=0)
        cells = np.flatnonzero(counts > _LEAST_WEIGHT)
        fall = np.exp(-t[:, None] * angle[chosen][:, :, None, cells])
        # What was left out is below e^-90 of the peak, each.
        rest = angle.shape[2] * _LEAST_WEIGHT
        return [
            np.asarray(
                (
                    np.log((fall @ weight[chosen][..., cells, None])[..., 0] + rest)
                    + peak[chosen][..., None]
                    + 2e-9
                ).min(axis=0)
            )
            for weight, peak in zip(weights, peaks, strict=True)
        ]

    def log_beyond(self, step: Doubles) -> Doubles:
        """An upper bound of what lies outside the even cells, also of a sum over nodes with this step."""
        outer = [*range(_OUTER_CELLS + 1), *range(-_OUTER_CELLS - 1, 0)]
        return _log_sum(self._height[..., outer] + np.log(self._width[:, outer] + step[:, None])) + 1e-9


def even_nodes(low: Doubles, high: Doubles, count: int) -> tuple[Doubles, Doubles]:
    """Evenly spaced nodes from at most `low` to at least `high`, and their distance, all without rounding.

    Distances have 29 bits and nodes are multiples of them.
    """
    mantissa, power = np.frexp((high - low) / (count - 1))
    step = np.ldexp(np.ceil(mantissa * 2.0**29), power - 29)
    first = np.floor(low / step)
    if not np.abs(first).max() + count < 1 << 23:
        raise Uncertified
    # One more, as the first may lie below.
    return (first[:, None] + np.arange(count + 1.0)) * step[:, None], step


def polar(real: Doubles, share: Doubles, v: Doubles) -> tuple[Doubles, Doubles]:
    """ln|r| and arg r at x + ivσ², from ln r and the chance of having been sampled at x."""
    rest = np.maximum(0.0, 1 - share)
    size = real + np.log1p(-4 * share * rest * np.sin(v / 2) ** 2) / 2
    return size, np.arctan2(share * np.sin(v), rest + share * np.cos(v))


def _with_tails(cells: Doubles) -> Doubles:
    """The first and the last cell once more, for the tails beyond them."""
    return np.concatenate([cells[..., :1], cells, cells[..., -1:]], axis=-1)


def _growing(distance: Doubles, first: Doubles) -> Doubles:
    """Distances in growing steps, from about the size of the first."""
    rate = np.log(np.maximum(np.e, 0.3 * distance / np.maximum(first, 1e-300)))
    return np.asarray(distance * np.expm1(rate * np.linspace(0, 1, _OUTER_CELLS + 1)[1:]) / np.expm1(rate))


def _log_sum(power: Doubles) -> Doubles:
    """Ln Σ e^power over the last axis."""
    peak = power.max(axis=-1)
    with np.errstate(invalid="ignore"):
        return np.asarray(np.log(np.exp(power - peak[..., None]).sum(axis=-1)) + peak)


def _largest_convex(power: Doubles, edges: Doubles, s: Doubles) -> Doubles:
    """The largest of power(x) − x²/2σ² in each cell, for a convex power: it lies below its chord."""
    left, right = edges[:, :-1], edges[:, 1:]
    with np.errstate(divide="ignore", invalid="ignore"):
        slope = np.where(right > left, (power[:, 1:] - power[:, :-1]) / (right - left), 0.0)
    x = np.clip(slope * s * s, left, right)
    return np.asarray(power[:, :-1] + slope * (x - left) - x * x / (2 * s * s))


def _largest_beside(power: Doubles, edges: Doubles, s: Doubles, near: Window) -> Doubles:
    """The same, with −(x − at)²/2w² for ln of the share below a division; ∞ in cells not above it."""
    left, right = edges[:, :-1], edges[:, 1:]
    at, w = near.at[:, None], near.width[:, None]
    with np.errstate(divide="ignore", invalid="ignore"):
        slope = np.where(right > left, (power[:, 1:] - power[:, :-1]) / (right - left), 0.0)
    x = np.clip((slope + at / (w * w)) / (1 / (s * s) + 1 / (w * w)), left, right)
    terms = (power[:, :-1], slope * (x - left), -x * x / (2 * s * s), -((x - at) ** 2) / (2 * w * w))
    size = sum(np.abs(term) for term in terms)
    return np.asarray(np.where(left >= at, sum(terms) + 1e-12 * size, np.inf))


def _largest_concave(power: Doubles, slope: Doubles, edges: Doubles, s: Doubles) -> Doubles:
    """The largest of power(x) − x²/2σ² in each cell, for a concave power: it lies below its tangents."""
    value, rise = power - edges * edges / (2 * s * s), slope - edges / (s * s)
    wide = edges[:, 1:] - edges[:, :-1]
    inside = np.minimum(value[:, :-1] + rise[:, :-1] * wide, value[:, 1:] - rise[:, 1:] * wide)
    return np.asarray(
        np.where(rise[:, :-1] <= 0, value[:, :-1], np.where(rise[:, 1:] >= 0, value[:, 1:], inside))
    )
