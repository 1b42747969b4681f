"""Row-level expressions: every function on the list is total on extreme rows, and of its own row alone."""

import random
from datetime import date, datetime

import duckdb
import pytest
import sqlglot
from sqlglot import exp

import hubbub as hb
from hubbub.engines.duckdb import DuckDB
from hubbub.engines.engine import TableSource
from hubbub.errors import InvalidInput, Unsupported
from hubbub.sql.row_expressions import compile_expression
from hubbub.sql.typed_expressions import Scope
from internals import EXPRESSION_BUILDERS, connection_of
from refusing import refused
from sql.neighbours import DATES, NUMBERS, TEXTS, WEIRD

MOMENTS = (
    "2024-02-29 23:59:59.999999", "0001-01-01 00:00:00", "9999-12-31 23:59:59.999999", "infinity",
    "-infinity", "290309-12-22 (BC) 00:00:00", "294247-01-10 04:00:54.775806", None,
)  # fmt: skip
WORDS = (
    *TEXTS,
    "2024-01-31",
    "99999-01-01",
    "1e999",
    "-inf",
    "nan",
    "true",
    " 7 ",
    "0x10",
    "9" * 400,
    "%",
    "\\",
)

EXPRESSIONS = {
    "number": [
        "a + b", "a - b", "a * b", "a / b", "a // b", "a % b", "-a", "+a", "FLOOR(a)", "CEIL(a)", "ABS(a)",
        "ROUND(a, 2)", "ROUND(a, -3)", "SQRT(a)", "LN(a)", "EXP(a)", "SIGN(a)", "POW(a, b)", "POW(a, 2)",
        "POW(a, 3)", "POW(a, -0.5)",
        "LEAST(a, b, 3)", "GREATEST(a, b)", "NULLIF(a, b)", "COALESCE(a, b, 1)", "IF(a > b, a, 0)",
        "CASE WHEN a > b THEN a WHEN b IS NULL THEN 1 END", "CASE a WHEN 1 THEN 2 ELSE b END", "LENGTH(s)",
        "EXTRACT(year FROM d)", "EXTRACT(week FROM m)", "EXTRACT(hour FROM m)", "EXTRACT(minute FROM d)",
        "EXTRACT(doy FROM d)", "EXTRACT(isodow FROM m)", "YEAR(d)", "QUARTER(m)", "MONTH(d)", "WEEK(d)",
        "DAY(m)", "DAYOFWEEK(d)", "HOUR(m)", "MINUTE(m)", "DATE_DIFF('day', d, CAST(m AS DATE))",
        "CAST(s AS DOUBLE)", "CAST(s AS INT)", "TRY_CAST(s AS BIGINT)", "CAST(t AS DOUBLE)", "CAST(a AS INT)",
        "CAST(a AS TINYINT)", "CAST(a AS UBIGINT)", "CAST(a AS DECIMAL(10, 2))", "CAST(t AS DECIMAL)",
        "(a)", "LOG10(a)", "LOG(2, a)", "LOG(3, a)", "TRUNC(a)", "WIDTH_BUCKET(a, 0, 50, 5)",
        "WIDTH_BUCKET(a, -0.3, 0.1, 7)", "SAFE_DIVIDE(a, b)", "SECOND(m)", "DAYOFYEAR(m)", "ISODOW(d)",
        "WEEKOFYEAR(d)", "DATE_DIFF('year', d, m)", "DATE_DIFF('quarter', m, d)", "DATE_DIFF('month', d, m)",
        "DATE_DIFF('day', m, m)", "DATE_DIFF('hour', d, m)", "DATE_DIFF('minute', m, d)",
        "DATE_DIFF('second', m, CAST('2024-02-29' AS TIMESTAMP))", "d - CAST(m AS DATE)",
        "STRPOS(s, 'a')", "POSITION('b' IN s)",
    ],
    "text": [
        "LOWER(s)", "UPPER(s)", "TRIM(s)", "SUBSTRING(s, 1, 3)", "SUBSTRING(s, 2)",
        "LEFT(s, 2)", "s || s", "CONCAT(s, 'x', s)",
        "CAST(a AS VARCHAR)", "CAST(t AS VARCHAR)", "CAST(d AS VARCHAR)", "CAST(m AS VARCHAR)",
        "COALESCE(s, 'x')", "NULLIF(s, 'a')", "CASE WHEN t THEN s ELSE 'no' END", "'literal'",
        "LTRIM(s)", "RTRIM(s)", "RIGHT(s, 2)", "RIGHT(s, 0)", "SPLIT_PART(s, '-', 2)",
        "SPLIT_PART(s, 'a', 1)",
        "REPLACE(s, 'a', '')", "REPLACE(s, 'aa', 'é')", "LPAD(s, 3, 'xy')", "RPAD(s, 5, '0')", "DAYNAME(d)",
        "MONTHNAME(m)", "STRFTIME(m, '%Y-%m-%d %H:%M:%S')",
        "STRFTIME(d, '%y/%j %V %u%w %a %A %b %B %% %-d.%-m')",
        "STRFTIME(m, '%F %T')", "REGEXP_EXTRACT(s, '[a-z]+')", "REGEXP_EXTRACT(s, '(a)(.)', 2)",
    ],
    "boolean": [
        "a = b", "a <> b", "a > b", "a >= b", "a < b", "a <= b", "s < 'b'", "d >= '2020-01-01'", "m < d",
        "a BETWEEN 0 AND b", "a IN (1, 2, NULL)", "s IN ('a', 'b')", "d IN ('2024-02-29')", "s LIKE 'a%_'",
        "s ILIKE '%A'", "s NOT LIKE 'a%'", "s NOT ILIKE 'a%'", "STARTS_WITH(s, 'a')", "t AND a > 0",
        "t OR s IS NULL", "NOT t", "t IS TRUE",
        "REGEXP_MATCHES(s, '^a.*$')", "REGEXP_MATCHES(s, 'A', 'i')", "REGEXP_FULL_MATCH(s, 'a|b')",
        "CONTAINS(s, 'a')", "ENDS_WITH(s, 'a')", "ENDS_WITH(s, 'é')",
        "a IS NOT NULL", "CAST(s AS BOOLEAN)", "CAST(a AS BOOLEAN)", "TRUE", "o IS NULL",
    ],
    "date": [
        "CAST(s AS DATE)", "CAST(m AS DATE)", "DATE_TRUNC('year', d)", "DATE_TRUNC('week', d)",
        "CASE WHEN t THEN d END", "COALESCE(d, '2020-01-01')",
        "CAST('2020-01-01' AS DATE)", "d + 7", "d - 1000000", "LAST_DAY(d)", "LAST_DAY(m)", "DATE(m)",
        "ADD_MONTHS(d, -11)",
    ],
    "timestamp": [
        "CAST(s AS TIMESTAMP)", "CAST(d AS TIMESTAMP)", "DATE_TRUNC('week', m)", "DATE_TRUNC('minute', d)",
        "DATE_TRUNC('quarter', m)", "NULLIF(m, d)", "COALESCE(m, d)",
        "m + INTERVAL 7 DAY", "d - INTERVAL 1 MONTH", "d + INTERVAL '13 months'", "m - INTERVAL 30 MINUTE",
        "INTERVAL 90 SECOND + m", "m + INTERVAL 4000 YEAR", "m - INTERVAL 4000 YEAR",
        "d + INTERVAL 1 QUARTER",
        "m - INTERVAL (3) WEEK", "m + INTERVAL 1000000 HOUR", "DATE_ADD(d, INTERVAL 1 DAY)",
        "STRPTIME(s, '%Y-%m-%d')", "STRPTIME(s, '%d/%m/%Y %H:%M')", "STRPTIME(s, '%Y%m%d')",
        "STRPTIME(s, '%Y-%m-%d %H:%M:%S')",
    ],
}  # fmt: skip
ALL = [text for texts in EXPRESSIONS.values() for text in texts]
COLUMNS = {"number": ("a", "b"), "text": ("s",), "boolean": ("t",), "date": ("d",), "timestamp": ("m",)}


