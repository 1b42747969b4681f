"""Row-level expressions: an allow-list, each rebuilt in a form that no row can make fail.

The user's SQL is never passed on. Every node is looked up in a list, its operands are built first, and a
new node is made of them; a node that is not in the list is refused by name. All numbers are doubles, and
their arithmetic gives doubles; a cast that fails gives NULL. So an expression is a function of its one
row, total, free of side effects, and the same on every engine.

Proof: docs/proofs/bounding.md, "Rows"
"""

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction

from sqlglot import exp

from hubbub.engines.schema import Kind
from hubbub.engines.total_functions import DOUBLE, SQL_TYPES, ascii_lower, ascii_upper, text_literal
from hubbub.errors import InvalidInput, Unsupported
from hubbub.sql import number_functions
from hubbub.sql.number_functions import cast_to
from hubbub.sql.scalar_types import (
    MAX_TEXT_LENGTH,
    SUBQUERY_REASON,
    Scope,
    TypedExpression,
    as_kind,
    check_arguments,
    copy_expression,
    count_nodes,
    make_condition,
    null_key,
    number_constant,
    text_too_long,
    unify_kinds,
    union_of,
    unknown_type_compared,
    unsupported_here,
)

__all__ = ["compile_expression"]

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
_MAX_NODES = 10_000
_MAX_DIGITS = 15
_ALL = 2**30


def compile_expression(node: exp.Expr | None, scope: Scope) -> TypedExpression:
    """The expression in its total form.

    Guarantee: for any row of any values it gives one value or NULL, never an error, and depends on
        nothing but the row.
    Assumes: the engine's doubles are IEEE's, and its arithmetic raises nothing within their range.
    Proof: docs/proofs/bounding.md, "Rows"

    >>> import sqlglot
    >>> from hubbub.engines.schema import Column
    >>> scope = Scope({"t": (Column("cost", Kind.NUMBER),)})
    >>> compile_expression(sqlglot.parse_one("cost > 1"), scope).sql.sql("duckdb")
    '("t"."cost") > (CAST(1 AS DOUBLE))'
    """
    if not isinstance(node, exp.Expr):
        raise InvalidInput("an argument is missing", why="there is nothing to compute", fix="write it out")
    if scope.on_compiled is None:
        return _compile(node, scope)
    typed = None
    try:
        typed = _compile(node, scope)
    finally:
        scope.on_compiled(node, typed)
    return typed


def _compile(node: exp.Expr, scope: Scope) -> TypedExpression:
    build = _BUILDERS.get(type(node))
    if build is None:
        raise unsupported_here(node)
    typed = build(node, scope)
    # Total forms repeat their parts: nested deeply enough they would fill the memory.
    if count_nodes(typed.sql) > _MAX_NODES:
        raise Unsupported(
            "an expression is nested too deeply",
            why="the planner limits how complex a query may be",
            fix="write a shorter one",
        )
    return typed


# Literals


def _literal(node: exp.Expr, scope: Scope) -> TypedExpression:  # noqa: ARG001 - one shape for all builders
    assert isinstance(node, exp.Literal)
    if node.is_string:
        if len(node.this) > MAX_TEXT_LENGTH or "\0" in node.this:
            raise text_too_long()
        return TypedExpression(
            text_literal(node.this),
            Kind.TEXT,
            keys=(node.this,),
            value=node.this,
            is_literal=True,
            is_complete=True,
        )
    try:
        number = float(node.this)
    except ValueError:
        raise unsupported_here(node) from None
    return number_constant(number)


def _boolean(node: exp.Expr, scope: Scope) -> TypedExpression:  # noqa: ARG001
    return TypedExpression(
        exp.Boolean(this=bool(node.this)),
        Kind.BOOLEAN,
        keys=(bool(node.this),),
        is_complete=True,
        value=bool(node.this),
        is_literal=True,
    )


def _null(node: exp.Expr, scope: Scope) -> TypedExpression:  # noqa: ARG001
    return TypedExpression(exp.Null(), Kind.OPAQUE, is_literal=True)


def _column(node: exp.Expr, scope: Scope) -> TypedExpression:
    assert isinstance(node, exp.Column)
    if node.args.get("db") or node.args.get("catalog") or isinstance(node.this, exp.Star):
        raise unsupported_here(node)
    return scope.find(node.name, node.table or None)


