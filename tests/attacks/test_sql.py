"""A06–A10, A12–A16, A29, A30 once more, through SQL: what rows can do to the integers before the noise."""

from fractions import Fraction
from functools import cache, partial

import numpy as np

import hubbub as hb
from attacks import sql_mutants as mutants
from attacks.evidence import outcome
from attacks.rows import Row, both_tests
from hubbub.sql.executor import dense_table
from internals import engine_of

KEYS = {"region": ["North", "South"]}
BOUNDS = {"cost": (0, 50)}
ROW = hb.Unit.row()


@cache
def dataset(unit, low, high):
    """A connection and its dataset, with rows that change: opening them takes longer than a query."""
    connection = mutants.table([])
    bounds = {"cost": (low, high)}
    return connection, hb.open(
        connection, table="visits", unit=unit, keys=KEYS, bounds=bounds, rows_per_unit=1
    )


def in_duckdb(rows, unit, bounds):
    """A dataset of these rows."""
    connection, data = dataset(unit, *bounds["cost"])
    connection.execute("DELETE FROM visits")
    mutants.insert_rows(connection, rows)
    return data


def asked_in(dataset_of, text, unit="patient", *, bounds=BOUNDS, **options):
    """Ours as a target: rows in, the exact integers of one query out, with the ℓ1 it claims."""

    @cache
    def plan():  # which reads no rows: one is good for all
        return dataset_of([], unit, bounds).sql(text, epsilon=1, bounds=bounds, **options)

    @cache
    def answer(rows):
        plan_made, vectors, claimed = plan(), [], 0
        engine = engine_of(dataset_of(list(rows), unit, bounds))
        with engine.snapshot():
            for each in plan_made.aggregates:
                measured = each.bounded
                result = engine.execute(measured.sql, measured.key_sets)
                dense = dense_table(measured, result, plan_made.query.groups(), len(plan_made.query.keys))
                vectors.append(each.aggregate.to_vector(measured, dense))
                claimed += measured.sensitivity.l1
        return np.concatenate(vectors), claimed

    return lambda rows: answer(tuple(rows))


def leaks(target, rows, neighbour):
    """Whether a row makes it fail, changes how much comes out, or moves it too far."""
    seen = []
    for each in (rows, neighbour):
        try:
            seen.append(target(each))
        except Exception:
            return True
    (one, first), (other, second) = ((np.atleast_1d(vector), claim) for vector, claim in seen)
    if len(one) != len(other) or not all(
        np.isfinite(np.asarray(each, dtype=float)).all() for each in (one, other)
    ):
        return True
    moved = sum(
        abs(Fraction(a) - Fraction(b)) for a, b in zip(one.tolist(), other.tolist(), strict=True) if a != b
    )
    return first != second or moved > first


def visits(*costs, region="North", note="1"):
    """One visit each of as many patients."""
    return [(patient, region, cost, note) for patient, cost in enumerate(costs)]


def attack_A06(target):
    rows = visits(*[2.0**62] * 3)
    return any(leaks(target, rows[:some], rows[: some + 1]) for some in range(3))


HOSTILE = [float("nan"), float("-nan"), float("inf"), float("-inf"), 1e308, -1e308, 5e-324, -0.0, None]


def attack_A07(target):
    return any(leaks(target, visits(10, 20), visits(10, 20, row)) for row in HOSTILE)


def attack_A08(target):
    """What stands in for a missing value must be judged like any other."""
    return any(leaks(target, visits(10, *first), visits(10, *first, None)) for first in ([], [None]))


def attack_A09(target):
    """A cast that fails makes a NULL: how many there are is as secret as any count."""
    return any(
        leaks(target, visits(1), [*visits(1), (9, "North", 1, note)])
        for note in ("x", "", None, "1e999", "nan")
    )


def attack_A10(target):
    """A cast to a narrow type must neither fail nor give infinity."""
    return any(
        leaks(target, visits(1), visits(1, far)) for far in (1e39, -1e39, 128, 2.0**31, 2.0**63, 1e308)
    )


def attack_A12(target):
    """A region that only one person is in must not add a row to the answer."""
    return any(
        leaks(target, visits(1), [*visits(1), (9, region, 1, "1")])
        for region in ("Atlantis", None, "", "south")
    )


