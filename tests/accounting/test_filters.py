"""Filters and the odometer: exact sums, and promises that hold against every analyst of a small world."""

import json
import math
import random
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from functools import cache
from types import SimpleNamespace

import mpmath
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hubbub.accounting.budget import Budget
from hubbub.accounting.composable_cost import ORDERS, ComposableCost
from hubbub.accounting.filters import DeltaSplit, PrivacyFilter, PrivacyOdometer
from hubbub.accounting.privacy_loss import PrivacyLoss
from hubbub.errors import BudgetExceeded, HubbubError, InvalidInput, Refused
from hubbub.noise.enclosures import exp, gaussian_delta, log
from refusing import refused

mp = mpmath.mp.clone()
mp.dps = 40

BITS = 160
FEW = tuple(map(Fraction, (2, 3, 4, 5, 6, 8, 12, 16)))
USUAL = [Budget(1, 1e-6), Budget(8, 1e-5), Budget(0.1, 1e-9), Budget(2.62, 1e-5)]
HALF = Fraction(1, 2)
THREE = tuple(map(Fraction, (2, 4, 16)))
SHORT = st.builds(Fraction, st.integers(0, 60), st.sampled_from([1, 7, 20, 30]))
TINY = st.builds(Fraction, st.integers(0, 9), st.sampled_from([7000, 10**6]))


def ln(x):
    """Rounded up."""
    return Fraction(log(Fraction(x), BITS)[1], 1 << BITS)


def e_to(x):
    """Rounded down."""
    return Fraction(exp(Fraction(x), BITS)[0], 1 << BITS)


def upward(x):
    return Fraction(int(mp.ceil(mp.ldexp(x, 64))), 1 << 64)


def real(x):
    return mp.mpf(x.numerator) / x.denominator if isinstance(x, Fraction) else mp.mpf(x)


@st.composite
def costs(draw, orders=THREE):
    """With figures that are given, unknown, or follow from others."""
    maybe = st.none() | SHORT
    curve = draw(st.none() | st.tuples(*[maybe for _ in orders]))
    return ComposableCost.of(
        draw(maybe), delta=draw(TINY), renyi=curve, mu_squared=draw(maybe), rho=draw(maybe), orders=orders
    )


# Costs


def test_default_orders():
    assert [float(alpha) for alpha in ComposableCost.of(1).orders] == [
        1.25, 1.5, 1.75, 2, 2.5, 3, 3.5, 4, 4.5, 5, 6, 7, 8, 9, 10, 12, 14, 16, 20, 24, 28, 32, 40, 48, 64,
        80, 96, 128, 160, 192, 256, 320, 384, 512,
    ]  # fmt: skip
    assert ComposableCost.of(1).orders is ORDERS


def test_figures_implied_by_pure_epsilon_gaussian_noise_and_zcdp():
    pure = ComposableCost.of(Fraction(1, 10))
    gaussian = ComposableCost.of(mu_squared=Fraction(1, 50))

    assert (pure.epsilon, pure.delta, pure.rho, pure.mu_squared) == (
        Fraction(1, 10),
        0,
        Fraction(1, 200),
        None,
    )
    assert (gaussian.epsilon, gaussian.rho, gaussian.mu_squared) == (None, Fraction(1, 100), Fraction(1, 50))
    for alpha, of_pure, of_gaussian in zip(ORDERS, pure.renyi, gaussian.renyi, strict=True):
        assert of_pure == min(Fraction(1, 10), alpha / 200)
        assert of_gaussian == alpha / 100
    assert ComposableCost.of(rho=Fraction(1, 100)).renyi == gaussian.renyi
    assert ComposableCost.of(rho=5, epsilon=1).rho == Fraction(1, 2)
    assert ComposableCost.of(delta=0.5).renyi == (None,) * len(ORDERS)


def test_a_given_renyi_curve_counts_where_lower_and_none_is_infinite():
    cost = ComposableCost.of(1, renyi=(Fraction(1, 4), None, 9), orders=(2, 3, 4))

    assert cost.renyi == (Fraction(1, 4), 1, 1)
    assert ComposableCost.of(renyi=(1, None), orders=[2, 3]).renyi == (1, None)
    assert ComposableCost.of(renyi=[0.1, 0.2], orders=(2, 3)).orders == (2, 3)


@pytest.mark.parametrize("alpha", [Fraction(5, 4), 2, 7, 40])
@pytest.mark.parametrize("ratio", [Fraction(9, 8), 2, 20])
def test_figures_implied_by_pure_epsilon_cover_randomized_response(alpha, ratio):
    """ln(cosh((α−½)ε)/cosh(ε/2))/(α−1) is its divergence, the largest of all that is ε-private."""
    epsilon = mp.log(real(Fraction(ratio)))
    a = real(Fraction(alpha))
    truth = mp.log(mp.cosh((a - 0.5) * epsilon) / mp.cosh(epsilon / 2)) / (a - 1)

    cost = ComposableCost.of(ln(ratio), orders=(alpha,))

    assert truth <= real(cost.renyi[0])
    assert truth <= a * real(cost.rho)
    assert real(cost.renyi[0]) <= max(1.5 * truth, truth + 1)


@given(costs(), costs(), costs())
def test_costs_add_figure_by_figure_in_any_order(a, b, c):
    assert a + b == b + a
    assert (a + b) + c == a + (b + c)
    total = a + b
    assert total.delta == a.delta + b.delta
    for name in ("epsilon", "mu_squared", "rho"):
        one, two = getattr(a, name), getattr(b, name)
        assert getattr(total, name) == (None if None in (one, two) else one + two)
    for both, one, two in zip(total.renyi, a.renyi, b.renyi, strict=True):
        assert both == (None if None in (one, two) else one + two)


def test_nothing_is_inferred_from_a_sum():
    """Two figures of which each is the better one for one of two charges make no common one."""
    one = ComposableCost.of(renyi=(1,), orders=(2,))
    assert (one + ComposableCost.of(1, orders=(2,))).epsilon is None
    assert (
        one + ComposableCost(Fraction(0), Fraction(0), (Fraction(7),), None, None, (Fraction(2),))
    ).renyi == (8,)


