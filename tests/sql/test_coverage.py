"""Every interval holds the exact answer of the bounded query as often as it says.

The engine is asked once for the exact integers of each measure; thousands of releases are then drawn from
them, and read as one table. By aggregate, by how keys are known, by bounding, by law.

False alarms: there are fewer than 10,000 comparisons, each of which fails with a chance of 1e-14 if coverage
is just what is promised: below 1e-9 in all.
"""

import math
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from functools import cache

import duckdb
import numpy as np
import pandas as pd
import pytest

import hubbub as hb
from hubbub.sensitivity import Bounded
from hubbub.sql.aggregate import estimate_ratio
from hubbub.sql.executor import SelectedAggregate, dense_table, select_keys
from hubbub.sql.moments import Estimate
from hubbub.sql.planned_aggregates import NoisyAggregate, PlannedQuantiles
from hubbub.sql.quantile_aggregates import Quantiles, SelectedQuantiles
from hubbub.sql.quantile_selection import CellCounts
from internals import engine_of

RELEASES = 2000
RARE = 1e-14
GROUPS = ["many", "some", "few"]


def visits():
    """Units of very different sizes in three groups of very different sizes; some values are missing."""
    rng = np.random.default_rng(7)
    n = 900
    unit = np.floor(300 * rng.random(n) ** 2)
    place = np.searchsorted([0.72, 0.985], rng.random(n))
    x = np.where(place == 0, rng.normal(40, 12, n), rng.gamma(2, 8, n))
    y = 30 - 0.4 * x + rng.normal(0, 6, n)
    x[rng.random(n) < 0.05] = np.nan
    return pd.DataFrame({"unit": unit, "g": np.array(GROUPS)[place], "x": x, "y": y, "z": np.floor(x / 3)})


ROWS = {"rows_per_unit": 3}
BY_GROUPS = {"groups_per_unit": 2, "rows_per_group": 2, "rows_per_unit": 5}
BOUNDINGS = {"rows": ROWS, "groups": BY_GROUPS, "rows are units": {}}


@cache
def dataset(keys, bounding):
    unit = hb.Unit.row() if bounding == "rows are units" else "unit"
    known = {"g": [*GROUPS, "nobody"]} if keys == "public" else None
    return hb.open(visits(), table="t", unit=unit, bounds={"x": (0, 100), "y": (-50, 50)}, keys=known)


@cache
def ask(what, keys, bounding):
    """A plan with Laplace noise, its groups, and the exact integers of each measure."""
    grouped = " GROUP BY g" if keys != "none" else ""
    data = dataset(keys, bounding)
    delta = 1e-3 if keys == "private" else 0
    text = f"SELECT {what} AS a FROM t{grouped}"
    plan = replace(data.sql(text, epsilon=2, delta=delta, **BOUNDINGS[bounding]), is_gaussian=False)
    engine = engine_of(data)
    if plan.query.is_public:
        groups = plan.query.groups()
    else:  # with a count that selects, those that are shown now and then
        groups = select_keys(plan, engine) if plan.selecting is None else [(g,) for g in GROUPS]
    results = []
    for aggregate in plan.bounded.aggregates:
        # A smaller tree, so that thousands of them are quickly drawn.
        measure = replace(aggregate, depth=2) if isinstance(aggregate, Quantiles) else aggregate
        measured = measure.bound(plan.bounded.bounding)
        exact = engine.execute(measured.sql, measured.key_sets)
        vector = measure.to_vector(measured, dense_table(measured, exact, groups, len(plan.query.keys)))
        results.append((measure, measured, vector))
    return plan, groups, results


