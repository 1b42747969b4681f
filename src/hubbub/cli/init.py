"""`hubbub init`: writes a first hubbub.toml by asking; names and types are the schema's, no row is read."""

import json
import re
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from hubbub.cli.options import (
    parse_above_zero,
    parse_allowed_delta,
    parse_count,
    parse_names,
    parse_number,
    parse_separator,
    parse_types,
)
from hubbub.cli.terminal import FormatOption, OutputFormat, escaped, print_line, show_outcome
from hubbub.config import read_config
from hubbub.config_values import ROW, drop_password, parse_keys, parse_kind, read_key_texts
from hubbub.engine_lookup import is_database, is_server, open_connection, open_engine
from hubbub.engines.file_endings import find_format, name_of_file
from hubbub.engines.schema import Column, Kind, Table, parse_bounds, parse_group_keys
from hubbub.errors import HubbubError, InvalidInput
from hubbub.escaping import escape
from hubbub.output_files import CONFIG_NAME, write_declaration
from hubbub.report.registry import ABOUT

__all__ = ["init"]

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_LAST_WORDS = {
    Kind.TIMESTAMP: "time timestamp datetime moment at ts",
    Kind.DATE: "date day dob birthday born",
    Kind.BOOLEAN: "flag active enabled",
    Kind.NUMBER: "age cost price amount fee fare tip total sum count number num qty quantity salary income "
    "wage weight height length size distance miles km score rating rate percent pct year month hour hours "
    "minutes seconds days duration lat lon latitude longitude balance points value",
}
"""The last words of names, by the kind that they suggest to the owner."""
_FIRST_WORDS_OF_BOOLEANS = {"is", "has", "was", "can", "did"}
_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_NO_LEDGER = "none"
_JSON = {"JSON", "JSON lines"}
_KEYLESS_KINDS = {Kind.NUMBER, Kind.BOOLEAN, Kind.TIMESTAMP, Kind.OPAQUE}


def init(
    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE",
            help="CSV, Parquet, a folder of Parquet files, a DuckDB database, or postgresql://…",
        ),
    ],
    tables: Annotated[
        list[str] | None,
        typer.Option("--table", metavar="NAME", help="Table of a database; repeatable."),
    ] = None,
    unit: Annotated[
        str | None, typer.Option(metavar="COLUMN|row", help="The privacy unit; asked for if omitted.")
    ] = None,
    encoding: Annotated[
        str, typer.Option(metavar="NAME", help="Encoding of a CSV file, such as latin-1.")
    ] = "utf-8",
    separator: Annotated[
        str | None,
        typer.Option(
            metavar="CHAR", help="Of a CSV file: , ; | or tab; as the header line shows if omitted."
        ),
    ] = None,
    partitions: Annotated[
        str | None,
        typer.Option(metavar="COL[,COL]", help="Columns in the names of a folder's folders."),
    ] = None,
    types: Annotated[
        list[str] | None,
        typer.Option(
            "--type",
            metavar="COL=TYPE",
            help="Type of a column: number, text, boolean, date or timestamp; JSON has only these columns.",
        ),
    ] = None,
    synopsis: Annotated[
        bool, typer.Option("--synopsis", help="Ask for what synopses and synthetic rows need, too.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Ask nothing: declare only the unit.")] = False,
    force: Annotated[bool, typer.Option("--force", help=f"Overwrite an existing {CONFIG_NAME}.")] = False,
    form: FormatOption = OutputFormat.TEXT,
) -> None:
    """Write a first hubbub.toml beside FILE: the privacy unit, and public facts about each column.

    Nothing is suggested from the rows: answer with what you know without looking at them. Types of CSV
    columns are suggested by their names. For a server it is written here; the password stays out of it.

    \b
    hubbub init visits.parquet
    hubbub init visits.parquet --unit patient --yes
    hubbub init visits.ndjson --type patient=text,cost=number
    hubbub init postgresql://analyst@db/clinic --table visits --unit patient
    """  # noqa: D301 - the mark that keeps lines is a real \b
    if form is OutputFormat.JSON and not yes:
        raise InvalidInput(
            "--format json is given without --yes",
            why="a program cannot answer questions",
            fix="add --yes and --unit",
            parameter="yes",
        )
    path = (Path() if is_server(file) else Path(file).parent) / CONFIG_NAME
    if path.exists() and not force:
        raise InvalidInput(
            f"{path} exists already",
            why="what it declares would be lost",
            fix="edit it, or add --force to overwrite it",
        )
    how: dict[str, Any] = {
        "encoding": encoding,
        "separator": None if separator is None else parse_separator(separator),
        "partitions": tuple(parse_names(partitions or "")),
        "types": parse_types(types or ()),
    }
    prompt = _Prompt(yes)
    if find_format(file) in _JSON and not how["types"] and not yes:
        question = "JSON has no header. Columns, as patient=text,cost=number?"
        how["types"] = prompt.ask(question, "", lambda text: parse_types([text])) or {}
    if find_format(file) in _JSON and unit is not None and unit.lower() != ROW:
        how["types"].setdefault(unit, Kind.TEXT)
    source = _Source.of(file, how)
    schemas = source.read_schemas(tables or [])
    first = next(iter(schemas.values()))
    person = _ask_unit(first, unit, prompt)
    entries = [
        line
        for name in schemas
        for line in _ask_columns(schemas[name], name, person, source, prompt, for_synopsis=synopsis)
    ]
    general = _ask_general(prompt, first.name)
    text = "\n".join([*source.top, *general, *_ask_about(prompt), *entries, ""])
    write_declaration(path, text)
    read_config(path)
    advice = "; all of it is public, edit it as you like"
    show_outcome(form, {"declaration": str(path)}, "written: ", escaped(path), advice)
    if form is OutputFormat.JSON:
        return
    query = f"SELECT COUNT(*) AS n FROM {_toml_key(first.name)}"  # noqa: S608 - it is shown, not run
    target = path if source.is_database else file
    print_line(escaped(f"next: hubbub plan {target} '{query}' --epsilon 1"))


