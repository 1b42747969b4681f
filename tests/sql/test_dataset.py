"""Opening data of every kind, charging before running, and what is refused."""

from pathlib import Path
from unittest import mock

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import hubbub as hb
from hubbub.errors import BudgetExceeded, EngineFailed, InvalidInput, Refused
from internals import engine_of

ROWS = 600
EXACT = 10**6
"""An ε at which noise is far below a half."""
QUESTION = "SELECT g, COUNT(*) AS n, SUM(x) AS total FROM {} GROUP BY g"


def table():
    return {
        "who": list(range(ROWS)),
        "g": ["ab"[i % 2] for i in range(ROWS)],
        "x": [float(i % 5) for i in range(ROWS)],
    }


def path_of(tmp_path: Path, kind: str) -> str:
    frame = pl.DataFrame(table())
    if kind == "csv":
        frame.write_csv(tmp_path / "people.csv")
        return str(tmp_path / "people.csv")
    if kind == "glob":
        frame[:250].write_parquet(tmp_path / "people-1.parquet")
        frame[250:].write_parquet(tmp_path / "people-2.parquet")
        return str(tmp_path / "people-*.parquet")
    frame.write_parquet(tmp_path / "people.parquet")
    return str(tmp_path / "people.parquet")


def source(kind: str, tmp_path: Path):
    if kind == "pandas":
        return pd.DataFrame(table())
    if kind == "polars":
        return pl.DataFrame(table())
    if kind == "arrow":
        return pa.table(table())
    return path_of(tmp_path, kind)


@pytest.mark.parametrize("kind", ["csv", "parquet", "glob", "pandas", "polars", "arrow"])
def test_every_source_type_gives_the_same_answers(kind, tmp_path):
    rows_source = source(kind, tmp_path)
    with hb.open(
        rows_source,
        unit="who",
        types={"x": "number"},
        bounds={"x": (0, 4)},
        keys={"g": ["a", "b", "c"]},
        rows_per_unit=1,
    ) as data:
        (name,) = data.tables
        answers = data.sql(QUESTION.format(name), epsilon=EXACT, allow_large_epsilon=True).run().value
    assert name == ("people" if kind in {"csv", "parquet", "glob"} else "data")
    assert [round(n) for n in answers["n"]] == [300, 300, 0]
    assert [round(n) for n in answers["total"]] == [600, 600, 0]


@pytest.mark.slow
def test_a_connection_keeps_its_tables_and_gets_no_others():
    connection = duckdb.connect()
    connection.execute("CREATE TABLE people AS SELECT i AS who, i % 2 AS g FROM range(100) r(i)")
    data = hb.open(connection, table="people", unit="who", keys={"g": [0, 1]}, rows_per_unit=1)
    answers = (
        data.sql("SELECT g, COUNT(*) AS n FROM people GROUP BY g", epsilon=EXACT, allow_large_epsilon=True)
        .run()
        .value
    )
    assert [round(n) for n in answers["n"]] == [50, 50]
    assert connection.execute("SHOW TABLES").fetchall() == [("people",)]


def test_several_protected_tables_and_a_public_one():
    visits = pl.DataFrame({"who": [1, 1, 2, 3], "ward": [1.0, 2.0, 1.0, 2.0]})
    people = pl.DataFrame({"who": [1, 2, 3], "age": [30.0, 60.0, 90.0]})
    wards = pl.DataFrame({"ward": [1.0, 2.0], "name": ["heart", "lung"]})
    data = hb.open({"visits": visits, "people": people}, unit="who", public={"wards": wards}, rows_per_unit=2)
    plan = data.sql(
        "SELECT name, COUNT(*) AS n, AVG(age) AS age FROM visits JOIN people USING (who) "
        "JOIN wards USING (ward) GROUP BY name",
        epsilon=EXACT,
        allow_large_epsilon=True,
        keys={"name": ["heart", "lung"]},
        bounds={"age": (0, 100)},
    )
    answers = plan.run().value
    assert [round(n) for n in answers["n"]] == [2, 2]
    assert answers["age"] == pytest.approx([45, 60], abs=0.01)


