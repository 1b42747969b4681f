"""Which engine answers: closed forms, the Fourier integral, the lattice, or Rényi divergences.

The first that can certify an answer gives it. The last always can, but it is looser, and its name says so.

Proof: docs/proofs/engine.md
"""

import contextlib
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from hubbub.accounting import dominating_pairs
from hubbub.accounting.closed_form import Closed, ClosedSample
from hubbub.accounting.events import (
    BoundedRange,
    DiscreteGaussian,
    DiscreteLaplace,
    Gaussian,
    Laplace,
    Pure,
    RandomizedResponse,
    Subsampled,
)
from hubbub.accounting.float_bounds import Uncertified, above, below
from hubbub.accounting.renyi import Divergence, Parts
from hubbub.accounting.subsampled_gaussian import SampledGaussians
from hubbub.noise.enclosures import exp_neg, log
from hubbub.numbers import round_up

if TYPE_CHECKING:
    from hubbub.accounting.fourier import Integral
    from hubbub.accounting.pld_refinement import Composed

__all__ = ["CLOSED", "FOURIER", "LATTICE", "RENYI", "Bounds", "Composition"]

CLOSED, FOURIER, LATTICE, RENYI = "closed form", "Fourier integral", "lattice", "Rényi bound"

_NO_ANSWER = (Uncertified, ArithmeticError, ValueError, MemoryError)
_BITS = 512
_TINY = 1e-290
_FAIR = 0.99
"""Where the bounds are further apart than this share, divergences are asked, too."""
_CLOSE = 1e-6
"""Where the first engine's bounds are further apart, relatively, the next one is asked, too."""
_ATTAINED = (Pure, Laplace, DiscreteLaplace, RandomizedResponse)
"""The largest loss of these occurs."""


class Bounds(tuple[float, float]):  # noqa: SLOT001 - a tuple cannot have both slots and a name
    """A certified lower and upper bound, and the engine that found the upper one.

    >>> low, high = Bounds(1.0, 2.0, "lattice")
    >>> Bounds(1.0, 2.0, "lattice").method
    'lattice'
    """

    method: str

    def __new__(cls, lower: float, upper: float, method: str) -> Self:
        """Both, and how they were found."""
        bounds = super().__new__(cls, (lower, upper))
        bounds.method = method
        return bounds

    @property
    def lower(self) -> float:
        """Not above the truth."""
        return self[0]

    @property
    def upper(self) -> float:
        """Not below the truth."""
        return self[1]

    def __repr__(self) -> str:
        return f"Bounds(lower={self.lower!r}, upper={self.upper!r}, method={self.method!r})"


