"""`hubbub query` and `hubbub plan`, as a person uses them."""

import csv
import io
import json
import os
import re
import shlex
import stat
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path
from unittest import mock

import duckdb
import pytest
from rich.console import Console

import hubbub as hb
from cli.terminal import run
from hubbub.cli.demo import write_visits
from hubbub.cli.options import parse_group_keys
from hubbub.cli.results import show_status
from hubbub.dataset import Dataset
from hubbub.engines.schema import Kind, Table
from hubbub.sql.result import Result

REGIONS = ("North", "South", "East", "West")
BY_REGION = "SELECT region, COUNT(*) AS n FROM visits GROUP BY region"
KEYS = ("--keys", "region=North,South,East,West")
FIRST = (
    'query visits.parquet "SELECT region, COUNT(*) AS n, AVG(cost) AS cost FROM visits GROUP BY region" '
    "--unit patient --epsilon 1 --bounds cost=0:5000 --keys region=North,South,East,West"
)
COUNT = ("visits.parquet", "SELECT COUNT(*) AS n FROM visits", "--unit", "patient")


@pytest.fixture(scope="module")
def hospital(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hospital")
    write_visits(folder / "visits.parquet")
    (folder / "towns.csv").write_text("region,town\nNorth,Kiel\nSouth,Ulm\n")
    (folder / "regions.txt").write_text("North\nSouth\n\nEast\n")
    return folder


@pytest.fixture(autouse=True)
def there(hospital, monkeypatch):
    monkeypatch.chdir(hospital)
    yield
    for left in ("hubbub-exact.log", "hubbub.toml"):
        (hospital / left).unlink(missing_ok=True)


def exact(sql):
    return duckdb.sql(sql.replace("FROM visits", "FROM 'visits.parquet' AS visits")).fetchall()


def answer_of(*words):
    out = run("query", *words, "--format", "json")
    assert out.code == 0, out.stderr
    return Result.from_json(out.stdout)


# The main job


@pytest.mark.slow
def test_first_command_of_the_readme_runs():
    out = run(*shlex.split(FIRST))
    assert out.code == 0, out.stderr
    rows = [line for line in out.stdout.splitlines() if line.startswith("│")]
    assert [row.split("│")[1].strip() for row in rows] == list(REGIONS)
    assert re.search(r"│ North +│ +[\d,]+ │ [\d,]+ … [\d,]+ +│ +[\d,.]+ │ [\d,.]+ … [\d,.]+ +│", out.stdout)
    assert "95 % interval" in out.stdout
    assert "spent: ε = 1 for one patient, add/remove\n" in out.stdout
    assert "Laplace noise; keys public; at most" in out.stdout
    assert "rows per unit (estimated privately)" in out.stdout
    assert out.stderr == ""


@pytest.mark.slow
def test_answers_lie_near_the_truth_within_their_intervals():
    words = (
        "visits.parquet",
        BY_REGION,
        "--unit",
        "patient",
        "--epsilon",
        "9",
        "--rows-per-unit",
        "40",
        *KEYS,
    )
    # Each of the four is missed with a chance of 1e-12.
    got = answer_of(*words, "--confidence", "0.999999999999")
    for row, (_, count) in zip(
        got, sorted(exact(BY_REGION), key=lambda row: REGIONS.index(row[0])), strict=True
    ):
        assert row["n_low"] <= count <= row["n_high"]


@pytest.mark.slow
def test_programs_get_json_that_is_read_back():
    got = answer_of(*shlex.split(FIRST)[1:])
    assert got["region"] == list(REGIONS)
    assert all(low <= n <= high for n, low, high in zip(got["n"], got["n_low"], got["n_high"], strict=True))
    assert got.facts["epsilon"] == "1"
    assert got.facts["unit"] == "patient"


@pytest.mark.slow
def test_a_year_has_no_commas_or_points(tmp_path):
    file = tmp_path / "years.csv"
    file.write_text("patient,year\n" + "".join(f"{place},2024\n" for place in range(5000)))
    command = ("query", str(file), "SELECT year, COUNT(*) AS n FROM years GROUP BY year", "--unit", "patient")
    command += ("--epsilon", "1", "--type", "year=number", "--keys", "year=2024,2025", "--rows-per-unit", "1")
    assert "│ 2024 │" in run(*command).stdout
    assert "\n2024," in run(*command, "--format", "csv").stdout
    assert json.loads(run(*command, "--format", "json").stdout)["rows"][1]["year"] == 2025
    assert "│ 2024 │ 5,000 │" in run(*command, "--exact").stdout


@pytest.mark.slow
def test_csv_has_the_intervals_as_columns():
    out = run(*shlex.split(FIRST), "--format", "csv")
    head, *rows = csv.reader(io.StringIO(out.stdout))
    assert head == ["region", "n", "n_low", "n_high", "cost", "cost_low", "cost_high"]
    assert len(rows) == 4


@pytest.mark.slow
@pytest.mark.parametrize("name", ["out.json", "out.csv", "out.parquet", "out.svg", "out.txt", "out"])
def test_file_is_written_in_the_format_of_its_extension(tmp_path, name):
    path = tmp_path / name
    out = run(*shlex.split(FIRST), "--output", str(path))
    assert out.code == 0, out.stderr
    assert out.stdout == ""
    assert f"written to {path}" in out.stderr
    text = path.read_bytes()
    if name == "out.json":
        assert len(Result.from_json(text.decode())) == 4
    elif name == "out.csv":
        assert text.startswith(b"region,n,n_low")
    elif name == "out.parquet":
        assert duckdb.read_parquet(str(path)).columns[:2] == ["region", "n"]
    elif name == "out.svg":
        assert ET.fromstring(text).tag.endswith("svg")  # noqa: S314 - our own
    else:
        assert b"North" in text
        assert "spent: ε = 1".encode() in text


def test_keys_that_are_not_declared_are_selected():
    out = run("query", "visits.parquet", BY_REGION, "--unit", "patient", "--epsilon", "1", "--delta", "1e-6")
    assert out.code == 0, out.stderr
    assert "keys selected privately" in out.stdout
    assert "δ = 1e-6" in out.stdout


def test_only_selected_groups_are_released():
    top = "SELECT region FROM visits GROUP BY region ORDER BY COUNT(*) DESC LIMIT 1"
    out = run("query", "visits.parquet", top, "--unit", "patient", "--epsilon", "9", *KEYS)
    assert "North" in out.stdout
    assert "interval" not in out.stdout
    assert "how: selected by permute-and-flip; keys public" in out.stdout


def test_row_unit_is_used_if_declared():
    got = answer_of(*COUNT[:3], "row", "--epsilon", "1")
    assert got.facts["unit"] == "row"
    assert got.facts["rows per unit"] is None


def test_googlesql_clause_sets_epsilon():
    sql = (
        "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=2, privacy_unit_column=patient) "
        "COUNT(*) AS n FROM visits"
    )
    assert answer_of("visits.parquet", sql, "--unit", "patient").facts["epsilon"] == "2"


def test_many_groups_are_shown_as_plain_lines():
    sql = "SELECT age * 10 AS p, COUNT(*) AS n FROM visits GROUP BY p"
    words = ("query", "visits.parquet", sql, "--unit", "patient", "--epsilon", "1", "--rows-per-unit", "3")
    out = run(*words, "--keys", "p=0:999")
    assert out.code == 0, out.stderr
    assert "│" not in out.stdout
    assert len(out.stdout.splitlines()) == 1001 + 4


# Asking by accuracy


@pytest.mark.slow
def test_an_error_is_turned_into_an_epsilon():
    words = (
        "visits.parquet",
        BY_REGION,
        "--unit",
        "patient",
        "--error",
        "n=50",
        "--rows-per-unit",
        "5",
        *KEYS,
    )
    out = run("query", *words)
    assert out.stdout.startswith("n=50 takes ε = 0.")
    price = re.search(r"takes ε = (\S+)", out.stdout).group(1)
    assert f"spent: ε = {price} for one patient" in out.stdout
    got = answer_of(*words)
    assert all(high - low <= 100.001 for low, high in zip(got["n_low"], got["n_high"], strict=True))
    assert "n: ± 5" in run("plan", *words).stdout or "n: ± 49" in run("plan", *words).stdout


def test_epsilon_for_an_error_is_printed_to_stderr():
    out = run("query", *COUNT, "--error", "n=50", "--rows-per-unit", "5", "--format", "json")
    assert "takes ε = " in out.stderr
    json.loads(out.stdout)


def test_no_error_is_promised_for_a_limit_that_is_not_known():
    out = run("query", *COUNT, "--error", "n=50")
    assert out.code != 0
    assert "--error is given, and the limit on rows per unit is estimated when the query runs" in out.stderr
    assert "declare --rows-per-unit, measure it once (`hubbub limits`" in out.stderr


def test_consistent_counts_are_added_as_a_column():
    words = (
        "visits.parquet",
        BY_REGION,
        "--unit",
        "patient",
        "--epsilon",
        "1",
        "--rows-per-unit",
        "5",
        *KEYS,
    )
    answer = answer_of(*words, "--consistent", "n")
    assert len(answer["n_consistent"]) == len(answer["n"])
    assert all(value >= 0 and value == int(value) for value in answer["n_consistent"])
    assert abs(sum(answer["n_consistent"]) - max(0, sum(answer["n"]))) <= 1
    for form in ("table", "html", "md"):
        out = run("query", *words, "--consistent", "n", "--format", form)
        assert ": non-negative, post-processed; biased, no interval" in out.stdout


def test_an_empty_answer_says_what_removed_the_groups():
    words = ("visits.parquet", f"{BY_REGION} HAVING COUNT(*) > 1000000000", "--unit", "patient", *KEYS)
    out = run("query", *words, "--epsilon", "1", "--rows-per-unit", "5")
    assert "no rows: HAVING, or another condition on released values, removed all groups" in out.stdout


@pytest.mark.parametrize(
    "more", [("--consistent", "region"), ("--consistent", "m"), ("--consistent", "n", "--exact")]
)
def test_columns_without_consistent_answers_are_refused_before_the_charge(more):
    words = (
        "visits.parquet",
        BY_REGION,
        "--unit",
        "patient",
        "--epsilon",
        "1",
        "--rows-per-unit",
        "5",
        *KEYS,
    )
    with mock.patch.object(Dataset, "run", side_effect=AssertionError):
        out = run("query", *words, *more)
    assert out.code != 0
    assert "consistent answers are asked for" in out.stderr


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("SELECT region, COUNT(*) AS n FROM visits GROUP BY ROLLUP(region)", "ROLLUP"),
        ("SELECT m AS n FROM (SELECT AVG(age) AS m, COUNT(*) AS n FROM visits) AS q", "a noisy count"),
        ("SELECT COUNT(*) AS n, SUM(age) AS n_consistent FROM visits", "an output n_consistent"),
    ],
)
def test_consistent_answers_that_cannot_be_are_refused_before_the_charge(text, match):
    """These were charged and shown first, and refused then."""
    words = ("visits.parquet", text, "--unit", "patient", "--epsilon", "1", "--rows-per-unit", "5")
    more = KEYS if "region" in text else ("--bounds", "age=0:120")
    with mock.patch.object(Dataset, "run", side_effect=AssertionError):
        out = run("query", *words, *more, "--consistent", "n")
    assert out.code != 0
    assert match in out.stderr


