"""Pairs of neighbouring inputs to try: edges of the declared rows, empty databases, duplicates, ties."""

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hubbub.errors import InvalidInput
from hubbub.noise import uniform
from hubbub.unit import Neighbours

__all__ = ["InputPair", "RowDomain", "edge_pairs", "make_random_pairs", "read_pairs"]

_MOST_ROWS = 13
_BEYOND = (math.nan, math.inf, -math.inf, 1e308, -1e308, 2.0**63, 5e-324)
"""Rows outside every declared domain."""


@dataclass(frozen=True)
class InputPair:
    """Two databases that differ in one person."""

    x: Any
    x_prime: Any
    name: str = ""

    def __str__(self) -> str:
        return self.name or f"x = {_short(self.x)}, x′ = {_short(self.x_prime)}"


@dataclass(frozen=True)
class RowDomain:
    """The rows that one person may have: numbers between two bounds, or one of some categories."""

    low: float = 0.0
    high: float = 1.0
    is_integer: bool = False
    values: tuple[Any, ...] = ()

    @classmethod
    def parse(cls, text: str) -> "RowDomain":
        """Read a description: `0:1`, `int:0:120`, or categories as `red,green,blue`.

        >>> RowDomain.parse("int:0:120")
        RowDomain(low=0, high=120, is_integer=True, values=())
        """
        parts = text.split(":")
        is_integer = parts[0].strip() == "int"
        numbers = parts[1:] if is_integer else parts
        try:
            if len(numbers) == 2:
                low, high = (int(part) if is_integer else float(part) for part in numbers)
                if math.isfinite(low) and math.isfinite(high) and low < high:
                    return cls(low, high, is_integer)
        except ValueError:
            pass
        values = tuple(value.strip() for value in text.split(","))
        if len(parts) == 1 and len(values) > 1:
            return cls(values=values)
        raise InvalidInput(
            "{rows} cannot be read",
            why="it describes what one person's row may be",
            fix="pass bounds as 0:1, integers as int:0:120, or categories as red,green,blue",
            parameter="rows",
        )

    def edges(self) -> tuple[Any, Any, Any]:
        """The two ends and something between."""
        if self.values:
            return self.values[0], self.values[-1], self.values[len(self.values) // 2]
        if self.is_integer:
            return int(self.low), int(self.high), int(self.low + self.high) // 2
        return self.low, self.high, (self.low + self.high) / 2


def edge_pairs(
    domain: RowDomain, neighbours: Neighbours = Neighbours.ADD_REMOVE, *, beyond_bounds: bool = False
) -> list[InputPair]:
    """Return pairs at the edges of a domain, those that reveal most mistakes first.

    Args:
        domain: what one row may be.
        neighbours: whether neighbours differ by an added row or by a substituted one.
        beyond_bounds: also try rows outside the domain: not-a-number, infinities, overflow, the smallest
            double.
    """
    low, high, middle = domain.edges()
    bases: list[tuple[str, list[Any]]] = [
        ("empty", []),
        ("ten rows at the lower bound", [low] * 10),
        ("ten rows at the upper bound", [high] * 10),
        ("one row", [low]),
        ("a tie", [low, low, high, high]),
        ("rows at both bounds and between", [low, middle, high, middle, low]),
        ("a hundred duplicates", [middle] * 100),
    ]
    rows: list[tuple[str, Any]] = [
        ("the upper bound", high),
        ("the lower bound", low),
        ("the middle", middle),
    ]
    if beyond_bounds:
        rows += [(f"{value!r}", value) for value in _BEYOND]
    pairs = []
    if neighbours is Neighbours.ADD_REMOVE:
        for place, (base_name, base) in enumerate(bases):
            for row_name, row in rows:
                # The first bases get every row, later ones the two bounds only: fewer pairs, more draws each.
                if place < 3 or row in (high, low) or (beyond_bounds and place < 2):
                    pairs.append(
                        InputPair([*base, row], list(base), f"{base_name}, plus a row at {row_name}")
                    )
    else:
        for base_name, base in bases[1:]:
            rest = base[1:]
            for row_name, row in rows:
                if base[:1] != [row]:
                    pairs.append(
                        InputPair([row, *rest], list(base), f"{base_name}, one changed to {row_name}")
                    )
    return _unique(pairs)


def make_random_pairs(domain: RowDomain, neighbours: Neighbours, count: int) -> list[InputPair]:
    """Make pairs of random databases that differ in one person.

    Half of all rows are at a bound or in the middle, so that there are ties; the others are anywhere between.

    Args:
        domain: the rows that one person may have.
        neighbours: what neighbours are.
        count: how many pairs.
    """
    pairs = []
    for number in range(count):
        rest = [_random_row(domain) for _ in range(uniform(_MOST_ROWS))]
        name = f"random pair {number + 1}: {len(rest)} rows"
        if neighbours is Neighbours.ADD_REMOVE:
            # At the end: whoever numbers people by their place gives the others the same numbers.
            pairs.append(InputPair([*rest, _random_row(domain)], rest, f"{name}, plus one"))
            continue
        at = uniform(len(rest) + 1)
        x, x_prime = ([*rest[:at], _random_row(domain), *rest[at:]] for _ in range(2))
        pairs.append(InputPair(x, x_prime, f"{name}, and one that is changed"))
    return pairs


def _random_row(domain: RowDomain) -> Any:
    if domain.values:
        return domain.values[uniform(len(domain.values))]
    if uniform(2):
        return domain.edges()[uniform(3)]
    if domain.is_integer:
        return int(domain.low) + uniform(int(domain.high) - int(domain.low) + 1)
    return domain.low + (domain.high - domain.low) * uniform(1 << 53) / (1 << 53)


def _unique(pairs: Iterable[InputPair]) -> list[InputPair]:
    seen: dict[str, InputPair] = {}
    for pair in pairs:
        seen.setdefault(repr((pair.x, pair.x_prime)), pair)
    return list(seen.values())


def read_pairs(path: str | Path) -> list[InputPair]:
    """Read pairs from a JSON file: a list of [x, x′]."""
    try:
        listed = json.loads(Path(path).read_text(encoding="utf-8"))
        pairs = [InputPair(x, x_prime) for x, x_prime in listed]
    except (OSError, ValueError, TypeError):
        pairs = []
    if not pairs:
        raise InvalidInput(
            "the file of {pairs} cannot be read",
            why="it says which neighbouring databases are tried",
            fix="pass a JSON file with a list of [x, x′], each a database",
            parameter="pairs",
        )
    return pairs


def _short(value: Any) -> str:
    if isinstance(value, Sequence) and not isinstance(value, str) and len(value) > 6:
        return f"[{', '.join(repr(each) for each in value[:4])}, … {len(value)} rows]"
    text = repr(value)
    return text if len(text) <= 80 else text[:79] + "…"
