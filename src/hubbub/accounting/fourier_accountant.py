"""The Fourier accountant: δ(ε) of Gaussian and subsampled Gaussian losses by a tilted Fourier integral.

With K(z) = ln E_P[e^(zL)] of the privacy loss L = ln(P/Q), and any tilt c > 0,

    δ(ε) = 1/2πi · ∫ e^(K(z) − zε) / (z(1+z)) dz    over z = c + it.

The trapezoid rule of step h adds Σ e^(cmP)·δ(ε + mP) over m ≠ 0, where P = 2π/h: terms that are never
negative, so the sum itself is an upper bound. The errors of truncation at the last t, of the quadrature of K
and of rounding are bounded and added; for the lower bound they and the aliases are subtracted.

Proof: docs/proofs/fourier.md
"""

import contextlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from hubbub.accounting.float_bounds import Uncertified
from hubbub.accounting.fourier_contour import (
    FAIR_LOSS,
    FAIR_WORK,
    MARGIN,
    MAX_FAR_EPSILON,
    ROUNDING,
    Contour,
    ExplicitMoments,
    FarOutcomes,
    Plan,
    Scan,
    find_root,
    log_chernoff,
)
from hubbub.accounting.fourier_estimate import BlurredSum, blurred_sum
from hubbub.accounting.smooth_partitions import Window
from hubbub.accounting.subsampled_decay import Decay
from hubbub.accounting.subsampled_gaussian import SubsampledGaussians

__all__ = ["FourierAccountant"]

Doubles = NDArray[np.float64]

_FAILURES = (Uncertified, ArithmeticError, ValueError)
_MIN_DELTA = 1e-290
# survives: From which gap on another contour is tried is free.
_CLOSE = 1.5e-7
_MORE = 2.0**-30
"""By how much more than δ is met at a lower bound, relatively: so it holds for parameters rounded down."""
# survives: Any tilt is valid.
_ALL_TILTS: Doubles = np.exp(np.linspace(-8.0, 16.0, 55))
# survives: From how much work on another way is tried is free.
_LITTLE_WORK, _SIMPLE_WORK, _MUCH_WORK = 1 << 16, 1 << 17, 1 << 25
# survives: Up to how many different steps lines are shifted is free.
_MAX_SHIFTED = 8
# survives: Any tilt is valid.
_CLOSE_TILTS: Doubles = np.exp(np.linspace(-1.8, 1.8, 10))
"""Tilts, as shares of the one that suits a normal loss."""


