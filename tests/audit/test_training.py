"""An audit stays below the proven ε of a correct trainer, and catches those broken on purpose."""

import math

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from audit.zoo.noise import seeded
from hubbub.accounting import PrivacyLoss
from hubbub.audit import Claim, audit_runs, audit_training, white_box
from hubbub.audit.training import _tail_bound, epsilon_lower_bound
from hubbub.errors import InvalidInput
from hubbub.mechanisms import laplace_gaussian
from hubbub.noise import rounded_gaussian
from hubbub.training import clipping, make_private

DOUBT = 1e-10
"""How likely a false alarm is."""


def trainer(sampling_rate=0.9, steps=2, noise_multiplier=20.0, width=60, lot_size=20):
    model = nn.Sequential(nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 2))
    return make_private(
        model,
        torch.optim.SGD(model.parameters(), lr=0.01),
        (torch.randn(2, width), torch.randint(0, 2, (2,))),
        loss=F.cross_entropy,
        clipping_norm=1.0,
        sampling_rate=sampling_rate,
        steps=steps,
        noise_multiplier=noise_multiplier,
        lot_size=lot_size,
        account=None,
        allow_large_epsilon=True,
    )


def audit_of(of, canaries=1500):
    return audit_training(of, canaries=canaries, delta=1e-15, confidence=1 - DOUBT)


def test_audit_accepts_a_correct_trainer():
    result = audit_of(trainer())
    assert result.epsilon_lower <= result.epsilon_upper
    assert not result.violates_bound
    assert "at most" in str(result)


def test_audit_detects_little_noise():
    """Hardly any noise: ε is large, and the audit says so without passing it."""
    result = audit_of(trainer(noise_multiplier=0.3))
    assert 1 < result.epsilon_lower < result.epsilon_upper


def test_audit_detects_a_layer_without_noise(monkeypatch):
    def noise(scale, size):
        draws = rounded_gaussian(scale, size=size)
        draws[: 60 * 60 + 60] = 0  # the first layer
        return draws

    monkeypatch.setattr(laplace_gaussian, "rounded_gaussian", noise)
    assert audit_of(trainer()).violates_bound


def test_audit_detects_clipping_off_by_a_factor(monkeypatch):
    # Three times is seen by most audits at 95 %; so much by all, with no doubt left and with almost no δ.
    monkeypatch.setattr(clipping, "_CLIP_SHARE", 15.0)
    assert audit_of(trainer(noise_multiplier=5.0), canaries=3000).violates_bound


def test_audit_detects_noise_for_the_mean_on_the_sum(monkeypatch):
    monkeypatch.setattr(
        laplace_gaussian, "rounded_gaussian", lambda scale, size: rounded_gaussian(scale // 20, size=size)
    )
    assert audit_of(trainer()).violates_bound


def test_audit_detects_an_example_repeated_within_a_lot(monkeypatch):
    broken = trainer(sampling_rate=1, steps=1, noise_multiplier=5.0)
    lots = broken.schedule.sampler
    object.__setattr__(lots, "draw", lambda step, units: np.repeat(np.arange(units), 12))
    assert audit_of(broken, canaries=3000).violates_bound


def test_audit_detects_reused_noise(monkeypatch):
    stored = {}

    def noise(scale, size):
        return stored.setdefault(size, rounded_gaussian(scale, size=size)).copy()

    monkeypatch.setattr(laplace_gaussian, "rounded_gaussian", noise)
    assert audit_of(trainer(sampling_rate=0.3, steps=8)).violates_bound


def test_audited_run_is_charged_and_restored():
    of = trainer(steps=1)
    real = of._examples, of._method
    audit_of(of)
    assert (of._examples, of._method) == real
    assert of.step == 1
    with pytest.raises(InvalidInput, match="has begun"):
        audit_of(of)
    with pytest.raises(InvalidInput, match="more canaries than parameters"):
        audit_training(trainer(), canaries=10**6)


@pytest.mark.parametrize("epsilon", [0.0, 0.5, 2.0])
def test_randomized_response_stays_within_the_tail_bound(epsilon):
    """Without δ the bound is the exact binomial tail of the best attack, so it is met with equality."""
    n, accuracy = 12, 1 / (1 + math.exp(-epsilon))
    for right in range(n + 1):
        tail = sum(math.comb(n, k) * accuracy**k * (1 - accuracy) ** (n - k) for k in range(right, n + 1))
        assert _tail_bound(n, n, right, epsilon, 0.0) == pytest.approx(tail, rel=1e-9)


def test_lower_bound_falls_with_confidence_and_delta():
    assert epsilon_lower_bound(100, 100, 50, 0.0, 0.05) == 0
    sharp = epsilon_lower_bound(1000, 1000, 900, 0.0, 0.05)
    assert 0 < epsilon_lower_bound(1000, 1000, 900, 1e-4, 0.05) < sharp < math.log(9)
    assert epsilon_lower_bound(1000, 1000, 900, 0.0, 1e-9) < sharp


def test_lower_bound_of_a_gaussian_is_below_its_epsilon():
    """Many canaries, one Gaussian answer each: the best half-way guesses, against the analytic curve."""
    generator = np.random.default_rng(0)
    coins = generator.random(20_000) < 0.5
    scores = coins + generator.normal(0, 1, coins.size)
    order = np.argsort(scores)
    right = int(coins[order[-300:]].sum() + (~coins[order[:300]]).sum())
    lower_bound = epsilon_lower_bound(coins.size, 600, right, 1e-6, 0.01)
    assert 1 < lower_bound < PrivacyLoss.gaussian(1).epsilon(1e-6)


# Several runs


def small_trainer(width=24):
    model = nn.Linear(width, 8)
    return make_private(
        model,
        torch.optim.SGD(model.parameters(), lr=0.01),
        (torch.zeros(2, width), torch.zeros(2, dtype=torch.long)),
        loss=F.cross_entropy,
        clipping_norm=1.0,
        sampling_rate=1,
        steps=1,
        noise_multiplier=1.0,
        lot_size=10,
        account=None,
        allow_large_epsilon=True,
    )


@pytest.mark.long
def test_clipping_norm_twice_too_high_is_found(monkeypatch):
    monkeypatch.setattr(clipping, "_CLIP_SHARE", 2.0)
    with seeded("twice"):
        result = audit_runs(white_box(small_trainer), claim=Claim.gaussian(1.0), canaries=150, runs=60)
    assert result.refuted


@pytest.mark.long
def test_correct_trainer_is_not_refuted():
    with seeded("trainer"):
        result = audit_runs(white_box(small_trainer), claim=Claim.gaussian(1.0), canaries=150, runs=25)
    assert not result.refuted
    assert result.lower > 0.3
