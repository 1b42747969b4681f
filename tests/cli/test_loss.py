"""`hubbub loss`, as a person uses it."""

import json
import re
import shlex
import subprocess
import sys
import xml.etree.ElementTree as ET
from fractions import Fraction
from unittest import mock

import pytest
from rich.progress import Progress

from cli.terminal import run
from hubbub.accounting import Bounds, PrivacyLoss
from hubbub.cli.loss_output import stepping
from hubbub.cli.options import parse_number
from hubbub.errors import InvalidInput
from hubbub.numbers import format_down, format_nearest, format_up

TRAINING = ("loss", "--gaussian", "1.1", "--rate", "256/60000", "--steps", "14063")
TRUTH = Fraction("2.38168972614165")
"""ε of that run at δ = 1e-5, to 15 digits: tests/loss/vectors.py has more."""


def bounds_in(stdout):
    """Upper and lower bound as they were printed."""
    upper, lower = (re.search(rf"([\d.e-]+|∞)  at {side}", stdout).group(1) for side in ("most", "least"))
    return upper, lower


def answer_of(*words):
    out = run("loss", *words, "--format", "json")
    assert out.code == 0, out.stderr
    return json.loads(out.stdout)


def test_training_run_shows_bounds_method_and_meaning():
    out = run(*TRAINING, "--delta", "1e-5", width=80)
    assert out.code == 0
    upper, lower = bounds_in(out.stdout)
    assert Fraction(lower) <= TRUTH <= Fraction(upper)
    assert Fraction(upper) - Fraction(lower) < Fraction("1e-7")
    assert 10 <= len(upper.replace(".", "")) <= 12  # zeros at the end are not written
    for words in (
        "at δ       1e-5",
        "Fourier integral",
        "advantage  0.22446",
        "What it means",
        "50 % becomes at most",
    ):
        assert words in out.stdout
    assert out.stderr == ""
    assert "…" not in out.stdout  # nothing is cut off on a narrow terminal


def test_json_has_the_same_numbers():
    answer = answer_of(*TRAINING[1:], "--delta", "1e-5")
    assert answer["epsilon"]["lower"] <= TRUTH <= answer["epsilon"]["upper"]
    assert answer["epsilon"]["how"] == "Fourier integral"
    assert answer["epsilon"]["loose"] is False
    assert answer["target"] == {"delta": 1e-5}
    assert 0.2244 < answer["advantage"] < 0.2245
    assert any("50 % becomes at most" in line for line in answer["meaning"])


def test_renyi_bound_is_labelled_loose():
    assert "looser" in run("loss", "--zcdp", "0.1", "--delta", "1e-6").stdout.split("What it means")[0]
    assert answer_of("--zcdp", "0.1", "--delta", "1e-6")["epsilon"]["loose"] is True


@pytest.mark.parametrize(
    ("words", "loss"),
    [
        (["--gaussian", "2"], PrivacyLoss.gaussian(Fraction(1, 2))),
        (["--gaussian", "1/3"], PrivacyLoss.gaussian(3)),
        (["--laplace", "4"], PrivacyLoss.laplace(Fraction(1, 4))),
        (["--discrete-gaussian", "4"], PrivacyLoss.discrete_gaussian(4)),
        (["--discrete-laplace", "2"], PrivacyLoss.discrete_laplace(2)),
        (["--response", "3/4"], PrivacyLoss.randomized_response(Fraction(3, 4))),
        (["--bounded-range", "1"], PrivacyLoss.bounded_range(1)),
        (["--pure", "0.1"], PrivacyLoss.pure(Fraction(1, 10))),
        (["--zcdp", "1/2"], PrivacyLoss.zcdp(Fraction(1, 2))),
        (["--approximate", "0.1,1e-8"], PrivacyLoss.approximate(Fraction(1, 10), Fraction(1, 10**8))),
        (["--gaussian", "2", "--steps", "9"], PrivacyLoss.gaussian(Fraction(3, 2))),
        (
            ["--gaussian", "2", "--gaussian", "2", "--pure", "1"],
            PrivacyLoss.gaussian_from_mu_squared(0.5) + PrivacyLoss.pure(1),
        ),
        (["--pure", "0.1", "--group", "3"], PrivacyLoss.pure(Fraction(1, 10)).for_group(3)),
        (["--gaussian", "2", "--rate", "1"], PrivacyLoss.gaussian(Fraction(1, 2))),
        (["--pure", "2", "--rate", "1/10"], PrivacyLoss.pure(2).poisson_subsampled(Fraction(1, 10))),
        (
            ["--response", "3/4", "--rate", "1/10", "--without-replacement"],
            PrivacyLoss.randomized_response(Fraction(3, 4)).subsampled_without_replacement(10, 1),
        ),
        (["--pure", "1", "--shuffled", "100"], PrivacyLoss.pure(1).shuffled(100)),
    ],
)
def test_every_mechanism_option_is_accounted(words, loss):
    answer = answer_of(*words, "--delta", "1e-4")
    bounds = loss.epsilon_bounds(Fraction(1, 10**4))
    assert (answer["epsilon"]["lower"], answer["epsilon"]["upper"]) == tuple(bounds)
    assert answer["epsilon"]["how"] == bounds.method
    assert answer["loss"] == str(loss)
    assert answer["advantage"] == loss.advantage()


