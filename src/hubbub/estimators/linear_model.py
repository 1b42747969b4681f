"""Linear models: least squares from noisy second moments, and logistic regression by noisy gradient steps.

Least squares takes one release of Σuuᵀ, and a ridge as wide as its noise. Logistic regression takes a few
noisy gradient steps, each multiplied by a preconditioner that was measured first. Everything is an integer
until the noise is added: rows, weights and residuals are fixed-point numbers, e^x is read from a table, and a
row's gradient is clipped by clipping its residual.

Proof: docs/proofs/estimators.md, "Moments" and "Logistic steps"
"""

import math
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, ClassVar, Self, final

import numpy as np
from numpy.typing import NDArray

from hubbub.estimators.estimator import Classifier, Estimator, to_matrix, to_target
from hubbub.estimators.fit_budget import FitBudget, FitMeasurer
from hubbub.estimators.fixed_point import (
    SCALE,
    FeatureBounds,
    clip_rows,
    exact_matmul,
    iter_chunks,
    second_moments,
    second_moments_sensitivity,
    unpack_symmetric,
)
from hubbub.noise import MAX_SCALE
from hubbub.numbers import (
    Number,
    ceil_sqrt,
    parse_below_one,
    parse_integer,
    parse_nonnegative,
    parse_positive,
)
from hubbub.sensitivity import Sensitivity

__all__ = ["LinearRegression", "LogisticRegression", "measure_second_moments", "norm_limit"]

Reals = NDArray[np.float64]
Integers = NDArray[np.int64]

_RESIDUAL_SCALE = 1 << 12
"""A residual of 1 as a fixed-point number."""
_EXP_TABLE = np.rint(np.exp(-np.arange(1 << 16) / (1 << 12)) * (1 << 30))
"""2^30·e^−x for x in steps of 2^-12, from 0 to 16."""
_MAX_WEIGHT_BITS = 24
_MAX_WEIGHT = 64.0
_SIZE_SHARE, _MATRIX_SHARE, _DIAGONAL_SHARE = Fraction(1, 25), Fraction(1, 5), Fraction(1, 12)
"""Shares of the budget for the number and norm of rows, and for Σuuᵀ or its diagonal."""
_SIZE_SCALE = 1 << 20
_SIZE_SENSITIVITY = Sensitivity(2 * _SIZE_SCALE, linf=_SIZE_SCALE)
"""One row moves the number of rows, and the sum of relative norms, by at most one each, in fixed point."""
_MIN_ITERATIONS, _MAX_ITERATIONS = {True: 8, False: 4}, 32
"""How many iterations: at least (with all of Σuuᵀ, with its diagonal), and at most."""
_MAX_RELATIVE_NOISE = {True: 0.00025, False: 0.004}
"""The noise of one step per row and clipping norm: as many iterations as keep it below this."""
_DEFAULT_CLIPPING = Fraction(2, 5)
_MATRIX_STEP_SIZE, _DIAGONAL_STEP_SIZE = 4.0, 2.0
"""The Hessian of the logistic loss is at most Σuuᵀ/4; with the diagonal alone, half that step is stable."""
_BACKTRACK_MIN_ITERATIONS, _BACKTRACK_FACTOR = 16, 0.25
"""With the diagonal and this many iterations, a step that went too far is undone; the next are shorter."""
_MAX_MATRIX_FEATURES = 512
"""With more features only the diagonal of Σuuᵀ is measured."""
_NORM_MARGIN = 1.25
"""Rows are clipped to this multiple of their mean norm."""


