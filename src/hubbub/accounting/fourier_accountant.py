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
from collections.abc import Sequence
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
from hubbub.accounting.fourier_windows import Window
from hubbub.accounting.subsampled_decay import Decay
from hubbub.accounting.subsampled_gaussian import SubsampledGaussians

__all__ = ["FourierAccountant"]

Doubles = NDArray[np.float64]

_MIN_DELTA = 1e-290
# survives: From which gap on another contour is tried is free.
_CLOSE = 5e-8
# survives: Any tilt is valid.
_ALL_TILTS: Doubles = np.exp(np.linspace(-8.0, 16.0, 55))
# survives: From how much work on another way is tried is free.
_LITTLE_WORK = 1 << 16
# survives: Up to how many different steps lines are shifted is free.
_MAX_SHIFTED = 8


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
        guess, far = self.plain_scan.log_delta(epsilon), False
        low, high = 0.0, math.inf
        for _ in range(4):
            plan = self.fair_plan(epsilon, guess, far=far)
            if not far and (plan is None or not plan.is_fair or plan.below is not None):
                # The first guess may be far above the truth.
                far, guess = True, min(guess, self._far_log_delta(epsilon, guess))
                plan = self.fair_plan(epsilon, guess, far=True)
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
            guess = math.log(max(value, error))
        if not low <= high < math.inf:
            raise Uncertified
        # A δ close to underflow has lost its digits.
        return (low if low > _MIN_DELTA else 0.0), min(1.0, max(high, _MIN_DELTA))

    def fair_plan(self, epsilon: float, log_delta: float, *, far: bool) -> "Plan | None":
        """A plan for all outcomes; if that is not a fair one, also for those that are not far out."""
        plan = None
        with contextlib.suppress(Uncertified):
            plan = self.make_plan(epsilon, log_delta, None, self.plain_scan)
        if far and self._far is not None and (plan is None or not plan.is_fair):
            with contextlib.suppress(Uncertified):
                plan = self.windowed_plan(epsilon, log_delta, plan)
        return plan

    def epsilon(self, delta: float) -> tuple[float, float]:
        """Certified (lower, upper) bounds of the smallest ε at δ."""
        wanted = math.log(delta)
        if self._total_variation() <= delta:
            return 0.0, 0.0
        near = self.plain_scan.rough_epsilon(wanted)
        far = False
        for _ in range(5):
            plan = self.fair_plan(max(0.0, near), wanted, far=far)
            if not far and (plan is None or not plan.is_fair or plan.below is not None):
                # The first guess may be far above the truth.
                far, near = True, min(near, self._far_epsilon(wanted))
                plan = self.fair_plan(max(0.0, near), wanted, far=True)
            if plan is None:
                raise Uncertified
            contour = self.make_contour(plan)
            root = find_root(contour, max(0.0, near), delta)
            # survives: Any tilt is valid, and any place to cut: bounds are closer if they suit the ε.
            if contour.gap(root) < _CLOSE or (abs(root - near) * contour.tilt < 0.3 and contour.suits(root)):
                break
            near = root
        if root == 0:
            total = contour.at(0.0)
            if total.value + total.error <= delta:
                return 0.0, 0.0
        total = contour.at(root)
        slope = contour.slope(root)
        # survives: A root below 0 by more than the error is not met: then δ is met at 0.
        hair = 2 * ROUNDING * delta / slope + ROUNDING * root
        upper = max(0.0, root + 2 * total.error / slope + hair)
        lower = root - 2 * (total.error + total.aliases) / slope - hair
        high, low = contour.at(upper), contour.at(max(0.0, lower))
        if not high.value + high.error <= delta:
            raise Uncertified
        # survives: A lower bound of 0 says nothing, sure or not.
        certified = lower > 0 and low.value - low.error - low.aliases >= delta
        return (lower if certified else 0.0), upper

    def moment(self, c: float, near: Window | None = None) -> float:
        """An upper bound of K at a real c ≥ 0."""
        total = 0.0
        for pair, count in self.explicit:
            own = pair.derivatives(c)[0]
            total += count * (own + ROUNDING * (1 + abs(own)))
        if self.subsampled is not None:
            nodes = self.subsampled.quadrature(c, 0.0, near=near)
            total += nodes.moment + nodes.error
        return total

    def chernoff(self, epsilon: float) -> float:
        """A looser upper bound of δ(ε) that needs no decay: e^(K(c) − cε)·c^c/(1+c)^(1+c) at the best c."""
        c = self.plain_scan.best(epsilon)
        if self.subsampled is not None:
            # Closer, as the best bound of all is wanted.
            c = self.scan(None, c * np.exp(np.linspace(-0.4, 0.4, 13))).best(epsilon)
        return math.exp(max(math.log(_MIN_DELTA), log_chernoff(epsilon, c, self.moment(c))))

    # The choice of the contour: nothing here must be exact.

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
    def _far(self) -> "FarOutcomes | None":
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

    def windowed_plan(self, epsilon: float, log_delta: float, plain: "Plan | None") -> "Plan":
        """The plan without outcomes far out, for the division with the shortest period; or the plain one."""
        assert self._far is not None
        chosen = []
        for share in (0.1, 0.03, 0.01):
            window = self._far.window(epsilon, log_delta, share)
            scan = self.scan(window)
            with contextlib.suppress(Uncertified):
                rough = scan.choose(epsilon, log_delta, self._steps)
                cost = rough.period / math.sqrt(share) * math.exp(max(0.0, rough.loss - 25.0) / 3)
                chosen.append((cost, share, window, scan))
        if chosen:
            _, _, window, scan = min(chosen, key=lambda one: one[:2])
            plan = self.make_plan(epsilon, log_delta, window, scan)
            plan.has_far = True
            if plan.loss > FAIR_LOSS and plan.below is None:
                self._divide(plan, epsilon, log_delta)
            if plain is None or plan.cost < plain.cost:
                return plan
        if plain is None:
            raise Uncertified
        return plain

    def _divide(self, plan: "Plan", epsilon: float, log_delta: float) -> None:
        """Take the outcomes of small losses by themselves, at a larger tilt."""
        law = self.subsampled
        assert law is not None
        if law.added or law.sigmas.size > 1:
            return
        for share in (0.5, 0.25, 0.12, 0.06):
            below = Window(law.outcome(np.full(1, share * epsilon)), law.split_width / 10)
            scan = self.scan(below)
            with contextlib.suppress(Uncertified):
                if scan.choose(epsilon, log_delta, self._steps).loss > FAIR_LOSS:
                    continue
                rest = self.make_plan(epsilon, log_delta, below, scan, split=False)
                nodes = law.quadrature(plan.tilt, 0.0, near=below, splits=True)
                decay = Decay(law, nodes, below).log_bound(plan.grid)
                plan.divide(below, rest, decay, nodes.x.size)
                return

    def _total_variation(self) -> float:
        """An upper bound of δ(0): that of each step, added up."""
        law = self.subsampled
        if law is None or self.explicit:
            return 1.0
        steps = [
            n * q * math.erf(0.5 / s / math.sqrt(2))
            for n, q, s in zip(law.counts, law.rates, law.sigmas, strict=True)
        ]
        return math.fsum(steps) * (1 + 2.0**-40)

    @property
    def _is_rare(self) -> bool:
        """True if few steps are sampled at all: then a single loss may make most of δ."""
        law = self.subsampled
        return law is not None and not self.explicit and float(law.counts @ law.rates) < 3

    def _far_log_delta(self, epsilon: float, log_delta: float) -> float:
        """About ln δ at ε, with outcomes far out taken by themselves."""
        if self._far is None:
            return log_delta
        if not self._is_rare:
            return self.scan(self._far.window(math.inf, log_delta - 20, 0.03)).log_delta(epsilon)
        window = self._far.window(epsilon, log_delta, 0.03)
        own, far = self.scan(window).log_delta(epsilon), self._far.at(epsilon, window, log_delta)[0]
        return float(np.logaddexp(own, math.log(max(far, 1e-300))))

    def _far_epsilon(self, log_delta: float) -> float:
        """About the ε at δ, with outcomes far out taken by themselves."""
        if self._far is None:
            return math.inf
        if not self._is_rare:
            return self.scan(self._far.window(math.inf, log_delta, 0.03)).rough_epsilon(log_delta)
        known: list[tuple[float, float]] = []
        epsilon = self._far.rough_epsilon(log_delta)
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
            if epsilon < 1e-3 * float(self._far.law.tops.min()):
                return 0.0
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
            plan.follow(self._explicit_decay(t), 1)
            return plan
        nodes, explicit = law.quadrature(plan.tilt, 0.0, near=near), self._explicit_decay(t)
        plan.follow(Decay(law, nodes, near).log_bound(t, lines=False) + explicit, nodes.x.size)
        if plan.work > _LITTLE_WORK and law.sigmas.size <= _MAX_SHIFTED:
            nodes = law.quadrature(plan.tilt, 0.0, near=near, splits=True)
            plan.follow(Decay(law, nodes, near).log_bound(t) + explicit, nodes.x.size)
        if split and plan.work > FAIR_WORK and not law.added:
            found = self._split(epsilon, log_delta, plan.tilt)
            if found is not None:
                plan.follow(Decay(law, nodes, near, found[0]).log_bound(t), nodes.x.size, found)
        return plan

    def make_contour(self, plan: "Plan") -> "Contour":
        """Sum what was planned."""
        if not math.isfinite(plan.reach):
            raise Uncertified
        high = self.moment(plan.other, plan.near)
        nodes = None
        if self.subsampled is not None:
            reach = plan.reach + 4 * math.pi / plan.period
            nodes = self.subsampled.quadrature(plan.tilt, reach, near=plan.near, below=plan.below)
        rest = None if plan.rest is None else self.make_contour(plan.rest)
        far = self._far if plan.has_far else None
        return Contour(self.explicit, plan, high=high, nodes=nodes, far=far, rest=rest)

    def _explicit_decay(self, t: Doubles) -> Doubles:
        return np.array([sum(count * pair.decay(float(at)) for pair, count in self.explicit) for at in t])

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
        # A narrower division leaves more outcomes above, but their transform decays later.
        for width in (law.split_width, law.split_width / 3, law.split_width / 10):
            at = np.array([law.outcome(level - law.tops) for level in levels]) - 2 * width
            at = np.minimum(at, 1 + 2 * tilt + 8 * law.sigmas)
            power = np.nan_to_num(law.moments_below(c, at[:, 0], float(width[0])), nan=np.inf) + factor
            enough = np.flatnonzero(power.min(axis=1) < log_delta - MARGIN)
            if enough.size:
                below = Window(at[enough[0]], width)
                best = float(c[power[enough[0]].argmin()])
                with contextlib.suppress(Uncertified):
                    moment = self.moment(best, below)
                    if log_chernoff(epsilon, best, moment) < log_delta - MARGIN + 4:
                        return below, (best, moment)
        return None
