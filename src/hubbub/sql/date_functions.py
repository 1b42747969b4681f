"""Functions of dates and timestamps, each in a form that no row can make fail.

Dates are those of the years 1 to 9999; what leaves them is NULL. Weeks are ISO's, names are English, and
there is no time zone. A date as a text is put together from its parts, so that all engines write the same.

Proof: docs/proofs/bounding.md, "Rows"
"""

import re
from collections.abc import Mapping
from datetime import date
from fractions import Fraction
from itertools import product

from sqlglot import exp

from hubbub.engines.dialect import call
from hubbub.engines.schema import Key, Kind
from hubbub.engines.total_functions import (
    BIGINT,
    DOUBLE,
    SQL_TYPES,
    datetime_literal,
    number_literal,
    parse_text,
    restrict_years,
    text_literal,
)
from hubbub.errors import InvalidInput
from hubbub.sql.googlesql import DAY_OF_WEEK
from hubbub.sql.text_functions import Builder, Compile, known_whole, text_of
from hubbub.sql.typed_expressions import TypedExpression, as_kind, check_arguments, copy_expression, null_key

__all__ = ["BUILDERS", "read_interval", "shift", "subtract_dates"]

_MONTHS, _QUARTERS, _HOURS, _DAYS, _WEEKDAYS = range(1, 13), range(1, 5), range(24), range(1, 32), range(7)
_PARTS: dict[str, range | None] = {
    "year": None,
    "quarter": _QUARTERS,
    "month": _MONTHS,
    "week": range(1, 54),
    "day": _DAYS,
    "dow": _WEEKDAYS,
    "dayofweek": _WEEKDAYS,
    "isodow": range(1, 8),
    "doy": range(1, 367),
    "hour": _HOURS,
    "minute": range(60),
    "second": range(60),
}
_SAME_PARTS = {"dayofweek": "dow", "dayofyear": "doy", "weekofyear": "week", "dayofmonth": "day"}
_OF_TIME = frozenset({"hour", "minute", "second"})
_TRUNCATED = ("year", "quarter", "month", "week", "day", "hour", "minute")
_DAY_NAMES = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")
_MONTH_NAMES = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October",
    "November", "December",
)  # fmt: skip
_EPOCH = date(1970, 1, 1)
_TEXT = exp.DataType.build("VARCHAR")


def _moment_of(node: exp.Expr, compile_part: Compile) -> TypedExpression:
    inner = compile_part(node)
    if inner.kind is Kind.DATE:
        return inner
    return as_kind(inner, Kind.TIMESTAMP, "an operand")


def _as_date(moment: TypedExpression) -> exp.Expr:
    if moment.kind is Kind.DATE:
        return moment.sql
    return exp.Cast(this=moment.sql, to=exp.DataType.build("DATE"))


# Parts


def _part(name: str, inner: TypedExpression) -> TypedExpression:
    name = _SAME_PARTS.get(name, name)
    if name == DAY_OF_WEEK:
        return _day_of_week_from_1(inner)
    if name not in _PARTS:
        raise InvalidInput(
            f"{name[:20]} is not a supported part of a date",
            why="engines disagree on the others",
            fix=f"use one of: {', '.join(_PARTS)}",
        )
    known = _PARTS[name]
    sql = exp.Cast(this=_extracted(name, inner), to=DOUBLE.copy())
    keys = None if known is None else (*(float(value) for value in known), *null_key(inner))
    bounds = None if known is None else (Fraction(known[0]), Fraction(known[-1]))
    return TypedExpression(sql, Kind.NUMBER, bounds, keys, size=(0, 14), is_complete=keys is not None)


def _day_of_week_from_1(inner: TypedExpression) -> TypedExpression:
    sql = exp.Paren(this=exp.Add(this=_part("dow", inner).sql, expression=number_literal(1)))
    keys = (*(float(day) for day in range(1, 8)), *null_key(inner))
    return TypedExpression(sql, Kind.NUMBER, (Fraction(1), Fraction(7)), keys, size=(0, 14), is_complete=True)


