"""Many public keys in few bytes: ten million of twelve letters take 200 MB, where Python takes 750."""

import enum
import hashlib
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime
from fractions import Fraction
from itertools import islice
from typing import Any, final, overload

import numpy as np
from numpy.typing import NDArray

from hubbub.errors import InvalidInput
from hubbub.numbers import parse_rational

__all__ = [
    "KEY_LIST_MIN_SIZE",
    "TABLE_MAGNITUDE",
    "UNIT",
    "Bounds",
    "Column",
    "Key",
    "KeyList",
    "Kind",
    "Magnitude",
    "Table",
    "are_bounds_usable",
    "is_valid_text",
    "parse_bounds",
    "parse_group_key",
    "parse_group_keys",
    "split_into_batches",
]

Key = str | float | bool | date | datetime | None
"""A value of a group key: public, as it is shown. None stands for rows without."""
KEY_LIST_MIN_SIZE = 1 << 16
"""From so many on, keys are held in a `KeyList`; fewer in a tuple."""


@final
class KeyList(Sequence[Key]):
    """Texts, or numbers, and None among them: each is made when it is looked at.

    >>> keys = KeyList.from_batches([["a", "bcd"], [None, "é"]], are_texts=True)
    >>> len(keys), keys[1], keys[1:], None in keys
    (4, 'bcd', ['bcd', None, 'é'], True)
    >>> list(KeyList.from_batches([[1.0, None]], are_texts=False))
    [1.0, None]
    """

    def __init__(self, held: bytearray, ends: NDArray[np.int64] | None, missing: tuple[int, ...]) -> None:
        self._held = held
        """All texts one behind the other, in UTF-8; or the numbers."""
        self._ends = ends
        """Where each text ends; None for numbers."""
        self._missing = missing
        """The places of None."""

    @classmethod
    def from_batches(cls, batches: Iterable[Sequence[Key]], *, are_texts: bool) -> "KeyList":
        """Keys that come a piece at a time."""
        held, lengths = bytearray(), [np.empty(0, np.int64)]
        missing: list[int] = []
        count = 0
        for piece in batches:
            if None in piece:
                missing += [count + place for place, key in enumerate(piece) if key is None]
            count += len(piece)
            if are_texts:
                encoded = [b"" if key is None else str(key).encode() for key in piece]
                lengths.append(np.fromiter(map(len, encoded), np.int64, len(encoded)))
                held += b"".join(encoded)
            else:
                held += np.array([0.0 if key is None else key for key in piece], np.float64).tobytes()
        return cls(held, np.cumsum(np.concatenate(lengths)) if are_texts else None, tuple(missing))

    def __len__(self) -> int:
        return len(self._held) // 8 if self._ends is None else len(self._ends)

    @overload
    def __getitem__(self, place: int) -> Key: ...
    @overload
    def __getitem__(self, place: slice) -> list[Key]: ...
    def __getitem__(self, place: int | slice) -> Key | list[Key]:
        if not isinstance(place, slice):
            at = range(len(self))[place]
            return self[at : at + 1][0]
        start, stop, step = place.indices(len(self))
        assert step == 1
        stop = max(start, stop)
        found: list[Key]
        if self._ends is None:
            found = np.frombuffer(self._held, np.float64)[start:stop].tolist()
        else:
            ends = self._ends[start:stop].tolist()
            begin = int(self._ends[start - 1]) if start else 0
            starts = [begin, *ends][: len(ends)]
            found = [self._held[one:two].decode() for one, two in zip(starts, ends, strict=True)]
        for nothing in self._missing:
            if start <= nothing < stop:
                found[nothing - start] = None
        return found

    def __iter__(self) -> Iterator[Key]:
        for piece in split_into_batches(self, KEY_LIST_MIN_SIZE):
            yield from piece

    def __contains__(self, key: object) -> bool:
        return bool(self._missing) if key is None else any(own == key for own in self)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, KeyList) and self.digest() == other.digest()

    def __hash__(self) -> int:
        return hash(self.digest())

    def digest(self) -> str:
        """What stands for all of them, in their order."""
        found = hashlib.sha256(b"numbers" if self._ends is None else self._ends.tobytes())
        found.update(repr(self._missing).encode())
        found.update(self._held)
        return found.hexdigest()

    def is_distinct(self) -> bool:
        """Whether no key is there twice; it takes 8 bytes a key, while a set takes 100."""
        hashes = np.fromiter(map(hash, self), np.int64, len(self))
        hashes.sort()
        # Of different keys a few may have the same hash.
        twice = set(hashes[1:][hashes[1:] == hashes[:-1]].tolist())
        unclear = [key for key in self if hash(key) in twice] if twice else []
        return len(set(unclear)) == len(unclear)


