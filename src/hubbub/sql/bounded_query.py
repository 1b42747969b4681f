"""A query with bounded contributions: its aggregates, and the integers that the engine computes for them.

Nothing here depends on ε or δ: a plan adds noise and a price.

Proof: docs/proofs/bounding.md
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property

from hubbub.engines.schema import Bounds
from hubbub.sql.aggregate import AdditiveAggregate, Aggregate
from hubbub.sql.aggregates import make_aggregates
from hubbub.sql.complementary_parts import Partition
from hubbub.sql.contribution_bounding import ContributionBounding
from hubbub.sql.query import BoundedAggregate, ContributionBounds, Query
from hubbub.unit import Unit

__all__ = ["PLANNING_LIMIT", "BoundedQuery"]

PLANNING_LIMIT = 8
"""Stands in for a maximum of rows or groups per unit that is found when the plan runs."""
_PLANNING_BOUNDS = (Fraction(0), Fraction(1))
"""Stand in for bounds that are estimated when the plan runs."""
_SELECTED_GROUPS = 8
"""Keys that are not declared are taken for this many groups where a contribution bound is chosen."""
_MAX_AGGREGATES_BESIDE_SELECTION = 4
"""An aggregate selects group keys only if it has a quarter of ε, the share of a selection of its own."""


@dataclass(frozen=True)
class BoundedQuery:
    """A query and its contribution bounds. Each figure is computed at most once.

    Guarantee: every `BoundedAggregate` here moves by its sensitivity at most between neighbours.
    Proof: docs/proofs/bounding.md
    """

    query: Query
    unit: Unit
    contribution_bounds: ContributionBounds
    """As declared; `rows` is None where it is estimated privately, or not needed."""
    reports_bounding: bool = False
    """True if a share of ε measures how many units exceed a contribution bound."""
    intervals: bool = True
    """False if answers have no intervals: then quantiles need not pay for theirs."""
    rows_found: bool = False
    """True if the bound on rows was estimated privately."""
    groups_found: bool = False
    """True if the bound on groups was estimated privately: it is for units and keys, not for sums of rows."""

    # Found at run time

    @cached_property
    def estimates_rows(self) -> bool:
        """True if the maximum of rows per unit is estimated privately."""
        return self.query.is_keyed and self._needs_rows and self.contribution_bounds.rows is None

    @cached_property
    def estimates_groups(self) -> bool:
        """True if the maximum of groups per unit is estimated privately: for units, or private keys."""
        bounds = self.contribution_bounds
        is_open = (bounds.rows is None or self.rows_found) and bounds.groups is None
        return self.query.is_keyed and is_open and self._needs_groups

    @property
    def estimates_limits(self) -> bool:
        """True if a contribution bound is estimated privately."""
        return self.estimates_rows or self.estimates_groups

    @property
    def finds_limits(self) -> bool:
        """True if a contribution bound is, or was, estimated privately: it is not for everybody to see."""
        return self.estimates_limits or self.rows_found or self.groups_found

    @cached_property
    def estimated_arguments(self) -> tuple[int, ...]:
        """Indices of the arguments that have privately estimated bounds."""
        return tuple(index for index, argument in enumerate(self.query.arguments) if argument.is_auto)

    @property
    def _needs_rows(self) -> bool:
        bounds = self.contribution_bounds
        if self.estimated_arguments:
            return bounds.groups is None or bounds.rows_per_group is None or self.groups_found
        is_by_groups = bounds.groups is not None and bounds.rows_per_group is not None
        return not (is_by_groups or self._only_units)

    @property
    def _needs_groups(self) -> bool:
        if not self.query.keys or self.query.is_top:
            # The largest groups are chosen by one count after the other, however many a unit is in.
            return False
        if self.query.is_public and self.query.cells <= 1:
            return False
        counts_units = any(call.kind == "units" or call.per_group for call in self.query.aggregates)
        return counts_units or (self.selects_keys and self.selecting_aggregate is None)

    @property
    def uses_rows(self) -> bool:
        """True if rows per unit are bounded; False if groups, and rows in each group, are bounded instead."""
        bounds = self.contribution_bounds
        is_by_groups = bounds.groups is not None and bounds.rows_per_group is not None
        is_distinct = any(call.is_distinct for call in self.query.aggregates)
        return bool(not is_by_groups or not self.query.keys or self.estimated_arguments or is_distinct)

    @property
    def is_by_groups(self) -> bool:
        """True if sums over rows are weighted by groups, and by rows in each."""
        bounds = self.contribution_bounds
        is_limited = bounds.groups is not None and bounds.rows_per_group is not None
        return self.query.is_keyed and bool(self.query.keys) and is_limited

    def with_weights_by_rows(self) -> "BoundedQuery":
        """The same query without the bound on rows in each group."""
        out = replace(self, contribution_bounds=replace(self.contribution_bounds, rows_per_group=None))
        out.__dict__["aggregates"] = self.aggregates  # computed once: they do not depend on limits
        return out

    @property
    def _only_units(self) -> bool:
        return all(call.kind == "units" or call.per_group for call in self.query.aggregates)

    def with_limits(self, *, rows: int | None = None, groups: int | None = None) -> "BoundedQuery":
        """The same query with the estimated maximums of rows and groups per unit filled in."""
        bounds = self.contribution_bounds
        if rows is not None:
            bounds = replace(bounds, rows=rows)
        if groups is not None:
            bounds = replace(bounds, groups=groups)
        groups_found = self.groups_found or groups is not None
        out = replace(
            self,
            contribution_bounds=bounds,
            groups_found=groups_found,
            rows_found=self.rows_found or rows is not None,
        )
        out.__dict__["aggregates"] = self.aggregates  # computed once: they do not depend on limits
        return out

    def with_value_bounds(self, bounds: Mapping[int, Bounds]) -> "BoundedQuery":
        """The same query with the estimated bounds of arguments filled in, by their indices."""
        arguments = tuple(
            replace(argument, bounds=bounds.get(index, argument.bounds))
            for index, argument in enumerate(self.query.arguments)
        )
        return replace(self, query=replace(self.query, arguments=arguments))

    @property
    def cuts_nothing(self) -> bool:
        """True if no unit can exceed a contribution bound, by public facts."""
        if not self.query.is_keyed:
            return True
        most, bounds = self.query.max_rows_per_unit, self.contribution_bounds
        if self.estimates_limits or self.query.rows_kept_for_join is not None:
            return False
        if self._only_units and self.counts_all_groups:
            return True
        declared = [each for each in (bounds.rows, bounds.groups, bounds.rows_per_group) if each is not None]
        return most is not None and all(each >= most for each in declared)

    @property
    def counts_all_groups(self) -> bool:
        """True if the bound on groups is no smaller than the number of groups, by public facts."""
        if not self.query.keys:
            return True
        bounds = self.contribution_bounds
        return self.query.is_public and (bounds.groups or bounds.rows or 1) >= self.query.cells

    # What the engine computes

    @cached_property
    def bounding(self) -> ContributionBounding:
        """How contributions are bounded; for stand-ins where bounds are still to be estimated."""
        bounds = self.contribution_bounds
        if self.estimates_rows:
            bounds = replace(bounds, rows=PLANNING_LIMIT)
        if self.estimates_groups:
            most = max(1, self.query.cells) if self.query.is_public else PLANNING_LIMIT
            bounds = replace(bounds, groups=min(PLANNING_LIMIT, most))
        elif self.query.is_top and bounds.groups is None and bounds.rows is None:
            bounds = replace(bounds, groups=max(1, min(self.query.cells, 2**20 - 1)))
        return ContributionBounding(self.query, bounds, self.unit.neighbours)

    @cached_property
    def _row_bounding(self) -> ContributionBounding:
        """For sums over rows: where keys are public, a bound on groups that was found is not theirs."""
        bounding = self.bounding
        is_found = self.groups_found or self.estimates_groups
        if not is_found or not self.query.is_public:
            return bounding
        return replace(bounding, bounds=replace(bounding.bounds, groups=None))

    @cached_property
    def aggregates(self) -> tuple[Aggregate, ...]:
        """As few noisy vectors as answer all aggregate calls; none for the top k."""
        if self.query.is_top:
            return ()
        arguments = tuple(
            replace(argument, bounds=_PLANNING_BOUNDS)
            if argument.is_auto and argument.bounds is None
            else argument
            for argument in self.query.arguments
        )
        return make_aggregates(replace(self.query, arguments=arguments), intervals=self.intervals)

    @cached_property
    def bounded_aggregates(self) -> tuple[BoundedAggregate, ...]:
        """The bounded form of each of `aggregates`, as the engine computes it."""
        return tuple(
            aggregate.bound(self.bounding if aggregate.is_by_groups else self._row_bounding)
            for aggregate in self.aggregates
        )

    @property
    def additive_aggregates(self) -> int:
        """Number of aggregates to which noise is added; the others are selected."""
        return sum(isinstance(aggregate, AdditiveAggregate) for aggregate in self.aggregates)

    @cached_property
    def top_scores(self) -> BoundedAggregate | None:
        """The exact counts among which the top k are selected; None if nothing is."""
        if not self.query.is_top:
            return None
        call = self.query.aggregates[0]
        if call.kind == "units":
            return self.bounding.units()
        if call.arguments:
            return self.bounding.sums(Partition.present(call.arguments[0], with_missing=False))
        return self.bounding.sums(Partition.rows())

    @cached_property
    def units_above_bounds(self) -> BoundedAggregate | None:
        """The units that exceed a contribution bound, and the others; None if they are not reported."""
        return self.bounding.units_above_bounds() if self.reports_bounding else None

    @property
    def answers(self) -> int:
        """Over how many answers a unit's rows are spread, by public facts alone."""
        if not self.query.keys:
            return 1
        return max(1, self.query.cells) if self.query.is_public else _SELECTED_GROUPS

    # Partition selection

    @property
    def selects_keys(self) -> bool:
        """True if group keys are selected privately."""
        return not self.query.is_public

    @cached_property
    def selecting_aggregate(self) -> int | None:
        """Index of the aggregate with the noisy totals that select group keys; None if none has enough ε."""
        if not self.selects_keys or len(self.aggregates) > _MAX_AGGREGATES_BESIDE_SELECTION:
            return None
        able = [index for index, each in enumerate(self.aggregates) if each.can_select]
        # A count alone has the noise of one number, a mean of two.
        return min(able, key=lambda index: not self.aggregates[index].is_count, default=None)

    @cached_property
    def key_candidates(self) -> BoundedAggregate:
        """For each group key, the number of units that keep it."""
        return self.bounding.key_candidates()

    @property
    def keys_per_unit(self) -> int:
        """Number of group keys that one unit can affect; under substitution, those of both units."""
        bounds = self.bounding.bounds
        groups = (bounds.groups or bounds.rows or 1) if self.query.is_keyed else 1
        return groups * self.unit.neighbours.histogram_distance
