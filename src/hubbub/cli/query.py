"""`hubbub query` and `hubbub plan`: private answers from a table, and what they would cost."""

import json
import os
from dataclasses import dataclass
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hubbub.accounting.budget import LARGE_EPSILON
from hubbub.cli.options import (
    parse_above_zero,
    parse_bounds,
    parse_confidence,
    parse_count,
    parse_delta,
    parse_errors,
    parse_group_keys,
    parse_public_tables,
    parse_types,
)
from hubbub.cli.results import (
    PlanFormat,
    ResultFormat,
    choose_format,
    show_exact,
    show_plan,
    show_result,
    show_status,
)
from hubbub.cli.terminal import escaped, print_line
from hubbub.config import ROW
from hubbub.config_lookup import find_config
from hubbub.errors import InvalidInput
from hubbub.numbers import format_down, format_up
from hubbub.output_files import check_output_path
from hubbub.report.tables import DIGITS, describe_cost, format_cost
from hubbub.unit import Unit, Window

if TYPE_CHECKING:
    from hubbub.config import Config
    from hubbub.dataset import Dataset
    from hubbub.sql.plan import Plan

__all__ = ["plan", "query"]

_ACCESS_LOG = "hubbub-exact.log"
"""Where non-private accesses are recorded if there is no ledger."""

Pairs = list[str] | None
"""NAME=VALUE, several times."""

File = Annotated[
    Path,
    typer.Argument(
        metavar="FILE",
        help="CSV, Parquet, a pattern such as 'visits_*.parquet', a DuckDB database, or a hubbub.toml.",
    ),
]
Sql = Annotated[
    str, typer.Argument(metavar="SQL", help="One SELECT statement; the table is named after the file.")
]
PrivacyUnit = Annotated[
    str | None,
    typer.Option(
        metavar="COLUMN|row", help="The privacy unit: a column, or 'row' if each row is one person."
    ),
]
TableName = Annotated[
    str | None,
    typer.Option("--table", metavar="NAME", help="Name of the table in the query; of a database, the table."),
]
Epsilon = Annotated[
    str | None, typer.Option(metavar="E", help="Privacy cost ε of the whole query, such as 0.5 or 1/2.")
]
Delta = Annotated[
    str | None,
    typer.Option(metavar="D", help="Additive slack δ; required if group keys are selected privately."),
]
TargetError = Annotated[
    Pairs,
    typer.Option(
        "--error",
        metavar="NAME=WIDTH",
        help="Target half-width, such as n=50: finds the least ε that keeps it.",
    ),
]
Bounds = Annotated[
    Pairs,
    typer.Option(
        metavar="COL=LO:HI",
        help="Public bounds, to clamp values; COL=auto estimates them privately.",
    ),
]
Keys = Annotated[
    Pairs,
    typer.Option(
        metavar="COL=A,B,C", help="Public group keys; or COL=0:99, or COL=@FILE with one key per line."
    ),
]
RowsPerUnit = Annotated[
    str | None,
    typer.Option(metavar="N", help="Maximum rows per privacy unit; estimated privately if omitted."),
]
GroupsPerUnit = Annotated[str | None, typer.Option(metavar="N", help="Maximum groups per privacy unit.")]
RowsPerGroup = Annotated[
    str | None, typer.Option(metavar="N", help="Maximum rows per privacy unit in each group.")
]
Types = Annotated[
    Pairs,
    typer.Option(
        "--type", metavar="COL=TYPE", help="Type of a column: number, text, boolean, date or timestamp."
    ),
]
PublicTables = Annotated[Pairs, typer.Option(metavar="NAME=FILE", help="A public table to join.")]
Encoding = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="Encoding of CSV files, such as latin-1; UTF-8 if omitted."),
]
Quotes = Annotated[
    bool | None,
    typer.Option(
        "--quotes/--no-quotes",
        help="Allow quoted CSV fields; with --no-quotes each line is a row, whatever is in it.",
    ),
]
Population = Annotated[
    str | None,
    typer.Option(metavar="N", help="Public number of people: δ must be below 1/N."),
]
Confidence = Annotated[str, typer.Option(metavar="C", help="Confidence level of the intervals.")]
Output = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Write to a file; its suffix names the format.")
]
ResultFormatOption = Annotated[
    ResultFormat | None,
    typer.Option("--format", metavar="|".join(ResultFormat), help="Output format; table if omitted."),
]
PlanFormatOption = Annotated[
    PlanFormat | None,
    typer.Option("--format", metavar="|".join(PlanFormat), help="Output format; table if omitted."),
]
BoundingReport = Annotated[
    bool,
    typer.Option(
        "--bounding-report", help="Spend ε/10 to measure how many units exceed a contribution bound."
    ),
]
NoIntervals = Annotated[
    bool,
    typer.Option(
        "--no-intervals", help="Answers without intervals; medians and other quantiles then use all of ε."
    ),
]
LargeEpsilon = Annotated[
    bool,
    typer.Option(
        "--allow-large-epsilon", help=f"Allow an ε above {LARGE_EPSILON}, which protects almost nobody."
    ),
]
Explain = Annotated[
    bool,
    typer.Option("--explain", help="Show sensitivities, mechanisms, the engine's SQL and links to proofs."),
]
Exact = Annotated[
    bool,
    typer.Option(
        "--exact",
        help="Non-private access for the owner: answers without noise. "
        f"Recorded in the ledger, or in {_ACCESS_LOG} beside FILE.",
    ),
]
LedgerAddress = Annotated[
    str | None,
    typer.Option(
        "--ledger",
        metavar="FILE",
        help="Ledger that records every charge: a file or postgresql://…",
        envvar="HUBBUB_LEDGER",
    ),
]
Account = Annotated[
    str | None, typer.Option(metavar="NAME", help="Account of the ledger; named after the table if omitted.")
]
Analyst = Annotated[
    str | None,
    typer.Option("--analyst", metavar="NAME", help="Analyst who asks, with a budget granted by the owner."),
]
WindowPeriod = Annotated[
    str | None,
    typer.Option(
        "--window",
        metavar="COL=PERIOD",
        help="Only the rows of a period, which has its own budget, such as day=2026-11.",
    ),
]
Version = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="Version of the data: each query has one answer per version."),
]
NewRows = Annotated[
    bool,
    typer.Option("--new-rows", help="Owner only: assert that no other account pays for these rows."),
]
Again = Annotated[
    bool, typer.Option("--again", help="If the query failed before: charge it again and run it.")
]
Override = Annotated[
    bool,
    typer.Option(
        "--override", help="Owner only, recorded: ignore the unit, ledger, account or budget in hubbub.toml."
    ),
]


