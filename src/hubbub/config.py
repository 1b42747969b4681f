"""`hubbub.toml`: the owner's declarations, beside the data. All of it is public, and none is taken from rows.

    population = 20000          # the number of people, if that is public
    rows_per_unit = 10          # how much one unit may contribute
    groups_per_unit = 4
    ledger = "visits.ledger"    # the ledger that records what is spent; or "postgresql://…"
    account = "visits"          # its account in that ledger; by default the table's name
    version = "2026-11"         # of the data: a query has one answer per version
    secret = "releases.key"     # encrypts the releases in the ledger
    window = "day"              # each period by this column has its own budget, for its own rows

    [budget]
    epsilon = 1
    delta = 1e-6                # above 1/1000 only with a population
    allow_large_epsilon = false # true confirms a large epsilon

    [about]                     # what only the owner knows, for the label: hubbub report
    use = "planning of wards"

    [server]                    # for hubbub serve: see docs/serve.md
    port = 8443

    [tables.visits]
    path = "visits.parquet"     # beside this file
    unit = "patient"            # or "row": one row is one person
    types = { day = "date" }
    bounds = { cost = [0, 5000] }
    keys = { region = ["North", "South"], ward = "1:12", town = "@towns.txt" }

    [tables.visits.synopsis]    # for hubbub synopsis: see docs/synopsis.md
    steps = { age = 1 }
    impossible = ["age < 15 AND marital = 'married'"]

    [tables.towns]
    path = "towns.csv"
    public = true               # a public table
    separator = ";"             # of a CSV file; by default as its header line shows
    encoding = "latin-1"        # by default UTF-8
    quotes = false              # every line of the file is a row, whatever it contains

    [tables.trips]
    path = "trips"              # a folder of Parquet files
    unit = "patient"
    partitions = ["year"]       # columns that are written in the names of its folders, as year=2026

Where the tables are in a database, the top says which, and their entries have no paths:

    url = "postgresql://analyst@db/clinic"   # the password is in ~/.pgpass, PGPASSWORD or a service file
    spark = "sc://cluster:15002"             # or a Spark session: an address, or a master such as "local[2]"
    database = "clinic.duckdb"               # or a DuckDB database, beside this file

    [tables.visits]
    table = "public.visits"     # its name there; by default that of the entry
    unit = "patient"

It is read strictly: unknown entries are refused, by the names of the file and the entry.
"""

import os
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from hubbub.accounting import Budget
from hubbub.config_values import ROW, drop_password, find_key_kind, parse_keys, parse_kind, read_key_texts
from hubbub.engines.csv_rows import make_csv_format
from hubbub.engines.data_identity import expand_pattern, identify_files
from hubbub.engines.file_endings import ENDINGS, find_format
from hubbub.engines.schema import Kind, parse_bounds, parse_group_keys
from hubbub.errors import HubbubError, InvalidInput
from hubbub.numbers import parse_integer
from hubbub.output_files import CONFIG_NAME, protect_paths
from hubbub.report.registry import ABOUT
from hubbub.unit import Unit

__all__ = ["CONFIG_NAME", "Config", "TableConfig", "read_config"]

_T = TypeVar("_T")
_DATABASES = ("url", "spark", "database")
"""Where tables are, if not in files."""
_TOP = (
    *_DATABASES,
    *("population", "rows_per_unit", "groups_per_unit", "max_rows_per_unit"),
    *("ledger", "secret", "account", "version", "window", "about", "budget", "tables", "server"),
)
_TABLE = (
    *("path", "table", "unit", "public", "types", "bounds", "keys"),
    *("separator", "quotes", "encoding", "partitions", "synopsis"),
)
_SYNOPSIS = {
    **dict.fromkeys(("columns", "nulls", "other", "impossible", "private_keys"), list),
    **dict.fromkeys(("cuts", "steps", "functions"), dict),
    "focus": str,
    "private_keys_share": Decimal,
}
"""Declarations for synopses, with their TOML types; their meaning is checked when one is planned."""


