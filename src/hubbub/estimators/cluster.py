"""k-means by Lloyd's rounds: each cluster's count and sum, measured with noise, a few times.

Proof: docs/proofs/estimators.md, "Rounds"
"""

from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, ClassVar, Self, final

import numpy as np
from numpy.typing import NDArray

from hubbub.estimators.estimator import Estimator, matrix
from hubbub.estimators.fixed_point import STEPS, Box, chunks, class_moments, class_sensitivity, exact_product
from hubbub.noise import uniform
from hubbub.numbers import parse_integer

__all__ = ["KMeans"]

Reals = NDArray[np.float64]

_CANDIDATES = 8
_INNER = 0.6
"""Centres start in this much of the bounds, about their middle: few rows are in the corners."""


@final
@dataclass(kw_only=True, eq=False, repr=False)
class KMeans(Estimator):
    """Centres such that rows are near one of them; they start anywhere in the bounds, whatever the rows.

    >>> rows = np.repeat([[1.0, 1.0], [9.0, 9.0]], 1000, axis=0)
    >>> model = KMeans(epsilon=1, bounds=(0, 10), n_clusters=2, account=None).fit(rows)
    >>> model.cluster_centers_.shape, str(model.loss_)
    ((2, 2), 'ε = 1')

    Guarantee: (ε, δ)-privacy of each fit. Rows that are not finite count as none.
    Assumes: bounds are public.
    Proof: docs/proofs/estimators.md
    """

    n_clusters: int = 8
    rounds: int = 5
    """How often all rows are assigned and centres moved: each costs its share of the price."""

    cluster_centers_: Reals = field(init=False)
    _box_: Box = field(init=False)
    _centres_: NDArray[np.int64] = field(init=False)
    kind: ClassVar[str] = "clusterer"

    def fit(self, X: Any, y: Any = None, *, units: Any = None) -> Self:  # noqa: ARG002, N803
        """Charge, then assign and measure, round by round."""
        rows = matrix(X)
        features = rows.shape[1]
        clusters, rounds = parse_integer(self.n_clusters, "n_clusters"), parse_integer(self.rounds, "rounds")
        box, price = self._box(features), self._price()
        self._check_units(units, len(rows))
        share, row = Fraction(1, rounds), class_sensitivity(features, squares=False)
        price.mechanism(row, share)  # what cannot be sampled is refused before anything is charged
        measuring = self._begin(price)
        steps, counts = box.steps(rows)
        counts &= self._first_rows(units, len(rows))
        centres = _spread_out(clusters, box, np.zeros((0, features), dtype=np.int64))
        noise = measuring.deviation(row, share) / STEPS**2
        for _ in range(rounds):
            codes = np.where(counts, _nearest(steps, centres), -1)
            exact = class_moments(steps, codes, clusters, squares=False)
            sums = measuring.measure(exact, row, share, "sums of clusters") / STEPS**2
            # A cluster whose count may be noise alone is tried elsewhere.
            known = sums[:, 0] > 2 * noise
            means = np.clip(sums[known, 1:] / sums[known, :1], _end(box, box.low), _end(box, box.high))
            centres = _spread_out(clusters, box, np.rint(means * STEPS).astype(np.int64))
        self._box_, self._centres_ = box, centres
        return self._end(measuring, {"cluster_centers_": box.reals(centres / STEPS)}, features, X)

    def predict(self, X: Any) -> NDArray[np.int64]:  # noqa: N803
        """The number of the centre nearest to each row, in scaled features; a row must be in the bounds."""
        rows = self._fitted(X)
        return _nearest(self._box_.steps(rows)[0], self._centres_)


def _nearest(steps: NDArray[np.int16], centres: NDArray[np.int64]) -> NDArray[np.int64]:
    """The nearest centre by ‖c‖² − 2x·c, in integers: ties go to the first."""
    nearest = np.zeros(len(steps), dtype=np.int64)
    squares = (centres * centres).sum(axis=1)
    for part in chunks(len(steps)):
        along = exact_product(steps[part], centres.T, 4 * steps.shape[1] * STEPS**2)
        nearest[part] = np.argmin(squares - 2 * along, axis=1)
    return nearest


def _spread_out(clusters: int, box: Box, centres: NDArray[np.int64]) -> NDArray[np.int64]:
    """These centres and random ones in the box, each the farthest of some candidates from those before it."""
    ends = _end(box, box.low), _end(box, box.high)
    middle, half = (ends[0] + ends[1]) / 2, _INNER * (ends[1] - ends[0]) / 2
    low, high = (np.rint(end * STEPS).astype(np.int64) for end in (middle - half, middle + half))

    def some(count: int) -> NDArray[np.int64]:
        drawn = [uniform(int(wide) + 1, count) for wide in high - low]
        placed: NDArray[np.int64] = low + np.stack(drawn, axis=1)
        return placed

    centres = centres if len(centres) else some(1)
    for _ in range(clusters - len(centres)):
        tried = some(_CANDIDATES)
        apart = ((tried[:, None, :] - centres[None, :, :]) ** 2).sum(axis=2).min(axis=1)
        centres = np.vstack([centres, tried[np.argmax(apart)]])
    return centres


def _end(box: Box, end: Reals) -> Reals:
    return (end - box.centre) / box.reach
