"""Deviations of neighbouring numbers are alike: the noise of a measured table is estimated from them.

Post-processing: all of it is a function of a released table and of what a model expected.
"""

from collections.abc import Sequence

import numpy as np

from hubbub.synthesis.graphical_model import Reals

__all__ = ["smooth_deviations"]

_MAX_CELLS = 1000
"""Of larger tables the covariances of all cells would take too long."""
_NEIGHBOURS = 0.9
"""The correlation of the smooth parts of neighbouring cells."""
_SHARES = (0.0, 0.5, 0.85, 0.97)
"""How much of the variance may be smooth."""
_LEAST_GAIN = 1e-3
_LEAST_ORDERED = 6


def smooth_deviations(
    values: Reals, expected: Reals, deviations: Reals, sd: float, ordered: Sequence[int]
) -> Reals:
    """Return a measured table with as much of its noise left out as neighbouring cells tell.

    The deviation of a cell has a part of its own and a smooth one. The correlation of the smooth ones falls
    with the distance along ordered columns. The share of the smooth part is the one under which the table is
    most likely. What comes out would be held back by a ridge, which knows cells alone, to the expected
    deviation.

    Args:
        values: the table as measured.
        expected: the table as the model had it.
        deviations: the standard deviation of each cell from what was expected, before it is measured.
        sd: the standard deviation of the noise.
        ordered: for each column how many of its cells, from the first, are in order: 0 for categories.
    """
    if values.size > _MAX_CELLS or max(ordered, default=0) < _LEAST_ORDERED:
        return values
    smooth: Reals = np.ones((1, 1))
    for size, own in zip(values.shape, ordered, strict=True):
        places = np.arange(own if own >= _LEAST_ORDERED else 0)
        along = np.eye(size)
        along[: places.size, : places.size] = _NEIGHBOURS ** np.abs(places[:, None] - places)
        smooth = np.kron(smooth, along).astype(np.float64)
    off, scale = (values - expected).ravel(), deviations.ravel()
    smooth *= np.outer(scale, scale)
    best, estimate = -np.inf, off
    diagonal = np.diag_indices(off.size)
    for share in _SHARES:
        covariance = share * smooth
        covariance[diagonal] = scale**2 + sd**2
        log_root = float(np.log(np.diag(np.linalg.cholesky(covariance))).sum())
        solution = np.linalg.solve(covariance, off)
        likelihood = -float(off @ solution) / 2 - log_root
        if likelihood > best:
            best, estimate = likelihood, off - sd**2 * solution
    gain = scale**2 / (scale**2 + sd**2)
    deviation = np.where(gain > _LEAST_GAIN, estimate / np.maximum(gain, _LEAST_GAIN), off)
    result: Reals = expected + deviation.reshape(values.shape)
    return result
