"""`hubbub synopsis` and `hubbub synthesize`: tables measured once, and synthetic rows."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from hubbub.cli.dataset_options import DatasetOptions, QueryOptions, with_options
from hubbub.cli.options import (
    Population,
    parse_above_zero,
    parse_bounds,
    parse_confidence,
    parse_count,
    parse_delta,
    parse_group_keys,
    parse_number,
    parse_pairs,
)
from hubbub.cli.results import show_result, show_status
from hubbub.cli.terminal import FormatOption, OutputFormat, print_line, show_outcome
from hubbub.errors import InvalidInput
from hubbub.numbers import format_up
from hubbub.output_files import check_output_path, write_output
from hubbub.report.text_tables import DIGITS

if TYPE_CHECKING:
    from hubbub.dataset import Dataset
    from hubbub.synthesis.synopsis_plan import SynopsisPlan
    from hubbub.synthesis.synthesis import SynthesisPlan

__all__ = ["ENDING", "answer_from_synopsis", "synopsis", "synthesize"]

ENDING = ".synopsis"
_FOR_DATA = (
    *("epsilon", "delta", "error", "unit", "account", "analyst", "version", "keys", "bounds"),
    *("rows_per_unit", "groups_per_unit", "rows_per_group", "population", "bounding_report", "no_intervals"),
    *(
        "table",
        "types",
        "public",
        "encoding",
        "separator",
        "partitions",
        "window",
        "new_rows",
        "override",
        "allow_large_epsilon",
    ),
)
"""Options that mean nothing for a file of released tables."""


@dataclass(frozen=True, kw_only=True)
class DeclarationOptions(DatasetOptions):
    """What is declared of the columns: all of it is public."""

    columns: Annotated[
        str | None,
        typer.Option(
            metavar="COL,COL", help="The columns to use, all of them declared; every column if omitted."
        ),
    ] = None
    bounds: Annotated[list[str] | None, typer.Option(metavar="COL=LO:HI", help="Public bounds.")] = None
    cuts: Annotated[
        list[str] | None, typer.Option(metavar="COL=A:B:C", help="Where bins begin, such as age=18:65.")
    ] = None
    steps: Annotated[
        list[str] | None,
        typer.Option("--step", metavar="COL=STEP", help="Values are multiples of a step, such as age=1."),
    ] = None
    nulls: Annotated[str | None, typer.Option(metavar="COL,COL", help="Columns with a cell for NULL.")] = None
    other: Annotated[
        str | None, typer.Option(metavar="COL,COL", help="Columns with a cell for undeclared categories.")
    ] = None
    impossible: Annotated[
        list[str] | None,
        typer.Option(metavar="CONDITION", help="A condition that no row satisfies; repeatable."),
    ] = None
    focus: Annotated[str | None, typer.Option(metavar="COL", help="The column that people group by.")] = None
    private_keys: Annotated[
        str | None,
        typer.Option(
            metavar="COL,COL",
            help="Columns with categories that are selected privately, for a tenth of ε and δ.",
        ),
    ] = None
    rows_per_unit: Annotated[str | None, typer.Option(metavar="N", help="Maximum rows per privacy unit.")] = (
        None
    )
    population: Population = None

    def declarations(self, data: "Dataset") -> dict[str, Any]:
        """The arguments of `plan_synopsis` and `plan_synthesis` that both share."""
        bounds = self.bounds or []
        limit = None if self.rows_per_unit is None else parse_count(self.rows_per_unit, "rows_per_unit")
        steps = {
            name: parse_above_zero(text, f"step of {name}")
            for name, text in parse_pairs(self.steps or (), "--step", "age=1")
        }
        return {
            "focus": self.focus,
            "columns": _parse_names(self.columns),
            "cuts": _parse_cuts(self.cuts),
            "steps": steps or None,
            "nulls": _parse_names(self.nulls),
            "other": _parse_names(self.other),
            "impossible": self.impossible,
            "bounds": parse_bounds(bounds, " ".join(bounds)) or None,
            "keys": parse_group_keys(self.keys or (), data.tables) or None,
            "private_keys": _parse_names(self.private_keys),
            "rows_per_unit": limit,
            "table": self.table_name,
            "allow_large_epsilon": self.allow_large_epsilon,
        }


@dataclass(frozen=True, kw_only=True)
class SynopsisOptions(DeclarationOptions):
    """What a synopsis measures, and what it may cost."""

    epsilon: Annotated[str, typer.Option(metavar="E", help="Privacy cost ε of the whole synopsis.")]
    delta: Annotated[str, typer.Option(metavar="D", help="Additive slack δ, such as 1e-6.")]
    workload: Annotated[
        str | None,
        typer.Option(
            metavar="K|TABLES",
            help="All tables of at most K columns; or tables such as 'age,sex;region'. Without it, K is 3 "
            "for few columns and cells, otherwise 2.",
        ),
    ] = None
    ranges: Annotated[
        list[str] | None,
        typer.Option("--range", metavar="COL=STEP", help="Range queries and quantiles on a grid of steps."),
    ] = None
    objective: Annotated[
        str,
        typer.Option(metavar="tables|cells|worst", help="Which error is made least."),
    ] = "tables"

    def make_plan(self, data: "Dataset") -> "SynopsisPlan":
        """Plan the synopsis; nothing is spent."""
        return data.plan_synopsis(
            _parse_workload(self.workload),
            epsilon=parse_above_zero(self.epsilon, "epsilon"),
            delta=parse_delta(self.delta),
            ranges={
                name: parse_above_zero(text, f"step of {name}")
                for name, text in parse_pairs(self.ranges or (), "--range", "cost=10")
            },
            objective=cast("Any", self.objective),  # the library refuses others
            **self.declarations(data),
        )


SynopsisOutput = Annotated[
    Path | None,
    typer.Option(metavar="FILE.synopsis", help="Where it is written; without it, only the plan is shown."),
]
Again = Annotated[bool, typer.Option("--again", help="If it failed before: charge it again and run it.")]


@with_options(SynopsisOptions)
def synopsis(
    options: SynopsisOptions,
    output: SynopsisOutput = None,
    again: Again = False,
    form: FormatOption = OutputFormat.TEXT,
) -> None:
    """Measure tables once, so that later questions cost nothing: `hubbub query FILE.synopsis SQL`.

    Categories, bounds and rules are public: they are declared here or in a hubbub.toml, and never read from
    the rows. Without --output the errors are shown and nothing is spent. See docs/synopsis.md.

    \b
    hubbub synopsis people.csv --unit row --epsilon 1 --delta 1e-6 --keys region=North,South sex=f,m \\
        --bounds age=0:99 --step age=1 --output people.synopsis
    """  # noqa: D301 - the mark that keeps lines is a real \b
    if output is not None:
        check_output_path(output, [ENDING])
    with options.open_dataset(population=options.population) as data:
        if output is not None:
            check_output_path(output, [ENDING])  # now that it is known which files are data
        plan = options.make_plan(data)
        if form is OutputFormat.TEXT:
            print_line(str(plan))
        if output is None:
            advice = "nothing spent; add --output FILE.synopsis to measure it"
            show_outcome(form, {**_describe_cost(plan), "output": None}, advice)
            return
        with show_status() as progress:
            release = data.run_synopsis(plan, progress, again=again)
        release.value.save(output)
        text = f"{_spent(plan, data)}\nwritten to {output}; ask it with: hubbub query {output} SQL"
        show_outcome(form, {**_describe_cost(plan), "output": str(output)}, text)


def answer_from_synopsis(options: QueryOptions, form: str, output: Path | None) -> None:
    """Answer a query from a saved synopsis."""
    from hubbub.synthesis.synopsis import Synopsis
    from hubbub.synthesis.synthesis import open_synopsis

    defaults = {name: QueryOptions.__dataclass_fields__[name].default for name in _FOR_DATA}
    passed = [name for name in _FOR_DATA if getattr(options, name) not in (defaults[name], None)]
    if passed:
        raise InvalidInput(
            f"--{passed[0].replace('_', '-')} is given for a synopsis",
            why="its tables are released: asking costs nothing, and no row is read",
            fix="leave it out",
        )
    content = open_synopsis(options.file)
    if not isinstance(content, Synopsis):
        raise InvalidInput(
            "the file holds a model for synthetic rows, and no measured tables to ask",
            why="the errors of its answers are not known",
            fix="make a synopsis of the data with hubbub synopsis, or make rows with hubbub synthesize",
        )
    result = content.sql(options.sql, confidence=parse_confidence(options.confidence))
    show_result(result, ["nothing spent: computed from a synopsis"], form, output)


def _parse_names(text: str | None) -> list[str] | None:
    return None if text is None else [name.strip() for name in text.split(",") if name.strip()]


def _parse_workload(text: str | None) -> Any:
    if text is None:
        return None
    if text.strip().isdecimal():
        return int(text)
    return [_parse_names(table) or () for table in text.split(";")]


def _parse_cuts(texts: list[str] | None) -> dict[str, list[Any]] | None:
    if not texts:
        return None
    cuts: dict[str, list[Any]] = {}
    for name, text in parse_pairs(texts, "--cuts", "age=18:65"):
        ends = [each.strip() for each in text.split(":")]
        # Dates have two dashes; the library reads them.
        cuts[name] = [
            each if each.count("-") > 1 else parse_number(each, f"a cut of {name}") for each in ends
        ]
    return cuts


@dataclass(frozen=True, kw_only=True)
class SynthesisOptions(DeclarationOptions):
    """What synthetic rows are made from, and what they may cost."""

    epsilon: Annotated[
        str | None, typer.Option(metavar="E", help="Privacy cost ε; from a .synopsis nothing is spent.")
    ] = None
    delta: Annotated[str | None, typer.Option(metavar="D", help="Additive slack δ, such as 1e-6.")] = None
    rows: Annotated[
        str | None, typer.Option(metavar="N", help="Number of rows; as many as were measured if omitted.")
    ] = None


RowsOutput = Annotated[
    Path, typer.Option(metavar="FILE", help="Where the rows are written: .csv, .parquet or .json.")
]
SaveOption = Annotated[
    Path | None,
    typer.Option("--save", metavar="FILE.synopsis", help="Keep the model, too: more rows cost nothing."),
]
MetadataOption = Annotated[
    Path | None,
    typer.Option(
        "--metadata", metavar="FILE.json", help="Describe the columns, too, as SDV's metadata does."
    ),
]


@with_options(SynthesisOptions)
def synthesize(
    options: SynthesisOptions,
    output: RowsOutput,
    save: SaveOption = None,
    metadata: MetadataOption = None,
    again: Again = False,
    form: FormatOption = OutputFormat.TEXT,
) -> None:
    """Make synthetic rows: from a .synopsis at no cost, or from data for --epsilon and --delta.

    The rows are made up, and follow the declared rules. See docs/synopsis.md.

    \b
    hubbub synthesize people.synopsis --rows 100000 --output synthetic.csv
    hubbub synthesize people.csv --unit row --epsilon 1 --delta 1e-6 --keys region=North,South sex=f,m \\
        --bounds age=0:99 --step age=1 --output synthetic.parquet
    """  # noqa: D301 - the mark that keeps lines is a real \b
    endings = [".csv", ".parquet", ".pq", ".json"]
    check_output_path(output, endings)
    if metadata is not None:
        check_output_path(metadata, [".json"])
    rows = None if options.rows is None else parse_count(options.rows, "rows")
    if Path(options.file).suffix.lower() == ENDING:
        from hubbub.synthesis.synthesis import open_synopsis

        if options.epsilon is not None or options.delta is not None or options.unit is not None:
            raise InvalidInput(
                "--epsilon, --delta or --unit is given for a synopsis",
                why="its tables are released: making rows costs nothing, and no data is read",
                fix="leave it out",
            )
        content = open_synopsis(options.file)
        content.synthetic(rows).write(output)
        _write_metadata(content.metadata(), metadata)
        facts = {"epsilon": "0", "delta": "0", "output": str(output)}
        show_outcome(form, facts, f"nothing spent; written to {output}")
        return
    if options.epsilon is None or options.delta is None:
        raise InvalidInput(
            "--epsilon or --delta is missing",
            why="tables of the data are measured with noise, which has a price",
            fix="add --epsilon 1 --delta 1e-6, or make the rows from a .synopsis",
        )
    with options.open_dataset(population=options.population) as data:
        for path, allowed in ((output, endings), (save, [ENDING]), (metadata, [".json"])):
            if path is not None:
                check_output_path(path, allowed)  # now that it is known which files are data
        plan = data.plan_synthesis(
            epsilon=parse_above_zero(options.epsilon, "epsilon"),
            delta=parse_delta(options.delta),
            **options.declarations(data),
        )
        with show_status() as progress:
            synthesis = data.run_synthesis(plan, progress, again=again).value
        if save is not None:
            synthesis.save(save)
        synthesis.synthetic(rows).write(output)
        _write_metadata(synthesis.metadata(), metadata)
        facts = {**_describe_cost(plan), "output": str(output)}
        show_outcome(form, facts, f"{_spent(plan, data)}\nwritten to {output}")


def _describe_cost(plan: "SynopsisPlan | SynthesisPlan") -> dict[str, Any]:
    return {"epsilon": format_up(plan.epsilon), "delta": format_up(plan.delta)}


def _spent(plan: "SynopsisPlan | SynthesisPlan", data: "Dataset") -> str:
    price = f"ε = {format_up(plan.epsilon, DIGITS)} at δ = {format_up(plan.delta, DIGITS)}"
    return f"spent: {price}, as {plan.loss}, for {data.unit}"


def _write_metadata(description: dict[str, Any], path: Path | None) -> None:
    if path is not None:
        write_output(path, json.dumps(description, indent=2, ensure_ascii=False) + "\n", (".json",))
