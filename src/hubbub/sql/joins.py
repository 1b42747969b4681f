"""Joins: the conditions under which a joined row belongs to one unit, and the cap on a unit's rows.

If protected relations are joined, the rows of one unit multiply: ten rows, joined eight times, are a hundred
million, and the running time would reveal who has rows. So each side keeps a public number of rows per unit,
chosen by their content, before the join.

Proof: docs/proofs/bounding.md, "Joins"
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Protocol

from sqlglot import exp

from hubbub.engines.schema import UNIT, Column, Kind
from hubbub.errors import InvalidInput, Refused
from hubbub.sql.typed_expressions import Scope, TypedExpression, union_of

__all__ = [
    "MAX_JOINED_ROWS",
    "are_units",
    "check_join_order",
    "conjuncts",
    "connect_units",
    "equate",
    "equates_units",
    "first_rows",
    "hashable_conditions",
    "have_comparable_units",
    "is_unit_key",
    "join_scopes",
    "natural_columns",
    "not_a_list",
    "refuse_join",
    "rows_to_keep",
    "without_lists",
]


class HasColumns(Protocol):
    """A relation, of which only the columns are needed here."""

    @property
    def columns(self) -> tuple[Column, ...]:
        """Its columns."""


MAX_JOINED_ROWS = 10**6
"""The maximum of rows of one unit that come out of a join."""
_MIN_KEPT = 10
_ALL, _MANY, _RANKED, _RANK = "_all", "_many", "_ranked", "_rank"


def rows_to_keep(known: Sequence[int | None]) -> int:
    """Return how many rows per unit each side of a join keeps, given the known maximum of each side, or None.

    >>> rows_to_keep([None, None]), rows_to_keep([None, 1])
    (1000, 1000000)

    Guarantee: if no side has more, the join has no more than `MAX_JOINED_ROWS` rows of one unit.
    """
    few = [most for most in known if most is not None and most <= _MIN_KEPT]
    many = len(known) - len(few)
    room = MAX_JOINED_ROWS // prod(few)
    keep = room
    if many:
        keep = max(1, round(room ** (1 / many)))
        keep -= keep**many > room
    if room == 0 or (many and keep < _MIN_KEPT):
        raise Refused(
            f"{len(known)} protected tables or sub-queries are joined with each other",
            why="rows of one unit are multiplied by each other, and the time that takes would depend on them",
            fix="aggregate each by the unit's key in a sub-query first, or join fewer",
        )
    return keep


def first_rows(sql: exp.Expr, columns: Sequence[Column], most: int) -> exp.Expr:
    """At most `most` rows of each unit, the first by their content.

    Units within the limit are found first and left unchanged: few exceed it, and ranking rows is slow.

    Guarantee: which rows a unit keeps is a function of its own rows, the same on every engine: equal rows are
        alike, and of a column of an unknown type nothing is visible but whether it is there.
    Proof: docs/proofs/bounding.md, "Joins"
    """
    names = [*(column.name for column in columns), UNIT]
    # Names that no table in it has, which would else be hidden behind ours, and no column, which would stand
    # for ours: who may name columns would say which rows are kept.
    beside = _free(_MANY, (table.name for table in sql.find_all(exp.Table)))
    place = _free(_RANK, names)
    own, other = _column(UNIT, _ALL), _column(UNIT, beside)
    is_above = exp.GT(this=exp.Count(this=exp.Star()), expression=exp.Literal.number(most))
    many = exp.Select().from_(_as(sql, _ALL)).select(own.copy()).group_by(own.copy()).having(is_above)
    rows = exp.Select().from_(_as(sql, _ALL)).select(*(_column(name, _ALL) for name in names))
    same = exp.EQ(this=own, expression=other)
    # Of our own names, which are not quoted as those of tables are.
    above = exp.Table(this=exp.to_identifier(beside))
    others = rows.join(above, on=same, join_type="left")
    others = others.where(exp.Is(this=other.copy(), expression=exp.Null()))
    ranked = rows.join(above.copy(), on=same.copy(), join_type="inner")
    ranked = ranked.select(exp.alias_(_rank(columns), place, quoted=True))
    is_kept = exp.LTE(this=_column(place, _RANKED), expression=exp.Literal.number(most))
    first = exp.Select().from_(_as(ranked, _RANKED)).select(*(_column(name, _RANKED) for name in names))
    alias = exp.TableAlias(this=exp.to_identifier(beside))
    clause = exp.With(expressions=[exp.CTE(this=many, alias=alias)])
    return exp.Union(this=others, expression=first.where(is_kept), distinct=False, with_=clause)


def _free(name: str, others: Iterable[str]) -> str:
    """A name like this one that is not taken, compared without case."""
    names = {other.lower() for other in others}
    while name in names:
        name += "_"
    return name


def _rank(columns: Sequence[Column]) -> exp.Expr:
    """The rank of a row among the rows of its unit, ordered by all visible columns."""
    order: list[exp.Expr] = [_column(UNIT, _ALL)]
    for column in columns:
        name = _column(column.name, _ALL)
        missing = exp.If(this=exp.Is(this=name, expression=exp.Null()), true=exp.Literal.number(1))
        if not column.is_unit:
            order.append(exp.Case(ifs=[missing], default=exp.Literal.number(0)))
        if not column.is_unit and column.kind is not Kind.OPAQUE:
            order.append(name.copy())
    by = exp.Order(expressions=[exp.Ordered(this=each, nulls_first=False) for each in order])
    return exp.Window(this=exp.RowNumber(), partition_by=[_column(UNIT, _ALL)], order=by)


def _column(column: str, table: str) -> exp.Expr:
    return exp.column(exp.to_identifier(column, quoted=True), exp.to_identifier(table, quoted=True))


def _as(sql: exp.Expr, name: str) -> exp.Expr:
    alias = exp.TableAlias(this=exp.to_identifier(name, quoted=True))
    return exp.Subquery(this=sql.copy(), alias=alias)


def conjuncts(node: exp.Expr) -> list[exp.Expr]:
    """The parts of a condition that must all hold."""
    node = node.unnest()
    if isinstance(node, exp.And):
        return [*conjuncts(node.this), *conjuncts(node.expression)]
    return [node]


def refuse_join(what: str) -> Refused:
    """The error for a join that keeps rows without a unit, or rows of other units."""
    return Refused(
        what,
        why="rows would appear or disappear depending on other units' rows",
        fix="write an inner join, or an outer join that keeps the rows of the protected table",
    )


# Conditions and columns


def equates_units(node: exp.Expr, scope: Scope, alias: str, *, or_null: bool = False) -> bool:
    """True if a condition equates the unit of the table of this name with that of the others.

    Args:
        node: the condition.
        scope: all columns.
        alias: the name of the table that is joined.
        or_null: True if columns that are the unit's key or NULL will do, as they have it after an outer join.
    """
    if not isinstance(node, exp.EQ):
        return False
    sides = []
    for side in (node.this, node.expression):
        if not isinstance(side, exp.Column):
            return False
        typed = scope.find(side.name, side.table or None)
        column = typed.column
        if column is None or not (column.is_unit or (or_null and column.is_outer_unit)):
            return False
        sides.append(typed.table == alias)
    return sides[0] != sides[1]


def connect_units(node: exp.Select, sources: Mapping[str, HasColumns]) -> set[str]:
    """The tables in the FROM with units that the WHERE equates, each with another one.

    A join of all of them on the unit's key has the same rows: only inner joins are looked at.
    """
    where = node.args.get("where")
    inner = {
        join.this.alias_or_name for join in node.args.get("joins") or [] if not join.args.get("side")
    } | {node.args["from_"].this.alias_or_name}
    scope = {alias: source.columns for alias, source in sources.items() if alias in inner}
    groups: list[set[str]] = []
    for part in conjuncts(where.this) if where is not None else ():
        if not isinstance(part, exp.EQ):
            continue
        ends = set()
        for side in (part.this, part.expression):
            owners = [
                alias
                for alias, columns in scope.items()
                if isinstance(side, exp.Column)
                and side.table.lower() in {"", alias.lower()}
                and any(column.is_unit and column.name.lower() == side.name.lower() for column in columns)
            ]
            ends |= set(owners) if len(owners) == 1 else set()
        if len(ends) == 2:
            groups = [
                set().union(ends, *(g for g in groups if g & ends)),
                *(g for g in groups if not g & ends),
            ]
    return groups[0] if len(groups) == 1 else set()


def natural_columns(method: str, scope: Scope, columns: Sequence[Column]) -> set[str]:
    """The names that both sides of a NATURAL JOIN have."""
    if method.upper() != "NATURAL":
        raise refuse_join(f"a {method[:20]} join")
    here = {column.name.lower() for source in scope.sources.values() for column in source}
    common = here & {column.name.lower() for column in columns}
    if not common:
        raise refuse_join("a NATURAL JOIN of tables without a common column")
    return common


def without_lists(columns: tuple[Column, ...]) -> tuple[Column, ...]:
    """The columns, of which lists can be counted, but no longer be looked into."""
    return tuple(replace(column, element=None) for column in columns)


def not_a_list() -> InvalidInput:
    """The error for UNNEST of something else than a column of lists."""
    return InvalidInput(
        "UNNEST is not of one column of lists",
        why="lists of texts, numbers, booleans, dates or timestamps can be unnested on DuckDB, one list "
        "per row, before rows are numbered or protected tables are joined",
        fix="write FROM t CROSS JOIN UNNEST(t.tags) AS u(tag), with the table that has the list",
    )


def is_unit_key(typed: TypedExpression) -> bool:
    """True if it is the unit's key."""
    return typed.column is not None and typed.column.is_unit


