"""Pairs of finite laws: randomized response, discrete noise, any two laws that can be listed.

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

from hubbub.accounting.float_bounds import Uncertified, log1p, mixed
from hubbub.errors import InvalidInput

__all__ = [
    "LEAST",
    "DiscretePair",
    "Masses",
    "Normal",
    "Smooth",
    "density",
    "discrete_gaussian",
    "discrete_laplace",
    "finite",
    "normal_cells",
    "outward",
    "randomized_response",
    "two_points",
    "within",
]

# What pairs of laws tell of their losses, cell by cell, and the normal law in cells.
#
# Proved in docs/proofs/pairs.md

Doubles = NDArray[np.float64]

LEAST = 1e-300
"""Masses below it may be missing or wrong; who needs an upper bound adds it for each cell."""

_UNIT = 2.0**-53
# survives: Where one formula takes over from the other is free: both are good there.
_SERIES = 0.5
"""Up to here (in half-widths times distance) a cell's normal mass is summed by a series."""


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


class Smooth:
    """A pair whose losses have a density, and may be any number; what is different a pair says itself."""

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


def within(most: float) -> Doubles:
    """Losses evenly over ±most, and closer at both ends."""
    near = np.linspace(0, min(80.0, most), 257)
    return np.unique(np.concatenate([near - most, np.linspace(-most, most, 65), most - near]))


def outward(low: float, high: float, by: float = 16 * _UNIT) -> tuple[float, float]:
    """Ends that hold the true ones, of which these are rounded."""
    return low - by * abs(low), high + by * abs(high)


class Normal(NamedTuple):
    """Normal masses as share·φ(place), which neither underflow nor cancel."""

    place: Doubles
    share: Doubles
    narrow: NDArray[np.bool_]


def normal_cells(left: Doubles, right: Doubles, half: Doubles) -> Normal:
    """The normal law between left and right, 2·half apart: known better than from their difference.

    A narrow cell is 2d·φ(z)·Σ He₂ⱼ(z)·d²ʲ/(2j+1)! around its middle z; of a wide one, Mills' ratio at both
    ends tells the tails' difference, over φ at the end that is closer to zero.
    """
    place = left / 2 + right / 2
    size = half * (np.abs(place) + 6)
    # survives: Where one formula takes over from the other is free: both are good there.
    narrow = size <= _SERIES
    share = np.empty(place.size)
    # Most cells are so narrow that few terms are enough.
    # survives: Where one formula takes over from the other is free: both are good there.
    for some in (size <= _SERIES / 16, narrow & (size > _SERIES / 16)):
        # survives: A few terms more.
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
    return Normal(place, share, narrow)


def density(normal: Normal) -> Doubles:
    """The masses as such."""
    return np.asarray(np.exp(-np.square(normal.place) / 2) / math.sqrt(2 * math.pi) * normal.share)


def _bulge(z: Doubles, half: Doubles, size: float) -> Doubles:
    """The mean of φ over z ± half, over φ(z): Σ He₂ⱼ(z)·half²ʲ/(2j+1)!, where (|z| + 6)·half ≤ size ≤ ½."""
    total = np.ones(z.size)
    square, before, now, scale = half * half, np.ones(z.size), z, np.ones(z.size)
    j, rest = 1, size * size / 6
    # survives: When the series is cut is free, if what is left is below 2^-55.
    while rest > 2.0**-60:
        even = z * now - (2 * j - 1) * before
        before, now = even, z * even - 2 * j * now
        scale = scale * square / ((2 * j) * (2 * j + 1))
        total += even * scale
        j += 1
        # survives: When the series is cut is free, if what is left is below 2^-55. When the series
        # is cut is free: here a few terms later.
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


Complexes = NDArray[np.complex128]

_WIDE = 40.0
"""Beyond so many deviations a normal law has less than 1e-300."""
_MOST_ATOMS = 1 << 20
_BATCH = 1 << 20


