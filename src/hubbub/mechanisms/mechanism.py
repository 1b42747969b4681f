"""What every mechanism is: frozen data with a loss, a release and an error, stored as JSON.

A stored mechanism never changes its meaning: `kind` names the class and the version of its fields,
and reading one checks it as if it were made anew.
"""

import dataclasses
import json
import re
from abc import ABC, abstractmethod
from fractions import Fraction
from typing import Any, ClassVar

from hubbub.bounded import Bounded, Sensitivity
from hubbub.errors import InvalidInput, Refused
from hubbub.loss import Loss
from hubbub.rational import Number
from hubbub.release import Release

__all__ = ["Mechanism", "check_sensitivity", "from_json", "positive_sensitivity"]

_RATIONAL = re.compile(r"-?[0-9]{1,4000}(/0*[1-9][0-9]{0,3999})?")

_kinds: dict[str, type["Mechanism"]] = {}


class Mechanism(ABC):
    """Abstract: the noise or the choice, as frozen data."""

    kind: ClassVar[str]
    """The name under which it is stored, with the version of its fields: "laplace/1"."""

    error_is: ClassVar[str]
    """What `error` means: a "spread" around the exact answer, a "regret", or "none"."""

    def __init_subclass__(cls) -> None:
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
    def loss(self) -> Loss:
        """What one release costs."""

    @abstractmethod
    def error(self, confidence: Number = 0.95, *, cells: int = 1) -> float:
        """How far `cells` answers are off at most, all at once, with this confidence."""

    @abstractmethod
    def release(self, value: Any) -> Release:
        """Release a Bounded value, or one whose sensitivity the caller asserts by passing it bare.

        A bare value is taken to be of one row, added or removed; to assert it of another unit, pass
        `Bounded.asserted(value, sensitivity, unit)`.
        """

    def to_json(self) -> str:
        """The mechanism as it is stored: exact numbers, in a form that stays readable.

        >>> from hubbub.mechanisms import Laplace
        >>> from_json(Laplace.of(sensitivity=1, epsilon=2).to_json()) == Laplace.of(sensitivity=1, epsilon=2)
        True
        """
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
        return Bounded.asserted(value, declared)
    if getattr(value.sensitivity, norm) > getattr(declared, norm):
        raise Refused(
            f"the value's sensitivity ({value.sensitivity}) is above the mechanism's ({declared})",
            why="the noise would be too small for one unit",
            fix="make the mechanism from the value's own sensitivity",
        )
    return value


def positive_sensitivity(sensitivity: Sensitivity) -> None:
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
