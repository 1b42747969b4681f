"""The loss as a curve: against mpmath at 150 digits, never below the truth, close above it."""

import math
import sys
from decimal import Decimal
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hubbub.accounting import ComposableCost, PrivacyLoss, largest_mu, parallel_composition
from hubbub.accounting import closed_form as module
from hubbub.errors import InvalidInput, Unsupported
from hubbub.numbers import as_displayed
from refusing import refused

mp = mpmath.mp.clone()
mp.dps = 150

MILLIONTH = Fraction(1, 10**6)
NOT_A_NUMBER = [
    float("nan"),
    float("inf"),
    -1,
    "1",
    True,
    np.True_,
    None,
    1j,
    [1],
    np.array(1.0),
    np.array([1.0]),
]


def real(x):
    return mp.mpf(x.numerator) / x.denominator if isinstance(x, Fraction) else mp.mpf(x)


def delta_at(loss, epsilon):
    """The closed form's own δ, before it is made a double."""
    (way,) = loss.compositions
    infinity_mass = way.infinity_mass_bounds[1]
    if way.max_loss is not None and epsilon >= way.max_loss:
        return infinity_mass
    return infinity_mass + (1 - infinity_mass) * way.closed_form.delta_upper(epsilon)


def float_above(x):
    return mp.erfc(x / mp.sqrt(2)) / 2


def true_delta(epsilon, mu):
    """Of the Gaussian curve, at any ε."""
    epsilon, mu = real(epsilon), real(mu)
    return float_above(epsilon / mu - mu / 2) - mp.exp(epsilon) * float_above(epsilon / mu + mu / 2)


def true_epsilon(mu, delta, near):
    target = mp.log(real(delta))
    return mp.findroot(lambda epsilon: mp.log(true_delta(epsilon, mu)) - target, (near, near * 1.0001))


def only_just_above(double, truth):
    """Not below the truth, neither as a double nor as a decimal, and above by no more than one in 2^51."""
    return truth <= min(mp.mpf(double), mp.mpf(repr(double))) and mp.mpf(double) <= truth * (
        1 + mp.ldexp(1, -51)
    )


# Pure and (ε, δ)


def test_a_pure_loss_is_its_epsilon_and_no_delta():
    loss = PrivacyLoss.pure(0.1)

    assert loss.epsilon() == 0.1
    assert loss.epsilon(0) == 0.1
    assert loss.delta(0.1) == 0.0
    assert loss.delta(5) == 0.0
    assert loss.delta(0.09) > 0.0


def test_an_epsilon_that_is_no_double_is_rounded_up():
    third = Fraction(1, 3)

    assert Fraction(PrivacyLoss.pure(third).epsilon()) > third
    assert math.nextafter(PrivacyLoss.pure(third).epsilon(), 0) < third


@pytest.mark.parametrize("full", ["1e-50", "1e-3", "0.5", "1", "3", "40", "6000"])
@pytest.mark.parametrize("share", ["0", "0.25", "0.9", "0.999999"])
@pytest.mark.parametrize("own", ["0", "1e-9", "0.25"])
def test_below_its_epsilon_the_curve_is_that_of_randomized_response(full, share, own):
    """δ(ε) = D + (1 − D)·(e^E − e^ε)/(1 + e^E)."""
    full, own = Fraction(full), Fraction(own)
    epsilon = full * Fraction(share)
    loss = PrivacyLoss.approximate(full, own) if own else PrivacyLoss.pure(full)
    slope = -mp.expm1(real(epsilon - full)) / (1 + mp.exp(-real(full)))
    truth = real(own) + (1 - real(own)) * slope

    assert truth <= real(delta_at(loss, epsilon)) <= truth * (1 + mp.mpf("1e-15"))
    assert only_just_above(loss.delta(epsilon), truth)


def test_pure_loss_has_a_smaller_epsilon_at_positive_delta():
    for full, delta in [(1, 0.1), (1, 1e-12), (3, 0.5), (0.01, 1e-4)]:
        exact = real(Fraction(str(full)))
        truth = mp.log(mp.exp(exact) - mp.mpf(str(delta)) * (1 + mp.exp(exact)))
        assert only_just_above(PrivacyLoss.pure(full).epsilon(delta), truth)