@dataclass(frozen=True)
class _Source:
    """What is declared: a file, or tables of a database."""

    file: str
    how: Mapping[str, Any]
    """How files are read."""
    is_database: bool

    @classmethod
    def of(cls, file: str, how: Mapping[str, Any]) -> "_Source":
        return cls(file, how, is_database(file))

    @property
    def top(self) -> list[str]:
        """The lines that say where the tables are, if not in a file."""
        if not self.is_database:
            return []
        if is_server(self.file):
            entry, where = ("url" if "postgres" in self.file[:8] else "spark"), drop_password(self.file)
        else:
            entry, where = "database", Path(self.file).name
        return [f"{entry} = {_toml_string(where)}", ""]

    def read_schemas(self, names: list[str]) -> dict[str, Table]:
        """The columns of each table, by its name where it is; no row is read."""
        from hubbub.engines.engine import TableSource

        if self.is_database and not names:
            raise InvalidInput(
                "no {table} is named", why="a database may have many", fix='pass {table="visits"}'
            )
        if len(names) > 1 and not self.is_database:
            raise InvalidInput("--table names several tables", why="FILE is one table", fix="name one")
        tables = {name.rpartition(".")[2]: name for name in names} or {name_of_file(self.file): self.file}
        rows = tables if self.is_database else dict.fromkeys(tables, self.file)
        sources = {name: TableSource(where, **self.how) for name, where in rows.items()}
        engine = open_engine(self.file, sources, open_connection(self.file))
        try:
            return {tables[name]: table for name, table in engine.tables.items()}
        finally:
            engine.close()

    def lines_of(self, table: str, name: str) -> list[str]:
        """The lines that say where a table is, and how it is read."""
        if self.is_database:
            return [] if table == name else [f"table = {_toml_string(table)}"]
        lines = [f"path = {_toml_string(Path(self.file).name)}"]
        encoding, separator = self.how["encoding"], self.how["separator"]
        lines += [f"encoding = {_toml_string(encoding)}"] if encoding != "utf-8" else []
        lines += [f"separator = {_toml_string(separator)}"] if separator is not None else []
        if self.how["partitions"]:
            lines.append(f"partitions = [{', '.join(map(_toml_string, self.how['partitions']))}]")
        return lines

    @property
    def has_types(self) -> bool:
        """True if columns have types of their own; otherwise all are texts until the owner says more."""
        return self.is_database or find_format(self.file) not in {"CSV", *_JSON}

    @property
    def declared_types(self) -> set[str]:
        """The columns of which --type says the type, in lower case."""
        return {name.lower() for name in self.how["types"]}

    @property
    def folder(self) -> Path:
        """The folder that paths are relative to."""
        return Path() if is_server(self.file) else Path(self.file).parent


class _Prompt:
    """Questions at a terminal; with --yes each is answered by its default."""

    def __init__(self, is_silent: bool) -> None:
        self.is_silent = is_silent

    def ask(self, question: str, default: str, checked: Callable[[str], Any]) -> Any:
        """Ask until the answer is valid; return None for an empty one."""
        while True:
            end = " " if question.endswith("?") else ": "
            answer = (
                default
                if self.is_silent
                else typer.prompt(escape(question), default, show_default=bool(default), prompt_suffix=end)
            )
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


def _ask_about(prompt: _Prompt) -> list[str]:
    """Ask for what only the owner knows, for the label of what is published."""
    question = "State what the label of your releases should say?"
    if prompt.is_silent or not typer.confirm(question, default=False):
        return []
    lines = []
    for name, meaning in ABOUT.items():
        text = prompt.ask(f"about.{name}: {meaning}?", "", str)
        lines += [f"{name} = {_toml_string(text)}"] if text is not None else []
    return ["[about]", *lines, ""] if lines else []


