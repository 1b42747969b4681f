"""Sums of rows with proved sensitivity: first and second moments, of all rows or class by class.

In units of steps², the count is worth STEPS² a row, so that all cells of one vector weigh alike.

Proof: docs/proofs/estimators.md, "Moments"
"""

from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hubbub.bounded import Sensitivity
from hubbub.learn.fixed import STEPS, chunks, clipped, exact_product

__all__ = ["class_moments", "class_sensitivity", "gram", "gram_sensitivity", "unpacked"]

_SQUARE = STEPS * STEPS


def class_sensitivity(features: int, *, squares: bool = True) -> Sensitivity:
    """How far one row moves the sums of its class: 1, x and x² of each feature.

    Guarantee: one row moves the cells of one class alone, each by at most STEPS².
    Proof: docs/proofs/estimators.md, "Moments"
    """
    cells = 1 + (2 if squares else 1) * features
    return Sensitivity(cells * _SQUARE, linf=_SQUARE)


def class_moments(
    steps: NDArray[np.int16], codes: NDArray[np.int64], classes: int, *, squares: bool = True
) -> NDArray[np.int64]:
    """For each class, STEPS²·count, STEPS·Σx and Σx²; a row of code −1 is in none.

    >>> class_moments(np.array([[2], [3]], dtype=np.int16), np.array([0, 0]), 1).tolist()
    [[536870912, 81920, 13]]
    """
    features = steps.shape[1]
    total = np.zeros((classes, 1 + (2 if squares else 1) * features), dtype=np.int64)
    for part in chunks(len(steps)):
        rows = steps[part].astype(np.int64)
        member = (codes[part, None] == np.arange(classes)).astype(np.int64)
        largest = len(rows) * _SQUARE
        total[:, 0] += member.sum(axis=0) * _SQUARE
        total[:, 1 : 1 + features] += _whole(exact_product(member.T, rows, largest)) * STEPS
        if squares:
            total[:, 1 + features :] += _whole(exact_product(member.T, rows * rows, largest))
    return total


def gram_sensitivity(coordinates: int, limit: int | None, norm: int) -> Sensitivity:
    """How far one row u moves the upper triangle of Σuuᵀ.

    With nothing but |uᵢ| ≤ S = STEPS, every cell moves by at most S². With ‖u‖₁ ≤ R the ℓ1 is at most
    (R² + min(R², R·S))/2; with ‖u‖₂ ≤ R the ℓ2 is at most R².

    Proof: docs/proofs/estimators.md, "Moments"
    """
    cells = coordinates * (coordinates + 1) // 2
    if limit is None:
        return Sensitivity(cells * _SQUARE, linf=_SQUARE)
    if norm == 1:
        spread = Fraction(limit * limit + min(limit * limit, limit * STEPS), 2)
        return Sensitivity(min(spread, Fraction(cells * _SQUARE)), linf=_SQUARE)
    return Sensitivity(cells * _SQUARE, l2_squared=limit**4, linf=_SQUARE)


def gram(rows: NDArray[np.int16], limit: int | None, norm: int) -> NDArray[np.int64]:
    """The upper triangle of Σuuᵀ, row by row of the triangle, over rows clipped to the limit."""
    coordinates = rows.shape[1]
    total = np.zeros((coordinates, coordinates), dtype=np.int64)
    for part in chunks(len(rows)):
        taken = rows[part].astype(np.int64)
        if limit is not None:
            taken = clipped(taken, limit, norm)
        total += _whole(exact_product(taken.T, taken, len(taken) * _SQUARE))
    return total[np.triu_indices(coordinates)]


def unpacked(triangle: NDArray[Any], coordinates: int) -> NDArray[np.float64]:
    """The symmetric matrix of an upper triangle, in units of 1 rather than of STEPS²."""
    full = np.zeros((coordinates, coordinates))
    full[np.triu_indices(coordinates)] = triangle / _SQUARE
    return full + np.triu(full, 1).T


def _whole(exact: NDArray[np.float64]) -> NDArray[np.int64]:
    return exact.astype(np.int64)
