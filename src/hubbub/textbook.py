"""Textbook queries on rows in memory, each with its proved sensitivity, and universes of small databases.

`count`, `counts`, `histogram`, `fraction` and `linear` take rows in memory; one element of `rows` is one
unit. They are total: no row can make them raise, because an error that depends on a row reveals something
about it. A row on which a predicate or a weight fails counts by a public rule.

Assumed throughout: a predicate or weight depends on its row alone and has no side effects, and iterating
over `rows` does not fail. Predicates, categories and bounds are public: never taken from the rows.

A `Universe` enumerates all small databases, for proofs by enumeration and for students.
"""

import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations_with_replacement
from typing import Any

import numpy as np

from hubbub.errors import InvalidInput, Refused, Unsupported
from hubbub.numbers import Number, parse_exact, parse_integer, parse_rational
from hubbub.sensitivity import MAX_MAGNITUDE, Bounded, Sensitivity
from hubbub.unit import Neighbours, Unit

__all__ = ["Database", "Universe", "count", "counts", "fraction", "histogram", "linear"]

Predicate = Callable[[Any], Any]

_ROW = Unit.row()
_SUBSTITUTED = Unit.row(Neighbours.SUBSTITUTE)

# Every double is a whole multiple of 2⁻¹⁰⁷⁴, and so are sums of doubles.
_DOUBLE_STEPS = 2**1074
_MAX_SCALE_BITS = 4096


def count(rows: Iterable[Any], predicate: Predicate | None = None, *, unit: Unit = _ROW) -> Bounded:
    """Count the rows, or the rows that fulfil the predicate.

    A row on which the predicate raises does not fulfil it.

    Args:
        rows: an iterable of rows, one per unit.
        predicate: a function of one row; if omitted, every row counts.
        unit: one row, added, removed or substituted.

    Guarantee: one unit moves it by at most 1, added, removed or substituted.
    Assumes: one element of `rows` is one unit; the predicate looks at one row only. Without a
    predicate the unit must be added or removed: under substitution the number of rows is public.
    Proof: docs/proofs/sensitivity.md

    >>> count(["yes", "no", "yes"], lambda row: row == "yes")
    Bounded(one number, ℓ1 ≤ 1, ℓ2 ≤ 1, ℓ∞ ≤ 1, of one row, add/remove; count)
    """
    relation = _check_unit(unit)
    if predicate is None:
        if relation is Neighbours.SUBSTITUTE:
            raise InvalidInput(
                "the number of rows is asked for under substitution",
                why="neighbouring databases then have the same size, so it is public",
                fix="use len(rows), pass a predicate, or a unit that is added or removed",
            )
        number = sum(1 for _ in _iterate(rows))
    else:
        _check_callable(predicate, "the predicate")
        number = sum(_holds(predicate, row) for row in _iterate(rows))
    return Bounded(number, Sensitivity(1), unit, "count")


def counts(rows: Iterable[Any], predicates: Sequence[Predicate], *, unit: Unit = _ROW) -> Bounded:
    """Count the rows that fulfil each of m predicates, which may overlap.

    A row on which a predicate raises does not fulfil it. Where no row can fulfil two of them,
    `histogram` has an m-th of the sensitivity.

    Args:
        rows: an iterable of rows, one per unit.
        predicates: functions of one row each.
        unit: one row, added, removed or substituted.

    Guarantee: one unit moves each count by at most 1: ℓ1 ≤ m, ℓ2² ≤ m, ℓ∞ ≤ 1.
    Assumes: one element of `rows` is one unit; a predicate looks at one row only.
    Proof: docs/proofs/sensitivity.md

    >>> counts([31, 47, 68], [lambda age: age > 30, lambda age: age > 60])
    Bounded(2 coordinates, ℓ1 ≤ 2, ℓ2 ≤ 1.41422, ℓ∞ ≤ 1, of one row, add/remove; counts)
    """
    _check_unit(unit)
    tests = _check_list(predicates, "predicates")
    for predicate in tests:
        _check_callable(predicate, "a predicate")
    totals = [0] * len(tests)
    for row in _iterate(rows):
        for cell, predicate in enumerate(tests):
            totals[cell] += _holds(predicate, row)
    return Bounded(totals, Sensitivity(len(tests), linf=1), unit, "counts")


