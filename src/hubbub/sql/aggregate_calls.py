"""Aggregate functions by their syntax: their kinds, FILTER, and the fractions of quantiles."""

from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from typing import Any

from sqlglot import exp

from hubbub.engines.schema import Bounds, are_bounds_usable
from hubbub.errors import InvalidInput, Refused, Unsupported
from hubbub.numbers import parse_rational
from hubbub.sql.query import AggregateCall
from hubbub.sql.typed_expressions import TypedExpression

__all__ = [
    "AGGREGATES",
    "EXTREMES",
    "AggregateSearch",
    "are_derived",
    "bounds_of_arguments",
    "is_whole",
    "known_bounds",
    "missing_aggregate_error",
    "parse_fraction",
    "parse_limit",
    "rewrite_filter",
    "split_quantiles",
    "without_distinct",
]

EXTREMES: dict[type[exp.Expr], Fraction] = {exp.Min: Fraction(1, 200), exp.Max: Fraction(199, 200)}
"""MIN and MAX are quantiles: the very first and the very last row are somebody's."""
AGGREGATES: dict[type[exp.Expr], AggregateCall] = {
    exp.Sum: AggregateCall("sum"),
    exp.Avg: AggregateCall("mean"),
    exp.Variance: AggregateCall("variance", is_sample=True),
    exp.VariancePop: AggregateCall("variance"),
    exp.Stddev: AggregateCall("deviation", is_sample=True),
    exp.StddevSamp: AggregateCall("deviation", is_sample=True),
    exp.StddevPop: AggregateCall("deviation"),
    exp.CovarSamp: AggregateCall("covariance", is_sample=True),
    exp.CovarPop: AggregateCall("covariance"),
    exp.Corr: AggregateCall("correlation"),
    exp.RegrSlope: AggregateCall("slope"),
}


class AggregateSearch:
    """Looks for aggregates in expressions and their parts; at each node once."""

    def __init__(self) -> None:
        # By the id of a node, with the node so that the id stays its own.
        self._seen: dict[int, tuple[exp.Expr, bool]] = {}

    def finds(self, node: exp.Expr) -> bool:
        """True if an aggregate is in this expression."""
        if id(node) not in self._seen:
            is_there = isinstance(node, exp.AggFunc) or any(map(self.finds, node.iter_expressions()))
            self._seen[id(node)] = node, is_there
        return self._seen[id(node)][1]


_OF_DISTINCT = frozenset({"sum", "mean", "variance", "deviation"})


def without_distinct(call: AggregateCall, arguments: list[exp.Expr]) -> tuple[AggregateCall, list[exp.Expr]]:
    """An aggregate of DISTINCT values as a call of its own kind, and its argument."""
    first = arguments[0]
    if not isinstance(first, exp.Distinct):
        return call, arguments
    if call.kind not in _OF_DISTINCT or len(first.expressions) != 1:
        raise Unsupported(
            "DISTINCT is not supported in this aggregate",
            why="no rule bounds how far one unit moves it",
            fix="leave DISTINCT out",
        )
    return replace(call, kind=f"distinct {call.kind}"), list(first.expressions)


def missing_aggregate_error() -> Refused:
    """The refusal of a query that aggregates nothing."""
    return Refused(
        "nothing is aggregated",
        why="the answer would be rows of single people",
        fix="ask for COUNT(*), SUM, AVG, … and GROUP BY public keys",
    )


def rewrite_filter(node: exp.Filter) -> exp.Expr:
    """Rewrite FILTER (WHERE c) as CASE inside the aggregate."""
    inner, condition = node.this, node.expression.this
    if isinstance(inner, exp.Count) and isinstance(inner.this, exp.Star):
        return exp.Count(this=exp.Case(ifs=[exp.If(this=condition, true=exp.Literal.number(1))]))
    copied: exp.Expr = inner.copy()
    argument = copied.this
    if isinstance(argument, exp.Distinct) and len(argument.expressions) == 1:
        value = exp.Case(ifs=[exp.If(this=condition, true=argument.expressions[0])])
        copied.set("this", exp.Distinct(expressions=[value]))
        return copied
    if isinstance(argument, exp.Distinct) or not isinstance(inner, exp.AggFunc):
        raise Unsupported(
            "FILTER is not supported on this aggregate", why="no rule bounds it", fix="use CASE inside it"
        )
    copied.set("this", exp.Case(ifs=[exp.If(this=condition, true=argument)]))
    return copied


