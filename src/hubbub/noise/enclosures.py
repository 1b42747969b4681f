"""Real numbers enclosed by integers, to any requested precision.

A real x is known through a function `bits → (lower, upper)` with lower ≤ 2^bits·x ≤ upper, two
integers a few units apart. Every function here rounds outward, so that a comparison decided by
such a pair is decided for the real number itself: nothing in `noise` depends on the accuracy of floats.
"""

import math
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache

from hubbub.numbers import ceil_sqrt

__all__ = [
    "MAX_DELTA_BITS",
    "Enclosure",
    "Real",
    "divide",
    "enclose_fraction",
    "exp",
    "exp_neg",
    "gaussian_delta",
    "log",
    "mills_ratio",
    "normal_central",
    "normal_tail",
    "root_two_over_pi",
]

Enclosure = tuple[int, int]
Real = Callable[[int], Enclosure]


def enclose_fraction(x: Fraction, bits: int) -> Enclosure:
    """2^bits·x between its floor and its ceiling.

    >>> enclose_fraction(Fraction(1, 3), 4)
    (5, 6)
    """
    top = x.numerator << bits
    return top // x.denominator, -(-top // x.denominator)


def divide(top: Enclosure, bottom: Enclosure, bits: int) -> Enclosure:
    """The quotient of two positive reals that are enclosed at the same precision, at `bits`."""
    return (top[0] << bits) // bottom[1], -(-(top[1] << bits) // bottom[0])


def exp(x: Fraction, bits: int) -> Enclosure:
    """2^bits·e^x for any rational x; relative accuracy of `bits` bits for x ≥ 0.

    >>> low, high = exp(Fraction(1), 32)
    >>> low / 2**32 <= 2.718281828459045 <= high / 2**32
    True
    """
    # survives: e^0 is 1 by either way.
    if x < 0:
        return exp_neg(-x, bits)
    # Halve until x < 2^-6, sum the series, square back.
    # survives: One halving more is as good. One halving more or less is as good: 2n + 4 units are
    # enough for x < 2^-5 too.
    halvings = math.floor(x).bit_length() + 6
    # survives: How many bits are carried is free: an enclosure from more or fewer still encloses.
    work = bits + halvings + bits.bit_length() + 16
    low = high = 0
    reduced = (x.numerator << work) // (x.denominator << halvings)
    term, n = 1 << work, 0
    while term:
        low += term
        n += 1
        term = (term * reduced >> work) // n
    # Each term lost < 2 units, the dropped rest and the floor of `reduced` < 4 in all.
    # survives: An upper end that is rounded up by more is still an upper end. 2n + 3 units are still
    # more than the 1.05n that the sum may lack; more are only wider.
    high = low + 2 * n + 4
    for _ in range(halvings):
        low = low * low >> work
        # survives: The sum's upper end has 4 units to spare, which each squaring doubles before it
        # may take 2. The sum's upper end has 4 units to spare, which each squaring doubles before
        # it may take 1.
        high = (high * high >> work) + 1
    # survives: An upper end that is rounded up by more is still an upper end.
    return low >> work - bits, (high >> work - bits) + 1


def exp_neg(x: Fraction, bits: int) -> Enclosure:
    """2^bits·e^−x for rational x ≥ 0.

    >>> low, high = exp_neg(Fraction(1, 2), 64)
    >>> high - low <= 2 and low / 2**64 <= 0.6065306597126334 <= high / 2**64
    True
    """
    if x == 0:
        return 1 << bits, 1 << bits
    # survives: Where it gives up is free, as long as less than a unit is left.
    if 10 * x >= 7 * (bits + 2):  # ln 2 < 0.7, so e^-x < 2^-(bits+2)
        return 0, 1
    # survives: How many bits are carried is free: an enclosure from more or fewer still encloses.
    work = bits + 8
    low, high = exp(x, work)
    return (1 << work + bits) // high, -(-(1 << work + bits) // low)


