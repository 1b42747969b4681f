"""Pairs of laws that a mechanism gives on neighbouring databases, seen through their privacy loss.

Each pair is one direction: the loss L = ln(P/Q) under P. It answers the engines' questions: moments for
the Fourier integral, masses between losses for the lattice. What comes out of here are doubles; each
answer says how far off they may be, and the engines allow for that.

Proof: docs/proofs/pairs.md
"""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from hubbub.loss.atoms import (
    Atoms,
    discrete_gaussian,
    discrete_laplace,
    finite,
    randomized_response,
    two_points,
)
from hubbub.loss.cells import LEAST, Masses, Smooth, density, normal_cells, outward, within
from hubbub.loss.logs import log1p, mixed, unmixed
from hubbub.loss.sampled import Uncertified

__all__ = [
    "LEAST",
    "Atoms",
    "Bell",
    "Laplacian",
    "Masses",
    "Mixed",
    "SampledBell",
    "discrete_gaussian",
    "discrete_laplace",
    "finite",
    "randomized_response",
    "two_points",
]

Complexes = NDArray[np.complex128]
Doubles = NDArray[np.float64]

_UNIT = 2.0**-53
_WIDE = 40.0
"""Beyond so many deviations a normal law has less than 1e-300."""


@dataclass(frozen=True)
class Bell(Smooth):
    """Gaussian noise: L is normal with mean μ²/2 and variance μ² under P.

    >>> Bell(1.0).derivatives(2.0)
    (3.0, 2.5, 1.0)
    """

    mu_squared: float

    @property
    def outline(self) -> Doubles:
        """Losses a tenth of a deviation apart, around P's mean and around Q's."""
        mu = math.sqrt(self.mu_squared)
        z = mu * np.linspace(-_WIDE, _WIDE, 801)
        return np.union1d(z - self.mu_squared / 2, z + self.mu_squared / 2)

    def log_moment(self, z: Complexes) -> Complexes:
        """K(z) = μ²(z + z²)/2."""
        return self.mu_squared / 2 * (z + z * z)

    def derivatives(self, c: float) -> tuple[float, float, float]:
        """K, K′ and K″ at a real c."""
        return self.mu_squared / 2 * (c + c * c), self.mu_squared * (0.5 + c), self.mu_squared

    def decay(self, t: float) -> float:
        """ln|e^(K(c+it) − K(c))| = −μ²t²/2."""
        return -self.mu_squared * t * t / 2

    def masses(self, edges: Doubles) -> Masses:
        """P- and Q-mass of losses in (edges[k], edges[k+1]].

        >>> Bell(1.0).masses(np.array([-np.inf, 0.5, np.inf])).p
        array([0.5, 0.5])
        """
        mu = math.sqrt(self.mu_squared)
        bound = mu * (mu / 2 + _WIDE)
        inner = edges.clip(-bound, bound)
        left, right = inner[:-1], inner[1:]
        half, middle = (right - left) / (2 * mu), left / 2 + right / 2
        ours, theirs = (
            normal_cells(left / mu + shift, right / mu + shift, half) for shift in (-mu / 2, mu / 2)
        )
        # φ(z₀)/φ(z₁) = e^((z₁² − z₀²)/2), which is e^ℓ itself where both stand in the middle.
        apart = (theirs.place - ours.place) / 2 * (theirs.place + ours.place)
        narrow = ours.narrow & theirs.narrow
        with np.errstate(divide="ignore", invalid="ignore"):
            loss = np.where(narrow, middle, apart) + np.log(ours.share / theirs.share)
        loss[half == 0] = middle[half == 0]
        # A rounded z is off by some units of `shift`; the rest is lost in wide cells.
        shift = np.abs(middle) / mu + half + mu
        accuracy = 4 * _UNIT * (4 + np.maximum(np.abs(ours.place), np.abs(theirs.place)) * shift)
        unsure = 16 * _UNIT * (1 + np.abs(middle))
        accuracy[~narrow] += 512 * _UNIT
        size = np.maximum(np.abs(ours.place), np.abs(theirs.place))
        unsure[~narrow] += 1024 * _UNIT + 16 * _UNIT * ((half + size) * shift)[~narrow]
        return Masses(density(ours), density(theirs), loss, accuracy, unsure)


