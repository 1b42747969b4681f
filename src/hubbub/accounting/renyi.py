"""Rényi divergences: events of which only divergences are known, and (ε, δ) bounds of a composition.

Looser than the other methods, but it always gives an answer: every event has some divergence.

Proof: docs/proofs/events.md
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np

from hubbub.accounting.discrete_pairs import epsilon_delta_pair
from hubbub.accounting.dominating_pairs import GaussianPair
from hubbub.accounting.events import RENYI_MARGIN, Event, Gaussian, Subsampled
from hubbub.accounting.float_bounds import Uncertified, float_above, float_below, inverse_sqrt
from hubbub.accounting.subsampled_gaussian import SubsampledGaussians
from hubbub.errors import Unsupported
from hubbub.numbers import format_up

__all__ = ["RenyiCurve", "RenyiDivergence", "ZeroConcentrated"]


@dataclass(frozen=True)
class ZeroConcentrated(Event):
    """ρ-zCDP, with nothing more known of the mechanism."""

    rho: Fraction = field(default=Fraction(0))

    def dominating_pair(self, *, added: bool, upper: bool) -> GaussianPair:  # noqa: ARG002
        """None for upper bounds; for lower ones, Gaussian noise is such a mechanism."""
        if upper:
            raise Uncertified
        return GaussianPair(float_below(2 * self.rho))

    @property
    def max_loss(self) -> None:
        """None: unknown."""
        return

    def renyi(self, alpha: float) -> float:
        """αρ."""
        return alpha * float_above(self.rho) * RENYI_MARGIN

    def for_group(self, size: int) -> "ZeroConcentrated":
        """k²ρ."""
        return ZeroConcentrated(size**2 * self.rho)

    def poisson_subsampled(self, rate: Fraction) -> Event:
        """Refused: unknown."""
        raise _no_pair("zCDP", rate)

    def __str__(self) -> str:
        return f"ρ = {format_up(self.rho)}"


@dataclass(frozen=True)
class RenyiCurve(Event):
    """Rényi divergences at some orders, with nothing more known of the mechanism."""

    points: tuple[tuple[Fraction, Fraction], ...]
    """Rising orders, and the divergence at each."""

    def dominating_pair(self, *, added: bool, upper: bool) -> Any:  # noqa: ARG002
        """None for upper bounds; for lower ones, no loss at all."""
        if upper:
            raise Uncertified
        return epsilon_delta_pair(0)

    @property
    def max_loss(self) -> None:
        """None: unknown."""
        return

    def renyi(self, alpha: float) -> float:
        """The divergence of the next known order: divergences rise with the order."""
        known = [value for order, value in self.points if Fraction(alpha) <= order]
        return float_above(min(known)) if known else math.inf

    def for_group(self, size: int) -> "RenyiCurve":
        """(α, ε) becomes (α/2^c, 3^c·ε) for 2^c members or fewer."""
        c = (size - 1).bit_length()
        points = tuple((a / 2**c, 3**c * e) for a, e in self.points if a >= 2 ** (c + 1))
        return RenyiCurve(points)

    def poisson_subsampled(self, rate: Fraction) -> Event:
        """Refused: unknown."""
        raise _no_pair("a Rényi curve", rate)

    def __str__(self) -> str:
        return f"Rényi divergences at {len(self.points)} orders"


def _no_pair(what: str, rate: Fraction) -> Unsupported:
    return Unsupported(
        f"{what} is subsampled at rate {format_up(rate)}",
        why="amplification needs the mechanism itself, not only a bound of its divergence",
        fix="state the mechanism itself, such as Gaussian noise",
    )


ComposedEvents = tuple[tuple[Event, int], ...]

# survives: Any order gives a bound; which ones are tried first only decides how close it is for extreme
# losses.
_MIN_LOG_ORDER, _MAX_LOG_ORDER = -12.0, 14.0


@dataclass(frozen=True)
class RenyiDivergence:
    """The Rényi divergences of composed events.

    Proof: docs/proofs/filters.md, "From Rényi to (ε, δ)"
    """

    events: ComposedEvents

    def at(self, alpha: float) -> float:
        """An upper bound of the divergence of order α > 1, in both directions.

        >>> from fractions import Fraction
        >>> RenyiDivergence(((Gaussian(Fraction(1)), 4),)).at(2.0) >= 4
        True
        """
        return _divergence(self.events, alpha)

    def delta(self, epsilon: float) -> float:
        """An upper bound of δ(ε)."""

        def log_delta(alpha: float) -> float:
            return (alpha - 1) * (self.at(alpha) - epsilon) - _conversion_exponent(alpha)

        # survives: What is above 0 is cut to 1 once more after it; here it only keeps e^x from
        # overflowing.
        return min(1.0, max(5e-324, math.exp(min(0.0, self._minimize(log_delta))) * RENYI_MARGIN))

    def epsilon(self, delta: float) -> float:
        """An upper bound of ε(δ), for δ > 0."""

        def bound(alpha: float) -> float:
            return self.at(alpha) - (_conversion_exponent(alpha) + math.log(delta)) / (alpha - 1)

        least = self._minimize(bound)
        # survives: By how much figures are raised is free, if it is more than some hundred units of
        # doubles: divergences are raised, too. By how much figures are raised is free, if it is
        # more than some hundred units of doubles.
        return max(0.0, least + 2.0**-36 * abs(least))

    def _minimize(self, bound: Callable[[float], float]) -> float:
        """About the least bound over all orders: any order gives a bound, a good one a close one."""
        # Above an order that is known there may be no divergence: floats are rounded down.
        # survives: From above 1, downwards is the same way.
        known = {
            math.nextafter(float(order), 1.0)
            for event, _ in self.events
            if isinstance(event, RenyiCurve)
            for order, _ in event.points
        }
        if known:
            return min((bound(alpha) for alpha in known if alpha > 1), default=math.inf)
        # survives: Any order gives a bound; which ones are tried first is free.
        places = np.linspace(_MIN_LOG_ORDER, _MAX_LOG_ORDER, 27)
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


def _conversion_exponent(alpha: float) -> float:
    """−ln of what e^((α−1)(divergence − ε)) is multiplied with: α^α/(α−1)^(α−1)."""
    # survives: By how much it is lowered is free, if it is more than a few units of doubles.
    return (math.log(alpha) - (alpha - 1) * math.log1p(-1 / alpha)) * (1 - 2.0**-40)


@lru_cache(maxsize=8192)
def _divergence(events: ComposedEvents, alpha: float) -> float:
    try:
        return _sum_divergences(events, alpha)
    except OverflowError:
        return math.inf


def _sum_divergences(events: ComposedEvents, alpha: float) -> float:
    gaussian = tuple(
        (event, count)
        for event, count in events
        if isinstance(event, Subsampled)
        and isinstance(event.base, Gaussian)
        and not event.without_replacement
    )
    rest = events
    total = 0.0
    # survives: One by one the bound is as good, or a little looser; all at once is quick. One by one or
    # all at once: the same quadrature.
    if len(gaussian) > 1:
        # All at once; one by one, if that is too much.
        # survives: A unit of σ is less than what divergences are raised by.
        rates, sigmas, counts = (
            np.array([float_above(event.sampling_rate) for event, _ in gaussian]),
            np.array([inverse_sqrt(event.base.mu_squared, upper=True) for event, _ in gaussian]),  # type: ignore[attr-defined]
            np.array([float(count) for _, count in gaussian]),
        )
        try:
            # survives: Nodes that would do for z off the real line, too, or a few less: the
            # error they bound is added. The divergence of removal is the larger one, by a
            # theorem; both are computed so that nothing rests on it.
            nodes = [
                SubsampledGaussians(rates, sigmas, counts, added=added).quadrature(alpha - 1, 0.0)
                for added in (False, True)
            ]
        except Uncertified:
            pass
        else:
            # The worse direction of the sum, for both are told of all parts at once.
            total = max(node.moment + node.error for node in nodes) / (alpha - 1) * RENYI_MARGIN
            rest = tuple(pair for pair in events if pair not in set(gaussian))
    total += math.fsum(count * event.renyi(alpha) for event, count in rest)
    return total * RENYI_MARGIN
