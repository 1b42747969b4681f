"""All commands by name, each loaded only when it is run: to import engines takes longer than most answers."""

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import typer

from hubbub.cli.runner import make_app

__all__ = ["COMMANDS", "EXAMPLES", "Command", "load_app"]


@dataclass(frozen=True)
class Command:
    """A command, or a group of them: where it is, and the first line of its help."""

    home: str
    """Its module in `hubbub.cli`, and its name there."""
    summary: str
    """The first line of its help, by which it is listed before it is loaded."""
    takes_pairs: bool = False
    """True if options such as --bounds take several NAME=VALUE."""
    takes_negative_numbers: bool = False
    """True if −5 is an argument, not an option."""

    def load(self) -> Any:
        """Import it."""
        module, _, name = self.home.partition(":")
        return getattr(import_module(f"hubbub.cli.{module}"), name)


COMMANDS = {
    "query": Command(
        "query:query",
        "Answer a SQL query with differential privacy; every answer has a confidence interval.",
        takes_pairs=True,
    ),
    "plan": Command(
        "query:plan",
        "Show what a query would cost and how accurate it would be; no row is read, nothing is spent.",
        takes_pairs=True,
    ),
    "limits": Command(
        "query:limits",
        "Measure how many rows and groups units have, once: later queries find their limits at no cost.",
        takes_pairs=True,
    ),
    "synopsis": Command(
        "synopsis:synopsis",
        "Measure tables once, so that later questions cost nothing: `hubbub query FILE.synopsis SQL`.",
        takes_pairs=True,
    ),
    "synthesize": Command(
        "synopsis:synthesize",
        "Make synthetic rows: from a .synopsis at no cost, or from data for --epsilon and --delta.",
        takes_pairs=True,
    ),
    "functions": Command(
        "functions:functions",
        "List the SQL functions that are accepted: on rows, as aggregates, and over released values.",
    ),
    "init": Command(
        "init:init",
        "Write a first hubbub.toml beside FILE: the privacy unit, and public facts about each column.",
    ),
    "demo": Command(
        "demo:demo", "Run private SQL on a made-up hospital, then three examples of the textbook."
    ),
    "loss": Command(
        "loss:loss",
        "Show the privacy loss of composed mechanisms, with certified bounds; nothing is released.",
    ),
    "audit": Command(
        "audit:audit", "Search for evidence that a mechanism does not keep its ε, and bound ε from below."
    ),
    "budget": Command("ledger:budget", "Show what was spent; open accounts and grant budgets."),
    "ledger": Command(
        "ledger:ledger",
        "List, verify, sign, back up and restore a ledger: `hubbub ledger verify --ledger visits.ledger`.",
    ),
    "report": Command(
        "report:report",
        "Write or verify the privacy label: `hubbub report --ledger visits.ledger --output label.html`.",
    ),
    "serve": Command(
        "serve:serve",
        "Serve datasets to a team: PostgreSQL clients, REST and a page, over one budget. See docs/serve.md.",
    ),
    "mcp": Command(
        "serve:serve_assistant",
        "Let an assistant on this machine ask, by the Model Context Protocol over stdio, as a user.",
    ),
    "user": Command("serve:user", "People who may use a server: hubbub user add ada --role analyst"),
    "release": Command(
        "single_mechanisms:release",
        "Release one number with noise: `hubbub release 42 --epsilon 0.5`.",
        takes_negative_numbers=True,
    ),
    "error": Command(
        "single_mechanisms:error", "Show the error of an ε, or the ε of an error; nothing is released."
    ),
    "choose": Command(
        "single_mechanisms:choose",
        "Select the candidate with the largest count privately; only its name is released.",
    ),
    "toss": Command(
        "single_mechanisms:toss", "Answer a yes/no question by randomized response: `hubbub toss true`."
    ),
}
"""In the order of the help."""

EXAMPLES = """hubbub demo                                      a made-up hospital: plan, answers, budget
hubbub init visits.csv                           declare who is protected, once
hubbub plan visits.csv "SELECT COUNT(*) AS n FROM visits" --epsilon 1
hubbub query visits.csv "SELECT COUNT(*) AS n FROM visits" --epsilon 1
hubbub budget                                    what was spent, and what is left"""
"""The text that a bare `hubbub` shows."""


def load_app(*names: str, has_options: bool = True) -> typer.Typer:
    """The app with all commands, of which only these can be run; the others are listed.

    Without options of its own it starts faster: typer loads pydantic for those that were not typed.
    """
    app = make_app(has_options=has_options)
    for name, command in COMMANDS.items():
        if name not in names:
            app.command(name=name, help=command.summary)(_make_placeholder())
            continue
        loaded_command = command.load()
        if isinstance(loaded_command, typer.Typer):
            app.add_typer(loaded_command, name=name)
            continue
        options: dict[str, Any] = {}
        if command.takes_pairs:
            options["cls"] = import_module("hubbub.cli.options").MultiValueCommand
        if command.takes_negative_numbers:
            options["context_settings"] = {"ignore_unknown_options": True}
        app.command(name=name, **options)(loaded_command)
    return app


def _make_placeholder() -> Callable[[], None]:
    def placeholder() -> None:
        """Stand for a command that is not loaded."""

    return placeholder
