"""Runs a plan: the engine's exact integers, each vector through its noise, then the columns of the result.

This is the one place where rows and noise meet. It is called after the charge, and by nobody else.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hubbub.engines.engine import Engine, RecordBatch
from hubbub.engines.schema import Key
from hubbub.mechanisms import StabilityHistogram
from hubbub.mechanisms.vector_stability_histogram import VectorStabilityHistogram
from hubbub.numbers import Number
from hubbub.sensitivity import Bounded
from hubbub.sql.aggregate import Affine, Estimator
from hubbub.sql.bound_estimation import estimate_bounds, find_limits
from hubbub.sql.explain import describe_luck, describe_nothing, make_label
from hubbub.sql.integer_outputs import counts_rows_or_units, round_estimate
from hubbub.sql.moments import Estimate, Moments
from hubbub.sql.plan import Plan
from hubbub.sql.planned_aggregates import NoisyAggregate, PlannedAggregate
from hubbub.sql.post_processing import ResultColumn
from hubbub.sql.quantile_selection import CellCounts
from hubbub.sql.query import AggregateCall, BoundedAggregate

__all__ = [
    "Execution",
    "ReleasedAggregate",
    "SelectedAggregate",
    "dense_table",
    "execute",
    "fill_table",
    "group_indices",
    "make_columns",
    "resolve_bounds",
    "select_keys",
]

Groups = Sequence[tuple[Key, ...]]
Integers = NDArray[np.int64]


@dataclass(frozen=True)
class Execution:
    """The released columns, and the label they are published with."""

    columns: list[ResultColumn]
    label: dict[str, Any]


def execute(
    plan: Plan,
    engine: Engine,
    progress: Callable[[str], None] = lambda _: None,
    *,
    is_exact: bool = False,
) -> Execution:
    """Run a plan that has been charged.

    Args:
        plan: the plan.
        engine: holds the rows.
        progress: called with the name of each step.
        is_exact: leave the noise out, for the owner's own eyes.

    Guarantee: what comes out went through the plan's mechanisms, and nothing else did.
    Proof: docs/proofs/bounding.md, "A plan"
    """
    plan, above = resolve_bounds(plan, engine, progress, is_exact=is_exact)
    label = make_label(plan, above)
    if plan.query.is_top:
        return Execution(_select_top(plan, engine, progress), label)
    groups: Groups | None = plan.query.groups() if plan.query.is_public else None
    estimators: dict[int, Estimator] = {}
    released: list[ReleasedAggregate] = []
    if plan.selecting is not None:
        progress("counting, and selecting keys")
        if isinstance(plan.stability_histogram, VectorStabilityHistogram):
            groups, parts = _release_selected_parts(plan, plan.selecting, engine, is_exact=is_exact)
            released.append(parts)
        else:
            groups, estimator = _release_selected_counts(plan, plan.selecting, engine, is_exact=is_exact)
            estimators.update(dict.fromkeys(plan.selecting.aggregate.indices, estimator))
    for each in plan.aggregates:
        if each is plan.selecting:
            continue
        progress("counting")
        batch = engine.execute(each.bounded.sql, each.bounded.key_sets)
        if groups is None:
            progress("selecting keys")
            groups = select_keys(plan, engine, batch if each.bounded.counts_units else None)
        integers = _release(plan, each, batch, groups, is_exact=is_exact)
        released.append(ReleasedAggregate(each, integers, is_exact=is_exact))
    assert groups is not None
    if not groups and plan.bounded.selects_keys:
        label["nothing shown"] = describe_nothing(plan)
    columns = make_columns(plan, groups, released, estimators, rounds=not is_exact)
    luck = None if is_exact else describe_luck(plan, columns)
    if luck is not None:
        label["selected by luck"] = luck
    if is_exact:
        columns = [replace(column, low=None, high=None) for column in columns]
    return Execution(columns, label)


def resolve_bounds(
    plan: Plan, engine: Engine, progress: Callable[[str], None], *, is_exact: bool = False
) -> tuple[Plan, Estimate | None]:
    """The plan with all bounds known, and the noisy share of units that exceed a contribution bound."""
    if plan.bounded.estimates_limits:
        progress("finding contribution bounds")
        plan = find_limits(plan, engine)
    if plan.bounded.estimated_arguments:
        progress("finding bounds")
        plan = estimate_bounds(plan, engine)
    return plan, _measure_bounding(plan, engine, is_exact=is_exact)


@dataclass(frozen=True)
class ReleasedAggregate:
    """The noisy integers of an aggregate: a row of them for each group."""

    source: PlannedAggregate
    integers: Integers
    is_exact: bool = field(default=False, kw_only=True)

    def make_estimator(self) -> Estimator:
        """Estimates its aggregate calls; where a sum may have been clamped, the exact answer may be anywhere.

        Proof: docs/proofs/intervals.md, "Saturated sums"
        """
        estimate = self.source.make_estimator(self.integers)
        return lambda index, confidence: self._unless_clamped(estimate(index, confidence), confidence)

    def may_be_empty(self, index: int, *, is_grouped: bool) -> NDArray[np.bool_]:
        """Groups in which an aggregate call is NULL: they may have no row, or, of exact answers, have none.

        Groups of declared keys often are empty, so their counts have to show that there is a row. Where all
        rows are one group there nearly always is one: it is NULL if its count is 0 or less.
        """
        count = self.source.count_present(index, self.integers)
        if count is None:
            return np.zeros(len(self.integers), dtype=np.bool_)
        if self.is_exact:
            return np.asarray(~self.integers.any(axis=1))
        return np.asarray((count.low if is_grouped else count.value) <= 0)

    def estimate_ratio(self, forms: tuple[Affine, Affine], confidence: Number) -> Estimate | None:
        """Estimates the ratio of two affine forms of its aggregate calls; None if they are no plain sums."""
        ratio = self.source.estimate_ratio(self.integers, forms, confidence)
        return None if ratio is None else self._unless_clamped(ratio, confidence)

    def _unless_clamped(self, estimate: Estimate, confidence: Number) -> Estimate:
        return _unbounded_where(estimate, self.source.may_be_clamped(self.integers, confidence))


@dataclass(frozen=True)
class SelectedAggregate(ReleasedAggregate):
    """The noisy parts of the keys that they selected: intervals hold given that a key is released.

    Proof: docs/proofs/partition-selection.md, "Parts that select"
    """

    histogram: VectorStabilityHistogram

    def make_estimator(self) -> Estimator:
        """Estimates its aggregate calls, as without selection at the larger confidence that this takes."""
        estimate = super().make_estimator()
        return lambda index, confidence: self._given_release(partial(estimate, index), confidence)

    def estimate_ratio(self, forms: tuple[Affine, Affine], confidence: Number) -> Estimate | None:
        """Estimates a ratio in the same way."""
        plain = super().estimate_ratio
        if plain(forms, confidence) is None:
            return None
        return self._given_release(lambda sure: plain(forms, sure) or _NOTHING, confidence)

    def _given_release(self, estimate: Callable[[Number], Estimate], confidence: Number) -> Estimate:
        plain = estimate(confidence)
        low, high = plain.low.copy(), plain.high.copy()
        for level, keys in self.histogram.levels(self.integers, confidence):
            if keys.any():
                wider = estimate(level)
                low, high = np.where(keys, wider.low, low), np.where(keys, wider.high, high)
        return Estimate(plain.value, low, high)


_COUNTED = frozenset({"count", "units", "distinct"})
_NULL_IF_EMPTY = frozenset(
    {"mean", "variance", "deviation", "covariance", "correlation", "slope", "quantile"}
)
_NOTHING = Estimate(*(np.empty(0) for _ in range(3)))


def make_columns(
    plan: Plan,
    groups: Groups,
    released: Sequence[ReleasedAggregate],
    known: Mapping[int, Estimator],
    *,
    rounds: bool = True,
) -> list[ResultColumn]:
    """The columns of the result for these groups, from what was released of them. Counts are integers.

    Args:
        plan: the plan.
        groups: the group keys.
        released: the noisy aggregates of these groups.
        known: estimators of further aggregate calls, by their indices.
        rounds: false for exact answers, of which those of weighted rows are no integers.
    """
    estimators = dict(known)
    sources: dict[int, ReleasedAggregate] = {}
    for each in released:
        estimators.update(dict.fromkeys(each.source.aggregate.indices, each.make_estimator()))
        sources.update(dict.fromkeys(each.source.aggregate.indices, each))

    weighted = {
        index: each.bounded.is_weighted for each in plan.aggregates for index in each.aggregate.indices
    }

    @cache
    def estimate(index: int, confidence: Fraction) -> Estimate:
        estimated = estimators[index](index, confidence)
        # Here, so that HAVING and ORDER BY see the integers that are shown.
        if rounds and counts_rows_or_units(plan.query.aggregates[index]):
            return round_estimate(estimated, is_exact_integer=not weighted[index])
        # A mean or a median beside a count that says that there is nothing would contradict it.
        counts = (
            estimate(beside, confidence).value for beside in _counts_beside(plan.query.aggregates, index)
        )
        empty = np.logical_or.reduce([count <= 0 for count in counts]) | _lacks_bounds(plan, index)
        if index in sources:
            empty |= sources[index].may_be_empty(index, is_grouped=bool(plan.query.keys))
        return _null_where(estimated, empty) if np.any(empty) else estimated

    def ratio(top: Affine, bottom: Affine, confidence: Fraction) -> Estimate | None:
        if None in plan.shares_beyond.values():
            return None  # one of the two may be NULL
        estimates = (each.estimate_ratio((top, bottom), confidence) for each in released)
        return next((each for each in estimates if each is not None), None)

    columns = plan.post_processing.evaluate(groups, estimate, plan.confidence, ratio, rounds=rounds)
    if plan.bounded.intervals:
        return columns
    return [replace(column, low=None, high=None) for column in columns]


def _release(
    plan: Plan, each: PlannedAggregate, batch: RecordBatch, groups: Groups, *, is_exact: bool
) -> Integers:
    """The released integers of all groups, from the engine's batch of them."""
    keys = len(plan.query.keys)
    if isinstance(each, NoisyAggregate):
        table = dense_table(each.bounded, batch, groups, keys)
        return each.release(table, plan.unit, is_exact=is_exact)
    # Most cells of most groups are empty: no table of all of them is made.
    indices = _batch_indices(each.bounded, batch, groups, keys)
    inside = np.flatnonzero((indices >= 0) & (indices < len(groups)) & (batch["m0"] != 0))
    cell = batch["b"][inside].astype(np.int64)
    order = np.lexsort((cell, indices[inside]))
    group, count = indices[inside][order].astype(np.int64), batch["m0"][inside][order]
    counts = CellCounts(len(groups), group, cell[order], count)
    return each.release_counts(counts, plan.unit, is_exact=is_exact)


