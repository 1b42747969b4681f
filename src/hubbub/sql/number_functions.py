"""Arithmetic on doubles that never overflows: no engine raises, and all return the same double.

The magnitude of every number is known in advance: it is 0, or between 2^low and 2^high. Where a sum, a
product or a quotient could overflow, its operands are brought into range first.

Proof: docs/proofs/bounding.md, "Rows"
"""

import math
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction

import sqlglot
from sqlglot import exp

from hubbub.engines.schema import Bounds, Kind, Magnitude
from hubbub.engines.total_functions import (
    DOUBLE,
    MIN_DATETIME,
    SQL_TYPES,
    clamp_magnitude,
    drop_zero_sign,
    format_double,
    format_number,
    number_literal,
    parse_text,
)
from hubbub.errors import InvalidInput, Unsupported
from hubbub.sql.scalar_types import (
    TypedExpression,
    as_kind,
    copy_expression,
    make_condition,
    number_constant,
    parenthesize,
    parse_datetime,
)
from hubbub.sql.value_parts import TINY

__all__ = [
    "absolute",
    "arithmetic",
    "as_column",
    "cast_to",
    "ceiling",
    "exact_sum",
    "extreme",
    "floor",
    "guarded",
    "limit_magnitude",
    "negated",
    "power",
    "quotient",
    "remainder",
    "rounded",
    "rounded_to_even",
    "sign",
    "square",
    "step_bits",
    "sum_per_unit",
    "truncated",
]

_STEPS = 2.0**62
_DOUBLES: Magnitude = (-1074, 1000)
_COLUMNS: Magnitude = (-1074, 400)
"""So large a column may be: the steps between any bounds are then doubles, too."""
_KEPT: Magnitude = (-200, 200)
"""What `clamp_magnitude` makes of it."""


def _is_within(size: Magnitude, limits: Magnitude) -> bool:
    return limits[0] <= size[0] and size[1] <= limits[1]


def limit_magnitude(number: TypedExpression, limits: Magnitude = _KEPT) -> TypedExpression:
    """Clamp the number if it can exceed the limits."""
    if number.kind is not Kind.NUMBER or _is_within(number.size, limits):
        return number
    if isinstance(number.value, Fraction):
        size = abs(number.value)
        end = 2.0 ** _KEPT[1] if number.value > 0 else -(2.0 ** _KEPT[1])
        return number_constant(end if size > 1 else 0.0)
    copy_expression(number.sql)
    return TypedExpression(
        clamp_magnitude(number.sql), Kind.NUMBER, number.bounds, number.keys, number.half, size=_KEPT
    )


def as_column(number: TypedExpression) -> TypedExpression:
    """The number in the range of table columns."""
    return limit_magnitude(number, _COLUMNS)


def _copy_number(number: TypedExpression) -> TypedExpression:
    """A copy of the expression, with its magnitude."""
    return replace(number, sql=copy_expression(number.sql))


def _union_magnitude(*sizes: Magnitude) -> Magnitude:
    return min(low for low, _ in sizes), max(high for _, high in sizes)


def _result_magnitude(kind: type[exp.Expr], left: Magnitude, right: Magnitude) -> Magnitude:
    if kind is exp.Mul:
        return left[0] + right[0], left[1] + right[1]
    if kind is exp.Div:
        return left[0] - right[1], left[1] - right[0]
    # A difference that is not 0 is a multiple of the last bit of the smaller.
    return max(min(left[0], right[0]) - 53, _DOUBLES[0]), max(left[1], right[1]) + 1


def _limit_operands(
    kind: type[exp.Expr], left: TypedExpression, right: TypedExpression
) -> tuple[TypedExpression, TypedExpression, Magnitude]:
    size = _result_magnitude(kind, left.size, right.size)
    if not _is_within(size, _DOUBLES):
        left, right = limit_magnitude(left), limit_magnitude(right)
        size = _result_magnitude(kind, left.size, right.size)
    return left, right, size


def arithmetic(kind: type[exp.Expr], left: TypedExpression, right: TypedExpression) -> TypedExpression:
    """A sum, a difference or a product."""
    bounds = _interval(kind, left.bounds, right.bounds)
    left, right, size = _limit_operands(kind, left, right)
    sql = kind(this=parenthesize(left.sql), expression=parenthesize(right.sql))
    return TypedExpression(sql, Kind.NUMBER, bounds, size=size)


