"""Row-level expressions: an allow-list, each rebuilt in a form that no row can make fail.

What a person wrote is never passed on. Every node of it is looked up in a list, its parts are built
first, and a new node is made of them; whatever is not in the list is refused by name. All numbers are
doubles, whose arithmetic gives NaN or infinity and no error; casts give NULL where they cannot be done.
So an expression is a function of its one row, total, and free of side effects.

Proof: docs/proofs/bounding.md, "Rows"
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import date, datetime
from fractions import Fraction
from itertools import islice

from sqlglot import exp

from hubbub.errors import HubbubError, InvalidInput, Unsupported
from hubbub.tables.schema import Bounds, Column, Key, Kind

__all__ = [
    "Scope",
    "Typed",
    "as_kind",
    "compiled",
    "name_of",
    "number_literal",
    "refused",
    "text_literal",
    "without_signs",
]

DOUBLE = exp.DataType.build("DOUBLE")
_MONTHS, _QUARTERS, _HOURS, _DAYS, _WEEKDAYS = range(1, 13), range(1, 5), range(24), range(1, 32), range(7)
_PARTS: dict[str, range | None] = {
    "year": None,
    "quarter": _QUARTERS,
    "month": _MONTHS,
    "week": range(1, 54),
    "day": _DAYS,
    "dow": _WEEKDAYS,
    "dayofweek": _WEEKDAYS,
    "isodow": range(1, 8),
    "doy": range(1, 367),
    "hour": _HOURS,
    "minute": range(60),
}
_TRUNCATED = ("year", "quarter", "month", "week", "day", "hour", "minute")
_MOST_TEXT = 1 << 16
_MOST_TWICE = 2000
"""Parts of an expression that is to be written out more than once."""


@dataclass(frozen=True)
class Typed:
    """An expression over one row, with its kind and what is known of its values beforehand."""

    sql: exp.Expr
    kind: Kind
    bounds: Bounds | None = None
    keys: tuple[Key, ...] | None = None
    half: tuple[Fraction | None, Fraction | None] = (None, None)
    """Where only one end is known, as of LEAST(x, 10)."""
    column: Column | None = None
    """The column it is, where it is nothing but one."""
    table: str = ""
    """The name of that column's table."""
    value: Key | Fraction = None
    """What it is, where it is a literal."""
    is_literal: bool = False


@dataclass(frozen=True)
class Scope:
    """The columns that can be named, by the name of their table."""

    sources: Mapping[str, tuple[Column, ...]]

    def find(self, name: str, table: str | None) -> Typed:
        """The column of this name, in this table or in the only one that has it."""
        if table is not None and table.lower() not in {alias.lower() for alias in self.sources}:
            raise InvalidInput(
                f"there is no table {table!r} here", why="it is not in the FROM", fix="name it in the FROM"
            )
        found = [
            (alias, column)
            for alias, columns in self.sources.items()
            if table is None or alias.lower() == table.lower()
            for column in columns
            if column.name.lower() == name.lower()
        ]
        if len(found) == 1:
            alias, column = found[0]
            sql = exp.column(
                exp.to_identifier(column.name, quoted=True), exp.to_identifier(alias, quoted=True)
            )
            return Typed(sql, column.kind, column.bounds, column.keys, column=column, table=alias)
        there = sorted({column.name for columns in self.sources.values() for column in columns})
        if found:
            raise InvalidInput(
                f"the column {name!r} is in two tables",
                why="it is not clear which is meant",
                fix="write the table before it",
            )
        raise InvalidInput(
            f"there is no column {name!r}",
            why="only declared columns can be asked about",
            fix=f"use one of: {', '.join(there)}",
        )


def compiled(node: exp.Expr | None, scope: Scope) -> Typed:
    """The expression in its total form.

    Guarantee: for any row of any values it gives one value or NULL, never an error, and depends on
        nothing but the row.
    Assumes: the engine's arithmetic on doubles raises nothing, TRY_CAST neither.
    Proof: docs/proofs/bounding.md, "Rows"

    >>> import sqlglot
    >>> scope = Scope({"t": (Column("cost", Kind.NUMBER),)})
    >>> compiled(sqlglot.parse_one("1 / cost"), scope).sql.sql("duckdb")
    'CAST(1 AS DOUBLE) / NULLIF("t"."cost", 0)'
    """
    if not isinstance(node, exp.Expr):
        raise InvalidInput("an argument is missing", why="there is nothing to compute", fix="write it out")
    if not isinstance(node, exp.Expr):
        raise InvalidInput("an operand is missing", why="there is nothing to compute", fix="write it")
    build = _BUILDERS.get(type(node))
    if build is None:
        raise refused(node)
    return build(node, scope)


