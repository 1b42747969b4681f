"""`hubbub init`: writes a first hubbub.toml by asking; names and types are the schema's, no row is read."""

import json
import re
from collections.abc import Callable
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from hubbub.cli.options import parse_above_zero, parse_allowed_delta, parse_count, parse_number
from hubbub.cli.terminal import escaped, print_line
from hubbub.config import read_config
from hubbub.config_values import ROW, parse_keys, parse_kind, read_key_texts
from hubbub.engines.schema import Column, Kind, Table, parse_bounds, parse_group_keys
from hubbub.errors import HubbubError, InvalidInput
from hubbub.escaping import escape
from hubbub.output_files import CONFIG_NAME, write_declaration

__all__ = ["init"]

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_UNTYPED_SUFFIXES = {".csv", ".txt"}
"""Files without types: all columns are text until the owner says otherwise."""
_NO_LEDGER = "none"
_KEYLESS_KINDS = {Kind.NUMBER, Kind.BOOLEAN, Kind.TIMESTAMP, Kind.OPAQUE}


def init(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="CSV or Parquet.")],
    unit: Annotated[
        str | None, typer.Option(metavar="COLUMN|row", help="The privacy unit; asked for if omitted.")
    ] = None,
    encoding: Annotated[
        str, typer.Option(metavar="NAME", help="Encoding of a CSV file, such as latin-1.")
    ] = "utf-8",
    yes: Annotated[bool, typer.Option("--yes", help="Ask nothing: declare only the unit.")] = False,
    force: Annotated[bool, typer.Option("--force", help=f"Overwrite an existing {CONFIG_NAME}.")] = False,
) -> None:
    """Write a first hubbub.toml beside FILE: the privacy unit, and public facts about each column.

    Nothing is suggested from the rows: answer with what you know without looking at them.

    \b
    hubbub init visits.parquet
    hubbub init visits.parquet --unit patient --yes
    """  # noqa: D301 - the mark that keeps lines is a real \b
    path = file.parent / CONFIG_NAME
    if path.exists() and not force:
        raise InvalidInput(
            f"{path} exists already",
            why="what it declares would be lost",
            fix="edit it, or add --force to overwrite it",
        )
    table = _read_schema(file, encoding)
    prompt = _Prompt(yes)
    entries = _ask_columns(table, _ask_unit(table, unit, prompt), file, prompt, encoding)
    text = "\n".join([*_ask_general(prompt, table.name), *entries, ""])
    write_declaration(path, text)
    read_config(path)
    print_line("written: ", escaped(path), "; all of it is public, edit it as you like")
    query = f"SELECT COUNT(*) AS n FROM {_toml_key(table.name)}"  # noqa: S608 - it is shown, not run
    print_line(escaped(f"next: hubbub plan {file} '{query}' --epsilon 1"))


def _read_schema(file: Path, encoding: str) -> Table:
    from hubbub.engines.duckdb import DuckDB
    from hubbub.engines.engine import TableSource

    name = file.stem
    engine = DuckDB({name: TableSource(file, encoding=encoding)})
    engine.close()
    return engine.tables[name]


class _Prompt:
    """Questions at a terminal; with --yes each is answered by its default."""

    def __init__(self, is_silent: bool) -> None:
        self.is_silent = is_silent

    def ask(self, question: str, default: str, checked: Callable[[str], Any]) -> Any:
        """Ask until the answer is valid; return None for an empty one."""
        while True:
            prompt = escape(question)
            answer = default if self.is_silent else typer.prompt(prompt, default, show_default=bool(default))
            if not str(answer).strip():
                return None
            try:
                return checked(str(answer).strip())
            except HubbubError as problem:
                if self.is_silent:
                    raise
                print_line(f"  {problem}", to_stderr=True)


def _ask_unit(table: Table, unit: str | None, prompt: _Prompt) -> str:
    names = [column.name for column in table.columns]

    def checked(text: str) -> str:
        return ROW if text.lower() == ROW else table.find(text).name

    if unit is not None:
        return checked(unit)
    if prompt.is_silent:
        raise InvalidInput(
            "--unit is missing",
            why="the privacy unit has no default",
            fix=f"add --unit with a column, or --unit {ROW} if each row is one person",
        )
    print_line("columns: ", escaped(", ".join(names)))
    while True:
        answer = prompt.ask(f"Privacy unit: a column, or '{ROW}' if each row is one person?", "", checked)
        if answer is not None:
            return str(answer)


