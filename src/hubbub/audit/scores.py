"""Scores of outcomes: numbers as they are, categories by how often they came from x, and a learned score.

An audit bets on half-lines of a score. Whatever a score is, it is fixed before the draws that it is bet on,
so that it can be learned from all earlier ones; and the score of an outcome depends on that outcome alone.
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from hubbub.audit.outcomes import Outcomes

__all__ = [
    "CategoryScore",
    "LearnedScore",
    "NumberScore",
    "Score",
    "known_paths",
    "learn_categories",
    "learn_score",
    "make_number_score",
]

Floats = NDArray[np.float64]

_MAX_LEARNED = 8000
"""A learned score uses at most this many draws of each input."""
_MAX_FEATURES = 40
_SHRINKAGE = 3.0
"""Draws on each side that are added to every category, so that rare ones do not score high by chance."""
_REPEATED = 0.01
"""If fewer categories are seen twice, those that were seen once say nothing."""


class Score(Protocol):
    """A number for each outcome, with a name for people."""

    @property
    def name(self) -> str:
        """The column, or what it is called."""
        ...

    def __call__(self, outcomes: Outcomes) -> Floats:
        """Return the score of each outcome."""
        ...

    def describe(self, threshold: float, *, above: bool) -> str:
        """Describe a half-line in words."""
        ...


@dataclass(frozen=True)
class NumberScore:
    """A numeric column of the outcomes."""

    column: str
    paths: tuple[str, ...] = ()
    """The leaves that a sum or an extreme is of, fixed when the score is made."""

    @property
    def name(self) -> str:
        """The column."""
        return self.column

    def __call__(self, outcomes: Outcomes) -> Floats:
        """Return the column."""
        return outcomes.number(self.column, self.paths)

    def describe(self, threshold: float, *, above: bool) -> str:
        """Describe a half-line of the column."""
        kind, _, path = self.column.partition(" ")
        first, _, second = path.partition(" ")
        subject = {
            "value": f"y{path}",
            "bits": f"the exponent of the lowest bit of y{path}",
            "difference": f"y{first} − y{second}",
            "seconds": "the time in seconds",
        }.get(kind, f"the {kind} of y")
        return f"{subject} {'>' if above else '≤'} {threshold:.6g}"


@dataclass(frozen=True)
class CategoryScore:
    """Categories of a column, each scored by the logarithm of its odds on earlier draws."""

    column: str
    odds: Mapping[Hashable, float]
    paths: tuple[str, ...] = ()
    """The leaves that are compared with each other, fixed when the score is made."""

    @property
    def name(self) -> str:
        """The column."""
        return self.column

    def __call__(self, outcomes: Outcomes) -> Floats:
        """Return the score of each outcome's category, 0 for one that was not seen before."""
        column = outcomes.categories(self.column, self.paths)
        if isinstance(column, np.ndarray):
            known = np.array(list(self.odds), dtype=np.int64)
            order = np.argsort(known)
            odds = np.array(list(self.odds.values()))[order]
            place = np.minimum(np.searchsorted(known[order], column), known.size - 1)
            return np.where(known[order][place] == column, odds[place], 0.0)
        return np.fromiter((self.odds.get(each, 0.0) for each in column), np.float64, len(column))

    def describe(self, threshold: float, *, above: bool) -> str:
        """List the categories on one side of a threshold."""
        kind, _, path = self.column.partition(" ")
        inside = [each for each, odds in self.odds.items() if (odds > threshold) == above]
        inside.sort(key=lambda each: -abs(self.odds[each]))
        few = ", ".join(_show(each, kind) for each in inside[:4]) + (", …" if len(inside) > 4 else "")
        subject = {
            "atom": f"y{path}",
            "parity": f"y{path} mod 2",
            "text": f"y{path}",
            "order": "the order of the numbers of y",
            "equal": "the pattern of equal numbers in y",
            "shape": "the shape of y",
        }.get(kind, "y")
        return f"{subject} = {few}" if len(inside) == 1 else f"{subject} in {{{few}}}"


def _show(category: Hashable, kind: str) -> str:
    if kind == "atom" and isinstance(category, int):
        return repr(float(np.array([category], dtype=np.int64).view(np.float64)[0]))
    if isinstance(category, bytes):
        return category.hex()[:24]
    text = _show_shape(category) if isinstance(category, tuple) and kind == "shape" else repr(category)
    return text if len(text) <= 60 else text[:59] + "…"


def _show_shape(leaves: tuple[tuple[str, object], ...]) -> str:
    """Show the sizes and types of an answer's parts.

    >>> _show_shape((("#", 1), ("[north]", "float")))
    '(size 1, [north] float)'
    """
    parts = [
        f"{leaf[:-1]} size {kind}".strip() if leaf.endswith("#") else f"{leaf} {kind}".strip()
        for leaf, kind in leaves
    ]
    return f"({', '.join(parts)})"


