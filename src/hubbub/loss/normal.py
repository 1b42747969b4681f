"""The normal law's tail, to any relative accuracy, and the privacy curve that is made of it.

Far out, Pr[Z > x] = φ(x)·R(x) with Mills' ratio R, whose continued fraction encloses it between
rationals. So the tail costs a few hundred divisions however small it is.

Proof: docs/proofs/loss.md
"""

import math
from fractions import Fraction

from hubbub.noise.real import Enclosure, central, exp, exp_neg, ratio
from hubbub.rational import ceil_sqrt

__all__ = ["LEAST_BITS", "gaussian_delta", "mills", "outside"]

LEAST_BITS = 9000
"""A δ smaller than 2^-9000 is said to be 2^-9000: no δ that is given as a parameter is as small."""

_MOST_BITS = 1 << 14
_FAR = 4
"""From here on the continued fraction takes over from the series."""

# 1/√(2π), to one part in 10^40.
_DENSITY = Fraction(3989422804014326779399460599343818684758, 10**40)
_DENSITY_ABOVE = _DENSITY + Fraction(1, 10**40)


def mills(x: Fraction, bits: int) -> Enclosure:
    """2^bits·R(x) of Mills' ratio R(x) = Pr[Z > x]/φ(x), for x > 0; close from about x = 1 on.

    R(x) = 1/(x + 1/(x + 2/(x + 3/(x + …)))), and what stands behind n/ lies between x and x + (n+1)/x.

    >>> low, high = mills(Fraction(4), 64)
    >>> high - low <= 2 and low / 2**64 <= 0.23665238291356067 <= high / 2**64
    True
    """
    work = bits + 16
    one = 1 << 2 * work
    x_low, x_high = ratio(x, work)
    # A step shrinks the enclosure by 1.4 bits or more while n ≤ x², and n steps by e^(2x√n) in the end.
    depth = 2 + min(int(x * x), work) + int((Fraction(35, 100) * work / x) ** 2)
    low, high = x_low, x_high - (-depth * one // x_low)
    for n in range(depth - 1, 0, -1):
        low, high = x_low + n * one // high, x_high - (-n * one // low)
    return (1 << work + bits) // high, -(-(1 << work + bits) // low)


def outside(x: Fraction, bits: int) -> Enclosure:
    """2^bits·Pr[|Z| > x] of a standard normal Z, for rational x ≥ 0.

    >>> low, high = outside(Fraction(5), 64)
    >>> low / 2**64 <= 5.733031437583878e-07 <= high / 2**64
    True
    """
    if x < _FAR:
        low, high = central(x, bits)
        return (1 << bits) - high, (1 << bits) - low
    low, high = _density_times(x, mills(x, bits), bits)
    return 2 * low, 2 * high


def gaussian_delta(epsilon: Fraction, mu_squared: Fraction) -> Fraction:
    """Pr[Z > a] − e^ε·Pr[Z > b] with a, b = ε/μ ∓ μ/2, rounded up to within 2^-60 of itself.

    For ε ≥ 0 and μ² > 0. As e^ε·φ(b) = φ(a), it is φ(a)·(R(a) − R(b)) too: nothing underflows.

    Guarantee: never below the true value, and above it by φ(a)·2^-16384 or more (by 2^-9001 where 2^-9000
        is said).
    Proof: docs/proofs/loss.md
    """
    mu = ceil_sqrt(mu_squared)  # δ rises with μ
    near, far = epsilon / mu - mu / 2, epsilon / mu + mu / 2
    # Pr[Z > a] ≤ e^(−a²/2)/2, and ln 2 < 0.7.
    if near > 0 and 5 * near * near >= 7 * LEAST_BITS:
        return Fraction(1, 1 << LEAST_BITS)
    # The two terms are about μ apart, so that many bits cancel.
    bits = 128 + max(0, mu.denominator.bit_length() - mu.numerator.bit_length())
    while True:
        unit = Fraction(1)
        if near >= _FAR:
            first, second = mills(near, bits), mills(far, bits)
            unit = _DENSITY_ABOVE * Fraction(1 << bits, exp(near * near / 2, bits)[0])
        elif far >= 2 * _FAR:
            first, second = _above(near, bits), _density_times(near, mills(far, bits), bits)
        else:
            first, tail, factor = _above(near, bits), _above(far, bits), exp(epsilon, bits)
            second = tail[0] * factor[0] >> bits, (tail[1] * factor[1] >> bits) + 1
        low, high = first[0] - second[1], first[1] - second[0]
        if high - low <= high >> 60 or bits >= _MOST_BITS:
            # One unit more than rounding needs: it covers vectors' draws beyond ±2^62.
            return unit * Fraction(high + 1, 1 << bits)
        bits *= 2


def _above(x: Fraction, bits: int) -> Enclosure:
    """2^bits·Pr[Z > x]."""
    one = 1 << bits
    low, high = central(abs(x), bits)
    if x > 0:
        return one - high >> 1, (one - low >> 1) + 1
    return one + low >> 1, (one + high >> 1) + 1


def _density_times(x: Fraction, factor: Enclosure, bits: int) -> Enclosure:
    """2^bits·φ(x)·factor."""
    bell = exp_neg(x * x / 2, bits)
    low, high = bell[0] * factor[0] * _DENSITY, bell[1] * factor[1] * _DENSITY_ABOVE
    return math.floor(low) >> bits, (math.floor(high) >> bits) + 1
