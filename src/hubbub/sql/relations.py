"""Row-level relations: FROM, WHERE, joins, sub-queries, CTEs and UNION ALL, with the unit carried along.

A relation is public, or each of its rows belongs to one unit and has its key in the column `_unit`. Every
rule here keeps this: a row is made of rows of its own unit and of public ones, and of nothing else. So
adding or removing a unit adds or removes its rows, and changes no other row.

Proof: docs/proofs/bounding.md, "Relations"
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from sqlglot import exp

from hubbub.engines.schema import UNIT, Column, Kind, Table
from hubbub.engines.total_functions import read_column
from hubbub.errors import InvalidInput, Refused, Unsupported
from hubbub.sql.expressions import compile_expression
from hubbub.sql.joins import (
    are_units,
    as_outer_column,
    conjuncts,
    connect_units,
    equate,
    equates_units,
    first_rows,
    have_comparable_units,
    is_unit_key,
    natural_columns,
    refuse_join,
    rows_to_keep,
)
from hubbub.sql.number_functions import as_column, sum_per_unit
from hubbub.sql.scalar_types import (
    Scope,
    TypedExpression,
    as_kind,
    describe_construct,
    not_a_relation,
    unknown_type_compared,
    unknown_type_in_union,
    unsupported_here,
)
from hubbub.sql.unit_windows import compile_window, has_aggregate

__all__ = ["Relation", "Relations", "Sources", "check_clauses", "resolve_reference"]

Named = Mapping[str, "Relation"]
_MAX_DEPTH = 60
_MAX_SCANS = 200

_CLAUSES = {
    "order": ("ORDER BY", "rows have no order here", "order the released table, outside"),
    "limit": (
        "LIMIT",
        "which rows are within it depends on other units' rows",
        "limit the released table, outside",
    ),
    "offset": ("OFFSET", "which rows are within it depends on other units' rows", "leave it out"),
    "qualify": ("QUALIFY", "a window reaches over the rows of other units", "filter with WHERE"),
    "windows": ("WINDOW", "a window reaches over the rows of other units", "aggregate by the unit"),
    "sample": ("TABLESAMPLE", "what is sampled must be accounted for", "leave it out"),
    "having": (
        "HAVING",
        "only per-unit groups are known in a sub-query",
        "filter with WHERE outside the sub-query",
    ),
}


@dataclass(frozen=True)
class Relation:
    """A sub-query with named columns; each row belongs to one unit, or is public."""

    sql: exp.Expr
    columns: tuple[Column, ...]
    is_public: bool
    most: int | None = None
    """How many rows a unit has at most, where that is known: one after GROUP BY the unit."""
    scans: tuple[int, int] = (0, 0)
    """How often it reads a table, and a protected one."""
    bound: int | None = None
    """How many rows a unit has at most, which bounds no more than how large joins of it become."""


@dataclass(frozen=True)
class Sources:
    """FROM, joins and WHERE of a SELECT, with the columns that can be named."""

    sql: exp.Select
    scope: Scope
    unit: exp.Expr | None
    """The unit's column; None where the table is public, or each row is a unit."""
    is_public: bool
    most: int | None = None
    """How many rows a unit has at most, where that is known."""
    bound: int | None = None
    """As `Relation.bound`."""


