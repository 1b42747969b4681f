"""`hubbub audit`: exit codes, text, JSON, witness files that are replayed, pictures."""

import json
import re
import sys
from pathlib import Path

import pytest

from audit.zoo.noise import seeded
from cli.terminal import run

SUBJECTS = Path(__file__).parents[1] / "audit" / "subjects_under_test.py"
SURE = ("--confidence", "0.9999999999")
PAIR = "[[[1.0], []]]"


@pytest.fixture
def pairs(tmp_path):
    file = tmp_path / "pairs.json"
    file.write_text(PAIR)
    return str(file)


def test_violation_has_exit_code_1_and_a_witness_to_replay(tmp_path, pairs):
    witness, picture = tmp_path / "found.json", tmp_path / "laws.svg"
    result = run(
        "audit", f"{SUBJECTS}:half_noise_batch", "--batch", "--epsilon", "1", "--pairs", pairs, *SURE,
        "--samples", "20000", "--witness", str(witness), "--picture", str(picture),
    )  # fmt: skip
    assert result.code == 1, result.stderr
    assert "VIOLATION: ε ≥ 1" in result.stdout
    assert "on x and" in result.stdout
    assert "It cannot see" in result.stdout
    assert picture.read_text().startswith("<svg")
    again = run(
        "audit", f"{SUBJECTS}:half_noise_batch", "--replay", str(witness), "--samples", "40000", *SURE
    )
    assert again.code == 1, again.stdout
    assert "fresh draws" in again.stdout


@pytest.mark.sweep(3)
@pytest.mark.parametrize(
    ("claim", "bound"),
    [
        (("--epsilon", "1", "--delta", "0.01"), "ε ≥ 1.[1-9].* at δ = 0.01, .*claimed ε = 1"),
        (("--epsilon", "1", "--delta", "0.01", "--bound-delta"), "δ ≥ 0.[23].* at ε = 1, .*claimed δ = 0.01"),
        (("--mu", "0.5"), "μ ≥ 1.*claimed μ = 0.5"),
        (("--rho", "0.05"), "ρ ≥ 0.*claimed ρ = 0.05"),
        (("--renyi", "2,0.02"), "τ ≥ 1.* of order 2, .*claimed τ = 0.02"),
    ],
)
def test_replay_bounds_what_was_claimed(tmp_path, pairs, claim, bound):
    """Laplace noise for ε = 2: δ at ε = 1 is 0.39."""
    witness, subject = tmp_path / "found.json", f"{SUBJECTS}:half_noise_batch"
    more = ("--batch", "--pairs", pairs, "--samples", "8000", "--witness", str(witness), *SURE)
    with seeded(claim[0]):
        assert run("audit", subject, *claim, *more).code == 1
        again = run("audit", subject, "--replay", str(witness), "--samples", "40000", *SURE)
    assert again.code == 1, again.stdout + again.stderr
    assert re.search(bound, again.stdout.replace("\n", " ")), again.stdout
    weaker = ("--epsilon", "2.5", "--delta", "0.01")
    replay = run("audit", subject, "--replay", str(witness), *weaker, "--samples", "4000", *SURE)
    assert replay.code == 0, replay.stdout + replay.stderr


def test_replay_runs_nothing_that_a_file_names(tmp_path):
    trace = tmp_path / "trace"
    hostile = {
        "kind": "audit-witness/3", "subject": {"command": f"touch {trace}", "batch": False, "times": False},
        "claim": {"kind": "approximate", "symbol": "ε", "value": 1, "fixed": 0, "at": ""},
        "x": [1.0], "x_prime": [], "pair": "", "event": "y > 0",
        "score": {"number": "value ", "paths": []}, "threshold": 0, "above": True,
    }  # fmt: skip
    witness = tmp_path / "found.json"
    witness.write_text(json.dumps(hostile))
    alone = run("audit", "--replay", str(witness))
    assert alone.code == 2
    assert "without a subject" in alone.stderr
    other = run("audit", f"{SUBJECTS}:exact_sum", "--replay", str(witness), "--samples", "200", *SURE)
    assert other.code == 0, other.stderr
    assert "another subject" in other.stdout
    assert not trace.exists()
    for score in (
        {"number": "difference x", "paths": []},
        {"categories": "atom ", "odds": [["'x'", 1]], "paths": []},
        {"categories": "atom ", "odds": [], "paths": []},
        {"learned": ["value "], "categories": [], "center": [0], "scale": [1], "weights": [1], "paths": []},
        [],
    ):
        witness.write_text(json.dumps(hostile | {"score": score}))
        wrong = run("audit", f"{SUBJECTS}:exact_sum", "--replay", str(witness), "--samples", "200")
        assert wrong.code == 2, wrong.stdout
        assert "witness file" in wrong.stderr


