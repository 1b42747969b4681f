"""`hubbub.open`: the one place where rows, noise and budget meet.

A dataset is one or more tables, a unit, and an account. `sql` makes a plan and reads nothing; `run` charges
first, and then runs.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any, NoReturn, Self

from hubbub.accounting import Budget
from hubbub.accounting.budget import refuse_copy
from hubbub.accounting.in_memory_account import InMemoryAccount
from hubbub.config import parse_kind
from hubbub.engines.engine import Engine, TableSource
from hubbub.engines.schema import Table
from hubbub.errors import InvalidInput, Refused
from hubbub.escaping import escape
from hubbub.ledger import Account, Charge, Ledger
from hubbub.ledger.entries import digest
from hubbub.ledger.outcomes import callers_own, observe_outcome, settle_charge
from hubbub.noise.entropy import random_bytes
from hubbub.numbers import Number
from hubbub.release import Release
from hubbub.sources import (
    find_config,
    keep_declared,
    refuse_both,
    refuse_declared,
    refuse_without_ledger,
    refuse_words,
    window_of,
)
from hubbub.sql.analyzer import analyze
from hubbub.sql.executor import execute
from hubbub.sql.fingerprint import fingerprint
from hubbub.sql.parser import parse
from hubbub.sql.plan import Plan, make_plan
from hubbub.sql.post_processing import check_outputs
from hubbub.sql.query import ContributionBounds
from hubbub.sql.query_builder import QueryBuilder
from hubbub.sql.result import Result
from hubbub.sql.streaming import Stream, check_streamable, execute_stream
from hubbub.unit import Unit, Window

__all__ = ["Dataset", "InMemoryAccount", "open"]

_DEFAULT_DELTA = Fraction(0)


class Dataset:
    """Tables with a unit and an account; made by `hubbub.open`."""

    def __init__(
        self,
        engine: Engine,
        unit: Unit,
        account: InMemoryAccount | Account,
        *,
        population: int | None = None,
        limits: ContributionBounds | None = None,
        origin: Any = None,
        version: str = "1",
        ledger: Ledger | None = None,
    ) -> None:
        self._engine = engine
        self.unit = unit
        self.account = account
        self._population = population
        self._limits = limits or ContributionBounds()
        self._origin = origin
        self.version = version
        self._ledger = ledger

    @property
    def tables(self) -> Mapping[str, Table]:
        """What is public of its tables."""
        return self._engine.tables

    @property
    def is_kept(self) -> bool:
        """Whether what is spent is kept in a ledger."""
        return isinstance(self.account, Account)

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
        allow_large_epsilon: bool = False,
    ) -> Plan:
        """A plan for this question: what it costs and how far it will be off. Nothing is read or spent.

        With `bounding_report`, a tenth of ε measures how many units are above a limit: the label says it.
        An ε above 20 must be confirmed with `allow_large_epsilon`, whatever the budget allows.

        Guarantee: running the plan costs no unit more than (ε, δ).
        Assumes: bounds, keys and limits are public: chosen without looking at the rows.
        Proof: docs/proofs/bounding.md
        """
        statement, options = parse(text)
        if options.unit is not None and options.unit.lower() != (self.unit.key or "").lower():
            raise InvalidInput(
                "privacy_unit_column is not the unit of this dataset",
                why="the account is for one unit",
                fix=f"use {self.unit.key}, or leave it out",
            )
        query = analyze(
            statement,
            self.tables,
            rows_are_units=self.unit.key is None,
            text=text,
            bounds=bounds,
            keys=keys,
            of_public=self._engine.distinct_values,
        )
        check_outputs(query)
        self._engine.compile(query.rows)  # refuses what means something else on this engine
        limits = ContributionBounds(
            _first(rows_per_unit, options.rows, self._limits.rows),
            _first(groups_per_unit, options.groups, self._limits.groups),
            _first(rows_per_group, self._limits.rows_per_group),
        )
        price = _first(epsilon, options.epsilon) if error is None else epsilon
        allowed = _first(delta, options.delta, _DEFAULT_DELTA)
        plan = make_plan(
            query,
            self.unit,
            epsilon=price,
            delta=allowed,
            limits=limits,
            error=error,
            confidence=confidence,
            population=self._population,
            reports=bounding_report,
            allow_large_epsilon=allow_large_epsilon,
        )
        return replace(plan, runner=self.run, show=self._engine.compile)

    def run(
        self, plan: Plan, progress: Callable[[str], None] = lambda _: None, *, again: bool = False
    ) -> Release:
        """Charge, then run, then release. With a ledger a question that was answered is answered the same.

        What the run raises is an outcome, too: with a ledger it is raised again whenever the question is
        asked. With `again`, a question whose run failed (the engine was gone, somebody interrupted it) is
        charged anew and run. Without a ledger each run is charged anew.

        Guarantee: the charge stands before the engine sees the query, and with a ledger the outcome before
            anybody sees it; nothing is given back.
        Proof: docs/proofs/ledger.md, "One outcome per charge"
        """
        self._check(plan)
        if isinstance(self.account, Account):
            answers = self._kept(self.account, plan, progress, again=again)
        else:
            self.account.charge(plan.query.text, plan.loss, unit=self.unit)
            answers = observe_outcome(lambda: self._answers(plan, callers_own(progress))).get()
        return Release(
            answers,
            plan.loss,
            plan,
            self.unit,
            user_asserted=False,
            coordinates=max(1, len(answers)),
            post_processed=True,
        )

    def stream(self, plan: Plan, progress: Callable[[str], None] = lambda _: None) -> Release:
        """As `run`, for a table too large to be held: `release.value` gives it out a piece at a time.

        It is for public keys, of which there may be ten millions. The answer is not kept in a ledger: who
        asks again is charged again. `release.value.write("counts.parquet")` writes it.

        Guarantee: the charge stands before the engine sees the query; nothing is given back.
        Proof: docs/proofs/bounding.md, "A plan"
        """
        self._check(plan)
        check_streamable(plan)
        charged = {}
        if isinstance(self.account, Account):
            charged = self._charged(self.account, self.account.begin(**self._asked(plan)))
        else:
            self.account.charge(plan.query.text, plan.loss, unit=self.unit)

        def run() -> Stream:
            with self._engine.snapshot():
                return execute_stream(plan, self._engine, callers_own(progress), charged)

        return Release(
            observe_outcome(run).get(),
            plan.loss,
            plan,
            self.unit,
            user_asserted=False,
            coordinates=plan.query.cells,
            post_processed=True,
        )

    def _check(self, plan: Plan) -> None:
        if plan.unit != self.unit or plan.runner != self.run:
            raise InvalidInput(
                "the plan was made for another unit, or by another dataset",
                why="its noise would protect somebody else, or too little",
                fix="plan it anew",
            )
        self._engine.check_unchanged()

    def _answers(self, plan: Plan, progress: Callable[[str], None]) -> Result:
        with self._engine.snapshot():
            done = execute(plan, self._engine, progress)
        return Result(tuple(done.columns), done.label)

    def _kept(self, account: Account, plan: Plan, progress: Callable[[str], None], *, again: bool) -> Result:
        """The one answer to this question on this version: kept before it is shown, whoever asks again."""
        question = fingerprint(plan, self._origin)
        key = digest([question, self.version])
        charge, kept = settle_charge(
            account,
            lambda _: self._answers(plan, callers_own(progress)).to_json(),
            progress,
            again=again,
            **self._asked(plan),
            key=key,
            fingerprint=question,
        )
        answers = Result.from_json(kept)
        return replace(answers, facts={**answers.facts, **self._charged(account, charge)})

    def _asked(self, plan: Plan) -> dict[str, Any]:
        """What is charged, and for whom."""
        name = ", ".join(table.name for table in self.tables.values() if not table.is_public)
        return {"what": plan.query.text, "loss": plan.loss, "unit": self.unit, "dataset": name}

    def _charged(self, account: Account, charge: Charge) -> dict[str, Any]:
        """What a label says of the line in the ledger, and of all windows."""
        when = {"as of": charge.moment, "version": self.version, "asked before": not charge.is_new}
        lifetime = {} if self.unit.window is None else {"lifetime": account.lifetime().said()}
        return {"line": charge.number, **when, **lifetime}

    def exact(self, plan: Plan) -> Result:
        """The owner's preview: the bounded query's exact answers, without noise. Never to be published.

        It is recorded in the account before anything is read, and marked in what comes out.
        """
        self._check(plan)
        self.account.exact(plan.query.text)
        with self._engine.snapshot():
            done = execute(plan, self._engine, is_exact=True)
        return Result(tuple(done.columns), {"EXACT": "not private, for the owner's eyes only"})

    def table(self, name: str | None = None) -> QueryBuilder:
        """A query built step by step, on this table or on the first protected one."""
        chosen = name or next(table.name for table in self.tables.values() if not table.is_public)
        return QueryBuilder(self.sql, chosen)

    def where(self, condition: str) -> QueryBuilder:
        """A query on the rows that fulfil a condition."""
        return self.table().where(condition)

    def group_by(self, *keys: str, **values: Iterable[Any]) -> QueryBuilder:
        """A query by groups; `region=["North", "South"]` names a column with its public keys."""
        return self.table().group_by(*keys, **values)

    def close(self) -> None:
        """Let go of the rows, and of the ledger where it was opened for them."""
        self._engine.close()
        if self._ledger is not None:
            self._ledger.close()

    def __reduce__(self) -> NoReturn:
        refuse_copy("a data set", "open it where it is needed, with a ledger if other processes ask it, too")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return escape(f"Dataset({', '.join(self.tables)}; {self.unit})")


def _first(*given: Any) -> Any:
    return next((value for value in given if value is not None), None)


def open(  # noqa: A001 - hubbub.open is its name
    data: Any,
    *,
    unit: Unit | str | None = None,
    table: str | Sequence[str] | None = None,
    budget: Budget | None = None,
    ledger: Ledger | str | Path | None = None,
    account: str | None = None,
    analyst: str | None = None,
    version: str | None = None,
    window: Window | str | None = None,
    types: Mapping[str, str] | None = None,
    bounds: Mapping[str, Any] | None = None,
    keys: Mapping[str, Iterable[Any]] | None = None,
    public: Mapping[str, Any] | None = None,
    population: int | None = None,
    rows_per_unit: int | None = None,
    groups_per_unit: int | None = None,
    quotes: bool | None = None,
    encoding: str | None = None,
    new_rows: bool = False,
    override: bool = False,
) -> Dataset:
    """Open a file, a data frame, Arrow data, a DuckDB connection or a database as a dataset.

    `unit` says who is protected: a column, or `Unit.row()` where one row is one person. All else is public
    and declared: types, bounds, keys, tables that are nobody's. Several protected tables are given as a
    mapping from names to data; each must have the unit's column. With `quotes=False` each line of a CSV file
    is a row, whatever is in it; else a hostile line that opens a quote takes those that follow with it.
    `encoding` is that of CSV files, one of Python's: UTF-8 unless told. What cannot be decoded is U+FFFD.

    `postgresql://user@host/database` opens a table of a PostgreSQL server, or several with
    `table=["visits", "people"]`; a Spark session tables of its catalog, a Spark data frame itself. The rows
    stay where they are.

    What a `hubbub.toml` in the file's folder, or in one above, declares of it need not be passed. Types,
    bounds, keys and limits that are passed win; another unit, ledger, account or budget than declared is
    refused, unless the owner passes `override=True`, which the declared ledger records. The path of a
    `hubbub.toml` opens all its tables.

    With a `ledger`, a path or a `postgresql://…` address, all that is spent is charged there, to the account
    of that name (else the table's), on behalf of the owner or of an analyst with a budget of her own.
    `version` is the owner's word for the state of the data: the same question on the same version has the
    same answer, at no further cost. Rows in memory, and those of Spark, have no place to be known by: there
    questions are asked anew at each opening, unless `version` is passed. One account pays for the rows of
    one place, by whatever name they are opened: a second one is refused. In a ledger that has other accounts,
    rows that it does not know need the owner's word, `new_rows=True`, that no other account pays for them.

    With a `window`, such as `Window.of("day", "2026-11")`, only its rows are there, who is protected is one
    person within it, and the budget is the window's: so data that grows can be asked for ever. What all
    windows cost together is on every label.

    >>> import duckdb
    >>> connection = duckdb.connect()
    >>> _ = connection.execute("CREATE TABLE t AS SELECT i AS person, i % 3 AS x FROM range(1000) r(i)")
    >>> data = open(connection, table="t", unit="person", keys={"x": [0, 1, 2]}, rows_per_unit=1)
    >>> plan = data.sql("SELECT x, COUNT(*) AS n FROM t GROUP BY x", epsilon=1)
    >>> [round(n / 100) for n in data.run(plan).value["n"]]
    [3, 3, 3]
    """
    facts = find_config(data) if not _is_elsewhere(data) else None
    who = facts.unit if facts is not None and unit is None else unit
    who = Unit(who) if isinstance(who, str) else who
    if not isinstance(who, Unit):
        raise InvalidInput(
            "the unit is not given, or is not one",
            why="it must be known who is protected",
            fix='pass {unit="patient"}, or {unit=Unit.row()} where one row is one person',
        )
    who = replace(who, window=window_of(window, who, None if facts is None else facts.window))
    has_ledger = ledger is not None or (facts is not None and facts.ledger is not None)
    refuse_words(analyst, has_ledger=has_ledger, new_rows=new_rows, override=override)
    if facts is not None:
        keep_declared(facts, who, ledger=ledger, account=account, budget=budget, override=override)
    kinds = {column: parse_kind(kind) for column, kind in (types or {}).items()}
    connection = _connection(data) if facts is None else None
    if facts is None:
        given = _given(data, table, is_connection=connection is not None or _is_elsewhere(data))
        sources = {
            name: TableSource(
                rows,
                kinds or None,
                who.key,
                bounds=bounds,
                keys=keys,
                window=who.window,
                **_text_files(quotes=quotes, encoding=encoding),
            )
            for name, rows in given.items()
        }
    else:
        sources = {}
        for declared in facts.named(_one(table)):
            more = facts.is_asked(declared)
            sources[declared.name] = TableSource(
                declared.path,
                {**declared.types, **(kinds if more else {})},
                who.key if override and unit is not None and not declared.is_public else declared.unit,
                declared.is_public,
                {**declared.bounds, **(bounds or {} if more else {})},
                {**declared.keys, **(keys or {} if more else {})},
                None if declared.is_public else who.window,
                **_text_files(
                    quotes=_first(quotes, declared.quotes), encoding=_first(encoding, declared.encoding)
                ),
            )
        budget = budget or facts.budget
        ledger, account = _first(ledger, facts.ledger), account or facts.account
        version = version or facts.version
        population = _first(population, facts.population)
        rows_per_unit = _first(rows_per_unit, facts.rows_per_unit)
        groups_per_unit = _first(groups_per_unit, facts.groups_per_unit)
    _refuse_alike([*sources, *(public or {})])
    if connection is None and not _is_elsewhere(data):
        refuse_declared(public or {})
    for name, rows in (public or {}).items():
        sources[name] = TableSource(rows, is_public=True, **_text_files(quotes=quotes, encoding=encoding))
    engine = _engine(data, sources, connection)
    refuse_both(engine, sources)
    people = population if population is not None else budget.population if budget is not None else None
    limits = ContributionBounds(rows_per_unit, groups_per_unit)
    if ledger is None:
        refuse_without_ledger(account=account, analyst=analyst, version=version)
        return Dataset(engine, who, InMemoryAccount(budget, who), population=people, limits=limits)
    secret = None if facts is None else facts.secret
    kept = ledger if isinstance(ledger, Ledger) else Ledger.open(ledger, secret=secret)
    protected = [name for name, source in sources.items() if not source.is_public]
    if account is None and facts is None and len(protected) > 1:
        raise InvalidInput(
            "several protected tables are opened, and no account is named",
            why="one budget pays for all of them, whichever is named first",
            fix='pass {account="visits"}',
        )
    dataset = ", ".join(protected)
    places = {name: engine.fingerprint(name) for name in sources}
    kept.refuse_public({name: engine.identity(name) for name in sources if name not in protected})
    owner = kept.account(
        account or protected[0],
        who,
        budget,
        rows={name: engine.identity(name) for name in protected},
        new_rows=new_rows,
        override=override,
    )
    if version is not None and analyst is None:
        owner.version(version, dataset)
    latest = owner.latest_version(dataset) or "1"
    if version not in {None, latest}:
        raise Refused(
            "the version is not the one that was last declared",
            why="only the owner declares one: answers to it are given again",
            fix="leave it out, or ask the owner",
        )
    return Dataset(
        engine,
        who,
        owner if analyst is None else owner.for_analyst(analyst),
        population=people,
        limits=limits,
        origin=[
            _origin(name, source, places[name], is_named=version is not None)
            for name, source in sources.items()
        ],
        version=latest,
        ledger=None if kept is ledger else kept,
    )


def _text_files(*, quotes: bool | None, encoding: str | None) -> dict[str, Any]:
    """How CSV files are read."""
    return {"has_quotes": quotes is not False, "encoding": encoding or "utf-8"}


def _origin(name: str, source: "TableSource", place: Any, *, is_named: bool) -> list[Any]:
    """Which rows are meant and how they are read, as far as that can be said without looking at them.

    Rows that have no place are those that the owner names by a version, or else no others: of this opening.
    """
    kinds = sorted((column, kind.value) for column, kind in (source.types or {}).items())
    if place is None:
        place = type(source.rows).__name__ if is_named else random_bytes(16).hex()
    read = source.has_quotes if source.encoding == "utf-8" else [source.has_quotes, source.encoding]
    return [name, place, kinds, read, source.is_public, source.unit]


def _connection(data: Any) -> Any:
    """A DuckDB connection: one that is given, or to a database file, only to read."""
    if type(data).__name__ == "DuckDBPyConnection":
        return data
    if isinstance(data, (str, Path)) and Path(data).suffix.lower() in {".duckdb", ".ddb", ".db"}:
        import duckdb

        from hubbub.engines.duckdb_sources import private_folder

        try:
            connection = duckdb.connect(str(data), read_only=True)
            folder = private_folder(connection).replace("'", "''")
            return connection.execute(f"SET temp_directory = '{folder}'")
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
                "no table is named", why="a connection may have many", fix='pass {table="visits"}'
            )
        named = [table] if isinstance(table, str) else list(table)
        _refuse_alike([name.split(".")[-1] for name in named])
        return {name.split(".")[-1]: name for name in named}
    if isinstance(data, Mapping) and not hasattr(data, "columns"):
        return dict(data)
    name = _one(table)
    if name is None:
        name = Path(str(data)).stem.split("*")[0].rstrip("_-.") if isinstance(data, (str, Path)) else "data"
    return {name or "data": data}


def _refuse_alike(names: Sequence[str]) -> None:
    if len({name.lower() for name in names}) < len(names):
        raise InvalidInput(
            "two tables have one name",
            why="one of them would stand for both, in silence",
            fix="open them as datasets of their own, or rename one",
        )


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


def _engine(data: Any, sources: Mapping[str, TableSource], connection: Any) -> Engine:
    """What holds the rows; each is imported only where it is used."""
    if _is_address(data):
        from hubbub.engines.postgres import PostgreSQL

        return PostgreSQL(str(data), sources)
    if _is_spark(data, "SparkSession"):
        from hubbub.engines.spark import Spark

        return Spark(data, sources)
    frame = next((source.rows for source in sources.values() if _is_spark(source.rows, "DataFrame")), None)
    if frame is not None:
        from hubbub.engines.spark import Spark

        return Spark(frame.sparkSession, sources)
    from hubbub.engines.duckdb import DuckDB

    return DuckDB(sources, connection)
