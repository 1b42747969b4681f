"""Exact rationals in, text rounded outward out.

`parse_…` functions turn every parameter (ε, δ, a sensitivity, a scale) into a `Fraction`. A float given as a
parameter stands for the decimal that it prints as, so that ten times 0.1 is exactly 1. A float in the data
stands for the binary number that it is (`parse_exact`): nobody typed it, and its distance from its neighbours
counts.

`round_up` and `round_down` turn a rational into a double, and the `format_…` functions into text. An upper
bound is rounded up and a lower bound down, so that no printed number promises more than was proved.
"""

import math
import numbers
import sys
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from fractions import Fraction
from typing import Any

from hubbub.errors import InvalidInput

__all__ = [
    "Number",
    "as_displayed",
    "ceil_sqrt",
    "format_down",
    "format_error",
    "format_estimate",
    "format_high",
    "format_low",
    "format_nearest",
    "format_percent",
    "format_up",
    "invalid_number",
    "parse_below_one",
    "parse_exact",
    "parse_integer",
    "parse_nonnegative",
    "parse_positive",
    "parse_probability",
    "parse_rational",
    "round_down",
    "round_up",
]

Number = int | float | Fraction | Decimal
"""The types that a parameter may have; numpy's scalars count as floats and ints."""

# The difference of two doubles has up to 2100 bits and its square 4200. A much longer number only burns time.
_MAX_BITS = 8192

_DIGITS = 6


def parse_rational(value: Any, name: str) -> Fraction:
    """Return the rational that a person meant by `value`: a float is the decimal that it prints as.

    Args:
        value: the parameter as it was passed.
        name: the name of the parameter, for the error.

    >>> parse_rational(0.1, "epsilon")
    Fraction(1, 10)
    """
    # survives: Only a shortcut: a Fraction passes all checks of its type.
    if type(value) is Fraction:
        return _limit_bits(value, name)
    _check(value, name)
    if isinstance(value, float) or _is_numpy(value, "floating"):
        # The shortest decimal that prints as this double: what the person typed.
        return Fraction(repr(float(value)))
    return _limit_bits(_to_fraction(value), name)


def parse_exact(value: Any, name: str) -> Fraction:
    """Return the rational that `value` is: a float is the binary number that it is. No error shows the value.

    >>> parse_exact(0.1, "the value") == Fraction(1, 10)
    False
    """
    _check(value, name)
    if isinstance(value, float) or _is_numpy(value, "floating"):
        return Fraction(float(value))
    return _limit_bits(_to_fraction(value), name)


def parse_positive(value: Any, name: str) -> Fraction:
    """Return a rational above zero, or raise `InvalidInput`."""
    exact = parse_rational(value, name)
    if exact <= 0:
        raise invalid_number(
            name, f"is {_describe(exact)}", why="it must be positive", fix="pass a positive {}"
        )
    return exact


def parse_nonnegative(value: Any, name: str) -> Fraction:
    """Return a rational of zero or more, or raise `InvalidInput`."""
    exact = parse_rational(value, name)
    if exact < 0:
        raise invalid_number(
            name, f"is {_describe(exact)}", why="it cannot be negative", fix="pass {} of 0 or more"
        )
    return exact


def parse_below_one(value: Any, name: str) -> Fraction:
    """Return a rational in [0, 1), such as a δ, or raise `InvalidInput`."""
    exact = parse_nonnegative(value, name)
    if exact >= 1:
        raise invalid_number(name, "is 1 or more", why="such a guarantee is empty", fix="pass {} below 1")
    return exact


def parse_probability(value: Any, name: str) -> Fraction:
    """Return a rational strictly between 0 and 1, or raise `InvalidInput`."""
    exact = parse_rational(value, name)
    if not 0 < exact < 1:
        raise invalid_number(
            name,
            f"is {_describe(exact)}",
            why="it is a probability, and 0 and 1 are not allowed",
            fix="pass {} strictly between 0 and 1",
        )
    return exact


def parse_integer(value: Any, name: str, *, minimum: int = 1) -> int:
    """Return an integer of at least `minimum`, or raise `InvalidInput`."""
    exact = parse_rational(value, name)
    if exact.denominator != 1 or exact < minimum:
        raise invalid_number(
            name,
            f"is {_describe(exact)}",
            why=f"it is a count of at least {minimum}",
            fix=f"pass {{}} as an integer of at least {minimum}",
        )
    return exact.numerator


