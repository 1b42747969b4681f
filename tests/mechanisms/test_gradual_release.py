"""Gradual release: the coarser law is exact, and all looks together cost what the finest costs."""

import math
from fractions import Fraction

import numpy as np
import pytest

from hubbub.errors import InvalidInput
from hubbub.mechanisms import Laplace
from hubbub.sensitivity import Sensitivity

RANGE = 60


def law(scale):
    """The discrete Laplace law, on −RANGE … RANGE."""
    a = math.exp(-1 / scale)
    return {k: (1 - a) / (1 + a) * a ** abs(k) for k in range(-RANGE, RANGE + 1)}


def further_noise(scale, monkeypatch):
    """The law of what turns noise of half the scale into noise of this scale: all draws, weighted."""
    mechanism = Laplace(Fraction(scale) / 2, Sensitivity(1))
    a = math.exp(-1 / scale)
    signs = {0: 1 / (1 + a), -1: a / (1 + a)}  # a draw is 0 or more, or below
    out = {}
    for first, one in signs.items():
        for second, two in signs.items():
            for draw, weight in law(scale).items():
                draws = iter([(scale / 2, 0), (scale, first), (scale, second), (scale, draw)])

                def sample(of_scale, size, draws=draws):
                    expected, number = next(draws)
                    assert (of_scale, size) == (expected, 1)
                    return np.array([number])

                monkeypatch.setattr("hubbub.mechanisms.laplace_gaussian.discrete_laplace", sample)
                coarse, fine = mechanism.release_gradually([0], 2)
                noise = int(coarse.value[0] - fine.value[0])
                out[noise] = out.get(noise, 0) + one * two * weight
    monkeypatch.undo()
    return out


@pytest.mark.parametrize("scale", [1, 1.5, 3])
def test_the_coarser_law_is_exact(scale, monkeypatch):
    further, fine, coarse = further_noise(scale, monkeypatch), law(scale / 2), law(scale)
    assert sum(further.values()) == pytest.approx(1, abs=1e-8)
    for k in range(-8, 9):
        sum_law = sum(fine.get(k - w, 0) * weight for w, weight in further.items())
        assert sum_law == pytest.approx(coarse[k], rel=1e-9)


def largest_loss(joint):
    """The largest loss of all outcomes, of the coarse look alone and of both, of values 0 and 1."""
    places, every = range(-8, 9), range(-RANGE, RANGE)
    coarse = {
        y: math.log(sum(joint(y, z, 0) for z in every) / sum(joint(y, z, 1) for z in every)) for y in places
    }
    both = [
        math.log(joint(y, z, 0) / joint(y, z, 1))
        for y in places
        for z in places
        if joint(y, z, 0) > 1e-300 and joint(y, z, 1) > 1e-300
    ]
    return max(map(abs, coarse.values())), max(map(abs, both))


def test_looking_twice_costs_what_the_finer_look_costs(monkeypatch):
    scale = 2
    further, fine = further_noise(scale, monkeypatch), law(scale / 2)

    def joint(y, z, value):  # the coarse look y and the fine one z
        return fine.get(z - value, 0) * further.get(y - z, 0)

    coarse, both = largest_loss(joint)
    assert coarse <= 1 / scale + 1e-9
    assert both <= 2 / scale + 1e-9  # whatever was seen first, and whoever decided by it to go on

    coarse_law = law(scale)

    def mutant(y, z, value):  # two looks with noise of their own
        return coarse_law.get(y - value, 0) * fine.get(z - value, 0)

    assert largest_loss(mutant)[1] > 2.9 / scale


def test_each_release_has_half_the_noise_of_the_one_before():
    noise = Laplace.of(sensitivity=1, epsilon=Fraction(1, 2))
    releases = list(noise.release_gradually([0] * 4000, 3))
    assert [float(each.loss.epsilon()) for each in releases] == [0.125, 0.25, 0.5]
    for release, scale in zip(releases, (8, 4, 2), strict=True):
        # E|X| is about b, with a deviation of b/63 over 4,000 draws: seven of them have a chance below 1e-11.
        assert np.abs(release.value).mean() == pytest.approx(scale, rel=7 / 63 + 0.02)
    # They agree where nothing was added, in a quarter of all cases, and where 0 was drawn.
    shared = np.mean(releases[1].value == releases[2].value)
    assert 0.17 < shared < 0.45


@pytest.mark.parametrize("value", [5, [0.5, 1.5]])
def test_only_vectors_of_integers_are_released_gradually(value):
    with pytest.raises(InvalidInput):
        list(Laplace.of(sensitivity=1, epsilon=1).release_gradually(value, 2))
    with pytest.raises(InvalidInput):
        list(Laplace.of(sensitivity=1, epsilon=1, real=True).release_gradually([1, 2], 2))
