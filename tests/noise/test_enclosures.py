import math
import random
from fractions import Fraction

import mpmath
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hubbub.noise import enclosures
from hubbub.noise.enclosures import (
    _atan_inverse,
    _twice_atanh,
    divide,
    enclose_fraction,
    exp,
    exp_neg,
    log,
    normal_central,
    root_two_over_pi,
)
from noise.bits import mp, real

PRECISIONS = st.one_of(st.sampled_from([0, 1, 8, 32, 64, 96, 128]), st.integers(0, 400))
POSITIVE = st.builds(Fraction, st.integers(1, 2**70), st.integers(1, 2**70))
MODERATE = st.one_of(
    st.fractions(0, 60, max_denominator=2**40),
    st.builds(lambda n, k: Fraction(n, 2**k), st.integers(1, 1000), st.integers(0, 300)),
    st.sampled_from([Fraction(n, 64) for n in range(130)]),
)


def encloses(pair, bits, x, *, width):
    low, high = pair
    assert isinstance(low, int)
    assert isinstance(high, int)
    assert low <= mp.ldexp(x, bits) <= high
    assert high - low <= width


@given(POSITIVE, PRECISIONS)
@example(Fraction(3), 5)
@example(Fraction(1, 3), 4)
def test_ratio_is_enclosed(x, bits):
    low, high = enclose_fraction(x, bits)
    assert low <= x * 2**bits <= high
    assert high - low == (0 if (x * 2**bits).denominator == 1 else 1)
    assert enclose_fraction(-x, bits) == (-high, -low)


@given(
    st.integers(0, 2**80), st.integers(0, 3), st.integers(1, 2**80), st.integers(0, 3), st.integers(0, 100)
)
def test_quotient_is_enclosed(top, top_width, bottom, bottom_width, bits):
    low, high = divide((top, top + top_width), (bottom, bottom + bottom_width), bits)
    least = Fraction(top, bottom + bottom_width) * 2**bits
    most = Fraction(top + top_width, bottom) * 2**bits
    assert least - 1 < low <= least
    assert most <= high < most + 1


@given(MODERATE, PRECISIONS)
@example(Fraction(0), 64)
@example(Fraction(1, 10**30), 64)
@example(Fraction(7, 10) * 66, 64)
@example(Fraction(7, 10) * 66 - Fraction(1, 10**9), 64)
def test_exp_neg_is_enclosed(x, bits):
    pair = exp_neg(x, bits)
    encloses(pair, bits, mp.exp(-real(x)), width=2)
    assert pair[0] >= 0
    assert 1 <= pair[1] <= 1 << bits  # a chance is never above 1


def test_exp_neg_of_zero_is_one():
    assert exp_neg(Fraction(0), 64) == (1 << 64, 1 << 64)
    assert exp_neg(Fraction(0), 0) == (1, 1)


@pytest.mark.parametrize("x", [Fraction(10**6), Fraction(2**8000), Fraction(10**40, 7)])
def test_exp_neg_far_out_costs_nothing(x):
    assert exp_neg(x, 64) == (0, 1)
    assert exp_neg(x, 0) == (0, 1)


def test_exp_neg_is_coarse_below_a_quarter_unit():
    # ln 2 < 0.7: at x = 0.7·(bits+2) the value is below 2^-(bits+2), and not much before.
    bits = 100
    edge = Fraction(7, 10) * (bits + 2)
    assert exp_neg(edge, bits) == (0, 1)
    assert mp.exp(-real(edge)) < mp.ldexp(1, -bits - 2)
    low, high = exp_neg(edge / 2, bits)
    assert low > 0
    assert high - low <= 2


@given(MODERATE, PRECISIONS)
@example(Fraction(0), 0)
@example(Fraction(1), 0)
@example(Fraction(1), 64)
@example(Fraction(2), 64)
def test_exp_is_enclosed(x, bits):
    value = mp.exp(real(x))
    encloses(exp(x, bits), bits, value, width=2 + mp.ldexp(value, 0))
    encloses(exp(-x, bits), bits, mp.exp(-real(x)), width=2)


@pytest.mark.parametrize("x", [Fraction(1000), Fraction(12345, 7)])
def test_exp_is_relatively_accurate(x):
    low, high = exp(x, 200)
    assert low <= mp.ldexp(mp.exp(real(x)), 200) <= high
    assert (high - low) * 2**190 < low


