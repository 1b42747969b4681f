"""Gaussian noise that dominates a mechanism: closed forms and certificates against the curves themselves."""

from fractions import Fraction

import pytest

from hubbub.accounting.closed_form import ClosedForm
from hubbub.accounting.gaussian_dominance import (
    bounded_mu_squared,
    bounded_range_mu_squared,
    dominating_mu_squared,
    is_dominated,
    largest_mu_squared,
    loss_facts,
    mu_squared_at,
)
from hubbub.accounting.privacy_loss import PrivacyLoss
from hubbub.noise.enclosures import exp, gaussian_delta

RUN = PrivacyLoss.gaussian(Fraction(10, 11)).poisson_subsampled(Fraction(1, 100)) * 1000


@pytest.mark.sweep(7)
@pytest.mark.parametrize("epsilon", [Fraction(1, 1000), Fraction(1, 10), 1, Fraction(5, 2)])
@pytest.mark.parametrize("ratio", [0, 1, 2, 5, 64, 1000])
def test_bounded_losses_are_dominated_beside_the_reserve(epsilon, ratio):
    """Randomized response composed with the reserve lies below Gaussian noise at every ε, and hardly."""
    epsilon, reserve = Fraction(epsilon), ratio * Fraction(epsilon) ** 2
    figure = bounded_mu_squared(epsilon, reserve)

    for tenths in range(60):
        at = Fraction(tenths, 10) * epsilon * max(1, ratio) / 4
        with_response = ClosedForm(epsilon, reserve).delta_upper(at)
        assert with_response <= gaussian_delta(at, reserve + figure) * (1 + Fraction(1, 1 << 40))
    is_close = ratio >= 2 and epsilon <= 2
    assert figure <= (1 + Fraction(1, 4 * ratio) if is_close else Fraction(1_570_797, 10**6)) * epsilon**2


@pytest.mark.parametrize("exponent", [1, 4, 10, 16, 40, 300])
@pytest.mark.parametrize("reserve", [Fraction(1, 3), Fraction(1, 7**30), Fraction(5)])
def test_tiny_losses_are_never_charged_less_than_they_cost(exponent, reserve):
    """Rounded the other way, an ε far below the reserve was free."""
    epsilon = Fraction(1, 3 * 10**exponent)

    assert bounded_mu_squared(epsilon, reserve) >= epsilon**2 * (1 - epsilon**2)
    assert bounded_range_mu_squared(epsilon, reserve) >= epsilon**2 / 4


@pytest.mark.parametrize("share", [Fraction(1, 10), Fraction(3, 10), Fraction(1, 2), Fraction(4, 5)])
@pytest.mark.parametrize("ratio", [2, 5, 64])
def test_bounded_range_is_dominated_beside_the_reserve(share, ratio):
    """Two losses, one range apart, wherever the range lies."""
    length = Fraction(1, 4)
    reserve = ratio * length**2 / 4
    figure = bounded_range_mu_squared(length, reserve)
    low, high = -share * length, (1 - share) * length
    bits = 200
    below, above = (Fraction(exp(-loss, bits)[0], 1 << bits) for loss in (high, low))
    chance = (above - 1) / (above - below)  # of the loss `high` under P; the mean of q/p is 1

    def curve(at):
        def one(x):
            if x >= 0:
                return gaussian_delta(x, reserve)
            c = Fraction(exp(x, bits)[0], 1 << bits)
            return 1 - c + c * gaussian_delta(-x, reserve)

        return chance * one(at - high) + (1 - chance) * one(at - low)

    for tenths in range(60):
        at = Fraction(tenths, 20) * length * ratio / 2
        assert curve(at) <= gaussian_delta(at, reserve + figure) * (1 + Fraction(1, 1 << 40))
    assert figure * 4 <= length**2 * (1 + Fraction(2, ratio))


def test_a_figure_without_reserve_is_the_naive_one():
    assert bounded_mu_squared(Fraction(1), Fraction(0)) == Fraction(1_570_797, 10**6)
    assert bounded_range_mu_squared(Fraction(1), Fraction(0)) == Fraction(1_570_797, 10**6)


def test_a_run_is_dominated_by_little_more_than_its_own_curve():
    cut = Fraction(1, 400_000)

    figure = dominating_mu_squared(RUN, cut)
    budget = PrivacyLoss.gaussian_from_mu_squared(figure).epsilon(Fraction(3, 400_000))

    assert budget <= 1.01 * RUN.epsilon(1e-5)
    assert is_dominated(RUN, cut, figure)


def test_a_certificate_fails_just_below_the_curve():
    cut = Fraction(1, 400_000)
    figure = dominating_mu_squared(RUN, cut)

    assert not is_dominated(RUN, cut, figure * Fraction(98, 100))
    assert not is_dominated(RUN, cut / 4, figure)
    assert not is_dominated(RUN, cut, Fraction(0))


def test_a_certificate_counts_both_directions():
    one_way = PrivacyLoss.from_distributions(
        [Fraction(1, 50), Fraction(49, 50)], [Fraction(1, 10), Fraction(9, 10)]
    )
    other = PrivacyLoss.from_distributions(
        [Fraction(1, 10), Fraction(9, 10)], [Fraction(1, 50), Fraction(49, 50)]
    )

    assert dominating_mu_squared(one_way, Fraction(1, 1000)) == dominating_mu_squared(
        other, Fraction(1, 1000)
    )


def test_a_loss_that_tells_more_than_the_cut_is_not_dominated():
    telling = PrivacyLoss.from_distributions(
        [Fraction(1, 100), Fraction(99, 100)], [Fraction(0), Fraction(1)]
    )

    assert dominating_mu_squared(telling, Fraction(1, 200)) is None
    assert dominating_mu_squared(telling, Fraction(1, 50)) is not None


def test_figures_of_a_composition_add_up():
    gaussian, laplace = PrivacyLoss.gaussian(Fraction(1, 10)), PrivacyLoss.laplace(Fraction(1, 20))
    reserve = Fraction(1, 10)

    both = mu_squared_at(loss_facts(gaussian * 2 + laplace * 3), reserve, Fraction(0))

    assert both == Fraction(2, 100) + 3 * bounded_mu_squared(Fraction(1, 20), reserve)


@pytest.mark.parametrize(
    ("epsilon", "delta"),
    [(1, Fraction(1, 10**6)), (8, Fraction(1, 10**5)), (Fraction(1, 10), Fraction(1, 10**9))],
)
def test_the_largest_mu_squared_is_the_largest(epsilon, delta):
    result = largest_mu_squared(Fraction(epsilon), delta)

    assert gaussian_delta(Fraction(epsilon), result) <= delta
    assert gaussian_delta(Fraction(epsilon), result * (1 + Fraction(1, 1 << 36))) > delta
    assert largest_mu_squared(Fraction(epsilon), Fraction(0)) == 0
