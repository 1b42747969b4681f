"""Messages of the PostgreSQL wire protocol, version 3: reading what clients send, writing what they read.

Every field is read from a message that was received whole and within a limit; a message that ends too early,
or has bytes left over, is a protocol violation and never an exception of another kind.
"""

import asyncio
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

__all__ = [
    "CANCEL_REQUEST",
    "GSS_REQUEST",
    "PROTOCOL_3",
    "STARTUP_LIMIT",
    "TLS_REQUEST",
    "Column",
    "Fields",
    "WireError",
    "encode_cancel_key",
    "encode_copy_start",
    "encode_error",
    "encode_message",
    "encode_notice",
    "encode_parameter_types",
    "encode_row",
    "encode_row_description",
    "encode_status",
    "encode_tag",
    "encode_values",
    "read_message",
    "read_startup",
]

PROTOCOL_3: Final = 3 << 16
CANCEL_REQUEST: Final = 1234 << 16 | 5678
TLS_REQUEST: Final = 1234 << 16 | 5679
GSS_REQUEST: Final = 1234 << 16 | 5680
STARTUP_LIMIT: Final = 10_000
"""Bytes of a start-up packet, as in PostgreSQL."""


class WireError(Exception):
    """An error as a client of PostgreSQL sees it; it holds no data.

    Args:
        code: The SQLSTATE.
        message: What is wrong.
        detail: Why it matters.
        hint: How to fix it.
        is_fatal: True if the connection ends with it.
    """

    def __init__(
        self, code: str, message: str, *, detail: str = "", hint: str = "", is_fatal: bool = False
    ) -> None:
        super().__init__(message)
        self.code, self.message, self.detail, self.hint = code, message, detail, hint
        self.is_fatal = is_fatal


def _violation(message: str) -> WireError:
    return WireError("08P01", message, is_fatal=True)


@dataclass(frozen=True)
class Column:
    """A column of rows on the wire: its name and the OID of its type."""

    name: str
    oid: int


class Fields:
    """The fields of one message, read from left to right."""

    def __init__(self, payload: bytes) -> None:
        self._payload, self._place = payload, 0

    def take(self, size: int) -> bytes:
        """Read a number of bytes."""
        if size < 0 or self._place + size > len(self._payload):
            raise _violation("a message ends before its fields do")
        start, self._place = self._place, self._place + size
        return self._payload[start : self._place]

    def int16(self) -> int:
        """Read an unsigned number of two bytes."""
        return int.from_bytes(self.take(2), "big")

    def int32(self) -> int:
        """Read a signed number of four bytes."""
        return int.from_bytes(self.take(4), "big", signed=True)

    def text(self) -> str:
        """Read a text that ends with a zero byte."""
        end = self._payload.find(b"\0", self._place)
        if end < 0:
            raise _violation("a text in a message has no end")
        encoded, self._place = self._payload[self._place : end], end + 1
        try:
            return encoded.decode("utf-8")
        except UnicodeDecodeError:
            raise WireError("22021", "a text is not UTF-8", hint="Set client_encoding to UTF8.") from None

    def value(self) -> bytes | None:
        """Read a value with its length; None for NULL."""
        size = self.int32()
        return None if size == -1 else self.take(size)

    def count(self, width: int) -> int:
        """Read how many items of at least `width` bytes follow; more than fit are refused at once."""
        items = self.int16()
        if items * width > len(self._payload) - self._place:
            raise _violation("a message has fewer items than it says")
        return items

    def rest(self) -> bytes:
        """Read all that is left."""
        return self.take(len(self._payload) - self._place)

    def end(self) -> None:
        """Refuse a message with bytes after its last field."""
        if self._place != len(self._payload):
            raise _violation("a message is longer than its fields")


# Reading


async def read_startup(reader: asyncio.StreamReader) -> tuple[int, Fields]:
    """Return the code of the first packet of a connection, or of the one after TLS, and its fields."""
    size = int.from_bytes(await reader.readexactly(4), "big", signed=True)
    if not 8 <= size <= STARTUP_LIMIT:
        raise _violation("the length of the start-up packet is wrong")
    fields = Fields(await reader.readexactly(size - 4))
    return fields.int32(), fields


