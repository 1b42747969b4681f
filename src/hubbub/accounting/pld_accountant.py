"""The PLD accountant: bounds of δ(ε) and ε(δ), on grids refined until the bounds are close.

A coarse PLD chooses a tilt, a window and a step; it affects how close the bounds are, never their validity.

Proof: docs/proofs/pld.md
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from hubbub.accounting import pld
from hubbub.accounting.dominating_pairs import DominatingPair, GaussianPair
from hubbub.accounting.float_bounds import Uncertified
from hubbub.accounting.pld import (
    MAX_TILTED_DEVIATION,
    ComposedPld,
    DiscretizedPld,
    TiltedPld,
    union_probability,
)

__all__ = ["CoarsePld", "PldAccountant", "common_step"]

Doubles = NDArray[np.float64]

_NEGLIGIBLE = 1e-13
"""As a share of δ."""


@dataclass(frozen=True)
class _CoarsePair:
    """One pair as a few atoms."""

    pair: DominatingPair
    count: int
    edges: Doubles
    losses: Doubles
    p: Doubles

    @property
    def within(self) -> tuple[float, float]:
        """From the first edge to the last."""
        return float(self.edges[0]), float(self.edges[-1])

    def heaviest(self, tilt: float) -> float:
        """The loss of the largest tilted mass, or the atom or end of the support next to it."""
        heavy = float(self.losses[np.argmax(_log(self.p) + tilt * self.losses)])
        atoms = self.pair.atoms if self.pair.atoms.size else np.array(self.pair.support)
        nearest = float(atoms[np.abs(atoms - heavy).argmin()])
        return nearest if math.isfinite(nearest) else heavy


@dataclass(frozen=True)
class CoarsePld:
    """All pairs as a few atoms: accurate enough to choose a tilt, a window and a step."""

    terms: tuple[_CoarsePair, ...]

    @classmethod
    def of(cls, pairs: Sequence[tuple[DominatingPair, int]]) -> "CoarsePld":
        """Bin each pair by its coarse grid."""
        terms = []
        for pair, count in pairs:
            # An atom gets a bin of its own.
            beside = np.empty(0) if pair.is_discrete else pair.atoms - 2.0**-45 * np.abs(pair.atoms)
            inner = np.unique(np.concatenate([pair.coarse_grid, pair.atoms, beside]))
            edges = np.concatenate([[-math.inf], inner, [math.inf]])
            bins = pair.bin_masses(edges)
            edges[0], edges[-1] = edges[1], edges[-2]
            terms.append(_CoarsePair(pair, count, edges, bins.loss.clip(edges[0], edges[-1]), bins.p))
        return cls(tuple(terms))

    def moments(self, tilt: float) -> tuple[float, float, float]:
        """K, K′ and K″ of the finite losses at a real tilt."""
        total = np.zeros(3)
        for coarse in self.terms:
            has_mass = coarse.p > 0
            losses = coarse.losses[has_mass]
            power = tilt * losses + np.log(coarse.p[has_mass])
            peak = float(power.max())
            weight = np.exp(power - peak)
            size = float(weight.sum())
            mean = float(weight @ losses) / size
            spread = float(weight @ np.square(losses - mean)) / size
            total += coarse.count * np.array([math.log(size) + peak, mean, spread])
        return float(total[0]), float(total[1]), float(total[2])

    @cached_property
    def widths(self) -> list[float]:
        """The width of the support of each pair's loss."""
        return [float(np.ptp(coarse.edges)) for coarse in self.terms]

    @cached_property
    def width(self) -> float:
        """The width of the support of the composed loss."""
        return math.fsum(coarse.count * width for coarse, width in zip(self.terms, self.widths, strict=True))

    def tilt_for_epsilon(self, epsilon: float) -> float:
        """The tilt at which e^(K(c) − cε)/(c(1+c)) is least: there errors count least."""
        return self._tilt(lambda c: self.epsilon_at(c)[0] - epsilon, epsilon)

    def tilt_for_delta(self, delta: float) -> float:
        """The same tilt for the ε at which δ is about this."""
        return self._tilt(lambda c: math.log(delta) - self.epsilon_at(c)[1], 0.0)

    def epsilon_at(self, c: float) -> tuple[float, float]:
        """The ε with the best tilt c, and ln δ there, by the saddle-point formula."""
        moment, mean, variance = self.moments(c)
        epsilon = mean - 1 / c - 1 / (1 + c)
        curve = variance + c**-2 + (1 + c) ** -2
        return epsilon, moment - c * epsilon - math.log(c * (1 + c)) - math.log(2 * math.pi * curve) / 2

    def _tilt(self, rising: Callable[[float], float], epsilon: float) -> float:
        """The root of a rising function, within sensible tilts for losses of this size."""
        size = math.fsum(coarse.count * float(np.abs(coarse.edges).max()) for coarse in self.terms) + abs(
            epsilon
        )
        low, high = -math.log(4 * size + 1e-300), math.log(2.0**36 / (size + 1e-300))
        while high - low > 0.02:
            middle = (low + high) / 2
            low, high = (middle, high) if rising(math.exp(middle)) < 0 else (low, middle)
        return math.exp((low + high) / 2)

    def cropped(self, tilt: float, delta_scale: float, log_tail: float, *, exact: bool) -> "CoarsePld":
        """Without the tails of each pair that are negligible at this tilt, for δ of about this size."""
        terms = []
        for coarse in self.terms:
            power = tilt * coarse.losses + _log(coarse.p)
            weight = np.exp(power - float(power.max()))
            weight /= weight.sum()
            small = math.exp(-log_tail) / coarse.count
            spare = _NEGLIGIBLE * delta_scale / (coarse.count * len(self.terms))
            # Above, masses are counted as infinite losses; below, they are moved up to the end.
            top = np.cumsum(coarse.p[::-1])[::-1]
            over = (np.cumsum(weight[::-1])[::-1] <= small) & (top <= spare)
            under = np.cumsum(coarse.p)
            if exact:
                beneath = under <= spare
            else:
                beneath = _log(under) + tilt * coarse.edges[1:] <= math.log(small) + _log_sum(power)
            keep = slice(int(beneath.argmin()), over.size - int((~over)[::-1].argmax()))
            terms.append(
                _CoarsePair(
                    coarse.pair,
                    coarse.count,
                    coarse.edges[keep.start : keep.stop + 1],
                    coarse.losses[keep],
                    coarse.p[keep],
                )
            )
        return CoarsePld(tuple(terms))

    def window(self, tilt: float, log_tail: float) -> float:
        """About the width of all but e^−log_tail of the tilted distribution."""
        moment, mean, variance = self.moments(tilt)
        low = pld.chernoff_reach(lambda s: self.moments(tilt - s)[0] - moment + s * mean, variance, log_tail)
        high = pld.chernoff_reach(lambda s: self.moments(tilt + s)[0] - moment - s * mean, variance, log_tail)
        return max(min(low + high, self.width), *self.widths)


