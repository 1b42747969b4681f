"""k-means by Lloyd's algorithm: each iteration measures the noisy count and sum of every cluster.

Proof: docs/proofs/estimators.md, "Rounds"
"""

from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, ClassVar, Self, final

import numpy as np
from numpy.typing import NDArray

from hubbub.estimators.estimator import Estimator, to_matrix
from hubbub.estimators.fixed_point import (
    SCALE,
    FeatureBounds,
    class_moments,
    class_moments_sensitivity,
    exact_matmul,
    iter_chunks,
)
from hubbub.noise import uniform
from hubbub.numbers import parse_integer

__all__ = ["KMeans"]

Reals = NDArray[np.float64]

_CANDIDATES = 8
_START_FRACTION = 0.6
"""Centers start in this fraction of the bounds, around the middle: few rows are in the corners."""


@final
@dataclass(kw_only=True, eq=False, repr=False)
class KMeans(Estimator):
    """k-means clustering. The initial centers are random points within the bounds, independent of the rows.

    >>> rows = np.repeat([[1.0, 1.0], [9.0, 9.0]], 1000, axis=0)
    >>> model = KMeans(epsilon=1, bounds=(0, 10), n_clusters=2, account=None).fit(rows)
    >>> model.cluster_centers_.shape, str(model.loss_)
    ((2, 2), 'ε = 1')

    Guarantee: (ε, δ)-privacy of each fit. Rows with a non-finite value are ignored.
    Assumes: bounds are public.
    Proof: docs/proofs/estimators.md
    """

    n_clusters: int = 8
    """The number of clusters."""
    max_iter: int = 5
    """The number of iterations, all of which are run; each costs an equal share of the budget."""

    cluster_centers_: Reals = field(init=False)
    n_iter_: int = field(init=False)
    _feature_bounds_: FeatureBounds = field(init=False)
    _fixed_centers_: NDArray[np.int64] = field(init=False)
    estimator_type: ClassVar[str] = "clusterer"

    def fit(self, X: Any, y: Any = None, *, units: Any = None) -> Self:  # noqa: ARG002, N803
        """Charge, then assign rows and measure clusters, iteration by iteration.

        Args: as in `PCA.fit`.
        """
        rows = to_matrix(X)
        features = rows.shape[1]
        clusters, iterations = (
            parse_integer(self.n_clusters, "n_clusters"),
            parse_integer(self.max_iter, "max_iter"),
        )
        box, budget = self._feature_bounds(features), self._make_budget()
        self._check_units(units, len(rows))
        share, sensitivity = Fraction(1, iterations), class_moments_sensitivity(features, squares=False)
        measurer = self._charge(budget, (sensitivity, share))
        fixed, is_valid = self._to_fixed_point(box, rows, units)
        centers = _add_centers(clusters, box, np.zeros((0, features), dtype=np.int64))
        noise = measurer.noise_std(sensitivity, share) / SCALE**2
        for _ in range(iterations):
            codes = np.where(is_valid, _nearest_centers(fixed, centers), -1)
            exact = class_moments(fixed, codes, clusters, squares=False)
            sums = measurer.measure(exact, sensitivity, share, "sums of clusters") / SCALE**2
            # A cluster with a count that may be noise only starts again elsewhere.
            is_large = sums[:, 0] > 2 * noise
            means = np.clip(
                sums[is_large, 1:] / sums[is_large, :1], _finish(box, box.low), _finish(box, box.high)
            )
            centers = _add_centers(clusters, box, np.rint(means * SCALE).astype(np.int64))
        self._feature_bounds_, self._fixed_centers_ = box, centers
        return self._finish(
            measurer,
            {"cluster_centers_": box.from_scaled(centers / SCALE), "n_iter_": iterations},
            features,
            X,
        )

    def predict(self, X: Any) -> NDArray[np.int64]:  # noqa: N803
        """Return the index of the nearest center of each row, by scaled features clamped to the bounds."""
        rows = self._check_fitted(X)
        return _nearest_centers(self._feature_bounds_.to_fixed_point(rows)[0], self._fixed_centers_)


def _nearest_centers(fixed: NDArray[np.int16], centers: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the nearest center by ‖c‖² − 2x·c, in integers: ties go to the first."""
    nearest = np.zeros(len(fixed), dtype=np.int64)
    squares = (centers * centers).sum(axis=1)
    for rows_slice in iter_chunks(len(fixed)):
        products = exact_matmul(fixed[rows_slice], centers.T, 4 * fixed.shape[1] * SCALE**2)
        nearest[rows_slice] = np.argmin(squares - 2 * products, axis=1)
    return nearest


def _add_centers(clusters: int, box: FeatureBounds, centers: NDArray[np.int64]) -> NDArray[np.int64]:
    """Add random centers within the bounds, each the farthest of some candidates from those before it."""
    ends = _finish(box, box.low), _finish(box, box.high)
    middle, half = (ends[0] + ends[1]) / 2, _START_FRACTION * (ends[1] - ends[0]) / 2
    low, high = (np.rint(end * SCALE).astype(np.int64) for end in (middle - half, middle + half))

    def draw(count: int) -> NDArray[np.int64]:
        columns = [uniform(int(width) + 1, count) for width in high - low]
        points: NDArray[np.int64] = low + np.stack(columns, axis=1)
        return points

    centers = centers if len(centers) else draw(1)
    for _ in range(clusters - len(centers)):
        candidates = draw(_CANDIDATES)
        distances = ((candidates[:, None, :] - centers[None, :, :]) ** 2).sum(axis=2).min(axis=1)
        centers = np.vstack([centers, candidates[np.argmax(distances)]])
    return centers


def _finish(box: FeatureBounds, end: Reals) -> Reals:
    return (end - box.center) / box.radius