# Plans


def test_a_plan_runs_nothing_and_charges_nothing():
    with (
        mock.patch.object(Dataset, "run", side_effect=AssertionError),
        mock.patch.object(Dataset, "exact", side_effect=AssertionError),
        mock.patch("hubbub.engines.duckdb.DuckDB.execute", side_effect=AssertionError),
    ):
        out = run("plan", *shlex.split(FIRST)[1:])
    assert out.code == 0, out.stderr
    assert out.stdout.startswith("ε = 1 for one patient, add/remove; nothing spent yet\n  n: ± ")


@pytest.mark.slow
def test_plan_is_available_as_json():
    answer = json.loads(run("plan", *shlex.split(FIRST)[1:], "--format", "json").stdout)
    assert answer["epsilon"] == "1"
    assert set(answer["errors"]) == {"n", "cost"}
    assert "explain" not in answer
    answer = json.loads(run("plan", *shlex.split(FIRST)[1:], "--format", "json", "--explain").stdout)
    assert any("docs/proofs/bounding.md" in line for line in answer["explain"])


def test_a_plan_is_written_to_a_file(tmp_path):
    assert run("plan", *COUNT, "--epsilon", "1", "--output", str(tmp_path / "plan.json")).code == 0
    assert json.loads((tmp_path / "plan.json").read_text())["unit"] == "patient"