def _log(p: Doubles) -> Doubles:
    """The logarithm, −∞ at 0."""
    with np.errstate(divide="ignore"):
        return np.log(p)


def _log_sum(power: Doubles) -> float:
    """The logarithm of Σ e^power."""
    peak = float(power.max())
    return math.log(float(np.exp(power - peak).sum())) + peak


def common_step(terms: Sequence[Doubles]) -> float:
    """The step of the coarsest grid that holds all distances between atoms; 0 if there is none."""
    distances = np.concatenate([np.diff(np.unique(atoms)) for atoms in terms] or [np.zeros(0)])
    most = float(distances.max(initial=0.0))
    if most == 0:
        return 0.0
    distances = np.unique(np.rint(distances / most * 2.0**40))[::-1] / 2.0**40
    if distances.size > 4096:
        return 0.0
    unit = 1.0
    for distance in distances.tolist():
        # Euclid's algorithm; a rest that rounding can explain is none.
        rest = distance
        while rest > 2.0**-30:
            unit, rest = rest, abs(math.remainder(unit, rest))
        if unit < 1 / pld.MAX_POINTS:
            return 0.0
    widest = max(float(np.ptp(atoms)) for atoms in terms)
    return widest / round(widest / (unit * most))


_UNIT_ROUNDOFF = 2.0**-53
FIRST_POINTS = 1 << 13
_MANY_POINTS = 1 << 18
_CLOSE_GAP = 0.01
"""From this relative gap on, the last answer is a better place to tilt to than the coarse PLD's."""
_FAIR_GAP = 1e-6
"""With many points already, this relative gap is close enough."""


