"""The public side of a table: its columns with their kinds, bounds and group keys, and the unit's column.

All of it is declared, or read once from the source's own schema when a table is opened; none of it is taken
from rows. All numbers are of one kind, doubles: a single missing value may decide whether a file's column
holds integers or floats, and doubles never overflow into an error.
"""

import enum
import hashlib
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import date, datetime
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from itertools import islice
from typing import Any, final, overload

import numpy as np
from numpy.typing import NDArray

from hubbub.errors import InvalidInput
from hubbub.numbers import parse_rational

__all__ = [
    "KEY_LIST_MIN_SIZE",
    "MAX_NUMBER",
    "TABLE_MAGNITUDE",
    "UNIT",
    "Bounds",
    "Column",
    "Key",
    "KeyList",
    "Kind",
    "Magnitude",
    "Table",
    "WrittenKey",
    "are_bounds_usable",
    "declare_bounds",
    "find_bounds_kind",
    "imply_kinds",
    "infer_kind",
    "is_valid_text",
    "parse_bounds",
    "parse_group_key",
    "parse_group_keys",
    "read_key",
    "refuse_duplicate_names",
    "split_into_batches",
]

Key = str | float | bool | date | datetime | None
"""A group key: public, as it appears in results. None is SQL's NULL."""
Bounds = tuple[Fraction, Fraction]
Magnitude = tuple[int, int]
"""Exponents (low, high) of a number's size: the number is 0, or its size is between 2^low and 2^high."""
TABLE_MAGNITUDE: Magnitude = (-1074, 200)
"""Magnitude of every number from a table: from the smallest double to the clamp."""
MAX_NUMBER = 2.0**200
"""Numbers from a table are clamped to this size."""
_EPOCH = date(1970, 1, 1)
UNIT = "_unit"
"""The column that carries the unit through every sub-query; no table may have a column of this name."""
KEY_LIST_MIN_SIZE = 1 << 16
"""From this number on, group keys are kept in a `KeyList` instead of a tuple."""


class Kind(enum.Enum):
    """The kind of a column, which decides the operations on it."""

    NUMBER = "number"
    TEXT = "text"
    BOOLEAN = "boolean"
    DATE = "date"
    TIMESTAMP = "timestamp"
    OPAQUE = "opaque"
    """Any other type: it can be the unit, or be counted, and nothing else."""


