"""Logarithms of mixtures keep their digits, however small or large."""

import math

import mpmath
import numpy as np
import pytest

from hubbub.accounting.float_bounds import inverse_log_mixture, log1p, log_mixture

mp = mpmath.mp.clone()
mp.dps = 60
LOSSES = [
    0.0,
    *(sign * x for x in (1e-300, 1e-18, 1e-3, 0.3, 1.0, 5.0, 40.0, 699.0, 701.0, 2e4) for sign in (1, -1)),
]
RATES = [1e-12, 0.01, 0.3, 0.5, 0.7, 0.999]


def close(result, truth, units=32):
    return abs(result - truth) <= units * mp.mpf(2) ** -53 * abs(truth) + mp.mpf("1e-320")


@pytest.mark.parametrize("rate", RATES)
def test_log_mixture_is_accurate_to_the_last_digits(rate):
    q = mp.mpf(rate)
    values = log_mixture(np.array(LOSSES), rate)
    for loss, value in zip(LOSSES, values.tolist(), strict=True):
        truth = mp.log1p(q * mp.expm1(mp.mpf(loss)))
        assert close(value, truth), loss
    assert (log_mixture(np.array([LOSSES, LOSSES]), np.array([[rate], [rate]])) == values).all()


def test_log_mixture_at_rate_one_is_the_identity():
    losses = np.array([-1.0, 0.0, 3.0])
    for function in (log_mixture, inverse_log_mixture):
        same = function(losses, 1.0)
        assert same.tolist() == losses.tolist()
        assert same is not losses
    rows = log_mixture(np.array([[0.5], [0.5]]), np.array([[1.0], [0.25]]))
    assert rows[0, 0] == pytest.approx(0.5, rel=1e-15)
    assert log_mixture(np.array([-math.inf, math.inf]), 0.25).tolist() == [math.log(0.75), math.inf]


@pytest.mark.parametrize("rate", RATES)
def test_inverse_log_mixture_inverts_it(rate):
    q, bottom = mp.mpf(rate), math.log1p(-rate)
    ratios = [-0.6, -0.5, -0.4, -0.1, -1e-9, 0.0, 1e-15, 0.1, 0.9, 1.0, 1.1, 3.0, 50.0, 900.0]
    ratios += [bottom + 1e-3, bottom + 1e-9, bottom - 1e-9, bottom - 1.0, bottom + 0.3]
    for ratio, result in zip(ratios, inverse_log_mixture(np.array(ratios), rate).tolist(), strict=True):
        if ratio <= bottom:
            assert result == -math.inf
            continue
        odds = 1 + mp.expm1(mp.mpf(ratio)) / q
        truth = mp.log(odds) if odds > 0 else -mp.inf
        # A unit of the ratio is so much of the loss.
        slope = mp.exp(ratio) / (q * odds)
        assert abs(result - truth) <= mp.mpf(2) ** -49 * (
            abs(truth) + slope * (abs(mp.mpf(ratio)) + abs(bottom) / 8)
        ), ratio


@pytest.mark.parametrize(
    "x", [1e-30 + 1e-20j, 1e-9j, -0.3 + 0.2j, 0.4 - 0.4j, 0.6j, -0.9 + 0.01j, 3 - 40j, 1e100 + 0j, -0.49 + 0j]
)
def test_complex_logarithms_are_accurate(x):
    values, truth = complex(log1p(np.array([x]))[0]), mp.log(1 + mp.mpc(x))
    assert abs(values - truth) <= mp.mpf(2) ** -50 * abs(truth)
    assert close(values.real, truth.real, 2000)