def refused(node: exp.Expr) -> HubbubError:
    """The error for a construct that is not on the list."""
    name = name_of(node)
    why, fix = _REASONS.get(
        type(node), ("it is not on the list of functions known to be safe on every row", "write it otherwise")
    )
    return Unsupported(f"{name} is not supported here", why=why, fix=fix)


def name_of(node: exp.Expr) -> str:
    """What a construct is called, without what it is applied to."""
    if isinstance(node, exp.Anonymous):
        return f"the function {str(node.this)[:40]}"
    if isinstance(node, exp.Func):
        return f"the function {node.sql_name()}"
    return f"the construct {node.key.upper()}"


_WINDOW = (
    "a window reaches over the rows of other units, so adding one person changes others' rows",
    "aggregate by the unit in a sub-query, or rank the released table with ORDER BY and LIMIT",
)
_SUBQUERY = (
    "rows would be kept or dropped for what other units' rows are",
    "write an inner join with a public table, or on the unit's key",
)
_REASONS: dict[type[exp.Expr], tuple[str, str]] = {
    exp.Window: _WINDOW,
    exp.Subquery: _SUBQUERY,
    exp.Select: _SUBQUERY,
    exp.Exists: _SUBQUERY,
    exp.Star: ("* is only understood in COUNT(*) and in sub-queries", "name the columns"),
    exp.Placeholder: ("there is nothing to fill it with", "write the value itself"),
    exp.Parameter: ("there is nothing to fill it with", "write the value itself"),
}


# Literals


def number_literal(value: float | Fraction) -> exp.Expr:
    """A number, always a double in the engine."""
    number = float(value)
    text = str(int(number)) if number == int(number) and abs(number) < 2**53 else repr(number)
    return exp.Cast(this=_plain_number(text), to=DOUBLE.copy())


def _plain_number(text: str) -> exp.Expr:
    if text.startswith("-"):
        return exp.Neg(this=exp.Literal.number(text[1:]))
    return exp.Literal.number(text)


def text_literal(value: str) -> exp.Expr:
    """A text, quoted by the dialect's writer."""
    return exp.Literal.string(value)


def _literal(node: exp.Expr, scope: Scope) -> Typed:  # noqa: ARG001 - one shape for all builders
    assert isinstance(node, exp.Literal)
    if node.is_string:
        if len(node.this) > _MOST_TEXT or "\0" in node.this:
            raise _too_long()
        return Typed(text_literal(node.this), Kind.TEXT, keys=(node.this,), value=node.this, is_literal=True)
    try:
        number = float(node.this)
    except ValueError:
        raise refused(node) from None
    return _number(number)


def _number(number: float) -> Typed:
    if not math.isfinite(number):
        raise InvalidInput("a number is too large", why="it is no finite double", fix="write a smaller one")
    exact = Fraction(number)
    return Typed(
        number_literal(number), Kind.NUMBER, (exact, exact), (number + 0.0,), value=exact, is_literal=True
    )


def _too_long() -> InvalidInput:
    return InvalidInput(
        "a text is longer than 65,536 characters, or holds a zero character",
        why="no engine takes it",
        fix="write a shorter one",
    )


def _boolean(node: exp.Expr, scope: Scope) -> Typed:  # noqa: ARG001
    return Typed(
        exp.Boolean(this=bool(node.this)),
        Kind.BOOLEAN,
        keys=(bool(node.this),),
        value=bool(node.this),
        is_literal=True,
    )


def _null(node: exp.Expr, scope: Scope) -> Typed:  # noqa: ARG001
    return Typed(exp.Null(), Kind.OPAQUE, is_literal=True)


def _column(node: exp.Expr, scope: Scope) -> Typed:
    assert isinstance(node, exp.Column)
    if node.args.get("db") or node.args.get("catalog") or isinstance(node.this, exp.Star):
        raise refused(node)
    return scope.find(node.name, node.table or None)


def _paren(node: exp.Expr, scope: Scope) -> Typed:
    inner = compiled(node.this, scope)
    return replace(inner, sql=exp.Paren(this=inner.sql))


# Kinds


def as_kind(typed: Typed, kind: Kind, what: str) -> Typed:
    """The same, where it is of this kind or can be read as one: a literal date, NULL, a boolean as 0 or 1."""
    if typed.kind is kind:
        return typed
    if typed.is_literal and typed.value is None:
        return replace(typed, kind=kind)
    if kind is Kind.NUMBER and typed.kind is Kind.BOOLEAN:
        one, zero = number_literal(1), number_literal(0)
        negated = exp.Not(this=exp.Paren(this=_again(typed.sql)))
        sql = exp.Case(ifs=[exp.If(this=typed.sql, true=one), exp.If(this=negated, true=zero)])
        return Typed(sql, Kind.NUMBER, (Fraction(0), Fraction(1)), (0.0, 1.0))
    if typed.is_literal and isinstance(typed.value, str) and kind in {Kind.DATE, Kind.TIMESTAMP}:
        return _moment(typed.value, kind)
    if kind is Kind.TIMESTAMP and typed.kind is Kind.DATE:
        return Typed(exp.TryCast(this=typed.sql, to=exp.DataType.build("TIMESTAMP")), kind)
    raise InvalidInput(
        f"{what} is a {typed.kind.value} where a {kind.value} is needed",
        why="types are never guessed from the rows",
        fix=f"declare the column as {kind.value}, or write CAST(… AS {_SQL_NAMES[kind]})",
    )