@dataclass(frozen=True)
class TableConfig:
    """One table: its location, its privacy unit, and the public facts about its columns."""

    name: str
    path: Any
    """A path, a pattern or a folder; or what was opened instead, where it is of the same rows."""
    unit: str | None = None
    """The column that says who is protected; None where each row is somebody, or nobody."""
    is_public: bool = False
    types: Mapping[str, Kind] = field(default_factory=dict)
    bounds: Mapping[str, Any] = field(default_factory=dict)
    keys: Mapping[str, Any] = field(default_factory=dict)
    quotes: bool = True
    """True if fields of a CSV file may be quoted."""
    encoding: str = "utf-8"
    """The encoding of a CSV file."""
    separator: str | None = None
    """The separator of a CSV file; None where its header line shows it."""
    partitions: tuple[str, ...] = ()
    """Columns that are written in the names of folders."""
    synopsis: Mapping[str, Any] = field(default_factory=dict)
    """Declarations for synopses, besides bounds and keys."""
    table: str | None = None
    """The table's name in a database; None for files."""

    @property
    def files(self) -> list[str]:
        """The files that hold the rows; none for a table of a database."""
        return [] if self.table is not None else expand_pattern(self.path)


@dataclass(frozen=True)
class Config:
    """The contents of a hubbub.toml."""

    tables: tuple[TableConfig, ...]
    population: int | None = None
    rows_per_unit: int | None = None
    groups_per_unit: int | None = None
    max_rows_per_unit: int | None = None
    """A fact, not a choice: no unit has more rows in any table."""
    budget: Budget | None = None
    ledger: str | None = None
    """A path, or the address of a database."""
    secret: str | None = None
    """The path of a secret that seals what is released."""
    account: str | None = None
    version: str | None = None
    window: str | None = None
    """The column by which time is divided into windows, each with a budget."""
    about: Mapping[str, str] = field(default_factory=dict)
    """The owner's statements for the label."""
    server: Mapping[str, Any] = field(default_factory=dict)
    """For `hubbub serve`, which checks it."""
    opened_table: str | None = None
    """The table that was asked for by its path; None where all were."""
    file: str = CONFIG_NAME
    """The file that declares it."""
    url: str | None = None
    """The PostgreSQL server that has the tables."""
    spark: str | None = None
    """The Spark session that has the tables: its address, or its master."""
    database: str | None = None
    """The DuckDB database that has the tables."""

    @property
    def unit(self) -> Unit:
        """The protected unit."""
        first = next(table for table in self.tables if not table.is_public)
        return Unit.row() if first.unit is None else Unit(first.unit)

    def promise(self, table: TableConfig | None) -> tuple[Any, ...]:
        """The protected unit and the payer: the same wherever rows are declared."""
        ledger = self.ledger
        if ledger is not None and not ledger.startswith(("postgresql://", "postgres://")):
            ledger = os.path.realpath(ledger)
        unit = () if table is None else (table.is_public, (table.unit or "").lower())
        return (*unit, ledger, self.payer, self.budget, self.window)

    @property
    def payer(self) -> str | None:
        """The account that pays for all tables; None without a ledger."""
        first = next(table for table in self.tables if not table.is_public)
        return None if self.ledger is None else self.account or first.name

    def rename_table(self, name: str | None) -> tuple[TableConfig, ...]:
        """Return the tables, with the one that was asked for under its new name, if one is passed."""
        if name is None:
            return self.tables
        if self.opened_table is None:
            raise InvalidInput(
                f"a table is named besides {CONFIG_NAME}",
                why="its tables have their names there",
                fix="leave the name out, or give the path of the table's file",
            )
        return tuple(
            replace(each, name=name) if each.name == self.opened_table else each for each in self.tables
        )

    def is_asked(self, table: TableConfig) -> bool:
        """Return whether the other arguments are about this table."""
        path = next((each.path for each in self.tables if each.name == self.opened_table), table.path)
        return not table.is_public and table.path is path


