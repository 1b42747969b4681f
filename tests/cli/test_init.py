"""`hubbub init`, as an owner uses it."""

import tomllib
from pathlib import Path
from unittest import mock

import duckdb
import pytest

import hubbub
from cli.terminal import run
from hubbub.config import read_config
from hubbub.engines.schema import Kind
from hubbub.output_files import CONFIG_NAME

ROWS = "patient,region,cost,day\np1,North,12,2024-01-01\np2,Secret,77777,2024-01-02\n"


@pytest.fixture(autouse=True)
def there(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("visits.csv").write_text(ROWS)


@pytest.mark.slow
def test_init_writes_the_answers_given():
    # The unit; region: type, keys; cost: type, bounds; day: type, keys; then what is true of all.
    answers = [
        "patient",
        "text",
        "North,South",
        "number",
        "0:5000.5",
        "date",
        "",
        "20000",
        "10",
        "",
        "1",
        "1e-6",
        "",
    ]
    out = run("init", "visits.csv", typed="\n".join(answers) + "\n\n")
    assert out.code == 0, out.stderr
    assert "written: hubbub.toml" in out.stdout
    facts = read_config(CONFIG_NAME)
    (table,) = facts.tables
    assert (table.name, table.unit) == ("visits", "patient")
    assert table.types == {"cost": Kind.NUMBER, "day": Kind.DATE}
    assert table.bounds == {"cost": (0, 5000.5)}
    assert table.keys == {"region": ("North", "South")}
    assert (facts.population, facts.rows_per_unit, facts.groups_per_unit) == (20000, 10, None)
    assert (facts.budget.epsilon, float(facts.budget.delta)) == (1, 1e-6)
    assert facts.ledger == "visits.ledger"
    assert run("plan", "visits.csv", "SELECT AVG(cost) AS a FROM visits", "--epsilon", "1").code == 0
    command = "query", "visits.csv", "SELECT COUNT(*) AS n FROM visits", "--epsilon", "0.75"
    assert run(*command).code == 0
    assert Path("visits.ledger").exists()
    assert "does not fit" in run(*command[:2], "SELECT AVG(cost) AS a FROM visits", *command[3:]).stderr


def test_init_suggests_nothing_from_the_rows():
    out = run("init", "visits.csv", typed="patient\n" + "\n" * 20)
    text = out.stdout + out.stderr + Path(CONFIG_NAME).read_text()
    for secret in ("Secret", "77777", "North", "p1", "2024"):
        assert secret not in text


def test_init_uses_defaults_in_scripts():
    out = run("init", "visits.csv", "--unit", "Patient", "--yes")
    assert out.code == 0, out.stderr
    assert tomllib.loads(Path(CONFIG_NAME).read_text()) == {
        "tables": {"visits": {"path": "visits.csv", "unit": "patient"}}
    }
    assert run("plan", "visits.csv", "SELECT COUNT(*) AS n FROM visits", "--epsilon", "1").code == 0


def test_init_declares_the_columns_of_json():
    Path("v.ndjson").write_text('{"patient": 1, "cost": 7, "region": "North"}\n')
    count = ("SELECT COUNT(*) AS n, AVG(cost) AS c FROM v", "--epsilon", "1", "--bounds", "cost=0:9")
    out = run("plan", "v.ndjson", *count, "--unit", "patient")
    assert out.stderr.startswith("no column 'cost' is declared")
    assert "Fix: declare it with its type, as --type cost=text or number," in out.stderr
    for words, typed in (
        (("--type", "patient=number,cost=number", "--unit", "patient", "--yes"), ""),
        ((), "patient=number,cost=number\npatient\n" + "\n" * 20),
    ):
        out = run("init", "v.ndjson", "--force", *words, typed=typed)
        assert out.code == 0, out.stderr
        declared = tomllib.loads(Path(CONFIG_NAME).read_text())["tables"]["v"]
        assert declared["types"] == {"patient": "number", "cost": "number"}
        assert run("plan", "v.ndjson", *count).code == 0
    assert run("init", "v.ndjson", "--force", "--unit", "patient", "--yes").code == 0
    assert "types" not in tomllib.loads(Path(CONFIG_NAME).read_text())["tables"]["v"]
    assert "--type cost=number" in run("init", "v.ndjson", "--force", "--yes").stderr


def test_init_reads_the_types_of_parquet():
    duckdb.sql("SELECT 1 AS who, 2.5 AS cost, 'a' AS town, true AS ok").write_parquet("bills.parquet")
    out = run("init", "bills.parquet", typed="who\n0:10\na,b\n\n\n\n\n\n")
    assert out.code == 0, out.stderr
    assert "boolean" not in out.stdout
    (table,) = read_config(CONFIG_NAME).tables
    assert (table.types, table.bounds, table.keys) == ({}, {"cost": (0, 10)}, {"town": ("a", "b")})


def test_privacy_unit_has_no_default():
    out = run("init", "visits.csv", "--yes")
    assert out.code == 2
    assert out.stderr.startswith("--unit is missing")
    assert not Path(CONFIG_NAME).exists()


def test_init_overwrites_only_if_forced():
    Path(CONFIG_NAME).write_text("mine")
    out = run("init", "visits.csv", "--unit", "row", "--yes")
    assert out.code == 2
    assert out.stderr.startswith("hubbub.toml exists already")
    assert Path(CONFIG_NAME).read_text() == "mine"
    assert run("init", "visits.csv", "--unit", "row", "--yes", "--force").code == 0
    assert read_config(CONFIG_NAME).tables[0].unit is None


def test_invalid_answer_is_asked_again():
    typed = ["nobody", "", "patient", "x", "text", "a,a", "", "number", "5", "5:1", "0:5", "date", "1.1.", ""]
    typed += ["0", "", "", "", "1/3", "0.5", "2", "0", "none"]
    out = run("init", "visits.csv", typed="\n".join(typed) + "\n\n")
    assert out.code == 0, out.stderr
    message = (
        "no column 'nobody'",
        "'x' is not a type",
        "not distinct",
        "no colon",
        "above its upper bound",
        "not a date",
    )
    for words in (*message, "that is 0", "it is a fraction", "delta is 1 or more"):
        assert words in out.stderr
    facts = read_config(CONFIG_NAME)
    assert facts.tables[0].bounds == {"cost": (0, 5)}
    assert facts.budget == hubbub.Budget(0.5)
    assert facts.ledger is None


def test_odd_names_are_quoted():
    Path('odd "name".csv').write_text('id,"two words",é\n1,2,3\n')
    typed = ["row", "", "a\\b,c", "", "", "", "", "", "", "", "", ""]
    out = run("init", 'odd "name".csv', typed="\n".join(typed) + "\n\n")
    assert out.code == 0, out.stderr
    (table,) = read_config(CONFIG_NAME).tables
    assert table.name == 'odd "name"'
    assert table.keys == {"id": ("a\\b", "c")}


def test_key_file_is_found_beside_the_data(tmp_path):
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "v.csv").write_text("id,town\n1,a\n")
    (folder / "towns.txt").write_text("Ulm\nKiel\n")
    out = run("init", "data/v.csv", typed="id\n\n@towns.txt\n\n\n\n\n\n")
    assert out.code == 0, out.stderr
    assert read_config(folder / CONFIG_NAME).tables[0].keys == {"town": ("Ulm", "Kiel")}


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (["nowhere.csv", "--yes", "--unit", "row"], "nowhere.csv does not exist"),
        (["visits.csv", "--yes", "--unit", "nobody"], "there is no column 'nobody'"),
    ],
)
def test_bad_input_gives_one_line(words, what):
    out = run("init", *words)
    assert out.code == 2
    assert out.stderr.startswith(what)
    assert not Path(CONFIG_NAME).exists()


