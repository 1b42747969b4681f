"""Laws as a few atoms, for a first look: it chooses a tilt, a window and a step, and proves nothing.

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
    """One law as a few atoms, for a first look."""

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
        """The loss of the largest tilted mass, or the atom or end of the law next to it."""
        heavy = float(self.losses[np.argmax(_log(self.p) + tilt * self.losses)])
        atoms = self.pair.atoms if self.pair.atoms.size else np.array(self.pair.support)
        nearest = float(atoms[np.abs(atoms - heavy).argmin()])
        return nearest if math.isfinite(nearest) else heavy


@dataclass(frozen=True)
class CoarsePld:
    """All laws as a few atoms: good enough to choose a tilt, a window and a step."""

    terms: tuple[_CoarsePair, ...]

    @classmethod
    def of(cls, pairs: Sequence[tuple[DominatingPair, int]]) -> "CoarsePld":
        """Look at each law through its outline."""
        terms = []
        for pair, count in pairs:
            # An atom gets a cell of its own.
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
            held = coarse.p > 0
            losses = coarse.losses[held]
            power = tilt * losses + np.log(coarse.p[held])
            peak = float(power.max())
            weight = np.exp(power - peak)
            size = float(weight.sum())
            mean = float(weight @ losses) / size
            spread = float(weight @ np.square(losses - mean)) / size
            total += coarse.count * np.array([math.log(size) + peak, mean, spread])
        return float(total[0]), float(total[1]), float(total[2])

    @cached_property
    def widths(self) -> list[float]:
        """How far apart the largest and the least loss of each law may lie."""
        return [float(np.ptp(coarse.edges)) for coarse in self.terms]

    @cached_property
    def width(self) -> float:
        """How far apart the largest and the least loss may lie, all together."""
        return math.fsum(coarse.count * width for coarse, width in zip(self.terms, self.widths, strict=True))

    def tilt_for_epsilon(self, epsilon: float) -> float:
        """Where e^(K(c) − cε)/(c(1+c)) is least: there errors count least."""
        return self._tilt(lambda c: self.epsilon_at(c)[0] - epsilon, epsilon)

    def tilt_for_delta(self, delta: float) -> float:
        """The same for the ε at which δ is about this."""
        return self._tilt(lambda c: math.log(delta) - self.epsilon_at(c)[1], 0.0)

    def epsilon_at(self, c: float) -> tuple[float, float]:
        """The ε whose best tilt is c, and ln δ there, by the saddle-point formula."""
        moment, mean, variance = self.moments(c)
        epsilon = mean - 1 / c - 1 / (1 + c)
        curve = variance + c**-2 + (1 + c) ** -2
        return epsilon, moment - c * epsilon - math.log(c * (1 + c)) - math.log(2 * math.pi * curve) / 2

    def _tilt(self, rising: Callable[[float], float], epsilon: float) -> float:
        """Where a rising function crosses zero, within what makes sense for losses of this size."""
        size = math.fsum(coarse.count * float(np.abs(coarse.edges).max()) for coarse in self.terms) + abs(
            epsilon
        )
        low, high = -math.log(4 * size + 1e-300), math.log(2.0**36 / (size + 1e-300))
        while high - low > 0.02:
            middle = (low + high) / 2
            low, high = (middle, high) if rising(math.exp(middle)) < 0 else (low, middle)
        return math.exp((low + high) / 2)

    def cropped(self, tilt: float, delta_scale: float, log_tail: float, *, exact: bool) -> "CoarsePld":
        """Without the ends of each law that do not matter at this tilt, for δ of about this size."""
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
        """How wide all but e^−sure of the tilted law is, about."""
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
    """The step of the coarsest grid on which all distances of atoms lie; 0 where there is none."""
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


# δ(ε) and ε(δ) of any losses on a grid, with as many points as it takes.
#
# Proved in docs/proofs/pld.md

_UNIT_ROUNDOFF = 2.0**-53
_FIRST_POINTS = 1 << 13
_MANY_POINTS = 1 << 18
_CLOSE = 0.01
"""From here on, the last answer says better where to tilt to than the sketch."""
_FAIR = 1e-6
"""So close is good enough where there are many points already."""


@dataclass(frozen=True)
class PldAccountant:
    """Pairs of laws, each so many times, composed: δ(ε) and ε(δ) between certified bounds.

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
    """How close, relatively, the two should come, if the number of points allows."""

    def delta(self, epsilon: float) -> tuple[float, float]:
        """Certified (lower, upper) of δ at ε ≥ 0."""
        if epsilon >= self._top or self._infinity_mass[0] == 1:
            return self._infinity_mass
        tilt = self._coarse.tilt_for_epsilon(epsilon)
        delta_scale = math.exp(min(0.0, max(-690.0, self._coarse.epsilon_at(tilt)[1])))

        def ask(lower: TiltedPld, upper: TiltedPld) -> tuple[float, float]:
            return lower.delta_lower(epsilon), upper.delta_upper(epsilon)

        bins = self._refine(ask, epsilon, delta_scale, seek=False)
        if bins == (0.0, 1.0):
            raise Uncertified
        return bins

    def epsilon(self, delta: float) -> tuple[float, float]:
        """Certified (lower, upper) of the least ε ≥ 0 at which δ is met; infinite where none does."""
        low, high = self._infinity_mass
        if delta >= 1:
            return 0.0, 0.0
        if delta < low:
            return math.inf, math.inf
        if delta <= high:
            # With no infinite loss, this is δ = 0.
            return (0.0, math.inf) if high else (max(0.0, self._top * (1 - 2.0**-20)), max(0.0, self._top))
        if self._top <= 0:
            return 0.0, 0.0
        tilt = self._coarse.tilt_for_delta(min(delta - low, 0.99))
        start = max(0.0, self._coarse.epsilon_at(tilt)[0])

        def ask(lower: TiltedPld, upper: TiltedPld) -> tuple[float, float]:
            nonlocal start
            over = upper.epsilon_upper(delta, start)
            start = over if math.isfinite(over) else start
            return lower.epsilon_lower(delta, start), over

        bins = self._refine(ask, start, delta - low, seek=True)
        if math.isinf(bins[1]):
            raise Uncertified
        return bins[0], min(bins[1], self._top)

    @cached_property
    def _pairs(self) -> list[tuple[DominatingPair, int]]:
        """Each law once, and all Gaussians as one."""
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
    def _top(self) -> float:
        """No finite loss is larger."""
        return math.fsum(count * pair.support[1] for pair, count in self._pairs) * (1 + 4 * _UNIT_ROUNDOFF)

    @cached_property
    def _infinity_mass(self) -> tuple[float, float]:
        """The chance of an infinite loss."""
        chance = union_probability([(pair.infinity_mass, count) for pair, count in self._pairs])
        return (
            (1.0, 1.0)
            if chance >= 1
            else (chance * (1 - 16 * _UNIT_ROUNDOFF), min(1.0, chance * (1 + 16 * _UNIT_ROUNDOFF)))
        )

    @cached_property
    def _steps(self) -> tuple[float, bool]:
        """The step that atoms ask for, or 0, and whether everything lies on it."""
        atoms = [pair.atoms for pair, _ in self._pairs]
        unit = common_step([own for own in atoms if own.size])
        if not all(pair.is_discrete for pair, _ in self._pairs):
            return unit, False
        if unit == 0:
            return float(alone := all(np.ptp(own) == 0 for own in atoms)), alone
        off = [np.abs(own - own[0] - unit * np.rint((own - own[0]) / unit)).max() for own in atoms]
        return unit, all(most <= 2.0**-46 * np.abs(own).max() for most, own in zip(off, atoms, strict=True))

    def _refine(
        self,
        ask: Callable[[TiltedPld, TiltedPld], tuple[float, float]],
        epsilon: float,
        delta_scale: float,
        *,
        seek: bool,
    ) -> tuple[float, float]:
        """Ask with more and more points, until the answer is as close as is wanted, or cannot be closer."""
        low, high, last, points = 0.0, math.inf, math.inf, _FIRST_POINTS
        # Many laws are many grids.
        most = max(points, pld.MAX_POINTS // -(-len(self._pairs) // 4))
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
            stuck = gap > last / 2 and (gap < _CLOSE or points > _MANY_POINTS)
            enough = gap <= self.accuracy or (gap <= _FAIR and points >= _MANY_POINTS)
            if enough or points >= most or stuck:
                return low, high
            last = gap
            epsilon = high if seek and gap < _CLOSE else epsilon
            # The gap falls with the square of the step.
            more = min(64.0, 1.3 * math.sqrt(gap / self.accuracy))
            points = min(most, points << max(1, math.ceil(math.log2(more))))

    def _tilted_plds(self, epsilon: float, delta_scale: float, points: int) -> tuple[TiltedPld, TiltedPld]:
        """A lower and an upper curve, good around ε; one and the same where everything lies on one grid."""
        unit, exact = self._steps
        tilt = self._coarse.tilt_for_epsilon(epsilon)
        # What is left out may be a hundredth of what is wanted, also where e^(K − cε) is far above δ.
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
        # Points that differ only in their last digits are none.
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
            # Atoms beside the grid would lose a step when merged, so the lower bound is had from splitting.
            return upper, upper
        lower = [
            (DiscretizedPld.optimistic(pair, step, origin=at, within=ends, tilt=tilt), count)
            for pair, count, at, ends in terms
        ]
        return ComposedPld(lower).tilted(tilt, log_tail), upper