def histogram(rows: Iterable[Any], categories: Sequence[Hashable], *, unit: Unit = _ROW) -> Bounded:
    """Count the rows that equal each category, in the order of the categories.

    The categories are public: a person lists them, also those that may turn out empty. A row that
    equals none of them, or cannot be compared with them, counts in no cell.

    Args:
        rows: an iterable of rows, one per unit.
        categories: the values to count, each once.
        unit: one row, added, removed or substituted.

    Guarantee: a row is in at most one cell, so adding or removing one moves one cell by 1, and
    substituting one moves at most two cells, by 1 each (the only cell, where there is but one).
    Assumes: one element of `rows` is one unit; the categories were not taken from the rows.
    Proof: docs/proofs/sensitivity.md

    >>> histogram(["a", "b", "a", "x"], ["a", "b", "c"])
    Bounded(3 coordinates, ℓ1 ≤ 1, ℓ2 ≤ 1, ℓ∞ ≤ 1, of one row, add/remove; histogram)
    >>> histogram(["a", "b"], ["a", "b", "c"], unit=Unit.row(Neighbours.SUBSTITUTE)).sensitivity.l1
    Fraction(2, 1)
    """
    relation = _check_unit(unit)
    domain = _check_list(categories, "categories")
    try:
        cells = {category: cell for cell, category in enumerate(domain)}
        # A category that does not equal itself, as NaN, would never be met.
        distinct = len(cells) == len(domain) and all(category == category for category in domain)  # noqa: PLR0124
    except Exception:  # noqa: BLE001 - hashing and comparing run the categories' own code
        distinct = False
    if not distinct:
        raise InvalidInput(
            "the categories are not distinct, hashable things that equal themselves",
            why="a row must fall into one cell at most",
            fix="list each category once, as strings or numbers other than NaN",
        )
    tally = Counter(_cell(cells, row) for row in _iterate(rows))
    moved = min(len(domain), relation.histogram_distance)
    totals = [tally[cell] for cell in range(len(domain))]
    return Bounded(totals, Sensitivity(moved, linf=1), unit, "histogram")


def fraction(rows: Iterable[Any], predicate: Predicate, *, unit: Unit = _SUBSTITUTED) -> Bounded:
    """Return the exact fraction of the n rows that fulfil the predicate.

    A row on which the predicate raises does not fulfil it.

    Args:
        rows: an iterable of rows, one per unit.
        predicate: a function of one row.
        unit: one row, substituted.

    Guarantee: one substituted unit moves it by at most 1/n.
    Assumes: one element of `rows` is one unit; the predicate looks at one row only; n is public,
    as it is under substitution. Where units come and go n is a secret, and a fraction is refused.
    Proof: docs/proofs/sensitivity.md

    >>> fraction(["yes", "no", "yes", "yes"], lambda row: row == "yes")
    Bounded(one number, ℓ1 ≤ 0.25, ℓ2 ≤ 0.25, ℓ∞ ≤ 0.25, of one row, substitute; fraction)
    """
    if _check_unit(unit) is Neighbours.ADD_REMOVE:
        raise Refused(
            "a fraction is asked for where units are added or removed",
            why="the number of rows is then private, and so is the sensitivity of the fraction",
            fix="release count(rows, predicate) and count(rows), and divide: that is post-processing",
        )
    _check_callable(predicate, "the predicate")
    fulfil = [_holds(predicate, row) for row in _iterate(rows)]
    if not fulfil:
        raise InvalidInput(
            "there are no rows",
            why="a fraction of no rows is undefined",
            fix="pass one row or more",
        )
    share = Fraction(sum(fulfil), len(fulfil))
    return Bounded(share, Sensitivity(Fraction(1, len(fulfil))), unit, "fraction")