def sum_per_unit(number: TypedExpression, *, is_mean: bool) -> TypedExpression:
    """The sum or the mean over the rows of one unit."""
    number = limit_magnitude(number, (-400, 400))
    copy_expression(number.sql)
    bits = step_bits(number.bounds)
    tree = sqlglot.parse_one(exact_sum("x", bits, is_mean=is_mean), read="duckdb")
    sql = tree.transform(lambda node: number.sql.copy() if isinstance(node, exp.Column) else node)
    bounds = number.bounds if is_mean else None
    return TypedExpression(sql, Kind.NUMBER, bounds, size=(-bits - 64, 84 - bits))


def step_bits(bounds: Bounds | None) -> int:
    """Number of fractional bits: 20; or, where bounds are known, as many as give the larger bound 45 bits."""
    most = max(map(abs, bounds)) if bounds is not None else Fraction(2**25)
    most = min(max(most, Fraction(1, 2**400)), Fraction(2**400))  # of constants it can be beyond all doubles
    return max(-250, min(250, 45 - math.ceil(math.log2(most))))


def exact_sum(x: str, bits: int, *, is_mean: bool = False) -> str:
    """The sum of a column of doubles in whole steps of 2^-bits, independent of the order of rows.

    A value has at most 2^62 steps, and the sum 2^83; it is rounded to a double once. NULL for no values.
    """
    # What is so small that the product would be no double is no step.
    value = x if bits >= 0 else f"CASE WHEN ABS({x}) < {TINY} THEN 0.0e0 ELSE {x} END"
    steps = f"FLOOR(LEAST(GREATEST({value} * {format_double(2.0**bits)}, {-_STEPS!r}), {_STEPS!r}) + 0.5e0)"
    whole = f"SUM(CASE WHEN {x} IS NOT NULL THEN CAST(CAST({steps} AS BIGINT) AS HUGEINT) END)"
    clamped = f"CAST(LEAST(GREATEST({whole}, {-(2**83)}), {2**83}) AS HUGEINT)"
    # In two parts, each of them a double: only their sum is rounded.
    large = f"CAST(CAST({clamped} // {2**30} AS BIGINT) AS DOUBLE) * {format_double(2.0**30)}"
    small = f"CAST(CAST({clamped} % {2**30} AS BIGINT) AS DOUBLE)"
    total = f"({large} + {small}) * {format_double(2.0**-bits)}"
    if is_mean:
        total = f"{total} / CAST(COUNT({x}) AS DOUBLE)"
    return f"CASE WHEN COUNT({x}) > 0 THEN {total} END"


def _interval(kind: type[exp.Expr], left: Bounds | None, right: Bounds | None) -> Bounds | None:
    if left is None or right is None:
        return None
    if kind is exp.Add:
        return left[0] + right[0], left[1] + right[1]
    if kind is exp.Sub:
        return left[0] - right[1], left[1] - right[0]
    corners = [a * b for a in left for b in right]
    return min(corners), max(corners)


def quotient(left: TypedExpression, right: TypedExpression) -> TypedExpression:
    """A quotient; NULL if the divisor is 0."""
    bounds = None
    if left.bounds is not None and right.is_literal and right.value:
        assert isinstance(right.value, Fraction)
        ends = sorted(end / right.value for end in left.bounds)
        bounds = (ends[0], ends[1])
    left, right, size = _limit_operands(exp.Div, left, right)
    below = exp.Nullif(this=right.sql, expression=exp.Literal.number(0))
    sql = exp.Div(this=parenthesize(left.sql), expression=below, typed=False, safe=False)
    return TypedExpression(sql, Kind.NUMBER, bounds, size=size)


def remainder(left: TypedExpression, right: TypedExpression) -> TypedExpression:
    """The remainder with the sign of the dividend: sign(a)·(|a| − |b|·⌊|a|/|b|⌋).

    Exact for whole numbers below 2^52, and the same on every engine for all.
    """
    left, right = limit_magnitude(left), limit_magnitude(right)
    a, b = absolute(left), absolute(right)
    times = floor(quotient(_copy_number(a), _copy_number(b)))
    rest = arithmetic(exp.Sub, a, arithmetic(exp.Mul, b, times))
    return arithmetic(exp.Mul, sign(_copy_number(left)), rest)


