"""Events with finitely or countably many outcomes: discrete noise, randomized response, given distributions.

Proof: docs/proofs/events.md
"""

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

from hubbub.accounting.discrete_pairs import (
    DiscretePair,
    discrete_gaussian_pair,
    discrete_laplace_pair,
    finite_pair,
    randomized_response_pair,
)
from hubbub.accounting.dominating_pairs import LaplacePair
from hubbub.accounting.events import RENYI_MARGIN, EpsilonDelta, Event
from hubbub.accounting.float_bounds import float_above, float_below, log_upper
from hubbub.numbers import format_up

__all__ = ["DiscreteGaussian", "DiscreteLaplace", "FiniteDistributions", "RandomizedResponse"]

_MAX_ATOMS = 1 << 10
"""More losses than these are seen as fewer, further apart."""


@dataclass(frozen=True)
class DiscreteLaplace(Event):
    """Discrete Laplace noise of this scale on integers of this ℓ1 sensitivity."""

    scale: Fraction
    sensitivity: int

    def dominating_pair(
        self,
        *,
        added: bool,  # noqa: ARG002
        upper: bool,
    ) -> DiscretePair | LaplacePair:
        """One loss for each integer between the two answers; if these are many, a simpler pair."""
        if self.sensitivity <= _MAX_ATOMS:
            return discrete_laplace_pair(self.scale, self.sensitivity)
        if not upper:
            return LaplacePair(float_below(self.max_loss))
        if self.scale >= 1:
            return LaplacePair(float_above(self.max_loss + 1 / (2 * self.scale**2)))
        multiple = -(-self.sensitivity // _MAX_ATOMS)
        return discrete_laplace_pair(self.scale / multiple, -(-self.sensitivity // multiple))

    @property
    def max_loss(self) -> Fraction:
        """Sensitivity over scale."""
        return self.sensitivity / self.scale

    def for_group(self, size: int) -> "DiscreteLaplace":
        """The sensitivity grows with the group."""
        return DiscreteLaplace(self.scale, size * self.sensitivity)

    def __str__(self) -> str:
        return f"ε = {format_up(self.max_loss)}"


@dataclass(frozen=True)
class DiscreteGaussian(Event):
    """Discrete Gaussian noise of this variance on one integer of this sensitivity."""

    variance: Fraction
    sensitivity: int

    @cached_property
    def is_zero(self) -> bool:
        """True if the sensitivity is 0."""
        return not self.sensitivity

    def dominating_pair(self, *, added: bool, upper: bool) -> DiscretePair:  # noqa: ARG002
        """Evenly spaced losses."""
        return discrete_gaussian_pair(self.variance, self.sensitivity)

    @property
    def max_loss(self) -> None:
        """None: the distribution has no end."""
        return

    @property
    def rho(self) -> Fraction:
        """Δ²/2σ²."""
        return self.sensitivity**2 / (2 * self.variance)

    def renyi(self, alpha: float) -> float:
        """αΔ²/2σ²."""
        return alpha * float_above(self.rho) * RENYI_MARGIN

    def for_group(self, size: int) -> "DiscreteGaussian":
        """The sensitivity grows with the group."""
        return DiscreteGaussian(self.variance, size * self.sensitivity)

    def __str__(self) -> str:
        return f"discrete Gaussian Δ²/σ² = {format_up(2 * self.rho)}"


@dataclass(frozen=True)
class RandomizedResponse(Event):
    """Randomized response: the truth with this probability, else one of the other categories."""

    truth_probability: Fraction
    categories: int

    def dominating_pair(self, *, added: bool, upper: bool) -> DiscretePair:  # noqa: ARG002
        """Three losses: the one truth reported, the other truth reported, neither."""
        return randomized_response_pair(self.truth_probability, self.categories)

    @property
    def max_loss(self) -> Fraction:
        """The logarithm of the truth's probability over another category's, rounded up."""
        return log_upper(self.truth_probability * (self.categories - 1) / (1 - self.truth_probability))

    def __str__(self) -> str:
        return f"ε = {format_up(self.max_loss)}"


@dataclass(frozen=True)
class FiniteDistributions(Event):
    """Two distributions on the same finitely many outcomes: with the unit, and without it."""

    p: tuple[Fraction, ...]
    q: tuple[Fraction, ...]

    def dominating_pair(self, *, added: bool, upper: bool) -> DiscretePair:  # noqa: ARG002
        """P against Q, or Q against P."""
        return finite_pair(self.q, self.p) if added else finite_pair(self.p, self.q)

    @property
    def max_loss(self) -> Fraction | None:
        """The largest log-ratio either way; None if an outcome is impossible under one of them."""
        # survives: Both laws are as long as each other: the door checked it.
        both = [(a, b) for a, b in zip(self.p, self.q, strict=True) if a or b]
        if any(not a or not b for a, b in both):
            return None
        return max(log_upper(max(a / b, b / a)) for a, b in both)

    @property
    def symmetric(self) -> bool:
        """False: the two may differ."""
        return False

    def truncated(self) -> Event:
        """ε of the outcomes possible under both, and δ, the mass of the others."""
        if self.max_loss is not None:
            return self
        # survives: Both laws are as long as each other: the door checked it.
        both = [(a, b) for a, b in zip(self.p, self.q, strict=True) if a and b]
        # survives: Both laws are as long as each other: the door checked it.
        lone = [
            sum((a for a, b in zip(*laws, strict=True) if not b), Fraction(0))
            for laws in ((self.p, self.q), (self.q, self.p))
        ]
        return EpsilonDelta(
            max((log_upper(max(a / b, b / a)) for a, b in both), default=Fraction(0)), max(lone)
        )

    def __str__(self) -> str:
        return f"two distributions on {len(self.p)} outcomes"
