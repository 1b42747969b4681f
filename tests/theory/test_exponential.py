"""Private selection by weights and by coins: Theorem 3.10, on all neighbours of small integer scores.

With rate r, e^−r = w: weights are powers of w. Scores that may move apart cost w^−2, monotone ones w^−1.
"""

from fractions import Fraction
from itertools import permutations, product

import numpy as np
import pytest

from hubbub.mechanisms import Exponential, PermuteAndFlip, selection
from theory.exact_laws import HALF, TWO_THIRDS, epsilon_of, is_law, worst_ratio


def exponential(w, scores):
    """Pr[i] ∝ w^(best − scoreᵢ)."""
    weights = [w ** (max(scores) - score) for score in scores]
    return {i: weight / sum(weights) for i, weight in enumerate(weights)}


def permute_and_flip(w, scores):
    """A coin of chance w^(best − score) for each; one of the heads, evenly."""
    law = dict.fromkeys(range(len(scores)), Fraction(0))
    for heads in product((True, False), repeat=len(scores)):
        chance = Fraction(1)
        for score, head in zip(scores, heads, strict=True):
            up = w ** (max(scores) - score)
            chance *= up if head else 1 - up
        for i, head in enumerate(heads):
            if head and chance:  # the best one's coin always falls so
                law[i] += chance / sum(heads)
    return law


def in_random_order(w, scores):
    """The first candidate, in a random order, with a coin that falls heads: permute-and-flip as published."""
    law = dict.fromkeys(range(len(scores)), Fraction(0))
    orders = list(permutations(range(len(scores))))
    for order in orders:
        left = Fraction(1, len(orders))
        for i in order:
            up = w ** (max(scores) - scores[i])
            law[i] += left * up
            left *= 1 - up
    return law


def worst_both_ways(law, candidates, levels, moves):
    known = {}
    largest = 0
    for scores in product(range(levels), repeat=candidates):
        for by in product(moves, repeat=candidates):
            pair = scores, tuple(score + move for score, move in zip(scores, by, strict=True))
            for s in pair:
                if s not in known:
                    known[s] = law(s)
                    assert is_law(known[s])
            largest = max(largest, worst_ratio(known[pair[0]], known[pair[1]]))
            largest = max(largest, worst_ratio(known[pair[1]], known[pair[0]]))
    return largest


SIZES = pytest.mark.parametrize(("candidates", "levels"), [(2, 6), (3, 4), (4, 2)])


@SIZES
@pytest.mark.parametrize("w", [HALF, TWO_THIRDS], ids=str)
def test_the_exponential_mechanism_is_epsilon_private(w, candidates, levels):
    """ε = 2Δr in general, Δr for monotone scores; approached, so no better."""
    assert w**-1 < worst_both_ways(lambda s: exponential(w, s), candidates, levels, (-1, 0, 1)) < w**-2
    assert 1 < worst_both_ways(lambda s: exponential(w, s), candidates, levels, (0, 1)) < w**-1


@SIZES
@pytest.mark.parametrize("w", [HALF, TWO_THIRDS], ids=str)
def test_permute_and_flip_is_epsilon_private_and_never_worse(w, candidates, levels):
    """The same ε from the same rate, attained; and the expected regret is never above the exponential's."""
    assert worst_both_ways(lambda s: permute_and_flip(w, s), candidates, levels, (-1, 0, 1)) <= w**-2
    assert worst_both_ways(lambda s: permute_and_flip(w, s), candidates, levels, (0, 1)) <= w**-1
    for scores in product(range(levels), repeat=candidates):
        regrets = [
            sum(chance * (max(scores) - scores[i]) for i, chance in law(w, scores).items())
            for law in (permute_and_flip, exponential)
        ]
        assert regrets[0] <= regrets[1]


def test_permute_and_flip_attains_its_epsilon():
    """Two candidates, the worse one far behind: its chance is w^gap/2, and a gap changes by 2 at most."""
    ratio = worst_ratio(permute_and_flip(HALF, (1, 4)), permute_and_flip(HALF, (0, 5)))
    assert ratio == 4


def test_choosing_evenly_among_all_heads_is_going_through_them_in_random_order():
    for scores in product(range(3), repeat=3):
        assert permute_and_flip(HALF, scores) == in_random_order(HALF, scores)


@pytest.mark.parametrize("mechanism", [Exponential, PermuteAndFlip])
def test_the_shipped_rate_is_the_one_that_the_enumeration_allows(mechanism):
    epsilon = epsilon_of(Fraction(2))
    monotone = mechanism.of(sensitivity=1, epsilon=epsilon, monotone=True)
    general = mechanism.of(sensitivity=1, epsilon=2 * epsilon)

    assert monotone.rate == general.rate == epsilon
    assert (monotone.loss().cost().epsilon, general.loss().cost().epsilon) == (epsilon, 2 * epsilon)


def test_the_shipped_permute_and_flip_flips_these_coins_and_takes_the_first_of_the_heads(
    monkeypatch,
):
    """The code that ships, on all coins and orders of three candidates."""
    shipped = PermuteAndFlip.of(sensitivity=1, epsilon=Fraction(1, 2))
    scores = np.array([1, 3, 0])
    for coins, order in product(product((True, False), repeat=2), permutations(range(3))):
        heads = np.array([coins[0], True, coins[1]])
        calls = []

        def flip(rate, times, heads=heads, calls=calls):
            calls.append((rate, times.tolist()))
            return heads

        monkeypatch.setattr(selection, "bernoulli_exp_each", flip)
        monkeypatch.setattr(selection, "_random_priorities", lambda count, order=order: np.array(order))
        chosen = shipped._select(scores)
        assert calls == [(Fraction(1, 4), [2, 0, 3])]
        assert chosen == max((i for i in range(3) if heads[i]), key=lambda i: order[i])


def test_the_shipped_exponential_steps_where_the_exact_law_does(monkeypatch):
    """It inverts one uniform number: just inside each edge of the law it gives the next candidate."""
    mechanism = Exponential.of(sensitivity=1, epsilon=2 * epsilon_of(Fraction(2)))
    scores = (2, 0, 3, 1)
    edge = Fraction(0)
    for i, chance in exponential(HALF, scores).items():
        for u in (edge + Fraction(1, 2**62), edge + chance / 2, edge + chance - Fraction(1, 2**62)):
            monkeypatch.setattr(selection, "random_bits", lambda bits, u=u: int(u * 2**bits))
            assert mechanism._select(np.array(scores)) == i
        edge += chance
    assert edge == 1
