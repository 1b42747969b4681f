"""Answers of a subject, of any shape, as columns of numbers and of categories to look for events in."""

import hashlib
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import combinations
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

__all__ = ["Failure", "Outcomes", "lowest_bits"]

Floats = NDArray[np.float64]
Codes: TypeAlias = NDArray[Any]
Leaves: TypeAlias = dict[str, Any]

_MAX_LEAVES = 48
"""The number of an answer's numbers that are tested."""
_MAX_PAIRED = 5
"""Up to this many numbers are compared with each other."""
_MAX_COMPARED = 6
"""The order of this many numbers is a category."""
_MAX_TEXT = 1000
"""A longer text is stored as its beginning and a digest."""
_MAX_BITS = 13_000
"""A longer integer is infinite: Python does not write it out."""
_NO_BIT = -2000.0
_COMBINED: dict[str, tuple[Callable[[Floats, Floats], Floats], float]] = {
    "sum": (np.add, 0.0),
    "max": (np.maximum, -np.inf),
    "min": (np.minimum, np.inf),
}
"""Columns of several leaves: how two are combined, and what stands for a missing one."""


@dataclass(frozen=True)
class Failure:
    """An answer that is an error: its kind, not its text, which may hold addresses or times."""

    kind: str

    def __repr__(self) -> str:
        return f"error {self.kind}"


