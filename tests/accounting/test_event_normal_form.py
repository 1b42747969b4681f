"""What a loss may come to: gathered, compared, added up, and put in words."""

from fractions import Fraction

import pytest

from hubbub.accounting import PrivacyLoss, parallel_composition
from hubbub.accounting.event_normal_form import drop_dominated, normalize_events
from hubbub.accounting.events import EpsilonDelta, Gaussian
from hubbub.errors import Unsupported
from refusing import refused

HALF = Fraction(1, 2)


def test_equal_events_are_merged():
    pure, bell = EpsilonDelta(Fraction(1)), Gaussian(Fraction(1))
    assert normalize_events([(bell, 2), (pure, 1), (bell, 3), (pure, 4)]) == (
        (pure, 5),
        (Gaussian(Fraction(5)), 1),
    )
    assert normalize_events([(pure, 0), (EpsilonDelta(Fraction(0)), 7), (Gaussian(Fraction(0)), 7)]) == ()
    assert normalize_events([(EpsilonDelta(Fraction(0), HALF), 1)]) == ((EpsilonDelta(Fraction(0), HALF), 1),)
    losses = [
        PrivacyLoss.pure(1),
        PrivacyLoss.laplace(1),
        PrivacyLoss.gaussian(1),
        PrivacyLoss.zcdp(1),
        PrivacyLoss.zcdp(2),
        PrivacyLoss.randomized_response(0.75),
    ]
    assert PrivacyLoss.compose(losses) == PrivacyLoss.compose(reversed(losses))
    assert str(PrivacyLoss.zcdp(1) * 3 + PrivacyLoss.zcdp(2)) == "ρ = 5"


def test_an_event_that_is_not_tight_stays_so_when_merged():
    bound, expected = PrivacyLoss.pure(HALF).for_group(2), PrivacyLoss.pure(1)
    assert (bound + expected).epsilon_bounds(1e-3).lower == (expected + bound).epsilon_bounds(1e-3).lower == 0
    assert (expected + expected).epsilon_bounds(1e-3).lower > 1.9


@pytest.mark.parametrize(
    ("less", "more"),
    [
        (PrivacyLoss.pure(1), PrivacyLoss.pure(2)),
        (PrivacyLoss.pure(1), PrivacyLoss.pure(1) * 2),
        (PrivacyLoss.gaussian(1), PrivacyLoss.gaussian(2)),
        (PrivacyLoss.laplace(1), PrivacyLoss.laplace(2)),
        (PrivacyLoss.approximate(1, 0.1), PrivacyLoss.approximate(1, 0.2)),
        (PrivacyLoss.pure(1) + PrivacyLoss.gaussian(1), PrivacyLoss.pure(1) + PrivacyLoss.gaussian(2)),
        (PrivacyLoss.pure(0), PrivacyLoss.randomized_response(0.75)),
    ],
    ids=str,
)
def test_dominated_alternatives_are_dropped(less, more):
    assert (
        parallel_composition(less, more)
        == parallel_composition(more, less)
        == parallel_composition(less, more, less)
        == more
    )
    assert parallel_composition(less, more).epsilon(0.3) == more.epsilon(0.3)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (PrivacyLoss.pure(1) * 3, PrivacyLoss.pure(2)),
        (PrivacyLoss.pure(1) + PrivacyLoss.gaussian(2), PrivacyLoss.pure(2) + PrivacyLoss.gaussian(1)),
        (PrivacyLoss.approximate(1, 0.2), PrivacyLoss.approximate(2, 0.1)),
        (PrivacyLoss.pure(1), PrivacyLoss.laplace(2)),
        (PrivacyLoss.randomized_response(0.75), PrivacyLoss.randomized_response(0.8)),
        (PrivacyLoss.pure(1), PrivacyLoss.pure(2) + PrivacyLoss.gaussian(1)),
    ],
    ids=str,
)
def test_incomparable_alternatives_are_kept(one, other):
    both = parallel_composition(one, other)
    assert str(both) == f"{one} or {other}"
    for delta in (Fraction(1, 4), Fraction(3, 10)):
        assert both.epsilon(delta) == max(one.epsilon(delta), other.epsilon(delta))