def test_keys_of_a_public_table_are_public():
    visits = pl.DataFrame({"who": [1, 2, 3], "ward": [1.0, 1.0, 9.0]})
    wards = pl.DataFrame({"ward": [1.0, 2.0, 3.0], "name": ["heart", "lung", None]})
    data = hb.open(visits, unit="who", public={"wards": wards}, rows_per_unit=2)
    plan = data.sql(
        "SELECT name, COUNT(*) AS n FROM data JOIN wards USING (ward) GROUP BY name",
        epsilon=EXACT,
        allow_large_epsilon=True,
    )
    answers = plan.run().value
    assert answers["name"] == ["heart", "lung", None]
    assert [round(n) for n in answers["n"]] == [2, 0, 0]


@pytest.mark.slow
def test_a_database_file_is_read_and_never_written(tmp_path):
    path = tmp_path / "people.duckdb"
    with duckdb.connect(str(path)) as connection:
        connection.execute("CREATE TABLE people AS SELECT i AS who FROM range(100) r(i)")
    data = hb.open(path, table="people", unit="who", rows_per_unit=1)
    assert (
        round(
            data.sql("SELECT COUNT(*) AS n FROM people", epsilon=EXACT, allow_large_epsilon=True)
            .run()
            .value["n"][0]
        )
        == 100
    )
    with pytest.raises(InvalidInput, match=r"none\.duckdb does not exist"):
        hb.open(tmp_path / "none.duckdb", table="people", unit="who")


def test_undeclared_csv_columns_are_text(tmp_path):
    path = tmp_path / "odd.csv"
    path.write_text("who,x\n1,5\n2,7\n3,none\n")
    data = hb.open(path, unit="who", rows_per_unit=1)
    with pytest.raises(InvalidInput, match="text where a number"):
        data.sql("SELECT AVG(x) FROM odd", epsilon=1)
    answers = data.sql(
        "SELECT AVG(CAST(x AS DOUBLE)) AS m FROM odd",
        epsilon=EXACT,
        allow_large_epsilon=True,
        bounds={"CAST(x AS DOUBLE)": (0, 10)},
    )
    assert answers.run().value["m"] == pytest.approx([6], abs=0.01)


def test_null_units_are_dropped():
    frame = pl.DataFrame({"who": [1, None, None, 2], "x": [1.0, 1.0, 1.0, 1.0]})
    data = hb.open(frame, unit="who", rows_per_unit=5)
    assert (
        round(
            data.sql("SELECT COUNT(*) AS n FROM data", epsilon=EXACT, allow_large_epsilon=True)
            .run()
            .value["n"][0]
        )
        == 2
    )


def test_rows_are_units_only_if_declared():
    data = hb.open(pl.DataFrame({"x": [1.0] * 50}), unit=hb.Unit.row())
    assert (
        round(
            data.sql("SELECT COUNT(*) AS n FROM data", epsilon=EXACT, allow_large_epsilon=True)
            .run()
            .value["n"][0]
        )
        == 50
    )


def test_the_charge_comes_first_and_is_kept_within_the_budget():
    data = hb.open(pl.DataFrame({"x": [1.0] * 50}), unit=hb.Unit.row(), budget=hb.Budget(1))
    plan = data.sql("SELECT COUNT(*) AS n FROM data", epsilon=0.4)
    assert data.account.spent().epsilon == 0
    plan.run()
    plan.run()
    with pytest.raises(BudgetExceeded):
        plan.run()
    assert float(data.account.spent().epsilon) == 0.8
    assert data.account.epsilon() == 0.8
    assert len(data.account.receipts) == 2


def test_failing_engine_reveals_nothing_and_stays_charged(tmp_path):
    path = Path(path_of(tmp_path, "parquet"))
    data = hb.open(path, unit="who", keys={"g": ["a", "b"]}, rows_per_unit=1)
    plan = data.sql("SELECT g, COUNT(*) AS n FROM people GROUP BY g", epsilon=1)
    path.unlink()
    with pytest.raises(EngineFailed) as caught:
        plan.run()
    assert "has changed since it was opened" in str(caught.value)
    assert not data.account.receipts  # that it is gone is seen before the charge
    with mock.patch.object(engine_of(data), "check_unchanged"), pytest.raises(EngineFailed) as caught:
        plan.run()
    assert "people" not in str(caught.value)
    assert len(data.account.receipts) == 1


def test_a_plan_reads_nothing(tmp_path):
    path = Path(path_of(tmp_path, "parquet"))
    data = hb.open(path, unit="who", keys={"g": ["a", "b"]}, bounds={"x": (0, 4)})
    path.unlink()  # the engine could not read it now
    plan = data.sql("SELECT g, COUNT(*) AS n, AVG(x) AS m FROM people GROUP BY g", epsilon=1)
    assert "n: ±" in str(plan)
    assert "SQL:" in plan.explain()


