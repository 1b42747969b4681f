"""Values of what was released, with what the exact ones may be: arithmetic and SQL's three-valued logic.

A span holds one element a group: the value, whether it is NULL, and of the exact one whether it may be NULL,
whether it may be anything else, and then between which ends it lies. All kinds are ordered (false before
true), so numbers, texts, truths and dates have ends alike. A number that is not finite is NULL: a quotient by
0, the logarithm of 0, what is beyond the doubles. Nothing here raises, whatever the values are.

Proof: docs/proofs/intervals.md, "Outputs"
"""

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hubbub.engines.schema import Key, Kind
from hubbub.sql.moments import Estimate, Floats

__all__ = [
    "IntervalValue",
    "absolute",
    "apply_increasing",
    "choose",
    "coalesce",
    "combine",
    "compare",
    "conjoin",
    "divide",
    "equal_or_null",
    "is_null",
    "is_true_value",
    "negate",
    "negate_truth",
    "null_if_equal",
    "round_half_up",
]

Truths = NDArray[np.bool_]

_FILLERS: dict[Kind, Key] = {
    Kind.NUMBER: 0.0,
    Kind.TEXT: "",
    Kind.BOOLEAN: False,
    Kind.DATE: date.min,
    Kind.TIMESTAMP: datetime.min,  # noqa: DTZ901 - the engine's have no zone
}
_DTYPES: dict[Kind, Any] = {Kind.NUMBER: np.float64, Kind.BOOLEAN: np.bool_}


@dataclass(frozen=True)
class IntervalValue:
    """Values, and what the exact ones may be. Where a value is NULL its place holds any value of its kind."""

    value: NDArray[Any]
    missing: Truths
    """True where the value is NULL."""
    low: NDArray[Any]
    high: NDArray[Any]
    """The exact one lies between these, where it is not NULL."""
    may_be: Truths
    """True where the exact value may be something other than NULL."""
    may_miss: Truths
    """True where the exact value may be NULL."""
    is_released: bool = False
    """True if it contains an aggregate; others are exact."""

    @classmethod
    def exact(cls, value: NDArray[Any], missing: Truths) -> "IntervalValue":
        """What is known exactly: keys, constants, and what is computed from them."""
        return cls(value, missing, value, value, ~missing, missing)

    @classmethod
    def of(cls, values: Sequence[Key], kind: Kind) -> "IntervalValue":
        """Keys of one kind. What is no finite number is NULL."""
        filler = _FILLERS[kind]
        value = np.empty(len(values), dtype=_DTYPES.get(kind, object))
        value[:] = [filler if key is None else _READ[kind](key) for key in values]
        missing = np.fromiter((key is None for key in values), dtype=np.bool_, count=len(values))
        if kind is Kind.NUMBER:
            missing |= ~np.isfinite(value)
            value = np.where(missing, 0.0, value)
        return cls.exact(value, missing)

    @classmethod
    def constant(cls, key: Key, kind: Kind, size: int) -> "IntervalValue":
        """One value for all groups."""
        one = cls.of([key], kind)
        return cls.exact(np.repeat(one.value, size), np.repeat(one.missing, size))

    @classmethod
    def estimated(cls, estimate: Estimate) -> "IntervalValue":
        """An aggregate: its exact answer is not NULL, unless that of the release is."""
        missing = ~np.isfinite(estimate.value)
        low = np.where(np.isnan(estimate.low), -np.inf, estimate.low)
        high = np.where(np.isnan(estimate.high), np.inf, estimate.high)
        return cls(
            np.where(missing, 0.0, estimate.value),
            missing,
            low,
            high,
            np.ones_like(missing),
            missing,
            is_released=True,
        )

    @classmethod
    def truth(
        cls, value: tuple[Truths, Truths], may: tuple[Truths, Truths, Truths], *, is_released: bool
    ) -> "IntervalValue":
        """A truth: where it is true and false; where the exact one may be true, false and unknown."""
        is_true, is_false = value
        may_hold, may_fail, may_miss = may
        missing = ~(is_true | is_false)
        return cls(is_true, missing, ~may_fail, may_hold, may_hold | may_fail, may_miss, is_released)

    @property
    def is_true(self) -> Truths:
        """True where a truth value is true."""
        return np.asarray(self.value & ~self.missing)

    @property
    def is_false(self) -> Truths:
        """True where a truth value is false."""
        return np.asarray(~self.value & ~self.missing)

    @property
    def may_hold(self) -> Truths:
        """True where the exact truth value may be true."""
        return np.asarray(self.high & self.may_be)

    @property
    def may_fail(self) -> Truths:
        """True where the exact truth value may be false."""
        return np.asarray(~self.low & self.may_be)

    def as_moments(self) -> "IntervalValue":
        """The first moments of dates."""
        value, low, high = (_as_moments(days) for days in (self.value, self.low, self.high))
        return replace(self, value=value, low=low, high=high)


def _moment(key: Any) -> datetime:
    return key if isinstance(key, datetime) else datetime(key.year, key.month, key.day)  # noqa: DTZ001