def test_unwritable_folder_gives_one_line():
    with mock.patch("pathlib.Path.write_text", side_effect=OSError(13, "Permission denied")):
        out = run("init", "visits.csv", "--unit", "row", "--yes")
    assert out.code == 2
    assert "permission denied" in out.stderr


def test_an_encoding_is_declared_along_with_the_names():
    Path("visits.csv").write_bytes("patient,café\n1,é\n".encode("latin-1"))
    words = ("init", "visits.csv", "--unit", "patient", "--yes")
    assert run(*words).code == 2
    assert run(*words, "--encoding", "latin-1").code == 0
    assert read_config(CONFIG_NAME).tables[0].encoding == "latin-1"
    assert [column.name for column in hubbub.open("visits.csv").tables["visits"].columns] == [
        "patient",
        "café",
    ]


def test_init_asks_for_what_synopses_need():
    # Unit; region: type, keys; cost: type, bounds; day: type, keys; the synopsis; then what is true of all.
    columns = ["patient", "text", "North,South", "number", "0:5000", "text", ""]
    synopsis = ["1", "day", "region", "", "region", "cost < 5 AND region = 'South'", "", "nonsense", ""]
    out = run("init", "visits.csv", "--synopsis", typed="\n".join([*columns, *synopsis, *[""] * 6]) + "\n")
    assert out.code == 0, out.stderr
    assert "the function cannot be read" in out.stderr
    (table,) = read_config(CONFIG_NAME).tables
    assert table.synopsis == {
        "steps": {"cost": 1},
        "private_keys": ["day"],
        "nulls": ["region"],
        "focus": "region",
        "impossible": ["cost < 5 AND region = 'South'"],
    }
    plan = run("synopsis", "visits.csv", "--epsilon", "1", "--delta", "1e-6", "--rows-per-unit", "1")
    assert plan.code == 0, plan.stderr
    assert "Categories of day are selected privately" in plan.stdout


