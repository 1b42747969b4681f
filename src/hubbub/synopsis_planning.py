"""Synopses of a dataset: plan one, charge it, measure it."""

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any, TypeVar, Unpack

from hubbub.accounting.in_memory_account import InMemoryAccount
from hubbub.engines.engine import Engine
from hubbub.engines.schema import Table, imply_kinds
from hubbub.errors import InvalidInput
from hubbub.ledger import LedgerAccount
from hubbub.ledger.entries import digest
from hubbub.ledger.stored_outcomes import capture_outcome, charge_and_run, pass_through_errors
from hubbub.numbers import Number
from hubbub.release import Release
from hubbub.sql.composite_plan import AnyPlan
from hubbub.sql.plan import Plan
from hubbub.sql.query import ContributionBounds
from hubbub.synthesis.category_selection import (
    CategorySelection,
    check_selection,
    parse_share,
    placeholder_keys,
)
from hubbub.synthesis.declarations import Declared, SynopsisDeclarations, make_domain, with_public_bins
from hubbub.synthesis.synopsis import Synopsis
from hubbub.synthesis.synopsis_plan import (
    SynopsisPlan,
    check_limit,
    make_counts,
    make_synopsis_plan,
    parse_price,
)
from hubbub.synthesis.synthesis import Synthesis, SynthesisPlan
from hubbub.synthesis.workload import Objective
from hubbub.unit import Unit

__all__ = ["SynopsisPlanning"]

_Planned = TypeVar("_Planned", SynopsisPlan, SynthesisPlan)
_OF_PLANS = {"table", "rows_per_unit", "allow_large_epsilon"}
"""Arguments that are passed with declarations, but are not declarations."""


