"""What came out: an answer that may be shown, with what it cost and how far it can be off."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np

from hubbub.accounting import PrivacyLoss
from hubbub.errors import InvalidInput
from hubbub.numbers import Number
from hubbub.unit import Unit

__all__ = ["Release", "TableSource"]


class TableSource(Protocol):
    """What a release knows of the mechanism that made it."""

    @property
    def error_is(self) -> str:
        """What its error means: a "spread" around the exact answer, a "regret", or "none"."""

    def error(self, confidence: Number = ..., *, cells: int = ...) -> float:
        """How far an answer is off at most, with this confidence."""

    def to_json(self) -> str:
        """The mechanism, as it is stored."""


@dataclass(frozen=True, eq=False)
class Release:
    """An answer, its loss and its error.

    >>> from hubbub.mechanisms import Laplace
    >>> release = Laplace.of(sensitivity=1, epsilon=0.5).release(42)
    >>> str(release.loss)
    'ε = 0.5'
    >>> doubled = release.map(lambda answer: 2 * answer)  # post-processing is free
    >>> doubled.loss == release.loss
    True

    Guarantee: whatever is computed from `value` alone costs nobody more than `loss`.
    Proof: docs/proofs/post-processing.md
    """

    value: Any
    loss: PrivacyLoss
    source: TableSource
    unit: Unit
    asserted: bool
    """Whether the sensitivity is only a person's word."""
    model: str = "central"
    """Who adds the noise: the holder of the data, or each respondent ("local")."""
    cells: int = 1
    """How many numbers it holds, or candidates it chose among: public, as every shape is."""
    mapped: bool = field(default=False, kw_only=True)
    """Whether it has been post-processed, so that the mechanism's error is no longer its own."""

    def map(self, function: Callable[[Any], Any]) -> "Release":
        """Post-processing: any function of the answer keeps the guarantee."""
        return replace(self, value=function(self.value), mapped=True)

    def error(self, confidence: Number = 0.95, *, together: bool = False) -> float:
        """How far each cell is off at most, or with `together` all at once; of a choice, its regret.

        Of doubles, their own last rounding included.

        Guarantee: |answer − exact| is within it with at least this confidence.
        Proof: docs/proofs/accuracy.md
        """
        if self.mapped or self.source.error_is == "none":
            raise InvalidInput(
                "this release has no error of its own",
                why="it was post-processed, or its mechanism promises none",
                fix="ask the release it was made from, and map the ends of its interval",
            )
        everything = together or self.source.error_is == "regret"
        width = self.source.error(confidence, cells=self.cells if everything else 1)
        if self.source.error_is == "spread" and _is_double(self.value):
            # Half a unit in the last place of the largest, and the sum of the two rounded up.
            largest = float(np.max(np.abs(self.value), initial=0.0))
            width = math.nextafter(width + math.ulp(largest) / 2, math.inf)
        return width

    def interval(self, confidence: Number = 0.95, *, together: bool = False) -> tuple[Any, Any]:
        """Where the exact answer lies: (low, high), cell by cell or all at once; doubles round outward."""
        if self.source.error_is == "regret":
            raise InvalidInput(
                "a choice has no interval",
                why="its error is a regret: how far the chosen score may lie below the best",
                fix="use error()",
            )
        width = self.error(confidence, together=together)
        if not _is_double(self.value):
            return self.value - width, self.value + width
        with np.errstate(over="ignore"):
            low = np.nextafter(np.subtract(self.value, width), -np.inf)
            high = np.nextafter(np.add(self.value, width), np.inf)
        return (low, high) if isinstance(self.value, np.ndarray) else (float(low), float(high))

    # A table of answers can be had in the forms that people work with.

    def label(self) -> dict[str, Any]:
        """What was protected, how, and at what cost."""
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
            "sensitivity": "asserted by a person" if self.asserted else "derived by a rule",
        }

    def to_pandas(self) -> Any:
        """The table as a pandas data frame."""
        return self._table().to_pandas()

    def to_polars(self) -> Any:
        """The table as a Polars data frame."""
        return self._table().to_polars()

    def to_arrow(self) -> Any:
        """The table as a pyarrow table."""
        return self._table().to_arrow()

    def to_json(self) -> str:
        """The table with its label; `Answers.from_json` reads it back."""
        text: str = self._table().to_json()
        return text

    def svg(self, column: str | None = None) -> str:
        """A picture of one column with its error bars."""
        picture: str = self._table().svg(column)
        return picture

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """Arrow's own door to the table."""
        return self._table().__arrow_c_stream__(requested_schema)

    def _repr_html_(self) -> str | None:
        shown = getattr(self.value, "_repr_html_", None)
        return None if shown is None else shown()

    def _table(self) -> Any:
        if not hasattr(self.value, "to_pandas"):
            raise InvalidInput(
                "the answer is not a table", why="only queries release tables", fix="use release.value itself"
            )
        return self.value

    def __repr__(self) -> str:
        word = "; sensitivity asserted" if self.asserted else ""
        how = ", post-processed" if self.mapped else ""
        return f"Release({self.value!r}{how}, {self.loss}, of {self.unit}, {self.model} model{word})"


def _is_double(value: Any) -> bool:
    return isinstance(value, float) or (isinstance(value, np.ndarray) and value.dtype.kind == "f")
