"""Parts that select their key by their total: what a unit changes is within the noise's ε and δ.

With e^−1/b = q rational the chance of every table of keys and noisy parts is a fraction. Noise beyond ±`FAR`
is left out, and its chance is added to what is found.
"""

import math
from fractions import Fraction
from functools import cache
from itertools import product

import numpy as np
import pytest

from hubbub.mechanisms import Laplace, StabilityHistogram, VectorStabilityHistogram
from hubbub.mechanisms.noise_tails import laplace_sum_tail
from hubbub.sensitivity import Sensitivity
from theory.exact_laws import HALF, TWO_THIRDS, epsilon_of

FAR = 20
CASES = [  # q, how much a unit has in one key, the threshold
    (HALF, 1, 4),
    (HALF, 2, 6),
    (TWO_THIRDS, 1, 5),
    (TWO_THIRDS, 3, 7),
]
every_case = pytest.mark.parametrize(("q", "most", "threshold"), CASES, ids=str)


@cache
def draws(q, far):
    whole = (1 - q) / (1 + q)
    return {x: whole * q ** abs(x) for x in range(-far, far + 1)}


@cache
def law_of(q, threshold, parts, far=FAR):
    """The law of one key: its noisy parts, or that it is not shown."""
    if not any(parts):
        return {None: Fraction(1)}
    law = {}
    for noise in product(draws(q, far).items(), repeat=len(parts)):
        noisy = tuple(part + draw for part, (draw, _) in zip(parts, noise, strict=True))
        chance = Fraction(1)
        for _, each in noise:
            chance *= each
        seen = noisy if sum(noisy) >= threshold else None
        law[seen] = law.get(seen, Fraction(0)) + chance
    return law


def delta(p, r, ratio):
    return sum((max(Fraction(0), chance - ratio * r.get(seen, 0)) for seen, chance in p.items()), Fraction(0))


def mechanism(q, most, threshold, parts=2):
    noise = Laplace(1 / epsilon_of(1 / q), Sensitivity(most))
    return VectorStabilityHistogram(noise, threshold, 1, parts, most)


@pytest.mark.sweep(3)
@pytest.mark.slow
@every_case
def test_a_unit_changes_no_more_than_the_noise_allows_and_its_own_key_tells(q, most, threshold):
    claim = mechanism(q, most, threshold).delta
    missing = 2 * (1 - sum(draws(q, FAR).values()))
    reached = Fraction(0)
    for before in [(0, 0), (1, 0), (threshold - 1, 1)]:
        for added in product(range(most + 1), repeat=2):
            if not 0 < sum(added) <= most:
                continue
            after = tuple(n + more for n, more in zip(before, added, strict=True))
            without, within = (law_of(q, threshold, parts) for parts in (before, after))
            for p, r in ((within, without), (without, within)):
                # What is not enumerated is on either side; a pair at the edge has no partner there.
                edge = FAR - threshold
                inside = {seen: c for seen, c in p.items() if seen is None or max(map(abs, seen)) < edge}
                result = delta(inside, r, q**-most)
                assert result <= claim + missing
                reached = max(reached, result)
    assert reached >= claim * Fraction(9, 10)


@pytest.mark.sweep(2)
@pytest.mark.slow
@pytest.mark.parametrize("parts", [1, 2, 3, 5])
def test_delta_is_the_exact_chance_that_a_key_of_ones_own_is_shown(parts):
    q, most, threshold = TWO_THIRDS, 2, 9
    law = {0: Fraction(1)}
    for _ in range(parts):
        summed = {}
        for (one, p), (two, r) in product(law.items(), draws(q, 200).items()):
            if abs(one + two) <= 200:
                summed[one + two] = summed.get(one + two, Fraction(0)) + p * r
        law = {total: Fraction(round(chance * 2**200), 2**200) for total, chance in summed.items()}
    exact = sum(chance for total, chance in law.items() if total >= threshold - most)
    assert float(mechanism(q, most, threshold, parts).delta) == pytest.approx(float(exact), rel=1e-12)


