"""A query with bounded contributions: its aggregates, and the integers that the engine computes for them.

Nothing here depends on ε or δ: a plan adds noise and a price.

Proof: docs/proofs/bounding.md
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property

from hubbub.engines.schema import Bounds
from hubbub.sql.aggregates import Aggregate, make_aggregates
from hubbub.sql.contribution_bounding import ContributionBounding
from hubbub.sql.query import BoundedAggregate, ContributionBounds, Query
from hubbub.sql.value_encoding import Partition
from hubbub.unit import Unit

__all__ = ["BoundedQuery"]

_PLANNING_ROWS = 8
"""Stands in for a maximum of rows per unit that is estimated when the plan runs."""
_PLANNING_BOUNDS = (Fraction(0), Fraction(1))
"""Stand in for bounds that are estimated when the plan runs."""
_MAX_AGGREGATES_BESIDE_SELECTION = 4
"""A count selects group keys only if it has a quarter of ε, the share of a selection of its own."""


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

    # Estimated at run time

    @cached_property
    def estimates_rows(self) -> bool:
        """True if the maximum of rows per unit is estimated privately."""
        return self.query.is_keyed and self._needs_rows and self.contribution_bounds.rows is None

    @cached_property
    def estimated_arguments(self) -> tuple[int, ...]:
        """Indices of the arguments that have privately estimated bounds."""
        return tuple(index for index, argument in enumerate(self.query.arguments) if argument.is_auto)

    @property
    def _needs_rows(self) -> bool:
        bounds = self.contribution_bounds
        if self.estimated_arguments:
            return bounds.groups is None or bounds.rows_per_group is None
        is_by_groups = bounds.groups is not None and (bounds.rows_per_group is not None or self._only_units)
        return not (is_by_groups or (self._only_units and not self.query.keys))

    @property
    def uses_rows(self) -> bool:
        """True if rows per unit are bounded; False if groups, and rows in each group, are bounded instead."""
        bounds = self.contribution_bounds
        is_by_groups = bounds.groups is not None and bounds.rows_per_group is not None
        kinds = {call.kind for call in self.query.aggregates}
        return bool(
            not is_by_groups or not self.query.keys or self.estimated_arguments or "distinct" in kinds
        )

    @property
    def _only_units(self) -> bool:
        return all(call.kind == "units" or call.per_group for call in self.query.aggregates)

    def with_rows_per_unit(self, rows: int) -> "BoundedQuery":
        """The same query with the estimated maximum of rows per unit filled in."""
        return replace(self, contribution_bounds=replace(self.contribution_bounds, rows=rows))

    def with_value_bounds(self, bounds: Mapping[int, Bounds]) -> "BoundedQuery":
        """The same query with the estimated bounds of arguments filled in, by their indices."""
        arguments = tuple(
            replace(argument, bounds=bounds.get(index, argument.bounds))
            for index, argument in enumerate(self.query.arguments)
        )
        return replace(self, query=replace(self.query, arguments=arguments))

    # What the engine computes

    @cached_property
    def bounding(self) -> ContributionBounding:
        """How contributions are bounded; for stand-ins where bounds are still to be estimated."""
        bounds = self.contribution_bounds
        if self.estimates_rows:
            bounds = replace(bounds, rows=_PLANNING_ROWS)
        return ContributionBounding(self.query, bounds, self.unit.neighbours)

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
        return make_aggregates(replace(self.query, arguments=arguments))

    @cached_property
    def bounded_aggregates(self) -> tuple[BoundedAggregate, ...]:
        """What the engine computes for each of `aggregates`."""
        return tuple(aggregate.bound(self.bounding) for aggregate in self.aggregates)

    @cached_property
    def top_scores(self) -> BoundedAggregate | None:
        """The exact counts among which the top k are selected; None if nothing is."""
        if not self.query.is_top:
            return None
        counted = self.query.aggregates[0]
        if counted.kind == "units":
            return self.bounding.units()
        if counted.arguments:
            return self.bounding.sums(Partition.present(counted.arguments[0], with_missing=False))
        return self.bounding.sums(Partition.rows())

    @cached_property
    def units_above_bounds(self) -> BoundedAggregate | None:
        """The units that exceed a contribution bound, and the others; None if they are not reported."""
        return self.bounding.units_above_bounds() if self.reports_bounding else None

    # Partition selection

    @property
    def selects_keys(self) -> bool:
        """True if group keys are selected privately."""
        return not self.query.is_public

    @cached_property
    def selecting_aggregate(self) -> int | None:
        """Index of the aggregate with the noisy counts that select group keys; None if none has enough ε."""
        if not self.selects_keys or len(self.aggregates) > _MAX_AGGREGATES_BESIDE_SELECTION:
            return None
        return next((index for index, each in enumerate(self.aggregates) if each.is_count), None)

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