def linear(
    rows: Iterable[Any], weight: Callable[[Any], Any], low: Number, high: Number, *, unit: Unit = _ROW
) -> Bounded:
    """Sum a weight of each row, clamped to the public bounds `low` and `high`.

    Exact for ints and floats, a float being that very binary number; another rational is first
    rounded down to a grid on which every double lies. A row on which the weight raises, or is no
    finite number (True and False are 1 and 0), weighs 0, clamped like any other weight.

    Args:
        rows: an iterable of rows, one per unit.
        weight: a function of one row that returns a number.
        low: the lower bound of a weight.
        high: the upper bound of a weight.
        unit: one row, added, removed or substituted.

    Guarantee: one unit, added or removed, moves it by at most the larger of |low| and |high|;
    substituted, by at most high − low.
    Assumes: one element of `rows` is one unit; the weight looks at one row only; the bounds
    were not taken from the rows.
    Proof: docs/proofs/sensitivity.md

    >>> linear([12.5, 80.0, float("nan")], lambda cost: cost, 0, 50)
    Bounded(one number, ℓ1 ≤ 50, ℓ2 ≤ 50, ℓ∞ ≤ 50, of one row, add/remove; linear)
    """
    relation = _check_unit(unit)
    _check_callable(weight, "the weight")
    lowest, highest = _parse_bound(low, "low"), _parse_bound(high, "high")
    moved = highest - lowest
    if moved >= 0 and relation is Neighbours.ADD_REMOVE:
        moved = max(abs(lowest), abs(highest))
    if moved <= 0:
        raise InvalidInput(
            "low is not below high",
            why="the clamped sum would be constant or undefined",
            fix="pass public bounds with low below high",
        )
    # Sums are of whole numbers over one public denominator: no row can make them grow longer.
    scale = math.lcm(_DOUBLE_STEPS, lowest.denominator, highest.denominator)
    if scale.bit_length() > _MAX_SCALE_BITS:
        raise InvalidInput(
            "low and high have too many digits",
            why="every sum would need as many digits",
            fix="round the bounds outward to fewer digits",
        )
    floor, ceiling = int(lowest * scale), int(highest * scale)
    total = sum(min(max(_weigh(weight, row, scale), floor), ceiling) for row in _iterate(rows))
    return Bounded(Fraction(total, scale), Sensitivity(moved), unit, "linear")


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


def _weigh(weight: Callable[[Any], Any], row: Any, scale: int) -> int:
    """The weight in units of 1/scale, rounded down; 0 for what is no finite number."""
    try:
        value = weight(row)
        exact = parse_exact(int(value) if isinstance(value, (bool, np.bool_)) else value, "a weight")
    except KeyboardInterrupt:
        raise
    except BaseException:  # noqa: BLE001 - whatever a row makes it raise would tell about the row
        return 0
    return exact.numerator * scale // exact.denominator


def _parse_bound(value: Number, name: str) -> Fraction:
    bound = parse_rational(value, name)
    if abs(bound) > MAX_MAGNITUDE:
        raise InvalidInput(
            f"{name} is beyond ±2^61",
            why="sums of such weights are too large to be released",
            fix=f"pass a smaller {name}, or scale the weights down by a public factor",
        )
    return bound


def _check_unit(unit: Unit) -> Neighbours:
    if not isinstance(unit, Unit):
        raise InvalidInput(
            f"the unit is of type {type(unit).__name__}",
            why="it defines who is protected",
            fix="pass Unit.row(), or Unit.row(Neighbours.SUBSTITUTE)",
        )
    if unit.key is not None:
        raise Refused(
            f"the unit is one {unit.key}, and rows in memory have no such key",
            why="one unit could have many rows, so the sensitivity would be unknown",
            fix="pass one element per unit, with Unit.row()",
        )
    return unit.neighbours


def _check_callable(function: object, name: str) -> None:
    if not callable(function):
        raise InvalidInput(
            f"{name} is of type {type(function).__name__}",
            why="it is called with each row",
            fix=f"pass {name} as a function of one row",
        )


def _check_list(items: Any, name: str) -> list[Any]:
    if not isinstance(items, Sequence) or isinstance(items, (str, bytes)) or not items:
        raise InvalidInput(
            f"the {name} are not a non-empty list",
            why="each of them is one coordinate of the answer, and the shape is public",
            fix=f"pass the {name} as a list",
        )
    return list(items)


def _iterate(rows: Any) -> Iterator[Any]:
    """Iterate over the rows; refuse values that iterate over letters or columns instead."""
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
        why="one element must be one unit, and iterating over this type gives something else",
        fix="pass a list of rows, such as [row, row, …]",
    )


# Universes. Over a finite universe of possible rows a database is a histogram. With a bound on its size
# there are finitely many, so that a claim about all neighbouring databases (a sensitivity, a probability
# ratio) can be checked on every pair, in exact arithmetic.

Database = tuple[int, ...]
"""A histogram: the count of each element, in the order of the universe's elements."""

