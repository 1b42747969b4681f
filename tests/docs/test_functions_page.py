"""docs/functions.md and `hubbub functions` say what is accepted."""

from pathlib import Path

# ruff: noqa: E501 - a query is one line
import duckdb
import pytest

import hubbub as hb
from cli.terminal import run
from hubbub.sql.function_list import list_entries, render_markdown

PAGE = Path(__file__).parents[2] / "docs" / "functions.md"


@pytest.fixture(scope="module")
def data():
    connection = duckdb.connect()
    connection.execute(
        "CREATE TABLE r AS SELECT i AS unit, 1.0 AS x, 2.0 AS y, 'a' AS t, TRUE AS b, DATE '2024-01-01' AS d, "
        "TIMESTAMP '2024-01-01' AS m, ['a'] AS l FROM range(3) q(i)"
    )
    return hb.open(connection, table="r", unit="unit", rows_per_unit=1, bounds={"x": (0, 3), "y": (0, 3)})


def test_page_is_current():
    assert PAGE.read_text(encoding="utf-8") == render_markdown(), "run: make docs"


@pytest.mark.slow
def test_every_listed_function_is_accepted(data):
    for entry in list_entries():
        if entry.use == "rows":
            data.sql(f"SELECT COUNT(*) AS n FROM r WHERE ({entry.example}) IS NOT NULL", epsilon=1)
        elif entry.use == "aggregate":
            data.sql(f"SELECT {entry.example} AS n FROM r", epsilon=1)


def test_command_prints_the_list():
    done = run("functions", "trunc")
    assert "DATE_TRUNC('month', d)" in done.stdout
    assert "SQRT" not in done.stdout


@pytest.mark.parametrize(
    ("text", "nearest"),
    [
        ("CBRT(x) > 1", "use POWER"),
        ("TIME_BUCKET(INTERVAL 1 DAY, d) = d", "use DATE_TRUNC"),
        ("SQUARE_ROT(x) > 1", "functions"),
    ],
)
def test_refused_functions_name_the_nearest_accepted_one(data, text, nearest):
    with pytest.raises(hb.HubbubError, match=nearest):
        data.sql(f"SELECT COUNT(*) AS n FROM r WHERE {text}", epsilon=1)