def test_epsilon_is_zero_at_a_large_delta():
    full = Fraction(1, 2)
    truth = mp.tanh(real(full) / 2)  # (e^E − 1)/(e^E + 1)

    assert PrivacyLoss.pure(full).epsilon(float(truth) + 1e-9) == 0.0
    assert PrivacyLoss.pure(full).epsilon(float(truth) - 1e-9) > 0.0
    assert PrivacyLoss.gaussian(1).epsilon(0.383) == 0.0
    assert PrivacyLoss.gaussian(1).epsilon(0.3829) > 0.0


def test_approximate_loss_at_its_own_delta_has_its_own_epsilon():
    loss = PrivacyLoss.approximate(0.75, 1e-6)

    assert loss.epsilon(1e-6) == 0.75
    assert loss.epsilon(1e-7) == math.inf
    assert loss.epsilon() == math.inf
    assert 0 < loss.epsilon(2e-6) < 0.75
    assert loss.delta(0.75) == loss.delta(100) == math.nextafter(1e-6, 1)  # this double is below a millionth


def test_gaussian_event_needs_more_than_the_infinity_mass():
    loss = PrivacyLoss.approximate(0.7, 1e-6) + PrivacyLoss.gaussian(1)

    assert loss.epsilon(1e-6) == math.inf
    assert loss.epsilon(1.1e-6) < math.inf
    assert PrivacyLoss.gaussian(1).epsilon() == math.inf
    assert PrivacyLoss.gaussian(1).epsilon(0) == math.inf


def test_zero_loss_costs_nothing():
    for nothing in (
        PrivacyLoss.pure(0),
        PrivacyLoss.gaussian(0),
        PrivacyLoss.gaussian_from_mu_squared(0),
        PrivacyLoss.pure(3) * 0,
    ):
        assert nothing == PrivacyLoss.pure(0)
        assert nothing.epsilon() == nothing.epsilon(0.5) == nothing.delta(0) == nothing.delta(3) == 0.0
        assert str(nothing) == "ε = 0"
        assert nothing + PrivacyLoss.pure(1) == PrivacyLoss.pure(1)
    assert PrivacyLoss.approximate(0, 0.1).epsilon(0.2) == 0.0
    assert PrivacyLoss.approximate(0, 0.1).delta(0) == 0.1


def test_huge_losses_have_upper_bounds_at_once():
    assert PrivacyLoss.pure(10**9).delta(1) == 1.0
    assert PrivacyLoss.pure(10**9).delta(10**9) == 0.0
    assert PrivacyLoss.pure(10**400).epsilon() == math.inf
    assert PrivacyLoss.pure(10**400).epsilon(0.5) == math.inf
    assert only_just_above(PrivacyLoss.pure(10**9).epsilon(0.5), 10**9 - mp.log(2))
    assert PrivacyLoss.gaussian(10**200).epsilon(1e-6) == math.inf
    assert 5e199 <= PrivacyLoss.gaussian(10**100).epsilon(1e-6) <= 5.1e199
    assert PrivacyLoss.gaussian(10**6).delta(0) == 1.0
    assert PrivacyLoss.pure(sys.float_info.max).epsilon() == sys.float_info.max


# The Gaussian curve


def test_published_reference_values():
    assert (PrivacyLoss.gaussian(1) * 100).epsilon(1e-5) == pytest.approx(91.8172896246637, rel=1e-14)
    assert PrivacyLoss.gaussian(1).epsilon(1e-6) == pytest.approx(4.886554117462, rel=1e-12)
    assert PrivacyLoss.gaussian(1).delta(1) == pytest.approx(0.12693673750664, rel=1e-12)


@pytest.mark.parametrize(
    ("mu", "delta", "near"),
    [
        ("1", "1e-5", 4),
        ("1", "1e-6", 4.9),
        ("1", "0.3", 0.28),
        ("10", "1e-5", 92),
        ("10", "0.99", 25.6),
        ("0.1", "1e-9", 0.55),
        ("1e-6", "1e-12", 6e-6),
        ("0.2367", "1e-6", 1),
        ("1", "1e-300", 37),
        ("0.5", "1e-300", 18.3),
        ("100", "1e-300", 8700),
        ("1", "1e-1000", 68),
    ],
)
def test_the_gaussian_epsilon_is_the_least_double_that_is_not_below_the_truth(mu, delta, near):
    mu, delta = Fraction(mu), Fraction(delta)
    loss = PrivacyLoss.gaussian(mu)

    epsilon = loss.epsilon(delta)

    assert only_just_above(epsilon, true_epsilon(mu, delta, near))
    assert delta_at(loss, Fraction(epsilon)) <= delta
    assert delta_at(loss, Fraction(math.nextafter(epsilon, 0))) > delta


