"""`hubbub query`, `hubbub plan` and `hubbub limits`: private answers from a table, and what they cost."""

import json
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hubbub.cli.dataset_options import DatasetOptions, QueryOptions, with_options
from hubbub.cli.options import parse_above_zero, parse_group_keys
from hubbub.cli.results import (
    PlanFormat,
    ResultFormat,
    choose_format,
    show_exact,
    show_plan,
    show_result,
    show_status,
)
from hubbub.cli.synopsis import ENDING, answer_from_synopsis
from hubbub.cli.terminal import FormatOption, OutputFormat, escaped, print_line, show_json
from hubbub.engine_lookup import is_server
from hubbub.errors import HubbubError, InvalidInput
from hubbub.numbers import format_down, format_up
from hubbub.output_files import check_output_path
from hubbub.report.text_tables import DIGITS, describe_cost, describe_spent, format_cost

if TYPE_CHECKING:
    from hubbub.dataset import Dataset
    from hubbub.sql.composite_plan import AnyPlan

__all__ = ["limits", "plan", "query"]

_ACCESS_LOG = "hubbub-exact.log"
"""The file that records non-private accesses if there is no ledger."""

_COUNTS = {"count", "units"}
"""Kinds of aggregates that are whole numbers."""

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
Again = Annotated[
    bool, typer.Option("--again", help="If the query failed before: charge it again and run it.")
]
Consistent = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="Add a column NAME_consistent: this count or sum, non-negative and with the same total.",
    ),
]
LimitsEpsilon = Annotated[str, typer.Option(metavar="E", help="Privacy cost ε of all limits together.")]
By = Annotated[
    list[str] | None,
    typer.Option(metavar="COL[,COL]", help="Measure groups per unit by these columns, too; repeatable."),
]


@with_options(QueryOptions)
def query(
    options: QueryOptions,
    form: ResultFormatOption = None,
    output: Output = None,
    explain: Explain = False,
    exact: Exact = False,
    again: Again = False,
    consistent: Consistent = None,
) -> None:
    """Answer a SQL query with differential privacy; every answer has a confidence interval.

    Give exactly one of --epsilon and --error. Options that a hubbub.toml in the folder of FILE, or above it,
    declares may be omitted. See docs/queries.md. A .synopsis as FILE is asked for free; see docs/synopsis.md.

    \b
    hubbub query visits.parquet "SELECT COUNT(*) AS n FROM visits" --unit patient --epsilon 1
    hubbub query visits.parquet "SELECT region, AVG(cost) AS cost FROM visits GROUP BY region" \\
        --unit patient --epsilon 1 --bounds cost=0:5000 --keys region=North,South,East,West
    hubbub query visits.parquet "SELECT region, COUNT(*) AS n FROM visits GROUP BY region" \\
        --unit patient --error n=50 --keys region=North,South,East,West --rows-per-unit 5
    hubbub query visits.parquet "SELECT reason, COUNT(*) AS n FROM visits GROUP BY reason" \\
        --unit patient --epsilon 1 --delta 1e-6 --output reasons.csv
    """  # noqa: D301 - the mark that keeps lines is a real \b
    file_format = choose_format(form and form.value, output, ResultFormat)
    if exact and (output is not None or file_format != "table"):
        raise InvalidInput(
            "--exact is given with --output or --format",
            why="exact answers are not private, and a file may be passed on",
            fix="leave --output and --format out",
        )
    if Path(options.file).suffix.lower() == ENDING:
        if explain or exact or again or consistent:
            raise InvalidInput(
                "--explain, --exact, --again or --consistent is given for a synopsis",
                why="nothing is planned, read or charged",
                fix="leave it out",
            )
        answer_from_synopsis(options, file_format, output)
        return
    with options.open_dataset(population=options.population) as data:
        query_plan = options.make_plan(data)
        is_chart = file_format in {"svg", "png"}
        if is_chart and all(output.key is not None for output in query_plan.query.outputs):
            raise InvalidInput(
                f"the format is {file_format}, and only keys are selected",
                why="there is no number to draw",
                fix="select a COUNT, a SUM or an AVG, or choose another format",
            )
        if is_chart and options.no_intervals:
            raise InvalidInput(
                f"the format is {file_format}, and --no-intervals is given",
                why="a chart shows the intervals",
                fix="leave --no-intervals out, or choose another format",
            )
        if consistent is not None:
            has_intervals = not (exact or options.no_intervals)
            _check_consistent(query_plan, consistent, has_intervals=has_intervals)
        if output is not None:
            check_output_path(output)  # now that it is known which files are data
        to_stderr = file_format != "table" or output is not None
        if options.error:
            print_line(
                escaped(", ".join(options.error)), f" takes {format_cost(query_plan)}", to_stderr=to_stderr
            )
        if explain:
            print_line(query_plan.explain() + "\n", to_stderr=to_stderr)
        if exact:
            if not data.has_ledger:
                _record_access(_log_folder(options.file), options.sql)
            show_exact(data.exact(query_plan))
            return
        with show_status() as progress:
            answers = data.run(query_plan, progress, again=again).value
        refusal = None
        if consistent is not None:
            try:
                is_integer = _kind_of(query_plan, consistent) in _COUNTS
                answers = answers.consistent(consistent, integer=is_integer)
            except HubbubError as error:
                refusal = error  # raised below: the answer is paid for, and shown
        cost = [*describe_cost(query_plan, answers.facts), *_describe_budget(data)]
        show_result(answers, cost, file_format, output, is_stored=data.has_ledger)
        if refusal is not None:
            raise refusal


