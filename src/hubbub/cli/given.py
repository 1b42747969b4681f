"""What people type after --bounds, --keys, --error, --type and --public: names with values."""

import re
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperCommand

from hubbub.cli.typed import above_zero, number
from hubbub.errors import InvalidInput
from hubbub.facts import key_texts, kind_of, typed_keys
from hubbub.tables.schema import Kind, Table

__all__ = ["Several", "bounds_in", "errors_in", "keys_in", "public_in", "types_in"]

_MANY = {"--bounds", "--keys", "--error", "--type", "--public"}
_PAIR = re.compile(r"[^\s=-][^\s=]*=")


class Several(TyperCommand):
    """A command whose options that name columns take several values: `--bounds cost=0:5000 age=0:120`."""

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override]
        """Repeat the option before each further NAME=VALUE; a query has a blank before its first `=`."""
        told: list[str] = []
        option, taken = "", 0
        for word in args:
            if word.startswith("--"):
                name, equals, _ = word.partition("=")
                option, taken = name if name in _MANY else "", int(bool(equals))
            elif option and taken and _PAIR.match(word):
                told.append(option)
            elif option and taken:
                option = ""
            told.append(word)
            taken += not word.startswith("--")
        return super().parse_args(ctx, told)


def bounds_in(given: Iterable[str], sql: str) -> dict[str, Any]:
    """Bounds of columns: `cost=0:5000`, or `cost=auto`; several with commas."""
    out: dict[str, Any] = {}
    for name, text in _pairs(given, "--bounds", "cost=0:5000"):
        if name.lower() not in sql.lower():
            raise InvalidInput(
                f"--bounds is given for {name!r}, which is not in the query",
                why="it would be passed over in silence",
                fix="correct the name, or leave it out",
            )
        low, colon, high = text.partition(":")
        if text.strip().lower() == "auto":
            out[name] = "auto"
        elif not colon:
            raise _not_as("--bounds", "cost=0:5000", "numbers are clamped between a low and a high end")
        else:
            ends = (f"the low end of --bounds {name}", f"the high end of --bounds {name}")
            out[name] = (number(low, ends[0]), number(high, ends[1]))
    return out


def errors_in(given: Iterable[str]) -> dict[str, Fraction]:
    """Wanted errors: `n=50`; several with commas."""
    pairs = _pairs(given, "--error", "n=50")
    return {name: above_zero(text, f"the --error of {name}") for name, text in pairs}


def types_in(given: Iterable[str]) -> dict[str, Kind]:
    """Types of columns: `cost=number`; several with commas."""
    return {name: kind_of(text) for name, text in _pairs(given, "--type", "cost=number")}


def public_in(given: Iterable[str]) -> dict[str, Path]:
    """Public tables: `towns=towns.csv`."""
    return {name: Path(text) for name, text in _pairs(given, "--public", "towns=towns.csv", comma=False)}


def keys_in(given: Iterable[str], tables: Mapping[str, Table]) -> dict[str, Sequence[Any]]:
    """Keys: `region=North,South`, `ward=1:12`, `town=@towns.txt`; each of its column's kind."""
    out: dict[str, Sequence[Any]] = {}
    for name, text in _pairs(given, "--keys", "region=North,South", comma=False):
        texts = key_texts(text, name)
        kind = _kind_of_column(name, tables) or _guessed(texts)
        out[name] = (
            texts if isinstance(texts, range) and kind is Kind.NUMBER else typed_keys(texts, name, kind)
        )
    return out


def _pairs(given: Iterable[str], option: str, example: str, *, comma: bool = True) -> list[tuple[str, str]]:
    """The names and their values; each name once."""
    out: dict[str, str] = {}
    for text in given:
        for part in text.split(",") if comma else [text]:
            name, equals, value = part.partition("=")
            if not equals or not name.strip() or not value.strip():
                raise _not_as(option, example, "it names a column or a table, and says what it is")
            if name.strip().lower() in {known.lower() for known in out}:
                raise InvalidInput(
                    f"{option} is given twice for {name.strip()!r}",
                    why="it would not be clear which one is meant",
                    fix="give it once",
                )
            out[name.strip()] = value
    return list(out.items())


def _not_as(option: str, example: str, why: str) -> InvalidInput:
    return InvalidInput(f"{option} is not as {example}", why=why, fix=f"write {option} {example}")


def _kind_of_column(name: str, tables: Mapping[str, Table]) -> Kind | None:
    """The kind of the column of this name, if there is one and it is the only one."""
    columns = [column for table in tables.values() for column in table.columns]
    kinds = {column.kind for column in columns if column.name.lower() == name.lower()}
    return kinds.pop() if len(kinds) == 1 else None


def _guessed(texts: Iterable[Any]) -> Kind:
    """Of keys that are computed, such as a month: numbers, if all of them are."""
    try:
        for text in texts:
            Decimal(text)
    except InvalidOperation:
        return Kind.TEXT
    return Kind.NUMBER