def test_one_part_is_the_histogram_of_counts():
    noise = Laplace(Fraction(7), Sensitivity(6, l2_squared=12, linf=2))
    for groups, threshold in ((1, 20), (3, 40), (9, 99)):
        plain = StabilityHistogram(noise, threshold, groups)
        assert VectorStabilityHistogram(noise, threshold, groups, 1, 2).delta == pytest.approx(plain.delta)
        assert VectorStabilityHistogram(noise, threshold, groups, 1, 2).min_count() == plain.min_count()


@every_case
def test_a_threshold_that_forgets_the_noise_of_other_parts_is_caught(q, most, threshold):
    """The mutant: the threshold for one noisy number, where the total has the noise of two."""
    noise = Laplace(1 / epsilon_of(1 / q), Sensitivity(most))
    forgetful = StabilityHistogram(noise, threshold, 1).delta
    within = law_of(q, threshold, (most, 0))
    assert delta(within, {None: Fraction(1)}, q**-most) > forgetful


@every_case
def test_intervals_hold_given_that_a_key_is_shown(q, most, threshold):
    """Of each total, over all noisy parts: the interval of the first part holds as is asked for."""
    instance, confidence = mechanism(q, most, threshold), Fraction(8, 10)
    for parts in [(1, 0), (threshold // 2, 1), (threshold, 0), (threshold, 9)]:
        law = {seen: c for seen, c in law_of(q, threshold, parts).items() if seen is not None}
        noisy = np.array(list(law))
        missed = Fraction(0)
        for level, inside in instance.levels(noisy, confidence):
            if inside.any():
                width = instance.noise.error(level)
                out = inside & (np.abs(noisy[:, 0] - parts[0]) > width)
                missed += sum((law[tuple(row)] for row in noisy[out].tolist()), Fraction(0))
        assert missed / sum(law.values()) <= 1 - confidence


def test_huge_epsilon_takes_no_longer_and_is_bounded_from_above():
    """Chances below 2^-1200 are taken for this much: sums of ever more digits are not needed."""
    for epsilon in (1600, 1700, 10**7, 10**12):
        noise = Laplace.of(sensitivity=Sensitivity(1), epsilon=epsilon, allow_large_epsilon=True)
        instance = VectorStabilityHistogram.of(noise=noise, max_groups=3, parts=2, key_total=1, delta=1e-6)
        assert instance.threshold == 2
        assert Fraction(1, 2**1200) <= instance.delta <= Fraction(5, 2**1200)
        assert instance.min_count(0.95) == 2
        # A key at the threshold may be of a single unit, with a chance of nearly nothing: a wide interval.
        [(confidence, _), *_] = instance.levels(np.array([[2, 0], [50, 1]]))
        last, near = instance.levels(np.array([[2, 0], [50, 1]]))[-1]
        assert near[0]
        assert confidence <= last < 1
        assert Fraction(1, 2**1000) < 1 - last < Fraction(1, 2**989)  # none is closer to certainty


def test_far_tails_are_not_below_the_law():
    """Where the bound sets in, the exact chance is below it; one step before, it is computed."""
    noise = Laplace.of(sensitivity=Sensitivity(1), epsilon=1)
    edge = math.ceil(Fraction(7, 5) * 1202)
    for total in (edge - 1, edge, edge + 1, 2 * edge):
        instance = VectorStabilityHistogram(noise, total + 1, 1, 2, 1)
        low, high = laplace_sum_tail(Fraction(1), 2, total - 1, 4000)
        assert Fraction(high, 2**4001) <= instance.delta
        assert instance.delta == Fraction(1, 2**1200)
    near = VectorStabilityHistogram(noise, 801, 1, 2, 1)
    low, high = laplace_sum_tail(Fraction(1), 2, 799, 4000)
    assert Fraction(low, 2**4001) <= near.delta <= Fraction(high, 2**4001) * Fraction(1001, 1000)
