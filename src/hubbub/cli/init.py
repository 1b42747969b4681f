"""`hubbub init`: a first hubbub.toml, by asking. Names and types are the schema's; no row is read for it."""

import json
import re
from collections.abc import Callable
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from hubbub.cli.options import above_zero, allowed, counted, number
from hubbub.cli.terminal import say, words
from hubbub.config import ROW, parse_keys, parse_kind, read_config, read_key_texts
from hubbub.engines.schema import Column, Kind, Table, parse_bounds, parse_group_keys
from hubbub.errors import HubbubError, InvalidInput
from hubbub.escaping import escape
from hubbub.output_files import CONFIG_NAME, write_declaration

__all__ = ["init"]

_BARE = re.compile(r"[A-Za-z0-9_-]+")
_TEXTS = {".csv", ".txt"}
"""Where types are not in the file: all columns are text until somebody says otherwise."""
_NOWHERE = "nowhere"
_NO_KEYS = {Kind.NUMBER, Kind.BOOLEAN, Kind.TIMESTAMP, Kind.OPAQUE}


def init(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="CSV or Parquet.")],
    unit: Annotated[
        str | None, typer.Option(metavar="COLUMN|row", help="Who is protected; asked for, unless said here.")
    ] = None,
    encoding: Annotated[
        str, typer.Option(metavar="NAME", help="Of a CSV file, as latin-1 or cp1252.")
    ] = "utf-8",
    yes: Annotated[bool, typer.Option("--yes", help="Ask nothing: declare no more than the unit.")] = False,
    force: Annotated[bool, typer.Option("--force", help=f"Overwrite a {CONFIG_NAME} that is there.")] = False,
) -> None:
    """Write a first hubbub.toml beside FILE: who is protected, and what is public of each column.

    Nothing is suggested from the rows: say what you know without looking at them.

    \b
    hubbub init visits.parquet
    hubbub init visits.parquet --unit patient --yes
    """  # noqa: D301 - the mark that keeps lines is a real \b
    path = file.parent / CONFIG_NAME
    if path.exists() and not force:
        raise InvalidInput(
            f"{path} is there already",
            why="what it declares would be lost",
            fix="edit it, or add --force to overwrite it",
        )
    table = _schema(file, encoding)
    asking = _Asking(yes)
    said = _declared(table, _protected(table, unit, asking), file, asking, encoding)
    text = "\n".join([*_general(asking, table.name), *said, ""])
    write_declaration(path, text)
    read_config(path)
    say("written: ", words(path), "; all of it is public, and yours to edit")
    query = f"SELECT COUNT(*) AS n FROM {_name(table.name)}"  # noqa: S608 - it is shown, not run
    say(words(f"next: hubbub plan {file} '{query}' --epsilon 1"))


def _schema(file: Path, encoding: str) -> Table:
    from hubbub.engines.duckdb import DuckDB
    from hubbub.engines.engine import TableSource

    name = file.stem
    engine = DuckDB({name: TableSource(file, encoding=encoding)})
    engine.close()
    return engine.tables[name]


class _Asking:
    """Questions at a terminal; with --yes each has its default for an answer."""

    def __init__(self, is_silent: bool) -> None:
        self.is_silent = is_silent

    def about(self, question: str, default: str, checked: Callable[[str], Any]) -> Any:
        """The answer, asked for until it can be used; nothing for an empty one without default."""
        while True:
            asked = escape(question)
            told = default if self.is_silent else typer.prompt(asked, default, show_default=bool(default))
            if not str(told).strip():
                return None
            try:
                return checked(str(told).strip())
            except HubbubError as problem:
                if self.is_silent:
                    raise
                say(f"  {problem}", aside=True)


def _protected(table: Table, unit: str | None, asking: _Asking) -> str:
    names = [column.name for column in table.columns]

    def checked(text: str) -> str:
        return ROW if text.lower() == ROW else table.find(text).name

    if unit is not None:
        return checked(unit)
    if asking.is_silent:
        raise InvalidInput(
            "--unit is missing",
            why="who is protected has no default",
            fix=f"add --unit with a column, or --unit {ROW} where one row is one person",
        )
    say("columns: ", words(", ".join(names)))
    while True:
        told = asking.about(
            f"Who is protected? A column, or '{ROW}' where one row is one person", "", checked
        )
        if told is not None:
            return str(told)


