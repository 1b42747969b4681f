"""Counts that select their keys: what a unit changes is within the noise's ε and the chance of its own keys.

With e^−1/b = q rational the chance of every table of keys and noisy counts is a fraction.
"""

from fractions import Fraction
from functools import cache
from itertools import product

import pytest

from hubbub.mechanisms import Laplace, StabilityHistogram
from hubbub.sensitivity import Sensitivity
from theory.exact_laws import HALF, TWO_THIRDS, delta, epsilon_of, independent, is_law, laplace

CASES = [  # q, rows of a unit, the most of them in one key, its keys, the bar
    (HALF, 1, 1, 1, 4),
    (HALF, 2, 2, 2, 5),
    (HALF, 2, 1, 2, 3),
    (TWO_THIRDS, 3, 2, 2, 6),
    (TWO_THIRDS, 2, 2, 2, 3),
    (HALF, 4, 2, 3, 4),
]
every_case = pytest.mark.parametrize(("q", "rows", "most", "groups", "bar"), CASES, ids=str)


@cache
def law_of(q, bar, count, high):
    """The law of one key: its noisy count, or that it is not shown; `high` stands for all from there on."""
    if count == 0:
        return {None: Fraction(1)}
    law = {}
    for noisy, chance in laplace(q, count, min(0, bar - 1), high).items():
        seen = noisy if noisy >= bar else None
        law[seen] = law.get(seen, Fraction(0)) + chance
    return law


def moves(rows, most, groups, keys):
    """All that one unit may add."""
    for added in product(range(most + 1), repeat=keys):
        if 0 < sum(added) <= rows and sum(1 for each in added if each) <= groups:
            yield added


def claimed(q, rows, most, groups, bar):
    scale = 1 / epsilon_of(1 / q)
    noise = Laplace(scale, Sensitivity(rows, l2_squared=rows * most, linf=most))
    return StabilityHistogram(noise, bar, groups).delta


@pytest.mark.sweep(5)
@pytest.mark.slow
@every_case
def test_unit_changes_at_most_the_noise_and_its_own_keys(q, rows, most, groups, bar):
    claim, keys = claimed(q, rows, most, groups, bar), max(2, groups)
    levels = (0, 1, bar, bar + 2) if keys == 2 else (0, bar)
    high, reached = 2 * bar + 2 * most + 2, Fraction(0)  # beyond, all ratios are the same
    for database in product(levels, repeat=keys):
        for added in moves(rows, most, groups, keys):
            larger = tuple(n + more for n, more in zip(database, added, strict=True))
            without, within = (
                independent(*(law_of(q, bar, n, high) for n in counts)) for counts in (database, larger)
            )
            assert is_law(without)
            for p, r in ((within, without), (without, within)):
                result = delta(p, r, q**-rows)
                assert result <= claim
                reached = max(reached, result)
    # No less will do, but for a key that is touched by nothing.
    assert reached >= claim / 3


@every_case
def test_charged_loss_is_an_upper_bound(q, rows, most, groups, bar):
    scale = 1 / epsilon_of(1 / q)
    noise = Laplace(scale, Sensitivity(rows, l2_squared=rows * most, linf=most))
    mechanism = StabilityHistogram(noise, bar, groups)
    own = 1 - law_of(q, bar, most, bar + 9)[None]  # a unit with a key that nobody else has
    assert mechanism.loss().delta(rows * epsilon_of(1 / q)) >= float(own) * (1 - 1e-12)


def test_threshold_for_one_row_is_too_low_for_three():
    """The mutant: the bar of one row for units of three."""
    q, rows = HALF, 3
    scale = 1 / epsilon_of(1 / q)
    forgetful = StabilityHistogram(Laplace(scale, Sensitivity(1)), 4, 1).delta
    within = independent(law_of(q, 4, rows, 20))
    assert delta(within, {(None,): Fraction(1)}, q**-rows) > forgetful