@dataclass(frozen=True)
class QueryOptions:
    """The options that both commands have."""

    file: Path
    sql: str
    unit: str | None
    table: str | None
    epsilon: str | None
    delta: str | None
    error: Pairs
    bounds: Pairs
    keys: Pairs
    contribution_bounds: tuple[str | None, str | None, str | None]
    """Rows per unit, groups per unit and rows per group."""
    types: Pairs
    public: Pairs
    population: str | None
    confidence: str
    bounding_report: bool
    no_intervals: bool
    window: str | None
    new_rows: bool
    override: bool
    encoding: str | None
    quotes: bool | None
    allow_large_epsilon: bool
    ledger: str | None = None
    account: str | None = None
    analyst: str | None = None
    version: str | None = None

    def open_dataset(self) -> "Dataset":
        """Open the data; no row is read."""
        import hubbub

        declared = find_config(self.file)
        if self.unit is None and declared is None:
            raise InvalidInput(
                "--unit is missing",
                why="it says who is protected",
                fix=f"add --unit with the column that identifies people, or --unit {ROW} if each row is one "
                "person; hubbub init declares it once",
            )
        people = None if self.population is None else parse_count(self.population, "population")
        return hubbub.open(
            self.file,
            unit=None if self.unit is None else Unit.row() if self.unit.lower() == ROW else Unit(self.unit),
            table=self.table,
            types={name: kind.value for name, kind in parse_types(self.types or ()).items()},
            public=parse_public_tables(self.public or ()),
            population=people,
            ledger=self.ledger,
            account=self.account,
            analyst=self.analyst,
            version=self.version,
            window=None if self.window is None else _parse_window(self.window, declared),
            new_rows=self.new_rows,
            override=self.override,
            encoding=self.encoding,
            quotes=self.quotes,
        )

    def make_plan(self, data: "Dataset") -> "Plan":
        """Plan the query; nothing is spent."""
        if self.epsilon is not None and self.error:
            raise InvalidInput(
                "both --epsilon and --error are given",
                why="each determines the other",
                fix="give exactly one of --epsilon and --error",
            )
        names = ("rows_per_unit", "groups_per_unit", "rows_per_group")
        rows, groups, per_group = (
            None if text is None else parse_count(text, name)
            for text, name in zip(self.contribution_bounds, names, strict=True)
        )
        plan = data.sql(
            self.sql,
            epsilon=None if self.epsilon is None else parse_above_zero(self.epsilon, "epsilon"),
            delta=self._delta(),
            error=parse_errors(self.error) if self.error else None,
            rows_per_unit=rows,
            groups_per_unit=groups,
            rows_per_group=per_group,
            bounds=parse_bounds(self.bounds or (), self.sql),
            keys=parse_group_keys(self.keys or (), data.tables),
            confidence=parse_confidence(self.confidence),
            bounding_report=self.bounding_report,
            intervals=not self.no_intervals,
            allow_large_epsilon=self.allow_large_epsilon,
        )
        str(plan)  # what cannot be measured is refused now, not after the charge
        return plan

    def _delta(self) -> Fraction | None:
        return None if self.delta is None else parse_delta(self.delta)


