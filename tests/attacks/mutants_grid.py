"""Weak versions of ours, each with the hole that one attack on intervals, meaning or time finds."""

import re
from fractions import Fraction

import duckdb
from sqlglot import exp, parse_one

from attacks.plain_duckdb import count, self_join
from hubbub.errors import Unsupported


def coarse_grid(values, bounds, copies):
    """A67: each value is rounded to one of 2^16 steps between its bounds before it is added up."""
    low, high = (Fraction(end) for end in bounds)
    step = (high - low) / 2**16
    return float(sum(low + step * round((Fraction(value) - low) / step) for value in values) * copies)


def weights_of_16_bits(people, rows, groups):
    """A67-weights: above the limit of 1 each of a unit's n rows counts 2^16 // n, in steps of 2^-16."""
    del groups
    return people * rows * (2**16 // rows) / 2**16


def short_forms(rows, text):
    """A70: a text is cut at 15 letters, a decimal keeps all digits, powers are those of positive numbers."""
    text = text.replace("SUBSTRING(s, 2)", "SUBSTRING(s, 2, 15)")
    text = text.replace("CAST(x AS DECIMAL(10, 2))", "x")
    text = re.sub(r"POWER\(x, 3\)", "CASE WHEN x > 0 THEN POWER(x, 3) END", text)
    return count(rows, text)


def missing_makes_missing(rows, text):
    """A71: NULL makes LEAST and CONCAT NULL, // rounds down, and halves are rounded up."""
    text = text.replace("LEAST(x, 5)", "CASE WHEN x IS NOT NULL THEN LEAST(x, 5) END")
    text = text.replace("CONCAT(s, 'x')", "s || 'x'")
    text = text.replace("ROUND(x)", "FLOOR(x + 0.5)")
    text = text.replace("CAST(x AS INTEGER) // 2", "FLOOR(CAST(x AS INTEGER) / 2)")
    return count(rows, text)


def negations_unknown(rows, text):
    """A72: LIKE takes no clause but its pattern, and the parser began to say NOT in one."""
    for node in parse_one(text, read="duckdb").find_all(exp.Like, exp.ILike):
        if node.args.get("negate") or isinstance(node.parent, exp.Not):
            raise Unsupported("LIKE has a clause", why="it is not known", fix="write it without")
    return count(rows, text)


def joined_as_they_are(rows, copies, sides):
    """A39: a unit's rows are multiplied by each other as often as tables are joined."""
    connection = duckdb.connect()
    connection.execute("CREATE TABLE t (unit INT, x DOUBLE, s VARCHAR)")
    connection.executemany("INSERT INTO t VALUES (?, ?, ?)", rows)
    [(result,)] = connection.execute(self_join(copies, sides)).fetchall()
    return result
