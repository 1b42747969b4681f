"""Plans and answers as they are shown or written: tables for people, JSON, CSV, Parquet and pictures."""

import json
import math
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from hubbub.cli.options import round_up_text
from hubbub.cli.terminal import for_programs, put, say, screen, words
from hubbub.errors import HubbubError, InvalidInput
from hubbub.escaping import escape
from hubbub.output_files import check_output_path, write_output

if TYPE_CHECKING:
    from hubbub.sql.plan import Plan
    from hubbub.sql.post_processing import ResultColumn
    from hubbub.sql.result import Result

__all__ = ["Form", "PlanForm", "cell", "form_of", "show_answers", "show_exact", "show_plan", "watching"]

_ROWS_IN_A_GRID = 500
"""Longer tables are lines of plain text: they are for a pager, not for a look."""
_WIDE = 1000


class Form(StrEnum):
    """How answers are written."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"
    PARQUET = "parquet"
    SVG = "svg"


class PlanForm(StrEnum):
    """How a plan is written."""

    TABLE = "table"
    JSON = "json"


_ENDINGS = {
    ".json": "json",
    ".csv": "csv",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".svg": "svg",
    ".txt": "table",
}


def form_of(asked: str | None, output: Path | None, kinds: type[StrEnum]) -> str:
    """The form that was asked for, or else the one that the file's ending names.

    An output that cannot be written is refused here: an answer that cannot be kept is paid for in vain.
    """
    known = {ending: form for ending, form in _ENDINGS.items() if form in {kind.value for kind in kinds}}
    ending = "" if output is None else output.suffix.lower()
    if output is not None:
        check_output_path(output, ["", *known])
    named = known.get(ending)
    form = asked or named or "table"
    if named is not None and named != form:
        raise InvalidInput(
            f"the output ends in {ending}, and --format is {form}",
            why="a program that opens it would not understand it",
            fix="leave --format out, or give the file another ending",
        )
    if form == "parquet" and output is None:
        raise InvalidInput(
            "--format parquet is given without --output",
            why="it is not a text",
            fix="add --output FILE.parquet",
        )
    return form


@contextmanager
def watching() -> Iterator[Callable[[str], None]]:
    """Shows on a terminal what is being done."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda _: None
        return
    with console.status("opening") as status:
        yield status.update


def show_plan(plan: "Plan", form: str, output: Path | None, *, explain: bool) -> None:
    """What it will cost and how far it will be off."""
    if form == "json":
        shown = {
            **plan.label(),
            "errors": {shown.name: said for shown, said in plan.errors},
            "notes": [note.strip() for note in plan.notes()],
            **({"explain": plan.explain().splitlines()} if explain else {}),
        }
        _write(for_programs(shown, indent=2, allow_nan=False) + "\n", output)
    else:
        _write((plan.explain() if explain else str(plan)) + "\n", output)


def show_answers(answers: "Result", cost: list[str], form: str, output: Path | None) -> None:
    """The answers with their intervals, and for people what they cost."""
    if output is None:
        _shown_here(answers, cost, form)
        return
    try:
        if form == "parquet":
            answers.write(output)
        else:
            _write(_text(answers, cost, form), output)
    except HubbubError:
        # They are paid for: better shown than lost.
        _shown_here(answers, cost, "table")
        raise
    say("written to ", words(output), aside=True)
    for line in cost if form != "table" else ():
        say(words(line), aside=True)


def _shown_here(answers: "Result", cost: list[str], form: str) -> None:
    if form != "table":
        _write(_text(answers, cost, form), None)
        return
    _grid(answers)
    if not len(answers):
        say("no rows: no key has enough units, or none is left by HAVING")
    for line in cost:
        say(words(line))


def _text(answers: "Result", cost: list[str], form: str) -> str:
    if form == "svg":
        return answers.svg()
    if form == "csv":
        return answers.to_csv()
    if form == "json":
        return for_programs(json.loads(answers.to_json()), indent=2) + "\n"
    return "\n".join([*_lines(_rows(answers)), "", *map(escape, cost)]) + "\n"


def show_exact(answers: "Result") -> None:
    """The owner's preview, so marked that nobody takes it for a release."""
    mark = words(" EXACT: not private, for the owner's eyes only; do not pass it on ", "bold white on red")
    say(mark)
    _grid(answers, is_exact=True)
    say("These are the bounded query's answers: values clamped, and nobody above the limits.")
    say(mark)


