"""The shell in other people's scripts: exit codes, JSON, --quiet, completion, commands loaded when run."""

import json
import os
import subprocess
import sys
from pathlib import Path
from unittest import mock

import pandas as pd
import pytest
import typer

from cli.terminal import run
from hubbub.cli.all_commands import app
from hubbub.cli.commands import COMMANDS, EXAMPLES
from hubbub.cli.runner import EXIT_CODES
from hubbub.engines.duckdb import DuckDB
from hubbub.errors import EngineFailed, HubbubError

COUNT = ("visits.parquet", "SELECT COUNT(*) AS n FROM visits", "--unit", "patient", "--rows-per-unit", "1")
LEDGER = ("--ledger", "l")


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pd.DataFrame({"patient": range(60), "region": ["N", "S"] * 30}).to_parquet("visits.parquet")


@pytest.fixture
def account():
    run("budget", "open", "visits", "--unit", "patient", "--epsilon", "2", *LEDGER)
    run("budget", "grant", "ada", "--epsilon", "1", *LEDGER)


def hubbub(*words, **environment):
    return subprocess.run(
        [sys.executable, "-m", "hubbub", *words],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **environment},
    )


# Exit codes


@pytest.mark.slow
def test_exit_codes_say_what_happened(account):
    assert run("query", *COUNT, "--epsilon", "1", *LEDGER).code == 0
    assert run("query", *COUNT, "--epsilon", "one", *LEDGER).code == 2
    assert run("query", *COUNT, "--epsilonn", "1").code == 2
    assert (
        run("query", "visits.parquet", "SELECT * FROM visits", "--unit", "patient", "--epsilon", "1").code
        == 3
    )
    assert run("query", *COUNT, "--epsilon", "1.5", *LEDGER).code == 4
    failure = EngineFailed("it failed", why="it may", fix="try again")
    with mock.patch.object(DuckDB, "execute", side_effect=failure):
        assert run("query", *COUNT, "--epsilon", "0.5", *LEDGER).code == 5


def test_every_error_has_an_exit_code_that_the_page_documents():
    page = (Path(__file__).parents[2] / "docs" / "cli.md").read_text()
    kinds = {kind for kind in HubbubError.__subclasses__() if kind.__name__ != "InvalidInput"}
    assert kinds <= set(EXIT_CODES)
    for code in (0, 1, 2, *EXIT_CODES.values()):
        assert f"| {code} |" in page


# For programs


def test_errors_are_json_where_answers_are():
    out = run("query", *COUNT, "--epsilon", "one", "--format", "json")
    error = json.loads(out.stderr)
    assert set(error) == {"what", "why", "fix", "parameter", "code"}
    assert (error["parameter"], error["code"], out.code) == ("epsilon", 2, 2)
    out = run("query", "--format=json")
    assert json.loads(out.stderr)["parameter"] == "file"
    out = run("budget", "--format", "json", "--ledger", "none")
    assert json.loads(out.stderr)["what"] == "there is no ledger none"


@pytest.mark.slow
def test_every_figure_has_a_json_form(account):
    run("query", *COUNT, "--epsilon", "1", *LEDGER)
    [budget] = json.loads(run("budget", *LEDGER, "--format", "json").stdout)
    assert (budget["account"], budget["budget"]["epsilon"], budget["spent"]["epsilon"]) == (
        "visits",
        "2",
        "1",
    )
    assert budget["analysts"] == {"ada": {"epsilon": "1", "spent": "0"}}
    entries = json.loads(run("ledger", "list", *LEDGER, "--format", "json").stdout)
    assert [entry["entry"] for entry in entries] == list(range(1, len(entries) + 1))
    assert json.loads(run("ledger", "show", "1", *LEDGER, "--format", "json").stdout) == entries[0]
    assert run("ledger", "show", "1", *LEDGER, "--format", "text").stdout.startswith("entry: 1\n")
    verdict = json.loads(run("ledger", "verify", *LEDGER, "--format", "json").stdout)
    assert (verdict["ok"], verdict["entries"], verdict["problems"]) == (True, len(entries), [])
    wrong = run("ledger", "verify", *LEDGER, "--head", "0" * 63 + "1", "--format", "json")
    assert wrong.code == 1
    assert not json.loads(wrong.stdout)["ok"]
    limits = ("limits", *COUNT[:1], "--unit", "patient", "--epsilon", "0.1", "--format", "json")
    assert json.loads(run(*limits).stdout)
    assert json.loads(run("functions", "median", "--format", "json").stdout)
    assert isinstance(
        json.loads(run("release", "42", "--epsilon", "1", "--format", "json").stdout)["value"], int
    )
    assert (
        json.loads(run("error", "--epsilon", "1", "--coordinates", "3", "--format", "json").stdout)["error"]
        > 0
    )
    assert (
        json.loads(run("choose", "a=9999", "b=1", "--epsilon", "1", "--format", "json").stdout)["value"]
        == "a"
    )
    assert json.loads(run("toss", "true", "--format", "json").stdout)["value"] in {True, False}
    assert json.loads(run("loss", "--pure", "1", "--format", "json").stdout)


