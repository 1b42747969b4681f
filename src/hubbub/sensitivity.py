"""Sensitivity, and the values that carry it.

A `Bounded` is an exact value together with how far one unit can move it. Rules derive them; a
person at a prompt may assert one, and everything made from it says so.
"""

import numbers
import sys
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from hubbub.errors import InvalidInput
from hubbub.numbers import Number, ceil_sqrt, parse_exact, parse_nonnegative, round_up
from hubbub.unit import Unit

__all__ = ["MAX_MAGNITUDE", "Bounded", "ExactValue", "Sensitivity", "unwrap"]

ExactValue = int | Fraction | NDArray[np.int64] | NDArray[np.float64]
"""A value before noise: one exact number, or a vector of integers or of doubles."""

MAX_MAGNITUDE = 2**61
"""Integers up to here, plus any noise we add, stay inside 64 bits."""

_LARGEST_DOUBLE = Fraction(sys.float_info.max)


@dataclass(frozen=True, init=False)
class Sensitivity:
    """How far one unit can move a value: in ℓ1, ℓ2 (kept squared, so that √2 is exact) and ℓ∞.

    What is not given follows from the others: ℓ∞ ≤ ℓ2 ≤ ℓ1 and ℓ2² ≤ ℓ1·ℓ∞.

    >>> Sensitivity(2, linf=1).l2_squared  # a histogram, one unit substituted
    Fraction(2, 1)
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
                "both l2 and l2_squared are given", why="one of them is enough", fix="pass only one"
            )
        first = parse_nonnegative(l1, "l1")
        square = first * first
        if l2 is not None:
            square = min(square, parse_nonnegative(l2, "l2") ** 2)
        if l2_squared is not None:
            square = min(square, parse_nonnegative(l2_squared, "l2_squared"))
        # ‖v‖∞ ≤ ‖v‖₂ ≤ ‖v‖₁ and ‖v‖₂² ≤ ‖v‖₁‖v‖∞ (Hölder): the least that follows from what is given.
        # The root is rounded up, so it may pass ℓ1 by a hair.
        largest = min(first, ceil_sqrt(square))
        if linf is not None:
            largest = min(largest, parse_nonnegative(linf, "linf"))
        object.__setattr__(self, "l1", first)
        object.__setattr__(self, "l2_squared", min(square, first * largest))
        object.__setattr__(self, "linf", largest)

    @property
    def l2(self) -> float:
        """ℓ2, rounded up to a double."""
        return round_up(ceil_sqrt(self.l2_squared))

    @classmethod
    def of(cls, given: "Sensitivity | Number") -> "Sensitivity":
        """A sensitivity from a number (the ℓ1 of one value), or as it is."""
        return given if isinstance(given, Sensitivity) else cls(parse_nonnegative(given, "sensitivity"))

    def __str__(self) -> str:
        return f"ℓ1 ≤ {self.l1}, ℓ2² ≤ {self.l2_squared}, ℓ∞ ≤ {self.linf}"


@dataclass(frozen=True, eq=False, repr=False)
class Bounded:
    """An exact value with the sensitivity it was derived with; it never shows the value.

    >>> Bounded.asserted(42, sensitivity=1)
    Bounded(one number, ℓ1 ≤ 1, ℓ2² ≤ 1, ℓ∞ ≤ 1, of one row, add/remove; asserted)

    Guarantee: between neighbouring databases the value moves by no more than `sensitivity`.
    Assumes: for `asserted`, the word of the person who asserted it; else the rule in `because`.
    Proof: docs/proofs/sensitivity.md
    """

    _value: ExactValue
    sensitivity: Sensitivity
    unit: Unit
    because: str
    """The rule that derived the sensitivity, or "asserted"."""

    def __post_init__(self) -> None:
        if not isinstance(self.sensitivity, Sensitivity) or not isinstance(self.unit, Unit):
            raise InvalidInput(
                "the sensitivity or the unit is not one",
                why="nobody could say how far whose data can move the value",
                fix="pass a Sensitivity and a Unit, such as Sensitivity(1) and Unit.row()",
            )
        object.__setattr__(self, "_value", _checked(self._value))

    @classmethod
    def asserted(cls, value: Any, sensitivity: Sensitivity | Number, unit: Unit | None = None) -> "Bounded":
        """A value whose sensitivity is a person's word, as at a prompt; releases of it say so."""
        return cls(value, Sensitivity.of(sensitivity), Unit.row() if unit is None else unit, "asserted")

    @classmethod
    def derived(cls, value: Any, sensitivity: Sensitivity, unit: Unit, because: str) -> "Bounded":
        """A value whose sensitivity a rule has proved; `because` names the rule."""
        return cls(value, sensitivity, unit, because)

    @property
    def cells(self) -> int:
        """How many numbers there are: public, as every shape is."""
        return self._value.size if isinstance(self._value, np.ndarray) else 1

    @property
    def is_vector(self) -> bool:
        """Whether it is a vector, also of one cell."""
        return isinstance(self._value, np.ndarray)

    @property
    def is_asserted(self) -> bool:
        """Whether the sensitivity is only a person's word."""
        return self.because == "asserted"

    def __repr__(self) -> str:
        what = f"{self.cells} cells" if self.is_vector else "one number"
        return f"Bounded({what}, {self.sensitivity}, of {self.unit}; {self.because})"

    def __reduce__(self) -> NoReturn:
        raise InvalidInput(
            "a Bounded value cannot be pickled or copied",
            why="it holds exact data, which leaves only through a mechanism",
            fix="release it first, and keep the release",
        )


