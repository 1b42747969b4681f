"""Error bounds of single draws: exact tails and moments of the noise laws, and the least covering widths.

Proof: docs/proofs/accuracy.md
"""

import math
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache
from itertools import accumulate

from hubbub.noise.enclosures import Enclosure, divide, exp_neg, log, normal_tail, root_two_over_pi
from hubbub.numbers import Number, ceil_sqrt, parse_integer, parse_probability

__all__ = [
    "Moment",
    "TailFunction",
    "discrete_laplace_mean_size",
    "discrete_laplace_tail",
    "discrete_laplace_variance",
    "half_width",
    "laplace_sum_tail",
    "rounded_gaussian_mean_size",
    "rounded_gaussian_tail",
    "rounded_gaussian_variance",
    "smallest_integer",
]

TailFunction = Callable[[int, int], Enclosure]
"""An enclosure of 2^bits·Pr[|X| > m], given m and bits."""

Moment = tuple[Fraction, Fraction]
"""A lower and an upper bound of a moment: of E[X²], or of E|X|."""

_BERNOULLI = tuple(
    Fraction(*number) for number in ((1, 6), (-1, 30), (1, 42), (-1, 30), (5, 66), (-691, 2730))
)
"""B₂, B₄, …, B₁₂."""
_MAX_ZERO_BITS = 1200
"""A moment below 2^-1200 is as good as 0: the least double is 2^-1074."""


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
    level = parse_probability(confidence, "confidence")
    count = parse_integer(coordinates, "coordinates")
    rare = (1 - level) / count
    # survives: How many bits are carried is free: what is rounded outward from more or fewer is still a
    # bound.
    bits = 128 + rare.denominator.bit_length() - rare.numerator.bit_length()
    # One draw may lie outside with probability 1 − confidence^(1/coordinates), rounded down.
    inside = exp_neg(Fraction(-log(level, bits)[1], count << bits), bits)[1]
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


# Moments of single draws: enclosed to about 80 bits, but for laws that are 0 with all but a tiny probability.


def discrete_laplace_variance(scale: Fraction) -> Moment:
    """Return bounds of E[X²] = 2q/(1−q)² of the discrete Laplace law, with q = e^(−1/scale).

    >>> low, high = discrete_laplace_variance(Fraction(1))
    >>> round(float(low), 6), round(float(high), 6)
    (1.841347, 1.841347)

    Proof: docs/proofs/accuracy.md
    """
    low, high = _laplace_ratio(scale)
    return 2 * low / (1 - low) ** 2, 2 * high / (1 - high) ** 2


def discrete_laplace_mean_size(scale: Fraction) -> Moment:
    """Return bounds of E|X| = 2q/(1−q²) of the discrete Laplace law, with q = e^(−1/scale)."""
    low, high = _laplace_ratio(scale)
    return 2 * low / (1 - low * low), 2 * high / (1 - high * high)


def _laplace_ratio(scale: Fraction) -> Moment:
    """Return bounds of q that are close relative to q and to 1 − q."""
    # survives: How many bits are carried is free: an enclosure from more or fewer still encloses.
    bits = 96 + math.ceil(scale).bit_length() + _small_scale_bits(1 / scale)
    low, high = exp_neg(1 / scale, bits)
    return Fraction(low, 1 << bits), Fraction(high, 1 << bits)


