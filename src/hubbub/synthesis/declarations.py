"""From declared columns to a domain: categories, bounds, NULLs, functions and rules, all public.

What is not declared is refused here, before anything is charged.
"""

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from decimal import Decimal
from fractions import Fraction
from numbers import Real
from typing import Any, TypedDict

import sqlglot
from sqlglot import exp

from hubbub.config_values import check_mappings
from hubbub.engines.schema import (
    MAX_NUMBER,
    Key,
    Kind,
    Table,
    parse_bounds,
    parse_group_key,
    parse_group_keys,
)
from hubbub.engines.schema import Column as TableColumn
from hubbub.errors import InvalidInput
from hubbub.numbers import Number, parse_positive, parse_rational
from hubbub.synthesis.domain import (
    MAX_CELLS,
    Column,
    ColumnKind,
    Condition,
    Domain,
    Function,
    Rule,
    to_number,
)

__all__ = [
    "Declared",
    "SynopsisDeclarations",
    "find_columns",
    "make_domain",
    "parse_rule",
    "with_public_bins",
]

_MAX_SINGLE_VALUES = 128
"""A column of at most this many values has a cell for each, if nobody declares cuts."""
_PUBLIC_BINS = 32
_COMPARISONS: dict[type[exp.Expr], Callable[[Any, Any], bool]] = {
    exp.EQ: operator.eq,
    exp.NEQ: operator.ne,
    exp.LT: operator.lt,
    exp.LTE: operator.le,
    exp.GT: operator.gt,
    exp.GTE: operator.ge,
}
_MIRRORED: dict[type[exp.Expr], type[exp.Expr]] = {
    exp.EQ: exp.EQ,
    exp.NEQ: exp.NEQ,
    exp.LT: exp.GT,
    exp.LTE: exp.GTE,
    exp.GT: exp.LT,
    exp.GTE: exp.LTE,
}


class Declared(TypedDict, total=False):
    """What `plan_synopsis` and `plan_synthesis` both take: what is public about a table.

    What a hubbub.toml declares need not be passed; what is passed wins.
    """

    focus: str | None
    """The column that people will group by: synthetic rows follow its table with every other one."""
    columns: Sequence[str] | None
    """The columns to use; all but the unit's if omitted."""
    cuts: Mapping[str, Sequence[Any]] | None
    """Where bins begin, by column. Dates need cuts, from their first to their last day."""
    steps: Mapping[str, Number] | None
    """Columns with values that are multiples of a step: {"age": 1}."""
    nulls: Sequence[str] | None
    """Columns with a cell for NULL; elsewhere rows with NULL are left out."""
    other: Sequence[str] | None
    """Columns with a cell for all categories that are not declared; elsewhere such rows are left out."""
    functions: Mapping[str, Mapping[str, Any]] | None
    """Columns that are public functions of another one: {"cat": {"of": "code", "table": {"a1": "a"}}}."""
    impossible: Sequence[str] | None
    """Conditions that no row satisfies: ["age < 15 AND marital = 'married'"]. No synthetic row does."""
    bounds: Mapping[str, Any] | None
    """Public bounds of numbers: {"age": (0, 99)}."""
    keys: Mapping[str, Iterable[Any]] | None
    """Public categories of columns: {"sex": ["f", "m"]}."""
    private_keys: Sequence[str] | None
    """Columns with categories that are selected privately: at most 64 each, all others are one cell."""
    private_keys_share: Number | None
    """The share of ε and δ for that; a tenth if omitted."""
    rows_per_unit: int | None
    """The maximum number of rows per privacy unit that count."""
    table: str | None
    """The table; the first protected one if omitted."""
    allow_large_epsilon: bool
    """Confirms a large ε, as for `Budget`."""


