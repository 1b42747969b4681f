"""Random small tables, their neighbours, random queries, and the exact integers that these measure."""

import random
from contextlib import suppress
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache

import numpy as np

from engine_tables import DuckDBTables
from hubbub.accounting.in_memory_account import InMemoryAccount
from hubbub.dataset import Dataset
from hubbub.engines.engine import TableSource
from hubbub.errors import InvalidInput
from hubbub.sql.contribution_bounding import ContributionBounding
from hubbub.sql.executor import dense_table
from hubbub.sql.limit_choice import ROW_BINS
from hubbub.sql.query import ContributionBounds
from hubbub.unit import Neighbours, Unit
from internals import engine_of

NUMBERS = (0.0, -0.0, 1.0, 2.0, 3.0, 7.5, -4.0, 10.0, 1e300, -1e300, 5e-324, float("nan"), float("inf"), None)
WEIRD = (-float("inf"), 1e16, -1e16, 0.1, 1.7976931348623157e308, 2.0**53 + 2)
TEXTS = ("a", "b", "c", "", "a", "b", None, "ß\U0001f600", 'O\'Hara "x" %_', "nul\0inside")
DATES = ("2024-02-29", "0001-01-01", "9999-12-31", "5877642-06-25 (BC)", "5881580-07-10", "infinity", None)
UNITS = (1, 2, 3, 4, None)
COLUMNS = {
    "u": "BIGINT",
    "g": "VARCHAR",
    "h": "DOUBLE",
    "x": "DOUBLE",
    "y": "DOUBLE",
    "b": "BOOLEAN",
    "d": "DATE",
}
LIST_COLUMNS = {"gs": "VARCHAR[]", "xs": "DOUBLE[]"}
"""Of worlds with lists, besides."""
PUBLIC = [("a", 1.0), ("a", 2.0), ("a", 2.0), ("b", 3.0), (None, 4.0), ("z", 5.0)]

KEYS = {"g": ["a", "b", "z", None], "h": [0, 1, 2, 7.5], "d": None}
BOUNDS = {"h": (-3, 5), "x": (0, 10), "y": (-7, 10), "ABS(t.y)": (0, 10), "w": (0, 4)}


def row(rng, unit):
    """One row of t or s."""
    number = rng.choice(NUMBERS + WEIRD)
    other = rng.choice(NUMBERS)
    values = rng.choice(TEXTS), rng.choice(NUMBERS), number, other, rng.choice([True, False, None])
    return (unit, *values, rng.choice(DATES))


def lists(rng):
    """A row's lists; rows that are alike in all else may have different ones."""
    return [
        rng.choice([None, [], [rng.choice(values) for _ in range(rng.randint(1, 6))]])
        for values in (TEXTS, NUMBERS)
    ]


def rows_of(rng, unit, most):
    """Some rows of one unit, often alike."""
    rows = [row(rng, unit) for _ in range(rng.randint(1, most))]
    return rows * rng.choice((1, 1, 3))


def remember_texts(compile_tree):
    """Compile each query once for all the rows that it is asked of: that takes as long as running it."""
    texts = {}

    def compile_once(tree):
        if id(tree) not in texts:
            if len(texts) > 99:
                texts.clear()
            texts[id(tree)] = tree, compile_tree(tree)  # with the tree, so that its number stays its own
        return texts[id(tree)][1]

    return compile_once


