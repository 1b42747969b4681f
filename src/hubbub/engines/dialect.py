"""Translation of a query into an engine's dialect: the rules' own tree, with some nodes replaced.

The rules build trees of few kinds of nodes, all listed here. An engine's dialect is a table: for each kind of
node that means something else on that engine, an equivalent, or a refusal. A node that is not listed was only
ever checked on DuckDB, so it is refused.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import count
from typing import Any

from sqlglot import exp

from hubbub.errors import Unsupported

__all__ = [
    "BIN_INDEX",
    "INEXACT",
    "KEY_PLACE",
    "Translations",
    "call",
    "is_portable",
    "is_wide_integer",
    "output_names",
    "replace_types",
    "translate",
    "unsupported_node",
]

Translations = Mapping[type[exp.Expr], Callable[[exp.Expr], exp.Expr]]
"""For a kind of node, a function that makes its replacement; its arguments are translated already."""

_CHECKED_NODES = frozenset({
    exp.Abs, exp.Add, exp.Alias, exp.And, exp.Anonymous, exp.Between, exp.BitwiseRightShift, exp.Boolean,
    exp.CTE, exp.Case, exp.Cast, exp.Ceil, exp.Coalesce, exp.Column, exp.Count, exp.DPipe, exp.DataType,
    exp.DataTypeParam, exp.DateDiff, exp.DenseRank, exp.Distinct, exp.Div, exp.EQ, exp.Exp, exp.Extract,
    exp.FirstValue, exp.Floor, exp.From, exp.GT, exp.GTE, exp.Greatest, exp.Group, exp.GroupingSets,
    exp.Having, exp.Identifier, exp.If, exp.In, exp.IntDiv, exp.Interval, exp.Is, exp.Join, exp.LT, exp.LTE,
    exp.Lag, exp.LastValue, exp.Lead, exp.Least, exp.Length, exp.Like, exp.Literal, exp.Ln, exp.LogicalAnd,
    exp.LogicalOr, exp.Max, exp.Min, exp.Mod, exp.Mul, exp.NEQ, exp.Neg, exp.Not, exp.Null, exp.NullSafeEQ,
    exp.Nullif,
    exp.Or, exp.Order, exp.Ordered, exp.Pad, exp.Paren, exp.Pow, exp.Rank, exp.RegexpLike, exp.Replace,
    exp.Right, exp.RowNumber, exp.Select, exp.Sign, exp.Sqrt, exp.Star, exp.StartsWith, exp.StrPosition,
    exp.Sub, exp.Subquery, exp.Substring, exp.Sum, exp.Table, exp.TableAlias, exp.TimestampTrunc,
    exp.Translate, exp.Trim, exp.TryCast, exp.Tuple, exp.Union, exp.Var, exp.Where, exp.Window,
    exp.WindowSpec, exp.With,
})  # fmt: skip
BIN_INDEX = "BIN_INDEX"
"""BIN_INDEX(x, end, …): how many of the sorted ends x is not below; for servers, which have no such function
of one name. `x` is neither NULL nor NaN."""
KEY_PLACE = "KEY_PLACE"
"""KEY_PLACE(x, key, …): the place of the first key that x equals, from 0; NULL if there is none. For Spark,
where each join with a list of keys takes tens of megabytes."""
_DUCKDB_CALLS = {
    **dict.fromkeys(("LOG10", "LOG2"), "its last bit is not the same on every machine"),
    **dict.fromkeys(
        ("REGEXP_MATCHES", "REGEXP_FULL_MATCH", "REGEXP_EXTRACT"),
        "engines read regular expressions in different ways",
    ),
}
"""Functions that have no equivalent on any other engine than DuckDB, and why."""


def translate(
    query: exp.Expr, translations: Translations, scans: Mapping[str, exp.Expr], dialect: str
) -> str:
    """Render a query in an engine's dialect.

    Guarantee: a node that is not known to mean the same there is refused.

    Args:
        query: built by the rules.
        translations: the engine's table of replacements.
        scans: for each table of the dataset, the sub-query that reads it.
        dialect: the engine's name in sqlglot.
    """
    for node in query.walk():
        if type(node) not in _CHECKED_NODES:
            raise unsupported_node(node, "its meaning was checked on DuckDB only")
        if isinstance(node, exp.Anonymous) and str(node.this) in _DUCKDB_CALLS:
            raise unsupported_node(node, _DUCKDB_CALLS[str(node.this)])
    scanned = query.copy().transform(lambda node: _replace_table(node, scans), copy=False)
    return _rename_repeated_ctes(_replace_nodes(scanned, translations)).sql(dialect)


def is_portable(sql: exp.Expr) -> bool:
    """True if an expression has the same values on every engine; else it is refused on some."""
    return all(
        type(node) in _CHECKED_NODES
        and type(node) not in INEXACT
        and not (isinstance(node, exp.Anonymous) and str(node.this) in _DUCKDB_CALLS)
        for node in sql.walk()
    )


def _replace_table(node: exp.Expr, scans: Mapping[str, exp.Expr]) -> exp.Expr:
    """Tables of the dataset are quoted; names that the rules make up are not."""
    if isinstance(node, exp.Table) and isinstance(node.this, exp.Identifier) and node.this.quoted:
        scan = exp.Subquery(this=scans[node.name].copy())
        scan.set("alias", exp.TableAlias(this=exp.to_identifier(node.alias_or_name, quoted=True)))
        return scan
    return node


def _replace_nodes(tree: exp.Expr, translations: Translations) -> exp.Expr:
    """Replace from the leaves up, so that a replacement is made of translated arguments."""
    for node in reversed(list(tree.walk(bfs=True))):
        make = translations.get(type(node))
        if make is None:
            continue
        parent, replacement = node.parent, make(node)
        if replacement is node:
            continue
        if parent is None:
            tree = replacement
        else:
            node.replace(replacement)
    return tree


def _rename_repeated_ctes(tree: exp.Expr) -> exp.Expr:
    """Give each common table expression a name of its own: some engines read them all at the top.

    From the inside out, so that a name stands for the nearest one around it.

    >>> from sqlglot import parse_one
    >>> inner = "WITH m AS (SELECT 2 AS a) SELECT m.a FROM m"
    >>> query = parse_one(f"WITH m AS (SELECT 1 AS a) SELECT m.a FROM m, ({inner}) AS q")
    >>> print(_rename_repeated_ctes(query).sql())
    WITH m AS (SELECT 1 AS a) SELECT m.a FROM m, (WITH m_1 AS (SELECT 2 AS a) SELECT m.a FROM m_1 AS m) AS q
    """
    clauses = list(tree.find_all(exp.With))
    names = [cte.alias.lower() for clause in clauses for cte in clause.expressions]
    all_names = set(names)
    for clause in reversed(clauses):
        scope = clause.parent or tree
        for cte in clause.expressions:
            old = cte.alias.lower()
            if names.count(old) == 1:
                continue
            names.remove(old)
            number = next(n for n in count(1) if f"{old}_{n}" not in all_names)
            new = f"{old}_{number}"
            all_names.add(new)
            cte.args["alias"].set("this", exp.to_identifier(new))
            for table in list(scope.find_all(exp.Table)):
                if table.name.lower() == old and not table.this.quoted:
                    if not table.alias:  # columns are qualified by it
                        table.set("alias", exp.TableAlias(this=exp.to_identifier(table.name)))
                    table.set("this", exp.to_identifier(new))
    return tree


def output_names(query: exp.Expr) -> Sequence[str]:
    """Names of a query's output columns."""
    assert isinstance(query, exp.Select)
    return query.named_selects