_SQL_NAMES = {
    Kind.NUMBER: "DOUBLE",
    Kind.TEXT: "VARCHAR",
    Kind.BOOLEAN: "BOOLEAN",
    Kind.DATE: "DATE",
    Kind.TIMESTAMP: "TIMESTAMP",
    Kind.OPAQUE: "VARCHAR",
}


def _moment(text: str, kind: Kind) -> Typed:
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
    return Typed(moment_literal(value), kind, keys=(value,), value=value, is_literal=True)


def moment_literal(value: Key) -> exp.Expr:
    """A date or a timestamp."""
    assert isinstance(value, date)
    to = "TIMESTAMP" if isinstance(value, datetime) else "DATE"
    text = value.isoformat(sep=" ") if isinstance(value, datetime) else value.isoformat()
    return exp.Cast(this=exp.Literal.string(text), to=exp.DataType.build(to))


def within_years(moment: exp.Expr, kind: Kind) -> exp.Expr:
    """NULL where a date or timestamp is not in the years 1 to 9999.

    Beyond these date functions raise, and Python has no such dates.
    """
    least, beyond = (moment_literal(_LEAST[kind]), moment_literal(_MOST[kind]))
    inside = exp.And(
        this=exp.GTE(this=moment, expression=least),
        expression=exp.LTE(this=_again(moment), expression=beyond),
    )
    return exp.Case(ifs=[exp.If(this=inside, true=_again(moment))])


_LEAST: dict[Kind, Key] = {Kind.DATE: date.min, Kind.TIMESTAMP: datetime.min}  # noqa: DTZ901 - without zone
_MOST: dict[Kind, Key] = {Kind.DATE: date.max, Kind.TIMESTAMP: datetime.max}  # noqa: DTZ901


def without_signs(number: exp.Expr) -> exp.Expr:
    """The number, where 0 has no sign and what is no number is NULL.

    Which of −0.0 and 0.0 stands for both in a group depends on the order of rows, also of others'.
    """
    zero = exp.If(this=exp.EQ(this=number, expression=number_literal(0)), true=number_literal(0))
    there = exp.If(this=exp.Not(this=exp.IsNan(this=_again(number))), true=_again(number))
    return exp.Case(ifs=[zero, there])


def _again(sql: exp.Expr) -> exp.Expr:
    """A copy, where an expression is written out more than once: nested, that grows beyond all bounds."""
    if sum(1 for _ in islice(sql.walk(), _MOST_TWICE)) == _MOST_TWICE:
        raise Unsupported(
            "an expression is too long",
            why="some functions take their argument twice, so that no row can make them fail",
            fix="write a shorter one, or nest fewer functions",
        )
    return sql.copy()


def _grouped(sql: exp.Expr) -> exp.Expr:
    """In parentheses where it needs them as an operand."""
    return exp.Paren(this=sql) if isinstance(sql, (exp.Binary, exp.Neg)) else sql


def _number_of(node: exp.Expr, scope: Scope) -> Typed:
    return as_kind(compiled(node, scope), Kind.NUMBER, "an operand")


def _text_of(node: exp.Expr, scope: Scope) -> Typed:
    return as_kind(compiled(node, scope), Kind.TEXT, "an operand")


def _truth(node: exp.Expr, scope: Scope) -> Typed:
    return as_kind(compiled(node, scope), Kind.BOOLEAN, "a condition")


# Arithmetic


def _arithmetic(node: exp.Expr, scope: Scope) -> Typed:
    left, right = _number_of(node.this, scope), _number_of(node.expression, scope)
    sql = type(node)(this=_grouped(left.sql), expression=_grouped(right.sql))
    return Typed(sql, Kind.NUMBER, _interval(type(node), left.bounds, right.bounds))


def _interval(kind: type[exp.Expr], left: Bounds | None, right: Bounds | None) -> Bounds | None:
    if left is None or right is None:
        return None
    if kind is exp.Add:
        return left[0] + right[0], left[1] + right[1]
    if kind is exp.Sub:
        return left[0] - right[1], left[1] - right[0]
    corners = [a * b for a in left for b in right]
    return min(corners), max(corners)


