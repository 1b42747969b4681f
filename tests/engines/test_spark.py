"""Spark as an engine: what it is asked, what it leaves behind, and what becomes of its faults."""

import threading
import warnings
from datetime import date

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


def open_data(data, table="visits", **options):
    known = {"keys": {"region": ["North", "South"]}, "bounds": {"cost": (0, 100)}, "rows_per_unit": 5}
    return hb.open(data, table=table, unit="patient", **known | options)


def test_tables_and_data_frames_work_like_any_other(session, visits):
    for data in (open_data(session), open_data(session.table("visits"))):
        result = data.run(data.sql(BY_REGION, epsilon=50, allow_large_epsilon=True)).value
        assert list(result["region"]) == ["North", "South"]
        assert all(abs(n - 100 * 5) < 30 for n in result["n"])
        assert all(abs(c - 48) < 5 for c in result["c"])
    assert not [name for _, name, _ in session.sql("SHOW TABLES").collect() if name.startswith("_hubbub")]
    assert session.conf.get("spark.sql.session.timeZone") == "America/St_Johns"


def test_texts_are_never_parsed_as_sql(session):
    text = "a JOIN _keys0 b"
    frame = session.range(300).selectExpr("id AS patient", f"'{text}' AS region", "1.0D AS cost")
    data = open_data(frame, keys={"region": [text]})
    plan = data.sql(
        f"SELECT region, COUNT(*) AS n FROM visits WHERE region = '{text}' GROUP BY region",
        epsilon=50,
        allow_large_epsilon=True,
    )
    assert data.run(plan).value["n"][0] > 200


def test_partition_selection_works(session, visits):
    data = open_data(session, keys=None)
    result = data.run(
        data.sql(
            "SELECT region, COUNT(*) AS n FROM visits GROUP BY region",
            epsilon=50,
            delta=1e-6,
            allow_large_epsilon=True,
        )
    )
    assert sorted(result.value["region"]) == sorted(["North", "South", SECRET])


def test_operations_without_an_equivalent_are_refused(session, visits):
    data = open_data(session)
    with refused(Unsupported, match="last bit"):
        data.sql("SELECT COUNT(LN(cost)) FROM visits", epsilon=1)
    towns = session.createDataFrame([("North", 1.0)], "region string, size double")
    rows = hb.open(session.table("visits"), table="visits", unit=hb.Unit.row(), public={"towns": towns})
    with refused(Unsupported, match="numbered differently"):
        rows.sql("SELECT COUNT(*) FROM visits JOIN towns ON visits.region = towns.region", epsilon=1)
    with refused(InvalidInput, match="Spark does not hold"):
        hb.open(session, table="visits", unit="patient", public={"towns": ["towns.csv"]})
    odd = session.range(3).selectExpr("named_struct('a', id) AS who", "id AS x")
    with refused(InvalidInput, match="type that no unit has"):
        hb.open(odd, unit="who")


@pytest.fixture
def tables(session):
    """Runs statements; the tables that they create are dropped afterwards."""
    make = []

    def run(*texts):
        for text in texts:
            make.extend(text.split()[2:3] if text.startswith("CREATE TABLE") else [])
            session.sql(text)

    yield run
    for name in make:
        session.sql(f"DROP TABLE IF EXISTS {name}")


def test_padding_of_char_is_ignored(session, tables):
    """A key padded in one table and not in another would make one person two."""
    tables(
        "CREATE TABLE filled (patient CHAR(4), region CHAR(6)) USING parquet",
        "INSERT INTO filled VALUES ('a', 'North'), ('b', 'North')",
        "CREATE TABLE plain (patient VARCHAR(4), region STRING) USING parquet",
        "INSERT INTO plain VALUES ('a', 'North '), ('b', 'North')",
    )
    data = hb.open(session, table=["filled", "plain"], unit="patient", rows_per_unit=2)
    both = "(SELECT patient, region FROM filled UNION ALL SELECT patient, region FROM plain) AS q"
    result = data.run(
        data.sql(f"SELECT COUNT(DISTINCT patient) AS n FROM {both}", epsilon=100, allow_large_epsilon=True)
    ).value
    assert round(result["n"][0]) == 2
    text = f"SELECT region, COUNT(*) AS n FROM {both} GROUP BY region"
    result = data.run(
        data.sql(text, epsilon=100, keys={"region": ["North", "North "]}, allow_large_epsilon=True)
    ).value
    assert [round(n) for n in result["n"]] == [3, 1]


