"""What bounding changed: said not to be measured, or paid for and measured."""

from fractions import Fraction
from unittest import mock

import numpy as np
import pandas as pd
import pytest

import hubbub as hb
from hubbub.errors import InvalidInput
from hubbub.sql.executor import execute
from hubbub.sql.limit_choice import SizeBins
from hubbub.sql.moments import Moments
from hubbub.unit import Neighbours
from internals import engine_of
from refusing import refused

ROWS = pd.DataFrame(
    {
        "unit": [1, 1, 1, 1, 2, 2, 2, 3, 3, 4],
        "g": ["a", "a", "a", "b", "a", "b", "c", "a", "a", "b"],
        "x": [1, 2, 3, 4, 5, 5, 5, 7, 7, None],
    }
)
KEYS = {
    "none": ("", None),
    "public": (" GROUP BY g", {"g": ["a", "b", "c"]}),
    "private": (" GROUP BY g", None),
}


def open_data(rows=ROWS, unit="unit"):
    return hb.open(rows, table="t", unit=unit, bounds={"x": (0, 10)})


def plan_of(data, what, keys, **limits):
    grouped, known = KEYS[keys]
    return data.sql(
        f"SELECT {what} AS a FROM t{grouped}",
        epsilon=2,
        delta=1e-3 if keys == "private" else 0,
        keys=known,
        bounding_report=True,
        **limits,
    )


def counts(data, plan):
    measured = plan.bounded.units_above_bounds
    result = engine_of(data).execute(measured.sql, measured.key_sets)
    return [int(result["m0"][0]), int(result["m1"][0])], measured.sensitivity


CASES = [
    ("COUNT(*)", "none", {"rows_per_unit": 2}, [2, 2]),
    ("AVG(x)", "none", {"rows_per_unit": 3}, [1, 3]),
    ("COUNT(*)", "public", {"rows_per_unit": 2}, [2, 2]),
    # By groups: units 2 (in three groups) and 1 (three rows in one).
    ("COUNT(*)", "public", {"groups_per_unit": 2, "rows_per_group": 2}, [2, 2]),
    ("COUNT(*)", "public", {"groups_per_unit": 3, "rows_per_group": 2}, [1, 3]),
    ("COUNT(DISTINCT unit)", "public", {"groups_per_unit": 2}, [1, 3]),
    ("COUNT(DISTINCT unit)", "public", {"groups_per_unit": 1}, [2, 2]),
    ("COUNT(*)", "private", {"rows_per_unit": 3, "groups_per_unit": 2}, [2, 2]),
    ("COUNT(*)", "private", {"rows_per_unit": 9, "groups_per_unit": 9}, [0, 4]),
    ("COUNT(*)", "private", {"rows_per_unit": 20, "groups_per_unit": 9, "rows_per_group": 2}, [1, 3]),
    ("COUNT(DISTINCT unit)", "private", {"rows_per_unit": 2, "groups_per_unit": 2}, [1, 3]),
    # Different values: unit 1 has four, 2 has one but in three groups, 3 has one.
    ("COUNT(DISTINCT x)", "none", {"rows_per_unit": 1}, [1, 3]),
    ("COUNT(DISTINCT x)", "public", {"rows_per_unit": 2}, [2, 2]),
    ("COUNT(*) + COUNT(DISTINCT x)", "none", {"rows_per_unit": 1}, [3, 1]),
]


@pytest.mark.sweep(5)
@pytest.mark.parametrize(("what", "keys", "limits", "expected"), CASES)
def test_units_above_a_limit_are_counted(what, keys, limits, expected):
    data = open_data()
    assert counts(data, plan_of(data, what, keys, **limits))[0] == expected


@pytest.mark.sweep(5)
@pytest.mark.slow
@pytest.mark.parametrize(("what", "keys", "limits", "expected"), CASES)
def test_one_unit_moves_the_report_by_one(what, keys, limits, expected):
    for gone in (1, 2, 3, 4):
        data = open_data(ROWS[ROWS["unit"] != gone])
        fewer, sensitivity = counts(data, plan_of(data, what, keys, **limits))
        assert np.abs(np.subtract(expected, fewer)).sum() == 1 == sensitivity.l1


def test_a_substituted_unit_moves_it_by_two():
    data = open_data(unit=hb.Unit("unit", Neighbours.SUBSTITUTE))
    _, sensitivity = counts(data, plan_of(data, "COUNT(*)", "none", rows_per_unit=2))
    assert (sensitivity.l1, sensitivity.l2_squared, sensitivity.linf) == (2, 2, 1)


