"""Declared rules and functions hold for every synthetic row, or are refused before anything is charged."""

import tracemalloc

import duckdb
import numpy as np
import pytest

import hubbub as hb
from hubbub.errors import InvalidInput

CODES = [f"{letter}{number:02}" for letter in "abcd" for number in range(25)]
FEW = [code for code in CODES if int(code[1:]) < 3]
# One category is no value of the function: noise makes it seem to have rows.
KEYS = {
    "code": CODES,
    "cat": [*"abcde"],
    "odd": ["0", "1"],
    "sex": ["f", "m"],
    "long": [c + "x" for c in CODES],
}
CAT = {"of": "code", "table": {code: code[0] for code in CODES}}
ODD = {"of": "code", "table": {code: str(int(code[1:]) % 2) for code in CODES}}
CODE = {"of": "long", "table": {code + "x": code for code in CODES}}
# The first code of each category: with CAT, all others are impossible.
FIRST = {"of": "cat", "table": {letter: (letter if letter < "e" else "a") + "00" for letter in "abcde"}}
DECLARED = {
    "category": ({"cat": CAT}, None),
    "category in focus": ({"cat": CAT}, "cat"),
    "code in focus": ({"cat": CAT, "odd": ODD}, "code"),
    "two categories": ({"cat": CAT, "odd": ODD}, None),
    "two categories, one in focus": ({"cat": CAT, "odd": ODD}, "odd"),
    "chain": ({"code": CODE, "cat": CAT}, None),
    "chain, the last first": ({"cat": CAT, "code": CODE}, None),
    "cycle": ({"cat": CAT, "code": FIRST}, None),
}


def open_codes(keys=KEYS):
    connection = duckdb.connect()
    listed = ", ".join(f"'{code}'" for code in keys["code"])
    connection.execute(
        f"CREATE TABLE t AS SELECT code, code[1] AS cat, code[3] AS number, code || 'x' AS long, sex FROM "
        f"(SELECT [{listed}][1 + i * 7 % {len(keys['code'])}] AS code, ['f', 'm'][1 + i % 2] AS sex "
        "FROM range(3000) r(i))"
    )
    connection.execute("ALTER TABLE t ADD COLUMN odd VARCHAR")
    connection.execute("UPDATE t SET odd = CAST(CAST(number AS INTEGER) % 2 AS VARCHAR)")
    return hb.open(connection, table="t", unit=hb.Unit.row(), keys=keys)


def restrict(functions, codes):
    """The functions for some of the codes."""
    known = {*codes, *(code + "x" for code in codes), *"abcde"}
    return {
        target: {**each, "table": {key: value for key, value in each["table"].items() if key in known}}
        for target, each in functions.items()
    }


@pytest.mark.slow
@pytest.mark.sweep(4)
@pytest.mark.parametrize("codes", [CODES, FEW], ids=["many codes", "few codes"])
@pytest.mark.parametrize("declared", DECLARED)
@pytest.mark.parametrize("door", ["plan_synopsis", "plan_synthesis"])
def test_no_row_breaks_a_declared_function(door, declared, codes):
    functions, focus = DECLARED[declared]
    functions = restrict(functions, codes)
    data = open_codes({**KEYS, "code": codes, "long": [code + "x" for code in codes]})
    columns = ["code", "cat", "sex", *(name for name in ("odd", "long") if name in str(functions))]
    plan = getattr(data, door)(epsilon=1, delta=1e-6, columns=columns, functions=functions, focus=focus)
    released = plan.run().value
    rows = released.synthetic(5000).to_pandas()
    for target, each in functions.items():
        assert (rows[each["of"]].map(each["table"]) == rows[target]).all()
    if door == "plan_synopsis" and codes is FEW:
        table = released.table("code", "cat", version="consistent").to_pandas()
        if "cat" in functions:
            assert table[table["code"].map(CAT["table"]) != table["cat"]]["n"].sum() == 0


