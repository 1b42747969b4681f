"""Synthetic rows through the public door: plan, charge, rows, files."""

import json
import resource

import duckdb
import pytest
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder
from sklearn.tree import DecisionTreeClassifier

import hubbub as hb
from hubbub.engines.duckdb import DuckDB
from hubbub.errors import BudgetExceeded, HubbubError, InvalidInput
from hubbub.sql.bounding_sql import parse_template
from hubbub.synthesis.synthesis import Synthesis, open_synopsis

OPTIONS = {"epsilon": 1, "delta": 1e-6, "steps": {"age": 1}, "impossible": ["age < 15 AND job = 'yes'"]}


def open_people(rows=1500, **options):
    connection = duckdb.connect()
    connection.execute(
        "CREATE TABLE people AS SELECT ['N', 'S'][1 + i % 2] AS region, (i * 7) % 90 AS age, "
        "CASE WHEN (i * 7) % 90 < 15 THEN 'no' ELSE ['yes', 'no'][1 + i % 2] END AS job "
        f"FROM range({rows}) r(i)"
    )
    declared = {"keys": {"region": ["N", "S"], "job": ["yes", "no"]}, "bounds": {"age": (0, 89)}}
    return hb.open(connection, table="people", unit=hb.Unit.row(), **{**declared, **options})


@pytest.fixture(scope="module")
def synthesis():
    return open_people().plan_synthesis(**OPTIONS, focus="region").run().value


def test_a_plan_says_which_bins_are_to_be_found():
    plan = open_people().plan_synthesis(**OPTIONS)
    assert "region (2), age (bins to be found), job (2)" in str(plan)


def test_columns_that_are_not_declared_are_refused_with_the_way_to_leave_them_out():
    with pytest.raises(InvalidInput, match="name the columns to use, by columns") as refusal:
        open_people(bounds={}).plan_synthesis(epsilon=1, delta=1e-6)
    assert refusal.value.parameter == "columns"


def test_rows_have_the_columns_of_the_source_and_keep_rules(synthesis):
    rows = synthesis.synthetic(2000).to_dict()
    assert list(rows) == ["region", "age", "job"]
    assert len(rows["age"]) == 2000
    assert all(0 <= age <= 89 and age == int(age) for age in rows["age"])
    assert not any(age < 15 and job == "yes" for age, job in zip(rows["age"], rows["job"], strict=True))
    # Of 750 rows in each region the noise of the one-way table is about 20: a third is 25 of these.
    assert 500 < sum(region == "N" for region in rows["region"]) < 1500


def test_columns_of_whole_numbers_are_integers_in_files(tmp_path):
    connection = duckdb.connect()
    connection.execute(
        "CREATE TABLE t AS SELECT i % 4 AS grade, CASE WHEN i % 5 = 0 THEN NULL ELSE i % 90 END AS age, "
        "i / 7 AS weight, i AS far FROM range(300) r(i)"
    )
    with hb.open(
        connection, table="t", unit=hb.Unit.row(), keys={"grade": [0, 1, 2, 3]},
        bounds={"age": (0, 89), "weight": (0, 50), "far": (0, 10**30)},
    ) as data:  # fmt: skip
        steps = {"age": 1, "far": 1}
        plan = data.plan_synthesis(epsilon=1, delta=1e-6, steps=steps, nulls=["age"])
        rows = plan.run().value.synthetic(50)
    rows.write(tmp_path / "rows.parquet")
    file = duckdb.read_parquet(str(tmp_path / "rows.parquet"))
    types = dict(zip(file.columns, map(str, file.types), strict=True))
    # Whole numbers beyond 2^53 are no integers of 64 bits.
    assert types == {"grade": "BIGINT", "age": "BIGINT", "weight": "DOUBLE", "far": "DOUBLE"}


