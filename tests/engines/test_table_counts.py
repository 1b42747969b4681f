"""Tables of a domain are the same integers on every engine, and in memory."""

import math
from datetime import date
from fractions import Fraction

import numpy as np
import pytest

import hubbub as hb
from hubbub.accounting.in_memory_account import InMemoryAccount
from hubbub.dataset import Dataset
from hubbub.engines.engine import TableSource
from hubbub.synthesis import engine_counts
from hubbub.synthesis.counting import InMemoryCounts
from hubbub.synthesis.domain import Column, ColumnKind, Domain, to_number
from hubbub.synthesis.synopsis_plan import make_counts
from internals import engine_of

COLUMNS = {
    "person": "BIGINT",
    "sex": "VARCHAR",
    "age": "DOUBLE",
    "day": "DATE",
    "old": "BOOLEAN",
    "k": "DOUBLE",
}
DAYS = [to_number(date(2020, 1, 1)), to_number(date(2020, 7, 1)), to_number(date(2021, 1, 1))]
QUOTED = "f'${x}\\n\"é"
DOMAIN = Domain(
    (
        Column.of_categories("sex", [QUOTED, "m", None], has_other=True),
        Column.of_numbers("age", (0, 100), cuts=(18, 65), is_nullable=True),
        Column.of_numbers("day", (DAYS[0], DAYS[2]), cuts=[DAYS[1]], kind=ColumnKind.DATES, is_nullable=True),
        Column.of_categories("old", [False, True]),
        Column.of_categories("k", [0.0, 1.0, 2.0, None]),
    )
)
TABLES = [(), ("sex",), ("age", "sex"), ("k", "old"), ("day",), ("sex", "age", "day", "old", "k")]
AGES = [17.0, 18.0, -0.0, -5.0, 64.999, 65.0, 100.0, 1e300, None, math.nan, math.inf, -math.inf]


def make_rows(count=300):
    return [
        (
            number % 70 if number % 13 else None,
            [QUOTED, "m", None, "x", ""][number * number % 5],
            AGES[number % len(AGES)],
            [None, date(2019, 1, 1), date(2020, 6, 30), date(2020, 7, 1), date(2030, 1, 1)][number % 5],
            number % 3 == 0 if number % 11 else None,
            [0.0, 1.0, 2.0, 3.0, None][number % 7 % 5],
        )
        for number in range(count)
    ]


@pytest.mark.sweep(5)
@pytest.mark.parametrize("engine", ["DuckDB", "DuckDB by numbers", "PostgreSQL", "Spark"])
@pytest.mark.parametrize("unit", [hb.Unit.row(), hb.Unit("person")], ids=["row", "person"])
def test_tables_are_the_same_integers_everywhere(engine, unit, tables_in, monkeypatch):
    if engine.endswith("by numbers"):  # as where there are very many tables
        engine = "DuckDB"
        monkeypatch.setattr(engine_counts, "MANY_TABLES", 0)
        monkeypatch.setattr(engine_counts, "MAX_NUMBERED_TABLES", 2)
    rows = make_rows()
    place = tables_in(engine)
    table = place.create("people", COLUMNS)
    place.put("people", COLUMNS, rows)
    source = TableSource(table, unit=unit.key)
    values = {name: [row[index] for row in rows] for index, name in enumerate(COLUMNS)}
    units = None if unit.key is None else values["person"]
    memory = InMemoryCounts.of(DOMAIN, values, units=units, max_weight=3)
    with Dataset(place.engine({"people": source}), unit, InMemoryAccount()) as data:
        counts = make_counts(engine_of(data), data.tables["people"], DOMAIN, unit, max_weight=3)
        assert counts.scale == memory.scale
        result, exact = counts.count_many(TABLES), memory.count_many(TABLES)
        for names in TABLES:
            assert np.array_equal(result[names], exact[names]), names
        assert np.array_equal(counts.histogram("age", [5, 10, 90]), memory.histogram("age", [5, 10, 90]))
        # As many cuts as where bins are found; some of them are values.
        fine = [Fraction(cut, 20) - 3 for cut in range(2046)]
        assert np.array_equal(counts.histogram("age", fine), memory.histogram("age", fine))
        days = [Fraction(day) for day in range(int(DAYS[0]) + 1, int(DAYS[2]), 3)]
        assert np.array_equal(counts.histogram("day", days), memory.histogram("day", days))
        assert exact[()].sum() > 0
        groups = {"sex": np.array([0, 1, 0, 1]), "k": np.array([1, 0, 1, 2])}
        merged, expected = counts.count_many(TABLES, groups), memory.count_many(TABLES, groups)
        for names in TABLES:
            assert np.array_equal(merged[names], expected[names]), names
        assert merged["age", "sex"].shape == (4, 2)
        assert np.array_equal(merged["age", "sex"][:, 0], exact["age", "sex"][:, [0, 2]].sum(axis=1))
