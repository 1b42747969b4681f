"""Counting, fractional, weighted and histogram queries, each with the sensitivity that is proved for it.

One element of `rows` is one unit, so one unit changes one term of a sum. The functions are total: no
row can make them raise, because an error that depends on a row tells about it. Where a predicate or a
weight fails on a row, a public rule says what the row counts for instead.

Assumed throughout: a predicate or weight looks at its one row and at nothing else, and does nothing
else; and going through `rows` does not itself fail on a row. What is asked (predicates,
categories, bounds) is public: chosen by a person, never taken from the rows.
"""

import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from hubbub.bounded import LARGEST, Bounded, Sensitivity
from hubbub.errors import InvalidInput, Refused
from hubbub.rational import Number, exactly, rational
from hubbub.unit import Neighbours, Unit

__all__ = ["count", "counts", "fraction", "histogram", "linear"]

Predicate = Callable[[Any], Any]

_ROW = Unit.row()
_SUBSTITUTED = Unit.row(Neighbours.SUBSTITUTE)

# Every double is a whole multiple of 2⁻¹⁰⁷⁴, and so are sums of doubles.
_FINEST = 2**1074
_MOST_SCALE_BITS = 4096


def count(rows: Iterable[Any], predicate: Predicate | None = None, *, unit: Unit = _ROW) -> Bounded:
    """How many rows there are, or how many fulfil the predicate.

    A row on which the predicate raises does not fulfil it.

    Guarantee: one unit moves it by at most 1, added, removed or substituted.
    Assumes: one element of `rows` is one unit; the predicate looks at one row only. Without a
    predicate the unit must be added or removed: under substitution the number of rows is public.
    Proof: docs/proofs/sensitivity.md

    >>> count(["yes", "no", "yes"], lambda row: row == "yes")
    Bounded(one number, ℓ1 ≤ 1, ℓ2² ≤ 1, ℓ∞ ≤ 1, of one row, add/remove; count)
    """
    relation = _relation(unit)
    if predicate is None:
        if relation is Neighbours.SUBSTITUTE:
            raise InvalidInput(
                "the number of rows is asked for under substitution",
                why="neighbouring databases then have the same size, so it is public and needs no noise",
                fix="use len(rows), pass a predicate, or a unit that is added or removed",
            )
        number = sum(1 for _ in _each(rows))
    else:
        _check_callable(predicate, "the predicate")
        number = sum(_holds(predicate, row) for row in _each(rows))
    return Bounded.derived(number, Sensitivity(1), unit, "count")


def counts(rows: Iterable[Any], predicates: Sequence[Predicate], *, unit: Unit = _ROW) -> Bounded:
    """How many rows fulfil each of m predicates, which may overlap in any way.

    A row on which a predicate raises does not fulfil it. Where no row can fulfil two of them,
    `histogram` asks the same for an m-th of the sensitivity.

    Guarantee: one unit moves each count by at most 1: ℓ1 ≤ m, ℓ2² ≤ m, ℓ∞ ≤ 1.
    Assumes: one element of `rows` is one unit; a predicate looks at one row only.
    Proof: docs/proofs/sensitivity.md

    >>> counts([31, 47, 68], [lambda age: age > 30, lambda age: age > 60])
    Bounded(2 cells, ℓ1 ≤ 2, ℓ2² ≤ 2, ℓ∞ ≤ 1, of one row, add/remove; counts)
    """
    _relation(unit)
    asked = _listed(predicates, "predicates")
    for predicate in asked:
        _check_callable(predicate, "a predicate")
    totals = [0] * len(asked)
    for row in _each(rows):
        for cell, predicate in enumerate(asked):
            totals[cell] += _holds(predicate, row)
    return Bounded.derived(totals, Sensitivity(len(asked), linf=1), unit, "counts")