def test_a_long_figure_is_rounded_up_by_less_than_two_to_the_minus_128():
    exact = Fraction(1, 3**200)
    kept = ComposableCost.of(exact + 1).epsilon

    assert exact + 1 < kept < exact + 1 + Fraction(1, 1 << 128)
    assert kept.denominator == 1 << 128
    assert ComposableCost.of(Fraction(1, 3**100)).epsilon == Fraction(1, 3**100)
    assert ComposableCost.of(delta=Fraction(1, 1 << 257)).delta == Fraction(1, 1 << 128)
    assert ComposableCost.of(Fraction(1, 1 << 256)).epsilon == Fraction(1, 1 << 256)


def test_figures_are_made_exact_however_the_cost_is_made():
    cost = ComposableCost(0.1, 0.2, [0.3], 0.4, 0.5, [2])

    assert cost == ComposableCost(
        Fraction(1, 10), Fraction(1, 5), (Fraction(3, 10),), Fraction(2, 5), HALF, (2,)
    )
    assert {type(figure) for figure in (cost.epsilon, cost.delta, *cost.renyi, cost.rho)} == {Fraction}
    assert DeltaSplit(0, 0.25, [0.5]) == DeltaSplit(Fraction(0), Fraction(1, 4), (HALF,))
    assert DeltaSplit(0, 0.25, [0.5]).renyi == (HALF,)


@pytest.mark.parametrize("bad", [Fraction(-1, 2), Fraction(-3)])
def test_an_exact_figure_below_zero_is_refused(bad):
    for make in (
        lambda: ComposableCost.of(bad),
        lambda: ComposableCost(None, Fraction(0), (bad,), None, None, (2,)),
        lambda: ComposableCost(None, Fraction(0), (None,), bad, None, (2,)),
        lambda: ComposableCost(None, Fraction(0), (None,), None, bad, (2,)),
        lambda: ComposableCost(None, bad, (None,), None, None, (2,)),
    ):
        with refused(InvalidInput):
            make()


def test_a_huge_figure_is_infinite_and_delta_is_at_most_one():
    cost = ComposableCost.of(2**65, delta=7)

    assert ComposableCost.of(2**64).epsilon == 2**64
    assert (cost.epsilon, cost.delta) == (None, 1)
    assert (ComposableCost.of(2**64) + ComposableCost.of(1)).epsilon is None


def test_ten_tenths_are_exactly_the_budget():
    account = PrivacyFilter(Budget(1, 1e-6))
    for _ in range(9):
        account = account.charge(ComposableCost.of(0.1))
    assert account.remaining().epsilon == Fraction(1, 10)
    account = account.charge(ComposableCost.of(0.1))

    assert account.spent.epsilon == account.epsilon == 1
    assert account.remaining().epsilon == 0
    with refused(BudgetExceeded):
        account.charge(ComposableCost.of(Decimal("1e-30")))


def test_ten_tenths_of_a_gaussian_share_exhaust_it():
    whole = PrivacyFilter(Budget(1, 1e-6)).remaining().mu_squared
    account = PrivacyFilter(Budget(1, 1e-6))
    for _ in range(10):
        account = account.charge(ComposableCost.of(mu_squared=whole / 10))

    assert account.spent == PrivacyFilter(Budget(1, 1e-6)).charge(ComposableCost.of(mu_squared=whole)).spent
    assert not account.allows(ComposableCost.of(mu_squared=whole / 10))


@pytest.mark.slow
def test_three_thousand_arbitrary_charges_keep_their_size_and_only_round_up():
    draw = random.Random(3)
    orders = (2, 8)
    account, exact, delta = PrivacyOdometer(1e-6, orders), Fraction(0), Fraction(0)
    for _ in range(3000):
        epsilon = Fraction(draw.randrange(1, 10**9), draw.randrange(10**9, 10**10))
        part = Fraction(draw.randrange(1, 10**4), draw.randrange(10**11, 10**12))
        account = account.charge(ComposableCost.of(epsilon, delta=part, mu_squared=epsilon**2, orders=orders))
        exact, delta = exact + epsilon, delta + part

    spent = account.spent
    assert exact <= spent.epsilon <= exact + 3000 * Fraction(1, 1 << 128)
    assert delta <= spent.delta <= delta + 3000 * Fraction(1, 1 << 128)
    for figure in (spent.epsilon, spent.delta, spent.rho, spent.mu_squared, *spent.renyi):
        assert figure.denominator <= 1 << 256
    assert len(account.to_json()) < 2500
    assert exact.denominator.bit_length() > 40_000, "what it would have grown to"


# The split


@pytest.mark.parametrize("budget", USUAL)
def test_the_split_gives_a_sixteenth_to_approximate_parts_and_most_to_the_best_order(budget):
    split = DeltaSplit.of(budget)
    rest = Fraction(15, 16) * budget.delta
    best = max(split.renyi)
    place = split.renyi.index(best)

    assert split.approximate == budget.delta / 16
    assert split.gaussian == 0
    assert sum(split.renyi) == rest
    assert best >= Fraction(5, 6) * rest
    for j, share in enumerate(split.renyi):
        assert j == place or share == rest / 4 ** (abs(j - place) + 1)
    # Best for Gaussian noise: no other order by itself lets more of it fit.
    alone = [most_rho(budget, alpha, rest) for alpha in ORDERS]
    assert alone[place] == max(alone)


def most_rho(budget, alpha, delta):
    """The largest ρ for which αρ at the order α is (ε, δ) by the tight conversion."""
    a, d = real(alpha), real(delta)
    return (real(budget.epsilon) - mp.log(1 - 1 / a) + mp.log(d * a) / (a - 1)) / a


def test_another_order_can_be_favoured_and_other_shares_given():
    split = DeltaSplit.of(Budget(1, 1e-6), favoured_order=13, approximate=0, gaussian=0.5)

    assert ORDERS[split.renyi.index(max(split.renyi))] == 12
    assert split.gaussian == Fraction(1, 2 * 10**6)
    assert split.approximate + split.gaussian + sum(split.renyi) == Fraction(1, 10**6)
    assert set(DeltaSplit.of(Budget(1, 1e-6), approximate=1).renyi) == {0}
    assert sum(DeltaSplit.of(Budget(1)).renyi) == 0


# The filter's rule


@pytest.mark.parametrize("budget", USUAL)
def test_gaussian_noise_fits_almost_as_well_as_at_its_best_order_with_all_of_delta(budget):
    best = max(most_rho(budget, 1 + mp.exp(mp.mpf(x) / 50), budget.delta) for x in range(-100, 350))
    whole = real(PrivacyFilter(budget).remaining().mu_squared) / 2

    assert mp.mpf("0.95") * best <= whole <= best


