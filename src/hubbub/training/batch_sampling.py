"""Lots: which units a step sees, and what that costs. One object does both, so that they cannot differ.

A lot is a Poisson sample: every unit is in it with probability `rate`, independently of all others and of
earlier lots. Its size is nobody's business; nothing here asks how many units there are before it draws.

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
    "MOST_STEPS",
    "FixedSizeSampling",
    "PoissonSampling",
    "Scheduled",
    "ShuffledSampling",
    "max_steps",
    "scheduled",
]

Scheduled = Number | Sequence[Number] | Callable[[int], Number]
"""A number, the same at every step; a table of one for each; or a function of the step, from 0 on."""

MOST_STEPS = 10**7


def scheduled(given: Scheduled, steps: int, name: str) -> Callable[[int], Fraction]:
    """What holds at each step, all of it checked now: positive and finite.

    >>> [str(scheduled(lambda t: Fraction(2, t + 1), 3, "clip")(t)) for t in range(3)]
    ['2', '1', '2/3']
    """
    if callable(given):
        table = tuple(parse_positive(given(step), name) for step in range(steps))
    elif isinstance(given, (Sequence, np.ndarray)):
        table = tuple(parse_positive(value, name) for value in given)
        if len(table) != steps:
            raise InvalidInput(
                f"the table of {name} has {len(table)} entries",
                why=f"there are {steps} steps",
                fix="pass one for each step, a number, or a function of the step",
            )
    else:
        constant = parse_positive(given, name)
        return lambda _: constant
    return table.__getitem__


@dataclass(frozen=True)
class PoissonSampling:
    """Poisson lots: `steps` of them, the rate and the noise of each fixed beforehand.

    `mu_squared(t)` is what one unit's whole contribution to step t weighs against its noise: the sum over
    layers of 1/σ², as all layers see the same lot.

    >>> lots = PoissonSampling.of(rate=0.01, steps=1000, mu_squared=lambda t: Fraction(1))
    >>> round(lots.loss.epsilon(1e-5), 2)
    1.83
    >>> bool((lots.draw(0, units=50) < 50).all())
    True

    Guarantee: `loss` is that of steps whose lots are drawn by `draw`, under add/remove of one unit.
    Assumes: each step adds Gaussian noise against which one unit weighs no more than μ.
    Proof: docs/proofs/dpsgd.md
    """

    steps: int
    rate: Callable[[int], Fraction]
    mu_squared: Callable[[int], Fraction]

    @classmethod
    def of(cls, *, rate: Scheduled, steps: int, mu_squared: Callable[[int], Fraction]) -> "PoissonSampling":
        """Lots of this rate: a number, a table, or a function of the step."""
        count = parse_integer(steps, "steps")
        if count > MOST_STEPS:
            raise Unsupported("steps is above 10^7", why="no run takes so many", fix="pass fewer steps")
        rates = scheduled(rate, count, "rate")
        for step in range(count) if callable(rate) or not isinstance(rate, (int, float, Fraction)) else (0,):
            if rates(step) > 1:
                raise InvalidInput(
                    "rate is above 1", why="it is a probability", fix="pass a rate within 0 and 1"
                )
        return cls(count, rates, mu_squared)

    def draw(self, step: int, units: int) -> NDArray[np.int64]:
        """The lot of this step, in random order: units 0, 1, … each with its probability, none twice."""
        return _shuffled(_chosen(self.rate(step), units))

    @cached_property
    def loss(self) -> PrivacyLoss:
        """What the whole run costs one unit."""
        return self.loss_of(range(self.steps))

    def loss_of(self, steps: Sequence[int]) -> PrivacyLoss:
        """What these steps cost one unit."""
        kinds = Counter((self.rate(step), self.mu_squared(step)) for step in steps)
        return PrivacyLoss.compose(
            PrivacyLoss.gaussian_from_mu_squared(mu_squared).poisson_subsampled(rate) * times
            for (rate, mu_squared), times in kinds.items()
        )

    def __str__(self) -> str:
        first, last = float(self.rate(0)), float(self.rate(self.steps - 1))
        return f"Poisson lots at rate {first:.4g}" + (f" to {last:.4g}" if last != first else "")


@dataclass(frozen=True)
class FixedSizeSampling:
    """In the place of a rate: shuffled lots of one size, out of a public number of units."""

    population: int
    size: int


@dataclass(frozen=True)
class ShuffledSampling:
    """Lots of fixed size: each epoch shuffles a public number of units and cuts them into lots.

    Neighbours differ in one unit's data, so that the number of units is public. A unit is in one lot of each
    epoch; nothing is gained by sampling, and an epoch costs a Gaussian of 2/σ. Poisson lots cost far less.

    >>> lots = ShuffledSampling.of(population=1000, size=100, steps=20, mu_squared=lambda t: Fraction(1, 4))
    >>> lots.loss == PrivacyLoss.gaussian_from_mu_squared(2)
    True

    Guarantee: `loss` is that of lots drawn by `draw`, under substitution of one unit.
    Assumes: the number of units is public.
    Proof: docs/proofs/dpsgd.md, "Shuffled lots"
    """

    steps: int
    population: int
    size: int
    mu_squared: Callable[[int], Fraction]

    @classmethod
    def of(
        cls, *, population: int, size: int, steps: int, mu_squared: Callable[[int], Fraction]
    ) -> "ShuffledSampling":
        """Lots of `size` out of a public `population`."""
        people, each = parse_integer(population, "population"), parse_integer(size, "size")
        if each > people:
            raise InvalidInput(
                "size is above population", why="none is in a lot twice", fix="pass a smaller size"
            )
        return cls(parse_integer(steps, "steps"), people, each, mu_squared)

    @property
    def per_epoch(self) -> int:
        """Lots in an epoch."""
        return self.population // self.size

    def draw(self, step: int, units: int) -> NDArray[np.int64]:
        """The lot of this step; the epoch's order is drawn at its first step."""
        if units != self.population:
            raise InvalidInput(
                "population is not the number of units there are",
                why="shuffled lots are about a public number of units",
                fix="pass the population, or use Poisson lots",
            )
        if step % self.per_epoch == 0 or "order" not in self.__dict__:
            object.__setattr__(self, "order", _shuffled(np.arange(units)))
        start = step % self.per_epoch * self.size
        lot: NDArray[np.int64] = self.__dict__["order"][start : start + self.size]
        return lot

    @cached_property
    def loss(self) -> PrivacyLoss:
        """What the whole run costs one unit."""
        return self.loss_of(range(self.steps))

    def loss_of(self, steps: Sequence[int]) -> PrivacyLoss:
        """What these steps cost one unit: in each epoch the worst of its lots, twice as far."""
        epochs: dict[int, Fraction] = {}
        for step in steps:
            epoch = step // self.per_epoch
            epochs[epoch] = max(epochs.get(epoch, Fraction(0)), self.mu_squared(step))
        return PrivacyLoss.gaussian_from_mu_squared(4 * sum(epochs.values(), Fraction(0)))

    def __str__(self) -> str:
        return "shuffled lots of fixed size"


