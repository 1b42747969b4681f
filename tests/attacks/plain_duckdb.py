"""What plain DuckDB says of rows: the reference that attacks on the meaning of SQL compare with."""

import duckdb


def self_join(copies, sides):
    """A table, so often united with itself, joined with itself on the unit."""
    union = " UNION ALL ".join(["SELECT unit, x FROM t"] * copies)
    joins = " ".join(f"JOIN a AS a{place} ON a0.unit = a{place}.unit" for place in range(1, sides))
    return f"WITH a AS ({union}) SELECT COUNT(*) AS n FROM a AS a0 {joins}"


def count(rows, text):
    """How many rows fulfil it, by DuckDB itself."""
    connection = duckdb.connect()
    connection.execute("CREATE TABLE t (unit INT, x DOUBLE, s VARCHAR)")
    connection.executemany("INSERT INTO t VALUES (?, ?, ?)", rows)
    [(result,)] = connection.execute(f"SELECT COUNT(*) FROM t WHERE {text}").fetchall()
    return result
