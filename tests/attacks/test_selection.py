"""A11, A12, A18, A21, A28: what choosing gives away."""

import math
from fractions import Fraction
from functools import partial
from itertools import product
from typing import NamedTuple

import numpy as np
from mpmath import mp, mpf

from attacks import mutants
from attacks.evidence import Audit, Fit, Releases, normalised
from attacks.rows import Row, both_tests
from hubbub import Gaussian, Laplace, Sensitivity
from hubbub.mechanisms import (
    AboveThreshold,
    Exponential,
    GaussianPartitionSelection,
    PermuteAndFlip,
    ReportNoisyMax,
    TopK,
    TruncatedGeometricSelection,
)
from hubbub.mechanisms.noise_tails import discrete_laplace_tail, rounded_gaussian_tail
from hubbub.noise import bernoulli_exp, bernoulli_exp_each
from hubbub.textbook import counts, histogram
from internals import inject_bits

SCALES = (1, 2, 10)


def attack_A11(target):
    """What is claimed of Pr[|X| ≥ m] must not be less than it is."""
    return any(
        target(scale, m) < (1 - 1e-12) * 2 * math.exp(-m / scale) / (1 + math.exp(-1 / scale))
        for scale in SCALES
        for m in range(1, 20)
    )


def _at_least(beyond, scale, m):
    return beyond(Fraction(scale), m - 1, 128)[1] / 2**128


def attack_A11_gaussian(target):
    return any(
        target(sigma, m) < (1 - 1e-12) * math.erfc((m - 0.5) / sigma / math.sqrt(2))
        for sigma in SCALES
        for m in range(1, 20)
    )


def _reaching(scale):
    """Pr[X ≥ Y] for noise of `scale` on the query and half of it on the threshold."""
    weights = [normalised(lambda k, b=b: math.exp(-abs(k) / b), range(-60, 61)) for b in (scale, scale / 2)]
    return sum(p * q for (x, p), (y, q) in product(weights[0].items(), weights[1].items()) if x >= y)


# At ε = 4 noise of scale 1 on the query and ½ on the threshold ties every third time.
REACHED = _reaching(1)
AT_THE_THRESHOLD = Fit(
    {1: REACHED, 0: 1 - REACHED}, {1: 1 - REACHED, 0: REACHED}, (lambda answer: answer == 1,), 2000
)


def attack_A11_threshold(target):
    """How often a query that equals the threshold is "above"."""
    return AT_THE_THRESHOLD.finds(lambda n: [int(target(7, 7)) for _ in range(n)])


GEOMETRIC_KEYS = TruncatedGeometricSelection(Fraction(1), 4, 1)
GAUSSIAN_KEYS = GaussianPartitionSelection(Fraction(1), 3, 1)


def _keep(mechanism):
    """Which of n keys are kept, each of the same number of units."""
    return lambda units, n: np.isin(np.arange(n), mechanism.release(np.full(n, units)).value)


# A key of one unit is kept with Pr[Z ≥ 3/2] = 6.7 %; by > it would be Pr[Z ≥ 5/2] = 0.6 %.
ONE_UNIT = Audit(x=1, y=0, event=lambda selected: selected, n=30_000, weak=(0.066, 0.0))


def attack_A11_keys(target):
    """A key that one unit alone has must not be shown more often than δ says."""
    return ONE_UNIT.finds(target)


# Where noise is cut at ±2 and the bar is above 4, a key of 3 units is kept with q²/(1+q) = 9.8 %, of 2 never.
SHORT_OF_THE_BAR = Audit(x=3, y=2, event=lambda selected: selected, n=30_000, weak=(0.098, 0.0))


def attack_A18_keys(target):
    """No key may be shown that with one unit less would never be."""
    return SHORT_OF_THE_BAR.finds(target)


def attack_A12(target):
    """Neighbours must give answers of one length."""
    rows = ["a", "b", "a"]
    neighbours = [[*rows, "c"], [*rows, "z"], rows[:1], rows[1:], []]
    return any(np.shape(target(rows)) != np.shape(target(other)) for other in neighbours)


CATEGORIES = ["a", "b", "c"]
PREDICATES = [lambda row: row == "a", lambda row: row > "a"]


class Charged(NamedTuple):
    """The exact law of a choice by scores, and the zCDP it is charged with."""

    law: object
    rho: object


def attack_A21(target):
    """Rényi divergences of neighbours must stay below ρ·α, for every order α."""
    for epsilon in (Fraction(1, 4), Fraction(1), Fraction(3)):
        rho = mpf(target.rho(epsilon).numerator) / target.rho(epsilon).denominator
        law = partial(target.law, rate=mpf(epsilon.numerator) / epsilon.denominator / 2)
        laws = {scores: law(scores) for scores in product(range(3), repeat=3)}
        for (one, p), (other, q) in product(laws.items(), repeat=2):
            if max(abs(a - b) for a, b in zip(one, other, strict=True)) == 1 and any(
                _renyi(p, q, alpha) > alpha * rho * (1 + mpf(10) ** -12) for alpha in (mpf("1.001"), 2, 8, 64)
            ):
                return True
    return False


def _renyi(p, q, alpha):
    return mp.log(sum(x**alpha * y ** (1 - alpha) for x, y in zip(p, q, strict=True))) / (alpha - 1)


def _exponential_law(scores, rate):
    weights = [mp.exp(rate * score) for score in scores]
    return [weight / sum(weights) for weight in weights]


