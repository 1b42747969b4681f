"""Fixed-point rows and their sufficient statistics: sums of integers with proved sensitivity.

Each feature is scaled by its public bounds into −1 to 1, and becomes an integer of 2^14 steps by elementwise
arithmetic, which IEEE 754 defines exactly. Matrix products are of integers so small that every partial sum
is below 2^53. Doubles hold them exactly, so a library may add them in any order, and a row's part in a sum is
the same in any table.

In a vector of moments, the count is weighted by 2^28 per row (the square of the scale), so that all
coordinates have the same bound.

Proof: docs/proofs/estimators.md, "Integers" and "Moments"
"""

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hubbub.errors import InvalidInput
from hubbub.sensitivity import Sensitivity

__all__ = [
    "CHUNK_ROWS",
    "SCALE",
    "FeatureBounds",
    "class_moments",
    "class_moments_sensitivity",
    "clip_rows",
    "exact_matmul",
    "iter_chunks",
    "second_moments",
    "second_moments_sensitivity",
    "unpack_symmetric",
]

SCALE = 1 << 14
"""The fixed-point scale: 1 is 2^14, so that a number in −1 to 1 fits 16 bits."""
CHUNK_ROWS = 1 << 13
"""Rows at a time: their doubles fit the cache, and their sums are below 2^53."""
_EXACT_LIMIT = 1 << 53
_SCALE_SQUARED = SCALE * SCALE

Reals = NDArray[np.float64]
FixedPoint = NDArray[np.int16]


@dataclass(frozen=True, eq=False)
class FeatureBounds:
    """The public bounds of each feature, and the affine map from them into −1 to 1.

    If the bounds of a feature contain zero, zero stays zero, so that one-hot rows stay sparse; otherwise the
    middle of the bounds becomes zero.

    >>> bounds = FeatureBounds.of((0, 10), 2, "bounds")
    >>> bounds.to_fixed_point(np.array([[5.0, 99.0], [float("nan"), 1.0]]))[0].tolist()
    [[8192, 16384], [0, 0]]
    """

    low: Reals
    high: Reals
    center: Reals
    radius: Reals

    @classmethod
    def of(cls, bounds: Any, features: int, name: str) -> "FeatureBounds":
        """Read (low, high), each one number or one for each feature; `name` is the parameter's."""
        try:
            low, high = (
                np.broadcast_to(np.asarray(end, dtype=np.float64), (features,)).copy() for end in bounds
            )
        except (TypeError, ValueError):
            raise InvalidInput(
                f"{name} is not (low, high), each one number or one for each of {features} features",
                why="otherwise one row could move a sum without limit; bounds are never taken from the rows",
                fix=f"pass {{{name}}}, such as (0, 1) or two lists, from public knowledge",
            ) from None
        with np.errstate(all="ignore"):
            contains_zero = (low <= 0) & (high >= 0)
            center = np.where(contains_zero, 0.0, low / 2 + high / 2)
            radius = np.where(contains_zero, np.maximum(-low, high), high / 2 - low / 2)
            usable = (low < high) & np.isfinite(low) & np.isfinite(high) & (radius >= 1e-300)
        if not usable.all():
            raise InvalidInput(
                f"{name} are not finite, or low is not below high",
                why="features are scaled by them",
                fix="pass a finite low and a larger high for every feature",
            )
        return cls(low, high, center, radius)

    def to_fixed_point(self, rows: Reals) -> tuple[FixedPoint, NDArray[np.bool_]]:
        """Return the rows in fixed point, and which are valid: a row with a non-finite number becomes zero.

        Guarantee: every integer is within ±2^14, and a function of its own row and the bounds alone.
        Proof: docs/proofs/estimators.md, "Integers"
        """
        fixed = np.zeros(rows.shape, dtype=np.int16)
        is_valid = np.zeros(len(rows), dtype=np.bool_)
        for rows_slice in iter_chunks(len(rows)):
            chunk = rows[rows_slice]
            is_valid[rows_slice] = np.isfinite(chunk).all(axis=1)
            with np.errstate(all="ignore"):
                scaled = (np.clip(chunk, self.low, self.high) - self.center) / self.radius
                rounded = np.rint(np.clip(scaled, -1.0, 1.0) * SCALE)
            rounded[~is_valid[rows_slice]] = 0.0
            fixed[rows_slice] = rounded.astype(np.int16)
        return fixed, is_valid

    def clamp(self, rows: Reals) -> Reals:
        """Clamp rows to the bounds; a number that is missing becomes the center."""
        clamped: Reals = np.clip(np.where(np.isnan(rows), self.center, rows), self.low, self.high)
        return clamped

    def from_scaled(self, scaled: Reals) -> Reals:
        """Return scaled numbers in the original units."""
        values: Reals = self.center + self.radius * scaled
        return values


