"""Synopses through the public door: plan, charge, measure, ask, save."""

import itertools
import json
from fractions import Fraction

import duckdb
import numpy as np
import pandas as pd
import pytest

import hubbub as hb
from hubbub.errors import BudgetExceeded, EngineFailed, HubbubError, InvalidInput, Refused, Unsupported
from hubbub.synthesis.synopsis import Synopsis

ROWS = 6000
KEYS = {"sex": ["f", "m"], "region": ["N", "S", "W"]}
BOUNDS = {"age": (0, 89), "income": (0, 50000)}
OPTIONS = {"steps": {"age": 1}, "cuts": {"income": [1000, 10000, 20000]}, "epsilon": 1, "delta": 1e-6}
COLUMNS = ["sex", "region", "age", "income", "works"]
EXACT = 1e15
"""Below the limit of noise that is too small; answers are then exact to less than half a row."""


def make_connection(rows=ROWS):
    connection = duckdb.connect()
    connection.execute(
        "CREATE TABLE people AS SELECT i AS id, CASE WHEN i % 3 = 0 THEN 'f' ELSE 'm' END AS sex, "
        "['N', 'S', 'W'][1 + i // 7 % 3] AS region, (i * 7) % 90 AS age, (i % 1000) * 50.0 AS income, "
        f"i % 2 = 0 AS works FROM range({rows}) r(i)"
    )
    return connection


def open_people(connection=None, **options):
    source = connection or make_connection()
    return hb.open(
        source, **{"table": "people", "unit": hb.Unit.row(), "keys": KEYS, "bounds": BOUNDS, **options}
    )


@pytest.fixture(scope="module")
def precise():
    """A synopsis with noise far below one row: answers can be compared with exact ones."""
    connection = make_connection()
    data = open_people(connection)
    plan = data.plan_synopsis(2, **{**OPTIONS, "epsilon": 10**6}, columns=COLUMNS, allow_large_epsilon=True)
    return connection, plan.run().value


def test_texts_with_bounds_are_numbers_as_in_queries():
    connection = duckdb.connect()
    connection.execute(
        "CREATE TABLE people AS SELECT CASE WHEN i % 10 = 0 THEN 'old' ELSE (i % 90)::VARCHAR END AS age, "
        "['N', 'S', 'W'][1 + i % 3] AS region FROM range(9000) r(i)"
    )
    keys = {"region": ["N", "S", "W"]}
    with hb.open(connection, table="people", unit="row", keys=keys) as data:
        sql = "SELECT COUNT(*) AS n FROM people WHERE age >= 45"
        declared = {"bounds": {"age": (0, 89)}, "epsilon": 10**6, "delta": 1e-6, "allow_large_epsilon": True}
        synopsis = data.plan_synopsis(steps={"age": 1}, nulls=["age"], **declared).run().value
        [exact] = data.sql(sql, epsilon=20, bounds={"age": (0, 89)}).run().value["n"]
        assert synopsis.sql(sql)["n"][0] == pytest.approx(4100, abs=0.5)
        assert exact == pytest.approx(4100, abs=10)
        rows = data.plan_synthesis(**declared).run().value.synthetic(100)
        assert all(0 <= age <= 89 for age in rows["age"])


@pytest.mark.parametrize(
    "declared", [{"cuts": ["age"]}, {"cuts": {"age": 5}}, {"bounds": 5}, {"keys": ["sex"]}]
)
def test_declarations_that_are_no_mappings_are_refused(declared):
    with pytest.raises(InvalidInput, match=r"not a (mapping|list)"):
        open_people().plan_synopsis(2, epsilon=1, delta=1e-6, columns=COLUMNS, **declared)


