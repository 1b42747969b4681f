"""Laplace and Gaussian: exact privacy by their laws, calibration, error, and everything that is refused."""

import math
import random
import sys
from decimal import Decimal
from fractions import Fraction
from functools import partial
from itertools import product

import mpmath
import numpy as np
import pytest

import hubbub
from hubbub.accounting import PrivacyLoss, largest_mu
from hubbub.errors import HubbubError, InvalidInput, Refused, Unsupported
from hubbub.mechanisms import Gaussian, Laplace, choose_additive_noise, from_json
from hubbub.mechanisms.additive_mechanism import AdditiveMechanism
from hubbub.noise import MAX_SCALE, discrete_laplace, rounded_gaussian
from hubbub.noise.enclosures import exp
from hubbub.noise.inversion import MAX_DRAW
from hubbub.numbers import parse_rational
from hubbub.sensitivity import MAX_MAGNITUDE, Bounded, Sensitivity
from hubbub.unit import Unit
from internals import inject_bits
from refusing import refused

mp = mpmath.mp.clone()
mp.dps = 60

MILLIONTH = Fraction(1, 10**6)


def real(x):
    return mp.mpf(x.numerator) / x.denominator if isinstance(x, Fraction) else mp.mpf(x)


def same_bits(seed=7):
    return inject_bits(random.Random(seed).randbytes)


# Privacy, by the law itself


def pmf(mechanism, m, bits=256):
    """Pr[noise = m] of the law on steps, enclosed, from its two-sided tail."""
    m = abs(m)
    low, high = mechanism._tail(m, bits)
    if m == 0:
        return (1 << bits) - high, (1 << bits) - low
    least, most = mechanism._tail(m - 1, bits)
    return (least - high) // 2, -(-(most - low) // 2)


@pytest.mark.parametrize("epsilon", [Fraction(1, 10), Fraction(1, 2), 1, 2, Fraction(22, 7)])
@pytest.mark.parametrize("sensitivity", [1, 2, 5])
def test_integer_laplace_is_exactly_epsilon_private(epsilon, sensitivity):
    """Over all outputs in reach and all moves allowed, no ratio is above e^ε; the largest is e^ε."""
    mechanism = Laplace.of(sensitivity=sensitivity, epsilon=epsilon)
    law = {m: pmf(mechanism, m) for m in range(-60, 61)}
    most = exp(Fraction(epsilon), 256)
    attained = False
    for m, moved in product(range(-50, 51), range(-sensitivity, sensitivity + 1)):
        here, there = law[m], law[m - moved]
        assert here[0] << 256 <= there[1] * most[1]
        attained |= abs(moved) == sensitivity and here[1] << 256 >= there[0] * most[0]
    assert attained
    assert mechanism.loss().cost().epsilon == parse_rational(epsilon, "epsilon")


def test_release_is_the_value_plus_noise_of_the_exact_law():
    for mechanism, law in [
        (Laplace.of(sensitivity=3, epsilon=Fraction(1, 7)), partial(discrete_laplace, Fraction(21))),
        (Gaussian(Fraction(9, 2), Sensitivity(3)), partial(rounded_gaussian, Fraction(9, 2))),
    ]:
        for seed, value in product(range(5), [0, 1, -(2**40), MAX_MAGNITUDE]):
            with same_bits(seed):
                noise = law()
            with same_bits(seed):
                assert mechanism.release(value).value == min(MAX_MAGNITUDE, value + noise)
        for size in (1, 5, 1000):
            with same_bits():
                draws = law(size=size)
            with same_bits():
                answers = mechanism.release(np.full(size, -7)).value
            assert answers.tolist() == (draws - 7).tolist()
            assert answers.dtype == np.int64


def test_reals_get_integer_noise_on_their_grid():
    for mechanism, law in [
        (Laplace.of(sensitivity=3, epsilon=Fraction(1, 7), real=True, coordinates=1000), discrete_laplace),
        (Gaussian.of(sensitivity=3, epsilon=1, delta=1e-6, real=True, coordinates=1000), rounded_gaussian),
    ]:
        steps, grid = mechanism.scale / mechanism.grid, mechanism.grid
        for seed, value in product(range(4), [0.1, -5.25, 1e9]):
            with same_bits(seed):
                noise = law(steps)
            with same_bits(seed):
                assert mechanism.release(value).value == float((round(Fraction(value) / grid) + noise) * grid)
        for size in (1, 5, 1000):
            with same_bits():
                draws = law(steps, size)
            with same_bits():
                answers = mechanism.release(np.full(size, 0.1)).value
            snapped = round(Fraction(0.1) / grid)
            assert answers.tolist() == [float((snapped + int(noise)) * grid) for noise in draws]
            assert answers.dtype == np.float64


@pytest.mark.parametrize("coordinates", [1, 4, 1000])
def test_grid_noise_is_epsilon_private(coordinates):
    """d coordinates that one unit moves by Δ in all are rounded to steps no more than (Δ + d·g)/g apart."""
    mechanism = Laplace.of(
        sensitivity=Fraction(1, 3), epsilon=Fraction(1, 2), real=True, coordinates=coordinates
    )
    generator = random.Random(3)
    grid = mechanism.grid
    farthest = 0
    for _ in range(300):
        here = [Fraction(generator.uniform(-2, 2)) for _ in range(min(coordinates, 4))]
        moves = [Fraction(generator.randint(-100, 100)) for _ in here]
        size = sum(map(abs, moves)) or 1
        there = [cell + move / size / 3 for cell, move in zip(here, moves, strict=True)]
        steps = sum(abs(round(a / grid) - round(b / grid)) for a, b in zip(here, there, strict=True))
        farthest = max(farthest, steps)
    assert farthest <= (Fraction(1, 3) + coordinates * grid) / grid
    # and the law on steps falls by e^(−1/b) each:
    assert farthest <= mechanism.loss().cost().epsilon * mechanism.scale / grid
    assert 0.5 * (1 - 2 * float(grid)) <= mechanism.loss().epsilon() <= 0.5
    assert (Fraction(1, 3) + coordinates * grid) / mechanism.scale == Fraction(1, 2)


