"""Typed expressions over one row: kind, bounds, keys and literal value, known before any row is read.

Also the forms that keep them total: dates within the calendar, unsigned zeros, copies of limited size.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from fractions import Fraction
from itertools import islice

from sqlglot import exp

from hubbub.engines.schema import TABLE_MAGNITUDE, Bounds, Column, Key, Kind, Magnitude
from hubbub.engines.total_functions import SQL_TYPES, datetime_literal, number_literal
from hubbub.errors import HubbubError, InvalidInput, Unsupported

__all__ = [
    "MAX_TEXT_LENGTH",
    "SUBQUERY_REASON",
    "Scope",
    "TypedExpression",
    "as_kind",
    "check_arguments",
    "copy_expression",
    "count_nodes",
    "describe_construct",
    "make_condition",
    "not_a_relation",
    "null_key",
    "number_constant",
    "parenthesize",
    "parse_datetime",
    "refuse_ambiguous_names",
    "text_too_long",
    "unify_kinds",
    "union_of",
    "unknown_type_compared",
    "unknown_type_in_union",
    "unsupported_here",
]

MAX_TEXT_LENGTH = 1 << 16
_DECLARED = {Kind.NUMBER, Kind.BOOLEAN, Kind.DATE, Kind.TIMESTAMP}
"""Kinds of which texts may be."""

_COUNT_MARK = "hubbub nodes"
"""The name under which a syntax tree stores the number of its nodes."""
_MAX_TWICE = 2000
"""Parts of an expression that is to be written out more than once."""


@dataclass(frozen=True)
class TypedExpression:
    """An expression over one row, with its kind and the public facts about its values."""

    sql: exp.Expr
    kind: Kind
    bounds: Bounds | None = None
    keys: Sequence[Key] | None = None
    half: tuple[Fraction | None, Fraction | None] = (None, None)
    """Where only one end is known, as of LEAST(x, 10)."""
    column: Column | None = None
    """The column it is, where it is nothing but one."""
    table: str = ""
    """The name of that column's table."""
    value: Key | Fraction = None
    """The value of a literal."""
    is_literal: bool = False
    size: Magnitude = TABLE_MAGNITUDE
    """Of a number: how small and how large it can be, in powers of two."""
    is_complete: bool = False
    """True if it has no values but its keys, NULL among them if it can be; False for declared keys."""


@dataclass(frozen=True)
class Scope:
    """The columns that can be named, by the name of their table."""

    sources: Mapping[str, tuple[Column, ...]]
    merged: Mapping[str, TypedExpression] = field(default_factory=dict)
    """Columns that a join with USING has made one of two, by their names in lower case."""
    resolve: Callable[[exp.Expr], TypedExpression | None] | None = field(
        default=None, compare=False, repr=False
    )
    """What a part of an expression stands for, where it is more than an expression of one row."""
    on_compiled: Callable[[exp.Expr, TypedExpression | None], None] | None = field(
        default=None, compare=False, repr=False
    )
    """Called with each part of an expression once it is compiled, or with None if it cannot be."""

    def has(self, name: str) -> bool:
        """True if some table has a column of this name."""
        columns = (column for source in self.sources.values() for column in source)
        return any(column.name.lower() == name.lower() for column in columns)

    def find(self, name: str, table: str | None, *, is_quoted: bool = False) -> TypedExpression:
        """The column of this name, in this table or in the only one that has it.

        A name in double quotes may be meant as a text.
        """
        if table is not None and table.lower() not in {alias.lower() for alias in self.sources}:
            raise InvalidInput(
                f"there is no table {table!r} here", why="it is not in the FROM", fix="name it in the FROM"
            )
        if table is None and name.lower() in self.merged:
            return self.merged[name.lower()]
        candidates = [
            (alias, column)
            for alias, columns in self.sources.items()
            if table is None or alias.lower() == table.lower()
            for column in columns
            if column.name.lower() == name.lower()
        ]
        if len(candidates) == 1:
            alias, column = candidates[0]
            sql = exp.column(
                exp.to_identifier(column.name, quoted=True), exp.to_identifier(alias, quoted=True)
            )
            return TypedExpression(
                sql,
                column.kind,
                column.bounds if column.kind is Kind.NUMBER else None,
                column.keys,
                column=column,
                table=alias,
                size=column.size,
                is_complete=column.is_complete,
            )
        there = sorted({column.name for columns in self.sources.values() for column in columns})
        if candidates:
            raise InvalidInput(
                f"the column {name!r} is in two tables",
                why="it is not clear which is meant",
                fix="write the table before it",
            )
        if any(column.is_of_json for columns in self.sources.values() for column in columns):
            raise InvalidInput(
                f"no column {name!r} is declared",
                why="JSON has no header, and what columns there are is never learned from rows",
                fix=f"declare it with its type, as {{types={name}=text}} or number, boolean or date; "
                f"declared are: {', '.join(there)}",
            )
        raise InvalidInput(
            f"there is no column {name!r}",
            why="only declared columns can be asked about",
            fix=f"use one of: {', '.join(there)}"
            + ("; a text is in single quotes, as 'North'" if is_quoted and table is None else ""),
        )


