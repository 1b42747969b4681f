"""The public domain of a table: which cells its columns have, declared and never read from rows.

A column has categories, or a range of numbers or dates that cuts divide into bins; a cell for NULL and one
for other values only where they are declared. Every row falls into one cell of each column by its own
values alone, or is outside the domain and counts for nothing.
"""

import enum
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, timedelta
from fractions import Fraction
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from hubbub.engines.schema import Bounds, Key
from hubbub.errors import InvalidInput

__all__ = [
    "MAX_CELLS",
    "MAX_MASK_CELLS",
    "OTHER",
    "Column",
    "ColumnKind",
    "Condition",
    "Domain",
    "Function",
    "Interval",
    "Rule",
    "to_date",
    "to_number",
]

MAX_CELLS = 1 << 16
"""The maximum number of cells of one column."""
MAX_MASK_CELLS, _MAX_MASK_COLUMNS = 1 << 26, 32
"""Of a table of which it is computed what rules and functions leave possible."""
_EPOCH = date(1970, 1, 1)
_EXACT = 1 << 53


def _show(number: Fraction | float) -> str:
    """A number in words: with enough digits to tell all categories and cuts apart."""
    return f"{float(number):.15g}"


class ColumnKind(enum.Enum):
    """The kinds of columns, by the origin of their cells."""

    CATEGORIES = "categories"
    NUMBERS = "numbers"
    DATES = "dates"
    """As numbers: days since 1970-01-01."""


class _Other(enum.Enum):
    OTHER = "other"

    def __str__(self) -> str:
        return "other"


OTHER: Final = _Other.OTHER
"""The decoded value of the cell for all undeclared values."""


@dataclass(frozen=True)
class Interval:
    """The values of a bin: from `low` on and below `high`. The last bin of a column includes its high end."""

    low: Fraction
    high: Fraction

    def __str__(self) -> str:
        return f"[{_show(self.low)}, {_show(self.high)})"