def _paren(node: exp.Expr, scope: Scope) -> TypedExpression:
    inner = compile_expression(node.this, scope)
    return replace(inner, sql=exp.Paren(this=inner.sql))


# Kinds


def _number_of(node: exp.Expr, scope: Scope) -> TypedExpression:
    return as_kind(compile_expression(node, scope), Kind.NUMBER, "an operand")


def _text_of(node: exp.Expr, scope: Scope) -> TypedExpression:
    return as_kind(compile_expression(node, scope), Kind.TEXT, "an operand")


def _truth(node: exp.Expr, scope: Scope) -> TypedExpression:
    return as_kind(compile_expression(node, scope), Kind.BOOLEAN, "a condition")


# Arithmetic


def _arithmetic(node: exp.Expr, scope: Scope) -> TypedExpression:
    return number_functions.arithmetic(
        type(node), _number_of(node.this, scope), _number_of(node.expression, scope)
    )


def _divided(node: exp.Expr, scope: Scope) -> TypedExpression:
    return number_functions.quotient(_number_of(node.this, scope), _number_of(node.expression, scope))


def _whole_division(node: exp.Expr, scope: Scope) -> TypedExpression:
    return number_functions.truncated(_divided(node, scope))


def _remainder(node: exp.Expr, scope: Scope) -> TypedExpression:
    return number_functions.remainder(_number_of(node.this, scope), _number_of(node.expression, scope))


def _unary(
    make: Callable[[TypedExpression], TypedExpression],
) -> Callable[[exp.Expr, Scope], TypedExpression]:
    def build(node: exp.Expr, scope: Scope) -> TypedExpression:
        check_arguments(node, "this")
        return make(_number_of(node.this, scope))

    return build


def _round(node: exp.Expr, scope: Scope) -> TypedExpression:
    check_arguments(node, "this", "decimals")
    decimals = node.args.get("decimals")
    digits = 0 if decimals is None else _known_whole(decimals, scope, -_MAX_DIGITS, _MAX_DIGITS)
    return number_functions.rounded(_number_of(node.this, scope), digits)


def _known_whole(node: exp.Expr, scope: Scope, least: int, most: int) -> int:
    typed = compile_expression(node, scope)
    if (
        not typed.is_literal
        or not isinstance(typed.value, Fraction)
        or typed.value.denominator != 1
        or not least <= typed.value <= most
    ):
        raise InvalidInput(
            "a number of digits or characters is not a whole number written out, or is out of range",
            why="it must be known beforehand, and mean the same in every engine",
            fix=f"write a whole number from {least} to {most}",
        )
    return int(typed.value)


def _guarded(compare: type[exp.Expr]) -> Callable[[exp.Expr, Scope], TypedExpression]:
    """A function of numbers above 0, or from 0 on; NULL elsewhere."""

    def build(node: exp.Expr, scope: Scope) -> TypedExpression:
        check_arguments(node, "this")
        inner = _number_of(node.this, scope)
        return number_functions.guarded(
            inner, lambda part: type(node)(this=part), compare, is_root=isinstance(node, exp.Sqrt)
        )

    return build


def _exponential(node: exp.Expr, scope: Scope) -> TypedExpression:
    check_arguments(node, "this")
    power = TypedExpression(exp.Exp(this=_number_of(node.this, scope).sql), Kind.NUMBER, size=(-2000, 2000))
    return number_functions.limit_magnitude(power)


def _power(node: exp.Expr, scope: Scope) -> TypedExpression:
    left, right = _number_of(node.this, scope), _number_of(node.expression, scope)
    if right.is_literal and right.value == 2:
        return number_functions.square(left)
    return number_functions.power(left, right)


def _extreme(node: exp.Expr, scope: Scope) -> TypedExpression:
    parts = [_number_of(part, scope) for part in (node.this, *node.expressions)]
    return number_functions.extreme(type(node), parts, passes_null=_passes_null(node, "ignore_nulls"))


def _passes_null(node: exp.Expr, flag: str) -> bool:
    """True if a function ignores NULL, as in DuckDB; in GoogleSQL NULL makes it NULL."""
    argument = node.args.get(flag)
    return argument is None or bool(argument)


# Conditions


