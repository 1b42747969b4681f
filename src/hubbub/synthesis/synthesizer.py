"""Graphical-model synthesis: which tables are measured, with which share of the budget.

All tables of one column; tables of the focus column and each other one; then rounds, in which a batch of
tables is selected that the model predicts worst, measured and fitted. Everything that is released passes one
of three mechanisms: exact Gaussian noise on integers (tables, residuals, bins), or the exponential mechanism
(selections). Shares of the budget follow from the declared domain, the budget, and the public or released
number of rows.

Proof: docs/proofs/synthesis.md
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import combinations

import numpy as np

from hubbub.errors import InvalidInput
from hubbub.mechanisms import Gaussian
from hubbub.numbers import ceil_sqrt
from hubbub.sensitivity import Sensitivity
from hubbub.synthesis.binning import (
    Bins,
    choose_cuts,
    fine_grid,
    measure_histogram,
    most_bins,
    prefix_sensitivity,
)
from hubbub.synthesis.counting import Counts, Integers, bound_table, table_sensitivity
from hubbub.synthesis.domain import MAX_MASK_CELLS, Column, Domain
from hubbub.synthesis.graphical_model import GraphicalModel, Reals, Target
from hubbub.synthesis.junction_tree import Variables, count_cells
from hubbub.synthesis.modelled_columns import ModelledColumns, ModelledTables, choose_columns
from hubbub.synthesis.one_way_tables import estimate_counts
from hubbub.synthesis.release_budget import LEAST_PART, ReleaseBudget, floor_sqrt, share_batch
from hubbub.synthesis.residuals import ResidualNoise
from hubbub.synthesis.table_model import Measured, TableModel, residual_target
from hubbub.synthesis.table_selection import Batch, score_table

__all__ = ["MAX_STAR_CELLS", "Schedule", "check_domain", "check_noise", "synthesize"]

MAX_STAR_CELLS = 1 << 24
"""The maximum number of cells of a model of all pairs with the focus: more would take gigabytes."""

_REFERENCE = 6000.0
"""Rows times √(2ρ) at which shares were chosen: 25,000 rows at ε = 1, δ = 1e-6."""
_COUNT_SHARE = Fraction(1, 200)
_CODES_SHARE = Fraction(1, 100)
_SELECT_SHARE = Fraction(1, 20)
_MAX_TABLE_CELLS = 20_000
_FIRST_CELLS = 0.15
"""The first tables may use this share of the cap on cells: otherwise early ones would leave no room."""
_MIN_BINS = 4
_LEAST_SHARES = {"bins": Fraction(4, 100), "one way": Fraction(119, 10**5), "star": Fraction(34, 1000)}
"""Of ρ, whatever the number of rows is."""
_LEAST_SHARE_OF_ROUNDS = Fraction(6, 100)
_SWEEPS = 10
_LAST_SWEEPS = 100
_LEAST_SD = 1e-3
"""In rows. Noise that is rounded to 0, at an enormous ε, has a variance of 0, and precisions are finite."""
_LEAST_SECOND = Fraction(1, 20)
"""Tables are measured again if at least this share of what they had is left."""
_LEAST_BEYOND = Fraction(1, 50)
"""Tables that do not fit the model are measured if at least this share of ρ is left."""


@dataclass(frozen=True)
class Schedule:
    """The shares of ρ and the numbers of steps, from public facts alone.

    >>> schedule = Schedule.of(columns=24, has_focus=True, strength=6000)
    >>> schedule.selections, schedule.batch, schedule.bins
    (36, 6, 20)
    """

    bins: int
    """The number of bins of a numeric column, about."""
    bins_share: Fraction
    one_way_share: Fraction
    star_share: Fraction
    selections: int
    batch: int
    max_cells: int
    """The maximum number of cells of all cliques of the model."""

    @classmethod
    def of(cls, *, columns: int, has_focus: bool, strength: float) -> "Schedule":
        """Return the schedule for `strength` = rows·√(2ρ): how many standard deviations all rows are."""
        relative = min(max(strength / _REFERENCE, 1e-3), 1e4)
        bins_share = min(max(0.04 / math.sqrt(relative), 0.04), 0.1)
        one_way = min(0.12 / math.sqrt(relative), 0.25) if has_focus else min(0.23 / math.sqrt(relative), 0.5)
        star = min(0.55 * min(1.0, relative**-0.3), 0.8 * (1 - one_way - bins_share)) if has_focus else 0.0
        # Of many pairs the last ones hardly matter, and seldom fit the cap.
        pairs = columns * (columns - 1) // 2
        most = pairs if pairs <= 15 else round(0.8 * pairs)
        usual = max(36 if has_focus else 50, 1.5 * columns)
        # Without a star, many more tables would no longer fit the cap.
        growth = relative ** (0.5 if has_focus or relative < 1 else 0.35)
        selections = min(max(1, round(usual * growth)), max(most, 1))
        return cls(
            bins=max(_MIN_BINS, round(20 * relative**0.2)),
            bins_share=Fraction(bins_share),
            one_way_share=Fraction(one_way),
            star_share=Fraction(star),
            selections=selections,
            batch=min(6, max(1, selections // 4)),
            max_cells=round(1e6 * min(max(1.0, relative**0.75), 4.0)),
        )


def check_domain(domain: Domain) -> None:
    """Refuse, before anything is charged, a domain that no model can be made of.

    Raises:
        InvalidInput: if no combination of values is possible, rules connect too many cells, or a rule
            excludes nothing.
    """
    prepared = _prepare(domain)
    prepared.check_rules()
    columns = choose_columns(prepared)
    masks = columns.masks()
    cells = count_cells(_largest_sizes(columns, _MIN_BINS), [mask.variables for mask in masks])
    most = Schedule.of(columns=1, has_focus=False, strength=_REFERENCE).max_cells
    if cells <= most:
        # A column that is computed is in no model, but its cells are looked at.
        cells, most = _most_rule_cells(prepared, _MIN_BINS), MAX_MASK_CELLS
    if cells > most:
        raise InvalidInput(
            f"the rules connect columns to tables of up to {cells} cells",
            why="all columns of connected rules are modelled together",
            fix="declare fewer rules, coarser categories, or few cuts for columns without them",
            parameter="rules",
        )
    GraphicalModel.uniform(columns.sizes, total=1.0, masks=masks)


def check_noise(counts: Counts, budget: ReleaseBudget) -> None:
    """Refuse, before anything is charged, noise that is too wide for any step of any schedule.

    A table that is measured again has at least `_LEAST_SECOND` of what it had.

    Raises:
        Unsupported: if the noise of some step could be wider than 64 bits allow.
    """
    columns = choose_columns(_prepare(counts.domain))
    sizes = _largest_sizes(columns, Schedule.of(columns=1, has_focus=False, strength=math.inf).bins)
    unbinned = [column for column in columns.domain.columns if column.finds_bins]
    for column in unbinned:
        sensitivity = prefix_sensitivity(len(fine_grid(column)) + 1, counts)
        _check_width(sensitivity, budget, _LEAST_SHARES["bins"] / len(unbinned))
    weight = sum(Fraction(float(size) ** (2 / 3)) for size in sizes)
    codes = Fraction(1, max(1, len(columns.columns_to_merge)))
    for share in (_COUNT_SHARE, _CODES_SHARE * codes, _LEAST_SECOND * _LEAST_SHARES["one way"] / weight):
        _check_width(table_sensitivity(counts), budget, share)
    pairs = max(1, len(sizes) * (len(sizes) - 1) // 2)
    # A batch of small tables has less than others, by another half.
    share = _LEAST_SECOND * _LEAST_SHARE_OF_ROUNDS / pairs * LEAST_PART / 2
    _check_residual(counts, budget, _MAX_TABLE_CELLS, share * (1 - _SELECT_SHARE))

    if columns.focus is not None:
        cells = [size * sizes[columns.focus] for size in sizes]
        weights = [Fraction(float(each) ** (2 / 3)) for each in cells]
        for each, own in zip(cells, weights, strict=True):
            # A smaller table has a smaller share, and needs fewer bits by more than that.
            _check_residual(counts, budget, each, _LEAST_SECOND * _LEAST_SHARES["star"] * own / sum(weights))


def _check_width(sensitivity: Sensitivity, budget: ReleaseBudget, share: Fraction) -> None:
    Gaussian(ceil_sqrt(sensitivity.l2_squared) / floor_sqrt(2 * budget.rho * share), sensitivity)


def _check_residual(counts: Counts, budget: ReleaseBudget, cells: int, share: Fraction) -> None:
    # Half of μ: the sensitivity of a residual of this shape is at least half of any other's.
    mu = floor_sqrt(2 * budget.rho * share) / 2
    _ = ResidualNoise((2, max(2, cells // 2 + 1)), counts.unit, counts.scale, counts.max_weight, mu).row_norm


def _largest_sizes(columns: ModelledColumns, bins: int) -> list[int]:
    """The most cells that each modelled column may have, if about this many bins are found."""
    return [_most_cells(columns.domain.column(name), bins) for name in columns.names]


def _most_rule_cells(domain: Domain, bins: int) -> int:
    """The most cells that the columns of one rule may have together, if about this many bins are found."""
    tables = (map(domain.column, rule.columns) for rule in domain.rules)
    return max((math.prod(_most_cells(column, bins) for column in table) for table in tables), default=0)


def _most_cells(column: Column, bins: int) -> int:
    if not column.finds_bins:
        return column.size
    return min(most_bins(column, bins), len(fine_grid(column)) + 1) + column.is_nullable


def synthesize(
    counts: Counts,
    budget: ReleaseBudget,
    *,
    population: int | None = None,
    progress: Callable[[float], None] | None = None,
) -> TableModel:
    """Measure a table, and return the fitted model, from which rows are made.

    Args:
        counts: the exact tables.
        budget: what the whole release may draw; it was charged before.
        population: the public number of rows; measured, if omitted.
        progress: called with the share of the budget that is spent.

    Guarantee: all that depends on rows passes a mechanism that draws from the budget.
    Assumes: the domain was declared without looking at the rows.
    Proof: docs/proofs/synthesis.md
    """
    return _Synthesis(counts, budget, population, progress or (lambda _: None)).run()


def _prepare(domain: Domain) -> Domain:
    """Prepare numeric columns for bins that are to be found.

    Bins begin where the ranges of rules begin and end, so that no bin is possible in part. Where values are
    multiples of a unit, the highest one gets a cell of its own: it is often a code, or stands for all beyond.
    """
    cuts: dict[str, list[Fraction]] = {}
    for rule in domain.rules:
        for condition in rule.impossible:
            cuts.setdefault(condition.column, []).extend(condition.cuts)
    changed = []
    for column in domain.columns:
        prepared = column
        if column.finds_bins and column.unit is not None:
            edges = (*column.edges[:-1], column.edges[-1] + column.unit)
            prepared = replace(prepared, edges=edges, ends_after_last=True)
        if column.is_binned and cuts.get(column.name):
            prepared = prepared.with_forced_cuts(cuts[column.name])
        changed.append(prepared)
    return domain.with_columns(*changed)


class _Synthesis:
    """One run: the steps in order, each of which draws from the budget."""

    def __init__(
        self, counts: Counts, budget: ReleaseBudget, population: int | None, progress: Callable[[float], None]
    ) -> None:
        self._counts = counts.with_domain(_prepare(counts.domain))
        self._budget, self._progress = budget, progress
        self._measured: list[Measured] = []
        self._spent: dict[Variables, Fraction] = {}
        self._before: dict[Variables, Reals] = {}
        rows = float(population) if population is not None else self._count_rows()
        domain = self._counts.domain
        strength = max(rows, 1.0) / self._counts.max_weight * math.sqrt(2 * float(budget.rho))
        self._schedule = Schedule.of(
            columns=len(domain.columns), has_focus=domain.focus is not None, strength=strength
        )

    def run(self) -> TableModel:
        """All steps."""
        self._find_bins()
        columns = self._choose_columns()
        self._columns, self._tables = columns, ModelledTables(self._counts, columns)
        self._masks = columns.masks()
        model = self._measure_one_way(columns)
        model = self._measure_star(columns, model)
        model = self._measure_selected(columns, model)
        model = self._measure_again(model).fit(sweeps=_LAST_SWEEPS)
        return TableModel(columns, model, tuple(self._measured))

    def _count_rows(self) -> float:
        """Measure the number of rows."""
        return float(self._measure_table(self._counts.count(()), _COUNT_SHARE * self._budget.rho)[0].sum())

    def _measure_table(self, table: Integers, rho: Fraction) -> tuple[Reals, float]:
        """Return a table with exact Gaussian noise, in rows, and the standard deviation of a cell."""
        mu = self._budget.spend_gaussian(rho)
        bounded = bound_table(self._counts, table)
        mechanism = Gaussian(ceil_sqrt(bounded.sensitivity.l2_squared) / mu, bounded.sensitivity)
        noisy = np.asarray(mechanism.release(bounded).value, dtype=np.float64).reshape(table.shape)
        return noisy / self._counts.scale, max(_LEAST_SD, math.sqrt(mechanism.variance) / self._counts.scale)

    def _find_bins(self) -> None:
        """Find the bins of numeric columns without cuts."""
        domain = self._counts.domain
        unbinned = [column for column in domain.columns if column.finds_bins]
        self._bins: dict[str, Bins] = {}
        if not unbinned:
            return
        share = self._schedule.bins_share * self._budget.rho / len(unbinned)
        changed = []
        fewer = self._bins_of_ruled_columns()
        for column in unbinned:
            masses, sd = measure_histogram(self._counts, column, self._budget.spend_gaussian(share))
            bins = choose_cuts(column, masses, sd, fewer.get(column.name, self._schedule.bins))
            self._bins[column.name] = bins
            changed.append(bins.column)
        self._counts = self._counts.with_domain(domain.with_columns(*changed))

    def _bins_of_ruled_columns(self) -> dict[str, int]:
        """The number of bins of columns in rules, so few that these fit the cap on cells."""
        domain = self._counts.domain
        columns = choose_columns(domain)
        tables = [mask.variables for mask in columns.masks()]
        bins = self._schedule.bins
        while bins > _MIN_BINS and (
            count_cells(_largest_sizes(columns, bins), tables) > self._schedule.max_cells
            or _most_rule_cells(domain, bins) > MAX_MASK_CELLS
        ):
            bins -= 1
        return {columns.names[variable]: bins for table in tables for variable in table}

    def _choose_columns(self) -> ModelledColumns:
        """Decide which columns are modelled, with noisy tables of those with many values."""
        domain = self._counts.domain
        columns = choose_columns(domain, self._bins)
        many = columns.columns_to_merge
        if not many:
            return columns
        share = min(_CODES_SHARE, 5 * _CODES_SHARE / len(many)) * self._budget.rho
        masses = {name: self._measure_table(self._counts.count((name,)), share) for name in many}
        return columns.merge(masses)

    def _measure_one_way(self, columns: ModelledColumns) -> GraphicalModel:
        """Measure the table of each column; return the model of independent columns."""
        weights = [float(size) ** (2 / 3) for size in columns.sizes]
        rho = self._schedule.one_way_share * self._budget.rho * Fraction(999, 1000)
        shares = [rho * Fraction(weight / sum(weights)) for weight in weights]
        tables, deviations = [], []
        exact = self._tables.count_many((variable,) for variable in range(len(shares)))
        for variable, share in enumerate(shares):
            noisy, sd = self._measure_table(exact[variable,], share)
            tables.append(noisy)
            deviations.append(sd)
        precision = [1 / (size * sd**2) for size, sd in zip(columns.sizes, deviations, strict=True)]
        total = sum(p * t.sum() for p, t in zip(precision, tables, strict=True)) / sum(precision)
        self._total = max(float(total), 1.0)
        targets = [
            self._note(Measured((variable,), noisy, sd, is_residual=False), share, noisy)
            for variable, (noisy, sd, share) in enumerate(zip(tables, deviations, shares, strict=True))
        ]
        self._progress(float(self._budget.spent / self._budget.rho))
        return GraphicalModel.uniform(columns.sizes, total=self._total, masks=self._masks).fit(
            targets, sweeps=_SWEEPS
        )

    def _measure_star(self, columns: ModelledColumns, model: GraphicalModel) -> GraphicalModel:
        """Measure the residual of the focus with each other column."""
        focus = columns.focus
        if focus is None:
            return model
        pairs = [
            tuple(sorted((focus, v)))
            for v in range(len(columns.sizes))
            if v != focus and min(columns.sizes[v], columns.sizes[focus]) > 1
        ]
        # Which values are merged is known only now, after the charge: the largest tables are left out.
        masks = [mask.variables for mask in self._masks]
        pairs.sort(key=lambda pair: math.prod(columns.sizes[v] for v in pair), reverse=True)
        while pairs and count_cells(columns.sizes, [*masks, *pairs]) > MAX_STAR_CELLS:
            pairs = pairs[1:]
        if not pairs:
            return model
        sizes = [math.prod(columns.sizes[v] for v in pair) for pair in pairs]
        weights = [float(size) ** (2 / 3) for size in sizes]
        rho = self._schedule.star_share * self._budget.rho
        targets = []
        exact = self._tables.count_many(pairs)
        for pair, weight in zip(pairs, weights, strict=True):
            share = rho * Fraction(weight / sum(weights)) * Fraction(999, 1000)
            targets.append(self._measure_residual(pair, exact[pair], model.marginal(pair), share))
        self._progress(float(self._budget.spent / self._budget.rho))
        return model.fit(targets, sweeps=_SWEEPS)

    def _measure_residual(self, table: Variables, exact: Integers, expected: Reals, rho: Fraction) -> Target:
        """Measure what the lower tables do not tell, and complete it by what the model says of them."""
        values, sd = self._release_residual(exact, rho)
        return self._note(Measured(table, values, sd, is_residual=True), rho, expected)

    def _release_residual(self, exact: Integers, rho: Fraction) -> tuple[Reals, float]:
        """Return the residual with exact Gaussian noise, in rows, and the standard deviation of a cell."""
        counts, mu = self._counts, self._budget.spend_gaussian(rho)
        residual = ResidualNoise(exact.shape, counts.unit, counts.scale, counts.max_weight, mu).measure(exact)
        return residual.values, max(_LEAST_SD, residual.cell_sd)

    def _note(self, measured: Measured, rho: Fraction, expected: Reals) -> Target:
        """Note what was measured and what it cost; return what the model is to be fitted to."""
        self._measured.append(measured)
        self._spent[measured.variables] = rho
        self._before[measured.variables] = expected.astype(np.float64)
        return self._make_target(measured, self._before[measured.variables])

    def _make_target(self, measured: Measured, expected: Reals) -> Target:
        sd = measured.sd
        if not measured.is_residual:
            values = estimate_counts(measured.values, sd, self._total)
            return Target(measured.variables, values, sd**2 / (100 * (np.maximum(values, 0.0) + sd)))
        # The model follows a first measurement: the distance to it would be taken for noise.
        ordered = self._columns.ordered(measured.variables)
        return residual_target(measured, expected, self._before[measured.variables], ordered)

    def _measure_selected(self, columns: ModelledColumns, model: GraphicalModel) -> GraphicalModel:
        """Rounds: select a batch of tables by the exponential mechanism, measure their residuals, fit."""
        schedule, budget = self._schedule, self._budget
        measured = {target.variables for target in model.targets}
        candidates = [table for table in self._candidates(columns) if table not in measured]
        exact = self._tables.count_many(candidates)
        left = most = min(schedule.selections, len(candidates))
        room = _FIRST_CELLS
        least, earlier = LEAST_PART * budget.left * Fraction(999, 1000) / max(left, 1), list[float]()
        while left and candidates:
            share = budget.left * Fraction(999, 1000) / left
            rho = share * (1 - _SELECT_SHARE)
            sigma = self._counts.max_weight / math.sqrt(2 * float(rho))
            expected = self._expected(columns, model, candidates)
            scores = [score_table(self._counts, exact[t], expected[t], sigma) for t in candidates]
            batch = Batch(self._counts, candidates, scores)
            room = min(1.0, max(room, 1.2 * float(budget.spent / budget.rho)))
            for _ in range(min(schedule.batch, left)):
                left -= 1
                fits = self._fits(model, batch, room)
                # A draw is paid for even if nothing fits; whether anything does follows from releases.
                if (
                    batch.is_open
                    and batch.select(budget.spend_selection(share * _SELECT_SHARE), fits) is None
                ):
                    left = 0 if room == 1.0 and not batch.selected else left
                    room = min(1.0, 2 * room)
                    break
            weights = [math.sqrt(exact[table].size) for table in batch.selected]
            # Less is left out here than of any selection's share: more than the reserve is always available.
            available = budget.left * Fraction(10**6 - 1, 10**6)
            shares = share_batch(weights, earlier, equal=rho, available=available, reserve=left * least)
            earlier += weights
            targets = [
                self._measure_residual(t, exact[t], expected[t], own)
                for t, own in zip(batch.selected, shares, strict=True)
            ]
            candidates = [t for t in candidates if t not in batch.selected]
            model = model.fit(targets, sweeps=_SWEEPS)
            self._progress(float(budget.spent / budget.rho))
        self._measure_beyond(columns, model, exact, most)
        return model

    def _measure_beyond(
        self, columns: ModelledColumns, model: GraphicalModel, exact: dict[Variables, Integers], most: int
    ) -> None:
        """Measure pairs that are worth it and do not fit the model: rows are brought closer to them.

        Args:
            columns: the modelled columns.
            model: the model, in which nothing more fits.
            exact: the tables of all candidates.
            most: how many of them are selected in all.
        """
        budget, measured = self._budget, {each.variables for each in self._measured}
        candidates: list[Variables] = [t for t in exact if len(t) == 2 and t not in measured]
        count = min(most - len(measured & set(exact)), len(candidates))
        if not count or budget.left < _LEAST_BEYOND * budget.rho:
            return
        share = budget.left * Fraction(999, 1000) / count
        rho = share * (1 - _SELECT_SHARE)
        sigma = self._counts.max_weight / math.sqrt(2 * float(rho))
        expected = self._expected(columns, model, candidates)
        scores = [score_table(self._counts, exact[t], expected[t], sigma) for t in candidates]
        batch = Batch(self._counts, candidates, scores)
        for _ in range(count):
            batch.select(budget.spend_selection(share * _SELECT_SHARE), lambda _: True)
        weights = [Fraction(math.sqrt(exact[table].size)) for table in batch.selected]
        for table, weight in zip(batch.selected, weights, strict=True):
            own = rho * count * weight / sum(weights)
            values, sd = self._release_residual(exact[table], own)
            self._measured.append(Measured(table, values, sd, is_residual=True))
            self._spent[table] = own
        self._progress(float(budget.spent / budget.rho))

    def _measure_again(self, model: GraphicalModel) -> GraphicalModel:
        """Spend what no further table fits for on all measured tables, in proportion to what each had."""
        left, spent = self._budget.left * Fraction(999, 1000), sum(self._spent.values())
        if left < _LEAST_SECOND * spent:
            return model
        targets, fitted = [], {target.variables for target in model.targets}
        exact = self._tables.count_many(first.variables for first in self._measured)
        for place, first in enumerate(self._measured):
            table = first.variables
            measure = self._release_residual if first.is_residual else self._measure_table
            noisy, sd = measure(exact[table], left * self._spent[table] / spent)
            share = first.sd**2 / (first.sd**2 + sd**2)
            both = (1 - share) * first.values + share * noisy
            again = Measured(table, both, first.sd * math.sqrt(1 - share), is_residual=first.is_residual)
            self._measured[place] = again
            if table in fitted:
                targets.append(self._make_target(again, model.marginal(table)))
        self._progress(float(self._budget.spent / self._budget.rho))
        return GraphicalModel.restore(model.sizes, model.total, model.masks, tuple(targets), model.parameters)

    def _candidates(self, columns: ModelledColumns) -> list[Variables]:
        sizes, focus = columns.sizes, columns.focus
        pairs = list(combinations([v for v in range(len(sizes)) if sizes[v] > 1], 2))
        tables: list[Variables] = list(pairs)
        if focus is not None and sizes[focus] > 1:
            tables += [tuple(sorted((focus, *pair))) for pair in pairs if focus not in pair]
        return [t for t in tables if math.prod(sizes[v] for v in t) <= _MAX_TABLE_CELLS]

    def _expected(
        self, columns: ModelledColumns, model: GraphicalModel, candidates: Iterable[Variables]
    ) -> dict[Variables, Reals]:
        """The tables of all candidates as the model predicts them."""
        needed = set(candidates)
        focus = columns.focus
        has_star = focus is not None and all(focus in clique for clique in model.tree.cliques)
        expected: dict[Variables, Reals] = {}
        if has_star:
            assert focus is not None
            triples = {tuple(v for v in table if v != focus) for table in needed if focus in table}
            for pair, table in model.pairs(focus, lambda pair: pair in needed or pair in triples):
                if pair in needed:
                    expected[pair] = table.sum(axis=0)
                triple = tuple(sorted((focus, *pair)))
                if triple in needed:
                    expected[triple] = np.moveaxis(table, 0, triple.index(focus))
        else:
            expected = dict(model.pairs(None, needed.__contains__))
        for missing in needed - set(expected):
            expected[missing] = model.marginal(missing)
        return expected

    def _fits(self, model: GraphicalModel, batch: Batch, room: float) -> Callable[[Variables], bool]:
        """Return whether the cliques with one table more fit a share of the cap on cells: from releases."""
        cap = self._schedule.max_cells * room
        fixed = [t.variables for t in model.targets] + [m.variables for m in model.masks]
        return lambda table: count_cells(model.sizes, [*fixed, *batch.selected, table]) <= cap
