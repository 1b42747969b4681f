"""The error of answers beside OpenDP, diffprivlib, PyDP and PipelineDP: same unit, bounds and ε.

.venv-bench/bin/python benchmarks/accuracy.py
.venv-bench/bin/python benchmarks/accuracy.py --repetitions 20 --question median --results median.jsonl
.venv-bench/bin/python benchmarks/accuracy.py --show median.jsonl count.jsonl    # several runs as one

An error is the mean distance from the exact answer, bounding included, over the repetitions. A cell is one
question about one data set of one size at one ε; a ratio is hubbub's error over that of the best peer.
Quantiles are asked for without intervals, as the peers give none; beside them stands the default. Data are
the same for all; where `../shared/data` is absent, generated sets alone are measured.

The repetitions of a cell share what has no noise, here and for the peers: the engine's exact integers are
computed once, and a plan without private keys has the noise of all repetitions drawn at once, each coordinate
independently of the others, as for so many groups with the same integers.
"""

import argparse
import json
import math
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
import polars as pl
from accuracy_peers import DELTA, Ask, Column, Units, answers
from measure import Target, show, show_targets

import hubbub as hb
from hubbub.sql.executor import ReleasedAggregate, dense_table, execute, make_columns
from hubbub.sql.plan import Plan
from hubbub.sql.planned_aggregates import PlannedQuantiles
from hubbub.sql.quantile_selection import CellCounts

SIZES = (30, 300, 10_000)
LARGE = 1_000_000
EPSILONS = (0.1, 1.0, 3.0)
REPETITIONS = 400
SHARED = Path(__file__).parents[2] / "shared" / "data" / "tabular"
ACS = SHARED.parent / "acs"
PIPELINE = Path(__file__).parents[1] / ".venv-pipelinedp" / "bin" / "python"
NUMBERS = {
    "count": "SELECT COUNT(*) AS v FROM t",
    "sum": "SELECT SUM(x) AS v FROM t",
    "mean": "SELECT AVG(x) AS v FROM t",
    "variance": "SELECT VAR_POP(x) AS v FROM t",
    "median": "SELECT MEDIAN(x) AS v FROM t",
    "quartiles": "SELECT QUANTILE_DISC(x, 0.25) AS a, MEDIAN(x) AS b, QUANTILE_DISC(x, 0.75) AS c FROM t",
}
QUANTILES = ("median", "quartiles")
KEYS = {
    "top five": "SELECT x FROM t GROUP BY x ORDER BY COUNT(*) DESC LIMIT 5",
    "private keys": "SELECT x, COUNT(*) AS v FROM t GROUP BY x",
}
USERS = {
    "users by group": "SELECT g, COUNT(DISTINCT u) AS v FROM t GROUP BY g",
    "rows by group": "SELECT g, COUNT(*) AS v FROM t GROUP BY g",
}
QUESTIONS = [*NUMBERS, *KEYS, *USERS]
SAME_NOISE = ("count", "sum", *KEYS, *USERS)
"""Questions that all tools answer with the same noise at the same scale: equal errors are the floor."""
FINE = 0.005
"""An error below this is none: half of the last digit that values have."""
OURS = ("hubbub", "hubbub, bound estimated", "hubbub, with intervals", "hubbub, non-negative")
SPREAD = 3.0
"""Standard errors that a ratio may owe to chance: of a thousand cells, one or two are above it by chance."""


@dataclass(frozen=True)
class Cell:
    question: str
    data: str
    rows: int
    epsilon: float
    errors: dict[str, tuple[float, float]]
    """Of each library, the mean error and its standard error."""

    @property
    def best_peer(self) -> str:
        return min((who for who in self.errors if who not in OURS), key=lambda who: self.errors[who][0])

    @property
    def ratio(self) -> float:
        ours, theirs = self.errors["hubbub"][0], self.errors[self.best_peer][0]
        return max(ours, FINE) / max(theirs, FINE)

    @property
    def is_worse(self) -> bool:
        """Above 1.1 by more than chance."""
        (ours, our_spread), (theirs, their_spread) = self.errors["hubbub"], self.errors[self.best_peer]
        return ours - 1.1 * max(theirs, FINE) > SPREAD * math.hypot(our_spread, 1.1 * their_spread)


