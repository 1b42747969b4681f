"""What pairs of laws tell of their losses, cell by cell, and the normal law in cells.

Proof: docs/proofs/pairs.md
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["LEAST", "Masses", "Normal", "Smooth", "density", "normal_cells", "outward", "within"]

Doubles = NDArray[np.float64]

LEAST = 1e-300
"""Masses below it may be missing or wrong; who needs an upper bound adds it for each cell."""

_UNIT = 2.0**-53
_SERIES = 0.5
"""Up to here (in half-widths times distance) a cell's normal mass is summed by a series."""


class Masses(NamedTuple):
    """What lies between losses: each cell taken as one outcome."""

    p: Doubles
    q: Doubles
    loss: Doubles
    """ln(p/q) of each cell, known better than from p and q."""
    accuracy: Doubles
    """The relative error of each p and q above 1e-300."""
    unsure: Doubles
    """The error of each loss."""


class Smooth:
    """A pair whose losses have a density, and may be any number; what is different a pair says itself."""

    @property
    def certain(self) -> float:
        """No loss is infinite."""
        return 0.0

    @property
    def span(self) -> tuple[float, float]:
        """Any loss is possible."""
        return -math.inf, math.inf

    @property
    def atoms(self) -> Doubles:
        """No loss has a mass of its own."""
        return np.zeros(0)

    @property
    def discrete(self) -> bool:
        """Losses have a density."""
        return False


def within(most: float) -> Doubles:
    """Losses evenly over ±most, and closer at both ends."""
    near = np.linspace(0, min(80.0, most), 257)
    return np.unique(np.concatenate([near - most, np.linspace(-most, most, 65), most - near]))


def outward(low: float, high: float, by: float = 16 * _UNIT) -> tuple[float, float]:
    """Ends that hold the true ones, of which these are rounded."""
    return low - by * abs(low), high + by * abs(high)


class Normal(NamedTuple):
    """Normal masses as share·φ(place), which neither underflow nor cancel."""

    place: Doubles
    share: Doubles
    narrow: NDArray[np.bool_]


def normal_cells(left: Doubles, right: Doubles, half: Doubles) -> Normal:
    """The normal law between left and right, 2·half apart: known better than from their difference.

    A narrow cell is 2d·φ(z)·Σ He₂ⱼ(z)·d²ʲ/(2j+1)! around its middle z; of a wide one, Mills' ratio at both
    ends tells the tails' difference, over φ at the end that is closer to zero.
    """
    place = left / 2 + right / 2
    size = half * (np.abs(place) + 6)
    narrow = size <= _SERIES
    share = np.empty(place.size)
    # Most cells are so narrow that few terms are enough.
    for some in (size <= _SERIES / 16, narrow & (size > _SERIES / 16)):
        share[some] = 2 * half[some] * _bulge(place[some], half[some], float(size[some].max(initial=0.0)))
    wide = ~narrow
    flip = right[wide] <= 0
    near, far = np.where(flip, -right[wide], left[wide]), np.where(flip, -left[wide], right[wide])
    place[wide] = np.where(flip, -1.0, 1.0) * np.maximum(near, 0.0)
    mills, beyond = _mills(np.abs(near)), _mills(np.abs(far))
    # φ at the ends against φ at the place; where the cell holds zero, it is all but two tails.
    own = np.exp(-np.square(np.minimum(near, 0.0)) / 2)
    fall = np.exp(-np.where(near < 0, far * far / 2, half[wide] * (near + far)))
    share[wide] = np.where(near < 0, math.sqrt(2 * math.pi) - own * mills, mills) - fall * beyond
    return Normal(place, share, narrow)


def density(normal: Normal) -> Doubles:
    """The masses as such."""
    return np.asarray(np.exp(-np.square(normal.place) / 2) / math.sqrt(2 * math.pi) * normal.share)


def _bulge(z: Doubles, half: Doubles, size: float) -> Doubles:
    """The mean of φ over z ± half, over φ(z): Σ He₂ⱼ(z)·half²ʲ/(2j+1)!, where (|z| + 6)·half ≤ size ≤ ½."""
    total = np.ones(z.size)
    square, before, now, scale = half * half, np.ones(z.size), z, np.ones(z.size)
    j, rest = 1, size * size / 6
    while rest > 2.0**-60:
        even = z * now - (2 * j - 1) * before
        before, now = even, z * even - 2 * j * now
        scale = scale * square / ((2 * j) * (2 * j + 1))
        total += even * scale
        j += 1
        rest *= size * size / ((2 * j) * (2 * j + 1))
    return total


def _mills(x: Doubles) -> Doubles:
    """Pr[Z > x]/φ(x) for x ≥ 0."""
    far = x > 8
    out = np.empty(x.size)
    root = math.sqrt(0.5)
    out[~far] = [math.erfc(y * root) * math.exp(y * y / 2) * math.sqrt(math.pi / 2) for y in x[~far].tolist()]
    tail = x[far]
    for n in range(30, 0, -1):
        tail = x[far] + n / tail
    out[far] = 1 / tail
    return out
