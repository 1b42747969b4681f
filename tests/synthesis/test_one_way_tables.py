import numpy as np
import pytest

from hubbub.synthesis.one_way_tables import estimate_counts, project_to_simplex


@pytest.mark.parametrize("values", [1, 2, 19, 20, 21, 300])
@pytest.mark.parametrize("sd", [1e-3, 30.0, 1e5])
@pytest.mark.parametrize("total", [1.0, 5e4])
def test_counts_are_not_negative_and_have_the_sum(values, sd, total):
    random = np.random.default_rng(1)
    true = random.dirichlet(np.full(values, 0.1)) * total
    counts = estimate_counts(true + random.normal(0, sd, values), sd, total)
    assert counts.min() >= 0
    assert counts.sum() == pytest.approx(total)


@pytest.mark.parametrize("sd", [5.0, 30.0, 150.0])
@pytest.mark.parametrize(
    "true",
    [
        30_000 * np.exp(-np.arange(60) / 3),
        30_000 / np.arange(1, 101) ** 2,
        np.array([20_000.0, *[50.0] * 60]),
    ],
)
def test_counts_of_many_rare_values_are_closer_than_projected_ones(true, sd):
    random = np.random.default_rng(2)
    ours, projected = [], []
    for _ in range(20):
        noisy = true + random.normal(0, sd, true.size)
        ours.append(np.abs(estimate_counts(noisy, sd, true.sum()) - true).sum())
        projected.append(np.abs(project_to_simplex(noisy, true.sum()) - true).sum())
    assert np.mean(ours) <= np.mean(projected)
    if sd == 150:
        assert np.mean(ours) < 0.97 * np.mean(projected)


def test_counts_far_beyond_noise_are_as_measured():
    true = np.array([5000.0, 3000.0, 900.0, *[0.0] * 30])
    noisy = true + np.random.default_rng(3).normal(0, 4, true.size)
    assert estimate_counts(noisy, 4.0, true.sum()) == pytest.approx(true, abs=20)


def test_few_values_are_projected():
    noisy = np.array([90.0, 20.0, -10.0])
    assert estimate_counts(noisy, 30.0, 100.0).tolist() == project_to_simplex(noisy, 100.0).tolist()