@final
@dataclass(kw_only=True, eq=False, repr=False)
class LinearRegression(Estimator):
    """Ordinary least squares with a ridge that grows with the noise.

    >>> rows = np.arange(3000).reshape(-1, 1) % 11
    >>> model = LinearRegression(epsilon=1, bounds=(0, 10), target_bounds=(0, 40), account=None)
    >>> round(float(model.fit(rows, 3 * rows[:, 0] + 5).predict([[5]])[0]), -1)
    20.0

    Guarantee: (ε, δ)-privacy of each fit. Rows with a feature or target that is not finite are ignored.
    Assumes: the bounds of features and target are public.
    Proof: docs/proofs/estimators.md
    """

    target_bounds: Any
    """(low, high) of y: public. Values outside are clamped."""
    data_norm: Number | None = None
    """Rows (features, y and 1, each scaled into −1 to 1) are clipped to this norm, ℓ2 if δ > 0 and
    ℓ1 if δ = 0. There is less noise, and no bias if most rows are below it."""
    alpha: Number | None = None
    """The ridge penalty for scaled features; None for one as wide as the noise."""

    coef_: Reals = field(init=False)
    intercept_: float = field(init=False)
    estimator_type: ClassVar[str] = "regressor"

    def fit(self, X: Any, y: Any = None, *, units: Any = None) -> Self:  # noqa: N803
        """Charge, then measure Σuuᵀ of u = (x, y, 1), and solve.

        Args:
            X: the rows, a table of numbers, clamped to the declared bounds.
            y: the target of each row, clamped to `target_bounds`.
            units: the privacy unit of each row, if `unit` has a key; else each row is one.
        """
        rows = to_matrix(X)
        features = rows.shape[1]
        targets = to_matrix(to_target(y, len(rows), type(self).__name__)[:, None])
        box, target = self._feature_bounds(features), FeatureBounds.of(self.target_bounds, 1, "target_bounds")
        ridge = None if self.alpha is None else float(parse_nonnegative(self.alpha, "alpha"))
        budget, limit = self._make_budget(), norm_limit(self.data_norm)
        self._check_units(units, len(rows))
        sensitivity = second_moments_sensitivity(features + 2, limit, budget.norm_order)
        measurer = self._charge(budget, (sensitivity, Fraction(1)))
        fixed, is_valid = self._to_fixed_point(box, rows, units)
        fixed_target, has_target = target.to_fixed_point(targets)
        is_valid &= has_target
        moments, noise = measure_second_moments(
            measurer, np.hstack([fixed, fixed_target]), is_valid, limit, Fraction(1)
        )
        size = max(float(moments[-1, -1]), noise, 1.0)
        mean = moments[-1, :-1] / size
        covariance = moments[:-1, :-1] / size - np.outer(mean, mean)
        ridge_per_row = (ridge if ridge is not None else 0.5 * noise * math.sqrt(features)) / size
        values, vectors = np.linalg.eigh(covariance[:-1, :-1])
        # Negative eigenvalues are noise.
        eigenvalues = np.maximum(values, 0.0) + max(ridge_per_row, 1e-12)
        scaled = vectors @ ((vectors.T @ covariance[:-1, -1]) / eigenvalues)
        coefficients = scaled * target.radius[0] / box.radius
        intercept = target.center[0] + target.radius[0] * (mean[-1] - mean[:-1] @ scaled)
        learned = {"coef_": coefficients, "intercept_": float(intercept - coefficients @ box.center)}
        return self._finish(measurer, learned, features, X)

    def predict(self, X: Any) -> Reals:  # noqa: N803
        """Return the predicted targets."""
        rows = self._check_fitted(X)
        predicted: Reals = rows @ self.coef_ + self.intercept_
        return predicted

    def score(self, X: Any, y: Any) -> float:  # noqa: N803
        """Return R² on these rows: exact, so use public rows only."""
        expected = np.asarray(y, dtype=np.float64)
        residuals, deviations = expected - self.predict(X), expected - expected.mean()
        return float(1 - (residuals @ residuals) / max(float(deviations @ deviations), 1e-300))


def norm_limit(norm: Number | None) -> int | None:
    """Return a norm of scaled rows in fixed point, rounded down; its square fits 64 bits."""
    return (
        None if norm is None else min(max(1, math.floor(parse_positive(norm, "data_norm") * SCALE)), 1 << 30)
    )


def measure_second_moments(
    measurer: FitMeasurer,
    fixed: NDArray[np.int16],
    is_valid: NDArray[np.bool_],
    limit: int | None,
    share: Fraction,
) -> tuple[Reals, float]:
    """Return a noisy Σuuᵀ of u = (the columns, 1) over the valid rows, and the noise's standard deviation."""
    ones = np.full((len(fixed), 1), SCALE, dtype=np.int16)
    rows = np.hstack([fixed, ones])
    rows[~is_valid] = 0
    coordinates, norm = rows.shape[1], measurer.budget.norm_order
    sensitivity = second_moments_sensitivity(coordinates, limit, norm)
    noisy = measurer.measure(second_moments(rows, limit, norm), sensitivity, share, "second moments")
    return unpack_symmetric(noisy, coordinates), measurer.noise_std(sensitivity, share) / SCALE**2


