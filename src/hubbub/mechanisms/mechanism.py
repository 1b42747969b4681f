"""The interface of every mechanism: frozen data with a privacy loss, a release and an error, stored as JSON.

A stored mechanism never changes its meaning: `kind` names the class and the version of its fields, and
reading one runs the same checks as making one.
"""

import dataclasses
import html
import json
from abc import ABC, abstractmethod
from collections.abc import Callable
from fractions import Fraction
from functools import wraps
from typing import Any, ClassVar, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from hubbub.accounting import PrivacyLoss
from hubbub.accounting.codec import RecordCodec, canonical_json
from hubbub.errors import InvalidInput, Refused
from hubbub.noise import discrete_laplace, geometric
from hubbub.noise.enclosures import exp_neg
from hubbub.noise.inversion import MAX_DRAW
from hubbub.numbers import Number, format_nearest, parse_integer
from hubbub.release import Release
from hubbub.sensitivity import Bounded, Sensitivity, unwrap
from hubbub.unit import Neighbours, Unit

__all__ = [
    "Integers",
    "Mechanism",
    "add_laplace_noise",
    "check_integer_sensitivity",
    "check_monotone",
    "check_positive_sensitivity",
    "check_scores",
    "check_sensitivity",
    "computed_once",
    "from_json",
    "laplace_difference_tail",
    "make_release",
]

_CODEC: RecordCodec["Mechanism"] = RecordCodec(parts=[Sensitivity])

_Figure = TypeVar("_Figure")


def computed_once(method: Callable[[Any], _Figure]) -> Callable[[Any], _Figure]:
    """Keep what a method of a frozen mechanism returns: its fields never change, so neither does this.

    A loss takes longer to make than a draw of noise, and its ε much longer.
    """
    name = f"_{method.__name__}_kept"

    @wraps(method)
    def get(self: Any) -> _Figure:
        cache = self.__dict__
        try:
            figure: _Figure = cache[name]
        except KeyError:
            figure = cache[name] = method(self)
        return figure

    return get


class Mechanism(ABC):
    """Abstract: a randomized algorithm as frozen data."""

    kind: ClassVar[str]
    """The name under which it is stored and the version of its fields, such as "laplace/1"."""

    error_kind: ClassVar[str]
    """The meaning of `error`: "additive" (distance to the exact answer), "regret" or "none"."""

    def __init_subclass__(cls) -> None:
        # survives: What object does when it is subclassed is nothing; the call is for classes with
        # more bases.
        super().__init_subclass__()
        if "kind" in cls.__dict__:
            if cls.kind in _CODEC.classes:
                raise InvalidInput(
                    f"two mechanisms are stored as {cls.kind}",
                    why="a stored mechanism would change its meaning",
                    fix="choose another kind or another version",
                )
            _CODEC.register(cls.kind, cls)

    @abstractmethod
    def loss(self) -> PrivacyLoss:
        """Return the privacy loss of one release."""

    @abstractmethod
    def error(self, confidence: Number = 0.95, *, coordinates: int = 1) -> float:
        """Return a bound on the error of `coordinates` answers that holds for all at once.

        Args:
            confidence: the probability with which the bound holds, at least.
            coordinates: the number of answers, or of candidates to select from.
        """

    @abstractmethod
    def release(self, value: Any) -> Release:
        """Release a value.

        Args:
            value: a `Bounded` value; or a plain value, for which the caller asserts the mechanism's
                sensitivity with one row, added or removed, as the unit. For another unit pass
                `Bounded.user_asserted(value, sensitivity, unit)`.
        """

    def release_many(self, value: Any, count: int) -> Release:
        """Release a value `count` times, with independent noise, as one release with the loss of all.

        For simulations and audits: one object instead of `count`, and additive noise is drawn at once.

        >>> from hubbub.mechanisms import Laplace
        >>> answers = Laplace.of(sensitivity=1, epsilon=0.5).release_many(42, 1000)
        >>> answers.value.shape, str(answers.loss)
        ((1000,), 'ε = 500')

        Args:
            value: what `release` takes.
            count: the number of releases.

        Guarantee: the composition of `count` releases.
        Proof: docs/proofs/composition.md
        """
        times = parse_integer(count, "count")
        first = self.release(value)
        # survives: From the second on: the first is there already.
        values = [first.value, *(self.release(value).value for _ in range(1, times))]
        return dataclasses.replace(first, value=values, loss=first.loss * times)

    def to_json(self) -> str:
        """Return the mechanism as JSON, with exact numbers.

        >>> from hubbub.mechanisms import Laplace
        >>> from_json(Laplace.of(sensitivity=1, epsilon=2).to_json()) == Laplace.of(sensitivity=1, epsilon=2)
        True
        """
        return canonical_json(_CODEC.encode(self))

    def __repr__(self) -> str:
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}  # type: ignore[arg-type]
        arguments = [f"{name}={_describe(value)}" for name, value in fields.items() if value is not None]
        return f"{type(self).__name__}({', '.join(arguments)})"

    def _repr_html_(self) -> str:
        return f"<p>{html.escape(str(self))}</p>"


def from_json(text: str) -> Mechanism:
    """Read a stored mechanism. Anything but exactly its fields is refused."""
    try:
        stored = json.loads(text)
    except (TypeError, ValueError, RecursionError):
        raise _unreadable("it is not JSON, or has another structure") from None
    try:
        mechanism = _CODEC.decode(stored)
    except InvalidInput:
        raise
    except (TypeError, ValueError, RecursionError) as error:
        raise _unreadable(str(error)) from None
    if not isinstance(mechanism, Mechanism):
        raise _unreadable("it is not a mechanism")
    return mechanism


