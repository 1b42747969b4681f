"""Whatever is done with an outcome, without the data, reveals no more: Proposition 2.1."""

from fractions import Fraction
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hubbub import Laplace, Neighbours
from hubbub.textbook import Universe
from theory.exact_laws import (
    HALF,
    TWO_THIRDS,
    blurred,
    delta,
    grid_laws,
    is_law,
    laplace,
    mapped,
    worst_ratio,
)

SMALL = Universe("ab", max_rows=2)
CLASSES = range(-1, 4)
LEVELS = [Fraction(1), Fraction(5, 4), Fraction(2)]


def noisy_count(x):
    return laplace(TWO_THIRDS, x[0], -1, 3)


def curve(p, r):
    """δ at several ε: the whole promise, as far as these see it."""
    return [delta(p, r, level) for level in LEVELS]


def no_worse(after, before):
    return all(a <= b for a, b in zip(curve(*after), curve(*before), strict=True))


@pytest.mark.slow
def test_deterministic_post_processing_loses_no_more():
    """All functions from five classes of outcomes to three, on all neighbours: ε and δ(ε) only shrink."""
    for x, y in SMALL.pairs(Neighbours.ADD_REMOVE):
        p, r = noisy_count(x), noisy_count(y)
        for images in product(range(3), repeat=len(CLASSES)):
            table = dict(zip(CLASSES, images, strict=True))
            after = mapped(p, table.get), mapped(r, table.get)
            assert worst_ratio(*after) <= worst_ratio(p, r) <= Fraction(3, 2)
            assert no_worse(after, (p, r))


def test_renaming_outcomes_keeps_the_loss():
    p, r = noisy_count((0, 0)), noisy_count((1, 0))
    renamed = [mapped(law, lambda k: ("name", 7 - k)) for law in (p, r)]

    assert curve(*renamed) == curve(p, r)


def test_an_event_is_a_function_so_single_outcomes_decide():
    """The worst ratio over all 2ⁿ events is the worst over single outcomes, and δ(ε) is attained by one."""
    p, r = noisy_count((0, 0)), noisy_count((1, 1))
    events = [
        [k for k, inside in zip(CLASSES, flags, strict=True) if inside]
        for flags in product((False, True), repeat=len(CLASSES))
    ]
    masses = [(sum(p[k] for k in event), sum(r[k] for k in event)) for event in events if event]

    assert max(a / b for a, b in masses) == worst_ratio(p, r)
    for level in LEVELS:
        assert max(0, *(a - level * b for a, b in masses)) == delta(p, r, level)


@pytest.mark.slow
def test_randomized_post_processing_on_a_grid_loses_no_more():
    """Kernels from three outcomes to two with chances in thirds, on all laws in quarters."""
    kernels = list(product(grid_laws(2, 3), repeat=3))
    for p, r in product(grid_laws(3, 4), repeat=2):
        before = dict(enumerate(p)), dict(enumerate(r))
        for rows in kernels[::4]:
            after = tuple(blurred(law, lambda o, rows=rows: dict(enumerate(rows[o]))) for law in before)
            assert all(map(is_law, after))
            assert all(delta(*after, level) <= delta(*before, level) for level in LEVELS)


@given(
    st.lists(st.lists(st.integers(0, 9), min_size=4, max_size=4).filter(any), min_size=5, max_size=5),
    st.sampled_from([HALF, TWO_THIRDS]),
)
def test_randomized_post_processing_of_a_noisy_count_loses_no_more(weights, q):
    """Any kernel with rational chances: its laws are mixtures of what functions make."""
    kernel = {
        k: {o: Fraction(w, sum(row)) for o, w in enumerate(row)}
        for k, row in zip(CLASSES, weights, strict=True)
    }
    p, r = laplace(q, 0, -1, 3), laplace(q, 1, -1, 3)
    after = blurred(p, kernel.get), blurred(r, kernel.get)

    assert worst_ratio(*after) <= 1 / q
    assert no_worse(after, (p, r))


def test_function_that_reads_the_data_again_is_not_post_processing():
    """What is not post-processing: the same noise, then a look at whether the count was 0."""
    p, r = noisy_count((0, 0)), noisy_count((1, 0))
    after = [mapped(law, lambda k, n=n: (k, n == 0)) for law, n in ((p, 0), (r, 1))]

    assert worst_ratio(*after) == float("inf")


def test_mapping_a_release_costs_nothing_and_loses_its_error():
    release = Laplace.of(sensitivity=1, epsilon=0.5).release(42)
    after = release.map(lambda answer: max(answer, 0)).map(str)

    assert after.loss == release.loss
    assert after.post_processed
