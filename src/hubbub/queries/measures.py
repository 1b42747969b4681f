"""Which integers answer which aggregates: what is measured, and how answers are read from it.

A measure is one vector of noisy integers for each group. Counts, sums, means, variances and covariances of
the same values come from one measure, quantiles from a tree of bins, each with its interval.

Proof: docs/proofs/intervals.md
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from hubbub.errors import InvalidInput, Unsupported
from hubbub.mechanisms import Gaussian, Laplace
from hubbub.mechanisms.spread import combination_width, ratio_interval
from hubbub.queries.query import Aggregate, Query
from hubbub.queries.rules import Measurement, Partition, Weighing
from hubbub.queries.tree import Tree
from hubbub.rational import Number, rational
from hubbub.tables.schema import Bounds

__all__ = ["Estimate", "Measure", "Noise", "measures"]

Noise = Laplace | Gaussian
Floats = NDArray[np.float64]

_MOST_NODES = 1 << 25


@dataclass(frozen=True)
class Estimate:
    """A value for each group, and where the exact answer of the bounded query lies."""

    value: Floats
    low: Floats
    high: Floats


@dataclass(frozen=True)
class Measure(ABC):
    """Abstract: one vector to be measured, and the aggregates that are read from it."""

    aggregates: tuple[int, ...]
    """The places of the aggregates it answers."""

    @abstractmethod
    def measurement(self, weighing: Weighing) -> Measurement:
        """The query to the engine."""

    def vector(self, measured: Measurement, table: NDArray[np.int64]) -> NDArray[np.int64]:
        """The integers that are released, from a table of (groups, columns)."""
        return table.reshape(-1)

    def released(self, measured: Measurement) -> int:
        """How many integers a group releases."""
        return measured.columns

    @abstractmethod
    def read(
        self, place: int, noisy: NDArray[np.int64], measured: Measurement, noise: Noise, confidence: Number
    ) -> Estimate:
        """The answer to one of its aggregates, for each row of the (groups, integers) that were released."""

    @abstractmethod
    def expected(self, place: int, measured: Measurement, noise: Noise, confidence: Number) -> str:
        """How far the answer will be off, in words: a number, or a formula where n is not known."""

    def width(self, place: int, measured: Measurement, noise: Noise, confidence: Number) -> float | None:
        """How far the answer will be off, where that is known beforehand."""
        del place, measured, noise, confidence
        return None


@dataclass(frozen=True)
class Sums(Measure):
    """Weighted sums of the parts of a partition."""

    partition: Partition
    kinds: tuple[Aggregate, ...]
    bounds: tuple[Bounds, ...]
    degrees: tuple[int, ...]
    with_missing: bool
    is_signed: bool = False

    def measurement(self, weighing: Weighing) -> Measurement:
        return weighing.sums(self.partition, is_signed=self.is_signed)

    def read(
        self, place: int, noisy: NDArray[np.int64], measured: Measurement, noise: Noise, confidence: Number
    ) -> Estimate:
        kind = self.kinds[self.aggregates.index(place)]
        return self._reader(kind, measured.step)(
            noisy.astype(np.float64), noise, rational(confidence, "confidence")
        )

    def _reader(self, kind: Aggregate, step: Fraction) -> Callable[[Floats, Noise, Fraction], Estimate]:
        linear = self._linear(kind, step)
        if linear is not None:
            return lambda noisy, noise, confidence: _combined(noisy, linear, noise, confidence)
        if kind.kind == "mean":
            return lambda noisy, noise, confidence: self._mean(noisy, step, noise, confidence)
        if kind.kind in {"variance", "deviation"}:
            return lambda noisy, noise, confidence: self._variance(noisy, kind, step, noise, confidence)
        return lambda noisy, noise, confidence: self._joint(noisy, kind, step, noise, confidence)

    def _linear(self, kind: Aggregate, step: Fraction) -> list[float] | None:
        """The weights of each integer in a count or a sum."""
        size = len(self.partition.parts)
        if self.is_signed:
            low, high = self.bounds[0]
            # One step is worth the larger bound over 2^16; `step` has the 2^16 in it already.
            return [float(max(abs(low), abs(high)) * step)]
        if kind.kind == "count" and not kind.arguments:
            return [float(step)] * size
        if kind.kind == "count":
            return [float(step)] * (size - self.with_missing) + [0.0] * self.with_missing
        if kind.kind != "sum":
            return None
        low, high = self.bounds[0]
        return [float(step * (low + (high - low) * share)) for share in self._firsts(0)] + [
            0.0
        ] * self.with_missing

    def _firsts(self, which: int) -> list[Fraction]:
        """What each part says of the first power of value number `which`: Σt = Σ part·share."""
        shares = [
            [Fraction(1), Fraction(0)] if degree == 1 else [Fraction(1), Fraction(1, 2), Fraction(0)]
            for degree in self.degrees
        ]
        if len(shares) == 1:
            return shares[0]
        return [first if which == 0 else second for first in shares[0] for second in shares[1]]

    def _mean(self, noisy: Floats, step: Fraction, noise: Noise, confidence: Fraction) -> Estimate:
        low, high = self.bounds[0]
        if self.degrees == (1,):
            share, least, most = ratio_interval(noisy[:, 0], noisy[:, 1], noise, confidence)
        else:
            share, least, most = self._share(noisy, self._firsts(0), step, noise, confidence)
        return _within(low, high, share, least, most)

    def _share(
        self, noisy: Floats, shares: Sequence[Fraction], step: Fraction, noise: Noise, confidence: Fraction
    ) -> tuple[Floats, Floats, Floats]:
        """Σ part·share over Σ part, which is between 0 and 1: both ends from those of the two sums."""
        half = 1 - (1 - confidence) / 2
        padding = [0.0] * self.with_missing
        top = _combined(noisy, [float(step * share) for share in shares] + padding, noise, half)
        bottom = _combined(noisy, [float(step)] * len(shares) + padding, noise, half)
        with np.errstate(all="ignore"):
            value = np.where(bottom.value > 0, top.value / bottom.value, 0.5)
            least = np.where(bottom.high > 0, np.maximum(top.low, 0) / bottom.high, 0.0)
            most = np.where(bottom.low > 0, np.maximum(top.high, 0) / bottom.low, 1.0)
        least, most = np.clip(least, 0, 1), np.clip(most, 0, 1)
        return np.clip(value, least, most), least, most

    def _variance(
        self, noisy: Floats, kind: Aggregate, step: Fraction, noise: Noise, confidence: Fraction
    ) -> Estimate:
        low, high = self.bounds[0]
        third = 1 - (1 - confidence) / 3
        mean = self._share(noisy, self._firsts(0), step, noise, 1 - 2 * (1 - third) / 2)
        square = self._share(
            noisy, [Fraction(1), Fraction(0), Fraction(0)], step, noise, 1 - 2 * (1 - third) / 2
        )
        value = np.clip(square[0] - mean[0] ** 2, 0, 0.25)
        least = np.clip(square[1] - mean[2] ** 2, 0, 0.25)
        most = np.clip(square[2] - mean[1] ** 2, 0, 0.25)
        # A variance is also at most m(1 − m).
        most = np.minimum(
            most,
            np.where(
                (mean[1] <= 0.5) & (mean[2] >= 0.5),
                0.25,
                np.maximum(mean[1] * (1 - mean[1]), mean[2] * (1 - mean[2])),
            ),
        )
        if kind.is_sample:
            value, least, most = self._bessel(noisy, (value, least, most), step, noise, third)
        scale = float((high - low) ** 2)
        found = Estimate(*(np.clip(part, least, most) * scale for part in (value, least, most)))
        if kind.kind == "deviation":
            return Estimate(np.sqrt(found.value), np.sqrt(found.low), np.sqrt(found.high))
        return found

    def _bessel(
        self,
        noisy: Floats,
        found: tuple[Floats, Floats, Floats],
        step: Fraction,
        noise: Noise,
        confidence: Fraction,
    ) -> tuple[Floats, Floats, Floats]:
        """Times n/(n − 1), with n between its own ends."""
        size = len(self.partition.parts) - self.with_missing
        count = _combined(noisy, [float(step)] * size + [0.0] * self.with_missing, noise, confidence)

        def factor(n: Floats) -> Floats:
            return np.where(n > 1, n / np.maximum(n - 1, 1e-300), np.inf)

        with np.errstate(all="ignore"):
            value = found[0] * np.where(count.value > 2, factor(count.value), 2.0)
            most = np.where(found[2] > 0, found[2] * factor(count.low), 0.0)
        return value, found[1], most

    def _joint(
        self, noisy: Floats, kind: Aggregate, step: Fraction, noise: Noise, confidence: Fraction
    ) -> Estimate:
        """Covariance and correlation of two values, from all their products."""
        shares = 5 if kind.kind == "correlation" else 3
        each = 1 - (1 - confidence) / (shares + kind.is_sample)
        products = self._products()
        x = self._share(noisy, self._firsts(0), step, noise, each)
        y = self._share(noisy, self._firsts(1), step, noise, each)
        both = self._share(noisy, products, step, noise, each)
        value = both[0] - x[0] * y[0]
        least, most = both[1] - x[2] * y[2], both[2] - x[1] * y[1]
        if kind.kind == "covariance":
            if kind.is_sample:
                scaled = self._bessel(
                    noisy,
                    (np.abs(value), np.zeros_like(value), np.maximum(np.abs(least), np.abs(most))),
                    step,
                    noise,
                    each,
                )
                value, least, most = (
                    np.sign(value) * scaled[0],
                    np.where(least < 0, -scaled[2], least),
                    np.where(most > 0, scaled[2], most),
                )
            scale = float((self.bounds[0][1] - self.bounds[0][0]) * (self.bounds[1][1] - self.bounds[1][0]))
            return Estimate(value * scale, least * scale, most * scale)
        spreads = []
        for which, mean in ((0, x), (1, y)):
            square = self._share(noisy, self._squares(which), step, noise, each)
            spreads.append(
                [
                    np.clip(part, 0, 0.25)
                    for part in (square[0] - mean[0] ** 2, square[1] - mean[2] ** 2, square[2] - mean[1] ** 2)
                ]
            )
        with np.errstate(all="ignore"):
            below = np.sqrt(spreads[0][1] * spreads[1][1])
            above = np.sqrt(spreads[0][2] * spreads[1][2])
            middle = np.sqrt(spreads[0][0] * spreads[1][0])
            rho = np.where(middle > 0, value / middle, 0.0)
            low = np.where(
                least < 0, np.where(below > 0, least / below, -1.0), np.where(above > 0, least / above, -1.0)
            )
            high = np.where(
                most > 0, np.where(below > 0, most / below, 1.0), np.where(above > 0, most / above, 1.0)
            )
        low, high = np.clip(low, -1, 1), np.clip(high, -1, 1)
        return Estimate(np.clip(rho, low, high), low, high)

    def _products(self) -> list[Fraction]:
        first, second = self._one_by_one()
        return [one * two for one in first for two in second]

    def _squares(self, which: int) -> list[Fraction]:
        """What each part says of the square; the value has degree 2."""
        square = [Fraction(1), Fraction(0), Fraction(0)]
        first, second = ([Fraction(1)] * (degree + 1) for degree in self.degrees)
        return [
            (square[i] if which == 0 else square[j]) for i in range(len(first)) for j in range(len(second))
        ]

    def _one_by_one(self) -> tuple[list[Fraction], list[Fraction]]:
        one, two = (
            [Fraction(1), Fraction(0)] if degree == 1 else [Fraction(1), Fraction(1, 2), Fraction(0)]
            for degree in self.degrees
        )
        return one, two

    def expected(self, place: int, measured: Measurement, noise: Noise, confidence: Number) -> str:
        width = self.width(place, measured, noise, confidence)
        if width is not None:
            return f"± {_short(width)}"
        kind = self.kinds[self.aggregates.index(place)]
        span = float(self.bounds[0][1] - self.bounds[0][0])
        size = len(self.partition.parts) - self.with_missing
        rows = float(combination_width(noise, [float(measured.step) / 2] * size, confidence))
        if kind.kind == "mean":
            return f"± {_short(span * rows)}/n, with n rows"
        if kind.kind == "correlation":
            return f"± about {_short(4 * rows)}/n over the spread, with n rows"
        power = 1 if kind.kind == "deviation" else 2
        return f"± about {_short(2 * span**power * rows)}/n, with n rows"

    def width(self, place: int, measured: Measurement, noise: Noise, confidence: Number) -> float | None:
        linear = self._linear(self.kinds[self.aggregates.index(place)], measured.step)
        return None if linear is None else float(combination_width(noise, linear, confidence))


@dataclass(frozen=True)
class Counted(Measure):
    """Units, or distinct values: one integer a group."""

    argument: int | None = None
    """The value whose different ones are counted; None for units."""

    def measurement(self, weighing: Weighing) -> Measurement:
        return weighing.units() if self.argument is None else weighing.distinct(self.argument)

    def read(
        self, place: int, noisy: NDArray[np.int64], measured: Measurement, noise: Noise, confidence: Number
    ) -> Estimate:
        return _combined(
            noisy.astype(np.float64), [float(measured.step)], noise, rational(confidence, "confidence")
        )

    def expected(self, place: int, measured: Measurement, noise: Noise, confidence: Number) -> str:
        return f"± {_short(self.width(place, measured, noise, confidence))}"

    def width(self, place: int, measured: Measurement, noise: Noise, confidence: Number) -> float:
        return float(combination_width(noise, [float(measured.step)], confidence))


@dataclass(frozen=True)
class PerGroup(Measure):
    """The sum or the mean of each unit's own count, sum or mean in a group, clamped."""

    kind: Aggregate

    def measurement(self, weighing: Weighing) -> Measurement:
        assert self.kind.per_group is not None
        inner, low, high = self.kind.per_group
        argument = self.kind.arguments[0] if self.kind.arguments else None
        return weighing.per_group(inner, argument, (low, high), is_mean=self.kind.kind == "mean")

    def read(
        self, place: int, noisy: NDArray[np.int64], measured: Measurement, noise: Noise, confidence: Number
    ) -> Estimate:
        assert self.kind.per_group is not None
        _, low, high = self.kind.per_group
        sure = rational(confidence, "confidence")
        if self.kind.kind == "sum":
            return _combined(noisy.astype(np.float64), self._linear(measured), noise, sure)
        return _within(low, high, *ratio_interval(noisy[:, 0], noisy[:, 1], noise, sure))

    def _linear(self, measured: Measurement) -> list[float]:
        assert self.kind.per_group is not None
        _, low, high = self.kind.per_group
        return [float(max(abs(low), abs(high)) * measured.step)]

    def expected(self, place: int, measured: Measurement, noise: Noise, confidence: Number) -> str:
        width = self.width(place, measured, noise, confidence)
        return "± a share of n, the number of units" if width is None else f"± {_short(width)}"

    def width(self, place: int, measured: Measurement, noise: Noise, confidence: Number) -> float | None:
        return (
            float(combination_width(noise, self._linear(measured), confidence))
            if self.kind.kind == "sum"
            else None
        )


