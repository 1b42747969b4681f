"""The page docs/cli.md, made from the commands themselves: `python -m hubbub.cli.reference > docs/cli.md`."""

import inspect
import sys
from collections.abc import Iterator
from typing import Any

import typer

from hubbub.cli.app import app

__all__ = ["reference"]

_HEAD = """# The command line

Made by `python -m hubbub.cli.reference > docs/cli.md`; a test compares it with the commands. The guide to
asking tables is [queries](queries.md).

Numbers are typed as 0.5, 1/2 or 1e-6. An error is one sentence, and the exit code is 2. Colours and progress
are for terminals only; `NO_COLOR=1` takes the colours away. `hubbub --install-completion` teaches your shell
the names.
"""


def reference() -> str:
    """The page as Markdown: each command with its examples, arguments and options."""
    root: Any = typer.main.get_command(app)
    parts = [_HEAD, _options(root)]
    for name, command in _all(root, "hubbub"):
        parts += [f"## {name}\n", _told(command), _options(command)]
    return "\n".join(part for part in parts if part)


def _all(group: Any, name: str) -> Iterator[tuple[str, Any]]:
    """Each command, those of a group after it."""
    for short, command in group.commands.items():
        yield f"{name} {short}", command
        if hasattr(command, "commands"):
            yield from _all(command, f"{name} {short}")


def _told(command: Any) -> str:
    """The docstring, its examples as they are typed."""
    words, _, examples = inspect.cleandoc(command.help or "").partition("\b\n")
    shown = f"\n```\n{examples.strip()}\n```\n" if examples else ""
    return f"{words.strip()}\n{shown}"


def _options(command: Any) -> str:
    rows = [_row(parameter) for parameter in command.params if not getattr(parameter, "hidden", False)]
    return "\n".join(["| | |", "|---|---|", *rows, ""]) if rows else ""


def _row(parameter: Any) -> str:
    value = _value(parameter)
    if parameter.param_type_name == "argument":
        name = f"`{value}`"
    else:
        name = ", ".join(f"`{option}{f' {value}' if value else ''}`" for option in parameter.opts)
    said = " ".join((parameter.help or "").split())
    again = " May be repeated." if getattr(parameter, "multiple", False) else ""
    # "table, unless told": of what is shown as a default only what a person could type.
    default = parameter.default if isinstance(parameter.default, str) and parameter.default else ""
    usual = f" Default: {default}." if default else ""
    return f"| {name.replace('|', chr(92) + '|')} | {said}{again}{usual} |"


def _value(parameter: Any) -> str:
    if getattr(parameter, "is_flag", False):
        return ""
    return str(parameter.metavar or parameter.name.upper())


if __name__ == "__main__":
    sys.stdout.write(reference())