@dataclass(frozen=True, eq=False)
class Outcomes:
    """Answers of one subject on one input.

    Numbers and vectors of numbers stay arrays; anything else is a list of records of leaves.
    """

    array: Floats | None
    """Shape (draws, leaves), if all answers are numbers, or vectors of one length."""
    records: tuple[Leaves, ...] = ()
    seconds: Floats | None = None
    """The time of each answer."""
    is_integral: bool = False
    _cache: dict[str, Any] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, answers: Iterable[Any], seconds: Floats | None = None) -> "Outcomes":
        """Make outcomes of answers: an array with a row for each, or any sequence."""
        if isinstance(answers, np.ndarray) and answers.ndim in {1, 2} and answers.dtype.kind in "iufb":
            table = answers.reshape(len(answers), -1)
            if 0 < table.shape[1] <= _MAX_LEAVES:
                return cls(table.astype(np.float64), (), seconds, answers.dtype.kind in "iub")
        listed = list(answers)
        if listed and all(type(answer) in {float, int, np.float64, np.int64} for answer in listed):
            kinds = {isinstance(answer, (int, np.integer)) for answer in listed}
            if len(kinds) == 1 and not (kinds == {True} and max(map(abs, listed)) > 2**53):
                return cls(np.array(listed, dtype=np.float64)[:, None], (), seconds, kinds == {True})
        return cls(None, tuple(map(_flatten, listed)), seconds)

    def __len__(self) -> int:
        return len(self.records) if self.array is None else len(self.array)

    def failures(self) -> set[str]:
        """Return the kinds of errors if every answer is one, else nothing."""
        answers = [record.get("") for record in self.records]
        kinds = {answer.kind for answer in answers if isinstance(answer, Failure)}
        return kinds if all(isinstance(answer, Failure) for answer in answers) else set()

    def take(self, part: slice) -> "Outcomes":
        """Return the outcomes of a slice."""
        return Outcomes(
            None if self.array is None else self.array[part],
            self.records[part],
            None if self.seconds is None else self.seconds[part],
            self.is_integral,
        )

    def pick(self, chosen: NDArray[np.bool_]) -> "Outcomes":
        """Return the outcomes that are chosen."""
        return Outcomes(
            None if self.array is None else self.array[chosen],
            tuple(record for record, take in zip(self.records, chosen.tolist(), strict=False) if take),
            None if self.seconds is None else self.seconds[chosen],
            self.is_integral,
        )

    def without_times(self) -> "Outcomes":
        """Return the outcomes without how long they took."""
        return self if self.seconds is None else replace(self, seconds=None)

    @staticmethod
    def join(parts: Sequence["Outcomes"]) -> "Outcomes":
        """Return outcomes in one piece; arrays of different widths become records."""
        if len(parts) == 1:
            return parts[0]
        seconds = None
        if all(part.seconds is not None for part in parts):
            seconds = np.concatenate([part.seconds for part in parts if part.seconds is not None])
        arrays = [part.array for part in parts if part.array is not None]
        kinds = {part.is_integral for part in parts}
        if len(arrays) == len(parts) and len({array.shape[1] for array in arrays}) == 1 and len(kinds) == 1:
            return Outcomes(np.concatenate(arrays), (), seconds, kinds.pop())
        return Outcomes(None, tuple(record for part in parts for record in part.as_records()), seconds)

    def as_records(self) -> tuple[Leaves, ...]:
        """Return the leaves of each answer by their paths."""
        if self.array is None:
            return self.records
        convert: Callable[[float], Any] = int if self.is_integral else float
        if self.array.shape[1] == 1:
            return tuple({"": convert(row[0])} for row in self.array)
        return tuple(
            {"#": len(row), **{f"[{place}]": convert(value) for place, value in enumerate(row)}}
            for row in self.array
        )

    @cached_property
    def paths(self) -> tuple[str, ...]:
        """The paths of the leaves that are numbers, in order of how often they occur."""
        if self.array is not None:
            width = self.array.shape[1]
            return ("",) if width == 1 else tuple(f"[{place}]" for place in range(width))
        counts: dict[str, int] = {}
        for record in self.records[:2000]:
            for path, value in record.items():
                if not path.endswith("#") and _is_number(value):
                    counts[path] = counts.get(path, 0) + 1
        return tuple(sorted(counts, key=lambda path: (-counts[path], path))[:_MAX_LEAVES])

    @cached_property
    def text_paths(self) -> tuple[str, ...]:
        """The paths of the leaves that are something else: texts, booleans, None, sizes of containers."""
        seen: dict[str, int] = {}
        for record in self.records[:2000]:
            for path, value in record.items():
                if path.endswith("#") or not _is_number(value):
                    seen[path] = seen.get(path, 0) + 1
        return tuple(sorted(seen, key=lambda path: (-seen[path], path))[:_MAX_LEAVES])

    def leaf(self, path: str) -> Floats:
        """Return one number of each answer; not a number where it has none."""
        key = f"leaf {path}"
        if key not in self._cache:
            if self.array is not None:
                place = self.paths.index(path) if path in self.paths else -1
                column = self.array[:, place] if place >= 0 else np.full(len(self), np.nan)
            else:
                column = np.array([_number(record.get(path)) for record in self.records], dtype=np.float64)
            self._cache[key] = column
        leaf: Floats = self._cache[key]
        return leaf

    def number(self, name: str, paths: tuple[str, ...]) -> Floats:
        """Return a numeric column by its name, as `numeric_names` has it.

        Args:
            name: the column.
            paths: the leaves that sums and extremes are of.

        Guarantee: each number depends on its own answer alone, not on others of the same batch.
        Proof: docs/proofs/sequential-audit.md
        """
        kind, _, path = name.partition(" ")
        if kind == "value":
            return self.leaf(path)
        if kind == "bits":
            return lowest_bits(self.leaf(path))
        if kind == "difference":
            first, second = path.split(" ")
            with np.errstate(invalid="ignore", over="ignore"):
                return self.leaf(first) - self.leaf(second)
        if kind == "seconds" and self.seconds is not None:
            return self.seconds
        if kind in _COMBINED and paths:
            combine, instead = _COMBINED[kind]
            # One leaf after the other: how a sum is rounded must not depend on the size of a batch.
            combined = _without_nan(self.leaf(paths[0]), instead)
            with np.errstate(invalid="ignore", over="ignore"):
                for path in paths[1:]:
                    combined = combine(combined, _without_nan(self.leaf(path), instead))
            return combined
        return np.full(len(self), np.nan)

    def numeric_names(self) -> list[str]:
        """The numeric columns: leaves first."""
        names = [f"value {path}" for path in self.paths]
        if not self.is_integral:
            names += [f"bits {path}" for path in self.paths[:4]]
        if len(self.paths) > 1:
            names += ["sum", "max", "min"]
            names += [f"difference {one} {other}" for one, other in combinations(self.paths[:_MAX_PAIRED], 2)]
        if self.seconds is not None:
            names.append("seconds")
        return names

    def categories(self, name: str, paths: tuple[str, ...]) -> list[Any] | NDArray[np.int64]:
        """Return a column of categories by its name, as `category_names` has it.

        Args:
            name: the column.
            paths: the leaves that are compared with each other.

        Guarantee: each category depends on its own answer alone, not on others of the same batch.
        Proof: docs/proofs/sequential-audit.md
        """
        kind, _, path = name.partition(" ")
        compared = paths[:_MAX_COMPARED] if kind in {"order", "equal"} else ()
        key = f"categories {name} {compared}"
        if key not in self._cache:
            self._cache[key] = self._categorize(kind, path, compared)
        column: list[Any] | NDArray[np.int64] = self._cache[key]
        return column

    def _categorize(self, kind: str, path: str, compared: tuple[str, ...]) -> list[Any] | NDArray[np.int64]:
        if kind == "atom":
            # The bits of a double: −0 is not 0, and one NaN is like another.
            return _bit_patterns(self.leaf(path))
        if kind == "parity":
            leaf = self.leaf(path)
            whole = np.isfinite(leaf) & (leaf == np.floor(leaf)) & (np.abs(leaf) < 2**53)
            parity = np.where(whole, np.mod(np.where(whole, leaf, 0), 2), np.where(np.isnan(leaf), 3, 2))
            return parity.astype(np.int64)
        if kind == "text":
            return [_without_identity(record.get(path, _MISSING)) for record in self.as_records()]
        if kind in {"order", "equal"} and not compared:
            return [()] * len(self)
        if kind == "order":
            table = np.stack([self.leaf(each) for each in compared], axis=1)
            return [tuple(row) for row in np.argsort(table, axis=1, kind="stable").tolist()]
        if kind == "equal":
            table = np.stack([self.leaf(each) for each in compared], axis=1)
            equal = table[:, :, None] == table[:, None, :]
            return [bytes(row) for row in equal.reshape(len(table), len(compared) ** 2)]
        if kind == "shape":
            return [
                tuple(
                    (leaf, value if leaf.endswith("#") else type(value).__name__)
                    for leaf, value in record.items()
                )
                for record in self.as_records()
            ]
        return [repr(sorted(record.items(), key=lambda item: item[0])) for record in self.as_records()]

    def category_names(self) -> list[str]:
        """The columns of categories."""
        names = [f"atom {path}" for path in self.paths[:8]]
        if self.array is None:
            names += ["answer", "shape", *(f"text {path}" for path in self.text_paths[:12])]
        if 2 <= len(self.paths) <= 12:
            names += ["order", "equal"]
        if len(self.paths) > 1 and (self.is_integral or self.array is None):
            names.append("answer")
        names += [f"parity {path}" for path in self.paths[:4]]
        return list(dict.fromkeys(names))


