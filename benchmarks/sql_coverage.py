"""How much SQL is answered as people write it: queries in the style of each source, compared with DuckDB.

    PYTHONPATH=src .venv/bin/python benchmarks/sql_coverage.py [--source tpch] [--held-back] [--verbose]

The queries are our own, in `sql_queries/`; each has its constructs in a comment before it. `refuse` marks
those that nobody could protect, `approx` those whose answer is another by design (a MAX is a high quantile),
`duck:` the same query in DuckDB's words. Every answered query runs at an ε so large that noise vanishes; an
answer that differs from DuckDB's is counted as different.
"""

import argparse
import json
import math
import re
import tempfile
from collections import Counter, defaultdict
from dataclasses import dataclass
from datetime import date, datetime
from functools import cache
from pathlib import Path

import duckdb

import hubbub as hb

FOLDER = Path(__file__).parent / "sql_queries"
EPSILON = 10**18
SMALLER = 200
"""Where keys are selected privately, which takes long to plan at a huge ε: then only shapes are compared."""
CLASSES = (
    "as written",
    "refused rightly",
    "refused, could be protected",
    "answered, should be refused",
    "different",
)


@dataclass(frozen=True)
class World:
    """Tables, and what their owner declares of them."""

    setup: str
    protected: tuple[str, ...]
    unit: str
    public: tuple[str, ...]
    bounds: dict
    keys: dict
    rows: int


def tables(name: str) -> str:
    return (FOLDER / f"tables_{name}.sql").read_text()


WORLDS = {
    "census": World(
        tables("census"), ("PUMS",), "pid", (), {"age": (0, 120), "income": (0, 100_000)},
        {"sex": [0, 1], "married": [0, 1], "educ": list(range(1, 7)), "race": ["white", "black", "asian"]}, 1,
    ),
    "shop": World(
        tables("shop"), ("users", "orders", "events", "baskets"), "user_id", ("products", "countries"),
        {"amount": (0, 50), "age": (0, 100), "product_id": (0, 12)},
        {
            "plan": ["free", "pro", "team"], "country": ["FR", "DE", "JP", "BR"],
            "status": ["paid", "open", "returned"], "device": ["web", "ios", "android"],
            "event": ["view", "cart", "buy"],
        },
        60,
    ),
    "google": World(
        tables("google"), ("professors", "staff"), "id", ("items",), {"quantity": (0, 100)}, {}, 60,
    ),
    "tpch": World(
        tables("tpch"), ("customer", "orders", "lineitem"), "custkey",
        ("region", "nation", "supplier", "part", "partsupp"),
        {"l_quantity": (0, 50), "l_price": (0, 1000), "l_discount": (0, 0.1), "c_acctbal": (-1000, 1000)},
        {}, 200,
    ),
}  # fmt: skip
SOURCES = {
    "smartnoise": "census",
    "qrlew": "shop",
    "googlesql": "google",
    "tumult_opendp": "shop",
    "warehouses": "shop",
    "dashboards": "shop",
    "tpch": "tpch",
}
HELD_BACK = {f"held_back_{source}": world for source, world in SOURCES.items() if source != "tpch"}
"""Queries that were written before the constructs they use were built, and are not tuned on."""
FRESH = {f"fresh_{source}": world for source, world in SOURCES.items() if source != "tpch"}
"""Queries that were written against the finished code, which had not seen any of them."""
ALL = {**SOURCES, **HELD_BACK, **FRESH}


@dataclass(frozen=True)
class Written:
    """One query of the suite."""

    source: str
    tags: tuple[str, ...]
    text: str
    flags: frozenset[str]
    duck: str
    bounds: dict