def released(plan, groups, result, copies):
    """For each group the exact answer, and `copies` values with their intervals."""
    exact, noisy, tables = {}, {}, []
    is_shown = np.ones(copies * len(groups), dtype=bool)
    for place, (measure, measured, vector) in enumerate(result):
        if isinstance(measure, SelectedQuantiles):
            plans = plan.aggregates[place]
            assert isinstance(plans, PlannedQuantiles)
            where, size = np.flatnonzero(vector), len(groups)
            group, cell = np.divmod(where, measured.bins)
            counts = CellCounts(size, group, cell, vector[where])
            one = plans.release_counts(counts, plan.unit, is_exact=True)
            again = np.repeat(np.arange(copies) * size, where.size) + np.tile(group, copies)
            tiled = CellCounts(copies * size, again, np.tile(cell, copies), np.tile(vector[where], copies))
            many = plans.release_counts(tiled, plan.unit)
            for readers, integers in ((exact, one), (noisy, many)):
                readers.update(dict.fromkeys(measure.indices, plans.make_estimator(integers)))
            continue
        noise = plan.calibrate_noise(measured.sensitivity)
        many = Bounded(np.tile(vector, copies), measured.sensitivity, plan.unit, measured.rule)
        size = measure.vector_size(measured)
        draws = noise.release(many).value
        tables.append((measure, measured, draws.reshape(-1, size), noise))
        for readers, integers in ((exact, vector), (noisy, draws)):
            reader = measure.make_estimator(integers.reshape(-1, size), measured, noise)
            readers.update(dict.fromkeys(measure.indices, reader))
        if place == plan.bounded.selecting_aggregate:
            is_shown = draws.reshape(-1, size).sum(axis=1) >= plan.stability_histogram.threshold
            reader = count(plan, draws, measured.step)
            if size > 1:
                source = NoisyAggregate(measure, measured, noise)
                chosen = SelectedAggregate(source, draws.reshape(-1, size), plan.stability_histogram)
                reader, tables[-1] = chosen.make_estimator(), chosen
            noisy.update(dict.fromkeys(measure.indices, reader))
    [truth] = plan.post_processing.evaluate(
        groups, lambda place, sure: exact[place](place, sure), plan.confidence
    )
    aggregate = list(groups) * copies

    def quotient(top, bottom, sure):
        known = [
            each.estimate_ratio((top, bottom), sure)
            if isinstance(each, SelectedAggregate)
            else estimate_ratio(*each, (top, bottom), sure)
            for each in tables
        ]
        return next((estimate for estimate in known if estimate is not None), None)

    [answers] = plan.post_processing.evaluate(
        aggregate, lambda place, sure: noisy[place](place, sure), plan.confidence, quotient
    )
    parts = (
        part.reshape(copies, len(groups)) for part in (answers.values, answers.low, answers.high, is_shown)
    )
    return truth.values, *parts


def count(plan, draws, step):
    """Counts that select their keys; those that are not shown stand in for others."""
    stable = plan.stability_histogram

    def read(_, confidence):
        aggregate = np.maximum(draws, stable.threshold)
        low, high = stable.interval(aggregate, confidence)
        return Estimate(*(float(step) * part.astype(float) for part in (aggregate, low, high)))

    return read


def tail(trials, chance, at_most):
    """Pr[Bin(trials, chance) ≤ at_most]."""
    logs = [
        math.lgamma(trials + 1) - math.lgamma(k + 1) - math.lgamma(trials - k + 1)
        + k * math.log(chance) + (trials - k) * math.log1p(-chance)
        for k in range(at_most + 1)
    ]  # fmt: skip
    return math.fsum(math.exp(log) for log in logs)


def check(what, keys, bounding, law, copies=RELEASES):
    plan, groups, result = ask(what, keys, bounding)
    if law == "Gaussian":
        plan = replace(plan, is_gaussian=True, delta=Fraction(1, 1000))
    truth, value, low, high, is_shown = released(plan, groups, result, copies)
    assert len(truth)
    assert ((low <= value) & (value <= high) | np.isnan(value)).all()
    slack = 1e-9 * np.maximum(1, np.abs(truth))  # the exact answer is a double, too
    # Of those that are shown: a key that is seldom shown is covered as often when it is.
    is_covered = is_shown & (low <= truth + slack) & (truth - slack <= high)
    many = is_shown.sum(axis=0)
    assert many.max() > copies / 2
    for group, covered, text, is_there in zip(
        groups, is_covered.sum(axis=0), many, np.isfinite(truth), strict=True
    ):
        # What is divided by the rows of nobody has no exact answer.
        assert not is_there or tail(int(text), float(plan.confidence), int(covered)) > RARE, (
            group,
            covered,
        )


