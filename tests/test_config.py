"""`hubbub.toml`: what the owner declares once."""

import contextlib
import os
from datetime import date
from fractions import Fraction
from pathlib import Path

import pandas as pd
import pytest
from pyarrow.dataset import dataset

import hubbub
from hubbub.config import read_config
from hubbub.config_lookup import find_config
from hubbub.config_values import parse_keys, parse_kind, read_key_texts
from hubbub.engines.schema import Kind
from hubbub.errors import BudgetExceeded, HubbubError, InvalidInput, Refused
from hubbub.ledger import Ledger
from hubbub.output_files import CONFIG_NAME

VISITS = '[tables.visits]\npath = "visits.csv"\nunit = "patient"\n'
SQL = "SELECT region, COUNT(*) AS n, AVG(cost) AS cost FROM visits GROUP BY region"


@pytest.fixture
def folder(tmp_path):
    rows = [f"p{i // 3},{'North' if i % 2 else 'South'},{i % 100},{i % 12 + 1}" for i in range(3000)]
    (tmp_path / "visits.csv").write_text("patient,region,cost,ward\n" + "\n".join(rows) + "\n")
    (tmp_path / "towns.csv").write_text("region,town\nNorth,Kiel\nSouth,Ulm\n")
    return tmp_path


def write(folder: Path, text: str) -> Path:
    (folder / CONFIG_NAME).write_text(text)
    return folder / CONFIG_NAME


FULL = """
population = 1000
rows_per_unit = 3
groups_per_unit = 2

[budget]
epsilon = 1.5
delta = 1e-6

[tables.visits]
path = "visits.csv"
unit = "patient"
types = { cost = "number", ward = "integer" }
bounds = { cost = [0, 99.5] }
keys = { region = ["North", "South"], ward = "1:12" }

[tables.towns]
path = "towns.csv"
public = true
"""


def test_declaration_is_read_exactly(folder):
    facts = read_config(write(folder, FULL))
    visits, towns = facts.tables
    assert (facts.population, facts.rows_per_unit, facts.groups_per_unit) == (1000, 3, 2)
    assert facts.budget == hubbub.Budget(Fraction(3, 2), Fraction(1, 10**6), population=1000)
    assert facts.unit == hubbub.Unit("patient")
    assert visits.path == str(folder / "visits.csv")
    assert visits.types == {"cost": Kind.NUMBER, "ward": Kind.NUMBER}
    assert visits.bounds == {"cost": (0, Fraction(199, 2))}
    assert visits.keys == {"region": ("North", "South"), "ward": tuple(float(i) for i in range(1, 13))}
    assert towns.is_public
    assert not visits.is_public


def test_decimals_are_read_exactly(folder):
    confirmed = "[budget]\nepsilon = 21\nallow_large_epsilon = true\n"
    assert read_config(write(folder, VISITS + confirmed)).budget.epsilon == 21
    facts = read_config(write(folder, VISITS + "bounds = { cost = [0.1, 0.3] }\n[budget]\nepsilon = 0.1\n"))
    assert facts.budget.epsilon == Fraction(1, 10)
    assert facts.tables[0].bounds["cost"] == (Fraction(1, 10), Fraction(3, 10))


def test_keys_of_every_type_are_read(folder):
    (folder / "wards.txt").write_text("1\n2\n\n12\n", encoding="utf-8")
    text = VISITS + (
        'types = { ward = "number", day = "date" }\n'
        'keys = { ward = "@wards.txt", day = [2024-01-31], ok = [true, false], size = [0.5, 1], '
        'town = "a, b" }\n'
    )
    keys = read_config(write(folder, text)).tables[0].keys
    assert keys["ward"] == (1.0, 2.0, 12.0)
    assert keys["day"] == (date(2024, 1, 31),)
    assert keys["ok"] == (True, False)
    assert keys["size"] == (0.5, 1.0)
    assert keys["town"] == ("a", "b")