@pytest.fixture(scope="module")
def connection():
    """Every extreme value of every kind, each beside many others."""
    rng = random.Random(0)
    database = duckdb.connect(config={"threads": "2"})
    database.execute(
        "CREATE TABLE r (u INT, a DOUBLE, b DOUBLE, s VARCHAR, t BOOLEAN, d DATE, m TIMESTAMP, o TIME)"
    )
    numbers = [value for value in NUMBERS + WEIRD for _ in range(9)]
    rows = [
        (
            *(rng.randrange(5), number, rng.choice(numbers), rng.choice(WORDS)),
            *(rng.choice([True, False, None]), rng.choice(DATES), rng.choice(MOMENTS), "12:00:00"),
        )
        for number in numbers
    ]
    database.executemany("INSERT INTO r VALUES (?, ?, ?, ?, ?, ?, ?, ?)", rows)
    return database


@pytest.fixture(scope="module")
def data(connection, tmp_path_factory):
    """The same rows in a file: of an owner's connection the whole catalog is checked before every query."""
    path = tmp_path_factory.mktemp("expressions") / "r.duckdb"
    connection.execute(f"ATTACH '{path}' AS filed; CREATE TABLE filed.r AS FROM r; DETACH filed")
    return hb.open(path, table="r", unit="u", rows_per_unit=3)


