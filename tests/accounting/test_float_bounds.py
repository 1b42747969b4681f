"""Exact numbers made doubles on the safe side, against mpmath."""

import math
from fractions import Fraction

import mpmath
import pytest

from hubbub.accounting.float_bounds import (
    Uncertified,
    amplified_epsilon,
    float_above,
    float_below,
    group_delta,
    inverse_sqrt,
    log_upper,
    require_normal_float,
)

mp = mpmath.mp.clone()
mp.dps = 120
HAIR = mp.mpf(2) ** -120


def real(x):
    return mp.mpf(Fraction(x).numerator) / Fraction(x).denominator


@pytest.mark.parametrize(
    "exact", ["1/3", "2/3", "1/2", "1e400", "0", "1e-400", "1e-310", "123456789123456789123"]
)
def test_neighbouring_doubles_enclose_a_number(exact):
    exact = Fraction(exact)
    low, high = float_below(exact), float_above(exact)
    assert Fraction(low) <= exact
    assert high == math.inf or exact <= Fraction(high)
    assert high in (low, math.nextafter(low, math.inf))


@pytest.mark.parametrize("mu_squared", ["1", "2", "1/3", "1e-20", "1e40"])
def test_inverse_roots_are_enclosed(mu_squared):
    low, high = (inverse_sqrt(Fraction(mu_squared), upper=up) for up in (True, False))
    truth = 1 / mp.sqrt(real(mu_squared))
    assert low <= truth <= high
    assert high - low <= mp.mpf(2) ** -51 * truth


@pytest.mark.parametrize("epsilon", ["1e-30", "1/10", "1", "20", "64"])
@pytest.mark.parametrize("rate", ["1e-9", "1/2", "1"])
def test_amplified_epsilon_is_rounded_up(epsilon, rate):
    truth = mp.log1p(real(rate) * mp.expm1(real(epsilon)))
    result = real(amplified_epsilon(Fraction(epsilon), Fraction(rate)))
    assert truth <= result <= truth + 2 * HAIR
    assert result <= real(epsilon)


def test_large_epsilon_is_not_amplified():
    assert amplified_epsilon(Fraction(65), Fraction(1, 10**9)) == 65


@pytest.mark.parametrize("x", ["1", "1.0000001", "2", "1e50", "1/7"])
def test_logarithms_are_rounded_up(x):
    truth = mp.log(real(x))
    assert truth <= real(log_upper(Fraction(x))) <= truth + HAIR


@pytest.mark.parametrize("epsilon", ["1e-40", "1/1000", "1", "30"])
@pytest.mark.parametrize("k", [2, 3, 40])
def test_group_delta_is_rounded_up(epsilon, k):
    delta, e = Fraction(1, 10**9), real(epsilon)
    truth = real(delta) * mp.expm1(k * e) / mp.expm1(e)
    assert truth <= real(group_delta(Fraction(epsilon), delta, k)) <= truth * (1 + mp.mpf("1e-30"))


def test_group_delta_without_epsilon_or_delta_is_exact():
    assert group_delta(Fraction(0), Fraction(1, 10), 7) == Fraction(7, 10)
    assert group_delta(Fraction(1), Fraction(0), 7) == 0
    assert group_delta(Fraction(10**9), Fraction(1, 10), 1) == Fraction(1, 10)
    assert group_delta(Fraction(1, 3), Fraction(1, 10), 1) == Fraction(1, 10)
    assert group_delta(Fraction(2501), Fraction(1, 10**9), 2) == 1
    assert group_delta(Fraction(2000), Fraction(1, 10**9), 2) > 1


def test_subnormal_and_huge_floats_are_uncertified():
    assert require_normal_float(1e-289) == 1e-289
    assert require_normal_float(1e289) == 1e289
    for number in (0.0, 1e-291, 1e291, math.inf):
        with pytest.raises(Uncertified):
            require_normal_float(number)
