"""Reals on a grid of step 2^k: rounded to it, given integer noise, and only then converted to floats.

The returned float is a function of the noisy integer alone, so its low bits reveal nothing about the exact
value. This is the only place where noisy values become floats.

Proof: docs/proofs/additive.md
"""

import sys
from collections.abc import Callable
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from hubbub.errors import Unsupported
from hubbub.noise.inversion import MAX_DRAW
from hubbub.sensitivity import MAX_MAGNITUDE, ExactValue

__all__ = ["add_integers", "add_many_on_grid", "add_on_grid", "grid_below"]

_MAX_EXPONENT = 900
# survives: How many coordinates are worked on at a time changes none of them.
CHUNK = 1 << 14
"""Coordinates per batch: their arrays stay in the cache, and are reused by the allocator."""


def grid_below(scale: Fraction, steps: int) -> Fraction:
    """Return the largest power of two that divides `scale` into at least 2^steps parts.

    >>> grid_below(Fraction(10), 2)
    Fraction(2, 1)
    """
    power = scale.numerator.bit_length() - scale.denominator.bit_length()
    if Fraction(2) ** power > scale:
        power -= 1
    power -= steps
    if abs(power) > _MAX_EXPONENT:
        raise Unsupported(
            "the noise scale is too large or too small for doubles",
            why="its grid could not be shown as a float",
            fix="measure in other units: multiply value and sensitivity by one public number",
        )
    return Fraction(2) ** power


def add_integers(
    value: int | NDArray[np.int64],
    noise: int | NDArray[np.int64],
    *,
    out: NDArray[np.int64] | None = None,
) -> int | NDArray[np.int64]:
    """Return value + noise, clamped to ±2^61.

    The clamp makes it a function of the exact sum: where a vector's noise was cut at ±2^62, the sum
    is beyond the clamp for every value that is allowed.

    Args:
        value: an integer, or a vector of integers within ±2^61.
        noise: as many draws.
        out: the vector that receives the sum; it may be the noise itself.

    >>> add_integers(40, 2)
    42
    """
    if isinstance(value, np.ndarray):
        total: NDArray[np.int64] = np.add(value, noise, out=out)
        return np.clip(total, -MAX_MAGNITUDE, MAX_MAGNITUDE, out=total)
    return max(-MAX_MAGNITUDE, min(MAX_MAGNITUDE, value + int(noise)))


def add_on_grid(
    value: ExactValue, noise: int | NDArray[np.int64], grid: Fraction, extend: Callable[[int], int] = int
) -> float | NDArray[np.float64]:
    """Round the value to the grid, add `noise` grid steps, and return the nearest double.

    Args:
        value: a number, or a vector of doubles or integers.
        noise: as many draws, in grid steps. A vector holds ±2^62 for draws as far out or farther.
        grid: the step, a power of two.
        extend: returns the draw itself for one that a vector holds as ±2^62.

    >>> add_on_grid(Fraction(1, 3), 0, Fraction(1, 4))
    0.25

    Guarantee: a function of the exact sum of two integers, the value's steps and the noise, alone.
    Assumes: noise of at most 2^53 steps but for a few coordinates; doubles add as IEEE 754 says.
    Proof: docs/proofs/additive.md
    """
    if not isinstance(value, np.ndarray):
        return _to_double(Fraction(value), int(noise), grid)
    steps, step = np.asarray(noise), float(grid)
    if value.dtype.kind == "i":
        # Beyond 2^53 a double would not hold them: all of them, whatever they are, stay integers.
        power = _power(grid)
        pairs = zip(value.tolist(), steps.tolist(), strict=True)
        return np.array([float(_snap(cell, power) + _extend_draw(by, extend)) for cell, by in pairs]) * step
    total = np.empty(value.size)
    for start in range(0, value.size, CHUNK):
        cells, added = value[start : start + CHUNK], steps[start : start + CHUNK]
        with np.errstate(over="ignore", under="ignore"):
            quotient = cells / step
        # Where there are more steps than doubles can count, the value is a whole number of them already.
        snapped = np.where(np.isfinite(quotient), np.rint(quotient) * step, cells)
        # Both are whole steps, held exactly, so their double sum is the exact sum, rounded once.
        np.add(snapped, added.astype(np.float64) * step, out=total[start : start + CHUNK])
        # survives: Coordinates that would not have to be added as one number give the same double if they
        # are; it only takes longer.
        for lane in np.flatnonzero(np.abs(added) > 2**53):
            draw = _extend_draw(int(added[lane]), extend)
            total[start + lane] = _to_double(Fraction(snapped[lane]), draw, grid)
    return total


def add_many_on_grid(
    value: int | Fraction, noise: NDArray[np.int64], grid: Fraction, extend: Callable[[int], int] = int
) -> NDArray[np.float64]:
    """Round one number to the grid, add each of many draws, and return the nearest doubles.

    Args:
        value: the number.
        noise: the draws, in grid steps.
        grid: as in `add_on_grid`.
        extend: as in `add_on_grid`.

    >>> add_many_on_grid(Fraction(1, 3), np.array([0, 4]), Fraction(1, 4)).tolist()
    [0.25, 1.25]

    Guarantee: each is a function of the exact sum of two integers, as in `add_on_grid`.
    Proof: docs/proofs/additive.md
    """
    steps = _round_to_grid(Fraction(value), _power(grid))
    # survives: Only a shortcut: larger sums, added one by one, give the same doubles.
    if abs(steps) > MAX_MAGNITUDE:
        return np.array([_as_double(steps + _extend_draw(by, extend), grid) for by in noise.tolist()])
    # Within ±2^61 and ±2^62 the sum is an exact 64-bit integer: its double is rounded once.
    total = (noise + steps).astype(np.float64) * float(grid)
    for lane in np.flatnonzero(np.abs(noise) == MAX_DRAW):
        total[lane] = _as_double(steps + _extend_draw(int(noise[lane]), extend), grid)
    return total


def _power(grid: Fraction) -> int:
    """Return the k of a grid of step 2^k."""
    return grid.numerator.bit_length() - grid.denominator.bit_length()


def _round_to_grid(value: Fraction, power: int) -> int:
    """Return the multiple of 2^power nearest to the value, in steps; ties go to the even one."""
    # In integers: arithmetic with fractions would take a third of the time of a release.
    top, bottom = value.numerator << max(0, -power), value.denominator << max(0, power)
    whole, rest = divmod(top, bottom)
    return whole + (2 * rest > bottom or (2 * rest == bottom and whole & 1))


def _snap(value: int, power: int) -> int:
    """Return the multiple of 2^power nearest to the integer, in steps; ties go to the even one."""
    if power <= 0:
        return value << -power
    return value + (1 << power - 1) - 1 + (value >> power & 1) >> power


def _extend_draw(draw: int, extend: Callable[[int], int]) -> int:
    return extend(draw) if abs(draw) >= MAX_DRAW else draw


def _to_double(value: Fraction, noise: int, grid: Fraction) -> float:
    return _as_double(_round_to_grid(value, _power(grid)) + noise, grid)


def _as_double(steps: int, grid: Fraction) -> float:
    """Return the double nearest to this number of steps, at most the largest double."""
    # survives: Only a shortcut: such an integer is a double after one rounding, and times a power of two
    # from 2^-900 to 2^900 it stays one.
    if -(1 << 120) < steps < 1 << 120:
        return float(steps) * float(grid)
    try:
        return float(steps * grid)
    except OverflowError:
        # survives: Asked of sums beyond all doubles only, and of these only the sign counts.
        return sys.float_info.max if steps > 0 else -sys.float_info.max