def histogram(rows: Iterable[Any], categories: Sequence[Hashable], *, unit: Unit = _ROW) -> Bounded:
    """How many rows equal each category, in the order of the categories.

    The categories are public: a person lists them, also those that may turn out empty. A row that
    equals none of them, or cannot be compared with them, counts in no cell.

    Guarantee: a row is in at most one cell, so adding or removing one moves one cell by 1, and
    substituting one moves at most two cells, by 1 each (the only cell, where there is but one).
    Assumes: one element of `rows` is one unit; the categories were not taken from the rows.
    Proof: docs/proofs/sensitivity.md

    >>> histogram(["a", "b", "a", "x"], ["a", "b", "c"])
    Bounded(3 cells, ℓ1 ≤ 1, ℓ2² ≤ 1, ℓ∞ ≤ 1, of one row, add/remove; histogram)
    >>> histogram(["a", "b"], ["a", "b", "c"], unit=Unit.row(Neighbours.SUBSTITUTE)).sensitivity.l1
    Fraction(2, 1)
    """
    relation = _relation(unit)
    asked = _listed(categories, "categories")
    try:
        cells = {category: cell for cell, category in enumerate(asked)}
        # A category that does not equal itself, as NaN, would never be met.
        distinct = len(cells) == len(asked) and all(category == category for category in asked)  # noqa: PLR0124
    except Exception:  # noqa: BLE001 - hashing and comparing run the categories' own code
        distinct = False
    if not distinct:
        raise InvalidInput(
            "the categories are not distinct, hashable things that equal themselves",
            why="a row must fall into one cell at most",
            fix="list each category once, as strings or numbers other than NaN",
        )
    found = Counter(_cell(cells, row) for row in _each(rows))
    moved = min(len(asked), relation.histogram_distance)
    totals = [found[cell] for cell in range(len(asked))]
    return Bounded.derived(totals, Sensitivity(moved, linf=1), unit, "histogram")


def fraction(rows: Iterable[Any], predicate: Predicate, *, unit: Unit = _SUBSTITUTED) -> Bounded:
    """Which fraction of the n rows fulfil the predicate, exactly.

    A row on which the predicate raises does not fulfil it.

    Guarantee: one substituted unit moves it by at most 1/n.
    Assumes: one element of `rows` is one unit; the predicate looks at one row only; n is public,
    as it is under substitution. Where units come and go n is a secret, and a fraction is refused.
    Proof: docs/proofs/sensitivity.md

    >>> fraction(["yes", "no", "yes", "yes"], lambda row: row == "yes")
    Bounded(one number, ℓ1 ≤ 1/4, ℓ2² ≤ 1/16, ℓ∞ ≤ 1/4, of one row, substitute; fraction)
    """
    if _relation(unit) is Neighbours.ADD_REMOVE:
        raise Refused(
            "a fraction is asked for where units are added or removed",
            why="the number of rows is then a secret, and so would be the fraction's sensitivity",
            fix="release count(rows, predicate) and count(rows), and divide: that is post-processing",
        )
    _check_callable(predicate, "the predicate")
    fulfil = [_holds(predicate, row) for row in _each(rows)]
    if not fulfil:
        raise InvalidInput(
            "there are no rows",
            why="a fraction of nothing is no number",
            fix="ask for a fraction only where there is a row",
        )
    share = Fraction(sum(fulfil), len(fulfil))
    return Bounded.derived(share, Sensitivity(Fraction(1, len(fulfil))), unit, "fraction")


def linear(
    rows: Iterable[Any], weight: Callable[[Any], Any], low: Number, high: Number, *, unit: Unit = _ROW
) -> Bounded:
    """The sum of a weight of each row, clamped into the public bounds from `low` to `high`.

    Exact for ints and floats, a float being that very binary number; another rational is first
    rounded down to a grid on which every double lies. A row on which the weight raises, or is no
    finite number (True and False are 1 and 0), weighs 0, clamped like any other weight.

    Guarantee: one unit, added or removed, moves it by at most the larger of |low| and |high|;
    substituted, by at most high − low.
    Assumes: one element of `rows` is one unit; the weight looks at one row only; the bounds
    were not taken from the rows.
    Proof: docs/proofs/sensitivity.md

    >>> linear([12.5, 80.0, float("nan")], lambda cost: cost, 0, 50)
    Bounded(one number, ℓ1 ≤ 50, ℓ2² ≤ 2500, ℓ∞ ≤ 50, of one row, add/remove; linear)
    """
    relation = _relation(unit)
    _check_callable(weight, "the weight")
    lowest, highest = _bound(low, "low"), _bound(high, "high")
    moved = highest - lowest
    if moved >= 0 and relation is Neighbours.ADD_REMOVE:
        moved = max(abs(lowest), abs(highest))
    if moved <= 0:
        raise InvalidInput(
            "low is not below high",
            why="between such bounds there is no sum, or one that no row can move",
            fix="pass public bounds with low below high",
        )
    # Sums are of whole numbers over one public denominator: no row can make them grow longer.
    scale = math.lcm(_FINEST, lowest.denominator, highest.denominator)
    if scale.bit_length() > _MOST_SCALE_BITS:
        raise InvalidInput(
            "low and high have too many digits",
            why="every sum would have as many",
            fix="round the bounds outward to fewer digits",
        )
    floor, ceiling = int(lowest * scale), int(highest * scale)
    total = sum(min(max(_weighed(weight, row, scale), floor), ceiling) for row in _each(rows))
    return Bounded.derived(Fraction(total, scale), Sensitivity(moved), unit, "linear")


