"""Parts of which only divergences are known: zero-concentrated privacy, and Rényi curves.

Proof: docs/proofs/parts.md
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np

from hubbub.accounting import dominating_pairs
from hubbub.accounting.events import CLOSE, Event, Gaussian, Subsampled
from hubbub.accounting.float_bounds import Uncertified, above, below, root_inverse
from hubbub.accounting.subsampled_gaussian import SampledGaussians
from hubbub.errors import Unsupported
from hubbub.numbers import format_up

__all__ = ["Divergence", "RenyiCurve", "ZeroConcentrated"]


@dataclass(frozen=True)
class ZeroConcentrated(Event):
    """Zero-concentrated privacy, and nothing more is known."""

    concentrated: Fraction

    def side(self, *, added: bool, up: bool) -> dominating_pairs.GaussianPair:  # noqa: ARG002
        """None above; below, Gaussian noise is one such mechanism."""
        if up:
            raise Uncertified
        return dominating_pairs.GaussianPair(below(2 * self.concentrated))

    @property
    def most(self) -> None:
        """None is known."""
        return

    @property
    def rho(self) -> Fraction:
        """ρ."""
        return self.concentrated

    def renyi(self, alpha: float) -> float:
        """αρ."""
        return alpha * above(self.concentrated) * CLOSE

    def group(self, size: int) -> "ZeroConcentrated":
        """k²ρ."""
        return ZeroConcentrated(size**2 * self.concentrated)

    def poisson_subsampled(self, rate: Fraction) -> Event:
        """Not known."""
        raise _no_pair("zCDP", rate)

    def __str__(self) -> str:
        return f"ρ = {format_up(self.concentrated)}"


@dataclass(frozen=True)
class RenyiCurve(Event):
    """Rényi divergences at some orders, and nothing more is known."""

    points: tuple[tuple[Fraction, Fraction], ...]
    """Rising orders, and the divergence at each."""

    def side(self, *, added: bool, up: bool) -> Any:  # noqa: ARG002
        """None; below, no loss at all."""
        if up:
            raise Uncertified
        return dominating_pairs.two_points(0)

    @property
    def most(self) -> None:
        """None is known."""
        return

    def renyi(self, alpha: float) -> float:
        """That of the next order that is known: divergences rise with the order."""
        known = [value for order, value in self.points if Fraction(alpha) <= order]
        return above(min(known)) if known else math.inf

    def group(self, size: int) -> "RenyiCurve":
        """(α, ε) becomes (α/2^c, 3^c·ε) for 2^c members or fewer."""
        c = (size - 1).bit_length()
        points = tuple((a / 2**c, 3**c * e) for a, e in self.points if a >= 2 ** (c + 1))
        return RenyiCurve(points)

    def poisson_subsampled(self, rate: Fraction) -> Event:
        """Not known."""
        raise _no_pair("a Rényi curve", rate)

    def __str__(self) -> str:
        return f"Rényi divergences at {len(self.points)} orders"


def _no_pair(what: str, rate: Fraction) -> Unsupported:
    return Unsupported(
        f"{what} is sampled at rate {format_up(rate)}",
        why="sampling needs the mechanism's law, not only a bound of its divergence",
        fix="state the mechanism itself, such as Gaussian noise",
    )


# Rényi divergences of composed parts, and the (ε, δ) that follow from them.
#
# Looser than the other engines, but it always answers: every part has some divergence.
#
# Proved in docs/proofs/filters.md, "From Rényi to (ε, δ)

Parts = tuple[tuple[Event, int], ...]

# survives: By how much figures are raised is free, if it is more than some hundred units of doubles.
_CLOSE = 1 + 2.0**-36
# survives: Any order gives a bound; which ones are tried first only decides how close it is for extreme
# losses.
_LOW, _HIGH = -12.0, 14.0


@dataclass(frozen=True)
class Divergence:
    """Parts, each so many times: the sum of their divergences at any order."""

    parts: Parts

    def at(self, alpha: float) -> float:
        """An upper bound of the divergence of order α > 1, in both directions.

        >>> from fractions import Fraction
        >>> Divergence(((Gaussian(Fraction(1)), 4),)).at(2.0) >= 4
        True
        """
        return _divergence(self.parts, alpha)

    def delta(self, epsilon: float) -> float:
        """An upper bound of δ(ε)."""

        def log_delta(alpha: float) -> float:
            return (alpha - 1) * (self.at(alpha) - epsilon) - _room(alpha)

        # survives: What is above 0 is cut to 1 once more after it; here it only keeps e^x from
        # overflowing.
        return min(1.0, max(5e-324, math.exp(min(0.0, self._best(log_delta))) * _CLOSE))

    def epsilon(self, delta: float) -> float:
        """An upper bound of ε(δ), for δ > 0."""

        def bound(alpha: float) -> float:
            return self.at(alpha) - (_room(alpha) + math.log(delta)) / (alpha - 1)

        found = self._best(bound)
        # survives: By how much figures are raised is free, if it is more than some hundred units of
        # doubles: divergences are raised, too. By how much figures are raised is free, if it is
        # more than some hundred units of doubles.
        return max(0.0, found + 2.0**-36 * abs(found))

    def _best(self, bound: Callable[[float], float]) -> float:
        """About the least of a bound over all orders: any order is right, a good one is close."""
        # Above an order that is known there may be no divergence: floats are rounded down.
        # survives: From above 1, downwards is the same way.
        known = {
            math.nextafter(float(order), 1.0)
            for part, _ in self.parts
            if isinstance(part, RenyiCurve)
            for order, _ in part.points
        }
        if known:
            return min((bound(alpha) for alpha in known if alpha > 1), default=math.inf)
        # survives: Any order gives a bound; which ones are tried first is free.
        places = np.linspace(_LOW, _HIGH, 27)
        values = [bound(1 + math.exp(place)) for place in places]
        k = int(np.argmin(values))
        # survives: Where the search begins is free; what it gives is a bound.
        low, high = float(places[max(0, k - 1)]), float(places[min(26, k + 1)])
        shrink = (math.sqrt(5) - 1) / 2
        # survives: How many steps are made is free; each order gives a bound.
        for _ in range(24):
            left, right = high - shrink * (high - low), low + shrink * (high - low)
            # survives: Where both are equal the least lies between them.
            if bound(1 + math.exp(left)) <= bound(1 + math.exp(right)):
                high = right
            else:
                low = left
        return min(values[k], bound(1 + math.exp((low + high) / 2)))


def _room(alpha: float) -> float:
    """−ln of what e^((α−1)(divergence − ε)) is multiplied with: α^α/(α−1)^(α−1)."""
    # survives: By how much it is lowered is free, if it is more than a few units of doubles.
    return (math.log(alpha) - (alpha - 1) * math.log1p(-1 / alpha)) * (1 - 2.0**-40)


@lru_cache(maxsize=8192)
def _divergence(parts: Parts, alpha: float) -> float:
    try:
        return _summed(parts, alpha)
    except OverflowError:
        return math.inf


def _summed(parts: Parts, alpha: float) -> float:
    gaussian = tuple(
        (part, count)
        for part, count in parts
        if isinstance(part, Subsampled) and isinstance(part.base, Gaussian) and not part.fixed
    )
    rest = parts
    total = 0.0
    # survives: One by one the bound is as good, or a little looser; all at once is quick. One by one or
    # all at once: the same quadrature.
    if len(gaussian) > 1:
        # All at once; one by one, if that is too much.
        # survives: A unit of σ is less than what divergences are raised by.
        rates, sigmas, counts = (
            np.array([above(part.rate) for part, _ in gaussian]),
            np.array([root_inverse(part.base.mu_squared, up=True) for part, _ in gaussian]),  # type: ignore[attr-defined]
            np.array([float(count) for _, count in gaussian]),
        )
        try:
            # survives: Nodes that would do for z off the real line, too, or a few less: the
            # error they bound is added. The divergence of removal is the larger one, by a
            # theorem; both are computed so that nothing rests on it.
            nodes = [
                SampledGaussians(rates, sigmas, counts, added=added).quadrature(alpha - 1, 0.0)
                for added in (False, True)
            ]
        except Uncertified:
            pass
        else:
            # The worse direction of the sum, for both are told of all parts at once.
            total = max(node.moment + node.error for node in nodes) / (alpha - 1) * _CLOSE
            rest = tuple(pair for pair in parts if pair not in set(gaussian))
    total += math.fsum(count * part.renyi(alpha) for part, count in rest)
    return total * _CLOSE
