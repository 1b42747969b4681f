"""A plan: what the engine computes, the noise, the privacy loss and the errors of one query. It reads no row.

One ε is the price of the whole query. It is split beforehand: a share finds the maximum of rows or groups per
unit where none is declared or known, a share estimates bounds, a share measures what contribution bounding
changed where that is asked for, and the aggregates have equal shares of the rest, with the noise, Laplace or
Gaussian, that has the smaller expected error. Equal shares minimize the geometric mean of all widths,
whatever their units. Group keys that are not public are selected by their own noisy counts where rows or
units are counted; else a share selects them.

All figures are computed once. Where contribution bounds or bounds of values are only known when the plan
runs, the executor makes the plan for the estimated ones, once.

Proof: docs/proofs/bounding.md, "A plan"
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

from sqlglot import exp

from hubbub.accounting import PrivacyLoss, largest_mu, refuse_large_delta, refuse_large_epsilon
from hubbub.accounting.codec import canonical_json
from hubbub.engines.schema import Bounds
from hubbub.errors import InvalidInput, Refused, Unsupported
from hubbub.mechanisms import Gaussian, Laplace, PermuteAndFlip, TopK
from hubbub.mechanisms.partition_selection import (
    GaussianPartitionSelection,
    StabilityHistogram,
    TruncatedGeometricSelection,
    choose_partition_selection,
)
from hubbub.mechanisms.vector_stability_histogram import VectorStabilityHistogram
from hubbub.numbers import Number, ceil_sqrt, parse_nonnegative, parse_positive, parse_probability
from hubbub.release import Release
from hubbub.sensitivity import Sensitivity
from hubbub.sql import explain
from hubbub.sql.aggregate import AdditiveAggregate, Aggregate
from hubbub.sql.bounded_query import PLANNING_LIMIT, BoundedQuery
from hubbub.sql.moments import Estimate, Noise
from hubbub.sql.plan_choice import choose_plan, find_cheapest_plan, parse_errors
from hubbub.sql.planned_aggregates import NoisyAggregate, PlannedAggregate, PlannedQuantiles
from hubbub.sql.post_processing import PostProcessing, compile_outputs
from hubbub.sql.quantile_aggregates import SelectedQuantiles
from hubbub.sql.query import BoundedAggregate, ContributionBounds, Output, Query
from hubbub.sql.released_limits import Conditions, FoundLimit
from hubbub.unit import Unit

if TYPE_CHECKING:
    from hubbub.sql.result import Result

__all__ = ["EpsilonSplit", "NoisyAggregate", "Plan", "make_plan", "search_share"]

_BOUNDS_SHARE = _REPORT_SHARE = Fraction(1, 10)
_KEYS_SHARE = Fraction(1, 4)
"""Of the ε that is left, for selecting group keys that no count selects."""
_PLANNED_LIMITS = (1, PLANNING_LIMIT, 100)
"""Limits for which a plan states errors, where the limit is found when it runs."""
_IS_CONFIRMED = True
"""A share of ε may be large: `make_plan` checks the whole."""


def search_share(groups: int) -> Fraction:
    """The share of ε that finds contribution bounds, by the number of groups over which rows are spread.

    Measured by `benchmarks/limits.py`: where one number is asked the bias weighs more, and a better limit
    pays.
    """
    return Fraction(1, 5) if groups <= 1 else Fraction(3, 20)


# Calibrating partition selection takes longest of all that is planned, and questions are asked again.
_select_partitions = lru_cache(maxsize=64)(choose_partition_selection)
_stability_histogram = lru_cache(maxsize=64)(StabilityHistogram.of)
_vector_histogram = lru_cache(maxsize=64)(VectorStabilityHistogram.of)


def _compile_for_duckdb(sql: exp.Expr) -> str:
    return sql.sql("duckdb")


@dataclass(frozen=True)
class EpsilonSplit:
    """The shares of a plan's ε; 0 where a step is not needed."""

    rows: Fraction
    """Finds the maximum of rows per unit."""
    groups: Fraction
    """Finds the maximum of groups per unit."""
    bounds: Fraction
    """Estimates the bounds of values."""
    report: Fraction
    """Measures how many units exceed a contribution bound."""
    keys: Fraction
    """Selects group keys, where no noisy count does."""
    aggregates: Fraction
    """For all aggregates together, or for the top k."""

    @classmethod
    def of(cls, bounded: BoundedQuery, epsilon: Fraction) -> "EpsilonSplit":
        """The split of ε for a query."""
        searched = bounded.estimates_rows + bounded.estimates_groups
        share = epsilon * search_share(bounded.answers) / max(1, searched)
        rows = share if bounded.estimates_rows else Fraction(0)
        groups = share if bounded.estimates_groups else Fraction(0)
        bounds = epsilon * _BOUNDS_SHARE if bounded.estimated_arguments else Fraction(0)
        report = epsilon * _REPORT_SHARE if bounded.reports_bounding else Fraction(0)
        left = epsilon - rows - groups - bounds - report
        needs_keys = bounded.selects_keys and bounded.selecting_aggregate is None
        keys = left * _KEYS_SHARE if needs_keys else Fraction(0)
        return cls(rows, groups, bounds, report, keys, left - keys)

    def with_search(self, **spent: Fraction) -> "EpsilonSplit":
        """The split where finding contribution bounds takes this, and keys and aggregates have the rest.

        Args:
            spent: by kind, rows or groups, the ε that finds the bound.
        """
        searched = replace(self, **spent)
        left = self.limits - searched.limits
        for_keys = left * _KEYS_SHARE if self.keys else Fraction(0)
        return replace(searched, keys=self.keys + for_keys, aggregates=self.aggregates + left - for_keys)

    @property
    def limits(self) -> Fraction:
        """Finds contribution bounds."""
        return self.rows + self.groups


