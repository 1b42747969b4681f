"""What every aggregate is: one vector of integers for each group, and how its answers are estimated from it.

Proof: docs/proofs/intervals.md
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray
from sqlglot import exp

from hubbub.numbers import Number
from hubbub.sensitivity import MAX_MAGNITUDE
from hubbub.sql.complementary_parts import WEIGHT_BITS
from hubbub.sql.contribution_bounding import ContributionBounding
from hubbub.sql.moments import (
    Estimate,
    Floats,
    Noise,
    estimate_linear,
    estimate_quotient,
    linear_half_width,
)
from hubbub.sql.query import BoundedAggregate

__all__ = [
    "AdditiveAggregate",
    "Affine",
    "Aggregate",
    "Estimator",
    "count_parts",
    "estimate_ratio",
    "integer_error",
    "near_limit",
    "parse_affine_ratio",
    "weight_error",
]

_MAX_WEIGHTED_ROWS = 1 << 28
"""Intervals hold for groups of at most this many rows of units above their bound: each loses up to one step
of its weight."""

_FACTORS = 2.0**-200, 2.0**200
"""Weights of a sum of aggregates that is read as one: others are computed step by step."""

_NOT_EMPTY = Fraction(95, 100)
"""How surely a group's noisy count has to show a row. One empty group in forty passes by chance."""

Estimator = Callable[[int, Number], Estimate]
"""The answer to the aggregate at an index, at a confidence, for each group."""
Affine = tuple[Mapping[int, float], float]
"""A weighted sum of aggregates, by their indices, and a number added to it."""


@dataclass(frozen=True)
class Aggregate(ABC):
    """Abstract: what is released for each group, and the aggregate calls that it answers."""

    indices: tuple[int, ...]
    """Indices of the aggregate calls it answers."""

    @property
    def is_count(self) -> bool:
        """True if it counts the rows or units of a group, and nothing else."""
        return False

    @property
    def can_select(self) -> bool:
        """True if its integers are parts of a group's rows or units: their total can select its key."""
        return self.is_count

    @property
    def counts_missing(self) -> bool:
        """True if that total is of all rows or units of a group, not of those that have a value."""
        return self.is_count

    @property
    def is_by_groups(self) -> bool:
        """True if a unit counts once in each of its groups, whatever its rows there are."""
        return False

    @property
    def reason(self) -> str:
        """Why it is released in this way, in words; empty where there is no choice."""
        return ""

    @abstractmethod
    def bound(self, bounding: ContributionBounding) -> BoundedAggregate:
        """The query to the engine."""

    def to_vector(self, bounded: BoundedAggregate, table: NDArray[np.int64]) -> NDArray[np.int64]:
        """The integers that one unit moves within the sensitivity, from a table of (groups, columns)."""
        return table.reshape(-1)


@dataclass(frozen=True)
class AdditiveAggregate(Aggregate):
    """Abstract: one vector of integers for each group, to which noise is added."""

    def vector_size(self, bounded: BoundedAggregate) -> int:
        """Number of integers that are released for each group."""
        return bounded.columns

    def may_be_clamped(self, noisy: NDArray[np.int64], noise: Noise, confidence: Number) -> NDArray[np.bool_]:
        """Groups of which an integer may have been cut before the noise, where sums are held in 64 bits.

        Guarantee: one of which an integer was cut is among them, with at least this confidence.
        Proof: docs/proofs/intervals.md, "Saturated sums"
        """
        return near_limit(noisy, MAX_MAGNITUDE, noise, confidence)

    def rounding_error(self, bounded: BoundedAggregate) -> float:
        """Maximal distance, in steps, between an exact integer and that of unrounded values and weights.

        Guarantee: so it is in groups of at most 2^34 rows, 2^28 of them of units above a contribution
        bound (2^27 where
            groups, and rows in each, are limited).
        Proof: docs/proofs/intervals.md, "The grid"
        """
        return weight_error(bounded) + 0.5 if bounded.is_weighted else 0.0

    @abstractmethod
    def make_estimator(self, noisy: NDArray[np.int64], bounded: BoundedAggregate, noise: Noise) -> Estimator:
        """Estimates its aggregate calls from the released table of (groups, integers)."""

    def count_present(
        self, index: int, noisy: NDArray[np.int64], bounded: BoundedAggregate, noise: Noise
    ) -> Estimate | None:
        """The noisy count of what an aggregate call is taken over, if it is NULL of none; a sum never is."""
        del index, noisy, bounded, noise
        return None

    def linear_weights(self, index: int, bounded: BoundedAggregate) -> Floats | None:
        """The weight of each integer in the answer; None if the answer is no plain sum of them."""
        del index, bounded
        return None

    @abstractmethod
    def describe_error(self, index: int, bounded: BoundedAggregate, noise: Noise, confidence: Number) -> str:
        """The expected error in words: a number, or a formula in the unknown number of rows n."""

    def half_width(
        self, index: int, bounded: BoundedAggregate, noise: Noise, confidence: Number
    ) -> float | None:
        """Half the width of the interval; None if it depends on the rows."""
        del index, bounded, noise, confidence
        return None


