"""`hubbub query` and `hubbub plan`: private answers from a file, and what they would cost."""

import json
import os
from dataclasses import dataclass
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hubbub.cli.options import (
    above_zero,
    bounds_in,
    chance,
    counted,
    errors_in,
    keys_in,
    public_in,
    round_up_text,
    sure,
    types_in,
)
from hubbub.cli.results import Form, PlanForm, cost_of, form_of, show_answers, show_exact, show_plan, watching
from hubbub.cli.terminal import say, words
from hubbub.config import ROW
from hubbub.errors import InvalidInput
from hubbub.numbers import format_down
from hubbub.output_files import check_output_path
from hubbub.sources import find_config
from hubbub.unit import Unit, Window

if TYPE_CHECKING:
    from hubbub.config import Config
    from hubbub.dataset import Dataset
    from hubbub.sql.plan import Plan

__all__ = ["plan", "query"]

_LOG = "hubbub-exact.log"

Words = list[str] | None

File = Annotated[
    Path,
    typer.Argument(
        metavar="FILE",
        help="CSV, Parquet, a pattern such as 'visits_*.parquet', a DuckDB database, or a hubbub.toml.",
    ),
]
Sql = Annotated[
    str, typer.Argument(metavar="SQL", help="One SELECT; the table is named as the file, without ending.")
]
Who = Annotated[
    str | None,
    typer.Option(
        metavar="COLUMN|row", help="Who is protected: a column, or 'row' where one row is one person."
    ),
]
Named = Annotated[
    str | None,
    typer.Option("--table", metavar="NAME", help="What the query calls FILE; of a database, which table."),
]
Epsilon = Annotated[
    str | None, typer.Option(metavar="E", help="The price of the whole query: ε, as 0.5 or 1/2.")
]
Delta = Annotated[
    str | None,
    typer.Option(metavar="D", help="Chance that ε does not hold; needed where keys are not declared."),
]
Within = Annotated[
    Words,
    typer.Option(
        "--error", metavar="NAME=WIDTH", help="Ask by accuracy: the least ε that keeps it, as n=50."
    ),
]
Bounds = Annotated[
    Words,
    typer.Option(
        metavar="COL=LO:HI", help="Numbers are clamped between; COL=auto finds them with some of ε."
    ),
]
Keys = Annotated[
    Words,
    typer.Option(metavar="COL=A,B,C", help="All groups there may be; COL=0:99, or COL=@file, one a line."),
]
Rows = Annotated[
    str | None, typer.Option(metavar="N", help="A unit counts at most so many rows; else it is found.")
]
Groups = Annotated[str | None, typer.Option(metavar="N", help="A unit counts in at most so many groups.")]
RowsPerGroup = Annotated[
    str | None, typer.Option(metavar="N", help="A unit counts at most so many rows in a group.")
]
Types = Annotated[
    Words, typer.Option("--type", metavar="COL=TYPE", help="number, text, boolean, date or timestamp.")
]
Public = Annotated[Words, typer.Option(metavar="NAME=FILE", help="A table that is nobody's, to join.")]
Encoding = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="Of CSV files, as latin-1 or cp1252; UTF-8, unless told."),
]
Quotes = Annotated[
    bool | None,
    typer.Option(
        "--quotes/--no-quotes",
        help="Whether CSV fields may be quoted; without, each line is a row whatever is in it.",
    ),
]
Population = Annotated[
    str | None,
    typer.Option(metavar="N", help="How many people there are, where that is public: δ must be below 1/N."),
]
Confidence = Annotated[str, typer.Option(metavar="C", help="Of the intervals.")]
Output = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Write there; its ending names the format.")
]
Format = Annotated[
    Form | None,
    typer.Option("--format", metavar="|".join(Form), help="How answers are written; a table, unless told."),
]
PlanFormat = Annotated[
    PlanForm | None,
    typer.Option("--format", metavar="|".join(PlanForm), help="For people or for programs."),
]
Report = Annotated[
    bool,
    typer.Option("--bounding-report", help="A tenth of ε measures how many units are above a limit."),
]
Large = Annotated[
    bool, typer.Option("--large-epsilon", help="Confirm an ε above 20, at which next to nobody is protected.")
]
Explain = Annotated[
    bool, typer.Option("--explain", help="Show sensitivities, mechanisms, the engine's SQL and the proofs.")
]
Exact = Annotated[
    bool,
    typer.Option(
        "--exact",
        help="For the owner's eyes: the answers without noise. "
        f"Recorded in the ledger, or in {_LOG} beside FILE.",
    ),
]
Kept = Annotated[
    str | None,
    typer.Option(
        "--ledger",
        metavar="FILE",
        help="Where all that is spent is remembered; or postgresql://…",
        envvar="HUBBUB_LEDGER",
    ),
]
Account = Annotated[
    str | None, typer.Option(metavar="NAME", help="Which account of the ledger; the table's, unless told.")
]
As = Annotated[
    str | None,
    typer.Option("--as", metavar="NAME", help="On behalf of this analyst, who has a budget of her own."),
]
Time = Annotated[
    str | None,
    typer.Option(
        "--window",
        metavar="COL=PERIOD",
        help="Only the rows of a stretch of time, which has a budget of its own: day=2026-11.",
    ),
]
Version = Annotated[
    str | None,
    typer.Option(
        metavar="NAME", help="Of the data, in the owner's words: a question is answered once a version."
    ),
]
NewData = Annotated[
    bool,
    typer.Option("--new-rows", help="The owner's word: no other account of the ledger pays for these rows."),
]
Again = Annotated[
    bool, typer.Option("--again", help="Where the run failed before: charge it anew, and run it.")
]
Override = Annotated[
    bool,
    typer.Option(
        "--override", help="The owner's word, recorded: set aside what hubbub.toml declares of who and where."
    ),
]