def _check_consistent(query_plan: "AnyPlan", name: str, *, has_intervals: bool) -> None:
    """Refuse, before anything is charged, a column that has no consistent answers."""
    if _kind_of(query_plan, name) not in {*_COUNTS, "sum"} or not has_intervals:
        raise InvalidInput(
            f"consistent answers are asked for {name!r}, which is not a noisy count or sum with an interval",
            why="only these, if they cannot be negative, add up, weighted by the widths of their intervals",
            fix="name a COUNT or SUM of the SELECT, without --exact and --no-intervals; instead of ROLLUP, "
            "CUBE or GROUPING SETS ask for the finest groups, and add up their consistent answers",
            parameter="consistent",
        )
    if f"{name}_consistent" in query_plan.label()["answers"]:
        raise InvalidInput(
            f"the query has an output {name}_consistent",
            why="two columns of one name could not be told apart",
            fix="give it another name",
            parameter="consistent",
        )


def _kind_of(query_plan: "AnyPlan", name: str) -> str | None:
    """The kind of the aggregate that an output is; None if it is none."""
    kinds: dict[str, str] = query_plan.label().get("answers", {})
    return kinds.get(name)


@with_options(QueryOptions)
def plan(
    options: QueryOptions, form: PlanFormatOption = None, output: Output = None, explain: Explain = False
) -> None:
    """Show what a query would cost and how accurate it would be; no row is read, nothing is spent.

    \b
    hubbub plan visits.parquet "SELECT COUNT(*) AS n FROM visits" --unit patient --epsilon 1
    hubbub plan visits.parquet "SELECT region, COUNT(*) AS n FROM visits GROUP BY region" \\
        --unit patient --error n=50 --keys region=North,South,East,West --rows-per-unit 5 --explain
    """  # noqa: D301 - the mark that keeps lines is a real \b
    file_format = choose_format(form and form.value, output, PlanFormat)
    with options.open_dataset(population=options.population) as data:
        if output is not None:
            check_output_path(output)  # now that it is known which files are data
        query_plan = options.make_plan(data)
        more, is_free = data.count_more(query_plan), data.is_answered(query_plan)
        show_plan(query_plan, file_format, output, explain=explain, more=more, is_free=is_free)


@with_options(DatasetOptions)
def limits(
    options: DatasetOptions,
    epsilon: LimitsEpsilon,
    by: By = None,
    form: FormatOption = OutputFormat.TEXT,
) -> None:
    """Measure how many rows and groups units have, once: later queries find their limits at no cost.

    The ledger keeps what is measured; without one it is only shown. See docs/queries.md.

    \b
    hubbub limits visits.parquet --unit patient --epsilon 0.2 --by region --by reason
    """  # noqa: D301 - the mark that keeps lines is a real \b
    with options.open_dataset() as data:
        price = parse_above_zero(epsilon, "epsilon")
        columns = [[name.strip() for name in each.split(",")] for each in by or ()]
        known = parse_group_keys(options.keys or (), data.tables)
        with show_status() as progress:
            release = data.limits(
                epsilon=price,
                by=columns,
                table=options.table_name,
                keys=known,
                allow_large_epsilon=options.allow_large_epsilon,
                progress=progress,
            )
        if form is OutputFormat.JSON:
            show_json(json.loads(release.value.to_json()))
            return
        print_line(str(release.value))
        cost = f"ε = {format_up(price, DIGITS)} for {data.unit}"
        print_line(escaped(describe_spent(cost, release.value.facts)))
        advice = "the ledger keeps them for later queries" if data.has_ledger else "use a ledger to keep them"
        print_line(f"limits are for one count with ε = 1, each query chooses its own; {advice}")


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


def _log_folder(file: str) -> Path:
    if is_server(file):
        raise InvalidInput(
            "--exact is given for a server, without a ledger",
            why="a non-private access must be recorded, and there is no folder beside the data",
            fix="add --ledger FILE",
            parameter="exact",
        )
    return Path(file).parent


def _record_access(folder: Path, sql: str) -> None:
    """Record a non-private access: when and what, no data. Nothing is shown before it is recorded."""
    path = folder / _ACCESS_LOG
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