# Opening


@pytest.mark.slow
def test_declared_file_needs_no_further_arguments(folder):
    write(folder, FULL)
    with hubbub.open(folder / "visits.csv") as data:
        assert data.unit == hubbub.Unit("patient")
        plan = data.sql(SQL, epsilon=1)
        assert plan.contribution_bounds.rows == 3
        assert plan.contribution_bounds.groups == 2
        answers = data.run(plan).value
        assert answers["region"] == ["North", "South"]
        assert abs(answers["n"][0] - 1500) < 200
        joined = "SELECT town, COUNT(*) AS n FROM visits JOIN towns USING (region) GROUP BY town"
        assert data.sql(joined, epsilon=0.1, keys={"town": ["Kiel", "Ulm"]}).query.is_public
        with pytest.raises(Refused, match="1/population"):
            data.sql(SQL, epsilon=1, delta=0.001)
        with pytest.raises(BudgetExceeded):
            data.run(plan)


@pytest.mark.slow
def test_declared_ledger_is_used(folder):
    head = 'ledger = "visits.ledger"\naccount = "hospital"\nversion = "2026-11"\n'
    facts = read_config(write(folder, head + FULL))
    assert facts.ledger == str(folder / "visits.ledger")
    assert (facts.account, facts.version) == ("hospital", "2026-11")
    answers = []
    for path in (folder / CONFIG_NAME, folder / CONFIG_NAME, folder / "visits.csv"):
        with hubbub.open(path) as data:
            answers.append(data.run(data.sql("SELECT COUNT(*) AS n FROM visits", epsilon=1)).value["n"])
            assert data.account.spent().epsilon == 1
            assert data.version == "2026-11"
    assert answers[0] == answers[1]
    with hubbub.open(folder / CONFIG_NAME) as data, pytest.raises(BudgetExceeded):
        data.run(data.sql("SELECT COUNT(*) AS m FROM visits", epsilon=1))
    database = 'ledger = "postgresql://localhost/x"\n'
    assert read_config(write(folder, database + FULL)).ledger == "postgresql://localhost/x"


def test_declaration_opens_all_its_tables(folder, monkeypatch):
    path = write(folder, FULL)
    with hubbub.open(str(path)) as data:
        assert set(data.tables) == {"visits", "towns"}
    monkeypatch.chdir(folder)
    with hubbub.open(CONFIG_NAME) as data:
        assert data.tables["towns"].is_public
    with pytest.raises(InvalidInput, match="a table is named besides"):
        hubbub.open(CONFIG_NAME, table="v")


def test_passed_arguments_override_declared_ones(folder):
    write(folder, FULL)
    with hubbub.open(
        folder / "visits.csv",
        table="v",
        unit="Patient",
        types={"cost": "text"},
        keys={"region": ["North"]},
        bounds={"ward": (1, 12)},
        population=5000,
        rows_per_unit=9,
        groups_per_unit=1,
    ) as data:
        table = data.tables["v"]
        assert table.find("cost").kind is Kind.TEXT
        assert table.find("region").keys == ("North",)
        assert table.find("ward").bounds == (1, 12)
        assert table.find("patient").is_unit
        plan = data.sql("SELECT region, COUNT(*) AS n FROM v GROUP BY region", epsilon=1)
        assert (plan.contribution_bounds.rows, plan.contribution_bounds.groups) == (9, 1)
        with pytest.raises(Refused):
            data.sql("SELECT COUNT(*) AS n FROM v", epsilon=1, delta=1 / 5000)
    with pytest.raises(Refused, match="declares another population"):
        hubbub.open(folder / "visits.csv", population=50)


