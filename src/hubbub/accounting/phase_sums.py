"""Rotations e^(itL) − 1 at many angles and sums of their products; no digits are lost where they are small.

Proof: docs/proofs/fourier.md, "From moments to the integral"
"""

import numpy as np
from numpy.typing import NDArray

__all__ = ["DIRECT", "block_products", "rotations"]

Complexes = NDArray[np.complex128]
Doubles = NDArray[np.float64]

# survives: How many rows and columns are multiplied at a time is free.
_TILE = 45
"""Rows and columns of a product that OpenBLAS computes on one thread: it has at most 2^16 multiplications."""
DIRECT = 4
"""The number of rotations that are computed one by one; the others by doubling."""


def block_products(far: Complexes, near: Complexes) -> Complexes:
    """The sum over blocks of the products of two matrices, by small ones.

    A product this small runs on one thread. Many threads cost more than they save, above all where others
    want the processors, too.
    """
    out: Complexes = np.empty((far.shape[0], far.shape[2], near.shape[2]), dtype=np.complex128)
    columns = near.swapaxes(2, 3)
    for row in range(0, far.shape[2], _TILE):
        for column in range(0, near.shape[2], _TILE):
            product = far[:, :, row : row + _TILE] @ columns[..., column : column + _TILE]
            product.sum(axis=1, out=out[:, row : row + _TILE, column : column + _TILE])
    return out


def rotations(turn: Doubles, fall: Doubles, count: int) -> Complexes:
    """e^(k(ix − y)) − 1 for k = 0, 1, …, along the third axis, accurate relatively also where it is small."""
    out: Complexes = np.zeros((*turn.shape[:2], count, turn.shape[3]), dtype=np.complex128)
    if count > 1:
        first = min(count - 1, DIRECT)
        many = np.arange(1, first + 1)[:, None]
        once = out[:, :, 1 : first + 1]
        once.real = -2 * np.sin(many * turn / 2) ** 2
        once.imag = np.sin(many * turn)
        if fall.any():
            # e^(ix − y) − 1 = (e^(ix) − 1) + (e^(−y) − 1)·e^(ix)
            once += np.expm1(-many * fall) * (1 + once)
    # Each doubling costs some nine units.
    known = 1 + min(count - 1, DIRECT)
    while known < count:
        # D(m + k) from D(m) and D(k), m being the last known: their number doubles.
        more = min(known - 1, count - known)
        last, new = out[:, :, known - 1 : known], out[:, :, known : known + more]
        np.multiply(last, out[:, :, 1 : 1 + more], out=new)
        new += last
        new += out[:, :, 1 : 1 + more]
        known += more
    return out
