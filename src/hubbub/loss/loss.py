"""What a release may cost one person: the privacy loss as a curve δ(ε), always rounded up.

A loss is kept as three exact numbers: an (ε, δ) part and a Gaussian part μ² that are composed. They
stay three under composition and for groups, so a sum of many losses is as small as one.

Proof: docs/proofs/loss.md
"""

import math
import struct
import sys
from collections.abc import Callable
from dataclasses import dataclass
from decimal import ROUND_CEILING, Context, Decimal
from fractions import Fraction
from functools import lru_cache

from hubbub.errors import InvalidInput, Unsupported
from hubbub.loss.normal import gaussian_delta
from hubbub.noise.real import exp, exp_neg
from hubbub.rational import Number, as_read, at_least_zero, ceil_sqrt, probability, round_up, whole

__all__ = ["Cost", "Loss", "largest_mu"]

_MOST_EPSILON = 5000
"""Beyond it e^ε is not written out; where it would be, δ is said to be 1."""
_BITS = 128


@dataclass(frozen=True)
class Cost:
    """The exact figures that add up under adaptive composition."""

    epsilon: Fraction | None
    """Pure ε, or None where no finite ε holds for every outcome."""
    delta: Fraction
    rho: Fraction | None
    """zCDP, of the part that is not charged to delta."""


@dataclass(frozen=True)
class Loss:
    """The privacy loss of something fixed beforehand.

    >>> Loss.pure(0.5) + Loss.pure(0.5) == Loss.pure(1)
    True
    >>> round(Loss.gaussian(1).epsilon(1e-6), 4)
    4.8866

    Guarantee: for all neighbours and events, Pr[M(x) ∈ S] ≤ e^ε·Pr[M(y) ∈ S] + δ(ε), at every ε.
    Assumes: the mechanism it came from; sums of losses fixed beforehand.
    Proof: docs/proofs/loss.md
    """

    _epsilon: Fraction
    _delta: Fraction
    _mu_squared: Fraction

    @classmethod
    def pure(cls, epsilon: Number) -> "Loss":
        """Pure ε: no outcome is more than e^ε times likelier with a person than without."""
        return cls(at_least_zero(epsilon, "epsilon"), Fraction(0), Fraction(0))

    @classmethod
    def approximate(cls, epsilon: Number, delta: Number) -> "Loss":
        """(ε, δ) and nothing more is known."""
        return cls(at_least_zero(epsilon, "epsilon"), probability(delta, "delta"), Fraction(0))

    @classmethod
    def gaussian(cls, mu: Number) -> "Loss":
        """Gaussian noise of σ = Δ₂/μ."""
        return cls.gaussian_squared(at_least_zero(mu, "mu") ** 2)

    @classmethod
    def gaussian_squared(cls, mu_squared: Number) -> "Loss":
        """Gaussian noise of μ² = Δ₂²/σ², kept exact where μ itself is irrational."""
        return cls(Fraction(0), Fraction(0), at_least_zero(mu_squared, "mu_squared"))

    def delta(self, epsilon: Number) -> float:
        """An upper bound of δ at ε.

        >>> Loss.pure(1).delta(1)
        0.0
        """
        return round_up(min(Fraction(1), self._delta_at(at_least_zero(epsilon, "epsilon"))))

    def epsilon(self, delta: Number = 0) -> float:
        """An upper bound of the least ε that holds with δ; infinite where none does.

        >>> Loss.pure(Fraction(1, 10)).epsilon()
        0.1
        """
        allowed = at_least_zero(delta, "delta")
        if allowed >= 1:
            raise InvalidInput("delta is 1 or more", why="it would promise nothing", fix="pass delta below 1")
        if allowed == self._delta and not self._mu_squared:
            return round_up(self._epsilon)
        return _least_epsilon(self, allowed) if allowed > self._delta else math.inf

    def __add__(self, other: "Loss") -> "Loss":
        """Both, composed: ε and δ add, μ adds in squares."""
        if not isinstance(other, Loss):
            return NotImplemented
        return Loss(
            self._epsilon + other._epsilon,
            min(Fraction(1), self._delta + other._delta),
            self._mu_squared + other._mu_squared,
        )

    def __mul__(self, times: int) -> "Loss":
        """The same, `times` times over."""
        repeats = whole(times, "times", least=0)
        return Loss(
            self._epsilon * repeats, min(Fraction(1), self._delta * repeats), self._mu_squared * repeats
        )

    def for_group(self, size: int) -> "Loss":
        """What it costs a group of `size` people together.

        Pure ε becomes kε, μ becomes kμ, and (ε, δ) becomes (kε, δ·(e^kε − 1)/(e^ε − 1)).

        >>> Loss.pure(0.5).for_group(3) == Loss.pure(1.5)
        True
        """
        k = whole(size, "size")
        return Loss(
            k * self._epsilon,
            min(Fraction(1), _group_delta(self._epsilon, self._delta, k)),
            k * k * self._mu_squared,
        )

    def cost(self) -> Cost:
        """The exact figures a filter adds up."""
        if self._mu_squared:
            rho = self._epsilon**2 / 2 + self._mu_squared / 2
            return Cost(None, self._delta, rho)
        return Cost(self._epsilon, self._delta, self._epsilon**2 / 2)

    def __str__(self) -> str:
        parts = []
        if self._epsilon or not self._mu_squared:
            parts.append(f"ε = {_shown(self._epsilon)}")
        if self._delta:
            parts.append(f"δ = {_shown(self._delta)}")
        if self._mu_squared:
            parts.append(f"Gaussian μ = {_shown(ceil_sqrt(self._mu_squared))}")
        return ", ".join(parts)

    def _delta_at(self, epsilon: Fraction) -> Fraction:
        """δ at ε, rounded up to a rational.

        Tight for what is known: of all that is (E, D)-private the worst tells everything with
        probability D, and else its loss is E with probability 1/(1 + e^−E), or −E.
        """
        worst = _shifted_delta(epsilon - self._epsilon, self._mu_squared)
        if self._epsilon:
            best = _shifted_delta(epsilon + self._epsilon, self._mu_squared)
            often = Fraction(1 << _BITS, (1 << _BITS) + exp_neg(self._epsilon, _BITS)[0])
            worst = best + often * (worst - best)
        return self._delta + (1 - self._delta) * worst