@dataclass(frozen=True)
class Column:
    """A column: its name, its kind, and what is declared about its values."""

    name: str
    kind: Kind
    bounds: Bounds | None = None
    """Numbers are clamped between these before they are summed; of dates, days since 1970-01-01."""
    keys: Sequence[Key] | None = None
    """All group keys of the column; public."""
    is_complete: bool = False
    """True if the keys follow from the column's kind, so that no row has another; declared keys are not."""
    is_unit: bool = False
    """True for the column that identifies the privacy unit."""
    origin: tuple[str, str] | None = None
    """The public table and column that the values come from; no others are possible."""
    is_outer: bool = False
    """True if rows without a match in an outer join have NULL here."""
    is_outer_unit: bool = False
    """True if it was the unit's key before that: it still is, where it is not NULL."""
    size: Magnitude = TABLE_MAGNITUDE
    """Magnitude of the numbers."""
    element: Kind | None = None
    """The kind of the elements, if it is a list; the column itself is opaque."""
    source_kind: Kind | None = None
    """The kind that the engine reads it as, where the bounds of a query imply another."""
    is_of_json: bool = False


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
    """True for a public table: its rows may be joined and shown freely."""

    @classmethod
    def of(
        cls,
        name: str,
        kinds: Mapping[str, Kind],
        *,
        unit: str | None = None,
        bounds: Mapping[str, Any] | None = None,
        keys: Mapping[str, Any] | None = None,
        elements: Mapping[str, Kind] | None = None,
        is_public: bool = False,
        is_json: bool = False,
    ) -> "Table":
        """Make a table from its declarations; a declaration for a missing column is refused.

        Args:
            name: the table's name.
            kinds: the kind of each column, by name.
            unit: the column that identifies the privacy unit.
            bounds: for numeric columns, (low, high).
            keys: for columns to group by, the list of group keys.
            elements: for columns of lists, the kind of their elements.
            is_public: True for a table without protected rows.
            is_json: True for JSON, where only declared columns exist.
        """
        booleans: dict[str, Any] = {"keys": (False, True, None), "is_complete": True}
        table = cls(
            name,
            tuple(
                Column(
                    column,
                    kind,
                    element=(elements or {}).get(column) if kind is Kind.OPAQUE else None,
                    is_of_json=is_json,
                    **(booleans if kind is Kind.BOOLEAN else {}),
                )
                for column, kind in kinds.items()
            ),
            is_public,
        )
        _check_names(table)
        columns = {column.name: column for column in table.columns}
        for declared, limits in (bounds or {}).items():
            column = table.find(declared)
            columns[column.name] = replace(columns[column.name], bounds=parse_bounds(limits, declared))
        for declared, values in (keys or {}).items():
            column = table.find(declared)
            group_keys = parse_group_keys(values, declared, column.kind)
            columns[column.name] = replace(columns[column.name], keys=group_keys, is_complete=False)
        if unit is not None:
            column = table.find(unit)
            columns[column.name] = replace(columns[column.name], is_unit=True)
        return cls(name, tuple(columns.values()), is_public)

    def find(self, name: str) -> Column:
        """The column of this name, in any case."""
        for column in self.columns:
            if column.name.lower() == name.lower():
                return column
        names = ", ".join(column.name for column in self.columns)
        separator = next((sign for sign in ";\t|" if len(self.columns) == 1 and sign in names), None)
        why, fix = "queries and declarations can only name its columns", f"use one of: {names}"
        if separator is not None:
            why = f"its one column, {names!r}, seems to hold several, separated by {separator!r}"
            fix = f"declare the separator {separator!r}"
        raise InvalidInput(f"there is no column {name!r} in {self.name}", why=why, fix=fix)


def _check_names(table: Table) -> None:
    names = [column.name.lower() for column in table.columns]
    if len(set(names)) != len(names) or UNIT in names or not all(names):
        raise InvalidInput(
            f"two columns of {table.name} share a name, one has none, or one is named {UNIT}",
            why="a query that names it would be ambiguous",
            fix="rename the columns",
        )


# Bounds


def parse_bounds(bounds: Any, name: str) -> Bounds:
    """Bounds as exact numbers, low below high; those of dates in days since 1970-01-01.

    >>> parse_bounds((0, 5000), "cost")
    (Fraction(0, 1), Fraction(5000, 1))
    >>> parse_bounds((date(1970, 1, 2), date(1970, 2, 1)), "day")
    (Fraction(1, 1), Fraction(31, 1))
    """
    if not isinstance(bounds, Sequence) or isinstance(bounds, str) or len(bounds) != 2:
        raise InvalidInput(
            f"the bounds of {name} are not a pair",
            why="numbers are clamped between two public ends",
            fix=f"pass them as {{bounds={name}=0:100}}",
        )
    if find_bounds_kind(bounds) in {Kind.DATE, Kind.TIMESTAMP}:
        bounds = [(date(end.year, end.month, end.day) - _EPOCH).days for end in bounds]
    low, high = parse_rational(bounds[0], f"low of {name}"), parse_rational(bounds[1], f"high of {name}")
    if low >= high:
        how, advice = ("above", "the smaller one first") if low > high else ("equal to", "two that differ")
        raise InvalidInput(
            f"the lower bound of {name} is {how} its upper bound",
            why="values are clamped between them",
            fix=f"pass {advice}, as {{bounds={name}=0:100}}",
        )
    if not are_bounds_usable((low, high)):
        raise InvalidInput(
            f"the bounds of {name} are beyond ±2^500, or too close to each other for doubles",
            why="noise cannot protect a sum between such bounds",
            fix="pass finite bounds that are further apart",
        )
    return low, high


