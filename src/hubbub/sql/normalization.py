"""Rewrites SQL as people write it into the forms that the analyzer knows. The meaning stays the same.

Each rule replaces one spelling by another with the same rows: a sub-query without a name gets one, EXISTS and
IN (SELECT …) become joins with distinct rows, a RIGHT JOIN becomes a LEFT JOIN the other way round. Nothing
here makes a query acceptable by itself: what comes out is analyzed as if it had been written so.

Proof: docs/proofs/bounding.md, "Spellings"
"""

from collections.abc import Iterator, Mapping
from itertools import count

from sqlglot import exp

from hubbub.engines.schema import Table
from hubbub.errors import InvalidInput
from hubbub.sql import spellings
from hubbub.sql.output_names import default_name
from hubbub.sql.parser import Options
from hubbub.sql.unit_windows import has_aggregate

__all__ = ["normalize"]

_ENGINE_SCHEMAS = frozenset({"information_schema", "pg_catalog", "pg_temp", "system", "temp"})
"""Schemas of the engine itself: a dataset has no tables in them."""

_QUERY = (exp.Select, exp.SetOperation)


def normalize(
    statement: exp.Expr, tables: Mapping[str, Table], unit: str | None, options: Options
) -> exp.Expr:
    """The statement in the forms that the analyzer knows; parts that fit no rule stay as they are.

    Args:
        statement: the syntax tree.
        tables: the tables of the dataset.
        unit: the column of the privacy unit; None if each row is one.
        options: those of WITH DIFFERENTIAL_PRIVACY.
    """
    if options.unit is not None and not _is_unit(options.unit.lower(), (unit or "").lower(), statement):
        raise InvalidInput(
            "privacy_unit_column is not the privacy unit of this dataset",
            why="the account is for one unit",
            fix=f"use {unit}, or leave it out",
        )
    if not isinstance(statement, _QUERY):
        return statement
    normalizer = _Normalizer(tables, unit, is_public_groups=options.is_public_groups)
    try:
        return normalizer.statement(_with_least_units(statement, unit, options))
    except RecursionError:
        return statement  # the analyzer says that it is nested too deeply


def _is_unit(name: str, unit: str, statement: exp.Expr) -> bool:
    """True if a name is that of the unit's column, with a table before it, or what a sub-query calls it."""
    name = name.rpartition(".")[2]
    called = {
        each.alias.lower()
        for each in statement.find_all(exp.Alias)
        if isinstance(each.this, exp.Column) and each.this.name.lower() == unit
    }
    return bool(unit) and name in {unit, *called}


def _with_least_units(statement: exp.Expr, unit: str | None, options: Options) -> exp.Expr:
    """GoogleSQL's min_privacy_units_per_group as a condition on the noisy number of units of a group."""
    if options.min_units is None or not isinstance(statement, exp.Select) or not statement.args.get("group"):
        return statement
    column = exp.to_identifier((options.unit or unit or "").rpartition(".")[2], quoted=True)
    units = exp.Count(this=exp.Distinct(expressions=[exp.Column(this=column)]))
    return statement.having(exp.GTE(this=units, expression=exp.Literal.number(options.min_units)))


