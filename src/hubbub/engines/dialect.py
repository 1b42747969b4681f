"""How a query is written for an engine: the rules' own tree, with that engine's forms in place of some nodes.

The rules build trees of few kinds of nodes, all listed here. An engine says for each of them that it does not
mean the same there how it is written there, or that it has no such form. A node that is not listed was never
looked at for any other engine, so it is refused.
"""

from collections.abc import Callable, Mapping, Sequence

from sqlglot import exp

from hubbub.errors import Unsupported

__all__ = ["Translations", "is_wide", "names_of", "refused_here", "translate"]

Translations = Mapping[type[exp.Expr], Callable[[exp.Expr], exp.Expr]]
"""What an engine writes for a node, whose parts are written already."""

_KNOWN = frozenset({
    exp.Abs, exp.Add, exp.Alias, exp.And, exp.Anonymous, exp.Between, exp.BitwiseRightShift, exp.Boolean,
    exp.CTE, exp.Case, exp.Cast, exp.Ceil, exp.Coalesce, exp.Column, exp.Count, exp.DPipe, exp.DataType,
    exp.DataTypeParam, exp.DateDiff, exp.DenseRank, exp.Distinct, exp.Div, exp.EQ, exp.Exp, exp.Extract,
    exp.Floor, exp.From, exp.GT, exp.GTE, exp.Greatest, exp.Group, exp.Having, exp.Identifier, exp.If, exp.In,
    exp.IntDiv, exp.Is, exp.Join, exp.LT, exp.LTE, exp.Least, exp.Length, exp.Like, exp.Literal, exp.Ln,
    exp.LogicalAnd, exp.LogicalOr, exp.Max, exp.Min, exp.Mod, exp.Mul, exp.NEQ, exp.Neg, exp.Not, exp.Null,
    exp.NullSafeEQ, exp.Nullif, exp.Or, exp.Order, exp.Ordered, exp.Pad, exp.Paren, exp.Pow, exp.Rank,
    exp.RegexpLike, exp.RowNumber, exp.Select, exp.Sign, exp.Sqrt, exp.Star, exp.StartsWith, exp.Sub,
    exp.Subquery, exp.Substring, exp.Sum, exp.Table, exp.TableAlias, exp.TimestampTrunc, exp.Translate,
    exp.Trim, exp.TryCast, exp.Union, exp.Var, exp.Where, exp.Window, exp.With,
})  # fmt: skip


def translate(tree: exp.Expr, forms: Translations, scans: Mapping[str, exp.Expr], dialect: str) -> str:
    """The tree in an engine's own words, each table of the dataset read as its scan says.

    Guarantee: what is not known to mean the same there is refused.
    """
    for node in tree.walk():
        if type(node) not in _KNOWN:
            raise refused_here(node, "no engine but DuckDB was asked what it is there")
    made = tree.copy().transform(lambda node: _scanned(node, scans), copy=False)
    return _replaced(made, forms).sql(dialect)


def _scanned(node: exp.Expr, scans: Mapping[str, exp.Expr]) -> exp.Expr:
    """Tables of the dataset are quoted; what the rules name themselves is not."""
    if isinstance(node, exp.Table) and isinstance(node.this, exp.Identifier) and node.this.quoted:
        scan = exp.Subquery(this=scans[node.name].copy())
        scan.set("alias", exp.TableAlias(this=exp.to_identifier(node.alias_or_name, quoted=True)))
        return scan
    return node


def _replaced(tree: exp.Expr, forms: Translations) -> exp.Expr:
    """From the leaves up, so that a form is made of what is written already."""
    nodes = list(tree.walk(bfs=True))
    for node in reversed(nodes):
        form = forms.get(type(node))
        if form is None:
            continue
        parent, made = node.parent, form(node)
        if made is node:
            continue
        if parent is None:
            tree = made
        else:
            node.replace(made)
    return tree


def names_of(tree: exp.Expr) -> Sequence[str]:
    """The columns of what a query gives."""
    assert isinstance(tree, exp.Select)
    return tree.named_selects


def is_wide(node: exp.Expr | None) -> bool:
    """Whether it is cast to an integer that is wider than 64 bits."""
    return isinstance(node, exp.Cast) and node.args["to"].this.name in {"INT128", "DECIMAL", "NUMERIC"}


def refused_here(node: exp.Expr, why: str) -> Unsupported:
    """The error for what has no form on an engine."""
    name = node.sql_name() if isinstance(node, exp.Func) else node.key.upper()
    return Unsupported(
        f"{name} is not supported on this engine",
        why=why,
        fix="write it otherwise, or open the data with DuckDB",
    )
