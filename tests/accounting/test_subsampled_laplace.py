"""Sampled Laplace noise, and atoms beside a density: moments, decay and bounds, against more digits."""

import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest

from hubbub.accounting import PrivacyLoss, subsampled_laplace
from hubbub.accounting.composition import FOURIER, PLD
from hubbub.accounting.discrete_pairs import randomized_response_pair
from hubbub.accounting.dominating_pairs import LaplacePair
from hubbub.accounting.float_bounds import Uncertified
from hubbub.accounting.fourier_accountant import FourierAccountant
from hubbub.accounting.pld_accountant import PldAccountant
from hubbub.accounting.smooth_partitions import legendre_rule
from hubbub.accounting.subsampled_laplace import SubsampledLaplacePair
from hubbub.accounting.subsampled_pairs import SubsampledPair

mp = mpmath.mp.clone()
mp.dps = 30

LAWS = [(1.0, 0.1), (0.1, 0.01), (5.0, 0.01), (0.5, 0.001), (10.0, 0.3)]
UNIT = 2.0**-48


def moment(pair, z):
    """E[e^(zL)]: both atoms, and the integral between them."""
    z, r, q = mp.mpc(z), mp.mpf(pair.epsilon), mp.mpf(pair.sampling_rate)
    exponent = -z if pair.added else 1 + z

    def power(loss):
        return (1 - q + q * mp.exp(loss)) ** exponent

    between = mp.quad(
        lambda loss: mp.exp(-(loss + r) / 2) / 4 * power(loss), mp.linspace(-r, r, 2 * int(r) + 4)
    )
    return power(-r) / 2 + mp.exp(-r) / 2 * power(r) + between


@pytest.mark.sweep(7)
@pytest.mark.slow
@pytest.mark.parametrize("added", [False, True])
@pytest.mark.parametrize(("epsilon", "rate"), LAWS)
@pytest.mark.parametrize("z", [0.5, 3 + 1j, 5 + 20j, 10 + 100j])
def test_moments_of_sampled_laplace_noise_are_as_close_as_they_say(epsilon, rate, added, z):
    pair = SubsampledLaplacePair(epsilon, rate, added=added)
    at = np.array([complex(z)])
    value, true = complex(pair.log_moment(at)[0]), moment(pair, z)
    most = moment(pair, at[0].real).real

    off = abs(mp.exp(mp.mpc(value)) - true) / most
    assert off <= UNIT * (pair.moment_error(at)[0] + abs(value))
    assert pair.derivatives(float(at[0].real))[0] == pytest.approx(float(mp.log(most)), rel=1e-12)


@pytest.mark.parametrize("added", [False, True])
@pytest.mark.parametrize(("epsilon", "rate"), LAWS)
@pytest.mark.parametrize("tilt", [0.3, 4.0, 30.0])
def test_transforms_of_sampled_laplace_noise_decay_as_they_say(epsilon, rate, added, tilt):
    """From each t on, and by its variance before the atoms have turned."""
    pair = SubsampledLaplacePair(epsilon, rate, added=added)
    low, high = pair.support
    start = pair.derivatives(tilt)
    t = np.concatenate([np.geomspace(0.01, 60, 300) / (high - low), [0.05 / math.sqrt(start[2])]])
    z = tilt + 1j * np.sort(t)
    true = pair.log_moment(z).real - start[0]
    from_there_on = np.maximum.accumulate(true[::-1])[::-1]
    bound = pair.decay(np.sort(t), tilt)

    assert (bound >= from_there_on - 1e-11).all()
    assert (bound <= 0).all()


def test_sampled_laplace_noise_decays_like_its_variance_at_first():
    pair = SubsampledLaplacePair(0.5, 0.01, added=False)
    variance = pair.derivatives(5.0)[2]
    t = 0.3 / math.sqrt(variance)
    assert pair.decay(np.array([t]), 5.0)[0] == pytest.approx(-variance * t * t / 2, rel=0.1)


