"""Numbers as people give them, made exact.

Every parameter (ε, δ, a sensitivity, a scale) becomes a `Fraction` at the door. A float stands
for the decimal a person sees when it is printed, so that ten times 0.1 is exactly 1.
"""

import math
import numbers
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np

from hubbub.errors import InvalidInput

__all__ = ["Number", "at_least_zero", "ceil_sqrt", "positive", "probability", "rational", "round_up", "whole"]

Number = int | float | Fraction | Decimal
"""What a parameter may be given as; numpy's scalars are floats and ints here too."""

# A double has at most 1074 bits behind the point; more than this is an attack on our patience.
_MOST_BITS = 4096


def rational(value: Any, name: str) -> Fraction:
    """The exact rational that a person meant by `value`.

    >>> rational(0.1, "epsilon")
    Fraction(1, 10)
    """
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (numbers.Real, Decimal)):
        raise InvalidInput(
            f"{name} is of type {type(value).__name__}",
            why="it must be one real number",
            fix=f"pass {name} as an int, float, Fraction or Decimal",
        )
    if not isinstance(value, numbers.Rational) and not math.isfinite(value):
        raise InvalidInput(
            f"{name} is {float(value)}",
            why="no guarantee can be computed from it",
            fix=f"pass a finite {name}",
        )
    if isinstance(value, Decimal) and abs(value.adjusted()) > _MOST_BITS // 4:
        raise _too_long(name)
    if isinstance(value, (numbers.Rational, Decimal)):
        exact = Fraction(int(value)) if isinstance(value, numbers.Integral) else Fraction(value)
    else:
        # The shortest decimal that prints as this double: what the person typed.
        exact = Fraction(repr(float(value)))
    if max(exact.numerator.bit_length(), exact.denominator.bit_length()) > _MOST_BITS:
        raise _too_long(name)
    return exact


def positive(value: Any, name: str) -> Fraction:
    """A rational above zero, or a clear error."""
    exact = rational(value, name)
    if exact <= 0:
        raise InvalidInput(
            f"{name} is {_shown(exact)}", why="it must be above zero", fix=f"pass a positive {name}"
        )
    return exact


def at_least_zero(value: Any, name: str) -> Fraction:
    """A rational of zero or more, or a clear error."""
    exact = rational(value, name)
    if exact < 0:
        raise InvalidInput(
            f"{name} is {_shown(exact)}", why="it cannot be below zero", fix=f"pass {name} of 0 or more"
        )
    return exact


def probability(value: Any, name: str) -> Fraction:
    """A rational strictly between 0 and 1, or a clear error."""
    exact = rational(value, name)
    if not 0 < exact < 1:
        raise InvalidInput(
            f"{name} is {_shown(exact)}",
            why="it is a probability, and at 0 or 1 nothing would be promised or nothing hidden",
            fix=f"pass {name} strictly between 0 and 1",
        )
    return exact


def whole(value: Any, name: str, *, least: int = 1) -> int:
    """A whole number of at least `least`, or a clear error."""
    exact = rational(value, name)
    if exact.denominator != 1 or exact < least:
        raise InvalidInput(
            f"{name} is {_shown(exact)}",
            why=f"it counts things, and {least} is the least that makes sense",
            fix=f"pass {name} as a whole number of at least {least}",
        )
    return exact.numerator


def round_up(exact: Fraction) -> float:
    """The least double that is not below `exact`: how an upper bound is shown.

    >>> round_up(Fraction(1, 10)) >= Fraction(1, 10)
    True
    """
    try:
        near = float(exact)
    except OverflowError:
        return math.inf if exact > 0 else -float(np.finfo(float).max)
    return near if Fraction(near) >= exact else math.nextafter(near, math.inf)


def ceil_sqrt(square: Fraction) -> Fraction:
    """A rational just above √square (exact where the root is rational), to 64 bits and more.

    >>> ceil_sqrt(Fraction(9, 4))
    Fraction(3, 2)
    """
    top, bottom = math.isqrt(square.numerator), math.isqrt(square.denominator)
    if top * top == square.numerator and bottom * bottom == square.denominator:
        return Fraction(top, bottom)
    shift = max(0, 80 - (square.numerator.bit_length() - square.denominator.bit_length()) // 2)
    scaled = -(-(square.numerator << 2 * shift) // square.denominator)
    return Fraction(math.isqrt(scaled) + 1, 1 << shift)


def _too_long(name: str) -> InvalidInput:
    return InvalidInput(
        f"{name} has more than {_MOST_BITS} bits",
        why="such a number is a mistake or an attack",
        fix=f"pass {name} with fewer digits",
    )


def _shown(exact: Fraction) -> str:
    return str(exact) if len(str(exact)) <= 24 else f"about {float(exact):.6g}"
