"""What fuzzing and attacks have found in the front end: each stays found."""

import duckdb
import pandas as pd
import pytest
from sqlglot import exp

import hubbub as hb
from internals import engine_of

MADE = "CREATE TABLE visits (patient BIGINT, region VARCHAR, cost DOUBLE, day DATE, note VARCHAR, ok BOOLEAN)"
ROWS = [
    (1, "a", 1.0, "2024-01-01", "x", True),
    (2, "b", 2.0, None, "12", False),
    (2, "a", 3.0, None, None, None),
]


def open_data(rows=ROWS, unit="patient", **keywords):
    connection = duckdb.connect(config={"threads": 1})
    connection.execute(MADE)
    connection.executemany("INSERT INTO visits VALUES (?, ?, ?, ?, ?, ?)", rows)
    options = {"keys": {"region": ["a", "b"]}, "bounds": {"cost": (0, 10)}, "rows_per_unit": 2, **keywords}
    return hb.open(connection, table="visits", unit=unit, **options)


def integers(data, text, **options):
    """The exact integers of a query, and what it claims."""
    plan = data.sql(text, **{"epsilon": 1, **options})
    return [engine_of(data).execute(m.sql, m.key_sets) for m in plan.bounded.bounded_aggregates]


# Privacy: one person would have moved more than was claimed, or have shown in an error.


def test_a_row_that_is_a_unit_comes_in_once():
    """A named sub-query used twice doubled every row, and the claim stayed one."""
    data = open_data(unit=hb.Unit.row())
    both = "SELECT cost FROM c UNION ALL SELECT cost FROM c"
    twice = f"WITH c AS (SELECT cost FROM visits) SELECT COUNT(*) FROM ({both}) AS u"
    with pytest.raises(hb.Refused, match="more than once"):
        data.sql(twice, epsilon=1)
    chained = "WITH c AS (SELECT cost FROM visits), d AS (SELECT cost FROM c) SELECT COUNT(*) FROM d"
    assert integers(data, chained)[0]["m0"].tolist() == [3]


def test_rows_that_are_units_are_numbered_once():
    """Read twice, they could be numbered in two ways, and a row be weighed as another."""
    data = hb.open(
        pd.DataFrame({"g": [1, 1, 2]}),
        unit=hb.Unit.row(),
        public={"p": pd.DataFrame({"g": [1, 1]})},
        rows_per_unit=1,
    )
    plan = data.sql("SELECT COUNT(*) FROM data JOIN p ON data.g = p.g", epsilon=1)
    rows = next(
        cte for cte in plan.bounded.bounded_aggregates[0].sql.find_all(exp.CTE) if cte.find(exp.RowNumber)
    )
    assert rows.args["materialized"]
    assert integers(data, plan.query.text)[0]["m0"].tolist() == [2 << 16]


def test_sign_returns_a_double():
    """The engine's are of 8 bits, and seven of them multiplied raised an error."""
    two = "(SIGN(cost) + SIGN(cost))"
    assert integers(open_data(), f"SELECT COUNT({' * '.join([two] * 8)}) FROM visits")[0]["m0"].tolist() == [
        3 << 16
    ]


EXTREME = ["5877642-06-25 (BC)", "5881580-07-10", "10000-01-01", "0001-01-01 (BC)", "infinity", "-infinity"]


@pytest.mark.sweep(7)
@pytest.mark.parametrize("day", EXTREME)
@pytest.mark.parametrize(
    "text",
    [
        "SELECT day, COUNT(*) FROM visits GROUP BY day",
        "SELECT CAST(note AS DATE) AS k, COUNT(*) FROM visits GROUP BY k",
        "SELECT CAST(note AS TIMESTAMP) AS k, COUNT(*) FROM visits GROUP BY k",
        "SELECT COUNT(DATE_TRUNC('year', day)) FROM visits",
        "SELECT COUNT(DATE_TRUNC('week', CAST(note AS DATE))) FROM visits",
        "SELECT COUNT(EXTRACT(hour FROM day)) FROM visits",
    ],
)
def test_extreme_dates_are_null(day, text):
    """Functions of them raised errors, and as keys they could not be read."""
    result = integers(open_data([(1, "a", 1.0, day, day, True)]), text, delta=1e-6)[0]
    assert result.get("k0", [None]) == [None]


