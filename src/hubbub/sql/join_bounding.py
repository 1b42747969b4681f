"""How many rows of one unit come into a join of protected tables: a public number, so that none explodes.

Rows of one unit are multiplied by each other where protected relations are joined: ten rows, joined eight
times, are a hundred million, and how long a query takes would tell who has rows. So each side keeps no more
than so many rows of a unit, by their content, before the join.

Proof: docs/proofs/bounding.md, "Joins"
"""

from collections.abc import Iterable, Sequence
from math import prod

from sqlglot import exp

from hubbub.engines.schema import UNIT, Column, Kind
from hubbub.errors import Refused

__all__ = ["MOST_JOINED", "bad_join", "conjuncts", "first_rows", "rows_to_keep"]

MOST_JOINED = 10**6
"""So many rows of one unit come out of a join at most."""
_LEAST = 10
_ALL, _MANY, _RANKED, _RANK = "_all", "_many", "_ranked", "_rank"


def rows_to_keep(known: Sequence[int | None]) -> int:
    """How many rows of a unit each side of a join keeps; of each side it may be known how many it has.

    >>> rows_to_keep([None, None]), rows_to_keep([None, 1])
    (1000, 1000000)

    Guarantee: if no side has more, the join has no more than `MOST_JOINED` rows of one unit.
    """
    few = [most for most in known if most is not None and most <= _LEAST]
    many = len(known) - len(few)
    room = MOST_JOINED // prod(few)
    keep = room
    if many:
        keep = max(1, round(room ** (1 / many)))
        keep -= keep**many > room
    if room == 0 or (many and keep < _LEAST):
        raise Refused(
            f"{len(known)} protected tables or sub-queries are joined with each other",
            why="rows of one unit are multiplied by each other, and how long that takes would tell of them",
            fix="aggregate each by the unit's key in a sub-query first, or join fewer",
        )
    return keep


def first_rows(sql: exp.Expr, columns: Sequence[Column], most: int) -> exp.Expr:
    """Of each unit's rows so many, those that come first by their content.

    Units that have no more are found first, and left as they are: few have more, and ranking rows takes time.

    Guarantee: which rows a unit keeps is a function of its own rows, the same on every engine: equal rows are
        alike, and of a column of an unknown type nothing is visible but whether it is there.
    Proof: docs/proofs/bounding.md, "Joins"
    """
    names = [*(column.name for column in columns), UNIT]
    # Names that no table in it has, which would else be hidden behind ours, and no column, which would stand
    # for ours: who may name columns would say which rows are kept.
    beside = _free(_MANY, (table.name for table in sql.find_all(exp.Table)))
    place = _free(_RANK, names)
    own, other = _named(UNIT, _ALL), _named(UNIT, beside)
    counted = exp.GT(this=exp.Count(this=exp.Star()), expression=exp.Literal.number(most))
    many = exp.Select().from_(_as(sql, _ALL)).select(own.copy()).group_by(own.copy()).having(counted)
    rows = exp.Select().from_(_as(sql, _ALL)).select(*(_named(name, _ALL) for name in names))
    same = exp.EQ(this=own, expression=other)
    # Of our own names, which are not quoted as those of tables are.
    above = exp.Table(this=exp.to_identifier(beside))
    others = rows.join(above, on=same, join_type="left")
    others = others.where(exp.Is(this=other.copy(), expression=exp.Null()))
    ranked = rows.join(above.copy(), on=same.copy(), join_type="inner")
    ranked = ranked.select(exp.alias_(_rank(columns), place, quoted=True))
    kept = exp.LTE(this=_named(place, _RANKED), expression=exp.Literal.number(most))
    first = exp.Select().from_(_as(ranked, _RANKED)).select(*(_named(name, _RANKED) for name in names))
    alias = exp.TableAlias(this=exp.to_identifier(beside))
    found = exp.With(expressions=[exp.CTE(this=many, alias=alias)])
    return exp.Union(this=others, expression=first.where(kept), distinct=False, with_=found)


def _free(name: str, others: Iterable[str]) -> str:
    """The name, or one like it, that none of these is; engines may not tell capitals apart."""
    taken = {other.lower() for other in others}
    while name in taken:
        name += "_"
    return name


def _rank(columns: Sequence[Column]) -> exp.Expr:
    """The place of a row among those of its unit, in the order of all that can be seen of them."""
    order: list[exp.Expr] = [_named(UNIT, _ALL)]
    for column in columns:
        name = _named(column.name, _ALL)
        missing = exp.If(this=exp.Is(this=name, expression=exp.Null()), true=exp.Literal.number(1))
        if not column.is_unit:
            order.append(exp.Case(ifs=[missing], default=exp.Literal.number(0)))
        if not column.is_unit and column.kind is not Kind.OPAQUE:
            order.append(name.copy())
    by = exp.Order(expressions=[exp.Ordered(this=each, nulls_first=False) for each in order])
    return exp.Window(this=exp.RowNumber(), partition_by=[_named(UNIT, _ALL)], order=by)


def _named(column: str, table: str) -> exp.Expr:
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


def bad_join(what: str) -> Refused:
    """The error for a join that keeps rows of nobody, or of others."""
    return Refused(
        what,
        why="rows would appear or vanish for what other units' rows are",
        fix="write an inner join, or a LEFT JOIN from the protected table to a public one",
    )
