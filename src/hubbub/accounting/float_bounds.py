"""Doubles on the safe side of exact numbers, and functions of them that events and pairs need.

Proof: docs/proofs/events.md, "Rounding"
"""

import math
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from hubbub.noise.enclosures import exp, log
from hubbub.numbers import ceil_sqrt

__all__ = [
    "Uncertified",
    "amplified_epsilon",
    "float_above",
    "float_below",
    "group_delta",
    "inverse_log_mixture",
    "inverse_sqrt",
    "log1p",
    "log_mixture",
    "log_upper",
    "require_normal_float",
]

Complexes = NDArray[np.complex128]
Doubles = NDArray[np.float64]

# survives: Where one formula takes over from the other is free: both are good there.
_MAX_EXPONENT = 700.0
_TINY = 1e-300


class Uncertified(Exception):  # noqa: N818 - a signal between engines, not an error for people
    """A bound cannot be certified: another accountant must answer."""


def log1p(x: Complexes) -> Complexes:
    """ln(1 + x) of complex x, accurate relatively also where x is small: numpy's own is not.

    >>> complex(log1p(np.array([1e-20 + 1e-30j]))[0])
    (1e-20+1e-30j)
    """
    real, imaginary = x.real, x.imag
    small = np.abs(x) < 0.5
    # Of 0, which rounding may give, the logarithm is finite: an infinite one is no number in sums.
    large = np.log(np.maximum(np.abs(1 + x), _TINY))
    # survives: What stands where the other formula is taken is free.
    size = np.where(small, np.log1p(np.where(small, real * (2 + real) + imaginary**2, 0.0)) / 2, large)
    out: Complexes = size + 1j * np.arctan2(imaginary, 1 + real)
    return out


def log_mixture(loss: Doubles, rate: float | Doubles) -> Doubles:
    """The loss ln(1 − q + q·e^ℓ) of a mixture, accurate for small and large ℓ; q may differ by row.

    >>> log_mixture(np.array([0.0, 1000.0]), 0.5).round(3).tolist()
    [0.0, 999.307]
    """
    if np.ndim(rate) == 0 and rate == 1:
        return loss.copy()
    moved = rate * np.expm1(np.minimum(loss, _MAX_EXPONENT))
    with np.errstate(divide="ignore", over="ignore", under="ignore"):
        out = np.log1p(np.maximum(moved, -0.75))
        if np.min(moved, initial=0.0) < -0.5:
            # 1 − q is exact where it matters: this is only where q > ½.
            out = np.where(
                moved < -0.5, np.log((1 - rate) + rate * np.exp(np.minimum(loss, _MAX_EXPONENT))), out
            )
        if np.max(loss, initial=0.0) > _MAX_EXPONENT:
            far = loss + np.log(rate) + np.log1p((1 - rate) / rate * np.exp(-np.maximum(loss, _MAX_EXPONENT)))
            out = np.where(loss > _MAX_EXPONENT, far, out)
    return np.asarray(out)


def inverse_log_mixture(ratio: Doubles, rate: float) -> Doubles:
    """The ℓ with ln(1 − q + q·e^ℓ) = ratio; −∞ if there is none.

    >>> inverse_log_mixture(log_mixture(np.array([-3.0, 0.5, 40.0]), 0.1), 0.1).round(9).tolist()
    [-3.0, 0.5, 40.0]
    """
    if rate == 1:
        return ratio.copy()
    bottom = math.log1p(-rate)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        high = ratio - math.log(rate) + np.log1p(-(1 - rate) * np.exp(-np.maximum(ratio, 1.0)))
        middle = np.log1p(np.maximum(np.expm1(np.clip(ratio, -0.5, 1.0)) / rate, -1.0))
        # Close to the bottom, from there.
        low = math.log((1 - rate) / rate) + np.log(np.expm1(np.clip(ratio - bottom, 0.0, _MAX_EXPONENT)))
    return np.asarray(np.where(ratio > 1, high, np.where(ratio >= -0.5, middle, low)))


# survives: How many bits are carried is free: an enclosure from one more or less still encloses.
_BITS = 128


def float_above(exact: Fraction) -> float:
    """The nearest double that is not below."""
    near = _near(exact)
    return near if near == math.inf or Fraction(near) >= exact else math.nextafter(near, math.inf)


def float_below(exact: Fraction) -> float:
    """The nearest double that is not above, for a number of 0 or more."""
    near = _near(exact)
    return near if near < math.inf and Fraction(near) <= exact else math.nextafter(near, 0.0)


def require_normal_float(number: float) -> float:
    """The number, if it is far from underflow and overflow; else `Uncertified`."""
    # survives: One more or less is the same double, or a limit that is free.
    if not 1e-290 < number < 1e290:
        raise Uncertified
    return number


def _near(exact: Fraction) -> float:
    try:
        return float(exact)
    except OverflowError:
        return math.inf


def inverse_sqrt(mu_squared: Fraction, *, upper: bool) -> float:
    """σ = 1/μ, rounded down for a pair that dominates (upper), else rounded up."""
    root = ceil_sqrt(mu_squared)
    return float_below(1 / root) if upper else float_above(root / mu_squared)


def amplified_epsilon(epsilon: Fraction, rate: Fraction) -> Fraction:
    """Amplification by subsampling: ln(1 + rate·(e^ε − 1)), rounded up; for a large ε, ε itself."""
    if epsilon > 64:
        return epsilon
    high = Fraction(exp(epsilon, _BITS)[1], 1 << _BITS)
    return min(epsilon, log_upper(1 + rate * (high - 1)))


def log_upper(x: Fraction) -> Fraction:
    """The logarithm, rounded up."""
    return Fraction(log(x, _BITS)[1], 1 << _BITS)


_MAX_EPSILON = 5000
"""Beyond it e^ε is not computed, and δ of a group is taken to be 1."""


def group_delta(epsilon: Fraction, delta: Fraction, k: int) -> Fraction:
    """δ·(e^kε − 1)/(e^ε − 1) = δ·(1 + e^ε + … + e^(k−1)ε), rounded up."""
    if epsilon == 0 or delta == 0 or k == 1:
        return k * delta
    if k * epsilon > _MAX_EPSILON:
        return Fraction(1)
    # As many bits more as ε is small, for e^ε − 1 is as small.
    # survives: How many bits are carried is free: an enclosure from one more or less still encloses.
    bits = 256 + max(0, epsilon.denominator.bit_length() - epsilon.numerator.bit_length())
    top = exp(k * epsilon, bits)[1] - (1 << bits)
    bottom = exp(epsilon, bits)[0] - (1 << bits)
    return delta * Fraction(top, bottom)