def run(repetitions: int, questions: list[str] | None, results: Path | None) -> None:
    cells = read_cells([results]) if results is not None and results.exists() else []
    known = {(cell.question, cell.data, cell.rows, cell.epsilon) for cell in cells}
    for cell in measure(repetitions, questions or QUESTIONS, known):
        cells.append(cell)
        if results is not None:
            with results.open("a") as lines:
                lines.write(json.dumps(asdict(cell)) + "\n")
        print(
            cell.question,
            cell.data,
            cell.rows,
            cell.epsilon,
            f"{cell.ratio:.2f}",
            file=sys.stderr,
            flush=True,
        )
    show_all(cells)


def read_cells(paths: list[Path]) -> list[Cell]:
    """The cells of several runs; of a cell that was measured again, the last."""
    cells = {}
    for path in paths:
        for line in path.read_text().splitlines():
            cell = Cell(**json.loads(line))
            cells[cell.question, cell.data, cell.rows, cell.epsilon] = cell
    return list(cells.values())


def show_all(cells: list[Cell]) -> None:
    for question in QUESTIONS:
        mine = [cell for cell in cells if cell.question == question]
        if mine:
            show_cells(question, mine)
    show_summary(cells)
    for name in OURS[2:]:
        if mine := [take(cell, name) for cell in cells if name in cell.errors]:
            show_summary(mine, f"By question: {name}")
    show_targets(targets(cells))
    worse = [cell for cell in cells if cell.is_worse]
    show(
        f"Cells above 1.1 by more than {SPREAD:g} standard errors",
        ("question", "data", "rows", "ε", "ratio", "best peer"),
        [
            (c.question, c.data, f"{c.rows:,}", f"{c.epsilon:g}", f"{c.ratio:.2f}", c.best_peer)
            for c in sorted(worse, key=lambda c: -c.ratio)
        ],
    )


def take(cell: Cell, name: str) -> Cell:
    """The cell with another answer of hubbub's in place of the plain one."""
    return replace(cell, errors={**cell.errors, "hubbub": cell.errors[name]})


def show_summary(cells: list[Cell], title: str = "By question") -> None:
    rows = []
    for question in QUESTIONS:
        mine = [cell for cell in cells if cell.question == question]
        if mine:
            worse = sum(cell.is_worse for cell in mine)
            worst = max(cell.ratio for cell in mine)
            rows.append((question, str(len(mine)), f"{mean_ratio(mine):.2f}", f"{worst:.2f}", str(worse)))
    show(title, ("", "cells", "geometric mean", "worst", "above 1.1"), rows)


def mean_ratio(cells: list[Cell]) -> float:
    """The geometric mean; one ratio of nearly zero would decide it alone."""
    return math.exp(sum(math.log(min(max(c.ratio, 1e-3), 1e3)) for c in cells) / max(len(cells), 1))


def show_cells(question: str, cells: list[Cell]) -> None:
    who = sorted({name for cell in cells for name in cell.errors}, key=lambda name: (name != "hubbub", name))

    def display(cell: Cell, name: str) -> str:
        return "–" if name not in cell.errors else "{:.3g} ± {:.1g}".format(*cell.errors[name])

    show(
        f"{question}: mean error ± standard error",
        ("data", "rows", "ε", *who, "over the best"),
        [
            (c.data, f"{c.rows:,}", f"{c.epsilon:g}", *(display(c, name) for name in who), f"{c.ratio:.2f}×")
            for c in cells
        ],
    )


def targets(cells: list[Cell]) -> list[Target]:
    worse = sum(cell.is_worse for cell in cells)
    mean = mean_ratio(cells)
    others = [cell for cell in cells if cell.question not in SAME_NOISE]
    where = mean_ratio(others)
    return [
        Target("cells worse than 1.1× the best peer", "0", f"{worse} of {len(cells)}", met=not worse),
        Target("geometric mean over the best peer", "≤ 0.67", f"{mean:.2f}", met=mean <= 0.67),
        Target(
            f"… of {len(others)} cells where mechanisms differ", "≤ 0.67", f"{where:.2f}", met=where <= 0.67
        ),
    ]


