"""What a loss is made of: mechanisms as exact numbers, each knowing its worst pair of laws.

Engines compute in doubles, so a part gives its pair twice: with numbers rounded so that the pair is no
better than the part (`up`), and so that it is no worse. Where a double is the number itself, or the pair
allows for rounding, both are the same.

Proof: docs/proofs/parts.md
"""

import contextlib
import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from hubbub.accounting import dominating_pairs
from hubbub.accounting.dominating_pairs import BoundedRangePair, SubsampledGroupPair, mirror_pair
from hubbub.accounting.float_bounds import (
    Uncertified,
    above,
    amplified,
    below,
    group_delta,
    log_above,
    root_inverse,
    usable,
)
from hubbub.accounting.subsampled_gaussian import SampledGaussians
from hubbub.errors import Unsupported
from hubbub.numbers import ceil_sqrt, format_up, round_up

__all__ = [
    "CLOSE",
    "BoundedRange",
    "DiscreteGaussian",
    "DiscreteLaplace",
    "Event",
    "Finite",
    "Gaussian",
    "Laplace",
    "Pure",
    "RandomizedResponse",
    "Subsampled",
    "SubsampledGroup",
]

_MOST_ATOMS = 1 << 10
"""More losses than these are seen as fewer, further apart."""
_MOST_GROUP = 8
CLOSE = 1 + 2.0**-36
"""By so much Rényi figures are raised: moments are good to some hundred units."""


class Event(ABC):
    """Abstract: what one mechanism costs."""

    @cached_property
    def key(self) -> str:
        """Two parts are the same just if this is."""
        return repr(self)

    @cached_property
    def is_nothing(self) -> bool:
        """Whether it costs nothing at all."""
        return self.most == 0 and not self.told

    @abstractmethod
    def side(self, *, added: bool, up: bool) -> Any:
        """The pair of laws when a unit is added, or removed; `Uncertified` where there is none."""

    @property
    @abstractmethod
    def most(self) -> Fraction | None:
        """An upper bound of every outcome's loss; None where there is none."""

    @property
    def told(self) -> Fraction:
        """The chance that everything is told; what else is said of a part is about the rest."""
        return Fraction(0)

    @property
    def sharp(self) -> bool:
        """Whether some such mechanism is meant; if not, it is a bound of one that may be better."""
        return True

    @property
    def symmetric(self) -> bool:
        """Whether adding a unit and removing one look the same."""
        return True

    @property
    def relation(self) -> str:
        """The neighbours it is about; empty, if it is stated for whichever its mechanism was."""
        return ""

    @property
    def rho(self) -> Fraction | None:
        """Zero-concentrated privacy, as far as is known: ε²/2 of what is pure."""
        return None if self.most is None else self.most**2 / 2

    def renyi(self, alpha: float) -> float:
        """An upper bound of the Rényi divergence of order α > 1, in both directions."""
        found = math.inf if self.most is None else round_up(self.most)
        with np.errstate(all="ignore"), contextlib.suppress(Uncertified):
            moments = [
                side.real_moment(alpha - 1) if not side.certain else math.inf
                for added in ((False,) if self.symmetric else (False, True))
                if isinstance(
                    side := self.side(added=added, up=True),
                    (dominating_pairs.DiscretePair, dominating_pairs.LaplacePair),
                )
            ]
            if moments and all(map(math.isfinite, moments)):
                found = min(found, max(0.0, *map(float, moments)) / (alpha - 1) * CLOSE)
        return found

    def group(self, size: int) -> "Event":
        """What it costs `size` units together."""
        if self.most is None:
            raise Unsupported(
                "what this loss costs a group is not known",
                why="it is unbounded, and no rule says how a group moves it",
                fix="state the mechanism with the group's own sensitivity",
            )
        return Pure(size * self.most, sharp=False)

    def poisson_subsampled(self, rate: Fraction) -> "Event":
        """The same on a Poisson sample."""
        return Subsampled(self, rate)

    def cut(self) -> "Event":
        """What is charged for: a part all of whose losses are finite, but for what it tells."""
        return self

    @abstractmethod
    def __str__(self) -> str: ...