@pytest.mark.parametrize("budget", USUAL)
@pytest.mark.parametrize("queries", [5, 20, 100])
def test_laplace_noise_fits_almost_as_well_as_at_its_best_order_with_all_of_delta(budget, queries):
    """k queries that would use up the budget by their pure ε; how many more fit."""

    def curve(alpha):
        a, e = real(Fraction(alpha)), real(budget.epsilon) / queries
        return mp.log(a / (2 * a - 1) * mp.exp((a - 1) * e) + (a - 1) / (2 * a - 1) * mp.exp(-a * e)) / (
            a - 1
        )

    def room(alpha):
        return most_rho(budget, alpha, budget.delta) * real(Fraction(alpha)) / curve(alpha)

    best = max(queries, *(room(alpha) for alpha in ORDERS))
    one = ComposableCost.of(budget.epsilon / queries, renyi=[upward(curve(alpha)) for alpha in ORDERS])
    most, total, account = 0, one, PrivacyFilter(budget)
    while account.allows(total):
        most, total = most + 1, total + one

    assert queries <= most <= best
    assert most >= math.floor(mp.mpf("0.93") * best)


def training(q, sigma, steps, orders=ORDERS):
    """Rényi ε of a Poisson-subsampled Gaussian, `steps` times, by the binomial sum at whole orders.

    ln E[(p/q)^α] is convex in α and 0 at α = 1, so the chord is above it in between.
    """
    q, sigma = real(q), real(sigma)

    @cache
    def moment(n):
        terms = (
            mp.binomial(n, k) * (1 - q) ** (n - k) * q**k * mp.exp(k * (k - 1) / (2 * sigma**2))
            for k in range(n + 1)
        )
        return mp.log(mp.fsum(terms)) if n > 1 else mp.mpf(0)

    def at(alpha):
        n, part = divmod(alpha, 1)
        log_moment = moment(int(n)) + (real(part) * (moment(int(n) + 1) - moment(int(n))) if part else 0)
        return upward(steps * log_moment / real(alpha - 1))

    return ComposableCost.of(renyi=[at(alpha) for alpha in orders], orders=orders)


@cache
def mnist():
    """The cost of a training run on MNIST."""
    return training(Fraction(256, 60000), Fraction(11, 10), 14063)


TIGHT = Fraction("2.38168972614165")
"""Of that run at δ = 1e-5, by inversion of its characteristic function at 160 bits."""


def test_a_training_run_costs_within_ten_percent_of_its_tight_epsilon_in_an_empty_account():
    assert PrivacyFilter(Budget(2.62, 1e-5)).allows(mnist())
    assert PrivacyFilter(Budget(TIGHT * Fraction(11, 10), 1e-5)).allows(mnist())
    assert not PrivacyFilter(Budget(TIGHT, 1e-5)).allows(mnist())


def test_the_cost_of_a_loss_is_that_of_the_run():
    """The same run by quadrature: as by the binomial sum at whole orders."""
    cost = (PrivacyLoss.gaussian(Fraction(10, 11)).poisson_subsampled(Fraction(256, 60000)) * 14063).cost()
    assert cost.epsilon is None
    for alpha, found, known in zip(ORDERS, cost.renyi, mnist().renyi, strict=True):
        if alpha.denominator == 1:
            assert known * (1 - Fraction(1, 10**9)) <= found <= known * (1 + Fraction(1, 10**6))
        else:
            assert found <= known * (1 + Fraction(1, 10**6))
    assert PrivacyFilter(Budget(TIGHT * Fraction(11, 10), 1e-5)).allows(cost)
    assert not PrivacyFilter(Budget(TIGHT, 1e-5)).allows(cost)
    account = PrivacyFilter(Budget(4, 1e-5)).charge(cost)
    twentieth = Fraction(1, 20)
    kinds = (
        PrivacyLoss.gaussian(twentieth),
        PrivacyLoss.laplace(twentieth),
        PrivacyLoss.bounded_range(2 * twentieth),
    )
    for turn in range(100):
        account = account.charge(kinds[turn % 3].cost())
    assert account.reading().epsilon < 4


def test_a_training_run_and_a_hundred_queries_fit_one_filter():
    """Gaussian, Laplace and approximate ones, in turn: the pure ones alone are 2.5 by their ε."""
    account = PrivacyFilter(Budget(4, 1e-5)).charge(mnist())
    for turn in range(100):
        account = account.charge(
            (
                ComposableCost.of(mu_squared=Fraction(1, 400)),
                ComposableCost.of(0.05),
                ComposableCost.of(0.05, delta=Fraction(1, 10**8)),
                ComposableCost.of(rho=Fraction(1, 800)),
            )[turn % 4]
        )

    assert account.reading().epsilon < 4
    assert account.reading().delta <= account.delta
    assert account.spent.delta == Fraction(25, 10**8)


@pytest.mark.parametrize("budget", USUAL)
def test_gaussian_share_allows_as_much_as_the_exact_curve(budget):
    account = PrivacyFilter(budget, split=DeltaSplit.of(budget, gaussian=Fraction(15, 16)))
    whole = account.remaining().mu_squared

    assert gaussian_delta(budget.epsilon, whole) <= Fraction(15, 16) * budget.delta
    assert gaussian_delta(budget.epsilon, whole * Fraction(10001, 10000)) > Fraction(15, 16) * budget.delta
    assert whole > Fraction(11, 10) * PrivacyFilter(budget).remaining().mu_squared, "what Rényi loses"
    assert account.allows(ComposableCost.of(mu_squared=whole))
    assert not account.allows(ComposableCost.of(rho=whole / 2)), "zCDP is not Gaussian noise"
    assert account.charge(ComposableCost.of(budget.epsilon)).allows(ComposableCost.of(0))


def test_each_sum_may_fit_alone_but_all_need_the_approximate_delta():
    budget = Budget(1, 1e-3)
    account = PrivacyFilter(
        budget, FEW, DeltaSplit(budget.delta / 4, budget.delta / 4, (budget.delta / 16,) * 8)
    )
    pure, gaussian = (
        ComposableCost.of(1, orders=FEW),
        ComposableCost.of(mu_squared=Fraction(1, 20), orders=FEW),
    )
    curve = ComposableCost.of(renyi=(None,) * 5 + (Fraction(1, 50),) + (None,) * 2, orders=FEW)

    for cost in (pure, gaussian, curve):
        assert account.allows(cost)
        assert account.allows(replace(cost, delta=budget.delta / 4))
        assert not account.allows(replace(cost, delta=budget.delta * Fraction(26, 100)))
    assert not account.allows(ComposableCost.of(orders=FEW)), "nothing is known of it"
    assert not account.charge(pure).allows(curve)


