"""Numbers as people type them and read them: exact on the way in, rounded to the safe side on the way out."""

import math
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal, InvalidOperation
from fractions import Fraction

from hubbub.errors import InvalidInput
from hubbub.loss import refuse_large_delta
from hubbub.rational import as_read, at_least_zero, below_one, positive, probability, rational, whole

__all__ = ["above_zero", "allowed", "chance", "counted", "down", "nearest", "number", "share", "sure", "up"]

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


def above_zero(text: str, name: str) -> Fraction:
    """A number above zero that was typed."""
    return positive(number(text, name), name)


def counted(text: str, name: str) -> int:
    """A whole number of 1 or more that was typed."""
    return whole(number(text, name), name)


def share(text: str, name: str) -> Fraction:
    """A number from 0 to 1 that was typed."""
    typed = at_least_zero(number(text, name), name)
    if typed > 1:
        raise InvalidInput(f"{name} is above 1", why="it is a probability", fix=f"pass {name} within 0 and 1")
    return typed


def sure(confidence: str) -> Fraction:
    """The confidence that was typed; a number such as 95 was meant in hundredths."""
    typed = number(confidence, "--confidence")
    if 1 < typed < 100:
        raise InvalidInput(
            f"--confidence is {nearest(typed)}",
            why="it is a probability, strictly between 0 and 1",
            fix=f"pass it as a part of 1 (did you mean {nearest(typed / 100)}?)",
        )
    return probability(typed, "--confidence")


def chance(delta: str) -> Fraction:
    """A δ that was typed; whether it may be spent, the library says."""
    return below_one(number(delta, "--delta"), "--delta")


def allowed(delta: str, population: str | None, *, promised: bool = True) -> Fraction:
    """The δ that was typed, if the library lets it be spent; where nothing is promised, any."""
    typed = chance(delta)
    if promised or population is not None:
        refuse_large_delta(typed, None if population is None else counted(population, "--population"))
    return typed


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
