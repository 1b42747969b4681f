"""Outputs: expressions over what was released, with intervals carried along. It costs nothing more.

Values are arrays, one element a group. An expression of several aggregates takes each one's interval at a
confidence so much higher that all hold at once, and computes with their ends. Where a comparison could come
out either way, what follows from it spans both.

Proof: docs/proofs/intervals.md, "Outputs"
"""

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlglot import exp

from hubbub.errors import InvalidInput, Unsupported
from hubbub.queries.measures import Affine
from hubbub.queries.moments import Estimate, Floats
from hubbub.queries.query import GroupKey, Output, Query
from hubbub.queries.typed import name_of
from hubbub.tables.schema import Key, Kind

__all__ = ["Shown", "check_outputs", "shown"]

_MOST_DIGITS = 15

Given = Callable[[int, Fraction], Estimate]
"""The estimate of an aggregate, at a confidence."""
Quotient = Callable[[Affine, Affine, Fraction], Estimate | None]
"""The estimate of one weighted sum of aggregates over another; None if they were not measured together."""


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
    groups = [tuple(_sample(key) for key in query.keys)]
    shown(query, groups, lambda _place, _confidence: none, Fraction(1, 2))


def _sample(key: GroupKey) -> Key:
    samples: dict[Kind, Key] = {
        Kind.NUMBER: 1.0,
        Kind.BOOLEAN: True,
        Kind.DATE: date.min,
        Kind.TIMESTAMP: datetime.min,  # noqa: DTZ901 - the engine's have no zone
    }
    return next((value for value in key.values or () if value is not None), samples.get(key.kind, "a"))


def shown(
    query: Query,
    groups: Sequence[tuple[Key, ...]],
    given: Given,
    confidence: Fraction,
    quotient: Quotient = lambda _top, _bottom, _confidence: None,
) -> list[Shown]:
    """The columns of the answer, filtered, ordered and cut as the query says.

    Guarantee: each interval holds the same expression of the exact aggregates, with at least this confidence.
    Assumes: `given` is what `Moments`, `combined` and `Tree` say of these groups.
    Proof: docs/proofs/intervals.md, "Outputs"
    """
    context = _Context(groups, given, confidence, tuple(key.kind for key in query.keys))
    columns = [_column(output, context, quotient) for output in query.outputs]
    keep = np.arange(len(groups))
    if query.having is not None:
        keep = np.flatnonzero(_truth(query.having, context).value)
    for order in reversed(query.order):
        ranked = _value(order.sql, context).value[keep]
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
    if values.dtype.kind == "f":
        return np.argsort(-values if is_descending else values, kind="stable")
    is_missing = _missing(values)
    places = sorted(
        np.flatnonzero(~is_missing).tolist(), key=lambda place: values[place], reverse=is_descending
    )
    return np.array([*places, *np.flatnonzero(is_missing)], dtype=np.intp)


def _missing(values: NDArray[Any]) -> NDArray[np.bool_]:
    if values.dtype.kind == "f":
        return np.asarray(np.isnan(values))
    return np.array([value is None or value != value for value in values], dtype=np.bool_)  # noqa: PLR0124 - NaN


@dataclass(frozen=True)
class _Ends:
    """Values, and between which ends the exact ones lie: of truths, whether they hold surely, and possibly.

    Keys and constants are exact. Texts have no ends: where something released chose one, it is uncertain.
    """

    value: NDArray[Any]
    low: NDArray[Any]
    high: NDArray[Any]
    may_miss: NDArray[np.bool_]
    """Whether the exact one may be missing."""
    is_released: bool = False
    """Whether an aggregate is in it."""

    @classmethod
    def exact(cls, values: NDArray[Any]) -> "_Ends":
        return cls(values, values, values, _missing(values))


@dataclass(frozen=True)
class _Context:
    groups: Sequence[tuple[Key, ...]]
    given: Given
    confidence: Fraction
    kinds: tuple[Kind, ...]
    """Of the keys: what these are does not tell, where all are missing."""