def unsupported_here(node: exp.Expr) -> HubbubError:
    """The error for a construct that is not on the list."""
    from hubbub.sql.function_list import find_nearest

    name, nearest = describe_construct(node), find_nearest(node)
    listed = "`hubbub functions` and docs/functions.md list what is accepted"
    why, fix = _REASONS.get(
        type(node),
        (
            "it is not on the list of functions known to be safe on every row",
            f"use {nearest}; {listed}" if nearest is not None else f"use another; {listed}",
        ),
    )
    return Unsupported(f"{name} is not supported here", why=why, fix=fix)


_SQL_NAMES = {
    "BITWISE_AND_AGG": "BIT_AND",
    "BITWISE_OR_AGG": "BIT_OR",
    "BITWISE_XOR_AGG": "BIT_XOR",
    "GROUP_CONCAT": "STRING_AGG",
    "LOGICAL_AND": "BOOL_AND",
    "LOGICAL_OR": "BOOL_OR",
    "REGEXP_LIKE": "REGEXP_MATCHES",
    "STR_TO_TIME": "STRPTIME",
    "TIME_TO_STR": "STRFTIME",
}
"""Functions that the parser calls by other names than SQL."""


def describe_construct(node: exp.Expr) -> str:
    """The name of a construct, without its arguments."""
    if isinstance(node, exp.Anonymous):
        return f"the function {str(node.this)[:40]}"
    if isinstance(node, exp.Func):
        return f"the function {_SQL_NAMES.get(node.sql_name(), node.sql_name())}"
    return f"the construct {node.key.upper()}"


_WINDOW = (
    "a window reaches over the rows of other units, so adding one person changes others' rows",
    "aggregate by the unit in a sub-query, or rank the released table with ORDER BY and LIMIT",
)


SUBQUERY_REASON = (
    "which rows are kept would depend on other units' rows",
    "write an inner join with a public table, or on the unit's key",
)


_REASONS: dict[type[exp.Expr], tuple[str, str]] = {
    exp.Window: _WINDOW,
    exp.Subquery: SUBQUERY_REASON,
    exp.Select: SUBQUERY_REASON,
    exp.Exists: SUBQUERY_REASON,
    exp.Star: ("* is only understood in COUNT(*) and in sub-queries", "name the columns"),
    exp.Placeholder: ("there is nothing to fill it with", "write the value itself"),
    exp.Parameter: ("there is nothing to fill it with", "write the value itself"),
}


def number_constant(number: float) -> TypedExpression:
    """A literal number."""
    if not math.isfinite(number):
        raise InvalidInput(
            "a number is too large", why="it is not a finite double", fix="write a smaller one"
        )
    exact = Fraction(number)
    power = math.frexp(number)[1]
    return TypedExpression(
        number_literal(number),
        Kind.NUMBER,
        (exact, exact),
        (number + 0.0,),
        is_complete=True,
        value=exact,
        is_literal=True,
        size=(power - 1, power),
    )


def text_too_long() -> InvalidInput:
    """The error for a text that no engine accepts."""
    return InvalidInput(
        "a text is longer than 65,536 characters, or holds a zero character",
        why="no engine accepts it",
        fix="write a shorter one",
    )


