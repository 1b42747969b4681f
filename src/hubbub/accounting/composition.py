"""Composition of events: bounds of δ and ε by the first accountant that can certify them.

Closed forms, the Fourier accountant, the PLD accountant, Rényi divergences, in this order. The last always
gives an answer, but a looser one; the bounds name their method.

Proof: docs/proofs/composition.md
"""

import contextlib
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from hubbub.accounting.closed_form import ClosedForm, SubsampledClosedForm
from hubbub.accounting.discrete_events import DiscreteGaussian, DiscreteLaplace, RandomizedResponse
from hubbub.accounting.discrete_pairs import DiscretePair
from hubbub.accounting.dominating_pairs import GaussianPair, LaplacePair
from hubbub.accounting.events import BoundedRange, EpsilonDelta, Gaussian, Laplace, Subsampled
from hubbub.accounting.float_bounds import Uncertified, float_above, float_below
from hubbub.accounting.pld import MAX_POINTS
from hubbub.accounting.renyi import ComposedEvents, RenyiDivergence
from hubbub.accounting.subsampled_gaussian import SubsampledGaussians
from hubbub.accounting.subsampled_laplace import SubsampledLaplacePair
from hubbub.accounting.subsampled_pairs import SubsampledGaussianPair, bound_rounding
from hubbub.noise.enclosures import exp_neg, log
from hubbub.numbers import round_up

if TYPE_CHECKING:
    from hubbub.accounting.fourier_accountant import FourierAccountant
    from hubbub.accounting.pld_accountant import PldAccountant

__all__ = ["CLOSED_FORM", "FOURIER", "PLD", "RENYI", "Bounds", "Composition"]

CLOSED_FORM, FOURIER, PLD, RENYI = "closed form", "Fourier integral", "PLD", "Rényi bound"

_UNCERTIFIED = (Uncertified, ArithmeticError, ValueError, MemoryError)
_BITS = 512
_MIN_DELTA = 1e-290
_VAGUE_RATIO = 0.99
"""If the lower bound is below this share of the upper one, Rényi divergences are computed, too."""
_TOLERANCE = 1e-6
"""If the bounds of the first accountant are further apart, relatively, the next one is asked, too."""
_FEW_POINTS = 1 << 17
"""Points of a PLD that take less than a second; of sampled Laplace noise eight times as many do."""
_SAMPLED = (SubsampledGaussianPair, GaussianPair, SubsampledLaplacePair)
_SMOOTH = (*_SAMPLED, LaplacePair)
"""Pairs with a density, for the Fourier accountant."""
_ATTAINING_EVENTS = (EpsilonDelta, Laplace, DiscreteLaplace, RandomizedResponse)
"""The largest loss of these events has a positive mass."""