@given(POSITIVE, PRECISIONS)
@example(Fraction(1), 64)
@example(Fraction(4, 3), 64)
@example(Fraction(1, 2), 64)
@example(Fraction(3, 2), 64)
@example(Fraction(2**500 + 1), 64)
@example(Fraction(1, 2**500), 64)
@example(Fraction(2**200 + 1, 2**200), 300)
def test_log_is_enclosed(x, bits):
    encloses(log(x, bits), bits, mp.log(real(x)), width=2)


@given(st.fractions(Fraction(-1, 3), Fraction(1, 3), max_denominator=2**30), PRECISIONS)
def test_twice_atanh_is_enclosed(z, bits):
    encloses(_twice_atanh(z, bits), bits, 2 * mp.atanh(real(z)), width=2)


@given(PRECISIONS)
def test_constants_are_enclosed(bits):
    encloses(root_two_over_pi(bits), bits, mp.sqrt(2 / mp.pi), width=2)
    for m in (2, 5, 239):
        encloses(_atan_inverse(m, bits), bits, mp.atan(mp.one / m), width=2)


@given(MODERATE, PRECISIONS)
@example(Fraction(1), 64)
@example(Fraction(19, 2), 64)
@example(Fraction(1, 2**80), 64)
@example(Fraction(961, 100), 64)
@example(Fraction(962, 100), 64)
def test_central_probability_is_enclosed(x, bits):
    pair = normal_central(x, bits)
    encloses(pair, bits, mp.erf(real(x) / mp.sqrt(2)), width=2)
    assert 0 <= pair[0] < 1 << bits or bits == 0


def test_central_probability_at_its_ends():
    assert normal_central(Fraction(0), 64) == (0, 0)
    assert normal_central(Fraction(100), 64) == (2**64 - 1, 2**64)
    assert normal_central(Fraction(2**4000), 64) == (2**64 - 1, 2**64)


