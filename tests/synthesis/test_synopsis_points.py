"""Queries over the cells of a synopsis that have many values: exact for whole cells, or refused."""

from datetime import date

import duckdb
import pytest

import hubbub as hb
from hubbub.errors import InvalidInput, Unsupported

DAYS = [date(2018, 1, 1), date(2019, 6, 1), date(2021, 1, 1)]


@pytest.fixture(scope="module")
def precise():
    connection = duckdb.connect()
    connection.execute(
        "CREATE TABLE t AS SELECT i % 70 - 50.0 AS y, i % 100 + 0.0 AS z, i % 11 AS x, "
        "['b', 'm', 'zz'][1 + i % 3] AS s, [1, 2, 9][1 + i % 3] AS code, "
        "DATE '2018-01-01' + CAST(i % 1000 AS INTEGER) AS d FROM range(3000) r(i)"
    )
    data = hb.open(
        connection,
        table="t",
        unit=hb.Unit.row(),
        keys={"s": ["b", "m"], "code": [1, 2]},
        bounds={"y": (-50, 20), "z": (0, 100), "x": (0, 10)},
    )
    plan = data.plan_synopsis(
        2,
        epsilon=10**6,
        delta=1e-6,
        allow_large_epsilon=True,
        steps={"x": 1},
        cuts={"y": [-40, -2, 0], "z": [9.95, 40], "x": [5, 9], "d": DAYS},
        other=["s", "code"],
    )
    return connection, plan.run().value


@pytest.mark.sweep(5)
@pytest.mark.slow
@pytest.mark.parametrize(
    "text",
    [
        "COUNT(*) AS n FROM t WHERE y >= -40",
        "COUNT(*) AS n FROM t WHERE y BETWEEN -100 AND 100",
        "COUNT(*) AS n FROM t WHERE -2 > y AND NOT y < -40",
        "COUNT(*) AS n FROM t WHERE y >= -2 AND z < 40",
        "COUNT(*) AS n FROM t WHERE d >= '2019-06-01'",
        "COUNT(*) AS n FROM t WHERE z < 9.95",
        "COUNT(*) AS n FROM t WHERE x >= 9",
        "COUNT(*) AS n FROM t WHERE x IN (9, 10)",
        "COUNT(*) AS n FROM t WHERE s <> 'b'",
        "COUNT(*) AS n FROM t WHERE s IN ('b', 'm') AND code = 1",
        "COUNT(s) AS n FROM t WHERE s IS NOT NULL",
        "SUM(CASE WHEN code = 2 THEN 1 ELSE 0 END) AS n FROM t",
    ],
)
def test_whole_cells_are_counted(text, precise):
    connection, synopsis = precise
    exact = connection.execute(f"SELECT {text}").fetchone()[0]
    assert synopsis.sql(f"SELECT {text}")["n"][0] == pytest.approx(float(exact), abs=0.5)


@pytest.mark.sweep(7)
@pytest.mark.slow
@pytest.mark.parametrize(
    "condition",
    [
        "y = -5",
        "y BETWEEN -6 AND -4",
        "y <> -5",
        "z > 10 AND z < 11",
        "z IN (57, 58)",
        "x = 9",
        "x >= 10",
        "x > 9",
        "d = DATE '2020-01-05'",
        "d > DATE '2020-01-04' AND d < DATE '2020-01-06'",
    ],
)
def test_parts_of_a_bin_are_refused(condition, precise):
    with pytest.raises(InvalidInput, match="divides a bin"):
        precise[1].sql(f"SELECT COUNT(*) AS n FROM t WHERE {condition}")


@pytest.mark.slow
@pytest.mark.parametrize(
    "text",
    [
        "COUNT(*) AS n FROM t WHERE z = 50 + 7",
        "COUNT(*) AS n FROM t WHERE z BETWEEN 50 + 7 AND 50 + 8",
        "COUNT(*) AS n FROM t WHERE z = CAST('57' AS DOUBLE)",
        "COUNT(*) AS n FROM t WHERE z = CAST(56.7 AS INTEGER)",
        "COUNT(*) AS n FROM t WHERE d = TIMESTAMP '2020-01-05 00:00:00'",
        "COUNT(*) AS n FROM t WHERE z = y",
        "COUNT(*) AS n FROM t WHERE z > x",
        "COUNT(*) AS n FROM t WHERE -z = -57",
        "SUM(code) AS n FROM t",
        "AVG(code) AS n FROM t",
        "COUNT(*) AS n FROM t WHERE code > 1",
        "COUNT(*) AS n FROM t WHERE code = x",
        "COUNT(*) AS n FROM t WHERE s > 'b'",
        "COUNT(*) AS n FROM t WHERE s < 'm'",
        "COUNT(*) AS n FROM t WHERE s BETWEEN 'b' AND 'm'",
        "COUNT(*) AS n FROM t WHERE LENGTH(s) > 1",
        "COUNT(*) AS n FROM t WHERE UPPER(s) = 'b'",
        "COUNT(*) AS n FROM t WHERE s LIKE 'b'",
    ],
)
def test_more_than_comparisons_with_constants_is_refused(text, precise):
    with pytest.raises(Unsupported, match="compare it with constants"):
        precise[1].sql(f"SELECT {text}")


def test_last_bin_includes_the_highest_value(precise):
    assert precise[1].table("x")["x"] == ["0 to 4", "5 to 8", "9 to 10"]
    assert precise[1].table("d")["d"][-1] == "2019-06-01 to 2021-01-01"
