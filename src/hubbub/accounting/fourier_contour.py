"""The contour of the Fourier integral: how it is chosen, what is summed along it, and all errors of the sum.

Proof: docs/proofs/fourier.md
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from hubbub.accounting.float_bounds import Uncertified
from hubbub.accounting.smooth_partitions import Window, normal_cdf
from hubbub.accounting.subsampled_gaussian import QuadratureNodes, SubsampledGaussians

__all__ = [
    "FAIR_LOSS",
    "FAIR_WORK",
    "MARGIN",
    "MAX_FAR_EPSILON",
    "ROUNDING",
    "Contour",
    "ExplicitMoments",
    "FarOutcomes",
    "Plan",
    "Scan",
    "find_root",
    "log_chernoff",
]

Complexes = NDArray[np.complex128]
Doubles = NDArray[np.float64]

# survives: How small aliases and what is cut off are kept is free: they are bounded, and taken off below.
MARGIN = 21.0
"""Aliases, and what is cut off, are kept below e^-21 of δ: they widen the certified gap, nothing else."""
# survives: How much is allowed for rounding is free, if it is some units more than is lost.
ROUNDING = 2.0**-48
# survives: From how many points on it is left to others is free.
MAX_POINTS = 200_000
# survives: From how much work, or rounding, on another way is tried is free.
FAIR_WORK, FAIR_LOSS = 1 << 22, 14.4
# survives: Up to which ε far outcomes are taken in closed form is free.
MAX_FAR_EPSILON = 30.0


class ExplicitMoments(Protocol):
    """A pair with moments in closed form."""

    @property
    def infinity_mass(self) -> float:
        """The probability of an infinite loss."""

    def log_moment(self, z: Complexes) -> Complexes:
        """K(z) = ln E_P[e^(zL)]."""

    def derivatives(self, c: float) -> tuple[float, float, float]:
        """K, K′ and K″ at a real c."""

    def decay(self, t: Doubles, c: float) -> Doubles:
        """An upper bound of ln|e^(K(c+is) − K(c))| for all s ≥ t; 0 if none is known."""

    def moment_error(self, z: Complexes) -> Doubles:
        """How many units of 2^-48 e^K(z) is off, of e^K(Re z), beyond some units of K.

        `Uncertified` if that is not known, or K would take long at all these points.
        """


class Sum(NamedTuple):
    """Re Σ, its error, and the aliases, at one ε."""

    value: float
    error: float
    aliases: float


class Scan(NamedTuple):
    """K, K′ and K″ at many tilts, to plotting accuracy: they choose the contour."""

    tilts: Doubles
    moment: Doubles
    mean: Doubles
    variance: Doubles

    def _chernoff(self) -> Doubles:
        c = self.tilts
        return np.asarray(self.moment + c * np.log(c) - (1 + c) * np.log1p(c))

    def best(self, epsilon: float) -> float:
        """The tilt of Chernoff's bound at ε."""
        return float(self.tilts[np.nanargmin(self._chernoff() - self.tilts * epsilon)])

    def best_between(self, epsilon: float) -> float:
        """The same, between the tilts that were scanned: by a parabola through three of them."""
        power = self._chernoff() - self.tilts * epsilon
        k = int(np.nanargmin(power))
        if not 0 < k < power.size - 1:
            return float(self.tilts[k])
        left, middle, right = power[k - 1 : k + 2]
        away = (left - right) / (2 * (left - 2 * middle + right))
        ratio = float(self.tilts[k + 1] / self.tilts[k])
        return float(self.tilts[k] * ratio ** np.nan_to_num(away))

    def _saddle(self, k: int) -> float:
        """The logarithm of δ·e^(cε) at the k-th tilt, by the saddle-point formula."""
        c = float(self.tilts[k])
        curve = float(self.variance[k]) + c**-2.0 + (1 + c) ** -2.0
        return float(self.moment[k]) - math.log(c * (1 + c)) - math.log(2 * math.pi * curve) / 2

    def rough_epsilon(self, log_delta: float) -> float:
        """About the ε at δ."""
        k = int(np.nanargmin((self._chernoff() - log_delta) / self.tilts))
        return (self._saddle(k) - log_delta) / float(self.tilts[k])

    def log_delta(self, epsilon: float) -> float:
        """About the logarithm of δ at ε."""
        k = int(np.nanargmin(self._chernoff() - self.tilts * epsilon))
        return min(-1e-3, self._saddle(k) - float(self.tilts[k]) * epsilon)

    def choose(self, epsilon: float, log_delta: float, steps: float) -> "Plan":
        """A tilt with a short period, the tilt that bounds its aliases, and the period."""
        c, excess = self.tilts, self.moment - self.tilts * epsilon - log_delta + MARGIN
        with np.errstate(all="ignore"):
            ratio = excess[None, :] / (c[None, :] - c[:, None])
            ratio[np.tril_indices(c.size)] = np.inf
            ratio[np.triu_indices(c.size, 9)] = np.inf
            ratio[~np.isfinite(ratio)] = np.inf
            above = ratio.min(axis=1)
            period = np.maximum(above, (MARGIN - log_delta) / c)
            # The further e^(K − cε) is above δ, the more rounding counts.
            loss = self.moment - c * epsilon - np.log(c) - log_delta
            cost = period * np.exp(np.maximum(0.0, loss - 6.0) / 3)
            cost[~np.isfinite(cost)] = np.inf
        k = int(np.argmin(cost))
        if not np.isfinite(cost[k]):
            raise Uncertified
        t: Doubles = float(self.variance[k]) ** -0.5 * np.exp(np.linspace(0.0, 12.0, 72))
        return Plan(
            tilt=float(c[k]),
            other=float(c[ratio[k].argmin()]),
            period=float(period[k]) * 1.02,
            grid=t,
            log_delta=log_delta,
            # By how much more than the sum itself its terms lose in rounding.
            loss=float(loss[k]) + 0.5 * math.log(steps),
            # The sum is δ to e^-21 if what is cut off is so small beside the peak.
            small=log_delta - float(self.moment[k]) + float(c[k]) * epsilon - MARGIN,
        )


