"""EXISTS, IN (SELECT …) and (SELECT aggregate …) in a query of rows, rewritten as joins.

Each becomes a join with a sub-query that has one row for each value of the compared columns, so no row of the
outer query is doubled. The joins are analyzed like any other: one that mixes units is refused there.

Proof: docs/proofs/bounding.md, "Spellings"
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from sqlglot import exp

from hubbub.engines.schema import Table
from hubbub.sql.unit_windows import has_aggregate

__all__ = ["SubQueryJoins", "is_monotone"]

_ORDERS: dict[type[exp.Expr], type[exp.Expr]] = {
    exp.LT: exp.GT,
    exp.LTE: exp.GTE,
    exp.GT: exp.LT,
    exp.GTE: exp.LTE,
    exp.NEQ: exp.NEQ,
}
"""Comparisons, each with the one that says the same with its sides exchanged."""
_OF_SETS = (exp.Exists, exp.In, exp.Any, exp.All, exp.Array)
"""Constructs over all rows of a sub-query, which is no single value there."""
_OF_ROWS = (exp.Where, exp.AggFunc, exp.Filter)
_AGGREGATES = (exp.Sum, exp.Avg, exp.Min, exp.Max, exp.Count)


@dataclass
class _Correlation:
    """The conditions of a sub-query's WHERE."""

    pairs: list[tuple[exp.Expr, exp.Expr]] = field(default_factory=list)
    """Equalities: an expression of the sub-query's own columns, and one of the outer query's."""
    own: list[exp.Expr] = field(default_factory=list)
    """Conditions on its own columns alone."""
    orders: list[tuple[exp.Expr, type[exp.Expr], exp.Expr]] = field(default_factory=list)
    """Other comparisons of the two."""


