"""How accurate: logistic regression on UCI Adult, with hyper-parameters that never saw the test rows."""

import runpy
from pathlib import Path

import numpy as np
import pytest

from hubbub.estimators import LogisticRegression

ADULT = runpy.run_path(str(Path(__file__).parents[2] / "benchmarks" / "adult.py"))

# One run's accuracy varies by 0.2 points where noise is Gaussian and by 0.6 for pure ε = 0.1; the mean of
# five lies more than 10 standard deviations above what is asked.
WANTED = [
    (0.1, 1e-5, 82.5), (1, 1e-5, 83.8), (3, 1e-5, 84.0),
    # Pure: more than diffprivlib 0.6.6 reaches as it comes, in the same units, by what was published of it.
    (0.1, 0, 69.1), (1, 0, 78.7), (3, 0, 83.6),
]  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize(("epsilon", "delta", "expected"), WANTED)
def test_models_of_adult_reach_their_accuracy(epsilon, delta, expected):
    folder = ADULT["where"]()
    if folder is None:
        pytest.skip("the Adult files are not there")
    rows, labels, test, truth = ADULT["adult"](folder)
    scores = []
    for _ in range(5):
        model = LogisticRegression(
            epsilon=epsilon, delta=delta, bounds=ADULT["BOUNDS"], classes=[0, 1], account=None
        )
        model.fit(rows, labels)
        assert model.loss_.epsilon(delta) <= epsilon * (1 + 1e-12)
        scores.append(100 * model.score(test, truth))
    assert np.mean(scores) >= expected
