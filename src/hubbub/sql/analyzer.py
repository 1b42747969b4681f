"""Turns SQL into a `Query`: DuckDB's dialect, and GoogleSQL's SELECT WITH DIFFERENTIAL_PRIVACY.

sqlglot parses; every node is then looked up and rebuilt, or refused by name. The text of a person never
reaches an engine.
"""

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import chain
from typing import Any

from sqlglot import exp

from hubbub.engines.schema import (
    UNIT,
    Bounds,
    Kind,
    Table,
    declare_bounds,
    parse_bounds,
    parse_group_keys,
)
from hubbub.engines.total_functions import drop_zero_sign
from hubbub.errors import HubbubError, InvalidInput, Refused, Unsupported
from hubbub.sql import aggregate_calls
from hubbub.sql.aggregate_calls import is_whole, parse_limit
from hubbub.sql.number_functions import as_column
from hubbub.sql.output_names import choose_name
from hubbub.sql.parser import PER_GROUP, PER_ROW, parse
from hubbub.sql.query import AggregateCall, Argument, GroupKey, Order, Output, Query
from hubbub.sql.relations import Relations, Sources, check_clauses, resolve_reference
from hubbub.sql.row_expressions import compile_expression
from hubbub.sql.typed_expressions import (
    TypedExpression,
    as_kind,
    describe_construct,
    refuse_ambiguous_names,
)

__all__ = ["analyze", "parse"]

_MAX_NODES = 4000
_MAX_COPIED_NODES = 20_000
_SUPPORTED = "use COUNT, SUM, AVG, VARIANCE, STDDEV, MEDIAN, QUANTILE_CONT, MIN, MAX, COVAR_SAMP or CORR"


@dataclass(frozen=True)
class Declarations:
    """Bounds and keys that are declared for one query."""

    bounds: Mapping[str, Any] = field(default_factory=dict)
    keys: Mapping[str, Any] = field(default_factory=dict)
    of_public: Callable[[str, str], Iterable[Any]] | None = None
    """The different values of a column of a public table."""


def analyze(
    statement: exp.Expr,
    tables: Mapping[str, Table],
    *,
    rows_are_units: bool,
    text: str = "",
    bounds: Mapping[str, Any] | None = None,
    keys: Mapping[str, Any] | None = None,
    of_public: Callable[[str, str], Iterable[Any]] | None = None,
) -> Query:
    """Return the query of a syntax tree.

    Bounds and keys in the declarations are public, and named by a column or an output.
    """
    if isinstance(statement, exp.Pivot):
        raise Unsupported(
            "this PIVOT is not supported",
            why="the columns of the answer are public",
            fix="list values and groups: PIVOT t ON c IN ('a', 'b') USING COUNT(*) GROUP BY g",
        )
    if not isinstance(statement, exp.Select):
        raise Unsupported(
            f"{describe_construct(statement)} is not a SELECT",
            why="a query reads, and aggregates over units",
            fix="write SELECT … FROM … GROUP BY …",
        )
    declared = Declarations(aggregate_calls.bounds_of_arguments(statement, bounds), keys or {}, of_public)
    try:
        if sum(1 for _ in statement.walk()) > _MAX_NODES:
            raise Unsupported(
                "the query is too long",
                why="the planner limits how complex a query may be",
                fix="write a shorter one",
            )
        known = declare_bounds(tables, declared.bounds)
        return _Analyzer(statement, known, declared, rows_are_units=rows_are_units).query(text)
    except RecursionError:
        raise Unsupported(
            "the query is nested too deeply",
            why="the planner limits how complex a query may be",
            fix="write it in fewer levels",
        ) from None