def test_sampling_applies_to_each_mechanism():
    answer = answer_of("--pure", "1", "--pure", "2", "--rate", "1/10", "--delta", "1e-4")
    one, other = (PrivacyLoss.pure(epsilon).poisson_subsampled(Fraction(1, 10)) for epsilon in (1, 2))
    assert answer["loss"] == str(one + other)


def test_delta_at_a_given_epsilon_is_shown():
    out = run("loss", "--gaussian", "1", "--epsilon", "1")
    upper, lower = bounds_in(out.stdout)
    assert Fraction(lower) <= Fraction("0.12693673750664397") <= Fraction(upper)
    assert out.stdout.startswith("δ ")
    assert "at ε       1" in out.stdout
    answer = answer_of("--gaussian", "1", "--epsilon", "1")
    assert answer["delta"]["lower"] <= 0.12693673750664397 <= answer["delta"]["upper"]
    assert answer["target"] == {"epsilon": 1.0}


def test_pure_losses_need_no_delta():
    answer = answer_of("--pure", "0.1", "--pure", "0.2")
    assert answer["epsilon"]["upper"] == pytest.approx(0.3)
    assert answer["epsilon"]["upper"] >= Fraction(3, 10)
    assert answer["target"] == {"delta": 0.0}
    assert "0.3  at most" in run("loss", "--pure", "0.1", "--pure", "0.2").stdout


def test_infinite_epsilon_is_null_in_json():
    words = ("--approximate", "0.1,1e-3", "--delta", "1e-6")
    out = run("loss", *words)
    assert bounds_in(out.stdout) == ("∞", "∞")
    assert "No ε holds at a δ" in out.stdout
    assert answer_of(*words)["epsilon"]["upper"] is None


# Noise for a promise


@pytest.mark.parametrize(
    ("kind", "extra", "truth"),
    [
        ("gaussian", ("--delta", "1e-5"), 3.730631634),
        ("laplace", (), 1),
        ("discrete-laplace", (), 1),
        ("pure", ("--steps", "4"), 0.25),
        ("zcdp", ("--delta", "1e-5"), None),
        ("discrete-gaussian", ("--delta", "1e-5"), None),
    ],
)
def test_calibrated_noise_meets_the_target_and_less_does_not(kind, extra, truth):
    answer = answer_of("--find", kind, "--epsilon", "1", *extra)
    value = answer["calibration"][kind]
    if truth is not None:
        assert value == pytest.approx(truth, rel=1e-8)
    assert 0.999 < answer["epsilon"]["upper"] <= 1
    less = Fraction(value) * (Fraction(101, 100) if kind in {"pure", "zcdp"} else Fraction(99, 100))
    assert answer_of(f"--{kind}", str(less), *(extra or ("--delta", "0")))["epsilon"]["upper"] > 1


