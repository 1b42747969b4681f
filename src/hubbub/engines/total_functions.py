"""Total functions: SQL expressions that mean the same on every engine, and that no row can make fail.

Numbers from a table are finite doubles of at most 2^200 in size. Sums, products and quotients stay within the
doubles, so no engine raises, and all engines give the same double. Texts are parsed as numbers or dates only
if they match a pattern; upper and lower case are those of ASCII. An operation on which
engines disagree is absent.

Proof: docs/proofs/bounding.md, "Rows"
"""

from collections.abc import Mapping
from datetime import date, datetime
from fractions import Fraction

from sqlglot import exp

from hubbub.engines.schema import Column, Key, Kind, Table
from hubbub.errors import InvalidInput
from hubbub.unit import Window

__all__ = [
    "BIGINT",
    "DOUBLE",
    "MAX_DATETIME",
    "MIN_DATETIME",
    "SQL_TYPES",
    "WIDE",
    "ascii_lower",
    "ascii_upper",
    "clamp_finite",
    "clamp_magnitude",
    "convert_kind",
    "datetime_literal",
    "drop_zero_sign",
    "format_double",
    "format_number",
    "in_window",
    "number_literal",
    "parse_text",
    "read_column",
    "restrict_years",
    "text_literal",
]

DOUBLE = exp.DataType.build("DOUBLE")
BIGINT = exp.DataType.build("BIGINT")
WIDE = exp.DataType.build("INT128")
"""Integers of at least 38 digits, for sums."""
SQL_TYPES = {
    Kind.NUMBER: "DOUBLE",
    Kind.TEXT: "VARCHAR",
    Kind.BOOLEAN: "BOOLEAN",
    Kind.DATE: "DATE",
    Kind.TIMESTAMP: "TIMESTAMP",
    Kind.OPAQUE: "VARCHAR",
}
MIN_DATETIME: dict[Kind, Key] = {Kind.DATE: date.min, Kind.TIMESTAMP: datetime.min}  # noqa: DTZ901 - no zone
MAX_DATETIME: dict[Kind, Key] = {Kind.DATE: date.max, Kind.TIMESTAMP: datetime.max}  # noqa: DTZ901
_LOWER, _UPPER = "abcdefghijklmnopqrstuvwxyz", "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_MAX_NUMBER = 2.0**200
_MAX_DOUBLE = 1.7976931348623157e308
_TRUE, _FALSE = ("true", "t", "yes", "y", "1"), ("false", "f", "no", "n", "0")
# At most 59 digits before or after the point: all of these are within 2^±200.
_NUMBER = "^ *[+-]?([0-9]{1,30}([.][0-9]{0,30})?|[.][0-9]{1,30})([eE][+-]?[0-2]?[0-9])? *$"
_LEAP = "(0[48]|[2468][048]|[13579][26])"
_DAY = (
    "([0-9]{4}-((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)"
    f"|02-(0[1-9]|1[0-9]|2[0-8]))|([0-9][0-9]{_LEAP}|{_LEAP}00)-02-29)"
)
_TIME = "([ T]([01][0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9]([.][0-9]{1,6})?)?)?"
_PATTERNS = {Kind.NUMBER: _NUMBER, Kind.DATE: f"^{_DAY}$", Kind.TIMESTAMP: f"^{_DAY}{_TIME}$"}
_TEXT_DIGITS = 10**6
_TEXT = exp.DataType.build("VARCHAR")


# Literals


def format_double(value: float | Fraction) -> str:
    """A double as the text of a literal that every engine reads as exactly that double."""
    text = repr(float(value))
    return text if "e" in text else f"{text}e0"


def number_literal(value: float | Fraction) -> exp.Expr:
    """A literal that is a double on every engine."""
    number = float(value)
    text = str(int(number)) if number == int(number) and abs(number) < 2**53 else format_double(number)
    return exp.Cast(this=_plain_number(text), to=DOUBLE.copy())


def _plain_number(text: str) -> exp.Expr:
    if text.startswith("-"):
        return exp.Neg(this=exp.Literal.number(text[1:]))
    return exp.Literal.number(text)


def text_literal(value: str) -> exp.Expr:
    """A text literal, quoted by the dialect."""
    return exp.Literal.string(value)


def datetime_literal(value: Key) -> exp.Expr:
    """A literal of a date or a timestamp."""
    assert isinstance(value, date)
    to = "TIMESTAMP" if isinstance(value, datetime) else "DATE"
    text = value.isoformat(sep=" ") if isinstance(value, datetime) else value.isoformat()
    return exp.Cast(this=exp.Literal.string(text), to=exp.DataType.build(to))


# Kinds