# What is measured.


def measure(repetitions: int, questions: list[str], known: set[tuple] = frozenset()) -> Iterator[Cell]:
    """All cells but those that are known."""

    def epsilons(question: str, data: Column | Units, rows: int) -> list[float]:
        return [each for each in EPSILONS if (question, data.name, rows, each) not in known]

    numbers = [question for question in NUMBERS if question in questions]
    for column in number_columns() if numbers else ():
        data = open_column(column, sql_type="number")
        for question in numbers:
            truth = exact_numbers(question, column.values)
            for epsilon in epsilons(question, column, len(column.values)):
                askers = {"hubbub": repeat_numbers(data, plan_numbers(data, question, epsilon))}
                if question in QUANTILES:
                    plan = plan_numbers(data, question, epsilon, intervals=True)
                    askers[OURS[2]] = repeat_numbers(data, plan)
                if question == "sum" and column.low >= 0:
                    askers[OURS[3]] = non_negative(askers["hubbub"])
                askers |= answers(question, column, epsilon)
                errors = mean_errors(askers, distances_from(truth), repetitions)
                yield Cell(question, column.name, len(column.values), epsilon, errors)
    keys = [question for question in KEYS if question in questions]
    for column in key_columns() if keys else ():
        for question in keys:
            left = epsilons(question, column, len(column.values))
            yield from key_cells(question, column, repetitions, left)
    users = [question for question in USERS if question in questions]
    for units in unit_sets() if users else ():
        for question in users:
            left = epsilons(question, units, len(units.who))
            if left:
                yield from user_cells(question, units, repetitions, left)


def plan_numbers(data: hb.Dataset, question: str, epsilon: float, *, intervals: bool = False) -> Plan:
    """As the peers answer it: without an interval, which quantiles have to pay for."""
    return data.sql(NUMBERS[question], epsilon=epsilon, intervals=intervals or question not in QUANTILES)


def non_negative(ask: Ask) -> Ask:
    """As `consistent()` answers for one sum of values that are not negative."""
    return lambda times: np.maximum(ask(times), 0)


class CachingEngine:
    """An engine that computes its exact integers once for each query."""

    def __init__(self, engine: object) -> None:
        self._engine = engine
        self._known = {}

    def execute(self, sql: object, key_sets: object) -> object:
        text = sql.sql("duckdb")
        if text not in self._known:
            self._known[text] = self._engine.execute(sql, key_sets)
        return self._known[text]


def repeat_numbers(data: hb.Dataset, plan: Plan) -> Ask:
    """Answers of a plan with one group, or with public ones: a row for each repetition."""
    engine = data._engine  # noqa: SLF001 - its integers are read once
    groups = plan.query.groups() if plan.query.keys else [()]
    batches = [engine.execute(each.bounded.sql, each.bounded.key_sets) for each in plan.aggregates]

    def ask(times: int) -> np.ndarray:
        released = []
        for each, batch in zip(plan.aggregates, batches, strict=True):
            table = dense_table(each.bounded, batch, groups, len(plan.query.keys))
            if isinstance(each, PlannedQuantiles):
                [cells] = np.nonzero(table[:, 0])
                group = np.repeat(np.arange(times), cells.size)
                counts = CellCounts(times, group, np.tile(cells, times), np.tile(table[cells, 0], times))
                noisy = each.release_counts(counts, plan.unit)
            else:
                noisy = each.release(np.tile(table, (times, 1)), plan.unit)
            released.append(ReleasedAggregate(each, noisy))
        columns = make_columns(plan, list(groups) * times, released, {})
        values = [column.values.astype(float) for column in columns if column.name not in plan_keys]
        return np.stack(values, axis=1).reshape(times, -1)

    plan_keys = {output.name for output in plan.query.outputs if output.key is not None}
    return ask