def test_opaque_columns_cannot_be_declared(session):
    """Two lists of bytes could be one text, and how a struct is written is the session's affair."""
    frame = session.range(9).selectExpr("id AS patient", "unhex('ff41') AS raw", "array(current_date()) AS a")
    for column in ("raw", "a"):
        with refused(InvalidInput, match="declared"):
            hb.open(frame, table="visits", unit="patient", types={column: "text"})


def test_table_written_between_two_steps_fails(session, tables):
    """Not only would steps see two states: one query may list a table's files twice."""
    tables(
        "CREATE TABLE parted (patient INT, cost DOUBLE, region STRING) USING parquet PARTITIONED BY (region)",
        "INSERT INTO parted VALUES (1, 1, 'North'), (2, 2, 'South')",
    )
    data = open_data(session, "parted")
    plan = data.sql(
        "SELECT AVG(cost) AS c, COUNT(DISTINCT patient) AS n FROM parted",
        epsilon=100,
        allow_large_epsilon=True,
    )
    seen = []

    def between(word):
        seen.append(word)
        if seen.count("counting") == 2:
            session.sql("INSERT INTO parted VALUES (3, 2, 'North')")

    with pytest.raises(EngineFailed, match="written to"):
        data.run(plan, between)
    assert round(data.run(plan).value["n"][0]) == 3
    assert not [name for _, name, _ in session.sql("SHOW TABLES").collect() if name.startswith("_hubbub")]


def test_setting_that_fails_on_old_dates_is_refused(session, tmp_path):
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    days = [date(1, 1, 1), date(2024, 1, 1)]
    pq.write_table(pa.table({"patient": [1, 2], "born": days}), tmp_path / "old.parquet")
    other = session.newSession()
    data = hb.open(other.read.parquet(str(tmp_path)), table="old", unit="patient", rows_per_unit=1)
    plan = data.sql(
        "SELECT COUNT(*) AS n FROM old WHERE YEAR(born) > 1900", epsilon=100, allow_large_epsilon=True
    )
    assert round(data.run(plan).value["n"][0]) == 1
    other.conf.set("spark.sql.parquet.datetimeRebaseModeInRead", "EXCEPTION")
    failed(data, plan, "RebaseModeInRead")
    with refused(EngineFailed, match="RebaseModeInRead"):
        hb.open(other.read.parquet(str(tmp_path)), table="old", unit="patient")


@pytest.mark.parametrize("what", ["Corrupt", "Missing"])
def test_session_that_skips_files_is_refused(session, what):
    other = session.newSession()
    other.conf.set(f"spark.sql.files.ignore{what}Files", "true")
    with refused(EngineFailed, match=f"ignore{what}Files"):
        hb.open(other.range(9).withColumnRenamed("id", "patient"), table="visits", unit="patient")


@pytest.mark.parametrize("make", ["rand()", "monotonically_increasing_id()", "uuid()"])
def test_random_data_frame_is_refused(session, make):
    frame = session.range(9).selectExpr("id AS patient", f"{make} AS x")
    frame.createOrReplaceTempView("seen")
    for data, table in ((frame, "seen"), (session, "seen"), (frame.where("x <> 3"), "seen")):
        with refused(InvalidInput, match="random"):
            hb.open(data, table=table, unit="patient")
    session.catalog.dropTempView("seen")


