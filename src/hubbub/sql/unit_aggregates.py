"""Aggregates over the rows of one unit, as a sub-query with GROUP BY the unit or a window has them.

Each is a function of the multiset of values, the same on every engine, and no row can make it fail: sums are
sums of integers, in any order.

Proof: docs/proofs/bounding.md, "Relations"
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from sqlglot import exp

from hubbub.engines.schema import Kind
from hubbub.errors import InvalidInput, Unsupported
from hubbub.sql.aggregate_calls import AggregateSearch, rewrite_filter
from hubbub.sql.number_functions import sum_per_unit
from hubbub.sql.row_expressions import compile_expression
from hubbub.sql.typed_expressions import (
    Scope,
    TypedExpression,
    as_kind,
    check_arguments,
    describe_construct,
    unknown_type_compared,
    unsupported_here,
)

__all__ = ["check_comparable", "compile_of_unit", "compile_unit_aggregate"]

_KNOWN = "COUNT, COUNT_IF, SUM, AVG, MIN, MAX, BOOL_AND and BOOL_OR"
_CALLS = (exp.AggFunc, exp.Filter, exp.WithinGroup)


def compile_of_unit(node: exp.Expr, scope: Scope, keys: Mapping[str, TypedExpression]) -> TypedExpression:
    """An item of a per-unit sub-query: an expression over keys, and aggregates over the rows of one unit.

    Args:
        node: the item.
        scope: the columns of the rows.
        keys: the expressions of the GROUP BY, by their SQL.
    """
    search = AggregateSearch()
    # By the id of a node, with the node so that the id stays its own: each part is compiled once.
    compiled: dict[int, tuple[exp.Expr, TypedExpression | None]] = {}

    def note(part: exp.Expr, typed: TypedExpression | None) -> None:
        compiled[id(part)] = part, typed

    def resolve(part: exp.Expr) -> TypedExpression | None:
        if isinstance(part, _CALLS):
            return compile_unit_aggregate(part, scope)
        if search.finds(part):
            return None  # its parts are aggregates
        if id(part) not in compiled:
            compile_expression(part, replace(scope, on_compiled=note))
        typed = compiled[id(part)][1]
        if typed is not None and (typed.is_literal or typed.sql.sql() in keys):
            return typed
        if isinstance(part, exp.Column):
            raise InvalidInput(
                "a column of a sub-query is neither grouped by nor aggregated",
                why="one unit may have several values of it",
                fix="add it to the GROUP BY, or aggregate it",
            )
        return None

    return compile_expression(node, replace(scope, resolve=resolve))


def compile_unit_aggregate(node: exp.Expr, scope: Scope) -> TypedExpression:
    """An aggregate over the rows of one unit.

    Guarantee: its value is a function of the multiset of the unit's rows, the same on every engine.
    Proof: docs/proofs/bounding.md, "Relations"
    """
    if isinstance(node, exp.Filter):
        return compile_unit_aggregate(rewrite_filter(node), scope)
    if isinstance(node, exp.CountIf):
        check_arguments(node, "this")
        condition = exp.Case(ifs=[exp.If(this=node.this, true=exp.Literal.number(1))])
        return compile_unit_aggregate(exp.Count(this=condition), scope)
    if isinstance(node, exp.Count):
        return _count(node, scope)
    check_arguments(node, "this")
    if isinstance(node, (exp.LogicalAnd, exp.LogicalOr)):
        truth = as_kind(compile_expression(node.this, scope), Kind.BOOLEAN, "a condition")
        return TypedExpression(
            type(node)(this=truth.sql), Kind.BOOLEAN, keys=(False, True, None), is_complete=True
        )
    if isinstance(node, (exp.Sum, exp.Avg)):
        argument = as_kind(compile_expression(node.this, scope), Kind.NUMBER, "what is added up")
        return sum_per_unit(argument, is_mean=isinstance(node, exp.Avg))
    if not isinstance(node, (exp.Min, exp.Max)):
        raise Unsupported(
            f"{describe_construct(node)} is not supported in a sub-query",
            why=f"{_KNOWN} are known to be safe on every row",
            fix="use one of these, and compute with it outside",
        )
    argument = compile_expression(node.this, scope)
    if argument.kind is Kind.OPAQUE:
        raise unsupported_here(node)
    function: type[exp.Expr] = type(node)
    if argument.kind is Kind.BOOLEAN:  # which not every engine puts in order
        function = exp.LogicalAnd if isinstance(node, exp.Min) else exp.LogicalOr
    return TypedExpression(
        function(this=argument.sql),
        argument.kind,
        argument.bounds,
        argument.keys,
        size=argument.size,
        is_complete=argument.is_complete,
    )


def _count(node: exp.Count, scope: Scope) -> TypedExpression:
    check_arguments(node, "this", "big_int")
    operand = node.this
    if isinstance(operand, exp.Star):
        inner: Any = exp.Star()
    elif isinstance(operand, exp.Distinct) and len(operand.expressions) == 1:
        value = check_comparable(compile_expression(operand.expressions[0], scope))
        inner = exp.Distinct(expressions=[value.sql])
    else:
        inner = compile_expression(operand, scope).sql
    count = exp.Cast(this=exp.Count(this=inner), to=exp.DataType.build("DOUBLE"))
    return TypedExpression(count, Kind.NUMBER, size=(0, 64))


def check_comparable(typed: TypedExpression) -> TypedExpression:
    """Refuse columns of types on which engines disagree about equality."""
    is_unit = typed.column is not None and typed.column.is_unit
    if typed.kind is Kind.OPAQUE and not is_unit and not typed.is_literal:
        raise unknown_type_compared()
    return typed
