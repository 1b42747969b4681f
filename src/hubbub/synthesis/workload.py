"""Workloads of tables, and the noise that answers them best: residual planning in closed form.

The tables that people will ask for are sums of independent residuals. Their total variance is a weighted sum
of the residuals' variances σ², the privacy cost a weighted sum of 1/σ²: the best split is closed.

Proof: docs/proofs/synopsis.md, "The plan"
"""

import itertools
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from hubbub.errors import InvalidInput, Unsupported
from hubbub.numbers import Number, parse_positive
from hubbub.synthesis.domain import Domain
from hubbub.synthesis.release_budget import floor_sqrt
from hubbub.synthesis.residuals import ResidualNoise, residual_cost
from hubbub.unit import Unit

__all__ = [
    "MAX_TABLE_CELLS",
    "MAX_WHOLE_COLUMNS",
    "Floats",
    "Names",
    "NoisePlan",
    "Objective",
    "Workload",
    "check_objective",
    "plan_noise",
    "round_shares",
]

Names = tuple[str, ...]
Floats = NDArray[np.float64]
Objective = Literal["tables", "cells", "worst"]
"""What is least: the mean over tables of their variance, the mean over all cells, or the worst table's."""
OBJECTIVES = ("tables", "cells", "worst")
MAX_TABLE_CELLS = 1 << 22
"""The maximum number of cells of one table."""
_MAX_CELLS = 1 << 24
_FEW_COLUMNS, _FEW_CELLS = 6, 20_000
_MAX_TABLES = 1 << 16
_MAX_COLUMNS, _MAX_PARTS = 12, 1 << 20
MAX_WHOLE_COLUMNS = 6
"""The maximum number of columns of a table that is measured whole, with Laplace noise."""
_SHARE_BITS = 48
_STEPS, _CLOSE = 200, 1e-3


@dataclass(frozen=True)
class Workload:
    """The tables that will be asked for, with their weights; columns in the order of the domain.

    >>> from hubbub.synthesis.domain import Column
    >>> domain = Domain(tuple(Column.of_categories(name, "xy") for name in "abc"))
    >>> Workload.all_up_to(domain, 2).tables
    (('a',), ('b',), ('c',), ('a', 'b'), ('a', 'c'), ('b', 'c'))
    """

    domain: Domain
    weights: Mapping[Names, float]

    @classmethod
    def of(
        cls, domain: Domain, tables: Iterable[Iterable[str]] | Mapping[Iterable[str], Number]
    ) -> "Workload":
        """A workload of named tables; a mapping gives their weights.

        Args:
            domain: the columns.
            tables: lists of columns, such as [("age", "sex"), ("region",)]; a text is one column.
        """
        if isinstance(tables, str) or not isinstance(tables, Iterable):
            raise _no_workload()
        listed = tables.items() if isinstance(tables, Mapping) else [(each, 1) for each in tables]
        weights: dict[Names, float] = {}
        for names, weight in listed:
            own = domain.ordered([names] if isinstance(names, str) else names)
            weights[own] = weights.get(own, 0.0) + float(parse_positive(weight, "the weight of a table"))
        return cls(domain, weights)

    @classmethod
    def default(cls, domain: Domain) -> "Workload":
        """All tables of at most three columns if there are few cells in all, otherwise of at most two."""
        sets = (each for size in (1, 2, 3) for each in itertools.combinations(domain.names, size))
        is_small = len(domain.names) <= _FEW_COLUMNS and sum(map(domain.cells, sets)) <= _FEW_CELLS
        return cls.all_up_to(domain, 3 if is_small else 2)

    @classmethod
    def all_up_to(cls, domain: Domain, ways: Any) -> "Workload":
        """All tables of at most `ways` columns."""
        if not isinstance(ways, int) or isinstance(ways, bool) or not 1 <= ways <= 6:
            raise _no_workload()
        names = domain.names
        sets = (each for size in range(1, ways + 1) for each in itertools.combinations(names, size))
        return cls(domain, dict.fromkeys(itertools.islice(sets, _MAX_TABLES + 1), 1.0))

    def __post_init__(self) -> None:
        if not self.weights:
            raise InvalidInput(
                "the workload has no table", why="nothing would be measured", fix="name one table at least"
            )
        cells = [self.domain.cells(names) for names in self.tables]
        if len(cells) > _MAX_TABLES or max(cells) > MAX_TABLE_CELLS or sum(cells) > _MAX_CELLS:
            raise Unsupported(
                f"the workload has {len(cells)} tables or more, the largest of {max(cells)} cells",
                why=f"the limits are {_MAX_TABLES} tables, {MAX_TABLE_CELLS} cells each, {_MAX_CELLS} in all",
                fix="name fewer tables, or declare fewer categories and bins",
            )
        columns = [sum(self.domain.column(name).size > 1 for name in names) for names in self.tables]
        if max(columns) > _MAX_COLUMNS or sum(1 << count for count in columns) > _MAX_PARTS:
            raise Unsupported(
                f"the workload has a table of {max(columns)} columns, or many of several",
                why=f"each set of columns of a table is a part of its own: at most {_MAX_COLUMNS} columns",
                fix="name smaller tables, or fewer",
            )

    @property
    def tables(self) -> tuple[Names, ...]:
        """The tables."""
        return tuple(self.weights)

    @cached_property
    def residuals(self) -> tuple[Names, ...]:
        """All subsets of the tables' columns with at least two cells each, the smaller ones first."""
        subsets: dict[Names, None] = {}
        for names in self.tables:
            own = [name for name in names if self.domain.column(name).size > 1]
            for size in range(len(own) + 1):
                for subset in itertools.combinations(own, size):
                    subsets[subset] = None
        return tuple(sorted(subsets, key=len))