def attack_A13(target):
    """Among many rows without a number the one that has one must not be alone with a small sensitivity."""
    return any(
        leaks(target, visits(*[gap] * 99, 0), visits(*[gap] * 99, 0, 50)) for gap in (None, float("nan"))
    )


def attack_A14(target):
    return any(leaks(target, visits(1, 2), visits(1, 2, far)) for far in (49, 1000, -1000))


def attack_A15(target):
    return any(leaks(target, visits(1, 2), visits(1, 2, far)) for far in (51, -1, 1e6, -1e6, 1e300))


def attack_A16(target):
    """The order of rows is not data: what comes out must be the same in each."""
    rows = [(1, "North", cost, "1") for cost in (2.0**53, 1.0, -(2.0**53), 1.0)]
    orders = [rows, rows[::-1], [rows[0], rows[2], rows[1], rows[3]]]
    return len({tuple(target(each)[0]) for each in orders}) > 1


EXPRESSIONS = {
    "1 // CAST(cost AS INTEGER)": (0.0, "1"),
    "CAST(note AS INTEGER)": (1.0, "x"),
    "CAST(cost AS TINYINT)": (128.0, "1"),
    "CAST(note AS DATE)": (1.0, "2023-02-29"),
    "CAST(cost AS INTEGER) * 1000000": (1e6, "1"),
    "SQRT(cost)": (-1.0, "1"),
    "LN(cost)": (0.0, "1"),
    "SIGN(cost) * 2 + CAST(note AS TINYINT)": (1.0, "127"),
    "DATE_TRUNC('year', CAST(note AS DATE))": (1.0, "5877642-06-25 (BC)"),
    "DATE_TRUNC('week', CAST(note AS TIMESTAMP))": (1.0, "290309-12-22 (BC) 00:00:00"),
    "CASE WHEN cost > 5 THEN error(note) ELSE note END": (9.0, "boo"),
    "POWER(cost, 0.5)": (-8.0, "1"),
    "(" + " + ".join(["SIGN(cost)"] * 130) + ")": (5.0, "1"),
}


def attack_A29(target):
    """Whether a row shows in how a query ends: ours may be refused, but then whatever the rows are."""
    ends = [
        {outcome(partial(target(text), rows)) for rows in (visits(2), [*visits(2), (9, "North", cost, note)])}
        for text, (cost, note) in EXPRESSIONS.items()
    ]
    return any(len(seen) > 1 for seen in ends)


def attack_A30(target):
    return any(leaks(target, visits(1, 2), visits(1, 2, far)) for far in (50, 51, 1e6, -1e6))


SUM_OF_SUMS = "SELECT SUM(cost) FROM (SELECT patient, SUM(cost) AS cost FROM visits GROUP BY patient) AS u"
FILLED = "LEAST(GREATEST(COALESCE(cost, CAST('nan' AS DOUBLE)), 0), 50)"
PART = "SELECT patient, cost FROM visits"
LARGE = {"cost": (0, 2**62)}
CASTS = [
    "CAST(cost AS FLOAT)",
    "CAST(cost AS TINYINT)",
    "CAST(cost AS BIGINT)",
    "CAST(cost AS DECIMAL(4, 2))",
    "cost::INT",
]