def _connected(node: exp.Expr, scope: Scope) -> TypedExpression:
    left, right = _truth(node.this, scope), _truth(node.expression, scope)
    sql = type(node)(this=exp.Paren(this=left.sql), expression=exp.Paren(this=right.sql))
    return make_condition(sql, left, right)


def _not(node: exp.Expr, scope: Scope) -> TypedExpression:
    inner = _truth(node.this, scope)
    return make_condition(exp.Not(this=exp.Paren(this=inner.sql)), inner)


def _compared(node: exp.Expr, scope: Scope) -> TypedExpression:
    left, right = unify_kinds(
        compile_expression(node.this, scope), compile_expression(node.expression, scope)
    )
    if left.kind is Kind.OPAQUE:
        raise unknown_type_compared()
    sql = type(node)(this=exp.Paren(this=left.sql), expression=exp.Paren(this=right.sql))
    return make_condition(sql, left, right)


def _between(node: exp.Expr, scope: Scope) -> TypedExpression:
    check_arguments(node, "this", "low", "high")
    middle = compile_expression(node.this, scope)  # once, though it is written twice
    low, one = unify_kinds(compile_expression(node.args["low"], scope), middle)
    high, two = unify_kinds(compile_expression(node.args["high"], scope), middle)
    if Kind.OPAQUE in {one.kind, two.kind}:
        raise unknown_type_compared()
    both = exp.And(
        this=exp.GTE(this=exp.Paren(this=one.sql), expression=exp.Paren(this=low.sql)),
        expression=exp.LTE(
            this=exp.Paren(this=copy_expression(two.sql)), expression=exp.Paren(this=high.sql)
        ),
    )
    return make_condition(both, middle, low, high)


def _is(node: exp.Expr, scope: Scope) -> TypedExpression:
    inner = compile_expression(node.this, scope)
    if isinstance(node.expression, exp.Boolean):
        inner = as_kind(inner, Kind.BOOLEAN, "a condition")
        right: exp.Expr = exp.Boolean(this=bool(node.expression.this))
    elif isinstance(node.expression, exp.Null):
        right = exp.Null()
    else:
        raise unsupported_here(node)
    return make_condition(exp.Is(this=exp.Paren(this=inner.sql), expression=right))


def _in(node: exp.Expr, scope: Scope) -> TypedExpression:
    if node.args.get("query") or node.args.get("unnest") or node.args.get("field") or not node.expressions:
        raise Unsupported(
            "a sub-query after IN is not supported here", why=SUBQUERY_REASON[0], fix=SUBQUERY_REASON[1]
        )
    inner = compile_expression(node.this, scope)
    pairs = [unify_kinds(inner, compile_expression(item, scope)) for item in node.expressions]
    if not all(right.is_literal for _, right in pairs):
        raise InvalidInput(
            "a list after IN holds more than literals", why="it is public", fix="write a = b OR a = c"
        )
    if inner.kind is Kind.OPAQUE:
        raise unknown_type_compared()
    sql = exp.In(this=exp.Paren(this=inner.sql), expressions=[right.sql for _, right in pairs])
    return make_condition(sql, inner, *(right for _, right in pairs))


def _like(node: exp.Expr, scope: Scope) -> TypedExpression:
    check_arguments(node, "this", "expression", "negate")
    inner, pattern = _text_of(node.this, scope), _text_of(node.expression, scope)
    if not pattern.is_literal or not isinstance(pattern.value, str) or "\\" in pattern.value:
        raise InvalidInput(
            "a pattern is not written out, or holds a backslash",
            why="it must be known beforehand, and mean the same in every engine",
            fix="write the pattern with % and _ only",
        )
    text, like = inner.sql, pattern.value
    if isinstance(node, exp.ILike):
        text, like = (
            ascii_lower(text),
            "".join(letter.lower() if letter.isascii() else letter for letter in like),
        )
    sql: exp.Expr = exp.Like(this=exp.Paren(this=text), expression=text_literal(like))
    if node.args.get("negate"):  # NOT LIKE; older parsers put a NOT around
        sql = exp.Not(this=exp.Paren(this=sql))
    return make_condition(sql, inner)


