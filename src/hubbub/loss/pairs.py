"""Pairs of laws that a mechanism gives on neighbouring databases, seen through their privacy loss.

Each pair is one direction: the loss L = ln(P/Q) under P. It answers the engines' questions: moments for
the Fourier integral, masses between losses for the lattice. What comes out of here are doubles; each
answer says how far off they may be, and the engines allow for that.

Proof: docs/proofs/pairs.md
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hubbub.errors import InvalidInput
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

LEAST = 1e-300
"""Masses below it may be missing or wrong; who needs an upper bound adds it for each cell."""

_UNIT = 2.0**-53
_WIDE = 40.0
"""Beyond so many deviations a normal law has less than 1e-300."""
_SERIES = 0.5
"""Up to here (in half-widths times distance) a cell's normal mass is summed by a series."""
_MOST_ATOMS = 1 << 20
_BATCH = 1 << 20


class Masses(NamedTuple):
    """What lies between losses: each cell taken as one outcome."""

    p: Doubles
    q: Doubles
    loss: Doubles
    """ln(p/q) of each cell, known better than from p and q."""
    accuracy: Doubles
    """The relative error of each p and q above 1e-300."""
    unsure: Doubles
    """The error of each loss."""


@dataclass(frozen=True)
class Bell:
    """Gaussian noise: L is normal with mean μ²/2 and variance μ² under P.

    >>> Bell(1.0).derivatives(2.0)
    (3.0, 2.5, 1.0)
    """

    mu_squared: float

    @property
    def certain(self) -> float:
        """No loss is infinite."""
        return 0.0

    @property
    def span(self) -> tuple[float, float]:
        """Any loss is possible."""
        return -math.inf, math.inf

    @property
    def atoms(self) -> Doubles:
        """No loss has a mass of its own."""
        return np.zeros(0)

    @property
    def discrete(self) -> bool:
        """Losses have a density."""
        return False

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
        ours, theirs = (_normal(left / mu + shift, right / mu + shift, half) for shift in (-mu / 2, mu / 2))
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
        return Masses(_density(ours), _density(theirs), loss, accuracy, unsure)


