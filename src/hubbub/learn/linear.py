"""Least squares from noisy second moments: one release, then a ridge as wide as its noise.

Proof: docs/proofs/estimators.md, "Moments"
"""

import math
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, ClassVar, Self, final

import numpy as np
from numpy.typing import NDArray

from hubbub.learn.estimator import Estimator, column, matrix
from hubbub.learn.fixed import STEPS, Box
from hubbub.learn.measuring import Measuring
from hubbub.learn.moments import gram, gram_sensitivity, unpacked
from hubbub.rational import Number, at_least_zero, positive

__all__ = ["LinearRegression", "limit_of", "measured_gram"]

Reals = NDArray[np.float64]


@final
@dataclass(kw_only=True, eq=False, repr=False)
class LinearRegression(Estimator):
    """Least squares, with a ridge that grows with the noise.

    >>> rows = np.arange(3000).reshape(-1, 1) % 11
    >>> model = LinearRegression(epsilon=1, bounds=(0, 10), target_bounds=(0, 40), account=None)
    >>> round(float(model.fit(rows, 3 * rows[:, 0] + 5).predict([[5]])[0]), -1)
    20.0

    Guarantee: (ε, δ)-privacy of each fit. Rows that are not finite, or whose answer is not, count as none.
    Assumes: the bounds of features and answers are public.
    Proof: docs/proofs/estimators.md
    """

    target_bounds: Any
    """(low, high) of y: public. What is outside is moved in."""
    norm: Number | None = None
    """Rows (features, y and 1, each scaled into −1 to 1) are scaled down to this norm, ℓ2 where δ > 0 and ℓ1
    where δ is 0: less noise, if most rows are below it."""
    alpha: Number | None = None
    """The ridge, beside the sum of squares of scaled features; None for one as wide as the noise."""

    coef_: Reals = field(init=False)
    intercept_: float = field(init=False)
    kind: ClassVar[str] = "regressor"

    def fit(self, X: Any, y: Any = None, *, units: Any = None) -> Self:  # noqa: N803
        """Charge, then measure Σuuᵀ of u = (x, y, 1), and solve."""
        rows = matrix(X)
        features = rows.shape[1]
        given = matrix(column(y, len(rows), type(self).__name__)[:, None])
        box, target = self._box(features), Box.of(self.target_bounds, 1, "target_bounds")
        ridge = None if self.alpha is None else float(at_least_zero(self.alpha, "alpha"))
        price, limit = self._price(), limit_of(self.norm)
        self._check_units(units, len(rows))
        price.mechanism(gram_sensitivity(features + 2, limit, price.norm), Fraction(1))
        measuring = self._begin(price)
        steps, counts = box.steps(rows)
        answers, known = target.steps(given)
        counts &= known & self._first_rows(units, len(rows))
        moments, noise = measured_gram(measuring, np.hstack([steps, answers]), counts, limit, Fraction(1))
        size = max(float(moments[-1, -1]), noise, 1.0)
        mean = moments[-1, :-1] / size
        spread = moments[:-1, :-1] / size - np.outer(mean, mean)
        wide = (ridge if ridge is not None else 0.5 * noise * math.sqrt(features)) / size
        values, vectors = np.linalg.eigh(spread[:-1, :-1])
        # Below zero there is nothing but noise.
        least = np.maximum(values, 0.0) + max(wide, 1e-12)
        scaled = vectors @ ((vectors.T @ spread[:-1, -1]) / least)
        slope = scaled * target.reach[0] / box.reach
        level = target.centre[0] + target.reach[0] * (mean[-1] - mean[:-1] @ scaled)
        learned = {"coef_": slope, "intercept_": float(level - slope @ box.centre)}
        return self._end(measuring, learned, features, X)

    def predict(self, X: Any) -> Reals:  # noqa: N803
        """The answers that are expected."""
        rows = self._fitted(X)
        answers: Reals = rows @ self.coef_ + self.intercept_
        return answers

    def score(self, X: Any, y: Any) -> float:  # noqa: N803
        """R² on these rows: exact, so only for rows that are nobody's secret."""
        wanted = np.asarray(y, dtype=np.float64)
        rest, all_of_it = wanted - self.predict(X), wanted - wanted.mean()
        return float(1 - (rest @ rest) / max(float(all_of_it @ all_of_it), 1e-300))


def limit_of(norm: Number | None) -> int | None:
    """A norm of scaled rows in steps, rounded down, and held where its square fits 64 bits."""
    return None if norm is None else min(max(1, math.floor(positive(norm, "norm") * STEPS)), 1 << 30)


def measured_gram(
    measuring: Measuring,
    steps: NDArray[np.int16],
    counts: NDArray[np.bool_],
    limit: int | None,
    share: Fraction,
) -> tuple[Reals, float]:
    """Σuuᵀ of u = (the columns, 1) over the rows that count, with noise; and the noise's deviation."""
    ones = np.full((len(steps), 1), STEPS, dtype=np.int16)
    rows = np.hstack([steps, ones])
    rows[~counts] = 0
    coordinates, norm = rows.shape[1], measuring.price.norm
    row = gram_sensitivity(coordinates, limit, norm)
    noisy = measuring.measure(gram(rows, limit, norm), row, share, "second moments")
    return unpacked(noisy, coordinates), measuring.deviation(row, share) / STEPS**2