@dataclass(frozen=True)
class PldAccountant:
    """Dominating pairs with counts, composed: certified bounds of δ(ε) and ε(δ).

    >>> from hubbub.accounting.discrete_pairs import epsilon_delta_pair
    >>> low, high = PldAccountant([(epsilon_delta_pair(1), 10)]).epsilon(1e-6)
    >>> low <= 9.999977065820732 <= high
    True

    Guarantee: the true value of the composition lies between the two that are returned.
    Assumes: numpy's transform loses no more than 8 units in each stage; doubles round correctly.
    Proof: docs/proofs/pld.md
    """

    pairs: Sequence[tuple[DominatingPair, int]]
    accuracy: float = 1e-8
    """The relative gap between the bounds to aim for, if the number of points allows."""
    max_points: int = pld.MAX_POINTS
    """The most points of a grid."""

    def delta(self, epsilon: float) -> tuple[float, float]:
        """Certified (lower, upper) bounds of δ at ε ≥ 0."""
        if epsilon >= self._max_loss or self._infinity_mass[0] == 1:
            return self._infinity_mass
        tilt = self._coarse.tilt_for_epsilon(epsilon)
        delta_scale = math.exp(min(0.0, max(-690.0, self._coarse.epsilon_at(tilt)[1])))

        def ask(lower: TiltedPld, upper: TiltedPld) -> tuple[float, float]:
            return lower.delta_lower(epsilon), upper.delta_upper(epsilon)

        bins = self.refine(ask, epsilon, delta_scale, seek=False)
        if bins == (0.0, 1.0):
            raise Uncertified
        return bins

    def epsilon(self, delta: float) -> tuple[float, float]:
        """Certified (lower, upper) bounds of the smallest ε ≥ 0 at δ; infinite if there is none."""
        low, high = self._infinity_mass
        if delta >= 1:
            return 0.0, 0.0
        if delta < low:
            return math.inf, math.inf
        if delta <= high:
            # With no infinite loss, this is δ = 0.
            return (
                (0.0, math.inf)
                if high
                else (max(0.0, self._max_loss * (1 - 2.0**-20)), max(0.0, self._max_loss))
            )
        if self._max_loss <= 0:
            return 0.0, 0.0
        tilt = self._coarse.tilt_for_delta(min(delta - low, 0.99))
        start = max(0.0, self._coarse.epsilon_at(tilt)[0])

        def ask(lower: TiltedPld, upper: TiltedPld) -> tuple[float, float]:
            nonlocal start
            over = upper.epsilon_upper(delta, start)
            start = over if math.isfinite(over) else start
            return lower.epsilon_lower(delta, start), over

        bins = self.refine(ask, start, delta - low, seek=True)
        if math.isinf(bins[1]):
            raise Uncertified
        return bins[0], min(bins[1], self._max_loss)

    @cached_property
    def _pairs(self) -> list[tuple[DominatingPair, int]]:
        """Each pair once, and all Gaussians as one."""
        counts: dict[DominatingPair, int] = {}
        gaussian = math.fsum(
            count * pair.mu_squared for pair, count in self.pairs if isinstance(pair, GaussianPair)
        )
        for pair, count in self.pairs:
            if count and not isinstance(pair, GaussianPair):
                counts[pair] = counts.get(pair, 0) + count
        return [*counts.items(), *([(GaussianPair(gaussian), 1)] if gaussian else [])]

    @cached_property
    def _coarse(self) -> CoarsePld:
        return CoarsePld.of(self._pairs)

    @cached_property
    def _max_loss(self) -> float:
        """The largest finite loss."""
        return math.fsum(count * pair.support[1] for pair, count in self._pairs) * (1 + 4 * _UNIT_ROUNDOFF)

    @cached_property
    def _infinity_mass(self) -> tuple[float, float]:
        """Bounds of the probability of an infinite loss."""
        chance = union_probability([(pair.infinity_mass, count) for pair, count in self._pairs])
        return (
            (1.0, 1.0)
            if chance >= 1
            else (chance * (1 - 16 * _UNIT_ROUNDOFF), min(1.0, chance * (1 + 16 * _UNIT_ROUNDOFF)))
        )

    @cached_property
    def _steps(self) -> tuple[float, bool]:
        """The common step of the atoms, or 0, and True if everything lies on its grid."""
        atoms = [pair.atoms for pair, _ in self._pairs]
        unit = common_step([own for own in atoms if own.size])
        if not all(pair.is_discrete for pair, _ in self._pairs):
            return unit, False
        if unit == 0:
            return float(alone := all(np.ptp(own) == 0 for own in atoms)), alone
        off = [np.abs(own - own[0] - unit * np.rint((own - own[0]) / unit)).max() for own in atoms]
        return unit, all(most <= 2.0**-46 * np.abs(own).max() for most, own in zip(off, atoms, strict=True))

    def refine(
        self,
        ask: Callable[[TiltedPld, TiltedPld], tuple[float, float]],
        epsilon: float,
        delta_scale: float,
        *,
        seek: bool,
    ) -> tuple[float, float]:
        """Bounds with more and more points, until they are close enough, or more points do not help."""
        low, high, last, points = 0.0, math.inf, math.inf, FIRST_POINTS
        # Many pairs need many grids.
        most = max(points, self.max_points // -(-len(self._pairs) // 4))
        while True:
            try:
                bins = ask(*self._tilted_plds(epsilon, delta_scale, points))
            except Uncertified:
                gap = math.inf
            else:
                low, high = max(low, bins[0]), min(high, bins[1])
                gap = (high - low) / high if 0 < high < math.inf else high
            if low > high:
                raise Uncertified
            # Where more points did not help, still more will not, unless there were very few.
            stuck = gap > last / 2 and (gap < _CLOSE_GAP or points > _MANY_POINTS)
            enough = gap <= self.accuracy or (gap <= _FAIR_GAP and points >= _MANY_POINTS)
            if enough or points >= most or stuck:
                return low, high
            last = gap
            epsilon = high if seek and gap < _CLOSE_GAP else epsilon
            # The gap falls with the square of the step.
            more = min(64.0, 1.3 * math.sqrt(gap / self.accuracy))
            points = min(most, points << max(1, math.ceil(math.log2(more))))

    def _tilted_plds(self, epsilon: float, delta_scale: float, points: int) -> tuple[TiltedPld, TiltedPld]:
        """An optimistic and a pessimistic PLD, accurate around ε; the same one if all lies on one grid."""
        unit, exact = self._steps
        tilt = self._coarse.tilt_for_epsilon(epsilon)
        # The tails may be a hundredth of the target accuracy, also where e^(K − cε) is far above δ.
        peak = self._coarse.moments(tilt)[0] - tilt * epsilon - math.log(delta_scale)
        log_tail = max(45.0 if exact else 0.0, math.log(100 / self.accuracy) + 1 + max(0.0, peak))
        cropped = self._coarse.cropped(tilt, delta_scale, log_tail, exact=exact)
        window = cropped.window(tilt, log_tail)
        terms = [
            (coarse.pair, coarse.count, coarse.heaviest(tilt), coarse.within) for coarse in cropped.terms
        ]
        if exact and window <= unit * pld.MAX_POINTS:
            exactly = [
                (DiscretizedPld.exact(pair, unit, origin=at, within=ends), count)
                for pair, count, at, ends in terms
            ]
            curve = ComposedPld(exactly).tilted(tilt, log_tail)
            return curve, curve
        # Grid points must differ in more than their last digits.
        step = max(
            1.05 * window / points, 2.0**-40 * max(abs(end) for _, _, _, ends in terms for end in ends)
        )
        if unit >= step:
            step = unit / math.floor(unit / step)
        upper = ComposedPld(
            [
                (DiscretizedPld.pessimistic(pair, step, origin=at, within=ends), count)
                for pair, count, at, ends in terms
            ]
        ).tilted(tilt, log_tail)
        beside = unit < step and any(pair.atoms.size for pair, _ in self._pairs)
        if beside and tilt * upper.split_deviation <= MAX_TILTED_DEVIATION:
            # Merging would move atoms beside the grid by a whole step: the split PLD gives the lower bound.
            return upper, upper
        lower = [
            (DiscretizedPld.optimistic(pair, step, origin=at, within=ends, tilt=tilt), count)
            for pair, count, at, ends in terms
        ]
        return ComposedPld(lower).tilted(tilt, log_tail), upper
