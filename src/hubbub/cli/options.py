"""Numbers as people type them and read them: exact on the way in, rounded to the safe side on the way out."""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal, InvalidOperation
from fractions import Fraction
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperCommand

from hubbub.accounting import refuse_large_delta
from hubbub.config import parse_keys, parse_kind, read_key_texts
from hubbub.engines.schema import Kind, Table
from hubbub.errors import InvalidInput
from hubbub.numbers import (
    as_displayed,
    parse_below_one,
    parse_integer,
    parse_nonnegative,
    parse_positive,
    parse_probability,
    parse_rational,
)

__all__ = [
    "Several",
    "above_zero",
    "allowed",
    "bounds_in",
    "chance",
    "counted",
    "errors_in",
    "keys_in",
    "nearest",
    "number",
    "public_in",
    "round_down_text",
    "round_up_text",
    "share",
    "sure",
    "types_in",
]

_DIGITS = 12


def number(text: str, name: str) -> Fraction:
    """The exact number that was typed: a decimal, or a fraction of two.

    >>> number("256/60000", "rate"), number("1e-5", "delta")
    (Fraction(8, 1875), Fraction(1, 100000))
    """
    top, bar, bottom = text.partition("/")
    above, below = _decimal(top, name), _decimal(bottom, name) if bar else Fraction(1)
    if not below:
        raise _no_number(name)
    return parse_rational(above / below, name)


def above_zero(text: str, name: str) -> Fraction:
    """A number above zero that was typed."""
    return parse_positive(number(text, name), name)


def counted(text: str, name: str) -> int:
    """A whole number of 1 or more that was typed."""
    return parse_integer(number(text, name), name)


def share(text: str, name: str) -> Fraction:
    """A number from 0 to 1 that was typed."""
    typed = parse_nonnegative(number(text, name), name)
    if typed > 1:
        raise InvalidInput(f"{name} is above 1", why="it is a probability", fix=f"pass {name} within 0 and 1")
    return typed


def sure(confidence: str) -> Fraction:
    """The confidence that was typed; a number such as 95 was meant in hundredths."""
    typed = number(confidence, "--confidence")
    if 1 < typed < 100:
        raise InvalidInput(
            f"--confidence is {nearest(typed)}",
            why="it is a probability, strictly between 0 and 1",
            fix=f"pass it as a part of 1 (did you mean {nearest(typed / 100)}?)",
        )
    return parse_probability(typed, "--confidence")


def chance(delta: str) -> Fraction:
    """A δ that was typed; whether it may be spent, the library says."""
    return parse_below_one(number(delta, "--delta"), "--delta")


def allowed(delta: str, population: str | None, *, promised: bool = True) -> Fraction:
    """The δ that was typed, if the library lets it be spent; where nothing is promised, any."""
    typed = chance(delta)
    if promised or population is not None:
        refuse_large_delta(typed, None if population is None else counted(population, "--population"))
    return typed


def _decimal(text: str, name: str) -> Fraction:
    try:
        typed = Decimal(text.strip())
    except InvalidOperation:
        raise _no_number(name) from None
    if not typed.is_finite():
        raise _no_number(name)
    # This refuses 1e999999999 before it is written out.
    return parse_rational(typed, name)


def _no_number(name: str) -> InvalidInput:
    return InvalidInput(
        f"{name} is not a number", why="it must be one finite number", fix="write it as 0.5, 1/2 or 1e-6"
    )


def round_up_text(bound: float | Fraction, digits: int = _DIGITS) -> str:
    """An upper bound as it is shown: never below what it is.

    >>> round_up_text(Fraction(1, 3)), round_up_text(0.1), round_up_text(1e-20), round_up_text(math.inf)
    ('0.333333333334', '0.1', '1e-20', '∞')
    """
    return _shown(bound, Context(prec=digits, rounding=ROUND_CEILING))


def round_down_text(bound: float | Fraction, digits: int = _DIGITS) -> str:
    """A lower bound as it is shown: never above what it is.

    >>> round_down_text(Fraction(1, 3)), round_down_text(Fraction(2, 3), 3), round_down_text(0.0)
    ('0.333333333333', '0.666', '0')
    """
    return _shown(bound, Context(prec=digits, rounding=ROUND_FLOOR))


def nearest(value: Fraction, digits: int = _DIGITS) -> str:
    """A number that is no bound.

    >>> nearest(Fraction(2, 3), 3)
    '0.667'
    """
    return _shown(value, Context(prec=digits))


def _shown(bound: float | Fraction, context: Context) -> str:
    if bound == math.inf:
        return "∞"
    # The least that it may be taken for: below it for what is rounded down, and what was promised otherwise.
    exact = as_displayed(bound) if isinstance(bound, float) else bound
    near = context.divide(Decimal(exact.numerator), Decimal(exact.denominator)).normalize()
    if not near or -5 < near.adjusted() < 15:
        return f"{near:f}"
    digits, _, power = f"{near:e}".partition("e")
    return f"{digits}e{int(power)}"


# What people type after --bounds, --keys, --error, --type and --public: names with values.

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
    return {name: parse_kind(text) for name, text in _pairs(given, "--type", "cost=number")}


def public_in(given: Iterable[str]) -> dict[str, Path]:
    """Public tables: `towns=towns.csv`."""
    return {name: Path(text) for name, text in _pairs(given, "--public", "towns=towns.csv", comma=False)}


def keys_in(given: Iterable[str], tables: Mapping[str, Table]) -> dict[str, Sequence[Any]]:
    """Keys: `region=North,South`, `ward=1:12`, `town=@towns.txt`; each of its column's kind."""
    out: dict[str, Sequence[Any]] = {}
    for name, text in _pairs(given, "--keys", "region=North,South", comma=False):
        texts = read_key_texts(text, name)
        kind = _kind_of_column(name, tables) or _guessed(texts)
        out[name] = (
            texts if isinstance(texts, range) and kind is Kind.NUMBER else parse_keys(texts, name, kind)
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
