"""Every interval holds the exact answer of the bounded query as often as it says.

The engine is asked once for the exact integers of each measure; thousands of releases are then drawn from
them, and read as one table. By aggregate, by how keys are known, by bounding, by law.

False alarms: there are fewer than 10,000 comparisons, each of which fails with a chance of 1e-14 if coverage is
just what is promised: below 1e-9 in all.
"""

import math
from dataclasses import replace
from functools import cache

import numpy as np
import pandas as pd
import pytest

import hubbub as hb
from hubbub.bounded import Bounded
from hubbub.queries.measures import Quantiles
from hubbub.queries.outputs import shown
from hubbub.queries.run import _dense, _selected

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
BY_GROUPS = {"groups_per_unit": 2, "rows_per_group": 2, "rows_per_unit": 3}
BOUNDINGS = {"rows": ROWS, "groups": BY_GROUPS, "rows are units": {}}


@cache
def dataset(keys, bounding):
    unit = hb.Unit.row() if bounding == "rows are units" else "unit"
    known = {"g": [*GROUPS, "nobody"]} if keys == "public" else None
    return hb.open(visits(), table="t", unit=unit, bounds={"x": (0, 100), "y": (-50, 50)}, keys=known)


def planned(what, keys, bounding, law, **more):
    grouped = " GROUP BY g" if keys != "none" else ""
    shown_keys = "g, " if keys != "none" else ""
    data = dataset(keys, bounding)
    options = {"epsilon": 2, "delta": 1e-3, **BOUNDINGS[bounding], **more}
    plan = data.sql(f"SELECT {shown_keys}{what} AS a FROM t{grouped}", **options)
    return replace(plan, is_gaussian=law == "Gaussian"), data._engine


def released(plan, engine, copies):
    """For each group the exact answer, and `copies` intervals with their values."""
    weighing = plan.weighing(plan.limits)
    groups = plan.query.groups() if plan.query.is_public else _selected(plan, engine, plan.limits)
    exact, noisy = {}, {}
    for given in plan.measures:
        # A smaller tree, so that thousands of them are quickly drawn.
        measure = replace(given, depth=2) if isinstance(given, Quantiles) else given
        measured = measure.measurement(weighing)
        found = engine.aggregates(measured.sql, measured.key_sets)
        table = _dense(measured, found, groups, len(plan.query.keys))
        vector = measure.vector(measured, table)
        noise = plan.noise(measured.sensitivity)
        many = Bounded.derived(np.tile(vector, copies), measured.sensitivity, plan.unit, measured.because)
        size = measure.released(measured)
        exact.update(
            dict.fromkeys(measure.aggregates, measure.reader(vector.reshape(-1, size), measured, noise))
        )
        reader = measure.reader(noise.release(many).value.reshape(-1, size), measured, noise)
        noisy.update(dict.fromkeys(measure.aggregates, reader))
    truth = shown(plan.query, groups, lambda place, sure: exact[place](place, sure), plan.confidence)[-1]
    answers = shown(
        plan.query, list(groups) * copies, lambda place, sure: noisy[place](place, sure), plan.confidence
    )[-1]
    parts = (part.reshape(copies, len(groups)) for part in (answers.values, answers.low, answers.high))
    return [group[0] if group else "all" for group in groups], truth.values, *parts


def tail(trials, chance, at_most):
    """Pr[Bin(trials, chance) ≤ at_most]."""
    logs = [
        math.lgamma(trials + 1) - math.lgamma(k + 1) - math.lgamma(trials - k + 1)
        + k * math.log(chance) + (trials - k) * math.log1p(-chance)
        for k in range(at_most + 1)
    ]  # fmt: skip
    return math.fsum(math.exp(log) for log in logs)


def check(plan, engine, copies=RELEASES):
    names, truth, value, low, high = released(plan, engine, copies)
    assert names
    assert (low <= value).all()
    assert (value <= high).all()
    for place, name in enumerate(names):
        if name == "nobody" and not np.isfinite(truth[place]):
            continue
        slack = 1e-9 * max(1.0, abs(truth[place]))  # the exact answer is a double, too
        covered = int(((low[:, place] <= truth[place] + slack) & (truth[place] - slack <= high[:, place])).sum())
        assert tail(copies, float(plan.confidence), covered) > RARE, (name, covered / copies)


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
    "MEDIAN(x)",
    "QUANTILE_CONT(x, 0.9)",
    "MIN(x)",
    "MAX(x)",
    "SUM(x) / COUNT(x)",
    "COUNT(*) - COUNT(x)",
    "100 * COUNT(x) / COUNT(*)",
    "AVG(x) * 2 + AVG(y)",
    "SQRT(VARIANCE(x)) / AVG(x)",
    "CASE WHEN COUNT(*) > 200 THEN AVG(x) ELSE COUNT(x) END",
    "ABS(SUM(y)) + COALESCE(NULLIF(COUNT(*), 12), 0)",
]
UNITS = ["COUNT(DISTINCT unit)", "SUM(x) / COUNT(DISTINCT unit)"]
PER_GROUP = [f"{name}, contribution_bounds_per_group => (0, 60))" for name in ("SUM(x", "AVG(x", "COUNT(*")]
KEYS = ["none", "public", "private"]
LAWS = ["Laplace", "Gaussian"]


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("bounding", BOUNDINGS)
@pytest.mark.parametrize("keys", KEYS)
@pytest.mark.parametrize("what", AGGREGATES)
def test_an_interval_covers_as_often_as_it_says(what, keys, bounding, law):
    check(*planned(what, keys, bounding, law))


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("bounding", ["rows", "groups"])
@pytest.mark.parametrize("keys", KEYS)
@pytest.mark.parametrize("what", UNITS + PER_GROUP)
def test_an_interval_of_what_units_make_covers_as_often_as_it_says(what, keys, bounding, law):
    check(*planned(what, keys, bounding, law))
