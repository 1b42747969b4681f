"""What may be concluded from counts, with less than one false alarm in a billion.

Chernoff: Pr[Bin(n, p) ≥ k] ≤ e^(−n·KL(k/n‖p)) where k/n ≥ p, and the same below. It holds for every n,
so a bound built from it as Clopper and Pearson build theirs is never too narrow. The same inequality,
with the mutant's probability for p, says how rarely the mutant is missed.
"""

import math
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

RATE = 1e-9
"""The most that false alarms, and that missed mutants, may happen."""

Event = Callable[[Any], Any]
"""Which of the draws (an array) belong to it."""


def divergence(a: float, p: float) -> float:
    """KL(a‖p) of two coins.

    >>> divergence(0.5, 0.5), divergence(1, 0.5) == math.log(2), divergence(0.5, 0)
    (0.0, True, inf)
    """
    return sum(
        0.0 if x == 0 else math.inf if y <= 0 else x * math.log(x / y) for x, y in ((a, p), (1 - a, 1 - p))
    )


def chance(hits: float, n: int, p: float) -> float:
    """At most how likely Bin(n, p) is to lie on the far side of `hits`, seen from its mean."""
    return math.exp(-n * divergence(hits / n, p))


def bounds(hits: int, n: int, rate: float) -> tuple[float, float]:
    """Where the probability lies, wrong at either end with at most `rate`.

    >>> low, high = bounds(50, 100, 1e-9)
    >>> 0.2 < low < 0.5 < high < 0.8
    True
    """
    seen = hits / n
    return _crossing(0.0, seen, hits, n, rate), _crossing(1.0, seen, hits, n, rate)


def _crossing(outside: float, inside: float, hits: int, n: int, rate: float) -> float:
    if outside == inside:
        return outside
    for _ in range(60):
        middle = (outside + inside) / 2
        if chance(hits, n, middle) < rate:
            outside = middle
        else:
            inside = middle
    return outside


class Releases(NamedTuple):
    """Something that adds noise to one number: n independent releases of x, and what they promise."""

    draw: Callable[[Any, int], Any]
    epsilon: float
    delta: float = 0.0


@dataclass(frozen=True)
class Audit:
    """Whether an event is likelier at `x` than e^ε times at the neighbour `y`, plus δ: beyond doubt.

    False alarms: two bounds, each wrong with RATE/2.
    """

    x: Any
    y: Any
    event: Event
    n: int
    weak: tuple[float, float]
    """The event's probability in the mutant: at least at x, at most at y."""

    def finds(self, target: Releases) -> bool:
        return self._parted(
            *(int(np.sum(self.event(target.draw(v, self.n)))) for v in (self.x, self.y)), target
        )

    def hardly_misses(self, target: Releases) -> bool:
        """Whether the mutant is found with as few hits at x and as many at y as come but for RATE."""
        few = math.floor(self.n * quantile(self.weak[0], self.n, 0.0))
        many = math.ceil(self.n * quantile(self.weak[1], self.n, 1.0))
        return self._parted(few, many, target)

    def _parted(self, at_x: int, at_y: int, target: Releases) -> bool:
        least, most = bounds(at_x, self.n, RATE / 2)[0], bounds(at_y, self.n, RATE / 2)[1]
        return least > math.exp(target.epsilon) * most + target.delta


def quantile(p: float, n: int, end: float) -> float:
    """The frequency, towards `end`, beyond which Bin(n, p) goes with less than RATE/2."""
    near, far = p, end
    for _ in range(60):
        middle = (near + far) / 2
        if chance(middle * n, n, p) > RATE / 2:
            near = middle
        else:
            far = middle
    return far


@dataclass(frozen=True)
class Fit:
    """Whether draws follow a law on integers: no event is so rare or so frequent by chance.

    False alarms: RATE, shared by the events and their two sides.
    """

    law: Mapping[int, float]
    other: Mapping[int, float]
    """The mutant's law."""
    events: tuple[Event, ...]
    n: int

    def finds(self, draw: Callable[[int], Any]) -> bool:
        draws = np.asarray(draw(self.n))
        assert draws.shape == (self.n,)
        return any(
            chance(np.sum(event(draws)), self.n, p) < self._level
            for event, p in zip(self.events, self._expected(self.law), strict=True)
        )

    def hardly_misses(self, _: object) -> bool:
        """Whether some event alone finds the mutant but for RATE."""
        return any(
            self._parts(p, q)
            for p, q in zip(self._expected(self.law), self._expected(self.other), strict=True)
        )

    @property
    def _level(self) -> float:
        return RATE / (2 * len(self.events))

    def _expected(self, law: Mapping[int, float]) -> list[float]:
        values = np.fromiter(law.keys(), dtype=np.int64)
        weights = np.fromiter(law.values(), dtype=np.float64)
        return [float(weights[event(values)].sum()) for event in self.events]

    def _parts(self, p: float, q: float) -> bool:
        """Whether some number of hits is too far for p, and q falls short of it with less than RATE."""
        low, high = sorted((math.ceil(self.n * p), math.floor(self.n * q)))
        between = np.linspace(low, high, 1000)
        return any(chance(k, self.n, p) < self._level and chance(k, self.n, q) < RATE for k in between)


def normalised(weight: Callable[[int], float], values: range) -> dict[int, float]:
    """The law proportional to `weight`; what lies outside `values` must not matter."""
    weights = {value: weight(value) for value in values}
    total = math.fsum(weights.values())
    return {value: w / total for value, w in weights.items()}


def differ(first: list[Any], second: list[Any]) -> bool:
    """Whether two samples of one kind of number come from two laws: by what lies above or below their median.

    False alarms: RATE, shared by two events of two bounds each.
    """
    middle = sorted([*first, *second])[(len(first) + len(second)) // 2]
    events: tuple[Event, ...] = (lambda value: value > middle, lambda value: value < middle)
    for event in events:
        one, other = (bounds(sum(map(event, s)), len(s), RATE / 8) for s in (first, second))
        if one[0] > other[1] or other[0] > one[1]:
            return True
    return False


def outcome(call: Callable[[], Any]) -> tuple[str, str] | None:
    """What is seen of a call that fails: the kind of error and its text; None where it does not."""
    try:
        call()
    except Exception:
        kind, error, _ = sys.exc_info()
        return kind.__name__, str(error)
    return None