@pytest.mark.parametrize(
    ("epsilon", "rate", "steps", "delta"),
    [("1", "0.1", 1000, 1e-5), ("0.1", "0.01", 1000, 1e-5), ("1", "0.01", 100, 1e-6), ("2", "0.3", 500, 1e-9),
     ("0.5", "0.001", 10_000, 1e-6)],
)  # fmt: skip
def test_epsilon_of_sampled_laplace_noise_is_close_and_agrees_with_the_lattice(epsilon, rate, steps, delta):
    loss = PrivacyLoss.laplace(Fraction(epsilon)).poisson_subsampled(Fraction(rate)) * steps
    bounds = loss.epsilon_bounds(delta)

    assert bounds.method == FOURIER
    assert bounds.upper - bounds.lower <= 1e-8 * bounds.upper
    for added in (False, True):
        pair = SubsampledPair(LaplacePair(float(Fraction(epsilon))), float(Fraction(rate)), added)
        with np.errstate(all="ignore"):
            low, high = PldAccountant([(pair, steps)], accuracy=1e-3, max_points=1 << 14).epsilon(delta)
        assert low <= bounds.upper * (1 + 1e-9)
        if not added:
            assert bounds.lower <= high * (1 + 1e-9)


def test_few_steps_that_do_not_decay_are_left_to_the_lattice():
    loss = PrivacyLoss.laplace(2).poisson_subsampled(Fraction(3, 10)) * 50
    bounds = loss.epsilon_bounds(1e-9)
    assert bounds.method == PLD
    assert bounds.upper - bounds.lower <= 1e-6 * bounds.upper


def test_quadrature_of_sampled_laplace_noise_is_enclosed(monkeypatch):
    """Few points in each panel: the error is as large as is said, and is not without it."""
    monkeypatch.setattr(subsampled_laplace, "POINTS", 6)
    monkeypatch.setattr(subsampled_laplace, "PANELS", (1,))
    subsampled_laplace.make_rule.cache_clear()
    try:
        pair = SubsampledLaplacePair(1.5, 0.25, added=False)
        at = np.array([4 + 3j])
        value = complex(pair.log_moment(at)[0])
        off = abs(mp.exp(mp.mpc(value)) - moment(pair, at[0])) / moment(pair, 4).real
        assert off <= UNIT * (pair.moment_error(at)[0] + abs(value))
        monkeypatch.setattr(SubsampledLaplacePair, "log_error", lambda *_: -700.0)
        assert off > UNIT * (pair.moment_error(at)[0] + abs(value))
    finally:
        subsampled_laplace.make_rule.cache_clear()


def test_nodes_and_weights_of_the_rule_are_right_to_some_units():
    at, weight = legendre_rule(40)
    for x, w in zip(at.tolist(), weight.tolist(), strict=True):
        root = mp.findroot(lambda y: mp.legendre(at.size, y), mp.mpf(x))
        slope = at.size * (root * mp.legendre(at.size, root) - mp.legendre(at.size - 1, root)) / (root**2 - 1)
        assert abs(x - root) <= 2.0**-53
        assert abs(w * (1 - root**2) * slope**2 / 2 - 1) <= 2.0**-52


@pytest.mark.parametrize("other", [PrivacyLoss.gaussian(Fraction(1, 2)) * 10, PrivacyLoss.laplace(1) * 300])
def test_atoms_beside_a_density_are_summed_by_the_fourier_integral(other):
    loss = PrivacyLoss.randomized_response(Fraction(3, 5)) * 50 + other
    bounds = loss.epsilon_bounds(1e-5)
    pairs = [(event.dominating_pair(added=False, upper=True), count) for event, count in loss.alternatives[0]]
    with np.errstate(all="ignore"):
        low, high = PldAccountant(pairs, accuracy=1e-4, max_points=1 << 15).epsilon(1e-5)

    assert bounds.method == FOURIER
    assert bounds.upper - bounds.lower <= 1e-8 * bounds.upper
    assert low <= bounds.upper
    assert bounds.lower <= high


def test_moments_of_atoms_are_as_close_as_they_say():
    pair = randomized_response_pair(Fraction(3, 4), 5)
    for z in (0.5, 3 + 1j, 20 + 300j):
        at = np.array([complex(z)])
        value = complex(pair.log_moment(at)[0])
        p, other = mp.mpf(3) / 4, mp.mpf(1) / 16
        exact = [(p, mp.log(12)), (other, -mp.log(12)), (3 * other, mp.mpf(0))]
        true, most = (
            mp.fsum(mass * mp.exp(w * loss) for mass, loss in exact) for w in (mp.mpc(z), at[0].real)
        )
        assert abs(mp.exp(mp.mpc(value)) - true) / most <= UNIT * (pair.moment_error(at)[0] + abs(value))


def test_atoms_alone_do_not_decay():
    accountant = FourierAccountant([(randomized_response_pair(Fraction(3, 4), 2), 100)], None)
    with pytest.raises(Uncertified):
        accountant.epsilon(1e-5)