@dataclass(frozen=True)
class Column:
    """A column of the domain.

    Its cells are, in this order: the categories or bins, the cell for other values if there is one, and the
    cell for NULL if there is one.

    >>> sex = Column.of_categories("sex", ["f", "m", None])
    >>> sex.size, sex.decode(1), sex.decode(2)
    (3, 'm', None)
    >>> age = Column.of_numbers("age", (0, 100), cuts=(18, 65))
    >>> age.size, str(age.decode(1)), age.encode([17, 18, 200, float("nan")]).tolist()
    (3, '[18, 65)', [0, 1, 2, -1])
    """

    name: str
    kind: ColumnKind
    categories: tuple[Key, ...] = ()
    """All categories but NULL."""
    edges: tuple[Fraction, ...] = ()
    """Of n bins the n + 1 ends; dates as days since 1970-01-01."""
    unit: Fraction | None = None
    """The values are multiples of it, as 1 for ages in years; None if they are any numbers."""
    is_nullable: bool = False
    has_other: bool = False
    finds_bins: bool = False
    """True if the cuts are to be found privately: until then all values are in one bin."""
    forced_cuts: tuple[Fraction, ...] = ()
    """Cuts that the bins have in any case, because a rule or a query needs them."""
    ends_after_last: bool = False
    """True if the last bin ends one unit after the highest value, as others do; else it includes its end."""

    def __post_init__(self) -> None:
        is_sorted = all(low < high for low, high in zip(self.edges, self.edges[1:], strict=False))
        if self.size < 1 or self.size > MAX_CELLS or not is_sorted or not self.name:
            raise InvalidInput(
                f"the column {self.name!r} has no cell, more than {MAX_CELLS} cells, or cuts out of order",
                why="every value falls into one of its public cells",
                fix="declare its categories, or its bounds and increasing cuts between them",
            )

    @classmethod
    def of_categories(
        cls, name: str, categories: Iterable[Key], *, is_nullable: bool = False, has_other: bool = False
    ) -> "Column":
        """A column of categories; None among them declares that it is nullable."""
        listed = list(categories)
        values = tuple(each for each in listed if each is not None)
        if len(set(values)) < len(values):
            raise InvalidInput(
                f"the categories of {name} are not distinct",
                why="each is one cell",
                fix="list each category once",
            )
        return cls(
            name,
            ColumnKind.CATEGORIES,
            values,
            is_nullable=is_nullable or len(values) < len(listed),
            has_other=has_other,
        )

    @classmethod
    def of_numbers(
        cls,
        name: str,
        bounds: Sequence[Any],
        *,
        cuts: Iterable[Any] | None = None,
        unit: Any = None,
        is_nullable: bool = False,
        kind: ColumnKind = ColumnKind.NUMBERS,
    ) -> "Column":
        """A column of numbers between bounds, in bins between cuts; without cuts they are found privately.

        Args:
            name: its name.
            bounds: the lowest and the highest value; values beyond are counted in the first or last bin.
            cuts: where bins begin, between the bounds.
            unit: values are multiples of it.
            is_nullable: True if it has a cell for NULL, which NaN and infinity are counted in, too.
            kind: NUMBERS, or DATES with bounds in days.
        """
        low, high = Fraction(bounds[0]), Fraction(bounds[1])
        inner = sorted({Fraction(cut) for cut in (() if cuts is None else cuts)} - {low, high})
        return cls(
            name,
            kind,
            edges=(low, *inner, high),
            unit=None if unit is None else Fraction(unit),
            is_nullable=is_nullable,
            finds_bins=cuts is None,
        )

    @property
    def is_binned(self) -> bool:
        """True for numbers and dates."""
        return self.kind is not ColumnKind.CATEGORIES

    @property
    def holds_integers(self) -> bool:
        """True if all its values are whole numbers, so small that doubles hold them exactly."""
        if self.kind is ColumnKind.DATES or (self.is_binned and self.unit is None):
            return False
        if self.unit is not None:
            return self.unit.denominator == 1 and max(map(abs, self.bounds)) <= _EXACT
        values = [value for value in self.categories if value is not None]
        return bool(values) and all(
            isinstance(value, (int, float))
            and not isinstance(value, bool)
            and float(value).is_integer()
            and abs(value) <= _EXACT
            for value in values
        )

    @property
    def bins(self) -> int:
        """The number of bins or categories, without the cells for other values and for NULL."""
        return max(0, len(self.edges) - 1) if self.is_binned else len(self.categories)

    @property
    def size(self) -> int:
        """The number of cells."""
        return self.bins + self.has_other + self.is_nullable

    @property
    def null_cell(self) -> int | None:
        """The index of the cell for NULL."""
        return self.size - 1 if self.is_nullable else None

    @property
    def other_cell(self) -> int | None:
        """The index of the cell for values that are no declared category."""
        return self.bins if self.has_other else None

    @property
    def bounds(self) -> Bounds:
        """The lowest and the highest value of a binned column."""
        return self.edges[0], self.edges[-1]

    @property
    def cuts(self) -> tuple[Fraction, ...]:
        """The ends of bins between the bounds."""
        return self.edges[1:-1]

    def with_cuts(self, cuts: Iterable[Any]) -> "Column":
        """The same column with other bins; forced cuts are kept. Cuts beyond the bounds are left out."""
        low, high = self.bounds
        inner = sorted({cut for cut in (*map(Fraction, cuts), *self.forced_cuts) if low < cut < high})
        return replace(self, edges=(low, *inner, high), finds_bins=False)

    def with_forced_cuts(self, cuts: Iterable[Any]) -> "Column":
        """The same column with cuts that all its bins will have.

        If one of them is the highest value, that gets a bin of its own, where values have a unit.
        """
        low, high = self.bounds
        forced = {*self.forced_cuts, *(cut for cut in map(Fraction, cuts) if low < cut <= high)}
        column = replace(self, forced_cuts=tuple(sorted(forced)))
        if not self.finds_bins and self.unit is not None and high in forced and not self.ends_after_last:
            column = replace(column, edges=(*self.edges, high + self.unit), ends_after_last=True)
        return replace(column.with_cuts(column.cuts), finds_bins=self.finds_bins)

    def decode(self, cell: int) -> "Key | Interval | _Other":
        """What a cell stands for: a category, an interval of values, `OTHER`, or None for NULL."""
        if cell == self.null_cell:
            return None
        if cell == self.other_cell:
            return OTHER
        if self.is_binned:
            return Interval(self.edges[cell], self.edges[cell + 1])
        return self.categories[cell]

    def label(self, cell: int) -> str:
        """A cell in words."""
        value = self.decode(cell)
        if value is None:
            return self._free_name("NULL")
        if isinstance(value, Interval) and self.kind is ColumnKind.DATES:
            low, high = (to_date(end) for end in (value.low, value.high))
            includes_end = cell == self.bins - 1 and not self.ends_after_last
            return f"{low} to {high}" if includes_end else f"{low} to before {high}"
        if isinstance(value, Interval) and self.unit is not None:
            low_end, last = value.low, value.high
            if cell < self.bins - 1 or self.ends_after_last:
                last -= self.unit
            return _show(low_end) if low_end == last else f"{_show(low_end)} to {_show(last)}"
        if value is OTHER:
            return self.other_name
        if isinstance(value, bool):
            return str(value).lower()
        return _show(value) if isinstance(value, (int, float)) else str(value)

    @property
    def other_name(self) -> str:
        """What the cell for other values is called: no category has this name."""
        return self._free_name("other")

    def _free_name(self, name: str) -> str:
        while name in self.categories:
            name = f"({name})"
        return name

    def encode(self, values: Sequence[Any] | NDArray[Any]) -> NDArray[np.int64]:
        """The cell of each value, by that value alone; −1 for values outside the domain.

        It is what engines compute in SQL, for rows in memory.
        """
        if self.is_binned:
            return self._encode_numbers(values)
        index: dict[Any, int] = {each: cell for cell, each in enumerate(self.categories)}
        other = -1 if self.other_cell is None else self.other_cell
        null = -1 if self.null_cell is None else self.null_cell

        def cell_of(value: Any) -> int:
            is_missing = value is None or (isinstance(value, float) and not math.isfinite(value))
            if is_missing:
                return null
            return index.get(value, other)

        listed = values.tolist() if isinstance(values, np.ndarray) else values
        return np.fromiter(map(cell_of, listed), np.int64, len(listed))

    def _encode_numbers(self, values: Sequence[Any] | NDArray[Any]) -> NDArray[np.int64]:
        if not isinstance(values, np.ndarray):
            values = np.array([math.nan if each is None else to_number(each) for each in values])
        numbers = values.astype(np.float64)
        edges = np.array([float(edge) for edge in self.edges])
        cells = np.clip(np.searchsorted(edges, numbers, side="right") - 1, 0, self.bins - 1)
        null = -1 if self.null_cell is None else self.null_cell
        return np.where(np.isfinite(numbers), cells, null).astype(np.int64)


