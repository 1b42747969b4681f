"""SQL fragments of contribution bounding: weights, clamped sums, bins; and the sensitivity of rounded sums.

Proof: docs/proofs/bounding.md
"""

from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache

import sqlglot
from sqlglot import exp

from hubbub.engines.dialect import BIN_INDEX
from hubbub.engines.schema import UNIT
from hubbub.sensitivity import MAX_MAGNITUDE, Sensitivity
from hubbub.sql.complementary_parts import WEIGHT_BITS, Partition
from hubbub.unit import Neighbours

__all__ = [
    "MAGNITUDES",
    "MAGNITUDE_ENDS",
    "bin_call",
    "bin_index",
    "capped_weight",
    "capped_weights",
    "clamped_sum",
    "clamped_total",
    "count_bits",
    "left_join",
    "neighbour_sensitivity",
    "parse_template",
    "rounded_sensitivity",
    "value_bits",
    "whole_value_bits",
]

_COUNT_BITS, _MAX_COUNT_BITS = 16, 32
"""Counts are released in steps of 2^-16 of a row; where a unit touches many groups, of down to 2^-32."""


MAGNITUDE_ENDS: tuple[float, ...] = tuple(
    part * 2.0**power for power in range(-32, 64) for part in (1.0, 1.5)
)
MAGNITUDES = 2 * len(MAGNITUDE_ENDS) + 1
"""Bins by sign and size, two to each power of two from 2^-32 on, and one for smaller values."""


@lru_cache(maxsize=256)
def parse_template(text: str) -> exp.Select:
    """Parse one of our own templates. The tree is cached, as parsing is slow: do not modify it."""
    tree = sqlglot.parse_one(text, read="duckdb")
    assert isinstance(tree, exp.Select)
    return tree


def neighbour_sensitivity(
    neighbours: Neighbours, l1: Fraction, l2_squared: Fraction, linf: Fraction, *, is_signed: bool = False
) -> Sensitivity:
    """How far one unit moves a sum of units' vectors, from the norms of one such vector.

    Adding or removing a unit moves the sum by that vector. Substituting one moves it by a difference of two:
    for non-negative vectors the squares add up and no coordinate moves further; otherwise all may double.
    """
    if neighbours is Neighbours.ADD_REMOVE:
        return Sensitivity(l1, l2_squared=l2_squared, linf=linf)
    if is_signed:
        return Sensitivity(2 * l1, l2_squared=4 * l2_squared, linf=2 * linf)
    return Sensitivity(2 * l1, l2_squared=2 * l2_squared, linf=linf)


def rounded_sensitivity(before: Sensitivity, cells: int, spare: int) -> Sensitivity:
    """How far one unit moves sums after each coordinate is rounded once.

    Proof: docs/proofs/bounding.md, "Sums"
    """
    if not spare or cells == 1:
        return before
    l1 = before.l1 + cells - 1
    return Sensitivity(l1, l2_squared=before.l2_squared + 2 * before.l1 + cells, linf=before.linf)


def count_bits(cells: int) -> tuple[int, int]:
    """Number of bits that a row has in released counts, and number of additional bits in the engine.

    With them, rounding by one step per coordinate adds a negligible amount to the noise.
    """
    bits = min(_COUNT_BITS + (cells - 1).bit_length(), _MAX_COUNT_BITS)
    return bits, WEIGHT_BITS - bits


def value_bits(partition: Partition) -> tuple[int, int]:
    """Number of bits of a weighted row in released sums, and number of additional bits in the engine."""
    return _COUNT_BITS + partition.bits, WEIGHT_BITS - _COUNT_BITS + partition.spare


def whole_value_bits(partition: Partition) -> tuple[int, int]:
    """As `value_bits`, of values that have no weights."""
    return _COUNT_BITS + partition.bits, partition.spare - _COUNT_BITS


def capped_weight(count: str, limit: int, bits: int) -> str:
    """The weight of each of `count` rows, so that together they count at most the limit; rounded down."""
    one = 1 << bits
    return f"CASE WHEN {count} > {limit} THEN {limit * one} // {count} ELSE {one} END"


def capped_weights(table: str, limit: int, bits: int) -> str:
    """For each unit above the limit, the share g that each of its rows counts, rounded down."""
    share = f"{limit << bits} // COUNT(*)"
    return f"SELECT {UNIT}, {share} AS g FROM {table} GROUP BY {UNIT} HAVING COUNT(*) > {limit}"


def left_join(table: str, other: str, name: str = "") -> str:
    """Two tables joined by the unit; `name` is the first one's alias."""
    return f"{table} LEFT JOIN {other} ON {name or table}.{UNIT} = {other}.{UNIT}"


def bin_index(test: str, ends: Sequence[str], first: int = 0) -> str:
    """The index of the first end that satisfies the test, as all later ones do; by bisection."""
    if not ends:
        return str(first)
    half = len(ends) // 2
    before, behind = bin_index(test, ends[:half], first), bin_index(test, ends[half + 1 :], first + half + 1)
    return f"CASE WHEN {test} {ends[half]} THEN {before} ELSE {behind} END"


def bin_call(value: str, ends: Sequence[str]) -> str:
    """The number of sorted ends that a value is not below: for many ends, and servers, which look them up.

    Each engine's dialect has it. A nest of conditions takes PostgreSQL long, and Spark fails to compile it.
    """
    return f"{BIN_INDEX}({', '.join([value, *ends])})"


def clamped_sum(text: str) -> str:
    """A sum of integers, clamped to ±2^61; 0 if there are none."""
    return clamped_total(f"SUM({text})")


def clamped_total(total: str, spare: int = 0) -> str:
    """The sum in units of 2^spare, rounded to the nearest, clamped to ±2^61."""
    most = MAX_MAGNITUDE << spare
    clamped = f"LEAST(GREATEST(COALESCE({total}, 0), {-most}), {most})"
    if not spare:
        return f"CAST({clamped} AS BIGINT)"
    # Above 0, where all engines divide alike; halves are rounded up, on both sides of 0.
    above = f"CAST({clamped} + {most + (1 << (spare - 1))} AS HUGEINT)"
    return f"CAST({above} // {1 << spare} AS BIGINT) - {MAX_MAGNITUDE}"
