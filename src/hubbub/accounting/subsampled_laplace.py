"""A Poisson-subsampled Laplace step: its pair, with moments for the Fourier accountant.

With ℓ the loss of Laplace noise, which is −r or r with positive probability and has a density between, and
R(ℓ) = 1 − q + q·e^ℓ: L = ln R if a unit is removed, −ln R if it is added. Moments are two atoms and an
integral over ℓ, by Gauss and Legendre's rule on panels.

Proof: docs/proofs/fourier.md, "Sampled Laplace noise"
"""

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hubbub.accounting.dominating_pairs import MAX_TERMS, BinMasses, ContinuousPair, LaplacePair
from hubbub.accounting.float_bounds import Uncertified, log1p, log_mixture
from hubbub.accounting.smooth_partitions import legendre_rule
from hubbub.accounting.subsampled_pairs import SubsampledPair

__all__ = ["SubsampledLaplacePair"]

Complexes = NDArray[np.complex128]
Doubles = NDArray[np.float64]

POINTS = 40
# survives: From how large an ε on it is left to others is free.
_MAX_EPSILON = 40.0
# survives: How many panels are tried is free: their error is bounded, and added.
PANELS = (1, 2, 4, 8, 16)
# survives: How small the error of quadrature shall be is free: it is bounded, and added.
_LOG_ENOUGH = -45.0
# survives: Any ellipse gives a bound; which ones are tried only decides how close it is.
_HEIGHTS = np.array([1.5, 0.75, 0.35, 0.15])
"""Half the height of the ellipses, in ℓ; R has no zero below π."""
# survives: How many numbers are worked on at a time changes none of them.
_BATCH = 1 << 18


class _Rule(NamedTuple):
    """Losses and their P-masses: both atoms first, then the nodes of each panel."""

    loss: Doubles
    mass: Doubles
    edges: Doubles
    log_error: float
    """The logarithm of an upper bound of the error of quadrature, of e^K(c)."""