@pytest.mark.slow
@pytest.mark.parametrize("command", ["query", "plan"])
def test_explain_shows_sensitivity_mechanism_sql_and_proofs(command):
    out = run(command, *shlex.split(FIRST)[1:], "--explain")
    for words in ("one unit moves them by", "Laplace noise of scale", "SQL: WITH", "docs/proofs/bounding.md"):
        assert words in out.stdout
    if command == "query":
        out = run(command, *shlex.split(FIRST)[1:], "--explain", "--format", "json")
        assert "SQL: WITH" in out.stderr
        json.loads(out.stdout)


# Options


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        ["--keys", "region=North,South", "--keys", "ward=1:3"],
        ["--keys", "region=North,South", "ward=1:3"],
        ["--keys=region=North,South", "ward=1:3"],
        ["--keys", "ward=1:3", "region=@regions.txt", "--rows-per-unit", "3"],
    ],
)
def test_options_are_repeated_or_take_several_values(words):
    sql = "SELECT region, EXTRACT(quarter FROM day) AS ward, COUNT(*) AS n FROM visits GROUP BY region, ward"
    got = answer_of("visits.parquet", sql, "--unit", "patient", "--epsilon", "1", *words)
    assert set(got["ward"]) == {1, 2, 3}
    assert set(got["region"]) == (
        {"North", "South", "East"} if "region=@regions.txt" in words else {"North", "South"}
    )


