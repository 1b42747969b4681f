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
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from hubbub.accounting.float_bounds import Uncertified
from hubbub.accounting.subsampled_gaussian import DecayBound, QuadratureNodes, SubsampledGaussians

__all__ = ["ExplicitMoments", "FourierAccountant"]

Complexes = NDArray[np.complex128]
Doubles = NDArray[np.float64]

# survives: How far the integrand is followed is free: what is cut off is bounded, and added.
_MAX_REACH_FACTOR = 30.0
"""How far beyond the range of the moment bound the integrand is followed, if needed."""
# survives: How far the integrand is followed is free: what is cut off is bounded, and added.
_DECAY_TARGET = 31.0
"""The integrand is followed down to e^-31 of its peak."""
# survives: How small aliases are kept is free: they are bounded, and taken off below.
_ALIAS_EXPONENT = 25.0
"""Aliases are kept below e^-25 of δ: they widen the certified gap, nothing else."""
# survives: How much is allowed for rounding is free, if it is some units more than is lost.
_ROUNDING = 2.0**-48
_MIN_DELTA = 1e-290
# survives: From how many points on it is left to others is free.
_MAX_POINTS = 200_000
# survives: Any tilt is valid.
_MIN_LOG_TILT, _MAX_LOG_TILT = -8, 12
# survives: Any tilt is valid.
_TILT_TOLERANCE = 0.07
"""A relative error of the tilt that is good enough."""


class ExplicitMoments(Protocol):
    """A pair with moments in closed form."""

    @property
    def infinity_mass(self) -> float:
        """The probability of an infinite loss."""

    def log_moment(self, z: Complexes) -> Complexes:
        """K(z) = ln E_P[e^(zL)]."""

    def derivatives(self, c: float) -> tuple[float, float, float]:
        """K, K′ and K″ at a real c."""

    def decay(self, t: float) -> float:
        """An upper bound of ln|e^(K(c+it) − K(c))| for all c, falling in t; 0 if none is known."""


