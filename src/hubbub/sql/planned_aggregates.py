"""The aggregates of a plan: what the engine computes for each, how it is released and how it is estimated."""

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from hubbub.numbers import Number
from hubbub.sensitivity import Bounded
from hubbub.sql.aggregate import AdditiveAggregate, Affine, Estimator, estimate_ratio
from hubbub.sql.moments import Estimate, Noise
from hubbub.sql.quantile_aggregates import SelectedQuantiles
from hubbub.sql.quantile_selection import CellCounts, QuantileSelection
from hubbub.sql.query import BoundedAggregate
from hubbub.unit import Unit

__all__ = ["NoisyAggregate", "PlannedAggregate", "PlannedQuantiles"]

Integers = NDArray[np.int64]

_EXPONENTIAL = "exponential mechanism"


@dataclass(frozen=True)
class NoisyAggregate:
    """A vector of integers for each group, and the noise that is added to it."""

    aggregate: AdditiveAggregate
    bounded: BoundedAggregate
    noise: Noise

    @property
    def vector_size(self) -> int:
        """Number of integers that are released for each group."""
        return self.aggregate.vector_size(self.bounded)

    @property
    def mechanisms(self) -> tuple[str, ...]:
        """The names of its mechanisms."""
        return (type(self.noise).__name__,)

    def describe(self) -> list[str]:
        """The way in which it is released, one line each."""
        why = [f"chosen because: {self.aggregate.reason}"] if self.aggregate.reason else []
        return [f"noise: {self.noise}", *why]

    def release(self, table: Integers, unit: Unit, *, is_exact: bool = False) -> Integers:
        """The released integers of each group, from the engine's table of (groups × bins, columns)."""
        vector = self.aggregate.to_vector(self.bounded, table)
        value = Bounded(vector, self.bounded.sensitivity, unit, self.bounded.rule)
        noisy: Integers = self.noise.release(value).value if vector.size and not is_exact else vector
        return noisy.reshape(len(table) // self.bounded.bins, self.vector_size)

    def make_estimator(self, released: Integers) -> Estimator:
        """Estimates its aggregate calls from what was released."""
        return self.aggregate.make_estimator(released, self.bounded, self.noise)

    def estimate_ratio(
        self, released: Integers, forms: tuple[Affine, Affine], confidence: Number
    ) -> Estimate | None:
        """The ratio of two affine forms of its aggregate calls; None if they are no plain sums."""
        return estimate_ratio(self.aggregate, self.bounded, released, self.noise, forms, confidence)

    def may_be_clamped(self, released: Integers, confidence: Number) -> NDArray[np.bool_]:
        """Groups of which an integer may have been clamped before the noise."""
        return self.aggregate.may_be_clamped(released, self.noise, confidence)

    def count_present(self, index: int, released: Integers) -> Estimate | None:
        """The noisy count of what an aggregate call is taken over, if it is NULL without any."""
        return self.aggregate.count_present(index, released, self.bounded, self.noise)

    def half_width(self, index: int, confidence: Fraction) -> float | None:
        """Half the width of the interval of an aggregate call; None if it depends on the rows."""
        return self.aggregate.half_width(index, self.bounded, self.noise, confidence)

    def describe_error(self, index: int, confidence: Fraction) -> str:
        """The expected error of an aggregate call, in words."""
        return self.aggregate.describe_error(index, self.bounded, self.noise, confidence)


@dataclass(frozen=True)
class PlannedQuantiles:
    """Quantiles that are selected by the exponential mechanism, in each group."""

    aggregate: SelectedQuantiles
    bounded: BoundedAggregate
    selection: QuantileSelection

    @property
    def vector_size(self) -> int:
        """Number of integers that are released for each group."""
        return len(self.selection.targets) + self.selection.bins

    @property
    def mechanisms(self) -> tuple[str, ...]:
        """The names of its mechanisms: of the selection, and of the noise that makes intervals."""
        return (_EXPONENTIAL,) if self.selection.noise is None else (_EXPONENTIAL, "Laplace")

    def describe(self) -> list[str]:
        """How it is released and why so, a line each."""
        return [
            f"selection: {self.selection} (docs/proofs/quantiles.md)",
            f"chosen because: {self.aggregate.reason}",
        ]

    def release(self, table: Integers, unit: Unit, *, is_exact: bool = False) -> Integers:
        """The released integers of each group, from the engine's table of (groups × bins, columns)."""
        groups = len(table) // self.bounded.bins
        where = np.flatnonzero(table[:, 0])
        group, cell = np.divmod(where, self.bounded.bins)
        return self.release_counts(CellCounts(groups, group, cell, table[where, 0]), unit, is_exact=is_exact)

    def release_counts(self, counts: CellCounts, unit: Unit, *, is_exact: bool = False) -> Integers:
        """The released integers of each group, from the cells that have rows."""
        return self.aggregate.release(self.bounded, self.selection, counts, unit, is_exact=is_exact)

    def make_estimator(self, released: Integers) -> Estimator:
        """Estimates its aggregate calls from what was released."""
        return self.aggregate.make_estimator(released, self.selection)

    def estimate_ratio(self, released: Integers, forms: tuple[Affine, Affine], confidence: Number) -> None:
        """None: quantiles are no sums."""
        del released, forms, confidence

    def may_be_clamped(self, released: Integers, confidence: Number) -> NDArray[np.bool_]:
        """Groups of which a count may have been clamped before the noise."""
        return self.aggregate.may_be_clamped(released, self.selection, confidence)

    def count_present(self, index: int, released: Integers) -> None:
        """None: how many rows a group has is not released."""
        del index, released

    def half_width(self, index: int, confidence: Fraction) -> None:
        """None: it depends on the rows."""
        del index, confidence

    def describe_error(self, index: int, confidence: Fraction) -> str:
        """The expected error of an aggregate call, in words."""
        return self.aggregate.describe_error(index, self.bounded, self.selection, confidence)


PlannedAggregate = NoisyAggregate | PlannedQuantiles