@dataclass(frozen=True)
class World:
    """Two protected tables, t and s, and a public one, p; their rows can be changed."""

    tables: DuckDBTables
    dataset: Dataset
    columns: dict[str, str]

    @classmethod
    def of(cls, unit, tables=None, *, has_lists=False):
        tables = tables or DuckDBTables()
        columns = COLUMNS | (LIST_COLUMNS if has_lists else {})
        names = {name: tables.create(name, columns) for name in ("t", "s")}
        public = tables.create("p", {"g": "VARCHAR", "w": "DOUBLE"})
        tables.put("p", {"g": "VARCHAR", "w": "DOUBLE"}, PUBLIC)
        protected = TableSource(names["t"], unit=unit.key, bounds={name: BOUNDS[name] for name in "hxy"})
        sources = {"t": protected, "s": replace(protected, rows=names["s"])}
        sources["p"] = TableSource(public, is_public=True, bounds={"w": BOUNDS["w"]})
        engine = tables.engine(sources)
        engine.compile = remember_texts(engine.compile)
        return cls(tables, Dataset(engine, unit, InMemoryAccount()), columns)

    def put(self, name, rows):
        """These rows, in place of what was there."""
        self.tables.put(name, self.columns, rows)

    def measured(self, plan):
        """By name: what the engine gives for every aggregate, for the keys, and for bounds to estimate."""
        bounded, bounding, limits = plan.bounded, plan.bounded.bounding, plan.contribution_bounds
        case_ = {f"aggregate {i}": each for i, each in enumerate(bounded.bounded_aggregates)}
        if plan.partition_selection is not None:
            case_["keys"] = bounded.key_candidates
        if plan.split.rows:
            case_["sizes"] = bounding.contribution_histogram(ROW_BINS)
        if plan.split.groups:
            case_["sizes of groups"] = bounding.contribution_histogram(ROW_BINS, of_groups=True)
        if plan.query.is_top:
            case_["top"] = bounded.top_scores
        with suppress(InvalidInput):  # where nothing is bounded there is nothing to report
            case_["above"] = bounding.units_above_bounds()
        rows = limits.rows or (limits.groups or 1) * (limits.rows_per_group or 1)
        query = replace(plan.query, keys=())
        over_all = ContributionBounding(query, ContributionBounds(rows), plan.unit.neighbours)
        for place in bounded.estimated_arguments:
            case_[f"bounds {place}"] = over_all.magnitude_histogram(place)
        engine = engine_of(self.dataset)
        with engine.snapshot():  # as a run does: what the owner's database holds is checked once
            return {name: (each, engine.execute(each.sql, each.key_sets)) for name, each in case_.items()}


def moved(plan, one, two):
    """By name: the measurement, and by how much its exact vector differs between two databases."""
    keys = len(plan.query.keys)
    out = {}
    for name, (measured, result) in one.items():
        other = two[name][1]
        if name.startswith(("sizes", "bounds")):
            vectors = []
            for columns in (result, other):
                vector = np.zeros(measured.bins, dtype=np.int64)
                vector[columns["b"]] = columns["m0"]
                vectors.append(vector)
        elif name == "above":
            vectors = [np.concatenate([columns["m0"], columns["m1"]]) for columns in (result, other)]
        else:
            groups = plan.query.groups() if plan.query.is_public else seen(result, keys) | seen(other, keys)
            tables = [
                dense_table(measured, columns, sorted(groups, key=str), keys) for columns in (result, other)
            ]
            if name.startswith("aggregate"):
                aggregate = plan.bounded.aggregates[int(name.split()[1])]
                vectors = [aggregate.to_vector(measured, table) for table in tables]
            else:
                vectors = [table.reshape(-1) for table in tables]
        change = vectors[0] - vectors[1]
        out[name] = measured, change[change != 0].astype(object)
        if name == f"aggregate {plan.bounded.selecting_aggregate}" and measured.columns > 1:
            totals = change.reshape(-1, measured.columns).sum(axis=1)
            out["totals"] = measured, totals[totals != 0].astype(object)
        if (
            measured.counts_units and "keys" in one
        ):  # a measure may count units besides, by which keys are selected
            counts = [
                dict(zip(groups_of(columns, keys), columns["u"], strict=True)) for columns in (result, other)
            ]
            change = [counts[0].get(key, 0) - counts[1].get(key, 0) for key in {**counts[0], **counts[1]}]
            out[f"keys, {name}"] = (
                one["keys"][0],
                np.array([int(each) for each in change if each], dtype=object),
            )
    return out


def groups_of(result, keys):
    return list(zip(*(result[f"k{place}"] for place in range(keys)), strict=True))


def seen(result, keys):
    return set(groups_of(result, keys))


