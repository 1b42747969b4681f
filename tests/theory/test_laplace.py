"""The Laplace mechanism is ε-private and no better, on every neighbouring pair of small universes."""

from fractions import Fraction
from functools import partial
from itertools import product
from math import floor, prod

import pytest

from hubbub import Laplace, Neighbours, Unit
from hubbub.noise import inversion
from hubbub.noise.enclosures import exp
from hubbub.noise.inversion import Table
from hubbub.sensitivity import unwrap
from hubbub.textbook import Universe, count, counts, histogram, linear
from theory.exact_laws import (
    BITS,
    CLOSE,
    HALF,
    TWO_THIRDS,
    delta,
    epsilon_of,
    independent,
    is_law,
    laplace,
    worst,
    worst_ratio,
)

SMALL = Universe("abc", max_rows=3)
RELATIONS = pytest.mark.parametrize("relation", list(Neighbours))
RATES = pytest.mark.parametrize("q", [HALF, TWO_THIRDS, Fraction(9, 10)], ids=str)


def noisy(q, query, x, relation):
    """The exact law of the shipped query, answered for histogram x with discrete Laplace noise of rate q."""
    answer = unwrap(query(SMALL.rows(x), unit=Unit.row(relation)))
    cells = [int(cell) for cell in (answer if hasattr(answer, "__len__") else [answer])]
    return independent(*(laplace(q, cell, -9, 9) for cell in cells))


@RATES
def test_the_law_of_discrete_laplace_adds_up_to_one(q):
    for centre in range(-3, 4):
        assert is_law(laplace(q, centre, -3, 3))
        assert is_law(laplace(q, centre, -5, 4))


@RATES
def test_sliding_by_t_costs_a_factor_of_e_to_the_t_over_b(q):
    """Pr[X = k] ≤ e^(|t|/b)·Pr[X = k + t] for all k and t; attained wherever k + t is t further out."""

    def at(k):
        return (1 - q) / (1 + q) * q ** abs(k)

    for t in range(-6, 7):
        # Beyond |k| = |t| the ratio no longer depends on k.
        ratios = [at(k) / at(k + t) for k in range(-abs(t) - 1, abs(t) + 2)]
        assert max(ratios) == q ** -abs(t)
        assert ratios[0] in {q**t, q**-t}
        assert ratios[0] * ratios[-1] == 1


@RATES
@RELATIONS
@pytest.mark.parametrize("letters", ["", "a", "ab", "abc"])
def test_a_noisy_count_is_epsilon_private_and_no_better(q, relation, letters):
    """Theorem 3.6 for a counting query: over all neighbours the worst ratio is e^ε itself."""
    ask = partial(count, predicate=lambda row: row in letters)
    ratio = worst(lambda x: noisy(q, ask, x, relation), SMALL.pairs(relation))

    moves = SMALL.sensitivity(lambda x: unwrap(ask(SMALL.rows(x), unit=Unit.row(relation))), relation).l1
    assert ratio == q**-moves
    # Only a question that nobody can move (nothing, or all rows under substitution) costs nothing.
    assert moves == (0 if letters == "" or (letters, relation) == ("abc", Neighbours.SUBSTITUTE) else 1)


VECTORS = {
    "histogram": partial(histogram, categories=["a", "b"]),
    "two counts": partial(counts, predicates=[lambda row: row != "c", lambda row: row != "b"]),
    "one count twice": partial(counts, predicates=[lambda row: row == "a"] * 2),
    "weights": partial(linear, weight=lambda row: {"a": -1, "b": 2}.get(row, 0), low=-1, high=2),
}


@pytest.mark.sweep(5)
@RELATIONS
@pytest.mark.parametrize("name", VECTORS)
def test_a_vector_costs_its_l1_sensitivity_and_no_less(relation, name):
    """Theorem 3.6: noise of scale b in every coordinate is Δ₁/b-private, and not less than that."""
    query = VECTORS[name]
    pairs = list(SMALL.pairs(relation))
    ratio = worst(lambda x: noisy(HALF, query, x, relation), pairs)

    bounded = query(SMALL.rows((1, 1, 1)), unit=Unit.row(relation))
    assert ratio == Fraction(2) ** bounded.sensitivity.l1
    # The shipped mechanism of scale 1/ln 2 says the same, and rounds up.
    scale = 1 / epsilon_of(Fraction(2))
    claimed = Laplace(scale, bounded.sensitivity).loss().cost().epsilon
    assert epsilon_of(ratio) - CLOSE <= claimed <= epsilon_of(ratio) + CLOSE
    assert claimed == bounded.sensitivity.l1 * epsilon_of(Fraction(2))