@dataclass
class Plan:
    """The way in which the integral is summed."""

    tilt: float
    other: float
    period: float
    grid: Doubles
    small: float
    loss: float
    log_delta: float
    near: Window | None = None
    decay: Doubles | None = None
    reach: float = math.inf
    work: float = math.inf
    below: Window | None = None
    below_moment: tuple[float, float] | None = None
    rest: "Plan | None" = None
    has_far: bool = False
    is_simple: bool = False
    """True if nodes are taken with a bound in closed form."""

    @property
    def cost(self) -> float:
        """Work, and more if the peak is far above δ."""
        return self.work * math.exp(min(300.0, max(0.0, self.loss - FAIR_LOSS)))

    @property
    def is_fair(self) -> bool:
        """False if another way may be better: much work, or a peak far above δ."""
        return self.work < FAIR_WORK and self.loss < FAIR_LOSS

    def follow(
        self,
        decay: Doubles,
        nodes: int,
        split: tuple[Window | None, tuple[float, float] | None] = (None, None),
    ) -> None:
        """Take this bound of the decay, if it needs less work than what is known."""
        # Bounds may rise again where one of them ends.
        enough = np.maximum.accumulate((decay - np.log(self.grid))[::-1])[::-1] <= self.small
        reach = float(self.grid[enough.argmax()]) if enough.any() else math.inf
        work = reach * self.period / (2 * math.pi) * nodes
        if work < self.work or self.decay is None:
            self.decay, self.reach, self.work = decay, reach, work
            self.below, self.below_moment = split

    def divide(self, below: Window, rest: "Plan", decay: Doubles, nodes: int) -> None:
        """Sum only what is not below the division, with the decay of both; the rest is summed by itself."""
        assert self.decay is not None
        both, self.decay = np.logaddexp(self.decay, decay), None
        self.follow(both, nodes, (below, None))
        self.rest, self.loss = rest, FAIR_LOSS


