"""Rewrites SQL as people write it into the forms that the analyzer knows. The meaning stays the same.

Each rule replaces one spelling by another with the same rows: a sub-query without a name gets one, EXISTS and
IN (SELECT …) become joins with distinct rows. Nothing
here makes a query acceptable by itself: what comes out is analyzed as if it had been written so.

Proof: docs/proofs/bounding.md, "Spellings"
"""

from collections.abc import Mapping
from itertools import count

from sqlglot import exp

from hubbub.engines.schema import Table
from hubbub.errors import InvalidInput
from hubbub.sql import spellings
from hubbub.sql.output_names import default_name
from hubbub.sql.parser import Options
from hubbub.sql.sub_queries import SubQueryJoins, is_monotone
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
    statement = spellings.expand_pivots(statement, {name.lower(): each for name, each in tables.items()})
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
        self._sub_queries = SubQueryJoins(self._tables, self._ctes, self._unit, self._new)

    def statement(self, statement: exp.Expr) -> exp.Expr:
        rewritten = statement.copy()
        self._names = {node.name.lower() for node in rewritten.find_all(exp.Identifier)}
        self._ctes |= {cte.alias.lower() for cte in rewritten.find_all(exp.CTE)}
        self._drop_prefixes(rewritten)
        spellings.fold_dates(rewritten)
        for node in list(rewritten.find_all(exp.Like, exp.ILike)):
            if node.args.get("negate"):
                node.set("negate", None)
                node.replace(exp.Not(this=exp.Paren(this=node.copy())))
        for choice in rewritten.find_all(exp.In):
            lists = choice.args.get("unnest")
            if lists is not None and all(isinstance(each, exp.Array) for each in lists.expressions):
                choice.set("expressions", [item for each in lists.expressions for item in each.expressions])
                choice.set("unnest", None)
        for equality in list(rewritten.find_all(exp.EQ)):
            values = equality.expression
            is_list = isinstance(values, exp.Any) and isinstance(values.this.unnest(), exp.Column)
            if is_list and is_monotone(equality):  # with NULLs among the elements it is NULL, not FALSE
                column = values.this.unnest().copy()
                equality.replace(exp.ArrayContains(this=column, expression=equality.this.copy()))
        self._name_columns(rewritten)
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

    def _name_columns(self, statement: exp.Expr) -> None:
        """Columns that are named in a list behind a sub-query, by names inside it."""
        for source in list(statement.find_all(exp.CTE, exp.Subquery)):
            alias = source.args.get("alias")
            if not isinstance(alias, exp.TableAlias):
                continue
            names, inner = alias.args.get("columns"), source.this
            while isinstance(inner, (exp.SetOperation, exp.Subquery)):
                inner = inner.this
            if not names or not isinstance(inner, exp.Select) or len(names) != len(inner.expressions):
                continue
            if inner.is_star or inner.args.get("order") is not None:
                continue  # which columns are meant is not known here
            before = [item.alias_or_name.lower() for item in inner.expressions]
            keys = inner.args.get("group")
            by = {key.name.lower() for key in keys.find_all(exp.Column)} if keys is not None else set()
            renamed = {name.name.lower(): old for name, old in zip(names, before, strict=True)}
            if any(name != old and name in by for name, old in renamed.items()):
                continue  # the GROUP BY would mean another column
            inner.set(
                "expressions",
                [
                    exp.alias_(item.unalias().copy(), name.name, quoted=True)
                    for item, name in zip(inner.expressions, names, strict=True)
                ],
            )
            alias.set("columns", None)

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
        if self._is_public_groups and is_top:
            self._join_public_groups(select)
        _inline_windows(select)
        self._sub_queries.join(select)
        if not is_top and select.parent is not None:
            self._unnest(select)
            _drop_order(select)
            self._per_unit_having(select)
            self._qualify(select)

    def _join_public_groups(self, select: exp.Select) -> None:
        """The outer join of GoogleSQL's public groups as an inner join: all public keys are shown anyway."""
        for number, join in enumerate(select.args.get("joins") or []):
            side = str(join.args.get("side") or "").upper()
            first = select.args["from_"].this if number == 0 else None
            preserved_side = {"LEFT": first, "RIGHT": join.this}.get(side)
            if preserved_side is not None and self._is_public(preserved_side):
                join.set("side", None)
                join.set("kind", "INNER")

    def _unnest(self, select: exp.Select) -> None:
        """UNNEST of a list among the columns of a sub-query as a join with its elements."""
        calls = [item for item in select.expressions if isinstance(item.unalias(), exp.Explode)]
        if len(calls) != 1 or any(map(has_aggregate, select.expressions)) or select.args.get("group"):
            return
        item, name = calls[0], self._new("_elements")
        if not isinstance(item.unalias().this, exp.Column):
            return
        alias = exp.TableAlias(this=exp.to_identifier(name), columns=[exp.to_identifier(f"{name}_value")])
        source = exp.Unnest(expressions=[item.unalias().this.copy()], alias=alias)
        own = [each.this.alias_or_name for each in (select.args["from_"], *(select.args.get("joins") or []))]
        select.append("joins", exp.Join(this=source, kind="CROSS"))
        value = exp.column(f"{name}_value", name)
        item.replace(exp.alias_(value, item.alias or "unnest", quoted=True))
        for star in [each for each in select.expressions if isinstance(each, exp.Star)]:
            quoted = [exp.to_identifier(each, quoted=True) for each in own]
            parts = [exp.Column(this=exp.Star(), table=each) for each in quoted]
            place = select.expressions.index(star)
            select.set("expressions", [*select.expressions[:place], *parts, *select.expressions[place + 1 :]])

    def _is_public(self, source: exp.Expr) -> bool:
        """True for a public table, and for a query of such tables alone."""
        names = [table.name.lower() for table in source.find_all(exp.Table)]
        return bool(names) and all(
            name not in self._ctes and name in self._tables and self._tables[name].is_public for name in names
        )

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


