"""Queries built step by step in Python. Each step returns a new builder; `plan` analyzes its SQL."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from hubbub.errors import InvalidInput

if TYPE_CHECKING:
    from hubbub.release import Release
    from hubbub.sql.plan import Plan
    from hubbub.sql.result import Result

__all__ = ["QueryBuilder"]


@dataclass(frozen=True)
class QueryBuilder:
    """An unfinished query.

    >>> from hubbub.sql.plan import Plan
    >>> query = QueryBuilder(lambda text, **_: text, "visits").where("cost > 10").group_by("region")
    >>> query.mean("cost", low=0, high=5000).plan(epsilon=1)
    'SELECT region, AVG(cost) AS "mean_cost" FROM "visits" WHERE (cost > 10) GROUP BY region'
    """

    planner: Callable[..., Any] = field(repr=False)
    table: str
    conditions: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    aggregates: tuple[str, ...] = ()
    bounds: Mapping[str, Any] = field(default_factory=dict)
    key_values: Mapping[str, Any] = field(default_factory=dict)

    def where(self, condition: str) -> "QueryBuilder":
        """Keep only rows that satisfy a condition, in SQL: `where("cost > 10")`."""
        return replace(self, conditions=(*self.conditions, f"({condition})"))

    def group_by(self, *keys: str, **values: Any) -> "QueryBuilder":
        """Group by columns or expressions; `region=["North", "South"]` is a column with its public keys."""
        return replace(self, keys=(*self.keys, *keys, *values), key_values={**self.key_values, **values})

    def count(self, column: str | None = None, *, name: str | None = None) -> "QueryBuilder":
        """Add the number of rows, or of non-NULL values of a column."""
        return self._with(
            f"COUNT({column or '*'})", name or ("count" if column is None else f"count_{column}")
        )

    def count_distinct(self, column: str, *, name: str | None = None) -> "QueryBuilder":
        """Add the number of distinct values of a column; for the unit's column, of units."""
        return self._with(f"COUNT(DISTINCT {column})", name or f"distinct_{column}")

    def sum(
        self, column: str, *, low: Any = None, high: Any = None, name: str | None = None
    ) -> "QueryBuilder":
        """Add the sum of a column, clamped between low and high."""
        return self._bounded("SUM", column, low, high, name or f"sum_{column}")

    def mean(
        self, column: str, *, low: Any = None, high: Any = None, name: str | None = None
    ) -> "QueryBuilder":
        """Add the mean of a column, clamped between low and high."""
        return self._bounded("AVG", column, low, high, name or f"mean_{column}")

    def variance(
        self, column: str, *, low: Any = None, high: Any = None, name: str | None = None
    ) -> "QueryBuilder":
        """Add the sample variance of a column, clamped between low and high."""
        return self._bounded("VARIANCE", column, low, high, name or f"variance_{column}")

    def stddev(
        self, column: str, *, low: Any = None, high: Any = None, name: str | None = None
    ) -> "QueryBuilder":
        """Add the sample standard deviation of a column, clamped between low and high."""
        return self._bounded("STDDEV", column, low, high, name or f"stddev_{column}")

    def median(
        self, column: str, *, low: Any = None, high: Any = None, name: str | None = None
    ) -> "QueryBuilder":
        """Add the median of a column, clamped between low and high."""
        return self._bounded("MEDIAN", column, low, high, name or f"median_{column}")

    def quantile(
        self, column: str, fraction: float, *, low: Any = None, high: Any = None, name: str | None = None
    ) -> "QueryBuilder":
        """Add a quantile of a column, clamped between low and high."""
        alias = name or f"quantile_{column}_{fraction:g}"
        return self._bounded("QUANTILE_CONT", column, low, high, alias, f", {fraction!r}")

    def plan(self, **options: Any) -> "Plan":
        """Return the plan, with the options of `Dataset.sql`."""
        if not self.aggregates:
            raise InvalidInput(
                "nothing is aggregated",
                why="rows themselves are not released",
                fix="add count(), sum() or mean()",
            )
        text = self.sql()
        bounds = {**self.bounds, **options.pop("bounds", {})}
        values = {**self.key_values, **options.pop("keys", {})}
        plan: Plan = self.planner(text, bounds=bounds, keys=values, **options)
        return plan

    def run(self, **options: Any) -> "Release[Result]":
        """Plan, charge and run the query, and return the release."""
        return self.plan(**options).run()

    def sql(self) -> str:
        """Return the query in SQL."""
        items = ", ".join((*self.keys, *self.aggregates))
        where = f" WHERE {' AND '.join(self.conditions)}" if self.conditions else ""
        by = f" GROUP BY {', '.join(self.keys)}" if self.keys else ""
        table = '"' + self.table.replace('"', '""') + '"'
        return f"SELECT {items} FROM {table}{where}{by}"  # noqa: S608 - it is parsed, never run

    def _bounded(  # noqa: PLR0917 - all of them, each time
        self, function: str, column: str, low: Any, high: Any, name: str, more: str = ""
    ) -> "QueryBuilder":
        if (low is None) != (high is None):
            raise InvalidInput("only one bound is given", why="both are needed", fix="pass low and high")
        bounds = self.bounds if low is None else {**self.bounds, column: (low, high)}
        return self._with(f"{function}({column}{more})", name, bounds)

    def _with(self, aggregate: str, name: str, bounds: Mapping[str, Any] | None = None) -> "QueryBuilder":
        alias = '"' + name.replace('"', '""') + '"'
        aggregates = (*self.aggregates, f"{aggregate} AS {alias}")
        return replace(self, aggregates=aggregates, bounds=self.bounds if bounds is None else bounds)