@dataclass(frozen=True)
class Laplacian:
    """Laplace noise of scale b on a sensitivity of ratio·b.

    Under P the loss is `ratio` with probability ½, −ratio with e^−ratio/2, and else has the density
    e^((L − ratio)/2)/4 between.

    >>> Laplacian(1.0).masses(np.array([-1.0, 0.0, 0.5, 1.0])).p.round(4)
    array([0.1193, 0.0861, 0.6106])
    """

    ratio: float

    @property
    def certain(self) -> float:
        """No loss is infinite."""
        return 0.0

    @property
    def span(self) -> tuple[float, float]:
        """No loss is beyond ±ratio."""
        return _outward(-self.ratio, self.ratio)

    @property
    def atoms(self) -> Doubles:
        """Both ends have a mass of their own."""
        return np.array([-self.ratio, self.ratio])

    @property
    def discrete(self) -> bool:
        """Between the ends, losses have a density."""
        return False

    @property
    def outline(self) -> Doubles:
        """Losses evenly over the whole, and closer at both ends."""
        near = np.linspace(0, min(80.0, self.ratio), 257)
        whole = np.linspace(-self.ratio, self.ratio, 65)
        return np.unique(np.concatenate([near - self.ratio, whole, self.ratio - near]))

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
class Atoms:
    """Finitely many losses, with the P- and Q-mass of each.

    >>> Atoms((1.0, -1.0), (0.75, 0.25), (0.25, 0.75)).derivatives(0.0)[1]
    0.5
    """

    losses: tuple[float, ...]
    p: tuple[float, ...]
    q: tuple[float, ...]
    certain: float = 0.0
    """The P-mass of outcomes that Q never gives: an infinite loss."""
    never: float = 0.0
    """The Q-mass of outcomes that P never gives: only sampling makes them count."""
    accuracy: float = 8 * _UNIT
    """The relative error of any mass."""
    precision: float = 64 * _UNIT
    """The relative error of any loss."""
    open: bool = False
    """Whether there are other losses, too, of less than LEAST together, beyond these."""

    @cached_property
    def _sorted(self) -> tuple[Doubles, Doubles, Doubles]:
        losses = np.array(self.losses)
        order = np.argsort(losses)
        return losses[order], np.array(self.p)[order], np.array(self.q)[order]

    @property
    def span(self) -> tuple[float, float]:
        """From the least to the largest finite loss."""
        if self.open:
            return -math.inf, math.inf
        return _outward(min(self.losses), max(self.losses), self.precision)

    @property
    def atoms(self) -> Doubles:
        """All losses."""
        return self._sorted[0]

    @property
    def discrete(self) -> bool:
        """There is nothing but atoms."""
        return True

    @property
    def outline(self) -> Doubles:
        """The losses themselves."""
        return np.unique(self._sorted[0])

    def log_moment(self, z: Complexes) -> Complexes:
        """K(z) = ln Σ p·e^(zL), good relatively also where small."""
        losses, p, _ = self._sorted
        out = np.empty(z.shape, dtype=np.complex128)
        small = float(max(1.0, np.abs(z.real).max(initial=0.0)) * np.abs(losses).max()) < 30
        batch = max(1, _BATCH // losses.size)
        for start in range(0, z.size, batch):
            some = z[start : start + batch]
            power = np.multiply.outer(some, losses)
            if small:
                # As Σ p·(1 − e^−L) is the masses' difference, what is of first order in L is known exactly.
                second = _second(power) @ p + some * (_second(-losses) @ p)
                out[start : start + batch] = log1p(second + some * (self.never - self.certain) - self.certain)
            else:
                peak = power.real.max(axis=1)
                out[start : start + batch] = np.log(np.exp(power - peak[:, None]) @ p) + peak
        return out

    def derivatives(self, c: float) -> tuple[float, float, float]:
        """K, K′ and K″ at a real c."""
        losses, p, _ = self._sorted
        shift = float((c * losses).max())
        weight = p * np.exp(c * losses - shift)
        total = float(weight.sum())
        mean = float(weight @ losses) / total
        return math.log(total) + shift, mean, float(weight @ (losses - mean) ** 2) / total

    def decay(self, t: float) -> float:
        """None: atoms do not fall off."""
        return 0.0 * t

    def masses(self, edges: Doubles) -> Masses:
        """P- and Q-mass of losses in (edges[k], edges[k+1]]."""
        losses, p, q = self._sorted
        cells, size = edges.size - 1, float(np.abs(losses).max())
        inside = slice(*np.searchsorted(losses, edges[[0, -1]], side="right").tolist())
        losses, p, q = losses[inside], p[inside], q[inside]
        place = np.searchsorted(edges, losses) - 1
        ours, theirs = (np.bincount(place, weights=w, minlength=cells).astype(np.float64) for w in (p, q))
        loss = np.where(np.isfinite(edges[1:]), edges[1:], edges[:-1])
        unsure = np.full(cells, (self.precision + 16 * _UNIT) * size)
        # −ln of the mean of e^−L, from the least loss of the cell on: no exponent is above zero.
        losses, p, place = losses[p > 0], p[p > 0], place[p > 0]
        held, first, where = np.unique(place, return_index=True, return_inverse=True)
        last = np.append(first[1:], losses.size)[: first.size] - 1
        away = losses[first][where] - losses
        fall = np.bincount(where, weights=p * np.expm1(away)) / ours[held]
        near = losses[last] - losses[first] <= 1
        loss[held[near]] = losses[first][near] - np.log1p(fall[near])
        # Where a cell is wide, the masses tell it better: some of P's may have come to nothing.
        rest = np.bincount(where, weights=p * np.exp(away))[~near]
        wide = held[~near]
        with np.errstate(divide="ignore"):
            loss[wide] = np.where(
                theirs[wide] > LEAST,
                np.log(ours[wide]) - np.log(theirs[wide]),
                losses[first][~near] - np.log(rest / ours[wide]),
            )
        unsure[wide] += 4 * self.accuracy + 1024 * _UNIT
        return Masses(ours, theirs, loss, np.full(cells, self.accuracy + 8 * _UNIT), unsure)

    def mixed(self, rate: float, *, added: bool) -> "Atoms":
        """Every outcome's loss when the mechanism is Poisson-sampled at this rate."""
        losses, p, q = self._sorted
        ratio, both = mixed(losses, rate), (1 - rate) * q + rate * p
        if self.never and rate < 1:
            ratio = np.append(ratio, math.log1p(-rate))
            q, both = np.append(q, self.never), np.append(both, (1 - rate) * self.never)
        alone = self.never if rate == 1 else 0.0
        accuracy = self.accuracy + 16 * _UNIT
        # L = ln(1 − q + q·e^ℓ) is off by no more than e·max(1, ℓ) times as much as ℓ, relatively.
        precision = 3 * max(1.0, float(losses[-1])) * self.precision + 16 * _UNIT
        if added:
            laws = _floats(-ratio), _floats(q), _floats(both), alone, rate * self.certain
        else:
            laws = _floats(ratio), _floats(both), _floats(q), rate * self.certain, alone
        return Atoms(*laws, accuracy, precision, self.open)


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
        return _outward(float(low), float(high))

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
class SampledBell:
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
    def certain(self) -> float:
        """No loss is infinite."""
        return 0.0

    @property
    def span(self) -> tuple[float, float]:
        """From ln(1 − rate) up, or from its negative down."""
        return self._mixed.span

    @property
    def atoms(self) -> Doubles:
        """No loss has a mass of its own."""
        return np.zeros(0)

    @property
    def discrete(self) -> bool:
        """Losses have a density."""
        return False

    @property
    def outline(self) -> Doubles:
        """Where the Gaussian's outline goes."""
        return self._mixed.outline

    def masses(self, edges: Doubles) -> Masses:
        """P- and Q-mass of losses in (edges[k], edges[k+1]]."""
        return self._mixed.masses(edges)


def two_points(epsilon: Fraction | float, delta: Fraction | float = 0) -> Atoms:
    """The worst of all that is (ε, δ)-private: it tells all with probability δ, else its loss is ±ε.

    >>> two_points(Fraction(1, 2)).losses
    (0.5, -0.5)
    """
    loss, rest = float(epsilon), float(1 - delta)
    if epsilon > 0 and loss < LEAST:
        raise Uncertified
    seldom = math.exp(-loss)
    p = rest / (1 + seldom), rest * seldom / (1 + seldom)
    return Atoms((loss, -loss), p, p[::-1], float(delta), float(delta))


def randomized_response(keep: Fraction, categories: int) -> Atoms:
    """The truth with probability `keep`, else one of the other categories.

    >>> randomized_response(Fraction(3, 4), 2).losses == (math.log(3), -math.log(3))
    True
    """
    other = (1 - keep) / (categories - 1)
    p = [keep, other] + [(categories - 2) * other] * (categories > 2)
    return finite(p, [other, keep, *p[2:]])


def discrete_laplace(scale: Fraction | float, shift: int) -> Atoms:
    """Integer noise with probabilities ∝ e^(−|x|/scale), moved by `shift`.

    >>> discrete_laplace(2, 1).losses
    (-0.5, 0.5)
    """
    if not 0 < shift < _MOST_ATOMS:
        raise Uncertified
    s = float(scale)
    x = np.arange(shift + 1)
    # All x ≤ 0 have one loss, and all x ≥ shift.
    p = math.tanh(0.5 / s) * np.exp((x - shift) / s)
    p[0], p[-1] = np.exp(-shift / s) / (1 + math.exp(-1 / s)), 1 / (1 + math.exp(-1 / s))
    accuracy = _UNIT * (16 + 4 * min(shift / s, 700.0))
    return Atoms(_floats((2 * x - shift) / s), _floats(p), _floats(p[::-1]), accuracy=accuracy)


def discrete_gaussian(variance: Fraction | float, shift: int) -> Atoms:
    """Integer noise with probabilities ∝ e^(−x²/2·variance), moved by `shift`.

    >>> discrete_gaussian(4, 1).span[1] > 9
    True
    """
    exact = Fraction(variance)
    reach = math.ceil(_WIDE * math.sqrt(exact)) + 1
    if 2 * reach + shift >= _MOST_ATOMS:
        raise Uncertified
    x = np.arange(-reach, shift + reach + 1)
    twice = float(2 * exact)
    p = np.exp(-((x - shift) ** 2) / twice)
    p /= p.sum()
    losses = shift * (2 * x - shift) / twice
    # An exponent of up to 750 is rounded.
    return Atoms(_floats(losses), _floats(p), _floats(p[::-1]), accuracy=2048 * _UNIT, open=shift > 0)


def finite(p: Sequence[Fraction], q: Sequence[Fraction]) -> Atoms:
    """Any two distributions on the same finitely many outcomes, given exactly.

    >>> finite([Fraction(1, 2), Fraction(1, 2)], [Fraction(1), Fraction(0)])
    Atoms(losses=(-0.6931471805599453,), p=(0.5,), q=(1.0,), certain=0.5, never=0.0, ...)
    """
    if len(p) != len(q) or sum(p) != 1 or sum(q) != 1 or min(*p, *q) < 0:
        raise InvalidInput(
            "p and q are not two distributions on the same outcomes",
            why="each must have no negative chance and sum to 1 exactly",
            fix="pass equally many fractions for both",
        )
    both = [(ours, theirs) for ours, theirs in zip(p, q, strict=True) if ours and theirs]
    return Atoms(
        tuple(_log(ours / theirs) for ours, theirs in both) or (0.0,),
        tuple(float(ours) for ours, _ in both) or (0.0,),
        tuple(float(theirs) for _, theirs in both) or (0.0,),
        float(sum(ours for ours, theirs in zip(p, q, strict=True) if not theirs)),
        float(sum(theirs for ours, theirs in zip(p, q, strict=True) if not ours)),
    )


def _outward(low: float, high: float, by: float = 16 * _UNIT) -> tuple[float, float]:
    """Ends that hold the true ones, of which these are rounded."""
    return low - by * abs(low), high + by * abs(high)


def _floats(values: Doubles) -> tuple[float, ...]:
    return tuple(values.tolist())


def _log(ratio: Fraction) -> float:
    """The logarithm, good relatively also close to 1, and where the ratio is no double."""
    if Fraction(1, 2) < ratio < 2:
        return math.log1p(float(ratio - 1))
    if abs(ratio.numerator.bit_length() - ratio.denominator.bit_length()) < 1000:
        return math.log(float(ratio))
    return math.log(ratio.numerator) - math.log(ratio.denominator)


def _second(power: NDArray[np.inexact]) -> Complexes:
    """The rest of e^x after 1 + x, good relatively also where it is small."""
    x: Complexes = np.asarray(power, dtype=np.complex128)
    near = np.abs(x) < 0.5
    out: Complexes = np.expm1(x) - x
    term = total = x[near] ** 2 / 2
    for k in range(3, 18):
        term = term * x[near] / k
        total = total + term
    out[near] = total
    return out


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


class _Normal(NamedTuple):
    """Normal masses as share·φ(place), which neither underflow nor cancel."""

    place: Doubles
    share: Doubles
    narrow: NDArray[np.bool_]


def _normal(left: Doubles, right: Doubles, half: Doubles) -> _Normal:
    """The normal law between left and right, 2·half apart: known better than from their difference.

    A narrow cell is 2d·φ(z)·Σ He₂ⱼ(z)·d²ʲ/(2j+1)! around its middle z; of a wide one, Mills' ratio at both
    ends tells the tails' difference, over φ at the end that is closer to zero.
    """
    place = left / 2 + right / 2
    size = half * (np.abs(place) + 6)
    narrow = size <= _SERIES
    share = np.empty(place.size)
    # Most cells are so narrow that few terms are enough.
    for some in (size <= _SERIES / 16, narrow & (size > _SERIES / 16)):
        share[some] = 2 * half[some] * _bulge(place[some], half[some], float(size[some].max(initial=0.0)))
    wide = ~narrow
    flip = right[wide] <= 0
    near, far = np.where(flip, -right[wide], left[wide]), np.where(flip, -left[wide], right[wide])
    place[wide] = np.where(flip, -1.0, 1.0) * np.maximum(near, 0.0)
    mills, beyond = _mills(np.abs(near)), _mills(np.abs(far))
    # φ at the ends against φ at the place; where the cell holds zero, it is all but two tails.
    own = np.exp(-np.square(np.minimum(near, 0.0)) / 2)
    fall = np.exp(-np.where(near < 0, far * far / 2, half[wide] * (near + far)))
    share[wide] = np.where(near < 0, math.sqrt(2 * math.pi) - own * mills, mills) - fall * beyond
    return _Normal(place, share, narrow)


def _density(normal: _Normal) -> Doubles:
    """The masses as such."""
    return np.asarray(np.exp(-np.square(normal.place) / 2) / math.sqrt(2 * math.pi) * normal.share)


def _bulge(z: Doubles, half: Doubles, size: float) -> Doubles:
    """The mean of φ over z ± half, over φ(z): Σ He₂ⱼ(z)·half²ʲ/(2j+1)!, where (|z| + 6)·half ≤ size ≤ ½."""
    total = np.ones(z.size)
    square, before, now, scale = half * half, np.ones(z.size), z, np.ones(z.size)
    j, rest = 1, size * size / 6
    while rest > 2.0**-60:
        even = z * now - (2 * j - 1) * before
        before, now = even, z * even - 2 * j * now
        scale = scale * square / ((2 * j) * (2 * j + 1))
        total += even * scale
        j += 1
        rest *= size * size / ((2 * j) * (2 * j + 1))
    return total


def _mills(x: Doubles) -> Doubles:
    """Pr[Z > x]/φ(x) for x ≥ 0."""
    far = x > 8
    out = np.empty(x.size)
    root = math.sqrt(0.5)
    out[~far] = [math.erfc(y * root) * math.exp(y * y / 2) * math.sqrt(math.pi / 2) for y in x[~far].tolist()]
    tail = x[far]
    for n in range(30, 0, -1):
        tail = x[far] + n / tail
    out[far] = 1 / tail
    return out