def are_units(left: TypedExpression, right: TypedExpression) -> bool:
    """True if both sides are the unit's key."""
    return all(side.column is not None and side.column.is_unit for side in (left, right))


def have_comparable_units(scope: Scope) -> bool:
    """True if comparing the units' keys needs no cast, which a row could make fail."""
    merged = [typed.column for typed in scope.merged.values() if typed.column is not None]
    columns = [*(column for source in scope.sources.values() for column in source), *merged]
    kinds = {column.kind for column in columns if column.is_unit}
    return len(kinds) == 1 and Kind.OPAQUE not in kinds


def equate(left: TypedExpression, right: TypedExpression) -> exp.Expr:
    """The condition that two columns are equal, which must be of one known kind."""
    if left.kind is not right.kind or left.kind is Kind.OPAQUE:
        raise InvalidInput(
            "a join compares columns of different or unknown kinds",
            why="equality would depend on the engine",
            fix="declare both columns with one kind",
        )
    return exp.EQ(this=left.sql, expression=right.sql)


def join_scopes(
    left: Scope, right: Scope, pairs: Mapping[str, tuple[TypedExpression, TypedExpression]], side: str
) -> Scope:
    """The columns after a join: NULL where a row of the other side has no match.

    Args:
        left: the columns before the join.
        right: those of the table that is joined.
        pairs: by name, the columns of USING, which become one.
        side: LEFT, RIGHT, FULL, or nothing.
    """
    is_left_outer, is_right_outer = side in {"RIGHT", "FULL"}, side in {"LEFT", "FULL"}
    sources = {
        **{
            alias: tuple(map(_as_outer_column, columns)) if is_left_outer else columns
            for alias, columns in left.sources.items()
        },
        **{
            alias: tuple(map(_as_outer_column, columns)) if is_right_outer else columns
            for alias, columns in right.sources.items()
        },
    }
    merged = {name: _as_outer(typed) if is_left_outer else typed for name, typed in left.merged.items()}
    for name, pair in pairs.items():
        merged[name] = _merge(*pair) if side == "FULL" else pair[1 if side == "RIGHT" else 0]
    return Scope(sources, merged)