def test_rounding_can_need_the_whole_step_that_is_charged():
    mechanism = Laplace(Fraction(2), Sensitivity(1), Fraction(1), 1)
    with same_bits():
        low = mechanism.release(0.5).value
    with same_bits():
        high = mechanism.release(1.5).value

    assert high - low == 2.0
    assert mechanism.loss().epsilon() == 1  # (1 + 1)/2


def test_release_saturates_at_the_largest_value():
    """A6: at the largest value noise saturates, and integers never wrap."""
    mechanism = Laplace(Fraction(MAX_SCALE), Sensitivity(1))
    for value in (MAX_MAGNITUDE, -MAX_MAGNITUDE):
        answers = mechanism.release(np.full(200, value)).value
        assert np.abs(answers).max() == MAX_MAGNITUDE
        assert (np.sign(answers) == np.sign(value)).all()


def test_laplace_tail_beyond_64_bits_is_memoryless():
    mechanism = Laplace(Fraction(1), Sensitivity(1), Fraction(1, 1024), 10)
    for draws in (MAX_DRAW, -MAX_DRAW):
        with same_bits(1):
            fresh = abs(mechanism._extend(draws)) - MAX_DRAW
        with same_bits(1):
            again = mechanism._extend(-draws)
        assert abs(again) - MAX_DRAW == fresh >= 0
        assert (mechanism._extend(draws) > 0) == (draws > 0)
    sizes = [mechanism._extend(MAX_DRAW) - MAX_DRAW for _ in range(200)]
    assert 500 < sum(sizes) / 200 < 2000  # the mean is 1023.5, its error 72
    assert Gaussian(Fraction(1), Sensitivity(1), Fraction(1, 1024), 10)._extend(-MAX_DRAW) == -MAX_DRAW


@pytest.mark.parametrize("kind", ["f", "i"])
def test_noise_beyond_64_bits_is_extended(kind, monkeypatch):
    mechanism = Laplace(Fraction(1), Sensitivity(1), Fraction(1), 3)
    monkeypatch.setattr(
        "hubbub.mechanisms.laplace_gaussian.discrete_laplace", lambda *_: np.array([5, MAX_DRAW, -MAX_DRAW])
    )
    monkeypatch.setattr("hubbub.mechanisms.laplace_gaussian.geometric", lambda _: 2**70)

    answers = mechanism.release(np.array([0, 0, 0], dtype=kind + "8")).value

    assert answers.tolist() == [5.0, float(MAX_DRAW + 2**70), -float(MAX_DRAW + 2**70)]


# Gaussian privacy


@pytest.mark.parametrize(("sigma", "l2_squared"), [(2, 1), (3, 2), (Fraction(5, 2), 13)])
@pytest.mark.parametrize("epsilon", [Fraction(1, 2), 1, 2])
def test_rounded_gaussian_is_within_its_privacy_curve(sigma, l2_squared, epsilon):
    """By its law on integers: one coordinate moves by 3 within √13, two by (3, 2)."""
    mechanism = Gaussian(Fraction(sigma), Sensitivity(9, l2_squared=l2_squared))
    factor = mp.exp(real(Fraction(epsilon)))
    law = {m: mp.mpf(pmf(mechanism, m)[1]) / 2**256 for m in range(-80, 81)}
    first = math.isqrt(l2_squared)
    second = math.isqrt(l2_squared - first**2)
    one = sum(max(0, law[m] - factor * law[m - first]) for m in range(-70, 71))
    two = sum(
        max(0, law[m] * law[n] - factor * law[m - first] * law[n - second])
        for m, n in product(range(-30, 31), repeat=2)
    )

    claimed = mp.mpf(mechanism.loss().delta(epsilon))
    assert one <= claimed
    assert two <= claimed
    assert max(one, two) > claimed * 0.5


def test_gaussian_cost_follows_from_mu():
    assert Gaussian(Fraction(4), Sensitivity(2)).loss() == PrivacyLoss.gaussian(0.5)
    # A norm that is no rational stays exact:
    assert Gaussian(Fraction(4), Sensitivity(2, linf=1)).loss() == PrivacyLoss.gaussian_from_mu_squared(
        Fraction(2, 16)
    )
    rounded = Gaussian(Fraction(4), Sensitivity(2), Fraction(1, 2), 9)
    assert rounded.loss() == PrivacyLoss.gaussian((2 + Fraction(3, 2)) / 4)
    assert Laplace(Fraction(4), Sensitivity(2), Fraction(1, 2), 9).loss() == PrivacyLoss.discrete_laplace(
        8, 13
    )
    assert Laplace(Fraction(4), Sensitivity(2), None, 9).loss() == PrivacyLoss.discrete_laplace(4, 2)
    assert Gaussian(Fraction(4), Sensitivity(2), None, 9).loss() == PrivacyLoss.gaussian(0.5)
    assert rounded.sigma == 4


@pytest.mark.parametrize("real_valued", [False, True])
@pytest.mark.parametrize(("epsilon", "delta"), [(1, 1e-6), (0.1, 1e-6), (0.01, 1e-9), (8, 1e-5), (1, 1e-100)])
@pytest.mark.parametrize("sensitivity", [1, Sensitivity(30, linf=1), 7])
def test_calibration_meets_the_target_tightly(epsilon, delta, sensitivity, real_valued):
    mechanism = Gaussian.of(
        sensitivity=sensitivity, epsilon=epsilon, delta=delta, real=real_valued, coordinates=3
    )

    spent = mechanism.loss().epsilon(delta)
    assert spent <= epsilon
    assert spent == pytest.approx(epsilon, rel=1e-8)
    assert Fraction(float(mechanism.scale)) == mechanism.scale
    laplace = Laplace.of(sensitivity=sensitivity, epsilon=epsilon, real=real_valued, coordinates=3)
    assert epsilon * (1 - 1e-3) <= laplace.loss().epsilon() <= epsilon


