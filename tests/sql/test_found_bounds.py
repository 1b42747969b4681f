"""Bounds that are found: they fit the values, and one odd value does not decide."""

import numpy as np
import pandas as pd
import pytest

import hubbub as hb
from hubbub.sql.bound_estimation import read_bounds
from hubbub.sql.bounding_sql import MAGNITUDE_ENDS
from hubbub.sql.limit_choice import VALUE_SIZES


def estimate(values, *, what="SUM(x)"):
    """The bounds that are found with noise of less than a value, so that no bin is taken for a large one.

    How bounds are read from more noise is asserted of fixed draws: a bin S times larger is taken by mistake
    once in some twenty times S queries.
    """
    frame = pd.DataFrame({"who": range(len(values)), "x": np.asarray(values, dtype=float)})
    data = hb.open(frame, table="t", unit="who", rows_per_unit=1)
    text = f"SELECT {what} AS a FROM t"
    plan = data.sql(text, epsilon=10_000, bounds={"x": "auto"}, allow_large_epsilon=True)
    answers = plan.run().value
    low, high = (eval_fraction(end) for end in answers.facts["bounds"]["x"])
    return low, high, answers


def eval_fraction(text):
    top, _, bottom = text.partition("/")
    return int(top) / int(bottom or 1)


@pytest.mark.slow
def test_bounds_are_close_to_the_values():
    low, high, _ = estimate(np.linspace(0, 100, 20_000))
    assert low == 0
    assert 96 <= high <= 192
    low, high, answers = estimate(np.linspace(-50, 100, 20_000), what="AVG(x)")
    assert -96 <= low <= -48
    assert 96 <= high <= 192
    assert answers["a"] == pytest.approx([25], abs=1)


def count_sizes(values):
    """How many values are in each bin, by sign and size, without noise."""
    counts = np.zeros(2 * len(MAGNITUDE_ENDS) + 1)
    places = np.searchsorted(MAGNITUDE_ENDS, np.abs(values), side="right")
    np.add.at(counts, len(MAGNITUDE_ENDS) + np.sign(values).astype(int) * places, 1)
    return counts


def test_one_odd_value_does_not_decide():
    # Fixed draws: of any, 5 % have a bound that is a size larger.
    noise = np.random.default_rng(3).laplace(0, 3, (20, 2 * len(MAGNITUDE_ENDS) + 1))
    for odd in (1e9, -1e9, 1e-9):
        counts = count_sizes(np.append(np.linspace(0, 100, 20_000), odd))
        bounds = [read_bounds(seen, 3, 0.1, 1) for seen in counts + noise]
        assert sum(low == 0 and 96 <= high <= 192 for low, high in bounds) >= 18


@pytest.mark.slow
def test_the_share_beyond_bounds_is_estimated():
    values = np.random.default_rng(1).lognormal(3, 1.5, 20_000)
    for sample in (values, -values):
        _, _, answers = estimate(sample)
        text = answers.facts["values beyond bounds"]["x"]
        assert text.startswith("an estimated ")
        assert text.endswith("(estimate, not part of the interval)")
        assert 0 <= float(text.split()[2]) < 10
    _, _, answers = estimate(np.linspace(0, 100, 20_000))
    assert float(answers.facts["values beyond bounds"]["x"].split()[2]) < 1


@pytest.mark.slow
def test_values_of_one_sign_far_from_zero_have_two_ends():
    low, high, _ = estimate(np.linspace(1000, 1100, 20_000))
    assert 100 <= low <= 768
    assert 1100 <= high <= 2048
    low, high, _ = estimate(-np.linspace(1000, 1100, 20_000))
    assert -2048 <= low <= -1100
    assert -768 <= high <= -100


def test_a_heavy_tail_is_cut_where_the_error_is_least():
    values = np.random.default_rng(1).lognormal(3, 1.5, 20_000)
    counts = count_sizes(values)
    # Noise of fixed draws: of any draw there is a false alarm on the negative side once in a thousand times.
    noise = np.random.default_rng(2).laplace(0, 10, (20, counts.size))
    for seen in counts + noise:
        low, high = read_bounds(seen, 10, 1 / 0.9, 1)
        assert low == 0
        assert int((values > high).sum()) <= 40  # the largest values of some units, not of hundreds
        assert high <= 64 * values.max()


def test_zeros_have_bounds_too():
    low, high, _ = estimate(np.zeros(5000))
    assert low == -high == -(2.0**-32)


def test_values_that_are_spread_stand_out_together():
    values = np.geomspace(1, 2**10, 400)  # 20 to a bin
    counts = count_sizes(values)
    # Noise of scale 5: no bin reaches 62, but eight in a row do reach more than their noise.
    assert counts.max() < VALUE_SIZES.clear_count(5, 1)
    low, high = read_bounds(counts, 5, 1.0, 1)
    assert low == 0
    assert 256 <= high <= 2**12
    assert read_bounds(counts, 20, 1.0, 1) is None


@pytest.mark.slow
def test_noise_alone_has_no_bounds():
    rng = np.random.default_rng(5)
    # A false alarm has a chance below 1/1000 a query, by the Chernoff bound: 21 of 2,000 one below 1e-10.
    draws = (rng.laplace(0, 7, 2 * len(MAGNITUDE_ENDS) + 1) for _ in range(2000))
    assert sum(read_bounds(each, 7, 1.0, 1) is not None for each in draws) <= 20


def test_the_plan_says_how_many_values_stand_out():
    frame = pd.DataFrame({"who": range(30), "x": np.linspace(1, 100, 30)})
    data = hb.open(frame, table="t", unit="who", rows_per_unit=1)
    plan = data.sql("SELECT SUM(x) AS a FROM t", epsilon=1, bounds={"x": "auto"})
    assert "it takes about 360 values" in str(plan)
    # Each run finds bounds by chance once in 1000 times: not in all of ten.
    assert [None] in [plan.run().value["a"] for _ in range(10)]
