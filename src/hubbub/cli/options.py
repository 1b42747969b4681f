"""Options as people type them: exact numbers, and names with values after --bounds, --keys, --error, …

What only opens data needs is imported where it is used: every command starts through here.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from hubbub.errors import InvalidInput
from hubbub.numbers import (
    format_nearest,
    invalid_number,
    parse_below_one,
    parse_integer,
    parse_nonnegative,
    parse_positive,
    parse_probability,
    parse_rational,
)

if TYPE_CHECKING:
    from hubbub.engines.schema import Kind, Table

__all__ = [
    "LargeEpsilon",
    "MultiValueCommand",
    "Population",
    "parse_above_zero",
    "parse_allowed_delta",
    "parse_bounds",
    "parse_confidence",
    "parse_count",
    "parse_delta",
    "parse_errors",
    "parse_group_keys",
    "parse_names",
    "parse_number",
    "parse_pairs",
    "parse_public_tables",
    "parse_separator",
    "parse_share",
    "parse_types",
]

Population = Annotated[
    str | None,
    typer.Option(metavar="N", help="Public number of people: δ must be below 1/N."),
]
LargeEpsilon = Annotated[
    bool,
    typer.Option("--allow-large-epsilon", help="Allow an ε above 20, which protects almost nobody."),
]


def parse_number(text: str, name: str) -> Fraction:
    """Parse a decimal, or a fraction of two, as an exact number.

    >>> parse_number("256/60000", "rate"), parse_number("1e-5", "delta")
    (Fraction(8, 1875), Fraction(1, 100000))
    """
    top, bar, bottom = text.partition("/")
    above, below = _parse_decimal(top, name), _parse_decimal(bottom, name) if bar else Fraction(1)
    if not below:
        raise _not_a_number(name)
    return parse_rational(above / below, name)


def parse_above_zero(text: str, name: str) -> Fraction:
    """Parse a number above zero."""
    return parse_positive(parse_number(text, name), name)


def parse_count(text: str, name: str) -> int:
    """Parse an integer of at least 1."""
    try:
        return parse_integer(parse_number(text, name), name)
    except InvalidInput as problem:
        if not problem.what.endswith("is not a number"):
            raise
        raise invalid_number(name, "is not a number", why="it is a count", fix="write it as 10") from None


def parse_share(text: str, name: str) -> Fraction:
    """Parse a number from 0 to 1."""
    typed = parse_nonnegative(parse_number(text, name), name)
    if typed > 1:
        raise invalid_number(name, "is above 1", why="it is a probability", fix="pass {} between 0 and 1")
    return typed


def parse_confidence(confidence: str) -> Fraction:
    """Parse a confidence level; suggest 0.95 for 95."""
    typed = parse_number(confidence, "confidence")
    if 1 < typed < 100:
        raise InvalidInput(
            f"--confidence is {format_nearest(typed)}",
            why="it is a probability, strictly between 0 and 1",
            fix=f"pass a fraction of 1 (did you mean {format_nearest(typed / 100)}?)",
            parameter="confidence",
        )
    return parse_probability(typed, "confidence")


def parse_delta(delta: str) -> Fraction:
    """Parse a δ; the library checks that it may be spent."""
    return parse_below_one(parse_number(delta, "delta"), "delta")


def parse_allowed_delta(delta: str, population: str | None, *, promised: bool = True) -> Fraction:
    """Parse a δ and check that it may be spent; any δ is allowed where nothing is promised."""
    from hubbub.accounting.budget import refuse_large_delta

    typed = parse_delta(delta)
    if promised or population is not None:
        refuse_large_delta(typed, None if population is None else parse_count(population, "population"))
    return typed


def _parse_decimal(text: str, name: str) -> Fraction:
    try:
        typed = Decimal(text.strip())
    except InvalidOperation:
        raise _not_a_number(name) from None
    if not typed.is_finite():
        raise _not_a_number(name)
    # This refuses 1e999999999 before it is written out.
    return parse_rational(typed, name)


def _not_a_number(name: str) -> InvalidInput:
    return invalid_number(
        name, "is not a number", why="it must be one finite number", fix="write it as 0.5, 1/2 or 1e-6"
    )


# Names with values: --bounds, --keys, --error, --type and --public

_MULTIPLE = {"--table", "--bounds", "--keys", "--error", "--type", "--public", "--cuts", "--step", "--range"}
_PAIR = re.compile(r"[^\s=-][^\s=]*=")


class MultiValueCommand(TyperCommand):
    """A command with options that take several values: `--bounds cost=0:5000 age=0:120`."""

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override]
        """Repeat the option before each further NAME=VALUE; SQL has a blank before its first `=`."""
        repeated: list[str] = []
        option, values = "", 0
        for word in args:
            if word.startswith("--"):
                name, equals, _ = word.partition("=")
                option, values = name if name in _MULTIPLE else "", int(bool(equals))
            elif option and values and _PAIR.match(word):
                repeated.append(option)
            elif option and values:
                option = ""
            repeated.append(word)
            values += not word.startswith("--")
        return super().parse_args(ctx, repeated)


def parse_bounds(texts: Iterable[str], sql: str) -> dict[str, Any]:
    """Parse bounds of columns: `cost=0:5000`, or `cost=auto`; several with commas."""
    out: dict[str, Any] = {}
    for name, text in parse_pairs(texts, "--bounds", "cost=0:5000"):
        if name.lower() not in sql.lower():
            raise InvalidInput(
                f"--bounds is given for {name!r}, which is not in the query",
                why="it would be ignored",
                fix="correct the name, or leave it out",
            )
        low, colon, high = text.partition(":")
        if text.strip().lower() == "auto":
            out[name] = "auto"
        elif not colon:
            raise _wrong_form(
                "--bounds", "cost=0:5000", "values are clamped between a lower and an upper bound"
            )
        else:
            ends = (f"the lower bound of {name}", f"the upper bound of {name}")
            out[name] = tuple(map(_parse_end, (low, high), ends))
    return out


def _parse_end(text: str, name: str) -> Any:
    """Parse an end of bounds: a number, or a date such as 2026-11-15."""
    if text.strip().count("-") == 2 and text.strip()[:4].isdecimal():
        try:
            return date.fromisoformat(text.strip())
        except ValueError:
            raise InvalidInput(
                f"{name} is not a date", why="it is written as one", fix="write it as 2026-11-15"
            ) from None
    return parse_number(text, name)


def parse_errors(texts: Iterable[str]) -> dict[str, Fraction]:
    """Parse target errors: `n=50`; several with commas."""
    pairs = parse_pairs(texts, "--error", "n=50")
    return {name: parse_above_zero(text, f"the --error of {name}") for name, text in pairs}


def parse_types(texts: Iterable[str]) -> dict[str, "Kind"]:
    """Parse types of columns: `cost=number`; several with commas."""
    from hubbub.config_values import parse_kind

    return {name: parse_kind(text) for name, text in parse_pairs(texts, "--type", "cost=number")}


def parse_public_tables(texts: Iterable[str], *, in_database: bool = False) -> dict[str, str | Path]:
    """Parse public tables: `towns=towns.csv`; of a database, `towns=public.towns`."""
    pairs = parse_pairs(texts, "--public", "towns=towns.csv", comma=False)
    return {name: text if in_database else Path(text) for name, text in pairs}


def parse_names(text: str) -> list[str]:
    """Parse names with commas between them: `year,region`."""
    return [name.strip() for name in text.split(",") if name.strip()]


def parse_separator(text: str) -> str:
    r"""Parse what separates fields: the character itself, or its name.

    >>> parse_separator("tab"), parse_separator(";")
    ('\t', ';')
    """
    words = {"tab": "\t", "\\t": "\t", "comma": ",", "semicolon": ";", "bar": "|", "pipe": "|"}
    return words.get(text.lower(), text)


def parse_group_keys(options: Iterable[str], tables: Mapping[str, "Table"]) -> dict[str, Sequence[Any]]:
    """Parse group keys: `region=North,South`, `ward=1:12`, `town=@towns.txt`, each of its column's type."""
    from hubbub.config_values import parse_keys, read_key_texts
    from hubbub.engines.schema import Kind, WrittenKey

    out: dict[str, Sequence[Any]] = {}
    for name, text in parse_pairs(options, "--keys", "region=North,South", comma=False):
        texts = read_key_texts(text, name)
        kind = _kind_of_column(name, tables)
        if isinstance(texts, range) and kind in {Kind.NUMBER, None}:
            out[name] = texts
        elif kind is None:  # an expression's: only the query knows its type
            out[name] = [WrittenKey(each) for each in texts]
        else:
            out[name] = parse_keys(texts, name, kind)
    return out