def split_into_batches(keys: Sequence[Key], size: int) -> Iterator[Sequence[Key]]:
    """So many at a time."""
    return (keys[start : start + size] for start in range(0, len(keys), size))


# What is public about a table: its columns, their kinds, bounds and key sets, and whose rows they are.
#
# All of it is declared, or read once from the source's own schema, when a table is opened; none of it is
# taken from rows. All numbers are one kind, doubles: whether a file holds integers or floats may depend on
# a single missing value in it, and doubles never overflow into an error.

UNIT = "_unit"
"""The column that carries the unit through every sub-query: nobody else may use its name."""

Bounds = tuple[Fraction, Fraction]
Magnitude = tuple[int, int]
"""Of a number: it is 0, or between 2^low and 2^high in size."""
TABLE_MAGNITUDE: Magnitude = (-1074, 200)
"""The size of every number that comes from a table: none is smaller than doubles have."""
_LARGEST = 2.0**200
"""Of a number in a table: what is beyond is this."""
_PARTS = ("year", "month", "day", "hour", "minute", "second", "microsecond")


class Kind(enum.Enum):
    """What can be done with a column."""

    NUMBER = "number"
    TEXT = "text"
    BOOLEAN = "boolean"
    DATE = "date"
    TIMESTAMP = "timestamp"
    OPAQUE = "opaque"
    """Of another type: it can be the unit, or be counted, and nothing else."""


@dataclass(frozen=True)
class Column:
    """A column: its name, its kind, and what is declared of its values."""

    name: str
    kind: Kind
    bounds: Bounds | None = None
    """Numbers are clamped into these before they are added up."""
    keys: Sequence[Key] | None = None
    """All values that a group may have; public."""
    is_complete: bool = False
    """Whether these follow from what the column is, so that no row has another: not if they are declared."""
    is_unit: bool = False
    """Whether it says who is protected."""
    origin: tuple[str, str] | None = None
    """The public table and column it comes from: its values are then all that there can be."""
    is_outer: bool = False
    """Whether it is NULL in rows besides, which an outer join found nothing for."""
    size: Magnitude = TABLE_MAGNITUDE
    """Of numbers."""


@dataclass(frozen=True)
class Table:
    """The public side of a table.

    >>> table = Table.of("visits", {"patient": Kind.OPAQUE, "cost": Kind.NUMBER}, unit="patient")
    >>> table.find("COST").kind
    <Kind.NUMBER: 'number'>
    """

    name: str
    columns: tuple[Column, ...]
    is_public: bool = False
    """Whether its rows are nobody's, so that they may be joined and shown freely."""

    @classmethod
    def of(
        cls,
        name: str,
        kinds: Mapping[str, Kind],
        *,
        unit: str | None = None,
        bounds: Mapping[str, Any] | None = None,
        keys: Mapping[str, Any] | None = None,
        is_public: bool = False,
    ) -> "Table":
        """A table from what is declared of it; what is declared of a column that is not there is refused."""
        truths: dict[str, Any] = {"keys": (False, True, None), "is_complete": True}
        table = cls(
            name,
            tuple(
                Column(column, kind, **(truths if kind is Kind.BOOLEAN else {}))
                for column, kind in kinds.items()
            ),
            is_public,
        )
        _check_names(table)
        columns = {column.name: column for column in table.columns}
        for given, limits in (bounds or {}).items():
            column = table.find(given)
            columns[column.name] = replace(columns[column.name], bounds=parse_bounds(limits, given))
        for given, values in (keys or {}).items():
            column = table.find(given)
            listed = parse_group_keys(values, given, column.kind)
            columns[column.name] = replace(columns[column.name], keys=listed, is_complete=False)
        if unit is not None:
            column = table.find(unit)
            columns[column.name] = replace(columns[column.name], is_unit=True)
        return cls(name, tuple(columns.values()), is_public)

    def find(self, name: str) -> Column:
        """The column of this name, whatever its case."""
        for column in self.columns:
            if column.name.lower() == name.lower():
                return column
        raise unknown_column(name, self.name, [column.name for column in self.columns])


