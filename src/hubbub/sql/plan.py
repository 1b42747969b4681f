"""What will be asked of the engine, with which noise, at what cost and with what error: nothing is read.

One ε is the price of the whole query. Its parts are fixed beforehand: a share to find how many rows a unit
may count where nobody declared it, a share to measure what bounding changed where that is asked for, and
the rest for the measures, in equal shares, with the noise, Laplace or Gaussian, whose intervals are the
narrower. Equal shares make the geometric mean of all widths least, whatever their units. Keys that are not
public are selected by their own noisy counts where rows or units are counted; else a share selects them.

Proof: docs/proofs/bounding.md, "A plan"
"""

import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import Any, ClassVar, NoReturn

from sqlglot import exp

from hubbub.accounting import PrivacyLoss, largest_mu, refuse_large_delta, refuse_large_epsilon
from hubbub.errors import InvalidInput, Refused
from hubbub.escaping import escape
from hubbub.mechanisms import Gaussian, Laplace, PermuteAndFlip, TopK
from hubbub.mechanisms.partition_selection import (
    GaussianPartitionSelection,
    StabilityHistogram,
    TruncatedGeometricSelection,
    choose_partition_selection,
)
from hubbub.numbers import Number, ceil_sqrt, format_up, parse_nonnegative, parse_positive, parse_probability
from hubbub.release import Release
from hubbub.sensitivity import Sensitivity
from hubbub.sql.aggregates import Aggregate, make_aggregates
from hubbub.sql.contribution_bounding import ContributionBounding
from hubbub.sql.moments import Estimate, Floats, Noise
from hubbub.sql.query import BoundedAggregate, ContributionBounds, Output, Query
from hubbub.sql.value_encoding import Partition
from hubbub.unit import Unit

__all__ = ["Plan", "make_plan"]

_SEARCH = Fraction(1, 10)
"""The share of ε that finds the limit on rows where none is declared."""
_BOUNDS = Fraction(1, 10)
"""The share of ε that finds bounds where they are asked to be found."""
_REPORT = Fraction(1, 10)
"""The share of ε that measures what bounding changed, where that is asked for."""
_KEYS = Fraction(1, 4)
"""The share of ε that selects keys which are not public, where no count of their own can."""
_CONFIRMED = True
"""Of parts of a plan's ε, whether it may be above 20: the whole is looked at when it is planned."""
_ASSUMED_ROWS = 8
"""What a limit that is still to be found is taken for, where the two laws are compared."""


_selecting = lru_cache(maxsize=64)(choose_partition_selection)
"""It is asked for in a plan, and when that is charged and run."""
_stable = lru_cache(maxsize=64)(StabilityHistogram.of)