def _column(output: Output, context: _Context, quotient: Quotient) -> Shown:
    if output.key is not None:
        return Shown(output.name, _objects([group[output.key] for group in context.groups]))
    used = {column.name for column in output.sql.find_all(exp.Column) if column.name[:1] == "a"}
    if len(used) > 1:
        forms = _forms(output.sql)
        together = None if forms is None else quotient(*forms, context.confidence)
        if together is not None:
            return Shown(output.name, together.value, together.low, together.high)
    each = 1 - (1 - context.confidence) / max(1, len(used))
    found = _value(output.sql, replace(context, confidence=each))
    if not found.is_released or found.value.dtype.kind != "f":
        return Shown(output.name, found.value)
    # Where there is no value there is nothing to enclose it.
    nowhere = np.isnan(found.value)
    low, high = np.where(nowhere, -np.inf, found.low), np.where(nowhere, np.inf, found.high)
    return Shown(output.name, found.value, low, high)


def _forms(node: exp.Expr) -> tuple[Affine, Affine] | None:
    """The expression as one weighted sum of aggregates over another, if it is such."""
    plain = node.unnest()
    if isinstance(plain, exp.Div):
        above, below = _affine(plain.this), _affine(plain.expression)
        if above is not None and below is not None and below[0]:
            return above, below
    found = _affine(plain)
    return None if found is None else (found, ({}, 1.0))


def _affine(node: exp.Expr) -> Affine | None:
    """The expression as a weighted sum of aggregates and a number, if it is such."""
    if isinstance(node, exp.Literal) and not node.is_string:
        return {}, float(node.this)
    if isinstance(node, exp.Column) and node.name[:1] == "a":
        return {int(node.name[1:]): 1.0}, 0.0
    if isinstance(node, (exp.Paren, exp.Neg)):
        inner = _affine(node.this)
        return _added(({}, 0.0), inner, 1.0 if isinstance(node, exp.Paren) else -1.0)
    if not isinstance(node, (exp.Add, exp.Sub, exp.Mul, exp.Div)):
        return None
    one, two = _affine(node.this), _affine(node.expression)
    if isinstance(node, (exp.Add, exp.Sub)):
        return _added(one, two, 1.0 if isinstance(node, exp.Add) else -1.0)
    if isinstance(node, exp.Mul) and one is not None and not one[0]:
        one, two = two, one
    if two is None or two[0] or (isinstance(node, exp.Div) and two[1] == 0):
        return None
    return _added(({}, 0.0), one, two[1] if isinstance(node, exp.Mul) else 1 / two[1])


def _added(one: Affine | None, two: Affine | None, factor: float) -> Affine | None:
    """One plus `factor` times two."""
    if one is None or two is None:
        return None
    places = {place: one[0].get(place, 0.0) + factor * two[0].get(place, 0.0) for place in {*one[0], *two[0]}}
    return places, one[1] + factor * two[1]


def _objects(values: Sequence[Any]) -> NDArray[Any]:
    out = np.empty(len(values), dtype=object)
    out[:] = values
    return out


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
    return _constant(node.this if node.args.get("is_string") else float(node.this), context)


def _constant(value: Any, context: _Context) -> _Ends:
    dtype = {float: np.float64, bool: np.bool_}.get(type(value), object)
    return _Ends.exact(np.full(len(context.groups), value, dtype=dtype))


def _reference(node: exp.Expr, context: _Context) -> _Ends:
    letter, place = node.name[:1], int(node.name[1:])
    if letter == "k":
        keys = _objects([group[place] for group in context.groups])
        if context.kinds[place] is Kind.NUMBER:
            keys = np.where(_missing(keys), np.nan, keys).astype(np.float64)
        return _Ends.exact(keys)
    found = context.given(place, context.confidence)
    return _Ends(found.value, found.low, found.high, np.zeros(len(found.value), np.bool_), is_released=True)


def _numbers(node: exp.Expr, context: _Context) -> _Ends:
    found = _value(node, context)
    if found.value.dtype.kind == "f":
        return found
    if found.is_released:
        raise Unsupported(
            "an output computes with a truth or a text that was chosen by what is released",
            why="there is no interval for it",
            fix="write CASE WHEN … THEN 1 ELSE 0 END",
        )
    try:
        return _Ends.exact(np.array([np.nan if item is None else float(item) for item in found.value]))
    except (TypeError, ValueError):
        raise InvalidInput(
            "an output computes with something that is not a number",
            why="there is no result",
            fix="use numbers",
        ) from None


# Arithmetic