@pytest.mark.slow
def test_plan_says_if_it_fits_the_ledger(account):
    words = ("plan", *COUNT, *LEDGER)
    assert "it fits: the budget allows about 2 queries like it" in run(*words, "--epsilon", "1").stdout
    assert "it does not fit the budget that is left" in run(*words, "--epsilon", "3").stdout
    plan = json.loads(run(*words, "--epsilon", "3", "--format", "json").stdout)
    assert (plan["fits"], plan["answered before"]) == (False, False)
    run("query", *COUNT, "--epsilon", "2", *LEDGER)
    assert "the ledger has its answer: asking again costs nothing" in run(*words, "--epsilon", "2").stdout
    assert json.loads(run(*words, "--epsilon", "2", "--format", "json").stdout)["fits"]
    assert json.loads(run("budget", *LEDGER, "--format", "json").stdout)[0]["spent"]["epsilon"] == "2"


@pytest.mark.slow
def test_quiet_leaves_answers_and_errors(account):
    pd.DataFrame({"patient": range(60)}).to_csv("visits.tsv", index=False)
    Path("semi.csv").write_text("patient;cost\n1;2\n")
    words = ("query", "semi.csv", "SELECT COUNT(*) AS n FROM semi", "--unit", "patient", "--epsilon", "1")
    loud, quiet, first = run(*words), run(*words, "--quiet"), run("--quiet", *words)
    assert "note: " in loud.stderr
    assert "spent: ε = 1" in loud.stdout
    for out in (quiet, first):
        assert out.code == 0
        assert out.stderr == ""
        assert "spent" not in out.stdout
        assert "│" in out.stdout
    assert run(*words[:-1], "x", "--quiet").stderr.startswith("--epsilon is not a number")
    assert "spent: ε = 1" in run(*words).stdout  # the next command is not quiet


# Commands


def test_bare_command_shows_five_examples():
    out = run()
    assert out.code == 0
    assert len(EXAMPLES.splitlines()) == 5
    assert all(line in out.stdout for line in EXAMPLES.splitlines())


@pytest.mark.parametrize("name", COMMANDS)
def test_summary_is_the_first_line_of_the_help(name):
    command = COMMANDS[name].load()
    text = command.__doc__ if callable(command) and command.__doc__ and not hasattr(command, "info") else None
    assert (text or str(command.info.help)).splitlines()[0] == COMMANDS[name].summary


@pytest.mark.slow
def test_help_and_version_load_no_engine():
    for words in (["--help"], ["--version"], []):
        code = (
            f"import sys; sys.argv = ['hubbub', *{words!r}]\n"
            "import atexit, hubbub.cli\n"
            "atexit.register(lambda: print(sorted({'numpy', 'duckdb', 'sqlglot'} & set(sys.modules))))\n"
            "hubbub.cli.main()"
        )
        out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
        assert out.endswith("[]\n")


@pytest.mark.slow
def test_module_is_the_command():
    assert hubbub("--version").stdout.startswith("hubbub 0.")
    assert "Usage: hubbub" in hubbub("query", "--help", COLUMNS="100").stdout
    assert hubbub("query").returncode == 2


def complete(*words):
    """What a shell is offered after these words; the last one is not finished."""
    out = hubbub(
        _HUBBUB_COMPLETE="complete_bash", COMP_WORDS=" ".join(["hubbub", *words]), COMP_CWORD=str(len(words))
    )
    return out.stdout.split()