def test_sigma_is_rounded_up():
    """σ·μ = Δ₂ would do; a σ that is no double is rounded up, also as the decimal it prints as."""
    for l2_squared in (2, 3, 5, 7):
        mechanism = Gaussian.of(sensitivity=Sensitivity(9, l2_squared=l2_squared), epsilon=1, delta=1e-6)
        mu = largest_mu(Fraction(1), MILLIONTH)
        assert (mechanism.scale * mu) ** 2 >= l2_squared
        below = math.nextafter(float(mechanism.scale), 0)
        assert (min(Fraction(below), Fraction(repr(below))) * mu) ** 2 < l2_squared


def test_the_analytic_gaussian_needs_less_noise_than_the_classic_formula():
    for epsilon, less in [(1, 1.25), (0.1, 1.46)]:
        classic = math.sqrt(2 * math.log(1.25 / 1e-6)) / epsilon
        ours = float(Gaussian.of(sensitivity=1, epsilon=epsilon, delta=1e-6).scale)
        assert classic / ours == pytest.approx(less, abs=0.005)


def test_gaussian_needs_less_noise_from_nine_coordinates_on():
    """By standard deviation from nine on; over all coordinates at once, where its tail helps, from six on."""
    wins, less = [], []
    for k in range(1, 13):
        moved = {"sensitivity": Sensitivity(k, linf=1), "epsilon": 1}
        laplace, gaussian = Laplace.of(**moved), Gaussian.of(**moved, delta=1e-6)
        wins.append(gaussian.scale**2 < 2 * laplace.scale**2)
        less.append(isinstance(choose_additive_noise(**moved, delta=1e-6, coordinates=k), Gaussian))
    assert wins == [False] * 8 + [True] * 4
    assert less == [False] * 5 + [True] * 7


def test_least_noise_chooses_the_smaller_error_and_laplace_without_delta():
    many = Sensitivity(30, linf=1)
    assert isinstance(choose_additive_noise(sensitivity=many, epsilon=1), Laplace)
    assert choose_additive_noise(sensitivity=1, epsilon=1, real=True) == Laplace.of(
        sensitivity=1, epsilon=1, real=True
    )
    assert isinstance(choose_additive_noise(sensitivity=many, epsilon=1, delta=0), Laplace)
    assert isinstance(
        choose_additive_noise(sensitivity=many, epsilon=1, delta=1e-6, coordinates=30, real=True), Gaussian
    )
    laplace = choose_additive_noise(
        sensitivity=3, epsilon=2, delta=1e-6, coordinates=4, real=True, confidence=0.9
    )
    assert laplace == Laplace.of(sensitivity=3, epsilon=2, real=True, coordinates=4)
    gaussian = choose_additive_noise(sensitivity=many, epsilon=2, delta=1e-6, coordinates=4)
    assert gaussian == Gaussian.of(sensitivity=many, epsilon=2, delta=1e-6, coordinates=4)
    # Far out in the tail the Gaussian is the narrower: which is less depends on the confidence.
    close = {
        "sensitivity": Sensitivity(6, linf=1),
        "epsilon": 1,
        "delta": 1e-6,
        "coordinates": 6,
        "real": True,
    }
    assert isinstance(choose_additive_noise(**close, confidence=0.5), Laplace)
    assert isinstance(choose_additive_noise(**close, confidence=1 - 1e-9), Gaussian)
    # Where both are off by the same, the promise without δ is the better one.
    both = {"sensitivity": 1, "epsilon": 50, "delta": 1e-6, "allow_large_epsilon": True}
    assert isinstance(choose_additive_noise(**both), Laplace)


# Error


@pytest.mark.parametrize(("epsilon", "wide"), [(0.1, 30), (0.5, 6), (1, 3), (2, 1), (5, 0)])
def test_error_of_counts_matches_the_table(epsilon, wide):
    mechanism = Laplace.of(sensitivity=1, epsilon=epsilon)

    assert mechanism.error() == mechanism.error(0.95) == wide
    assert type(mechanism.error()) is int
    assert mechanism.release(5).error() == wide


def test_error_of_many_coordinates_is_simultaneous():
    mechanism = Laplace.of(sensitivity=1, epsilon=1)

    assert mechanism.error(0.95, coordinates=10_000) == 12
    assert mechanism.union_bound(0.95, coordinates=10_000) == pytest.approx(12.2061, abs=1e-4)
    release = mechanism.release(np.zeros(10_000, dtype=np.int64))
    assert (release.error(), release.error(simultaneous=True)) == (3, 12)


def test_error_of_reals_includes_rounding():
    mechanism = Laplace(Fraction(1), Sensitivity(1), Fraction(1, 4), 1)

    steps = Laplace(Fraction(4), Sensitivity(1)).error()
    assert mechanism.error() == (steps + 0.5) / 4
    assert type(mechanism.error()) is float
    fine = Laplace.of(sensitivity=1, epsilon=1, real=True)
    assert fine.error() == pytest.approx(-math.log(0.05), rel=1e-8)
    assert Gaussian.of(sensitivity=1, epsilon=1, delta=1e-6, real=True).error() == pytest.approx(
        4.22468 * 1.959964, rel=1e-5
    )


