# ruff: noqa: S608 - nothing here comes from a person
"""Private queries of a file: time, error and memory beside plain DuckDB and OpenDP (Polars)."""

import argparse
import gc
import json
import math
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path

import duckdb
import numpy as np
from measure import Target, show, show_targets
from visits import HIGH, PRODUCTS, REGIONS, visits

import hubbub as hb
from hubbub.dataset import Dataset
from hubbub.sql.plan import Plan

ROWS, ROUNDS, RELEASES = 10_000_000, 3, 5
KEPT = 10
"""Rows, or keys, of one user."""
DELTA = 1e-7
BY_REGION = "SELECT region, COUNT(*) AS n, AVG(cost) AS cost FROM visits GROUP BY region"
BY_PRODUCT = "SELECT product, COUNT(*) AS n FROM visits GROUP BY product"
MEDIAN = "SELECT MEDIAN(cost) AS cost FROM visits"
HISTOGRAM = "SELECT FLOOR(cost / 0.5) AS bin, COUNT(*) AS n FROM visits GROUP BY FLOOR(cost / 0.5)"

Timed = dict[str, tuple[float, float]]
"""Seconds of wall and of processor time."""


def run(rows: int = ROWS, *, is_sparse: bool = False) -> None:
    path = visits(rows, is_sparse=is_sparse)
    timed = {}
    for letter, ways in tasks(path).items():
        timed[letter] = best(ways)
        show(
            f"{letter}) {rows:,} rows, file to answer, warm (best of {ROUNDS} rounds)",
            ("", "wall ms", "CPU ms", "CPU, hubbub over it"),
            [
                (who, f"{1e3 * wall:,.1f}", f"{1e3 * cpu:,.1f}", f"{timed[letter]['hubbub'][1] / cpu:.2f}×")
                for who, (wall, cpu) in timed[letter].items()
            ],
        )
    planning = best(plannings(path))
    show(
        "Planning",
        ("", "wall ms", "CPU ms"),
        [(who, f"{1e3 * wall:.1f}", f"{1e3 * cpu:.1f}") for who, (wall, cpu) in planning.items()],
    )
    small = min(rows, ROWS // 10)
    errors = mean_errors(visits(small, is_sparse=is_sparse))
    show(
        f"Mean absolute error at ε = 1 ({small:,} rows, {RELEASES} releases, noise and sampling)",
        ("", "hubbub", "OpenDP"),
        [(what, f"{ours:.4g}", f"{theirs:.4g}") for what, (ours, theirs) in errors.items()],
    )
    peaks = {letter: (peak(path, letter, "hubbub"), peak(path, letter, "DuckDB")) for letter in "abcde"}
    show(
        "Peak memory, MB, a process each",
        ("", "hubbub", "plain DuckDB"),
        [(letter, f"{ours:.0f}", f"{plain:.0f}") for letter, (ours, plain) in peaks.items()],
    )
    show_targets([*time_targets(timed), *other_targets(planning, errors, peaks)])


# Who does what.


def tasks(path: Path) -> dict[str, dict[str, Callable[[], object]]]:
    """For each task those who can do it, hubbub first."""
    mine, plain, peer = hubbub_tasks(path), duckdb_tasks(path), opendp_tasks(path)
    return {
        letter: {
            "hubbub": mine[letter],
            **{who: way for (task, who), way in plain.items() if task == letter},
            **({"OpenDP": peer[letter]} if letter in peer else {}),
        }
        for letter in mine
    }


def open_data(path: Path) -> tuple[Dataset, Dataset]:
    """One row a person; and one user a person."""
    about = {"table": "visits", "bounds": {"cost": (0, HIGH)}, "keys": {"region": REGIONS}}
    return (
        hb.open(str(path), unit=hb.Unit.row(), **about),
        hb.open(str(path), unit="user", rows_per_unit=KEPT, **about),
    )


def plans(by_row: Dataset, by_user: Dataset) -> dict[str, Plan]:
    return {
        "a": by_row.sql("SELECT COUNT(*) AS n FROM visits", epsilon=1),
        "b": by_user.sql(BY_REGION, epsilon=1),
        "c": by_user.sql(BY_PRODUCT, epsilon=1, delta=DELTA),
        "d": by_row.sql(MEDIAN, epsilon=1),
        "d by user": by_user.sql(MEDIAN, epsilon=1),
        "e": by_row.sql(HISTOGRAM, epsilon=1, keys={"bin": range(PRODUCTS)}),
    }


def hubbub_tasks(path: Path) -> dict[str, Callable[[], object]]:
    return {letter: plan.run for letter, plan in plans(*open_data(path)).items()}


def duckdb_tasks(path: Path) -> dict[tuple[str, str], Callable[[], object]]:
    """The same questions without privacy, and c as one would write its bounding by hand."""
    connection = duckdb.connect()
    connection.execute("SET preserve_insertion_order = false")
    connection.execute(f"CREATE VIEW visits AS SELECT * FROM read_parquet('{path}')")
    pairs = "SELECT user, product, COUNT(*) AS c FROM visits WHERE user IS NOT NULL GROUP BY user, product"
    rank = f"ROW_NUMBER() OVER (PARTITION BY user ORDER BY HASH(user, product), product) <= {KEPT}"
    sub_query = f"SELECT product, c FROM ({pairs}) QUALIFY {rank}"
    requests = {
        ("a", "plain"): "SELECT COUNT(*) FROM visits",
        ("b", "plain"): "SELECT region, COUNT(*), AVG(cost) FROM visits GROUP BY region",
        ("b", "distinct users"): "SELECT region, COUNT(DISTINCT user) FROM visits GROUP BY region",
        ("c", "plain"): "SELECT product, COUNT(*) FROM visits GROUP BY product",
        ("c", "distinct users"): "SELECT product, COUNT(DISTINCT user) FROM visits GROUP BY product",
        (
            "c",
            "by hand",
        ): f"SELECT product, COUNT(*), SUM(LEAST(c, {KEPT})) FROM ({sub_query}) GROUP BY product",
        ("d", "plain"): "SELECT MEDIAN(cost) FROM visits",
        ("d by user", "plain"): "SELECT MEDIAN(cost) FROM visits",
        ("e", "plain"): "SELECT FLOOR(cost / 0.5) AS bin, COUNT(*) FROM visits GROUP BY bin",
    }
    return {who: lambda sql=sql: connection.execute(sql).fetchnumpy() for who, sql in requests.items()}


def opendp_tasks(path: Path) -> dict[str, Callable[[], object]]:
    import opendp.prelude as dp
    import polars as pl

    dp.enable_features("contrib")
    warnings.filterwarnings("ignore", category=FutureWarning)
    rows = dp.unit_of(contributions=1)
    users = dp.unit_of(contributions=1, identifier=pl.col("user"))
    sure = pl.col("cost").fill_nan(0.0).fill_null(0.0)

    def context(unit: object, delta: float | None = None, **about: object) -> dp.Context:
        loss = dp.loss_of(epsilon=1.0) if delta is None else dp.loss_of(epsilon=1.0, delta=delta)
        data = pl.scan_parquet(path)
        return dp.Context.compositor(
            data=data, privacy_unit=unit, privacy_loss=loss, split_evenly_over=1, **about
        )

    def count() -> object:
        return context(rows).query().select(dp.len(signed=True)).release().collect()

    def by_region() -> object:
        margins = [dp.polars.Margin(by=["region"], max_length=ROWS)]
        query = context(users, margins=margins).query().truncate_per_group(KEPT).group_by("region")
        keys = pl.LazyFrame({"region": REGIONS})
        result = query.agg(dp.len(signed=True), sure.dp.sum((0.0, float(HIGH)))).with_keys(keys)
        return result.release().collect().with_columns(mean=pl.col("cost") / pl.col("len"))

    def by_product() -> object:
        query = context(users, DELTA).query().truncate_per_group(KEPT).group_by("product")
        return query.agg(dp.len(signed=True)).release().collect()

    def median(unit: object) -> object:
        query = context(unit, margins=[dp.polars.Margin(by=[], max_length=ROWS)]).query()
        bounded = query if unit is rows else query.truncate_per_group(KEPT)
        candidates = list(np.linspace(0, HIGH, 1001))
        return bounded.select(sure.dp.median(candidates)).release().collect()

    def histogram() -> object:
        cuts = [0.5 * edge for edge in range(1, PRODUCTS)]
        binned = pl.col("cost").cut(cuts, left_closed=True).to_physical().alias("bin")
        query = context(rows).query().with_columns(binned).group_by("bin").agg(dp.len(signed=True))
        keys = pl.LazyFrame({"bin": np.arange(PRODUCTS, dtype=np.uint32)})
        return query.with_keys(keys).release().collect()

    return {
        "a": count,
        "b": by_region,
        "c": by_product,
        "d": lambda: median(rows),
        "d by user": lambda: median(users),
        "e": histogram,
    }


def plannings(path: Path) -> dict[str, Callable[[], object]]:
    by_row, by_user = open_data(path)
    many = [f"key {number:06d}" for number in range(100_000)]
    declared = hb.open(str(path), unit="user", rows_per_unit=KEPT, keys={"region": many}, table="visits")
    return {
        "a": lambda: by_row.sql("SELECT COUNT(*) AS n FROM visits", epsilon=1),
        "b": lambda: by_user.sql(BY_REGION, epsilon=1),
        "c": lambda: by_user.sql(BY_PRODUCT, epsilon=1, delta=DELTA),
        "d": lambda: by_row.sql(MEDIAN, epsilon=1),
        "100,000 keys, declared": lambda: declared.sql(
            "SELECT region, COUNT(*) AS n FROM visits GROUP BY region", epsilon=1
        ),
        "100,000 keys, with the query": lambda: by_user.sql(
            "SELECT region, COUNT(*) AS n FROM visits GROUP BY region", epsilon=1, keys={"region": many}
        ),
    }


def best(ways: Mapping[str, Callable[[], object]]) -> Timed:
    """The best wall and processor time of each, interleaved: short ones more often, the peer once."""
    fastest = dict.fromkeys(ways, (math.inf, math.inf))
    for way in ways.values():
        way()
    gc.collect()
    for number in range(ROUNDS):
        for who, way in ways.items():
            if who == "OpenDP" and number:
                continue
            for _ in range(5 if fastest[who][1] < 0.05 else 1):
                wall, cpu = time.perf_counter(), time.process_time()
                way()
                spent = time.perf_counter() - wall, time.process_time() - cpu
                fastest[who] = min(fastest[who][0], spent[0]), min(fastest[who][1], spent[1])
    return fastest


# How far off.


def mean_errors(path: Path) -> dict[str, tuple[float, float]]:
    """Ours and OpenDP's: from what each gives on average without noise, and for c from the truth."""
    by_row, by_user = open_data(path)
    plan, peer = plans(by_row, by_user), opendp_tasks(path)
    regions = by_user.exact(plan["b"])
    products = kept_counts(by_user, plan["c"])
    weighed = by_user.exact(by_user.sql(BY_PRODUCT, epsilon=1, keys={"product": range(PRODUCTS)}))
    rows = duckdb.execute(f"SELECT product, COUNT(*) FROM read_parquet('{path}') GROUP BY product").fetchall()
    truth = {float(product): float(count) for product, count in rows}
    [median] = duckdb.execute(f"SELECT MEDIAN(cost) FROM read_parquet('{path}')").fetchone() or (math.nan,)
    [by_users] = by_user.exact(plan["d by user"])["cost"]
    ours, theirs = _Errors(), _Errors()
    for _ in range(RELEASES):
        answers = plan["b"].run().value
        ours.add("b, count by region", _keyed(answers, "region", "n"), _keyed(regions, "region", "n"))
        ours.add("b, mean by region", _keyed(answers, "region", "cost"), _keyed(regions, "region", "cost"))
        frame = peer["b"]().to_dict(as_series=False)
        theirs.add("b, count by region", _keyed(frame, "region", "len"), _keyed(regions, "region", "n"))
        theirs.add("b, mean by region", _keyed(frame, "region", "mean"), _keyed(regions, "region", "cost"))
        answers = plan["c"].run().value
        frame = peer["c"]().to_dict(as_series=False)
        for errors, result, exact in (
            (ours, _keyed(answers, "product", "n"), products),
            (theirs, _keyed(frame, "product", "len"), _keyed(weighed, "product", "n")),
        ):
            errors.add("c, count of a released product", result, exact)
            errors.add("c, count of any product, from the unbounded truth", _filled(result, truth), truth)
            errors.say("c, products released", len(result))
        for task, exact in (("d", median), ("d by user", by_users)):
            name = f"{task}, median"
            ours.add(name, {0: plan[task].run().value["cost"][0]}, {0: exact})
            theirs.add(name, {0: peer[task]()["cost"][0]}, {0: exact})
    return {name: (ours.mean(name), theirs.mean(name)) for name in ours.figures}


def kept_counts(data: Dataset, plan: Plan) -> dict[object, float]:
    """The exact counts of all keys, before any are selected."""
    [measured] = plan.bounded.bounded_aggregates
    result = data._engine.execute(measured.sql, {})  # noqa: SLF001 - nobody else may
    counts = zip(result["k0"], result["m0"].tolist(), strict=True)
    return {key: float(count * measured.step) for key, count in counts}


class _Errors:
    def __init__(self) -> None:
        self.figures: dict[str, list[float]] = {}

    def add(self, name: str, answers: Mapping[object, float], exact: Mapping[object, float]) -> None:
        self.say(name, float(np.mean([abs(answer - exact[key]) for key, answer in answers.items()])))

    def say(self, name: str, figure: float) -> None:
        self.figures.setdefault(name, []).append(figure)

    def mean(self, name: str) -> float:
        return float(np.mean(self.figures[name]))


def _keyed(table: Mapping[str, object], key: str, value: str) -> dict[object, float]:
    return {
        each if isinstance(each, str) else float(each): float(result)
        for each, result in zip(table[key], table[value], strict=True)
    }


def _filled(result: Mapping[object, float], truth: Mapping[object, float]) -> dict[object, float]:
    return {key: result.get(key, 0.0) for key in truth}


# How much memory.


def peak(path: Path, letter: str, who: str) -> float:
    """The most MB that a process of its own holds while it does one task."""
    command = [sys.executable, __file__, "--peak", who, "--letter", letter, "--path", str(path)]
    return float(json.loads(subprocess.run(command, capture_output=True, check=True).stdout))


def _peak_here(path: Path, letter: str, who: str) -> None:
    if who == "hubbub":
        hubbub_tasks(path)[letter]()
    else:
        duckdb_tasks(path)[letter, "distinct users" if letter in "bc" else "plain"]()
    # Not getrusage: a child begins with what its parent held when it forked.
    [peak_line] = [line for line in Path("/proc/self/status").read_text().splitlines() if "VmHWM" in line]
    sys.stdout.write(json.dumps(int(peak_line.split()[1]) / 1024))


# Targets.


def time_targets(timed: Mapping[str, Timed]) -> list[Target]:
    def ratio(letter: str, who: str) -> float:
        return timed[letter]["hubbub"][1] / timed[letter][who][1]

    def at_most(what: str, letter: str, who: str, most: float) -> Target:
        result = ratio(letter, who)
        return Target(what, f"≤ {most:g}×", f"{result:.2f}×", met=result <= most)

    over = 1e3 * (timed["a"]["hubbub"][0] - timed["a"]["plain"][0])
    return [
        Target("a) over plain, wall", "≤ 20 ms", f"{over:.1f} ms", met=over <= 20),
        at_most("b) over DuckDB's distinct users by region", "b", "distinct users", 1.3),
        at_most("b) over OpenDP", "b", "OpenDP", 0.25),
        at_most("c) over OpenDP", "c", "OpenDP", 0.5),
        at_most("c) over SQL by hand", "c", "by hand", 1.2),
        at_most("d) over plain, unit row", "d", "plain", 2),
        at_most("e) over plain, unit row", "e", "plain", 1.5),
    ]


def other_targets(
    planning: Timed, errors: Mapping[str, tuple[float, float]], peaks: Mapping[str, tuple[float, float]]
) -> list[Target]:
    slowest = 1e3 * max(cpu for _, cpu in planning.values())
    out = [Target("planning, the slowest", "≤ 30 ms", f"{slowest:.1f} ms", met=slowest <= 30)]
    for name, (ours, theirs) in errors.items():
        if "released" not in name or "count" in name:
            measured = f"{ours / theirs:.2f}×"
            out.append(Target(f"error, {name}, over OpenDP's", "≤ 1×", measured, met=ours <= theirs))
    more = max(ours - plain for ours, plain in peaks.values())
    out.append(Target("peak memory over plain DuckDB", "≤ 300 MB", f"{more:.0f} MB", met=more <= 300))
    return out


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--peak")
    parser.add_argument("--letter")
    parser.add_argument("--path", type=Path)
    options = parser.parse_args()
    _peak_here(options.path, options.letter, options.peak)
