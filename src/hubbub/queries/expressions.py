"""Row-level expressions: an allow-list, each rebuilt in a form that no row can make fail.

What a person wrote is never passed on. Every node of it is looked up in a list, its parts are built
first, and a new node is made of them; whatever is not in the list is refused by name. All numbers are
doubles, whose arithmetic gives NaN or infinity and no error; casts give NULL where they cannot be done.
So an expression is a function of its one row, total, and free of side effects.

Proof: docs/proofs/bounding.md, "Rows"
"""

import math
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from itertools import islice

from sqlglot import exp

from hubbub.errors import InvalidInput, Unsupported
from hubbub.queries.typed import (
    DOUBLE,
    LEAST_MOMENT,
    MOST_TEXT,
    SQL_NAMES,
    SUBQUERY,
    Scope,
    Typed,
    again,
    alike,
    as_kind,
    grouped,
    known_number,
    moment_of,
    number_literal,
    only,
    opaque,
    refused,
    text_literal,
    too_long,
    united,
    within_years,
    without_signs,
)
from hubbub.tables.schema import Bounds, Kind

__all__ = ["compiled"]

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
_MOST_NODES = 10_000


def compiled(node: exp.Expr | None, scope: Scope) -> Typed:
    """The expression in its total form.

    Guarantee: for any row of any values it gives one value or NULL, never an error, and depends on
        nothing but the row.
    Assumes: the engine's arithmetic on doubles raises nothing, TRY_CAST neither.
    Proof: docs/proofs/bounding.md, "Rows"

    >>> import sqlglot
    >>> from hubbub.tables.schema import Column
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
    typed = build(node, scope)
    # Total forms repeat their parts: nested deeply enough they would fill the memory.
    if next(islice(typed.sql.walk(), _MOST_NODES, None), None) is not None:
        raise Unsupported(
            "an expression is nested too deeply", why="no reader could follow it", fix="write a shorter one"
        )
    return typed


# Literals


def _literal(node: exp.Expr, scope: Scope) -> Typed:  # noqa: ARG001 - one shape for all builders
    assert isinstance(node, exp.Literal)
    if node.is_string:
        if len(node.this) > MOST_TEXT or "\0" in node.this:
            raise too_long()
        return Typed(text_literal(node.this), Kind.TEXT, keys=(node.this,), value=node.this, is_literal=True)
    try:
        number = float(node.this)
    except ValueError:
        raise refused(node) from None
    return known_number(number)


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


def _number_of(node: exp.Expr, scope: Scope) -> Typed:
    return as_kind(compiled(node, scope), Kind.NUMBER, "an operand")


def _text_of(node: exp.Expr, scope: Scope) -> Typed:
    return as_kind(compiled(node, scope), Kind.TEXT, "an operand")


def _truth(node: exp.Expr, scope: Scope) -> Typed:
    return as_kind(compiled(node, scope), Kind.BOOLEAN, "a condition")


# Arithmetic


def _arithmetic(node: exp.Expr, scope: Scope) -> Typed:
    left, right = _number_of(node.this, scope), _number_of(node.expression, scope)
    sql = type(node)(this=grouped(left.sql), expression=grouped(right.sql))
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
    sql = exp.Div(this=grouped(left.sql), expression=below, typed=False, safe=False)
    return Typed(sql, Kind.NUMBER, bounds)


def _whole_division(node: exp.Expr, scope: Scope) -> Typed:
    inner = _divided(node, scope)
    return Typed(exp.Floor(this=inner.sql), Kind.NUMBER, _floored(inner.bounds))


def _remainder(node: exp.Expr, scope: Scope) -> Typed:
    left, right = _number_of(node.this, scope), _number_of(node.expression, scope)
    below = exp.Nullif(this=right.sql, expression=exp.Literal.number(0))
    return Typed(exp.Mod(this=grouped(left.sql), expression=below), Kind.NUMBER)


def _negated(node: exp.Expr, scope: Scope) -> Typed:
    inner = _number_of(node.this, scope)
    if inner.is_literal and isinstance(inner.value, Fraction):
        return known_number(float(-inner.value))
    bounds = None if inner.bounds is None else (-inner.bounds[1], -inner.bounds[0])
    return Typed(exp.Neg(this=exp.Paren(this=inner.sql)), Kind.NUMBER, bounds)


def _floored(bounds: Bounds | None) -> Bounds | None:
    return None if bounds is None else (Fraction(math.floor(bounds[0])), Fraction(math.floor(bounds[1])))


def _floor(node: exp.Expr, scope: Scope) -> Typed:
    only(node, "this")
    inner = _number_of(node.this, scope)
    return Typed(exp.Floor(this=inner.sql), Kind.NUMBER, _floored(inner.bounds))


def _ceil(node: exp.Expr, scope: Scope) -> Typed:
    only(node, "this")
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
        only(node, "this")
        inner = _number_of(node.this, scope)
        compare = exp.GT if strict else exp.GTE
        inside = compare(this=inner.sql, expression=exp.Literal.number(low))
        return Typed(exp.Case(ifs=[exp.If(this=inside, true=type(node)(this=again(inner.sql)))]), Kind.NUMBER)

    return build


def _unary(node: exp.Expr, scope: Scope) -> Typed:
    only(node, "this")
    return Typed(type(node)(this=_number_of(node.this, scope).sql), Kind.NUMBER)


def _sign(node: exp.Expr, scope: Scope) -> Typed:
    # The engine's is a small integer, and a few of those multiplied are an error.
    only(node, "this")
    sign = exp.Sign(this=_number_of(node.this, scope).sql)
    return Typed(exp.Cast(this=sign, to=DOUBLE.copy()), Kind.NUMBER, (Fraction(-1), Fraction(1)))


def _power(node: exp.Expr, scope: Scope) -> Typed:
    left, right = _number_of(node.this, scope), _number_of(node.expression, scope)
    if right.is_literal and right.value == 2:
        sql = exp.Mul(this=exp.Paren(this=left.sql), expression=exp.Paren(this=again(left.sql)))
        bounds = _interval(exp.Mul, left.bounds, left.bounds)
        return Typed(sql, Kind.NUMBER, bounds and (max(Fraction(0), bounds[0]), bounds[1]))
    # Of a negative number a power is NULL: engines disagree on the rest.
    inside = exp.GT(this=left.sql, expression=exp.Literal.number(0))
    return Typed(
        exp.Case(ifs=[exp.If(this=inside, true=exp.Pow(this=again(left.sql), expression=right.sql))]),
        Kind.NUMBER,
    )


def _extreme(node: exp.Expr, scope: Scope) -> Typed:
    """LEAST and GREATEST, NULL if any part is: engines disagree on that, so it is written out."""
    parts = [_number_of(part, scope) for part in (node.this, *node.expressions)]
    is_least = isinstance(node, exp.Least)
    pick = min if is_least else max
    missing = exp.or_(*(exp.Is(this=exp.Paren(this=part.sql), expression=exp.Null()) for part in parts))
    chosen = type(node)(this=again(parts[0].sql), expressions=[again(part.sql) for part in parts[1:]])
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


def _compared(node: exp.Expr, scope: Scope) -> Typed:
    left, right = alike(compiled(node.this, scope), compiled(node.expression, scope))
    if left.kind is Kind.OPAQUE:
        raise opaque()
    sql = type(node)(this=exp.Paren(this=left.sql), expression=exp.Paren(this=right.sql))
    return Typed(sql, Kind.BOOLEAN, keys=(False, True))


def _between(node: exp.Expr, scope: Scope) -> Typed:
    only(node, "this", "low", "high")
    middle = compiled(node.this, scope)  # once, though it is written twice
    low, one = alike(compiled(node.args["low"], scope), middle)
    high, two = alike(compiled(node.args["high"], scope), middle)
    if Kind.OPAQUE in {one.kind, two.kind}:
        raise opaque()
    both = exp.And(
        this=exp.GTE(this=exp.Paren(this=one.sql), expression=exp.Paren(this=low.sql)),
        expression=exp.LTE(this=exp.Paren(this=again(two.sql)), expression=exp.Paren(this=high.sql)),
    )
    return Typed(both, Kind.BOOLEAN, keys=(False, True))


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
        raise Unsupported("a sub-query after IN is not supported here", why=SUBQUERY[0], fix=SUBQUERY[1])
    inner = compiled(node.this, scope)
    pairs = [alike(inner, compiled(item, scope)) for item in node.expressions]
    if not all(right.is_literal for _, right in pairs):
        raise InvalidInput(
            "a list after IN holds more than literals", why="it is public", fix="write a = b OR a = c"
        )
    if inner.kind is Kind.OPAQUE:
        raise opaque()
    sql = exp.In(this=exp.Paren(this=inner.sql), expressions=[right.sql for _, right in pairs])
    return Typed(sql, Kind.BOOLEAN, keys=(False, True))


def _like(node: exp.Expr, scope: Scope) -> Typed:
    only(node, "this", "expression")
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
    only(node, "this", "ifs", "default")
    subject = node.args.get("this")
    conditions, values = [], []
    for branch in node.args["ifs"]:
        test = exp.EQ(this=again(subject), expression=branch.this) if subject is not None else branch.this
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
        raise opaque()
    parts = [as_kind(value, kind, "a branch") for value in (*values, otherwise)]
    sql = exp.Case(
        ifs=[exp.If(this=test.sql, true=part.sql) for test, part in zip(conditions, parts, strict=False)],
        default=parts[-1].sql,
    )
    return Typed(sql, kind, *united(parts))


def _if(node: exp.Expr, scope: Scope) -> Typed:
    branch = exp.If(this=node.this, true=node.args["true"])
    return _case(exp.Case(ifs=[branch], default=node.args.get("false")), scope)


def _coalesce(node: exp.Expr, scope: Scope) -> Typed:
    given = [compiled(part, scope) for part in (node.this, *node.expressions)]
    kind = next((part.kind for part in given if not (part.is_literal and part.value is None)), Kind.TEXT)
    if kind is Kind.OPAQUE:
        raise opaque()
    parts = [as_kind(part, kind, "a part") for part in given]
    sql = exp.Coalesce(this=parts[0].sql, expressions=[part.sql for part in parts[1:]])
    return Typed(sql, kind, *united(parts))


def _nullif(node: exp.Expr, scope: Scope) -> Typed:
    left, right = alike(compiled(node.this, scope), compiled(node.expression, scope))
    return Typed(exp.Nullif(this=left.sql, expression=right.sql), left.kind, left.bounds, left.keys)


# Texts, dates and casts


def _text_function(node: exp.Expr, scope: Scope) -> Typed:
    only(node, "this")
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
        total = exp.Substring(this=both, start=exp.Literal.number(1), length=exp.Literal.number(MOST_TEXT))
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
        only(node, "this")
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
    return Typed(exp.TryCast(this=cut, to=exp.DataType.build(SQL_NAMES[kind])), kind)


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
        return moment_of(inner.value, kind)
    if inner.kind is kind:
        cast = inner
    else:
        plain = without_signs(inner.sql) if inner.kind is Kind.NUMBER else inner.sql
        done: exp.Expr = exp.TryCast(this=plain, to=exp.DataType.build(SQL_NAMES[kind]))
        if kind in LEAST_MOMENT and inner.kind not in LEAST_MOMENT:
            done = within_years(done, kind)
        cast = Typed(done, kind)
    if name in _WHOLE:
        half = exp.Add(this=exp.Paren(this=cast.sql), expression=exp.Literal.number("0.5"))
        return Typed(exp.Floor(this=half), kind, cast.bounds and (cast.bounds[0] - 1, cast.bounds[1] + 1))
    return cast


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