class _Analyzer:
    """Analyzes one SELECT."""

    def __init__(
        self, node: exp.Select, tables: Mapping[str, Table], declared: Declarations, *, rows_are_units: bool
    ) -> None:
        self._node = node
        self._declared = declared
        self._rows_are_units = rows_are_units
        self._used: set[str] = set()
        relations = Relations(
            tables, rows_are_units=rows_are_units, with_joins=node.find(exp.Join) is not None
        )
        self._sources: Sources = relations.sources(node)
        self._rows_kept_for_join = relations.rows_kept_for_join
        self._keys: list[tuple[str, TypedExpression]] = []
        self._arguments: list[tuple[TypedExpression, Bounds | None, str]] = []
        self._estimated: set[str] = set()
        self._aggregates: list[AggregateCall] = []
        self._aliases: dict[str, exp.Expr] = {}
        self._names = {item.alias_or_name.lower() for item in node.expressions}
        self._row_bounds: Bounds | None = None
        self._copied = 0
        self._search = aggregate_calls.AggregateSearch()
        # By the id of a node, with the node so that the id stays its own.
        self._key_places: dict[int, tuple[exp.Expr, int | None]] = {}

    def query(self, text: str) -> Query:
        node = self._node
        check_clauses(
            node,
            {"expressions", "from_", "joins", "where", "group", "having", "order", "limit", "with_", "kind"},
        )
        if self._sources.is_public:
            raise Refused(
                "no protected table is asked about",
                why="public tables need no protection, and no budget",
                fix="read the public table directly, or name a protected one",
            )
        self._read_keys()
        outputs = [output for item in node.expressions for output in self._output(item)]
        names = [output.name.lower() for output in outputs]
        # An answer's interval is two columns more.
        ends = [f"{name}_{end}" for name in names for end in ("low", "high")]
        if len(set(names)) != len(names) or {*names} & {*ends}:
            raise InvalidInput(
                "two columns of the answer share a name",
                why="they could not be told apart; the interval of n is n_low and n_high",
                fix="name them with AS",
            )
        having = node.args.get("having")
        order = node.args.get("order")
        ordered = [self._order(item) for item in order.expressions] if order is not None else []
        if having is not None:
            refuse_ambiguous_names(having, self._aliases, self._sources.scope, self._key_place)
        lifted = self._lift(having.this) if having is not None else None
        limit = parse_limit(node.args.get("limit"))
        is_top = self._is_top(outputs, ordered, limit) and lifted is None
        if not self._aggregates:
            if not self._keys:
                raise aggregate_calls.missing_aggregate_error()
            # SELECT DISTINCT key, in other words: the keys themselves, which must be selected or known.
            self._aggregates.append(AggregateCall("units" if self._sources.unit is not None else "count"))
        self._check_used()
        keys = tuple(self._group_key(name, typed) for name, typed in self._keys)
        return Query(
            text=text or node.sql("duckdb"),
            rows=self._rows(),
            is_keyed=self._sources.unit is not None,
            is_numbered=self._sources.unit is not None and self._rows_are_units,
            keys=keys,
            arguments=tuple(
                Argument(name, typed.kind, bounds, name in self._estimated)
                for typed, bounds, name in self._arguments
            ),
            aggregates=tuple(self._aggregates),
            outputs=tuple(outputs),
            having=lifted,
            order=tuple(ordered),
            limit=limit,
            max_rows_per_unit=self._sources.most,
            rows_kept_for_join=self._rows_kept_for_join,
            cuts_quotients=node.find(exp.IntDiv) is not None,
            derived_bounds=tuple(
                place
                for place, (typed, bounds, _) in enumerate(self._arguments)
                if bounds is not None and aggregate_calls.are_derived(typed, bounds)
            ),
            # A choice needs to know among what it chooses; else keys are selected first, and ordered after.
            is_top=is_top and all(key.values is not None for key in keys),
        )

    # Keys

    def _read_keys(self) -> None:
        group = self._node.args.get("group")
        if group is None:
            if self._node.args.get("distinct"):
                raise Unsupported(
                    "SELECT DISTINCT is not supported", why="GROUP BY says the same", fix="write GROUP BY"
                )
            return
        check_clauses(group, {"expressions", "all"})
        expressions = list(group.expressions)
        if group.args.get("all"):
            expressions = [item.unalias() for item in self._node.expressions if not item.find(exp.AggFunc)]
        for key in expressions:
            inner = resolve_reference(key, self._node, self._sources.scope)
            typed = compile_expression(inner, self._sources.scope)
            if typed.column is not None and typed.column.is_unit:
                raise Refused(
                    "the answer is grouped by the unit's key",
                    why="each group would be one person",
                    fix="group by something that many share, or aggregate by the unit in a sub-query",
                )
            if typed.kind is Kind.OPAQUE:
                raise InvalidInput(
                    "a group key is of an unknown type",
                    why="its values could not be shown the same way everywhere",
                    fix="declare it in {types}, as text, number, boolean, date or timestamp",
                )
            name = next(
                (
                    item.alias
                    for item in self._node.expressions
                    if isinstance(item, exp.Alias) and item.this == inner
                ),
                typed.column.name if typed.column is not None else f"key{len(self._keys) + 1}",
            )
            if all(typed.sql != known.sql for _, known in self._keys):
                self._keys.append((name, typed))

    def _group_key(self, name: str, typed: TypedExpression) -> GroupKey:
        declared = self._declared_value(self._declared.keys, name, typed)
        if declared is not None:
            return GroupKey(name, typed.kind, parse_group_keys(declared, name, typed.kind))
        column = typed.column
        origin = column.origin if column is not None else None
        if typed.keys is None and origin is not None and self._declared.of_public is not None:
            public: Iterable[Any] = self._declared.of_public(*origin)
            if column is not None and column.is_outer:
                public = chain((key for key in public if key is not None), (None,))
            return GroupKey(name, typed.kind, parse_group_keys(public, name, typed.kind), is_complete=True)
        return GroupKey(name, typed.kind, typed.keys, typed.is_complete)

    def _declared_value(self, declared: Mapping[str, Any], name: str, typed: TypedExpression) -> Any:
        """The declaration for this query under the name of the output or the column."""
        for known in (name, typed.column.name if typed.column is not None else name):
            for key, value in declared.items():
                if key.lower() == known.lower():
                    self._used.add(key)
                    return value
        return None

    def _check_used(self) -> None:
        for name, typed in self._keys:
            self._declared_value(self._declared.keys, name, typed)
        for key in self._declared.keys:
            if key not in self._used:
                raise InvalidInput(
                    f"keys are given for {key!r}, which the query does not group by",
                    why="they would be ignored",
                    fix="group by it, or leave the keys out",
                )

    # Outputs

    def _output(self, item: exp.Expr) -> list[Output]:
        inner = item.unalias()
        name = item.alias or choose_name(inner, self._names)
        self._names.add(name.lower())
        if isinstance(inner, exp.Star):
            raise Refused(
                "SELECT * is not supported", why="it asks for the rows themselves", fix="ask for aggregates"
            )
        many = aggregate_calls.split_quantiles(inner)
        if many is not None:
            argument, fractions = many
            calls = [(each, AggregateCall("quantile", fraction=each)) for each in fractions]
            return [
                Output(f"{name}_{float(each):g}", self._aggregate(call, [argument])) for each, call in calls
            ]
        lifted = self._lift(inner)
        if isinstance(item, exp.Alias):
            self._aliases[item.alias.lower()] = lifted
        return [Output(name, lifted)]

    def _lift(self, node: exp.Expr) -> exp.Expr:
        """The expression with each key and each aggregate replaced by the released column."""
        if isinstance(node, (exp.Anonymous, exp.Filter, exp.WithinGroup, exp.AggFunc)):
            return self._lift_aggregate(node)
        if isinstance(node, exp.Window):
            raise Refused(
                "a window function is not supported",
                why="it reaches over the rows of other units",
                fix="compute it from the released table",
            )
        if not self._search.finds(node):
            key = self._key_place(node)
            if key is not None:
                return exp.column(f"k{key}")
            if isinstance(node, exp.Column):
                # A column comes before an alias of the same name, as in DuckDB.
                if (
                    not node.table
                    and not self._sources.scope.has(node.name)
                    and self._alias(node) is not None
                ):
                    return self._copy_alias(node)
                compile_expression(node, self._sources.scope)  # an unknown column is said to be so
                raise Refused(
                    f"the column {node.name[:60]!r} is neither grouped by nor aggregated",
                    why="its values are those of single rows",
                    fix="add it to the GROUP BY, or take an aggregate of it",
                )
        if isinstance(node, (exp.Subquery, exp.Select)):
            raise Unsupported(
                "a sub-query among the outputs is not supported",
                why="it is a separate query",
                fix="ask it separately",
            )
        # Only the node itself is copied: with its parts, long chains of OR would take quadratic time.
        return type(node)(**{name: self._lift_argument(value) for name, value in node.args.items()})

    def _lift_argument(self, value: Any) -> Any:
        if isinstance(value, list):
            return [self._lift_argument(part) for part in value]
        return self._lift(value) if isinstance(value, exp.Expr) else value

    def _key_place(self, node: exp.Expr) -> int | None:
        """The place of the key that this expression is, if it is one.

        What is compiled with it is compared too, so that each part of a long expression is compiled once.
        """
        if id(node) not in self._key_places:
            with suppress(HubbubError):
                compile_expression(node, replace(self._sources.scope, on_compiled=self._compare_with_keys))
        return self._key_places[id(node)][1]

    def _compare_with_keys(self, node: exp.Expr, typed: TypedExpression | None) -> None:
        sql = None if typed is None else typed.sql
        places = (place for place, (_, key) in enumerate(self._keys) if key.sql == sql)
        self._key_places[id(node)] = node, next(places, None)

    def _alias(self, node: exp.Expr) -> exp.Expr | None:
        return self._aliases.get(node.name.lower())

    def _copy_alias(self, node: exp.Expr) -> exp.Expr:
        """The expression of an alias."""
        alias = self._aliases[node.name.lower()]
        self._copied += sum(1 for _ in alias.walk())
        if self._copied > _MAX_COPIED_NODES:
            raise Unsupported(
                "outputs are used too often in one another",
                why="the planner limits how complex a query may be",
                fix="use fewer",
            )
        return alias.copy()

    def _order(self, item: exp.Expr) -> Order:
        """Resolve ORDER BY: a bare name is an output if there is one; in an expression columns come first."""
        inner = item.this
        if isinstance(inner, exp.Column) and not inner.table and self._alias(inner) is not None:
            lifted = self._copy_alias(inner)
        elif isinstance(inner, exp.Literal) and not inner.is_string and is_whole(inner.this):
            lifted = self._lift(resolve_reference(inner, self._node, self._sources.scope, "ORDER BY"))
        else:
            lifted = self._lift(inner)
            if lifted.find(exp.Column) is None:
                raise InvalidInput(
                    "the ORDER BY contains a constant",
                    why="it orders nothing; for DuckDB even -(-1) is the first output",
                    fix="order by an output, its position, a group key or an aggregate",
                )
        return Order(lifted, bool(item.args.get("desc")), bool(item.args.get("nulls_first")))

    def _is_top(self, outputs: list[Output], order: list[Order], limit: int | None) -> bool:
        """Return whether it is ORDER BY COUNT(*) DESC LIMIT k with only keys selected."""
        if limit is None or not self._keys or not order or any(output.key is None for output in outputs):
            return False
        first = order[0]
        place = Output("", first.sql).aggregate
        return (
            first.is_descending
            and place is not None
            and self._aggregates[place].kind in {"count", "units"}
            and len(self._aggregates) == 1
            and len(order) == 1
        )

    # Aggregates

    def _lift_aggregate(self, node: exp.Expr) -> exp.Expr:
        if isinstance(node, exp.Filter):
            return self._lift_aggregate(aggregate_calls.rewrite_filter(node))
        if isinstance(node, exp.WithinGroup):
            return self._within_group(node)
        if isinstance(node, exp.Count):
            return self._count(node)
        if isinstance(node, exp.CountIf):
            condition = exp.Case(ifs=[exp.If(this=node.this, true=exp.Literal.number(1))])
            return self._count(exp.Count(this=condition))
        if isinstance(node, exp.Anonymous):
            if str(node.this).lower() == PER_GROUP:
                return self._per_group(node)
            if str(node.this).lower() == PER_ROW and len(node.expressions) == 3:
                return self._per_row(*node.expressions)
            raise Unsupported(
                f"{describe_construct(node)} is not known",
                why="only functions on the allow-list can be protected",
                fix=_SUPPORTED,
            )
        kind = aggregate_calls.AGGREGATES.get(type(node))
        if kind is not None:
            check_clauses(node, {"this", "expression"})
            constant = None if isinstance(node.this, exp.Distinct) else self._constant(node.this)
            if constant is not None:
                return self._aggregate_of_constant(node, constant)
            arguments = [node.this] + ([node.expression] if node.args.get("expression") is not None else [])
            return self._aggregate(*aggregate_calls.without_distinct(kind, arguments))
        if isinstance(node, exp.Median):
            return self._aggregate(AggregateCall("quantile", fraction=Fraction(1, 2)), [node.this])
        if isinstance(node, (exp.PercentileCont, exp.PercentileDisc, exp.Quantile, exp.ApproxQuantile)):
            place = node.args.get("expression") or node.args.get("quantile")
            return self._aggregate(
                AggregateCall("quantile", fraction=aggregate_calls.parse_fraction(place)), [node.this]
            )
        extreme = aggregate_calls.EXTREMES.get(type(node))
        if extreme is not None:
            check_clauses(node, {"this"})
            note = (
                f"{node.key.upper()} is the {float(100 * extreme):g} % quantile: the last row is somebody's"
            )
            inner = node.this.expressions[0] if isinstance(node.this, exp.Distinct) else node.this
            return self._aggregate(AggregateCall("quantile", fraction=extreme, note=note), [inner])
        raise Unsupported(
            f"{describe_construct(node)} cannot be protected here",
            why="no rule says how far one unit can move it",
            fix=_SUPPORTED,
        )

    def _constant(self, node: exp.Expr) -> Fraction | None:
        """The literal number that is the argument, if it is one."""
        typed = compile_expression(node, self._sources.scope)
        return typed.value if typed.is_literal and isinstance(typed.value, Fraction) else None

    def _aggregate_of_constant(self, node: exp.Expr, constant: Fraction) -> exp.Expr:
        """SUM(2) is twice the number of rows; other aggregates of a constant do not depend on the rows."""
        if not isinstance(node, exp.Sum):
            raise Unsupported(
                f"{describe_construct(node)} of a literal is not supported",
                why="it does not depend on the rows",
                fix="take it of a column, or ask for COUNT(*)",
            )
        count = self._add_call(AggregateCall("count"))
        factor = exp.Literal.number(repr(float(constant)))
        return count if constant == 1 else exp.Paren(this=exp.Mul(this=factor, expression=count))

    def _per_group(self, node: exp.Anonymous) -> exp.Expr:
        """COUNT, SUM or AVG of each unit's rows in a group, clamped, and then added up or averaged."""
        if len(node.expressions) != 3:
            raise Unsupported(
                f"{describe_construct(node)} is not known",
                why="it takes an aggregate and two bounds",
                fix=_SUPPORTED,
            )
        inner, *ends = node.expressions or [node]
        kind = {exp.Count: "count", exp.Sum: "sum", exp.Avg: "mean"}.get(type(inner))
        if kind is None or len(ends) != 2 or isinstance(inner.this, exp.Distinct):
            raise Unsupported(
                "contribution_bounds_per_group is not supported on this aggregate",
                why="only COUNT, SUM and AVG have it",
                fix="declare bounds for the column instead",
            )
        check_clauses(inner, {"this", "big_int"})
        low, high = (compile_expression(end, self._sources.scope).value for end in ends)
        is_star = isinstance(inner.this, exp.Star)
        places = () if is_star else (self._argument(inner.this, "count" if kind == "count" else "per group"),)
        outer = "mean" if kind == "mean" else "sum"
        return self._add_call(
            AggregateCall(outer, places, per_group=(kind, *parse_bounds((low, high), "a contribution")))
        )

    def _per_row(self, inner: exp.Expr, low: exp.Expr, high: exp.Expr) -> exp.Expr:
        """An aggregate with the bounds of its argument."""
        ends = tuple(compile_expression(end, self._sources.scope).value for end in (low, high))
        before, self._row_bounds = self._row_bounds, parse_bounds(ends, "a contribution")
        lifted = self._lift_aggregate(inner)
        self._row_bounds = before
        return lifted

    def _count(self, node: exp.Count) -> exp.Expr:
        check_clauses(node, {"this", "big_int"})
        argument = node.this
        if isinstance(argument, exp.Star):
            return self._add_call(AggregateCall("count"))
        if isinstance(argument, exp.Distinct):
            if len(argument.expressions) != 1:
                raise Unsupported(
                    "COUNT(DISTINCT a, b) is not supported",
                    why="distinct values of one column are counted",
                    fix="count their concatenation",
                )
            inner = argument.expressions[0]
            typed = compile_expression(inner, self._sources.scope)
            if typed.column is not None and typed.column.is_unit:
                return self._add_call(AggregateCall("units"))
            return self._aggregate(AggregateCall("distinct"), [inner])
        typed = compile_expression(argument, self._sources.scope)
        if typed.is_literal and typed.value is not None:
            return self._add_call(AggregateCall("count"))
        if typed.column is not None and typed.column.is_unit:
            return self._add_call(AggregateCall("count"))
        return self._aggregate(AggregateCall("count"), [argument])

    def _within_group(self, node: exp.WithinGroup) -> exp.Expr:
        function, order = node.this, node.expression
        if not isinstance(function, (exp.PercentileCont, exp.PercentileDisc)) or len(order.expressions) != 1:
            raise Unsupported(
                "WITHIN GROUP is not supported on this aggregate",
                why="only PERCENTILE_CONT has it here",
                fix="use QUANTILE_CONT(x, 0.5)",
            )
        fraction = aggregate_calls.parse_fraction(function.this)
        item = order.expressions[0]
        if item.args.get("desc"):
            fraction = 1 - fraction
        return self._aggregate(AggregateCall("quantile", fraction=fraction), [item.this])

    def _aggregate(self, kind: AggregateCall, arguments: list[exp.Expr]) -> exp.Expr:
        places = tuple(self._argument(argument, kind.kind) for argument in arguments)
        return self._add_call(
            AggregateCall(kind.kind, places, kind.fraction, is_sample=kind.is_sample, note=kind.note)
        )

    def _argument(self, node: exp.Expr, kind: str) -> int:
        typed = compile_expression(node, self._sources.scope)
        bounds = None
        if kind == "distinct":
            if typed.kind is Kind.OPAQUE:
                raise InvalidInput(
                    "a column of an unknown type is counted",
                    why="engines disagree on which of its values are equal",
                    fix="declare it in {types}, as text, number, boolean, date or timestamp",
                )
        elif kind != "count":
            typed = as_kind(typed, Kind.NUMBER, f"the argument of a {kind}")
            bounds = None if kind == "per group" else self._bounds(node, typed)
        for place, (known, limits, name) in enumerate(self._arguments):
            if known.sql == typed.sql and (limits == bounds or kind == "count" or limits is None):
                # What was only counted so far is added up, too: both are then measured together.
                self._arguments[place] = (known, bounds if limits is None else limits, name)
                return place
        self._arguments.append((typed, bounds, _label(typed, node)))
        return len(self._arguments) - 1

    def _bounds(self, node: exp.Expr, typed: TypedExpression) -> Bounds | None:
        if self._row_bounds is not None:
            return self._row_bounds
        name = _label(typed, node)
        declared = self._declared_value(self._declared.bounds, name, typed)
        if declared == "auto":
            self._estimated.add(name)
            return None
        if declared is not None:
            return parse_bounds(declared, name)
        return aggregate_calls.known_bounds(typed)

    def _add_call(self, aggregate: AggregateCall) -> exp.Expr:
        if aggregate not in self._aggregates:
            self._aggregates.append(aggregate)
        return exp.column(f"a{self._aggregates.index(aggregate)}")

    # Rows

    def _rows(self) -> exp.Select:
        """The SQL of the rows: unit, keys and arguments of each."""
        sql = self._sources.sql.copy()

        def add(expression: exp.Expr, name: str) -> None:
            # In place: a copy for each of two hundred columns would take seconds.
            sql.select(exp.alias_(expression.copy(), name, quoted=True), copy=False)

        if self._sources.unit is not None:
            add(self._sources.unit, UNIT)
        for place, (_, typed) in enumerate(self._keys):
            column = as_column(typed).sql
            add(drop_zero_sign(column) if typed.kind is Kind.NUMBER else column, f"k{place}")
        for place, (typed, _, _) in enumerate(self._arguments):
            add(as_column(typed).sql, f"x{place}")
        if not sql.expressions:
            add(exp.Literal.number(1), "one")
        return sql


def _label(typed: TypedExpression, node: exp.Expr) -> str:
    """The name of an argument: its column, or its text."""
    return typed.column.name if typed.column is not None else node.sql("duckdb")