def _divided(node: exp.Expr, scope: Scope) -> Typed:
    left, right = _number_of(node.this, scope), _number_of(node.expression, scope)
    below = exp.Nullif(this=right.sql, expression=exp.Literal.number(0))
    bounds = None
    if left.bounds is not None and right.is_literal and right.value:
        assert isinstance(right.value, Fraction)
        ends = sorted(end / right.value for end in left.bounds)
        bounds = (ends[0], ends[1])
    sql = exp.Div(this=_grouped(left.sql), expression=below, typed=False, safe=False)
    return Typed(sql, Kind.NUMBER, bounds)


def _whole_division(node: exp.Expr, scope: Scope) -> Typed:
    inner = _divided(node, scope)
    return Typed(exp.Floor(this=inner.sql), Kind.NUMBER, _floored(inner.bounds))


def _remainder(node: exp.Expr, scope: Scope) -> Typed:
    left, right = _number_of(node.this, scope), _number_of(node.expression, scope)
    below = exp.Nullif(this=right.sql, expression=exp.Literal.number(0))
    return Typed(exp.Mod(this=_grouped(left.sql), expression=below), Kind.NUMBER)


def _negated(node: exp.Expr, scope: Scope) -> Typed:
    inner = _number_of(node.this, scope)
    if inner.is_literal and isinstance(inner.value, Fraction):
        return _number(float(-inner.value))
    bounds = None if inner.bounds is None else (-inner.bounds[1], -inner.bounds[0])
    return Typed(exp.Neg(this=exp.Paren(this=inner.sql)), Kind.NUMBER, bounds)


def _floored(bounds: Bounds | None) -> Bounds | None:
    return None if bounds is None else (Fraction(math.floor(bounds[0])), Fraction(math.floor(bounds[1])))


def _floor(node: exp.Expr, scope: Scope) -> Typed:
    _only(node, "this")
    inner = _number_of(node.this, scope)
    return Typed(exp.Floor(this=inner.sql), Kind.NUMBER, _floored(inner.bounds))


def _ceil(node: exp.Expr, scope: Scope) -> Typed:
    _only(node, "this")
    inner = _number_of(node.this, scope)
    bounds = inner.bounds and (Fraction(math.ceil(inner.bounds[0])), Fraction(math.ceil(inner.bounds[1])))
    return Typed(exp.Ceil(this=inner.sql), Kind.NUMBER, bounds)


def _abs(node: exp.Expr, scope: Scope) -> Typed:
    inner = _number_of(node.this, scope)
    bounds = None
    if inner.bounds is not None:
        low, high = inner.bounds
        bounds = (max(Fraction(0), low, -high), max(abs(low), abs(high)))
    return Typed(exp.Abs(this=inner.sql), Kind.NUMBER, bounds)


def _round(node: exp.Expr, scope: Scope) -> Typed:
    # floor(x·10^n + ½)/10^n: engines agree on it, and on halves.
    digits = _small_whole(node.args.get("decimals"), 0, scope)
    inner = _number_of(node.this, scope)
    power = number_literal(10.0**digits)
    scaled = exp.Mul(this=exp.Paren(this=inner.sql), expression=power)
    whole = exp.Floor(this=exp.Add(this=scaled, expression=exp.Literal.number("0.5")))
    return Typed(exp.Div(this=whole, expression=power.copy(), typed=False, safe=False), Kind.NUMBER)


def _small_whole(node: exp.Expr | None, default: int, scope: Scope) -> int:
    if node is None:
        return default
    typed = compiled(node, scope)
    if (
        not typed.is_literal
        or not isinstance(typed.value, Fraction)
        or typed.value.denominator != 1
        or not -15 <= typed.value <= 15
    ):
        raise InvalidInput(
            "a number of digits or characters is not a small whole number written out",
            why="it must be known beforehand",
            fix="write a whole number from -15 to 15",
        )
    return int(typed.value)


def _guarded(low: str, *, strict: bool) -> Callable[[exp.Expr, Scope], Typed]:
    """A function of numbers above some end; NULL elsewhere."""

    def build(node: exp.Expr, scope: Scope) -> Typed:
        _only(node, "this")
        inner = _number_of(node.this, scope)
        compare = exp.GT if strict else exp.GTE
        inside = compare(this=inner.sql, expression=exp.Literal.number(low))
        return Typed(
            exp.Case(ifs=[exp.If(this=inside, true=type(node)(this=_again(inner.sql)))]), Kind.NUMBER
        )

    return build


def _unary(node: exp.Expr, scope: Scope) -> Typed:
    _only(node, "this")
    return Typed(type(node)(this=_number_of(node.this, scope).sql), Kind.NUMBER)


def _sign(node: exp.Expr, scope: Scope) -> Typed:
    # The engine's is a small integer, and a few of those multiplied are an error.
    _only(node, "this")
    sign = exp.Sign(this=_number_of(node.this, scope).sql)
    return Typed(exp.Cast(this=sign, to=DOUBLE.copy()), Kind.NUMBER, (Fraction(-1), Fraction(1)))


