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

from hubbub.engines.dialect import call
from hubbub.engines.schema import Bounds, Kind, Magnitude
from hubbub.engines.total_functions import (
    DOUBLE,
    clamp_magnitude,
    format_double,
    number_literal,
)
from hubbub.sql.complementary_parts import TINY
from hubbub.sql.typed_expressions import (
    TypedExpression,
    copy_expression,
    null_key,
    number_constant,
    parenthesize,
)

__all__ = [
    "absolute",
    "arithmetic",
    "as_column",
    "bucket",
    "ceiling",
    "exact_sum",
    "exponential",
    "extreme",
    "floor",
    "guarded",
    "limit_magnitude",
    "logarithm",
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
    if left.bounds is not None and right.bounds is not None and (right.bounds[0] > 0 or right.bounds[1] < 0):
        corners = [above / below for above in left.bounds for below in right.bounds]
        bounds = (min(corners), max(corners))
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
    return replace(arithmetic(exp.Mul, sign(_copy_number(left)), rest), bounds=_rest_bounds(left, right))


def _rest_bounds(left: TypedExpression, right: TypedExpression) -> Bounds | None:
    """A remainder is smaller than the divisor, and has the sign of the dividend."""
    if right.bounds is None:
        return None
    most = max(map(abs, right.bounds))
    low, high = left.bounds or (-most, most)
    bounds = (-min(most, max(-low, Fraction(0))), min(most, max(high, Fraction(0))))
    return bounds if bounds[0] < bounds[1] else None


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
    result = _scaled(back, whole, power) if digits else whole
    ends = number.bounds and tuple(_round_end(end, digits) for end in number.bounds)
    return replace(result, bounds=(ends[0], ends[1]) if ends else None)


def _round_end(end: Fraction, digits: int) -> Fraction:
    step = Fraction(10) ** -digits
    return (1 if end >= 0 else -1) * math.floor(abs(end) / step + Fraction(1, 2)) * step


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
    size = absolute(number).bounds
    return TypedExpression(
        sql, Kind.NUMBER, size and (size[0] * size[0], size[1] * size[1]), size=product.size
    )


def guarded(
    number: TypedExpression,
    make: Callable[[exp.Expr], exp.Expr],
    compare: type[exp.Expr],
    *,
    is_root: bool = False,
    grows: Callable[[float], float] | None = None,
) -> TypedExpression:
    """A function of numbers above 0 (or from 0 on); NULL elsewhere. Results other than roots are clamped.

    The guard is inside the argument, because an engine may evaluate a branch of CASE that it does not take.

    Args:
        number: the argument.
        make: makes the call.
        compare: the comparison with 0 that must hold.
        is_root: True for the square root, which is always in range.
        grows: the function itself, if it grows with its argument: then bounds follow from bounds.
    """
    inside = compare(this=number.sql, expression=exp.Literal.number(0))
    sql = make(exp.Case(ifs=[exp.If(this=inside, true=copy_expression(number.sql))]))
    bounds = None
    if grows is not None and number.bounds is not None:
        low, high = number.bounds
        bounds = _image((max(low, Fraction(0)), high) if compare is exp.GTE else (low, high), grows)
    if is_root:
        least, most = number.size
        return TypedExpression(sql, Kind.NUMBER, bounds, size=(least // 2 - 1, most // 2 + 1))
    copy_expression(sql)
    return TypedExpression(clamp_magnitude(sql), Kind.NUMBER, bounds, size=_KEPT)


def _image(bounds: Bounds, grows: Callable[[float], float]) -> Bounds | None:
    """The bounds of a growing function; None where it has none, as ln has at 0."""
    try:
        low, high = (Fraction(grows(float(end))) for end in bounds)
    except (ValueError, OverflowError, ZeroDivisionError):
        return None
    return low, high


def exponential(number: TypedExpression) -> TypedExpression:
    """The number e to the power of another, clamped."""
    power_of = TypedExpression(exp.Exp(this=number.sql), Kind.NUMBER, size=(-2000, 2000))
    bounds = None if number.bounds is None else _image(number.bounds, math.exp)
    return replace(limit_magnitude(power_of), bounds=bounds)


def logarithm(number: TypedExpression, base: float) -> TypedExpression:
    """The logarithm to the base of 10, 2, or another number above 1; NULL from 0 downwards."""
    own = {10.0: ("LOG10", math.log10), 2.0: ("LOG2", math.log2)}.get(base)
    if own is None:
        natural = guarded(number, lambda part: exp.Ln(this=part), exp.GT, grows=math.log)
        return quotient(natural, number_constant(math.log(base)))
    name, grows = own
    return guarded(number, lambda part: call(name, part), exp.GT, grows=grows)


def bucket(number: TypedExpression, low: Fraction, high: Fraction, count: int) -> TypedExpression:
    """The number of the part of a range, cut into equal ones, that a number is in.

    0 below the range; one more than there are parts from its end on.
    """
    copy_expression(number.sql)
    first, last = number_literal(low), number_literal(high)
    normal = limit_magnitude(_copy_number(number)).sql  # the quotient of what is tiny would be no double
    clamped = exp.Greatest(this=normal, expressions=[first.copy()], ignore_nulls=True)
    inside: exp.Expr = exp.Least(this=clamped, expressions=[last.copy()], ignore_nulls=True)
    share = exp.Div(
        this=exp.Paren(this=exp.Sub(this=inside, expression=first.copy())),
        expression=number_literal(high - low),
        typed=False,
        safe=False,
    )
    place = exp.Floor(this=exp.Mul(this=share, expression=number_literal(count)))
    whole = exp.Least(this=place, expressions=[number_literal(count - 1)], ignore_nulls=True)
    x = parenthesize(number.sql)
    ifs = [
        exp.If(this=exp.LT(this=x.copy(), expression=first), true=number_literal(0)),
        exp.If(this=exp.GTE(this=x.copy(), expression=last), true=number_literal(count + 1)),
        exp.If(
            this=exp.Not(this=exp.Is(this=exp.Paren(this=x.copy()), expression=exp.Null())),
            true=exp.Add(this=whole, expression=number_literal(1)),
        ),
    ]
    keys = (*(float(each) for each in range(count + 2)), *null_key(number))
    bounds = (Fraction(0), Fraction(count + 1))
    return TypedExpression(exp.Case(ifs=ifs), Kind.NUMBER, bounds, keys, size=(0, 40), is_complete=True)


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
    bounds = _power_bounds(base.bounds, exponent)
    return TypedExpression(sql, Kind.NUMBER, bounds, size=_union_magnitude(size.size, (0, 0)))


def _power_bounds(base: Bounds | None, exponent: TypedExpression) -> Bounds | None:
    """Where the exponent is written out and positive: the power grows, or that of the absolute value does."""
    if base is None or not exponent.is_literal or not isinstance(exponent.value, Fraction):
        return None
    number = exponent.value
    low, high = base
    if number <= 0 or number > 1000:
        return None
    if number.denominator != 1:
        low, high = max(low, Fraction(0)), max(high, Fraction(0))
    elif number % 2 == 0:
        low, high = max(Fraction(0), low, -high), max(abs(low), abs(high))
    return _image((low, high), lambda end: math.copysign(abs(end) ** float(number), end))


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