def to_number(value: Any) -> float:
    """A number or a date as a number: dates as days since 1970-01-01."""
    return float((value - _EPOCH).days) if isinstance(value, date) else float(value)


def to_date(days: Fraction) -> date:
    """The date of a number of days since 1970-01-01."""
    return _EPOCH + timedelta(math.floor(days))


@dataclass(frozen=True)
class Condition:
    """Some values of one column: categories, or a range; and NULL, if `with_null`."""

    column: str
    categories: frozenset[Key] = frozenset()
    low: Fraction | None = None
    """The range begins here; None: at the lowest value."""
    high: Fraction | None = None
    """The range ends before this; None: after the highest value."""
    is_range: bool = False
    with_null: bool = False

    def cells(self, column: Column) -> NDArray[np.bool_]:
        """The cells of which every value satisfies the condition."""
        satisfied = np.zeros(column.size, dtype=bool)
        if column.null_cell is not None:
            satisfied[column.null_cell] = self.with_null
        if not column.is_binned:
            for cell, category in enumerate(column.categories):
                satisfied[cell] = category in self.categories
        elif self.is_range:
            low = column.edges[0] if self.low is None else self.low
            for cell in range(column.bins):
                begins = column.edges[cell] >= low
                end = column.edges[cell + 1]
                is_last_value = (
                    column.unit is not None and cell == column.bins - 1 and not column.ends_after_last
                )
                ends = self.high is None or (end < self.high if is_last_value else end <= self.high)
                satisfied[cell] = begins and ends
        return satisfied

    @property
    def cuts(self) -> tuple[Fraction, ...]:
        """The ends of its range."""
        return tuple(end for end in (self.low, self.high) if end is not None) if self.is_range else ()


