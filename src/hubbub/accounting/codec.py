"""The one codec of everything that is stored: exact values as JSON, every rational as text such as "1/3".

A stored record is read back only if it is exactly what was written: other numbers, other fields and decimals
are refused, so that one value has one text.
"""

import json
import re
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any, TypeVar

from hubbub.errors import InvalidInput

__all__ = ["canonical_json", "decode", "decode_rational", "encode", "read_record", "read_text", "write_text"]

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
    raise ValueError


@lru_cache(maxsize=1 << 12)  # an account's orders and shares are read with every charge
def decode_rational(text: str) -> Fraction:
    """The rational of a stored text; ValueError for anything that is not written so.

    >>> decode_rational("1/3")
    Fraction(1, 3)
    """
    # A decimal such as 1e999999999 would take for ever to write out.
    if not _RATIONAL.fullmatch(text):
        raise ValueError
    numerator, _, denominator = text.partition("/")
    return Fraction(int(numerator), int(denominator or 1))


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
    if set(stored) != {field.name for field in fields(kind)}:  # type: ignore[arg-type]
        raise ValueError
    return kind(**stored)


def _decode_fields(stored: dict[str, Any]) -> dict[str, Any]:
    return {name: decode(value, _decode_fields) for name, value in stored.items()}