@dataclass(frozen=True)
class LearnedScore:
    """A logistic regression on numbers, their squares and products, and on scored categories."""

    columns: tuple[str, ...]
    categories: tuple[CategoryScore, ...]
    center: Floats
    scale: Floats
    weights: Floats
    paths: tuple[str, ...] = ()
    """The leaves that sums and extremes are of, fixed when the score is made."""

    @property
    def name(self) -> str:
        """Its name."""
        return "learned"

    def __call__(self, outcomes: Outcomes) -> Floats:
        """Return the log-odds of each outcome."""
        raw = _features(outcomes, self.columns, self.categories, self.paths)
        with np.errstate(invalid="ignore", over="ignore"):
            scaled = np.clip(np.nan_to_num((raw - self.center) / self.scale), -8, 8)
        score: Floats = _expand(scaled) @ self.weights
        return score

    def describe(self, threshold: float, *, above: bool) -> str:
        """Name the score: it has too many terms to list."""
        return f"the learned score of y {'>' if above else '≤'} {threshold:.4g}"


def known_paths(x: Outcomes, y: Outcomes) -> tuple[str, ...]:
    """Return the paths of the numbers of past outcomes on both inputs."""
    return tuple(dict.fromkeys([*x.paths, *y.paths]))


def make_number_score(column: str, x: Outcomes, y: Outcomes) -> NumberScore:
    """Score by a numeric column; a sum or an extreme is of the leaves of these past outcomes."""
    return NumberScore(column, known_paths(x, y) if column in {"sum", "max", "min"} else ())


def learn_categories(column: str, x: Outcomes, y: Outcomes) -> CategoryScore | None:
    """Score the categories of a column; None if hardly any occurs twice."""
    paths = known_paths(x, y) if column in {"order", "equal"} else ()
    in_x, in_y = (_tally(outcomes.categories(column, paths)) for outcomes in (x, y))
    seen = set(in_x) | set(in_y)
    repeated = {each for each in seen if in_x.get(each, 0) + in_y.get(each, 0) > 1}
    if len(repeated) < _REPEATED * len(seen):
        # Nearly all of them are new each time. An atom among them is still an event.
        seen = {each for each in repeated if in_x.get(each, 0) + in_y.get(each, 0) > 2}
    if not seen:
        return None
    return CategoryScore(
        column,
        {
            each: float(np.log((in_x.get(each, 0) + _SHRINKAGE) / (in_y.get(each, 0) + _SHRINKAGE)))
            for each in sorted(seen, key=repr)
        },
        paths,
    )


def _tally(column: Sequence[Hashable] | NDArray[np.int64]) -> dict[Hashable, int]:
    if isinstance(column, np.ndarray):
        values, times = np.unique(column, return_counts=True)
        return dict(zip(values.tolist(), times.tolist(), strict=True))
    counts: dict[Hashable, int] = {}
    for each in column:
        counts[each] = counts.get(each, 0) + 1
    return counts


def learn_score(x: Outcomes, y: Outcomes, categories: tuple[CategoryScore, ...]) -> LearnedScore | None:
    """Fit a logistic regression to tell draws on x from draws on x′."""
    x, y = x.take(slice(-_MAX_LEARNED, None)), y.take(slice(-_MAX_LEARNED, None))
    columns = tuple(name for name in x.numeric_names() if not name.startswith("seconds"))[:_MAX_FEATURES]
    paths = known_paths(x, y)
    raw = np.concatenate([_features(outcomes, columns, categories, paths) for outcomes in (x, y)])
    if not raw.shape[1] or len(raw) < 40:
        return None
    raw[~np.isfinite(raw)] = np.nan
    missing = np.isnan(raw)
    counts = np.maximum(1, (~missing).sum(axis=0))
    center = np.where(missing, 0, raw).sum(axis=0) / counts
    spread = np.sqrt((np.where(missing, 0, raw - center) ** 2).sum(axis=0) / counts)
    scale = np.where(spread > 0, spread, 1.0)
    design = _expand(np.clip(np.nan_to_num((raw - center) / scale), -8, 8))
    label = np.concatenate([np.ones(len(x)), np.zeros(len(y))])
    weights, penalty = np.zeros(design.shape[1]), 1e-2 * len(design) * np.eye(design.shape[1])
    for _ in range(6):  # Newton's method
        chance = 1 / (1 + np.exp(-np.clip(design @ weights, -30, 30)))
        slope = design.T @ (label - chance) - penalty @ weights
        curvature = (design * (chance * (1 - chance))[:, None]).T @ design + penalty
        weights += np.linalg.solve(curvature, slope)
    return LearnedScore(columns, categories, center, scale, weights, paths)


def _features(
    outcomes: Outcomes,
    columns: tuple[str, ...],
    categories: tuple[CategoryScore, ...],
    paths: tuple[str, ...],
) -> Floats:
    parts = [outcomes.number(column, paths) for column in columns]
    parts += [score(outcomes) for score in categories]
    return np.stack(parts, axis=1) if parts else np.empty((len(outcomes), 0))


def _expand(scaled: Floats) -> Floats:
    """Add a constant, squares, and the products of the first few."""
    few = min(scaled.shape[1], 5)
    products = [scaled[:, i] * scaled[:, j] for i in range(few) for j in range(i)]
    parts = [np.ones((len(scaled), 1)), scaled, scaled**2]
    return np.concatenate([*parts, *(product[:, None] for product in products)], axis=1)