_MAX_DATABASES = 2_000_000


@dataclass(frozen=True, init=False)
class Universe:
    """All databases of at most `max_rows` rows, each row one of the distinct `elements`.

    >>> answers = Universe(["yes", "no"], max_rows=2)
    >>> list(answers.databases())
    [(0, 0), (1, 0), (0, 1), (2, 0), (1, 1), (0, 2)]
    >>> print(answers.sensitivity(lambda x: x, Neighbours.SUBSTITUTE))
    ℓ1 ≤ 2, ℓ2 ≤ 1.41422, ℓ∞ ≤ 1
    """

    elements: tuple[Hashable, ...]
    max_rows: int

    def __init__(self, elements: Sequence[Hashable], max_rows: int) -> None:
        try:
            listed = tuple(elements)
            distinct = len(set(listed)) == len(listed)
        except TypeError:
            distinct = False
        if not distinct or not listed:
            raise InvalidInput(
                "the elements are not a list of distinct, hashable things",
                why="a histogram has one cell per possible row",
                fix='pass each possible row once, such as ["yes", "no"]',
            )
        size = parse_integer(max_rows, "max_rows")
        if not _can_enumerate(len(listed), size):
            raise Unsupported(
                f"this universe has more than {_MAX_DATABASES} databases",
                why="enumerating them would take too long",
                fix="pass fewer elements or a smaller max_rows; small universes refute false claims as well",
            )
        object.__setattr__(self, "elements", listed)
        object.__setattr__(self, "max_rows", size)

    def databases(self) -> Iterator[Database]:
        """Iterate over all databases, the smaller ones first."""
        for size in range(self.max_rows + 1):
            for chosen in combinations_with_replacement(range(len(self.elements)), size):
                counts = [0] * len(self.elements)
                for element in chosen:
                    counts[element] += 1
                yield tuple(counts)

    def rows(self, x: Sequence[int]) -> list[Hashable]:
        """Return the database as a list of rows.

        >>> Universe("ab", max_rows=3).rows((2, 1))
        ['a', 'a', 'b']
        """
        return [
            element
            for element, count in zip(self.elements, self._check_member(x), strict=True)
            for _ in range(count)
        ]

    def distance(self, x: Sequence[int], y: Sequence[int]) -> int:
        """Return ‖x − y‖₁, the number of rows in which two databases differ; a substitution counts twice.

        >>> Universe("ab", max_rows=2).distance((2, 0), (1, 1))
        2
        """
        return sum(abs(a - b) for a, b in zip(self._check_member(x), self._check_member(y), strict=True))

    def neighbours(self, x: Sequence[int], relation: Neighbours) -> Iterator[Database]:
        """Iterate over the neighbours of `x` in this universe, for a unit of one row.

        >>> list(Universe("ab", max_rows=2).neighbours((1, 0), Neighbours.ADD_REMOVE))
        [(0, 0), (2, 0), (1, 1)]
        >>> list(Universe("ab", max_rows=2).neighbours((1, 1), Neighbours.SUBSTITUTE))
        [(0, 2), (2, 0)]
        """
        _check_relation(relation)
        return self._neighbours(self._check_member(x), relation)

    def pairs(self, relation: Neighbours) -> Iterator[tuple[Database, Database]]:
        """Iterate over all ordered pairs of neighbouring databases.

        >>> len(list(Universe("ab", max_rows=2).pairs(Neighbours.ADD_REMOVE)))
        12
        """
        _check_relation(relation)
        return ((x, y) for x in self.databases() for y in self._neighbours(x, relation))

    def sensitivity(self, f: Callable[[Database], Any], relation: Neighbours) -> Sensitivity:
        """Return the exact sensitivity of f, which maps a histogram to a number or a vector.

        The largest distance over all pairs in ℓ1, ℓ2 and ℓ∞ each. Floats are read as the binary numbers
        that they are. The sensitivity on a larger universe is at least as large.

        >>> small = Universe([1, 5], max_rows=3)
        >>> print(small.sensitivity(lambda x: sum(small.rows(x)), Neighbours.ADD_REMOVE))
        ℓ1 ≤ 5, ℓ2 ≤ 5, ℓ∞ ≤ 5
        """
        answers: dict[Database, list[Fraction]] = {}
        l1 = l2_squared = linf = Fraction(0)
        for x, y in self.pairs(relation):
            for database in (x, y):
                if database not in answers:
                    answers[database] = _to_fractions(f(database))
            if len(answers[x]) != len(answers[y]):
                raise InvalidInput(
                    "f answers with vectors of several lengths",
                    why="they have no distance, and the length would reveal something about the data",
                    fix="return vectors of one length",
                )
            if x < y:  # the other order has the same distance
                moves = [abs(a - b) for a, b in zip(answers[x], answers[y], strict=True)]
                l1 = max(l1, sum(moves, Fraction(0)))
                l2_squared = max(l2_squared, sum((move * move for move in moves), Fraction(0)))
                linf = max(linf, *moves, Fraction(0))
        return Sensitivity(l1, l2_squared=l2_squared, linf=linf)

    def find_distinguishing_pair(
        self, f: Callable[[Database], Any], relation: Neighbours
    ) -> tuple[Database, Database] | None:
        """Return two neighbouring databases that the deterministic f distinguishes, or None.

        Why privacy needs randomness: let f(x) ≠ f(y) for any two databases. Walk from x to y one
        unit at a time; each step is between neighbours, and at some step f must change. Whoever
        knows all rows but that one reads it off the answer, with certainty. So a deterministic f
        hides one unit only if it is constant wherever such walks lead: under substitution among
        the databases of one size, under adding and removing among all.

        f's answers are compared with ==.

        >>> Universe("ab", max_rows=2).find_distinguishing_pair(lambda x: x[0] >= 2, Neighbours.ADD_REMOVE)
        ((1, 0), (2, 0))
        >>> Universe("ab", max_rows=2).find_distinguishing_pair(sum, Neighbours.SUBSTITUTE) is None
        True
        """
        answers: dict[Database, Any] = {}
        for x, y in self.pairs(relation):
            for database in (x, y):
                if database not in answers:
                    answer = f(database)
                    answers[database] = answer.tolist() if isinstance(answer, np.ndarray) else answer
            if answers[x] != answers[y]:
                return x, y
        return None

    def _neighbours(self, x: Database, relation: Neighbours) -> Iterator[Database]:
        cells = range(len(x))
        removable = [cell for cell in cells if x[cell]]
        if relation is Neighbours.SUBSTITUTE:
            for old in removable:
                yield from (_add_rows(_add_rows(x, old, -1), new, 1) for new in cells if new != old)
        else:
            yield from (_add_rows(x, old, -1) for old in removable)
            if sum(x) < self.max_rows:
                yield from (_add_rows(x, new, 1) for new in cells)

    def _check_member(self, x: Sequence[int]) -> Database:
        """The histogram as a tuple of our own, or a clear error that does not show it."""
        try:
            counts = tuple(parse_integer(count, "a count", minimum=0) for count in x)
            belongs = len(counts) == len(self.elements) and sum(counts) <= self.max_rows
        except (InvalidInput, TypeError):
            belongs = False
        if not belongs:
            raise InvalidInput(
                "this is not a database of this universe",
                why=f"one is a histogram of {len(self.elements)} counts, in all at most {self.max_rows}",
                fix="pass one of universe.databases()",
            )
        return counts


def _can_enumerate(elements: int, max_rows: int) -> bool:
    """Return whether all histograms can be enumerated: there are (elements + max_rows choose max_rows)."""
    databases = 1
    # Up to the middle a binomial over k is at least 2^k, so that even a huge `max_rows` stops soon.
    for k in range(1, min(elements, max_rows) + 1):
        databases = databases * (elements + max_rows - k + 1) // k
        if databases > _MAX_DATABASES:
            return False
    return True


def _add_rows(x: Database, cell: int, by: int) -> Database:
    return (*x[:cell], x[cell] + by, *x[cell + 1 :])


def _to_fractions(answer: Any) -> list[Fraction]:
    if isinstance(answer, np.ndarray):
        answer = answer.tolist()
    numbers = answer if isinstance(answer, (list, tuple)) else [answer]
    return [parse_exact(number, "an answer of f") for number in numbers]


def _check_relation(relation: Neighbours) -> None:
    if not isinstance(relation, Neighbours):
        raise InvalidInput(
            f"the relation is of type {type(relation).__name__}",
            why="it defines which databases are neighbours",
            fix="pass Neighbours.ADD_REMOVE or Neighbours.SUBSTITUTE",
        )
