"""Splits a statement into queries that touch rows and the SQL over what they release.

A SELECT that aggregates rows of several units is a *part*: it is planned and charged as any query. All around
it is post-processing: outer queries, set operations, windows, expressions of keys and aggregates, HAVING,
ORDER BY. It is rewritten over the tables that the parts release, and runs in `released_sql`.

Nothing here decides what is private: every part goes through the analyzer, and the rest sees released values
only.

Proof: docs/proofs/post-processing.md, "SQL over released tables"
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, count, islice, product

from sqlglot import exp

from hubbub.engines.schema import Table
from hubbub.errors import HubbubError, InvalidInput, Refused, Unsupported
from hubbub.sql.output_names import choose_name, default_name, name_outputs
from hubbub.sql.parser import PER_GROUP, PER_ROW
from hubbub.sql.relations import Relations, Sources, resolve_reference
from hubbub.sql.released_sql import PUBLIC, RELEASED
from hubbub.sql.row_expressions import compile_expression
from hubbub.sql.typed_expressions import TypedExpression, refuse_ambiguous_names

__all__ = ["SplitStatement", "list_group_keys", "split_statement"]

_MAX_PARTS, _MAX_NODES, _MAX_LIFTED = 16, 4000, 20_000
_MAX_TRIES = 50
"""The largest number of calls of the analyzer for one statement."""


@dataclass(frozen=True)
class SplitStatement:
    """The parts, each a query of its own, and the statement over the tables that they release."""

    parts: tuple[exp.Select, ...]
    outer: exp.Expr


def split_statement(
    statement: exp.Expr,
    tables: Mapping[str, Table],
    *,
    rows_are_units: bool,
    check: Callable[[exp.Select], object],
) -> SplitStatement | None:
    """The statement in parts; None if it has none, or is itself the only one.

    Args:
        statement: the syntax tree.
        tables: the tables of the dataset.
        rows_are_units: True if each row is a unit.
        check: raises if the analyzer does not accept a SELECT as a query.
    """
    if next(islice(statement.walk(), _MAX_NODES, None), None) is not None:
        return None
    _refuse_own_names(statement)
    tries = count(1)

    def accepts(part: exp.Select) -> bool:
        if next(tries) > _MAX_TRIES:
            raise RecursionError
        try:
            check(part)
        except HubbubError:
            return False
        return True

    if not all(_is_usable_limit(limit) for limit in statement.find_all(exp.Limit, exp.Offset)):
        return None
    splitter = _Splitter(tables, rows_are_units=rows_are_units, accepts=accepts)
    try:
        outer = splitter.query(statement, _Names())
    except (HubbubError, RecursionError):  # then the analyzer's own refusal stands
        return None
    if not splitter.parts or (len(splitter.parts) == 1 and splitter.parts[0] == statement):
        return None
    return SplitStatement(tuple(splitter.parts), outer)


@dataclass(frozen=True)
class _Names:
    """The names of WITH that can be used here: queries of rows, and queries of released values."""

    rows: tuple[exp.CTE, ...] = ()
    released: frozenset[str] = field(default_factory=frozenset)


class _Splitter:
    def __init__(
        self, tables: Mapping[str, Table], *, rows_are_units: bool, accepts: Callable[[exp.Select], bool]
    ) -> None:
        self._tables = tables
        columns = (column for table in tables.values() for column in table.columns)
        self._unit_names = {column.name.lower() for column in columns if column.is_unit}
        self._public = {name.lower() for name, table in tables.items() if table.is_public}
        self._rows_are_units = rows_are_units
        self._accepts = accepts
        self.parts: list[exp.Select] = []

    # Which queries touch rows

    def query(self, node: exp.Expr, names: _Names) -> exp.Expr:
        """The statement over released tables."""
        if isinstance(node, exp.Subquery):
            inner = self.query(node.this, names)
            return exp.Subquery(**{**node.args, "this": inner})
        names, clause = self._with(node, names)
        if isinstance(node, exp.SetOperation):
            rewritten: exp.Expr = node.copy()
            rewritten.set("this", self.query(node.this, names))
            rewritten.set("expression", self.query(node.expression, names))
            rewritten.set("with_", clause)
            return rewritten
        if not isinstance(node, exp.Select):
            raise Unsupported(
                "the statement is not a SELECT", why="a query reads", fix="write SELECT … FROM … GROUP BY …"
            )
        rewritten = self._block(node, names) if self._touches_rows(node, names) else self._outer(node, names)
        if clause is not None:
            rewritten.set("with_", clause)
        return rewritten

    def _with(self, node: exp.Expr, names: _Names) -> tuple[_Names, exp.With | None]:
        """The names that a WITH adds, and the WITH that remains over released tables."""
        clause = node.args.get("with_")
        if clause is None:
            return names, None
        if clause.args.get("recursive"):
            raise Unsupported(
                "a recursive WITH is not supported", why="it may not end", fix="avoid recursion"
            )
        released = []
        for cte in clause.expressions:
            if self._is_released(cte.this, names):
                rewritten = cte.copy()
                rewritten.set("this", self.query(cte.this, names))
                released.append(rewritten)
                names = _Names(names.rows, names.released | {cte.alias.lower()})
            else:
                names = _Names((*names.rows, cte), names.released - {cte.alias.lower()})
        return names, exp.With(expressions=released) if released else None

    def _is_released(self, node: exp.Expr, names: _Names) -> bool:
        """True if a query has nothing but released values."""
        if isinstance(node, exp.Subquery):
            return self._is_released(node.this, names)
        if node.args.get("with_") is not None:
            for cte in node.args["with_"].expressions:
                if self._is_released(cte.this, names):
                    names = _Names(names.rows, names.released | {cte.alias.lower()})
                else:
                    names = _Names((*names.rows, cte), names.released - {cte.alias.lower()})
        if isinstance(node, exp.SetOperation):
            return self._is_released(node.this, names) and self._is_released(node.expression, names)
        if not isinstance(node, exp.Select):
            return False
        if not self._touches_rows(node, names):
            return True
        is_aggregated = bool(node.args.get("group")) or any(_aggregates(item) for item in node.expressions)
        if not is_aggregated:
            return False
        group = node.args.get("group")
        keys = {key.name.lower() for key in (group.expressions if group is not None else ())}
        if self._unit_names & keys:
            return False
        # Aggregated by the unit, it has rows of single units: the analyzer decides.
        around = exp.select(exp.Count(this=exp.Star())).from_(node.copy().subquery("_q"))
        return not self._accepts(_with_rows(around, names))

    def _touches_rows(self, node: exp.Select, names: _Names) -> bool:
        """True if it reads rows; of public tables only where no released table is beside them."""
        sources = list(_sources(node))
        rows = [source for source in sources if self._is_row_source(source, names)]
        is_beside = len(rows) < len(sources) and all(self._is_public(source, names) for source in rows)
        return bool(rows) and not is_beside

    def _is_public(self, node: exp.Expr, names: _Names) -> bool:
        """True for a public table, and for a query of such tables alone."""
        used = {table.name.lower() for table in node.find_all(exp.Table)}
        return bool(used) and used <= self._public - {cte.alias.lower() for cte in names.rows}

    def _is_row_source(self, source: exp.Expr, names: _Names) -> bool:
        if isinstance(source, exp.Table):
            name = source.name.lower()
            return name not in names.released
        if isinstance(source, exp.Subquery):
            return not self._is_released(source.this, names)
        return True

    # Queries of released values

    def _outer(self, node: exp.Select, names: _Names) -> exp.Expr:
        rewritten = node.copy()
        rewritten.set("with_", None)
        self._replace_queries(rewritten, node, names)
        name_outputs(rewritten)
        return rewritten

    def _replace_queries(self, rewritten: exp.Expr, node: exp.Expr, names: _Names) -> exp.Expr:
        """The copy of a node with each query inside it replaced by one over released tables."""
        for name, value in node.args.items():
            if isinstance(value, exp.Expr) and name != "with_":
                rewritten.set(name, self._replaced(value, names))
            elif isinstance(value, list):
                parts = (
                    self._replaced(each, names) if isinstance(each, exp.Expr) else each for each in value
                )
                rewritten.set(name, list(parts))
        return rewritten

    def _replaced(self, node: exp.Expr, names: _Names) -> exp.Expr:
        is_query = isinstance(node, (exp.Subquery, exp.Select, exp.SetOperation))
        if is_query and not self._is_public(node, names):
            return self.query(node, names)
        return self._replace_queries(node.copy(), node, names)

    # Queries of rows

    def _block(self, node: exp.Select, names: _Names) -> exp.Select:
        """A SELECT that aggregates rows: a part of it is released, and the rest is computed from that."""
        alone = node.copy()
        alone.set("with_", None)
        plain = _with_rows(alone, names)
        if not _uses_released(plain, names) and self._accepts(plain):
            return exp.select("*").from_(self._add(plain))
        if node.args.get("distinct") and not node.args.get("group"):
            raise Unsupported("this SELECT DISTINCT is refused", why="it asks for rows", fix="write GROUP BY")
        return _Block(self, node, names).split()

    def _add(self, part: exp.Select) -> exp.Table:
        if part not in self.parts:
            self.parts.append(part)
        if len(self.parts) > _MAX_PARTS:
            raise Unsupported(
                f"the statement has more than {_MAX_PARTS} aggregated queries",
                why="each takes a share of epsilon",
                fix="ask them one by one",
            )
        return exp.Table(this=exp.to_identifier(f"{RELEASED}{self.parts.index(part)}"))

    def add(self, part: exp.Select, names: _Names) -> exp.Table:
        """The table that a part releases."""
        if _uses_released(part, names):  # the dataset may have a table of that name
            raise Unsupported(
                "an aggregate uses released values", why="it can read rows only", fix="ask them one by one"
            )
        return self._add(part)

    def sources(self, node: exp.Select, names: _Names) -> Sources:
        """FROM, joins and WHERE of a SELECT, as the analyzer resolves them."""
        relations = Relations(
            self._tables, rows_are_units=self._rows_are_units, with_joins=node.find(exp.Join) is not None
        )
        return relations.sources(_with_rows(node.copy(), names))


class _Block:
    """One SELECT with aggregates over rows: keys and aggregates are released, expressions of them are not."""

    def __init__(self, splitter: _Splitter, node: exp.Select, names: _Names) -> None:
        self._splitter = splitter
        self._node = node
        self._names = names
        plain = node.copy()
        plain.set("with_", None)
        self._sources = splitter.sources(plain, names)
        self._keys: list[tuple[str, TypedExpression, exp.Expr]] = []
        self._aggregates: list[tuple[str, exp.Expr]] = []
        self._lifted = 0
        self._used_names: set[str] = set()
        self._aliases = {
            item.alias.lower(): item.this for item in node.expressions if isinstance(item, exp.Alias)
        }

    def split(self) -> exp.Select:
        node = self._node
        sets = self._grouping_sets()
        items, names = [], {item.alias_or_name.lower() for item in node.expressions}
        for item in node.expressions:
            if isinstance(item.unalias(), exp.Star):
                raise Refused(
                    "SELECT * asks for rows", why="rows belong to single people", fix="ask for aggregates"
                )
            name = item.alias or choose_name(item.unalias(), names)
            names.add(name.lower())
            items.append(exp.alias_(self._lift(item.unalias()), name, quoted=True))
        clauses: dict[str, exp.Expr | None] = {}
        having, qualify, order = (node.args.get(name) for name in ("having", "qualify", "order"))
        if having is not None:
            refuse_ambiguous_names(having, self._aliases, self._sources.scope, self._key)
            clauses["where"] = exp.Where(this=self._lift(having.this, with_aliases=True))
        if qualify is not None:
            clauses["qualify"] = exp.Qualify(this=self._lift(qualify.this, with_aliases=True))
        if order is not None:
            clauses["order"] = exp.Order(expressions=[self._order(item) for item in order.expressions])
        for name in ("limit", "offset", "distinct"):
            clauses[name] = node.args[name].copy() if node.args.get(name) is not None else None
        if node.args.get("windows"):
            raise Unsupported(
                "WINDOW is not supported", why="the query is split", fix="write the window after OVER"
            )
        if not self._aggregates:
            raise Refused(
                "nothing is aggregated", why="the answer would be rows of single people", fix="aggregate them"
            )
        rewritten = exp.select(*items).from_(self._released(sets))
        for name, clause in clauses.items():
            if clause is not None:
                rewritten.set(name, clause)
        return rewritten

    # Groups

    def _grouping_sets(self) -> list[list[int]]:
        """The indices of the keys of each grouping; all keys are added."""
        group = self._node.args.get("group")
        if group is None:
            return [[]]
        expressions = list(group.expressions)
        if group.args.get("all"):
            expressions = [item.unalias() for item in self._node.expressions if not _aggregates(item)]
        if any(group.args.get(name) for name in ("rollup", "cube", "grouping_sets", "totals")):
            raise Unsupported(
                "GROUP BY has several lists", why="they are not supported", fix="write GROUPING SETS"
            )
        choices: list[list[list[int]]] = []
        for each in expressions:
            if isinstance(each, exp.Rollup):
                places = [self._places(part) for part in each.expressions]
                choices.append([[*chain(*places[:end])] for end in range(len(places), -1, -1)])
            elif isinstance(each, exp.Cube):
                places = [self._places(part) for part in each.expressions]
                flags = product((True, False), repeat=len(places))
                choices.append(
                    [[*chain(*(p for p, used in zip(places, use, strict=True) if used))] for use in flags]
                )
            elif isinstance(each, exp.GroupingSets):
                choices.append([self._places(part) for part in each.expressions])
            else:
                choices.append([self._places(each)])
        return [sorted(set(chain(*chosen))) for chosen in product(*choices)]

    def _places(self, node: exp.Expr) -> list[int]:
        if isinstance(node, (exp.Tuple, exp.Paren)):
            listed = node.expressions if isinstance(node, exp.Tuple) else [node.this]
            return [place for part in listed for place in self._places(part)]
        inner = resolve_reference(node, self._node, self._sources.scope)
        typed = compile_expression(inner, self._sources.scope)
        for place, (_, known, _) in enumerate(self._keys):
            if known.sql == typed.sql:
                return [place]
        name = next(
            (
                item.alias
                for item in self._node.expressions
                if isinstance(item, exp.Alias) and item.this == inner
            ),
            typed.column.name if typed.column is not None else f"key{len(self._keys) + 1}",
        )
        self._keys.append((self._unique(name), typed, inner.copy()))
        return [len(self._keys) - 1]

    def _unique(self, name: str) -> str:
        base, number = name, 1
        while not self._is_free(name):
            name, number = f"{base}_{number}", number + 1
        self._used_names |= {name.lower(), f"{name}_low".lower(), f"{name}_high".lower()}
        return name

    def _is_free(self, name: str) -> bool:
        return not {name.lower(), f"{name}_low".lower(), f"{name}_high".lower()} & self._used_names

    def _released(self, sets: Sequence[Sequence[int]]) -> exp.Expr:
        """The table of keys and aggregates, all groupings below each other."""
        rewritten = []
        for chosen in sets:
            core = exp.Select(
                **{
                    name: self._node.args[name].copy()
                    for name in ("from_", "where")
                    if self._node.args.get(name)
                }
            )
            core.set("joins", [join.copy() for join in self._node.args.get("joins") or []])
            for place in chosen:
                name, _, inner = self._keys[place]
                core = core.select(exp.alias_(inner.copy(), name, quoted=True))
            for name, call in self._aggregates:
                core = core.select(exp.alias_(call.copy(), name, quoted=True))
            if chosen:
                core = core.group_by(*(self._keys[place][2].copy() for place in chosen))
            table = self._splitter.add(_with_rows(core, self._names), self._names)
            if len(sets) == 1:
                return table
            items_shown = [
                _column(name)
                if place in chosen
                else exp.alias_(exp.Cast(this=exp.Null(), to=_sql_type(typed)), name, quoted=True)
                for place, (name, typed, _) in enumerate(self._keys)
            ]
            flags = [
                exp.alias_(exp.Literal.number(0 if place in chosen else 1), f"_grouping{place}", quoted=True)
                for place in range(len(self._keys))
            ]
            items_shown += [_column(name) for name, _ in self._aggregates]
            rewritten.append(exp.select(*items_shown, *flags).from_(table))
        union: exp.Expr = rewritten[0]
        for each in rewritten[1:]:
            union = exp.Union(this=union, expression=each, distinct=False)
        return exp.Subquery(this=union, alias=exp.TableAlias(this=exp.to_identifier("_groupings")))

    # Expressions

    def _order(self, item: exp.Expr) -> exp.Expr:
        rewritten = item.copy()
        inner = item.this
        is_position = isinstance(inner, exp.Literal) and not inner.is_string
        is_name = isinstance(inner, exp.Column) and not inner.table and inner.name.lower() in self._aliases
        if is_position:
            resolve_reference(inner, self._node, self._sources.scope, "ORDER BY")
        if not is_position and not is_name:
            rewritten.set("this", self._lift(inner, with_aliases=True))
        elif is_name:
            rewritten.set("this", _column(inner.name))
        return rewritten

    def _lift(self, node: exp.Expr, *, with_aliases: bool = False) -> exp.Expr:
        """The expression over the released table."""
        self._lifted += 1
        if self._lifted > _MAX_LIFTED:  # outputs that use one another double each time
            raise RecursionError
        if isinstance(node, (exp.Subquery, exp.Select, exp.SetOperation)):
            return self._splitter.query(node, self._names)
        if isinstance(node, exp.Window):
            rewritten = self._lift_parts(node, with_aliases=with_aliases, skip="this")
            function = node.this
            inner = function.this if isinstance(function, (exp.IgnoreNulls, exp.RespectNulls)) else function
            lifted = self._lift_parts(inner, with_aliases=with_aliases)
            if inner is not function:
                wrapper = function.copy()
                wrapper.set("this", lifted)
                lifted = wrapper
            rewritten.set("this", lifted)
            return rewritten
        if _is_grouping(node):
            argument = node.expressions[0]
            return _column(f"_grouping{self._places(argument)[0]}")
        if _is_aggregate(node):
            return self._aggregate(node)
        if not _aggregates(node):
            place = self._key(node)
            if place is not None:
                return _column(self._keys[place][0])
            if isinstance(node, exp.Column):
                if (
                    not node.table
                    and not self._sources.scope.has(node.name)
                    and node.name.lower() in self._aliases
                ):
                    if with_aliases:
                        return self._lift(self._aliases[node.name.lower()])
                    return exp.Paren(this=self._lift(self._aliases[node.name.lower()]))
                compile_expression(node, self._sources.scope)
                raise Refused(
                    f"the column {node.name[:60]!r} is neither grouped by nor aggregated",
                    why="its values are those of single rows",
                    fix="add it to the GROUP BY, or take an aggregate of it",
                )
        return self._lift_parts(node, with_aliases=with_aliases)

    def _lift_parts(self, node: exp.Expr, *, with_aliases: bool, skip: str = "") -> exp.Expr:
        rewritten = node.copy()
        for name, value in node.args.items():
            if name == skip:
                continue
            if isinstance(value, exp.Expr):
                rewritten.set(name, self._lift(value, with_aliases=with_aliases))
            elif isinstance(value, list):
                parts = [
                    self._lift(part, with_aliases=with_aliases) if isinstance(part, exp.Expr) else part
                    for part in value
                ]
                rewritten.set(name, parts)
        return rewritten

    def _key(self, node: exp.Expr) -> int | None:
        if isinstance(node, (exp.Literal, exp.Identifier, exp.Star, exp.Var, exp.DataType)):
            return None
        try:
            typed = compile_expression(node, self._sources.scope)
        except HubbubError:
            return None
        return next((place for place, (_, key, _) in enumerate(self._keys) if key.sql == typed.sql), None)

    def _aggregate(self, node: exp.Expr) -> exp.Expr:
        for name, known in self._aggregates:
            if known == node:
                return _column(name)
        alias = next((name for name, inner in self._aliases.items() if inner == node), None)
        name = self._unique(alias or default_name(node))
        self._aggregates.append((name, node.copy()))
        return _column(name)


def list_group_keys(part: exp.Select) -> set[str]:
    """The names under which keys of a query can be declared: its outputs but aggregates, and columns."""
    group = part.args.get("group")
    names = {item.alias_or_name for item in part.expressions if not _aggregates(item)}
    names |= {
        column.name for each in (group.expressions if group else ()) for column in each.find_all(exp.Column)
    }
    return names - {""}


def _with_rows(node: exp.Select, names: _Names) -> exp.Select:
    """The query with the queries of rows that it names."""
    used: list[exp.CTE] = []
    for cte in reversed(names.rows):
        inside = [node, *(each.this for each in used)]
        if any(
            table.name.lower() == cte.alias.lower() for each in inside for table in each.find_all(exp.Table)
        ):
            used.insert(0, cte)
    if not used:
        return node
    rewritten = node.copy()
    own = rewritten.args.get("with_")
    rewritten.set(
        "with_", exp.With(expressions=[*(cte.copy() for cte in used), *(own.expressions if own else [])])
    )
    return rewritten


def _uses_released(part: exp.Select, names: _Names) -> bool:
    return any(table.name.lower() in names.released for table in part.find_all(exp.Table))


def _refuse_own_names(statement: exp.Expr) -> None:
    """Refuse names that released tables and groupings have here."""
    for each in statement.find_all(exp.Identifier):
        if each.name.lower().startswith((RELEASED, PUBLIC, "_grouping")):
            raise Unsupported(
                f"the name {each.name[:60]!r} is used",
                why="names that start with _released, _public or _grouping are reserved for released tables",
                fix="use another name",
            )


def _is_usable_limit(node: exp.Expr) -> bool:
    """True for a whole number that is written out, for LIMIT at least 1."""
    number = node.expression
    if not isinstance(number, exp.Literal) or number.is_string or not number.this.isdigit():
        return False
    return int(number.this) > 0 or isinstance(node, exp.Offset)


def _sources(node: exp.Select) -> Iterator[exp.Expr]:
    clause = node.args.get("from_")
    if clause is not None:
        yield clause.this
    for join in node.args.get("joins") or []:
        yield join.this


def _is_aggregate(node: exp.Expr) -> bool:
    if isinstance(node, exp.Anonymous):
        return str(node.this).lower() in {PER_GROUP, PER_ROW}
    return isinstance(node, (exp.Filter, exp.WithinGroup, exp.AggFunc)) and not _is_grouping(node)


def _is_grouping(node: exp.Expr) -> bool:
    return isinstance(node, exp.Grouping) and len(node.expressions) == 1


def _aggregates(node: exp.Expr) -> bool:
    """True if an expression has an aggregate or a window outside of sub-queries."""
    if isinstance(node, (exp.Select, exp.SetOperation)):
        return False
    if isinstance(node, exp.Window) or _is_aggregate(node):
        return True
    return any(_aggregates(part) for part in node.iter_expressions())


def _column(name: str) -> exp.Expr:
    return exp.Column(this=exp.to_identifier(name, quoted=True))


def _sql_type(typed: TypedExpression) -> exp.DataType:
    from hubbub.engines.total_functions import SQL_TYPES

    if typed.kind not in SQL_TYPES:
        raise InvalidInput(
            "a group key is of an unknown type", why="so is its NULL in totals", fix="declare it in {types}"
        )
    return exp.DataType.build(SQL_TYPES[typed.kind])