def _ask_columns(
    table: Table, where: str, unit: str, source: _Source, prompt: _Prompt, *, for_synopsis: bool
) -> list[str]:
    """Ask for the table's own entries."""
    kinds: dict[str, Kind] = {}
    types: dict[str, str] = {}
    bounds: dict[str, str] = {}
    keys: dict[str, str] = {}
    for column in table.columns:
        if column.name == unit:
            if column.name.lower() in source.declared_types and column.kind is not Kind.TEXT:
                types[unit] = _toml_string(column.kind.value)
            continue
        kind = kinds[column.name] = _ask_type(column, source, prompt)
        if kind is not column.kind or column.name.lower() in source.declared_types:
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
                partial(_parse_listed, name=column.name, kind=kind, folder=source.folder),
            )
            keys.update({column.name: listed} if listed else {})
    lines = [
        f"[tables.{_toml_key(table.name)}]",
        *source.lines_of(where, table.name),
        f"unit = {_toml_string(unit)}",
    ]
    for part, entries in (("types", types), ("bounds", bounds), ("keys", keys)):
        if entries:
            lines += ["", f"[tables.{_toml_key(table.name)}.{part}]"]
            lines += [f"{_toml_key(column)} = {value}" for column, value in entries.items()]
    if for_synopsis:
        lines += ["", f"[tables.{_toml_key(table.name)}.synopsis]"]
        declared = _ask_synopsis(table, kinds, {*keys, *bounds}, prompt)
        lines += [f"{name} = {_toml_value(value)}" for name, value in declared.items()]
    return [*lines, ""]


def _ask_synopsis(
    table: Table, kinds: Mapping[str, Kind], declared: Container[str], prompt: _Prompt
) -> dict[str, Any]:
    """Ask for the declarations of synopses: nothing is suggested from the rows.

    Columns that nothing is known about, such as a row number, are left out: the others are listed.

    Args:
        table: the public schema.
        kinds: the kind of each column but the unit's.
        declared: the columns with public keys or bounds.
        prompt: asks.
    """
    unlisted = [name for name, kind in kinds.items() if kind is Kind.TEXT and name not in declared]

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
    cuts = {}
    for name, kind in kinds.items():
        if kind is Kind.DATE and name not in declared:
            question = (
                f"{name}: dates where bins begin, and where the last ends, such as 2024-01-01:2025-01-01?"
            )
            days = prompt.ask(question, "", _parse_days)
            cuts.update({name: days} if days else {})
    entries["cuts"] = cuts or None
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
    selected = entries.get("private_keys") or ()
    # Of booleans the type says which values there are.
    used = [
        name
        for name, kind in kinds.items()
        if name in declared or name in selected or name in cuts or kind is Kind.BOOLEAN
    ]
    if used and len(used) < len(kinds):
        entries = {"columns": used, **entries}
    return {name: value for name, value in entries.items() if value is not None}


def _ask_all(prompt: _Prompt, question: str, checked: Callable[[str], Any]) -> list[Any] | None:
    """Ask until nothing is answered."""
    answers = []
    while (answer := prompt.ask(question, "", checked)) is not None:
        answers.append(answer)
    return answers or None


def _parse_days(text: str) -> list[str]:
    try:
        days = sorted({date.fromisoformat(day.strip()) for day in text.split(":")})
    except ValueError:
        days = []
    if len(days) < 2:
        raise InvalidInput(
            "there are not two dates",
            why="bins lie between them",
            fix="write 2024-01-01:2025-01-01, or nothing",
        )
    return [day.isoformat() for day in days]


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


def _toml_value(value: Any) -> str:
    if isinstance(value, Mapping):
        return (
            "{ " + ", ".join(f"{_toml_key(key)} = {_toml_value(each)}" for key, each in value.items()) + " }"
        )
    if isinstance(value, list):
        return f"[{', '.join(map(_toml_value, value))}]"
    return _toml_string(value) if isinstance(value, str) else str(value)


def _ask_type(column: Column, source: _Source, prompt: _Prompt) -> Kind:
    if source.has_types or column.name.lower() in source.declared_types:
        return column.kind
    # Without a person to confirm it, a wrong guess would make every value NULL.
    guess = column.kind if prompt.is_silent else _suggest_kind(column.name)
    answer = prompt.ask(f"{column.name}: number, text, boolean, date or timestamp?", guess.value, parse_kind)
    return answer if isinstance(answer, Kind) else column.kind


def _suggest_kind(name: str) -> Kind:
    """The kind that a column's name suggests; text if none. Nothing else is known here.

    >>> [_suggest_kind(name).value for name in ("visit_date", "totalCost", "is_member", "region")]
    ['date', 'number', 'boolean', 'text']
    """
    first, *_, last = [word.lower() for word in _WORDS.findall(name)] * 2 or ["", ""]
    if first in _FIRST_WORDS_OF_BOOLEANS and last != first:
        return Kind.BOOLEAN
    return next((kind for kind, words in _LAST_WORDS.items() if last in words.split()), Kind.TEXT)


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
