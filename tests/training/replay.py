"""Two fits that see the same answers: the second is given the noisy answers of the first.

What is left to differ are the exact sums of two neighbours, step by step, which is what a proof by adaptive
composition bounds.
"""

from dataclasses import dataclass
from unittest.mock import patch

import numpy as np

from hubbub.estimators.fit_budget import FitMeasurer

__all__ = ["Step", "moves", "recorded"]


@dataclass
class Step:
    exact: np.ndarray
    noisy: np.ndarray
    row: object
    share: object


def recorded(fit, answers=None):
    """The steps of a fit; with `answers`, these are what it is told."""
    steps = []
    original = FitMeasurer.measure

    def measure(self, exact, row, share, because):
        # The true one runs too: it must find the declared sensitivity and the share in order.
        noisy = original(self, exact, row, share, because)
        if answers is not None:
            noisy = answers[len(steps)].noisy
        steps.append(Step(np.array(exact, dtype=np.int64), noisy, row, share))
        return noisy

    with patch.object(FitMeasurer, "measure", measure):
        fit()
    return steps


def moves(fit, neighbour):
    """Of each step: ℓ1, ℓ2² and ℓ∞ by which the exact sums differ, and what one row was said to move them."""
    first = recorded(fit)
    second = recorded(neighbour, first)
    assert len(first) == len(second)
    for one, other in zip(first, second, strict=True):
        assert (one.row, one.share) == (other.row, other.share)
        assert one.exact.shape == other.exact.shape
        apart = [abs(int(a) - int(b)) for a, b in zip(one.exact.ravel(), other.exact.ravel(), strict=True)]
        yield (sum(apart), sum(x * x for x in apart), max(apart)), one.row