@pytest.mark.slow
def test_sums_of_one_unit_do_not_depend_on_the_order_of_rows():
    """The order of rows follows from who else is there."""
    rows = [(1, "a", cost, None, None, None) for cost in (2.0**53, 1.0, -(2.0**53), 1.0)]
    own = "SELECT SUM(cost) FROM (SELECT patient, {}(cost) AS cost FROM visits GROUP BY patient) AS u"
    for text in (
        own.format("SUM"),
        own.format("AVG"),
        "SELECT hubbub_per_group(SUM(cost), 0, 10) FROM visits",
    ):
        results = [
            integers(open_data(each), text, bounds={"cost": (0, 10)})
            for each in (rows, rows[::-1], rows[1:] + rows[:1])
        ]
        assert len({int(each[0]["m0"][0]) for each in results}) == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    "bounds",
    [
        (2**500 + 2**447 - 1, 2**500 + 2**447 + 1),
        (0, 1e-310),
        (1e15, 1e15 + 0.001),
    ],
)
def test_bounds_indistinguishable_as_doubles_are_refused(bounds):
    """Scaled by such a width, a value beyond the bounds overflowed: an error in that row alone."""
    with pytest.raises(hb.InvalidInput, match="bounds"):
        open_data().sql("SELECT SUM(cost) FROM visits", epsilon=1, bounds={"cost": bounds})


@pytest.mark.parametrize("values", [[1, 2, 3], [1, None, "x"], [b"\xff", 1, 2]])
def test_column_of_objects_is_text(values):
    """The type was read off the first thousand rows."""
    data = hb.open(pd.DataFrame({"patient": [1, 2, 3], "o": pd.Series(values, dtype=object)}), unit="patient")
    assert data.tables["data"].find("o").kind.value == "text"


def rows_counted(path, raw, **options):
    path.write_bytes(raw)
    data = hb.open(path, unit="patient", rows_per_unit=1, **options)
    return int(integers(data, f"SELECT COUNT(*) FROM {path.stem}")[0]["m0"][0]) >> 16


LINES = [b"patient,note", *(b"%d,n%d" % (i, i) for i in range(50))]
HOSTILE_LINES = {
    "not UTF-8": b"900,\xff\xfe", "zero": b"900,\0", "many columns": b"900,1,2,3,4", "no columns": b"900",
    "quote": b'900,a"b', "quote behind a closed one": b'900,"a"b"', "returns": b"900,a\r\r",
}  # fmt: skip


@pytest.mark.sweep(5)
@pytest.mark.parametrize("line", HOSTILE_LINES.values(), ids=HOSTILE_LINES)
@pytest.mark.parametrize("quotes", [True, False])
def test_every_csv_line_affects_only_its_own_row(line, quotes, tmp_path):
    """One that was no UTF-8 made the header unreadable, for it was read along with it."""
    lines = [*LINES[:20], line, *LINES[20:]]
    assert rows_counted(tmp_path / "t.csv", b"\n".join(lines) + b"\n", quotes=quotes) == 51


@pytest.mark.parametrize("line", [b'900,"oops', b'900x",,"'])
def test_unclosed_quote_is_harmless_without_quotes(line, tmp_path):
    """Rows are as the parser reads them; where others write lines, quotes=False keeps each of them a row."""
    raw = b"\n".join([*LINES[:20], line, *LINES[20:]]) + b"\n"
    assert rows_counted(tmp_path / "t.csv", raw) < 51
    assert rows_counted(tmp_path / "t.csv", raw, quotes=False) == 51


# Refusals that came too late, or not as one of ours


