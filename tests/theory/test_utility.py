"""The promise in a person's own terms: nobody's expected utility changes by more than a factor of e^ε."""

from fractions import Fraction
from itertools import product

import pytest

from hubbub import Neighbours
from hubbub.textbook import Universe
from theory.exact_laws import HALF, grid_laws, laplace, worst_ratio

SMALL = Universe("ab", max_rows=2)
CLASSES = range(-1, 4)


def noisy_count(x):
    return laplace(HALF, x[0], -1, 3)


def expected(law, utility):
    return sum((chance * utility[k] for k, chance in law.items()), Fraction(0))


UTILITIES = [dict(zip(CLASSES, values, strict=True)) for values in product((0, 1, 5), repeat=len(CLASSES))]


@pytest.mark.parametrize("relation", list(Neighbours))
def test_expected_utility_changes_by_at_most_e_to_the_epsilon(relation):
    """E_x[u] ≤ e^ε·E_y[u] for every utility u ≥ 0, on all neighbours; some u attains it."""
    attained = False
    for x, y in SMALL.pairs(relation):
        p, r = noisy_count(x), noisy_count(y)
        for utility in UTILITIES:
            here, there = expected(p, utility), expected(r, utility)
            assert here <= 2 * there
            attained |= here == 2 * there > 0
    assert attained


def test_by_convexity_utilities_of_single_outcomes_decide():
    """E[u] is linear in u, so the indicators of single outcomes are the worst: their ratio is the law's."""
    p, r = noisy_count((0, 0)), noisy_count((1, 0))
    singles = [{k: int(k == outcome) for k in CLASSES} for outcome in CLASSES]

    assert max(expected(p, u) / expected(r, u) for u in singles) == worst_ratio(p, r) == 2


def test_without_e_to_the_epsilon_the_promise_is_false():
    """A misprint: "E_x[u] ≤ E_y[u]" for all neighbours would force both laws to be the same."""
    p, r = noisy_count((0, 0)), noisy_count((1, 0))
    broken = [u for u in UTILITIES if expected(p, u) > expected(r, u)]

    assert broken
    assert all(expected(p, u) <= 2 * expected(r, u) for u in broken)


def test_without_the_factor_only_equal_laws_would_be_private():
    """On all pairs of laws on three outcomes in fifths: E_p[u] ≤ E_r[u] for every u ≥ 0 only if p = r."""
    laws = [dict(enumerate(law)) for law in grid_laws(3, 5)]
    singles = [{k: int(k == outcome) for k in range(3)} for outcome in range(3)]
    for p, r in product(laws, repeat=2):
        assert all(expected(p, u) <= expected(r, u) for u in singles) == (p == r)


def test_a_utility_below_zero_is_not_covered():
    """The theorem needs u ≥ 0: a loss that weighs as much as a gain can turn the sign of E[u]."""
    p, r = noisy_count((0, 0)), noisy_count((1, 0))
    utility = dict.fromkeys(CLASSES, -1) | {-1: 1, 0: 1}

    assert expected(p, utility) > 0 > expected(r, utility)
