"""Intervals that hold, and the time of joins.

| row | what an attacker does | mutant |
|---|---|---|
| A39 | a table united and joined with itself on the unit: a unit's rows explode | joined_as_they_are |
| A67 | a million values that sit badly on the grid: is their rounding in the interval? | coarse_grid |
| A67-weights | people with very many rows: do they count as what they may? | weights_of_16_bits |
| A70 | SUBSTRING without a length, DECIMAL(10, 2), POWER of 0 or less: against DuckDB | short_forms |
| A71 | LEAST and CONCAT with NULL, // of negatives, ROUND of halves: against DuckDB | missing_makes_missing |
| A72 | NOT LIKE, however the parser says it | negations_unknown |
"""

from contextlib import suppress
from fractions import Fraction
from functools import partial

import duckdb

import hubbub as hb
from attacks import mutants_grid as mutants
from attacks import plain_duckdb
from attacks.rows import Row, both_tests
from internals import connection_of

MILLION = 1_000_000
GRIDS = [((4.99, 9.99), (0, 5000)), ((0.02, 0.03), (0, 5000)), ((0.1, 0.7), (-1000, 3000))]


def without_noise(values, bounds, copies, what):
    """What ours adds up, before the noise, of each value several times."""
    connection = duckdb.connect()
    connection.execute(
        "CREATE TABLE t AS SELECT i AS unit, v AS x FROM UNNEST($v) AS w(v), range($n) AS r(i)",
        {"v": list(values), "n": copies},
    )
    data = hb.open(connection, table="t", unit=hb.Unit.row(), bounds={"x": bounds})
    plan = data.sql(f"SELECT {what} AS a FROM t", epsilon=1)
    [result] = data.exact(plan).to_dict()["a"]
    return result * (len(values) * copies if what.startswith("AVG") else 1)


def attack_A67(target):
    """A sum that is further from the truth than a hundredth of what the noise is at ε = 1."""
    for values, bounds in GRIDS:
        copies = MILLION // len(values)
        truth = sum(map(Fraction, values)) * copies
        noise = max(map(abs, bounds))
        if abs(Fraction(target(values, bounds, copies)) - truth) > noise / 100:
            return True
    return False


def people_counted(people, rows, groups):
    """How many rows ours counts in all groups, before the noise, of people who may have one row each."""
    connection = duckdb.connect()
    connection.execute(
        "CREATE TABLE t AS SELECT i % $p AS unit, (i // $p) % $g AS g FROM range($p * $r) AS s(i)",
        {"p": people, "r": rows, "g": groups},
    )
    data = hb.open(connection, table="t", unit="unit", rows_per_unit=1, keys={"g": range(groups)})
    plan = data.sql("SELECT g, COUNT(*) AS n FROM t GROUP BY g", epsilon=1)
    return sum(data.exact(plan).to_dict()["n"])


def attack_A67_weights(target):
    """A count that is further from the truth than a hundredth of what the noise of a group is at ε = 1."""
    return any(
        abs(target(people, rows, groups) - people) > groups / 100
        for people, rows, groups in ((2000, 1500, 1), (20, 100_000, 1), (2000, 1000, 100))
    )


PEOPLE = [
    (place, x, s)
    for place, (x, s) in enumerate(
        (x, s)
        for x in (None, 0.0, -0.0, 1.0, -1.0, 2.5, -2.5, 0.5, -0.5, -7.0, 7.0, 1.234, 0.125)
        for s in (None, "", "a", "abc", "A" + "b" * 40)
    )
]


def count(rows, text):
    """How many rows ours finds to fulfil it."""
    connection = duckdb.connect()
    connection.execute("CREATE TABLE t (unit INT, x DOUBLE, s VARCHAR)")
    connection.executemany("INSERT INTO t VALUES (?, ?, ?)", rows)
    data = hb.open(connection, table="t", unit="unit")
    plan = data.sql(f"SELECT COUNT(*) AS n FROM t WHERE {text}", epsilon=1, rows_per_unit=1)
    return data.exact(plan).to_dict()["n"][0]


def differs(target, *texts):
    """Whether a count is not DuckDB's, or the question is refused."""
    for text in texts:
        try:
            if target(PEOPLE, text) != plain_duckdb.count(PEOPLE, text):
                return True
        except hb.HubbubError:
            return True
    return False


def attack_A70(target):
    return differs(
        target,
        "LENGTH(SUBSTRING(s, 2)) > 20",
        "CAST(x AS DECIMAL(10, 2)) = 1.23",
        "POWER(x, 3) <= 0",
        "POWER(x, 3) IS NULL",
    )


def attack_A71(target):
    return differs(
        target,
        "LEAST(x, 5) = 5",
        "CONCAT(s, 'x') = 'x'",
        "CAST(x AS INTEGER) // 2 = -3",
        "ROUND(x) = -3",
        "ROUND(x) = 3",
    )


def attack_A72(target):
    return differs(target, "s NOT LIKE 'a%'", "s NOT ILIKE 'A%'", "NOT s LIKE 'a%'")


def joined(rows, copies, sides):
    """How many rows ours makes of these in a join."""
    connection = duckdb.connect()
    connection.execute("CREATE TABLE t (unit INT, x DOUBLE, s VARCHAR)")
    connection.executemany("INSERT INTO t VALUES (?, ?, ?)", rows)
    data = hb.open(connection, table="t", unit="unit")
    plan = data.sql(plain_duckdb.self_join(copies, sides), epsilon=1, rows_per_unit=1)
    [(result,)] = (
        connection_of(data).execute(f"SELECT COUNT(*) FROM ({plan.query.rows.sql('duckdb')}) AS r").fetchall()
    )
    return result


def attack_A39(target):
    """One row that becomes ten million, or a few that become as many; time would tell who has them."""
    for rows, copies, sides in ((1, 10, 7), (3000, 1, 2), (300, 1, 3), (50, 4, 3)):
        with suppress(hb.HubbubError):
            if target([(1, float(place), "a") for place in range(rows)], copies, sides) > 10**6:
                return True
    return False


ROWS: list[Row] = [
    Row("A39", attack_A39, {"ours": joined}, mutants.joined_as_they_are),
    Row(
        "A67",
        attack_A67,
        {what: partial(without_noise, what=what) for what in ("SUM(x)", "AVG(x)", "SUM(x) + 0 * AVG(x)")},
        mutants.coarse_grid,
    ),
    Row("A67-weights", attack_A67_weights, {"ours": people_counted}, mutants.weights_of_16_bits),
    Row("A70", attack_A70, {"ours": count}, mutants.short_forms),
    Row("A71", attack_A71, {"ours": count}, mutants.missing_makes_missing),
    Row("A72", attack_A72, {"ours": count}, mutants.negations_unknown),
]

test_ours_resists, test_mutant_falls = both_tests(ROWS)