class SynopsisPlanning:
    """Abstract: the part of `Dataset` that is about synopses."""

    unit: Unit
    account: InMemoryAccount | LedgerAccount
    version: str
    _engine: Engine
    _population: int | None
    _bounds: ContributionBounds
    _cap: int | None
    _origin: Any
    _synopses: Mapping[str, Mapping[str, Any]]

    @property
    def tables(self) -> Mapping[str, Table]:
        """The public schema of its tables."""
        return self._engine.tables

    @abstractmethod
    def sql(
        self,
        text: str,
        *,
        epsilon: Number | None = None,
        delta: Number | None = None,
        groups_per_unit: int | None = None,
        allow_large_epsilon: bool = False,
    ) -> AnyPlan:
        """Plan a query."""

    def plan_synopsis(
        self,
        workload: int | Iterable[Sequence[str]] | Mapping[Sequence[str], Number] | None = None,
        *,
        epsilon: Number,
        delta: Number,
        ranges: Mapping[str, Number] | None = None,
        objective: Objective = "tables",
        **declared: Unpack[Declared],
    ) -> SynopsisPlan:
        """Plan a synopsis: tables measured once, that later answer questions for free. Nothing is read.

        Columns with declared keys have these categories, numbers with declared bounds have bins. What a
        hubbub.toml declares need not be passed; what is passed wins. Without cuts, a column of at most 128
        values has a bin for each, any other 32 bins of equal width.

        Args:
            workload: All tables of at most this many columns; or a list of tables, such as
                [("age", "sex"), ("region",)], or a mapping from tables to weights. If omitted, all tables of
                at most three columns where columns and cells are few, otherwise of at most two.
            epsilon: The privacy cost of the whole synopsis.
            delta: The additive slack δ; 0 for Laplace noise.
            ranges: Columns with range queries and quantiles, and the step of their grid: {"cost": 10}. A
                quarter of the budget is for these.
            objective: What is made least: the mean variance of "tables" or of "cells", or that of the
                "worst" table.
            declared: `columns`, `cuts`, `steps`, `nulls`, `other`, `functions`, `impossible`, `focus`,
                `bounds`, `keys`, `private_keys`, `private_keys_share`, `rows_per_unit`, `table`,
                `allow_large_epsilon`: see `hubbub.synthesis.declarations.Declared`.

        Guarantee: running the plan costs no unit more than (ε, δ).
        Assumes: all that is declared is public: chosen without looking at the rows.
        Proof: docs/proofs/synopsis.md
        """

        def plan_tables(
            schema: Table, public: SynopsisDeclarations, price: Fraction, allowed: Fraction, limit: int
        ) -> SynopsisPlan:
            domain = with_public_bins(make_domain(schema, public))
            return make_synopsis_plan(
                self._engine,
                schema,
                domain,
                self.unit,
                workload=workload,
                epsilon=price,
                delta=allowed,
                objective=objective,
                max_weight=limit,
                ranges={domain.ordered([name])[0]: step for name, step in (ranges or {}).items()},
                runner=self.run_synopsis,
            )

        return self._plan(plan_tables, epsilon, delta, declared, pure=True)

    def plan_synthesis(
        self, *, epsilon: Number, delta: Number, **declared: Unpack[Declared]
    ) -> SynthesisPlan:
        """Plan a measurement for synthetic rows: tables are selected privately and fitted. Nothing is read.

        Numbers without cuts have bins that are found privately, at a part of the price.

        Args:
            epsilon: The privacy cost of all steps together.
            delta: The additive slack δ.
            declared: As in `plan_synopsis`.

        Guarantee: running the plan costs no unit more than (ε, δ).
        Assumes: all that is declared is public: chosen without looking at the rows.
        Proof: docs/proofs/synthesis.md
        """

        def plan_steps(
            schema: Table, public: SynopsisDeclarations, price: Fraction, allowed: Fraction, limit: int
        ) -> SynthesisPlan:
            domain = make_domain(schema, public)
            counts = make_counts(self._engine, schema, domain, self.unit, max_weight=limit)
            plan = SynthesisPlan(schema.name, counts, price, allowed, self.run_synthesis)
            plan.check()
            return plan

        return self._plan(plan_steps, epsilon, delta, declared, pure=False)

    def _plan(
        self,
        make: Callable[[Table, SynopsisDeclarations, Fraction, Fraction, int], _Planned],
        epsilon: Number,
        delta: Number,
        declared: Declared,
        *,
        pure: bool,
    ) -> _Planned:
        """A plan from what is declared, with a selection of categories before it, if some are not.

        Guarantee: its loss is (ε, δ)-private at most: that of the selections and that of the rest, composed.
        Proof: docs/proofs/synopsis.md, "Categories that are selected"
        """
        unknown = set(declared) - set(Declared.__annotations__)
        if unknown:
            raise TypeError(f"there is no parameter {min(unknown)!r}")
        schema: Table
        public: SynopsisDeclarations
        schema, public = self._declare(declared)
        allow_large = bool(declared.get("allow_large_epsilon"))
        price, allowed = parse_price(epsilon, delta, self._population, allow_large=allow_large, pure=pure)
        limit = check_limit(self.unit, self._limit_rows(declared.get("rows_per_unit")))
        columns = list({schema.find(name).name: schema.find(name) for name in public.private_keys}.values())
        if not columns:
            return make(schema, public, price, allowed, limit)
        public = replace(public, private_keys=tuple(column.name for column in columns))
        check_selection(public, columns, allowed)
        share = parse_share(public.private_keys_share)
        own_price, own_delta = share * price, share * allowed

        def make_rest(keys: Mapping[str, Sequence[Any]]) -> _Planned:
            other = tuple({*public.other, *keys})
            complete = replace(public, keys={**public.keys, **keys}, other=other)
            return make(schema, complete, price - own_price, allowed - own_delta, limit)

        queries = {}
        for column in columns:
            name, table = ('"' + each.replace('"', '""') + '"' for each in (column.name, schema.name))
            query = self.sql(
                f"SELECT {name} FROM {table} GROUP BY {name}",  # noqa: S608 - names are quoted
                epsilon=own_price / len(columns),
                delta=own_delta / len(columns),
                groups_per_unit=limit,
                allow_large_epsilon=True,
            )
            assert isinstance(query, Plan)
            queries[column.name] = query
        selection = CategorySelection(queries, own_price, own_delta)
        largest = make_rest({column.name: placeholder_keys(column) for column in columns})
        return replace(largest, epsilon=price, delta=allowed, selection=selection, make_rest=make_rest)

    def _declare(self, declared: Declared) -> tuple[Table, SynopsisDeclarations]:
        """The table, and what is declared for synopses of it; what is passed wins."""
        name = declared.get("table") or next(each.name for each in self.tables.values() if not each.is_public)
        schema = next((each for each in self.tables.values() if each.name.lower() == name.lower()), None)
        if schema is None or schema.is_public:
            raise InvalidInput(
                f"{name} is not a protected table of this dataset",
                why="a synopsis measures the rows of one protected table",
                fix="name one, or leave it out",
            )
        passed = {key: value for key, value in declared.items() if value is not None and key not in _OF_PLANS}
        public = SynopsisDeclarations.of({**self._synopses.get(schema.name, {}), **passed})
        return imply_kinds({schema.name: schema}, public.implied_bounds())[schema.name], public

    def _limit_rows(self, rows_per_unit: int | None) -> int | None:
        """The limit that was passed, or the declared one."""
        limits = (rows_per_unit, self._bounds.rows, self._cap)
        return next((each for each in limits if each is not None), None)

    def run_synthesis(
        self, plan: SynthesisPlan, progress: Callable[[str], None] = lambda _: None, *, again: bool = False
    ) -> Release[Synthesis]:
        """Charge a planned synthesis, then measure it. With a ledger, it is measured once, and stored.

        Guarantee: as `run_synopsis`.
        Proof: docs/proofs/ledger.md, "One outcome per charge"
        """

        def measure(report: Callable[[str], None]) -> str:
            rest, more = self._select_categories(plan, report)
            return rest.execute(report, more)

        stored, facts = self._charge_and_measure(plan, measure, self.run_synthesis, progress, again=again)
        synthesis = Synthesis.from_json(stored).with_facts(**facts)
        return Release(
            synthesis, plan.loss, plan, self.unit, user_asserted=False, coordinates=1, post_processed=True
        )

    def run_synopsis(
        self, plan: SynopsisPlan, progress: Callable[[str], None] = lambda _: None, *, again: bool = False
    ) -> Release[Synopsis]:
        """Charge a planned synopsis, then measure it. With a ledger, it is measured once, and stored.

        Guarantee: the charge stands before the engine sees the query, and with a ledger the outcome before
            anybody sees it; nothing is given back.
        Proof: docs/proofs/ledger.md, "One outcome per charge"
        """

        def measure(report: Callable[[str], None]) -> str:
            rest, more = self._select_categories(plan, report)
            measured, ranges = rest.execute(report)
            label = {**rest.label(), **more}
            return Synopsis(rest.table, measured, label, rest.workload.tables, ranges).to_json()

        stored, facts = self._charge_and_measure(plan, measure, self.run_synopsis, progress, again=again)
        synopsis = Synopsis.from_json(stored).with_facts(**facts)
        cells = sum(plan.domain.cells(names) for names in plan.workload.tables)
        return Release(
            synopsis, plan.loss, plan, self.unit, user_asserted=False, coordinates=cells, post_processed=True
        )

    def _select_categories(
        self, plan: _Planned, progress: Callable[[str], None]
    ) -> tuple[_Planned, dict[str, Any]]:
        """The plan with the categories that were selected, and what the label says of them."""
        if plan.selection is None:
            return plan, {}
        keys = plan.selection.select(self._engine, progress)
        # Fewer categories than the plan was made and checked for: nothing of it can be refused now.
        assert plan.make_rest is not None
        rest: _Planned = plan.make_rest(keys)
        sizes = {name: len(values) for name, values in keys.items()}
        facts = {
            "epsilon": str(plan.epsilon),
            "delta": str(plan.delta),
            "private keys": {**plan.selection.label(), "selected": sizes},
        }
        return rest, facts

    def _check_plan(self, plan: Any, runner: Callable[..., Any]) -> None:
        if plan.unit != self.unit or plan.runner != runner:
            raise InvalidInput(
                "the plan was made for another unit, or by another dataset",
                why="its noise would protect another unit, or too little",
                fix="plan it again with this dataset",
            )
        self._engine.check_unchanged()

    def _charge_and_measure(
        self,
        plan: SynopsisPlan | SynthesisPlan,
        measure: Callable[[Callable[[str], None]], str],
        runner: Callable[..., Any],
        progress: Callable[[str], None],
        *,
        again: bool,
    ) -> tuple[str, dict[str, Any]]:
        """The stored text of the one outcome of a charge, and what a label says of the charge."""
        self._check_plan(plan, runner)

        def run() -> str:
            with self._engine.snapshot():
                return measure(pass_through_errors(progress))

        if not isinstance(self.account, LedgerAccount):
            self.account.charge(plan.text, plan.loss, unit=self.unit)
            return capture_outcome(run).get(), {}
        question = plan.fingerprint(self._origin)
        charge, stored = charge_and_run(
            self.account,
            lambda _: run(),
            progress,
            again=again,
            what=plan.text,
            loss=plan.loss,
            unit=self.unit,
            dataset=plan.table,
            key=digest([question, self.version]),
            fingerprint=question,
        )
        return stored, {"entry": charge.number, "as of": charge.timestamp, "version": self.version}