def _inline_windows(select: exp.Select) -> None:
    """Windows that are named in a WINDOW clause, written out."""
    definitions = {window.name.lower(): window for window in select.args.get("windows") or []}
    for window in list(select.find_all(exp.Window)):
        alias = window.args.get("alias")
        if alias is None or alias.name.lower() not in definitions or window.parent_select is not select:
            continue
        known = definitions[alias.name.lower()]
        parts = ("partition_by", "order", "spec")
        if any(window.args.get(part) and known.args.get(part) for part in parts) or known.args.get("alias"):
            return
        for part in parts:
            value = known.args.get(part)
            if value:
                copied = [each.copy() for each in value] if isinstance(value, list) else value.copy()
                window.set(part, copied)
        window.set("alias", None)
    select.set("windows", None)


def _drop_order(select: exp.Select) -> None:
    """DISTINCT ON of a sub-query as QUALIFY; an ORDER BY without LIMIT, which changes no row, left out."""
    order, distinct = select.args.get("order"), select.args.get("distinct")
    if any(select.args.get(clause) for clause in ("limit", "offset")):
        return
    on = distinct.args.get("on") if distinct is not None else None
    if on is not None and select.args.get("qualify") is None:
        known = {item.alias.lower(): item.this for item in select.expressions if isinstance(item, exp.Alias)}
        by = order.copy() if order is not None else None
        for column in list(by.find_all(exp.Column)) if by is not None else ():
            if not column.table and column.name.lower() in known:
                column.replace(known[column.name.lower()].copy())
        keys = on.expressions if isinstance(on, exp.Tuple) else [on]
        window = exp.Window(this=exp.RowNumber(), partition_by=[key.copy() for key in keys], order=by)
        select.set("qualify", exp.Qualify(this=exp.EQ(this=window, expression=exp.Literal.number(1))))
        select.set("distinct", None)
    select.set("order", None)


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
        if item.unalias().is_star:  # of a table, too: an alias would name each of its columns
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
