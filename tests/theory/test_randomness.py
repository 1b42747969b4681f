"""Privacy needs randomness: a deterministic answer that depends on the data at all has no finite ε."""

from fractions import Fraction
from itertools import product

import pytest

from hubbub import Neighbours
from hubbub.textbook import Universe
from theory.exact_laws import HALF, laplace, worst

TINY = Universe("ab", max_rows=2)
DATABASES = list(TINY.databases())
FUNCTIONS = [dict(zip(DATABASES, values, strict=True)) for values in product((0, 1), repeat=len(DATABASES))]


def surely(f):
    """The law of a deterministic mechanism."""
    return lambda x: {f[x]: Fraction(1)}


@pytest.mark.parametrize("relation", list(Neighbours))
def test_a_deterministic_mechanism_is_private_only_if_it_tells_nothing(relation):
    """All 64 yes-or-no functions of all 6 databases: ε is 0 or infinite, never between."""
    pairs = list(TINY.pairs(relation))
    for f in FUNCTIONS:
        ratio = worst(surely(f), pairs)
        assert ratio in {1, float("inf")}
        apart = TINY.find_distinguishing_pair(f.get, relation)
        assert (apart is None) == (ratio == 1)
        if apart is not None:
            x, y = apart
            assert f[x] != f[y]


def test_where_rows_come_and_go_only_constants_are_left():
    private = [f for f in FUNCTIONS if TINY.find_distinguishing_pair(f.get, Neighbours.ADD_REMOVE) is None]

    assert [set(f.values()) for f in private] == [{0}, {1}]


def test_where_rows_are_substituted_functions_of_the_size_are_left_for_it_is_public():
    private = [f for f in FUNCTIONS if TINY.find_distinguishing_pair(f.get, Neighbours.SUBSTITUTE) is None]

    assert len(private) == 2**3
    assert all(f[x] == f[y] for f in private for x in DATABASES for y in DATABASES if sum(x) == sum(y))


def test_from_any_two_databases_that_f_tells_apart_a_walk_finds_neighbours_it_tells_apart():
    """The argument of the text: change one row at a time from x to y; at some step f changes."""
    f = {x: int(x == (2, 0)) for x in DATABASES}
    walk = [(0, 0), (1, 0), (2, 0)]

    assert f[walk[0]] != f[walk[-1]]
    assert TINY.find_distinguishing_pair(f.get, Neighbours.ADD_REMOVE) == ((1, 0), (2, 0))


def test_a_little_noise_makes_it_finite():
    f = {x: x[0] for x in DATABASES}
    pairs = list(TINY.pairs(Neighbours.ADD_REMOVE))

    assert worst(surely(f), pairs) == float("inf")
    assert worst(lambda x: laplace(HALF, f[x], -1, 3), pairs) == 2


def test_mostly_noise_is_not_enough_if_one_outcome_betrays():
    """Noise that is cut off: at the edge an outcome is possible under one neighbour only."""

    def cut(x):
        return {x[0] + k: Fraction(1, 5) for k in range(-2, 3)}

    assert worst(cut, TINY.pairs(Neighbours.ADD_REMOVE)) == float("inf")
