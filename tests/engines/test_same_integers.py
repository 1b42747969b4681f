"""For the same rows and the same plan every engine gives the same exact integers, bit for bit."""

import random
from collections import Counter
from functools import cache

import pytest

import hubbub as hb
from hubbub.accounting.in_memory_account import InMemoryAccount
from hubbub.dataset import Dataset
from hubbub.engines.engine import TableSource
from hubbub.errors import InvalidInput, Unsupported
from internals import engine_of
from sql.neighbours import NUMBERS, SPELLINGS, WEIRD, World, case, databases, seeded
from sql.test_row_expressions import CONSTANTS, EXPRESSIONS, nested, of_constants
from sql.test_row_expressions import WORDS as OTHER_WORDS

OTHERS = ["PostgreSQL", "Spark"]
COLUMNS = {
    "u": "BIGINT", "a": "DOUBLE", "b": "DOUBLE", "s": "VARCHAR", "t": "BOOLEAN", "d": "DATE",
    "m": "TIMESTAMP",
}  # fmt: skip
WORDS = [text.replace("\0", "0") for text in OTHER_WORDS if text] + [
    None, "", "12", "-3.5", "+7", "1e5", "1E-7", ".5", "5.", "1e29", "1_000", "0b1", "1e400", "1d", "1f",
    "12\n", "2024-02-29", "2023-02-29", "2024-2-9", "0000-01-01", "2024-01-01 10:11",
    "2024-01-01T10:11:12.345678",
    "2024-01-01 24:00", "2024-01-01 10:11:60", "2024-01-01 10:00:00+02", "2024-01-01Z", "now", "today",
    "TRUE", "t", "Yes", "off", "on", "É", "é", "ſ", "ß", "İ", "a%b_c", "{x}", "$1", "\\n", "\\", "'", "--",
    "😀x", "e\u0301", "Z", "z", "_", "a b", "  a ", "9" * 30, "9" * 31, "0." + "1" * 30, "1" * 25 + ".5",
    "epoch", "\t", "\u00a0a\u3000", "\u2003", "\ufeffa",
]  # fmt: skip
DAYS = [
    "2024-02-29", "0001-01-01", "9999-12-31", "1969-12-31", "2021-01-03", "2020-12-31", "5877642-06-25 (BC)",
    "infinity", None,
]  # fmt: skip
MOMENTS = [
    "2024-02-29 23:59:59.999999", "0001-01-01 00:00:00", "9999-12-31 23:59:59.999999",
    "1969-12-31 23:59:59.5", "2024-03-31 02:30:00", "2021-01-01 00:00:00", "290309-12-22 (BC) 00:00:00",
    "infinity", None,
]  # fmt: skip
REALS = [
    *NUMBERS, *WEIRD, 0.1, 0.30000000000000004, 1 / 3, 2.5, -2.5, 0.5, 1.5, 1e15, 123456.789, 2.0**53 - 1,
    2.0**62, 2.0**63, 2.0**64, 2.0**-200, 2.0**-201, 2.0**200, 2.0**201, 1e-310, 99.999999, 7.0, -7.0,
]  # fmt: skip


def rows_of(seed, count):
    rng = random.Random(seed)
    reals = [*REALS, *(rng.uniform(-1000, 1000) for _ in range(20))]
    reals += [float(rng.randrange(-99, 99)) for _ in range(20)]
    return [
        (
            *(number % 9, rng.choice(reals), rng.choice(reals), WORDS[number % len(WORDS)]),
            *(rng.choice([True, False, None]), rng.choice(DAYS), rng.choice(MOMENTS)),
        )
        for number in range(count)
    ]


def open_data(place, rows, unit):
    table = place.create("r", COLUMNS)
    place.put("r", COLUMNS, rows)
    source = TableSource(table, unit=unit.key, bounds={"a": (-3, 100), "b": (0, 7.3)})
    return Dataset(place.engine({"r": source}), unit, InMemoryAccount())


def count_of(data, plan):
    """How many rows have which values of the keys."""
    measured = plan.bounded.key_candidates
    result = engine_of(data).execute(measured.sql, measured.key_sets)
    prefix = "p" if "p0" in result else "k"  # public keys are places
    keys = [list(map(repr, result[f"{prefix}{place}"])) for place in range(len(plan.query.keys))]
    return Counter(dict(zip(zip(*keys, strict=True), result["u"].tolist(), strict=True)))


@pytest.fixture(scope="session")
def by_row(tables_in):
    """The same rows in an engine, each of them a unit."""
    rows = rows_of("rows", 3 * len(WORDS))
    return cache(lambda name: open_data(tables_in(name), rows, hb.Unit.row()))


