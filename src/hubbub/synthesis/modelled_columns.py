"""Which columns a model has: declared functions are left out, and values of large columns are merged.

A column that is a function of another is computed from it when rows are made. Where the source has very many
values, as a code of which the function is its category, the function is modelled, and the source is chosen
within it by its noisy one-way table. Other columns of many values are merged: those with few rows, by a noisy
table, become one cell.
"""

import math
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from hubbub.errors import InvalidInput
from hubbub.synthesis.binning import Bins
from hubbub.synthesis.counting import Counts, Integers
from hubbub.synthesis.domain import MAX_MASK_CELLS, Domain, Function
from hubbub.synthesis.graphical_model import Mask, Reals
from hubbub.synthesis.junction_tree import Variables
from hubbub.unit import Unit

__all__ = ["Merging", "ModelledColumns", "ModelledTables", "choose_columns", "compute_large_functions"]

_MANY_VALUES = 64
_MAX_FUNCTION_CELLS = 1 << 22
_MERGE_BELOW = 3.0
"""Values with fewer rows than this many standard deviations are merged."""


@dataclass(frozen=True, eq=False)
class Merging:
    """The cells of a column, merged into groups that are modelled; and how many rows each cell has."""

    groups: Integers
    """The group of each cell."""
    masses: Reals
    """The noisy number of rows of each cell, not negative: by it a cell is chosen within its group."""

    @property
    def size(self) -> int:
        """The number of groups."""
        return int(self.groups.max()) + 1


@dataclass(frozen=True, eq=False)
class ModelledColumns:
    """The columns of a model, as parts of a domain."""

    domain: Domain
    names: tuple[str, ...]
    """The modelled columns, in the order of the domain."""
    computed: tuple[Function, ...] = ()
    """Columns that are computed from others, in an order in which their source is known."""
    refined: tuple[Function, ...] = ()
    """Functions that are modelled instead of their source, which is chosen within them."""
    mergings: Mapping[str, Merging] = field(default_factory=dict)
    bins: Mapping[str, Bins] = field(default_factory=dict)

    @property
    def sizes(self) -> tuple[int, ...]:
        """The number of modelled cells of each column."""
        return tuple(
            self.mergings[name].size if name in self.mergings else self.domain.column(name).size
            for name in self.names
        )

    def ordered(self, variables: Variables) -> tuple[int, ...]:
        """How many cells of each of these columns, from the first, are in order: 0 for categories."""
        columns = [self.domain.column(self.names[v]) for v in variables]
        return tuple(column.bins if column.is_binned else 0 for column in columns)

    @property
    def focus(self) -> int | None:
        """The position of the focus column."""
        return self.names.index(self.domain.focus) if self.domain.focus in self.names else None

    @property
    def columns_to_merge(self) -> tuple[str, ...]:
        """The columns of which a noisy one-way table is needed before the model."""
        many = [name for name in self.names if self._is_large(name)]
        return (*many, *(each.source for each in self.refined))

    def _is_large(self, name: str) -> bool:
        column = self.domain.column(name)
        return not column.is_binned and column.size > _MANY_VALUES

    def merge(self, tables: Mapping[str, tuple[Reals, float]]) -> "ModelledColumns":
        """Merge values with few rows.

        Args:
            tables: the noisy one-way table of each of `columns_to_merge`, and its standard deviation.
        """
        mergings: dict[str, Merging] = {}
        for name, (noisy, sd) in tables.items():
            # Half a row keeps every declared value possible.
            masses = np.maximum(noisy, 0.5)
            if name not in self.names:
                function = next(each for each in self.refined if each.source == name)
                mergings[name] = Merging(np.array(function.table, dtype=np.int64), masses)
                continue
            is_small = noisy < _MERGE_BELOW * sd
            signatures = self._signatures(name)
            groups: dict[tuple[int, bytes], int] = {}
            cells = []
            for cell in range(noisy.size):
                key = (-1 if is_small[cell] else cell, signatures[cell] if is_small[cell] else b"")
                cells.append(groups.setdefault(key, len(groups)))
            mergings[name] = Merging(np.array(cells, dtype=np.int64), masses)
        return replace(self, mergings=mergings)

    def _signatures(self, name: str) -> list[bytes]:
        """What rules and functions say of each cell of a column: only cells with the same are merged."""
        variable = self.names.index(name)
        signatures = [b""] * self.domain.column(name).size
        for mask in replace(self, mergings={}).masks():
            if variable in mask.variables:
                possible = np.moveaxis(mask.possible, mask.variables.index(variable), 0)
                signatures = [old + possible[cell].tobytes() for cell, old in enumerate(signatures)]
        return signatures

    def _rule_tables(self) -> list[tuple[str, ...]]:
        """The columns of rules, and of functions by which no column is computed or chosen."""
        names = {self.domain.ordered(rule.columns) for rule in self.domain.rules}
        done = {*self.computed, *self.refined}
        names |= {
            self.domain.ordered((each.source, each.target))
            for each in self.domain.functions
            if each not in done
        }
        return sorted(names)

    def masks(self) -> tuple[Mask, ...]:
        """The structural zeros, as tables of the modelled columns."""
        masks = [self._to_mask(names, self.domain.mask(names)) for names in self._rule_tables()]
        masks += [self._to_mask((each.target,), _find_values(each, self.domain)) for each in self.refined]
        return tuple(mask for mask in masks if not mask.possible.all())

    def _to_mask(self, names: tuple[str, ...], possible: NDArray[np.bool_]) -> Mask:
        """The mask of the columns from which these are computed. Only then are values merged.

        A rule about a computed column is one about its source: two columns that have one source are one.
        """
        origins = [self._find_origin(name) for name in names]
        distinct = sorted({name for name, _ in origins}, key=self.names.index)
        cells = math.prod(self.domain.column(name).size for name in distinct)
        if cells > MAX_MASK_CELLS:
            raise InvalidInput(
                f"the rules connect columns to tables of up to {cells} cells",
                why="a rule about a column that is computed is one about its source",
                fix="declare fewer rules, or coarser categories",
                parameter="rules",
            )
        axes = [distinct.index(name) for name, _ in origins]
        index = [
            values.reshape([-1 if place == axis else 1 for place in range(len(distinct))])
            for axis, (_, values) in zip(axes, origins, strict=True)
        ]
        merged = np.asarray(possible[tuple(index)])
        for axis, name in enumerate(distinct):
            if name in self.mergings:
                merged = _any_of_groups(merged, axis, self.mergings[name])
        return Mask(tuple(self.names.index(name) for name in distinct), merged)

    def _find_origin(self, name: str) -> tuple[str, Integers]:
        """The modelled column that a column is computed from, and the column's cell for each of its cells."""
        sources = {each.target: each for each in self.computed}
        values = np.arange(self.domain.column(name).size)
        while name in sources:
            function = sources[name]
            name, values = function.source, values[list(function.table)]
        return name, values


