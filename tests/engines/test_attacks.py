"""What rows could do to the integers before the noise, tried again on every engine."""

from functools import cache

import pytest

import hubbub as hb
from attacks.test_sql import KEYS, rows_in
from hubbub.accounting.in_memory_account import InMemoryAccount
from hubbub.dataset import Dataset
from hubbub.engines.engine import TableSource
from hubbub.sql.query import ContributionBounds
from sql.neighbours import World
from sql.test_sensitivity import check_world

COLUMNS = {"patient": "BIGINT", "region": "VARCHAR", "cost": "DOUBLE", "note": "VARCHAR"}
ATTACKS = [row.name for row in rows_in(None)]


def opener(place):
    """Opens a dataset of given rows at a place: the table is filled anew each time."""
    table = place.create("visits", COLUMNS)

    @cache
    def open_data(key, low, high):
        unit = hb.Unit(key) if key else hb.Unit.row()
        source = TableSource(table, unit=key, keys=KEYS, bounds={"cost": (low, high)})
        return Dataset(
            place.engine({"visits": source}),
            unit,
            InMemoryAccount(),
            contribution_bounds=ContributionBounds(1),
        )

    def make(rows, unit, bounds):
        place.put("visits", COLUMNS, [_as_floats(row) for row in rows])
        return open_data(unit if isinstance(unit, str) else unit.key, *bounds["cost"])

    return make


def _as_floats(row):
    patient, region, cost, note = row
    return patient, region, None if cost is None else float(cost), note


@pytest.fixture(scope="session")
def attacks(tables_in):
    return cache(lambda name: {row.name: row for row in rows_in(opener(tables_in(name)))})


def resists(row):
    leaks = [name for name, target in row.ours.items() if row.attack(target)]
    assert not leaks, f"{row} finds a leak in: {', '.join(leaks)}"


@pytest.mark.sweep(5)
@pytest.mark.parametrize("name", ATTACKS)
def test_postgres_resists_attacks(attacks, name):
    resists(attacks("PostgreSQL")[name])


@pytest.mark.long
@pytest.mark.parametrize("name", ATTACKS)
def test_spark_resists_attacks(attacks, name):
    resists(attacks("Spark")[name])


def check_sensitivity(tables_in, other, unit, count, seed):
    """Random tables, queries and neighbours: one unit moves the integers by no more than is claimed."""
    assert check_world(World.of(unit, tables_in(other)), count, "engines", seed, unit) > count / 3


UNITS = {
    str(unit): unit for unit in (hb.Unit("u"), hb.Unit("u", hb.unit.Neighbours.SUBSTITUTE), hb.Unit.row())
}


@pytest.mark.parametrize("unit", UNITS)
def test_sensitivity_holds_on_postgres(tables_in, unit):
    check_sensitivity(tables_in, "PostgreSQL", UNITS[unit], 8, "short")


@pytest.mark.long
def test_sensitivity_holds_on_spark(tables_in):
    check_sensitivity(tables_in, "Spark", hb.Unit("u"), 3, "short")


@pytest.mark.long
@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize(("other", "count"), [("PostgreSQL", 400), ("Spark", 30)])
def test_sensitivity_holds_for_many_queries(tables_in, other, count, unit):
    check_sensitivity(tables_in, other, UNITS[unit], count, "long")
