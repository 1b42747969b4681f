"""What a query releases, in the forms that people work with."""

import json
from datetime import date, datetime

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyarrow import parquet

import hubbub as hb
from hubbub.engines.schema import Kind
from hubbub.errors import InvalidInput
from hubbub.sql.post_processing import ResultColumn
from hubbub.sql.result import Result


@pytest.fixture(scope="module")
def release():
    connection = duckdb.connect()
    connection.execute(
        "CREATE TABLE t AS SELECT i AS who, ['a', '<b>'][1 + i % 2] AS g, i % 7 AS x FROM range(900) r(i)"
    )
    data = hb.open(
        connection, table="t", unit="who", keys={"g": ["a", "<b>"]}, bounds={"x": (0, 6)}, rows_per_unit=1
    )
    return data.sql("SELECT g, COUNT(*) AS n, AVG(x) AS mean FROM t GROUP BY g", epsilon=10).run()


def columns(*values):
    return Result(tuple(values), {"confidence": 0.95})


def objects(*values):
    out = np.empty(len(values), dtype=object)
    out[:] = values
    return out


MIXED = columns(
    ResultColumn(
        "key", objects("a", None, date(2024, 2, 29), datetime.fromisoformat("2024-02-29T12:30"), True, 2.5)
    ),
    ResultColumn(
        "n",
        np.array([1.0, -2.0, np.nan, 4.0, 5.0, 6.0]),
        np.full(6, -np.inf),
        np.array([2.0, 3, 4, 5, 6, np.inf]),
    ),
)


def test_result_is_iterable_by_columns_and_rows(release):
    table = release.value.to_dict()
    assert list(table) == ["g", "n", "n_low", "n_high", "mean", "mean_low", "mean_high"]
    assert len(release.value) == 2
    assert [row["g"] for row in release.value] == ["a", "<b>"]
    assert release.value["n"] == table["n"]


def test_pandas_polars_and_arrow_get_the_same(release):
    table = release.value.to_dict()
    assert release.to_pandas().to_dict("list") == table
    assert release.to_polars().to_dict(as_series=False) == table
    assert release.to_arrow().to_pydict() == table
    assert pa.table(release).to_pydict() == table  # through Arrow's own door
    assert pa.table(release.value).to_pydict() == table


def test_parquet_and_csv_hold_the_same(release, tmp_path):
    release.value.write(tmp_path / "it's.parquet")
    rows = duckdb.connect().execute("SELECT * FROM read_parquet($p)", {"p": str(tmp_path / "it's.parquet")})
    assert rows.fetchnumpy()["n"].tolist() == release.value["n"]
    lines = release.value.to_csv().splitlines()
    assert lines[0] == "g,n,n_low,n_high,mean,mean_low,mean_high"
    assert len(lines) == 3


TYPED = """
    SELECT year, g AS text, b AS truth, d AS day, m AS moment, NULLIF(year, year) AS no_number,
        NULLIF(g, g) AS no_text, NULLIF(b, b) AS no_truth, NULLIF(d, d) AS no_day, NULLIF(m, m) AS no_moment,
        SUM(x) / NULLIF(year, year) AS no_value, COUNT(*) AS n
    FROM t GROUP BY year, g, b, d, m
"""
KINDS = ["number", "text", "truth", "day", "moment"]


@pytest.fixture(scope="module")
def typed():
    """Answers of every kind, beside columns of the same kind that are NULL in all rows, or with no rows."""
    frame = pd.DataFrame({"who": range(90), "year": 2024, "g": "a", "b": True, "x": 1.0})
    frame["d"], frame["m"] = date(2024, 2, 29), pd.Timestamp("2024-02-29 12:30")
    table = pa.Table.from_pandas(frame, preserve_index=False)
    keys = {"year": [2024], "g": ["a"], "d": [date(2024, 2, 29)], "m": [datetime(2024, 2, 29, 12, 30)]}  # noqa: DTZ001
    data = hb.open(table, table="t", unit="who", keys=keys, bounds={"x": (0, 1)}, rows_per_unit=1)

    def ask(more=""):
        return data.sql(TYPED + more, epsilon=10).run().value

    return ask


def schemas(answers, path):
    """The types of the columns, in every form that has some."""
    answers.write(path)
    return [
        answers.to_arrow().schema.remove_metadata(),
        pa.table(answers).schema.remove_metadata(),
        parquet.read_schema(path).remove_metadata(),
        answers.to_polars().schema,
        answers.to_pandas().dtypes.to_dict(),
    ]


