"""What questions cost: a histogram 1 or 2, m arbitrary counts m, a linear query what its bounds allow."""

from fractions import Fraction
from functools import cache, partial

import pytest

from hubbub import Laplace, Neighbours, Unit
from hubbub.sensitivity import unwrap
from hubbub.textbook import Universe, count, counts, fraction, histogram, linear
from theory.exact_laws import CLOSE, HALF, epsilon_of, laplace, worst_ratio

SMALL = Universe("abcd", max_rows=3)
ADD_REMOVE, SUBSTITUTE = Neighbours


def answers(query, x, relation):
    exact = unwrap(query(SMALL.rows(x), unit=Unit.row(relation)))
    return [int(cell) for cell in exact] if hasattr(exact, "__len__") else [exact]


@cache
def cell_ratio(a, b):
    return worst_ratio(laplace(HALF, a, -9, 9), laplace(HALF, b, -9, 9))


def worst_over_all(query, relation):
    """The worst ratio of noisy answers, e^−1/b = 1/2: independent cells, so it is the product of theirs."""
    known = {x: answers(query, x, relation) for x in SMALL.databases()}
    largest = Fraction(0)
    for x, y in SMALL.pairs(relation):
        ratio = Fraction(1)
        for a, b in zip(known[x], known[y], strict=True):
            ratio *= cell_ratio(int(a), int(b))
        largest = max(largest, ratio)
    return largest


def at_least(level):
    return lambda row: row >= level


QUERIES = {
    "histogram": (partial(histogram, categories=["a", "b", "c", "d"]), 1, 2),
    "histogram of some": (partial(histogram, categories=["a", "x"]), 1, 1),
    "one count": (partial(counts, predicates=[at_least("b")]), 1, 1),
    "2 counts": (partial(counts, predicates=list(map(at_least, "ab"))), 2, 1),
    "4 counts": (partial(counts, predicates=list(map(at_least, "aabd"))), 4, 2),
    "4 equal counts": (partial(counts, predicates=[at_least("b")] * 4), 4, 4),
    "weights from −3 to 2": (partial(linear, weight=lambda row: ord(row) - 100, low=-3, high=2), 3, 3),
}


@pytest.mark.parametrize("name", QUERIES)
@pytest.mark.parametrize("relation", list(Neighbours))
def test_enumerated_cost_of_noisy_counts_matches_the_rule(name, relation):
    """e^(cost/b) is the enumerated worst ratio; the rule's ℓ1 is never below the cost."""
    query, added, substituted = QUERIES[name]
    cost = added if relation is ADD_REMOVE else substituted

    assert worst_over_all(query, relation) == 2**cost
    rule = query(SMALL.rows((1, 0, 0, 0)), unit=Unit.row(relation)).sensitivity
    assert rule.l1 >= cost == SMALL.sensitivity(lambda x: answers(query, x, relation), relation).l1


def test_a_histogram_costs_1_where_rows_come_and_go_and_2_where_they_are_substituted():
    """However many cells it has: disjoint counts are asked for the price of one (or of two)."""
    categories = list("abcd")
    for relation, cost in ((ADD_REMOVE, 1), (SUBSTITUTE, 2)):
        query = partial(histogram, categories=categories)
        assert query([], unit=Unit.row(relation)).sensitivity.l1 == cost
        assert worst_over_all(query, relation) == 2**cost


@pytest.mark.parametrize("m", [1, 2, 3, 5])
@pytest.mark.parametrize("relation", list(Neighbours))
def test_m_arbitrary_counts_cost_m(m, relation):
    """The rule says m for any predicates, and predicates that all ask the same need it."""
    query = partial(counts, predicates=[at_least("b")] * m)
    rule = query([], unit=Unit.row(relation)).sensitivity

    assert rule.l1 == m
    assert worst_over_all(query, relation) == 2**m
    claimed = Laplace(1 / epsilon_of(Fraction(2)), rule).loss().cost().epsilon
    assert epsilon_of(Fraction(2**m)) - CLOSE <= claimed <= epsilon_of(Fraction(2**m)) + CLOSE


def test_a_count_has_sensitivity_one():
    for relation in Neighbours:
        ask = partial(count, predicate=at_least("c"))
        assert SMALL.sensitivity(lambda x, r=relation, a=ask: answers(a, x, r), relation).l1 == 1
        assert worst_over_all(ask, relation) == 2


@pytest.mark.parametrize("n", [1, 2, 3])
def test_a_fraction_of_n_rows_moves_by_one_nth(n):
    """A linear query over n rows, as the text normalises it: 1/n under substitution."""
    sizes = [x for x in SMALL.databases() if sum(x) == n]
    values = {x: unwrap(fraction(SMALL.rows(x), at_least("b"))) for x in sizes}
    moves = [abs(values[x] - values[y]) for x, y in SMALL.pairs(SUBSTITUTE) if sum(x) == n]

    assert max(moves) == Fraction(1, n) == fraction(["a"] * n, at_least("b")).sensitivity.l1
