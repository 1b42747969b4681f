"""Additive noise: Laplace and Gaussian, on integers and on reals.

Type of noise, sensitivity, desired ε, desired δ: the textbook's interface. Integers get an integer
law; reals are rounded to a grid of step 2^k, which is charged, and get the same law on its steps.

Proof: docs/proofs/additive.md
"""

import math
from abc import abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np

from hubbub.accounting import PrivacyLoss, largest_mu, parse_spendable_epsilon, refuse_large_delta
from hubbub.errors import InvalidInput, Refused, Unsupported
from hubbub.mechanisms.error_bounds import (
    Beyond,
    discrete_laplace_tail,
    half_width,
    rounded_gaussian_tail,
)
from hubbub.mechanisms.mechanism import Mechanism, check_positive_sensitivity, check_sensitivity
from hubbub.noise import MAX_SCALE, discrete_laplace, geometric, rounded_gaussian
from hubbub.noise.enclosures import exp_neg, log, mills, outside
from hubbub.noise.float_grid import add_integers, add_on_grid, grid_below
from hubbub.noise.inversion import MOST
from hubbub.numbers import (
    Number,
    ceil_sqrt,
    parse_exact,
    parse_integer,
    parse_nonnegative,
    parse_positive,
    parse_probability,
    round_up,
)
from hubbub.release import Release
from hubbub.sensitivity import Sensitivity, unwrap

__all__ = ["AdditiveMechanism", "Gaussian", "Laplace", "choose_additive_noise"]

_STEPS = 32
"""A real is released on a grid of 2^32 steps to one scale of noise, or finer for many coordinates."""
_FINEST_STEPS = 46
_ROUNDING = Fraction(1, 1024)
"""Rounding may add this share to the sensitivity before a finer grid is chosen."""
_DIGITS = 256
_MOST_EPSILON = 2**20