def test_passed_arguments_apply_to_the_opened_table(folder):
    more = '[tables.bills]\npath = "bills.csv"\nunit = "who"\n'
    (folder / "bills.csv").write_text("who,euros\np1,3\n")
    write(folder, VISITS + more)
    with hubbub.open(folder / "visits.csv", types={"cost": "number"}) as data:
        assert data.tables["visits"].find("cost").kind is Kind.NUMBER
        assert data.tables["bills"].find("who").is_unit
        both = "SELECT COUNT(*) AS n FROM visits JOIN bills ON visits.patient = bills.who"
        exact = data.exact(data.sql(both, epsilon=1, rows_per_unit=9))
        assert exact["n"] == [3]


def test_row_unit_must_be_declared(folder):
    write(folder, VISITS.replace('"patient"', '"row"'))
    with hubbub.open(folder / "visits.csv") as data:
        assert data.unit == hubbub.Unit.row()


def test_undeclared_files_have_no_declaration(folder):
    other = folder / "other.csv"
    other.write_text("a,b\n1,2\n")
    assert find_config(other) is None
    write(folder, VISITS)
    assert find_config(other) is None
    assert find_config(folder / "visits.csv").opened_table == "visits"
    assert find_config({"visits": "visits.csv"}) is None
    with pytest.raises(InvalidInput, match="the unit is not given"):
        hubbub.open(other)


def test_file_pattern_can_be_declared(folder):
    (folder / "part_1.csv").write_text("patient\n1\n")
    (folder / "part_2.csv").write_text("patient\n2\n")
    write(folder, VISITS.replace("visits.csv", "part_*.csv"))
    assert find_config(folder / "part_*.csv").opened_table == "visits"
    with hubbub.open(folder / "part_*.csv") as data:
        assert set(data.tables) == {"visits"}


# Which rows are declared, and what holds of them

KEPT = 'ledger = "visits.ledger"\n[budget]\nepsilon = 9\n' + VISITS
COUNT = "SELECT COUNT(*) AS n FROM visits"


def kinds(folder, account="visits"):
    with Ledger.open(folder / "visits.ledger") as ledger:
        return [entry.kind for entry in ledger.account(account).entries()]


@pytest.mark.slow
def test_declaration_applies_under_every_name_of_the_rows(folder, monkeypatch):
    write(folder, KEPT)
    file = folder / "visits.csv"
    (folder / "away" / "below").mkdir(parents=True)
    (folder / "away" / "link.csv").symlink_to(file)
    os.link(file, folder / "away" / "below" / "same.csv")
    for data in (
        file,
        folder / "visits.cs[v]",
        folder / "v*.csv",
        folder / "away" / ".." / "visits.csv",
        folder / "away" / "link.csv",
        folder / "away" / "below" / "same.csv",
        {"visits": file},
        {"v": str(folder / "away" / "link.csv")},
    ):
        facts = find_config(data)
        assert (facts.ledger, facts.account) == (str(folder / "visits.ledger"), "visits")
        with hubbub.open(data) as handle:
            assert handle.account.name == "visits"
            assert handle.unit.key == "patient"
    # Found also where the rows are then refused: Arrow takes the types of a CSV file from its rows.
    assert find_config(dataset(file, format="csv")).account == "visits"
    monkeypatch.chdir(folder / "away")
    assert find_config("link.csv") is not None


def test_a_declaration_is_found_in_a_folder_above(folder):
    (folder / "2026" / "11").mkdir(parents=True)
    (folder / "visits.csv").rename(folder / "2026" / "11" / "visits.csv")
    write(folder, KEPT.replace("visits.csv", "2026/*/visits.csv"))
    assert find_config(folder / "2026" / "11" / "visits.csv").opened_table == "visits"
    assert find_config(folder / "towns.csv") is None


def test_files_of_several_tables_are_not_one(folder):
    write(folder, VISITS + '[tables.towns]\npath = "towns.csv"\nunit = "region"\n')
    with pytest.raises(InvalidInput, match="in several tables"):
        find_config(folder / "*.csv")


