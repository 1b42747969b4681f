"""Synopses of pure ε: the loss by enumeration, pooled residuals, intervals."""

import math
from fractions import Fraction
from itertools import product

import duckdb
import numpy as np
import pandas as pd
import pytest

import hubbub as hb
from hubbub.errors import HubbubError, InvalidInput, Unsupported
from hubbub.synthesis.counting import InMemoryCounts
from hubbub.synthesis.domain import Column, Domain
from hubbub.synthesis.laplace_tables import LaplaceTable, laplace_deviations, plan_laplace, pool_tables
from hubbub.synthesis.range_tree import TreeNoise
from hubbub.synthesis.workload import Workload
from hubbub.unit import Neighbours, Unit

DOMAIN = Domain(
    (
        Column.of_categories("a", [0, 1]),
        Column.of_categories("b", [0, 1, 2]),
        Column.of_categories("c", [0, 1]),
        Column.of_categories("one", [0]),
    )
)
CELLS = list(product([0, 1], [0, 1, 2], [0, 1], [0]))
WORKLOADS = {
    "all pairs": Workload.all_up_to(DOMAIN, 2),
    "one table": Workload.of(DOMAIN, [("a", "b", "c")]),
    "weights": Workload.of(DOMAIN, {("a", "b"): 5, ("c",): 1, ("b", "one"): 2}),
}


def counts_of(rows, **options):
    values = {name: [row[place] for row in rows] for place, name in enumerate(DOMAIN.names)}
    return InMemoryCounts.of(DOMAIN, values, **options)


def plan_of(workload="all pairs", *, neighbours=Neighbours.ADD_REMOVE, epsilon=Fraction(1), **options):
    return plan_laplace(WORKLOADS[workload], epsilon=epsilon, unit=Unit.row(neighbours), **options)


def integers_of(plan, counts):
    """What noise is added to, over the scale of the noise: all coordinates of all tables."""
    parts = []
    for names in plan.shares:
        noise = plan.noise(names)
        exact = counts.count(names).ravel() * noise.factor
        parts += [Fraction(int(each)) / noise.mechanism.scale for each in exact]
    return parts


@pytest.mark.parametrize("workload", WORKLOADS)
@pytest.mark.parametrize("neighbours", list(Neighbours))
def test_loss_of_the_whole_release_is_at_most_epsilon(workload, neighbours):
    # Of discrete Laplace noise, the largest log ratio over all outcomes is the ℓ1 distance over the scales.
    plan = plan_of(workload, neighbours=neighbours)
    rows = [CELLS[0], CELLS[5], CELLS[5], CELLS[11]]
    if neighbours is Neighbours.ADD_REMOVE:
        others = [[*rows, cell] for cell in CELLS]
    else:
        others = [[cell, *rows[1:]] for cell in CELLS]
    before = integers_of(plan, counts_of(rows))
    worst = Fraction(0)
    for other in others:
        after = integers_of(plan, counts_of(other))
        worst = max(worst, sum(abs(x - y) for x, y in zip(before, after, strict=True)))
    assert Fraction(9, 10) < worst <= 1
    assert sum(plan.shares.values()) <= 1


def test_units_with_several_rows_lose_no_more():
    plan = plan_laplace(
        WORKLOADS["all pairs"], epsilon=Fraction(1), unit=Unit("unit"), scale=1 << 12, max_weight=3
    )
    others = [(CELLS[n % 12], n) for n in range(20)]
    before = counts_of([cell for cell, _ in others], units=[who for _, who in others], max_weight=3)
    for own in ([CELLS[3]] * 100, [CELLS[3]] * 2, CELLS * 5):
        rows = [*others, *((cell, -1) for cell in own)]
        after = counts_of([cell for cell, _ in rows], units=[who for _, who in rows], max_weight=3)
        pairs = zip(integers_of(plan, before), integers_of(plan, after), strict=True)
        assert sum(abs(x - y) for x, y in pairs) <= 1