@pytest.mark.sweep(5)
@pytest.mark.parametrize(
    "text",
    [
        "SELECT SUM(patient) FROM visits",
        "SELECT CORR(cost, cost) FROM visits",
        "SELECT SUM(cost * 1e300 * 1e300) FROM visits",
        "SELECT hubbub_per_group() FROM visits",
        "SELECT hubbub_per_group(COUNT(*), 1) FROM visits",
        "SELECT hubbub_per_group(COUNT(*), 1, region) FROM visits",
        "SELECT ROUND(COUNT(*), 1.5) FROM visits",
        "SELECT ROUND(COUNT(*), 'a') FROM visits",
        "SELECT ROUND(COUNT(*), 9007199254740993) FROM visits",
        "SELECT COUNT() FROM visits",
        "SELECT COUNT(*) FROM visits HAVING COUNT(*) > 1e-0.03",
        "SELECT COUNT(cost, region) FROM visits",
        "SELECT COUNT(*) FROM visits LIMIT ²",
        "SELECT SUM(cost) FROM visits AS v(cost, patient)",
        "WITH c(a, b) AS (SELECT cost FROM visits) SELECT COUNT(*) FROM c",
        "SELECT region + 1, COUNT(*) FROM visits GROUP BY region",
    ],
)
def test_invalid_queries_are_refused_before_the_charge(text):
    with pytest.raises(hb.HubbubError):
        open_data().sql(text, epsilon=1)


@pytest.mark.parametrize(
    ("limit", "match"), [("0", "leaves no row"), ("1.5", "not a whole"), ("'1'", "not a whole")]
)
def test_refused_limit_is_named(limit, match):
    with pytest.raises(hb.InvalidInput, match=match):
        open_data().sql(f"SELECT COUNT(*) FROM visits LIMIT {limit}", epsilon=1)


def nested(inner, outer, depth):
    for _ in range(depth):
        inner = outer.format(inner)
    return inner


@pytest.mark.sweep(5)
@pytest.mark.parametrize(
    "text",
    [
        f"SELECT COUNT({nested('cost', 'LEAST({}, 1)', 40)}) FROM visits",
        f"SELECT COUNT({nested('cost', 'SQRT({})', 60)}) FROM visits",
        f"SELECT COUNT({nested('cost', 'POWER({}, 2)', 60)}) FROM visits",
        f"SELECT COUNT(*) FROM visits WHERE {nested('ok', '({} BETWEEN FALSE AND TRUE)', 40)}",
        "SELECT COUNT(*) AS a0, " + ", ".join(f"a{i} + a{i} AS a{i + 1}" for i in range(40)) + " FROM visits",
        "WITH c0 AS (SELECT patient FROM visits), "
        + ", ".join(
            f"c{i + 1} AS (SELECT patient FROM c{i} UNION ALL SELECT patient FROM c{i})" for i in range(40)
        )
        + " SELECT COUNT(*) FROM c40",
        f"SELECT COUNT(*) FROM visits WHERE {'(' * 3000}ok{')' * 3000}",
        f"SELECT COUNT(*) FROM visits WHERE {'NOT ' * 3000}ok",
    ],
    ids=["least", "sqrt", "power", "between", "aliases", "sub-queries", "parentheses", "not"],
)
def test_unbounded_growth_is_refused(text):
    with pytest.raises(hb.HubbubError):
        open_data().sql(text, epsilon=1)


@pytest.mark.slow
def test_means_work_with_limited_groups_and_selected_keys():
    """Neither could be run at all."""
    by_groups = integers(
        open_data(), "SELECT region, AVG(cost) FROM visits GROUP BY region", groups_per_unit=1
    )[0]
    assert len(by_groups["m0"]) == 2
    assert (
        len(integers(open_data(), "SELECT note, AVG(cost) FROM visits GROUP BY note", delta=1e-6)[0]["m0"])
        == 3
    )


@pytest.mark.slow
def test_quantiles_of_no_groups_are_empty():
    """Where no key is selected there is nothing to put together."""
    plan = open_data().sql(
        "SELECT note, MEDIAN(cost) AS m FROM visits GROUP BY note", epsilon=0.01, delta=1e-9
    )
    assert len(plan.run().value) == 0


def test_outputs_may_compute_with_selected_keys():
    assert open_data().sql("SELECT cost * 2 AS c, COUNT(*) FROM visits GROUP BY cost", epsilon=1, delta=1e-6)
