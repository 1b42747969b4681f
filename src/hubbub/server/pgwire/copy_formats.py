"""The formats of `COPY (…) TO STDOUT`: text, CSV and binary."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from hubbub.server.pgwire.messages import Column, encode_message, encode_values
from hubbub.server.pgwire.values import encode_binary, encode_text

__all__ = ["encode_copy"]

_ESCAPES = str.maketrans(
    {"\\": "\\\\", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\v": "\\v"}
)
_BINARY_HEAD = b"PGCOPY\n\xff\r\n\0" + bytes(8)


def encode_copy(
    columns: Sequence[Column], rows: Iterable[Sequence[Any]], options: Mapping[str, str]
) -> Iterator[bytes]:
    """Yield the messages of a COPY's data, one a row."""
    if options["format"] == "binary":
        head = _BINARY_HEAD  # with the first row in one message, as PostgreSQL sends it
        for row in rows:
            values = [encode_binary(value, column.oid) for value, column in zip(row, columns, strict=True)]
            yield encode_message(b"d", head + encode_values(values))
            head = b""
        yield encode_message(b"d", head + b"\xff\xff")
        return
    is_csv = options["format"] == "csv"
    delimiter = options.get("delimiter", "," if is_csv else "\t")
    null = options.get("null", "" if is_csv else "\\N")
    quote = options.get("quote", '"')
    escape = options.get("escape", quote)

    def write(text: str | None) -> str:
        if text is None:
            return null
        if not is_csv:
            return text.translate(_ESCAPES).replace(delimiter, f"\\{delimiter}")
        if text == null or any(sign in text for sign in (delimiter, quote, "\n", "\r")) or text == "\\.":
            inner = text.replace(escape, escape * 2) if escape != quote else text
            return f"{quote}{inner.replace(quote, escape + quote)}{quote}"
        return text

    def line(cells: Iterable[str | None]) -> bytes:
        return encode_message(b"d", (delimiter.join(map(write, cells)) + "\n").encode())

    if options.get("header", "false") in {"true", "on", "1", "match"}:
        yield line(column.name for column in columns)
    for row in rows:
        raw = (encode_text(value, column.oid) for value, column in zip(row, columns, strict=True))
        yield line(None if each is None else each.decode() for each in raw)