class Relations:
    """Resolves relations of the tables of one dataset.

    Guarantee: a row of a relation is a function of rows of one unit and of public rows.
    Assumes: the units of the tables are declared correctly; rows with a NULL unit are dropped.
    Proof: docs/proofs/bounding.md, "Relations"
    """

    def __init__(self, tables: Mapping[str, Table], *, rows_are_units: bool, with_joins: bool) -> None:
        self._tables = {name.lower(): table for name, table in tables.items()}
        self._rows_are_units = rows_are_units
        # A join may make several rows of one: then rows that are units need a number to be known by.
        self._is_carried = with_joins or not rows_are_units
        self._scans = self._protected_scans = 0
        self.rows_kept_for_join: int | None = None
        """How many rows of a unit the sides of joins keep, the fewest; None where none are joined."""

    def sources(self, node: exp.Select, known: Named | None = None, depth: int = 0) -> Sources:
        """The FROM, joins and WHERE of a SELECT."""
        visible = {**(known or {}), **self._ctes(node, known or {}, depth)}
        clause = node.args.get("from_")
        if clause is None:
            raise InvalidInput("there is no FROM", why="no table is asked about", fix="name a table")
        joins = node.args.get("joins") or []
        relations = [self._source(each.this, visible, depth) for each in (clause, *joins)]
        (first, *others), bound = self._cap_rows(relations)
        alias = _alias(clause.this)
        scope = {alias: first.columns}
        sql = exp.Select().from_(_aliased(first, alias))
        unit = None if first.is_public else self._unit(alias)
        is_public = first.is_public
        connected = connect_units(node, dict(zip(map(_alias, _tables(node)), relations, strict=True)))
        for join, other in zip(joins, others, strict=True):
            alias = _alias(join.this)
            if alias.lower() in {name.lower() for name in scope}:
                raise InvalidInput(
                    "two tables in the FROM share a name",
                    why="columns could be of either",
                    fix="rename one with AS",
                )
            before = Sources(sql, Scope(scope), unit, is_public)
            is_on_units = alias in connected and any(each in connected for each in scope)
            sql, scope[alias], unit = self._join(join, before, alias, other, is_on_units=is_on_units)
            is_public = is_public and other.is_public
        columns = Scope(scope)
        where = node.args.get("where")
        if where is not None:
            condition = as_kind(compile_expression(where.this, columns), Kind.BOOLEAN, "the WHERE")
            sql = sql.where(condition.sql)
        return Sources(sql, columns, unit, is_public, None if joins else first.most, bound)

    def relation(self, node: exp.Expr, known: Named, depth: int) -> Relation:
        """A sub-query as a relation."""
        if depth > _MAX_DEPTH:
            raise Unsupported(
                "sub-queries are nested too deeply",
                why="the planner limits how complex a query may be",
                fix="use fewer",
            )
        if isinstance(node, exp.Subquery):
            return self.relation(node.this, known, depth + 1)
        if isinstance(node, exp.Union):
            return self._union(node, known, depth)
        if not isinstance(node, exp.Select):
            raise not_a_relation(node)
        for name in _CLAUSES.keys() & {name for name, argument in node.args.items() if argument}:
            what, why, fix = _CLAUSES[name]
            raise Refused(f"{what} in a sub-query is not supported", why=why, fix=fix)
        check_clauses(node, {"expressions", "from_", "joins", "where", "group", "with_", "kind", "distinct"})
        sources = self.sources(node, known, depth)
        if node.args.get("group") or any(map(has_aggregate, node.expressions)):
            return self._per_unit(node, sources)
        return self._project(node, sources)

    def _cap_rows(self, relations: list[Relation]) -> tuple[list[Relation], int | None]:
        """The sides of a join, each with a capped number of rows per unit, and that number."""
        protected = [side for side in relations if not side.is_public]
        if len(protected) < 2:
            return relations, protected[0].bound if len(relations) == len(protected) == 1 else None
        most = rows_to_keep([side.bound for side in protected])
        sides, total = [], 1
        for side in relations:
            is_few = side.is_public or (side.bound is not None and side.bound <= most)
            if not is_few:
                self.rows_kept_for_join = min(most, self.rows_kept_for_join or most)
                self._count(2 * sum(1 for _ in side.sql.find_all(exp.Table)), 0)  # it is written three times
            sql = side.sql if is_few else first_rows(side.sql, side.columns, most)
            bound = side.bound if is_few else most
            sides.append(replace(side, sql=sql, bound=bound))
            total *= bound or 1
        return sides, total if len(relations) == len(protected) else None

    # Where rows come from

    def _ctes(self, node: exp.Expr, known: Named, depth: int) -> dict[str, Relation]:
        clause = node.args.get("with_")
        if clause is None:
            return {}
        if clause.args.get("recursive"):
            raise Refused(
                "a recursive WITH is not supported",
                why="its rows could be of many units",
                fix="write it without recursion",
            )
        out = dict(known)
        for cte in clause.expressions:
            check_clauses(cte, {"this", "alias"})
            _no_column_names(cte)
            # It is written out wherever it is named, so its scans count there, each time.
            before = self._scans, self._protected_scans
            relation = self.relation(cte.this, out, depth + 1)
            scans = self._scans - before[0], self._protected_scans - before[1]
            self._scans, self._protected_scans = before
            out[cte.alias.lower()] = replace(relation, scans=scans)
        return out

    def _source(self, node: exp.Expr, known: Named, depth: int) -> Relation:
        if isinstance(node, exp.Subquery):
            check_clauses(node, {"this", "alias"})
            _no_column_names(node)
            return self.relation(node.this, known, depth + 1)
        if not isinstance(node, exp.Table) or not isinstance(node.this, exp.Identifier):
            raise not_a_relation(node)
        check_clauses(node, {"this", "alias"})
        _no_column_names(node)
        name = node.name.lower()
        if name in known:
            self._count(*known[name].scans)
            return known[name]
        if name not in self._tables:
            raise InvalidInput(
                f"there is no table {node.name[:60]!r}",
                why="only the tables of this dataset can be asked about",
                fix=f"use one of: {', '.join(table.name for table in self._tables.values())}",
            )
        return self._scan(self._tables[name])

    def _scan(self, table: Table) -> Relation:
        sql = exp.Select().from_(exp.Table(this=_quoted(table.name))).select(*map(read_column, table.columns))
        self._count(1, 0 if table.is_public else 1)
        if table.is_public:
            columns = tuple(replace(column, origin=(table.name, column.name)) for column in table.columns)
            return Relation(sql, columns, is_public=True)
        if self._rows_are_units:
            if self._is_carried:
                sql = sql.select(exp.alias_(exp.Window(this=exp.RowNumber()), UNIT, quoted=True))
            return Relation(sql, table.columns, is_public=False)
        if not any(column.is_unit for column in table.columns):
            raise Refused(
                f"the table {table.name} has no unit",
                why="its rows could not be assigned to privacy units",
                fix="declare its unit column, or that it is public",
            )
        sql = sql.select(_quoted_column(UNIT))
        sql = sql.where(exp.Not(this=exp.Is(this=_quoted_column(UNIT), expression=exp.Null())))
        return Relation(sql, table.columns, is_public=False)

    def _count(self, scans: int, protected: int) -> None:
        self._scans += scans
        self._protected_scans += protected
        if self._rows_are_units and self._protected_scans > 1:
            raise Refused(
                "protected tables are used more than once, where each row is a unit",
                why="one row could be used twice, and no key would show it",
                fix="declare the unit's key column",
            )
        if self._scans > _MAX_SCANS:
            raise Unsupported(
                f"tables are read more than {_MAX_SCANS} times",
                why="a WITH is written out wherever it is named",
                fix="name it less often",
            )

    def _unit(self, alias: str) -> exp.Expr | None:
        return exp.column(_quoted(UNIT), _quoted(alias)) if self._is_carried else None

    # Joins

    def _join(
        self, join: exp.Join, before: Sources, alias: str, other: Relation, *, is_on_units: bool
    ) -> tuple[exp.Select, tuple[Column, ...], exp.Expr | None]:
        """The SELECT with one more join, the columns that it adds, and the unit."""
        check_clauses(join, {"this", "on", "using", "side", "kind", "method"})
        side, kind = (str(join.args.get(part) or "").upper() for part in ("side", "kind"))
        if side not in {"", "LEFT"} or kind not in {"", "INNER", "CROSS", "OUTER"}:
            raise refuse_join(f"a {side or kind} join")
        if side == "LEFT" and before.is_public and not other.is_public:
            raise refuse_join("an outer join from a public table to a protected one")
        here, there = before.scope.sources, {alias: other.columns}
        using = {identifier.name.lower() for identifier in join.args.get("using") or []}
        if join.args.get("method"):
            using |= natural_columns(str(join.args["method"]), before.scope, other.columns)
        pairs = [(before.scope.find(name, None), Scope(there).find(name, None)) for name in sorted(using)]
        on = conjuncts(join.args["on"]) if join.args.get("on") is not None else []
        units = [part for part in on if equates_units(part, here, there)]
        on_units = bool(units) or any(are_units(*pair) for pair in pairs) or (is_on_units and not side)
        conditions = [equate(*pair) for pair in pairs if not are_units(*pair)]
        for part in on:
            if part not in units:
                typed = compile_expression(part, Scope({**here, **there}))
                conditions.append(as_kind(typed, Kind.BOOLEAN, "the ON").sql)
        unit = before.unit
        if not before.is_public and not other.is_public:
            if not on_units or unit is None or not have_comparable_units(here, other.columns):
                raise Refused(
                    "two protected tables are joined, but not on the unit's key, or on keys of two kinds",
                    why="a row would be made of two people's rows",
                    fix="join them ON the unit's key of both, declared with one kind, then on whatever else",
                )
            conditions.append(exp.EQ(this=unit.copy(), expression=exp.column(_quoted(UNIT), _quoted(alias))))
        elif unit is None and not other.is_public:
            unit = self._unit(alias)
        if side == "LEFT" and not conditions:
            raise refuse_join("an outer join without a condition")
        how = "left" if side == "LEFT" else "inner" if conditions else "cross"
        sql = before.sql.join(
            _aliased(other, alias), on=exp.and_(*conditions) if conditions else None, join_type=how
        )
        added = [column for column in other.columns if column.name.lower() not in using]
        if side == "LEFT":  # such a column may be NULL where the row's unit is not
            added = [as_outer_column(column) for column in added]
        return sql, tuple(added), unit

    # Sub-queries

    def _project(self, node: exp.Select, sources: Sources) -> Relation:
        items = [(name, as_column(typed)) for name, typed in _items(node, sources)]
        if node.args.get("distinct"):
            check_clauses(node.args["distinct"], set())
            if not sources.is_public and not any(is_unit_key(typed) for _, typed in items):
                raise _mixed("SELECT DISTINCT")
            for _, typed in items:
                _comparable(typed)
        sql = sources.sql.select(*(exp.alias_(typed.sql, name, quoted=True) for name, typed in items))
        if sources.unit is not None:
            sql = sql.select(exp.alias_(sources.unit.copy(), UNIT, quoted=True))
        if node.args.get("distinct"):
            sql = sql.distinct()
        most, bound = sources.most, sources.bound
        if node.args.get("distinct") and all(typed.is_literal or is_unit_key(typed) for _, typed in items):
            most = bound = 1
        return Relation(sql, _columns(items), sources.is_public, most, bound=bound)

    def _per_unit(self, node: exp.Select, sources: Sources) -> Relation:
        """GROUP BY the unit (and more): each row is made of one unit's rows."""
        if sources.is_public:
            raise Unsupported(
                "a public table is aggregated in a sub-query",
                why="the sub-query reads no protected row, so it needs no privacy budget",
                fix="compute it first, and open the result as a public table",
            )
        group = node.args.get("group")
        check_clauses(group, {"expressions"}) if group is not None else None
        keys = [
            _comparable(compile_expression(resolve_reference(key, node, sources.scope), sources.scope))
            for key in (group.expressions if group is not None else [])
        ]
        if sources.unit is None or not any(key.column is not None and key.column.is_unit for key in keys):
            raise _mixed("an aggregate in a sub-query")
        if node.args.get("distinct"):
            raise Unsupported(
                "SELECT DISTINCT with GROUP BY is not supported",
                why="it changes nothing",
                fix="leave DISTINCT out",
            )
        known = {key.sql.sql(): key for key in keys}
        items = [
            (item.alias_or_name, as_column(_of_one_unit(item.unalias(), sources.scope, known)))
            for item in node.expressions
        ]
        _check_items(items)
        sql = sources.sql.select(*(exp.alias_(typed.sql, name, quoted=True) for name, typed in items))
        sql = sql.select(exp.alias_(sources.unit.copy(), UNIT, quoted=True))
        # A literal is the same in all rows, and some engines would take it for something else.
        by = [key.sql.copy() for key in keys if not key.is_literal]
        sql = sql.group_by(*by, sources.unit.copy())
        most, bound = (1, 1) if len(keys) == 1 else (sources.most, sources.bound)
        return Relation(sql, _columns(items), is_public=False, most=most, bound=bound)

    def _union(self, node: exp.Union, known: Named, depth: int) -> Relation:
        check_clauses(node, {"this", "expression", "distinct", "with_"})
        if node.args.get("distinct"):
            raise Refused(
                "UNION without ALL is not supported",
                why="equal rows of two people would become one",
                fix="write UNION ALL",
            )
        visible = {**known, **self._ctes(node, known, depth)}
        left, right = (self.relation(part, visible, depth + 1) for part in (node.this, node.expression))
        kinds = [[column.kind for column in side.columns] for side in (left, right)]
        for one, two in zip(left.columns, right.columns, strict=False):
            if Kind.OPAQUE in {one.kind, two.kind} and not (one.is_unit and two.is_unit):
                raise unknown_type_in_union()
        if kinds[0] != kinds[1] or left.is_public != right.is_public:
            raise InvalidInput(
                "the parts of a UNION ALL do not have the same columns, or only one of them is protected",
                why="their rows could not be told apart by unit and type",
                fix="select columns of the same kinds, in the same order, from protected tables",
            )
        pairs = zip(left.columns, right.columns, strict=True)
        columns = tuple(
            replace(
                one,
                is_unit=one.is_unit and two.is_unit,
                bounds=one.bounds if one.bounds == two.bounds else None,
                keys=one.keys if one.keys == two.keys else None,
                is_complete=one.is_complete and two.is_complete,
                origin=one.origin if one.origin == two.origin else None,
                is_outer=one.is_outer or two.is_outer,
                size=(min(one.size[0], two.size[0]), max(one.size[1], two.size[1])),
            )
            for one, two in pairs
        )
        sql = exp.Union(this=left.sql, expression=right.sql, distinct=False)
        most = left.most + right.most if left.most is not None and right.most is not None else None
        bound = left.bound + right.bound if left.bound is not None and right.bound is not None else None
        return Relation(sql, columns, left.is_public, most, bound=bound)


