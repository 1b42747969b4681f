"""Events: mechanisms as exact numbers, each with its dominating pair.

Accountants compute in doubles, so an event gives its pair twice: with parameters rounded so that the pair
dominates the mechanism (`upper`), and rounded so that the mechanism dominates it. If a double is the number
itself, or the pair allows for rounding, both are the same.

Proof: docs/proofs/events.md
"""

import contextlib
import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from hubbub.accounting.discrete_pairs import (
    DiscretePair,
    epsilon_delta_pair,
)
from hubbub.accounting.dominating_pairs import BoundedRangePair, GaussianPair, LaplacePair
from hubbub.accounting.float_bounds import (
    Uncertified,
    amplified_epsilon,
    float_above,
    float_below,
    group_delta,
    inverse_sqrt,
    require_normal_float,
)
from hubbub.accounting.subsampled_gaussian import SubsampledGaussians
from hubbub.accounting.subsampled_laplace import SubsampledLaplacePair
from hubbub.accounting.subsampled_pairs import (
    SubsampledGaussianGroupPair,
    SubsampledGaussianPair,
    SubsampledPair,
    symmetrize,
)
from hubbub.errors import InvalidInput, Unsupported
from hubbub.numbers import ceil_sqrt, format_up, round_up

__all__ = [
    "RENYI_MARGIN",
    "BoundedRange",
    "EpsilonDelta",
    "Event",
    "Gaussian",
    "Laplace",
    "Subsampled",
    "SubsampledGaussianGroup",
]

_MAX_GROUP_SIZE = 8
RENYI_MARGIN = 1 + 2.0**-36
"""Rényi figures are raised by this factor: moments are accurate to some hundred units of roundoff."""


class Event(ABC):
    """Abstract: one mechanism, run once."""

    @cached_property
    def key(self) -> str:
        """Two events are equal exactly if their keys are."""
        return repr(self)

    @cached_property
    def is_zero(self) -> bool:
        """True if it costs nothing at all."""
        return self.max_loss == 0 and not self.infinity_mass

    @abstractmethod
    def dominating_pair(self, *, added: bool, upper: bool) -> Any:
        """The dominating pair of one direction; raises `Uncertified` if there is none.

        Args:
            added: The unit is in the second database only; if False, in the first only.
            upper: Round so that the pair dominates the mechanism; if False, so that it is dominated.
        """

    @property
    @abstractmethod
    def max_loss(self) -> Fraction | None:
        """An upper bound of all finite losses; None if there is none."""

    @property
    def infinity_mass(self) -> Fraction:
        """The probability of an infinite loss; all other figures are about the rest."""
        return Fraction(0)

    @property
    def tight(self) -> bool:
        """True if the event is the mechanism itself; False if it only bounds one that may be better."""
        return True

    @property
    def symmetric(self) -> bool:
        """True if both directions, adding and removing a unit, have the same pair."""
        return True

    @property
    def relation(self) -> str:
        """The neighbouring relation it is stated for; empty if it holds for any."""
        return ""

    @property
    def rho(self) -> Fraction | None:
        """ρ of zCDP, ε²/2 if the loss is bounded by ε; None if unknown."""
        return None if self.max_loss is None else self.max_loss**2 / 2

    def renyi(self, alpha: float) -> float:
        """An upper bound of the Rényi divergence of order α > 1, in both directions."""
        bound = math.inf if self.max_loss is None else round_up(self.max_loss)
        with np.errstate(all="ignore"), contextlib.suppress(Uncertified):
            moments = [
                pair.log_moment_upper(alpha - 1) if not pair.infinity_mass else math.inf
                for added in ((False,) if self.symmetric else (False, True))
                if isinstance(
                    pair := self.dominating_pair(added=added, upper=True),
                    (DiscretePair, LaplacePair),
                )
            ]
            if moments and all(map(math.isfinite, moments)):
                bound = min(bound, max(0.0, *map(float, moments)) / (alpha - 1) * RENYI_MARGIN)
        return bound

    def for_group(self, size: int) -> "Event":
        """The event for a group of `size` units together."""
        if self.max_loss is None:
            raise Unsupported(
                "the loss of a group is not known for this mechanism",
                why="its loss is unbounded, and no theorem bounds it for a group",
                fix="state the mechanism with the group's own sensitivity",
            )
        return EpsilonDelta(size * self.max_loss, tight=False)

    def poisson_subsampled(self, rate: Fraction) -> "Event":
        """The same on a Poisson sample."""
        return Subsampled(self, rate)

    def truncated(self) -> "Event":
        """An event with finite losses only, apart from its infinity mass; used for costs."""
        return self

    @abstractmethod
    def __str__(self) -> str: ...


