"""Quantiles of one value: a few are selected by the exponential mechanism, many come from a tree of counts.

Proof: docs/proofs/quantiles.md, docs/proofs/intervals.md
"""

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from hubbub.engines.schema import Bounds
from hubbub.engines.total_functions import format_double
from hubbub.errors import Unsupported
from hubbub.mechanisms import Laplace
from hubbub.numbers import Number, format_error, format_percent
from hubbub.sensitivity import MAX_MAGNITUDE, Bounded, Sensitivity
from hubbub.sql.aggregate import AdditiveAggregate, Aggregate, Estimator, near_limit
from hubbub.sql.contribution_bounding import ContributionBounding
from hubbub.sql.moments import Estimate, Floats, Noise
from hubbub.sql.quantile_grid import QuantileGrid
from hubbub.sql.quantile_selection import CellCounts, QuantileSelection
from hubbub.sql.quantile_tree import Tree
from hubbub.sql.query import BoundedAggregate, Query
from hubbub.unit import Neighbours, Unit

__all__ = ["SelectedQuantiles", "make_quantiles"]

Integers = NDArray[np.int64]

_MAX_NODES = 1 << 25
_MAX_SELECTED_GROUPS = 1 << 20
_BIN_EDGE_ERROR = 2.0**-48
"""The ends of bins are known up to this share of the bounds: doubles are rounded."""
_BINS_SHARE = Fraction(35, 100)
"""The share of a selection's ε for the counts around its answers."""
_NEXT_TO_END = Fraction(1, 100)
"""Quantiles like MIN and MAX are moved by these counts, so they pay for them without intervals, too."""
_MAX_SELECTED, _MAX_SELECTED_BARE = 3, 7
"""The most quantiles that are selected, with intervals and without: measured in benchmarks/quantiles.py."""


