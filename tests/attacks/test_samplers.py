"""A17, A19, A20, A22: draws that do not follow the law they were charged for."""

import math
from fractions import Fraction
from functools import partial

import numpy as np

from attacks import mutants
from attacks.evidence import Audit, Fit, Releases, normalised
from attacks.rows import Row, both_tests
from hubbub import Gaussian, Laplace, Sensitivity
from hubbub.mechanisms.randomized_response import RandomizedResponse, UnaryEncoding
from hubbub.noise import bernoulli, discrete_gaussian, discrete_laplace, geometric, rounded_gaussian

SHORT = 19 / 20
"""What a scale 5 % too small is multiplied by."""


def _laplace_law(scale):
    return normalised(lambda k: math.exp(-abs(k) / scale), range(-int(50 * scale), int(50 * scale) + 1))


def _geometric_law(scale):
    return normalised(lambda k: math.exp(-k / scale), range(int(50 * scale)))


def _discrete_gaussian_law(sigma):
    reach = int(10 * sigma)
    return normalised(lambda k: math.exp(-((k / sigma) ** 2) / 2), range(-reach, reach + 1))


def _rounded_gaussian_law(sigma):
    def between(k):
        """Φ((k+½)/σ) − Φ((k−½)/σ), from the side on which nothing cancels."""
        near, far = ((abs(k) + half) / sigma / math.sqrt(2) for half in (-0.5, 0.5))
        return (math.erfc(near) - math.erfc(far)) / 2

    reach = int(10 * sigma)
    return normalised(between, range(-reach, reach + 1))


def _twice_zero(scale):
    return normalised(
        lambda k: math.exp(-abs(k) / scale) * (2 if k == 0 else 1),
        range(-int(50 * scale), int(50 * scale) + 1),
    )


def _events(scale):
    """Zero, both signs, odd and three to the lowest digits, and how much lies beyond some scales."""
    tails = [lambda x, far=far: np.abs(x) > far * scale for far in (0.25, 0.5, 1, 1.5, 2, 3, 5)]
    digits = [lambda x: x == 0, lambda x: x > 0, lambda x: x < 0, lambda x: x % 2 == 1, lambda x: x % 8 == 3]
    return (*tails, *digits)


def _one_by_one(sampler, scale):
    return lambda n: [sampler(scale) for _ in range(n)]


