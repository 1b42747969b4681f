"""Each answer says what its limits cut off; where a cap is declared, intervals cover the exact answer."""

import duckdb
import polars as pl
import pytest

import hubbub as hb


@pytest.fixture(scope="module")
def connection():
    database = duckdb.connect()
    database.execute(
        "CREATE TABLE t AS SELECT i // 5 AS who, 'g' || (i % 2) AS g, (i % 10) * 1.0 AS x "
        "FROM range(5000) r(i)"
    )
    return database


def open_data(connection, **options):
    return hb.open(connection, table="t", unit="who", bounds={"x": (0, 9)}, **options)


def test_a_cap_is_the_limit_and_the_interval_covers_the_exact_answer(connection):
    data = open_data(connection, max_rows_per_unit=5)
    plan = data.sql("SELECT COUNT(*) AS n FROM t WHERE x > 3", epsilon=1, confidence=1 - 1e-12)
    assert plan.split.limits == 0
    assert plan.contribution_bounds.rows == 5
    answers = plan.run().value
    assert answers.facts["interval covers"] == "the exact answer"
    assert "nothing is cut off, as is declared" in answers.facts["limits"]["rows"]
    [[exact]] = connection.execute("SELECT COUNT(*) FROM t WHERE x > 3").fetchall()
    assert answers["n_low"][0] <= exact <= answers["n_high"][0]


def test_values_are_still_clamped(connection):
    plan = open_data(connection, max_rows_per_unit=5).sql("SELECT AVG(x) AS a FROM t", epsilon=1)
    assert plan.label()["interval covers"] == "the exact answer, of values that are clamped to their bounds"


def test_a_smaller_limit_cuts_and_says_so(connection):
    data = open_data(connection, max_rows_per_unit=5)
    label = data.sql("SELECT COUNT(*) AS n FROM t", epsilon=1, rows_per_unit=2).label()
    assert label["limits"] == {"rows": "limit 2, declared; the part above it is cut off, and not measured"}
    assert label["interval covers"].endswith("what bounding changed is not measured")
    # A larger one than the cap is the cap.
    label = data.sql("SELECT COUNT(*) AS n FROM t", epsilon=1, rows_per_unit=50).label()
    assert label["rows per unit"] == 5


def test_where_a_join_may_make_more_rows_the_cap_says_nothing(connection):
    data = open_data(connection, max_rows_per_unit=5, public={"p": pl.DataFrame({"g": ["g0", "g0"]})})
    text = "SELECT COUNT(*) AS n FROM t JOIN p ON t.g = p.g"
    assert data.sql(text, epsilon=1).bounded.estimates_rows
    nested = "SELECT COUNT(*) AS n FROM (SELECT who FROM t WHERE x > 3) AS q"
    assert data.sql(nested, epsilon=1).contribution_bounds.rows == 5


def test_a_cap_is_declared_in_a_file(connection, tmp_path):
    connection.execute(f"COPY t TO '{tmp_path / 't.parquet'}'")
    (tmp_path / "hubbub.toml").write_text(
        'max_rows_per_unit = 5\n[tables.t]\npath = "t.parquet"\nunit = "who"\n', encoding="utf-8"
    )
    with hb.open(tmp_path / "t.parquet") as data:
        assert (
            data.sql("SELECT COUNT(*) AS n FROM t", epsilon=1).label()["interval covers"]
            == "the exact answer"
        )


def test_a_cap_that_is_wrong_protects_as_well(connection):
    """The noise is for the cap; units with more rows count as much as the cap."""
    data = open_data(connection, max_rows_per_unit=2)
    plan = data.sql("SELECT COUNT(*) AS n FROM t", epsilon=1)
    assert data.exact(plan)["n"] == [2000]


def test_a_declared_limit_has_an_estimate_where_limits_were_measured(connection):
    data = open_data(connection)
    data.limits(epsilon=5)
    label = data.sql("SELECT COUNT(*) AS n FROM t", epsilon=1, rows_per_unit=2).label()
    limit = label["limits"]["rows"]
    assert limit.startswith("limit 2, declared; an estimated ")
    assert 55 <= float(limit.split("estimated ")[1].split(" %")[0]) <= 65  # three of five rows


def test_a_declared_limit_on_groups_has_an_estimate_too(connection):
    data, keys = open_data(connection), {"g": ["g0", "g1"]}
    data.limits(epsilon=5, by=["g"], keys=keys)
    text = "SELECT g, COUNT(DISTINCT who) AS n FROM t GROUP BY g"
    label = data.sql(text, epsilon=1, keys=keys, groups_per_unit=1).run().value.facts
    limit = label["limits"]["groups"]
    assert limit.startswith("limit 1, declared; an estimated ")
    assert 45 <= float(limit.split("estimated ")[1].split(" %")[0]) <= 55  # one of two groups
    assert label["interval covers"].endswith("what bounding changed is only estimated")


def test_rows_that_are_units_have_nothing_to_cut(connection):
    data = hb.open(connection, table="t", unit=hb.Unit.row())
    label = data.sql("SELECT COUNT(*) AS n FROM t", epsilon=1).label()
    assert "limits" not in label
    assert label["interval covers"] == "the exact answer"


def test_a_limit_of_all_groups_cuts_nothing_and_costs_no_noise(connection):
    """A unit is in no more groups than there are, whatever limit on groups is declared or found."""
    data = open_data(connection)
    text = "SELECT g, COUNT(DISTINCT who) AS n FROM t GROUP BY g"
    keys = {"g": ["g0", "g1"]}
    two, nine = (data.sql(text, epsilon=1, keys=keys, groups_per_unit=each) for each in (2, 9))
    assert two.half_width(0) == nine.half_width(0)
    for plan in (two, nine):
        label = plan.label()
        assert label["limits"]["groups"].endswith("as is declared or as the query ensures")
        assert label["interval covers"] == "the exact answer"
    # Of one group there is nothing to find, and of two no more than two.
    assert data.sql(text, epsilon=1, keys={"g": ["g0"]}).split.limits == 0
    facts = data.sql(text, epsilon=5, keys=keys).run().value.facts
    assert facts["limits"]["groups"] == "limit 2, found; nothing is cut off, as there are no more groups"
    assert facts["interval covers"] == "the exact answer"
    measured = data.limits(epsilon=0.01, by=["g"], keys=keys).value
    assert measured["limit"][1] <= 2


def test_intervals_of_a_join_that_leaves_rows_out_may_miss_the_exact_answer():
    visits = pl.DataFrame({"who": [1] * 500, "visit": range(500)})
    late = pl.DataFrame({"who": [1] * 500, "visit": range(499, 999)})
    text = "SELECT COUNT(DISTINCT a.who) AS n FROM a JOIN b ON a.who = b.who AND a.visit = b.visit"
    plan = hb.open({"a": visits, "b": late}, unit="who").sql(text, epsilon=1)
    assert "before tables are joined a unit keeps at most" in str(plan)
    label = plan.label()
    assert label["interval covers"].startswith("the exact answer of the bounded query; what bounding changed")


def test_label_says_that_totals_of_units_are_clamped(connection):
    text = "SELECT SUM(x, contribution_bounds_per_group => (0, 6)) AS s FROM t"
    label = open_data(connection).sql(text, epsilon=1).label()
    assert label["interval covers"] == "the exact answer, of units' totals that are clamped to their bounds"
