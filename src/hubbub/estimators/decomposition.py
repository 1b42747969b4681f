"""Principal components of a noisy covariance.

Proof: docs/proofs/estimators.md, "Moments"
"""

from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, ClassVar, Self, final

import numpy as np
from numpy.typing import NDArray

from hubbub.errors import InvalidInput
from hubbub.estimators.estimator import Estimator, to_matrix
from hubbub.estimators.fixed_point import second_moments_sensitivity
from hubbub.estimators.linear_model import measure_second_moments, norm_limit
from hubbub.numbers import Number, parse_integer

__all__ = ["PCA"]

Reals = NDArray[np.float64]


@final
@dataclass(kw_only=True, eq=False, repr=False)
class PCA(Estimator):
    """Principal component analysis of a covariance that is measured once with noise.

    >>> rows = np.arange(4000)[:, None] % 21 * np.array([[1.0, -1.0]])
    >>> pca = PCA(epsilon=1, bounds=(-20, 20), n_components=1, account=None).fit(rows)
    >>> bool(abs(pca.components_[0] @ [0.5**0.5, -(0.5**0.5)]) > 0.95)
    True

    Guarantee: (ε, δ)-privacy of each fit. Rows with a non-finite value are ignored.
    Assumes: bounds are public.
    Proof: docs/proofs/estimators.md
    """

    n_components: int | None = None
    """The number of components; None for all."""
    data_norm: Number | None = None
    """Rows (features and 1, scaled into −1 to 1) are clipped to this norm, ℓ2 if δ > 0 and ℓ1 if
    δ = 0. There is less noise, and no bias if most rows are below it."""

    components_: Reals = field(init=False)
    explained_variance_: Reals = field(init=False)
    explained_variance_ratio_: Reals = field(init=False)
    mean_: Reals = field(init=False)
    n_components_: int = field(init=False)
    estimator_type: ClassVar[str] = "transformer"

    def fit(self, X: Any, y: Any = None, *, units: Any = None) -> Self:  # noqa: ARG002, N803
        """Charge, then measure Σuuᵀ of u = (x, 1).

        Args:
            X: the rows, a table of numbers, clamped to the declared bounds.
            y: ignored, as in scikit-learn.
            units: the privacy unit of each row, if `unit` has a key; else each row is one.
        """
        rows = to_matrix(X)
        features = rows.shape[1]
        components = (
            features if self.n_components is None else parse_integer(self.n_components, "n_components")
        )
        if components > features:
            raise InvalidInput(
                f"n_components is {components}, and there are {features} features",
                why="there are no more components than features",
                fix="pass a smaller n_components",
            )
        box, budget, limit = self._feature_bounds(features), self._make_budget(), norm_limit(self.data_norm)
        self._check_units(units, len(rows))
        sensitivity = second_moments_sensitivity(features + 1, limit, budget.norm_order)
        measurer = self._charge(budget, (sensitivity, Fraction(1)))
        fixed, is_valid = self._to_fixed_point(box, rows, units)
        moments, noise = measure_second_moments(measurer, fixed, is_valid, limit, Fraction(1))
        size = max(float(moments[-1, -1]), noise, 1.0)
        mean = np.clip(moments[-1, :-1] / size, -1.0, 1.0)
        covariance = (moments[:-1, :-1] / size - np.outer(mean, mean)) * np.outer(box.radius, box.radius)
        values, vectors = np.linalg.eigh(covariance)
        variances = np.maximum(values[::-1], 0.0)
        learned = {
            "components_": vectors.T[::-1][:components].copy(),
            "explained_variance_": variances[:components],
            "explained_variance_ratio_": variances[:components] / max(float(variances.sum()), 1e-300),
            "mean_": box.from_scaled(mean),
            "n_components_": components,
        }
        return self._finish(measurer, learned, features, X)

    def transform(self, X: Any) -> Reals:  # noqa: N803
        """Project rows on the components."""
        rows = self._check_fitted(X)
        projected: Reals = (rows - self.mean_) @ self.components_.T
        return projected

    def fit_transform(self, X: Any, y: Any = None, **options: Any) -> Reals:  # noqa: N803
        """Fit, then project the same rows: the result is as sensitive as the rows."""
        return self.fit(X, y, **options).transform(X)

    def inverse_transform(self, X: Any) -> Reals:  # noqa: N803
        """Map projected rows back to the original features."""
        restored: Reals = to_matrix(X) @ self.components_ + self.mean_
        return restored
