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
def test_deterministic_mechanism_is_private_only_if_constant(relation):
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


def test_only_constants_are_private_under_add_remove():
    private = [f for f in FUNCTIONS if TINY.find_distinguishing_pair(f.get, Neighbours.ADD_REMOVE) is None]

    assert [set(f.values()) for f in private] == [{0}, {1}]


def test_functions_of_the_size_are_private_under_substitution():
    private = [f for f in FUNCTIONS if TINY.find_distinguishing_pair(f.get, Neighbours.SUBSTITUTE) is None]

    assert len(private) == 2**3
    assert all(f[x] == f[y] for f in private for x in DATABASES for y in DATABASES if sum(x) == sum(y))


def test_any_distinguished_databases_contain_distinguished_neighbours():
    """The argument of the text: change one row at a time from x to y; at some step f changes."""
    f = {x: int(x == (2, 0)) for x in DATABASES}
    walk = [(0, 0), (1, 0), (2, 0)]

    assert f[walk[0]] != f[walk[-1]]
    assert TINY.find_distinguishing_pair(f.get, Neighbours.ADD_REMOVE) == ((1, 0), (2, 0))


def test_any_noise_makes_the_loss_finite():
    f = {x: x[0] for x in DATABASES}
    pairs = list(TINY.pairs(Neighbours.ADD_REMOVE))

    assert worst(surely(f), pairs) == float("inf")
    assert worst(lambda x: laplace(HALF, f[x], -1, 3), pairs) == 2


def test_one_revealing_outcome_makes_the_loss_infinite():
    """Noise that is cut off: at the edge an outcome is possible under one neighbour only."""

    def cut(x):
        return {x[0] + k: Fraction(1, 5) for k in range(-2, 3)}

    assert worst(cut, TINY.pairs(Neighbours.ADD_REMOVE)) == float("inf")