def unknown_column(name: str, where: str, there: Iterable[str]) -> InvalidInput:
    """The error for a name that no column has."""
    return InvalidInput(
        f"there is no column {name!r} in {where}",
        why="only declared columns can be asked about",
        fix=f"use one of: {', '.join(there)}",
    )


def parse_bounds(given: Any, name: str) -> Bounds:
    """Bounds as exact numbers: low below high.

    >>> parse_bounds((0, 5000), "cost")
    (Fraction(0, 1), Fraction(5000, 1))
    """
    if not isinstance(given, Sequence) or isinstance(given, str) or len(given) != 2:
        raise InvalidInput(
            f"the bounds of {name} are not a pair",
            why="numbers are clamped between two public ends",
            fix=f"pass them as {{bounds={name}=0:100}}",
        )
    bounds = parse_rational(given[0], f"low of {name}"), parse_rational(given[1], f"high of {name}")
    if not are_bounds_usable(bounds):
        raise InvalidInput(
            f"the bounds of {name} are not in order, beyond ±2^500, or too close to each other for doubles",
            why="between such bounds there is no sum that noise could protect",
            fix="pass a finite low below high",
        )
    return bounds


def are_bounds_usable(bounds: Bounds) -> bool:
    """Whether doubles can be clamped between these bounds, and scaled by their distance."""
    low, high = bounds
    most = max(abs(low), abs(high))
    if low >= high or most > Fraction(2) ** 500:
        return False
    # So far apart that there are doubles between them.
    return high - low >= max(most / 2**40, Fraction(1, 2**400))


def is_valid_text(text: str) -> bool:
    """Whether every engine takes it: no zero character, no half of a surrogate pair."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return "\0" not in text


def parse_group_keys(given: Any, name: str, kind: Kind) -> Sequence[Key]:
    """Key values as they will be shown: distinct, all of the column's kind, or None for rows without.

    There may be ten millions of them: then they are read a piece at a time, and held in few bytes.

    >>> parse_group_keys(["North", "South"], "region", Kind.TEXT)
    ('North', 'South')
    >>> parse_group_keys(range(3), "bin", Kind.NUMBER)
    (0.0, 1.0, 2.0)
    """
    if isinstance(given, (str, bytes)) or not isinstance(given, Iterable):
        raise InvalidInput(
            f"the keys of {name} are not a list",
            why="each of them is one row of the answer, whose shape is public",
            fix="pass them as a list, or on the command line region=North,South",
        )
    rest = iter(given)
    first = _checked(tuple(islice(rest, KEY_LIST_MIN_SIZE)), name, kind)
    values: Sequence[Key] = first
    if len(first) == KEY_LIST_MIN_SIZE and kind in {Kind.TEXT, Kind.NUMBER}:
        values = KeyList.from_batches(_pieces(first, rest, name, kind), are_texts=kind is Kind.TEXT)
        is_distinct = values.is_distinct()
    else:
        values = first + _checked(tuple(rest), name, kind)
        is_distinct = len(set(values)) == len(values)
    if not values or not is_distinct:
        raise InvalidInput(
            f"the keys of {name} are empty, or not distinct",
            why="each of them is one row of the answer",
            fix="list each key once",
        )
    return values


def _pieces(first: tuple[Key, ...], rest: Iterator[Any], name: str, kind: Kind) -> Iterator[tuple[Key, ...]]:
    yield first
    while listed := tuple(islice(rest, KEY_LIST_MIN_SIZE)):
        yield _checked(listed, name, kind)


def _checked(values: tuple[Any, ...], name: str, kind: Kind) -> tuple[Key, ...]:
    return _plain(values, kind) or tuple(parse_group_key(value, name, kind) for value in values)


def _plain(values: tuple[Any, ...], kind: Kind) -> tuple[Key, ...]:
    """The keys, all at once, if all are texts or all numbers of Python's: there may be 100,000; else none."""
    types = set(map(type, values))
    if kind is Kind.TEXT and types == {str} and is_valid_text("".join(values)):
        return values
    if kind is Kind.NUMBER and types <= {int, float} and max(map(abs, values), default=0) <= _LARGEST:
        numbers = tuple(map(float, values))
        # Not-a-number is not equal to itself; the same object in two tuples is.
        if numbers == values and not any(map(math.isnan, numbers)):
            return tuple(number + 0.0 for number in numbers)
    return ()


