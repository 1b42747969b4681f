"""What every mechanism is: frozen data with a loss, a release and an error, stored as JSON.

A stored mechanism never changes its meaning: `kind` names the class and the version of its fields,
and reading one checks it as if it were made anew.
"""

import dataclasses
import json
import re
from abc import ABC, abstractmethod
from fractions import Fraction
from typing import Any, ClassVar, TypeAlias

import numpy as np
from numpy.typing import NDArray

from hubbub.accounting import PrivacyLoss
from hubbub.errors import InvalidInput, Refused
from hubbub.noise import discrete_laplace, geometric
from hubbub.noise.enclosures import exp_neg
from hubbub.noise.inversion import MOST
from hubbub.numbers import Number
from hubbub.release import Release
from hubbub.sensitivity import Bounded, Sensitivity, unwrap
from hubbub.unit import Neighbours, Unit

__all__ = [
    "Integers",
    "Mechanism",
    "check_integer_sensitivity",
    "check_monotone",
    "check_positive_sensitivity",
    "check_scores",
    "check_sensitivity",
    "from_json",
    "laplace_difference_tail",
    "noisy",
    "released",
]

_RATIONAL = re.compile(r"-?[0-9]{1,4000}(/0*[1-9][0-9]{0,3999})?")

_kinds: dict[str, type["Mechanism"]] = {}


class Mechanism(ABC):
    """Abstract: the noise or the choice, as frozen data."""

    kind: ClassVar[str]
    """The name under which it is stored, with the version of its fields: "laplace/1"."""

    error_kind: ClassVar[str]
    """What `error` means: a "additive" around the exact answer, a "regret", or "none"."""

    def __init_subclass__(cls) -> None:
        # survives: What object does when it is subclassed is nothing; the call is for classes with
        # more bases.
        super().__init_subclass__()
        if "kind" in cls.__dict__:
            if cls.kind in _kinds:
                raise InvalidInput(
                    f"two mechanisms are stored as {cls.kind}",
                    why="what is stored would change its meaning",
                    fix="choose another kind, or another version",
                )
            _kinds[cls.kind] = cls

    @abstractmethod
    def loss(self) -> PrivacyLoss:
        """What one release costs."""

    @abstractmethod
    def error(self, confidence: Number = 0.95, *, coordinates: int = 1) -> float:
        """How far `coordinates` answers are off at most, all at once, with this confidence."""

    @abstractmethod
    def release(self, value: Any) -> Release:
        """Release a Bounded value, or one whose sensitivity the caller asserts by passing it bare.

        A bare value is taken to be of one row, added or removed; to assert it of another unit, pass
        `Bounded.user_asserted(value, sensitivity, unit)`.
        """

    def to_json(self) -> str:
        """The mechanism as it is stored: exact numbers, in a form that stays readable.

        >>> from hubbub.mechanisms import Laplace
        >>> from_json(Laplace.of(sensitivity=1, epsilon=2).to_json()) == Laplace.of(sensitivity=1, epsilon=2)
        True
        """
        # survives: No field of a mechanism holds text that is not ASCII.
        return json.dumps(_plain(self), sort_keys=True, ensure_ascii=False)


def from_json(text: str) -> Mechanism:
    """Read a stored mechanism; anything but exactly its fields is refused."""
    try:
        made = _made(json.loads(text))
    except InvalidInput:
        raise
    except (TypeError, ValueError, RecursionError):
        raise _unreadable("it is not JSON, or not of this shape") from None
    if not isinstance(made, Mechanism):
        raise _unreadable("it is not a mechanism")
    return made


def check_sensitivity(value: Any, declared: Sensitivity, norm: str) -> Bounded:
    """The value as a Bounded that the mechanism was calibrated for."""
    if not isinstance(value, Bounded):
        return Bounded.user_asserted(value, declared)
    if getattr(value.sensitivity, norm) > getattr(declared, norm):
        raise Refused(
            f"the value's sensitivity ({value.sensitivity}) is above the mechanism's ({declared})",
            why="the noise would be too small for one unit",
            fix="make the mechanism from the value's own sensitivity",
        )
    return value


def check_positive_sensitivity(sensitivity: Sensitivity) -> None:
    """Refuse a sensitivity of zero: it says that there is nothing to hide."""
    if sensitivity.linf == 0:
        raise InvalidInput(
            "the sensitivity is 0",
            why="nobody could move the answer, so there is nothing to hide and no scale for noise",
            fix="publish the constant as it is, or pass how far one unit can move the answer",
        )


def _plain(value: Any) -> Any:
    if isinstance(value, Mechanism):
        fields = {f.name: _plain(getattr(value, f.name)) for f in dataclasses.fields(value)}  # type: ignore[arg-type]
        return {"kind": value.kind, **fields}
    if isinstance(value, Sensitivity):
        return {"l1": str(value.l1), "l2_squared": str(value.l2_squared), "linf": str(value.linf)}
    return str(value) if isinstance(value, Fraction) else value


