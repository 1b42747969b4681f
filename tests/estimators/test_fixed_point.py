"""Rows as integers: what a row becomes depends on it alone, clips hold, and products are exact."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from hubbub.errors import InvalidInput
from hubbub.estimators.fixed_point import (
    CHUNK_ROWS,
    SCALE,
    FeatureBounds,
    class_moments,
    clip_rows,
    exact_matmul,
    second_moments,
    unpack_symmetric,
)

ANY = st.floats(allow_nan=True, allow_infinity=True)
SMALL = st.integers(-SCALE, SCALE)


@given(arrays(np.float64, (5, 3), elements=ANY), st.integers(0, 4))
def test_fixed_point_row_does_not_depend_on_other_rows(rows, place):
    box = FeatureBounds.of(([-1, 0, 5], [1, 1e9, 6]), 3, "bounds")
    steps, counts = box.to_fixed_point(rows)
    alone, counts_alone = box.to_fixed_point(rows[place : place + 1])
    assert steps[place].tolist() == alone[0].tolist()
    assert counts[place] == counts_alone[0] == np.isfinite(rows[place]).all()
    assert (np.abs(steps.astype(int)) <= SCALE).all()
    assert counts[place] or not steps[place].any()


def test_zero_stays_zero_within_bounds_else_the_middle_is_zero():
    box = FeatureBounds.of(([0, -4, 10], [2, 2, 20]), 3, "bounds")
    assert box.to_fixed_point(np.array([[0.0, 0.0, 15.0]]))[0].tolist() == [[0, 0, 0]]
    assert box.to_fixed_point(np.array([[9.0, -9.0, 99.0]]))[0].tolist() == [[SCALE, -SCALE, SCALE]]
    assert box.from_scaled(np.array([1.0, -1.0, -1.0])).tolist() == [2.0, -4.0, 10.0]


@given(
    arrays(np.int64, (4, 5), elements=SMALL), st.lists(st.integers(0, 3 * SCALE), min_size=4, max_size=4),
    st.sampled_from([1, 2]),
)  # fmt: skip
def test_clipped_rows_are_within_the_limit(rows, limits, norm):
    result = clip_rows(rows, np.array(limits), norm)
    for before, after, limit in zip(rows.tolist(), result.tolist(), limits, strict=True):
        size = sum(abs(x) ** norm for x in after)
        assert size <= limit**norm
        if sum(abs(x) ** norm for x in before) <= limit**norm:
            assert before == after
        # Nothing turns round, nothing grows.
        assert all(a * b >= 0 and abs(a) <= abs(b) for a, b in zip(after, before, strict=True))


def test_clipping_is_nearly_tight():
    rows = np.array([[SCALE, -SCALE, SCALE // 2]])
    assert np.abs(clip_rows(rows, SCALE, 1)).sum() >= SCALE - 3
    assert (clip_rows(rows, SCALE, 2) ** 2).sum() >= (SCALE - 3) ** 2


@pytest.mark.slow
@given(st.randoms(use_true_random=False))
def test_products_are_exact_in_any_order(random):
    rows = np.array([[random.randint(-SCALE, SCALE) for _ in range(40)] for _ in range(30)], dtype=np.int16)
    exact = [[sum(int(a) * int(b) for a, b in zip(x, y, strict=True)) for y in rows] for x in rows]
    assert exact_matmul(rows, rows.T, 40 * SCALE**2).tolist() == exact
    order = random.sample(range(40), 40)
    assert exact_matmul(rows[:, order], rows.T[order], 40 * SCALE**2).tolist() == exact


def test_products_that_could_round_are_refused():
    with pytest.raises(InvalidInput, match="too many features"):
        exact_matmul(np.ones((1, 1)), np.ones((1, 1)), 2**53)


def test_chunked_sums_equal_integer_sums():
    rows = (np.arange(3 * (2 * CHUNK_ROWS + 5)).reshape(-1, 3) % 32768 - 16384).astype(np.int16)
    codes = np.arange(len(rows)) % 3 - 1
    sums = class_moments(rows, codes, 2)
    big = rows.astype(object)
    for number in range(2):
        mine = big[codes == number]
        assert sums[number].tolist() == [
            len(mine) * SCALE**2, *(mine.sum(axis=0) * SCALE).tolist(), *(mine * mine).sum(axis=0).tolist()
        ]  # fmt: skip
    triangle = second_moments(rows, None, 2)
    assert triangle.tolist() == (big.T @ big)[np.triu_indices(3)].tolist()
    full = unpack_symmetric(triangle, 3)
    assert (full == full.T).all()
