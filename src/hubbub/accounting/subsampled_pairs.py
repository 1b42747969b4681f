"""Dominating pairs of subsampled mechanisms: Poisson samples, samples of fixed size, groups in a sample.

Proof: docs/proofs/dominating-pairs.md
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from hubbub.accounting.discrete_pairs import DiscretePair
from hubbub.accounting.dominating_pairs import BinMasses, ContinuousPair, GaussianPair, LaplacePair, widen
from hubbub.accounting.float_bounds import Uncertified, inverse_log_mixture, log_mixture

__all__ = [
    "SubsampledGaussianGroupPair",
    "SubsampledGaussianPair",
    "SubsampledPair",
    "SymmetrizedPair",
    "bound_rounding",
    "symmetrize",
]

Complexes = NDArray[np.complex128]
Doubles = NDArray[np.float64]

_UNIT_ROUNDOFF = 2.0**-53
_TABLE_SIZE = 4096
_ULPS = 2.0**-51
"""Parameters that are rounded up and down differ by no more than this, relatively."""
# survives: From how much rounding on it is left to others is free, below 2^-32.
_MAX_SHIFT = 2.0**-33


@dataclass(frozen=True)
class SubsampledPair:
    """A Poisson-subsampled mechanism: the unit is drawn with probability `sampling_rate`.

    With r = 1 − q + q·e^ℓ, q the rate and ℓ the mechanism's own loss: when the unit is removed, P is the
    mixture and L = ln r; when it is added, Q is, and L = −ln r.

    >>> from hubbub.accounting.discrete_pairs import epsilon_delta_pair
    >>> pair = SubsampledPair(epsilon_delta_pair(math.log(3)), 0.5, added=False)
    >>> pair.atoms.round(4).tolist()
    [-0.4055, 0.6931]
    """

    base: "GaussianPair | LaplacePair | DiscretePair"
    sampling_rate: float
    added: bool

    @cached_property
    def _atoms(self) -> DiscretePair | None:
        return (
            self.base.poisson_subsampled(self.sampling_rate, added=self.added)
            if isinstance(self.base, DiscretePair)
            else None
        )

    def _outer(self, loss: Doubles) -> Doubles:
        """Subsampled losses of the mechanism's losses, in rising order."""
        return (
            -log_mixture(loss[::-1], self.sampling_rate)
            if self.added
            else log_mixture(loss, self.sampling_rate)
        )

    @property
    def infinity_mass(self) -> float:
        """The P-mass of outcomes impossible under Q."""
        return self._atoms.infinity_mass if self._atoms else 0.0

    @property
    def support(self) -> tuple[float, float]:
        """From the least to the largest finite loss."""
        if self._atoms:
            return self._atoms.support
        low, high = self._outer(np.array(self.base.support))
        return widen(float(low), float(high))

    @property
    def atoms(self) -> Doubles:
        """Losses with positive probability."""
        return self._atoms.atoms if self._atoms else self._outer(self.base.atoms)

    @property
    def is_discrete(self) -> bool:
        """As the mechanism's."""
        return self.base.is_discrete

    @property
    def coarse_grid(self) -> Doubles:
        """The image of the mechanism's coarse grid."""
        return self._atoms.coarse_grid if self._atoms else np.unique(self._outer(self.base.coarse_grid))

    def log_moment(self, z: Complexes) -> Complexes:
        """K(z), if the mechanism has atoms only; else there is no closed form."""
        if not self._atoms:
            raise Uncertified
        return self._atoms.log_moment(z)

    def derivatives(self, c: float) -> tuple[float, float, float]:
        """K, K′ and K″ at a real c, if the mechanism has atoms only."""
        if not self._atoms:
            raise Uncertified
        return self._atoms.derivatives(c)

    def bin_masses(self, edges: Doubles) -> BinMasses:
        """P- and Q-mass of losses in (edges[k], edges[k+1]]: the mechanism's, between mapped edges.

        A bin, taken as one outcome of loss ℓ, has the loss ±ln(1 − q + q·e^ℓ) when subsampled.
        """
        if self._atoms:
            return self._atoms.bin_masses(edges)
        q = self.sampling_rate
        targets = -edges[::-1] if self.added else edges
        inner = inverse_log_mixture(targets, q)
        # If a mapped edge lies a little beside the requested one, so do losses.
        with np.errstate(invalid="ignore"):
            beside = np.abs(log_mixture(inner, q) - targets)
        beside[~np.isfinite(inner)] = 0.0
        bins = self.base.bin_masses(inner)
        both = (1 - q) * bins.q + q * bins.p
        ratio = log_mixture(bins.loss, q)
        # An error of ℓ is passed on times dL/dℓ = q·e^ℓ/r.
        slope = np.exp(np.minimum(0.0, math.log(q) + bins.loss - ratio))
        loss_error = (
            slope * bins.loss_error
            + 16 * _UNIT_ROUNDOFF * np.abs(ratio)
            + np.maximum(beside[:-1], beside[1:])
        )
        relative_mass_error = bins.relative_mass_error + 8 * _UNIT_ROUNDOFF
        if self.added:
            return BinMasses(
                bins.q[::-1], both[::-1], -ratio[::-1], relative_mass_error[::-1], loss_error[::-1]
            )
        return BinMasses(both, bins.q, ratio, relative_mass_error, loss_error)


