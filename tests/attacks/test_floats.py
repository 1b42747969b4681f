"""A01–A04, A16: what doubles give away."""

from fractions import Fraction
from functools import cache, partial

import numpy as np

from attacks import mutants
from attacks.evidence import Audit, Releases
from attacks.rows import Row, both_tests
from attacks.sums import claimed, moves_too_far
from hubbub import Gaussian, Laplace
from hubbub.noise.float_grid import add_integers, add_on_grid
from hubbub.textbook import linear


def _one_by_one(mechanism):
    return lambda x, n: np.array([mechanism.release(x).value for _ in range(n)])


def _together(make):
    """A vector of n coordinates, each with noise of its own, from a mechanism made for n."""
    return lambda x, n: make(coordinates=n).release(np.full(n, float(x))).value


def _reals(epsilon, delta):
    laplace = partial(Laplace.of, sensitivity=1, epsilon=epsilon, real=True)
    gaussian = partial(Gaussian.of, sensitivity=1, epsilon=epsilon, delta=delta, real=True)
    # In a vector each coordinate costs no more than is promised: rounding is charged for all of them.
    return {
        "laplace": Releases(_one_by_one(laplace()), epsilon),
        "laplace of vectors": Releases(_together(laplace), epsilon),
        "gaussian": Releases(_one_by_one(gaussian()), epsilon, delta),
        "gaussian of vectors": Releases(_together(gaussian), epsilon, delta),
    }


def _is_reachable_from_zero(y):
    """Whether ±10·ln(k/2^53) gives exactly this double for some k."""
    k = np.rint(np.exp(-np.abs(y) / 10) * 2.0**53)
    return np.any([-10.0 * np.log((k + near) * 2.0**-53) == np.abs(y) for near in range(-8, 9)], axis=0)


# Measured in the mutant, at a million draws: from 1, 38 % of what comes out could have come from 0 too.
MIRONOV = Audit(x=0.0, y=1.0, event=_is_reachable_from_zero, n=1000, weak=(1.0, 0.5))


def attack_A01(target):
    return MIRONOV.finds(target)


def _has_bits_below_those_of_one(y):
    return y * 2.0**53 != np.rint(y * 2.0**53)


# From 0: |noise| < 1/4 (22 %) has two bits more or further down, odd in three of four.
# From 1: doubles near 1 have no such bits, and near 0 the difference is exact.
HANEY = Audit(x=0.0, y=1.0, event=_has_bits_below_those_of_one, n=2000, weak=(0.16, 0.0))


def attack_A02(target):
    return HANEY.finds(target)


@cache
def _single_precision_support():
    k = np.arange(1, (1 << 23) + 1, dtype=np.float32)
    return np.unique(np.float32(-10) * np.log(k / np.float32(1 << 23)))


def _is_listed(y):
    sizes = np.abs(y)
    support = _single_precision_support()
    place = np.searchsorted(support, sizes.astype(np.float32)).clip(0, support.size - 1)
    return support[place].astype(np.float64) == sizes


# Measured in the mutant, at a million draws: from 1, 19 % of what comes out is on the list of 0 too.
ENUMERATED = Audit(x=0.0, y=1.0, event=_is_listed, n=1000, weak=(1.0, 0.3))


def attack_A03(target):
    return ENUMERATED.finds(target)


NOISES = [
    sign * (1 << power) + odd
    for power in (50, 53, 54, 57, 59)
    for odd in (-3, 0, 1, 2, 129)
    for sign in (-1, 1)
]


def attack_A04(target):
    """What is shown must be a function of the sum: one more in the value, one less in the noise."""
    return any(
        target(value, noise) != target(value + 1, noise - 1)
        for value in (0, 1, 1000, 2**52 + 1)
        for noise in NOISES
    )


GRID = Fraction(1, 8)


def attack_A16(target):
    """Any order of the rows gives one sum, and one row moves it by no more than is claimed."""
    huge = 2.0**53
    rows = [huge, 1.0, -huge, 0.1, 0.2, 0.3]
    return any(target(rows)[0] != target(rows[k:] + rows[:k])[0] for k in range(len(rows))) or any(
        moves_too_far(target, few, [*few, row])
        for few in ([1.0, 2.0], [0.1] * 10, [huge, 1.0, 1.0])
        for row in (huge, -huge, 1.0)
    )


ROWS = [
    Row("A01", attack_A01, _reals(0.1, 1e-6), Releases(mutants.inverse_laplace, 0.1), MIRONOV.hardly_misses),
    Row("A02", attack_A02, _reals(1.0, 1e-6), Releases(mutants.added_to_a_double, 1.0), HANEY.hardly_misses),
    Row(
        "A03",
        attack_A03,
        _reals(0.1, 1e-6),
        Releases(mutants.single_precision, 0.1),
        ENUMERATED.hardly_misses,
    ),
    Row(
        "A04",
        attack_A04,
        {
            "integers": add_integers,
            "vectors of integers": lambda v, n: add_integers(np.array([v]), np.array([n]))[0],
            "reals": lambda v, n: add_on_grid(v * GRID, n, GRID),
            "vectors of reals": lambda v, n: add_on_grid(np.array([float(v * GRID)]), np.array([n]), GRID)[0],
        },
        mutants.noise_cast_to_double,
    ),
    Row(
        "A16",
        attack_A16,
        {"linear": claimed(lambda rows: linear(rows, lambda row: row, -(2**53), 2**53))},
        mutants.float_sum,
    ),
]

test_ours_resists, test_mutant_falls = both_tests(ROWS)
