"""Privacy losses as they are stored: events, not epsilons, in a form that is read the same for ever.

An event is stored under a kind with a version, with all its fields as exact numbers; a loss as its
alternatives, each a list of events with their counts. Reading one makes it anew, so that its ε at any δ can
be computed again, also by a later and sharper version.
"""

import json
from functools import lru_cache
from typing import Any

from hubbub.accounting.codec import RecordCodec, canonical_json
from hubbub.accounting.discrete_events import (
    DiscreteGaussian,
    DiscreteLaplace,
    FiniteDistributions,
    RandomizedResponse,
)
from hubbub.accounting.events import (
    BoundedRange,
    EpsilonDelta,
    Event,
    Gaussian,
    Laplace,
    Subsampled,
    SubsampledGaussianGroup,
)
from hubbub.accounting.privacy_loss import PrivacyLoss
from hubbub.accounting.renyi import RenyiCurve, ZeroConcentrated
from hubbub.accounting.shuffling import ShuffledReports
from hubbub.errors import InvalidInput

__all__ = ["decode_loss", "encode_loss", "loss_from_json", "loss_to_json", "stored_loss"]

_KIND = "privacy-loss/1"
EVENT_KINDS: dict[str, type[Event]] = {
    "epsilon-delta/1": EpsilonDelta,
    "gaussian/1": Gaussian,
    "laplace/1": Laplace,
    "discrete-laplace/1": DiscreteLaplace,
    "discrete-gaussian/1": DiscreteGaussian,
    "randomized-response/1": RandomizedResponse,
    "bounded-range/1": BoundedRange,
    "finite-distributions/1": FiniteDistributions,
    "subsampled/1": Subsampled,
    "subsampled-gaussian-group/1": SubsampledGaussianGroup,
    "zero-concentrated/1": ZeroConcentrated,
    "renyi-curve/1": RenyiCurve,
    "shuffled-reports/1": ShuffledReports,
}
_EVENTS: RecordCodec[Event] = RecordCodec()
for _kind, _event in EVENT_KINDS.items():
    _EVENTS.register(_kind, _event)
_MAX_COUNT = 10**18


def loss_to_json(loss: PrivacyLoss) -> str:
    """The text of a loss, as it is stored.

    >>> loss_to_json(PrivacyLoss.gaussian(0.5) * 3)
    '{"alternatives":[[{"count":1,"event":{"kind":"gaussian/1","mu_squared":"3/4"}}]],"kind":"privacy-loss/1"}'
    """
    return canonical_json(encode_loss(loss))


def loss_from_json(text: str) -> PrivacyLoss:
    """Read a stored loss; anything that is not exactly what was written is refused.

    >>> loss_from_json(loss_to_json(PrivacyLoss.gaussian(1))) == PrivacyLoss.gaussian(1)
    True
    """
    try:
        stored = json.loads(text)
    except (TypeError, ValueError, RecursionError):
        raise _unreadable() from None
    return decode_loss(stored)


def encode_loss(loss: PrivacyLoss) -> dict[str, Any]:
    """The JSON value of a loss, as part of a stored entry."""
    if type(loss) is not PrivacyLoss:
        raise _foreign()
    alternatives = [
        [{"count": count, "event": _encode_event(event)} for event, count in alternative]
        for alternative in loss.alternatives
    ]
    return {"kind": _KIND, "alternatives": alternatives}


def decode_loss(stored: Any) -> PrivacyLoss:
    """The loss of a stored JSON value; anything that is not exactly what was written is refused."""
    try:
        if set(stored) != {"kind", "alternatives"} or stored["kind"] != _KIND or not stored["alternatives"]:
            raise _unreadable()
        return PrivacyLoss(
            tuple(tuple(_decode_counted(item) for item in events) for events in stored["alternatives"])
        )
    except InvalidInput:
        raise
    except (TypeError, ValueError, KeyError, AttributeError, RecursionError):
        raise _unreadable() from None


@lru_cache(maxsize=4096)
def stored_loss(text: str) -> PrivacyLoss:
    """A stored loss, read once; the same few are asked for often.

    Accounts charge this and never the loss they are given: what is charged follows from the events that are
    recorded.
    """
    return loss_from_json(text)


def _encode_event(event: Event) -> dict[str, Any]:
    try:
        return _EVENTS.encode(event)
    except KeyError:
        raise _foreign() from None


def _decode_counted(stored: Any) -> tuple[Event, int]:
    if set(stored) != {"count", "event"}:
        raise _unreadable()
    count = stored["count"]
    if isinstance(count, bool) or not isinstance(count, int) or not 0 < count <= _MAX_COUNT:
        raise _unreadable()
    return _EVENTS.decode(stored["event"]), count


def _unreadable() -> InvalidInput:
    return InvalidInput(
        "the stored loss cannot be read",
        why="it is not what was written, or was written by a later version",
        fix="use the text as it was written, or a newer version of hubbub",
    )


def _foreign() -> InvalidInput:
    return InvalidInput(
        "the loss is of a class that hubbub does not know",
        why="its cost would be whatever that class asserts",
        fix="pass a PrivacyLoss, made by the methods of PrivacyLoss itself",
    )
