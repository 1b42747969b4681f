"""One to three quantiles by the exponential mechanism, over the histogram that the engine counted.

The candidates are the parts of the grid's cells. A part's score is how far its ranks are from the rank that
is asked for, in exact integers; its weight where nothing is known is public. Several quantiles are found one
inside the other: the middle one first, then the others among the rows on their side of it (Kaplan, Schnapp
and Stemmer, 2022). Runs of empty cells are one candidate, so the work is that of the cells that have rows.

A share of ε pays for noisy counts of disjoint bins around the answers. They make intervals, and move extreme
quantiles, which are selected some rows from the end, towards the end: to where the counts show rows.

Proof: docs/proofs/quantiles.md
"""

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hubbub.accounting import PrivacyLoss
from hubbub.mechanisms import Laplace
from hubbub.mechanisms.confidence_intervals import width_from_norms
from hubbub.noise import uniform
from hubbub.noise.enclosures import log
from hubbub.noise.weighted_choice import choose_by_floats, locate_exactly
from hubbub.numbers import Number, format_up
from hubbub.sensitivity import MAX_MAGNITUDE
from hubbub.sql.quantile_grid import QuantileGrid

__all__ = ["CellCounts", "QuantileSelection"]

Integers = NDArray[np.int64]
Floats = NDArray[np.float64]

_EXTREME = Fraction(1, 10)
_FROM_THE_END = 16
"""Quantiles this extreme are selected at least 16/ε rows from the end: beyond it noise finds no row."""
_NEGLIGIBLE = 130
"""Candidates that are e^130 less likely than another one are looked at only where floats cannot decide."""
_AT_ONCE = 1 << 16
_VISIBLE = 1.25
"""Rows are seen in a bin if its noisy count, less the rows that may be there, exceeds the scale by this."""
_WITHIN = 0.6
"""How far into the last bin in which rows are seen an extreme quantile is moved."""
_DOUBLINGS = 16
"""Bins of intervals end 2^0, 2^1, … 2^15 cells from the answer's cell."""
_ROUNDING = 2.0**-50
"""A sum of n doubles is off by less than n times this share of what was added."""


class CellCounts(NamedTuple):
    """The counts of cells that have some, by group and then by cell."""

    groups: int
    """The number of groups, including those without rows."""
    group: Integers
    cell: Integers
    tally: Integers


class _Step(NamedTuple):
    """One quantile: which, its rank among the rows that are left, and at which end it may not come closer."""

    which: int
    fraction: Fraction
    level: int
    from_left: bool
    from_right: bool

    @property
    def most(self) -> Fraction:
        """The largest move of a score by one row."""
        return Fraction(1) if self.from_left or self.from_right else max(self.fraction, 1 - self.fraction)


class _Rows(NamedTuple):
    """Counts of runs of parts, by group and then by position, within [first, stop) of each group."""

    group: Integers
    position: Integers
    parts: Integers
    tally: NDArray[Any]
    first: Integers
    stop: Integers


class _Blocks(NamedTuple):
    """A run of empty parts followed by a run that has a count, or by the end of its group."""

    group: Integers
    start: Integers
    position: Integers
    parts: Integers
    tally: NDArray[Any]
    before: NDArray[Any]
    """The count before it, in its group."""