@pytest.mark.slow
def test_columns_and_tables_are_completed():
    Path("hubbub.toml").write_text('[tables.visits]\npath = "visits.parquet"\nunit = "patient"\n')
    assert complete("query", "hubbub.toml", "SQL", "--unit", "pa") == ["patient"]
    assert complete("query", "hubbub.toml", "SQL", "--keys", "re") == ["region="]
    assert complete("query", "hubbub.toml", "SQL", "--table", "v") == ["visits"]
    assert complete("que") == ["query"]


@pytest.mark.slow
def test_columns_of_a_file_are_completed_without_a_declaration():
    assert complete("query", "visits.parquet", "SQL", "--unit", "pa") == ["patient"]
    assert complete("query", "visits.parquet", "--bounds", "re") == ["region="]


def test_file_has_no_roles_to_admit(account):
    assert run("ledger", "admit", "rita", "--role", "reader", *LEDGER).stderr.startswith(
        "the ledger is a file"
    )


@pytest.mark.slow
def test_label_is_verified_for_programs(account):
    run("query", *COUNT, "--epsilon", "1", *LEDGER)
    run("report", *LEDGER, "--output", "label.json")
    report = json.loads(run("report", "verify", "label.json", *LEDGER, "--format", "json").stdout)
    assert report["ok"]
    assert {each["status"] for each in report["findings"]} == {"OK", "not checked"}
    facts = json.loads(Path("label.json").read_text())
    Path("label.json").write_text(json.dumps({**facts, "spent": {"epsilon": "0", "delta": "0"}}))
    wrong = run("report", "verify", "label.json", *LEDGER, "--format", "json")
    assert (wrong.code, json.loads(wrong.stdout)["ok"]) == (1, False)


def test_help_is_shown_before_engines_and_numpy_are_loaded():
    """To import them takes longer than the shell has to start."""
    code = "import sys, hubbub.cli.query; print({'numpy', 'duckdb', 'sqlglot'} & set(sys.modules))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout == "set()\n"


def list_commands(command, words=()):
    for name, each in getattr(command, "commands", {}).items():
        yield from list_commands(each, (*words, name))
    if not getattr(command, "commands", {}) or words in {("budget",), ("report",)}:
        yield " ".join(words), {option for parameter in command.params for option in parameter.opts}


def test_every_command_with_an_answer_has_a_json_form():
    without = {
        words for words, options in list_commands(typer.main.get_command(app)) if "--format" not in options
    }
    # A show; processes that go on until they are stopped; and two that write JSON, whatever is asked for.
    assert without == {"demo", "serve", "mcp", "ledger sign", "ledger export"}


@pytest.mark.slow
@pytest.mark.usefixtures("account")
def test_actions_say_what_they_did_for_programs():
    def ask(*words):
        out = run(*words, "--format", "json")
        assert (out.code, out.stderr) == (0, "")
        return json.loads(out.stdout)

    account = ask("budget", "open", "trips", "--unit", "row", "--epsilon", "2", *LEDGER)
    assert (account["account"], account["budget"]["epsilon"]) == ("trips", "2")
    granted = ask("budget", "grant", "bob", "--epsilon", "1", "--account", "trips", *LEDGER)
    assert granted["analysts"] == {"bob": {"epsilon": "1", "spent": "0"}}
    assert ask("ledger", "key", "owner.key") == {"private": "owner.key", "public": "owner.key.pub"}
    assert ask("ledger", "key", "releases.key", "--secret") == {"secret": "releases.key"}
    backup = ask("ledger", "backup", "l.backup", *LEDGER)
    assert (backup["backup"], Path(backup["secret"]).name) == ("l.backup", "l.key")
    Path("l").unlink()
    restored = ask("ledger", "restore", "l.backup", *LEDGER, "--nothing-since")
    assert (restored["ledger"], restored["entries"]) == ("l", 6)
    assert ask("init", "visits.parquet", "--unit", "patient", "--yes") == {"declaration": "hubbub.toml"}
    refused = run("init", "visits.parquet", "--force", "--format", "json")
    assert json.loads(refused.stderr)["parameter"] == "yes"


def test_wrong_field_of_a_label_names_its_file():
    Path("hubbub.toml").write_text(
        '[about]\npurpose = "x"\n[tables.visits]\npath = "visits.parquet"\nunit = "patient"\n'
    )
    out = run("report", *LEDGER)
    assert out.code == 2
    assert out.stderr.startswith("hubbub.toml: about.purpose is not known: a label has fixed fields.")