@dataclass(frozen=True)
class FarOutcomes:
    """What compositions with at least one outcome far out contribute to δ, in closed form."""

    law: SubsampledGaussians
    alone: bool
    """False if there are other losses, which may be anything."""
    plunges: Callable[[], tuple[float, float]]
    """Gives λ and an upper bound of ln E[r^(−λ)] of all steps together, for outcomes of N(0, σ²)."""

    def rough_epsilon(self, log_delta: float) -> float:
        """About the ε at δ if one loss alone makes it, or a bit more."""
        law = self.law
        x = np.linspace(0.5 - 6 * law.sigmas, 1 + 12 * law.sigmas, 200, axis=1)
        own = law.rates[:, None] * normal_cdf((1 - x) / law.sigmas[:, None])
        loss = law.log_ratio(x)
        with np.errstate(divide="ignore"):
            estimates = [
                float(np.interp(-log_delta, -np.log(n * p), at))
                for n, p, at in zip(law.counts, own, loss, strict=True)
            ]
        return 2 * max(0.0, *estimates) + 1e-3 * float(law.counts @ law.tops)

    def rough_log_delta(self, epsilon: float) -> float:
        """About ln δ at ε if one loss alone makes it, or a bit less."""
        law = self.law
        p = normal_cdf((1 - law.outcome(np.full(law.sigmas.size, epsilon))) / law.sigmas)
        return math.log(max(1e-300, float(law.counts @ (law.rates * p))))

    @cached_property
    def _plunge(self) -> tuple[float, float]:
        return self.plunges()

    def _rest(self, log_small: float) -> float:
        """All other steps together have −ln r above this with a chance of at most e^log_small."""
        rate, moment = self._plunge
        return min(
            float(self.law.counts @ self.law.tops) * (1 + 2.0**-40),
            (moment - log_small) / rate * (1 + 2.0**-40),
        )

    def _thresholds(self, epsilon: float, log_small: float) -> Doubles:
        """Beyond these x compositions count in full (removed) or not at all (added), but for e^log_small."""
        law = self.law
        if not self.alone or math.isinf(epsilon):
            return np.full(law.sigmas.size, math.inf)
        others = self._rest(log_small)
        return law.outcome(np.full(law.sigmas.size, others - epsilon if law.added else others + epsilon))

    def _masses(self, window: Window) -> tuple[Doubles, Doubles]:
        """The P- and Q-mass of what is far, for each step."""
        law = self.law
        wide = np.sqrt(law.sigmas**2 + window.width**2)
        q = normal_cdf(-window.at / wide)
        if law.added:
            return q, q
        return (1 - law.rates) * q + law.rates * normal_cdf((1 - window.at) / wide), q

    def window(self, epsilon: float, log_delta: float, share: float) -> Window:
        """A division at which what is far is next to nothing, or surely beyond the thresholds."""
        law = self.law
        width = np.minimum(share * law.sigmas**2, 3 * share * law.sigmas)
        log_count = math.log1p(law.counts.sum())
        margin = math.sqrt(2 * (MARGIN + log_count + (0 if law.added else min(epsilon, 99)) - log_delta))
        small = log_delta - MARGIN - log_count - (0 if law.added else min(epsilon, 99))
        at = self._thresholds(epsilon * (0.9 if law.added else 1.1), small) + margin * width
        # By mass: from where on all of it is negligible.
        most = math.exp(max(-700.0, log_delta - MARGIN - log_count))
        high = np.array([self._end(k, float(width[k]), most) for k in range(width.size)])
        return Window(np.maximum(np.minimum(at, high), -9 * law.sigmas), width)

    def _end(self, row: int, width: float, most: float) -> float:
        """About where the P-mass of what is far falls below `most`, for one step."""
        law = self.law
        s, q = float(law.sigmas[row]), 0.0 if law.added else float(law.rates[row])
        root = 1 / math.sqrt(2 * (s * s + width * width))
        low, high = 0.0, 1 + 40 * s
        for _ in range(12):
            middle = (low + high) / 2
            mass = ((1 - q) * math.erfc(middle * root) + q * math.erfc((middle - 1) * root)) / 2
            low, high = (middle, high) if mass > most else (low, middle)
        return high

    def at(self, epsilon: float, window: Window, log_delta: float) -> tuple[float, float, float]:
        """The contribution to δ(ε), its error, and minus its slope; δ is about that."""
        law = self.law
        p, q = self._masses(window)
        ours, theirs = (-math.expm1(float(law.counts @ np.log1p(-mass))) for mass in (p, q))
        # It lies between 0 and its mass, however it counts.
        plain = (ours / 2, 0.51 * ours, 0.0)
        if epsilon >= MAX_FAR_EPSILON:
            return plain
        log_small = log_delta - MARGIN - math.log1p(law.counts.sum()) - (0 if law.added else epsilon)
        early = normal_cdf((self._thresholds(epsilon, log_small) - window.at) / window.width)
        doubt = 1.01 * float(law.counts @ (early + math.exp(log_small)))
        if law.added:
            known = (doubt / 2, 0.51 * doubt, 0.0)
        else:
            factor = math.exp(epsilon)
            known = (
                ours - factor * theirs,
                factor * doubt + 2.0**-40 * (ours + factor * theirs),
                factor * theirs,
            )
        return min(plain, known, key=lambda one: one[1])


