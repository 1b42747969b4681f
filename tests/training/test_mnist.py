"""How accurate: handwritten digits, by the example's own settings, which never saw the test images."""

import runpy
from pathlib import Path

import numpy as np
import pytest

MNIST = runpy.run_path(str(Path(__file__).parents[2] / "examples" / "mnist.py"))


@pytest.fixture(scope="module")
def folder():
    result = next((one for one in MNIST["FOLDERS"] if (one / "t10k-labels-idx1-ubyte.gz").exists()), None)
    if result is None:
        pytest.skip("MNIST's files are not there")
    return result


@pytest.fixture(scope="module")
def scattering(folder):
    return MNIST["scattering"](folder, runs=3)


# One run's accuracy varied by 0.09, 0.02 and 0.03 points; the means lay 0.59, 0.27 and 0.21 above what is
# asked: more than ten of their standard deviations, as far as three runs can tell.
@pytest.mark.long
@pytest.mark.parametrize(("epsilon", "expected"), [(1, 97.8), (3, 98.3), (8, 98.4)])
def test_scattering_with_a_linear_layer_reaches_its_accuracy(scattering, epsilon, expected):
    assert 100 * np.mean(scattering[epsilon]) >= expected


# One run got 93.8, 96.7 and 97.7; at ε = 8 runs differed by 0.13 points at most from their mean.
@pytest.mark.long
@pytest.mark.parametrize(("epsilon", "runs", "expected"), [(0.5, 1, 90), (2, 1, 95), (8, 2, 97)])
def test_protocol_of_the_paper_reaches_its_accuracy(folder, epsilon, runs, expected):
    train, test = MNIST["both"](folder, held_out=False)
    results = [MNIST["paper"](train, test, epsilon, **MNIST["PAPER"][epsilon]) for _ in range(runs)]
    assert 100 * np.mean(results) >= expected
