"""What a dataset does for synopses: plan one, charge it, measure it."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from hubbub.accounting.in_memory_account import InMemoryAccount
from hubbub.engines.engine import Engine
from hubbub.engines.schema import Table
from hubbub.errors import InvalidInput
from hubbub.ledger import LedgerAccount
from hubbub.ledger.entries import digest
from hubbub.ledger.stored_outcomes import capture_outcome, charge_and_run, pass_through_errors
from hubbub.numbers import Number
from hubbub.release import Release
from hubbub.sql.query import ContributionBounds
from hubbub.synthesis.declarations import SynopsisDeclarations, make_domain, with_public_bins
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

    def plan_synopsis(
        self,
        workload: int | Iterable[Sequence[str]] | Mapping[Sequence[str], Number] | None = None,
        *,
        epsilon: Number,
        delta: Number,
        focus: str | None = None,
        columns: Sequence[str] | None = None,
        cuts: Mapping[str, Sequence[Any]] | None = None,
        steps: Mapping[str, Number] | None = None,
        nulls: Sequence[str] | None = None,
        other: Sequence[str] | None = None,
        functions: Mapping[str, Mapping[str, Any]] | None = None,
        impossible: Sequence[str] | None = None,
        bounds: Mapping[str, Any] | None = None,
        keys: Mapping[str, Iterable[Any]] | None = None,
        ranges: Mapping[str, Number] | None = None,
        objective: Objective = "tables",
        rows_per_unit: int | None = None,
        table: str | None = None,
        allow_large_epsilon: bool = False,
    ) -> SynopsisPlan:
        """Plan a synopsis: tables measured once, that later answer questions for free. Nothing is read.

        Columns with declared keys have these categories, numbers with declared bounds have bins. What a
        hubbub.toml declares need not be passed; what is passed wins.

        Args:
            workload: All tables of at most this many columns; or a list of tables, such as
                [("age", "sex"), ("region",)], or a mapping from tables to weights. If omitted, all tables of
                at most three columns where columns and cells are few, otherwise of at most two.
            epsilon: The privacy cost of the whole synopsis.
            delta: The additive slack δ.
            focus: The column that people will group by.
            columns: The columns to use; all that are declared if omitted.
            cuts: Where bins begin, by column. Without cuts, a column of at most 128 values has a bin for
                each, any other 32 bins of equal width. Dates need cuts, from their first to their last day.
            steps: Columns with values that are multiples of a step: {"age": 1}.
            nulls: Columns with a cell for NULL; elsewhere rows with NULL are left out.
            other: Columns with a cell for all categories that are not declared; elsewhere such rows are left
                out.
            functions: Columns that are public functions of another one:
                {"cat": {"of": "code", "table": {"a1": "a"}}}.
            impossible: Conditions that no row satisfies: ["age < 15 AND marital = 'married'"].
            bounds: Public bounds of numbers: {"age": (0, 99)}.
            keys: Public categories of columns: {"sex": ["f", "m"]}.
            ranges: Columns with range queries and quantiles, and the step of their grid: {"cost": 10}. A
                quarter of the budget is for these.
            objective: What is made least: the mean variance of "tables" or of "cells", or that of the
                "worst" table.
            rows_per_unit: The maximum number of rows per privacy unit that count.
            table: The table; the first protected one if omitted.
            allow_large_epsilon: Confirms a large ε, as for `Budget`.

        Guarantee: running the plan costs no unit more than (ε, δ).
        Assumes: all that is declared is public: chosen without looking at the rows.
        Proof: docs/proofs/synopsis.md
        """
        passed = {
            "columns": columns, "cuts": cuts, "steps": steps, "nulls": nulls, "other": other,
            "functions": functions, "impossible": impossible, "focus": focus, "bounds": bounds, "keys": keys,
        }  # fmt: skip
        schema, declared = self._declare(table, passed)
        domain = with_public_bins(make_domain(schema, declared))
        return make_synopsis_plan(
            self._engine,
            schema.name,
            domain,
            self.unit,
            workload=workload,
            epsilon=epsilon,
            delta=delta,
            objective=objective,
            max_weight=self._limit_rows(rows_per_unit),
            population=self._population,
            allow_large_epsilon=allow_large_epsilon,
            ranges={domain.ordered([name])[0]: step for name, step in (ranges or {}).items()},
            runner=self.run_synopsis,
        )

    def _declare(self, table: str | None, passed: Mapping[str, Any]) -> tuple[Table, SynopsisDeclarations]:
        """The table, and what is declared for synopses of it; what is passed wins."""
        name = table or next(each.name for each in self.tables.values() if not each.is_public)
        schema = next((each for each in self.tables.values() if each.name.lower() == name.lower()), None)
        if schema is None or schema.is_public:
            raise InvalidInput(
                f"{name} is not a protected table of this dataset",
                why="a synopsis measures the rows of one protected table",
                fix="name one, or leave it out",
            )
        explicit = {key: value for key, value in passed.items() if value is not None}
        return schema, SynopsisDeclarations.of({**self._synopses.get(schema.name, {}), **explicit})

    def _limit_rows(self, rows_per_unit: int | None) -> int | None:
        """The limit that was passed, or the declared one."""
        limits = (rows_per_unit, self._bounds.rows, self._cap)
        return next((each for each in limits if each is not None), None)

    def plan_synthesis(
        self,
        *,
        epsilon: Number,
        delta: Number,
        focus: str | None = None,
        columns: Sequence[str] | None = None,
        cuts: Mapping[str, Sequence[Any]] | None = None,
        steps: Mapping[str, Number] | None = None,
        nulls: Sequence[str] | None = None,
        other: Sequence[str] | None = None,
        functions: Mapping[str, Mapping[str, Any]] | None = None,
        impossible: Sequence[str] | None = None,
        bounds: Mapping[str, Any] | None = None,
        keys: Mapping[str, Iterable[Any]] | None = None,
        rows_per_unit: int | None = None,
        table: str | None = None,
        allow_large_epsilon: bool = False,
    ) -> SynthesisPlan:
        """Plan a measurement for synthetic rows: tables are selected privately and fitted. Nothing is read.

        Numbers without cuts have bins that are found privately, at a part of the price.

        Args:
            epsilon: The privacy cost of all steps together.
            delta: The additive slack δ.
            focus: The column that people will group by: it is measured with every other one.
            columns: The columns to use; all that are declared if omitted.
            cuts: As in `plan_synopsis`; without cuts, bins are found privately.
            steps: As in `plan_synopsis`.
            nulls: As in `plan_synopsis`.
            other: As in `plan_synopsis`.
            functions: As in `plan_synopsis`.
            impossible: As in `plan_synopsis`; no synthetic row satisfies one of them.
            bounds: As in `plan_synopsis`.
            keys: As in `plan_synopsis`.
            rows_per_unit: The maximum number of rows per privacy unit that count.
            table: The table; the first protected one if omitted.
            allow_large_epsilon: Confirms a large ε, as for `Budget`.

        Guarantee: running the plan costs no unit more than (ε, δ).
        Assumes: all that is declared is public: chosen without looking at the rows.
        Proof: docs/proofs/synthesis.md
        """
        passed = {
            "columns": columns, "cuts": cuts, "steps": steps, "nulls": nulls, "other": other,
            "functions": functions, "impossible": impossible, "focus": focus, "bounds": bounds, "keys": keys,
        }  # fmt: skip
        schema, declared = self._declare(table, passed)
        price, allowed = parse_price(epsilon, delta, self._population, allow_large=allow_large_epsilon)
        limit = check_limit(self.unit, self._limit_rows(rows_per_unit))
        counts = make_counts(
            self._engine, schema.name, make_domain(schema, declared), self.unit, max_weight=limit
        )
        plan = SynthesisPlan(schema.name, counts, price, allowed, None, self.run_synthesis)
        plan.check()
        return plan

    def run_synthesis(
        self, plan: SynthesisPlan, progress: Callable[[str], None] = lambda _: None, *, again: bool = False
    ) -> Release[Synthesis]:
        """Charge a planned synthesis, then measure it. With a ledger, it is measured once, and stored.

        Guarantee: as `run_synopsis`.
        Proof: docs/proofs/ledger.md, "One outcome per charge"
        """
        stored, facts = self._charge_and_measure(
            plan, plan.execute, self.run_synthesis, progress, again=again
        )
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
            measured, ranges = plan.execute(report)
            return Synopsis(plan.table, measured, plan.label(), plan.workload.tables, ranges).to_json()

        stored, facts = self._charge_and_measure(plan, measure, self.run_synopsis, progress, again=again)
        synopsis = Synopsis.from_json(stored).with_facts(**facts)
        cells = sum(plan.domain.cells(names) for names in plan.workload.tables)
        return Release(
            synopsis, plan.loss, plan, self.unit, user_asserted=False, coordinates=cells, post_processed=True
        )

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