@dataclass(frozen=True)
class Pure(Event):
    """Anything (ε, δ)-private: randomized response, which with probability δ tells everything."""

    epsilon: Fraction
    delta: Fraction = Fraction(0)
    sharp: bool = field(default=True, compare=False, repr=False)
    """Whether some such mechanism is meant, or this is only a bound of one that is not as bad."""

    def side(self, *, added: bool, up: bool) -> dominating_pairs.DiscretePair:  # noqa: ARG002
        """Two losses, ±ε."""
        return dominating_pairs.two_points(self.epsilon)

    @property
    def most(self) -> Fraction:
        """ε."""
        return self.epsilon

    @property
    def told(self) -> Fraction:
        """δ."""
        return self.delta

    def group(self, size: int) -> "Pure":
        """(kε, δ·(e^kε − 1)/(e^ε − 1))."""
        delta = min(Fraction(1), group_delta(self.epsilon, self.delta, size))
        return Pure(size * self.epsilon, delta, sharp=False)

    def poisson_subsampled(self, rate: Fraction) -> Event:
        """(ln(1 + q(e^ε − 1)), qδ); without δ, the law itself."""
        if not self.delta:
            return Subsampled(self, rate)
        return Pure(amplified(self.epsilon, rate), rate * self.delta, sharp=False)

    def renyi(self, alpha: float) -> float:
        """ln(cosh((α − ½)ε)/cosh(ε/2))/(α − 1)."""
        e = round_up(self.epsilon)
        if alpha * e > 600:
            return e
        if alpha * e < 1e-100:
            return max(alpha * e * e, 5e-324)  # twice what it is, for nothing is left of it in doubles
        gained = 2 * math.sinh(alpha * e / 2) * math.sinh((alpha - 1) * e / 2) / math.cosh(e / 2)
        return min(e, math.log1p(gained) / (alpha - 1) * CLOSE)

    def __str__(self) -> str:
        return f"ε = {format_up(self.epsilon)}" + (f", δ = {format_up(self.delta)}" if self.delta else "")


@dataclass(frozen=True)
class Gaussian(Event):
    """Gaussian noise with μ² = Δ₂²/σ²."""

    mu_squared: Fraction

    def side(self, *, added: bool, up: bool) -> dominating_pairs.GaussianPair:  # noqa: ARG002
        """Two normal laws, μ apart."""
        return dominating_pairs.GaussianPair(usable(above(self.mu_squared) if up else below(self.mu_squared)))

    @property
    def most(self) -> None:
        """None: the normal law has no end."""
        return

    @property
    def rho(self) -> Fraction:
        """μ²/2."""
        return self.mu_squared / 2

    def renyi(self, alpha: float) -> float:
        """αμ²/2."""
        return alpha * above(self.mu_squared / 2) * CLOSE

    def group(self, size: int) -> "Gaussian":
        """μ grows with the group."""
        return Gaussian(size**2 * self.mu_squared)

    def __str__(self) -> str:
        return f"Gaussian μ = {format_up(ceil_sqrt(self.mu_squared))}"


@dataclass(frozen=True)
class Laplace(Event):
    """Laplace noise of scale b: ratio = Δ₁/b."""

    ratio: Fraction

    def side(self, *, added: bool, up: bool) -> dominating_pairs.LaplacePair:  # noqa: ARG002
        """Two Laplace laws, `ratio` apart."""
        return dominating_pairs.LaplacePair(usable(above(self.ratio) if up else below(self.ratio)))

    @property
    def most(self) -> Fraction:
        """Δ₁/b."""
        return self.ratio

    def group(self, size: int) -> "Laplace":
        """The distance grows with the group."""
        return Laplace(size * self.ratio)

    def __str__(self) -> str:
        return f"ε = {format_up(self.ratio)}"


