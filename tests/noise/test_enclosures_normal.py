"""The normal tail by enclosures, against mpmath."""

from fractions import Fraction

import mpmath
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hubbub.noise import enclosures
from hubbub.noise.enclosures import MAX_DELTA_BITS, gaussian_delta, mills_ratio, normal_tail

mp = mpmath.mp.clone()
mp.dps = 150


def real(x):
    return mp.mpf(x.numerator) / x.denominator if isinstance(x, Fraction) else mp.mpf(x)


def above(x):
    return mp.erfc(real(x) / mp.sqrt(2)) / 2


def true_delta(epsilon, mu):
    epsilon, mu = real(epsilon), real(mu)
    return above(epsilon / mu - mu / 2) - mp.exp(epsilon) * above(epsilon / mu + mu / 2)


def excess(bound, truth):
    """How far the bound lies above the truth, as a share of it."""
    return (real(bound) - truth) / truth


def test_the_density_constant_encloses_one_over_root_two_pi():
    truth = 1 / mp.sqrt(2 * mp.pi)

    assert real(enclosures._DENSITY) < truth < real(enclosures._DENSITY_ABOVE)
    assert Fraction(1, 10**40) == enclosures._DENSITY_ABOVE - enclosures._DENSITY


@pytest.mark.parametrize("bits", [8, 64, 128, 300])
@pytest.mark.parametrize(
    "x",
    [Fraction(1), Fraction(3, 2), Fraction(4), Fraction(17, 3), Fraction(37), Fraction(112), Fraction(10**4)],
)
def test_mills_ratio_is_enclosed_by_a_few_units(x, bits):
    low, high = mills_ratio(x, bits)
    truth = above(x) / mp.npdf(real(x)) if x < 40 else asymptotic_mills(x)

    assert low <= mp.ldexp(truth, bits) <= high
    assert high - low <= 2


def asymptotic_mills(x):
    """Σ (−1)ⁿ (2n−1)!!/x^(2n+1): for large x good to hundreds of digits before it turns."""
    term = total = 1 / real(x)
    for n in range(1, 120):
        term *= -(2 * n - 1) / real(x) ** 2
        total += term
    return total


def test_mills_ratio_holds_however_few_bits_and_however_small_x():
    for x in (Fraction(1, 100), Fraction(1, 3)):
        low, high = mills_ratio(x, 4)
        assert low <= mp.ldexp(above(x) / mp.npdf(real(x)), 4) <= high


@pytest.mark.parametrize("bits", [16, 64, 128])
@pytest.mark.parametrize(
    "x",
    [
        Fraction(0),
        Fraction(1),
        Fraction(399, 100),
        Fraction(4),
        Fraction(401, 100),
        Fraction(9),
        Fraction(50),
    ],
)
def test_both_tails_are_enclosed_by_a_few_units(x, bits):
    low, high = normal_tail(x, bits)

    assert low <= mp.ldexp(2 * above(x), bits) <= high
    assert high - low <= 4
    assert low >= 0


def test_both_tails_are_enclosed_beyond_the_digits_of_the_density():
    low, high = normal_tail(Fraction(5), 400)

    assert low <= mp.ldexp(2 * above(5), 400) <= high
    assert Fraction(high - low, high) < Fraction(1, 10**38)


CURVE = [
    ("0", "1"),
    ("0", "1e-30"),
    ("0", "9"),
    ("1", "1"),
    ("1", "0.2367"),
    ("0.5", "0.125"),
    ("1e-9", "1e-9"),
    ("5e-40", "1e-40"),
    ("9e-40", "1e-40"),
    ("3", "6"),
    ("1", "100"),
    ("5000", "100"),
    ("30", "8"),
    ("27.9", "8"),
    ("32.1", "8"),
    ("4", "7.9"),
    ("4.5", "1"),
    ("4.4999", "1"),
    ("5", "1"),
    ("0.4", "0.01"),
    ("40", "1"),
    ("100", "1"),
    ("110", "1"),
    ("9000", "90"),
    ("500003000000", "1e6"),
]


@pytest.mark.parametrize(("epsilon", "mu"), CURVE)
def test_the_gaussian_curve_is_never_below_the_truth_and_close_to_it(epsilon, mu):
    epsilon, mu = Fraction(epsilon), Fraction(mu)

    off = excess(gaussian_delta(epsilon, mu**2), true_delta(epsilon, mu))

    assert 0 < off <= mp.ldexp(1, -59)