def _shifted_delta(epsilon: Fraction, mu_squared: Fraction) -> Fraction:
    """δ of the Gaussian curve at any ε, also below zero, where it is 1 − e^ε·(1 − δ(−ε)); rounded up."""
    beyond = gaussian_delta(abs(epsilon), mu_squared) if mu_squared else Fraction(0)
    if epsilon >= 0:
        return beyond
    low, high = exp_neg(-epsilon, _BITS)
    # 1 − e^−x ≤ x: closer than 128 bits where x is small.
    return min(-epsilon, 1 - Fraction(low, 1 << _BITS)) + Fraction(high, 1 << _BITS) * beyond


@lru_cache(maxsize=1024)
def _least_epsilon(loss: Loss, delta: Fraction) -> float:
    """The least double at which the bound of δ is within `delta`, which is above the loss's own δ."""
    if loss._delta_at(Fraction(0)) <= delta:  # noqa: SLF001
        return 0.0
    own = loss._delta  # noqa: SLF001
    mu = ceil_sqrt(loss._mu_squared)  # noqa: SLF001
    # A Gaussian tail reaches about so far; the pure part moves it.
    guess = loss._epsilon + mu * mu / 2 + mu * _reach(delta - own)  # noqa: SLF001
    return _least_double(lambda epsilon: loss._delta_at(as_read(epsilon)) - own, delta - own, guess)  # noqa: SLF001


