"""Losses with a closed form: one (ε, δ) mechanism beside Gaussian noise, in exact arithmetic.

Proof: docs/proofs/privacy-loss.md
"""

import math
import struct
import sys
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

from hubbub.errors import Unsupported
from hubbub.noise.enclosures import MAX_DELTA_BITS, exp, exp_neg, gaussian_delta, log
from hubbub.numbers import as_displayed, ceil_sqrt, round_up

__all__ = ["ClosedForm", "SubsampledClosedForm", "largest_mu", "least_double", "rough_log"]

# survives: How many bits are carried is free: an enclosure from one more or less still encloses.
_BITS = 128
_LARGE_EPSILON = 200
# survives: How much is taken off is free, if it is more than the bound above is off by, some 2^-100.
_ACCURACY_FACTOR = 1 + Fraction(1, 1 << 50)
"""The bound of δ is within this factor of δ itself."""


@dataclass(frozen=True)
class ClosedForm:
    """One pure ε mechanism, as randomized response, beside Gaussian noise of μ²."""

    epsilon: Fraction
    mu_squared: Fraction

    def delta_upper(self, epsilon: Fraction) -> Fraction:
        """δ at ε, rounded up.

        >>> float(ClosedForm(Fraction(0), Fraction(1)).delta_upper(Fraction(0)))
        0.3829249225480262
        """
        worst = _gaussian_delta_anywhere(epsilon - self.epsilon, self.mu_squared)
        if not self.epsilon:
            return worst
        best = _gaussian_delta_anywhere(epsilon + self.epsilon, self.mu_squared)
        often = Fraction(1 << _BITS, (1 << _BITS) + exp_neg(self.epsilon, _BITS)[0])
        return best + often * (worst - best)

    def delta_lower(self, epsilon: Fraction) -> Fraction:
        """δ at ε, rounded down."""
        return _round_down(self.delta_upper(epsilon))

    def epsilon_upper(self, delta: Fraction) -> float:
        """The least double ε with `delta_upper(ε)` ≤ δ, for δ > 0; infinite if there is none."""
        return _epsilon_upper(self, delta)

    def epsilon_lower(self, delta: Fraction) -> float:
        """A double ε below which δ surely does not hold."""
        epsilon = _epsilon_upper(self, delta * _ACCURACY_FACTOR)
        return epsilon if math.isinf(epsilon) else math.nextafter(epsilon, 0.0)


@dataclass(frozen=True)
class SubsampledClosedForm:
    """A mechanism with a closed form, run once on a Poisson sample.

    Removing the unit gives q·δ(ln(1 + (e^ε − 1)/q)), adding it c·δ(ln(q·e^ε/c)) with c = 1 − (1 − q)·e^ε.
    """

    base: "ClosedForm"
    sampling_rate: Fraction

    def delta_upper(self, epsilon: Fraction) -> Fraction:
        """δ at ε, rounded up.

        >>> gaussian = ClosedForm(Fraction(0), Fraction(1))
        >>> float(SubsampledClosedForm(gaussian, Fraction(1, 2)).delta_upper(Fraction(0)))
        0.1914624612740131
        """
        if epsilon > _LARGE_EPSILON:
            # e^ε is not written out: ln(1 + (e^ε − 1)/q) ≥ ε + ln(1 − e^−ε) − ln q; c < 0 but for q ≈ 1.
            # survives: e^-200 is less than 2^-288: any of these is enough.
            away = epsilon - Fraction(1, 1 << 256)
            far = self.sampling_rate * self.base.delta_upper(away + _log_below(1 / self.sampling_rate))
            # survives: Where 1 − q is not below e^-200, c is below 0; any bound above that is
            # enough.
            is_whole = (1 - self.sampling_rate) * (1 << 256) < 1
            return max(far, self.base.delta_upper(away - 1)) if is_whole else far
        low, _ = self._odds(epsilon)
        removed = self.sampling_rate * self.base.delta_upper(_log_below(1 + (low - 1) / self.sampling_rate))
        # Both factors at their largest: c falls with the odds, and so does δ.
        # survives: Removing a unit is never better than adding one, so this other bound is never
        # the larger; nothing shall rest on that.
        rest = 1 - (1 - self.sampling_rate) * low
        # survives: Of just 0 nothing is left.
        if rest <= 0:
            return removed
        return max(removed, rest * self.base.delta_upper(_log_below(self.sampling_rate * low / rest)))

    def delta_lower(self, epsilon: Fraction) -> Fraction:
        """δ at ε when the unit is removed, rounded down."""
        if epsilon > _LARGE_EPSILON:
            return self.sampling_rate * self.base.delta_lower(epsilon + _log_above(1 / self.sampling_rate))
        _, high = self._odds(epsilon)
        return self.sampling_rate * self.base.delta_lower(_log_above(1 + (high - 1) / self.sampling_rate))

    def epsilon_upper(self, delta: Fraction) -> float:
        """The least double ε with `delta_upper(ε)` ≤ δ, for δ > 0."""
        return _epsilon_upper_subsampled(self, delta)

    def epsilon_lower(self, delta: Fraction) -> float:
        """A double ε below which δ surely does not hold."""
        epsilon = _epsilon_upper_subsampled(self, delta * _ACCURACY_FACTOR * _ACCURACY_FACTOR)
        return epsilon if math.isinf(epsilon) else math.nextafter(epsilon, 0.0)

    @staticmethod
    def _odds(epsilon: Fraction) -> tuple[Fraction, Fraction]:
        """e^ε between two rationals, of which the lower is 1 or more."""
        # survives: How many bits are carried is free: an enclosure from one more or less still
        # encloses.
        bits = 256 + max(0, epsilon.denominator.bit_length() - epsilon.numerator.bit_length())
        low, high = exp(epsilon, bits)
        return max(Fraction(1), Fraction(low, 1 << bits)), Fraction(high, 1 << bits)