class Contour:
    """e^K(z) on the points c + ikh, and its error."""

    def __init__(
        self,
        explicit: Sequence[tuple[ExplicitMoments, int]],
        plan: Plan,
        *,
        high: float,
        nodes: QuadratureNodes | None,
        far: FarOutcomes | None = None,
        rest: "Contour | None" = None,
    ) -> None:
        self._plan, self._high, self._rest = plan, high, rest
        self._far = None if far is None or plan.near is None else (far, plan.near)
        self.tilt = tilt = plan.tilt
        self.step = 2 * math.pi / plan.period
        # survives: One point more.
        count = math.ceil(plan.reach / self.step) + 1
        if count > MAX_POINTS:
            raise Uncertified
        t: Doubles = self.step * np.arange(count, dtype=np.float64)
        self.z: Complexes = np.full(count, tilt, dtype=np.complex128)
        self.z.imag = t
        power = np.zeros(count, dtype=np.complex128)
        log_error: Doubles = np.full(count, ROUNDING)
        for pair, times in explicit:
            # First, as it refuses what would take long.
            off = pair.moment_error(self.z)
            values = pair.log_moment(self.z)
            power += times * values
            log_error += ROUNDING * times * (np.abs(values) + off)
        self.kernel = 1 / (self.z * (1 + self.z))
        self.kernel[0] /= 2
        gain = None
        if nodes is not None:
            ratio, gain = nodes.log_ratio(self.step, count)
            power = power + nodes.moment + ratio
            log_error = (
                log_error if gain is None else min(2.0, nodes.above_mass) * log_error
            ) + nodes.error_bound(t)
        self.power = power
        # Each term's modulus is at most peak·|kernel|; an error in its logarithm moves it by that share.
        # survives: An error as large as e^50 is as useless as any.
        moved = np.expm1(np.minimum(log_error, 50.0))
        # survives: How much is allowed for rounding is free, if it is some units more than is lost.
        self._share = self.step / math.pi * float((moved * np.abs(self.kernel)).sum()) * 1.01
        self._peak = float(power[0].real) + (0.0 if gain is None else float(gain[0].real))
        self._ratio = np.exp(power - self._peak)
        if gain is not None:
            self._ratio *= np.expm1(gain)
        self._ratio *= self.kernel
        self._turning = self.step / math.pi * ROUNDING * float((np.abs(self._ratio) * t).sum())
        # Each segment after the last point falls from its left end.
        assert plan.decay is not None
        last, decay = float(t[-1]), plan.decay
        first = max(0, int(np.searchsorted(plan.grid, last, side="right")) - 1)
        ends = np.append(np.maximum(plan.grid[first:], last), math.inf)
        self.beyond = float((np.exp(decay[first:]) * (1 / ends[:-1] - 1 / ends[1:])).sum()) * (1 + 1e-9)

    def gap(self, epsilon: float) -> float:
        """About the relative gap between the bounds of ε, if it lies here."""
        total = self.at(epsilon)
        return 4 * (total.error + total.aliases) / max(self.slope(epsilon) * epsilon, 1e-300)

    def suits(self, epsilon: float) -> bool:
        """False if the far outcomes were divided for another ε."""
        return self._far is None or self._outside(epsilon)[1] < 1e-8 * max(self.at(epsilon).value, 1e-300)

    def _outside(self, epsilon: float) -> tuple[float, float, float]:
        """The contribution of far outcomes, its error, and minus its slope."""
        if self._far is None:
            return 0.0, 0.0, 0.0
        return self._far[0].at(epsilon, self._far[1], self._plan.log_delta)

    def at(self, epsilon: float) -> Sum:
        """The trapezoid sum for δ(ε) with its error."""
        peak = math.exp(min(700.0, self._peak - self.tilt * epsilon))
        terms = self._ratio * np.exp(-1j * self.z.imag * epsilon)
        value = peak * self.step / math.pi * float(terms.real.sum())
        # The exponent itself, and the phase t·ε, are off by some units of themselves.
        rounding = ROUNDING * (1 + abs(self._peak) + self.tilt * abs(epsilon)) * abs(value)
        error = peak * (self._share + abs(epsilon) * self._turning + self.beyond / math.pi) + rounding
        if self._plan.below_moment is not None:
            # Compositions of outcomes below the split only.
            error += math.exp(log_chernoff(epsilon, *self._plan.below_moment))
        far, unsure, _ = self._outside(epsilon)
        value, error = value + far, error + unsure
        aliases = self.bound_aliases(epsilon)
        if self._rest is not None:
            rest = self._rest.at(epsilon)
            value, error, aliases = value + rest.value, error + rest.error, aliases + rest.aliases
        return Sum(value, error, aliases)

    def slope(self, epsilon: float) -> float:
        """−dδ/dε."""
        peak = math.exp(min(700.0, self._peak - self.tilt * epsilon))
        terms = self._ratio * self.z * np.exp(-1j * self.z.imag * epsilon)
        own = peak * self.step / math.pi * float(terms.real.sum())
        far = self._outside(epsilon)[2]
        rest = self._rest.slope(epsilon) if self._rest is not None else 0.0
        # survives: A slope that is not above 0 is not met where there is a root.
        return max(own + far + rest, 1e-300)

    def bound_aliases(self, epsilon: float) -> float:
        """An upper bound of Σ e^(cmP)·δ(ε + mP) over m ≠ 0.

        For m < 0, δ ≤ 1; for m > 0, δ(s) ≤ e^(K(c′) − c′s) at any c′ > c.
        """
        plan = self._plan
        # survives: A bound as large as e^700 is as useless as any.
        power = min(700.0, self._high - plan.other * epsilon - (plan.other - plan.tilt) * plan.period)
        upper = math.exp(power) / -math.expm1((plan.tilt - plan.other) * plan.period)
        return upper + math.exp(-plan.tilt * plan.period) / -math.expm1(-plan.tilt * plan.period)


