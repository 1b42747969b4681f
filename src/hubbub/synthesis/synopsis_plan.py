"""The plan of a synopsis: which tables are measured, with what error and at what cost. It reads no row.

Proof: docs/proofs/synopsis.md
"""

import html
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

from hubbub.accounting import PrivacyLoss, refuse_large_delta, refuse_large_epsilon
from hubbub.accounting.codec import canonical_json
from hubbub.engines.engine import Engine
from hubbub.engines.schema import Table
from hubbub.errors import InvalidInput
from hubbub.escaping import escape
from hubbub.ledger.entries import digest
from hubbub.numbers import Number, format_nearest, parse_integer, parse_nonnegative, parse_positive
from hubbub.sql.analyzer import analyze, parse
from hubbub.synthesis.category_selection import CategorySelection
from hubbub.synthesis.domain import Domain
from hubbub.synthesis.domain_storage import encode_domain
from hubbub.synthesis.engine_counts import EngineCounts
from hubbub.synthesis.laplace_tables import LaplacePlan, laplace_deviations, plan_laplace, pool_tables
from hubbub.synthesis.measured_tables import MeasuredTables, normal_quantile
from hubbub.synthesis.prefix_sums import MeasuredRange, PrefixNoise, range_column
from hubbub.synthesis.range_tree import TreeNoise
from hubbub.synthesis.release_budget import ReleaseBudget, floor_sqrt
from hubbub.synthesis.workload import Names, NoisePlan, Objective, Workload, check_objective, plan_noise
from hubbub.unit import Unit

if TYPE_CHECKING:
    from hubbub.release import Release
    from hubbub.synthesis.synopsis import Synopsis

__all__ = [
    "SynopsisPlan",
    "check_limit",
    "make_counts",
    "make_synopsis_plan",
    "note_rows_left_out",
    "parse_price",
]

_KIND = "synopsis/1"
_RANGE_SHARE = Fraction(1, 4)
"""The share of μ² for ranges, if there are any; of ε, where δ is 0."""
_MOST_LINES = 12


