"""Small tables full of odd values, their neighbours, and how far a query's integers lie apart on them."""

from dataclasses import dataclass
from random import Random

import duckdb
import numpy as np

import hubbub as hb
from hubbub.dataset import Dataset
from hubbub.sql.limit_choice import ROW_BINS
from hubbub.sql.plan import Plan
from hubbub.unit import Neighbours

COSTS = [0, 1, -1, 5.5, 3, 7, 10, 2.5, None, "nan", "inf", "-inf", 1e308, -1e308, 5e-324, 2.0**53, -0.0, 1e19]
NOTES = [
    "", "a", "b", "O'Brien", '"', "12", "-3.5", "1e999", "nan", "infinity", "-infinity", "2024-02-30",
    "2024-02-29", "5877642-06-25 (BC)", "294247-01-10 04:00:54.775806", "10000-01-01", "true", "é🙂", "%",
    "\\", "9" * 40, None, "'; DROP TABLE visits; --", "x" * 300, "0001-01-01 (BC)", "128", "3.5e38",
]  # fmt: skip
DAYS = [
    "2024-01-01", "2024-02-29", "1999-12-31", None, "infinity", "5877642-06-25 (BC)", "5881580-07-10",
    "0001-01-01",
]  # fmt: skip
TIMES = [
    "2024-01-01 10:11:12", "2024-02-29", None, "-infinity", "290309-12-22 (BC)",
    "294247-01-10 04:00:54.775806",
]  # fmt: skip
REGIONS = ["a", "b", "O'Brien", None, "z"]
IDS = [1, 2, 3, 2**53, 2**53 + 1, None]
BOUNDS = {"patient": (0, 4), "cost": (0, 10), "age": (-5, 100), "size": (0, 3)}
KEYS = {"region": ["a", "b", "O'Brien"], "town": ["a", "b", None]}
_MADE = {
    "visits": "patient BIGINT, region VARCHAR, cost DOUBLE, day DATE, seen TIMESTAMP, note VARCHAR, "
    "ok BOOLEAN, odd TIME",
    "people": "patient BIGINT, age DOUBLE, town VARCHAR",
}


def rows_of(random: Random, who: int | None) -> dict[str, list[tuple]]:
    """What one unit may have in each table."""
    pick = random.choice
    visits = [
        (
            who,
            pick(REGIONS),
            pick(COSTS),
            pick(DAYS),
            pick(TIMES),
            pick(NOTES),
            pick([True, False, None]),
            "10:00:00",
        )
        for _ in range(pick([0, 1, 1, 2, 3, 7, 12]))
    ]
    people = [(who, pick(COSTS), pick(REGIONS)) for _ in range(pick([0, 1, 1, 2]))]
    return {"visits": visits, "people": people}


def open_data(tables: dict[str, list[tuple]], unit: hb.Unit) -> Dataset:
    """A dataset of these rows; with rows for units, of the visits alone."""
    connection = duckdb.connect(config={"threads": 1})
    for name, columns in _MADE.items():
        connection.execute(f"CREATE TABLE {name} ({columns})")
        marks = ", ".join("?" * (columns.count(",") + 1))
        if tables[name]:
            connection.executemany(f"INSERT INTO {name} VALUES ({marks})", tables[name])
    towns = {"town": ["a", "a", "b", "q"], "country": ["x", "y", "x", "x"], "size": [1.0, 2.0, 3.0, 4.0]}
    connection.execute(
        "CREATE TABLE towns AS SELECT UNNEST($town) AS town, UNNEST($country) AS country, "
        "UNNEST($size) AS size",
        towns,
    )
    names = ["visits"] if unit.key is None else ["visits", "people"]
    from hubbub.engines.duckdb import DuckDB
    from hubbub.engines.engine import TableSource

    sources = {
        name: TableSource(
            name, None, unit.key, bounds=_known(BOUNDS, _MADE[name]), keys=_known(KEYS, _MADE[name])
        )
        for name in names
    }
    sources["towns"] = TableSource("towns", is_public=True, bounds={"size": BOUNDS["size"]})
    return Dataset(DuckDB(sources, connection), unit, hb.InMemoryAccount())


def _known(declared: dict, columns: str) -> dict:
    return {name: value for name, value in declared.items() if f"{name} " in columns}


