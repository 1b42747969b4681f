"""`hubbub demo`: private SQL on a made-up hospital, then three examples of the textbook.

The visits are a fixed function of the patient's number, by integer arithmetic, the same on every machine:
nothing about the table is random, and nobody was ever in it.
"""

import shutil
from collections.abc import Iterator
from itertools import islice, product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated

import numpy as np
import typer
from numpy.typing import NDArray
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from hubbub.cli.terminal import escaped, print_line
from hubbub.errors import InvalidInput
from hubbub.mechanisms import Laplace, PermuteAndFlip, RandomizedResponse
from hubbub.noise import bernoulli, geometric
from hubbub.sensitivity import Bounded, Sensitivity
from hubbub.textbook import histogram
from hubbub.unit import Unit

if TYPE_CHECKING:
    from hubbub.sql.result import Result

__all__ = ["PATIENTS", "REGIONS", "demo", "write_visits"]

PATIENTS = 20_000
REGIONS = ("North", "South", "East", "West")
_REASONS = ("injury", "fever", "back pain", "check-up", "birth", "heart", "allergy", "migraine")
_SHARES = {"region": (34, 28, 22, 16), "reason": (24, 20, 17, 14, 9, 8, 5, 3)}
"""In percent."""


def write_visits(path: Path) -> int:
    """Write the table as Parquet (patient, day, region, reason, age, cost); return the number of visits."""
    import duckdb

    columns = _make_visits()
    visits = len(columns["patient"])
    connection = duckdb.connect(":memory:")
    connection.register("made", columns)
    connection.execute("CREATE TABLE words AS SELECT $regions AS regions, $reasons AS reasons", {
        "regions": list(REGIONS), "reasons": list(_REASONS),
    })  # fmt: skip
    connection.sql(
        "SELECT patient, DATE '2024-01-01' + CAST(day AS INTEGER) AS day, regions[region + 1] AS region, "
        "reasons[reason + 1] AS reason, age, cost FROM made, words ORDER BY day, patient"
    ).write_parquet(str(path))
    connection.close()
    return visits


def _make_visits() -> dict[str, NDArray[np.int64]]:
    person = np.arange(PATIENTS, dtype=np.uint64)
    # At least one visit, each further one half as likely; a few patients come every week.
    often = 1 + _trailing_zeros(_mix(person, 1)) + np.where(_draw_below(person, 2, 400) == 0, 30, 0)
    patient = np.repeat(person, often)
    visit = np.arange(len(patient), dtype=np.uint64)
    region = _choose(_draw_below(patient, 3, 100), _SHARES["region"])
    reason = _choose(_draw_below(visit, 4, 100), _SHARES["reason"])
    age = np.minimum(_draw_below(patient, 5, 60) + _draw_below(patient, 6, 45), 99)
    # Skewed to low costs; higher with age, and a little by region.
    cost = 40 + _draw_below(visit, 7, 60) * _draw_below(visit, 8, 60) + 6 * age + 55 * region
    return {
        "patient": patient.astype(np.int64) + 100_000,
        "day": _draw_below(visit, 9, 366),
        "region": region,
        "reason": reason,
        "age": age,
        "cost": cost,
    }


def _mix(numbers: NDArray[np.uint64], stream: int) -> NDArray[np.uint64]:
    """SplitMix64: a fixed hash of each number."""
    with np.errstate(over="ignore"):
        mixed = (numbers + np.uint64(stream) * np.uint64(1 << 32)) * np.uint64(0x9E3779B97F4A7C15)
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))


def _draw_below(numbers: NDArray[np.uint64], stream: int, most: int) -> NDArray[np.int64]:
    return (_mix(numbers, stream) % np.uint64(most)).astype(np.int64)


def _choose(hundredths: NDArray[np.int64], shares: tuple[int, ...]) -> NDArray[np.int64]:
    return np.searchsorted(np.cumsum(shares), hundredths, side="right").astype(np.int64)