class SubQueryJoins:
    """Rewrites the sub-queries of a SELECT as joins; those that fit no rule stay, and are refused later."""

    def __init__(
        self, tables: Mapping[str, Table], ctes: set[str], unit: str, new: Callable[[str], str]
    ) -> None:
        """Rewrite for one statement.

        Args:
            tables: the tables of the dataset, by their names in lower case.
            ctes: the names of the statement's WITH, in lower case.
            unit: the unit's column, in lower case.
            new: makes a name that the statement does not use.
        """
        self._tables = tables
        self._ctes = ctes
        self._unit = unit
        self._new = new

    def join(self, select: exp.Select) -> None:
        """Rewrite the sub-queries of this SELECT, but not those within them."""
        where = select.args.get("where")
        if select.args.get("from_") is None:
            return
        own = list(_aliases(select))
        remaining: list[exp.Expr] = []
        for part in _conjuncts(where.this) if where is not None else ():
            is_negated = isinstance(part, exp.Not)
            inner = part.this.unnest() if is_negated else part
            joined = None
            if isinstance(inner, exp.Exists):
                joined = self._exists(inner.this, is_negated=is_negated)
            elif isinstance(inner, exp.In) and inner.args.get("query") is not None:
                joined = self._in(inner, is_negated=is_negated)
            if joined is None:
                remaining.append(part)
                continue
            table, on = joined
            _append_join(select, table, on, is_outer=is_negated)
            if is_negated:
                remaining.append(exp.Is(this=_hit(table), expression=exp.Null()))
        if where is not None:
            condition = exp.and_(*(part.copy() for part in remaining)) if remaining else None
            select.set("where", exp.Where(this=condition) if condition is not None else None)
        self._join_nested(select)
        if len(own) < len(list(_aliases(select))):  # a star has no columns of what was joined
            items = [
                part
                for item in select.expressions
                for part in ([_star(alias) for alias in own] if isinstance(item, exp.Star) else [item])
            ]
            select.set("expressions", items)

    def _join_nested(self, select: exp.Select) -> None:
        """Sub-queries that are part of a larger expression: a LEFT JOIN, and a condition on what it found."""
        is_grouped = select.args.get("group") is not None or any(map(has_aggregate, select.expressions))
        for node in list(select.find_all(exp.Exists, exp.In, exp.Subquery)):
            above = node.find_ancestor(exp.From, exp.Join, exp.Select)
            if above is not select or (is_grouped and _is_released(node)):
                continue
            replacement = None
            if isinstance(node, exp.Exists):
                replacement = self._has_match(select, self._exists(node.this, is_negated=True))
                replacement = replacement or self._exists_in_order(select, node.this)
            elif isinstance(node, exp.In) and node.args.get("query") is not None and is_monotone(node):
                replacement = self._has_match(select, self._in(node, is_negated=False, has_hit=True))
            elif isinstance(node, exp.Subquery) and not isinstance(node.parent, _OF_SETS):
                replacement = self._scalar(select, node)
            if replacement is not None:
                node.replace(exp.Paren(this=replacement))

    def _has_match(self, select: exp.Select, joined: tuple[exp.Subquery, exp.Expr] | None) -> exp.Expr | None:
        """The condition that a row has a match in what is joined."""
        if joined is None:
            return None
        table, on = joined
        _append_join(select, table, on, is_outer=True)
        return exp.Not(this=exp.Is(this=_hit(table), expression=exp.Null()))

    def _in(
        self, node: exp.In, *, is_negated: bool, has_hit: bool = False
    ) -> tuple[exp.Subquery, exp.Expr] | None:
        query = node.args["query"]
        inner = query.this if isinstance(query, exp.Subquery) else query
        if not isinstance(inner, exp.Select) or len(inner.expressions) != 1 or not _is_simple(inner):
            return None
        if not isinstance(node.this, exp.Column):
            return None
        item = inner.expressions[0].unalias()
        # Of NOT IN with a NULL in the list nothing is left; a unit is never NULL.
        if is_negated and not (isinstance(item, exp.Column) and item.name.lower() == self._unit):
            return None
        return self._distinct_rows(inner, [(item.copy(), node.this.copy())], has_hit=is_negated or has_hit)

    def _exists(self, inner: exp.Expr, *, is_negated: bool) -> tuple[exp.Subquery, exp.Expr] | None:
        inner = inner.this if isinstance(inner, exp.Subquery) else inner
        correlation = self._correlation(inner)
        if correlation is None or not correlation.pairs or correlation.orders:
            return None
        assert isinstance(inner, exp.Select)
        return self._distinct_rows(_with_where(inner, correlation.own), correlation.pairs, has_hit=is_negated)

    def _exists_in_order(self, select: exp.Select, inner: exp.Expr) -> exp.Expr | None:
        """EXISTS with one comparison that is no equality, by the least and the greatest value."""
        inner = inner.this if isinstance(inner, exp.Subquery) else inner
        correlation = self._correlation(inner)
        if correlation is None or not correlation.pairs or len(correlation.orders) != 1:
            return None
        assert isinstance(inner, exp.Select)
        own, compare, other = correlation.orders[0]
        calls: list[exp.Expr] = []
        if compare in {exp.LT, exp.LTE, exp.NEQ}:
            calls.append(exp.Min(this=own.copy()))
        if compare in {exp.GT, exp.GTE, exp.NEQ}:
            calls.append(exp.Max(this=own.copy()))
        columns = self._aggregated(select, inner, correlation, calls)
        conditions = [compare(this=column, expression=other.copy()) for column in columns]
        return exp.Is(this=exp.Paren(this=exp.or_(*conditions)), expression=exp.Boolean(this=True))

    def _scalar(self, select: exp.Select, node: exp.Subquery) -> exp.Expr | None:
        """A sub-query with one aggregate, correlated by equalities, or of public tables alone."""
        inner = node.this
        if not isinstance(inner, exp.Select) or len(inner.expressions) != 1:
            return None
        correlation = self._correlation(inner, of_aggregates=True)
        if correlation is None or correlation.orders:
            return None
        if not correlation.pairs and not self._is_public(inner):
            return None
        item = exp.Paren(this=inner.expressions[0].unalias().copy())
        calls = list(item.find_all(exp.AggFunc))
        if not calls or any(not isinstance(call, _AGGREGATES) for call in calls):
            return None
        if any(column.find_ancestor(exp.AggFunc) is None for column in item.find_all(exp.Column)):
            return None
        columns = self._aggregated(select, inner, correlation, [call.copy() for call in calls])
        for call, column in zip(calls, columns, strict=True):
            # Where nothing matches there is no row to join: a count is 0 then, all others are NULL.
            is_count = isinstance(call, exp.Count)
            call.replace(
                exp.Coalesce(this=column, expressions=[exp.Literal.number(0)]) if is_count else column
            )
        value: exp.Expr = item.this
        return value.copy()

    def _is_public(self, select: exp.Select) -> bool:
        names = [table.name.lower() for table in select.find_all(exp.Table)]
        return all(
            name not in self._ctes and name in self._tables and self._tables[name].is_public for name in names
        )

    def _aggregated(
        self, select: exp.Select, inner: exp.Select, correlation: _Correlation, calls: list[exp.Expr]
    ) -> list[exp.Expr]:
        """Join the aggregates for each value of the compared columns; returns their columns."""
        alias = self._new("_matches")
        rows = _with_where(inner, correlation.own)
        keys = [own.copy() for own, _ in correlation.pairs]
        names = [f"{alias}_value{place}" for place in range(len(calls))]
        items = [exp.alias_(key, f"{alias}_{place}", quoted=True) for place, key in enumerate(keys)]
        items += [exp.alias_(call, name, quoted=True) for call, name in zip(calls, names, strict=True)]
        rows.set("expressions", items)
        rows.set("order", None)
        rows.set("group", exp.Group(expressions=[key.copy() for key in keys]) if keys else None)
        on = _equalities(alias, correlation.pairs)
        _append_join(select, rows.subquery(alias), on, is_outer=bool(keys))
        return [exp.column(exp.to_identifier(name, quoted=True), alias) for name in names]

    def _correlation(self, inner: exp.Expr, *, of_aggregates: bool = False) -> _Correlation | None:
        """The conditions of a sub-query, if each is of a known form."""
        if not isinstance(inner, exp.Select) or not _is_simple(inner) or inner.args.get("group"):
            return None
        if inner.args.get("having") or inner.args.get("distinct"):
            return None
        if not of_aggregates and inner.find(exp.AggFunc) is not None:
            return None
        own = self._own_columns(inner)
        where = inner.args.get("where")
        correlation = _Correlation()
        for part in _conjuncts(where.this) if where is not None else ():
            is_comparison = isinstance(part, (exp.EQ, *_ORDERS))
            sides = [_belongs(part.this, own), _belongs(part.expression, own)] if is_comparison else []
            if all(_belongs(column, own) for column in part.find_all(exp.Column)):
                correlation.own.append(part.copy())
            elif sides not in ([True, False], [False, True]):
                return None
            else:
                near, far = (part.this, part.expression) if sides[0] else (part.expression, part.this)
                if isinstance(part, exp.EQ):
                    correlation.pairs.append((near.copy(), far.copy()))
                else:
                    compare = type(part) if sides[0] else _ORDERS[type(part)]
                    correlation.orders.append((near.copy(), compare, far.copy()))
        return correlation

    def _own_columns(self, select: exp.Select) -> dict[str, set[str] | None]:
        """By alias, the columns of a SELECT's own tables; None where they are not known here."""
        sources = [select.args["from_"].this, *(join.this for join in select.args.get("joins") or [])]
        own: dict[str, set[str] | None] = {}
        for source in sources:
            table = self._tables.get(source.name.lower()) if isinstance(source, exp.Table) else None
            is_hidden = table is None or source.name.lower() in self._ctes
            columns = (
                None if is_hidden or table is None else {column.name.lower() for column in table.columns}
            )
            own[source.alias_or_name.lower()] = columns
        return own

    def _distinct_rows(
        self, inner: exp.Select, pairs: list[tuple[exp.Expr, exp.Expr]], *, has_hit: bool
    ) -> tuple[exp.Subquery, exp.Expr]:
        """The distinct values of the first of each pair, joined on equality with the second."""
        alias = self._new("_matches")
        items = [exp.alias_(own, f"{alias}_{place}", quoted=True) for place, (own, _) in enumerate(pairs)]
        if has_hit:
            items.append(exp.alias_(exp.Literal.number(1), f"{alias}_hit", quoted=True))
        rows = inner.copy()
        rows.set("expressions", items)
        rows.set("distinct", exp.Distinct())
        for name in ("order", "limit"):
            rows.set(name, None)
        on = _equalities(alias, pairs)
        assert on is not None
        return rows.subquery(alias), on