@pytest.mark.parametrize(
    "words", [("--rate", "1/100", "--steps", "1000"), ("--gaussian", "8", "--pure", "0.1")]
)
def test_noise_is_calibrated_for_sampled_and_composed_runs(words):
    words = (*words, "--delta", "1e-5")
    out = run("loss", "--find", "gaussian", "--epsilon", "1", *words)
    sigma = re.match(r"σ +([\d.]+)  \(gaussian: least", out.stdout).group(1)
    assert Fraction(bounds_in(out.stdout)[0]) <= 1
    again = answer_of("--gaussian", sigma, *words)["epsilon"]
    # It is the printed number that keeps the promise.
    assert 1 - 1e-6 < again["upper"] <= 1


def test_round_noise_multiplier_is_shown_without_digits():
    assert re.match(r"scale +4  \(laplace", run("loss", "--find", "laplace", "--epsilon", "1/4").stdout)


# The curve


@pytest.mark.slow
def test_tradeoff_curve_is_shown_as_table_and_json():
    out = run("loss", "--gaussian", "1", "--tradeoff")
    assert "0.907637" in out.stdout  # 0.9076378…, down
    answer = answer_of("--gaussian", "1", "--tradeoff", "--alpha", "1/100", "--alpha", "0.5")
    loss = PrivacyLoss.gaussian(1)
    assert answer["tradeoff"] == [
        {"alpha": 0.01, "beta": loss.tradeoff(Fraction(1, 100))},
        {"alpha": 0.5, "beta": loss.tradeoff(Fraction(1, 2))},
    ]
    assert "epsilon" not in answer


@pytest.mark.slow
def test_tradeoff_bars_end_where_guessing_does():
    lines = [line for line in run("loss", "--gaussian", "1", "--tradeoff").stdout.splitlines() if "░" in line]
    assert "██████████░░░░░░░░░ " in next(line for line in lines if " 0.2 " in line)


# Pictures and files


@pytest.mark.parametrize(
    ("words", "title"),
    [
        ((), "The privacy curve"),
        (("--delta", "1e-5"), "The privacy curve"),
        (("--epsilon", "1"), "The privacy curve"),
        (("--tradeoff",), "Errors of any membership test"),
        (("--draw", "tradeoff"), "Errors of any membership test"),
        (("--draw", "distribution"), "Privacy loss distribution"),
        (("--draw", "distribution", "--epsilon", "1"), "Privacy loss distribution"),
        (("--draw", "curve", "--tradeoff"), "The privacy curve"),
    ],
)
def test_pictures_are_well_formed(words, title):
    out = run("loss", "--gaussian", "1", "--format", "svg", *words)
    assert out.code == 0
    root = ET.fromstring(out.stdout)  # noqa: S314 - it is our own
    assert root.find("{http://www.w3.org/2000/svg}title").text.startswith(title)


def test_chart_marks_the_given_point():
    assert "ε = 4.37718" in run("loss", "--gaussian", "1", "--delta", "1e-5", "--format", "svg").stdout
    answer = run("loss", "--gaussian", "1", "--epsilon", "1", "--format", "svg").stdout
    assert re.search(r"ε = 1(\.00001)? at δ = 0\.126937", answer)


@pytest.mark.parametrize("form", ["text", "json", "svg"])
def test_result_is_written_to_a_file(tmp_path, form):
    file = tmp_path / "answer"
    words = ("loss", "--gaussian", "1", "--delta", "1e-5", "--format", form)
    out = run(*words, "--output", str(file))
    assert (out.code, out.stdout) == (0, "")
    assert file.read_text(encoding="utf-8").split() == run(*words, width=110).stdout.split()


@pytest.mark.parametrize(
    ("name", "form"),
    [("it.svg", "svg"), ("it.SVG", "svg"), ("it.json", "json"), ("it.txt", "text"), ("it", "text")],
)
def test_file_has_the_format_of_its_extension(tmp_path, name, form):
    file = tmp_path / name
    words = ("loss", "--pure", "1")
    assert run(*words, "--output", str(file)).code == 0
    assert file.read_text(encoding="utf-8").split() == run(*words, "--format", form, width=110).stdout.split()


