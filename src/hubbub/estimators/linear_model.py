"""Least squares from noisy second moments: one release, then a ridge as wide as its noise.

Proof: docs/proofs/estimators.md, "Moments"
"""

import math
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, ClassVar, Self, final

import numpy as np
from numpy.typing import NDArray

from hubbub.estimators.estimator import Classifier, Estimator, column, matrix
from hubbub.estimators.fit_budget import Measuring, Price
from hubbub.estimators.fixed_point import (
    STEPS,
    Box,
    chunks,
    clipped,
    exact_product,
    gram,
    gram_sensitivity,
    unpacked,
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

__all__ = ["LinearRegression", "LogisticRegression", "limit_of", "measured_gram"]

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
        ridge = None if self.alpha is None else float(parse_nonnegative(self.alpha, "alpha"))
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
    return None if norm is None else min(max(1, math.floor(parse_positive(norm, "norm") * STEPS)), 1 << 30)


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


# Logistic regression by a few noisy steps, each scaled by a curvature that was measured first.
#
# Everything is integers until the noise is in: rows, weights and residuals are fixed-point numbers, e^x is
# read from a table, and a row's gradient is clipped by clipping its residual.
#
# Proved in docs/proofs/estimators.md, "Logistic steps

Integers = NDArray[np.int64]

_RESIDUAL = 1 << 12
"""A residual of 1 is so many steps."""
_TABLE = np.rint(np.exp(-np.arange(1 << 16) / (1 << 12)) * (1 << 30))
"""2^30·e^−x for x in steps of 2^-12, from 0 to 16."""
_FINEST_WEIGHT = 24
_LARGEST_WEIGHT = 64.0

_SIZE, _WHOLE, _DIAGONAL = Fraction(1, 25), Fraction(1, 5), Fraction(1, 12)
"""Shares of the price for the number and norm of rows, and for their curvature or its diagonal."""
_PARTS = 1 << 20
_SIZES = Sensitivity(2 * _PARTS, linf=_PARTS)
"""One row moves the number of rows, and the sum of norms, by at most one, of so many parts."""
_LEAST, _MOST = {True: 8, False: 4}, 32
"""How many steps: with the whole curvature, with its diagonal; and at most."""
_QUIET = {True: 0.00025, False: 0.004}
"""As many as leave their noise, per row and clip, below this: the whole curvature needs fewer."""
_CLIP = Fraction(2, 5)
_PACE, _SLOW = 4.0, 2.0
"""The logistic loss bends by at most a quarter of Σuuᵀ; with its diagonal alone, half that pace is steady."""
_MANY, _BACK = 16, 0.25
"""With the diagonal and so many steps, one that went too far is taken back, and the next are shorter."""
_MOST_FEATURES = 512
"""With more features the curvature is measured feature by feature alone."""
_ROOM = 1.25
"""Rows are clipped to so many times their mean norm."""


@final
@dataclass(kw_only=True, eq=False, repr=False)
class LogisticRegression(Classifier):
    """Logistic regression, of two classes or more.

    The number of rows and their mean norm are measured first; then the curvature: all of Σuuᵀ, if its noise
    allows, else its diagonal; then come the steps.

    >>> rows = np.arange(9000).reshape(-1, 1) % 100
    >>> model = LogisticRegression(epsilon=1, bounds=(0, 100), classes=["low", "high"], account=None)
    >>> model.fit(rows, np.where(rows[:, 0] < 50, "low", "high")).predict([[10], [90]]).tolist()
    ['low', 'high']

    Guarantee: (ε, δ)-privacy of each fit. Rows that are not finite, or of no declared class, count as none.
    Assumes: bounds, classes and whatever else is declared are public.
    Proof: docs/proofs/estimators.md
    """

    steps: int | None = None
    """How many; None for 4 to 32, the fewer the wider the noise."""
    rows: Number | None = None
    """About how many rows there are, where that is public; else it is measured."""
    norm: Number | None = None
    """Rows (features and 1, scaled into −1 to 1) are scaled down to this norm, ℓ2 where δ > 0 and ℓ1 where δ
    is 0; None to measure the mean and take some more."""
    clip: Number | None = None
    """The most that one row adds to a gradient, in that norm; None for 2/5 of `norm`."""
    momentum: Number = 0.7
    alpha: Number = 0
    """The weight of ‖w‖²/2 beside the sum over rows, for scaled features."""

    coef_: Reals = field(init=False)
    intercept_: Reals = field(init=False)
    _box_: Box = field(init=False)

    def fit(self, X: Any, y: Any = None, *, units: Any = None) -> Self:  # noqa: N803
        """Charge, then measure sizes, curvature and gradients, each for its share of the price."""
        table = matrix(X)
        features, labels = table.shape[1], self._labels()
        given = self._answers(y, len(table), labels)
        box, price, settings = self._box(features), self._price(), self._settings()
        self._check_units(units, len(table))
        _check_reach(price, features + 1, settings)
        measuring = self._begin(price)
        steps, counts = box.steps(table)
        codes = np.where(counts & self._first_rows(units, len(table)), self._codes(given, labels), -1)
        rows = np.hstack([steps, np.full((len(steps), 1), STEPS, dtype=np.int16)])
        rows[codes < 0] = 0
        weights = _descended(rows, codes, len(labels), measuring, settings)
        slopes = weights[:, :-1] / box.reach
        learned = {
            "classes_": labels,
            "coef_": slopes,
            "intercept_": weights[:, -1] - slopes @ box.centre,
        }
        self._box_ = box
        return self._end(measuring, learned, features, X)

    def decision_function(self, X: Any) -> Reals:  # noqa: N803
        """The linear scores; of two classes, that of the second."""
        rows = self._fitted(X)
        rows = np.clip(np.where(np.isnan(rows), self._box_.centre, rows), self._box_.low, self._box_.high)
        scores: Reals = rows @ self.coef_.T + self.intercept_
        return scores[:, 0] if scores.shape[1] == 1 else scores

    def predict_proba(self, X: Any) -> Reals:  # noqa: N803
        """The chances of the classes, row by row."""
        scores = self.decision_function(X)
        scores = np.stack([np.zeros(len(scores)), scores], axis=1) if scores.ndim == 1 else scores
        powers = np.exp(scores - scores.max(axis=1, keepdims=True))
        chances: Reals = powers / powers.sum(axis=1, keepdims=True)
        return chances

    def predict_log_proba(self, X: Any) -> Reals:  # noqa: N803
        """The logarithms of the chances of the classes, row by row."""
        chances: Reals = np.log(np.maximum(self.predict_proba(X), 1e-300))
        return chances

    def _settings(self) -> "_Settings":
        return _Settings(
            None if self.steps is None else parse_integer(self.steps, "steps"),
            None if self.rows is None else float(parse_positive(self.rows, "rows")),
            limit_of(self.norm),
            None if self.clip is None else parse_positive(self.clip, "clip"),
            float(parse_below_one(self.momentum, "momentum")),
            float(parse_nonnegative(self.alpha, "alpha")),
        )


@dataclass(frozen=True)
class _Settings:
    """The parameters, checked."""

    steps: int | None
    rows: float | None
    limit: int | None
    clip: Fraction | None
    momentum: float
    alpha: float

    @property
    def size_share(self) -> Fraction:
        return Fraction(0) if self.rows is not None and self.limit is not None else _SIZE

    def clip_at(self, limit: int) -> int:
        """The clip of a gradient, in steps of rows times steps of residuals; none is beyond 2·limit."""
        bound = self.clip * STEPS if self.clip is not None else limit * _CLIP
        return max(1, math.floor(min(bound, Fraction(2 * limit)) * _RESIDUAL))


def _check_reach(price: Price, coordinates: int, settings: _Settings) -> None:
    """Refuse, before anything is charged, what could not be sampled later."""
    limit = _declared(settings, coordinates, price.norm) or _widest(coordinates, price.norm)
    limit = limit if settings.rows is not None else max(limit, STEPS)
    row = _step_sensitivity(settings.clip_at(limit), coordinates, price.norm)
    price.mechanism(row, Fraction(1, 2) / (settings.steps or _MOST))
    price.mechanism(_diagonal_sensitivity(limit, price.norm), _DIAGONAL)
    price.mechanism(_SIZES, _SIZE)


def _descended(
    rows: NDArray[np.int16], codes: Integers, classes: int, measuring: Measuring, settings: _Settings
) -> Reals:
    """The weights after all steps, one row for each class (one in all for two), for scaled features."""
    norm, coordinates = measuring.price.norm, rows.shape[1]
    size, limit = _sized(rows, codes, measuring, settings)
    for part in chunks(len(rows)):
        rows[part] = clipped(rows[part].astype(np.int64), limit, norm)
    shape, is_whole = _curvature(rows, size, limit, measuring)
    columns = 1 if classes == 2 else classes
    most = settings.clip_at(limit)
    row = _step_sensitivity(most, columns * coordinates, norm)
    steps = settings.steps or _quiet_steps(measuring, row, most * size, is_whole=is_whole)
    share = measuring.left / steps
    caps = np.minimum(most // np.maximum(_lengths(rows, norm), 1), 1 << 30)
    weights, speed, total = (np.zeros((columns, coordinates)) for _ in range(3))
    pace = (_PACE if is_whole else _SLOW) / (1 if classes == 2 else 2)
    rough = measuring.deviation(row, share) / (STEPS * _RESIDUAL) / size
    careful = not is_whole and steps >= _MANY
    last = range(steps - (steps + 3) // 4, steps)
    before = weights
    for step in range(steps):
        ahead = weights + settings.momentum * speed
        exact = _gradient(rows, codes, ahead, caps, norm)
        noisy = measuring.measure(exact, row, share, "clipped gradients") / (STEPS * _RESIDUAL)
        slope, moved = (noisy + settings.alpha * ahead) / size, ahead - before
        if careful and (slope * moved).sum() > 2 * rough * np.linalg.norm(moved):
            # It has gone too far, by more than noise explains: back most of the way, and slower.
            weights, speed, pace = before + _BACK * moved, np.zeros_like(speed), _BACK * pace
        else:
            speed = settings.momentum * speed - pace * (slope @ shape if is_whole else slope * shape)
            weights = np.clip(weights + speed, -_LARGEST_WEIGHT, _LARGEST_WEIGHT)
            before = ahead
        total += weights if step in last else 0.0
    return total / len(last)


def _quiet_steps(measuring: Measuring, row: Sensitivity, clips: float, *, is_whole: bool) -> int:
    """As many steps as leave their noise small: of T steps each has the T-th part of what is left."""
    quiet = (
        steps
        for steps in range(_LEAST[is_whole], _MOST + 1)
        if measuring.deviation(row, measuring.left / steps) <= _QUIET[is_whole] * clips
    )
    return max(quiet, default=_LEAST[is_whole])


def _widest(coordinates: int, norm: int) -> int:
    """The largest norm that a row in the box can have."""
    return coordinates * STEPS if norm == 1 else math.ceil(ceil_sqrt(Fraction(coordinates)) * STEPS)


def _declared(settings: _Settings, coordinates: int, norm: int) -> int | None:
    """The norm that is declared, no wider than rows are."""
    return None if settings.limit is None else min(settings.limit, _widest(coordinates, norm))


def _sized(
    rows: NDArray[np.int16], codes: Integers, measuring: Measuring, settings: _Settings
) -> tuple[float, int]:
    """About how many rows there are, and the norm to clip them to: declared, or measured."""
    declared = _declared(settings, rows.shape[1], measuring.price.norm)
    if settings.rows is not None and declared is not None:
        return max(settings.rows, 1.0), declared
    widest = _widest(rows.shape[1], measuring.price.norm)
    # Of each row 1 and its norm, both in parts of _PARTS.
    lengths = _lengths(rows, measuring.price.norm) * _PARTS // widest
    exact = [int((codes >= 0).sum()) * _PARTS, int(np.minimum(lengths, _PARTS).sum())]
    noisy = measuring.measure(np.array(exact), _SIZES, _SIZE, "number and norms") / _PARTS
    size = max(settings.rows if settings.rows is not None else float(noisy[0]), 1.0)
    mean = min(max(float(noisy[1]) / size, 0.0), 1.0) * widest
    limit = declared if declared is not None else math.ceil(min(_ROOM * mean, widest))
    return size, min(max(limit, STEPS), 1 << 30)


def _lengths(rows: NDArray[np.int16], norm: int) -> Integers:
    """The norm of each row, in steps; ℓ2 rounded up."""
    lengths = np.zeros(len(rows), dtype=np.int64)
    for part in chunks(len(rows)):
        taken = rows[part].astype(np.int64)
        if norm == 1:
            lengths[part] = np.abs(taken).sum(axis=1)
        else:
            squares = np.einsum("ij,ij->i", taken, taken)
            root = np.sqrt(squares.astype(np.float64)).astype(np.int64)
            # Doubles may be off by one; integers decide.
            lengths[part] = root + (root * root < squares) + ((root + 1) ** 2 < squares)
    return lengths


def _curvature(rows: NDArray[np.int16], size: float, limit: int, measuring: Measuring) -> tuple[Reals, bool]:
    """What a gradient is multiplied by, and whether it is a matrix: (Σuuᵀ)⁻¹ per row, or its diagonal.

    Both are widened by their noise.
    """
    coordinates, norm = rows.shape[1], measuring.price.norm
    row = gram_sensitivity(coordinates, limit, norm)
    # The largest eigenvalue of the noise, per row; and about what the true ones add up to.
    radius = 2 * math.sqrt(coordinates) * measuring.deviation(row, _WHOLE) / STEPS**2 / size
    trace = (limit / STEPS) ** norm
    can_be = coordinates <= _MOST_FEATURES and measuring.price.scale(row, _WHOLE) <= MAX_SCALE
    if can_be and radius <= trace / 12:
        noisy = measuring.measure(gram(rows, limit, norm), row, _WHOLE, "second moments")
        values, vectors = np.linalg.eigh(unpacked(noisy, coordinates) / size)
        return (vectors / (np.maximum(values, 0.0) + radius / 2 + 0.01)) @ vectors.T, True
    total = np.zeros(coordinates, dtype=np.int64)
    for part in chunks(len(rows)):
        taken = rows[part].astype(np.int64)
        total += (taken * taken).sum(axis=0)
    diagonal = _diagonal_sensitivity(limit, norm)
    spread = measuring.measure(total, diagonal, _DIAGONAL, "squares") / STEPS**2 / size
    rough = measuring.deviation(diagonal, _DIAGONAL) / STEPS**2 / size
    return 1.0 / (np.maximum(spread, 0.0) + rough + 0.05), False


def _diagonal_sensitivity(limit: int, norm: int) -> Sensitivity:
    """How far one row moves Σuⱼ²: ‖u‖₂² in all, or at most ‖u‖₁·max|uⱼ|; ℓ2 is no more than ℓ1."""
    return Sensitivity(limit * STEPS if norm == 1 else limit**2, linf=STEPS**2)


def _step_sensitivity(most: int, cells: int, norm: int) -> Sensitivity:
    """How far one row moves a sum of gradients that are clipped to `most`."""
    if norm == 1:
        return Sensitivity(most)
    return Sensitivity(math.ceil(ceil_sqrt(Fraction(cells)) * most), l2_squared=most * most)


def _gradient(
    rows: NDArray[np.int16], codes: Integers, weights: Reals, caps: Integers, norm: int
) -> Integers:
    """Σ of residual × row over all rows, in integers: one row of cells for each row of weights.

    Guarantee: one row moves it by no more than cap·‖row‖ in the norm, which is no more than the clip.
    Proof: docs/proofs/estimators.md, "Logistic steps"
    """
    longest = float(np.abs(weights).sum(axis=1).max())
    # As fine as keeps Σ|x·w| below 2^52: weights are public, and so is how they are rounded.
    bits = _FINEST_WEIGHT
    while (longest * 2**bits + weights.shape[1]) * STEPS >= 2**52:
        bits -= 1
    fixed = np.rint(weights * 2**bits)
    largest = int(np.abs(fixed).sum(axis=1).max()) * STEPS
    total = np.zeros(weights.shape, dtype=np.int64)
    for part in chunks(len(rows)):
        taken = rows[part].astype(np.float64)
        scores = exact_product(taken, fixed.T, largest)
        whole_scores = np.hstack([np.zeros((len(scores), 1)), scores]) if len(weights) == 1 else scores
        residuals = _residuals(whole_scores, bits, codes[part])[:, -len(weights) :]
        held = clipped(residuals, caps[part], norm)
        total += exact_product(held.T, taken, len(taken) * 2 * _RESIDUAL * STEPS).astype(np.int64)
    return total


def _residuals(scores: Reals, bits: int, codes: Integers) -> Integers:
    """The chances of the classes less 1 for the true one, in steps; zero for a row that does not count.

    Differences of integers, a table, one division: the same for a row wherever it stands.
    """
    below = (scores.max(axis=1, keepdims=True) - scores) * 2.0 ** (12 - 14 - bits)
    powers = _TABLE[np.minimum(below, len(_TABLE) - 1).astype(np.int64)]
    chances = powers / powers.sum(axis=1, keepdims=True)
    residuals: Integers = np.rint(chances * _RESIDUAL).astype(np.int64)
    residuals[codes[:, None] == np.arange(scores.shape[1])] -= _RESIDUAL
    residuals[codes < 0] = 0
    return residuals