def test_rule_about_a_column_that_is_computed_holds_where_its_source_is_merged():
    data = open_codes()
    plan = data.plan_synthesis(
        epsilon=0.1, delta=1e-6, columns=["code", "cat", "sex"], functions={"cat": CAT}, focus="code",
        impossible=["cat = 'b' AND sex = 'f'"],
    )  # fmt: skip
    rows = plan.run().value.synthetic(5000).to_pandas()
    assert not ((rows["cat"] == "b") & (rows["sex"] == "f")).any()
    assert (rows["code"].map(CAT["table"]) == rows["cat"]).all()


@pytest.mark.slow
@pytest.mark.parametrize("door", ["plan_synopsis", "plan_synthesis"])
@pytest.mark.parametrize("cuts", [{"age": [18, 65]}, {}], ids=["cuts", "no cuts"])
@pytest.mark.parametrize(
    ("rule", "is_broken"),
    [
        ("age < 99 AND sex = 'f'", lambda age, sex: (age < 99) & (sex == "f")),
        ("age <= 98 AND sex = 'f'", lambda age, sex: (age <= 98) & (sex == "f")),
        ("age = 99 AND sex = 'm'", lambda age, sex: (age == 99) & (sex == "m")),
        ("age > 97.5 AND sex = 'm'", lambda age, sex: (age > 97.5) & (sex == "m")),
    ],
)
def test_rules_reach_up_to_the_highest_value_and_no_further(door, cuts, rule, is_broken):
    connection = duckdb.connect()
    # All women have the highest age, nobody else has.
    connection.execute(
        "CREATE TABLE t AS SELECT CASE WHEN i % 2 = 0 THEN 99 ELSE i % 97 END AS age, "
        "CASE WHEN i % 2 = 0 THEN 'f' ELSE 'm' END AS sex FROM range(4000) r(i)"
    )
    data = hb.open(
        connection, table="t", unit=hb.Unit.row(), keys={"sex": ["f", "m"]}, bounds={"age": (0, 99)}
    )
    plan = getattr(data, door)(epsilon=10, delta=1e-6, steps={"age": 1}, cuts=cuts, impossible=[rule])
    rows = plan.run().value.synthetic(4000).to_pandas()
    assert not is_broken(rows["age"], rows["sex"]).any()
    assert rows["age"].max() <= 99
    assert (rows["sex"] == "f").sum() > 1500  # exactly 2,000: the rule does not exclude them


@pytest.mark.parametrize("door", ["plan_synopsis", "plan_synthesis"])
@pytest.mark.parametrize(
    ("rule", "problem"),
    [
        ("sex = 'x' AND age < 18", "not declared"),
        ("sex IN ('f', 'x') AND age < 18", "not declared"),
        ("age < -5 AND sex = 'f'", "excludes no cell"),
        ("age IS NULL AND sex = 'f'", "excludes no cell"),
        ("age = 17.5 AND sex = 'f'", "not made of comparisons"),
        ("income < 1000 AND sex = 'f'", "upper bound"),
        (" AND ".join(f"c{place} = 1" for place in range(12)), "connects 12 columns"),
    ],
)
def test_rules_that_say_nothing_or_too_much_are_refused(door, rule, problem):
    connection = duckdb.connect()
    many = {f"c{place}": list(range(20)) for place in range(12)}
    columns = ", ".join(f"{name} INTEGER" for name in many)
    connection.execute(f"CREATE TABLE t (sex VARCHAR, age DOUBLE, income DOUBLE, {columns})")
    data = hb.open(
        connection, table="t", unit=hb.Unit.row(), keys={"sex": ["f", "m"], **many},
        bounds={"age": (0, 99), "income": (0, 1000)},
    )  # fmt: skip
    with pytest.raises(InvalidInput, match=problem):
        getattr(data, door)(epsilon=1, delta=1e-6, steps={"age": 1}, impossible=[rule])


def test_a_thousand_rules_are_planned_in_a_moment():
    """Each set of columns is checked once, however many rules are about it."""
    data = open_codes({**KEYS, "code": FEW})
    rules = [f"code = '{code}' AND sex = 'f'" for code in FEW[1:]] * 100
    plan = data.plan_synopsis(epsilon=1, delta=1e-6, columns=["code", "sex"], impossible=rules)
    assert plan.domain.mask(("code", "sex"))[:, 0].sum() == 1


