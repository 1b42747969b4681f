"""Releases: answers that may be published, with their privacy loss and their error."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Generic, Protocol

import numpy as np

from hubbub.accounting import PrivacyLoss
from hubbub.errors import InvalidInput
from hubbub.numbers import Number
from hubbub.unit import Unit

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    # With a default a bare `Release` means Release[Any]; at run time Python 3.11 has no defaults.
    ValueT_co = TypeVar("ValueT_co", covariant=True, default=Any)
    MappedT = TypeVar("MappedT")
else:
    from typing import TypeVar

    ValueT_co = TypeVar("ValueT_co", covariant=True)
    MappedT = TypeVar("MappedT")

__all__ = ["Release", "ReleaseSource"]

_MAX_SHOWN = 20
"""A longer vector is described in `repr`, not printed."""


class ReleaseSource(Protocol):
    """The part of a mechanism, a plan or a trainer that its release needs."""

    @property
    def error_kind(self) -> str:
        """The meaning of the error: "additive" (distance to the exact answer), "regret" or "none"."""

    def error(self, confidence: Number = ..., *, coordinates: int = ...) -> float:
        """Return a bound on the error that holds with this confidence."""

    def to_json(self) -> str:
        """Return the source as it is stored."""


@dataclass(frozen=True, eq=False, repr=False)
class Release(Generic[ValueT_co]):
    """An answer with its privacy loss and its error.

    >>> from hubbub.mechanisms import Laplace
    >>> release = Laplace.of(sensitivity=1, epsilon=0.5).release(42)
    >>> str(release.loss)
    'ε = 0.5'
    >>> doubled = release.map(lambda answer: 2 * answer)  # post-processing is free
    >>> doubled.loss == release.loss
    True

    Guarantee: anything computed from `value` alone costs nobody more than `loss`.
    Proof: docs/proofs/post-processing.md
    """

    value: ValueT_co
    loss: PrivacyLoss
    source: ReleaseSource
    """The mechanism, plan or trainer that made it."""
    unit: Unit
    user_asserted: bool
    """True if the sensitivity rests on the user's assertion and not on a rule."""
    model: str = "central"
    """The value "central" if the data holder adds the noise, "local" if each respondent does."""
    coordinates: int = 1
    """The number of coordinates, or of candidates selected from. It is public, as every shape is."""
    post_processed: bool = field(default=False, kw_only=True)
    """True if it was post-processed: then the mechanism's error is no longer its error."""

    def map(self, function: Callable[[ValueT_co], MappedT]) -> "Release[MappedT]":
        """Post-process the answer: any function of it keeps the guarantee."""
        mapped: Release[Any] = replace(self, value=function(self.value), post_processed=True)  # type: ignore[arg-type]
        return mapped

    def error(self, confidence: Number = 0.95, *, simultaneous: bool = False) -> float:
        """Return a bound on the error of each coordinate; of a selection, on its regret.

        For doubles it includes their last rounding.

        Args:
            confidence: the probability with which the bound holds, at least.
            simultaneous: if true, the bound holds for all coordinates at once.

        Guarantee: |answer − exact| is within it with at least this confidence.
        Proof: docs/proofs/accuracy.md
        """
        if self.post_processed or self.source.error_kind == "none":
            raise InvalidInput(
                "this release has no error of its own",
                why="it was post-processed, or its mechanism has no error bound",
                fix="ask the release it was made from, and map the ends of its interval",
            )
        everything = simultaneous or self.source.error_kind == "regret"
        width = self.source.error(confidence, coordinates=self.coordinates if everything else 1)
        if self.source.error_kind == "additive" and _is_double(self.value):
            # Half a unit in the last place of the largest coordinate; the sum is rounded up.
            largest = float(np.max(np.abs(self.value), initial=0.0))  # type: ignore[call-overload]
            width = math.nextafter(width + math.ulp(largest) / 2, math.inf)
        return width

    def interval(self, confidence: Number = 0.95, *, simultaneous: bool = False) -> tuple[Any, Any]:
        """Return (low, high), a confidence interval of the exact answer for each coordinate.

        Doubles are rounded outward.

        Args:
            confidence: the probability with which the interval holds, at least.
            simultaneous: if true, all intervals hold at once.
        """
        if self.source.error_kind == "regret":
            raise InvalidInput(
                "a selection has no interval",
                why="its error is a regret: how far the selected score may lie below the best",
                fix="use error()",
            )
        width = self.error(confidence, simultaneous=simultaneous)
        value: Any = self.value
        if not _is_double(value):
            return value - width, value + width
        with np.errstate(over="ignore"):
            low = np.nextafter(np.subtract(value, width), -np.inf)
            high = np.nextafter(np.add(value, width), np.inf)
        return (low, high) if isinstance(value, np.ndarray) else (float(low), float(high))

    def label(self) -> dict[str, Any]:
        """Return the facts of the guarantee: unit, mechanism, loss, model and origin of the sensitivity."""
        facts = getattr(self.value, "facts", None)
        return {
            **(
                dict(facts)
                if facts is not None
                else {"unit": str(self.unit), "mechanism": self.source.to_json()}
            ),
            **({} if getattr(self.source, "is_charged", True) else {"account": "not charged to any account"}),
            "loss": str(self.loss),
            "model": self.model,
            "sensitivity": "user-asserted" if self.user_asserted else "derived by a rule",
        }

    # Conversions of a released table.

    def to_pandas(self) -> Any:
        """Return the table as a pandas data frame."""
        return self._table().to_pandas()

    def to_polars(self) -> Any:
        """Return the table as a Polars data frame."""
        return self._table().to_polars()

    def to_arrow(self) -> Any:
        """Return the table as a pyarrow table."""
        return self._table().to_arrow()

    def to_json(self) -> str:
        """Return the table with its label as JSON; `Result.from_json` reads it back."""
        text: str = self._table().to_json()
        return text

    def svg(self, column: str | None = None) -> str:
        """Return a chart of one column with its error bars."""
        picture: str = self._table().svg(column)
        return picture

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """Export the table through Arrow's C stream interface."""
        return self._table().__arrow_c_stream__(requested_schema)

    def _table(self) -> Any:
        if not hasattr(self.value, "to_pandas"):
            raise InvalidInput(
                "the answer is not a table", why="only queries release tables", fix="use release.value"
            )
        return self.value

    def __repr__(self) -> str:
        origin = "; user-asserted sensitivity" if self.user_asserted else ""
        history = ", post-processed" if self.post_processed else ""
        guarantee = f"{self.loss}, of {self.unit}, {self.model} model{origin}"
        return f"Release({_describe(self.value)}{history}, {guarantee})"

    def _repr_html_(self) -> str | None:
        render = getattr(self.value, "_repr_html_", None)
        return None if render is None else render()


def _is_double(value: Any) -> bool:
    return isinstance(value, float) or (isinstance(value, np.ndarray) and value.dtype.kind == "f")


def _describe(value: Any) -> str:
    """Return a short text: long vectors and the weights of a model are counted, not printed."""
    is_long = isinstance(value, (list, tuple, np.ndarray)) and np.size(value) > _MAX_SHOWN
    if is_long or isinstance(value, Mapping):
        return f"{type(value).__name__} with {len(value)} entries"
    return repr(value)