def test_several_values_do_not_swallow_the_query():
    sql = "SELECT AVG(cost) AS a, AVG(age) AS b FROM visits WHERE age=3"
    bounds = ("--bounds", "cost=0:9", "age=0:99")
    out = run("plan", *bounds, "visits.parquet", sql, "--unit", "patient", "--epsilon", "1")
    assert out.code == 0, out.stderr
    assert "  a: ±" in out.stdout
    assert "  b: ±" in out.stdout


def test_bounds_may_be_separated_by_commas():
    sql = "SELECT AVG(cost) AS a, AVG(age) AS b FROM visits"
    words = ("--unit", "patient", "--epsilon", "1", "--bounds", "cost=0:5000,age=0:120")
    assert run("plan", "visits.parquet", sql, *words).code == 0


def test_bounds_are_estimated_on_request():
    sql = "SELECT SUM(cost) AS total FROM visits"
    out = run("plan", "visits.parquet", sql, "--unit", "patient", "--epsilon", "1", "--bounds", "cost=auto")
    assert "estimates the bounds of cost" in out.stdout


def test_limits_types_and_public_tables_are_options(tmp_path):
    path = tmp_path / "bills.csv"
    path.write_text("who,region,euros\n" + "".join(f"{i},North,{i % 9}\n" for i in range(900)))
    sql = "SELECT town, SUM(euros) AS total FROM bills JOIN towns USING (region) GROUP BY town"
    words = (
        "--unit", "who", "--epsilon", "5", "--type", "euros=number", "--bounds", "euros=0:9",
        "--rows-per-unit", "1", "--keys", "town=Kiel,Ulm", "--public", "towns=towns.csv",
    )  # fmt: skip
    got = answer_of(str(path), sql, *words)
    assert abs(got["total"][0] - 3600) < 400
    assert abs(got["total"][1]) < 400
    assert got.facts["rows per unit"] == 1


@pytest.mark.slow
def test_database_table_and_renamed_file_are_opened(tmp_path):
    path = str(tmp_path / "hospital.duckdb")
    with duckdb.connect(path) as database:
        database.execute("CREATE TABLE stays AS SELECT i // 3 AS who FROM range(900) r(i)")
    words = ("SELECT COUNT(*) AS n FROM stays", "--unit", "who", "--epsilon", "9", "--rows-per-unit", "3")
    assert abs(answer_of(path, *words, "--table", "stays")["n"][0] - 900) < 50
    missing = run("query", path, *words)
    assert missing.code == 2
    assert "pass --table visits" in missing.stderr
    names = ("visits.parquet", "SELECT COUNT(*) AS n FROM v", "--unit", "patient", "--epsilon", "1")
    assert run("plan", *names, "--table", "v").code == 0


def test_csv_options_are_passed_on(tmp_path):
    path = tmp_path / "notes.csv"
    path.write_bytes('who,name\n1,"Zoë\n2,Zoë\n'.encode("latin-1") + b"3,b\n" * 600)
    words = ("SELECT COUNT(*) AS n FROM notes", "--unit", "row", "--epsilon", "9")
    assert abs(answer_of(str(path), *words)["n"][0]) < 50
    assert abs(answer_of(str(path), *words, "--no-quotes", "--encoding", "latin-1")["n"][0] - 602) < 50
    refused = run("plan", str(path), *words, "--encoding", "utf-7")
    assert refused.code == 2
    assert "not read" in refused.stderr


def test_groups_per_unit_is_an_option():
    words = (*COUNT[:1], BY_REGION, "--unit", "patient", "--epsilon", "1", *KEYS)
    out = run("query", *words, "--groups-per-unit", "2", "--rows-per-group", "3")
    assert out.code == 0, out.stderr
    assert "at most 2 groups per unit" in out.stdout


@pytest.mark.slow
def test_bounding_report_is_measured_if_paid_for():
    words = (*COUNT, "--epsilon", "1", "--rows-per-unit", "3", "--bounding-report")
    assert "0.1 of ε measures the share of units above a contribution bound" in run("plan", *words).stdout
    out = run("query", *words)
    assert re.search(r"units above a contribution bound: \d+(\.\d+)? % \[", out.stdout)
    assert "not measured" not in out.stdout
    # 2,546 of 20,000 come more than three times; the noise is of scale 10.
    assert abs(answer_of(*words).facts["share above a contribution bound"]["value"] - 2546 / 20000) < 0.02