@dataclass(frozen=True)
class DiscretePair:
    """Finitely many losses, with the P- and Q-mass of each.

    >>> DiscretePair((1.0, -1.0), (0.75, 0.25), (0.25, 0.75)).derivatives(0.0)[1]
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
        return outward(min(self.losses), max(self.losses), self.precision)

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
        # survives: Where one formula takes over from the other is free: both are good there.
        small = float(max(1.0, np.abs(z.real).max(initial=0.0)) * np.abs(losses).max()) < 30
        # survives: How many points are worked on at a time changes none of them.
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

    def real_moment(self, c: float) -> float:
        """An upper bound of K at a real c > 0."""
        losses, p, _ = self._sorted
        power = c * losses
        peak = float(power.max())
        # survives: Where one formula takes over from the other is free: both are good there.
        if c * float(np.abs(losses).max()) < 30:
            return float(self.log_moment(np.array([complex(c)]))[0].real)
        # survives: Where one formula takes over from the other is free: both are good there.
        if peak < 700:
            terms = p * np.expm1(power)
            # survives: How much is allowed for rounding is free, if it is some units more than
            # is lost.
            return math.log1p(float(terms.sum()) + 64 * _UNIT * float(np.abs(terms).sum()))
        # survives: How much is allowed for rounding is free, if it is some units more than is lost.
        return (math.log(float((p * np.exp(power - peak)).sum())) + peak) * (1 + 64 * _UNIT)

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
        # survives: The loss of an empty cell does not count.
        loss = np.where(np.isfinite(edges[1:]), edges[1:], edges[:-1])
        # survives: How much is allowed for rounding is free, if it is some units more than is lost.
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
        # survives: How much is allowed for rounding is free, if it is some units more than is lost.
        unsure[wide] += 4 * self.accuracy + 1024 * _UNIT
        return Masses(ours, theirs, loss, np.full(cells, self.accuracy + 8 * _UNIT), unsure)

    def mixed(self, rate: float, *, added: bool) -> "DiscretePair":
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
        return DiscretePair(*laws, accuracy, precision, self.open)


def two_points(epsilon: Fraction | float, delta: Fraction | float = 0) -> DiscretePair:
    """The worst of all that is (ε, δ)-private: it tells all with probability δ, else its loss is ±ε.

    >>> two_points(Fraction(1, 2)).losses
    (0.5, -0.5)
    """
    loss, rest = float(epsilon), float(1 - delta)
    if epsilon > 0 and loss < LEAST:
        raise Uncertified
    seldom = math.exp(-loss)
    p = rest / (1 + seldom), rest * seldom / (1 + seldom)
    return DiscretePair((loss, -loss), p, p[::-1], float(delta), float(delta))


def randomized_response(keep: Fraction, categories: int) -> DiscretePair:
    """The truth with probability `keep`, else one of the other categories.

    >>> randomized_response(Fraction(3, 4), 2).losses == (math.log(3), -math.log(3))
    True
    """
    other = (1 - keep) / (categories - 1)
    p = [keep, other] + [(categories - 2) * other] * (categories > 2)
    return finite(p, [other, keep, *p[2:]])


def discrete_laplace(scale: Fraction | float, shift: int) -> DiscretePair:
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
    # survives: How much is allowed for rounding is free, if it is some units more than is lost.
    accuracy = _UNIT * (16 + 4 * min(shift / s, 700.0))
    return DiscretePair(_floats((2 * x - shift) / s), _floats(p), _floats(p[::-1]), accuracy=accuracy)


def discrete_gaussian(variance: Fraction | float, shift: int) -> DiscretePair:
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
    # survives: How much is allowed for rounding is free, if it is some units more than is lost.
    return DiscretePair(_floats(losses), _floats(p), _floats(p[::-1]), accuracy=2048 * _UNIT, open=shift > 0)


def finite(p: Sequence[Fraction], q: Sequence[Fraction]) -> DiscretePair:
    """Any two distributions on the same finitely many outcomes, given exactly.

    >>> finite([Fraction(1, 2), Fraction(1, 2)], [Fraction(1), Fraction(0)])
    DiscretePair(losses=(-0.6931471805599453,), p=(0.5,), q=(1.0,), certain=0.5, never=0.0, ...)
    """
    if len(p) != len(q) or sum(p) != 1 or sum(q) != 1 or min(*p, *q) < 0:
        raise InvalidInput(
            "p and q are not two distributions on the same outcomes",
            why="each must have no negative chance and sum to 1 exactly",
            fix="pass equally many fractions for both",
        )
    both = [(ours, theirs) for ours, theirs in zip(p, q, strict=True) if ours and theirs]
    return DiscretePair(
        tuple(_log(ours / theirs) for ours, theirs in both) or (0.0,),
        tuple(float(ours) for ours, _ in both) or (0.0,),
        tuple(float(theirs) for _, theirs in both) or (0.0,),
        _chance(sum((ours for ours, theirs in zip(p, q, strict=True) if not theirs), Fraction(0))),
        _chance(sum((theirs for ours, theirs in zip(p, q, strict=True) if not ours), Fraction(0))),
    )


def _chance(exact: Fraction) -> float:
    """To nearest, but never 0 where it is not."""
    return max(float(exact), 5e-324) if exact else 0.0


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