def split_quantiles(node: exp.Expr) -> tuple[exp.Expr, list[Fraction]] | None:
    """Return the argument and the fractions of QUANTILE_CONT(x, [0.1, 0.9]); None for other expressions."""
    if not isinstance(node, (exp.PercentileCont, exp.PercentileDisc, exp.Quantile)):
        return None
    places = node.args.get("expression") or node.args.get("quantile")
    if not isinstance(places, (exp.Array, exp.Tuple)):
        return None
    return node.this, [parse_fraction(place) for place in places.expressions]


def parse_fraction(node: exp.Expr | None) -> Fraction:
    """Return the fraction of a quantile: a literal between 0 and 1."""
    if isinstance(node, exp.Literal) and not node.is_string:
        fraction = parse_rational(Decimal(node.this), "the fraction of a quantile")
        if 0 < fraction < 1:
            return fraction
    raise InvalidInput(
        "the fraction of a quantile is not a number between 0 and 1",
        why="it is public, and the first and the last row each belong to one person",
        fix="write QUANTILE_CONT(x, 0.5); for the ends, MIN(x) or MAX(x)",
    )


def is_whole(text: str) -> bool:
    """True if a number is written with digits only."""
    return text.isascii() and text.isdigit()


def parse_limit(node: exp.Expr | None) -> int | None:
    """The number of LIMIT, at least 1."""
    if node is None:
        return None
    value = node.expression
    if not isinstance(value, exp.Literal) or value.is_string or not is_whole(value.this):
        raise InvalidInput("LIMIT is not a whole number", why="it is public", fix="write LIMIT 10")
    if int(value.this) == 0:
        raise InvalidInput(
            "LIMIT 0 leaves no row",
            why="all groups would be measured and paid for, and none of them shown",
            fix="write LIMIT 1 or more; to see the columns and the cost, plan it without running it",
        )
    return int(value.this)


def known_bounds(typed: TypedExpression) -> Bounds | None:
    """The bounds of a value, or the ends of its column's group keys; values are clamped to them."""
    bounds = typed.bounds if typed.bounds is not None else _ends_of_keys(typed)
    return bounds if bounds is not None and are_bounds_usable(bounds) else None


def are_derived(typed: TypedExpression, bounds: Bounds) -> bool:
    """True if nobody has declared these bounds: of an expression, or of a column with group keys alone."""
    if typed.column is not None:
        return typed.bounds is None and bounds == _ends_of_keys(typed)
    return bounds == typed.bounds and not typed.keys


def _ends_of_keys(typed: TypedExpression) -> Bounds | None:
    numbers = [Fraction(key) for key in typed.keys or () if isinstance(key, float)]
    return (min(numbers), max(numbers)) if numbers else None


def bounds_of_arguments(statement: exp.Expr, bounds: Mapping[str, Any] | None) -> dict[str, Any]:
    """The declared bounds; those by the name of an output are also those of its one aggregate's argument."""
    declared = {name.lower(): ends for name, ends in (bounds or {}).items()}
    for column in statement.find_all(exp.Column) if declared else ():
        declared.pop(column.name.lower(), None)  # the bounds are the column's own
    arguments = {}
    for item in statement.expressions if declared else ():
        call = item.unalias()
        call = call.this if isinstance(call, exp.Filter) else call
        ends = declared.get(item.alias.lower()) if isinstance(item, exp.Alias) else None
        if ends is not None and isinstance(call, exp.AggFunc) and isinstance(call.this, exp.Expr):
            argument = call.this
            arguments[argument.name if isinstance(argument, exp.Column) else argument.sql("duckdb")] = ends
    return {**arguments, **(bounds or {})}