@pytest.mark.slow
def test_intervals_may_be_left_out():
    words = (
        "visits.parquet", "SELECT MEDIAN(age) AS age FROM visits", "--unit", "patient", "--epsilon", "1",
        "--bounds", "age=0:120", "--rows-per-unit", "3",
    )  # fmt: skip
    with_, without = run("query", *words), run("query", *words, "--no-intervals")
    assert "intervals cover" in with_.stdout
    assert "Laplace noise; quantiles by the exponential mechanism" in with_.stdout
    assert "interval" not in without.stdout
    assert "answers are shown without intervals, as asked" in run("plan", *words, "--no-intervals").stdout
    assert "without intervals" not in run("plan", *words).stdout
    assert "how: quantiles by the exponential mechanism" in without.stdout
    out = run("query", *words, "--no-intervals", "--format", "svg")
    assert out.code
    assert out.stderr.startswith("the format is svg, and --no-intervals is given")


def test_confidence_is_in_the_heading():
    out = run("query", *COUNT, "--epsilon", "1", "--confidence", "0.5")
    assert "50 % interval" in out.stdout


def test_keys_take_the_type_of_their_column():
    kinds = {"code": Kind.TEXT, "ward": Kind.NUMBER, "ok": Kind.BOOLEAN}
    tables = {"t": Table.of("t", kinds)}
    assert parse_group_keys(["code=1,2"], tables) == {"code": ["1", "2"]}
    assert parse_group_keys(["CODE=1:2"], tables) == {"CODE": ["1", "2"]}
    assert parse_group_keys(["ward=1,2.5"], tables) == {"ward": [1.0, 2.5]}
    assert parse_group_keys(["ok=true,false"], tables) == {"ok": [True, False]}
    assert parse_group_keys(["other=1,x"], tables) == {"other": ["1", "x"]}
    assert parse_group_keys(["other=1:2"], tables) == {"other": range(1, 3)}
    assert parse_group_keys(["code=2026-02-27:2026-03-01"], tables) == {
        "code": ["2026-02-27", "2026-02-28", "2026-03-01"]
    }


@pytest.mark.parametrize(
    ("expression", "keys", "text"),
    [
        ("SUBSTR(region, 1, 1)", "N,S", ["N", "S"]),
        ("CAST(FLOOR(age) AS VARCHAR)", "30,31", ["30", "31"]),
        ("FLOOR(age / 10)", "3,4", [3, 4]),
        ("age > 50", "true,false", [True, False]),
        ("CAST(day AS DATE)", "2024-02-28:2024-02-29", ["2024-02-28", "2024-02-29"]),
        ("DATE_TRUNC('month', day)", "2024-01-01,2024-02-01", ["2024-01-01", "2024-02-01"]),
    ],
)
def test_keys_of_an_expression_take_its_type(expression, keys, text):
    sql = f"SELECT {expression} AS k, COUNT(*) AS n FROM visits GROUP BY 1"
    words = (
        "visits.parquet",
        sql,
        "--unit",
        "patient",
        "--rows-per-unit",
        "2",
        "--epsilon",
        "1",
        "--keys",
        f"k={keys}",
    )
    rows = json.loads(run("query", *words, "--format", "json").stdout)["rows"]
    assert [str(row["k"])[:10] for row in rows] == [str(key)[:10] for key in text]


@pytest.mark.slow
def test_a_key_cannot_move_the_terminals_cursor():
    keys = "region=\x1b[2J[red]North"
    out = run("query", "visits.parquet", BY_REGION, "--unit", "patient", "--epsilon", "1", "--keys", keys)
    assert "\x1b" not in out.stdout
    assert "\\x1b[2J[red]North" in out.stdout


# The owner's file


@pytest.mark.slow
def test_declared_options_may_be_omitted():
    Path("hubbub.toml").write_text(
        "population = 20000\n[budget]\nepsilon = 3\n"
        '[tables.visits]\npath = "visits.parquet"\nunit = "patient"\n'
        'bounds = { cost = [0, 5000] }\nkeys = { region = ["North", "South", "East", "West"] }\n'
    )
    for file in ("visits.parquet", "hubbub.toml"):
        out = run(
            "query", file, "SELECT region, AVG(cost) AS cost FROM visits GROUP BY region", "--epsilon", "1"
        )
        assert out.code == 0, out.stderr
        assert "budget: ε = 3 per command" in out.stdout
    assert run("query", "visits.parquet", BY_REGION, "--epsilon", "4").stderr.startswith(
        "the charge does not fit"
    )
    large = run("query", "visits.parquet", BY_REGION, "--epsilon", "1", "--delta", "1e-4")
    assert large.stderr.startswith("--delta is not below 1/population")
    other = run("plan", "visits.parquet", BY_REGION, "--epsilon", "1", "--unit", "row")
    assert "hubbub.toml declares another unit" in other.stderr
    million = ("plan", "visits.parquet", BY_REGION, "--epsilon", "1000000")
    assert run(*million).stderr.startswith("--epsilon is above 20")
    assert "confirm it with --allow-large-epsilon" in run(*million).stderr
    assert run(*million, "--allow-large-epsilon").code == 0