def test_mapping_uses_the_declaration_of_each_table(folder):
    write(folder, FULL)
    rows = {"v": folder / "visits.csv", "more": pd.DataFrame({"patient": ["p1"], "x": [1]})}
    with hubbub.open(rows) as data:
        assert data.tables["v"].find("cost").kind is Kind.NUMBER
        assert data.tables["more"].find("patient").is_unit
        assert set(data.tables) == {"v", "more"}


def test_two_declarations_of_the_same_rows_must_agree(folder):
    write(folder, KEPT)
    (folder / "mine").mkdir()
    mine = folder / "mine" / CONFIG_NAME
    own = KEPT.replace("visits.csv", "../visits.csv")
    mine.write_text(own.replace("visits.ledger", "../visits.ledger"), encoding="utf-8")
    assert find_config(mine).account == "visits"
    for text in (
        own,
        own.replace("visits.ledger", "../visits.ledger").replace("epsilon = 9", "epsilon = 10"),
        own.replace("visits.ledger", "../visits.ledger").replace("patient", "row"),
        own.replace("visits.ledger", "../visits.ledger").replace("tables.visits", "tables.v"),
    ):
        mine.write_text(text, encoding="utf-8")
        with pytest.raises(Refused, match="declare the same rows differently"):
            find_config(mine)
    (folder / "mine" / "v.csv").symlink_to(folder / "visits.csv")
    with pytest.raises(Refused, match="declare the same rows differently"):
        find_config(folder / "mine" / "v.csv")


@pytest.mark.sweep(3)
@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"unit": hubbub.Unit.row()}, "unit"),
        ({"unit": hubbub.Unit("patient", hubbub.Neighbours.SUBSTITUTE)}, "unit"),
        ({"ledger": "other.ledger"}, "ledger"),
        ({"account": "b"}, "account"),
        ({"budget": hubbub.Budget(10)}, "budget"),
        ({"unit": "region", "ledger": "other.ledger"}, "unit, ledger"),
        ({"window": hubbub.Window.of("day", "2026-11")}, "window"),
    ],
)
def test_declaration_holds_unless_overridden_explicitly(folder, options, what, monkeypatch):
    monkeypatch.chdir(folder)
    write(folder, KEPT)
    with pytest.raises(Refused, match=f"declares another {what}"):
        hubbub.open("visits.csv", **options)
    assert not (folder / "visits.ledger").exists()
    # Also where the other one is refused for another reason, that it was tried is written first.
    with contextlib.suppress(HubbubError):
        hubbub.open("visits.csv", **options, override=True).close()
    with Ledger.open("visits.ledger") as ledger:
        entries = list(ledger.account("visits").entries())
        assert [entry.body["description"] for entry in entries if entry.kind == "override"] == [
            f"another {what} than declared"
        ]
        assert ledger.verify().ok
    with pytest.raises(Refused, match="only the owner may assert it"):
        hubbub.open("visits.csv", **options, override=True, analyst="ada")


def test_declared_ledger_may_be_named_again(folder):
    write(folder, KEPT)
    with Ledger.open(folder / "visits.ledger") as ledger:
        for same in (ledger, folder / "visits.ledger", str(folder / "." / "visits.ledger")):
            hubbub.open(folder / "visits.csv", ledger=same, unit="PATIENT", budget=hubbub.Budget(9)).close()
    assert kinds(folder) == ["open", "claim"]


def test_override_needs_the_declared_ledger(folder):
    write(folder, VISITS)
    for options in ({}, {"ledger": folder / "other.ledger", "budget": hubbub.Budget(1)}):
        with pytest.raises(HubbubError, match="ledger"):
            hubbub.open(folder / "visits.csv", unit=hubbub.Unit.row(), override=True, **options)


def test_rows_are_public_or_protected(folder):
    write(folder, KEPT)
    with pytest.raises(Refused, match="p is passed as public"):
        hubbub.open(folder / "towns.csv", unit="region", public={"p": folder / "v*.csv"})
    with pytest.raises(InvalidInput, match=r"tables\.p is public, and has a file of tables\.visits"):
        read_config(write(folder, KEPT + '[tables.p]\npath = "*.csv"\npublic = true\n'))


