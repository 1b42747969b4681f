"""A hundred million rows in bounded memory: what does not fit is spilled, and answers stay right."""

from pathlib import Path

import duckdb
import pytest

import hubbub as hb
from hubbub.engines import duckdb as engine

pytestmark = pytest.mark.long

ROWS, UNITS, GROUPS = 100_000_000, 5_000_000, 20
SURE = 1 - 1e-11
"""Of each interval: some fifty of them are all right but for a chance below 1e-9."""
MEMORY = "4GB"


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    """Of unit u and group g the value v; each unit has 20 rows, all of them in one group.

    What is true of it is known without counting: a fifth of the values are each of 0, 25, 50, 75 and 100.
    """
    path = tmp_path_factory.mktemp("large") / "rows.parquet"
    with duckdb.connect() as connection:
        connection.execute("SET preserve_insertion_order = false")
        connection.execute(
            f"COPY (SELECT (i % {UNITS})::INTEGER AS u, (i % {GROUPS})::TINYINT AS g, "
            f"(25 * ((i // {GROUPS}) % 5))::TINYINT AS v FROM range({ROWS}) r(i)) "
            f"TO '{path}' (FORMAT parquet)"
        )
    yield path
    Path(path).unlink()


@pytest.fixture
def within(monkeypatch):
    """The engine is given so much memory and no more."""
    monkeypatch.setattr(engine, "SETTINGS", (*engine.SETTINGS, f"SET memory_limit = '{MEMORY}'"))


def open_data(rows, unit, **limits):
    return hb.open(
        str(rows),
        unit=unit,
        table="t",
        keys={"g": range(GROUPS)},
        bounds={"v": (0, 100)},
        **limits,
    )


def check(answers, name, exact):
    low, high = answers[f"{name}_low"], answers[f"{name}_high"]
    assert len(low) == len(exact)
    assert all(a <= truth <= b for a, truth, b in zip(low, exact, high, strict=True))


@pytest.mark.usefixtures("within")
def test_row_units_scale_to_many_rows(rows):
    with open_data(rows, hb.Unit.row()) as data:
        question = "SELECT g, COUNT(*) AS n, AVG(v) AS mean FROM t GROUP BY g"
        answers = data.sql(question, epsilon=1, confidence=SURE).run().value
        check(answers, "n", [ROWS / GROUPS] * GROUPS)
        check(answers, "mean", [50] * GROUPS)
        assert answers["n"] == pytest.approx([ROWS / GROUPS] * GROUPS, rel=1e-4)
        answers = data.sql("SELECT MEDIAN(v) AS middle FROM t", epsilon=1, confidence=SURE).run().value
        check(answers, "middle", [50])
        assert answers["middle"] == pytest.approx([50], abs=0.1)


@pytest.mark.usefixtures("within")
def test_units_with_many_rows_scale(rows):
    """Each of the 20 rows of a unit counts a half where ten may count."""
    with open_data(rows, "u", rows_per_unit=10) as data:
        question = "SELECT g, COUNT(*) AS n, AVG(v) AS mean FROM t GROUP BY g"
        answers = data.sql(question, epsilon=1, confidence=SURE).run().value
        check(answers, "n", [ROWS / GROUPS / 2] * GROUPS)
        check(answers, "mean", [50] * GROUPS)
        assert answers["n"] == pytest.approx([ROWS / GROUPS / 2] * GROUPS, rel=1e-3)


@pytest.mark.usefixtures("within")
def test_selected_keys_scale(rows):
    """The groups are not declared: every one is found, since each has 250,000 units."""
    with hb.open(str(rows), unit="u", table="t", types={"g": "number"}, rows_per_unit=10) as data:
        plan = data.sql("SELECT g, COUNT(*) AS n FROM t GROUP BY g", epsilon=1, delta=1e-9, confidence=SURE)
        answers = plan.run().value
        assert sorted(answers["g"]) == list(range(GROUPS))
        check(answers, "n", [ROWS / GROUPS / 2] * GROUPS)