def _unbounded_where(estimate: Estimate, where: NDArray[np.bool_]) -> Estimate:
    low, high = np.where(where, -np.inf, estimate.low), np.where(where, np.inf, estimate.high)
    return Estimate(estimate.value, low, high)


def _null_where(estimate: Estimate, where: NDArray[np.bool_]) -> Estimate:
    return replace(_unbounded_where(estimate, where), value=np.where(where, np.nan, estimate.value))


def _lacks_bounds(plan: Plan, index: int) -> bool:
    """True if an aggregate call takes values of which no bounds were found. Counts take none."""
    call = plan.query.aggregates[index]
    takes_values = call.per_group is None and call.kind.removeprefix("distinct ") not in _COUNTED
    return takes_values and any(
        place in plan.shares_beyond and plan.shares_beyond[place] is None for place in call.arguments
    )


def _counts_beside(calls: Sequence[AggregateCall], index: int) -> list[int]:
    """The counts in the same query that say, if they are 0, that this call has no value and is NULL."""
    call = calls[index]
    if call.kind.removeprefix("distinct ") not in _NULL_IF_EMPTY:
        return []
    counts = {"count", "units"}
    return [
        place
        for place, other in enumerate(calls)
        if other.kind in counts and other.per_group is None and set(other.arguments) <= set(call.arguments)
    ]


