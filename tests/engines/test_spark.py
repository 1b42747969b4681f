"""Spark as an engine: what it is asked, what it leaves behind, and what becomes of its faults."""

import warnings

import pytest

import hubbub as hb
from hubbub.errors import EngineFailed, InvalidInput, Unsupported
from refusing import refused

SECRET = "Ludwigshafen"  # noqa: S105 - a town, which no error may name
BY_REGION = "SELECT region, COUNT(*) AS n, AVG(cost) AS c FROM visits GROUP BY region"


@pytest.fixture
def visits(session, tmp_path):
    """A table of the catalog, in Parquet."""
    region = f"CASE id % 3 WHEN 0 THEN 'North' WHEN 1 THEN 'South' ELSE '{SECRET}' END"
    frame = session.range(3000).selectExpr(
        "id % 300 AS patient", f"{region} AS region", "CAST(id % 97 AS DOUBLE) AS cost"
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        frame.write.parquet(str(tmp_path / "visits"))
    session.sql(f"CREATE TABLE visits USING parquet LOCATION '{tmp_path / 'visits'}'")
    yield "visits"
    session.sql("DROP TABLE IF EXISTS visits")


def opened(data, table="visits", **given):
    known = {"keys": {"region": ["North", "South"]}, "bounds": {"cost": (0, 100)}, "rows_per_unit": 5}
    return hb.open(data, table=table, unit="patient", **known | given)


def test_a_table_and_a_data_frame_are_asked_like_any_other(session, visits):
    for data in (opened(session), opened(session.table("visits"))):
        found = data.run(data.sql(BY_REGION, epsilon=50)).value
        assert list(found["region"]) == ["North", "South"]
        assert all(abs(n - 100 * 5) < 30 for n in found["n"])
        assert all(abs(c - 48) < 5 for c in found["c"])
    assert not [name for _, name, _ in session.sql("SHOW TABLES").collect() if name.startswith("_hubbub")]
    assert session.conf.get("spark.sql.session.timeZone") == "America/St_Johns"


def test_a_text_is_not_mistaken_for_a_part_of_the_query(session):
    text = "a JOIN _keys0 b"
    frame = session.range(300).selectExpr("id AS patient", f"'{text}' AS region", "1.0D AS cost")
    data = opened(frame, keys={"region": [text]})
    plan = data.sql(
        f"SELECT region, COUNT(*) AS n FROM visits WHERE region = '{text}' GROUP BY region",
        epsilon=50,
    )
    assert data.run(plan).value["n"][0] > 200


def test_keys_are_selected_privately(session, visits):
    data = opened(session, keys=None)
    found = data.run(
        data.sql("SELECT region, COUNT(*) AS n FROM visits GROUP BY region", epsilon=50, delta=1e-6)
    )
    assert sorted(found.value["region"]) == sorted(["North", "South", SECRET])


def test_what_means_something_else_there_is_refused(session, visits):
    data = opened(session)
    with refused(Unsupported, match="last bit"):
        data.sql("SELECT COUNT(LN(cost)) FROM visits", epsilon=1)
    towns = session.createDataFrame([("North", 1.0)], "region string, size double")
    rows = hb.open(session.table("visits"), table="visits", unit=hb.Unit.row(), public={"towns": towns})
    with refused(Unsupported, match="numbers"):
        rows.sql("SELECT COUNT(*) FROM visits JOIN towns ON visits.region = towns.region", epsilon=1)
    with refused(InvalidInput, match="Spark does not hold"):
        hb.open(session, table="visits", unit="patient", public={"towns": ["towns.csv"]})
    odd = session.range(3).selectExpr("named_struct('a', id) AS who", "id AS x")
    with refused(InvalidInput, match="type that no unit has"):
        hb.open(odd, unit="who")


def failed(data, plan, word=""):
    before = len(data.account.receipts)
    with pytest.raises(EngineFailed) as caught:
        data.run(plan)
    assert SECRET not in str(caught.value)
    assert "SELECT" not in str(caught.value)
    assert "charged stays charged" in str(caught.value)
    assert word in str(caught.value)
    assert len(data.account.receipts) == before + 1


def test_a_table_that_is_changed_or_dropped_between_plan_and_run(session, visits, tmp_path, capfd):
    data = opened(session)
    plan = data.sql(BY_REGION, epsilon=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        session.range(9).selectExpr(
            "CAST(id AS STRING) AS patient", f"'{SECRET}' AS region", "'x' AS cost"
        ).write.parquet(str(tmp_path / "other"))
    session.sql("DROP TABLE visits")
    failed(data, plan, "not there")
    session.sql(f"CREATE TABLE visits USING parquet LOCATION '{tmp_path / 'other'}'")
    failed(data, plan, "not as it was")
    session.sql("DROP TABLE visits")
    session.sql(f"CREATE TABLE visits USING parquet LOCATION '{tmp_path / 'visits'}'")
    assert len(data.run(plan).value) == 2
    shown = "".join(capfd.readouterr())
    assert SECRET not in shown
    assert "SELECT" not in shown


def test_files_that_are_gone_under_a_plan(session, visits, tmp_path):
    data = opened(session.table("visits"))
    plan = data.sql(BY_REGION, epsilon=1)
    for file in (tmp_path / "visits").glob("part-*"):
        file.unlink()
    failed(data, plan)
