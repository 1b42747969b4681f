"""Which integers answer which aggregates: what is measured, and how answers are read from it.

A measure is one vector of noisy integers for each group. Counts, sums, means, variances and covariances of
the same values come from one measure, quantiles from a tree of bins, each with its interval.

Proof: docs/proofs/intervals.md
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from hubbub.engines.schema import Bounds
from hubbub.errors import InvalidInput, Unsupported
from hubbub.numbers import Number
from hubbub.sensitivity import MAX_MAGNITUDE
from hubbub.sql.contribution_bounding import ContributionBounding
from hubbub.sql.moments import Estimate, Floats, Moments, Noise, combined, ratio, width_of
from hubbub.sql.quantiles import Tree
from hubbub.sql.query import AggregateCall, BoundedAggregate, Query
from hubbub.sql.scalar_functions import step_bits
from hubbub.sql.value_encoding import FINE_BITS, WEIGHT_BITS, Partition

__all__ = ["Affine", "Aggregate", "Estimate", "Noise", "Reader", "make_aggregates", "together"]

_MOST_NODES = 1 << 25
_MOST_ROWS = 1 << 34
"""Intervals hold for groups of up to so many rows: rounding each of their values adds up to something."""
_MOST_WEIGHED = 1 << 28
"""And of up to so many rows of units above their limit, of each of which a step of its weight may be cut."""
_LOST = 2.0**-50
"""What a product and a sum of doubles lose at most, of the size of their parts."""
_EDGE = 2.0**-48
"""Where a bin ends is known up to this share of the bounds: doubles are rounded."""

Reader = Callable[[int, Number], Estimate]
"""The answer to the aggregate at a place, at a confidence, for each group."""
Affine = tuple[Mapping[int, float], float]
"""A weighted sum of aggregates, by their places, and a number added to it."""


@dataclass(frozen=True)
class Aggregate(ABC):
    """Abstract: one vector to be measured, and the aggregates that are read from it."""

    aggregates: tuple[int, ...]
    """The places of the aggregates it answers."""

    @property
    def counts(self) -> bool:
        """Whether it is nothing but how many rows or units a group has."""
        return False

    @abstractmethod
    def measurement(self, weighing: ContributionBounding) -> BoundedAggregate:
        """The query to the engine."""

    def vector(self, measured: BoundedAggregate, table: NDArray[np.int64]) -> NDArray[np.int64]:
        """The integers that are released, from a table of (groups, columns)."""
        return table.reshape(-1)

    def released(self, measured: BoundedAggregate) -> int:
        """How many integers a group releases."""
        return measured.columns

    def cut(self, noisy: NDArray[np.int64], noise: Noise, confidence: Number) -> NDArray[np.bool_]:
        """Groups of which an integer may have been cut before the noise, where sums are held in 64 bits.

        Guarantee: one of which an integer was cut is among them, with at least this confidence.
        Proof: docs/proofs/intervals.md, "Sums that are cut"
        """
        return _near(noisy, MAX_MAGNITUDE, noise, confidence)

    def off(self, measured: BoundedAggregate) -> float:
        """How far each exact integer may be, in steps, from that of values and weights that were not rounded.

        Guarantee: so it is in groups of at most 2^34 rows, 2^28 of them of units above a limit (2^27 where
            groups, and rows in each, are limited).
        Proof: docs/proofs/intervals.md, "The grid"
        """
        return _cut(measured) + 0.5 if measured.is_weighed else 0.0

    @abstractmethod
    def reader(self, noisy: NDArray[np.int64], measured: BoundedAggregate, noise: Noise) -> Reader:
        """Reads its aggregates from the (groups, integers) that were released."""

    def weights(self, place: int, measured: BoundedAggregate) -> Floats | None:
        """Of what each integer is worth, where the answer is a plain sum of them."""
        del place, measured
        return None

    def linear(self, place: int, measured: BoundedAggregate) -> Floats | None:
        """Of what each integer is worth, where the answer by itself is a sum of them."""
        return self.weights(place, measured)

    @abstractmethod
    def expected(self, place: int, measured: BoundedAggregate, noise: Noise, confidence: Number) -> str:
        """How far the answer will be off, in words: a number, or a formula where n is not known."""

    def width(self, place: int, measured: BoundedAggregate, noise: Noise, confidence: Number) -> float | None:
        """How far the answer will be off, where that is known beforehand."""
        del place, measured, noise, confidence
        return None


@dataclass(frozen=True)
class MomentSums(Aggregate):
    """Weighted sums of the parts of a partition."""

    partition: Partition
    kinds: tuple[AggregateCall, ...]
    bounds: tuple[Bounds, ...]
    degrees: tuple[int, ...]
    with_missing: bool
    is_signed: bool = False

    @property
    def counts(self) -> bool:
        return self.partition == Partition.rows()

    def measurement(self, weighing: ContributionBounding) -> BoundedAggregate:
        return weighing.sums(self.partition)

    def off(self, measured: BoundedAggregate) -> float:
        if not self.partition.spare:
            return super().off(measured)
        single = 3 if self.degrees == (2,) else 1
        steps = Fraction(9 if len(self.degrees) == 2 else single)
        return _rounding(steps if self.is_signed else steps * max(map(_stretch, self.bounds)), measured)

    def _off(self, weights: Floats, measured: BoundedAggregate) -> float:
        """How far a weighted sum may be: rounding moves from one part to another, so a count is exact."""
        present = weights[: self._present]
        if self.is_signed or not self.degrees:
            return self.off(measured) * float(np.abs(weights).sum())
        apart = float(np.abs(present - (present.max() + present.min()) / 2).sum())
        return self.off(measured) * apart + float(np.abs(weights).sum()) * (0.5 + _cut(measured))

    def reader(self, noisy: NDArray[np.int64], measured: BoundedAggregate, noise: Noise) -> Reader:
        table, off = noisy.astype(np.float64), self.off(measured)
        moments = Moments(table[:, : self._present], self.degrees, noise, measured.step, off)

        def read(place: int, confidence: Number) -> Estimate:
            linear = self.weights(place, measured)
            if linear is not None:
                return combined(table, linear, noise, confidence, off=self._off(linear, measured))
            return self._moment(self.kinds[self.aggregates.index(place)], moments, confidence)

        return read

    def weights(self, place: int, measured: BoundedAggregate) -> Floats | None:
        return self._linear(self.kinds[self.aggregates.index(place)], measured.step)

    def _moment(self, kind: AggregateCall, moments: Moments, confidence: Number) -> Estimate:
        spans = [float(high - low) for low, high in self.bounds]
        if kind.kind == "mean":
            return _scaled(moments.mean(confidence), spans[0], float(self.bounds[0][0]))
        if kind.kind == "covariance":
            return _scaled(moments.covariance(confidence, is_sample=kind.is_sample), spans[0] * spans[1])
        if kind.kind == "correlation":
            return moments.correlation(confidence)
        found = _scaled(moments.variance(confidence, is_sample=kind.is_sample), spans[0] ** 2)
        if kind.kind == "variance":
            return found
        return Estimate(*(np.sqrt(part) for part in (found.value, found.low, found.high)))

    @property
    def _present(self) -> int:
        """How many of its parts are of rows that have the value."""
        return len(self.partition.parts) - self.with_missing

    def _linear(self, kind: AggregateCall, step: Fraction) -> Floats | None:
        """The weights of each integer in a count or a sum."""
        if self.is_signed:
            # A whole row is worth the larger bound; `step` is what share of a row one step is.
            return np.array([float(_largest(self.bounds[0]) * step)])
        if kind.kind == "count":
            missing = float(step) if not kind.arguments else 0.0
            return np.array([float(step)] * self._present + [missing] * self.with_missing)
        if kind.kind != "sum":
            return None
        low, high = self.bounds[0]
        worth = [high, low] if self.degrees == (1,) else [high, (low + high) / 2, low]
        return np.array([float(step * each) for each in worth] + [0.0] * self.with_missing)

    def expected(self, place: int, measured: BoundedAggregate, noise: Noise, confidence: Number) -> str:
        width = self.width(place, measured, noise, confidence)
        if width is not None:
            return f"± {_short(width)}"
        kind = self.kinds[self.aggregates.index(place)]
        # At the bounds, where the weights of all parts but one vanish: it is less elsewhere.
        rows = width_of(np.array([float(measured.step)]), noise, confidence)
        span = float(self.bounds[0][1] - self.bounds[0][0])
        if kind.kind == "mean":
            return f"± {_short(span * rows)}/n or less, with n rows"
        if kind.kind == "correlation":
            return (
                f"± about {_short(rows)}/(n·v), with n rows and a variance of v of its bounds' range squared"
            )
        if kind.kind == "covariance":
            span = (span * float(self.bounds[1][1] - self.bounds[1][0])) ** 0.5
        if kind.kind == "deviation":
            return f"± about {_short(span**2 * rows / 2)}/(n·s) or less, with n rows and a deviation of s"
        return f"± about {_short(span**2 * rows)}/n or less, with n rows"

    def width(self, place: int, measured: BoundedAggregate, noise: Noise, confidence: Number) -> float | None:
        linear = self.weights(place, measured)
        if linear is None:
            return None
        return width_of(linear, noise, confidence) + self._off(linear, measured)


@dataclass(frozen=True)
class DistinctCount(Aggregate):
    """Units, or distinct values: one integer a group."""

    argument: int | None = None
    """The value whose different ones are counted; None for units."""

    @property
    def counts(self) -> bool:
        return self.argument is None

    def measurement(self, weighing: ContributionBounding) -> BoundedAggregate:
        return weighing.units() if self.argument is None else weighing.distinct(self.argument)

    def linear(self, place: int, measured: BoundedAggregate) -> Floats:
        return np.array([float(measured.step)])

    def reader(self, noisy: NDArray[np.int64], measured: BoundedAggregate, noise: Noise) -> Reader:
        weights, off = self.linear(0, measured), self.off(measured) * float(measured.step)
        return lambda _, confidence: combined(noisy.astype(np.float64), weights, noise, confidence, off=off)

    def expected(self, place: int, measured: BoundedAggregate, noise: Noise, confidence: Number) -> str:
        return f"± {_short(self.width(place, measured, noise, confidence))}"

    def width(self, place: int, measured: BoundedAggregate, noise: Noise, confidence: Number) -> float:
        off = self.off(measured) * float(measured.step)
        return width_of(self.linear(place, measured), noise, confidence) + off


@dataclass(frozen=True)
class PerGroupAggregate(Aggregate):
    """The sum or the mean of each unit's own count, sum or mean in a group, clamped."""

    inner: str
    argument: int | None
    bounds: Bounds
    is_mean: bool

    def measurement(self, weighing: ContributionBounding) -> BoundedAggregate:
        return weighing.per_group(self.inner, self.argument, self.bounds, is_mean=self.is_mean)

    def off(self, measured: BoundedAggregate) -> float:
        # Each row is rounded to a step of its unit's own sum, which may be coarse beside a narrow range.
        scale = self.bounds[1] - self.bounds[0] if self.is_mean else _largest(self.bounds)
        step = Fraction(2) ** -step_bits(self.bounds)
        return _rounding(1 + step * (1 << FINE_BITS) / scale, measured)

    def reader(self, noisy: NDArray[np.int64], measured: BoundedAggregate, noise: Noise) -> Reader:
        table, off = noisy.astype(np.float64), self.off(measured)
        if not self.is_mean:
            linear = self._linear(measured)
            return lambda _, confidence: combined(
                table, linear, noise, confidence, off=off * float(linear[0])
            )
        low, high = self.bounds
        moments = Moments(table, (1,), noise, measured.step, off)
        return lambda _, confidence: _scaled(moments.mean(confidence), float(high - low), float(low))

    def linear(self, place: int, measured: BoundedAggregate) -> Floats | None:
        return None if self.is_mean else self._linear(measured)

    def _linear(self, measured: BoundedAggregate) -> Floats:
        return np.array([float(_largest(self.bounds) * measured.step)])

    def expected(self, place: int, measured: BoundedAggregate, noise: Noise, confidence: Number) -> str:
        width = self.width(place, measured, noise, confidence)
        if width is not None:
            return f"± {_short(width)}"
        units = width_of(np.array([float(measured.step)]), noise, confidence)
        return f"± {_short(float(self.bounds[1] - self.bounds[0]) * units)}/n or less, with n units"

    def width(self, place: int, measured: BoundedAggregate, noise: Noise, confidence: Number) -> float | None:
        if self.is_mean:
            return None
        linear = self._linear(measured)
        return width_of(linear, noise, confidence) + self.off(measured) * float(linear[0])