@pytest.fixture(scope="module")
def engine(connection):
    return DuckDB({"r": TableSource("r", unit="u")}, connection)


def test_every_builder_is_tried():
    seen = {type(node) for text in ALL for node in sqlglot.parse_one(text, read="duckdb").walk()}
    google = """DATE_TRUNC(d, MONTH), DATETIME_TRUNC(m, DAY), SAFE_ADD(a, b), SAFE_SUBTRACT(a, b),
        SAFE_MULTIPLY(a, b), SAFE_NEGATE(a), DATE_SUB(d, INTERVAL 1 DAY), TIMESTAMP_ADD(m, INTERVAL 1 HOUR),
        TIMESTAMP_SUB(m, INTERVAL 1 HOUR), DATETIME_ADD(m, INTERVAL 1 HOUR), DATETIME_SUB(m, INTERVAL 1 HOUR),
        PARSE_DATE('%d/%m/%Y', s)"""
    seen |= {type(node) for node in sqlglot.parse_one(f"SELECT {google}", read="bigquery").walk()}
    of_lists = {exp.ArraySize, exp.ArrayContains}  # in test_lists
    assert set(EXPRESSION_BUILDERS) <= seen | of_lists | {exp.Null}


@pytest.mark.sweep(7)
@pytest.mark.slow
@pytest.mark.parametrize("start", range(0, len(ALL), 6), ids=lambda start: ALL[start])
def test_no_row_makes_an_expression_fail(data, start):
    """Six expressions in each query: planning takes most of the time, and one failure fails it."""
    counts = [f"COUNT({text}), COUNT(DISTINCT {text})" for text in ALL[start : start + 6]]
    data.sql(f"SELECT {', '.join(counts)} FROM r", epsilon=1).run()


@pytest.mark.slow
@pytest.mark.sweep(11)
@pytest.mark.parametrize("text", ALL)
def test_no_row_makes_a_group_key_fail(data, text):
    plan = data.sql(
        f"SELECT {text} AS k, COUNT(*) AS n FROM r GROUP BY k",
        epsilon=100,
        delta=1e-6,
        allow_large_epsilon=True,
    )
    str(plan.run().value)


CONSTANTS = {
    "number": ("1e308", "-1", "0", "5e-324", "9007199254740993", "NULL"),
    "text": ("'abc'", "''", "'1e999'", "NULL"),
    "boolean": ("TRUE", "NULL"),
    "date": ("CAST('0001-01-01' AS DATE)", "CAST('no date' AS DATE)"),
    "timestamp": ("CAST('9999-12-31 23:59:59' AS TIMESTAMP)", "CAST('no time' AS TIMESTAMP)"),
}


def of_constants(text, place):
    """The expression with constants for its columns: engines compute these beforehand, branch by branch."""
    tree = exp.Paren(this=sqlglot.parse_one(text, read="duckdb"))
    for node in list(tree.find_all(exp.Column)):
        kind = next((each for each, names in COLUMNS.items() if node.name in names), None)
        if kind is not None:
            constants = CONSTANTS[kind]
            node.replace(sqlglot.parse_one(constants[place % len(constants)], read="duckdb"))
    return tree.sql("duckdb")


@pytest.mark.slow
@pytest.mark.sweep(23)
@pytest.mark.parametrize("text", ALL)
def test_no_constant_makes_an_expression_fail(data, text):
    for place in range(6):
        constant = of_constants(text, place)
        where = f"CASE WHEN t THEN {constant} END"
        try:
            plan = data.sql(f"SELECT COUNT({constant}) AS n, COUNT({where}) AS m FROM r", epsilon=1)
        except InvalidInput:
            continue  # NULL has no kind
        plan.run()


@pytest.mark.slow
def test_sum_of_constants_beyond_doubles_runs(data):
    inner = "SELECT u, SUM(1e308 * 1e308) AS z FROM r GROUP BY u"
    data.sql(f"SELECT SUM(z) AS n FROM ({inner}) AS q", epsilon=1, bounds={"z": (0, 9)}).run()


