"""Text in, the syntax tree of one statement out; what it means is read in `sql`."""

import sqlglot
from sqlglot import exp

from hubbub.errors import InvalidInput
from hubbub.queries.google import Options, without_options
from hubbub.tables.schema import is_text

__all__ = ["parsed"]

_LONGEST = 100_000


def parsed(text: str) -> tuple[exp.Expr, Options]:
    """The syntax tree of one statement, and the options of WITH DIFFERENTIAL_PRIVACY."""
    if not isinstance(text, str) or not text.strip() or len(text) > _LONGEST or not is_text(text):
        raise InvalidInput(
            "the query is not a text, is empty, or too long",
            why="it must be one SELECT statement",
            fix="write one SELECT of at most 100,000 characters",
        )
    plain, options, dialect = without_options(text)
    try:
        statements = [node for node in sqlglot.parse(plain, read=dialect) if node is not None]
    except (sqlglot.errors.SqlglotError, RecursionError) as problem:
        raise _syntax(problem) from None
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
    return statements[0], options


def _check_aliases(select: exp.Select) -> None:
    """Refuse GROUP BY age of an `age * 10 AS age`: to GoogleSQL it is the alias, to all others the column."""
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
    """The parser takes more for a number than there are: 1e-0.03 is none."""
    try:
        float(text)
    except ValueError:
        raise InvalidInput(
            f"{text!r} is no number", why="it looks like one, and cannot be read", fix="write it as 0.001"
        ) from None


def _syntax(problem: Exception) -> InvalidInput:
    where = ""
    if isinstance(problem, sqlglot.errors.ParseError) and problem.errors:
        line, column = problem.errors[0].get("line"), problem.errors[0].get("col")
        where = f" near line {line}, column {column}"
    return InvalidInput(
        f"the SQL cannot be read{where}", why="it is not a statement", fix="correct its syntax"
    )