@dataclass(frozen=True)
class Quantiles(Measure):
    """Quantiles of one value, from a noisy tree over its bounds."""

    argument: int
    bounds: Bounds
    fractions: tuple[Fraction, ...]
    depth: int = 4

    @property
    def tree(self) -> Tree:
        """The bins and their levels."""
        return Tree(self.bounds[0], self.bounds[1], depth=self.depth)

    def measurement(self, weighing: Weighing) -> Measurement:
        return weighing.histogram(self.argument, self.bounds, self.tree.leaves, levels=self.depth)

    def vector(self, measured: Measurement, table: NDArray[np.int64]) -> NDArray[np.int64]:
        if not table.size:
            return np.zeros(0, dtype=np.int64)
        leaves = np.arange(measured.bins)
        return np.concatenate([self.tree.nodes(leaves, row) for row in table.reshape(-1, measured.bins)])

    def released(self, measured: Measurement) -> int:
        return sum(self.tree.branching**level for level in range(1, self.depth + 1))

    def read(
        self, place: int, noisy: NDArray[np.int64], measured: Measurement, noise: Noise, confidence: Number
    ) -> Estimate:
        which = self.aggregates.index(place)
        found = [self.tree.quantiles(row, noise, self.fractions, confidence)[which] for row in noisy]
        value, low, high = (np.array([part[end] for part in found], dtype=np.float64) for end in range(3))
        return Estimate(value, low, high)

    def expected(self, place: int, measured: Measurement, noise: Noise, confidence: Number) -> str:
        rows = self.tree.rank_error(noise, confidence) * float(measured.step)
        return f"± {_short(rows)} rows in rank"