@given(st.integers(0, 7), st.fractions(0, 1, max_denominator=1000))
def test_an_order_fits_by_itself_just_where_the_tight_conversion_says(j, figure):
    budget = Budget(1, 1e-2, population=98)
    shares = tuple(Fraction(budget.delta * (i == j)) for i in range(8))
    cost = ComposableCost.of(renyi=[figure if i == j else None for i in range(8)], orders=FEW)
    a = real(FEW[j])
    needs = real(figure) + mp.log(1 - 1 / a) - mp.log(real(budget.delta) * a) / (a - 1)

    assert PrivacyFilter(budget, FEW, DeltaSplit(Fraction(0), Fraction(0), shares)).allows(cost) == (
        needs <= 1
    )


def beyond(alpha, delta):
    """What an order's figure may be more than ε: ln(α/(α−1)) + ln(αδ)/(α−1)."""
    a, d = real(Fraction(alpha)), real(Fraction(delta))
    return mp.log(a / (a - 1)) + mp.log(a * d) / (a - 1)


@pytest.mark.parametrize("alpha", [Fraction(3, 2), 2, 3, 7, 32])
@pytest.mark.parametrize("delta", ["0.5", "0.1", "0.01", "1e-6", "1e-9"])
def test_slightly_more_than_an_order_allows_is_refused(alpha, delta):
    """By 2^-200, and by 2^-125 less it does: sums are rounded to the private side, and by no more."""
    budget = Budget(40, Fraction(delta), allow_large_epsilon=True, population=1)
    account = PrivacyFilter(budget, (alpha,), DeltaSplit(0, 0, (budget.delta,)))
    with mp.workprec(400):
        most = int(mp.floor(mp.ldexp(40 + beyond(alpha, delta), 200)))

    def allows(units):
        return account.allows(ComposableCost.of(renyi=[Fraction(units, 1 << 200)], orders=(alpha,)))

    assert not allows(most + 1)
    assert allows(most - (1 << 75))


@pytest.mark.parametrize("figure", [Fraction(k, 7) for k in range(1, 20)])
def test_a_reading_is_the_exact_figure_rounded_up_to_two_to_the_minus_40(figure):
    odometer = PrivacyOdometer(1e-6, (3,)).charge(ComposableCost.of(renyi=[figure], orders=(3,)))
    exact = real(Fraction(figure)) - beyond(3, Fraction(1, 10**6))

    assert odometer.reading().epsilon == Fraction(int(mp.ceil(mp.ldexp(exact, 40))), 1 << 40)


def test_odometer_reading_includes_reserved_delta_and_infinity_mass():
    budget = Budget(1, 0.01, population=98)
    account = PrivacyFilter(
        budget, (2, 3), DeltaSplit(Fraction(1, 200), Fraction(1, 500), [Fraction(1, 1000)] * 2)
    )

    assert account.reading().delta == Fraction(4, 1000)
    told = account.charge(ComposableCost.of(0.1, delta=Fraction(1, 300), orders=(2, 3)))
    assert told.reading().delta == Fraction(4, 1000) + Fraction(1, 300)


def test_exactly_the_gaussian_share_fits():
    delta = gaussian_delta(Fraction(1), Fraction(1, 4))
    account = PrivacyFilter(Budget(1, delta, population=1), (2,), DeltaSplit(0, delta, [0]))
    none = replace(ComposableCost.of(orders=(2,)), mu_squared=Fraction(1, 4))

    assert account.allows(none)
    assert account.allows(replace(none, mu_squared=Fraction(0)))
    assert not account.allows(replace(none, mu_squared=Fraction(1, 4) + Fraction(1, 10**9)))


def test_remaining_is_reported_if_only_the_renyi_sum_fits():
    account = PrivacyFilter(Budget(1, 1e-6))
    for _ in range(100):
        account = account.charge(ComposableCost.of(Fraction(105, 10**4)))

    assert account.spent.epsilon == Fraction(105, 100)
    assert 0 < account.remaining().epsilon < 1


def test_remaining_of_a_small_budget():
    budget = Budget(1e-7, 1e-12)
    account = PrivacyFilter(budget, split=DeltaSplit.of(budget, gaussian=HALF))

    assert 0 < account.remaining().mu_squared < budget.epsilon / 2**24


def test_an_odometer_has_no_delta_where_none_is_given_and_adds_up_pure_costs():
    empty = PrivacyOdometer(orders=(2,))

    assert empty.delta == 0
    assert empty.spent == ComposableCost.of(0, mu_squared=0, orders=(2,))
    assert empty.charge(ComposableCost.of(1, orders=(2,))).reading().epsilon == 1


def test_a_refusal_shows_six_digits_rounded_down():
    with refused(BudgetExceeded, match=r"epsilon 0\.666666 and delta 0 there"):
        PrivacyFilter(Budget(Fraction(2, 3)), (2,)).charge(ComposableCost.of(1, orders=(2,)))


@given(st.lists(st.none() | st.fractions(0, 2, max_denominator=1000), min_size=8, max_size=8))
def test_orders_fit_together_if_their_work_is_at_most_one(curve):
    budget = Budget(1.5, 1e-2, population=98)
    account = PrivacyFilter(budget, FEW, DeltaSplit(Fraction(0), Fraction(0), (budget.delta / 8,) * 8))
    work = mp.mpf(0)
    for alpha, figure in zip(FEW, curve, strict=True):
        if figure is not None:
            a = real(alpha)
            costs_alone = mp.exp((a - 1) * (real(figure) - 1.5)) * (a - 1) ** (a - 1) / a**a
            work += real(budget.delta / 8) / costs_alone

    assert account.allows(ComposableCost.of(renyi=curve, orders=FEW)) == (work >= 1)


@given(costs(), costs(), st.sampled_from([Fraction(0), Fraction(1, 3)]))
def test_a_smaller_cost_fits_wherever_a_larger_one_does(cost, more, gaussian):
    budget = Budget(4, 0.01, population=98)
    account = PrivacyFilter(budget, THREE, DeltaSplit.of(budget, orders=THREE, gaussian=gaussian))
    if account.allows(cost + more):
        assert account.allows(cost)
        assert account.charge(cost).allows(more)
    assert account.allows(ComposableCost.of(0, orders=THREE))