_UNIT_AGGREGATES = (exp.Count, exp.Sum, exp.Avg, exp.Min, exp.Max)


def _of_one_unit(node: exp.Expr, scope: Scope, keys: Mapping[str, TypedExpression]) -> TypedExpression:
    """An item of a per-unit sub-query: a key, or an aggregate over the rows of one unit."""
    if not node.find(exp.AggFunc):
        typed = compile_expression(node, scope)
        if typed.sql.sql() not in keys and not typed.is_literal:
            raise InvalidInput(
                "a column of a sub-query is neither grouped by nor aggregated",
                why="one unit may have several values of it",
                fix="add it to the GROUP BY, or aggregate it",
            )
        return replace(typed, column=typed.column)
    if not isinstance(node, _UNIT_AGGREGATES):
        raise Unsupported(
            f"{describe_construct(node)} is not supported in a sub-query",
            why="COUNT, SUM, AVG, MIN and MAX are known to be safe on every row",
            fix="use one of these, and compute with it outside",
        )
    if isinstance(node, exp.Count):
        check_clauses(node, {"this", "big_int"})
        operand = node.this
        if isinstance(operand, exp.Star):
            inner: Any = exp.Star()
        elif isinstance(operand, exp.Distinct) and len(operand.expressions) == 1:
            inner = exp.Distinct(
                expressions=[_comparable(compile_expression(operand.expressions[0], scope)).sql]
            )
        else:
            inner = compile_expression(operand, scope).sql
        count = exp.Cast(this=exp.Count(this=inner), to=exp.DataType.build("DOUBLE"))
        return TypedExpression(count, Kind.NUMBER, size=(0, 64))
    check_clauses(node, {"this"})
    argument = compile_expression(node.this, scope)
    if isinstance(node, (exp.Sum, exp.Avg)):
        argument = as_kind(argument, Kind.NUMBER, "what is added up")
        return sum_per_unit(argument, is_mean=isinstance(node, exp.Avg))
    if argument.kind is Kind.OPAQUE:
        raise unsupported_here(node)
    function: type[exp.Expr] = type(node)
    if argument.kind is Kind.BOOLEAN:  # which not every engine puts in order
        function = exp.LogicalAnd if isinstance(node, exp.Min) else exp.LogicalOr
    return TypedExpression(
        function(this=argument.sql),
        argument.kind,
        argument.bounds,
        argument.keys,
        size=argument.size,
        is_complete=argument.is_complete,
    )