def test_error_tail_is_that_of_the_sampled_law():
    fine = Laplace.of(sensitivity=1, epsilon=1, real=True)
    for t in (0.5, 1, 3, 10):
        assert fine.tail(t) == pytest.approx(math.exp(-t), rel=1e-8)
    counts = Laplace.of(sensitivity=1, epsilon=1)
    q = math.exp(-1)
    assert counts.tail(0) == 1.0
    for t in (0.1, 1):
        assert counts.tail(t) == pytest.approx(2 * q / (1 + q), rel=1e-12)
    assert counts.tail(1.001) == counts.tail(2) == pytest.approx(2 * q**2 / (1 + q), rel=1e-12)
    assert mp.mpf(counts.tail(2)) >= 2 * mp.exp(-2) / (1 + mp.exp(-1))
    sigma = Gaussian.of(sensitivity=1, epsilon=1, delta=1e-6, real=True)
    assert sigma.tail(2) == pytest.approx(math.erfc(math.sqrt(2)), rel=1e-8)
    assert 0 < counts.tail(10**9) <= 2.0**-120
    for bad in (-1, float("nan"), "1", True):
        with refused(InvalidInput, match="t is"):
            counts.tail(bad)


def test_textbook_bound_is_exceeded_by_less_than_one():
    """Pr[|X| > 2.9957] is 0.073, not 0.05; but |X| < 2.9957 + 1 holds with more than 95 %."""
    mechanism = Laplace.of(sensitivity=1, epsilon=1)
    bound = mechanism.union_bound()

    assert bound == mechanism.union_bound(0.95, coordinates=1) == pytest.approx(-math.log(0.05), rel=1e-15)
    assert mp.mpf(bound) >= -mp.log(mp.mpf("0.05"))
    assert mechanism.tail(3) > 0.07
    assert bound < mechanism.error() == 3 < bound + 1
    for epsilon, coordinates in product((0.1, 1, 3), (1, 7, 1000)):
        law = Laplace.of(sensitivity=1, epsilon=epsilon)
        beyond = math.ceil(Fraction(law.union_bound(0.95, coordinates=coordinates)) + 1)
        assert law.tail(Fraction(beyond) / law.scale) <= 0.05 / coordinates
    scaled = Laplace.of(sensitivity=3, epsilon=Fraction(1, 2), real=True)
    assert scaled.union_bound(0.9, coordinates=4) == pytest.approx(6 * math.log(40), rel=1e-8)


# for_error


@pytest.mark.parametrize("error", [Fraction(1, 2), 1, 6, 50, 10**6, 10**30])
@pytest.mark.parametrize("coordinates", [1, 100])
def test_an_error_is_met_with_the_least_epsilon(error, coordinates):
    for mechanism in (
        Laplace.for_error(error, coordinates=coordinates),
        Gaussian.for_error(error, delta=1e-6, coordinates=coordinates),
    ):
        assert mechanism.error(0.95, coordinates=coordinates) <= error
        assert (mechanism.grid, mechanism.coordinates, mechanism.sensitivity) == (
            None,
            coordinates,
            Sensitivity(1),
        )
        wider = type(mechanism)
        if mechanism.scale * (1 + Fraction(1, 2**18)) <= MAX_SCALE:
            assert (
                wider(mechanism.scale * (1 + Fraction(1, 2**18)), Sensitivity(1)).error(
                    0.95, coordinates=coordinates
                )
                > error
            )


@pytest.mark.parametrize("error", [1e-20, 0.001, 6, 1e20])
def test_an_error_of_reals_is_met_with_the_least_epsilon(error):
    for mechanism in (
        Laplace.for_error(error, sensitivity=error, real=True, coordinates=5, confidence=0.9),
        Gaussian.for_error(error, delta=1e-6, sensitivity=error, real=True, coordinates=5, confidence=0.9),
    ):
        assert mechanism.grid is not None
        assert mechanism.coordinates == 5
        assert mechanism.sensitivity == Sensitivity(error)
        assert error * (1 - 1e-5) <= mechanism.error(0.9, coordinates=5) <= error
    rarely = Laplace.for_error(error, sensitivity=error, real=True, confidence=0.01)
    assert error * (1 - 1e-5) <= rarely.error(0.01) <= error
    assert rarely.scale > 50 * Fraction(error)


def test_for_error_and_error_have_the_same_defaults():
    assert Laplace.for_error(6).loss().epsilon() == pytest.approx(0.457, abs=0.001)
    assert Laplace.for_error(6) == Laplace.for_error(
        6, confidence=0.95, sensitivity=1, real=False, coordinates=1
    )
    assert Gaussian.for_error(6, delta=0.1, population=8) == Gaussian.for_error(
        6, delta=0.1, confidence=0.95, sensitivity=1, real=False, coordinates=1, population=8
    )


def test_laplace_defaults_to_one_integer_coordinate():
    plain = Laplace.of(sensitivity=1, epsilon=1)

    assert plain == Laplace(Fraction(1), Sensitivity(1)) == Laplace(Fraction(1), Sensitivity(1), None, 1)
    assert choose_additive_noise(sensitivity=1, epsilon=1) == plain


def test_laplace_for_error_defaults_to_one_coordinate():
    assert Laplace.for_error(6).coordinates == 1


def test_gaussian_defaults_to_one_coordinate():
    assert (
        Gaussian.of(sensitivity=1, epsilon=9, delta=0.1, population=8).coordinates,
        Gaussian(1, 1).coordinates,
    ) == (
        1,
        1,
    )


def test_gaussian_for_error_defaults_to_one_coordinate():
    assert Gaussian.for_error(6, delta=0.1, population=8).coordinates == 1


def test_least_noise_defaults_to_95_percent_confidence():
    assert choose_additive_noise(sensitivity=1, epsilon=9, delta=0.1, population=8) == choose_additive_noise(
        sensitivity=1, epsilon=9, delta=0.1, confidence=0.95, population=8
    )


@pytest.mark.parametrize("error", [1, 6, 50, 1000])
def test_an_error_is_met_to_one_part_in_two_to_the_twentieth(error):
    scale = Laplace.for_error(error).scale
    part = Fraction(2) ** (math.floor(math.log2(scale)) - 20)

    assert (scale / part).denominator == 1
    assert Laplace(scale, Sensitivity(1)).error(0.95) <= error
    assert Laplace(scale + part, Sensitivity(1)).error(0.95) > error


