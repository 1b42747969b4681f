"""Values that stand for the cells of a column, enough of them for one query, which is checked for that.

Of a category or a bin of few values, these are all values, and any expression of them is evaluated. Of other
bins and of the cell for other values, only comparisons with constants are known to be the same for all values
that were tried and all that were not: everything else is refused.

Proof: docs/proofs/synopsis.md, "Intervals"
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlglot import exp

from hubbub.errors import InvalidInput, Unsupported
from hubbub.sql.query import Query
from hubbub.synthesis.domain import OTHER, Column, ColumnKind, Interval, to_date, to_number

__all__ = ["Points", "choose_points", "is_bare"]

_MAX_POINTS = 256
_EQUALITIES = (exp.EQ, exp.NEQ)
_COMPARISONS = (*_EQUALITIES, exp.LT, exp.LTE, exp.GT, exp.GTE)


@dataclass(frozen=True)
class Points:
    """Values of one column that stand for its cells: of a bin, all its values, or enough of them."""

    values: list[Any]
    cells: NDArray[np.int64]


def choose_points(column: Column, query: Query) -> Points:
    """Values of every cell, enough for the query: it divides a cell only if it divides its points.

    Raises:
        Unsupported: if the query does more with the column than compare it with constants, and its cells
            have values that are not tried.
    """
    has_all = not column.is_binned or all(
        _all_values(column, cell) is not None for cell in range(column.bins)
    )
    constants: list[Any] = []
    if column.has_other:
        _check_other(column, query)
    elif not has_all:
        constants = [_as_number(value, column) for value in _compared(column, query, _COMPARISONS)]
    values: list[Any] = []
    cells: list[int] = []
    for cell in range(column.size):
        label = column.decode(cell)
        if isinstance(label, Interval):
            known = _all_values(column, cell)
            own = known if known is not None else _bin_points(column, cell, constants)
        else:
            own = [_other_value(column) if label is OTHER else label]
        values += own
        cells += [cell] * len(own)
    return Points(values, np.array(cells, dtype=np.int64))


def is_bare(node: exp.Expr, name: str) -> bool:
    """True for the column itself, also in the form in which a number is a group key: −0 as 0."""
    node = node.unnest()
    if isinstance(node, exp.Column):
        return bool(node.name.lower() == name.lower())
    if not isinstance(node, exp.Case) or node.this is not None or len(node.args["ifs"]) != 1:
        return False
    first, default = node.args["ifs"][0], node.args.get("default")
    return (
        default is not None
        and is_bare(default, name)
        and isinstance(first.this, exp.EQ)
        and is_bare(first.this.this, name)
        and _is_zero(first.this.expression)
        and _is_zero(first.args["true"])
    )


def _is_zero(node: exp.Expr) -> bool:
    value = _fold(node)
    return isinstance(value, Fraction) and value == 0


# Bins


def _last_value(column: Column, cell: int) -> Fraction:
    """The highest value of a bin of a column with a step."""
    assert column.unit is not None
    high = column.edges[cell + 1]
    return high if cell == column.bins - 1 and not column.ends_after_last else high - column.unit


def _all_values(column: Column, cell: int) -> list[Any] | None:
    """All values of a bin; None if there are many."""
    if column.unit is None:
        return None
    low = column.edges[cell]
    count = int((_last_value(column, cell) - low) / column.unit) + 1
    if count > _MAX_POINTS:
        return None
    return [_as_value(low + column.unit * place, column) for place in range(count)]


def _bin_points(column: Column, cell: int, constants: Sequence[Fraction]) -> list[Any]:
    """Both ends of a bin, the constants within it, and a value between each two of them."""
    low, high, step = column.edges[cell], column.edges[cell + 1], column.unit
    if step is None:  # rows and constants are compared with the double next to a cut
        low, high = Fraction(float(low)), Fraction(float(high))
    inner = [each for each in constants if low < each < high]
    if step is not None:
        last = _last_value(column, cell)
        nearest = [low + (each - low) // step * step + step * shift for each in inner for shift in (-1, 0, 1)]
        points = {low, low + (last - low) // step * step, *nearest}
        return [_as_value(each, column) for each in sorted(points) if low <= each <= last]
    end = high if cell == column.bins - 1 else Fraction(math.nextafter(float(high), -math.inf))
    ends = sorted({low, *inner, end})
    between = [(one + two) / 2 for one, two in pairwise(ends)]
    return sorted({float(each) for each in (*ends, *between)})


def _as_value(number: Fraction, column: Column) -> Any:
    return to_date(number) if column.kind is ColumnKind.DATES else float(number)


def _as_number(value: Any, column: Column) -> Fraction:
    """A constant that a bin's values are compared with, as the engine has it."""
    if isinstance(value, date) and column.kind is ColumnKind.DATES:
        return Fraction(to_number(value))
    if isinstance(value, Fraction) and column.kind is ColumnKind.NUMBERS:
        return Fraction(float(value))
    raise _not_a_comparison(column.name)


