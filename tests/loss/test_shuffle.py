"""Shuffled reports: the clones' pair against exact enumeration."""

import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest

from hubbub.errors import Unsupported
from hubbub.loss import Loss, shuffle

mp = mpmath.mp.clone()
mp.dps = 30


def exact_delta(epsilon_0, n, epsilon):
    """Both counts, all of them."""
    clone, keep = mp.exp(-mp.mpf(epsilon_0)), 1 / (1 + mp.exp(-mp.mpf(epsilon_0)))
    total = mp.mpf(0)
    for c in range(n):
        chance = mp.binomial(n - 1, c) * clone**c * (1 - clone) ** (n - 1 - c)
        half = [mp.binomial(c, a) / mp.mpf(2) ** c for a in range(c + 1)] + [mp.mpf(0)]
        for a in range(c + 2):
            before = half[a - 1] if a else mp.mpf(0)
            p, q = keep * before + (1 - keep) * half[a], (1 - keep) * before + keep * half[a]
            total += chance * max(mp.mpf(0), p - mp.exp(mp.mpf(epsilon)) * q)
    return total


@pytest.mark.parametrize(("epsilon_0", "n"), [(1, 1), (1, 2), (1, 30), (0.2, 20), (3, 25)])
def test_shuffled_reports_against_exact_enumeration(epsilon_0, n):
    loss = Loss.pure(epsilon_0).shuffled(n)
    for share in (0, 0.1, 0.5, 0.9):
        truth = exact_delta(epsilon_0, n, share * epsilon_0)
        low, high = loss.delta_bounds(share * epsilon_0)
        assert low <= truth * (1 + mp.mpf("1e-9"))
        assert truth * (1 - mp.mpf("1e-9")) <= high <= truth * (1 + mp.mpf("1e-4")) + mp.mpf("1e-12")


@pytest.mark.parametrize(("n", "chance"), [(1, 0.3), (7, 0.5), (40, 0.01), (1000, 0.37), (10**6, 0.5)])
def test_binomial_chances(n, chance):
    some = np.unique(np.linspace(0, n, 23).astype(int))
    near = np.unique(np.clip(n * chance + math.sqrt(n) * np.linspace(-4, 4, 9), 0, n).astype(int))
    for k, found in zip(
        (every := np.union1d(some, near)).tolist(), shuffle._binomial(n, every, chance), strict=True
    ):
        truth = mp.binomial(n, k) * mp.mpf(chance) ** k * (1 - mp.mpf(chance)) ** (n - k)
        if truth > mp.mpf("1e-290"):
            assert abs(found - truth) <= mp.mpf("1e-11") * truth
        else:
            assert found <= 1e-280


def test_more_reports_hide_more_and_fewer_levels_hide_less(monkeypatch):
    losses = [Loss.pure(1).shuffled(n).epsilon(1e-6) for n in (1, 100, 10_000)]
    assert losses == sorted(losses, reverse=True)
    assert losses[0] <= 1
    assert losses[-1] < 0.15
    fine = Loss.pure(1).shuffled(400).epsilon(1e-6)
    monkeypatch.setattr(shuffle, "_MOST_OUTCOMES", 1 << 13)
    shuffle._clones.cache_clear()
    coarse = shuffle._clones(1.0, 400, up=True), shuffle._clones(1.0, 400, up=False)
    shuffle._clones.cache_clear()
    assert all(len(atoms.losses) > 10 for atoms in coarse)
    from hubbub.loss.composed import Composed

    assert (
        Composed([(coarse[1], 1)]).epsilon(1e-6)[0]
        <= fine
        <= Composed([(coarse[0], 1)]).epsilon(1e-6)[1] * (1 + 1e-9)
    )


def test_shuffled_reports_compose_and_are_bounded():
    many = Loss.response(0.75).shuffled(1000) * 10
    assert many.epsilon() == pytest.approx(10 * math.log(3), rel=1e-12)
    assert Loss.response(0.75).shuffled(1000).epsilon(1e-6) < many.epsilon(1e-6) < 10
    assert many.bounds(1e-6).lower <= many.epsilon(1e-6)
    assert Loss.pure(0).shuffled(10) == Loss.pure(0)
    assert str(Loss.pure(1).shuffled(10)) == "10 shuffled reports of ε = 1"
    assert Loss.pure(Fraction(1, 2)).shuffled(100).for_group(2).epsilon() == 1


def test_what_is_about_units_added_or_removed_is_not_shuffled():
    with pytest.raises(Unsupported, match="added or removed"):
        Loss.pure(1).sampled(Fraction(1, 10)).shuffled(10)


@pytest.mark.parametrize("loss", [Loss.gaussian(1), Loss.approximate(1, 0.1)])
def test_only_what_is_pure_is_shuffled(loss):
    with pytest.raises(Unsupported, match="pure"):
        loss.shuffled(10)