class _Normalizer:
    def __init__(self, tables: Mapping[str, Table], unit: str | None, *, is_public_groups: bool) -> None:
        self._tables = {name.lower(): table for name, table in tables.items()}
        self._unit = (unit or "").lower()
        self._is_public_groups = is_public_groups
        self._numbers = count()
        self._names: set[str] = set()
        self._ctes: set[str] = set()

    def statement(self, statement: exp.Expr) -> exp.Expr:
        rewritten = statement.copy()
        self._names = {node.name.lower() for node in rewritten.find_all(exp.Identifier)}
        self._ctes = {cte.alias.lower() for cte in rewritten.find_all(exp.CTE)}
        self._drop_prefixes(rewritten)
        spellings.fold_dates(rewritten)
        for node in list(rewritten.find_all(exp.Like, exp.ILike)):
            if node.args.get("negate"):
                node.set("negate", None)
                node.replace(exp.Not(this=exp.Paren(this=node.copy())))
        spellings.rename_functions(rewritten)
        rewritten = self._set_operations(rewritten)
        for select in reversed(list(rewritten.find_all(exp.Select))):
            self._select(select, is_top=select is rewritten)
        for source in rewritten.find_all(exp.Subquery):
            if isinstance(source.parent, (exp.From, exp.Join)) and not source.alias:
                source.set("alias", exp.TableAlias(this=exp.to_identifier(self._new("_query"))))
        if isinstance(rewritten, exp.Select):
            _group_distinct(rewritten)
            _rename_duplicates(rewritten)
        return rewritten

    def _new(self, name: str) -> str:
        """A name that the statement does not use."""
        return next(
            each for each in (f"{name}{number}" for number in self._numbers) if each not in self._names
        )

    # Names

    def _drop_prefixes(self, statement: exp.Expr) -> None:
        """Drop schemas before tables of the dataset, each of which has one name only."""
        for table in statement.find_all(exp.Table):
            name = table.name.lower()
            if "." in name and isinstance(table.this, exp.Identifier):  # `project.data.table` is one name
                name = name.rpartition(".")[2]
            if table.args.get("db") or name != table.name.lower():
                if name not in self._tables or name in self._ctes or table.db.lower() in _ENGINE_SCHEMAS:
                    continue
                table.set("this", exp.to_identifier(name, quoted=True))
                table.set("db", None)
                table.set("catalog", None)
        for column in statement.find_all(exp.Column):
            is_ours = column.table.lower() in self._tables and column.db.lower() not in _ENGINE_SCHEMAS
            if column.args.get("db") and is_ours:
                column.set("db", None)
                column.set("catalog", None)

    # Set operations of rows

    def _set_operations(self, statement: exp.Expr) -> exp.Expr:
        """UNION of rows with their unit, and INTERSECT and EXCEPT of units, within a FROM or WITH."""
        for node in reversed(list(statement.find_all(exp.SetOperation))):
            if node is statement or node.args.get("with_") is not None:
                continue
            is_inside = isinstance(node.parent, (exp.CTE, exp.Subquery, exp.SetOperation))
            if is_inside and isinstance(node.left, exp.Select) and isinstance(node.right, exp.Select):
                replacement = self._set_operation(node)
                if replacement is not None:
                    node.replace(replacement)
        return statement

    def _set_operation(self, node: exp.SetOperation) -> exp.Select | None:
        left, right = node.left, node.right
        assert isinstance(left, exp.Select)
        assert isinstance(right, exp.Select)
        sides = (left, right)
        if node.args.get("distinct") is False or any(side.args.get("group") for side in sides):
            return None
        if any(side.find(exp.AggFunc) for side in sides) or not self._unit:
            return None
        places = [self._unit_place(side) for side in sides]
        if None in places or places[0] != places[1]:
            return None
        if isinstance(node, exp.Union):
            both = exp.Union(this=node.left.copy(), expression=node.right.copy(), distinct=False)
            return exp.select("*").from_(both.subquery(self._new("_union"))).distinct()
        if any(len(side.expressions) != 1 for side in sides):
            return None
        name = node.left.expressions[0].alias_or_name
        table, value = self._new("_left"), self._new("_right")
        inner = right.copy().distinct()
        item = inner.expressions[0].unalias()
        inner.set("expressions", [exp.alias_(item.copy(), value, quoted=True)])
        column = exp.column(exp.to_identifier(name, quoted=True), table)
        chosen = exp.select(column.copy()).from_(left.copy().subquery(table)).distinct()
        other = exp.column(exp.to_identifier(value, quoted=True), f"{value}s")
        on = exp.EQ(this=column, expression=other)
        is_kept = isinstance(node, exp.Intersect)
        chosen = chosen.join(inner.subquery(f"{value}s"), on=on, join_type="inner" if is_kept else "left")
        if not is_kept:
            chosen = chosen.where(exp.Is(this=on.expression.copy(), expression=exp.Null()))
        return chosen

    def _unit_place(self, select: exp.Select) -> int | None:
        """The place of the unit's column among the outputs."""
        for place, item in enumerate(select.expressions):
            inner = item.unalias()
            if isinstance(inner, exp.Column) and inner.name.lower() == self._unit:
                return place
        return None

    # One SELECT

    def _select(self, select: exp.Select, *, is_top: bool) -> None:
        self._turn_right_join(select, is_top=is_top)
        self._semi_joins(select)
        if not is_top and select.parent is not None:
            self._per_unit_having(select)
            self._qualify(select)

    def _turn_right_join(self, select: exp.Select, *, is_top: bool) -> None:
        """A RIGHT JOIN as a LEFT JOIN the other way round; one of public groups as an inner join."""
        joins = select.args.get("joins") or []
        for number, join in enumerate(joins if self._is_public_groups and is_top else ()):
            side = str(join.args.get("side") or "").upper()
            first = select.args["from_"].this if number == 0 else None
            preserved_side = {"LEFT": first, "RIGHT": join.this}.get(side)
            if preserved_side is not None and self._is_public(preserved_side):
                join.set("side", None)
                join.set("kind", "INNER")
        if not joins or str(joins[0].args.get("side") or "").upper() != "RIGHT":
            return
        if select.is_star or joins[0].args.get("using") or joins[0].args.get("method"):
            return  # the order of columns, or which of two is meant, would change
        clause = select.args["from_"]
        first, second = clause.this.copy(), joins[0].this.copy()
        clause.set("this", second)
        joins[0].set("this", first)
        joins[0].set("side", "LEFT")

    def _is_public(self, source: exp.Expr) -> bool:
        """True for a public table, and for a query of such tables alone."""
        names = [table.name.lower() for table in source.find_all(exp.Table)]
        return bool(names) and all(
            name not in self._ctes and name in self._tables and self._tables[name].is_public for name in names
        )

    def _semi_joins(self, select: exp.Select) -> None:
        """EXISTS and IN (SELECT …) among the conditions of a WHERE as joins with distinct rows."""
        where = select.args.get("where")
        if where is None or select.args.get("from_") is None:
            return
        own = list(_aliases(select))
        remaining: list[exp.Expr] = []
        for part in _conjuncts(where.this):
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
            kind = "LEFT" if is_negated else None
            join = exp.Join(this=table, on=on)
            join.set("side" if is_negated else "kind", kind or "INNER")
            select.append("joins", join)
            if is_negated:
                hit = exp.column(exp.to_identifier(f"{table.alias}_hit", quoted=True), table.alias)
                remaining.append(exp.Is(this=hit, expression=exp.Null()))
        if len(own) < len(list(_aliases(select))):  # a star has no columns of what was joined
            items = [
                part
                for item in select.expressions
                for part in ([_star(alias) for alias in own] if isinstance(item, exp.Star) else [item])
            ]
            select.set("expressions", items)
        if remaining:
            select.set("where", exp.Where(this=exp.and_(*(part.copy() for part in remaining))))
        else:
            select.set("where", None)

    def _in(self, node: exp.In, *, is_negated: bool) -> tuple[exp.Subquery, exp.Expr] | None:
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
        return self._distinct_rows(inner, [(item.copy(), node.this.copy())], is_negated=is_negated)

    def _exists(self, inner: exp.Expr, *, is_negated: bool) -> tuple[exp.Subquery, exp.Expr] | None:
        if isinstance(inner, exp.Subquery):
            inner = inner.this
        if not isinstance(inner, exp.Select) or not _is_simple(inner) or inner.args.get("group"):
            return None
        if inner.find(exp.AggFunc) is not None:
            return None
        own = self._own_columns(inner)
        where = inner.args.get("where")
        pairs, rest = [], []
        for part in _conjuncts(where.this) if where is not None else ():
            sides = (
                [self._belongs(part.this, own), self._belongs(part.expression, own)]
                if isinstance(part, exp.EQ)
                else []
            )
            if sides == [True, False]:
                pairs.append((part.this.copy(), part.expression.copy()))
            elif sides == [False, True]:
                pairs.append((part.expression.copy(), part.this.copy()))
            elif all(self._belongs(column, own) for column in part.find_all(exp.Column)):
                rest.append(part.copy())
            else:
                return None
        if not pairs:
            return None
        stripped = inner.copy()
        stripped.set("where", exp.Where(this=exp.and_(*rest)) if rest else None)
        return self._distinct_rows(stripped, pairs, is_negated=is_negated)

    @staticmethod
    def _belongs(node: exp.Expr, own: Mapping[str, set[str] | None]) -> bool | None:
        """True if a column is of the sub-query's own tables; None if that is not clear."""
        if not isinstance(node, exp.Column):
            return None
        if node.table:
            return node.table.lower() in own
        if any(columns is None for columns in own.values()):
            return None
        # A name is looked up in the sub-query first, as SQL does.
        return any(node.name.lower() in (columns or ()) for columns in own.values())

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
        self, inner: exp.Select, pairs: list[tuple[exp.Expr, exp.Expr]], *, is_negated: bool
    ) -> tuple[exp.Subquery, exp.Expr]:
        """The distinct values of the first of each pair, joined on equality with the second."""
        alias = self._new("_matches")
        items = [exp.alias_(own, f"{alias}_{place}", quoted=True) for place, (own, _) in enumerate(pairs)]
        if is_negated:
            items.append(exp.alias_(exp.Literal.number(1), f"{alias}_hit", quoted=True))
        rows = inner.copy()
        rows.set("expressions", items)
        rows.set("distinct", exp.Distinct())
        for name in ("order", "limit"):
            rows.set(name, None)
        on = [
            exp.EQ(
                this=other, expression=exp.column(exp.to_identifier(f"{alias}_{place}", quoted=True), alias)
            )
            for place, (_, other) in enumerate(pairs)
        ]
        return rows.subquery(alias), exp.and_(*on)

    def _per_unit_having(self, select: exp.Select) -> None:
        """HAVING of a sub-query that groups by the unit, as a WHERE around it."""
        having, group = select.args.get("having"), select.args.get("group")
        if having is None or group is None or not self._unit:
            return
        keys = [key for key in group.expressions if isinstance(key, exp.Column)]
        if all(key.name.lower() != self._unit for key in keys) or any(
            not item.alias_or_name for item in select.expressions
        ):
            return
        inner, condition = select.copy(), having.this.copy()
        inner.set("having", None)
        inner.set("with_", None)
        aliases = {item.alias.lower() for item in select.expressions if isinstance(item, exp.Alias)}
        calls: dict[str, str] = {}
        for call in list(condition.find_all(exp.AggFunc)):
            if call.find_ancestor(exp.AggFunc) is not None:
                return
            name = calls.setdefault(call.sql(), self._new("_having"))
            column = exp.column(exp.to_identifier(name, quoted=True))
            if call is condition:
                condition = column
            else:
                call.replace(column)
            if name not in {item.alias for item in inner.expressions}:
                inner.append("expressions", exp.alias_(call.copy(), name, quoted=True))
        plain = {item.name.lower() for item in select.expressions if isinstance(item, exp.Column)}
        used = {column.name.lower() for column in condition.find_all(exp.Column)} - set(calls.values())
        if not used <= aliases | plain:
            return
        alias = self._new("_having")
        outer = exp.select(
            *(exp.column(exp.to_identifier(item.alias_or_name, quoted=True)) for item in select.expressions)
        ).from_(inner.subquery(alias))
        self._replace_query(select, outer.where(condition))

    def _qualify(self, select: exp.Select) -> None:
        """QUALIFY of a sub-query of rows, as a WHERE around it."""
        qualify = select.args.get("qualify")
        if qualify is None or select.args.get("group") is not None:
            return
        if any(map(has_aggregate, (*select.expressions, qualify.this))):
            return
        inner, condition = select.copy(), qualify.this.copy()
        inner.set("qualify", None)
        inner.set("with_", None)
        names = [item.alias_or_name for item in select.expressions]
        if not all(names) or "*" in names:
            return
        for window in list(condition.find_all(exp.Window)):
            name = self._new("_window")
            inner.append("expressions", exp.alias_(window.copy(), name, quoted=True))
            column = exp.column(exp.to_identifier(name, quoted=True))
            if window is condition:
                condition = column
            else:
                window.replace(column)
        alias = self._new("_qualified")
        outer = exp.select(*(exp.column(exp.to_identifier(name, quoted=True)) for name in names))
        self._replace_query(select, outer.from_(inner.subquery(alias)).where(condition))

    @staticmethod
    def _replace_query(select: exp.Select, outer: exp.Select) -> None:
        if select.args.get("with_") is not None:
            outer.set("with_", select.args["with_"].copy())
        select.replace(outer)