@pytest.mark.parametrize("epsilon", ["0", "0.1", "1", "10", "37.5"])
@pytest.mark.parametrize("mu", ["1e-3", "0.5", "1", "3.3"])
def test_the_gaussian_delta_is_not_below_the_truth(epsilon, mu):
    truth = true_delta(Fraction(epsilon), Fraction(mu))
    least = 5e-324

    delta_bound = PrivacyLoss.gaussian(Fraction(mu)).delta(Fraction(epsilon))

    assert only_just_above(delta_bound, truth) or (
        truth < mp.mpf(least) * 2**53 and truth <= delta_bound <= truth + 2 * least
    )


def test_a_delta_below_all_doubles_is_the_least_of_them():
    assert PrivacyLoss.gaussian(1).delta(100) == 5e-324
    assert PrivacyLoss.gaussian(1).delta(10**9) == 5e-324


def test_mu_may_be_given_squared_where_it_is_irrational():
    assert PrivacyLoss.gaussian(3) == PrivacyLoss.gaussian_from_mu_squared(9)
    truth = true_epsilon(mp.sqrt(2), Fraction(1, 10**6), 7.5)
    assert only_just_above(PrivacyLoss.gaussian_from_mu_squared(2).epsilon(1e-6), truth)


# Mixed


def hockey_stick(epsilon, full, own, mu):
    """∫ max(0, P − e^ε·Q) of the worst (E, D) mechanism beside a Gaussian one, outcome by outcome."""
    epsilon, full, own, mu = map(real, (epsilon, full, own, mu))
    likely, unlikely = 1 / (1 + mp.exp(-full)), 1 / (1 + mp.exp(full))
    total = own
    for this, other in [(likely, unlikely), (unlikely, likely)]:
        # this·φ(x − μ) > e^ε·other·φ(x) from here on:
        start = (epsilon + mp.log(other / this)) / mu + mu / 2
        total += (1 - own) * (this * float_above(start - mu) - mp.exp(epsilon) * other * float_above(start))
    return total


@pytest.mark.parametrize("own", ["0", "0.001"])
@pytest.mark.parametrize("epsilon", ["0", "0.3", "0.5", "0.9", "2.5"])
@pytest.mark.parametrize(("full", "mu"), [("0.5", "0.7"), ("0.9", "0.1"), ("2", "1.5")])
def test_mixed_loss_equals_the_composition(full, mu, epsilon, own):
    full, mu, epsilon, own = map(Fraction, (full, mu, epsilon, own))
    loss = PrivacyLoss.gaussian(mu) + (PrivacyLoss.approximate(full, own) if own else PrivacyLoss.pure(full))

    truth = hockey_stick(epsilon, full, own, mu)
    bound = real(delta_at(loss, epsilon))

    assert truth <= bound <= truth * (1 + mp.mpf("1e-15"))


@pytest.mark.parametrize("epsilon", ["0.2", "0.5", "1", "3"])
def test_mixed_loss_is_at_most_the_shifted_gaussian_curve(epsilon):
    epsilon, moved, mu = Fraction(epsilon), Fraction(1, 2), Fraction(7, 10)
    loss = PrivacyLoss.pure(moved) + PrivacyLoss.gaussian(mu)

    if epsilon >= moved:
        assert true_delta(epsilon, mu) <= real(delta_at(loss, epsilon)) <= true_delta(epsilon - moved, mu)
    else:
        assert real(delta_at(loss, epsilon)) < 1


def test_tiny_event_hardly_changes_the_loss():
    alone = PrivacyLoss.pure(1)
    beside = alone + PrivacyLoss.gaussian(Fraction(1, 10**30))
    for epsilon in (0, 0.5, 0.9):
        assert alone.delta(epsilon) <= beside.delta(epsilon) <= alone.delta(epsilon) * (1 + 1e-12)
    assert beside.epsilon(1e-300) == pytest.approx(1, abs=1e-15)
    assert beside.epsilon(0.1) == pytest.approx(alone.epsilon(0.1), rel=1e-14)

    gaussian = PrivacyLoss.gaussian(1)
    moved = gaussian + PrivacyLoss.pure(Fraction(1, 10**30))
    assert gaussian.delta(1) <= moved.delta(1) <= gaussian.delta(1) * (1 + 1e-12)
    assert moved.epsilon(1e-6) == pytest.approx(gaussian.epsilon(1e-6), rel=1e-14)