@pytest.mark.parametrize("bins", [1, 5, 17, 40, 300])
@pytest.mark.parametrize("neighbours", list(Neighbours))
def test_one_unit_moves_the_tree_within_its_sensitivity(bins, neighbours):
    column = Column.of_numbers("x", (0, bins), cuts=range(1, bins), is_nullable=True)
    noise = TreeNoise(column, Unit.row(neighbours), 1, 1, Fraction(1, 3))
    cells = [*np.eye(column.size, dtype=np.int64), np.zeros(column.size, dtype=np.int64)]
    start = noise.integers(cells[0])
    others = cells if neighbours is Neighbours.SUBSTITUTE else cells[-1:]
    worst = max(int(np.abs(noise.integers(each) - start).sum()) for each in others)
    assert worst <= noise.sensitivity.l1
    assert Fraction(worst) / noise.mechanism.scale <= Fraction(1, 3)
    assert noise.mechanism.loss().epsilon(0) <= 1 / 3 + 1e-12


def test_tree_has_no_bias_and_small_errors_of_ranges():
    column = Column.of_numbers("x", (0, 300), cuts=range(1, 300), is_nullable=True)
    noise = TreeNoise(column, Unit.row(), 4, 1, Fraction(1))
    histogram = np.arange(301) % 11 * 4
    assert np.allclose(noise.inverse @ noise.integers(histogram), histogram / 4)
    # Noise on single bins would add up: √(2·150) rows for half of them.
    assert noise.prefix_deviation < 0.75 * math.sqrt(2 * 150)


def test_sums_beyond_64_bits_are_clamped():
    noise = plan_of().noise(("a", "b"))
    table = noise.measure(np.array([[2**62, -(2**62), 0], [1, 2, 3]]))
    assert np.abs(table.noisy).max() < 2**62
    tree = TreeNoise(Column.of_numbers("x", (0, 3), cuts=[1, 2]), Unit.row(), 1, 1, Fraction(1))
    assert tree.integers(np.array([2**62, 2**62, 0])).max() <= 2**61


def pooled(plan, counts, noise=None):
    tables = {}
    for names in plan.shares:
        own = plan.noise(names)
        integers = counts.count(names).ravel() * own.factor
        tables[names] = LaplaceTable(own, integers + (0 if noise is None else noise[names]))
    return pool_tables(DOMAIN, tables)


@pytest.mark.slow
@pytest.mark.parametrize("workload", WORKLOADS)
def test_pooled_tables_are_unbiased_with_their_variance(workload):
    plan, counts = plan_of(workload), counts_of([*CELLS, *CELLS[:4]])
    exact = pooled(plan, counts)
    for names in plan.workload.tables:
        assert np.allclose(exact.estimate(names), counts.count(names))
        assert exact.standard_deviation(names) == pytest.approx(plan.errors[names])
        # All tables are linear in the noise: the variance of some sum of cells, by each draw alone.
        coefficients = np.zeros((1, *DOMAIN.shape(names)))
        coefficients.ravel()[::2] = 1.0
        variance = 0.0
        for measured in plan.shares:
            own = plan.noise(measured)
            for place in range(own.coordinates):
                noise = {each: np.zeros(plan.noise(each).coordinates, dtype=np.int64) for each in plan.shares}
                noise[measured][place] = own.factor
                moved = pooled(plan, counts, noise).combine(names, coefficients).values[0]
                still = exact.combine(names, coefficients).values[0]
                variance += (moved - still) ** 2 * own.sigma**2
        assert exact.combine(names, coefficients).variances[0] == pytest.approx(variance)


def test_tables_that_larger_ones_tell_of_are_measured_where_that_is_better():
    alone = plan_of("one table")
    assert alone.errors[("a", "b", "c")] <= math.sqrt(2) * 1.02
    pairs = plan_of("all pairs", objective="worst")
    assert max(pairs.errors.values()) <= max(plan_of("all pairs").errors.values()) + 1e-9