def max_steps(target: Budget, *, rate: Number, sigma: Number) -> int:
    """The most steps of Poisson lots at this rate, with noise σ, that keep within the target; at most 10^7.

    >>> max_steps(Budget(1, 1e-5), rate=0.01, sigma=1.1)
    421
    """
    if not target.delta:
        raise InvalidInput(
            "the target has no δ",
            why="with Gaussian noise there is no ε for δ = 0",
            fix="pass such as Budget(1, 1e-5)",
        )
    step = PrivacyLoss.gaussian(1 / parse_positive(sigma, "sigma")).poisson_subsampled(rate)

    def fits(steps: int) -> bool:
        return (step * steps).delta(target.epsilon) <= target.delta

    if not fits(1):
        raise InvalidInput(
            "not even one step keeps within the target",
            why="the noise is too small for it",
            fix="pass a larger sigma, a smaller rate or a larger target",
        )
    if fits(MOST_STEPS):
        return MOST_STEPS
    low, high = 1, 2
    while fits(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def _chosen(rate: Fraction, units: int) -> NDArray[np.int64]:
    """Those of 0, 1, …, units − 1 that a coin of exactly this chance chooses.

    Two random bytes decide nearly all; the one value that does not decide is decided by an exact coin.
    """
    low, rest = divmod(rate.numerator << 16, rate.denominator)
    if low >= 1 << 16:
        return np.arange(units)
    drawn = np.frombuffer(random_bytes(2 * units), dtype=np.uint16)
    chosen = drawn < low
    if rest:
        open_ones = np.flatnonzero(drawn == low)
        chosen[open_ones] = bernoulli(Fraction(rest, rate.denominator), size=open_ones.size)
    return np.flatnonzero(chosen)


def _shuffled(members: NDArray[np.int64]) -> NDArray[np.int64]:
    """The same in uniformly random order: that of random keys, no two of which are equal."""
    while True:
        keys = np.frombuffer(random_bytes(8 * members.size), dtype=np.uint64)
        order = keys.argsort()
        ordered = keys[order]
        if not (ordered[1:] == ordered[:-1]).any():
            return members[order]
