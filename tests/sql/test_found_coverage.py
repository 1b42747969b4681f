"""Intervals cover where limits, bounds and keys are found by the same query, and where a cap is declared.

Each run is a query of its own, through the public door: the search, then the noise. The exact answer is that
of the bounded query for what was found, or of all rows where a cap is declared.

False alarms: fewer than 300 comparisons, each of which fails with a chance of 1e-12 if coverage is just what
is promised.
"""

import math
from fractions import Fraction
from functools import cache

import duckdb
import numpy as np
import pytest

import hubbub as hb

RUNS = 60
RARE = 1e-12
GROUPS = ["a", "b", "c"]


@cache
def visits():
    """Three thousand units; one has a sixth of all rows. Values have a heavy tail."""
    rng = np.random.default_rng(5)
    sizes = np.minimum(rng.geometric(0.3, 3000), 20)
    sizes[0] = 2000
    unit = np.repeat(np.arange(3000), sizes)
    connection = duckdb.connect()
    connection.execute(
        "CREATE TABLE t AS SELECT unnest($u) AS u, unnest($g) AS g, unnest($x) AS x",
        {
            "u": unit.tolist(),
            "g": rng.choice(GROUPS, unit.size, p=[0.5, 0.3, 0.2]).tolist(),
            "x": np.round(rng.lognormal(2, 0.8, unit.size), 2).tolist(),
        },
    )
    return connection


def tail(trials, chance, at_most):
    """Pr[Bin(trials, chance) ≤ at_most]."""
    terms = (math.comb(trials, k) * chance**k * (1 - chance) ** (trials - k) for k in range(at_most + 1))
    return math.fsum(terms)


@cache
def exact(text, keys, limits, bounds):
    """The bounded query's exact answers, with what was found declared."""
    known = {"g": GROUPS} if keys == "public" else None
    with hb.open(visits(), table="t", unit="u", keys=known) as data:
        declared = {name: (Fraction(low), Fraction(high)) for name, (low, high) in bounds}
        plan = data.sql(
            text, epsilon=500, delta=1e-3, bounds=declared, allow_large_epsilon=True, **dict(limits)
        )
        table = data.exact(plan).to_dict()
    names = [name for name in table if name != "g" and not name.endswith(("_low", "_high"))]
    places = table.get("g", [None] * len(table[names[0]]))
    return {place: {name: table[name][row] for name in names} for row, place in enumerate(places)}


def run_once(text, keys, bounds, delta):
    """The answers by group, and what is exact for the limits and bounds that this run has found."""
    known = {"g": GROUPS} if keys == "public" else None
    with hb.open(visits(), table="t", unit="u", keys=known) as data:
        table = data.sql(text, epsilon=10, delta=delta, bounds={"x": bounds}).run().value
    facts, answers = table.facts, table.to_dict()
    limits = {"rows_per_unit": facts["rows per unit"], "groups_per_unit": facts["groups per unit"]}
    known_bounds = tuple(sorted((name, tuple(ends)) for name, ends in facts["bounds"].items()))
    truth = exact(text, keys, tuple((name, limit) for name, limit in limits.items() if limit), known_bounds)
    rows = len(next(iter(answers.values())))
    for place in range(rows):
        key = answers["g"][place] if "g" in answers else None
        for name, value in truth[key].items():
            if answers[name][place] is not None:
                low, high = answers[f"{name}_low"][place], answers[f"{name}_high"][place]
                slack = 1e-9 * max(1, abs(value))
                yield (key, name), low <= value + slack and value - slack <= high


QUESTIONS = {
    "counts and sums": "COUNT(*) AS n, SUM(x) AS s, SUM(x) / COUNT(*) AS r",
    "moments": "AVG(x) AS m, VARIANCE(x) AS v",
    "quantiles": "MEDIAN(x) AS q, QUANTILE_CONT(x, 0.25) AS p, MAX(x) AS most",
    "units": "COUNT(DISTINCT u) AS u",
}


@pytest.mark.long
@pytest.mark.parametrize("bounds", [(0, 60), "auto"])
@pytest.mark.parametrize("keys", ["none", "public", "private"])
@pytest.mark.parametrize("name", QUESTIONS)
def test_intervals_cover_where_limits_and_bounds_are_found(name, keys, bounds):
    if name == "units" and bounds == "auto":
        pytest.skip("units have no bounds")
    grouped = ("g, ", " GROUP BY g") if keys != "none" else ("", "")
    text = f"SELECT {grouped[0]}{QUESTIONS[name]} FROM t{grouped[1]}"
    covered = {}
    for _ in range(RUNS):
        for answer, is_covered in run_once(text, keys, bounds, 1e-3 if keys == "private" else 0):
            covered.setdefault(answer, []).append(is_covered)
    for answer, hits in covered.items():
        print(name, keys, bounds, answer, f"{sum(hits) / len(hits):.3f} of {len(hits)}")
        assert len(hits) > RUNS / 2
        assert tail(len(hits), 0.95, sum(hits)) > RARE, (answer, sum(hits), len(hits))


@pytest.mark.long
@pytest.mark.parametrize("keys", ["none", "public"])
def test_intervals_cover_all_rows_where_a_cap_is_declared(keys):
    """With a cap that holds, of all rows as they are: nothing is weighted, and values are within bounds."""
    connection = visits()
    grouped = ("g, ", " GROUP BY g") if keys != "none" else ("", "")
    columns = "COUNT(*) AS n, SUM(x) AS s, AVG(x) AS m, COUNT(DISTINCT u) AS u"
    text = f"SELECT {grouped[0]}{columns} FROM t{grouped[1]}"
    cursor = connection.execute(f"SELECT {grouped[0] or 'NULL AS g, '}{columns} FROM t{grouped[1]}")
    truth = {row[0]: dict(zip("nsmu", row[1:], strict=True)) for row in cursor.fetchall()}
    known = {"g": GROUPS} if keys == "public" else None
    covered = {}
    with hb.open(connection, table="t", unit="u", keys=known, max_rows_per_unit=2000) as data:
        for _ in range(RUNS):
            table = data.sql(text, epsilon=5, bounds={"x": (0, 1000)}).run().value
            assert table.facts["interval covers"].startswith("the exact answer, of values")
            answers = table.to_dict()
            for row, key in enumerate(answers.get("g", [None])):
                for name in "nsmu":
                    if answers[name][row] is not None:
                        low, high = answers[f"{name}_low"][row], answers[f"{name}_high"][row]
                        hit = low - 1e-6 <= truth[key][name] <= high + 1e-6
                        covered.setdefault((key, name), []).append(hit)
    for answer, hits in covered.items():
        print("cap", keys, answer, f"{sum(hits) / len(hits):.3f} of {len(hits)}")
        assert tail(len(hits), 0.95, sum(hits)) > RARE, (answer, sum(hits), len(hits))