def _power(node: exp.Expr, scope: Scope) -> Typed:
    left, right = _number_of(node.this, scope), _number_of(node.expression, scope)
    if right.is_literal and right.value == 2:
        sql = exp.Mul(this=exp.Paren(this=left.sql), expression=exp.Paren(this=_again(left.sql)))
        bounds = _interval(exp.Mul, left.bounds, left.bounds)
        return Typed(sql, Kind.NUMBER, bounds and (max(Fraction(0), bounds[0]), bounds[1]))
    # Of a negative number a power is NULL: engines disagree on the rest.
    inside = exp.GT(this=left.sql, expression=exp.Literal.number(0))
    return Typed(
        exp.Case(ifs=[exp.If(this=inside, true=exp.Pow(this=_again(left.sql), expression=right.sql))]),
        Kind.NUMBER,
    )


def _extreme(node: exp.Expr, scope: Scope) -> Typed:
    """LEAST and GREATEST, NULL if any part is: engines disagree on that, so it is written out."""
    parts = [_number_of(part, scope) for part in (node.this, *node.expressions)]
    is_least = isinstance(node, exp.Least)
    pick = min if is_least else max
    missing = exp.or_(*(exp.Is(this=exp.Paren(this=part.sql), expression=exp.Null()) for part in parts))
    chosen = type(node)(this=_again(parts[0].sql), expressions=[_again(part.sql) for part in parts[1:]])
    total = exp.Case(ifs=[exp.If(this=exp.Not(this=exp.Paren(this=missing)), true=chosen)])
    ends = [part.bounds or part.half for part in parts]
    lows = [low for low, _ in ends if low is not None]
    highs = [high for _, high in ends if high is not None]
    # The least of several is below each one's high end, and above the low ends only if all are known.
    near, far = (highs, lows) if is_least else (lows, highs)
    here = pick(near) if near else None
    there = pick(far) if len(far) == len(parts) else None
    low, high = (there, here) if is_least else (here, there)
    if low is not None and high is not None:
        return Typed(total, Kind.NUMBER, (low, high))
    return Typed(total, Kind.NUMBER, half=(low, high))


# Conditions


def _connected(node: exp.Expr, scope: Scope) -> Typed:
    left, right = _truth(node.this, scope), _truth(node.expression, scope)
    sql = type(node)(this=exp.Paren(this=left.sql), expression=exp.Paren(this=right.sql))
    return Typed(sql, Kind.BOOLEAN, keys=(False, True))


def _not(node: exp.Expr, scope: Scope) -> Typed:
    return Typed(exp.Not(this=exp.Paren(this=_truth(node.this, scope).sql)), Kind.BOOLEAN, keys=(False, True))


def _alike(left: Typed, right: Typed) -> tuple[Typed, Typed]:
    """Both of one kind, or an error that says how."""
    if left.kind is right.kind:
        if left.kind is Kind.OPAQUE and not (left.is_literal or right.is_literal):
            raise _opaque()
        return left, right
    for kind in (Kind.TIMESTAMP, Kind.DATE):
        if kind in {left.kind, right.kind}:
            return as_kind(left, kind, "one side"), as_kind(right, kind, "one side")
    if left.is_literal:
        return as_kind(left, right.kind, "the literal"), right
    return left, as_kind(right, left.kind, "one side")


def _opaque() -> InvalidInput:
    return InvalidInput(
        "a column of an unknown type is compared",
        why="what that means is not the same in every engine",
        fix="declare its type, as text, number, boolean, date or timestamp",
    )


def _compared(node: exp.Expr, scope: Scope) -> Typed:
    left, right = _alike(compiled(node.this, scope), compiled(node.expression, scope))
    if left.kind is Kind.OPAQUE:
        raise _opaque()
    sql = type(node)(this=exp.Paren(this=left.sql), expression=exp.Paren(this=right.sql))
    return Typed(sql, Kind.BOOLEAN, keys=(False, True))


def _between(node: exp.Expr, scope: Scope) -> Typed:
    _only(node, "this", "low", "high")
    middle = node.this
    both = exp.And(
        this=exp.GTE(this=middle, expression=node.args["low"]),
        expression=exp.LTE(this=_again(middle), expression=node.args["high"]),
    )
    return compiled(both, scope)


def _is(node: exp.Expr, scope: Scope) -> Typed:
    inner = compiled(node.this, scope)
    if isinstance(node.expression, exp.Boolean):
        inner = as_kind(inner, Kind.BOOLEAN, "a condition")
        right: exp.Expr = exp.Boolean(this=bool(node.expression.this))
    elif isinstance(node.expression, exp.Null):
        right = exp.Null()
    else:
        raise refused(node)
    return Typed(exp.Is(this=exp.Paren(this=inner.sql), expression=right), Kind.BOOLEAN, keys=(False, True))


