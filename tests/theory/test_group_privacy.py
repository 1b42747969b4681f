"""Groups of k: kε for pure privacy, and δ·(e^kε − 1)/(e^ε − 1) for the approximate form."""

from fractions import Fraction
from itertools import pairwise, product

import pytest

from hubbub import Laplace, PrivacyLoss
from hubbub.textbook import Universe
from theory.exact_laws import CLOSE, HALF, TWO_THIRDS, delta, epsilon_of, laplace, worst_ratio


@pytest.mark.parametrize("q", [HALF, TWO_THIRDS], ids=str)
def test_databases_k_rows_apart_are_k_epsilon_indistinguishable_and_no_better(q):
    """Theorem 2.2, on all pairs of databases at every distance."""
    small = Universe("ab", max_rows=3)
    databases = list(small.databases())
    laws = {x: laplace(q, x[0], -1, 4) for x in databases}
    ratios = {}
    for x, y in product(databases, repeat=2):
        k = small.distance(x, y)
        ratios[k] = max(ratios.get(k, 0), worst_ratio(laws[x], laws[y]))

    assert set(ratios) == {0, 1, 2, 3, 4, 5, 6}
    assert all(ratio <= q**-k for k, ratio in ratios.items())
    assert all(ratios[k] == q**-k for k in (0, 1, 2, 3)), "attained by rows that all count"


@pytest.mark.parametrize("size", [1, 2, 3, 10])
def test_the_shipped_loss_for_a_group_is_the_enumerated_one(size):
    loss = Laplace.of(sensitivity=1, epsilon=epsilon_of(Fraction(2))).loss().for_group(size)
    ratio = worst_ratio(laplace(HALF, 0, -1, size + 1), laplace(HALF, size, -1, size + 1))

    assert ratio == 2**size
    assert epsilon_of(ratio) - CLOSE <= loss.cost().epsilon <= epsilon_of(ratio) + CLOSE


def geometric_sum(e_epsilon, k):
    """(e^kε − 1)/(e^ε − 1)."""
    return sum(e_epsilon**i for i in range(k))


def test_every_chain_of_neighbours_keeps_the_approximate_bound():
    """All chains of three databases with yes-or-no answers in twentieths, and the δ that holds on each."""
    e_epsilon = Fraction(2)
    answers = [{True: Fraction(n, 20), False: 1 - Fraction(n, 20)} for n in range(21)]
    between = {
        (i, j): max(delta(p, r, e_epsilon), delta(r, p, e_epsilon))
        for (i, p), (j, r) in product(enumerate(answers), repeat=2)
    }
    apart = {(i, j): delta(p, r, e_epsilon**2) for (i, p), (j, r) in product(enumerate(answers), repeat=2)}
    for i, j, k in product(range(21), repeat=3):
        step = max(between[i, j], between[j, k])
        assert apart[i, k] <= step * geometric_sum(e_epsilon, 2)


@pytest.mark.parametrize("k", [2, 3, 4, 5])
def test_the_approximate_bound_is_attained_and_is_the_shipped_one(k):
    """A mechanism with an answer "yes" that loses as much from each member of the group as (ε, δ) allows."""
    e_epsilon, step = Fraction(2), Fraction(1, 100)
    chances = [step * geometric_sum(e_epsilon, k - members) for members in range(k + 1)]
    laws = [{True: chance, False: 1 - chance} for chance in chances]
    for p, r in pairwise(laws):
        assert max(delta(p, r, e_epsilon), delta(r, p, e_epsilon)) == step

    attained = delta(laws[0], laws[k], e_epsilon**k)
    assert attained == step * geometric_sum(e_epsilon, k) == step * (e_epsilon**k - 1) / (e_epsilon - 1)
    loss = PrivacyLoss.approximate(epsilon_of(e_epsilon), step).for_group(k)
    assert attained <= loss.cost().delta <= attained + Fraction(1, 2**120)
    assert epsilon_of(e_epsilon**k) - CLOSE <= loss.cost().epsilon <= epsilon_of(e_epsilon**k) + CLOSE


def test_group_bound_is_tighter_than_the_textbook_form():
    """k·e^((k−1)ε)·δ is an upper bound of it, and equal only for one person or ε = 0."""
    for e_epsilon, k in product([Fraction(1), Fraction(3, 2), Fraction(2)], range(1, 8)):
        tight, loose = geometric_sum(e_epsilon, k), k * e_epsilon ** (k - 1)
        assert tight <= loose
        assert (tight == loose) == (k == 1 or e_epsilon == 1)


def test_a_group_of_one_is_one_person():
    for loss in (
        PrivacyLoss.pure(1),
        PrivacyLoss.approximate(1, Fraction(1, 100)),
        PrivacyLoss.gaussian(Fraction(1, 3)),
    ):
        assert loss.for_group(1).cost().epsilon == loss.cost().epsilon
        assert 0 <= loss.for_group(1).cost().delta - loss.cost().delta <= CLOSE