def test_label_says_that_rows_are_made_up(synthesis):
    facts = synthesis.synthetic(3).facts
    assert facts["synthetic rows"] is True
    assert any("made up" in note for note in facts["notes"])
    assert any("age < 15" in note for note in facts["notes"])
    assert any("rows are left out if region, job" in note for note in facts["notes"])
    assert "measured" in synthesis.report()


def test_saved_model_makes_rows_without_the_data(synthesis, tmp_path):
    path = tmp_path / "people.synopsis"
    synthesis.save(path)
    again = open_synopsis(path)
    assert isinstance(again, Synthesis)
    assert again.report() == synthesis.report()
    assert len(again.synthetic(11)) == 11
    with pytest.raises(InvalidInput):
        Synthesis.from_json(json.dumps({"format": "hubbub synthesis/1"}))


def test_one_charge_has_one_model(tmp_path):
    options = {"ledger": tmp_path / "people.ledger", "budget": hb.Budget(1, 1e-6), "version": "1"}
    with open_people(300, **options) as data:
        plan = data.plan_synthesis(**OPTIONS)
        one, two = (data.run_synthesis(plan).value for _ in range(2))
        assert one.to_json() == two.to_json()
        with pytest.raises(BudgetExceeded):
            data.plan_synthesis(**{**OPTIONS, "impossible": []}).run()


@pytest.mark.sweep(3)
@pytest.mark.parametrize(
    "changes",
    [
        {"epsilon": 0},
        {"delta": 0},
        {"epsilon": 500},
        {"focus": "nobody"},
        {"columns": ["age", "nobody"]},
        {"impossible": ["region IN ('N', 'S')"]},
        {"impossible": ["age >= 0 AND region = 'N'", "age >= 0 AND region = 'S'"]},
    ],
)
def test_unusable_plans_are_refused_before_anything_is_charged(changes):
    data = open_people(50, budget=hb.Budget(1, 1e-6))
    with pytest.raises(HubbubError):
        data.plan_synthesis(**{**OPTIONS, **changes})
    assert not data.account.receipts


@pytest.mark.parametrize("rows", [0, 1])
def test_empty_and_one_row_tables_make_rows(rows):
    synthesis = open_people(rows).plan_synthesis(**OPTIONS).run().value
    assert len(synthesis.synthetic(5)) == 5


def test_synopsis_makes_rows_that_fit_its_tables():
    data = open_people()
    plan = data.plan_synopsis(2, **{**OPTIONS, "epsilon": 1000}, allow_large_epsilon=True)
    synopsis = plan.run().value
    rows = synopsis.synthetic(1500).to_dict()
    assert sum(region == "N" for region in rows["region"]) == pytest.approx(750, abs=5)
    assert not any(age < 15 and job == "yes" for age, job in zip(rows["age"], rows["job"], strict=True))
    with pytest.raises(InvalidInput):
        synopsis.synthetic(0)


def test_synopsis_without_one_way_tables_makes_no_rows():
    plan = open_people().plan_synopsis([("region",)], **{**OPTIONS, "impossible": []})
    with pytest.raises(InvalidInput, match="was not measured"):
        plan.run().value.synthetic(5)


@pytest.mark.parametrize("limit", [10**9, 0])
def test_noise_that_is_too_wide_is_refused_before_the_charge(limit):
    connection = duckdb.connect()
    connection.execute(
        "CREATE TABLE people AS SELECT i // 3 AS id, i * 1.0 AS x, i % 2 AS y FROM range(60) r(i)"
    )
    data = hb.open(
        connection, table="people", unit="id", bounds={"x": (0, 60), "y": (0, 1)}, budget=hb.Budget(1, 1e-6)
    )
    with pytest.raises(HubbubError):
        data.plan_synthesis(epsilon=0.1, delta=1e-7, rows_per_unit=limit).run()
    if limit:  # of a limit that is only large there is an answer
        assert data.plan_synthesis(epsilon=1, delta=1e-6, rows_per_unit=300).run().value.synthetic(5)