POSITIVE = st.fractions(Fraction(1, 1000), 3, max_denominator=1000)
LOSSES = st.builds(
    lambda epsilon, delta, mu: (
        PrivacyLoss.pure(epsilon)
        + PrivacyLoss.gaussian(mu)
        + (PrivacyLoss.approximate(0, delta) if delta else PrivacyLoss.pure(0))
    ),
    st.just(Fraction(0)) | POSITIVE,
    st.sampled_from([Fraction(0), Fraction(1, 10**6), Fraction(1, 10)]),
    st.just(Fraction(0)) | POSITIVE,
)


@settings(max_examples=40)
@given(LOSSES, st.sampled_from(["1e-5", "0.01", "0.2", "0.6"]))
def test_epsilon_and_delta_are_inverse(loss, delta):
    epsilon = loss.epsilon(Fraction(delta))

    if epsilon == math.inf:
        assert loss.cost().delta >= Fraction(delta)
    else:
        assert delta_at(loss, Fraction(epsilon)) <= Fraction(delta)
        if epsilon:
            assert delta_at(loss, as_displayed(math.nextafter(epsilon, 0))) > Fraction(delta)


@pytest.mark.slow
@settings(max_examples=40)
@given(LOSSES, POSITIVE, POSITIVE)
def test_the_curve_falls_in_epsilon_and_rises_in_the_loss(loss, epsilon, more):
    assert loss.delta(epsilon + more) <= loss.delta(epsilon)
    assert loss.delta(epsilon) <= (loss + PrivacyLoss.pure(more)).delta(epsilon) * (1 + 1e-15)
    assert loss.delta(epsilon) <= (loss + PrivacyLoss.gaussian(more)).delta(epsilon) * (1 + 1e-15)
    assert loss.delta(epsilon) <= (loss + PrivacyLoss.approximate(0, Fraction(1, 7))).delta(epsilon)
    assert 0 <= loss.delta(epsilon) <= 1


def test_delta_is_at_most_one():
    assert 0.99999 <= (PrivacyLoss.approximate(1, 0.9) * 5).delta(0) <= 1.0
    assert (PrivacyLoss.approximate(1, 0.9) + PrivacyLoss.approximate(1, 0.9)).cost().delta == Fraction(
        99, 100
    )
    assert PrivacyLoss.gaussian(1000).delta(0) == 1.0
    assert PrivacyLoss.approximate(1, 0.9).for_group(50).cost().delta == 1
    assert (PrivacyLoss.approximate(1, 0.9) * 5).epsilon(0.9999) == math.inf


# Composition, groups, cost


def test_epsilons_and_deltas_add_and_mus_add_in_squares():
    assert (PrivacyLoss.pure(0.1) + PrivacyLoss.pure(0.2)).cost().epsilon == Fraction(3, 10)
    assert PrivacyLoss.gaussian(3) + PrivacyLoss.gaussian(4) == PrivacyLoss.gaussian(5)
    both = (PrivacyLoss.approximate(1, 0.1) + PrivacyLoss.approximate(2, 0.2)).cost()
    assert (both.epsilon, both.delta) == (3, Fraction(28, 100))  # 1 − 0.9·0.8
    assert (PrivacyLoss.pure(0.1) * 10).epsilon() == 1
    assert PrivacyLoss.gaussian(2) * 9 == PrivacyLoss.gaussian(6)
    thrice = (PrivacyLoss.approximate(1, 0.1) * 3).cost()
    assert (thrice.epsilon, thrice.delta) == (3, 1 - Fraction(9, 10) ** 3)
    mixed = PrivacyLoss.pure(1) + PrivacyLoss.gaussian(2)
    assert mixed + mixed == mixed * 2


def test_only_losses_can_be_added():
    with pytest.raises(TypeError):
        PrivacyLoss.pure(1) + 1


@pytest.mark.parametrize("times", [-1, 0.5, float("nan"), "2", True, None])
def test_repetitions_must_be_a_whole_number(times):
    with refused(InvalidInput, match="times"):
        PrivacyLoss.pure(1) * times


