"""Values as people write them in `hubbub.toml` and in the shell: types of columns, and group keys."""

from collections.abc import Iterable, Mapping
from datetime import date, datetime
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from hubbub.engines.schema import Kind, read_key
from hubbub.errors import InvalidInput
from hubbub.output_files import protect_paths

__all__ = [
    "ROW",
    "check_mappings",
    "drop_password",
    "find_key_kind",
    "parse_key_lists",
    "parse_keys",
    "parse_kind",
    "read_key_texts",
]

ROW = "row"
"""What is written for a unit where one row is one person."""
_MOST_KEYS = 10_000_000
_WORDS = {
    **{kind.value: kind for kind in Kind if kind is not Kind.OPAQUE},
    **dict.fromkeys(("int", "integer", "bigint", "float", "double", "real", "decimal"), Kind.NUMBER),
    **dict.fromkeys(("string", "str", "varchar", "category"), Kind.TEXT),
    **dict.fromkeys(("bool",), Kind.BOOLEAN),
    **dict.fromkeys(("datetime",), Kind.TIMESTAMP),
}


def parse_kind(word: Any) -> Kind:
    """Return the kind that a word such as "float" or "date" names.

    >>> parse_kind("float"), parse_kind("date")
    (<Kind.NUMBER: 'number'>, <Kind.DATE: 'date'>)
    """
    kind = word if isinstance(word, Kind) else _WORDS.get(str(word).strip().lower())
    if kind is None or kind is Kind.OPAQUE:
        raise InvalidInput(
            f"{str(word)[:40]!r} is not a type",
            why="columns are numbers, texts, booleans, dates or timestamps",
            fix="use number, text, boolean, date or timestamp",
        )
    return kind


def read_key_texts(text: str, name: str, folder: Path | None = None) -> range | list[str]:
    """Return the keys of one text: `a,b,c`, a range of integers or days, or `@file.txt`, one key per line.

    >>> read_key_texts("North,South", "region"), read_key_texts("0:99", "bin")
    (['North', 'South'], range(0, 100))
    >>> read_key_texts("2026-02-28:2026-03-01", "day")
    ['2026-02-28', '2026-03-01']
    """
    if text.startswith("@"):
        try:
            file = (folder or Path()) / text[1:]
            protect_paths(file)
            lines = file.read_text(encoding="utf-8-sig").splitlines()
        except (OSError, UnicodeDecodeError):
            raise InvalidInput(
                f"{text[1:]}, with the keys of {name}, cannot be read",
                why="it is a file with one key per line, in UTF-8",
                fix="give the path of such a file, as @keys.txt",
            ) from None
        return [line for line in lines if line]
    low, colon, high = text.partition(":")
    if colon and _is_integer(low) and _is_integer(high):
        return _check_range(int(low), int(high), name, "0:99")
    first, last = _read_day(low), _read_day(high)
    if colon and first is not None and last is not None:
        days = _check_range(first.toordinal(), last.toordinal(), name, "2026-11-01:2026-11-30")
        return [date.fromordinal(day).isoformat() for day in days]
    return [part.strip() for part in text.split(",")]


def _check_range(first: int, last: int, name: str, example: str) -> range:
    if not first <= last < first + _MOST_KEYS:
        raise InvalidInput(
            f"the keys of {name} are not a range, or more than ten million",
            why="each of them is one row of the answer",
            fix=f"write the first and the last, as {example}",
        )
    return range(first, last + 1)


def _read_day(text: str) -> date | None:
    """The day that a text such as 2026-11-15 spells, in this form and no other."""
    try:
        day = date.fromisoformat(text.strip())
    except ValueError:
        return None
    return day if day.isoformat() == text.strip() else None


def parse_keys(texts: Iterable[Any], name: str, kind: Kind) -> list[Any]:
    """Convert keys from texts to values of a column's kind."""
    try:
        return [read_key(str(text), kind) for text in texts]
    except ValueError:
        raise InvalidInput(
            f"a key of {name} is not a {kind.value}",
            why="no row could ever have it",
            fix=f"write keys of kind {kind.value}, or declare another type for {name}",
        ) from None


def find_key_kind(value: Any) -> Kind | None:
    """The kind of a key that TOML has read; None if it is of no column's type."""
    if isinstance(value, bool):
        return Kind.BOOLEAN
    if isinstance(value, (int, float)):
        return Kind.NUMBER
    if isinstance(value, str):
        return Kind.TEXT
    if isinstance(value, datetime):
        return Kind.TIMESTAMP
    return Kind.DATE if isinstance(value, date) else None


def _is_integer(text: str) -> bool:
    digits = text.strip().removeprefix("-")
    return digits.isascii() and digits.isdigit() and len(digits) <= 15


def drop_password(url: str) -> str:
    """Return an address without its password, as it may be stored and shown.

    >>> drop_password("postgresql://ada:secret@db:5432/clinic?sslmode=require&password=x")
    'postgresql://ada@db:5432/clinic?sslmode=require'
    """
    try:
        parts = urlsplit(url)
        people, at, host = parts.netloc.rpartition("@")
        pairs = parse_qsl(parts.query, keep_blank_values=True)
    except ValueError:
        return url.partition("://")[0] + "://"
    others = [(name, value) for name, value in pairs if name.lower() not in {"password", "sslpassword"}]
    query = parts.query if others == pairs else urlencode(others)
    return urlunsplit(parts._replace(netloc=people.partition(":")[0] + at + host, query=query))


def check_mappings(**arguments: object) -> None:
    """Refuse arguments, by their names, that are no mappings from names to values."""
    for name, value in arguments.items():
        if value is None or (isinstance(value, Mapping) and all(isinstance(each, str) for each in value)):
            continue
        raise InvalidInput(
            f"{name} is not a mapping from names",
            why="each value in it belongs to a name",
            fix="pass a dict with texts as its keys",
            parameter=name,
        )


def parse_key_lists(by: object) -> list[list[str]]:
    """Return lists of names, each once; a name alone stands for a list of it.

    >>> parse_key_lists(["region", ("region", "reason"), "region"])
    [['region'], ['region', 'reason']]
    """
    lists = [_list_of(each) for each in _list_of(by)]
    if not all(each and all(isinstance(name, str) for name in each) for each in lists):
        raise InvalidInput(
            "by is not a list of names of columns, or of such lists",
            why="groups are told apart by the values of columns",
            fix='pass by=["region", ["region", "reason"]]',
            parameter="by",
        )
    return [list(each) for each in dict.fromkeys(map(tuple, lists))]


def _list_of(value: object) -> list[Any]:
    """What a list or its like holds; anything else is a list of itself."""
    if isinstance(value, (str, bytes, Mapping)) or not isinstance(value, Iterable):
        return [value]
    return list(value)