def read_config(path: str | Path) -> Config:
    """Read a hubbub.toml, and check everything that can be checked without the data."""
    file = Path(path)
    try:
        text = file.read_text(encoding="utf-8-sig")
        # A decimal means what is written: 0.1 is one tenth.
        stated = tomllib.loads(text, parse_float=Decimal)
    except (OSError, UnicodeDecodeError) as problem:
        why = getattr(problem, "strerror", None) or "it is not UTF-8"
        raise InvalidInput(
            f"{file} cannot be read",
            why=str(why).lower(),
            fix=f"write one with: hubbub init FILE, beside {file}",
        ) from None
    except tomllib.TOMLDecodeError as problem:
        raise InvalidInput(
            f"{file} is not TOML", why=str(problem).removesuffix("."), fix="correct it; see docs/queries.md"
        ) from None
    facts = _Reader(file).facts(stated)
    protect_paths(file, *(path for table in facts.tables for path in table.files))
    guarded = (facts.ledger, facts.secret, facts.database)
    protect_paths(*(path for path in guarded if path and "://" not in path))
    return facts


class _Reader:
    """Reads one file; errors name it."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def facts(self, stated: Mapping[str, Any]) -> Config:
        self._known(stated, _TOP, "")
        people = self._whole(stated, "population")
        tables = self._mapping(stated, "tables")
        databases = self._databases(stated)
        declared = tuple(self._table(name, tables, in_database=bool(databases)) for name in tables)
        protected = [table for table in declared if not table.is_public]
        if not protected:
            raise self._wrong(
                "tables", "has no protected table", "there is nobody to protect", "add one, with a unit"
            )
        self._refuse_public_and_protected(declared)
        if len({table.unit is None for table in protected}) > 1:
            raise self._wrong(
                "tables",
                "protects rows in one table and a column in another",
                "an account is for one unit",
                "name the unit's column in each, or open them apart",
            )
        return Config(
            declared,
            people,
            self._whole(stated, "rows_per_unit"),
            self._whole(stated, "groups_per_unit"),
            self._whole(stated, "max_rows_per_unit"),
            self._budget(stated, people),
            *self._read_ledger(stated),
            self._about(stated),
            self._mapping(stated, "server"),
            file=str(self._file),
            **databases,
        )

    def _databases(self, stated: Mapping[str, Any]) -> dict[str, str]:
        """Return where the tables are, if not in files."""
        places = {name: stated[name] for name in _DATABASES if name in stated}
        if len(places) > 1:
            raise self._wrong(
                " and ".join(places), "are given", "all tables are in one place", "take one of them away"
            )
        for name, value in places.items():
            if not isinstance(value, str) or not value.strip():
                raise self._wrong(name, "is not a text", "it is an address", f'write {name} = "…"')
            if name == "url" and not value.startswith(("postgresql://", "postgres://")):
                raise self._wrong(
                    name,
                    "is not an address of PostgreSQL",
                    "other databases are not supported",
                    'write "postgresql://…/db"',
                )
            if name == "url" and drop_password(value) != value:
                raise self._wrong(
                    name,
                    "contains a password",
                    "all of this file is public",
                    "put it in ~/.pgpass, in PGPASSWORD or in a service file",
                )
            if name == "database":
                path = self._file.parent / value
                if not path.is_file():
                    raise self._wrong(
                        name, "leads to no file", "paths are relative to this file", "correct it"
                    )
                places[name] = str(path)
        return places

    def _refuse_public_and_protected(self, tables: Sequence[TableConfig]) -> None:
        """Refuse a file that is both public and protected."""
        known = [(table, identify_files(table.files)) for table in tables]
        for public, files in known:
            for other, theirs in known:
                if public.is_public and not other.is_public and files.overlaps(theirs):
                    raise self._wrong(
                        f"tables.{public.name}",
                        f"is public, and has a file of tables.{other.name}, which is protected",
                        "what is public is shown as it is",
                        "take one of both away, or name the files in it that are nobody's",
                    )

    def _about(self, stated: Mapping[str, Any]) -> dict[str, str]:
        about = self._mapping(stated, "about")
        for name, text in about.items():
            if name not in ABOUT:
                fix = f"use one of: {', '.join(ABOUT)}"
                raise self._wrong(f"about.{name}", "is not known", "a label has fixed fields", fix)
            if not isinstance(text, str):
                raise self._wrong(f"about.{name}", "is not a text", "people read it", "write it in words")
        return dict(about)

    def _read_ledger(
        self, stated: Mapping[str, Any]
    ) -> tuple[str | None, str | None, str | None, str | None, str | None]:
        """Return the ledger, and the names in it."""
        names = ("ledger", "secret", "account", "version", "window")
        for name in names:
            value = stated.get(name)
            if value is not None and (not isinstance(value, str) or not value.strip()):
                raise self._wrong(name, "is not a text", "it is a name", f'write {name} = "visits"')
            if value is not None and name in {"secret", "account", "version"} and "ledger" not in stated:
                raise self._wrong(
                    name,
                    "is given without a ledger",
                    "only a ledger keeps it",
                    'add ledger = "visits.ledger"',
                )
        where, secret, account, version, window = (stated.get(name) for name in names)
        if where is not None and not where.startswith(("postgresql://", "postgres://")):
            where = str(self._file.parent / where)
        if secret is not None:
            secret = str(self._file.parent / secret)
        return where, secret, account, version, window

    def _budget(self, stated: Mapping[str, Any], people: int | None) -> Budget | None:
        if "budget" not in stated:
            return None
        budget = self._mapping(stated, "budget")
        self._known(budget, ("epsilon", "delta", "purpose", "allow_large_epsilon"), "budget.")
        for name in ("epsilon", "delta"):
            value = budget.get(name, 0)
            if isinstance(value, bool) or not isinstance(value, (int, Decimal)):
                raise self._wrong(
                    f"budget.{name}", "is not a number", "it is a cost", "write it as 1 or 1e-6"
                )
        if "epsilon" not in budget:
            raise self._wrong(
                "budget", "has no epsilon", "it is the most that may be spent", "add epsilon = 1"
            )
        return self._checked(
            "budget",
            lambda: Budget(
                budget["epsilon"],
                budget.get("delta", 0),
                population=people,
                purpose=budget.get("purpose", ""),
                allow_large_epsilon=budget.get("allow_large_epsilon", False),
            ),
        )

    def _table(self, name: str, tables: Mapping[str, Any], *, in_database: bool) -> TableConfig:
        entry = f"tables.{name}"
        entries = self._mapping(tables, name, "tables.")
        self._known(entries, _TABLE, f"{entry}.")
        is_public = entries.get("public", False)
        if not isinstance(is_public, bool):
            raise self._wrong(
                f"{entry}.public", "is not true or false", "it is one of both", "write public = true"
            )
        unit = entries.get("unit")
        if is_public and unit is not None:
            raise self._wrong(
                entry, "is public and has a unit", "a public table is nobody's", "take one of both away"
            )
        if not is_public and (not isinstance(unit, str) or not unit.strip()):
            raise self._wrong(
                f"{entry}.unit",
                "is missing, or not the name of a column",
                "without it nobody knows who is protected",
                f'write unit = "patient", or unit = "{ROW}" where one row is one person',
            )
        kinds = {
            column: self._checked(f"{entry}.types.{column}", partial(parse_kind, kind))
            for column, kind in self._mapping(entries, "types", f"{entry}.").items()
        }
        bounds = {
            column: self._bounds(f"{entry}.bounds.{column}", ends, column)
            for column, ends in self._mapping(entries, "bounds", f"{entry}.").items()
        }
        keys = {
            column: self._keys(f"{entry}.keys.{column}", values, column, kinds.get(column))
            for column, values in self._mapping(entries, "keys", f"{entry}.").items()
        }
        if is_public and (bounds or keys):
            raise self._wrong(
                entry, "is public and has bounds or keys", "its own rows say them", "take them away"
            )
        key = None if is_public or unit == ROW else unit
        where: dict[str, Any] = {
            "path": None if in_database else self._path(entry, entries),
            "table": self._table_name(name, entry, entries) if in_database else None,
        }
        self._refuse_misplaced(entry, entries, in_database=in_database)
        return TableConfig(
            name,
            unit=key,
            is_public=is_public,
            types=kinds,
            bounds=bounds,
            keys=keys,
            **where,
            **self._lines(entry, entries),
            partitions=self._partitions(entry, entries),
            synopsis=self._synopsis(entry, entries),
        )

    def _refuse_misplaced(self, entry: str, entries: Mapping[str, Any], *, in_database: bool) -> None:
        """Refuse what is not for files, or not for tables of a database: it would be ignored."""
        of_files = ("path", "separator", "quotes", "encoding", "partitions")
        for name in of_files if in_database else ("table",):
            if name in entries:
                raise self._wrong(
                    f"{entry}.{name}",
                    "is given for a table of a database" if in_database else "is given for files",
                    "it would be ignored",
                    'use table = "…", the name there'
                    if in_database
                    else f"take it away, or add {_DATABASES[0]}",
                )

    def _table_name(self, name: str, entry: str, entries: Mapping[str, Any]) -> str:
        table = entries.get("table", name)
        if not isinstance(table, str) or not table.strip():
            raise self._wrong(f"{entry}.table", "is not a text", "it is a name", 'write table = "visits"')
        return table

    def _partitions(self, entry: str, entries: Mapping[str, Any]) -> tuple[str, ...]:
        names = entries.get("partitions", [])
        if not isinstance(names, list) or not all(isinstance(name, str) and name.strip() for name in names):
            raise self._wrong(
                f"{entry}.partitions",
                "is not a list of names",
                "each is a column that folders are named by",
                'write partitions = ["year"]',
            )
        return tuple(names)

    def _synopsis(self, entry: str, entries: Mapping[str, Any]) -> Mapping[str, Any]:
        declared = self._mapping(entries, "synopsis", f"{entry}.")
        self._known(declared, tuple(_SYNOPSIS), f"{entry}.synopsis.")
        for name, value in declared.items():
            if not isinstance(value, _SYNOPSIS[name]):
                forms = {list: '["age"]', dict: "{ age = 1 }", str: '"age"', Decimal: "0.1"}
                why, fix = "it could not be understood", f"write it as {forms[_SYNOPSIS[name]]}"
                raise self._wrong(f"{entry}.synopsis.{name}", "is of another type", why, fix)
        return declared

    def _lines(self, entry: str, entries: Mapping[str, Any]) -> dict[str, Any]:
        """Return how a CSV file is read."""
        quotes, encoding = entries.get("quotes", True), entries.get("encoding", "utf-8")
        separator = entries.get("separator")
        if not isinstance(quotes, bool):
            raise self._wrong(
                f"{entry}.quotes", "is not true or false", "it is one of both", "write quotes = false"
            )
        for name, value, example in (("encoding", encoding, "latin-1"), ("separator", separator or ",", ";")):
            if not isinstance(value, str):
                raise self._wrong(
                    f"{entry}.{name}", "is not a text", "it is a name", f'write {name} = "{example}"'
                )
        at_fault = "separator" if encoding == "utf-8" else "encoding"
        options: dict[str, Any] = {"encoding": encoding, "separator": separator or ","}
        self._checked(f"{entry}.{at_fault}", lambda: make_csv_format(has_quotes=quotes, **options))
        return {"quotes": quotes, "encoding": encoding, "separator": separator}

    def _path(self, entry: str, entries: Mapping[str, Any]) -> str:
        path = entries.get("path")
        if not isinstance(path, str) or not path.strip():
            raise self._wrong(
                f"{entry}.path",
                "is missing, or not a text",
                "it says where the rows are",
                'write path = "visits.csv"',
            )
        full = str(self._file.parent / path)
        there = expand_pattern(full)
        if find_format(path) is None and not Path(full).is_dir():
            raise self._wrong(
                f"{entry}.path",
                "is in no format that is read",
                "its ending tells the format",
                f"use one that ends in {', '.join(ENDINGS)}; name a DuckDB database at the top, as database",
            )
        if not there or not all(Path(each).is_file() for each in there):
            raise self._wrong(
                f"{entry}.path",
                "leads to no file",
                "paths are relative to this file",
                "correct it, or take it away",
            )
        return full

    def _bounds(self, entry: str, ends: Any, column: str) -> Any:
        if isinstance(ends, list) and all(
            isinstance(end, (int, Decimal, date)) and not isinstance(end, bool) for end in ends
        ):
            parsed = self._checked(entry, lambda: parse_bounds(ends, column))
            # Dates as they are: they say how texts are read.
            return tuple(ends) if any(isinstance(end, date) for end in ends) else parsed
        raise self._wrong(
            entry,
            "is not a pair of numbers or dates",
            "values are clamped between two",
            "write it as [0, 100], or as [2026-01-01, 2026-12-31] without quotation marks",
        )

    def _keys(self, entry: str, keys: Any, column: str, kind: Kind | None) -> Any:
        if isinstance(keys, str):
            texts = self._checked(entry, lambda: read_key_texts(keys, column, self._file.parent))
            known = kind or (Kind.NUMBER if isinstance(texts, range) else Kind.TEXT)
            values: Iterable[Any] = self._checked(entry, lambda: parse_keys(texts, column, known))
        elif isinstance(keys, list):
            values = [float(value) if isinstance(value, Decimal) else value for value in keys]
        else:
            raise self._wrong(
                entry,
                "is not a list",
                "each key is one row of an answer",
                'write ["a", "b"], "0:99" or "@file.txt"',
            )
        listed = list(values)
        kinds = [each for each in {find_key_kind(value) for value in listed} if each is not None]
        if len(kinds) != 1 or any(find_key_kind(value) is None for value in listed):
            raise self._wrong(
                entry,
                "is empty, or has keys of several types",
                "they are of one column",
                "list keys of one type",
            )
        return self._checked(entry, lambda: parse_group_keys(listed, column, kind or kinds[0]))

    # The forms of entries

    def _known(self, entries: Mapping[str, Any], names: tuple[str, ...], before: str) -> None:
        for name in entries:
            if name not in names:
                where = f"write {name} above the first [section]; here, " if before and name in _TOP else ""
                raise self._wrong(
                    f"{before}{name}",
                    "is not known",
                    "ignoring it would change the guarantee",
                    f"{where}use one of: {', '.join(names)}",
                )

    def _mapping(self, entries: Mapping[str, Any], name: str, before: str = "") -> Mapping[str, Any]:
        value = entries.get(name, {})
        if not isinstance(value, dict):
            raise self._wrong(
                f"{before}{name}", "is not a table", "it has entries of its own", f"write [{before}{name}]"
            )
        return value

    def _whole(self, entries: Mapping[str, Any], name: str) -> int | None:
        value = entries.get(name)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int):
            raise self._wrong(name, "is not a whole number", "it is a count", f"write {name} = 10")
        return self._checked(name, lambda: parse_integer(value, name))

    def _checked(self, entry: str, make: Callable[[], _T]) -> _T:
        """Return the result of `make`; its errors name the file and the entry."""
        try:
            return make()
        except HubbubError as problem:
            # The file spells parameters as Python does, also where the shell reads it.
            what = f"{self._file}: in {entry}, {problem.what}"
            raise type(problem)(what, why=problem.why, fix=problem.fix) from None

    def _wrong(self, entry: str, what: str, why: str, fix: str) -> InvalidInput:
        return InvalidInput(f"{self._file}: {entry} {what}", why=why, fix=fix)
