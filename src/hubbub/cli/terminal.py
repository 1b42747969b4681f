"""What the shell prints: the one way to the terminal for everything that is not ours.

No text is read as markup, and no letter in it steers the terminal: what is bold is said by us, in code.
"""

import json
import sys
from enum import StrEnum
from typing import IO, Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from hubbub.escaping import escape, escape_json, escape_lines

__all__ = [
    "FormatOption",
    "OutputFormat",
    "be_quiet",
    "bold",
    "escaped",
    "is_quiet",
    "make_console",
    "print_error",
    "print_line",
    "print_note",
    "show_error_json",
    "show_json",
    "show_outcome",
    "to_json",
    "write_stdout",
]


class OutputFormat(StrEnum):
    """For people, or for programs."""

    TEXT = "text"
    JSON = "json"


FormatOption = Annotated[
    OutputFormat, typer.Option("--format", metavar="text|json", help="Output format; text if omitted.")
]
_settings = {"is_quiet": False}


def be_quiet(*, is_quiet: bool = True) -> None:
    """From now on, print answers and errors only."""
    _settings["is_quiet"] = is_quiet


def is_quiet() -> bool:
    """True if only answers and errors are printed."""
    return _settings["is_quiet"]


def make_console(
    *, to_stderr: bool = False, width: int | None = None, file: IO[str] | None = None
) -> Console:
    """A console that takes no text for markup; to_stderr is where answers for programs are not."""
    return Console(stderr=to_stderr, markup=False, emoji=False, highlight=False, width=width, file=file)


def escaped(text: object, style: str = "") -> Text:
    """A name, a key, a query: in one line, with what cannot be seen as escapes."""
    return Text(escape(text), style)


def bold(text: object) -> Text:
    """The same, to stand out."""
    return escaped(text, "bold")


def print_line(*parts: str | Text, to_stderr: bool = False) -> None:
    """Print our own words and, between them, those of others; remarks on stderr may be turned off."""
    if not (to_stderr and is_quiet()):
        _print(*parts, to_stderr=to_stderr)


def print_error(*parts: str | Text) -> None:
    """Print an error."""
    _print(*parts, to_stderr=True)


def _print(*parts: str | Text, to_stderr: bool) -> None:
    line = Text()
    for part in parts:
        line.append_text(part if isinstance(part, Text) else Text(escape_lines(part)))
    make_console(to_stderr=to_stderr).print(line, soft_wrap=True)


def print_note(text: str) -> None:
    """Print a remark beside the answer."""
    print_line("note: ", escaped(text), to_stderr=True)


def show_json(value: Any) -> None:
    """Print a value for programs."""
    write_stdout(to_json(value, indent=2, allow_nan=False) + "\n")


def show_outcome(form: OutputFormat, facts: dict[str, Any], *line: str | Text) -> None:
    """Print what was done: facts for programs, a line for people."""
    if form is OutputFormat.JSON:
        show_json(facts)
    else:
        print_line(*line)


def show_error_json(*, what: str, why: str, fix: str, parameter: str | None, code: int) -> None:
    """Print an error for programs, on stderr."""
    error = {"what": what, "why": why, "fix": fix, "parameter": parameter, "code": code}
    sys.stderr.write(to_json(error) + "\n")


def write_stdout(text: str) -> None:
    """Data for programs, as it is."""
    sys.stdout.write(text)


def to_json(value: Any, **how: Any) -> str:
    """JSON; also on a terminal nothing in it is more than text."""
    return escape_json(json.dumps(value, ensure_ascii=False, **how))