def test_the_owners_preview_is_marked_and_recorded():
    data = hb.open(pl.DataFrame({"x": [1.0] * 50}), unit=hb.Unit.row())
    exact = data.exact(data.sql("SELECT COUNT(*) AS n FROM data", epsilon=0.01))
    assert exact["n"] == [50]
    assert "n_low" not in exact.to_dict()
    assert "EXACT" in exact.facts
    assert "EXACT" in data.account.receipts[0].what


def test_a_plan_for_another_unit_is_refused():
    frame = pl.DataFrame({"a": [1], "b": [2]})
    one, two = hb.open(frame, unit="a", rows_per_unit=1), hb.open(frame, unit="b", rows_per_unit=1)
    with pytest.raises(InvalidInput, match="another unit"):
        two.run(one.sql("SELECT COUNT(*) FROM data", epsilon=1))


@pytest.mark.slow
def test_builder_and_sql_make_the_same_plan():
    frame = pl.DataFrame(table())
    data = hb.open(frame, unit="who", rows_per_unit=1, bounds={"x": (0, 4)})
    built = (
        data.where("x > 1")
        .group_by(g=["a", "b"])
        .count()
        .count("x")
        .count_distinct("who")
        .sum("x")
        .mean("x")
        .variance("x")
        .stddev("x")
        .median("x")
        .quantile("x", 0.9, low=0, high=4)
    )
    plan = built.plan(epsilon=1)
    contents = data.sql(built.sql(), epsilon=1, keys={"g": ["a", "b"]}, bounds={"x": (0, 4)})
    assert plan == contents
    assert len(built.run(epsilon=EXACT, allow_large_epsilon=True).value) == 2
    with pytest.raises(InvalidInput, match="nothing is aggregated"):
        data.table().plan(epsilon=1)
    with pytest.raises(InvalidInput, match="only one bound"):
        data.table().sum("x", low=0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"unit": ""}, "key is not the name"),
        ({"unit": 5}, "unit is not given, or is not one"),
        ({"unit": "nobody"}, "no column 'nobody'"),
        ({"types": {"x": "blob"}}, "not a type"),
        ({"types": {"y": "number"}}, "not a column"),
        ({"bounds": {"x": (4, 0)}}, "above its upper bound"),
        ({"bounds": {"x": (0, float("nan"))}}, "high of x"),
        ({"bounds": {"x": 5}}, "not a pair"),
        ({"bounds": {"y": (0, 1)}}, "no column 'y'"),
        ({"keys": {"g": "ab"}}, "not a list"),
        ({"keys": {"g": []}}, "are empty"),
        ({"keys": {"g": ["a", "a"]}}, "are not distinct"),
        ({"keys": {"g": [1]}}, "not a text"),
        ({"rows_per_unit": 0}, "rows per unit"),
        ({"rows_per_unit": 2.5}, "rows per unit"),
        ({"groups_per_unit": True}, "groups per unit"),
    ],
)
def test_invalid_declarations_are_refused(change, message):
    with pytest.raises(InvalidInput, match=message):
        hb.open(pl.DataFrame(table()), **{"unit": "who", **change})


@pytest.mark.parametrize("name", ["no.parquet", "none-*.csv", "x.xlsx", "empty.csv", "broken.parquet"])
def test_unreadable_input_is_refused(name, tmp_path):
    (tmp_path / "x.xlsx").write_bytes(b"?")
    (tmp_path / "empty.csv").write_bytes(b"")
    (tmp_path / "broken.parquet").write_bytes(b"PAR1 secret")
    with pytest.raises(InvalidInput) as caught:
        hb.open(tmp_path / name, unit="who")
    assert "secret" not in str(caught.value)


def test_invalid_tables_are_refused():
    with pytest.raises(InvalidInput, match="cannot be read"):
        hb.open(object(), unit="who")
    with pytest.raises(InvalidInput, match="no table is named"):
        hb.open(duckdb.connect(), unit="who")


def test_delta_is_judged_by_the_population():
    data = hb.open(pl.DataFrame(table()), unit="who", population=600, rows_per_unit=1)
    with pytest.raises(Refused, match="population"):
        data.sql("SELECT g, COUNT(*) FROM data GROUP BY g", epsilon=1, delta=0.01)