# The owner's eyes


def test_an_exact_preview_is_marked_and_recorded():
    sql = "SELECT COUNT(*) AS n\nFROM visits"
    words = ("query", "visits.parquet", sql, "--unit", "patient", "--epsilon", "1", "--rows-per-unit", "99")
    with mock.patch("os.umask"):
        out = run(*words, "--exact")
    assert out.code == 0, out.stderr
    ((count,),) = exact(sql)
    assert f"{count:,}" in out.stdout
    assert out.stdout.count("EXACT: not private") == 2
    assert "interval" not in out.stdout
    assert "spent" not in out.stdout
    log = Path("hubbub-exact.log")
    assert stat.S_IMODE(log.stat().st_mode) == 0o600
    log.chmod(0o644)
    run(*words, "--exact")
    assert stat.S_IMODE(log.stat().st_mode) == 0o600
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert [set(line) for line in lines] == [{"time", "exact"}] * 2
    assert lines[0]["exact"] == sql
    assert str(count) not in log.read_text()


def test_unrecorded_preview_is_not_shown():
    Path("hubbub-exact.log").symlink_to("elsewhere.log")
    out = run("query", *COUNT, "--epsilon", "1", "--exact")
    assert out.code == 2
    assert out.stdout == ""
    assert out.stderr.startswith("hubbub-exact.log cannot be written")
    assert not Path("elsewhere.log").exists()


@pytest.mark.parametrize("words", [["--output", "out.csv"], ["--format", "json"]])
def test_exact_preview_is_not_written_to_files(words):
    out = run("query", *COUNT, "--epsilon", "1", "--exact", *words)
    assert out.code == 2
    assert "--exact is given with --output or --format" in out.stderr
    assert not Path("hubbub-exact.log").exists()


@pytest.mark.slow
def test_ledger_records_spending_and_previews():
    words = ("query", *COUNT, "--ledger", "x.ledger")
    refused = run(*words, "--epsilon", "1").stderr
    assert "there is no account 'visits': a new account needs a unit and a budget" in refused
    assert "Fix: run `hubbub budget open visits" in refused
    assert not Path("x.ledger").exists()
    run("budget", "open", "visits", "--unit", "patient", "--epsilon", "1.5", "--ledger", "x.ledger")
    first = run(*words, "--epsilon", "1")
    assert "left in the ledger: ε = 0.5" in first.stdout
    again = run(*words, "--epsilon", "1")
    table, _, message = again.stdout.partition("asked before, as of 2")
    assert first.stdout.startswith(table)
    assert "version 1 of the data: ε = 1 for one patient, add/remove was spent then, nothing now" in message
    assert "left in the ledger: ε = 0.5" in message
    out = run(*words, "--epsilon", "0.75")
    assert out.code == 4
    assert "does not fit what is left of the account 'visits'" in out.stderr
    run(*words, "--epsilon", "1", "--exact")
    assert not Path("hubbub-exact.log").exists()
    assert "nonprivate_access" in run("ledger", "list", "--ledger", "x.ledger").stdout
    run("budget", "grant", "ada", "--epsilon", "0.5", "--ledger", "x.ledger")
    assert "the budget of ada" in run(*words, "--epsilon", "1", "--analyst", "ada").stderr
    assert "only the owner" in run(*words, "--epsilon", "1", "--analyst", "ada", "--exact").stderr
    Path("x.ledger").unlink()


def test_preview_log_is_written_only_with_exact():
    run("query", *COUNT, "--epsilon", "1")
    assert not Path("hubbub-exact.log").exists()


# On a terminal


def test_progress_is_shown_on_a_terminal_only():
    with show_status() as progress:
        progress("counting")  # nothing is there to show it
    paper = io.StringIO()
    console = Console(file=paper, force_terminal=True)
    with mock.patch("hubbub.cli.results.Console", return_value=console), show_status() as progress:
        progress("counting")
    assert "counting" in paper.getvalue()


@pytest.mark.slow
def test_dataset_reports_its_progress():
    answers = []
    with mock.patch("hubbub.cli.query.show_status") as status:
        status.return_value.__enter__.return_value = answers.append
        run(*shlex.split(FIRST))
    assert "counting" in answers


