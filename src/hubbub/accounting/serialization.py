"""Losses as they are stored: facts, not epsilons, in a form that is read the same for ever.

A part is stored under a name with a version, with all its fields as exact numbers; a loss as its ways, each a
list of parts and how many times each of them counts. Reading one makes it anew, so that its ε at any δ
can be computed again, also by a later and sharper version.
"""

import dataclasses
import json
import re
from fractions import Fraction
from functools import lru_cache
from typing import Any

from hubbub.accounting.events import (
    BoundedRange,
    DiscreteGaussian,
    DiscreteLaplace,
    Event,
    Finite,
    Gaussian,
    Laplace,
    Pure,
    RandomizedResponse,
    Subsampled,
    SubsampledGroup,
)
from hubbub.accounting.filters import ORDERS, ComposableCost
from hubbub.accounting.privacy_loss import PrivacyLoss
from hubbub.accounting.renyi import RenyiCurve, ZeroConcentrated
from hubbub.accounting.shuffling import ShuffledReports
from hubbub.errors import InvalidInput

__all__ = ["cost_from_json", "loss_from_json", "loss_to_json"]

_KIND = "loss/1"
_PARTS: dict[str, type[Event]] = {
    "pure/1": Pure,
    "gaussian/1": Gaussian,
    "laplace/1": Laplace,
    "discrete-laplace/1": DiscreteLaplace,
    "discrete-gaussian/1": DiscreteGaussian,
    "response/1": RandomizedResponse,
    "bounded-range/1": BoundedRange,
    "finite/1": Finite,
    "sampled/1": Subsampled,
    "sampled-group/1": SubsampledGroup,
    "zcdp/1": ZeroConcentrated,
    "renyi/1": RenyiCurve,
    "shuffled/1": ShuffledReports,
}
_NAMES = {part: name for name, part in _PARTS.items()}
_RATIONAL = re.compile(r"-?[0-9]{1,4000}(/0*[1-9][0-9]{0,3999})?")
_MOST_TIMES = 10**18


def loss_to_json(loss: PrivacyLoss) -> str:
    """The loss as it is stored.

    >>> loss_to_json(PrivacyLoss.pure(Fraction(1, 10)) * 3)
    '{"kind": "loss/1", "ways": [[[3, {"delta": "0", "epsilon": "1/10", "part": "pure/1", "sharp": true}]]]}'
    """
    if type(loss) is not PrivacyLoss:
        raise _foreign()
    ways = [[[times, _plain(part)] for part, times in way] for way in loss.alternatives]
    return json.dumps({"kind": _KIND, "ways": ways}, sort_keys=True)


def loss_from_json(text: str) -> PrivacyLoss:
    """Read a stored loss; anything but just what was written is refused.

    >>> loss_from_json(loss_to_json(PrivacyLoss.gaussian(1))) == PrivacyLoss.gaussian(1)
    True
    """
    try:
        stored = json.loads(text)
        if set(stored) != {"kind", "ways"} or stored["kind"] != _KIND or not stored["ways"]:
            raise _unreadable()
        ways = tuple(tuple(_counted(*pair) for pair in way) for way in stored["ways"])
        return PrivacyLoss(ways)
    except InvalidInput:
        raise
    except (TypeError, ValueError, KeyError, AttributeError, RecursionError):
        raise _unreadable() from None


@lru_cache(maxsize=4096)
def cost_from_json(text: str, orders: tuple[Fraction, ...] = ORDERS) -> ComposableCost:
    """What a stored loss costs by what this version knows; the same few are asked for again and again.

    Accounts charge this and never `loss.cost()`: what is charged follows from the facts that are recorded.
    """
    return loss_from_json(text).cost(orders)


def _plain(value: Any) -> Any:
    if isinstance(value, Event):
        if type(value) not in _NAMES:
            raise _foreign()
        fields = {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}  # type: ignore[arg-type]
        return {"part": _NAMES[type(value)], **fields}
    if isinstance(value, Fraction):
        return str(value)
    return [_plain(item) for item in value] if isinstance(value, tuple) else value


def _made(stored: Any) -> Any:
    if isinstance(stored, str):
        if not _RATIONAL.fullmatch(stored):
            raise _unreadable()
        return Fraction(stored)
    if isinstance(stored, list):
        return tuple(_made(item) for item in stored)
    return _part(stored) if isinstance(stored, dict) else stored


def _part(stored: Any) -> Event:
    kind = _PARTS[stored["part"]]
    names = {field.name for field in dataclasses.fields(kind)}  # type: ignore[arg-type]
    if set(stored) - {"part"} != names:
        raise _unreadable()
    return kind(**{name: _made(stored[name]) for name in names})


def _counted(times: Any, stored: Any) -> tuple[Event, int]:
    if isinstance(times, bool) or not isinstance(times, int) or not 0 < times <= _MOST_TIMES:
        raise _unreadable()
    return _part(stored), times


def _unreadable() -> InvalidInput:
    return InvalidInput(
        "the stored loss cannot be read",
        why="it is not what was written, or by a later version",
        fix="use the text as it was written, or a newer version",
    )


def _foreign() -> InvalidInput:
    return InvalidInput(
        "the loss is of a class that hubbub does not know",
        why="what it costs would be that class's word",
        fix="pass a Loss, made of what Loss itself offers",
    )