@dataclass(frozen=True)
class Quantiles(Aggregate):
    """Quantiles of one value, from a noisy tree over its bounds."""

    argument: int
    bounds: Bounds
    fractions: tuple[Fraction, ...]
    depth: int = 4

    @property
    def tree(self) -> Tree:
        """The bins and their levels."""
        return Tree(self.bounds[0], self.bounds[1], depth=self.depth)

    def measurement(self, weighing: ContributionBounding) -> BoundedAggregate:
        return weighing.histogram(self.argument, self.bounds, self.tree.leaves, levels=self.depth)

    def vector(self, measured: BoundedAggregate, table: NDArray[np.int64]) -> NDArray[np.int64]:
        return self.tree.filled(table.reshape(len(table) // measured.bins, measured.bins)).reshape(-1)

    def released(self, measured: BoundedAggregate) -> int:
        return self.tree.size

    def reader(self, noisy: NDArray[np.int64], measured: BoundedAggregate, noise: Noise) -> Reader:
        # All fractions at once: what they share, the fit to the noisy tree, takes longest.
        known: dict[Number, tuple[Floats, Floats, Floats]] = {}

        def read(place: int, confidence: Number) -> Estimate:
            if confidence not in known:
                known[confidence] = self.tree.tables(noisy, noise, self.fractions, confidence)
            which = self.aggregates.index(place)
            value, low, high = (part[which] for part in known[confidence])
            least, most = map(float, self.bounds)
            edge = _EDGE * (abs(least) + abs(most))
            return Estimate(value, np.maximum(low - edge, least), np.minimum(high + edge, most))

        return read

    def expected(self, place: int, measured: BoundedAggregate, noise: Noise, confidence: Number) -> str:
        fraction = self.fractions[self.aggregates.index(place)]
        rows = self.tree.rank_error(noise, confidence, fraction=fraction) * float(measured.step)
        return f"± {_short(rows)} rows in rank"


def together(
    measure: Aggregate,
    measured: BoundedAggregate,
    noisy: NDArray[np.int64],
    noise: Noise,
    forms: tuple[Affine, Affine],
    confidence: Number,
) -> Estimate | None:
    """The quotient of two weighted sums of aggregates of one measure; None if these are no plain sums of it.

    What is in both, or cancels, is not counted twice: COUNT(x)/COUNT(*) is a share of one noisy vector.
    """
    rows = []
    for places, _ in forms:
        weights = np.zeros(measure.released(measured))
        for place, factor in places.items():
            own = measure.weights(place, measured) if place in measure.aggregates else None
            if own is None:
                return None
            weights = weights + factor * own
        rows.append(weights)
    (_, one), (_, two) = forms
    table = noisy.astype(np.float64), rows[0], rows[1]
    return ratio(*table, plus=(one, two), noise=noise, confidence=confidence, off=measure.off(measured))


def make_aggregates(query: Query) -> tuple[Aggregate, ...]:
    """What is measured for a query: as few vectors as its aggregates allow."""
    _check_bounds(query)
    out: list[Aggregate] = []
    plain = [
        place for place, kind in enumerate(query.aggregates) if kind.kind == "count" and not kind.arguments
    ]
    pairs = _pairs(query)
    singles = _singles(query, {place for _, _, places in pairs for place in places})
    for arguments, degrees, places in [*pairs, *singles]:
        # The plain count rides along with the first measure that can carry it.
        carried = plain if not any(isinstance(measure, MomentSums) for measure in out) else []
        out.append(_sums(query, arguments, degrees, [*carried, *places], with_missing=bool(carried)))
    if plain and not any(isinstance(measure, MomentSums) for measure in out):
        out.append(
            MomentSums(
                tuple(plain),
                Partition.rows(),
                tuple(query.aggregates[place] for place in plain),
                (),
                (),
                with_missing=False,
            )
        )
    for place, kind in enumerate(query.aggregates):
        if kind.per_group is not None:
            inner, low, high = kind.per_group
            argument = kind.arguments[0] if kind.arguments else None
            out.append(PerGroupAggregate((place,), inner, argument, (low, high), is_mean=kind.kind == "mean"))
        elif kind.kind == "units":
            out.append(DistinctCount((place,)))
        elif kind.kind == "distinct":
            out.append(DistinctCount((place,), kind.arguments[0]))
    by_argument: dict[int, list[int]] = {}
    for place, kind in enumerate(query.aggregates):
        if kind.kind == "quantile":
            by_argument.setdefault(kind.arguments[0], []).append(place)
    for argument, places in by_argument.items():
        bounds = query.arguments[argument].bounds
        assert bounds is not None
        fractions = tuple(query.aggregates[place].fraction or Fraction(0) for place in places)
        out.append(Quantiles(tuple(places), argument, bounds, fractions, _depth(query)))
    return tuple(out)


def _depth(query: Query) -> int:
    """As many levels as the number of groups allows."""
    groups = max(1, query.cells if query.is_public else 1 << 10)
    for depth in (4, 3, 2):
        if groups * 16**depth <= _MOST_NODES:
            return depth
    raise Unsupported(
        "quantiles are asked for in too many groups",
        why="every group has a tree of bins, and each bin has noise of its own",
        fix="ask for fewer groups",
    )


def _pairs(query: Query) -> list[tuple[tuple[int, ...], tuple[int, ...], list[int]]]:
    """Covariances and correlations: for each pair of values, its degrees and its aggregates."""
    found: dict[tuple[int, ...], list[int]] = {}
    for place, kind in enumerate(query.aggregates):
        if kind.kind in {"covariance", "correlation"}:
            found.setdefault(tuple(sorted(kind.arguments)), []).append(place)
    return [
        (
            arguments,
            (2, 2) if any(query.aggregates[place].kind == "correlation" for place in places) else (1, 1),
            places,
        )
        for arguments, places in found.items()
    ]


def _singles(query: Query, taken: set[int]) -> list[tuple[tuple[int, ...], tuple[int, ...], list[int]]]:
    """Counts, sums, means and variances of one value each."""
    found: dict[int, list[int]] = {}
    for place, kind in enumerate(query.aggregates):
        known = {"count", "sum", "mean", "variance", "deviation"}
        if place not in taken and kind.kind in known and kind.arguments and kind.per_group is None:
            found.setdefault(kind.arguments[0], []).append(place)
    out: list[tuple[tuple[int, ...], tuple[int, ...], list[int]]] = []
    for argument, places in found.items():
        kinds = {query.aggregates[place].kind for place in places}
        degree = 2 if kinds & {"variance", "deviation"} else 1 if kinds & {"sum", "mean"} else 0
        out.append(((argument,), (degree,), places))
    return out


def _sums(
    query: Query,
    arguments: tuple[int, ...],
    degrees: tuple[int, ...],
    places: list[int],
    *,
    with_missing: bool,
) -> MomentSums:
    kinds = tuple(query.aggregates[place] for place in places)
    if degrees == (0,):
        partition = Partition.present(arguments[0], with_missing=with_missing)
        return MomentSums(tuple(places), partition, kinds, (), (), with_missing=with_missing)
    bounds = {argument: query.arguments[argument].bounds for argument in arguments}
    known = {argument: limits for argument, limits in bounds.items() if limits is not None}
    limits = tuple(known[argument] for argument in arguments)
    if {kind.kind for kind in kinds} == {"sum"}:
        return MomentSums(
            tuple(places),
            Partition.signed(arguments[0], limits[0]),
            kinds,
            limits,
            (),
            with_missing=False,
            is_signed=True,
        )
    if len(arguments) == 2 and arguments[0] == arguments[1]:
        raise InvalidInput("a value is correlated with itself", why="that is 1", fix="ask for its variance")
    partition = Partition.powers(dict(zip(arguments, degrees, strict=True)), known, with_missing=with_missing)
    return MomentSums(tuple(places), partition, kinds, limits, degrees, with_missing=with_missing)


def _check_bounds(query: Query) -> None:
    for kind in query.aggregates:
        if kind.kind in {"count", "units", "distinct"} or kind.per_group is not None:
            continue
        for place in kind.arguments:
            if query.arguments[place].bounds is None:
                name = query.arguments[place].name
                raise InvalidInput(
                    f"{name} has no bounds",
                    why="one person could move a sum, a mean or a quantile by any amount",
                    fix=f"declare public bounds, such as {{bounds={name}=0:100}}, or {{bounds={name}=auto}}"
                    " to estimate them privately",
                )


def _near(noisy: NDArray[np.int64], end: int, noise: Noise, confidence: Number) -> NDArray[np.bool_]:
    """Groups with an integer that is no further below an end than noise goes."""
    edge = end * (1 - 2.0**-40) - width_of(np.ones(1), noise, confidence)
    return np.asarray((np.abs(noisy) >= edge).any(axis=1))


def _rounding(steps: Fraction, measured: BoundedAggregate) -> float:
    """How far a sum is off where each row's part is by so many fine steps, and the sum by half of its own."""
    return float(steps * _MOST_ROWS / (1 << FINE_BITS) / measured.step) + _cut(measured) + 0.5


def _cut(measured: BoundedAggregate) -> float:
    """How far a sum is off where of weights less than a step each is cut."""
    if not measured.is_weighed:
        return 0.0
    return float(Fraction(_MOST_WEIGHED, 1 << WEIGHT_BITS) / measured.step)


def _stretch(bounds: Bounds) -> Fraction:
    """By how much values are further off between bounds that are no doubles, and close beside their size."""
    if all(Fraction(float(end)) == end for end in bounds):
        return Fraction(1)
    return max(Fraction(1), _largest(bounds) / (bounds[1] - bounds[0]) / 8)


def _scaled(found: Estimate, span: float, start: float = 0.0) -> Estimate:
    """From shares of the bounds' range; the ends are moved outward by what doubles lose."""
    value, low, high = (start + span * part for part in (found.value, found.low, found.high))
    lost = [_LOST * (abs(start) + abs(span * part)) for part in (found.low, found.high)]
    return Estimate(value, low - lost[0], high + lost[1])


def _largest(bounds: Bounds) -> Fraction:
    return max(abs(bounds[0]), abs(bounds[1]))


def _short(width: float) -> str:
    return f"{width:,.0f}" if width >= 1000 else f"{width:.3g}"