@given(st.lists(costs(), max_size=5), st.randoms(use_true_random=False))
def test_the_order_of_charges_makes_no_difference(charges, shuffle):
    budget = Budget(20, 0.1, population=8)
    mixed = list(charges)
    shuffle.shuffle(mixed)

    def all_of(some):
        account = PrivacyFilter(budget, THREE)
        for cost in some:
            if account is not None:
                account = account.charge(cost) if account.allows(cost) else None
        return account

    assert all_of(charges) == all_of(mixed)


@settings(max_examples=30)
@given(costs())
def test_remaining_fits_and_hardly_more_does(cost):
    account = PrivacyFilter(Budget(3, 0.01, population=98), THREE)
    account = account.charge(cost) if account.allows(cost) else account
    left = account.remaining()

    assert account.allows(ComposableCost.of(left.epsilon, delta=left.delta, orders=THREE))
    if left.mu_squared:
        assert account.allows(ComposableCost.of(mu_squared=left.mu_squared, delta=left.delta, orders=THREE))
    assert not account.allows(
        ComposableCost.of(left.epsilon * Fraction(10001, 10000) + Fraction(1, 10**6), orders=THREE)
    )
    more = left.mu_squared * Fraction(10001, 10000) + Fraction(1, 10**12)
    assert not account.allows(ComposableCost.of(mu_squared=more, orders=THREE))
    assert not account.allows(ComposableCost.of(0, delta=left.delta + Fraction(1, 10**9), orders=THREE))


def test_remaining_fits_also_if_sums_are_rounded():
    account = PrivacyFilter(Budget(Fraction(1, 3**170) + 1), (2,)).charge(
        ComposableCost.of(Fraction(1, 3), orders=(2,))
    )
    left = account.remaining().epsilon

    assert Fraction(2, 3) * Fraction(9999, 10000) < left <= Fraction(2, 3) + Fraction(1, 3**170)
    account.charge(ComposableCost.of(left, orders=(2,)))


# What is refused


def test_a_refusal_reports_what_would_fit_and_spends_nothing():
    account = PrivacyFilter(Budget(1, 1e-6)).charge(ComposableCost.of(0.75))
    before = account.to_json()
    with refused(BudgetExceeded) as refusal:
        account.charge(ComposableCost.of(0.5))

    left = account.remaining()
    text = str(refusal.value)
    assert isinstance(refusal.value, Refused)
    assert isinstance(refusal.value, HubbubError)
    assert "epsilon 1 and delta 1e-6" in text
    assert f"a pure epsilon of {float(left.epsilon):.6g}"[:-1] in text
    assert "(sensitivity/sigma)² of" in text
    assert "6.25e-8 of delta" in text
    assert account.to_json() == before


def test_a_refusal_of_an_empty_account_says_that_nothing_fits():
    account = PrivacyFilter(Budget(1)).charge(ComposableCost.of(1))
    with refused(BudgetExceeded, match="room for nothing, and for 0 of delta"):
        account.charge(ComposableCost.of(1))


def test_without_delta_only_pure_sums_are_allowed():
    account = PrivacyFilter(Budget(1))

    assert account.allows(ComposableCost.of(1))
    assert not account.allows(ComposableCost.of(mu_squared=Decimal("1e-12")))
    assert not account.allows(ComposableCost.of(0.1, delta=Decimal("1e-12")))
    assert account.remaining().mu_squared == 0


BAD = [float("nan"), float("inf"), -1, "1", True, 1j, [1]]


@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize("name", ["epsilon", "delta", "mu_squared", "rho"])
def test_non_numeric_figure_is_refused(name, bad):
    with refused(InvalidInput, match=name):
        ComposableCost.of(**{name: bad})


@pytest.mark.parametrize("bad", BAD)
def test_invalid_shares_are_refused(bad):
    for make in (
        lambda: ComposableCost.of(renyi=(bad,), orders=(2,)),
        lambda: ComposableCost.of(1, orders=(bad,)),
        lambda: DeltaSplit(bad, 0, (0,)),
        lambda: DeltaSplit(0, 0, (bad,)),
        lambda: DeltaSplit.of(Budget(1, 1e-6), approximate=bad),
        lambda: PrivacyOdometer(bad),
        lambda: PrivacyFilter(SimpleNamespace(epsilon=bad, delta=Fraction(0)), (2,)),
        lambda: PrivacyFilter(SimpleNamespace(epsilon=Fraction(1), delta=bad), (2,)),
    ):
        with refused(InvalidInput):
            make()


@pytest.mark.parametrize(
    "orders",
    [
        (),
        (1,),
        (2, 2),
        (3, 2),
        (0.5,),
        (2**65,),
        (2, 2**65),
        (1 + Fraction(1, 2**65),),
        (1 + Fraction(1, 2**65), 3),
        2,
        None,
    ],
)
def test_invalid_orders_are_refused(orders):
    for make in (
        ComposableCost.of,
        lambda orders: PrivacyOdometer(0.1, orders),
        lambda orders: PrivacyFilter(Budget(1), orders),
    ):
        with refused(InvalidInput, match="orders"):
            make(orders=orders)


def test_orders_of_64_bits_are_accepted():
    orders = (1 + Fraction(1, 2**64), Fraction(2**64))
    assert ComposableCost.of(1, orders=orders).orders == orders


@pytest.mark.parametrize("renyi", [(), (1,), (1, 2, 3), 7])
def test_a_curve_of_another_length_is_refused(renyi):
    with refused(InvalidInput, match="renyi"):
        ComposableCost.of(renyi=renyi, orders=(2, 3))
    with refused(InvalidInput, match="renyi"):
        ComposableCost.of(1, renyi=renyi, orders=(2, 3))
    with refused(InvalidInput, match="renyi"):
        ComposableCost(None, Fraction(0), renyi, None, None, (2, 3))


def test_a_cost_at_other_orders_is_refused_everywhere():
    other = ComposableCost.of(0.1, orders=(2, 3))
    account = PrivacyFilter(Budget(1, 1e-6))
    for use in (account.allows, account.charge, PrivacyOdometer(1e-6).charge, ComposableCost.of(1).__add__):
        with refused(InvalidInput, match="other orders"):
            use(other)
    with refused(InvalidInput, match="other orders"):
        PrivacyFilter(Budget(1, 1e-6), spent=other)
    with refused(InvalidInput, match="other orders"):
        PrivacyOdometer(0, spent=other)