@dataclass(frozen=True)
class EpsilonDelta(Event):
    """Any (ε, δ)-DP mechanism, at its worst: randomized response with an infinity mass of δ."""

    epsilon: Fraction
    delta: Fraction = Fraction(0)
    tight: bool = field(default=True, compare=False, repr=False)
    """False if this is only an upper bound of the mechanism."""

    def dominating_pair(self, *, added: bool, upper: bool) -> DiscretePair:  # noqa: ARG002
        """Two losses, ±ε."""
        return epsilon_delta_pair(self.epsilon)

    @property
    def max_loss(self) -> Fraction:
        """ε."""
        return self.epsilon

    @property
    def infinity_mass(self) -> Fraction:
        """δ."""
        return self.delta

    def for_group(self, size: int) -> "EpsilonDelta":
        """(kε, δ·(e^kε − 1)/(e^ε − 1))."""
        delta = min(Fraction(1), group_delta(self.epsilon, self.delta, size))
        return EpsilonDelta(size * self.epsilon, delta, tight=False)

    def poisson_subsampled(self, rate: Fraction) -> Event:
        """(ln(1 + q(e^ε − 1)), qδ); without δ, the law itself."""
        if not self.delta:
            return Subsampled(self, rate)
        return EpsilonDelta(amplified_epsilon(self.epsilon, rate), rate * self.delta, tight=False)

    def renyi(self, alpha: float) -> float:
        """ln(cosh((α − ½)ε)/cosh(ε/2))/(α − 1)."""
        e = round_up(self.epsilon)
        if alpha * e > 600:
            return e
        if alpha * e < 1e-100:
            return max(alpha * e * e, 5e-324)  # twice the value, which underflows
        gained = 2 * math.sinh(alpha * e / 2) * math.sinh((alpha - 1) * e / 2) / math.cosh(e / 2)
        return min(e, math.log1p(gained) / (alpha - 1) * RENYI_MARGIN)

    def __str__(self) -> str:
        return f"ε = {format_up(self.epsilon)}" + (f", δ = {format_up(self.delta)}" if self.delta else "")


@dataclass(frozen=True)
class Gaussian(Event):
    """Gaussian noise with μ² = Δ₂²/σ²."""

    mu_squared: Fraction

    def dominating_pair(self, *, added: bool, upper: bool) -> GaussianPair:  # noqa: ARG002
        """Two normal distributions, μ apart."""
        return GaussianPair(
            require_normal_float(float_above(self.mu_squared) if upper else float_below(self.mu_squared))
        )

    @property
    def max_loss(self) -> None:
        """None: the normal distribution has no end."""
        return

    @property
    def rho(self) -> Fraction:
        """μ²/2."""
        return self.mu_squared / 2

    def renyi(self, alpha: float) -> float:
        """αμ²/2."""
        return alpha * float_above(self.mu_squared / 2) * RENYI_MARGIN

    def for_group(self, size: int) -> "Gaussian":
        """μ grows with the group."""
        return Gaussian(size**2 * self.mu_squared)

    def __str__(self) -> str:
        return f"Gaussian μ = {format_up(ceil_sqrt(self.mu_squared))}"


@dataclass(frozen=True)
class Laplace(Event):
    """Laplace noise of scale b, with ε = Δ₁/b."""

    epsilon: Fraction

    def dominating_pair(self, *, added: bool, upper: bool) -> LaplacePair:  # noqa: ARG002
        """Two Laplace distributions, ε scales apart."""
        return LaplacePair(
            require_normal_float(float_above(self.epsilon) if upper else float_below(self.epsilon))
        )

    @property
    def max_loss(self) -> Fraction:
        """Δ₁/b."""
        return self.epsilon

    def for_group(self, size: int) -> "Laplace":
        """The distance grows with the group."""
        return Laplace(size * self.epsilon)

    def __str__(self) -> str:
        return f"ε = {format_up(self.epsilon)}"