def test_rows_of_a_synopsis_with_too_many_connected_rules_are_refused():
    connection = duckdb.connect()
    names = [f"c{place}" for place in range(10)]
    connection.execute(f"CREATE TABLE t ({', '.join(f'{name} INTEGER' for name in names)})")
    data = hb.open(connection, table="t", unit=hb.Unit.row(), keys={name: list(range(30)) for name in names})
    rules = [f"{one} = 1 AND {two} = 2" for one in names for two in names if one < two]
    synopsis = data.plan_synopsis(1, epsilon=1, delta=1e-6, impossible=rules).run().value
    with pytest.raises(hb.HubbubError, match="connect columns"):
        synopsis.synthetic(10)
    assert np.isfinite(synopsis.table("c0")["n"]).all()


def open_many_cells(tables):
    """A column for each number of categories, and numbers x and y without cuts."""
    connection = duckdb.connect()
    listed = ", ".join(f"'{name}' || (i % {min(size, 64)}) AS {name}" for name, size in tables.items())
    connection.execute(
        f"CREATE TABLE t AS SELECT {listed}, i * 7 % 101 * 1.0 AS x, i * 11 % 101 * 1.0 AS y "
        "FROM range(2000) r(i)"
    )
    keys = {name: [f"{name}{place}" for place in range(size)] for name, size in tables.items()}
    return hb.open(
        connection, table="t", unit=hb.Unit.row(), keys=keys, bounds={"x": (0, 100), "y": (0, 100)}
    )


@pytest.mark.slow
def test_a_rule_about_categories_and_a_number_without_cuts_is_no_failure_after_the_charge():
    """The grid on which bins are found has 2,048 cells, and the rule was looked at in all of its cells."""
    data = open_many_cells({"a": 260, "b": 130})
    plan = data.plan_synthesis(
        epsilon=1, delta=1e-6, columns=["a", "b", "x"], impossible=["a = 'a1' AND b = 'b1' AND x < 5"]
    )
    rows = plan.run().value.synthetic(2000).to_pandas()
    assert not ((rows["a"] == "a1") & (rows["b"] == "b1") & (rows["x"] < 5)).any()


def test_rules_about_computed_columns_with_too_many_cells_are_refused_before_anything_is_charged():
    """A computed column is in no model, so its cells did not count until bins were found."""
    data = open_many_cells({"s": 64, "z": 60_000, "c": 8})
    function = {"of": "s", "table": {f"s{place}": f"z{place}" for place in range(64)}}
    with pytest.raises(InvalidInput, match="connect columns"):
        data.plan_synthesis(
            epsilon=1, delta=1e-6, functions={"z": function},
            impossible=["z = 'z1' AND c = 'c1' AND x < 5 AND y < 5"],
        )  # fmt: skip


@pytest.mark.parametrize("is_connected", [False, True], ids=["one code", "two codes"])
def test_rules_about_functions_of_long_codes_are_planned_or_refused_in_little_memory(is_connected):
    """The table of two functions of one code was made from that of the code with itself: 4e8 cells."""
    size = 20_000
    data = open_many_cells({"a": size, "b": size, "c": 2, "d": 2, "e": 2, "f": 2})
    functions = {
        name: {"of": code, "table": {f"{code}{place}": f"{name}{place // step % 2}" for place in range(size)}}
        for name, code, step in (("c", "a", 1), ("d", "a", 2), ("e", "b", 1), ("f", "b", 2))
    }
    rules = ["c = 'c0' AND d = 'd1'", "e = 'e0' AND f = 'f1'"]
    rules += ["c = 'c0' AND e = 'e0'"] * is_connected
    tracemalloc.start()
    try:
        data.plan_synthesis(epsilon=1, delta=1e-6, columns=[*"abcdef"], functions=functions, impossible=rules)
        is_refused = False
    except InvalidInput as problem:
        is_refused = "connect columns" in str(problem)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert is_refused == is_connected
    assert peak < 3e8
