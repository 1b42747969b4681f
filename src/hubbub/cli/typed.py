"""Numbers as people type them and read them: exact on the way in, rounded to the safe side on the way out."""

import math
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal, InvalidOperation
from fractions import Fraction

from hubbub.errors import InvalidInput
from hubbub.rational import as_read, rational

__all__ = ["down", "nearest", "number", "up"]

_DIGITS = 12


def number(text: str, name: str) -> Fraction:
    """The exact number that was typed: a decimal, or a fraction of two.

    >>> number("256/60000", "rate"), number("1e-5", "delta")
    (Fraction(8, 1875), Fraction(1, 100000))
    """
    top, bar, bottom = text.partition("/")
    above, below = _decimal(top, name), _decimal(bottom, name) if bar else Fraction(1)
    if not below:
        raise _no_number(name)
    return rational(above / below, name)


def _decimal(text: str, name: str) -> Fraction:
    try:
        typed = Decimal(text.strip())
    except InvalidOperation:
        raise _no_number(name) from None
    if not typed.is_finite():
        raise _no_number(name)
    # This refuses 1e999999999 before it is written out.
    return rational(typed, name)


def _no_number(name: str) -> InvalidInput:
    return InvalidInput(
        f"{name} is not a number", why="it must be one finite number", fix="write it as 0.5, 1/2 or 1e-6"
    )


def up(bound: float | Fraction, digits: int = _DIGITS) -> str:
    """An upper bound as it is shown: never below what it is.

    >>> up(Fraction(1, 3)), up(0.1), up(1e-20), up(math.inf)
    ('0.333333333334', '0.1', '1e-20', '∞')
    """
    return _shown(bound, Context(prec=digits, rounding=ROUND_CEILING))


def down(bound: float | Fraction, digits: int = _DIGITS) -> str:
    """A lower bound as it is shown: never above what it is.

    >>> down(Fraction(1, 3)), down(Fraction(2, 3), 3), down(0.0)
    ('0.333333333333', '0.666', '0')
    """
    return _shown(bound, Context(prec=digits, rounding=ROUND_FLOOR))


def nearest(value: Fraction, digits: int = _DIGITS) -> str:
    """A number that is no bound.

    >>> nearest(Fraction(2, 3), 3)
    '0.667'
    """
    return _shown(value, Context(prec=digits))


def _shown(bound: float | Fraction, context: Context) -> str:
    if bound == math.inf:
        return "∞"
    # The least that it may be taken for: below it for what is rounded down, and what was promised otherwise.
    exact = as_read(bound) if isinstance(bound, float) else bound
    near = context.divide(Decimal(exact.numerator), Decimal(exact.denominator)).normalize()
    if not near or -5 < near.adjusted() < 15:
        return f"{near:f}"
    digits, _, power = f"{near:e}".partition("e")
    return f"{digits}e{int(power)}"
