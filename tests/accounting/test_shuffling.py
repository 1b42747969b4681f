"""Shuffled reports: the clones' pair against exact enumeration."""

import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest

from hubbub.accounting import PrivacyLoss, shuffling
from hubbub.accounting.discrete_pairs import epsilon_delta_pair
from hubbub.accounting.float_bounds import Uncertified
from hubbub.errors import Unsupported

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


@pytest.mark.sweep(3)
@pytest.mark.slow
@pytest.mark.parametrize(("epsilon_0", "n"), [(1, 1), (1, 2), (1, 30), (0.2, 20), (3, 25)])
def test_shuffled_reports_against_exact_enumeration(epsilon_0, n):
    loss = PrivacyLoss.pure(epsilon_0).shuffled(n)
    for share in (0, 0.1, 0.5, 0.9):
        truth = exact_delta(epsilon_0, n, share * epsilon_0)
        low, high = loss.delta_bounds(share * epsilon_0)
        assert low <= truth * (1 + mp.mpf("1e-9"))
        assert truth * (1 - mp.mpf("1e-9")) <= high <= truth * (1 + mp.mpf("1e-4")) + mp.mpf("1e-12")


@pytest.mark.parametrize(("n", "chance"), [(1, 0.3), (7, 0.5), (40, 0.01), (1000, 0.37), (10**6, 0.5)])
def test_binomial_probabilities_are_accurate(n, chance):
    some = np.unique(np.linspace(0, n, 23).astype(int))
    near = np.unique(np.clip(n * chance + math.sqrt(n) * np.linspace(-4, 4, 9), 0, n).astype(int))
    for k, result in zip(
        (every := np.union1d(some, near)).tolist(),
        shuffling.binomial_probabilities(n, every, chance, 1 - chance),
        strict=True,
    ):
        truth = mp.binomial(n, k) * mp.mpf(chance) ** k * (1 - mp.mpf(chance)) ** (n - k)
        if truth > mp.mpf("1e-290"):
            assert abs(result - truth) <= mp.mpf("1e-11") * truth
        else:
            assert result <= 1e-280


def test_stirling_remainder_is_accurate_to_the_last_digits():
    n = np.array([1.0, 2.0, 7.0, 15.0, 16.0, 17.0, 25.0, 100.0, 1e6])
    for x, result in zip(n.tolist(), shuffling.stirling_error(n).tolist(), strict=True):
        truth = mp.loggamma(x + 1) - (mp.mpf(x) + mp.mpf("0.5")) * mp.log(x) + x - mp.log(2 * mp.pi) / 2
        assert abs(result - truth) <= (2e-15 if x < 16 else 2e-16)


def test_deviances_lose_no_digits():
    mean = 50.0
    x = mean * np.array([0.02, 0.5, 0.89, 0.9, 0.91, 0.999, 1.0, 1 + 1e-9, 1.05, 1.0999, 1.11, 3.0])
    for value, result in zip(x.tolist(), shuffling.deviance(x, mean).tolist(), strict=True):
        truth = mp.mpf(value) * mp.log(mp.mpf(value) / mean) + mean - value
        assert abs(result - truth) <= 1e-12 * truth


@pytest.mark.parametrize(("n", "chance"), [(0, 0.5), (10, 0.5), (10**4, 0.5), (10**6, 0.01)])
def test_window_holds_all_relevant_outcomes(n, chance):
    window = shuffling.outcome_window(n, chance)
    wide = 40 * math.sqrt(n * chance * (1 - chance)) + 502
    assert (np.diff(window) == 1).all()
    assert 0 <= window[0] <= max(0, n * chance - 0.95 * wide)
    assert min(n, n * chance + 0.95 * wide) <= window[-1] <= n
    assert window.size <= min(n + 1, 2 * wide + 2)
    assert shuffling.binomial_probabilities(n, window, chance, 1 - chance).sum() == pytest.approx(
        1, abs=1e-11
    )


def of_atoms(pair, epsilon):
    both = zip(pair.p, pair.q, strict=True)
    return pair.infinity_mass + math.fsum(max(0.0, p - math.exp(epsilon) * q) for p, q in both)


@pytest.mark.parametrize(
    ("bins", "outcomes", "close"),
    [(1 << 13, 1 << 21, 1e-9), (64, 1 << 21, 0.1), (1 << 13, 600, 4.0), (40, 600, 4.0)],
)
def test_coarser_outcomes_enclose_the_exact_curve(monkeypatch, bins, outcomes, close):
    monkeypatch.setattr(shuffling, "BINS", bins)
    monkeypatch.setattr(shuffling, "MAX_OUTCOMES", outcomes)
    up, down = (shuffling.clone_pair.__wrapped__(1.0, 25, upper=up) for up in (True, False))
    for pair in (up, down):
        assert math.fsum(pair.p) + pair.infinity_mass == pytest.approx(1, abs=1e-9)
        assert math.fsum(pair.q) <= 1 + 1e-9
        assert len(pair.losses) <= max(bins + 1, 400)
        assert max(pair.losses) <= 1 + 1e-9
    assert 0 < up.infinity_mass < 1e-280
    assert down.infinity_mass == 0
    assert math.fsum(down.q) == pytest.approx(1, abs=1e-9)
    for epsilon in (0.0, 0.05, 0.2, 0.5):
        truth = float(exact_delta(1, 25, epsilon))
        assert of_atoms(down, epsilon) * (1 - 1e-10) <= truth <= of_atoms(up, epsilon) * (1 + 1e-10)
        assert of_atoms(up, epsilon) <= truth * (1 + close) + close * 1e-2
        assert of_atoms(down, epsilon) >= truth * (1 - close) - close * 1e-2


