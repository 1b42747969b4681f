"""`hubbub.open`: the one place where rows, noise and budget meet.

A dataset is one or more tables, a unit, and an account. `sql` makes a plan and reads nothing; `run` charges
first, and then runs.
"""

import math
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any, Self

from hubbub.errors import InvalidInput
from hubbub.facts import found, kind_of
from hubbub.loss import Budget, Cost, Filter, Loss, Odometer, Receipt
from hubbub.queries.answers import Answers
from hubbub.queries.builder import Builder
from hubbub.queries.outputs import check_outputs
from hubbub.queries.plan import Plan, planned
from hubbub.queries.rules import Limits
from hubbub.queries.run import answered
from hubbub.queries.sql import parsed, read
from hubbub.rational import Number, round_up
from hubbub.release import Release
from hubbub.tables.engine import Engine, Source
from hubbub.tables.schema import Table
from hubbub.unit import Unit

__all__ = ["Dataset", "Spending", "open"]

_DEFAULT_DELTA = Fraction(0)


class Spending:
    """An account in this process's memory: what was charged, and what may still be.

    >>> account = Spending(Budget(1))
    >>> account.charge("a count", Loss.pure(0.25)).what
    'a count'
    >>> account.spent.epsilon
    Fraction(1, 4)
    """

    def __init__(self, budget: Budget | None = None) -> None:
        self.budget = budget
        self._filter = Filter(budget) if budget is not None else None
        self._sum = Cost.of(0, mu_squared=0)
        self._busy = threading.Lock()
        self.receipts: list[Receipt] = []

    def charge(self, what: str, loss: Loss) -> Receipt:
        """Charge before anything runs; raises where it would not fit."""
        cost = loss.cost()
        with self._busy:
            if self._filter is not None:
                self._filter = self._filter.charge(cost)
            self._sum += cost
            receipt = Receipt(what, loss)
            self.receipts.append(receipt)
        return receipt

    @property
    def spent(self) -> Cost:
        """All that was charged, in figures that add up."""
        return self._sum

    def epsilon(self, delta: Number = 0) -> float:
        """The ε at which everything charged so far holds with this δ; infinite where none does."""
        found = Odometer(delta).after(self._sum).reading().epsilon
        return math.inf if found is None else round_up(found)


