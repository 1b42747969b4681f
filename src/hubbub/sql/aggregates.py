"""The integers that are released for each aggregate, and the estimates computed from them.

An aggregate is one vector of noisy integers for each group. Counts, sums, means, variances and covariances of
the same values come from one aggregate. Quantiles are in `quantile_aggregates`; `aggregate_calls` recognises
the SQL function that asks for each.

Proof: docs/proofs/intervals.md
"""

from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from hubbub.engines.schema import Bounds
from hubbub.errors import InvalidInput
from hubbub.numbers import Number, format_error
from hubbub.sql.aggregate import (
    AdditiveAggregate,
    Affine,
    Aggregate,
    Estimator,
    count_parts,
    estimate_ratio,
    integer_error,
    weight_error,
)
from hubbub.sql.complementary_parts import FINE_BITS, Partition
from hubbub.sql.contribution_bounding import ContributionBounding
from hubbub.sql.moments import Estimate, Floats, Moments, Noise, estimate_linear, linear_half_width
from hubbub.sql.number_functions import step_bits
from hubbub.sql.quantile_aggregates import make_quantiles
from hubbub.sql.query import AggregateCall, BoundedAggregate, Query

__all__ = [
    "Affine",
    "Aggregate",
    "Estimate",
    "Estimator",
    "Noise",
    "estimate_ratio",
    "make_aggregates",
]

_MAX_ROWS = 1 << 34
"""Intervals hold for groups of at most this many rows: the rounding of each value adds up."""
_FLOAT_ERROR = 2.0**-50
"""What a product and a sum of doubles lose at most, of the size of their parts."""