@dataclass(frozen=True)
class Composition:
    """Parts that were fixed beforehand, each so many times."""

    parts: Parts

    @cached_property
    def told(self) -> tuple[Fraction, Fraction]:
        """The chance that any part tells everything, between two bounds; they are equal if it is short."""
        telling = [(part.told, count) for part, count in self.parts if part.told]
        if len(telling) == 1 and telling[0][1] == 1:
            return telling[0][0], telling[0][0]
        low = high = Fraction(1)
        for chance, count in telling:
            least, most = _power(1 - chance, count)
            low, high = _rounded(low * least, high * most)
        return 1 - high, 1 - low

    @cached_property
    def most(self) -> Fraction | None:
        """The largest loss there can be, where nothing is told; None where there is none."""
        total = Fraction(0)
        for part, count in self.parts:
            if part.most is None:
                return None
            total += count * part.most
        return total

    def delta(self, epsilon: Fraction, *, lower: bool = True) -> Bounds:
        """Bounds of δ at ε ≥ 0."""
        if not self._is_sharp:
            found = self._found_delta(epsilon, lower=False)
            return Bounds(self._sharp.delta(epsilon).lower if lower else 0.0, found.upper, found.method)
        return self._found_delta(epsilon, lower=lower)

    def epsilon(self, delta: Fraction, *, lower: bool = True) -> Bounds:
        """Bounds of the least ε ≥ 0 that holds with δ; infinite where none does."""
        if not self._is_sharp:
            found = self._found_epsilon(delta, lower=False)
            low = self._sharp.epsilon(delta).lower if lower else 0.0
            return Bounds(min(low, found.upper), found.upper, found.method)
        return self._found_epsilon(delta, lower=lower)

    @property
    def _is_sharp(self) -> bool:
        return all(part.sharp for part, _ in self.parts)

    @property
    def _sharp(self) -> "Composition":
        """Without what is only a bound of something better."""
        return Composition(tuple((part, n) for part, n in self.parts if part.sharp))

    def _found_delta(self, epsilon: Fraction, *, lower: bool) -> Bounds:
        told = self.told
        if self.most is not None and epsilon >= self.most:
            return Bounds(below(told[0]), round_up(told[1]), CLOSED)
        if self._closed:
            low, high, method = self._closed.below(epsilon), self._closed.above(epsilon), CLOSED
        elif single := self._single_laplace:
            (low, high), method = _laplace_delta(single, epsilon), CLOSED
        else:
            near = below(epsilon)
            found, method = self._upper("delta", near, lambda: self._divergence.delta(near))
            high = Fraction(min(1.0, found))
            low = Fraction(self._lower("delta", above(epsilon)) if lower else 0.0)
        return Bounds(
            max(0.0, below(told[0] + (1 - told[0]) * low)),
            min(1.0, round_up(told[1] + (1 - told[1]) * min(Fraction(1), high))),
            method,
        )

    def _found_epsilon(self, delta: Fraction, *, lower: bool) -> Bounds:
        told = self.told
        if delta < told[0] or told[0] == 1:
            return Bounds(math.inf, math.inf, CLOSED)
        if delta <= told[1]:
            return self._at_the_end(exactly=delta == told[0] == told[1])
        # What is left for the parts that do not tell, rounded so that it is safe.
        least, most = (delta - told[1]) / (1 - told[1]), (delta - told[0]) / (1 - told[0])
        if self.most == 0:
            return Bounds(0.0, 0.0, CLOSED)
        if self._closed:
            return self._cut(self._closed.most(most) if lower else 0.0, self._closed.least(least), CLOSED)
        if single := self._single_laplace:
            return self._cut(*_laplace_epsilon(single, least, most), CLOSED)
        near = below(least)
        if near < _TINY:
            return self._cut(0.0, math.inf, RENYI)
        high, method = self._upper("epsilon", near, lambda: self._divergence.epsilon(near))
        return self._cut(self._lower("epsilon", above(most)) if lower else 0.0, high, method)

    def _at_the_end(self, *, exactly: bool) -> Bounds:
        """ε at the δ that is told anyway: the largest loss, where it is known to occur."""
        if self.most is None:
            return Bounds(math.inf if exactly and self._is_unbounded else 0.0, math.inf, CLOSED)
        high = round_up(self.most) if exactly else math.inf
        occurs = exactly and all(isinstance(part, _ATTAINED) for part, _ in self.parts)
        return Bounds(below(self.most * (1 - Fraction(1, 1 << 100))) if occurs else 0.0, high, CLOSED)

    def _cut(self, low: float, high: float, method: str) -> Bounds:
        """No loss is larger than the largest; and no bound is better than the other."""
        if self.most is not None and high >= (top := round_up(self.most)):
            high, method = top, CLOSED if method == RENYI else method
        return Bounds(min(low, high), high, method)

    @property
    def _is_unbounded(self) -> bool:
        """Whether some part's losses surely have no end."""
        return any(isinstance(part, (Gaussian, DiscreteGaussian)) for part, _ in self.parts)

    @cached_property
    def _closed(self) -> Closed | ClosedSample | None:
        """At most one randomized response, and Gaussian noise; or one of them on a sample, once."""
        parts = [(part, count) for part, count in self.parts if part.most != 0]
        if len(parts) == 1 and parts[0][1] == 1 and isinstance(parts[0][0], Subsampled):
            return self._closed_sample(parts[0][0])
        pure = [part.epsilon for part, count in parts if isinstance(part, Pure) and count == 1]
        bells = [count * part.mu_squared for part, count in parts if isinstance(part, Gaussian)]
        if not parts or len(pure) > 1 or len(pure) + len(bells) < len(parts):
            return None
        return Closed(sum(pure, Fraction(0)), sum(bells, Fraction(0)))

    @staticmethod
    def _closed_sample(part: Subsampled) -> ClosedSample | None:
        if part.fixed or not isinstance(part.base, (Pure, Gaussian)):
            return None
        pure = part.base.epsilon if isinstance(part.base, Pure) else Fraction(0)
        bell = part.base.mu_squared if isinstance(part.base, Gaussian) else Fraction(0)
        return ClosedSample(Closed(pure, bell), part.rate)

    @cached_property
    def _single_laplace(self) -> Fraction | None:
        if len(self.parts) == 1 and self.parts[0][1] == 1 and isinstance(self.parts[0][0], Laplace):
            return self.parts[0][0].ratio
        return None

    @cached_property
    def _divergence(self) -> Divergence:
        return Divergence(self.parts)

    def _sides(self, *, up: bool) -> Iterator[tuple[tuple[Any, int], ...]]:
        """The pairs when a unit is removed, and when it is added, if that is different."""
        for added in (False,) if all(part.symmetric for part, _ in self.parts) else (False, True):
            with np.errstate(all="ignore"):
                sides = tuple(
                    (part.side(added=added, up=up), count) for part, count in self.parts if part.most != 0
                )
            yield sides

    def _upper(self, what: str, at: float, renyi: Callable[[], float]) -> tuple[float, str]:
        found, method, vague = math.inf, RENYI, True
        with contextlib.suppress(*_NO_ANSWER):
            answers: list[Bounds] = []
            for sides in self._sides(up=True):
                if not (answers and _is_below(what, at, sides, answers[0].upper)):
                    answers.append(_ask(what, at, sides))
            found, method = max(answer.upper for answer in answers), answers[0].method
            vague = max(answer.lower for answer in answers) < _FAIR * found
        # Of bounded ranges, the lattice knows only the curve of one; divergences know more of many.
        if vague or any(isinstance(part, BoundedRange) and count > 1 for part, count in self.parts):
            other = math.inf
            with contextlib.suppress(*_NO_ANSWER):
                other = renyi()
            if other < found:
                found, method = other, RENYI
        return found, method

    def _lower(self, what: str, at: float) -> float:
        found = 0.0
        with contextlib.suppress(*_NO_ANSWER):
            for sides in self._sides(up=False):
                with contextlib.suppress(*_NO_ANSWER):
                    if not (found and _is_below(what, at, sides, found)):
                        found = max(found, _ask(what, at, sides).lower)
        return found


