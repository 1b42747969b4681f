"""Functions of texts, each in a form that no row can make fail.

What counts letters, searches or pads takes a literal that is known beforehand, and agrees on all engines.
Regular expressions are those of DuckDB, and refused elsewhere: engines disagree on which match is the first.

Proof: docs/proofs/bounding.md, "Rows"
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from fractions import Fraction
from functools import cache

from sqlglot import exp

from hubbub.engines.dialect import call
from hubbub.engines.schema import Kind
from hubbub.engines.total_functions import DOUBLE, ascii_lower, ascii_upper, text_literal
from hubbub.errors import InvalidInput, Unsupported
from hubbub.sql.typed_expressions import (
    MAX_TEXT_LENGTH,
    TypedExpression,
    as_kind,
    check_arguments,
    copy_expression,
    make_condition,
    unsupported_here,
)

__all__ = ["BUILDERS", "Builder", "Compile", "as_whole", "known_whole", "passes_null", "text_of"]

Compile = Callable[[exp.Expr | None], TypedExpression]
"""Compiles a part of the expression."""
Builder = Callable[[exp.Expr, Compile], TypedExpression]

_ALL = 2**30
_MAX_PARTS = 1000
_MAX_PATTERN = 500


def text_of(node: exp.Expr, compile_part: Compile) -> TypedExpression:
    """A part that is a text."""
    return as_kind(compile_part(node), Kind.TEXT, "an operand")


def known_whole(node: exp.Expr, compile_part: Compile, least: int, most: int) -> int:
    """A whole number that is written out."""
    return as_whole(compile_part(node), least, most)


def as_whole(typed: TypedExpression, least: int, most: int) -> int:
    """The whole number that an expression is, if it is written out."""
    if (
        not typed.is_literal
        or not isinstance(typed.value, Fraction)
        or typed.value.denominator != 1
        or not least <= typed.value <= most
    ):
        raise InvalidInput(
            "a number of digits or characters is not an integer literal, or is out of range",
            why="it must be known beforehand, and mean the same in every engine",
            fix=f"write a whole number from {least} to {most}",
        )
    return int(typed.value)


def _known_text(node: exp.Expr | None, compile_part: Compile, what: str) -> str:
    """A text that is written out, and not empty."""
    typed = compile_part(node)
    if not typed.is_literal or not isinstance(typed.value, str) or not typed.value:
        raise InvalidInput(
            f"{what} is not a text literal, or is empty",
            why="it must be known beforehand, and mean the same in every engine",
            fix="write it in single quotes, with at least one character",
        )
    return typed.value


def passes_null(node: exp.Expr, flag: str) -> bool:
    """True if a function ignores NULL, as in DuckDB; in GoogleSQL NULL makes it NULL."""
    argument = node.args.get(flag)
    return argument is None or bool(argument)


def _text_function(make: Callable[[exp.Expr], exp.Expr]) -> Builder:
    def build(node: exp.Expr, compile_part: Compile) -> TypedExpression:
        check_arguments(node, "this")
        return TypedExpression(make(text_of(node.this, compile_part).sql), Kind.TEXT)

    return build


def _trim(node: exp.Expr, compile_part: Compile) -> TypedExpression:
    check_arguments(node, "this", "position")
    trimmed = exp.Trim(this=text_of(node.this, compile_part).sql, expression=text_literal(" "))
    trimmed.set("position", str(node.args.get("position") or "").upper() or None)
    return TypedExpression(trimmed, Kind.TEXT)


def _length(node: exp.Expr, compile_part: Compile) -> TypedExpression:
    known = compile_part(node.this)
    if known.column is not None and known.column.element is not None:
        size = exp.Cast(this=exp.ArraySize(this=known.sql), to=DOUBLE.copy())
        return TypedExpression(size, Kind.NUMBER, size=(0, 40))
    inner = as_kind(known, Kind.TEXT, "an operand")
    return TypedExpression(
        exp.Cast(this=exp.Length(this=inner.sql), to=DOUBLE.copy()), Kind.NUMBER, size=(0, 40)
    )


def _list_contains(node: exp.Expr, compile_part: Compile) -> TypedExpression:
    """True if an element of a list is equal; NULL only if the list or what is looked for is."""
    check_arguments(node, "this", "expression")
    known = compile_part(node.this)
    if known.column is None or known.column.element is None:
        raise unsupported_here(node)
    value = as_kind(compile_part(node.expression), known.column.element, "what is looked for")
    return make_condition(exp.ArrayContains(this=known.sql, expression=value.sql), known, value)


def _substring(node: exp.Expr, compile_part: Compile) -> TypedExpression:
    check_arguments(node, "this", "start", "length")
    # From 0 on or from behind, or a negative length: engines disagree on these.
    start, length = (node.args.get(name) for name in ("start", "length"))
    first = 1 if start is None else known_whole(start, compile_part, 1, MAX_TEXT_LENGTH)
    some = None if length is None else known_whole(length, compile_part, 0, MAX_TEXT_LENGTH)
    inner = text_of(node.this, compile_part)
    # To its end, where no length is given; no text is a thousand times a million letters long.
    return TypedExpression(_cut(inner.sql, first, _ALL if some is None else some), Kind.TEXT)


def _cut(text: exp.Expr, first: int = 1, most: int = MAX_TEXT_LENGTH) -> exp.Expr:
    return exp.Substring(this=text, start=exp.Literal.number(first), length=exp.Literal.number(most))


def _left(node: exp.Expr, compile_part: Compile) -> TypedExpression:
    most = known_whole(node.expression, compile_part, 0, MAX_TEXT_LENGTH)
    return TypedExpression(_cut(text_of(node.this, compile_part).sql, 1, most), Kind.TEXT)


def _right(node: exp.Expr, compile_part: Compile) -> TypedExpression:
    most = known_whole(node.expression, compile_part, 0, MAX_TEXT_LENGTH)
    inner = text_of(node.this, compile_part)
    return TypedExpression(exp.Right(this=inner.sql, expression=exp.Literal.number(most)), Kind.TEXT)


def _joined(node: exp.Expr, compile_part: Compile) -> TypedExpression:
    parts = [
        text_of(part, compile_part)
        for part in ((node.this, node.expression) if isinstance(node, exp.DPipe) else node.expressions)
    ]
    if isinstance(node, exp.Concat) and passes_null(node, "coalesce"):
        empty = text_literal("")
        parts = [replace(part, sql=exp.Coalesce(this=part.sql, expressions=[empty.copy()])) for part in parts]
    total = parts[0].sql
    for part in parts[1:]:
        # Doubled again and again a text would be longer than the engine bears, on some rows only.
        total = _cut(exp.DPipe(this=total, expression=part.sql, safe=True))
    return TypedExpression(total, Kind.TEXT)


def _starts(node: exp.Expr, compile_part: Compile) -> TypedExpression:
    inner, prefix = text_of(node.this, compile_part), text_of(node.expression, compile_part)
    return make_condition(exp.StartsWith(this=inner.sql, expression=prefix.sql), inner, prefix)


def _ends(node: exp.Expr, compile_part: Compile) -> TypedExpression:
    inner, suffix = text_of(node.this, compile_part), _known_text(node.expression, compile_part, "a suffix")
    end = exp.Right(this=inner.sql, expression=exp.Literal.number(len(suffix)))
    return make_condition(exp.EQ(this=end, expression=text_literal(suffix)), inner)


def _position(node: exp.Expr, compile_part: Compile) -> TypedExpression:
    check_arguments(node, "this", "substr")
    place = _find(text_of(node.this, compile_part), node.args["substr"], compile_part)
    return TypedExpression(exp.Cast(this=place, to=DOUBLE.copy()), Kind.NUMBER, size=(0, 40))


def _find(inner: TypedExpression, part: exp.Expr, compile_part: Compile) -> exp.Expr:
    """The position of a literal in a text, from 1; 0 if it does not occur."""
    literal = text_literal(_known_text(part, compile_part, "what is searched for"))
    return exp.StrPosition(this=inner.sql, substr=literal)


def _contains(node: exp.Expr, compile_part: Compile) -> TypedExpression:
    inner = text_of(node.this, compile_part)
    place = _find(inner, node.expression, compile_part)
    return make_condition(exp.GT(this=place, expression=exp.Literal.number(0)), inner)


def _replace(node: exp.Expr, compile_part: Compile) -> TypedExpression:
    check_arguments(node, "this", "expression", "replacement")
    old = _known_text(node.expression, compile_part, "what is replaced")
    typed = compile_part(node.args.get("replacement"))
    new = typed.value
    if not typed.is_literal or not isinstance(new, str) or len(new.encode()) > len(old.encode()):
        raise InvalidInput(
            "a replacement is not a text literal, or is longer than what it replaces",
            why="a text could outgrow the engine's memory, on some rows only",
            fix="write a replacement that is no longer, or use CASE",
        )
    inner = text_of(node.this, compile_part).sql
    sql = exp.Replace(this=inner, expression=text_literal(old), replacement=text_literal(new))
    return TypedExpression(sql, Kind.TEXT)


def _pad(node: exp.Expr, compile_part: Compile) -> TypedExpression:
    check_arguments(node, "this", "expression", "fill_pattern")
    most = known_whole(node.expression, compile_part, 1, _MAX_PARTS)
    pattern = node.args.get("fill_pattern")
    fill = " " if pattern is None else _known_text(pattern, compile_part, "a filling")
    sql = exp.Pad(
        this=text_of(node.this, compile_part).sql,
        expression=exp.Literal.number(most),
        fill_pattern=text_literal(fill),
        is_left=bool(node.args.get("is_left")),
    )
    return TypedExpression(sql, Kind.TEXT)


def _split_part(node: exp.Expr, compile_part: Compile) -> TypedExpression:
    check_arguments(node, "this", "delimiter", "part_index")
    separator = _known_text(node.args.get("delimiter"), compile_part, "a separator")
    place = known_whole(node.args["part_index"], compile_part, 1, _MAX_PARTS)
    inner = text_of(node.this, compile_part)
    return TypedExpression(
        call("SPLIT_PART", inner.sql, text_literal(separator), exp.Literal.number(place)), Kind.TEXT
    )


# Patterns


def _like(node: exp.Expr, compile_part: Compile) -> TypedExpression:
    check_arguments(node, "this", "expression", "negate")
    inner, pattern = text_of(node.this, compile_part), text_of(node.expression, compile_part)
    if not pattern.is_literal or not isinstance(pattern.value, str) or "\\" in pattern.value:
        raise InvalidInput(
            "a pattern is not a literal, or holds a backslash",
            why="it must be known beforehand, and mean the same in every engine",
            fix="write the pattern with % and _ only",
        )
    text, like = inner.sql, pattern.value
    if isinstance(node, exp.ILike):
        text, like = (
            ascii_lower(text),
            "".join(letter.lower() if letter.isascii() else letter for letter in like),
        )
    sql: exp.Expr = exp.Like(this=exp.Paren(this=text), expression=text_literal(like))
    if node.args.get("negate"):  # NOT LIKE; older parsers put a NOT around
        sql = exp.Not(this=exp.Paren(this=sql))
    return make_condition(sql, inner)


@cache
def _is_pattern(pattern: str, group: int) -> bool:
    """True if DuckDB takes the regular expression; tried on an empty text, so that no query fails later."""
    import duckdb

    # What matches half a character could make a text that is none.
    if len(pattern) > _MAX_PATTERN or "\\C" in pattern:
        return False
    connection = duckdb.connect(config={"threads": "1"})
    try:
        connection.execute("SELECT regexp_extract('', $1, $2)", [pattern, group]).fetchall()
    except duckdb.Error:
        return False
    finally:
        connection.close()
    return True


def _pattern(node: exp.Expr | None, compile_part: Compile, group: int = 0) -> exp.Expr:
    pattern = _known_text(node, compile_part, "a regular expression")
    if not _is_pattern(pattern, group):
        raise InvalidInput(
            f"a regular expression cannot be read, or is longer than {_MAX_PATTERN} characters",
            why="it is checked before anything is charged",
            fix="correct it: the syntax is RE2's, without \\C",
        )
    return text_literal(pattern)


def _matches(node: exp.Expr, compile_part: Compile) -> TypedExpression:
    check_arguments(node, "this", "expression", "flag")
    inner = text_of(node.this, compile_part)
    parts = [_pattern(node.expression, compile_part)]
    if node.args.get("flag") is not None:
        flag = _known_text(node.args["flag"], compile_part, "an option")
        if flag not in {"c", "i", "s"}:
            raise Unsupported(
                "an option of a regular expression is not supported here",
                why="only those for case and for line ends are known",
                fix="use 'i', 'c' or 's'",
            )
        parts.append(text_literal(flag))
    name = "REGEXP_FULL_MATCH" if isinstance(node, exp.RegexpFullMatch) else "REGEXP_MATCHES"
    return make_condition(call(name, inner.sql, *parts), inner)


_GOOGLE_ONLY = ("null_if_pos_overflow", "null_if_no_match", "empty_if_group_missing")


def _extract(node: exp.Expr, compile_part: Compile) -> TypedExpression:
    check_arguments(node, "this", "expression", "group", *_GOOGLE_ONLY)
    inner = text_of(node.this, compile_part)
    is_google = bool(node.args.get("null_if_no_match"))
    group = node.args.get("group")
    place = 0 if group is None else known_whole(group, compile_part, 0, 9)
    if is_google and group is None:  # of one group in parentheses it is that group
        place = int(_has_group(_known_text(node.expression, compile_part, "a regular expression")))
    pattern = _pattern(node.expression, compile_part, place)
    sql = call("REGEXP_EXTRACT", inner.sql, pattern, exp.Literal.number(place))
    if is_google:
        matches = call("REGEXP_MATCHES", copy_expression(inner.sql), pattern.copy())
        sql = exp.Case(ifs=[exp.If(this=matches, true=sql)])
    return TypedExpression(sql, Kind.TEXT)


def _has_group(pattern: str) -> bool:
    """True if a pattern has a group that is captured."""
    is_class = is_escaped = False
    for place, letter in enumerate(pattern):
        if is_escaped:
            is_escaped = False
        elif letter == "\\":
            is_escaped = True
        elif is_class:
            is_class = letter != "]"
        elif letter == "[":
            is_class = True
        elif letter == "(" and not re.match("[?](?!P<)", pattern[place + 1 :]):
            return True
    return False


BUILDERS: Mapping[type[exp.Expr], Builder] = {
    **dict.fromkeys((exp.Like, exp.ILike), _like),
    **dict.fromkeys((exp.RegexpLike, exp.RegexpFullMatch), _matches),
    exp.RegexpExtract: _extract,
    exp.Lower: _text_function(ascii_lower),
    exp.Upper: _text_function(ascii_upper),
    exp.Trim: _trim,
    **dict.fromkeys((exp.Length, exp.ArraySize), _length),
    exp.ArrayContains: _list_contains,
    exp.Substring: _substring,
    exp.Left: _left,
    exp.Right: _right,
    **dict.fromkeys((exp.DPipe, exp.Concat), _joined),
    exp.StartsWith: _starts,
    exp.EndsWith: _ends,
    exp.StrPosition: _position,
    exp.Contains: _contains,
    exp.Replace: _replace,
    exp.Pad: _pad,
    exp.SplitPart: _split_part,
}
"""Functions of texts, by what the parser makes of them."""