def _equalities(alias: str, pairs: list[tuple[exp.Expr, exp.Expr]]) -> exp.Expr | None:
    """The columns that a joined sub-query has for these pairs, equal to the outer ones."""
    on = [
        exp.EQ(
            this=other.copy(),
            expression=exp.column(exp.to_identifier(f"{alias}_{place}", quoted=True), alias),
        )
        for place, (_, other) in enumerate(pairs)
    ]
    return exp.and_(*on) if on else None


def _append_join(select: exp.Select, table: exp.Subquery, on: exp.Expr | None, *, is_outer: bool) -> None:
    join = exp.Join(this=table, on=on)
    if is_outer:
        join.set("side", "LEFT")
    else:
        join.set("kind", "INNER" if on is not None else "CROSS")
    select.append("joins", join)


def _hit(table: exp.Subquery) -> exp.Expr:
    return exp.column(exp.to_identifier(f"{table.alias}_hit", quoted=True), table.alias)


def _with_where(select: exp.Select, conditions: list[exp.Expr]) -> exp.Select:
    copied = select.copy()
    copied.set("where", exp.Where(this=exp.and_(*conditions)) if conditions else None)
    return copied


def _belongs(node: exp.Expr, own: Mapping[str, set[str] | None]) -> bool | None:
    """True if an expression is of the sub-query's own columns, False if of others, None if unclear."""
    columns = [node] if isinstance(node, exp.Column) else list(node.find_all(exp.Column))
    if node.find(exp.Select) is not None or not columns:
        return None
    owners = {_is_own(column, own) for column in columns}
    return owners.pop() if len(owners) == 1 else None