def as_kind(typed: TypedExpression, kind: Kind, what: str) -> TypedExpression:
    """Convert to this kind where that is safe: a literal date, NULL, a boolean as 0 or 1; or refuse."""
    if typed.kind is kind:
        return typed
    if typed.is_literal and typed.value is None:
        missing = exp.Cast(this=exp.Null(), to=exp.DataType.build(SQL_TYPES[kind]))
        return replace(typed, sql=missing, kind=kind, size=(0, 0))
    if kind is Kind.NUMBER and typed.kind is Kind.BOOLEAN:
        one, zero = number_literal(1), number_literal(0)
        negated = exp.Not(this=exp.Paren(this=copy_expression(typed.sql)))
        sql = exp.Case(ifs=[exp.If(this=typed.sql, true=one), exp.If(this=negated, true=zero)])
        keys = (0.0, 1.0, *null_key(typed))
        return TypedExpression(
            sql, Kind.NUMBER, (Fraction(0), Fraction(1)), keys, is_complete=True, size=(0, 0)
        )
    if typed.is_literal and isinstance(typed.value, str) and kind in {Kind.DATE, Kind.TIMESTAMP}:
        return parse_datetime(typed.value, kind)
    if kind is Kind.TIMESTAMP and typed.kind is Kind.DATE:
        return TypedExpression(exp.Cast(this=typed.sql, to=exp.DataType.build("TIMESTAMP")), kind)
    raise InvalidInput(
        f"{what} is a {typed.kind.value} where a {kind.value} is needed",
        why="types are never guessed from the rows",
        fix=f"declare the column as {kind.value}, or write CAST(… AS {SQL_TYPES[kind]})",
    )