def test_init_asks_for_bins_of_dates_and_keeps_booleans():
    Path("people.csv").write_text("joined,member,note\n2024-02-01,true,a\n2024-12-30,false,b\n")
    columns = ["row", "date", "", "boolean", "text", ""]
    synopsis = ["soon", "2025-01-01:2024-01-01 : 2024-07-01", *[""] * 6]
    out = run("init", "people.csv", "--synopsis", typed="\n".join([*columns, *synopsis, *[""] * 6]) + "\n")
    assert out.code == 0, out.stderr
    assert "there are not two dates" in out.stderr
    (table,) = read_config(CONFIG_NAME).tables
    assert table.synopsis == {
        "columns": ["joined", "member"],
        "cuts": {"joined": ["2024-01-01", "2024-07-01", "2025-01-01"]},
    }
    plan = run("synopsis", "people.csv", "--epsilon", "1", "--delta", "1e-6")
    assert plan.code == 0, plan.stderr
    assert "joined × member" in plan.stdout


def test_init_writes_functions_of_columns():
    columns = ["patient", "text", "North,South", "text", "n,s", "text", ""]
    synopsis = ["", "", "", "", "", "cost of region: North=n, South=s", ""]
    out = run("init", "visits.csv", "--synopsis", typed="\n".join([*columns, *synopsis, *[""] * 6]) + "\n")
    assert out.code == 0, out.stderr
    (table,) = read_config(CONFIG_NAME).tables
    assert table.synopsis == {
        "columns": ["region", "cost"],
        "functions": {"cost": {"of": "region", "table": {"North": "n", "South": "s"}}},
    }
    # The day is of no use without keys: it is left out, and what follows works.
    plan = run("synopsis", "visits.csv", "--epsilon", "1", "--delta", "1e-6", "--rows-per-unit", "1")
    assert plan.code == 0, plan.stderr


def test_init_asks_for_what_the_label_says():
    Path("v.csv").write_text("id\n1\n")
    typed = ["row", "number", "", "", "", "", "", "y", "Visits", "", "planning"]
    out = run("init", "v.csv", typed="\n".join(typed) + "\n" * 30)
    assert out.code == 0, out.stderr
    about = read_config(CONFIG_NAME).about
    assert set(about) <= {"name", "use", "curators", "kind"}
    assert "planning" in about.values()
