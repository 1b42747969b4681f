"""Standardization: the mean and variance of each feature, measured with noise.

Proof: docs/proofs/estimators.md, "Moments"
"""

from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, ClassVar, Self, final

import numpy as np
from numpy.typing import NDArray

from hubbub.estimators.estimator import Estimator, to_matrix
from hubbub.estimators.fixed_point import SCALE, class_moments, class_moments_sensitivity

__all__ = ["StandardScaler", "mean_and_variance"]

Reals = NDArray[np.float64]


@final
@dataclass(kw_only=True, eq=False, repr=False)
class StandardScaler(Estimator):
    """Subtract the mean of each feature and divide by its standard deviation, both measured with noise.

    >>> rows = np.arange(2000).reshape(-1, 1) % 10
    >>> scaler = StandardScaler(epsilon=1, bounds=(0, 9), account=None).fit(rows)
    >>> 4 < float(scaler.mean_[0]) < 5, str(scaler.loss_)
    (True, 'ε = 1')

    Guarantee: (ε, δ)-privacy of each fit. Rows with a non-finite value are ignored.
    Assumes: bounds are public.
    Proof: docs/proofs/estimators.md
    """

    mean_: Reals = field(init=False)
    var_: Reals = field(init=False)
    scale_: Reals = field(init=False)
    estimator_type: ClassVar[str] = "transformer"

    def fit(self, X: Any, y: Any = None, *, units: Any = None) -> Self:  # noqa: ARG002, N803
        """Charge, then measure the sums of x and x².

        Args: as in `PCA.fit`.
        """
        rows = to_matrix(X)
        features = rows.shape[1]
        box, budget = self._feature_bounds(features), self._make_budget()
        self._check_units(units, len(rows))
        sensitivity = class_moments_sensitivity(features)
        measurer = self._charge(budget, (sensitivity, Fraction(1)))
        fixed, is_valid = self._to_fixed_point(box, rows, units)
        codes = np.where(is_valid, 0, -1)
        noisy = measurer.measure(class_moments(fixed, codes, 1), sensitivity, Fraction(1), "moments")
        noise = measurer.noise_std(sensitivity, Fraction(1)) / SCALE**2
        mean, variance = mean_and_variance(noisy[0] / SCALE**2, features, noise)
        learned = {
            "mean_": box.from_scaled(mean),
            "var_": box.radius**2 * variance,
            "scale_": box.radius * np.sqrt(variance),
        }
        return self._finish(measurer, learned, features, X)

    def transform(self, X: Any) -> Reals:  # noqa: N803
        """Scale rows."""
        rows = self._check_fitted(X)
        scaled: Reals = (rows - self.mean_) / self.scale_
        return scaled

    def fit_transform(self, X: Any, y: Any = None, **options: Any) -> Reals:  # noqa: N803
        """Fit, then scale the same rows: the result is as sensitive as the rows."""
        return self.fit(X, y, **options).transform(X)

    def inverse_transform(self, X: Any) -> Reals:  # noqa: N803
        """Undo the scaling."""
        rows = self._check_fitted(X)
        restored: Reals = rows * self.scale_ + self.mean_
        return restored


def mean_and_variance(sums: Reals, features: int, noise: float) -> tuple[Reals, Reals]:
    """Return the mean and variance of scaled features from noisy (count, Σx, Σx²): post-processing.

    Both are clamped to what numbers in −1 to 1 can have, and the variance to at least the noise level.
    """
    count = max(float(sums[0]), noise, 1.0)
    mean = np.clip(sums[1 : 1 + features] / count, -1.0, 1.0)
    variance = sums[1 + features :] / count - mean**2
    min_variance = min(max(1e-9, noise / count), 1.0)
    return mean, np.clip(variance, min_variance, 1.0)