def parse_datetime(text: str, kind: Kind) -> TypedExpression:
    """Parse a literal date or timestamp."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        moment = None
    if (
        moment is None
        or moment.tzinfo is not None
        or (kind is Kind.DATE and moment.time() != moment.min.time())
    ):
        raise InvalidInput(
            f"a text is not a {kind.value}", why="it is compared with one", fix="write it as '2024-12-31'"
        )
    value: Key = moment.date() if kind is Kind.DATE else moment
    return TypedExpression(
        datetime_literal(value), kind, keys=(value,), is_complete=True, value=value, is_literal=True
    )


def copy_expression(sql: exp.Expr) -> exp.Expr:
    """Copy an expression that is used more than once; nested copies grow exponentially: size is limited."""
    if sum(1 for _ in islice(sql.walk(), _MAX_TWICE)) == _MAX_TWICE:
        raise Unsupported(
            "an expression is too long",
            why="some functions take their argument twice, so that no row can make them fail",
            fix="write a shorter one, or nest fewer functions",
        )
    return sql.copy()


def parenthesize(sql: exp.Expr) -> exp.Expr:
    """Add parentheses if the operand needs them."""
    return exp.Paren(this=sql) if isinstance(sql, (exp.Binary, exp.Neg)) else sql


def unify_kinds(left: TypedExpression, right: TypedExpression) -> tuple[TypedExpression, TypedExpression]:
    """Convert both to one kind, or refuse."""
    for text, other in ((left, right), (right, left)):
        if text.column is not None and text.kind is Kind.TEXT and other.kind in _DECLARED:
            name, kind = text.column.name, other.kind
            raise InvalidInput(
                f"{name} is a text here, and is combined with a {kind.value}",
                why="types are never guessed from the rows",
                fix=f"declare {name} as {kind.value}, or write CAST({name} AS {SQL_TYPES[kind]})",
            )
    if left.kind is right.kind:
        if left.kind is Kind.OPAQUE and not (left.is_literal or right.is_literal):
            raise unknown_type_compared()
        if left.kind is Kind.OPAQUE and left.is_literal and right.is_literal:  # NULL and NULL
            return as_kind(left, Kind.TEXT, "NULL"), as_kind(right, Kind.TEXT, "NULL")
        return left, right
    for kind in (Kind.TIMESTAMP, Kind.DATE):
        if kind in {left.kind, right.kind}:
            return as_kind(left, kind, "one side"), as_kind(right, kind, "one side")
    if left.is_literal and not (right.is_literal and right.value is None):
        return as_kind(left, right.kind, "the literal"), right
    return left, as_kind(right, left.kind, "one side")


def unknown_type_compared() -> InvalidInput:
    """The error for a comparison with a column of unknown type."""
    return InvalidInput(
        "a column of an unknown type is compared",
        why="its meaning differs between engines",
        fix="declare it in {types}, as text, number, boolean, date or timestamp",
    )


def union_of(sql: exp.Expr, kind: Kind, parts: list[TypedExpression]) -> TypedExpression:
    """A typed expression for a value that is one of these, with the union of their bounds and keys."""
    values = [part for part in parts if not (part.is_literal and part.value is None)]
    bounds = None
    if values and all(part.bounds for part in values):
        lows, highs = zip(*(part.bounds for part in values if part.bounds), strict=True)
        bounds = (min(lows), max(highs))
    keys: tuple[Key, ...] | None = None
    if values and all(part.keys for part in values):
        known = dict.fromkeys(key for part in values for key in part.keys or ())
        nothing = (None,) if None in known or len(values) < len(parts) else ()
        keys = (*(key for key in known if key is not None), *nothing)
    size = min(part.size[0] for part in parts), max(part.size[1] for part in parts)
    is_complete = keys is not None and all(part.is_complete for part in values)
    return TypedExpression(sql, kind, bounds, keys, size=size, is_complete=is_complete)


def null_key(*parts: TypedExpression) -> tuple[None, ...]:
    """NULL as a key, if one of these may be NULL."""
    is_there = all(part.is_complete and part.keys is not None and None not in part.keys for part in parts)
    return () if is_there else (None,)


def make_condition(sql: exp.Expr, *parts: TypedExpression) -> TypedExpression:
    """A condition, which is unknown if one of its parts is NULL."""
    return TypedExpression(sql, Kind.BOOLEAN, keys=(False, True, *null_key(*parts)), is_complete=True)


def check_arguments(node: exp.Expr, *names: str) -> None:
    """Refuse a call with arguments that would be ignored."""
    for name, argument in node.args.items():
        if argument and name not in names and name not in {"is_left", "typed", "safe"}:
            raise Unsupported(
                f"{describe_construct(node)} has an argument or clause that is not supported here ({name})",
                why="ignoring it would change the query",
                fix="write it without",
            )


def count_nodes(sql: exp.Expr) -> int:
    """The number of its nodes; it is noted at its root, so that a part is not counted at each level again."""

    def noted(node: exp.Expr) -> int | None:
        return None if node is sql or not node._meta else node._meta.get(_COUNT_MARK)  # noqa: SLF001 - `meta` would make one

    count = sum(noted(node) or 1 for node in sql.walk(prune=lambda node: noted(node) is not None))
    sql.meta[_COUNT_MARK] = count
    return count


def unknown_type_in_union() -> InvalidInput:
    """The error for a column of an unknown type in a UNION ALL."""
    return InvalidInput(
        "a column of an unknown type is in a UNION ALL",
        why="converting two types to one could fail on some row",
        fix="declare it in {types}, or leave it out",
    )


def not_a_relation(node: exp.Expr) -> Unsupported:
    """The error for a FROM that names neither a table nor a sub-query."""
    return Unsupported(
        f"{describe_construct(node)} in a FROM is not supported",
        why="only tables of this dataset and sub-queries of them are known; files and functions are not",
        fix="name a table of this dataset",
    )


def refuse_ambiguous_names(
    having: exp.Expr, aliases: Mapping[str, exp.Expr], scope: Scope, key_of: Callable[[exp.Expr], int | None]
) -> None:
    """Refuse a name in HAVING that may be a column's or an output's."""
    for column in having.find_all(exp.Column):
        is_both = column.name.lower() in aliases and scope.has(column.name)
        is_inside = column.find_ancestor(exp.AggFunc, exp.Filter, exp.Subquery) is not None
        if is_both and not column.table and not is_inside and key_of(column) is None:
            raise InvalidInput(
                f"{column.name[:60]!r} is a column that is not grouped by, and the name of an output",
                why="engines disagree on which of them HAVING means",
                fix="give the output another name",
            )