@dataclass(frozen=True)
class BoundedRange(Event):
    """Bounded range, as of the exponential mechanism: all losses lie in one interval of length ε."""

    epsilon: Fraction

    def dominating_pair(
        self,
        *,
        added: bool,  # noqa: ARG002
        upper: bool,
    ) -> BoundedRangePair | DiscretePair:
        """The worst of all such pairs; for lower bounds, the one with an interval centred at 0."""
        return (
            BoundedRangePair(require_normal_float(float_above(self.epsilon)))
            if upper
            else epsilon_delta_pair(self.epsilon / 2)
        )

    @property
    def max_loss(self) -> Fraction:
        """ε."""
        return self.epsilon

    @property
    def rho(self) -> Fraction:
        """ε²/8."""
        return self.epsilon**2 / 8

    def renyi(self, alpha: float) -> float:
        """αε²/8, or ε."""
        return min(alpha * float_above(self.rho) * RENYI_MARGIN, float_above(self.epsilon))

    def for_group(self, size: int) -> "BoundedRange":
        """The interval grows with the group."""
        return BoundedRange(size * self.epsilon)

    def __str__(self) -> str:
        return f"ε = {format_up(self.epsilon)}"


@dataclass(frozen=True)
class Subsampled(Event):
    """A mechanism run on a random sample of the units.

    A Poisson sample, under add/remove: each unit is drawn independently with probability `sampling_rate`. If
    `without_replacement`, a sample of fixed size, under substitution.
    """

    base: Event
    sampling_rate: Fraction
    without_replacement: bool = False

    def __post_init__(self) -> None:
        if self.base.infinity_mass:
            raise InvalidInput(
                "a subsampled event has an infinity mass",
                why="its pair leaves out the infinity mass of its base",
                fix="subsample the loss: PrivacyLoss.approximate(epsilon, delta).poisson_subsampled(rate)",
            )

    def dominating_pair(self, *, added: bool, upper: bool) -> Any:
        """The mixture against the distribution without the unit, or the other way round."""
        rate = require_normal_float(
            float_above(self.sampling_rate) if upper else float_below(self.sampling_rate)
        )
        inner = self.base.dominating_pair(added=False, upper=upper)
        if self.without_replacement and upper:
            return symmetrize(SubsampledPair(inner, rate, added=False))
        if isinstance(self.base, Gaussian) and not self.without_replacement:
            return SubsampledGaussianPair(rate, inverse_sqrt(self.base.mu_squared, upper=upper), added)
        if isinstance(inner, LaplacePair) and rate < 1:
            return SubsampledLaplacePair(inner.epsilon, rate, added)
        return SubsampledPair(inner, rate, added)

    @property
    def max_loss(self) -> Fraction | None:
        """ln(1 + rate·(e^most − 1)), rounded up."""
        return (
            None if self.base.max_loss is None else amplified_epsilon(self.base.max_loss, self.sampling_rate)
        )

    @property
    def rho(self) -> Fraction | None:
        """No more than without sampling."""
        known = [rho for rho in (super().rho, self.base.rho) if rho is not None]
        return min(known, default=None)

    @property
    def symmetric(self) -> bool:
        """False: the mixture is on one side."""
        return False

    @property
    def relation(self) -> str:
        """Poisson sampling is analysed under add/remove."""
        return "substitution" if self.without_replacement else "add/remove"

    def renyi(self, alpha: float) -> float:
        """By quadrature for Gaussian noise, else by moments or by convexity."""
        return _subsampled_renyi(self, alpha)

    def for_group(self, size: int) -> Event:
        """A mixture over how many of the group were sampled."""
        if isinstance(self.base, Gaussian) and not self.without_replacement and size > 1:
            return SubsampledGaussianGroup(self.base.mu_squared, self.sampling_rate, size)
        if size == 1:
            return self
        return super().for_group(size)

    def poisson_subsampled(self, rate: Fraction) -> "Subsampled":
        """A sample of a sample."""
        if self.without_replacement:
            raise Unsupported(
                "a sample of fixed size is Poisson-subsampled",
                why="its loss is stated under substitution, Poisson subsampling under add/remove",
                fix="state both as one Poisson sample",
            )
        return Subsampled(self.base, self.sampling_rate * rate)

    def __str__(self) -> str:
        how = "of a fixed-size sample" if self.without_replacement else "of a Poisson sample"
        return f"({self.base}) {how}, rate {format_up(self.sampling_rate)}"