def convert_kind(sql: exp.Expr, known: Kind, kind: Kind, column: str) -> exp.Expr:
    """Convert a column of a known kind to the kind that is declared for it."""
    to = exp.DataType.build(SQL_TYPES[kind])
    if kind in {known, Kind.OPAQUE}:
        return sql
    if kind is Kind.TEXT:
        cast = exp.TryCast if known is Kind.OPAQUE else exp.Cast
        return format_number(drop_zero_sign(sql)) if known is Kind.NUMBER else cast(this=sql, to=to)
    if known in {Kind.TEXT, Kind.OPAQUE}:
        return parse_text(sql if known is Kind.TEXT else exp.TryCast(this=sql, to=_TEXT.copy()), kind)
    if known in MIN_DATETIME and kind in MIN_DATETIME:
        return exp.Cast(this=sql, to=to)
    if (known, kind) == (Kind.BOOLEAN, Kind.NUMBER):
        one = exp.If(this=sql, true=number_literal(1))
        return exp.Case(ifs=[one, exp.If(this=exp.Not(this=sql.copy()), true=number_literal(0))])
    if (known, kind) == (Kind.NUMBER, Kind.BOOLEAN):
        return exp.NEQ(this=sql, expression=number_literal(0))
    raise InvalidInput(
        f"the column {column!r} is a {known.value}, and declared as a {kind.value}",
        why="engines disagree on this conversion",
        fix=f"declare it as {known.value}, or leave the type out",
    )


def read_column(column: Column) -> exp.Expr:
    """A column of a table, as the kind that a query's bounds imply."""
    name = exp.column(exp.to_identifier(column.name, quoted=True))
    if column.source_kind is None:
        return name
    return exp.alias_(
        convert_kind(name, column.source_kind, column.kind, column.name), column.name, quoted=True
    )


# Numbers


def clamp_finite(number: exp.Expr) -> exp.Expr:
    """Clamp a number from a table to ±2^200; NULL if it is infinite or not a number."""
    most, least = number_literal(_MAX_NUMBER), number_literal(-_MAX_NUMBER)
    inside = exp.Between(this=number, low=least, high=most)
    above = exp.Between(this=number.copy(), low=most.copy(), high=number_literal(_MAX_DOUBLE))
    below = exp.Between(this=number.copy(), low=number_literal(-_MAX_DOUBLE), high=least.copy())
    return exp.Case(
        ifs=[
            exp.If(this=inside, true=number.copy()),
            exp.If(this=above, true=most.copy()),
            exp.If(this=below, true=least.copy()),
        ]
    )


def clamp_magnitude(number: exp.Expr) -> exp.Expr:
    """Clamp a number to ±2^200, and make it 0 where it is smaller than 2^-200.

    Some engines raise where a product leaves the doubles; products of such numbers do not.
    """
    small = exp.LT(this=exp.Abs(this=number), expression=number_literal(1 / _MAX_NUMBER))
    zero = exp.If(this=small, true=number_literal(0))
    return exp.Case(ifs=[zero], default=clamp_finite(number.copy()))


def drop_zero_sign(number: exp.Expr) -> exp.Expr:
    """The number, with −0.0 as 0.0.

    The order of rows, including other units', would decide which of the two represents a group.
    """
    zero = exp.If(this=exp.EQ(this=number, expression=number_literal(0)), true=number_literal(0))
    return exp.Case(ifs=[zero], default=number.copy())


def format_number(number: exp.Expr) -> exp.Expr:
    """The number in digits, with at most six decimals and no trailing zeros.

    NULL where that would not be exact: beyond 2^53, and beyond 2^33 if it is no integer. Arguments of casts
    are clamped themselves: an engine may compute a branch of CASE that it does not take.
    """
    size = exp.Abs(this=number)
    whole = exp.And(
        this=exp.LT(this=size, expression=number_literal(2.0**53)),
        expression=exp.EQ(this=number.copy(), expression=exp.Floor(this=number.copy())),
    )
    above = exp.Greatest(this=number.copy(), expressions=[number_literal(-(2.0**53))])
    clamped = exp.Least(this=above, expressions=[number_literal(2.0**53)])
    plain = _as_text(exp.Cast(this=clamped, to=BIGINT.copy()))
    below = exp.Least(this=size.copy(), expressions=[number_literal(2.0**33)])
    scaled = exp.Mul(this=below, expression=number_literal(_TEXT_DIGITS))
    steps = exp.Cast(
        this=exp.Floor(this=exp.Add(this=scaled, expression=number_literal(0.5))), to=BIGINT.copy()
    )
    digits = exp.Literal.number(_TEXT_DIGITS)
    rest = exp.Mod(this=steps.copy(), expression=digits.copy())
    negative = exp.And(
        this=exp.LT(this=number.copy(), expression=number_literal(0)),
        expression=exp.GT(this=steps.copy(), expression=exp.Literal.number(0)),
    )
    sign = exp.Case(ifs=[exp.If(this=negative, true=text_literal("-"))], default=text_literal(""))
    padded = exp.Pad(
        this=_as_text(rest), expression=exp.Literal.number(6), fill_pattern=text_literal("0"), is_left=True
    )
    rendered = exp.DPipe(
        this=text_literal("."),
        expression=exp.Trim(this=padded, expression=text_literal("0"), position="TRAILING"),
        safe=True,
    )
    behind = exp.Case(
        ifs=[exp.If(this=exp.EQ(this=rest.copy(), expression=exp.Literal.number(0)), true=text_literal(""))],
        default=rendered,
    )
    before = _as_text(exp.IntDiv(this=steps, expression=digits))
    text = exp.DPipe(this=exp.DPipe(this=sign, expression=before, safe=True), expression=behind, safe=True)
    small = exp.LT(this=size.copy(), expression=number_literal(2.0**33))
    return exp.Case(ifs=[exp.If(this=whole, true=plain), exp.If(this=small, true=text)])