@dataclass(frozen=True)
class MomentSums(AdditiveAggregate):
    """Weighted sums of the parts of a partition."""

    partition: Partition
    calls: tuple[AggregateCall, ...]
    bounds: tuple[Bounds, ...]
    degrees: tuple[int, ...]
    with_missing: bool
    is_signed: bool = False

    @property
    def is_count(self) -> bool:
        return self.partition == Partition.rows()

    @property
    def can_select(self) -> bool:
        return not self.is_signed

    @property
    def counts_missing(self) -> bool:
        return self.is_count or self.with_missing

    def bound(self, bounding: ContributionBounding) -> BoundedAggregate:
        return bounding.sums(self.partition)

    def rounding_error(self, bounded: BoundedAggregate) -> float:
        if not self.partition.spare:
            return super().rounding_error(bounded)
        single = 3 if self.degrees == (2,) else 1
        steps = Fraction(9 if len(self.degrees) == 2 else single)
        return _fixed_point_error(
            steps if self.is_signed else steps * max(map(_bounds_error_factor, self.bounds)), bounded
        )

    def _sum_rounding_error(self, weights: Floats, bounded: BoundedAggregate) -> float:
        """How far a weighted sum may be: rounding moves from one part to another, so a count is exact."""
        present = weights[: self._present]
        if self.is_signed or not self.degrees:
            return self.rounding_error(bounded) * float(np.abs(weights).sum())
        apart = float(np.abs(present - (present.max() + present.min()) / 2).sum())
        return self.rounding_error(bounded) * apart + float(np.abs(weights).sum()) * (
            0.5 + weight_error(bounded)
        )

    def make_estimator(self, noisy: NDArray[np.int64], bounded: BoundedAggregate, noise: Noise) -> Estimator:
        table, off = noisy.astype(np.float64), self.rounding_error(bounded)
        moments = Moments(table[:, : self._present], self.degrees, noise, bounded.step, off)

        def read(index: int, confidence: Number) -> Estimate:
            linear = self.linear_weights(index, bounded)
            if linear is not None:
                return estimate_linear(
                    table, linear, noise, confidence, off=self._sum_rounding_error(linear, bounded)
                )
            return self._moment(self.calls[self.indices.index(index)], moments, confidence)

        return read

    def linear_weights(self, index: int, bounded: BoundedAggregate) -> Floats | None:
        return self._sum_weights(self.calls[self.indices.index(index)], bounded.step)

    def _moment(self, call: AggregateCall, moments: Moments, confidence: Number) -> Estimate:
        spans = [float(high - low) for low, high in self.bounds]
        if call.kind == "mean":
            return _rescale(moments.mean(confidence), spans[0], float(self.bounds[0][0]))
        if call.kind == "covariance":
            return _rescale(moments.covariance(confidence, is_sample=call.is_sample), spans[0] * spans[1])
        if call.kind == "correlation":
            return moments.correlation(confidence)
        if call.kind == "slope":
            of = _place_of_second(call)
            return _rescale(moments.slope(confidence, of), spans[1 - of] / spans[of])
        variance = _rescale(moments.variance(confidence, is_sample=call.is_sample), spans[0] ** 2)
        if call.kind == "variance":
            return variance
        return Estimate(*(np.sqrt(part) for part in (variance.value, variance.low, variance.high)))

    def count_present(
        self, index: int, noisy: NDArray[np.int64], bounded: BoundedAggregate, noise: Noise
    ) -> Estimate | None:
        if self.linear_weights(index, bounded) is not None:
            return super().count_present(index, noisy, bounded, noise)
        return count_parts(noisy[:, : self._present], noise, self.rounding_error(bounded))

    @property
    def _present(self) -> int:
        """The number of its parts that are of rows with the value."""
        return len(self.partition.parts) - self.with_missing

    def _sum_weights(self, call: AggregateCall, step: Fraction) -> Floats | None:
        """The weights of each integer in a count or a sum."""
        if self.is_signed:
            # A whole row is worth the larger bound; `step` is what share of a row one step is.
            return np.array([float(_max_magnitude(self.bounds[0]) * step)])
        if call.kind == "count":
            missing = float(step) if not call.arguments else 0.0
            return np.array([float(step)] * self._present + [missing] * self.with_missing)
        if call.kind != "sum":
            return None
        low, high = self.bounds[0]
        worth = [high, low] if self.degrees == (1,) else [high, (low + high) / 2, low]
        return np.array([float(step * each) for each in worth] + [0.0] * self.with_missing)

    def describe_error(self, index: int, bounded: BoundedAggregate, noise: Noise, confidence: Number) -> str:
        width = self.half_width(index, bounded, noise, confidence)
        if width is not None:
            return f"± {format_error(width)}"
        call = self.calls[self.indices.index(index)]
        # At the bounds, where the weights of all parts but one vanish: it is less elsewhere.
        rows = linear_half_width(np.array([float(bounded.step)]), noise, confidence)
        span = float(self.bounds[0][1] - self.bounds[0][0])
        if call.kind == "mean":
            return f"± {format_error(span * rows)}/n or less, with n rows"
        if call.kind == "correlation":
            scaled = "with n rows and a variance of v of its bounds' range squared"
            return f"± about {format_error(rows)}/(n·v), {scaled}"
        if call.kind == "slope":
            spans = [float(high - low) for low, high in self.bounds]
            of = _place_of_second(call)
            scaled = "with n rows and a variance of v of the second value's range squared"
            return f"± about {format_error(spans[1 - of] / spans[of] * rows)}/(n·v), {scaled}"
        if call.kind == "covariance":
            span = (span * float(self.bounds[1][1] - self.bounds[1][0])) ** 0.5
        if call.kind == "deviation":
            return (
                f"± about {format_error(span**2 * rows / 2)}/(n·s) or less, with n rows and a deviation of s"
            )
        return f"± about {format_error(span**2 * rows)}/n or less, with n rows"

    def half_width(
        self, index: int, bounded: BoundedAggregate, noise: Noise, confidence: Number
    ) -> float | None:
        linear = self.linear_weights(index, bounded)
        if linear is None:
            return None
        width = linear_half_width(linear, noise, confidence) + self._sum_rounding_error(linear, bounded)
        is_count = self.calls[self.indices.index(index)].kind == "count"
        return width + (integer_error(bounded) if is_count else 0.0)


