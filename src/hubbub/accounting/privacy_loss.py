"""What a release may cost one person: the privacy loss as a curve δ(ε), certified from both sides.

A loss is a list of mechanisms fixed beforehand, each so many times. It is kept as exact numbers; what
is asked of it is computed by the first engine that can certify an answer (`hubbub.accounting.composition`).

Proof: docs/proofs/loss.md
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

from hubbub.accounting import interpretation
from hubbub.accounting.alternatives import cost_of, distinct, gathered, larger, shown, undominated
from hubbub.accounting.composition import Bounds, Composition
from hubbub.accounting.events import (
    BoundedRange,
    DiscreteGaussian,
    DiscreteLaplace,
    Event,
    Finite,
    Gaussian,
    Laplace,
    Pure,
    RandomizedResponse,
    Subsampled,
)
from hubbub.accounting.filters import ORDERS, ComposableCost
from hubbub.accounting.float_bounds import above
from hubbub.accounting.interpretation import Posterior
from hubbub.accounting.renyi import Divergence, Parts, RenyiCurve, ZeroConcentrated
from hubbub.accounting.shuffling import ShuffledReports
from hubbub.errors import InvalidInput, Unsupported
from hubbub.numbers import (
    Number,
    parse_below_one,
    parse_integer,
    parse_nonnegative,
    parse_positive,
    parse_probability,
    parse_rational,
)

__all__ = ["PrivacyLoss", "parallel_composition"]

_MOST_TIMES = 10**18


@dataclass(frozen=True)
class PrivacyLoss:
    """The privacy loss of something fixed beforehand.

    >>> loss = PrivacyLoss.pure(0.5) + PrivacyLoss.pure(0.5)
    >>> loss.epsilon()
    1.0
    >>> round(PrivacyLoss.gaussian(1).epsilon(1e-6), 4)
    4.8866
    >>> steps = PrivacyLoss.gaussian(1 / 1.1).poisson_subsampled(Fraction(256, 60000)) * 14063
    >>> round(steps.epsilon(1e-5), 6)
    2.38169

    Guarantee: for all neighbours and events, Pr[M(x) ∈ S] ≤ e^ε·Pr[M(y) ∈ S] + δ(ε), at every ε.
    Assumes: the mechanism it came from; sums of losses fixed beforehand.
    Proof: docs/proofs/loss.md
    """

    alternatives: tuple[Parts, ...]
    """The compositions one unit may face; the worst counts. Only `parallel_composition` makes several."""

    # Where losses come from

    @classmethod
    def from_events(cls, *parts: Event) -> "PrivacyLoss":
        """These parts, once each."""
        return cls((gathered((part, 1) for part in parts),))

    @classmethod
    def pure(cls, epsilon: Number) -> "PrivacyLoss":
        """Pure ε: no outcome is more than e^ε times likelier with a person than without."""
        return cls.from_events(Pure(parse_nonnegative(epsilon, "epsilon")))

    @classmethod
    def approximate(cls, epsilon: Number, delta: Number) -> "PrivacyLoss":
        """(ε, δ) and nothing more is known."""
        return cls.from_events(Pure(parse_nonnegative(epsilon, "epsilon"), parse_probability(delta, "delta")))

    @classmethod
    def gaussian(cls, mu: Number) -> "PrivacyLoss":
        """Gaussian noise of σ = Δ₂/μ."""
        return cls.from_events(Gaussian(parse_nonnegative(mu, "mu") ** 2))

    @classmethod
    def gaussian_from_mu_squared(cls, mu_squared: Number) -> "PrivacyLoss":
        """Gaussian noise of μ² = Δ₂²/σ², kept exact where μ itself is irrational."""
        return cls.from_events(Gaussian(parse_nonnegative(mu_squared, "mu_squared")))

    @classmethod
    def laplace(cls, epsilon: Number) -> "PrivacyLoss":
        """Laplace noise of scale Δ₁/ε: pure ε, and less where some δ is allowed.

        >>> round(PrivacyLoss.laplace(1).epsilon(1e-5), 6)
        0.99998
        """
        return cls.from_events(Laplace(parse_nonnegative(epsilon, "epsilon")))

    @classmethod
    def discrete_laplace(cls, scale: Number, sensitivity: int = 1) -> "PrivacyLoss":
        """Discrete Laplace noise of this scale on integers that move by `sensitivity` in all."""
        return cls.from_events(
            DiscreteLaplace(
                parse_positive(scale, "scale"), parse_integer(sensitivity, "sensitivity", minimum=0)
            )
        )

    @classmethod
    def discrete_gaussian(cls, variance: Number, sensitivity: int = 1) -> "PrivacyLoss":
        """Discrete Gaussian noise of this σ² on one integer that moves by `sensitivity`."""
        return cls.from_events(
            DiscreteGaussian(
                parse_positive(variance, "variance"), parse_integer(sensitivity, "sensitivity", minimum=0)
            )
        )

    @classmethod
    def randomized_response(cls, keep: Number, categories: int = 2) -> "PrivacyLoss":
        """Randomized response: the truth with probability `keep`, else one of the other categories.

        >>> round(PrivacyLoss.randomized_response(0.75).epsilon(), 6) == round(math.log(3), 6)
        True
        """
        truth, kinds = parse_probability(keep, "keep"), parse_integer(categories, "categories", minimum=2)
        if truth * kinds < 1:
            raise InvalidInput(
                "keep is below 1/categories",
                why="the truth would be told less often than any other category",
                fix="pass a larger keep",
            )
        return cls.from_events(RandomizedResponse(truth, kinds))

    @classmethod
    def bounded_range(cls, epsilon: Number) -> "PrivacyLoss":
        """All log-ratios of two neighbours lie in one interval of length ε: the exponential mechanism."""
        return cls.from_events(BoundedRange(parse_nonnegative(epsilon, "epsilon")))

    @classmethod
    def zcdp(cls, rho: Number) -> "PrivacyLoss":
        """Zero-concentrated privacy of ρ, and nothing more is known."""
        return cls.from_events(ZeroConcentrated(parse_nonnegative(rho, "rho")))

    @classmethod
    def from_renyi(cls, curve: Mapping[Number, Number]) -> "PrivacyLoss":
        """Rényi divergences ε(α) at some orders α > 1, and nothing more is known.

        >>> PrivacyLoss.from_renyi({2: 0.5, 8: 2, 32: 8}).epsilon(1e-6) < 10
        True
        """
        points = sorted(
            (parse_rational(a, "an order"), parse_nonnegative(e, "a divergence")) for a, e in curve.items()
        )
        if not points or points[0][0] <= 1:
            raise InvalidInput(
                "the curve has no orders, or one that is not above 1",
                why="divergences are known at each of them",
                fix="pass such as {2: 0.1, 8: 0.4, 32: 1.6}",
            )
        return cls.from_events(RenyiCurve(tuple(points)))

    @classmethod
    def from_distributions(cls, p: Sequence[Number], q: Sequence[Number]) -> "PrivacyLoss":
        """Any two laws on the same finitely many outcomes: with a unit, and without it.

        >>> loss = PrivacyLoss.from_distributions([0.75, 0.25], [0.25, 0.75])
        >>> loss.epsilon() == PrivacyLoss.randomized_response(0.75).epsilon()
        True
        """
        ours, theirs = (tuple(parse_nonnegative(x, "a probability") for x in law) for law in (p, q))
        if len(ours) != len(theirs) or sum(ours) != 1 or sum(theirs) != 1:
            raise InvalidInput(
                "p and q are not two laws on the same outcomes",
                why="each must sum to 1 exactly",
                fix="pass equally many probabilities for both, as fractions if they are no short decimals",
            )
        return cls.from_events(Finite(ours, theirs))

    # How losses are made of others

    def __add__(self, other: "PrivacyLoss") -> "PrivacyLoss":
        """Both, composed."""
        if not isinstance(other, PrivacyLoss):
            return NotImplemented
        return PrivacyLoss(
            distinct(gathered((*mine, *its)) for mine in self.alternatives for its in other.alternatives)
        )

    @classmethod
    def compose(cls, losses: Iterable["PrivacyLoss"]) -> "PrivacyLoss":
        """All of them, composed: as their sum, and quick where they are many.

        >>> PrivacyLoss.compose(PrivacyLoss.pure(Fraction(1, k)) for k in (2, 3, 6)).epsilon()
        1.0
        """
        given = list(losses)
        if all(isinstance(loss, PrivacyLoss) and len(loss.alternatives) == 1 for loss in given):
            return cls((gathered(part for loss in given for part in loss.alternatives[0]),))
        return sum(given, cls.pure(0))

    def __mul__(self, times: int) -> "PrivacyLoss":
        """The same, `times` times over."""
        repeats = parse_integer(times, "times", minimum=0)
        if repeats > _MOST_TIMES:
            raise InvalidInput(
                "{times} is above 10^18", why="nothing is done so often", fix="pass a smaller number"
            )
        return self._each(lambda parts: [(part, count * repeats) for part, count in parts])

    def poisson_subsampled(self, rate: Number) -> "PrivacyLoss":
        """The same on a Poisson sample, in which each unit is with probability `rate`; under add/remove.

        >>> loss = PrivacyLoss.gaussian(1)
        >>> loss.poisson_subsampled(0.01).epsilon(1e-6) < loss.epsilon(1e-6) / 2
        True

        Guarantee: tight for one mechanism: Gaussian, Laplace and discrete noise, randomized response.
        Assumes: the sample is drawn anew and stays secret; neighbours differ in one unit added or removed.
        Proof: docs/proofs/pairs.md, "Poisson sampling"
        """
        chance = _rate(rate)
        if chance in (0, 1):
            return self * int(chance)

        def drawn(parts: Parts) -> list[tuple[Event, int]]:
            if any(part.relation == "substitution" for part, _ in parts):
                raise Unsupported(
                    "a loss about units that are substituted is Poisson-sampled",
                    why="Poisson sampling is about units added or removed",
                    fix="state the loss for add/remove, or sample without replacement",
                )
            return [(_only(parts).poisson_subsampled(chance), 1)] if parts else []

        return self._each(drawn)

    def subsampled_without_replacement(self, population: int, size: int) -> "PrivacyLoss":
        """The same on `size` of `population` units, drawn without replacement; under substitution.

        >>> sampled = PrivacyLoss.gaussian(1).subsampled_without_replacement(1000, 10)
        >>> sampled.epsilon(1e-6) < PrivacyLoss.gaussian(1).epsilon(1e-6) / 2
        True

        Guarantee: no less than what two neighbours, a unit of which is substituted, can be told apart.
        Assumes: this loss is that of the mechanism on samples in which one unit is substituted.
        Proof: docs/proofs/pairs.md, "Samples of fixed size"
        """
        people, drawn = parse_integer(population, "population"), parse_integer(size, "size", minimum=0)
        if drawn > people:
            raise InvalidInput(
                "size is above population", why="none is drawn twice", fix="pass a size of at most population"
            )
        chance = Fraction(drawn, people)
        if chance in (0, 1):
            return self * int(chance)

        def fixed(parts: Parts) -> list[tuple[Event, int]]:
            if not parts:
                return []
            part = _only(parts)
            if not part.symmetric or part.told or isinstance(part, (ZeroConcentrated, RenyiCurve)):
                raise Unsupported(
                    "this loss cannot be sampled without replacement",
                    why="that needs the mechanism's law, alike in both directions",
                    fix="state the mechanism itself, such as Gaussian noise",
                )
            return [(Subsampled(part, chance, fixed=True), 1)]

        return self._each(fixed)

    def shuffled(self, reports: int) -> "PrivacyLoss":
        """What `reports` people pay together whose local reports, each of this loss, are shuffled.

        >>> PrivacyLoss.pure(1).shuffled(10_000).epsilon(1e-6) < 0.2
        True

        Guarantee: that of "hiding among the clones", for any local randomizer of this ε.
        Assumes: all reports are shuffled before anyone sees them; neighbours differ in one unit's data.
        Proof: docs/proofs/pairs.md, "Shuffling"
        """
        people = parse_integer(reports, "reports")

        def shuffle(parts: Parts) -> list[tuple[Event, int]]:
            composed = Composition(parts)
            if any(part.relation == "add/remove" for part, _ in parts):
                raise Unsupported(
                    "a loss about units added or removed is shuffled",
                    why="shuffling is about a unit whose data is another's: such a report may tell more",
                    fix="state the report's loss for substitution, such as randomized response",
                )
            if composed.most is None or composed.told[1]:
                raise Unsupported(
                    "only pure losses are shuffled",
                    why="the clones' theorem is about reports with a largest loss",
                    fix="pass the loss of an ε-private report, such as randomized response",
                )
            return [(ShuffledReports(composed.most, people), 1)] if composed.most else []

        return self._each(shuffle)

    def for_group(self, size: int) -> "PrivacyLoss":
        """What it costs a group of `size` people together.

        Pure ε becomes kε, μ becomes kμ, (ε, δ) becomes (kε, δ·(e^kε − 1)/(e^ε − 1)), ρ becomes k²ρ; of a
        sampled Gaussian it is a mixture over how many of the group were sampled.

        >>> PrivacyLoss.pure(0.5).for_group(3) == PrivacyLoss.pure(1.5)
        True
        """
        k = parse_integer(size, "size")
        return self if k == 1 else self._each(lambda parts: [(part.group(k), n) for part, n in parts])

    # What is asked of them

    def delta(self, epsilon: Number) -> float:
        """An upper bound of δ at ε.

        >>> PrivacyLoss.pure(1).delta(1)
        0.0
        """
        at = parse_nonnegative(epsilon, "epsilon")
        return max(way.delta(at, lower=False).upper for way in self._compositions)

    def epsilon(self, delta: Number = 0) -> float:
        """An upper bound of the least ε that holds with δ; infinite where none does.

        >>> PrivacyLoss.pure(Fraction(1, 10)).epsilon()
        0.1
        """
        allowed = parse_below_one(delta, "delta")
        return max(way.epsilon(allowed, lower=False).upper for way in self._compositions)

    def epsilon_bounds(self, delta: Number = 0) -> Bounds:
        """Certified bounds of that ε, lower and upper, and how the upper one was found.

        >>> low, high = (PrivacyLoss.laplace(1) * 100).epsilon_bounds(1e-5)
        >>> low <= 68.2529510556143 <= high
        True
        """
        allowed = parse_below_one(delta, "delta")
        return _worst(way.epsilon(allowed) for way in self._compositions)

    def delta_bounds(self, epsilon: Number) -> Bounds:
        """Certified bounds of δ at ε."""
        at = parse_nonnegative(epsilon, "epsilon")
        return _worst(way.delta(at) for way in self._compositions)

    @property
    def rho(self) -> Fraction | None:
        """Zero-concentrated privacy of what is not charged to δ; None where none is known.

        >>> PrivacyLoss.gaussian(1).rho
        Fraction(1, 2)
        """
        return self.cost().rho

    def renyi(self, alpha: Number) -> float:
        """An upper bound of the Rényi divergence of order α > 1; infinite where something may be told.

        >>> PrivacyLoss.gaussian(1).renyi(4) >= 2
        True
        """
        order = parse_rational(alpha, "alpha")
        if order <= 1:
            raise InvalidInput(
                "alpha is not above 1", why="the divergence is of such an order", fix="pass alpha above 1"
            )
        if any(way.told[1] for way in self._compositions):
            return math.inf
        return max(Divergence(way.parts).at(above(order)) for way in self._compositions)

    def tradeoff(self, alpha: Number) -> float:
        """f-DP: the least chance of missing that an attacker has whose chance of a false alarm is α.

        A lower bound: no test of "is this person in?" has both smaller.

        >>> round(PrivacyLoss.gaussian(1).tradeoff(0.01), 6)
        0.907638
        """
        at = parse_nonnegative(alpha, "alpha")
        if at > 1:
            raise InvalidInput("alpha is above 1", why="it is a probability", fix="pass alpha within 0 and 1")
        return min(interpretation.tradeoff(way, at) for way in self._compositions)

    def advantage(self) -> float:
        """An upper bound of how much likelier an attacker is right than by guessing: δ(0).

        >>> round(PrivacyLoss.gaussian(1).advantage(), 6)
        0.382925
        """
        return self.delta(0)

    def posterior(self, prior: Number, epsilon: Number | None = None) -> Posterior:
        """How sure an attacker can become that a person is in, who was `prior` sure.

        Without ε, the largest loss is taken. With one, there is a chance that the loss is larger.

        >>> PrivacyLoss.pure(1).posterior(0.5)
        Posterior(upper_bound=0.7310585786300049, exception_probability=0.0)

        Guarantee: at most `upper_bound`, except with probability `exception_probability`, which is not δ(ε).
        Assumes: the attacker's prior is independent of the mechanism's noise.
        Proof: docs/proofs/meaning.md, "Posteriors"
        """
        sure = parse_probability(prior, "prior")
        at = None if epsilon is None else parse_nonnegative(epsilon, "epsilon")
        found = [interpretation.posterior(way, sure, at) for way in self._compositions]
        return Posterior(
            max(one.upper_bound for one in found), max(one.exception_probability for one in found)
        )

    def explain(self, delta: Number | None = None) -> str:
        """What the loss means for one person, in words.

        >>> print(PrivacyLoss.pure(1).explain())
        ε = 1.
        Whatever is released is at most 2.72 times likelier with a person's data than without, or the reverse.
        ...
        """
        return interpretation.explain(self, None if delta is None else parse_below_one(delta, "delta"))

    def cost(self, orders: Sequence[Number] = ORDERS) -> ComposableCost:
        """The exact figures a filter adds up, for one and the same event cut off.

        >>> PrivacyLoss.pure(0.5).cost().epsilon, PrivacyLoss.gaussian(2).cost().mu_squared
        (Fraction(1, 2), Fraction(4, 1))

        Guarantee: as `ComposableCost`.
        Assumes: the mechanism it came from.
        Proof: docs/proofs/loss.md, "Cost"
        """
        costs = [cost_of(way, tuple(orders)) for way in self.alternatives]
        worst = costs[0]
        for other in costs[1:]:
            worst = larger(worst, other)
        return worst

    def __str__(self) -> str:
        return " or ".join(shown(way) for way in self.alternatives)

    @cached_property
    def _compositions(self) -> tuple[Composition, ...]:
        return tuple(Composition(parts) for parts in self.alternatives)

    def _each(self, change: Callable[[Parts], Iterable[tuple[Event, int]]]) -> "PrivacyLoss":
        return PrivacyLoss(distinct(gathered(change(parts)) for parts in self.alternatives))


def parallel_composition(*losses: PrivacyLoss, substitution: bool = False) -> PrivacyLoss:
    """What it costs one unit that lies in one part of a public partition, each part of which is asked.

    Under add/remove the worst part. Under substitution a unit may leave one part and enter another: the two
    worst, composed; each loss must then hold for a unit added, removed or substituted in its part.

    >>> parallel_composition(PrivacyLoss.pure(1), PrivacyLoss.pure(0.5)) == PrivacyLoss.pure(1)
    True
    >>> parallel_composition(PrivacyLoss.pure(1), PrivacyLoss.pure(0.5), PrivacyLoss.pure(0.5),
    ...     substitution=True).epsilon()
    1.5

    Guarantee: holds for a unit that lies in at most one of the parts.
    Assumes: the partition is public, and does not depend on the data.
    Proof: docs/proofs/loss.md, "Parallel parts"
    """
    if not losses or not all(isinstance(loss, PrivacyLoss) for loss in losses):
        raise InvalidInput(
            "no losses are given, or not only losses",
            why="the worst of them is what a unit pays",
            fix="pass one Loss for each part of the partition",
        )
    ways = list(distinct(way for loss in losses for way in loss.alternatives))
    if substitution and not all(part.symmetric for way in ways for part, _ in way):
        raise Unsupported(
            "a part is not alike in both directions",
            why="a unit that is substituted leaves one part and enters another: one of each direction",
            fix="state losses that are symmetric, such as Gaussian, Laplace or pure ones",
        )
    if not substitution or len(losses) == 1:
        return PrivacyLoss(undominated(ways))
    # The same loss may stand for two parts.
    all_ways = [way for loss in losses for way in undominated(loss.alternatives)]
    pairs = (
        gathered((*one, *other)) for place, one in enumerate(all_ways) for other in all_ways[place + 1 :]
    )
    return PrivacyLoss(undominated(distinct(pairs)))


def _only(parts: Parts) -> Event:
    """The one mechanism that is sampled."""
    if len(parts) == 1 and parts[0][1] == 1:
        return parts[0][0]
    raise Unsupported(
        "several mechanisms on one sample",
        why="their losses are not independent, and only that of one is known when sampled",
        fix="sample each by itself, or state all as one Gaussian, or as Loss.pure of their sum",
    )


def _rate(rate: Number) -> Fraction:
    chance = parse_nonnegative(rate, "rate")
    if chance > 1:
        raise InvalidInput("rate is above 1", why="it is a probability", fix="pass a rate within 0 and 1")
    return chance


def _worst(found: Iterable[Bounds]) -> Bounds:
    bounds = list(found)
    worst = max(bounds, key=lambda pair: pair.upper)
    return Bounds(max(pair.lower for pair in bounds), worst.upper, worst.method)