def _made(stored: Any) -> Any:
    if not isinstance(stored, dict):
        return _exact(stored) if isinstance(stored, str) else stored
    if set(stored) == {"l1", "l2_squared", "linf"}:
        return Sensitivity(**{name: _exact(number) for name, number in stored.items()})
    kind = _kinds.get(str(stored.get("kind")))
    if kind is None:
        raise _unreadable("its kind is not known to this version")
    names = {f.name for f in dataclasses.fields(kind)}  # type: ignore[arg-type]
    if set(stored) - {"kind"} != names:
        raise _unreadable("its fields are not those of its kind")
    return kind(**{name: _made(stored[name]) for name in names})


def _exact(text: Any) -> Fraction:
    # Only what to_json() writes: a decimal such as 1e999999999 would take for ever to write out.
    if isinstance(text, str) and _RATIONAL.fullmatch(text):
        return Fraction(text)
    raise _unreadable("one of its numbers is not an exact rational")


def _unreadable(why: str) -> InvalidInput:
    return InvalidInput(
        "the stored mechanism cannot be read", why=why, fix="use the text that to_json() wrote, unchanged"
    )


# Integer scores: what those that choose, and those that compare, ask of them and add to them.
#
# Proved in docs/proofs/selection.md

Integers: TypeAlias = NDArray[np.int64]


def check_integer_sensitivity(sensitivity: Any, monotone: Any) -> None:
    """Refuse a sensitivity that integer scores cannot have, and a `monotone` that is no plain yes or no."""
    if not isinstance(sensitivity, Sensitivity):
        raise InvalidInput(
            f"the sensitivity is of type {type(sensitivity).__name__}",
            why="nobody could say how far one unit moves a score",
            fix="make the mechanism with of(sensitivity=…)",
        )
    if sensitivity.linf == 0 or sensitivity.linf.denominator != 1:
        raise InvalidInput(
            "the ℓ∞ sensitivity is 0 or not a whole number",
            why="integers move by whole numbers, and what nobody can move needs no mechanism",
            fix="scale real scores to integers by a public factor, and pass the sensitivity of these",
        )
    if not isinstance(monotone, bool):
        raise InvalidInput(
            f"monotone is of type {type(monotone).__name__}",
            why="half the noise rests on it, so it is said plainly",
            fix="pass True only where adding a unit lowers no score, else False",
        )


def check_monotone(unit: Unit, *, monotone: bool) -> None:
    """Refuse the smaller noise of monotone scores under substitution."""
    if monotone and unit.neighbours is Neighbours.SUBSTITUTE:
        raise Refused(
            "monotone scores under substitution",
            why="a substituted unit may raise one score and lower another",
            fix="make the mechanism with monotone=False, or protect a unit that is added or removed",
        )


def check_scores(value: Any, sensitivity: Sensitivity, *, monotone: bool) -> tuple[Bounded, Integers]:
    """The value as a Bounded that the mechanism was calibrated for, and its integers."""
    bounded = check_sensitivity(value, sensitivity, "linf")
    check_monotone(bounded.unit, monotone=monotone)
    exact = unwrap(bounded)
    if not isinstance(exact, np.ndarray) or exact.dtype.kind != "i":
        raise InvalidInput(
            "the scores are not a list of integers",
            why="only integers are compared exactly",
            fix="scale them to integers by a public factor, and pass the sensitivity of these",
        )
    if exact.size == 0:
        raise InvalidInput(
            "there are no scores", why="nothing can be chosen from nothing", fix="pass one score or more"
        )
    # survives: A copy of the scores is the same scores.
    return bounded, exact.astype(np.int64, copy=False)


def released(mechanism: Mechanism, value: Any, bounded: Bounded, *, monotone: bool) -> Release:
    """The release; where scores are taken to be monotone, on a person's word."""
    # No rule proves that scores are monotone, so that is a person's word too.
    asserted = bounded.is_user_asserted or monotone
    return Release(
        value,
        mechanism.loss(),
        mechanism,
        bounded.unit,
        user_asserted=asserted,
        coordinates=bounded.coordinates,
    )


def noisy(values: Integers, scale: Fraction) -> NDArray[Any]:
    """Values plus discrete Laplace noise: 64-bit integers, or Python's where noise was cut at ±2^62.

    Such noise goes on as a geometric variable (it has no memory), so that the law is the whole law.
    """
    noise = discrete_laplace(scale, values.size)
    total: NDArray[Any] = values + noise  # values within ±2^61, so this fits
    cut = np.flatnonzero(np.abs(noise) == MOST)
    if cut.size:
        total = total.astype(object)
        for lane in cut:
            # survives: To divide by 1 or −1 is to multiply by it.
            total[lane] += geometric(scale) * int(np.sign(noise[lane]))
    return total


def laplace_difference_tail(rate: Fraction, distance: int, bits: int) -> Fraction:
    """Pr[X − Y ≥ distance] for two discrete Laplace variables of scale 1/rate, rounded up; distance ≥ 0.

    q^c·((c+1)(1−q) + q + 2q²/(1+q))/(1+q)² with q = e^−rate.

    >>> round(float(laplace_difference_tail(Fraction(1), 1, 64)), 4)
    0.3598
    """
    one = 1 << bits
    low, high = (Fraction(end, one) for end in exp_neg(rate, bits))
    far = Fraction(exp_neg(rate * distance, bits)[1], one)
    inner = (distance + 1) * (1 - low) + high + 2 * high**2 / (1 + low)
    return far * inner / (1 + low) ** 2
