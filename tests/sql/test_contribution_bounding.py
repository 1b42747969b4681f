"""Small tables, exact integers: one unit moves them by no more than is claimed."""

import duckdb
import pytest

import hubbub as hb

REGIONS = ["North", "South", "East"]


@pytest.fixture
def visits():
    connection = duckdb.connect()
    connection.execute(
        "CREATE TABLE visits AS SELECT i % 200 AS patient, ['North', 'South', 'East'][1 + i % 3] AS region, "
        "(i % 100)::DOUBLE AS cost FROM range(2000) r(i)"
    )
    return connection


@pytest.mark.slow
def test_counts_and_means_come_with_intervals_that_hold(visits):
    data = hb.open(
        visits,
        table="visits",
        unit="patient",
        keys={"region": REGIONS},
        bounds={"cost": (0, 100)},
        rows_per_unit=10,
    )
    plan = data.sql(
        "SELECT region, COUNT(*) AS n, AVG(cost) AS cost FROM visits GROUP BY region",
        epsilon=10**4,
        confidence=1 - 1e-12,
        allow_large_epsilon=True,
    )
    answers = data.run(plan).value
    assert answers["region"] == REGIONS
    assert answers["n"] == pytest.approx([667, 667, 666], abs=0.1)
    assert answers["cost"] == pytest.approx([49.5] * 3, abs=1)
    assert all(
        low <= 667 <= high for low, high in zip(answers["n_low"][:2], answers["n_high"][:2], strict=True)
    )


@pytest.mark.sweep(5)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("rows", "groups", "heavy", "light"),
    [(8, None, 8, 4), (8, 4, 8, 4), (8, 2, 8, 2), (3, 4, 3, 3), (100, 2, 20, 2), (100, 4, 40, 4)],
)
def test_limits_on_rows_and_on_groups_hold_together(rows, groups, heavy, light):
    connection = duckdb.connect()
    # One unit has ten rows in each of four groups, the other one row.
    connection.execute(
        "CREATE TABLE t AS SELECT 1 AS who, i % 4 AS g, 1.0::DOUBLE AS x FROM range(40) r(i) "
        "UNION ALL SELECT 2, i, 1 FROM range(4) r(i)"
    )
    data = hb.open(connection, table="t", unit="who", keys={"g": [0, 1, 2, 3]}, bounds={"x": (0, 1)})
    text = "SELECT g, COUNT(*) AS n, SUM(x) AS s FROM t GROUP BY g"
    plan = data.sql(text, epsilon=1, rows_per_unit=rows, groups_per_unit=groups)
    exact = data.exact(plan)
    assert sum(exact["n"]) == pytest.approx(heavy + light, abs=0.01)
    assert sum(exact["s"]) == pytest.approx(heavy + light, abs=0.01)
    [measured] = plan.bounded.bounded_aggregates
    assert measured.sensitivity.l1 * measured.step == pytest.approx(rows, rel=1e-6)
    assert (plan.label()["rows per unit"], plan.label()["groups per unit"]) == (rows, groups)


def test_inapplicable_row_limit_is_not_stated(visits):
    data = hb.open(visits, table="visits", unit="patient", keys={"region": REGIONS}, rows_per_unit=20)
    text = "SELECT region, COUNT(*) AS n FROM visits GROUP BY region"
    plan = data.sql(text, epsilon=1, groups_per_unit=3, rows_per_group=5)
    assert plan.label()["rows per unit"] is None


@pytest.mark.parametrize("rows", [1, 3, 6, 9])
def test_without_keys_all_rows_are_one_group(rows):
    connection = duckdb.connect()
    connection.execute("CREATE TABLE t AS SELECT i // 6 AS who FROM range(600) r(i)")
    data = hb.open(connection, table="t", unit="who")
    plan = data.sql("SELECT COUNT(*) AS n FROM t", epsilon=1, groups_per_unit=2, rows_per_group=rows)
    assert data.exact(plan)["n"] == pytest.approx([100 * min(rows, 6)])
    [measured] = plan.bounded.bounded_aggregates
    assert measured.sensitivity.l1 * measured.step == pytest.approx(rows)


@pytest.mark.slow
def test_partition_selection_counts_the_first_rows_of_a_unit():
    connection = duckdb.connect()
    connection.execute(
        "CREATE TABLE t AS SELECT 'u' || (i % 100) AS who, 'k' || (i // 1000) AS g FROM range(4000) r(i)"
    )
    data = hb.open(connection, table="t", unit="who")
    text = "SELECT g, COUNT(*) AS n FROM t GROUP BY g"  # ten rows of each unit in each of four groups
    for rows, groups, most in ((20, None, 2000), (40, None, 4000), (15, 1, 1000), (20, 1, 1000), (7, 3, 700)):
        plan = data.sql(text, epsilon=10, delta=1e-6, rows_per_unit=rows, groups_per_unit=groups)
        exact = data.exact(plan)
        assert sum(exact["n"]) == most
        again = data.exact(plan)
        assert (exact["g"], exact["n"]) == (again["g"], again["n"])
        [measured] = plan.bounded.bounded_aggregates
        assert measured.rule == "First rows"
        assert measured.step == 1