@dataclass(frozen=True)
class SynopsisDeclarations:
    """What is declared for synopses besides the keys and bounds of columns."""

    columns: tuple[str, ...] | None = None
    """The columns of the domain; all but the unit's if None."""
    cuts: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    """The values at which bins of numbers and dates begin."""
    steps: Mapping[str, Any] = field(default_factory=dict)
    """Columns with values that are multiples of a step, such as 1 for years."""
    nulls: tuple[str, ...] = ()
    """Columns with a cell for NULL."""
    other: tuple[str, ...] = ()
    """Columns with a cell for all categories that are not declared."""
    functions: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """For a target column, its source column and the target's category for each of the source's."""
    impossible: tuple[str, ...] = ()
    """Conditions that no row satisfies, such as "age < 15 AND marital = 'married'"."""
    focus: str | None = None
    bounds: Mapping[str, Any] = field(default_factory=dict)
    """Bounds of columns, besides those of the table."""
    keys: Mapping[str, Any] = field(default_factory=dict)
    """Categories of columns, besides those of the table."""
    private_keys: tuple[str, ...] = ()
    """Columns with categories that are selected privately."""
    private_keys_share: Number = Fraction(1, 10)
    """The share of ε and δ for that."""

    @classmethod
    def of(cls, entries: Mapping[str, Any]) -> "SynopsisDeclarations":
        """Make them from entries by name, as in a hubbub.toml."""
        fields: dict[str, Any] = {}
        check_mappings(
            **{name: entries.get(name) for name in ("bounds", "keys", "cuts", "steps", "functions")}
        )
        for name, cuts in (entries.get("cuts") or {}).items():
            if isinstance(cuts, str) or not isinstance(cuts, Iterable):
                raise InvalidInput(
                    f"the cuts of {name} are not a list",
                    why="each says where a bin begins",
                    fix=f'pass cuts={{"{name}": [18, 65]}}',
                    parameter="cuts",
                )
        for name, value in entries.items():
            is_list = name in {"columns", "nulls", "other", "impossible", "private_keys"}
            if is_list and (isinstance(value, str) or not all(isinstance(each, str) for each in value)):
                raise InvalidInput(
                    f"{name} is not a list of texts",
                    why="it names columns, or conditions",
                    fix="write a list",
                )
            fields[name] = tuple(value) if is_list else value
        return cls(**fields)

    def implied_bounds(self) -> dict[str, Any]:
        """Bounds by which texts are read as numbers or dates: those of columns, or their outer cuts."""
        implied: dict[str, Any] = {}
        for name, cuts in self.cuts.items():
            ends = [_parse_date(cut) for cut in cuts]
            are_numbers = all(isinstance(end, (Real, Decimal)) for end in ends)
            are_dates = all(isinstance(end, date) and not isinstance(end, datetime) for end in ends)
            if len(ends) > 1 and (are_numbers or are_dates):
                implied[name] = (min(ends), max(ends))
        known = {name.lower() for name in (*self.bounds, *self.keys)}
        return {**{name: ends for name, ends in implied.items() if name.lower() not in known}, **self.bounds}


def make_domain(table: Table, declared: SynopsisDeclarations) -> Domain:
    """The domain of a table, from what is declared about it.

    Args:
        table: its columns, with declared keys and bounds.
        declared: what else is declared.
    """
    table = _with_declared(table, declared)
    for name in (
        *(declared.columns or ()), *declared.cuts, *declared.steps, *declared.nulls, *declared.other,
        *declared.functions, *([declared.focus] if declared.focus else []),
    ):  # fmt: skip
        table.find(name)
    listed = [table.find(name).name for name in declared.columns or ()]
    chosen = [each for each in table.columns if (each.name in listed if listed else not each.is_unit)]
    ranges = {table.find(name).name for name in (*declared.bounds, *declared.cuts)}
    for each in chosen:
        if each.name in ranges and each.kind not in {Kind.NUMBER, Kind.DATE}:
            raise InvalidInput(
                f"bounds or cuts are declared for {each.name}, which is of type {each.kind.value}",
                why="only numbers and dates have bins",
                fix=f"declare {{types={each.name}=number}} or date; columns of CSV files are texts",
            )
    missing = [each.name for each in chosen if not _is_declared(each, table, declared)]
    units = [each.name for each in chosen if each.is_unit]
    if missing or units or not chosen:
        raise InvalidInput(
            f"the values of {', '.join(missing or units or ['the columns'])} are not declared"
            if not units
            else f"{units[0]} identifies the privacy unit, and cannot be a column of a synopsis",
            why="cells that are read from the rows would disclose them; nothing was charged",
            fix="declare {keys=name=a,b,c} for categories, {bounds=name=0:100} for numbers, cuts for dates; "
            "or name the columns to use, by {columns}",
            parameter="columns",
        )
    columns = tuple(_make_column(each, table, declared) for each in chosen)
    plain = Domain(columns)
    rules = tuple(parse_rule(text, plain) for text in declared.impossible)
    forced: dict[str, list[Fraction]] = {name: [] for name in plain.names}
    for rule in rules:
        for condition in rule.impossible:
            forced[condition.column] += condition.cuts
    columns = tuple(
        column.with_forced_cuts(forced[column.name]) if column.is_binned else column for column in columns
    )
    functions = tuple(_make_function(name, each, plain, table) for name, each in declared.functions.items())
    focus = None if declared.focus is None else table.find(declared.focus).name
    return Domain(columns, functions, rules, focus)