@dataclass(frozen=True)
class Plan:
    """One query with its price and its noise. It is free to look at.

    Guarantee: running it costs `loss` and no more, for the unit and the relation it was made for.
    Proof: docs/proofs/bounding.md, "A plan"
    """

    query: Query
    unit: Unit
    epsilon: Fraction
    delta: Fraction
    limits: ContributionBounds
    """As declared; without rows where these are found privately."""
    is_gaussian: bool
    confidence: Fraction = Fraction(19, 20)
    reports: bool = False
    """Whether a share of ε measures how many units are above a limit."""
    population: int | None = None
    """The public number of people, against which δ is judged."""
    runner: Callable[["Plan"], Release] | None = field(default=None, compare=False, repr=False)
    """Who can run it: the dataset that made it."""
    show: Callable[[exp.Expr], str] = field(default=lambda sql: sql.sql("duckdb"), compare=False, repr=False)
    """The engine's way of writing SQL."""

    error_kind: ClassVar[str] = "none"

    def run(self) -> Release:
        """Charge, run, release: what the dataset that made it does."""
        if self.runner is None:
            raise InvalidInput(
                "the plan has no dataset", why="it was made by hand", fix="use dataset.run(plan)"
            )
        return self.runner(self)

    def error(self, confidence: Number = 0.95, *, coordinates: int = 1) -> NoReturn:
        """A table has an interval for each answer instead."""
        del confidence, coordinates
        raise InvalidInput(
            "a table has no single error", why="each answer has its own", fix="see its intervals"
        )

    # What it costs

    @property
    def searches(self) -> bool:
        """Whether a share of ε finds how many rows a unit may count."""
        return self.query.is_keyed and self._needs_rows and self.limits.rows is None

    @property
    def _needs_rows(self) -> bool:
        if self.autos:
            return self.limits.groups is None or self.limits.rows_per_group is None
        by_groups = self.limits.groups is not None and (
            self.limits.rows_per_group is not None or self._only_units
        )
        return not (by_groups or (self._only_units and not self.query.keys))

    @property
    def _uses_rows(self) -> bool:
        """Whether a limit on rows holds: not where groups, and the rows in each, are limited instead."""
        is_by_groups = self.limits.groups is not None and self.limits.rows_per_group is not None
        kinds = {kind.kind for kind in self.query.aggregates}
        return bool(not is_by_groups or not self.query.keys or self.autos or "distinct" in kinds)

    @property
    def _only_units(self) -> bool:
        return all(kind.kind == "units" or kind.per_group for kind in self.query.aggregates)

    @property
    def epsilon_for_search(self) -> Fraction:
        """The ε that finds the limit on rows; 0 where it is declared."""
        return self.epsilon * _SEARCH if self.searches else Fraction(0)

    @property
    def autos(self) -> tuple[int, ...]:
        """The arguments whose bounds are found privately."""
        return tuple(place for place, argument in enumerate(self.query.arguments) if argument.is_auto)

    @property
    def epsilon_for_bounds(self) -> Fraction:
        """The ε that finds bounds; 0 where they are declared."""
        return self.epsilon * _BOUNDS if self.autos else Fraction(0)

    @property
    def epsilon_for_report(self) -> Fraction:
        """The ε that measures how many units are above a limit; 0 where that is not asked for."""
        return self.epsilon * _REPORT if self.reports else Fraction(0)

    @property
    def selects(self) -> bool:
        """Whether keys are selected privately."""
        return not self.query.is_public

    @property
    def epsilon_for_keys(self) -> Fraction:
        """The ε that selects keys; 0 where they are public."""
        left = self.epsilon - self.epsilon_for_search - self.epsilon_for_bounds - self.epsilon_for_report
        return left * _KEYS if self.selects and self.selecting is None else Fraction(0)

    @cached_property
    def selecting(self) -> Aggregate | None:
        """The measure whose noisy counts select the keys, if there is one with enough ε of its own."""
        if not self.selects or len(self.measures) * _KEYS > 1:
            return None
        return next((measure for measure in self.measures if measure.counts), None)

    @property
    def delta_for_keys(self) -> Fraction:
        """The δ that selects keys."""
        if not self.selects:
            return Fraction(0)
        return self.delta / 2 if self.is_gaussian else self.delta

    @property
    def epsilon_for_measures(self) -> Fraction:
        """The ε that is left for all measures together."""
        found = self.epsilon_for_search + self.epsilon_for_bounds
        return self.epsilon - found - self.epsilon_for_report - self.epsilon_for_keys

    @cached_property
    def measures(self) -> tuple[Aggregate, ...]:
        """What is measured."""
        return () if self.query.is_top else make_aggregates(self.filled)

    @property
    def filled(self) -> Query:
        """The query with a stand-in for bounds that are still to be found."""
        unit = (Fraction(0), Fraction(1))
        filled = tuple(
            replace(argument, bounds=unit) if argument.is_auto and argument.bounds is None else argument
            for argument in self.query.arguments
        )
        return replace(self.query, arguments=filled)

    @cached_property
    def loss(self) -> PrivacyLoss:
        """What one unit is charged for all of it."""
        losses = []
        if self.searches:
            losses.append(PrivacyLoss.pure(self.epsilon_for_search))
        if self.autos:
            losses.append(PrivacyLoss.pure(self.epsilon_for_bounds))
        if self.reports:
            losses.append(PrivacyLoss.pure(self.epsilon_for_report))
        if self.selecting is not None:
            alone = self.delta_for_keys if self.searches else self.stable(self.limits).delta
            losses.append(PrivacyLoss.approximate(0, alone))
        elif self.selects:
            known = None if self.searches else self.key_selection(self.limits).loss()
            losses.append(known or PrivacyLoss.approximate(self.epsilon_for_keys, self.delta_for_keys))
        if self.query.is_top:
            losses.append(PrivacyLoss.pure(self.epsilon_for_measures))
        elif self.is_gaussian:
            losses.append(PrivacyLoss.gaussian_from_mu_squared(self._mu**2))
        else:
            losses.append(PrivacyLoss.pure(self.epsilon_for_measures))
        total = losses[0]
        for loss in losses[1:]:
            total += loss
        return total

    # With which noise

    @property
    def assumed(self) -> ContributionBounds:
        """The limits, with a stand-in for the one that is still to be found."""
        return replace(self.limits, rows=_ASSUMED_ROWS) if self.searches else self.limits

    def weighing(self, limits: ContributionBounds) -> ContributionBounding:
        """How rows are weighed or chosen under these limits."""
        return ContributionBounding(self.query, limits, self.unit.neighbours)

    def noise(self, sensitivity: Sensitivity) -> Noise:
        """The noise of one measure, which has an equal share of what is left."""
        count = len(self.measures)
        if self.is_gaussian:
            share = self._mu / ceil_sqrt(Fraction(count))
            return Gaussian(ceil_sqrt(sensitivity.l2_squared) / share, sensitivity)
        epsilon = self.epsilon_for_measures / count
        return Laplace.of(sensitivity=sensitivity, epsilon=epsilon, allow_large_epsilon=_CONFIRMED)

    @cached_property
    def _mu(self) -> Fraction:
        return largest_mu(self.epsilon_for_measures, self.delta - self.delta_for_keys)

    def check_noise(self, limits: ContributionBounds) -> None:
        """Refuse limits under which noise would be too wide to be exact."""
        weighing = self.weighing(limits)
        for measure in self.measures:
            self.noise(measure.measurement(weighing).sensitivity)
        if self.query.is_top:
            self.top(self.top_measurement(limits).sensitivity)
        if self.selecting is not None:
            self.stable(limits)
        elif self.selects:
            self.key_selection(limits)

    def report_noise(self, sensitivity: Sensitivity) -> Laplace:
        """The noise on how many units are above a limit, and how many are not."""
        epsilon = self.epsilon_for_report
        return Laplace.of(sensitivity=sensitivity, epsilon=epsilon, allow_large_epsilon=_CONFIRMED)

    def key_selection(
        self, limits: ContributionBounds
    ) -> TruncatedGeometricSelection | GaussianPartitionSelection:
        """What selects the keys, where no count does."""
        groups = self._keys_of_one(limits)
        return _selecting(
            groups=groups,
            epsilon=self.epsilon_for_keys,
            delta=self.delta_for_keys,
            population=self.population,
        )

    def stable(self, limits: ContributionBounds) -> StabilityHistogram:
        """What gives the noisy counts that select the keys."""
        assert self.selecting is not None
        moved = self.selecting.measurement(self.weighing(limits)).sensitivity
        return _stable(
            noise=self.noise(moved),
            groups=self._keys_of_one(limits),
            delta=self.delta_for_keys,
            population=self.population,
        )

    def _keys_of_one(self, limits: ContributionBounds) -> int:
        """How many keys one unit can move; where it is substituted, those of both."""
        groups = (limits.groups or limits.rows or 1) if self.query.is_keyed else 1
        return groups * self.unit.neighbours.histogram_distance

    def top(self, sensitivity: Sensitivity) -> TopK:
        """What chooses the largest groups."""
        k = self.query.limit or 1
        each = PermuteAndFlip.of(
            sensitivity=sensitivity.linf,
            epsilon=self.epsilon_for_measures / k,
            monotone=self._is_monotone,
            allow_large_epsilon=_CONFIRMED,
        )
        return TopK(each, min(k, self.query.cells))

    def top_measurement(self, limits: ContributionBounds) -> BoundedAggregate:
        """The exact counts among which the largest are chosen."""
        weighing = self.weighing(limits)
        counted = self.query.aggregates[0]
        if counted.kind == "units":
            return weighing.units()
        if counted.arguments:
            return weighing.sums(Partition.present(counted.arguments[0], with_missing=False))
        return weighing.sums(Partition.rows())

    @property
    def _is_monotone(self) -> bool:
        """Whether adding a unit moves all counts up: so it is where units are added or removed."""
        return self.unit.neighbours.histogram_distance == 1

    # In words

    def label(
        self, limits: ContributionBounds | None = None, above: Estimate | None = None
    ) -> dict[str, Any]:
        """What is protected, how, and at what cost: public, and free of data but for what was released."""
        known = limits or self.limits
        noises = sorted(
            {str(type(self.noise(measured.sensitivity)).__name__) for _, measured in self.measurements()}
        )
        return {
            "query": self.query.text,
            "unit": self.unit.name,
            "neighbours": self.unit.neighbours.value,
            "epsilon": str(self.epsilon),
            "delta": str(self.delta),
            "mechanism": ", ".join(noises) or "permute-and-flip",
            "keys": self._keys_said,
            "rows per unit": known.rows if self._uses_rows else None,
            "rows per unit found privately": self.searches,
            "groups per unit": known.groups,
            "rows per group": known.rows_per_group,
            "bounds": {
                argument.name: [str(end) for end in argument.bounds]
                for argument in self.query.arguments
                if argument.bounds is not None
            },
            "bounds found privately": [self.query.arguments[place].name for place in self.autos],
            "confidence": float(self.confidence),
            "interval covers": "the exact answer of the bounded query"
            + ("" if self.reports else "; what bounding changed is not measured"),
            **_said(above),
            "notes": self.query.notes,
        }

    @property
    def _keys_said(self) -> str:
        if not self.selects:
            return "public"
        return "selected privately" + (", by their own counts" if self.selecting is not None else "")

    def to_json(self) -> str:
        """The label, for storage."""
        return json.dumps(self.label(), ensure_ascii=False, sort_keys=True)

    def __str__(self) -> str:
        shown = (
            format_up(self.epsilon)
            if self.delta == 0
            else f"{format_up(self.epsilon)}, δ = {format_up(self.delta)}"
        )
        lines = [f"ε = {shown} for {self.unit}; nothing spent yet"]
        lines += [
            f"  {output.name}: {said} ({float(100 * self.confidence):g} %)" for output, said in self.errors()
        ]
        return "\n".join(map(escape, [*lines, *self.notes()]))

    def notes(self) -> list[str]:
        """What else a reader should know."""
        out = [f"  {note}" for note in self.query.notes]
        if self.query.kept is not None:
            out.append(f"  before tables are joined a unit keeps at most {self.query.kept:,} rows of each")
        if self.searches:
            out.append(f"  {format_up(self.epsilon_for_search)} of ε finds how many rows a unit may count")
        if self.autos:
            names = ", ".join(self.query.arguments[place].name for place in self.autos)
            out.append(
                f"  {format_up(self.epsilon_for_bounds)} of ε finds the bounds of {names}; errors are said "
                "for a range of 1, and grow with it"
            )
        if self.reports:
            measured = self.weighing(self.assumed).above()
            wide = self.report_noise(measured.sensitivity).error(self.confidence)
            out.append(
                f"  {format_up(self.epsilon_for_report)} of ε measures the share of units above a limit: "
                f"± {wide:,.3g}/n or less, with n units"
            )
        if self.selecting is not None:
            out.append(self._shown_keys(self.selecting))
        elif self.selects:
            keys = self.key_selection(self.assumed)
            least = keys.min_units(self.confidence)
            out.append(
                f"  {format_up(self.epsilon_for_keys)} of ε selects the keys: one that {least} units have "
                f"is shown with {float(100 * self.confidence):g} %"
            )
        if self.query.is_top:
            measured = self.top_measurement(self.assumed)
            regret = self.top(measured.sensitivity).error(
                self.confidence, coordinates=max(1, self.query.cells)
            )
            out.append(
                f"  each chosen group is at most {float(regret * measured.step):,.3g} below the best one left"
            )
        return out

    def _shown_keys(self, measure: Aggregate) -> str:
        stable, step = self.stable(self.assumed), measure.measurement(self.weighing(self.assumed)).step
        bar = math.ceil(stable.threshold * step)
        least = math.ceil(stable.min_count(self.confidence) * step)
        name, sure = self._names(measure), f"{float(100 * self.confidence):g} %"
        return (
            f"  a key is shown where {name}, with its noise, reaches {bar}: one of {least} with {sure}; "
            f"just above, the interval of {name} is wider"
        )

    def explain(self) -> str:
        """How it is protected: sensitivities, mechanisms, the engine's SQL, and the proofs behind them."""
        lines = [""]
        known = [("the largest groups", self.top_measurement(self.assumed))] if self.query.is_top else []
        named = [(self._names(measure), measured) for measure, measured in self.measurements()]
        for name, measured in [*named, *known]:
            noise = self.top(measured.sensitivity) if self.query.is_top else self.noise(measured.sensitivity)
            lines += [
                f"{name}: {measured.columns} integers a group, one step is {measured.step} of a row or unit",
                f"  one unit moves them by {measured.sensitivity}",
                f"  because: {measured.because} (docs/proofs/bounding.md)",
                f"  noise: {noise}",
                f"  SQL: {self.show(measured.sql)}",
            ]
        if self.reports:
            measured = self.weighing(self.assumed).above()
            lines += [
                f"units above a limit, and others: one unit moves them by {measured.sensitivity}",
                f"  because: {measured.because} (docs/proofs/bounding.md)",
                f"  noise: {self.report_noise(measured.sensitivity)}",
                f"  SQL: {self.show(measured.sql)}",
            ]
        if self.selects:
            by = self.key_selection if self.selecting is None else self.stable
            lines.append(f"keys: {by(self.assumed)} (docs/proofs/keys.md)")
        return "\n".join([str(self), *map(escape, lines)])

    def _names(self, measure: Aggregate) -> str:
        names = [output.name for output in self.query.outputs if output.aggregate in measure.aggregates]
        return ", ".join(names) or "computed outputs"

    # With what error

    def errors(self) -> Iterator[tuple[Output, str]]:
        """For each output but the keys, how far it will be off, in words."""
        for output in self.query.outputs:
            if output.key is None:
                place = output.aggregate
                yield output, self._expected(place) if place is not None else "computed from what is released"

    def _expected(self, place: int) -> str:
        limits = self.assumed
        measure, measured = self._of(place, limits)
        said = measure.expected(place, measured, self.noise(measured.sensitivity), self.confidence)
        return f"{said}, if {limits.rows} rows per unit are found best" if self.searches else said

    def linear(self, place: int) -> tuple[Floats, Noise] | None:
        """What each integer is worth in an aggregate, and its noise, where it is a plain sum of them."""
        measure, measured = self._of(place, self.assumed)
        weights = measure.linear(place, measured)
        return None if weights is None else (weights, self.noise(measured.sensitivity))

    def width(self, place: int) -> float | None:
        """How far an aggregate will be off, where that is known beforehand."""
        measure, measured = self._of(place, self.assumed)
        return measure.width(place, measured, self.noise(measured.sensitivity), self.confidence)

    def _of(self, place: int, limits: ContributionBounds) -> tuple[Aggregate, BoundedAggregate]:
        measure = next(each for each in self.measures if place in each.aggregates)
        return measure, measure.measurement(self.weighing(limits))

    def measurements(self) -> list[tuple[Aggregate, BoundedAggregate]]:
        """What the engine will be asked, under the limits that are known or assumed."""
        weighing = self.weighing(self.assumed)
        return [(measure, measure.measurement(weighing)) for measure in self.measures]


