"""The privacy loss of one outcome, against the laws written out."""

from fractions import Fraction

import mpmath
import pytest

from hubbub import Gaussian, InvalidInput, Laplace, RandomizedResponse, Sensitivity
from refusing import refused

mp = mpmath.mp.clone()
mp.dps = 60


def rounded_normal(x, sigma):
    """Pr[noise = x], by tails: the difference of distribution functions would be 0 far out."""
    x, sigma = abs(mp.mpf(x)), mp.mpf(sigma)
    return (mp.erfc((x - 0.5) / sigma / mp.sqrt(2)) - mp.erfc((x + 0.5) / sigma / mp.sqrt(2))) / 2


@pytest.mark.parametrize("outcome", [-40, -3, 0, 1, 2, 17, 300])
def test_loss_at_an_outcome_is_its_log_likelihood_ratio(outcome):
    laplace = Laplace.of(sensitivity=2, epsilon=1)
    assert laplace.loss_at(outcome, 2, 0) == pytest.approx((abs(outcome) - abs(outcome - 2)) / 2, abs=1e-12)
    for sigma in (1, 3, 10):
        gaussian = Gaussian(Fraction(sigma), Sensitivity(2))
        truth = mp.log(rounded_normal(outcome - 2, sigma)) - mp.log(rounded_normal(outcome, sigma))
        assert gaussian.loss_at(outcome, 2, 0) == pytest.approx(float(truth), rel=1e-11, abs=1e-11)
        assert gaussian.loss_at(outcome, 0, 2) == pytest.approx(-float(truth), rel=1e-11, abs=1e-11)
        assert gaussian.loss_at(outcome, 5, 5) == 0


def test_loss_at_any_laplace_outcome_is_at_most_epsilon():
    mechanism = Laplace.of(sensitivity=1, epsilon=0.5, real=True)
    outcome = mechanism.release(0.25).value
    assert abs(mechanism.loss_at(outcome, 0.25, 1.25)) <= mechanism.loss().epsilon()
    assert mechanism.loss_at(100, 0.25, 1.25) == pytest.approx(-0.5, rel=1e-4)


def test_response_that_matches_neither_truth_has_loss_zero():
    mechanism = RandomizedResponse(Fraction(3, 5), 3)
    assert mechanism.loss_at(2, 0, 1) == 0
    assert (
        mechanism.loss_at(0, 0, 1) == -mechanism.loss_at(1, 0, 1) == pytest.approx(mechanism.loss().epsilon())
    )
    assert mechanism.loss_at(1, 1, 1) == 0


def test_impossible_outcomes_are_refused():
    with refused(InvalidInput, match="grid"):
        Laplace.of(sensitivity=1, epsilon=1).loss_at(0.5, 0, 1)
    with refused(InvalidInput, match="category"):
        RandomizedResponse.coin().loss_at(2, 0, 1)
    for bad in (float("nan"), "1", None, True):
        with refused(InvalidInput):
            Laplace.of(sensitivity=1, epsilon=1).loss_at(bad, 0, 1)