@dataclass(frozen=True)
class Asked:
    """What both commands are told."""

    file: Path
    sql: str
    unit: str | None
    table: str | None
    epsilon: str | None
    delta: str | None
    error: Words
    bounds: Words
    keys: Words
    limits: tuple[str | None, str | None, str | None]
    types: Words
    public: Words
    population: str | None
    confidence: str
    report: bool
    kept: tuple[str | None, ...] = (None, None, None, None)
    """The ledger, the account, the analyst and the version."""
    window: str | None = None
    words: tuple[bool, bool] = (False, False)
    """Whether the owner says that the rows are new, and that she overrides what she declared."""
    lines: tuple[str | None, bool | None] = (None, None)
    """The encoding of CSV files, and whether they have quotes."""
    large: bool = False

    def opened(self) -> "Dataset":
        """The data; no row is read."""
        from hubbub.dataset import open as opened

        declared = find_config(self.file)
        if self.unit is None and declared is None:
            raise InvalidInput(
                "--unit is missing",
                why="it must be known who is protected",
                fix=f"add --unit with the column that names people, or --unit {ROW} where a row is a person; "
                "hubbub init declares it once",
            )
        people = None if self.population is None else counted(self.population, "--population")
        ledger, account, analyst, version = self.kept
        return opened(
            self.file,
            unit=None if self.unit is None else Unit.row() if self.unit.lower() == ROW else Unit(self.unit),
            table=self.table,
            types={name: kind.value for name, kind in types_in(self.types or ()).items()},
            public=public_in(self.public or ()),
            population=people,
            ledger=ledger,
            account=account,
            analyst=analyst,
            version=version,
            window=None if self.window is None else _window(self.window, declared),
            new_rows=self.words[0],
            override=self.words[1],
            encoding=self.lines[0],
            quotes=self.lines[1],
        )

    def planned(self, data: "Dataset") -> "Plan":
        """The plan; nothing is spent."""
        if self.epsilon is not None and self.error:
            raise InvalidInput(
                "both --epsilon and --error are given",
                why="one of them is asked for, the other is the answer",
                fix="give one",
            )
        names = ("--rows-per-unit", "--groups-per-unit", "--rows-per-group")
        rows, groups, per_group = (
            None if given is None else counted(given, name)
            for given, name in zip(self.limits, names, strict=True)
        )
        made = data.sql(
            self.sql,
            epsilon=None if self.epsilon is None else above_zero(self.epsilon, "--epsilon"),
            delta=self._delta(),
            error=errors_in(self.error) if self.error else None,
            rows_per_unit=rows,
            groups_per_unit=groups,
            rows_per_group=per_group,
            bounds=bounds_in(self.bounds or (), self.sql),
            keys=keys_in(self.keys or (), data.tables),
            confidence=sure(self.confidence),
            bounding_report=self.report,
            allow_large_epsilon=self.large,
        )
        str(made)  # what cannot be measured is refused now, not after the charge
        return made

    def _delta(self) -> Fraction | None:
        return None if self.delta is None else chance(self.delta)


