"""Windows over the rows of one unit: PARTITION BY the unit's key, and more if wanted.

Such a window stays within one unit, so a row is still a function of its own unit's rows. ROW_NUMBER, LAG,
LEAD, FIRST_VALUE, LAST_VALUE and frames of rows break ties by all columns of the row: equal rows are alike,
and nothing else decides which comes first.

Proof: docs/proofs/bounding.md, "Windows of one unit"
"""

import math
from collections.abc import Callable

from sqlglot import exp

from hubbub.engines.schema import Kind
from hubbub.engines.total_functions import DOUBLE
from hubbub.errors import Refused, Unsupported
from hubbub.sql.row_expressions import compile_expression
from hubbub.sql.typed_expressions import (
    Scope,
    TypedExpression,
    as_kind,
    check_arguments,
    describe_construct,
    union_of,
    unknown_type_compared,
)
from hubbub.sql.unit_aggregates import compile_unit_aggregate

__all__ = ["compile_window", "has_aggregate"]

_RANKS = (exp.RowNumber, exp.Rank, exp.DenseRank)
_AGGREGATES = (exp.Count, exp.CountIf, exp.Sum, exp.Min, exp.Max, exp.Avg, exp.LogicalAnd, exp.LogicalOr)
_NEIGHBOURS = (exp.Lag, exp.Lead)
_ENDS = (exp.FirstValue, exp.LastValue)
_OF_ROWS = (*_NEIGHBOURS, *_ENDS)
"""Values of other rows of the unit: of the one before, the one after, the first or the last."""
_MAX_OFFSET = 1000


def compile_window(node: exp.Window, scope: Scope, unit: exp.Expr | None) -> TypedExpression:
    """The window in a form that no row can make fail, over the rows of one unit.

    Args:
        node: the window.
        scope: the columns of the rows.
        unit: the unit's column; None if each row is a unit.

    Guarantee: its value is a function of the rows of its row's own unit, the same on every engine.
    Proof: docs/proofs/bounding.md, "Windows of one unit"
    """
    keys = [compile_expression(part, scope) for part in node.args.get("partition_by") or []]
    if unit is None or not any(key.column is not None and key.column.is_unit for key in keys):
        raise Refused(
            "a window goes over rows of several units",
            why="one person could change a row that stands for others",
            fix="add PARTITION BY with the unit's key, or compute it from the released table",
        )
    if node.args.get("alias") is not None:
        raise Unsupported(
            "a window is named that is not defined",
            why="the WINDOW clause of this SELECT has no such name",
            fix="write the window out, as OVER (PARTITION BY … ORDER BY …)",
        )
    order = node.args.get("order")
    ordered = [part for item in (order.expressions if order else ()) for part in _order(item, scope)]
    function = node.this
    frame = _frame(node.args.get("spec")) if isinstance(function, _AGGREGATES + _ENDS) else None
    if isinstance(function, (exp.RowNumber, *_OF_ROWS)) or frame is not None:
        ordered += [part for column in _columns(scope) for part in _ordered(column, is_descending=False)]
    elif not isinstance(function, _AGGREGATES + _RANKS):
        known = (
            "ROW_NUMBER, RANK, DENSE_RANK, LAG, LEAD, FIRST_VALUE, LAST_VALUE, COUNT, SUM, AVG, MIN and MAX"
        )
        raise Unsupported(
            f"{describe_construct(function)} is not supported over the rows of a unit",
            why=f"{known} are",
            fix="use one of these",
        )
    partition = [
        key.sql.copy() for key in keys if not key.is_literal and not (key.column and key.column.is_unit)
    ]
    partition.append(unit.copy())

    def over(call: exp.Expr) -> exp.Window:
        by = exp.Order(expressions=[each.copy() for each in ordered]) if ordered else None
        spec = frame.copy() if frame is not None else None
        return exp.Window(this=call, partition_by=[each.copy() for each in partition], order=by, spec=spec)

    if isinstance(function, _RANKS):
        number = exp.Cast(this=over(type(function)()), to=DOUBLE.copy())
        return TypedExpression(number, Kind.NUMBER, size=(0, 64))
    if isinstance(function, _OF_ROWS):
        return _of_other_row(function, scope, over)
    if isinstance(function.this, exp.Distinct):
        raise Unsupported(
            "DISTINCT in a window is not supported", why="engines disagree on it", fix="leave DISTINCT out"
        )
    typed = compile_unit_aggregate(function, scope)
    holder = exp.Paren(this=typed.sql.copy())
    for call in list(holder.find_all(exp.AggFunc)):
        call.replace(over(call.copy()))
    return TypedExpression(
        holder, typed.kind, typed.bounds, typed.keys, size=typed.size, is_complete=typed.is_complete
    )