def _comparable(typed: TypedExpression) -> TypedExpression:
    """Refuse columns of types on which engines disagree about equality."""
    is_unit = typed.column is not None and typed.column.is_unit
    if typed.kind is Kind.OPAQUE and not is_unit and not typed.is_literal:
        raise unknown_type_compared()
    return typed


def _items(node: exp.Select, sources: Sources) -> list[tuple[str, TypedExpression]]:
    """The columns of a SELECT, with stars written out."""
    items: list[tuple[str, TypedExpression]] = []
    for item in node.expressions:
        inner = item.unalias()
        if isinstance(inner, exp.Star) or (
            isinstance(inner, exp.Column) and isinstance(inner.this, exp.Star)
        ):
            check_clauses(inner if isinstance(inner, exp.Star) else inner.this, set())
            table = inner.table if isinstance(inner, exp.Column) else ""
            for alias, columns in sources.scope.sources.items():
                if not table or alias.lower() == table.lower():
                    items += [(column.name, sources.scope.find(column.name, alias)) for column in columns]
        elif isinstance(inner, exp.Window):
            scope, aggregate = sources.scope, partial(_of_one_unit, scope=sources.scope, keys={})
            window = compile_window(inner, scope, sources.unit, compile_expression, aggregate)
            items.append((item.alias_or_name, window))
        else:
            items.append((item.alias_or_name, compile_expression(inner, sources.scope)))
    _check_items(items)
    return items


