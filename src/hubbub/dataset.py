"""`Dataset`: plan a query, charge it, run it. The one place where rows, noise and budget meet.

A dataset is one or more tables, a privacy unit and an account; `hubbub.open` makes one. `sql` makes a plan
and reads nothing; `run` charges first, and then runs.
"""

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, NoReturn, Self

from hubbub.accounting import PrivacyLoss, refuse_large_epsilon
from hubbub.accounting.budget import refuse_copy
from hubbub.accounting.in_memory_account import InMemoryAccount
from hubbub.config_values import check_mappings, parse_key_lists
from hubbub.engines.engine import Engine
from hubbub.engines.schema import imply_kinds
from hubbub.errors import HubbubError, InvalidInput, Refused, Unsupported
from hubbub.escaping import escape
from hubbub.ledger import Charge, Ledger, LedgerAccount
from hubbub.ledger.entries import EntryKind, digest
from hubbub.ledger.stored_outcomes import capture_outcome, charge_and_run, pass_through_errors
from hubbub.mechanisms import Laplace
from hubbub.numbers import Number, parse_nonnegative, parse_positive
from hubbub.release import Release
from hubbub.sources import OpenedSources
from hubbub.sql.analyzer import analyze
from hubbub.sql.bound_estimation import estimate_cuts, measure_limits, use_known_limits
from hubbub.sql.composite_plan import (
    AnyPlan,
    CompositePlan,
    execute_plan,
    fingerprint_plan,
    load_tables,
    plan_parts,
    store_tables,
)
from hubbub.sql.explain import ledger_facts, with_estimated_cuts
from hubbub.sql.fingerprint import histogram_conditions
from hubbub.sql.limit_choice import ROW_BINS
from hubbub.sql.normalization import normalize
from hubbub.sql.parser import parse
from hubbub.sql.plan import Plan, make_plan
from hubbub.sql.post_processing import compile_outputs
from hubbub.sql.query import ContributionBounds, Query
from hubbub.sql.query_builder import QueryBuilder
from hubbub.sql.released_limits import KnownHistograms
from hubbub.sql.result import Result
from hubbub.sql.statement_parts import split_statement
from hubbub.sql.streaming import Stream, check_streamable, execute_stream
from hubbub.synopsis_planning import SynopsisPlanning
from hubbub.unit import Unit

__all__ = ["Dataset", "make_dataset"]


