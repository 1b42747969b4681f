"""Logarithms that keep their digits where they are small, and those of mixtures.

Proof: docs/proofs/pairs.md
"""

import math

import numpy as np
from numpy.typing import NDArray

__all__ = ["log1p", "mixed", "unmixed"]

Complexes = NDArray[np.complex128]
Doubles = NDArray[np.float64]

_FAR = 700.0


def log1p(x: Complexes) -> Complexes:
    """ln(1 + x), good relatively also where x is small: numpy's own is not.

    >>> complex(log1p(np.array([1e-20 + 1e-30j]))[0])
    (1e-20+1e-30j)
    """
    real, imaginary = x.real, x.imag
    small = np.abs(x) < 0.5
    with np.errstate(divide="ignore"):
        size = np.where(
            small, np.log1p(np.where(small, real * (2 + real) + imaginary**2, 0.0)) / 2, np.log(np.abs(1 + x))
        )
    out: Complexes = size + 1j * np.arctan2(imaginary, 1 + real)
    return out


def mixed(loss: Doubles, rate: float | Doubles) -> Doubles:
    """ln(1 − q + q·e^ℓ), without overflow and without losing a small loss; q may differ by row.

    >>> mixed(np.array([0.0, 1000.0]), 0.5).round(3).tolist()
    [0.0, 999.307]
    """
    if np.ndim(rate) == 0 and rate == 1:
        return loss.copy()
    moved = rate * np.expm1(np.minimum(loss, _FAR))
    with np.errstate(divide="ignore", over="ignore", under="ignore"):
        out = np.log1p(np.maximum(moved, -0.75))
        if np.min(moved, initial=0.0) < -0.5:
            # 1 − q is exact where it matters: this is only where q > ½.
            out = np.where(moved < -0.5, np.log((1 - rate) + rate * np.exp(np.minimum(loss, _FAR))), out)
        if np.max(loss, initial=0.0) > _FAR:
            far = loss + np.log(rate) + np.log1p((1 - rate) / rate * np.exp(-np.maximum(loss, _FAR)))
            out = np.where(loss > _FAR, far, out)
    return np.asarray(out)


def unmixed(ratio: Doubles, rate: float) -> Doubles:
    """The ℓ at which ln(1 − q + q·e^ℓ) is this; −∞ where there is none.

    >>> unmixed(mixed(np.array([-3.0, 0.5, 40.0]), 0.1), 0.1).round(9).tolist()
    [-3.0, 0.5, 40.0]
    """
    if rate == 1:
        return ratio.copy()
    bottom = math.log1p(-rate)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        high = ratio - math.log(rate) + np.log1p(-(1 - rate) * np.exp(-np.maximum(ratio, 1.0)))
        middle = np.log1p(np.maximum(np.expm1(np.clip(ratio, -0.5, 1.0)) / rate, -1.0))
        # Close to the bottom, from there.
        low = math.log((1 - rate) / rate) + np.log(np.expm1(np.clip(ratio - bottom, 0.0, _FAR)))
    return np.asarray(np.where(ratio > 1, high, np.where(ratio >= -0.5, middle, low)))