def _log_below(x: Fraction) -> Fraction:
    # survives: The two ends are some 2^-256 apart, far less than the slack of 2^-50 and a double's
    # rounding.
    return max(Fraction(0), Fraction(log(x, 256)[0], 1 << 256))


def _log_above(x: Fraction) -> Fraction:
    # survives: The two ends are some 2^-256 apart, far less than the slack of 2^-50 and a double's
    # rounding.
    return max(Fraction(0), Fraction(log(x, 256)[1], 1 << 256))


@lru_cache(maxsize=1024)
def _epsilon_upper_subsampled(loss: SubsampledClosedForm, delta: Fraction) -> float:
    # survives: Below 0, δ is larger: the search finds the least double instead, or 0 all the same.
    if loss.delta_upper(Fraction(0)) <= delta:
        return 0.0
    # e^ε = 1 + q·(e^ε' − 1) at δ/q.
    # survives: Where the search begins is free.
    inner = min(700.0, _epsilon_upper(loss.base, delta / loss.sampling_rate))
    # survives: Where the search begins is free.
    guess = math.log1p(float(loss.sampling_rate) * math.expm1(inner))
    # survives: Where the search begins is free.
    return least_double(
        lambda epsilon: loss.delta_upper(as_displayed(epsilon)), delta, Fraction(max(guess, 5e-324))
    )


def _round_down(above: Fraction) -> Fraction:
    # survives: From how little on it is said that nothing is sure is free, if it is more than the unit
    # that is lost.
    return Fraction(0) if above <= Fraction(2, 1 << MAX_DELTA_BITS) else above / _ACCURACY_FACTOR


def _gaussian_delta_anywhere(epsilon: Fraction, mu_squared: Fraction) -> Fraction:
    """Gaussian δ at any ε, rounded up; below zero it is 1 − e^ε·(1 − δ(−ε))."""
    beyond = gaussian_delta(abs(epsilon), mu_squared) if mu_squared else Fraction(0)
    # survives: At 0 both formulas are the same.
    if epsilon >= 0:
        return beyond
    low, high = exp_neg(-epsilon, _BITS)
    # 1 − e^−x ≤ x: closer than 128 bits where x is small.
    return min(-epsilon, 1 - Fraction(low, 1 << _BITS)) + Fraction(high, 1 << _BITS) * beyond


