"""Sensitivity, and the values that carry it.

A `Bounded` is an exact value together with how far one unit can move it. Rules derive them; a
person at a prompt may assert one, and everything made from it says so.
"""

from dataclasses import dataclass
from fractions import Fraction
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from hubbub.errors import InvalidInput
from hubbub.rational import Number, at_least_zero, ceil_sqrt, rational, round_up
from hubbub.unit import Unit

__all__ = ["LARGEST", "Bounded", "Exact", "Sensitivity", "unwrap"]

Exact = int | Fraction | NDArray[np.int64] | NDArray[np.float64]
"""A value before noise: one exact number, or a vector of integers or of doubles."""

LARGEST = 2**62
"""Integers up to here, plus any noise we add, stay inside 64 bits."""


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
        first = at_least_zero(l1, "l1")
        square = first * first
        if l2 is not None:
            square = min(square, at_least_zero(l2, "l2") ** 2)
        if l2_squared is not None:
            square = min(square, at_least_zero(l2_squared, "l2_squared"))
        # ‖v‖∞ ≤ ‖v‖₂ ≤ ‖v‖₁ and ‖v‖₂² ≤ ‖v‖₁‖v‖∞ (Hölder): the least that follows from what is given.
        largest = ceil_sqrt(square)
        if linf is not None:
            largest = min(largest, at_least_zero(linf, "linf"))
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
        return given if isinstance(given, Sensitivity) else cls(cast("Number", rational(given, "sensitivity")))

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

    _value: Exact
    sensitivity: Sensitivity
    unit: Unit
    because: str
    """The rule that derived the sensitivity, or "asserted"."""

    @classmethod
    def asserted(
        cls, value: Any, sensitivity: Sensitivity | Number, unit: Unit | None = None
    ) -> "Bounded":
        """A value whose sensitivity is a person's word, as at a prompt; releases of it say so."""
        return cls(_checked(value), Sensitivity.of(sensitivity), unit or Unit.row(), "asserted")

    @classmethod
    def derived(cls, value: Any, sensitivity: Sensitivity, unit: Unit, because: str) -> "Bounded":
        """A value whose sensitivity a rule has proved; `because` names the rule."""
        return cls(_checked(value), sensitivity, unit, because)

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

    def __reduce__(self) -> str:
        raise InvalidInput(
            "a Bounded value cannot be pickled or copied",
            why="it holds exact data, which leaves only through a mechanism",
            fix="release it first, and keep the release",
        )


def unwrap(bounded: Bounded) -> Exact:
    """The exact value: for mechanisms, and for nobody else."""
    return bounded._value  # noqa: SLF001 - the one door, kept beside the class


def _checked(value: Any) -> Exact:
    """The value as exact numbers in our own memory, or a clear error that does not show it."""
    if isinstance(value, np.ndarray) and value.ndim == 1:
        return _checked_vector(value)
    if isinstance(value, (list, tuple)):
        return _checked_list(list(value))
    # A float value is that very binary number, not the decimal it prints as.
    if isinstance(value, (float, np.floating)):
        if not np.isfinite(value):
            raise _not_finite()
        exact = Fraction(float(value))
    else:
        exact = rational(value, "the value")
    if exact.denominator == 1 and not isinstance(value, (float, np.floating, Fraction)):
        if abs(exact) > LARGEST:
            raise _too_large()
        return int(exact)
    return exact


def _checked_list(items: list[Any]) -> Exact:
    if not items:
        return np.zeros(0, dtype=np.int64)
    exact = [_checked(item) if not isinstance(item, (list, tuple, np.ndarray)) else None for item in items]
    if any(item is None for item in exact):
        raise _wrong_shape()
    if all(isinstance(item, int) for item in exact):
        return _checked_vector(np.array(exact, dtype=np.int64))
    return _checked_vector(np.array([float(cast("Fraction", item)) for item in exact]))


def _checked_vector(values: NDArray[Any]) -> Exact:
    if values.dtype.kind in "iu":
        if values.size and (int(values.max()) > LARGEST or int(values.min()) < -LARGEST):
            raise _too_large()
        own = values.astype(np.int64)
        own.flags.writeable = False
        return own
    if values.dtype.kind == "f" and values.dtype.itemsize <= 8:
        real = values.astype(np.float64)
        if not np.isfinite(real).all():
            raise _not_finite()
        real.flags.writeable = False
        return real
    raise InvalidInput(
        f"the value is an array of {values.dtype}",
        why="only integers and doubles have exact noise",
        fix="convert it to int64 or float64 first",
    )


def _not_finite() -> InvalidInput:
    return InvalidInput(
        "the value is not finite",
        why="NaN and infinity have no bounded sensitivity",
        fix="decide by a public rule what stands for them (drop, or a fixed number) and clamp to public bounds",
    )


def _too_large() -> InvalidInput:
    return InvalidInput(
        "the value is beyond ±2^62",
        why="with noise added it would not fit 64 bits, and wrapping would break the guarantee",
        fix="clamp to public bounds, or scale down by a public factor",
    )


def _wrong_shape() -> InvalidInput:
    return InvalidInput(
        "the value is nested", why="a release is one number or one flat vector", fix="flatten it first"
    )
