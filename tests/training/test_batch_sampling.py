"""Lots: what is drawn is what is accounted."""

import math
from fractions import Fraction

import numpy as np
import pytest

from hubbub.accounting import Budget, PrivacyLoss
from hubbub.errors import InvalidInput
from hubbub.training import PoissonSampler, ShuffledSampler, ShuffledSampling, max_steps
from hubbub.training.batch_sampling import parse_schedule, sample_units, shuffle
from internals import inject_bits


def one(_):
    return Fraction(1)


@pytest.mark.sweep(3)
@pytest.mark.parametrize(
    "rate", [Fraction(1, 3), Fraction(1, 2), Fraction(7, 1 << 20), Fraction(65535, 65536)]
)
def test_unit_is_sampled_with_exact_probability(rate):
    """All values of the two bytes that decide, and the exact coin for the one that does not."""
    chance = Fraction(0)
    for first in range(1 << 16):
        calls = []

        def source(count, first=first, calls=calls):
            calls.append(count)
            return first.to_bytes(2, "little") if len(calls) == 1 else bytes(count)

        with inject_bits(source):
            draws = sample_units(rate, 1).size == 1
        if len(calls) == 1 or calls[1] == 0:
            chance += Fraction(int(draws), 1 << 16)
        else:
            # The rest of q·2^16 decides: an exact coin, which has its own tests.
            low = rate.numerator * (1 << 16) // rate.denominator
            assert first == low
            chance += (rate * (1 << 16) - low) / (1 << 16)
    assert chance == rate


def test_shuffle_is_uniform():
    """The order is that of the keys, so all orders of different keys are alike; equal keys are drawn anew."""
    seen = set()
    for keys in ((1, 2, 3), (1, 3, 2), (2, 1, 3), (2, 3, 1), (3, 1, 2), (3, 2, 1)):
        stream = iter([np.array(keys, dtype=np.uint64).tobytes()])
        with inject_bits(lambda _, stream=stream: next(stream)):
            seen.add(tuple(shuffle(np.arange(3))))
    assert len(seen) == 6
    stream = iter([np.array(keys, dtype=np.uint64).tobytes() for keys in ((5, 5, 1), (3, 2, 1))])
    with inject_bits(lambda _: next(stream)):
        assert shuffle(np.arange(3)).tolist() == [2, 1, 0]


def test_lots_have_no_repeats_and_are_independent():
    """False alarms: below 1e-12, by 7.5 standard deviations of 3 sums."""
    lots = PoissonSampler.of(sampling_rate=0.2, steps=400, mu_squared=one)
    units = 500
    inside = np.zeros((400, units))
    for step in range(400):
        lot = lots.draw(step, units)
        assert len(set(lot.tolist())) == lot.size
        inside[step, lot] = 1
    centred = (inside - 0.2) / math.sqrt(0.16)

    def is_centred(products):
        return abs(products.sum()) < 7.5 * math.sqrt(products.size)

    assert is_centred(centred)
    assert is_centred(centred[1:] * centred[:-1])  # a unit in one lot and in the next
    assert is_centred(centred[:, 1:] * centred[:, :-1])  # a unit and the one beside it
    order = [int(lots.draw(step, units)[0]) for step in range(400)]
    assert abs(np.mean(order) - 249.5) < 7.5 * units / math.sqrt(12 * 400)


def test_data_is_only_accessed_by_sampling():
    lots = PoissonSampler.of(sampling_rate=1, steps=3, mu_squared=one)
    assert sorted(lots.draw(0, 5).tolist()) == [0, 1, 2, 3, 4]
    assert lots.draw(0, 0).size == 0


def test_privacy_loss_matches_sampler():
    plain = PoissonSampler.of(sampling_rate=0.01, steps=1000, mu_squared=lambda _: Fraction(100, 121))
    assert (
        plain.privacy_loss
        == PrivacyLoss.gaussian(Fraction(10, 11)).poisson_subsampled(Fraction(1, 100)) * 1000
    )
    rates, noises = [0.1, 0.2, 0.1], [Fraction(1), Fraction(2), Fraction(1)]
    table = PoissonSampler.of(sampling_rate=rates, steps=3, mu_squared=noises.__getitem__)
    parts = [
        PrivacyLoss.gaussian_from_mu_squared(m).poisson_subsampled(r)
        for r, m in zip(rates, noises, strict=True)
    ]
    assert table.privacy_loss == parts[0] + parts[1] + parts[2]
    assert table.loss_of(range(1, 3)) == parts[1] + parts[2]


def test_sampling_rate_one_has_no_amplification():
    assert PoissonSampler.of(sampling_rate=1, steps=4, mu_squared=one).privacy_loss == PrivacyLoss.gaussian(2)


def test_shuffled_lots_have_one_size_and_are_charged_per_epoch():
    lots = ShuffledSampler.of(population=10, lot_size=4, steps=5, mu_squared=lambda step: Fraction(step + 1))
    # Epochs of two lots: steps 0–1, 2–3 and 4, each of twice the worst of its μ.
    assert lots.privacy_loss == PrivacyLoss.gaussian_from_mu_squared(4 * (2 + 4 + 5))
    first, second = lots.draw(0, 10), lots.draw(1, 10)
    assert first.size == second.size == 4
    assert not set(first.tolist()) & set(second.tolist())
    with pytest.raises(InvalidInput, match="population"):
        lots.draw(0, 11)
    assert ShuffledSampling(10, 4).lot_size == 4


def test_max_steps_is_maximal():
    target, rate, sigma = Budget(1, 1e-5), 0.2, 5
    steps = max_steps(target, sampling_rate=rate, noise_multiplier=sigma)
    step = PrivacyLoss.gaussian(1 / Fraction(sigma)).poisson_subsampled(rate)
    assert (step * steps).epsilon(1e-5) <= 1 < (step * (steps + 1)).epsilon(1e-5)
    with pytest.raises(InvalidInput, match="a single step"):
        max_steps(Budget(0.01, 1e-9), sampling_rate=0.5, noise_multiplier=0.3)


@pytest.mark.parametrize("rate", [1.5, 0, -1, float("nan"), [0.1, 2, 0.1], lambda step: 1 + step, "fast"])
def test_invalid_sampling_rates_are_refused(rate):
    with pytest.raises(InvalidInput):
        PoissonSampler.of(sampling_rate=rate, steps=3, mu_squared=one)


def test_schedule_table_needs_one_entry_per_step():
    with pytest.raises(InvalidInput, match="3 entries"):
        parse_schedule([1, 2, 3], 4, "clip")
