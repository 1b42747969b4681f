"""The budget of one release with many steps."""

from fractions import Fraction

import pytest

from hubbub.accounting import PrivacyLoss
from hubbub.accounting.gaussian_dominance import bounded_mu_squared, bounded_range_mu_squared
from hubbub.errors import BudgetExceeded, HubbubError, InvalidInput
from hubbub.synthesis.release_budget import LEAST_PART, ReleaseBudget, share_batch


def make_budget():
    return ReleaseBudget.of(epsilon=1, delta=1e-6)


def test_budget_is_the_largest_gaussian_at_its_price():
    loss = make_budget().loss
    assert loss.epsilon(1e-6) <= 1
    assert loss.epsilon(1e-6) > 0.9999


def test_steps_cannot_draw_more_than_the_budget():
    budget = make_budget()
    budget.spend_gaussian(budget.rho * Fraction(9, 10))
    budget.spend_selection(budget.rho / 20, times=10)
    assert budget.left == budget.rho / 20
    with pytest.raises(BudgetExceeded):
        budget.spend_gaussian(budget.rho / 19)
    with pytest.raises(BudgetExceeded):
        budget.spend_selection(budget.rho / 19, times=100)
    budget.spend_gaussian(budget.rho / 20)
    with pytest.raises(BudgetExceeded):
        budget.spend_gaussian(Fraction(1, 10**30))


def test_selection_that_leaves_nothing_is_priced_by_its_largest_loss():
    budget = make_budget()
    budget.spend_gaussian(budget.rho * Fraction(19, 20))
    figure = 2 * budget.left
    epsilon = budget.spend_selection(budget.left)
    assert budget.left == 0
    assert bounded_mu_squared(epsilon, Fraction(0)) <= figure
    assert epsilon**2 * Fraction(158, 100) >= figure


def test_selection_figure_covers_its_bounded_range():
    budget = make_budget()
    for share, times in ((10, 1), (10, 36), (100, 120), (2, 3)):
        rho = budget.rho / share
        epsilon = budget.spend_selection(rho, times)
        assert bounded_range_mu_squared(epsilon, 2 * budget.left) * times <= 2 * rho
        # ε²/8-zCDP is the limit for many small selections
        assert epsilon**2 / 8 * times <= rho
        assert times == 1 or epsilon**2 / 8 * times >= rho * Fraction(3, 5)


@pytest.mark.parametrize("times", [0, -1])
def test_selections_are_drawn_at_least_once(times):
    with pytest.raises(InvalidInput):
        make_budget().spend_selection(Fraction(1, 1000), times)


def test_a_selection_of_nearly_everything_is_refused():
    budget = make_budget()
    with pytest.raises(HubbubError):
        budget.spend_selection(budget.rho * 3)


@pytest.mark.slow
def test_exact_composition_of_all_steps_is_within_the_charge():
    budget = make_budget()
    mu = budget.spend_gaussian(budget.rho * Fraction(9, 10))
    epsilon = budget.spend_selection(budget.rho / 10, times=8)
    steps = PrivacyLoss.gaussian(mu) + PrivacyLoss.bounded_range(epsilon) * 8
    for price in (Fraction(1, 2), Fraction(1)):
        assert steps.delta_bounds(price)[1] <= budget.loss.delta(price)


def test_gaussian_mu_is_rounded_down():
    budget = make_budget()
    rho = Fraction(1, 300)
    mu = budget.spend_gaussian(rho)
    assert mu * mu <= 2 * rho
    assert mu * mu >= 2 * rho * (1 - Fraction(1, 10**12))


@pytest.mark.parametrize(
    "sizes", [[4] * 36, [4] * 18 + [20_000] * 18, [20_000] * 18 + [4] * 18, [5, 500] * 18]
)
def test_larger_tables_have_more_and_every_later_one_its_least(sizes):
    budget, left, earlier = make_budget(), len(sizes), []
    least = LEAST_PART * budget.left / left
    while left:
        weights = [size**0.5 for size in sizes[-left:][:6]]
        share = budget.left * Fraction(999, 1000) / left
        left -= len(weights)
        for _ in weights:
            budget.spend_selection(share / 20)
        available = budget.left * Fraction(999, 1000)
        shares = share_batch(
            weights, earlier, equal=share * Fraction(19, 20), available=available, reserve=left * least
        )
        earlier += weights
        for own, weight in zip(shares, weights, strict=True):
            assert own / sum(shares) == pytest.approx(weight / sum(weights))
            budget.spend_gaussian(own)
        assert budget.left >= left * least * Fraction(99, 100)
    assert budget.left < budget.rho / 100


def test_an_empty_batch_has_nothing():
    assert share_batch([], [1.0], equal=Fraction(1), available=Fraction(1), reserve=Fraction(0)) == []
