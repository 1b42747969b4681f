"""What a loss may come to: gathered, compared, added up, and put in words."""

from fractions import Fraction

import pytest

from hubbub.errors import Unsupported
from hubbub.loss import Loss, parallel
from hubbub.loss.parts import Bell, Pure
from hubbub.loss.ways import gathered, undominated
from refusing import refused

HALF = Fraction(1, 2)


def test_each_part_is_gathered_once():
    pure, bell = Pure(Fraction(1)), Bell(Fraction(1))
    assert gathered([(bell, 2), (pure, 1), (bell, 3), (pure, 4)]) == ((pure, 5), (Bell(Fraction(5)), 1))
    assert gathered([(pure, 0), (Pure(Fraction(0)), 7), (Bell(Fraction(0)), 7)]) == ()
    assert gathered([(Pure(Fraction(0), HALF), 1)]) == ((Pure(Fraction(0), HALF), 1),)
    losses = [
        Loss.pure(1),
        Loss.laplace(1),
        Loss.gaussian(1),
        Loss.zcdp(1),
        Loss.zcdp(2),
        Loss.response(0.75),
    ]
    assert Loss.together(losses) == Loss.together(reversed(losses))
    assert str(Loss.zcdp(1) * 3 + Loss.zcdp(2)) == "ρ = 5"


def test_what_is_only_a_bound_stays_one():
    bound, meant = Loss.pure(HALF).for_group(2), Loss.pure(1)
    assert (bound + meant).bounds(1e-3).lower == (meant + bound).bounds(1e-3).lower == 0
    assert (meant + meant).bounds(1e-3).lower > 1.9


@pytest.mark.parametrize(
    ("less", "more"),
    [
        (Loss.pure(1), Loss.pure(2)),
        (Loss.pure(1), Loss.pure(1) * 2),
        (Loss.gaussian(1), Loss.gaussian(2)),
        (Loss.laplace(1), Loss.laplace(2)),
        (Loss.approximate(1, 0.1), Loss.approximate(1, 0.2)),
        (Loss.pure(1) + Loss.gaussian(1), Loss.pure(1) + Loss.gaussian(2)),
        (Loss.pure(0), Loss.response(0.75)),
    ],
    ids=str,
)
def test_what_is_no_worse_is_left_out(less, more):
    assert parallel(less, more) == parallel(more, less) == parallel(less, more, less) == more
    assert parallel(less, more).epsilon(0.3) == more.epsilon(0.3)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (Loss.pure(1) * 3, Loss.pure(2)),
        (Loss.pure(1) + Loss.gaussian(2), Loss.pure(2) + Loss.gaussian(1)),
        (Loss.approximate(1, 0.2), Loss.approximate(2, 0.1)),
        (Loss.pure(1), Loss.laplace(2)),
        (Loss.response(0.75), Loss.response(0.8)),
        (Loss.pure(1), Loss.pure(2) + Loss.gaussian(1)),
    ],
    ids=str,
)
def test_what_cannot_be_compared_is_kept(one, other):
    both = parallel(one, other)
    assert str(both) == f"{one} or {other}"
    for delta in (Fraction(1, 4), Fraction(3, 10)):
        assert both.epsilon(delta) == max(one.epsilon(delta), other.epsilon(delta))


def test_of_three_the_two_that_are_better_give_way():
    ways = [Loss.pure(k)._ways[0] for k in (1, 3, 2)]
    assert undominated(ways) == (ways[1],)
    assert undominated([]) == ()


def test_many_ways_are_refused():
    kinds = [Loss.response(Fraction(k, 200)) for k in range(101, 166)]
    assert len(parallel(*kinds[:64])._ways) == 64
    with refused(Unsupported, match="64"):
        parallel(*kinds)


def test_figures_add_up_and_the_larger_count():
    cost = (Loss.pure(1) * 2 + Loss.gaussian(1)).cost()
    assert (cost.epsilon, cost.mu_squared, cost.rho) == (None, None, Fraction(3, 2))
    assert (Loss.gaussian(1).sampled(HALF) * 3 + Loss.gaussian(2)).cost().mu_squared == 7
    assert Loss.gaussian(1).sampled(HALF).cost().rho == HALF
    assert Loss.response(0.75).cost().mu_squared is None
    nothing = Loss.pure(0).cost()
    assert (nothing.epsilon, nothing.delta, nothing.rho, set(nothing.renyi)) == (0, 0, 0, {0})
    worst = parallel(Loss.approximate(1, HALF), Loss.pure(2)).cost()
    assert (worst.epsilon, worst.delta, worst.rho) == (2, HALF, 2)
    either = parallel(Loss.pure(1), Loss.gaussian(1)).cost()
    assert (either.epsilon, either.mu_squared, either.rho) == (None, None, HALF)
    assert parallel(Loss.gaussian(1), Loss.gaussian(2)).cost().mu_squared == 4
    orders = (2, 8)
    one, other = Loss.pure(1).cost(orders), Loss.gaussian(1).cost(orders)
    assert parallel(Loss.pure(1), Loss.gaussian(1)).cost(orders).renyi == tuple(
        map(max, one.renyi, other.renyi)
    )
    assert Loss.zcdp(1).cost(orders).renyi[1] == pytest.approx(8)
    assert Loss.from_renyi({4: 1}).cost(orders).renyi == (pytest.approx(1), None)


@pytest.mark.parametrize(
    ("loss", "words"),
    [
        (Loss.pure(1) * 2 + Loss.laplace(1), "ε = 3"),
        (Loss.approximate(1, HALF) + Loss.pure(1), "ε = 2, δ = 0.5"),
        (Loss.gaussian(1), "Gaussian μ = 1"),
        (Loss.pure(1) + Loss.gaussian(1), "ε = 1, Gaussian μ = 1"),
        (
            Loss.approximate(1, HALF) + Loss.gaussian(1) + Loss.discrete_gaussian(4),
            "ε = 1, δ = 0.5, discrete Gaussian Δ²/σ² = 0.25, Gaussian μ = 1",
        ),
        (Loss.pure(0), "ε = 0"),
        (Loss.discrete_gaussian(4) * 3, "3 × (discrete Gaussian Δ²/σ² = 0.25)"),
    ],
)
def test_a_way_in_words(loss, words):
    assert str(loss) == words