@pytest.mark.slow
def test_losses_are_shown_without_query_imports():
    code = (
        "import sys; sys.argv = ['hubbub', 'loss', '--gaussian', '2', '--delta', '1e-6']\n"
        "from hubbub.cli import main\n"
        "try: main()\nexcept SystemExit: pass\n"
        "print([m for m in sys.modules])"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(hb.__file__).parent.parent)}
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment
    ).stdout
    assert "closed form" in loaded
    for module in ("duckdb", "sqlglot", "scipy", "pyarrow", "hubbub.dataset"):
        assert f"'{module}'" not in loaded


# What is refused


@pytest.mark.sweep(7)
@pytest.mark.parametrize("command", ["query", "plan"])
@pytest.mark.parametrize(
    ("words", "what"),
    [
        (["--epsilon", "0"], "--epsilon is 0"),
        (["--epsilon", "one"], "--epsilon is not a number"),
        ([], "neither --epsilon nor --error is given"),
        (["--epsilon", "1", "--error", "n=5"], "both --epsilon and --error are given"),
        (["--epsilon", "1", "--delta", "0.5"], "--delta is above 1/1000"),
        (["--epsilon", "1", "--delta", "x"], "--delta is not a number"),
        (["--epsilon", "1", "--delta", "0.1", "--population", "10"], "--delta is not below 1/population"),
        (["--epsilon", "1", "--population", "0"], "--population is 0"),
        (["--epsilon", "1", "--confidence", "95"], "--confidence is 95"),
        (["--epsilon", "1", "--confidence", "1"], "--confidence is 1"),
        (["--epsilon", "1", "--rows-per-unit", "0"], "--rows-per-unit is 0"),
        (["--epsilon", "1", "--rows-per-unit", "9e9"], "rows per unit is not a whole number"),
        (["--epsilon", "1", "--groups-per-unit", "1.5"], "--groups-per-unit is 3/2"),
        (["--epsilon", "1", "--rows-per-group", "x"], "--rows-per-group is not a number"),
        (["--error", "n"], "--error is not of the form n=50"),
        (["--error", "n=0"], "the --error of n is 0"),
        (["--error", "m=5"], "an error is asked for 'm'"),
        (["--error", "n=5", "n=6"], "--error is given twice for 'n'"),
        (["--epsilon", "1", "--bounds", "n"], "--bounds is not of the form cost=0:5000"),
        (["--epsilon", "1", "--bounds", "n=5"], "--bounds is not of the form cost=0:5000"),
        (["--epsilon", "1", "--bounds", "n=a:5"], "the lower bound of n is not a number"),
        (
            ["--epsilon", "1", "--bounds", "csot=0:5"],
            "--bounds is given for 'csot', which is not in the query",
        ),
        (["--epsilon", "1", "--bounds", "n=0:5", "--bounds", "N=0:6"], "--bounds is given twice for 'N'"),
        (["--epsilon", "1", "--keys", "region"], "--keys is not of the form region=North,South"),
        (
            ["--epsilon", "1", "--keys", "region=North"],
            "keys are given for 'region', which the query does not group by",
        ),
        (["--epsilon", "1", "--keys", "cost=cheap"], "a key of cost is not a number"),
        (
            ["--epsilon", "1", "--keys", "region=@nowhere.txt"],
            "nowhere.txt, with the keys of region, cannot be read",
        ),
        (["--epsilon", "1", "--keys", "cost=9:1"], "the keys of cost are not a range"),
        (["--epsilon", "1", "--type", "cost=money"], "'money' is not a type"),
        (["--epsilon", "1", "--type", "cost"], "--type is not of the form cost=number"),
        (["--epsilon", "1", "--type", "csot=number"], "a type is declared for 'csot'"),
        (["--epsilon", "1", "--public", "towns"], "--public is not of the form towns=towns.csv"),
        (["--epsilon", "1", "--public", "towns=nowhere.csv"], "nowhere.csv does not exist"),
        (["--epsilon", "1", "--output", "nowhere/out.json"], "the output nowhere/out.json cannot be written"),
        (["--epsilon", "1", "--output", "."], "the output . cannot be written"),
        (
            ["--epsilon", "1", "--output", "out.json", "--format", "table"],
            "the output ends in .json, and --format is",
        ),
    ],
)
def test_bad_input_gives_one_line_without_traceback(command, words, what):
    out = run(command, *COUNT, *words)
    assert out.code in {2, 3}
    assert out.stdout == ""
    assert out.stderr.startswith(what)
    assert "Fix" in out.stderr
    assert not Path("out.json").exists()


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (["nowhere.csv", "SELECT COUNT(*) FROM nowhere", "--unit", "x"], "nowhere.csv does not exist"),
        (["towns.csv", "SELECT COUNT(*) FROM towns", "--unit", "x"], "there is no column 'x' in towns"),
        (
            ["towns.csv", "SELECT COUNT(*) FROM towns", "--unit", " "],
            "the unit's key is not the name of a column",
        ),
        (["regions.doc", "SELECT 1", "--unit", "row"], "regions.doc does not exist"),
        (["visits.parquet", "SELECT COUNT(*) FROM visits"], "--unit is missing"),
        (["visits.parquet", "SELECT * FROM visits", "--unit", "patient"], "SELECT *"),
        (["visits.parquet", "", "--unit", "patient"], "the query is empty"),
        (["visits.parquet", "SELECT AVG(cost) FROM visits", "--unit", "patient"], "cost has no bounds"),
        (
            ["visits.parquet", BY_REGION, "--unit", "patient"],
            "the keys of region are not declared, and --delta is 0",
        ),
        (["hubbub.toml", BY_REGION], "hubbub.toml cannot be read"),
    ],
)
def test_invalid_query_is_refused_before_the_charge(words, what):
    with mock.patch.object(Dataset, "run", side_effect=AssertionError):
        out = run("query", *words, "--epsilon", "1")
    assert out.code in {2, 3}
    assert out.stdout == ""
    assert out.stderr.startswith(what)
    assert "delta to select" not in out.stderr