class _Sum(NamedTuple):
    """Re Σ, its error, and the aliases, at one ε."""

    value: float
    error: float
    aliases: float


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
        tilt = self._tilt(lambda c: self._epsilon_at(c) - epsilon)
        contour = self._contour(tilt, epsilon)
        total = contour.at(epsilon)
        low, high = total.value - total.error - total.aliases, total.value + total.error
        if not low <= high or high < 0:
            raise Uncertified
        # A δ close to underflow has lost its digits.
        return (low if low > _MIN_DELTA else 0.0), min(1.0, max(high, _MIN_DELTA))

    def epsilon(self, delta: float) -> tuple[float, float]:
        """Certified (lower, upper) bounds of the smallest ε at δ."""
        wanted = math.log(delta)
        tilt = self._tilt(lambda c: wanted - self._log_delta_at(c))
        near = self._epsilon_at(tilt)
        if near <= 0:
            contour = self._contour(self._tilt(self._epsilon_at), 0.0)
            total = contour.at(0.0)
            if total.value + total.error <= delta:
                return 0.0, 0.0
            near = 0.0
        contour = self._contour(tilt, near)
        root = _root(contour, near, delta)
        total = contour.at(root)
        slope = contour.slope(root)
        # survives: A root below 0 by more than the error is not met: then δ is met at 0.
        upper = max(0.0, root + 2 * (total.error + _ROUNDING * delta) / slope)
        lower = root - 2 * (total.error + total.aliases + _ROUNDING * delta) / slope
        high, low = contour.at(upper), contour.at(max(0.0, lower))
        if not high.value + high.error <= delta:
            raise Uncertified
        # survives: A lower bound of 0 says nothing, sure or not.
        certified = lower > 0 and low.value - low.error - low.aliases >= delta
        return (lower if certified else 0.0), upper

    def _derivatives(self, c: float) -> tuple[float, float, float]:
        """K, K′ and K″ of the whole at a real c, to plotting accuracy: they only choose the tilt."""
        total = np.zeros(3)
        for pair, count in self.explicit:
            total += count * np.array(pair.derivatives(c))
        if self.subsampled is not None:
            # survives: They only choose the tilt, and any is valid.
            nodes = self.subsampled.quadrature(c, 0.0, rough=True)
            counts = self.subsampled.counts
            total += (counts @ nodes.moments, counts @ nodes.mean, counts @ nodes.variance)
        return float(total[0]), float(total[1]), float(total[2])

    def moment(self, c: float) -> float:
        """An upper bound of K at a real c ≥ 0."""
        total = 0.0
        for pair, count in self.explicit:
            own = pair.derivatives(c)[0]
            total += count * (own + _ROUNDING * (1 + abs(own)))
        if self.subsampled is not None:
            nodes = self.subsampled.quadrature(c, 0.0)
            total += nodes.moment + nodes.error
        return total

    def chernoff(self, epsilon: float) -> float:
        """A looser upper bound of δ(ε) that needs no decay: e^(K(c) − cε)·c^c/(1+c)^(1+c) at the best c."""
        c = self._tilt(lambda c: self._derivatives(c)[1] - math.log1p(1 / c) - epsilon)
        power = self.moment(c) - c * epsilon + c * math.log(c) - (1 + c) * math.log1p(c)
        # survives: How much is allowed for rounding is free, if it is some units more than is lost.
        power += _ROUNDING * (1 + c * epsilon + (1 + c) * math.log1p(c))
        return max(_MIN_DELTA, math.exp(min(0.0, power)))

    def _epsilon_at(self, c: float) -> float:
        """The ε at which the integrand has its saddle at c."""
        return self._derivatives(c)[1] - 1 / c - 1 / (1 + c)

    def _log_delta_at(self, c: float) -> float:
        """The logarithm of δ at that ε, by the saddle-point formula."""
        moment, mean, variance = self._derivatives(c)
        epsilon = mean - 1 / c - 1 / (1 + c)
        # survives: It only chooses the tilt, and any is valid.
        curve = variance + c**-2 + (1 + c) ** -2
        return moment - c * epsilon - math.log(c * (1 + c)) - math.log(2 * math.pi * curve) / 2

    @staticmethod
    def _tilt(rising: Callable[[float], float]) -> float:
        """The rough root of a rising function of the tilt: any tilt is valid, this one converges fast."""

        def value(log_tilt: float) -> float:
            # asinh, as far out it grows faster than false position can follow.
            return math.asinh(rising(math.exp(log_tilt)))

        # survives: Any tilt is valid, and the tests ask for one that is about right, in a few
        # steps.
        low = high = 1.5
        at_low = at_high = value(low)
        # Outwards by steps, because extreme tilts are expensive; then by false position.
        # survives: Any tilt is valid, and the tests ask for one that is about right, in a few
        # steps.
        while at_high < 0 and high < _MAX_LOG_TILT:
            # survives: Any tilt is valid, and the tests ask for one that is about right, in a
            # few steps.
            low, at_low, high = high, at_high, high + 1
            at_high = value(high)
        # survives: Any tilt is valid, and the tests ask for one that is about right, in a few
        # steps.
        while at_low > 0 and low > _MIN_LOG_TILT:
            # survives: Any tilt is valid, and the tests ask for one that is about right, in a
            # few steps.
            high, at_high, low = low, at_low, low - 1
            at_low = value(low)
        # survives: Any tilt is valid, and the tests ask for one that is about right, in a few
        # steps.
        best = low if abs(at_low) < abs(at_high) else high
        # survives: Any tilt is valid, and the tests ask for one that is about right, in a few
        # steps.
        for _ in range(6):
            # survives: Any tilt is valid, and the tests ask for one that is about right, in a
            # few steps.
            if high - low < _TILT_TOLERANCE or not at_low < 0 < at_high:
                break
            # survives: Any tilt is valid, and the tests ask for one that is about right, in a
            # few steps.
            middle = low + (high - low) * min(0.9, max(0.1, at_low / (at_low - at_high)))
            # survives: Any tilt is valid, and the tests ask for one that is about right, in a
            # few steps.
            at, moved, best = value(middle), abs(middle - best), middle
            # survives: Any tilt is valid, and the tests ask for one that is about right, in a
            # few steps.
            if moved < _TILT_TOLERANCE:
                break
            # The Illinois rule: an end that stays counts half.
            # survives: Any tilt is valid, and the tests ask for one that is about right, in a
            # few steps.
            low, at_low, high, at_high = (
                (middle, at, high, at_high / 2) if at < 0 else (low, at_low / 2, middle, at)
            )
        # survives: Any tilt is valid, and the tests ask for one that is about right, in a few
        # steps.
        return math.exp(best)

    def _contour(self, tilt: float, epsilon: float) -> "_Contour":
        """The integrand along Re z = tilt, followed until it has provably vanished."""
        moment, _, variance = self._derivatives(tilt)
        aliases = _aliases(self, tilt, epsilon, moment)
        # survives: How far the integrand is followed is free: what is cut off is bounded, and
        # added.
        reach = math.sqrt(2 * _DECAY_TARGET / variance)
        if self.subsampled is None:
            return _Contour(self, tilt, aliases, reach=reach, nodes=None)
        # survives: Nodes that are a little fewer or more: the core bounds what it bounds.
        decay_bound = self.subsampled.quadrature(tilt, 0.0).decay_bound()
        # survives: How far the integrand is followed is free: what is cut off is bounded, and
        # added.
        while (
            self._log_decay(decay_bound, reach) > -_DECAY_TARGET
            and reach < _MAX_REACH_FACTOR * decay_bound.turn
        ):
            # survives: How far the integrand is followed is free: what is cut off is bounded,
            # and added.
            reach *= 1.1
        # The last point lies within a step of the reach. If that is too far, the moment bound must do.
        # survives: How far the integrand is followed is free: what is cut off is bounded, and
        # added.
        near = max(min(reach, decay_bound.turn), math.sqrt(2 * _DECAY_TARGET / variance))
        for until in (reach, near):
            with contextlib.suppress(Uncertified):
                # survives: Nodes for a little more or less than is followed: their error,
                # which is bounded, is far below rounding.
                nodes = self.subsampled.quadrature(tilt, 1.01 * until + 4 * math.pi / aliases[0])
                return _Contour(self, tilt, aliases, reach=until, nodes=nodes)
        raise Uncertified

    def _log_decay(self, decay_bound: DecayBound | None, t: float) -> float:
        """A proved upper bound of the logarithm of the integrand at t against its peak, falling in t."""
        total = sum(count * pair.decay(t) for pair, count in self.explicit)
        # survives: There is a core just if there are sampled steps.
        if decay_bound is not None and self.subsampled is not None:
            # survives: At the turn both bounds hold.
            total += float(
                self.subsampled.counts @ (decay_bound.near(t) if t < decay_bound.turn else decay_bound.far(t))
            )
        return total


