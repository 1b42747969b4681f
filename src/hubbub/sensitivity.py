"""Sensitivity, and exact values that carry it.

A `Bounded` is an exact value with its sensitivity: how far one unit can move it. A rule derives the
sensitivity, or the user asserts it, and every release made from it says which.
"""

import numbers
import sys
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from hubbub.errors import InvalidInput
from hubbub.numbers import Number, ceil_sqrt, format_up, parse_exact, parse_nonnegative, round_up
from hubbub.unit import Unit

__all__ = ["MAX_MAGNITUDE", "Bounded", "ExactValue", "Sensitivity", "unwrap"]

ExactValue = int | Fraction | NDArray[np.int64] | NDArray[np.float64]
"""A value before noise: one exact number, or a vector of integers or doubles."""

MAX_MAGNITUDE = 2**61
"""Integers up to this magnitude stay within 64 bits when noise is added."""

_MAX_DOUBLE = Fraction(sys.float_info.max)
_USER_ASSERTED = "user-asserted"
_ROW = Unit.row()


@dataclass(frozen=True, init=False, repr=False)
class Sensitivity:
    """The largest distance between the values of two neighbouring databases, in ℓ1, ℓ2 and ℓ∞.

    ℓ2 is stored squared, so that √2 is exact. A norm that is not given follows from the others: ℓ∞ ≤ ℓ2 ≤ ℓ1
    and ℓ2² ≤ ℓ1·ℓ∞.

    >>> Sensitivity(2, linf=1)  # a histogram, one unit substituted
    Sensitivity(l1=2, l2=1.41422, linf=1)
    """

    l1: Fraction
    l2_squared: Fraction
    linf: Fraction

    def __init__(
        self,
        l1: Number,
        *,
        l2: Number | None = None,
        l2_squared: Number | None = None,
        linf: Number | None = None,
    ) -> None:
        if l2 is not None and l2_squared is not None:
            raise InvalidInput(
                "both l2 and l2_squared are given", why="they say the same", fix="pass only one of them"
            )
        first = parse_nonnegative(l1, "l1")
        square = first * first
        if l2 is not None:
            square = min(square, parse_nonnegative(l2, "l2") ** 2)
        if l2_squared is not None:
            square = min(square, parse_nonnegative(l2_squared, "l2_squared"))
        # ‖v‖∞ ≤ ‖v‖₂ ≤ ‖v‖₁ and ‖v‖₂² ≤ ‖v‖₁‖v‖∞ (Hölder): take the least that follows.
        # The root is rounded up, so it may exceed ℓ1 slightly.
        largest = min(first, ceil_sqrt(square))
        if linf is not None:
            largest = min(largest, parse_nonnegative(linf, "linf"))
        object.__setattr__(self, "l1", first)
        object.__setattr__(self, "l2_squared", min(square, first * largest))
        object.__setattr__(self, "linf", largest)

    @property
    def l2(self) -> float:
        """The ℓ2 sensitivity, rounded up to a double."""
        return round_up(ceil_sqrt(self.l2_squared))

    @classmethod
    def of(cls, value: "Sensitivity | Number") -> "Sensitivity":
        """Return a Sensitivity unchanged, or make one from a number, which is the ℓ1 sensitivity."""
        return value if isinstance(value, Sensitivity) else cls(parse_nonnegative(value, "sensitivity"))

    def __str__(self) -> str:
        l1, l2, linf = self._format_norms()
        return f"ℓ1 ≤ {l1}, ℓ2 ≤ {l2}, ℓ∞ ≤ {linf}"

    def __repr__(self) -> str:
        l1, l2, linf = self._format_norms()
        return f"Sensitivity(l1={l1}, l2={l2}, linf={linf})"

    def _format_norms(self) -> list[str]:
        return [format_up(norm) for norm in (self.l1, ceil_sqrt(self.l2_squared), self.linf)]


