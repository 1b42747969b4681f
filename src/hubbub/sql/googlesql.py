"""GoogleSQL's own forms in those that the analyzer knows: older clauses, functions of another meaning.

`WITH ANONYMIZATION` and ANON_SUM(x CLAMPED BETWEEN 0 AND 5) are what DIFFERENTIAL_PRIVACY was called before.
To GoogleSQL a week begins on Sunday and the first day of it is 1; to DuckDB these are Monday and 0.
"""

import re
from collections.abc import Sequence

import sqlglot
from sqlglot import exp
from sqlglot.tokenizer_core import Token

from hubbub.errors import Unsupported

__all__ = ["DAY_OF_WEEK", "modernize", "translate_meanings"]

DAY_OF_WEEK = "dayofweek1"
"""The day of the week from 1, Sunday, to 7."""
_ANONYMOUS = re.compile("anon_(count|sum|avg|var_pop|stddev_pop|percentile_cont)")
_PER_ROW = ("var_pop", "stddev_pop", "percentile_cont")


def modernize(text: str) -> str:
    """The text with WITH ANONYMIZATION and ANON_ functions in today's form."""
    try:
        tokens = sqlglot.tokenize(text, read="bigquery")
    except sqlglot.errors.SqlglotError:
        return text  # the parser will say where
    pieces: list[tuple[int, int, str]] = []
    functions: list[tuple[int, str]] = []
    depth = 0
    for place, token in enumerate(tokens):
        word = token.text.lower()
        depth += (token.text == "(") - (token.text == ")")
        functions = [each for each in functions if each[0] <= depth]
        match = _ANONYMOUS.fullmatch(word)
        if word == "anonymization" and place and tokens[place - 1].text.upper() == "WITH":
            pieces.append((token.start, token.end + 1, "DIFFERENTIAL_PRIVACY"))
        elif match is not None:
            functions.append((depth + 1, match[1]))
            pieces.append((token.start, token.end + 1, match[1].upper()))
        elif word == "clamped" and functions and functions[-1][0] == depth:
            pieces += _clamp(tokens, place, functions[-1][1])
    for start, end, instead in sorted(pieces, reverse=True):
        text = text[:start] + instead + text[end:]
    return text


def _clamp(tokens: Sequence[Token], place: int, function: str) -> list[tuple[int, int, str]]:
    """CLAMPED BETWEEN low AND high as an argument."""
    rest = tokens[place:]
    texts = [token.text.upper() for token in rest]
    if texts[1:2] != ["BETWEEN"] or "AND" not in texts or ")" not in texts:
        return []
    middle, end = texts.index("AND"), texts.index(")")
    low, high = ("".join(texts[first:last]) for first, last in ((2, middle), (middle + 1, end)))
    name = "contribution_bounds_per_row" if function in _PER_ROW else "contribution_bounds_per_group"
    return [(rest[0].start, rest[end - 1].end + 1, f", {name} => ({low}, {high})")]


def translate_meanings(statement: exp.Expr) -> None:
    """Functions that mean something else to DuckDB, in forms that mean the same to both."""
    for raw in list(statement.find_all(exp.RawString)):
        raw.replace(exp.Literal.string(raw.this))
    for part in statement.find_all(exp.Extract):
        name = part.this.name.upper()
        if isinstance(part.this, exp.WeekStart) or name == "WEEK":
            raise _sunday_week()
        instead = {"DAYOFWEEK": DAY_OF_WEEK, "ISOWEEK": "WEEK", "DAYOFYEAR": "DOY"}.get(name)
        if instead is not None:
            part.set("this", exp.Var(this=instead))
    for cut in statement.find_all(exp.DateTrunc, exp.TimestampTrunc, exp.DatetimeTrunc):
        unit = cut.args["unit"]
        if isinstance(unit, exp.WeekStart) and unit.this.name.upper() != "MONDAY":
            raise _sunday_week()
        if isinstance(unit, exp.WeekStart) or unit.name.upper() == "ISOWEEK":
            cut.set("unit", exp.Var(this="WEEK"))
    for call in list(statement.find_all(exp.SafeFunc)):
        call.replace(call.this.copy())  # every function is NULL here where it would fail


def _sunday_week() -> Unsupported:
    return Unsupported(
        "weeks that begin on another day than Monday are not supported",
        why="engines only know ISO weeks",
        fix="write ISOWEEK, or WEEK(MONDAY)",
    )