@dataclass(frozen=True)
class SubsampledGaussianPair(ContinuousPair):
    """One Poisson-subsampled Gaussian step: sensitivity 1, standard deviation σ.

    >>> low, high = SubsampledGaussianPair(0.01, 1.0, added=True).support
    >>> low, round(high, 9)
    (-inf, 0.010050336)
    """

    sampling_rate: float
    sigma: float
    added: bool

    @cached_property
    def _pair(self) -> SubsampledPair:
        return SubsampledPair(GaussianPair(self.sigma**-2), self.sampling_rate, self.added)

    @property
    def support(self) -> tuple[float, float]:
        """From ln(1 − rate) up, or from its negative down."""
        return self._pair.support

    @property
    def coarse_grid(self) -> Doubles:
        """The image of the Gaussian's coarse grid."""
        return self._pair.coarse_grid

    def bin_masses(self, edges: Doubles) -> BinMasses:
        """P- and Q-mass of losses in (edges[k], edges[k+1]]."""
        return self._pair.bin_masses(edges)


def bound_rounding(
    upper: Sequence[tuple[object, int]], lower: Sequence[tuple[object, int]], near: float, above: float
) -> float | None:
    """How far ε falls at most if parameters are rounded down instead of up; None if not by next to nothing.

    Guarantee: if δ of the upper pairs at ε is `above`·(1 + 2^-31) at least, δ of the lower ones at ε less the
    result is `above` at least.

    Args:
        upper: Pairs with rates rounded up and deviations rounded down, with counts.
        lower: The same, rounded the other way.
        near: δ, rounded down.
        above: δ, rounded up.

    Proof: docs/proofs/fourier.md, "Rounded parameters"
    """
    # survives: How far tails are followed is free, if what lies beyond is counted.
    reach = math.sqrt(2 * (math.log(sum(count for _, count in upper)) - math.log(near) + 30))
    total = 0.0
    for (more, count), (less, same) in zip(upper, lower, strict=True):
        if not (isinstance(more, SubsampledGaussianPair) and isinstance(less, SubsampledGaussianPair)):
            return None
        assert count == same
        q, s = more.sampling_rate, more.sigma
        # Differences of numbers so close are exact.
        rounded = 0 <= q - less.sampling_rate <= _ULPS * q and 0 <= less.sigma - s <= _ULPS * s
        if not (rounded and q <= 0.5 and above <= near * (1 + 2.0**-40)):
            return None
        mu = 1 / s
        y = mu + reach
        share = math.exp(min(0.0, math.log(q) - math.log1p(-q) + mu * y - mu * mu / 2))
        turn = _ULPS * (1 + mu * y + mu * mu)
        total += 1.05 * count * (2 * _ULPS * q + share * turn)
    return total if total <= _MAX_SHIFT else None


def symmetrize(base: GaussianPair | DiscretePair | SubsampledPair) -> "DiscretePair | SymmetrizedPair":
    """The pair with these positive losses, their mirror image below 0, and the rest at 0.

    >>> symmetrize(DiscretePair((1.0, -1.0), (0.5, 0.1), (0.2, 0.3))).losses
    (1.0, -1.0, 0.0)
    """
    if isinstance(base, SubsampledPair) and base._atoms:  # noqa: SLF001
        base = base._atoms  # noqa: SLF001
    if not isinstance(base, DiscretePair):
        return SymmetrizedPair(base)
    positive = [(loss, p, q) for loss, p, q in zip(base.losses, base.p, base.q, strict=True) if loss > 0]
    losses, p, q = zip(*positive, strict=True) if positive else ((), (), ())
    # survives: What is left is less than 0 by rounding only; a mass of some units less than nothing is
    # within what is allowed for.
    rest = max(0.0, 1 - math.fsum(p) - math.fsum(q) - base.infinity_mass)
    # survives: How much is allowed for rounding is free, if it is some units more than is lost.
    return DiscretePair(
        (*losses, *(-loss for loss in losses), 0.0),
        (*p, *q, rest),
        (*q, *p, rest),
        base.infinity_mass,
        base.infinity_mass,
        base.relative_mass_error + 4 * _UNIT_ROUNDOFF,
        base.relative_loss_error,
        base.truncated,
    )


