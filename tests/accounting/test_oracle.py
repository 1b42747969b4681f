"""A second opinion: dp-accounting's privacy loss distributions, within the error they claim themselves."""

import math
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hubbub.accounting import PrivacyLoss

dp_accounting = pytest.importorskip("dp_accounting")
pld = pytest.importorskip("dp_accounting.pld")

STEP = 1e-4
NUMBERS = st.fractions(Fraction(1, 2), 3, max_denominator=20)


def second_opinion(events, delta):
    accountant = pld.PLDAccountant(value_discretization_interval=STEP)
    for event, count in events:
        accountant.compose(event, count)
    return accountant.get_epsilon(delta)


def agree(loss, events, delta, steps):
    """Theirs is above the truth by their grid: a step for each mechanism at most, and a share of δ."""
    theirs = second_opinion(events, delta)
    low, high = loss.epsilon_bounds(delta)
    if math.isinf(theirs):
        return
    assert low <= theirs + 1e-6
    slack = STEP * math.sqrt(steps) * 4 + STEP + 1e-6
    assert theirs - slack <= high * (1 + 1e-6)


@settings(max_examples=4)
@given(NUMBERS, NUMBERS, st.integers(1, 12), st.integers(0, 12), st.sampled_from([1e-3, 1e-6]))
def test_laplace_and_gaussian_agree_with_dp_accounting(scale, sigma, laplaces, gaussians, delta):
    loss = PrivacyLoss.laplace(1 / scale) * laplaces + PrivacyLoss.gaussian(1 / sigma) * gaussians
    events = [(dp_accounting.LaplaceDpEvent(float(scale)), laplaces)]
    if gaussians:
        events.append((dp_accounting.GaussianDpEvent(float(sigma)), gaussians))
    agree(loss, events, delta, laplaces + gaussians)


@settings(max_examples=5)
@given(
    st.sampled_from([Fraction(1, 1000), Fraction(1, 50), Fraction(1, 5)]),
    st.fractions(Fraction(4, 5), 4, max_denominator=20),
    st.sampled_from([200, 1000, 3000]),
    st.sampled_from([1e-4, 1e-6]),
)
def test_sampled_gaussians_agree_with_dp_accounting(rate, sigma, steps, delta):
    loss = PrivacyLoss.gaussian(1 / sigma).poisson_subsampled(rate) * steps
    event = dp_accounting.PoissonSampledDpEvent(float(rate), dp_accounting.GaussianDpEvent(float(sigma)))
    agree(loss, [(event, steps)], delta, steps)


@settings(max_examples=6)
@given(st.fractions(1, 4, max_denominator=10), st.integers(1, 20), st.sampled_from([1e-3, 1e-6]))
def test_discrete_noise_agrees_with_dp_accounting(scale, count, delta):
    theirs = pld.privacy_loss_distribution.from_discrete_laplace_mechanism(
        float(1 / scale), value_discretization_interval=STEP
    ).self_compose(count)
    low, high = (PrivacyLoss.discrete_laplace(scale) * count).epsilon_bounds(delta)
    assert low <= theirs.get_epsilon_for_delta(delta) + 1e-6
    assert theirs.get_epsilon_for_delta(delta) - STEP * (count + 1) <= high * (1 + 1e-6)
    theirs = pld.privacy_loss_distribution.from_discrete_gaussian_mechanism(
        float(scale), value_discretization_interval=STEP
    ).self_compose(count)
    low, high = (PrivacyLoss.discrete_gaussian(scale**2) * count).epsilon_bounds(delta)
    assert low <= theirs.get_epsilon_for_delta(delta) + 1e-6
    assert theirs.get_epsilon_for_delta(delta) - STEP * (count + 1) <= high * (1 + 1e-6)
