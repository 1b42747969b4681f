"""Gaussian naive Bayes: the prior, means and variances of each class, from one noisy vector of sums.

Proof: docs/proofs/estimators.md, "Moments"
"""

from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Self, final

import numpy as np
from numpy.typing import NDArray

from hubbub.estimators.estimator import Classifier, to_matrix
from hubbub.estimators.fixed_point import SCALE, FeatureBounds, class_moments, class_moments_sensitivity
from hubbub.estimators.preprocessing import mean_and_variance

__all__ = ["GaussianNB"]

Reals = NDArray[np.float64]


@final
@dataclass(kw_only=True, eq=False, repr=False)
class GaussianNB(Classifier):
    """Naive Bayes with a Gaussian for each feature in each class.

    >>> rows = np.repeat([[1.0], [9.0]], 9000, axis=0) + np.tile([[-1.0], [1.0]], (9000, 1))
    >>> labels = np.repeat(["low", "high"], 9000)
    >>> model = GaussianNB(epsilon=1, bounds=(0, 10), classes=["low", "high"], account=None).fit(rows, labels)
    >>> model.predict([[2], [8]]).tolist()
    ['low', 'high']

    Guarantee: (ε, δ)-privacy of each fit. Rows with a non-finite value or an undeclared class are ignored.
    Assumes: bounds and classes are public.
    Proof: docs/proofs/estimators.md
    """

    class_count_: Reals = field(init=False)
    class_prior_: Reals = field(init=False)
    theta_: Reals = field(init=False)
    var_: Reals = field(init=False)
    _feature_bounds_: FeatureBounds = field(init=False)

    def fit(self, X: Any, y: Any = None, *, units: Any = None) -> Self:  # noqa: N803
        """Charge, then measure the sums of 1, x and x² per class.

        Args: as in `LogisticRegression.fit`.
        """
        rows = to_matrix(X)
        features, labels = rows.shape[1], self._check_classes()
        targets = self._check_labels(y, len(rows), labels)
        box, budget = self._feature_bounds(features), self._make_budget()
        self._check_units(units, len(rows))
        sensitivity = class_moments_sensitivity(features)
        measurer = self._charge(budget, (sensitivity, Fraction(1)))
        fixed, is_valid = self._to_fixed_point(box, rows, units)
        codes = np.where(is_valid, self._encode_labels(targets, labels), -1)
        noisy = measurer.measure(
            class_moments(fixed, codes, len(labels)), sensitivity, Fraction(1), "moments"
        )
        sums = noisy / SCALE**2
        noise = measurer.noise_std(sensitivity, Fraction(1)) / SCALE**2
        moments = [mean_and_variance(each, features, noise) for each in sums]
        size = np.maximum(sums[:, 0], 1.0)
        learned = {
            "classes_": labels,
            "class_count_": size,
            "class_prior_": size / size.sum(),
            "theta_": np.array([box.from_scaled(mean) for mean, _ in moments]),
            "var_": np.array([box.radius**2 * variance for _, variance in moments]),
        }
        self._feature_bounds_ = box
        return self._finish(measurer, learned, features, X)

    def predict_log_proba(self, X: Any) -> Reals:  # noqa: N803
        """Return the log-probability of each class, row by row."""
        rows = self._check_fitted(X)
        rows = self._feature_bounds_.clamp(rows)
        joint = np.log(self.class_prior_) + np.stack(
            [
                -0.5 * (np.log(variance) + (rows - mean) ** 2 / variance).sum(axis=1)
                for mean, variance in zip(self.theta_, self.var_, strict=True)
            ],
            axis=1,
        )
        joint -= joint.max(axis=1, keepdims=True)
        log_probabilities: Reals = joint - np.log(np.exp(joint).sum(axis=1, keepdims=True))
        return log_probabilities

    def predict_proba(self, X: Any) -> Reals:  # noqa: N803
        """Return the probability of each class, row by row."""
        probabilities: Reals = np.exp(self.predict_log_proba(X))
        return probabilities