@dataclass(frozen=True, eq=False, repr=False)
class Bounded:
    """An exact value with its sensitivity. It never shows the value.

    >>> Bounded.user_asserted(42, sensitivity=1)
    Bounded(one number, ℓ1 ≤ 1, ℓ2 ≤ 1, ℓ∞ ≤ 1, of one row, add/remove; user-asserted)

    Args:
        value: an integer, a rational, or a vector of integers or doubles.
        sensitivity: how far one unit can move it.
        unit: who is protected.
        derivation: the name of the rule that proves the sensitivity.

    Guarantee: between neighbouring databases the value moves by at most `sensitivity`.
    Assumes: the rule named in `derivation` was applied; if it is "user-asserted", that the user is right.
    Proof: docs/proofs/sensitivity.md
    """

    _value: Any  # as given; from __post_init__ on an ExactValue
    sensitivity: Sensitivity
    unit: Unit
    derivation: str
    """The rule that derived the sensitivity, or "user-asserted"."""

    def __post_init__(self) -> None:
        if not isinstance(self.sensitivity, Sensitivity) or not isinstance(self.unit, Unit):
            raise InvalidInput(
                "the sensitivity is not a Sensitivity, or the unit is not a Unit",
                why="the noise is calibrated to how far one unit can move the value",
                fix="pass for example Sensitivity(1) and Unit.row()",
            )
        object.__setattr__(self, "_value", _check_value(self._value))

    @classmethod
    def user_asserted(
        cls, value: Any, sensitivity: Sensitivity | Number, unit: Unit | None = None
    ) -> "Bounded":
        """Make a value with a sensitivity that the user asserts and no rule has proved; its releases say so.

        Args:
            value: the exact value.
            sensitivity: how far one unit can move it; a number is the ℓ1 sensitivity.
            unit: who is protected; one row, added or removed, if omitted.
        """
        return cls(value, Sensitivity.of(sensitivity), _ROW if unit is None else unit, _USER_ASSERTED)

    @classmethod
    def borrow(
        cls, integers: NDArray[np.int64], sensitivity: Sensitivity, unit: Unit, derivation: str
    ) -> "Bounded":
        """Make a vector of 64-bit integers with a sensitivity, checked but not copied.

        For sums of millions of coordinates that are released at once and then forgotten: a copy would take
        as long as the noise.

        Args:
            integers: a vector of 64-bit integers.
            sensitivity: how far one unit moves the vector.
            unit: the unit of privacy.
            derivation: the rule that bounds the sensitivity, for people.

        Assumes: nobody changes the vector before it is released.
        """
        if type(integers) is not np.ndarray or integers.ndim != 1 or integers.dtype != np.int64:
            raise _wrong_shape()
        _check_magnitude(integers)
        bounded = cls(0, sensitivity, unit, derivation)
        view = integers.view()
        view.flags.writeable = False
        object.__setattr__(bounded, "_value", view)
        return bounded

    @property
    def coordinates(self) -> int:
        """The number of coordinates. It is public, as every shape is."""
        return self._value.size if isinstance(self._value, np.ndarray) else 1

    @property
    def is_vector(self) -> bool:
        """True for a vector, also for one with a single coordinate."""
        return isinstance(self._value, np.ndarray)

    @property
    def is_user_asserted(self) -> bool:
        """True if the user asserted the sensitivity and no rule proved it."""
        return self.derivation == _USER_ASSERTED

    def __repr__(self) -> str:
        shape = f"{self.coordinates} coordinates" if self.is_vector else "one number"
        return f"Bounded({shape}, {self.sensitivity}, of {self.unit}; {self.derivation})"

    def __reduce__(self) -> NoReturn:
        raise InvalidInput(
            "a Bounded value cannot be pickled or copied",
            why="it holds exact data, which may leave only through a mechanism",
            fix="release it first and store the release",
        )