@dataclass(frozen=True, repr=False)
class Plan:
    """One query with its noise, its privacy loss and its expected errors. Looking at it costs nothing.

    Guarantee: running it costs `loss` and no more, for the unit and the relation it was made for.
    Proof: docs/proofs/bounding.md, "A plan"
    """

    bounded: BoundedQuery
    epsilon: Fraction
    delta: Fraction
    split: EpsilonSplit
    is_gaussian: bool
    post_processing: PostProcessing = field(compare=False)
    """The outputs, HAVING and ORDER BY, typed: no value can make them fail."""
    confidence: Fraction = Fraction(19, 20)
    population: int | None = None
    """The public number of people, against which δ is judged."""
    runner: Callable[["Plan"], Release] | None = field(default=None, compare=False)
    """Runs it: the dataset that made it."""
    compile: Callable[[exp.Expr], str] = field(default=_compile_for_duckdb, compare=False)
    """Writes SQL in the engine's dialect."""
    found_limits: tuple[FoundLimit, ...] = field(default=(), compare=False)
    """Contribution bounds that were chosen from noisy histograms."""
    too_noisy: tuple[str, ...] = field(default=(), compare=False)
    """Rows or groups, where a histogram that was released before is too noisy for this ε."""
    shares_beyond: Mapping[int, float | None] = field(default_factory=dict, compare=False)
    """By argument with bounds that were searched, an estimate of the share of all sizes beyond them; None if
    none were found: then what takes its values is NULL.
    """
    conditions: Mapping[str, Conditions] = field(default_factory=dict, compare=False)
    """Which rows its contributions are counted over, so that a limit that was found is used again."""
    choice: tuple[str, tuple[tuple[str, float], ...]] | None = field(default=None, compare=False)
    """What was chosen, and the expected errors of what was not, as multiples of its own."""

    error_kind: ClassVar[str] = "none"

    def run(self) -> "Release[Result]":
        """Charge, run and release, through the dataset that made the plan."""
        if self.runner is None:
            raise InvalidInput(
                "the plan has no dataset", why="it was made by hand", fix="use dataset.run(plan)"
            )
        return self.runner(self)

    def error(self, confidence: Number = 0.95, *, coordinates: int = 1) -> NoReturn:
        """Refused: each answer of a table has an interval of its own."""
        del confidence, coordinates
        raise InvalidInput(
            "a table has no single error", why="each answer has its own", fix="see its intervals"
        )

    @property
    def query(self) -> Query:
        """The query."""
        return self.bounded.query

    @property
    def unit(self) -> Unit:
        """The privacy unit."""
        return self.bounded.unit

    @property
    def contribution_bounds(self) -> ContributionBounds:
        """As declared, or as estimated privately; `rows` is None while that is still to be estimated."""
        return self.bounded.contribution_bounds

    # Figures

    @cached_property
    def aggregates(self) -> tuple[PlannedAggregate, ...]:
        """The aggregates, each with an equal share of the privacy loss that is left for them."""
        pairs = zip(self.bounded.aggregates, self.bounded.bounded_aggregates, strict=True)
        return tuple(self._plan_aggregate(aggregate, bounded) for aggregate, bounded in pairs)

    def _plan_aggregate(self, aggregate: Aggregate, bounded: BoundedAggregate) -> PlannedAggregate:
        if isinstance(aggregate, SelectedQuantiles):
            selection = aggregate.make_selection(
                bounded, self.epsilon_share, self.unit.neighbours, has_groups=bool(self.query.keys)
            )
            return PlannedQuantiles(aggregate, bounded, selection)
        assert isinstance(aggregate, AdditiveAggregate)
        return NoisyAggregate(aggregate, bounded, self.calibrate_noise(bounded.sensitivity))

    @property
    def epsilon_share(self) -> Fraction:
        """The ε of one aggregate; with Gaussian noise, of one that is selected."""
        return self.split.aggregates / len(self.bounded.aggregates)

    def calibrate_noise(self, sensitivity: Sensitivity) -> Noise:
        """The noise of one aggregate, which has an equal share of the privacy loss."""
        if self.is_gaussian:
            share = self.mu / ceil_sqrt(Fraction(self.bounded.additive_aggregates))
            return Gaussian(ceil_sqrt(sensitivity.l2_squared) / share, sensitivity)
        epsilon = self.epsilon_share
        return Laplace.of(sensitivity=sensitivity, epsilon=epsilon, allow_large_epsilon=_IS_CONFIRMED)

    @property
    def _additive_epsilon(self) -> Fraction:
        """The ε of all aggregates to which noise is added, or of the top k."""
        if self.query.is_top:
            return self.split.aggregates
        return self.epsilon_share * self.bounded.additive_aggregates

    @cached_property
    def mu(self) -> Fraction:
        """The μ of Gaussian differential privacy that all aggregates with added noise share."""
        return largest_mu(self._additive_epsilon, self.delta - self.delta_for_keys)

    @property
    def delta_for_keys(self) -> Fraction:
        """The δ that selects group keys."""
        if not self.bounded.selects_keys:
            return Fraction(0)
        return self.delta / 2 if self.is_gaussian else self.delta

    @property
    def selecting(self) -> NoisyAggregate | None:
        """The aggregate with the noisy totals that select the group keys, if there is one."""
        index = self.bounded.selecting_aggregate
        aggregate = None if index is None else self.aggregates[index]
        return aggregate if isinstance(aggregate, NoisyAggregate) else None

    @cached_property
    def stability_histogram(self) -> StabilityHistogram | VectorStabilityHistogram | None:
        """Releases the noisy integers that select the group keys; None where none do."""
        if self.selecting is None:
            return None
        parts = self.selecting.bounded.columns
        if parts > 1:
            return _vector_histogram(
                noise=self.selecting.noise,
                max_groups=self.bounded.keys_per_unit,
                parts=parts,
                # The parts of a key are rounded one by one: docs/proofs/bounding.md, "Sums".
                key_total=math.floor(self.selecting.bounded.sensitivity.linf) + parts - 1,
                delta=self.delta_for_keys,
                population=self.population,
            )
        return _stability_histogram(
            noise=self.selecting.noise,
            max_groups=self.bounded.keys_per_unit,
            delta=self.delta_for_keys,
            population=self.population,
        )

    @property
    def counts_threshold(self) -> bool:
        """True if noise is chosen by the threshold of keys, too: while a limit is open, by the noise alone.

        The limit that is found may be small, where Laplace noise is much smaller than Gaussian noise.
        """
        return self.selecting is not None and not self.bounded.estimates_limits

    @cached_property
    def partition_selection(self) -> TruncatedGeometricSelection | GaussianPartitionSelection | None:
        """Selects the group keys, where they are not public and no noisy count selects them."""
        if not self.bounded.selects_keys or self.selecting is not None:
            return None
        return _select_partitions(
            max_groups=self.bounded.keys_per_unit,
            epsilon=self.split.keys,
            delta=self.delta_for_keys,
            population=self.population,
        )

    @cached_property
    def top_k(self) -> TopK | None:
        """Selects the groups with the largest counts; None where all groups are released."""
        if self.bounded.top_scores is None:
            return None
        k = self.query.limit or 1
        each = PermuteAndFlip.of(
            sensitivity=self.bounded.top_scores.sensitivity.linf,
            epsilon=self.split.aggregates / k,
            # Where units are added or removed, one more unit moves all counts up.
            monotone=self.unit.neighbours.histogram_distance == 1,
            allow_large_epsilon=_IS_CONFIRMED,
        )
        return TopK(each, min(k, self.query.cells))

    @cached_property
    def report_noise(self) -> Laplace | None:
        """The noise of the number of units that exceed a contribution bound; None if it is not reported."""
        counts = self.bounded.units_above_bounds
        if counts is None:
            return None
        epsilon = self.split.report
        return Laplace.of(sensitivity=counts.sensitivity, epsilon=epsilon, allow_large_epsilon=_IS_CONFIRMED)

    @cached_property
    def loss(self) -> PrivacyLoss:
        """The privacy loss of one unit for the whole query."""
        split = self.split
        if split.limits and not self.is_gaussian:
            # A search that stops early leaves more for the answers: how ε is shared depends on what is
            # released, and its total does not.
            delta = self.delta_for_keys
            return PrivacyLoss.approximate(self.epsilon, delta) if delta else PrivacyLoss.pure(self.epsilon)
        losses = [PrivacyLoss.pure(share) for share in (split.limits, split.bounds, split.report) if share]
        # Limits that are found, now or before, are not in the loss: everybody may read it, on a label. So all
        # of δ for keys is charged, which the threshold uses at most.
        if self.stability_histogram is not None:
            delta = self.delta_for_keys if self.bounded.finds_limits else self.stability_histogram.delta
            losses.append(PrivacyLoss.approximate(0, delta))
        elif self.partition_selection is not None:
            known = None if self.bounded.finds_limits else self.partition_selection.loss()
            losses.append(known or PrivacyLoss.approximate(split.keys, self.delta_for_keys))
        if self.is_gaussian:
            losses.append(PrivacyLoss.gaussian_from_mu_squared(self.mu**2))
        elif self._additive_epsilon:
            losses.append(PrivacyLoss.pure(self._additive_epsilon))
        losses += [each.selection.loss() for each in self.aggregates if isinstance(each, PlannedQuantiles)]
        total = losses[0]
        for loss in losses[1:]:
            total += loss
        return total

    @cached_property
    def statements(self) -> tuple[str, ...]:
        """The SQL of each aggregate, or of the top k, in the engine's dialect."""
        top = self.bounded.top_scores
        statements = self.bounded.bounded_aggregates if top is None else (top,)
        return tuple(self.compile(each.sql) for each in statements)

    @property
    def is_possible(self) -> bool:
        """True if its noise can be sampled exactly; that is public."""
        try:
            self.check()
        except Unsupported:
            return False
        return True

    def check(self) -> None:
        """Compute every figure that can be refused, before anything is charged."""
        _ = self.aggregates, self.top_k, self.stability_histogram, self.partition_selection

    # Errors

    def half_width(self, index: int) -> float | None:
        """Half the width of the interval of an aggregate call; None if it depends on the rows."""
        return self._answering(index).half_width(index, self.confidence)

    def describe_error(self, index: int) -> str:
        """The expected error of an aggregate call, in words."""
        return self._answering(index).describe_error(index, self.confidence)

    @cached_property
    def errors(self) -> tuple[tuple[Output, str], ...]:
        """For each output but the group keys, its expected error in words."""
        outputs = (output for output in self.query.outputs if output.key is None)
        return tuple((output, self._describe_error(output)) for output in outputs)

    def _describe_error(self, output: Output) -> str:
        index = output.aggregate
        if index is None:
            return "computed from what is released"
        if not self.bounded.estimates_limits:
            return self.describe_error(index)
        is_by_groups = self._answering(index).aggregate.is_by_groups and self.bounded.estimates_groups
        what = "groups" if is_by_groups else "rows"
        last = self._max_groups if is_by_groups else 2**20
        errors = {min(limit, last): each.describe_error(index) for limit, each in self.planned_limits.items()}
        first, *others = errors.items()
        if len(set(errors.values())) == 1:
            return first[1]
        rest = "".join(f", {error} at {limit}" for limit, error in others)
        return f"{first[1]} at a limit on {what} per unit of {first[0]}{rest}"

    @property
    def _max_groups(self) -> int:
        """The largest limit on groups per unit that may be found."""
        return max(1, self.query.cells) if self.query.is_public and self.query.keys else 2**20

    @cached_property
    def planned_limits(self) -> dict[int, "Plan"]:
        """The plan for some of the contribution bounds that may be found; none where all are known."""
        if not self.bounded.estimates_limits:
            return {}
        bounded = self.bounded
        most = self._max_groups
        last = most if not bounded.estimates_rows else 2**20
        plans = {
            limit: self
            if limit == PLANNING_LIMIT
            else self.with_limits(
                rows=limit if bounded.estimates_rows else None,
                groups=min(limit, most) if bounded.estimates_groups else None,
            )
            # Where there are few groups, up to all of them.
            for limit in sorted({min(limit, last) for limit in _PLANNED_LIMITS})
        }
        # A limit with noise too wide to be sampled is not chosen.
        return {limit: plan for limit, plan in plans.items() if plan is self or plan.is_possible}

    def _answering(self, index: int) -> PlannedAggregate:
        return next(each for each in self.aggregates if index in each.aggregate.indices)

    # Bounds that were estimated

    def with_limits(self, *, rows: int | None = None, groups: int | None = None) -> "Plan":
        """The plan for estimated maximums of rows and groups per unit."""
        return replace(self, bounded=self.bounded.with_limits(rows=rows, groups=groups))

    def with_value_bounds(self, bounds: Mapping[int, Bounds]) -> "Plan":
        """The plan for estimated bounds of arguments, by their indices."""
        return replace(self, bounded=self.bounded.with_value_bounds(bounds))

    # For people

    def label(self, above: Estimate | None = None) -> dict[str, Any]:
        """The protection and its cost: public, and free of data but for what was released.

        Args:
            above: the released share of units that exceed a contribution bound.
        """
        return explain.with_estimated_cuts(explain.make_label(self, above), self)

    def to_json(self) -> str:
        """The label, for storage."""
        return canonical_json(self.label())

    def notes(self) -> list[str]:
        """What else a reader should know."""
        return explain.list_notes(self)

    def explain(self) -> str:
        """Sensitivities, mechanisms, the engine's SQL, and the proofs behind them."""
        return explain.explain_plan(self)

    def __str__(self) -> str:
        return explain.render_plan(self)

    def __repr__(self) -> str:
        return explain.summarize_plan(self)

    def _repr_html_(self) -> str:
        return explain.render_html(self)