@pytest.mark.parametrize("bad", [0.1, None, "0.1", Fraction(1, 10)])
def test_a_charge_that_is_not_a_cost_is_refused(bad):
    account = PrivacyFilter(Budget(1, 1e-6))
    for use in (account.allows, account.charge, PrivacyOdometer(1e-6).charge):
        with refused(InvalidInput, match="cost is of type"):
            use(bad)
    with pytest.raises(TypeError):
        ComposableCost.of(1) + bad


@pytest.mark.parametrize(
    "split",
    [
        DeltaSplit(Fraction(1, 100), Fraction(0), (Fraction(0),)),
        DeltaSplit(Fraction(1, 100), Fraction(1, 10**9), (Fraction(0),) * 2),
        DeltaSplit(Fraction(1, 200), Fraction(0), (Fraction(1, 200), Fraction(1, 10**9))),
    ],
)
def test_split_beyond_delta_or_with_other_orders_is_refused(split):
    with refused(InvalidInput, match="split"):
        PrivacyFilter(Budget(1, 0.01, population=98), (2, 3), split)


def test_shares_beyond_all_of_delta_are_refused():
    with refused(InvalidInput, match="more than 1"):
        DeltaSplit.of(Budget(1, 0.01, population=98), approximate=0.6, gaussian=0.5)
    with refused(InvalidInput, match="delta is 1"):
        PrivacyOdometer(1)
    with refused(InvalidInput, match="delta is 1"):
        PrivacyFilter(SimpleNamespace(epsilon=Fraction(1), delta=Fraction(1)))


def test_a_filter_cannot_be_made_with_more_spent_than_fits():
    with refused(InvalidInput, match="more is spent"):
        PrivacyFilter(Budget(1), spent=ComposableCost.of(1.001))
    assert PrivacyFilter(Budget(1), spent=ComposableCost.of(1)).remaining().epsilon == 0


# Storage


@given(st.lists(costs(), max_size=4), st.sampled_from([Fraction(0), Fraction(1, 3)]))
def test_filter_and_odometer_survive_storage(charges, gaussian):
    budget = Budget(10, 0.1, population=8)
    account = PrivacyFilter(budget, THREE, DeltaSplit.of(budget, orders=THREE, gaussian=gaussian))
    odometer = PrivacyOdometer(1e-6, THREE)
    for cost in charges:
        account = account.charge(cost) if account.allows(cost) else account
        odometer = odometer.charge(cost)

    assert PrivacyFilter.from_json(account.to_json()) == account
    assert PrivacyOdometer.from_json(odometer.to_json()) == odometer
    assert PrivacyOdometer.from_json(odometer.to_json()).reading() == odometer.reading()


def test_the_stored_form_is_plain_and_stays_as_it_is():
    """What is stored never changes its meaning: the split itself is stored, not the rule that made it."""
    account = PrivacyFilter(
        Budget(1, 0.01, population=98),
        (2, 3),
        DeltaSplit(Fraction(1, 200), Fraction(0), (Fraction(1, 200), Fraction(0))),
    )

    assert json.loads(account.charge(ComposableCost.of(0.1, orders=(2, 3))).to_json()) == {
        "kind": "privacy-filter/1",
        "epsilon": "1",
        "delta": "1/100",
        "split": {"approximate": "1/200", "gaussian": "0", "renyi": ["1/200", "0"]},
        "spent": {
            "epsilon": "1/10",
            "delta": "0",
            "renyi": ["1/100", "3/200"],
            "mu_squared": None,
            "rho": "1/200",
            "orders": ["2", "3"],
        },
    }


def damaged(text):
    stored = json.loads(text)
    yield from ("", "{", "[]", "null", "7", '"text"', "[" * 100_000, "{}", None, 7)
    for name in stored:
        yield json.dumps({key: value for key, value in stored.items() if key != name})
        for value in (
            None,
            "x",
            "-1",
            "1/0",
            "1e9",
            1,
            1.5,
            True,
            [],
            {},
            ["1"],
            {"epsilon": "1"},
            "2" * 4001,
        ):
            yield json.dumps(stored | {name: value})
    yield json.dumps(stored | {"more": "1"})
    for part in ("spent", "split"):
        for name in stored.get(part, ()):
            yield json.dumps(stored | {part: {key: v for key, v in stored[part].items() if key != name}})
            for value in ("x", "-1", 1, True, ["x"], [None], {}):
                yield json.dumps(stored | {part: stored[part] | {name: value}})


@pytest.mark.parametrize("kind", [PrivacyFilter, PrivacyOdometer])
def test_altered_stored_filter_is_refused(kind):
    made = (
        PrivacyFilter(Budget(1, 0.01, population=98), (2, 3))
        if kind is PrivacyFilter
        else PrivacyOdometer(0.01, (2, 3))
    )
    fine = {made.to_json()}
    for text in damaged(made.to_json()):
        if text in fine:
            continue
        with refused(InvalidInput, match="not a stored"):
            kind.from_json(text)


def test_a_stored_account_without_its_orders_is_refused():
    # They are those of this version, but nobody says that they were meant.
    for made in (PrivacyFilter(Budget(1, 0.01, population=98)), PrivacyOdometer(0.01)):
        text = made.to_json()
        stored = json.loads(text)
        assert text == json.dumps(stored, sort_keys=True, separators=(",", ":"))
        del stored["spent"]["orders"]
        with refused(InvalidInput, match="not a stored"):
            type(made).from_json(json.dumps(stored))


def test_a_stored_filter_that_spent_more_than_fits_is_refused():
    stored = json.loads(
        PrivacyFilter(Budget(1, 0.01, population=98), (2,))
        .charge(ComposableCost.of(1, orders=(2,)))
        .to_json()
    )
    stored["epsilon"] = "999/1000"
    with refused(InvalidInput, match="could guarantee nothing"):
        PrivacyFilter.from_json(json.dumps(stored))


# Soundness: against every analyst of a small world, by exact enumeration


class Mechanism:
    """Two laws over the same outcomes, and the figures that are true of them in both directions.

    `delta` is the probability of telling which of the two it is; the figures are those of the rest.
    """

    def __init__(self, pairs, *, delta=Fraction(0), orders=FEW, mu_squared=None, pure=True):
        assert sum(p for p, _ in pairs) == sum(q for _, q in pairs) == 1
        self.outcomes = [((1 - delta) * p, (1 - delta) * q) for p, q in pairs]
        if delta:
            self.outcomes += [(delta, Fraction(0)), (Fraction(0), delta)]

        def moment(alpha):
            both = [
                sum(p**alpha / q ** (alpha - 1) for p, q in way) for way in (pairs, [x[::-1] for x in pairs])
            ]
            return max(both)

        self.moments = [moment(int(alpha)) for alpha in orders]
        curve = [ln(m) / (alpha - 1) for m, alpha in zip(self.moments, orders, strict=True)]
        ratio = max(max(p / q, q / p) for p, q in pairs)
        # Not by `of`: each figure as it is, nothing filled in.
        self.cost = ComposableCost(ln(ratio) if pure else None, delta, tuple(curve), mu_squared, None, orders)