def read(source: str) -> list[Written]:
    queries = []
    for head, body in re.findall(
        r"^-- ([^\n]*)\n([^\n]*)$", (FOLDER / f"{source}.sql").read_text(), re.MULTILINE
    ):
        tags, _, flags = head.partition(";")
        text, _, rest = body.partition(";")
        duck = re.search(r"duck: (.*)$", rest)
        declared = re.search(r"bounds: (.*)=(-?\d+):(-?\d+)", rest)
        bounds = {declared[1]: (int(declared[2]), int(declared[3]))} if declared else {}
        plain = duck[1] if duck else text.replace("PUMS.PUMS", "PUMS").replace('"PUMS"."PUMS"', "PUMS")
        queries.append(
            Written(
                source,
                tuple(tag.strip() for tag in tags.split(",")),
                text,
                frozenset(flags.split()),
                plain,
                bounds,
            )
        )
    return queries


@cache
def open_data(name: str) -> tuple[hb.Dataset, duckdb.DuckDBPyConnection]:
    world = WORLDS[name]
    theirs = duckdb.connect(config={"threads": 1})
    theirs.execute(world.setup)
    theirs.execute("SET ieee_floating_point_ops = false")
    folder = Path(tempfile.mkdtemp(prefix="hubbub-sql-"))
    lines = [f"rows_per_unit = {world.rows}", f"groups_per_unit = {world.rows}"]
    for table in (*world.protected, *world.public):
        theirs.sql(f"FROM {table}").write_parquet(str(folder / f"{table}.parquet"))
        columns = {row[0] for row in theirs.execute(f"DESCRIBE {table}").fetchall()}
        lines += [f"[tables.{table}]", f'path = "{table}.parquet"']
        lines += ["public = true"] if table in world.public else [f'unit = "{world.unit}"']
        bounds = {
            name: list(ends)
            for name, ends in world.bounds.items()
            if name in columns and table in world.protected
        }
        keys = {
            name: list(known)
            for name, known in world.keys.items()
            if name in columns and table in world.protected
        }
        for entry, declared in (("bounds", bounds), ("keys", keys)):
            listed = ", ".join(f"{name} = {json.dumps(arguments)}" for name, arguments in declared.items())
            lines += [f"{entry} = {{ {listed} }}"] if listed else []
    (folder / "hubbub.toml").write_text("\n".join(lines))
    return hb.open(folder / "hubbub.toml"), theirs


def value(cell):
    if isinstance(cell, bool) or cell is None or isinstance(cell, str):
        return cell
    if isinstance(cell, datetime):
        return cell.isoformat()
    if isinstance(cell, date):
        return datetime(cell.year, cell.month, cell.day).isoformat()  # noqa: DTZ001 - compared with others alike
    return float(cell)


def close(one, two) -> bool:
    if isinstance(one, float) and isinstance(two, float):
        return math.isclose(one, two, rel_tol=2e-3, abs_tol=2e-2)
    return one == two


def rank(row):
    return [
        (each is None, str(type(each)), round(each, 1) if isinstance(each, float) else each) for each in row
    ]


def agree(ours: list[tuple], theirs: list[tuple], *, approx: bool) -> bool:
    """True if every row of DuckDB's is ours; rows of declared keys that nobody has are ours alone."""
    if theirs and ours and len(ours[0]) != len(theirs[0]):
        return False
    if approx:
        return len(ours) == len(theirs)
    ours, theirs = sorted(ours, key=rank), sorted(theirs, key=rank)
    labels = {label(row) for row in theirs}
    place = 0
    for row in ours:
        if place < len(theirs) and all(map(close, row, theirs[place])):
            place += 1
        elif isinstance(row[-1], float) and abs(row[-1]) > 0.5 and label(row) in labels:
            return False
    return place == len(theirs)


def label(row: tuple) -> tuple:
    """The texts and dates of a row: what nobody has is an empty group, which may have any mean."""
    return tuple(each for each in row if not isinstance(each, float))


def make_plan(data: hb.Dataset, query: Written, **options):
    options = {"epsilon": EPSILON, "delta": 0, "bounds": query.bounds, **options}
    return data.sql(query.text, **options, allow_large_epsilon=True)