def _as_text(sql: exp.Expr) -> exp.Expr:
    return exp.Cast(this=sql, to=exp.DataType.build("VARCHAR"))


# Texts


def ascii_lower(text: exp.Expr) -> exp.Expr:
    """The text with A to Z in lower case; other letters are unchanged."""
    return exp.Translate(this=text, from_=text_literal(_UPPER), to=text_literal(_LOWER))


def ascii_upper(text: exp.Expr) -> exp.Expr:
    """The text with a to z in upper case; other letters are unchanged."""
    return exp.Translate(this=text, from_=text_literal(_LOWER), to=text_literal(_UPPER))


def parse_text(text: exp.Expr, kind: Kind) -> exp.Expr:
    """A text as a number, boolean, date or timestamp, if it matches the pattern of one; else NULL."""
    if kind is Kind.TEXT:
        return text
    if kind is Kind.BOOLEAN:
        words = [
            exp.If(
                this=exp.In(
                    this=ascii_lower(text.copy()), expressions=[text_literal(word) for word in known]
                ),
                true=exp.Boolean(this=truth),
            )
            for truth, known in ((True, _TRUE), (False, _FALSE))
        ]
        return exp.Case(ifs=words)
    matches: exp.Expr = exp.RegexpLike(this=text, expression=text_literal(_PATTERNS[kind]))
    if kind is not Kind.NUMBER:  # there is no year 0
        later = exp.GTE(this=text.copy(), expression=text_literal("0001"))
        matches = exp.And(this=matches, expression=later)
    # The CASE is inside the cast: PostgreSQL evaluates a cast literal early, whatever branch it is in.
    read = exp.Case(ifs=[exp.If(this=matches, true=text.copy())])
    return exp.TryCast(this=read, to=exp.DataType.build(SQL_TYPES[kind]))


# Dates and timestamps


def in_window(window: Window, table: Table, columns: Mapping[str, exp.Expr]) -> exp.Expr:
    """A condition that holds for the rows inside a window; a row without a time is outside.

    Guarantee: rows outside of the window change nothing.
    Proof: docs/proofs/ledger.md, "Windows"

    Args:
        window: the window.
        table: the table that it restricts.
        columns: expressions of the table's columns, each as its declared kind.
    """
    column = table.find(window.column)
    if column.kind not in MIN_DATETIME:
        raise InvalidInput(
            f"the window's column {column.name!r} of {table.name} is not a date or timestamp",
            why="a window's budget pays only for its rows, so each row needs a time",
            fix="name a column with dates, or declare it in {types}",
        )
    moment = columns[column.name]
    is_date = column.kind is Kind.DATE
    first, beyond = (
        datetime_literal(end if is_date else datetime(end.year, end.month, end.day))  # noqa: DTZ001 - no zone
        for end in (window.start, window.end)
    )
    return exp.And(
        this=exp.GTE(this=moment.copy(), expression=first),
        expression=exp.LT(this=moment.copy(), expression=beyond),
    )


def restrict_years(moment: exp.Expr, kind: Kind) -> exp.Expr:
    """NULL where a date or timestamp is not in the years 1 to 9999.

    Beyond these years date functions raise, and Python has no such dates.
    """
    least, most = (datetime_literal(MIN_DATETIME[kind]), datetime_literal(MAX_DATETIME[kind]))
    inside = exp.And(
        this=exp.GTE(this=moment, expression=least),
        expression=exp.LTE(this=moment.copy(), expression=most),
    )
    return exp.Case(ifs=[exp.If(this=inside, true=moment.copy())])