def measures(query: Query) -> tuple[Measure, ...]:
    """What is measured for a query: as few vectors as its aggregates allow."""
    _check_bounds(query)
    out: list[Measure] = []
    plain = [
        place for place, kind in enumerate(query.aggregates) if kind.kind == "count" and not kind.arguments
    ]
    pairs = _pairs(query)
    singles = _singles(query, {place for _, _, places in pairs for place in places})
    for arguments, degrees, places in [*pairs, *singles]:
        # The plain count rides along with the first measure that can carry it.
        carried = plain if not any(isinstance(measure, Sums) for measure in out) else []
        out.append(_sums(query, arguments, degrees, [*carried, *places], with_missing=bool(carried)))
    if plain and not any(isinstance(measure, Sums) for measure in out):
        out.append(
            Sums(
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
            out.append(PerGroup((place,), kind))
        elif kind.kind == "units":
            out.append(Counted((place,)))
        elif kind.kind == "distinct":
            out.append(Counted((place,), kind.arguments[0]))
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
            found.setdefault(kind.arguments, []).append(place)
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
) -> Sums:
    kinds = tuple(query.aggregates[place] for place in places)
    if degrees == (0,):
        partition = Partition.present(arguments[0], with_missing=with_missing)
        return Sums(tuple(places), partition, kinds, (), (), with_missing=with_missing)
    bounds = {argument: query.arguments[argument].bounds for argument in arguments}
    known = {argument: limits for argument, limits in bounds.items() if limits is not None}
    limits = tuple(known[argument] for argument in arguments)
    if {kind.kind for kind in kinds} == {"sum"}:
        return Sums(
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
    return Sums(tuple(places), partition, kinds, limits, degrees, with_missing=with_missing)


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
                    fix=f"declare public bounds, such as --bounds {name}=0:100, or ask for 'auto'",
                )


def _combined(noisy: Floats, weights: Sequence[float], noise: Noise, confidence: Fraction) -> Estimate:
    value = noisy @ np.array(weights)
    width = float(combination_width(noise, weights, confidence))
    # A double is off by its own rounding, too.
    low, high = np.nextafter(value - width, -np.inf), np.nextafter(value + width, np.inf)
    return Estimate(value, low, high)


def _within(low: Fraction, high: Fraction, share: Floats, least: Floats, most: Floats) -> Estimate:
    start, span = float(low), float(high - low)
    return Estimate(*(start + span * part for part in (share, least, most)))


def _short(width: float) -> str:
    return f"{width:,.0f}" if width >= 1000 else f"{width:.3g}"