def _measure_bounding(plan: Plan, engine: Engine, *, is_exact: bool) -> Estimate | None:
    """The noisy share of units that exceed a contribution bound; None if it is not reported."""
    bounded, noise = plan.bounded.units_above_bounds, plan.report_noise
    if bounded is None or noise is None:
        return None
    batch = engine.execute(bounded.sql, bounded.key_sets)
    counts = np.array([batch[f"m{index}"][0] for index in range(bounded.columns)], dtype=np.int64)
    value = Bounded(counts, bounded.sensitivity, plan.unit, bounded.rule)
    noisy = counts if is_exact else noise.release(value).value
    return Moments(noisy[np.newaxis].astype(np.float64), (1,), noise, bounded.step).mean(plan.confidence)


# Tables


def dense_table(bounded: BoundedAggregate, batch: RecordBatch, groups: Groups, keys: int) -> Integers:
    """A table of (groups × bins, columns); groups without rows are zeros, others are left out."""
    return fill_table(bounded, batch, _batch_indices(bounded, batch, groups, keys), len(groups))


def _batch_indices(
    bounded: BoundedAggregate, batch: RecordBatch, groups: Groups, keys: int
) -> NDArray[np.intp]:
    """For each row of a batch, the index of its group; below 0 where it is none of them."""
    if not keys or "p0" in batch:
        return group_indices(bounded, batch, keys)
    return _selected_indices(batch, groups, keys)


