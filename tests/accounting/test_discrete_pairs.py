"""Finite laws: their moments from above, and cells of them, against mpmath."""

import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest

from hubbub.accounting import discrete_pairs
from hubbub.accounting.discrete_pairs import (
    DiscretePair,
    discrete_gaussian_pair,
    discrete_laplace_pair,
    epsilon_delta_pair,
    finite_pair,
    randomized_response_pair,
)
from hubbub.accounting.float_bounds import Uncertified

mp = mpmath.mp.clone()
mp.dps = 60
UNIT = 2.0**-53


@pytest.mark.parametrize(
    "pair",
    [
        epsilon_delta_pair(1e-9),
        epsilon_delta_pair(0.3),
        epsilon_delta_pair(29.0),
        epsilon_delta_pair(500.0),
        discrete_laplace_pair(2, 5),
        randomized_response_pair(Fraction(2, 3), 5),
        finite_pair([Fraction(1, 8), Fraction(7, 8)], [Fraction(1, 2), Fraction(1, 2)]),
    ],
    ids=str,
)
def test_log_moment_upper_is_an_upper_bound(pair):
    for c in map(mp.mpf, (1e-3, 0.5, 3.0, 60.0)):
        with mp.workdps(400):
            growth = mp.fsum(
                mp.mpf(p) * mp.exp(c * mp.mpf(loss)) for loss, p in zip(pair.losses, pair.p, strict=True)
            )
            if len(pair.losses) == 2 and pair.losses[0] == -pair.losses[1]:
                e = mp.mpf(pair.losses[0])
                growth = (mp.exp(c * e) + mp.exp(-(1 + c) * e)) / (1 + mp.exp(-e))
            truth = mp.log(growth)
        result = pair.log_moment_upper(float(c))
        assert truth * (1 - mp.mpf("1e-13")) - mp.mpf("2e-15") * (pair.losses[0] > 1e-3) <= result
        assert result <= truth * (1 + mp.mpf("1e-12")) + mp.mpf("1e-13")


def test_moments_beyond_doubles_are_accurate():
    e, z = mp.mpf(25), mp.mpc(40, 1)
    values = complex(epsilon_delta_pair(25.0).log_moment(np.array([complex(z)]))[0])
    truth = mp.log((mp.exp(z * e) + mp.exp(-(1 + z) * e)) / (1 + mp.exp(-e)))
    assert values.real == pytest.approx(float(truth.real), rel=1e-14)
    assert math.remainder(values.imag - float(truth.imag), 2 * math.pi) == pytest.approx(0, abs=1e-12)


def test_second_order_remainder_of_exp_is_enclosed():
    x = np.array([1e-12 + 1e-9j, 0.3 - 0.2j, 0.49 + 0j, 0.51 + 0j, 0.4j, -3 + 2j, 0j])
    for value, result in zip(x.tolist(), discrete_pairs.expm1_minus_x(x).tolist(), strict=True):
        truth = mp.expm1(mp.mpc(value)) - mp.mpc(value)
        assert abs(result - truth) <= 8 * UNIT * abs(truth) + (4 * UNIT if abs(value) >= 0.5 else 0)
    assert discrete_pairs.expm1_minus_x(np.array([0.25])).real.tolist() == pytest.approx(
        [math.expm1(0.25) - 0.25], rel=1e-14
    )


@pytest.mark.parametrize(
    "ratio", ["1e-400", "1e-9", "0.49", "0.51", "1", "1.0000000000000000001", "1.99", "2.01", "1e400"]
)
def test_logarithms_of_ratios_are_enclosed(ratio):
    exact = Fraction(ratio)
    truth = mp.log(mp.mpf(exact.numerator) / exact.denominator)
    assert abs(discrete_pairs.log_ratio(exact) - truth) <= 4 * UNIT * abs(truth)


def test_nonzero_probabilities_are_never_rounded_to_zero():
    tiny = Fraction(1, 10**400)
    pair = finite_pair([1 - tiny, tiny, 0], [1 - tiny, 0, tiny])
    assert pair.infinity_mass == pair.negative_infinity_mass == 5e-324
    assert (
        finite_pair([1, 0], [1, 0]).infinity_mass == finite_pair([1, 0], [1, 0]).negative_infinity_mass == 0
    )
    apart = finite_pair([1, 0], [0, 1])
    assert (apart.losses, apart.p, apart.q, apart.infinity_mass, apart.negative_infinity_mass) == (
        (0.0,),
        (0.0,),
        (0.0,),
        1.0,
        1.0,
    )