def parse_pairs(
    texts: Iterable[str], option: str, example: str, *, comma: bool = True
) -> list[tuple[str, str]]:
    """Parse names with their values; each name once.

    Args:
        texts: NAME=VALUE each, or several with commas.
        option: the option's name, for errors.
        example: a correct value, for errors.
        comma: False if commas belong to values.
    """
    out: dict[str, str] = {}
    for text in texts:
        for part in text.split(",") if comma else [text]:
            name, equals, value = part.partition("=")
            if not equals or not name.strip() or not value.strip():
                raise _wrong_form(option, example, "it is a name and a value")
            if name.strip().lower() in {known.lower() for known in out}:
                raise InvalidInput(
                    f"{option} is given twice for {name.strip()!r}",
                    why="it is not clear which one is meant",
                    fix="give it once",
                )
            out[name.strip()] = value
    return list(out.items())


def _wrong_form(option: str, example: str, why: str) -> InvalidInput:
    return InvalidInput(f"{option} is not of the form {example}", why=why, fix=f"write {option} {example}")


def _kind_of_column(name: str, tables: Mapping[str, "Table"]) -> "Kind | None":
    """Return the type of the column of this name, if exactly one table has it."""
    columns = [column for table in tables.values() for column in table.columns]
    kinds = {column.kind for column in columns if column.name.lower() == name.lower()}
    return kinds.pop() if len(kinds) == 1 else None