def _holds(predicate: Predicate, row: Any) -> bool:
    try:
        return bool(predicate(row))
    except KeyboardInterrupt:
        raise
    except BaseException:  # noqa: BLE001 - whatever a row makes it raise would tell about the row
        return False


def _cell(cells: Mapping[Hashable, int], row: Any) -> int | None:
    try:
        return cells.get(row)
    except KeyboardInterrupt:
        raise
    except BaseException:  # noqa: BLE001 - a row that cannot be hashed or compared is in no cell
        return None


def _weighed(weight: Callable[[Any], Any], row: Any, scale: int) -> int:
    """The weight in units of 1/scale, rounded down; 0 for what is no finite number."""
    try:
        given = weight(row)
        exact = exactly(int(given) if isinstance(given, (bool, np.bool_)) else given, "a weight")
    except KeyboardInterrupt:
        raise
    except BaseException:  # noqa: BLE001 - whatever a row makes it raise would tell about the row
        return 0
    return exact.numerator * scale // exact.denominator


def _bound(given: Number, name: str) -> Fraction:
    bound = rational(given, name)
    if abs(bound) > LARGEST:
        raise InvalidInput(
            f"{name} is beyond ±2^61",
            why="sums of such weights are too large to be released",
            fix=f"pass a smaller {name}, or scale the weights down by a public factor",
        )
    return bound


def _relation(unit: Unit) -> Neighbours:
    if not isinstance(unit, Unit):
        raise InvalidInput(
            f"the unit is of type {type(unit).__name__}",
            why="it must be known who is protected",
            fix="pass Unit.row(), or Unit.row(Neighbours.SUBSTITUTE)",
        )
    if unit.key is not None:
        raise Refused(
            f"the unit is one {unit.key}, and rows in memory have no such key",
            why="one unit could have many rows, and nobody would know how far it moves the answer",
            fix="pass one element for each unit, and say so with Unit.row()",
        )
    return unit.neighbours


def _check_callable(given: object, name: str) -> None:
    if not callable(given):
        raise InvalidInput(
            f"{name} is of type {type(given).__name__}",
            why="it is asked about each row",
            fix=f"pass {name} as a function of one row",
        )


def _listed(given: Any, name: str) -> list[Any]:
    if not isinstance(given, Sequence) or isinstance(given, (str, bytes)) or not given:
        raise InvalidInput(
            f"the {name} are not a list with something in it",
            why="each of them is one cell of the answer, whose shape is public",
            fix=f"pass the {name} as a list",
        )
    return list(given)


def _each(rows: Any) -> Iterator[Any]:
    """The rows one by one; what would iterate over something else (letters, columns) is refused."""
    if (
        isinstance(rows, Iterable)
        and not isinstance(rows, (str, bytes, Mapping))
        and not hasattr(rows, "columns")
    ):
        try:
            return iter(rows)
        except TypeError:  # an array without axes says that it iterates, and does not
            pass
    raise InvalidInput(
        f"the rows are of type {type(rows).__name__}",
        why="one element must be one unit, and going through this gives something else",
        fix="pass a list of rows, such as [row, row, …]",
    )
