"""One draw at a time, of any scale, from one standard law with infinitely many digits.

A geometric variable is ⌊b·E⌋ for E exponential, a rounded Gaussian is round(σZ) for Z normal. So two
tables serve every scale: E and |Z| are narrow cells plus a uniform part that is accepted with the
probability that bends the cell to the law. Digits are drawn until the integer is decided; 120 of them
always, more with probability below 2^-50.

Proof: docs/proofs/samplers.md
"""

from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache, partial
from math import factorial

from hubbub.noise.entropy import random_bits
from hubbub.noise.laws import bell, geometric
from hubbub.noise.real import exp_neg
from hubbub.noise.table import Table

__all__ = ["accept", "coin", "exponential_floor", "normal_round"]

# Cells to a unit: few, for a small table; enough, for a coin that mostly falls heads.
_EXPONENTIAL_CELLS = 16
_NORMAL_CELLS = 64

_FIXED = 88
_UNITY = 1 << _FIXED
_QUARTER = 1 << _FIXED - 2
_ROUGH = 1 << 19
"""Fourteen terms give e^−y within 2^-69 for y < 1/4."""
_DIGITS = (1 << 120) - 1
_CHANCE = (1 << 64) - 1
_SERIES = tuple(_UNITY // factorial(n) for n in range(14, -1, -1))


def exponential_floor(scale: Fraction) -> tuple[int, int]:
    """⌊scale·E⌋ for a standard exponential E, and an independent sign bit."""
    table = _exponential()
    while True:
        drawn = random_bits(256)
        cell = table.pick(drawn >> 192)
        digits, bits = drawn >> 72 & _DIGITS, 120
        chance = drawn >> 8 & _CHANCE
        accepted = coin(digits >> 60 << 24, 1 << 24, chance)  # 2^88·ℓ/16, where ℓ is known to 2^-60
        if accepted is None:
            accepted, digits, bits = accept(_fall, digits, bits, chance, 64)
        if accepted:
            return _whole_part(scale, _EXPONENTIAL_CELLS, cell, digits, bits, half=0), drawn & 1


def normal_round(sigma: Fraction) -> tuple[int, int]:
    """|σZ| for a standard normal Z, rounded to the nearest integer, and an independent sign bit."""
    table = _normal()
    while True:
        drawn = random_bits(256)
        cell = table.pick(drawn >> 192)
        digits, bits = drawn >> 72 & _DIGITS, 120
        chance = drawn >> 8 & _CHANCE
        top = digits >> 60
        # 2^88·(hℓ + ℓ²/2)/64², where ℓ is known to 2^-60
        accepted = coin(top * ((cell << 61) + top) >> 45, cell + 2 << 16, chance)
        if accepted is None:
            accepted, digits, bits = accept(partial(_bend, cell), digits, bits, chance, 64)
        if accepted:
            return _whole_part(sigma, _NORMAL_CELLS, cell, digits, bits, half=1), drawn & 1


def coin(x: int, slack: int, chance: int) -> bool | None:
    """Whether U < e^−y for all y with x ≤ 2^88·y ≤ x + slack, given 64 bits of U; None: undecided.

    Fourteen terms of the series, always; beyond y = 1/4 they would not be enough, so it is undecided.
    """
    total = 0
    for coefficient in _SERIES:
        total = coefficient - (x * total >> _FIXED)
    if x >= _QUARTER:
        return None
    if chance + 1 << _FIXED - 64 <= total - slack - _ROUGH:
        return True
    if chance << _FIXED - 64 >= total + _ROUGH:
        return False
    return None


def accept(
    exponent: Callable[[Fraction], Fraction], digits: int, bits: int, chance: int, chance_bits: int
) -> tuple[bool, int, int]:
    """Whether U < e^−exponent(ℓ), by exact integers, with the digits of ℓ that it took.

    `digits` are the first `bits` bits of ℓ, `chance` the first `chance_bits` of U; exponent rises in ℓ.
    The answer holds whatever digits follow, so those not drawn yet are still uniform.
    """
    while True:
        least = exponent(Fraction(digits, 1 << bits))
        most = exponent(Fraction(digits + 1, 1 << bits))
        if chance < exp_neg(most, chance_bits)[0]:
            return True, digits, bits
        if chance >= exp_neg(least, chance_bits)[1]:
            return False, digits, bits
        digits, bits = digits << 64 | random_bits(64), bits + 64
        chance, chance_bits = chance << 64 | random_bits(64), chance_bits + 64


def _fall(low: Fraction) -> Fraction:
    """The exponent by which the exponential density falls within a cell."""
    return low / _EXPONENTIAL_CELLS


def _bend(cell: int, low: Fraction) -> Fraction:
    """The exponent by which the normal density falls within a cell."""
    return low * (2 * cell + low) / (2 * _NORMAL_CELLS**2)


def _whole_part(scale: Fraction, cells: int, cell: int, digits: int, bits: int, *, half: int) -> int:
    """⌊scale·(cell + ℓ)/cells + half/2⌋, drawing more digits of ℓ while they matter."""
    top, unit = scale.numerator, scale.denominator * cells
    while True:
        whole = 2 * unit << bits
        # As the quotient has 2^62 on top, dividing takes as long for a small one as for a large one.
        start = 2 * top * ((cell << bits) + digits) + (half * unit << bits) + (whole << 62)
        least = start // whole
        if least == (start + 2 * top - 1) // whole:
            return least - (1 << 62)
        digits, bits = digits << 64 | random_bits(64), bits + 64


@lru_cache(maxsize=1)
def _exponential() -> Table:
    return Table(partial(geometric, Fraction(_EXPONENTIAL_CELLS)))


@lru_cache(maxsize=1)
def _normal() -> Table:
    return Table(partial(bell, Fraction(_NORMAL_CELLS**2)))