@dataclass(frozen=True)
class AdditiveMechanism(Mechanism):
    """Abstract: noise of one symmetric law, added to integers or to the steps of a grid."""

    scale: Fraction
    """The noise's b or σ, in the value's own units."""
    sensitivity: Sensitivity
    grid: Fraction | None = None
    """The step of the grid for reals; None for integers."""
    coordinates: int = 1
    """For reals, the most coordinates it may release at once: each one's rounding is charged."""

    error_kind: ClassVar[str] = "additive"

    def __post_init__(self) -> None:
        object.__setattr__(self, "scale", parse_positive(self.scale, "scale"))
        object.__setattr__(self, "sensitivity", Sensitivity.of(self.sensitivity))
        object.__setattr__(self, "coordinates", parse_integer(self.coordinates, "coordinates"))
        check_positive_sensitivity(self.sensitivity)
        if self.grid is not None:
            object.__setattr__(self, "grid", parse_positive(self.grid, "grid"))
            if grid_below(self.grid, 0) != self.grid:
                raise InvalidInput(
                    "grid is not a power of two",
                    why="doubles on such a grid would not be exact",
                    fix="use a power of two, or let of() choose",
                )
        if self._steps > MAX_SCALE:
            raise Unsupported(
                "the noise is wider than 2^48 steps",
                why="beyond that the law would no longer be exact in 64 bits",
                fix="measure in larger units, or choose a larger epsilon or a coarser grid",
            )

    @property
    @abstractmethod
    def _beyond(self) -> Beyond:
        """The two-sided tail of the law on steps."""

    @abstractmethod
    def _noise(self, size: int | None) -> Any:
        """Draw from the law on steps."""

    @abstractmethod
    def _further(self, drawn: int) -> int:
        """The draw itself where a vector on a grid holds ±2^62 for all that lie as far out or further."""

    @property
    @abstractmethod
    def _norm(self) -> str:
        """The norm of the sensitivity that counts."""

    @classmethod
    @abstractmethod
    def _moved(cls, sensitivity: Sensitivity) -> Fraction:
        """How far one unit moves a value in that norm."""

    @property
    def _steps(self) -> Fraction:
        """The scale in steps of the grid."""
        return self.scale / (self.grid or 1)

    def error(self, confidence: Number = 0.95, *, coordinates: int = 1) -> float:
        """How far `coordinates` answers are off at most, all at once, with this confidence.

        Exact for the law sampled: for integers the least whole number; for reals, rounding to the grid
        included. A double of more than 2^53 steps is rounded once more when it is shown: the release's
        own error() knows by how much.

        Guarantee: every |answer − exact| is within it, with at least this confidence.
        Proof: docs/proofs/accuracy.md
        """
        width = half_width(self._beyond, confidence, coordinates)
        return width if self.grid is None else round_up((width + Fraction(1, 2)) * self.grid)

    def loss_at(self, outcome: Number, value: Number, neighbour: Number) -> float:
        """The privacy loss of one outcome: ln Pr[M(value) = outcome] − ln Pr[M(neighbour) = outcome].

        Of one coordinate, to about twelve digits. Reals are taken as what they are rounded to.

        >>> Laplace.of(sensitivity=1, epsilon=0.5).loss_at(45, 42, 41)
        0.5
        >>> round(Gaussian(Fraction(2), Sensitivity(1)).loss_at(44, 42, 41), 3)
        0.612
        """
        step = self.grid or Fraction(1)
        given = zip(("outcome", "value", "neighbour"), (outcome, value, neighbour), strict=True)
        at, here, there = (parse_exact(number, name) / step for name, number in given)
        if at.denominator != 1:
            raise InvalidInput(
                "the outcome is not on the grid",
                why="the mechanism never gives it",
                fix="pass an outcome of a release",
            )
        return self._log_chance(at - round(here)) - self._log_chance(at - round(there))

    @abstractmethod
    def _log_chance(self, steps: Fraction) -> float:
        """Ln Pr[noise = so many steps], but for a constant."""

    def tail(self, t: Number) -> float:
        """Pr[|Y| ≥ t·scale] of the law sampled, rounded up.

        >>> round(Laplace.of(sensitivity=1, epsilon=Fraction(1, 1000)).tail(3), 3)  # e^-3
        0.05
        """
        far = parse_nonnegative(t, "t") * self._steps
        least = -(-far.numerator // far.denominator)
        return 1.0 if least == 0 else round_up(Fraction(self._beyond(least - 1, 128)[1], 1 << 128))

    def release(self, value: Any) -> Release:
        """The value with noise: integers from integers, doubles on the grid from reals."""
        bounded = check_sensitivity(value, self.sensitivity, self._norm)
        exact = unwrap(bounded)
        is_whole = isinstance(exact, int) or (isinstance(exact, np.ndarray) and exact.dtype.kind == "i")
        if self.grid is None and not is_whole:
            raise InvalidInput(
                "the value is not made of integers",
                why="integer noise would leave the digits behind the point bare",
                fix="make the mechanism with real=True",
            )
        if self.grid is not None and bounded.coordinates > self.coordinates:
            raise Refused(
                f"the value has {bounded.coordinates} coordinates, but the mechanism has {self.coordinates}",
                why="the rounding of every coordinate is part of the sensitivity",
                fix=f"make the mechanism with coordinates={bounded.coordinates}",
            )
        noise = self._noise(bounded.coordinates if bounded.is_vector else None)
        shown: Any
        if self.grid is None:
            shown = add_integers(exact, noise)  # type: ignore[arg-type]
        else:
            shown = add_on_grid(exact, noise, self.grid, self._further)
        return Release(
            shown,
            self.loss(),
            self,
            bounded.unit,
            user_asserted=bounded.is_user_asserted,
            coordinates=max(1, bounded.coordinates),
        )

    @classmethod
    def _within(
        cls,
        error: Number,
        confidence: Number,
        sensitivity: Sensitivity | Number,
        *,
        real: bool,
        coordinates: int,
    ) -> Self:
        """The widest noise (to one part in 2^20) with a simultaneous error of at most `error`."""
        wanted, bound, count = (
            parse_positive(error, "error"),
            Sensitivity.of(sensitivity),
            parse_integer(coordinates, "coordinates"),
        )
        unsupported: list[Unsupported] = []

        def fits(scale: Fraction) -> bool:
            try:
                return (
                    cls._of_scale(scale, bound, count, real=real).error(confidence, coordinates=count)
                    <= wanted
                )
            except Unsupported as problem:  # so wide, or so fine, that it cannot be sampled
                unsupported.append(problem)
                # survives: Only asked whether it is true.
                return False

        low = Fraction(2) ** (wanted.numerator.bit_length() - wanted.denominator.bit_length())
        most = low * _MOST_EPSILON
        while not fits(low):
            low /= 2
            if cls._moved(bound) > low * _MOST_EPSILON:
                # Noise as wide as the error would protect: then that it cannot be sampled is the reason.
                raise unsupported[0] if unsupported and cls._moved(bound) <= most else _protects_nobody()
        while fits(2 * low):
            low *= 2
        high = 2 * low
        for _ in range(20):
            middle = (low + high) / 2
            low, high = (middle, high) if fits(middle) else (low, middle)
        return cls._of_scale(low, bound, count, real=real)

    @classmethod
    def _of_scale(cls, scale: Fraction, sensitivity: Sensitivity, coordinates: int, *, real: bool) -> Self:
        grid = _grid(scale, cls._moved(sensitivity), coordinates) if real else None
        return cls(scale, sensitivity, grid, coordinates)

    def _where(self) -> str:
        return "integers" if self.grid is None else f"a grid of step {float(self.grid):.3g}"


@dataclass(frozen=True)
class Laplace(AdditiveMechanism):
    """Laplace noise of scale b: the discrete law on integers, or on the grid's steps for reals.

    >>> mechanism = Laplace.of(sensitivity=1, epsilon=0.5)
    >>> mechanism.error(0.95)
    6
    >>> print(mechanism)
    Laplace noise of scale 2 on integers: ε = 0.5

    Guarantee: ε-differential privacy with ε = Δ₁/b (for reals, (Δ₁ + d·2^k)/b).
    Assumes: the value moves by at most Δ₁ in ℓ1 between neighbours; uniform random bits.
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
        """The Laplace mechanism with this ε; `real` for values that are not integers."""
        bound = Sensitivity.of(sensitivity)
        check_positive_sensitivity(bound)
        wanted = parse_spendable_epsilon(epsilon, allow=allow_large_epsilon)
        count = parse_integer(coordinates, "coordinates")
        if real:
            grid = _grid(bound.l1 / wanted, bound.l1, count)
            return cls((bound.l1 + count * grid) / wanted, bound, grid, count)
        _check_integer_sensitivity(bound)
        return cls(bound.l1 / wanted, bound, None, count)

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
        """The Laplace mechanism with the least ε whose error, of all coordinates at once, is within `error`.

        >>> mechanism = Laplace.for_error(6)
        >>> mechanism.error(0.95), round(mechanism.loss().epsilon(), 3)
        (6, 0.457)
        """
        bound = Sensitivity.of(sensitivity)
        if not real:
            _check_integer_sensitivity(bound)
        return cls._within(error, confidence, bound, real=real, coordinates=coordinates)

    def loss(self) -> PrivacyLoss:
        """The law's own curve: pure ε = Δ₁/b, rounding included, and less where some δ is allowed."""
        step = self.grid or Fraction(1)
        # On the grid an answer moves by whole steps.
        moved = (self.sensitivity.l1 + self.coordinates * (self.grid or 0)) // step
        return PrivacyLoss.discrete_laplace(self.scale / step, max(1, moved))

    def union_bound(self, confidence: Number = 0.95, *, coordinates: int = 1) -> float:
        """The textbook's Theorem 3.8: b·ln(coordinates/β) with β = 1 − confidence, rounded up.

        That theorem speaks of the continuous law. The integer law may pass its bound, by less than one
        whole number: what holds for sure, and is never wider than the next whole number, is `error`.

        >>> round(Laplace.of(sensitivity=1, epsilon=1).union_bound(0.95, coordinates=10_000), 1)
        12.2

        Guarantee: all answers are off by less than this plus one (for reals, plus one and a half steps).
        Proof: docs/proofs/accuracy.md
        """
        beta = 1 - parse_probability(confidence, "confidence")
        return round_up(
            self.scale * Fraction(log(parse_integer(coordinates, "coordinates") / beta, 96)[1], 1 << 96)
        )

    @property
    def _beyond(self) -> Beyond:
        return partial(discrete_laplace_tail, self._steps)

    @property
    def _norm(self) -> str:
        return "l1"

    def _noise(self, size: int | None) -> Any:
        return discrete_laplace(self._steps) if size is None else discrete_laplace(self._steps, size)

    def _log_chance(self, steps: Fraction) -> float:
        return float(-abs(steps) / self._steps)

    def _further(self, drawn: int) -> int:
        # The law has no memory: beyond 2^62 it starts anew.
        size = MOST + geometric(self._steps)
        # survives: Asked of ±2^62 only, and of these only the sign counts.
        return size if drawn > 0 else -size

    @classmethod
    def _moved(cls, sensitivity: Sensitivity) -> Fraction:
        return sensitivity.l1

    def __str__(self) -> str:
        return f"Laplace noise of scale {round_up(self.scale):.6g} on {self._where()}: {self.loss()}"


@dataclass(frozen=True)
class Gaussian(AdditiveMechanism):
    """Gaussian noise of standard deviation σ, rounded to integers or to the grid's steps.

    Calibrated by the exact curve of the Gaussian mechanism, not by the classic √(2·ln(1.25/δ))/ε.

    >>> mechanism = Gaussian.of(sensitivity=1, epsilon=1, delta=1e-6)
    >>> print(mechanism)
    Gaussian noise of σ = 4.22468 on integers: Gaussian μ = 0.236705
    >>> mechanism.loss().delta(1) <= 1e-6
    True

    Guarantee: δ(ε) of a Gaussian with μ = Δ₂/σ (for reals, (Δ₂ + √d·2^k)/σ): rounding is
        post-processing, so this holds in any dimension.
    Assumes: the value moves by at most Δ₂ in ℓ2 between neighbours; uniform random bits.
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
        """The Gaussian mechanism with the least σ that is (ε, δ)-private.

        Where the public size of the population is given, δ must be below 1/population.
        """
        bound = Sensitivity.of(sensitivity)
        check_positive_sensitivity(bound)
        allowed = parse_probability(delta, "delta")
        refuse_large_delta(allowed, population)
        mu = largest_mu(parse_spendable_epsilon(epsilon, allow=allow_large_epsilon), allowed)
        norm = ceil_sqrt(bound.l2_squared)
        count = parse_integer(coordinates, "coordinates")
        grid = _grid(norm / mu, norm, count) if real else None
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

        >>> Gaussian.for_error(10, delta=1e-6).error(0.95)
        10
        """
        allowed = parse_probability(delta, "delta")
        refuse_large_delta(allowed, population)
        mechanism = cls._within(error, confidence, sensitivity, real=real, coordinates=coordinates)
        # survives: An epsilon rounded up from an irrational number is not just the limit.
        if mechanism.loss().epsilon(allowed) > _MOST_EPSILON:
            raise _protects_nobody()
        return mechanism

    @property
    def sigma(self) -> Fraction:
        """σ, in the value's own units."""
        return self.scale

    def loss(self) -> PrivacyLoss:
        """The Gaussian curve with μ = Δ₂/σ, rounding included."""
        if self.grid is None:
            return PrivacyLoss.gaussian_from_mu_squared(self.sensitivity.l2_squared / self.scale**2)
        moved = ceil_sqrt(self.sensitivity.l2_squared) + ceil_sqrt(Fraction(self.coordinates)) * self.grid
        return PrivacyLoss.gaussian_from_mu_squared((moved / self.scale) ** 2)

    @property
    def _beyond(self) -> Beyond:
        return partial(rounded_gaussian_tail, self._steps)

    @property
    def _norm(self) -> str:
        return "l2_squared"

    def _noise(self, size: int | None) -> Any:
        return rounded_gaussian(self._steps) if size is None else rounded_gaussian(self._steps, size)

    def _log_chance(self, steps: Fraction) -> float:
        # Of the step's cell, times 2·√(2π): from two tails, or where they underflow by Mills' ratio.
        low, high = (abs(steps) - Fraction(1, 2)) / self._steps, (abs(steps) + Fraction(1, 2)) / self._steps
        if low < 4:
            inner, outer = outside(abs(low), _DIGITS)[0], outside(high, _DIGITS)[0]
            mass = inner - outer if low >= 0 else (2 << _DIGITS) - inner - outer
            return math.log(mass) - _DIGITS * math.log(2) + math.log(2 * math.pi) / 2
        fall = exp_neg((high - low) * (high + low) / 2, _DIGITS)[0]
        share = mills(low, _DIGITS)[0] - (fall * mills(high, _DIGITS)[0] >> _DIGITS)
        return math.log(share) - (_DIGITS - 1) * math.log(2) - float(low * low / 2)

    def _further(self, drawn: int) -> int:
        # So rare (e^-2^27) that the one unit by which every δ is rounded up pays for it.
        return drawn

    @classmethod
    def _moved(cls, sensitivity: Sensitivity) -> Fraction:
        return ceil_sqrt(sensitivity.l2_squared)

    def __str__(self) -> str:
        return f"Gaussian noise of σ = {round_up(self.scale):.6g} on {self._where()}: {self.loss()}"


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
    """Laplace or Gaussian, whichever is off by less over all coordinates at once.

    >>> type(choose_additive_noise(sensitivity=1, epsilon=1, delta=1e-6)).__name__
    'Laplace'
    >>> many = Sensitivity(30, linf=1)  # one unit moves thirty counts by one each
    >>> type(choose_additive_noise(sensitivity=many, epsilon=1, delta=1e-6, coordinates=30)).__name__
    'Gaussian'
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


def _grid(scale: Fraction, moved: Fraction, coordinates: int) -> Fraction:
    """A step so fine that rounding `coordinates` numbers hardly adds to how far one unit moves them."""
    grid = grid_below(scale, _STEPS)
    while coordinates * grid > moved * _ROUNDING and scale / grid < 2**_FINEST_STEPS:
        grid /= 2
    return grid


def _check_integer_sensitivity(sensitivity: Sensitivity) -> None:
    if sensitivity.l1.denominator != 1:
        raise InvalidInput(
            "the sensitivity is not a whole number",
            why="integers move by whole numbers, so this looks like a real-valued answer",
            fix="pass real=True, or the sensitivity of the integer answer",
        )


def _protects_nobody() -> Refused:
    return Refused(
        "no epsilon gives so small an error",
        why="it would take an epsilon beyond a million, which protects nobody",
        fix="allow a larger error or a lower confidence",
    )