def _is_below(what: str, at: float, sides: tuple[tuple[Any, int], ...], bound: float) -> bool:
    """Whether this direction is surely no worse than a bound that the other one gave; a cheap look."""
    if not all(
        isinstance(pair, (dominating_pairs.SubsampledGaussianPair, dominating_pairs.GaussianPair))
        for pair, _ in sides
    ):
        return False
    epsilon, delta = (bound, at) if what == "epsilon" else (at, bound)
    with np.errstate(all="ignore"), contextlib.suppress(Uncertified, ArithmeticError, ValueError):
        return _integral(sides).chernoff(epsilon) <= delta
    return False


@lru_cache(maxsize=256)
def _ask(what: str, at: float, sides: tuple[tuple[Any, int], ...]) -> Bounds:
    """The first engine's answer: Fourier where all is smooth, else the lattice."""
    smooth = all(
        isinstance(pair, (dominating_pairs.SubsampledGaussianPair, dominating_pairs.GaussianPair))
        for pair, _ in sides
    )
    engines: list[tuple[Callable[[Any], Any], str]] = [(_integral, FOURIER)] if smooth else []
    best = Bounds(0.0, math.inf, RENYI)
    with np.errstate(all="ignore"):
        for engine, method in [*engines, (_lattice, LATTICE)]:
            with contextlib.suppress(*_NO_ANSWER):
                low, high = getattr(engine(sides), what)(at)
                if not 0 <= low <= high < math.inf or low > best.upper or high < best.lower:
                    continue
                best = Bounds(
                    max(low, best.lower), min(high, best.upper), method if high < best.upper else best.method
                )
                if high - low <= _CLOSE * high:
                    break
    if math.isinf(best.upper):
        raise Uncertified
    return best


def _lattice(sides: tuple[tuple[Any, int], ...]) -> "Composed":
    from hubbub.accounting.pld_refinement import Composed  # imported when it is needed: it is long

    # Without atoms the gap falls with the square of the number of points, and each digit is dear.
    return Composed(sides, accuracy=1e-8 if any(pair.atoms.size for pair, _ in sides) else _CLOSE / 2)


def _integral(sides: tuple[tuple[Any, int], ...]) -> "Integral":
    from hubbub.accounting.fourier import Integral

    bells = [(pair, count) for pair, count in sides if isinstance(pair, dominating_pairs.GaussianPair)]
    sampled = [
        (pair, count) for pair, count in sides if isinstance(pair, dominating_pairs.SubsampledGaussianPair)
    ]
    if not sampled:
        return Integral(bells, None)
    steps = SampledGaussians(
        np.array([pair.rate for pair, _ in sampled]),
        np.array([pair.sigma for pair, _ in sampled]),
        np.array([float(count) for _, count in sampled]),
        added=sampled[0][0].added,
    )
    return Integral(bells, steps)


def _laplace_delta(ratio: Fraction, epsilon: Fraction) -> tuple[Fraction, Fraction]:
    """1 − e^((ε − r)/2), for ε < r."""
    away = (ratio - epsilon) / 2
    low, high = exp_neg(away, _BITS)
    one = 1 << _BITS
    return Fraction(one - high, one), min(away, Fraction(one - low, one))


def _laplace_epsilon(ratio: Fraction, least: Fraction, most: Fraction) -> tuple[float, float]:
    """ε = r + 2·ln(1 − δ), or 0."""
    bits = 256 + max(0, least.denominator.bit_length() - least.numerator.bit_length())
    low, high = (2 * Fraction(side, 1 << bits) for side in (log(1 - most, bits)[0], log(1 - least, bits)[1]))
    return below(max(Fraction(0), ratio + low)), round_up(max(Fraction(0), ratio + high))


def _power(base: Fraction, count: int) -> tuple[Fraction, Fraction]:
    """base^count between two bounds, for 0 ≤ base < 1: exact while it is short."""
    low = high = Fraction(1)
    square = (base, base)
    while count:
        if count & 1:
            low, high = _rounded(low * square[0], high * square[1])
        square = _rounded(square[0] ** 2, square[1] ** 2)
        count >>= 1
    return low, high


def _rounded(low: Fraction, high: Fraction) -> tuple[Fraction, Fraction]:
    """Both, if they are short, else rounded outwards."""
    if max(low.denominator.bit_length(), high.denominator.bit_length()) <= 8 * _BITS:
        return low, high
    return (
        Fraction(low.numerator * (1 << _BITS) // low.denominator, 1 << _BITS),
        Fraction(-(-high.numerator * (1 << _BITS) // high.denominator), 1 << _BITS),
    )
