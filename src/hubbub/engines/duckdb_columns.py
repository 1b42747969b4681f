"""DuckDB's columns by type: the kind of each, and how it is read so that no value can make a query fail.

Proof: docs/proofs/bounding.md, "Files"
"""

from datetime import datetime, timedelta

import sqlglot
from sqlglot import exp

from hubbub.engines.data_frames import REPLACEMENT
from hubbub.engines.file_formats import quote_name, quote_text
from hubbub.engines.schema import Kind
from hubbub.engines.total_functions import MIN_DATETIME, SQL_TYPES, clamp_finite, convert_kind, restrict_years
from hubbub.errors import InvalidInput

__all__ = [
    "INTEGERS",
    "base_type",
    "convert_column",
    "decode_utf8",
    "find_element",
    "find_kind",
    "parse_integer",
]

INTEGERS = (
    "TINYINT",
    "SMALLINT",
    "INTEGER",
    "BIGINT",
    "HUGEINT",
    "UTINYINT",
    "USMALLINT",
    "UINTEGER",
    "UBIGINT",
)
_FLOATS = ("FLOAT", "DOUBLE", "DECIMAL", "UHUGEINT", "BIGNUM")
_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - timestamps here have no zone
_FORMATTABLE = {"UUID", "BLOB", "BIT", "INTERVAL", "JSON"}
"""Opaque types of which DuckDB can write every value as a text."""


_PLAIN_ELEMENTS = frozenset({
    "VARCHAR", "BOOLEAN", "DATE", "TIMESTAMP", "DOUBLE", "FLOAT", "TINYINT", "SMALLINT", "INTEGER", "BIGINT",
    "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT",
})  # fmt: skip
"""Types of the elements of lists that can be unnested."""


def base_type(sql_type: str) -> str:
    """A type without its parameters: the members of an enumeration may come from rows."""
    return sql_type.partition("(")[0].upper()


def find_kind(sql_type: str) -> Kind:
    """The kind of a column of this type."""
    base = base_type(sql_type)
    if base in INTEGERS or base in _FLOATS:
        return Kind.NUMBER
    if base in {"VARCHAR", "ENUM"}:
        return Kind.TEXT
    if base == "BOOLEAN":
        return Kind.BOOLEAN
    if base == "DATE":
        return Kind.DATE
    if base.startswith("TIMESTAMP") and "[" not in base:
        return Kind.TIMESTAMP
    return Kind.OPAQUE


def find_element(sql_type: str) -> Kind | None:
    """The kind of a list's elements; None for other types, and for lists of lists."""
    element = sql_type.removesuffix("[]")
    return find_kind(element) if element != sql_type and element in _PLAIN_ELEMENTS else None


def convert_column(column: str, sql_type: str, kind: Kind) -> exp.Expr:
    """The column as its declared kind, the same on every engine; no value can make it fail."""
    known = find_kind(sql_type)
    if known is Kind.OPAQUE is not kind and sql_type.upper() not in _FORMATTABLE:
        raise InvalidInput(
            f"the column {column!r} is {base_type(sql_type)}, and declared as a {kind.value}",
            why="the engine cannot write every value of that type as a text",
            fix="leave its type out: such a column can be counted, or be the unit",
        )
    return convert_kind(_read_column(column, sql_type), known, kind, column)


def _read_column(column: str, sql_type: str) -> exp.Expr:
    """The column as the kind of its own type."""
    name: exp.Expr = exp.column(exp.to_identifier(column, quoted=True))
    known, base = find_kind(sql_type), sql_type.partition("(")[0].upper()
    as_text = exp.Cast(this=name.copy(), to=exp.DataType.build("VARCHAR"))
    if known is Kind.TEXT:
        return as_text if base == "ENUM" else name
    if known is Kind.NUMBER:
        if base in {"HUGEINT", "UHUGEINT", "BIGNUM", "DECIMAL"}:
            # Through its digits: a direct cast would round twice beyond 2^53.
            name = as_text
        double = exp.TryCast(this=name, to=exp.DataType.build("DOUBLE"))
        return double if base in INTEGERS else clamp_finite(double)
    if base in {"TIMESTAMP WITH TIME ZONE", "TIMESTAMPTZ_NS"}:
        if base == "TIMESTAMPTZ_NS":
            name = exp.TryCast(this=name, to=exp.DataType.build("TIMESTAMPTZ"))
        # In UTC, whatever the connection's own time zone is.
        micros = exp.func("epoch_us", name)
        ends = [int((end - _EPOCH) / timedelta(microseconds=1)) for end in (datetime.min, datetime.max)]  # noqa: DTZ901
        inside = exp.Between(this=micros, low=_integer(ends[0]), high=_integer(ends[1]))
        return exp.Case(ifs=[exp.If(this=inside, true=exp.func("make_timestamp", micros.copy()))])
    if known in MIN_DATETIME:
        is_plain = base == SQL_TYPES[known]
        to = exp.DataType.build(SQL_TYPES[known])
        return restrict_years(name if is_plain else exp.TryCast(this=name, to=to), known)
    if find_element(sql_type) is not None:
        return _read_list(name, sql_type.removesuffix("[]"))
    return name


def _read_list(column: exp.Expr, element_type: str) -> exp.Expr:
    """A list with each of its elements as the kind of its own type: no element can make a query fail."""
    element = exp.to_identifier("_element", quoted=True)
    if element_type == "VARCHAR":  # of Arrow, texts within lists are not checked to be UTF-8 before
        read: exp.Expr = sqlglot.parse_one(decode_utf8("_element", "encode({})"), read="duckdb")
    else:
        read = _read_column("_element", element_type)
    return exp.Array(expressions=[exp.Comprehension(this=read, expression=element, iterator=column)])


def parse_integer(sql: str) -> str:
    """The integer that a text contains; NULL for other texts: such a row belongs to no unit."""
    digits = f"regexp_extract({sql}, '^ *([+-]?[0-9]{{1,38}})([.]0*)? *$', 1)"
    return f"TRY_CAST(replace({digits}, '+', '') AS HUGEINT)"


def decode_utf8(column: str, as_bytes: str = "{}") -> str:
    """Bytes as a text, in SQL; U+FFFD if they are not UTF-8. No bytes fail."""
    known = quote_name(column)
    decoded = f"TRY(decode({as_bytes.format(known)}))"
    return f"COALESCE({decoded}, CASE WHEN {known} IS NOT NULL THEN {quote_text(REPLACEMENT)} END)"


def _integer(number: int) -> exp.Expr:
    return exp.Literal.number(number) if number >= 0 else exp.Neg(this=exp.Literal.number(-number))
