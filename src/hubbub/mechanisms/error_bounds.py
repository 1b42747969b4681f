"""Error bounds of single draws: exact tails of the noise laws, and the least widths that cover them.

Proof: docs/proofs/accuracy.md
"""

import math
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache
from itertools import accumulate

from hubbub.noise.enclosures import Enclosure, divide, exp_neg, log, normal_tail
from hubbub.numbers import Number, parse_integer, parse_probability

__all__ = [
    "TailFunction",
    "discrete_laplace_tail",
    "half_width",
    "laplace_sum_tail",
    "rounded_gaussian_tail",
    "smallest_integer",
]

TailFunction = Callable[[int, int], Enclosure]
"""An enclosure of 2^bits·Pr[|X| > m], given m and bits."""


def discrete_laplace_tail(scale: Fraction, m: int, bits: int) -> Enclosure:
    """Return Pr[|X| > m] = 2q^(m+1)/(1+q) of the discrete Laplace law, with q = e^(−1/scale).

    >>> low, high = discrete_laplace_tail(Fraction(1), 0, 64)
    >>> round(high / 2**64, 3)
    0.538
    """
    q = exp_neg(1 / scale, bits)
    tail = exp_neg((m + 1) / scale, bits)
    return divide((2 * tail[0], 2 * tail[1]), ((1 << bits) + q[0], (1 << bits) + q[1]), bits)


def rounded_gaussian_tail(sigma: Fraction, m: int, bits: int) -> Enclosure:
    """Return Pr[|X| > m] = Pr[|σZ| ≥ m + ½] of the rounded Gaussian."""
    return normal_tail((2 * m + 1) / (2 * sigma), bits)


def laplace_sum_tail(scale: Fraction, terms: int, m: int, bits: int) -> Enclosure:
    """Return Pr[|X₁ + … + X_terms| > m] of independent discrete Laplace draws.

    With q = e^(−1/scale): 2q^(m+1)·Σ_i C(m+i, i)·(1−q)^i·(f_0 + … + f_(terms−1−i)), i below `terms`.

    >>> low, high = laplace_sum_tail(Fraction(1), 2, 4, 64)
    >>> round(high / 2**64, 4)
    0.0314
    """
    # The sum is at most q^−(m+1) and at most 2^(m + terms): it magnifies the rounding by that factor.
    work = bits + 64 + min(math.ceil(Fraction(3, 2) * (m + 1) / scale), m + terms) + _extra_bits(scale, terms)
    q, tail, one = exp_neg(1 / scale, work), exp_neg((m + 1) / scale, work), 1 << work
    sums = _coefficient_sums(scale, terms, bits)
    low = high = 0
    term = one, one
    for i in range(terms):
        low, high = low + term[0] * sums[-1 - i][0], high + term[1] * sums[-1 - i][1]
        up = (one - q[1]) * (m + i + 1), (one - q[0]) * (m + i + 1)
        term = term[0] * up[0] // (i + 1) >> work, (term[1] * up[1] // (i + 1) >> work) + 2
    shift = 2 * work + 64 - 1  # one bit less, because the tail is two-sided
    return low * tail[0] >> shift, (high * tail[1] >> shift) + 1


@lru_cache(maxsize=64)
def _coefficient_sums(scale: Fraction, terms: int, bits: int) -> tuple[Enclosure, ...]:
    """Return enclosures of 2^(bits+64)·(f_0 + … + f_k) for all k below `terms`.

    f_k is the coefficient of v^k in ((1 − (1−q)v)/(1 + q − v))^terms.
    """
    # An enclosure widens by less than two bits per step.
    work = bits + 64 + 3 * terms + _extra_bits(scale, terms)
    one = 1 << work
    q = exp_neg(1 / scale, work)
    square = q[0] * q[0] >> work, (q[1] * q[1] >> work) + 1
    first = (one << work * terms) // (one + q[1]) ** terms, -(-(one << work * terms) // (one + q[0]) ** terms)
    coefficients, last = [first], (0, 0)
    for k in range(terms - 1):
        here, up = coefficients[-1], [(terms - k) * end + 2 * k * one for end in square]
        low = here[0] * up[0] - last[1] * (one - q[0]) * (k - 1)
        high = here[1] * up[1] - last[0] * (one - q[1]) * (k - 1)
        coefficients.append((low // ((one + q[1]) * (k + 1)), -(-high // ((one + q[0]) * (k + 1)))))
        last = here
    sums = accumulate(coefficients, lambda one, two: (one[0] + two[0], one[1] + two[1]))
    drop = work - bits - 64
    return tuple((low >> drop, (high >> drop) + 1) for low, high in sums)


def _extra_bits(scale: Fraction, terms: int) -> int:
    """Return the bits that 1 − q may lack, plus those that `terms` roundings may lose."""
    return math.ceil(scale).bit_length() + terms.bit_length()


def half_width(tail: TailFunction, confidence: Number, coordinates: int) -> int:
    """Return the least m such that `coordinates` independent draws all lie within ±m with this confidence.

    That is the least m with (1 − Pr[|X| > m])^coordinates ≥ confidence, decided by enclosures.

    Guarantee: all draws lie within ±m with at least this confidence.
    Assumes: `tail` encloses the tail of the law.
    Proof: docs/proofs/accuracy.md
    """
    wanted = parse_probability(confidence, "confidence")
    count = parse_integer(coordinates, "coordinates")
    rare = (1 - wanted) / count
    # survives: How many bits are carried is free: what is rounded outward from more or fewer is still a
    # bound.
    bits = 128 + rare.denominator.bit_length() - rare.numerator.bit_length()
    # One draw may lie outside with probability 1 − confidence^(1/coordinates), rounded down.
    inside = exp_neg(Fraction(-log(wanted, bits)[1], count << bits), bits)[1]
    allowed = (1 << bits) - inside
    # survives: They differ by one unit of 2^-128 of what may be outside.
    return smallest_integer(lambda m: tail(m, bits)[1] <= allowed)


def smallest_integer(holds: Callable[[int], bool]) -> int:
    """Return the least m ≥ 0 from which on `holds` is true, by doubling and bisection.

    >>> smallest_integer(lambda m: m * m >= 50)
    8
    """
    if holds(0):
        return 0
    high = 1
    while not holds(high):
        high *= 2
    # survives: Any smaller one does not hold either, and the bisection ends at the same.
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high