def _binary(node: exp.Expr, context: _Context) -> _Ends:
    one, two = _numbers(node.this, context), _numbers(node.expression, context)
    compute = _OPERATIONS[type(node)]
    corners = [compute(a, b) for a in (one.low, one.high) for b in (two.low, two.high)]
    low, high = np.minimum.reduce(corners), np.maximum.reduce(corners)
    may_miss = one.may_miss | two.may_miss
    is_unclear = np.isnan(low) | np.isnan(high)
    if isinstance(node, exp.Div):
        # Where the divisor may be zero, so may anything be the result.
        crosses = (two.low <= 0) & (two.high >= 0)
        is_unclear, may_miss = is_unclear | crosses, may_miss | crosses
    low, high = np.where(is_unclear, -np.inf, low), np.where(is_unclear, np.inf, high)
    # Ends are rounded outward; constants and keys are what they are.
    low, high = np.nextafter(low, -np.inf), np.nextafter(high, np.inf)
    value, is_released = compute(one.value, two.value), one.is_released or two.is_released
    return _Ends(value, low, high, may_miss, is_released=True) if is_released else _Ends.exact(value)


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
    return replace(inner, value=-inner.value, low=-inner.high, high=-inner.low)


def _rising(function: Callable[[Any], Any]) -> Callable[[exp.Expr, _Context], _Ends]:
    """A function that never falls: its ends are those of its argument."""

    def build(node: exp.Expr, context: _Context) -> _Ends:
        inner = _numbers(node.this, context)
        return replace(inner, value=function(inner.value), low=function(inner.low), high=function(inner.high))

    return build


def _root(values: Floats) -> Floats:
    out: Floats = np.sqrt(np.maximum(values, 0))
    return out


def _logarithm(values: Floats) -> Floats:
    return np.where(np.isnan(values) | (values > 0), np.log(np.where(values > 0, values, 1.0)), -np.inf)


def _absolute(node: exp.Expr, context: _Context) -> _Ends:
    inner = _numbers(node.this, context)
    crosses = (inner.low <= 0) & (inner.high >= 0)
    low, high = np.abs(inner.low), np.abs(inner.high)
    least = np.where(crosses, 0.0, np.minimum(low, high))
    return replace(inner, value=np.abs(inner.value), low=least, high=np.maximum(low, high))


def _rounded(node: exp.Expr, context: _Context) -> _Ends:
    digits = node.args.get("decimals")
    sign, digits = (-1, digits.this) if isinstance(digits, exp.Neg) else (1, digits)
    is_small = isinstance(digits, exp.Literal) and digits.name.isdigit() and int(digits.name) <= _MOST_DIGITS
    if digits is not None and not is_small:
        raise Unsupported(
            f"the digits of a ROUND are computed, or more than {_MOST_DIGITS}",
            why="a double has no more",
            fix="write ROUND(x, 2)",
        )
    places = sign * int(digits.this) if digits is not None else 0
    up, down = 10.0 ** max(places, 0), 10.0 ** max(-places, 0)
    # Halves away from zero, as in rows; with ½ itself what is just below a half would be rounded up.
    below = np.nextafter(0.5, 0.0)

    def away(values: Floats) -> Floats:
        return np.asarray(np.sign(values) * np.floor(np.abs(values) * up / down + below) / up * down)

    return _rising(away)(node, context)


# Truths


def _truth(node: exp.Expr, context: _Context) -> _Ends:
    """Whether it holds; what is missing does not."""
    found = _value(node, context)
    if found.value.dtype.kind == "b":
        return found
    holds = np.array([bool(value) for value in found.value], dtype=np.bool_) & ~_missing(found.value)
    if not found.is_released:
        return _Ends.exact(holds)
    return _uncertain(holds)


def _uncertain(values: NDArray[np.bool_]) -> _Ends:
    nothing = np.zeros_like(values)
    return _Ends(values, nothing, ~nothing, nothing, is_released=True)


def _compared(node: exp.Expr, context: _Context) -> _Ends:
    one, two = _value(node.this, context), _value(node.expression, context)
    compare = _COMPARISONS[type(node)]
    is_released = one.is_released or two.is_released
    if one.value.dtype.kind == two.value.dtype.kind == "f":
        values = compare(one.value, two.value) & ~np.isnan(one.value) & ~np.isnan(two.value)
        if not is_released:
            return _Ends.exact(values)
        corners = [compare(a, b) for a in (one.low, one.high) for b in (two.low, two.high)]
        surely, possibly = np.logical_and.reduce(corners), np.logical_or.reduce(corners)
        overlaps = (one.low <= two.high) & (two.low <= one.high)
        if isinstance(node, exp.EQ):
            possibly = overlaps
        elif isinstance(node, exp.NEQ):
            surely = ~overlaps
        surely &= ~(one.may_miss | two.may_miss)
        return _Ends(values, surely, possibly, np.zeros_like(values), is_released=True)
    try:
        values = np.array(
            [
                not is_missing and bool(compare(a, b))
                for a, b, is_missing in zip(
                    one.value, two.value, _missing(one.value) | _missing(two.value), strict=True
                )
            ],
            dtype=np.bool_,
        )
    except TypeError:
        raise InvalidInput(
            "an output compares two kinds", why="there is no order", fix="compare like with like"
        ) from None
    return _uncertain(values) if is_released else _Ends.exact(values)