@dataclass(frozen=True)
class DistinctCount(AdditiveAggregate):
    """The number of units or of distinct values: one integer per group."""

    argument: int | None = None
    """Index of the argument of COUNT(DISTINCT …); None for units."""

    @property
    def is_count(self) -> bool:
        return self.argument is None

    @property
    def is_by_groups(self) -> bool:
        return self.argument is None

    def bound(self, bounding: ContributionBounding) -> BoundedAggregate:
        return bounding.units() if self.argument is None else bounding.distinct_values(self.argument)

    @staticmethod
    def _weights(bounded: BoundedAggregate) -> Floats:
        return np.array([float(bounded.step)])

    def make_estimator(self, noisy: NDArray[np.int64], bounded: BoundedAggregate, noise: Noise) -> Estimator:
        weights, off = self._weights(bounded), self.rounding_error(bounded) * float(bounded.step)
        return lambda _, confidence: estimate_linear(
            noisy.astype(np.float64), weights, noise, confidence, off=off
        )

    def describe_error(self, index: int, bounded: BoundedAggregate, noise: Noise, confidence: Number) -> str:
        return f"± {format_error(self.half_width(index, bounded, noise, confidence))}"

    def half_width(self, index: int, bounded: BoundedAggregate, noise: Noise, confidence: Number) -> float:
        off = self.rounding_error(bounded) * float(bounded.step) + integer_error(bounded)
        return linear_half_width(self._weights(bounded), noise, confidence) + off


@dataclass(frozen=True)
class DistinctMoments(MomentSums):
    """Sums of the parts of a partition over the distinct values of each group."""

    argument: int = 0

    @property
    def is_count(self) -> bool:
        return False

    @property
    def can_select(self) -> bool:
        return False  # they say how many values there are, not how many units

    def bound(self, bounding: ContributionBounding) -> BoundedAggregate:
        return bounding.distinct_sums(self.argument, self.partition)


@dataclass(frozen=True)
class PerGroupAggregate(AdditiveAggregate):
    """The sum or the mean of each unit's own count, sum or mean in a group, clamped."""

    inner: str
    argument: int | None
    bounds: Bounds
    is_mean: bool

    @property
    def can_select(self) -> bool:
        return self.is_mean

    @property
    def counts_missing(self) -> bool:
        return self.inner == "count"

    @property
    def is_by_groups(self) -> bool:
        return True

    def bound(self, bounding: ContributionBounding) -> BoundedAggregate:
        return bounding.per_group(self.inner, self.argument, self.bounds, is_mean=self.is_mean)

    def rounding_error(self, bounded: BoundedAggregate) -> float:
        # Each row is rounded to a step of its unit's own sum, which may be coarse beside a narrow range.
        scale = self.bounds[1] - self.bounds[0] if self.is_mean else _max_magnitude(self.bounds)
        step = Fraction(2) ** -step_bits(self.bounds)
        return _fixed_point_error(1 + step * (1 << FINE_BITS) / scale, bounded)

    def make_estimator(self, noisy: NDArray[np.int64], bounded: BoundedAggregate, noise: Noise) -> Estimator:
        table, off = noisy.astype(np.float64), self.rounding_error(bounded)
        if not self.is_mean:
            linear = self._sum_weights(bounded)
            return lambda _, confidence: estimate_linear(
                table, linear, noise, confidence, off=off * float(linear[0])
            )
        low, high = self.bounds
        moments = Moments(table, (1,), noise, bounded.step, off)
        return lambda _, confidence: _rescale(moments.mean(confidence), float(high - low), float(low))

    def count_present(
        self, index: int, noisy: NDArray[np.int64], bounded: BoundedAggregate, noise: Noise
    ) -> Estimate | None:
        if not self.is_mean:
            return super().count_present(index, noisy, bounded, noise)
        return count_parts(noisy, noise, self.rounding_error(bounded))

    def _sum_weights(self, bounded: BoundedAggregate) -> Floats:
        return np.array([float(_max_magnitude(self.bounds) * bounded.step)])

    def describe_error(self, index: int, bounded: BoundedAggregate, noise: Noise, confidence: Number) -> str:
        width = self.half_width(index, bounded, noise, confidence)
        if width is not None:
            return f"± {format_error(width)}"
        units = linear_half_width(np.array([float(bounded.step)]), noise, confidence)
        return f"± {format_error(float(self.bounds[1] - self.bounds[0]) * units)}/n or less, with n units"

    def half_width(
        self, index: int, bounded: BoundedAggregate, noise: Noise, confidence: Number
    ) -> float | None:
        if self.is_mean:
            return None
        linear = self._sum_weights(bounded)
        width = linear_half_width(linear, noise, confidence) + self.rounding_error(bounded) * float(linear[0])
        return width + (integer_error(bounded) if self.inner == "count" else 0.0)