def _find_values(function: Function, domain: Domain) -> NDArray[np.bool_]:
    """The values that a function takes: for any other there is no value of its source to choose."""
    possible = np.zeros(domain.column(function.target).size, dtype=bool)
    possible[list(function.table)] = True
    return possible


def _any_of_groups(possible: NDArray[np.bool_], axis: int, merging: Merging) -> NDArray[np.bool_]:
    moved = np.moveaxis(possible, axis, 0)
    grouped = np.zeros((merging.size, *moved.shape[1:]), dtype=bool)
    np.logical_or.at(grouped, merging.groups, moved)
    return np.moveaxis(grouped, 0, axis)


def choose_columns(domain: Domain, bins: Mapping[str, Bins] | None = None) -> ModelledColumns:
    """Decide which columns are modelled, from the declared domain alone."""
    ruled = {name for rule in domain.rules for name in rule.columns} | {domain.focus}
    names = list(domain.names)
    computed: list[Function] = []
    refined: list[Function] = []
    for each in domain.functions:
        if _is_code(each, domain, ruled) and not any(each.source == other.source for other in refined):
            names.remove(each.source)
            refined.append(each)
        elif each.target in names and each.target != domain.focus and not _is_cycle(each, computed):
            names.remove(each.target)
            computed.append(each)
        # What is left excludes combinations, as rules do.
    # A function of a function comes after it.
    computed = sorted(computed, key=lambda each: _depth(each, computed))
    return ModelledColumns(domain, tuple(names), tuple(computed), tuple(refined), {}, dict(bins or {}))


def compute_large_functions(domain: Domain) -> ModelledColumns:
    """All columns but functions with a source of which the table is too large."""
    names = list(domain.names)
    computed: list[Function] = []
    for each in domain.functions:
        is_large = domain.cells((each.source, each.target)) > _MAX_FUNCTION_CELLS
        if is_large and each.target in names and not _is_cycle(each, computed):
            names.remove(each.target)
            computed.append(each)
    computed = sorted(computed, key=lambda each: _depth(each, computed))
    return ModelledColumns(domain, tuple(names), tuple(computed))


def _is_code(function: Function, domain: Domain, ruled: AbstractSet[str | None]) -> bool:
    """True if the source has many values, and can be chosen by the function's value alone.

    Nothing else may depend on the source but columns that are computed from it, and that nothing depends on.
    """
    source, target = domain.column(function.source), domain.column(function.target)
    others = [each for each in domain.functions if each is not function]
    sources = {each.source for each in domain.functions}
    own = [each.target for each in others if each.source == source.name]
    return (
        not source.is_binned
        and source.size > _MANY_VALUES
        and target.size < source.size
        and source.name not in ruled
        and not {each.target for each in others} & {source.name, target.name}
        and not any(name in ruled or name in sources for name in own)
    )


def _is_cycle(function: Function, computed: list[Function]) -> bool:
    """True if the source is computed from the target."""
    sources = {each.target: each.source for each in computed}
    name = function.source
    while name in sources:
        name = sources[name]
    return name == function.target


def _depth(function: Function, functions: list[Function]) -> int:
    depth, source, seen = 0, function.source, {function.target}
    while source not in seen:
        seen.add(source)
        following = next((each for each in functions if each.target == source), None)
        if following is None:
            break
        depth, source = depth + 1, following.source
    return depth


@dataclass(frozen=True, eq=False)
class ModelledTables:
    """Exact tables of modelled columns: an engine's counts, with merged cells added up."""

    counts: Counts
    columns: ModelledColumns

    @property
    def unit(self) -> Unit:
        """The protected unit."""
        return self.counts.unit

    def count(self, table: Variables) -> Integers:
        """Return the exact table of modelled columns, by their positions."""
        return self.count_many([table])[table]

    def count_many(self, tables: Iterable[Variables]) -> dict[Variables, Integers]:
        """Return several exact tables, in as few scans as possible."""
        by_names = {tuple(self.columns.names[v] for v in table): table for table in tables}
        # Sums of cells are sums of integers: no unit counts more than before.
        groups = {name: each.groups for name, each in self.columns.mergings.items()}
        exact_tables = self.counts.count_many(by_names, groups)
        return {by_names[names]: np.ascontiguousarray(exact) for names, exact in exact_tables.items()}