@final
@dataclass(kw_only=True, eq=False, repr=False)
class LogisticRegression(Classifier):
    """Logistic regression with two or more classes.

    It measures the number of rows and their mean norm first; then a preconditioner, from all of Σuuᵀ if its
    noise allows, or else from its diagonal; then the gradients, step by step.

    >>> rows = np.arange(9000).reshape(-1, 1) % 100
    >>> model = LogisticRegression(epsilon=1, bounds=(0, 100), classes=["low", "high"], account=None)
    >>> model.fit(rows, np.where(rows[:, 0] < 50, "low", "high")).predict([[10], [90]]).tolist()
    ['low', 'high']

    Guarantee: (ε, δ)-privacy of each fit. Rows with a non-finite value or an undeclared class are ignored.
    Assumes: bounds, classes and all other parameters are public.
    Proof: docs/proofs/estimators.md
    """

    max_iter: int | None = None
    """The number of iterations, all of which are run; None for 4 to 32, fewer if there is more noise."""
    n_samples: Number | None = None
    """The approximate number of rows if it is public; None to measure it."""
    data_norm: Number | None = None
    """Rows (features and 1, scaled into −1 to 1) are clipped to this norm, ℓ2 if δ > 0 and ℓ1 if
    δ = 0; None to measure the mean norm, and take 1.25 times that."""
    clipping_norm: Number | None = None
    """The largest norm of a per-example gradient; None for 2/5 of `data_norm`."""
    momentum: Number = 0.7
    """The momentum of the steps, below 1."""
    alpha: Number = 0
    """The weight of the penalty ‖w‖²/2, beside the sum over rows, for scaled features."""

    coef_: Reals = field(init=False)
    intercept_: Reals = field(init=False)
    n_iter_: int = field(init=False)
    _feature_bounds_: FeatureBounds = field(init=False)

    def fit(self, X: Any, y: Any = None, *, units: Any = None) -> Self:  # noqa: N803
        """Charge, then measure sizes, second moments and gradients, each for its share of the budget.

        Args:
            X: the rows, a table of numbers, clamped to the declared bounds.
            y: the class of each row, one of the declared `classes`.
            units: the privacy unit of each row, if `unit` has a key; else each row is one.
        """
        table = to_matrix(X)
        features, labels = table.shape[1], self._check_classes()
        targets = self._check_labels(y, len(table), labels)
        box, budget, parameters = (
            self._feature_bounds(features),
            self._make_budget(),
            self._check_parameters(),
        )
        self._check_units(units, len(table))
        _check_scales(budget, features + 1, parameters)
        measurer = self._charge(budget)
        fixed, is_valid = self._to_fixed_point(box, table, units)
        codes = np.where(is_valid, self._encode_labels(targets, labels), -1)
        rows = np.hstack([fixed, np.full((len(fixed), 1), SCALE, dtype=np.int16)])
        rows[codes < 0] = 0
        weights, iterations = _fit_weights(rows, codes, len(labels), measurer, parameters)
        slopes = weights[:, :-1] / box.radius
        learned = {
            "classes_": labels,
            "coef_": slopes,
            "n_iter_": iterations,
            "intercept_": weights[:, -1] - slopes @ box.center,
        }
        self._feature_bounds_ = box
        return self._finish(measurer, learned, features, X)

    def decision_function(self, X: Any) -> Reals:  # noqa: N803
        """Return the linear scores; for two classes, that of the second."""
        rows = self._check_fitted(X)
        rows = self._feature_bounds_.clamp(rows)
        scores: Reals = rows @ self.coef_.T + self.intercept_
        return scores[:, 0] if scores.shape[1] == 1 else scores

    def predict_proba(self, X: Any) -> Reals:  # noqa: N803
        """Return the probability of each class, row by row."""
        scores = self.decision_function(X)
        scores = np.stack([np.zeros(len(scores)), scores], axis=1) if scores.ndim == 1 else scores
        exponentials = np.exp(scores - scores.max(axis=1, keepdims=True))
        probabilities: Reals = exponentials / exponentials.sum(axis=1, keepdims=True)
        return probabilities

    def predict_log_proba(self, X: Any) -> Reals:  # noqa: N803
        """Return the log-probability of each class, row by row."""
        probabilities: Reals = np.log(np.maximum(self.predict_proba(X), 1e-300))
        return probabilities

    def _check_parameters(self) -> "_Parameters":
        return _Parameters(
            None if self.max_iter is None else parse_integer(self.max_iter, "max_iter"),
            None if self.n_samples is None else float(parse_positive(self.n_samples, "n_samples")),
            norm_limit(self.data_norm),
            None if self.clipping_norm is None else parse_positive(self.clipping_norm, "clipping_norm"),
            float(parse_below_one(self.momentum, "momentum")),
            float(parse_nonnegative(self.alpha, "alpha")),
        )


