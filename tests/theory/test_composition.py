"""Losses add: Theorems 3.14 and 3.16, also where the second question is chosen by the first answer."""

from fractions import Fraction
from itertools import product

import pytest

from hubbub import Laplace, Neighbours, PrivacyLoss
from hubbub.textbook import Universe
from theory.exact_laws import (
    CLOSE,
    HALF,
    TWO_THIRDS,
    chance_of_loss_above,
    delta,
    epsilon_of,
    grid_laws,
    independent,
    laplace,
    then,
    worst,
    worst_ratio,
)

SMALL = Universe("ab", max_rows=2)
PAIRS = list(SMALL.pairs(Neighbours.ADD_REMOVE))
ALL_PAIRS = PAIRS + list(SMALL.pairs(Neighbours.SUBSTITUTE))
QUESTIONS = {
    "how many a": lambda x: x[0],
    "how many b": lambda x: x[1],
    "how many rows": sum,
    "any a": lambda x: int(x[0] > 0),
}


def answer(q, question, x):
    return laplace(q, QUESTIONS[question](x), -1, 3)


@pytest.mark.parametrize("questions", list(product(QUESTIONS, repeat=2)), ids=" + ".join)
def test_two_answers_cost_at_most_the_sum_and_the_same_question_twice_costs_all_of_it(questions):
    """Theorem 3.14: ε₁ = ln 2 and ε₂ = ln 3/2 make ln 3."""
    first, second = questions
    ratio = worst(lambda x: independent(answer(HALF, first, x), answer(TWO_THIRDS, second, x)), PAIRS)

    assert ratio <= 3
    if first == second or {first, second} == {"how many a", "how many rows"}:
        assert ratio == 3
    if {first, second} == {"how many a", "how many b"}:
        assert ratio == 2, "one row is in one of the two only"


def test_the_shipped_losses_of_two_answers_add_up_to_the_enumerated_ratio():
    one = Laplace.of(sensitivity=1, epsilon=epsilon_of(Fraction(2))).loss()
    two = Laplace.of(sensitivity=1, epsilon=epsilon_of(Fraction(3, 2))).loss()
    ratio = worst(
        lambda x: independent(answer(HALF, "how many a", x), answer(TWO_THIRDS, "how many a", x)), PAIRS
    )

    assert (one + two).cost().epsilon >= epsilon_of(ratio) - CLOSE
    assert (one + two).cost().epsilon <= epsilon_of(ratio) + CLOSE
    assert one + one + one == one * 3


def test_k_answers_cost_k_epsilon():
    """The same count k times: e^(kε), attained where all answers lie on one side."""
    for k in (1, 2, 3, 4):
        ratio = worst_ratio(*(independent(*([laplace(HALF, n, 0, 1)] * k)) for n in (0, 1)))
        assert ratio == 2**k


def test_a_second_question_chosen_by_the_first_answer_costs_no_more():
    """Every adaptive analyst there is, four questions for each of five classes of first answers: ε₁ + ε₂.

    What the analyst does after other first answers does not enter a transcript's probability, so the
    analysts that ask one question after one first answer cover the 4⁵ of them.
    """
    ratios = []
    for after, question in product(range(-1, 4), QUESTIONS):

        def transcript(x, after=after, question=question):
            first = answer(HALF, "how many a", x)
            nothing = {None: Fraction(1)}
            return then(first, lambda k: answer(TWO_THIRDS, question, x) if k == after else nothing)

        ratios.append(worst(transcript, PAIRS))
    assert max(ratios) == 3, "ln 2 + ln 3/2, attained"


def test_a_third_question_may_use_both_answers_before_it():
    """Adaptive composition of three, the later questions chosen by what came out: 2·(3/2)·2 = 6."""

    def transcript(x):
        first = answer(HALF, "how many a", x)
        both = then(first, lambda k: answer(TWO_THIRDS, "how many rows" if k < 1 else "any a", x))
        return then(both, lambda ks: answer(HALF, "how many b" if sum(ks) % 2 else "how many a", x))

    assert worst(transcript, PAIRS) <= 6


def test_composition_with_a_non_private_mechanism_is_not_private():
    def transcript(x):
        return then({x[0]: Fraction(1)}, lambda _: answer(HALF, "how many b", x))

    assert worst(transcript, PAIRS) == float("inf")


@pytest.mark.slow
def test_deltas_add_as_epsilons_do():
    """Theorem 3.16 on every four laws of three outcomes in quarters: δ(ε₁+ε₂) ≤ δ₁(ε₁) + δ₂(ε₂)."""
    laws = [dict(enumerate(law)) for law in grid_laws(3, 4)]
    pairs = list(product(laws, repeat=2))
    one, two = Fraction(3, 2), Fraction(2)
    first = [(p, r, delta(p, r, one)) for p, r in pairs]
    # Pairs with the same δ and the same multiset of chances are alike: one of each is enough.
    kinds = {tuple(sorted(zip(p.values(), r.values(), strict=True))): (p, r, d) for p, r, d in first}
    some = list(kinds.values())
    tight = 0
    for (p, r, d), (s, t, _) in product(some, repeat=2):
        together = delta(independent(p, s), independent(r, t), one * two)
        apart = d + delta(s, t, two)
        assert together <= apart
        tight += together == apart > 0
    assert tight, "the bound is attained, by more than the trivial pairs"


def test_infinity_mass_of_a_composition_covers_either_part():
    loss = PrivacyLoss.approximate(Fraction(1, 2), Fraction(1, 100)) + PrivacyLoss.approximate(
        1, Fraction(1, 50)
    )

    assert loss.cost().epsilon == Fraction(3, 2)
    assert loss.cost().delta == 1 - Fraction(99, 100) * Fraction(49, 50) < Fraction(3, 100)


def test_the_privacy_loss_of_two_answers_is_the_sum_of_their_losses():
    """ln(p₁p₂/r₁r₂) = ln(p₁/r₁) + ln(p₂/r₂), so chances of a large loss follow from the two laws alone."""
    p, r = laplace(HALF, 0, -1, 2), laplace(HALF, 1, -1, 2)
    both = independent(p, p), independent(r, r)

    # The loss of one answer is ln 2 with chance 2/3, and −ln 2 else.
    assert chance_of_loss_above(p, r, Fraction(1)) == Fraction(2, 3)
    assert chance_of_loss_above(*both, Fraction(2)) == Fraction(2, 3) ** 2
    assert chance_of_loss_above(*both, Fraction(4)) == 0


def test_disjoint_rows_are_asked_in_parallel_for_the_larger_of_the_two():
    """A histogram's cells: one row moves one of them, so the worse of two ε is what it costs."""
    ratio = worst(
        lambda x: independent(answer(HALF, "how many a", x), answer(TWO_THIRDS, "how many b", x)), PAIRS
    )

    assert ratio == 2
    substituted = worst(
        lambda x: independent(answer(HALF, "how many a", x), answer(TWO_THIRDS, "how many b", x)), ALL_PAIRS
    )
    assert substituted == 3, "a substituted row leaves one cell and enters the other"