# What is refused


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "tables has no protected table"),
        ("tables = 3", "tables is not a table"),
        ("visits = 3\n" + VISITS, "visits is not known"),
        ("population = 0\n" + VISITS, "in population, population is 0"),
        ("population = 1.5\n" + VISITS, "population is not a whole number"),
        ("population = true\n" + VISITS, "population is not a whole number"),
        ('rows_per_unit = "3"\n' + VISITS, "rows_per_unit is not a whole number"),
        ("groups_per_unit = -1\n" + VISITS, "in groups_per_unit, groups_per_unit is -1"),
        (VISITS + "[budget]\ndelta = 1e-6", "budget has no epsilon"),
        (VISITS + "[budget]\nepsilon = 0", "in budget, epsilon is 0"),
        (VISITS + "[budget]\nepsilon = nan", "in budget, epsilon is not"),
        (VISITS + '[budget]\nepsilon = "1"', "budget.epsilon is not a number"),
        (VISITS + "[budget]\nepsilon = 1\nrho = 1", "budget.rho is not known"),
        ("population = 9\n" + VISITS + "[budget]\nepsilon = 1\ndelta = 0.2", "in budget, delta is not below"),
        ("budget = 1\n" + VISITS, "budget is not a table"),
        (VISITS + "[budget]\nepsilon = 1\ndelta = 0.2", "in budget, delta is above 1/1000"),
        (VISITS + "[budget]\nepsilon = 21", "in budget, epsilon is above 20"),
        (VISITS + "[budget]\nepsilon = 21\nallow_large_epsilon = 1", "in budget, allow_large_epsilon is"),
        ("[tables]\nvisits = 1", "tables.visits is not a table"),
        (VISITS + "colour = 1", "tables.visits.colour is not known"),
        ('[tables.visits]\nunit = "patient"', "tables.visits.path is missing"),
        ('[tables.visits]\nunit = "patient"\npath = "no.csv"', "tables.visits.path leads to no file"),
        ('[tables.visits]\nunit = "patient"\npath = "no*.csv"', "tables.visits.path leads to no file"),
        (
            '[tables.visits]\nunit = "patient"\npath = "a.duckdb"',
            "tables.visits.path is in no format",
        ),
        ('[tables.visits]\npath = "visits.csv"', "tables.visits.unit is missing"),
        ('[tables.visits]\npath = "visits.csv"\nunit = 3', "tables.visits.unit is missing, or not"),
        (VISITS + "public = true", "tables.visits is public and has a unit"),
        (VISITS + "public = 1", "tables.visits.public is not true or false"),
        ('[tables.t]\npath = "towns.csv"\npublic = true', "tables has no protected table"),
        (
            VISITS + '[tables.t]\npath = "towns.csv"\npublic = true\nkeys = { town = ["a"] }',
            "tables.t is public",
        ),
        (VISITS + '[tables.t]\npath = "towns.csv"\nunit = "row"', "tables protects rows in one table"),
        ("ledger = 3\n" + VISITS, "ledger is not a text"),
        ('account = "a"\n' + VISITS, "account is given without a ledger"),
        ('version = "1"\n' + VISITS, "version is given without a ledger"),
        (VISITS + 'types = "number"', "tables.visits.types is not a table"),
        (VISITS + 'types = { cost = "money" }', "in tables.visits.types.cost, 'money' is not a type"),
        (VISITS + "bounds = { cost = 5 }", "tables.visits.bounds.cost is not a pair"),
        (VISITS + "bounds = { cost = [1, true] }", "tables.visits.bounds.cost is not a pair"),
        (
            VISITS + "bounds = { cost = [1] }",
            "in tables.visits.bounds.cost, the bounds of cost are not a pair",
        ),
        (
            VISITS + "bounds = { cost = [5, 1] }",
            "in tables.visits.bounds.cost, the lower bound of cost is above",
        ),
        (VISITS + "bounds = { cost = [0, inf] }", "in tables.visits.bounds.cost, high of cost is not"),
        (VISITS + "keys = { region = 3 }", "tables.visits.keys.region is not a list"),
        (VISITS + "keys = { region = [] }", "tables.visits.keys.region is empty"),
        (
            VISITS + 'keys = { region = ["a", 1] }',
            "tables.visits.keys.region is empty, or has keys of several",
        ),
        (VISITS + "keys = { region = [[1]] }", "tables.visits.keys.region is empty, or has keys of several"),
        (
            VISITS + 'keys = { region = ["a", "a"] }',
            "in tables.visits.keys.region, the keys of region are not distinct",
        ),
        (
            VISITS + 'keys = { region = "@no.txt" }',
            "in tables.visits.keys.region, no.txt, with the keys of region, cannot be read",
        ),
        (VISITS + 'keys = { ward = "9:1" }', "in tables.visits.keys.ward, the keys of ward are not a range"),
        (
            VISITS + 'types = { x = "number" }\nkeys = { x = "a,b" }',
            "in tables.visits.keys.x, a key of x is not",
        ),
        (
            VISITS + 'types = { x = "date" }\nkeys = { x = ["a"] }',
            "in tables.visits.keys.x, a key of x is not",
        ),
    ],
)
def test_a_wrong_entry_is_named_with_its_file(folder, text, what):
    path = write(folder, text)
    with pytest.raises(HubbubError) as error:
        read_config(path)
    assert error.value.what.startswith(f"{path}: {what}")
    assert error.value.fix


