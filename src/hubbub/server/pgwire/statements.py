"""Statements: the text of a message split into statements, each with what it asks the server to do.

Only the outer form is read here, by PostgreSQL's lexical rules: SET, SHOW, BEGIN, COPY, EXPLAIN, cursors.
Queries pass on as texts; what they may say is decided by the planner, or by the catalog.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal
from typing import Any

from hubbub.server.pgwire.messages import WireError

__all__ = [
    "CloseCursor",
    "Command",
    "CopyOut",
    "Deallocate",
    "DeclareCursor",
    "Discard",
    "Empty",
    "Explain",
    "FetchCursor",
    "Query",
    "Reset",
    "SetVariable",
    "Show",
    "Statement",
    "Token",
    "Transaction",
    "classify",
    "count_parameters",
    "fill_parameters",
    "split_statements",
    "tokenize",
    "write_literal",
]

_MAX_STATEMENTS = 1000
_MAX_PARAMETERS = 1000
_TOKEN = re.compile(
    r"""(?P<space>\s+|--[^\n]*)
    |(?P<comment>/\*)
    |(?P<string>[eE]'(?:[^'\\]|\\.|'')*'|'(?:[^']|'')*'|\$(?P<tag>[^\W\d]\w*|)\$.*?\$(?P=tag)\$)
    |(?P<quoted>"(?:[^"]|"")*"|`[^`]*`)
    |(?P<parameter>\$\d+)
    |(?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?[\w.]*)
    |(?P<word>[^\W\d][\w$]*)
    |(?P<sign>[^'"`])""",
    re.VERBOSE | re.DOTALL,
)


@dataclass(frozen=True)
class Token:
    """A word, quoted name, string, number, parameter or sign, and where it stands."""

    kind: str
    text: str
    start: int
    end: int

    @property
    def word(self) -> str:
        """The word in capitals; empty for what is none."""
        return self.text.upper() if self.kind == "word" else ""

    @property
    def value(self) -> str:
        """The text of a string without its quotes, a name as PostgreSQL reads it, else the text itself."""
        if self.kind == "quoted":
            return self.text[1:-1].replace(self.text[0] * 2, self.text[0])
        if self.kind == "word":
            return self.text.lower()
        if self.kind != "string":
            return self.text
        if self.text.startswith("$"):
            return self.text.split("$", 2)[2].rsplit("$", 2)[0]
        if self.text[0] in "eE":
            return re.sub(r"\\(.)|''", lambda match: match[1] or "'", self.text[2:-1])
        return self.text[1:-1].replace("''", "'")


def _syntax(message: str) -> WireError:
    return WireError("42601", message, hint="Correct its syntax.")


def tokenize(text: str) -> Iterator[Token]:
    """Yield the tokens of a text, without spaces and comments."""
    place = 0
    while place < len(text):
        match = _TOKEN.match(text, place)
        if match is None:
            raise _syntax("a text or a quoted name in the statement has no end")
        kind = match.lastgroup or "sign"
        if kind == "comment":
            place = _comment_end(text, place)
            continue
        if kind != "space":
            name = next(
                each for each in ("string", "quoted", "parameter", "number", "word", "sign") if match[each]
            )
            yield Token(name, match[0], place, match.end())
        place = match.end()


def _comment_end(text: str, place: int) -> int:
    depth = 0
    for mark in re.compile(r"/\*|\*/").finditer(text, place):
        depth += 1 if mark[0] == "/*" else -1
        if depth == 0:
            return mark.end()
    raise _syntax("a comment in the statement has no end")


@dataclass(frozen=True)
class Statement:
    """One statement: its text, and its tokens with their places in it."""

    text: str
    tokens: tuple[Token, ...]

    @property
    def words(self) -> tuple[str, ...]:
        """Its tokens in capitals; quoted names and strings as empty texts."""
        return tuple(token.word or (token.text if token.kind == "sign" else "") for token in self.tokens)

    def after(self, index: int) -> str:
        """Return the text from a token on."""
        return self.text[self.tokens[index].start :] if index < len(self.tokens) else ""


def split_statements(text: str) -> list[Statement]:
    """Split a text at its semicolons; an empty text is one empty statement.

    >>> [each.text for each in split_statements("BEGIN; SELECT ';' -- a;b")]
    ['BEGIN', "SELECT ';'"]
    """
    statements: list[Statement] = []
    run: list[Token] = []
    for token in tokenize(text):
        if token.text == ";":
            statements.append(_statement(text, run))
            run = []
        else:
            run.append(token)
    if run:
        statements.append(_statement(text, run))
    full = [each for each in statements if each.tokens]
    if len(full) > _MAX_STATEMENTS:
        raise WireError("54000", f"there are more than {_MAX_STATEMENTS} statements", hint="Send fewer.")
    return full or [Statement("", ())]


def _statement(text: str, tokens: Sequence[Token]) -> Statement:
    if not tokens:
        return Statement("", ())
    start, end = tokens[0].start, tokens[-1].end
    moved = (Token(each.kind, each.text, each.start - start, each.end - start) for each in tokens)
    return Statement(text[start:end], tuple(moved))


# Parameters


def count_parameters(statement: Statement) -> int:
    """Return the highest number of a parameter such as $3."""
    numbers = [int(each.text[1:]) for each in statement.tokens if each.kind == "parameter"]
    if numbers and not (min(numbers) >= 1 and max(numbers) <= _MAX_PARAMETERS):
        raise _syntax(f"parameters are numbered from $1 to ${_MAX_PARAMETERS}")
    return max(numbers, default=0)


def fill_parameters(statement: Statement, values: Sequence[Any]) -> str:
    """Return the text with each parameter replaced by its value, written out.

    >>> fill_parameters(split_statements("SELECT '$1', $1")[0], ["it's"])
    "SELECT '$1', 'it''s'"
    """
    text = statement.text
    for token in reversed(statement.tokens):
        if token.kind == "parameter":
            index = int(token.text[1:]) - 1
            if index >= len(values):
                raise WireError("08P01", f"there is no value for the parameter {token.text}")
            text = f"{text[: token.start]}{write_literal(values[index])}{text[token.end :]}"
    return text


def write_literal(value: Any) -> str:
    """Return a value as SQL."""
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, datetime):
        return f"TIMESTAMP '{value.isoformat(' ')}'"
    if isinstance(value, date):
        return f"DATE '{value.isoformat()}'"
    if isinstance(value, list):
        return f"ARRAY[{', '.join(map(write_literal, value))}]"
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    text = format(value, "f") if isinstance(value, Decimal) else repr(value)
    return f"({text})" if text.startswith("-") else text