def test_metadata_names_the_columns_in_their_order():
    synthesis = open_people().plan_synthesis(**OPTIONS).run().value
    described = synthesis.metadata()
    columns = next(iter(described["tables"].values()))["columns"]
    assert list(columns) == list(synthesis.synthetic(1).to_pandas().columns)
    assert {each["sdtype"] for each in columns.values()} <= {
        "categorical",
        "numerical",
        "boolean",
        "datetime",
    }
    assert described["METADATA_SPEC_VERSION"] == "V1"


def test_pipelines_of_scikit_learn_train_on_synthetic_rows():
    rows = open_people().plan_synthesis(**OPTIONS).run().value.synthetic(400).to_pandas()
    target = rows.columns[0]
    encoder = OneHotEncoder(handle_unknown="ignore")
    pipeline = make_pipeline(encoder, DecisionTreeClassifier(max_depth=3))
    features = rows.drop(columns=target).astype(str)
    assert len(pipeline.fit(features, rows[target].astype(str)).predict(features)) == 400


def test_all_tables_are_counted_in_a_few_scans(monkeypatch):
    """A hundred columns have 4,950 pairs: a scan for each took hours."""
    scans = []
    execute = DuckDB.execute

    def count(self, *query):
        scans.append(query)
        return execute(self, *query)

    monkeypatch.setattr(DuckDB, "execute", count)
    connection = duckdb.connect()
    listed = ", ".join(f"CAST(i * {place + 3} % 7 < 3 AS BOOLEAN) AS c{place}" for place in range(12))
    connection.execute(f"CREATE TABLE wide AS SELECT {listed} FROM range(300) r(i)")
    with hb.open(connection, table="wide", unit=hb.Unit.row()) as data:
        release = data.plan_synthesis(epsilon=1, delta=1e-6).run()
    assert len(release.value.model.measured) > 12
    assert len(scans) < 10


def test_pairs_of_very_many_categories_take_no_memory_for_those_without_rows():
    """The table of two columns of 50,000 categories would be 20 GB: it is merged before it is held."""
    connection = duckdb.connect()
    connection.execute("CREATE TABLE t AS SELECT 'a' || i % 9 AS a, 'b' || i % 7 AS b FROM range(3000) r(i)")
    keys = {name: [f"{name}{place}" for place in range(50_000)] for name in "ab"}
    with hb.open(connection, table="t", unit=hb.Unit.row(), keys=keys) as data:
        plan = data.plan_synthesis(epsilon=1, delta=1e-6)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        assert ("a", "b") in {
            tuple(plan.domain.names[v] for v in each.variables) for each in plan.run().value.model.measured
        }
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 1 << 20


def test_statements_of_scans_are_not_kept_in_memory():
    """Each has thousands of cuts where bins are found: of fifty columns, they were more than a gigabyte."""
    size = parse_template.cache_info().currsize
    connection = duckdb.connect()
    connection.execute("CREATE TABLE t AS SELECT i % 17 AS x, i % 13 AS y FROM range(50) r(i)")
    with hb.open(connection, table="t", unit=hb.Unit.row(), bounds={"x": (0, 16), "y": (0, 13)}) as data:
        data.plan_synthesis(epsilon=1, delta=1e-6).run()
    assert parse_template.cache_info().currsize == size


def test_the_label_of_rows_says_what_they_follow_and_how_well(synthesis, tmp_path):
    rows = synthesis.synthetic(2000)
    errors = rows.facts["rows in wrong cells of measured tables"]
    assert len(errors) == len(synthesis.model.measured)
    assert all(each.keys() == {"noise", "model", "rows"} for each in errors.values())
    assert errors["region"]["rows"] < 100
    assert rows.facts["columns"]["age"] > 2  # bins were found: the plan has one
    assert rows.facts["pairs that were not measured"] == []
    for ending in ("csv", "parquet", "json"):
        rows.write(tmp_path / f"rows.{ending}")
    synopsis = open_people().plan_synopsis(2, epsilon=1, delta=1e-6).run().value
    assert "region" in synopsis.synthetic(9).facts["follows the tables of"]