def test_group_loss_covers_all_members():
    assert PrivacyLoss.pure(0.5).for_group(3) == PrivacyLoss.pure(1.5)
    assert PrivacyLoss.gaussian(0.5).for_group(3) == PrivacyLoss.gaussian(1.5)
    assert PrivacyLoss.approximate(0, 0.1).for_group(3) == PrivacyLoss.approximate(0, 0.3)
    assert (PrivacyLoss.pure(1) + PrivacyLoss.gaussian(1)).for_group(2) == PrivacyLoss.pure(
        2
    ) + PrivacyLoss.gaussian(2)


@pytest.mark.parametrize(
    "loss", [PrivacyLoss.pure(1), PrivacyLoss.gaussian(1), PrivacyLoss.approximate(1, 0.1)]
)
def test_group_of_one_costs_the_same_as_one(loss):
    assert loss.for_group(1) == loss


@pytest.mark.parametrize("size", [2, 3, 10])
@pytest.mark.parametrize("epsilon", ["1e-80", "0.001", "0.5", "2"])
def test_group_delta_exceeds_the_sum_of_its_members(epsilon, size):
    """δ·(1 + e^ε + … + e^(k−1)ε)."""
    delta = Fraction(1, 10**12)
    group = PrivacyLoss.approximate(Fraction(epsilon), delta).for_group(size)

    with mp.workdps(170):  # 1e-80 and more digits of it
        truth = sum(mp.exp(real(Fraction(epsilon)) * i) for i in range(size)) * real(delta)
        assert group.compositions[0].max_loss == size * Fraction(epsilon)
        assert truth <= real(group.compositions[0].infinity_mass_bounds[1]) <= truth * (1 + mp.mpf("1e-70"))
        assert group.cost().delta >= group.compositions[0].infinity_mass_bounds[1]  # 128 bits of it


def test_pure_loss_of_a_group_has_no_delta():
    assert PrivacyLoss.pure(1).for_group(6000) == PrivacyLoss.pure(6000)
    assert PrivacyLoss.gaussian(1).for_group(6000) == PrivacyLoss.gaussian(6000)


def test_group_too_large_to_protect_has_delta_one():
    assert PrivacyLoss.approximate(1, 1e-9).for_group(5000).cost().delta == 1
    assert PrivacyLoss.approximate(1, Fraction(1, 10**2000)).for_group(5001).cost().delta == 1
    # Just within what is written out: δ·e^4999·(1 + …) stays below 1.
    large = PrivacyLoss.approximate(1, Fraction(1, 10**2400)).for_group(5000)
    assert large.compositions[0].infinity_mass_bounds[1] < Fraction(1, 10**220)


@pytest.mark.parametrize("size", [0, -1, 1.5, float("inf"), "2", False, None])
def test_group_size_must_be_a_whole_number(size):
    with refused(InvalidInput, match="size"):
        PrivacyLoss.pure(1).for_group(size)


def test_sampling_amplifies_a_loss():
    half, one = Fraction(1, 2), PrivacyLoss.gaussian(1)
    assert one.poisson_subsampled(1) == one.subsampled_without_replacement(5, 5) == one
    assert one.poisson_subsampled(0) == one.subsampled_without_replacement(5, 0) == PrivacyLoss.pure(0)
    assert (
        one.poisson_subsampled(half).poisson_subsampled(half) == one.poisson_subsampled(Fraction(1, 4)) != one
    )
    assert str(one.poisson_subsampled(half)) == "(Gaussian μ = 1) of a Poisson sample, rate 0.5"
    assert (
        str(one.subsampled_without_replacement(4, 2)) == "(Gaussian μ = 1) of a fixed-size sample, rate 0.5"
    )
    assert (
        PrivacyLoss.pure(0).poisson_subsampled(half)
        == PrivacyLoss.pure(0).subsampled_without_replacement(4, 2)
        == PrivacyLoss.pure(0)
    )
    for several in (PrivacyLoss.pure(1) * 2, PrivacyLoss.pure(1) + one):
        with refused(Unsupported, match="several"):
            several.poisson_subsampled(half)
        with refused(Unsupported, match="several"):
            several.subsampled_without_replacement(4, 2)
    with pytest.raises(Unsupported, match="under substitution"):
        one.subsampled_without_replacement(4, 2).poisson_subsampled(half)
    for unknown in (
        PrivacyLoss.zcdp(1),
        PrivacyLoss.from_renyi({2: 1}),
        PrivacyLoss.approximate(1, half),
        PrivacyLoss.from_distributions([1, 0], [half, half]),
    ):
        with refused(Unsupported, match="without replacement"):
            unknown.subsampled_without_replacement(4, 2)
    with refused(InvalidInput, match="rate"):
        one.poisson_subsampled(2)
    with refused(InvalidInput, match="size"):
        one.subsampled_without_replacement(4, 5)