_COMPARISONS: dict[type[exp.Expr], Callable[[Any, Any], Any]] = {
    exp.EQ: operator.eq,
    exp.NEQ: operator.ne,
    exp.GT: operator.gt,
    exp.GTE: operator.ge,
    exp.LT: operator.lt,
    exp.LTE: operator.le,
}


def _connected(node: exp.Expr, context: _Context) -> _Ends:
    one, two = _truth(node.this, context), _truth(node.expression, context)
    connect = np.logical_and if isinstance(node, exp.And) else np.logical_or
    return _Ends(
        connect(one.value, two.value),
        connect(one.low, two.low),
        connect(one.high, two.high),
        one.may_miss,
        is_released=one.is_released or two.is_released,
    )


def _not(node: exp.Expr, context: _Context) -> _Ends:
    inner = _truth(node.this, context)
    return replace(inner, value=~inner.value, low=~inner.high, high=~inner.low)


# Choices


def _either(one: _Ends, two: _Ends, test: _Ends) -> _Ends:
    """The one where the test holds, else the two; where it could come out either way, the ends span both."""
    is_released = one.is_released or two.is_released or test.is_released
    is_alike = one.value.dtype.kind == two.value.dtype.kind and one.value.dtype.kind in "fb"
    values = (
        (one.value, two.value) if is_alike else (_missing_as_none(one.value), _missing_as_none(two.value))
    )
    value = np.where(test.value, *values)
    if not is_released:
        return _Ends.exact(value)
    surely, possibly = test.low, test.high
    may_miss = (one.may_miss & possibly) | (two.may_miss & ~surely)
    if not is_alike:
        return _Ends(value, value, value, may_miss, is_released=True)
    low, high = (
        np.where(surely, a, np.where(possibly, span(a, b), b))
        for span, a, b in ((np.fmin, one.low, two.low), (np.fmax, one.high, two.high))
    )
    return _Ends(value, low, high, may_miss, is_released=True)


def _missing_as_none(values: NDArray[Any]) -> NDArray[Any]:
    """Among texts and truths no number stands for what is missing."""
    out = values.astype(object)
    out[_missing(values)] = None
    return out


def _case(node: exp.Expr, context: _Context) -> _Ends:
    if node.args.get("this") is not None:
        raise Unsupported(
            "a CASE x WHEN among the outputs", why="a CASE WHEN x = … says the same", fix="write CASE WHEN"
        )
    default = node.args.get("default")
    total = _value(default if default is not None else exp.null(), context)
    for branch in reversed(node.args["ifs"]):
        total = _either(_value(branch.args["true"], context), total, _truth(branch.this, context))
    return total


def _coalesce(node: exp.Expr, context: _Context) -> _Ends:
    total, *others = (_value(part, context) for part in reversed([node.this, *node.expressions]))
    for inner in others:
        is_there = ~_missing(inner.value)
        # Only what may be missing is ever replaced.
        test = _Ends(is_there, ~inner.may_miss, ~_missing(inner.low), is_there, is_released=inner.is_released)
        may_miss = inner.may_miss & total.may_miss
        total = replace(_either(inner, total, test), may_miss=may_miss)
    return total


def _nullif(node: exp.Expr, context: _Context) -> _Ends:
    one, two = _numbers(node.this, context), _numbers(node.expression, context)
    value = np.where(one.value == two.value, np.nan, one.value)
    if not (one.is_released or two.is_released):
        return _Ends.exact(value)
    overlaps = (one.low <= two.high) & (two.low <= one.high)
    return _Ends(value, one.low, one.high, one.may_miss | overlaps, is_released=True)


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
    exp.Paren: lambda node, context: _value(node.this, context),
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