def _as_outer(typed: TypedExpression) -> TypedExpression:
    column = None if typed.column is None else _as_outer_column(typed.column)
    keys = typed.keys if typed.keys is None or None in typed.keys else (*typed.keys, None)
    return replace(typed, column=column, keys=keys)


def _merge(left: TypedExpression, right: TypedExpression) -> TypedExpression:
    """A column of USING after a FULL JOIN: the value of whichever side has a row."""
    sql = exp.Coalesce(this=left.sql.copy(), expressions=[right.sql.copy()])
    if are_units(left, right):
        return replace(left, sql=sql)
    return union_of(sql, left.kind, [left, right])


def _as_outer_column(column: Column) -> Column:
    """A column of an outer join: NULL for rows without a match."""
    keys = column.keys or ()
    listed = (*keys, None) if column.is_complete and None not in keys else column.keys
    is_outer_unit = column.is_unit or column.is_outer_unit
    return replace(column, keys=listed, is_unit=False, is_outer_unit=is_outer_unit, is_outer=True)


def check_join_order(joins: Sequence[exp.Expr]) -> None:
    """Refuse a RIGHT or FULL JOIN after a comma: it has no rows of the tables before the comma."""
    is_comma = False
    for join in joins:
        if is_comma and str(join.args.get("side") or "").upper() in {"RIGHT", "FULL"}:
            raise Refused(
                "a RIGHT or FULL JOIN follows a comma in the FROM",
                why="it binds tighter than the comma, and is easily misread",
                fix="write CROSS JOIN or JOIN … ON in place of the comma",
            )
        is_comma = is_comma or not any(
            join.args.get(part) for part in ("side", "kind", "method", "on", "using")
        )


