"""The only door to floats: reals go onto a grid of step 2^k, and come back after the noise.

Adding happens in integers; the float that is shown is a function of the noisy integer alone, so
nothing of the exact value survives in its low bits.

Proof: docs/proofs/additive.md
"""

import math
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from hubbub.bounded import LARGEST, Exact
from hubbub.errors import Unsupported

__all__ = ["add_integers", "add_on_grid", "grid_below"]

_LARGEST_POWER = 900
_FINEST = 2.0**1000


def grid_below(scale: Fraction, steps: int) -> Fraction:
    """The largest power of two that divides `scale` into at least 2^steps parts.

    >>> grid_below(Fraction(10), 2)
    Fraction(2, 1)
    """
    power = scale.numerator.bit_length() - scale.denominator.bit_length()
    if Fraction(2) ** power > scale:
        power -= 1
    power -= steps
    if abs(power) > _LARGEST_POWER:
        raise Unsupported(
            "the noise scale is too large or too small for doubles",
            why="its grid could not be shown as a float",
            fix="measure in other units: multiply value and sensitivity by one public number",
        )
    return Fraction(2) ** power


def add_integers(value: int | NDArray[np.int64], noise: int | NDArray[np.int64]) -> int | NDArray[np.int64]:
    """Value + noise, held within ±2^61.

    The clamp makes it a function of the exact sum: where a vector's noise was cut at ±2^62, the sum
    is beyond the clamp for every value that is allowed.

    >>> add_integers(40, 2)
    42
    """
    if isinstance(value, np.ndarray):
        total: NDArray[np.int64] = np.clip(value + noise, -LARGEST, LARGEST)
        return total
    return max(-LARGEST, min(LARGEST, value + int(noise)))


def add_on_grid(value: Exact, noise: int | NDArray[np.int64], grid: Fraction) -> float | NDArray[np.float64]:
    """The value rounded to the grid, plus `noise` grid steps, as the nearest double.

    >>> add_on_grid(Fraction(1, 3), 0, Fraction(1, 4))
    0.25
    """
    if not isinstance(value, np.ndarray):
        return _shown((round(Fraction(value) / grid) + int(noise)) * grid)
    noise = np.asarray(noise)
    step = float(grid)
    with np.errstate(over="ignore"):
        snapped = np.clip(np.rint(value.astype(np.float64) / step), -_FINEST, _FINEST)
    # Both are integers in doubles, so their double sum is the exact sum, rounded once.
    total: NDArray[np.float64] = snapped + noise.astype(np.float64)
    for lane in np.flatnonzero(np.abs(noise) > 2**53):
        total[lane] = _shown(Fraction(int(snapped[lane]) + int(noise[lane])))
    total *= step
    return total


def _shown(exact: Fraction) -> float:
    try:
        return float(exact)
    except OverflowError:
        return math.copysign(float(np.finfo(np.float64).max), exact)