QUERIES = [
    "SELECT COUNT(*) AS n FROM people",
    "SELECT sex, COUNT(*) AS n FROM people WHERE age >= 65 GROUP BY sex ORDER BY sex",
    "SELECT region, sex, COUNT(*) AS n FROM people GROUP BY region, sex ORDER BY region, sex",
    "SELECT FLOOR(age / 10) * 10 AS decade, COUNT(*) AS n FROM people GROUP BY decade ORDER BY decade",
    "SELECT works, COUNT(*) AS n FROM people WHERE income < 10000 GROUP BY works ORDER BY works",
    "SELECT SUM(CASE WHEN region = 'N' THEN 1 ELSE 0 END) AS n FROM people",
    "SELECT sex, COUNT(*) FILTER (WHERE age < 18) AS n FROM people GROUP BY sex ORDER BY sex",
    "SELECT COUNT(*) AS n FROM people WHERE NOT (age BETWEEN 10 AND 19 OR sex = 'f')",
    "SELECT COUNT(*) AS n FROM people WHERE region IN ('N', 'W') AND age <> 5",
    "SELECT CASE WHEN age < 18 THEN 'a' ELSE 'b' END AS g, COUNT(*) AS n FROM people GROUP BY g ORDER BY g",
    "SELECT sex, AVG(age) AS n FROM people GROUP BY sex ORDER BY sex",
    "SELECT sex, SUM(age) AS n FROM people WHERE age > 80 GROUP BY sex ORDER BY sex",
    "SELECT COUNT(*) FILTER (WHERE works) / COUNT(*) AS n FROM people",
    "SELECT region, COUNT(income) AS n FROM people GROUP BY region ORDER BY region",
]


@pytest.mark.sweep(5)
@pytest.mark.slow
@pytest.mark.parametrize("text", QUERIES)
def test_answers_are_those_of_the_same_query_on_the_rows(text, precise):
    connection, synopsis = precise
    result = synopsis.sql(text)
    rows = connection.execute(text).fetchall()
    assert len(result) == len(rows)
    for answer, row in zip(result, rows, strict=True):
        *keys, value = row
        # The noise of a cell is below 0.01; sums have at most 90 of them, weighted by 89.
        assert answer["n"] == pytest.approx(float(value), abs=0.5, rel=1e-3)
        assert answer["n_low"] <= answer["n"] <= answer["n_high"]
        assert [answer[column.name] for column in result.columns[:-1]] == keys


@pytest.mark.slow
def test_binned_column_is_grouped_by_the_start_of_its_bins(precise):
    result = precise[1].sql("SELECT income, COUNT(*) AS n FROM people GROUP BY income")
    assert result["income"] == [0.0, 1000.0, 10000.0, 20000.0]
    assert np.round(result["n"]).tolist() == [120.0, 1080.0, 1200.0, 3600.0]


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("SELECT COUNT(*) AS n FROM people WHERE income < 15000", "divides a bin"),
        ("SELECT COUNT(*) AS n FROM people WHERE income <= 10000", "divides a bin"),
        ("SELECT COUNT(*) AS n FROM people WHERE income % 2 = 0", "does more with income"),
        ("SELECT AVG(income) AS m FROM people", "values of a bin differ"),
        ("SELECT region, sex, age, COUNT(*) AS n FROM people GROUP BY region, sex, age", "not measured"),
        ("SELECT MEDIAN(age) AS m FROM people", "not an answer of a synopsis"),
        ("SELECT COUNT(*) AS n FROM people AS a JOIN people AS b ON a.age = b.age", "plain SELECT"),
        ("SELECT COUNT(*) AS n FROM (SELECT * FROM people) AS p", "plain SELECT"),
        ("SELECT 1 AS one", "plain SELECT"),
        ("SELECT COUNT(*) AS n FROM others", "others"),
        ("SELECT COUNT(*) AS n FROM people WHERE weight > 3", "use one of: age, income, region, sex, works"),
        ("SELECT COUNT(_row) AS n FROM people", "there is no column '_row'"),
        ("DELETE FROM people", "SELECT"),
    ],
)
def test_questions_that_it_cannot_answer_are_refused(text, error, precise):
    with pytest.raises((InvalidInput, Unsupported, Refused), match=error):
        precise[1].sql(text)


@pytest.mark.slow
def test_plan_states_errors_and_reads_nothing():
    data = open_people(budget=hb.Budget(1, 1e-6))
    plan = data.plan_synopsis(2, **OPTIONS, columns=COLUMNS)
    assert plan.loss.epsilon(1e-6) <= 1
    assert set(map(len, plan.errors)) == {1, 2}
    assert "root mean square error" in str(plan)
    plan.run()
    with pytest.raises(BudgetExceeded):
        plan.run()