def parse_group_key(value: Any, name: str, kind: Kind) -> Key:
    """One key value, as the engine holds it: of the kind's own Python type, and of no other.

    Two that differ here differ in the engine too; what is finer than its type is refused.
    """
    if value is None:
        return None
    if kind in {Kind.DATE, Kind.TIMESTAMP}:
        moment = _moment(value, kind)
        if moment is not None:
            return moment
    elif hasattr(value, "item"):
        value = value.item()  # of numpy
    if kind is Kind.TEXT and isinstance(value, str) and is_valid_text(str.__str__(value)):
        return str.__str__(value)
    if kind is Kind.BOOLEAN and isinstance(value, bool):
        return value
    if kind is Kind.NUMBER and isinstance(value, (int, float, Fraction)) and not isinstance(value, bool):
        number = float(value) if -_LARGEST <= value <= _LARGEST else math.nan
        if number == value:
            return number + 0.0
    raise InvalidInput(
        f"a key of {name} is not a {kind.value}",
        why="it would never be met in the data"
        if kind is not Kind.NUMBER
        else "numbers are doubles of at most 2^200 in size: it would never be met in the data",
        fix=f"pass keys of kind {kind.value}, or declare another kind for {name}",
    )


def _moment(value: Any, kind: Kind) -> Key:
    """A date or timestamp in whole microseconds, if that is all that there is to it; else None."""
    if isinstance(value, np.datetime64):
        unit, _ = np.datetime_data(value.dtype)
        try:
            micros = value.astype("M8[us]")
        except OverflowError:
            return None
        # Of a finer unit, or too far off, it does not come back as it was; what is no time equals nothing.
        if micros.astype(value.dtype) != value:
            return None
        value = micros.item()
        value = value.date() if unit in {"Y", "M", "W", "D"} and isinstance(value, datetime) else value
    if isinstance(value, datetime):
        try:
            # Subclasses may hold more: pandas has nanoseconds.
            plain = datetime(*(getattr(value, part) for part in _PARTS))  # noqa: DTZ001 - no zone
        except (TypeError, ValueError):  # it is no moment
            return None
        is_exact = value.tzinfo is None and not getattr(value, "nanosecond", 0)
        return plain if is_exact and kind is Kind.TIMESTAMP else None
    if isinstance(value, date):
        day = date(value.year, value.month, value.day)
        return day if kind is Kind.DATE else datetime(day.year, day.month, day.day)  # noqa: DTZ001
    return None


def _check_names(table: Table) -> None:
    names = [column.name.lower() for column in table.columns]
    if len(set(names)) != len(names) or UNIT in names or not all(names):
        raise InvalidInput(
            f"two columns of {table.name} share a name, one has none, or one is named {UNIT}",
            why="it would not be clear which is asked about",
            fix="rename the columns",
        )