def test_for_error_stops_at_an_epsilon_of_a_million():
    # An error of 0 takes a scale of 1/4 and some: of 2^18 over that, 2^20 is just not exceeded.
    assert 9 * 10**5 < Laplace.for_error(0.5, sensitivity=2**18).loss().epsilon() < 2**20
    with refused(Refused, match="protects nobody"):
        Laplace.for_error(0.5, sensitivity=2**18 + 1)


def test_a_scale_of_2_to_the_48th_is_the_widest():
    assert Laplace(MAX_SCALE, Sensitivity(1)).scale == 2**48
    with refused(Unsupported, match="2\\^48"):
        Laplace(MAX_SCALE + Fraction(1, 3), Sensitivity(1))


def test_sensitivity_below_a_step_is_charged_as_a_step():
    assert Laplace(Fraction(4), Sensitivity(0.5)).loss() == PrivacyLoss.discrete_laplace(4, 1)


def test_integer_mechanism_refuses_fractional_sensitivity():
    with refused(InvalidInput, match="not a whole number"):
        Laplace.of(sensitivity=0.5, epsilon=1)


def test_the_union_bound_is_rounded_up_however_close_the_next_double_is():
    with mpmath.workprec(400):
        scale = Fraction(int(mpmath.ceil(mpmath.ldexp(1 / mpmath.log(2), 200))), 2**200)

    assert Laplace(scale, Sensitivity(1)).union_bound(0.5) > 1  # by less than 2^-199


def test_error_names_noise_too_fine_for_doubles():
    with refused(Unsupported, match="doubles"):
        Laplace.for_error(1e-280, sensitivity=1e-280, real=True)


def test_a_sensitivity_of_zero_in_any_norm_is_refused():
    nothing = Sensitivity(1, l2=0)
    for make in (
        lambda: Gaussian.of(sensitivity=nothing, epsilon=1, delta=1e-6, real=True),
        lambda: Gaussian.for_error(5, delta=1e-6, sensitivity=nothing),
        lambda: Laplace.of(sensitivity=nothing, epsilon=1),
    ):
        with refused(InvalidInput, match="sensitivity is 0"):
            make()


def test_every_constructor_checks_the_population():
    for make in (
        lambda: Gaussian.of(sensitivity=1, epsilon=1, delta=0.01, population=100),
        lambda: Gaussian.for_error(5, delta=0.01, population=100),
        lambda: choose_additive_noise(sensitivity=1, epsilon=1, delta=0.01, population=100),
    ):
        with refused(Refused, match="population"):
            make()


@pytest.mark.slow
def test_unreachable_error_is_refused():
    for ask in (
        lambda: Laplace.for_error(1e-9, sensitivity=1, real=True),
        lambda: Gaussian.for_error(1e-9, delta=1e-6, sensitivity=1, real=True),
        lambda: Gaussian.for_error(1e-4, delta=1e-6, sensitivity=1, real=True),
        lambda: Laplace.for_error(1e-280, sensitivity=1e-270, real=True),
    ):
        with refused(Refused, match="protects nobody"):
            ask()
    # Just within a million:
    assert 2**19 < Laplace.for_error(1e-5, sensitivity=2, real=True).loss().epsilon() < 2**20
    assert 2**19 < Gaussian.for_error(0.01, delta=1e-6, sensitivity=7, real=True).loss().epsilon(1e-6) < 2**20


def test_fractional_sensitivity_needs_a_real_mechanism():
    for ask in (
        lambda: Laplace.of(sensitivity=0.5, epsilon=1),
        lambda: Laplace.for_error(6, sensitivity=0.5),
        lambda: choose_additive_noise(sensitivity=0.5, epsilon=1),
    ):
        with refused(InvalidInput, match="not a whole number"):
            ask()
    assert Laplace.of(sensitivity=0.5, epsilon=1, real=True).grid is not None
    assert Gaussian.of(sensitivity=0.5, epsilon=1, delta=1e-6).grid is None


# Grids


@pytest.mark.parametrize("coordinates", [1, 1000, 10**6])
@pytest.mark.parametrize("epsilon", [0.001, 1, 1000])
def test_rounding_hardly_adds_to_the_noise(coordinates, epsilon):
    large = {"allow_large_epsilon": True}
    laplace = Laplace.of(sensitivity=1, epsilon=epsilon, real=True, coordinates=coordinates, **large)
    assert laplace.scale <= Fraction(1001, 1000) / Fraction(str(epsilon)) * (
        1 if coordinates < 10**6 else Fraction(11, 10)
    )
    assert 2**32 <= laplace.scale / laplace.grid <= 2**47
    gaussian = Gaussian.of(
        sensitivity=1, epsilon=epsilon, delta=1e-6, real=True, coordinates=coordinates, **large
    )
    plain = Gaussian.of(sensitivity=1, epsilon=epsilon, delta=1e-6, **large)
    assert plain.scale < gaussian.scale <= plain.scale * Fraction(1001, 1000)


def test_grid_has_2_to_the_32_steps_per_scale_or_more():
    assert Laplace.of(sensitivity=1, epsilon=1, real=True).grid == Fraction(1, 2**32)
    assert Laplace.of(sensitivity=3, epsilon=1, real=True).grid == Fraction(2, 2**32)
    # 2^22 coordinates may add 2^22·g ≤ 1/1024, and no finer:
    assert Laplace.of(sensitivity=1, epsilon=1, real=True, coordinates=2**22).grid == Fraction(1, 2**32)
    assert Laplace.of(sensitivity=1, epsilon=1, real=True, coordinates=2**22 + 1).grid == Fraction(1, 2**33)
    # However many coordinates, 2^46 steps are the finest:
    assert Laplace.of(sensitivity=1, epsilon=1, real=True, coordinates=2**40).grid == Fraction(1, 2**46)
    assert Laplace.of(sensitivity=1, epsilon=Fraction(1, 3), real=True, coordinates=2**40).grid == Fraction(
        1, 2**45
    )


