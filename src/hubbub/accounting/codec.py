"""The one codec of everything that is stored: exact values as JSON, every rational as text such as "1/3".

A stored record is read back only if it is exactly what was written: other numbers, other fields and decimals
are refused, so that one value has one text.
"""

import json
import math
import re
from collections.abc import Callable, Iterable
from dataclasses import fields, is_dataclass
from datetime import date, datetime
from fractions import Fraction
from functools import lru_cache
from typing import Any, Generic, TypeVar

from hubbub.errors import InvalidInput

__all__ = [
    "RecordCodec",
    "canonical_json",
    "decode",
    "decode_cell",
    "decode_rational",
    "encode",
    "encode_cell",
    "read_record",
    "read_text",
    "write_text",
]

_RATIONAL = re.compile(r"[0-9]{1,4000}(/0*[1-9][0-9]{0,3999})?")

_T = TypeVar("_T")


def canonical_json(value: Any) -> str:
    """JSON text in one way only: sorted keys, ASCII, no spaces.

    >>> canonical_json({"b": [1, None], "a": "1/3"})
    '{"a":"1/3","b":[1,null]}'
    """
    return json.dumps(value, sort_keys=True, ensure_ascii=True, separators=(",", ":"))


def encode(value: Any) -> Any:
    """The JSON value of rationals, tuples and dataclasses; integers, booleans and None stay what they are.

    >>> encode((Fraction(1, 3), 2, None))
    ['1/3', 2, None]
    """
    if type(value) is Fraction:  # first, as there are a hundred in a filter
        return str(value)
    if isinstance(value, tuple):
        return [encode(item) for item in value]
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: encode(getattr(value, field.name)) for field in fields(value)}
    return value


def decode(
    stored: Any, record: Callable[[dict[str, Any]], Any] = dict, scalars: tuple[type, ...] = ()
) -> Any:
    """The value of a stored JSON value.

    Args:
        stored: What `json.loads` gave.
        record: Makes a value of a JSON object, the values of which are not decoded yet.
        scalars: Types besides text and None that may stand for themselves.
    """
    if isinstance(stored, str):
        return decode_rational(stored)
    if isinstance(stored, list):
        return tuple(decode(item, record, scalars) for item in stored)
    if isinstance(stored, dict):
        return record(stored)
    if stored is None or type(stored) in scalars:
        return stored
    raise ValueError("it has a value of another type")


@lru_cache(maxsize=1 << 12)  # an account's orders and shares are read with every charge
def decode_rational(text: str) -> Fraction:
    """The rational of a stored text; ValueError for anything that is not written so.

    >>> decode_rational("1/3")
    Fraction(1, 3)
    """
    # A decimal such as 1e999999999 would take for ever to write out.
    if not _RATIONAL.fullmatch(text):
        raise ValueError("one of its numbers is not an exact rational")
    numerator, _, denominator = text.partition("/")
    return Fraction(int(numerator), int(denominator or 1))


_CELLS: dict[str, Callable[[str], Any]] = {
    "float": float,
    "timestamp": datetime.fromisoformat,
    "date": date.fromisoformat,
}


def encode_cell(value: Any) -> Any:
    """The JSON value of a cell of a released table; infinities and dates, which JSON lacks, are tagged.

    >>> encode_cell(2.5), encode_cell(float("inf")), encode_cell(date(2024, 2, 29))
    (2.5, {'float': 'inf'}, {'date': '2024-02-29'})
    """
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": repr(value)}
    if isinstance(value, date):
        return {"timestamp" if isinstance(value, datetime) else "date": value.isoformat()}
    return value


def decode_cell(stored: Any) -> Any:
    """The cell of a stored JSON value.

    >>> decode_cell({"date": "2024-02-29"})
    datetime.date(2024, 2, 29)
    """
    if isinstance(stored, dict):
        ((kind, text),) = stored.items()
        return _CELLS[kind](text)
    return stored


def write_text(kind: str, **parts: object) -> str:
    """The text of a record of this kind."""
    return canonical_json({"kind": kind, **{name: encode(part) for name, part in parts.items()}})


def read_text(text: str, kind: str, make: Callable[..., _T]) -> _T:
    """What `make` makes of the fields of a stored record of this kind."""
    try:
        stored = json.loads(text)
        if stored.pop("kind") != kind:
            raise TypeError  # noqa: TRY301 - one way out for whatever is wrong
        return make(**_decode_fields(stored))
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise InvalidInput(
            f"the text is not a stored {kind}",
            why=error.why if isinstance(error, InvalidInput) else "it is not what was written",
            fix="use the text that to_json() wrote, unchanged",
        ) from None


def read_record(kind: Callable[..., _T], stored: Any) -> _T:
    """A dataclass from exactly its fields, decoded already."""
    # A field left to its default would be a guess at what was meant.
    if set(stored) != _field_names(kind):
        raise ValueError("its fields do not match its kind")
    return kind(**stored)


class RecordCodec(Generic[_T]):
    """Stores values of registered classes as records: a versioned kind, such as "gaussian/1", and all fields.

    Records may contain records. Only values of exactly a registered class are stored, because a subclass
    could mean something else by the same fields.

    Args:
        parts: dataclasses that occur only inside records; they are stored by their fields, without a kind.
    """

    def __init__(self, parts: Iterable[Callable[..., Any]] = ()) -> None:
        self.classes: dict[str, type[_T]] = {}
        self._kinds: dict[type, str] = {}
        self._parts = {_field_names(part): part for part in parts}

    def register(self, kind: str, record_class: type[_T]) -> None:
        """Store values of this class under `kind`."""
        self.classes[kind] = record_class
        self._kinds[record_class] = kind

    def encode(self, value: Any) -> dict[str, Any]:
        """Return the record of a value; KeyError if its class is not registered."""
        record: dict[str, Any] = {"kind": self._kinds[type(value)]}
        for name in _field_names(type(value)):
            field = getattr(value, name)
            record[name] = self.encode(field) if type(field) in self._kinds else encode(field)
        return record

    def decode(self, stored: Any) -> Any:
        """Make the value of a record; ValueError, which says why, for anything but exactly its fields."""
        if not isinstance(stored, dict):
            raise ValueError("it is not a record")  # noqa: TRY004 - one way out for whatever is stored
        rest = dict(stored)
        record_class = self._parts.get(frozenset(rest)) or self.classes.get(str(rest.pop("kind", None)))
        if record_class is None:
            raise ValueError("this version does not know its kind")
        if frozenset(rest) != _field_names(record_class):
            raise ValueError("its fields do not match its kind")
        value = record_class(**{name: decode(rest[name], self.decode, (int, bool)) for name in rest})
        if any(rest[name] is None and getattr(value, name) is not None for name in rest):
            raise ValueError("one of its fields is missing")  # a default would be a guess at what was meant
        return value


def _field_names(record_class: Any) -> frozenset[str]:
    return frozenset(field.name for field in fields(record_class))


def _decode_fields(stored: dict[str, Any]) -> dict[str, Any]:
    return {name: decode(value, _decode_fields) for name, value in stored.items()}
