"""Intervals that hold, and the time of joins.

| row | what an attacker does | mutant |
|---|---|---|
| A67 | a million values that sit badly on the grid: what rounding adds up to, beside the interval | coarse_grid |
"""

from fractions import Fraction
from functools import partial

import duckdb

import hubbub as hb
from attacks import mutants_grid as mutants
from attacks.rows import Row, both_tests

MILLION = 1_000_000
GRIDS = [((4.99, 9.99), (0, 5000)), ((0.02, 0.03), (0, 5000)), ((0.1, 0.7), (-1000, 3000))]


def without_noise(values, bounds, copies, what):
    """What ours adds up, before the noise, of each value so many times."""
    connection = duckdb.connect()
    connection.execute(
        "CREATE TABLE t AS SELECT i AS unit, v AS x FROM UNNEST($v) AS w(v), range($n) AS r(i)",
        {"v": list(values), "n": copies},
    )
    data = hb.open(connection, table="t", unit=hb.Unit.row(), bounds={"x": bounds})
    plan = data.sql(f"SELECT {what} AS a FROM t", epsilon=1)
    [found] = data.exact(plan).to_dict()["a"]
    return found * (len(values) * copies if what.startswith("AVG") else 1)


def attack_A67(target):
    """A sum that is further from the truth than a hundredth of what the noise is at ε = 1."""
    for values, bounds in GRIDS:
        copies = MILLION // len(values)
        truth = sum(map(Fraction, values)) * copies
        noise = max(map(abs, bounds))
        if abs(Fraction(target(values, bounds, copies)) - truth) > noise / 100:
            return True
    return False


ROWS: list[Row] = [
    Row(
        "A67",
        attack_A67,
        {what: partial(without_noise, what=what) for what in ("SUM(x)", "AVG(x)", "SUM(x) + 0 * AVG(x)")},
        mutants.coarse_grid,
    ),
]

test_ours_resists, test_mutant_falls = both_tests(ROWS)
