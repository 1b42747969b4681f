"""μ² of Gaussian noise that dominates a mechanism, also beside Gaussian noise that is kept in reserve.

A privacy filter adds up these figures. Closed forms for mechanisms with bounded losses; for all others, such
as a training run, a certificate from finitely many points of their own curve δ(ε).

Proof: docs/proofs/filters.md, "The cost of a charge"
"""

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

from hubbub.accounting.closed_form import largest_mu
from hubbub.accounting.composition import Composition
from hubbub.accounting.discrete_events import DiscreteLaplace, RandomizedResponse
from hubbub.accounting.events import BoundedRange, EpsilonDelta, Event, Gaussian, Laplace
from hubbub.accounting.privacy_loss import PrivacyLoss
from hubbub.accounting.renyi import ComposedEvents, RenyiCurve, ZeroConcentrated
from hubbub.noise.enclosures import exp, gaussian_delta, normal_tail
from hubbub.numbers import ceil_sqrt

__all__ = [
    "LossFacts",
    "bounded_mu_squared",
    "bounded_range_mu_squared",
    "dominating_mu_squared",
    "floor_digits",
    "is_dominated",
    "largest_mu_squared",
    "least_mu_squared",
    "loss_facts",
    "mu_squared_at",
]

_BITS = 128
_DIGITS = 40
"""The significant bits of a limit: short to store, and rounded to the safe side."""
_HALF_PI = Fraction(1_570_797, 1_000_000)
"""Above π/2."""
_FINEST = 1 << 14
_MAX_RESERVE = 6
_MARGIN = 1 + Fraction(1, 1 << 20)
"""What is charged leaves this much room, so that another machine's last digits certify it, too."""
_MOST_POINTS = 160
_LEAST_CLOSE = Fraction(1, 1 << 1100)
"""Below it, far from all doubles, `gaussian_delta` need not be close to G."""
_CLOSED_FORMS = (EpsilonDelta, Laplace, DiscreteLaplace, RandomizedResponse, BoundedRange, Gaussian)


# Closed forms


def bounded_mu_squared(epsilon: Fraction, reserve: Fraction) -> Fraction:
    """μ² that dominates any pure ε-DP mechanism, beside a reserve of Gaussian noise.

    >>> float(bounded_mu_squared(Fraction(1, 100), Fraction(0)) * 10_000)
    1.570797
    >>> float(bounded_mu_squared(Fraction(1, 100), Fraction(1, 100)) * 10_000) < 1.002
    True

    Args:
        epsilon: ε.
        reserve: μ² of the Gaussian noise that may still be charged afterwards.

    Guarantee: the mechanism composed with Gaussian noise of μ² ≥ `reserve` is dominated by Gaussian noise of
        μ² + the result, in both directions.
    Proof: docs/proofs/filters.md, "Bounded losses"
    """
    naive = _HALF_PI * epsilon * epsilon
    if not reserve or 4 * epsilon * epsilon > 3 * reserve or epsilon > 2:
        return naive
    # Rounded up, as a larger ε has a larger figure: short numbers from here on.
    ratio = _ceil(epsilon * epsilon / reserve, 64)
    square = epsilon * epsilon / 4
    # tanh(x)/x ≤ 1 − x²/3 + 2x⁴/15, at x = ε/2
    factor = min(Fraction(1), _ceil(1 - square / 3 + 2 * square * square / 15, 64))
    extra = Fraction(0)
    for _ in range(64):
        total = factor * ratio * (1 + extra)
        needed = total / 4 + reserve * total / 16 - ratio / 12 + ratio * ratio / 120
        if extra - extra * extra / 2 >= needed:  # ln(1 + x) ≥ x − x²/2
            is_proved = total <= 1 and total / 4 - total * total / 6 >= ratio / 12
            return min(naive, _ceil(reserve * total, 192)) if is_proved else naive
        extra = Fraction(math.floor((needed + extra * extra / 2) * _FINEST) + 1, _FINEST)
        if extra > 1:
            break
    return naive