def query(
    file: File,
    sql: Sql,
    unit: PrivacyUnit = None,
    table: TableName = None,
    epsilon: Epsilon = None,
    delta: Delta = None,
    error: TargetError = None,
    bounds: Bounds = None,
    keys: Keys = None,
    rows_per_unit: RowsPerUnit = None,
    groups_per_unit: GroupsPerUnit = None,
    rows_per_group: RowsPerGroup = None,
    types: Types = None,
    public: PublicTables = None,
    encoding: Encoding = None,
    quotes: Quotes = None,
    population: Population = None,
    confidence: Confidence = "0.95",
    form: ResultFormatOption = None,
    output: Output = None,
    bounding_report: BoundingReport = False,
    no_intervals: NoIntervals = False,
    explain: Explain = False,
    exact: Exact = False,
    ledger: LedgerAddress = None,
    account: Account = None,
    analyst: Analyst = None,
    version: Version = None,
    window: WindowPeriod = None,
    new_rows: NewRows = False,
    override: Override = False,
    allow_large_epsilon: LargeEpsilon = False,
    again: Again = False,
) -> None:
    """Answer a SQL query with differential privacy; every answer has a confidence interval.

    Give exactly one of --epsilon and --error. Options that a hubbub.toml in the folder of FILE, or above it,
    declares may be omitted. See docs/queries.md.

    \b
    hubbub query visits.parquet "SELECT COUNT(*) AS n FROM visits" --unit patient --epsilon 1
    hubbub query visits.parquet "SELECT region, AVG(cost) AS cost FROM visits GROUP BY region" \\
        --unit patient --epsilon 1 --bounds cost=0:5000 --keys region=North,South,East,West
    hubbub query visits.parquet "SELECT region, COUNT(*) AS n FROM visits GROUP BY region" \\
        --unit patient --error n=50 --keys region=North,South,East,West
    hubbub query visits.parquet "SELECT reason, COUNT(*) AS n FROM visits GROUP BY reason" \\
        --unit patient --epsilon 1 --delta 1e-6 --output reasons.csv
    """  # noqa: D301 - the mark that keeps lines is a real \b
    written = choose_format(form and form.value, output, ResultFormat)
    if exact and (output is not None or written != "table"):
        raise InvalidInput(
            "--exact is given with --output or --format",
            why="exact answers are not private, and a file may be passed on",
            fix="leave --output and --format out",
        )
    options = QueryOptions(
        file, sql, unit, table, epsilon, delta, error, bounds, keys,
        (rows_per_unit, groups_per_unit, rows_per_group), types, public, population, confidence,
        bounding_report, no_intervals, window, new_rows, override, encoding, quotes, allow_large_epsilon,
        ledger, account, analyst, version,
    )  # fmt: skip
    with options.open_dataset() as data:
        planned = options.make_plan(data)
        if written == "svg" and all(output.key is not None for output in planned.query.outputs):
            raise InvalidInput(
                "the format is svg, and only keys are selected",
                why="there is no number to draw",
                fix="select a COUNT, a SUM or an AVG, or choose another format",
            )
        if written == "svg" and no_intervals:
            raise InvalidInput(
                "the format is svg, and --no-intervals is given",
                why="a chart shows the intervals",
                fix="leave --no-intervals out, or choose another format",
            )
        if output is not None:
            check_output_path(output)  # now that it is known which files are data
        to_stderr = written != "table" or output is not None
        if error:
            print_line(escaped(", ".join(error)), f" takes {format_cost(planned)}", to_stderr=to_stderr)
        if explain:
            print_line(planned.explain() + "\n", to_stderr=to_stderr)
        if exact:
            if not data.has_ledger:
                _record_access(file, sql)
            show_exact(data.exact(planned))
            return
        with show_status() as progress:
            answers = data.run(planned, progress, again=again).value
        show_result(
            answers, [*describe_cost(planned, answers.facts), *_describe_budget(data)], written, output
        )