def test_focus_and_rules_are_part_of_the_domain():
    plan = open_people().plan_synopsis(
        [("sex", "age")],
        **{**OPTIONS, "cuts": {}},
        columns=["sex", "age"],
        focus="sex",
        impossible=["age < 15 AND sex = 'm'"],
    )
    assert plan.domain.focus == "sex"
    assert plan.domain.mask(("sex", "age")).sum() == 2 * 90 - 15


@pytest.mark.slow
def test_saved_file_is_self_contained(precise, tmp_path):
    _, synopsis = precise
    path = tmp_path / "people.synopsis"
    synopsis.save(path)
    again = Synopsis.open(path)
    text = "SELECT sex, COUNT(*) AS n FROM people WHERE age >= 65 GROUP BY sex"
    assert again.sql(text).to_dict() == synopsis.sql(text).to_dict()
    assert again.facts == json.loads(json.dumps(dict(synopsis.facts)))
    assert again.report() == synopsis.report()
    with pytest.raises(HubbubError):
        synopsis.save(tmp_path / "people.csv")


@pytest.mark.parametrize(
    "text", ["", "{}", "[]", '{"format": "hubbub synopsis/2"}', '{"format": "hubbub synopsis/1"}']
)
def test_other_files_are_refused(text, tmp_path):
    path = tmp_path / "x.synopsis"
    path.write_text(text)
    with pytest.raises(InvalidInput):
        Synopsis.open(path)
    with pytest.raises(InvalidInput):
        Synopsis.open(tmp_path / "nothing.synopsis")


def test_damaged_numbers_are_refused(precise):
    stored = json.loads(precise[1].to_json())
    stored["measured"][-1][2] = stored["measured"][0][2]
    with pytest.raises(InvalidInput, match="not a stored synopsis"):
        Synopsis.from_json(json.dumps(stored))


def test_table_has_a_row_for_each_cell_and_versions(precise):
    synopsis = precise[1]
    table = synopsis.table("sex", "region")
    assert len(table) == 6
    assert table["sex"] == ["f"] * 3 + ["m"] * 3
    assert all(
        low <= n <= high for low, n, high in zip(table["n_low"], table["n"], table["n_high"], strict=True)
    )
    integers = synopsis.table("sex", "region", version="integer")
    assert sum(integers["n"]) == ROWS
    assert "n_low" not in integers.to_dict()
    with pytest.raises(InvalidInput):
        synopsis.table("sex", version="rounded")


def open_with_ledger(tmp_path, budget):
    options = {"ledger": tmp_path / "people.ledger", "budget": budget, "version": "1"}
    return open_people(make_connection(500), **options)


@pytest.mark.slow
def test_one_ledger_charge_has_one_outcome(tmp_path):
    with open_with_ledger(tmp_path, hb.Budget(1, 1e-6)) as data:
        plan = data.plan_synopsis(2, **OPTIONS, columns=["sex", "region", "works"])
        one = data.run_synopsis(plan).value
        two = data.run_synopsis(plan).value
        assert one.table("sex").to_dict() == two.table("sex").to_dict()
        assert one.facts["entry"] == two.facts["entry"]
        other = data.plan_synopsis(1, **OPTIONS, columns=["sex", "region", "works"])
        assert other.fingerprint(None) != plan.fingerprint(None)
        with pytest.raises(BudgetExceeded):
            other.run()


@pytest.mark.slow
def test_failure_after_the_charge_is_the_stored_outcome(tmp_path, monkeypatch):
    with open_with_ledger(tmp_path, hb.Budget(5, 1e-4)) as data:
        plan = data.plan_synopsis(1, **OPTIONS, columns=["sex", "works"])
        with monkeypatch.context() as patch:
            patch.setattr(type(plan.counts), "count_many", lambda *_: 1 / 0)
            with pytest.raises(EngineFailed):
                data.run_synopsis(plan)
        with pytest.raises(EngineFailed):
            data.run_synopsis(plan)
        assert data.run_synopsis(plan, again=True).value.table("sex")["n"]


