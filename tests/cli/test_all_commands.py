"""The command line, as a person uses it."""

import math
import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from statistics import NormalDist

import duckdb
import pytest

from cli.terminal import run
from hubbub.cli.demo import REGIONS, bar, write_visits

SAME = (41291, 20000, 4541092651, 52811951, 57, 4148, 99)
"""What the hospital adds up to."""


def test_release_of_an_integer_is_an_integer_with_its_error_and_cost():
    out = run("release", "42", "--epsilon", "0.5")
    assert out.code == 0
    first, second = out.stdout.splitlines()
    assert re.fullmatch(r"-?\d+ ± 6 \(95 %\)", first)
    assert second == "Laplace noise of scale 2 on integers: ε = 0.5; user-asserted sensitivity"


def test_release_of_a_real_lies_on_a_grid():
    out = run("release", "3.25", "--epsilon", "1", "--sensitivity", "0.1", "--real")
    assert re.match(r"-?\d+\.\d+(e-\d+)? ± 0\.299", out.stdout)


def test_release_uses_the_better_noise_distribution():
    assert "Laplace noise" in run("release", "42", "--epsilon", "1", "--delta", "1e-3").stdout
    assert "Gaussian noise" in run("release", "42", "--epsilon", "0.01", "--delta", "1e-3").stdout


@pytest.mark.parametrize(
    "words",
    [("release", "42", "--epsilon", "0.01"), ("error", "--epsilon", "0.01"), ("error", "--within", "10")],
)
def test_gaussian_noise_is_shown_with_epsilon_at_the_given_delta(words):
    last = run(*words, "--delta", "1e-3").stdout.splitlines()[-1]
    match = re.match(r"Gaussian noise .* Gaussian μ = (\S+), that is ε = (\S+) at δ = 0\.001; ", last)
    mu, epsilon = map(float, match.groups())
    if "--epsilon" in words:
        assert epsilon == 0.01
    bell = NormalDist()
    delta = bell.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * bell.cdf(-mu / 2 - epsilon / mu)
    assert delta == pytest.approx(1e-3, rel=1e-3)


@pytest.mark.parametrize("words", [("release", "42", "--epsilon", "0.1"), ("error", "--within", "50")])
def test_a_delta_is_below_1_in_the_population(words):
    assert run(*words, "--delta", "0.01", "--population", "99").code == 0
    assert run(*words, "--delta", "0.001").code == 0
    for extra in (("--delta", "0.01", "--population", "100"), ("--delta", "0.0011"), ("--delta", "0.99")):
        out = run(*words, *extra)
        assert out.code == 3
        assert out.stdout == ""
        assert "--population" in out.stderr or "1/population" in out.stderr


def test_error_states_bounds_for_each_and_for_all():
    out = run("error", "--epsilon", "1", "--coordinates", "10000")
    assert out.stdout.splitlines()[:2] == ["each answer ± 3 (95 %)", "all 10000 simultaneously ± 12 (95 %)"]
    assert "nothing spent" in out.stdout


@pytest.mark.parametrize("extra", [(), ("--delta", "1e-6")])
def test_error_finds_epsilon_for_a_given_error(extra):
    out = run("error", "--within", "50", *extra)
    assert out.stdout.splitlines()[0] == "each answer ± 50 (95 %)"
    assert ("Gaussian" if extra else "Laplace") in out.stdout


def test_choose_names_the_clear_winner_and_no_count():
    out = run("choose", "fever=1000000", "cough=98", "--epsilon", "1")
    assert out.stdout.splitlines()[0] == "fever"
    assert "1000000" not in out.stdout


@pytest.mark.parametrize("extra", [(), ("--epsilon", "60", "--allow-large-epsilon")])
def test_toss_returns_yes_or_no(extra):
    out = run("toss", "true", *extra)
    assert out.stdout.splitlines()[0] in ({"yes"} if extra else {"yes", "no"})


def test_a_name_is_shown_as_it_was_typed():
    assert run("choose", "[red]=5", "--epsilon", "1").stdout.splitlines()[0] == "[red]"


@pytest.mark.parametrize("answer", ["true", "YES", "y", "1", "false", "No", "n", "0"])
def test_toss_accepts_plain_yes_and_no(answer):
    message = run("toss", answer, "--epsilon", "60", "--allow-large-epsilon").stdout.splitlines()[0]
    assert message == ("yes" if answer in {"true", "YES", "y", "1"} else "no")


@pytest.mark.parametrize(("typed", "expected"), [("95", "0.95"), ("99.9", "0.999"), ("5/2", "0.025")])
def test_confidence_in_percent_is_refused_with_the_fix(typed, expected):
    for words in (("release", "5"), ("error",), ("choose", "a=1")):
        out = run(*words, "--epsilon", "1", "--confidence", typed)
        assert out.code == 2
        assert out.stderr.startswith("--confidence is ")
        assert f"did you mean {expected}?" in out.stderr


def test_the_version_is_that_of_the_package():
    assert run("--version").stdout == f"hubbub {metadata.version('hubbub')}\n"


