"""Sequential audits of training: right guesses are bounded by the claim, and small mistakes are found."""

import itertools
import math

import numpy as np
import pytest

from audit.zoo.noise import gaussian, seeded
from hubbub.audit import Claim, audit_runs
from hubbub.audit.repeated_training import runs_needed
from hubbub.errors import InvalidInput


def gaussian_run(mu):
    return lambda coins: mu * coins + gaussian(1, coins.size)


@pytest.mark.parametrize("epsilon", [0.0, 1.0])
def test_right_guesses_are_bounded_by_enumeration(epsilon):
    """Three coins, each released by randomized response: all coins and all releases, exactly."""
    keep = 1 / (1 + math.exp(-epsilon))
    right = wrong = 0.0
    for coins in itertools.product([0, 1], repeat=3):
        for released in itertools.product([0, 1], repeat=3):
            chance = math.prod(keep if a == b else 1 - keep for a, b in zip(coins, released, strict=True)) / 8
            hits = sum(a == b for a, b in zip(coins, released, strict=True))
            right += chance * hits / 3
            wrong += chance * (3 - hits) / 3
    assert right == pytest.approx(math.exp(epsilon) * wrong)


def test_correct_runs_are_not_refuted():
    with seeded("runs"):
        result = audit_runs(gaussian_run(1.0), claim=Claim.gaussian(1.0), canaries=200, runs=30)
    assert not result.refuted
    assert 0.4 < result.lower < 1
    assert "no violation" in str(result)


def test_runs_with_twice_the_distance_are_refuted_as_planned():
    with seeded("runs"):
        result = audit_runs(gaussian_run(2.0), claim=Claim.gaussian(1.0), canaries=200, runs=60)
    assert result.refuted
    plan = runs_needed(math.erf(0.5 / math.sqrt(2)), math.erf(1 / math.sqrt(2)))
    assert result.runs <= 2 * plan
    assert runs_needed(0.5, 0.5) > 10**6


def test_black_box_losses_are_scores():
    """A model that memorizes: without noise on its weights, the losses of canaries tell who took part."""
    labels = np.sign(np.sin(np.arange(40)))

    def train(coins):
        weights = np.where(coins, labels, 0.0) + gaussian(0.25, coins.size)
        return -((weights - labels) ** 2)  # minus the loss of each canary

    with seeded("losses"):
        assert audit_runs(train, claim=Claim.approximate(1.0, 1e-5), canaries=40, runs=40).refuted


def test_scores_must_be_one_for_each_canary():
    with pytest.raises(InvalidInput, match="scores"):
        audit_runs(lambda coins: np.zeros(3), claim=Claim.gaussian(1), canaries=20)
