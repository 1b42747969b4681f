"""Tables of one column as they are likely to be, given noisy ones: post-processing."""

import numpy as np

from hubbub.synthesis.graphical_model import Reals

__all__ = ["estimate_counts", "project_to_simplex"]

_CERTAIN = 6.0
"""Counts of this many standard deviations or more are taken as measured."""
_RARE = 3.0
"""Values with fewer standard deviations are rare …"""
_LEAST_RARE = 20
"""… and as many of them tell what others are likely to be."""
_STEP = 1.12
_SMALLEST = 0.1
_ESTIMATIONS = 30
_HELD_BY = 10.0
_HALVINGS = 25


def estimate_counts(values: Reals, sd: float, total: float) -> Reals:
    """Return the counts of one column's values, as they are likely to be: not negative, of this sum.

    Where many values are rare: before it is measured, a count is 0 or of any order of magnitude, at first all
    alike. How many are of which follows from the table, by expectation and maximisation, held by as much as
    `_HELD_BY` counts would tell. What is missing is added to all measured values alike. A few rare values
    would not tell what others are like: then the nearest counts that are possible.

    >>> rare = np.random.default_rng(1).normal([9000.0, *[10.0] * 40], 30.0)
    >>> round(float(np.abs(estimate_counts(rare, 30.0, 9400.0)[1:] - 10).sum()))
    135
    >>> round(float(np.abs(project_to_simplex(rare, 9400.0)[1:] - 10).sum()))
    458
    """
    if (values < _RARE * sd).sum() < _LEAST_RARE:
        return project_to_simplex(values, total)
    grid = np.append(0.0, np.exp(np.arange(np.log(_SMALLEST * sd), np.log(1.01 * total), np.log(_STEP))))
    even = np.full(grid.size, 1 / grid.size)

    def likelihood(shifted: Reals) -> Reals:
        logs = -((np.minimum(shifted, _CERTAIN * sd)[:, None] - grid) ** 2) / (2 * sd**2)
        likely: Reals = np.exp(logs - logs.max(axis=1, keepdims=True))
        return likely

    own = likelihood(values[values < _CERTAIN * sd])
    share = even
    for _ in range(_ESTIMATIONS):
        known = own * share
        known /= known.sum(axis=1, keepdims=True)
        share = (known.sum(axis=0) + _HELD_BY * even) / (own.shape[0] + _HELD_BY)

    def estimate(shift: float) -> Reals:
        shifted = values + shift
        known = np.cumsum(likelihood(shifted) * share, axis=1)
        known /= known[:, -1:]
        # The median, which is off by least rows; between two counts of the grid by proportion.
        at = (known < 0.5).sum(axis=1)
        above = known[np.arange(at.size), at]
        below = np.where(at > 0, known[np.arange(at.size), at - 1], 0.0)
        part = (0.5 - below) / (above - below)
        median = (1 - part) * grid[np.maximum(at - 1, 0)] + part * grid[at]
        return np.where(shifted < _CERTAIN * sd, median, shifted)

    low, high = -3 * sd, 3 * sd
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if estimate(middle).sum() > total else (middle, high)
    counts = estimate((low + high) / 2)
    if not 0.5 * total < counts.sum() < 2 * total:
        return project_to_simplex(values, total)  # the noise is as wide as the table
    scaled: Reals = counts * (total / counts.sum())
    return scaled


def project_to_simplex(values: Reals, total: float) -> Reals:
    """Return the nearest table without negative cells that has this sum.

    Noise in cells without rows is cut off at 0 on one side; what that adds is taken from all cells alike.

    >>> project_to_simplex(np.array([10.0, 2.0, -3.0]), 10.0).tolist()
    [9.0, 1.0, 0.0]
    """
    descending = np.sort(values, axis=None)[::-1]
    excess = (np.cumsum(descending) - total) / np.arange(1, values.size + 1)
    last = np.flatnonzero(descending > excess)[-1]
    nearest: Reals = np.maximum(values - excess[last], 0.0)
    return nearest