class Bounds(tuple[float, float]):  # noqa: SLOT001 - a tuple cannot have both slots and a name
    """A certified lower and upper bound, and the last method that narrowed them.

    >>> low, high = Bounds(1.0, 2.0, "PLD")
    >>> Bounds(1.0, 2.0, "PLD").method
    'PLD'
    """

    method: str

    def __new__(cls, lower: float, upper: float, method: str) -> Self:
        """Both, and the method."""
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
    """Events that were fixed beforehand, with counts."""

    events: ComposedEvents

    @cached_property
    def infinity_mass_bounds(self) -> tuple[Fraction, Fraction]:
        """Bounds of the probability that any loss is infinite; equal if it is a short fraction."""
        infinite = [(event.infinity_mass, count) for event, count in self.events if event.infinity_mass]
        if len(infinite) == 1 and infinite[0][1] == 1:
            return infinite[0][0], infinite[0][0]
        low = high = Fraction(1)
        for probability, count in infinite:
            finite_low, finite_high = _power(1 - probability, count)
            low, high = _round_outward(low * finite_low, high * finite_high)
        return 1 - high, 1 - low

    @cached_property
    def max_loss(self) -> Fraction | None:
        """The largest finite loss; None if there is none."""
        total = Fraction(0)
        for event, count in self.events:
            if event.max_loss is None:
                return None
            total += count * event.max_loss
        return total

    def delta(self, epsilon: Fraction, *, lower: bool = True) -> Bounds:
        """Bounds of δ at ε ≥ 0."""
        if not self._is_tight:
            bounds = self._delta_bounds(epsilon, lower=False)
            return Bounds(
                self._tight_part.delta(epsilon).lower if lower else 0.0, bounds.upper, bounds.method
            )
        return self._delta_bounds(epsilon, lower=lower)

    def epsilon(self, delta: Fraction, *, lower: bool = True) -> Bounds:
        """Bounds of the smallest ε ≥ 0 that holds with δ; infinite if none does."""
        if not self._is_tight:
            bounds = self._epsilon_bounds(delta, lower=False)
            low = self._tight_part.epsilon(delta).lower if lower else 0.0
            return Bounds(min(low, bounds.upper), bounds.upper, bounds.method)
        return self._epsilon_bounds(delta, lower=lower)

    @property
    def _is_tight(self) -> bool:
        return all(event.tight for event, _ in self.events)

    @property
    def _tight_part(self) -> "Composition":
        """Without the events that are not tight."""
        return Composition(tuple((event, n) for event, n in self.events if event.tight))

    def _delta_bounds(self, epsilon: Fraction, *, lower: bool) -> Bounds:
        infinity_mass = self.infinity_mass_bounds
        if self.max_loss is not None and epsilon >= self.max_loss:
            return Bounds(float_below(infinity_mass[0]), round_up(infinity_mass[1]), CLOSED_FORM)
        if self.closed_form:
            low, high, method = (
                self.closed_form.delta_lower(epsilon),
                self.closed_form.delta_upper(epsilon),
                CLOSED_FORM,
            )
        elif single := self._single_laplace_epsilon:
            (low, high), method = _laplace_delta(single, epsilon), CLOSED_FORM
        else:
            near = float_below(epsilon)
            bound, method = self._upper("delta", near, lambda: self.divergence.delta(near))
            high = Fraction(min(1.0, bound))
            low = Fraction(self._lower("delta", float_above(epsilon)) if lower else 0.0)
        return Bounds(
            max(0.0, float_below(infinity_mass[0] + (1 - infinity_mass[0]) * low)),
            min(1.0, round_up(infinity_mass[1] + (1 - infinity_mass[1]) * min(Fraction(1), high))),
            method,
        )

    def _epsilon_bounds(self, delta: Fraction, *, lower: bool) -> Bounds:
        infinity_mass = self.infinity_mass_bounds
        if delta < infinity_mass[0] or infinity_mass[0] == 1:
            return Bounds(math.inf, math.inf, CLOSED_FORM)
        if delta <= infinity_mass[1]:
            return self._epsilon_at_infinity_mass(exactly=delta == infinity_mass[0] == infinity_mass[1])
        # What is left of δ for the finite losses, rounded to the safe side.
        delta_low, delta_high = (
            (delta - infinity_mass[1]) / (1 - infinity_mass[1]),
            (delta - infinity_mass[0]) / (1 - infinity_mass[0]),
        )
        if self.max_loss == 0:
            return Bounds(0.0, 0.0, CLOSED_FORM)
        if self.closed_form:
            return self._clip_to_max_loss(
                self.closed_form.epsilon_lower(delta_high) if lower else 0.0,
                self.closed_form.epsilon_upper(delta_low),
                CLOSED_FORM,
            )
        if single := self._single_laplace_epsilon:
            return self._clip_to_max_loss(*_laplace_epsilon(single, delta_low, delta_high), CLOSED_FORM)
        near = float_below(delta_low)
        if near < _MIN_DELTA:
            return self._clip_to_max_loss(0.0, math.inf, RENYI)
        high, method = self._upper("epsilon", near, lambda: self.divergence.epsilon(near))
        low = 0.0
        if lower and high:
            above = float_above(delta_high)
            low = self._close_lower(near, above, high) or self._lower("epsilon", above)
        return self._clip_to_max_loss(low, high, method)

    def _epsilon_at_infinity_mass(self, *, exactly: bool) -> Bounds:
        """ε if δ is the infinity mass: the largest loss, if it is known to occur."""
        if self.max_loss is None:
            return Bounds(math.inf if exactly and self._is_unbounded else 0.0, math.inf, CLOSED_FORM)
        high = round_up(self.max_loss) if exactly else math.inf
        occurs = exactly and all(isinstance(event, _ATTAINING_EVENTS) for event, _ in self.events)
        return Bounds(
            float_below(self.max_loss * (1 - Fraction(1, 1 << 100))) if occurs else 0.0, high, CLOSED_FORM
        )

    def _clip_to_max_loss(self, low: float, high: float, method: str) -> Bounds:
        """Bounds clipped to the largest loss, the lower one to the upper."""
        if self.max_loss is not None and high >= (top := round_up(self.max_loss)):
            high, method = top, CLOSED_FORM if method == RENYI else method
        return Bounds(min(low, high), high, method)

    @property
    def _is_unbounded(self) -> bool:
        """True if the losses of some event surely have no end."""
        return any(isinstance(event, (Gaussian, DiscreteGaussian)) for event, _ in self.events)

    @cached_property
    def closed_form(self) -> ClosedForm | SubsampledClosedForm | None:
        """For at most one (ε, δ) event beside Gaussian noise; or one of them on a Poisson sample, once."""
        events = [(event, count) for event, count in self.events if event.max_loss != 0]
        if len(events) == 1 and events[0][1] == 1 and isinstance(events[0][0], Subsampled):
            return self._closed_sample(events[0][0])
        pure = [event.epsilon for event, count in events if isinstance(event, EpsilonDelta) and count == 1]
        gaussians = [count * event.mu_squared for event, count in events if isinstance(event, Gaussian)]
        if not events or len(pure) > 1 or len(pure) + len(gaussians) < len(events):
            return None
        return ClosedForm(sum(pure, Fraction(0)), sum(gaussians, Fraction(0)))

    @staticmethod
    def _closed_sample(event: Subsampled) -> SubsampledClosedForm | None:
        if event.without_replacement or not isinstance(event.base, (EpsilonDelta, Gaussian)):
            return None
        pure = event.base.epsilon if isinstance(event.base, EpsilonDelta) else Fraction(0)
        gaussian = event.base.mu_squared if isinstance(event.base, Gaussian) else Fraction(0)
        return SubsampledClosedForm(ClosedForm(pure, gaussian), event.sampling_rate)

    @cached_property
    def _single_laplace_epsilon(self) -> Fraction | None:
        if len(self.events) == 1 and self.events[0][1] == 1 and isinstance(self.events[0][0], Laplace):
            return self.events[0][0].epsilon
        return None

    @cached_property
    def divergence(self) -> RenyiDivergence:
        """The Rényi divergences of the composition."""
        return RenyiDivergence(self.events)

    def _dominating_pairs(self, *, upper: bool) -> Iterator[tuple[tuple[Any, int], ...]]:
        """The pairs when a unit is removed, and when it is added, if they differ."""
        for added in (False,) if all(event.symmetric for event, _ in self.events) else (False, True):
            with np.errstate(all="ignore"):
                pairs = tuple(
                    (event.dominating_pair(added=added, upper=upper), count)
                    for event, count in self.events
                    if event.max_loss != 0
                )
            yield pairs

    def _upper(self, quantity: str, at: float, renyi: Callable[[], float]) -> tuple[float, str]:
        bound, method, is_vague = math.inf, RENYI, True
        with contextlib.suppress(*_UNCERTIFIED):
            answers: list[Bounds] = []
            for pairs in self._dominating_pairs(upper=True):
                if not (answers and _is_below(quantity, at, pairs, answers[0].upper)):
                    answers.append(bounds_of_pairs(quantity, at, pairs))
            bound, method = max(answer.upper for answer in answers), answers[0].method
            is_vague = max(answer.lower for answer in answers) < _VAGUE_RATIO * bound
        # The PLD of a bounded range is that of the worst single one; many compose better by divergences.
        if is_vague or any(isinstance(event, BoundedRange) and count > 1 for event, count in self.events):
            other = math.inf
            with contextlib.suppress(*_UNCERTIFIED):
                other = renyi()
            if other < bound:
                bound, method = other, RENYI
        return bound, method

    def _close_lower(self, near: float, above: float, high: float) -> float:
        """A lower bound of ε from the integral that gave the upper one; 0 if that is not close.

        Rounded up and rounded down, the parameters of sampled Gaussian noise are next to the same.
        """
        with contextlib.suppress(*_UNCERTIFIED):
            for upper, lower in zip(
                self._dominating_pairs(upper=True), self._dominating_pairs(upper=False), strict=True
            ):
                shift = bound_rounding(upper, lower, near, above)
                if shift is None:
                    break
                bounds = bounds_of_pairs("epsilon", near, upper)
                if bounds.method != FOURIER:
                    break
                if (low := (bounds.lower - shift) * (1 - 2.0**-50)) >= (1 - _TOLERANCE) * high:
                    return low
        return 0.0

    def _lower(self, quantity: str, at: float) -> float:
        bound = 0.0
        with contextlib.suppress(*_UNCERTIFIED):
            for pairs in self._dominating_pairs(upper=False):
                with contextlib.suppress(*_UNCERTIFIED):
                    if not (bound and _is_below(quantity, at, pairs, bound)):
                        bound = max(bound, bounds_of_pairs(quantity, at, pairs).lower)
        return bound


