"""A plan of one or several queries of rows, and the SQL over what they release.

Each part is a plan of its own, with an equal share of ε and δ. What is stored for a charge is what the parts
released; the outer SQL is evaluated over it whenever the result is read, so it can neither cost anything nor
lose an answer.

Proof: docs/proofs/post-processing.md, "SQL over released tables"
"""

import hashlib
import html
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar, NoReturn

import numpy as np
from sqlglot import exp

from hubbub.accounting import PrivacyLoss
from hubbub.accounting.codec import canonical_json
from hubbub.engines.engine import Engine, query_public_rows
from hubbub.engines.schema import Kind
from hubbub.errors import InvalidInput, Unsupported
from hubbub.escaping import escape
from hubbub.numbers import Number, format_percent, format_up
from hubbub.release import Release
from hubbub.sql.executor import execute
from hubbub.sql.fingerprint import fingerprint
from hubbub.sql.plan import Plan
from hubbub.sql.post_processing import ResultColumn
from hubbub.sql.query import Output, Query
from hubbub.sql.released_sql import PUBLIC, RELEASED, ReleasedSQL, compile_released_sql
from hubbub.sql.result import Result
from hubbub.sql.statement_parts import SplitStatement, list_group_keys
from hubbub.unit import Unit

__all__ = [
    "AnyPlan",
    "CompositePlan",
    "execute_plan",
    "fingerprint_plan",
    "load_tables",
    "plan_parts",
    "store_tables",
]

_FORMAT = "hubbub released tables/1"
_MAX_PUBLIC_CELLS = 1_000_000
_Carried = dict[str, tuple[int, str]]
"""By output with an interval, the part that released it, and its name there."""