def unwrap(bounded: Bounded) -> ExactValue:
    """The exact value: for mechanisms, and for nobody else."""
    return bounded._value  # noqa: SLF001 - the one door, kept beside the class


def _checked(value: Any) -> ExactValue:
    """The value as exact numbers in our own memory, or a clear error that does not show it.

    Whether integers or doubles come out follows from the type that was given, never from the value:
    else 3 and 3.5 would be released in two forms, and the form would tell them apart.
    """
    if isinstance(value, np.ndarray):
        return _checked_vector(value)
    if isinstance(value, (list, tuple)):
        return _checked_list(value)
    return _checked_number(value)


def _checked_number(value: Any) -> int | Fraction:
    if isinstance(value, (float, np.floating)) and not np.isfinite(value):
        raise _not_finite()
    exact = parse_exact(value, "the value")
    if isinstance(value, numbers.Integral):
        if abs(exact) > MAX_MAGNITUDE:
            raise _too_large()
        return exact.numerator
    if abs(exact) > _LARGEST_DOUBLE:
        raise _too_large()
    return exact


def _checked_list(items: list[Any] | tuple[Any, ...]) -> ExactValue:
    if any(isinstance(item, (list, tuple, np.ndarray)) for item in items):
        raise _wrong_shape()
    exact = [_checked_number(item) for item in items]
    if all(isinstance(item, int) for item in exact):
        return _checked_vector(np.array(exact, dtype=np.int64))
    doubles = np.array([float(item) for item in exact])
    if any(Fraction(double) != item for double, item in zip(doubles, exact, strict=True)):
        raise InvalidInput(
            "a cell of the value is not a double",
            why="rounding it here would move it further than the sensitivity says",
            fix="round the cells to doubles first, and bound the sensitivity of what comes out",
        )
    return _checked_vector(doubles)


def _checked_vector(values: NDArray[Any]) -> ExactValue:
    if values.ndim != 1:
        raise _wrong_shape()
    own = np.array(values)  # a copy first: nobody can change what has been checked
    kind = "masked" if isinstance(values, np.ma.MaskedArray) else own.dtype.kind
    if kind in {"i", "u"}:
        if own.size and (int(own.max()) > MAX_MAGNITUDE or int(own.min()) < -MAX_MAGNITUDE):
            raise _too_large()
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
            fix="convert it to an array of int64 or float64 first, and fill what is masked by a public rule",
        )
    own.flags.writeable = False
    return own


def _not_finite() -> InvalidInput:
    return InvalidInput(
        "the value is not finite",
        why="NaN and infinity have no bounded sensitivity",
        fix="decide by a public rule what stands for them (a fixed number), and clamp to public bounds",
    )


def _too_large() -> InvalidInput:
    return InvalidInput(
        "the value is an integer beyond ±2^61, or a fraction beyond the largest double",
        why="with noise added it would not fit, and wrapping or infinity would break the guarantee",
        fix="clamp to public bounds, or scale down by a public factor",
    )


def _wrong_shape() -> InvalidInput:
    return InvalidInput(
        "the value is nested, or an array without exactly one axis",
        why="a release is one number or one flat vector",
        fix="flatten it, or take the one number out, first",
    )
