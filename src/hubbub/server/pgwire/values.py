"""Values on the wire: the types of PostgreSQL that hubbub speaks, in text and in binary.

Results are numbers (double precision), texts, booleans, dates and timestamps; the catalogs add whole numbers,
OIDs and arrays. Parameters may have any of these types and numeric.
"""

import json
import math
import re
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal, InvalidOperation
from typing import Any

from hubbub.engines.schema import Kind, is_valid_text
from hubbub.server.pgwire.messages import WireError

__all__ = ["ARRAYS", "Type", "decode_parameter", "encode_binary", "encode_text", "type_of_kind"]

_EPOCH = date(2000, 1, 1)
_EPOCH_TIME = datetime(2000, 1, 1)  # noqa: DTZ001 - timestamps have no zone
_MAX_NUMERIC_DIGITS = 1000
_MAX_ARRAY = 10_000


class Type:
    """OIDs of PostgreSQL's types."""

    BOOL, BYTEA, CHAR, NAME, INT8, INT2, INT4 = 16, 17, 18, 19, 20, 21, 23
    REGPROC, TEXT, OID, JSON, FLOAT4, FLOAT8 = 24, 25, 26, 114, 700, 701
    UNKNOWN, BPCHAR, VARCHAR, DATE, TIMESTAMP, TIMESTAMPTZ = 705, 1042, 1043, 1082, 1114, 1184
    NUMERIC, REGCLASS, REGTYPE, UUID = 1700, 2205, 2206, 2950


ARRAYS: Mapping[int, int] = {
    1000: Type.BOOL, 1005: Type.INT2, 1007: Type.INT4, 1016: Type.INT8, 1009: Type.TEXT, 1003: Type.NAME,
    1015: Type.VARCHAR, 1014: Type.BPCHAR, 1028: Type.OID, 1021: Type.FLOAT4, 1022: Type.FLOAT8,
    1231: Type.NUMERIC, 1182: Type.DATE, 1115: Type.TIMESTAMP, 1185: Type.TIMESTAMPTZ, 1002: Type.CHAR,
}  # fmt: skip
"""Array types, with the types of their items."""
_TEXTS = {
    *(Type.CHAR, Type.NAME, Type.TEXT, Type.UNKNOWN, Type.BPCHAR, Type.VARCHAR, Type.JSON, Type.REGPROC),
    0,
}
_KINDS = {
    Kind.NUMBER: Type.FLOAT8,
    Kind.TEXT: Type.TEXT,
    Kind.BOOLEAN: Type.BOOL,
    Kind.DATE: Type.DATE,
    Kind.TIMESTAMP: Type.TIMESTAMP,
}


def type_of_kind(kind: Kind | None) -> int:
    """Return the OID of the type that values of a kind have; an opaque column is a text."""
    return _KINDS.get(kind or Kind.NUMBER, Type.TEXT)


# Text


def encode_text(value: Any, oid: int) -> bytes | None:
    """Return a value in text format; None for NULL.

    >>> encode_text(12.0, Type.FLOAT8), encode_text([1, None], 1007), encode_text(True, Type.BOOL)
    (b'12', b'{1,NULL}', b't')
    """
    return None if value is None else _to_text(value, oid).encode("utf-8", "replace")


def _to_text(value: Any, oid: int) -> str:
    if oid in ARRAYS or isinstance(value, (list, tuple)):
        item = ARRAYS.get(oid, Type.TEXT)
        return "{" + ",".join(_array_item(each, item) for each in value) + "}"
    if isinstance(value, bool):
        return "t" if value else "f"
    if isinstance(value, float):
        return _float_text(value)
    if isinstance(value, datetime):
        zone = "+00" if value.tzinfo is not None else ""
        moment = value.astimezone(UTC).replace(tzinfo=None) if zone else value
        return moment.isoformat(" ") + zone
    if isinstance(value, date):
        return value.isoformat()
    return json.dumps(value) if isinstance(value, dict) else str(value)