def test_help_says_that_cells_are_disjoint():
    assert "If they are not disjoint" in " ".join(run("error", "--help").stdout.split())


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (["release", "nan", "--epsilon", "1"], "the value is not a number"),
        (["release", "4.5", "--epsilon", "1"], "the value is not an integer"),
        (["release", "5", "--epsilon", "0"], "--epsilon is 0"),
        (["release", "5", "--epsilon", "1/0"], "--epsilon is not a number"),
        (["release", "5", "--epsilon", "1", "--sensitivity", "0.5"], "--sensitivity is not an integer"),
        (["release", "5", "--epsilon", "1", "--sensitivity=-1"], "--sensitivity is -1"),
        (["release", "5", "--epsilon", "1", "--sensitivity", "0"], "the sensitivity is 0"),
        (["release", "5", "--epsilon", "1", "--confidence", "100"], "--confidence is 100"),
        (["release", "5", "--epsilon", "1", "--confidence", "0"], "--confidence is 0"),
        (["release", "5", "--epsilon", "1", "--delta", "1"], "--delta is 1 or more"),
        (["release", "5", "--epsilon", "1", "--population", "0"], "--population is 0"),
        (["error", "--within=-3"], "--within is -3"),
        (["error", "--within", "3", "--sensitivity", "0.5"], "--sensitivity is not an integer"),
        (["error", "--epsilon", "1", "--coordinates", "0"], "--coordinates is 0"),
        (["error", "--epsilon", "1", "--coordinates", "many"], "--coordinates is not a number"),
        (["error"], "neither --epsilon nor --within"),
        (["error", "--epsilon", "1", "--within", "3"], "both --epsilon and --within"),
        (["choose", "fever=1.5", "--epsilon", "1"], "a count is not an integer"),
        (["choose", "fever", "--epsilon", "1"], "fever has no count"),
        (["choose", "fever=-5", "cough=2", "--epsilon", "1"], "a count is below zero"),
        (["choose", "fever=5", "cough=2", "fever=3", "--epsilon", "1"], "a candidate is given twice"),
        (["choose", "fever=5", "=2", "--epsilon", "1"], "a candidate has no name"),
        (["choose", "fever=5", " =2", "--epsilon", "1"], "a candidate has no name"),
        (["toss", "maybe"], "the answer is neither yes nor no"),
        (["toss", "yes", "--epsilon", "0"], "--epsilon is 0"),
    ],
)
def test_bad_input_gives_one_line_without_traceback(words, what):
    out = run(*words)
    assert out.code == 2
    assert out.stdout == ""
    assert out.stderr.startswith(what)
    assert "Fix" in out.stderr
    assert "Traceback" not in out.stderr
    assert "=True" not in out.stderr


@pytest.mark.slow
def test_the_demo_shows_the_main_job_and_then_the_three_examples():
    out = run("demo")
    assert out.code == 0
    places = [
        out.stdout.index(words)
        for words in (
            "A made-up hospital: ",
            "SELECT region, COUNT(*) AS n, AVG(cost) AS cost FROM visits GROUP BY region",
            "nothing spent yet",
            "differentially private for each patient",
            "█▒",
            "hubbub demo --save .",
            "± 12 simultaneously",
            "exceeds 12.2",
            "Most common of 6 conditions",
            "toss coins",
            "ε = 1.09862",
        )
    ]
    assert places == sorted(places)


@pytest.mark.slow
def test_demo_writes_its_table_and_chart_to_the_given_folder(tmp_path):
    out = run("demo", "--save", str(tmp_path))
    assert out.code == 0
    assert {path.name for path in tmp_path.iterdir()} == {"visits.parquet", "hubbub-demo.svg"}
    assert (tmp_path / "hubbub-demo.svg").read_text().startswith("<svg")
    assert run("demo", "--save", str(tmp_path)).code == 0  # its own table may be there already
    (tmp_path / "visits.parquet").write_text("mine")
    other = run("demo", "--save", str(tmp_path))
    assert other.code == 2
    assert "is not the demo's" in other.stderr
    assert (tmp_path / "visits.parquet").read_text() == "mine"
    missing = run("demo", "--save", str(tmp_path / "nowhere"))
    assert missing.code == 2
    assert missing.stderr.startswith("--save is not a folder")


def test_demo_table_is_the_same_everywhere(tmp_path):
    visits = write_visits(tmp_path / "visits.parquet")
    rows = duckdb.read_parquet(str(tmp_path / "visits.parquet"))
    total = "count(*), count(DISTINCT patient), sum(patient), sum(cost), min(cost), max(cost), max(age)"
    assert rows.aggregate(total).fetchall() == [SAME]
    assert visits == SAME[0]
    assert {region for (region,) in rows.project("region").distinct().fetchall()} == set(REGIONS)


def test_a_bar_is_solid_up_to_the_low_end_and_blurred_to_the_high_end():
    assert bar(50, 10, 100) == "█" * 13 + "▒" * 6
    assert bar(0, 5, 100) == "▒" * 2
    assert bar(-40, 5, 100) == "▒"
    assert bar(100, 0.001, 100) == "█" * 32 + "▒"


def test_help_lists_every_command():
    for command in ("query", "plan", "init", "demo", "loss", "release", "error", "choose", "toss"):
        assert command in run("--help").stdout


@pytest.mark.slow
def test_installed_command_is_this_module():
    command = Path(sys.executable).with_name("hubbub")
    out = subprocess.run([command, "error", "--epsilon", "1"], capture_output=True, text=True, check=True)
    assert out.stdout.startswith("each answer ± 3 (95 %)")