class _Contour:
    """e^K(z) on the points c + ikh, and its error."""

    def __init__(
        self,
        whole: FourierAccountant,
        tilt: float,
        aliases: tuple[float, Callable[[float], float]],
        *,
        reach: float,
        nodes: QuadratureNodes | None,
    ) -> None:
        self.tilt = tilt
        period, self._alias = aliases
        self.step = 2 * math.pi / period
        # survives: One point more.
        count = math.ceil(reach / self.step) + 1
        if count > _MAX_POINTS:
            raise Uncertified
        t: Doubles = self.step * np.arange(count, dtype=np.float64)
        self.z: Complexes = np.full(count, tilt, dtype=np.complex128)
        self.z.imag = t
        power = np.zeros(count, dtype=np.complex128)
        log_error: Doubles = np.full(count, _ROUNDING)
        for pair, times in whole.explicit:
            values = pair.log_moment(self.z)
            power += times * values
            log_error += _ROUNDING * times * np.abs(values)
        if nodes is not None:
            power += nodes.moment + nodes.log_ratio(self.step, count)
            log_error += nodes.error_bound(t)
        self.power = power
        self.log_error = log_error
        self.kernel = 1 / (self.z * (1 + self.z))
        self.kernel[0] /= 2
        self.beyond = _tail_bound(whole, nodes.decay_bound() if nodes is not None else None, float(t[-1]))

    def at(self, epsilon: float) -> _Sum:
        """The trapezoid sum for δ(ε) with its error."""
        peak = math.exp(self.power[0].real - self.tilt * epsilon)
        terms = np.exp(self.power - self.z * epsilon) * self.kernel
        scale = self.step / math.pi
        value = scale * float(terms.real.sum())
        # Each term's modulus is at most peak·|kernel|; an error in its logarithm moves it by that share.
        # survives: An error as large as e^50 is as useless as any.
        moved = np.expm1(np.minimum(self.log_error, 50.0))
        # survives: How much is allowed for rounding is free, if it is some units more than is lost.
        error = scale * peak * float((moved * np.abs(self.kernel)).sum()) * 1.01
        return _Sum(value, error + peak * self.beyond / math.pi, self._alias(epsilon))

    def slope(self, epsilon: float) -> float:
        """−dδ/dε."""
        terms = np.exp(self.power - self.z * epsilon) * self.kernel * self.z
        # survives: A slope that is not above 0 is not met where there is a root.
        return max(self.step / math.pi * float(terms.real.sum()), 1e-300)


