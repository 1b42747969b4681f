"""Units above a contribution bound count what they may, for any number of rows and of groups.

False alarms: none; but for one interval, which misses with a chance of 2^-45.
"""

from fractions import Fraction

import duckdb
import pytest

import hubbub as hb
from hubbub.sql.bounding_sql import count_bits
from hubbub.sql.complementary_parts import FINE_BITS, WEIGHT_BITS
from internals import engine_of

NEAR = 2.0**-11
"""In rows: what weights may lose in a group of 2^28 of them."""


def open_data(people, rows, **known):
    """Some people with some rows each; x is 0 to 9, y is −5 to 4, each row is in a group of its own."""
    connection = duckdb.connect()
    connection.execute(
        "CREATE TABLE t AS SELECT person, g % 10 AS x, g % 10 - 5 AS y, g "
        "FROM (SELECT i % $p AS person, i // $p AS g FROM range($p * $r) AS s(i)) AS q",
        {"p": people, "r": rows},
    )
    return hb.open(connection, table="t", unit="person", bounds={"x": (0, 9), "y": (-5, 4)}, **known)


def exact(data, text, **known):
    result = data.exact(data.sql(text, epsilon=1, **known)).to_dict()
    return {name: sum(column) for name, column in result.items() if name != "g"}


SUMS = "SELECT COUNT(*) AS n, SUM(x) AS s, AVG(x) AS a, VARIANCE(x) AS v FROM t"


@pytest.mark.slow
def test_two_thousand_people_with_many_rows_each_are_two_thousand():
    """With weights in steps of 2^-16 they were 1,970."""
    data = open_data(2000, 1500, rows_per_unit=1)
    result = exact(data, SUMS)
    assert abs(result["n"] - 2000) <= NEAR
    assert abs(result["s"] - 9000) <= 9 * NEAR
    assert abs(result["a"] - 4.5) <= 1e-6
    plan = data.sql(
        "SELECT COUNT(*) AS n FROM t", epsilon=2**14, confidence=1 - 2**-45, allow_large_epsilon=True
    )
    [n] = data.run(plan).value.columns
    assert 1999 <= n.low[0] <= 2000 <= n.high[0] <= 2001


@pytest.mark.sweep(5)
@pytest.mark.slow
@pytest.mark.parametrize("text", ["SUM(x)", "SUM(y)", "SUM(y) + 0 * AVG(y)", "COUNT(x)"])
@pytest.mark.parametrize("limits", [{"rows_per_unit": 3}, {"rows_per_unit": 3, "groups_per_unit": 1}])
def test_unit_with_very_many_rows_is_counted(text, limits):
    """With 2^16 times the limit and more one counted for nothing."""
    result = exact(open_data(2, 200_000), f"SELECT {text} AS n FROM t", **limits)["n"]
    expected = {"SUM(x)": 27, "COUNT(x)": 6}.get(text, -3)
    assert abs(result - expected) <= 9 * NEAR


GROUPS = 10_000


@pytest.mark.sweep(5)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "limits", "expected"),
    [
        ("COUNT(*)", {"rows_per_unit": 1}, 1),
        ("SUM(x)", {"rows_per_unit": 1}, 4.5),
        ("COUNT(DISTINCT person)", {"groups_per_unit": 1}, 1),
        ("COUNT(*)", {"groups_per_unit": 2, "rows_per_group": 1}, 2),
        ("SUM(y)", {"groups_per_unit": 2, "rows_per_group": 1}, -1),
        ("SUM(x, contribution_bounds_per_group => (0, 9))", {"groups_per_unit": 2}, 9),
    ],
)
def test_unit_in_very_many_groups_is_counted(text, limits, expected):
    """In each of 10,000 groups a ten-thousandth: with weights in steps of 2^-16 it was 8 % less."""
    data = open_data(50, GROUPS)
    text = f"SELECT g, {text} AS n FROM t GROUP BY g"
    result = exact(data, text, keys={"g": range(GROUPS)}, **limits)["n"]
    # Each of these sums is rounded to a step, which is finer the more there are.
    assert abs(result / 50 - expected) <= 9 * 2.0**-16


@pytest.mark.slow
def test_median_weighs_people_with_many_rows_equally():
    """Three with a few rows at 1, and two with 100,000 at 8, which counted for nothing."""
    connection = duckdb.connect()
    connection.execute(
        "CREATE TABLE t AS SELECT i % 3 AS person, 1 AS x FROM range(9) AS s(i) "
        "UNION ALL SELECT 3 + i % 2, 8 FROM range(200000) AS s(i)"
    )
    data = hb.open(connection, table="t", unit="person", bounds={"x": (0, 10)}, rows_per_unit=1)
    plan = data.sql(
        "SELECT QUANTILE_CONT(x, 0.7) AS n FROM t",
        epsilon=2**14,
        allow_large_epsilon=True,
        confidence=1 - 2**-45,
    )
    [n] = data.run(plan).value.columns
    assert 7.9 < float(n.low[0]) <= 8 <= float(n.high[0]) < 8.1


@pytest.mark.parametrize("neighbour", [[], [(9, 2**45)] * 2])
def test_weighted_sums_use_exact_products(neighbour):
    """Between such bounds a value is as many steps as it says, so that all integers are known."""
    most, limit = 2**45, 3
    xs = {1: [most] * 7, 2: [-most] * 11, 3: [1, -1, 12345678901, -98765432109, most - 1], 4: [5, -most]}
    rows = [(unit, x) for unit, own in xs.items() for x in own] + neighbour
    connection = duckdb.connect()
    connection.execute("CREATE TABLE t (u BIGINT, x DOUBLE)")
    connection.executemany("INSERT INTO t VALUES (?, ?)", rows)
    data = hb.open(connection, table="t", unit="u", bounds={"x": (-most, most)}, rows_per_unit=limit)
    [measured] = data.sql("SELECT SUM(x) AS n FROM t", epsilon=1).bounded.bounded_aggregates
    [result] = engine_of(data).execute(measured.sql, measured.key_sets)["m0"].tolist()
    counts = {unit: sum(unit == other for other, _ in rows) for unit, _ in rows}
    weight = {unit: min(2**WEIGHT_BITS, (limit * 2**WEIGHT_BITS) // n) for unit, n in counts.items()}
    total = sum(weight[unit] * x for unit, x in rows)
    spare = WEIGHT_BITS + FINE_BITS - 32
    assert result == (total + (1 << (spare - 1))) >> spare


@pytest.mark.parametrize("cells", [1, 2, 3, 1000, 1 << 16, (1 << 16) + 1, 9 << 24])
def test_rounding_of_counts_adds_next_to_nothing_to_the_noise(cells):
    bits, spare = count_bits(cells)
    assert 16 <= bits <= 32
    assert bits + spare == WEIGHT_BITS
    assert Fraction(cells - 1, 1 << bits) <= (Fraction(1, 1 << 16) if cells <= 1 << 16 else Fraction(1, 28))
