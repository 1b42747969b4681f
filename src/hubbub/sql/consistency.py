"""Post-processing of noisy counts: non-negative integers with totals that agree.

Least squares, each answer weighted by its own precision, over answers of 0 or more; then rounding by largest
remainders. It uses released numbers alone, so it costs nothing. It is biased where many counts are small.

Proof: docs/proofs/post-processing.md
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hubbub.errors import Unsupported

__all__ = ["Margin", "fit_nonnegative", "round_to_totals"]

Floats = NDArray[np.float64]

_MAX_TOTALS = 4000
"""Totals in several margins at once: their covariances are a square matrix."""
_MAX_PIVOTS = 1000


@dataclass(frozen=True, eq=False)
class Margin:
    """Released totals: of which total each answer is a part, and how precise each total is."""

    places: NDArray[np.intp]
    """For each answer, the index of its total."""
    totals: Floats
    variances: Floats
    """0 for a total that the answers must add up to."""

    def sums(self, answers: Floats) -> Floats:
        """Return what the answers add up to, for each total."""
        return _group_sums(answers, self.places, self.totals.size)


def fit_nonnegative(values: Floats, variances: Floats, margins: Sequence[Margin]) -> Floats:
    """Return the y ≥ 0 that minimizes Σ(y − values)²/variances + Σ(sums of y − totals)²/variances of totals.

    By block principal pivoting: an answer is 0 just where its fit without the bound would be negative.

    >>> one = Margin(np.zeros(3, dtype=np.intp), np.array([4.0]), np.zeros(1))
    >>> fit_nonnegative(np.array([5.0, 1.0, -2.0]), np.ones(3), [one]).tolist()
    [4.0, 0.0, 0.0]
    """
    if len(margins) > 1 and sum(margin.totals.size for margin in margins) > _MAX_TOTALS:
        raise Unsupported(
            f"there are more than {_MAX_TOTALS} totals",
            why="their least-squares fit takes a square matrix",
            fix="pass one table of totals, or totals by fewer keys",
        )
    free = np.ones(values.size, dtype=np.bool_)
    fewest, patience = values.size + 1, 3
    fit = values
    for _ in range(_MAX_PIVOTS):
        fit = values + variances * _pull(values, variances, margins, free)
        wrong = free == (fit < 0)
        count = int(np.count_nonzero(wrong))
        if count == 0:
            break
        # Exchange all that are wrong while that helps; else the last one alone, which always ends.
        if count < fewest:
            fewest, patience = count, 3
        elif patience:
            patience -= 1
        else:
            wrong[: np.flatnonzero(wrong)[-1]] = False
        free ^= wrong
    return np.where(free, np.maximum(fit, 0.0), 0.0)


def _pull(values: Floats, variances: Floats, margins: Sequence[Margin], free: NDArray[np.bool_]) -> Floats:
    """Return how far the totals move each answer, per unit of variance, if only the free ones may move."""
    used = np.where(free, variances, 0.0)
    missing = np.concatenate([m.totals - m.sums(np.where(free, values, 0.0)) for m in margins])
    if len(margins) == 1:
        spread = margins[0].variances + margins[0].sums(used)
        # A total of nothing that may move pulls at nothing.
        multipliers = np.divide(missing, spread, out=np.zeros_like(missing), where=spread > 0)
    else:
        starts = np.cumsum([0, *(margin.totals.size for margin in margins)])
        covariance = np.diag(np.concatenate([margin.variances for margin in margins]))
        for one, row in zip(margins, starts, strict=False):
            for two, column in zip(margins, starts, strict=False):
                np.add.at(covariance, (row + one.places, column + two.places), used)
        multipliers = np.linalg.lstsq(covariance, missing, rcond=None)[0]
    ends = np.cumsum([margin.totals.size for margin in margins])[:-1]
    pulls = [part[margin.places] for margin, part in zip(margins, np.split(multipliers, ends), strict=True)]
    total: Floats = np.sum(pulls, axis=0)
    return total


def round_to_totals(answers: Floats, places: NDArray[np.intp], totals: int) -> NDArray[np.int64]:
    """Round to integers: the sum to the nearest, each total and then each answer by largest remainders.

    >>> round_to_totals(np.array([0.4, 0.4, 0.4, 2.0]), np.array([0, 0, 0, 1]), 2).tolist()
    [1, 0, 0, 2]
    """
    sums = _group_sums(answers, places, totals)
    goals = _largest_remainders(sums, np.zeros(totals, dtype=np.intp), np.array([round(float(sums.sum()))]))
    return _largest_remainders(answers, places, goals)


def _group_sums(answers: Floats, places: NDArray[np.intp], groups: int) -> Floats:
    sums: Floats = np.zeros(groups)
    np.add.at(sums, places, answers)
    return sums


def _largest_remainders(
    answers: Floats, places: NDArray[np.intp], goals: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Round each answer down or up so that every group adds up to what is wanted."""
    down = np.floor(answers).astype(np.int64)
    more = goals - _group_sums(down.astype(np.float64), places, goals.size).astype(np.int64)
    order = np.lexsort(
        (-(answers - down), places)
    )  # by group, largest remainder first, earlier answers first
    first = np.searchsorted(places[order], np.arange(goals.size))
    rank = np.empty(answers.size, dtype=np.int64)
    rank[order] = np.arange(answers.size) - first[places[order]]
    rounded: NDArray[np.int64] = down + (rank < more[places])
    return rounded