def _general(asking: _Asking, name: str) -> list[str]:
    """What is true of all tables."""
    lines = []
    people = asking.about("How many people are there, if that is public?", "", partial(counted, name="that"))
    if people is not None:
        lines.append(f"population = {people}")
    for option, of in (("rows_per_unit", "rows"), ("groups_per_unit", "groups")):
        limit = asking.about(
            f"How many {of} may one person count in an answer, if you know?",
            "",
            partial(counted, name="that"),
        )
        if limit is not None:
            lines.append(f"{option} = {limit}")
    epsilon = asking.about("The most that may be spent, ε", "", lambda text: _decimal(text, "ε"))
    if epsilon is not None:
        told = None if people is None else str(people)
        delta = asking.about("The most that may be spent, δ", "0", lambda text: _delta(text, told))
        where = asking.about(
            f"Where is it remembered what was spent? A file, postgresql://…, or '{_NOWHERE}'",
            f"{name}.ledger",
            str,
        )
        lines += [f"ledger = {_quoted(where)}"] if where != _NOWHERE else []
        lines += ["", "[budget]", f"epsilon = {epsilon}", f"delta = {delta}"]
    return [*lines, ""] if lines else []


def _declared(table: Table, unit: str, file: Path, asking: _Asking, encoding: str) -> list[str]:
    """The table's own entries."""
    types: dict[str, str] = {}
    bounds: dict[str, str] = {}
    keys: dict[str, str] = {}
    for column in table.columns:
        if column.name == unit:
            continue
        kind = _typed(column, file, asking)
        if kind is not column.kind:
            types[column.name] = _quoted(kind.value)
        if kind is Kind.NUMBER:
            ends = asking.about(
                f"{column.name}: between which numbers, as 0:100?",
                "",
                partial(_ends, name=column.name),
            )
            bounds.update({column.name: ends} if ends else {})
        elif kind not in _NO_KEYS:
            listed = asking.about(
                f"{column.name}: which values are there, as a,b,c or @file?",
                "",
                partial(_listed, name=column.name, kind=kind, folder=file.parent),
            )
            keys.update({column.name: listed} if listed else {})
    lines = [f"[tables.{_name(table.name)}]", f"path = {_quoted(file.name)}", f"unit = {_quoted(unit)}"]
    lines += [f"encoding = {_quoted(encoding)}"] if encoding != "utf-8" else []
    for part, entries in (("types", types), ("bounds", bounds), ("keys", keys)):
        if entries:
            lines += ["", f"[tables.{_name(table.name)}.{part}]"]
            lines += [f"{_name(column)} = {said}" for column, said in entries.items()]
    return lines


def _typed(column: Column, file: Path, asking: _Asking) -> Kind:
    if file.suffix.lower() not in _TEXTS:
        return column.kind
    told = asking.about(
        f"{column.name}: number, text, boolean, date or timestamp?", column.kind.value, parse_kind
    )
    return told if isinstance(told, Kind) else column.kind


def _ends(text: str, name: str) -> str:
    low, colon, high = text.partition(":")
    if not colon:
        raise InvalidInput("there is no colon", why="there are two ends", fix="write 0:100, or nothing")
    ends = [_decimal(end, f"an end of {name}", least=None) for end in (low, high)]
    parse_bounds([number(end, name) for end in ends], name)
    return f"[{', '.join(ends)}]"


def _listed(text: str, name: str, kind: Kind, folder: Path) -> str:
    texts = read_key_texts(text, name, folder)
    values = parse_group_keys(parse_keys(texts, name, kind), name, kind)
    if text.startswith("@"):
        return _quoted(text)
    return f"[{', '.join(_quoted(value) if kind is Kind.TEXT else str(value) for value in values)}]"


def _decimal(text: str, name: str, least: int | None = 0) -> str:
    """A number as TOML writes it; fractions have no such form."""
    value = number(text, name) if least is None else above_zero(text, name)
    if "/" in text:
        raise InvalidInput("it is a fraction", why="the file has decimals", fix=f"write {float(value):g}")
    return f"{Decimal(text.strip()).normalize():f}"


def _delta(text: str, people: str | None) -> str:
    allowed(text, people)
    return text if text == "0" else _decimal(text, "δ")


def _name(text: str) -> str:
    return text if _BARE.fullmatch(text) else _quoted(text)


def _quoted(text: Any) -> str:
    """A TOML string: JSON's, but for DEL, which TOML has escaped."""
    return json.dumps(str(text), ensure_ascii=False).replace("\x7f", "\\u007f")