def _is_own(column: exp.Column, own: Mapping[str, set[str] | None]) -> bool | None:
    if column.table:
        return column.table.lower() in own
    if any(columns is None for columns in own.values()):
        return None
    # A name is looked up in the sub-query first, as SQL does.
    return any(column.name.lower() in (columns or ()) for columns in own.values())


def _is_simple(select: exp.Select) -> bool:
    """True if a sub-query has no clause that another row could depend on."""
    clauses = ("limit", "offset", "qualify", "with_")
    return not any(select.args.get(name) for name in clauses) and select.args.get("from_") is not None


def is_monotone(node: exp.Expr) -> bool:
    """True if only AND and OR are around it in a WHERE: there NULL is as good as FALSE."""
    parent = node.parent
    while isinstance(parent, (exp.And, exp.Or, exp.Paren)):
        parent = parent.parent
    return isinstance(parent, exp.Where)


def _is_released(node: exp.Expr) -> bool:
    """True if it is neither in the WHERE nor within an aggregate: there it meets released values."""
    return not isinstance(node.find_ancestor(exp.Where, exp.AggFunc, exp.Filter, exp.Select), _OF_ROWS)


def _conjuncts(node: exp.Expr) -> Iterator[exp.Expr]:
    node = node.unnest()
    if isinstance(node, exp.And):
        yield from _conjuncts(node.this)
        yield from _conjuncts(node.expression)
    else:
        yield node


def _aliases(select: exp.Select) -> Iterator[str]:
    yield select.args["from_"].this.alias_or_name
    for join in select.args.get("joins") or []:
        yield join.this.alias_or_name


def _star(alias: str) -> exp.Expr:
    return exp.Column(this=exp.Star(), table=exp.to_identifier(alias, quoted=True))