@dataclass(frozen=True)
class SymmetrizedPair:
    """A pair's positive losses, their mirror image below 0, and the rest at 0."""

    base: GaussianPair | SubsampledPair

    @property
    def infinity_mass(self) -> float:
        """No loss is infinite."""
        return self.base.infinity_mass

    @property
    def support(self) -> tuple[float, float]:
        """Symmetric around 0."""
        top = self.base.support[1]
        return -top, top

    @property
    def atoms(self) -> Doubles:
        """Those of the pair, on both sides, and 0."""
        above = self.base.atoms[self.base.atoms > 0]
        # survives: A pair with a density has one atom above 0, if any.
        return np.concatenate([-above[::-1], [0.0], above])

    @property
    def is_discrete(self) -> bool:
        """As the pair's."""
        return self.base.is_discrete

    @property
    def coarse_grid(self) -> Doubles:
        """The pair's, on both sides."""
        above = self.base.coarse_grid[self.base.coarse_grid > 0]
        return np.concatenate([-above[::-1], [0.0], above])

    @cached_property
    def _zero_mass(self) -> tuple[float, float]:
        """The mass at loss 0, and its error."""
        whole = self.base.bin_masses(np.array([0.0, math.inf]))
        p, q = float(whole.p[0]), float(whole.q[0])
        # survives: What is left is less than 0 by rounding only; a mass of some units less than
        # nothing is within what is allowed for. How much is allowed for rounding is free, if it is
        # some units more than is lost.
        return max(0.0, 1 - p - q), (p + q) * (float(whole.relative_mass_error[0]) + 4 * _UNIT_ROUNDOFF)

    def bin_masses(self, edges: Doubles) -> BinMasses:
        """P- and Q-mass of losses in (edges[k], edges[k+1]]."""
        up = self.base.bin_masses(edges.clip(min=0.0))
        # Of −L what lies in (a, b] is L in [−b, −a).
        with np.errstate(over="ignore"):
            mirrored = np.nextafter(-edges[::-1].clip(max=0.0), -math.inf).clip(min=0.0)
        down = self.base.bin_masses(mirrored)
        low = BinMasses(
            down.q[::-1],
            down.p[::-1],
            -down.loss[::-1],
            down.relative_mass_error[::-1],
            down.loss_error[::-1],
        )
        p, q = up.p + low.p, up.q + low.q
        holds_none = (edges[:-1] < 0) & (edges[1:] >= 0)
        rest, off = self._zero_mass
        p, q = p + np.where(holds_none, rest, 0.0), q + np.where(holds_none, rest, 0.0)
        loss = np.where(edges[:-1] >= 0, up.loss, low.loss)
        # survives: What the parts allow for is many units more than they lose: two sums more fit
        # in. How much is allowed for rounding is free, if it is some units more than is lost.
        relative_mass_error = np.maximum(up.relative_mass_error, low.relative_mass_error) + 4 * _UNIT_ROUNDOFF
        # survives: From an edge of 0 on both sides allow for as much.
        loss_error = np.where(edges[:-1] >= 0, up.loss_error, low.loss_error)
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
            relative_mass_error[k] += missed
            # survives: How much is allowed for rounding is free, if it is some units more than
            # is lost. How much is allowed for rounding is free, if it is some units more than
            # is lost: both sides allow for theirs already. Where a loss is above 1, more is
            # allowed for than need be.
            loss_error[k] = float(up.loss_error[k] + low.loss_error[k]) + (
                missed + 32 * _UNIT_ROUNDOFF
            ) * min(1.0, widest)
        return BinMasses(p, q, loss, relative_mass_error, loss_error)