def _permute_and_flip_law(scores, rate):
    """All coins, then one of the heads evenly: summed over every way the coins may fall."""
    heads = [mp.exp(rate * (score - max(scores))) for score in scores]
    law = [mpf(0)] * len(scores)
    for coins in product((False, True), repeat=len(scores)):
        if any(coins):
            chance = math.prod(p if coin else 1 - p for p, coin in zip(heads, coins, strict=True))
            for place in range(len(scores)):
                law[place] += chance / sum(coins) if coins[place] else 0
    return law


def attack_A28(target):
    """A coin of e^−x must be able to fall both ways: with U = 0 it is heads, with U next to 1 tails."""
    with inject_bits(bytes):
        never = not all(target(x) for x in (1, 50, 800, 3000))
    with inject_bits(lambda count: b"\xff" * count):
        always = any(target(Fraction(1, 2**power)) for power in (20, 54, 60))
    return never or always


def attack_A28_choice(target):
    """The first candidate has a share, however small, that starts at U = 0."""
    with inject_bits(bytes):
        return any(target([0, score], Fraction(1)) != 0 for score in (1, 40, 800, 3000))


def _chosen(scores, rate):
    return Exponential.of(sensitivity=1, epsilon=2 * rate).release(scores).value


def _session(query, threshold):
    return AboveThreshold.of(sensitivity=1, epsilon=4, threshold=threshold).open().ask(query)


def _released(query, threshold):
    return AboveThreshold.of(sensitivity=1, epsilon=4, threshold=threshold).release([query]).value == 0


def _top_two(rows):
    mechanism = TopK(ReportNoisyMax.of(sensitivity=1, epsilon=1), k=2)
    return mechanism.release(histogram(rows, CATEGORIES)).value


ROWS = [
    Row(
        "A11",
        attack_A11,
        {
            "beyond": partial(_at_least, discrete_laplace_tail),
            "tail": lambda scale, m: Laplace(Fraction(scale), Sensitivity(1)).tail(Fraction(m, scale)),
        },
        mutants.strict_tail,
    ),
    Row(
        "A11-gaussian",
        attack_A11_gaussian,
        {
            "beyond": partial(_at_least, rounded_gaussian_tail),
            "tail": lambda sigma, m: Gaussian(Fraction(sigma), Sensitivity(1)).tail(Fraction(m, sigma)),
        },
        mutants.strict_gaussian_tail,
    ),
    Row(
        "A11-threshold",
        attack_A11_threshold,
        {"ask": _session, "release": _released},
        mutants.strictly_above(4),
        AT_THE_THRESHOLD.hardly_misses,
    ),
    Row(
        "A11-keys",
        attack_A11_keys,
        {
            "gaussian": Releases(_keep(GAUSSIAN_KEYS), 0.0, float(GAUSSIAN_KEYS.delta)),
            "geometric": Releases(_keep(GEOMETRIC_KEYS), 0.0, float(GEOMETRIC_KEYS.delta)),
        },
        Releases(_keep(GAUSSIAN_KEYS), 0.0, mutants.keys_above_charged_as(1, 3)),
        ONE_UNIT.hardly_misses,
    ),
    Row(
        "A18-keys",
        attack_A18_keys,
        {
            "geometric": Releases(_keep(GEOMETRIC_KEYS), 1.0, float(GEOMETRIC_KEYS.delta)),
            "gaussian": Releases(_keep(GAUSSIAN_KEYS), 1.0, GAUSSIAN_KEYS.loss().delta(1)),
        },
        Releases(mutants.keys_with_noise_cut_short(1, 4), 1.0, float(GEOMETRIC_KEYS.delta)),
        SHORT_OF_THE_BAR.hardly_misses,
    ),
    Row(
        "A12",
        attack_A12,
        {
            "histogram": lambda rows: (
                Laplace.of(sensitivity=1, epsilon=1).release(histogram(rows, CATEGORIES)).value
            ),
            "counts": lambda rows: (
                Gaussian.of(sensitivity=2, epsilon=1, delta=1e-6).release(counts(rows, PREDICATES)).value
            ),
            "top k": _top_two,
        },
        mutants.histogram_of_what_is_there,
    ),
    Row(
        "A21",
        attack_A21,
        {
            "permute-and-flip": Charged(
                _permute_and_flip_law, lambda epsilon: PermuteAndFlip.of(sensitivity=1, epsilon=epsilon).rho
            ),
            "permute-and-flip, in an account": Charged(
                _permute_and_flip_law,
                lambda epsilon: PermuteAndFlip.of(sensitivity=1, epsilon=epsilon).loss().cost().rho,
            ),
            "exponential": Charged(
                _exponential_law, lambda epsilon: Exponential.of(sensitivity=1, epsilon=epsilon).rho
            ),
        },
        Charged(_permute_and_flip_law, mutants.bounded_range_charge),
    ),
    Row(
        "A28",
        attack_A28,
        {
            "coin": bernoulli_exp,
            "coins": lambda x: bool(bernoulli_exp(x, size=1)[0]),
            "each": lambda x: bool(bernoulli_exp_each(x, np.array([1]))[0]),
            "each, many times": lambda x: bool(bernoulli_exp_each(x / Fraction(5), np.array([5]))[0]),
        },
        mutants.underflowing_coin,
    ),
    Row("A28-choice", attack_A28_choice, {"exponential": _chosen}, mutants.underflowing_choice),
]

test_ours_resists, test_mutant_falls = both_tests(ROWS)
