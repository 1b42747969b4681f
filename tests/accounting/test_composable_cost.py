"""Composable costs: figures that add up, and why whole curves do not."""

from fractions import Fraction
from functools import cache

import mpmath
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hubbub.accounting.budget import Budget
from hubbub.accounting.composable_cost import ORDERS, ComposableCost
from hubbub.accounting.privacy_loss import PrivacyLoss
from hubbub.errors import InvalidInput
from hubbub.noise.enclosures import exp, log
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
    mechanism = ComposableCost.of(exact + 1).epsilon

    assert exact + 1 < mechanism < exact + 1 + Fraction(1, 1 << 128)
    assert mechanism.denominator == 1 << 128
    assert ComposableCost.of(Fraction(1, 3**100)).epsilon == Fraction(1, 3**100)
    assert ComposableCost.of(delta=Fraction(1, 1 << 257)).delta == Fraction(1, 1 << 128)
    assert ComposableCost.of(Fraction(1, 1 << 256)).epsilon == Fraction(1, 1 << 256)


def test_figures_are_made_exact_however_the_cost_is_made():
    cost = ComposableCost(0.1, 0.2, [0.3], 0.4, 0.5, [2])

    assert cost == ComposableCost(
        Fraction(1, 10), Fraction(1, 5), (Fraction(3, 10),), Fraction(2, 5), HALF, (2,)
    )
    assert {type(figure) for figure in (cost.epsilon, cost.delta, *cost.renyi, cost.rho)} == {Fraction}


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


@pytest.mark.slow
def test_the_cost_of_a_loss_is_that_of_the_run():
    """The same run by quadrature: as by the binomial sum at whole orders."""
    cost = (PrivacyLoss.gaussian(Fraction(10, 11)).poisson_subsampled(Fraction(256, 60000)) * 14063).cost()
    assert cost.epsilon is None
    for alpha, result, known in zip(ORDERS, cost.renyi, mnist().renyi, strict=True):
        if alpha.denominator == 1:
            assert known * (1 - Fraction(1, 10**9)) <= result <= known * (1 + Fraction(1, 10**6))
        else:
            assert result <= known * (1 + Fraction(1, 10**6))


# What is refused


BAD = [float("nan"), float("inf"), -1, "1", True, 1j, [1]]


@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize("name", ["epsilon", "delta", "mu_squared", "rho"])
def test_non_numeric_figure_is_refused(name, bad):
    with refused(InvalidInput, match=name):
        ComposableCost.of(**{name: bad})


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
    with refused(InvalidInput, match="orders"):
        ComposableCost.of(1, orders=orders)


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


@pytest.mark.slow
@settings(max_examples=60)
@given(talks(2), talks(2), st.integers(1, 3))
def test_interleaving_interactive_mechanisms_gains_nothing(one, two, power):
    """Section "Interactive mechanisms": the moments multiply as if one had ended before the other began."""
    assert largest(power, one, two) == largest(power, one) * largest(power, two)


# The odometer


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