def response(ratio, **more):
    ratio = Fraction(ratio)
    yes = ratio / (ratio + 1)
    return Mechanism([(yes, 1 - yes), (1 - yes, yes)], **more)


def rare(ratio, chance, **more):
    """Mostly about the same, seldom very telling."""
    p, q = Fraction(chance), Fraction(chance) / ratio
    return Mechanism([(p, q), (1 - p, 1 - q)], **more)


def worst(account, menu, least_ratio):
    """E[(1 − e^ε·q/p)₊] of the worst analyst, who chooses by all that came out, and stops when it is best.

    `least_ratio` gives (a lower bound of) e^ε at an account. A sum does not depend on the order, so how
    often each was asked is all there is to know about an account.
    """

    @cache
    def after(counts):
        total = ComposableCost.of(0, mu_squared=0, orders=account.spent.orders)
        for mechanism, count in zip(menu, counts, strict=True):
            for _ in range(count):
                total = total + mechanism.cost
        try:
            if isinstance(account, PrivacyFilter):
                return PrivacyFilter(account, account.orders, account.split, spent=total)
        except InvalidInput:
            return None
        return PrivacyOdometer(account.delta, FEW, spent=total) if sum(counts) <= 5 else None

    ratio_at = cache(lambda counts: least_ratio(after(counts)))

    @cache
    def value(counts, y):
        best = max(Fraction(0), 1 - ratio_at(counts) * y)
        if y == 0:  # all is told
            return best
        for j, mechanism in enumerate(menu):
            more = tuple(count + (i == j) for i, count in enumerate(counts))
            if after(more) is not None:
                best = max(best, sum(p * value(more, y * q / p) for p, q in mechanism.outcomes if p))
        return best

    start = (0,) * len(menu)
    return value(start, Fraction(1)), after.cache_info().currsize


MENUS = {
    "randomized response": (
        Budget(1, 0.1, population=8),
        [response(Fraction(9, 8)), response(Fraction(3, 2))],
        {},
    ),
    "and what tells all": (
        Budget(1, 0.1, population=8),
        [response(Fraction(6, 5)), response(2), response(1, delta=Fraction(1, 400))],
        {"approximate": Fraction(1, 16)},
    ),
    "approximate": (
        Budget(0.8, 0.05, population=18),
        [response(Fraction(5, 4), delta=Fraction(1, 100)), response(Fraction(8, 7))],
        {"approximate": Fraction(2, 3)},
    ),
    "seldom telling": (
        Budget(2, 0.05, population=18),
        [rare(20, Fraction(1, 200)), response(Fraction(3, 2)), rare(6, Fraction(1, 20))],
        {},
    ),
    "not known to be pure": (
        Budget(1.5, 0.1, population=8),
        [rare(10, Fraction(1, 50), pure=False), response(2), response(Fraction(5, 4))],
        {"favoured_order": 4},
    ),
}


@pytest.mark.parametrize("name", MENUS)
def test_adaptive_analyst_stays_within_the_filter(name):
    budget, menu, shares = MENUS[name]
    account = PrivacyFilter(budget, FEW, DeltaSplit.of(budget, orders=FEW, **shares))
    truth, states = worst(account, menu, lambda _: e_to(budget.epsilon))

    assert budget.delta / 3 <= truth <= budget.delta
    assert states > 20, "the world is not too small to tell"


def gaussian_of(ratio):
    """The least μ² of Gaussian noise that hides as little as randomized response: Φ(μ/2) = k/(k+1)."""
    k = real(Fraction(ratio))
    half = mp.sqrt(2) * mp.erfinv(2 * k / (k + 1) - 1)
    return upward(4 * half**2)


def test_adaptive_analyst_stays_within_the_gaussian_filter():
    """Randomized response is Gaussian-private, too, at the μ at which the two curves touch."""
    budget = Budget(1, 0.05, population=18)
    menu = [response(r, mu_squared=gaussian_of(r), pure=False) for r in (Fraction(9, 8), Fraction(5, 4), 2)]
    account = PrivacyFilter(budget, FEW, DeltaSplit(Fraction(0), budget.delta, (Fraction(0),) * len(FEW)))
    truth, states = worst(account, menu, lambda _: e_to(budget.epsilon))

    assert budget.delta / 3 <= truth <= budget.delta
    assert states > 20


def test_adaptive_analyst_stays_within_the_odometer_at_any_stop():
    odometer = PrivacyOdometer(0.05, FEW)
    menu = [response(Fraction(5, 4), pure=False), rare(10, Fraction(1, 50), pure=False), response(2)]
    truth, states = worst(odometer, menu, lambda o: e_to(o.reading().epsilon))

    assert odometer.delta / 3 <= truth <= odometer.delta
    assert states > 20


def delta_of(outcomes, ratio):
    return sum(max(Fraction(0), p - ratio * q) for p, q in outcomes)


def follow(first, *then):
    """The first mechanism, and what is asked after each of its outcomes (None: nothing)."""
    for (p, q), mechanism in zip(first.outcomes, then, strict=True):
        yield from [(p, q)] if mechanism is None else [(p * s, q * t) for s, t in mechanism.outcomes]