def test_parquet_needs_a_file_and_plans_have_no_chart():
    assert run("query", *COUNT, "--epsilon", "1", "--format", "parquet").stderr.startswith(
        "--format parquet is"
    )
    assert run("plan", *COUNT, "--epsilon", "1", "--output", "a.svg").stderr.startswith(
        "the output ends in .svg"
    )
    for words in (["query", "--format", "png"], ["plan", "--format", "csv"]):
        assert run(words[0], *COUNT, "--epsilon", "1", *words[1:]).code == 2


def test_failing_output_gives_one_line():
    with mock.patch("pathlib.Path.write_text", side_effect=OSError(28, "No space left on device")):
        out = run("query", *COUNT, "--epsilon", "1", "--output", "out.csv")
    assert out.code == 2
    assert "no space left on device" in out.stderr
    assert "spent: ε = 1" in out.stdout  # what is paid for is shown, not lost


def test_chart_needs_a_numeric_column():
    top = "SELECT region FROM visits GROUP BY region ORDER BY COUNT(*) DESC LIMIT 1"
    with mock.patch.object(Dataset, "run", side_effect=AssertionError):
        out = run(
            "query", "visits.parquet", top, "--unit", "patient", "--epsilon", "1", *KEYS, "--format", "svg"
        )
    assert out.code == 2
    assert out.stderr.startswith("the format is svg, and only keys")


@pytest.mark.parametrize("form", ["table", "json", "csv", "svg"])
def test_empty_result_is_shown(form):
    # A key is selected with a chance below 1e-13: some hundred keys, each of some hundred people.
    sql = "SELECT age, COUNT(*) AS n FROM visits GROUP BY age"
    words = ("--unit", "patient", "--epsilon", "0.001", "--delta", "1e-20", "--rows-per-unit", "8")
    out = run("query", "visits.parquet", sql, *words, "--format", form)
    assert out.code == 0, out.stderr
    is_said = "no key was shown: one is shown with 95 % where n is" in out.stdout
    assert is_said is (form in {"table", "json"})


# Help


def examples():
    page = Path(__file__).parents[2] / "docs" / "cli.md"  # which is as the generator makes it
    lines = page.read_text(encoding="utf-8").replace("\\\n", "").splitlines()
    return [line for line in lines if line.startswith(("hubbub query", "hubbub plan"))]


@pytest.mark.parametrize("line", examples())
def test_every_example_in_the_help_runs(line):
    out = run(*shlex.split(line)[1:])
    assert out.code == 0, out.stderr
    Path("reasons.csv").unlink(missing_ok=True)


@pytest.mark.slow
def test_limits_are_measured_once_and_later_queries_search_nothing(tmp_path):
    ledger = ("--ledger", str(tmp_path / "limits.ledger"))
    assert run("budget", "open", "visits", "--unit", "patient", "--epsilon", "5", *ledger).code == 0
    words = ("limits", "visits.parquet", "--unit", "patient", "--epsilon", "0.5", "--by", "region", *ledger)
    out = run(*words)
    assert out.code == 0, out.stderr
    assert "rows per unit" in out.stdout
    assert 'groups per unit by "region"' in out.stdout
    assert "spent: ε = 0.5 for one patient" in out.stdout
    again = run(*words)
    assert "ε = 0.5 for one patient, add/remove was spent then, nothing now" in again.stdout
    assert "spent: " not in again.stdout
    got = run("query", *COUNT, "--epsilon", "1", *ledger)
    assert "found before, at no cost now" in got.stdout