def _frame(spec: exp.Expr | None) -> exp.WindowSpec | None:
    """A frame of rows; None for the one that a window has anyway.

    A frame of a range of values ends at whatever rows are equal in ORDER BY: only the default one is known.
    """
    if spec is None:
        return None
    kind = str(spec.args.get("kind") or "").upper()
    start, end = (_end(spec, part) for part in ("start", "end"))
    is_default = kind == "RANGE" and start == ("UNBOUNDED", "PRECEDING") and end[0] == "CURRENT ROW"
    is_whole = (start, end) == (("UNBOUNDED", "PRECEDING"), ("UNBOUNDED", "FOLLOWING"))
    is_empty = _place(start) > _place(end)
    if (
        spec.args.get("exclude")
        or is_empty
        or not (kind == "ROWS" or is_default or (kind == "RANGE" and is_whole))
    ):
        raise Unsupported(
            "this frame of a window is not supported",
            why="engines disagree on ranges of values",
            fix="write ROWS BETWEEN 6 PRECEDING AND CURRENT ROW, or leave the frame out",
        )
    if is_default:
        return None

    def part(value: str) -> exp.Expr | str:
        return exp.Literal.number(value) if value.isdigit() else value

    return exp.WindowSpec(
        kind="ROWS", start=part(start[0]), start_side=start[1], end=part(end[0]), end_side=end[1]
    )


def _place(end: tuple[str, str | None]) -> float:
    """The number of rows from the current one to an end of a frame."""
    value, side = end
    rows = 0.0 if side is None else math.inf if value == "UNBOUNDED" else float(value)
    return -rows if side == "PRECEDING" else rows


def _end(spec: exp.Expr, name: str) -> tuple[str, str | None]:
    """One end of a frame: UNBOUNDED, CURRENT ROW or a number of rows, and on which side."""
    value, side = spec.args.get(name), spec.args.get(f"{name}_side")
    if value is None or value == "CURRENT ROW":
        return "CURRENT ROW", None
    if value == "UNBOUNDED":
        return "UNBOUNDED", str(side).upper()
    if not isinstance(value, exp.Expr) or not _is_count(value) or int(value.this) > _MAX_OFFSET:
        raise Unsupported(
            "an end of a window's frame is not a number of rows",
            why="it must be known beforehand",
            fix=f"write a number of at most {_MAX_OFFSET} PRECEDING or FOLLOWING",
        )
    return str(int(value.this)), str(side).upper()


def _of_other_row(
    function: exp.Expr, scope: Scope, over: Callable[[exp.Expr], exp.Window]
) -> TypedExpression:
    """LAG, LEAD, FIRST_VALUE and LAST_VALUE: the rows are in a total order, up to rows that are alike."""
    check_arguments(function, "this", *(("offset", "default") if isinstance(function, _NEIGHBOURS) else ()))
    value = compile_expression(function.this, scope)
    if value.kind is Kind.OPAQUE:
        raise unknown_type_compared()
    offset = function.args.get("offset")
    count = 1 if offset is None else int(offset.this) if _is_count(offset) else 0
    if not 1 <= count <= _MAX_OFFSET:
        raise Unsupported(
            "the offset of LAG or LEAD is not a whole number from 1 on",
            why="it must be known beforehand",
            fix=f"write a number from 1 to {_MAX_OFFSET}",
        )
    call = type(function)(this=value.sql)
    missing = TypedExpression(exp.Null(), Kind.OPAQUE, is_literal=True)
    if isinstance(function, _NEIGHBOURS):
        call.set("offset", exp.Literal.number(count))
        if function.args.get("default") is not None:
            missing = as_kind(compile_expression(function.args["default"], scope), value.kind, "a default")
            call.set("default", missing.sql.copy())
    return union_of(over(call), value.kind, [value, missing])


def _is_count(node: exp.Expr) -> bool:
    return isinstance(node, exp.Literal) and not node.is_string and str(node.this).isdigit()


def has_aggregate(node: exp.Expr) -> bool:
    """True if an expression has an aggregate over rows, outside of windows and sub-queries."""
    if isinstance(node, (exp.Window, exp.Select, exp.SetOperation)):
        return False
    if isinstance(node, exp.AggFunc):
        return True
    parts = (part for value in node.args.values() for part in (value if isinstance(value, list) else [value]))
    return any(has_aggregate(part) for part in parts if isinstance(part, exp.Expr))


def _order(item: exp.Expr, scope: Scope) -> list[exp.Ordered]:
    typed = compile_expression(item.this, scope)
    if typed.kind is Kind.OPAQUE:
        raise unknown_type_compared()
    nulls_first = bool(item.args.get("nulls_first"))
    return _ordered(typed.sql, is_descending=bool(item.args.get("desc")), nulls_first=nulls_first)


def _ordered(sql: exp.Expr, *, is_descending: bool, nulls_first: bool = False) -> list[exp.Ordered]:
    """NULL first or last by an expression of its own: engines disagree on where it is."""
    missing = exp.If(
        this=exp.Is(this=exp.Paren(this=sql.copy()), expression=exp.Null()), true=exp.Literal.number(1)
    )
    indicator = exp.Case(ifs=[missing], default=exp.Literal.number(0))
    return [
        exp.Ordered(this=indicator, desc=nulls_first, nulls_first=False),
        exp.Ordered(this=sql.copy(), desc=is_descending, nulls_first=False),
    ]


def _columns(scope: Scope) -> list[exp.Expr]:
    """All columns that can be compared; of others nothing is visible but whether they are NULL."""
    columns: list[exp.Expr] = []
    for alias, source in scope.sources.items():
        for column in source:
            if column.is_unit:
                continue
            name = exp.column(
                exp.to_identifier(column.name, quoted=True), exp.to_identifier(alias, quoted=True)
            )
            columns.append(
                name if column.kind is not Kind.OPAQUE else exp.Is(this=name, expression=exp.Null())
            )
    return columns
