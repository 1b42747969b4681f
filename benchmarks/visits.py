# ruff: noqa: S608 - nothing here comes from a person
"""The table that the queries are asked of: rows of users with a heavy tail, made by DuckDB."""

import tempfile
from pathlib import Path

__all__ = ["HIGH", "PRODUCTS", "REGIONS", "visits"]

REGIONS = [f"region_{number:02d}" for number in range(50)]
PRODUCTS = 10_000
HIGH = 5000
"""Costs lie between 0 and this."""
_USERS_PER_ROW = 0.0936625
_LONGEST = 6812
"""Rows of the largest user."""


def visits(rows: int, *, is_sparse: bool = False) -> Path:
    """A Parquet file with this number of rows, made once: user, region, product, cost.

    Half of the users have 4 rows or fewer, 90 % at most 16. Their ids are 1, 2, 3 …, or 63-bit hashes.
    """
    folder = Path(tempfile.gettempdir()) / "hubbub-bench"
    folder.mkdir(exist_ok=True)
    path = folder / f"visits-{rows}{'-sparse' if is_sparse else ''}.parquet"
    if not path.exists():
        part = path.with_suffix(".part")
        _write(part, rows, is_sparse=is_sparse)
        part.rename(path)
    return path


def _write(path: Path, rows: int, *, is_sparse: bool) -> None:
    import duckdb  # peers' environments have none; they are given the file

    users = max(1, round(rows * _USERS_PER_ROW))

    def sizes(scale: float) -> str:
        return f"GREATEST(1, LEAST(FLOOR({scale} * POW((i + 0.5) / {users}, -0.78)), {_LONGEST}))::BIGINT"

    def uniform(salt: int) -> str:
        return f"((HASH(XOR(k, {salt * 1234567891234567}::UBIGINT)) >> 11)::DOUBLE / 9007199254740992.0)"

    with duckdb.connect() as connection:
        run = connection.execute
        low, high = 0.5, 8.0
        for _ in range(30):
            middle = (low + high) / 2
            [total] = run(f"SELECT SUM({sizes(middle)}) FROM range({users}) t(i)").fetchone()
            low, high = (low, middle) if total >= rows else (middle, high)
        normal = f"SQRT(-2 * LN({uniform(4)} + 1e-18)) * COS(2 * PI() * {uniform(5)})"
        region = "CASE WHEN k % 10 < 7 THEN home ELSE (k // 10) % 50 END"
        user = "(HASH(id, 77) >> 1)::BIGINT" if is_sparse else "id"
        run(
            f"""COPY (
              SELECT {user} AS user,
                'region_' || LPAD(CAST({region} AS VARCHAR), 2, '0') AS region,
                FLOOR({PRODUCTS} * POW({uniform(3)}, 2.5))::INTEGER AS product,
                LEAST({HIGH}.0, EXP(5.0 + {normal})) AS cost
              FROM (
                SELECT id, HASH(id, 1) % 50 AS home, HASH(id, number) AS k FROM (
                  SELECT (i * 524287) % {users} + 1 AS id, UNNEST(RANGE({sizes(high)})) AS number
                  FROM range({users}) t(i)
                )
              ) ORDER BY HASH(k, 8) LIMIT {rows}
            ) TO '{path}' (FORMAT parquet)"""
        )
