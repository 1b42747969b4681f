"""Row-level relations: FROM, WHERE, joins, sub-queries, CTEs and UNION ALL, with the unit carried along.

A relation is public, or each of its rows belongs to one unit and has its key in the column `_unit`. Every
rule here keeps this: a row is made of rows of its own unit and of public ones, and of nothing else. So
adding or removing a unit adds or removes its rows, and changes no other row.

Proof: docs/proofs/bounding.md, "Relations"
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from sqlglot import exp

from hubbub.engines.schema import UNIT, Column, Kind, Table
from hubbub.engines.total_functions import read_column
from hubbub.errors import InvalidInput, Refused, Unsupported
from hubbub.sql.joins import (
    are_units,
    check_join_order,
    conjuncts,
    connect_units,
    equate,
    equates_units,
    first_rows,
    hashable_conditions,
    have_comparable_units,
    is_unit_key,
    join_scopes,
    natural_columns,
    not_a_list,
    refuse_join,
    rows_to_keep,
    without_lists,
)
from hubbub.sql.number_functions import as_column
from hubbub.sql.row_expressions import compile_expression
from hubbub.sql.typed_expressions import (
    Scope,
    TypedExpression,
    as_kind,
    describe_construct,
    not_a_relation,
    unknown_type_in_union,
)
from hubbub.sql.unit_aggregates import check_comparable, compile_of_unit
from hubbub.sql.unit_windows import compile_window, has_aggregate

__all__ = ["Relation", "Relations", "Sources", "check_clauses", "resolve_reference"]

Named = Mapping[str, "Relation"]
_MAX_DEPTH = 60
_SIDES = frozenset({"", "LEFT", "RIGHT", "FULL"})
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
    """The maximum number of rows per unit, where it is known: one after GROUP BY the unit."""
    scans: tuple[int, int] = (0, 0)
    """The number of times that it reads a table, and a protected one."""
    bound: int | None = None
    """A maximum number of rows per unit that only bounds the size of its joins."""


@dataclass(frozen=True)
class Sources:
    """FROM, joins and WHERE of a SELECT, with the columns that can be named."""

    sql: exp.Select
    scope: Scope
    unit: exp.Expr | None
    """The unit's column; None where the table is public, or each row is a unit."""
    is_public: bool
    most: int | None = None
    """The maximum number of rows per unit, where it is known."""
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
        check_join_order(joins)
        tables = [clause, *(join for join in joins if not isinstance(join.this, exp.Unnest))]
        relations = [self._source(each.this, visible, depth) for each in tables]
        has_full = any(str(join.args.get("side") or "").upper() == "FULL" for join in joins)
        (first, *others), bound = self._cap_rows(relations, has_full=has_full)
        alias = _alias(clause.this)
        joined = Sources(
            exp.Select().from_(_aliased(first, alias)),
            Scope({alias: first.columns}),
            None if first.is_public else self._unit(alias),
            first.is_public,
        )
        by_alias = dict(zip((_alias(each.this) for each in tables), relations, strict=True))
        connected = connect_units(node, by_alias)
        remaining = iter(others)
        for join in joins:
            alias = _alias(join.this)
            before = joined.scope.sources
            if alias.lower() in {name.lower() for name in before}:
                raise InvalidInput(
                    "two tables in the FROM share a name",
                    why="columns could be of either",
                    fix="rename one with AS",
                )
            if isinstance(join.this, exp.Unnest):
                joined = self._unnest(join, joined, relations)
                continue
            is_on_units = alias in connected and any(each in connected for each in before)
            joined = self._join(join, joined, alias, next(remaining), is_on_units=is_on_units)
        sql = joined.sql
        where = node.args.get("where")
        if where is not None:
            condition = as_kind(compile_expression(where.this, joined.scope), Kind.BOOLEAN, "the WHERE")
            sql = sql.where(condition.sql)
        return Sources(sql, joined.scope, joined.unit, joined.is_public, None if joins else first.most, bound)

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

    def _cap_rows(self, relations: list[Relation], *, has_full: bool) -> tuple[list[Relation], int | None]:
        """The sides of a join, each with a capped number of rows per unit, and that of the join.

        A FULL JOIN of m and n rows has m·n or, if none match, m + n: no more than m·n from two rows on.
        """
        least = 2 if has_full else 1
        protected = [side for side in relations if not side.is_public]
        if len(protected) < 2:
            return relations, protected[0].bound if len(relations) == len(protected) == 1 else None
        most = rows_to_keep([side.bound and max(side.bound, least) for side in protected])
        sides, total = [], 1
        for side in relations:
            is_few = side.is_public or (side.bound is not None and side.bound <= most)
            if not is_few:
                self.rows_kept_for_join = min(most, self.rows_kept_for_join or most)
                self._count(2 * sum(1 for _ in side.sql.find_all(exp.Table)), 0)  # it is written three times
            sql = side.sql if is_few else first_rows(side.sql, side.columns, most)
            bound = side.bound if is_few else most
            # Rows are kept by what can be seen of them, which is not what lists hold: these stay unseen.
            columns = side.columns if is_few else without_lists(side.columns)
            sides.append(replace(side, sql=sql, columns=columns, bound=bound))
            total *= max(bound or 1, 1 if side.is_public else least)
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
    ) -> Sources:
        """The sources with one more join."""
        check_clauses(join, {"this", "on", "using", "side", "kind", "method"})
        side, kind = (str(join.args.get(part) or "").upper() for part in ("side", "kind"))
        if side not in _SIDES or kind not in {"", "INNER", "CROSS", "OUTER"}:
            raise refuse_join(f"a {side or kind} join")
        keeps_left, keeps_right = side in {"LEFT", "FULL"}, side in {"RIGHT", "FULL"}
        if before.is_public != other.is_public and (keeps_left if before.is_public else keeps_right):
            raise refuse_join("an outer join that keeps the rows of a public table")
        there = Scope({alias: other.columns})
        both = Scope({**before.scope.sources, **there.sources}, before.scope.merged)
        using = {identifier.name.lower() for identifier in join.args.get("using") or []}
        if join.args.get("method"):
            using |= natural_columns(str(join.args["method"]), before.scope, other.columns)
        pairs = {name: (before.scope.find(name, None), there.find(name, None)) for name in sorted(using)}
        on = conjuncts(join.args["on"]) if join.args.get("on") is not None else []
        units = [part for part in on if equates_units(part, both, alias)]
        on_units = is_on_units or any(are_units(*pair) for pair in pairs.values())
        on_units = on_units or any(equates_units(part, both, alias, or_null=True) for part in on)
        conditions = [equate(*pair) for pair in pairs.values() if not are_units(*pair)]
        conditions += [
            as_kind(compile_expression(part, both), Kind.BOOLEAN, "the ON").sql
            for part in on
            if part not in units
        ]
        unit, own = before.unit, None if other.is_public else self._unit(alias)
        if not before.is_public and not other.is_public:
            if not on_units or unit is None or own is None or not have_comparable_units(both):
                raise Refused(
                    "two protected tables are joined, but not on the unit's key, or on keys of two kinds",
                    why="a row would be made of two people's rows",
                    fix="join them on the unit's key of both, declared with one kind, and other conditions",
                )
            conditions.append(exp.EQ(this=unit.copy(), expression=own))
        if side and not conditions:
            raise refuse_join("an outer join without a condition")
        if side == "FULL":
            conditions = hashable_conditions(conditions, alias)
        how = side.lower() or ("inner" if conditions else "cross")
        condition = exp.and_(*conditions) if conditions else None
        sql = before.sql.join(_aliased(other, alias), on=condition, join_type=how)
        if unit is None or (own is not None and side == "RIGHT"):
            unit = own
        elif own is not None and side == "FULL":
            unit = exp.Coalesce(this=unit.copy(), expressions=[own.copy()])
        return Sources(
            sql, join_scopes(before.scope, there, pairs, side), unit, before.is_public and other.is_public
        )

    def _unnest(self, join: exp.Join, before: Sources, relations: list[Relation]) -> Sources:
        """The sources with one row for each element of a list: all of them of the list's own row."""
        is_plain = join.args.get("on") in {None, exp.true()}
        check_clauses(join, {"this", "kind", "on"} if is_plain else {"this", "kind"})
        check_clauses(join.this, {"this", "expressions", "alias"})
        if sum(not each.is_public for each in relations) > 1:
            raise Refused(
                "UNNEST is next to a join of protected tables",
                why="the rows of a unit are capped before they are joined, and lists have no cap",
                fix="unnest the list in a sub-query, then join it",
            )
        alias = _alias(join.this)
        names = join.this.args["alias"].args.get("columns") or [exp.to_identifier(alias)]
        column = join.this.expressions[0]
        if len(join.this.expressions) != 1 or len(names) != 1 or not isinstance(column, exp.Column):
            raise not_a_list()
        typed = before.scope.find(column.name, column.table or None)
        if typed.column is None or typed.column.element is None:
            raise not_a_list()
        element = Column(names[0].name, typed.column.element)
        if element.kind is Kind.BOOLEAN:
            element = replace(element, keys=(False, True, None), is_complete=True)
        # Lists of one row would be multiplied by each other, so no other one is unnested after it.
        sources = {name: without_lists(columns) for name, columns in before.scope.sources.items()}
        columns = exp.TableAlias(this=_quoted(alias), columns=[_quoted(element.name)])
        source = exp.Unnest(expressions=[typed.sql], alias=columns)
        return replace(
            before,
            sql=before.sql.join(source, join_type="cross"),
            scope=Scope({**sources, alias: (element,)}, before.scope.merged),
        )

    # Sub-queries

    def _project(self, node: exp.Select, sources: Sources) -> Relation:
        items = [(name, as_column(typed)) for name, typed in _items(node, sources)]
        if node.args.get("distinct"):
            check_clauses(node.args["distinct"], set())
            if not sources.is_public and not any(is_unit_key(typed) for _, typed in items):
                raise _mixed("SELECT DISTINCT")
            for _, typed in items:
                check_comparable(typed)
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
        """GROUP BY the unit (and more): each row is made of one unit's rows, or of public ones."""
        group = node.args.get("group")
        check_clauses(group, {"expressions"}) if group is not None else None
        keys = [
            check_comparable(compile_expression(resolve_reference(key, node, sources.scope), sources.scope))
            for key in (group.expressions if group is not None else [])
        ]
        if not sources.is_public and (sources.unit is None or not any(map(is_unit_key, keys))):
            raise _mixed("an aggregate in a sub-query")
        if node.args.get("distinct"):
            raise Unsupported(
                "SELECT DISTINCT with GROUP BY is not supported",
                why="it changes nothing",
                fix="leave DISTINCT out",
            )
        known = {key.sql.sql(): key for key in keys}
        items = [
            (item.alias_or_name, as_column(compile_of_unit(item.unalias(), sources.scope, known)))
            for item in node.expressions
        ]
        _check_items(items)
        sql = sources.sql.select(*(exp.alias_(typed.sql, name, quoted=True) for name, typed in items))
        units = [] if sources.unit is None else [sources.unit]
        sql = sql.select(*(exp.alias_(unit.copy(), UNIT, quoted=True) for unit in units))
        # A literal is the same in all rows, and some engines would take it for something else.
        by = [key.sql.copy() for key in keys if not key.is_literal]
        sql = sql.group_by(*by, *(unit.copy() for unit in units))
        most, bound = (1, 1) if len(keys) == 1 else (sources.most, sources.bound)
        return Relation(sql, _columns(items), sources.is_public, most, bound=bound)

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