def find_bounds_kind(bounds: Any) -> Kind | None:
    """The kind that bounds imply of a column: number, date or timestamp; None if they are no bounds.

    >>> find_bounds_kind((0, 5000)), find_bounds_kind((date(2026, 1, 1), date(2026, 12, 31)))
    (<Kind.NUMBER: 'number'>, <Kind.DATE: 'date'>)
    """
    if bounds == "auto":
        return Kind.NUMBER
    if not isinstance(bounds, Sequence) or isinstance(bounds, str) or len(bounds) != 2:
        return None
    if all(isinstance(end, datetime) for end in bounds):
        return Kind.TIMESTAMP
    if all(isinstance(end, date) for end in bounds):
        return Kind.DATE
    return Kind.NUMBER if not any(isinstance(end, (str, date)) for end in bounds) else None


def imply_kinds(tables: Mapping[str, Table], bounds: Mapping[str, Any] | None) -> Mapping[str, Table]:
    """The tables as a query with these bounds reads them: texts with bounds are numbers or dates.

    Guarantee: it depends on declarations alone. Texts that are none are NULL.
    """
    kinds = {name.lower(): (find_bounds_kind(ends), ends) for name, ends in (bounds or {}).items()}
    if not kinds:
        return tables

    def imply(column: Column) -> Column:
        kind, ends = kinds.get(column.name.lower(), (None, None))
        if kind is None or column.is_unit or column.kind not in {Kind.TEXT, kind}:
            return column
        source = column.source_kind or (column.kind if column.kind is not kind else None)
        is_date = kind in {Kind.DATE, Kind.TIMESTAMP}
        own = parse_bounds(ends, column.name) if is_date else column.bounds
        return replace(column, kind=kind, source_kind=source, bounds=own)

    return {
        name: table if table.is_public else replace(table, columns=tuple(map(imply, table.columns)))
        for name, table in tables.items()
    }


def declare_bounds(tables: Mapping[str, "Table"], bounds: Mapping[str, Any]) -> dict[str, "Table"]:
    """The tables with the bounds that one query declares for columns of theirs."""
    declared = {name.lower(): ends for name, ends in bounds.items() if ends != "auto"}

    def with_bounds(column: Column) -> Column:
        ends = declared.get(column.name.lower())
        is_number = column.kind is Kind.NUMBER and ends is not None
        return replace(column, bounds=parse_bounds(ends, column.name)) if is_number else column

    if not declared:
        return dict(tables)
    return {
        name: replace(table, columns=tuple(map(with_bounds, table.columns))) for name, table in tables.items()
    }


def are_bounds_usable(bounds: Bounds) -> bool:
    """True if doubles can be clamped between these bounds, and scaled by their distance."""
    low, high = bounds
    largest = max(abs(low), abs(high))
    if low >= high or largest > Fraction(2) ** 500:
        return False
    # Far enough apart that there are doubles between them.
    return high - low >= max(largest / 2**40, Fraction(1, 2**400))


# Group keys


