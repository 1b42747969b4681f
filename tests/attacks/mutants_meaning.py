"""SQL's own meaning: as it was before, kept so that each attack is seen to find what it looks for."""

import operator
from dataclasses import replace

import duckdb
import numpy as np
import sqlglot
from sqlglot import exp

import hubbub as hb
from hubbub.sql.query import Query

_SIGNS = {exp.LT: operator.lt, exp.GT: operator.gt, exp.EQ: operator.eq, exp.Mul: operator.mul}


def _try_out(node, row):
    """An expression computed as Python would, whatever its kinds are."""
    if isinstance(node, exp.Literal):
        return node.this if node.is_string else float(node.this)
    if isinstance(node, exp.Column):
        return row[node.name]
    if isinstance(node, exp.Paren):
        return _try_out(node.this, row)
    if isinstance(node, exp.Case):
        for branch in node.args["ifs"]:
            if _try_out(branch.this, row):
                return _try_out(branch.args["true"], row)
        default = node.args.get("default")
        return None if default is None else _try_out(default, row)
    one, two = _try_out(node.this, row), _try_out(node.expression, row)
    if isinstance(node, exp.Mul):
        return float(one) * float(two)
    return False if one is None or two is None else _SIGNS[type(node)](one, two)


def _run(query: Query, groups, counts):
    rows = [
        {"a0": count, **{f"k{place}": key for place, key in enumerate(group)}}
        for group, count in zip(groups, counts, strict=True)
    ]
    if query.having is not None:
        rows = [row for row in rows if _try_out(query.having, row)]
    for order in reversed(query.order):
        rows.sort(key=lambda row: _try_out(order.sql, row))
    return [tuple(_try_out(output.sql, row) for output in query.outputs) for row in rows]


def tried_on_one_example(query: Query):
    """A31, A51: an output was tried on one example at planning, with its first key and a count of 1."""
    _run(query, [tuple((key.values or ("a",))[0] for key in query.keys)], [1.0])
    return lambda groups, counts: _run(query, groups, counts)


def only_the_first_key(query: Query):
    """A32: of the keys only the first was tried."""
    return tried_on_one_example(query)


def without_the_null_group(plan):
    """A52, A69: inferred keys had no NULL, and nothing said that such rows are left out."""
    keys = tuple(
        replace(key, values=tuple(value for value in key.values if value is not None), is_complete=True)
        for key in plan.query.keys
    )
    return replace(plan, bounded=replace(plan.bounded, query=replace(plan.query, keys=keys)))


def _rewritten(change):
    def answer(text: str, connection: duckdb.DuckDBPyConnection) -> list[tuple]:
        tree = change(sqlglot.parse_one(text, read="duckdb"))
        return connection.execute(tree.sql("duckdb")).fetchall()

    return answer


def alias_before_column(text: str, connection: duckdb.DuckDBPyConnection) -> list[tuple]:
    """A53: in GROUP BY and HAVING an alias came before the column of the same name."""

    def change(tree):
        aliases = {item.alias: item.this for item in tree.expressions if isinstance(item, exp.Alias)}
        for clause in ("group", "having"):
            if tree.args.get(clause) is not None:
                bound = tree.args[clause].transform(
                    lambda node: (
                        aliases[node.name].copy()
                        if isinstance(node, exp.Column) and node.name in aliases
                        else node
                    )
                )
                tree.set(clause, bound)
        return tree

    return _rewritten(change)(text, connection)


def unknown_is_false(text: str, connection: duckdb.DuckDBPyConnection) -> list[tuple]:
    """A53: a comparison with NULL was false, so NOT of it was true."""

    def change(tree):
        return tree.transform(
            lambda node: (
                exp.Coalesce(this=node, expressions=[exp.false()])
                if isinstance(node, (exp.GT, exp.EQ)) and isinstance(node.parent, (exp.Paren, exp.Not))
                else node
            )
        )

    return _rewritten(change)(text, connection)


def nulls_always_last(text: str, connection: duckdb.DuckDBPyConnection) -> list[tuple]:
    """A68: NULLS FIRST was passed over."""

    def change(tree):
        for item in tree.find_all(exp.Ordered):
            item.set("nulls_first", False)
        return tree

    return _rewritten(change)(text, connection)


def shown_as_it_is(values: np.ndarray) -> str:
    """A74: a missing number was shown as NaN."""
    return "\n".join(str(value.item()) for value in values)


def refused_for_another_reason(text: str) -> None:
    """A74: constants and texts were taken for columns without bounds, and for numbers."""
    raise hb.InvalidInput(
        text, why="an output computes with something that is not a number", fix="use numbers"
    )