def query(
    file: File,
    sql: Sql,
    unit: Who = None,
    table: Named = None,
    epsilon: Epsilon = None,
    delta: Delta = None,
    error: Within = None,
    bounds: Bounds = None,
    keys: Keys = None,
    rows_per_unit: Rows = None,
    groups_per_unit: Groups = None,
    rows_per_group: RowsPerGroup = None,
    types: Types = None,
    public: Public = None,
    encoding: Encoding = None,
    quotes: Quotes = None,
    population: Population = None,
    confidence: Confidence = "0.95",
    form: Format = None,
    output: Output = None,
    bounding_report: Report = False,
    explain: Explain = False,
    exact: Exact = False,
    ledger: Kept = None,
    account: Account = None,
    analyst: As = None,
    version: Version = None,
    window: Time = None,
    new_rows: NewData = False,
    override: Override = False,
    large_epsilon: Large = False,
    again: Again = False,
) -> None:
    """Ask a table, and get answers in which nobody can be made out, each with its interval.

    What a hubbub.toml beside FILE or above declares need not be said. See docs/queries.md.

    \b
    hubbub query visits.parquet "SELECT COUNT(*) AS n FROM visits" --unit patient --epsilon 1
    hubbub query visits.parquet "SELECT region, AVG(cost) AS cost FROM visits GROUP BY region" \\
        --unit patient --epsilon 1 --bounds cost=0:5000 --keys region=North,South,East,West
    hubbub query visits.parquet "SELECT region, COUNT(*) AS n FROM visits GROUP BY region" \\
        --unit patient --error n=50 --keys region=North,South,East,West
    hubbub query visits.parquet "SELECT reason, COUNT(*) AS n FROM visits GROUP BY reason" \\
        --unit patient --epsilon 1 --delta 1e-6 --output reasons.csv
    """  # noqa: D301 - the mark that keeps lines is a real \b
    written = form_of(form and form.value, output, Form)
    if exact and (output is not None or written != "table"):
        raise InvalidInput(
            "--exact is given with --output or --format",
            why="exact answers are for a look, not for a file that may be passed on",
            fix="leave --output and --format out",
        )
    asked = Asked(
        file, sql, unit, table, epsilon, delta, error, bounds, keys,
        (rows_per_unit, groups_per_unit, rows_per_group), types, public, population, confidence,
        bounding_report, (ledger, account, analyst, version), window, (new_rows, override),
        (encoding, quotes), large_epsilon,
    )  # fmt: skip
    with asked.opened() as data:
        made = asked.planned(data)
        if written == "svg" and all(output.key is not None for output in made.query.outputs):
            raise InvalidInput(
                "a picture is asked for, and only keys are selected",
                why="there is no number to draw",
                fix="select a COUNT, a SUM or an AVG, or leave the picture out",
            )
        if output is not None:
            check_output_path(output)  # now that it is known which files are data
        aside = written != "table" or output is not None
        if error:
            say(words(", ".join(error)), f" takes {_price(made)}", aside=aside)
        if explain:
            say(made.explain() + "\n", aside=aside)
        if exact:
            if not data.has_ledger:
                _record(file, sql)
            show_exact(data.exact(made))
            return
        with watching() as progress:
            answers = data.run(made, progress, again=again).value
        show_answers(answers, [*cost_of(made, answers.facts), *_left(data)], written, output)


def plan(
    file: File,
    sql: Sql,
    unit: Who = None,
    table: Named = None,
    epsilon: Epsilon = None,
    delta: Delta = None,
    error: Within = None,
    bounds: Bounds = None,
    keys: Keys = None,
    rows_per_unit: Rows = None,
    groups_per_unit: Groups = None,
    rows_per_group: RowsPerGroup = None,
    types: Types = None,
    public: Public = None,
    encoding: Encoding = None,
    quotes: Quotes = None,
    population: Population = None,
    confidence: Confidence = "0.95",
    form: PlanFormat = None,
    output: Output = None,
    bounding_report: Report = False,
    explain: Explain = False,
    window: Time = None,
    new_rows: NewData = False,
    override: Override = False,
    large_epsilon: Large = False,
) -> None:
    """Say what a query would cost and how far its answers would be off; no row is read, nothing is spent.

    \b
    hubbub plan visits.parquet "SELECT COUNT(*) AS n FROM visits" --unit patient --epsilon 1
    hubbub plan visits.parquet "SELECT region, COUNT(*) AS n FROM visits GROUP BY region" \\
        --unit patient --error n=50 --keys region=North,South,East,West --rows-per-unit 5 --explain
    """  # noqa: D301 - the mark that keeps lines is a real \b
    written = form_of(form and form.value, output, PlanForm)
    asked = Asked(
        file, sql, unit, table, epsilon, delta, error, bounds, keys,
        (rows_per_unit, groups_per_unit, rows_per_group), types, public, population, confidence,
        bounding_report, window=window, words=(new_rows, override), lines=(encoding, quotes),
        large=large_epsilon,
    )  # fmt: skip
    with asked.opened() as data:
        if output is not None:
            check_output_path(output)  # now that it is known which files are data
        show_plan(asked.planned(data), written, output, explain=explain)


def _window(given: str, declared: "Config | None") -> Window | str:
    """A period of the declared column, or a column and a period: day=2026-11."""
    column, equals, period = given.partition("=")
    if not equals and (declared is None or declared.window is None):
        raise InvalidInput(
            "--window is not as day=2026-11",
            why="a row is in it by a date of its own",
            fix="write --window with the column, or declare window in hubbub.toml",
        )
    return Window.of(column, period) if equals else given


def _price(made: "Plan") -> str:
    return f"ε = {round_up_text(made.epsilon)}" + (f", δ = {round_up_text(made.delta)}" if made.delta else "")


def _left(data: "Dataset") -> list[str]:
    account: Any = data.account
    if data.has_ledger:
        left = account.remaining()
        return [f"left in the ledger: ε = {format_down(left.epsilon)} for one more query"]
    if account.budget is None:
        return []
    spent = round_up_text(account.budget.epsilon)
    return [f"budget: ε = {spent} for each command; a ledger would remember what they spend"]


def _record(file: Path, sql: str) -> None:
    """Write down that exact answers were looked at: when and what, no data. Nothing is shown before."""
    path = file.parent / _LOG
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
            f"{_LOG} cannot be written beside the data",
            why=(problem.strerror or "the system refused").lower(),
            fix="an exact preview is recorded or not given: make the folder writable",
        ) from None
