"""Limits that are read from noisy histograms; the noise is drawn with fixed seeds: nothing is random."""

import numpy as np
import pytest

from hubbub.sql.limit_choice import ROW_BINS, ROW_SIZES

ENDS = np.array(ROW_BINS, dtype=float)


def count(sizes):
    return np.bincount(np.searchsorted(ENDS, sizes), minlength=ENDS.size)


def chosen(sizes, *, scale=5.0, seed=None, groups=1, left=0.8):
    seen = count(np.asarray(sizes, dtype=float)).astype(float)
    if seed is not None:
        seen += np.round(np.random.default_rng(seed).laplace(0, scale, seen.size))
    return ROW_SIZES.choose(seen, scale, ENDS / left, groups=groups)


def mean_error(sizes, limit, *, left):
    bias = np.maximum(np.asarray(sizes, dtype=float) - limit, 0).sum()
    return bias + limit / left * np.exp(-bias * left / limit)


def test_every_whole_number_up_to_2_20_has_a_bin_and_small_ones_have_their_own():
    assert ROW_BINS[:7] == (1, 2, 3, 4, 5, 6, 8)
    assert ROW_BINS[-1] == 2**20 - 1
    assert list(ROW_BINS) == sorted(set(ROW_BINS))


@pytest.mark.parametrize("size", [1, 4, 13, 256])
def test_equal_row_counts_are_the_limit(size):
    for seed in range(5):
        assert size <= chosen([size] * 5000, seed=seed).limit <= 2 * size


def test_one_unit_with_many_rows_does_not_decide():
    plain = chosen([1, 2, 3] * 3000, seed=1)
    giant = chosen([1, 2, 3] * 3000 + [10**6], seed=1)
    assert giant.limit == plain.limit <= 6


def test_two_clusters_of_units_both_count():
    assert 150 <= chosen([1, 2] * 5000 + [150] * 500, seed=3).limit <= 400


def test_more_answers_share_the_bias_and_the_limit_is_lower():
    sizes = np.random.default_rng(5).zipf(2.5, 50_000).clip(1, 10**6)
    assert chosen(sizes, seed=1, groups=50).limit < chosen(sizes, seed=1).limit


@pytest.mark.slow
def test_nothing_but_noise_gives_a_small_limit():
    limits = [chosen([], seed=seed).limit for seed in range(40)]
    assert sorted(limits)[30] <= 8


def test_the_share_above_is_what_a_limit_cuts_off():
    sizes = [1] * 900 + [100] * 100
    seen = count(sizes)
    assert ROW_SIZES.share_above(seen, 0.01, 100) == pytest.approx(0, abs=0.02)
    # 100 · (100 − 10) of 900 + 100 · 100 rows are above 10.
    assert ROW_SIZES.share_above(seen, 0.01, 10) == pytest.approx(0.83, abs=0.08)
    assert chosen(sizes, scale=0.01).share_above == pytest.approx(0, abs=0.02)


@pytest.mark.parametrize(
    "name", ["ones", "uniform", "geometric", "lognormal", "zipf", "poisson of few", "bimodal"]
)
def test_the_regret_is_small(name):
    rng = np.random.default_rng(11)
    sizes = {
        "ones": lambda: np.ones(10_000),
        "uniform": lambda: rng.integers(1, 51, 10_000),
        "geometric": lambda: rng.geometric(0.1, 20_000),
        "lognormal": lambda: np.ceil(rng.lognormal(2, 1, 10_000)),
        "zipf": lambda: rng.zipf(3, 30_000).clip(1, 10**6),
        "poisson of few": lambda: 1 + rng.poisson(5, 500),
        "bimodal": lambda: np.concatenate([rng.integers(1, 4, 9000), rng.integers(100, 201, 1000)]),
    }[name]()
    best = min(mean_error(sizes, limit, left=1.0) for limit in range(1, 600))
    errors = [mean_error(sizes, chosen(sizes, seed=seed).limit, left=0.8) for seed in range(8)]
    assert np.mean(errors) <= 3 * best
