"""How far a law strays: exact tails, and the widths and scales that follow from them.

Proof: docs/proofs/accuracy.md
"""

from collections.abc import Callable
from fractions import Fraction

from hubbub.loss.normal import outside
from hubbub.noise.real import Enclosure, exp_neg, log, quotient
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
    return outside((2 * m + 1) / (2 * sigma), bits)


def half_width(beyond: Beyond, confidence: Number, cells: int) -> int:
    """The least m such that all of `cells` independent draws lie within ±m with this confidence.

    Exact: (1 − Pr[|X| > m])^cells ≥ confidence, by enclosures.

    Guarantee: all lie within ±m with at least this confidence, whatever was rounded.
    Assumes: `beyond` encloses the tail of the law.
    Proof: docs/proofs/accuracy.md
    """
    wanted = probability(confidence, "confidence")
    count = whole(cells, "cells")
    rare = (1 - wanted) / count
    bits = 128 + rare.denominator.bit_length() - rare.numerator.bit_length()
    # One draw may lie outside with probability 1 − confidence^(1/cells), rounded down.
    inside = exp_neg(Fraction(-log(wanted, bits)[1], count << bits), bits)[1]
    allowed = (1 << bits) - inside
    return least_whole(lambda m: beyond(m, bits)[1] <= allowed)


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