def hashable_conditions(conditions: Sequence[exp.Expr], alias: str) -> list[exp.Expr]:
    """The conditions of a FULL JOIN as equalities of its two sides, which every engine can join by.

    A condition on one side goes into that side of an equality: where it does not hold, NULL matches nothing.

    Args:
        conditions: the conditions, all of which must hold.
        alias: the name of the table on the right.
    """
    equalities: list[tuple[exp.Expr, exp.Expr]] = []
    guards: tuple[list[exp.Expr], list[exp.Expr]] = ([], [])
    for condition in conditions:
        sides = (
            [_side(part, alias) for part in (condition.this, condition.expression)]
            if isinstance(condition, exp.EQ)
            else []
        )
        if sides == ["left", "right"]:
            equalities.append((condition.this, condition.expression))
        elif sides == ["right", "left"]:
            equalities.append((condition.expression, condition.this))
        elif (side := _side(condition, alias)) != "both":
            guards[side == "right"].append(condition)
        else:
            equalities = []
            break
    if not equalities:
        raise Refused(
            "a FULL JOIN is not on equal columns of both sides",
            why="not every engine can join by other conditions",
            fix="join ON equal columns, such as the unit's key, and filter with WHERE",
        )
    first, *others = (list(pair) for pair in equalities)
    for place, own in enumerate(guards):
        if own:
            first[place] = exp.Case(ifs=[exp.If(this=exp.and_(*own), true=first[place])])
    return [
        exp.EQ(this=exp.Paren(this=left), expression=exp.Paren(this=right))
        for left, right in (first, *others)
    ]


def _side(node: exp.Expr, alias: str) -> str:
    """Which side of a join the columns of an expression are of: left, right or both."""
    tables = {column.table == alias for column in node.find_all(exp.Column)}
    return "both" if len(tables) == 2 else "right" if True in tables else "left"