def _is_below(quantity: str, at: float, pairs: tuple[tuple[Any, int], ...], bound: float) -> bool:
    """True if this direction is surely no worse than a bound of the other one; a cheap check."""
    if not all(isinstance(pair, _SAMPLED) for pair, _ in pairs):
        with np.errstate(all="ignore"), contextlib.suppress(*_UNCERTIFIED):
            return bool(getattr(_pld_accountant(pairs, coarse=True), quantity)(at)[1] <= bound)
        return False
    epsilon, delta = (bound, at) if quantity == "epsilon" else (at, bound)
    with np.errstate(all="ignore"), contextlib.suppress(Uncertified, ArithmeticError, ValueError):
        return _fourier_accountant(pairs).is_below(epsilon, delta)
    return False


@lru_cache(maxsize=256)
def bounds_of_pairs(quantity: str, at: float, pairs: tuple[tuple[Any, int], ...]) -> Bounds:
    """Fourier accountant if all pairs have transforms, and one of them a density; then the PLD accountant."""
    has_transform = all(
        isinstance(pair, _SMOOTH) or (isinstance(pair, DiscretePair) and not pair.truncated)
        for pair, _ in pairs
    )
    # Without any density the lattice is as quick.
    has_density = any(isinstance(pair, _SMOOTH) for pair, _ in pairs)
    engines: list[tuple[Callable[[Any], Any], str]] = (
        [(_fourier_accountant, FOURIER)] if has_transform and has_density else []
    )
    best = Bounds(0.0, math.inf, RENYI)
    with np.errstate(all="ignore"):
        for engine, method in [*engines, (_pld_accountant, PLD)]:
            with contextlib.suppress(*_UNCERTIFIED):
                low, high = getattr(engine(pairs), quantity)(at)
                if not 0 <= low <= high < math.inf or low > best.upper or high < best.lower:
                    continue
                narrows = high < best.upper or low > best.lower
                best = Bounds(max(low, best.lower), min(high, best.upper), method if narrows else best.method)
                if high - low <= _TOLERANCE * high:
                    break
    if math.isinf(best.upper):
        raise Uncertified
    return best