def estimate_ratio(
    aggregate: AdditiveAggregate,
    bounded: BoundedAggregate,
    noisy: NDArray[np.int64],
    noise: Noise,
    forms: tuple[Affine, Affine],
    confidence: Number,
) -> Estimate | None:
    """The ratio of two affine forms of an aggregate's calls; None if one of these is no plain sum.

    What is in both forms, or cancels, is not counted twice: COUNT(x)/COUNT(*) is a share of one noisy vector.
    """
    rows = []
    for indices, _ in forms:
        weights = np.zeros(aggregate.vector_size(bounded))
        for index, factor in indices.items():
            own = aggregate.linear_weights(index, bounded) if index in aggregate.indices else None
            if own is None:
                return None
            weights = weights + factor * own
        rows.append(weights)
    (_, one), (_, two) = forms
    table = noisy.astype(np.float64), rows[0], rows[1]
    return estimate_quotient(
        *table, plus=(one, two), noise=noise, confidence=confidence, off=aggregate.rounding_error(bounded)
    )


def count_parts(noisy: NDArray[np.int64], noise: Noise, off: float) -> Estimate:
    """The noisy count of each group from that of its parts, with an interval at a level that is fixed.

    So an answer does not become NULL because a wider interval is asked for.
    """
    ones = np.ones(noisy.shape[1])
    return estimate_linear(noisy.astype(np.float64), ones, noise, _NOT_EMPTY, off=off * len(ones))


def integer_error(bounded: BoundedAggregate) -> float:
    """How far rounding moves the ends of a count's interval outward: by up to 1 if rows are weighted.

    Else the exact count is an integer, and they move inward.
    """
    return 1.0 if bounded.is_weighted else 0.0


def near_limit(noisy: NDArray[np.int64], end: int, noise: Noise, confidence: Number) -> NDArray[np.bool_]:
    """Groups with an integer that is no further below an end than noise goes."""
    edge = end * (1 - 2.0**-40) - linear_half_width(np.ones(1), noise, confidence)
    return np.asarray((np.abs(noisy) >= edge).any(axis=1))


def weight_error(bounded: BoundedAggregate) -> float:
    """How far a sum is off where of weights less than a step each is cut."""
    if not bounded.is_weighted:
        return 0.0
    return float(Fraction(_MAX_WEIGHTED_ROWS, 1 << WEIGHT_BITS) / bounded.step)


def parse_affine_ratio(node: exp.Expr) -> tuple[Affine, Affine] | None:
    """The expression as a quotient of weighted sums of aggregates, if it is one."""
    plain = node.unnest()
    if isinstance(plain, exp.Div):
        above, below = _affine(plain.this), _affine(plain.expression)
        if above is not None and below is not None and _is_moderate(above, below) and below[0]:
            return above, below
    affine = _affine(plain)
    return None if affine is None or not _is_moderate(affine) else (affine, ({}, 1.0))


def _is_moderate(*forms: Affine) -> bool:
    """True if sums of integers can be multiplied with every weight."""
    numbers = [abs(number) for weights, constant in forms for number in (*weights.values(), constant)]
    return all(number == 0 or _FACTORS[0] <= number <= _FACTORS[1] for number in numbers)


def _affine(node: exp.Expr) -> Affine | None:
    """The expression as a weighted sum of aggregates plus a number, if it is one."""
    if isinstance(node, exp.Literal) and not node.is_string:
        return {}, float(node.this)
    if isinstance(node, exp.Column) and node.name[:1] == "a":
        return {int(node.name[1:]): 1.0}, 0.0
    if isinstance(node, (exp.Paren, exp.Neg)):
        inner = _affine(node.this)
        return _added(({}, 0.0), inner, 1.0 if isinstance(node, exp.Paren) else -1.0)
    if not isinstance(node, (exp.Add, exp.Sub, exp.Mul, exp.Div)):
        return None
    one, two = _affine(node.this), _affine(node.expression)
    if isinstance(node, (exp.Add, exp.Sub)):
        return _added(one, two, 1.0 if isinstance(node, exp.Add) else -1.0)
    if isinstance(node, exp.Mul) and one is not None and not one[0]:
        one, two = two, one
    if two is None or two[0] or (isinstance(node, exp.Div) and two[1] == 0):
        return None
    return _added(({}, 0.0), one, two[1] if isinstance(node, exp.Mul) else 1 / two[1])


def _added(one: Affine | None, two: Affine | None, factor: float) -> Affine | None:
    """One plus `factor` times two."""
    if one is None or two is None:
        return None
    places = {place: one[0].get(place, 0.0) + factor * two[0].get(place, 0.0) for place in {*one[0], *two[0]}}
    return places, one[1] + factor * two[1]
