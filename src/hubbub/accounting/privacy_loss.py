"""Privacy losses: the curve δ(ε) of a composition of events, certified from both sides.

A loss is a list of events fixed beforehand, with counts, kept as exact numbers. Figures such as ε are
computed when they are asked for, by the first accountant that can certify one (`accounting.composition`).

Proof: docs/proofs/privacy-loss.md
"""

import html
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

from hubbub.accounting import interpretation
from hubbub.accounting.composable_cost import ORDERS, ComposableCost
from hubbub.accounting.composition import Bounds, Composition
from hubbub.accounting.discrete_events import (
    DiscreteGaussian,
    DiscreteLaplace,
    FiniteDistributions,
    RandomizedResponse,
)
from hubbub.accounting.event_normal_form import (
    composable_cost,
    deduplicate,
    describe_events,
    drop_dominated,
    elementwise_max,
    normalize_events,
)
from hubbub.accounting.events import BoundedRange, EpsilonDelta, Event, Gaussian, Laplace, Subsampled
from hubbub.accounting.float_bounds import float_above
from hubbub.accounting.interpretation import Posterior
from hubbub.accounting.renyi import ComposedEvents, RenyiCurve, RenyiDivergence, ZeroConcentrated
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

_MAX_COUNT = 10**18


@dataclass(frozen=True)
class PrivacyLoss:
    """The privacy loss of a composition of mechanisms fixed beforehand.

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
    Proof: docs/proofs/privacy-loss.md
    """

    alternatives: tuple[ComposedEvents, ...]
    """The compositions one unit may face; the worst counts. Only `parallel_composition` makes several."""

    # Constructors

    @classmethod
    def from_events(cls, *events: Event) -> "PrivacyLoss":
        """These events, composed."""
        return cls((normalize_events((event, 1) for event in events),))

    @classmethod
    def pure(cls, epsilon: Number) -> "PrivacyLoss":
        """Pure ε-DP: no outcome is more than e^ε times likelier with a person than without."""
        return cls.from_events(EpsilonDelta(parse_nonnegative(epsilon, "epsilon")))

    @classmethod
    def approximate(cls, epsilon: Number, delta: Number) -> "PrivacyLoss":
        """(ε, δ)-DP, if nothing more is known of the mechanism."""
        return cls.from_events(
            EpsilonDelta(parse_nonnegative(epsilon, "epsilon"), parse_probability(delta, "delta"))
        )

    @classmethod
    def gaussian(cls, mu: Number) -> "PrivacyLoss":
        """Gaussian noise of σ = Δ₂/μ: μ is 1/noise multiplier."""
        return cls.from_events(Gaussian(parse_nonnegative(mu, "mu") ** 2))

    @classmethod
    def gaussian_from_mu_squared(cls, mu_squared: Number) -> "PrivacyLoss":
        """Gaussian noise of μ² = Δ₂²/σ², exact also where μ itself is irrational."""
        return cls.from_events(Gaussian(parse_nonnegative(mu_squared, "mu_squared")))

    @classmethod
    def laplace(cls, epsilon: Number) -> "PrivacyLoss":
        """Laplace noise of scale Δ₁/ε: pure ε, and less at a positive δ.

        >>> round(PrivacyLoss.laplace(1).epsilon(1e-5), 6)
        0.99998
        """
        return cls.from_events(Laplace(parse_nonnegative(epsilon, "epsilon")))

    @classmethod
    def discrete_laplace(cls, scale: Number, sensitivity: int = 1) -> "PrivacyLoss":
        """Discrete Laplace noise of this scale on integers of this ℓ1 sensitivity."""
        return cls.from_events(
            DiscreteLaplace(
                parse_positive(scale, "scale"), parse_integer(sensitivity, "sensitivity", minimum=0)
            )
        )

    @classmethod
    def discrete_gaussian(cls, variance: Number, sensitivity: int = 1) -> "PrivacyLoss":
        """Discrete Gaussian noise of this σ² on one integer of this sensitivity."""
        return cls.from_events(
            DiscreteGaussian(
                parse_positive(variance, "variance"), parse_integer(sensitivity, "sensitivity", minimum=0)
            )
        )

    @classmethod
    def randomized_response(cls, truth_probability: Number, categories: int = 2) -> "PrivacyLoss":
        """Randomized response: the truth with this probability, else one of the other categories.

        >>> round(PrivacyLoss.randomized_response(0.75).epsilon(), 6) == round(math.log(3), 6)
        True
        """
        truth = parse_probability(truth_probability, "truth_probability")
        kinds = parse_integer(categories, "categories", minimum=2)
        if truth * kinds < 1:
            raise InvalidInput(
                "{truth_probability} is below 1/categories",
                why="the truth would be reported less often than any other category",
                fix="pass a larger {truth_probability}",
                parameter="truth_probability",
            )
        return cls.from_events(RandomizedResponse(truth, kinds))

    @classmethod
    def bounded_range(cls, epsilon: Number) -> "PrivacyLoss":
        """ε-bounded range: all losses of two neighbours lie in one interval of length ε.

        The exponential mechanism is the example.
        """
        return cls.from_events(BoundedRange(parse_nonnegative(epsilon, "epsilon")))

    @classmethod
    def zcdp(cls, rho: Number) -> "PrivacyLoss":
        """ρ-zCDP, if nothing more is known of the mechanism."""
        return cls.from_events(ZeroConcentrated(parse_nonnegative(rho, "rho")))

    @classmethod
    def from_renyi(cls, curve: Mapping[Number, Number]) -> "PrivacyLoss":
        """Rényi divergences ε(α) at some orders α > 1, if nothing more is known of the mechanism.

        >>> PrivacyLoss.from_renyi({2: 0.5, 8: 2, 32: 8}).epsilon(1e-6) < 10
        True
        """
        points = sorted(
            (parse_rational(a, "an order"), parse_nonnegative(e, "a divergence")) for a, e in curve.items()
        )
        if not points or points[0][0] <= 1:
            raise InvalidInput(
                "the Rényi curve has no orders, or one that is not above 1",
                why="a Rényi divergence needs an order above 1",
                fix="pass orders and divergences such as 2: 0.1, 8: 0.4, 32: 1.6",
            )
        return cls.from_events(RenyiCurve(tuple(points)))

    @classmethod
    def from_distributions(cls, p: Sequence[Number], q: Sequence[Number]) -> "PrivacyLoss":
        """Two distributions on the same finitely many outcomes: with a unit (p), and without it (q).

        >>> loss = PrivacyLoss.from_distributions([0.75, 0.25], [0.25, 0.75])
        >>> loss.epsilon() == PrivacyLoss.randomized_response(0.75).epsilon()
        True
        """
        with_unit, without = (tuple(parse_nonnegative(x, "a probability") for x in law) for law in (p, q))
        if len(with_unit) != len(without) or sum(with_unit) != 1 or sum(without) != 1:
            raise InvalidInput(
                "p and q are not two distributions on the same outcomes",
                why="each must sum to 1 exactly",
                fix="pass equally many probabilities for both, as fractions if they are not short decimals",
            )
        return cls.from_events(FiniteDistributions(with_unit, without))

    # Composition, subsampling, groups

    def __add__(self, other: "PrivacyLoss") -> "PrivacyLoss":
        """The composition of both."""
        if not isinstance(other, PrivacyLoss):
            return NotImplemented
        return PrivacyLoss(
            deduplicate(
                normalize_events((*mine, *its)) for mine in self.alternatives for its in other.alternatives
            )
        )

    @classmethod
    def compose(cls, losses: Iterable["PrivacyLoss"]) -> "PrivacyLoss":
        """The composition of all: equal to their sum, and faster for many.

        >>> PrivacyLoss.compose(PrivacyLoss.pure(Fraction(1, k)) for k in (2, 3, 6)).epsilon()
        1.0
        """
        composed = list(losses)
        if all(isinstance(loss, PrivacyLoss) and len(loss.alternatives) == 1 for loss in composed):
            return cls((normalize_events(event for loss in composed for event in loss.alternatives[0]),))
        return sum(composed, cls.pure(0))

    def __mul__(self, times: int) -> "PrivacyLoss":
        """The composition of `times` copies."""
        repeats = parse_integer(times, "times", minimum=0)
        if repeats > _MAX_COUNT:
            raise InvalidInput(
                "{times} is above 10^18", why="no mechanism is run that often", fix="pass a smaller number"
            )
        return self._map_alternatives(lambda events: [(event, count * repeats) for event, count in events])

    def poisson_subsampled(self, sampling_rate: Number) -> "PrivacyLoss":
        """The loss of the same mechanism on a Poisson sample, under add/remove.

        Args:
            sampling_rate: The probability with which each unit is in the sample, independently of the others.

        >>> loss = PrivacyLoss.gaussian(1)
        >>> loss.poisson_subsampled(0.01).epsilon(1e-6) < loss.epsilon(1e-6) / 2
        True

        Guarantee: tight for one mechanism: Gaussian, Laplace and discrete noise, randomized response.
        Assumes: the sample is drawn anew and stays secret; neighbours differ in one unit added or removed.
        Proof: docs/proofs/dominating-pairs.md, "Poisson sampling"
        """
        rate = _parse_sampling_rate(sampling_rate)
        if rate in (0, 1):
            return self * int(rate)

        def subsample(events: ComposedEvents) -> list[tuple[Event, int]]:
            if any(event.relation == "substitution" for event, _ in events):
                raise Unsupported(
                    "a loss under substitution is Poisson-subsampled",
                    why="Poisson subsampling is analysed for units that are added or removed",
                    fix="state the loss for add/remove, or sample without replacement",
                )
            return [(_single_event(events).poisson_subsampled(rate), 1)] if events else []

        return self._map_alternatives(subsample)

    def subsampled_without_replacement(self, population: int, size: int) -> "PrivacyLoss":
        """The loss of the same mechanism on a sample without replacement, under substitution.

        Args:
            population: The number of units.
            size: How many of them are drawn.

        >>> sampled = PrivacyLoss.gaussian(1).subsampled_without_replacement(1000, 10)
        >>> sampled.epsilon(1e-6) < PrivacyLoss.gaussian(1).epsilon(1e-6) / 2
        True

        Guarantee: an upper bound for two databases that differ in one substituted unit.
        Assumes: this loss is that of the mechanism on samples that differ in one substituted unit.
        Proof: docs/proofs/dominating-pairs.md, "Samples of fixed size"
        """
        units, sample_size = parse_integer(population, "population"), parse_integer(size, "size", minimum=0)
        if sample_size > units:
            raise InvalidInput(
                "{size} is above {population}",
                why="no unit is drawn twice",
                fix="pass a {size} of at most {population}",
                parameter="size",
            )
        rate = Fraction(sample_size, units)
        if rate in (0, 1):
            return self * int(rate)

        def subsample(events: ComposedEvents) -> list[tuple[Event, int]]:
            if not events:
                return []
            event = _single_event(events)
            if (
                not event.symmetric
                or event.infinity_mass
                or isinstance(event, (ZeroConcentrated, RenyiCurve))
            ):
                raise Unsupported(
                    "this loss cannot be sampled without replacement",
                    why="the theorem needs a dominating pair that is the same in both directions",
                    fix="state the mechanism itself, such as Gaussian noise",
                )
            return [(Subsampled(event, rate, without_replacement=True), 1)]

        return self._map_alternatives(subsample)

    def shuffled(self, reports: int) -> "PrivacyLoss":
        """The loss of one report among `reports` shuffled local reports, each of this loss.

        >>> PrivacyLoss.pure(1).shuffled(1_000).epsilon(1e-6) < 0.2
        True

        Guarantee: that of "hiding among the clones", for any local randomizer of this ε.
        Assumes: all reports are shuffled before anyone sees them; neighbours differ in one unit's data.
        Proof: docs/proofs/dominating-pairs.md, "Shuffling"
        """
        count = parse_integer(reports, "reports")

        def shuffle(events: ComposedEvents) -> list[tuple[Event, int]]:
            composed = Composition(events)
            if any(event.relation == "add/remove" for event, _ in events):
                raise Unsupported(
                    "a loss under add/remove is shuffled",
                    why="shuffling is analysed for substituted data, of which a report may reveal more",
                    fix="state the report's loss for substitution, such as randomized response",
                )
            if composed.max_loss is None or composed.infinity_mass_bounds[1]:
                raise Unsupported(
                    "only pure losses are shuffled",
                    why="the theorem of the clones needs reports with a largest loss",
                    fix="pass the loss of an ε-private report, such as randomized response",
                )
            return [(ShuffledReports(composed.max_loss, count), 1)] if composed.max_loss else []

        return self._map_alternatives(shuffle)

    def for_group(self, size: int) -> "PrivacyLoss":
        """The loss of a group of `size` people together.

        Pure ε becomes kε, μ becomes kμ, (ε, δ) becomes (kε, δ·(e^kε − 1)/(e^ε − 1)), ρ becomes k²ρ; for
        a subsampled Gaussian it is a mixture over how many of the group were sampled.

        >>> PrivacyLoss.pure(0.5).for_group(3) == PrivacyLoss.pure(1.5)
        True
        """
        k = parse_integer(size, "size")
        return (
            self
            if k == 1
            else self._map_alternatives(lambda events: [(event.for_group(k), n) for event, n in events])
        )

    # Figures

    def delta(self, epsilon: Number) -> float:
        """An upper bound of δ at ε.

        >>> PrivacyLoss.pure(1).delta(1)
        0.0
        """
        at = parse_nonnegative(epsilon, "epsilon")
        return max(alternative.delta(at, lower=False).upper for alternative in self.compositions)

    def epsilon(self, delta: Number = 0) -> float:
        """An upper bound of the smallest ε that holds with δ; infinite if none does.

        >>> PrivacyLoss.pure(Fraction(1, 10)).epsilon()
        0.1
        """
        allowed = parse_below_one(delta, "delta")
        return max(alternative.epsilon(allowed, lower=False).upper for alternative in self.compositions)

    def epsilon_bounds(self, delta: Number = 0) -> Bounds:
        """Certified lower and upper bounds of the smallest ε at δ, and the method of the upper one.

        >>> low, high = (PrivacyLoss.laplace(1) * 100).epsilon_bounds(1e-5)
        >>> low <= 68.2529510556143 <= high
        True
        """
        allowed = parse_below_one(delta, "delta")
        return _worst_bounds(alternative.epsilon(allowed) for alternative in self.compositions)

    def delta_bounds(self, epsilon: Number) -> Bounds:
        """Certified bounds of δ at ε."""
        at = parse_nonnegative(epsilon, "epsilon")
        return _worst_bounds(alternative.delta(at) for alternative in self.compositions)

    @property
    def relations(self) -> set[str]:
        """The neighbouring relations that it is stated for; none if it holds for any.

        >>> PrivacyLoss.gaussian(1).poisson_subsampled(0.1).relations
        {'add/remove'}
        """
        return {event.relation for events in self.alternatives for event, _ in events} - {""}

    @property
    def rho(self) -> Fraction | None:
        """ρ of zCDP, apart from the cost's δ; None if unknown.

        >>> PrivacyLoss.gaussian(1).rho
        Fraction(1, 2)
        """
        return self.cost().rho

    def renyi(self, alpha: Number) -> float:
        """An upper bound of the Rényi divergence of order α > 1; infinite with a positive infinity mass.

        >>> PrivacyLoss.gaussian(1).renyi(4) >= 2
        True
        """
        order = parse_rational(alpha, "alpha")
        if order <= 1:
            raise InvalidInput(
                "{alpha} is not above 1",
                why="a Rényi divergence has an order above 1",
                fix="pass an {alpha} above 1",
                parameter="alpha",
            )
        if any(alternative.infinity_mass_bounds[1] for alternative in self.compositions):
            return math.inf
        return max(
            RenyiDivergence(alternative.events).at(float_above(order)) for alternative in self.compositions
        )

    def tradeoff(self, alpha: Number) -> float:
        """f-DP: a lower bound of the false negative rate of any attack with false positive rate α.

        >>> round(PrivacyLoss.gaussian(1).tradeoff(0.01), 6)
        0.907638
        """
        at = parse_nonnegative(alpha, "alpha")
        if at > 1:
            raise InvalidInput(
                "{alpha} is above 1",
                why="it is a probability",
                fix="pass an {alpha} from 0 to 1",
                parameter="alpha",
            )
        return min(interpretation.tradeoff(alternative, at) for alternative in self.compositions)

    def advantage(self) -> float:
        """An upper bound of the membership advantage, true minus false positive rate: δ(0).

        >>> round(PrivacyLoss.gaussian(1).advantage(), 6)
        0.382925
        """
        return self.delta(0)

    def posterior(self, prior: Number, epsilon: Number | None = None) -> Posterior:
        """A bound of an attacker's posterior belief that a person is in, from a prior belief.

        Args:
            prior: The probability the attacker assigned beforehand.
            epsilon: The loss up to which the bound holds; if omitted, the largest loss there is.

        >>> PrivacyLoss.pure(1).posterior(0.5)
        Posterior(upper_bound=0.7310585786300049, exception_probability=0.0)

        Guarantee: at most `upper_bound`, except with probability `exception_probability`, which is not δ(ε).
        Assumes: the attacker's prior is independent of the mechanism's noise.
        Proof: docs/proofs/interpretation.md, "Posteriors"
        """
        sure = parse_probability(prior, "prior")
        at = None if epsilon is None else parse_nonnegative(epsilon, "epsilon")
        results = [interpretation.posterior(alternative, sure, at) for alternative in self.compositions]
        return Posterior(
            max(one.upper_bound for one in results), max(one.exception_probability for one in results)
        )

    def explain(self, delta: Number | None = None) -> str:
        """What the loss means for one person, as text.

        >>> print(PrivacyLoss.pure(1).explain())
        ε = 1.
        Any outcome is at most 2.72 times likelier with a person's data than without, or the reverse.
        ...
        """
        return interpretation.explain(self, None if delta is None else parse_below_one(delta, "delta"))

    def cost(self, orders: Sequence[Number] = ORDERS) -> ComposableCost:
        """The exact figures that a privacy filter adds up.

        >>> PrivacyLoss.pure(0.5).cost().epsilon, PrivacyLoss.gaussian(2).cost().mu_squared
        (Fraction(1, 2), Fraction(4, 1))

        Guarantee: as `ComposableCost`.
        Assumes: the mechanism it came from.
        Proof: docs/proofs/privacy-loss.md, "Cost"
        """
        costs = [composable_cost(alternative, tuple(orders)) for alternative in self.alternatives]
        worst = costs[0]
        for other in costs[1:]:
            worst = elementwise_max(worst, other)
        return worst

    def __str__(self) -> str:
        return " or ".join(describe_events(alternative) for alternative in self.alternatives)

    def __repr__(self) -> str:
        return f"<PrivacyLoss: {self}>"

    def _repr_html_(self) -> str:
        return f"<b>Privacy loss</b>: {html.escape(str(self))}"

    @cached_property
    def compositions(self) -> tuple[Composition, ...]:
        """Each alternative as a composition of its events."""
        return tuple(Composition(events) for events in self.alternatives)

    def _map_alternatives(
        self, change: Callable[[ComposedEvents], Iterable[tuple[Event, int]]]
    ) -> "PrivacyLoss":
        return PrivacyLoss(deduplicate(normalize_events(change(events)) for events in self.alternatives))


