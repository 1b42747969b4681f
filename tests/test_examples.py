"""Every example runs, and says something."""

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).parents[1] / "examples").glob("*.py"))
LONG = {"auditing", "differencing", "generalisation", "mnist", "synthetic_training"}


def test_examples_exist():
    attacks = {"auditing", "averaging", "differencing", "linkage", "reconstruction"}
    assert attacks | {"hospital", "publish_one_row", "textbook"} <= {example.stem for example in EXAMPLES}


@pytest.mark.parametrize(
    "example",
    [
        pytest.param(example, id=example.stem, marks=[pytest.mark.long] * (example.stem in LONG))
        for example in EXAMPLES
    ],
)
def test_example_runs(example, tmp_path):
    # Warnings are errors there too, and it needs nothing from where it is started.
    ran = subprocess.run(
        [sys.executable, "-W", "error", str(example)],
        cwd=tmp_path,
        capture_output=True,
        encoding="utf-8",
        timeout=120,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stderr == ""
    assert len(ran.stdout.splitlines()) >= 5