def test_huge_and_tiny_scales_of_reals_are_released_or_refused():
    for size in (1e-250, 1e-100, 1e100, 1e250):
        for mechanism in (
            Laplace.of(sensitivity=size, epsilon=1, real=True),
            Gaussian.of(sensitivity=size, epsilon=1, delta=1e-6, real=True),
        ):
            assert abs(mechanism.release(size).value) < 1000 * size
            assert mechanism.error() == pytest.approx(
                size * (2.9957 if isinstance(mechanism, Laplace) else 8.28), 1e-3
            )
    for size in (1e-300, 1e300, Fraction(1, 10**2000)):
        with refused(Unsupported, match="doubles"):
            Laplace.of(sensitivity=size, epsilon=1, real=True)


def test_million_coordinates_are_released_at_once():
    mechanism = Laplace.of(sensitivity=1, epsilon=1, real=True, coordinates=10**6)
    answers = mechanism.release(np.full(10**6, 0.5)).value

    assert answers.shape == (10**6,)
    assert abs(answers.mean() - 0.5) < 0.02  # 14 standard errors
    assert (np.abs(answers - 0.5) <= mechanism.error(1 - 1e-12, coordinates=10**6)).all()


# Values


def test_integers_stay_integers_and_reals_are_doubles():
    whole, fine = (
        Laplace.of(sensitivity=1, epsilon=1),
        Laplace.of(sensitivity=1, epsilon=1, real=True, coordinates=3),
    )

    assert type(whole.release(5).value) is int
    assert type(whole.release(np.int32(5)).value) is int
    assert whole.release([1, 2, 3]).value.dtype == np.int64
    assert whole.release(np.array([1, 2], dtype=np.uint8)).value.dtype == np.int64
    for value in (5, 5.0, Fraction(1, 3), Decimal("0.1"), -0.0):
        assert type(fine.release(value).value) is float
    for vector in ([1, 2, 3], [0.5, 1], np.array([1.5], dtype=np.float32), np.array([7])):
        assert fine.release(vector).value.dtype == np.float64
    assert whole.release(np.zeros(0, dtype=np.int64)).value.shape == (0,)
    assert whole.release(np.zeros(0, dtype=np.int64)).coordinates == 1
    assert fine.release(np.zeros(0)).value.shape == (0,)


def test_minus_zero_is_zero():
    mechanism = Laplace.of(sensitivity=1, epsilon=1, real=True, coordinates=2)
    for plus, minus in [(0.0, -0.0), (np.zeros(2), -np.zeros(2))]:
        with same_bits():
            first = mechanism.release(plus).value
        with same_bits():
            second = mechanism.release(minus).value
        assert np.asarray(first).tobytes() == np.asarray(second).tobytes()


def test_real_mechanism_does_not_distinguish_integers_beyond_doubles():
    """A5: with noise of one, 2^60 + 128 and 2^60 + 129 must not be shown 256 apart by what they are."""
    mechanism = Laplace.of(sensitivity=1, epsilon=1, real=True, coordinates=1000)
    seen = [set(mechanism.release(np.full(1000, 2**60 + 128 + move)).value) for move in (0, 1)]

    assert seen[0] == seen[1] == {2.0**60, 2.0**60 + 256}


WHOLE, FINE = (
    Laplace.of(sensitivity=1, epsilon=1),
    Laplace.of(sensitivity=1, epsilon=1, real=True, coordinates=5),
)
BELL, FINE_BELL = (
    Gaussian.of(sensitivity=1, epsilon=1, delta=1e-6),
    Gaussian.of(sensitivity=1, epsilon=1, delta=1e-6, real=True, coordinates=5),
)
SECRET = 987654321


@pytest.mark.parametrize("mechanism", [WHOLE, FINE, BELL, FINE_BELL])
@pytest.mark.parametrize(
    "value",
    [
        float("nan"),
        float("inf"),
        -float("inf"),
        Decimal("nan"),
        np.float64("nan"),
        [1.0, float("nan")],
        np.array([1.0, np.inf]),
        2**61 + 1,
        -(2**61) - 1,
        2**63,
        2**64,
        10**400,
        [2**63],
        np.array([2**63], dtype=np.uint64),
        np.array([2**62]),
        Fraction(10**400),
        str(SECRET),
        None,
        True,
        [True],
        1j,
        {},
        np.array(SECRET),
        np.array([[SECRET]]),
        [[SECRET]],
        np.array(["a"]),
        np.array([SECRET], dtype=object),
        np.ma.masked_array([SECRET], mask=[True]),
        np.array([True]),
        [Fraction(1, 3)],
        np.datetime64("2020-01-01"),
    ],
    ids=repr,
)
def test_values_without_exact_noise_are_refused(mechanism, value, monkeypatch):
    def never(*_):
        raise AssertionError("noise was drawn")

    monkeypatch.setattr("hubbub.mechanisms.laplace_gaussian.discrete_laplace", never)
    monkeypatch.setattr("hubbub.mechanisms.laplace_gaussian.rounded_gaussian", never)

    with refused(HubbubError) as caught:
        mechanism.release(value)
    assert str(SECRET) not in str(caught.value)
    assert caught.value.fix


@pytest.mark.parametrize("mechanism", [WHOLE, BELL])
@pytest.mark.parametrize("value", [0.5, 5.0, Fraction(5), Decimal(5), [5.0], np.array([5.0]), [1, 2.5]])
def test_integer_mechanism_refuses_reals(mechanism, value):
    with refused(InvalidInput, match="not made of integers"):
        mechanism.release(value)


