"""Names of outputs that have no alias: `count`, `avg_cost`, `sum_cost_over_count`."""

import re
from collections.abc import Collection

from sqlglot import exp

__all__ = ["choose_name", "default_name", "name_outputs"]

_MAX_LENGTH = 60
_WORDS: dict[type[exp.Expr], str] = {
    exp.Add: "plus",
    exp.Sub: "minus",
    exp.Mul: "times",
    exp.Div: "over",
    exp.IntDiv: "over",
    exp.Mod: "mod",
}


def default_name(node: exp.Expr) -> str:
    """Return the name of an output without an alias: words, so that `_low` and `_high` can be added.

    >>> from sqlglot import parse_one
    >>> [default_name(parse_one(text)) for text in ("COUNT(*)", "AVG(cost)", "COUNT(DISTINCT t.Who)")]
    ['count', 'avg_cost', 'count_distinct_who']
    >>> default_name(parse_one("SUM(cost) / COUNT(*) - 1"))
    'sum_cost_over_count_minus_1'
    """
    if isinstance(node, exp.Column):
        return node.name
    return re.sub(r"\W+", "_", _spell(node)).strip("_").lower()[:_MAX_LENGTH].rstrip("_") or "answer"


def choose_name(node: exp.Expr, names: Collection[str]) -> str:
    """Return the default name, or if it is in use the next free one: `count`, `count_1`, …

    >>> from sqlglot import parse_one
    >>> choose_name(parse_one("COUNT(*)"), {"count", "count_1"})
    'count_2'
    """
    if isinstance(node, exp.Column):
        return node.name
    name, number = default_name(node), 1
    unique = name
    while unique.lower() in names:
        unique, number = f"{name}_{number}", number + 1
    return unique


def name_outputs(select: exp.Select) -> None:
    """Give each output that is no column an alias, which is no name of a column that is used.

    >>> from sqlglot import parse_one
    >>> select = parse_one("SELECT t.*, n, n / 2, max_n, MAX(n) FROM t")
    >>> name_outputs(select)
    >>> print(select.sql())
    SELECT t.*, n, n / 2 AS "n_over_2", max_n, MAX(n) AS "max_n_1" FROM t
    """
    names = {item.alias.lower() for item in select.expressions}
    names |= {column.name.lower() for column in select.find_all(exp.Column)}
    items = []
    for item in select.expressions:
        if item.alias or item.is_star or isinstance(item, exp.Column):
            items.append(item)
        else:
            items.append(exp.alias_(item, choose_name(item, names), quoted=True))
            names.add(items[-1].alias.lower())
    select.set("expressions", items)


def _spell(node: exp.Expr) -> str:
    if isinstance(node, exp.Column):
        return node.name
    if type(node) in _WORDS:
        return f"{_spell(node.this)} {_WORDS[type(node)]} {_spell(node.expression)}"
    if isinstance(node, exp.Paren):
        return _spell(node.this)
    if isinstance(node, exp.Neg):
        return f"minus {_spell(node.this)}"
    plain = node.copy()
    for column in plain.find_all(exp.Column):
        column.set("table", None)
    return plain.sql("duckdb", comments=False)