AGGREGATES = [
    "COUNT(*)",
    "COUNT(x)",
    "COUNT(DISTINCT z)",
    "SUM(x)",
    "SUM(y)",
    "AVG(x)",
    "VARIANCE(x)",
    "VAR_POP(x)",
    "STDDEV(x)",
    "COVAR_SAMP(x, y)",
    "COVAR_POP(x, y)",
    "CORR(x, y)",
    "REGR_SLOPE(y, x)",
    "MEDIAN(x)",
    "QUANTILE_CONT(x, 0.9)",
    "MIN(x)",
    "MAX(x)",
    "MAX(x) - MEDIAN(x) + MIN(x)",
    "QUANTILE_CONT(x, 0.2) + QUANTILE_CONT(x, 0.4) + QUANTILE_CONT(x, 0.6) + QUANTILE_CONT(x, 0.8)",
    "SUM(x) / COUNT(x)",
    "COUNT(*) - COUNT(x)",
    "100 * COUNT(x) / COUNT(*)",
    "(SUM(x) - 40 * COUNT(x)) / (COUNT(*) + 1)",
    "AVG(x) * 2 + AVG(y)",
    "SQRT(VARIANCE(x)) / AVG(x)",
    "CASE WHEN COUNT(*) > 200 THEN AVG(x) ELSE COUNT(x) END",
    "ABS(SUM(y)) + COALESCE(NULLIF(COUNT(*), 12), 0)",
]
UNITS = ["COUNT(DISTINCT unit)", "SUM(x) / COUNT(DISTINCT unit)"]
PER_GROUP = [f"{name}, contribution_bounds_per_group => (0, 60))" for name in ("SUM(x", "AVG(x", "COUNT(*")]
KEYS = ["none", "public", "private"]
LAWS = ["Laplace", "Gaussian"]


@pytest.mark.sweep(59)
@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("bounding", BOUNDINGS)
@pytest.mark.parametrize("keys", KEYS)
@pytest.mark.parametrize("what", AGGREGATES)
def test_interval_covers_with_its_confidence(what, keys, bounding, law):
    check(what, keys, bounding, law)


@pytest.mark.sweep(17)
@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("bounding", ["rows", "groups"])
@pytest.mark.parametrize("keys", KEYS)
@pytest.mark.parametrize("what", UNITS + PER_GROUP)
def test_interval_of_per_unit_aggregates_covers_with_its_confidence(what, keys, bounding, law):
    check(what, keys, bounding, law)


@pytest.mark.parametrize("keys", ["public", "private"])
def test_intervals_of_two_thousand_groups_cover_with_their_confidence(keys):
    """Through the public door: as many groups with the same rows, released at once."""
    rng = np.random.default_rng(11)
    rows, x = 80, rng.gamma(4, 6, 80)
    frame = pd.DataFrame(
        {
            "unit": np.arange(RELEASES * rows) // 2,
            "g": np.repeat(np.arange(RELEASES), rows),
            "x": np.tile(x, RELEASES),
            "y": np.tile(x / 2 + rng.normal(0, 4, rows), RELEASES),
        }
    )
    known = {"g": range(RELEASES)} if keys == "public" else None
    data = hb.open(frame, table="t", unit="unit", bounds={"x": (0, 100), "y": (-50, 50)}, keys=known)
    outputs = {
        "n": "COUNT(*)",
        "u": "COUNT(DISTINCT unit)",
        "m": "AVG(x)",
        "s": "STDDEV(x)",
        "c": "COVAR_SAMP(x, y)",
    }
    columns = ", ".join(f"{what} AS {name}" for name, what in outputs.items())
    text = f"SELECT g, {columns} FROM t GROUP BY g"
    plan = data.sql(text, epsilon=12, delta=1e-3 if keys == "private" else 0, rows_per_unit=1)
    answers, exact = data.run(plan).value.to_dict(), data.exact(plan).to_dict()
    assert len(answers["g"]) == RELEASES
    for name in outputs:
        [truth] = set(exact[name])
        hits = sum(
            low <= truth <= high
            for low, high in zip(answers[f"{name}_low"], answers[f"{name}_high"], strict=True)
        )
        assert tail(RELEASES, 0.95, hits) > RARE, (name, hits)