def unwrap(bounded: Bounded) -> ExactValue:
    """Return the exact value. Only mechanisms may call this."""
    value: ExactValue = bounded._value  # noqa: SLF001 - the only access, kept beside the class
    return value


def _check_value(value: Any) -> ExactValue:
    """Copy the value to exact numbers, or raise an error that does not show it.

    The type that was passed decides between integers and doubles, never the value: otherwise 3 and 3.5 would
    be released in different types, and the type would reveal which it was.
    """
    if isinstance(value, np.ndarray):
        return _check_vector(value)
    if isinstance(value, (list, tuple)):
        return _check_list(value)
    return _check_number(value)


def _check_number(value: Any) -> int | Fraction:
    # survives: Only a shortcut: a Python integer is exact already, and comes to the same by the longer way.
    if type(value) is int and -MAX_MAGNITUDE <= value <= MAX_MAGNITUDE:
        return value
    if isinstance(value, (float, np.floating)) and not np.isfinite(value):
        raise _not_finite()
    exact = parse_exact(value, "the value")
    if isinstance(value, numbers.Integral):
        if abs(exact) > MAX_MAGNITUDE:
            raise _too_large()
        return exact.numerator
    if abs(exact) > _MAX_DOUBLE:
        raise _too_large()
    return exact


def _check_list(items: list[Any] | tuple[Any, ...]) -> ExactValue:
    if any(isinstance(item, (list, tuple, np.ndarray)) for item in items):
        raise _wrong_shape()
    exact = [_check_number(item) for item in items]
    if all(isinstance(item, int) for item in exact):
        return _check_vector(np.array(exact, dtype=np.int64))
    doubles = np.array([float(item) for item in exact])
    if any(Fraction(double) != item for double, item in zip(doubles, exact, strict=True)):
        raise InvalidInput(
            "a coordinate of the value is not a double",
            why="rounding it here could move it further than the sensitivity allows",
            fix="round the coordinates to doubles first, and pass the sensitivity of the rounded vector",
        )
    return _check_vector(doubles)


def _check_vector(values: NDArray[Any]) -> ExactValue:
    if values.ndim != 1:
        raise _wrong_shape()
    own = np.array(values)  # copied before it is checked, so that nobody can change it afterwards
    kind = "masked" if isinstance(values, np.ma.MaskedArray) else own.dtype.kind
    if kind in {"i", "u"}:
        _check_magnitude(own)
        own = own.astype(np.int64, copy=False)
    elif kind == "f" and own.dtype.itemsize <= 8:
        if not np.isfinite(own).all():
            raise _not_finite()
        own = own.astype(np.float64, copy=False)
        own += 0.0  # −0.0 becomes 0.0
    else:
        raise InvalidInput(
            f"the value is a {type(values).__name__} of {values.dtype.type.__name__}",
            why="only plain arrays of integers or doubles have exact noise",
            fix="convert it to an int64 or float64 array first, and fill masked entries by a public rule",
        )
    own.flags.writeable = False
    return own


def _check_magnitude(integers: NDArray[Any]) -> None:
    if integers.size and (int(integers.max()) > MAX_MAGNITUDE or int(integers.min()) < -MAX_MAGNITUDE):
        raise _too_large()


def _not_finite() -> InvalidInput:
    return InvalidInput(
        "the value is not finite",
        why="NaN and infinity have no bounded sensitivity",
        fix="replace them by a public constant, and clamp to public bounds",
    )


def _too_large() -> InvalidInput:
    return InvalidInput(
        "the value is an integer beyond ±2^61, or a fraction beyond the largest double",
        why="with noise it could overflow, which would break the guarantee",
        fix="clamp to public bounds, or scale down by a public factor",
    )


def _wrong_shape() -> InvalidInput:
    return InvalidInput(
        "the value is nested, or an array without exactly one axis",
        why="a release is one number or one flat vector",
        fix="flatten it, or extract the number, first",
    )
