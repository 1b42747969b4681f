"""Weak engines behind SQL, kept so that every attack through SQL is seen to find what it looks for.

Each takes rows (patient, region, cost, note) and gives what it would add noise to, with the sensitivity
that it claims. Each is what plain SQL does, or what some library did on top of it.
"""

from fractions import Fraction

import duckdb

TABLE = "CREATE TABLE visits (patient BIGINT, region VARCHAR, cost DOUBLE, note VARCHAR)"


def table(rows):
    """A connection with these rows, in this order."""
    connection = duckdb.connect(config={"threads": 1})
    connection.execute(TABLE)
    insert_rows(connection, rows)
    return connection


def insert_rows(connection, rows):
    """Put these rows into the table, in this order."""
    if rows:
        values = [value for row in rows for value in row]
        connection.execute(f"INSERT INTO visits VALUES {', '.join(['(?, ?, ?, ?)'] * len(rows))}", values)


def _ask(rows, sql):
    records = table(rows).execute(sql).fetchall()
    return [value for row in records for value in row if not isinstance(value, str)]


def sum_in_64_bits(rows):
    """A06: a sum of large integers in the width of its terms."""
    return _ask(rows, "SELECT CAST(SUM(CAST(cost AS BIGINT)) AS BIGINT) FROM visits"), Fraction(2**62)


def cast_before_the_clamp(rows):
    """A07: scaled and cast first, clamped then: NaN cannot be cast."""
    sql = "SELECT SUM(LEAST(GREATEST(CAST(FLOOR(cost * 2) AS BIGINT), 0), 100)) FROM visits"
    return _ask(rows, sql), Fraction(100)


def filled_with_nan(rows):
    """A08: clamped, then filled: what was known of the values no longer holds."""
    clamped = "CASE WHEN cost < 0 THEN 0 WHEN cost > 50 THEN 50 ELSE cost END"
    sql = f"SELECT SUM(COALESCE({clamped}, CAST('nan' AS DOUBLE))) FROM visits"
    return _ask(rows, sql), Fraction(50)


def counted_as_declared(rows):
    """A09: the column is declared without NULLs, so a count of them is a constant, after a cast too."""
    return _ask(rows, "SELECT COUNT(*) - COUNT(TRY_CAST(note AS DOUBLE)) FROM visits"), Fraction(0)


def narrow_cast(rows):
    """A10: bounds of doubles, believed of a narrower type."""
    return _ask(rows, "SELECT COALESCE(SUM(CAST(cost AS FLOAT)), 0) FROM visits"), Fraction(50)


def groups_that_are_there(rows):
    """A12: as many rows as there are regions in the data."""
    return _ask(rows, "SELECT region, COUNT(*) FROM visits GROUP BY region ORDER BY region"), Fraction(1)


def mean_by_all_rows(rows):
    """A13: a mean over what is a number, with the sensitivity of a mean over all rows."""
    result = _ask(rows, "SELECT COALESCE(AVG(cost) FILTER (WHERE isfinite(cost)), 0) FROM visits")
    return result, Fraction(50, max(1, len(rows)))


def bounds_of_what_is_there(rows):
    """A14: clamped to the smallest and largest value there is."""
    low, high = table(rows).execute("SELECT MIN(cost), MAX(cost) FROM visits").fetchone()
    return _ask(rows, "SELECT COALESCE(SUM(cost), 0) FROM visits"), Fraction(
        max(abs(low or 0), abs(high or 0))
    )


def bounds_believed(rows):
    """A15: bounds are declared, and nothing is clamped."""
    return _ask(rows, "SELECT COALESCE(SUM(cost), 0) FROM visits"), Fraction(50)


def sum_of_doubles(rows):
    """A16: each unit's own sum, in the order in which its rows come."""
    units = "SELECT patient, SUM(cost) AS own FROM visits GROUP BY patient"
    sql = f"SELECT COALESCE(SUM(LEAST(GREATEST(own, 0), 50)), 0) FROM ({units})"
    return _ask(rows, sql), Fraction(50)


def as_it_was_written(expression):
    """A29: an expression is handed to the engine as it is; a row can make it fail."""
    return lambda rows: (_ask(rows, f"SELECT COUNT({expression}) FROM visits"), Fraction(1))


def bounds_of_another_step(rows):
    """A30: clamped first, computed with afterwards, and the bounds of the first step are claimed."""
    sql = "SELECT COALESCE(SUM(LEAST(GREATEST(cost, 0), 50) * 1000), 0) FROM visits"
    return _ask(rows, sql), Fraction(50)
