"""Options of the commands that open data: which rows, for whom, who pays, and what is asked of them.

What opens data is imported where it is used, so that help is shown at once.
"""

import dataclasses
import inspect
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from hubbub.cli.name_completion import complete_column, complete_pair, complete_table
from hubbub.cli.options import (
    LargeEpsilon,
    Population,
    parse_above_zero,
    parse_bounds,
    parse_confidence,
    parse_count,
    parse_delta,
    parse_errors,
    parse_group_keys,
    parse_names,
    parse_public_tables,
    parse_separator,
    parse_types,
)
from hubbub.cli.terminal import print_note
from hubbub.engine_lookup import is_database, is_server
from hubbub.errors import InvalidInput

if TYPE_CHECKING:
    from hubbub.config import Config
    from hubbub.dataset import Dataset
    from hubbub.sql.composite_plan import AnyPlan
    from hubbub.unit import Window

__all__ = ["DatasetOptions", "QueryOptions", "with_options"]

Pairs = list[str] | None
"""NAME=VALUE, several times."""
_DATA, _LEDGER = "Data", "Ledger"
"""The panels of the help; what is asked of the data comes before them."""


@dataclass(frozen=True, kw_only=True)
class DatasetOptions:
    """Which data is opened, and which account pays: each field is a parameter of the commands."""

    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE",
            help="CSV, Parquet, JSON lines, a pattern such as 'visits_*.parquet', a folder of Parquet files, "
            "a database (DuckDB's file, postgresql://…, sc://…), a hubbub.toml, or https://… of a server.",
        ),
    ]
    keys: Annotated[
        Pairs,
        typer.Option(
            metavar="COL=A,B,C",
            help="Public group keys; or COL=0:99, COL=2026-11-01:2026-11-30, or COL=@FILE, one key per line.",
            autocompletion=complete_pair,
        ),
    ] = None
    allow_large_epsilon: LargeEpsilon = False
    unit: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN|row",
            help="The privacy unit: a column, or 'row' if each row is one person.",
            rich_help_panel=_DATA,
            autocompletion=complete_column,
        ),
    ] = None
    table: Annotated[
        Pairs,
        typer.Option(
            "--table",
            metavar="NAME[=FILE]",
            help="Name of the table in the query; of a database, its table, or NAME=TABLE; repeatable. "
            "NAME=FILE adds another protected table.",
            rich_help_panel=_DATA,
            autocompletion=complete_table,
        ),
    ] = None
    types: Annotated[
        Pairs,
        typer.Option(
            "--type",
            metavar="COL=TYPE",
            help="Type of a column: number, text, boolean, date or timestamp.",
            rich_help_panel=_DATA,
            autocompletion=complete_pair,
        ),
    ] = None
    public: Annotated[
        Pairs,
        typer.Option(metavar="NAME=FILE", help="A public table to join.", rich_help_panel=_DATA),
    ] = None
    encoding: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Encoding of CSV files, such as latin-1; UTF-8 if omitted.",
            rich_help_panel=_DATA,
        ),
    ] = None
    quotes: Annotated[
        bool | None,
        typer.Option(
            "--quotes/--no-quotes",
            help="Allow quoted CSV fields; with --no-quotes each line is a row, whatever is in it.",
            rich_help_panel=_DATA,
        ),
    ] = None
    separator: Annotated[
        str | None,
        typer.Option(
            metavar="CHAR",
            help="Between the fields of CSV files: , ; | or tab; as the header line shows if omitted.",
            rich_help_panel=_DATA,
        ),
    ] = None
    partitions: Annotated[
        str | None,
        typer.Option(
            metavar="COL[,COL]",
            help="Columns in the names of a folder's folders, such as year for year=2026.",
            rich_help_panel=_DATA,
            autocompletion=complete_column,
        ),
    ] = None
    window: Annotated[
        str | None,
        typer.Option(
            "--window",
            metavar="COL=PERIOD",
            help="Only the rows of a period, which has its own budget, such as day=2026-11.",
            rich_help_panel=_DATA,
        ),
    ] = None
    new_rows: Annotated[
        bool,
        typer.Option(
            "--new-rows",
            help="Owner only: assert that no other account pays for these rows.",
            rich_help_panel=_DATA,
        ),
    ] = False
    override: Annotated[
        bool,
        typer.Option(
            "--override",
            help="Owner only, recorded: ignore the unit, ledger, account or budget in hubbub.toml.",
            rich_help_panel=_DATA,
        ),
    ] = False
    ledger: Annotated[
        str | None,
        typer.Option(
            "--ledger",
            metavar="FILE",
            help="Ledger that records every charge: a file or postgresql://…",
            envvar="HUBBUB_LEDGER",
            rich_help_panel=_LEDGER,
        ),
    ] = None
    account: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Account of the ledger; named after the table if omitted.",
            rich_help_panel=_LEDGER,
        ),
    ] = None
    analyst: Annotated[
        str | None,
        typer.Option(
            "--analyst",
            metavar="NAME",
            help="Analyst who asks, with a budget granted by the owner.",
            rich_help_panel=_LEDGER,
        ),
    ] = None
    version: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Version of the data: each query has one answer per version.",
            rich_help_panel=_LEDGER,
        ),
    ] = None

    @property
    def table_name(self) -> str | None:
        """The first table that is named, by its name in queries; None if none is."""
        return next(iter(self._tables()), None)

    def _tables(self) -> dict[str, str | None]:
        """What each name leads to; None if it is but a name."""
        tables: dict[str, str | None] = {}
        for text in self.table or ():
            name, _, where = (part.strip() for part in text.partition("="))
            if not name or (not where and "=" in text):
                raise InvalidInput(
                    f"--table {text} is not of the form NAME or NAME=FILE",
                    why="queries name a table, which is in a file or a database",
                    fix="write --table visits, or --table people=people.parquet",
                )
            short = name if where else name.rpartition(".")[2]
            tables[short] = where or (name if is_database(self.file) else None)
        return tables

    def _data_and_table(self) -> tuple[Any, Any]:
        """What is opened, and under which names."""
        tables = self._tables()
        if is_database(self.file):
            return self.file, tables or None
        others = {name: where for name, where in tables.items() if where is not None}
        names = [name for name, where in tables.items() if where is None]
        if len(names) > 1 or (others and Path(self.file).suffix == ".toml"):
            raise InvalidInput(
                "--table names several tables",
                why="FILE is one table" if len(names) > 1 else "a hubbub.toml declares all of its tables",
                fix="write --table NAME=FILE for each further table"
                if len(names) > 1
                else "declare them there",
            )
        name = names[0] if names else None
        if not others:
            return self.file, name
        from hubbub.engines.file_endings import name_of_file

        return {name or name_of_file(self.file): self.file, **others}, None

    def find_config(self) -> "Config | None":
        """The declaration of what is opened, if there is one."""
        from hubbub.config_lookup import find_config

        return None if is_server(self.file) else find_config(self._data_and_table()[0])

    def open_dataset(self, *, population: str | None = None) -> "Dataset":
        """Open the data, or connect to the server that holds it; no row is read."""
        import hubbub

        if is_hubbub_server(self.file):
            _refuse_beside_server(self, population)
            return hubbub.connect(self.file)  # type: ignore[return-value] # the same interface
        declared = self.find_config()
        if self.unit is None and declared is None:
            raise InvalidInput(
                "--unit is missing",
                why="it says who is protected",
                fix="add --unit with the column that identifies people, or --unit row if each row is one "
                "person; hubbub init declares it once",
            )
        data, table = self._data_and_table()
        dataset = hubbub.open(
            data,
            unit=self.unit,
            table=table,
            types={name: kind.value for name, kind in parse_types(self.types or ()).items()},
            public=parse_public_tables(self.public or (), in_database=is_database(self.file)),
            population=None if population is None else parse_count(population, "population"),
            ledger=self.ledger,
            account=self.account,
            analyst=self.analyst,
            version=self.version,
            window=None if self.window is None else _parse_window(self.window, declared),
            new_rows=self.new_rows,
            override=self.override,
            encoding=self.encoding,
            separator=None if self.separator is None else parse_separator(self.separator),
            partitions=None if self.partitions is None else parse_names(self.partitions),
            quotes=self.quotes,
        )
        for note in dataset.notes:
            print_note(note)
        return dataset