def make_aggregates(query: Query, *, intervals: bool = True) -> tuple[Aggregate, ...]:
    """Return the aggregates of a query: as few noisy vectors as possible.

    Args:
        query: the query, with all bounds known.
        intervals: false if quantiles need no intervals.
    """
    _check_bounds(query)
    out: list[Aggregate] = []
    plain = [
        index for index, call in enumerate(query.aggregates) if call.kind == "count" and not call.arguments
    ]
    pairs = _group_pairs(query)
    singles = _group_single_values(query, {index for _, _, indices in pairs for index in indices})
    for arguments, degrees, indices in [*pairs, *singles]:
        # The plain count rides along with the first aggregate that can carry it.
        carried = plain if not any(isinstance(aggregate, MomentSums) for aggregate in out) else []
        out.append(
            _make_moment_sums(query, arguments, degrees, [*carried, *indices], with_missing=bool(carried))
        )
    if plain and not any(isinstance(aggregate, MomentSums) for aggregate in out):
        out.append(
            MomentSums(
                tuple(plain),
                Partition.rows(),
                tuple(query.aggregates[index] for index in plain),
                (),
                (),
                with_missing=False,
            )
        )
    for index, call in enumerate(query.aggregates):
        if call.per_group is not None:
            inner, low, high = call.per_group
            argument = call.arguments[0] if call.arguments else None
            out.append(PerGroupAggregate((index,), inner, argument, (low, high), is_mean=call.kind == "mean"))
        elif call.kind == "units":
            out.append(DistinctCount((index,)))
        elif call.kind == "distinct":
            out.append(DistinctCount((index,), call.arguments[0]))
    out += _make_distinct_moments(query)
    by_argument: dict[int, list[int]] = {}
    for index, call in enumerate(query.aggregates):
        if call.kind == "quantile":
            by_argument.setdefault(call.arguments[0], []).append(index)
    for argument, indices in by_argument.items():
        out.append(make_quantiles(query, argument, tuple(indices), intervals=intervals))
    return tuple(out)


def _make_distinct_moments(query: Query) -> list[Aggregate]:
    """Sums, means and variances of the distinct values of each argument."""
    by_argument: dict[int, list[int]] = {}
    for index, call in enumerate(query.aggregates):
        if call.is_distinct and call.kind != "distinct":
            by_argument.setdefault(call.arguments[0], []).append(index)
    out: list[Aggregate] = []
    for argument, indices in by_argument.items():
        calls = [
            replace(query.aggregates[index], kind=query.aggregates[index].kind.removeprefix("distinct "))
            for index in indices
        ]
        degrees: tuple[int, ...] = (2 if {call.kind for call in calls} & {"variance", "deviation"} else 1,)
        bounds = query.arguments[argument].bounds
        assert bounds is not None
        if {call.kind for call in calls} == {"sum"}:
            partition, degrees = Partition.signed(argument, bounds), ()
        else:
            partition = Partition.powers({argument: degrees[0]}, {argument: bounds}, with_missing=False)
        out.append(
            DistinctMoments(
                tuple(indices),
                partition,
                tuple(calls),
                (bounds,),
                degrees,
                with_missing=False,
                is_signed=not degrees,
                argument=argument,
            )
        )
    return out


_OF_BOTH_SPREADS = frozenset({"correlation", "slope"})


def _place_of_second(call: AggregateCall) -> int:
    """The place of the second argument of REGR_SLOPE(y, x) in the partition, which orders them."""
    return sorted(call.arguments).index(call.arguments[1])


def _group_pairs(query: Query) -> list[tuple[tuple[int, ...], tuple[int, ...], list[int]]]:
    """Covariances, correlations and slopes: for each pair of values, its degrees and its aggregates."""
    pairs: dict[tuple[int, ...], list[int]] = {}
    for index, call in enumerate(query.aggregates):
        if call.kind in {"covariance", *_OF_BOTH_SPREADS}:
            pairs.setdefault(tuple(sorted(call.arguments)), []).append(index)
    return [
        (
            arguments,
            (2, 2) if any(query.aggregates[index].kind in _OF_BOTH_SPREADS for index in indices) else (1, 1),
            indices,
        )
        for arguments, indices in pairs.items()
    ]