@dataclass(frozen=True)
class SynopsisPlan:
    """What a synopsis measures, what it costs and how large the errors will be.

    Guarantee: `run` costs no unit more than `loss`.
    Proof: docs/proofs/synopsis.md, "The whole release"
    """

    table: str
    noise: NoisePlan | LaplacePlan
    epsilon: Fraction
    delta: Fraction
    counts: EngineCounts
    runner: Callable[["SynopsisPlan"], "Release[Synopsis]"]
    ranges: tuple[PrefixNoise | TreeNoise, ...] = ()
    """The noise of the columns with ranges."""
    selection: CategorySelection | None = None
    """The categories that are selected first; the domain then stands for as many as there may be."""
    make_rest: Callable[[Mapping[str, Any]], Any] | None = None
    """From selected categories to the plan of the rest."""

    error_kind: ClassVar[str] = "none"

    @property
    def domain(self) -> Domain:
        """The columns and their cells."""
        return self.noise.workload.domain

    @property
    def unit(self) -> Unit:
        """The protected unit."""
        return self.noise.unit

    @property
    def workload(self) -> Workload:
        """The tables."""
        return self.noise.workload

    @cached_property
    def loss(self) -> PrivacyLoss:
        """The privacy loss of one unit for the whole synopsis."""
        total = self.noise.figure + sum((each.figure for each in self.ranges), start=Fraction(0))
        if self.is_pure:
            return PrivacyLoss.pure(total)
        own = PrivacyLoss.gaussian_from_mu_squared(total)
        return own if self.selection is None else PrivacyLoss.compose([self.selection.loss, own])

    @property
    def is_pure(self) -> bool:
        """True if δ is 0: all noise is Laplace noise."""
        return isinstance(self.noise, LaplacePlan)

    @property
    def errors(self) -> Mapping[Names, float]:
        """The standard deviation of each cell, by table, in rows."""
        return self.noise.errors

    def error(self, confidence: Number = 0.95, *, coordinates: int = 1) -> float:  # noqa: ARG002 - as of a mechanism
        """The half-width of the interval of a cell, for the table with the largest one."""
        deviations = laplace_deviations if self.is_pure else normal_quantile
        return max(self.errors.values()) * deviations(confidence)

    def label(self) -> dict[str, Any]:
        """What is protected, what is measured and what it costs: public, and free of data."""
        domain = self.domain
        return {
            "query": self.text,
            "unit": self.unit.name,
            "neighbours": self.unit.neighbours.value,
            "epsilon": str(self.epsilon),
            "delta": str(self.delta),
            "mechanism": self.noise.law,
            **({} if self.selection is None else {"private keys": self.selection.label()}),
            "rows per unit": self.noise.max_weight if self.unit.key is not None else None,
            "columns": {column.name: column.size for column in domain.columns},
            "tables": len(self.workload.tables),
            "objective": self.noise.objective,
            "ranges": {each.column.name: each.column.bins for each in self.ranges},
            "notes": self.notes(),
        }

    def notes(self) -> list[str]:
        """What a reader should know."""
        notes = ["intervals hold for tables that were measured, and for sums and ratios of their cells"]
        others = [each.name for each in self.domain.columns if each.has_other]
        if others:
            notes.append(
                f"undeclared categories of {', '.join(others)} are counted, and no group of GROUP BY"
            )
        return notes + note_rows_left_out(self.domain, self.unit, self.noise.max_weight)

    def to_json(self) -> str:
        """The label, for storage."""
        return canonical_json(self.label())

    @property
    def text(self) -> str:
        """The plan in one line, as the ledger shows it."""
        return (
            f"synopsis of {self.table}: {len(self.workload.tables)} tables of {', '.join(self.domain.names)}"
        )

    def fingerprint(self, origin: Any) -> str:
        """A digest of everything that the law of the synopsis depends on, except the rows."""
        noise = self.noise
        shares = [[list(names), str(share)] for names, share in noise.shares.items()]
        weights = [[list(names), str(weight)] for names, weight in self.workload.weights.items()]
        unit = [self.unit.key, self.unit.neighbours.value, str(self.unit.window)]
        ranges = [
            [each.column.name, [str(edge) for edge in each.column.edges], str(each.figure)]
            for each in self.ranges
        ]
        figures = [noise.law, str(noise.figure), noise.max_weight, noise.scale, shares, weights, ranges]
        selection = [] if self.selection is None else self.selection.fingerprints(origin)
        return digest([_KIND, self.table, encode_domain(self.domain), unit, figures, selection, origin])

    def run(self) -> "Release[Synopsis]":
        """Charge, measure and release the synopsis, by the dataset that planned it."""
        return self.runner(self)

    def execute(
        self, progress: Callable[[str], None] = lambda _: None
    ) -> tuple[MeasuredTables, tuple[MeasuredRange, ...]]:
        """Count and measure; called after the charge, and by nobody else.

        Guarantee: what comes out went through the planned noise, and nothing else did.
        Proof: docs/proofs/synopsis.md, "The whole release"
        """
        noise = self.noise
        progress("counting")
        tables = self.counts.count_many(tuple(noise.shares))
        progress("adding noise")
        if isinstance(noise, LaplacePlan):
            whole = {names: noise.noise(names).measure(tables.pop(names)) for names in noise.shares}
            measured = pool_tables(self.domain, whole)
        else:
            residuals = {names: noise.noise(names).measure(tables.pop(names)) for names in noise.shares}
            measured = MeasuredTables(self.domain, residuals)
        ranges = tuple(
            each.measure(self.counts.histogram(each.column.name, each.column.cuts)) for each in self.ranges
        )
        return measured, ranges

    def check(self) -> None:
        """Compute every figure that can be refused, before anything is charged."""
        for names in self.noise.shares:
            _ = self.noise.noise(names).mechanism
        for each in self.ranges:
            _ = each.mechanism
        self.counts.compile()

    def __str__(self) -> str:
        errors = sorted(self.errors.items(), key=lambda each: -each[1])
        cells = sum(self.domain.cells(names) for names in self.errors)
        mean = format_nearest(self.noise.root_mean_square, 3)
        lines = [
            f"Synopsis of {self.table} for {self.unit}: {self.loss}",
            *([] if self.selection is None else [str(self.selection)]),
            f"{len(errors)} tables, {cells} cells; root mean square error {mean}",
            "Standard deviation of a cell, the largest first:",
        ]
        for names, sd in errors[:_MOST_LINES]:
            lines.append(f"  {' × '.join(names)}: {format_nearest(sd, 3)} ({self.domain.cells(names)} cells)")
        if len(errors) > _MOST_LINES:
            lines.append(f"  … and {len(errors) - _MOST_LINES} more")
        for each in self.ranges:
            deviation = format_nearest(each.prefix_deviation, 3)
            lines.append(
                f"Ranges of {each.column.name}, {each.column.bins} bins: {deviation} for a prefix, on average"
            )
        return "\n".join(map(escape, lines))

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(str(self))}</pre>"

    def __repr__(self) -> str:
        return escape(f"SynopsisPlan({self.table}: {len(self.workload.tables)} tables, {self.loss})")


def make_counts(engine: Engine, table: Table, domain: Domain, unit: Unit, *, max_weight: int) -> EngineCounts:
    """Counts of a table's rows in an engine, by the rules that all queries follow.

    Args:
        engine: holds the rows.
        table: the protected table, with its columns as they are read.
        domain: the cells of its columns.
        unit: who is protected.
        max_weight: the maximum number of rows per unit.
    """
    listed = ", ".join('"' + name.replace('"', '""') + '"' for name in domain.names)
    quoted_name = '"' + table.name.replace('"', '""') + '"'
    # The columns are only grouped by: as outputs, their names could clash.
    text = f"SELECT COUNT(*) AS n FROM {quoted_name} GROUP BY {listed}"  # noqa: S608 - names are quoted
    tables = {**engine.tables, table.name: table}
    query = analyze(parse(text)[0], tables, rows_are_units=unit.key is None, text=text)
    return EngineCounts(engine, query, domain, unit, max_weight if unit.key is not None else 1)