# Other values


def _other_value(column: Column) -> Any:
    """A value that is no category: conditions that are allowed cannot tell it from other such values."""
    return "\u2060other" if all(isinstance(each, str) for each in column.categories) else 2.0**199


def _check_other(column: Column, query: Query) -> None:
    kinds = (str, float)
    is_known = any(all(isinstance(each, kind) for each in column.categories) for kind in kinds)
    for value in _compared(column, query, _EQUALITIES):
        plain = float(value) if isinstance(value, Fraction) else value
        if not is_known or plain not in column.categories:
            raise InvalidInput(
                f"the query has a constant that is not a declared category of {column.name}",
                why="all other values were counted in one cell",
                fix=f"compare {column.name} with its declared categories only",
            )


# What the query does with a column


def _compared(column: Column, query: Query, allowed: tuple[type[exp.Expr], ...]) -> Iterator[Any]:
    """The constants that a column is compared with; refuses everything else that is done with it."""
    counts = {f"x{call.arguments[0]}" for call in query.aggregates if call.kind == "count" and call.arguments}
    others = {f"x{place}" for call in query.aggregates if call.kind != "count" for place in call.arguments}
    trees = list(query.rows.expressions)
    if query.rows.args.get("where"):
        trees.append(query.rows.args["where"])
    for tree in trees:
        if isinstance(tree, exp.Alias) and is_bare(tree.this, column.name):
            is_counted = tree.alias in counts and tree.alias not in others
            if not column.has_other or is_counted or tree.alias.startswith("k"):
                continue
            raise _not_a_comparison(column.name)
        for node in tree.find_all(exp.Column):
            if node.name.lower() == column.name.lower():
                yield from _constants(node, column.name, allowed)


def _constants(node: exp.Expr, name: str, allowed: tuple[type[exp.Expr], ...]) -> list[Any]:
    """The constants of the comparison that a column is in."""
    while isinstance(node.parent, exp.Paren):
        node = node.parent
    parent = node.parent
    if isinstance(parent, exp.Is) and parent.this is node and isinstance(parent.expression, exp.Null):
        return []
    if isinstance(parent, allowed):
        sides = [parent.expression if parent.this is node else parent.this]
    elif isinstance(parent, exp.In) and parent.this is node and not parent.args.get("query"):
        sides = parent.expressions
    elif isinstance(parent, exp.Between) and parent.this is node and exp.LTE in allowed:
        sides = [parent.args["low"], parent.args["high"]]
    else:
        raise _not_a_comparison(name)
    values = [_fold(side) for side in sides]
    if not values or any(value is None for value in values):
        raise _not_a_comparison(name)
    return values


def _fold(node: exp.Expr) -> Any:
    """The constant that an expression is: a Fraction, a text or a date; None if it is not written as one."""
    node = node.unnest()
    if isinstance(node, exp.Neg):
        value = _fold(node.this)
        return -value if isinstance(value, Fraction) else None
    if isinstance(node, exp.Literal):
        return str(node.this) if node.is_string else _number(str(node.this))
    if type(node) is exp.Cast:
        value, to = _fold(node.this), node.to.this
        if isinstance(value, Fraction) and to == exp.DataType.Type.DOUBLE:
            return value
        if isinstance(value, str) and to == exp.DataType.Type.DATE:
            try:
                return date.fromisoformat(value)
            except ValueError:
                return None
    return None


def _number(text: str) -> Fraction | None:
    number = float(text)
    return Fraction(number) if math.isfinite(number) else None


def _not_a_comparison(name: str) -> Unsupported:
    return Unsupported(
        f"the query does more with {name} than compare it with constants",
        why="a cell holds many values, for which the result may differ",
        fix=f"compare {name} with the cuts of its bins or with its declared categories, written as constants",
    )
