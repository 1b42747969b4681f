"""The command line, as a person uses it."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from cli.terminal import run
from hubbub.cli.demo import bar


def test_release_of_an_integer_is_an_integer_with_its_error_and_cost():
    out = run("release", "42", "--epsilon", "0.5")
    assert out.code == 0
    first, second = out.stdout.splitlines()
    assert re.fullmatch(r"-?\d+ ± 6 \(95 %\)", first)
    assert second == "Laplace noise of scale 2 on integers: ε = 0.5; the sensitivity is your word"


def test_release_of_a_real_lies_on_a_grid():
    out = run("release", "3.25", "--epsilon", "1", "--sensitivity", "0.1", "--real")
    assert re.match(r"-?\d+\.\d+(e-\d+)? ± 0\.299", out.stdout)


def test_release_takes_the_better_law():
    many = run("release", "42", "--epsilon", "1", "--delta", "0.01", "--sensitivity", "1")
    assert "noise of" in many.stdout


def test_error_says_each_and_all():
    out = run("error", "--epsilon", "1", "--cells", "10000")
    assert out.stdout.splitlines()[:2] == ["each answer ± 3 (95 %)", "all 10000 at once ± 12 (95 %)"]
    assert "nothing spent" in out.stdout


@pytest.mark.parametrize("extra", [(), ("--delta", "1e-6")])
def test_error_the_other_way_round(extra):
    out = run("error", "--within", "50", *extra)
    assert out.stdout.splitlines()[0] == "each answer ± 50 (95 %)"
    assert ("Gaussian" if extra else "Laplace") in out.stdout


def test_choose_names_the_clear_winner_and_no_count():
    out = run("choose", "fever=1000000", "cough=98", "--epsilon", "1")
    assert out.stdout.splitlines()[0] == "fever"
    assert "1000000" not in out.stdout


@pytest.mark.parametrize("extra", [(), ("--epsilon", "60")])
def test_toss_answers_yes_or_no(extra):
    out = run("toss", "true", *extra)
    assert out.stdout.splitlines()[0] in ({"yes"} if extra else {"yes", "no"})


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (["release", "nan", "--epsilon", "1"], "the value is not a number"),
        (["release", "4.5", "--epsilon", "1"], "the value is not a whole number"),
        (["release", "5", "--epsilon", "0"], "epsilon is 0"),
        (["release", "5", "--epsilon", "1/0"], "epsilon is not a number"),
        (["error"], "neither or both"),
        (["error", "--epsilon", "1", "--within", "3"], "neither or both"),
        (["choose", "fever=1.5", "--epsilon", "1"], "a count is not a whole number"),
        (["choose", "fever", "--epsilon", "1"], "a count is not a number"),
    ],
)
def test_bad_input_is_one_sentence_and_no_traceback(words, what):
    out = run(*words)
    assert out.code == 2
    assert out.stdout == ""
    assert out.stderr.startswith(what)
    assert "To mend it" in out.stderr
    assert "Traceback" not in out.stderr


def test_the_demo_shows_the_three_examples():
    out = run("demo")
    assert out.code == 0
    for words in (
        "more than 12.2",
        "± 12 all at once",
        "Most common of 6 conditions",
        "toss coins",
        "ε = 1.09862",
    ):
        assert words in out.stdout


def test_a_bar_is_solid_up_to_the_low_end_and_blurred_to_the_high_end():
    assert bar(50, 10, 100) == "█" * 13 + "▒" * 6
    assert bar(0, 5, 100) == "▒" * 2
    assert bar(-40, 5, 100) == "▒"
    assert bar(100, 0.001, 100) == "█" * 32 + "▒"


def test_help_lists_every_command():
    for command in ("demo", "loss", "release", "error", "choose", "toss"):
        assert command in run("--help").stdout


def test_the_installed_command_is_this_one():
    command = Path(sys.executable).with_name("hubbub")
    out = subprocess.run([command, "error", "--epsilon", "1"], capture_output=True, text=True, check=True)
    assert out.stdout.startswith("each answer ± 3 (95 %)")