def _extracted(name: str, inner: TypedExpression) -> exp.Expr:
    """A part of a date as a number of the engine's own type."""
    if name in _OF_TIME:
        inner = as_kind(inner, Kind.TIMESTAMP, "an operand")
    part = exp.Extract(this=exp.Var(this=name.upper()), expression=inner.sql)
    # PostgreSQL's seconds have a fraction.
    return exp.Floor(this=exp.Cast(this=part, to=DOUBLE.copy())) if name == "second" else part


def _whole_part(name: str, inner: TypedExpression) -> exp.Expr:
    return exp.Cast(this=_extracted(name, inner).copy(), to=BIGINT.copy())


def _extract(node: exp.Expr, compile_part: Compile) -> TypedExpression:
    return _part(node.this.name.lower(), _moment_of(node.expression, compile_part))


def _named_part(name: str) -> Builder:
    def build(node: exp.Expr, compile_part: Compile) -> TypedExpression:
        check_arguments(node, "this")
        return _part(name, _moment_of(node.this, compile_part))

    return build


def _part_name(part: str, names: tuple[str, ...]) -> Builder:
    """The English name of a part."""

    def build(node: exp.Expr, compile_part: Compile) -> TypedExpression:
        check_arguments(node, "this")
        inner = _moment_of(node.this, compile_part)
        return TypedExpression(
            _name_of(part, names, inner), Kind.TEXT, keys=(*names, *null_key(inner)), is_complete=True
        )

    return build


def _name_of(part: str, names: tuple[str, ...], inner: TypedExpression) -> exp.Expr:
    first = (_PARTS[part] or range(1))[0]
    number = _whole_part(part, inner)
    ifs = [
        exp.If(
            this=exp.EQ(this=number.copy(), expression=exp.Literal.number(first + place)),
            true=text_literal(name),
        )
        for place, name in enumerate(names)
    ]
    return exp.Case(ifs=ifs)


def _truncated(node: exp.Expr, compile_part: Compile) -> TypedExpression:
    unit = node.args["unit"].name.lower()
    if unit not in _TRUNCATED or node.args.get("zone"):
        raise InvalidInput(
            f"dates cannot be truncated to a {unit[:20]} here",
            why="engines disagree on it",
            fix=f"use one of: {', '.join(_TRUNCATED)}",
        )
    inner = _moment_of(node.this, compile_part)
    if unit in _OF_TIME:
        inner = as_kind(inner, Kind.TIMESTAMP, "an operand")
    return TypedExpression(_cut(inner, unit), inner.kind)


def _cut(inner: TypedExpression, unit: str) -> exp.Expr:
    cut = exp.TimestampTrunc(this=inner.sql, unit=exp.Var(this=unit.upper()))
    return exp.Cast(this=cut, to=exp.DataType.build(SQL_TYPES[inner.kind]))


def _last_day(node: exp.Expr, compile_part: Compile) -> TypedExpression:
    check_arguments(node, "this")
    inner = _moment_of(node.this, compile_part)
    first = as_kind(TypedExpression(_cut(inner, "month"), inner.kind), Kind.TIMESTAMP, "an operand").sql
    month, day = (exp.Interval(this=exp.Literal.string("1"), unit=exp.Var(this=unit)) for unit in _ENDS)
    after = exp.Paren(this=exp.Add(this=first, expression=month))
    return _restrict(exp.Sub(this=after, expression=day), is_date=True)


_ENDS = ("MONTH", "DAY")


def _to_date(node: exp.Expr, compile_part: Compile) -> TypedExpression:
    check_arguments(node, "this")
    return TypedExpression(_as_date(_moment_of(node.this, compile_part)), Kind.DATE)


# Differences


_STEPS = {"hour": 24, "minute": 1440, "second": 86400}
_IN_MONTHS = {"year": 12, "quarter": 3, "month": 1}