def round_up(exact: Fraction) -> float:
    """Return the least double that is not below `exact`, neither itself nor as its printed decimal.

    >>> round_up(Fraction(1, 10)) >= Fraction(1, 10)
    True
    """
    try:
        near = float(exact)
    except OverflowError:
        return math.inf if exact > 0 else -sys.float_info.max
    # A person reads the printed decimal, and `parse_rational` reads it back: it must not be too small either.
    while as_displayed(near) < exact and (near < sys.float_info.max or Fraction(near) < exact):
        near = math.nextafter(near, math.inf)
        if near == math.inf:
            break
    return near


def round_down(exact: Fraction) -> float:
    """Return the largest double that is not above `exact`, neither itself nor as its printed decimal.

    >>> round_down(Fraction(2, 3)) <= Fraction(2, 3)
    True
    """
    return 0.0 - round_up(-exact)  # and never -0.0


def as_displayed(value: float) -> Fraction:
    """Return the lesser of a double and the decimal that it prints as.

    >>> as_displayed(0.1) == Fraction(1, 10) < Fraction(0.1)
    True
    """
    return min(Fraction(value), Fraction(repr(value)))


def ceil_sqrt(square: Fraction) -> Fraction:
    """Return √square, rounded up by less than one part in 2^64; exact where the root is rational.

    >>> ceil_sqrt(Fraction(9, 4))
    Fraction(3, 2)
    """
    top, bottom = math.isqrt(square.numerator), math.isqrt(square.denominator)
    if top * top == square.numerator and bottom * bottom == square.denominator:
        return Fraction(top, bottom)
    shift = max(0, 80 - (square.numerator.bit_length() - square.denominator.bit_length()) // 2)
    scaled = (square.numerator << 2 * shift) // square.denominator
    # (isqrt(n) + 1)² > n for n = ⌊x⌋, and as an integer it is then above x too.
    return Fraction(math.isqrt(scaled) + 1, 1 << shift)


def format_up(value: float | Fraction, digits: int = _DIGITS) -> str:
    """Format an upper bound, such as an ε or an error: the text is never below the value.

    >>> format_up(Fraction(1, 3)), format_up(0.1), format_up(1e-20), format_up(math.inf)
    ('0.333334', '0.1', '1e-20', '∞')

    Args:
        value: a rational, or a double, which is read as the lesser of itself and the decimal it prints as.
        digits: the number of significant digits.
    """
    return _format(value, Context(prec=digits, rounding=ROUND_CEILING))


def format_down(value: float | Fraction, digits: int = _DIGITS) -> str:
    """Format a lower bound, such as the budget left: the text is never above the value.

    >>> format_down(Fraction(2, 3)), format_down(Fraction(2, 3), 3), format_down(0.0)
    ('0.666666', '0.666', '0')
    """
    return _format(value, Context(prec=digits, rounding=ROUND_FLOOR))


def format_nearest(value: float | Fraction, digits: int = _DIGITS) -> str:
    """Format a number that bounds nothing, rounded to the nearest.

    >>> format_nearest(Fraction(2, 3), 3)
    '0.667'
    """
    return _format(value, Context(prec=digits))


def format_error(width: float) -> str:
    """Format an error bound, rounded up to three digits, or from 1,000 on to a whole number.

    Widths are computed in doubles: one that is a few units above 12 is shown as 12, not as 12.1.

    >>> format_error(2.345), format_error(12.000000000000002), format_error(1234.2), format_error(math.inf)
    ('2.35', '12', '1,235', '∞')
    """
    if not math.isfinite(width):
        return format_up(width)
    near = Fraction(f"{width:.12e}")
    return f"{math.ceil(near):,}" if near >= 1000 else format_up(near, 3)


def format_estimate(value: float, width: float) -> str:
    """Format an estimate to the first digit that its half-width leaves in doubt, and one more.

    >>> format_estimate(1234.5678, 3), format_estimate(math.nan, 1), format_estimate(-math.inf, 1)
    ('1,234.6', 'NULL', '-∞')
    """
    if math.isnan(value):
        return "NULL"
    if math.isinf(value):
        return format_nearest(value)
    text = f"{value:,.{_decimals(width)}f}"
    return text.removeprefix("-") if not text.strip("-0.,") else text


def format_low(value: float, width: float) -> str:
    """Format the low end of an interval with this half-width: rounded down, to as many digits.

    >>> format_low(1230.99, 3), format_low(-math.inf, 3), format_high(1230.01, 3)
    ('1,230.9', '-∞', '1,230.1')
    """
    return _format_end(value, width, ROUND_FLOOR)


def format_high(value: float, width: float) -> str:
    """Format the high end of an interval: rounded up."""
    return _format_end(value, width, ROUND_CEILING)


def _format_end(value: float, width: float, rounding: str) -> str:
    if not math.isfinite(value):
        return format_estimate(value, width)
    # A double that prints as a decimal stands for it: 1230.9 is not rounded down to 1230.8.
    rounded = Decimal(repr(value)).quantize(Decimal(1).scaleb(-_decimals(width)), rounding, Context(prec=400))
    text = f"{rounded:,f}"
    return text.removeprefix("-") if not rounded else text


def _decimals(width: float) -> int:
    """The digits after the point that a number with this half-width shows: one beyond the first in doubt."""
    is_known = math.isfinite(width) and width > 0
    return min(12, max(0, 1 - math.floor(math.log10(width)))) if is_known else 0


def format_percent(value: float | Fraction, digits: int = _DIGITS) -> str:
    """Format a probability or a share as a percentage, rounded to the nearest.

    >>> format_percent(0.95), format_percent(Fraction(1, 3), 3)
    ('95 %', '33.3 %')
    """
    exact = as_displayed(value) if isinstance(value, float) else value
    return f"{format_nearest(100 * exact, digits)} %"


def _format(value: float | Fraction, context: Context) -> str:
    if abs(value) == math.inf:
        return "∞" if value > 0 else "-∞"
    exact = as_displayed(value) if isinstance(value, float) else value
    near = context.divide(Decimal(exact.numerator), Decimal(exact.denominator)).normalize(context)
    # Plain digits for people, and an exponent where they would be mostly zeros.
    if not near or -5 < near.adjusted() < 15:
        return f"{near:f}"
    mantissa, _, power = f"{near:e}".partition("e")
    return f"{mantissa}e{int(power)}"


def _is_numpy(value: Any, *types: str) -> bool:
    """True if a value is of one of the types of numpy, which is loaded if there is such a value."""
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, tuple(getattr(numpy, name) for name in types))