@lru_cache(maxsize=1024)
def _epsilon_upper(loss: ClosedForm, delta: Fraction) -> float:
    # survives: Below 0, δ is larger: the search finds the least double instead, or 0 all the same.
    if loss.delta_upper(Fraction(0)) <= delta:
        return 0.0
    mu = ceil_sqrt(loss.mu_squared)
    # About where the Gaussian tail is δ, moved by the pure ε.
    guess = loss.epsilon + mu * mu / 2 + mu * _tail_deviations(delta)
    return least_double(lambda epsilon: loss.delta_upper(as_displayed(epsilon)), delta, guess)


@lru_cache(maxsize=1024)
def largest_mu(epsilon: Fraction, delta: Fraction) -> Fraction:
    """The largest μ at which Gaussian noise is (ε, δ)-private, such that 1/μ is a double.

    >>> round(float(largest_mu(Fraction(1), Fraction(1, 10**6))), 4)
    0.2367

    Guarantee: noise of σ = Δ/μ is (ε, δ)-private, with all rounding on the safe side.
    Assumes: ε ≥ 0 and 0 < δ < 1.
    Proof: docs/proofs/privacy-loss.md
    """
    reach = _tail_deviations(delta)
    # About ε = μ²/2 + μ·reach; but where ε is tiny, δ ≤ μ/√(2π) alone decides.
    guess = max(ceil_sqrt(reach * reach + 2 * epsilon) - reach, delta * Fraction(5, 2))
    sigma = least_double(lambda sigma: gaussian_delta(epsilon, 1 / Fraction(sigma) ** 2), delta, 1 / guess)
    if math.isinf(sigma):
        raise Unsupported(
            "epsilon and delta are too small together",
            why="the noise would be wider than any double",
            fix="choose a larger {epsilon} or {delta}",
        )
    return 1 / Fraction(sigma)


def _tail_deviations(delta: Fraction) -> Fraction:
    """Roughly how many standard deviations out the tail is δ."""
    return Fraction(math.sqrt(-2 * rough_log(delta)))


def rough_log(x: Fraction) -> float:
    """The logarithm, roughly, also for x beyond doubles."""
    # survives: Where one formula takes over from the other is free: both are good there.
    if abs(x - 1) < Fraction(1, 2):
        return math.log1p(float(x - 1))
    return math.log(x.numerator) - math.log(x.denominator)


def least_double(curve: Callable[[float], Fraction], most: Fraction, guess: Fraction) -> float:
    """The least double x > 0 with curve(x) ≤ most, for a falling curve; infinite if there is none.

    The guess and the secants only save time: the result has been verified to hold, and the double below it
    not to.
    """
    curve = lru_cache(maxsize=None)(curve)
    start = follow_secants(curve, most, min(max(round_up(guess), 5e-324), sys.float_info.max))

    def holds(place: int) -> bool:
        return place >= _INFINITY or curve(_double_at(place)) <= most

    # survives: How fast steps grow is free.
    low, high, step = _index_of_double(start) - 1, _index_of_double(start), 2
    while low > 0 and holds(low):
        # survives: From before the first double the bisection comes to the same. How fast steps
        # grow is free.
        low, high, step = max(low - step, 0), low, 2 * step
    while not holds(high):
        # survives: How fast steps grow is free.
        low, high, step = high, high + step, 2 * step
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return _double_at(high)


def _index_of_double(x: float) -> int:
    """The index of x among the doubles from 0 on: its bits, read as an integer."""
    place: int = struct.unpack("<q", struct.pack("<d", x))[0]
    return place


def _double_at(place: int) -> float:
    x: float = struct.unpack("<d", struct.pack("<q", min(place, _INFINITY)))[0]
    return x


_INFINITY = _index_of_double(math.inf)


def follow_secants(curve: Callable[[float], Fraction], most: Fraction, start: float) -> float:
    """About where ln curve crosses ln most, if it is smooth; else wherever the secants lead."""
    left, right = start * 0.99, start
    below, above = curve(left) / most, curve(right) / most
    for _ in range(16):
        # Stop if the curve is flat or 0.
        rise = rough_log(above) - rough_log(below) if above else 0.0
        if not rise:
            break
        left, below, right = right, above, right - rough_log(above) * (right - left) / rise
        # survives: Just 0 is not met: the secants only save time.
        if not 0 < right < math.inf:
            return left
        above = curve(right) / most
    return right