def subtract_dates(left: TypedExpression, right: TypedExpression, unit: str) -> TypedExpression:
    """How many ends of a year, a month, a day, an hour … lie between: DuckDB's DATE_DIFF."""
    if unit == "day":
        one, two = (None if side.column is None else side.column.bounds for side in (left, right))
        bounds = None if one is None or two is None else (one[0] - two[1], one[1] - two[0])
        days = exp.Cast(this=_days(left, right), to=DOUBLE.copy())
        return TypedExpression(days, Kind.NUMBER, bounds, size=(0, 22))
    for moment in (left, right):
        copy_expression(moment.sql)
    if unit in _STEPS:
        sides = [_number_since(as_kind(each, Kind.TIMESTAMP, "an operand"), unit) for each in (left, right)]
    else:
        sides = [_number_of_months(each, unit) for each in (left, right)]
    sql = exp.Sub(this=exp.Paren(this=sides[0]), expression=exp.Paren(this=sides[1]))
    return TypedExpression(exp.Paren(this=sql), Kind.NUMBER, size=(0, 40))


def _days(left: TypedExpression, right: TypedExpression) -> exp.Expr:
    return exp.DateDiff(this=_as_date(left), expression=_as_date(right), unit=exp.Var(this="DAY"))


def _number_of_months(moment: TypedExpression, unit: str) -> exp.Expr:
    """Years, quarters or months since the year 0."""
    total = exp.Cast(this=_extracted("year", moment), to=DOUBLE.copy())
    if unit == "year":
        return total
    part = exp.Cast(this=_extracted(unit, moment).copy(), to=DOUBLE.copy())
    factor = number_literal(12 // _IN_MONTHS[unit])
    return exp.Add(this=exp.Mul(this=total, expression=factor), expression=part)


def _number_since(moment: TypedExpression, unit: str) -> exp.Expr:
    """Hours, minutes or seconds since 1970."""
    start = TypedExpression(datetime_literal(_EPOCH), Kind.DATE)
    total: exp.Expr = exp.Cast(this=_days(moment, start), to=DOUBLE.copy())
    total = exp.Mul(this=total, expression=number_literal(_STEPS[unit]))
    for part in ("hour", "minute", "second"):
        number: exp.Expr = exp.Cast(this=_extracted(part, moment).copy(), to=DOUBLE.copy())
        number = exp.Mul(this=number, expression=number_literal(_STEPS[unit] // _STEPS[part]))
        total = exp.Add(this=total, expression=number)
        if part == unit:
            break
    return total


def _difference(node: exp.Expr, compile_part: Compile) -> TypedExpression:
    unit = node.args.get("unit")
    name = "day" if unit is None else unit.name.lower()
    if name not in {"day", *_STEPS, *_IN_MONTHS}:
        raise InvalidInput(
            "dates are not subtracted in this unit here",
            why="engines disagree on it",
            fix="use 'year', 'quarter', 'month', 'day', 'hour', 'minute' or 'second'",
        )
    left, right = (_moment_of(part, compile_part) for part in (node.this, node.expression))
    return subtract_dates(left, right, name)


# Intervals


_MONTHS_OF = {"month": 1, "quarter": 3, "year": 12}
_SHIFTS = {"second": "SECOND", "minute": "MINUTE", "hour": "HOUR", "day": "DAY", "week": "DAY"}
_MAX_MONTHS, _MAX_STEPS = 48_000, 1_000_000


def shift(moment: TypedExpression, count: int, unit: str, *, is_date: bool = False) -> TypedExpression:
    """A date or timestamp moved by an interval; NULL where it leaves the years 1 to 9999.

    No engine's own calendar ends within the 4,000 years that it can be moved beyond these.

    Args:
        moment: what is moved.
        count: by how many units, back if it is negative.
        unit: second, minute, hour, day, week, month, quarter or year.
        is_date: True if the result is a date; else it is a timestamp.
    """
    months = _MONTHS_OF.get(unit)
    steps = count * (months or (7 if unit == "week" else 1))
    if abs(steps) > (_MAX_MONTHS if months else _MAX_STEPS):
        raise InvalidInput(
            "an interval is too long",
            why="no calendar reaches that far",
            fix="write a shorter one, or compare years",
        )
    name = "MONTH" if months else _SHIFTS[unit]
    interval = exp.Interval(this=exp.Literal.string(str(abs(steps))), unit=exp.Var(this=name))
    start = as_kind(moment, Kind.TIMESTAMP, "an operand").sql
    moved: exp.Expr = (exp.Add if steps >= 0 else exp.Sub)(this=start, expression=interval)
    return _restrict(moved, is_date=is_date)


def _restrict(moved: exp.Expr, *, is_date: bool) -> TypedExpression:
    """A timestamp; NULL where it is not in the years 1 to 9999."""
    copy_expression(moved)
    inside = restrict_years(exp.Paren(this=moved), Kind.TIMESTAMP)
    if is_date:
        return TypedExpression(exp.Cast(this=inside, to=exp.DataType.build("DATE")), Kind.DATE)
    return TypedExpression(inside, Kind.TIMESTAMP)


def read_interval(node: exp.Expr | None, unit: exp.Expr | None, compile_part: Compile) -> tuple[int, str]:
    """The number and the unit of an interval that is written out."""
    if isinstance(node, exp.Interval):
        return read_interval(node.this, node.args.get("unit"), compile_part)
    name = (unit.name if unit is not None else "").lower().removesuffix("s")
    if node is None or name not in {*_MONTHS_OF, *_SHIFTS}:
        raise InvalidInput(
            "an interval is not a number and one unit",
            why="engines disagree on others",
            fix="write INTERVAL 7 DAY: of seconds, minutes, hours, days, weeks, months, quarters or years",
        )
    inner = node.unnest()
    if isinstance(inner, exp.Literal) and inner.is_string and re.fullmatch("-?[0-9]{1,9}", inner.this):
        return int(inner.this), name
    return known_whole(inner, compile_part, -(10**9), 10**9), name


def _moved(sign: int) -> Builder:
    """DATE_ADD and its like: DuckDB's gives a timestamp, GoogleSQL's what it was given."""

    def build(node: exp.Expr, compile_part: Compile) -> TypedExpression:
        count, unit = read_interval(node.expression, node.args.get("unit"), compile_part)
        moment = _moment_of(node.this, compile_part)
        is_google = not isinstance(node.expression, exp.Interval)
        return shift(moment, sign * count, unit, is_date=is_google and moment.kind is Kind.DATE)

    return build


def _add_months(node: exp.Expr, compile_part: Compile) -> TypedExpression:
    check_arguments(node, "this", "expression")
    moment = _moment_of(node.this, compile_part)
    count = known_whole(node.expression, compile_part, -_MAX_MONTHS, _MAX_MONTHS)
    return shift(moment, count, "month", is_date=moment.kind is Kind.DATE)


# Dates as texts


_SHORT_DAYS = tuple(name[:3] for name in _DAY_NAMES)
_SHORT_MONTHS = tuple(name[:3] for name in _MONTH_NAMES)
_DIGITS = {"m": ("month", 2), "d": ("day", 2), "j": ("doy", 3), "V": ("week", 2), "u": ("isodow", 1),
           "w": ("dow", 1), "H": ("hour", 2), "M": ("minute", 2), "S": ("second", 2)}  # fmt: skip
_NAMES = {
    "A": ("dow", _DAY_NAMES),
    "a": ("dow", _SHORT_DAYS),
    "B": ("month", _MONTH_NAMES),
    "b": ("month", _SHORT_MONTHS),
}
_WHOLE_FORMATS = {"%F": "%Y-%m-%d", "%T": "%H:%M:%S", "%D": "%m/%d/%y", "%R": "%H:%M"}
_MAX_FORMAT, _MAX_KEYS = 100, 2000


def _format(node: exp.Expr, compile_part: Compile) -> TypedExpression:
    """STRFTIME, with the parts that all engines know."""
    check_arguments(node, "this", "format")
    typed = compile_part(node.args.get("format"))
    if not typed.is_literal or not isinstance(typed.value, str) or not 0 < len(typed.value) <= _MAX_FORMAT:
        raise _unknown_format()
    inner = node.this
    if isinstance(inner, (exp.TsOrDsToDate, exp.TsOrDsToTimestamp, exp.TsOrDsToDatetime)):
        inner = inner.this
    return _format_moment(_moment_of(inner, compile_part), typed.value)


def _format_moment(moment: TypedExpression, pattern: str) -> TypedExpression:
    """A date or timestamp as a text: %Y-%m-%d, %H:%M, %B and their like."""
    for short, long in _WHOLE_FORMATS.items():
        pattern = pattern.replace(short, long)
    copy_expression(moment.sql)
    pieces: list[exp.Expr] = []
    values: list[tuple[str, ...]] = []
    parts: list[str] = []
    words = re.findall("[^%]+|%-?.", pattern, re.DOTALL)
    for word in words:
        if word[0] != "%" or word == "%%":
            literal = "%" if word == "%%" else word
            pieces.append(text_literal(literal))
            values.append((literal,))
            continue
        piece, part, known = _piece(word[1:], moment)
        pieces.append(piece)
        values.append(known)
        parts.append(part)
    if "".join(words) != pattern or not parts:
        raise _unknown_format()
    total = _chain(pieces)
    # Of two parts of a date not all pairs exist, and of a year there is no end.
    dates = [part for part in parts if part not in _OF_TIME]
    is_known = len(dates) <= 1 and len(set(parts)) == len(parts) and all(values)
    keys: tuple[Key, ...] | None = None
    if is_known and _size(values) <= _MAX_KEYS:
        keys = (*("".join(each) for each in product(*values)), *null_key(moment))
    sql = exp.Paren(this=total) if len(pieces) > 1 else total
    return TypedExpression(sql, Kind.TEXT, keys=keys, is_complete=keys is not None)


def _size(values: list[tuple[str, ...]]) -> int:
    total = 1
    for each in values:
        total *= len(each)
    return total


def _piece(letter: str, moment: TypedExpression) -> tuple[exp.Expr, str, tuple[str, ...]]:
    """One part of a format: its text, its name, and all its values if there are few."""
    name = letter.removeprefix("-")
    if name in _NAMES and name == letter:
        part, names = _NAMES[name]
        return _name_of(part, names, moment), part, names
    if name == "Y" == letter:
        return _padded(_whole_part("year", moment), 4), "year", ()
    if name == "y" == letter:
        century = exp.Mod(this=_whole_part("year", moment), expression=exp.Literal.number(100))
        return _padded(century, 2), "year", tuple(f"{year:02}" for year in range(100))
    if name in _DIGITS:
        part, digits = _DIGITS[name]
        number = _whole_part(part, moment)
        known = tuple(str(value) for value in _PARTS[part] or ())
        if name != letter:
            return exp.Cast(this=number, to=_TEXT.copy()), part, known
        return _padded(number, digits), part, tuple(value.zfill(digits) for value in known)
    raise _unknown_format()


def _padded(number: exp.Expr, digits: int) -> exp.Expr:
    return _zero_padded(exp.Cast(this=number, to=_TEXT.copy()), digits)


def _zero_padded(text: exp.Expr, digits: int) -> exp.Expr:
    return exp.Pad(
        this=text, expression=exp.Literal.number(digits), fill_pattern=text_literal("0"), is_left=True
    )


_FIELDS = {"Y": 4, **dict.fromkeys("mdHMS", 2)}
"""The digits of each part that can be read."""
_SEPARATORS = frozenset("-/.:, _T")


def _parse(kind: Kind) -> Builder:
    """STRPTIME: numbers with one character, or none, between all of them; NULL for a text of another form."""

    def build(node: exp.Expr, compile_part: Compile) -> TypedExpression:
        check_arguments(node, "this", "format", "default_year")
        typed = compile_part(node.args.get("format"))
        if not typed.is_literal or not isinstance(typed.value, str):
            raise _unknown_format()
        return _parse_moment(text_of(node.this, compile_part), typed.value, kind)

    return build


def _parse_moment(text: TypedExpression, pattern: str, kind: Kind) -> TypedExpression:
    for short, long in _WHOLE_FORMATS.items():
        pattern = pattern.replace(short, long)
    fields = re.findall("%([YmdHMS])", pattern)
    first, *between, last = re.split("%[YmdHMS]", pattern)
    is_plain = not first and not last and (set(between) <= _SEPARATORS or not any(between))
    if not is_plain or not {"Y", "m", "d"} <= set(fields) or len(set(fields)) != len(fields):
        raise _unknown_format()
    copy_expression(text.sql)
    least = "1," if any(between) else ""  # without separators all digits must be there
    shape = "".join(
        f"[0-9]{{{least}{_FIELDS[field]}}}" + (f"[{after}]" if after else "")
        for field, after in zip(fields, [*between, ""], strict=True)
    )
    matches = exp.RegexpLike(this=text.sql.copy(), expression=text_literal(f"^{shape}$"))
    read = exp.Case(ifs=[exp.If(this=matches, true=text.sql.copy())])
    numbers = _numbers_between(read, fields, between) if any(between) else _numbers_in_places(read, fields)
    iso_date = _chain([numbers["Y"], text_literal("-"), numbers["m"], text_literal("-"), numbers["d"]])
    if kind is Kind.TIMESTAMP:
        for mark, field in ((" ", "H"), (":", "M"), (":", "S")):
            iso_date = _chain([iso_date, text_literal(mark), numbers.get(field, text_literal("00"))])
    return TypedExpression(parse_text(exp.Paren(this=iso_date), kind), kind)


def _numbers_between(text: exp.Expr, fields: list[str], between: list[str]) -> dict[str, exp.Expr]:
    """The numbers between separators, with zeros before those of fewer digits."""
    marks = "".join(dict.fromkeys(between))
    split = exp.Translate(this=text, from_=text_literal(marks), to=text_literal("/" * len(marks)))
    return {
        field: _zero_padded(
            call("SPLIT_PART", split.copy(), text_literal("/"), exp.Literal.number(place + 1)),
            _FIELDS[field],
        )
        for place, field in enumerate(fields)
    }


def _numbers_in_places(text: exp.Expr, fields: list[str]) -> dict[str, exp.Expr]:
    numbers: dict[str, exp.Expr] = {}
    start = 1
    for field in fields:
        first, length = exp.Literal.number(start), exp.Literal.number(_FIELDS[field])
        numbers[field] = exp.Substring(this=text.copy(), start=first, length=length)
        start += _FIELDS[field]
    return numbers


def _chain(parts: list[exp.Expr]) -> exp.Expr:
    total = parts[0]
    for part in parts[1:]:
        total = exp.DPipe(this=total, expression=part, safe=True)
    return total


def _unknown_format() -> InvalidInput:
    return InvalidInput(
        "the format of a date is not supported here",
        why="all engines must write and read the same",
        fix="use a literal of %Y, %y, %m, %d, %H, %M, %S, %j, %V, %u, %w, %A, %a, %B, %b, %F and %T",
    )


BUILDERS: Mapping[type[exp.Expr], Builder] = {
    exp.Extract: _extract,
    exp.Year: _named_part("year"),
    exp.Quarter: _named_part("quarter"),
    exp.Month: _named_part("month"),
    **dict.fromkeys((exp.Week, exp.WeekOfYear), _named_part("week")),
    exp.Day: _named_part("day"),
    exp.DayOfWeek: _named_part("dow"),
    exp.DayOfWeekIso: _named_part("isodow"),
    exp.DayOfYear: _named_part("doy"),
    exp.Hour: _named_part("hour"),
    exp.Minute: _named_part("minute"),
    exp.Second: _named_part("second"),
    exp.Dayname: _part_name("dow", _DAY_NAMES),
    exp.Monthname: _part_name("month", _MONTH_NAMES),
    **dict.fromkeys((exp.TimestampTrunc, exp.DateTrunc, exp.DatetimeTrunc), _truncated),
    exp.DateDiff: _difference,
    **dict.fromkeys((exp.DateAdd, exp.TimestampAdd, exp.DatetimeAdd), _moved(1)),
    **dict.fromkeys((exp.DateSub, exp.TimestampSub, exp.DatetimeSub), _moved(-1)),
    exp.AddMonths: _add_months,
    exp.LastDay: _last_day,
    exp.Date: _to_date,
    exp.TimeToStr: _format,
    exp.StrToTime: _parse(Kind.TIMESTAMP),
    exp.StrToDate: _parse(Kind.DATE),
}
"""Functions of dates, by what the parser makes of them."""
