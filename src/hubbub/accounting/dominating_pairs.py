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

from hubbub.accounting.discrete_pairs import (
    LEAST,
    DiscretePair,
    Masses,
    Smooth,
    density,
    discrete_gaussian,
    discrete_laplace,
    finite,
    normal_cells,
    outward,
    randomized_response,
    two_points,
    within,
)
from hubbub.accounting.float_bounds import Uncertified, log1p, mixed, unmixed

__all__ = [
    "LEAST",
    "BoundedRangePair",
    "DiscretePair",
    "GaussianPair",
    "LaplacePair",
    "Masses",
    "MirroredPair",
    "SubsampledGaussianPair",
    "SubsampledGroupPair",
    "SubsampledPair",
    "discrete_gaussian",
    "discrete_laplace",
    "finite",
    "mirror_pair",
    "randomized_response",
    "two_points",
]

Complexes = NDArray[np.complex128]
Doubles = NDArray[np.float64]

_UNIT = 2.0**-53
_WIDE = 40.0
"""Beyond so many deviations a normal law has less than 1e-300."""


@dataclass(frozen=True)
class GaussianPair(Smooth):
    """Gaussian noise: L is normal with mean μ²/2 and variance μ² under P.

    >>> GaussianPair(1.0).derivatives(2.0)
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

        >>> GaussianPair(1.0).masses(np.array([-np.inf, 0.5, np.inf])).p
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
class LaplacePair(Smooth):
    """Laplace noise of scale b on a sensitivity of ratio·b.

    Under P the loss is `ratio` with probability ½, −ratio with e^−ratio/2, and else has the density
    e^((L − ratio)/2)/4 between.

    >>> LaplacePair(1.0).masses(np.array([-1.0, 0.0, 0.5, 1.0])).p.round(4)
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
class SubsampledPair:
    """A Poisson-sampled mechanism: the unit takes part with probability `rate`.

    With r = 1 − rate + rate·e^ℓ of the mechanism's own loss ℓ: when the unit is removed, P is the mixture
    and L = ln r; when it is added, Q is, and L = −ln r.

    >>> SubsampledPair(two_points(math.log(3)), 0.5, added=False).atoms.round(4).tolist() == [-0.4055, 0.6931]
    True
    """

    base: "GaussianPair | LaplacePair | DiscretePair"
    rate: float
    added: bool

    @cached_property
    def _atoms(self) -> DiscretePair | None:
        return self.base.mixed(self.rate, added=self.added) if isinstance(self.base, DiscretePair) else None

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
class SubsampledGaussianPair(Smooth):
    """One Poisson-sampled Gaussian step: sensitivity 1, deviation σ.

    >>> low, high = SubsampledGaussianPair(0.01, 1.0, added=True).span
    >>> low, round(high, 9)
    (-inf, 0.010050336)
    """

    rate: float
    sigma: float
    added: bool

    @cached_property
    def _mixed(self) -> SubsampledPair:
        return SubsampledPair(GaussianPair(self.sigma**-2), self.rate, self.added)

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


# Pairs made of other pairs: bounded ranges, samples of fixed size, groups in a sample.
#
# Proved in docs/proofs/pairs.md

_TABLE = 4096