@pytest.mark.slow
def test_types_follow_from_the_plan_alone(typed, tmp_path):
    full, empty = typed(), typed(" HAVING FALSE")
    assert len(full) == 3  # true, false and NULL
    assert len(empty) == 0
    result = schemas(full, tmp_path / "full.parquet")
    for answers in (empty, Result.from_json(full.to_json()), Result.from_json(empty.to_json())):
        assert schemas(answers, tmp_path / "other.parquet") == result
    for schema in result[:3]:
        assert schema.field("no_value").type == schema.field("no_value_low").type == pa.float64()
        for name, kind in zip(["year", *KINDS[1:]], KINDS, strict=True):
            assert schema.field(name).type == schema.field(f"no_{kind}").type != pa.null()
    for types in result[3:]:
        for name, kind in zip(["year", *KINDS[1:]], KINDS, strict=True):
            assert types[name] == types[f"no_{kind}"]


def test_whole_numbers_that_are_keys_have_no_point(typed, tmp_path):
    answers = typed()
    row = dict(zip(*(line.split(",") for line in answers.to_csv().splitlines()[:2]), strict=True))
    assert row["year"] == "2024"
    assert '"values": [2024, 2024, 2024]' in answers.to_json()
    again = Result.from_json(answers.to_json())
    assert (
        [type(value) for value in again["year"]] == [type(value) for value in answers["year"]] == [float] * 3
    )
    assert str(answers).splitlines()[1].startswith("2024 ")


def test_large_and_fractional_keys_are_written_exactly():
    for value in (2.0**53, 1e200, -1e200, 0.5):
        answers = columns(ResultColumn("key", objects(value), kind=Kind.NUMBER))
        assert answers.to_csv() == f"key\n{value!r}\n"
        assert Result.from_json(answers.to_json())["key"] == [value]


@pytest.mark.parametrize("column", ["release", "mixed"])
def test_json_round_trips(column, release):
    answers = MIXED if column == "mixed" else release.value
    again = Result.from_json(answers.to_json())
    assert again.to_json() == answers.to_json()
    for one, two in zip(again.columns, answers.columns, strict=True):
        assert one.name == two.name
        assert [str(value) for value in one.values] == [str(value) for value in two.values]
    json.loads(answers.to_json(), parse_constant=lambda _: pytest.fail("JSON has no NaN"))


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", '{"format": "other", "columns": [], "label": {}}', '{"format": "hubbub result/1"}'],
)
def test_foreign_json_is_refused(text):
    with pytest.raises(InvalidInput, match="stored table"):
        Result.from_json(text)


def test_html_and_pictures_escape_what_they_show(release):
    page = release._repr_html_()
    assert "&lt;b&gt;" in page
    assert "<b>" not in page
    picture = release.svg("n")
    assert picture.startswith("<svg")
    assert "&lt;b&gt;" in picture
    assert picture.count('class="whisker"') == 2
    with pytest.raises(InvalidInput, match="no such column"):
        release.svg("g")


def test_every_result_can_be_drawn():
    assert MIXED.svg().startswith("<svg")
    assert columns(ResultColumn("n", np.array([]), np.array([]), np.array([]))).svg().startswith("<svg")


def test_text_shows_significant_digits_only(release):
    assert str(release.value).splitlines()[0].split("  ")[::2][:1] == ["g"]
    assert "∞" in str(MIXED)
    wide = columns(ResultColumn("n", np.array([1234.5678]), np.array([1000.0]), np.array([1500.0])))
    assert "1,235  1,000 … 1,500" in str(wide)
    assert "Result(1 row of n)" in repr(wide)


def test_post_processing_keeps_the_guarantee(release):
    doubled = release.map(lambda answers: [2 * n for n in answers["n"]])
    assert doubled.loss == release.loss
    with pytest.raises(InvalidInput, match="not a table"):
        doubled.to_pandas()
    assert doubled._repr_html_() is None


def test_the_label_says_what_was_protected_and_how(release):
    label = release.label()
    assert label["unit"] == "who"
    assert label["epsilon"] == "10"
    assert label["mechanism"] == "Laplace"
    assert label["sensitivity"] == "derived by a rule"
    assert "not measured" in label["interval covers"]
    asserted = hb.Laplace.of(sensitivity=1, epsilon=1).release(3).label()
    assert asserted["sensitivity"] == "user-asserted"