def test_no_violation_has_exit_code_0(pairs):
    result = run(
        "audit", f"{SUBJECTS}:exact_sum", "--epsilon", "1", "--samples", "600", "--pairs", pairs, *SURE
    )
    assert result.code == 0, result.stderr
    assert "no violation found" in result.stdout
    assert "--times" in result.stdout


def test_constant_answers_are_said_to_tell_nothing_apart(tmp_path, pairs):
    (tmp_path / "constant.py").write_text("def answer(database):\n    return None\n")
    result = run(
        "audit", f"{tmp_path}/constant.py:answer", "--epsilon", "1", "--pairs", pairs, "--samples", "400"
    )
    assert result.code == 0, result.stderr
    assert "no outcome that was looked at was more frequent on one input than on the other" in result.stdout
    assert "400 samples on 1 pair in" in result.stdout


def test_subject_that_only_fails_is_no_mechanism_without_a_leak(tmp_path, pairs):
    (tmp_path / "wrong.py").write_text("def answer(database, epsilon):\n    return 0\n")
    for words in ((f"{tmp_path}/wrong.py:answer",), ("--command", f"{sys.executable} {tmp_path}/absent.py")):
        result = run("audit", *words, "--epsilon", "1", "--pairs", pairs, "--samples", "128")
        assert result.code == 2, result.stdout
        assert "the subject fails on every database (" in result.stderr


def test_modules_of_this_folder_are_subjects(tmp_path, monkeypatch):
    (tmp_path / "answers_of_this_folder.py").write_text("def rows(database):\n    return len(database)\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    result = run("audit", "answers_of_this_folder:rows", "--epsilon", "1", "--samples", "600", *SURE)
    assert result.code == 1, result.stderr


def test_query_that_cannot_be_planned_is_refused(pairs):
    result = run("audit", "--sql", "SELECT value FROM data", "--epsilon", "1", "--pairs", pairs)
    assert result.code == 3
    assert "GROUP BY" in result.stderr


def test_json_is_for_programs():
    result = run(
        "audit", f"{SUBJECTS}:returns_rows", "--epsilon", "1", "--samples", "600", "--format", "json", *SURE
    )
    assert result.code == 1
    stored = json.loads(result.stdout)
    assert stored["kind"] == "audit/1"
    assert stored["refuted"] is True


def test_commands_are_subjects(pairs):
    code = "import sys; print(len(sys.stdin.readlines()))"
    result = run(
        "audit", "--command", f"{sys.executable} -c '{code}'", "--epsilon", "1", "--samples", "128",
        "--pairs", pairs, "--confidence", "0.9",
    )  # fmt: skip
    assert result.code == 1, result.stderr


@pytest.mark.long
def test_queries_are_subjects(pairs):
    sql = run(
        "audit", "--sql", "SELECT SUM(value) AS total FROM data", "--epsilon", "1", "--samples", "128",
        "--pairs", pairs, *SURE,
    )  # fmt: skip
    assert sql.code == 0, sql.stderr


@pytest.mark.sweep(3)
@pytest.mark.parametrize(
    "claim", [("--rho", "0.5"), ("--mu", "1"), ("--renyi", "2,1"), ("--epsilon", "1", "--bound-delta")]
)
def test_other_claims_are_typed(claim, pairs):
    result = run("audit", f"{SUBJECTS}:returns_rows", *claim, "--samples", "400", "--pairs", pairs, *SURE)
    assert result.code in {0, 1}, result.stderr
    assert result.stdout


@pytest.mark.parametrize(
    "words",
    [
        ("math:fsum",),
        ("math:fsum", "--epsilon", "1", "--rho", "1"),
        ("--epsilon", "1"),
        ("nothing", "--epsilon", "1"),
        ("http://example.org/", "--epsilon", "1"),
        ("--sql", "SELECT 1", "--rho", "1"),
        ("math:fsum", "--renyi", "1,2"),
        ("math:fsum", "--epsilon", "1", "--rows", "nonsense"),
        ("math:fsum", "--epsilon", "1", "--witness", "found.txt"),
        ("--replay", "/no/such/file.json"),
    ],
)
def test_errors_have_exit_codes(words):
    result = run("audit", *words)
    assert result.code in {2, 3}
    assert "Fix:" in result.stderr
