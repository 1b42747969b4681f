"""Row-level expressions: an allow-list, each rebuilt in a form that no row can make fail.

The user's SQL is never passed on. Every node is looked up in a list, its operands are built first, and a
new node is made of them; a node that is not in the list is refused by name. All numbers are doubles, and
their arithmetic gives doubles; a cast that fails gives NULL. So an expression is a function of its one
row, total, free of side effects, and the same on every engine.

Proof: docs/proofs/bounding.md, "Rows"
"""

import math
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from functools import partial

from sqlglot import exp

from hubbub.engines.schema import Kind
from hubbub.engines.total_functions import text_literal
from hubbub.errors import InvalidInput, Unsupported
from hubbub.sql import date_functions, number_functions, text_functions
from hubbub.sql.casts import cast_to
from hubbub.sql.text_functions import as_whole, known_whole, passes_null
from hubbub.sql.typed_expressions import (
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

_MAX_NODES = 10_000
_MAX_DIGITS = 15
_WIDEST = 2**200


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
    resolved = scope.resolve(node) if scope.resolve is not None else None
    if resolved is not None:
        return resolved
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
    return scope.find(node.name, node.table or None, is_quoted=bool(getattr(node.this, "quoted", False)))


def _paren(node: exp.Expr, scope: Scope) -> TypedExpression:
    inner = compile_expression(node.this, scope)
    return replace(inner, sql=exp.Paren(this=inner.sql))


# Kinds


def _number_of(node: exp.Expr, scope: Scope) -> TypedExpression:
    return as_kind(compile_expression(node, scope), Kind.NUMBER, "an operand")


def _truth(node: exp.Expr, scope: Scope) -> TypedExpression:
    return as_kind(compile_expression(node, scope), Kind.BOOLEAN, "a condition")


# Arithmetic


def _arithmetic(node: exp.Expr, scope: Scope) -> TypedExpression:
    if isinstance(node, (exp.Add, exp.Sub)) and any(
        isinstance(part, exp.Interval) for part in (node.this, node.expression)
    ):
        return _moved_by_interval(node, scope)
    # Each operand is compiled once: twice at each level would take 2^depth steps.
    left, right = (compile_expression(part, scope) for part in (node.this, node.expression))
    if left.kind is Kind.DATE and isinstance(node, (exp.Add, exp.Sub)):
        return _moved_by_days(left, right, -1 if isinstance(node, exp.Sub) else 1)
    kind = _PLAIN_ARITHMETIC.get(type(node), type(node))
    first, second = (as_kind(operand, Kind.NUMBER, "an operand") for operand in (left, right))
    return number_functions.arithmetic(kind, first, second)


_PLAIN_ARITHMETIC: dict[type[exp.Expr], type[exp.Expr]] = {
    exp.SafeAdd: exp.Add,
    exp.SafeSubtract: exp.Sub,
    exp.SafeMultiply: exp.Mul,
}
"""SAFE_ADD is NULL where + would fail: as + is here."""


def _moved_by_interval(node: exp.Expr, scope: Scope) -> TypedExpression:
    """A moment plus or minus an interval, or an interval plus a moment."""
    left, right, sign = node.this, node.expression, -1 if isinstance(node, exp.Sub) else 1
    compile_part = partial(compile_expression, scope=scope)
    if isinstance(left, exp.Interval) and sign > 0:
        left, right = right, left
    if isinstance(left, exp.Interval):
        raise unsupported_here(left)
    count, unit = date_functions.read_interval(right, None, compile_part)
    moment = compile_part(left)
    if moment.kind is not Kind.DATE:
        moment = as_kind(moment, Kind.TIMESTAMP, "an operand")
    return date_functions.shift(moment, sign * count, unit)


def _moved_by_days(moment: TypedExpression, other: TypedExpression, sign: int) -> TypedExpression:
    """A date plus or minus a number of days, or minus a date."""
    if other.kind is Kind.DATE and sign < 0:
        return date_functions.subtract_dates(moment, other, "day")
    days = as_whole(other, -1_000_000, 1_000_000)
    return date_functions.shift(moment, sign * days, "day", is_date=True)


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
    digits = (
        0
        if decimals is None
        else known_whole(decimals, partial(compile_expression, scope=scope), -_MAX_DIGITS, _MAX_DIGITS)
    )
    return number_functions.rounded(_number_of(node.this, scope), digits)


def _guarded(compare: type[exp.Expr]) -> Callable[[exp.Expr, Scope], TypedExpression]:
    """A function of numbers above 0, or from 0 on; NULL elsewhere."""

    def build(node: exp.Expr, scope: Scope) -> TypedExpression:
        check_arguments(node, "this")
        inner = _number_of(node.this, scope)
        is_root = isinstance(node, exp.Sqrt)
        grows = math.sqrt if is_root else math.log
        return number_functions.guarded(
            inner, lambda part: type(node)(this=part), compare, is_root=is_root, grows=grows
        )

    return build


def _exponential(node: exp.Expr, scope: Scope) -> TypedExpression:
    check_arguments(node, "this")
    return number_functions.exponential(_number_of(node.this, scope))


def _logarithm(node: exp.Expr, scope: Scope) -> TypedExpression:
    """LOG(x) to the base of 10, as DuckDB has it, or LOG(base, x)."""
    check_arguments(node, "this", "expression")
    if node.args.get("expression") is None:
        return number_functions.logarithm(_number_of(node.this, scope), 10.0)
    base = compile_expression(node.this, scope)
    if not base.is_literal or not isinstance(base.value, Fraction) or base.value <= 1:
        raise InvalidInput(
            "the base of a logarithm is not a literal above 1",
            why="with a base taken from a row, the logarithm could be anything",
            fix="write LOG(2, x), LN(x) or LOG10(x)",
        )
    return number_functions.logarithm(_number_of(node.expression, scope), float(base.value))


def _bucket(node: exp.Expr, scope: Scope) -> TypedExpression:
    check_arguments(node, "this", "min_value", "max_value", "num_buckets")
    ends = [compile_expression(node.args.get(name), scope) for name in ("min_value", "max_value")]
    low, high = (end.value if end.is_literal else None for end in ends)
    if not isinstance(low, Fraction) or not isinstance(high, Fraction) or not -_WIDEST < low < high < _WIDEST:
        raise InvalidInput(
            "the range of WIDTH_BUCKET is not two literals, the smaller one first",
            why="its parts are public",
            fix="write WIDTH_BUCKET(x, 0, 100, 10)",
        )
    compile_part = partial(compile_expression, scope=scope)
    count = known_whole(node.args["num_buckets"], compile_part, 1, 10_000)
    return number_functions.bucket(_number_of(node.this, scope), low, high, count)


def _truncated(node: exp.Expr, scope: Scope) -> TypedExpression:
    check_arguments(node, "this")
    return number_functions.truncated(_number_of(node.this, scope))


def _power(node: exp.Expr, scope: Scope) -> TypedExpression:
    left, right = _number_of(node.this, scope), _number_of(node.expression, scope)
    if right.is_literal and right.value == 2:
        return number_functions.square(left)
    return number_functions.power(left, right)


def _extreme(node: exp.Expr, scope: Scope) -> TypedExpression:
    parts = [_number_of(part, scope) for part in (node.this, *node.expressions)]
    return number_functions.extreme(type(node), parts, passes_null=passes_null(node, "ignore_nulls"))


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


# Casts


def _cast(node: exp.Expr, scope: Scope) -> TypedExpression:
    check_arguments(node, "this", "to", "_type")
    return cast_to(compile_expression(node.this, scope), node.args["to"])


Builder = Callable[[exp.Expr, Scope], TypedExpression]


def _bind(build: text_functions.Builder) -> Builder:
    """A builder of another module, which gets a function that compiles the parts."""
    return lambda node, scope: build(node, partial(compile_expression, scope=scope))


_BUILDERS: dict[type[exp.Expr], Builder] = {
    **{kind: _bind(build) for kind, build in text_functions.BUILDERS.items()},
    **{kind: _bind(build) for kind, build in date_functions.BUILDERS.items()},
    exp.Literal: _literal,
    exp.Boolean: _boolean,
    exp.Null: _null,
    exp.Column: _column,
    exp.Paren: _paren,
    **dict.fromkeys((exp.Add, exp.Sub, exp.Mul, *_PLAIN_ARITHMETIC), _arithmetic),
    **dict.fromkeys((exp.Div, exp.SafeDivide), _divided),
    exp.IntDiv: _whole_division,
    exp.Mod: _remainder,
    **dict.fromkeys((exp.Neg, exp.SafeNegate), _unary(number_functions.negated)),
    exp.Floor: _unary(number_functions.floor),
    exp.Ceil: _unary(number_functions.ceiling),
    exp.Abs: _unary(number_functions.absolute),
    exp.Round: _round,
    exp.Sqrt: _guarded(exp.GTE),
    exp.Ln: _guarded(exp.GT),
    exp.Exp: _exponential,
    exp.Log: _logarithm,
    exp.Trunc: _truncated,
    exp.WidthBucket: _bucket,
    exp.Sign: _unary(number_functions.sign),
    exp.Pow: _power,
    **dict.fromkeys((exp.Least, exp.Greatest), _extreme),
    **dict.fromkeys((exp.And, exp.Or), _connected),
    exp.Not: _not,
    **dict.fromkeys((exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE), _compared),
    exp.Between: _between,
    exp.Is: _is,
    exp.In: _in,
    exp.Case: _case,
    exp.If: _if,
    exp.Coalesce: _coalesce,
    exp.Nullif: _nullif,
    **dict.fromkeys((exp.Cast, exp.TryCast), _cast),
}
