"""Gaussian naive Bayes: each class's share, means and variances, from one noisy vector of sums.

Proof: docs/proofs/estimators.md, "Moments"
"""

from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Self, final

import numpy as np
from numpy.typing import NDArray

from hubbub.estimators.estimator import Classifier, matrix
from hubbub.estimators.fixed_point import STEPS, Box, class_moments, class_sensitivity
from hubbub.estimators.preprocessing import spreads

__all__ = ["GaussianNB"]

Reals = NDArray[np.float64]


@final
@dataclass(kw_only=True, eq=False, repr=False)
class GaussianNB(Classifier):
    """Naive Bayes with a normal law for each feature in each class.

    >>> rows = np.repeat([[1.0], [9.0]], 9000, axis=0) + np.tile([[-1.0], [1.0]], (9000, 1))
    >>> labels = np.repeat(["low", "high"], 9000)
    >>> model = GaussianNB(epsilon=1, bounds=(0, 10), classes=["low", "high"], account=None).fit(rows, labels)
    >>> model.predict([[2], [8]]).tolist()
    ['low', 'high']

    Guarantee: (ε, δ)-privacy of each fit. Rows that are not finite, or of no declared class, count as none.
    Assumes: bounds and classes are public.
    Proof: docs/proofs/estimators.md
    """

    class_count_: Reals = field(init=False)
    class_prior_: Reals = field(init=False)
    theta_: Reals = field(init=False)
    var_: Reals = field(init=False)
    _box_: Box = field(init=False)

    def fit(self, X: Any, y: Any = None, *, units: Any = None) -> Self:  # noqa: N803
        """Charge, then measure the sums of 1, x and x² of each class."""
        rows = matrix(X)
        features, labels = rows.shape[1], self._labels()
        given = self._answers(y, len(rows), labels)
        box, price = self._box(features), self._price()
        self._check_units(units, len(rows))
        row = class_sensitivity(features)
        price.mechanism(row, Fraction(1))  # what cannot be sampled is refused before anything is charged
        measuring = self._begin(price)
        steps, counts = box.steps(rows)
        codes = np.where(counts & self._first_rows(units, len(rows)), self._codes(given, labels), -1)
        noisy = measuring.measure(class_moments(steps, codes, len(labels)), row, Fraction(1), "moments")
        sums = noisy / STEPS**2
        noise = measuring.deviation(row, Fraction(1)) / STEPS**2
        made = [spreads(each, features, noise) for each in sums]
        size = np.maximum(sums[:, 0], 1.0)
        learned = {
            "classes_": labels,
            "class_count_": size,
            "class_prior_": size / size.sum(),
            "theta_": np.array([box.reals(mean) for mean, _ in made]),
            "var_": np.array([box.reach**2 * variance for _, variance in made]),
        }
        self._box_ = box
        return self._end(measuring, learned, features, X)

    def predict_log_proba(self, X: Any) -> Reals:  # noqa: N803
        """The logarithms of the chances of the classes, row by row."""
        rows = self._fitted(X)
        rows = np.clip(np.where(np.isnan(rows), self._box_.centre, rows), self._box_.low, self._box_.high)
        joint = np.log(self.class_prior_) + np.stack(
            [
                -0.5 * (np.log(variance) + (rows - mean) ** 2 / variance).sum(axis=1)
                for mean, variance in zip(self.theta_, self.var_, strict=True)
            ],
            axis=1,
        )
        joint -= joint.max(axis=1, keepdims=True)
        log_chances: Reals = joint - np.log(np.exp(joint).sum(axis=1, keepdims=True))
        return log_chances

    def predict_proba(self, X: Any) -> Reals:  # noqa: N803
        """The chances of the classes, row by row."""
        chances: Reals = np.exp(self.predict_log_proba(X))
        return chances