@dataclass(frozen=True)
class _Parameters:
    """The checked parameters of LogisticRegression."""

    max_iter: int | None
    n_samples: float | None
    limit: int | None
    clipping_norm: Fraction | None
    momentum: float
    alpha: float

    def clipping_limit(self, limit: int) -> int:
        """Return the clipping norm in fixed point (rows times residuals); a gradient is at most 2·limit."""
        bound = limit * _DEFAULT_CLIPPING if self.clipping_norm is None else self.clipping_norm * SCALE
        return max(1, math.floor(min(bound, Fraction(2 * limit)) * _RESIDUAL_SCALE))


def _check_scales(budget: FitBudget, coordinates: int, parameters: _Parameters) -> None:
    """Refuse, before anything is charged, noise that could not be sampled later."""
    limit = _declared_norm(parameters, coordinates, budget.norm_order) or _max_norm(
        coordinates, budget.norm_order
    )
    limit = limit if parameters.n_samples is not None else max(limit, SCALE)
    sensitivity = _gradient_sensitivity(parameters.clipping_limit(limit), coordinates, budget.norm_order)
    budget.mechanism(sensitivity, Fraction(1, 2) / (parameters.max_iter or _MAX_ITERATIONS))
    budget.mechanism(_diagonal_sensitivity(limit, budget.norm_order), _DIAGONAL_SHARE)
    budget.mechanism(_SIZE_SENSITIVITY, _SIZE_SHARE)