@dataclass(frozen=True)
class NoisePlan:
    """The noise of every residual of a workload, and the error that it gives to every table."""

    workload: Workload
    objective: Objective
    unit: Unit
    scale: int
    max_weight: int
    mu_squared: Fraction
    """μ² of all measurements together."""
    shares: Mapping[Names, Fraction]
    """The share of μ² of each residual; their sum is at most 1."""

    law: ClassVar[str] = "Gaussian"

    @property
    def figure(self) -> Fraction:
        """What all measurements together cost: μ²."""
        return self.mu_squared

    def noise(self, names: Names) -> ResidualNoise:
        """The noise of one residual, exactly."""
        mu = floor_sqrt(self.mu_squared * self.shares[names])
        shape = self.workload.domain.shape(names)
        return ResidualNoise(shape, self.unit, self.scale, self.max_weight, mu)

    @cached_property
    def _variances(self) -> dict[Names, float]:
        """σ² of each residual in rows, to about a percent: the exact one is known with the noise."""
        domain, total = self.workload.domain, float(self.mu_squared)
        return {
            names: self.max_weight**2
            * float(residual_cost(domain.shape(names), self.unit.neighbours))
            / (float(share) * total)
            for names, share in self.shares.items()
        }

    def standard_deviation(self, names: Names) -> float:
        """The standard deviation of each cell of a table, in rows."""
        domain = self.workload.domain
        variance = 0.0
        own = [name for name in names if domain.column(name).size > 1]
        for size in range(len(own) + 1):
            for subset in itertools.combinations(own, size):
                if subset not in self._variances:
                    raise InvalidInput(
                        "this table is not measured",
                        why="the workload does not contain it",
                        fix="add it to the workload",
                    )
                variance += self._variances[subset] * math.prod(
                    (1 - 1 / k if name in subset else 1 / k**2)
                    for name in own
                    if (k := domain.column(name).size)
                )
        return math.sqrt(variance)

    @cached_property
    def errors(self) -> dict[Names, float]:
        """The standard deviation of each cell, by table."""
        return {names: self.standard_deviation(names) for names in self.workload.tables}

    @property
    def root_mean_square(self) -> float:
        """The root mean square error over all cells of all tables."""
        cells = [self.workload.domain.cells(names) for names in self.errors]
        total = sum(count * sd**2 for count, sd in zip(cells, self.errors.values(), strict=True))
        return math.sqrt(total / sum(cells))


