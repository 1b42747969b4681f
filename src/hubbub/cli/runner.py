"""What all commands share: how errors are spelled in the shell, and what was typed is escaped."""

import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from hubbub.cli.terminal import be_quiet, escaped, print_error, print_line, show_error_json
from hubbub.errors import (
    AccessDenied,
    BudgetExceeded,
    EngineFailed,
    Halted,
    HubbubError,
    LedgerFailed,
    Refused,
    Unavailable,
    Unsupported,
)
from hubbub.escaping import escape_lines

__all__ = ["EXIT_CODES", "make_app", "run", "show_examples"]

EXIT_CODES: dict[type[HubbubError], int] = {
    BudgetExceeded: 4,
    Refused: 3,
    Unsupported: 3,
    Halted: 3,
    AccessDenied: 3,
    Unavailable: 5,
    EngineFailed: 5,
    LedgerFailed: 5,
}
"""Exit codes of errors; the first that fits. All others are 2, as errors of the command line are."""

_OPTIONS = {
    "times": "--steps",
    "types": "--type",
}
"""Options that are not named as the library's parameters are."""
_QUOTES = "'\""


class _EscapingGroup(TyperGroup):
    """Usage errors quote what was typed: escape it, so that it cannot control the terminal."""

    def make_context(self, *arguments: Any, **more: Any) -> Any:
        with _escaped_messages():
            return super().make_context(*arguments, **more)

    def invoke(self, ctx: Any) -> Any:
        with _escaped_messages():
            return super().invoke(ctx)


@contextmanager
def _escaped_messages() -> Iterator[None]:
    try:
        yield
    except Exception as problem:
        message = getattr(problem, "message", None)
        if isinstance(message, str) and hasattr(problem, "exit_code"):
            parameter = getattr(getattr(problem, "param", None), "name", "")
            problem.message = escape_lines(_explain_usage(message, parameter))  # type: ignore[attr-defined]
        raise


def _explain_usage(message: str, parameter: str) -> str:
    """The parser's message without pydantic's words, and with what to do."""
    if not message and parameter == "sql":
        return 'Write a file and a query in quotes: visits.csv "SELECT COUNT(*) AS n FROM visits".'
    if message.startswith("Got unexpected extra argument"):
        return f"{message}. A query is one argument: put it in quotes. A list is one, too: a,b,c."
    return message.removeprefix("Value error, ")


def make_app(*, has_options: bool = True) -> typer.Typer:
    """The app without commands, with or without options of its own, such as --help and --show-completion."""
    app = typer.Typer(
        cls=_EscapingGroup,
        add_help_option=has_options,
        add_completion=has_options,
        help="Differentially private queries, models and accounting.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
    )
    app.callback()(_hubbub)
    return app


def _show_version(is_requested: bool) -> None:
    if is_requested:
        from importlib import metadata

        print_line(f"hubbub {metadata.version('hubbub')}")
        raise typer.Exit


def _hubbub(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_show_version, help="Show the version.")
    ] = False,
    quiet: Annotated[
        bool, typer.Option("--quiet", help="Print answers and errors only; also after a command.")
    ] = False,
) -> None:
    """Differentially private queries, models and accounting."""
    del version
    if quiet:
        be_quiet()


def run(app: typer.Typer, words: Sequence[str]) -> None:
    """Run the command line; show a HubbubError as text or as JSON, not as a traceback.

    The exit code is 0 if all was done, 2 if the command line or its input cannot be used, 3 if it is refused
    because it could not be protected, 4 if the budget is exhausted, 5 if the engine or the ledger failed.
    """
    is_json = any(pair == ("--format", "json") for pair in pairwise(words)) or "--format=json" in words
    try:
        result = app(args=list(words), prog_name="hubbub", standalone_mode=not is_json)
    except HubbubError as problem:
        _show_error(problem, app, is_json=is_json)
        raise SystemExit(_exit_code(problem)) from None
    except Exception as problem:
        if not is_json or not hasattr(problem, "format_message"):
            raise
        show_error_json(
            what=escape_lines(problem.format_message()),
            why="the command line cannot be understood",
            fix=f"see hubbub {words[0]} --help",
            parameter=getattr(getattr(problem, "param", None), "name", None),
            code=2,
        )
        raise SystemExit(2) from None
    raise SystemExit(result if isinstance(result, int) else 0)


def _exit_code(problem: HubbubError) -> int:
    return next((code for kind, code in EXIT_CODES.items() if isinstance(problem, kind)), 2)


def _show_error(problem: HubbubError, app: typer.Typer, *, is_json: bool) -> None:
    what, why, fix = problem.render(lambda name, value: _spell(app, name, value))
    if is_json:
        show_error_json(what=what, why=why, fix=fix, parameter=problem.parameter, code=_exit_code(problem))
        return
    print_error(escaped(what, "red"), ": ", escaped(why), ".\nFix: ", escaped(fix), ".")


def show_examples() -> None:
    """Show what a bare `hubbub` shows."""
    from hubbub.cli.commands import EXAMPLES

    print_line("Differentially private queries, models and accounting. For example:\n")
    for line in EXAMPLES.splitlines():
        print_line(f"  {line}")
    print_line("\nhubbub --help lists all commands, hubbub COMMAND --help explains one.")


def _spell(app: typer.Typer, name: str, value: str | None) -> str:
    """Spell a parameter of the library as an option: `{delta=1e-6}` is `--delta 1e-6`."""
    if name == "open_account":
        return f"run `hubbub budget open {shlex.quote(str(value))} --unit … --epsilon … --ledger …` first"
    option = _OPTIONS.get(name, f"--{name.replace('_', '-')}")
    if option not in _list_options(typer.main.get_command(app)):
        return name if value is None else f"{name}={value}"
    if value is None or value == "True":
        return option
    return f"{option} {'row' if value == 'Unit.row()' else value.strip(_QUOTES)}"


def _list_options(command: Any) -> set[str]:
    """Return the options of a command and of all commands below it."""
    own = {option for parameter in command.params for option in parameter.opts}
    return own.union(*map(_list_options, getattr(command, "commands", {}).values()))