@dataclass(frozen=True)
class DiscreteLaplace(Event):
    """Discrete Laplace noise of this scale on integers that move by `shift` in all."""

    scale: Fraction
    shift: int

    def side(self, *, added: bool, up: bool) -> dominating_pairs.DiscretePair | dominating_pairs.LaplacePair:  # noqa: ARG002
        """As many losses as there are integers between the answers; if these are many, all reals."""
        if self.shift <= _MOST_ATOMS:
            return dominating_pairs.discrete_laplace(self.scale, self.shift)
        if not up:
            return dominating_pairs.LaplacePair(below(self.most))
        if self.scale >= 1:
            return dominating_pairs.LaplacePair(above(self.most + 1 / (2 * self.scale**2)))
        together = -(-self.shift // _MOST_ATOMS)
        return dominating_pairs.discrete_laplace(self.scale / together, -(-self.shift // together))

    @property
    def most(self) -> Fraction:
        """Shift over scale."""
        return self.shift / self.scale

    def group(self, size: int) -> "DiscreteLaplace":
        """The shift grows with the group."""
        return DiscreteLaplace(self.scale, size * self.shift)

    def __str__(self) -> str:
        return f"ε = {format_up(self.most)}"


@dataclass(frozen=True)
class DiscreteGaussian(Event):
    """Discrete Gaussian noise of this variance on one integer that moves by `shift`."""

    variance: Fraction
    shift: int

    @cached_property
    def is_nothing(self) -> bool:
        """Whether nobody moves it."""
        return not self.shift

    def side(self, *, added: bool, up: bool) -> dominating_pairs.DiscretePair:  # noqa: ARG002
        """Evenly spaced losses."""
        return dominating_pairs.discrete_gaussian(self.variance, self.shift)

    @property
    def most(self) -> None:
        """None: the law has no end."""
        return

    @property
    def rho(self) -> Fraction:
        """Δ²/2σ²."""
        return self.shift**2 / (2 * self.variance)

    def renyi(self, alpha: float) -> float:
        """αΔ²/2σ²."""
        return alpha * above(self.rho) * CLOSE

    def group(self, size: int) -> "DiscreteGaussian":
        """The shift grows with the group."""
        return DiscreteGaussian(self.variance, size * self.shift)

    def __str__(self) -> str:
        return f"discrete Gaussian Δ²/σ² = {format_up(2 * self.rho)}"


@dataclass(frozen=True)
class RandomizedResponse(Event):
    """Randomized response: the truth with probability `keep`, else one of the other categories."""

    keep: Fraction
    categories: int

    def side(self, *, added: bool, up: bool) -> dominating_pairs.DiscretePair:  # noqa: ARG002
        """Three losses: the one told, the other told, neither."""
        return dominating_pairs.randomized_response(self.keep, self.categories)

    @property
    def most(self) -> Fraction:
        """Ln of `keep` over another category's chance, rounded up."""
        return log_above(self.keep * (self.categories - 1) / (1 - self.keep))

    def __str__(self) -> str:
        return f"ε = {format_up(self.most)}"


@dataclass(frozen=True)
class BoundedRange(Event):
    """All losses of two neighbours lie in one interval of this length: the exponential mechanism."""

    width: Fraction

    def side(self, *, added: bool, up: bool) -> BoundedRangePair | dominating_pairs.DiscretePair:  # noqa: ARG002
        """The curve of all such; below it, the one of them whose interval lies evenly around 0."""
        return (
            BoundedRangePair(usable(above(self.width))) if up else dominating_pairs.two_points(self.width / 2)
        )

    @property
    def most(self) -> Fraction:
        """The whole length."""
        return self.width

    @property
    def rho(self) -> Fraction:
        """An eighth of the length's square."""
        return self.width**2 / 8

    def renyi(self, alpha: float) -> float:
        """α·length²/8, or the length."""
        return min(alpha * above(self.rho) * CLOSE, above(self.width))

    def group(self, size: int) -> "BoundedRange":
        """The interval grows with the group."""
        return BoundedRange(size * self.width)

    def __str__(self) -> str:
        return f"ε = {format_up(self.width)}"


@dataclass(frozen=True)
class Finite(Event):
    """Any two laws on the same finitely many outcomes: with the unit, and without it."""

    p: tuple[Fraction, ...]
    q: tuple[Fraction, ...]

    def side(self, *, added: bool, up: bool) -> dominating_pairs.DiscretePair:  # noqa: ARG002
        """P against Q, or Q against P."""
        return dominating_pairs.finite(self.q, self.p) if added else dominating_pairs.finite(self.p, self.q)

    @property
    def most(self) -> Fraction | None:
        """The largest log-ratio either way; None where an outcome is impossible under one law."""
        # survives: Both laws are as long as each other: the door checked it.
        both = [(a, b) for a, b in zip(self.p, self.q, strict=True) if a or b]
        if any(not a or not b for a, b in both):
            return None
        return max(log_above(max(a / b, b / a)) for a, b in both)

    @property
    def symmetric(self) -> bool:
        """No: they are two laws."""
        return False

    def cut(self) -> Event:
        """Where an outcome is impossible under one law, (ε, δ) of all other outcomes and of these."""
        if self.most is not None:
            return self
        # survives: Both laws are as long as each other: the door checked it.
        both = [(a, b) for a, b in zip(self.p, self.q, strict=True) if a and b]
        # survives: Both laws are as long as each other: the door checked it.
        lone = [
            sum((a for a, b in zip(*laws, strict=True) if not b), Fraction(0))
            for laws in ((self.p, self.q), (self.q, self.p))
        ]
        return Pure(max((log_above(max(a / b, b / a)) for a, b in both), default=Fraction(0)), max(lone))

    def __str__(self) -> str:
        return f"a pair of laws on {len(self.p)} outcomes"


@dataclass(frozen=True)
class Subsampled(Event):
    """A mechanism run on a sample, in which each unit is with probability `rate`.

    Poisson: independently of all others, under add/remove. If `fixed`, the sample's size is fixed, and the
    neighbours are those of substitution.
    """

    base: Event
    rate: Fraction
    fixed: bool = False

    def side(self, *, added: bool, up: bool) -> Any:
        """The mixture against the law without the unit, or the other way round."""
        rate = usable(above(self.rate) if up else below(self.rate))
        inner = self.base.side(added=False, up=up)
        if self.fixed and up:
            return mirror_pair(dominating_pairs.SubsampledPair(inner, rate, added=False))
        if isinstance(self.base, Gaussian) and not self.fixed:
            return dominating_pairs.SubsampledGaussianPair(
                rate, root_inverse(self.base.mu_squared, up=up), added
            )
        return dominating_pairs.SubsampledPair(inner, rate, added)

    @property
    def most(self) -> Fraction | None:
        """ln(1 + rate·(e^most − 1)), rounded up."""
        return None if self.base.most is None else amplified(self.base.most, self.rate)

    @property
    def rho(self) -> Fraction | None:
        """As without sampling, if not better: what is sampled can be computed from what is not."""
        known = [rho for rho in (super().rho, self.base.rho) if rho is not None]
        return min(known, default=None)

    @property
    def symmetric(self) -> bool:
        """The mixture stands on one side."""
        return False

    @property
    def relation(self) -> str:
        """Poisson samples are about units added or removed."""
        return "substitution" if self.fixed else "add/remove"

    def renyi(self, alpha: float) -> float:
        """By quadrature for Gaussian noise, else by moments or by convexity."""
        return _sampled_renyi(self, alpha)

    def group(self, size: int) -> Event:
        """A mixture over how many of the group were sampled."""
        if isinstance(self.base, Gaussian) and not self.fixed and size > 1:
            return SubsampledGroup(self.base.mu_squared, self.rate, size)
        if size == 1:
            return self
        return super().group(size)

    def poisson_subsampled(self, rate: Fraction) -> "Subsampled":
        """A sample of a sample."""
        if self.fixed:
            raise Unsupported(
                "a sample of fixed size is sampled once more",
                why="its loss is stated for another kind of neighbours",
                fix="state both as one Poisson sample",
            )
        return Subsampled(self.base, self.rate * rate)

    def __str__(self) -> str:
        how = "of a fixed-size sample" if self.fixed else "of a Poisson sample"
        return f"({self.base}) {how}, rate {format_up(self.rate)}"


@dataclass(frozen=True)
class SubsampledGroup(Event):
    """`size` units in a Poisson sample of a Gaussian mechanism."""

    mu_squared: Fraction
    rate: Fraction
    size: int

    def side(self, *, added: bool, up: bool) -> Any:
        """The mixture over how many were sampled; of a large group, all are taken to be."""
        mu_squared = above(self.mu_squared) if up else below(self.mu_squared)
        if self.size > _MOST_GROUP:
            if not up:
                raise Uncertified
            return dominating_pairs.GaussianPair(above(self.size**2 * self.mu_squared))
        return SubsampledGroupPair(above(self.rate) if up else below(self.rate), mu_squared, self.size, added)

    @property
    def most(self) -> None:
        """None: the normal law has no end."""
        return

    @property
    def symmetric(self) -> bool:
        """The mixture stands on one side."""
        return False

    @property
    def relation(self) -> str:
        """Poisson samples are about units added or removed."""
        return "add/remove"

    def renyi(self, alpha: float) -> float:
        """By convexity, from the members sampled all or none."""
        if self.size > _MOST_GROUP:
            return Gaussian(self.size**2 * self.mu_squared).renyi(alpha)
        # survives: Where e^x would overflow, another bound is returned.
        grown = [
            math.comb(self.size, j)
            * above(self.rate) ** j
            * (1 - below(self.rate)) ** (self.size - j)
            * math.expm1(min(709.0, (alpha - 1) * Gaussian(j * j * self.mu_squared).renyi(alpha)))
            for j in range(1, self.size + 1)
        ]
        most = Gaussian(self.size**2 * self.mu_squared).renyi(alpha)
        # survives: Where one bound takes over from the other is free: both hold.
        if (alpha - 1) * most > 700:
            return most
        return max(5e-324, math.log1p(math.fsum(grown)) / (alpha - 1) * CLOSE)

    def poisson_subsampled(self, rate: Fraction) -> Event:
        """Not known: are they drawn together, or each by itself?"""
        raise Unsupported(
            f"a group's loss is sampled at rate {format_up(rate)}",
            why="it would not be said whether its members are drawn together",
            fix="sample first, and ask for the group then",
        )

    def group(self, size: int) -> "SubsampledGroup":
        """A larger group."""
        return SubsampledGroup(self.mu_squared, self.rate, self.size * size)

    def __str__(self) -> str:
        sample = f"({Gaussian(self.mu_squared)}) of a Poisson sample, rate {format_up(self.rate)}"
        return f"{sample}, group of {self.size}"


@lru_cache(maxsize=4096)
def _sampled_renyi(part: Subsampled, alpha: float) -> float:
    c, rate = alpha - 1, above(part.rate)
    alone = part.base.renyi(alpha)
    # The power mean of a mixture is no more than the mixture of the powers.
    grown = c * alone
    # survives: Where one bound takes over from the other is free: both hold.
    mixed = (grown if grown > 700 else math.log1p(rate * math.expm1(grown))) / c * CLOSE
    found = min(alone, mixed)
    if part.most is not None:
        found = min(found, Pure(part.most).renyi(alpha))
    if isinstance(part.base, Gaussian) and not part.fixed:
        sigma = root_inverse(part.base.mu_squared, up=True)
        one = (np.array([rate]), np.array([sigma]), np.ones(1))
        try:
            # survives: Nodes that would do for z off the real line, too, or a few less: the
            # error they bound is added.
            nodes = [SampledGaussians(*one, added=added).quadrature(c, 0.0) for added in (False, True)]
        except Uncertified:
            return found
        found = min(found, max(node.moment + node.error for node in nodes) / c * CLOSE)
    return found