def _pld_accountant(pairs: tuple[tuple[Any, int], ...], *, coarse: bool = False) -> "PldAccountant":
    from hubbub.accounting.pld_accountant import FIRST_POINTS, PldAccountant

    if coarse:
        return PldAccountant(pairs, accuracy=_TOLERANCE, max_points=FIRST_POINTS)
    # Where the Fourier accountant gave up, a loose bound now is better than a close one in a minute.
    most = MAX_POINTS
    if all(isinstance(pair, _SAMPLED) for pair, _ in pairs):
        has_laplace = any(isinstance(pair, SubsampledLaplacePair) for pair, _ in pairs)
        most = _FEW_POINTS << 3 if has_laplace else _FEW_POINTS
    return PldAccountant(pairs, accuracy=_TOLERANCE / 3, max_points=most)


def _fourier_accountant(pairs: tuple[tuple[Any, int], ...]) -> "FourierAccountant":
    from hubbub.accounting.fourier_accountant import FourierAccountant

    explicit = [(pair, count) for pair, count in pairs if not isinstance(pair, SubsampledGaussianPair)]
    sampled = [(pair, count) for pair, count in pairs if isinstance(pair, SubsampledGaussianPair)]
    if not sampled:
        return FourierAccountant(explicit, None)
    steps = SubsampledGaussians(
        np.array([pair.sampling_rate for pair, _ in sampled]),
        np.array([pair.sigma for pair, _ in sampled]),
        np.array([float(count) for _, count in sampled]),
        added=sampled[0][0].added,
    )
    return FourierAccountant(explicit, steps)


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
    return float_below(max(Fraction(0), ratio + low)), round_up(max(Fraction(0), ratio + high))


def _power(base: Fraction, count: int) -> tuple[Fraction, Fraction]:
    """base^count between two bounds, for 0 ≤ base < 1: exact while it is short."""
    low = high = Fraction(1)
    square = (base, base)
    while count:
        if count & 1:
            low, high = _round_outward(low * square[0], high * square[1])
        square = _round_outward(square[0] ** 2, square[1] ** 2)
        count >>= 1
    return low, high


def _round_outward(low: Fraction, high: Fraction) -> tuple[Fraction, Fraction]:
    """Both, if they are short, else rounded outwards."""
    if max(low.denominator.bit_length(), high.denominator.bit_length()) <= 8 * _BITS:
        return low, high
    return (
        Fraction(low.numerator * (1 << _BITS) // low.denominator, 1 << _BITS),
        Fraction(-(-high.numerator * (1 << _BITS) // high.denominator), 1 << _BITS),
    )