def norms(change):
    """ℓ1, ℓ2² and ℓ∞, in exact integers."""
    return sum(abs(change)), sum(change * change), max(abs(change), default=0)


# Queries

CONDITIONS = (
    "t.x > 1", "t.y / t.x > 0.5", "t.g LIKE 'a%' OR t.b", "LN(t.x) < 2 OR t.h IS NULL",
    "CAST(t.g AS INT) IS NULL",
    "COALESCE(t.x, 0) BETWEEN 0 AND 8", "NOT (t.g = 'b')", "EXTRACT(year FROM t.d) > 2000 OR t.d IS NULL",
    "t.g IN ('a', 'b') AND SQRT(t.y) >= 0", "LENGTH(t.g || CAST(t.x AS VARCHAR)) > 3",
)  # fmt: skip
ALL = "t.u, t.g, t.h, t.x, t.y, t.b, t.d"
ALONE = (
    "t",
    "(SELECT * FROM t WHERE b) AS t",
    "(SELECT u, g, h, x * 2 AS x, CASE WHEN b THEN y ELSE -1 END AS y, b, d FROM t) AS t",
)
JOINED = (
    "t JOIN p ON t.g = p.g",
    "t CROSS JOIN p",
    "p JOIN t ON t.x < p.w",
    "t LEFT JOIN p ON t.g = p.g AND p.w > 1",
    "(SELECT t.u, p.g, t.h, p.w AS x, t.y, t.b, t.d FROM t JOIN p ON t.h < p.w) AS t",
)
BY_UNIT = (
    "(SELECT * FROM t UNION ALL SELECT * FROM t) AS t",
    "(SELECT * FROM t UNION ALL SELECT * FROM s WHERE x > 0) AS t",
    "t JOIN s ON t.u = s.u",
    "t LEFT JOIN s ON t.u = s.u AND t.g = s.g",
    "(SELECT t.u, t.g, s.h, t.x, s.y, t.b, s.d FROM t JOIN s USING (u)) AS t",
    "(SELECT DISTINCT u, g, h, x, y, b, d FROM t) AS t",
    (
        "(SELECT u, g, MIN(h) AS h, SUM(x) AS x, AVG(y) AS y, MAX(b) AS b, MAX(d) AS d "
        "FROM t GROUP BY u, g) AS t"
    ),
    (
        "(SELECT u, MAX(g) AS g, MIN(h) AS h, COUNT(*) AS x, COUNT(DISTINCT x) AS y, TRUE AS b, MIN(d) AS d "
        "FROM t GROUP BY u) AS t"
    ),
    (
        "(SELECT t.* FROM (SELECT u, SUM(x) AS total FROM t GROUP BY u) AS q JOIN t ON q.u = t.u "
        "WHERE total > 1) AS t"
    ),
)
SPELLINGS = (
    "(SELECT t.u, t.g, s.h, t.x, s.y, t.b, s.d FROM t, s WHERE t.u = s.u) AS t",
    "(SELECT t.u, t.g, s.h, t.x, s.y, t.b, s.d FROM p, t, s WHERE s.u = t.u AND p.g = t.g) AS t",
    "s RIGHT JOIN t ON t.u = s.u",
    "(SELECT * FROM t WHERE u IN (SELECT u FROM s WHERE x > 0)) AS t",
    "(SELECT * FROM t WHERE u NOT IN (SELECT u FROM s WHERE x > 0)) AS t",
    "(SELECT * FROM t WHERE g IN (SELECT g FROM p WHERE w > 1)) AS t",
    "(SELECT * FROM t WHERE EXISTS (SELECT 1 FROM s WHERE s.u = t.u AND s.g = t.g AND s.x > 1)) AS t",
    "(SELECT * FROM t WHERE NOT EXISTS (SELECT 1 FROM s WHERE s.u = t.u AND s.b) AND h > 0) AS t",
    "(SELECT u, g, h, x, y, b, d FROM t UNION DISTINCT SELECT u, g, h, x, y, b, d FROM s) AS t",
    (
        "(SELECT t.* FROM t JOIN (SELECT u FROM t EXCEPT DISTINCT SELECT u FROM s) AS q ON q.u = t.u "
        "WHERE t.x IS NOT NULL) AS t"
    ),
    (
        "(SELECT u, g, h, SUM(x) OVER (PARTITION BY u ORDER BY h) AS x, "
        "ROW_NUMBER() OVER (PARTITION BY u ORDER BY g DESC) AS y, b, d FROM t) AS t"
    ),
    (
        "(SELECT u, g, h, x, RANK() OVER (PARTITION BY u, g ORDER BY x) AS y, b, d FROM t "
        "QUALIFY ROW_NUMBER() OVER (PARTITION BY u ORDER BY h) <= 2) AS t"
    ),
    (
        "(SELECT u, LAG(g) OVER (PARTITION BY u ORDER BY h) AS g, h, "
        "LEAD(x, 2) OVER (PARTITION BY u ORDER BY d) AS x, "
        "FIRST_VALUE(y) OVER (PARTITION BY u ORDER BY x DESC) AS y, b, "
        "LAG(d) OVER (PARTITION BY u, g ORDER BY y) AS d FROM t) AS t"
    ),
    (
        "(SELECT u, STRFTIME(d, '%A') AS g, DATE_DIFF('month', d, DATE '2024-06-30') AS h, "
        "WIDTH_BUCKET(x, 0, 5, 3) AS x, x % 3 AS y, d + 30 > DATE '2024-06-30' AS b, LAST_DAY(d) AS d "
        "FROM t) AS t"
    ),
    (
        "(SELECT u, MAX(g) AS g, MIN(h) AS h, COUNT(*) AS x, SUM(y) AS y, TRUE AS b, MIN(d) AS d FROM t "
        "GROUP BY u HAVING COUNT(*) > 1) AS t"
    ),
)
"""What is rewritten before it is analyzed, and windows of one unit."""
OUTER = (
    "(SELECT u, t.g, s.h, t.x, s.y, t.b, s.d FROM t FULL JOIN s USING (u)) AS t",
    "(SELECT u, t.g, s.h, t.x, s.y, t.b, s.d FROM t FULL JOIN s USING (u, g) WHERE s.x > 0 OR t.b) AS t",
    "(SELECT u, t.g, s.h, t.x, s.y, t.b, s.d FROM t FULL JOIN s USING (u) FULL JOIN t AS r USING (u)) AS t",
    "t FULL JOIN s ON t.u = s.u AND t.g = s.g AND s.x > 1 AND t.b",
    "t FULL OUTER JOIN (SELECT u, SUM(x) AS a FROM s GROUP BY u) AS q ON q.u = t.u AND t.x = q.a",
    "p RIGHT JOIN t ON t.g = p.g",
    "s JOIN p ON s.g = p.g RIGHT JOIN t ON t.u = s.u",
    "(SELECT u, t.g, s.h, t.x, s.y, t.b, s.d FROM s RIGHT JOIN t USING (u)) AS t",
    (
        "(SELECT t.u, t.g, s.h, t.x, r.y, t.b, s.d FROM t LEFT JOIN s ON t.u = s.u "
        "LEFT JOIN s AS r ON s.u = r.u) AS t"
    ),
)
"""Outer joins of protected tables, and those that keep their rows."""
SUB_QUERIES = (
    "(SELECT * FROM t WHERE EXISTS (SELECT 1 FROM s WHERE s.u = t.u AND s.x < t.x)) AS t",
    "(SELECT * FROM t WHERE NOT EXISTS (SELECT 1 FROM s WHERE s.u = t.u AND s.g = t.g AND s.h <> t.h)) AS t",
    "(SELECT * FROM t WHERE t.b OR EXISTS (SELECT 1 FROM s WHERE s.u = t.u AND s.b)) AS t",
    "(SELECT * FROM t WHERE t.h > 0 OR g IN (SELECT g FROM p WHERE w > 2)) AS t",
    "(SELECT * FROM t WHERE x >= (SELECT AVG(x) FROM s WHERE s.u = t.u)) AS t",
    "(SELECT * FROM t WHERE x < (SELECT AVG(w) FROM p)) AS t",
    "(SELECT u, g, (SELECT COUNT(*) FROM s WHERE s.u = t.u AND s.g = t.g) AS h, x, y, b, d FROM t) AS t",
    (
        "(SELECT t.* FROM t JOIN (SELECT g, SUM(w) AS total FROM p GROUP BY g) AS q "
        "ON q.g = t.g AND total > t.x) AS t"
    ),
    "(SELECT DISTINCT ON (u) u, g, h, x, y, b, d FROM t ORDER BY u, x DESC) AS t",
    (
        "(SELECT u, MAX(g) || 'x' AS g, MAX(h) - MIN(h) AS h, SUM(x) / COUNT(*) AS x, "
        "COUNT_IF(b) + COUNT(*) FILTER (WHERE y > 0) AS y, BOOL_OR(b) AS b, MIN(d) + 3 AS d "
        "FROM t GROUP BY u) AS t"
    ),
    (
        "(SELECT u, CASE WHEN LAG(g) OVER (PARTITION BY u ORDER BY h) = g THEN 'a' ELSE g END AS g, h, "
        "SUM(x) OVER (PARTITION BY u ORDER BY h ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) AS x, "
        "x - LAG(y, 1, 2) OVER (PARTITION BY u ORDER BY x) AS y, "
        "LAST_VALUE(b) OVER w AS b, FIRST_VALUE(d) OVER w AS d FROM t "
        "WINDOW w AS (PARTITION BY u ORDER BY y ROWS BETWEEN 1 FOLLOWING AND UNBOUNDED FOLLOWING)) AS t"
    ),
)
"""Sub-queries that become joins, expressions of a unit's aggregates, and frames of windows."""
SPELLINGS += OUTER + SUB_QUERIES
MORE = (
    "(SELECT t.u, t.g, q.h, t.x, q.y, t.b, t.d FROM t NATURAL JOIN (SELECT u, g, h, y FROM s) AS q) AS t",
    "(SELECT u, g, h, x, y, b, d FROM t NATURAL RIGHT JOIN (SELECT u, g, h, y FROM s) AS q) AS t",
    "(SELECT DISTINCT ON (u, g) u, g, h, x, y, b, d FROM t ORDER BY u, g, h, y DESC) AS t",
    "(SELECT u, g, h, x, y, b, d FROM t QUALIFY COUNT(*) OVER (PARTITION BY u, g) > 1) AS t",
    (
        "(SELECT u, g, MAX(h) OVER (PARTITION BY u) AS h, "
        "AVG(x) OVER (PARTITION BY u ORDER BY d ROWS BETWEEN UNBOUNDED PRECEDING AND 1 FOLLOWING) AS x, "
        "DENSE_RANK() OVER (PARTITION BY u ORDER BY g) AS y, b, d "
        "FROM t) AS t"
    ),
    (
        "(SELECT t.u, t.g, q.c AS h, t.x, t.y, t.b, t.d FROM t LEFT JOIN (SELECT u, COUNT(*) AS c FROM s "
        "GROUP BY u) AS q USING (u) WHERE COALESCE(q.c, 0) < 3) AS t"
    ),
)
"""NATURAL joins, windows of several kinds, and what is nested in each other."""
SPELLINGS += MORE
LISTS = (
    "(SELECT u, e AS g, h, x, y, b, d FROM t, UNNEST(gs) AS q(e)) AS t",
    "(SELECT u, g, e AS h, e AS x, y, b, d FROM t CROSS JOIN UNNEST(xs) AS q(e)) AS t",
    "(SELECT u, g, h, UNNEST(xs) AS x, y, b, d FROM t) AS t",
    "(SELECT u, g, LEN(gs) AS h, LEN(xs) AS x, y, LIST_CONTAINS(gs, 'a') AS b, d FROM t) AS t",
    "(SELECT * FROM t WHERE 'a' = ANY(gs) OR LEN(xs) > 2) AS t",
    "(SELECT DISTINCT u, e AS g, h, x, y, b, d FROM t, UNNEST(gs) AS q(e)) AS t",
    (
        "(SELECT u, e AS g, MIN(h) AS h, COUNT(*) AS x, SUM(y) AS y, BOOL_OR(b) AS b, MAX(d) AS d "
        "FROM t, UNNEST(gs) AS q(e) GROUP BY u, e) AS t"
    ),
    (
        "(SELECT t.u, q.e AS g, s.h, t.x, s.y, t.b, s.d FROM (SELECT u, UNNEST(gs) AS e FROM t) AS q "
        "JOIN s USING (u) JOIN t USING (u)) AS t"
    ),
    (
        "(SELECT u, g, h, x, RANK() OVER (PARTITION BY u ORDER BY x) AS y, b, d FROM "
        "(SELECT u, g, h, UNNEST(xs) AS x, b, d FROM t) AS q) AS t"
    ),
)
"""Columns of lists, which DuckDB alone reads."""
AGGREGATES = (
    "COUNT(*)", "COUNT(t.x)", "COUNT(DISTINCT t.x)", "COUNT(DISTINCT t.g)", "SUM(t.x)", "SUM(t.y)",
    "AVG(t.x)", "AVG(t.y)", "VARIANCE(t.y)", "STDDEV(t.x)", "COVAR_SAMP(t.x, t.y)", "REGR_SLOPE(t.x, t.h)",
    "MEDIAN(t.x)", "QUANTILE_CONT(t.y, 0.9)",
    "SUM(DISTINCT t.y)", "AVG(DISTINCT t.x)", "STDDEV(DISTINCT t.y)",
    "SUM(t.x) / COUNT(t.x)", "COUNT(*) FILTER (WHERE t.b)", "SUM(ABS(t.y))",
)  # fmt: skip
UNIT_AGGREGATES = (
    "COUNT(DISTINCT t.u)",
    "COUNT(*, contribution_bounds_per_group => (0, 2))",
    "SUM(t.y, contribution_bounds_per_group => (-3, 5))",
    "SUM(t.x, contribution_bounds_per_group => (0, 5))",
    "AVG(t.y, contribution_bounds_per_group => (-3, 5))",
)
GROUPINGS = (
    ((), {}),
    (("t.g",), {"g": KEYS["g"]}),
    (("t.h",), {"h": KEYS["h"]}),
    (("t.g", "t.b"), {"g": KEYS["g"]}),
    (("EXTRACT(quarter FROM t.d)",), {}),
    (("t.g",), {}),
    (("t.h", "t.b"), {}),
    (("t.d", "t.g"), {"g": KEYS["g"]}),
    (("CASE WHEN t.x > 2 THEN t.g ELSE 'low' END",), {}),
)
HOWS = (
    {"rows_per_unit": 1},
    {"rows_per_unit": 3},
    {"rows_per_unit": 3, "groups_per_unit": 2},
    {"groups_per_unit": 1, "rows_per_group": 2},
    {"groups_per_unit": 2, "rows_per_group": 1},
    {},
)