def negated(number: TypedExpression) -> TypedExpression:
    """The negated number."""
    if number.is_literal and isinstance(number.value, Fraction):
        return number_constant(float(-number.value))
    bounds = None if number.bounds is None else (-number.bounds[1], -number.bounds[0])
    return TypedExpression(exp.Neg(this=exp.Paren(this=number.sql)), Kind.NUMBER, bounds, size=number.size)


def floor(number: TypedExpression) -> TypedExpression:
    """The largest integer not above."""
    low_high = number.bounds
    bounds = low_high and (Fraction(math.floor(low_high[0])), Fraction(math.floor(low_high[1])))
    return TypedExpression(exp.Floor(this=number.sql), Kind.NUMBER, bounds, size=_whole(number.size))


def ceiling(number: TypedExpression) -> TypedExpression:
    """The least integer not below."""
    low_high = number.bounds
    bounds = low_high and (Fraction(math.ceil(low_high[0])), Fraction(math.ceil(low_high[1])))
    return TypedExpression(exp.Ceil(this=number.sql), Kind.NUMBER, bounds, size=_whole(number.size))


def _whole(size: Magnitude) -> Magnitude:
    return 0, max(size[1], 0) + 1


def absolute(number: TypedExpression) -> TypedExpression:
    """The absolute value."""
    bounds = None
    if number.bounds is not None:
        low, high = number.bounds
        bounds = (max(Fraction(0), low, -high), max(abs(low), abs(high)))
    return TypedExpression(exp.Abs(this=number.sql), Kind.NUMBER, bounds, size=number.size)


def rounded(number: TypedExpression, digits: int) -> TypedExpression:
    """Rounds to `digits` decimal places, halves away from zero: as DuckDB does, on every engine."""
    power = number_constant(10.0 ** abs(digits))
    scale, back = (exp.Mul, exp.Div) if digits >= 0 else (exp.Div, exp.Mul)
    whole = _nearest(_scaled(scale, number, power)) if digits else _nearest(number)
    return _scaled(back, whole, power) if digits else whole


def _scaled(kind: type[exp.Expr], number: TypedExpression, power: TypedExpression) -> TypedExpression:
    """Multiply by a power of ten, or divide by it."""
    left, right, size = _limit_operands(kind, _in_parentheses(number), power)
    how = {"typed": False, "safe": False} if kind is exp.Div else {}
    sql = kind(this=left.sql, expression=right.sql.copy(), **how)
    return TypedExpression(sql, Kind.NUMBER, size=size)


def _nearest(number: TypedExpression) -> TypedExpression:
    """The nearest integer, halves away from zero."""
    # The largest double below ½: with ½ itself, what is just below a half would be rounded up to a whole.
    number = limit_magnitude(number)
    size = absolute(_in_parentheses(number))
    whole = floor(arithmetic(exp.Add, size, number_constant(math.nextafter(0.5, 0))))
    return arithmetic(exp.Mul, sign(_copy_number(number)), whole)


def rounded_to_even(number: TypedExpression) -> TypedExpression:
    """The nearest integer, halves to even: as DuckDB casts doubles to integers.

    ⌊x/2 + ¼⌋ + ⌈x/2 − ¼⌉: one of them takes a step at 2k − ½, the other at 2k + ½, neither at 2k + 1 itself.
    """
    half = arithmetic(exp.Mul, _in_parentheses(number), number_constant(0.5))
    one = floor(arithmetic(exp.Add, half, number_constant(0.25)))
    two = ceiling(arithmetic(exp.Sub, _copy_number(half), number_constant(0.25)))
    return arithmetic(exp.Add, one, two)


def truncated(number: TypedExpression) -> TypedExpression:
    """The number truncated towards zero."""
    low_high = number.bounds
    bounds = low_high and (Fraction(math.trunc(low_high[0])), Fraction(math.trunc(low_high[1])))
    copy_expression(number.sql)
    below = exp.LT(this=parenthesize(number.sql), expression=number_constant(0.0).sql)
    ifs = [exp.If(this=below, true=exp.Ceil(this=number.sql.copy()))]
    sql = exp.Case(ifs=ifs, default=exp.Floor(this=number.sql.copy()))
    return TypedExpression(sql, Kind.NUMBER, bounds, size=_whole(number.size))


