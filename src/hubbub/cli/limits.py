"""`hubbub limits`: measure rows and groups per unit once, so that later queries need no search."""

from typing import Annotated

import typer

from hubbub.cli.options import parse_above_zero, parse_group_keys
from hubbub.cli.query import (
    Account,
    Analyst,
    Encoding,
    File,
    Keys,
    LargeEpsilon,
    LedgerAddress,
    NewRows,
    Override,
    PrivacyUnit,
    QueryOptions,
    Quotes,
    TableName,
    Types,
    Version,
    WindowPeriod,
)
from hubbub.cli.results import show_status
from hubbub.cli.terminal import print_line
from hubbub.numbers import format_up
from hubbub.report.tables import DIGITS

__all__ = ["limits"]

LimitsEpsilon = Annotated[str, typer.Option(metavar="E", help="Privacy cost ε of all limits together.")]
By = Annotated[
    list[str] | None,
    typer.Option(metavar="COL[,COL]", help="Measure groups per unit by these columns, too; repeatable."),
]


def limits(
    file: File,
    epsilon: LimitsEpsilon,
    unit: PrivacyUnit = None,
    table: TableName = None,
    by: By = None,
    keys: Keys = None,
    types: Types = None,
    encoding: Encoding = None,
    quotes: Quotes = None,
    ledger: LedgerAddress = None,
    account: Account = None,
    analyst: Analyst = None,
    version: Version = None,
    window: WindowPeriod = None,
    new_rows: NewRows = False,
    override: Override = False,
    allow_large_epsilon: LargeEpsilon = False,
) -> None:
    """Measure how many rows and groups units have, once: later queries find their limits at no cost.

    The ledger keeps what is measured; without one it is only shown. See docs/queries.md.

    \b
    hubbub limits visits.parquet --unit patient --epsilon 0.2 --by region --by reason
    """  # noqa: D301 - the mark that keeps lines is a real \b
    options = QueryOptions(
        file=file,
        sql="",
        unit=unit,
        table=table,
        epsilon=epsilon,
        delta=None,
        error=None,
        bounds=None,
        keys=keys,
        contribution_bounds=(None, None, None),
        types=types,
        public=None,
        population=None,
        confidence="0.95",
        no_intervals=False,
        bounding_report=False,
        window=window,
        new_rows=new_rows,
        override=override,
        encoding=encoding,
        quotes=quotes,
        allow_large_epsilon=allow_large_epsilon,
        ledger=ledger,
        account=account,
        analyst=analyst,
        version=version,
    )
    with options.open_dataset() as data:
        price = parse_above_zero(epsilon, "epsilon")
        columns = [[name.strip() for name in each.split(",")] for each in by or ()]
        known = parse_group_keys(keys or (), data.tables)
        with show_status() as progress:
            release = data.limits(
                epsilon=price,
                by=columns,
                table=table,
                keys=known,
                allow_large_epsilon=allow_large_epsilon,
                progress=progress,
            )
        print_line(str(release.value))
        print_line(f"spent: ε = {format_up(price, DIGITS)} for {data.unit}")
        kept = "the ledger keeps them for later queries" if data.has_ledger else "use a ledger to keep them"
        print_line(f"limits are for one count with ε = 1, each query chooses its own; {kept}")