def test_coordinates_multiply_so_l1_is_the_norm_that_counts():
    for move in product(range(-2, 3), repeat=2):
        here = independent(laplace(HALF, 0, -3, 3), laplace(HALF, 0, -3, 3))
        there = independent(*(laplace(HALF, by, -3, 3) for by in move))
        assert worst_ratio(here, there) == prod(Fraction(2) ** abs(by) for by in move)


@RATES
def test_below_epsilon_a_delta_is_left_and_at_epsilon_none(q):
    """ε is the least: at any ε' below it, δ(ε') is above 0."""
    here, there = laplace(q, 0, -1, 2), laplace(q, 1, -1, 2)

    assert delta(here, there, 1 / q) == 0
    for e_smaller in (Fraction(1), (1 + 1 / q) / 2, 1 / q - Fraction(1, 10**6)):
        # The half line up to 0 is likelier by e^ε, with probability 1/(1+q).
        assert delta(here, there, e_smaller) == (1 - q * e_smaller) / (1 + q) > 0


@pytest.mark.parametrize("epsilon", [Fraction(1, 10), Fraction(1, 2), 1, 3])
@pytest.mark.parametrize("sensitivity", [1, 2, 7])
def test_the_shipped_mechanism_states_the_epsilon_asked_for_exactly(epsilon, sensitivity):
    mechanism = Laplace.of(sensitivity=sensitivity, epsilon=epsilon)

    assert mechanism.scale == sensitivity / Fraction(epsilon)
    assert mechanism.loss().cost().epsilon == epsilon


# The law that is shipped


@RATES
def test_the_shipped_table_steps_where_the_exact_law_does(q):
    """The sampler inverts Cⱼ = Pr[|X| < j]: just below Cⱼ in 64 bits it gives j − 1, just above it j."""
    scale = 1 / epsilon_of(1 / q)
    table = Table(partial(inversion.discrete_laplace_size, scale), signed=True)

    for j in range(1, 30):
        step = floor((1 - 2 * q**j / (1 + q)) * 2**64)
        assert (table.value_at(step - 2), table.value_at(step + 3)) == (j - 1, j)


@pytest.mark.parametrize("epsilon", [Fraction(1, 10), Fraction(1, 2), Fraction(2)])
def test_the_ratio_of_the_shipped_law_is_e_to_the_epsilon_at_rational_epsilons_too(epsilon):
    """From the thresholds alone, with e^−ε irrational: no class of outcomes is likelier by more than e^ε."""
    mechanism = Laplace.of(sensitivity=1, epsilon=epsilon)
    steps = inversion.discrete_laplace_size(mechanism.scale, BITS)
    sizes = [next(steps) for _ in range(8)]
    low, high = exp(epsilon, BITS)
    tolerance = 2**40  # units in the last of 200 bits: what enclosures of small probabilities leave open

    def between(k):
        """Bounds of 2^BITS·Pr[X = k], the size |k| with one of two signs."""
        if k == 0:
            return sizes[0]
        (low_before, high_before), (low_here, high_here) = sizes[abs(k) - 1], sizes[abs(k)]
        return (low_here - high_before) // 2, -(-(high_here - low_before) // 2)

    ratios = []
    for k in range(-6, 7):
        here, there = between(k), between(k - 1)
        ratios.append(Fraction(here[0], there[1]))
        assert Fraction(here[1], there[0]) <= Fraction(high + tolerance, 1 << BITS)
        assert Fraction(here[0], there[1]) >= Fraction(1 << BITS, high + tolerance)
    assert max(ratios) >= Fraction(low - tolerance, 1 << BITS), "e^ε is attained"