def failed(data, plan, word=""):
    before = len(data.account.receipts)
    with pytest.raises(EngineFailed) as caught:
        data.run(plan)
    assert SECRET not in str(caught.value)
    assert "SELECT" not in str(caught.value)
    assert "charged stays charged" in str(caught.value)
    assert word in str(caught.value)
    assert len(data.account.receipts) == before + 1


def test_table_changed_or_dropped_between_plan_and_run_fails(session, visits, tmp_path, capfd):
    data = open_data(session)
    plan = data.sql(BY_REGION, epsilon=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        session.range(9).selectExpr(
            "CAST(id AS STRING) AS patient", f"'{SECRET}' AS region", "'x' AS cost"
        ).write.parquet(str(tmp_path / "other"))
    session.sql("DROP TABLE visits")
    failed(data, plan, "not there")
    session.sql(f"CREATE TABLE visits USING parquet LOCATION '{tmp_path / 'other'}'")
    failed(data, plan, "changed since it was opened")
    session.sql("DROP TABLE visits")
    session.sql(f"CREATE TABLE visits USING parquet LOCATION '{tmp_path / 'visits'}'")
    assert len(data.run(plan).value) == 2
    text = "".join(capfd.readouterr())
    assert SECRET not in text
    assert "SELECT" not in text


def test_files_deleted_before_a_run_fail(session, visits, tmp_path):
    data = open_data(session.table("visits"))
    plan = data.sql(BY_REGION, epsilon=1)
    for file in (tmp_path / "visits").glob("part-*"):
        file.unlink()
    failed(data, plan)


def test_failure_is_the_outcome_until_charged_again(session, tmp_path):
    path = tmp_path / "visits"
    frame = session.range(300).selectExpr("id AS patient", "'North' AS region", "1.0D AS cost")
    frame.write.parquet(str(path))
    data = open_data(session.read.parquet(str(path)), ledger=tmp_path / "ledger", budget=hb.Budget(10))
    plan = data.sql("SELECT COUNT(DISTINCT patient) AS n FROM visits", epsilon=1)
    path.rename(tmp_path / "elsewhere")
    with pytest.raises(EngineFailed, match="charged stays charged"):
        data.run(plan)
    assert data.account.spent().epsilon == 1
    (tmp_path / "elsewhere").rename(path)
    with pytest.raises(EngineFailed, match="charged stays charged"):
        data.run(plan)
    assert data.account.spent().epsilon == 1
    result = data.run(plan, again=True).value
    assert abs(result["n"][0] - 300) < 100
    assert data.run(plan, again=True).value.to_dict() == result.to_dict()
    assert data.account.spent().epsilon == 2


PIN = "spark.sql.unionOutputPartitioning"


def test_concurrent_plans_share_pinned_settings(session, visits):
    first, second = open_data(session), open_data(session)
    inside, done, seen = threading.Event(), threading.Event(), []

    def of_the_second(_):
        inside.set()
        assert done.wait(60)
        seen.append(session.conf.get(PIN, None))

    def run(data, progress):
        data.run(data.sql("SELECT COUNT(*) AS n FROM visits", epsilon=1), progress)

    other = threading.Thread(target=run, args=(second, of_the_second))

    def of_the_first(_):
        if not other.ident:
            other.start()
            inside.wait(1)  # where one could enter while another is inside, it would

    before = session.conf.get(PIN, None)
    run(first, of_the_first)
    done.set()
    other.join(60)
    assert seen
    assert set(seen) == {"false"}
    assert session.conf.get(PIN, None) == before


def test_changing_a_pinned_setting_fails_the_plan(session, visits):
    data = open_data(session)
    plan = data.sql("SELECT COUNT(*) AS n FROM visits", epsilon=1)
    try:
        with pytest.raises(EngineFailed, match="changed while a plan ran"):
            data.run(plan, lambda _: session.conf.set(PIN, "true"))
    finally:
        session.conf.unset(PIN)
    data.run(plan)