def iter_chunks(rows: int) -> Iterator[slice]:
    """Iterate over slices of some thousand rows."""
    for start in range(0, rows, CHUNK_ROWS):
        yield slice(start, min(start + CHUNK_ROWS, rows))


def clip_rows(rows: NDArray[np.int64], limit: Any, norm_order: int) -> NDArray[np.int64]:
    """Scale each row of integers down to a norm of at most `limit`, one for all or one for each row.

    Doubles only propose a result: it is checked in integers, and a row that fails the check becomes zero.

    >>> clip_rows(np.array([[3, 4], [30, 40]]), 10, 2).tolist()
    [[3, 4], [5, 7]]

    Guarantee: the ℓ1 norm (or ℓ2 for norm 2) of every row is at most its limit; rows do not mix.
    Assumes: integers below 2^30 in size, and fewer than 2^22 of them in the ℓ1 sum and squares below 2^62.
    Proof: docs/proofs/estimators.md, "Clipping"
    """
    limits = np.broadcast_to(np.asarray(limit, dtype=np.int64), (len(rows),))
    allowed = limits if norm_order == 1 else limits * limits
    norms = _norms(rows, norm_order)
    is_over = norms > allowed
    if not is_over.any():
        return rows
    length = norms[is_over].astype(np.float64)
    length = length if norm_order == 1 else np.sqrt(length)
    # Slightly smaller, and truncated towards zero, so that rounding of doubles cannot exceed the limit.
    factor = limits[is_over] / length * (1 - 2.0**-40)
    clipped = rows.copy()
    clipped[is_over] = np.trunc(rows[is_over] * factor[:, None]).astype(np.int64)
    clipped[_norms(clipped, norm_order) > allowed] = 0
    return clipped


def _norms(rows: NDArray[np.int64], norm_order: int) -> NDArray[np.int64]:
    """Return Σ|v| or Σv² of each row, in 64-bit integers."""
    total: NDArray[np.int64] = (
        np.abs(rows).sum(axis=1) if norm_order == 1 else np.einsum("ij,ij->i", rows, rows)
    )
    return total


def exact_matmul(left: NDArray[Any], right: NDArray[Any], largest: int) -> Reals:
    """Return the exact product of two integer matrices, in doubles; `largest` bounds Σ|l·r| of every entry.

    >>> exact_matmul(np.array([[1, 2]]), np.array([[3], [4]]), 11).tolist()
    [[11.0]]

    Guarantee: the result is exact, in whatever order the products are added.
    Assumes: the library multiplies and adds doubles by IEEE 754, fused or not.
    Proof: docs/proofs/estimators.md, "Integers"
    """
    if largest >= _EXACT_LIMIT:
        raise InvalidInput(
            "the rows have too many features for exact sums",
            why="a partial sum could exceed 2^53, and would be rounded",
            fix="use fewer features",
        )
    product: Reals = left.astype(np.float64, copy=False) @ right.astype(np.float64, copy=False)
    return product