@dataclass(frozen=True)
class Quantiles(AdditiveAggregate):
    """Quantiles of one value, from a noisy tree over its bounds."""

    argument: int
    bounds: Bounds
    fractions: tuple[Fraction, ...]
    depth: int = 4

    @property
    def reason(self) -> str:
        """Why they come from a tree, in words."""
        return f"{len(set(self.fractions))} quantiles share one tree of noisy counts, with intervals for free"

    @cached_property
    def tree(self) -> Tree:
        """The bins and their levels."""
        return Tree(self.bounds[0], self.bounds[1], depth=self.depth)

    def bound(self, bounding: ContributionBounding) -> BoundedAggregate:
        return bounding.histogram(
            self.argument,
            self.bounds,
            _equal_bins_sql(self.bounds, self.tree.leaves),
            self.tree.leaves,
            levels=self.depth,
        )

    def to_vector(self, bounded: BoundedAggregate, table: NDArray[np.int64]) -> NDArray[np.int64]:
        return self.tree.filled(table.reshape(len(table) // bounded.bins, bounded.bins)).reshape(-1)

    def vector_size(self, bounded: BoundedAggregate) -> int:
        return self.tree.size

    def make_estimator(self, noisy: NDArray[np.int64], bounded: BoundedAggregate, noise: Noise) -> Estimator:
        # All fractions at once: what they share, the fit to the noisy tree, takes longest.
        known: dict[Number, tuple[Floats, Floats, Floats]] = {}

        def read(index: int, confidence: Number) -> Estimate:
            if confidence not in known:
                known[confidence] = self.tree.tables(noisy, noise, self.fractions, confidence)
            which = self.indices.index(index)
            value, low, high = (part[which] for part in known[confidence])
            return _within(self.bounds, value, low, high)

        return read

    def describe_error(self, index: int, bounded: BoundedAggregate, noise: Noise, confidence: Number) -> str:
        fraction = self.fractions[self.indices.index(index)]
        rows = self.tree.rank_error(noise, confidence, fraction=fraction) * float(bounded.step)
        return f"± {format_error(rows)} rows in rank"


@dataclass(frozen=True)
class SelectedQuantiles(Aggregate):
    """Quantiles of one value, selected by the exponential mechanism among the cells of a grid."""

    argument: int
    bounds: Bounds
    fractions: tuple[Fraction, ...]
    intervals: bool = True

    @cached_property
    def grid(self) -> QuantileGrid:
        """The cells; several quantiles may lie within one of them, and are told apart by its parts."""
        is_one = len(set(self.fractions)) == 1
        return QuantileGrid(self.bounds, 16 if is_one else 32, spreads_ties=not is_one)

    def bound(self, bounding: ContributionBounding) -> BoundedAggregate:
        """The query to the engine."""
        cells = self.grid.cells
        return bounding.histogram(self.argument, self.bounds, self.grid.index_sql("v"), cells, levels=1)

    @property
    def reason(self) -> str:
        """Why quantiles are selected, in words."""
        if self.intervals:
            few = f"of up to {_MAX_SELECTED} quantiles"
        else:
            few = f"of up to {_MAX_SELECTED_BARE} quantiles without intervals"
        return f"{few} the exponential mechanism has a smaller error than a tree of noisy counts"

    def make_selection(
        self, bounded: BoundedAggregate, epsilon: Fraction, neighbours: Neighbours, *, has_groups: bool
    ) -> QuantileSelection:
        """The selection that costs ε, with the counts of bins around its answers.

        Guarantee: its loss is at most ε in all groups together.
        Proof: docs/proofs/quantiles.md
        """
        is_moved = all(min(each, 1 - each) <= _NEXT_TO_END for each in self.fractions)
        share = epsilon * _BINS_SHARE if self.intervals or is_moved else Fraction(0)
        noise = None
        if share:
            noise = _bins_noise(bounded.sensitivity, share)
        is_one = neighbours is Neighbours.SUBSTITUTE and not has_groups
        weight = bounded.sensitivity.l1
        return QuantileSelection(self.grid, self.fractions, epsilon - share, weight, is_one, noise)

    def release(
        self,
        bounded: BoundedAggregate,
        selection: QuantileSelection,
        counts: CellCounts,
        unit: Unit,
        *,
        is_exact: bool = False,
    ) -> Integers:
        """The released integers of each group: positions, and the noisy counts of bins around them.

        Guarantee: it costs the selection's loss.
        Proof: docs/proofs/quantiles.md
        """
        if is_exact:
            positions = selection.exact(counts)
            return np.concatenate([positions, selection.bin_counts(counts, positions)], axis=1)
        positions = selection.select(counts)
        if selection.noise is None:
            return positions
        bins = selection.bin_counts(counts, positions)
        value = Bounded(bins.reshape(-1), selection.noise.sensitivity, unit, bounded.rule)
        noisy = selection.noise.release(value).value if bins.size else bins
        return np.concatenate([positions, noisy.reshape(bins.shape)], axis=1)

    def make_estimator(self, released: Integers, selection: QuantileSelection) -> Estimator:
        """Estimates its aggregate calls from the released table of (groups, integers)."""
        known: dict[Number, tuple[Floats, Floats, Floats]] = {}

        def read(index: int, confidence: Number) -> Estimate:
            if confidence not in known:
                known[confidence] = selection.estimate(released, Fraction(confidence))
            which = selection.targets.index(self.fractions[self.indices.index(index)])
            return _within(self.bounds, *(part[which] for part in known[confidence]))

        return read

    def may_be_clamped(
        self, released: Integers, selection: QuantileSelection, confidence: Number
    ) -> NDArray[np.bool_]:
        """Groups of which a bin's count may have been clamped before the noise."""
        if selection.noise is None:
            return np.zeros(len(released), dtype=np.bool_)
        bins = released[:, len(selection.targets) :]
        return near_limit(bins, MAX_MAGNITUDE, selection.noise, confidence)

    def compare_with_tree(
        self, query: Query, bounded: BoundedAggregate, selection: QuantileSelection, confidence: Fraction
    ) -> str:
        """How much larger the errors of a tree of noisy counts with the same ε would be, in words."""
        depth = _tree_depth(query)
        tree = Quantiles(self.indices, self.argument, self.bounds, self.fractions, depth).tree
        # A row is in one node of each level.
        in_tree = Sensitivity(bounded.sensitivity.l1 * depth, linf=bounded.sensitivity.linf)
        noise = _bins_noise(in_tree, selection.epsilon + selection.bins_epsilon)
        ratios = {
            tree.rank_error(noise, confidence, fraction=each) / selection.rank_error(each, confidence)
            for each in self.fractions
        }
        ends = " to ".join(dict.fromkeys(f"{ratio:.2g}" for ratio in (min(ratios), max(ratios))))
        return f"the tree's error in rank would be {ends} times as large ({format_percent(confidence)})"

    def describe_error(
        self, index: int, bounded: BoundedAggregate, selection: QuantileSelection, confidence: Fraction
    ) -> str:
        """The expected error in words."""
        fraction = self.fractions[self.indices.index(index)]
        rows = selection.rank_error(fraction, confidence) * float(bounded.step)
        return f"± {format_error(rows)} rows in rank, at most"


def make_quantiles(
    query: Query, argument: int, indices: tuple[int, ...], *, intervals: bool
) -> Quantiles | SelectedQuantiles:
    """The aggregate of all quantiles of one argument: which it is depends on public facts alone."""
    bounds = query.arguments[argument].bounds
    assert bounds is not None
    fractions = tuple(query.aggregates[index].fraction or Fraction(0) for index in indices)
    if len(set(fractions)) <= (_MAX_SELECTED if intervals else _MAX_SELECTED_BARE):
        if query.is_public and query.cells > _MAX_SELECTED_GROUPS:
            raise _too_many_groups()
        return SelectedQuantiles(indices, argument, bounds, fractions, intervals)
    return Quantiles(indices, argument, bounds, fractions, _tree_depth(query))


def _tree_depth(query: Query) -> int:
    """As many levels as the number of groups allows."""
    groups = max(1, query.cells if query.is_public else 1 << 10)
    for depth in (4, 3, 2):
        if groups * 16**depth <= _MAX_NODES:
            return depth
    raise _too_many_groups()


def _too_many_groups() -> Unsupported:
    return Unsupported(
        "quantiles are asked for in too many groups",
        why="every group has many bins, and each bin has noise of its own",
        fix="ask for fewer groups",
    )


def _equal_bins_sql(bounds: Bounds, bins: int) -> str:
    """The place of a value v among equal parts of its bounds."""
    low, factor = format_double(bounds[0]), format_double(bins / (bounds[1] - bounds[0]))
    return f"LEAST(GREATEST(FLOOR((v - {low}) * {factor}), 0), {bins - 1})"


def _within(bounds: Bounds, value: Floats, low: Floats, high: Floats) -> Estimate:
    """The ends moved outward by what edges of bins are rounded, but not beyond the bounds."""
    least, most = map(float, bounds)
    edge = _BIN_EDGE_ERROR * (abs(least) + abs(most))
    return Estimate(value, np.maximum(low - edge, least), np.minimum(high + edge, most))


@lru_cache(maxsize=64)  # a plan compares several ways to answer, with the same selection in each
def _bins_noise(sensitivity: Sensitivity, epsilon: Fraction) -> Laplace:
    bound = Sensitivity(sensitivity.l1, linf=sensitivity.linf)
    return Laplace.of(
        sensitivity=bound, epsilon=epsilon, allow_large_epsilon=True
    )  # the plan's was confirmed
