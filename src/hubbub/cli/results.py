"""Prints plans and results to the terminal, or writes them to a file in the chosen format."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from hubbub.cli.terminal import escaped, is_quiet, make_console, print_line, to_json, write_stdout
from hubbub.errors import HubbubError, InvalidInput
from hubbub.escaping import escape_json, escape_lines
from hubbub.output_files import check_output_path, write_output
from hubbub.report.result_files import ENDINGS, check_format, render_bytes, render_text
from hubbub.report.text_tables import align_rows, describe_plan, format_rows

if TYPE_CHECKING:
    from hubbub.sql.composite_plan import AnyPlan
    from hubbub.sql.result import Result

__all__ = [
    "PlanFormat",
    "ResultFormat",
    "choose_format",
    "show_exact",
    "show_plan",
    "show_result",
    "show_status",
]

_MAX_TABLE_ROWS = 500
"""Longer tables are plain text: people read them in a pager."""
_PIPE_WIDTH = 1000


class ResultFormat(StrEnum):
    """Formats of a result."""

    TABLE = "table"
    CSV = "csv"
    JSON = "json"
    NDJSON = "ndjson"
    PARQUET = "parquet"
    HTML = "html"
    MD = "md"
    XLSX = "xlsx"
    SVG = "svg"
    PNG = "png"


class PlanFormat(StrEnum):
    """Formats of a plan."""

    TABLE = "table"
    JSON = "json"


_JSON = {"json", "ndjson"}
_BINARY = {"parquet": "Parquet", "xlsx": "an Excel workbook", "png": "a PNG picture"}


def choose_format(choice: str | None, output: Path | None, formats: type[StrEnum]) -> str:
    """Return the format that was asked for, or else the one that the file's suffix names.

    An output that cannot be written is refused here, before anything is charged.
    """
    known = {suffix: form for suffix, form in ENDINGS.items() if form in {each.value for each in formats}}
    suffix = "" if output is None else output.suffix.lower()
    if output is not None:
        check_output_path(output, ["", *known])
    by_suffix = known.get(suffix)
    form = choice or by_suffix or "table"
    if by_suffix is not None and by_suffix != form:
        raise InvalidInput(
            f"the output ends in {suffix}, and --format is {form}",
            why="programs choose how to read a file by its suffix",
            fix="leave --format out, or give the file another suffix",
            parameter="format",
        )
    if form in _BINARY and output is None:
        raise InvalidInput(
            f"--format {form} is given without --output",
            why=f"{_BINARY[form]} is binary",
            fix=f"add --output FILE.{form}",
            parameter="output",
        )
    check_format(form)
    return form


@contextmanager
def show_status() -> Iterator[Callable[[str], None]]:
    """Show the current step on a terminal."""
    console = Console(stderr=True)
    if not console.is_terminal or is_quiet():
        yield lambda _: None
        return
    with console.status("opening") as status:
        yield status.update


def show_plan(
    plan: "AnyPlan",
    form: str,
    output: Path | None,
    *,
    explain: bool,
    more: int | None,
    is_free: bool = False,
) -> None:
    """Show what a query will cost, how large its errors will be, and how many like it the budget allows."""
    if form == "json":
        facts = describe_plan(plan, explain=explain)
        if more is not None:
            facts |= {"queries like this": more, "fits": is_free or more > 0, "answered before": is_free}
        _write(to_json(facts, indent=2, allow_nan=False) + "\n", output)
        return
    text = plan.explain() if explain else str(plan)
    if is_free:
        text += "\n  the ledger has its answer: asking again costs nothing"
    elif more == 0:
        text += "\n  it does not fit the budget that is left"
    elif more is not None:
        text += f"\n  it fits: the budget allows about {more:,} {'query' if more == 1 else 'queries'} like it"
    _write(text + "\n", output)


def show_result(
    result: "Result", cost: list[str], form: str, output: Path | None, *, is_stored: bool = False
) -> None:
    """Show the result with its intervals, and for people what it cost.

    Args:
        result: the result.
        cost: what it cost, in a few lines.
        form: the format.
        output: the file to write; the terminal if omitted.
        is_stored: true if a ledger keeps the answer.
    """
    if output is None:
        _print_result(result, cost, form)
        return
    try:
        if form == "parquet":
            result.write(output)
        elif form in _BINARY:
            content = render_bytes(result, form)
            write_output(output, lambda part: part.write_bytes(content))
        else:
            write_output(output, render_text(result, form, cost))
    except Exception as problem:  # noqa: BLE001 - whatever fails, the answer is shown
        # It is paid for: better shown than lost.
        _print_result(result, cost, "table")
        raise _not_written(problem, is_stored=is_stored) from None
    print_line("written to ", escaped(output), to_stderr=True)
    for line in cost if form not in {"table", "md", "html"} else ():
        print_line(escaped(line), to_stderr=True)


def _not_written(problem: Exception, *, is_stored: bool) -> InvalidInput:
    why = problem.why if isinstance(problem, HubbubError) else f"{type(problem).__name__} while writing"
    again = (
        "ask the same query again with another --output: the ledger keeps the answer, and it costs nothing"
        if is_stored
        else "copy the answer from above: without a ledger nothing keeps it, and asking again costs again"
    )
    return InvalidInput("the answer is shown above, and its file was not written", why=why, fix=again)


def _print_result(result: "Result", cost: list[str], form: str) -> None:
    if form != "table":
        text = render_text(result, form, cost)
        if form in _JSON:
            text = escape_json(text)
        elif sys.stdout.isatty():  # a file has the keys as they are; a terminal would obey them
            text = escape_lines(text)
        write_stdout(text)
        return
    _print_table(result)
    if not len(result) and "nothing shown" not in result.facts:
        print_line("no rows: HAVING, or another condition on released values, removed all groups")
    elif not len(result) and is_quiet():  # otherwise the reason is among the lines below
        print_line("no rows: no group has enough units")
    for line in () if is_quiet() else cost:
        print_line(escaped(line))


def show_exact(result: "Result") -> None:
    """Show exact answers to the owner, marked so that nobody takes them for a release."""
    mark = escaped(" EXACT: not private, for the owner only; do not share ", "bold white on red")
    print_line(mark)
    _print_table(result, is_exact=True)
    print_line("These are the exact answers of the bounded query: values clamped, contributions bounded.")
    print_line(mark)


def _print_table(result: "Result", *, is_exact: bool = False) -> None:
    head, *rows = format_rows(result, is_exact=is_exact)
    if len(rows) > _MAX_TABLE_ROWS:
        write_stdout("\n".join([*align_rows([head, *rows]), ""]))
        return
    table = Table()
    names = iter(head)
    for column in result.columns:
        table.add_column(
            escaped(next(names)),
            justify="right" if column.low is not None or column.is_integer else "left",
            overflow="fold",
        )
        if column.low is not None:
            table.add_column(escaped(next(names)), overflow="fold")
    for row in rows:
        table.add_row(*map(escaped, row))
    make_console(width=None if sys.stdout.isatty() else _PIPE_WIDTH).print(table)


def _write(text: str, output: Path | None) -> None:
    if output is None:
        write_stdout(text)
    else:
        write_output(output, text)