# Values that sit badly on the grid, against what Python makes of them in rationals.

MILLION = 1_000_000
STEP = 5000 / 2**16
BADLY = {
    "prices": (4.99, 9.99, 4.99, 9.99),
    "cents": (0.02, 0.03, 0.02, 0.03),
    "just above a step": (100.3 * STEP, 200.3 * STEP, 7.3 * STEP, 8.3 * STEP),
    "just below a half": (100.499 * STEP, 101.499 * STEP, 0.499 * STEP, 1.499 * STEP),
    "at the bounds": (0.0, 5000.0, 4999.99, 0.01),
}
"""x and y of every first row and of every second."""
ON_THE_GRID = {
    "SUM(x)": lambda m: m["sum"],
    "AVG(x)": lambda m: m["sum"] / MILLION,
    "SUM(x) / COUNT(x)": lambda m: m["sum"] / MILLION,
    "VAR_POP(x)": lambda m: m["xx"],
    "VARIANCE(x)": lambda m: m["xx"] * MILLION / (MILLION - 1),
    "STDDEV(x)": lambda m: math.sqrt(m["xx"] * MILLION / (MILLION - 1)),
    "COVAR_POP(x, y)": lambda m: m["xy"],
    "CORR(x, y)": lambda m: m["xy"] / math.sqrt(m["xx"] * m["yy"]),
    "REGR_SLOPE(x, y)": lambda m: m["xy"] / m["yy"],
    "SUM(x, contribution_bounds_per_group => (0, 5000))": lambda m: m["sum"],
    "AVG(x, contribution_bounds_per_group => (0, 5000))": lambda m: m["sum"] / MILLION,
    "MAX(x)": lambda m: m["most"],
}


def moments_of(values):
    """What a million rows make, half of them with each pair of values."""
    x, y = [Fraction(values[0]), Fraction(values[1])], [Fraction(values[2]), Fraction(values[3])]
    mean = [sum(each) / 2 for each in (x, y)]

    def product(one, two, a, b):
        return sum((p - a) * (q - b) for p, q in zip(one, two, strict=True)) / 2

    return {
        "sum": MILLION * mean[0],
        "xx": product(x, x, mean[0], mean[0]),
        "yy": product(y, y, mean[1], mean[1]),
        "xy": product(x, y, mean[0], mean[1]),
        "most": max(x),
    }


@cache
def a_million(name, *, is_keyed):
    connection = duckdb.connect()
    a, b, c, d = BADLY[name]
    connection.execute(
        "CREATE TABLE t AS SELECT i AS unit, IF(i % 2 = 0, $a, $b) AS x, IF(i % 2 = 0, $c, $d) AS y "
        f"FROM range({MILLION}) AS r(i)",
        {"a": a, "b": b, "c": c, "d": d},
    )
    unit = "unit" if is_keyed else hb.Unit.row()
    return hb.open(connection, table="t", unit=unit, bounds={"x": (0, 5000), "y": (0, 5000)})