def check_sensitivity(value: Any, declared: Sensitivity, norm: str) -> Bounded:
    """Return the value as a `Bounded`, and refuse one more sensitive than the mechanism is calibrated for."""
    if not isinstance(value, Bounded):
        return Bounded.user_asserted(value, declared)
    # survives: Only a shortcut: a sensitivity is not above itself.
    if value.sensitivity is not declared and getattr(value.sensitivity, norm) > getattr(declared, norm):
        raise Refused(
            f"the value's sensitivity ({value.sensitivity}) is above the mechanism's ({declared})",
            why="the noise would not hide one unit",
            fix="make the mechanism from the value's own sensitivity",
        )
    return value


def check_positive_sensitivity(sensitivity: Sensitivity) -> None:
    """Refuse a sensitivity of zero."""
    if sensitivity.linf == 0:
        raise InvalidInput(
            "the sensitivity is 0",
            why="no unit can move the answer, so no noise is needed",
            fix="publish the constant, or pass how far one unit can move the answer",
        )


def _unreadable(why: str) -> InvalidInput:
    return InvalidInput(
        "the stored mechanism cannot be read", why=why, fix="pass the unchanged output of to_json()"
    )


# Integer scores, for selection and the sparse vector technique (docs/proofs/selection.md).

Integers: TypeAlias = NDArray[np.int64]


def check_integer_sensitivity(sensitivity: Any, monotone: Any) -> None:
    """Refuse a sensitivity that integer scores cannot have, and a `monotone` that is not a bool."""
    if not isinstance(sensitivity, Sensitivity):
        raise InvalidInput(
            f"the sensitivity is of type {type(sensitivity).__name__}",
            why="the noise is calibrated to it",
            fix="make the mechanism with of(sensitivity=…)",
        )
    if sensitivity.linf == 0 or sensitivity.linf.denominator != 1:
        raise InvalidInput(
            "the ℓ∞ sensitivity is 0 or not a whole number",
            why="integer scores move by whole numbers, and constant scores need no mechanism",
            fix="scale real scores to integers by a public factor, and pass their sensitivity then",
        )
    if not isinstance(monotone, bool):
        raise InvalidInput(
            f"monotone is of type {type(monotone).__name__}",
            why="it halves the noise, so it must be stated explicitly",
            fix="pass True only if adding a unit never lowers a score, and False otherwise",
        )


def check_monotone(unit: Unit, *, monotone: bool) -> None:
    """Refuse the smaller noise of monotone scores under substitution."""
    if monotone and unit.neighbours is Neighbours.SUBSTITUTE:
        raise Refused(
            "the scores are declared monotone under substitution",
            why="substituting a unit may raise one score and lower another",
            fix="make the mechanism with monotone=False, or use add/remove neighbours",
        )


def check_scores(value: Any, sensitivity: Sensitivity, *, monotone: bool) -> tuple[Bounded, Integers]:
    """Return the value as a `Bounded`, and its integer scores."""
    bounded = check_sensitivity(value, sensitivity, "linf")
    check_monotone(bounded.unit, monotone=monotone)
    exact = unwrap(bounded)
    if not isinstance(exact, np.ndarray) or exact.dtype.kind != "i":
        raise InvalidInput(
            "the scores are not a list of integers",
            why="only integers are compared exactly",
            fix="scale them to integers by a public factor, and pass the sensitivity of the scaled scores",
        )
    if exact.size == 0:
        raise InvalidInput(
            "there are no scores", why="there is nothing to select from", fix="pass one score or more"
        )
    # survives: A copy of the scores is the same scores.
    return bounded, exact.astype(np.int64, copy=False)


def make_release(mechanism: Mechanism, value: Any, bounded: Bounded, *, monotone: bool) -> Release:
    """Make the release of a mechanism on scores."""
    # No rule proves that scores are monotone: that is user-asserted too.
    user_asserted = bounded.is_user_asserted or monotone
    return Release(
        value,
        mechanism.loss(),
        mechanism,
        bounded.unit,
        user_asserted=user_asserted,
        coordinates=bounded.coordinates,
    )


def add_laplace_noise(values: Integers, scale: Fraction) -> NDArray[Any]:
    """Add discrete Laplace noise: 64-bit integers, or Python integers where the noise is beyond ±2^62.

    A vector of draws saturates at ±2^62. A saturated draw is continued by a geometric variable, which is
    exact because the law is memoryless.
    """
    noise = discrete_laplace(scale, values.size)
    total: NDArray[Any] = values + noise  # values within ±2^61, so this fits
    sizes = np.abs(noise)
    # survives: A draw of none is not asked for; `argmax` takes a quarter of the time of `max`.
    if sizes[sizes.argmax()] == MAX_DRAW:
        total = total.astype(object)
        for lane in np.flatnonzero(sizes == MAX_DRAW):
            # survives: To divide by 1 or −1 is to multiply by it.
            total[lane] += geometric(scale) * int(np.sign(noise[lane]))
    return total


def laplace_difference_tail(rate: Fraction, distance: int, bits: int) -> Fraction:
    """Return Pr[X − Y ≥ distance], rounded up, of two discrete Laplace variables of scale 1/rate.

    q^c·((c+1)(1−q) + q + 2q²/(1+q))/(1+q)² with q = e^−rate.

    >>> round(float(laplace_difference_tail(Fraction(1), 1, 64)), 4)
    0.3598
    """
    one = 1 << bits
    low, high = (Fraction(end, one) for end in exp_neg(rate, bits))
    far = Fraction(exp_neg(rate * distance, bits)[1], one)
    inner = (distance + 1) * (1 - low) + high + 2 * high**2 / (1 + low)
    return far * inner / (1 + low) ** 2


def _describe(value: Any) -> str:
    return format_nearest(value) if isinstance(value, Fraction) else repr(value)