@dataclass(frozen=True)
class QuantileSelection:
    """Quantiles by the exponential mechanism, at `epsilon`, with intervals from noisy counts.

    Guarantee: the selection has bounded range `epsilon` over all groups together, so it is ε-differentially
        private; the counts cost what their noise costs.
    Assumes: one unit moves the counts of all cells and groups by at most `weight` in ℓ1, and they are
        integers and not negative.
    Proof: docs/proofs/quantiles.md
    """

    grid: QuantileGrid
    fractions: tuple[Fraction, ...]
    """In any order, and as often as they are asked for."""
    epsilon: Fraction
    weight: Fraction
    substitutes_in_one_group: bool = False
    """True if a unit is replaced, by one of the same group: then half of `weight` is taken, half given."""
    noise: Laplace | None = None
    """Of the counts of bins around the answers; None where there are none."""

    def __post_init__(self) -> None:
        # Below a quantile that was selected, cells are cut: no part stands for all of one.
        assert self.grid.spreads_ties or len(self.targets) == 1

    @cached_property
    def targets(self) -> tuple[Fraction, ...]:
        """The different fractions, in order."""
        return tuple(sorted(set(self.fractions)))

    @property
    def levels(self) -> int:
        """The number of selections that a row takes part in: one for one quantile, two for two or three."""
        return len(self.targets).bit_length()

    def loss(self) -> PrivacyLoss:
        """The privacy loss of the quantiles and of the counts around them."""
        loss = PrivacyLoss.bounded_range(self.epsilon / self.levels) * self.levels
        return loss if self.noise is None else loss + PrivacyLoss.pure(self.bins_epsilon)

    @property
    def bins_epsilon(self) -> Fraction:
        """The ε of the noisy counts of bins around the answers."""
        return Fraction(0) if self.noise is None else self.noise.sensitivity.l1 / self.noise.scale

    def _span(self, step: _Step) -> Fraction:
        """How far one unit moves a score up or down at most, in all groups together.

        Proof: docs/proofs/quantiles.md, "Sensitivity"
        """
        most = step.most * self.weight
        return min(most, self.weight / 2) if self.substitutes_in_one_group and not step.level else most

    def _rate(self, step: _Step) -> Fraction:
        """r: the probability of a candidate falls by e^−r with each step that its rank is further off."""
        return self.epsilon / self.levels / (2 * self._span(step))

    @property
    def distances(self) -> dict[Fraction, int]:
        """How far from the end of the rows extreme quantiles are selected at least, in steps of a count."""
        extreme = (step for step in self.steps if step.from_left or step.from_right)
        return {self.targets[step.which]: self._distance(step) for step in extreme}

    def _distance(self, step: _Step) -> int:
        return -int(-_FROM_THE_END * self._span(step) * self.levels // self.epsilon)

    @cached_property
    def steps(self) -> tuple[_Step, ...]:
        """The quantiles in the order in which they are selected."""
        return tuple(self._plan(0, len(self.targets), Fraction(0), Fraction(1), 0))

    def _plan(self, start: int, stop: int, low: Fraction, high: Fraction, level: int) -> Iterator[_Step]:
        if start == stop:
            return
        middle = self._first(start, stop, level)
        target = self.targets[middle]
        fraction = (target - low) / (high - low)
        # An empty range behind the last row is only there at the ends.
        is_low = low == 0 and target <= _EXTREME and 2 * fraction < 1
        is_high = high == 1 and target >= 1 - _EXTREME and 2 * fraction > 1
        yield _Step(middle, fraction, level, is_low, is_high)
        yield from self._plan(start, middle, low, target, level + 1)
        yield from self._plan(middle + 1, stop, target, high, level + 1)

    def _first(self, start: int, stop: int, level: int) -> int:
        """Which of some targets is selected before the others: the one that is closest to their middle.

        On each side of it remain as many as the levels that are left have room for.
        """
        low = self.targets[start - 1] if start else Fraction(0)
        high = self.targets[stop] if stop < len(self.targets) else Fraction(1)
        room = 2 ** (self.levels - level - 1)
        able = range(max(start, stop - room), min(stop, start + room))
        return min(able, key=lambda index: abs(2 * self.targets[index] - low - high))

    # Selecting

    def select(self, counts: CellCounts) -> Integers:
        """For each group and each of `targets` the selected position: a table of (groups, targets).

        Guarantee: bounded range `epsilon`.
        Proof: docs/proofs/quantiles.md
        """
        size = self.grid.parts
        # Sums of these stay within 64 bits, or they are Python's integers.
        exact = 2 * max(step.fraction.denominator for step in self.steps)
        is_small = float(counts.tally.astype(np.float64).sum()) * max(exact, size) < 2.0**61
        rows = _Rows(
            counts.group,
            counts.cell * size,
            np.full(counts.cell.size, size),
            counts.tally if is_small else counts.tally.astype(object),
            np.zeros(counts.groups, dtype=np.int64),
            np.full(counts.groups, self.grid.cells * size),
        )
        positions = np.zeros((counts.groups, len(self.targets)), dtype=np.int64)
        self._fill(rows, 0, len(self.targets), 0, positions)
        return positions

    def _fill(self, rows: _Rows, start: int, stop: int, level: int, positions: Integers) -> None:
        """Select the targets from `start` to before `stop` among these rows, into the table."""
        middle = self._first(start, stop, level)
        step = next(step for step in self.steps if step.which == middle)
        for first, last in _batches(rows):
            positions[first:last, middle] = self._choose(_part(rows, first, last), step)
        if start < middle:
            self._fill(_split(rows, positions[:, middle], is_left=True), start, middle, level + 1, positions)
        if middle + 1 < stop:
            self._fill(
                _split(rows, positions[:, middle], is_left=False), middle + 1, stop, level + 1, positions
            )

    def _choose(self, rows: _Rows, step: _Step) -> Integers:
        """The selected position in each group."""
        blocks, totals = _blocks(rows)
        groups = np.arange(rows.first.size)
        rate = self._rate(step) / (2 * step.fraction.denominator)
        goal = self._goal(step, totals)
        # Of a block, the least score that a candidate in it has.
        scores = _scores(step, goal[blocks.group], blocks.before, blocks.before + blocks.tally)
        best = np.minimum.reduceat(scores, np.searchsorted(blocks.group, groups))
        power = (scores - best[blocks.group]).astype(np.float64) * float(min(rate, Fraction(2**900)))
        near = _Blocks(*(part[power <= _NEGLIGIBLE] for part in blocks))
        positions, scores, weights, owner = self._candidates(near, step, goal)
        choices = choose_by_floats(weights, scores, rate, np.searchsorted(owner, groups))
        chosen, weight = positions[choices.places], weights[choices.places]
        for group in np.flatnonzero(choices.undecided):
            own = _Blocks(*(part[blocks.group == group] for part in blocks))
            positions, scores, weights, _ = self._candidates(own, step, goal)
            place = locate_exactly(int(choices.words[group]), rate, scores.tolist(), weights.tolist())
            chosen[group], weight[group] = positions[place], weights[place]
        return self._inside(chosen, weight)

    def _goal(self, step: _Step, totals: NDArray[Any]) -> NDArray[Any]:
        """The rank that is asked for in each group, in 1/2q of a count, where the fraction is p/q."""
        p, q = step.fraction.numerator, step.fraction.denominator
        if not step.from_left and not step.from_right:
            return np.asarray(2 * p * totals)
        # From the end that is nearer, but never beyond the middle.
        share = 2 * (p if step.from_left else q - p) * totals
        goal = np.maximum(share, q * np.minimum(2 * min(self._distance(step), 2**59), totals))
        return np.asarray(goal if step.from_left else 2 * q * totals - goal)

    def _candidates(
        self, blocks: _Blocks, step: _Step, goal: NDArray[Any]
    ) -> tuple[Integers, NDArray[Any], Integers, Integers]:
        """Of each block the run of empty parts, and each part that has a count.

        Returns the first position, the score, the weight and the group of each, in order.
        """
        lengths = blocks.parts + 1
        block = np.repeat(np.arange(lengths.size), lengths)
        part = np.arange(block.size) - np.repeat(np.cumsum(lengths) - lengths, lengths) - 1
        is_run, size = part < 0, np.maximum(blocks.parts, 1)
        count, parts = blocks.tally[block], size[block]
        # A count is spread by whole numbers, which never fall as it rises: ⌊count·part/parts⌋.
        each, rest = count // parts, count % parts
        place = np.maximum(part, 0)
        below = blocks.before[block] + each * place + rest * place // parts
        place = part + 1
        until = blocks.before[block] + each * place + rest * place // parts
        scores = _scores(step, goal[blocks.group[block]], below, until)
        ends, cell = self.grid.measure_before(blocks.position), blocks.position // self.grid.parts
        runs = ends - self.grid.measure_before(blocks.start)
        own = self.grid.measure[np.minimum(cell, self.grid.cells - 1)]
        weights = np.where(is_run, runs[block], own[block])
        # A round number stands for all of its cell: values that are equal need not share its parts.
        is_round = ~is_run & (part == self.grid.round_part[cell][block])
        whole = blocks.before + blocks.tally
        ties = _scores(step, goal[blocks.group], blocks.before, whole)
        scores = np.where(is_round, ties[block], scores)
        weights = np.where(is_round, weights + self.grid.extra_measure[cell][block], weights)
        positions = np.where(is_run, blocks.start[block], blocks.position[block] + part)
        is_possible = weights > 0
        return (
            positions[is_possible],
            scores[is_possible],
            weights[is_possible],
            blocks.group[block][is_possible],
        )

    def _inside(self, chosen: Integers, weight: Integers) -> Integers:
        """Of a run of empty parts one of them, by its weight; a part that has a count is itself."""
        before = self.grid.measure_before(chosen)
        for place in np.flatnonzero(weight > self.grid.measure[chosen // self.grid.parts]):
            before[place] += uniform(int(weight[place]))
        return self.grid.locate(before)

    def exact(self, counts: CellCounts) -> Integers:
        """As `select`, without noise: the first position that this share of rows does not exceed; or 0."""
        positions = np.zeros((counts.groups, len(self.targets)), dtype=np.int64)
        ends = np.searchsorted(counts.group, np.arange(counts.groups + 1))
        for group in range(counts.groups):
            count = counts.tally[ends[group] : ends[group + 1]].astype(object)
            if not count.sum():
                continue
            until = np.cumsum(count)
            for index, target in enumerate(self.targets):
                goal = -(-target.numerator * until[-1] // target.denominator)
                place = int(np.argmax(until >= goal))
                need = goal - until[place] + count[place]
                part = -(-need * self.grid.parts // count[place]) - 1
                positions[group, index] = counts.cell[ends[group] + place] * self.grid.parts + part
        return positions

    # Intervals

    @property
    def bins(self) -> int:
        """Number of noisy counts of each group."""
        return 0 if self.noise is None else 2 * _DOUBLINGS * len(self.targets) + 1

    def _bin_edges(self, positions: Integers) -> Integers:
        """For each group the cells at which its bins begin, and the end of the last; some are empty."""
        powers = 1 << np.arange(_DOUBLINGS)
        cell = positions[:, :, np.newaxis] // self.grid.parts
        near = np.concatenate([cell + 1 - powers, cell + powers], axis=2)
        near = near.reshape(len(positions), 2 * _DOUBLINGS * len(self.targets))
        ends = np.zeros((len(positions), 1), np.int64)
        edges = np.concatenate([ends, np.clip(near, 0, self.grid.cells), ends + self.grid.cells], axis=1)
        return np.sort(edges, axis=1)

    def bin_counts(self, counts: CellCounts, positions: Integers) -> Integers:
        """The exact counts of the bins around the answers, clamped to 2^61: a table of (groups, bins).

        Guarantee: bins are disjoint, so between neighbours they move no further than the cells' counts, if
            the positions are the same.
        Proof: docs/proofs/quantiles.md, "Intervals"
        """
        edges = self._bin_edges(positions)
        is_small = float(counts.tally.astype(np.float64).sum()) < 2.0**61
        count = counts.tally if is_small else counts.tally.astype(object)
        until = np.concatenate([np.zeros(1, count.dtype), np.cumsum(count)])
        keys, wide = counts.group * (self.grid.cells + 1) + counts.cell, self.grid.cells + 1
        at = np.searchsorted(keys, edges + np.arange(counts.groups)[:, np.newaxis] * wide)
        return np.minimum(np.diff(until[at], axis=1), MAX_MAGNITUDE).astype(np.int64)

    def estimate(self, table: Integers, confidence: Fraction) -> tuple[Floats, Floats, Floats]:
        """Values and both ends of their intervals, as tables of (targets, groups).

        Args:
            table: positions, then the noisy counts of the bins around them.
            confidence: of each interval.

        Guarantee: the least t in the bounds with F(t) ≥ fraction·N lies in the interval, with at least this
            confidence, for the exact counts F and N > 0 of rows up to t and of all rows.
        Proof: docs/proofs/quantiles.md, "Intervals"
        """
        positions, noisy = np.split(table, [len(self.targets)], axis=1)
        values = self.grid.values(self._moved_outward(positions, noisy)).T
        low, high = (np.full_like(values, self.grid.edges[end]) for end in (0, -1))
        if self.noise is None or not len(table):
            return values, low, high
        edges = self._bin_edges(positions)
        is_bin = np.diff(edges, axis=1) > 0
        counts = np.where(is_bin, noisy.astype(np.float64), 0.0)
        off = _ROUNDING * counts.shape[1] * np.abs(counts).sum(axis=1, keepdims=True)
        below, bins = (_sums_before(each) for each in (counts, is_bin))
        total, every = below[:, -1:], bins[:, -1:]
        is_full = (total > _widths(self, None, confidence)[every, every] + off)[:, 0]
        for index, target in enumerate(self.targets):
            beyond = below - float(target) * total
            wide = _widths(self, target, confidence)[bins, every] + off
            # The first edge is not behind the quantile, and the last not before it: that is known.
            may_begin = (beyond <= wide) | (edges == 0)
            may_end = (beyond >= -wide) | (edges == self.grid.cells)
            likely = is_bin & may_begin[:, :-1] & may_end[:, 1:]
            first, last = likely.argmax(axis=1), likely.shape[1] - likely[:, ::-1].argmax(axis=1)
            rows = np.flatnonzero(is_full & likely.any(axis=1))
            low[index, rows] = np.minimum(self.grid.edges[edges[rows, first[rows]]], values[index, rows])
            high[index, rows] = np.maximum(self.grid.edges[edges[rows, last[rows]]], values[index, rows])
        return values, low, high

    def _moved_outward(self, positions: Integers, noisy: Integers) -> Integers:
        """Extreme quantiles moved towards the end, into the last bin in which rows are seen.

        Proof: docs/proofs/quantiles.md, "Towards the end"
        """
        moved = positions.copy()
        if self.noise is None:
            return moved
        edges = self._bin_edges(positions)
        # Of several, the one that is next to the end first: none is moved beyond it.
        for step in sorted(self.steps, key=lambda step: -abs(self.targets[step.which] - Fraction(1, 2))):
            if step.from_right:
                further = self._outer_positions(step, positions[:, step.which], edges, noisy)
                limit = moved[:, step.which + 1] if step.which + 1 < len(self.targets) else further
                moved[:, step.which] = np.minimum(further, limit)
            elif step.from_left:
                further = self._outer_positions(step, positions[:, step.which], edges, noisy)
                limit = moved[:, step.which - 1] if step.which else further
                moved[:, step.which] = np.maximum(further, limit)
        return moved

    def _outer_positions(
        self, step: _Step, positions: Integers, edges: Integers, noisy: Integers
    ) -> Integers:
        """The positions, or those within the bins beyond them in which the last rows are seen.

        A bin that is wider than the answer is far from the other end needs more: noise moves it there rarely.
        Where more rows are beyond the quantile than it was kept away from the end, nothing is moved.
        """
        assert self.noise is not None
        target, cell = self.targets[step.which], positions[:, np.newaxis] // self.grid.parts
        beyond = float(1 - target if step.from_right else target) * np.maximum(noisy.sum(axis=1), 0)
        is_outside = edges[:, :-1] > cell if step.from_right else edges[:, 1:] <= cell
        is_outside &= (np.diff(edges, axis=1) > 0) & (beyond < self._distance(step))[:, np.newaxis]
        excess = np.where(is_outside, (noisy - beyond[:, np.newaxis]) / float(self.noise.scale), -np.inf)
        order = np.arange(self.bins) if step.from_right else np.arange(self.bins)[::-1]
        rows, widths = np.arange(len(positions)), np.diff(self.grid.edges[edges], axis=1)
        reach, here = self._reach(positions, from_right=step.from_right), np.full(len(rows), -1)
        while True:
            wider = np.log(np.maximum(widths / reach[:, np.newaxis], 1))
            last = np.where(excess > _VISIBLE + wider, order, -1).max(axis=1)
            if (last <= here).all():
                break
            here = np.maximum(here, last)
            reach = np.maximum(reach, np.where(here >= 0, widths[rows, order[here]], 0))
        start, stop = edges[rows, order[here]], edges[rows, order[here] + 1]
        share = _WITHIN if step.from_right else 1 - _WITHIN
        inside = np.minimum(start + ((stop - start) * share).astype(np.int64), stop - 1)
        return np.where(here >= 0, inside * self.grid.parts + self.grid.parts // 2, positions)

    def _reach(self, positions: Integers, *, from_right: bool) -> Floats:
        """How far answers are from the other end, or from zero if that is within the bounds: in between."""
        values, (low, high) = self.grid.values(positions), map(float, self.grid.bounds)
        far = values - low if from_right else high - values
        near = np.minimum(np.abs(values), far) if low <= 0 <= high else far
        return np.asarray(np.maximum(np.sqrt(near) * np.sqrt(far), 1e-200))  # zero is no divisor

    def rank_error(self, fraction: Fraction, confidence: Fraction) -> float:
        """How far from the rank that is asked for an answer is at most, but for the rows of its own cell.

        Guarantee: with at least this confidence.
        Proof: docs/proofs/quantiles.md, "Ranks"
        """
        beta = (1 - confidence) / self.levels
        odds = Fraction(log(self.grid.total / (int(self.grid.measure.min()) * beta), 64)[1], 1 << 64)
        errors: dict[Fraction, Fraction] = {}
        for step in self.steps:
            own = odds / self._rate(step)
            if step.from_left or step.from_right:
                own += self._distance(step)
            # What those at both ends of its rows were off moves the rank between them.
            target = self.targets[step.which]
            below = [each for each in errors if each < target]
            above = [each for each in errors if each > target]
            if below:
                own += errors[max(below)] * (1 - step.fraction)
            if above:
                own += errors[min(above)] * step.fraction
            errors[target] = own
        return float(errors[fraction])

    def __str__(self) -> str:
        many = "" if len(self.targets) == 1 else f", {len(self.targets)} of them one inside the other"
        text = f"Exponential mechanism over {self.grid.cells:,} cells{many}: ε = {format_up(self.epsilon)}"
        if self.noise is None:
            return text
        return f"{text}; counts of {self.bins} disjoint bins around the answer: {self.noise}"


def _scores(step: _Step, goal: NDArray[Any], below: NDArray[Any], until: NDArray[Any]) -> NDArray[Any]:
    """How far the rank that is asked for is from those between two others, in 1/2q of a count."""
    scale = 2 * step.fraction.denominator
    return np.asarray(np.maximum(np.maximum(scale * below - goal, goal - scale * until), 0))


def _blocks(rows: _Rows) -> tuple[_Blocks, NDArray[Any]]:
    """The blocks of these rows, and the total of each group."""
    groups, segments = rows.first.size, rows.group.size
    ends = np.searchsorted(rows.group, np.arange(groups), side="right") + np.arange(groups)
    own = np.arange(segments) + rows.group
    group, position, parts = (np.zeros(segments + groups, dtype=np.int64) for _ in range(3))
    count = np.zeros(segments + groups, dtype=rows.tally.dtype)
    group[own], group[ends] = rows.group, np.arange(groups)
    position[own], position[ends] = rows.position, rows.stop
    parts[own], count[own] = rows.parts, rows.tally
    begins = np.concatenate([[0], ends[:-1] + 1]).astype(np.int64)
    start = np.concatenate([[0], (position + parts)[:-1]])
    start[begins] = rows.first
    until = np.concatenate([np.zeros(1, count.dtype), np.cumsum(count)])
    before = until[:-1] - until[begins][group]
    return _Blocks(group, start, position, parts, count, before), until[ends + 1] - until[begins]


def _split(rows: _Rows, chosen: Integers, *, is_left: bool) -> _Rows:
    """The rows on one side of the chosen positions; a count at one of them is split where it lies."""
    at = chosen[rows.group]
    ends = rows.position + rows.parts
    inside = (rows.position <= at) & (at < ends)
    # In the middle of the chosen part, by whole numbers: ⌊count·(2·part + 1)/(2·parts)⌋.
    place, parts = np.where(inside, 2 * (at - rows.position) + 1, 0), 2 * rows.parts
    left = rows.tally // parts * place + rows.tally % parts * place // parts
    if is_left:
        is_inside, count = inside | (ends <= at), np.where(inside, left, rows.tally)
        position, size = rows.position, np.where(inside, at - rows.position + 1, rows.parts)
        first, stop = rows.first, chosen + 1
    else:
        is_inside, count = inside | (rows.position > at), np.where(inside, rows.tally - left, rows.tally)
        position, size = np.where(inside, at, rows.position), np.where(inside, ends - at, rows.parts)
        first, stop = chosen, rows.stop
    return _Rows(rows.group[is_inside], position[is_inside], size[is_inside], count[is_inside], first, stop)


def _batches(rows: _Rows) -> Iterator[tuple[int, int]]:
    """Ranges of groups with few candidates each: sums over many groups would be less exact."""
    groups = rows.first.size
    sizes = np.bincount(rows.group, weights=rows.parts + 1, minlength=groups) + 1
    until, start = np.concatenate([[0], np.cumsum(sizes)]), 0
    while start < groups:
        stop = max(start + 1, int(np.searchsorted(until, until[start] + _AT_ONCE, side="right")) - 1)
        yield start, stop
        start = stop


def _part(rows: _Rows, start: int, stop: int) -> _Rows:
    """The rows of some groups, which are counted from 0 on."""
    low, high = np.searchsorted(rows.group, [start, stop])
    group, position, parts, tally = (part[low:high] for part in rows[:4])
    return _Rows(group - start, position, parts, tally, rows.first[start:stop], rows.stop[start:stop])


def _sums_before(table: NDArray[Any]) -> NDArray[Any]:
    """Along each row the sums before each column, and that of all."""
    zero = np.zeros((len(table), 1), dtype=np.int64 if table.dtype == bool else table.dtype)
    return np.concatenate([zero, np.cumsum(table, axis=1)], axis=1)


@lru_cache(maxsize=64)
def _widths(selection: QuantileSelection, target: Fraction | None, confidence: Number) -> Floats:
    """How far rank − target·total is off, or the total: by how many bins are before an edge, and in all."""
    assert selection.noise is not None
    share = -1.0 if target is None else float(target)
    left = np.arange(selection.bins + 1)[:, np.newaxis]
    right = np.maximum(left.T - left, 0)
    one, two = (1.0, 0.0) if target is None else (1 - share, share)
    l1, l2 = one * left + two * right, np.sqrt(one**2 * left + two**2 * right)
    linf = np.maximum(one * (left > 0), two * (right > 0))
    return width_from_norms(selection.noise, l1, l2, linf, confidence)