def _few_at_a_time(sampler, scale):
    return lambda n: np.concatenate([sampler(scale, size=25) for _ in range(n // 25)])


def _listed(sampler, scale):
    return lambda n: sampler([scale] * n)


def _at_once(sampler, scale):
    return lambda n: sampler(scale, size=n)


def _draw_shown(mechanism):
    return lambda n: mechanism.release(np.zeros(n, dtype=np.int64)).value


def _steps(mechanism, scale):
    """Reals on their grid, measured in parts of `scale` again, so that one law fits all."""
    return lambda n: np.rint(mechanism.release(np.zeros(n)).value * (scale / float(mechanism.scale))).astype(
        int
    )


TEN, THOUSAND = Fraction(10), Fraction(1000)

LAPLACE = Fit(_laplace_law(10), _laplace_law(10 * SHORT), _events(10), 150_000)
GAUSSIAN = Fit(_rounded_gaussian_law(10), _rounded_gaussian_law(10 * SHORT), _events(10), 100_000)
DISCRETE_GAUSSIAN = Fit(_discrete_gaussian_law(10), _discrete_gaussian_law(10 * SHORT), _events(10), 100_000)
GEOMETRIC = Fit(_geometric_law(10), _geometric_law(10 * SHORT), _events(10), 150_000)
LARGE_LAPLACE = Fit(_laplace_law(1000), _laplace_law(1000 * SHORT), _events(1000), 200_000)
LARGE_GAUSSIAN = Fit(_rounded_gaussian_law(1000), _rounded_gaussian_law(1000 * SHORT), _events(1000), 200_000)
LARGE_DISCRETE_GAUSSIAN = Fit(
    _discrete_gaussian_law(1000), _discrete_gaussian_law(1000 * SHORT), _events(1000), 200_000
)
LARGE_GEOMETRIC = Fit(_geometric_law(1000), _geometric_law(1000 * SHORT), _events(1000), 200_000)

ZERO = Fit(_laplace_law(1), _twice_zero(1), (lambda x: x == 0,), 1500)
ZERO_OF_LARGE = Fit(_laplace_law(80), _twice_zero(80), (lambda x: x == 0,), 40_000)


def attack_A17(fit, target):
    return fit.finds(target)


def attack_A19(fit, target):
    return fit.finds(target)


def attack_A20(fit, target):
    return fit.finds(target)


TOLD = (lambda answer: answer == 1,)
LOUD = 2.4
"""Where 5 % of ε show soonest."""


def _coin(p):
    return {1: p, 0: 1 - p}


THREE_QUARTERS = Fit(_coin(0.75), _coin(0.5), TOLD, 2000)
KEPT = Fit(_coin(1 / (1 + math.exp(-LOUD))), _coin(1 / (1 + math.exp(-1.05 * LOUD))), TOLD, 250_000)


def _is_told(mechanism, truth):
    return lambda n: (mechanism.release(np.full(n, truth)).value == truth).astype(int)


def _is_told_singly(mechanism, truth):
    return lambda n: [int(mechanism.release(truth).value == truth) for _ in range(n)]


def _bit(mechanism, truth, place):
    """Whether the bit at `place` is what it was for this truth."""
    return lambda n: (mechanism.release(np.full(n, truth)).value[:, place] == (place == truth)).astype(int)


def _flips(p):
    return lambda n: bernoulli(p, size=n).astype(int)


# At σ = ½ a discrete Gaussian is at 0 or below with .893, moved by one with .107: beyond δ(½) = .599.
BELOW = Audit(x=0, y=1, event=lambda y: y <= 0, n=20_000, weak=(0.893, 0.107))


def attack_A22(target):
    return BELOW.finds(target)


HALF_SIGMA = Gaussian(Fraction(1, 2), Sensitivity(1))
CLAIMED = HALF_SIGMA.loss().delta(0.5)


def _fitted(name, attack, fit, ours, mutant):
    return Row(name, partial(attack, fit), ours, mutant, fit.hardly_misses)


def _paths(sampler, scale):
    return {
        "one by one": _one_by_one(sampler, scale),
        "few at a time": _few_at_a_time(sampler, scale),
        "as a list": _listed(sampler, scale),
        "vectors": _at_once(sampler, scale),
    }


ROWS = [
    _fitted(
        "A17",
        attack_A17,
        ZERO,
        {
            **_paths(discrete_laplace, Fraction(1)),
            "laplace": _draw_shown(Laplace.of(sensitivity=1, epsilon=1)),
        },
        mutants.negative_zero(1),
    ),
    _fitted(
        "A17-large",
        attack_A17,
        ZERO_OF_LARGE,
        _paths(discrete_laplace, Fraction(80)),
        mutants.negative_zero(80),
    ),
    _fitted(
        "A19-laplace",
        attack_A19,
        LAPLACE,
        {
            "one by one": _one_by_one(discrete_laplace, TEN),
            "vectors": _at_once(discrete_laplace, TEN),
            "laplace": _draw_shown(Laplace.of(sensitivity=1, epsilon=0.1)),
        },
        mutants.laplace_5_percent_short(TEN),
    ),
    _fitted(
        "A19-large-laplace",
        attack_A19,
        LARGE_LAPLACE,
        {
            "vectors": _at_once(discrete_laplace, THOUSAND),
            "laplace on a grid": _steps(
                Laplace.of(sensitivity=1, epsilon=1, real=True, coordinates=200_000), 1000
            ),
        },
        mutants.laplace_5_percent_short(THOUSAND),
    ),
    _fitted(
        "A19-gaussian",
        attack_A19,
        GAUSSIAN,
        {
            "one by one": _one_by_one(rounded_gaussian, TEN),
            "vectors": _at_once(rounded_gaussian, TEN),
            "gaussian": _draw_shown(Gaussian(TEN, Sensitivity(1))),
        },
        mutants.gaussian_5_percent_short(TEN),
    ),
    _fitted(
        "A19-large-gaussian",
        attack_A19,
        LARGE_GAUSSIAN,
        {
            "vectors": _at_once(rounded_gaussian, THOUSAND),
            "gaussian on a grid": _steps(
                Gaussian.of(sensitivity=1, epsilon=1, delta=1e-6, real=True, coordinates=200_000), 1000
            ),
        },
        mutants.gaussian_5_percent_short(THOUSAND),
    ),
    _fitted(
        "A19-discrete-gaussian",
        attack_A19,
        DISCRETE_GAUSSIAN,
        {
            "one by one": _one_by_one(discrete_gaussian, TEN**2),
            "vectors": _at_once(discrete_gaussian, TEN**2),
        },
        mutants.discrete_gaussian_5_percent_short(TEN),
    ),
    _fitted(
        "A19-large-discrete-gaussian",
        attack_A19,
        LARGE_DISCRETE_GAUSSIAN,
        {
            "one by one": _one_by_one(discrete_gaussian, THOUSAND**2),
            "vectors": _at_once(discrete_gaussian, THOUSAND**2),
        },
        mutants.discrete_gaussian_5_percent_short(THOUSAND),
    ),
    _fitted(
        "A19-geometric",
        attack_A19,
        GEOMETRIC,
        {"one by one": _one_by_one(geometric, TEN), "vectors": _at_once(geometric, TEN)},
        mutants.geometric_5_percent_short(TEN),
    ),
    _fitted(
        "A19-large-geometric",
        attack_A19,
        LARGE_GEOMETRIC,
        {"vectors": _at_once(geometric, THOUSAND)},
        mutants.geometric_5_percent_short(THOUSAND),
    ),
    _fitted(
        "A20",
        attack_A20,
        THREE_QUARTERS,
        {
            "coin": lambda n: [int(bernoulli(Fraction(3, 4))) for _ in range(n)],
            "coins": _flips(Fraction(3, 4)),
            "response of one": _is_told_singly(RandomizedResponse.coin(), 1),
            "response, no": _is_told(RandomizedResponse.coin(), 0),
            "response, yes": _is_told(RandomizedResponse.coin(), 1),
            "response, one of four": _is_told(RandomizedResponse(Fraction(3, 4), 4), 2),
            "a bit kept": _bit(UnaryEncoding(Fraction(1, 4), 3, Fraction(3, 4)), 1, 1),
            "another bit kept": _bit(UnaryEncoding(Fraction(1, 4), 3, Fraction(3, 4)), 1, 2),
        },
        mutants.bit_off_by_one,
    ),
    _fitted(
        "A20-loud",
        attack_A20,
        KEPT,
        {
            "response, no": _is_told(RandomizedResponse.of(epsilon=LOUD), 0),
            "response, yes": _is_told(RandomizedResponse.of(epsilon=LOUD), 1),
            "a bit kept": _bit(UnaryEncoding.of(epsilon=LOUD, categories=2), 0, 1),
        },
        mutants.response_5_percent_loud(LOUD),
    ),
    Row(
        "A22",
        attack_A22,
        {
            "gaussian": Releases(
                lambda x, n: HALF_SIGMA.release(np.full(n, x)).value, 0.5, HALF_SIGMA.loss().delta(0.5)
            ),
        },
        Releases(mutants.discrete_gaussian_with_the_continuous_claim(Fraction(1, 2)), 0.5, CLAIMED),
        BELOW.hardly_misses,
    ),
]

test_ours_resists, test_mutant_falls = both_tests(ROWS)