def test_giving_every_order_all_of_delta_would_overspend():
    """Section "Why one δ for each order is not enough": orders 2 and 3, e^ε = 1000, δ = 1/100."""
    orders = (Fraction(2), Fraction(3))
    ratio, delta = Fraction(1000), Fraction(1, 100)
    first = Mechanism(
        [(Fraction(1, 40), Fraction(1, 600)), (Fraction(39, 40), Fraction(599, 600))], orders=orders
    )
    telling = response(99, orders=orders)
    gamble = rare(2000, Fraction(29, 2000), orders=orders)

    # δ' = c·E[(p/q)^(α−1)]/e^((α−1)ε), with c = 1/4 and 4/27: what an order charges by itself.
    assert first.moments[1] * telling.moments[1] * Fraction(4, 27) / ratio**2 <= delta, "by order 3"
    assert first.moments[0] * gamble.moments[0] * Fraction(1, 4) / ratio <= delta, "by order 2"
    truth = delta_of(follow(first, telling, gamble), ratio)
    assert truth > delta * Fraction(149, 100)
    assert delta_of(follow(first, telling, None), ratio) <= delta
    assert delta_of(follow(first, None, gamble), ratio) <= delta

    # With half of δ for each order, one of the two is refused.
    budget = Budget(Fraction(log(ratio, 64)[0], 1 << 64), delta, population=99)
    halves = PrivacyFilter(budget, orders, DeltaSplit(Fraction(0), Fraction(0), (delta / 2, delta / 2)))
    after = halves.charge(replace(first.cost, epsilon=None))
    allowed = [after.allows(replace(m.cost, epsilon=None)) for m in (telling, gamble)]
    assert not all(allowed)


def test_composing_whole_curves_adaptively_would_overspend():
    """Section "Why curves do not add up": at e^ε = 4 either list has δ = 4/15, and the analyst gets 16/45."""
    first, second = response(2), response(4)
    leak = response(1, delta=Fraction(4, 15))

    assert delta_of(follow(first, second, second), Fraction(4)) == Fraction(4, 15)
    assert delta_of(follow(first, leak, leak), Fraction(4)) == Fraction(4, 15)
    assert delta_of(follow(first, second, leak), Fraction(4)) == Fraction(16, 45)


def talks(depth):
    """An interactive mechanism: None when it has ended, else questions, each with two answers' chances."""
    if not depth:
        return st.none()
    chance = st.builds(Fraction, st.integers(1, 5), st.just(6))
    question = st.tuples(chance, chance, talks(depth - 1), talks(depth - 1))
    return st.none() | st.lists(question, min_size=1, max_size=2)


def answers(question):
    p, q, yes, no = question
    return [(p, q, yes), (1 - p, 1 - q, no)]


def largest(power, *open_talks):
    """E[(p/q)^power] of the worst analyst, who may go from one open mechanism to the other and back."""
    best = Fraction(1)
    for j, talk in enumerate(open_talks):
        for question in talk or ():
            others = (open_talks[:j], open_talks[j + 1 :])
            best = max(
                best,
                sum(
                    p * (p / q) ** power * largest(power, *others[0], rest, *others[1])
                    for p, q, rest in answers(question)
                ),
            )
    return best


@settings(max_examples=60)
@given(talks(2), talks(2), st.integers(1, 3))
def test_interleaving_interactive_mechanisms_gains_nothing(one, two, power):
    """Section "Interactive mechanisms": the moments multiply as if one had ended before the other began."""
    assert largest(power, one, two) == largest(power, one) * largest(power, two)


# The odometer


def test_nothing_spent_reads_zero_and_pure_sums_read_exactly():
    odometer = PrivacyOdometer(1e-6)

    assert odometer.reading().epsilon == 0
    assert odometer.reading().delta == Fraction(1, 10**6)
    for _ in range(3):
        odometer = odometer.charge(ComposableCost.of(0.1, delta=Decimal("1e-9")))
    assert odometer.reading().epsilon == Fraction(3, 10)
    assert odometer.reading().delta == Fraction(1003, 10**9)
    assert PrivacyOdometer().charge(ComposableCost.of(mu_squared=1)).reading().epsilon is None
    assert PrivacyOdometer(0.1).charge(ComposableCost.of()).reading().epsilon is None
    assert (
        PrivacyOdometer(0.1).charge(ComposableCost.of()).charge(ComposableCost.of(1)).reading().epsilon
        is None
    )


def test_reading_is_zero_if_delta_covers_the_loss():
    assert (
        PrivacyOdometer(0.999, (Fraction(5, 4),))
        .charge(ComposableCost.of(renyi=[0.001], orders=[1.25]))
        .reading()
        .epsilon
        == 0
    )


@given(costs(), costs())
def test_a_reading_never_falls_and_no_filter_is_tighter_than_its_own_reading(one, two):
    first = PrivacyOdometer(0.01, THREE).charge(one)
    then = first.charge(two)
    order = [math.inf if o.reading().epsilon is None else o.reading().epsilon for o in (first, then)]
    assert order[0] <= order[1]

    account = PrivacyFilter(Budget(3, 0.01, population=98), THREE)
    if account.allows(one):
        account = account.charge(one)
        reading = account.reading()
        assert reading.epsilon <= account.epsilon
        assert reading.delta <= account.delta
        closer = replace(reading, delta=account.delta)
        if 0 < reading.epsilon < account.epsilon:
            again = PrivacyFilter(closer, THREE, account.split, spent=account.spent)
            assert again.reading().epsilon == reading.epsilon


@pytest.mark.parametrize("mu_squared", [Fraction(1, 10**4), Fraction(1, 100), 1, 25])
def test_odometer_reads_at_most_a_quarter_above_a_tailored_filter(mu_squared):
    cost = ComposableCost.of(mu_squared=mu_squared)
    read = PrivacyOdometer(1e-6).charge(cost).reading().epsilon
    low, high = Fraction(0), read
    for _ in range(12):
        middle = (low + high) / 2
        low, high = (
            (low, middle)
            if PrivacyFilter(Budget(middle, 1e-6, allow_large_epsilon=True)).allows(cost)
            else (middle, high)
        )

    assert high <= read <= high * Fraction(5, 4)


@given(st.fractions(0, 1, max_denominator=1000), st.fractions(0, 1, max_denominator=1000), st.integers(1, 9))
def test_times_equals_repeated_addition(epsilon, delta, count):
    cost = ComposableCost.of(epsilon=epsilon, delta=delta)
    total = cost
    for _ in range(count - 1):
        total += cost
    assert cost.times(count) == total
    assert ComposableCost.of(mu_squared=1).times(2).epsilon is None


def test_sums_beyond_all_budgets_are_infinite_and_long_ones_are_rounded_up():
    large = ComposableCost.of(epsilon=2**63)
    assert (large + large).epsilon == 2**64
    assert (large + large + large).epsilon is None
    long = ComposableCost.of(epsilon=Fraction(1, 3**170))
    double = (long + long).epsilon
    assert double > 2 * Fraction(1, 3**170)
    assert (double * 2**128).denominator == 1
    assert (ComposableCost.of(0, delta=0.75) + ComposableCost.of(0, delta=0.75)).delta == 1