@pytest.mark.sweep(29)
@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("what", ON_THE_GRID)
@pytest.mark.parametrize("name", BADLY)
def test_interval_covers_values_off_the_grid(name, what, law):
    is_keyed = "per_group" in what or "SUM" in what
    data = a_million(name, is_keyed=is_keyed)
    how = {"rows_per_unit": 1} if is_keyed else {}
    for epsilon in (1, 30):
        plan = data.sql(f"SELECT {what} AS a FROM t", epsilon=epsilon, allow_large_epsilon=True, **how)
        plan = replace(plan, is_gaussian=law == "Gaussian", delta=Fraction(law == "Gaussian", 1000))
        results = []
        for aggregate in plan.bounded.aggregates:
            measure = replace(aggregate, depth=2) if isinstance(aggregate, Quantiles) else aggregate
            measured = measure.bound(plan.bounded.bounding)
            exact = engine_of(data).execute(measured.sql, measured.key_sets)
            results.append(
                (measure, measured, measure.to_vector(measured, dense_table(measured, exact, [()], 0)))
            )
        _, _, low, high, _ = released(plan, [()], results, RELEASES)
        truth = float(ON_THE_GRID[what](moments_of(BADLY[name])))
        covered = int(((low <= truth) & (truth <= high)).sum())
        assert tail(RELEASES, 0.95, covered) > RARE, (epsilon, covered)


@pytest.mark.long
@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("bounding", BOUNDINGS)
@pytest.mark.parametrize("keys", KEYS)
@pytest.mark.parametrize("what", AGGREGATES)
def test_interval_covers_in_a_hundred_thousand_releases(what, keys, bounding, law):
    copies = 10_000 if "M" in what.split("(")[0] or "QUANT" in what else 100_000
    check(what, keys, bounding, law, copies)


# Far from zero, beside a narrow range. Without noise an interval holds the truth for sure, or is too narrow.

FAR = {
    "a mean that is no double": ("AVG(x)", (10**12, 10**12 + 1), [1e12, 1e12, 1e12 + 1]),
    "a variance between bounds that are no doubles": (
        "VAR_POP(x)",
        (Decimal("1000000000000.1"), Decimal("1000000000001.1")),
        [1e12 - 5, 1e12 + 0.5],
    ),
    "a mean of what units make": (
        "AVG(x, contribution_bounds_per_group => (1000000000, 1000000001))",
        (10**9, 10**9 + 1),
        [1e9 + 0.25 + 2**-16.2],
    ),
}


@pytest.mark.parametrize("name", FAR)
def test_an_interval_covers_values_far_from_zero_in_a_narrow_range(name):
    what, bounds, values = FAR[name]
    connection = duckdb.connect()
    connection.execute(
        "CREATE TABLE t AS SELECT i AS unit, list_extract($v::DOUBLE[], i % $n + 1) AS x "
        "FROM range(1200000) AS r(i)",
        {"v": values, "n": len(values)},
    )
    unit = "unit" if "per_group" in what else hb.Unit.row()
    how = {"rows_per_unit": 1} if unit == "unit" else {}
    data = hb.open(connection, table="t", unit=unit, bounds={"x": bounds})
    plan = data.sql(f"SELECT {what} AS a FROM t", epsilon=20, **how)
    [plans] = plan.aggregates
    measure, measured = plans.aggregate, plans.bounded
    exact = engine_of(data).execute(measured.sql, measured.key_sets)
    table = measure.to_vector(measured, dense_table(measured, exact, [()], 0)).reshape(1, -1)
    read = measure.make_estimator(table, measured, plans.noise)(0, Fraction(19, 20))
    low, high = map(Fraction, bounds)
    clamped = [min(max(Fraction(value), low), high) for value in values]
    truth = sum(clamped) / len(clamped)
    if what.startswith("VAR"):
        truth = sum((value - truth) ** 2 for value in clamped) / len(clamped)
    assert Fraction(read.low[0]) <= truth <= Fraction(read.high[0])