def _in(node: exp.Expr, scope: Scope) -> Typed:
    if node.args.get("query") or node.args.get("unnest") or node.args.get("field") or not node.expressions:
        raise Unsupported("a sub-query after IN is not supported here", why=_SUBQUERY[0], fix=_SUBQUERY[1])
    inner = compiled(node.this, scope)
    pairs = [_alike(inner, compiled(item, scope)) for item in node.expressions]
    if not all(right.is_literal for _, right in pairs):
        raise InvalidInput(
            "a list after IN holds more than literals", why="it is public", fix="write a = b OR a = c"
        )
    if inner.kind is Kind.OPAQUE:
        raise _opaque()
    sql = exp.In(this=exp.Paren(this=inner.sql), expressions=[right.sql for _, right in pairs])
    return Typed(sql, Kind.BOOLEAN, keys=(False, True))


def _like(node: exp.Expr, scope: Scope) -> Typed:
    _only(node, "this", "expression")
    inner, pattern = _text_of(node.this, scope), _text_of(node.expression, scope)
    if not pattern.is_literal or not isinstance(pattern.value, str) or "\\" in pattern.value:
        raise InvalidInput(
            "a pattern is not written out, or holds a backslash",
            why="it must be known beforehand, and mean the same in every engine",
            fix="write the pattern with % and _ only",
        )
    return Typed(
        type(node)(this=exp.Paren(this=inner.sql), expression=pattern.sql), Kind.BOOLEAN, keys=(False, True)
    )


def _case(node: exp.Expr, scope: Scope) -> Typed:
    _only(node, "this", "ifs", "default")
    subject = node.args.get("this")
    conditions, values = [], []
    for branch in node.args["ifs"]:
        test = exp.EQ(this=_again(subject), expression=branch.this) if subject is not None else branch.this
        conditions.append(_truth(test, scope))
        values.append(compiled(branch.args["true"], scope))
    default = node.args.get("default")
    otherwise = (
        Typed(exp.Null(), Kind.OPAQUE, is_literal=True) if default is None else compiled(default, scope)
    )
    kind = next(
        (value.kind for value in (*values, otherwise) if not (value.is_literal and value.value is None)),
        Kind.TEXT,
    )
    if kind is Kind.OPAQUE:
        raise _opaque()
    parts = [as_kind(value, kind, "a branch") for value in (*values, otherwise)]
    sql = exp.Case(
        ifs=[exp.If(this=test.sql, true=part.sql) for test, part in zip(conditions, parts, strict=False)],
        default=parts[-1].sql,
    )
    return Typed(sql, kind, *_united(parts))


def _united(parts: list[Typed]) -> tuple[Bounds | None, tuple[Key, ...] | None]:
    """What is known of a value that is one of these."""
    shown = [part for part in parts if not (part.is_literal and part.value is None)]
    bounds = None
    if shown and all(part.bounds for part in shown):
        lows, highs = zip(*(part.bounds for part in shown if part.bounds), strict=True)
        bounds = (min(lows), max(highs))
    keys = None
    if shown and all(part.keys for part in shown):
        keys = tuple(dict.fromkeys(key for part in shown for key in part.keys or ()))
    return bounds, keys


def _if(node: exp.Expr, scope: Scope) -> Typed:
    branch = exp.If(this=node.this, true=node.args["true"])
    return _case(exp.Case(ifs=[branch], default=node.args.get("false")), scope)


def _coalesce(node: exp.Expr, scope: Scope) -> Typed:
    given = [compiled(part, scope) for part in (node.this, *node.expressions)]
    kind = next((part.kind for part in given if not (part.is_literal and part.value is None)), Kind.TEXT)
    if kind is Kind.OPAQUE:
        raise _opaque()
    parts = [as_kind(part, kind, "a part") for part in given]
    sql = exp.Coalesce(this=parts[0].sql, expressions=[part.sql for part in parts[1:]])
    return Typed(sql, kind, *_united(parts))


def _nullif(node: exp.Expr, scope: Scope) -> Typed:
    left, right = _alike(compiled(node.this, scope), compiled(node.expression, scope))
    return Typed(exp.Nullif(this=left.sql, expression=right.sql), left.kind, left.bounds, left.keys)


# Texts, dates and casts


def _text_function(node: exp.Expr, scope: Scope) -> Typed:
    _only(node, "this")
    return Typed(type(node)(this=_text_of(node.this, scope).sql), Kind.TEXT)


def _length(node: exp.Expr, scope: Scope) -> Typed:
    inner = _text_of(node.this, scope)
    return Typed(exp.Cast(this=exp.Length(this=inner.sql), to=DOUBLE.copy()), Kind.NUMBER)