def _day(key: Any) -> date:
    return key.date() if isinstance(key, datetime) else key


_READ: dict[Kind, Callable[[Any], Any]] = {
    Kind.NUMBER: float,
    Kind.TEXT: str,
    Kind.BOOLEAN: bool,
    Kind.DATE: _day,
    Kind.TIMESTAMP: _moment,
}


def _as_moments(days: NDArray[Any]) -> NDArray[Any]:
    out = np.empty(len(days), dtype=object)
    out[:] = [_moment(day) for day in days]
    return out


# Numbers


def _finite(
    value: Floats, ends: tuple[Floats, Floats], parts: Sequence[IntervalValue], may_miss: Truths | None = None
) -> IntervalValue:
    """What was computed of these parts; not finite, it is NULL."""
    missing = np.logical_or.reduce([~np.isfinite(value), *(part.missing for part in parts)])
    value = np.where(missing, 0.0, value)
    if not any(part.is_released for part in parts):
        return IntervalValue.exact(value, missing)
    unclear = np.isnan(ends[0]) | np.isnan(ends[1])
    low, high = np.where(unclear, -np.inf, ends[0]), np.where(unclear, np.inf, ends[1])
    # What reaches beyond the doubles may be NULL there.
    beyond = ~np.isfinite(low) | ~np.isfinite(high)
    missed = np.logical_or.reduce([beyond, *(part.may_miss for part in parts)])
    if may_miss is not None:
        missed |= may_miss
    may_be = np.logical_and.reduce([part.may_be for part in parts])
    return IntervalValue(value, missing, low, high, may_be, missed, is_released=True)


def combine(compute: Callable[[Any, Any], Any], one: IntervalValue, two: IntervalValue) -> IntervalValue:
    """A sum, difference or product: on a box it is extreme at a corner. Ends are rounded outward."""
    corners = [compute(a, b) for a in (one.low, one.high) for b in (two.low, two.high)]
    low, high = np.minimum.reduce(corners), np.maximum.reduce(corners)
    ends = np.nextafter(low, -np.inf), np.nextafter(high, np.inf)
    return _finite(compute(one.value, two.value), ends, (one, two))


def divide(one: IntervalValue, two: IntervalValue) -> IntervalValue:
    """A quotient; where the divisor may be zero, it may be anything, and NULL."""
    crosses = (two.low <= 0) & (two.high >= 0)
    corners = [_quotient(a, b) for a in (one.low, one.high) for b in (two.low, two.high)]
    low, high = (np.where(crosses, np.nan, end.reduce(corners)) for end in (np.minimum, np.maximum))
    ends = np.nextafter(low, -np.inf), np.nextafter(high, np.inf)
    return _finite(_quotient(one.value, two.value), ends, (one, two), crosses)


def _quotient(a: Floats, b: Floats) -> Floats:
    out: Floats = np.where(b == 0, np.nan, a / np.where(b == 0, 1.0, b))
    return out


def negate(inner: IntervalValue) -> IntervalValue:
    """Minus."""
    return replace(inner, value=-inner.value, low=-inner.high, high=-inner.low)


def absolute(inner: IntervalValue) -> IntervalValue:
    """ABS: extreme at an end, or 0."""
    crosses = (inner.low <= 0) & (inner.high >= 0)
    low, high = np.abs(inner.low), np.abs(inner.high)
    least = np.where(crosses, 0.0, np.minimum(low, high))
    return replace(inner, value=np.abs(inner.value), low=least, high=np.maximum(low, high))


def apply_increasing(
    function: Callable[[Floats], Floats],
    inner: IntervalValue,
    *,
    least: float = -np.inf,
    is_open: bool = False,
    ulps: int = 0,
) -> IntervalValue:
    """A function that never falls, from `least` on; NULL below (and at it, if `is_open`).

    It may be off by `ulps` units in the last place; the ends are moved outward by as many.
    """
    below = operator.le if is_open else operator.lt
    value = np.where(below(inner.value, least), np.nan, function(np.maximum(inner.value, least)))
    low, high = function(np.maximum(inner.low, least)), function(np.maximum(inner.high, least))
    for _ in range(ulps):
        low, high = np.nextafter(low, -np.inf), np.nextafter(high, np.inf)
    return _finite(value, (low, high), (inner,), np.asarray(below(inner.low, least)))


def round_half_up(values: Floats, digits: int) -> Floats:
    """As ROUND does: halves away from zero, by a power of ten.

    >>> round_half_up(np.array([2.5, -2.5, 0.15, 1e308]), 1).tolist()
    [2.5, -2.5, 0.2, 1e+308]
    >>> round_half_up(np.array([25.0, -2.5]), -1).tolist()
    [30.0, -0.0]
    """
    power = 10.0 ** abs(digits)
    with np.errstate(over="ignore", invalid="ignore"):  # what overflows has no digits behind the point
        scaled = values * power if digits >= 0 else values / power
        size = np.abs(scaled)
        whole = np.floor(size)
        whole = np.copysign(whole + (size - whole >= 0.5), scaled)
        out = whole / power if digits >= 0 else whole * power
    return np.where(np.isfinite(scaled), out, values)