def check(by_row, other, texts, at_once=6):
    """As keys, so that every value of every row is compared, some at once; gives what was refused."""
    refused, known = [], []
    for text in dict.fromkeys(texts):
        try:
            by_row(other).sql(f"SELECT {text} AS k, COUNT(*) AS n FROM r GROUP BY k", epsilon=1, delta=1e-6)
            known.append(text)
        except (Unsupported, InvalidInput):
            refused.append(text)
    compared = 0
    for start in range(0, len(known), at_once):
        some = known[start : start + at_once]
        listed = ", ".join(f"{text} AS k{place}" for place, text in enumerate(some))
        by = ", ".join(f"k{place}" for place in range(len(some)))
        query = f"SELECT {listed}, COUNT(*) AS n FROM r GROUP BY {by}"
        plan = by_row("DuckDB").sql(query, epsilon=1, delta=1e-6)
        one, two = (count_of(by_row(name), plan) for name in ("DuckDB", other))
        if one != two:
            unlike = [list(zip(*(one - two), strict=True)), list(zip(*(two - one), strict=True))]
            pairs = zip(some, *([sorted(set(column)) for column in side] for side in unlike), strict=False)
            raise AssertionError([(text, *both) for text, *both in pairs if both[0] != both[1]])
        compared += one.total()
    assert compared > 200
    return refused


def in_words(text):
    """A truth as a text: else rows where it is neither would be in no group, and not compared."""
    return f"CASE WHEN {text} THEN 'yes' WHEN NOT ({text}) THEN 'no' ELSE 'neither' END"


PLAIN = {kind: [text for text in texts if "o " not in text] for kind, texts in EXPRESSIONS.items()}
PLAIN["boolean"] = [in_words(text) for text in PLAIN["boolean"]]
UNLIKE = [
    *("LN(a)", "EXP(a)", "POW(a, b)", "POW(a, 3)", "POW(a, -0.5)", "LOG10(a)", "LOG(2, a)", "LOG(3, a)"),
    *(text for kind in ("text", "boolean") for text in PLAIN[kind] if "REGEXP" in text),
]
"""Their last bit, or which match is the first, is not the same everywhere."""


def detect_plain(by_row, other, kind):
    assert check(by_row, other, PLAIN[kind]) == [text for text in PLAIN[kind] if text in UNLIKE]


@pytest.mark.sweep(3)
@pytest.mark.parametrize("kind", PLAIN)
def test_expressions_agree_on_postgres(by_row, kind):
    detect_plain(by_row, "PostgreSQL", kind)


def test_some_expressions_agree_on_spark(by_row):
    some = [text for texts in PLAIN.values() for text in texts[::80] if text not in UNLIKE]
    assert not check(by_row, "Spark", some)


CONSTANT = [
    f"CASE WHEN t THEN {of_constants(text, place)} END"
    for kind, texts in PLAIN.items()
    for text in texts
    for place in range(len(CONSTANTS["number"]))
]


def check_constants(by_row, other, texts):
    """Two at once, since of constants the keys are known, and too many where six meet."""
    assert len(check(by_row, other, texts, at_once=2)) < len(texts)


def test_constant_expressions_agree_on_postgres(by_row):
    check_constants(by_row, "PostgreSQL", CONSTANT[::17])


@pytest.mark.long
@pytest.mark.parametrize("other", OTHERS)
@pytest.mark.parametrize("part", range(4))
def test_all_constant_expressions_agree(by_row, other, part):
    check_constants(by_row, other, CONSTANT[part::4])


@pytest.mark.long
@pytest.mark.parametrize("kind", PLAIN)
def test_expressions_agree_on_spark(by_row, kind):
    detect_plain(by_row, "Spark", kind)


def nested_ones(seed, count):
    rng = random.Random(seed)
    texts = [nested(rng, rng.choice(list(PLAIN)), 3) for _ in range(count)]
    return [text for text in texts if "o IS" not in text]


def test_nested_expressions_agree_on_postgres(by_row):
    texts = nested_ones("nested", 30)
    assert len(check(by_row, "PostgreSQL", texts)) < len(texts) / 2


@pytest.mark.long
@pytest.mark.parametrize("other", OTHERS)
@pytest.mark.parametrize("seed", range(3))
def test_many_nested_expressions_agree(by_row, other, seed):
    texts = nested_ones(seed, 200)
    assert len(check(by_row, other, texts)) < len(texts) / 2


# Queries