def nested(rng, kind, depth):
    """A random expression of a kind, over expressions of the kinds it takes."""
    text = rng.choice(EXPRESSIONS[kind])
    tree = sqlglot.parse_one(text, read="duckdb")
    for node in list(tree.find_all(exp.Column)):
        of = next((each for each, names in COLUMNS.items() if node.name in names), None)
        if of and depth and rng.random() < 0.7:
            inner = exp.Paren(this=sqlglot.parse_one(nested(rng, of, depth - 1), read="duckdb"))
            if node is tree:
                return inner.sql("duckdb")
            node.replace(inner)
    return tree.sql("duckdb")


def check_nested(data, count, seed):
    rng = random.Random(seed)
    ran = 0
    for _ in range(count):
        kind = rng.choice(list(EXPRESSIONS))
        text = nested(rng, kind, 4)
        try:
            plan = data.sql(f"SELECT COUNT({text}) AS n, COUNT(DISTINCT {text}) AS m FROM r", epsilon=1)
        except (Unsupported, InvalidInput):
            continue  # too long, or an IN of what is no literal
        plan.run()
        ran += 1
    assert ran > count / 2


@pytest.mark.slow
def test_no_row_makes_a_nested_expression_fail(data):
    check_nested(data, 25, "short")


@pytest.mark.long
@pytest.mark.parametrize("seed", range(4))
def test_no_row_makes_many_nested_expressions_fail(data, seed):
    check_nested(data, 600, seed)


@pytest.mark.slow
@pytest.mark.parametrize("text", ALL)
def test_expression_depends_on_its_own_row_only(engine, text):
    scope = Scope({"r": engine.tables["r"].columns})
    sql = compile_expression(sqlglot.parse_one(text, read="duckdb"), scope).sql.sql("duckdb")
    run = connection_of(engine).execute
    query = f"SELECT CAST({sql} AS VARCHAR) FROM (SELECT *, row_number() OVER () AS id FROM r) AS r"
    together = [value for (value,) in run(f"{query} ORDER BY id").fetchall()]
    for place in (0, 7, 60, len(together) - 1):
        assert run(f"{query} WHERE id = {place + 1}").fetchall() == [(together[place],)]


@pytest.mark.parametrize("text", ALL)
def test_each_part_is_compiled_once(engine, text):
    """Compiled twice at each level, a sum of sixty columns would take longer than anybody waits."""
    compiled = []
    scope = Scope({"r": engine.tables["r"].columns}, on_compiled=lambda node, _: compiled.append(id(node)))
    tree = sqlglot.parse_one(text, read="duckdb")
    compile_expression(tree, scope)
    assert len(compiled) == len(set(compiled))


@pytest.mark.slow
def test_dates_beyond_python_are_null(data):
    for text in ("d", "m", "CAST(s AS DATE)", "CAST(s AS TIMESTAMP)", "DATE_TRUNC('month', m)"):
        plan = data.sql(
            f"SELECT {text} AS k, COUNT(*) AS n FROM r GROUP BY k",
            epsilon=1000,
            delta=1e-6,
            allow_large_epsilon=True,
        )
        keys = [key for key in plan.run().value["k"] if key is not None]
        assert all(isinstance(key, (date, datetime, str)) for key in keys)


@pytest.mark.slow
def test_texts_do_not_grow_without_end(connection, data):
    """Doubled again and again a text would not fit in memory, on rows that have one."""
    inner = "SELECT u, s FROM r"
    for _ in range(34):
        inner = f"SELECT u, s || s AS s FROM ({inner}) AS q"
    plan = data.sql(
        f"SELECT MAX(LENGTH(s)) AS n FROM ({inner}) AS q",
        epsilon=100,
        bounds={"LENGTH(s)": (0, 1e6)},
        allow_large_epsilon=True,
    )
    plan.run()


