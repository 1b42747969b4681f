"""Turns the arguments of `hubbub.open` into an engine with tables, a privacy unit and an account.

A `hubbub.toml` that declares the rows is found by the rows' files, whatever name they are opened by. What it
declares holds: arguments may add to it, but may not contradict its unit, ledger, account or budget, unless
the owner overrides it, which the declared ledger records first.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from os import PathLike
from pathlib import Path
from typing import Any

from hubbub.accounting import Budget
from hubbub.accounting.in_memory_account import InMemoryAccount
from hubbub.config import Config, TableConfig
from hubbub.config_lookup import find_config, is_table_mapping
from hubbub.config_values import ROW, check_mappings, parse_kind
from hubbub.engine_lookup import is_server, open_connection, open_engine, open_spark
from hubbub.engines.engine import Engine, TableSource
from hubbub.engines.file_endings import name_of_file
from hubbub.errors import InvalidInput, Refused
from hubbub.ledger import Ledger, LedgerAccount
from hubbub.ledger.ledger import missing_account_error
from hubbub.ledger.postgres import is_postgres_url
from hubbub.ledger.sqlite import resolve_path
from hubbub.noise.entropy import random_bytes
from hubbub.numbers import parse_integer
from hubbub.unit import Unit, Window

__all__ = ["OpenArguments", "OpenedSources", "open_sources"]


@dataclass(frozen=True)
class OpenArguments:
    """The arguments of `hubbub.open`, which documents them."""

    data: Any
    unit: Unit | str | None = None
    table: str | Sequence[str] | Mapping[str, str] | None = None
    budget: Budget | None = None
    ledger: Ledger | str | Path | None = None
    account: str | None = None
    analyst: str | None = None
    version: str | None = None
    window: Window | str | None = None
    types: Mapping[str, str] | None = None
    bounds: Mapping[str, Any] | None = None
    keys: Mapping[str, Iterable[Any]] | None = None
    public: Mapping[str, Any] | None = None
    population: int | None = None
    rows_per_unit: int | None = None
    max_rows_per_unit: int | None = None
    groups_per_unit: int | None = None
    quotes: bool | None = None
    encoding: str | None = None
    separator: str | None = None
    partitions: Sequence[str] | None = None
    new_rows: bool = False
    override: bool = False

    @property
    def file_options(self) -> dict[str, Any]:
        """How files are read."""
        return {
            "has_quotes": self.quotes is not False,
            "encoding": self.encoding or "utf-8",
            "separator": self.separator,
            "partitions": tuple(self.partitions or ()),
        }

    def with_defaults(self, config: Config) -> "OpenArguments":
        """Return these arguments, with those that are missing as declared."""
        return replace(
            self,
            budget=self.budget or config.budget,
            ledger=_first(self.ledger, config.ledger),
            account=self.account or config.account,
            version=self.version or config.version,
            population=_first(self.population, config.population),
            rows_per_unit=_first(self.rows_per_unit, config.rows_per_unit),
            max_rows_per_unit=_first(self.max_rows_per_unit, config.max_rows_per_unit),
            groups_per_unit=_first(self.groups_per_unit, config.groups_per_unit),
        )


@dataclass(frozen=True)
class OpenedSources:
    """The engine that holds the rows, who is protected in them, and the account that pays."""

    engine: Engine
    unit: Unit
    account: InMemoryAccount | LedgerAccount
    arguments: OpenArguments
    """With what was declared filled in."""
    origin: list[list[Any]] | None = None
    """Which rows are meant; None without a ledger."""
    version: str = "1"
    ledger: Ledger | None = None
    """The ledger, where it was opened here and is to be closed with the dataset."""
    synopses: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """The declarations of hubbub.toml for synopses, by table."""

    @property
    def population(self) -> int | None:
        """The public number of units, if it is known."""
        population, budget = self.arguments.population, self.arguments.budget
        return budget.population if population is None and budget is not None else population


def _wrong_kind(name: str, kind: str, example: str) -> InvalidInput:
    return InvalidInput(
        f"{name} is not {kind}", why="it cannot be read as one", fix=f"pass {example}", parameter=name
    )


def _check_kinds(arguments: OpenArguments) -> None:
    """Refuse arguments of another kind than they are declared with."""
    check_mappings(
        types=arguments.types, bounds=arguments.bounds, keys=arguments.keys, public=arguments.public
    )
    if isinstance(arguments.data, Mapping):
        check_mappings(data=arguments.data)
    if not isinstance(arguments.budget, Budget | None):
        raise _wrong_kind("budget", "a Budget", "budget=hubbub.Budget(1)")
    if not isinstance(arguments.ledger, Ledger | str | PathLike | None):
        raise _wrong_kind("ledger", "a path or a Ledger", 'ledger="visits.ledger"')
    if not isinstance(arguments.partitions, Sequence | None):
        raise _wrong_kind("partitions", "a list of names", 'partitions=["year"]')


def open_sources(arguments: OpenArguments) -> OpenedSources:
    """Open the rows and the account that `hubbub.open` was asked for.

    Guarantee: what a hubbub.toml declares of the rows holds, or its ledger says that the owner overrode it;
        no rows are both public and protected; one account of a ledger pays for the same rows.
    """
    _check_kinds(arguments)
    config = None if is_server(arguments.data) else find_config(arguments.data)
    unit = _resolve_unit(arguments, config)
    has_ledger = arguments.ledger is not None or (config is not None and config.ledger is not None)
    _check_owner_assertions(
        arguments.analyst, has_ledger=has_ledger, new_rows=arguments.new_rows, override=arguments.override
    )
    location = arguments.data if config is None else _first(config.url, config.database, arguments.data)
    connection = None
    if config is None:
        connection = open_connection(location)
        has_tables = is_server(location) or connection is not None
        sources = _passed_sources(arguments, unit, has_tables=has_tables)
    else:
        _check_declaration(config, unit, arguments)
        sources = _declared_sources(arguments, unit, config)
        arguments = arguments.with_defaults(config)
        connection = None if config.database is None else open_connection(config.database)
        location = location if config.spark is None else open_spark(config.spark)
        has_tables = is_server(location) or connection is not None
    public = arguments.public or {}
    _refuse_duplicate_names([*sources, *public])
    if not has_tables:
        _refuse_declared_as_public(public)
    for name, rows in public.items():
        sources[name] = TableSource(rows, is_public=True, **replace(arguments, partitions=None).file_options)
    engine = open_engine(location, sources, connection)
    _refuse_public_and_protected(engine, sources)
    if arguments.ledger is None:
        _refuse_without_ledger(
            account=arguments.account, analyst=arguments.analyst, version=arguments.version
        )
        result = OpenedSources(engine, unit, InMemoryAccount(arguments.budget, unit), arguments)
    else:
        result = _open_account(arguments, unit, config, engine, sources)
    return replace(result, synopses=_declared_synopses(arguments, config))


def _declared_synopses(arguments: OpenArguments, config: Config | None) -> dict[str, Mapping[str, Any]]:
    """Return what is declared for synopses, by table."""
    if config is None:
        return {}
    tables = _declared_tables(arguments, config)
    return {table.name: table.synopsis for table in tables if table.synopsis}


def _declared_tables(arguments: OpenArguments, config: Config) -> tuple[TableConfig, ...]:
    """Return the declared tables, under the names that they are opened by."""
    if config.database is None or arguments.table is None:
        return config.rename_table(_single_name(arguments.table))
    names = _name_tables(None, arguments.table, has_tables=True)
    declared = {table.name.lower() for table in config.tables}
    others = [name for name in names if name.lower() not in declared]
    if others:
        raise InvalidInput(
            f"{others[0]} is not among the tables that {config.file} declares of this database",
            why="one budget protects the rows as declared",
            fix=f"use one of: {', '.join(table.name for table in config.tables)}",
        )
    return config.tables


def _resolve_unit(arguments: OpenArguments, config: Config | None) -> Unit:
    unit = config.unit if config is not None and arguments.unit is None else arguments.unit
    if isinstance(unit, str):
        unit = Unit.row() if unit.strip().lower() == ROW else Unit(unit)
    if not isinstance(unit, Unit):
        raise InvalidInput(
            "the {unit} is not given, or is not one",
            why="it says who is protected",
            fix='pass {unit="patient"}, or {unit="row"} where one row is one person',
        )
    return replace(
        unit, window=_resolve_window(arguments.window, unit, None if config is None else config.window)
    )


def _resolve_window(window: Window | str | None, unit: Unit, column: str | None) -> Window | None:
    """Return the window that is meant; `column` is the declared one."""
    if window is None and unit.window is None and column is not None:
        raise InvalidInput(
            "no {window} is given",
            why=f"there is a budget for each period of {column}, which pays for that period's rows only",
            fix='pass {window="2026-11"}',
        )
    if isinstance(window, str):
        if column is None:
            raise InvalidInput(
                "the column of the {window} is not known",
                why="a date in each row decides which window it is in",
                fix='pass Window.of("day", "2026-11"), or declare window = "day" in hubbub.toml',
            )
        return Window.of(column, window)
    return window or unit.window


def _passed_sources(arguments: OpenArguments, unit: Unit, *, has_tables: bool) -> dict[str, TableSource]:
    """Return the protected tables that nothing declares, by name."""
    types = _parse_types(arguments.types)
    return {
        name: TableSource(
            rows,
            types or None,
            unit.key,
            bounds=arguments.bounds,
            keys=arguments.keys,
            window=unit.window,
            **arguments.file_options,
        )
        for name, rows in _name_tables(arguments.data, arguments.table, has_tables=has_tables).items()
    }


def _declared_sources(arguments: OpenArguments, unit: Unit, config: Config) -> dict[str, TableSource]:
    """Return the declared tables by name; types, bounds and keys that are passed as well win."""
    types = _parse_types(arguments.types)
    is_other_unit = arguments.override and arguments.unit is not None
    sources = {}
    for table in _declared_tables(arguments, config):
        is_asked = config.is_asked(table)
        sources[table.name] = TableSource(
            _first(table.table, table.path),
            {**table.types, **(types if is_asked else {})},
            unit.key if is_other_unit and not table.is_public else table.unit,
            table.is_public,
            {**table.bounds, **(arguments.bounds or {} if is_asked else {})},
            {**table.keys, **(arguments.keys or {} if is_asked else {})},
            None if table.is_public else unit.window,
            **replace(
                arguments,
                quotes=_first(arguments.quotes, table.quotes),
                encoding=_first(arguments.encoding, table.encoding),
                separator=_first(arguments.separator, table.separator),
                partitions=_first(arguments.partitions, table.partitions),
            ).file_options,
        )
    return sources


def _open_account(
    arguments: OpenArguments,
    unit: Unit,
    config: Config | None,
    engine: Engine,
    sources: Mapping[str, TableSource],
) -> OpenedSources:
    """Open the account of the ledger that pays for these rows."""
    protected = [name for name, source in sources.items() if not source.is_public]
    if arguments.account is None and config is None and len(protected) > 1:
        raise InvalidInput(
            "several protected tables are opened, and no {account} is named",
            why="one budget pays for all of them, whichever comes first",
            fix='pass {account="visits"}',
        )
    ledger_argument, secret = arguments.ledger, None if config is None else config.secret
    assert ledger_argument is not None
    name = arguments.account or protected[0]
    if arguments.budget is None and _is_missing_file(ledger_argument):
        raise missing_account_error(name, name)  # before a ledger is created that has no account
    ledger = (
        ledger_argument
        if isinstance(ledger_argument, Ledger)
        else Ledger.open(ledger_argument, secret=secret)
    )
    places = {name: engine.fingerprint(name) for name in sources}
    ledger.refuse_public({name: engine.identity(name) for name in sources if name not in protected})
    account = ledger.account(
        name,
        unit,
        arguments.budget,
        data={name: engine.identity(name) for name in protected},
        new_rows=arguments.new_rows,
        override=arguments.override,
    )
    has_version = arguments.version is not None
    origin = [
        _origin(name, source, places[name], is_versioned=has_version) for name, source in sources.items()
    ]
    return OpenedSources(
        engine,
        unit,
        account if arguments.analyst is None else account.for_analyst(arguments.analyst),
        arguments,
        origin,
        _declare_version(account, ", ".join(protected), arguments),
        None if ledger is ledger_argument else ledger,
    )


def _is_missing_file(ledger: Ledger | str | Path) -> bool:
    return not (isinstance(ledger, Ledger) or is_postgres_url(ledger) or resolve_path(ledger).exists())


def _declare_version(account: LedgerAccount, dataset: str, arguments: OpenArguments) -> str:
    """Record the version that the owner declares; return the latest."""
    if arguments.version is not None and arguments.analyst is None:
        account.record_version(arguments.version, dataset)
    latest = account.latest_version(dataset) or "1"
    if arguments.version not in {None, latest}:
        raise Refused(
            "the {version} is not the latest that was declared",
            why="only the owner declares a version: answers to the latest are repeated at no cost",
            fix="leave it out, or ask the owner",
        )
    return latest


def _origin(name: str, source: TableSource, place: Any, *, is_versioned: bool) -> list[Any]:
    """Return which rows are meant and how they are read, as far as that is known without reading them."""
    types = sorted((column, kind.value) for column, kind in (source.types or {}).items())
    if place is None:  # rows in memory: known by the owner's version, or else those of this opening only
        place = type(source.rows).__name__ if is_versioned else random_bytes(16).hex()
    read: Any = source.has_quotes if source.encoding == "utf-8" else [source.has_quotes, source.encoding]
    if source.separator is not None or source.partitions:
        read = [source.has_quotes, source.encoding, source.separator, *source.partitions]
    return [name, place, types, read, source.is_public, source.unit]


# What is handed in: files, frames, connections, addresses


def _name_tables(
    data: Any, table: str | Sequence[str] | Mapping[str, str] | None, *, has_tables: bool
) -> dict[str, Any]:
    """Return the protected tables by name; `has_tables` where `data` is a database."""
    if has_tables:
        if table is None:
            raise InvalidInput(
                "no {table} is named", why="a database may have many", fix='pass {table="visits"}'
            )
        if isinstance(table, Mapping):
            return dict(table)
        names = [table] if isinstance(table, str) else list(table)
        _refuse_duplicate_names([name.split(".")[-1] for name in names])
        return {name.split(".")[-1]: name for name in names}
    if is_table_mapping(data):
        return dict(data)
    name = _single_name(table)
    if name is None:
        name = name_of_file(data).split("*")[0].rstrip("_-.") if isinstance(data, (str, Path)) else "data"
    return {name or "data": data}


def _single_name(table: str | Sequence[str] | Mapping[str, str] | None) -> str | None:
    if table is None or isinstance(table, str):
        return table
    raise InvalidInput(
        "{table} names several tables",
        why="a file or a data frame is one table",
        fix="pass a mapping from names to data instead",
    )


def _refuse_duplicate_names(names: Sequence[str]) -> None:
    if len({name.lower() for name in names}) < len(names):
        raise InvalidInput(
            "two tables have the same name",
            why="queries could not tell them apart",
            fix="open them as separate datasets, or rename one",
        )


def _parse_types(types: Mapping[str, str] | None) -> dict[str, Any]:
    return {column: parse_kind(kind) for column, kind in (types or {}).items()}


def _first(*values: Any) -> Any:
    return next((value for value in values if value is not None), None)


# What may not be passed against a declaration


def _check_declaration(config: Config, unit: Unit, arguments: OpenArguments) -> None:
    """Refuse arguments that contradict the declaration; or record, before anything else, the override.

    Guarantee: who opens declared rows spends what the declaration says, from where it says; or an entry of
        the declared ledger says that its owner wanted otherwise.
    """
    contradictions = ", ".join(_contradictions(config, unit, arguments))
    if not contradictions:
        return
    if not arguments.override:
        raise Refused(
            f"{config.file} declares another {contradictions}",
            why="what the owner declared holds, so that one budget protects the rows as declared",
            fix="leave it out, or change the declaration; {override=True} ignores it, and is recorded",
        )
    payer, where = config.payer, config.ledger
    if payer is None or where is None:
        raise Refused(
            f"{config.file} declares another {contradictions}, and no ledger to record the override in",
            why="an override must be recorded",
            fix=f"change {config.file}",
        )
    declared = config.unit if config.window is None else replace(config.unit, window=unit.window)
    with Ledger.open(where, secret=config.secret) as ledger:
        ledger.account(payer, declared, config.budget).record_override(
            f"another {contradictions} than declared"
        )


def _contradictions(config: Config, unit: Unit, arguments: OpenArguments) -> Iterator[str]:
    """Yield the names of the arguments that are not as declared."""
    ledger, account, budget = arguments.ledger, arguments.account, arguments.budget
    is_same_key = (unit.key or "").lower() == (config.unit.key or "").lower()
    if not is_same_key or unit.neighbours != config.unit.neighbours:
        yield "unit"
    if ledger is not None and config.ledger is not None and not _is_same_ledger(ledger, config.ledger):
        yield "ledger"
    if account is not None and config.account is not None and account != config.account:
        yield "account"
    if budget is not None and config.budget is not None and budget != config.budget:
        yield "budget"
    population = arguments.population
    if population is not None and parse_integer(population, "population") < (config.population or 0):
        yield "population"  # of fewer people a larger δ would be allowed
    # A budget that is declared without a window is for all time: it is not each window's.
    is_divided = config.window is not None or config.budget is None
    if unit.window is not None and not (is_divided and config.window in {None, unit.window.column}):
        yield "window"


def _is_same_ledger(ledger: Ledger | str | Path, declared: str) -> bool:
    where = ledger.location if isinstance(ledger, Ledger) else str(ledger)
    return where == declared or (
        not (is_postgres_url(where) or is_postgres_url(declared))
        and resolve_path(where) == resolve_path(declared)
    )


def _check_owner_assertions(analyst: str | None, *, has_ledger: bool, **assertions: bool) -> None:
    """Refuse what only the owner may assert from others, and where no ledger would record it."""
    for name, is_asserted in assertions.items():
        if is_asserted and analyst is not None:
            raise Refused(
                f"{{{name}}} is passed on behalf of an analyst",
                why="only the owner may assert it",
                fix="ask the owner",
            )
        if is_asserted and not has_ledger:
            _refuse_without_ledger(**{name: True})


def _refuse_without_ledger(**arguments: Any) -> None:
    """Refuse what only a ledger keeps."""
    for name, value in arguments.items():
        if value is not None:
            raise InvalidInput(
                f"{{{name}}} is given without a ledger",
                why="accounts, analysts and versions are kept in a ledger",
                fix="pass a {ledger} too",
            )


def _refuse_declared_as_public(public: Mapping[str, Any]) -> None:
    """Refuse rows as public that a hubbub.toml declares as protected."""
    for name, rows in public.items():
        config = find_config(rows)
        table = (
            None
            if config is None
            else next((t for t in config.tables if t.name == config.opened_table), None)
        )
        if config is not None and table is not None and not table.is_public:
            raise _public_and_protected(name, f"{table.name} of {config.file}")


def _refuse_public_and_protected(engine: Engine, sources: Mapping[str, TableSource]) -> None:
    """Refuse rows that would be public and protected at once, by whatever names.

    Guarantee: no file, table, partition or object is opened as both.
    Assumes: rows that have no identity to compare, a copy or a view, are as the owner says.
    """
    identities = {name: engine.identity(name) for name in sources}
    for public, source in sources.items():
        for protected, other in sources.items():
            if not source.is_public or other.is_public:
                continue
            one, two = identities[public], identities[protected]
            is_same = one.overlaps(two) if one.names and two.names else _may_be_same(source.rows, other.rows)
            if is_same:
                raise _public_and_protected(public, protected)


def _may_be_same(rows: Any, others: Any) -> bool:
    """Return True for one object, and for two names that may be one, in full and in short."""
    if isinstance(rows, str) and isinstance(others, str):
        short, long = sorted((_name_parts(rows), _name_parts(others)), key=len)
        return long[-len(short) :] == short
    return rows is others


def _name_parts(name: str) -> list[str]:
    return [part.strip('"`').lower() for part in name.split(".")]


def _public_and_protected(public: str, protected: str) -> Refused:
    return Refused(
        f"{public} is passed as public, and has rows of {protected}, which is protected",
        why="public rows are shown as they are",
        fix="pass only public tables as public",
    )
