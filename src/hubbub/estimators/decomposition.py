"""Principal components of a noisy covariance.

Proof: docs/proofs/estimators.md, "Moments"
"""

from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, ClassVar, Self, final

import numpy as np
from numpy.typing import NDArray

from hubbub.errors import InvalidInput
from hubbub.estimators.estimator import Estimator, matrix
from hubbub.estimators.fixed_point import gram_sensitivity
from hubbub.estimators.linear_model import limit_of, measured_gram
from hubbub.numbers import Number, parse_integer

__all__ = ["PCA"]

Reals = NDArray[np.float64]


@final
@dataclass(kw_only=True, eq=False, repr=False)
class PCA(Estimator):
    """The directions in which rows vary most, of a covariance measured once with noise.

    >>> rows = np.arange(4000)[:, None] % 21 * np.array([[1.0, -1.0]])
    >>> pca = PCA(epsilon=1, bounds=(-20, 20), n_components=1, account=None).fit(rows)
    >>> bool(abs(pca.components_[0] @ [0.5**0.5, -(0.5**0.5)]) > 0.95)
    True

    Guarantee: (ε, δ)-privacy of each fit. Rows that are not finite count as none.
    Assumes: bounds are public.
    Proof: docs/proofs/estimators.md
    """

    n_components: int | None = None
    """How many directions; None for all."""
    norm: Number | None = None
    """Rows (features and 1, scaled into −1 to 1) are scaled down to this norm, ℓ2 where δ > 0 and ℓ1 where δ
    is 0: less noise, if most rows are below it."""

    components_: Reals = field(init=False)
    explained_variance_: Reals = field(init=False)
    explained_variance_ratio_: Reals = field(init=False)
    mean_: Reals = field(init=False)
    n_components_: int = field(init=False)
    kind: ClassVar[str] = "transformer"

    def fit(self, X: Any, y: Any = None, *, units: Any = None) -> Self:  # noqa: ARG002, N803
        """Charge, then measure Σuuᵀ of u = (x, 1)."""
        rows = matrix(X)
        features = rows.shape[1]
        wanted = features if self.n_components is None else parse_integer(self.n_components, "n_components")
        if wanted > features:
            raise InvalidInput(
                f"n_components is {wanted}, and there are {features} features",
                why="there are no more directions than features",
                fix="pass a smaller n_components",
            )
        box, price, limit = self._box(features), self._price(), limit_of(self.norm)
        self._check_units(units, len(rows))
        price.mechanism(gram_sensitivity(features + 1, limit, price.norm), Fraction(1))
        measuring = self._begin(price)
        steps, counts = box.steps(rows)
        counts &= self._first_rows(units, len(rows))
        moments, noise = measured_gram(measuring, steps, counts, limit, Fraction(1))
        size = max(float(moments[-1, -1]), noise, 1.0)
        mean = np.clip(moments[-1, :-1] / size, -1.0, 1.0)
        covariance = (moments[:-1, :-1] / size - np.outer(mean, mean)) * np.outer(box.reach, box.reach)
        values, vectors = np.linalg.eigh(covariance)
        variances = np.maximum(values[::-1], 0.0)
        learned = {
            "components_": vectors.T[::-1][:wanted].copy(),
            "explained_variance_": variances[:wanted],
            "explained_variance_ratio_": variances[:wanted] / max(float(variances.sum()), 1e-300),
            "mean_": box.reals(mean),
            "n_components_": wanted,
        }
        return self._end(measuring, learned, features, X)

    def transform(self, X: Any) -> Reals:  # noqa: N803
        """The rows along the components."""
        rows = self._fitted(X)
        along: Reals = (rows - self.mean_) @ self.components_.T
        return along

    def fit_transform(self, X: Any, y: Any = None, **given: Any) -> Reals:  # noqa: N803
        """Fit, then take the same rows along the components: these stay as secret as they were."""
        return self.fit(X, y, **given).transform(X)

    def inverse_transform(self, X: Any) -> Reals:  # noqa: N803
        """The rows that have these coordinates along the components."""
        back: Reals = matrix(X) @ self.components_ + self.mean_
        return back