class Dataset:
    """Tables with a unit and an account; made by `hubbub.open`."""

    def __init__(
        self,
        engine: Engine,
        unit: Unit,
        account: Spending,
        *,
        population: int | None = None,
        limits: Limits | None = None,
    ) -> None:
        self._engine = engine
        self.unit = unit
        self.account = account
        self._population = population
        self._limits = limits or Limits()

    @property
    def tables(self) -> Mapping[str, Table]:
        """What is public of its tables."""
        return self._engine.tables

    def sql(
        self,
        text: str,
        *,
        epsilon: Number | None = None,
        delta: Number | None = None,
        error: Mapping[str, Number] | None = None,
        rows_per_unit: int | None = None,
        groups_per_unit: int | None = None,
        rows_per_group: int | None = None,
        bounds: Mapping[str, Any] | None = None,
        keys: Mapping[str, Iterable[Any]] | None = None,
        confidence: Number = 0.95,
        bounding_report: bool = False,
    ) -> Plan:
        """A plan for this question: what it costs and how far it will be off. Nothing is read or spent.

        With `bounding_report`, a tenth of ε measures how many units are above a limit: the label says it.

        Guarantee: running the plan costs no unit more than (ε, δ).
        Assumes: bounds, keys and limits are public: chosen without looking at the rows.
        Proof: docs/proofs/bounding.md
        """
        statement, options = parsed(text)
        if options.unit is not None and options.unit.lower() != (self.unit.key or "").lower():
            raise InvalidInput(
                "privacy_unit_column is not the unit of this dataset",
                why="the account is for one unit",
                fix=f"use {self.unit.key}, or leave it out",
            )
        query = read(
            statement,
            self.tables,
            rows_are_units=self.unit.key is None,
            text=text,
            bounds=bounds,
            keys=keys,
            of_public=self._engine.public_keys,
        )
        check_outputs(query)
        self._engine.shown(query.rows)  # refuses what means something else on this engine
        limits = Limits(
            _first(rows_per_unit, options.rows, self._limits.rows),
            _first(groups_per_unit, options.groups, self._limits.groups),
            _first(rows_per_group, self._limits.rows_per_group),
        )
        price = _first(epsilon, options.epsilon) if error is None else epsilon
        allowed = _first(delta, options.delta, _DEFAULT_DELTA)
        plan = planned(
            query,
            self.unit,
            epsilon=price,
            delta=allowed,
            limits=limits,
            error=error,
            confidence=confidence,
            population=self._population,
            reports=bounding_report,
        )
        return replace(plan, runner=self.run, show=self._engine.shown)

    def run(self, plan: Plan, progress: Callable[[str], None] = lambda _: None) -> Release:
        """Charge, then run, then release.

        Guarantee: the charge stands before the engine sees the query; nothing is given back.
        Proof: docs/proofs/bounding.md, "A plan"
        """
        if plan.unit != self.unit or plan.runner != self.run:
            raise InvalidInput(
                "the plan was made for another unit, or by another dataset",
                why="its noise would protect somebody else, or too little",
                fix="plan it anew",
            )
        self.account.charge(plan.query.text, plan.loss)
        with self._engine.snapshot():
            done = answered(plan, self._engine, progress)
        answers = Answers(tuple(done.columns), plan.label(done.limits, done.above))
        return Release(
            answers, plan.loss, plan, self.unit, asserted=False, cells=max(1, len(answers)), mapped=True
        )

    def exact(self, plan: Plan) -> Answers:
        """The owner's preview: the bounded query's exact answers, without noise. Never to be published.

        It is recorded in the account's receipts, and marked in what comes out.
        """
        self.account.receipts.append(
            Receipt(f"EXACT PREVIEW, not private: {plan.query.text}", Loss.pure(2**20))
        )
        with self._engine.snapshot():
            done = answered(plan, self._engine, is_exact=True)
        return Answers(tuple(done.columns), {"EXACT": "not private, for the owner's eyes only"})

    def table(self, name: str | None = None) -> Builder:
        """A query built step by step, on this table or on the first protected one."""
        chosen = name or next(table.name for table in self.tables.values() if not table.is_public)
        return Builder(self.sql, chosen)

    def where(self, condition: str) -> Builder:
        """A query on the rows that fulfil a condition."""
        return self.table().where(condition)

    def group_by(self, *keys: str, **values: Iterable[Any]) -> Builder:
        """A query by groups; `region=["North", "South"]` names a column with its public keys."""
        return self.table().group_by(*keys, **values)

    def close(self) -> None:
        """Let go of the rows."""
        self._engine.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Dataset({', '.join(self.tables)}; {self.unit})"


def _first(*given: Any) -> Any:
    return next((value for value in given if value is not None), None)


def open(  # noqa: A001 - hubbub.open is its name
    data: Any,
    *,
    unit: Unit | str | None = None,
    table: str | Sequence[str] | None = None,
    budget: Budget | None = None,
    types: Mapping[str, str] | None = None,
    bounds: Mapping[str, Any] | None = None,
    keys: Mapping[str, Iterable[Any]] | None = None,
    public: Mapping[str, Any] | None = None,
    population: int | None = None,
    rows_per_unit: int | None = None,
    groups_per_unit: int | None = None,
    quotes: bool = True,
) -> Dataset:
    """Open a file, a data frame, Arrow data, a DuckDB connection or a database as a dataset.

    `unit` says who is protected: a column, or `Unit.row()` where one row is one person. All else is public
    and declared: types, bounds, keys, tables that are nobody's. Several protected tables are given as a
    mapping from names to data; each must have the unit's column. With `quotes=False` each line of a CSV file
    is a row, whatever is in it; else a row with an unbalanced quote swallows those that follow.

    `postgresql://user@host/database` opens a table of a PostgreSQL server, or several with
    `table=["visits", "people"]`; a Spark session tables of its catalog, a Spark data frame itself. The rows
    stay where they are.

    What a `hubbub.toml` beside the file declares of it need not be passed; what is passed wins. The path of
    a `hubbub.toml` opens all its tables.

    >>> import duckdb
    >>> connection = duckdb.connect()
    >>> _ = connection.execute("CREATE TABLE t AS SELECT i AS person, i % 3 AS x FROM range(1000) r(i)")
    >>> data = open(connection, table="t", unit="person", keys={"x": [0, 1, 2]}, rows_per_unit=1)
    >>> plan = data.sql("SELECT x, COUNT(*) AS n FROM t GROUP BY x", epsilon=1)
    >>> [round(n / 100) for n in data.run(plan).value["n"]]
    [3, 3, 3]
    """
    facts = found(data) if not _is_elsewhere(data) else None
    who = facts.unit if facts is not None and unit is None else unit
    who = Unit(who) if isinstance(who, str) else who
    if not isinstance(who, Unit):
        raise InvalidInput(
            "the unit is not given, or is not one",
            why="it must be known who is protected",
            fix='pass unit="patient" or Unit.row()',
        )
    kinds = {column: kind_of(kind) for column, kind in (types or {}).items()}
    connection = _connection(data) if facts is None else None
    if facts is None:
        given = _given(data, table, is_connection=connection is not None or _is_elsewhere(data))
        sources = {
            name: Source(rows, kinds or None, who.key, bounds=bounds, keys=keys, has_quotes=quotes)
            for name, rows in given.items()
        }
    else:
        sources = {}
        for declared in facts.named(_one(table)):
            more = facts.is_asked(declared)
            sources[declared.name] = Source(
                declared.path,
                {**declared.types, **(kinds if more else {})},
                who.key if unit is not None and not declared.is_public else declared.unit,
                declared.is_public,
                {**declared.bounds, **(bounds or {} if more else {})},
                {**declared.keys, **(keys or {} if more else {})},
            )
        budget = budget or facts.budget
        population = _first(population, facts.population)
        rows_per_unit = _first(rows_per_unit, facts.rows_per_unit)
        groups_per_unit = _first(groups_per_unit, facts.groups_per_unit)
    for name, rows in (public or {}).items():
        sources[name] = Source(rows, is_public=True)
    engine = _engine(data, sources, connection)
    people = population if population is not None else budget.population if budget is not None else None
    limits = Limits(rows_per_unit, groups_per_unit)
    return Dataset(engine, who, Spending(budget), population=people, limits=limits)