def _substring(node: exp.Expr, scope: Scope) -> Typed:
    start = _small_whole(node.args.get("start"), 1, scope)
    length = _small_whole(node.args.get("length"), 15, scope)
    if start < 1 or length < 0:
        raise InvalidInput(
            "SUBSTRING starts before 1", why="engines disagree on it", fix="start at 1 or later"
        )
    inner = _text_of(node.this, scope)
    sql = exp.Substring(this=inner.sql, start=exp.Literal.number(start), length=exp.Literal.number(length))
    return Typed(sql, Kind.TEXT)


def _left(node: exp.Expr, scope: Scope) -> Typed:
    return _substring(
        exp.Substring(this=node.this, start=exp.Literal.number(1), length=node.expression), scope
    )


def _joined(node: exp.Expr, scope: Scope) -> Typed:
    parts = [
        _text_of(part, scope)
        for part in ((node.this, node.expression) if isinstance(node, exp.DPipe) else node.expressions)
    ]
    total = parts[0].sql
    for part in parts[1:]:
        both = exp.DPipe(this=total, expression=part.sql, safe=True)
        # Doubled again and again a text would be longer than the engine bears, on some rows only.
        total = exp.Substring(this=both, start=exp.Literal.number(1), length=exp.Literal.number(_MOST_TEXT))
    return Typed(total, Kind.TEXT)


def _starts(node: exp.Expr, scope: Scope) -> Typed:
    inner, prefix = _text_of(node.this, scope), _text_of(node.expression, scope)
    return Typed(exp.StartsWith(this=inner.sql, expression=prefix.sql), Kind.BOOLEAN, keys=(False, True))


def _moment_of(node: exp.Expr, scope: Scope) -> Typed:
    inner = compiled(node, scope)
    if inner.kind is Kind.DATE:
        return inner
    return as_kind(inner, Kind.TIMESTAMP, "an operand")


def _part(name: str, node: exp.Expr, scope: Scope) -> Typed:
    if name not in _PARTS:
        raise InvalidInput(
            f"{name[:20]} is not a part of a date that is known here",
            why="engines disagree on the others",
            fix=f"use one of: {', '.join(_PARTS)}",
        )
    known = _PARTS[name]
    inner = _moment_of(node, scope)
    if name in {"hour", "minute"}:
        inner = as_kind(inner, Kind.TIMESTAMP, "an operand")
    part = {"dayofweek": "dow"}.get(name, name)
    sql = exp.TryCast(
        this=exp.Extract(this=exp.Var(this=part.upper()), expression=inner.sql), to=DOUBLE.copy()
    )
    keys = None if known is None else tuple(float(value) for value in known)
    bounds = None if known is None else (Fraction(known[0]), Fraction(known[-1]))
    return Typed(sql, Kind.NUMBER, bounds, keys)


def _extract(node: exp.Expr, scope: Scope) -> Typed:
    return _part(node.this.name.lower(), node.expression, scope)


def _named_part(name: str) -> Callable[[exp.Expr, Scope], Typed]:
    def build(node: exp.Expr, scope: Scope) -> Typed:
        _only(node, "this")
        return _part(name, node.this, scope)

    return build


def _truncated(node: exp.Expr, scope: Scope) -> Typed:
    unit = node.args["unit"].name.lower()
    if unit not in _TRUNCATED or node.args.get("zone"):
        raise InvalidInput(
            f"dates are not cut to a {unit[:20]} here",
            why="engines disagree on it",
            fix=f"use one of: {', '.join(_TRUNCATED)}",
        )
    inner = _moment_of(node.this, scope)
    cut = exp.TimestampTrunc(this=inner.sql, unit=exp.Var(this=unit.upper()))
    kind = inner.kind if unit not in {"hour", "minute"} else Kind.TIMESTAMP
    return Typed(exp.TryCast(this=cut, to=exp.DataType.build(_SQL_NAMES[kind])), kind)


def _days_between(node: exp.Expr, scope: Scope) -> Typed:
    unit = node.args.get("unit")
    if unit is not None and unit.name.lower() != "day":
        raise InvalidInput(
            "dates are subtracted in days", why="engines disagree on the rest", fix="use 'day'"
        )
    left, right = (
        as_kind(compiled(part, scope), Kind.DATE, "a date") for part in (node.this, node.expression)
    )
    days = exp.DateDiff(this=left.sql, expression=right.sql, unit=exp.Var(this="DAY"))
    return Typed(exp.TryCast(this=days, to=DOUBLE.copy()), Kind.NUMBER)


