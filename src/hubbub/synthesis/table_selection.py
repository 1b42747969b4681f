"""Selection of the tables that a model predicts worst, by the exponential mechanism.

Proof: docs/proofs/synthesis.md, "Scores of tables" and "Selections"
"""

from collections.abc import Callable
from fractions import Fraction

import numpy as np

from hubbub.mechanisms import Exponential
from hubbub.sensitivity import Bounded, Sensitivity
from hubbub.synthesis.counting import Counts, Integers, table_sensitivity
from hubbub.synthesis.graphical_model import Reals
from hubbub.synthesis.junction_tree import Variables

__all__ = ["Batch", "score_sensitivity", "score_table"]

_STEPS = 1024
"""Scores are integers, in steps of 1/1024 row."""
_MAX_STEPS = 1 << 60
_MAX_SUMMED = 1 << 40
"""Sums of 2^16 cells up to this are far below 2^63."""
_NOISE_PENALTY = 0.5
"""This many standard deviations of the noise are not worth a measurement: fits follow only a part of it."""
RULE = "Scores of tables"


def _steps(counts: Counts) -> int:
    """The factor of counts; weights are fine enough as they are."""
    return _STEPS if counts.scale == 1 else 1


def score_table(counts: Counts, exact: Integers, expected: Reals, sigma: float) -> int:
    """Return how many rows the model has in wrong cells, beyond what noise would hide: an integer.

    Args:
        counts: says in which integers `exact` is counted.
        exact: the table.
        expected: the table as the model predicts it, in rows.
        sigma: the standard deviation of the noise that it would be measured with, in rows.

    Guarantee: between neighbours it moves by at most `score_sensitivity`.
    Assumes: `expected` and `sigma` follow from earlier releases.
    Proof: docs/proofs/synthesis.md, "Scores of tables"
    """
    steps = _steps(counts)
    # Clamped on both sides, which moves no two tables apart; then nothing wraps.
    finite = np.clip(np.nan_to_num(expected), -_MAX_STEPS, _MAX_STEPS)
    predicted = np.clip(finite * (steps * counts.scale), -_MAX_STEPS, _MAX_STEPS)
    rows = np.clip(exact, -_MAX_STEPS // steps, _MAX_STEPS // steps) * steps
    threshold = round(min(_NOISE_PENALTY * sigma * steps * counts.scale, _MAX_STEPS))
    wrong = np.maximum(np.abs(rows - np.rint(predicted).astype(np.int64)) - threshold, 0)
    return min(
        sum(wrong.ravel().tolist()) if wrong.max(initial=0) > _MAX_SUMMED else int(wrong.sum()), _MAX_STEPS
    )


def score_sensitivity(counts: Counts) -> Sensitivity:
    """Return how far one unit moves a score: as far as it moves the table, in ℓ1.

    Proof: docs/proofs/synthesis.md, "Scores of tables"
    """
    return Sensitivity(table_sensitivity(counts).l1 * _steps(counts))


class Batch:
    """The candidates of one round with their scores, and the tables that were selected of them.

    Scores are exact data: they leave through the exponential mechanism alone.
    """

    def __init__(self, counts: Counts, candidates: list[Variables], scores: list[int]) -> None:
        self._sensitivity, self._unit = score_sensitivity(counts), counts.unit
        self._candidates, self._scores = candidates, np.array(scores, dtype=np.int64)
        self._is_open = np.ones(len(candidates), dtype=bool)
        self.selected: list[Variables] = []

    @property
    def is_open(self) -> bool:
        """True if a candidate is neither selected nor nested with what was: it follows from releases."""
        return bool(self._is_open.any())

    def select(self, epsilon: Fraction, fits: Callable[[Variables], bool]) -> Variables | None:
        """Select one of the open candidates that fit, if there is one.

        Candidates are drawn until one fits, which is the exponential mechanism on those that fit. What
        contains the selected table, or is contained in it, is closed.

        Args:
            epsilon: the ε of this selection.
            fits: whether a table fits the model; it follows from earlier releases alone.

        Guarantee: bounded range ε, of one selection.
        Proof: docs/proofs/synthesis.md, "Selections"
        """
        mechanism = Exponential(self._sensitivity, epsilon)
        # A copy: what was drawn and did not fit is not released, so the next selection must not depend on it.
        is_left = self._is_open.copy()
        while is_left.any():
            places = np.flatnonzero(is_left)
            bounded = Bounded(self._scores[places], self._sensitivity, self._unit, RULE)
            place = int(places[mechanism.release(bounded).value])
            is_left[place] = False
            table = self._candidates[place]
            if fits(table):
                self.selected.append(table)
                self._close_nested(table)
                return table
        return None

    def _close_nested(self, table: Variables) -> None:
        for place, other in enumerate(self._candidates):
            if set(table) <= set(other) or set(other) <= set(table):
                self._is_open[place] = False