@dataclass(frozen=True)
class Laplacian(Smooth):
    """Laplace noise of scale b on a sensitivity of ratio·b.

    Under P the loss is `ratio` with probability ½, −ratio with e^−ratio/2, and else has the density
    e^((L − ratio)/2)/4 between.

    >>> Laplacian(1.0).masses(np.array([-1.0, 0.0, 0.5, 1.0])).p.round(4)
    array([0.1193, 0.0861, 0.6106])
    """

    ratio: float

    @property
    def span(self) -> tuple[float, float]:
        """No loss is beyond ±ratio."""
        return outward(-self.ratio, self.ratio)

    @property
    def atoms(self) -> Doubles:
        """Both ends have a mass of their own."""
        return np.array([-self.ratio, self.ratio])

    @property
    def outline(self) -> Doubles:
        """Losses evenly over the whole, and closer at both ends."""
        return within(self.ratio)

    def log_moment(self, z: Complexes) -> Complexes:
        """K(z) = rz + ln(1 + z·(e^(−2w) − 1)/(1 + 2z)) with w = (z + ½)·r, for Re z > −½.

        It is good relatively also where it is small.
        """
        r, w = self.ratio, (z + 0.5) * self.ratio
        out = np.empty(z.shape, dtype=np.complex128)
        far = (w.real > 20) | (r > 1)
        out[far] = z[far] * r + log1p(np.expm1(-2 * w[far]) * z[far] / (1 + 2 * z[far]))
        if far.all():
            return out
        z, w = z[~far], w[~far]
        # e^K = e^(−r/2)·(cosh w + (r/2)·sinh(w)/w) is 1 at z = 0: summed from there, so that nothing cancels.
        start = r / 2
        near = np.abs(w) <= 1.5
        sinhc = np.empty(z.shape, dtype=np.complex128)
        sinhc[~near] = np.sinh(w[~near]) / w[~near] - math.sinh(start) / start
        # Σ (w²ʲ − s²ʲ)/(2j+1)!, where a·(aʲ − bʲ) + (a − b)·bʲ is the next difference.
        first, square = (z * (z + 1) * r * r)[near], w[near] ** 2
        difference, total, power, factor = first, np.zeros_like(first), 1.0, 6.0
        for j in range(1, 14):
            total += difference / factor
            factor *= (2 * j + 2) * (2 * j + 3)
            power *= start * start
            difference = square * difference + first * power
        sinhc[near] = total
        cosh = 2 * np.sinh((z + 1) * r / 2) * np.sinh(z * r / 2)
        out[~far] = log1p(math.exp(-start) * (cosh + start * sinhc))
        return out

    def derivatives(self, c: float) -> tuple[float, float, float]:
        """K, K′ and K″ at a real c."""
        r = self.ratio
        w = (c + 0.5) * r
        t = math.tanh(w)
        if abs(w) < 0.005:
            parts = 1 - w * w / 3, w / 3 - 2 * w**3 / 15, 1 / 3 - w * w / 15
        else:
            parts = t / w, 1 / w - t / (w * w), t / w - 2 / (w * w) + 2 * t / w**3
        size, first, second = 1 + r / 2 * parts[0], t + r / 2 * parts[1], 1 + r / 2 * parts[2]
        moment = float(self.log_moment(np.array([complex(c)]))[0].real)
        return moment, r * first / size, r * r * (second / size - (first / size) ** 2)

    def real_moment(self, c: float) -> float:
        """K at a real c > 0."""
        return float(self.log_moment(np.array([complex(c)]))[0].real)

    def decay(self, t: float) -> float:
        """None that holds at every tilt: the atom at the top does not fall off."""
        return 0.0 * t

    def masses(self, edges: Doubles) -> Masses:
        """P- and Q-mass of losses in (edges[k], edges[k+1]]."""
        r = self.ratio
        inner = edges.clip(-r, r)
        left, right = inner[:-1], inner[1:]
        share = -np.expm1((left - right) / 2) / 2
        p, q = share * np.exp((right - r) / 2), share * np.exp(-(left + r) / 2)
        loss = left / 2 + right / 2
        tail = math.exp(-r) / 2
        accuracy, unsure = (
            np.full(p.size, _UNIT * (16 + 2 * min(r, 700.0))),
            np.full(p.size, 16 * _UNIT * min(4 * r, r + 1)),
        )
        for place, often, seldom in ((r, 0.5, tail), (-r, tail, 0.5)):
            k = int(np.searchsorted(edges, place)) - 1
            if 0 <= k < p.size:
                loss[k] = _merged((place, often, seldom), (float(loss[k]), float(p[k]), float(q[k])))
                p[k] += often
                q[k] += seldom
        return Masses(p, q, loss, accuracy, unsure)