def _check_items(items: list[tuple[str, TypedExpression]]) -> None:
    names = [name.lower() for name, _ in items]
    if not all(names) or len(set(names)) != len(names) or UNIT in names:
        raise InvalidInput(
            "two columns of a sub-query share a name, or one has none",
            why="they could not be told apart outside",
            fix="name each with AS",
        )


def _columns(items: list[tuple[str, TypedExpression]]) -> tuple[Column, ...]:
    return tuple(
        Column(
            name,
            typed.kind,
            typed.bounds if typed.bounds and typed.bounds[0] < typed.bounds[1] else None,
            typed.keys,
            is_unit=typed.column is not None and typed.column.is_unit,
            origin=typed.column.origin if typed.column is not None else None,
            is_outer=typed.column is not None and typed.column.is_outer,
            size=typed.size,
            is_complete=typed.is_complete,
        )
        for name, typed in items
    )


def resolve_reference(key: exp.Expr, node: exp.Select, scope: Scope, clause: str = "GROUP BY") -> exp.Expr:
    """Resolve a key given by position or alias; a column comes before an alias of the same name."""
    if isinstance(key, exp.Literal) and not key.is_string and key.this.isdigit():
        place = int(key.this)
        if not 1 <= place <= len(node.expressions):
            raise InvalidInput(
                f"{clause} {place} has no such column", why="the SELECT has fewer", fix="name the column"
            )
        chosen: exp.Expr = node.expressions[place - 1].unalias()
        return chosen
    if isinstance(key, exp.Column) and not key.table and not scope.has(key.name):
        for item in node.expressions:
            if isinstance(item, exp.Alias) and item.alias.lower() == key.name.lower():
                return item.unalias()
    return key


