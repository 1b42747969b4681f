"""What all commands share: how errors are spelled in the shell, and what was typed is escaped."""

import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import metadata
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from hubbub.cli.terminal import escaped, print_line
from hubbub.errors import HubbubError
from hubbub.escaping import escape_lines

__all__ = ["make_app", "run"]

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
            problem.message = escape_lines(message)  # type: ignore[attr-defined]
        raise


def make_app(*commands: Callable[..., Any]) -> typer.Typer:
    """The app with these commands; others can be added."""
    app = typer.Typer(
        cls=_EscapingGroup,
        help="Differentially private queries, models and accounting.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
    )
    app.callback()(_hubbub)
    for command in commands:
        app.command()(command)
    return app


def _show_version(is_requested: bool) -> None:
    if is_requested:
        print_line(f"hubbub {metadata.version('hubbub')}")
        raise typer.Exit


def _hubbub(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_show_version, help="Show the version.")
    ] = False,
) -> None:
    """Differentially private queries, models and accounting."""


def run(app: typer.Typer) -> None:
    """Run the command line; show a HubbubError as text, not as a traceback."""
    try:
        app()
    except HubbubError as problem:
        what, why, fix = problem.render(lambda name, value: _spell(app, name, value))
        print_line(escaped(what, "red"), ": ", escaped(why), ".\nFix: ", escaped(fix), ".", to_stderr=True)
        raise SystemExit(2) from None


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