@dataclass(frozen=True)
class SubsampledGaussianGroup(Event):
    """A group of units in a Poisson sample of a Gaussian mechanism."""

    mu_squared: Fraction
    sampling_rate: Fraction
    group_size: int

    def dominating_pair(self, *, added: bool, upper: bool) -> Any:
        """The mixture over how many were sampled; for a large group, all of them."""
        mu_squared = float_above(self.mu_squared) if upper else float_below(self.mu_squared)
        if self.group_size > _MAX_GROUP_SIZE:
            if not upper:
                raise Uncertified
            return GaussianPair(float_above(self.group_size**2 * self.mu_squared))
        return SubsampledGaussianGroupPair(
            float_above(self.sampling_rate) if upper else float_below(self.sampling_rate),
            mu_squared,
            self.group_size,
            added,
        )

    @property
    def max_loss(self) -> None:
        """None: the normal distribution has no end."""
        return

    @property
    def symmetric(self) -> bool:
        """False: the mixture is on one side."""
        return False

    @property
    def relation(self) -> str:
        """Poisson sampling is analysed under add/remove."""
        return "add/remove"

    def renyi(self, alpha: float) -> float:
        """By convexity, from the divergence for each number of sampled members."""
        if self.group_size > _MAX_GROUP_SIZE:
            return Gaussian(self.group_size**2 * self.mu_squared).renyi(alpha)
        # survives: Where e^x would overflow, another bound is returned.
        log_growth = [
            math.comb(self.group_size, j)
            * float_above(self.sampling_rate) ** j
            * (1 - float_below(self.sampling_rate)) ** (self.group_size - j)
            * math.expm1(min(709.0, (alpha - 1) * Gaussian(j * j * self.mu_squared).renyi(alpha)))
            for j in range(1, self.group_size + 1)
        ]
        max_loss = Gaussian(self.group_size**2 * self.mu_squared).renyi(alpha)
        # survives: Where one bound takes over from the other is free: both hold.
        if (alpha - 1) * max_loss > 700:
            return max_loss
        return max(5e-324, math.log1p(math.fsum(log_growth)) / (alpha - 1) * RENYI_MARGIN)

    def poisson_subsampled(self, rate: Fraction) -> Event:
        """Refused: the members may be drawn together, or each by itself."""
        raise Unsupported(
            f"the loss of a group is subsampled at rate {format_up(rate)}",
            why="its members may be drawn together or each by itself",
            fix="subsample first, and ask for the group then",
        )

    def for_group(self, size: int) -> "SubsampledGaussianGroup":
        """A larger group."""
        return SubsampledGaussianGroup(self.mu_squared, self.sampling_rate, self.group_size * size)

    def __str__(self) -> str:
        sample = f"({Gaussian(self.mu_squared)}) of a Poisson sample, rate {format_up(self.sampling_rate)}"
        return f"{sample}, group of {self.group_size}"


@lru_cache(maxsize=4096)
def _subsampled_renyi(event: Subsampled, alpha: float) -> float:
    c, rate = alpha - 1, float_above(event.sampling_rate)
    unsampled = event.base.renyi(alpha)
    # The power mean of a mixture is no more than the mixture of the powers.
    log_growth = c * unsampled
    # survives: Where one bound takes over from the other is free: both hold.
    by_convexity = (
        (log_growth if log_growth > 700 else math.log1p(rate * math.expm1(log_growth))) / c * RENYI_MARGIN
    )
    bound = min(unsampled, by_convexity)
    if event.max_loss is not None:
        bound = min(bound, EpsilonDelta(event.max_loss).renyi(alpha))
    if isinstance(event.base, Gaussian) and not event.without_replacement:
        sigma = inverse_sqrt(event.base.mu_squared, upper=True)
        one = (np.array([rate]), np.array([sigma]), np.ones(1))
        try:
            # survives: Nodes that would do for z off the real line, too, or a few less: the
            # error they bound is added.
            nodes = [SubsampledGaussians(*one, added=added).quadrature(c, 0.0) for added in (False, True)]
        except Uncertified:
            return bound
        bound = min(bound, max(node.moment + node.error for node in nodes) / c * RENYI_MARGIN)
    return bound