@dataclass(frozen=True, kw_only=True)
class QueryOptions(DatasetOptions):
    """What a query asks, what it may cost, and how contributions are bounded."""

    sql: Annotated[
        str, typer.Argument(metavar="SQL", help="One SELECT statement; the table is named after the file.")
    ]
    epsilon: Annotated[
        str | None, typer.Option(metavar="E", help="Privacy cost ε of the whole query, such as 0.5 or 1/2.")
    ] = None
    delta: Annotated[
        str | None,
        typer.Option(metavar="D", help="Additive slack δ; required if group keys are selected privately."),
    ] = None
    error: Annotated[
        Pairs,
        typer.Option(
            "--error",
            metavar="NAME=WIDTH",
            help="Target half-width, such as n=50: finds the least ε that keeps it.",
        ),
    ] = None
    bounds: Annotated[
        Pairs,
        typer.Option(
            metavar="COL=LO:HI",
            help="Public bounds, to clamp values; COL=auto estimates them privately.",
            autocompletion=complete_pair,
        ),
    ] = None
    rows_per_unit: Annotated[
        str | None,
        typer.Option(metavar="N", help="Maximum rows per privacy unit; estimated privately if omitted."),
    ] = None
    groups_per_unit: Annotated[
        str | None, typer.Option(metavar="N", help="Maximum groups per privacy unit.")
    ] = None
    rows_per_group: Annotated[
        str | None, typer.Option(metavar="N", help="Maximum rows per privacy unit in each group.")
    ] = None
    population: Population = None
    confidence: Annotated[str, typer.Option(metavar="C", help="Confidence level of the intervals.")] = "0.95"
    bounding_report: Annotated[
        bool,
        typer.Option(
            "--bounding-report", help="Spend ε/10 to measure how many units exceed a contribution bound."
        ),
    ] = False
    no_intervals: Annotated[
        bool,
        typer.Option(
            "--no-intervals",
            help="Answers without intervals; medians and other quantiles then use all of ε.",
        ),
    ] = False

    def make_plan(self, data: "Dataset") -> "AnyPlan":
        """Plan the query; nothing is spent."""
        if self.epsilon is not None and self.error:
            raise InvalidInput(
                "both --epsilon and --error are given",
                why="each determines the other",
                fix="give exactly one of --epsilon and --error",
            )
        plan = data.sql(
            self.sql,
            epsilon=None if self.epsilon is None else parse_above_zero(self.epsilon, "epsilon"),
            delta=None if self.delta is None else parse_delta(self.delta),
            error=parse_errors(self.error) if self.error else None,
            rows_per_unit=_parse_limit(self.rows_per_unit, "rows_per_unit"),
            groups_per_unit=_parse_limit(self.groups_per_unit, "groups_per_unit"),
            rows_per_group=_parse_limit(self.rows_per_group, "rows_per_group"),
            bounds=parse_bounds(self.bounds or (), self.sql),
            keys=parse_group_keys(self.keys or (), data.tables),
            confidence=parse_confidence(self.confidence),
            bounding_report=self.bounding_report,
            intervals=not self.no_intervals,
            allow_large_epsilon=self.allow_large_epsilon,
        )
        str(plan)  # what cannot be measured is refused now, not after the charge
        return plan