@dataclass(frozen=True)
class SubsampledLaplacePair(ContinuousPair):
    """Laplace noise with ε = r, on a Poisson sample.

    >>> pair = SubsampledLaplacePair(1.0, 0.5, added=False)
    >>> round(pair.derivatives(0.0)[1], 6) > 0
    True
    """

    epsilon: float
    sampling_rate: float
    added: bool

    @cached_property
    def _pair(self) -> SubsampledPair:
        return SubsampledPair(LaplacePair(self.epsilon), self.sampling_rate, self.added)

    @property
    def support(self) -> tuple[float, float]:
        """From the one atom to the other."""
        return self._pair.support

    @property
    def atoms(self) -> Doubles:
        """Both ends."""
        return self._pair.atoms

    @property
    def coarse_grid(self) -> Doubles:
        """The image of the Laplace noise's coarse grid."""
        return self._pair.coarse_grid

    def bin_masses(self, edges: Doubles) -> BinMasses:
        """P- and Q-mass of losses in (edges[k], edges[k+1]]."""
        return self._pair.bin_masses(edges)

    def log_moment(self, z: Complexes) -> Complexes:
        """K(z) = ln(1 + Σ p·(e^(zL) − 1)), accurate relatively also where it is small."""
        rule = self._rule(float(z.real.max()), float(np.abs(z.imag).max()))
        out = np.empty(z.shape, dtype=np.complex128)
        batch = max(1, _BATCH // rule.loss.size)
        for start in range(0, z.size, batch):
            some = z[start : start + batch, None]
            growth, turn = np.expm1(some.real * rule.loss), some.imag * rule.loss
            sine = np.sin(turn / 2)
            # e^(a+ib) − 1 = (e^a − 1)·cos b − 2·sin²(b/2) + i·e^a·sin b.
            excess: Complexes = np.empty(some.shape[0], dtype=np.complex128)
            excess.real = (growth * np.cos(turn) - 2 * sine * sine) @ rule.mass
            excess.imag = ((1 + growth) * np.sin(turn)) @ rule.mass
            out[start : start + batch] = log1p(excess)
        return out

    def derivatives(self, c: float) -> tuple[float, float, float]:
        """K, K′ and K″ at a real c."""
        rule = self._rule(c, 0.0)
        power = c * rule.loss
        shift = float(power.max())
        weight = rule.mass * np.exp(power - shift)
        total = float(weight.sum())
        mean = float(weight @ rule.loss) / total
        moment = math.log(total) + shift
        if shift < 30:
            moment = math.log1p(float(rule.mass @ np.expm1(power)))
        return moment, mean, float(weight @ (rule.loss - mean) ** 2) / total

    def moment_error(self, z: Complexes) -> Doubles:
        """How many units of 2^-48 e^K(z) is off, of e^K(Re z), beyond some units of K."""
        c, reach = float(z.real.max()), float(np.abs(z.imag).max())
        rule = self._rule(c, reach)
        if not rule.log_error < 0 or z.size * rule.loss.size > MAX_TERMS:
            raise Uncertified
        # Terms are off by some units of zL, which is no more than that of the largest loss.
        least = self._least_moment(c)
        size = float(rule.mass @ np.exp(np.maximum(0.0, c * rule.loss) - least))
        largest = float(np.abs(rule.loss).max())
        units = 8 + rule.loss.size / 32
        return np.asarray(units * np.abs(z) * largest * size + math.exp(rule.log_error) * 2.0**48)

    def decay(self, t: Doubles, c: float) -> Doubles:
        """An upper bound of ln|e^(K(c+is) − K(c))| for all s ≥ t: the atoms turn apart, the density decays.

        Proof: docs/proofs/fourier.md, "Sampled Laplace noise"
        """
        rule = self._rule(c, 0.0)
        shift = c * float(np.abs(rule.loss).max())
        chance = rule.mass * np.exp(c * rule.loss - shift)
        total = float(chance.sum())
        chance /= total
        first, second = float(chance[0]), float(chance[1])
        width = abs(float(rule.loss[1] - rule.loss[0]))
        if not (width > 0 and total > 0):
            raise Uncertified
        # What lies below some edge counts in full; what lies above it is its variation over s, at most.
        below = np.append(0.0, np.cumsum(chance[2:].reshape(-1, POINTS).sum(axis=1)))
        variation = self._variation(rule.edges, c, shift + math.log(total))

        def between(s: Doubles) -> Doubles:
            with np.errstate(divide="ignore"):
                each = below[:, None] + np.minimum(variation[:, None] / s, (below[-1] - below)[:, None])
            return np.asarray(each.min(axis=0))

        def ends(cosine: Doubles) -> Doubles:
            square = (first + second) ** 2 - 2 * first * second * (1 - cosine)
            return np.asarray(np.sqrt(np.maximum(0.0, square)))

        # Up to half a turn both fall; then cells in which the cosine rises or falls, and what lies beyond.
        turn = width * t
        edges = math.pi * np.linspace(1.0, 9.0, 257)
        cosine = np.cos(edges)
        cells = ends(np.maximum(cosine[1:], cosine[:-1])) + between(edges[:-1] / width)
        cells = np.maximum.accumulate(np.append(cells, 0.0)[::-1])[::-1]

        def from_there_on(turn: Doubles) -> Doubles:
            after = cells[np.clip(np.searchsorted(edges, turn, side="right") - 1, 0, cells.size - 1)]
            beyond = first + second + between(np.maximum(turn, edges[-1]) / width)
            half = np.minimum(turn, math.pi)
            start = np.where(turn < math.pi, ends(np.cos(half)) + between(half / width), 0.0)
            return np.asarray(np.maximum(np.maximum(after, beyond), start))

        bound = from_there_on(turn)
        # By its moments: 1 − vs²/2 + m₃s³/6, which falls up to here.
        away = np.abs(rule.loss - chance @ rule.loss)
        variance, third = float(chance @ away**2), float(chance @ away**3)
        last = min(1.5 * variance / third, math.sqrt(2 / variance))
        close = np.minimum(t, last)
        by_moments = 1 - variance * close**2 / 2 + third * close**3 / 6
        by_moments = np.maximum(by_moments, from_there_on(np.array([last * width])))
        bound = np.minimum(bound, np.where(t < last, by_moments, 1.0))
        # survives: How much is allowed for rounding is free, if it is some units more than is lost.
        return np.asarray(np.minimum(0.0, np.log(bound) + 2.0**-50 + 1e-12 * np.minimum(1.0, turn)))

    def _variation(self, left: Doubles, c: float, log_total: float) -> Doubles:
        """|f(a)| + |f(b)| + ∫|f′| between a and the end b, for each a; f the tilted density of L.

        That is the density of ℓ over dL/dℓ = q·e^ℓ/R. It falls, and may rise again: 2·(f(a) + f(b) − min f).
        """
        q, r = self.sampling_rate, self.epsilon
        exponent = (-c if self.added else 1 + c) + 1
        # Where q·e^ℓ/R is 1.5/exponent the density is least.
        lowest = math.log((1 - q) / q) - math.log(exponent / 1.5 - 1) if exponent > 1.5 else math.inf
        at = np.stack([left, np.full_like(left, r), np.clip(lowest, left, r)])
        log = exponent * log_mixture(at.ravel(), q).reshape(at.shape) - 1.5 * at
        log = log - r / 2 - math.log(4 * q) - log_total
        first, last, least = np.exp(np.minimum(log, 600.0))
        variation = 2 * (first + last - least * (1 - 1e-9)) * (1 + 1e-9)
        return np.where(log.max(axis=0) > 600, math.inf, variation)

    def _least_moment(self, c: float) -> float:
        """A lower bound of K(c), c ≥ 0: 0, or what both atoms give."""
        r = self.epsilon
        losses = log_mixture(np.array([-r, r]), self.sampling_rate)
        power = np.array([0.0, -r]) + (-c if self.added else 1 + c) * losses - math.log(2)
        return max(0.0, float(np.logaddexp(*power)))

    def _rule(self, c: float, reach: float) -> _Rule:
        """The rule with few panels of which the error is small enough; or that with the least error."""
        if self.epsilon > _MAX_EPSILON:
            raise Uncertified
        least = max(1, math.ceil(self.epsilon / 2))
        best = (math.inf, least)
        for panels in PANELS:
            best = min(best, (self.log_error(c, reach, least * panels), least * panels))
            if best[0] < _LOG_ENOUGH:
                break
        return make_rule(self, best[1])._replace(log_error=best[0])

    def log_error(self, c: float, reach: float, panels: int) -> float:
        """Ln of the error of quadrature, of e^K(c): by panel it is 64/15·M·ρ^(2 − 2n)/(ρ² − 1) at most."""
        half = self.epsilon / panels
        middle = -self.epsilon + half * (2 * np.arange(panels) + 1)
        ratio = _HEIGHTS / half
        rho = ratio + np.sqrt(ratio * ratio + 1)
        wide = (half * (rho + 1 / rho) / 2)[:, None]
        right = log_mixture(middle + wide, self.sampling_rate)
        share = np.exp(np.minimum(0.0, math.log(self.sampling_rate) + middle + wide - right))
        angle = np.arctan2(share * np.sin(_HEIGHTS)[:, None], (1 - share) + share * np.cos(_HEIGHTS)[:, None])
        if self.added:
            left = log_mixture(middle - wide, self.sampling_rate) + np.log(np.cos(_HEIGHTS / 2))[:, None]
            # e^(zL) and 1, each against the density of ℓ.
            power = np.maximum(0.0, -c * left) + reach * angle
        else:
            power = np.maximum(0.0, c * right) + right + reach * angle
        log = power + math.log(2) - math.log(4) - (middle - wide + self.epsilon) / 2
        log = (
            log
            + math.log(64 / 15 * half)
            - (2 * POINTS - 2) * np.log(rho)[:, None]
            - np.log(rho**2 - 1)[:, None]
        )
        peak = log.max(axis=1)
        whole = np.log(np.exp(log - peak[:, None]).sum(axis=1)) + peak
        # survives: How much is allowed for rounding is free, if it is some units more than is lost.
        return float(whole.min()) - self._least_moment(c) + 0.01


@lru_cache(maxsize=64)
def make_rule(pair: SubsampledLaplacePair, panels: int) -> _Rule:
    """The atoms and the nodes of some panels."""
    r, half = pair.epsilon, pair.epsilon / panels
    at, weight = legendre_rule(POINTS)
    middle = -r + half * (2 * np.arange(panels) + 1)
    own = (middle[:, None] + half * at).ravel()
    # Under Q ℓ is −r with probability ½, r with e^(−r)/2, and has the density e^(−(ℓ + r)/2)/4.
    mass = half * np.tile(weight, panels) * np.exp(-(own + r) / 2) / 4
    loss = log_mixture(np.concatenate([[-r, r], own]), pair.sampling_rate)
    mass = np.concatenate([[0.5, math.exp(-r) / 2], mass])
    if not pair.added:
        mass = mass * np.exp(loss)
    return _Rule(-loss if pair.added else loss, mass, np.linspace(-r, r, panels + 1), math.inf)