def _trailing_zeros(numbers: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Return how often each number can be halved, at most 9 times."""
    count = np.zeros(len(numbers), dtype=np.int64)
    for power in range(1, 10):
        count += (numbers % np.uint64(1 << power) == 0).astype(np.int64)
    return count


# The demonstration

_QUERY = "SELECT region, COUNT(*) AS n, AVG(cost) AS cost FROM visits GROUP BY region"
_PUBLIC_OPTIONS = f"--bounds cost=0:5000 --keys region={','.join(REGIONS)}"
_CHART_FILE = "hubbub-demo.svg"
_NAMES = 10_000
_TOP = 4
_CONDITIONS = {
    "back pain": 0.29,
    "high blood pressure": 0.285,
    "hay fever": 0.21,
    "migraine": 0.14,
    "asthma": 0.08,
    "diabetes": 0.07,
}
_BAR_LENGTH = 32
_SHORT_BAR_LENGTH = 17


def demo(
    save: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Save the made-up table and the chart in this folder."),
    ] = None,
) -> None:
    """Run private SQL on a made-up hospital, then three examples of the textbook.

    \b
    hubbub demo
    hubbub demo --save .
    """  # noqa: D301 - the mark that keeps lines is a real \b
    if save is not None and not save.is_dir():
        raise InvalidInput(
            "--save is not a folder",
            why="the table and the chart are saved there",
            fix="name an existing folder",
        )
    console = Console(highlight=False)
    with TemporaryDirectory(prefix="hubbub-demo-") as scratch:
        _run_hospital(console, Path(scratch), save)
    console.rule("Examples of the textbook")
    _run_names(console)
    _run_conditions(console)
    _run_coins(console)


def _run_hospital(console: Console, scratch: Path, save: Path | None) -> None:
    """Generate, plan, run, draw."""
    from hubbub.dataset_opening import open as open_dataset

    file = scratch / "visits.parquet"
    visits = write_visits(file)
    if save is not None:
        _save_table(file, save / file.name)
    console.print(f"A made-up hospital: {visits:,} visits of {PATIENTS:,} patients, in {file.name}.")
    console.print("[bold]Query[/bold], with public bounds of costs and public names of regions\n")
    console.print(f"  {_QUERY}\n  --unit patient --epsilon 1 {_PUBLIC_OPTIONS}", soft_wrap=True)
    with open_dataset(
        {"visits": file}, unit="patient", bounds={"cost": (0, 5000)}, keys={"region": REGIONS}
    ) as data:
        plan = data.sql(_QUERY, epsilon=1)
        console.print(f"\n[bold]Plan[/bold], before any row is read\n\n  {escape(str(plan))}", soft_wrap=True)
        answers = data.run(plan).value
    console.print("\n[bold]Result[/bold], differentially private for each patient")
    console.print(_make_bars(answers))
    rows = answers.facts["rows per unit"]
    console.print(
        f"± and shaded ends: 95 % intervals. At most {rows} visits per patient (estimated privately)."
    )
    if save is not None:
        picture = save / _CHART_FILE
        answers.write(picture)
        print_line("Saved in ", escaped(save), f": {file.name} and the chart {picture.name}.\n")
    else:
        console.print("hubbub demo --save . saves the table and a chart of the result.\n")


def _save_table(source: Path, path: Path) -> None:
    """Save the table, but never over another file."""
    if path.exists() and path.read_bytes() != source.read_bytes():
        raise InvalidInput(
            f"{path} exists already, and is not the demo's",
            why="it would be lost",
            fix="name another folder with --save",
        )
    shutil.copyfile(source, path)


def _make_bars(answers: "Result") -> Table:
    table = Table()
    table.add_column("region")
    for title in ("visits", "mean cost"):
        table.add_column(title, justify="right")
        table.add_column("")
    most = {name: max(answers[f"{name}_high"]) for name in ("n", "cost")}
    for row in answers:
        cells = [str(row["region"])]
        for name in ("n", "cost"):
            error = (row[f"{name}_high"] - row[f"{name}_low"]) / 2
            cells += [
                f"{row[name]:,.0f} ± {error:,.0f}",
                bar(row[name], error, most[name], _SHORT_BAR_LENGTH),
            ]
        table.add_row(*cells)
    return table


def _run_names(console: Console) -> None:
    """Example 3.3: a histogram of 10,000 first names; one person has one name, so it costs ε once."""
    names = list(islice(_generate_names(), _NAMES))
    people = [name for rank, name in enumerate(names) for _ in range(geometric(12_000 // (rank + 8) + 1))]
    mechanism = Laplace.of(sensitivity=1, epsilon=1, coordinates=_NAMES)
    exact = histogram(people, names)
    release = mechanism.release(exact)
    each, every = mechanism.error(0.95), mechanism.error(0.95, coordinates=_NAMES)
    table = Table(title=f"The {_TOP} most common of {_NAMES:,} first names, ε = 1", title_justify="left")
    table.add_column("name")
    table.add_column("released", justify="right")
    table.add_column(f"± {each} each, ± {every} simultaneously (95 %)")
    most = int(release.value.max())
    for index in release.value.argsort()[::-1][:_TOP]:
        table.add_row(names[index], f"{release.value[index]:,}", bar(release.value[index], every, most))
    console.print(table)
    bound = mechanism.union_bound(0.95, coordinates=_NAMES)
    console.print(
        f"Theorem 3.8: with probability 95 %, no error of the {_NAMES:,} counts exceeds {bound:.1f}.\n"
    )


def _run_conditions(console: Console) -> None:
    """Example 3.4: the most common condition; one person may have them all, and still it costs ε once."""
    people = 20_000
    counts = [int(bernoulli(share, size=people).sum()) for share in _CONDITIONS.values()]
    scores = Bounded(
        counts, Sensitivity(len(counts), linf=1), Unit("person"), "each person adds at most 1 to each count"
    )
    mechanism = PermuteAndFlip.of(sensitivity=1, epsilon=0.1, monotone=True)
    release = mechanism.release(scores)
    winner = list(_CONDITIONS)[release.value]
    console.print(
        f"Most common of {len(counts)} conditions, {people:,} people, ε = 0.1: [bold]{winner}[/bold]"
    )
    console.print(
        f"  its count is at most {release.error(0.95):.0f} below the largest (95 %); no count is released.\n"
    )


def _run_coins(console: Console) -> None:
    """Randomized response: each person randomizes the answer, nobody has to be trusted."""
    people = 20_000
    truth = bernoulli(0.3, size=people).astype(int)
    mechanism = RandomizedResponse.coin()
    reports = mechanism.release(truth)
    estimate = mechanism.estimate(reports.value)
    yes, low, high = (float(part[1]) / people for part in (estimate.counts, estimate.low, estimate.high))
    table = Table(
        title=f"“Did you break the rule last week?” {people:,} people toss coins", title_justify="left"
    )
    table.add_column("")
    table.add_column("share", justify="right")
    table.add_column("")
    table.add_row("said yes", f"{reports.value.mean():.1%}", "after randomization")
    table.add_row("estimate", f"{yes:.1%}", bar(yes, high - yes, 0.5))
    table.add_row("", "", f"between {low:.1%} and {high:.1%} (95 %)")
    console.print(table)
    console.print(f"{mechanism}: each answer is deniable.")


def bar(value: float, error: float, most: float, length: int = _BAR_LENGTH) -> str:
    """Draw a bar with an end shaded over the interval.

    >>> bar(50, 10, 100)
    '█████████████▒▒▒▒▒▒'
    """
    cell = most / length
    solid = max(0, round((value - error) / cell))
    blurred = max(1, round((value + error) / cell) - solid)
    return "█" * solid + "▒" * blurred


def _generate_names() -> Iterator[str]:
    """Yield made-up names: Balino, Balira, …"""
    starts = ["Ba", "Ce", "Di", "Fo", "Gu", "Ja", "Ke", "Li", "Mo", "Nu", "Pa", "Re", "Si", "To", "Vu", "Za"]
    ends = ["li", "ra", "no", "me", "ta", "sa", "vi", "du", "ko", "ne"]
    for length in (2, 3):
        for parts in product(starts, *[ends] * length):
            yield "".join(parts)