def _case(node: exp.Expr, scope: Scope) -> TypedExpression:
    check_arguments(node, "this", "ifs", "default")
    subject = node.args.get("this")
    conditions, values = [], []
    for branch in node.args["ifs"]:
        test = (
            exp.EQ(this=copy_expression(subject), expression=branch.this)
            if subject is not None
            else branch.this
        )
        conditions.append(_truth(test, scope))
        values.append(compile_expression(branch.args["true"], scope))
    default = node.args.get("default")
    otherwise = (
        TypedExpression(exp.Null(), Kind.OPAQUE, is_literal=True)
        if default is None
        else compile_expression(default, scope)
    )
    kind = next(
        (value.kind for value in (*values, otherwise) if not (value.is_literal and value.value is None)),
        Kind.TEXT,
    )
    if kind is Kind.OPAQUE:
        raise unknown_type_compared()
    parts = [as_kind(value, kind, "a branch") for value in (*values, otherwise)]
    sql = exp.Case(
        ifs=[exp.If(this=test.sql, true=part.sql) for test, part in zip(conditions, parts, strict=False)],
        default=parts[-1].sql,
    )
    return union_of(sql, kind, parts)


def _if(node: exp.Expr, scope: Scope) -> TypedExpression:
    branch = exp.If(this=node.this, true=node.args["true"])
    return _case(exp.Case(ifs=[branch], default=node.args.get("false")), scope)


def _coalesce(node: exp.Expr, scope: Scope) -> TypedExpression:
    operands = [compile_expression(part, scope) for part in (node.this, *node.expressions)]
    kind = next((part.kind for part in operands if not (part.is_literal and part.value is None)), Kind.TEXT)
    if kind is Kind.OPAQUE:
        raise unknown_type_compared()
    parts = [as_kind(part, kind, "a part") for part in operands]
    sql = exp.Coalesce(this=parts[0].sql, expressions=[part.sql for part in parts[1:]])
    union = union_of(sql, kind, parts)
    if union.keys is not None and not all(null_key(part) for part in parts):
        return replace(union, keys=tuple(key for key in union.keys if key is not None))
    return union


def _nullif(node: exp.Expr, scope: Scope) -> TypedExpression:
    left, right = unify_kinds(
        compile_expression(node.this, scope), compile_expression(node.expression, scope)
    )
    if left.kind is Kind.OPAQUE:
        raise unknown_type_compared()
    sql = exp.Nullif(this=left.sql, expression=right.sql)
    known = left.keys
    keys = None if known is None else (*(key for key in known if key is not None), None)
    return TypedExpression(sql, left.kind, left.bounds, keys, size=left.size, is_complete=left.is_complete)


# Texts, dates and casts


def _text_function(make: Callable[[exp.Expr], exp.Expr]) -> Callable[[exp.Expr, Scope], TypedExpression]:
    def build(node: exp.Expr, scope: Scope) -> TypedExpression:
        check_arguments(node, "this")
        return TypedExpression(make(_text_of(node.this, scope).sql), Kind.TEXT)

    return build


def _length(node: exp.Expr, scope: Scope) -> TypedExpression:
    inner = _text_of(node.this, scope)
    return TypedExpression(
        exp.Cast(this=exp.Length(this=inner.sql), to=DOUBLE.copy()), Kind.NUMBER, size=(0, 40)
    )


def _substring(node: exp.Expr, scope: Scope) -> TypedExpression:
    check_arguments(node, "this", "start", "length")
    # From 0 on or from behind, or a negative length: engines disagree on these.
    start, length = (node.args.get(name) for name in ("start", "length"))
    first = 1 if start is None else _known_whole(start, scope, 1, MAX_TEXT_LENGTH)
    some = None if length is None else _known_whole(length, scope, 0, MAX_TEXT_LENGTH)
    inner = _text_of(node.this, scope)
    # To its end, where no length is given; no text is a thousand times a million letters long.
    most = exp.Literal.number(_ALL if some is None else some)
    return TypedExpression(
        exp.Substring(this=inner.sql, start=exp.Literal.number(first), length=most), Kind.TEXT
    )


def _left(node: exp.Expr, scope: Scope) -> TypedExpression:
    return _substring(
        exp.Substring(this=node.this, start=exp.Literal.number(1), length=node.expression), scope
    )


