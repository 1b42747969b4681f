"""A05–A07, A14, A15, A18, A30: what integers and bounds give away."""

import math
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from attacks import mutants
from attacks.evidence import Audit, Releases, outcome
from attacks.rows import Row, both_tests
from attacks.sums import claimed, moves_too_far
from hubbub import Bounded, Gaussian, Laplace, Unit
from hubbub.noise.float_grid import add_integers
from hubbub.noise.inversion import MAX_DRAW
from hubbub.sensitivity import MAX_MAGNITUDE, unwrap
from hubbub.textbook import count, counts, histogram, linear

LAPLACE = Laplace.of(sensitivity=1, epsilon=1)
REAL_LAPLACE = Laplace.of(sensitivity=1, epsilon=1, real=True)
GAUSSIAN = Gaussian.of(sensitivity=1, epsilon=1, delta=1e-6)
REAL_GAUSSIAN = Gaussian.of(sensitivity=1, epsilon=1, delta=1e-6, real=True)


def _singly(mechanism):
    return lambda x, n: [int(mechanism.release(x).value) for _ in range(n)]


def _in_vectors(mechanism):
    return lambda x, n: [int(mechanism.release(np.array([x])).value[0]) for _ in range(n)]


# Between the two neighbours doubles have one step, of 256: what is rounded first lands on either side.
NEIGHBOURING_DOUBLES = Audit(
    x=2**60 + 129, y=2**60 + 128, event=lambda y: [v > 2**60 + 128 for v in y], n=1000, weak=(0.99, 0.01)
)


def attack_A05(target):
    return NEIGHBOURING_DOUBLES.finds(target)


def attack_A06(target):
    """A sum of nine of the largest weights must not come around at the other end."""
    return any(
        moves_too_far(target, [MAX_MAGNITUDE] * rows, [MAX_MAGNITUDE] * rows + [extra])
        for rows in range(9)
        for extra in (0, MAX_MAGNITUDE)
    )


def attack_A07(target):
    """A row that is no number must neither show nor fail."""
    hostile = [math.nan, -math.nan, math.inf, -math.inf, np.float32("nan")]
    return any(moves_too_far(target, rows, [*rows, row]) for rows in ([], [10.0, 20.0]) for row in hostile)


def attack_A14(target):
    """The claim must not know the largest row."""
    return any(moves_too_far(target, [1, 2, 3], [1, 2, 3, far]) for far in (4, 1000, -1000, 10**30))


def attack_A15(target):
    """No row, however far out, may move the sum by more than the bounds say."""
    rows = [3, 51, -1, 10**6, -(10**6), 1e300, Fraction(10**40, 3)]
    return any(moves_too_far(target, [10, 20], [10, 20, row]) for row in rows)


def attack_A18(target):
    return TRUNCATED.finds(target)


# The mutant shows 4 from x = 1 where noise was cut at 3: Pr[noise ≥ 3] = q³/(1+q) = 3.6 %; from 0 never.
TRUNCATED = Audit(x=1, y=0, event=lambda y: y >= 4, n=30_000, weak=(0.036, 0.0))


def attack_A18_cut(target):
    """Where noise was cut, what is shown must be the same for every value: the rest of the noise is gone."""
    values = [0, 1, -1, MAX_MAGNITUDE, MAX_MAGNITUDE - 1, -MAX_MAGNITUDE]
    return any(len({int(target(value, cut)) for value in values}) > 1 for cut in (MAX_DRAW, -MAX_DRAW))


class Carrying(NamedTuple):
    """How a value is wrapped with its sensitivity, read, and released by a mechanism made for another one."""

    wrap: object
    read: object
    release: object


def attack_A30(target):
    """What was wrapped must stay what it was, and keep its sensitivity."""
    mine = np.array([1, 1])
    wrapped = target.wrap(mine, 5)
    mine[0] = 10**6
    changed = list(target.read(wrapped)) != [1, 1]
    outcome(lambda: target.read(wrapped).__setitem__(0, 7))
    changed = changed or list(target.read(wrapped)) != [1, 1]
    return changed or outcome(lambda: target.release(wrapped, 1)) is None


def _sum(low, high, unit=None):
    unit = unit or Unit.row()
    return claimed(lambda rows: linear(rows, lambda row: row, low, high, unit=unit))


SUMS = {
    "linear": _sum(0, 50),
    "linear, negative bounds": _sum(-50, -10),
    "count": claimed(lambda rows: count(rows, lambda row: row > 10)),
    "counts": claimed(lambda rows: counts(rows, [lambda row: row > 10, lambda row: row < 10])),
    "histogram": claimed(lambda rows: histogram(rows, [10, 20, 10**6])),
}

ROWS = [
    Row(
        "A05",
        attack_A05,
        {
            "laplace": Releases(_singly(LAPLACE), 1.0),
            "laplace of vectors": Releases(_in_vectors(LAPLACE), 1.0),
            "laplace on a grid": Releases(_singly(REAL_LAPLACE), 1.0),
            "laplace on a grid, of vectors": Releases(_in_vectors(REAL_LAPLACE), 1.0),
            "gaussian": Releases(_singly(GAUSSIAN), 1.0, 1e-6),
            "gaussian of vectors": Releases(_in_vectors(GAUSSIAN), 1.0, 1e-6),
            "gaussian on a grid": Releases(_singly(REAL_GAUSSIAN), 1.0, 1e-6),
            "gaussian on a grid, of vectors": Releases(_in_vectors(REAL_GAUSSIAN), 1.0, 1e-6),
        },
        Releases(mutants.integers_through_doubles, 1.0),
        NEIGHBOURING_DOUBLES.hardly_misses,
    ),
    Row(
        "A06",
        attack_A06,
        {"linear": _sum(0, MAX_MAGNITUDE), "both sides": _sum(-MAX_MAGNITUDE, MAX_MAGNITUDE)},
        mutants.wrapping_sum,
    ),
    Row("A07", attack_A07, SUMS, mutants.nan_passes_the_clamp),
    Row("A14", attack_A14, SUMS, mutants.bounds_from_the_rows),
    Row("A15", attack_A15, SUMS, mutants.bounds_not_enforced),
    Row(
        "A18",
        attack_A18,
        {"laplace": Releases(lambda x, n: LAPLACE.release(np.full(n, x)).value, 1.0)},
        Releases(mutants.truncated_noise, 1.0),
        TRUNCATED.hardly_misses,
    ),
    Row(
        "A18-cut",
        attack_A18_cut,
        {
            "integers": add_integers,
            "vectors": lambda value, noise: add_integers(np.array([value]), np.array([noise]))[0],
        },
        mutants.not_clamped,
    ),
    Row(
        "A30",
        attack_A30,
        {
            "asserted": Carrying(
                Bounded.user_asserted,
                unwrap,
                lambda bounded, moved: Laplace.of(sensitivity=moved, epsilon=1).release(bounded),
            ),
        },
        Carrying(mutants.StaleBounds, mutants.StaleBounds.read, mutants.StaleBounds.release),
    ),
]

test_ours_resists, test_mutant_falls = both_tests(ROWS)