@dataclass(frozen=True, repr=False)
class CompositePlan:
    """Queries of rows with the SQL over what they release, their privacy loss and their expected errors.

    Guarantee: running it costs `loss` and no more: that of its parts together. The outer SQL costs nothing.
    Proof: docs/proofs/post-processing.md, "SQL over released tables"
    """

    text: str
    parts: tuple[Plan, ...]
    outer: ReleasedSQL
    runner: Callable[["CompositePlan"], Release] | None = field(default=None, compare=False)
    remarks: tuple[str, ...] = ()
    """What a reader should know of the SQL over the released tables."""
    carried: Mapping[str, tuple[int, str]] = field(default_factory=dict, compare=False)
    """By output with an interval, the part that released it, and its name there."""

    error_kind: ClassVar[str] = "none"

    def run(self) -> "Release[Result]":
        """Charge, run and release, through the dataset that made the plan."""
        if self.runner is None:
            raise InvalidInput(
                "the plan has no dataset", why="it was made by hand", fix="use dataset.run(plan)"
            )
        return self.runner(self)

    def error(self, confidence: Number = 0.95, *, coordinates: int = 1) -> NoReturn:
        """Refused: each answer of a table has an interval of its own."""
        self.parts[0].error(confidence, coordinates=coordinates)

    @property
    def query(self) -> Query:
        """The first query of rows, under the text of the whole."""
        return replace(self.parts[0].query, text=self.text)

    @property
    def unit(self) -> Unit:
        """The privacy unit."""
        return self.parts[0].unit

    @property
    def epsilon(self) -> Fraction:
        """The price of the whole statement."""
        return sum((part.epsilon for part in self.parts), Fraction(0))

    @property
    def delta(self) -> Fraction:
        """The δ of the whole statement."""
        return sum((part.delta for part in self.parts), Fraction(0))

    @property
    def confidence(self) -> Fraction:
        """The confidence of the intervals."""
        return self.parts[0].confidence

    @cached_property
    def loss(self) -> PrivacyLoss:
        """The privacy loss of one unit for the whole statement."""
        total = self.parts[0].loss
        for part in self.parts[1:]:
            total += part.loss
        return total

    # Running

    def evaluate(self, tables: Sequence[Result]) -> Result:
        """The result, computed from what was released. If that fails, the first released table itself.

        Guarantee: a function of released tables alone.
        Proof: docs/proofs/post-processing.md, "SQL over released tables"
        """
        facts = (
            dict(tables[0].facts)
            if len(tables) == 1
            else {**self.label(), **_merge_cuts(tables), "parts": [t.facts for t in tables]}
        )
        if "EXACT" in tables[0].facts:
            facts = dict(tables[0].facts)
        else:
            facts |= {"query": self.text, **self._column_facts}  # columns may have other names than there
        if nothing := [str(t.facts["nothing shown"]) for t in tables if "nothing shown" in t.facts]:
            facts["nothing shown"] = "; ".join(dict.fromkeys(nothing))
        columns = self.outer.evaluate([table.columns for table in tables])
        if columns is None:
            facts |= {name: tables[0].facts.get(name) for name in ("answers", "interval covers")}
            facts["post-processing failed"] = (
                "the SQL over the released table failed on these values, took too long or has too many rows; "
                "this is the released table itself, and other SQL over it costs nothing more"
            )
            return Result(tables[0].columns, facts)
        if "EXACT" in facts:  # of weighted rows these are no integers
            columns = [replace(column, is_integer=False) for column in columns]
        return Result(tuple(columns), facts)

    # For people

    @cached_property
    def errors(self) -> tuple[tuple[Output, str], ...]:
        """For each output that is no group key, its expected error in words."""
        direct = [{output.name: (output, error) for output, error in part.errors} for part in self.parts]
        errors = []
        for name in self.outer.names:
            if any(name == f"{base}_{end}" for base in self.carried for end in ("low", "high")):
                continue
            if name in self.carried:
                place, inner = self.carried[name]
                output, error = direct[place][inner]
                errors.append((replace(output, name=name), error))
            elif not any(key.name == name for part in self.parts for key in part.query.keys):
                text = "computed from what is released, without an interval"
                errors.append((Output(name, exp.column(name)), text))
        return tuple(errors)

    def label(self) -> dict[str, Any]:
        """The protection and its cost: public, and free of data."""
        labels = [part.label() for part in self.parts]
        first = dict(labels[0])
        mechanisms = {name for label in labels for name in str(label["mechanism"]).split(", ")}
        return {
            **first,
            **self._column_facts,
            "query": self.text,
            "epsilon": str(self.epsilon),
            "delta": str(self.delta),
            "mechanism": ", ".join(sorted(mechanisms)),
            "bounds": {name: ends for label in labels for name, ends in label["bounds"].items()},
            "notes": [note.strip() for note in self.notes()],
            **({"parts": labels} if len(labels) > 1 else {}),
        }

    @property
    def _column_facts(self) -> dict[str, Any]:
        """What the label says of columns: of those that are plain columns of a released table."""
        kinds = [part.label()["answers"] for part in self.parts]
        answers = {name: kinds[place].get(inner) for name, (place, inner) in self.carried.items()}
        facts: dict[str, Any] = {"answers": {name: kind for name, kind in answers.items() if kind}}
        return facts if self.carried else {**facts, "interval covers": None}

    def to_json(self) -> str:
        """The label, for storage."""
        return canonical_json(self.label())

    def notes(self) -> list[str]:
        """What else a reader should know; what is true of some queries alone says of which."""
        noted: dict[str, list[int]] = {}
        for number, part in enumerate(self.parts, 1):
            for note in part.notes():
                noted.setdefault(note.strip(), []).append(number)
        notes = [
            f"  {note}"
            if len(numbers) == len(self.parts)
            else f"  {'query' if len(numbers) == 1 else 'queries'} {', '.join(map(str, numbers))}: {note}"
            for note, numbers in noted.items()
        ]
        if len(self.parts) > 1:
            share = format_up(self.parts[0].epsilon)
            notes.append(f"  {len(self.parts)} queries read rows, each for {share} of ε")
        return [*notes, *self.remarks, "  SQL over the released values computes the rest, at no cost"]

    def explain(self) -> str:
        """Sensitivities, mechanisms, the engine's SQL, and the proofs behind them, of each part."""
        parts = [
            f"released table {number}: {part.query.text}\n{part.explain()}"
            for number, part in enumerate(self.parts)
        ]
        return "\n\n".join(
            [str(self), *parts, f"over these: {escape(self.outer.sql.replace(RELEASED, 'released'))}"]
        )

    def __str__(self) -> str:
        percent = format_percent(self.confidence)
        lines = [f"ε = {self._price()} for {self.unit}; nothing spent yet"]
        lines += [f"  {output.name}: {error} ({percent})" for output, error in self.errors]
        return "\n".join(map(escape, [*lines, *self.notes()]))

    def __repr__(self) -> str:
        errors = "; ".join(f"{output.name} {error}" for output, error in self.errors)
        return escape(f"Plan(ε = {self._price()} for {self.unit}{'; ' if errors else ''}{errors})")

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(str(self))}</pre>"

    def _price(self) -> str:
        epsilon = format_up(self.epsilon)
        return epsilon if self.delta == 0 else f"{epsilon}, δ = {format_up(self.delta)}"