def rounded_gaussian_variance(sigma: Fraction) -> Moment:
    """Return bounds of E[X²] of the rounded Gaussian: just below σ² + 1/12 where σ is not small.

    >>> low, high = rounded_gaussian_variance(Fraction(2))
    >>> round(float(low - 4), 9), round(float(high - 4), 9)
    (0.083333333, 0.083333333)

    Proof: docs/proofs/accuracy.md
    """
    if sigma < 1:
        return _sum_of_tails(sigma, 16, moment=2)
    # σ² + 1/12 − t₁ + t₂ − … with t_j = e^(−2π²σ²j²)·(4σ² + 1/(π²j²)): the terms alternate and fall.
    root = root_two_over_pi(128)
    pi_squared = Fraction(4 << 512, root[1] ** 4), Fraction(4 << 512, root[0] ** 4)
    square = sigma * sigma

    def term(j: int, far: int) -> Fraction:
        """Return t_j rounded down (far = 1) or up (far = 0)."""
        # e^−x = 0 to 192 bits from x = 2^10 on: the exponent need not have more digits than σ.
        power = exp_neg(2 * pi_squared[far] * square * j * j, 192)[1 - far]
        return Fraction(power, 1 << 192) * (4 * square + 1 / (pi_squared[far] * j * j))

    middle = square + Fraction(1, 12)
    return middle - term(1, 0), middle - term(1, 1) + term(2, 0)


def rounded_gaussian_mean_size(sigma: Fraction) -> Moment:
    """Return bounds of E|X| of the rounded Gaussian: just below √(2/π)·σ where σ is not small.

    Up to σ = 8 a sum of tails, from there on Euler and Maclaurin's formula with its remainder.

    >>> low, high = rounded_gaussian_mean_size(Fraction(10))
    >>> round(float(low), 6), round(float(high), 6)
    (7.97552, 7.97552)

    Proof: docs/proofs/accuracy.md
    """
    if sigma < 8:
        # survives: One term more or less is below a unit.
        return _sum_of_tails(sigma, math.ceil(16 * sigma) + 16, moment=1)
    total, falling = sigma, sigma
    for m, number in enumerate(_BERNOULLI, start=1):
        falling /= sigma * sigma  # σ^(1−2m)
        at_half = -(1 - Fraction(2, 4**m)) * number
        total += at_half * (-1) ** (m - 1) * _double_factorial(2 * m - 3) * falling / math.factorial(2 * m)
    order = 2 * len(_BERNOULLI)
    rest = abs(_BERNOULLI[-1]) * ceil_sqrt(Fraction(math.factorial(order - 1))) * falling
    rest /= math.factorial(order)
    low, high = (Fraction(end, 1 << 128) * total for end in root_two_over_pi(128))
    return low - rest, high + rest


def _sum_of_tails(sigma: Fraction, terms: int, *, moment: int) -> Moment:
    """Return bounds of E|X| = Σ Pr[|X| ≥ k] or E[X²] = Σ (2k−1)·Pr[|X| ≥ k], k = 1, 2, ….

    What comes after `terms` is below one unit.
    """
    # survives: It says only how many bits are carried, and when the sum is as good as 0.
    nearest = 1 / (8 * sigma * sigma)
    # survives: At the limit both bounds hold.
    if nearest >= _MAX_ZERO_BITS:  # Pr[|X| ≥ k] ≤ e^(−nearest·k²), and e^−1200 < 2^-1700
        return Fraction(0), Fraction(1, 1 << _MAX_ZERO_BITS)
    # survives: How many bits are carried is free: an enclosure from more or fewer still encloses.
    bits = 128 + _small_scale_bits(nearest)
    tails = [
        (1 if moment == 1 else 2 * k - 1, rounded_gaussian_tail(sigma, k - 1, bits))
        for k in range(1, terms + 1)
    ]
    low = sum(times * tail[0] for times, tail in tails)
    high = sum(times * tail[1] for times, tail in tails) + 1
    return Fraction(low, 1 << bits), Fraction(high, 1 << bits)


def _small_scale_bits(exponent: Fraction) -> int:
    """Return the leading zero bits of e^−exponent, within reason: a smaller number is as good as 0."""
    # survives: How many bits are carried is free: an enclosure from more or fewer still encloses.
    return min(math.ceil(exponent * 3 / 2), _MAX_ZERO_BITS)


def _double_factorial(n: int) -> int:
    # survives: A factor of 1 more or less changes nothing.
    return math.prod(range(n, 0, -2))
