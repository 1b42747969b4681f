"""Outputs: expressions over what was released, with intervals carried along. It costs nothing more.

Values are arrays, one element a group. An expression of several aggregates takes each one's interval at a
confidence so much higher that all hold at once, and computes with their ends.

Proof: docs/proofs/intervals.md, "Outputs"
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlglot import exp

from hubbub.errors import InvalidInput, Unsupported
from hubbub.queries.expressions import name_of
from hubbub.queries.measures import Estimate, Floats
from hubbub.queries.query import Output, Query
from hubbub.tables.schema import Key, Kind

__all__ = ["Shown", "check_outputs", "shown"]

Given = Callable[[int, Fraction], Estimate]
"""The estimate of an aggregate, at a confidence."""


@dataclass(frozen=True)
class Shown:
    """A column of the answer: keys, or values with their interval."""

    name: str
    values: NDArray[Any]
    low: Floats | None = None
    high: Floats | None = None


def check_outputs(query: Query) -> None:
    """Refuse, before anything is charged, what could not be computed afterwards."""
    none = Estimate(*(np.ones(1) for _ in range(3)))
    groups = [tuple(_SAMPLES[key.kind] for key in query.keys)]
    shown(query, groups, lambda _place, _confidence: none, Fraction(1, 2))


_SAMPLES: dict[Kind, Key] = {
    Kind.NUMBER: 1.0,
    Kind.TEXT: "a",
    Kind.BOOLEAN: True,
    Kind.DATE: date(2000, 1, 1),
    Kind.TIMESTAMP: datetime(2000, 1, 1),  # noqa: DTZ001 - the engine's have no zone
}


def shown(query: Query, groups: Sequence[tuple[Key, ...]], given: Given, confidence: Fraction) -> list[Shown]:
    """The columns of the answer, filtered, ordered and cut as the query says."""
    columns = [_column(output, query, groups, given, confidence) for output in query.outputs]
    keep = np.arange(len(groups))
    if query.having is not None:
        truth = _value(query.having, _Context(query, groups, given, confidence))
        keep = np.flatnonzero(_truth(truth.value))
    for order in reversed(query.order):
        ranked = _value(order.sql, _Context(query, groups, given, confidence)).value[keep]
        keep = keep[_ranks(ranked, is_descending=order.is_descending)]
    if query.limit is not None:
        keep = keep[: query.limit]
    return [
        Shown(
            column.name,
            column.values[keep],
            None if column.low is None else column.low[keep],
            None if column.high is None else column.high[keep],
        )
        for column in columns
    ]


def _ranks(values: NDArray[Any], *, is_descending: bool) -> NDArray[np.intp]:
    """A stable order; what is missing comes last."""
    missing = [_is_missing(value) for value in values]
    places = sorted(
        (place for place in range(len(values)) if not missing[place]), key=lambda place: values[place]
    )
    if is_descending:
        places = sorted(places, key=lambda place: values[place], reverse=True)
    return np.array(places + [place for place in range(len(values)) if missing[place]], dtype=np.intp)


def _truth(values: NDArray[Any]) -> NDArray[np.bool_]:
    return np.array([not _is_missing(value) and bool(value) for value in values], dtype=np.bool_)


def _is_missing(value: Any) -> bool:
    return value is None or value != value  # noqa: PLR0124 - NaN


@dataclass(frozen=True)
class _Ends:
    """Values with their ends; keys have none."""

    value: NDArray[Any]
    low: NDArray[Any]
    high: NDArray[Any]
    is_released: bool = False
    """Whether an aggregate is in it, so that it has an interval."""


@dataclass(frozen=True)
class _Context:
    query: Query
    groups: Sequence[tuple[Key, ...]]
    given: Given
    confidence: Fraction


def _column(
    output: Output, query: Query, groups: Sequence[tuple[Key, ...]], given: Given, confidence: Fraction
) -> Shown:
    if output.key is not None:
        values = np.empty(len(groups), dtype=object)
        values[:] = [group[output.key] for group in groups]
        return Shown(output.name, values)
    used = {column.name for column in output.sql.find_all(exp.Column) if column.name[:1] == "a"}
    each = 1 - (1 - confidence) / max(1, len(used))
    found = _value(output.sql, _Context(query, groups, given, each))
    if not found.is_released:
        return Shown(output.name, found.value)
    low, high = (np.asarray(end, dtype=np.float64) for end in (found.low, found.high))
    return Shown(output.name, np.asarray(found.value, dtype=np.float64), low, high)


def _value(node: exp.Expr, context: _Context) -> _Ends:
    build = _EVALUATORS.get(type(node))
    if build is None:
        raise Unsupported(
            f"{name_of(node)} is not supported among the outputs",
            why="arithmetic, comparisons, CASE, ROUND, ABS, SQRT, LN, EXP, COALESCE and NULLIF are",
            fix="release the table, and compute the rest from it: that costs nothing",
        )
    with np.errstate(all="ignore"):
        return build(node, context)


def _literal(node: exp.Expr, context: _Context) -> _Ends:
    value: Any = node.this if node.args.get("is_string") else float(node.this)
    return _constant(value, context)


def _constant(value: Any, context: _Context) -> _Ends:
    dtype = np.float64 if isinstance(value, float) else object
    values = np.full(len(context.groups), value, dtype=dtype)
    return _Ends(values, values, values)


def _reference(node: exp.Expr, context: _Context) -> _Ends:
    letter, place = node.name[:1], int(node.name[1:])
    if letter == "k":
        keys = [group[place] for group in context.groups]
        is_number = all(isinstance(key, float) for key in keys)
        values = np.empty(len(keys), dtype=np.float64 if is_number else object)
        values[:] = keys
        return _Ends(values, values, values)
    found = context.given(place, context.confidence)
    return _Ends(found.value, found.low, found.high, is_released=True)


def _numbers(node: exp.Expr, context: _Context) -> _Ends:
    found = _value(node, context)
    if found.value.dtype != object:
        return found
    try:
        value, low, high = (
            np.array([np.nan if item is None else float(item) for item in end])
            for end in (found.value, found.low, found.high)
        )
    except (TypeError, ValueError):
        raise InvalidInput(
            "an output computes with something that is not a number",
            why="there is no result",
            fix="use numbers",
        ) from None
    return _Ends(value, low, high, found.is_released)


def _binary(node: exp.Expr, context: _Context) -> _Ends:
    one, two = _numbers(node.this, context), _numbers(node.expression, context)
    compute = _OPERATIONS[type(node)]
    corners = [compute(a, b) for a in (one.low, one.high) for b in (two.low, two.high)]
    low, high = np.minimum.reduce(corners), np.maximum.reduce(corners)
    if isinstance(node, exp.Div):
        # Where the divisor may be zero, so may anything be the result.
        crosses = (two.low <= 0) & (two.high >= 0) & two.is_released
        low, high = np.where(crosses, -np.inf, low), np.where(crosses, np.inf, high)
    low, high = np.where(np.isnan(low), -np.inf, low), np.where(np.isnan(high), np.inf, high)
    return _Ends(compute(one.value, two.value), low, high, one.is_released or two.is_released)


def _divided(a: Floats, b: Floats) -> Floats:
    out: Floats = np.where(b == 0, np.nan, a / np.where(b == 0, 1.0, b))
    return out


_OPERATIONS: dict[type[exp.Expr], Callable[[Any, Any], Any]] = {
    exp.Add: np.add,
    exp.Sub: np.subtract,
    exp.Mul: np.multiply,
    exp.Div: _divided,
}


def _negated(node: exp.Expr, context: _Context) -> _Ends:
    inner = _numbers(node.this, context)
    return _Ends(-inner.value, -inner.high, -inner.low, inner.is_released)


def _rising(function: Callable[[Any], Any]) -> Callable[[exp.Expr, _Context], _Ends]:
    """A function that never falls: its ends are those of its argument."""

    def build(node: exp.Expr, context: _Context) -> _Ends:
        inner = _numbers(node.this, context)
        return _Ends(function(inner.value), function(inner.low), function(inner.high), inner.is_released)

    return build


def _root(values: Floats) -> Floats:
    out: Floats = np.sqrt(np.maximum(values, 0))
    return out


def _logarithm(values: Floats) -> Floats:
    out: Floats = np.where(values > 0, np.log(np.maximum(values, 1e-308)), -np.inf)
    return out


def _absolute(node: exp.Expr, context: _Context) -> _Ends:
    inner = _numbers(node.this, context)
    crosses = (inner.low <= 0) & (inner.high >= 0)
    least = np.minimum(np.abs(inner.low), np.abs(inner.high))
    high = np.maximum(np.abs(inner.low), np.abs(inner.high))
    return _Ends(np.abs(inner.value), np.where(crosses, 0.0, least), high, inner.is_released)


def _rounded(node: exp.Expr, context: _Context) -> _Ends:
    digits = node.args.get("decimals")
    if digits is not None and not (isinstance(digits, exp.Literal) and str(digits.this) in _DIGITS):
        raise InvalidInput(
            "ROUND is not to a number of digits from 0 to 15",
            why="doubles have no more",
            fix="write ROUND(x, 2)",
        )
    places = 0 if digits is None else int(digits.this)
    return _rising(lambda values: np.round(values, places))(node, context)


_DIGITS = {str(digits) for digits in range(16)}


def _compared(node: exp.Expr, context: _Context) -> _Ends:
    one, two = _value(node.this, context).value, _value(node.expression, context).value
    compare = _COMPARISONS[type(node)]
    try:
        values = np.array(
            [a is not None and b is not None and bool(compare(a, b)) for a, b in zip(one, two, strict=True)]
        )
    except TypeError:
        raise InvalidInput(
            "an output compares two kinds", why="there is no order", fix="compare like with like"
        ) from None
    return _Ends(values, values, values)


_COMPARISONS: dict[type[exp.Expr], Callable[[Any, Any], bool]] = {
    exp.EQ: lambda a, b: a == b,
    exp.NEQ: lambda a, b: a != b,
    exp.GT: lambda a, b: a > b,
    exp.GTE: lambda a, b: a >= b,
    exp.LT: lambda a, b: a < b,
    exp.LTE: lambda a, b: a <= b,
}


def _connected(node: exp.Expr, context: _Context) -> _Ends:
    one, two = (_truth(_value(part, context).value) for part in (node.this, node.expression))
    values = one & two if isinstance(node, exp.And) else one | two
    return _Ends(values, values, values)


def _not(node: exp.Expr, context: _Context) -> _Ends:
    values = ~_truth(_value(node.this, context).value)
    return _Ends(values, values, values)


def _paren(node: exp.Expr, context: _Context) -> _Ends:
    return _value(node.this, context)


def _case(node: exp.Expr, context: _Context) -> _Ends:
    if node.args.get("this") is not None:
        raise Unsupported(
            "CASE x WHEN among the outputs", why="CASE WHEN x = … says it", fix="write CASE WHEN"
        )
    default = node.args.get("default")
    total = _value(default, context) if default is not None else _constant(float("nan"), context)
    for branch in reversed(node.args["ifs"]):
        test = _value(branch.this, context)
        is_true, then = _truth(test.value), _value(branch.args["true"], context)
        ends = [
            np.where(is_true, a, b)
            for a, b in ((then.value, total.value), (then.low, total.low), (then.high, total.high))
        ]
        total = _Ends(ends[0], ends[1], ends[2], then.is_released or total.is_released)
    # Which branch holds depends on noise where it compares aggregates: an interval would not cover.
    if any(
        column.name[:1] == "a" for branch in node.args["ifs"] for column in branch.this.find_all(exp.Column)
    ):
        return _Ends(total.value, total.value, total.value)
    return total


def _coalesce(node: exp.Expr, context: _Context) -> _Ends:
    total = _numbers(node.expressions[-1] if node.expressions else node.this, context)
    for part in reversed([node.this, *node.expressions[:-1]]):
        inner = _numbers(part, context)
        is_there = ~np.isnan(inner.value)
        ends = [
            np.where(is_there, a, b)
            for a, b in ((inner.value, total.value), (inner.low, total.low), (inner.high, total.high))
        ]
        total = _Ends(ends[0], ends[1], ends[2], inner.is_released or total.is_released)
    return total


def _nullif(node: exp.Expr, context: _Context) -> _Ends:
    one, two = _numbers(node.this, context), _numbers(node.expression, context)
    return _Ends(np.where(one.value == two.value, np.nan, one.value), one.low, one.high, one.is_released)


def _cast(node: exp.Expr, context: _Context) -> _Ends:
    if node.args["to"].this.name not in {"DOUBLE", "FLOAT", "DECIMAL"}:
        raise Unsupported(
            "a cast among the outputs", why="released numbers are doubles", fix="leave it out, or ROUND"
        )
    return _numbers(node.this, context)


_EVALUATORS: Mapping[type[exp.Expr], Callable[[exp.Expr, _Context], _Ends]] = {
    exp.Literal: _literal,
    exp.Null: lambda _, context: _constant(float("nan"), context),
    exp.Boolean: lambda node, context: _constant(bool(node.this), context),
    exp.Column: _reference,
    exp.Paren: _paren,
    **dict.fromkeys((exp.Add, exp.Sub, exp.Mul, exp.Div), _binary),
    exp.Neg: _negated,
    exp.Abs: _absolute,
    exp.Round: _rounded,
    exp.Floor: _rising(np.floor),
    exp.Ceil: _rising(np.ceil),
    exp.Sqrt: _rising(_root),
    exp.Ln: _rising(_logarithm),
    exp.Exp: _rising(np.exp),
    **dict.fromkeys((exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE), _compared),
    **dict.fromkeys((exp.And, exp.Or), _connected),
    exp.Not: _not,
    exp.Case: _case,
    exp.Coalesce: _coalesce,
    exp.Nullif: _nullif,
    **dict.fromkeys((exp.Cast, exp.TryCast), _cast),
}