def plan(
    file: File,
    sql: Sql,
    unit: PrivacyUnit = None,
    table: TableName = None,
    epsilon: Epsilon = None,
    delta: Delta = None,
    error: TargetError = None,
    bounds: Bounds = None,
    keys: Keys = None,
    rows_per_unit: RowsPerUnit = None,
    groups_per_unit: GroupsPerUnit = None,
    rows_per_group: RowsPerGroup = None,
    types: Types = None,
    public: PublicTables = None,
    encoding: Encoding = None,
    quotes: Quotes = None,
    population: Population = None,
    confidence: Confidence = "0.95",
    form: PlanFormatOption = None,
    output: Output = None,
    bounding_report: BoundingReport = False,
    no_intervals: NoIntervals = False,
    explain: Explain = False,
    window: WindowPeriod = None,
    new_rows: NewRows = False,
    override: Override = False,
    allow_large_epsilon: LargeEpsilon = False,
) -> None:
    """Show what a query would cost and how accurate it would be; no row is read, nothing is spent.

    \b
    hubbub plan visits.parquet "SELECT COUNT(*) AS n FROM visits" --unit patient --epsilon 1
    hubbub plan visits.parquet "SELECT region, COUNT(*) AS n FROM visits GROUP BY region" \\
        --unit patient --error n=50 --keys region=North,South,East,West --rows-per-unit 5 --explain
    """  # noqa: D301 - the mark that keeps lines is a real \b
    written = choose_format(form and form.value, output, PlanFormat)
    options = QueryOptions(
        file, sql, unit, table, epsilon, delta, error, bounds, keys,
        (rows_per_unit, groups_per_unit, rows_per_group), types, public, population, confidence,
        bounding_report, no_intervals, window, new_rows, override, encoding, quotes, allow_large_epsilon,
    )  # fmt: skip
    with options.open_dataset() as data:
        if output is not None:
            check_output_path(output)  # now that it is known which files are data
        planned = options.make_plan(data)
        show_plan(planned, written, output, explain=explain, more=data.count_more(planned))


def _parse_window(text: str, declared: "Config | None") -> Window | str:
    """A period of the declared column, or a column and a period: day=2026-11."""
    column, equals, period = text.partition("=")
    if not equals and (declared is None or declared.window is None):
        raise InvalidInput(
            "--window has no column",
            why="a date in each row decides which window it is in",
            fix="write --window day=2026-11, or declare window in hubbub.toml",
        )
    return Window.of(column, period) if equals else text


def _describe_budget(data: "Dataset") -> list[str]:
    account: Any = data.account
    if data.has_ledger:
        left = account.remaining()
        room = f"ε = {format_down(left.epsilon)} or δ = {format_down(left.delta)}"
        return [f"budget left in the ledger: {room} for one more query"]
    if account.budget is None:
        return []
    spent = format_up(account.budget.epsilon, DIGITS)
    return [f"budget: ε = {spent} per command; use a ledger to add up what commands spend"]


def _record_access(file: Path, sql: str) -> None:
    """Record a non-private access: when and what, no data. Nothing is shown before it is recorded."""
    path = file.parent / _ACCESS_LOG
    check_output_path(path)
    line = json.dumps(
        {"time": datetime.now(UTC).isoformat(timespec="seconds"), "exact": sql}, ensure_ascii=False
    )
    try:
        # Of the owner alone, also if it was there before; a link would lead it elsewhere.
        log = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o600)
        with os.fdopen(log, "a", encoding="utf-8") as out:
            os.chmod(path, 0o600)  # noqa: PTH101 - of what was just opened
            out.write(line + "\n")
            out.flush()
            os.fsync(out.fileno())
    except OSError as problem:
        raise InvalidInput(
            f"{_ACCESS_LOG} cannot be written beside the data",
            why=(problem.strerror or "the system refused").lower(),
            fix="make the folder writable: a non-private access must be recorded",
        ) from None