@pytest.mark.parametrize("mechanism", [FINE, FINE_BELL])
def test_more_coordinates_than_declared_are_refused(mechanism):
    with refused(Refused, match="6 coordinates, but the mechanism has 5") as caught:
        mechanism.release(np.zeros(6))
    assert "coordinates=6" in caught.value.fix
    assert mechanism.release(np.zeros(5)).coordinates == 5
    assert WHOLE.release(np.zeros(6, dtype=np.int64)).coordinates == 6


def test_value_above_the_declared_sensitivity_is_refused():
    unit = Unit("patient")
    for mechanism, larger in [
        (Laplace.of(sensitivity=2, epsilon=1), Sensitivity(Fraction(21, 10))),
        (Gaussian.of(sensitivity=2, epsilon=1, delta=1e-6), Sensitivity(Fraction(21, 10))),
    ]:
        with refused(Refused, match="sensitivity"):
            mechanism.release(Bounded(SECRET, larger, unit, "count"))
        for smaller in (Sensitivity(2), Sensitivity(1), Sensitivity(Fraction(1, 3)), Sensitivity(0)):
            make = mechanism.release(Bounded(5, smaller, unit, "count"))
            assert (make.unit, make.user_asserted, make.loss) == (unit, False, mechanism.loss())
    # What counts is the law's own norm.
    wide = Sensitivity(30, linf=1)
    Gaussian(Fraction(1), Sensitivity(6, l2_squared=30)).release(Bounded(5, wide, unit, "counts"))
    with refused(Refused):
        Laplace(Fraction(1), Sensitivity(6, l2_squared=30)).release(Bounded(5, wide, unit, "counts"))
    Laplace(Fraction(1), Sensitivity(30, linf=Fraction(1, 2))).release(Bounded(5, wide, unit, "counts"))


def test_bare_value_has_user_asserted_sensitivity():
    make = Laplace.of(sensitivity=1, epsilon=1).release(5)

    assert make.user_asserted
    assert make.unit == Unit.row()
    assert make.model == "central"
    assert make.source == Laplace.of(sensitivity=1, epsilon=1)


# Parameters


NUMBERS = [
    *(float("nan"), float("inf"), -float("inf"), 0, -1, -0.5, "1", "", True, False, None, 1j, [1]),
    *(np.array(1.0), np.array([1.0]), np.array([[1.0]]), Decimal("nan"), np.float64("nan"), np.longdouble(1)),
    *(10**3000, Fraction(1, 10**3000)),
]


@pytest.mark.parametrize("bad", NUMBERS, ids=lambda bad: f"{type(bad).__name__}-{str(bad)[:8]}")
@pytest.mark.parametrize(
    "ask",
    [
        lambda bad: Laplace.of(sensitivity=bad, epsilon=1, real=True),
        lambda bad: Laplace.of(sensitivity=1, epsilon=bad, real=True),
        lambda bad: Laplace.of(sensitivity=1, epsilon=bad),
        lambda bad: Gaussian.of(sensitivity=bad, epsilon=1, delta=1e-6, real=True),
        lambda bad: Gaussian.of(sensitivity=1, epsilon=bad, delta=1e-6),
        lambda bad: Gaussian.of(sensitivity=1, epsilon=1, delta=bad),
        lambda bad: choose_additive_noise(sensitivity=bad, epsilon=1, real=True),
        lambda bad: choose_additive_noise(sensitivity=1, epsilon=bad),
        Laplace.for_error,
        lambda bad: Laplace.for_error(5, sensitivity=bad, real=True),
        lambda bad: Laplace.for_error(5, confidence=bad),
        lambda bad: Gaussian.for_error(5, delta=bad),
        lambda bad: Gaussian.for_error(bad, delta=1e-6, real=True),
        lambda bad: Laplace.of(sensitivity=1, epsilon=1).error(bad),
        lambda bad: Laplace.of(sensitivity=1, epsilon=1).union_bound(bad),
        lambda bad: Laplace(bad, Sensitivity(1)),
        lambda bad: Laplace(Fraction(1), bad, Fraction(1, 2)),
        lambda bad: Gaussian(bad, Sensitivity(1)),
        lambda bad: Gaussian(Fraction(1), Sensitivity(1), bad if bad is not None else -1),
    ],
)
def test_unusable_numbers_are_refused_as_parameters(ask, bad):
    with refused(HubbubError) as caught:
        ask(bad)
    assert caught.value.what
    assert caught.value.why
    assert caught.value.fix


@pytest.mark.parametrize("bad", [0, -1, 1.5, float("nan"), float("inf"), "1", True, None, [1], np.array(1)])
def test_coordinates_must_be_a_whole_number(bad):
    for ask in (
        lambda: Laplace.of(sensitivity=1, epsilon=1, coordinates=bad),
        lambda: Laplace.of(sensitivity=1, epsilon=1, real=True, coordinates=bad),
        lambda: Gaussian.of(sensitivity=1, epsilon=1, delta=1e-6, coordinates=bad),
        lambda: Laplace(Fraction(1), Sensitivity(1), None, bad),
        lambda: WHOLE.error(0.95, coordinates=bad),
        lambda: FINE.error(0.95, coordinates=bad),
        lambda: WHOLE.union_bound(0.95, coordinates=bad),
        lambda: Laplace.for_error(5, coordinates=bad),
    ):
        with refused(InvalidInput, match="coordinates"):
            ask()


@pytest.mark.parametrize("delta", [0, 1, 2, -1e-9])
def test_a_gaussian_has_a_delta_between_0_and_1(delta):
    with refused(InvalidInput, match="delta"):
        Gaussian.of(sensitivity=1, epsilon=1, delta=delta)
    with refused(InvalidInput, match="delta"):
        Gaussian.for_error(5, delta=delta)


@pytest.mark.parametrize("delta", [float("nan"), -1, 1, "0", True])
def test_least_noise_checks_delta(delta):
    with refused(InvalidInput, match="delta"):
        choose_additive_noise(sensitivity=1, epsilon=1, delta=delta)


