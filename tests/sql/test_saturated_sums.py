"""Sums are cut at an end where 64 bits would not hold them: no unit moves them more, and intervals say so.

False alarms: intervals miss with a chance of 2^-45, and there are fewer than 20.
"""

import numpy as np
import pandas as pd
import pytest

import hubbub as hb
from sql.neighbours import World
from sql.test_sensitivity import check_world

ROWS = 300
_ROW, _VALUE, _BIN = 2**17, 2**32, 2**30
"""What a row counts in a count of two groups, where it has a value, and in a bin."""
ENDS = {
    "COUNT(*)": 100 * _ROW, "COUNT(DISTINCT patient)": 100 * _ROW, "COUNT(DISTINCT cost)": 5,
    "SUM(cost)": 50 * _VALUE, "AVG(cost)": 50 * _VALUE, "STDDEV(cost)": 50 * _VALUE,
    "SUM(cost) / COUNT(*)": 50 * _VALUE, "MEDIAN(cost)": 20 * _BIN,
}  # fmt: skip


HOLDERS = (
    "bounding_sql", "contribution_bounding", "aggregate", "quantile_tree", "quantile_aggregates",
    "quantile_selection",
)  # fmt: skip


@pytest.fixture
def at(monkeypatch):
    """An end that a test can reach."""

    def put(end):
        for module in HOLDERS:
            monkeypatch.setattr(f"hubbub.sql.{module}.MAX_MAGNITUDE", end)

    return put


@pytest.fixture(scope="module")
def data():
    numbers = np.arange(ROWS)
    regions = np.where(numbers % 30, "many", "few")
    rows = pd.DataFrame({"patient": numbers, "cost": numbers % 10.0, "region": regions})
    return hb.open(rows, table="t", unit="patient", rows_per_unit=1, bounds={"cost": (0, 9)})


def ends(data, text, **known):
    known = known or {"keys": {"region": ["few", "many"]}}
    plan = data.sql(
        f"SELECT region, {text} AS n FROM t GROUP BY region",
        epsilon=100,
        confidence=1 - 2**-45,
        **known,
        allow_large_epsilon=True,
    )
    result = next(column for column in plan.run().value.columns if column.name == "n")
    return [(float(low), float(high)) for low, high in zip(result.low, result.high, strict=True)]


@pytest.mark.sweep(5)
@pytest.mark.slow
@pytest.mark.parametrize("text", ENDS)
def test_saturated_sum_has_an_unbounded_interval(data, at, text):
    assert np.isfinite(ends(data, text)).all()
    at(ENDS[text])
    few, many = ends(data, text)
    assert np.isfinite(few).all()
    assert many == (-np.inf, np.inf)


def test_saturated_sum_has_an_unbounded_interval_with_selected_keys(data, at):
    known = {"delta": 1e-6}
    assert np.isfinite(ends(data, "COUNT(*)", **known)).all()
    at(100)
    assert ends(data, "COUNT(*)", **known)[-1] == (-np.inf, np.inf)


@pytest.mark.sweep(2)
@pytest.mark.slow
@pytest.mark.parametrize("end", [3, _ROW, 5 * _VALUE])
def test_cut_sums_are_moved_no_further_by_a_unit(at, end):
    """In each number by itself cutting moves no two apart, so that no norm grows."""
    at(end)
    assert check_world(World.of(hb.Unit("u")), 4, "cut", end) > 1
