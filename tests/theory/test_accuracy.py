"""How far noisy answers stray: Theorem 3.8 for the law that is sampled, and the tighter exact form."""

from fractions import Fraction
from itertools import product
from math import ceil, inf

import pytest

from hubbub import Laplace, Sensitivity
from hubbub.mechanisms.noise_tails import discrete_laplace_tail, half_width
from theory.exact_laws import CLOSE, HALF, TWO_THIRDS, epsilon_of, laplace

RATES = pytest.mark.parametrize("q", [HALF, TWO_THIRDS, Fraction(9, 10)], ids=str)
BETAS = [Fraction(3, 10), Fraction(1, 10), Fraction(1, 20), Fraction(1, 1000)]
COORDINATES = [1, 2, 10, 10_000]


def shipped(q):
    """The mechanism with a law that has e^−1/b = q, to 200 bits."""
    return Laplace.of(sensitivity=1, epsilon=epsilon_of(1 / q))


def beyond(q, m):
    """Pr[|X| > m], exactly."""
    return 2 * q ** (m + 1) / (1 + q)


def least_width(q, beta, coordinates):
    """The least m with Pr[all of `coordinates` draws lie within ±m] ≥ 1 − β, in rationals."""
    m = 0
    while (1 - beyond(q, m)) ** coordinates < 1 - beta:
        m += 1
    return m


@RATES
def test_the_tail_in_closed_form_is_the_sum_of_the_law(q):
    for m in range(6):
        law = laplace(q, 0, -m - 1, m + 1)
        assert law[-m - 1] + law[m + 1] == beyond(q, m)


@RATES
def test_the_tail_that_is_shipped_encloses_the_exact_one(q):
    scale = shipped(q).scale
    for m in (0, 1, 5, 40):
        low, high = discrete_laplace_tail(scale, m, 160)
        assert Fraction(low, 1 << 160) - CLOSE <= beyond(q, m) <= Fraction(high, 1 << 160) + CLOSE
        assert high - low <= 8


@RATES
def test_the_error_that_is_shipped_is_the_least_whole_number_of_the_exact_law(q):
    """(1 − 2q^(m+1)/(1+q))^k ≥ 1 − β, and for no smaller m."""
    for beta, coordinates in product(BETAS, COORDINATES[:3]):
        assert shipped(q).error(1 - beta, coordinates=coordinates) == least_width(q, beta, coordinates)
    # With e^−1/b rational the shipped search gives the same, no logarithm of q involved.
    for beta, coordinates in product(BETAS, COORDINATES[:3]):
        exact = half_width(lambda m, bits: (0, ceil(beyond(q, m) * 2**bits)), 1 - beta, coordinates)
        assert exact == least_width(q, beta, coordinates)


@RATES
def test_theorem_3_8_holds_on_integers_once_it_is_rounded_up_to_one(q):
    """Pr[some of k answers is off by more than ⌈b·ln(k/β)⌉] ≤ β; and the exact error is never above it."""
    mechanism = shipped(q)
    for beta, coordinates in product(BETAS, COORDINATES):
        bound = ceil(mechanism.union_bound(1 - beta, coordinates=coordinates))
        assert coordinates * beyond(q, bound) <= beta
        if coordinates <= 10:  # Bernoulli's inequality, for all coordinates
            assert 1 - (1 - beyond(q, bound)) ** coordinates <= coordinates * beyond(q, bound)
        assert mechanism.error(1 - beta, coordinates=coordinates) <= bound


def test_the_exact_form_is_tighter_than_the_theorem():
    """(1 − β)^(1/k) instead of β/k, and the integer law instead of the continuous one."""
    gains = []
    for q, beta, coordinates in product([HALF, TWO_THIRDS], BETAS, COORDINATES):
        bound = shipped(q).union_bound(1 - beta, coordinates=coordinates)
        gains.append(ceil(bound) - shipped(q).error(1 - beta, coordinates=coordinates))
    assert min(gains) == 0
    assert sum(gain > 0 for gain in gains) > len(gains) / 2


def test_unrounded_theorem_holds_for_the_continuous_law_only():
    """Between two integers b·ln(k/β) promises what no integer law can: off by 2/(1+q) in β at most."""
    missed = []
    for q, beta in product([HALF, TWO_THIRDS, Fraction(9, 10)], BETAS):
        bound = Fraction(shipped(q).union_bound(1 - beta))
        chance = beyond(q, bound.numerator // bound.denominator)  # |X| > bound, X an integer
        missed.append(chance / beta)
        assert chance <= beta * 2 / (1 + q) * (1 + Fraction(1, 10**9))
    assert max(missed) > 1
    assert max(missed) < inf


@pytest.mark.parametrize("t", [1, 2, 3, 5])
def test_on_a_fine_grid_the_tail_is_that_of_the_continuous_law(t):
    """Fact 3.7, Pr[|Y| ≥ t·b] = e^−t, of which discrete laws of large scale fall short or over by 1/b."""
    ratios = []
    for scale in (10, 1000, 10**6):
        tail = Laplace.of(sensitivity=1, epsilon=Fraction(1, scale)).tail(t)
        ratios.append(abs(tail / 2.718281828459045**-t - 1))
    assert ratios[0] > ratios[1] > ratios[2]
    assert ratios[2] < 1e-6


@RATES
def test_the_variance_and_the_expected_error_that_are_shipped_are_those_of_the_exact_law(q):
    """E|X| = 2q/(1−q²) and E[X²] = 2q/(1−q)²: a finite sum over the law plus the whole rest, in rationals."""
    size, square = 2 * q / (1 - q * q), 2 * q / (1 - q) ** 2
    for last in (1, 2, 7):
        law = laplace(q, 0, -last, last)
        inner = [(k, chance) for k, chance in law.items() if abs(k) < last]
        tail = law[last]
        # Beyond `last` the law starts anew: |X| = last + G with E[G] = q/(1−q), E[G²] = q(1+q)/(1−q)².
        mean, second = q / (1 - q), q * (1 + q) / (1 - q) ** 2
        assert sum(abs(k) * chance for k, chance in inner) + 2 * tail * (last + mean) == size
        rest = 2 * tail * (last * last + 2 * last * mean + second)
        assert sum(k * k * chance for k, chance in inner) + rest == square
    mechanism = shipped(q)
    for stated, exact in ((mechanism.expected_error_bounds, size), (mechanism.variance_bounds, square)):
        assert Fraction(stated[0]) - CLOSE <= exact <= Fraction(stated[1]) + 1000 * CLOSE
        assert stated[1] - stated[0] <= 1e-14 * stated[1]


def test_on_a_fine_grid_the_variance_is_2b_squared_and_the_expected_error_b():
    """The textbook's figures of the Laplace law; of a count, b = 1/ε. A grid of b/n falls short by 1/12n²."""
    for b in (Fraction(1), Fraction(64), Fraction(1, 4)):
        gaps = []
        for steps in (4, 64, 1024):
            mechanism = Laplace(b, Sensitivity(1), b / steps)
            gaps.append(1 - mechanism.variance / float(2 * b * b))
            # The rounding to the grid is half a step at most.
            assert abs(mechanism.expected_error / float(b) - 1 - 1 / (2 * steps)) < 1 / (5 * steps**2)
        assert gaps == pytest.approx([1 / (12 * steps**2) for steps in (4, 64, 1024)], rel=0.01)
    assert round(Laplace.of(sensitivity=1, epsilon=Fraction(1, 1000)).expected_error, 3) == 1000