def _with_declared(table: Table, declared: SynopsisDeclarations) -> Table:
    """The table with bounds and keys that were declared besides its own."""
    columns = {column.name: column for column in table.columns}
    for name, ends in declared.bounds.items():
        column = columns[table.find(name).name]
        columns[column.name] = replace(column, bounds=parse_bounds(ends, name))
    for name, values in declared.keys.items():
        column = columns[table.find(name).name]
        # Of categories that are selected there may be none; the cell for others then has all rows.
        is_empty = name in declared.private_keys and not values
        keys = () if is_empty else parse_group_keys(values, name, column.kind)
        columns[column.name] = replace(column, keys=keys, is_complete=False)
    return replace(table, columns=tuple(columns.values()))


def with_public_bins(domain: Domain) -> Domain:
    """The domain with public bins where cuts are not declared: single values, or 32 bins of equal width."""
    changed = []
    for column in domain.columns:
        if not column.finds_bins:
            continue
        low, high = column.bounds
        width = (high - low) / _PUBLIC_BINS
        if column.unit is not None:
            values = (high - low) / column.unit + 1
            if values <= _MAX_SINGLE_VALUES:
                # The last bin holds the highest value alone.
                edges = tuple(low + column.unit * n for n in range(int(values) + 1))
                changed.append(replace(column, edges=edges, finds_bins=False, ends_after_last=True))
                continue
            width = max(Fraction(1), Fraction(round(width / column.unit))) * column.unit
        binned = column.with_cuts(low + width * n for n in range(1, int((high - low) / width) + 1))
        changed.append(binned.with_forced_cuts(()))
    return domain.with_columns(*changed)


def _is_declared(column: TableColumn, table: Table, declared: SynopsisDeclarations) -> bool:
    has_cuts = any(table.find(name).name == column.name for name in declared.cuts)
    if column.kind in {Kind.NUMBER, Kind.DATE} and (column.bounds is not None or has_cuts):
        return True
    return column.keys is not None and column.kind is not Kind.OPAQUE


def _make_column(column: TableColumn, table: Table, declared: SynopsisDeclarations) -> Column:
    name = column.name

    def has(names: Iterable[str]) -> bool:
        return any(table.find(each).name == name for each in names)

    def find(values: Mapping[str, Any]) -> Any:
        return next((value for key, value in values.items() if table.find(key).name == name), None)

    is_nullable, cuts, step = has(declared.nulls), find(declared.cuts), find(declared.steps)
    if column.keys is not None and column.bounds is None:
        if cuts is not None or step is not None:
            raise InvalidInput(
                f"cuts or a step are declared for {name}, which has categories",
                why="only bins of numbers and dates have them",
                fix=f"declare bounds for {name} instead of keys, or leave them out",
            )
        if len(column.keys) > MAX_CELLS:
            raise InvalidInput(
                f"{name} has more than {MAX_CELLS} keys",
                why="each is one cell of every table",
                fix="declare fewer keys, with a cell for other values",
            )
        # Booleans have NULL among their keys by their type alone: a cell for it must be declared.
        keys = [key for key in column.keys if key is not None] if column.is_complete else column.keys
        return Column.of_categories(name, keys, is_nullable=is_nullable, has_other=has(declared.other))
    if has(declared.other):
        raise InvalidInput(
            f"{name} has bins, and a cell for other values is declared for it",
            why="values beyond the bounds are counted in the outer bins",
            fix="leave it out",
        )
    is_date = column.kind is Kind.DATE
    made_step = parse_positive(step, f"step of {name}") if step is not None else None
    ends = None if cuts is None else [_parse_end(cut, name, is_date=is_date) for cut in cuts]
    bounds = column.bounds
    if bounds is None:  # the outer cuts are its bounds
        if ends is None or len(ends) < 2:
            raise InvalidInput(
                f"{name} has no bounds, and fewer than two cuts",
                why="its first and its last cut are its bounds",
                fix="name where its first bin begins, and where its last one ends",
            )
        bounds = min(ends), max(ends)
    if not is_date and max(map(abs, bounds)) > MAX_NUMBER:
        raise InvalidInput(
            f"the bounds of {name} are beyond ±2^200",
            why="larger numbers of a table are read as ±2^200, so they would be counted in a wrong bin",
            fix="declare bounds up to 2^200, about 1.6e60: numbers beyond them are counted in the outer bins",
            parameter="bounds",
        )
    return Column.of_numbers(
        name,
        bounds,
        cuts=ends,
        unit=Fraction(1) if is_date and made_step is None else made_step,
        is_nullable=is_nullable,
        kind=ColumnKind.DATES if is_date else ColumnKind.NUMBERS,
    )