def is_valid_text(text: str) -> bool:
    """True if every engine accepts the text: it has no zero character and no lone surrogate."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return "\0" not in text


def parse_group_keys(keys: Any, name: str, kind: Kind) -> Sequence[Key]:
    """Group keys as they appear in results: distinct, all of the column's kind, or None for NULL.

    There may be ten million of them: they are then read in batches, and kept in a `KeyList`.

    >>> parse_group_keys(["North", "South"], "region", Kind.TEXT)
    ('North', 'South')
    >>> parse_group_keys(range(3), "bin", Kind.NUMBER)
    (0.0, 1.0, 2.0)
    """
    if isinstance(keys, (str, bytes)) or not isinstance(keys, Iterable):
        raise InvalidInput(
            f"the keys of {name} are not a list",
            why="each group key is one row of the result, which has a public shape",
            fix=f"pass them as {{keys={name}=North,South}}",
        )
    rest = iter(keys)
    first = _parse_batch(tuple(islice(rest, KEY_LIST_MIN_SIZE)), name, kind)
    values: Sequence[Key] = first
    if len(first) == KEY_LIST_MIN_SIZE and kind in {Kind.TEXT, Kind.NUMBER}:
        hashes: list[NDArray[np.int64]] = []
        batches = _parse_batches(first, rest, name, kind, hashes)
        values = KeyList.from_batches(batches, are_texts=kind is Kind.TEXT)
        is_distinct = values.is_distinct(np.concatenate(hashes))
    else:
        values = first + _parse_batch(tuple(rest), name, kind)
        is_distinct = len(set(values)) == len(values)
    if not values or not is_distinct:
        raise InvalidInput(
            f"the keys of {name} are {'not distinct' if values else 'empty'}",
            why="each group key is one row of the result",
            fix="list each key once" if values else "list them, or leave them out to select them privately",
        )
    return values


def _parse_batches(
    first: tuple[Key, ...], rest: Iterator[Any], name: str, kind: Kind, hashes: list[NDArray[np.int64]]
) -> Iterator[tuple[Key, ...]]:
    """The keys in batches; their hashes are added to the list."""
    batch = first
    while batch:
        hashes.append(np.fromiter(map(hash, batch), np.int64, len(batch)))
        yield batch
        batch = _parse_batch(tuple(islice(rest, KEY_LIST_MIN_SIZE)), name, kind)


def _parse_batch(values: tuple[Any, ...], name: str, kind: Kind) -> tuple[Key, ...]:
    return _parse_plain(values, kind) or tuple(parse_group_key(value, name, kind) for value in values)


def _parse_plain(values: tuple[Any, ...], kind: Kind) -> tuple[Key, ...]:
    """The keys, checked together, if all are Python's texts or numbers; else empty. It is much faster."""
    types = set(map(type, values))
    if kind is Kind.TEXT and types == {str} and is_valid_text("".join(values)):
        return values
    if kind is Kind.NUMBER and types <= {int, float} and max(map(abs, values), default=0) <= MAX_NUMBER:
        numbers = tuple(map(float, values))
        # NaN does not equal itself, but tuples compare the same object as equal.
        if numbers == values and not any(map(math.isnan, numbers)):
            return tuple(number + 0.0 for number in numbers)
    return ()


@final
class WrittenKey(str):
    """A group key as somebody typed it: the query decides whether `2019` is a number or a text."""

    __slots__ = ()


def read_key(text: str, kind: Kind) -> Key:
    """Return the key of this kind that a text spells: 2.5, true, 2026-11-15; raises ValueError if none."""
    try:
        if kind is Kind.NUMBER:
            return float(Decimal(text))
        if kind is Kind.BOOLEAN:
            return {"true": True, "false": False}[text.lower()]
    except (InvalidOperation, KeyError):
        raise ValueError(kind) from None
    if kind is Kind.DATE:
        return date.fromisoformat(text)
    return datetime.fromisoformat(text) if kind is Kind.TIMESTAMP else str.__str__(text)


