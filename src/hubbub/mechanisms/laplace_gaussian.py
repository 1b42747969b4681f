"""The Laplace and Gaussian mechanisms, on integers and on reals.

Proof: docs/proofs/additive.md
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np

from hubbub.accounting import PrivacyLoss, largest_mu, parse_spendable_epsilon, refuse_large_delta
from hubbub.errors import InvalidInput
from hubbub.mechanisms.additive_mechanism import MAX_EPSILON, AdditiveMechanism, choose_grid, protects_nobody
from hubbub.mechanisms.mechanism import check_positive_sensitivity, check_sensitivity, computed_once
from hubbub.mechanisms.noise_tails import (
    Moment,
    TailFunction,
    discrete_laplace_mean_size,
    discrete_laplace_tail,
    discrete_laplace_variance,
    rounded_gaussian_mean_size,
    rounded_gaussian_tail,
    rounded_gaussian_variance,
)
from hubbub.noise import discrete_laplace, geometric, rounded_gaussian
from hubbub.noise.enclosures import exp_neg, log, mills_ratio, normal_tail
from hubbub.noise.inversion import MAX_DRAW
from hubbub.numbers import (
    Number,
    ceil_sqrt,
    format_up,
    parse_integer,
    parse_nonnegative,
    parse_probability,
    round_up,
)
from hubbub.release import Release
from hubbub.sensitivity import MAX_MAGNITUDE, Bounded, Sensitivity

__all__ = ["Gaussian", "Laplace", "choose_additive_noise"]

_PRECISION = 256


@dataclass(frozen=True, repr=False)
class Laplace(AdditiveMechanism):
    """The Laplace mechanism: discrete Laplace noise of scale b on integers, or on a grid for reals.

    >>> mechanism = Laplace.of(sensitivity=1, epsilon=0.5)
    >>> mechanism.error(0.95)
    6
    >>> print(mechanism)
    Laplace noise of scale 2 on integers: ε = 0.5

    Guarantee: ε-differential privacy with ε = Δ₁/b (for reals, (Δ₁ + d·2^k)/b).
    Assumes: Δ₁ is the ℓ1 sensitivity; uniform random bits.
    Proof: docs/proofs/additive.md
    """

    kind: ClassVar[str] = "laplace/1"

    @classmethod
    def of(
        cls,
        *,
        sensitivity: Sensitivity | Number,
        epsilon: Number,
        real: bool = False,
        coordinates: int = 1,
        allow_large_epsilon: bool = False,
    ) -> Self:
        """Make the Laplace mechanism with this ε.

        Args:
            sensitivity: how far one unit can move the value; a number is the ℓ1 sensitivity.
            epsilon: the ε of one release.
            real: true for values that are not integers.
            coordinates: for reals, the maximum number of coordinates.
            allow_large_epsilon: confirms a large ε, as for `Budget`.
        """
        bound = Sensitivity.of(sensitivity)
        check_positive_sensitivity(bound)
        price = parse_spendable_epsilon(epsilon, allow=allow_large_epsilon)
        count = parse_integer(coordinates, "coordinates")
        if real:
            grid = choose_grid(bound.l1 / price, bound.l1, count)
            return cls((bound.l1 + count * grid) / price, bound, grid, count)
        _check_integer_sensitivity(bound)
        return cls(bound.l1 / price, bound, None, count)

    @classmethod
    def for_error(
        cls,
        error: Number,
        *,
        confidence: Number = 0.95,
        sensitivity: Sensitivity | Number = 1,
        real: bool = False,
        coordinates: int = 1,
    ) -> Self:
        """Make the Laplace mechanism with the least ε and a simultaneous error of at most `error`.

        Args:
            error: the largest simultaneous error, a positive number.
            confidence: the probability with which the error holds.
            sensitivity: how far one unit moves the value; a number is the ℓ1 sensitivity.
            real: True for real values, which are rounded to a grid.
            coordinates: the number of coordinates that the error is for.

        >>> mechanism = Laplace.for_error(6)
        >>> mechanism.error(0.95), round(mechanism.loss().epsilon(), 3)
        (6, 0.457)
        """
        bound = Sensitivity.of(sensitivity)
        if not real:
            _check_integer_sensitivity(bound)
        return cls._calibrate_to_error(error, confidence, bound, real=real, coordinates=coordinates)

    @computed_once
    def loss(self) -> PrivacyLoss:
        """Return the loss: pure ε = Δ₁/b, rounding included, and a smaller ε at δ > 0."""
        step = self.grid or Fraction(1)
        # On the grid an answer moves by whole steps.
        distance = (self.sensitivity.l1 + self.coordinates * (self.grid or 0)) // step
        return PrivacyLoss.discrete_laplace(self.scale / step, max(1, distance))

    def union_bound(self, confidence: Number = 0.95, *, coordinates: int = 1) -> float:
        """Return Dwork & Roth's bound (Theorem 3.8): b·ln(coordinates/β), β = 1 − confidence, rounded up.

        The theorem is about the continuous law. The integer law may exceed its bound by less than one; the
        bound that holds is `error`, which is never wider than the next integer.

        >>> round(Laplace.of(sensitivity=1, epsilon=1).union_bound(0.95, coordinates=10_000), 1)
        12.2

        Guarantee: all errors are below this plus one (for reals, plus one and a half steps).
        Proof: docs/proofs/accuracy.md
        """
        beta = 1 - parse_probability(confidence, "confidence")
        return round_up(
            self.scale * Fraction(log(parse_integer(coordinates, "coordinates") / beta, 96)[1], 1 << 96)
        )

    def release_gradually(self, value: Any, levels: int) -> Iterator[Release]:
        """Release a vector of integers again and again, each time with half the noise, down to this noise.

        Whoever stops looking at one release has paid for that one: those before it are functions of it and
        of further noise (Koufogiannis, Han and Pappas 2015). So a search may stop as soon as it knows enough.

        >>> noise = Laplace.of(sensitivity=1, epsilon=1)
        >>> [float(each.loss.epsilon()) for each in noise.release_gradually([40, 50, 60], 3)]
        [0.25, 0.5, 1.0]

        Args:
            value: integers, as `release` takes them.
            levels: the number of releases.

        Guarantee: all releases up to one, together with the choice to stop there, have the loss of that one.
        Proof: docs/proofs/additive.md, "Gradual release"
        """
        count = parse_integer(levels, "levels")
        bounded = check_sensitivity(value, self.sensitivity, self._norm)
        if self.grid is not None or not bounded.is_vector:
            raise InvalidInput(
                "only a vector of integers can be released gradually",
                why="the finer noise is a part of the coarser one, on integers only",
                fix="pass integers, to a mechanism without real=True",
            )
        exact: Any = self._check_exact(bounded)
        # Python's integers: no sum of draws is ever cut.
        answer = _add(exact.tolist(), self._full_draws(exact.size))
        releases, mechanism = [self._release_integers(answer, bounded)], self
        for _ in range(count - 1):
            mechanism = replace(mechanism, scale=2 * mechanism.scale)
            answer = _add(answer, mechanism._noise_on_half(exact.size))  # noqa: SLF001 - of this class
            releases.append(mechanism._release_integers(answer, bounded))  # noqa: SLF001 - of this class
        yield from reversed(releases)

    def _release_integers(self, answer: list[int], bounded: Bounded) -> Release:
        clamped = [max(-MAX_MAGNITUDE, min(MAX_MAGNITUDE, number)) for number in answer]
        return self._make_release(np.array(clamped, dtype=np.int64), bounded, 1)

    def _noise_on_half(self, size: int) -> list[int]:
        """Draw what makes noise of half this scale into noise of this scale.

        With a = e^(−1/b) it is 0 with probability a/(1 + a)², else noise of scale b. A draw is 0 or more with
        probability 1/(1 + a), so two draws decide.

        Proof: docs/proofs/additive.md, "Gradual release"
        """
        first, second, draws = (self._full_draws(size) for _ in range(3))
        return [0 if one >= 0 > two else draw for one, two, draw in zip(first, second, draws, strict=True)]

    def _full_draws(self, size: int) -> list[int]:
        """Draw noise in steps; what a vector holds as ±2^62 is drawn on."""
        draws = self._draw_noise(size).tolist()
        return [draw if abs(draw) < MAX_DRAW else self._extend(draw) for draw in draws]

    @property
    def _tail(self) -> TailFunction:
        return partial(discrete_laplace_tail, self._scale_in_steps)

    @property
    def _variance_in_steps(self) -> Moment:
        return discrete_laplace_variance(self._scale_in_steps)

    @property
    def _mean_size_in_steps(self) -> Moment:
        return discrete_laplace_mean_size(self._scale_in_steps)

    @property
    def _norm(self) -> str:
        return "l1"

    def _draw_noise(self, size: int | None) -> Any:
        return (
            discrete_laplace(self._scale_in_steps)
            if size is None
            else discrete_laplace(self._scale_in_steps, size)
        )

    def _log_probability(self, steps: Fraction) -> float:
        return float(-abs(steps) / self._scale_in_steps)

    def _extend(self, draw: int) -> int:
        # The law is memoryless: beyond 2^62 it starts anew.
        size = MAX_DRAW + geometric(self._scale_in_steps)
        # survives: Asked of ±2^62 only, and of these only the sign counts.
        return size if draw > 0 else -size

    @classmethod
    def _distance(cls, sensitivity: Sensitivity) -> Fraction:
        return sensitivity.l1

    def __str__(self) -> str:
        return f"Laplace noise of scale {format_up(self.scale)} on {self._describe_values()}: {self.loss()}"


def _add(numbers: list[int], draws: list[int]) -> list[int]:
    return [number + draw for number, draw in zip(numbers, draws, strict=True)]


@dataclass(frozen=True, repr=False)
class Gaussian(AdditiveMechanism):
    """The Gaussian mechanism: noise of standard deviation σ, rounded to integers or to the steps of a grid.

    Calibrated by the exact δ(ε) of the Gaussian mechanism (Balle & Wang 2018), not by √(2·ln(1.25/δ))/ε.

    >>> mechanism = Gaussian.of(sensitivity=1, epsilon=1, delta=1e-6)
    >>> print(mechanism)
    Gaussian noise of σ = 4.22468 on integers: Gaussian μ = 0.236705
    >>> mechanism.loss().delta(1) <= 1e-6
    True

    Guarantee: δ(ε) of a Gaussian with μ = Δ₂/σ (for reals, (Δ₂ + √d·2^k)/σ): rounding is
        post-processing, so this holds in any dimension.
    Assumes: Δ₂ is the ℓ2 sensitivity; uniform random bits.
    Proof: docs/proofs/additive.md
    """

    kind: ClassVar[str] = "gaussian/1"

    @classmethod
    def of(
        cls,
        *,
        sensitivity: Sensitivity | Number,
        epsilon: Number,
        delta: Number,
        real: bool = False,
        coordinates: int = 1,
        population: int | None = None,
        allow_large_epsilon: bool = False,
    ) -> Self:
        """Make the Gaussian mechanism with the least σ that is (ε, δ)-differentially private.

        Args:
            sensitivity: how far one unit can move the value; its ℓ2 norm counts.
            epsilon: the ε of one release.
            delta: the δ of one release.
            real: true for values that are not integers.
            coordinates: for reals, the maximum number of coordinates.
            population: the public number of units, if known; δ must then be below 1/population.
            allow_large_epsilon: confirms a large ε, as for `Budget`.
        """
        bound = Sensitivity.of(sensitivity)
        check_positive_sensitivity(bound)
        allowed = parse_probability(delta, "delta")
        refuse_large_delta(allowed, population)
        mu = largest_mu(parse_spendable_epsilon(epsilon, allow=allow_large_epsilon), allowed)
        norm = ceil_sqrt(bound.l2_squared)
        count = parse_integer(coordinates, "coordinates")
        grid = choose_grid(norm / mu, norm, count) if real else None
        # σ as a double, rounded up: as exact as any rational, and short to store.
        sigma = Fraction(round_up((norm + ceil_sqrt(Fraction(count)) * (grid or 0)) / mu))
        return cls(sigma, bound, grid, count)

    @classmethod
    def for_error(
        cls,
        error: Number,
        *,
        delta: Number,
        confidence: Number = 0.95,
        sensitivity: Sensitivity | Number = 1,
        real: bool = False,
        coordinates: int = 1,
        population: int | None = None,
    ) -> Self:
        """Make the mechanism with the least ε at this δ and a simultaneous error of at most `error`.

        Args:
            error: the largest simultaneous error, a positive number.
            delta: the δ at which ε is least.
            confidence: the probability with which the error holds.
            sensitivity: how far one unit moves the value; a number is the ℓ1 sensitivity.
            real: True for real values, which are rounded to a grid.
            coordinates: the number of coordinates that the error is for.
            population: the public number of units, if known; δ must then be below 1/population.

        >>> Gaussian.for_error(10, delta=1e-6).error(0.95)
        10
        """
        allowed = parse_probability(delta, "delta")
        refuse_large_delta(allowed, population)
        mechanism = cls._calibrate_to_error(
            error, confidence, sensitivity, real=real, coordinates=coordinates
        )
        # survives: An epsilon rounded up from an irrational number is not just the limit.
        if mechanism.loss().epsilon(allowed) > MAX_EPSILON:
            raise protects_nobody()
        return mechanism

    @property
    def sigma(self) -> Fraction:
        """σ, in the units of the value."""
        return self.scale

    @computed_once
    def loss(self) -> PrivacyLoss:
        """Return the loss: Gaussian with μ = Δ₂/σ, rounding included."""
        if self.grid is None:
            return PrivacyLoss.gaussian_from_mu_squared(self.sensitivity.l2_squared / self.scale**2)
        distance = ceil_sqrt(self.sensitivity.l2_squared) + ceil_sqrt(Fraction(self.coordinates)) * self.grid
        return PrivacyLoss.gaussian_from_mu_squared((distance / self.scale) ** 2)

    @property
    def _tail(self) -> TailFunction:
        return partial(rounded_gaussian_tail, self._scale_in_steps)

    @property
    def _variance_in_steps(self) -> Moment:
        return rounded_gaussian_variance(self._scale_in_steps)

    @property
    def _mean_size_in_steps(self) -> Moment:
        return rounded_gaussian_mean_size(self._scale_in_steps)

    @property
    def _norm(self) -> str:
        return "l2_squared"

    def _draw_noise(self, size: int | None) -> Any:
        return (
            rounded_gaussian(self._scale_in_steps)
            if size is None
            else rounded_gaussian(self._scale_in_steps, size)
        )

    def _log_probability(self, steps: Fraction) -> float:
        # The mass of a step, times 2·√(2π): a difference of tails, or Mills' ratio where they underflow.
        low, high = (
            (abs(steps) - Fraction(1, 2)) / self._scale_in_steps,
            (abs(steps) + Fraction(1, 2)) / self._scale_in_steps,
        )
        if low < 4:
            inner, outer = normal_tail(abs(low), _PRECISION)[0], normal_tail(high, _PRECISION)[0]
            mass = inner - outer if low >= 0 else (2 << _PRECISION) - inner - outer
            return math.log(mass) - _PRECISION * math.log(2) + math.log(2 * math.pi) / 2
        fall = exp_neg((high - low) * (high + low) / 2, _PRECISION)[0]
        share = mills_ratio(low, _PRECISION)[0] - (fall * mills_ratio(high, _PRECISION)[0] >> _PRECISION)
        return math.log(share) - (_PRECISION - 1) * math.log(2) - float(low * low / 2)

    def _extend(self, draw: int) -> int:
        # It has probability e^-2^27, which the unit by which every δ is rounded up covers.
        return draw

    @classmethod
    def _distance(cls, sensitivity: Sensitivity) -> Fraction:
        return ceil_sqrt(sensitivity.l2_squared)

    def __str__(self) -> str:
        return f"Gaussian noise of σ = {format_up(self.scale)} on {self._describe_values()}: {self.loss()}"


def choose_additive_noise(
    *,
    sensitivity: Sensitivity | Number,
    epsilon: Number,
    delta: Number = 0,
    real: bool = False,
    coordinates: int = 1,
    confidence: Number = 0.95,
    population: int | None = None,
    allow_large_epsilon: bool = False,
) -> Laplace | Gaussian:
    """Return the Laplace or the Gaussian mechanism, whichever has the smaller simultaneous error.

    Args:
        sensitivity: how far one unit moves the value; a number is the ℓ1 sensitivity.
        epsilon: the ε of one release.
        delta: the δ of one release; with 0 it is the Laplace mechanism.
        real: True for real values, which are rounded to a grid.
        coordinates: the number of coordinates that the error is for.
        confidence: the confidence at which errors are compared.
        population: the public number of units, if known; δ must then be below 1/population.
        allow_large_epsilon: confirms an ε that protects almost nobody.

    >>> type(choose_additive_noise(sensitivity=1, epsilon=1, delta=1e-6)).__name__
    'Laplace'
    >>> many = Sensitivity(30, linf=1)  # one unit moves thirty counts by one each
    >>> type(choose_additive_noise(sensitivity=many, epsilon=1, delta=1e-6, coordinates=30)).__name__
    'Gaussian'

    Guarantee: that of the mechanism it returns; the choice looks at public numbers only.
    Assumes: what that mechanism assumes.
    Proof: docs/proofs/additive.md
    """
    laplace = Laplace.of(
        sensitivity=sensitivity,
        epsilon=epsilon,
        real=real,
        coordinates=coordinates,
        allow_large_epsilon=allow_large_epsilon,
    )
    if parse_nonnegative(delta, "delta") == 0:
        return laplace
    gaussian = Gaussian.of(
        sensitivity=sensitivity,
        epsilon=epsilon,
        delta=delta,
        real=real,
        coordinates=coordinates,
        population=population,
        allow_large_epsilon=allow_large_epsilon,
    )
    is_laplace = laplace.error(confidence, coordinates=coordinates) <= gaussian.error(
        confidence, coordinates=coordinates
    )
    return laplace if is_laplace else gaussian


def _check_integer_sensitivity(sensitivity: Sensitivity) -> None:
    if sensitivity.l1.denominator != 1:
        raise InvalidInput(
            "the sensitivity is not a whole number",
            why="integers move by whole numbers, so the answer seems to be real",
            fix="pass real=True, or the sensitivity of the integer answer",
        )