def is_wide_integer(node: exp.Expr | None) -> bool:
    """True for a cast to an integer of more than 64 bits."""
    return isinstance(node, exp.Cast) and node.args["to"].this.name in {"INT128", "DECIMAL", "NUMERIC"}


# Building blocks of dialects


def call(function: str, *arguments: exp.Expr) -> exp.Expr:
    """A call of an engine's own function."""
    return exp.Anonymous(this=function, expressions=list(arguments))


def replace_types(types: Mapping[Any, exp.DataType]) -> Callable[[exp.Expr], exp.Expr]:
    """A translation of types, by their `exp.DataType.Type`, into the engine's own."""

    def replace(node: exp.Expr) -> exp.Expr:
        return types[node.this].copy() if node.this in types else node

    return replace


def unsupported_node(node: exp.Expr, why: str) -> Unsupported:
    """The error for a node without an equivalent on an engine."""
    name = node.sql_name() if isinstance(node, exp.Func) else node.key.upper()
    name = str(node.this) if isinstance(node, exp.Anonymous) else name
    return Unsupported(
        f"{name} is not supported on this engine",
        why=why,
        fix="write the query without it, or open the data with DuckDB",
    )


def _refuse_inexact(node: exp.Expr) -> exp.Expr:
    # IEEE 754 does not fix these: the last bit is that of the machine's mathematical library.
    raise unsupported_node(node, "its last bit is not the same on every machine")


INEXACT: Translations = {exp.Ln: _refuse_inexact, exp.Exp: _refuse_inexact, exp.Pow: _refuse_inexact}
"""Functions that have no equivalent on any other engine than DuckDB."""
