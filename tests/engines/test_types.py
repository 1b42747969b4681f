"""Every type that a table can have gives the same values on every engine, whatever the session is set to."""

from datetime import datetime
from functools import cache

import pytest

import hubbub as hb
from engines.test_same_integers import count_of, integers
from hubbub.accounting.in_memory_account import InMemoryAccount
from hubbub.dataset import Dataset
from hubbub.engines.engine import TableSource
from internals import engine_of

ENGINES = ("DuckDB", "PostgreSQL", "Spark")
WHOLE = ["0", "1", "-1", "7", "127", "-128", None]
DIGITS = ["9007199254740993", "-9007199254740993", "9223372036854775807", "-9223372036854775808"]
LONG = ["9" * 38, "-" + "9" * 38, "1" + "0" * 22 + "1", *DIGITS]
TYPES = {
    "i2": ("SMALLINT", "SMALLINT", "SMALLINT", [*WHOLE, "32767", "-32768"]),
    "i4": ("INTEGER", "INTEGER", "INT", [*WHOLE, "2147483647", "-2147483648"]),
    "i8": ("BIGINT", "BIGINT", "BIGINT", [*WHOLE, *DIGITS, "4611686018427387905"]),
    "u1": ("UTINYINT", "SMALLINT", "SMALLINT", ["0", "255", None]),
    "u8": ("UBIGINT", "NUMERIC(20)", "DECIMAL(20, 0)", ["0", "18446744073709551615", DIGITS[0], None]),
    "h": ("HUGEINT", "NUMERIC(38)", "DECIMAL(38, 0)", LONG),
    "n4": (
        "DECIMAL(18, 4)", "NUMERIC(18, 4)", "DECIMAL(18, 4)",
        [*WHOLE, "0.1", "-0.0001", "99999999999999.9999"],
    ),
    "n38": (
        "DECIMAL(38, 37)", "NUMERIC(38, 37)", "DECIMAL(38, 37)",
        ["0." + "0" * 36 + "1", "0.3000000000000000444089209850062616169", "-9." + "9" * 37, "0.1", None],
    ),
    "f4": (
        "FLOAT", "REAL", "FLOAT",
        ["0.100000001490116119384765625", "-0.0", "nan", "infinity", "16777216", None],
    ),
    "t": ("BOOLEAN", "BOOLEAN", "BOOLEAN", ["true", "false", None]),
    "z": (
        "TIMESTAMPTZ", "TIMESTAMPTZ", "TIMESTAMPTZ",
        [
            "2024-03-31 02:30:00+01:00", "2024-01-01 00:15:00+05:45", "0001-01-01 00:30:00+01:00",
            "1883-11-18 12:00:00+00:00", "0001-01-01 00:00:00+00:00", "9999-12-31 23:59:59.999999+00:00",
            "1969-12-31 23:59:59.5-03:30", None,
        ],
    ),
    "s": (
        "VARCHAR", "TEXT", "STRING",
        [
            "a", "A", "á", "Z", "z", "", " ", "a ", "ß", "ss", "e\u0301", "é", "I", "ı", "İ", "😀", "\uffff",
            "_", "a-b", "ab", None,
        ],
    ),
}  # fmt: skip
COUNT = 60
ASKED = {
    "number": [
        "{}", "{} + 0.5", "{} % 7", "CAST({} AS VARCHAR)", "FLOOR({} / 10)",
        "CASE WHEN {} > 9007199254740992 THEN 'x' END",
    ],
    "truth": ["{}", "NOT {}", "CAST({} AS INT)", "CAST({} AS VARCHAR)"],
    "moment": [
        "{}", "CAST({} AS DATE)", "HOUR({})", "DATE_TRUNC('week', {})", "CAST({} AS VARCHAR)", "YEAR({})",
    ],
    "text": [
        "{}", "LOWER({})", "LENGTH({})",
        "CASE WHEN {} < 'a' THEN 'below' WHEN {} > 'z' THEN 'above' ELSE 'else' END",
        "CASE WHEN {} = 'A' OR {} IN ('ss', 'é') THEN 'in' END", "CASE WHEN {} LIKE 'A%' THEN 'like' END",
    ],
}  # fmt: skip
KINDS = {"t": "truth", "z": "moment", "s": "text"}


def rows():
    """Each value of each type beside others."""
    columns = [[values[number % len(values)] for number in range(COUNT)] for *_, values in TYPES.values()]
    return [(str(number % 7), *each) for number, each in enumerate(zip(*columns, strict=True))]


def types_in(engine, **other):
    place = ENGINES.index(engine)
    return {"u": "BIGINT", **{name: typed[place] for name, typed in TYPES.items()}} | other