def bounded_range_mu_squared(epsilon: Fraction, reserve: Fraction) -> Fraction:
    """μ² that dominates any mechanism of ε-bounded range, beside a reserve of Gaussian noise.

    >>> float(bounded_range_mu_squared(Fraction(1, 100), Fraction(1, 100)) * 40_000)
    1.0025062656641603

    Guarantee: as `bounded_mu_squared`.
    Proof: docs/proofs/filters.md, "Bounded losses"
    """
    square = epsilon * epsilon / 4
    if 2 * square > reserve or reserve > _MAX_RESERVE:
        return bounded_mu_squared(epsilon, reserve)
    return min(_ceil(square / (1 - square / reserve), 192), bounded_mu_squared(epsilon, reserve))


def _ceil(x: Fraction, bits: int) -> Fraction:
    """Rounded up to a multiple of 2^−bits, if its denominator is longer."""
    return (
        x if x.denominator >> bits == 0 else Fraction(-((-x.numerator << bits) // x.denominator), 1 << bits)
    )


@lru_cache(maxsize=1024)
def largest_mu_squared(epsilon: Fraction, delta: Fraction) -> Fraction:
    """The largest μ² at which Gaussian noise is (ε, δ)-private, rounded down; 0 if there is none.

    >>> round(float(largest_mu_squared(Fraction(1), Fraction(1, 10**6))), 5)
    0.05603
    """
    if epsilon <= 0 or delta <= 0:
        return Fraction(0)
    return floor_digits(largest_mu(epsilon, delta) ** 2)


def floor_digits(x: Fraction) -> Fraction:
    """Rounded down to 40 significant bits."""
    shift = _DIGITS - (x.numerator.bit_length() - x.denominator.bit_length())
    return Fraction(math.floor(x * Fraction(2) ** shift)) / Fraction(2) ** shift


# What a loss is made of


@dataclass(frozen=True)
class _Parts:
    """One alternative: events with a closed form, and the rest."""

    gaussian: Fraction
    bounded: tuple[tuple[Event, int], ...]
    delta: Fraction
    """The infinity mass of the closed forms."""
    rest: PrivacyLoss | None


@dataclass(frozen=True)
class LossFacts:
    """What a filter needs to know of a loss; computed once."""

    loss: PrivacyLoss
    epsilon: Fraction | None
    """Pure ε, apart from δ; None if losses are unbounded."""
    delta: Fraction
    """The infinity mass that goes with it."""
    parts: tuple[_Parts, ...]

    @property
    def is_numeric(self) -> bool:
        """True if some part has no closed form."""
        return any(part.rest is not None for part in self.parts)

    @property
    def is_renyi_only(self) -> bool:
        """True if nothing but Rényi divergences is known of some part."""
        return any(
            isinstance(event, (ZeroConcentrated, RenyiCurve))
            for alternative in self.loss.alternatives
            for event, _ in alternative
        )

    @property
    def closed_delta(self) -> Fraction:
        """The infinity mass of the parts with a closed form."""
        return max(part.delta for part in self.parts)

    @property
    def largest_event(self) -> Fraction:
        """The largest pure ε of an event with a closed form; 0 if there is none."""
        return max(
            (event.max_loss or Fraction(0) for part in self.parts for event, _ in part.bounded),
            default=Fraction(0),
        )

    @property
    def is_bounded(self) -> bool:
        """True if losses without a closed form are bounded, and need no cut."""
        return self.epsilon is not None and self.delta == self.closed_delta

    @property
    def largest_loss(self) -> Fraction:
        """The largest pure ε of any event; 0 if there is none, or some event has none."""
        events = [event for alternative in self.loss.alternatives for event, _ in alternative]
        return max((event.max_loss or Fraction(0) for event in events), default=Fraction(0))


@lru_cache(maxsize=4096)
def loss_facts(loss: PrivacyLoss) -> LossFacts:
    """The facts of a loss that a filter uses.

    >>> loss_facts(PrivacyLoss.laplace(0.5) + PrivacyLoss.approximate(0.25, 1e-9)).epsilon
    Fraction(3, 4)
    """
    compositions = loss.compositions
    largest = [each.max_loss for each in compositions]
    known = [figure for figure in largest if figure is not None]
    return LossFacts(
        loss,
        max(known) if len(known) == len(largest) else None,
        max(each.infinity_mass_bounds[1] for each in compositions),
        tuple(_split(alternative) for alternative in loss.alternatives),
    )


def _split(events: ComposedEvents) -> _Parts:
    closed = [(event, count) for event, count in events if isinstance(event, _CLOSED_FORMS)]
    rest = tuple((event, count) for event, count in events if not isinstance(event, _CLOSED_FORMS))
    bounded = tuple((event, count) for event, count in closed if not isinstance(event, Gaussian))
    return _Parts(
        sum(
            (count * event.mu_squared for event, count in closed if isinstance(event, Gaussian)), Fraction(0)
        ),
        bounded,
        Composition(bounded).infinity_mass_bounds[1],
        PrivacyLoss((rest,)) if rest else None,
    )


@lru_cache(maxsize=4096)
def mu_squared_at(facts: LossFacts, reserve: Fraction, cut: Fraction) -> Fraction | None:
    """μ² that dominates a loss with an event of probability `cut` cut off, beside a reserve; None if unknown.

    Guarantee: the loss composed with Gaussian noise of μ² ≥ `reserve` has, at every ε and in both directions,
        a δ of at most `closed_delta` + `cut` + that of Gaussian noise of μ² + the result.
    Proof: docs/proofs/filters.md, "The cost of a charge"
    """
    worst = Fraction(0)
    for part in facts.parts:
        figure = part.gaussian
        for event, count in part.bounded:
            figure += count * _bounded_event(event, reserve)
        if part.rest is not None:
            own = dominating_mu_squared(part.rest, cut) if cut else bounded_rest(part.rest, reserve)
            if own is None:
                return None
            figure += own
        worst = max(worst, figure)
    return worst


def bounded_rest(rest: PrivacyLoss, reserve: Fraction) -> Fraction | None:
    """μ² that dominates events without a closed form by their largest losses alone; None if some have none.

    Nothing is cut off.

    Proof: docs/proofs/filters.md, "Bounded losses"
    """
    total = Fraction(0)
    for event, count in rest.alternatives[0]:
        if event.max_loss is None or event.infinity_mass:
            return None
        total += count * bounded_mu_squared(event.max_loss, reserve)
    return total


def _bounded_event(event: Event, reserve: Fraction) -> Fraction:
    by = bounded_range_mu_squared if isinstance(event, BoundedRange) else bounded_mu_squared
    return by(event.max_loss or Fraction(0), reserve)


# Certificates


@lru_cache(maxsize=256)
def dominating_mu_squared(loss: PrivacyLoss, cut: Fraction) -> Fraction | None:
    """The least μ² found with δ(ε) ≤ κ + (1 − κ)·G(ε) at every ε, G of Gaussian noise; None if there is none.

    >>> run = PrivacyLoss.gaussian(1).poisson_subsampled(0.01) * 100
    >>> 0.017 < dominating_mu_squared(run, Fraction(1, 10**7)) < 0.06
    True

    Guarantee: as `is_dominated`, which has checked the result.
    Proof: docs/proofs/filters.md, "Runs"
    """
    top = _end(loss, cut / _MARGIN)
    if top is None:
        return None
    # A first guess from few points, then larger until it is certified.
    share = float(cut)
    guess = 0.0
    for place in range(17):
        at = top * place / 16
        guess = max(
            guess, least_mu_squared(float(at), (_delta(loss, at) * float(_MARGIN) - share) / (1 - share))
        )
    if not guess:
        guess = 1e-12
    step = 1.002
    for _ in range(40):
        figure = -floor_digits(-_short(guess * step))
        if is_dominated(loss, cut, figure, margin=_MARGIN):
            return figure
        step = 1 + 1.6 * (step - 1)
    return None


def is_dominated(
    loss: PrivacyLoss, cut: Fraction, mu_squared: Fraction, *, margin: Fraction = Fraction(1)
) -> bool:
    """True if δ(ε) ≤ κ + (1 − κ)·G(ε) at every ε ≥ 0, with κ the cut and G of Gaussian noise with this μ².

    Both sides are convex in e^ε: between two points the chord of the left side is above it, a tangent of the
    right side is below it, and two lines are compared at their ends. Beyond the point where δ(ε) is κ there
    is nothing to compare.

    Args:
        loss: The loss.
        cut: κ.
        mu_squared: μ² of G.
        margin: A factor by which δ(ε) must stay below.

    Guarantee: true only if it holds; finitely many points decide.
    Assumes: `PrivacyLoss.delta` is an upper bound, for both directions.
    Proof: docs/proofs/filters.md, "Runs"
    """
    top = _end(loss, cut / _MARGIN)
    if top is None or not mu_squared:
        return False
    points, waiting = 0, [(Fraction(0), top)]
    while waiting:
        left, right = waiting.pop()
        points += 1
        if points > _MOST_POINTS or right - left < top / 1024:
            return False
        if not _chord_is_below(loss, (left, right), cut, mu_squared, margin):
            middle = (left + right) / 2
            waiting += [(left, middle), (middle, right)]
    return True


def _chord_is_below(
    loss: PrivacyLoss,
    ends: tuple[Fraction, Fraction],
    cut: Fraction,
    mu_squared: Fraction,
    margin: Fraction,
) -> bool:
    first, second = (Fraction(_delta(loss, end)) * margin for end in ends)
    middle = _short(float(ends[0] + ends[1]) / 2)
    touch = _exp(middle)[0]
    height, (slope_below, slope_above) = _gaussian_below(middle, mu_squared), _slope(middle, mu_squared)
    # The tangent at the middle falls by the slope for each unit of e^ε.
    rise = slope_below * max(Fraction(0), touch - _exp(ends[0])[1])
    fall = slope_above * (_exp(ends[1])[1] - touch)
    return first <= cut + (1 - cut) * (height + rise) and second <= cut + (1 - cut) * (height - fall)


@lru_cache(maxsize=4096)
def _delta(loss: PrivacyLoss, epsilon: Fraction) -> float:
    return loss.delta(epsilon)


@lru_cache(maxsize=256)
def _end(loss: PrivacyLoss, cut: Fraction) -> Fraction | None:
    """An ε from which on δ(ε) is at most the cut; None if there is none."""
    epsilon = loss.epsilon(cut)
    return max(_short(epsilon), Fraction(1, 1 << 20)) if math.isfinite(epsilon) else None


def _short(x: float) -> Fraction:
    """Rounded up to 30 significant bits: points are the same on all machines but for the last digits."""
    if not x:
        return Fraction(0)
    mantissa, exponent = math.frexp(x)
    return Fraction(math.floor(mantissa * (1 << 30)) + 1) * Fraction(2) ** (exponent - 30)


@lru_cache(maxsize=4096)
def _exp(x: Fraction) -> tuple[Fraction, Fraction]:
    low, high = exp(x, _BITS)
    return Fraction(low, 1 << _BITS), Fraction(high, 1 << _BITS)


def _gaussian_below(epsilon: Fraction, mu_squared: Fraction) -> Fraction:
    """G, rounded down: at a μ that is rounded down, the upper bound is within 2^-60 of itself."""
    above = gaussian_delta(epsilon, (mu_squared / ceil_sqrt(mu_squared)) ** 2)
    return above * (1 - Fraction(1, 1 << 50)) if above > _LEAST_CLOSE else Fraction(0)


def _slope(epsilon: Fraction, mu_squared: Fraction) -> tuple[Fraction, Fraction]:
    """−dG/de^ε = Pr[Z > ε/μ + μ/2] between two bounds."""
    high = ceil_sqrt(mu_squared)
    low = mu_squared / high  # √x is between x/h and h
    far, near = epsilon / low + high / 2, epsilon / high + low / 2
    bits = 256
    return (
        Fraction(normal_tail(_short_up(far), bits)[0], 2 << bits),
        Fraction(normal_tail(_short_down(near), bits)[1], 2 << bits),
    )


def _short_up(x: Fraction) -> Fraction:
    return Fraction(-((-x.numerator << 60) // x.denominator), 1 << 60)


def _short_down(x: Fraction) -> Fraction:
    return Fraction((x.numerator << 60) // x.denominator, 1 << 60)


def least_mu_squared(epsilon: float, delta: float) -> float:
    """About the least μ² with a δ of this size at ε; only a guess."""
    if delta <= 1e-300:
        return 0.0
    low, high = 0.0, 1.0
    while _rough_gaussian(epsilon, high) < delta and high < 1e6:
        high *= 2
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if _rough_gaussian(epsilon, middle) < delta else (low, middle)
    return high


def _rough_gaussian(epsilon: float, mu_squared: float) -> float:
    mu = math.sqrt(mu_squared)
    a, b = epsilon / mu - mu / 2, epsilon / mu + mu / 2
    return _tail(a) - math.exp(min(epsilon, 700.0)) * _tail(b)


def _tail(x: float) -> float:
    return math.erfc(x / math.sqrt(2)) / 2