def _joined(node: exp.Expr, scope: Scope) -> TypedExpression:
    parts = [
        _text_of(part, scope)
        for part in ((node.this, node.expression) if isinstance(node, exp.DPipe) else node.expressions)
    ]
    if isinstance(node, exp.Concat) and _passes_null(node, "coalesce"):
        empty = text_literal("")
        parts = [replace(part, sql=exp.Coalesce(this=part.sql, expressions=[empty.copy()])) for part in parts]
    total = parts[0].sql
    for part in parts[1:]:
        both = exp.DPipe(this=total, expression=part.sql, safe=True)
        # Doubled again and again a text would be longer than the engine bears, on some rows only.
        total = exp.Substring(
            this=both, start=exp.Literal.number(1), length=exp.Literal.number(MAX_TEXT_LENGTH)
        )
    return TypedExpression(total, Kind.TEXT)


def _starts(node: exp.Expr, scope: Scope) -> TypedExpression:
    inner, prefix = _text_of(node.this, scope), _text_of(node.expression, scope)
    return make_condition(exp.StartsWith(this=inner.sql, expression=prefix.sql), inner, prefix)


def _moment_of(node: exp.Expr, scope: Scope) -> TypedExpression:
    inner = compile_expression(node, scope)
    if inner.kind is Kind.DATE:
        return inner
    return as_kind(inner, Kind.TIMESTAMP, "an operand")


def _part(name: str, node: exp.Expr, scope: Scope) -> TypedExpression:
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
    sql = exp.Cast(this=exp.Extract(this=exp.Var(this=part.upper()), expression=inner.sql), to=DOUBLE.copy())
    keys = None if known is None else (*(float(value) for value in known), *null_key(inner))
    bounds = None if known is None else (Fraction(known[0]), Fraction(known[-1]))
    return TypedExpression(sql, Kind.NUMBER, bounds, keys, size=(0, 14), is_complete=keys is not None)


def _extract(node: exp.Expr, scope: Scope) -> TypedExpression:
    return _part(node.this.name.lower(), node.expression, scope)


def _named_part(name: str) -> Callable[[exp.Expr, Scope], TypedExpression]:
    def build(node: exp.Expr, scope: Scope) -> TypedExpression:
        check_arguments(node, "this")
        return _part(name, node.this, scope)

    return build


def _truncated(node: exp.Expr, scope: Scope) -> TypedExpression:
    unit = node.args["unit"].name.lower()
    if unit not in _TRUNCATED or node.args.get("zone"):
        raise InvalidInput(
            f"dates are not cut to a {unit[:20]} here",
            why="engines disagree on it",
            fix=f"use one of: {', '.join(_TRUNCATED)}",
        )
    inner = _moment_of(node.this, scope)
    if unit in {"hour", "minute"}:
        inner = as_kind(inner, Kind.TIMESTAMP, "an operand")
    cut = exp.TimestampTrunc(this=inner.sql, unit=exp.Var(this=unit.upper()))
    return TypedExpression(exp.Cast(this=cut, to=exp.DataType.build(SQL_TYPES[inner.kind])), inner.kind)


def _days_between(node: exp.Expr, scope: Scope) -> TypedExpression:
    unit = node.args.get("unit")
    if unit is not None and unit.name.lower() != "day":
        raise InvalidInput(
            "dates are subtracted in days", why="engines disagree on the rest", fix="use 'day'"
        )
    left, right = (
        as_kind(compile_expression(part, scope), Kind.DATE, "a date") for part in (node.this, node.expression)
    )
    days = exp.DateDiff(this=left.sql, expression=right.sql, unit=exp.Var(this="DAY"))
    return TypedExpression(exp.Cast(this=days, to=DOUBLE.copy()), Kind.NUMBER, size=(0, 22))


def _cast(node: exp.Expr, scope: Scope) -> TypedExpression:
    check_arguments(node, "this", "to", "_type")
    return cast_to(compile_expression(node.this, scope), node.args["to"])


Builder = Callable[[exp.Expr, Scope], TypedExpression]

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
    exp.Neg: _unary(number_functions.negated),
    exp.Floor: _unary(number_functions.floor),
    exp.Ceil: _unary(number_functions.ceiling),
    exp.Abs: _unary(number_functions.absolute),
    exp.Round: _round,
    exp.Sqrt: _guarded(exp.GTE),
    exp.Ln: _guarded(exp.GT),
    exp.Exp: _exponential,
    exp.Sign: _unary(number_functions.sign),
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
    exp.Lower: _text_function(ascii_lower),
    exp.Upper: _text_function(ascii_upper),
    exp.Trim: _text_function(lambda text: exp.Trim(this=text, expression=text_literal(" "))),
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
