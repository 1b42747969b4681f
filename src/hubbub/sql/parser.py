"""Parses the text of a query, with GoogleSQL's `SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(…)`.

Its options (ε, δ, the maximum groups per privacy unit, the unit itself) become `Options`; an aggregate's
`contribution_bounds_per_group => (low, high)` becomes a call of `per_group(aggregate, low, high)`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from fractions import Fraction

import sqlglot
from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from hubbub.engines.schema import is_valid_text
from hubbub.engines.total_functions import datetime_literal
from hubbub.errors import InvalidInput
from hubbub.numbers import parse_rational
from hubbub.sql.googlesql import modernize, translate_meanings

__all__ = ["PER_GROUP", "PER_ROW", "Options", "parse", "without_options"]

PER_GROUP = "hubbub_per_group"
PER_ROW = "hubbub_per_row"
_NAMES = {
    *("epsilon", "delta", "max_groups_contributed", "privacy_unit_column", "max_rows_contributed"),
    *("group_selection_strategy", "min_privacy_units_per_group", "kappa"),
}
_BOUNDS = {"contribution_bounds_per_group": PER_GROUP, "contribution_bounds_per_row": PER_ROW}
_STRATEGIES = {"LAPLACE_THRESHOLD", "PUBLIC_GROUPS"}


@dataclass(frozen=True)
class Options:
    """The options in OPTIONS(…); None for those that are absent."""

    epsilon: Fraction | None = None
    delta: Fraction | None = None
    groups: int | None = None
    rows: int | None = None
    unit: str | None = None
    is_public_groups: bool = False
    """True if group keys are those of a public table that is joined."""
    min_units: int | None = None
    """The least number of units, with noise, of a group that is shown."""
    now: datetime | None = None
    """The time that NOW() and CURRENT_DATE mean, in UTC, where the query asks for it."""


def without_options(text: str) -> tuple[str, Options, str]:
    """Return the text in plain SQL, its options, and its dialect.

    >>> without_options("SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1) COUNT(*) FROM t")[1].epsilon
    Fraction(1, 1)
    """
    upper = text.upper()
    if "ANONYMIZATION" in upper:
        text = modernize(text)
        upper = text.upper()
    if "DIFFERENTIAL_PRIVACY" not in upper and "CONTRIBUTION_BOUNDS_PER_" not in upper:
        return text, Options(), "duckdb"
    try:
        tokens = sqlglot.tokenize(text, read="bigquery")
    except sqlglot.errors.SqlglotError:
        return text, Options(), "duckdb"  # the parser will say where
    cuts, options = _clause(tokens)
    pieces = [*cuts, *_bounds(tokens)]
    if not pieces:  # the words stand in a text or a comment
        return text, Options(), "duckdb"
    for start, end, instead in sorted(pieces, reverse=True):
        text = text[:start] + instead + text[end:]
    return text, options, "bigquery"


def _clause(tokens: Sequence[Token]) -> tuple[list[tuple[int, int, str]], Options]:
    """The positions of WITH DIFFERENTIAL_PRIVACY OPTIONS(…), and its options."""
    cuts: list[tuple[int, int, str]] = []
    known: Options | None = None
    for place, token in enumerate(tokens):
        if (
            token.text.upper() != "DIFFERENTIAL_PRIVACY"
            or place == 0
            or tokens[place - 1].text.upper() != "WITH"
        ):
            continue
        end, options = place, Options()
        if place + 2 < len(tokens) and tokens[place + 1].text.upper() == "OPTIONS":
            end = _closing(tokens, place + 2)
            options = _options(tokens[place + 3 : end])
        if known not in {None, options}:
            raise InvalidInput(
                "two clauses of DIFFERENTIAL_PRIVACY have different options",
                why="the price is that of the whole statement",
                fix="write the same options, or ask two queries",
            )
        known = options
        cuts.append((tokens[place - 1].start, tokens[end].end + 1, ""))
    return cuts, known or Options()


def _options(tokens: Sequence[Token]) -> Options:
    options: dict[str, str] = {}
    for part in _split(tokens):
        if len(part) < 3 or part[1].text != "=" or part[0].text.lower() not in _NAMES:
            raise InvalidInput(
                "an option of DIFFERENTIAL_PRIVACY is not known here",
                why="ignoring it would change the guarantee",
                fix=f"use {', '.join(sorted(_NAMES))}, each as name = value",
            )
        value = "".join(token.text for token in part[2:])
        if value.upper() != "NULL":  # as if it were not there
            options[part[0].text.lower()] = value
    strategy = options.get("group_selection_strategy", "LAPLACE_THRESHOLD").upper()
    if strategy not in _STRATEGIES:
        raise InvalidInput(
            "group_selection_strategy is not known",
            why="it decides which groups are shown",
            fix="write LAPLACE_THRESHOLD or PUBLIC_GROUPS",
        )
    groups = options.get("max_groups_contributed", options.get("kappa"))
    rows, least = options.get("max_rows_contributed"), options.get("min_privacy_units_per_group")
    return Options(
        _number(options["epsilon"], "epsilon") if "epsilon" in options else None,
        _number(options["delta"], "delta") if "delta" in options else None,
        _whole(groups, "max_groups_contributed") if groups else None,
        _whole(rows, "max_rows_contributed") if rows else None,
        options.get("privacy_unit_column"),
        strategy == "PUBLIC_GROUPS",
        _whole(least, "min_privacy_units_per_group") if least else None,
    )


def _number(text: str, name: str) -> Fraction:
    try:
        return parse_rational(Decimal(text), name)
    except InvalidOperation:
        raise InvalidInput(
            f"{name} is not a number", why="the option takes one", fix="write it as 0.5 or 1e-6"
        ) from None


def _whole(text: str, name: str) -> int:
    number = _number(text, name)
    if number.denominator != 1:
        raise InvalidInput(f"{name} is not a whole number", why="it is a count", fix="write it as 3")
    return int(number)


def _bounds(tokens: Sequence[Token]) -> list[tuple[int, int, str]]:
    """The rewriting of each AGG(x, contribution_bounds_per_group => (low, high))."""
    pieces = []
    for place, token in enumerate(tokens):
        marker = _BOUNDS.get(token.text.lower())
        if marker is None:
            continue
        after = place + 1
        # => is one token or two.
        while after < len(tokens) and tokens[after].text in {"=", ">", "=>"}:
            after += 1
        if after >= len(tokens) or tokens[after].token_type is not TokenType.L_PAREN:
            raise _bad_bounds()
        end = _closing(tokens, after)
        ends = _split(tokens[after + 1 : end])
        opening = _opening(tokens, place)
        close = _closing(tokens, opening)
        if len(ends) != 2 or opening < 1 or tokens[place - 1].text != "," or close != end + 1:
            raise _bad_bounds()
        low, high = ("".join(token.text for token in part) for part in ends)
        _number(low, "low"), _number(high, "high")
        name = tokens[opening - 1]
        pieces += [
            (name.start, name.start, f"{marker}("),
            (tokens[place - 1].start, tokens[close].end + 1, f"), {low}, {high})"),
        ]
    return pieces


def _closing(tokens: Sequence[Token], place: int) -> int:
    depth = 0
    for here in range(place, len(tokens)):
        kind = tokens[here].token_type
        depth += (kind is TokenType.L_PAREN) - (kind is TokenType.R_PAREN)
        if depth == 0:
            return here
    raise _bad_bounds()


def _opening(tokens: Sequence[Token], place: int) -> int:
    depth = 0
    for here in range(place - 1, -1, -1):
        kind = tokens[here].token_type
        depth += (kind is TokenType.R_PAREN) - (kind is TokenType.L_PAREN)
        if depth < 0:
            return here
    raise _bad_bounds()


def _split(tokens: Sequence[Token]) -> list[list[Token]]:
    parts: list[list[Token]] = [[]]
    for token in tokens:
        if token.token_type is TokenType.COMMA:
            parts.append([])
        else:
            parts[-1].append(token)
    return parts


def _bad_bounds() -> InvalidInput:
    return InvalidInput(
        "OPTIONS or contribution_bounds_per_group cannot be read",
        why="what one unit may contribute must be clear",
        fix="write AVG(x, contribution_bounds_per_group => (0, 5)), and OPTIONS(epsilon = 1, …)",
    )


# Text in, the syntax tree of one statement out; what it means is read in `sql`.

_MAX_LENGTH = 100_000


def parse(text: str) -> tuple[exp.Expr, Options]:
    """Return the syntax tree of one statement, and the options of WITH DIFFERENTIAL_PRIVACY."""
    if not isinstance(text, str) or not text.strip() or len(text) > _MAX_LENGTH or not is_valid_text(text):
        raise InvalidInput(
            "the query is empty"
            if isinstance(text, str) and not text.strip()
            else "the query is not a text, or too long",
            why="it must be one SELECT statement",
            fix="write one SELECT of at most 100,000 characters",
        )
    plain, options, dialect = without_options(text)
    try:
        statements = [node for node in sqlglot.parse(plain, read=dialect) if node is not None]
    except (sqlglot.errors.SqlglotError, RecursionError) as problem:
        statements = _parse_top(plain)
        if not statements:
            raise _syntax(problem, plain) from None
    if len(statements) != 1:
        raise InvalidInput(
            "there is not exactly one statement", why="one query is one plan", fix="write one SELECT"
        )
    for literal in statements[0].find_all(exp.Literal):
        if not literal.is_string:
            _check_number(literal.name)
    if dialect == "bigquery":
        for select in statements[0].find_all(exp.Select):
            _check_aliases(select)
        translate_meanings(statements[0])
    return statements[0], replace(options, now=_fix_time(statements[0]))


_CLOCKS = (exp.Anonymous, exp.CurrentDate, exp.CurrentTimestamp, exp.CurrentDatetime)


def _fix_time(statement: exp.Expr) -> datetime | None:
    """Replace NOW() and CURRENT_DATE by the time of planning, a public constant; None if there is none."""
    now = datetime.now(UTC).replace(tzinfo=None, microsecond=0)
    is_used = False
    for node in list(statement.find_all(*_CLOCKS)):
        is_call = isinstance(node, exp.Anonymous)
        if is_call and (str(node.this).lower() not in {"now", "getdate"} or node.expressions):
            continue
        if not is_call and node.args.get("this") is not None:  # a time zone
            continue
        is_used = True
        node.replace(datetime_literal(now.date() if isinstance(node, exp.CurrentDate) else now))
    return now if is_used else None


def _parse_top(text: str) -> list[exp.Expr]:
    """The statement if it is written with SELECT TOP n, as SQL Server has it; else nothing."""
    if " TOP" not in text.upper():
        return []
    try:
        return [node for node in sqlglot.parse(text, read="tsql") if node is not None]
    except (sqlglot.errors.SqlglotError, RecursionError):
        return []


def _check_aliases(select: exp.Select) -> None:
    """Refuse GROUP BY age with `age * 10 AS age`: GoogleSQL means the alias, all others the column."""
    group = select.args.get("group")
    grouped = {
        key.name.lower() for key in (group.expressions if group else ()) if isinstance(key, exp.Column)
    }
    for item in select.expressions:
        inner, name = item.unalias(), item.alias.lower()
        columns = set() if isinstance(inner, exp.Column) else set(inner.find_all(exp.Column))
        if name in grouped & {column.name.lower() for column in columns}:
            raise InvalidInput(
                f"{item.alias[:60]!r} in the GROUP BY is a column and the name of an output",
                why="to GoogleSQL it is the output, to others the column",
                fix="give the output another name",
            )


def _check_number(text: str) -> None:
    """Refuse texts such as 1e-0.03, which the parser takes for a number."""
    try:
        float(text)
    except ValueError:
        raise InvalidInput(
            f"{text!r} is not a number", why="it looks like one, but cannot be read", fix="write it as 0.001"
        ) from None


def _syntax(problem: Exception, text: str) -> InvalidInput:
    where = ""
    if isinstance(problem, sqlglot.errors.ParseError) and problem.errors:
        first = problem.errors[0]
        token = str(first.get("highlight") or "")[:20]
        where = f" at {token!r}" if token.strip() else ""
        where += f", line {first.get('line')}, column {first.get('col')}"
    begins = text.lstrip("( \n\t").upper().startswith(("SELECT", "WITH", "FROM", "--", "/*"))
    return InvalidInput(
        f"the SQL cannot be read{where}",
        why="it is not a statement",
        fix="correct its syntax" if begins else "begin with SELECT, as SELECT COUNT(*) AS n FROM visits",
    )
