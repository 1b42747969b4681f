"""Casts: a value of one kind as another, NULL where the engine's own cast would fail.

A double becomes an integer as DuckDB makes one, halves to the even one; where a text is read as an integer,
or a number becomes a decimal, halves are rounded away from zero. What is beyond the type is NULL.

Proof: docs/proofs/bounding.md, "Rows"
"""

from dataclasses import replace
from fractions import Fraction

from sqlglot import exp

from hubbub.engines.schema import Kind
from hubbub.engines.total_functions import (
    MIN_DATETIME,
    SQL_TYPES,
    drop_zero_sign,
    format_number,
    number_literal,
    parse_text,
)
from hubbub.errors import InvalidInput, Unsupported
from hubbub.sql.number_functions import rounded, rounded_to_even
from hubbub.sql.typed_expressions import (
    TypedExpression,
    as_kind,
    copy_expression,
    make_condition,
    parenthesize,
    parse_datetime,
)

__all__ = ["cast_to"]

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
            "a cast names a type that is not supported here",
            why="only casts that are safe on every row are supported",
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
            "a DECIMAL has more digits than are supported here",
            why=f"a double has at most {_MAX_SCALE} exact digits after the point",
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
        why="engines disagree on the result",
        fix="take parts of dates with EXTRACT, and differences with DATE_DIFF",
    )