# Truths

_COMPARED: dict[
    str, tuple[Callable[[Any, Any], Any], Callable[[IntervalValue, IntervalValue], tuple[Any, Any]]]
] = {
    "<": (operator.lt, lambda a, b: (a.low < b.high, a.high >= b.low)),
    "<=": (operator.le, lambda a, b: (a.low <= b.high, a.high > b.low)),
    ">": (operator.gt, lambda a, b: (a.high > b.low, a.low <= b.high)),
    ">=": (operator.ge, lambda a, b: (a.high >= b.low, a.low < b.high)),
    "=": (operator.eq, lambda a, b: (_meet(a, b), _differ(a, b))),
    "<>": (operator.ne, lambda a, b: (_differ(a, b), _meet(a, b))),
}
"""Of each comparison: the comparison, and where the exact ones may fulfil it, and may not."""


def _meet(a: IntervalValue, b: IntervalValue) -> Any:
    return (a.low <= b.high) & (b.low <= a.high)


def _differ(a: IntervalValue, b: IntervalValue) -> Any:
    return (a.low < b.high) | (b.low < a.high)


def compare(sign: str, one: IntervalValue, two: IntervalValue) -> IntervalValue:
    """A comparison of two values of one kind; unknown where one of them is NULL."""
    compare, possible = _COMPARED[sign]
    there = ~(one.missing | two.missing)
    is_so = np.asarray(compare(one.value, two.value), dtype=np.bool_)
    may_be = one.may_be & two.may_be
    may_hold, may_fail = (np.asarray(part, dtype=np.bool_) & may_be for part in possible(one, two))
    return IntervalValue.truth(
        (is_so & there, ~is_so & there),
        (may_hold, may_fail, one.may_miss | two.may_miss),
        is_released=one.is_released or two.is_released,
    )


def negate_truth(inner: IntervalValue) -> IntervalValue:
    """NOT: of what is unknown it is unknown."""
    return IntervalValue.truth(
        (inner.is_false, inner.is_true),
        (inner.may_fail, inner.may_hold, inner.may_miss),
        is_released=inner.is_released,
    )


def conjoin(one: IntervalValue, two: IntervalValue) -> IntervalValue:
    """AND: false where one is false, true where both are true, else unknown."""
    not_false = [part.may_hold | part.may_miss for part in (one, two)]
    unknown = (one.may_miss & not_false[1]) | (two.may_miss & not_false[0])
    return IntervalValue.truth(
        (one.is_true & two.is_true, one.is_false | two.is_false),
        (one.may_hold & two.may_hold, one.may_fail | two.may_fail, unknown),
        is_released=one.is_released or two.is_released,
    )


def is_null(inner: IntervalValue) -> IntervalValue:
    """IS NULL: never unknown."""
    never = np.zeros_like(inner.missing)
    return IntervalValue.truth(
        (inner.missing, ~inner.missing),
        (inner.may_miss, inner.may_be, never),
        is_released=inner.is_released,
    )


def is_true_value(inner: IntervalValue) -> IntervalValue:
    """IS TRUE: what is unknown is not true."""
    never = np.zeros_like(inner.missing)
    return IntervalValue.truth(
        (inner.is_true, ~inner.is_true),
        (inner.may_hold, inner.may_fail | inner.may_miss, never),
        is_released=inner.is_released,
    )


def equal_or_null(one: IntervalValue, two: IntervalValue) -> IntervalValue:
    """IS NOT DISTINCT FROM: equal, or both NULL."""
    neither = conjoin(
        negate_truth(is_true_value(compare("=", one, two))), negate_truth(conjoin(is_null(one), is_null(two)))
    )
    return negate_truth(neither)


# Choices


def choose(test: IntervalValue, one: IntervalValue, two: IntervalValue) -> IntervalValue:
    """The one where the test is true, else the two; where it may be either, the ends span both."""
    is_one, other = test.is_true, ~test.is_true
    may_one, may_two = test.may_hold, test.may_fail | test.may_miss
    from_one, from_two = one.may_be & may_one, two.may_be & may_two
    low, high = (
        np.where(from_one & from_two, span(a, b), np.where(from_one, a, b))
        for span, a, b in ((np.minimum, one.low, two.low), (np.maximum, one.high, two.high))
    )
    return IntervalValue(
        np.where(is_one, one.value, two.value),
        (is_one & one.missing) | (other & two.missing),
        low,
        high,
        from_one | from_two,
        (one.may_miss & may_one) | (two.may_miss & may_two),
        is_released=one.is_released or two.is_released or test.is_released,
    )


def coalesce(one: IntervalValue, two: IntervalValue) -> IntervalValue:
    """COALESCE of two: only what may be NULL is ever replaced."""
    never = np.zeros_like(one.may_miss)
    return choose(negate_truth(is_null(one)), replace(one, may_miss=never), two)


def null_if_equal(one: IntervalValue, two: IntervalValue, nothing: IntervalValue) -> IntervalValue:
    """NULLIF: NULL where both are equal."""
    return choose(compare("=", one, two), nothing, one)
