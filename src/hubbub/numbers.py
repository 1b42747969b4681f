"""Numbers as people give them, made exact.

Every parameter (ε, δ, a sensitivity, a scale) becomes a `Fraction` at the door. There a float
stands for the decimal a person sees when it is printed, so that ten times 0.1 is exactly 1. In data
it stands for itself, the binary number: nobody typed it, and its distance from its neighbours counts.
"""

import math
import numbers
import sys
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from fractions import Fraction
from typing import Any

import numpy as np

from hubbub.errors import InvalidInput

__all__ = [
    "Number",
    "as_displayed",
    "ceil_sqrt",
    "format_down",
    "format_up",
    "parse_below_one",
    "parse_exact",
    "parse_integer",
    "parse_nonnegative",
    "parse_positive",
    "parse_probability",
    "parse_rational",
    "round_up",
]

Number = int | float | Fraction | Decimal
"""What a parameter may be given as; numpy's scalars are floats and ints here too."""

# The difference of two doubles has up to 2100 bits, its square 4200; far more is an attack on our patience.
_MOST_BITS = 8192


def parse_rational(value: Any, name: str) -> Fraction:
    """The exact rational that a person meant by `value`.

    >>> parse_rational(0.1, "epsilon")
    Fraction(1, 10)
    """
    _check(value, name)
    if isinstance(value, (float, np.floating)):
        # The shortest decimal that prints as this double: what the person typed.
        return Fraction(repr(float(value)))
    return _short(_fraction(value), name)


def parse_exact(value: Any, name: str) -> Fraction:
    """The exact rational that `value` is, a float being that very binary number; no error shows it.

    >>> parse_exact(0.1, "the value") == Fraction(1, 10)
    False
    """
    _check(value, name)
    if isinstance(value, (float, np.floating)):
        return Fraction(float(value))
    return _short(_fraction(value), name)


def parse_positive(value: Any, name: str) -> Fraction:
    """A rational above zero, or a clear error."""
    exact = parse_rational(value, name)
    if exact <= 0:
        raise InvalidInput(
            f"{name} is {_shown(exact)}", why="it must be above zero", fix=f"pass a positive {name}"
        )
    return exact


def parse_nonnegative(value: Any, name: str) -> Fraction:
    """A rational of zero or more, or a clear error."""
    exact = parse_rational(value, name)
    if exact < 0:
        raise InvalidInput(
            f"{name} is {_shown(exact)}", why="it cannot be below zero", fix=f"pass {name} of 0 or more"
        )
    return exact


def parse_below_one(value: Any, name: str) -> Fraction:
    """A rational of zero or more and below 1, or a clear error: what a δ may be."""
    exact = parse_nonnegative(value, name)
    if exact >= 1:
        raise InvalidInput(f"{name} is 1 or more", why="it would promise nothing", fix=f"pass {name} below 1")
    return exact


def parse_probability(value: Any, name: str) -> Fraction:
    """A rational strictly between 0 and 1, or a clear error."""
    exact = parse_rational(value, name)
    if not 0 < exact < 1:
        raise InvalidInput(
            f"{name} is {_shown(exact)}",
            why="it is a probability, and at 0 or 1 nothing would be promised or nothing hidden",
            fix=f"pass {name} strictly between 0 and 1",
        )
    return exact


def parse_integer(value: Any, name: str, *, least: int = 1) -> int:
    """A whole number of at least `least`, or a clear error."""
    exact = parse_rational(value, name)
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
    # A person reads the decimal that is printed, and `rational` reads it so, too: both must hold.
    while as_displayed(near) < exact and (near < sys.float_info.max or Fraction(near) < exact):
        near = math.nextafter(near, math.inf)
        if near == math.inf:
            break
    return near


def as_displayed(shown: float) -> Fraction:
    """The least that a double may be taken for: itself, or the decimal that it prints as.

    >>> as_displayed(0.1) == Fraction(1, 10) < Fraction(0.1)
    True
    """
    return min(Fraction(shown), Fraction(repr(shown)))


def ceil_sqrt(square: Fraction) -> Fraction:
    """A rational just above √square (exact where the root is rational), to 64 bits and more.

    >>> ceil_sqrt(Fraction(9, 4))
    Fraction(3, 2)
    """
    top, bottom = math.isqrt(square.numerator), math.isqrt(square.denominator)
    if top * top == square.numerator and bottom * bottom == square.denominator:
        return Fraction(top, bottom)
    shift = max(0, 80 - (square.numerator.bit_length() - square.denominator.bit_length()) // 2)
    scaled = (square.numerator << 2 * shift) // square.denominator
    # The next whole number's square is above the floor, so above what was floored.
    return Fraction(math.isqrt(scaled) + 1, 1 << shift)


def _check(value: Any, name: str) -> None:
    """One finite real number, of a kind that converts without rounding; or an error that does not show it."""
    kinds = (numbers.Rational, float, np.floating, Decimal)
    # numpy calls a time span an integer, and its "not a time" would pass for one.
    if (
        isinstance(value, (bool, np.bool_, np.timedelta64))
        or not isinstance(value, kinds)
        or (isinstance(value, np.floating) and value.itemsize > 8)
    ):
        raise InvalidInput(
            f"{name} is of type {type(value).__name__}",
            why="it must be one real number, of no more than 64 bits where it is binary",
            fix=f"pass {name} as an int, float, Fraction or Decimal",
        )
    if isinstance(value, Decimal):
        finite = value.is_finite()
        if finite and abs(value.adjusted()) > _MOST_BITS // 4:  # before it is written out in full
            raise _too_long(name)
    else:
        finite = isinstance(value, numbers.Rational) or math.isfinite(value)
    if not finite:
        raise InvalidInput(
            f"{name} is not finite",
            why="no guarantee can be computed from it",
            fix=f"pass {name} as a finite number",
        )


def _fraction(value: Any) -> Fraction:
    # numpy's integers have a numerator too, but it would stay of 64 bits, and wrap.
    return Fraction(int(value)) if isinstance(value, numbers.Integral) else Fraction(value)


def _short(exact: Fraction, name: str) -> Fraction:
    if max(exact.numerator.bit_length(), exact.denominator.bit_length()) > _MOST_BITS:
        raise _too_long(name)
    return exact


def _too_long(name: str) -> InvalidInput:
    return InvalidInput(
        f"{name} has more than {_MOST_BITS} bits",
        why="such a number is a mistake or an attack",
        fix=f"pass {name} with fewer digits",
    )


def _shown(exact: Fraction) -> str:
    if len(str(exact)) <= 24:
        return str(exact)
    # Not by way of a double: it may be too large for one, or seem to be zero.
    near = Context(prec=6).divide(Decimal(exact.numerator), Decimal(exact.denominator))
    return f"about {near}"


def format_up(exact: Fraction) -> str:
    """Six digits, rounded up as everything that is said of a loss.

    >>> format_up(Fraction(1, 3))
    '0.333334'
    """
    near = Context(prec=6, rounding=ROUND_CEILING).divide(
        Decimal(exact.numerator), Decimal(exact.denominator)
    )
    return f"{round_up(Fraction(near)):.6g}"


def format_down(exact: Fraction) -> str:
    """Six digits, rounded down: what is left, or at least so much, is never said to be more.

    >>> format_down(Fraction(2, 3))
    '0.666666'
    """
    near = Context(prec=6, rounding=ROUND_FLOOR).divide(Decimal(exact.numerator), Decimal(exact.denominator))
    return f"{near.normalize():g}" if near else "0"