def make_synopsis_plan(
    engine: Engine,
    table: Table,
    domain: Domain,
    unit: Unit,
    *,
    workload: Any,
    epsilon: Fraction,
    delta: Fraction,
    objective: Objective,
    max_weight: int,
    ranges: Mapping[str, Number],
    runner: Callable[[SynopsisPlan], "Release[Synopsis]"],
) -> SynopsisPlan:
    """The plan of a synopsis at a price. It refuses all that can be refused, and reads no row.

    Guarantee: its loss is (ε, δ)-private at most.
    Assumes: the domain and the limit on rows were not taken from the rows.
    Proof: docs/proofs/synopsis.md
    """
    domain.check_rules()
    if workload is None:
        tables = Workload.default(domain)
    elif isinstance(workload, (int, float)):
        tables = Workload.all_up_to(domain, workload)
    else:
        tables = Workload.of(domain, workload)
    counts = make_counts(engine, table, domain, unit, max_weight=max_weight)
    check_objective(objective)
    columns = [
        range_column(domain.column(name), parse_positive(step, f"step of {name}"))
        for name, step in ranges.items()
    ]
    share = _RANGE_SHARE if ranges else Fraction(0)
    units = (unit, counts.scale, counts.max_weight)
    if not delta:
        own = epsilon * share
        pure = plan_laplace(
            tables,
            epsilon=epsilon - own,
            unit=unit,
            scale=counts.scale,
            max_weight=counts.max_weight,
            objective=objective,
        )
        trees = tuple(TreeNoise(column, *units, own / len(columns)) for column in columns)
        plan = SynopsisPlan(table.name, pure, epsilon, delta, counts, runner, trees)
    else:
        budget = ReleaseBudget.of(epsilon=epsilon, delta=delta, allow_large_epsilon=True)
        own = budget.mu_squared * share
        noise = plan_noise(
            tables,
            mu_squared=budget.mu_squared - own,
            unit=unit,
            scale=counts.scale,
            max_weight=counts.max_weight,
            objective=objective,
        )
        prefixes = tuple(PrefixNoise(column, *units, floor_sqrt(own / len(columns))) for column in columns)
        plan = SynopsisPlan(table.name, noise, epsilon, delta, counts, runner, prefixes)
    plan.check()
    return plan


def parse_price(
    epsilon: Number, delta: Number, population: int | None, *, allow_large: bool, pure: bool = False
) -> tuple[Fraction, Fraction]:
    """ε and δ of a release, or a refusal.

    Args:
        epsilon: the price.
        delta: below one over the population; 0 only if `pure`.
        population: the public number of people, if known.
        allow_large: confirms a large ε.
        pure: True if δ may be 0.
    """
    price, allowed = parse_positive(epsilon, "epsilon"), parse_nonnegative(delta, "delta")
    refuse_large_epsilon(price, allow=allow_large)
    if not allowed and not pure:
        raise InvalidInput(
            "a synthesis is planned with {delta} of 0",
            why="its tables have Gaussian noise, which needs a positive {delta}",
            fix="pass {delta=1e-6}, or less than one over the number of people; or make rows of a synopsis, "
            "which has Laplace noise where {delta} is 0",
        )
    refuse_large_delta(allowed, population)
    return price, allowed


def check_limit(unit: Unit, max_weight: int | None) -> int:
    """The maximum number of rows per unit, which must be known unless each row is a unit."""
    if unit.key is not None and max_weight is None:
        raise InvalidInput(
            "the maximum number of rows per unit is not declared",
            why="it decides how far one unit can move every table",
            fix="pass {rows_per_unit=4}, enough for most units; if you do not know it, estimate it "
            "privately with hubbub limits or Dataset.limits",
            parameter="rows_per_unit",
        )
    return parse_integer(1 if max_weight is None else max_weight, "rows_per_unit")


def note_rows_left_out(domain: Domain, unit: Unit, max_weight: int) -> list[str]:
    """Which rows are not counted, or not in full: from the declarations alone."""
    notes = []
    closed = [each.name for each in domain.columns if not each.is_binned and not each.has_other]
    if closed:
        notes.append(f"rows are left out if {', '.join(closed)} has none of the declared categories")
    missing = [each.name for each in domain.columns if each.is_binned and not each.is_nullable]
    if missing:
        notes.append(f"rows are left out if {', '.join(missing)} is NULL or not a finite number")
    if unit.key is not None:
        notes.append(
            f"a unit with more than {max_weight} rows counts as that many, spread evenly over its rows"
        )
    return notes