@dataclass(frozen=True)
class Mixed:
    """A Poisson-sampled mechanism: the unit takes part with probability `rate`.

    With r = 1 − rate + rate·e^ℓ of the mechanism's own loss ℓ: when the unit is removed, P is the mixture
    and L = ln r; when it is added, Q is, and L = −ln r.

    >>> Mixed(two_points(math.log(3)), 0.5, added=False).atoms.round(4).tolist() == [-0.4055, 0.6931]
    True
    """

    base: "Bell | Laplacian | Atoms"
    rate: float
    added: bool

    @cached_property
    def _atoms(self) -> Atoms | None:
        return self.base.mixed(self.rate, added=self.added) if isinstance(self.base, Atoms) else None

    def _outer(self, loss: Doubles) -> Doubles:
        """Own losses from the mechanism's, rising."""
        return -mixed(loss[::-1], self.rate) if self.added else mixed(loss, self.rate)

    @property
    def certain(self) -> float:
        """The P-mass of outcomes that Q never gives."""
        return self._atoms.certain if self._atoms else 0.0

    @property
    def span(self) -> tuple[float, float]:
        """From the least to the largest finite loss."""
        if self._atoms:
            return self._atoms.span
        low, high = self._outer(np.array(self.base.span))
        return outward(float(low), float(high))

    @property
    def atoms(self) -> Doubles:
        """Losses with a mass of their own."""
        return self._atoms.atoms if self._atoms else self._outer(self.base.atoms)

    @property
    def discrete(self) -> bool:
        """As the mechanism's."""
        return self.base.discrete

    @property
    def outline(self) -> Doubles:
        """Where the mechanism's outline goes."""
        return self._atoms.outline if self._atoms else np.unique(self._outer(self.base.outline))

    def log_moment(self, z: Complexes) -> Complexes:
        """K(z), where the mechanism has atoms only; else there is no closed form."""
        if not self._atoms:
            raise Uncertified
        return self._atoms.log_moment(z)

    def derivatives(self, c: float) -> tuple[float, float, float]:
        """K, K′ and K″ at a real c, where the mechanism has atoms only."""
        if not self._atoms:
            raise Uncertified
        return self._atoms.derivatives(c)

    def decay(self, t: float) -> float:
        """None is known."""
        return 0.0 * t

    def masses(self, edges: Doubles) -> Masses:
        """P- and Q-mass of losses in (edges[k], edges[k+1]]: the mechanism's, between mapped edges.

        A cell, taken as one outcome of loss ℓ, is one of loss ±ln(1 − rate + rate·e^ℓ) when sampled.
        """
        if self._atoms:
            return self._atoms.masses(edges)
        q = self.rate
        wanted = -edges[::-1] if self.added else edges
        inner = unmixed(wanted, q)
        # Where an edge came to lie a little beside what was wanted, so do losses.
        with np.errstate(invalid="ignore"):
            beside = np.abs(mixed(inner, q) - wanted)
        beside[~np.isfinite(inner)] = 0.0
        found = self.base.masses(inner)
        both = (1 - q) * found.q + q * found.p
        ratio = mixed(found.loss, q)
        # An error of ℓ is passed on times dL/dℓ = q·e^ℓ/r.
        slope = np.exp(np.minimum(0.0, math.log(q) + found.loss - ratio))
        unsure = slope * found.unsure + 16 * _UNIT * np.abs(ratio) + np.maximum(beside[:-1], beside[1:])
        accuracy = found.accuracy + 8 * _UNIT
        if self.added:
            return Masses(found.q[::-1], both[::-1], -ratio[::-1], accuracy[::-1], unsure[::-1])
        return Masses(both, found.q, ratio, accuracy, unsure)


@dataclass(frozen=True)
class SampledBell(Smooth):
    """One Poisson-sampled Gaussian step: sensitivity 1, deviation σ.

    >>> low, high = SampledBell(0.01, 1.0, added=True).span
    >>> low, round(high, 9)
    (-inf, 0.010050336)
    """

    rate: float
    sigma: float
    added: bool

    @cached_property
    def _mixed(self) -> Mixed:
        return Mixed(Bell(self.sigma**-2), self.rate, self.added)

    @property
    def span(self) -> tuple[float, float]:
        """From ln(1 − rate) up, or from its negative down."""
        return self._mixed.span

    @property
    def outline(self) -> Doubles:
        """Where the Gaussian's outline goes."""
        return self._mixed.outline

    def masses(self, edges: Doubles) -> Masses:
        """P- and Q-mass of losses in (edges[k], edges[k+1]]."""
        return self._mixed.masses(edges)


def _merged(atom: tuple[float, float, float], rest: tuple[float, float, float]) -> float:
    """The loss of an atom and the rest of its cell, (loss, p, q) each, taken as one outcome."""
    (place, often, seldom), (loss, p, q) = atom, rest
    ours, theirs = p + often, q + seldom
    if not p and not q:
        return place
    if ours and abs(place - loss) <= 1:
        return place - math.log1p(p / ours * math.expm1(place - loss))
    if ours and theirs:
        return math.log(ours) - math.log(theirs)
    if ours:
        # So large a loss that Q's masses are no doubles: −ln of the mean of e^−L.
        return loss - math.log(p / ours + often / ours * math.exp(min(0.0, loss - place)))
    return loss