def log_chernoff(epsilon: float, c: float, moment: float) -> float:
    """An upper bound of ln δ(ε) from an upper bound of K(c)."""
    power = moment - c * epsilon + c * math.log(c) - (1 + c) * math.log1p(c)
    # survives: How much is allowed for rounding is free, if it is some units more than is lost.
    return min(0.0, power + ROUNDING * (1 + abs(moment) + c * epsilon + (1 + c) * math.log1p(c)))


def find_root(contour: Contour, start: float, delta: float) -> float:
    """The ε ≥ 0 at which the sum is δ, by Newton on ln δ between ends that close in; 0 if it is less at 0."""
    low, high, epsilon = -1.0, math.inf, start
    for step in range(80):
        value, error, _ = contour.at(epsilon)
        low, high = (epsilon, high) if value > delta else (low, epsilon)
        # survives: How close to the root it comes is free: bounds are checked where they are given.
        if abs(value - delta) <= 0.01 * error:
            return epsilon
        if high == 0:
            return 0.0
        # Where the sum is lost in rounding it is too far out.
        move = value / contour.slope(epsilon) * math.log(value / delta) if value > 0 else -math.inf
        after = epsilon + move
        if abs(move) <= 1e-14 * epsilon:
            return after
        if not max(0.0, low) < after < high:
            after = epsilon + 2.0**step / contour.tilt if math.isinf(high) else max(0.0, low) / 2 + high / 2
        if low < 0 and after < 1e-3 * start:
            after = 0.0
        if abs(after - epsilon) <= 1e-14 * epsilon:
            return after
        epsilon = after
    raise Uncertified
