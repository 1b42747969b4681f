"""Tests that an attacker has, with bounds of their errors that hold at any time."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from hubbub.audit.scores import Score

__all__ = ["ThresholdTests", "TradeoffPoint", "lower_hull", "probability_bounds"]

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
TradeoffPoint = tuple[float, float]
"""Upper bounds of the two errors (α, β) of one test."""


def probability_bounds(successes: Integers, draws: int, failure: float) -> tuple[Floats, Floats]:
    """Return lower and upper bounds of probabilities that hold at all times at once.

    >>> low, high = probability_bounds(np.array([50]), 100, 0.05)
    >>> bool(0.3 < low[0] < 0.5 < high[0] < 0.7)
    True

    Guarantee: the chance that a probability is ever outside its bounds is at most `failure`.
    Assumes: draws are independent, or have this probability given all earlier ones.
    Proof: docs/proofs/sequential-audit.md
    """
    mixture = np.array(
        [
            math.lgamma(s + 0.5) + math.lgamma(draws - s + 0.5) - math.lgamma(draws + 1) - math.log(math.pi)
            for s in successes.tolist()
        ]
    )
    mean = successes / max(1, draws)

    def is_refuted(p: Floats) -> NDArray[np.bool_]:
        with np.errstate(divide="ignore", invalid="ignore"):
            hits = np.where(successes > 0, successes * np.log(p), 0.0)
            misses = np.where(successes < draws, (draws - successes) * np.log1p(-p), 0.0)
        refuted: NDArray[np.bool_] = mixture - hits - misses >= math.log(1 / failure)
        return refuted

    low, high = (_search(end, mean, is_refuted) for end in (np.zeros(mean.size), np.ones(mean.size)))
    return low, high


def _search(end: Floats, mean: Floats, is_refuted: Callable[[Floats], NDArray[np.bool_]]) -> Floats:
    """Bisect between an end and the mean; what is returned is refuted, or the end."""
    outside, inside = end.copy(), mean.astype(np.float64)
    at_end = is_refuted(end)
    for _ in range(50):
        middle = (outside + inside) / 2
        refuted = is_refuted(middle)
        outside = np.where(refuted, middle, outside)
        inside = np.where(refuted, inside, middle)
    bound: Floats = np.where(at_end, outside, end)
    return bound


@dataclass
class ThresholdTests:
    """Tests "from x if the score is above t", fixed before the draws that they are counted on."""

    score: Score
    thresholds: Floats
    failure: float
    """The chance that any of the bounds is ever wrong."""
    x_above: Integers = field(init=False)
    y_above: Integers = field(init=False)
    x_draws: int = 0
    y_draws: int = 0

    def __post_init__(self) -> None:
        self.x_above = np.zeros(self.thresholds.size, dtype=np.int64)
        self.y_above = np.zeros(self.thresholds.size, dtype=np.int64)

    def add(self, x: Floats, y: Floats) -> None:
        """Count new scores."""
        self.x_above += self._count_above(x)
        self.y_above += self._count_above(y)
        self.x_draws += x.size
        self.y_draws += y.size

    def _count_above(self, scores: Floats) -> Integers:
        numbers = scores[~np.isnan(scores)]
        place = np.searchsorted(self.thresholds, numbers, side="left")
        at_most = np.cumsum(np.bincount(place, minlength=self.thresholds.size + 1))[:-1]
        above: Integers = numbers.size - at_most
        return above

    def points(self) -> list[TradeoffPoint]:
        """Return upper bounds of the errors of each test, in both directions.

        Guarantee: all hold, at all times, with probability 1 − failure.
        """
        if not self.x_draws or not self.y_draws:
            return []
        share = self.failure / (2 * self.thresholds.size)
        x_low, x_high = probability_bounds(self.x_above, self.x_draws, share)
        y_low, y_high = probability_bounds(self.y_above, self.y_draws, share)
        forward = zip(y_high.tolist(), (1 - x_low).tolist(), strict=True)
        backward = zip((1 - y_low).tolist(), x_high.tolist(), strict=True)
        return [*forward, *backward]


def lower_hull(points: list[TradeoffPoint]) -> list[TradeoffPoint]:
    """Return the corners of the lower convex hull of points and of the tests that guess."""
    hull: list[TradeoffPoint] = []
    for point in sorted({(0.0, 1.0), (1.0, 0.0), *points}):
        while len(hull) > 1 and _turns_right(hull[-2], hull[-1], point):
            hull.pop()
        if not hull or point[0] > hull[-1][0]:
            hull.append(point)
    return hull


def _turns_right(one: TradeoffPoint, two: TradeoffPoint, three: TradeoffPoint) -> bool:
    return (two[0] - one[0]) * (three[1] - one[1]) <= (three[0] - one[0]) * (two[1] - one[1])
