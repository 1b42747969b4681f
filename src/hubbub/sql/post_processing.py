"""Outputs: expressions over released aggregates, with their intervals. Post-processing costs no privacy.

The type of an expression follows from the kinds of keys and aggregates alone. It is determined at planning,
and expressions without one are refused then. Typed expressions are evaluated by the rules of
`released_values`, which fail on no value: after the charge no key or noisy answer can cause an error.

An expression of several aggregates uses their intervals at a higher confidence, so that all hold at
once, and computes with their ends. If a comparison could be true or false, the result covers both cases.

Proof: docs/proofs/intervals.md, "Outputs"
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache, partial, reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlglot import exp

from hubbub.engines.schema import Key, Kind
from hubbub.errors import InvalidInput, Unsupported
from hubbub.sql import released_values
from hubbub.sql.aggregate import Affine, parse_affine_ratio
from hubbub.sql.integer_outputs import counts_rows_or_units, is_integer_expression, round_estimate
from hubbub.sql.moments import Estimate, Floats
from hubbub.sql.query import AggregateCall, Order, Output, Query
from hubbub.sql.released_values import IntervalValue
from hubbub.sql.typed_expressions import check_arguments, describe_construct, parse_datetime

__all__ = ["PostProcessing", "ResultColumn", "compile_outputs"]

_MAX_DIGITS = 15
_MAX_LEVELS = 100
"""Of an expression: few enough that computing it cannot run out of the stack."""

Estimator = Callable[[int, Fraction], Estimate]
"""Estimates the aggregate call with an index, at a confidence."""
RatioEstimator = Callable[[Affine, Affine, Fraction], Estimate | None]
"""Estimates one affine form of aggregates over another; None if they are not of one noisy vector."""


@dataclass(frozen=True)
class ResultColumn:
    """A column of a result: group keys, or values with their intervals. A number that is NULL is NaN here."""

    name: str
    values: NDArray[Any]
    low: Floats | None = None
    high: Floats | None = None
    kind: Kind | None = None
    """As it was planned, whatever the values are; None where nothing was."""
    is_integer: bool = False
    """True for counts, as it was planned: then values and finite ends are integers, held as doubles."""
    is_error: bool = False
    """True for standard deviations of another column: nothing is grouped by them."""

    @property
    def is_key(self) -> bool:
        """True for group keys, and for values without an interval that are neither counts nor errors."""
        return self.low is None and not self.is_integer and not self.is_error


@dataclass(frozen=True)
class _Context:
    """The inputs of an evaluation: groups and estimates."""

    groups: Sequence[tuple[Key, ...]]
    keys: Callable[[int], IntervalValue]
    """The keys of a place, read once."""
    estimate: Estimator
    confidence: Fraction


@dataclass(frozen=True)
class _Typed:
    """An expression with its kind and its evaluation."""

    kind: Kind | None
    """None of NULL, which is of any kind."""
    compute: Callable[[_Context], IntervalValue]
    text: str | None = None
    """What it says, where it is a text that is written out: it may be read as a date."""


@dataclass(frozen=True)
class _TypedOutput:
    """An output, typed."""

    output: Output
    typed: _Typed
    calls: int
    """Number of different aggregate calls in it."""
    ratio: tuple[Affine, Affine] | None
    """The output as one affine form of several aggregates over another, if it is such."""
    is_integer: bool = False
    """True if the output is a count, or made of counts only."""


@dataclass(frozen=True)
class PostProcessing:
    """The outputs, HAVING and ORDER BY of a query, evaluated on the release."""

    outputs: tuple[_TypedOutput, ...]
    having: _Typed | None
    order: tuple[tuple[Order, _Typed], ...]
    limit: int | None
    kinds: tuple[Kind, ...]
    """The kinds of the group keys."""

    def evaluate(
        self,
        groups: Sequence[tuple[Key, ...]],
        estimate: Estimator,
        confidence: Fraction,
        estimate_ratio: RatioEstimator = lambda _top, _bottom, _confidence: None,
        *,
        rounds: bool = True,
    ) -> list[ResultColumn]:
        """The columns of the result, filtered, ordered and limited as the query says. It raises nothing.

        Counts are rounded to integers, unless `rounds` is false.

        Guarantee: each interval holds the same expression of the exact aggregates, with at least this
            confidence.
        Assumes: `estimate` is what `Moments`, `combined` and `Tree` say of these groups.
        Proof: docs/proofs/intervals.md, "Outputs"
        """

        @cache
        def keys(index: int) -> IntervalValue:
            return IntervalValue.of([group[index] for group in groups], self.kinds[index])

        context = _Context(groups, keys, estimate, confidence)
        with np.errstate(all="ignore"):
            columns = [
                _column(
                    output if rounds else replace(output, is_integer=False),
                    self.kinds,
                    context,
                    estimate_ratio,
                )
                for output in self.outputs
            ]
            keep = np.arange(len(groups))
            if self.having is not None:
                keep = np.flatnonzero(self.having.compute(context).is_true)
            for order, typed in reversed(self.order):
                keep = keep[_ranks(typed.compute(context), order, keep)]
        if self.limit is not None:
            keep = keep[: self.limit]
        return [
            replace(
                column,
                values=column.values[keep],
                low=None if column.low is None else column.low[keep],
                high=None if column.high is None else column.high[keep],
            )
            for column in columns
        ]


def compile_outputs(query: Query) -> PostProcessing:
    """Type the outputs of a query; refuse those without a type before anything is charged.

    Guarantee: `evaluate` raises nothing, whatever the groups and the estimates are.
    Proof: docs/proofs/intervals.md, "Outputs"
    """
    kinds = tuple(key.kind for key in query.keys)
    outputs = tuple(_typed_output(output, kinds, query.aggregates) for output in query.outputs)
    order = tuple((each, _typed(each.sql, kinds)) for each in query.order)
    having = None if query.having is None else _condition(query.having, kinds)
    return PostProcessing(outputs, having, order, query.limit, kinds)


def _typed_output(output: Output, kinds: Sequence[Kind], aggregates: Sequence[AggregateCall]) -> _TypedOutput:
    calls = {column.name for column in output.sql.find_all(exp.Column) if column.name[:1] == "a"}
    typed = _typed(output.sql, kinds)

    def is_count(column: exp.Column) -> bool:
        return column.name[:1] == "a" and counts_rows_or_units(aggregates[int(column.name[1:])])

    is_integer = bool(calls) and typed.kind is Kind.NUMBER and is_integer_expression(output.sql, is_count)
    return _TypedOutput(
        output, typed, len(calls), parse_affine_ratio(output.sql) if len(calls) > 1 else None, is_integer
    )


def _ranks(span: IntervalValue, order: Order, keep: NDArray[np.intp]) -> NDArray[np.intp]:
    """A stable order of the remaining rows, NULL first or last."""
    places = np.unique(span.value[keep], return_inverse=True)[1].reshape(-1)
    missing = span.missing[keep]
    return np.lexsort(
        (-places if order.is_descending else places, ~missing if order.nulls_first else missing)
    )


def _column(
    each: _TypedOutput, kinds: Sequence[Kind], context: _Context, estimate_ratio: RatioEstimator
) -> ResultColumn:
    output, typed = each.output, each.typed
    key = output.key
    if key is not None:
        keys = _objects([group[key] for group in context.groups])
        return ResultColumn(output.name, keys, kind=kinds[key])
    quotient = None
    if each.ratio is not None:
        ratio = estimate_ratio(*each.ratio, context.confidence)
        quotient = None if ratio is None else IntervalValue.estimated(ratio)
    if quotient is None:
        confidence = 1 - (1 - context.confidence) / max(1, each.calls)
        quotient = typed.compute(replace(context, confidence=confidence))
    if typed.kind not in {Kind.NUMBER, None}:
        values = quotient.value.astype(object)
        values[quotient.missing] = None
        return ResultColumn(
            output.name, values if quotient.missing.any() else quotient.value, kind=typed.kind
        )
    value = np.where(quotient.missing, np.nan, quotient.value)
    if not quotient.is_released:
        return ResultColumn(output.name, value, kind=Kind.NUMBER)
    # Where there is no value there is nothing to enclose it.
    nowhere = quotient.missing | ~quotient.may_be
    low, high = np.where(nowhere, -np.inf, quotient.low), np.where(nowhere, np.inf, quotient.high)
    if each.is_integer:
        rounded = round_estimate(Estimate(value, low, high), is_exact_integer=False)
        return ResultColumn(output.name, rounded.value, rounded.low, rounded.high, Kind.NUMBER, True)
    return ResultColumn(output.name, value, low, high, Kind.NUMBER)


def _objects(values: Sequence[Any]) -> NDArray[Any]:
    out = np.empty(len(values), dtype=object)
    out[:] = values
    return out


# Types


def _typed(node: exp.Expr | None, kinds: Sequence[Kind], level: int = 0) -> _Typed:
    """The expression with its kind, which follows from those of the keys; aggregates are numbers."""
    if not isinstance(node, exp.Expr):
        raise InvalidInput("an argument is missing", why="there is nothing to compute", fix="write it out")
    build = _BUILDERS.get(type(node))
    if build is None:
        raise Unsupported(
            f"{describe_construct(node)} is not supported among the outputs, in HAVING or in ORDER BY",
            why="arithmetic, comparisons, AND, OR, NOT, IN, BETWEEN, IS NULL, CASE, ROUND, ABS, FLOOR, CEIL, "
            "SQRT, LN, EXP, COALESCE and NULLIF are",
            fix="group by the expression, or release the table and compute the rest from it",
        )
    if level > _MAX_LEVELS:
        raise Unsupported(
            "an output is nested too deeply",
            why="the planner limits how complex a query may be",
            fix="write a shorter one",
        )
    return build(node, lambda part: _typed(part, kinds, level + 1), kinds)


Typer = Callable[[exp.Expr | None], _Typed]


def _condition(node: exp.Expr, kinds: Sequence[Kind]) -> _Typed:
    return _as(_typed(node, kinds), Kind.BOOLEAN, "HAVING")


def _as(typed: _Typed, kind: Kind, what: str) -> _Typed:
    """Convert to this kind: NULL, a date as a timestamp, a literal text as a date."""
    if typed.kind is kind:
        return typed
    if typed.kind is None:
        return _constant(None, kind)
    if typed.text is not None and kind in {Kind.DATE, Kind.TIMESTAMP}:
        known = parse_datetime(typed.text, kind)
        assert not isinstance(known.value, Fraction)
        return _constant(known.value, kind)
    if (typed.kind, kind) == (Kind.DATE, Kind.TIMESTAMP):
        return _Typed(kind, lambda context: typed.compute(context).as_moments())
    fixes = {
        Kind.BOOLEAN: "write a comparison, as COUNT(*) > 0",
        Kind.NUMBER: "write CASE WHEN … THEN 1 ELSE 0 END, or use a number",
    }
    raise InvalidInput(
        f"{what} is given a {typed.kind.value} where a {kind.value} is needed",
        why="kinds are not mixed: engines convert between them differently",
        fix=fixes.get(kind, f"use a {kind.value}"),
    )


def _alike(parts: Iterable[_Typed], what: str) -> tuple[Kind | None, list[_Typed]]:
    """Convert all to one kind, or refuse."""
    typed = list(parts)
    known = {part.kind for part in typed} - {None}
    moments = known & {Kind.DATE, Kind.TIMESTAMP}
    if moments:
        kind: Kind | None = Kind.TIMESTAMP if Kind.TIMESTAMP in moments else Kind.DATE
        others = [part for part in typed if part.kind not in {*moments, None} and part.text is None]
    else:
        kind = next((part.kind for part in typed if part.kind is not None), None)
        others = [part for part in typed if part.kind not in {kind, None}]
    if others:
        names = " and ".join(sorted(each.value for each in known if each is not None))
        raise InvalidInput(
            f"{what} mixes kinds: {names}",
            why="they have no common order, and engines disagree on the result",
            fix="use one kind: numbers without quotes, texts with them",
        )
    return kind, typed if kind is None else [_as(part, kind, what) for part in typed]


def _constant(key: Key, kind: Kind | None, text: str | None = None) -> _Typed:
    return _Typed(
        kind, lambda context: IntervalValue.constant(key, kind or Kind.NUMBER, len(context.groups)), text
    )


_NULL = _constant(None, None)


# What can be written


def _literal(node: exp.Expr, _typer: Typer, _kinds: Sequence[Kind]) -> _Typed:
    if node.args.get("is_string"):
        return _constant(node.this, Kind.TEXT, node.this)
    number = float(node.this)
    if not math.isfinite(number):
        raise InvalidInput(
            "a number is too large", why="it is not a finite double", fix="write a smaller one"
        )
    return _constant(number, Kind.NUMBER)


def _reference(node: exp.Expr, _typer: Typer, kinds: Sequence[Kind]) -> _Typed:
    letter, place = node.name[:1], int(node.name[1:])
    if letter == "k":
        return _Typed(kinds[place], lambda context: context.keys(place))
    return _Typed(
        Kind.NUMBER, lambda context: IntervalValue.estimated(context.estimate(place, context.confidence))
    )


def _of_number(compute: Callable[[IntervalValue], IntervalValue]) -> "Builder":
    """A function of one number."""

    def build(node: exp.Expr, typer: Typer, _kinds: Sequence[Kind]) -> _Typed:
        check_arguments(node, "this")
        what = "the sign -" if isinstance(node, exp.Neg) else describe_construct(node)
        inner = _as(typer(node.this), Kind.NUMBER, what)
        return _Typed(Kind.NUMBER, lambda context: compute(inner.compute(context)))

    return build


def _of_two(compute: Callable[[IntervalValue, IntervalValue], IntervalValue]) -> "Builder":
    """An operation on two numbers."""

    def build(node: exp.Expr, typer: Typer, _kinds: Sequence[Kind]) -> _Typed:
        what = f"the operator {_SIGNS[type(node)]}"
        one, two = (_as(typer(part), Kind.NUMBER, what) for part in (node.this, node.expression))
        return _Typed(Kind.NUMBER, lambda context: compute(one.compute(context), two.compute(context)))

    return build


def _rounded(node: exp.Expr, typer: Typer, _kinds: Sequence[Kind]) -> _Typed:
    check_arguments(node, "this", "decimals")
    digits = node.args.get("decimals")
    sign, digits = (-1, digits.this) if isinstance(digits, exp.Neg) else (1, digits)
    is_small = isinstance(digits, exp.Literal) and digits.name.isdigit() and int(digits.name) <= _MAX_DIGITS
    if digits is not None and not is_small:
        raise Unsupported(
            f"the digits of a ROUND are computed, or more than {_MAX_DIGITS}",
            why="a double has no more digits",
            fix="write ROUND(x, 2)",
        )
    places = sign * int(digits.this) if digits is not None else 0
    inner = _as(typer(node.this), Kind.NUMBER, describe_construct(node))
    return _Typed(
        Kind.NUMBER,
        lambda context: released_values.apply_increasing(
            lambda values: released_values.round_half_up(values, places), inner.compute(context)
        ),
    )


def _truth(compute: Callable[[_Context], IntervalValue]) -> _Typed:
    return _Typed(Kind.BOOLEAN, compute)


def _equal(one: _Typed, two: _Typed, sign: str, what: str) -> _Typed:
    kind, (left, right) = _alike((one, two), what)
    if kind is None:
        return _constant(None, Kind.BOOLEAN)
    return _truth(
        lambda context: released_values.compare(sign, left.compute(context), right.compute(context))
    )


def _compared(sign: str) -> "Builder":
    def build(node: exp.Expr, typer: Typer, _kinds: Sequence[Kind]) -> _Typed:
        return _equal(typer(node.this), typer(node.expression), sign, f"the comparison {sign}")

    return build


def _distinct(node: exp.Expr, typer: Typer, _kinds: Sequence[Kind]) -> _Typed:
    """IS [NOT] DISTINCT FROM."""
    _, (one, two) = _alike((typer(node.this), typer(node.expression)), "IS DISTINCT FROM")
    same = _truth(lambda context: released_values.equal_or_null(one.compute(context), two.compute(context)))
    return same if isinstance(node, exp.NullSafeEQ) else _opposite(same)


def _opposite(inner: _Typed) -> _Typed:
    return _truth(lambda context: released_values.negate_truth(inner.compute(context)))


def _not(node: exp.Expr, typer: Typer, _kinds: Sequence[Kind]) -> _Typed:
    return _opposite(_as(typer(node.this), Kind.BOOLEAN, "NOT"))


def _all(parts: Sequence[_Typed]) -> _Typed:
    return _truth(lambda context: reduce(released_values.conjoin, (part.compute(context) for part in parts)))


def _any(parts: Sequence[_Typed]) -> _Typed:
    return _opposite(_all([_opposite(part) for part in parts]))


def _connected(node: exp.Expr, typer: Typer, _kinds: Sequence[Kind]) -> _Typed:
    assert isinstance(node, exp.Connector)
    parts = [_as(typer(part), Kind.BOOLEAN, node.key.upper()) for part in node.flatten()]
    return _all(parts) if isinstance(node, exp.And) else _any(parts)


def _between(node: exp.Expr, typer: Typer, _kinds: Sequence[Kind]) -> _Typed:
    check_arguments(node, "this", "low", "high")
    middle = typer(node.this)
    ends = ((">=", node.args["low"]), ("<=", node.args["high"]))
    return _all([_equal(middle, typer(end), sign, "BETWEEN") for sign, end in ends])


def _in(node: exp.Expr, typer: Typer, _kinds: Sequence[Kind]) -> _Typed:
    check_arguments(node, "this", "expressions")
    if not node.expressions:
        raise InvalidInput(
            "the list after IN is empty", why="no value is in an empty list", fix="list some values"
        )
    _, (one, *listed) = _alike([typer(part) for part in (node.this, *node.expressions)], "IN")
    return _any([_equal(one, part, "=", "IN") for part in listed])


def _is(node: exp.Expr, typer: Typer, _kinds: Sequence[Kind]) -> _Typed:
    inner = typer(node.this)
    if isinstance(node.expression, exp.Null):
        return _truth(lambda context: released_values.is_null(inner.compute(context)))
    if not isinstance(node.expression, exp.Boolean):
        raise Unsupported(
            "IS is followed by neither NULL, TRUE nor FALSE",
            why="SQL allows nothing else there",
            fix="write IS NULL, or a comparison",
        )
    truth = _as(inner, Kind.BOOLEAN, "IS TRUE")
    truth = truth if node.expression.this else _opposite(truth)
    return _truth(lambda context: released_values.is_true_value(truth.compute(context)))


def _case(node: exp.Expr, typer: Typer, _kinds: Sequence[Kind]) -> _Typed:
    check_arguments(node, "this", "ifs", "default")
    subject, default = node.args.get("this"), node.args.get("default")
    known = None if subject is None else typer(subject)
    tests = [
        _as(typer(branch.this), Kind.BOOLEAN, "WHEN")
        if known is None
        else _equal(known, typer(branch.this), "=", "CASE")
        for branch in node.args["ifs"]
    ]
    values = [typer(branch.args["true"]) for branch in node.args["ifs"]]
    return _chosen(tests, values, _NULL if default is None else typer(default), "CASE")


def _if(node: exp.Expr, typer: Typer, _kinds: Sequence[Kind]) -> _Typed:
    check_arguments(node, "this", "true", "false")
    other = node.args.get("false")
    test = _as(typer(node.this), Kind.BOOLEAN, "IF")
    return _chosen([test], [typer(node.args["true"])], _NULL if other is None else typer(other), "IF")


def _chosen(tests: list[_Typed], branches: list[_Typed], default: _Typed, what: str) -> _Typed:
    """The value of the first test that is true."""
    kind, (*values, rest) = _alike([*branches, default], what)

    def compute(context: _Context) -> IntervalValue:
        total = rest.compute(context)
        for test, value in zip(reversed(tests), reversed(values), strict=True):
            total = released_values.choose(test.compute(context), value.compute(context), total)
        return total

    return _Typed(kind, compute)


def _coalesce(node: exp.Expr, typer: Typer, _kinds: Sequence[Kind]) -> _Typed:
    kind, parts = _alike([typer(part) for part in (node.this, *node.expressions)], "COALESCE")

    def compute(context: _Context) -> IntervalValue:
        last, *others = (part.compute(context) for part in reversed(parts))
        return reduce(lambda total, inner: released_values.coalesce(inner, total), others, last)

    return _Typed(kind, compute)


def _nullif(node: exp.Expr, typer: Typer, _kinds: Sequence[Kind]) -> _Typed:
    kind, (one, two) = _alike((typer(node.this), typer(node.expression)), "NULLIF")
    nothing = _constant(None, kind)
    parts = (one, two, nothing)
    return _Typed(
        kind, lambda context: released_values.null_if_equal(*(part.compute(context) for part in parts))
    )


_CASTS = {
    "DOUBLE": Kind.NUMBER,
    "DATE": Kind.DATE,
    **dict.fromkeys(("TIMESTAMP", "DATETIME", "TIMESTAMPNTZ"), Kind.TIMESTAMP),
}


def _cast(node: exp.Expr, typer: Typer, _kinds: Sequence[Kind]) -> _Typed:
    inner, kind = typer(node.this), _CASTS.get(getattr(node.args["to"].this, "name", ""))
    if kind is None or (kind is not Kind.NUMBER and inner.kind is Kind.NUMBER):
        raise Unsupported(
            "a cast among the outputs is not supported",
            why="released numbers are doubles",
            fix="leave it out, or ROUND",
        )
    return _as(inner, kind, "a cast")


Builder = Callable[[exp.Expr, Typer, Sequence[Kind]], _Typed]

_SIGNS: dict[type[exp.Expr], str] = {exp.Add: "+", exp.Sub: "-", exp.Mul: "*", exp.Div: "/"}

_BUILDERS: Mapping[type[exp.Expr], Builder] = {
    exp.Literal: _literal,
    exp.Null: lambda _node, _typer, _kinds: _NULL,
    exp.Boolean: lambda node, _typer, _kinds: _constant(bool(node.this), Kind.BOOLEAN),
    exp.Column: _reference,
    exp.Paren: lambda node, typer, _kinds: typer(node.this),
    exp.Add: _of_two(partial(released_values.combine, np.add)),
    exp.Sub: _of_two(partial(released_values.combine, np.subtract)),
    exp.Mul: _of_two(partial(released_values.combine, np.multiply)),
    exp.Div: _of_two(released_values.divide),
    exp.Neg: _of_number(released_values.negate),
    exp.Abs: _of_number(released_values.absolute),
    exp.Round: _rounded,
    exp.Floor: _of_number(partial(released_values.apply_increasing, np.floor)),
    exp.Ceil: _of_number(partial(released_values.apply_increasing, np.ceil)),
    exp.Sqrt: _of_number(partial(released_values.apply_increasing, np.sqrt, least=0.0, ulps=1)),
    exp.Ln: _of_number(partial(released_values.apply_increasing, np.log, least=0.0, is_open=True, ulps=2)),
    exp.Exp: _of_number(partial(released_values.apply_increasing, np.exp, ulps=2)),
    exp.EQ: _compared("="),
    exp.NEQ: _compared("<>"),
    exp.LT: _compared("<"),
    exp.LTE: _compared("<="),
    exp.GT: _compared(">"),
    exp.GTE: _compared(">="),
    **dict.fromkeys((exp.NullSafeEQ, exp.NullSafeNEQ), _distinct),
    **dict.fromkeys((exp.And, exp.Or), _connected),
    exp.Not: _not,
    exp.Between: _between,
    exp.In: _in,
    exp.Is: _is,
    exp.Case: _case,
    exp.If: _if,
    exp.Coalesce: _coalesce,
    exp.Nullif: _nullif,
    **dict.fromkeys((exp.Cast, exp.TryCast), _cast),
}