def plan_noise(
    workload: Workload,
    *,
    mu_squared: Fraction,
    unit: Unit,
    scale: int = 1,
    max_weight: int = 1,
    objective: Objective = "tables",
) -> NoisePlan:
    """The best noise for a workload, in closed form; for the worst table by a short iteration.

    Args:
        workload: the tables.
        mu_squared: μ² of all measurements together.
        unit: who is protected.
        scale: what a row of full weight counts.
        max_weight: the maximum number of rows per unit.
        objective: "tables" (each table counts the same), "cells" (each cell does), or "worst".

    Guarantee: the measurements together are a Gaussian mechanism of at most μ².
    Proof: docs/proofs/synopsis.md, "The plan"
    """
    check_objective(objective)
    domain, residuals = workload.domain, workload.residuals
    place = {names: index for index, names in enumerate(residuals)}
    # By pairs of a table and one of its residuals: the variance of the table's cells per σ² of the residual.
    rows, columns, factors = [], [], []
    for row, names in enumerate(workload.tables):
        own = [(name, domain.column(name).size) for name in names if domain.column(name).size > 1]
        for size in range(len(own) + 1):
            for subset in itertools.combinations(own, size):
                chosen = {name for name, _ in subset}
                rows.append(row)
                columns.append(place[tuple(name for name, _ in subset)])
                factors.append(math.prod(1 - 1 / k if name in chosen else 1 / (k * k) for name, k in own))
    table, residual, factor = np.array(rows), np.array(columns), np.array(factors)
    costs = np.array([float(residual_cost(domain.shape(names), unit.neighbours)) for names in residuals])
    weights = np.array(list(workload.weights.values()))
    if objective == "cells":
        weights = weights * np.array([float(domain.cells(names)) for names in workload.tables])

    def split(weights: Floats) -> Floats:
        values = np.bincount(residual, weights[table] * factor, len(residuals))
        roots = np.sqrt(values * costs)
        shares: Floats = roots / roots.sum()
        return shares

    shares = split(weights)
    if objective == "worst":
        target = weights
        for step in range(_STEPS):
            variances = np.bincount(table, factor * (costs / shares)[residual], len(weights)) * target
            if variances.max() <= np.average(variances, weights=weights) * (1 + _CLOSE):
                break
            # Weights grow where the error is large: the dual of the least worst table.
            weights = weights * (variances / variances.max()) ** (1.0 if step < _STEPS // 2 else 0.5)
            weights = np.maximum(weights / weights.sum(), 1e-12)
            shares = split(weights)
    return NoisePlan(
        workload,
        objective,
        unit,
        scale,
        max_weight,
        mu_squared,
        dict(zip(residuals, round_shares(shares), strict=True)),
    )


def round_shares(shares: Floats) -> list[Fraction]:
    """Shares as rationals, none of them 0.

    Guarantee: their sum is at most 1.
    """
    # Rounded down: the differences are below 2^-48.
    exact = np.maximum(np.floor(shares * (1 << _SHARE_BITS)), 1.0).astype(np.int64)
    total = max(int(exact.sum()), 1 << _SHARE_BITS)
    return [Fraction(int(share), total) for share in exact]


def _no_workload() -> InvalidInput:
    return InvalidInput(
        "the workload is neither a list of tables nor a number of columns from 1 to 6",
        why="it says which tables are measured",
        fix='pass workload=2 for all tables of at most two columns, or [("age", "sex")]',
    )


def check_objective(objective: str) -> None:
    """Refuse an objective that is none."""
    if objective not in OBJECTIVES:
        raise InvalidInput(
            "the objective is not one of tables, cells and worst",
            why="it decides which error is minimized",
            fix='pass objective="tables"',
        )