def test_shuffling_amplifies_a_loss():
    assert (
        str(PrivacyLoss.randomized_response(Fraction(3, 4)).shuffled(10))
        == "10 shuffled reports of ε = 1.09862"
    )
    assert PrivacyLoss.pure(0).shuffled(10) == PrivacyLoss.pure(0)
    for loss, why in (
        (PrivacyLoss.gaussian(1), "pure"),
        (PrivacyLoss.approximate(1, 0.5), "pure"),
        (PrivacyLoss.pure(1).poisson_subsampled(0.5), "shuffled"),
    ):
        with refused(Unsupported, match=why):
            loss.shuffled(10)


def test_defaults_and_limits_of_privacy_loss():
    assert PrivacyLoss.discrete_laplace(2).epsilon() == 0.5
    assert PrivacyLoss.discrete_gaussian(4).rho == Fraction(1, 8)
    assert PrivacyLoss.pure(1).epsilon_bounds()[:2] == pytest.approx((1, 1))
    assert PrivacyLoss.randomized_response(Fraction(1, 3), 3).epsilon() < 1e-30
    assert PrivacyLoss.randomized_response(Fraction(3, 4)).epsilon() == pytest.approx(math.log(3))
    with refused(InvalidInput, match="truth_probability"):
        PrivacyLoss.randomized_response(Fraction(1, 4), 3)
    with refused(InvalidInput, match="times"):
        PrivacyLoss.pure(1) * (10**18 + 1)
    assert (PrivacyLoss.pure(1) * 10**18).epsilon() == 1e18
    with refused(InvalidInput, match="alpha"):
        PrivacyLoss.pure(1).renyi(1)
    with refused(InvalidInput, match="alpha"):
        PrivacyLoss.pure(1).tradeoff(Fraction(11, 10))
    assert PrivacyLoss.approximate(1, 0.5).renyi(2) == math.inf
    assert PrivacyLoss.gaussian(1).renyi(4) == pytest.approx(2)


def test_compose_equals_the_sum():
    kinds = [PrivacyLoss.pure(1), PrivacyLoss.gaussian(1), PrivacyLoss.laplace(2)]
    assert PrivacyLoss.compose(kinds) == kinds[0] + kinds[1] + kinds[2]
    either = parallel_composition(PrivacyLoss.pure(1), PrivacyLoss.gaussian(1))
    assert PrivacyLoss.compose([either, PrivacyLoss.pure(1)]) == either + PrivacyLoss.pure(1)
    assert str(either + PrivacyLoss.pure(1)) == "ε = 2 or ε = 1, Gaussian μ = 1"
    assert either.renyi(4) == pytest.approx(max(PrivacyLoss.pure(1).renyi(4), 2))
    assert either.tradeoff(0.25) == min(
        PrivacyLoss.pure(1).tradeoff(0.25), PrivacyLoss.gaussian(1).tradeoff(0.25)
    )
    assert either.delta(0.5) == max(PrivacyLoss.pure(1).delta(0.5), PrivacyLoss.gaussian(1).delta(0.5))
    low, high = either.epsilon_bounds(1e-3)[:2]
    assert (low, high) == PrivacyLoss.gaussian(1).epsilon_bounds(1e-3)[:2]
    sure = either.posterior(0.5, Fraction(1, 2))
    assert sure == tuple(
        map(max, PrivacyLoss.pure(1).posterior(0.5, 0.5), PrivacyLoss.gaussian(1).posterior(0.5, 0.5))
    )


def test_cost_is_additive():
    assert PrivacyLoss.pure(0.5).cost() == ComposableCost.of(
        Fraction(1, 2), renyi=PrivacyLoss.pure(0.5).cost().renyi
    )
    part = PrivacyLoss.approximate(0.5, 0.1).cost()
    assert (part.epsilon, part.delta, part.rho) == (Fraction(1, 2), Fraction(1, 10), Fraction(1, 8))
    assert PrivacyLoss.gaussian(2).cost() == ComposableCost.of(mu_squared=4)
    mixed = (PrivacyLoss.gaussian(2) + PrivacyLoss.approximate(1, 0.1)).cost()
    assert (mixed.epsilon, mixed.delta, mixed.rho) == (None, Fraction(1, 10), Fraction(5, 2))
    assert mixed.mu_squared is None