@dataclass(frozen=True)
class Worlds:
    """Three databases: one, the same without a unit, and the same with other rows in that unit's place."""

    one: Dataset
    without: Dataset
    instead: Dataset

    @classmethod
    def of(cls, seed: int, unit: hb.Unit) -> "Worlds":
        random = Random(seed)
        if unit.key is None:
            rows = [rows_of(random, who)["visits"] for who in (1, 2, 3, 4)]
            visits = [row for some in rows for row in some] or [(1, "a", 1, None, None, "a", True, None)]
            place = random.randrange(len(visits))
            other = (rows_of(random, 9)["visits"] or visits)[0]
            remaining = visits[:place] + visits[place + 1 :]
            lists = [visits, remaining, [*remaining, other]]
            return cls(*(open_data({"visits": each, "people": []}, unit) for each in lists))
        all_of = {who: rows_of(random, who) for who in IDS}
        gone = random.choice([1, 2, 2**53])
        new = {**all_of, gone: rows_of(random, gone)}
        rest = {who: rows for who, rows in all_of.items() if who != gone}
        return cls(*(open_data(_together(random, each), unit) for each in (all_of, rest, new)))


def _together(random: Random, units: dict) -> dict[str, list[tuple]]:
    """All rows, in any order: a table has none."""
    tables = {name: [row for rows in units.values() for row in rows[name]] for name in _MADE}
    for rows in tables.values():
        random.shuffle(rows)
    return tables


def moves_too_far(plan: Plan, worlds: Worlds) -> str | None:
    """What moves by more than its claim in the plan's relation; None where all is well."""
    is_added = plan.unit.neighbours is Neighbours.ADD_REMOVE
    pair = worlds.one, worlds.without if is_added else worlds.instead
    for name, (measure, measured) in _measurements(plan).items():
        results = [world._engine.execute(measured.sql, measured.key_sets) for world in pair]
        one, other = _vectors(plan, measure, measured, results)
        moved = [abs(int(a) - int(b)) for a, b in zip(one[one != other], other[one != other], strict=True)]
        claimed = measured.sensitivity
        if (
            sum(moved) > claimed.l1
            or sum(each * each for each in moved) > claimed.l2_squared
            or max(moved, default=0) > claimed.linf
        ):
            return f"{name} by {sum(moved)} of {claimed}"
    return None


def _measurements(plan: Plan) -> dict:
    """Everything that a plan may ask of the engine."""
    results = {
        f"aggregate {place}": (each.aggregate, each.bounded) for place, each in enumerate(plan.aggregates)
    }
    bounded = plan.bounded
    if bounded.estimates_rows:
        results["sizes"] = None, bounded.bounding.contribution_histogram(ROW_BINS)
    if bounded.estimates_groups:
        results["group sizes"] = None, bounded.bounding.contribution_histogram(ROW_BINS, of_groups=True)
    if plan.partition_selection is not None:
        results["keys"] = None, bounded.key_candidates
    if plan.query.is_top:
        results["top"] = None, bounded.top_scores
    for place in bounded.estimated_arguments:
        results[f"magnitudes {place}"] = None, bounded.bounding.magnitude_histogram(place)
    return results


def _vectors(plan, measure, measured, result) -> list:
    """The integers of each world over the groups of all of them, in one order."""
    has_bins = measured.bins > 1
    keywords = "p" if "p0" in result[0] else "k"  # public keys are places
    keys = (
        len(plan.query.keys)
        if all(f"{keywords}{place}" in each for place in range(len(plan.query.keys)) for each in result)
        else 0
    )
    tables = []
    for each in result:
        columns = [each[f"{keywords}{place}"] for place in range(keys)]
        groups = zip(*(map(repr, column.tolist()) for column in columns), strict=True) if keys else None
        names = list(groups) if groups is not None else [()] * len(each["m0"])
        bins = each["b"] if has_bins else np.zeros(len(names), dtype=np.int64)
        tables.append({
            (name, int(b)): [int(each[f"m{column}"][row]) for column in range(measured.columns)]
            for row, (name, b) in enumerate(zip(names, bins, strict=True))
        })  # fmt: skip
        assert len(tables[-1]) == len(names), "a group comes twice"
    order = sorted({name for table in tables for name, _ in table})
    out = []
    for table in tables:
        dense = np.zeros((max(1, len(order)) * measured.bins, measured.columns), dtype=np.int64)
        for (name, b), integers in table.items():
            dense[order.index(name) * measured.bins + b] = integers
        out.append(dense.reshape(-1) if measure is None else measure.to_vector(measured, dense))
    return out
