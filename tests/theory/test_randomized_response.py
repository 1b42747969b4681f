"""Randomized response: the two coins cost ln 3 and no less."""

from fractions import Fraction
from itertools import product

import numpy as np
import pytest

from hubbub.mechanisms import RandomizedResponse, UnaryEncoding, randomized_response
from theory.exact_laws import CLOSE, delta, epsilon_of, independent, is_law, worst, worst_ratio

QUARTER = Fraction(1, 4)
YES_NO = (True, False)


def two_coins(truth):
    """Heads: the truth. Tails: what a second coin says."""
    law = {True: Fraction(0), False: Fraction(0)}
    for first, second in product(YES_NO, repeat=2):
        law[truth if first else second] += QUARTER
    return law


def test_two_coins_tell_the_truth_three_times_in_four():
    assert two_coins(True) == {True: 3 * QUARTER, False: QUARTER}
    assert two_coins(False) == {True: QUARTER, False: 3 * QUARTER}


def test_the_coins_cost_ln_3_and_no_less():
    """Claim 3.5: both answers, both ways; below ln 3 something is left."""
    assert worst(two_coins, product(YES_NO, repeat=2)) == 3
    assert worst_ratio(two_coins(True), two_coins(False)) == worst_ratio(two_coins(False), two_coins(True))
    assert delta(two_coins(True), two_coins(False), Fraction(3)) == 0
    assert delta(two_coins(True), two_coins(False), Fraction(29, 10)) > 0


def test_response_in_a_crowd_costs_each_respondent_the_same():
    """All databases of three respondents, one of them changed."""
    crowds = list(product(YES_NO, repeat=3))
    pairs = [
        (x, y) for x, y in product(crowds, repeat=2) if sum(a != b for a, b in zip(x, y, strict=True)) == 1
    ]
    assert worst(lambda x: independent(*map(two_coins, x)), pairs) == 3


def test_the_share_of_yes_can_be_recovered_from_the_crowd():
    """E[noisy share] = 1/4 + share/2, so 2·noisy − 1/2 is unbiased: exact for all crowds of three."""
    for crowd in product(YES_NO, repeat=3):
        law = independent(*map(two_coins, crowd))
        mean = sum(chance * Fraction(sum(answers), 3) for answers, chance in law.items())
        assert 2 * mean - Fraction(1, 2) == Fraction(sum(crowd), 3)


def test_coin_that_always_lies_has_no_privacy():
    def liar(truth):
        return {not truth: Fraction(1), truth: Fraction(0)}

    assert worst(liar, product(YES_NO, repeat=2)) == float("inf")


# What is shipped


def shipped_law(monkeypatch, mechanism, truth):
    """The law of the shipped report, by running its code on every way its coins and draws can fall."""
    law = {}
    others = mechanism.categories - 1

    def run(truthful, other):
        monkeypatch.setattr(randomized_response, "bernoulli", lambda p, size: np.full(size, truthful))
        monkeypatch.setattr(randomized_response, "uniform", lambda bound, size: np.full(size, other))
        return mechanism.release(truth).value

    for truthful, other in product(YES_NO, range(others)):
        chance = (mechanism.keep if truthful else 1 - mechanism.keep) / others
        report = run(truthful, other)
        law[report] = law.get(report, 0) + chance
    return law


def test_the_shipped_coin_is_that_of_the_text(monkeypatch):
    coin = RandomizedResponse.coin()
    for truth in YES_NO:
        assert shipped_law(monkeypatch, coin, int(truth)) == {
            int(answer): chance for answer, chance in two_coins(truth).items()
        }
    # ln 3, rounded up.
    assert 0 <= coin.loss().cost().epsilon - epsilon_of(Fraction(3)) + CLOSE <= Fraction(1, 2**120)


@pytest.mark.parametrize("categories", [2, 3, 5])
@pytest.mark.parametrize("keep", [Fraction(3, 5), Fraction(9, 10)], ids=str)
def test_the_shipped_report_of_many_categories_costs_what_it_states(monkeypatch, categories, keep):
    """keep·(k − 1)/(1 − keep) on all pairs of truths, attained; the stated ε is its logarithm, rounded up."""
    mechanism = RandomizedResponse(keep, categories)
    laws = {truth: shipped_law(monkeypatch, mechanism, truth) for truth in range(categories)}
    assert all(map(is_law, laws.values()))

    ratio = worst(laws.get, product(range(categories), repeat=2))
    assert ratio == keep * (categories - 1) / (1 - keep)
    assert 0 <= mechanism.loss().cost().epsilon - epsilon_of(ratio) + CLOSE <= Fraction(1, 2**120)


def test_the_shipped_unary_encoding_costs_what_it_states(monkeypatch):
    """Bits that each fall by themselves: one bit lost and another made, on all pairs of three truths."""
    p, q = Fraction(1, 2), Fraction(1, 5)
    mechanism = UnaryEncoding(q, 3)

    def law(truth):
        out = {}
        # First a bit for each category as if it were a zero, then the truth's own.
        for zeros, one in product(product(YES_NO, repeat=3), YES_NO):
            fallen = iter([np.array(zeros), np.array([one])])
            monkeypatch.setattr(
                randomized_response, "bernoulli", lambda chance, size, fallen=fallen: next(fallen)
            )
            report = tuple(mechanism.release([truth]).value[0].tolist())
            chance = p if one else 1 - p
            for bit in zeros:
                chance *= q if bit else 1 - q
            out[report] = out.get(report, 0) + chance
        return out

    laws = {truth: law(truth) for truth in range(3)}
    assert all(map(is_law, laws.values()))
    ratio = worst(laws.get, product(range(3), repeat=2))
    assert ratio == p * (1 - q) / (q * (1 - p)) == 4
    assert 0 <= mechanism.loss().cost().epsilon - epsilon_of(ratio) + CLOSE <= Fraction(1, 2**120)
