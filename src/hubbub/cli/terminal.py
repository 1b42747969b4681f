"""What the shell prints: the one way to the terminal for everything that is not ours.

No text is read as markup, and no letter in it steers the terminal: what is bold is said by us, in code.
"""

import json
import sys
from typing import IO, Any

from rich.console import Console
from rich.text import Text

from hubbub.escaping import escape, escape_json, escape_lines

__all__ = ["bold", "escaped", "make_console", "print_line", "print_note", "to_json", "write_stdout"]


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
    """Print our own words and, between them, those of others."""
    line = Text()
    for part in parts:
        line.append_text(part if isinstance(part, Text) else Text(escape_lines(part)))
    make_console(to_stderr=to_stderr).print(line, soft_wrap=True)


def print_note(text: str) -> None:
    """Print a remark beside the answer."""
    print_line("note: ", escaped(text), to_stderr=True)


def write_stdout(text: str) -> None:
    """Data for programs, as it is."""
    sys.stdout.write(text)


def to_json(value: Any, **how: Any) -> str:
    """JSON; also on a terminal nothing in it is more than text."""
    return escape_json(json.dumps(value, ensure_ascii=False, **how))
