"""Samplers: the units in each lot, and the privacy loss of drawing them.

One object does both, so that what is drawn and what is accounted cannot differ. A Poisson sampler puts every
unit into a lot with probability `sampling_rate`, independently of all other units and of earlier lots. The
size of a lot is private; its expectation (the expected batch size) is public.

Proof: docs/proofs/dpsgd.md
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from hubbub.accounting import Budget, PrivacyLoss
from hubbub.errors import InvalidInput, Unsupported
from hubbub.noise import bernoulli
from hubbub.noise.entropy import random_bytes
from hubbub.numbers import Number, parse_integer, parse_positive

__all__ = [
    "MAX_STEPS",
    "NumberSchedule",
    "PoissonSampler",
    "ShuffledSampler",
    "ShuffledSampling",
    "max_steps",
    "parse_schedule",
    "sample_units",
    "shuffle",
]

NumberSchedule = Number | Sequence[Number] | Callable[[int], Number]
"""A constant, a table with one entry per step, or a function of the step (counted from 0)."""

MAX_STEPS = 10**7


def parse_schedule(schedule: NumberSchedule, steps: int, name: str) -> Callable[[int], Fraction]:
    """Returns the value at each step. All values are checked now: positive and finite.

    >>> [str(parse_schedule(lambda t: Fraction(2, t + 1), 3, "clipping_norm")(t)) for t in range(3)]
    ['2', '1', '2/3']
    """
    if callable(schedule):
        table = tuple(parse_positive(schedule(step), name) for step in range(steps))
    elif isinstance(schedule, (Sequence, np.ndarray)):
        table = tuple(parse_positive(value, name) for value in schedule)
        if len(table) != steps:
            raise InvalidInput(
                f"the table of {name} has {len(table)} entries",
                why=f"the run has {steps} steps",
                fix="pass one entry per step, a number, or a function of the step",
            )
    else:
        constant = parse_positive(schedule, name)
        return lambda _: constant
    return table.__getitem__


@dataclass(frozen=True)
class PoissonSampler:
    """Poisson sampling: the sampling rate and the noise of every step are fixed beforehand.

    `mu_squared(t)` is the squared sensitivity-to-noise ratio of step t: the sum over parameter groups of
    1/σ², because all groups see the same lot.

    >>> sampler = PoissonSampler.of(sampling_rate=0.01, steps=1000, mu_squared=lambda t: Fraction(1))
    >>> round(sampler.privacy_loss.epsilon(1e-5), 2)
    1.83
    >>> bool((sampler.draw(0, units=50) < 50).all())
    True

    Guarantee: `privacy_loss` bounds the loss of steps on lots drawn by `draw`, under add/remove of one unit.
    Assumes: each step adds Gaussian noise, relative to which one unit contributes at most μ.
    Proof: docs/proofs/dpsgd.md
    """

    steps: int
    sampling_rate: Callable[[int], Fraction]
    mu_squared: Callable[[int], Fraction]

    @classmethod
    def of(
        cls, *, sampling_rate: NumberSchedule, steps: int, mu_squared: Callable[[int], Fraction]
    ) -> "PoissonSampler":
        """A sampler with this sampling rate: a number, a table, or a function of the step.

        Args:
            sampling_rate: the probability with which a unit is in a lot: a number, a table, or a function of
                the step.
            steps: the number of steps.
            mu_squared: the μ² of the Gaussian of each step.
        """
        count = parse_integer(steps, "steps")
        if count > MAX_STEPS:
            raise Unsupported(
                "steps is above 10^7", why="accounting is limited to 10^7", fix="pass fewer steps"
            )
        rates = parse_schedule(sampling_rate, count, "sampling_rate")
        is_constant = isinstance(sampling_rate, (int, float, Fraction))
        for step in (0,) if is_constant else range(count):
            if rates(step) > 1:
                raise InvalidInput(
                    "sampling_rate is above 1", why="it is a probability", fix="pass a rate between 0 and 1"
                )
        return cls(count, rates, mu_squared)

    def draw(self, step: int, units: int) -> NDArray[np.int64]:
        """The lot of this step, in random order: a subset of 0, 1, …, units − 1, without repetition."""
        return shuffle(sample_units(self.sampling_rate(step), units))

    @cached_property
    def privacy_loss(self) -> PrivacyLoss:
        """The privacy loss of the whole run, for one unit."""
        return self.loss_of(range(self.steps))

    def loss_of(self, steps: Sequence[int]) -> PrivacyLoss:
        """The privacy loss of these steps, for one unit."""
        kinds = Counter((self.sampling_rate(step), self.mu_squared(step)) for step in steps)
        return PrivacyLoss.compose(
            PrivacyLoss.gaussian_from_mu_squared(mu_squared).poisson_subsampled(rate) * times
            for (rate, mu_squared), times in kinds.items()
        )

    def __str__(self) -> str:
        first, last = float(self.sampling_rate(0)), float(self.sampling_rate(self.steps - 1))
        return f"Poisson sampling at rate {first:.4g}" + (f" to {last:.4g}" if last != first else "")


@dataclass(frozen=True)
class ShuffledSampling:
    """In place of a sampling rate: shuffled lots of one size, from a public number of units.

    Guarantee: that of `ShuffledSampler`, which is made of it.
    Assumes: the number of units is public.
    Proof: docs/proofs/dpsgd.md, "Shuffled lots"
    """

    population: int
    lot_size: int


@dataclass(frozen=True)
class ShuffledSampler:
    """Lots of fixed size: each epoch shuffles a public number of units and cuts them into lots.

    Neighbours differ in one unit's data, so the number of units is public. A unit is in one lot of each
    epoch. There is no amplification by sampling: an epoch costs a Gaussian of μ = 2/σ. Poisson sampling costs
    far less.

    >>> quarter = lambda t: Fraction(1, 4)
    >>> sampler = ShuffledSampler.of(population=1000, lot_size=100, steps=20, mu_squared=quarter)
    >>> sampler.privacy_loss == PrivacyLoss.gaussian_from_mu_squared(2)
    True

    Guarantee: `privacy_loss` bounds the loss of steps on lots drawn by `draw`, under substitution of one
        unit.
    Assumes: the number of units is public.
    Proof: docs/proofs/dpsgd.md, "Shuffled lots"
    """

    steps: int
    population: int
    lot_size: int
    mu_squared: Callable[[int], Fraction]

    @classmethod
    def of(
        cls, *, population: int, lot_size: int, steps: int, mu_squared: Callable[[int], Fraction]
    ) -> "ShuffledSampler":
        """Lots of `lot_size` units out of a public `population`.

        Args:
            population: the public number of units.
            lot_size: the number of units in a lot.
            steps: the number of steps.
            mu_squared: the μ² of the Gaussian of each step.
        """
        units, size = parse_integer(population, "population"), parse_integer(lot_size, "lot_size")
        if size > units:
            raise InvalidInput(
                "lot_size is above population", why="no unit is in a lot twice", fix="pass a smaller lot_size"
            )
        return cls(parse_integer(steps, "steps"), units, size, mu_squared)

    @property
    def steps_per_epoch(self) -> int:
        """The number of lots in an epoch."""
        return self.population // self.lot_size

    def draw(self, step: int, units: int) -> NDArray[np.int64]:
        """The lot of this step; the order of an epoch is drawn at its first step."""
        if units != self.population:
            raise InvalidInput(
                "population is not the number of units",
                why="shuffled lots are accounted for a public number of units",
                fix="pass the number of units as population, or use Poisson sampling",
            )
        if step % self.steps_per_epoch == 0 or "order" not in self.__dict__:
            object.__setattr__(self, "order", shuffle(np.arange(units)))
        start = step % self.steps_per_epoch * self.lot_size
        lot: NDArray[np.int64] = self.__dict__["order"][start : start + self.lot_size]
        return lot

    @cached_property
    def privacy_loss(self) -> PrivacyLoss:
        """The privacy loss of the whole run, for one unit."""
        return self.loss_of(range(self.steps))

    def loss_of(self, steps: Sequence[int]) -> PrivacyLoss:
        """The privacy loss of these steps: per epoch the worst of its lots, at twice the distance."""
        epochs: dict[int, Fraction] = {}
        for step in steps:
            epoch = step // self.steps_per_epoch
            epochs[epoch] = max(epochs.get(epoch, Fraction(0)), self.mu_squared(step))
        return PrivacyLoss.gaussian_from_mu_squared(4 * sum(epochs.values(), Fraction(0)))

    def __str__(self) -> str:
        return "shuffled lots of fixed size"


def max_steps(budget: Budget, *, sampling_rate: Number, noise_multiplier: Number) -> int:
    """The largest number of Poisson-sampled steps that stays within the budget; at most 10^7.

    Args:
        budget: (ε, δ) of the whole run.
        sampling_rate: The probability of a unit to be in a lot.
        noise_multiplier: σ, the noise's standard deviation in units of the clipping norm.

    >>> max_steps(Budget(1, 1e-5), sampling_rate=0.01, noise_multiplier=1.1)
    421
    """
    if not budget.delta:
        raise InvalidInput(
            "the budget has no δ",
            why="Gaussian noise has no finite ε at δ = 0",
            fix="pass a budget with δ, such as Budget(1, 1e-5)",
        )
    step = PrivacyLoss.gaussian(1 / parse_positive(noise_multiplier, "noise_multiplier")).poisson_subsampled(
        sampling_rate
    )

    def fits(steps: int) -> bool:
        return (step * steps).delta(budget.epsilon) <= budget.delta

    if not fits(1):
        raise InvalidInput(
            "a single step exceeds the budget",
            why="the noise is too small for it",
            fix="pass a larger noise_multiplier, a smaller sampling_rate or a larger budget",
        )
    if fits(MAX_STEPS):
        return MAX_STEPS
    low, high = 1, 2
    while fits(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def sample_units(rate: Fraction, units: int) -> NDArray[np.int64]:
    """A Poisson sample of 0, 1, …, units − 1: each with exactly this probability.

    Two random bytes decide nearly all units; the one value that is undecided gets an exact coin.
    """
    threshold, rest = divmod(rate.numerator << 16, rate.denominator)
    if threshold >= 1 << 16:
        return np.arange(units)
    draws = np.frombuffer(random_bytes(2 * units), dtype=np.uint16)
    is_chosen = draws < threshold
    if rest:
        undecided = np.flatnonzero(draws == threshold)
        is_chosen[undecided] = bernoulli(Fraction(rest, rate.denominator), size=undecided.size)
    return np.flatnonzero(is_chosen)


def shuffle(members: NDArray[np.int64]) -> NDArray[np.int64]:
    """The same members in uniformly random order: sorted by random keys, redrawn if two are equal."""
    while True:
        keys = np.frombuffer(random_bytes(8 * members.size), dtype=np.uint64)
        order = keys.argsort()
        ordered = keys[order]
        if not (ordered[1:] == ordered[:-1]).any():
            return members[order]
