"""Limits that are read from noisy histograms; the noise is drawn with fixed seeds: nothing is random."""

from itertools import pairwise

import numpy as np
import pytest

from hubbub.sql.limit_choice import ROW_BINS, ROW_LIMITS, ROW_SIZES

ENDS = np.array(ROW_BINS, dtype=float)
LIMITS = np.array(ROW_LIMITS, dtype=float)


def count(sizes):
    return np.bincount(np.searchsorted(ENDS, sizes), minlength=ENDS.size)


def chosen(sizes, *, scale=5.0, seed=None, groups=1, left=0.8):
    seen = count(np.asarray(sizes, dtype=float)).astype(float)
    if seed is not None:
        seen += np.round(np.random.default_rng(seed).laplace(0, scale, seen.size))
    return ROW_SIZES.choose(seen, scale, LIMITS / left, groups=groups)


def mean_error(sizes, limit, *, left):
    bias = np.maximum(np.asarray(sizes, dtype=float) - limit, 0).sum()
    return bias + limit / left * np.exp(-bias * left / limit)


def test_every_whole_number_up_to_2_20_has_a_bin_and_small_ones_have_their_own():
    assert ROW_BINS[:7] == (1, 2, 3, 4, 5, 6, 9)
    assert ROW_BINS[-1] == 2**20 - 1
    assert list(ROW_BINS) == sorted(set(ROW_BINS))


def test_limits_are_whole_numbers_and_the_ends_of_all_bins_are_among_them():
    assert list(ROW_LIMITS) == sorted(set(ROW_LIMITS)) == list(ROW_SIZES.limits)
    assert set(ROW_BINS) <= set(ROW_LIMITS)
    assert set(range(1, 15)) <= set(ROW_LIMITS)
    assert max(high / low for low, high in pairwise(ROW_LIMITS[5:])) <= 1.2


def test_a_higher_limit_cuts_off_no_more_also_within_a_bin():
    seen = count(np.random.default_rng(2).zipf(2.2, 5000).clip(1, 10**6)).astype(float)
    above = [ROW_SIZES.totals(seen, 1.0, limit)[0] for limit in ROW_LIMITS]
    assert all(high <= low for low, high in pairwise(above))


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


@pytest.mark.parametrize(
    ("sizes", "visible"), [([], False), ([1] * 60, True), ([40] * 60, False), ([40] * 500, True)]
)
def test_too_few_units_to_stand_out_tell_nothing_of_what_a_limit_cuts_off(sizes, visible):
    """60 units with 40 rows each are missed by the climb: it may not say that nothing is above 1."""
    for seed in range(4):
        seen = count(np.array(sizes, dtype=float)) + np.random.default_rng(seed).laplace(0, 5, ENDS.size)
        assert ROW_SIZES.is_visible(seen, 5.0) == visible
        assert (ROW_SIZES.choose(seen, 5.0, LIMITS / 0.8).limit >= 40) == (len(sizes) == 500)


def test_units_behind_a_valley_are_not_read_with_what_lies_before_it():
    """A body of 50,000 units below 20 and 500 units around 60, with four times the noise of a search."""
    rng = np.random.default_rng(4)
    sizes = np.concatenate([rng.geometric(0.5, 50_000), rng.poisson(60, 500)])
    for seed in range(8):
        assert chosen(sizes, scale=20.0, seed=seed).limit >= 53


def test_wide_bins_hide_fewer_units():
    """With four bins to a doubling, most limits of 230 units with 300 rows at most were below 10."""
    sizes = np.random.default_rng(6).geometric(0.01, 230)
    limits = [chosen(sizes, seed=seed).limit for seed in range(12)]
    assert sorted(limits)[1] >= 100