@dataclass(frozen=True)
class FourierAccountant:
    """The composition of pairs with explicit moments, with counts, and of subsampled Gaussian steps."""

    explicit: Sequence[tuple[ExplicitMoments, int]]
    subsampled: SubsampledGaussians | None

    def __post_init__(self) -> None:
        # Moments do not include infinite losses.
        if any(pair.infinity_mass for pair, _ in self.explicit):
            raise Uncertified

    def delta(self, epsilon: float) -> tuple[float, float]:
        """Certified (lower, upper) bounds of δ at ε ≥ 0."""
        with contextlib.suppress(*_FAILURES):
            scan = self.scan(None, self._close_tilts(epsilon))
            contour = self.make_contour(self.simple_plan(epsilon, scan.log_delta(epsilon), scan))
            value, error, aliases = contour.at(epsilon)
            # survives: Any contour is valid: from which gap on another one is tried is free.
            if _MIN_DELTA < value <= 1 and 0 <= error + aliases <= _CLOSE / 2 * value:
                return value - error - aliases, min(1.0, value + error)
        guess, far = self._first_log_delta(epsilon)
        low, high = 0.0, math.inf
        for _ in range(4):
            plan = self.fair_plan(epsilon, guess, far=far)
            if not far and (plan is None or not plan.is_fair or plan.below is not None):
                # The first guess may be far above the truth.
                closer = min(guess, self._far_log_delta(epsilon, guess))
                plan = self.fair_plan(epsilon, closer, far=True, plain=plan if closer == guess else None)
                far, guess = True, closer
            if plan is None:
                break
            try:
                value, error, aliases = self.make_contour(plan).at(epsilon)
            except Uncertified:
                break
            if not value + error >= max(0.0, low):
                raise Uncertified
            low, high = max(low, value - error - aliases), min(high, value + error)
            # survives: Any contour is valid: bounds are closer if it suits the δ.
            if high - low <= _CLOSE * high or abs(math.log(max(value, error)) - guess) < 0.5:
                break
            guess = min(-1e-3, math.log(max(value, error)))
        if not low <= high < math.inf:
            raise Uncertified
        # A δ close to underflow has lost its digits.
        return (low if low > _MIN_DELTA else 0.0), min(1.0, max(high, _MIN_DELTA))

    def fair_plan(
        self, epsilon: float, log_delta: float, *, far: bool, plain: Plan | None = None
    ) -> "Plan | None":
        """A plan for all outcomes; if that is not a fair one, also for those that are not far out."""
        far = far and self.far_outcomes is not None
        windowed = None
        if far and self._is_very_rare and plain is None:
            # Then outcomes far out decide.
            with contextlib.suppress(Uncertified):
                windowed = self.windowed_plan(epsilon, log_delta)
                if windowed.is_fair:
                    return windowed
        if plain is None:
            with contextlib.suppress(Uncertified):
                plain = self.make_plan(epsilon, log_delta, None, self.plain_scan)
        if far and (plain is None or not plain.is_fair):
            with contextlib.suppress(Uncertified):
                windowed = windowed or self.windowed_plan(epsilon, log_delta)
                if plain is None or windowed.cost < plain.cost:
                    return windowed
        return plain

    def epsilon(self, delta: float) -> tuple[float, float]:
        """Certified (lower, upper) bounds of the smallest ε at δ.

        If all steps are sampled Gaussians, δ is still above by a share of 2^-30 at the lower one.
        """
        log_delta = math.log(delta)
        if self._total_variation() <= delta:
            return 0.0, 0.0
        best: tuple[float, Contour, float] | None = None
        with contextlib.suppress(*_FAILURES):
            scan = self.scan(None, self._close_tilts(self._normal_epsilon(log_delta)))
            near = max(0.0, scan.rough_epsilon(log_delta))
            contour = self.make_contour(self.simple_plan(near, log_delta, scan))
            root = find_root(contour, near, delta)
            best = (contour.gap(root), contour, root)
            # survives: Any contour is valid: from which gap on another one is tried is free.
            if best[0] < _CLOSE:
                return self._enclose(contour, root, delta)
        near, far = self._first_epsilon(log_delta)
        for _ in range(7):
            plan = self.fair_plan(max(0.0, near), log_delta, far=far)
            if not far and (plan is None or not plan.is_fair or plan.below is not None):
                # The first guess may be far above the truth.
                closer = min(near, self._far_epsilon(log_delta))
                plan = self.fair_plan(
                    max(0.0, closer), log_delta, far=True, plain=plan if closer == near else None
                )
                far, near = True, closer
            if plan is None or plan.work > _MUCH_WORK:
                break
            try:
                contour = self.make_contour(plan)
            except Uncertified:
                break
            root = math.nan
            with contextlib.suppress(Uncertified):
                root = find_root(contour, max(0.0, near), delta)
            gap = contour.gap(root)
            if root != 0 and not gap < 1:
                # Far from where it was planned for, errors are larger than the sum.
                step = _newton(contour, near, delta)
                near = step if step > 0 else root
                if not near > 0:
                    break
                continue
            if best is None or not best[0] < gap:
                best = gap, contour, root
            # survives: Any tilt is valid, and any place to cut: bounds are closer if they suit the ε.
            if gap < _CLOSE or (abs(root - near) * contour.tilt < 0.3 and contour.suits(root)):
                break
            near = root
        if best is None:
            raise Uncertified
        return self._enclose(*best[1:], delta)

    def _enclose(self, contour: Contour, root: float, delta: float) -> tuple[float, float]:
        """Certified bounds of ε beside the root of the sum."""
        if root == 0:
            total = contour.at(0.0)
            if total.value + total.error <= delta:
                return 0.0, 0.0
        total = contour.at(root)
        slope = contour.slope(root)
        # survives: A root below 0 by more than the error is not met: then δ is met at 0.
        hair = 2 * ROUNDING * delta / slope + ROUNDING * root
        upper = max(0.0, root + 2 * total.error / slope + hair)
        more = 0.0 if self.subsampled is None or self.explicit else _MORE
        lower = root - 2 * (total.error + total.aliases + more * delta) / slope - hair
        high, low = contour.at(upper), contour.at(max(0.0, lower))
        if not high.value + high.error <= delta:
            raise Uncertified
        # survives: A lower bound of 0 says nothing, sure or not.
        certified = lower > 0 and low.value - low.error - low.aliases >= delta * (1 + more)
        return (lower if certified else 0.0), upper

    def moment(self, c: float, near: Window | None = None) -> float:
        """An upper bound of K at a real c ≥ 0."""
        total = 0.0
        for pair, count in self.explicit:
            own = pair.derivatives(c)[0]
            off = float(pair.moment_error(np.array([complex(c)]))[0])
            total += count * (own + ROUNDING * (1 + abs(own) + off))
        if self.subsampled is not None:
            nodes = self.subsampled.quadrature(c, 0.0, near=near, closed=True)
            total += nodes.moment + nodes.error
        return total

    def chernoff(self, epsilon: float) -> float:
        """A looser upper bound of δ(ε) that needs no decay: e^(K(c) − cε)·c^c/(1+c)^(1+c) at the best c."""
        return self._chernoff_at(epsilon, self._best_tilt(epsilon))

    def is_below(self, epsilon: float, delta: float) -> bool:
        """True if Chernoff's bound of δ(ε) is at most δ, at some tilt."""
        with contextlib.suppress(*_FAILURES):
            scan = self.scan(None, self._close_tilts(epsilon))
            c = scan.best_between(epsilon)
            if self._chernoff_at(epsilon, c) <= delta:
                return True
            if scan.tilts[0] < c < scan.tilts[-1] and self._is_normal(scan):
                return False
        return self.chernoff(epsilon) <= delta

    def _chernoff_at(self, epsilon: float, c: float) -> float:
        return math.exp(max(math.log(_MIN_DELTA), log_chernoff(epsilon, c, self.moment(c))))

    def _best_tilt(self, epsilon: float) -> float:
        c = self.plain_scan.best(epsilon)
        if self.subsampled is not None:
            # Closer, as the best bound of all is log_delta.
            c = self.scan(None, c * np.exp(np.linspace(-0.4, 0.4, 13))).best(epsilon)
        return c

    # The choice of the contour: nothing here must be exact.

    @cached_property
    def _normal_variance(self) -> float:
        """The variance of a normal loss that is about this one, if there are many small losses."""
        total = math.fsum(count * pair.derivatives(0.0)[2] for pair, count in self.explicit)
        law = self.subsampled
        if law is not None:
            total += float(law.counts @ (law.rates**2 * np.expm1(law.sigmas**-2.0)))
        # survives: From where on another way is taken is free.
        if not 1e-12 < total < 1e6:
            raise Uncertified
        return total

    def _is_normal(self, scan: Scan) -> bool:
        """True if K is about that of a normal loss: then there is no other best tilt."""
        normal = self._normal_variance / 2 * scan.tilts * (1 + scan.tilts)
        return bool(np.all(np.abs(scan.moment - normal)[:-2] < 0.4 * normal[:-2]))

    def _normal_epsilon(self, log_delta: float) -> float:
        """About the ε at δ of a normal loss: ln δ = −z²/2 − ln(z² + 4) or so."""
        mu = math.sqrt(self._normal_variance)
        z = math.sqrt(max(0.1, -2 * (log_delta + math.log(4 - 2 * log_delta))))
        return mu * mu / 2 + mu * z

    def _close_tilts(self, epsilon: float) -> Doubles:
        """Tilts about the one that suits ε if the loss is normal."""
        variance = self._normal_variance
        c = epsilon / variance - 0.5
        # The sum of both poles and of the saddle of e^(K − cε).
        c = (c + math.sqrt(c * c + 4 / variance)) / 2
        return c * _CLOSE_TILTS

    @cached_property
    def plain_scan(self) -> Scan:
        """Cumulants of all outcomes."""
        return self.scan(None)

    def scan(self, near: Window | None, tilts: Doubles = _ALL_TILTS) -> Scan:
        """Cumulants of the outcomes that are not far out."""
        if self.subsampled is not None and self.subsampled.sigmas.size > _MAX_SHIFTED:
            tilts = tilts[(tilts > 0.03) & (tilts < 500)]
        total = np.zeros((3, tilts.size))
        for pair, count in self.explicit:
            total += count * np.array([pair.derivatives(float(c)) for c in tilts]).T
        if self.subsampled is not None:
            own = self.subsampled.cumulants(tilts, near)
            tilts = tilts[: own.shape[1]]
            total = total[:, : own.shape[1]] + own
        return Scan(tilts, total[0], total[1], total[2])

    @cached_property
    def far_outcomes(self) -> "FarOutcomes | None":
        """What compositions with outcomes far out contribute; None if there are many kinds of steps."""
        law = self.subsampled
        if law is None or law.sigmas.size > _MAX_SHIFTED:
            return None

        def plunges() -> tuple[float, float]:
            other = FourierAccountant([], SubsampledGaussians(law.rates, law.sigmas, law.counts, added=True))
            scan = other.plain_scan
            with np.errstate(all="ignore"):
                best = float(scan.tilts[np.nanargmin((scan.moment + 45) / scan.tilts)])
            return best, max(0.0, other.moment(best))

        return FarOutcomes(law, alone=not self.explicit, plunges=plunges)

    def windowed_plan(self, epsilon: float, log_delta: float) -> "Plan":
        """The plan without outcomes far out, for the division with the shortest period."""
        assert self.far_outcomes is not None
        chosen = []
        for share in (0.1, 0.03, 0.01):
            window = self.far_outcomes.window(epsilon, log_delta, share)
            scan = self.scan(window, _tilts_for(epsilon, 0.02, 600))
            with contextlib.suppress(Uncertified):
                rough = scan.choose(epsilon, log_delta, self._steps)
                cost = rough.period / math.sqrt(share) * math.exp(max(0.0, rough.loss - 25.0) / 3)
                chosen.append((cost, share, window, scan))
        if not chosen:
            raise Uncertified
        _, _, window, scan = min(chosen, key=lambda one: one[:2])
        plan = self.make_plan(epsilon, log_delta, window, scan)
        plan.has_far = True
        if plan.loss > FAIR_LOSS and plan.below is None:
            plan = self._divide(plan, epsilon, log_delta)
        return plan

    def _divide(self, plan: "Plan", epsilon: float, log_delta: float) -> "Plan":
        """Take the outcomes of small losses by themselves, at a larger tilt."""
        law = self.subsampled
        assert law is not None
        assert plan.near is not None
        if law.added or law.sigmas.size > 1:
            return plan
        for share in (0.5, 0.25, 0.12, 0.06):
            below = Window(law.outcome(np.full(1, share * epsilon)), law.split_width / 10)
            if below.at[0] >= plan.near.at[0]:
                continue
            scan = self.scan(below)
            with contextlib.suppress(Uncertified):
                if scan.choose(epsilon, log_delta, self._steps).loss > FAIR_LOSS:
                    continue
                rest = self.make_plan(epsilon, log_delta, below, scan, split=False)
                nodes = law.quadrature(plan.tilt, 0.0, near=below, splits=True)
                decay = Decay(law, nodes, below).log_bound(plan.grid)
                plan.divide(below, rest, decay, nodes.x.size)
                break
        return plan

    def _total_variation(self) -> float:
        """An upper bound of δ(0): that of each step, added up; or half the root of χ², which multiplies."""
        law = self.subsampled
        if law is None or self.explicit:
            return 1.0
        steps = [
            n * q * math.erf(0.5 / s / math.sqrt(2))
            for n, q, s in zip(law.counts, law.rates, law.sigmas, strict=True)
        ]
        with np.errstate(over="ignore"):
            power = float(law.counts @ np.log1p(law.rates**2 * np.expm1(law.sigmas**-2.0)))
        # survives: Where e^power is cut is free: beyond it the bound is void.
        chi = math.sqrt(math.expm1(min(power, 9.0))) / 2
        return min(math.fsum(steps), chi) * (1 + 2.0**-40)

    @property
    def _sampled_steps(self) -> float:
        """In how many steps a unit is expected to be sampled."""
        law = self.subsampled
        return math.inf if law is None or self.explicit else float(law.counts @ law.rates)

    @property
    def _is_rare(self) -> bool:
        """True if few steps are sampled at all: then a single loss may make most of δ."""
        # survives: From how many on another way is tried is free.
        return self._sampled_steps < 3

    @property
    def _is_very_rare(self) -> bool:
        """True if it is sampled in none, most likely: then a single loss makes most of δ."""
        # survives: From how many on another way is tried first is free.
        return self._sampled_steps < 0.1

    def _first_log_delta(self, epsilon: float) -> tuple[float, bool]:
        """About ln δ at ε, and True if outcomes far out were taken by themselves."""
        if self._is_very_rare and self.far_outcomes is not None:
            guess = self._far_log_delta(epsilon, self.far_outcomes.rough_log_delta(epsilon))
            if math.isfinite(guess):
                return min(-1e-3, guess), True
        return self.plain_scan.log_delta(epsilon), False

    def _first_epsilon(self, log_delta: float) -> tuple[float, bool]:
        """About the ε at δ, and True if outcomes far out were taken by themselves."""
        if self._is_very_rare and math.isfinite(near := self._far_epsilon(log_delta)):
            return near, True
        return self.plain_scan.rough_epsilon(log_delta), False

    def _far_log_delta(self, epsilon: float, log_delta: float) -> float:
        """About ln δ at ε, with outcomes far out taken by themselves."""
        if self.far_outcomes is None:
            return log_delta
        if not self._is_rare:
            return self.scan(self.far_outcomes.window(math.inf, log_delta - 20, 0.03)).log_delta(epsilon)
        window = self.far_outcomes.window(epsilon, log_delta, 0.03)
        own = self.scan(window, _tilts_for(epsilon, 0.02, 600)).log_delta(epsilon)
        far = self.far_outcomes.at(epsilon, window, log_delta)[0]
        return float(np.logaddexp(own, math.log(max(far, 1e-300))))

    def _far_epsilon(self, log_delta: float) -> float:
        """About the ε at δ, with outcomes far out taken by themselves."""
        if self.far_outcomes is None:
            return math.inf
        if not self._is_rare:
            return self.scan(self.far_outcomes.window(math.inf, log_delta, 0.03)).rough_epsilon(log_delta)
        known: list[tuple[float, float]] = []
        epsilon = self.far_outcomes.rough_epsilon(log_delta)
        for _ in range(10):
            known.append((self._far_log_delta(epsilon, log_delta), epsilon))
            known.sort()
            deltas = [one for one, _ in known]
            if deltas[0] <= log_delta <= deltas[-1]:
                epsilon = math.exp(np.interp(log_delta, deltas, [math.log(one) for _, one in known]))
                if len(known) > 4:
                    break
            else:
                epsilon = 2 * known[0][1] if log_delta < deltas[0] else known[-1][1] / 3
            if epsilon > MAX_FAR_EPSILON:
                return math.inf
            if epsilon < 1e-3 * float(self.far_outcomes.law.tops.min()):
                return 0.0
        return self._closer_epsilon(epsilon, log_delta)

    def _closer_epsilon(self, epsilon: float, log_delta: float) -> float:
        """The same, closer, from about ε; ε itself where that fails."""
        far = self.far_outcomes
        assert far is not None
        if far.law.sigmas.size > 1 or far.law.added:
            return epsilon
        for _ in range(5):
            tilts = _tilts_for(epsilon, 0.5, 200)
            for share in (0.01, 0.03):
                with contextlib.suppress(Uncertified):
                    window = far.window(epsilon, log_delta, share)
                    own = blurred_sum(far.law, window, self.scan(window, tilts), epsilon, log_delta)
                    break
            else:
                return epsilon

            def excess(at: float, own: BlurredSum = own, window: Window = window) -> float:
                outside = math.log(max(far.at(at, window, log_delta)[0], 1e-300))
                return float(np.logaddexp(own.log_delta(at), outside)) - log_delta

            before, epsilon = epsilon, _walk(excess, epsilon)
            if abs(epsilon - before) * own.tilt < 1:
                break
        return epsilon

    @property
    def _steps(self) -> float:
        return 1.0 if self.subsampled is None else float(self.subsampled.counts.sum())

    def make_plan(
        self, epsilon: float, log_delta: float, near: Window | None, scan: Scan, *, split: bool = True
    ) -> "Plan":
        """A tilt, a period, and how far the integrand is to be followed until it has provably vanished."""
        plan = scan.choose(epsilon, log_delta, self._steps)
        plan.near = near
        t, law = plan.grid, self.subsampled
        if law is None:
            plan.follow(self._explicit_decay(t, plan.tilt), 1)
            return plan
        few = law.sigmas.size <= _MAX_SHIFTED
        # Beside a division there are many nodes in any case.
        splits, explicit = near is not None and few, self._explicit_decay(t, plan.tilt)
        nodes = law.quadrature(plan.tilt, 0.0, near=near, splits=splits)
        plan.follow(Decay(law, nodes, near).log_bound(t, lines=False) + explicit, nodes.x.size)
        if plan.work > _LITTLE_WORK and few:
            nodes = nodes if splits else law.quadrature(plan.tilt, 0.0, near=near, splits=True)
            plan.follow(Decay(law, nodes, near).log_bound(t) + explicit, nodes.x.size)
        if split and plan.work > FAIR_WORK and not law.added:
            parts = self._split(epsilon, log_delta, plan.tilt)
            if parts is not None:
                plan.follow(Decay(law, nodes, near, parts[0]).log_bound(t), nodes.x.size, parts)
        return plan

    def simple_plan(self, epsilon: float, log_delta: float, scan: Scan) -> "Plan":
        """A plan for easy laws, which is soon made: the middle of the distribution shows the decay."""
        plan = scan.choose(epsilon, log_delta, self._steps)
        # The best tilt may lie outside the scan.
        if not scan.tilts[0] < plan.tilt or plan.loss > FAIR_LOSS:
            raise Uncertified
        t, law = plan.grid, self.subsampled
        if law is None:
            plan.follow(self._explicit_decay(t, plan.tilt), 1)
            return plan
        nodes = law.quadrature(plan.tilt, 0.0, closed=True)
        plan.follow(
            Decay(law, nodes).log_bound(t, lines=False) + self._explicit_decay(t, plan.tilt), nodes.x.size
        )
        if plan.work > _SIMPLE_WORK:
            raise Uncertified
        plan.is_simple = True
        return plan

    def make_contour(self, plan: "Plan") -> "Contour":
        """Sum what was planned."""
        if not math.isfinite(plan.reach):
            raise Uncertified
        high = self.moment(plan.other, plan.near)
        nodes = None
        if self.subsampled is not None:
            reach = plan.reach + 4 * math.pi / plan.period
            nodes = self.subsampled.quadrature(
                plan.tilt, reach, near=plan.near, below=plan.below, closed=plan.is_simple
            )
        rest = None if plan.rest is None else self.make_contour(plan.rest)
        far = self.far_outcomes if plan.has_far else None
        return Contour(self.explicit, plan, high=high, nodes=nodes, far=far, rest=rest)

    def _explicit_decay(self, t: Doubles, tilt: float) -> Doubles:
        return np.asarray(sum((count * pair.decay(t, tilt) for pair, count in self.explicit), 0 * t))

    def _split(
        self, epsilon: float, log_delta: float, tilt: float
    ) -> tuple[Window, tuple[float, float]] | None:
        """The highest split at which compositions of outcomes below only contribute next to nothing."""
        law = self.subsampled
        assert law is not None
        total = float(law.counts @ law.tops)
        if not math.isfinite(total) or law.sigmas.size > 1:
            return None
        levels = (epsilon + total) * np.exp(
            np.linspace(math.log(0.7), math.log(0.005 / law.counts.sum()), 16)
        )
        c = tilt * np.exp(np.linspace(-2.0, 3.5, 17))
        factor = c * np.log(c) - (1 + c) * np.log1p(c) - c * epsilon
        # A narrower division leaves more outcomes above, but their transform decays later: the widest of the
        # highest.
        chosen: list[tuple[int, Window, float]] = []
        for width in (law.split_width, law.split_width / 3, law.split_width / 10):
            at = np.array([law.outcome(level - law.tops) for level in levels]) - 2 * width
            at = np.minimum(at, 1 + 2 * tilt + 8 * law.sigmas)
            power = np.nan_to_num(law.moments_below(c, at[:, 0], float(width[0])), nan=np.inf) + factor
            enough = np.flatnonzero(power.min(axis=1) < log_delta - MARGIN)
            if enough.size:
                first = int(enough[0])
                chosen.append((first, Window(at[first], width), float(c[power[first].argmin()])))
        for _, below, best in sorted(chosen, key=lambda one: one[0]):
            with contextlib.suppress(Uncertified):
                moment = self.moment(best, below)
                if log_chernoff(epsilon, best, moment) < log_delta - MARGIN + 4:
                    return below, (best, moment)
        return None