@pytest.mark.parametrize(
    "text",
    [
        "random()", "transaction_timestamp()", "now(1)", "error('x')", "getenv('HOME')", "a & 1", "a[1]",
        "s -> '$.x'", "hash(s)", "regexp_matches(s, s)", "s SIMILAR TO 'a'", "printf('%d', a)",
        "CAST(s AS BLOB)",
        "CAST(a AS DECIMAL(3, 1)[])", "(SELECT 1)", "EXISTS (SELECT 1)", "a IN (SELECT 1)",
        "SUM(a) OVER ()", "lag(a) OVER ()", "$1", "?", "repeat(s, 9)", "s COLLATE NOCASE = 'a'",
        "unnest([1])", "struct_pack(x := 1)", "INTERVAL 1 DAY", "d + INTERVAL (a) DAY", "m - d",
        "d + INTERVAL 9999 YEAR", "d + a", "d + 0.5", "INTERVAL 1 DAY - d", "m + INTERVAL '1 day 2 hours'",
        "REGEXP_MATCHES(s, '(')", "REGEXP_EXTRACT(s, '\\C')", "REGEXP_MATCHES(s, 'a', 'g')",
        "REPLACE(s, 'a', 'bb')", "REPLACE(s, '', 'a')", "SPLIT_PART(s, '-', -1)", "SPLIT_PART(s, s, 1)",
        "STRFTIME(m, '%c')", "STRFTIME(m, s)", "STRFTIME(m, '')", "STRFTIME(m, '%')", "STRPTIME(s, '%H')",
        "STRPTIME(s, '%Y%m-%d')", "WIDTH_BUCKET(a, 5, 5, 2)", "WIDTH_BUCKET(a, 0, b, 2)", "LOG(a, b)",
        "LOG(1, a)", "LPAD(s, 2000, 'x')", "CONTAINS(s, s)", "rowid", "temp.r.a",
        "CAST(d AS DOUBLE)", "CAST(m AS DOUBLE)", "CAST(a AS DATE)", "CAST(a AS TIMESTAMP)",
        "CAST(o AS VARCHAR)",
        "*", "s LIKE s", "s LIKE 'a\\%'", "a IN (b)", "o = o", "COALESCE(o, o)", "CASE WHEN t THEN o END",
    ],
)  # fmt: skip
def test_functions_not_on_the_allow_list_are_refused_before_the_charge(data, text):
    before = len(data.account.receipts)
    with refused(hb.HubbubError):
        data.sql(f"SELECT COUNT(CASE WHEN ({text}) IS NULL THEN 1 END) AS n FROM r", epsilon=1)
    assert len(data.account.receipts) == before


@pytest.mark.parametrize("deep", ["SQRT({})", "POW({}, 2)", "CAST(({} > 0) AS INT)", "ROUND({}, 1)"])
def test_excessive_nesting_is_refused(data, deep):
    text = "a"
    for _ in range(16):
        text = deep.format(text)
    with refused(Unsupported):
        data.sql(f"SELECT COUNT({text}) AS n FROM r", epsilon=1).run()


def test_many_arguments_are_accepted(data):
    many = ", ".join(["a", "b"] * 40)
    data.sql(f"SELECT COUNT(LEAST({many})) AS n FROM r", epsilon=1).run()


@pytest.mark.parametrize(
    "text", ["SELECT COUNT(*) AS n FROM r WHERE s = '\ud800'", "SELECT COUNT(*) AS n FROM r WHERE s = '\0'"]
)
def test_texts_that_no_engine_accepts_are_refused(data, text):
    with refused(InvalidInput):
        data.sql(text, epsilon=1)
    with refused(InvalidInput):
        data.sql("SELECT s, COUNT(*) AS n FROM r GROUP BY s", epsilon=1, keys={"s": ["\ud800"]})


@pytest.mark.slow
@pytest.mark.parametrize(
    "bounds",
    [(0, 5e-324), (1e-310, 2e-310), (-1e150, 1e150), (1e149, 1e150), (1, 1 + 2**-52), (-5e-324, 5e149)],
)
def test_bounds_of_any_size_are_safe_or_refused(data, bounds):
    for aggregate in ("SUM(a)", "AVG(a)", "MEDIAN(a)", "VARIANCE(a)"):
        try:
            plan = data.sql(f"SELECT {aggregate} AS n FROM r", epsilon=1, bounds={"a": bounds})
        except InvalidInput:
            assert bounds[1] - bounds[0] < 1e-12
            continue
        plan.run()


def test_bounds_closer_than_doubles_are_refused(data):
    from fractions import Fraction

    low = 1 + Fraction(1, 2**53) - Fraction(1, 2**200)
    with refused(InvalidInput, match="bounds"):
        data.sql("SELECT SUM(a) AS n FROM r", epsilon=1, bounds={"a": (1, 1 + Fraction(1, 2**80))})
    # These round to two doubles, but lie closer than these do.
    with refused(InvalidInput, match="bounds"):
        data.sql(
            "SELECT SUM(a - 0) AS n FROM r", epsilon=1, bounds={"a - 0": (low, low + Fraction(1, 2**199))}
        )