def _merge_cuts(tables: Sequence[Result]) -> dict[str, dict[str, str]]:
    """What bounds cut off in several released tables: by kind, what is true of all or of each."""
    merged = {}
    for fact in ("limits", "values beyond bounds"):
        known = [table.facts.get(fact, {}) for table in tables]
        kinds = dict.fromkeys(kind for each in known for kind in each)
        if kinds:
            merged[fact] = {kind: _describe_each([each.get(kind) for each in known]) for kind in kinds}
    return merged


def _describe_each(texts: Sequence[str | None]) -> str:
    first = texts[0]
    if first is not None and len(set(texts)) == 1:
        return first
    return "; ".join(f"query {place}: {text}" for place, text in enumerate(texts, 1) if text is not None)


AnyPlan = Plan | CompositePlan
"""A plan, of one query or of several."""


def execute_plan(
    plan: AnyPlan, engine: Engine, progress: Callable[[str], None], *, is_exact: bool = False
) -> list[Result]:
    """What a plan, or each of its parts, releases. It is called after the charge."""
    parts = plan.parts if isinstance(plan, CompositePlan) else (plan,)
    done = [execute(part, engine, progress, is_exact=is_exact) for part in parts]
    return [Result(tuple(each.columns), each.label) for each in done]


def store_tables(plan: AnyPlan, tables: Sequence[Result]) -> str:
    """What was released, as it is stored; of a single part as that of a plain query."""
    if not isinstance(plan, CompositePlan) or len(tables) == 1:
        return tables[0].to_json()
    stored = [json.loads(table.to_json()) for table in tables]
    label = plan.label()
    label["histograms"] = [each for table in tables for each in table.facts.get("histograms", ())]
    return json.dumps({"format": _FORMAT, "tables": stored, "label": label}, ensure_ascii=False)


def load_tables(plan: AnyPlan, stored: str) -> list[Result]:
    """Read what `store_tables` wrote."""
    if not isinstance(plan, CompositePlan) or len(plan.parts) == 1:
        return [Result.from_json(stored)]
    try:
        tables = json.loads(stored)["tables"]
    except (KeyError, TypeError, ValueError):
        raise InvalidInput(
            "the text does not hold the released tables of this plan",
            why="it cannot be read",
            fix="ask the question again",
        ) from None
    return [Result.from_json(json.dumps(table)) for table in tables]


def fingerprint_plan(plan: AnyPlan, origin: Any) -> str:
    """The question: what the parts ask, whatever is computed from their answers."""
    if not isinstance(plan, CompositePlan):
        return fingerprint(plan, origin)
    parts = [fingerprint(part, origin) for part in plan.parts]
    text = canonical_json(["questions/1", parts])
    return parts[0] if len(parts) == 1 else hashlib.sha256(text.encode()).hexdigest()


def plan_parts(
    text: str,
    split: SplitStatement,
    keys: Mapping[str, Any],
    plan_query: Callable[..., Plan],
    *,
    runner: Callable[[CompositePlan], Release] | None,
    engine: Engine,
) -> CompositePlan:
    """Plan the parts of a statement, and bind and type the SQL over what they release.

    Args:
        text: the statement, for people.
        split: its parts, and the SQL over them.
        keys: public group keys by name; each part has those that it groups by.
        plan_query: plans a part, given its share of the price as one of `parts`.
        runner: runs the plan.
        engine: holds the public tables that the SQL over the parts joins.
    """
    plans: list[Plan] = []
    used: set[str] = set()
    for part in split.parts:
        grouped = {name.lower() for name in list_group_keys(part)}
        own = {name: values for name, values in keys.items() if name.lower() in grouped}
        used |= own.keys()
        plans.append(plan_query(part, text=part.sql("duckdb"), parts=len(split.parts), keys=own))
    for name in keys.keys() - used:
        raise InvalidInput(
            f"keys are given for {name!r}, which the query does not group by",
            why="they would be ignored",
            fix="group by it, or leave the keys out",
        )
    _refuse_several_values(split.outer, plans)
    tables = [_columns(part) for part in plans]
    statement, carried = _carry_intervals(split.outer, plans)
    public = _read_public_tables(statement, engine)
    integers = [_integer_columns(part) for part in plans]
    outer = compile_released_sql(statement, tables, frozenset(carried), integers, list(public.values()))
    pairs = zip(split.parts, plans, strict=True)
    has_empty_groups = any(plan.query.is_public and _filters_keys(part) for part, plan in pairs)
    remarks = [_EMPTY_GROUPS] if has_empty_groups else []
    remarks += [f"  the rows of {name}, which is public, are as they were at planning" for name in public]
    return CompositePlan(text, tuple(plans), outer, runner, tuple(remarks), carried)