@pytest.mark.parametrize(
    ("words", "title"),
    [
        (("--tradeoff",), "Errors of any membership test"),
        (("--draw", "distribution"), "Privacy loss distribution"),
    ],
)
def test_svg_extension_writes_the_chosen_chart(tmp_path, words, title):
    file = tmp_path / "it.svg"
    assert run("loss", "--gaussian", "1", *words, "--output", str(file)).code == 0
    assert ET.parse(file).getroot().find("{http://www.w3.org/2000/svg}title").text.startswith(title)  # noqa: S314


@pytest.mark.parametrize(
    ("name", "form", "fitting"),
    [
        ("it.svg", "text", "FILE.txt"),
        ("it.svg", "json", "FILE.json"),
        ("it.json", "svg", "FILE.svg"),
        ("it.txt", "svg", "FILE.svg"),
        ("it.png", "svg", "FILE.svg"),
        ("it.pdf", None, "FILE.svg"),
    ],
)
def test_format_that_contradicts_the_extension_is_refused(tmp_path, name, form, fitting):
    file = tmp_path / name
    out = run("loss", "--pure", "1", "--output", str(file), *(("--format", form) if form else ()))
    assert out.code == 2
    assert f"the output ends in {file.suffix}" in out.stderr
    assert fitting in out.stderr
    assert not file.exists()


@pytest.mark.parametrize("place", ["missing/answer.svg", "."])
def test_unwritable_file_is_a_hubbub_error(tmp_path, place):
    out = run("loss", "--pure", "1", "--output", str(tmp_path / place))
    assert out.code == 2
    assert out.stderr.startswith("the output ")
    assert "cannot be written: " in out.stderr


@pytest.mark.slow
def test_progress_is_shown_on_terminals_only(monkeypatch):
    words = ("loss", "--gaussian", "1", "--tradeoff", "--alpha", "0.1", "--format", "json")
    quiet = run(*words)
    assert quiet.stderr == ""
    with mock.patch.dict("os.environ", {"FORCE_COLOR": "1", "TERM": "xterm"}):
        watched = run(*words)
    assert "trade-off" in watched.stderr
    assert json.loads(watched.stdout) == json.loads(quiet.stdout)


def test_progress_of_the_search_is_shown():
    words = ("loss", "--find", "gaussian", "--epsilon", "1", "--delta", "1e-5", "--format", "json")
    assert run(*words).stderr == ""
    with mock.patch.dict("os.environ", {"FORCE_COLOR": "1", "TERM": "xterm"}):
        watched = run(*words)
    assert "calibrating" in watched.stderr
    assert "bounding the loss" in watched.stderr
    assert "━" in watched.stderr
    assert json.loads(watched.stdout) == json.loads(run(*words).stdout)


def test_progress_bar_is_full_only_at_the_end(monkeypatch):
    seen = []
    monkeypatch.setattr(
        Progress, "update", lambda self, task, **at: seen.append((at["completed"], at["total"]))
    )
    with mock.patch.dict("os.environ", {"FORCE_COLOR": "1", "TERM": "xterm"}), stepping("it", 2) as step:
        for _ in range(3):
            step()
    assert seen == [(0, 2), (1, 2), (2, 3)]


# What is refused