def classify(query: Written, *, verbose: bool = False) -> tuple[str, str]:
    """The class of a query, and what was said of it."""
    data, theirs = open_data(ALL[query.source])
    is_rough = "approx" in query.flags
    try:
        try:
            plan = make_plan(data, query)
        except hb.HubbubError as refused:
            unknown = re.match("the keys of (.*) are not declared", str(refused))
            if unknown is None:
                raise
            actual = theirs.execute(query.duck)
            names = [column[0].lower() for column in actual.description]
            rows = actual.fetchall()
            target = unknown[1].lower().split(", ")
            if set(target) <= set(names):
                keys = {name: sorted({row[names.index(name)] for row in rows}, key=str) for name in target}
                try:
                    plan = make_plan(data, query, keys=keys)
                except hb.HubbubError as other:  # DuckDB cuts dates to timestamps
                    if "is not a date" not in str(other):
                        raise
                    dates = {name: [each.date() for each in values] for name, values in keys.items()}
                    plan = make_plan(data, query, keys=dates)
            else:
                is_rough, plan = True, make_plan(data, query, epsilon=SMALLER, delta=1e-4)
        result = data.run(plan).value
    except hb.HubbubError as refused:
        message = " ".join(str(refused).split())
        return ("refused rightly" if "refuse" in query.flags else "refused, could be protected"), message
    if "refuse" in query.flags:
        return "answered, should be refused", ""
    columns = result.to_dict()
    ours = [
        tuple(map(value, row)) for row in zip(*(columns[each.name] for each in result.columns), strict=True)
    ]
    expected = [tuple(map(value, row)) for row in theirs.execute(query.duck).fetchall()]
    if agree(ours, expected, approx=is_rough):
        return "as written", ""
    return "different", f"{sorted(ours, key=rank)[:6]} / {sorted(expected, key=rank)[:6]}" if verbose else ""


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--source", choices=[*ALL])
    options.add_argument("--held-back", action="store_true", help="the queries that are held back")
    options.add_argument("--fresh", action="store_true", help="the queries that were written last")
    options.add_argument("--verbose", action="store_true")
    chosen = options.parse_args()
    by_source: dict[str, Counter] = defaultdict(Counter)
    by_construct: dict[str, Counter] = defaultdict(Counter)
    worlds = HELD_BACK if chosen.held_back else FRESH if chosen.fresh else SOURCES
    for source in [chosen.source] if chosen.source else worlds:
        open_data(ALL[source])
        for query in read(source):
            try:
                name, message = classify(query, verbose=chosen.verbose)
            except Exception as problem:
                name, message = "different", f"crashed: {type(problem).__name__}: {str(problem)[:300]}"
            by_source[source][name] += 1
            for tag in query.tags:
                by_construct[tag][name] += 1
            if chosen.verbose and name not in CLASSES[:2]:
                print(f"{source}, {', '.join(query.tags)}: {name}\n  {query.text}\n  {message}")
    widths = "{:<28}" + "{:>14}" * (len(CLASSES) + 1)
    print(widths.format("source", *(each.split(",")[-1].strip()[:13] for each in CLASSES), "all"))
    total: Counter = Counter()
    for source, counts in by_source.items():
        total += counts
        print(widths.format(source, *(counts[each] for each in CLASSES), counts.total()))
    print(widths.format("all", *(total[each] for each in CLASSES), total.total()))
    contents, refused = (total[CLASSES[place]] / total.total() for place in (0, 2))
    print(f"\n{contents:.0%} as written, {refused:.0%} refused though protectable")
    print("\nconstructs that are refused or different:")
    for tag, counts in sorted(
        by_construct.items(), key=lambda item: -(item[1].total() - item[1]["as written"])
    ):
        missing = {name: counts[name] for name in CLASSES[2:] if counts[name]}
        if missing:
            print(f"  {tag}: {missing} of {counts.total()}")


if __name__ == "__main__":
    main()