def _ask_general(prompt: _Prompt, name: str) -> list[str]:
    """Ask for what holds for all tables."""
    lines = []
    people = prompt.ask("Number of people, if it is public?", "", partial(parse_count, name="that"))
    if people is not None:
        lines.append(f"population = {people}")
    for option, of in (("rows_per_unit", "rows"), ("groups_per_unit", "groups")):
        limit = prompt.ask(
            f"Maximum {of} per privacy unit, if you know it?",
            "",
            partial(parse_count, name="that"),
        )
        if limit is not None:
            lines.append(f"{option} = {limit}")
    epsilon = prompt.ask("Total budget, ε", "", lambda text: _decimal(text, "ε"))
    if epsilon is not None:
        answer = None if people is None else str(people)
        delta = prompt.ask("Total budget, δ", "0", lambda text: _delta(text, answer))
        where = prompt.ask(
            f"Ledger: a file, postgresql://…, or '{_NO_LEDGER}'?",
            f"{name}.ledger",
            str,
        )
        lines += [f"ledger = {_toml_string(where)}"] if where != _NO_LEDGER else []
        lines += ["", "[budget]", f"epsilon = {epsilon}", f"delta = {delta}"]
    return [*lines, ""] if lines else []


def _ask_columns(table: Table, unit: str, file: Path, prompt: _Prompt, encoding: str) -> list[str]:
    """Ask for the table's own entries."""
    types: dict[str, str] = {}
    bounds: dict[str, str] = {}
    keys: dict[str, str] = {}
    for column in table.columns:
        if column.name == unit:
            continue
        kind = _ask_type(column, file, prompt)
        if kind is not column.kind:
            types[column.name] = _toml_string(kind.value)
        if kind is Kind.NUMBER:
            ends = prompt.ask(
                f"{column.name}: public bounds, such as 0:100?",
                "",
                partial(_parse_ends, name=column.name),
            )
            bounds.update({column.name: ends} if ends else {})
        elif kind not in _KEYLESS_KINDS:
            listed = prompt.ask(
                f"{column.name}: public keys, such as a,b,c or @file?",
                "",
                partial(_parse_listed, name=column.name, kind=kind, folder=file.parent),
            )
            keys.update({column.name: listed} if listed else {})
    lines = [
        f"[tables.{_toml_key(table.name)}]",
        f"path = {_toml_string(file.name)}",
        f"unit = {_toml_string(unit)}",
    ]
    lines += [f"encoding = {_toml_string(encoding)}"] if encoding != "utf-8" else []
    for part, entries in (("types", types), ("bounds", bounds), ("keys", keys)):
        if entries:
            lines += ["", f"[tables.{_toml_key(table.name)}.{part}]"]
            lines += [f"{_toml_key(column)} = {value}" for column, value in entries.items()]
    return lines


def _ask_type(column: Column, file: Path, prompt: _Prompt) -> Kind:
    if file.suffix.lower() not in _UNTYPED_SUFFIXES:
        return column.kind
    answer = prompt.ask(
        f"{column.name}: number, text, boolean, date or timestamp?", column.kind.value, parse_kind
    )
    return answer if isinstance(answer, Kind) else column.kind


def _parse_ends(text: str, name: str) -> str:
    low, colon, high = text.partition(":")
    if not colon:
        raise InvalidInput("there is no colon", why="bounds are two numbers", fix="write 0:100, or nothing")
    ends = [_decimal(end, f"an end of {name}", least=None) for end in (low, high)]
    parse_bounds([parse_number(end, name) for end in ends], name)
    return f"[{', '.join(ends)}]"


def _parse_listed(text: str, name: str, kind: Kind, folder: Path) -> str:
    texts = read_key_texts(text, name, folder)
    values = parse_group_keys(parse_keys(texts, name, kind), name, kind)
    if text.startswith("@"):
        return _toml_string(text)
    return f"[{', '.join(_toml_string(value) if kind is Kind.TEXT else str(value) for value in values)}]"


def _decimal(text: str, name: str, least: int | None = 0) -> str:
    """A number as TOML writes it; fractions have no such form."""
    value = parse_number(text, name) if least is None else parse_above_zero(text, name)
    if "/" in text:
        raise InvalidInput("it is a fraction", why="the file has decimals", fix=f"write {float(value):g}")
    return f"{Decimal(text.strip()).normalize():f}"


def _delta(text: str, people: str | None) -> str:
    parse_allowed_delta(text, people)
    return text if text == "0" else _decimal(text, "δ")


def _toml_key(text: str) -> str:
    return text if _BARE_KEY.fullmatch(text) else _toml_string(text)


def _toml_string(text: Any) -> str:
    """A TOML string: JSON's, but for DEL, which TOML has escaped."""
    return json.dumps(str(text), ensure_ascii=False).replace("\x7f", "\\u007f")
