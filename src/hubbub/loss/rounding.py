"""Exact numbers made doubles on the safe side, and the few functions of them that parts need.

Proof: docs/proofs/parts.md, "Rounding"
"""

import math
from fractions import Fraction

from hubbub.loss.sampled import Uncertified
from hubbub.noise.real import exp, log
from hubbub.rational import ceil_sqrt

__all__ = ["above", "amplified", "below", "group_delta", "log_above", "root_inverse", "usable"]

_BITS = 128


def above(exact: Fraction) -> float:
    """A double that is not below."""
    near = _near(exact)
    return near if near == math.inf or Fraction(near) >= exact else math.nextafter(near, math.inf)


def below(exact: Fraction) -> float:
    """A double that is not above, for a number of 0 or more."""
    near = _near(exact)
    return near if near < math.inf and Fraction(near) <= exact else math.nextafter(near, 0.0)


def usable(number: float) -> float:
    """A number with all its digits; others are left to divergences."""
    if not 1e-290 < number < 1e290:
        raise Uncertified
    return number


def _near(exact: Fraction) -> float:
    try:
        return float(exact)
    except OverflowError:
        return math.inf


def root_inverse(mu_squared: Fraction, *, up: bool) -> float:
    """σ = 1/μ: for a pair that is no better (up) at most that, else at least."""
    root = ceil_sqrt(mu_squared)
    return below(1 / root) if up else above(root / mu_squared)


def amplified(epsilon: Fraction, rate: Fraction) -> Fraction:
    """ln(1 + rate·(e^ε − 1)), rounded up; of a large ε, ε itself."""
    if epsilon > 64:
        return epsilon
    high = Fraction(exp(epsilon, _BITS)[1], 1 << _BITS)
    return min(epsilon, log_above(1 + rate * (high - 1)))


def log_above(x: Fraction) -> Fraction:
    """The logarithm, rounded up."""
    return Fraction(log(x, _BITS)[1], 1 << _BITS)


_MOST_EPSILON = 5000
"""Beyond it e^ε is not written out; where it would be, δ is said to be 1."""


def group_delta(epsilon: Fraction, delta: Fraction, k: int) -> Fraction:
    """δ·(e^kε − 1)/(e^ε − 1) = δ·(1 + e^ε + … + e^(k−1)ε), rounded up."""
    if epsilon == 0 or delta == 0 or k == 1:
        return k * delta
    if k * epsilon > _MOST_EPSILON:
        return Fraction(1)
    # As many bits more as ε is small, for e^ε − 1 is as small.
    bits = 256 + max(0, epsilon.denominator.bit_length() - epsilon.numerator.bit_length())
    top = exp(k * epsilon, bits)[1] - (1 << bits)
    bottom = exp(epsilon, bits)[0] - (1 << bits)
    return delta * Fraction(top, bottom)