def open_data(place, unit, columns, bounds=None, contents=None):
    table = place.create("y", columns)
    place.put("y", columns, rows() if contents is None else contents)
    known = dict.fromkeys(("i2", "i8", "h", "n4", "f4"), (-1000, 1000)) if bounds is None else bounds
    return Dataset(
        place.engine({"y": TableSource(table, unit=unit.key, bounds=known)}), unit, InMemoryAccount()
    )


@pytest.fixture(scope="module")
def by_row(tables_in):
    return cache(lambda name: open_data(tables_in(name), hb.Unit.row(), types_in(name)))


@pytest.fixture(scope="module")
def by_unit(tables_in):
    return cache(lambda name: open_data(tables_in(name), hb.Unit("u"), types_in(name)))


def values(data, *texts):
    """How many rows have which values."""
    listed = ", ".join(f"{text} AS k{place}" for place, text in enumerate(texts))
    by = ", ".join(f"k{place}" for place in range(len(texts)))
    return count_of(
        data, data.sql(f"SELECT {listed}, COUNT(*) AS n FROM y GROUP BY {by}", epsilon=1, delta=1e-6)
    )


def asked_of(name):
    return [form.replace("{}", name) for form in ASKED[KINDS.get(name, "number")]]


def check_values(one, two, name):
    for text in asked_of(name):
        assert values(one, text) == values(two, text), text


@pytest.mark.sweep(5)
@pytest.mark.parametrize("name", TYPES)
def test_types_agree_on_postgres(by_row, name):
    check_values(by_row("DuckDB"), by_row("PostgreSQL"), name)


def test_types_agree_on_spark(by_row):
    some = ("h", "n38", "f4", "z", "s")
    assert values(by_row("DuckDB"), *some) == values(by_row("Spark"), *some)


@pytest.mark.long
@pytest.mark.parametrize("name", TYPES)
def test_expressions_of_types_agree_on_spark(by_row, name):
    check_values(by_row("DuckDB"), by_row("Spark"), name)


MEASURED = {
    "SELECT SUM(i8) AS a, AVG(h) AS b, SUM(n4) AS c, AVG(f4) AS d, COUNT(z) AS e FROM y": {},
    "SELECT t, SUM(i2) AS a, COUNT(DISTINCT u) AS b, COUNT(s) AS c FROM y GROUP BY t": {},
    "SELECT AVG(k) AS a FROM (SELECT u, SUM(i8) AS k FROM y GROUP BY u) AS q": {"bounds": {"k": (-5, 1000)}},
    "SELECT AVG(k) AS a FROM (SELECT u, AVG(n38) AS k FROM y GROUP BY u) AS q": {"bounds": {"k": (-5, 1000)}},
    **{
        f"SELECT k, COUNT(*) AS n FROM (SELECT u, {of} AS k FROM y GROUP BY u) AS q GROUP BY k": {
            "keys": {"k": keys}
        }
        for of, keys in {
            "MIN(s)": ["", "A", " ", None], "MAX(s)": ["\uffff", "z", "ß", "😀", "ı"],
            "MAX(z)": [datetime(9999, 12, 31, 23, 59, 59, 999999), datetime(2024, 3, 31, 1, 30)],  # noqa: DTZ001
            "MIN(h)": [-1e38, 9007199254740992.0, -9007199254740992.0],
        }.items()
    },
    "SELECT s, COUNT(*) AS n FROM y WHERE i8 > 1e300 GROUP BY s": {
        "keys": {"s": ["a", "A", "not there", None]}
    },
}  # fmt: skip


def measured(data, text):
    """The integers of every measure, before the noise."""
    plan = data.sql(text, epsilon=1, rows_per_unit=3, **MEASURED.get(text, {}))
    aggregates = plan.bounded.bounded_aggregates
    return [integers(engine_of(data).execute(each.sql, each.key_sets)) for each in aggregates]


@pytest.mark.sweep(5)
@pytest.mark.parametrize("text", MEASURED)
def test_aggregates_of_types_agree_on_postgres(by_unit, text):
    assert measured(by_unit("DuckDB"), text) == measured(by_unit("PostgreSQL"), text)


@pytest.mark.long
@pytest.mark.parametrize("text", MEASURED)
def test_aggregates_of_types_agree_on_spark(by_unit, text):
    assert measured(by_unit("DuckDB"), text) == measured(by_unit("Spark"), text)