_Options = TypeVar("_Options", bound=DatasetOptions)


def with_options(
    options: type[_Options], *, without: Collection[str] = ()
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Make a command of a function that takes all options as one object, before parameters of its own.

    Typer reads a signature: it becomes FILE, the fields of `options` itself, the function's own parameters,
    and then the fields that `options` inherits.

    Args:
        options: the class of the object; its fields become parameters.
        without: fields that this command does not have.
    """
    shared = [field for field in dataclasses.fields(options) if field.name not in without]
    parameters = [
        inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=inspect.Parameter.empty if field.default is dataclasses.MISSING else field.default,
            annotation=field.type,
        )
        for field in shared
    ]
    first, rest = parameters[:1], parameters[1:]
    own_fields = [each for each in rest if each.name in options.__annotations__]
    others = [each for each in rest if each.name not in options.__annotations__]

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        own = list(inspect.signature(command).parameters.values())[1:]

        def run(**values: Any) -> None:
            command(options(**{field.name: values.pop(field.name) for field in shared}), **values)

        signature = [*first, *own_fields, *own, *others]
        run.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
            [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in signature]
        )
        run.__annotations__ = {each.name: each.annotation for each in signature}
        run.__name__, run.__doc__ = command.__name__, command.__doc__
        return run

    return decorate


def is_hubbub_server(file: str) -> bool:
    """Return whether the address of a server was typed in place of a file."""
    return file.startswith(("https://", "http://"))


def _refuse_beside_server(options: DatasetOptions, population: str | None) -> None:
    """Refuse options that describe data: the server's owner declared it."""
    if not isinstance(options, QueryOptions):
        raise InvalidInput(
            "a server is named",
            why="this command needs the data, and a server only answers queries",
            fix="run it on the machine that has the data",
            parameter="file",
        )
    names = ("unit", "table", "types", "public", "encoding", "separator", "partitions", "quotes", "window")
    for name in (*names, "new_rows", "override", "account", "analyst", "version", "population"):
        if population if name == "population" else getattr(options, name):
            raise InvalidInput(
                f"{{{name}}} is given for a server", why="its owner declared the data", fix="leave it out",
                parameter=name,
            )  # fmt: skip


def _parse_limit(text: str | None, name: str) -> int | None:
    return None if text is None else parse_count(text, name)


def _parse_window(text: str, declared: "Config | None") -> "Window | str":
    """A period of the declared column, or a column and a period: day=2026-11."""
    column, equals, period = text.partition("=")
    if not equals and (declared is None or declared.window is None):
        raise InvalidInput(
            "--window has no column",
            why="a date in each row decides which window it is in",
            fix="write --window day=2026-11, or declare window in hubbub.toml",
        )
    from hubbub.unit import Window

    return Window.of(column, period) if equals else text