@pytest.mark.sweep(7)
@pytest.mark.slow
@pytest.mark.parametrize(
    "changes",
    [
        {"columns": ["sex", "name"]},
        {"columns": None},
        {"epsilon": 0},
        {"epsilon": float("nan")},
        {"delta": -1e-6},
        {"delta": 0.5},
        {"epsilon": 1000},
        {"workload": []},
        {"workload": [("sex", "nobody")]},
        {"workload": 9},
        {"objective": "median"},
        {"focus": "nobody"},
        {"nulls": ["nobody"]},
        {"other": ["age"]},
        {"cuts": {"sex": [1]}},
        {"steps": {"age": 0}},
        {"impossible": ["age < 15 OR sex = 'm'"]},
        {"impossible": ["age <"]},
        {"impossible": ["sex IN ('f', 'm')"]},
        {"functions": {"sex": {"of": "region", "table": {"N": "f"}}}},
        {"functions": {"sex": {"of": "age", "table": {}}}},
        {"table": "others"},
    ],
)
def test_unusable_declarations_are_refused_before_anything_is_charged(changes):
    data = open_people(budget=hb.Budget(1, 1e-6))
    options = {**OPTIONS, "columns": COLUMNS, **changes}
    with pytest.raises(HubbubError):
        data.plan_synopsis(options.pop("workload", 2), **options)
    data.plan_synopsis(1, **OPTIONS, columns=["sex"]).run()  # the budget is untouched


def test_bounds_beyond_the_numbers_of_tables_are_refused():
    """Numbers of tables are read as at most 2^200: beyond it, rows would be in a wrong bin."""
    data = open_people(bounds={"income": (0, 2**200)})
    data.plan_synopsis(1, columns=["income"], cuts={"income": [2**199]}, epsilon=1, delta=1e-6)
    for bounds, cuts in [((0, 2**201), None), ((-(2**300), 0), None), ((0, 2**201), [2**200])]:
        data = open_people(bounds={"income": bounds})
        with pytest.raises(InvalidInput, match="beyond ±2"):
            data.plan_synopsis(
                1, columns=["income"], cuts={} if cuts is None else {"income": cuts}, epsilon=1, delta=1e-6
            )
        with pytest.raises(InvalidInput, match="beyond ±2"):
            data.plan_synthesis(columns=["income"], epsilon=1, delta=1e-6)


@pytest.mark.slow
def test_units_with_several_rows_need_a_limit():
    data = open_people(unit="id")
    with pytest.raises(InvalidInput, match="rows per unit"):
        data.plan_synopsis(1, **OPTIONS, columns=["sex"])
    plan = data.plan_synopsis(1, **OPTIONS, columns=["sex"], rows_per_unit=2)
    single = open_people().plan_synopsis(1, **OPTIONS, columns=["sex"])
    assert plan.errors[("sex",)] == pytest.approx(2 * single.errors[("sex",)])
    assert plan.run().value.measured.total[0] == pytest.approx(ROWS, abs=1000)  # σ is about 30


@pytest.mark.slow
@pytest.mark.parametrize("rows", [0, 1])
def test_empty_and_one_row_tables_are_measured_like_any_other(rows):
    synopsis = open_people(make_connection(rows)).plan_synopsis(2, **OPTIONS, columns=COLUMNS).run().value
    assert abs(synopsis.measured.total[0]) < 1000
    assert len(synopsis.table("sex", "works", version="integer")) == 4


def test_one_column_of_one_category():
    data = open_people(keys={"sex": ["f"]})
    synopsis = data.plan_synopsis(2, **{**OPTIONS, "cuts": {}, "steps": {}}, columns=["sex"]).run().value
    assert synopsis.table("sex")["n"][0] == pytest.approx(ROWS / 3, abs=500)


def test_plan_of_another_dataset_is_refused():
    plan = open_people().plan_synopsis(1, **OPTIONS, columns=["sex"])
    with pytest.raises(InvalidInput, match="another dataset"):
        open_people().run_synopsis(plan)


def test_functions_are_declared_as_tables():
    functions = {"sex": {"of": "region", "table": {"N": "f", "S": "m", "W": "m"}}}
    plan = open_people().plan_synopsis(
        2, **{**OPTIONS, "cuts": {}, "steps": {}}, columns=["sex", "region"], functions=functions
    )
    assert plan.domain.mask(("region", "sex")).tolist() == [[True, False], [False, True], [False, True]]
    assert plan.domain.functions[0].table == (0, 1, 1)
    assert Fraction(1) >= sum(plan.noise.shares.values())


