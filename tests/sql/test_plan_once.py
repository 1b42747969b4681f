"""A plan is computed once: no builder is called twice for one question, and a run builds nothing anew."""

import cProfile
import pstats
from collections import Counter
from contextlib import ExitStack
from functools import wraps
from importlib import import_module
from unittest import mock

import polars as pl
import pytest

import hubbub as hb
from hubbub.engines.duckdb import DuckDB
from hubbub.mechanisms import Laplace
from hubbub.sql.contribution_bounding import ContributionBounding

README = (
    "SELECT region, COUNT(*) AS n, AVG(cost) AS cost, MEDIAN(cost) AS middle "
    "FROM visits GROUP BY region ORDER BY n DESC"
)
FUNCTIONS = (
    "hubbub.dataset.parse",
    "hubbub.dataset.analyze",
    "hubbub.sql.plan.compile_outputs",
    "hubbub.sql.bounded_query.make_aggregates",
)
BUILDERS = (
    "sums",
    "histogram",
    "units",
    "key_candidates",
    "per_group",
    "distinct_values",
    "contribution_histogram",
    "units_above_bounds",
    "magnitude_histogram",
)


@pytest.fixture
def data():
    count = 300
    frame = pl.DataFrame(
        {
            "patient": [i % 100 for i in range(count)],
            "region": [("North", "South")[i % 2] for i in range(count)],
            "cost": [float(i) for i in range(count)],
        }
    )
    return hb.open(frame, table="visits", unit="patient", bounds={"cost": (0, 300)})


class Calls:
    """Counts the calls of every builder, by name and arguments."""

    def __init__(self):
        self.calls = Counter()
        self._patches = ExitStack()

    def __enter__(self):
        for name in FUNCTIONS:
            self._watch(*name.rsplit(".", 1))
        for name in BUILDERS:
            self._watch(ContributionBounding, name)
        self._watch(DuckDB, "compile")
        self._watch(Laplace, "of")
        return self

    def __exit__(self, *_):
        self._patches.close()

    def _watch(self, owner, name):
        target = import_module(owner) if isinstance(owner, str) else owner
        original = getattr(target, name)

        @wraps(original)
        def count_of(*arguments, **options):
            self.calls[name, repr(arguments), repr(options)] += 1
            return original(*arguments, **options)

        self._patches.enter_context(mock.patch.object(target, name, count_of))

    def of(self, name):
        return sum(count for (called, *_), count in self.calls.items() if called == name)


@pytest.mark.sweep(3)
@pytest.mark.parametrize(
    "arguments",
    [
        {"keys": {"region": ["North", "South"]}, "rows_per_unit": 3},
        {"keys": {"region": ["North", "South"]}, "rows_per_unit": 3, "delta": 1e-6},
        {"rows_per_unit": 3, "delta": 1e-6},
        {"keys": {"region": ["North", "South"]}, "rows_per_unit": 3, "bounding_report": True},
        {"keys": {"region": ["North", "South"]}},
    ],
    ids=["public keys", "Gaussian", "private keys", "report", "estimated rows"],
)
def test_planning_calls_no_builder_twice(data, arguments):
    with Calls() as calls:
        plan = data.sql(README, epsilon=1, **arguments)
        str(plan), repr(plan), plan.loss, plan.label(), plan.notes()
    assert {name for name, count in calls.calls.items() if count > 1} == set()
    for name in ("parse", "analyze", "compile_outputs", "make_aggregates", "compile"):
        assert calls.of(name) == 1, name
    # Where a limit is found later, the errors are stated for three.
    assert calls.of("sums") == calls.of("histogram") == (1 if "rows_per_unit" in arguments else 3)


def test_error_target_builds_aggregates_once(data):
    with Calls() as calls:
        data.sql("SELECT COUNT(*) AS n, SUM(cost) AS s FROM visits", error={"n": 5}, rows_per_unit=3)
    assert calls.of("make_aggregates") == 1
    assert calls.of("sums") == 1


def test_run_builds_nothing_that_the_plan_has(data):
    plan = data.sql(README, epsilon=1, keys={"region": ["North", "South"]}, rows_per_unit=3)
    with Calls() as calls:
        plan.run()
    for name in ("parse", "analyze", "compile_outputs", "make_aggregates", "of", *BUILDERS):
        assert calls.of(name) == 0, name


@pytest.mark.slow
def test_a_run_with_estimated_bounds_builds_the_figures_for_these_once(data):
    plan = data.sql(
        "SELECT SUM(cost) AS s, COUNT(DISTINCT patient) AS n FROM visits",
        epsilon=1000,
        bounds={"cost": "auto"},
        allow_large_epsilon=True,
    )
    with Calls() as calls:
        plan.run()
    # Rows per unit and bounds are estimated one after the other, and each changes the aggregates.
    assert calls.of("contribution_histogram") == calls.of("magnitude_histogram") == 1
    assert calls.of("parse") == calls.of("compile_outputs") == 0
    assert {name: count for name, count in calls.calls.items() if count > 1 and name[0] in BUILDERS} == {}


@pytest.mark.slow
@pytest.mark.parametrize("condition", ["COUNT(*) > {}", "region = 'r{}'", "region = 'r{}' OR SUM(cost) > {}"])
def test_planning_a_long_condition_takes_calls_in_proportion_to_it(data, condition):
    def count_calls(parts):
        having = " OR ".join(condition.format(part, part) for part in range(parts))
        profile = cProfile.Profile()
        profile.runcall(
            data.sql,
            f"SELECT region, COUNT(*) AS n FROM visits GROUP BY region HAVING {having}",
            epsilon=1,
            keys={"region": ["North", "South"]},
            rows_per_unit=3,
        )
        return pstats.Stats(profile).total_calls

    count_calls(1)  # what is computed once in a process
    assert count_calls(100) < 4.5 * count_calls(25)