@given(st.fractions(0, 60, max_denominator=10**6), st.fractions(Fraction(1, 1000), 12, max_denominator=10**6))
def test_the_gaussian_curve_anywhere_is_never_below_the_truth(epsilon, mu):
    truth = true_delta(epsilon, mu)
    bound = gaussian_delta(epsilon, mu**2)

    if truth > mp.ldexp(1, 1 - MAX_DELTA_BITS):
        assert 0 < excess(bound, truth) <= mp.ldexp(1, -59)
    else:
        assert real(bound) > truth


@pytest.mark.parametrize(
    ("epsilon", "mu", "share"),
    [("1", "1", 1), ("3", "10", 1), ("0", "1", 1), ("5", "1", mp.npdf(4.5)), ("40", "1", mp.npdf(39.5))],
)
def test_the_gaussian_curve_is_one_unit_and_a_few_above_the_truth(epsilon, mu, share):
    """More than rounding needs, for what vectors cannot hold; of φ(a) where that is the unit."""
    bound = gaussian_delta(Fraction(epsilon), Fraction(mu) ** 2)
    units = mp.ldexp(real(bound) - true_delta(Fraction(epsilon), Fraction(mu)), 128) / share

    assert 1 <= units <= 5


@pytest.mark.parametrize(
    "x", [Fraction(-30), Fraction(-4), Fraction(-1, 3), Fraction(0), Fraction(1, 3), Fraction(3)]
)
def test_one_tail_is_enclosed_by_a_few_units(x):
    for bits in (8, 64):
        low, high = enclosures._above(x, bits)
        assert low <= mp.ldexp(above(x), bits) <= high
        assert high - low <= 3


@pytest.mark.parametrize("x", [Fraction(-3), Fraction(0), Fraction(1, 2), Fraction(4)])
def test_the_density_times_a_factor_is_enclosed_by_a_few_units(x):
    low, high = enclosures._density_times(x, (3 << 62, 3 << 62), 64)

    assert low <= mp.ldexp(mp.npdf(real(x)) * 3 / 4, 64) <= high
    assert high - low <= 2
    assert Fraction(1, 10**40) == enclosures._DENSITY_ABOVE - enclosures._DENSITY


def test_the_density_times_a_factor_is_rounded_down_and_up_however_few_the_bits():
    for bits in (1, 2, 5):
        for factor in range(1, 40):
            low, high = enclosures._density_times(Fraction(0), (factor, factor), bits)
            assert low <= factor * mp.npdf(0) <= high


def test_continued_fraction_begins_where_the_series_ends(monkeypatch):
    series, fractions = [], []
    central, ratio = enclosures.normal_central, enclosures.mills_ratio
    monkeypatch.setattr(enclosures, "normal_central", lambda x, bits: series.append(x) or central(x, bits))
    monkeypatch.setattr(enclosures, "mills_ratio", lambda x, bits: fractions.append(x) or ratio(x, bits))

    normal_tail(Fraction(399, 100), 64)
    gaussian_delta(Fraction(1), Fraction(1))
    gaussian_delta(Fraction(449, 100), Fraction(1))
    assert fractions == []
    assert max(series) == Fraction(499, 100)
    series.clear()
    normal_tail(Fraction(4), 64)
    gaussian_delta(Fraction(9, 2), Fraction(1))
    assert series == []
    assert fractions == [4, 4, 5]
    gaussian_delta(Fraction(30), Fraction(64))  # from −1/4 to 7 3/4
    gaussian_delta(Fraction(32), Fraction(64))  # from 0 to 8
    assert series == [Fraction(1, 4), Fraction(31, 4), 0]
    assert fractions[3:] == [8]


@pytest.mark.parametrize("name", ["normal_central", "exp", "exp_neg", "mills_ratio"])
def test_safe_end_of_every_enclosure_is_used(name, monkeypatch):
    """Each made wider by a part in 2^70: what is said must stay above the truth, by about as much."""
    exact = getattr(enclosures, name)

    def vague(x, bits):
        low, high = exact(x, bits)
        return low - (low >> 70), high + (high >> 70)

    monkeypatch.setattr(enclosures, name, vague)

    for pair in [("0", "1"), ("1", "1"), ("3", "10"), ("32.1", "8"), ("5", "1"), ("40", "1")]:
        epsilon, mu = map(Fraction, pair)
        assert 0 < excess(gaussian_delta(epsilon, mu**2), true_delta(epsilon, mu)) <= mp.ldexp(1, -50)
    for x in (Fraction(1), Fraction(5)):
        low, high = normal_tail(x, 128)
        assert low <= mp.ldexp(2 * above(x), 128) <= high


