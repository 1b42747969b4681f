"""(ε, δ) and the privacy loss: |loss| ≤ ε with probability 1 − δ is enough for (ε, δ), and not needed."""

from fractions import Fraction
from itertools import product

import pytest

from hubbub import PrivacyLoss
from hubbub.noise.enclosures import normal_central
from theory.exact_laws import chance_of_loss_above, delta, epsilon_of, grid_laws, worst_ratio

LEVELS = [Fraction(1), Fraction(3, 2), Fraction(2), Fraction(3)]
LAWS = [dict(enumerate(law)) for law in grid_laws(3, 8)]


@pytest.mark.slow
def test_a_loss_that_is_rarely_above_epsilon_is_epsilon_delta_privacy():
    """All pairs of laws on three outcomes in eighths: δ(ε) ≤ Pr[loss > ε], so the direction that holds."""
    for p, r in product(LAWS, repeat=2):
        for level in LEVELS:
            assert delta(p, r, level) <= chance_of_loss_above(p, r, level)


def test_epsilon_delta_privacy_does_not_bound_the_loss_by_epsilon():
    """The other direction fails: (ln 2, 1/100)-private both ways, yet half the time the loss is above."""
    p = {0: Fraction(1, 2), 1: Fraction(1, 2)}
    r = {0: Fraction(49, 200), 1: Fraction(151, 200)}
    level, allowed = Fraction(2), Fraction(1, 100)

    assert delta(p, r, level) == allowed
    assert delta(r, p, level) == 0
    assert chance_of_loss_above(p, r, level) == Fraction(1, 2)


def test_probability_of_a_large_loss_has_no_bound_below_one():
    """Nearly certain to lose more than ε, with a δ as small as one likes."""
    for n in (10, 1000, 10**6):
        sure = 1 - Fraction(1, n)
        p = {0: sure, 1: 1 - sure}
        r = {0: sure / 2 - Fraction(1, n**2), 1: 1 - sure / 2 + Fraction(1, n**2)}
        assert delta(p, r, Fraction(2)) == Fraction(2, n**2)
        assert chance_of_loss_above(p, r, Fraction(2)) == sure


@pytest.mark.slow
def test_epsilon_delta_bounds_the_loss_above_a_larger_epsilon():
    """Pr[loss ≥ ε'] ≤ δ(ε)/(1 − e^(ε−ε')) for ε' > ε, on all pairs; attained on some."""
    attained = 0
    for p, r in product(LAWS, repeat=2):
        for low, high in (
            (Fraction(1), Fraction(2)),
            (Fraction(3, 2), Fraction(3)),
            (Fraction(2), Fraction(3)),
        ):
            chance = sum(p[o] for o in p if p[o] >= high * r[o] and p[o])
            bound = delta(p, r, low) / (1 - low / high)
            assert chance <= bound
            attained += 0 < chance == bound
    assert attained


@pytest.mark.slow
def test_pure_privacy_is_a_loss_that_is_never_above_epsilon():
    """δ = 0: there all three readings are one."""
    for p, r in product(LAWS, repeat=2):
        for level in LEVELS:
            is_bounded = worst_ratio(p, r) <= level
            assert is_bounded == (delta(p, r, level) == 0) == (chance_of_loss_above(p, r, level) == 0)


@pytest.mark.parametrize("mu", [Fraction(1, 4), Fraction(1), Fraction(3)])
@pytest.mark.parametrize("epsilon", [Fraction(1, 2), Fraction(1), Fraction(2)])
def test_a_gaussian_needs_less_delta_than_its_chance_of_a_large_loss(mu, epsilon):
    """The shipped curve δ(ε) of the Gaussian is below Pr[loss > ε] = Φ(μ/2 − ε/μ), the looser reading."""
    at = mu / 2 - epsilon / mu
    inside = normal_central(abs(at), 128)
    low = Fraction((1 << 128) - inside[1] if at < 0 else (1 << 128) + inside[0], 2 << 128)

    assert PrivacyLoss.gaussian(mu).delta(epsilon) < low


@pytest.mark.slow
@pytest.mark.parametrize("e_epsilon", [Fraction(2), Fraction(3)])
def test_shipped_curve_covers_every_epsilon_delta_mechanism(e_epsilon):
    """On all pairs in eighths that are (ε, δ) both ways, the shipped curve bounds δ at ε = 0 too."""
    for p, r in product(LAWS, repeat=2):
        both = max(delta(p, r, e_epsilon), delta(r, p, e_epsilon))
        if 0 < both < 1:
            claimed = PrivacyLoss.approximate(epsilon_of(e_epsilon), both).delta(0)
            assert delta(p, r, Fraction(1)) <= claimed
