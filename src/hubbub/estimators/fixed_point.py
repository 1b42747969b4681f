"""Rows as integers: a public box, a grid of 2^14 steps in it, and sums that no rounding can touch.

Each number of a row becomes an integer by elementwise arithmetic, of which IEEE 754 says the result.
Matrix products are of integers so small that every partial sum is below 2^53: doubles hold them
exactly, so a library may add them in any order, and a row's part in a sum is the same whoever else
is there.

Proof: docs/proofs/estimators.md, "Integers"
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
    "CHUNK",
    "STEPS",
    "Box",
    "chunks",
    "class_moments",
    "class_sensitivity",
    "clipped",
    "exact_product",
    "gram",
    "gram_sensitivity",
    "unpacked",
]

STEPS = 1 << 14
"""A scaled number in −1 to 1 is so many steps: it fits 16 bits."""
CHUNK = 1 << 13
"""Rows at a time: their doubles stay near the processor, and their sums below 2^53."""
_EXACT = 1 << 53

Reals = NDArray[np.float64]
Steps = NDArray[np.int16]


@dataclass(frozen=True, eq=False)
class Box:
    """The public bounds of each feature, and the scale that takes them into −1 to 1.

    A feature whose bounds hold zero keeps its zero, so that rows of zeros and ones stay sparse; another
    is taken from its middle.

    >>> box = Box.of((0, 10), 2, "bounds")
    >>> box.steps(np.array([[5.0, 99.0], [float("nan"), 1.0]]))[0].tolist()
    [[8192, 16384], [0, 0]]
    """

    low: Reals
    high: Reals
    centre: Reals
    reach: Reals

    @classmethod
    def of(cls, bounds: Any, features: int, name: str) -> "Box":
        """From (low, high), each one number or one for each feature."""
        try:
            low, high = (
                np.broadcast_to(np.asarray(end, dtype=np.float64), (features,)).copy() for end in bounds
            )
        except (TypeError, ValueError):
            raise InvalidInput(
                f"{name} is not (low, high), each one number or one for each of {features} features",
                why="one row could move a sum without end, and nothing is taken from the rows for free",
                fix=f"pass such as {name}=(0, 1), or two lists, from what is known without looking",
            ) from None
        with np.errstate(all="ignore"):
            holds_zero = (low <= 0) & (high >= 0)
            centre = np.where(holds_zero, 0.0, low / 2 + high / 2)
            reach = np.where(holds_zero, np.maximum(-low, high), high / 2 - low / 2)
            usable = (low < high) & np.isfinite(low) & np.isfinite(high) & (reach >= 1e-300)
        if not usable.all():
            raise InvalidInput(
                f"{name} are not finite, or low is not below high",
                why="a scale is made of them",
                fix="pass a finite low and a larger high for every feature",
            )
        return cls(low, high, centre, reach)

    def steps(self, rows: Reals) -> tuple[Steps, NDArray[np.bool_]]:
        """The rows in steps, and which of them count: a row with a number that is not finite is all zero.

        Guarantee: every integer is within ±2^14, and a function of its own row and the bounds alone.
        Proof: docs/proofs/estimators.md, "Integers"
        """
        taken = np.zeros(rows.shape, dtype=np.int16)
        counts = np.zeros(len(rows), dtype=np.bool_)
        for part in chunks(len(rows)):
            given = rows[part]
            counts[part] = np.isfinite(given).all(axis=1)
            with np.errstate(all="ignore"):
                scaled = (np.clip(given, self.low, self.high) - self.centre) / self.reach
                whole = np.rint(np.clip(scaled, -1.0, 1.0) * STEPS)
            whole[~counts[part]] = 0.0
            taken[part] = whole.astype(np.int16)
        return taken, counts

    def reals(self, scaled: Reals) -> Reals:
        """Numbers in −1 to 1 as they were before scaling."""
        back: Reals = self.centre + self.reach * scaled
        return back


def chunks(rows: int) -> Iterator[slice]:
    """The rows, some thousands at a time."""
    for start in range(0, rows, CHUNK):
        yield slice(start, min(start + CHUNK, rows))


def clipped(rows: NDArray[np.int64], limit: Any, norm: int) -> NDArray[np.int64]:
    """Each row of integers scaled down to a norm of at most `limit`, one for all or one for each row.

    Doubles only propose: what they made is checked in integers, and a row that failed would be zero.

    >>> clipped(np.array([[3, 4], [30, 40]]), 10, 2).tolist()
    [[3, 4], [5, 7]]

    Guarantee: the ℓ1 norm (or ℓ2 for norm 2) of every row is at most its limit; rows do not mix.
    Assumes: integers below 2^30 in size, and fewer than 2^22 of them in the ℓ1 sum and squares below 2^62.
    Proof: docs/proofs/estimators.md, "Clipping"
    """
    limits = np.broadcast_to(np.asarray(limit, dtype=np.int64), (len(rows),))
    allowed = limits if norm == 1 else limits * limits
    size = _size(rows, norm)
    over = size > allowed
    if not over.any():
        return rows
    length = size[over].astype(np.float64)
    length = length if norm == 1 else np.sqrt(length)
    # A hair less, and cut towards zero: so what doubles round cannot bring it above.
    factor = limits[over] / length * (1 - 2.0**-40)
    made = rows.copy()
    made[over] = np.trunc(rows[over] * factor[:, None]).astype(np.int64)
    made[_size(made, norm) > allowed] = 0
    return made


def _size(rows: NDArray[np.int64], norm: int) -> NDArray[np.int64]:
    """Σ|v| or Σv² of each row, in 64-bit integers."""
    total: NDArray[np.int64] = np.abs(rows).sum(axis=1) if norm == 1 else np.einsum("ij,ij->i", rows, rows)
    return total


def exact_product(left: NDArray[Any], right: NDArray[Any], largest: int) -> Reals:
    """The product of two matrices of integers, in doubles, exactly; `largest` bounds Σ|l·r| of every cell.

    >>> exact_product(np.array([[1, 2]]), np.array([[3], [4]]), 11).tolist()
    [[11.0]]

    Guarantee: the integers themselves, in whatever order the products are added.
    Assumes: the library multiplies and adds doubles as IEEE 754 says, fused or not.
    Proof: docs/proofs/estimators.md, "Integers"
    """
    if largest >= _EXACT:
        raise InvalidInput(
            "the rows have too many features for exact sums",
            why="a partial sum could pass 2^53, and would be rounded",
            fix="use fewer features",
        )
    product: Reals = left.astype(np.float64, copy=False) @ right.astype(np.float64, copy=False)
    return product


# Sums of rows with proved sensitivity: first and second moments, of all rows or class by class.
#
# In units of steps², the count is worth STEPS² a row, so that all cells of one vector weigh alike.
#
# Proved in docs/proofs/estimators.md, "Moments

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
