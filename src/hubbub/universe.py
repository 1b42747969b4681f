"""Every database there is, where there are few: for proofs by enumeration, and for students.

Over a finite universe of possible rows a database is a histogram: how often each element occurs.
With a bound on its size there are finitely many, so that a claim about all neighbouring databases
(a sensitivity, a probability ratio) can be checked on every pair, in exact arithmetic.
"""

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations_with_replacement
from typing import Any

import numpy as np

from hubbub.bounded import Sensitivity
from hubbub.errors import InvalidInput, Unsupported
from hubbub.rational import exactly, whole
from hubbub.unit import Neighbours

__all__ = ["Database", "Universe"]

Database = tuple[int, ...]
"""A histogram: the count of each element, in the order of the universe's elements."""

_MOST_DATABASES = 2_000_000


@dataclass(frozen=True, init=False)
class Universe:
    """All databases of at most `most` rows, each row one of the distinct `elements`.

    >>> answers = Universe(["yes", "no"], most=2)
    >>> list(answers.databases())
    [(0, 0), (1, 0), (0, 1), (2, 0), (1, 1), (0, 2)]
    >>> print(answers.sensitivity(lambda x: x, Neighbours.SUBSTITUTE))
    ℓ1 ≤ 2, ℓ2² ≤ 2, ℓ∞ ≤ 1
    """

    elements: tuple[Hashable, ...]
    most: int

    def __init__(self, elements: Sequence[Hashable], most: int) -> None:
        try:
            given = tuple(elements)
            distinct = len(set(given)) == len(given)
        except TypeError:
            distinct = False
        if not distinct or not given:
            raise InvalidInput(
                "the elements are not a list of distinct, hashable things",
                why="a histogram has one cell for each possible row, and at least one",
                fix='pass each possible row once, such as ["yes", "no"]',
            )
        size = whole(most, "most")
        if not _few(len(given), size):
            raise Unsupported(
                f"this universe has more than {_MOST_DATABASES} databases",
                why="going through all of them would take too long",
                fix="pass fewer elements or a smaller most; small universes break false claims just as well",
            )
        object.__setattr__(self, "elements", given)
        object.__setattr__(self, "most", size)

    def databases(self) -> Iterator[Database]:
        """Every database, the smaller ones first."""
        for size in range(self.most + 1):
            for chosen in combinations_with_replacement(range(len(self.elements)), size):
                counts = [0] * len(self.elements)
                for element in chosen:
                    counts[element] += 1
                yield tuple(counts)

    def rows(self, x: Sequence[int]) -> list[Hashable]:
        """The database as a list of rows.

        >>> Universe("ab", most=3).rows((2, 1))
        ['a', 'a', 'b']
        """
        return [
            element
            for element, count in zip(self.elements, self._member(x), strict=True)
            for _ in range(count)
        ]

    def distance(self, x: Sequence[int], y: Sequence[int]) -> int:
        """‖x − y‖₁: in how many rows two databases differ, one of each substitution counted on both sides.

        >>> Universe("ab", most=2).distance((2, 0), (1, 1))
        2
        """
        return sum(abs(a - b) for a, b in zip(self._member(x), self._member(y), strict=True))

    def neighbours(self, x: Sequence[int], relation: Neighbours) -> Iterator[Database]:
        """The databases of this universe that one unit with one row makes of `x`, itself left out.

        >>> list(Universe("ab", most=2).neighbours((1, 0), Neighbours.ADD_REMOVE))
        [(0, 0), (2, 0), (1, 1)]
        >>> list(Universe("ab", most=2).neighbours((1, 1), Neighbours.SUBSTITUTE))
        [(0, 2), (2, 0)]
        """
        _check_relation(relation)
        return self._neighbours(self._member(x), relation)

    def pairs(self, relation: Neighbours) -> Iterator[tuple[Database, Database]]:
        """Every ordered pair of neighbouring databases: what "for all neighbours x, y" ranges over.

        >>> len(list(Universe("ab", most=2).pairs(Neighbours.ADD_REMOVE)))
        12
        """
        _check_relation(relation)
        return ((x, y) for x in self.databases() for y in self._neighbours(x, relation))

    def sensitivity(self, f: Callable[[Database], Any], relation: Neighbours) -> Sensitivity:
        """How far f, a number or a vector of numbers for each histogram, moves between neighbours.

        In ℓ1, ℓ2 and ℓ∞ each, the largest over all pairs, exact: floats are taken as the binary
        numbers they are. It is the sensitivity on this universe: what any larger one attains at least.

        >>> small = Universe([1, 5], most=3)
        >>> print(small.sensitivity(lambda x: sum(small.rows(x)), Neighbours.ADD_REMOVE))
        ℓ1 ≤ 5, ℓ2² ≤ 25, ℓ∞ ≤ 5
        """
        answers: dict[Database, list[Fraction]] = {}
        l1 = l2_squared = linf = Fraction(0)
        for x, y in self.pairs(relation):
            for database in (x, y):
                if database not in answers:
                    answers[database] = _vector(f(database))
            if len(answers[x]) != len(answers[y]):
                raise InvalidInput(
                    "f answers with vectors of several lengths",
                    why="they have no distance, and a length that depends on the data tells it",
                    fix="let f give as many numbers for every database",
                )
            if x < y:  # the other order has the same distance
                moves = [abs(a - b) for a, b in zip(answers[x], answers[y], strict=True)]
                l1 = max(l1, sum(moves, Fraction(0)))
                l2_squared = max(l2_squared, sum((move * move for move in moves), Fraction(0)))
                linf = max(linf, *moves, Fraction(0))
        return Sensitivity(l1, l2_squared=l2_squared, linf=linf)

    def tell_apart(
        self, f: Callable[[Database], Any], relation: Neighbours
    ) -> tuple[Database, Database] | None:
        """Two neighbouring databases that the deterministic f tells apart, or None if it tells nothing.

        Why privacy needs randomness: let f(x) ≠ f(y) for any two databases. Walk from x to y one
        unit at a time; each step is between neighbours, and at some step f must change. Whoever
        knows all rows but that one reads it off the answer, with certainty. So a deterministic f
        hides one unit only if it is constant wherever such walks lead: under substitution among
        the databases of one size, under adding and removing among all.

        f's answers are compared with ==.

        >>> Universe("ab", most=2).tell_apart(lambda x: x[0] >= 2, Neighbours.ADD_REMOVE)
        ((1, 0), (2, 0))
        >>> Universe("ab", most=2).tell_apart(sum, Neighbours.SUBSTITUTE) is None
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
                yield from (_moved(_moved(x, old, -1), new, 1) for new in cells if new != old)
        else:
            yield from (_moved(x, old, -1) for old in removable)
            if sum(x) < self.most:
                yield from (_moved(x, new, 1) for new in cells)

    def _member(self, x: Sequence[int]) -> Database:
        """The histogram as a tuple of our own, or a clear error that does not show it."""
        try:
            counts = tuple(whole(count, "a count", least=0) for count in x)
            belongs = len(counts) == len(self.elements) and sum(counts) <= self.most
        except (InvalidInput, TypeError):
            belongs = False
        if not belongs:
            raise InvalidInput(
                "this is not a database of this universe",
                why=f"one is a histogram of {len(self.elements)} counts, in all at most {self.most}",
                fix="pass one of universe.databases()",
            )
        return counts


def _few(elements: int, most: int) -> bool:
    """Whether the histograms, elements + most over most in number, can all be gone through."""
    databases = 1
    # Up to the middle a binomial over k is at least 2^k, so that even an absurd `most` stops soon.
    for k in range(1, min(elements, most) + 1):
        databases = databases * (elements + most - k + 1) // k
        if databases > _MOST_DATABASES:
            return False
    return True


def _moved(x: Database, cell: int, by: int) -> Database:
    return (*x[:cell], x[cell] + by, *x[cell + 1 :])


def _vector(answer: Any) -> list[Fraction]:
    if isinstance(answer, np.ndarray):
        answer = answer.tolist()
    numbers = answer if isinstance(answer, (list, tuple)) else [answer]
    return [exactly(number, "an answer of f") for number in numbers]


def _check_relation(relation: Neighbours) -> None:
    if not isinstance(relation, Neighbours):
        raise InvalidInput(
            f"the relation is of type {type(relation).__name__}",
            why="it must be known which databases are neighbours",
            fix="pass Neighbours.ADD_REMOVE or Neighbours.SUBSTITUTE",
        )
