"""What a release may cost one person: the privacy loss as a curve δ(ε), always rounded up.

A loss is kept as three exact numbers: an (ε, δ) part and a Gaussian part μ² that are composed. They
stay three under composition and for groups, so a sum of many losses is as small as one.

Proof: docs/proofs/loss.md
"""

from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

from hubbub.errors import InvalidInput
from hubbub.noise.real import Enclosure, central, exp
from hubbub.rational import Number, at_least_zero, ceil_sqrt, probability, round_up, whole

__all__ = ["Cost", "Loss", "largest_mu"]

_MOST_BITS = 2048
"""Where δ is smaller than 2^-2048, that is what is said."""
_MOST_EPSILON = 5000


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
        if self._mu_squared == 0 and allowed <= self._delta:
            return round_up(self._epsilon) if allowed == self._delta else float("inf")
        if allowed <= self._delta:
            return float("inf")
        return _least_epsilon(self, allowed)

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
            parts.append(f"Gaussian μ = {round_up(ceil_sqrt(self._mu_squared)):.6g}")
        return ", ".join(parts)

    def _delta_at(self, epsilon: Fraction) -> Fraction:
        """δ at ε, rounded up to a rational."""
        if self._mu_squared:
            # A pure part moves the loss by at most its ε; δ's add.
            if epsilon < self._epsilon:
                return Fraction(1)
            return self._delta + _gaussian_delta(epsilon - self._epsilon, self._mu_squared)
        if epsilon >= self._epsilon:
            return self._delta
        # Tight for what is only known to be (ε, δ): the worst such mechanism is randomized response.
        here, full = exp(epsilon, 128), exp(self._epsilon, 128)
        slope = Fraction(full[1] - here[0], (1 << 128) + full[0])
        return self._delta + (1 - self._delta) * slope


def _gaussian_delta(epsilon: Fraction, mu_squared: Fraction) -> Fraction:
    """Φ(μ/2 − ε/μ) − e^ε·Φ(−μ/2 − ε/μ), rounded up: to 2^-60 of itself unless it is below 2^-2048."""
    mu = ceil_sqrt(mu_squared)  # δ rises with μ
    bits = 128
    while True:
        first = _phi(mu / 2 - epsilon / mu, bits)
        second = _phi(-mu / 2 - epsilon / mu, bits)
        if epsilon > _MOST_EPSILON:
            low, high = 0, first[1]
        else:
            factor = exp(epsilon, bits)
            low = first[0] - (second[1] * factor[1] >> bits) - 1
            high = first[1] - (second[0] * factor[0] >> bits)
        if high - low <= high >> 60 or bits >= _MOST_BITS:
            return Fraction(high, 1 << bits)
        bits *= 2


def _phi(x: Fraction, bits: int) -> Enclosure:
    """2^bits·Φ(x)."""
    one = 1 << bits
    low, high = central(abs(x), bits)
    if x < 0:
        return one - high >> 1, (one - low >> 1) + 1
    return one + low >> 1, (one + high >> 1) + 1


def _least_epsilon(loss: Loss, delta: Fraction) -> float:
    """By bisection down to neighbouring doubles; the upper one holds."""
    low, high = 0.0, 1.0
    if loss._delta_at(Fraction(0)) <= delta:  # noqa: SLF001
        return 0.0
    while loss._delta_at(Fraction(high)) > delta:  # noqa: SLF001
        low, high = high, 2 * high
    for _ in range(60):
        middle = (low + high) / 2
        if middle in (low, high):
            break
        if loss._delta_at(Fraction(middle)) <= delta:  # noqa: SLF001
            high = middle
        else:
            low = middle
    return high


@lru_cache(maxsize=256)
def largest_mu(epsilon: Fraction, delta: Fraction) -> Fraction:
    """The largest μ (to 13 digits, rounded down) at which Gaussian noise is (ε, δ)-private.

    >>> round(float(largest_mu(Fraction(1), Fraction(1, 10**6))), 4)
    0.2367
    """
    low, high = Fraction(0), Fraction(1)
    while _gaussian_delta(epsilon, high * high) <= delta:
        low, high = high, 2 * high
    if low == 0:
        while _gaussian_delta(epsilon, high * high / 4) > delta:
            high /= 2
        low = high / 2
    for _ in range(44):
        middle = (low + high) / 2
        if _gaussian_delta(epsilon, middle * middle) <= delta:
            low = middle
        else:
            high = middle
    return low


def _group_delta(epsilon: Fraction, delta: Fraction, k: int) -> Fraction:
    """δ·(e^kε − 1)/(e^ε − 1) = δ·(1 + e^ε + … + e^(k−1)ε), rounded up."""
    if delta == 0:
        return Fraction(0)
    if k * epsilon > _MOST_EPSILON:
        return Fraction(1)
    if epsilon == 0:
        return k * delta
    top = exp(k * epsilon, 256)[1] - (1 << 256)
    bottom = exp(epsilon, 256)[0] - (1 << 256)
    return delta * Fraction(top, bottom) if bottom > 0 else Fraction(1)


def _shown(exact: Fraction) -> str:
    return f"{round_up(exact):.6g}"