def _is_simple(select: exp.Select) -> bool:
    """True if a sub-query has no clause that another row could depend on."""
    clauses = ("limit", "offset", "qualify", "with_")
    return not any(select.args.get(name) for name in clauses) and select.args.get("from_") is not None


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


def _group_distinct(select: exp.Select) -> None:
    """SELECT DISTINCT of expressions as a GROUP BY of them."""
    distinct = select.args.get("distinct")
    if distinct is None or distinct.args.get("on") or select.args.get("group") is not None:
        return
    if any(item.find(exp.AggFunc, exp.Star, exp.Window, exp.Anonymous) for item in select.expressions):
        return
    select.set("distinct", None)
    select.set("group", exp.Group(expressions=[item.unalias().copy() for item in select.expressions]))


def _rename_duplicates(select: exp.Select) -> None:
    """A number behind names of outputs that are there already."""
    names: set[str] = set()
    for place, item in enumerate(select.expressions):
        name = item.alias or default_name(item.unalias())
        if isinstance(item.unalias(), exp.Star):
            continue
        unique = name
        for number in count(1):
            if unique.lower() not in names:
                break
            unique = f"{name}_{number}"
        if unique != name:
            _refuse_use(select, name)
            select.expressions[place].replace(exp.alias_(item.unalias().copy(), unique, quoted=True))
        names.add(unique.lower())


def _refuse_use(select: exp.Select, name: str) -> None:
    """Refuse ORDER BY and HAVING of a name that two outputs have: it may mean either."""
    for clause in ("order", "having", "qualify"):
        node = select.args.get(clause)
        columns = node.find_all(exp.Column) if node is not None else ()
        if any(column.name.lower() == name.lower() and not column.table for column in columns):
            raise InvalidInput(
                f"two outputs are named {name[:60]!r}, and one of them is used by that name",
                why="engines disagree on which of them is meant",
                fix="give them different names with AS",
            )