@dataclass(frozen=True)
class BoundedRangePair(Smooth):
    """The worst of all whose losses lie in one interval of length `width`: a density e^(L/2) on ±width.

    >>> BoundedRangePair(1.0).masses(np.array([-1.0, 0.0, 1.0])).p.round(4)
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
        # survives: How much is allowed for rounding is free, if it is some units more than is lost.
        accuracy = np.full(p.size, _UNIT * (24 + 2 * min(w, 700.0)))
        # survives: How much is allowed for rounding is free, if it is some units more than is lost.
        return Masses(p, q, left / 2 + right / 2, accuracy, np.full(p.size, 16 * _UNIT * min(4 * w, w + 1)))


def mirror_pair(base: GaussianPair | DiscretePair | SubsampledPair) -> "DiscretePair | MirroredPair":
    """A pair's losses above 0, and their mirror image below: what is left has no loss.

    >>> mirror_pair(DiscretePair((1.0, -1.0), (0.5, 0.1), (0.2, 0.3))).losses
    (1.0, -1.0, 0.0)
    """
    if isinstance(base, SubsampledPair) and base._atoms:  # noqa: SLF001
        base = base._atoms  # noqa: SLF001
    if not isinstance(base, DiscretePair):
        return MirroredPair(base)
    positive = [(loss, p, q) for loss, p, q in zip(base.losses, base.p, base.q, strict=True) if loss > 0]
    losses, p, q = zip(*positive, strict=True) if positive else ((), (), ())
    # survives: What is left is less than 0 by rounding only; a mass of some units less than nothing is
    # within what is allowed for.
    rest = max(0.0, 1 - math.fsum(p) - math.fsum(q) - base.certain)
    # survives: How much is allowed for rounding is free, if it is some units more than is lost.
    return DiscretePair(
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
class MirroredPair:
    """Losses above 0 as a pair has them, and their mirror image below 0: what is left has no loss."""

    base: GaussianPair | SubsampledPair

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
        # survives: A pair with a density has one atom above 0, if any.
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
        # survives: What is left is less than 0 by rounding only; a mass of some units less than
        # nothing is within what is allowed for. How much is allowed for rounding is free, if it is
        # some units more than is lost.
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
        # survives: What the parts allow for is many units more than they lose: two sums more fit
        # in. How much is allowed for rounding is free, if it is some units more than is lost.
        accuracy = np.maximum(up.accuracy, low.accuracy) + 4 * _UNIT
        # survives: From an edge of 0 on both sides allow for as much.
        unsure = np.where(edges[:-1] >= 0, up.unsure, low.unsure)
        for k in np.flatnonzero(holds_none):
            # From both sides and no loss: P − Q is small beside either, and is summed by itself.
            sides = [(float(side.p[k]), float(side.loss[k])) for side in (up, low) if side.p[k] > 0]
            apart = math.fsum(-mass * math.expm1(-value) for mass, value in sides)
            # survives: Without any mass, or with one that is lost in rounding, the loss does
            # not count.
            loss[k] = math.log1p(apart / q[k]) if q[k] > 0 and apart > -q[k] else 0.0
            widest = max((abs(value) for _, value in sides), default=0.0)
            # survives: A cell around 0 that holds nothing at all is not met: its edges are
            # apart.
            missed = off / p[k] if p[k] > 0 else 1.0
            accuracy[k] += missed
            # survives: How much is allowed for rounding is free, if it is some units more than
            # is lost. How much is allowed for rounding is free, if it is some units more than
            # is lost: both sides allow for theirs already. Where a loss is above 1, more is
            # allowed for than need be.
            unsure[k] = float(up.unsure[k] + low.unsure[k]) + (missed + 32 * _UNIT) * min(1.0, widest)
        return Masses(p, q, loss, accuracy, unsure)


@dataclass(frozen=True)
class SubsampledGroupPair(Smooth):
    """`size` units in one Poisson sample of a Gaussian mechanism: it moves by as many μ as were sampled.

    P is the mixture Σ Bin(size, rate)(j)·N(jμ, 1) against N(0, 1), or the other way round if `added`.

    >>> SubsampledGroupPair(0.5, 1.0, 1, added=False).span == SubsampledPair(GaussianPair(1.0), 0.5,
    ...     added=False).span
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
        # survives: Where the table ends is free, as long as less than 1e-300 lies beyond: here 42
        # deviations are more than the law of the group needs.
        score = mu * np.linspace(-42.0, 42.0 + self.size * mu, _TABLE)
        return score, self._mixed(self._alone(score))[0]

    @property
    def outline(self) -> Doubles:
        """Losses at scores evenly apart."""
        # survives: How many losses outline the law is free.
        ratio = np.unique(self._table[1][::4])
        return -ratio[::-1] if self.added else ratio

    def masses(self, edges: Doubles) -> Masses:
        """P- and Q-mass of losses in (edges[k], edges[k+1]]."""
        score = self._score(-edges[::-1] if self.added else edges)
        # Of j sampled, the loss alone is jx − j²μ²/2 at the score x, which is N(0, μ²) under Q.
        alone = [
            GaussianPair(j * j * self.mu_squared).masses(j * score - j * j * self.mu_squared / 2)
            for j in range(1, self.size + 1)
        ]
        plain = alone[0]
        ratio, share = self._mixed(np.stack([np.zeros(plain.p.size), *(one.loss for one in alone)]))
        both = self._weights[0] * plain.q + sum(
            w * one.p for w, one in zip(self._weights[1:], alone, strict=True)
        )
        errors = np.stack([np.zeros(plain.p.size), *(one.unsure for one in alone)])
        # survives: How much is allowed for rounding is free, if it is some units more than is lost.
        unsure = (share * errors).sum(axis=0) + 64 * _UNIT * self.size * (1 + np.abs(ratio))
        # survives: How much is allowed for rounding is free, if it is some units more than is lost.
        accuracy = np.max([one.accuracy for one in alone], axis=0) + 32 * _UNIT * self.size
        if self.added:
            return Masses(plain.q[::-1], both[::-1], -ratio[::-1], accuracy[::-1], unsure[::-1])
        return Masses(both, plain.q, ratio, accuracy, unsure)

    def _mixed(self, losses: Doubles) -> tuple[Doubles, Doubles]:
        """From the loss of each number sampled: the mixture's, ln Σ w_j·e^ℓ_j, and each one's share."""
        # survives: Where one formula takes over from the other is free: both are good there.
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
        # survives: What lies at the end of the table is set to −∞ after all.
        inside = (ratio > known[0]) & (ratio < known[-1])
        # survives: How many steps are made is free, once they have come to rest.
        for _ in range(8):
            # Newton; the log-ratio is convex and rising, and its slope is the mean number sampled.
            found, share = self._mixed(self._alone(x[inside]))
            slope = np.arange(self.size + 1) @ share
            # survives: It guards a division by 0 where no one of the group is sampled.
            move = (ratio[inside] - found) / np.maximum(slope, 1e-300)
            # survives: Where a step is cut is free.
            x[inside] = (x[inside] + move).clip(score[0], score[-1])
        # survives: Between the last two places of the table, 42 deviations out, there is nothing.
        x = np.where(ratio <= known[0], -math.inf, np.where(ratio >= known[-1], math.inf, x))
        return np.asarray(np.maximum.accumulate(x))
