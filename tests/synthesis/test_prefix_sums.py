"""Ranges of one column: sensitivity by enumeration, variances and quantiles."""

import itertools
from datetime import date
from fractions import Fraction

import duckdb
import numpy as np
import pytest

import hubbub as hb
from hubbub.errors import HubbubError, InvalidInput, Unsupported
from hubbub.synthesis.domain import Column
from hubbub.synthesis.prefix_sums import MeasuredRange, PrefixNoise
from hubbub.synthesis.synopsis import Synopsis
from hubbub.unit import Neighbours, Unit


def make_noise(bins, *, nullable=False, neighbours=Neighbours.ADD_REMOVE, mu=Fraction(1), **more):
    column = Column.of_numbers("x", (0, bins), cuts=range(1, bins), is_nullable=nullable)
    return PrefixNoise(column, Unit.row(neighbours), more.get("scale", 1), more.get("max_weight", 1), mu)


@pytest.mark.parametrize("nullable", [False, True])
@pytest.mark.parametrize("neighbours", Neighbours)
@pytest.mark.parametrize("bins", [1, 2, 5, 9])
def test_one_unit_moves_the_integers_within_their_sensitivity(bins, neighbours, nullable):
    noise = make_noise(bins, nullable=nullable, neighbours=neighbours)
    cells = [*np.eye(noise.column.size, dtype=np.int64), np.zeros(noise.column.size, dtype=np.int64)]
    others = cells if neighbours is Neighbours.SUBSTITUTE else cells[-1:]
    for one, two in itertools.product(cells, others):
        moved = noise.integers(one) - noise.integers(two)
        assert sum(int(x) ** 2 for x in moved) <= noise.sensitivity.l2_squared
        assert sum(abs(int(x)) for x in moved) <= noise.sensitivity.l1
        assert max(abs(int(x)) for x in moved) <= noise.sensitivity.linf


def test_ranges_are_unbiased_with_their_variance():
    noise = make_noise(6, nullable=True, scale=4)
    histogram = np.array([5, 0, 7, 1, 1, 9, 3]) * 4
    exact = MeasuredRange(noise, noise.integers(histogram))
    assert np.allclose(exact.values, histogram / 4)
    group = np.array([0, 0, 0, -1, 1, 1, -1])
    combined = exact.combine_groups(("x",), group, 2, np.ones((1, 7)))
    assert np.allclose(combined.values[:, 0], [12, 10])
    # By hand: the variance of a sum is that of its row of the inverse.
    row = noise.inverse[:3].sum(axis=0)
    assert combined.covariances[0, 0, 0] == pytest.approx(noise.sigma**2 * float(row @ row))


def test_many_bins_have_errors_that_grow_slowly():
    few, many = make_noise(64).prefix_deviation, make_noise(1024).prefix_deviation
    assert many**2 < 10
    assert many / few < 1.5


def test_quantile_interval_covers():
    # 200 runs at 90 %: fewer than 140 are 28 deviations away, however they are rounded.
    noise = make_noise(50, mu=Fraction(1, 2))
    histogram = np.arange(50) % 7
    below = np.cumsum(histogram)
    exact = int(np.flatnonzero(below >= 0.3 * below[-1])[0])
    inside = 0
    for _ in range(200):
        value, low, high = noise.measure(histogram).quantile(0.3, 0.9)
        assert low <= value <= high
        inside += low <= exact and exact + 1 <= high
    assert inside >= 140


def test_loss_of_ranges_and_tables_is_within_the_charge():
    plan = make_plan()
    spent = sum(2 * plan.noise.noise(names).mechanism.loss().rho for names in plan.workload.residuals)
    spent += sum(2 * each.mechanism.loss().rho for each in plan.ranges)
    assert spent <= plan.loss.rho * 2
    assert plan.loss.epsilon(1e-6) <= 1


def test_sums_beyond_64_bits_are_clamped():
    noise = make_noise(3)
    assert noise.integers(np.array([2**61, 2**61, 2**61])).tolist() == [2**61] * 3


def make_plan(**more):
    connection = duckdb.connect()
    connection.execute(
        "CREATE TABLE t AS SELECT (i * 37) % 1000 AS cost, ['a', 'b'][1 + i % 2] AS g FROM range(4000) r(i)"
    )
    data = hb.open(
        connection, unit=hb.Unit.row(), table="t", bounds={"cost": (0, 1000)}, keys={"g": ["a", "b"]}
    )
    options = {"epsilon": 1, "delta": 1e-6, "cuts": {"cost": [500]}, "ranges": {"cost": 10}, **more}
    return data.plan_synopsis(2, **options)


@pytest.mark.slow
def test_synopsis_answers_ranges_and_quantiles():
    plan = make_plan()
    assert "Ranges of cost, 100 bins" in str(plan)
    synopsis = Synopsis.from_json(plan.run().value.to_json())
    # The noise of a range has a deviation of about 15.
    answer = synopsis.sql("SELECT COUNT(*) AS n FROM t WHERE cost >= 200 AND cost < 430")
    assert answer["n"][0] == pytest.approx(920, abs=300)
    assert answer["n_low"][0] < answer["n"][0] < answer["n_high"][0]
    assert synopsis.quantile("cost", 0.5)["value"][0] == pytest.approx(500, abs=100)
    with pytest.raises(InvalidInput, match="divides a bin"):
        synopsis.sql("SELECT COUNT(*) AS n FROM t WHERE cost < 205")
    with pytest.raises(InvalidInput, match="ranges"):
        synopsis.quantile("g", 0.5)


@pytest.mark.parametrize("ranges", [{"g": 1}, {"cost": 0}, {"cost": 0.001}, {"nobody": 1}])
def test_unusable_ranges_are_refused(ranges):
    with pytest.raises(HubbubError):
        make_plan(ranges=ranges)


def test_columns_without_order_have_no_ranges():
    with pytest.raises(Unsupported):
        PrefixNoise(Column.of_categories("g", "ab"), Unit.row(), 1, 1, Fraction(1))


@pytest.mark.parametrize("delta", [1e-6, 0])
def test_quantiles_of_dates_are_dates(delta):
    """They were numbers of days since 1970."""
    connection = duckdb.connect()
    connection.execute(
        "CREATE TABLE p AS SELECT DATE '2000-01-01' + (i % 300)::INT AS born FROM range(3000) r(i)"
    )
    bounds = {"born": (date(2000, 1, 1), date(2001, 1, 1))}
    with hb.open(connection, table="p", unit=hb.Unit.row(), bounds=bounds) as data:
        synopsis = data.plan_synopsis(1, epsilon=5, delta=delta, ranges={"born": 7}).run().value
    median = synopsis.quantile("born", 0.5).to_dict()
    assert list(median) == ["value", "value_low", "value_high"]
    [value], [low], [high] = median.values()
    assert low <= value <= high
    assert date(2000, 5, 1) < value < date(2000, 7, 1)