@pytest.mark.slow
def test_many_columns_are_counted_in_stages():
    count = 60
    connection = duckdb.connect()
    listed = ", ".join(f"(i * {2 * place + 1} // 7) % 3 AS c{place}" for place in range(count))
    connection.execute(f"CREATE TABLE people AS SELECT {listed} FROM range(200) r(i)")
    data = open_people(connection, keys={f"c{place}": [0, 1, 2] for place in range(count)}, bounds={})
    plan = data.plan_synopsis(1, epsilon=10**6, delta=1e-6, allow_large_epsilon=True)
    synopsis = plan.run().value
    for place in (0, 30, 59):
        text = f"SELECT c{place}, COUNT(*) AS n FROM people GROUP BY c{place} ORDER BY c{place}"
        rows = connection.execute(text).fetchall()
        assert np.round(synopsis.sql(text)["n"]).tolist() == [float(n) for _, n in rows]


@pytest.mark.slow
def test_nulls_and_other_categories_have_cells_where_declared():
    connection = duckdb.connect()
    connection.execute(
        "CREATE TABLE people AS SELECT ['a', 'b', NULL, 'rare'][1 + i % 4] AS x FROM range(400) r(i)"
    )
    data = open_people(connection, keys={"x": ["a", "b"]}, bounds={})
    options = {"epsilon": 10**6, "delta": 1e-6, "allow_large_epsilon": True}
    some = data.plan_synopsis(1, **options).run().value
    assert round(some.measured.total[0]) == 200
    every = data.plan_synopsis(1, **options, nulls=["x"], other=["x"]).run().value
    assert every.table("x")["x"] == ["a", "b", "other", "NULL"]
    assert np.round(every.table("x")["n"]).tolist() == [100.0] * 4
    assert np.round(every.sql("SELECT COUNT(*) AS n FROM people WHERE x IS NULL")["n"]).tolist() == [100.0]
    assert np.round(every.sql("SELECT COUNT(*) AS n FROM people WHERE x <> 'a'")["n"]).tolist() == [200.0]
    with pytest.raises(InvalidInput, match="not a declared category"):
        every.sql("SELECT COUNT(*) AS n FROM people WHERE x = 'rare'")


@pytest.mark.slow
def test_columns_may_have_the_names_of_answers():
    connection = duckdb.connect()
    connection.execute(
        "CREATE TABLE people AS SELECT i % 2 AS n, i % 3 AS n_low, i % 2 AS sd FROM range(90) r(i)"
    )
    data = open_people(connection, keys={"n": [0, 1], "n_low": [0, 1, 2], "sd": [0, 1]}, bounds={})
    synopsis = data.plan_synopsis(2, epsilon=1, delta=1e-6).run().value
    assert list(synopsis.table("n", "sd").to_dict()) == ["n", "sd", "_n", "_n_low", "_n_high", "_sd"]
    assert len(synopsis.sql("SELECT n, COUNT(*) AS c FROM people GROUP BY n")) == 2


@pytest.mark.slow
@pytest.mark.parametrize("name", ["_row", "number", "Number", "m0", "k0"])
def test_columns_may_have_any_name(name):
    connection = duckdb.connect()
    connection.execute(f'CREATE TABLE people AS SELECT i % 2 AS "{name}", i % 3 AS age FROM range(90) r(i)')
    data = open_people(connection, keys={name: [0, 1], "age": [0, 1, 2]}, bounds={})
    synopsis = data.plan_synopsis(2, epsilon=10**5, delta=1e-6, allow_large_epsilon=True).run().value
    answer = synopsis.sql(f'SELECT "{name}" AS x, COUNT(*) AS n FROM people WHERE age < 2 GROUP BY "{name}"')
    table = answer.to_dict()
    assert table["x"] == [0, 1]
    assert [round(each) for each in table["n"]] == [30, 30]