@pytest.mark.parametrize(
    "contents", [[], [tuple([None] * (len(TYPES) + 1))] * 3], ids=["no rows", "no values"]
)
def test_aggregates_of_empty_tables_agree_on_postgres(tables_in, contents):
    one, two = (
        open_data(tables_in(name), hb.Unit("u"), types_in(name), contents=contents) for name in ENGINES[:2]
    )
    for text in MEASURED:
        assert measured(one, text) == measured(two, text), text


@pytest.mark.long
@pytest.mark.parametrize(
    "contents", [[], [tuple([None] * (len(TYPES) + 1))] * 3], ids=["no rows", "no values"]
)
def test_aggregates_of_empty_tables_agree_on_spark(tables_in, contents):
    one, two = (
        open_data(tables_in(name), hb.Unit("u"), types_in(name), contents=contents)
        for name in ("DuckDB", "Spark")
    )
    for text in MEASURED:
        assert measured(one, text) == measured(two, text), text


# What one engine alone has


def test_decimals_beyond_doubles_are_clamped_on_postgres(tables_in):
    """A decimal there has up to 131,072 digits, and can be no number."""
    columns = {"u": "BIGINT", "x": "NUMERIC"}
    beyond = ["NaN", "Infinity", "-Infinity", "1e400", "-1e400", "9" * 3000, None]
    texts = [*beyond, "1e-400", "9" * 300, "-" + "9" * 300, "1.5"]
    contents = [("1", text) for text in texts]
    data = open_data(tables_in("PostgreSQL"), hb.Unit.row(), columns, bounds={}, contents=contents)
    large = 2.0**200
    results = {eval(key): count for (key,), count in values(data, "x").items()}  # noqa: S307 - a repr
    assert results == {None: len(beyond), large: 1, -large: 1, 0.0: 1, 1.5: 1}


COLLATIONS = {
    "C": '"C"', "English": '"en-x-icu"', "Swedish": '"sv-x-icu"',
    "blind to case": "blind", "blind to all but letters": "deaf", "of the system": '"C.utf8"',
}  # fmt: skip
_BLIND = [
    f"CREATE COLLATION IF NOT EXISTS {name} (provider = icu, locale = '{how}', deterministic = false)"
    for name, how in {"blind": "und-u-ks-level2", "deaf": "und-u-ks-level1-ka-shifted"}.items()
]


@pytest.mark.sweep(5)
@pytest.mark.parametrize("collation", COLLATIONS)
def test_texts_compare_bytewise_on_postgres(by_row, by_unit, tables_in, collation):
    place = tables_in("PostgreSQL")
    for text in _BLIND:
        place.connection.execute(text)
    columns = types_in("PostgreSQL", s=f"TEXT COLLATE {COLLATIONS[collation]}")
    data = open_data(place, hb.Unit.row(), columns)
    check_values(by_row("DuckDB"), data, "s")
    for text in MEASURED:
        if "s" in text:
            assert measured(by_unit("DuckDB"), text) == measured(
                open_data(place, hb.Unit("u"), columns), text
            )


def test_units_compare_bytewise_on_postgres(tables_in):
    """Where a collation makes texts equal, these are still two units, with the same weights everywhere."""
    place = tables_in("PostgreSQL")
    for text in _BLIND:
        place.connection.execute(text)
    contents = [(unit, "1") for unit in ("a", "A", "á", "a ", "a-", "b") for _ in range(3)]
    text = "SELECT SUM(x) AS a, COUNT(DISTINCT u) AS n FROM y"
    known = {"bounds": {"x": (0, 4)}, "contents": contents}
    one = open_data(tables_in("DuckDB"), hb.Unit("u"), {"u": "VARCHAR", "x": "INTEGER"}, **known)
    for collation in COLLATIONS.values():
        two = open_data(place, hb.Unit("u"), {"u": f"TEXT COLLATE {collation}", "x": "INTEGER"}, **known)
        assert measured(one, text) == measured(two, text)


@pytest.mark.sweep(3)
@pytest.mark.parametrize("typed", ["CHAR(4)", "VARCHAR(4)", "NAME", "mood", "word"])
def test_other_text_types_are_texts_on_postgres(tables_in, typed):
    """Fixed, short, enumerated, and of a domain; spaces that fill up are none."""
    place = tables_in("PostgreSQL")
    path = f"SET search_path = {place.schema}, public"
    place.connection.execute(path)
    place.connection.execute("CREATE TYPE mood AS ENUM ('b', 'B', 'a', 'é')")
    place.connection.execute("CREATE DOMAIN word AS text")
    contents = [("1", text) for text in ("b", "B", "a", "é", "a", None)]
    data = open_data(place, hb.Unit.row(), {"u": "BIGINT", "s": typed}, bounds={}, contents=contents)
    one = open_data(
        tables_in("DuckDB"), hb.Unit.row(), {"u": "BIGINT", "s": "VARCHAR"}, bounds={}, contents=contents
    )
    check_values(one, data, "s")