class Dataset(SynopsisPlanning):
    """Tables with a privacy unit and an account; made by `hubbub.open`."""

    def __init__(
        self,
        engine: Engine,
        unit: Unit,
        account: InMemoryAccount | LedgerAccount,
        *,
        population: int | None = None,
        contribution_bounds: ContributionBounds | None = None,
        max_rows_per_unit: int | None = None,
        origin: Any = None,
        version: str = "1",
        ledger: Ledger | None = None,
        synopses: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> None:
        self._engine = engine
        self.unit = unit
        self.account = account
        self._population = population
        self._bounds = contribution_bounds or ContributionBounds()
        self._cap = ContributionBounds(max_rows_per_unit).rows
        self._origin = origin
        self.version = version
        self._ledger = ledger
        self._synopses = synopses or {}
        self.notes = tuple(getattr(engine, "notes", ()))  # what was taken from header lines
        self._known = KnownHistograms()
        self._last_read = 0

    @property
    def has_ledger(self) -> bool:
        """True if charges are recorded in a ledger."""
        return isinstance(self.account, LedgerAccount)

    def sql(
        self,
        text: str,
        *,
        epsilon: Number | None = None,
        delta: Number | None = None,
        error: Mapping[str, Number] | None = None,
        rows_per_unit: int | None = None,
        groups_per_unit: int | None = None,
        rows_per_group: int | None = None,
        bounds: Mapping[str, Any] | None = None,
        keys: Mapping[str, Iterable[Any]] | None = None,
        confidence: Number = 0.95,
        bounding_report: bool = False,
        intervals: bool = True,
        allow_large_epsilon: bool = False,
    ) -> AnyPlan:
        """Plan a query: what it costs and how large its errors will be. Nothing is read or spent.

        Args:
            text: One SELECT statement.
            epsilon: The privacy cost of the whole query. Give exactly one of `epsilon` and `error`.
            delta: The additive slack δ; must be positive if group keys are selected privately.
            error: Half-widths of confidence intervals by output, `{"n": 50}`: the least ε that keeps them is
                found.
            rows_per_unit: Maximum rows per privacy unit; estimated privately if omitted.
            groups_per_unit: Maximum groups per privacy unit.
            rows_per_group: Maximum rows per privacy unit in each group.
            bounds: Public bounds of columns, which values are clamped to; `"auto"` estimates them privately.
            keys: Public group keys of columns.
            confidence: The confidence level of the intervals.
            bounding_report: Spend a tenth of ε to measure how many units exceed a contribution bound.
            intervals: False leaves intervals out; all of ε then goes into medians and other quantiles,
                which otherwise spend 35 % on theirs.
            allow_large_epsilon: Confirms a large ε, as for `Budget`, whatever the budget allows.

        Guarantee: running the plan costs no unit more than (ε, δ).
        Assumes: bounds, keys and contribution bounds are public: chosen without looking at the rows.
        Proof: docs/proofs/bounding.md
        """
        check_mappings(bounds=bounds, keys=keys)
        parsed, options = parse(text)
        tables = imply_kinds(self.tables, bounds)
        statement = normalize(parsed, tables, self.unit.key, options)
        limits = ContributionBounds(
            _first(rows_per_unit, options.rows, self._bounds.rows),
            _first(groups_per_unit, options.groups, self._bounds.groups),
            _first(rows_per_group, self._bounds.rows_per_group),
        )
        price = _first(epsilon, options.epsilon) if error is None else epsilon
        allowed = _first(delta, options.delta, 0)

        def plan_query(
            part: Any,
            *,
            text: str,
            parts: int = 1,
            keys: Mapping[str, Iterable[Any]] | None = keys,
            until: float = math.inf,
        ) -> Plan:
            query = self._analyze(text, part, bounds=bounds, keys=keys).with_cap(self._cap)
            query = replace(query, now=options.now)
            return make_plan(
                query,
                self.unit,
                epsilon=price if parts == 1 else parse_positive(price, "epsilon") / parts,
                delta=allowed if parts == 1 else parse_nonnegative(allowed, "delta") / parts,
                contribution_bounds=limits,
                error=error,
                confidence=confidence,
                population=self._population,
                reports_bounding=bounding_report,
                intervals=intervals,
                allow_large_epsilon=allow_large_epsilon,
                runner=self.run,
                compile=self._engine.compile,
                conditions=histogram_conditions(query, self.unit, [self._origin, self.version]),
                use_limits=partial(self._with_known_limits, always=error is not None, until=until),
            )

        try:
            return self._answered_before(partial(plan_query, statement, text=text))
        except (InvalidInput, Refused, Unsupported) as refusal:
            if error is not None and not isinstance(refusal, Unsupported):
                raise
            split = split_statement(
                statement,
                tables,
                rows_are_units=self.unit.key is None,
                check=lambda part: compile_outputs(self._analyze("", part, bounds=bounds)),
            )
            if split is None:
                raise
            if error is not None:
                raise Refused(
                    "{error} is given for SQL over released tables",
                    why="an error is known beforehand for the outputs of one plain query",
                    fix="give {epsilon}, or ask for the error of the inner query by itself",
                ) from None
        refuse_large_epsilon(parse_positive(price, "epsilon"), allow=allow_large_epsilon)
        plan_all = partial(plan_parts, text, split, keys or {}, runner=self.run, engine=self._engine)
        return self._answered_before(lambda **until: plan_all(partial(plan_query, **until)))

    def _analyze(
        self,
        text: str,
        statement: Any = None,
        *,
        bounds: Mapping[str, Any] | None = None,
        keys: Mapping[str, Iterable[Any]] | None = None,
    ) -> Query:
        return analyze(
            parse(text)[0] if statement is None else statement,
            imply_kinds(self.tables, bounds),
            rows_are_units=self.unit.key is None,
            text=text,
            bounds=bounds,
            keys=keys,
            of_public=self._engine.distinct_values,
        )

    def _with_known_limits(self, plan: Plan, *, always: bool = False, until: float = math.inf) -> Plan:
        """The plan with contribution bounds from histograms that were released before, at no cost.

        Args:
            plan: a plan with limits that are to be found, or are declared.
            always: use histograms however noisy they are.
            until: use those that were known up to this entry of the ledger.
        """
        bounded = plan.bounded
        if isinstance(self.account, LedgerAccount):
            if bounded.estimates_limits and self._has_charge(plan):
                return plan  # it has its answer, with the limits that were found for it
            self._read_histograms(self.account)
        if not bounded.estimates_limits:
            fitting = {kind: self._known.find(kind, of) for kind, of in plan.conditions.items()}
            return estimate_cuts(plan, fitting)
        needed = {"rows": bounded.estimates_rows, "groups": bounded.estimates_groups}
        fitting = {kind: self._known.find(kind, plan.conditions[kind]) for kind in needed if needed[kind]}
        known = {kind: [each for each in of if each.since <= until] for kind, of in fitting.items()}
        return use_known_limits(plan, known, always=always)

    def _answered_before(self, plan_until: Callable[..., AnyPlan]) -> AnyPlan:
        """The plan with all limits that are known now; or, if it was charged, the one with fewer of them.

        What was asked before has its answer, at its price, though more histograms may be known since.
        """
        plan = plan_until()
        for entry in self._earlier_entries(plan):
            with suppress(HubbubError):  # an error that takes more than is known may not be had
                earlier = plan_until(until=entry)
                if self._has_charge(earlier):
                    return earlier
        return plan

    def _earlier_entries(self, plan: AnyPlan) -> list[int]:
        """The entries of the ledger up to which the plan would have other limits; 0 stands for none of them.

        The list is empty if the plan itself was charged: it has its answer.
        """
        parts = plan.parts if isinstance(plan, CompositePlan) else [plan]
        finding = [part for part in parts if part.bounded.finds_limits]
        if not self.has_ledger or not finding or self._has_charge(plan):
            return []
        histograms = [
            each
            for part in finding
            for kind, conditions in part.conditions.items()
            for each in self._known.find(kind, conditions)
        ]
        return [0, *sorted({each.since for each in histograms} - {0})[:-1]] if histograms else []

    def _has_charge(self, plan: AnyPlan) -> bool:
        """True if this very question was charged on these rows, and its answer may be read here.

        One that only other analysts asked looks like one that nobody asked.
        """
        assert isinstance(self.account, LedgerAccount)
        number = self.account.find_charge(digest([fingerprint_plan(plan, self._origin), self.version]))
        if number is None:
            return False
        try:
            self.account.entry(number)
        except HubbubError:
            return False
        return True

    def _read_histograms(self, account: LedgerAccount) -> None:
        """Remember the histograms that are stored in the ledger's releases."""
        for entry in account.entries(self._last_read):
            self._last_read = entry.number
            number = entry.body.get("charge")
            if entry.kind not in {EntryKind.RELEASE, EntryKind.VIEW} or not isinstance(number, int):
                continue
            # A release that another analyst has paid for, or with another key, is not ours to read.
            with suppress(HubbubError, ValueError, KeyError, TypeError):
                stored = account.get_release(number) or ""
                if '"histograms"' in stored:
                    self._known.add(json.loads(stored)["label"], number, entry.number)

    def limits(
        self,
        *,
        epsilon: Number,
        by: str | Sequence[str | Sequence[str]] = (),
        table: str | None = None,
        keys: Mapping[str, Iterable[Any]] | None = None,
        allow_large_epsilon: bool = False,
        progress: Callable[[str], None] = lambda _: None,
    ) -> Release:
        """Measure once how many rows and groups units have: later queries read their limits from it.

        The released table states a limit for each, as a single count with ε = 1 would choose it; each later
        query chooses its own, or searches where its ε is so large that it sees more. If limits are measured
        again, the histogram with the least noise is used. With a ledger all are kept, otherwise for this
        dataset object. An analyst who asks for the same limits as the owner pays from her own budget, and
        the account nothing.

        Args:
            epsilon: The privacy cost of all histograms together.
            by: Group keys by which groups per unit are measured: names of columns, or lists of names.
            table: The table; the first protected one if omitted.
            keys: Public group keys of columns, as in the later queries.
            allow_large_epsilon: Confirms an ε above `hubbub.accounting.budget.LARGE_EPSILON`.
            progress: Called with the name of each step.

        Guarantee: it costs no unit more than ε.
        Proof: docs/proofs/bounding.md, "The limit on rows"
        """
        check_mappings(keys=keys)
        price = parse_positive(epsilon, "epsilon")
        refuse_large_epsilon(price, allow=allow_large_epsilon)
        if self.unit.key is None:
            raise InvalidInput(
                "limits are requested where each row is a unit",
                why="a unit has one row, in one group",
                fix="leave it out",
            )
        name = table or next(each.name for each in self.tables.values() if not each.is_public)
        questions = []
        unused = dict(keys or {})
        for names in parse_key_lists(by):
            listed = ", ".join(map(_quote, names))
            text = f"SELECT {listed}, COUNT(*) AS n FROM {_quote(name)} GROUP BY {listed}"  # noqa: S608 - names are quoted
            own = {each: values for each, values in (keys or {}).items() if each in names}
            unused = {each: values for each, values in unused.items() if each not in own}
            questions.append((f"groups per unit by {listed}", "groups", text, own))
        rows = f"SELECT COUNT(*) AS n FROM {_quote(name)}"  # noqa: S608 - as above
        # It has no groups: keys that are of none are refused there.
        questions.insert(0, ("rows per unit", "rows", rows, unused))
        queries = [(title, kind, self._analyze(text, keys=own)) for title, kind, text, own in questions]
        loss = PrivacyLoss.pure(price)
        place = [self._origin, self.version]
        measured = [
            (
                title,
                kind,
                query,
                histogram_conditions(query, self.unit, place)[kind].own[0],
                price / len(queries),
            )
            for title, kind, query in queries
        ]
        what = f"limits of {name}: {', '.join(title for title, _, _ in queries)}"
        fields: dict[str, Any] = {"what": what, "loss": loss, "unit": self.unit, "dataset": name}

        def run() -> Result:
            with self._engine.snapshot():
                return measure_limits(self._engine, self.unit, measured, pass_through_errors(progress))

        if isinstance(self.account, LedgerAccount):
            question = digest(["limits/1", ROW_BINS, [each[3] for each in measured], str(price)])
            charge, stored = charge_and_run(
                self.account,
                lambda _: run().to_json(),
                progress,
                **fields,
                key=question,
                fingerprint=question,
            )
            released = Result.from_json(stored)
            answers = replace(released, facts={**released.facts, **self._entry_facts(self.account, charge)})
        else:
            self.account.charge(what, loss, unit=self.unit)
            answers = capture_outcome(run).get()
            self._known.add(answers.facts)
        noise = Laplace.of(sensitivity=1, epsilon=price, allow_large_epsilon=True)
        return Release(
            answers, loss, noise, self.unit, user_asserted=False, coordinates=max(1, len(answers)),
            post_processed=True,
        )  # fmt: skip

    def is_answered(self, plan: AnyPlan) -> bool:
        """Return whether the ledger has the answer to this query, so that it costs nothing more."""
        if not isinstance(self.account, LedgerAccount):
            return False
        key = digest([fingerprint_plan(plan, self._origin), self.version])
        number = self.account.find_charge(key)
        try:
            return number is not None and self.account.get_release(number) is not None
        except HubbubError:
            return False  # another analyst's: asking it costs something

    def count_more(self, plan: AnyPlan) -> int | None:
        """About how many more queries like this one the budget allows; None without a budget."""
        count = getattr(self.account, "count_more", None)
        return None if count is None else count(plan.loss)

    def run(
        self,
        plan: AnyPlan,
        progress: Callable[[str], None] = lambda _: None,
        *,
        again: bool = False,
        host: Callable[[Charge, Callable[[Engine], str]], str] | None = None,
    ) -> Release[Result]:
        """Charge, then run, then release. With a ledger, a query that was answered has the same answer.

        An error of the run is an outcome, too: with a ledger it is raised whenever the query is asked again.
        Without a ledger each run is charged anew.

        Args:
            plan: a plan of this dataset.
            progress: called with a few words as each step begins.
            again: charge anew and run a query that failed: the engine was gone, somebody interrupted it.
            host: computes the outcome of a new charge of a ledger on an engine of its own, which holds the
                same rows, and decides when it is stored.

        Guarantee: the charge stands before the engine sees the query, and with a ledger the outcome before
            anybody sees it; nothing is given back.
        Proof: docs/proofs/ledger.md, "One outcome per charge"
        """
        self._check_plan(plan, self.run)
        if isinstance(self.account, LedgerAccount):
            answers = self._run_with_ledger(self.account, plan, progress, host, again=again)
        else:
            self.account.charge(plan.query.text, plan.loss, unit=self.unit)
            done = capture_outcome(lambda: _execute(plan, self._engine, pass_through_errors(progress)))
            answers = self._finish(plan, done.get())
        return Release(
            answers, plan.loss, plan, self.unit, user_asserted=False, coordinates=max(1, len(answers)),
            post_processed=True,
        )  # fmt: skip

    def stream(self, plan: AnyPlan, progress: Callable[[str], None] = lambda _: None) -> Release[Stream]:
        """Run a query with a result too large for memory: `release.value` yields it in pieces.

        It is for public keys, of which there may be ten million. The result is not stored in a ledger: asking
        again is charged again. `release.value.write("counts.parquet")` writes it.

        Guarantee: the charge stands before the engine sees the query; nothing is given back.
        Proof: docs/proofs/bounding.md, "A plan"
        """
        self._check_plan(plan, self.run)
        plan = check_streamable(plan)
        charged = {}
        if isinstance(self.account, LedgerAccount):
            charged = self._entry_facts(self.account, self.account.record_charge(**self._charge_fields(plan)))
        else:
            self.account.charge(plan.query.text, plan.loss, unit=self.unit)

        def run() -> Stream:
            with self._engine.snapshot():
                return execute_stream(plan, self._engine, pass_through_errors(progress), charged)

        stream = capture_outcome(run).get()
        entry = stream.facts.get("entry")
        self._known.add(stream.facts, entry, entry or 0)
        return Release(
            stream, plan.loss, plan, self.unit, user_asserted=False, coordinates=plan.query.cells,
            post_processed=True,
        )  # fmt: skip

    def _finish(self, plan: AnyPlan, tables: Sequence[Result]) -> Result:
        """The result, computed from what was released."""
        parts = plan.parts if isinstance(plan, CompositePlan) else (plan,)
        labelled = []
        for part, table in zip(parts, tables, strict=True):
            if not self.has_ledger:  # else they are read from it when the next query is planned
                self._known.add(table.facts)
            is_exact = "EXACT" in table.facts
            facts = table.facts if is_exact else with_estimated_cuts(table.facts, part)
            labelled.append(replace(table, facts=facts))
        return plan.evaluate(labelled) if isinstance(plan, CompositePlan) else labelled[0]

    def _run_with_ledger(
        self, account: LedgerAccount, plan: AnyPlan, progress: Any, host: Any, *, again: bool
    ) -> Result:
        """Return the one result of this query on this version, stored before anybody sees it."""

        def compute(engine: Engine) -> str:
            return store_tables(plan, _execute(plan, engine, pass_through_errors(progress)))

        question = fingerprint_plan(plan, self._origin)
        key = digest([question, self.version])
        charge, stored = charge_and_run(
            account,
            lambda charge: compute(self._engine) if host is None else host(charge, compute),
            progress,
            again=again,
            **self._charge_fields(plan),
            key=key,
            fingerprint=question,
        )
        answers = self._finish(plan, load_tables(plan, stored))
        return replace(answers, facts={**answers.facts, **self._entry_facts(account, charge)})

    def _charge_fields(self, plan: AnyPlan) -> dict[str, Any]:
        """The fields of a ledger entry: what is charged, and for which unit."""
        name = ", ".join(table.name for table in self.tables.values() if not table.is_public)
        return {
            "what": plan.query.text,
            "loss": plan.loss,
            "unit": self.unit,
            "dataset": name,
            "plan": ledger_facts(plan),
        }

    def _entry_facts(self, account: LedgerAccount, charge: Charge) -> dict[str, Any]:
        """The fields of a label on its ledger entry and on all windows."""
        when = {"as of": charge.timestamp, "version": self.version, "asked before": not charge.is_new}
        lifetime = {} if self.unit.window is None else {"lifetime": account.lifetime_loss().describe()}
        return {"entry": charge.number, **when, **lifetime}

    def exact(self, plan: AnyPlan) -> Result:
        """Return the bounded query's exact answers, for the owner only. Never to be published.

        This non-private access is recorded in the account before anything is read, and marked in the result.
        """
        self._check_plan(plan, self.run)
        self.account.record_nonprivate_access(plan.query.text)
        label = {"EXACT": "not private, for the owner's eyes only"}
        with self._engine.snapshot():
            tables = execute_plan(plan, self._engine, lambda _: None, is_exact=True)
        return self._finish(plan, [replace(table, facts=label) for table in tables])

    def table(self, name: str | None = None) -> QueryBuilder:
        """Start a query on this table, or on the first protected one."""
        chosen = name or next(table.name for table in self.tables.values() if not table.is_public)
        return QueryBuilder(self.sql, chosen)

    def where(self, condition: str) -> QueryBuilder:
        """Start a query on the rows that satisfy a condition."""
        return self.table().where(condition)

    def group_by(self, *keys: str, **values: Iterable[Any]) -> QueryBuilder:
        """Start a query by groups; `region=["North", "South"]` names a column with its public keys."""
        return self.table().group_by(*keys, **values)

    def close(self) -> None:
        """Close the engine, and the ledger if `open` opened it."""
        self._engine.close()
        if self._ledger is not None:
            self._ledger.close()

    def __reduce__(self) -> NoReturn:
        refuse_copy("a dataset", "open it where it is needed, with a ledger if other processes use it, too")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return escape(f"Dataset({', '.join(self.tables)}; {self.unit})")


def _execute(plan: AnyPlan, engine: Engine, progress: Callable[[str], None]) -> list[Result]:
    with engine.snapshot():
        return execute_plan(plan, engine, progress)


def _quote(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _first(*values: Any) -> Any:
    return next((value for value in values if value is not None), None)


def make_dataset(sources: OpenedSources, analyst: str | None = None) -> Dataset:
    """Return a dataset of opened sources, which may be asked on behalf of an analyst."""
    account = sources.account
    if analyst is not None and isinstance(account, LedgerAccount):
        account = account.for_analyst(analyst)
    return Dataset(
        sources.engine,
        sources.unit,
        account,
        population=sources.population,
        contribution_bounds=ContributionBounds(
            sources.arguments.rows_per_unit, sources.arguments.groups_per_unit
        ),
        max_rows_per_unit=sources.arguments.max_rows_per_unit,
        origin=sources.origin,
        version=sources.version,
        ledger=sources.ledger,
        synopses=sources.synopses,
    )