def _parse_date(value: Any) -> Any:
    """A text such as 2026-11-15 as a date; anything else as it is."""
    try:
        return date.fromisoformat(value) if isinstance(value, str) else value
    except ValueError:
        return value


def _parse_end(value: Any, name: str, *, is_date: bool) -> Fraction:
    if is_date:
        value = _parse_date(value)
        if isinstance(value, str):
            raise InvalidInput(
                f"a cut of {name} is not a date", why="its bins are of dates", fix="write 2026-11-15"
            )
    if isinstance(value, date):
        return Fraction(to_number(value))
    return parse_rational(value, f"a cut of {name}")


def _make_function(target: str, declared: Mapping[str, Any], domain: Domain, table: Table) -> Function:
    is_mapping = isinstance(declared, Mapping) and declared.get("of") is not None
    names = (table.find(target).name, table.find(str(declared["of"])).name if is_mapping else target)
    value_table = declared.get("table") if is_mapping else None
    if not isinstance(value_table, Mapping) or any(domain.column(name).is_binned for name in names):
        raise InvalidInput(
            f"the function for {target} is not a table from categories to categories",
            why="it is public: all its values are declared",
            fix=f'pass {{"{target}": {{"of": "code", "table": {{"a1": "a"}}}}}}',
        )
    goal, source = (domain.column(name) for name in names)
    kinds = {name: table.find(name).kind for name in names}
    values = {
        _parse_category(key, source, kinds[source.name]): _parse_category(value, goal, kinds[goal.name])
        for key, value in value_table.items()
    }
    cells = []
    for cell in range(source.size):
        label = source.decode(cell)
        target_cell = _cell_of(goal, values[label]) if label in values else None  # type: ignore[index]
        if label is None and None not in values:
            target_cell = goal.null_cell
        if cell == source.other_cell:
            target_cell = goal.other_cell
        if target_cell is None:
            raise InvalidInput(
                f"the function for {target} has no value for a category of {source.name}",
                why="rows with that category would have no category of the target",
                fix="complete the table",
            )
        cells.append(target_cell)
    return Function(goal.name, source.name, tuple(cells))


def _cell_of(column: Column, value: Any) -> int | None:
    if value is None:
        return column.null_cell
    return column.categories.index(value) if value in column.categories else None


def _parse_category(value: Any, column: Column, kind: Kind) -> Key:
    # Keys of TOML tables are texts.
    if kind is Kind.NUMBER and isinstance(value, str):
        value = float(parse_rational(value, f"a category of {column.name}"))
    return parse_group_key(value, column.name, kind)


# Rules


def parse_rule(text: str, domain: Domain) -> Rule:
    """A rule from a condition that no row satisfies: comparisons with constants, joined by AND.

    >>> domain = Domain((Column.of_numbers("age", (0, 100), unit=1), Column.of_categories("sex", ["f", "m"])))
    >>> [condition.column for condition in parse_rule("age < 15 AND sex = 'm'", domain).impossible]
    ['age', 'sex']
    """
    tree = _parse_tree(text)
    parts = list(tree.flatten()) if isinstance(tree, exp.And) else [tree]
    conditions: dict[str, Condition] = {}
    for part in parts:
        condition = _parse_condition(part, domain, text)
        known = conditions.get(condition.column)
        conditions[condition.column] = condition if known is None else _both(known, condition)
    return Rule(tuple(conditions.values()), text)


def find_columns(text: str) -> set[str]:
    """The names of the columns of a rule, as they are, however they are quoted there."""
    return {node.name for node in _parse_tree(text).find_all(exp.Column)}


def _parse_tree(text: str) -> exp.Expr:
    try:
        return sqlglot.parse_one(text, read="duckdb")
    except (sqlglot.errors.SqlglotError, AttributeError, TypeError):
        raise _bad_rule(text) from None


def _both(one: Condition, two: Condition) -> Condition:
    lows = [each for each in (one.low, two.low) if each is not None]
    highs = [each for each in (one.high, two.high) if each is not None]
    return replace(
        one,
        categories=one.categories & two.categories,
        low=max(lows, default=None),
        high=min(highs, default=None),
        is_range=one.is_range and two.is_range,
        with_null=one.with_null and two.with_null,
    )