# What a session is set to


LITERALS = [
    "\\",
    "\\'",
    "it''s".replace("''", "'"),
    "${env:PATH}",
    "${spark.app.name}",
    "$${x}",
    "\\u0041",
    "%",
    "a\\nb",
    "--",
    '"',
    "`",
    "a\nb\tc\x07\x1a",
]
"""Texts that an engine might read as something else."""


def check_settings(one, two):
    """All types, and texts that are written out, are as they are where nothing is set."""
    assert values(one, *TYPES) == values(two, *TYPES)
    for text in LITERALS:
        quoted = text.replace("'", "''")
        form = f"CASE WHEN t THEN '{quoted}' WHEN s < '{quoted}' THEN 'below' ELSE s || '{quoted}' END"
        assert values(one, form) == values(two, form), text
    assert values(one, "CASE WHEN i2 = NULL THEN 'known' END") == values(
        two, "CASE WHEN i2 = NULL THEN 'known' END"
    )


PG_SETTINGS = {
    "TimeZone": "Asia/Kathmandu",
    "standard_conforming_strings": "off",
    "backslash_quote": "on",
    "transform_null_equals": "on",
    "DateStyle": "SQL,DMY",
    "IntervalStyle": "iso_8601",
    "extra_float_digits": "-15",
    "client_encoding": "LATIN1",
    "bytea_output": "escape",
    "enable_hashagg": "off",
    "default_transaction_isolation": "serializable",
    "search_path": "public",
    "array_nulls": "off",
    "quote_all_identifiers": "on",
}


def test_postgres_settings_do_not_matter(by_row, tables_in):
    place = tables_in("PostgreSQL")
    table = place.create("y", types_in("PostgreSQL"))
    place.put("y", types_in("PostgreSQL"), rows())
    from hubbub.engines.postgres import PostgreSQL

    listed = "%20".join(f"-c%20{name}%3D{value.replace('/', '%2F')}" for name, value in PG_SETTINGS.items())
    engine = PostgreSQL(f"{place.address}?options={listed}", {"y": TableSource(table)})
    check_settings(by_row("DuckDB"), Dataset(engine, hb.Unit.row(), InMemoryAccount()))


SPARK_SETTINGS = {
    "spark.sql.ansi.enabled": "false",
    "spark.sql.session.timeZone": "Asia/Kathmandu",
    "spark.sql.caseSensitive": "true",
    "spark.sql.timestampType": "TIMESTAMP_NTZ",
    "spark.sql.parser.escapedStringLiterals": "true",
    "spark.sql.parser.quotedRegexColumnNames": "true",
    "spark.sql.decimalOperations.allowPrecisionLoss": "false",
    "spark.sql.legacy.literal.pickMinimumPrecision": "false",
    "spark.sql.legacy.exponentLiteralAsDecimal.enabled": "true",
    "spark.sql.legacy.timeParserPolicy": "LEGACY",
    "spark.sql.legacy.setopsPrecedence.enabled": "true",
    "spark.sql.groupByOrdinal": "false",
    "spark.sql.crossJoin.enabled": "false",
    "spark.sql.legacy.doLooseUpcast": "true",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
}
OTHER_SPARK_SETTINGS = {
    "spark.sql.ansi.enabled": "true",
    "spark.sql.ansi.doubleQuotedIdentifiers": "true",
    "spark.sql.ansi.enforceReservedKeywords": "true",
    "spark.sql.session.timeZone": "America/Caracas",
    "spark.sql.variable.substitute": "false",
}


@pytest.mark.long
@pytest.mark.parametrize("settings", [SPARK_SETTINGS, OTHER_SPARK_SETTINGS], ids=["loose", "strict"])
def test_spark_settings_do_not_matter(by_row, session, settings):
    from engine_tables import SparkTables

    other = session.newSession()
    place = SparkTables(other)
    table = place.create("y", types_in("Spark"))
    place.put("y", types_in("Spark"), rows())
    for name, value in settings.items():
        other.conf.set(name, value)
    data = Dataset(place.engine({"y": TableSource(table)}), hb.Unit.row(), InMemoryAccount())
    check_settings(by_row("DuckDB"), data)


def test_texts_agree_on_spark(by_row):
    """No part of one is replaced by what the session or the machine is set to."""
    joined = " || ".join(f"'{text.replace(chr(39), chr(39) * 2)}'" for text in LITERALS)
    assert values(by_row("DuckDB"), joined) == values(by_row("Spark"), joined)