def parallel_composition(*losses: PrivacyLoss, substitution: bool = False) -> PrivacyLoss:
    """Parallel composition: one loss for each part of a public partition of the units.

    Under add/remove it is the worst loss. Under substitution a unit may leave one part and enter another: it
    is the two worst, composed; each loss must then hold for a unit added, removed or substituted in its part.

    >>> parallel_composition(PrivacyLoss.pure(1), PrivacyLoss.pure(0.5)) == PrivacyLoss.pure(1)
    True
    >>> parallel_composition(PrivacyLoss.pure(1), PrivacyLoss.pure(0.5), PrivacyLoss.pure(0.5),
    ...     substitution=True).epsilon()
    1.5

    Guarantee: holds for a unit that lies in at most one of the parts.
    Assumes: the partition is public, and does not depend on the data.
    Proof: docs/proofs/privacy-loss.md, "Parallel composition"
    """
    if not losses or not all(isinstance(loss, PrivacyLoss) for loss in losses):
        raise InvalidInput(
            "the arguments are not one or more privacy losses",
            why="a unit pays the worst of them",
            fix="pass one PrivacyLoss for each part of the partition",
        )
    alternatives = list(deduplicate(alternative for loss in losses for alternative in loss.alternatives))
    if substitution and not all(event.symmetric for alternative in alternatives for event, _ in alternative):
        raise Unsupported(
            "a loss is not symmetric in adding and removing a unit",
            why="a substituted unit leaves one part and enters another: one loss of each direction",
            fix="state losses that are symmetric, such as Gaussian, Laplace or pure ones",
        )
    if not substitution or len(losses) == 1:
        return PrivacyLoss(drop_dominated(alternatives))
    # Two parts of the partition may have the same loss.
    all_ways = [alternative for loss in losses for alternative in drop_dominated(loss.alternatives)]
    pairs = (
        normalize_events((*one, *other))
        for place, one in enumerate(all_ways)
        for other in all_ways[place + 1 :]
    )
    return PrivacyLoss(drop_dominated(deduplicate(pairs)))


def _single_event(events: ComposedEvents) -> Event:
    """The one mechanism that is subsampled."""
    if len(events) == 1 and events[0][1] == 1:
        return events[0][0]
    raise Unsupported(
        "several mechanisms are run on one sample",
        why="their losses are not independent, and amplification is known only for a single mechanism",
        fix="subsample each by itself, or state all as one Gaussian, or as PrivacyLoss.pure of their sum",
    )


def _parse_sampling_rate(sampling_rate: Number) -> Fraction:
    rate = parse_nonnegative(sampling_rate, "sampling_rate")
    if rate > 1:
        raise InvalidInput(
            "{sampling_rate} is above 1",
            why="it is a probability",
            fix="pass a {sampling_rate} from 0 to 1",
            parameter="sampling_rate",
        )
    return rate


def _worst_bounds(results: Iterable[Bounds]) -> Bounds:
    bounds = list(results)
    worst = max(bounds, key=lambda pair: pair.upper)
    return Bounds(max(pair.lower for pair in bounds), worst.upper, worst.method)