@dataclass(frozen=True)
class SubsampledGaussianGroupPair(ContinuousPair):
    """A group of units in a Poisson sample of a Gaussian mechanism: j sampled members move it by jμ.

    P is the mixture Σ Bin(size, rate)(j)·N(jμ, 1) against N(0, 1), or the other way round if `added`.

    >>> one = SubsampledPair(GaussianPair(1.0), 0.5, added=False)
    >>> SubsampledGaussianGroupPair(0.5, 1.0, 1, added=False).support == one.support
    True
    """

    sampling_rate: float
    mu_squared: float
    size: int
    added: bool

    @cached_property
    def _weights(self) -> Doubles:
        probabilities = [
            math.comb(self.size, j) * self.sampling_rate**j * (1 - self.sampling_rate) ** (self.size - j)
            for j in range(self.size + 1)
        ]
        return np.array(probabilities)

    @property
    def support(self) -> tuple[float, float]:
        """From the loss of no member sampled up, or from its negative down."""
        none = self.size * math.log1p(-self.sampling_rate) if self.sampling_rate < 1 else -math.inf
        none -= 16 * _UNIT_ROUNDOFF * abs(none) if math.isfinite(none) else 0.0
        return (-math.inf, -none) if self.added else (none, math.inf)

    @cached_property
    def _table(self) -> tuple[Doubles, Doubles]:
        """Scores, and the log-ratio at each."""
        mu = math.sqrt(self.mu_squared)
        # survives: Where the table ends is free, as long as less than 1e-300 lies beyond: here 42
        # deviations are more than the law of the group needs.
        score = mu * np.linspace(-42.0, 42.0 + self.size * mu, _TABLE_SIZE)
        return score, self._log_mixture(self._alone(score))[0]

    @property
    def coarse_grid(self) -> Doubles:
        """Losses at evenly spaced scores."""
        # survives: How many losses outline the law is free.
        ratio = np.unique(self._table[1][::4])
        return -ratio[::-1] if self.added else ratio

    def bin_masses(self, edges: Doubles) -> BinMasses:
        """P- and Q-mass of losses in (edges[k], edges[k+1]]."""
        score = self._score(-edges[::-1] if self.added else edges)
        # Of j sampled, the loss alone is jx − j²μ²/2 at the score x, which is N(0, μ²) under Q.
        alone = [
            GaussianPair(j * j * self.mu_squared).bin_masses(j * score - j * j * self.mu_squared / 2)
            for j in range(1, self.size + 1)
        ]
        plain = alone[0]
        ratio, share = self._log_mixture(np.stack([np.zeros(plain.p.size), *(one.loss for one in alone)]))
        both = self._weights[0] * plain.q + sum(
            w * one.p for w, one in zip(self._weights[1:], alone, strict=True)
        )
        errors = np.stack([np.zeros(plain.p.size), *(one.loss_error for one in alone)])
        # survives: How much is allowed for rounding is free, if it is some units more than is lost.
        loss_error = (share * errors).sum(axis=0) + 64 * _UNIT_ROUNDOFF * self.size * (1 + np.abs(ratio))
        # survives: How much is allowed for rounding is free, if it is some units more than is lost.
        relative_mass_error = (
            np.max([one.relative_mass_error for one in alone], axis=0) + 32 * _UNIT_ROUNDOFF * self.size
        )
        if self.added:
            return BinMasses(
                plain.q[::-1], both[::-1], -ratio[::-1], relative_mass_error[::-1], loss_error[::-1]
            )
        return BinMasses(both, plain.q, ratio, relative_mass_error, loss_error)

    def _log_mixture(self, losses: Doubles) -> tuple[Doubles, Doubles]:
        """The loss ln Σ w_j·e^ℓ_j of the mixture, and each component's share, from the losses ℓ_j."""
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
        """The score with this log-ratio, to double precision; ±∞ beyond the table."""
        score, known = self._table
        x = np.interp(ratio, known, score)
        # survives: What lies at the end of the table is set to −∞ after all.
        inside = (ratio > known[0]) & (ratio < known[-1])
        # survives: How many steps are made is free, once they have come to rest.
        for _ in range(8):
            # Newton; the log-ratio is convex and rising, and its slope is the mean number sampled.
            bins, share = self._log_mixture(self._alone(x[inside]))
            slope = np.arange(self.size + 1) @ share
            # survives: It guards a division by 0 where no one of the group is sampled.
            move = (ratio[inside] - bins) / np.maximum(slope, 1e-300)
            # survives: Where a step is cut is free.
            x[inside] = (x[inside] + move).clip(score[0], score[-1])
        # survives: Between the last two places of the table, 42 deviations out, there is nothing.
        x = np.where(ratio <= known[0], -math.inf, np.where(ratio >= known[-1], math.inf, x))
        return np.asarray(np.maximum.accumulate(x))