def parse_group_key(value: Any, name: str, kind: Kind) -> Key:
    """One group key, as the engine holds it: of the kind's own Python type, or a text that spells a date.

    Keys that differ here differ in the engine too; a value finer than the engine's type is refused.
    """
    if value is None:
        return None
    if isinstance(value, WrittenKey) or (isinstance(value, str) and kind in {Kind.DATE, Kind.TIMESTAMP}):
        with suppress(ValueError):
            value = read_key(value, kind)
    if kind in {Kind.DATE, Kind.TIMESTAMP}:
        parsed = _parse_datetime(value, kind)
        if parsed is not None:
            return parsed
    elif hasattr(value, "item"):
        value = value.item()  # of numpy
    if kind is Kind.TEXT and isinstance(value, str) and is_valid_text(str.__str__(value)):
        return str.__str__(value)
    if kind is Kind.BOOLEAN and isinstance(value, bool):
        return value
    if kind is Kind.NUMBER and isinstance(value, (int, float, Fraction)) and not isinstance(value, bool):
        number = float(value) if -MAX_NUMBER <= value <= MAX_NUMBER else math.nan
        if number == value:
            return number + 0.0
    raise InvalidInput(
        f"a key of {name} is not a {kind.value}",
        why="no row could ever have it"
        if kind is not Kind.NUMBER
        else "numbers are doubles of at most 2^200 in size: no row could ever have it",
        fix=f"pass keys of kind {kind.value}{_SPELLINGS.get(kind, '')}",
    )


_SPELLINGS = {Kind.DATE: ", such as 2026-11-15", Kind.BOOLEAN: ": true or false"}
_DATETIME_FIELDS = ("year", "month", "day", "hour", "minute", "second", "microsecond")


def _parse_datetime(value: Any, kind: Kind) -> Key:
    """A date, or a timestamp in whole microseconds, if that is exact; else None."""
    if isinstance(value, np.datetime64):
        unit, _ = np.datetime_data(value.dtype)
        try:
            micros = value.astype("M8[us]")
        except OverflowError:
            return None
        # A finer unit, or a year too far off, does not survive the round trip; NaT equals nothing.
        if micros.astype(value.dtype) != value:
            return None
        value = micros.item()
        value = value.date() if unit in {"Y", "M", "W", "D"} and isinstance(value, datetime) else value
    if isinstance(value, datetime):
        try:
            # Subclasses may hold more: pandas has nanoseconds.
            plain = datetime(*(getattr(value, field) for field in _DATETIME_FIELDS))  # noqa: DTZ001 - no zone
        except (TypeError, ValueError):  # NaT
            return None
        is_exact = value.tzinfo is None and not getattr(value, "nanosecond", 0)
        return plain if is_exact and kind is Kind.TIMESTAMP else None
    if isinstance(value, date):
        day = date(value.year, value.month, value.day)
        return day if kind is Kind.DATE else datetime(day.year, day.month, day.day)  # noqa: DTZ001
    return None


_KINDS_OF_KEYS = (
    (str, Kind.TEXT),
    (bool, Kind.BOOLEAN),
    (float, Kind.NUMBER),
    (datetime, Kind.TIMESTAMP),  # before date, its base class
    (date, Kind.DATE),
)


def infer_kind(keys: Sequence[Key]) -> Kind:
    """The kind of a list of group keys; text if all are None."""
    first = next((key for key in keys if key is not None), "")
    return next(kind for python_type, kind in _KINDS_OF_KEYS if isinstance(first, python_type))


def split_into_batches(keys: Sequence[Key], size: int) -> Iterator[Sequence[Key]]:
    """Yield the keys in batches of at most `size`."""
    return (keys[start : start + size] for start in range(0, len(keys), size))