def _connection(data: Any) -> Any:
    """A DuckDB connection: one that is given, or to a database file, only to read."""
    if type(data).__name__ == "DuckDBPyConnection":
        return data
    if isinstance(data, (str, Path)) and Path(data).suffix.lower() in {".duckdb", ".ddb", ".db"}:
        import duckdb

        try:
            return duckdb.connect(str(data), read_only=True)
        except duckdb.Error:
            raise InvalidInput(
                "the database cannot be opened",
                why="it is not there, not DuckDB's, or in use",
                fix="give the path of a DuckDB database that nobody is writing to",
            ) from None
    return None


def _given(data: Any, table: str | Sequence[str] | None, *, is_connection: bool) -> dict[str, Any]:
    """The protected tables by their names."""
    if is_connection:
        if table is None:
            raise InvalidInput(
                "no table is named", why="a connection may have many", fix='pass table="visits"'
            )
        named = [table] if isinstance(table, str) else list(table)
        return {name.split(".")[-1]: name for name in named}
    if isinstance(data, Mapping) and not hasattr(data, "columns"):
        return dict(data)
    name = _one(table)
    if name is None:
        name = Path(str(data)).stem.split("*")[0].rstrip("_-.") if isinstance(data, (str, Path)) else "data"
    return {name or "data": data}


def _one(table: str | Sequence[str] | None) -> str | None:
    if table is None or isinstance(table, str):
        return table
    raise InvalidInput(
        "several tables are named",
        why="a file or a data frame is one table",
        fix="pass a mapping from names to data instead",
    )


def _is_elsewhere(data: Any) -> bool:
    """Whether the rows live in a server, so that tables there are named."""
    return _is_address(data) or _is_spark(data, "SparkSession")


def _is_address(data: Any) -> bool:
    return isinstance(data, str) and data.startswith(("postgresql://", "postgres://"))


def _is_spark(data: Any, name: str) -> bool:
    """Whether it is of Spark's, classic or Connect; nothing is imported to know."""
    kind = type(data)
    return kind.__module__.startswith("pyspark.sql.") and kind.__name__ == name


def _engine(data: Any, sources: Mapping[str, Source], connection: Any) -> Engine:
    """What holds the rows; each is imported only where it is used."""
    if _is_address(data):
        from hubbub.tables.postgres import PostgreSQL

        return PostgreSQL(str(data), sources)
    if _is_spark(data, "SparkSession"):
        from hubbub.tables.spark import Spark

        return Spark(data, sources)
    frame = next((source.rows for source in sources.values() if _is_spark(source.rows, "DataFrame")), None)
    if frame is not None:
        from hubbub.tables.spark import Spark

        return Spark(frame.sparkSession, sources)
    from hubbub.tables.duckdb import DuckDB

    return DuckDB(sources, connection)