_CASTS = {
    **dict.fromkeys(("DOUBLE", "FLOAT", "DECIMAL"), Kind.NUMBER),
    **dict.fromkeys(("INT", "BIGINT", "SMALLINT", "TINYINT", "INT128", "UINT", "UBIGINT"), Kind.NUMBER),
    **dict.fromkeys(("VARCHAR", "TEXT", "CHAR", "NVARCHAR"), Kind.TEXT),
    "BOOLEAN": Kind.BOOLEAN,
    "DATE": Kind.DATE,
    **dict.fromkeys(("TIMESTAMP", "DATETIME", "TIMESTAMPNTZ"), Kind.TIMESTAMP),
}
_WHOLE = {"INT", "BIGINT", "SMALLINT", "TINYINT", "INT128", "UINT", "UBIGINT"}


def _cast(node: exp.Expr, scope: Scope) -> Typed:
    name = node.args["to"].this.name if isinstance(node.args["to"], exp.DataType) else ""
    kind = _CASTS.get(name)
    if kind is None or node.args.get("format"):
        raise InvalidInput(
            "a cast is to a type that is not known here",
            why="only casts that can be done safely on any row are",
            fix="cast to DOUBLE, INTEGER, VARCHAR, BOOLEAN, DATE or TIMESTAMP",
        )
    inner = compiled(node.this, scope)
    if inner.kind is Kind.BOOLEAN and kind is Kind.NUMBER:
        return as_kind(inner, kind, "a boolean")
    if inner.is_literal and isinstance(inner.value, str) and kind in {Kind.DATE, Kind.TIMESTAMP}:
        return _moment(inner.value, kind)
    if inner.kind is kind:
        cast = inner
    else:
        plain = without_signs(inner.sql) if inner.kind is Kind.NUMBER else inner.sql
        done: exp.Expr = exp.TryCast(this=plain, to=exp.DataType.build(_SQL_NAMES[kind]))
        if kind in _LEAST and inner.kind not in _LEAST:
            done = within_years(done, kind)
        cast = Typed(done, kind)
    if name in _WHOLE:
        half = exp.Add(this=exp.Paren(this=cast.sql), expression=exp.Literal.number("0.5"))
        return Typed(exp.Floor(this=half), kind, cast.bounds and (cast.bounds[0] - 1, cast.bounds[1] + 1))
    return cast


def _only(node: exp.Expr, *names: str) -> None:
    """Refuse a call with arguments that would be passed over in silence."""
    for name, given in node.args.items():
        if given and name not in names and name not in {"is_left", "typed", "safe"}:
            raise Unsupported(
                f"{name_of(node)} has an argument or clause that is not supported here ({name})",
                why="leaving it out would change what is asked",
                fix="write it without",
            )


Builder = Callable[[exp.Expr, Scope], Typed]

_BUILDERS: dict[type[exp.Expr], Builder] = {
    exp.Literal: _literal,
    exp.Boolean: _boolean,
    exp.Null: _null,
    exp.Column: _column,
    exp.Paren: _paren,
    **dict.fromkeys((exp.Add, exp.Sub, exp.Mul), _arithmetic),
    exp.Div: _divided,
    exp.IntDiv: _whole_division,
    exp.Mod: _remainder,
    exp.Neg: _negated,
    exp.Floor: _floor,
    exp.Ceil: _ceil,
    exp.Abs: _abs,
    exp.Round: _round,
    exp.Sqrt: _guarded("0", strict=False),
    exp.Ln: _guarded("0", strict=True),
    exp.Exp: _unary,
    exp.Sign: _sign,
    exp.Pow: _power,
    **dict.fromkeys((exp.Least, exp.Greatest), _extreme),
    **dict.fromkeys((exp.And, exp.Or), _connected),
    exp.Not: _not,
    **dict.fromkeys((exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE), _compared),
    exp.Between: _between,
    exp.Is: _is,
    exp.In: _in,
    **dict.fromkeys((exp.Like, exp.ILike), _like),
    exp.Case: _case,
    exp.If: _if,
    exp.Coalesce: _coalesce,
    exp.Nullif: _nullif,
    **dict.fromkeys((exp.Lower, exp.Upper, exp.Trim), _text_function),
    exp.Length: _length,
    exp.Substring: _substring,
    exp.Left: _left,
    **dict.fromkeys((exp.DPipe, exp.Concat), _joined),
    exp.StartsWith: _starts,
    exp.Extract: _extract,
    exp.Year: _named_part("year"),
    exp.Quarter: _named_part("quarter"),
    exp.Month: _named_part("month"),
    exp.Week: _named_part("week"),
    exp.Day: _named_part("day"),
    exp.DayOfWeek: _named_part("dow"),
    exp.Hour: _named_part("hour"),
    exp.Minute: _named_part("minute"),
    **dict.fromkeys((exp.TimestampTrunc, exp.DateTrunc), _truncated),
    **dict.fromkeys((exp.DateDiff,), _days_between),
    **dict.fromkeys((exp.Cast, exp.TryCast), _cast),
}