def _group_single_values(
    query: Query, others: set[int]
) -> list[tuple[tuple[int, ...], tuple[int, ...], list[int]]]:
    """Counts, sums, means and variances of one value each."""
    by_argument: dict[int, list[int]] = {}
    for index, call in enumerate(query.aggregates):
        known = {"count", "sum", "mean", "variance", "deviation"}
        if index not in others and call.kind in known and call.arguments and call.per_group is None:
            by_argument.setdefault(call.arguments[0], []).append(index)
    out: list[tuple[tuple[int, ...], tuple[int, ...], list[int]]] = []
    for argument, indices in by_argument.items():
        kinds = {query.aggregates[index].kind for index in indices}
        degree = 2 if kinds & {"variance", "deviation"} else 1 if kinds & {"sum", "mean"} else 0
        out.append(((argument,), (degree,), indices))
    return out


def _make_moment_sums(
    query: Query,
    arguments: tuple[int, ...],
    degrees: tuple[int, ...],
    indices: list[int],
    *,
    with_missing: bool,
) -> MomentSums:
    calls = tuple(query.aggregates[index] for index in indices)
    if degrees == (0,):
        partition = Partition.present(arguments[0], with_missing=with_missing)
        return MomentSums(tuple(indices), partition, calls, (), (), with_missing=with_missing)
    bounds = {argument: query.arguments[argument].bounds for argument in arguments}
    known = {argument: limits for argument, limits in bounds.items() if limits is not None}
    limits = tuple(known[argument] for argument in arguments)
    # Where keys are private the parts select them, and a sum is as good from its parts, if 0 is a bound.
    if {call.kind for call in calls} == {"sum"} and query.is_public:
        return MomentSums(
            tuple(indices),
            Partition.signed(arguments[0], limits[0]),
            calls,
            limits,
            (),
            with_missing=False,
            is_signed=True,
        )
    if len(arguments) == 2 and arguments[0] == arguments[1]:
        raise InvalidInput(
            "a value is correlated with itself",
            why="its correlation with itself is always 1",
            fix="ask for its variance",
        )
    partition = Partition.powers(dict(zip(arguments, degrees, strict=True)), known, with_missing=with_missing)
    return MomentSums(tuple(indices), partition, calls, limits, degrees, with_missing=with_missing)


def _check_bounds(query: Query) -> None:
    for call in query.aggregates:
        if call.kind in {"count", "units", "distinct"} or call.per_group is not None:
            continue
        for index in call.arguments:
            if query.arguments[index].bounds is None:
                name = query.arguments[index].name
                raise InvalidInput(
                    f"{name} has no bounds",
                    why="one person could move a sum, a mean or a quantile by any amount",
                    fix=f"declare public bounds, such as {{bounds={name}=0:100}}, or {{bounds={name}=auto}}"
                    " to estimate them privately",
                )


def _fixed_point_error(steps: Fraction, bounded: BoundedAggregate) -> float:
    """The error of a sum if each row's part is off by `steps` fine steps, and the sum by half of its own."""
    return float(steps * _MAX_ROWS / (1 << FINE_BITS) / bounded.step) + weight_error(bounded) + 0.5


def _bounds_error_factor(bounds: Bounds) -> Fraction:
    """The factor of the rounding error for bounds that are not doubles, and close together for their size."""
    if all(Fraction(float(end)) == end for end in bounds):
        return Fraction(1)
    return max(Fraction(1), _max_magnitude(bounds) / (bounds[1] - bounds[0]) / 8)


def _rescale(estimate: Estimate, span: float, start: float = 0.0) -> Estimate:
    """From shares of the bounds' range; the ends are moved outward by what doubles lose."""
    value, low, high = (start + span * part for part in (estimate.value, estimate.low, estimate.high))
    lost = [_FLOAT_ERROR * (abs(start) + abs(span * part)) for part in (estimate.low, estimate.high)]
    return Estimate(value, low - lost[0], high + lost[1])


def _max_magnitude(bounds: Bounds) -> Fraction:
    return max(abs(bounds[0]), abs(bounds[1]))
