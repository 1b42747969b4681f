"""What `hubbub init --synopsis` asks for: public facts that synopses and synthetic rows need."""

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from hubbub.cli.options import parse_above_zero
from hubbub.engines.schema import Kind, Table
from hubbub.errors import InvalidInput

__all__ = ["ask_synopsis"]


class Prompt(Protocol):
    """Questions at a terminal."""

    def ask(self, question: str, default: str, checked: Callable[[str], Any]) -> Any:
        """Ask until the answer is valid; return None for an empty one."""


def ask_synopsis(
    table: Table, kinds: Mapping[str, Kind], unlisted: list[str], prompt: Prompt
) -> dict[str, Any]:
    """Ask for the declarations of synopses: nothing is suggested from the rows.

    Args:
        table: the public schema.
        kinds: the kind of each column but the unit's.
        unlisted: texts without public keys.
        prompt: asks.
    """

    def parse_columns(text: str) -> list[str]:
        return [table.find(name.strip()).name for name in text.split(",")]

    entries: dict[str, Any] = {}
    steps = {}
    for name, kind in kinds.items():
        if kind is Kind.NUMBER:
            question = f"{name}: values are multiples of a step, such as 1?"
            step = prompt.ask(question, "", _parse_step)
            steps.update({name: step} if step is not None else {})
    entries["steps"] = steps or None
    if unlisted:
        question = f"Columns with keys to select privately, of {', '.join(unlisted)}?"
        entries["private_keys"] = prompt.ask(question, "", parse_columns)
    entries["nulls"] = prompt.ask("Columns with a cell for NULL?", "", parse_columns)
    entries["other"] = prompt.ask("Columns with a cell for keys that are not declared?", "", parse_columns)
    entries["focus"] = prompt.ask(
        "The column that people will group by?", "", lambda text: table.find(text).name
    )
    entries["impossible"] = _ask_all(prompt, "A condition that no row satisfies, such as age < 10?", str)
    functions = _ask_all(
        prompt, "A column that is a public function of another, such as cat of code: a1=a, b1=b?",
        lambda text: _parse_function(text, table),
    )  # fmt: skip
    entries["functions"] = dict(functions) if functions else None
    return {name: value for name, value in entries.items() if value is not None}


def _ask_all(prompt: Prompt, question: str, checked: Callable[[str], Any]) -> list[Any] | None:
    """Ask until nothing is answered."""
    answers = []
    while (answer := prompt.ask(question, "", checked)) is not None:
        answers.append(answer)
    return answers or None


def _parse_step(text: str) -> int | float:
    step = float(parse_above_zero(text, "the step"))
    return int(step) if step.is_integer() else step


def _parse_function(text: str, table: Table) -> tuple[str, dict[str, Any]]:
    head, colon, listed = text.partition(":")
    target, word, source = head.partition(" of ")
    values = [pair.partition("=") for pair in listed.split(",")]
    if not colon or not word or not all(equal for _, equal, _ in values):
        raise InvalidInput(
            "the function cannot be read",
            why="it names a column, its source column, and all values",
            fix="write cat of code: a1=a, b1=b; or nothing",
        )
    mapping = {key.strip(): value.strip() for key, _, value in values}
    return table.find(target.strip()).name, {"of": table.find(source.strip()).name, "table": mapping}