async def read_message(reader: asyncio.StreamReader, limit: int) -> tuple[bytes, Fields]:
    """Return the type of the next message and its fields; refuse one of more than `limit` bytes."""
    kind = await reader.readexactly(1)
    size = int.from_bytes(await reader.readexactly(4), "big", signed=True)
    if not 4 <= size <= limit + 4:
        raise WireError(
            "08P01" if size < 4 else "54000",
            f"a message has a length below 4 or above {limit}",
            hint="Write a shorter query, or pass fewer parameters.",
            is_fatal=True,
        )
    return kind, Fields(await reader.readexactly(size - 4))


# Writing


def encode_message(kind: bytes, payload: bytes = b"") -> bytes:
    """Return a message.

    >>> encode_message(b"Z", b"I").hex()
    '5a0000000549'
    """
    return kind + (len(payload) + 4).to_bytes(4, "big") + payload


def _text(text: str) -> bytes:
    # A zero byte would end the text, and the rest would be read as another field.
    return text.replace("\0", "").encode("utf-8", "replace") + b"\0"


def encode_status(name: str, value: str) -> bytes:
    """Return the message that reports a setting."""
    return encode_message(b"S", _text(name) + _text(value))


def encode_cancel_key(process: int, secret: bytes) -> bytes:
    """Return the message with the key by which another connection cancels a query."""
    return encode_message(b"K", process.to_bytes(4, "big") + secret)


def encode_tag(tag: str) -> bytes:
    """Return the message that a command is complete."""
    return encode_message(b"C", _text(tag))


def encode_parameter_types(oids: Sequence[int]) -> bytes:
    """Return the description of a statement's parameters."""
    return encode_message(b"t", struct.pack(f">H{len(oids)}I", len(oids), *oids))


_SIZES: Mapping[int, int] = {16: 1, 20: 8, 21: 2, 23: 4, 26: 4, 700: 4, 701: 8, 1082: 4, 1114: 8, 1184: 8}
"""Lengths of types that have one, by OID."""


def encode_row_description(columns: Sequence[Column], formats: Sequence[int]) -> bytes:
    """Return the description of rows, each column with its format: 0 for text, 1 for binary."""
    parts = [len(columns).to_bytes(2, "big")]
    for column, form in zip(columns, formats, strict=True):
        size = _SIZES.get(column.oid, -1)
        parts += [_text(column.name), struct.pack(">IHIhih", 0, 0, column.oid, size, -1, form)]
    return encode_message(b"T", b"".join(parts))


def encode_values(values: Sequence[bytes | None]) -> bytes:
    """Return the number of values and each with its length, as rows and binary COPY have them."""
    parts = [len(values).to_bytes(2, "big")]
    for value in values:
        if value is None:
            parts.append(b"\xff\xff\xff\xff")
        else:
            parts += [len(value).to_bytes(4, "big"), value]
    return b"".join(parts)


def encode_row(values: Sequence[bytes | None]) -> bytes:
    """Return a row."""
    return encode_message(b"D", encode_values(values))


def encode_copy_start(columns: int, *, is_binary: bool) -> bytes:
    """Return the message that opens the output of a COPY."""
    form = int(is_binary)
    return encode_message(b"H", struct.pack(f">bH{columns}H", form, columns, *[form] * columns))


def _report(kind: bytes, severity: str, fields: Iterable[tuple[bytes, str]]) -> bytes:
    parts = [b"S" + _text(severity), b"V" + _text(severity)]
    parts += [name + _text(text) for name, text in fields if text]
    return encode_message(kind, b"".join(parts) + b"\0")


def encode_error(error: WireError) -> bytes:
    """Return the message of an error."""
    severity = "FATAL" if error.is_fatal else "ERROR"
    fields = ((b"C", error.code), (b"M", error.message), (b"D", error.detail), (b"H", error.hint))
    return _report(b"E", severity, fields)


def encode_notice(message: str, *, code: str = "01000", hint: str = "") -> bytes:
    """Return the message of a warning."""
    return _report(b"N", "WARNING", ((b"C", code), (b"M", message), (b"H", hint)))