def test_subsampling_keeps_outcomes_impossible_under_one_distribution():
    pair = DiscretePair((1.0, -1.0), (0.5, 0.25), (0.2, 0.4), infinity_mass=0.25, negative_infinity_mass=0.4)
    removed, added = pair.poisson_subsampled(0.5, added=False), pair.poisson_subsampled(0.5, added=True)
    up, down = math.log(0.5 + 0.5 * math.e), math.log(0.5 + 0.5 / math.e)
    assert removed.losses == pytest.approx((down, up, math.log(0.5)))
    assert removed.p == pytest.approx((0.325, 0.35, 0.2))
    assert removed.q == pytest.approx((0.4, 0.2, 0.4))
    assert (removed.infinity_mass, removed.negative_infinity_mass) == (0.125, 0.0)
    assert added.losses == pytest.approx((-down, -up, -math.log(0.5)))
    assert (added.p, added.q) == (removed.q, removed.p)
    assert (added.infinity_mass, added.negative_infinity_mass) == (0.0, 0.125)
    whole = pair.poisson_subsampled(1.0, added=False)
    assert (whole.losses, whole.infinity_mass, whole.negative_infinity_mass) == ((-1.0, 1.0), 0.25, 0.4)
    assert pair.relative_mass_error < removed.relative_mass_error < 1e-14
    assert 3 * pair.relative_loss_error < removed.relative_loss_error < 4 * pair.relative_loss_error
    assert (
        DiscretePair((5.0,), (1.0,), (1.0,)).poisson_subsampled(0.5, added=False).relative_loss_error
        > 15 * pair.relative_loss_error
    )
    assert not removed.truncated
    assert DiscretePair((0.0,), (1.0,), (1.0,), truncated=True).poisson_subsampled(0.5, added=False).truncated


def test_bins_enclose_atoms_near_and_far_apart():
    pair = DiscretePair(
        (0.0, 0.5, 3.0, 9.0),
        (0.1, 0.2, 0.3, 0.4),
        tuple(p * math.exp(-x) for p, x in ((0.1, 0.0), (0.2, 0.5), (0.3, 3.0), (0.4, 9.0))),
    )
    masses = pair.bin_masses(np.array([-1.0, -0.5, 0.5, 3.0, 20.0, math.inf]))
    assert masses.p == pytest.approx([0, 0.3, 0.3, 0.4, 0])
    assert masses.loss[[1, 2, 3]] == pytest.approx(
        [math.log(0.3 / (0.1 + 0.2 * math.exp(-0.5))), 3, 9], rel=1e-14
    )
    assert np.isfinite(masses.loss).all()
    whole = pair.bin_masses(np.array([-1.0, 20.0]))
    assert whole.loss[0] == pytest.approx(math.log(sum(pair.p) / sum(pair.q)), rel=1e-14)
    assert whole.loss_error[0] > masses.loss_error[1] > 0
    assert whole.loss_error[0] < 1e-12
    assert masses.relative_mass_error.tolist() == [pair.relative_mass_error + 8 * UNIT] * 5
    # Losses as far apart as no double tells: from P alone.
    far = DiscretePair((0.0, 5000.0, 9000.0), (0.0, 0.25, 0.75), (0.5, 0.0, 0.0))
    assert far.bin_masses(np.array([4000.0, 10000.0])).loss[0] == pytest.approx(5000 - math.log(0.25))


@pytest.mark.slow
def test_distributions_on_a_million_integers_are_uncertified():
    assert len(discrete_laplace_pair(10**6, (1 << 20) - 1).losses) == 1 << 20
    with pytest.raises(Uncertified):
        discrete_laplace_pair(10**6, 1 << 20)
    wide = discrete_gaussian_pair(100, 1)
    assert len(wide.losses) == 804
    assert wide.truncated
    assert wide.support == (-math.inf, math.inf)
    assert not discrete_gaussian_pair(100, 0).truncated
    with pytest.raises(Uncertified):
        discrete_gaussian_pair(13_200**2, 1)
    with pytest.raises(Uncertified):
        epsilon_delta_pair(Fraction(1, 10**310))
    assert epsilon_delta_pair(0).losses == (0.0, -0.0)