@pytest.mark.parametrize("epsilon", [1e-9, 1e-4, 0.1, 20.0, 36.0, 40.0])
@pytest.mark.parametrize("n", [1, 2, 5])
def test_every_outcome_of_extreme_reports_keeps_its_digits(epsilon, n):
    """Each count of clones c and of ones a among c + 1: the masses and their ratio."""
    e = mp.mpf(epsilon)
    keep, lose = 1 / (1 + mp.exp(-e)), 1 / (1 + mp.exp(e))
    truth = []
    for c in range(n):
        chance = mp.binomial(n - 1, c) * mp.exp(-e * c) * (-mp.expm1(-e)) ** (n - 1 - c)
        for a in range(c + 2):
            half = [mp.binomial(c, b) / mp.mpf(2) ** c if 0 <= b <= c else mp.mpf(0) for b in (a - 1, a)]
            truth.append([chance * (x * half[0] + y * half[1]) for x, y in ((keep, lose), (lose, keep))])
    pair = shuffling.clone_pair(epsilon, n, upper=True)
    result = zip(pair.losses, pair.p, pair.q, strict=True)
    for (loss, p, q), (ours, theirs) in zip(result, truth, strict=True):
        assert abs(p - ours) <= pair.relative_mass_error / 10 * ours
        assert abs(q - theirs) <= pair.relative_mass_error / 10 * theirs
        assert abs(loss - mp.log(ours / theirs)) <= pair.relative_loss_error / 10 * max(e / 10**6, abs(loss))


@pytest.mark.parametrize("epsilon", [5, 28, 34, 40])
def test_single_report_is_not_amplified(epsilon):
    """Randomized response of a large ε: just below it, δ is still about the gap."""
    at = epsilon - Fraction(1, 1000)
    truth = -mp.expm1(mp.mpf("-0.001")) / (1 + mp.exp(-epsilon))
    low, high = PrivacyLoss.pure(epsilon).shuffled(1).delta_bounds(at)
    assert low <= truth <= high <= truth * (1 + mp.mpf("1e-6"))


def test_beyond_doubles_shuffling_gives_no_amplification():
    for epsilon, n in ((Fraction(1, 10**10), 5), (Fraction(41), 5), (Fraction(1), 10**9 + 1)):
        part = shuffling.ShuffledReports(epsilon, n)
        assert part.dominating_pair(added=False, upper=True) == epsilon_delta_pair(epsilon)
        with pytest.raises(Uncertified):
            part.dominating_pair(added=False, upper=False)
        assert part.max_loss == epsilon
    for epsilon in (Fraction(1, 10**9), Fraction(40)):
        part = shuffling.ShuffledReports(epsilon, 3)
        assert all(len(part.dominating_pair(added=False, upper=up).losses) > 2 for up in (True, False))


@pytest.mark.slow
def test_more_reports_hide_more_and_fewer_levels_hide_less(monkeypatch):
    losses = [PrivacyLoss.pure(1).shuffled(n).epsilon(1e-6) for n in (1, 100, 10_000)]
    assert losses == sorted(losses, reverse=True)
    assert losses[0] <= 1
    assert losses[-1] < 0.15
    fine = PrivacyLoss.pure(1).shuffled(400).epsilon(1e-6)
    monkeypatch.setattr(shuffling, "MAX_OUTCOMES", 1 << 13)
    shuffling.clone_pair.cache_clear()
    coarse = shuffling.clone_pair(1.0, 400, upper=True), shuffling.clone_pair(1.0, 400, upper=False)
    shuffling.clone_pair.cache_clear()
    assert all(len(atoms.losses) > 10 for atoms in coarse)
    from hubbub.accounting.pld_accountant import PldAccountant

    assert (
        PldAccountant([(coarse[1], 1)]).epsilon(1e-6)[0]
        <= fine
        <= PldAccountant([(coarse[0], 1)]).epsilon(1e-6)[1] * (1 + 1e-9)
    )


@pytest.mark.slow
def test_shuffled_reports_compose_and_are_bounded():
    many = PrivacyLoss.randomized_response(0.75).shuffled(1000) * 10
    assert many.epsilon() == pytest.approx(10 * math.log(3), rel=1e-12)
    assert PrivacyLoss.randomized_response(0.75).shuffled(1000).epsilon(1e-6) < many.epsilon(1e-6) < 10
    assert many.epsilon_bounds(1e-6).lower <= many.epsilon(1e-6)
    assert PrivacyLoss.pure(0).shuffled(10) == PrivacyLoss.pure(0)
    assert str(PrivacyLoss.pure(1).shuffled(10)) == "10 shuffled reports of ε = 1"
    assert PrivacyLoss.pure(Fraction(1, 2)).shuffled(100).for_group(2).epsilon() == 1


def test_add_remove_losses_are_not_shuffled():
    with pytest.raises(Unsupported, match="under add/remove"):
        PrivacyLoss.pure(1).poisson_subsampled(Fraction(1, 10)).shuffled(10)


@pytest.mark.parametrize("loss", [PrivacyLoss.gaussian(1), PrivacyLoss.approximate(1, 0.1)])
def test_only_pure_losses_are_shuffled(loss):
    with pytest.raises(Unsupported, match="pure"):
        loss.shuffled(10)