def _said(above: Estimate | None) -> dict[str, Any]:
    """The share of units above a limit, for programs and for people."""
    if above is None:
        return {}
    share, low, high = (float(part[0]) for part in (above.value, above.low, above.high))
    said = f"{100 * share:.3g} % [{100 * low:.3g}, {100 * high:.3g}]"
    return {"units above a limit": said, "share above a limit": {"value": share, "low": low, "high": high}}


def make_plan(
    query: Query,
    unit: Unit,
    *,
    epsilon: Number | None = None,
    delta: Number = 0,
    limits: ContributionBounds | None = None,
    error: Mapping[str, Number] | None = None,
    confidence: Number = 0.95,
    population: int | None = None,
    reports: bool = False,
    allow_large_epsilon: bool = False,
) -> Plan:
    """The plan for a query at a price, or for wanted errors at the least price.

    Guarantee: its loss is (ε, δ)-private at most, or what the errors take.
    Assumes: limits, bounds and keys were not taken from the rows.
    Proof: docs/proofs/bounding.md, "A plan"
    """
    if (epsilon is None) == (error is None):
        raise InvalidInput(
            "neither or both of {epsilon} and {error} are given",
            why="each determines the other",
            fix="give exactly one of {epsilon} and {error}",
        )
    allowed = parse_nonnegative(delta, "delta")
    refuse_large_delta(allowed, population)
    sure = parse_probability(confidence, "confidence")
    _check(query, allowed)
    bounds = limits or ContributionBounds()
    if reports:
        ContributionBounding(query, bounds, unit.neighbours).above()  # refuses where nothing is bounded
    if query.most is not None and (bounds.rows is None or bounds.rows > query.most):
        bounds = replace(bounds, rows=query.most)

    def at(price: Fraction) -> Plan:
        laplace = Plan(
            query,
            unit,
            price,
            allowed,
            bounds,
            is_gaussian=False,
            confidence=sure,
            reports=reports,
            population=population,
        )
        return _better(laplace, replace(laplace, is_gaussian=True)) if _may_be_gaussian(laplace) else laplace

    if not query.is_top:
        make_aggregates(at(Fraction(1)).filled)  # bounds that are missing are missed now
    if epsilon is not None:
        plan = at(parse_positive(epsilon, "epsilon"))
    else:
        assert error is not None
        plan = _least(at, _wanted(query, error))
    refuse_large_epsilon(plan.epsilon, allow=allow_large_epsilon)
    return _possible(plan)


