"""Which outputs are integers, and how their estimates are rounded.

A count is an integer, whatever noise it carries. Which outputs are integers follows from the expressions
alone, so it is known at planning; rounding what was released costs nothing.

Proof: docs/proofs/intervals.md, "Integers"
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from sqlglot import exp

from hubbub.sql.moments import Estimate, Floats
from hubbub.sql.query import AggregateCall

__all__ = ["counts_rows_or_units", "integer_outputs", "is_integer_expression", "round_estimate"]

_COUNTS = {"count", "units", "distinct"}
_MAX_FACTOR = 10**6
_ULPS = 16
"""What ends are moved outward for the rounding of doubles, in units of the last place: 2^-48."""
_LIMIT = 2.0**62
"""Integers of 64 bits hold all answers; larger ones are cut, and their ends are open."""
_ALWAYS_INTEGERS = (exp.Floor, exp.Ceil, exp.Count, exp.CountIf, exp.RowNumber, exp.Rank, exp.DenseRank)
_SUMS = (exp.Add, exp.Sub)
_OF_ONE = (exp.Paren, exp.Neg, exp.Abs, exp.Nullif, exp.Sum, exp.Min, exp.Max, exp.Window, exp.Lag, exp.Lead)


def counts_rows_or_units(call: AggregateCall) -> bool:
    """Return whether the exact answer is a number of rows, units or values, where nothing is weighted."""
    if call.per_group is not None:
        kind, low, high = call.per_group
        return call.kind == "sum" and kind == "count" and low.denominator == high.denominator == 1
    return call.kind in _COUNTS


def is_integer_expression(node: exp.Expr | None, is_integer: Callable[[exp.Column], bool]) -> bool:
    """Return whether an expression over released columns is an integer, or NULL.

    Args:
        node: the expression.
        is_integer: says so of its columns.

    >>> from sqlglot import parse_one
    >>> texts = ("n + 1", "ABS(n - m)", "n / 2", "CASE WHEN n > 1.5 THEN n ELSE 0 END", "ROUND(n / 2)")
    >>> [is_integer_expression(parse_one(text), lambda _: True) for text in texts]
    [True, True, False, True, True]
    """
    if isinstance(node, exp.Column):
        return is_integer(node)
    if isinstance(node, exp.Literal):
        return not node.is_string and node.this.isdigit() and len(node.this) <= 15
    if isinstance(node, exp.Null):
        return True
    if isinstance(node, exp.Round):
        return node.args.get("decimals") is None
    if isinstance(node, _ALWAYS_INTEGERS):
        return True
    if isinstance(node, exp.Mul):
        factors = [part.unnest() for part in (node.this, node.expression)]
        small = [
            isinstance(f, exp.Literal) and f.this.isdigit() and int(f.this) <= _MAX_FACTOR for f in factors
        ]
        return any(small) and all(is_integer_expression(factor, is_integer) for factor in factors)
    if isinstance(node, exp.Case):
        values = [branch.args.get("true") for branch in node.args["ifs"]]
        values += [node.args["default"]] if node.args.get("default") is not None else []
    elif isinstance(node, exp.If):
        values = [node.args.get("true"), node.args.get("false") or exp.Null()]
    elif isinstance(node, exp.Coalesce):
        values = [node.this, *node.expressions]
    elif isinstance(node, _SUMS):
        values = [node.this, node.expression]
    elif isinstance(node, _OF_ONE):
        values = [node.this]
    else:
        return False
    return all(is_integer_expression(value, is_integer) for value in values)


def integer_outputs(
    statement: exp.Expr, released: Mapping[str, Mapping[str, bool]], ctes: Mapping[str, exp.CTE] | None = None
) -> dict[str, bool]:
    """Return for each output of SQL over released tables whether it is an integer.

    Names are in lower case and in the order of the outputs, with a number behind those that are there
    already, as in DuckDB. If a star has columns that are not known, nothing is returned.

    Args:
        statement: the SQL.
        released: by table, its columns and whether each is an integer.
        ctes: the common table expressions of the statement; found if omitted.

    >>> from sqlglot import parse_one
    >>> known = {"t": {"n": True, "mean": False}}
    >>> integer_outputs(parse_one("SELECT SUM(n) AS a, m AS b FROM (SELECT n, mean AS m FROM t)"), known)
    {'a': True, 'b': False}
    >>> integer_outputs(parse_one("SELECT u.*, t.n FROM t JOIN t AS u ON t.n < u.mean"), known)
    {'n': True, 'mean': False, 'n_1': True}
    """
    if ctes is None:
        ctes = {cte.alias.lower(): cte for cte in statement.find_all(exp.CTE)}
    if isinstance(statement, exp.Subquery):
        plain = not statement.args.get("pivots")
        return integer_outputs(statement.this, released, ctes) if plain else {}
    if isinstance(statement, exp.SetOperation):
        left, right = (integer_outputs(side, released, ctes) for side in (statement.left, statement.right))
        if len(left) != len(right):
            return {}
        return {name: one and two for (name, one), two in zip(left.items(), right.values(), strict=True)}
    if not isinstance(statement, exp.Select):
        return {}
    sources = list(_sources(statement, released, ctes))

    def is_integer(column: exp.Column) -> bool:
        name, table = column.name.lower(), column.table.lower()
        tables = [source.columns for source in sources if not table or source.name == table]
        return any(name in each for each in tables) and all(each.get(name, True) for each in tables)

    outputs: list[tuple[str, bool]] = []
    for item in statement.expressions:
        if not item.is_star:
            outputs.append((item.alias_or_name.lower(), is_integer_expression(item.unalias(), is_integer)))
            continue
        table = item.args["table"].name.lower() if isinstance(item, exp.Column) else ""
        tables = [source for source in sources if not table or source.name == table]
        if not tables or not all(source.columns for source in tables):
            return {}
        for source in tables:
            # Of columns that are joined by name, a plain star has one.
            outputs += [
                (name, is_integer(exp.column(name)) if name in source.shared else each)
                for name, each in source.columns.items()
                if table or name not in source.merged
            ]
    unique: dict[str, bool] = {}
    for name, each in outputs:
        number, free = 1, name
        while free in unique:
            free, number = f"{name}_{number}", number + 1
        unique[free] = each
    return unique


@dataclass(frozen=True)
class _Source:
    """A table of FROM or of a join: its columns, if they are known, and whether each is an integer."""

    name: str
    columns: Mapping[str, bool]
    shared: frozenset[str]
    """Columns by which it, or another table, is joined by name."""
    merged: frozenset[str]
    """Columns that a plain star has from a table before this one."""


def _sources(
    statement: exp.Select, released: Mapping[str, Mapping[str, bool]], ctes: Mapping[str, exp.CTE]
) -> Iterator[_Source]:
    clause = statement.args.get("from_")
    # SELECT does not see the right-hand side of a semi-join or an anti-join.
    joins = [j for j in statement.args.get("joins") or () if j.args.get("kind") not in {"SEMI", "ANTI"}]
    relations: list[tuple[exp.Expr, exp.Join | None]] = []
    relations += [(clause.this, None)] if clause is not None else []
    relations += [(join.this, join) for join in joins]
    columns = [_source_columns(source, released, ctes) for source, _ in relations]
    before: set[str] = set()
    by_name: list[frozenset[str]] = []
    for (_, join), own in zip(relations, columns, strict=True):
        if join is None:
            merged = frozenset[str]()
        elif join.args.get("method") == "NATURAL":
            merged = frozenset(before & own.keys())
        else:
            merged = frozenset(each.name.lower() for each in join.args.get("using") or ())
        by_name.append(merged)
        before |= own.keys()
    shared = frozenset[str]().union(*by_name)
    for (source, _), own, merged in zip(relations, columns, by_name, strict=True):
        yield _Source(source.alias_or_name.lower(), own, shared, merged)


def _source_columns(
    source: exp.Expr, released: Mapping[str, Mapping[str, bool]], ctes: Mapping[str, exp.CTE]
) -> dict[str, bool]:
    if source.args.get("pivots") or source.args.get("joins"):
        return {}
    if isinstance(source, exp.Subquery):
        return integer_outputs(source, released, ctes)
    if isinstance(source, exp.Table) and source.name.lower() in released:
        known = released[source.name.lower()]
        return {name.lower(): is_integer for name, is_integer in known.items()}
    if isinstance(source, exp.Table) and source.name.lower() in ctes:
        cte = ctes[source.name.lower()]
        others = {name: each for name, each in ctes.items() if each is not cte}
        return integer_outputs(cte.this, released, others)
    return {}


def round_estimate(estimate: Estimate, *, is_exact_integer: bool) -> Estimate:
    """Round the estimate of an integer, and its ends.

    >>> noisy = Estimate(*(np.array([end]) for end in (8.7, 4.2, 13.2)))
    >>> [each.item() for each in vars(round_estimate(noisy, is_exact_integer=True)).values()]
    [9.0, 5.0, 13.0]
    >>> [each.item() for each in vars(round_estimate(noisy, is_exact_integer=False)).values()]
    [9.0, 4.0, 14.0]

    Args:
        estimate: the estimate.
        is_exact_integer: true if the exact answer of the bounded query is an integer. Then only the integers
            between the ends count; else, where units above a bound count less, the ends are rounded outward.

    Guarantee: the rounded ends hold the exact answer whenever the given ones do.
    Proof: docs/proofs/intervals.md, "Integers"
    """
    low, high = np.floor(_snap(estimate.low)), np.ceil(_snap(estimate.high))
    if is_exact_integer:
        inner_low, inner_high = np.ceil(estimate.low), np.floor(estimate.high)
        # No interval is a point: one that holds a single integer, or none, stays the wider one.
        has_room = inner_low < inner_high
        low, high = np.where(has_room, inner_low, low), np.where(has_room, inner_high, high)
    with np.errstate(invalid="ignore"):
        value = np.clip(np.clip(np.rint(estimate.value), low, high), -_LIMIT, _LIMIT)
    return Estimate(_without_minus_zero(value), _open(low), _open(high))


def _snap(end: Floats) -> Floats:
    """Ends that arithmetic moved outward by a few units in the last place, back to the integer they are."""
    near = np.rint(end)
    with np.errstate(invalid="ignore"):
        is_near = np.abs(end - near) <= _ULPS * np.spacing(np.abs(end))
    return np.where(is_near, near, end)


def _open(end: Floats) -> Floats:
    """Ends beyond the integers are infinite."""
    beyond = np.where(end < -_LIMIT, -np.inf, np.where(end > _LIMIT, np.inf, end))
    return _without_minus_zero(beyond)


def _without_minus_zero(values: Floats) -> Floats:
    return np.asarray(values + 0.0)
