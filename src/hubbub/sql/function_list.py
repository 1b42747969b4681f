"""The SQL functions that are accepted: of one row, of many rows, and of released values.

Functions of one row are listed by examples. Compiling these gives their kinds and engines: the list says
what the analyzer does, not what somebody wrote down.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache

import sqlglot
from sqlglot import exp

from hubbub.engines.dialect import is_portable
from hubbub.engines.schema import Column, Kind
from hubbub.sql.released_sql import list_functions
from hubbub.sql.row_expressions import compile_expression
from hubbub.sql.typed_expressions import Scope

__all__ = ["FunctionEntry", "find_nearest", "list_entries", "render_markdown"]

_ROW_EXAMPLES = """
    x + y ; x - y ; x * y ; x / y ; x // y ; x % y ; -x ; ABS(x) ; FLOOR(x) ; CEIL(x) ; ROUND(x, 2)
    ; TRUNC(x) ; SIGN(x) ; SQRT(x) ; LN(x) ; LOG(x) ; LOG10(x) ; LOG2(x) ; LOG(3, x) ; EXP(x) ;
    POWER(x, 2) ; POWER(x, y) ; WIDTH_BUCKET(x, 0, 100, 10) ; SAFE_DIVIDE(x, y) ; LEAST(x, y) ;
    GREATEST(x, y) ; x = y ; x < y ; x BETWEEN 1 AND 2 ; x IN (1, 2) ; x IS NULL ; t LIKE 'a%' ; t
    ILIKE 'a%' ; b AND b ; b OR b ; NOT b ; CASE WHEN b THEN x ELSE y END ; IF(b, x, y) ;
    COALESCE(x, y) ; NULLIF(x, y) ; LOWER(t) ; UPPER(t) ; TRIM(t) ; LTRIM(t) ; RTRIM(t) ; LENGTH(t)
    ; SUBSTRING(t, 1, 2) ; LEFT(t, 2) ; RIGHT(t, 2) ; LPAD(t, 5, '0') ; REPLACE(t, 'a', 'b') ;
    SPLIT_PART(t, '-', 2) ; POSITION('a' IN t) ; t || t ; CONCAT(t, t) ; STARTS_WITH(t, 'a') ;
    ENDS_WITH(t, 'a') ; CONTAINS(t, 'a') ; REGEXP_MATCHES(t, '^a') ; REGEXP_FULL_MATCH(t, 'a+') ;
    REGEXP_EXTRACT(t, '[0-9]+') ; EXTRACT(year FROM d) ; YEAR(d) ; QUARTER(d) ; MONTH(d) ; WEEK(d)
    ; DAY(d) ; DAYOFWEEK(d) ; ISODOW(d) ; DAYOFYEAR(d) ; HOUR(m) ; MINUTE(m) ; SECOND(m) ;
    DAYNAME(d) ; MONTHNAME(d) ; LAST_DAY(d) ; DATE_TRUNC('month', d) ; DATE_DIFF('month', d, d) ; d
    - d ; d + 7 ; m - INTERVAL 30 MINUTE ; DATE_ADD(m, INTERVAL 1 MONTH) ; ADD_MONTHS(d, 3) ;
    STRFTIME(m, '%Y-%m') ; STRPTIME(t, '%d/%m/%Y') ; CAST(t AS DOUBLE) ; CAST(x AS VARCHAR) ;
    CAST(t AS DATE) ; CAST(m AS DATE) ; TRY_CAST(t AS TIMESTAMP) ; LEN(l) ; ARRAY_LENGTH(l) ;
    LIST_CONTAINS(l, 'a')
"""
_AGGREGATES = """
    COUNT(*) ; COUNT(x) ; COUNT(DISTINCT x) ; COUNT_IF(b) ; SUM(x) ; AVG(x) ; VARIANCE(x) ;
    VAR_POP(x) ; STDDEV(x) ; STDDEV_POP(x) ; COVAR_SAMP(x, y) ; COVAR_POP(x, y) ; CORR(x, y) ;
    REGR_SLOPE(y, x) ; MEDIAN(x) ; MIN(x) ; MAX(x) ; QUANTILE_CONT(x, 0.9) ; PERCENTILE_CONT(0.9)
    WITHIN GROUP (ORDER BY x) ; APPROX_QUANTILE(x, 0.9) ; APPROX_COUNT_DISTINCT(x) ; SUM(DISTINCT x) ;
    AVG(DISTINCT x) ; SUM(x) FILTER (WHERE b)
