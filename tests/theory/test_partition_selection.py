"""Keys shown by truncated geometric noise: private exactly, for all a unit's keys at once, and optimal.

With e^−ε = q rational the chance of every set of keys is a fraction, and nothing is estimated.
"""

from fractions import Fraction
from functools import cache
from itertools import product

import pytest

from hubbub.mechanisms import TruncatedGeometricSelection
from theory.exact_laws import HALF, TWO_THIRDS, delta, epsilon_of, independent, is_law

CLOSE = Fraction(1, 1 << 150)
LAWS = [(HALF, 1), (HALF, 3), (TWO_THIRDS, 2), (Fraction(1, 5), 2), (Fraction(9, 10), 4)]
every_law = pytest.mark.parametrize(("q", "k"), LAWS, ids=str)
every_groups = pytest.mark.parametrize("groups", [1, 2, 3])


def noise(q, k):
    """Pr[x] ∝ q^|x| on −k…k."""
    weights = {x: q ** abs(x) for x in range(-k, k + 1)}
    return {x: weight / sum(weights.values()) for x, weight in weights.items()}


@cache
def chance(q, k, units):
    """The probability that a key of these units is kept: units + noise > k."""
    return sum((p for x, p in noise(q, k).items() if units + x > k), Fraction(0))


@cache
def law_of(q, k, database):
    """The law of the set of keys shown; a database says how many units each of all possible keys has."""
    chances = [chance(q, k, units) for units in database]
    return independent(*({True: p, False: 1 - p} for p in chances))


def neighbours(k, groups):
    """Databases that differ in a unit with up to `groups` keys; one or more of which may be its own."""
    keys = max(2, groups)
    levels = {1: range(2 * k + 2), 2: (0, 1, k, k + 1), 3: (0, 1, k)}[groups]
    for database in product(levels, repeat=keys):
        for has in product((0, 1), repeat=keys):
            if 0 < sum(has) <= groups:
                yield database, tuple(n + more for n, more in zip(database, has, strict=True))


@every_law
@every_groups
def test_all_keys_of_a_unit_cost_G_epsilon_and_the_exposure_delta(q, k, groups):
    claim = 1 - (1 - chance(q, k, 1)) ** groups
    largest = 0
    for x, y in neighbours(k, groups):
        without, within = law_of(q, k, x), law_of(q, k, y)
        assert is_law(without)
        assert is_law(within)
        largest = max(largest, *(delta(*pair, q**-groups) for pair in ((within, without), (without, within))))

    assert largest == claim, "neither more, nor less: it is attained by a unit with keys of its own"


@pytest.mark.sweep(7)
@every_law
@every_groups
def test_smaller_epsilon_costs_at_most_the_charge(q, k, groups):
    """The whole curve, of the law with e^−ε = q, against what the mechanism says it costs."""
    charged = TruncatedGeometricSelection(epsilon_of(1 / q), k, groups).loss()
    for ratio in (Fraction(1), 1 / q, q**-2):
        allowed = Fraction(charged.delta(epsilon_of(ratio))) + CLOSE
        for x, y in neighbours(k, groups):
            without, within = law_of(q, k, x), law_of(q, k, y)
            assert max(delta(within, without, ratio), delta(without, within, ratio)) <= allowed


@every_law
def test_noisy_count_is_randomized_response_with_infinity_mass(q, k):
    """Three kinds of outcomes, of losses ε, −ε and infinite: just the pair that (ε, δ) is charged by."""
    without = noise(q, k)
    within = {x + 1: p for x, p in without.items()}
    claim = chance(q, k, 1)
    kinds = {}
    for outcome, p in within.items():
        ratio = p / without[outcome] if outcome in without else None
        kinds[ratio] = kinds.get(ratio, 0) + p

    assert kinds == {None: claim, 1 / q: (1 - claim) / (1 + q), q: (1 - claim) * q / (1 + q)}


@every_law
def test_no_private_rule_keeps_a_key_with_a_larger_chance(q, k):
    """The paper's recursion: the most that (ε, δ) allows with one unit more, from the most with one less."""
    claim, most = chance(q, k, 1), Fraction(0)
    for units in range(1, 3 * k):
        # Pr[kept] ≤ e^ε·Pr[kept with one less] + δ, and Pr[not kept with one less] ≤ e^ε·Pr[not kept] + δ.
        most = min(most / q + claim, 1 - q * (1 - most - claim), Fraction(1))
        assert chance(q, k, units) == most


@every_law
def test_closed_form_of_the_paper_holds(q, k):
    """π_n = δ·(e^nε − 1)/(e^ε − 1) up to k + 1 units, and from there on its mirror image."""
    claim = chance(q, k, 1)
    for units in range(k + 2):
        assert chance(q, k, units) == claim * (q**-units - 1) / (1 / q - 1)
        assert chance(q, k, 2 * k + 1 - units) == 1 - chance(q, k, units)
    assert chance(q, k, 2 * k) < chance(q, k, 2 * k + 1) == 1


# What is shipped


@every_law
@every_groups
def test_the_shipped_cut_is_the_least_that_is_private(q, k, groups):
    """At the δ that k just reaches it is k; a little below it, one more."""
    claim = 1 - (1 - chance(q, k, 1)) ** groups
    epsilon = groups * epsilon_of(1 / q)
    slack = 1 + Fraction(1, 10)  # each key gets δ/G, which is a little less than 1 − (1 − δ)^(1/G)
    expected = [
        TruncatedGeometricSelection.of(max_groups=groups, epsilon=epsilon, delta=d, population=1).truncation
        for d in (claim * slack, claim / slack)
    ]
    fewest = next(cut for cut in range(1, 99) if groups * chance(q, cut, 1) <= claim * slack)

    assert expected[0] == fewest
    assert expected[1] > k
    if groups == 1:
        assert fewest == k
        exact = TruncatedGeometricSelection(epsilon, k, 1)
        assert (
            TruncatedGeometricSelection.of(
                max_groups=1, epsilon=epsilon, delta=exact.delta, population=1
            ).truncation
            == k
        )
        assert (
            TruncatedGeometricSelection.of(
                max_groups=1, epsilon=epsilon, delta=exact.delta * (1 - CLOSE), population=1
            ).truncation
            == k + 1
        )


@every_law
def test_the_shipped_chances_are_the_exact_ones(q, k):
    mechanism = TruncatedGeometricSelection(epsilon_of(1 / q), k, 1)
    for units in range(3 * k):
        low, high = mechanism.keep_probability_bounds(units)
        assert 0 <= high - low < CLOSE
        assert abs(low - chance(q, k, units)) < CLOSE
    assert abs(mechanism.delta - chance(q, k, 1)) < CLOSE


def test_shipped_rule_selects_above_the_cut(monkeypatch):
    mechanism = TruncatedGeometricSelection(Fraction(1), 2, 1)
    for units, x in product(range(6), range(-2, 3)):
        monkeypatch.setattr(TruncatedGeometricSelection, "_draw_noise", lambda self, size, x=x: x)
        assert mechanism.release([units]).value.tolist() == [0] * (units + x > 2)