def _fit_weights(
    rows: NDArray[np.int16], codes: Integers, classes: int, measurer: FitMeasurer, parameters: _Parameters
) -> tuple[Reals, int]:
    """Return the weights for scaled features, one row per class (one for two classes), and the iterations."""
    norm_order, coordinates = measurer.budget.norm_order, rows.shape[1]
    size, limit = _measure_size(rows, codes, measurer, parameters)
    for rows_slice in iter_chunks(len(rows)):
        rows[rows_slice] = clip_rows(rows[rows_slice].astype(np.int64), limit, norm_order)
    preconditioner, is_matrix = _measure_preconditioner(rows, size, limit, measurer)
    columns = 1 if classes == 2 else classes
    clipping_limit = parameters.clipping_limit(limit)
    sensitivity = _gradient_sensitivity(clipping_limit, columns * coordinates, norm_order)
    iterations = parameters.max_iter or _choose_iterations(
        measurer, sensitivity, clipping_limit * size, is_matrix=is_matrix
    )
    share = measurer.remaining_share / iterations
    residual_limits = np.minimum(clipping_limit // np.maximum(_row_norms(rows, norm_order), 1), 1 << 30)
    weights, velocity, total = (np.zeros((columns, coordinates)) for _ in range(3))
    step_size = (_MATRIX_STEP_SIZE if is_matrix else _DIAGONAL_STEP_SIZE) / (1 if classes == 2 else 2)
    noise = measurer.noise_std(sensitivity, share) / (SCALE * _RESIDUAL_SCALE) / size
    may_backtrack = not is_matrix and iterations >= _BACKTRACK_MIN_ITERATIONS
    averaged = range(iterations - (iterations + 3) // 4, iterations)
    before = weights
    for iteration in range(iterations):
        lookahead = weights + parameters.momentum * velocity
        exact = _gradient(rows, codes, lookahead, residual_limits, norm_order)
        noisy = measurer.measure(exact, sensitivity, share, "clipped gradients") / (SCALE * _RESIDUAL_SCALE)
        gradient, step_taken = (noisy + parameters.alpha * lookahead) / size, lookahead - before
        if may_backtrack and (gradient * step_taken).sum() > 2 * noise * np.linalg.norm(step_taken):
            # It went too far, by more than noise explains: go back most of the way, and take smaller steps.
            weights, velocity, step_size = (
                before + _BACKTRACK_FACTOR * step_taken,
                np.zeros_like(velocity),
                _BACKTRACK_FACTOR * step_size,
            )
        else:
            velocity = parameters.momentum * velocity - step_size * (
                gradient @ preconditioner if is_matrix else gradient * preconditioner
            )
            weights = np.clip(weights + velocity, -_MAX_WEIGHT, _MAX_WEIGHT)
            before = lookahead
        total += weights if iteration in averaged else 0.0
    return total / len(averaged), iterations


def _choose_iterations(
    measurer: FitMeasurer, sensitivity: Sensitivity, signal: float, *, is_matrix: bool
) -> int:
    """Return as many iterations as keep the noise small: each gets an equal share of the remaining budget."""
    feasible = (
        iterations
        for iterations in range(_MIN_ITERATIONS[is_matrix], _MAX_ITERATIONS + 1)
        if measurer.noise_std(sensitivity, measurer.remaining_share / iterations)
        <= _MAX_RELATIVE_NOISE[is_matrix] * signal
    )
    return max(feasible, default=_MIN_ITERATIONS[is_matrix])


def _max_norm(coordinates: int, norm_order: int) -> int:
    """Return the largest norm of a row within the bounds."""
    return coordinates * SCALE if norm_order == 1 else math.ceil(ceil_sqrt(Fraction(coordinates)) * SCALE)


def _declared_norm(parameters: _Parameters, coordinates: int, norm_order: int) -> int | None:
    """Return the declared norm, at most the largest possible one."""
    return None if parameters.limit is None else min(parameters.limit, _max_norm(coordinates, norm_order))


def _measure_size(
    rows: NDArray[np.int16], codes: Integers, measurer: FitMeasurer, parameters: _Parameters
) -> tuple[float, int]:
    """Return the approximate number of rows, and the norm to clip them to: declared, or measured."""
    declared = _declared_norm(parameters, rows.shape[1], measurer.budget.norm_order)
    if parameters.n_samples is not None and declared is not None:
        return max(parameters.n_samples, 1.0), declared
    max_norm = _max_norm(rows.shape[1], measurer.budget.norm_order)
    # Each row adds 1 and its relative norm, both in fixed point.
    norms = _row_norms(rows, measurer.budget.norm_order) * _SIZE_SCALE // max_norm
    exact = [int((codes >= 0).sum()) * _SIZE_SCALE, int(np.minimum(norms, _SIZE_SCALE).sum())]
    noisy = (
        measurer.measure(np.array(exact), _SIZE_SENSITIVITY, _SIZE_SHARE, "number and norms") / _SIZE_SCALE
    )
    size = max(parameters.n_samples if parameters.n_samples is not None else float(noisy[0]), 1.0)
    mean = min(max(float(noisy[1]) / size, 0.0), 1.0) * max_norm
    limit = declared if declared is not None else math.ceil(min(_NORM_MARGIN * mean, max_norm))
    return size, min(max(limit, SCALE), 1 << 30)


def _row_norms(rows: NDArray[np.int16], norm_order: int) -> Integers:
    """Return the norm of each row in fixed point; ℓ2 is rounded up."""
    norms = np.zeros(len(rows), dtype=np.int64)
    for rows_slice in iter_chunks(len(rows)):
        chunk = rows[rows_slice].astype(np.int64)
        if norm_order == 1:
            norms[rows_slice] = np.abs(chunk).sum(axis=1)
        else:
            squares = np.einsum("ij,ij->i", chunk, chunk)
            root = np.sqrt(squares.astype(np.float64)).astype(np.int64)
            # Doubles may be off by one; integers decide.
            norms[rows_slice] = root + (root * root < squares) + ((root + 1) ** 2 < squares)
    return norms


def _measure_preconditioner(
    rows: NDArray[np.int16], size: float, limit: int, measurer: FitMeasurer
) -> tuple[Reals, bool]:
    """Return the preconditioner, and whether it is a matrix: the inverse of the mean of uuᵀ, or its diagonal.

    The noise is added to the eigenvalues or the diagonal, so that the inverse does not amplify it.
    """
    coordinates, norm_order = rows.shape[1], measurer.budget.norm_order
    sensitivity = second_moments_sensitivity(coordinates, limit, norm_order)
    # The largest eigenvalue of the noise, per row; and about the sum of the true eigenvalues.
    noise_eigenvalue = (
        2 * math.sqrt(coordinates) * measurer.noise_std(sensitivity, _MATRIX_SHARE) / SCALE**2 / size
    )
    trace = (limit / SCALE) ** norm_order
    is_feasible = (
        coordinates <= _MAX_MATRIX_FEATURES
        and measurer.budget.noise_scale(sensitivity, _MATRIX_SHARE) <= MAX_SCALE
    )
    if is_feasible and noise_eigenvalue <= trace / 12:
        noisy = measurer.measure(
            second_moments(rows, limit, norm_order), sensitivity, _MATRIX_SHARE, "second moments"
        )
        values, vectors = np.linalg.eigh(unpack_symmetric(noisy, coordinates) / size)
        return (vectors / (np.maximum(values, 0.0) + noise_eigenvalue / 2 + 0.01)) @ vectors.T, True
    total = np.zeros(coordinates, dtype=np.int64)
    for rows_slice in iter_chunks(len(rows)):
        chunk = rows[rows_slice].astype(np.int64)
        total += (chunk * chunk).sum(axis=0)
    diagonal = _diagonal_sensitivity(limit, norm_order)
    mean_squares = measurer.measure(total, diagonal, _DIAGONAL_SHARE, "squares") / SCALE**2 / size
    noise = measurer.noise_std(diagonal, _DIAGONAL_SHARE) / SCALE**2 / size
    return 1.0 / (np.maximum(mean_squares, 0.0) + noise + 0.05), False


def _diagonal_sensitivity(limit: int, norm_order: int) -> Sensitivity:
    """Return how far one row moves Σuⱼ²: by ‖u‖₂² in all, or at most ‖u‖₁·max|uⱼ|; ℓ2 is at most ℓ1."""
    return Sensitivity(limit * SCALE if norm_order == 1 else limit**2, linf=SCALE**2)


def _gradient_sensitivity(clipping_limit: int, coordinates: int, norm_order: int) -> Sensitivity:
    """Return how far one row moves a sum of gradients that are clipped to this limit."""
    if norm_order == 1:
        return Sensitivity(clipping_limit)
    return Sensitivity(
        math.ceil(ceil_sqrt(Fraction(coordinates)) * clipping_limit),
        l2_squared=clipping_limit * clipping_limit,
    )


def _gradient(
    rows: NDArray[np.int16], codes: Integers, weights: Reals, residual_limits: Integers, norm_order: int
) -> Integers:
    """Return Σ residual × row over all rows, in integers: one row of coordinates for each row of weights.

    Guarantee: one row moves it by at most its residual limit times ‖row‖, so at most the clipping limit.
    Proof: docs/proofs/estimators.md, "Logistic steps"
    """
    max_l1_norm = float(np.abs(weights).sum(axis=1).max())
    # As many bits as keep Σ|x·w| below 2^52: weights are public, and so is their rounding.
    bits = _MAX_WEIGHT_BITS
    while (max_l1_norm * 2**bits + weights.shape[1]) * SCALE >= 2**52:
        bits -= 1
    fixed = np.rint(weights * 2**bits)
    largest = int(np.abs(fixed).sum(axis=1).max()) * SCALE
    total = np.zeros(weights.shape, dtype=np.int64)
    for rows_slice in iter_chunks(len(rows)):
        chunk = rows[rows_slice].astype(np.float64)
        scores = exact_matmul(chunk, fixed.T, largest)
        all_scores = np.hstack([np.zeros((len(scores), 1)), scores]) if len(weights) == 1 else scores
        residuals = _residuals(all_scores, bits, codes[rows_slice])[:, -len(weights) :]
        clipped = clip_rows(residuals, residual_limits[rows_slice], norm_order)
        total += exact_matmul(clipped.T, chunk, len(chunk) * 2 * _RESIDUAL_SCALE * SCALE).astype(np.int64)
    return total


def _residuals(scores: Reals, bits: int, codes: Integers) -> Integers:
    """Return probabilities minus one-hot labels in fixed point; zero for a row that is ignored.

    It uses differences of integers, a table and one division: a row has the same result in any batch.
    """
    table_index = (scores.max(axis=1, keepdims=True) - scores) * 2.0 ** (12 - 14 - bits)
    exponentials = _EXP_TABLE[np.minimum(table_index, len(_EXP_TABLE) - 1).astype(np.int64)]
    probabilities = exponentials / exponentials.sum(axis=1, keepdims=True)
    residuals: Integers = np.rint(probabilities * _RESIDUAL_SCALE).astype(np.int64)
    residuals[codes[:, None] == np.arange(scores.shape[1])] -= _RESIDUAL_SCALE
    residuals[codes < 0] = 0
    return residuals