def _possible(plan: Plan) -> Plan:
    """The plan, if its noise can be made: what cannot is refused before anything is charged."""
    plan.check_noise(plan.assumed)
    return plan


def _check(query: Query, delta: Fraction) -> None:
    if query.is_public:
        query.check_groups()
    if not query.is_public and delta == 0:
        names = ", ".join(key.name for key in query.keys if key.values is None)
        raise Refused(
            f"the keys of {names} are not declared, and {{delta}} is 0",
            why="a key that only one person has may be shown with some small chance, which is delta",
            fix=f"declare them as {{keys={names}=a,b,c}}, or pass {{delta=1e-6}} to select them privately",
        )


def _may_be_gaussian(plan: Plan) -> bool:
    return plan.delta > 0 and not plan.query.is_top


def _better(laplace: Plan, gaussian: Plan) -> Plan:
    """The plan with the narrower noise, measure by measure, in the geometric mean."""
    total = 0.0
    for (_, one), (_, two) in zip(laplace.measurements(), gaussian.measurements(), strict=True):
        wide = laplace.noise(one.sensitivity).error(laplace.confidence)
        total += math.log(wide + 1) - math.log(gaussian.noise(two.sensitivity).error(laplace.confidence) + 1)
    return laplace if total <= 0 else gaussian