def test_a_later_alternative_can_dominate_two_earlier_ones():
    ways = [PrivacyLoss.pure(k).alternatives[0] for k in (1, 3, 2)]
    assert drop_dominated(ways) == (ways[1],)
    assert drop_dominated([]) == ()


def test_more_than_64_alternatives_are_refused():
    kinds = [PrivacyLoss.randomized_response(Fraction(k, 200)) for k in range(101, 166)]
    assert len(parallel_composition(*kinds[:64]).alternatives) == 64
    with refused(Unsupported, match="64"):
        parallel_composition(*kinds)


def test_cost_of_alternatives_is_the_largest_of_each_figure():
    cost = (PrivacyLoss.pure(1) * 2 + PrivacyLoss.gaussian(1)).cost()
    assert (cost.epsilon, cost.mu_squared, cost.rho) == (None, None, Fraction(3, 2))
    assert (
        PrivacyLoss.gaussian(1).poisson_subsampled(HALF) * 3 + PrivacyLoss.gaussian(2)
    ).cost().mu_squared == 7
    assert PrivacyLoss.gaussian(1).poisson_subsampled(HALF).cost().rho == HALF
    assert PrivacyLoss.randomized_response(0.75).cost().mu_squared is None
    nothing = PrivacyLoss.pure(0).cost()
    assert (nothing.epsilon, nothing.delta, nothing.rho, set(nothing.renyi)) == (0, 0, 0, {0})
    worst = parallel_composition(PrivacyLoss.approximate(1, HALF), PrivacyLoss.pure(2)).cost()
    assert (worst.epsilon, worst.delta, worst.rho) == (2, HALF, 2)
    either = parallel_composition(PrivacyLoss.pure(1), PrivacyLoss.gaussian(1)).cost()
    assert (either.epsilon, either.mu_squared, either.rho) == (None, None, HALF)
    assert parallel_composition(PrivacyLoss.gaussian(1), PrivacyLoss.gaussian(2)).cost().mu_squared == 4
    orders = (2, 8)
    one, other = PrivacyLoss.pure(1).cost(orders), PrivacyLoss.gaussian(1).cost(orders)
    assert parallel_composition(PrivacyLoss.pure(1), PrivacyLoss.gaussian(1)).cost(orders).renyi == tuple(
        map(max, one.renyi, other.renyi)
    )
    assert PrivacyLoss.zcdp(1).cost(orders).renyi[1] == pytest.approx(8)
    assert PrivacyLoss.from_renyi({4: 1}).cost(orders).renyi == (pytest.approx(1), None)


@pytest.mark.parametrize(
    ("loss", "words"),
    [
        (PrivacyLoss.pure(1) * 2 + PrivacyLoss.laplace(1), "ε = 3"),
        (PrivacyLoss.approximate(1, HALF) + PrivacyLoss.pure(1), "ε = 2, δ = 0.5"),
        (PrivacyLoss.gaussian(1), "Gaussian μ = 1"),
        (PrivacyLoss.pure(1) + PrivacyLoss.gaussian(1), "ε = 1, Gaussian μ = 1"),
        (
            PrivacyLoss.approximate(1, HALF) + PrivacyLoss.gaussian(1) + PrivacyLoss.discrete_gaussian(4),
            "ε = 1, δ = 0.5, discrete Gaussian Δ²/σ² = 0.25, Gaussian μ = 1",
        ),
        (PrivacyLoss.pure(0), "ε = 0"),
        (PrivacyLoss.discrete_gaussian(4) * 3, "3 × (discrete Gaussian Δ²/σ² = 0.25)"),
    ],
)
def test_events_are_described_in_words(loss, words):
    assert str(loss) == words
