"""What docs/estimators.md says is so."""

import re
from pathlib import Path

import numpy as np

import hubbub.estimators

PAGE = (Path(__file__).parents[2] / "docs" / "estimators.md").read_text(encoding="utf-8")
SECTION = PAGE


def test_example_of_the_page_runs():
    rows = np.arange(600).reshape(-1, 2) % 10 / 10
    options = {"X": rows, "y": np.where(rows[:, 0] > 0.5, "yes", "no"), "X_new": rows[:3]}
    exec(re.findall(r"```python\n(.*?)```", SECTION, re.DOTALL)[0], options)  # noqa: S102 - our own page
    assert options["model"].loss_ == options["model"].receipt_.loss == options["account"].receipts[0].loss


def test_every_estimator_is_in_the_table():
    names = set(re.findall(r"^\| `(\w+)` \|", SECTION, re.MULTILINE))
    assert names == {
        "GaussianNB",
        "KMeans",
        "LinearRegression",
        "LogisticRegression",
        "PCA",
        "StandardScaler",
    }
    assert names <= set(hubbub.estimators.__all__)