# Showing


def test_str_lists_the_events():
    assert str(PrivacyLoss.pure(0.5)) == "ε = 0.5"
    assert str(PrivacyLoss.approximate(0.5, 1e-6)) == "ε = 0.5, δ = 1e-6"
    assert str(PrivacyLoss.approximate(0, 1e-6)) == "ε = 0, δ = 1e-6"
    assert str(PrivacyLoss.gaussian(0.25)) == "Gaussian μ = 0.25"
    assert (
        str(PrivacyLoss.pure(1) + PrivacyLoss.gaussian(2) + PrivacyLoss.approximate(0, 0.5))
        == "ε = 1, δ = 0.5, Gaussian μ = 2"
    )


def test_displayed_numbers_are_rounded_up():
    assert str(PrivacyLoss.pure(Fraction(1, 3))) == "ε = 0.333334"
    assert str(PrivacyLoss.pure(Fraction(1000001, 1000000))) == "ε = 1.00001"
    assert str(PrivacyLoss.gaussian_from_mu_squared(2)) == "Gaussian μ = 1.41422"
    assert str(PrivacyLoss.pure(Fraction(1, 10**400))) == "ε = 1e-400"
    assert str(PrivacyLoss.pure(10**400)) == "ε = 1e400"


# Calibration


@pytest.mark.parametrize(
    ("epsilon", "delta"),
    [
        ("1", "1e-6"),
        ("0.1", "1e-6"),
        ("1", "1e-300"),
        ("1e-300", "1e-6"),
        ("1e6", "1e-6"),
        ("1", "0.5"),
        ("0.001", "0.5"),
        ("1e-5", "1e-12"),
        ("1", "0.999999"),
    ],
)
def test_the_largest_mu_holds_and_the_next_does_not(epsilon, delta):
    epsilon, delta = Fraction(epsilon), Fraction(delta)

    sigma = float(1 / largest_mu(epsilon, delta))

    assert Fraction(sigma) == 1 / largest_mu(epsilon, delta)
    assert true_delta(epsilon, 1 / real(Fraction(sigma))) <= real(delta)
    assert delta_at(PrivacyLoss.gaussian(1 / Fraction(sigma)), epsilon) <= delta
    smaller = math.nextafter(math.nextafter(sigma, 0), 0)
    assert true_delta(epsilon, 1 / real(Fraction(smaller))) > real(delta)


def test_huge_epsilon_needs_the_least_noise():
    assert 1 / largest_mu(Fraction(10**2000), MILLIONTH) == Fraction(5e-324)


def test_noise_wider_than_all_doubles_is_refused():
    with refused(Unsupported, match="too small together"):
        largest_mu(Fraction(1, 10**2000), Fraction(1, 10**2000))


@pytest.mark.parametrize(
    ("ask", "most"),
    [
        (lambda: PrivacyLoss.gaussian(Fraction(9, 10)).epsilon(1e-6), 13),
        (lambda: PrivacyLoss.gaussian(Fraction(9, 10)).epsilon(1e-300), 9),
        (lambda: (PrivacyLoss.gaussian(Fraction(9, 10)) * 100).epsilon(1e-5), 13),
        (lambda: PrivacyLoss.gaussian(90).epsilon(1e-6), 9),
        (lambda: PrivacyLoss.gaussian(Fraction(9, 1000)).epsilon(1e-6), 14),
        (
            lambda: (PrivacyLoss.gaussian(Fraction(9, 10)) + PrivacyLoss.approximate(0.5, 1e-7)).epsilon(
                1e-6
            ),
            22,
        ),
        (lambda: largest_mu(Fraction(9, 10), MILLIONTH), 12),
        (lambda: largest_mu(Fraction(9, 100), Fraction(1, 10**12)), 10),
        (lambda: largest_mu(Fraction(9, 10**300), MILLIONTH), 10),
        (lambda: largest_mu(Fraction(9 * 10**5), MILLIONTH), 11),
    ],
)
def test_the_curve_is_evaluated_a_handful_of_times(ask, most, monkeypatch):
    calls = []
    curve = module.gaussian_delta
    monkeypatch.setattr(module, "gaussian_delta", lambda *of: calls.append(of) or curve(*of))
    for known in vars(module).values():  # another test may have asked the same
        getattr(known, "cache_clear", lambda: None)()

    ask()

    assert 0 < len(calls) <= most
    before = len(calls)
    ask()
    assert len(calls) == before


