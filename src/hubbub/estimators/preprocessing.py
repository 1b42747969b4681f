"""Mean and spread of each feature, measured privately, to scale rows by.

Proof: docs/proofs/estimators.md, "Moments"
"""

from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, ClassVar, Self, final

import numpy as np
from numpy.typing import NDArray

from hubbub.estimators.estimator import Estimator, matrix
from hubbub.estimators.fixed_point import STEPS, class_moments, class_sensitivity

__all__ = ["StandardScaler", "spreads"]

Reals = NDArray[np.float64]


@final
@dataclass(kw_only=True, eq=False, repr=False)
class StandardScaler(Estimator):
    """Take each feature's mean away and divide by its standard deviation, both measured with noise.

    >>> rows = np.arange(2000).reshape(-1, 1) % 10
    >>> scaler = StandardScaler(epsilon=1, bounds=(0, 9), account=None).fit(rows)
    >>> 4 < float(scaler.mean_[0]) < 5, str(scaler.loss_)
    (True, 'ε = 1')

    Guarantee: (ε, δ)-privacy of each fit. Rows that are not finite count as none.
    Assumes: bounds are public.
    Proof: docs/proofs/estimators.md
    """

    mean_: Reals = field(init=False)
    var_: Reals = field(init=False)
    scale_: Reals = field(init=False)
    kind: ClassVar[str] = "transformer"

    def fit(self, X: Any, y: Any = None, *, units: Any = None) -> Self:  # noqa: ARG002, N803
        """Charge, then measure the sums of x and x²."""
        rows = matrix(X)
        features = rows.shape[1]
        box, price = self._box(features), self._price()
        self._check_units(units, len(rows))
        row = class_sensitivity(features)
        price.mechanism(row, Fraction(1))  # what cannot be sampled is refused before anything is charged
        measuring = self._begin(price)
        steps, counts = box.steps(rows)
        codes = np.where(counts & self._first_rows(units, len(rows)), 0, -1)
        noisy = measuring.measure(class_moments(steps, codes, 1), row, Fraction(1), "moments")
        noise = measuring.deviation(row, Fraction(1)) / STEPS**2
        mean, variance = spreads(noisy[0] / STEPS**2, features, noise)
        learned = {
            "mean_": box.reals(mean),
            "var_": box.reach**2 * variance,
            "scale_": box.reach * np.sqrt(variance),
        }
        return self._end(measuring, learned, features, X)

    def transform(self, X: Any) -> Reals:  # noqa: N803
        """The rows, scaled."""
        rows = self._fitted(X)
        scaled: Reals = (rows - self.mean_) / self.scale_
        return scaled

    def fit_transform(self, X: Any, y: Any = None, **given: Any) -> Reals:  # noqa: N803
        """Fit, then scale the same rows: these stay as secret as they were."""
        return self.fit(X, y, **given).transform(X)

    def inverse_transform(self, X: Any) -> Reals:  # noqa: N803
        """The rows as they were before scaling."""
        rows = self._fitted(X)
        back: Reals = rows * self.scale_ + self.mean_
        return back


def spreads(sums: Reals, features: int, noise: float) -> tuple[Reals, Reals]:
    """Mean and variance of scaled features from noisy (count, Σx, Σx²): post-processing.

    Both are held where numbers in −1 to 1 can have them, and the variance above what noise alone makes.
    """
    count = max(float(sums[0]), noise, 1.0)
    mean = np.clip(sums[1 : 1 + features] / count, -1.0, 1.0)
    variance = sums[1 + features :] / count - mean**2
    least = min(max(1e-9, noise / count), 1.0)
    return mean, np.clip(variance, least, 1.0)