def log(x: Fraction, bits: int) -> Enclosure:
    """2^bits·ln x for rational x > 0.

    >>> low, high = log(Fraction(3), 64)
    >>> low / 2**64 <= 1.0986122886681098 <= high / 2**64
    True
    """
    power = x.numerator.bit_length() - x.denominator.bit_length()
    # survives: Times or over 2^0 is the same.
    mantissa = x / 2**power if power >= 0 else x * 2**-power  # between ½ and 2
    # survives: How many bits are carried is free: an enclosure from more or fewer still encloses.
    work = bits + abs(power).bit_length() + 8
    low, high = _twice_atanh((mantissa - 1) / (mantissa + 1), work)
    two_low, two_high = _twice_atanh(Fraction(1, 3), work)
    low += min(power * two_low, power * two_high)
    high += max(power * two_low, power * two_high)
    return low >> work - bits, (high >> work - bits) + 1


def _twice_atanh(z: Fraction, bits: int) -> Enclosure:
    """2^bits·ln((1+z)/(1−z)) for |z| ≤ 1/3, by its series."""
    if z < 0:
        low, high = _twice_atanh(-z, bits)
        return -high, -low
    # survives: How many bits are carried is free: an enclosure from more or fewer still encloses.
    work = bits + bits.bit_length() + 8
    power = enclose_fraction(z, work)[0]
    square = enclose_fraction(z * z, work)[0]
    # survives: A lower end that is lower is still a lower end, and the upper one has units to spare.
    low, n = 0, 1
    while power:
        low += power // n
        power = power * square >> work
        n += 2
    # Two floors lost per term, each < 2 units with what it drags along; the rest is < 2.
    # survives: A term lacks less than 1.5 units and n is twice their number: n + 4 is enough, and more
    # is only wider. A term lacks less than 1.5 units and n is twice their number: 2n + 3 is enough, and
    # more is only wider.
    high = low + 2 * n + 4
    # survives: An upper end that is rounded up by more is still an upper end.
    return 2 * low >> work - bits, (2 * high >> work - bits) + 1