"""
_SCOPE = Scope(
    {
        "r": (
            *(Column(name, Kind.NUMBER) for name in "xy"),
            Column("t", Kind.TEXT),
            Column("b", Kind.BOOLEAN),
            Column("d", Kind.DATE),
            Column("m", Kind.TIMESTAMP),
            Column("l", Kind.OPAQUE, element=Kind.TEXT),
        )
    }
)
_NEAREST = {
    "CBRT": "POWER",
    "STDEV": "STDDEV",
    "CHAR_LENGTH": "LENGTH",
    "TIMESTAMP_DIFF": "DATE_DIFF",
    "DATE_BIN": "DATE_TRUNC",
    "TIME_TRUNC": "DATE_TRUNC",
    "TO_CHAR": "STRFTIME",
    "TO_DATE": "STRPTIME",
    "TIME_TO_UNIX": "DATE_DIFF",
    "MAKE_DATE": "CAST",
    "DATE_FROM_PARTS": "CAST",
    "REGEXP_REPLACE": "REPLACE",
    "REGEXP_EXTRACT_ALL": "REGEXP_EXTRACT",
    "REGEXP_COUNT": "REGEXP_MATCHES",
    "SIMILAR_TO": "REGEXP_MATCHES",
    "SPLIT": "SPLIT_PART",
    "CONCAT_WS": "CONCAT",
    "INITCAP": "UPPER",
    "TRANSLATE": "REPLACE",
    "ARRAY_AGG": "COUNT",
    "LIST": "COUNT",
    "GROUP_CONCAT": "COUNT",
    "STRING_AGG": "COUNT",
    "MODE": "COUNT",
    "ANY_VALUE": "MEDIAN",
    "ARG_MAX": "MAX",
}
"""For functions of other names, the one that does most of the same."""


@dataclass(frozen=True)
class FunctionEntry:
    """A function that is accepted."""

    example: str
    """As written: x and y are numbers, t is a text, b a truth value, d a date, m a timestamp, l a list."""
    kind: str
    """The type of its result."""
    engines: str
    use: str
    """Where it can be used: on rows, as an aggregate, or over released values."""

    @property
    def name(self) -> str:
        """Its name."""
        return self.example.partition("(")[0].strip().upper()


@cache
def list_entries() -> tuple[FunctionEntry, ...]:
    """All functions that are accepted."""
    return tuple(_entries())


def _split(examples: str) -> list[str]:
    return [" ".join(example.split()) for example in examples.split(";")]


def _entries() -> Iterator[FunctionEntry]:
    for example in _split(_ROW_EXAMPLES):
        typed = compile_expression(sqlglot.parse_one(example, read="duckdb"), _SCOPE)
        engines = "all" if is_portable(typed.sql) else "DuckDB"
        yield FunctionEntry(example, typed.kind.value, engines, "rows")
    for example in _split(_AGGREGATES):
        yield FunctionEntry(example, Kind.NUMBER.value, "all", "aggregate")
    for name in list_functions():
        yield FunctionEntry(f"{name}(…)", "as in DuckDB", "all", "released values")


def find_nearest(node: exp.Expr) -> str | None:
    """The accepted function that is nearest to one that is not; None if there is none."""
    name = (
        str(node.this)
        if isinstance(node, exp.Anonymous)
        else type(node).sql_name()
        if isinstance(node, exp.Func)
        else ""
    )
    names = {
        entry.name for entry in list_entries() if entry.use != "released values" and "(" in entry.example
    }
    close = get_close_matches(name.upper(), names, 1, 0.75)
    return _NEAREST.get(name.upper()) or (close[0] if close else None)


def render_markdown() -> str:
    """The list as a page."""
    lines = [
        "# Functions",
        "",
        "Made by `make docs` from what is accepted; `hubbub functions` prints the same. In the examples",
        "x and y are numbers, t is a text, b a truth value, d a date, m a timestamp and l a list. What",
        "functions of rows mean is in [queries](queries.md), under semantics of functions.",
    ]
    titles = {
        "rows": "On rows: WHERE, GROUP BY, and the arguments of aggregates",
        "aggregate": "Aggregates",
        "released values": "Over released values",
    }
    for use, title in titles.items():
        lines += ["", f"## {title}", ""]
        entries = [entry for entry in list_entries() if entry.use == use]
        if use == "released values":
            lines.append(", ".join(f"`{entry.name}`" for entry in entries) + ".")
            continue
        lines += ["| function | result | engines |", "|---|---|---|"]
        cells = ((entry.example.replace("|", "\\|"), entry.kind, entry.engines) for entry in entries)
        lines += [f"| `{example}` | {kind} | {engines} |" for example, kind, engines in cells]
    return "\n".join(lines) + "\n"