def _wanted(query: Query, error: Mapping[str, Number]) -> dict[int, Fraction]:
    """The wanted width of each aggregate, by its place."""
    wanted = {}
    for name, width in error.items():
        output = next((each for each in query.outputs if each.name.lower() == name.lower()), None)
        if output is None or output.aggregate is None:
            raise InvalidInput(
                f"an error is asked for {name!r}, which is not an aggregate of the answer",
                why="only counts and sums have an error that is known beforehand",
                fix="use the name of a COUNT or SUM in the SELECT",
            )
        wanted[output.aggregate] = parse_positive(width, f"the error of {name}")
    return wanted


def _least(at: Callable[[Fraction], Plan], wanted: Mapping[int, Fraction]) -> Plan:
    """The plan with the least ε, to three digits, that keeps every wanted width."""

    def fits(price: Fraction) -> bool:
        plan = at(price)
        for place, width in wanted.items():
            found = plan.width(place)
            if found is None:
                raise InvalidInput(
                    "an error is asked for an answer whose error depends on the data",
                    why="that of a mean or a quantile depends on how many rows there are",
                    fix="ask for the error of its count or sum, or give {epsilon}",
                )
            if found > width:
                return False
        return True

    high = Fraction(1)
    while not fits(high):
        high *= 2
        if high > 2**10:
            raise Refused(
                "no epsilon is large enough", why="so small an error protects nobody", fix="ask for a larger"
            )
    low = high / 2
    while fits(low) and low > Fraction(1, 2**40):
        low /= 2
    high = 2 * low if not fits(low) else low
    for _ in range(12):
        middle = (low + high) / 2
        low, high = (low, middle) if fits(middle) else (middle, high)
    # Shown in three digits, rounded up.
    digits = 2 - math.floor(math.log10(high))
    shown = Fraction(math.ceil(high * Fraction(10) ** digits)) / Fraction(10) ** digits
    return at(shown)