def cell(value: Any) -> str:
    r"""A key as it is shown: it may come from the data, so nothing in it may move a terminal's cursor.

    A number is no quantity there, but a name, as that of a year: its digits stand together.

    >>> cell(2024.0), cell(None), cell("a" + chr(27) + "[2J")
    ('2024', 'NULL', 'a\\x1b[2J')
    """
    if value is None:
        return "NULL"
    if isinstance(value, float):
        return _quantity(value).replace(",", "")
    return escape(value)


def _quantity(value: float) -> str:
    return _number(value, 0.0 if value.is_integer() else abs(value) / 1000)


def _rows(answers: "Result", *, is_exact: bool = False) -> list[list[str]]:
    """The table in words, its head first."""
    sure = float(answers.facts.get("confidence", 0.95))
    head: list[str] = []
    columns: list[list[str]] = []
    for column in answers.columns:
        head.append(cell(column.name))
        if column.low is None or column.high is None:
            # Exact values have no intervals either; they are no objects, as keys are.
            shown = _quantity if is_exact and column.values.dtype != object else cell
            columns.append([shown(value) for value in column.values.tolist()])
        else:
            head.append(f"{100 * sure:g} % interval")
            columns += _with_interval(column)
    return [head, *(list(row) for row in zip(*columns, strict=True))]


def _with_interval(column: "ResultColumn") -> list[list[str]]:
    values, intervals = [], []
    assert column.low is not None
    assert column.high is not None
    for value, low, high in zip(column.values, column.low, column.high, strict=True):
        width = (float(high) - float(low)) / 2
        values.append(_number(float(value), width))
        intervals.append(f"{_number(float(low), width)} … {_number(float(high), width)}")
    return [values, intervals]


def _number(value: float, width: float) -> str:
    """To the digit that the interval leaves in doubt, and one more."""
    if math.isnan(value):
        return "NULL"
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    digits = 0 if not math.isfinite(width) or width <= 0 else max(0, 1 - math.floor(math.log10(width)))
    return f"{value:,.{min(digits, 12)}f}"


def _grid(answers: "Result", *, is_exact: bool = False) -> None:
    head, *rows = _rows(answers, is_exact=is_exact)
    if len(rows) > _ROWS_IN_A_GRID:
        put("\n".join([*_lines([head, *rows]), ""]))
        return
    table = Table()
    names = iter(head)
    for column in answers.columns:
        table.add_column(
            words(next(names)), justify="left" if column.low is None else "right", overflow="fold"
        )
        if column.low is not None:
            table.add_column(words(next(names)), overflow="fold")
    for row in rows:
        table.add_row(*map(words, row))
    screen(width=None if sys.stdout.isatty() else _WIDE).print(table)


def _lines(rows: list[list[str]]) -> list[str]:
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
    return [
        "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip() for row in rows
    ]


def cost_of(plan: "Plan", label: Any) -> list[str]:
    """What was spent, on whom, and how, in a few lines."""
    delta = f", δ = {round_up_text(plan.delta)}" if plan.delta else ""
    rows = label.get("rows per unit")
    found = " (found privately)" if label.get("rows per unit found privately") else ""
    limits = [f"at most {rows} rows per unit{found}"] if rows and plan.query.is_keyed else []
    if label.get("groups per unit"):
        limits.append(f"at most {label['groups per unit']} groups per unit")
    noise = f"chosen by {label['mechanism']}" if plan.query.is_top else f"{label['mechanism']} noise"
    parts = [noise, f"keys {label['keys']}" if plan.query.keys else "", *limits]
    price = f"ε = {round_up_text(plan.epsilon)}{delta} for {plan.unit}"
    spent = f"spent: {price}"
    if label.get("asked before"):
        when = f"as of {label['as of']}, version {label['version']} of the data"
        spent = f"asked before, {when}: {price} was spent then, no more now"
    return [
        spent,
        f"how: {'; '.join(part for part in parts if part)}",
        *([f"intervals: they cover {label['interval covers']}"] if limits and not plan.query.is_top else []),
        *(f"bounding: units above a limit: {above}" for above in [label.get("units above a limit")] if above),
        *(str(note) for note in label.get("notes", ())),
    ]


def _write(text: str, output: Path | None) -> None:
    if output is None:
        put(text)
    else:
        write_output(output, text)