def _aliases(
    whole: FourierAccountant, tilt: float, epsilon: float, moment: float
) -> tuple[float, Callable[[float], float]]:
    """A period, and an upper bound of Σ e^(cmP)·δ(ε + mP) over m ≠ 0 as a function of ε.

    For m < 0, δ ≤ 1; for m > 0, δ(s) ≤ e^(K(c′) − c′s) at any c′ > c.
    """
    # δ is about this or more: the peak over its width.
    # survives: It only chooses the period, and any is valid.
    log_delta = moment - tilt * epsilon - math.log(tilt * (1 + tilt)) - 3

    def enough(c: float, high: float) -> float:
        # survives: It only chooses the period, and any is valid: aliases are bounded for the one
        # that is taken.
        return (high - c * epsilon + _ALIAS_EXPONENT - log_delta) / (c - tilt)

    # survives: Any other tilt that is larger gives a bound. It only chooses the other tilt, and any
    # that is larger gives a bound.
    far = min((1.08 * tilt, 1.3 * tilt), key=lambda c: enough(c, whole._derivatives(c)[0]))  # noqa: SLF001
    high = whole.moment(far)
    period = max((_ALIAS_EXPONENT - log_delta) / tilt, enough(far, high))

    def bound(epsilon: float) -> float:
        # survives: A bound as large as e^700 is as useless as any.
        power = min(700.0, high - far * epsilon - (far - tilt) * period)
        upper = math.exp(power) / -math.expm1((tilt - far) * period)
        return upper + math.exp(-tilt * period) / -math.expm1(-tilt * period)

    return period, bound


def _tail_bound(whole: FourierAccountant, decay_bound: DecayBound | None, start: float) -> float:
    """An upper bound of ∫ |e^(K(z) − K(c))|/t² dt from `start` on."""
    decay = whole._log_decay  # noqa: SLF001
    total, t = 0.0, start
    turn = decay_bound.turn if decay_bound is not None else start
    while t < turn:
        # survives: How long steps are is free: an upper sum is one.
        after = min(1.1 * t, turn)
        total += math.exp(decay(decay_bound, t)) * (1 / t - 1 / after)
        t = after
    # From the turn on one bound falls for good: in steps as long as it still matters.
    # survives: How many steps are made is free: what is beyond them is bounded, too.
    for _ in range(200):
        size = math.exp(decay(decay_bound, t))
        if size < math.exp(-_DECAY_TARGET):
            break
        # survives: How long steps are is free: an upper sum is one.
        total += size * (1 / t - 1 / (1.1 * t))
        # survives: How long steps are is free: an upper sum is one.
        t *= 1.1
    return total + math.exp(decay(decay_bound, t)) / t


def _root(contour: _Contour, start: float, delta: float) -> float:
    """The ε at which the sum is δ, by Newton on ln δ."""
    epsilon = start
    for _ in range(50):
        value = contour.at(epsilon).value
        if value <= 0:
            raise Uncertified
        move = value / contour.slope(epsilon) * math.log(value / delta)
        epsilon += max(-1.0, min(1.0, move))
        if abs(move) <= 1e-14 * abs(epsilon) + 1e-300:
            break
    return epsilon