_EMPTY_GROUPS = (
    "  public group keys that WHERE excludes are released as empty groups, and SQL over the released values "
    "sees them: repeat the condition there"
)


def _read_public_tables(statement: exp.Expr, engine: Engine) -> dict[str, list[ResultColumn]]:
    """The public tables that are joined with released ones, which then have names of their own."""
    known = {name.lower(): name for name, table in engine.tables.items() if table.is_public}
    ctes = {cte.alias.lower() for cte in statement.find_all(exp.CTE)}
    public: dict[str, list[ResultColumn]] = {}
    for table in list(statement.find_all(exp.Table)):
        name = known.get(table.name.lower())
        if name is None or name.lower() in ctes or not isinstance(table.this, exp.Identifier):
            continue
        if all(column.kind is Kind.OPAQUE for column in engine.tables[name].columns):
            raise Unsupported(
                f"the public table {name} has no column that can be read",
                why="their types are unknown to all queries, such as lists",
                fix="give it a column of texts, numbers, dates or booleans",
            )
        if name not in public:
            rows = query_public_rows(engine, name, _MAX_PUBLIC_CELLS)
            if rows is None:
                raise Unsupported(
                    f"the public table {name} is too large to be joined with released values",
                    why=f"it has more than {_MAX_PUBLIC_CELLS:,} values, and is kept with the plan",
                    fix="join it inside the aggregated query",
                )
            public[name] = [
                ResultColumn(
                    column, np.array(values, dtype=object), kind=engine.tables[name].find(column).kind
                )
                for column, values in rows.items()
            ]
        if not table.alias:
            table.set("alias", exp.TableAlias(this=exp.to_identifier(table.name, quoted=True)))
        table.set("this", exp.to_identifier(f"{PUBLIC}{list(public).index(name)}"))
    return public


def _filters_keys(part: exp.Select) -> bool:
    """True if a condition of WHERE is one on group keys alone."""
    where = part.args.get("where")
    keys = {name.lower() for name in list_group_keys(part)}
    conditions = where.this.flatten() if where is not None and isinstance(where.this, exp.And) else [where]
    columns = [{c.name.lower() for c in each.find_all(exp.Column)} for each in conditions if each is not None]
    return any(names and names <= keys for names in columns)


def _refuse_several_values(outer: exp.Expr, parts: Sequence[Plan]) -> None:
    """Refuse a sub-query for one value that has all groups of a released table: the first was taken."""
    for query in outer.find_all(exp.Subquery):
        if isinstance(query.parent, (exp.From, exp.Join, exp.SetOperation, exp.In, exp.Exists, exp.CTE)):
            continue
        if query.parent is not None and _has_all_groups(query.this, parts):
            raise Unsupported(
                "a sub-query for one value has several rows",
                why="it would be unclear which is meant",
                fix="take an aggregate of it, one group by WHERE, or LIMIT 1",
            )


def _has_all_groups(node: exp.Expr, parts: Sequence[Plan]) -> bool:
    """True if a SELECT has a row for each group of one released table, through a chain of such SELECTs."""
    if isinstance(node, exp.Subquery):
        return _has_all_groups(node.this, parts)
    if not isinstance(node, exp.Select) or _has_aggregate(node):
        return False
    if any(
        node.args.get(name) for name in ("joins", "where", "group", "having", "qualify", "limit", "distinct")
    ):
        return False
    table = _released_table(node)
    if table is not None:
        return bool(parts[int(table.name.removeprefix(RELEASED))].query.keys)
    clause = node.args.get("from_")
    return (
        clause is not None and isinstance(clause.this, exp.Subquery) and _has_all_groups(clause.this, parts)
    )


def _columns(part: Plan) -> dict[str, Kind]:
    """The columns of the table that a part releases: outputs, and the ends of their intervals."""
    columns: dict[str, Kind] = {}
    for each in part.post_processing.outputs:
        columns[each.output.name] = each.typed.kind or Kind.NUMBER
    for name in _interval_columns(part):
        columns[f"{name}_low"] = columns[f"{name}_high"] = Kind.NUMBER
    return columns