@dataclass(frozen=True)
class Case:
    """A plan, the limits it is run with, and what it was made of."""

    plan: object
    text: str


def case(rng, world, sources=()):
    """A random query with its plan; `sources` are other tables and sub-queries to ask about."""
    is_by_unit = world.dataset.unit.key is not None
    source = rng.choice(sources or ALONE + JOINED + (BY_UNIT if is_by_unit else ()))
    # Bounds in a call make it GoogleSQL, which writes lists in another way.
    of_units = UNIT_AGGREGATES[:1] if source in LISTS else UNIT_AGGREGATES
    pool = AGGREGATES + (of_units if is_by_unit else ())
    aggregates = [rng.choice(pool) for _ in range(rng.choice((1, 1, 2, 3)))]
    grouping, keys = rng.choice(GROUPINGS)
    if any("MEDIAN" in each or "QUANTILE" in each for each in aggregates):
        grouping, keys = rng.choice([((), {}), (("t.b",), {}), (("t.g",), {})])
    items = [f"{each} AS k{i}" for i, each in enumerate(grouping)]
    items += [f"{each} AS m{i}" for i, each in enumerate(dict.fromkeys(aggregates))]
    where = f" WHERE {rng.choice(CONDITIONS)}" if rng.random() < 0.4 else ""
    group = f" GROUP BY {', '.join(grouping)}" if grouping else ""
    body = f"SELECT {', '.join(items)} FROM {source}{where}{group}"
    if " AS t" in source and rng.random() < 0.3:
        inner = source.removeprefix("(").removesuffix(") AS t")
        body = f"WITH c AS ({inner}) SELECT {', '.join(items)} FROM c AS t{where}{group}"
    declared = {name: values for name, values in keys.items() if values is not None}
    plan = world.dataset.sql(
        body,
        epsilon=Fraction(rng.choice(("1", "0.1", "3"))),
        delta=rng.choice((Fraction(1, 10**6), 0)) if is_public(grouping, keys) else Fraction(1, 10**6),
        keys=declared,
        bounds=BOUNDS | ({"x": "auto"} if rng.random() < 0.15 else {}),
        **(rng.choice(HOWS) if is_by_unit or " JOIN p" in source else {}),
    )
    if plan.bounded.estimates_limits:
        rows, groups = rng.choice((1, 2, 4)), rng.choice((1, 2, 3))
        plan = plan.with_limits(
            rows=rows if plan.bounded.estimates_rows else None,
            groups=groups if plan.bounded.estimates_groups else None,
        )
    return Case(plan, body)