# What a statement asks for


@dataclass(frozen=True)
class Empty:
    """Nothing."""


@dataclass(frozen=True)
class Query:
    """Rows."""

    statement: Statement


@dataclass(frozen=True)
class Explain:
    """The plan of a query; with VERBOSE also sensitivities, noise and the engine's SQL."""

    statement: Statement
    is_verbose: bool = False


@dataclass(frozen=True)
class CopyOut:
    """The rows of a query as text, CSV or in binary."""

    statement: Statement
    options: dict[str, str] = field(hash=False)


@dataclass(frozen=True)
class SetVariable:
    """A new value of a setting; None for its default."""

    name: str
    value: str | None
    is_local: bool = False


@dataclass(frozen=True)
class Reset:
    """The default of a setting, or of all."""

    name: str | None


@dataclass(frozen=True)
class Show:
    """The value of a setting, or of all."""

    name: str | None


@dataclass(frozen=True)
class Transaction:
    """BEGIN, COMMIT, ROLLBACK, SAVEPOINT, RELEASE or ROLLBACK TO."""

    verb: str
    name: str = ""


@dataclass(frozen=True)
class DeclareCursor:
    """A cursor for a query."""

    name: str
    statement: Statement
    is_holdable: bool
    is_binary: bool


@dataclass(frozen=True)
class FetchCursor:
    """Rows of a cursor, or a move over them; None for all that are left."""

    name: str
    count: int | None
    is_move: bool