def fill_table(
    bounded: BoundedAggregate, batch: RecordBatch, indices: NDArray[np.intp], groups: int
) -> Integers:
    """A table of (groups × bins, columns), each row of the batch at the index of its group."""
    table = np.zeros((groups * bounded.bins, bounded.columns), dtype=np.int64)
    columns = [batch[f"m{index}"] for index in range(bounded.columns)]
    inside = (indices >= 0) & (indices < groups)
    rows = indices[inside] * bounded.bins
    if bounded.bins > 1:
        rows = rows + batch["b"][inside]
    for index, column in enumerate(columns):
        table[rows, index] = column[inside]
    return table


def group_indices(bounded: BoundedAggregate, batch: RecordBatch, keys: int) -> NDArray[np.intp]:
    """For each row of a batch, the index of its group, where all group keys are public."""
    # In the order of `Query.groups`: the index of the last key is the fastest.
    total = np.zeros(batch["m0"].size, dtype=np.intp)
    for number in range(keys):
        total = total * len(bounded.key_sets[f"_keys{number}"]) + batch[f"p{number}"]
    return total


def _selected_indices(batch: RecordBatch, groups: Groups, keys: int) -> NDArray[np.intp]:
    """The same by the group keys that were selected; −1 where a group is none of them."""
    index = {group: number for number, group in enumerate(groups)}
    rows = zip(*(batch[f"k{number}"].tolist() for number in range(keys)), strict=True)
    return np.fromiter((index.get(group, -1) for group in rows), dtype=np.intp, count=batch["m0"].size)


# Group keys


def select_keys(plan: Plan, engine: Engine, batch: RecordBatch | None = None) -> Groups:
    """The group keys that enough units have, selected with noise, and sorted: their order tells nothing.

    Args:
        plan: the plan.
        engine: holds the rows.
        batch: an aggregate's batch that counts the units of each key besides, if there is one.
    """
    selection, bounded = plan.partition_selection, plan.bounded.key_candidates
    assert selection is not None
    if batch is None:
        batch = engine.execute(bounded.sql, bounded.key_sets)
    counts = batch["u"]
    if not counts.size:
        return []
    value = Bounded(counts, bounded.sensitivity, plan.unit, bounded.rule)
    selected = selection.release(value).value
    columns = [batch[f"k{number}"] for number in range(len(plan.query.keys))]
    return _sort_groups(tuple(column[index] for column in columns) for index in selected)