def _tilts_for(epsilon: float, least: float, most: float) -> Doubles:
    """The tilts c with least < cε < most; all of them if ε is 0."""
    # survives: Any tilt is valid.
    close = (_ALL_TILTS * epsilon > least) & (_ALL_TILTS * epsilon < most)
    return _ALL_TILTS[close] if close.sum() > 4 else _ALL_TILTS


def _walk(excess: Callable[[float], float], start: float) -> float:
    """About where a falling function is 0, by steps from the start and a chord; not far beyond it."""
    here, value = start, excess(start)
    factor = 1.25 if value > 0 else 0.8
    for _ in range(9 if value < 0 else 4):
        there = here * factor
        after = excess(there)
        # Far from the start the sum is lost in rounding: it must go on falling.
        if not math.isfinite(after) or (after > value) == (factor > 1):
            return here * factor**3
        if (after > 0) != (value > 0):
            return float(here * factor ** (value / (value - after)))
        here, value = there, after
    return here


def _newton(contour: Contour, epsilon: float, delta: float) -> float:
    """A step from ε towards the root, to a third or three times ε at most; nan if errors are large."""
    total = contour.at(epsilon)
    if not total.value > 2 * total.error:
        return math.nan
    move = total.value / contour.slope(epsilon) * math.log(total.value / delta)
    return min(3 * epsilon, max(epsilon / 3, epsilon + move))