@pytest.mark.parametrize(
    ("words", "what"),
    [
        ([], "no mechanism is given"),
        (["--gaussian", "x", "--delta", "1e-5"], "--gaussian is not a number"),
        (["--gaussian", "nan", "--delta", "1e-5"], "--gaussian is not a number"),
        (["--gaussian", "1/0", "--delta", "1e-5"], "--gaussian is not a number"),
        (["--gaussian", "1//2", "--delta", "1e-5"], "--gaussian is not a number"),
        (["--gaussian", "1e999999999", "--delta", "1e-5"], "--gaussian has more than"),
        (["--gaussian", "0", "--delta", "1e-5"], "--gaussian is 0"),
        (["--gaussian=-1", "--delta", "1e-5"], "--gaussian is -1"),
        (["--gaussian", "1"], "neither --delta nor --epsilon"),
        (["--gaussian", "1", "--delta", "1"], "--delta is 1 or more"),
        (["--gaussian", "1", "--delta=-1e-5"], "--delta is -1/100000"),
        (["--gaussian", "1", "--delta", "1e-5", "--epsilon", "1"], "both --delta and --epsilon"),
        (["--gaussian", "1", "--delta", "1e-5", "--rate", "2"], "--rate is above 1"),
        (["--gaussian", "1", "--delta", "1e-5", "--rate", "2", "--without-replacement"], "--rate is above 1"),
        (["--gaussian", "1", "--delta", "1e-5", "--without-replacement"], "--without-replacement is given"),
        (["--gaussian", "1", "--delta", "1e-5", "--steps", "1.5"], "--steps is 3/2"),
        (["--gaussian", "1", "--delta", "1e-5", "--steps", "0"], "--steps is 0"),
        (["--gaussian", "1", "--delta", "1e-5", "--group", "0"], "--group is 0"),
        (["--gaussian", "1", "--delta", "1e-5", "--shuffled", "10"], "only pure losses are shuffled"),
        (["--pure", "1", "--rate", "0.1", "--shuffled", "10"], "both --rate and --shuffled"),
        (["--approximate", "0.1"], "--approximate is not two numbers"),
        (["--approximate", "0.1,x"], "the δ of --approximate is not a number"),
        (["--approximate=-0.1,1e-8"], "the ε of --approximate is -1/10"),
        (["--approximate", "0.1,1"], "the δ of --approximate is 1"),
        (["--response", "0.4"], "--response is below 1/2"),
        (["--response", "1"], "--response is 1"),
        (["--pure=-1"], "--pure is -1"),
        (["--zcdp=-1", "--delta", "1e-5"], "--zcdp is -1"),
        (["--bounded-range=-1"], "--bounded-range is -1"),
        (["--pure", "1", "--steps", "1e19"], "--steps is above 10^18"),
        (["--pure", "1", "--epsilon=-1"], "--epsilon is -1"),
        (["--pure", "1", "--rate=-1"], "--rate is -1"),
        (["--pure", "1", "--shuffled", "0"], "--shuffled is 0"),
        (["--gaussian", "1", "--delta", "1e-3", "--population", "1000"], "--delta is not below 1/population"),
        (["--gaussian", "1", "--epsilon", "1", "--population", "1000"], "--population is given without"),
        (["--find", "gaussian", "--epsilon", "1", "--delta", "0.01"], "--delta is above 1/1000"),
        (["--find", "gaussian", "--delta", "1e-5"], "--find is given without --epsilon"),
        (["--find", "gaussian", "--epsilon", "1"], "--delta is missing"),
        (["--find", "gaussian", "--epsilon", "0", "--delta", "1e-5"], "--epsilon is 0"),
        (["--gaussian", "1", "--alpha", "0.1", "--delta", "0.1"], "--alpha is given without --tradeoff"),
        (["--gaussian", "1", "--tradeoff", "--alpha", "2"], "--alpha is above 1"),
        (["--pure", "1", "--draw", "curve"], "--draw is given without --format svg"),
    ],
)
def test_bad_input_gives_one_line_without_traceback(words, what):
    out = run("loss", *words)
    assert out.code in {2, 3}
    assert out.stdout == ""
    assert out.stderr.startswith(what)
    assert "Fix" in out.stderr


@pytest.mark.parametrize(
    ("words", "option"),
    [
        (["--gaussian", "1", "--shuffled", "9"], "such as randomized response"),
        (["--zcdp", "1", "--rate", "0.1"], "such as Gaussian noise"),
        (["--zcdp", "1", "--rate", "0.1", "--without-replacement"], "such as Gaussian noise"),
    ],
)
def test_fixes_name_shell_options(words, option):
    out = run("loss", *words, "--delta", "1e-5")
    assert option in out.stderr
    assert "Loss." not in out.stderr


def test_large_delta_may_be_queried_and_calibrated_with_a_population():
    assert answer_of("--gaussian", "1", "--delta", "0.01")["target"] == {"delta": 0.01}
    assert answer_of("--gaussian", "1", "--delta", "0.01", "--population", "99")["target"] == {"delta": 0.01}
    words = ("--find", "gaussian", "--epsilon", "1", "--delta", "0.01", "--population", "99")
    assert answer_of(*words)["epsilon"]["upper"] <= 1