def rows_in(dataset_of):
    """The attacks on rows that an engine holds."""
    plan_made = partial(asked_in, dataset_of)
    sums = {
        "sum": plan_made("SELECT SUM(cost) FROM visits"),
        "sum, rows are units": plan_made("SELECT SUM(cost) FROM visits", ROW),
        "mean and count": plan_made("SELECT AVG(cost), COUNT(*), COUNT(cost) FROM visits"),
        "variance": plan_made("SELECT VARIANCE(cost) FROM visits"),
        "median": plan_made("SELECT MEDIAN(cost) FROM visits"),
        "covariance": plan_made("SELECT CORR(cost, LEAST(GREATEST(cost, 0), 9)) FROM visits"),
        "by region": plan_made("SELECT region, SUM(cost) FROM visits GROUP BY region"),
        "one group each": plan_made(
            "SELECT region, AVG(cost) FROM visits GROUP BY region", groups_per_unit=1
        ),
        "sum of sums": plan_made(SUM_OF_SUMS),
        "per group": plan_made("SELECT SUM(cost, contribution_bounds_per_group => (0, 50)) FROM visits"),
    }
    return [
        Row(
            "A06-sql",
            attack_A06,
            {
                "sum": plan_made("SELECT SUM(cost) FROM visits", bounds=LARGE),
                "sum, rows are units": plan_made("SELECT SUM(cost) FROM visits", ROW, bounds=LARGE),
                "mean": plan_made("SELECT AVG(cost) FROM visits", bounds=LARGE),
                "sum of sums": plan_made(SUM_OF_SUMS, bounds=LARGE),
            },
            mutants.sum_in_64_bits,
        ),
        Row("A07-sql", attack_A07, sums, mutants.cast_before_the_clamp),
        Row(
            "A08-sql",
            attack_A08,
            {
                name: plan_made(f"SELECT {name}({FILLED}) FROM visits")
                for name in ("SUM", "AVG", "MEDIAN", "VARIANCE")
            },
            mutants.filled_with_nan,
        ),
        Row(
            "A09-sql",
            attack_A09,
            {
                "values": plan_made("SELECT COUNT(CAST(note AS DOUBLE)) FROM visits"),
                "missing": plan_made(
                    "SELECT COUNT(*) FILTER (WHERE CAST(note AS DOUBLE) IS NULL) FROM visits"
                ),
                "both": plan_made("SELECT COUNT(*) - COUNT(CAST(note AS INTEGER)) FROM visits"),
                "dates": plan_made("SELECT COUNT(CAST(note AS DATE)) FROM visits"),
            },
            mutants.counted_as_declared,
        ),
        Row(
            "A10-sql",
            attack_A10,
            {cast: plan_made(f"SELECT SUM(LEAST(GREATEST({cast}, 0), 50)) FROM visits") for cast in CASTS},
            mutants.narrow_cast,
        ),
        Row(
            "A12-sql",
            attack_A12,
            {
                "counts": plan_made("SELECT region, COUNT(*) FROM visits GROUP BY region"),
                "counts, rows are units": plan_made(
                    "SELECT region, COUNT(*) FROM visits GROUP BY region", ROW
                ),
                "units": plan_made("SELECT region, COUNT(DISTINCT patient) FROM visits GROUP BY region"),
                "distinct": plan_made("SELECT region, COUNT(DISTINCT note) FROM visits GROUP BY region"),
                "median": plan_made("SELECT region, MEDIAN(cost) FROM visits GROUP BY region"),
            },
            mutants.groups_that_are_there,
        ),
        Row("A13-sql", attack_A13, sums, mutants.mean_by_all_rows),
        Row("A14-sql", attack_A14, sums, mutants.bounds_of_what_is_there),
        Row("A15-sql", attack_A15, sums, mutants.bounds_believed),
        Row("A16-sql", attack_A16, sums, mutants.sum_of_doubles),
        Row(
            "A29-sql",
            attack_A29,
            {
                "counted": lambda text: plan_made(f"SELECT COUNT({text}) FROM visits"),
                "filtered by": lambda text: plan_made(
                    f"SELECT COUNT(*) FROM visits WHERE {text} IS NOT NULL"
                ),
                "in a sub-query": lambda text: plan_made(
                    f"SELECT COUNT(e) FROM (SELECT patient, {text} AS e FROM visits) AS s"
                ),
            },
            mutants.as_it_was_written,
        ),
        Row(
            "A30-sql",
            attack_A30,
            {
                "computed": plan_made("SELECT SUM(cost * 1000) FROM visits"),
                "under its old name": plan_made(
                    "SELECT SUM(cost) FROM (SELECT patient, cost * 1000 AS cost FROM visits) AS s"
                ),
                "in a union": plan_made(f"SELECT SUM(cost) FROM ({PART} UNION ALL {PART}) AS s"),
                "twice bounded": plan_made("SELECT SUM(cost), AVG(cost * 1000) FROM visits"),
            },
            mutants.bounds_of_another_step,
        ),
    ]


ROWS = rows_in(in_duckdb)
test_ours_resists, test_mutant_falls = both_tests(ROWS)