def test_central_probability_is_coarse_below_a_quarter_unit():
    bits = 100
    edge = Fraction(math.isqrt(10**12 * 7 * (bits + 2) // 5) + 1, 10**6)
    assert normal_central(edge, bits) == (2**bits - 1, 2**bits)
    assert mp.erfc(real(edge) / mp.sqrt(2)) < mp.ldexp(1, -bits - 2)
    for closer in (edge - Fraction(1, 100), edge * 2 / 3):
        encloses(normal_central(closer, bits), bits, mp.erf(real(closer) / mp.sqrt(2)), width=2)


def test_exp_of_a_negative_number_is_exp_neg():
    for x in (Fraction(1, 10**9), Fraction(1, 7), Fraction(1, 2), Fraction(1), Fraction(13, 3), Fraction(99)):
        for bits in (0, 1, 64, 200):
            assert exp(-x, bits) == exp_neg(x, bits)


# --- where one is just off: beside an integer, many bits, few bits, and just before giving up ------


def _beside(inverse, whole, bits, side):
    """An x with 2^bits·f(x) off `whole` to that side by less than 2^-90, for a rising f."""
    digits = bits + 100
    x = mp.ldexp(inverse(mp.ldexp(whole, -bits)), digits)
    return Fraction(int(mp.ceil(x) if side > 0 else mp.floor(x)), 1 << digits)


@pytest.mark.parametrize("side", [-1, 1])
@pytest.mark.parametrize("bits", [1, 2, 7, 64, 250])
@pytest.mark.parametrize("name", ["exp", "exp_neg", "log", "normal_central"])
def test_beside_an_integer_each_end_is_on_its_side(name, bits, side):
    """There the least bit too much or too little is an integer that is wrong."""
    generator = random.Random(f"{name}{bits}")
    for _ in range(12):
        match name:
            case "exp":
                whole = generator.randrange(1 << bits, 3 << bits) + 1
                x = _beside(mp.log, whole, bits, side)
                encloses(exp(x, bits), bits, mp.exp(real(x)), width=5)
            case "exp_neg":
                whole = generator.randrange(1, 1 << bits)
                x = -_beside(mp.log, whole, bits, side)
                encloses(exp_neg(x, bits), bits, mp.exp(-real(x)), width=2)
            case "log":
                whole = generator.randrange(-3 << bits, 3 << bits)
                x = _beside(mp.exp, whole, bits, side)
                encloses(log(x, bits), bits, mp.log(real(x)), width=2)
            case "normal_central":
                whole = generator.randrange(1, 1 << bits)
                x = _beside(lambda y: mp.sqrt(2) * mp.erfinv(y), whole, bits, side)
                encloses(normal_central(x, bits), bits, mp.erf(real(x) / mp.sqrt(2)), width=2)


@pytest.mark.slow
def test_enclosures_stay_narrow_with_many_bits():
    for bits in (1000, 5000):
        for x in (Fraction(1, 7), Fraction(5, 4), Fraction(13, 3)):
            for pair in (exp_neg(x, bits), log(x, bits), normal_central(x, bits), root_two_over_pi(bits)):
                assert 0 < pair[1] - pair[0] <= 2
            low, high = exp(x, bits)
            assert 0 < high - low <= 2 + mp.exp(real(x))


@pytest.mark.parametrize("m", [5, 239])
def test_atan_is_enclosed_at_every_precision(m):
    """Among these precisions are some where the next integer is as near as the slack."""
    fine = mpmath.mp.clone()
    fine.prec = 1800
    arc = int(fine.floor(fine.ldexp(fine.atan(fine.one / m), 1700)))
    for bits in range(1500):
        low, high = _atan_inverse(m, bits)
        assert low <= arc >> 1700 - bits < high <= low + 2


@pytest.mark.sweep(5)
@pytest.mark.slow
@pytest.mark.parametrize("bits", [0, 1, 2, 3, 5, 64, 100, 300])
def test_enclosures_are_narrow_above_a_quarter_unit(bits):
    for k in range(40, 80):
        x = Fraction(k, 100) * (bits + 2)
        encloses(exp_neg(x, bits), bits, mp.exp(-real(x)), width=2)
    for k in [*range(40, 150, 2), 1, 5, 10]:
        x = Fraction(math.isqrt(k * (bits + 2) * 10**10), 10**6)  # x² = k/100·(bits + 2)
        encloses(normal_central(x, bits), bits, mp.erf(real(x) / mp.sqrt(2)), width=2)


# --- wide enclosures: each end goes to its own side -----------------------------------------------
#
# The enclosures are so narrow that one end taken for the other would hardly show. So what they are made
# of is made far too wide here, and must come out as wide on both sides.


def _is(pair, bits, least, most):
    """The enclosure reaches from `least` to `most`, but for two units."""
    low, high = pair
    assert mp.ldexp(least, bits) - 2 <= low <= mp.ldexp(least, bits)
    assert mp.ldexp(most, bits) <= high <= mp.ldexp(most, bits) + 2


def _twice_as_wide(function):
    """From half of the lower end to twice the upper."""

    def wide(*arguments):
        low, high = function(*arguments)
        return low // 2, 2 * high

    return wide


def _wider(function):
    """By a thousandth on both sides."""

    def wide(x, bits):
        low, high = function(x, bits)
        return low - (1 << bits) // 1000, high + (1 << bits) // 1000

    return wide


@pytest.mark.parametrize("x", [Fraction(1, 3), Fraction(1), Fraction(17, 2)])
def test_a_wide_exp_makes_a_wide_inverse(monkeypatch, x):
    monkeypatch.setattr(enclosures, "exp", _twice_as_wide(exp))
    value = mp.exp(-real(x))
    _is(exp_neg(x, 64), 64, value / 2, value * 2)


@pytest.mark.parametrize(
    ("x", "power"), [(Fraction(5, 4), 0), (Fraction(5), 2), (Fraction(5, 16), 2), (Fraction(80), 6)]
)
def test_wide_logarithms_of_two_and_of_the_mantissa_make_a_wide_one(monkeypatch, x, power):
    monkeypatch.setattr(enclosures, "_twice_atanh", _wider(_twice_atanh))
    value, off = mp.log(real(x)), mp.mpf(1 + power) / 1000
    low, high = log(x, 40)
    assert abs(low - mp.ldexp(value - off, 40)) <= 2
    assert abs(high - mp.ldexp(value + off, 40)) <= 2


@pytest.mark.parametrize("name", ["exp_neg", "root_two_over_pi"])
@pytest.mark.parametrize("x", [Fraction(1, 100), Fraction(1), Fraction(3)])
def test_a_wide_factor_makes_a_wide_central(monkeypatch, name, x):
    monkeypatch.setattr(enclosures, name, _twice_as_wide(getattr(enclosures, name)))
    value = mp.erf(real(x) / mp.sqrt(2))
    _is(normal_central(x, 64), 64, value / 2, value * 2)


def test_wide_arcs_make_a_wide_root(monkeypatch):
    monkeypatch.setattr(enclosures, "_atan_inverse", _wider(_atan_inverse))
    low, high = root_two_over_pi.__wrapped__(40)
    off = mp.mpf(16 + 4) / 1000
    assert abs(low - mp.ldexp(mp.sqrt(2 / (mp.pi + off)), 40)) <= 2
    assert abs(high - mp.ldexp(mp.sqrt(2 / (mp.pi - off)), 40)) <= 2