def _check(value: Any, name: str) -> None:
    """Refuse anything but one finite real number of a type that converts without rounding; show no value."""
    is_known = isinstance(value, (numbers.Rational, float, Decimal)) or _is_numpy(value, "floating")
    # numpy calls a time span an integer, and NaT would pass for one.
    if (
        isinstance(value, bool)
        or _is_numpy(value, "bool_", "timedelta64")
        or not is_known
        or (_is_numpy(value, "floating") and value.itemsize > 8)
    ):
        raise invalid_number(
            name,
            f"is of type {type(value).__name__}",
            why="it must be one real number, and a float of at most 64 bits",
            fix="pass {} as an int, float, Fraction or Decimal",
        )
    if isinstance(value, Decimal):
        finite = value.is_finite()
        if finite and abs(value.adjusted()) > _MAX_BITS // 4:  # before it is expanded to an integer
            raise _too_long(name)
    else:
        finite = isinstance(value, numbers.Rational) or math.isfinite(value)
    if not finite:
        raise invalid_number(
            name,
            "is not finite",
            why="no guarantee can be computed from it",
            fix="pass {} as a finite number",
        )


def _to_fraction(value: Any) -> Fraction:
    # A numpy integer has a numerator too, but one of 64 bits, which would wrap around.
    return Fraction(int(value)) if isinstance(value, numbers.Integral) else Fraction(value)


def _limit_bits(exact: Fraction, name: str) -> Fraction:
    if max(exact.numerator.bit_length(), exact.denominator.bit_length()) > _MAX_BITS:
        raise _too_long(name)
    return exact


def _too_long(name: str) -> InvalidInput:
    return invalid_number(
        name,
        f"has more than {_MAX_BITS} bits",
        why="arithmetic with it would be too slow",
        fix="pass {} with fewer digits",
    )


def invalid_number(name: str, what: str, *, why: str, fix: str) -> InvalidInput:
    """Return the error for a number that cannot be used.

    Args:
        name: the parameter's name in Python, which each front end spells its own way; or a few words.
        what: what is wrong with it.
        why: why that matters.
        fix: what to do; `{}` stands for the name.

    >>> print(invalid_number("steps", "is 0", why="it must be positive", fix="pass a positive {}"))
    steps is 0: it must be positive. Fix: pass a positive steps.
    """
    is_parameter = name.isidentifier()
    subject = f"{{{name}}}" if is_parameter else name
    return InvalidInput(
        f"{subject} {what}", why=why, fix=fix.format(subject), parameter=name if is_parameter else None
    )


def _describe(exact: Fraction) -> str:
    if len(str(exact)) <= 24:
        return str(exact)
    # Not through a double: the number may overflow it, or underflow to zero.
    near = Context(prec=6).divide(Decimal(exact.numerator), Decimal(exact.denominator))
    return f"about {near}"