_MISSING = "(missing)"


def _without_identity(value: Any) -> Any:
    """NaN is a category like any other, whichever object it is."""
    return "(nan)" if isinstance(value, float) and math.isnan(value) else value


def lowest_bits(values: Floats) -> Floats:
    """Return the exponent k of the lowest set bit of each double: v = m·2^k with m odd.

    Noise that is added in floating point leaves other bits on other answers (Mironov, 2012).

    >>> lowest_bits(np.array([1.0, 0.75, 3e-310, 0.0]))[:2].tolist()
    [0.0, -2.0]
    """
    usable = np.isfinite(values) & (values != 0)
    fraction, exponent = np.frexp(np.where(usable, values, 1.0))
    whole = np.abs(fraction * 2.0**53).astype(np.int64)
    trailing = np.frexp((whole & -whole).astype(np.float64))[1] - 1
    bits: Floats = np.where(usable, exponent - 53.0 + trailing, np.where(values == 0, _NO_BIT, np.nan))
    return bits


def _bit_patterns(values: Floats) -> NDArray[np.int64]:
    patterns = np.ascontiguousarray(values).view(np.int64).copy()
    patterns[np.isnan(values)] = np.array([np.nan]).view(np.int64)[0]
    return patterns


def _without_nan(values: Floats, instead: float) -> Floats:
    filled: Floats = np.where(np.isnan(values), instead, values)
    return filled


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)


def _number(value: Any) -> float:
    if value is None or not isinstance(value, (int, float, np.integer, np.floating, np.bool_)):
        return math.nan
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


_SPACE = "\u00a0"
"""A space in a key, in paths that are separated by spaces; `repr` never has one."""


def _flatten(answer: Any) -> Leaves:
    """Return the leaves of an answer by their paths; the size of a container is a leaf too."""
    leaves: Leaves = {}
    _collect(answer, "", leaves, 0)
    return leaves


def _collect(answer: Any, path: str, leaves: Leaves, depth: int) -> None:
    if len(leaves) > 4 * _MAX_LEAVES:
        return
    value = getattr(answer, "value", answer) if type(answer).__name__ == "Release" else answer
    if isinstance(value, Mapping) and depth < 6:
        leaves[f"{path}#"] = len(value)
        for key in sorted(value, key=repr):
            _collect(value[key], f"{path}[{key!r}]".replace(" ", _SPACE), leaves, depth + 1)
    elif isinstance(value, (set, frozenset)):
        leaves[f"{path}#"] = len(value)
        leaves[path] = repr(sorted(map(repr, value)))
    elif isinstance(value, np.ndarray) and value.ndim:
        _collect(value.tolist(), path, leaves, depth)
    elif isinstance(value, np.generic):
        leaves[path] = value.item()
    elif isinstance(value, (list, tuple)) and depth < 6:
        leaves[f"{path}#"] = len(value)
        for place, part in enumerate(value):
            _collect(part, f"{path}[{place}]", leaves, depth + 1)
    elif isinstance(value, int) and value.bit_length() > _MAX_BITS:
        leaves[path] = math.inf if value > 0 else -math.inf
    elif isinstance(value, (str, bytes)):
        leaves[path] = _shorten(value)
    elif isinstance(value, (bool, int, float, Failure)) or value is None:
        leaves[path] = value
    else:
        leaves[path] = _shorten(_describe(value))


def _shorten(text: str | bytes) -> str | bytes:
    if len(text) <= _MAX_TEXT:
        return text
    stored = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    return f"{text[:60]!r}… {hashlib.sha256(stored).hexdigest()}"


def _describe(value: Any) -> str:
    """Write a value out; one that cannot be is described by its type."""
    try:
        return repr(value)
    except Exception as problem:  # noqa: BLE001 - whatever an answer's own code raises
        return f"{type(value).__name__}, {type(problem).__name__}"