@pytest.mark.parametrize("words", [["--format", "png"], ["--find", "nothing"]])
def test_unknown_choice_is_refused_with_the_known_ones(words):
    out = run("loss", "--pure", "1", *words)
    assert out.code == 2
    assert "svg" in out.stderr or "gaussian" in out.stderr


# Numbers


def test_printed_bounds_are_rounded_outwards(monkeypatch):
    monkeypatch.setattr(
        PrivacyLoss, "epsilon_bounds", lambda self, delta: Bounds(1.0000000000019, 2.0000000000011, "PLD")
    )
    out = run("loss", "--gaussian", "1", "--delta", "1e-5")
    assert bounds_in(out.stdout) == ("2.00000000001", "1")
    monkeypatch.setattr(
        PrivacyLoss, "epsilon_bounds", lambda self, delta: Bounds(1.99999999999999, 2.0, "PLD")
    )
    assert bounds_in(run("loss", "--gaussian", "1", "--delta", "1e-5").stdout) == ("2", "1.99999999999")


def test_printed_advantage_is_rounded_up(monkeypatch):
    monkeypatch.setattr(PrivacyLoss, "advantage", lambda self: 0.1000000000001)
    assert "advantage  0.100000000001  at most" in run("loss", "--pure", "1").stdout


@pytest.mark.parametrize(
    "value", [Fraction(1, 3), Fraction(2, 3) * 10**20, Fraction(1, 7 * 10**9), Fraction(5)]
)
def test_rounding_has_the_stated_direction(value):
    assert Fraction(format_down(value, 12)) <= value <= Fraction(format_up(value, 12))
    assert Fraction(format_up(value, 12)) - Fraction(format_down(value, 12)) <= value / 10**11
    assert abs(Fraction(format_nearest(value, 12)) - value) <= value / 10**11 / 2


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0.1", Fraction(1, 10)),
        ("256/60000", Fraction(256, 60000)),
        (" 1.5 / 3 ", Fraction(1, 2)),
        ("1e-5", Fraction(1, 10**5)),
        ("-2", Fraction(-2)),
    ],
)
def test_numbers_are_parsed_exactly(text, value):
    assert parse_number(text, "it") == value


@pytest.mark.parametrize("text", ["", "/", "1/", "/2", "inf", "1/inf", "ε", "1 2", "1/2/3", "0x10"])
def test_non_number_is_refused_by_option_name(text):
    with pytest.raises(InvalidInput, match=r"^it is not a number"):
        parse_number(text, "it")


# Help


def examples():
    lines = run("loss", "--help", width=120).stdout.splitlines()
    return [line.strip() for line in lines if line.strip().startswith("hubbub loss --")]


def test_help_has_examples_of_each_use():
    text = "\n".join(examples())
    for words in ("--rate", "--epsilon", "--find", "--shuffled", "--tradeoff", "json", "svg"):
        assert words in text


def test_help_names_the_python_equivalent():
    text = " ".join(run("loss", "--help").stdout.split())
    assert "Loss.gaussian takes μ = 1/σ" in text
    assert "Loss.laplace takes ε = 1/scale" in text


@pytest.mark.parametrize("line", examples())
def test_every_example_in_the_help_runs(line):
    out = run(*shlex.split(line)[1:])
    assert out.code == 0, out.stderr
    assert out.stdout


def test_command_imports_optional_modules_lazily():
    code = "import hubbub.cli, sys; print([m for m in sys.modules])"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert "'hubbub.report.charts'" not in loaded
    assert "'rich.progress'" not in loaded


@pytest.mark.slow
def test_commands_load_the_database_lazily():
    code = "import hubbub.cli.all_commands, sys; print([m for m in sys.modules])"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert "'duckdb'" not in loaded


@pytest.mark.slow
def test_help_of_a_command_loads_neither_engines_nor_validators():
    code = (
        "import hubbub.cli, sys; sys.argv = ['hubbub', 'query', '--help']\n"
        "try: hubbub.cli.main()\nfinally: print([m for m in sys.modules])"
    )
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False).stdout
    assert "--epsilon" in loaded
    for module in ("duckdb", "numpy", "sqlglot", "pydantic"):
        assert f"'{module}'" not in loaded
