"""Additive mechanisms: symmetric noise on integers, or on the steps of a grid for reals.

Integers get noise of an integer law. Reals are rounded to a grid with steps of 2^k and get the same law on
the grid's steps; the rounding is part of the sensitivity.

Proof: docs/proofs/additive.md
"""

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar, Self, overload

import numpy as np
from numpy.typing import NDArray

from hubbub.errors import InvalidInput, Refused, Unsupported
from hubbub.mechanisms.mechanism import Mechanism, check_positive_sensitivity, check_sensitivity
from hubbub.mechanisms.noise_tails import Moment, TailFunction, half_width
from hubbub.noise import MAX_SCALE
from hubbub.noise.float_grid import add_integers, add_many_on_grid, add_on_grid, grid_below
from hubbub.numbers import (
    Number,
    format_nearest,
    parse_exact,
    parse_integer,
    parse_nonnegative,
    parse_positive,
    round_down,
    round_up,
)
from hubbub.release import Release
from hubbub.sensitivity import Bounded, ExactValue, Sensitivity, unwrap

__all__ = ["MAX_EPSILON", "AdditiveMechanism", "choose_grid", "protects_nobody"]

_STEP_BITS = 32
"""One scale of noise is 2^32 steps of the grid, or more for many coordinates."""
_MAX_STEP_BITS = 46
_MAX_ROUNDING = Fraction(1, 1024)
"""The grid is refined while rounding adds more than this share to the sensitivity."""
MAX_EPSILON = 2**20


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

    @property
    @abstractmethod
    def _variance_in_steps(self) -> Moment:
        """Bounds of E[X²] of the noise X, in steps."""

    @property
    @abstractmethod
    def _mean_size_in_steps(self) -> Moment:
        """Bounds of E|X| of the noise X, in steps."""

    @abstractmethod
    def _draw_noise(self, size: int | None) -> Any:
        """Draw the noise, in steps."""

    @abstractmethod
    def _extend(self, draw: int) -> int:
        """Return the full draw for one that a vector holds as ±2^62, where vectors saturate."""

    @property
    @abstractmethod
    def _norm(self) -> str:
        """The norm of the sensitivity that the noise is calibrated to."""

    @classmethod
    @abstractmethod
    def _distance(cls, sensitivity: Sensitivity) -> Fraction:
        """The sensitivity in that norm."""

    @cached_property
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

    @cached_property
    def variance(self) -> float:
        """The variance of the noise on one coordinate, rounded up.

        It is that of the law that is sampled: about 2b² for Laplace noise of scale b, and σ² + 1/12 for
        Gaussian noise rounded to integers. The rounding of reals to the grid adds no variance.

        >>> from hubbub.mechanisms import Laplace
        >>> round(Laplace.of(sensitivity=1, epsilon=1).variance, 4)  # on integers, a little below 2
        1.8413
        >>> round(Laplace.of(sensitivity=1, epsilon=1, real=True).variance, 4)
        2.0

        Guarantee: never below the variance of the noise.
        Proof: docs/proofs/accuracy.md
        """
        return self.variance_bounds[1]

    @cached_property
    def variance_bounds(self) -> tuple[float, float]:
        """A lower and an upper bound of the variance of the noise on one coordinate."""
        low, high = self._variance_in_steps
        square = (self.grid or Fraction(1)) ** 2
        return round_down(low * square), round_up(high * square)

    @cached_property
    def expected_error(self) -> float:
        """The mean of |answer − exact| of one coordinate, rounded up: about b for Laplace noise of scale b.

        For a count that is 1/ε. For reals it includes the rounding to the grid, as `error` does.

        >>> from hubbub.mechanisms import Laplace
        >>> round(Laplace.of(sensitivity=1, epsilon=0.01).expected_error, 2)
        100.0

        Guarantee: never below the mean of |answer − exact|.
        Proof: docs/proofs/accuracy.md
        """
        return self.expected_error_bounds[1]

    @cached_property
    def expected_error_bounds(self) -> tuple[float, float]:
        """A lower and an upper bound of the mean of |answer − exact| of one coordinate.

        The lower one holds where answers are not clamped: for integers away from ±2^61.
        """
        low, high = self._mean_size_in_steps
        if self.grid is None:
            return round_down(low), round_up(high)
        half = Fraction(1, 2)
        return round_down(max(Fraction(0), low - half) * self.grid), round_up((high + half) * self.grid)

    def loss_at(self, outcome: Number, value: Number, neighbour: Number) -> float:
        """Return the privacy loss of an outcome: ln Pr[M(value) = outcome] − ln Pr[M(neighbour) = outcome].

        For one coordinate, to about twelve digits. Reals are first rounded to the grid.

        >>> from hubbub.mechanisms import Gaussian, Laplace
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

        >>> from hubbub.mechanisms import Laplace
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
        exact = self._check_exact(bounded)
        answer: Any
        if self.grid is None and isinstance(exact, np.ndarray):
            answer = self._add_to_integers(exact)
        elif self.grid is None:
            answer = add_integers(exact, self._draw_noise(None))  # type: ignore[arg-type]
        else:
            noise = self._draw_noise(bounded.coordinates if bounded.is_vector else None)
            answer = add_on_grid(exact, noise, self.grid, self._extend)
        return self._make_release(answer, bounded, 1)

    def release_many(self, value: Any, count: int) -> Release:
        """Release a value `count` times, with independent noise, as one release with the loss of all.

        A number gives a vector of `count` answers, and a vector a matrix with one row for each release.

        >>> from hubbub.mechanisms import Gaussian
        >>> Gaussian(Fraction(10), Sensitivity(1)).release_many([40, 50, 60], 1000).value.shape
        (1000, 3)

        Guarantee: the composition of `count` releases.
        Proof: docs/proofs/additive.md, docs/proofs/composition.md
        """
        times = parse_integer(count, "count")
        bounded = check_sensitivity(value, self.sensitivity, self._norm)
        exact = self._check_exact(bounded)
        answers: Any
        if isinstance(exact, np.ndarray):
            copies: Any = np.tile(exact, times)
            answers = (
                self._add_to_integers(copies)
                if self.grid is None
                else add_on_grid(copies, self._draw_noise(copies.size), self.grid, self._extend)
            )
            answers = answers.reshape(times, exact.size)
        elif self.grid is None:
            answers = self._add_to_integers(np.full(times, exact, dtype=np.int64))
        else:
            answers = add_many_on_grid(exact, self._draw_noise(times), self.grid, self._extend)
        return self._make_release(answers, bounded, times)

    def _make_release(self, answer: Any, bounded: Bounded, times: int) -> Release:
        loss = self.loss()
        return Release(
            answer,
            loss if times == 1 else loss * times,
            self,
            bounded.unit,
            user_asserted=bounded.is_user_asserted,
            coordinates=max(1, bounded.coordinates) * times,
        )

    def _check_exact(self, bounded: Bounded) -> ExactValue:
        """Return the exact value, and refuse one that this noise does not hide."""
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
        return exact

    def _add_to_integers(self, exact: NDArray[Any]) -> NDArray[np.int64]:
        """Return integers plus noise, in the memory of the noise.

        A gradient has millions of coordinates, and new memory costs more than the sum.
        """
        answer: NDArray[np.int64] = self._draw_noise(exact.size)
        add_integers(exact, answer, out=answer)
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
        target, bound, count = (
            parse_positive(error, "error"),
            Sensitivity.of(sensitivity),
            parse_integer(coordinates, "coordinates"),
        )
        unsupported: list[Unsupported] = []

        def fits(scale: Fraction) -> bool:
            try:
                return (
                    cls._from_scale(scale, bound, count, real=real).error(confidence, coordinates=count)
                    <= target
                )
            except Unsupported as problem:  # too wide or too fine to be sampled
                unsupported.append(problem)
                # survives: Only asked whether it is true.
                return False

        low = Fraction(2) ** (target.numerator.bit_length() - target.denominator.bit_length())
        max_distance = low * MAX_EPSILON
        while not fits(low):
            low /= 2
            if cls._distance(bound) > low * MAX_EPSILON:
                # Noise as wide as the error would protect, so the reason is that it cannot be sampled.
                raise (
                    unsupported[0]
                    if unsupported and cls._distance(bound) <= max_distance
                    else protects_nobody()
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
        grid = choose_grid(scale, cls._distance(sensitivity), coordinates) if real else None
        return cls(scale, sensitivity, grid, coordinates)

    def _describe_values(self) -> str:
        return "integers" if self.grid is None else f"a grid with steps of {format_nearest(self.grid, 3)}"


def choose_grid(scale: Fraction, distance: Fraction, coordinates: int) -> Fraction:
    """Return a step so fine that rounding all coordinates adds little to the sensitivity."""
    grid = grid_below(scale, _STEP_BITS)
    while coordinates * grid > distance * _MAX_ROUNDING and scale / grid < 2**_MAX_STEP_BITS:
        grid /= 2
    return grid


def protects_nobody() -> Refused:
    """Return the refusal of an error that only an absurd ε would allow."""
    return Refused(
        "no epsilon gives so small an error",
        why="it would take an epsilon above a million, which protects nobody",
        fix="allow a larger error or a lower confidence",
    )