def _items(node: exp.Select, sources: Sources) -> list[tuple[str, TypedExpression]]:
    """The columns of a SELECT, with stars written out."""
    if any(item.find(exp.Window) is not None for item in node.expressions):
        # A window breaks ties by what can be seen of a row. What a list holds is not seen, here or outside:
        # among rows that differ in it alone, the engine's own order would show.
        closed = {name: without_lists(columns) for name, columns in sources.scope.sources.items()}
        sources = replace(sources, scope=replace(sources.scope, sources=closed))

    def resolve(part: exp.Expr) -> TypedExpression | None:
        return compile_window(part, sources.scope, sources.unit) if isinstance(part, exp.Window) else None

    scope = replace(sources.scope, resolve=resolve)
    items: list[tuple[str, TypedExpression]] = []
    for item in node.expressions:
        inner = item.unalias()
        if isinstance(inner, exp.Star) or (
            isinstance(inner, exp.Column) and isinstance(inner.this, exp.Star)
        ):
            check_clauses(inner if isinstance(inner, exp.Star) else inner.this, set())
            items += _star(inner.table if isinstance(inner, exp.Column) else "", sources.scope)
        else:
            items.append((item.alias_or_name, compile_expression(inner, scope)))
    _check_items(items)
    return items


def _star(table: str, scope: Scope) -> list[tuple[str, TypedExpression]]:
    """All columns of a table, or of all tables; those that USING has made one are there once."""
    items: list[tuple[str, TypedExpression]] = []
    for alias, columns in scope.sources.items():
        for column in columns if not table or alias.lower() == table.lower() else ():
            is_merged = not table and column.name.lower() in scope.merged
            if not is_merged or all(column.name.lower() != name.lower() for name, _ in items):
                items.append((column.name, scope.find(column.name, None if is_merged else alias)))
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
            element=typed.column.element if typed.column is not None else None,
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