def test_an_irrational_mu_is_rounded_up():
    assert real(gaussian_delta(Fraction(1), Fraction(2))) > true_delta(1, mp.sqrt(2))
    assert excess(gaussian_delta(Fraction(1), Fraction(2)), true_delta(1, mp.sqrt(2))) < mp.mpf("1e-20")


def test_delta_below_doubles_is_the_smallest_double():
    assert (
        gaussian_delta(Fraction(10**6), Fraction(1)) == Fraction(1, 2**MAX_DELTA_BITS) == Fraction(1, 2**9000)
    )
    # From a²/2 = 0.7·9000 on, where a = ε − 1/2.
    assert gaussian_delta(Fraction(11270, 100), Fraction(1)) < Fraction(1, 2**MAX_DELTA_BITS)
    assert gaussian_delta(Fraction(11275, 100), Fraction(1)) == Fraction(1, 2**MAX_DELTA_BITS)
    assert true_delta(Fraction(11275, 100), 1) < mp.ldexp(1, -MAX_DELTA_BITS - 1)


def test_a_huge_mu_with_a_far_lower_tail_is_not_taken_for_a_far_upper_one():
    assert Fraction(1) < gaussian_delta(Fraction(0), Fraction(400**2)) < 1 + Fraction(1, 2**100)


def test_insufficient_precision_gives_the_upper_bound(monkeypatch):
    monkeypatch.setattr(enclosures, "_MAX_BITS", 128)
    monkeypatch.setattr(enclosures, "normal_central", lambda x, bits: (0, 1 << bits))

    assert gaussian_delta(Fraction(1), Fraction(1)) >= Fraction(1, 2)


def test_precision_is_doubled_up_to_2_to_the_14th_and_no_further(monkeypatch):
    calls = []
    monkeypatch.setattr(enclosures, "normal_central", lambda x, bits: calls.append(bits) or (0, 1 << bits))

    assert gaussian_delta(Fraction(0), Fraction(1)) >= Fraction(1, 2)
    assert sorted(set(calls)) == [1 << power for power in range(7, 15)]


@pytest.mark.parametrize("vague", ["near", "far", "exp"])
def test_precision_is_raised_for_either_uncertain_term(vague, monkeypatch):
    """At ε = 1 and μ = 1, from 1/2 to 3/2; one of the three is vague below 300 bits."""
    central, exp = enclosures.normal_central, enclosures.exp

    def loose(enclosure, bits):
        low, high = enclosure
        return (low, high) if bits > 300 else (low - (1 << bits - 40), high + (1 << bits - 40))

    def tail(x, bits):
        is_vague = x == (Fraction(1, 2) if vague == "near" else Fraction(3, 2)) and vague != "exp"
        return loose(central(x, bits), bits) if is_vague else central(x, bits)

    monkeypatch.setattr(enclosures, "normal_central", tail)
    if vague == "exp":
        monkeypatch.setattr(enclosures, "exp", lambda x, bits: loose(exp(x, bits), bits))

    assert excess(gaussian_delta(Fraction(1), Fraction(1)), true_delta(1, 1)) < mp.ldexp(1, -59)


@pytest.mark.parametrize(("share", "query"), [("0.7", [128]), ("1.4", [128, 256])])
def test_the_curve_is_known_to_two_to_the_minus_60_of_itself(share, query, monkeypatch):
    """Both tails at ε = 0 and μ = 1 are off by as much, together by this share of 2^-60 of δ."""
    central, seen = enclosures.normal_central, set()
    slack = int(mp.ldexp(mp.mpf(share) / 2 * true_delta(0, 1), 128 - 60))

    def vague(x, bits):
        seen.add(bits)
        low, high = central(x, bits)
        return (low - slack, high + slack) if bits == 128 else (low, high)

    monkeypatch.setattr(enclosures, "normal_central", vague)

    gaussian_delta(Fraction(0), Fraction(1))
    assert sorted(seen) == query


def test_precision_is_raised_if_insufficient(monkeypatch):
    calls = []
    enclose = enclosures.normal_central

    def vague(x, bits):
        calls.append(bits)
        low, high = enclose(x, bits)
        return (low, high) if bits > 300 else (low - (1 << bits - 40), high + (1 << bits - 40))

    monkeypatch.setattr(enclosures, "normal_central", vague)

    assert excess(gaussian_delta(Fraction(1), Fraction(1)), true_delta(1, 1)) < mp.ldexp(1, -59)
    assert sorted(set(calls)) == [128, 256, 512]