@dataclass(frozen=True)
class CloseCursor:
    """The end of a cursor, or of all."""

    name: str | None


@dataclass(frozen=True)
class Deallocate:
    """The end of a prepared statement, or of all."""

    name: str | None


@dataclass(frozen=True)
class Discard:
    """The end of all cursors, statements and settings of the connection."""


Command = (
    Empty | Query | Explain | CopyOut | SetVariable | Reset | Show | Transaction
    | DeclareCursor | FetchCursor | CloseCursor | Deallocate | Discard
)  # fmt: skip


def classify(statement: Statement) -> Command:
    """Return what a statement asks for; refuse what a server of private answers does not do."""
    if not statement.tokens:
        return Empty()
    words = statement.words
    if words[0] in {"SELECT", "WITH", "VALUES", "TABLE", "("}:
        return Query(statement)
    read = _READERS.get(words[0])
    if read is not None:
        return read(statement)
    raise WireError(
        "25006",
        f"{words[0][:40] or 'this'} is not a statement that is answered here",
        detail="The server answers questions about the tables; nobody writes to them through it.",
        hint="Ask by SELECT, see a plan by EXPLAIN SELECT, change settings by SET.",
    )


def _nested(statement: Statement, index: int) -> Statement:
    """The query that begins at a token; only queries may stand there."""
    (nested,) = split_statements(statement.after(index))
    if not nested.tokens or nested.words[0] not in {"SELECT", "WITH", "VALUES", "TABLE", "("}:
        raise _syntax("a SELECT is expected")
    return nested


def _explain(statement: Statement) -> Command:
    words, index = statement.words, 1
    options: set[str] = set()
    if len(words) > 1 and words[1] == "(" and words[2:3] != ("SELECT",):
        index = _closing(statement, 1) + 1
        options = set(words[2 : index - 1])
    while index < len(words) and words[index] in {"ANALYZE", "ANALYSE", "VERBOSE"}:
        options.add(words[index])
        index += 1
    if options & {"ANALYZE", "ANALYSE"} and not options & {"FALSE", "OFF"}:
        raise WireError(
            "0A000",
            "EXPLAIN ANALYZE would run the query",
            detail="Running a query is charged; EXPLAIN spends nothing.",
            hint="Write EXPLAIN SELECT … without ANALYZE.",
        )
    return Explain(_nested(statement, index), is_verbose="VERBOSE" in options)


def _closing(statement: Statement, index: int) -> int:
    depth = 0
    for place in range(index, len(statement.tokens)):
        depth += {"(": 1, ")": -1}.get(statement.tokens[place].text, 0)
        if depth == 0:
            return place
    raise _syntax("a parenthesis is not closed")


def _copy(statement: Statement) -> Command:
    words = statement.words
    if len(words) < 2 or words[1] != "(":
        raise WireError(
            "42501",
            "COPY names a table, or reads rows",
            detail="Rows do not leave; answers do.",
            hint="Write COPY (SELECT …) TO STDOUT.",
        )
    end = _closing(statement, 1)
    if words[end + 1 : end + 3] != ("TO", "STDOUT"):
        raise WireError(
            "42501", "COPY writes to STDOUT only", hint="Write COPY (SELECT …) TO STDOUT, or \\copy in psql."
        )
    first, last = statement.tokens[2].start, statement.tokens[end].start
    (query,) = split_statements(statement.text[first:last])
    return CopyOut(_nested(query, 0), _copy_options(statement.tokens[end + 3 :]))


_COPY_FLAGS = {"BINARY": ("format", "binary"), "CSV": ("format", "csv"), "HEADER": ("header", "true")}