def class_moments_sensitivity(features: int, *, squares: bool = True) -> Sensitivity:
    """Return how far one row moves the sums of its class: 1, x and x² of each feature.

    Guarantee: one row moves the coordinates of one class only, each by at most SCALE².
    Proof: docs/proofs/estimators.md, "Moments"
    """
    coordinate_count = 1 + (2 if squares else 1) * features
    return Sensitivity(coordinate_count * _SCALE_SQUARED, linf=_SCALE_SQUARED)


def class_moments(
    steps: NDArray[np.int16], codes: NDArray[np.int64], classes: int, *, squares: bool = True
) -> NDArray[np.int64]:
    """Return, for each class, SCALE²·count, SCALE·Σx and Σx²; a row of code −1 is in none.

    >>> class_moments(np.array([[2], [3]], dtype=np.int16), np.array([0, 0]), 1).tolist()
    [[536870912, 81920, 13]]
    """
    features = steps.shape[1]
    total = np.zeros((classes, 1 + (2 if squares else 1) * features), dtype=np.int64)
    for rows_slice in iter_chunks(len(steps)):
        rows = steps[rows_slice].astype(np.int64)
        member = (codes[rows_slice, None] == np.arange(classes)).astype(np.int64)
        largest = len(rows) * _SCALE_SQUARED
        total[:, 0] += member.sum(axis=0) * _SCALE_SQUARED
        total[:, 1 : 1 + features] += _to_integers(exact_matmul(member.T, rows, largest)) * SCALE
        if squares:
            total[:, 1 + features :] += _to_integers(exact_matmul(member.T, rows * rows, largest))
    return total


def second_moments_sensitivity(coordinates: int, limit: int | None, norm_order: int) -> Sensitivity:
    """Return how far one row u moves the upper triangle of Σuuᵀ.

    If only |uᵢ| ≤ S = SCALE is known, every coordinate moves by at most S². With ‖u‖₁ ≤ R the ℓ1 is at most
    (R² + min(R², R·S))/2; with ‖u‖₂ ≤ R the ℓ2 is at most R².

    Proof: docs/proofs/estimators.md, "Moments"
    """
    coordinate_count = coordinates * (coordinates + 1) // 2
    if limit is None:
        return Sensitivity(coordinate_count * _SCALE_SQUARED, linf=_SCALE_SQUARED)
    if norm_order == 1:
        l1 = Fraction(limit * limit + min(limit * limit, limit * SCALE), 2)
        return Sensitivity(min(l1, Fraction(coordinate_count * _SCALE_SQUARED)), linf=_SCALE_SQUARED)
    return Sensitivity(coordinate_count * _SCALE_SQUARED, l2_squared=limit**4, linf=_SCALE_SQUARED)


def second_moments(rows: NDArray[np.int16], limit: int | None, norm_order: int) -> NDArray[np.int64]:
    """Return the upper triangle of Σuuᵀ, row by row of the triangle, over rows clipped to the limit."""
    coordinates = rows.shape[1]
    total = np.zeros((coordinates, coordinates), dtype=np.int64)
    for rows_slice in iter_chunks(len(rows)):
        fixed = rows[rows_slice].astype(np.int64)
        if limit is not None:
            fixed = clip_rows(fixed, limit, norm_order)
        total += _to_integers(exact_matmul(fixed.T, fixed, len(fixed) * _SCALE_SQUARED))
    return total[np.triu_indices(coordinates)]


def unpack_symmetric(triangle: NDArray[Any], coordinates: int) -> NDArray[np.float64]:
    """Return the symmetric matrix of an upper triangle, in units of 1 rather than SCALE²."""
    full = np.zeros((coordinates, coordinates))
    full[np.triu_indices(coordinates)] = triangle / _SCALE_SQUARED
    return full + np.triu(full, 1).T


def _to_integers(exact: NDArray[np.float64]) -> NDArray[np.int64]:
    return exact.astype(np.int64)