@final
class KeyList(Sequence[Key]):
    """Many texts or numbers, with None among them, in few bytes; each key is made when it is read.

    Ten million texts of twelve letters take 200 MB, where Python's own take 750.

    >>> keys = KeyList.from_batches([["a", "bcd"], [None, "é"]], are_texts=True)
    >>> len(keys), keys[1], keys[1:], None in keys
    (4, 'bcd', ['bcd', None, 'é'], True)
    >>> list(KeyList.from_batches([[1.0, None]], are_texts=False))
    [1.0, None]
    """

    def __init__(self, data: bytearray, ends: NDArray[np.int64] | None, missing: tuple[int, ...]) -> None:
        self._data = data
        """All texts, concatenated in UTF-8; or the numbers, as doubles."""
        self._ends = ends
        """The end of each text; None for numbers."""
        self._missing = missing
        """The indices of None."""

    @classmethod
    def from_batches(cls, batches: Iterable[Sequence[Key]], *, are_texts: bool) -> "KeyList":
        """Make a list from batches of keys."""
        data, lengths = bytearray(), [np.empty(0, np.int64)]
        missing: list[int] = []
        count = 0
        for batch in batches:
            has_missing = None in batch
            if has_missing:
                missing += [count + index for index, key in enumerate(batch) if key is None]
            count += len(batch)
            if are_texts:
                # A batch without None is taken as it is: a look at each key would double the time.
                texts: Any = [key or "" for key in batch] if has_missing else batch
                joined = "".join(texts)
                # A letter is one byte if all are ASCII.
                sizes = map(len, texts) if joined.isascii() else (len(text.encode()) for text in texts)
                lengths.append(np.fromiter(sizes, np.int64, len(texts)))
                data += joined.encode()
            else:
                data += np.array([0.0 if key is None else key for key in batch], np.float64).tobytes()
        return cls(data, np.cumsum(np.concatenate(lengths)) if are_texts else None, tuple(missing))

    def __len__(self) -> int:
        return len(self._data) // 8 if self._ends is None else len(self._ends)

    @overload
    def __getitem__(self, index: int) -> Key: ...
    @overload
    def __getitem__(self, index: slice) -> list[Key]: ...
    def __getitem__(self, index: int | slice) -> Key | list[Key]:
        if not isinstance(index, slice):
            at = range(len(self))[index]
            return self[at : at + 1][0]
        start, stop, step = index.indices(len(self))
        assert step == 1
        stop = max(start, stop)
        keys: list[Key]
        if self._ends is None:
            keys = np.frombuffer(self._data, np.float64)[start:stop].tolist()
        else:
            ends = self._ends[start:stop].tolist()
            first = int(self._ends[start - 1]) if start else 0
            starts = [first, *ends][: len(ends)]
            keys = [self._data[begin:end].decode() for begin, end in zip(starts, ends, strict=True)]
        for missing in self._missing:
            if start <= missing < stop:
                keys[missing - start] = None
        return keys

    def __iter__(self) -> Iterator[Key]:
        for batch in split_into_batches(self, KEY_LIST_MIN_SIZE):
            yield from batch

    def __contains__(self, key: object) -> bool:
        return bool(self._missing) if key is None else any(own == key for own in self)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, KeyList) and self.digest() == other.digest()

    def __hash__(self) -> int:
        return hash(self.digest())

    def digest(self) -> str:
        """A hash of all keys in their order."""
        digest = hashlib.sha256(b"numbers" if self._ends is None else self._ends.tobytes())
        digest.update(repr(self._missing).encode())
        digest.update(self._data)
        return digest.hexdigest()

    def is_distinct(self, hashes: NDArray[np.int64] | None = None) -> bool:
        """True if no key occurs twice. It takes 8 bytes a key, where a set takes 100.

        Args:
            hashes: the hash of each key, if they are known.
        """
        hashes = np.sort(np.fromiter(map(hash, self), np.int64, len(self)) if hashes is None else hashes)
        # A few different keys may share a hash: only these are compared themselves.
        repeated = set(hashes[1:][hashes[1:] == hashes[:-1]].tolist())
        unclear = [key for key in self if hash(key) in repeated] if repeated else []
        return len(set(unclear)) == len(unclear)


def refuse_duplicate_names(names: Sequence[str], table: str) -> None:
    """Refuse two columns that differ only in case: DuckDB would rename one of them."""
    counts = Counter(name.lower() for name in names)
    doubles = [name for name in names if counts[name.lower()] > 1]
    if doubles:
        raise InvalidInput(
            f"two columns of {table} have one name, or names that differ only in case ({', '.join(doubles)})",
            why="SQL cannot distinguish them, and a query could read the wrong one",
            fix="rename one of them",
        )