def test_a_delta_of_one_over_the_population_is_refused():
    with refused(Refused, match="population"):
        Gaussian.of(sensitivity=1, epsilon=1, delta=1e-3, population=1000)
    assert Gaussian.of(sensitivity=1, epsilon=1, delta=1e-6, population=1000) == Gaussian.of(
        sensitivity=1, epsilon=1, delta=1e-6
    )


def test_sensitivity_zero_is_refused():
    for ask in (
        lambda: Laplace.of(sensitivity=0, epsilon=1),
        lambda: Gaussian.of(sensitivity=0, epsilon=1, delta=1e-6),
        lambda: Laplace(Fraction(1), Sensitivity(0)),
        lambda: Laplace.for_error(5, sensitivity=0),
        lambda: Gaussian.for_error(5, delta=1e-6, sensitivity=0),
    ):
        with refused(InvalidInput, match="sensitivity is 0"):
            ask()


def test_noise_too_wide_to_sample_is_refused():
    assert Laplace(Fraction(MAX_SCALE), Sensitivity(1)).scale == 2**48
    for ask in (
        lambda: Laplace(Fraction(MAX_SCALE) + 1, Sensitivity(1)),
        lambda: Laplace.of(sensitivity=1, epsilon=1e-15),
        lambda: Laplace.of(sensitivity=2**50, epsilon=1),
        lambda: Gaussian.of(sensitivity=1, epsilon=1e-300, delta=1e-15),
        lambda: Laplace(Fraction(1), Sensitivity(1), Fraction(1, 2**49), 1),
        lambda: Gaussian.of(sensitivity=1, epsilon=Fraction(1, 10**2000), delta=Fraction(1, 10**2000)),
    ):
        with refused(Unsupported):
            ask()


@pytest.mark.parametrize("grid", [Fraction(1, 3), 3, 0.3, Fraction(3, 4)])
def test_a_grid_is_a_power_of_two(grid):
    with refused(InvalidInput, match="power of two"):
        Laplace(Fraction(1), Sensitivity(1), grid, 1)


def test_every_epsilon_that_can_be_sampled_is_accepted():
    for epsilon in (1e-12, 1e-3, 700, 1e6, sys.float_info.max):
        assert Laplace.of(sensitivity=1, epsilon=epsilon, allow_large_epsilon=True).loss().cost().epsilon == (
            None if epsilon > 2**64 else parse_rational(epsilon, "epsilon")
        )
    assert Laplace.of(sensitivity=1, epsilon=1e6, allow_large_epsilon=True).release(5).value == 5
    assert Gaussian.of(sensitivity=1, epsilon=1e9, delta=1e-6, allow_large_epsilon=True).release(5).value == 5


def test_fields_are_made_exact():
    rough = Laplace(0.1, 2, 0.5, np.int64(3))

    assert rough == Laplace(Fraction(1, 10), Sensitivity(2), Fraction(1, 2), 3)
    assert [type(x) for x in (rough.scale, rough.sensitivity, rough.grid, rough.coordinates)] == [
        Fraction,
        Sensitivity,
        Fraction,
        int,
    ]
    assert from_json(rough.to_json()) == rough
    assert Laplace.of(sensitivity=1, epsilon=0.1).scale == 10
    assert Laplace.of(sensitivity=1, epsilon=np.float64(0.1)) == Laplace.of(
        sensitivity=Decimal(1), epsilon=Decimal("0.1")
    )


def test_a_mechanism_is_frozen_and_the_family_is_abstract():
    with pytest.raises(AttributeError):
        WHOLE.scale = Fraction(9)
    with pytest.raises(TypeError):
        AdditiveMechanism(Fraction(1), Sensitivity(1))
    assert hash(WHOLE) == hash(Laplace.of(sensitivity=1, epsilon=1))
    assert WHOLE != FINE
    assert WHOLE.error_kind == BELL.error_kind == "additive"


def test_mechanism_describes_itself():
    assert str(WHOLE) == "Laplace noise of scale 1 on integers: ε = 1"
    assert str(Laplace(Fraction(1, 3), Sensitivity(1), Fraction(1, 4), 2)) == (
        "Laplace noise of scale 0.333334 on a grid with steps of 0.25: ε = 4.5"
    )
    assert str(BELL) == "Gaussian noise of σ = 4.22468 on integers: Gaussian μ = 0.236705"
    assert str(Gaussian(Fraction(2), Sensitivity(1), Fraction(1, 2), 4)) == (
        "Gaussian noise of σ = 2 on a grid with steps of 0.5: Gaussian μ = 1"
    )


FOR_AN_EPSILON = [
    partial(Laplace.of, sensitivity=1),
    partial(Laplace.of, sensitivity=1, real=True),
    partial(Gaussian.of, sensitivity=1, delta=1e-6),
    partial(choose_additive_noise, sensitivity=1),
    partial(choose_additive_noise, sensitivity=1, delta=1e-6),
    partial(hubbub.PermuteAndFlip.of, sensitivity=1),
    partial(hubbub.Exponential.of, sensitivity=1),
    partial(hubbub.ReportNoisyMax.of, sensitivity=1),
    partial(hubbub.ReportNoisyMaxWithGap.of, sensitivity=1),
    partial(hubbub.AboveThreshold.of, sensitivity=1, threshold=0),
    hubbub.RandomizedResponse.of,
    partial(hubbub.UnaryEncoding.of, categories=3),
]


@pytest.mark.parametrize("make", FOR_AN_EPSILON)
def test_large_epsilon_must_be_confirmed(make):
    """As the shell, budgets, plans and fits say: one policy."""
    make(epsilon=20)
    with pytest.raises(Refused, match="epsilon is above 20"):
        make(epsilon=20.001)
    make(epsilon=20.001, allow_large_epsilon=True)
    with pytest.raises(InvalidInput, match="allow_large_epsilon"):
        make(epsilon=1, allow_large_epsilon=1)
