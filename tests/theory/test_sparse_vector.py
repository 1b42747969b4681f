"""AboveThreshold is ε-private however many queries are below; Theorem 3.23, by exact sums over the noise.

The threshold's noise has scale 2/ε and a query's 4/ε, so that with w = e^(−ε/4) all laws are rational;
for monotone queries both have scale 2/ε.
"""

from fractions import Fraction
from itertools import chain, product, repeat

import pytest

from hubbub.errors import Halted
from hubbub.mechanisms import AboveThreshold, sparse_vector
from theory.exact_laws import (
    HALF,
    TWO_THIRDS,
    at_least,
    epsilon_of,
    equal,
    is_law,
    less,
    sum_of_products,
    worst_ratio,
)


def first_above(w, queries, power):
    """Pr[the first query above is i], None for no query: threshold 0 with noise of q = w^power."""
    law = {}
    for i, query in enumerate(queries):
        before = [less(w, other) for other in queries[:i]]
        law[i] = sum_of_products([equal(w, 0, power), *before, at_least(w, query)])
    law[None] = sum_of_products([equal(w, 0, power), *(less(w, query) for query in queries)])
    assert is_law(law)
    return law


def worst_over(w, power, length, moves, levels):
    known = {}
    largest = 0
    for queries in product(levels, repeat=length):
        for by in product(moves, repeat=length):
            pair = queries, tuple(query + move for query, move in zip(queries, by, strict=True))
            for question in pair:
                if question not in known:
                    known[question] = first_above(w, question, power)
            x, y = (known[question] for question in pair)
            largest = max(largest, worst_ratio(x, y), worst_ratio(y, x))
    return largest


@pytest.mark.parametrize("length", [1, 2, 3])
@pytest.mark.parametrize("w", [HALF, TWO_THIRDS], ids=str)
def test_however_many_queries_the_answers_cost_epsilon(w, length):
    """Queries that one row moves either way: e^ε = w^−4 whatever the length."""
    levels = {1: range(-4, 5), 2: range(-2, 3), 3: (-1, 1)}[length]
    assert 1 < worst_over(w, 2, length, (-1, 0, 1), levels) < w**-4


@pytest.mark.slow
@pytest.mark.parametrize("length", [1, 2, 3])
def test_for_monotone_queries_half_the_noise_is_enough(length):
    """All queries moved the same way: threshold and query noise of one scale, e^ε = w^−2."""
    levels = {1: range(-4, 5), 2: range(-2, 3), 3: (-2, 0, 2)}[length]
    assert 1 < worst_over(HALF, 1, length, (0, 1), levels) < HALF**-2
    assert worst_over(HALF, 1, 3, (-1, 1), (-2, 0, 2)) > HALF**-2, "moved both ways it is not"


def test_a_long_run_below_costs_no_more_than_a_short_one():
    """Twenty queries that all move: the ratio stays below e^ε, where twenty fresh ones would cost 20·ε/4."""
    ratios = []
    for length in (1, 5, 20):
        x, y = ((n,) * length for n in (0, 1))
        laws = first_above(HALF, x, 2), first_above(HALF, y, 2)
        ratios.append(max(worst_ratio(*laws), worst_ratio(*reversed(laws))))
    assert all(ratio < HALF**-4 for ratio in ratios)


@pytest.mark.slow
def test_reusing_the_noisy_threshold_costs_more_with_every_answer():
    """All n answers against one noisy threshold, above ones too: no ε covers all n."""

    def answers(w, queries):
        return {
            message: sum_of_products(
                [
                    equal(w, 0, 2),
                    *((at_least if above else less)(w, n) for above, n in zip(message, queries, strict=True)),
                ]
            )
            for message in product((False, True), repeat=len(queries))
        }

    ratios = []
    for pairs in (1, 2, 4):
        x, y = (0, 1) * pairs, (1, 0) * pairs
        laws = answers(HALF, x), answers(HALF, y)
        assert all(map(is_law, laws))
        ratios.append(worst_ratio(*laws))
    assert ratios == sorted(ratios)
    assert ratios[0] < HALF**-4 < ratios[-1]


def test_without_noise_on_the_queries_it_is_not_private():
    """A known broken variant: one noisy threshold that bare queries are held against."""

    def bare(queries):
        # "above, below" for two equal queries cannot happen; moved apart it can.
        low, high = sorted(queries)
        return {"apart": sum((equal(HALF, 0).at(t) for t in range(low + 1, high + 1)), Fraction(0))}

    assert worst_ratio(bare((0, 1)), bare((0, 0))) == float("inf")


# What is shipped


def test_the_shipped_scales_are_the_proved_ones():
    epsilon = 4 * epsilon_of(Fraction(2))  # e^(−ε/4) = 1/2
    general = AboveThreshold.of(sensitivity=1, epsilon=epsilon, threshold=0)
    monotone = AboveThreshold.of(sensitivity=1, epsilon=epsilon, threshold=0, monotone=True)

    assert (general.threshold_scale, general.query_scale) == (2 / epsilon, 4 / epsilon)
    assert (monotone.threshold_scale, monotone.query_scale) == (2 / epsilon, 2 / epsilon)
    assert general.loss().cost().epsilon == monotone.loss().cost().epsilon == epsilon


def test_the_shipped_rule_is_the_first_noisy_query_at_or_above_the_noisy_threshold(monkeypatch):
    """The code that ships, on all noise in {−1, 0, 1}: the rule with the proved law, asked both ways."""
    mechanism = AboveThreshold.of(sensitivity=1, epsilon=1, threshold=0)
    queries = (-1, 0)
    for bar, *noise in product((-1, 0, 1), repeat=3):
        expected = next((i for i, n in enumerate(noise) if queries[i] + n >= bar), None)

        # A session draws one by one; thresholds drawn after the first serve later answers only.
        draws = {mechanism.threshold_scale: chain([bar], repeat(9)), mechanism.query_scale: iter(noise)}
        monkeypatch.setattr(sparse_vector, "discrete_laplace", lambda scale, draws=draws: next(draws[scale]))
        session = mechanism.open()
        answers = []
        for query in queries:
            try:
                answers.append(session.ask(query))
            except Halted:
                break
        assert next((i for i, above in enumerate(answers) if above), None) == expected

        monkeypatch.setattr(sparse_vector, "discrete_laplace", lambda scale, bar=bar: bar)
        monkeypatch.setattr(
            sparse_vector, "add_laplace_noise", lambda values, scale, noise=noise: values + noise
        )
        assert mechanism.release(list(queries)).value == expected