def is_public(grouping, keys):
    known = {"t.b", "EXTRACT(quarter FROM t.d)", *(f"t.{name}" for name in keys)}
    return all(each in known for each in grouping)


def databases(rng, unit, *, has_lists=False):
    """Rows of t and s, and of neighbours: (with unit 1, without it or with others in its place)."""
    if unit.key is None:
        rest = [row(rng, None) for _ in range(rng.randint(0, 4))]
        one = [row(rng, None)]
        other = [row(rng, None)] if unit.neighbours is Neighbours.SUBSTITUTE else []
        return ({"t": rest + one}, {"t": other + rest})
    rest, one, other = ({"t": [], "s": []} for _ in range(3))
    for name in ("t", "s"):
        for who in UNITS[1:]:
            rest[name] += rows_of(rng, who, 3) if rng.random() < 0.6 else []
        one[name] = rows_of(rng, 1, 6)
        if unit.neighbours is Neighbours.SUBSTITUTE:
            other[name] = rows_of(rng, 1, 6)
    if has_lists:
        for each in (rest, one, other):
            for name, rows in each.items():
                each[name] = [(*values, *lists(rng)) for values in rows]
    # What comes first must not matter, so they come in two orders.
    return tuple(
        {name: [*more[name], *rest[name]] if more is other else [*rest[name], *more[name]] for name in rest}
        for more in (one, other)
    )


def shuffled(rng, database):
    return {name: rng.sample(rows, len(rows)) for name, rows in database.items()}


def compared(rng, world, case_):
    """What one unit moves, for random neighbours."""
    results = []
    for database in databases(rng, world.dataset.unit, has_lists="gs" in world.columns):
        for name, rows in shuffled(rng, database).items():
            world.put(name, rows)
        results.append(world.measured(case_.plan))
    return moved(case_.plan, *results)


UNITS_OF_WORLDS = {
    f"{key or 'row'}, {neighbours.value}": Unit(key, neighbours) if key else Unit.row(neighbours)
    for key in ("u", None)
    for neighbours in Neighbours
}
"""One for each unit and relation, by its name."""


@cache
def world_named(name, *, has_lists=False):
    """The world in DuckDB that all tests of this name share."""
    return World.of(UNITS_OF_WORLDS[name], has_lists=has_lists)


def seeded(*parts):
    return random.Random("/".join(map(str, parts)))