def _float_text(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return str(int(value)) if value.is_integer() and abs(value) < 1e15 else repr(value)


def _array_item(value: Any, oid: int) -> str:
    if value is None:
        return "NULL"
    text = _to_text(value, oid)
    if text and not re.search(r'[{}",\\\s]', text) and text.upper() != "NULL":
        return text
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


# Binary


def encode_binary(value: Any, oid: int) -> bytes | None:
    """Return a value in binary format; None for NULL.

    >>> encode_binary(1.0, Type.FLOAT8).hex(), encode_binary(date(2000, 1, 2), Type.DATE).hex()
    ('3ff0000000000000', '00000001')
    """
    if value is None:
        return None
    if oid in ARRAYS:
        return _encode_array(value, ARRAYS[oid])
    encode = _ENCODERS.get(oid)
    return encode(value) if encode is not None else _to_text(value, oid).encode("utf-8", "replace")


def _encode_array(values: Sequence[Any], oid: int) -> bytes:
    has_null = any(value is None for value in values)
    if not values:
        return struct.pack(">iiI", 0, 0, oid)
    parts = [struct.pack(">iiIii", 1, int(has_null), oid, len(values), 1)]
    for value in values:
        raw = encode_binary(value, oid)
        parts.append(b"\xff\xff\xff\xff" if raw is None else len(raw).to_bytes(4, "big") + raw)
    return b"".join(parts)


def _encode_timestamp(value: datetime) -> bytes:
    moment = value.astimezone(UTC).replace(tzinfo=None) if value.tzinfo is not None else value
    return struct.pack(">q", (moment - _EPOCH_TIME) // timedelta(microseconds=1))


def _encode_numeric(value: Any) -> bytes:
    """Groups of four decimal digits, the weight of the first, sign and scale."""
    number = Decimal(value)
    if not number.is_finite():
        return struct.pack(">hhHH", 0, 0, 0xC000, 0)
    sign, digits, exponent = number.as_tuple()
    scale = max(0, -int(exponent))
    whole = int("".join(map(str, digits))) * 10 ** max(0, int(exponent))
    padding = -scale % 4
    groups, rest = [], whole * 10**padding
    while rest:
        rest, group = divmod(rest, 10_000)
        groups.append(group)
    groups.reverse()
    weight = len(groups) - (scale + padding) // 4 - 1 if groups else 0
    while groups and groups[-1] == 0:
        groups.pop()
    head = struct.pack(">hhHH", len(groups), weight, 0x4000 if sign and groups else 0, scale)
    return head + struct.pack(f">{len(groups)}H", *groups)


_ENCODERS: Mapping[int, Callable[[Any], bytes]] = {
    Type.BOOL: lambda value: b"\1" if value else b"\0",
    Type.INT2: lambda value: struct.pack(">h", value),
    Type.INT4: lambda value: struct.pack(">i", value),
    Type.INT8: lambda value: struct.pack(">q", value),
    Type.OID: lambda value: struct.pack(">I", value),
    Type.FLOAT4: lambda value: struct.pack(">f", value),
    Type.FLOAT8: lambda value: struct.pack(">d", value),
    Type.DATE: lambda value: struct.pack(">i", (value - _EPOCH).days),
    Type.TIMESTAMP: _encode_timestamp,
    Type.TIMESTAMPTZ: _encode_timestamp,
    Type.NUMERIC: _encode_numeric,
}


# Parameters


@dataclass(frozen=True)
class _Malformed(Exception):  # noqa: N818 - never leaves this module
    """A parameter cannot be read."""


def decode_parameter(raw: bytes | None, oid: int, form: int) -> Any:
    """Return the value of a parameter: None, bool, int, float, Decimal, str, date, datetime, or a list.

    Args:
        raw: The bytes that the client sent; None for NULL.
        oid: The type, as the client or the context says.
        form: 0 for text, 1 for binary.
    """
    if raw is None:
        return None
    try:
        return _decode_binary(raw, oid) if form else _decode_text(raw.decode("utf-8"), oid)
    except (_Malformed, ValueError, InvalidOperation, OverflowError, struct.error):
        raise WireError(
            "22P02" if form == 0 else "22P03",
            "a parameter is not a value of its type",
            detail=f"Its type has OID {oid}.",
            hint="Pass a number, a text, a boolean, a date or a timestamp.",
        ) from None


def _decode_text(text: str, oid: int) -> Any:
    if oid in ARRAYS:
        return [None if item is None else _decode_text(item, ARRAYS[oid]) for item in _split_array(text)]
    if oid in {Type.INT2, Type.INT4, Type.INT8, Type.OID}:
        return int(text)
    if oid in {Type.FLOAT4, Type.FLOAT8, Type.NUMERIC}:
        return _finite(Decimal(text.strip()))
    if oid == Type.BOOL:
        return _decode_bool(text)
    if oid == Type.DATE:
        return date.fromisoformat(text)
    if oid in {Type.TIMESTAMP, Type.TIMESTAMPTZ}:
        return _without_zone(datetime.fromisoformat(text))
    if not is_valid_text(text):
        raise _Malformed
    return text


def _decode_bool(text: str) -> bool:
    word = text.strip().lower()
    if word in {"t", "true", "y", "yes", "on", "1"}:
        return True
    if word in {"f", "false", "n", "no", "off", "0"}:
        return False
    raise _Malformed


def _without_zone(moment: datetime) -> datetime:
    return moment.astimezone(UTC).replace(tzinfo=None) if moment.tzinfo is not None else moment


def _finite(number: Decimal) -> Decimal:
    if not number.is_finite() or abs(number.adjusted()) > _MAX_NUMERIC_DIGITS:
        raise _Malformed
    return number


def _split_array(text: str) -> list[str | None]:
    """The items of a one-dimensional array such as {a,"b c",NULL}."""
    if not (text.startswith("{") and text.endswith("}")):
        raise _Malformed
    items: list[str | None] = []
    for quoted, plain in re.findall(r'"((?:[^"\\]|\\.)*)"|([^,{}"\s][^,{}"]*)', text[1:-1]):
        items.append(
            None if plain.strip().upper() == "NULL" else plain.strip() or re.sub(r"\\(.)", r"\1", quoted)
        )
    if len(items) > _MAX_ARRAY:
        raise _Malformed
    return items


def _decode_binary(raw: bytes, oid: int) -> Any:
    if oid in ARRAYS:
        return _decode_array(raw, ARRAYS[oid])
    if oid in _TEXTS:
        return _decode_text(raw.decode("utf-8"), Type.TEXT)
    decode = _DECODERS.get(oid)
    if decode is None:
        raise WireError(
            "0A000",
            f"a binary parameter has the type with OID {oid}, which is not known here",
            hint="Pass a number, a text, a boolean, a date or a timestamp.",
        )
    return decode(raw)


def _decode_array(raw: bytes, oid: int) -> list[Any]:
    dimensions, _, _ = struct.unpack_from(">iiI", raw)
    if dimensions == 0:
        return []
    size, _ = struct.unpack_from(">ii", raw, 12)
    if dimensions != 1 or not 0 <= size <= min(_MAX_ARRAY, len(raw) // 4):
        raise _Malformed
    items: list[Any] = []
    place = 20
    for _ in range(size):
        (length,) = struct.unpack_from(">i", raw, place)
        place += 4
        if length == -1:
            items.append(None)
            continue
        if not 0 <= length <= len(raw) - place:
            raise _Malformed
        items.append(_decode_binary(raw[place : place + length], oid))
        place += length
    return items


def _decode_numeric(raw: bytes) -> Decimal:
    count, weight, sign, _ = struct.unpack_from(">hhHH", raw)
    if sign not in {0, 0x4000} or len(raw) != 8 + 2 * count or abs(weight) > _MAX_NUMERIC_DIGITS:
        raise _Malformed
    number = 0
    for group in struct.unpack_from(f">{count}H", raw, 8):
        if group > 9999:
            raise _Malformed
        number = number * 10_000 + group
    exponent = 4 * (weight - count + 1)
    return Decimal(f"{'-' if sign else ''}{number}E{exponent}")


def _number(form: str) -> Callable[[bytes], Any]:
    def decode(raw: bytes) -> Any:
        (number,) = struct.unpack(form, raw)
        if isinstance(number, float) and not math.isfinite(number):
            raise _Malformed
        return number

    return decode


_DECODERS: Mapping[int, Callable[[bytes], Any]] = {
    Type.BOOL: lambda raw: struct.unpack(">?", raw)[0],
    Type.INT2: _number(">h"),
    Type.INT4: _number(">i"),
    Type.INT8: _number(">q"),
    Type.OID: _number(">I"),
    Type.FLOAT4: _number(">f"),
    Type.FLOAT8: _number(">d"),
    Type.DATE: lambda raw: _EPOCH + timedelta(days=struct.unpack(">i", raw)[0]),
    Type.TIMESTAMP: lambda raw: _EPOCH_TIME + timedelta(microseconds=struct.unpack(">q", raw)[0]),
    Type.TIMESTAMPTZ: lambda raw: _EPOCH_TIME + timedelta(microseconds=struct.unpack(">q", raw)[0]),
    Type.NUMERIC: _decode_numeric,
}