@pytest.mark.slow
def test_consistent_tables_are_whole_and_agree_with_each_other():
    data = open_people()
    synopsis = data.plan_synopsis(2, **OPTIONS, columns=COLUMNS).run().value
    sizes = {name: synopsis.domain.column(name).size for name in synopsis.domain.names}
    totals = set()
    for one, two in itertools.combinations(synopsis.domain.names, 2):
        pair = synopsis.table(one, two, version="consistent").to_pandas()["n"].to_numpy()
        assert (pair >= 0).all()
        assert (pair == pair.round()).all()
        pair = pair.reshape(sizes[one], sizes[two])
        for name, axis in ((one, 1), (two, 0)):
            assert (
                pair.sum(axis).tolist()
                == synopsis.table(name, version="consistent").to_pandas()["n"].tolist()
            )
        totals.add(pair.sum())
        assert not pair[~synopsis.domain.mask((one, two))].any()
    assert totals == {float(round(synopsis.measured.total[0]))}


@pytest.mark.slow
def test_consistent_tables_are_close_to_the_measured_ones():
    rows = 20_000
    frame = pd.DataFrame({"a": [n % 3 for n in range(rows)], "b": [n % 3 * n % 2 for n in range(rows)]})
    frame["c"] = (frame.a + frame.b * (frame.index % 5)) % 4
    keys = {name: sorted(set(frame[name].tolist())) for name in frame}
    with hb.open(frame, table="t", unit=hb.Unit.row(), keys=keys) as data:
        synopsis = data.plan_synopsis(2, epsilon=2, delta=1e-6).run().value
    for names in (("a", "b"), ("a", "c"), ("b", "c")):
        whole = synopsis.table(*names, version="consistent").to_pandas()["n"]
        unbiased = synopsis.table(*names).to_pandas()
        assert ((whole - unbiased["n"]).abs() < 8 * unbiased["sd"] + 5).all()
    with pytest.raises(InvalidInput):
        synopsis.table("a", "b", "c", version="consistent")


def test_slips_are_refused_where_they_were_other_errors():
    data = open_people()
    for declared in (
        {"impossible": ["age < 1e400"]},
        {"functions": {"region": 5}},
        {"functions": {"region": {"table": {}}}},
        {"workload": "age"},
        {"workload": 1.5},
    ):
        with pytest.raises(InvalidInput):
            data.plan_synopsis(**OPTIONS, **{"columns": ["sex", "region", "age"], **declared})
    synopsis = data.plan_synopsis(1, **OPTIONS, columns=["sex", "age"]).run().value
    for names in ((), ("age", "age"), ("age", "AGE")):
        with pytest.raises(InvalidInput, match="no column, or of one column twice"):
            synopsis.table(*names)
    with pytest.raises(InvalidInput, match="not a column"):
        synopsis.table(5)


def test_columns_of_tables_are_named_in_any_case():
    synopsis = open_people().plan_synopsis(1, **OPTIONS, columns=["sex", "age"]).run().value
    assert synopsis.table("AGE").to_dict() == synopsis.table("age").to_dict()


def test_table_is_drawn_by_its_columns_and_not_by_its_errors(precise, tmp_path):
    path = tmp_path / "table.html"
    precise[1].table("region", "sex").write(str(path))
    page = path.read_text(encoding="utf-8")
    assert "n by region, sex<" in page
    assert "sd</th>" in page


def test_no_two_cells_have_the_same_name():
    connection = duckdb.connect()
    connection.execute(
        "CREATE TABLE t AS SELECT ['other', 'NULL', 'x', NULL][1 + i % 4] AS town, "
        "1000001 + i % 3 AS code, 10000000 + i % 4 AS cost FROM range(400) r(i)"
    )
    keys = {"town": ["other", "NULL"], "code": [1000001, 1000002, 1000003]}
    data = open_people(connection, table="t", keys=keys, bounds={"cost": (10000000, 10000003)})
    declared = {"nulls": ["town"], "other": ["town"], "steps": {"cost": 1}}
    plan = data.plan_synopsis(1, epsilon=EXACT, delta=1e-6, allow_large_epsilon=True, **declared)
    synopsis = plan.run().value
    assert synopsis.table("town")["town"] == ["other", "NULL", "(other)", "(NULL)"]
    assert synopsis.table("code")["code"] == ["1000001", "1000002", "1000003"]
    assert synopsis.table("cost")["cost"] == ["10000000", "10000001", "10000002", "10000003"]
    rows = synopsis.synthetic(400)["town"]
    assert {value: rows.count(value) for value in set(rows)} == dict.fromkeys(
        ["other", "NULL", "(other)", None], 100
    )