def _in_parentheses(number: TypedExpression) -> TypedExpression:
    """Always add parentheses."""
    return TypedExpression(exp.Paren(this=number.sql), Kind.NUMBER, number.bounds, size=number.size)


def sign(number: TypedExpression) -> TypedExpression:
    """−1, 0 or 1 as a double: the engine's own is a small integer, and products of a few overflow."""
    sql = exp.Cast(this=exp.Sign(this=number.sql), to=DOUBLE.copy())
    return TypedExpression(sql, Kind.NUMBER, (Fraction(-1), Fraction(1)), size=(0, 0))


def square(number: TypedExpression) -> TypedExpression:
    """The number times itself."""
    product = arithmetic(exp.Mul, _in_parentheses(number), _in_parentheses(_copy_number(number)))
    sql = exp.Mul(this=product.sql.this.copy(), expression=product.sql.this.copy())
    bounds = product.bounds and (max(Fraction(0), product.bounds[0]), product.bounds[1])
    return TypedExpression(sql, Kind.NUMBER, bounds, size=product.size)


def guarded(
    number: TypedExpression,
    make: Callable[[exp.Expr], exp.Expr],
    compare: type[exp.Expr],
    *,
    is_root: bool = False,
) -> TypedExpression:
    """A function of numbers above 0 (or from 0 on); NULL elsewhere. Results other than roots are clamped.

    The guard is inside the argument, because an engine may evaluate a branch of CASE that it does not take.
    """
    inside = compare(this=number.sql, expression=exp.Literal.number(0))
    sql = make(exp.Case(ifs=[exp.If(this=inside, true=copy_expression(number.sql))]))
    if is_root:
        low, high = number.size
        return TypedExpression(sql, Kind.NUMBER, size=(low // 2 - 1, high // 2 + 1))
    copy_expression(sql)
    return TypedExpression(clamp_magnitude(sql), Kind.NUMBER, size=_KEPT)


def power(base: TypedExpression, exponent: TypedExpression) -> TypedExpression:
    """One number to the power of another; NULL if that is not finite.

    Of a negative number it is known for whole exponents; of 0, for those from 0 on.
    """
    base, exponent = limit_magnitude(base), limit_magnitude(exponent)
    zero = number_constant(0.0).sql
    x, n = (parenthesize(copy_expression(each.sql)) for each in (base, exponent))
    size = guarded(
        absolute(_in_parentheses(base)),
        lambda part: exp.Pow(this=part, expression=copy_expression(exponent.sql)),
        exp.GT,
    )
    opposite = exp.Neg(this=exp.Paren(this=copy_expression(size.sql)))
    halves = exp.Mul(this=n.copy(), expression=number_constant(0.5).sql)
    cases = (
        (exp.GT(this=x, expression=zero), size.sql),
        (exp.And(this=_same(x, zero), expression=exp.GT(this=n, expression=zero.copy())), zero),
        (exp.And(this=_same(x, zero), expression=_same(n, zero)), number_constant(1.0).sql),
        (_same(x, zero), exp.Cast(this=exp.Null(), to=DOUBLE.copy())),
        (_same(halves, exp.Floor(this=halves.copy())), size.sql.copy()),
        (_same(n, exp.Floor(this=n.copy())), opposite),
    )
    sql = exp.Case(ifs=[exp.If(this=test.copy(), true=value.copy()) for test, value in cases])
    return TypedExpression(sql, Kind.NUMBER, size=_union_magnitude(size.size, (0, 0)))


def _same(left: exp.Expr, right: exp.Expr) -> exp.Expr:
    return exp.EQ(this=left.copy(), expression=right.copy())


def extreme(kind: type[exp.Expr], parts: list[TypedExpression], *, passes_null: bool) -> TypedExpression:
    """LEAST and GREATEST, of those parts that are not NULL; or NULL if any part is."""
    is_least = kind is exp.Least
    pick, other = (min, max) if is_least else (max, min)
    others = [part.sql for part in parts[1:]]
    # Which all engines do; else the parser's writer would write a CASE of its own around it.
    sql: exp.Expr = kind(this=parts[0].sql, expressions=others, ignore_nulls=True)
    if not passes_null:
        missing = exp.or_(
            *(exp.Is(this=exp.Paren(this=copy_expression(part.sql)), expression=exp.Null()) for part in parts)
        )
        sql = exp.Case(ifs=[exp.If(this=exp.Not(this=exp.Paren(this=missing)), true=sql)])
    ends = [part.bounds or part.half for part in parts]
    # The least of several is above the low ends if all are known, and below the high end of each that is sure
    # to be there.
    near, far = (1, 0) if is_least else (0, 1)
    there = [end[far] for end in ends]
    sure = [
        end[near] for end, part in zip(ends, parts, strict=True) if part.value is not None or not passes_null
    ]
    every = [end[near] for end in ends]
    heres = [end for end in sure if end is not None]
    if None not in every:
        heres.append(other(end for end in every if end is not None))
    here = pick(heres) if heres else None
    behind = pick(end for end in there if end is not None) if None not in there else None
    low, high = (behind, here) if is_least else (here, behind)
    size = _union_magnitude(*(part.size for part in parts))
    if low is not None and high is not None:
        return TypedExpression(sql, Kind.NUMBER, (low, high), size=size)
    return TypedExpression(sql, Kind.NUMBER, half=(low, high), size=size)


# Casts: a value of one kind as another, NULL where the engine's own cast would fail.
#
# A double becomes an integer as DuckDB makes one, halves to the even one; where a text is read as an integer,
# or a number becomes a decimal, halves are rounded away from zero. What is beyond the type is NULL.
#
# Proved in docs/proofs/bounding.md, "Rows

_WHOLE = {
    "TINYINT": (-(2**7), 2**7),
    "SMALLINT": (-(2**15), 2**15),
    "INT": (-(2**31), 2**31),
    "BIGINT": (-(2**63), 2**63),
    "INT128": (-(2**127), 2**127),
    "UINT": (0, 2**32),
    "UBIGINT": (0, 2**64),
}
"""The least integer of each type, and the first that is too large."""
_CASTS = {
    # A FLOAT is a double here: no engine's own single precision is used.
    **dict.fromkeys(("DOUBLE", "FLOAT", "DECIMAL", *_WHOLE), Kind.NUMBER),
    **dict.fromkeys(("VARCHAR", "TEXT", "CHAR", "NVARCHAR"), Kind.TEXT),
    "BOOLEAN": Kind.BOOLEAN,
    "DATE": Kind.DATE,
    **dict.fromkeys(("TIMESTAMP", "DATETIME", "TIMESTAMPNTZ"), Kind.TIMESTAMP),
}
_MAX_SCALE = 15


def cast_to(inner: TypedExpression, to: exp.Expr) -> TypedExpression:
    """Cast the value to this type."""
    name = to.this.name if isinstance(to, exp.DataType) and not to.args.get("nested") else ""
    kind = _CASTS.get(name)
    if kind is None:
        raise InvalidInput(
            "a cast is to a type that is not known here",
            why="only casts that can be done safely on any row are",
            fix="cast to DOUBLE, INTEGER, VARCHAR, BOOLEAN, DATE or TIMESTAMP",
        )
    if name == "DECIMAL":
        return _decimal(inner, *_precision(to))
    if inner.kind is Kind.BOOLEAN and kind is Kind.NUMBER:
        return as_kind(inner, kind, "a boolean")
    if inner.is_literal and isinstance(inner.value, str) and kind in {Kind.DATE, Kind.TIMESTAMP}:
        return parse_datetime(inner.value, kind)
    cast = inner if inner.kind is kind else _converted(inner, kind)
    if name in _WHOLE:
        # A literal such as 2.5 is a decimal to DuckDB.
        return _whole_in_range(
            cast, *_WHOLE[name], to_even=inner.kind is Kind.NUMBER and not inner.is_literal
        )
    return cast


def _whole_in_range(number: TypedExpression, first: int, beyond: int, *, to_even: bool) -> TypedExpression:
    whole = rounded_to_even(number) if to_even else rounded(number, 0)
    # −128.5 is even as −128, 127.5 as 128.
    least = exp.GTE if to_even or first < -(2**53) else exp.GT
    inside = exp.And(
        this=least(this=parenthesize(copy_expression(number.sql)), expression=number_literal(first - 0.5)),
        expression=exp.LT(
            this=parenthesize(copy_expression(number.sql)), expression=number_literal(beyond - 0.5)
        ),
    )
    return _only_if(inside, whole, number, 1)


def _decimal(inner: TypedExpression, precision: int, scale: int) -> TypedExpression:
    """Rounds to `scale` decimal places; NULL where there are too many digits before the point."""
    if inner.kind is Kind.BOOLEAN or (inner.is_literal and inner.value is None):
        return as_kind(inner, Kind.NUMBER, "what is cast")
    if inner.kind is not Kind.NUMBER:
        raise Unsupported(
            f"a {inner.kind.value} is cast to a DECIMAL",
            why="its digits would be converted to a double first, which rounds halves differently",
            fix="write ROUND(CAST(… AS DOUBLE), 2)",
        )
    decimal = rounded(inner, scale)
    most = Fraction(10) ** (precision - scale) - Fraction(1, 2 * 10**scale)
    inside = exp.LT(this=exp.Abs(this=copy_expression(inner.sql)), expression=number_literal(most))
    return _only_if(inside, decimal, inner, Fraction(1, 10**scale))


def _only_if(
    inside: exp.Expr, result: TypedExpression, number: TypedExpression, off: Fraction | int
) -> TypedExpression:
    """NULL unless the number is in range; the result differs from it by at most this."""
    bounds = number.bounds and (number.bounds[0] - off, number.bounds[1] + off)
    return replace(result, sql=exp.Case(ifs=[exp.If(this=inside, true=result.sql)]), bounds=bounds)


def _precision(to: exp.Expr) -> tuple[int, int]:
    """Precision and scale of a DECIMAL: 18 and 3 by default."""
    texts = [param.this.name if isinstance(param, exp.DataTypeParam) else "" for param in to.expressions]
    digits = [int(each) if each.isdigit() else -1 for each in texts] or [18, 3]
    precision, scale = digits[0], digits[1] if len(digits) > 1 else 0
    if len(digits) > 2 or not 1 <= precision <= 38 or not 0 <= scale <= min(precision, _MAX_SCALE):
        raise Unsupported(
            "a DECIMAL has more digits than are known here",
            why=f"a double has no more than {_MAX_SCALE} behind the point that are its own",
            fix="write DECIMAL(18, 3), or ROUND",
        )
    return precision, scale


def _converted(inner: TypedExpression, kind: Kind) -> TypedExpression:
    """The value converted to another kind; NULL if that is impossible."""
    if inner.is_literal and inner.value is None:
        return as_kind(inner, kind, "NULL")
    if kind is Kind.TEXT:
        if inner.kind is Kind.NUMBER:
            copy_expression(inner.sql)
            return TypedExpression(format_number(drop_zero_sign(inner.sql)), kind)
        if inner.kind is Kind.OPAQUE:
            raise Unsupported(
                "a column of an unknown type is cast",
                why="every engine writes its values differently",
                fix="declare it in {types}, as text, number, boolean, date or timestamp",
            )
        return TypedExpression(exp.Cast(this=inner.sql, to=exp.DataType.build("VARCHAR")), kind)
    if inner.kind is Kind.TEXT:
        copy_expression(inner.sql)
        return TypedExpression(parse_text(inner.sql, kind), kind)
    if inner.kind in MIN_DATETIME and kind in MIN_DATETIME:
        return TypedExpression(exp.Cast(this=inner.sql, to=exp.DataType.build(SQL_TYPES[kind])), kind)
    if inner.kind is Kind.NUMBER and kind is Kind.BOOLEAN:
        return make_condition(exp.NEQ(this=parenthesize(inner.sql), expression=number_literal(0)), inner)
    raise InvalidInput(
        f"a {inner.kind.value} is cast to a {kind.value}",
        why="engines disagree on what that would be",
        fix="take parts of dates with EXTRACT, and differences with DATE_DIFF",
    )
