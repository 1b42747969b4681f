"""How far a law strays: exact tails, and the widths and scales that follow from them.

Proof: docs/proofs/accuracy.md
"""

from collections.abc import Callable
from fractions import Fraction

from hubbub.noise.real import Enclosure, central, exp_neg, log, quotient
from hubbub.rational import Number, probability, whole

__all__ = ["discrete_laplace_beyond", "half_width", "least_whole", "rounded_gaussian_beyond"]

Beyond = Callable[[int, int], Enclosure]
"""2^bits·Pr[|X| > m], given m and bits."""


def discrete_laplace_beyond(scale: Fraction, m: int, bits: int) -> Enclosure:
    """Pr[|X| > m] = 2q^(m+1)/(1+q) with q = e^(−1/scale).

    >>> low, high = discrete_laplace_beyond(Fraction(1), 0, 64)
    >>> round(high / 2**64, 3)
    0.538
    """
    q = exp_neg(1 / scale, bits)
    tail = exp_neg((m + 1) / scale, bits)
    return quotient((2 * tail[0], 2 * tail[1]), ((1 << bits) + q[0], (1 << bits) + q[1]), bits)


def rounded_gaussian_beyond(sigma: Fraction, m: int, bits: int) -> Enclosure:
    """Pr[|X| > m] = Pr[|σZ| ≥ m + ½]."""
    low, high = central((2 * m + 1) / (2 * sigma), bits)
    return (1 << bits) - high, (1 << bits) - low


def half_width(beyond: Beyond, confidence: Number, cells: int) -> int:
    """The least m such that all of `cells` independent draws lie within ±m with this confidence.

    Exact: (1 − Pr[|X| > m])^cells ≥ confidence, by enclosures.
    """
    wanted = probability(confidence, "confidence")
    count = whole(cells, "cells")
    bits = 128 + count.bit_length()
    floor = log(wanted, bits)[1]

    def covers(m: int) -> bool:
        inside = (1 << bits) - beyond(m, bits)[1]
        return inside > 0 and count * log(Fraction(inside, 1 << bits), bits)[0] >= floor

    return least_whole(covers)


def least_whole(holds: Callable[[int], bool]) -> int:
    """The least m ≥ 0 from which on `holds` is true.

    >>> least_whole(lambda m: m * m >= 50)
    8
    """
    if holds(0):
        return 0
    high = 1
    while not holds(high):
        high *= 2
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high