def make_plan(
    query: Query,
    unit: Unit,
    *,
    epsilon: Number | None = None,
    delta: Number = 0,
    contribution_bounds: ContributionBounds | None = None,
    error: Mapping[str, Number] | None = None,
    confidence: Number = 0.95,
    population: int | None = None,
    reports_bounding: bool = False,
    intervals: bool = True,
    allow_large_epsilon: bool = False,
    runner: Callable[[Plan], Release] | None = None,
    compile: Callable[[exp.Expr], str] = _compile_for_duckdb,  # noqa: A002 - as the engine's method
    conditions: Mapping[str, Conditions] | None = None,
    use_limits: Callable[[Plan], Plan] = lambda plan: plan,
) -> Plan:
    """The plan for a query at a price, or for wanted errors at the least price.

    Args:
        query: the analyzed query.
        unit: the privacy unit.
        epsilon: the price of the whole query; or give `error`.
        delta: the δ of the whole query; above 0 it allows Gaussian noise and private group keys.
        contribution_bounds: declared bounds; rows per unit are estimated privately if they are needed.
        error: for names of counts and sums, the wanted half-width; the least ε is found.
        confidence: the confidence of intervals.
        population: the public number of people, against which δ is judged.
        reports_bounding: spend a tenth of ε on the share of units that exceed a contribution bound.
        intervals: give each answer an interval; quantiles pay for theirs with a share of ε.
        allow_large_epsilon: confirms a large ε, as for `Budget`.
        runner: runs the plan.
        compile: writes SQL in the engine's dialect, and refuses what it cannot say.
        conditions: by kind of contribution, which rows it is counted over.
        use_limits: fills in contribution bounds that were released before.

    Guarantee: its loss is (ε, δ)-private at most, or what the errors take.
    Assumes: contribution bounds, bounds and keys were not taken from the rows.
    Proof: docs/proofs/bounding.md, "A plan"
    """
    post_processing = compile_outputs(query)
    # The engine refuses what would mean something else there. Only the rows come from an analyst's SQL, and
    # writing them takes half as long as writing all statements, which only `explain` shows.
    compile(query.rows)
    if (epsilon is None) == (error is None):
        raise InvalidInput(
            "neither {epsilon} nor {error} is given"
            if error is None
            else "both {epsilon} and {error} are given",
            why="each determines the other",
            fix="give exactly one of {epsilon} and {error}",
        )
    allowed = parse_nonnegative(delta, "delta")
    refuse_large_delta(allowed, population)
    sure = parse_probability(confidence, "confidence")
    _check_keys(query, allowed)
    bounds = contribution_bounds or ContributionBounds()
    most = query.max_rows_per_unit
    if most is not None and (bounds.rows is None or bounds.rows > most):
        bounds = replace(bounds, rows=most)
    bounded = BoundedQuery(query, unit, bounds, reports_bounding, intervals)
    # Refusals that do not depend on the price: nothing to report, missing bounds.
    _ = bounded.units_above_bounds, bounded.aggregates

    # With limits for both, rows may be weighted by all of a unit's rows or by its groups.
    boundings = [("by groups" if bounded.is_by_groups else "by rows", bounded)]
    if bounded.is_by_groups and bounds.rows is not None:
        boundings.append(("by rows", bounded.with_weights_by_rows()))
    is_gaussian_possible = allowed > 0 and not query.is_top and bool(bounded.additive_aggregates)

    def at(price: Fraction) -> Plan:
        candidates = []
        for weights, each in boundings:
            laplace = Plan(
                each,
                price,
                allowed,
                EpsilonSplit.of(each, price),
                is_gaussian=False,
                post_processing=post_processing,
                confidence=sure,
                population=population,
                runner=runner,
                compile=compile,
                conditions=conditions or {},
            )
            candidates.append((f"Laplace noise, weights {weights}", laplace))
            if is_gaussian_possible:
                candidates.append((f"Gaussian noise, weights {weights}", replace(laplace, is_gaussian=True)))
        return choose_plan(candidates, use_limits)

    if epsilon is not None:
        plan = at(parse_positive(epsilon, "epsilon"))
    else:
        assert error is not None
        plan = find_cheapest_plan(at, parse_errors(query, error))
    refuse_large_epsilon(plan.epsilon, allow=allow_large_epsilon)
    plan.check()
    return plan


def _check_keys(query: Query, delta: Fraction) -> None:
    if query.is_public:
        query.check_groups()
    if not query.is_public and delta == 0:
        names = [key.name for key in query.keys if key.values is None]
        each = "them" if len(names) == 1 else "those of each"
        raise Refused(
            f"the keys of {', '.join(names)} are not declared, and {{delta}} is 0",
            why="a key that only one person has may be shown with a small probability, which delta bounds",
            fix=f"declare {each} as {{keys={names[0]}=a,b,c}}, or "
            "pass {delta=1e-6} to select them privately",
        )
