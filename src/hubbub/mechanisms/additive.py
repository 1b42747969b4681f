"""The Laplace and Gaussian mechanisms, on integers and on reals.

Integers get noise of an integer law. Reals are rounded to a grid with steps of 2^k and get the same law on
the grid's steps; the rounding is part of the sensitivity.

Proof: docs/proofs/additive.md
"""

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Any, ClassVar, Self, overload

import numpy as np
from numpy.typing import NDArray

from hubbub.accounting import PrivacyLoss, largest_mu, parse_spendable_epsilon, refuse_large_delta
from hubbub.errors import InvalidInput, Refused, Unsupported
from hubbub.mechanisms.error_bounds import (
    TailFunction,
    discrete_laplace_tail,
    half_width,
    rounded_gaussian_tail,
)
from hubbub.mechanisms.mechanism import Mechanism, check_positive_sensitivity, check_sensitivity
from hubbub.noise import MAX_SCALE, discrete_laplace, geometric, rounded_gaussian
from hubbub.noise.enclosures import exp_neg, log, mills_ratio, normal_tail
from hubbub.noise.float_grid import add_integers, add_on_grid, grid_below
from hubbub.noise.inversion import MAX_DRAW
from hubbub.numbers import (
    Number,
    ceil_sqrt,
    format_nearest,
    format_up,
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

_STEP_BITS = 32
"""One scale of noise is 2^32 steps of the grid, or more for many coordinates."""
_MAX_STEP_BITS = 46
_MAX_ROUNDING = Fraction(1, 1024)
"""The grid is refined while rounding adds more than this share to the sensitivity."""
_PRECISION = 256
_BLOCK = 1 << 17
"""Coordinates of an integer vector that get their noise at a time."""
_MAX_EPSILON = 2**20


@dataclass(frozen=True, repr=False)
class AdditiveMechanism(Mechanism):
    """Abstract: symmetric noise, added to integers or to the steps of a grid."""

    scale: Fraction
    """The scale b of Laplace noise or σ of Gaussian noise, in the units of the value."""
    sensitivity: Sensitivity
    grid: Fraction | None = None
    """The step of the grid for reals, or None for integers."""
    coordinates: int = 1
    """For reals, the maximum number of coordinates: the rounding of each is part of the sensitivity."""

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
                    why="doubles would not be exact on such a grid",
                    fix="pass a power of two, or let of() choose the grid",
                )
        if self._scale_in_steps > MAX_SCALE:
            raise Unsupported(
                "the noise is wider than 2^48 steps",
                why="its law would no longer be exact in 64 bits",
                fix="measure in larger units, or choose a larger epsilon or a coarser grid",
            )

    @property
    @abstractmethod
    def _tail(self) -> TailFunction:
        """The two-sided tail of the noise, in steps."""

    @abstractmethod
    def _draw_noise(self, size: int | None) -> Any:
        """Draw the noise, in steps."""

    @abstractmethod
    def _extend(self, drawn: int) -> int:
        """Return the full draw for one that a vector holds as ±2^62, where vectors saturate."""

    @property
    @abstractmethod
    def _norm(self) -> str:
        """The norm of the sensitivity that the noise is calibrated to."""

    @classmethod
    @abstractmethod
    def _distance(cls, sensitivity: Sensitivity) -> Fraction:
        """The sensitivity in that norm."""

    @property
    def _scale_in_steps(self) -> Fraction:
        """The scale of the noise, in steps of the grid."""
        return self.scale / (self.grid or 1)

    def error(self, confidence: Number = 0.95, *, coordinates: int = 1) -> float:
        """Return a bound on |answer − exact| that holds for all `coordinates` answers at once.

        For integers it is the least integer that holds for the sampled law; for reals it includes the
        rounding to the grid. A double of more than 2^53 steps is rounded once more, which `Release.error`
        includes.

        Guarantee: every |answer − exact| is within the bound, with at least this confidence.
        Proof: docs/proofs/accuracy.md
        """
        width = half_width(self._tail, confidence, coordinates)
        return width if self.grid is None else round_up((width + Fraction(1, 2)) * self.grid)

    def loss_at(self, outcome: Number, value: Number, neighbour: Number) -> float:
        """Return the privacy loss of an outcome: ln Pr[M(value) = outcome] − ln Pr[M(neighbour) = outcome].

        For one coordinate, to about twelve digits. Reals are first rounded to the grid.

        >>> Laplace.of(sensitivity=1, epsilon=0.5).loss_at(45, 42, 41)
        0.5
        >>> round(Gaussian(Fraction(2), Sensitivity(1)).loss_at(44, 42, 41), 3)
        0.612
        """
        step = self.grid or Fraction(1)
        parameters = zip(("outcome", "value", "neighbour"), (outcome, value, neighbour), strict=True)
        at, here, there = (parse_exact(number, name) / step for name, number in parameters)
        if at.denominator != 1:
            raise InvalidInput(
                "the outcome is not on the grid",
                why="the mechanism never releases it",
                fix="pass a released value",
            )
        return self._log_probability(at - round(here)) - self._log_probability(at - round(there))

    @abstractmethod
    def _log_probability(self, steps: Fraction) -> float:
        """Return ln Pr[noise = steps], up to a constant."""

    def tail(self, t: Number) -> float:
        """Return Pr[|noise| ≥ t·scale], rounded up.

        >>> round(Laplace.of(sensitivity=1, epsilon=Fraction(1, 1000)).tail(3), 3)  # e^-3
        0.05
        """
        steps = math.ceil(parse_nonnegative(t, "t") * self._scale_in_steps)
        return 1.0 if steps == 0 else round_up(Fraction(self._tail(steps - 1, 128)[1], 1 << 128))

    @overload
    def release(self, value: float) -> Release[float]: ...
    @overload
    def release(self, value: Sequence[float] | NDArray[Any]) -> Release[NDArray[Any]]: ...
    @overload
    def release(self, value: Any) -> Release: ...
    def release(self, value: Any) -> Release:
        """Add noise to the value: integers to integers, and doubles on the grid to reals."""
        bounded = check_sensitivity(value, self.sensitivity, self._norm)
        exact = unwrap(bounded)
        is_integer = isinstance(exact, int) or (isinstance(exact, np.ndarray) and exact.dtype.kind == "i")
        if self.grid is None and not is_integer:
            raise InvalidInput(
                "the value is not made of integers",
                why="integer noise would not hide the fractional part",
                fix="make the mechanism with real=True",
            )
        if self.grid is not None and bounded.coordinates > self.coordinates:
            raise Refused(
                f"the value has {bounded.coordinates} coordinates, but the mechanism has {self.coordinates}",
                why="the rounding of every coordinate is part of the sensitivity",
                fix=f"make the mechanism with coordinates={bounded.coordinates}",
            )
        answer: Any
        if self.grid is None and isinstance(exact, np.ndarray):
            answer = self._add_in_blocks(exact)
        elif self.grid is None:
            answer = add_integers(exact, self._draw_noise(None))  # type: ignore[arg-type]
        else:
            noise = self._draw_noise(bounded.coordinates if bounded.is_vector else None)
            answer = add_on_grid(exact, noise, self.grid, self._extend)
        return Release(
            answer,
            self.loss(),
            self,
            bounded.unit,
            user_asserted=bounded.is_user_asserted,
            coordinates=max(1, bounded.coordinates),
        )

    def _add_in_blocks(self, exact: NDArray[Any]) -> NDArray[np.int64]:
        """Integers plus noise, block by block: gradients have millions of coordinates, a cache has not."""
        answer = np.empty(exact.size, dtype=np.int64)
        for start in range(0, exact.size, _BLOCK):
            part = slice(start, start + _BLOCK)
            answer[part] = add_integers(exact[part], self._draw_noise(exact[part].size))
        return answer

    @classmethod
    def _calibrate_to_error(
        cls,
        error: Number,
        confidence: Number,
        sensitivity: Sensitivity | Number,
        *,
        real: bool,
        coordinates: int,
    ) -> Self:
        """Return the widest noise, to one part in 2^20, with a simultaneous error of at most `error`."""
        wanted, bound, count = (
            parse_positive(error, "error"),
            Sensitivity.of(sensitivity),
            parse_integer(coordinates, "coordinates"),
        )
        unsupported: list[Unsupported] = []

        def fits(scale: Fraction) -> bool:
            try:
                return (
                    cls._from_scale(scale, bound, count, real=real).error(confidence, coordinates=count)
                    <= wanted
                )
            except Unsupported as problem:  # too wide or too fine to be sampled
                unsupported.append(problem)
                # survives: Only asked whether it is true.
                return False

        low = Fraction(2) ** (wanted.numerator.bit_length() - wanted.denominator.bit_length())
        max_distance = low * _MAX_EPSILON
        while not fits(low):
            low /= 2
            if cls._distance(bound) > low * _MAX_EPSILON:
                # Noise as wide as the error would protect, so the reason is that it cannot be sampled.
                raise (
                    unsupported[0]
                    if unsupported and cls._distance(bound) <= max_distance
                    else _protects_nobody()
                )
        while fits(2 * low):
            low *= 2
        high = 2 * low
        for _ in range(20):
            middle = (low + high) / 2
            low, high = (middle, high) if fits(middle) else (low, middle)
        return cls._from_scale(low, bound, count, real=real)

    @classmethod
    def _from_scale(cls, scale: Fraction, sensitivity: Sensitivity, coordinates: int, *, real: bool) -> Self:
        grid = _grid(scale, cls._distance(sensitivity), coordinates) if real else None
        return cls(scale, sensitivity, grid, coordinates)

    def _describe_values(self) -> str:
        return "integers" if self.grid is None else f"a grid with steps of {format_nearest(self.grid, 3)}"


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
            allow_large_epsilon: confirms an ε above 20.
        """
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
        """Make the Laplace mechanism with the least ε and a simultaneous error of at most `error`.

        >>> mechanism = Laplace.for_error(6)
        >>> mechanism.error(0.95), round(mechanism.loss().epsilon(), 3)
        (6, 0.457)
        """
        bound = Sensitivity.of(sensitivity)
        if not real:
            _check_integer_sensitivity(bound)
        return cls._calibrate_to_error(error, confidence, bound, real=real, coordinates=coordinates)

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

    @property
    def _tail(self) -> TailFunction:
        return partial(discrete_laplace_tail, self._scale_in_steps)

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

    def _extend(self, drawn: int) -> int:
        # The law is memoryless: beyond 2^62 it starts anew.
        size = MAX_DRAW + geometric(self._scale_in_steps)
        # survives: Asked of ±2^62 only, and of these only the sign counts.
        return size if drawn > 0 else -size

    @classmethod
    def _distance(cls, sensitivity: Sensitivity) -> Fraction:
        return sensitivity.l1

    def __str__(self) -> str:
        return f"Laplace noise of scale {format_up(self.scale)} on {self._describe_values()}: {self.loss()}"


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
            allow_large_epsilon: confirms an ε above 20.
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
        mechanism = cls._calibrate_to_error(
            error, confidence, sensitivity, real=real, coordinates=coordinates
        )
        # survives: An epsilon rounded up from an irrational number is not just the limit.
        if mechanism.loss().epsilon(allowed) > _MAX_EPSILON:
            raise _protects_nobody()
        return mechanism

    @property
    def sigma(self) -> Fraction:
        """σ, in the units of the value."""
        return self.scale

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

    def _extend(self, drawn: int) -> int:
        # It has probability e^-2^27, which the unit by which every δ is rounded up covers.
        return drawn

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


def _grid(scale: Fraction, distance: Fraction, coordinates: int) -> Fraction:
    """Return a step so fine that rounding all coordinates adds little to the sensitivity."""
    grid = grid_below(scale, _STEP_BITS)
    while coordinates * grid > distance * _MAX_ROUNDING and scale / grid < 2**_MAX_STEP_BITS:
        grid /= 2
    return grid


def _check_integer_sensitivity(sensitivity: Sensitivity) -> None:
    if sensitivity.l1.denominator != 1:
        raise InvalidInput(
            "the sensitivity is not a whole number",
            why="integers move by whole numbers, so the answer seems to be real",
            fix="pass real=True, or the sensitivity of the integer answer",
        )


def _protects_nobody() -> Refused:
    return Refused(
        "no epsilon gives so small an error",
        why="it would take an epsilon above a million, which protects nobody",
        fix="allow a larger error or a lower confidence",
    )