def test_unreadable_declarations_are_refused(folder):
    for text, what in ((b"= 3", "is not TOML"), (b"\xff\xfe\x00", "cannot be read")):
        (folder / CONFIG_NAME).write_bytes(text)
        with pytest.raises(InvalidInput, match=what):
            hubbub.open(folder / "visits.csv", unit="patient")
    with pytest.raises(InvalidInput, match="cannot be read"):
        hubbub.open(folder / "nowhere" / CONFIG_NAME)


def test_a_column_that_is_not_there_is_refused_when_it_is_opened(folder):
    write(folder, VISITS + "bounds = { costs = [0, 1] }")
    with pytest.raises(InvalidInput, match="no column 'costs' in visits"):
        hubbub.open(folder / "visits.csv")


# Words


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        ("a,b", ["a", "b"]),
        (" a , b ", ["a", "b"]),
        ("0:3", range(4)),
        ("-2:-2", range(-2, -1)),
        ("10:30,11:00", ["10:30", "11:00"]),
        ("a:b", ["a:b"]),
    ],
)
def test_keys_are_parsed_from_text(text, keys):
    assert read_key_texts(text, "it") == keys


@pytest.mark.parametrize("text", ["3:1", "0:10000000", "0:999999999999999"])
def test_endless_key_range_is_refused(text):
    with pytest.raises(InvalidInput, match="not a range, or more than ten million"):
        read_key_texts(text, "it")


@pytest.mark.parametrize(
    ("kind", "text"), [("number", "x"), ("boolean", "maybe"), ("date", "31.1.2024"), ("timestamp", "noon")]
)
def test_key_of_another_type_is_refused(kind, text):
    with pytest.raises(InvalidInput, match=f"a key of it is not a {kind}"):
        parse_keys([text], "it", parse_kind(kind))


def test_types_are_named_in_words():
    assert parse_kind("VARCHAR") is parse_kind("str") is parse_kind(Kind.TEXT) is Kind.TEXT
    for wrong in ("opaque", "", None, Kind.OPAQUE):
        with pytest.raises(InvalidInput, match="is not a type"):
            parse_kind(wrong)