def _copy_options(tokens: Sequence[Token]) -> dict[str, str]:
    """Both forms: (FORMAT csv, HEADER true) and, from before version 9, WITH CSV HEADER."""
    options: dict[str, str] = {"format": "text"}
    rest = [token for token in tokens if token.word != "WITH" and token.text not in {"(", ")", ","}]
    while rest:
        token = rest.pop(0)
        name = token.word
        if name in _COPY_FLAGS and not (name == "HEADER" and rest and rest[0].word in {"FALSE", "OFF"}):
            key, value = _COPY_FLAGS[name]
            options[key] = value
            if name == "HEADER" and rest and rest[0].word in {"TRUE", "ON"}:
                rest.pop(0)
        elif name in {"FORMAT", "DELIMITER", "NULL", "QUOTE", "ESCAPE", "ENCODING", "HEADER"} and rest:
            if rest[0].word == "AS":
                rest.pop(0)
            options[name.lower()] = rest.pop(0).value
        else:
            raise WireError(
                "0A000",
                "an option of COPY is not known here",
                hint="Use FORMAT, HEADER, DELIMITER, NULL, QUOTE or ESCAPE.",
            )
    if options["format"] not in {"text", "csv", "binary"}:
        raise WireError("22023", "the format of COPY is not text, csv or binary", hint="Write FORMAT csv.")
    for name in ("delimiter", "quote", "escape"):
        if len(options.get(name, ",").encode()) != 1:
            raise WireError("22023", f"the {name} of COPY is not one byte", hint="Write one character.")
    return options


_TRANSACTION_WORDS = {"TRANSACTION", "CHARACTERISTICS"}


def _set(statement: Statement) -> Command:
    tokens, words, index = statement.tokens, statement.words, 1
    is_local = words[1:2] == ("LOCAL",)
    if words[1:2] in {("SESSION",), ("LOCAL",)} and words[2:3] != ("AUTHORIZATION",):
        index = 2
    if words[index : index + 1] and words[index] in _TRANSACTION_WORDS:
        return SetVariable("transaction", " ".join(words[index + 1 :]), is_local=True)
    if words[index : index + 2] == ("TIME", "ZONE"):
        return SetVariable("timezone", _setting(tokens[index + 2 :]), is_local)
    if words[index : index + 1] == ("NAMES",):
        return SetVariable("client_encoding", _setting(tokens[index + 1 :]), is_local)
    name, index = _dotted(tokens, index)
    if index >= len(tokens) or words[index] not in {"TO", "="}:
        raise _syntax("SET is not followed by a name, TO or =, and a value")
    return SetVariable(name, _setting(tokens[index + 1 :]), is_local)


def _dotted(tokens: Sequence[Token], index: int) -> tuple[str, int]:
    """The name such as hubbub.epsilon at a token, and the place after it."""
    parts: list[str] = []
    while index < len(tokens) and tokens[index].kind in {"word", "quoted"}:
        parts.append(tokens[index].value)
        index += 1
        if index >= len(tokens) or tokens[index].text != ".":
            break
        index += 1
    if not parts:
        raise _syntax("a name is expected")
    return ".".join(parts).lower(), index


def _setting(tokens: Sequence[Token]) -> str | None:
    if not tokens:
        raise _syntax("a value is expected")
    if len(tokens) == 1 and tokens[0].word in {"DEFAULT", "LOCAL"}:
        return None
    values: list[str] = []
    sign = ""
    for place, token in enumerate(tokens):
        if token.text in {"-", "+"} and not sign:
            sign = token.text
        elif token.text == "," and place:
            continue
        elif token.kind == "sign":
            raise _syntax("a value is expected")
        else:
            values.append(sign + (token.text if token.kind == "word" else token.value))
            sign = ""
    return ", ".join(values)


def _name_or_all(statement: Statement, index: int) -> str | None:
    if statement.words[index : index + 1] == ("ALL",):
        return None
    return _dotted(statement.tokens, index)[0]


