"""Prints plans and results to the terminal, or writes them to a file in the chosen format."""

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from hubbub.cli.terminal import escaped, make_console, print_line, to_json, write_stdout
from hubbub.errors import HubbubError, InvalidInput
from hubbub.escaping import escape
from hubbub.output_files import check_output_path, write_output
from hubbub.report.tables import align_rows, describe_plan, format_rows

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
    JSON = "json"
    CSV = "csv"
    PARQUET = "parquet"
    SVG = "svg"


class PlanFormat(StrEnum):
    """Formats of a plan."""

    TABLE = "table"
    JSON = "json"


_SUFFIXES = {
    ".json": "json",
    ".csv": "csv",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".svg": "svg",
    ".txt": "table",
}


def choose_format(choice: str | None, output: Path | None, formats: type[StrEnum]) -> str:
    """Return the format that was asked for, or else the one that the file's suffix names.

    An output that cannot be written is refused here, before anything is charged.
    """
    known = {suffix: form for suffix, form in _SUFFIXES.items() if form in {each.value for each in formats}}
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
        )
    if form == "parquet" and output is None:
        raise InvalidInput(
            "--format parquet is given without --output",
            why="Parquet is binary",
            fix="add --output FILE.parquet",
        )
    return form


@contextmanager
def show_status() -> Iterator[Callable[[str], None]]:
    """Show the current step on a terminal."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda _: None
        return
    with console.status("opening") as status:
        yield status.update


def show_plan(plan: "AnyPlan", form: str, output: Path | None, *, explain: bool, more: int | None) -> None:
    """Show what a query will cost, how large its errors will be, and how many like it the budget allows."""
    if form == "json":
        facts = describe_plan(plan, explain=explain) | ({} if more is None else {"queries like this": more})
        _write(to_json(facts, indent=2, allow_nan=False) + "\n", output)
        return
    text = plan.explain() if explain else str(plan)
    if more is not None:
        text += f"\n  the budget allows about {more:,} {'query' if more == 1 else 'queries'} like this one"
    _write(text + "\n", output)


def show_result(result: "Result", cost: list[str], form: str, output: Path | None) -> None:
    """Show the result with its intervals, and for people what it cost."""
    if output is None:
        _print_result(result, cost, form)
        return
    try:
        if form == "parquet":
            result.write(output)
        else:
            _write(_render(result, cost, form), output)
    except HubbubError:
        # It is paid for: better shown than lost.
        _print_result(result, cost, "table")
        raise
    print_line("written to ", escaped(output), to_stderr=True)
    for line in cost if form != "table" else ():
        print_line(escaped(line), to_stderr=True)


def _print_result(result: "Result", cost: list[str], form: str) -> None:
    if form != "table":
        _write(_render(result, cost, form), None)
        return
    _print_table(result)
    if not len(result):
        print_line("no rows: no group has enough units, or HAVING removed all")
    for line in cost:
        print_line(escaped(line))


def _render(result: "Result", cost: list[str], form: str) -> str:
    if form == "svg":
        return result.svg()
    if form == "csv":
        return result.to_csv()
    if form == "json":
        return to_json(json.loads(result.to_json()), indent=2) + "\n"
    return "\n".join([*align_rows(format_rows(result)), "", *map(escape, cost)]) + "\n"


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
            escaped(next(names)), justify="left" if column.low is None else "right", overflow="fold"
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