@dataclass(frozen=True)
class Rule:
    """A public rule: no row satisfies all of these conditions at once. The cells are structural zeros."""

    impossible: tuple[Condition, ...]
    text: str = ""

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that it is about, each once."""
        return tuple(dict.fromkeys(condition.column for condition in self.impossible))


@dataclass(frozen=True)
class Function:
    """A public function of one column: target = f(source), as a table of cells."""

    target: str
    source: str
    table: tuple[int, ...]
    """For each cell of the source the cell of the target."""


@dataclass(frozen=True)
class Domain:
    """The columns of a table in order, and the public facts that connect them.

    >>> age = Column.of_numbers("age", (0, 90), cuts=(18, 65))
    >>> domain = Domain((Column.of_categories("sex", ["f", "m"]), age))
    >>> domain.shape(("age", "sex")), domain.cells(("age", "sex"))
    ((3, 2), 6)
    """

    columns: tuple[Column, ...]
    functions: tuple[Function, ...] = ()
    rules: tuple[Rule, ...] = ()
    focus: str | None = None
    """The column that people group by."""
    _index: Mapping[str, int] = field(init=False, repr=False, compare=False, default_factory=dict)

    def __post_init__(self) -> None:
        index = {column.name: place for place, column in enumerate(self.columns)}
        if len(index) < len(self.columns) or not index:
            raise InvalidInput(
                "the domain has no column, or two of one name",
                why="tables are named by their columns",
                fix="declare each column once",
            )
        object.__setattr__(self, "_index", index)
        names = [name for rule in self.rules for name in rule.columns]
        names += [name for each in self.functions for name in (each.target, each.source)]
        names += [] if self.focus is None else [self.focus]
        for name in names:
            self.column(name)
        for each in self.functions:
            source, target = self.column(each.source), self.column(each.target)
            if len(each.table) != source.size or not all(0 <= cell < target.size for cell in each.table):
                raise InvalidInput(
                    f"the function {each.target} of {each.source} is not one cell for each cell",
                    why="it gives every value of its source one value",
                    fix=f"give one category of {each.target} for each category of {each.source}",
                )
        # Many rules may be about the same columns.
        for columns in dict.fromkeys(self.ordered(rule.columns) for rule in self.rules):
            if not self.mask(columns).any():
                raise InvalidInput(
                    "a rule leaves no possible cell",
                    why="then the table could have no row",
                    fix="correct the declared rules",
                )

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all columns, in order."""
        return tuple(column.name for column in self.columns)

    def column(self, name: str) -> Column:
        """The column of this name."""
        if name not in self._index:
            raise InvalidInput(
                f"{name!r} is not a column of the domain",
                why="only declared columns have cells",
                fix=f"use one of: {', '.join(self.names)}",
            )
        return self.columns[self._index[name]]

    def find(self, name: str) -> Column:
        """The column of this name, in any case, as in SQL."""
        same = [each.name for each in self.columns if each.name.lower() == str(name).lower()]
        return self.column(same[0] if len(same) == 1 else name)

    def index(self, name: str) -> int:
        """The place of a column."""
        self.column(name)
        return self._index[name]

    def ordered(self, names: Iterable[str]) -> tuple[str, ...]:
        """The names in the order of the columns, each once."""
        return tuple(sorted(set(names), key=self.index))

    def shape(self, names: Iterable[str]) -> tuple[int, ...]:
        """The shape of the table of these columns, in the given order."""
        return tuple(self.column(name).size for name in names)

    def cells(self, names: Iterable[str]) -> int:
        """The number of cells of the table of these columns."""
        return math.prod(self.shape(names))

    def with_columns(self, *changed: Column) -> "Domain":
        """The same domain with other bins of some columns, named as before."""
        new = {column.name: column for column in changed}
        return replace(self, columns=tuple(new.get(column.name, column) for column in self.columns))

    def project(self, names: Iterable[str]) -> "Domain":
        """The domain of some of its columns, with the facts that are about these alone."""
        remaining = set(names)
        return Domain(
            tuple(column for column in self.columns if column.name in remaining),
            tuple(each for each in self.functions if {each.target, each.source} <= remaining),
            tuple(rule for rule in self.rules if set(rule.columns) <= remaining),
            self.focus if self.focus in remaining else None,
        )

    def mask(self, names: Sequence[str]) -> NDArray[np.bool_]:
        """True for the cells of a table that are possible under all rules and functions about its columns."""
        if self.cells(names) > MAX_MASK_CELLS or len(names) > _MAX_MASK_COLUMNS:
            raise InvalidInput(
                f"a rule or a function connects {len(names)} columns to a table of {self.cells(names)} cells",
                why=f"which of them are possible is computed for at most {MAX_MASK_CELLS}",
                fix="declare rules about fewer columns, or coarser categories",
            )
        possible = np.ones(self.shape(names), dtype=bool)
        for rule in self.rules:
            if set(rule.columns) <= set(names):
                possible &= ~self._outer(names, rule)
        for each in self.functions:
            if each.target in names and each.source in names:
                table = np.zeros((self.column(each.source).size, self.column(each.target).size), dtype=bool)
                table[np.arange(len(each.table)), list(each.table)] = True
                possible &= self._broadcast(names, (each.source, each.target), table)
        return possible

    def check_rules(self) -> None:
        """Refuse a rule that excludes nothing: it is a slip, and rows would break what was meant."""
        for rule in self.rules:
            if not self._outer(rule.columns, rule).any():
                raise InvalidInput(
                    f"the rule {rule.text!r} excludes no cell",
                    why="no declared values satisfy it, so rows could break what it is meant to say",
                    fix="compare columns with declared categories, numbers with values within their bounds; "
                    "declare a cell for NULL where it is about NULL",
                )

    def _outer(self, names: Sequence[str], rule: Rule) -> NDArray[np.bool_]:
        satisfied = np.ones((1,) * len(names), dtype=bool)
        for condition in rule.impossible:
            cells = condition.cells(self.column(condition.column))
            satisfied = satisfied & self._broadcast(names, (condition.column,), cells)
        return satisfied

    def _broadcast(
        self, names: Sequence[str], own: Sequence[str], table: NDArray[np.bool_]
    ) -> NDArray[np.bool_]:
        """A table of some of the columns, to be broadcast over all of them."""
        order = sorted(range(len(own)), key=lambda axis: names.index(own[axis]))
        moved = table.transpose(order)
        sizes = dict(zip((own[axis] for axis in order), moved.shape, strict=True))
        return moved.reshape(tuple(sizes.get(name, 1) for name in names))
