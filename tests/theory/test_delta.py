"""What a δ of 1/n would allow: publishing a whole record, chosen at random. Why hubbub refuses it."""

from fractions import Fraction
from itertools import product

import pytest

from hubbub import Budget, Gaussian, Neighbours, Refused
from hubbub.accounting import refuse_large_delta
from hubbub.textbook import Universe
from theory.exact_laws import chance_of_loss_above, delta, is_law, worst_ratio

SMALL = Universe("abc", max_rows=5)
LEVELS = [Fraction(1), Fraction(2), Fraction(10), Fraction(10**9)]


def publish_one_row(x):
    """A row at random, bare. (Of an empty database: nothing.)"""
    n = sum(x)
    if n == 0:
        return {None: Fraction(1)}
    return {row: Fraction(count, n) for row, count in zip(SMALL.elements, x, strict=True) if count}


@pytest.mark.parametrize("n", [1, 2, 3, 5])
def test_publish_one_row_at_random_is_0_and_1_nth_private(n):
    """Over all neighbours of n rows, one substituted: (0, 1/n) holds, and 1/n is needed at every ε."""
    pairs = [(x, y) for x, y in SMALL.pairs(Neighbours.SUBSTITUTE) if sum(x) == n]
    assert pairs
    for level in LEVELS:
        deltas = [delta(publish_one_row(x), publish_one_row(y), level) for x, y in pairs]
        assert max(deltas) == Fraction(1, n), "a row that only one of the two has"
    # In the text's words: somebody's whole record comes out with certainty, and each one's with chance 1/n.
    assert all(is_law(publish_one_row(x)) for x, _ in pairs)


def test_publishing_a_row_under_add_remove_has_the_delta_of_the_larger_database():
    """x of n rows, y with one more: δ = 1/(n + 1) both ways at ε = 0."""
    for x, y in SMALL.pairs(Neighbours.ADD_REMOVE):
        if 0 < sum(x) < sum(y):
            assert delta(publish_one_row(y), publish_one_row(x), Fraction(1)) <= Fraction(1, sum(y))
            assert delta(publish_one_row(x), publish_one_row(y), Fraction(1)) <= Fraction(1, sum(y))
    x, y = (2, 0, 0), (2, 1, 0)
    assert delta(publish_one_row(y), publish_one_row(x), Fraction(10**9)) == Fraction(1, 3)


def test_publishing_a_random_row_has_no_epsilon():
    x, y = (4, 1, 0), (4, 0, 1)

    assert worst_ratio(publish_one_row(x), publish_one_row(y)) == float("inf")
    assert chance_of_loss_above(publish_one_row(x), publish_one_row(y), Fraction(10**9)) == Fraction(1, 5)


def test_publishing_each_row_with_chance_delta_is_0_and_delta_private_and_publishes_n_delta_rows():
    """So δ must be far below 1/n: with δ = 1/n one record comes out on average."""
    chance = Fraction(1, 4)

    def publish_some(rows):
        law = {}
        for coins in product((True, False), repeat=len(rows)):
            out = tuple(row if coin else None for row, coin in zip(rows, coins, strict=True))
            weight = chance ** sum(coins) * (1 - chance) ** (len(rows) - sum(coins))
            law[out] = law.get(out, 0) + weight
        return law

    rows = ("a", "b", "c", "d")
    published = sum(
        weight * sum(row is not None for row in out) for out, weight in publish_some(rows).items()
    )
    assert published == len(rows) * chance == 1
    for place, other in product(range(4), "xy"):
        changed = (*rows[:place], other, *rows[place + 1 :])
        for level in LEVELS:
            assert delta(publish_some(rows), publish_some(changed), level) == chance


@pytest.mark.parametrize("n", [1, 2, 5, 1000])
def test_delta_that_allows_publishing_rows_is_refused(n):
    needed = Fraction(1, n)
    for allowed in (needed, min(Fraction(1), 2 * needed)):
        with pytest.raises(Refused):
            refuse_large_delta(allowed, n)
        with pytest.raises(Refused):
            Budget(1, allowed, population=n)
    refuse_large_delta(needed - Fraction(1, 10**9), n)


def test_gaussian_refuses_a_delta_that_allows_publishing_rows():
    make = {"sensitivity": 1, "epsilon": 1}
    with pytest.raises(Refused):
        Gaussian.of(**make, delta=Fraction(1, 1000), population=1000)

    mechanism = Gaussian.of(**make, delta=Fraction(1, 100_000), population=1000)
    assert mechanism.loss().delta(1) <= 1e-5
    # Without a public population it cannot be judged, but a δ of 1 is refused by anyone.
    with pytest.raises(Refused):
        Budget(1, 1)
