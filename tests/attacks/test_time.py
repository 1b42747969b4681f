"""A24: work that depends on the noise, or on the data.

No clock is read: work is the number of calls made and of random bytes asked for, which does not vary by
what else the machine does. What is left out is the time a single operation takes.
"""

import math
import ssl
import sys
from fractions import Fraction
from functools import partial

import numpy as np

from attacks import mutants
from attacks.evidence import differ, quantile
from attacks.rows import Row, both_tests
from hubbub import Gaussian, Laplace
from hubbub.mechanisms import (
    AboveThreshold,
    Exponential,
    GaussianPartitionSelection,
    PermuteAndFlip,
    ReportNoisyMax,
    ReportNoisyMaxWithGap,
    TopK,
    TruncatedGeometricSelection,
)
from hubbub.mechanisms.randomized_response import RandomizedResponse, UnaryEncoding
from hubbub.noise import bernoulli_exp_each, discrete_gaussian, discrete_laplace, geometric, rounded_gaussian
from internals import inject_bits

DRAWS = 300
DRAWS_OF_EACH = 200


def _work(call):
    """What a call gives, and what it took: calls and random bytes."""
    calls = requests = 0

    def count_of(count):
        nonlocal requests
        requests += count
        return ssl.RAND_bytes(count)

    def watch(_frame, event, _argument):
        nonlocal calls
        calls += event in {"call", "c_call"}

    with inject_bits(count_of):
        before = sys.getprofile()
        sys.setprofile(watch)
        try:
            value = call()
        finally:
            sys.setprofile(before)
    return value, (requests, calls)


def attack_A24(target):
    """Do large draws take other work than small ones? By halves, and the largest tenth against the rest."""
    target()  # tables are made at first use
    draws = [(float(np.max(np.abs(value))), work) for value, work in (_work(target) for _ in range(DRAWS))]
    works = [work for _, work in sorted(draws, key=lambda one: one[0])]
    return any(differ(works[:-largest], works[-largest:]) for largest in (DRAWS // 2, DRAWS // 10))


def _hardly_misses(_):
    """In the mutant work rises with the value: nothing in the lower half is above the median, in the upper
    half all but what equals it; and no value has a chance of more than 1 − e^−1/10 (the largest of 64: less).
    """
    half = DRAWS // 2
    ties = math.ceil(DRAWS * quantile(1 - math.exp(-1 / 10), DRAWS, 1.0))
    return differ([0] * half, [0] * ties + [1] * (half - ties))


def attack_A24_data(target):
    """Does one database take other work than another, neighbouring or not?"""
    databases = [np.array(scores) for scores in ([5] * 40, [5] * 39 + [1000], [1000] * 39 + [5])]
    for scores in databases:
        target(scores)
    works = [[_work(partial(target, scores))[1] for _ in range(DRAWS_OF_EACH)] for scores in databases]
    return any(differ(works[0], other) for other in works[1:])


def _hardly_misses_data(_):
    """Measured in the mutant, at 3000 draws: above the common median lie 96 % and 2 %; with room to spare."""
    many = math.floor(DRAWS_OF_EACH * quantile(0.9, DRAWS_OF_EACH, 0.0))
    few = math.ceil(DRAWS_OF_EACH * quantile(0.05, DRAWS_OF_EACH, 1.0))
    return differ([1] * few + [0] * (DRAWS_OF_EACH - few), [1] * many + [0] * (DRAWS_OF_EACH - many))


def _noise(mechanism, value):
    return lambda: mechanism.release(value).value - np.asarray(value)


def _releases(mechanism):
    return lambda scores: mechanism.release(scores).value


ZEROS = np.zeros(64, dtype=np.int64)
SCORED = {"sensitivity": 1, "epsilon": Fraction(1, 10)}

ROWS = [
    Row(
        "A24",
        attack_A24,
        {
            "geometric": partial(geometric, Fraction(10)),
            "discrete laplace": partial(discrete_laplace, Fraction(10)),
            "discrete laplace, large": partial(discrete_laplace, Fraction(2**40)),
            "rounded gaussian": partial(rounded_gaussian, Fraction(10)),
            "discrete gaussian": partial(discrete_gaussian, Fraction(100)),
            "discrete gaussian, large": partial(discrete_gaussian, Fraction(10**8)),
            "laplace": _noise(Laplace.of(sensitivity=1, epsilon=0.1), 5),
            "laplace on a grid": _noise(Laplace.of(sensitivity=1, epsilon=0.1, real=True), 5.0),
            "gaussian": _noise(Gaussian.of(sensitivity=1, epsilon=0.1, delta=1e-6), 5),
            "gaussian on a grid": _noise(Gaussian.of(sensitivity=1, epsilon=0.1, delta=1e-6, real=True), 5.0),
        },
        mutants.flip_by_flip,
        _hardly_misses,
    ),
    Row(
        "A24-vectors",
        attack_A24,
        {
            "geometric": partial(geometric, Fraction(10), size=64),
            "discrete laplace": partial(discrete_laplace, Fraction(10), size=64),
            "discrete laplace, large": partial(discrete_laplace, Fraction(1000), size=64),
            "rounded gaussian": partial(rounded_gaussian, Fraction(10), size=64),
            "rounded gaussian, large": partial(rounded_gaussian, Fraction(1000), size=64),
            "discrete gaussian": partial(discrete_gaussian, Fraction(100), size=64),
            "discrete gaussian, large": partial(discrete_gaussian, Fraction(10**6), size=64),
            "laplace": _noise(Laplace.of(sensitivity=1, epsilon=0.1), ZEROS),
            "gaussian": _noise(Gaussian.of(sensitivity=1, epsilon=0.1, delta=1e-6), ZEROS),
        },
        mutants.flip_by_flip_vector,
        _hardly_misses,
    ),
    Row(
        "A24-data",
        attack_A24_data,
        {
            "coins": lambda scores: bernoulli_exp_each(Fraction(1, 10), scores),
            "permute-and-flip": _releases(PermuteAndFlip.of(**SCORED)),
            "exponential": _releases(Exponential.of(**SCORED)),
            "laplace max": _releases(ReportNoisyMax.of(**SCORED)),
            "laplace max with gap": _releases(ReportNoisyMaxWithGap.of(**SCORED)),
            "top k": _releases(TopK(PermuteAndFlip.of(**SCORED), k=3)),
            "laplace": _releases(Laplace.of(**SCORED)),
            "laplace on a grid": _releases(Laplace.of(**SCORED, real=True, coordinates=40)),
            "threshold": lambda scores: AboveThreshold.of(**SCORED, threshold=500).open().ask(scores[-1]),
            "geometric keys": _releases(TruncatedGeometricSelection(Fraction(1), 14, 1)),
            "gaussian keys": _releases(GaussianPartitionSelection(Fraction(4), 23, 1)),
            "response": _releases(RandomizedResponse.of(epsilon=5, categories=1001)),
            "unary encoding": _releases(UnaryEncoding.of(epsilon=5, categories=1001)),
        },
        partial(mutants.flip_until_heads, rate=Fraction(1, 20)),
        _hardly_misses_data,
    ),
]

test_ours_resists, test_mutant_falls = both_tests(ROWS)