def _reset(statement: Statement) -> Command:
    return Reset(_name_or_all(statement, 1))


def _show(statement: Statement) -> Command:
    special = {
        ("TRANSACTION", "ISOLATION", "LEVEL"): "transaction_isolation",
        ("TIME", "ZONE"): "timezone",
        ("SESSION", "AUTHORIZATION"): "session_authorization",
    }
    return Show(special.get(statement.words[1:]) or _name_or_all(statement, 1))


def _transaction(statement: Statement) -> Command:
    words = tuple(word for word in statement.words if word not in {"WORK", "TRANSACTION"})
    verb = {"START": "BEGIN", "END": "COMMIT", "ABORT": "ROLLBACK"}.get(words[0], words[0])
    if "PREPARED" in words or (verb == "COMMIT" and "CHAIN" in words and "NO" not in words):
        raise WireError("0A000", "this form of transaction is not known here", hint="Write COMMIT.")
    if verb == "ROLLBACK" and "TO" in words:
        return Transaction("ROLLBACK TO", statement.tokens[-1].value)
    if verb in {"SAVEPOINT", "RELEASE"}:
        if len(statement.tokens) < 2:
            raise _syntax("a name is expected")
        return Transaction(verb, statement.tokens[-1].value)
    return Transaction(verb)


def _declare(statement: Statement) -> Command:
    words = statement.words
    if "CURSOR" not in words or "FOR" not in words:
        raise _syntax("DECLARE is not followed by a name, CURSOR FOR and a query")
    start = words.index("FOR")
    options = words[2:start]
    if "SCROLL" in options and "NO" not in options:
        raise WireError("0A000", "cursors move forward only", hint="Leave SCROLL out.")
    is_holdable = "HOLD" in options and "WITHOUT" not in options
    query = _nested(statement, start + 1)
    return DeclareCursor(statement.tokens[1].value, query, is_holdable, "BINARY" in options)


_BACKWARDS = {"PRIOR", "BACKWARD", "ABSOLUTE", "RELATIVE", "FIRST", "LAST"}


def _fetch(statement: Statement) -> Command:
    tokens = [token for token in statement.tokens[1:] if token.word not in {"FROM", "IN", "FORWARD", "NEXT"}]
    if not tokens or any(token.word in _BACKWARDS or token.text == "-" for token in tokens[:-1]):
        raise WireError("0A000", "cursors move forward only", hint="Write FETCH 100 FROM the cursor.")
    count: int | None = 1
    if len(tokens) > 1:
        if tokens[0].word == "ALL":
            count = None
        elif tokens[0].kind == "number" and tokens[0].text.isdigit() and len(tokens[0].text) < 10:
            count = int(tokens[0].text)
        else:
            raise _syntax("FETCH is not followed by a number and a cursor")
    return FetchCursor(tokens[-1].value, count, statement.words[0] == "MOVE")


def _close(statement: Statement) -> Command:
    return CloseCursor(_name_or_all(statement, 1))


def _deallocate(statement: Statement) -> Command:
    index = 2 if statement.words[1:2] == ("PREPARE",) else 1
    return Deallocate(_name_or_all(statement, index))


def _unlisten(_: Statement) -> Command:
    # Pools send UNLISTEN * when a connection is given back; nobody listens here.
    return Transaction("UNLISTEN")


_READERS: dict[str, Callable[[Statement], Command]] = {
    "EXPLAIN": _explain,
    "COPY": _copy,
    "SET": _set,
    "RESET": _reset,
    "SHOW": _show,
    **dict.fromkeys(
        ("BEGIN", "START", "COMMIT", "END", "ROLLBACK", "ABORT", "SAVEPOINT", "RELEASE"), _transaction
    ),
    "DECLARE": _declare,
    "FETCH": _fetch,
    "MOVE": _fetch,
    "CLOSE": _close,
    "DEALLOCATE": _deallocate,
    "DISCARD": lambda _: Discard(),
    "UNLISTEN": _unlisten,
}