def test_bounding_report_is_charged_and_in_the_label():
    rows = pd.DataFrame({"unit": np.repeat(np.arange(500), np.where(np.arange(500) < 100, 5, 1))})
    data = hb.open(rows, table="t", unit="unit", rows_per_unit=2)
    plan = data.sql("SELECT COUNT(*) AS n FROM t", epsilon=10, bounding_report=True)
    assert plan.split.report == 1
    assert plan.split.aggregates == 9
    assert plan.loss.cost().epsilon == 10
    assert "units above a contribution bound" in str(plan)
    assert "units above a contribution bound, and others" in plan.explain()
    facts = data.run(plan).value.facts
    result = facts["share above a contribution bound"]
    assert result["low"] <= result["value"] <= result["high"]
    assert 0.15 < result["value"] < 0.25
    assert facts["units above a contribution bound"].startswith(f"{100 * result['value']:.3g} % [")
    assert "not measured" not in facts["interval covers"]


def test_label_without_a_report_says_not_measured():
    data = open_data()
    release = data.run(data.sql("SELECT COUNT(*) AS n FROM t", epsilon=1, rows_per_unit=2))
    assert "what bounding changed is not measured" in release.value.facts["interval covers"]
    assert "units above a contribution bound" not in release.value.facts


def test_exact_share_is_for_the_owner_only():
    data = open_data()
    plan = plan_of(data, "COUNT(*)", "none", rows_per_unit=2)
    label = execute(plan, engine_of(data), is_exact=True).label
    assert label["share above a contribution bound"]["value"] == 0.5


@pytest.mark.slow
def test_bounding_report_works_with_partition_selection_and_estimated_limits():
    data = open_data()
    plan = data.sql(
        "SELECT g FROM t GROUP BY g ORDER BY COUNT(*) DESC LIMIT 1",
        epsilon=4,
        keys=KEYS["public"][1],
        bounding_report=True,
    )
    parts = plan.split.rows, plan.split.report, plan.split.aggregates
    assert parts == (Fraction(3, 5), Fraction(2, 5), Fraction(3))
    assert "units above a contribution bound" in data.run(plan).value.facts


def test_bounding_report_interval_covers_with_its_confidence():
    """2000 draws, false alarm below 1e-9."""
    data = open_data()
    plan = plan_of(data, "COUNT(*)", "none", rows_per_unit=2)
    noise = plan.report_noise
    noisy = noise.release(np.tile([20, 60], 2000)).value.reshape(2000, 2)
    result = Moments(noisy.astype(float), (1,), noise, Fraction(1)).mean(0.5)
    hits = ((result.low <= 0.25) & (result.high >= 0.25)).sum()
    assert hits > 860  # Pr[Bin(2000, 1/2) ≤ 860] is below 1e-9


def test_nothing_bounded_means_no_report():
    with refused(InvalidInput, match="nothing is bounded"):
        open_data().sql("SELECT COUNT(DISTINCT unit) AS n FROM t", epsilon=1, bounding_report=True)
    with refused(InvalidInput, match="nothing is bounded"):
        open_data(unit=hb.Unit.row()).sql("SELECT COUNT(*) AS n FROM t", epsilon=1, bounding_report=True)


def test_a_statement_of_several_queries_says_what_each_cut_off():
    texts = ("SELECT COUNT(*) AS n FROM t", "SELECT COUNT(*) AS n FROM t WHERE x > 2")
    with mock.patch.object(SizeBins, "is_visible", return_value=True):
        result = open_data().sql(" UNION ALL ".join(texts), epsilon=1).run().value
    declared = open_data().sql(" UNION ALL ".join(texts), epsilon=1, rows_per_unit=2).run().value
    each = [part["limits"]["rows"] for part in result.facts["parts"]]
    assert all("found; an estimated" in text for text in each)
    note = f"rows per unit: query 1: {each[0]}; query 2: {each[1]}"
    assert note in str(result) or (each[0] == each[1] and f"rows per unit: {each[0]}" in str(result))
    assert "rows per unit: limit 2, declared; the part above it is cut off, and not measured" in str(declared)


def test_a_share_that_noise_hides_is_not_estimated():
    data = open_data()
    with mock.patch.object(SizeBins, "is_visible", return_value=False):
        answers = data.run(data.sql("SELECT COUNT(*) AS n FROM t", epsilon=1)).value
        measured = data.limits(epsilon=1).value
    assert "the rows above it cannot be estimated: too few units stand out" in str(answers)
    assert answers.facts["interval covers"].endswith("what bounding changed is not measured")
    assert measured["estimated_share_above"] == [None]
    with mock.patch.object(SizeBins, "is_visible", return_value=True):
        answers = open_data().sql("SELECT COUNT(*) AS n FROM t", epsilon=1).run().value
    assert answers.facts["interval covers"].endswith("what bounding changed is only estimated")
