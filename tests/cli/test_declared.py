"""What the owner declared holds in the shell too; and where outputs go."""

import os
import shutil
from pathlib import Path

import pandas as pd
import pytest

from cli.terminal import run

LEDGER = '[budget]\nepsilon = 3\n[tables.visits]\npath = "visits.parquet"\nunit = "patient"\n'
ONE = ("query", "visits.parquet", "SELECT COUNT(*) AS n FROM visits", "--epsilon", "1")


@pytest.fixture(autouse=True)
def there(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pd.DataFrame({"patient": range(60)}).to_parquet("visits.parquet")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "what"),
    [
        (["--ledger", "other.ledger"], "ledger"),
        (["--unit", "row"], "unit"),
        (["--account", "b"], "account"),
    ],
)
def test_declaration_holds_unless_overridden_explicitly(words, what):
    Path("hubbub.toml").write_text('ledger = "l"\n' + LEDGER)
    out = run(*ONE, *words)
    assert out.code == 3
    assert f"declares another {what}" in out.stderr
    assert "--override" in out.stderr
    run(*ONE, *words, "--override")
    assert f"another {what} than declared" in run("ledger", "list", "--ledger", "l").stdout
    label = run("report", "--ledger", "l", "--account", "visits").stdout
    assert f"asserted by the owner: another {what} than declared" in label


def test_a_ledger_from_the_environment_does_not_win_over_a_declared_one(monkeypatch):
    Path("hubbub.toml").write_text('ledger = "l"\n' + LEDGER)
    monkeypatch.setenv("HUBBUB_LEDGER", "other.ledger")
    assert "declares another ledger" in run(*ONE).stderr
    assert not Path("other.ledger").exists()


@pytest.mark.slow
def test_new_rows_of_a_ledger_must_be_confirmed():
    run("budget", "open", "a", "--unit", "patient", "--epsilon", "1", "--ledger", "l")
    run("budget", "open", "b", "--unit", "patient", "--epsilon", "1", "--ledger", "l")
    shutil.copy("visits.parquet", "copy.parquet")
    command = ("--unit", "patient", "--epsilon", "0.1", "--ledger", "l", "--account")
    assert run("query", "visits.parquet", "SELECT COUNT(*) AS n FROM visits", *command, "a").code == 0
    assert run(
        "query", "visits.parquet", "SELECT COUNT(*) AS n FROM visits", *command, "b"
    ).stderr.startswith("the rows of visits are paid for")
    other = ("query", "copy.parquet", "SELECT COUNT(*) AS n FROM copy", *command)
    assert run(*other, "b").code == 0  # an account that was opened by itself has its first rows
    shutil.copy("visits.parquet", "more.parquet")
    more = ("query", "more.parquet", "SELECT COUNT(*) AS n FROM more", *command, "b")
    assert "pass --new-rows if no other account" in run(*more).stderr
    assert run(*more, "--new-rows").code == 0
    label = run("report", "--ledger", "l", "--account", "b").stdout
    assert "asserted by the owner: no other account pays for the rows of more" in label


@pytest.mark.parametrize("name", ["a.htm", "a.xls", "a.parqet", "a.toml"])
def test_unknown_file_extension_is_refused_with_the_known_ones(name):
    out = run(*ONE, "--unit", "patient", "--output", name)
    assert out.stderr.startswith(f"the output ends in {Path(name).suffix}")
    assert "use one of: .csv, .json, .ndjson, .jsonl, .parquet" in out.stderr
    assert not Path(name).exists()


def test_output_never_overwrites_the_data():
    before = Path("visits.parquet").read_bytes()
    os.link("visits.parquet", "same.parquet")
    for name in ("visits.parquet", "same.parquet"):
        out = run(*ONE, "--unit", "patient", "--output", name)
        assert " is, or leads to, a file of rows" in out.stderr
    assert Path("visits.parquet").read_bytes() == before


def test_prompt_escapes_column_names():
    pd.DataFrame({"patient": [1], "x\x1b[2J\u202e\n": [2]}).to_parquet("odd.parquet")
    out = run("init", "odd.parquet", typed="patient\n" + "\n" * 9)
    assert out.code == 0
    assert not {"\x1b", "\u202e"} & set(out.stdout + out.stderr)
    assert "x\\x1b[2J\\u202e\\n: public bounds" in out.stdout
    assert run("plan", "odd.parquet", "SELECT COUNT(*) AS n FROM odd", "--epsilon", "1").code == 0


def test_linked_declaration_does_not_overwrite_the_data():
    before = Path("visits.parquet").read_bytes()
    for replace in (
        lambda: Path("hubbub.toml").symlink_to("visits.parquet"),
        lambda: os.link("visits.parquet", "hubbub.toml"),
    ):
        Path("hubbub.toml").unlink(missing_ok=True)
        replace()
        assert run("init", "visits.parquet", "--unit", "patient", "--yes", "--force").code == 0
        assert Path("visits.parquet").read_bytes() == before
        assert "patient" in Path("hubbub.toml").read_text(encoding="utf-8")


def test_report_has_the_format_of_its_extension():
    assert run(*ONE, "--unit", "patient", "--ledger", "l").code == 2
    run("budget", "open", "visits", "--unit", "patient", "--epsilon", "1", "--ledger", "l")
    for name, start in (
        ("a.html", "<!doctype"),
        ("a.json", "{"),
        ("a.yaml", '"format"'),
        ("a.txt", "Privacy label of visits"),
    ):
        assert run("report", "--ledger", "l", "--output", name).code == 0
        assert Path(name).read_text(encoding="utf-8").startswith(start)
    for words in (("a.csv",), ("a.html", "--format", "json")):
        assert run("report", "--ledger", "l", "--output", *words).stderr.count("the output ends in") == 1
