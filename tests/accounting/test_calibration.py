"""The least noise for a promise: it holds, and a little less would not do."""

import math
from fractions import Fraction
from importlib import import_module

import pytest

from hubbub.accounting import PrivacyLoss, calibrate
from hubbub.errors import InvalidInput, Unsupported
from refusing import refused

RATE = Fraction(1, 100)
FAMILIES = {
    "one Gaussian": (lambda s: PrivacyLoss.gaussian(1 / s), 1, 1e-5),
    "many": (lambda s: PrivacyLoss.gaussian(1 / s) * 100, 1, 1e-5),
    "pure": (lambda s: PrivacyLoss.pure(1 / s) * 3, 2, 0),
    "Laplace": (lambda s: PrivacyLoss.laplace(1 / s) * 20, 1, 1e-6),
    "discrete": (PrivacyLoss.discrete_laplace, Fraction(1, 2), 0),
    "subsampled": (lambda s: PrivacyLoss.gaussian(1 / s).poisson_subsampled(RATE) * 1000, 2, 1e-5),
    "schedule": (
        lambda s: (
            PrivacyLoss.gaussian(1 / s).poisson_subsampled(RATE) * 300
            + PrivacyLoss.gaussian(1 / (2 * s)).poisson_subsampled(2 * RATE) * 300
            + PrivacyLoss.gaussian(1 / (4 * s))
        ),
        1,
        1e-6,
    ),
}


@pytest.mark.sweep(3)
@pytest.mark.parametrize("name", FAMILIES)
def test_calibrated_noise_meets_the_target_and_slightly_less_does_not(name):
    family, epsilon, delta = FAMILIES[name]
    noise = calibrate(family, epsilon, delta)
    result = family(Fraction(noise)).epsilon(delta)
    assert result <= epsilon
    assert result == pytest.approx(float(epsilon), rel=1e-7)
    less = family(Fraction(noise) * (1 - Fraction(1, 10**6)))
    assert less.epsilon_bounds(delta).lower > epsilon * (1 - 1e-9)


@pytest.mark.slow
def test_the_guess_does_not_change_the_result():
    family, epsilon, delta = FAMILIES["subsampled"]
    results = [calibrate(family, epsilon, delta, guess=guess) for guess in (Fraction(1, 2), 1, 30)]
    assert max(results) <= min(results) * (1 + 5e-8)


@pytest.mark.parametrize(
    ("family", "epsilon", "delta", "truth", "most"),
    [
        (lambda s: PrivacyLoss.gaussian(1 / s), 1, 1e-5, 3.730631634815942, 22),
        (lambda s: PrivacyLoss.gaussian(1 / s) * 100, 1, 1e-5, 37.30631634815942, 14),
        # Flat on one side and nothing on the other: 1 − e^(1 − 1/2s) is δ.
        (lambda s: PrivacyLoss.laplace(1 / s), 2, 1e-3, 0.5 / (1 - math.log1p(-1e-3)), 40),
        (lambda s: PrivacyLoss.pure(1 / s) * 3, 2, 0, 1.5, 7),
    ],
)
def test_the_least_noise_is_found_in_a_few_steps_from_any_guess(family, epsilon, delta, truth, most):
    for guess in (Fraction(1, 30), Fraction(5, 4), 30):
        calls = []
        noise_scale = calibrate(lambda s: calls.append(s) or family(s), epsilon, delta, guess=guess)  # noqa: B023
        assert truth * (1 - 1e-15) <= noise_scale <= truth * (1 + (1e-8 if delta else 2e-12))
        assert len(calls) <= most


def test_a_search_that_is_cut_short_still_meets_the_target(monkeypatch):
    monkeypatch.setattr(import_module("hubbub.accounting.calibration"), "MAX_STEPS", 2)
    noise = calibrate(lambda s: PrivacyLoss.gaussian(1 / s), 1, 1e-5)
    assert PrivacyLoss.gaussian(1 / Fraction(noise)).epsilon(1e-5) <= 1
    assert 3.73 < noise < 4.5


def test_calibration_works_without_delta_and_without_a_guess():
    calls = []
    assert calibrate(lambda s: calls.append(s) or PrivacyLoss.pure(1 / s), 2) == pytest.approx(0.5, rel=2e-12)
    assert calls[0] == 1


def test_the_target_is_met_by_the_reported_epsilon(monkeypatch):
    """ε(δ) and δ(ε) are bounded each by itself: here the first is a little looser."""
    read = PrivacyLoss.epsilon
    monkeypatch.setattr(PrivacyLoss, "epsilon", lambda self, delta=0: read(self, delta) * (1 + 3e-8))
    for delta, truth in ((1e-5, 3.730631634815942), (0, 1.0)):
        family = (lambda s: PrivacyLoss.gaussian(1 / s)) if delta else (lambda s: PrivacyLoss.pure(1 / s))
        noise_scale = calibrate(family, 1, delta)
        assert family(Fraction(noise_scale)).epsilon(delta) <= 1
        assert truth < noise_scale <= truth * (1 + 6e-8)


@pytest.mark.parametrize("bad", [0, -1, float("nan"), "1", None])
def test_the_target_epsilon_must_be_positive(bad):
    with refused(InvalidInput, match="epsilon"):
        calibrate(lambda s: PrivacyLoss.gaussian(1 / s), bad, 1e-5)
    with refused(InvalidInput, match="guess"):
        calibrate(lambda s: PrivacyLoss.gaussian(1 / s), 1, 1e-5, guess=bad)


def test_calibration_handles_guesses_and_targets_of_any_size():
    for guess in (Fraction(1, 10**400), 10**400):
        assert calibrate(lambda s: PrivacyLoss.gaussian(1 / s), 1, 1e-5, guess=guess) == pytest.approx(
            3.7306316
        )
    assert calibrate(lambda s: PrivacyLoss.pure(1 / s), Fraction(1, 10**50), 0) == pytest.approx(1e50)
    with refused(Unsupported, match="no noise"):
        calibrate(lambda s: PrivacyLoss.pure(1 / s), Fraction(1, 10**400), 0)


def test_unreachable_targets_are_refused():
    with refused(InvalidInput, match="delta"):
        calibrate(lambda s: PrivacyLoss.gaussian(1 / s), 1, 1)
    with refused(Unsupported, match="no noise"):
        calibrate(lambda s: PrivacyLoss.gaussian(1 / s), 1, 0)
    with refused(Unsupported, match="no noise"):
        calibrate(lambda _: PrivacyLoss.pure(Fraction(1, 10)), 1, 0)
    with refused(InvalidInput, match="family"):
        calibrate(lambda s: s, 1, 1e-5)