def repeat_run(data: hb.Dataset, plan: Plan, read: Callable[[dict], np.ndarray]) -> Ask:
    """Answers of any other plan: the integers are computed once, all else anew."""
    engine = CachingEngine(data._engine)  # noqa: SLF001 - its integers are read once

    def ask_once() -> np.ndarray:
        columns = execute(plan, engine).columns
        return read({column.name: column.values.tolist() for column in columns})

    return lambda times: np.array([ask_once() for _ in range(times)])


def mean_errors(
    askers: dict[str, Ask], errors_of: Callable[[np.ndarray], np.ndarray], repetitions: int
) -> dict[str, tuple[float, float]]:
    return {who: mean_and_spread(errors_of(ask(repetitions))) for who, ask in askers.items()}


def mean_and_spread(seen: np.ndarray) -> tuple[float, float]:
    return float(seen.mean()), float(seen.std() / math.sqrt(len(seen)))


def distances_from(truth: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    def distances(answers: np.ndarray) -> np.ndarray:
        # A missing answer is as wrong as 0 is.
        values = np.nan_to_num(np.asarray(answers, dtype=float).reshape(len(answers), -1))
        return np.abs(values - truth).mean(axis=1)

    return distances


def exact_numbers(question: str, values: np.ndarray) -> np.ndarray:
    return np.atleast_1d(
        {
            "count": lambda: len(values),
            "sum": values.sum,
            "mean": values.mean,
            "variance": values.var,
            "median": lambda: np.median(values),
            "quartiles": lambda: np.quantile(values, [0.25, 0.5, 0.75]),
        }[question]()
    )


def open_column(column: Column, sql_type: str) -> hb.Dataset:
    values = column.values.astype(np.int64) if sql_type == "key" else column.values
    return hb.open(
        pl.DataFrame({"x": values}),
        table="t",
        unit=hb.Unit.row(),
        bounds={"x": (column.low, column.high)},
    )


def key_cells(question: str, column: Column, repetitions: int, epsilons: list[float]) -> Iterator[Cell]:
    data = open_column(column, sql_type="key")
    count = round(column.high)
    truth = np.bincount(column.values.astype(int), minlength=count)
    largest = np.sort(truth)[-5:].sum()

    def missed(answers: np.ndarray) -> np.ndarray:
        return largest - truth[np.asarray(answers, dtype=int)].sum(axis=1)

    def read_top(table: dict) -> np.ndarray:
        return np.array(table["x"], dtype=int)

    def read_counts(table: dict) -> np.ndarray:
        values = np.zeros(count)
        values[np.array(table["x"], dtype=int)] = table["v"]
        return values

    is_top = question == "top five"
    for epsilon in epsilons:
        more = {"keys": {"x": range(count)}} if is_top else {"delta": DELTA}
        plan = data.sql(KEYS[question], epsilon=epsilon, **more)
        askers = {"hubbub": repeat_run(data, plan, read_top if is_top else read_counts)}
        askers |= answers(question, column, epsilon)
        errors = mean_errors(askers, missed if is_top else distances_from(truth), repetitions)
        yield Cell(question, column.name, len(column.values), epsilon, errors)


def user_cells(question: str, units: Units, repetitions: int, epsilons: list[float]) -> Iterator[Cell]:
    """Groups are public, and one declared bound serves all; beside it hubbub's own, estimated privately."""
    frame = pl.DataFrame({"u": units.who, "g": units.group})
    declared = (
        {"groups_per_unit": units.groups_limit}
        if question.startswith("users")
        else {"rows_per_unit": units.limit}
    )
    pairs = np.unique(np.stack([units.who, units.group], 1), axis=0)
    column_counts = pairs[:, 1] if question.startswith("users") else units.group
    truth = np.bincount(column_counts, minlength=units.groups)
    keys = {"g": range(units.groups)}
    fixed = hb.open(frame, table="t", unit="u", keys=keys, **declared)
    free = hb.open(frame, table="t", unit="u", keys=keys)
    theirs = pipeline(question, units, repetitions, epsilons)
    for epsilon in epsilons:
        askers = {
            OURS[0]: repeat_numbers(fixed, fixed.sql(USERS[question], epsilon=epsilon)),
            OURS[1]: repeat_run(
                free, free.sql(USERS[question], epsilon=epsilon), lambda table: np.array(table["v"])
            ),
        }
        error = distances_from(truth)
        errors = mean_errors(askers, error, repetitions)
        if str(epsilon) in theirs:
            errors["PipelineDP"] = mean_and_spread(error(np.array(theirs[str(epsilon)])))
        errors["by hand"] = by_hand(question, units, truth, epsilon, repetitions)
        yield Cell(question, units.name, len(units.who), epsilon, errors)


def by_hand(
    question: str, units: Units, truth: np.ndarray, epsilon: float, repetitions: int
) -> tuple[float, float]:
    """Sampled rows and Laplace noise: what users of OpenDP's core and diffprivlib do."""
    rng = np.random.default_rng(1)
    rows = np.stack([units.who, units.group], 1)
    if question.startswith("users"):
        rows = np.unique(rows, axis=0)
    limit = units.groups_limit if question.startswith("users") else units.limit
    seen = []
    for _ in range(repetitions):
        order = rng.permutation(len(rows))
        mixed = rows[order][np.argsort(rows[order, 0], kind="stable")]
        first = np.searchsorted(mixed[:, 0], mixed[:, 0])
        remaining = mixed[np.arange(len(mixed)) - first < limit]
        noisy = np.bincount(remaining[:, 1], minlength=units.groups) + rng.laplace(
            0, limit / epsilon, units.groups
        )
        seen.append(np.abs(noisy - truth).mean())
    return mean_and_spread(np.array(seen))


def pipeline(
    question: str, units: Units, repetitions: int, epsilons: list[float]
) -> dict[str, list[list[float]]]:
    """PipelineDP's answers, from its own environment; nothing where it is not installed."""
    if not PIPELINE.exists() or len(units.who) > 50_000:
        return {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "rows.npz")
        np.savez(path, who=units.who, group=units.group)
        askers = {
            "path": str(path),
            "users": question.startswith("users"),
            "groups": units.groups,
            "limit": units.limit,
            "groups_limit": units.groups_limit,
            "epsilons": epsilons,
            "repetitions": repetitions,
        }
        script = Path(__file__).with_name("accuracy_pipelinedp.py")
        done = subprocess.run(
            [PIPELINE, script], input=json.dumps(askers), capture_output=True, text=True, check=True
        )
        return json.loads(done.stdout.splitlines()[-1])


# Data.


def number_columns() -> Iterator[Column]:
    rng = np.random.default_rng(20261117)
    sources = generated_numbers(rng) | real_numbers()
    for name, (draw, low, high) in sources.items():
        for rows in (*SIZES, LARGE) if name in {"lognormal", "uniform", "Adult hours"} else SIZES:
            values = np.clip(np.round(draw(rng, rows), 2), low, high).astype(float)
            yield Column(name, values, float(low), float(high))


def generated_numbers(rng: np.random.Generator) -> dict[str, tuple[Callable, float, float]]:
    giant = rng.uniform(0, 10, LARGE)
    giant[0] = 1000
    return {
        "lognormal": (lambda r, n: r.lognormal(3, 1, n), 0, 1000),
        "Zipf": (lambda r, n: r.zipf(2.0, n), 0, 1000),
        "uniform": (lambda r, n: r.uniform(0, 100, n), 0, 100),
        "constant": (lambda _, n: np.full(n, 42.0), 0, 100),
        "one giant": (lambda _, n: giant[:n], 0, 1000),
        "ties": (lambda r, n: r.choice([10.0, 20.0, 50.0], n), 0, 100),
        "bimodal": (lambda r, n: np.where(r.random(n) < 0.5, r.normal(20, 3, n), r.normal(80, 3, n)), 0, 100),
        "wide bounds": (lambda r, n: r.normal(50, 10, n), 0, 1_000_000),
    }


def real_numbers() -> dict[str, tuple[Callable, float, float]]:
    if not SHARED.exists():
        return {}
    taxis = pl.read_csv(SHARED / "taxis.csv")
    nhefs = pl.read_csv(SHARED / "nhefs.csv", infer_schema_length=None)
    adult = pl.read_csv(SHARED / "adult.data.gz", has_header=False)
    acs = pl.read_csv(ACS / "national2019.csv.gz", infer_schema_length=None)
    military = pl.read_csv(SHARED / "military.csv.gz")
    nafld = pl.read_csv(SHARED / "nafld3_events.csv")
    columns = {
        "taxi fares": (taxis["fare"], 0, 200),
        "NHEFS weights": (nhefs["wt71"], 30, 180),
        "Adult hours": (adult["column_13"], 0, 100),
        "ACS incomes": (acs["PINCP"].cast(pl.Float64, strict=False), 0, 500_000),
        "military ranks": (military["rank"], 0, 30),
        "NAFLD days": (nafld["days"], -20_000, 10_000),
    }

    def sampler(series: pl.Series) -> Callable[[np.random.Generator, int], np.ndarray]:
        values = series.drop_nulls().to_numpy().astype(float)
        return lambda r, n: r.choice(values, n)

    return {name: (sampler(series), low, high) for name, (series, low, high) in columns.items()}


def key_columns() -> Iterator[Column]:
    """Whole numbers from 0 on stand for keys; the highest bound is how many there are."""
    rng = np.random.default_rng(20261118)
    sources = {
        "Zipf keys": (lambda n: np.minimum(rng.zipf(1.5, n) - 1, 199), 200),
        "even keys": (lambda n: rng.integers(0, 50, n), 50),
    }
    if SHARED.exists():
        taxis = pl.read_csv(SHARED / "taxis.csv")["pickup_zone"].drop_nulls()
        adult = pl.read_csv(SHARED / "adult.data.gz", has_header=False)
        pumas = pl.read_csv(ACS / "national2019.csv.gz", infer_schema_length=None)["PUMA"]
        for name, series in {
            "taxi zones": taxis,
            "Adult countries": adult["column_14"],
            "ACS areas": pumas,
        }.items():
            codes = series.cast(pl.Categorical).to_physical().to_numpy()
            codes = np.unique(codes, return_inverse=True)[1]
            sources[name] = (lambda n, codes=codes: rng.choice(codes, n), int(codes.max()) + 1)
    for name, (draw, count) in sources.items():
        for rows in SIZES:
            yield Column(name, draw(rows).astype(float), 0.0, float(count), 1.0)


def unit_sets() -> Iterator[Units]:
    rng = np.random.default_rng(20261119)

    def draw_all(name: str, rows_of: np.ndarray, limit: int, groups_limit: int) -> Units:
        who = np.repeat(np.arange(len(rows_of)), rows_of)
        return Units(name, who, np.minimum(rng.zipf(1.6, len(who)) - 1, 15), 16, limit, groups_limit)

    yield draw_all("lognormal rows", np.maximum(rng.lognormal(1, 1, 3000).astype(int), 1), 8, 4)
    yield draw_all("one row each", np.ones(5000, dtype=int), 1, 1)
    yield draw_all("Zipf rows", np.minimum(rng.zipf(2, 3000), 1000), 8, 4)
    yield draw_all("uniform rows", rng.integers(1, 51, 600), 50, 8)
    if SHARED.exists():
        nafld = pl.read_csv(SHARED / "nafld3_events.csv")
        groups = np.unique(nafld["event"].to_numpy().astype(str), return_inverse=True)[1]
        who = np.unique(nafld["id"].to_numpy(), return_inverse=True)[1]
        yield Units("NAFLD events", who, groups, int(groups.max()) + 1, 8, 4)


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure the error of answers beside other libraries.")
    parser.add_argument("--repetitions", type=int, default=REPETITIONS)
    parser.add_argument("--question", action="append", choices=QUESTIONS)
    parser.add_argument(
        "--results", type=Path, help="append each cell to this file, a line each; those it has stay"
    )
    parser.add_argument("--show", type=Path, nargs="+", help="print what these files hold; measure nothing")
    arguments = parser.parse_args()
    if arguments.show:
        show_all(read_cells(arguments.show))
    else:
        run(arguments.repetitions, arguments.question, arguments.results)


if __name__ == "__main__":
    main()
