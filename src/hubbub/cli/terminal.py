"""What the shell prints: the one way to the terminal for everything that is not ours.

No text is read as markup, and no letter in it steers the terminal: what is bold is said by us, in code.
"""

import json
import sys
from typing import IO, Any

from rich.console import Console
from rich.text import Text

from hubbub.escaping import escape, escape_json, escape_lines

__all__ = ["bold", "for_programs", "put", "say", "screen", "words"]


def screen(*, aside: bool = False, width: int | None = None, file: IO[str] | None = None) -> Console:
    """A console that takes no text for markup; aside is where answers for programs are not."""
    return Console(stderr=aside, markup=False, emoji=False, highlight=False, width=width, file=file)


def words(text: object, style: str = "") -> Text:
    """A name, a key, a query: in one line, with what cannot be seen as escapes."""
    return Text(escape(text), style)


def bold(text: object) -> Text:
    """The same, to stand out."""
    return words(text, "bold")


def say(*parts: str | Text, aside: bool = False) -> None:
    """Print our own words and, between them, those of others."""
    line = Text()
    for part in parts:
        line.append_text(part if isinstance(part, Text) else Text(escape_lines(part)))
    screen(aside=aside).print(line, soft_wrap=True)


def put(text: str) -> None:
    """Data for programs, as it is."""
    sys.stdout.write(text)


def for_programs(value: Any, **how: Any) -> str:
    """JSON; also on a terminal nothing in it is more than text."""
    return escape_json(json.dumps(value, ensure_ascii=False, **how))