@lru_cache(maxsize=1024)
def largest_mu(epsilon: Fraction, delta: Fraction) -> Fraction:
    """The largest μ at which Gaussian noise is (ε, δ)-private, such that 1/μ is a double.

    >>> round(float(largest_mu(Fraction(1), Fraction(1, 10**6))), 4)
    0.2367
    """
    reach = _reach(delta)
    # About ε = μ²/2 + μ·reach; but where ε is tiny, δ ≤ μ/√(2π) alone decides.
    guess = max(ceil_sqrt(reach * reach + 2 * epsilon) - reach, delta * Fraction(5, 2))
    sigma = _least_double(lambda sigma: gaussian_delta(epsilon, 1 / Fraction(sigma) ** 2), delta, 1 / guess)
    if math.isinf(sigma):
        raise Unsupported(
            "epsilon and delta are too small together",
            why="the noise would be wider than any double",
            fix="choose a larger epsilon or delta",
        )
    return 1 / Fraction(sigma)


def _reach(delta: Fraction) -> Fraction:
    """Roughly how many standard deviations out the tail is δ."""
    return Fraction(math.sqrt(-2 * _log(delta)))


def _log(x: Fraction) -> float:
    """The logarithm, roughly, also where x is no double."""
    if abs(x - 1) < Fraction(1, 2):
        return math.log1p(float(x - 1))
    return math.log(x.numerator) - math.log(x.denominator)


def _least_double(curve: Callable[[float], Fraction], most: Fraction, guess: Fraction) -> float:
    """The least double x > 0 with curve(x) ≤ most, where curve falls; infinite where there is none.

    The guess and the secants only save time: what is returned has been verified to hold, and the
    double below it not to.
    """
    curve = lru_cache(maxsize=None)(curve)
    start = _secants(curve, most, min(max(round_up(guess), 5e-324), sys.float_info.max))

    def holds(place: int) -> bool:
        return place >= _INFINITY or curve(_double(place)) <= most

    low, high, step = _place(start) - 1, _place(start), 2
    while low > 0 and holds(low):
        low, high, step = max(low - step, 0), low, 2 * step
    while not holds(high):
        low, high, step = high, high + step, 2 * step
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return _double(high)


def _place(x: float) -> int:
    """The place of x among the doubles from 0 on: its bits, read as an integer."""
    place: int = struct.unpack("<q", struct.pack("<d", x))[0]
    return place


def _double(place: int) -> float:
    x: float = struct.unpack("<d", struct.pack("<q", min(place, _INFINITY)))[0]
    return x


_INFINITY = _place(math.inf)


def _secants(curve: Callable[[float], Fraction], most: Fraction, start: float) -> float:
    """Close to where ln curve crosses ln most, if it is smooth; else wherever the secants led."""
    left, right = start * 0.99, start
    below, above = curve(left) / most, curve(right) / most
    for _ in range(16):
        # Nothing to follow where the curve is flat, has fallen to 0, or has been followed to its end.
        rise = _log(above) - _log(below) if above else 0.0
        if not rise:
            break
        left, below, right = right, above, right - _log(above) * (right - left) / rise
        if not 0 < right < math.inf:
            return left
        above = curve(right) / most
    return right


def _group_delta(epsilon: Fraction, delta: Fraction, k: int) -> Fraction:
    """δ·(e^kε − 1)/(e^ε − 1) = δ·(1 + e^ε + … + e^(k−1)ε), rounded up."""
    if epsilon == 0 or delta == 0 or k == 1:
        return k * delta
    if k * epsilon > _MOST_EPSILON:
        return Fraction(1)
    # As many bits more as ε is small, for e^ε − 1 is as small.
    bits = 256 + max(0, epsilon.denominator.bit_length() - epsilon.numerator.bit_length())
    top = exp(k * epsilon, bits)[1] - (1 << bits)
    bottom = exp(epsilon, bits)[0] - (1 << bits)
    return delta * Fraction(top, bottom)


def _shown(exact: Fraction) -> str:
    """Six digits, rounded up as everything that is said of a loss."""
    near = Context(prec=6, rounding=ROUND_CEILING).divide(
        Decimal(exact.numerator), Decimal(exact.denominator)
    )
    return f"{round_up(Fraction(near)):.6g}"
