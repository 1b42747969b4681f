"""Exact figures in the words in which they are stored: JSON, with every number as a text such as 1/3."""

import json
import re
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any, TypeVar

from hubbub.errors import InvalidInput

__all__ = ["read_text", "record", "text_of"]

_RATIONAL = re.compile(r"[0-9]{1,4000}(/0*[1-9][0-9]{0,3999})?")

_T = TypeVar("_T")


def text_of(kind: str, **parts: object) -> str:
    """The text that is stored."""
    return json.dumps({"kind": kind} | {name: _plain(part) for name, part in parts.items()}, sort_keys=True)


def _plain(part: Any) -> Any:
    if type(part) is Fraction:  # first, as there are a hundred in a filter
        return str(part)
    if isinstance(part, tuple):
        return [_plain(item) for item in part]
    if is_dataclass(part) and not isinstance(part, type):
        return {field.name: _plain(getattr(part, field.name)) for field in fields(part)}
    return None if part is None else str(part)


def read_text(text: str, kind: str, made: Callable[..., _T]) -> _T:
    """What `made` makes of the parts that were stored."""
    try:
        stored = json.loads(text)
        if stored.pop("kind") != kind:
            raise TypeError  # noqa: TRY301 - one way out for whatever is wrong
        return made(**_parsed(stored))
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise InvalidInput(
            f"the text is not a stored {kind}",
            why=error.why if isinstance(error, InvalidInput) else "what it says is not what was written",
            fix="use the text that to_json() wrote, unchanged",
        ) from None


def record(kind: Callable[..., _T], stored: Any) -> _T:
    """A dataclass from just its fields."""
    # A field left to its default would be a guess at what was meant.
    if set(stored) != {field.name for field in fields(kind)}:  # type: ignore[arg-type]
        raise ValueError
    return kind(**stored)


def _parsed(part: Any) -> Any:
    if isinstance(part, dict):
        return {name: _parsed(value) for name, value in part.items()}
    if isinstance(part, list):
        return tuple(_parsed(item) for item in part)
    return None if part is None else _number(part)


@lru_cache(maxsize=1 << 12)  # an account's orders and shares are read with every charge
def _number(text: str) -> Fraction:
    # Only what was written: a decimal such as 1e999999999 would take for ever to write out.
    if not _RATIONAL.fullmatch(text):
        raise ValueError
    top, _, bottom = text.partition("/")
    return Fraction(int(top), int(bottom or 1))
