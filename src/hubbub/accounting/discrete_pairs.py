"""Dominating pairs of finite distributions: randomized response, discrete noise, any two given ones.

Proof: docs/proofs/dominating-pairs.md
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from hubbub.accounting.dominating_pairs import MAX_TERMS, MIN_MASS, BinMasses, widen
from hubbub.accounting.float_bounds import Uncertified, log1p, log_mixture
from hubbub.errors import InvalidInput

__all__ = [
    "DiscretePair",
    "discrete_gaussian_pair",
    "discrete_laplace_pair",
    "epsilon_delta_pair",
    "finite_pair",
    "randomized_response_pair",
]

Complexes = NDArray[np.complex128]
Doubles = NDArray[np.float64]

_UNIT_ROUNDOFF = 2.0**-53
_TAIL_DEVIATIONS = 40.0
"""Beyond this many standard deviations a normal distribution has less than 1e-300."""
_MAX_ATOMS = 1 << 20
BATCH = 1 << 20


@dataclass(frozen=True)
class DiscretePair:
    """Finitely many losses, with the P- and Q-mass of each.

    >>> DiscretePair((1.0, -1.0), (0.75, 0.25), (0.25, 0.75)).derivatives(0.0)[1]
    0.5
    """

    losses: tuple[float, ...]
    p: tuple[float, ...]
    q: tuple[float, ...]
    infinity_mass: float = 0.0
    """The P-mass of outcomes impossible under Q: an infinite loss."""
    negative_infinity_mass: float = 0.0
    """The Q-mass of outcomes impossible under P: it matters only when subsampled."""
    relative_mass_error: float = 8 * _UNIT_ROUNDOFF
    """The relative error of any mass."""
    relative_loss_error: float = 64 * _UNIT_ROUNDOFF
    """The relative error of any loss."""
    truncated: bool = False
    """True if further losses, of less than MIN_MASS together, are left out."""

    @cached_property
    def _sorted(self) -> tuple[Doubles, Doubles, Doubles]:
        losses = np.array(self.losses)
        order = np.argsort(losses)
        return losses[order], np.array(self.p)[order], np.array(self.q)[order]

    @property
    def support(self) -> tuple[float, float]:
        """From the least to the largest finite loss."""
        if self.truncated:
            return -math.inf, math.inf
        return widen(min(self.losses), max(self.losses), self.relative_loss_error)

    @property
    def atoms(self) -> Doubles:
        """All losses."""
        return self._sorted[0]

    @property
    def is_discrete(self) -> bool:
        """True: there are only atoms."""
        return True

    @property
    def coarse_grid(self) -> Doubles:
        """The losses themselves."""
        return np.unique(self._sorted[0])

    def log_moment(self, z: Complexes) -> Complexes:
        """K(z) = ln Σ p·e^(zL), accurate relatively also where it is small."""
        losses, p, _ = self._sorted
        out = np.empty(z.shape, dtype=np.complex128)
        # survives: Where one formula takes over from the other is free: both are good there.
        small = float(max(1.0, np.abs(z.real).max(initial=0.0)) * np.abs(losses).max()) < 30
        # survives: How many points are worked on at a time changes none of them.
        batch = max(1, BATCH // losses.size)
        for start in range(0, z.size, batch):
            some = z[start : start + batch]
            power = np.multiply.outer(some, losses)
            if small:
                # As Σ p·(1 − e^−L) is the masses' difference, what is of first order in L is known exactly.
                second = expm1_minus_x(power) @ p + some * (expm1_minus_x(-losses) @ p)
                out[start : start + batch] = log1p(
                    second + some * (self.negative_infinity_mass - self.infinity_mass) - self.infinity_mass
                )
            else:
                peak = power.real.max(axis=1)
                out[start : start + batch] = np.log(np.exp(power - peak[:, None]) @ p) + peak
        return out

    def log_moment_upper(self, c: float) -> float:
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
            return math.log1p(float(terms.sum()) + 64 * _UNIT_ROUNDOFF * float(np.abs(terms).sum()))
        # survives: How much is allowed for rounding is free, if it is some units more than is lost.
        return (math.log(float((p * np.exp(power - peak)).sum())) + peak) * (1 + 64 * _UNIT_ROUNDOFF)

    def derivatives(self, c: float) -> tuple[float, float, float]:
        """K, K′ and K″ at a real c."""
        losses, p, _ = self._sorted
        shift = float((c * losses).max())
        weight = p * np.exp(c * losses - shift)
        total = float(weight.sum())
        mean = float(weight @ losses) / total
        return math.log(total) + shift, mean, float(weight @ (losses - mean) ** 2) / total

    def decay(self, t: Doubles, c: float) -> Doubles:
        """0: a transform of atoms does not decay."""
        return 0 * c * t

    def moment_error(self, z: Complexes) -> Doubles:
        """How many units of 2^-48 e^K(z) is off, of e^K(Re z), beyond some units of K."""
        losses, p, _ = self._sorted
        c, largest = float(z.real.max()), float(np.abs(losses).max())
        if self.truncated or c * largest > 600 or z.size * losses.size > MAX_TERMS:
            raise Uncertified
        # Σ p·e^(cL) is at least 1.
        size = float(p @ np.exp(np.maximum(0.0, c * losses))) / max(1.0, float(p @ np.exp(c * losses)))
        units = self.relative_mass_error + (64 + losses.size) * _UNIT_ROUNDOFF
        # zL, and its mean, which is known from the masses.
        off = units + 2 * (units + self.relative_loss_error) * np.abs(z) * largest
        return np.asarray(2.0**48 * size * off)

    def bin_masses(self, edges: Doubles) -> BinMasses:
        """P- and Q-mass of losses in (edges[k], edges[k+1]]."""
        losses, p, q = self._sorted
        bins, size = edges.size - 1, float(np.abs(losses).max())
        inside = slice(*np.searchsorted(losses, edges[[0, -1]], side="right").tolist())
        losses, p, q = losses[inside], p[inside], q[inside]
        place = np.searchsorted(edges, losses) - 1
        ours, theirs = (np.bincount(place, weights=w, minlength=bins).astype(np.float64) for w in (p, q))
        # survives: The loss of an empty cell does not count.
        loss = np.where(np.isfinite(edges[1:]), edges[1:], edges[:-1])
        # survives: How much is allowed for rounding is free, if it is some units more than is lost.
        loss_error = np.full(bins, (self.relative_loss_error + 16 * _UNIT_ROUNDOFF) * size)
        # −ln of the mean of e^−L, from the least loss of the cell on: no exponent is above zero.
        losses, p, place = losses[p > 0], p[p > 0], place[p > 0]
        filled, first, where = np.unique(place, return_index=True, return_inverse=True)
        last = np.append(first[1:], losses.size)[: first.size] - 1
        away = losses[first][where] - losses
        fall = np.bincount(where, weights=p * np.expm1(away)) / ours[filled]
        near = losses[last] - losses[first] <= 1
        loss[filled[near]] = losses[first][near] - np.log1p(fall[near])
        # Where a cell is wide, the masses tell it better: some of P's may have come to nothing.
        rest = np.bincount(where, weights=p * np.exp(away))[~near]
        wide = filled[~near]
        with np.errstate(divide="ignore"):
            loss[wide] = np.where(
                theirs[wide] > MIN_MASS,
                np.log(ours[wide]) - np.log(theirs[wide]),
                losses[first][~near] - np.log(rest / ours[wide]),
            )
        # survives: How much is allowed for rounding is free, if it is some units more than is lost.
        loss_error[wide] += 4 * self.relative_mass_error + 1024 * _UNIT_ROUNDOFF
        return BinMasses(
            ours, theirs, loss, np.full(bins, self.relative_mass_error + 8 * _UNIT_ROUNDOFF), loss_error
        )

    def poisson_subsampled(self, sampling_rate: float, *, added: bool) -> "DiscretePair":
        """The pair of the mechanism on a Poisson sample of this rate, when a unit is added or removed."""
        losses, p, q = self._sorted
        ratio, both = log_mixture(losses, sampling_rate), (1 - sampling_rate) * q + sampling_rate * p
        if self.negative_infinity_mass and sampling_rate < 1:
            # Disjoint distributions have one atom at 0, without mass, only so that no pair is empty.
            if self.losses == (0.0,) and not p.any() and not q.any():
                ratio, q, both = ratio[:0], q[:0], both[:0]
            ratio = np.append(ratio, math.log1p(-sampling_rate))
            q, both = (
                np.append(q, self.negative_infinity_mass),
                np.append(both, (1 - sampling_rate) * self.negative_infinity_mass),
            )
        alone = self.negative_infinity_mass if sampling_rate == 1 else 0.0
        relative_mass_error = self.relative_mass_error + 16 * _UNIT_ROUNDOFF
        # L = ln(1 − q + q·e^ℓ) is off by no more than e·max(1, ℓ) times as much as ℓ, relatively.
        relative_loss_error = 3 * max(1.0, float(losses[-1])) * self.relative_loss_error + 16 * _UNIT_ROUNDOFF
        if added:
            laws = _to_tuple(-ratio), _to_tuple(q), _to_tuple(both), alone, sampling_rate * self.infinity_mass
        else:
            laws = _to_tuple(ratio), _to_tuple(both), _to_tuple(q), sampling_rate * self.infinity_mass, alone
        return DiscretePair(*laws, relative_mass_error, relative_loss_error, self.truncated)


def epsilon_delta_pair(epsilon: Fraction | float, delta: Fraction | float = 0) -> DiscretePair:
    """The worst (ε, δ)-DP pair: an infinite loss with probability δ, else ±ε.

    >>> epsilon_delta_pair(Fraction(1, 2)).losses
    (0.5, -0.5)
    """
    loss, rest = float(epsilon), float(1 - delta)
    if epsilon > 0 and loss < MIN_MASS:
        raise Uncertified
    seldom = math.exp(-loss)
    p = rest / (1 + seldom), rest * seldom / (1 + seldom)
    return DiscretePair((loss, -loss), p, p[::-1], float(delta), float(delta))


def randomized_response_pair(truth_probability: Fraction, categories: int) -> DiscretePair:
    """The truth with probability `truth_probability`, else one of the other categories.

    >>> randomized_response_pair(Fraction(3, 4), 2).losses == (math.log(3), -math.log(3))
    True
    """
    other = (1 - truth_probability) / (categories - 1)
    p = [truth_probability, other] + [(categories - 2) * other] * (categories > 2)
    return finite_pair(p, [other, truth_probability, *p[2:]])


def discrete_laplace_pair(scale: Fraction | float, sensitivity: int) -> DiscretePair:
    """Integer noise with probabilities ∝ e^(−|x|/scale), moved by `sensitivity`.

    >>> discrete_laplace_pair(2, 1).losses
    (-0.5, 0.5)
    """
    if not 0 < sensitivity < _MAX_ATOMS:
        raise Uncertified
    s = float(scale)
    x = np.arange(sensitivity + 1)
    # All x ≤ 0 have one loss, and all x ≥ sensitivity.
    p = math.tanh(0.5 / s) * np.exp((x - sensitivity) / s)
    p[0], p[-1] = np.exp(-sensitivity / s) / (1 + math.exp(-1 / s)), 1 / (1 + math.exp(-1 / s))
    # survives: How much is allowed for rounding is free, if it is some units more than is lost.
    relative_mass_error = _UNIT_ROUNDOFF * (16 + 4 * min(sensitivity / s, 700.0))
    return DiscretePair(
        _to_tuple((2 * x - sensitivity) / s),
        _to_tuple(p),
        _to_tuple(p[::-1]),
        relative_mass_error=relative_mass_error,
    )


def discrete_gaussian_pair(variance: Fraction | float, sensitivity: int) -> DiscretePair:
    """Integer noise with probabilities ∝ e^(−x²/2·variance), moved by `sensitivity`.

    >>> discrete_gaussian_pair(4, 1).support[1] > 9
    True
    """
    exact = Fraction(variance)
    reach = math.ceil(_TAIL_DEVIATIONS * math.sqrt(exact)) + 1
    if 2 * reach + sensitivity >= _MAX_ATOMS:
        raise Uncertified
    x = np.arange(-reach, sensitivity + reach + 1)
    twice = float(2 * exact)
    p = np.exp(-((x - sensitivity) ** 2) / twice)
    p /= p.sum()
    losses = sensitivity * (2 * x - sensitivity) / twice
    # An exponent of up to 750 is rounded.
    # survives: How much is allowed for rounding is free, if it is some units more than is lost.
    return DiscretePair(
        _to_tuple(losses),
        _to_tuple(p),
        _to_tuple(p[::-1]),
        relative_mass_error=2048 * _UNIT_ROUNDOFF,
        truncated=sensitivity > 0,
    )


def finite_pair(p: Sequence[Fraction], q: Sequence[Fraction]) -> DiscretePair:
    """Any two distributions on the same finitely many outcomes, given exactly.

    >>> finite_pair([Fraction(1, 2), Fraction(1, 2)], [Fraction(1), Fraction(0)])
    DiscretePair(losses=(-0.6931471805599453,), p=(0.5,), q=(1.0,), infinity_mass=0.5, ...)
    """
    if len(p) != len(q) or sum(p) != 1 or sum(q) != 1 or min(*p, *q) < 0:
        raise InvalidInput(
            "p and q are not two distributions on the same outcomes",
            why="each must have no negative probability and sum to 1 exactly",
            fix="pass equally many fractions for both",
        )
    both = [(ours, theirs) for ours, theirs in zip(p, q, strict=True) if ours and theirs]
    return DiscretePair(
        tuple(log_ratio(ours / theirs) for ours, theirs in both) or (0.0,),
        tuple(float(ours) for ours, _ in both) or (0.0,),
        tuple(float(theirs) for _, theirs in both) or (0.0,),
        _positive_float(sum((ours for ours, theirs in zip(p, q, strict=True) if not theirs), Fraction(0))),
        _positive_float(sum((theirs for ours, theirs in zip(p, q, strict=True) if not ours), Fraction(0))),
    )


def _positive_float(exact: Fraction) -> float:
    """Rounded to nearest, but never to 0 if it is positive."""
    return max(float(exact), 5e-324) if exact else 0.0


def _to_tuple(values: Doubles) -> tuple[float, ...]:
    return tuple(values.tolist())


def log_ratio(ratio: Fraction) -> float:
    """The logarithm, accurate relatively also close to 1, and for ratios beyond doubles."""
    if Fraction(1, 2) < ratio < 2:
        return math.log1p(float(ratio - 1))
    if abs(ratio.numerator.bit_length() - ratio.denominator.bit_length()) < 1000:
        return math.log(float(ratio))
    return math.log(ratio.numerator) - math.log(ratio.denominator)


def expm1_minus_x(power: NDArray[np.inexact]) -> Complexes:
    """e^x − 1 − x, accurate relatively also where it is small."""
    x: Complexes = np.asarray(power, dtype=np.complex128)
    near = np.abs(x) < 0.5
    out: Complexes = np.expm1(x) - x
    term = total = x[near] ** 2 / 2
    for k in range(3, 18):
        term = term * x[near] / k
        total = total + term
    out[near] = total
    return out