@pytest.mark.parametrize("confidence", [0.5, 0.8, 0.9, 0.95, 0.99, 0.9999])
@pytest.mark.parametrize("weights", [[1], [1, 1], [3, 1], [1] * 5, [5, 1, 1, 1], [1] * 40])
def test_sums_of_laplace_noise_are_within_their_deviations(confidence, weights):
    # The exact law by its characteristic function, on a grid of 2^16 points.
    sd = math.sqrt(2 * sum(weight**2 for weight in weights))
    size, width = 1 << 16, 80 * sd
    frequency = 2 * np.pi * np.fft.fftfreq(size, width / size)
    characteristic = np.prod([1 / (1 + (weight * frequency) ** 2) for weight in weights], axis=0)
    density = np.fft.fftshift(np.abs(np.fft.ifft(characteristic))) * size / width
    places = (np.arange(size) - size // 2) * width / size
    beyond = density[np.abs(places) > laplace_deviations(confidence) * sd].sum() * width / size
    assert beyond <= (1 - confidence) * 1.002
    assert laplace_deviations(confidence) < 1.4 * -math.log(1 - confidence) / math.sqrt(2) + 0.3


def make_data(count=400):
    frame = pd.DataFrame({"kind": ["x", "y", "z", "y"] * (count // 4), "age": range(count)})
    frame["age"] %= 50
    return frame


@pytest.mark.slow
def test_synopsis_without_delta_answers_with_intervals(tmp_path):
    with hb.open(
        make_data(), table="t", unit=hb.Unit.row(), keys={"kind": list("xyz")}, bounds={"age": (0, 49)}
    ) as data:
        plan = data.plan_synopsis(2, epsilon=1, delta=0, steps={"age": 1}, ranges={"age": 1})
        assert plan.loss.epsilon(0) == 1
        assert plan.label()["mechanism"] == "Laplace"
        synopsis = plan.run().value
        assert data.account.spent().epsilon == 1
    synopsis.save(tmp_path / "t.synopsis")
    again = hb.Synopsis.open(tmp_path / "t.synopsis")
    assert again.to_json() == synopsis.to_json()
    # Beyond 16 deviations with probability below 1e-9.
    table = again.table("kind").to_pandas()
    assert (abs(table["n"] - [100, 200, 100]) < 16 * table["sd"]).all()
    assert (table["n_high"] - table["n"] > 2.1 * table["sd"]).all()
    answer = again.sql("SELECT kind, COUNT(*) AS n FROM t WHERE age < 10 GROUP BY kind").to_pandas()
    assert len(answer) == 3
    median = again.quantile("age", 0.5, confidence=1 - 1e-10).to_pandas().iloc[0]
    assert median["value_low"] <= 25 <= median["value_high"]
    assert len(again.synthetic(50).to_pandas()) == 50
    assert "δ = 0" in again.report()


@pytest.mark.parametrize(
    "options", [{}, {"ranges": {"age": 1}, "columns": ["age"]}], ids=["tables", "ranges"]
)
def test_an_epsilon_at_which_counts_would_be_clamped_is_refused_before_anything_is_charged(options):
    """At an epsilon of 10^9 a count of 20,000 rows was 2,199; at 10^15 the run failed after its charge."""
    with hb.open(
        make_data(20_000), table="t", unit=hb.Unit.row(), keys={"kind": list("xyz")}, bounds={"age": (0, 49)}
    ) as data:
        for epsilon in (10**6, 10**9, 10**15):
            with pytest.raises(HubbubError, match="so large an"):
                data.plan_synopsis(
                    1, epsilon=epsilon, delta=0, steps={"age": 1}, allow_large_epsilon=True, **options
                )
        plan = data.plan_synopsis(
            1, epsilon=500, delta=0, steps={"age": 1}, allow_large_epsilon=True, **options
        )
        # 10,000 deviations: with a probability below e^-10,000 it fails.
        assert abs(plan.run().value.sql("SELECT COUNT(*) AS n FROM t")["n"][0] - 20_000) < 100


def test_synthesis_without_delta_is_refused():
    with (
        hb.open(make_data(), table="t", unit=hb.Unit.row(), keys={"kind": list("xyz")}) as data,
        pytest.raises(InvalidInput, match="delta"),
    ):
        data.plan_synthesis(epsilon=1, delta=0, columns=["kind"])


def test_tables_of_many_columns_are_refused_before_anything_is_charged():
    """Seven columns were charged, and then refused as a text that nobody stored; sixteen took all memory."""
    connection = duckdb.connect()
    listed = ", ".join(f"i % {place + 2} < 2 AS c{place}" for place in range(16))
    connection.execute(f"CREATE TABLE t AS SELECT {listed} FROM range(60) r(i)")
    with hb.open(connection, table="t", unit=hb.Unit.row()) as data:
        for columns, delta in ((7, 0), (16, 0), (13, 1e-6), (16, 1e-6)):
            with pytest.raises(Unsupported, match=f"table of {columns} columns"):
                data.plan_synopsis([[f"c{place}" for place in range(columns)]], epsilon=1, delta=delta)
        for columns, delta in ((6, 0), (7, 1e-6)):
            names = [f"c{place}" for place in range(columns)]
            synopsis = data.plan_synopsis([names], epsilon=1, delta=delta).run().value
            assert len(synopsis.table(*names)["n"]) == 2**columns