def _release_selected_counts(
    plan: Plan, selecting: NoisyAggregate, engine: Engine, *, is_exact: bool
) -> tuple[Groups, Estimator]:
    """The group keys with noisy counts at or above the threshold, sorted, and these counts."""
    bounded, histogram = selecting.bounded, plan.stability_histogram
    assert isinstance(histogram, StabilityHistogram)
    batch = engine.execute(bounded.sql, bounded.key_sets)
    counts, step = batch["m0"], float(bounded.step)
    value = Bounded(counts, bounded.sensitivity, plan.unit, bounded.rule)
    table = histogram.release(value).value if counts.size else np.empty((0, 2), dtype=np.int64)
    columns = [batch[f"k{number}"] for number in range(len(plan.query.keys))]
    selected = {tuple(column[index] for column in columns): (index, noisy) for index, noisy in table}
    groups = _sort_groups(selected)
    noisy = np.array([selected[group][1] for group in groups], dtype=np.int64)
    totals = counts[[selected[group][0] for group in groups]] if is_exact else noisy
    values = totals.astype(np.float64) * step

    def estimate(_: int, confidence: Number) -> Estimate:
        low, high = histogram.interval(noisy, confidence)
        of_noise = Estimate(values, low * step, high * step)  # the step is a power of two
        is_clamped = selecting.aggregate.may_be_clamped(noisy[:, np.newaxis], histogram.noise, confidence)
        return _unbounded_where(of_noise, is_clamped)

    return groups, estimate


def _release_selected_parts(
    plan: Plan, selecting: NoisyAggregate, engine: Engine, *, is_exact: bool
) -> tuple[Groups, ReleasedAggregate]:
    """The group keys with noisy totals at or above the threshold, sorted, and their noisy parts."""
    bounded, histogram = selecting.bounded, plan.stability_histogram
    assert isinstance(histogram, VectorStabilityHistogram)
    batch = engine.execute(bounded.sql, bounded.key_sets)
    exact = np.stack([batch[f"m{index}"] for index in range(bounded.columns)], axis=1).astype(np.int64)
    value = Bounded(exact.reshape(-1), bounded.sensitivity, plan.unit, bounded.rule)
    released = histogram.release(value).value if exact.size else np.empty((0, bounded.columns + 1), np.int64)
    columns = [batch[f"k{number}"] for number in range(len(plan.query.keys))]
    selected = {tuple(column[row[0]] for column in columns): row for row in released}
    groups = _sort_groups(selected)
    table = np.array([selected[group] for group in groups], dtype=np.int64).reshape(-1, bounded.columns + 1)
    integers = exact[table[:, 0]] if is_exact else table[:, 1:]
    return groups, SelectedAggregate(selecting, integers, histogram, is_exact=is_exact)


def _sort_groups(groups: Iterable[tuple[Key, ...]]) -> Groups:
    """In an order that tells nothing of where they come from."""
    return sorted(groups, key=lambda group: [(key is None, key) for key in group])


def _select_top(plan: Plan, engine: Engine, progress: Callable[[str], None]) -> list[ResultColumn]:
    """The keys of the largest groups: only their names leave."""
    progress("choosing")
    query, groups = plan.query, plan.query.groups()
    bounded, top_k = plan.bounded.top_scores, plan.top_k
    assert bounded is not None
    assert top_k is not None
    batch = engine.execute(bounded.sql, bounded.key_sets)
    scores = dense_table(bounded, batch, groups, len(query.keys))[:, 0]
    value = Bounded(scores, bounded.sensitivity, plan.unit, bounded.rule)
    selected = top_k.release(value).value
    columns = []
    for output in query.outputs:
        keys = np.empty(len(selected), dtype=object)
        keys[:] = [groups[index][output.key or 0] for index in selected]
        columns.append(ResultColumn(output.name, keys, kind=query.keys[output.key or 0].kind))
    return columns