def _tables(node: exp.Select) -> list[exp.Expr]:
    return [clause.this for clause in (node.args["from_"], *(node.args.get("joins") or []))]


def _alias(node: exp.Expr) -> str:
    name = node.alias_or_name
    if not name:
        raise InvalidInput("a sub-query has no name", why="its columns could not be named", fix="add AS name")
    return name


def _aliased(relation: Relation, alias: str) -> exp.Expr:
    return exp.Subquery(this=relation.sql.copy(), alias=exp.TableAlias(this=_quoted(alias)))


def _quoted(name: str) -> exp.Identifier:
    return exp.to_identifier(name, quoted=True)


def _quoted_column(name: str) -> exp.Expr:
    return exp.Column(this=_quoted(name))


def check_clauses(node: exp.Expr, allowed: set[str]) -> None:
    """Refuse a node with a clause that would be ignored."""
    for name, argument in node.args.items():
        if argument and name not in allowed:
            clause = name.strip("_").upper()
            raise Unsupported(
                f"{describe_construct(node)} has a clause that is not supported here ({clause})",
                why="ignoring it would change the query",
                fix="write the query without it",
            )


def _no_column_names(node: exp.Expr) -> None:
    alias = node.args.get("alias")
    if isinstance(alias, exp.TableAlias) and alias.args.get("columns"):
        raise Unsupported(
            "columns are renamed in a list after an alias",
            why="ignoring it would change the query",
            fix="name each column with AS, inside",
        )


def _mixed(what: str) -> Refused:
    return Refused(
        f"{what} goes over rows of several units",
        why="one person could change a row that stands for others",
        fix="GROUP BY the unit's key in the sub-query",
    )