def _integer_columns(part: Plan) -> set[str]:
    names = {each.output.name for each in part.post_processing.outputs if each.is_integer}
    return {*names, *(f"{name}_{end}" for name in names for end in ("low", "high"))}


def _interval_columns(part: Plan) -> list[str]:
    if not part.bounded.intervals or part.query.is_top:
        return []
    return [
        each.output.name
        for each in part.post_processing.outputs
        if each.output.key is None and each.typed.kind in {Kind.NUMBER, None} and each.calls
    ]


def _carry_intervals(outer: exp.Expr, parts: Sequence[Plan]) -> tuple[exp.Expr, _Carried]:
    """The statement with the intervals of outputs that are plain columns of a released table, and these.

    Only a chain of SELECTs, one inside the other, is followed: there a column is what it was.
    """
    rewritten = outer.copy()
    if any(any(star.args.values()) for star in rewritten.find_all(exp.Star)):
        raise Unsupported(
            "columns of * are replaced, renamed or left out",
            why="intervals would be shown for the wrong columns",
            fix="list the columns",
        )
    # The star of a released table is its answers, without the ends of intervals.
    for select in list(rewritten.find_all(exp.Select)):
        table = _released_table(select)
        if table is not None and len(select.expressions) == 1 and select.expressions[0].is_star:
            part = parts[int(table.name.removeprefix(RELEASED))]
            select.set("expressions", [_column(each.name) for each in part.query.outputs])
    return rewritten, _carry(
        rewritten, parts, {cte.alias.lower(): cte for cte in rewritten.find_all(exp.CTE)}
    )


def _carry(node: exp.Expr, parts: Sequence[Plan], ctes: dict[str, exp.CTE]) -> _Carried:
    if isinstance(node, exp.Subquery):
        return _carry(node.this, parts, ctes) if not node.args.get("pivots") else {}
    if not isinstance(node, exp.Select) or node.args.get("joins"):
        return {}
    if any(node.args.get(name) for name in ("group", "distinct", "having")) or _has_aggregate(node):
        return {}
    source = node.args["from_"].this if node.args.get("from_") is not None else None
    if source is None or source.args.get("pivots") or source.args.get("joins"):
        return {}
    table = _released_table(node)
    if table is not None:
        place = int(table.name.removeprefix(RELEASED))
        inner = {name: (place, name) for name in _interval_columns(parts[place])}
    elif isinstance(source, exp.Subquery):
        inner = _carry(source, parts, ctes)
    elif isinstance(source, exp.Table) and source.name.lower() in ctes:
        root = node.root()
        uses = [table for table in root.find_all(exp.Table) if table.name.lower() == source.name.lower()]
        inner = _carry(ctes[source.name.lower()].this, parts, ctes) if len(uses) == 1 else {}
    else:
        return {}
    lowered = {name.lower(): name for name in inner}
    carried: _Carried = {}
    added: list[exp.Expr] = []
    used_names = {item.alias_or_name.lower() for item in node.expressions}
    for item in node.expressions:
        if item.is_star:
            carried |= inner
            continue
        column = item.unalias()
        name = item.alias_or_name
        known = lowered.get(column.name.lower()) if isinstance(column, exp.Column) else None
        ends = [f"{name}_{end}" for end in ("low", "high")]
        if known is None or name in carried or {end.lower() for end in ends} & used_names:
            continue
        carried[name] = inner[known]
        added += [
            exp.alias_(_column(f"{known}_{end}"), end_name, quoted=True)
            for end, end_name in zip(("low", "high"), ends, strict=True)
        ]
    node.set("expressions", [*node.expressions, *added])
    return carried


def _has_aggregate(node: exp.Select) -> bool:
    """True if an output is an aggregate, and no window."""
    return any(
        isinstance(each, exp.AggFunc) and each.find_ancestor(exp.Window, exp.Select) is node
        for item in node.expressions
        for each in item.find_all(exp.AggFunc)
    )


def _released_table(node: exp.Select) -> exp.Table | None:
    clause = node.args.get("from_")
    table = clause.this if clause is not None else None
    if isinstance(table, exp.Table) and table.name.startswith(RELEASED) and not node.args.get("joins"):
        return table
    return None


def _column(name: str) -> exp.Expr:
    return exp.Column(this=exp.to_identifier(name, quoted=True))