@lru_cache(maxsize=64)
def root_two_over_pi(bits: int) -> Enclosure:
    """2^bits·√(2/π), π by Machin's formula 16·atan(1/5) − 4·atan(1/239)."""
    # survives: How many bits are carried is free: an enclosure from more or fewer still encloses.
    work = bits + 32
    low5, high5 = _atan_inverse(5, work)
    low239, high239 = _atan_inverse(239, work)
    pi_low, pi_high = 16 * low5 - 4 * high239, 16 * high5 - 4 * low239
    low = math.isqrt((2 << work + 2 * work) // pi_high)
    # survives: The floor of a floor: the unit that is added in the end is enough, and more is only
    # wider.
    high = math.isqrt(-(-(2 << work + 2 * work) // pi_low)) + 1
    # survives: An upper end that is rounded up by more is still an upper end.
    return low >> work - bits, (high >> work - bits) + 1


def _atan_inverse(m: int, bits: int) -> Enclosure:
    """2^bits·atan(1/m) by its alternating series, every floor counted."""
    work = bits + 16
    power = (1 << work) // m
    # survives: A term is off by less than 1.4 units, and those of one sign are half: the slack covers
    # one unit more.
    total, n = 0, 0
    while power:
        total += (-1) ** n * (power // (2 * n + 1))
        power //= m * m
        n += 1
    # survives: A term is off by less than 1.4 units, and those of one sign are half: n + 2 is enough,
    # and more is only wider.
    slack = 2 * n + 2
    return total - slack >> 16, (total + slack >> 16) + 1


def normal_central(x: Fraction, bits: int) -> Enclosure:
    """2^bits·Pr[|Z| < x] of a standard normal Z, for rational x ≥ 0.

    √(2/π)·e^(−x²/2)·Σ x^(2n+1)/(2n+1)!!: every term is positive, so nothing cancels.

    >>> low, high = normal_central(Fraction(1), 64)
    >>> high - low <= 4 and low / 2**64 <= 0.6826894921370859 <= high / 2**64
    True
    """
    if x == 0:
        return 0, 0
    square = x * x
    # survives: Where it gives up is free, as long as less than a unit is left.
    if 5 * square >= 7 * (bits + 2):  # Pr[|Z| ≥ x] ≤ e^(−x²/2) < 2^-(bits+2)
        return (1 << bits) - 1, 1 << bits
    # The sum grows to about e^(x²/2) ≤ 2^(0.73·x²): as many bits more are carried.
    # survives: How many bits are carried is free: an enclosure from more or fewer still encloses.
    carried = bits + math.ceil(square * 73 / 100) + 12
    # survives: How many bits are carried is free: an enclosure from more or fewer still encloses.
    work = carried + 16
    square_low, square_high = enclose_fraction(square, work)
    low, high = enclose_fraction(x, work)
    sum_low = sum_high = n = 0
    while True:
        sum_low += low
        sum_high += high
        odd = 2 * n + 3
        # From here each term is below half its forerunner, so the rest is below the last term.
        # survives: When the sum stops is free: the rest is below the last term, which is added once
        # more.
        if high <= 2 and 2 * square < odd:
            break
        low = (low * square_low >> work) // odd
        high = -(-(high * square_high) // (odd << work))
        n += 1
    sum_high += high
    root = root_two_over_pi(carried)
    bell = exp_neg(square / 2, carried)
    total = 2 * carried + work - bits
    return sum_low * root[0] * bell[0] >> total, (sum_high * root[1] * bell[1] >> total) + 1


# The normal law's tail, to any relative accuracy, and the privacy curve that is made of it.
#
# Far out, Pr[Z > x] = φ(x)·R(x) with Mills' ratio R. The continued fraction of R encloses it between
# rationals. So the tail costs a few hundred divisions however small it is.
#
# Proved in docs/proofs/privacy-loss.md

MAX_DELTA_BITS = 9000
"""A δ smaller than 2^-9000 is said to be 2^-9000: no δ that is given as a parameter is as small."""

_MAX_BITS = 1 << 14
_MILLS_FROM = 4
"""From here on the continued fraction takes over from the series."""

# 1/√(2π), to one part in 10^40.
_DENSITY = Fraction(3989422804014326779399460599343818684758, 10**40)
_DENSITY_ABOVE = _DENSITY + Fraction(1, 10**40)


def mills_ratio(x: Fraction, bits: int) -> Enclosure:
    """2^bits·R(x) of Mills' ratio R(x) = Pr[Z > x]/φ(x), for x > 0; close from about x = 1 on.

    R(x) = 1/(x + 1/(x + 2/(x + 3/(x + …)))), and what stands behind n/ lies between x and x + (n+1)/x.

    >>> low, high = mills_ratio(Fraction(4), 64)
    >>> high - low <= 2 and low / 2**64 <= 0.23665238291356067 <= high / 2**64
    True
    """
    # survives: How many spare bits are carried is free: an enclosure from one more or less still
    # encloses.
    work = bits + 16
    one = 1 << 2 * work
    x_low, x_high = enclose_fraction(x, work)
    # A step shrinks the enclosure by 1.4 bits or more while n ≤ x², and n steps by e^(2x√n) in the end.
    # survives: From a step deeper or less deep the enclosure is narrower or wider, by less than is
    # kept.
    depth = 2 + min(int(x * x), work) + int((Fraction(35, 100) * work / x) ** 2)
    # survives: What the fraction starts from is forgotten at this depth, by more bits than are kept.
    low, high = x_low, x_high - (-depth * one // x_low)
    # survives: What the fraction starts from is forgotten at this depth, by more bits than are kept.
    for n in range(depth - 1, 0, -1):
        low, high = x_low + n * one // high, x_high - (-n * one // low)
    return (1 << work + bits) // high, -(-(1 << work + bits) // low)


def normal_tail(x: Fraction, bits: int) -> Enclosure:
    """2^bits·Pr[|Z| > x] of a standard normal Z, for rational x ≥ 0.

    >>> low, high = normal_tail(Fraction(5), 64)
    >>> low / 2**64 <= 5.733031437583878e-07 <= high / 2**64
    True
    """
    if x < _MILLS_FROM:
        low, high = normal_central(x, bits)
        return (1 << bits) - high, (1 << bits) - low
    low, high = _density_times(x, mills_ratio(x, bits), bits)
    return 2 * low, 2 * high


def gaussian_delta(epsilon: Fraction, mu_squared: Fraction) -> Fraction:
    """Pr[Z > a] − e^ε·Pr[Z > b] with a, b = ε/μ ∓ μ/2, rounded up to within 2^-60 of itself.

    For ε ≥ 0 and μ² > 0. As e^ε·φ(b) = φ(a), it is φ(a)·(R(a) − R(b)) too: nothing underflows.

    Guarantee: never below the true value, and above it by φ(a)·2^-16384 or more (by 2^-9001 where 2^-9000
        is said).
    Proof: docs/proofs/privacy-loss.md
    """
    mu = ceil_sqrt(mu_squared)  # δ rises with μ
    near, far = epsilon / mu - mu / 2, epsilon / mu + mu / 2
    # Pr[Z > a] ≤ e^(−a²/2)/2, and ln 2 < 0.7.
    # survives: Between −1 and 1 the square is not as large as is asked next. 12600 is the square of no
    # rational number.
    if near > 0 and 5 * near * near >= 7 * MAX_DELTA_BITS:
        return Fraction(1, 1 << MAX_DELTA_BITS)
    # The two terms are about μ apart, so that many bits cancel.
    bits = 128 + max(0, mu.denominator.bit_length() - mu.numerator.bit_length())
    while True:
        unit = Fraction(1)
        if near >= _MILLS_FROM:
            first, second = mills_ratio(near, bits), mills_ratio(far, bits)
            unit = _DENSITY_ABOVE * Fraction(1 << bits, exp(near * near / 2, bits)[0])
        elif far >= 2 * _MILLS_FROM:
            first, second = _above(near, bits), _density_times(near, mills_ratio(far, bits), bits)
        else:
            first, tail, factor = _above(near, bits), _above(far, bits), exp(epsilon, bits)
            # survives: The lower end of the difference only says when to stop; what is given is
            # the upper end.
            second = tail[0] * factor[0] >> bits, (tail[1] * factor[1] >> bits) + 1
        low, high = first[0] - second[1], first[1] - second[0]
        # survives: How close is close enough is free by a unit.
        if high - low <= high >> 60 or bits >= _MAX_BITS:
            # One unit more than rounding needs: it covers vectors' draws beyond ±2^62.
            # survives: An upper end that is rounded up by one unit more is still an upper end.
            return unit * Fraction(high + 1, 1 << bits)
        bits *= 2


def _above(x: Fraction, bits: int) -> Enclosure:
    """2^bits·Pr[Z > x]."""
    one = 1 << bits
    low, high = normal_central(abs(x), bits)
    # survives: At 0 both are a half.
    if x > 0:
        # survives: An upper end that is rounded up by one unit more is still an upper end.
        return one - high >> 1, (one - low >> 1) + 1
    # survives: An upper end that is rounded up by one unit more is still an upper end.
    return one + low >> 1, (one + high >> 1) + 1


def _density_times(x: Fraction, factor: Enclosure, bits: int) -> Enclosure:
    """2^bits·φ(x)·factor."""
    bell = exp_neg(x * x / 2, bits)
    low, high = bell[0] * factor[0] * _DENSITY, bell[1] * factor[1] * _DENSITY_ABOVE
    # survives: An upper end that is rounded up by one unit more is still an upper end.
    return math.floor(low) >> bits, (math.floor(high) >> bits) + 1