def test_a_delta_that_is_just_enough_is_enough():
    for loss in (
        PrivacyLoss.gaussian(1),
        PrivacyLoss.pure(Fraction(1, 2)),
        PrivacyLoss.gaussian(1) + PrivacyLoss.approximate(1, 0.1),
    ):
        assert loss.epsilon(delta_at(loss, Fraction(0))) == 0.0
        assert loss.epsilon(delta_at(loss, Fraction(1, 4))) == 0.25


def test_the_search_finds_the_least_double_wherever_it_starts():
    """Of any falling curve, also one with a jump, a flat one, or one that is 0."""
    for root in (5e-324, 1e-200, 0.75, 1.0, 12345.678, 1.5e308):
        jump = lambda x, root=root: Fraction(0 if x >= root else 1)  # noqa: E731
        near = lambda x, root=root: Fraction(2, 3) if x >= root else Fraction(2, 3) + Fraction(1, 10**40)  # noqa: E731
        for guess in (
            Fraction(0),
            Fraction(1, 10**300),
            Fraction(root),
            Fraction(root) * 3,
            Fraction(10**400),
        ):
            assert module.least_double(jump, Fraction(1, 2), guess) == root
            assert module.least_double(near, Fraction(2, 3), guess) == root
    never = lambda _: Fraction(1)  # noqa: E731
    assert module.least_double(never, Fraction(1, 2), Fraction(1)) == math.inf


def test_secant_steps_beyond_doubles_are_not_taken():
    nearly_flat = lambda x: Fraction(1, 2) - Fraction(x) / 1000  # noqa: E731 - it would be 1 at −500
    assert module.follow_secants(nearly_flat, Fraction(1), 1.0) == 1.0
    huge = lambda x: 2 - Fraction(x) / 10**320  # noqa: E731 - it would be 1 beyond all doubles
    assert module.follow_secants(huge, Fraction(1), 1.0) == 1.0
    line = lambda x: Fraction(3) - Fraction(x)  # noqa: E731
    assert module.follow_secants(line, Fraction(1), 0.5) == pytest.approx(2, abs=1e-15)


# What cannot be used


@pytest.mark.parametrize("bad", NOT_A_NUMBER)
def test_invalid_numbers_are_refused(bad):
    for make in (
        PrivacyLoss.pure,
        PrivacyLoss.gaussian,
        PrivacyLoss.gaussian_from_mu_squared,
        lambda x: PrivacyLoss.approximate(x, 0.1),
        lambda x: PrivacyLoss.approximate(1, x),
        lambda x: PrivacyLoss.pure(1).delta(x),
        lambda x: PrivacyLoss.gaussian(1).delta(x),
        lambda x: PrivacyLoss.pure(1).epsilon(x),
        lambda x: PrivacyLoss.gaussian(1).epsilon(x),
    ):
        with refused(InvalidInput):
            make(bad)


@pytest.mark.parametrize("delta", [0, 1, 1.5])
def test_an_approximate_loss_has_a_delta_between_0_and_1(delta):
    with refused(InvalidInput, match="delta"):
        PrivacyLoss.approximate(1, delta)


@pytest.mark.parametrize("delta", [1, 1.0, 7])
def test_epsilon_at_a_delta_of_one_or_more_is_refused(delta):
    with refused(InvalidInput, match="below 1"):
        PrivacyLoss.pure(1).epsilon(delta)


def test_every_exact_number_type_is_accepted():
    assert (
        PrivacyLoss.pure(np.float64(0.5))
        == PrivacyLoss.pure(Decimal("0.5"))
        == PrivacyLoss.pure(Fraction(1, 2))
        == PrivacyLoss.pure(0.5)
    )
    assert PrivacyLoss.pure(np.int64(2)) == PrivacyLoss.pure(2)
    assert PrivacyLoss.pure(-0.0) == PrivacyLoss.pure(0)
    assert hash(PrivacyLoss.pure(0.5)) == hash(PrivacyLoss.pure(Fraction(1, 2)))


@pytest.mark.parametrize(
    ("thing", "name"), [(PrivacyLoss.pure(1), "alternatives"), (PrivacyLoss.pure(1).cost(), "epsilon")]
)
def test_a_loss_cannot_be_changed(thing, name):
    with pytest.raises(AttributeError):
        setattr(thing, name, 0)