def _parse_condition(node: exp.Expr, domain: Domain, text: str) -> Condition:
    node = node.unnest()
    if isinstance(node, exp.Is) or (isinstance(node, exp.Not) and isinstance(node.this, exp.Is)):
        inner = node if isinstance(node, exp.Is) else node.this
        if not isinstance(inner.expression, exp.Null):
            raise _bad_rule(text)
        column = _find_column(inner.this, domain, text)
        if isinstance(node, exp.Is):
            return Condition(column.name, with_null=True)
        return Condition(column.name, frozenset(column.categories), is_range=column.is_binned)
    if isinstance(node, exp.Between):
        low = _compare(node.this, exp.GTE, node.args["low"], domain, text)
        return _both(low, _compare(node.this, exp.LTE, node.args["high"], domain, text))
    if isinstance(node, exp.In) and node.expressions:
        column = _find_column(node.this, domain, text)
        if column.is_binned:
            raise _bad_rule(text)
        values = [_constant(each, text) for each in node.expressions]
        _check_categories(column, values, text)
        return Condition(column.name, frozenset(values))
    if type(node) in _COMPARISONS:
        left, right = node.this, node.expression
        if isinstance(left, exp.Column):
            return _compare(left, type(node), right, domain, text)
        return _compare(right, _MIRRORED[type(node)], left, domain, text)
    raise _bad_rule(text)


def _compare(left: exp.Expr, kind: type[exp.Expr], right: exp.Expr, domain: Domain, text: str) -> Condition:
    column, value = _find_column(left, domain, text), _constant(right, text)
    if not column.is_binned:
        compare = _COMPARISONS[kind]
        if kind in {exp.EQ, exp.NEQ}:
            _check_categories(column, [value], text)
        try:
            return Condition(
                column.name, frozenset(each for each in column.categories if compare(each, value))
            )
        except TypeError:
            raise _bad_rule(text) from None
    end = _parse_end(value, column.name, is_date=column.kind is ColumnKind.DATES)
    step = column.unit
    if kind in {exp.LTE, exp.GT, exp.EQ} and step is None:
        raise InvalidInput(
            "a rule compares a column without a step by <=, > or =",
            why="bins begin at a value and end before one",
            fix="write it with < and >=, or declare the step of the column",
        )
    if step is None and end == column.bounds[1]:
        raise InvalidInput(
            f"a rule compares {column.name} with its upper bound",
            why="values at and beyond it are in one bin with lower ones",
            fix="declare a higher bound, or the step of the column",
        )
    after = end
    if step is not None:  # from a value that the column does not have, to the next one that it has
        if kind is exp.EQ and end % step:
            raise _bad_rule(text)
        end, after = -(-end // step) * step, (end // step + 1) * step
    ranges: dict[type[exp.Expr], tuple[Fraction | None, Fraction | None]] = {
        exp.LT: (None, end),
        exp.LTE: (None, after),
        exp.GTE: (end, None),
        exp.GT: (after, None),
        exp.EQ: (end, after),
    }
    if kind not in ranges:
        raise _bad_rule(text)
    return Condition(column.name, low=ranges[kind][0], high=ranges[kind][1], is_range=True)


def _check_categories(column: Column, values: Iterable[Any], text: str) -> None:
    for value in values:
        if value not in column.categories:
            raise InvalidInput(
                f"the rule {text!r} names a category of {column.name} that is not declared",
                why="it would say nothing, and rows could break what it is meant to say",
                fix="name declared categories; a cell for other values is not divided",
            )


def _find_column(node: exp.Expr, domain: Domain, text: str) -> Column:
    if not isinstance(node, exp.Column):
        raise _bad_rule(text)
    name = next((each for each in domain.names if each.lower() == node.name.lower()), node.name)
    return domain.column(name)


def _constant(node: exp.Expr, text: str) -> Any:
    if isinstance(node, exp.Neg):
        return -_constant(node.this, text)
    if isinstance(node, exp.Boolean):
        return bool(node.this)
    if isinstance(node, exp.Cast):
        return _constant(node.this, text)
    if not isinstance(node, exp.Literal):
        raise _bad_rule(text)
    if node.is_string:
        return node.this
    # Beyond doubles it is infinite, and refused as what it is compared with says.
    return float(node.this)


def _bad_rule(text: str) -> InvalidInput:
    return InvalidInput(
        f"the rule {text!r} is not made of comparisons with constants, joined by AND",
        why="it says which cells are impossible",
        fix="write for example: age < 15 AND marital = 'married'",
    )