SUBTLE = {
    "SELECT a, COUNT(*) AS n FROM r GROUP BY a": {"keys": {"a": [None]}},
    "SELECT s, COUNT(*) AS n FROM r GROUP BY s": {"keys": {"s": [None]}},
    "SELECT d, t, COUNT(*) AS n FROM r GROUP BY d, t": {"keys": {"d": [None], "t": [None, True]}},
    "SELECT COUNT(*) AS n FROM (SELECT u, TRUE AS k, COUNT(*) AS c FROM r GROUP BY u, k) AS q": {},
    "SELECT COUNT(*) AS n FROM (SELECT u, 'x' AS k, 1.5 AS j FROM r GROUP BY u, k, j) AS q": {},
    "SELECT SUM(a) AS n, CORR(a, b) AS c, COUNT(*) AS m, MEDIAN(b) AS d FROM r": {},
    "SELECT SUM(b) AS n, REGR_SLOPE(b, a) AS s FROM r": {},
    "PIVOT r ON s IN ('x', 'Ab') USING COUNT(*), SUM(a) AS a GROUP BY t": {},
    "SELECT t, MEDIAN(a) AS m, MAX(b) AS n FROM r GROUP BY t": {
        "bounds": {"a": (-(10**9), 10**9), "b": (0, 10**12)}
    },
    "SELECT t, SUM(a) AS n, VARIANCE(b) AS v FROM r GROUP BY t": {"groups_per_unit": 2, "rows_per_group": 1},
    "SELECT t, COUNT(DISTINCT u) AS n FROM r GROUP BY t": {"groups_per_unit": 2},
    "SELECT t, SUM(a, contribution_bounds_per_group => (-9, 9)) AS s FROM r GROUP BY t": {
        "groups_per_unit": 2
    },
}
"""What some engines take for something else, though no row can tell."""


def check_subtle(tables_in, other):
    rows = rows_of("subtle", 60)
    one, two = (open_data(tables_in(name), rows, hb.Unit("u")) for name in ("DuckDB", other))
    for text, options in SUBTLE.items():
        first, second = (
            [
                integers(engine_of(data).execute(measured.sql, measured.key_sets))
                for measured in data.sql(
                    text,
                    epsilon=1,
                    **({} if "groups_per_unit" in options else {"rows_per_unit": 3}),
                    **options,
                ).bounded.bounded_aggregates
            ]
            for data in (one, two)
        )
        assert first == second, text
        assert any(first), text


def test_edge_cases_agree_on_postgres(tables_in):
    check_subtle(tables_in, "PostgreSQL")


@pytest.mark.long
def test_edge_cases_agree_on_spark(tables_in):
    check_subtle(tables_in, "Spark")


def integers(result):
    """What an engine gave, in an order of its own."""
    names = sorted(result)
    return sorted(zip(*(map(repr, result[name].tolist()) for name in names), strict=True))


def check_queries(tables_in, other, count, seed, unit, *, sources=()):
    """Where keys are kept by a hash, which is each engine's own, they are as many."""
    one, two = World.of(unit), World.of(unit, tables_in(other))
    ran = 0
    for number in range(count):
        rng = seeded("engines", seed, unit.key, number)
        try:
            query = case(rng, one, sources)
            engine_of(two.dataset).compile(query.plan.query.rows)
        except Unsupported:
            continue
        for name, rows in databases(rng, unit)[0].items():
            plain = [tuple(v.replace("\0", "0") if isinstance(v, str) else v for v in row) for row in rows]
            one.put(name, plain)
            two.put(name, plain)
        first, second = (world.measured(query.plan) for world in (one, two))
        for name, (measured, result) in first.items():
            is_kept = measured.rule == "Distinct values" or (
                query.plan.bounded.selects_keys and unit.key is not None
            )
            if not is_kept:
                assert integers(result) == integers(second[name][1]), (query.text, name)
            elif name == "keys":
                assert result["u"].sum() == second[name][1]["u"].sum()
        ran += 1
    return ran


UNITS = {"unit": hb.Unit("u"), "row": hb.Unit.row()}


@pytest.mark.parametrize("unit", UNITS)
def test_queries_agree_on_postgres(tables_in, unit):
    assert check_queries(tables_in, "PostgreSQL", 6, "short", UNITS[unit]) > 2


def test_other_spellings_agree_on_postgres(tables_in):
    assert check_queries(tables_in, "PostgreSQL", 8, "spellings", UNITS["unit"], sources=SPELLINGS) > 2


@pytest.mark.long
@pytest.mark.parametrize("other", OTHERS)
def test_many_other_spellings_agree(tables_in, other):
    assert check_queries(tables_in, other, 40, "long spellings", UNITS["unit"], sources=SPELLINGS) > 10


def test_queries_agree_on_spark(tables_in):
    assert check_queries(tables_in, "Spark", 2, "short", UNITS["unit"])


@pytest.mark.long
@pytest.mark.parametrize("other", OTHERS)
@pytest.mark.parametrize("unit", UNITS)
def test_many_queries_agree(tables_in, other, unit):
    count = {"PostgreSQL": 1000, "Spark": 60}[other]
    assert check_queries(tables_in, other, count, "long", UNITS[unit]) > count / 3
