"""All engines together: reference values, agreement, extremes, and what other accountants got wrong."""

import itertools
import math
import resource
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accounting.vectors import BETAS, DELTAS, EPSILONS, SIGMAS
from hubbub.accounting import Bounds, PrivacyLoss, composition, parallel_composition, subsampled_pairs
from hubbub.accounting.composition import CLOSED_FORM, FOURIER, PLD, RENYI
from hubbub.accounting.float_bounds import Uncertified
from hubbub.accounting.fourier_accountant import FourierAccountant
from hubbub.accounting.pld_accountant import PldAccountant
from hubbub.errors import InvalidInput, Unsupported
from refusing import refused


def make_one(kind, *numbers):
    exact = [Fraction(number) for number in numbers]
    match kind:
        case "gaussian":
            return PrivacyLoss.gaussian(1 / exact[0]) * int(exact[1])
        case "laplace":
            return PrivacyLoss.laplace(1 / exact[0]) * int(exact[1])
        case "pure":
            return PrivacyLoss.pure(exact[0]) * int(exact[1])
        case "approximate":
            return PrivacyLoss.approximate(*exact[:2]) * int(exact[2])
        case "discrete_gaussian":
            return PrivacyLoss.discrete_gaussian(exact[0]) * int(exact[1])
        case "sampled":
            return PrivacyLoss.gaussian(1 / exact[1]).poisson_subsampled(exact[0]) * int(exact[2])
    return PrivacyLoss.laplace(Fraction(1, 2)) * 10 + PrivacyLoss.gaussian(Fraction(1, 2)) * 10


CLOSE = {CLOSED_FORM: (1e-12, 1e-12), PLD: (1e-6, 1e-6), FOURIER: (1e-7, 1e-6)}
"""How far above the truth, and how far apart, at most."""


def encloses(result, lower, upper):
    lower, upper = Fraction(lower), Fraction(upper)
    assert Fraction(result.lower) <= upper
    assert Fraction(result.upper) >= lower
    above, apart = CLOSE[result.method]
    assert Fraction(result.upper) <= upper * (1 + Fraction(above))
    assert result.upper - result.lower <= apart * result.upper


@pytest.mark.parametrize(("what", "delta", "lower", "upper"), EPSILONS)
def test_published_values_are_enclosed(what, delta, lower, upper):
    loss = make_one(*what)
    encloses(loss.epsilon_bounds(Fraction(delta)), lower, upper)
    assert loss.epsilon(Fraction(delta)) == loss.epsilon_bounds(Fraction(delta)).upper


@pytest.mark.parametrize(("what", "epsilon", "lower", "upper"), DELTAS)
def test_published_deltas_are_enclosed(what, epsilon, lower, upper):
    loss = make_one(*what)
    encloses(loss.delta_bounds(Fraction(epsilon)), lower, upper)
    if Fraction(epsilon) == 0:
        assert loss.advantage() == loss.delta_bounds(0).upper


@pytest.mark.parametrize(("alpha", "lower", "upper"), BETAS)
def test_published_tradeoffs_are_enclosed(alpha, lower, upper):
    beta = Fraction(PrivacyLoss.gaussian(1).tradeoff(Fraction(alpha)))
    assert Fraction(lower) * (1 - Fraction(1, 10**12)) <= beta <= Fraction(upper)


@pytest.mark.parametrize(("epsilon", "delta", "lower", "upper"), SIGMAS)
def test_published_sigmas_are_reproduced(epsilon, delta, lower, upper):
    from hubbub.accounting import calibrate, largest_mu

    exact = 1 / largest_mu(Fraction(epsilon), Fraction(delta))
    assert Fraction(lower) <= exact <= Fraction(upper) * (1 + Fraction(1, 10**12))
    noise_scale = calibrate(lambda sigma: PrivacyLoss.gaussian(1 / sigma), Fraction(epsilon), Fraction(delta))
    assert Fraction(lower) <= Fraction(noise_scale) <= Fraction(upper) * (1 + Fraction(1, 10**7))


# ---- engines against each other


@pytest.mark.sweep(5)
@pytest.mark.parametrize(
    ("loss", "delta"),
    [
        (PrivacyLoss.gaussian(Fraction(1, 2)) * 30, 1e-6),
        (PrivacyLoss.gaussian(1).poisson_subsampled(Fraction(1, 20)) * 200, 1e-5),
        (PrivacyLoss.gaussian(2).poisson_subsampled(Fraction(1, 2)) * 10, 1e-8),
        (PrivacyLoss.gaussian(2).poisson_subsampled(Fraction(1, 2)), 1e-5),
        (PrivacyLoss.gaussian(1).poisson_subsampled(Fraction(9, 10)), 1e-3),
        (PrivacyLoss.pure(2).poisson_subsampled(Fraction(1, 3)), 1e-5),
        (PrivacyLoss.pure(1) + PrivacyLoss.gaussian(1), 1e-6),
        (PrivacyLoss.laplace(1), 1e-3),
    ],
    ids=str,
)
def test_accountants_agree(loss, delta):
    """The lattice, asked by itself, encloses what the others say; Rényi divergences lie above."""
    (way,) = loss.compositions
    bounds = loss.epsilon_bounds(delta)
    lattice = [
        PldAccountant(
            tuple((part.dominating_pair(added=added, upper=True), count) for part, count in way.events),
            accuracy=1e-6,
        ).epsilon(delta)
        for added in (False, True)
    ]
    assert max(low for low, _ in lattice) <= bounds.upper
    assert max(high for _, high in lattice) >= bounds.lower
    assert bounds.upper <= way.divergence.epsilon(delta) * (1 + 1e-9)


@settings(max_examples=15)
@given(
    st.lists(
        st.sampled_from(
            [
                PrivacyLoss.pure(Fraction(1, 5)),
                PrivacyLoss.laplace(Fraction(1, 2)),
                PrivacyLoss.gaussian(Fraction(1, 3)),
                PrivacyLoss.randomized_response(Fraction(3, 5)),
                PrivacyLoss.discrete_gaussian(9),
                PrivacyLoss.approximate(Fraction(1, 10), Fraction(1, 10**8)),
            ]
        ),
        min_size=1,
        max_size=4,
    ),
    st.sampled_from([1e-7, 1e-3]),
)
def test_the_order_of_composition_does_not_matter(losses, delta):
    forwards = sum(losses[1:], losses[0])
    backwards = sum(losses[-2::-1], losses[-1])
    assert forwards == backwards
    assert hash(forwards) == hash(backwards)
    bounds = forwards.epsilon_bounds(delta)
    assert bounds.lower <= bounds.upper
    # One more is never cheaper, and never dearer than by what it costs alone.
    more = (forwards + losses[0]).epsilon(delta)
    assert more >= bounds.lower
    assert forwards.epsilon(delta) <= sum(loss.epsilon(delta / len(losses)) for loss in losses) * (1 + 1e-9)


@pytest.mark.parametrize(
    "loss",
    [
        PrivacyLoss.laplace(1) * 5,
        PrivacyLoss.gaussian(1).poisson_subsampled(Fraction(1, 10)) * 200,
        PrivacyLoss.pure(Fraction(1, 2)) * 7,
    ],
    ids=str,
)
def test_the_curve_falls_and_is_convex_in_the_odds(loss):
    epsilons = [0.0, 0.2, 0.5, 0.9, 1.4]
    deltas = [loss.delta_bounds(epsilon) for epsilon in epsilons]
    for one, other in itertools.pairwise(deltas):
        assert other.lower <= one.upper
    odds = [math.exp(epsilon) for epsilon in epsilons]
    for k in range(1, 4):
        share = (odds[k] - odds[k - 1]) / (odds[k + 1] - odds[k - 1])
        chord = (1 - share) * deltas[k - 1].upper + share * deltas[k + 1].upper
        assert deltas[k].lower <= chord * (1 + 1e-12)


def test_more_noise_a_smaller_rate_or_fewer_steps_cost_less():
    def epsilon(rate=Fraction(1, 100), sigma=Fraction(1), steps=500, delta=1e-5):
        return (PrivacyLoss.gaussian(1 / sigma).poisson_subsampled(rate) * steps).epsilon(delta)

    at = epsilon()
    assert epsilon(rate=Fraction(1, 101)) < at
    assert epsilon(sigma=Fraction(11, 10)) < at
    assert epsilon(steps=490) < at
    assert epsilon(delta=2e-5) < at


# ---- what is told


def test_infinity_masses_are_composed_exactly():
    loss = PrivacyLoss.approximate(Fraction(1, 10), Fraction(1, 100)) * 3
    infinity_mass = 1 - Fraction(99, 100) ** 3
    assert loss.cost().delta == infinity_mass
    assert loss.epsilon(infinity_mass - Fraction(1, 10**9)) == math.inf
    assert loss.epsilon(infinity_mass) == pytest.approx(0.3)
    assert loss.epsilon_bounds(infinity_mass).lower == pytest.approx(0.3)
    assert loss.epsilon(infinity_mass + Fraction(1, 10**3)) < 0.3
    assert Fraction(loss.delta(0.3)) >= infinity_mass
    assert loss.delta(0.3) == pytest.approx(float(infinity_mass), rel=1e-15)


def test_infinity_masses_composed_many_times_are_rounded_safely():
    loss = PrivacyLoss.approximate(0, Fraction(1, 10**9 + 7)) * 10**7
    low, high = loss.compositions[0].infinity_mass_bounds
    assert low < high < low * (1 + Fraction(1, 10**100))
    truth = -math.expm1(10**7 * math.log1p(-1 / (10**9 + 7)))
    assert float(low) == pytest.approx(truth, rel=1e-12)
    assert loss.epsilon(high + Fraction(1, 10**20)) == 0
    assert loss.epsilon(low / 2) == math.inf
    assert loss.epsilon_bounds((low + high) / 2) == (0.0, math.inf)


def test_infinite_losses_of_a_finite_pair_are_part_of_delta():
    loss = PrivacyLoss.from_distributions(
        [Fraction(1, 2), Fraction(1, 2), 0], [Fraction(1, 4), Fraction(1, 2), Fraction(1, 4)]
    )
    # Q's own outcome has probability ¼: told when the unit is added.
    assert loss.epsilon(Fraction(1, 5)) == math.inf
    assert loss.epsilon() == math.inf
    assert loss.delta(5) == pytest.approx(0.25, rel=1e-12)
    assert loss.delta_bounds(0).lower <= 0.25 <= loss.delta(0)


# ---- what cannot be certified


def test_bounds_name_the_renyi_method_if_nothing_better_is_certified(monkeypatch):
    def uncertified(*_):
        raise Uncertified

    composition.bounds_of_pairs.cache_clear()
    for kind in (PldAccountant, FourierAccountant):
        for name in ("epsilon", "delta"):
            monkeypatch.setattr(kind, name, uncertified)
    for loss in (
        PrivacyLoss.gaussian(1).poisson_subsampled(Fraction(1, 10)) * 500,
        PrivacyLoss.laplace(1) * 30,
    ):
        bounds = loss.epsilon_bounds(1e-5)
        assert bounds.method == RENYI
        assert 0 == bounds.lower < bounds.upper < math.inf
        assert "loose" in loss.explain(1e-5)
        assert loss.delta_bounds(bounds.upper).upper <= 1.01e-5
    monkeypatch.undo()
    composition.bounds_of_pairs.cache_clear()
    for loss in (
        PrivacyLoss.gaussian(1).poisson_subsampled(Fraction(1, 10)) * 500,
        PrivacyLoss.laplace(1) * 30,
    ):
        tight = loss.epsilon_bounds(1e-5)
        assert tight.method != RENYI
        assert "looser" not in loss.explain(1e-5)


def test_renyi_curve_uses_the_renyi_method():
    loss = PrivacyLoss.zcdp(Fraction(1, 2))
    bounds = loss.epsilon_bounds(1e-6)
    assert bounds.method == RENYI
    # Gaussian noise of μ = 1 is one such mechanism.
    assert bounds.lower == pytest.approx(PrivacyLoss.gaussian(1).epsilon(1e-6), rel=1e-6)
    assert bounds.lower < bounds.upper
    # ρ + 2·√(ρ·ln 1/δ) is the textbook's, and looser.
    assert bounds.upper < 0.5 + 2 * math.sqrt(0.5 * math.log(1e6))
    assert loss.epsilon() == math.inf
    both = loss + PrivacyLoss.pure(1)
    assert both.epsilon(1e-6) <= bounds.upper + 1
    known = PrivacyLoss.from_renyi({2: 1, 4: 2, 8: 4, 16: 8})
    assert loss.epsilon(1e-6) <= known.epsilon(1e-6) < 8
    assert known.epsilon_bounds(1e-6).method == RENYI
    assert (known * 2).epsilon(1e-6) > known.epsilon(1e-6)


def test_contradicting_accountants_are_not_combined(monkeypatch):
    loss = PrivacyLoss.gaussian(1).poisson_subsampled(Fraction(1, 10)) * 500
    truth = loss.epsilon_bounds(1e-5)
    composition.bounds_of_pairs.cache_clear()
    monkeypatch.setattr(FourierAccountant, "epsilon", lambda *_: (math.nan, math.nan))
    other = loss.epsilon_bounds(1e-5)
    composition.bounds_of_pairs.cache_clear()
    assert other.method == PLD
    assert other.lower <= truth.upper
    assert other.upper >= truth.lower


# ---- extremes, and what other accountants got wrong

EXTREMES = [
    (Fraction(1, 10**8), Fraction(1), 10**7, 1e-6),
    (Fraction(1, 2), Fraction(1, 100), 10, 1e-6),
    (Fraction(1, 100), Fraction(10**5), 10**7, 1e-6),
    (Fraction(1, 10), Fraction(10**5), 10**7, 1e-30),
    (Fraction(1, 10**8), Fraction(10**5), 1, 1e-30),
    (Fraction(1), Fraction(1, 100), 10**7, 1e-300),
]
LONG_EXTREMES = [
    (Fraction(1, 100), Fraction(1), 10, 0.5),
    (Fraction(1, 10**8), Fraction(1, 100), 10**7, 1e-6),
    (Fraction(1, 1000), Fraction(1, 10), 10**6, 1e-10),
    (Fraction(1, 100), Fraction(3, 10), 100, 1e-30),
    (Fraction(9, 10), Fraction(1, 2), 10**7, 1e-30),
    (Fraction(1, 10**5), Fraction(3, 10), 10**7, 1e-5),
    (Fraction(1, 2), Fraction(1), 10**7, 0.5),
    (Fraction(1, 1000), Fraction(100), 10**7, 1e-30),
]


@pytest.mark.sweep(5)
@pytest.mark.parametrize(
    ("rate", "sigma", "steps", "delta"),
    [*EXTREMES, *(pytest.param(*case, marks=pytest.mark.long) for case in LONG_EXTREMES)],
)
def test_no_input_hangs_or_is_not_a_number(rate, sigma, steps, delta):
    loss = PrivacyLoss.gaussian(1 / sigma).poisson_subsampled(rate) * steps
    bounds = loss.epsilon_bounds(delta)
    assert 0 <= bounds.lower <= bounds.upper < math.inf
    assert bounds.upper <= (PrivacyLoss.gaussian(1 / sigma) * steps).epsilon(delta) * (1 + 1e-9)
    again = loss.delta_bounds(bounds.upper)
    assert 0 <= again.lower <= min(1, delta * (1 + 1e-6))
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < 2 << 20  # KiB, with all the tests before


def test_schedule_of_a_thousand_noise_scales_is_accounted():
    steps = [
        PrivacyLoss.gaussian(1 / (1 + Fraction(k, 1000))).poisson_subsampled(Fraction(1, 100))
        for k in range(1000)
    ]
    schedule = PrivacyLoss.compose(steps)
    assert schedule == PrivacyLoss.compose(reversed(steps))
    bounds = schedule.epsilon_bounds(1e-5)
    assert bounds.method == FOURIER
    assert bounds.upper - bounds.lower <= 1e-6 * bounds.upper
    assert (steps[-1] * 1000).epsilon_bounds(1e-5).lower <= bounds.upper
    assert bounds.lower <= (steps[0] * 1000).epsilon(1e-5)


def test_zero_steps_cost_nothing():
    """An accountant says 0.103 for none."""
    nothing = PrivacyLoss.gaussian(1).poisson_subsampled(Fraction(1, 100)) * 0
    assert nothing == PrivacyLoss.pure(0)
    assert nothing.epsilon(1e-5) == nothing.epsilon() == nothing.delta(0) == 0


@pytest.mark.parametrize("delta", [0.3, 0.5, 0.9, 0.999])
def test_epsilon_is_never_negative(delta):
    """Accountants go below 0 at a large δ."""
    for loss in (
        PrivacyLoss.gaussian(1),
        PrivacyLoss.laplace(1) * 2,
        PrivacyLoss.gaussian(1).poisson_subsampled(Fraction(1, 10)) * 5,
    ):
        low, high = loss.epsilon_bounds(delta)
        assert 0 <= low <= high


@pytest.mark.parametrize("bad", [math.nan, math.inf, -1, "1", None, True])
def test_tiny_noise_does_not_cost_zero(bad):
    """An accountant says ε = 0 for σ = NaN."""
    for make in (
        PrivacyLoss.gaussian,
        PrivacyLoss.laplace,
        PrivacyLoss.zcdp,
        PrivacyLoss.bounded_range,
        PrivacyLoss.discrete_laplace,
        PrivacyLoss.discrete_gaussian,
        PrivacyLoss.randomized_response,
        lambda x: PrivacyLoss.from_renyi({2: x}),
        lambda x: PrivacyLoss.from_distributions([x, 1], [1, 0]),
        PrivacyLoss.gaussian(1).poisson_subsampled,
        PrivacyLoss.gaussian(1).renyi,
        PrivacyLoss.gaussian(1).tradeoff,
        PrivacyLoss.pure(1).posterior,
        PrivacyLoss.pure(1).epsilon_bounds,
        PrivacyLoss.pure(1).delta_bounds,
        lambda x: PrivacyLoss.gaussian(1).subsampled_without_replacement(x, 1),
        lambda x: PrivacyLoss.gaussian(1).subsampled_without_replacement(10, x),
        lambda x: PrivacyLoss.pure(1).shuffled(x),
    ):
        with refused(InvalidInput):
            make(bad)


def test_tiny_deltas_give_a_finite_epsilon():
    """An accountant returns ∞ at δ ≤ 1e-15, another one less than the truth at 1e-12."""
    loss = PrivacyLoss.gaussian(1).poisson_subsampled(Fraction(1, 100)) * 1000
    assert loss.epsilon_bounds(1e-12).lower <= 3.9142981560374658 * (1 + 1e-12)
    assert loss.epsilon(1e-12) >= 3.9142981560374657
    assert loss.epsilon(1e-15) < loss.epsilon(1e-30) < 20


def test_large_noise_with_many_steps_is_accounted():
    """An accountant is three times too high at σ = 1000 and 10⁶ steps."""
    bounds = (
        PrivacyLoss.gaussian(Fraction(1, 1000)).poisson_subsampled(Fraction(1, 100)) * 10**6
    ).epsilon_bounds(1e-5)
    limit = PrivacyLoss.gaussian(Fraction(1, 100)).epsilon(1e-5)  # μ = q·√T/σ
    assert bounds.upper - bounds.lower <= 1e-6 * bounds.upper
    assert bounds.upper == pytest.approx(limit, rel=0.05)


def test_little_noise_takes_little_memory():
    """An accountant takes 38 GiB at σ = 0.001."""
    assert (PrivacyLoss.gaussian(1000) * 10).epsilon(1e-5) == pytest.approx(5e6, rel=0.01)
    assert (PrivacyLoss.gaussian(1000).poisson_subsampled(Fraction(1, 2)) * 2).epsilon_bounds(
        1e-5
    ).upper < 1.1e6


# ---- parallel parts


def test_parallel_composition_costs_the_worst_loss():
    assert parallel_composition(PrivacyLoss.pure(1), PrivacyLoss.pure(2)) == PrivacyLoss.pure(2)
    assert parallel_composition(
        PrivacyLoss.gaussian(1), PrivacyLoss.gaussian(2), PrivacyLoss.gaussian(1)
    ) == PrivacyLoss.gaussian(2)
    either = parallel_composition(PrivacyLoss.pure(1), PrivacyLoss.gaussian(1))
    assert either.epsilon(1e-6) == PrivacyLoss.gaussian(1).epsilon(1e-6)
    assert either.epsilon(0.2) == max(PrivacyLoss.pure(1).epsilon(0.2), PrivacyLoss.gaussian(1).epsilon(0.2))
    assert either.delta(0) == max(PrivacyLoss.pure(1).delta(0), PrivacyLoss.gaussian(1).delta(0))
    assert str(either) == "ε = 1 or Gaussian μ = 1"
    twice = either + either
    assert twice.epsilon(1e-6) == (PrivacyLoss.gaussian(1) * 2).epsilon(1e-6)
    cost = either.cost()
    assert cost.epsilon is None
    assert cost.rho == Fraction(1, 2)
    assert either.epsilon_bounds(1e-6).upper == either.epsilon(1e-6)
    assert parallel_composition(PrivacyLoss.pure(0), PrivacyLoss.pure(1)) == PrivacyLoss.pure(1)


def test_parallel_composition_under_substitution_composes_the_two_worst():
    both = parallel_composition(
        PrivacyLoss.pure(1),
        PrivacyLoss.pure(Fraction(1, 2)),
        PrivacyLoss.pure(Fraction(1, 4)),
        substitution=True,
    )
    assert both.epsilon() == 1.5
    assert (
        parallel_composition(PrivacyLoss.gaussian(1), PrivacyLoss.gaussian(1), substitution=True)
        == PrivacyLoss.gaussian(1) * 2
    )
    assert parallel_composition(PrivacyLoss.gaussian(1), substitution=True) == PrivacyLoss.gaussian(1)


def test_parallel_composition_refuses_no_losses_and_too_many_kinds():
    for bad in ((), (1,), (PrivacyLoss.pure(1), None)):
        with refused(InvalidInput):
            parallel_composition(*bad)
    kinds = [PrivacyLoss.discrete_gaussian(variance) for variance in range(1, 80)]
    with pytest.raises(Unsupported, match="64"):
        parallel_composition(*kinds)


# ---- one filter for a training run and queries


def test_bounds_have_a_readable_repr():
    bounds = PrivacyLoss.gaussian(1).epsilon_bounds(1e-6)
    assert isinstance(bounds, tuple)
    assert bounds == (bounds.lower, bounds.upper)
    assert repr(bounds) == f"Bounds(lower={bounds.lower!r}, upper={bounds.upper!r}, method='closed form')"
    assert Bounds(1.0, 2.0, PLD).method == PLD


# ---- what was once wrong, or slow


def test_a_group_is_not_sampled_again():
    for size in (2, 40):
        with pytest.raises(Unsupported, match="group"):
            PrivacyLoss.gaussian(Fraction(1, 10)).poisson_subsampled(Fraction(1, 2)).for_group(
                size
            ).poisson_subsampled(Fraction(1, 2))
    with pytest.raises(Unsupported, match="under substitution"):
        PrivacyLoss.pure(1).shuffled(10).poisson_subsampled(Fraction(1, 2))


def test_asymmetric_events_are_refused_in_parallel_under_substitution():
    one = PrivacyLoss.from_distributions([0.9, 0.1], [0.999, 0.001])
    other = PrivacyLoss.from_distributions([0.999, 0.001], [0.9, 0.1])
    with pytest.raises(Unsupported, match="not symmetric"):
        parallel_composition(one, other, substitution=True)
    assert parallel_composition(one, other).delta(0) == pytest.approx(0.099, rel=1e-9)


def test_the_worst_alternative_counts_for_each_figure():
    posterior = parallel_composition(
        PrivacyLoss.pure(1), PrivacyLoss.approximate(Fraction(1, 2), Fraction(1, 10))
    ).posterior(Fraction(1, 2))
    assert posterior.exception_probability == 0.1
    assert posterior.upper_bound == PrivacyLoss.pure(1).posterior(Fraction(1, 2)).upper_bound


def test_tradeoff_at_alpha_zero_excludes_infinite_losses():
    half = Fraction(1, 2)
    assert PrivacyLoss.from_distributions([half, half], [1, 0]).tradeoff(0) == 0.5
    assert PrivacyLoss.from_distributions([half, half], [1, 0]).tradeoff(Fraction(1, 10**9)) <= 0.5


@pytest.mark.parametrize("rate", [Fraction(1, 10**17), Fraction(1, 10**400), Fraction(1, 3)])
def test_renyi_divergences_of_subsampled_groups_are_positive(rate):
    loss = PrivacyLoss.gaussian(1).poisson_subsampled(rate).for_group(2)
    assert loss.renyi(2) > 0
    both = loss * 10**18 + PrivacyLoss.zcdp(Fraction(1, 10))
    assert both.epsilon(1e-6) >= PrivacyLoss.zcdp(Fraction(1, 10)).epsilon(1e-6)
    assert loss.cost().renyi[0] > 0


@pytest.mark.parametrize(
    ("tiny", "alpha", "truth"), [(40, 100, 1.280455e-12), (60, 100, 1.28e-32), (30, 64, 2.92805e-13)]
)
def test_renyi_divergences_of_rare_large_losses_are_upper_bounds(tiny, alpha, truth):
    e = Fraction(1, 10**tiny)
    assert PrivacyLoss.from_distributions([1 - 2 * e, 2 * e], [1 - e, e]).renyi(alpha) >= truth * (1 - 1e-4)


def test_a_tiny_delta_is_not_rounded_to_zero():
    for loss, epsilon in [
        (PrivacyLoss.zcdp(Fraction(1, 2)), 100),
        (PrivacyLoss.discrete_gaussian(1), 45),
        (PrivacyLoss.laplace(1) + PrivacyLoss.gaussian(1), 60),
        (PrivacyLoss.gaussian(1).poisson_subsampled(Fraction(1, 10)) * 2, 60),
    ]:
        assert 0 < loss.delta(epsilon) < 1e-250
    for loss in (
        PrivacyLoss.zcdp(Fraction(1, 2)),
        PrivacyLoss.discrete_gaussian(1),
        PrivacyLoss.laplace(1) + PrivacyLoss.gaussian(1),
    ):
        assert loss.epsilon(Fraction(1, 10**400)) >= PrivacyLoss.gaussian(1).epsilon(Fraction(1, 10**400)) - 2
    hidden = Fraction(1, 10**400)
    rare = PrivacyLoss.from_distributions([1 - hidden, hidden], [1, 0])
    assert rare.renyi(2) == math.inf
    assert rare.epsilon(Fraction(1, 10**500)) == math.inf
    assert PrivacyLoss.pure(Fraction(1, 10**200)).renyi(2) > 0


def test_events_that_are_not_tight_have_no_lower_bound():
    three = PrivacyLoss.pure(Fraction(math.log(3)))
    assert three.for_group(2).delta_bounds(0).lower == 0
    assert three.for_group(2).delta(0) >= 2 / 3
    assert PrivacyLoss.randomized_response(Fraction(3, 4)).for_group(2).epsilon_bounds().lower == 0
    amplified = PrivacyLoss.approximate(1, Fraction(1, 10**12)).poisson_subsampled(Fraction(1, 10))
    assert amplified.delta_bounds(0).lower <= 0.0462
    assert (amplified + PrivacyLoss.gaussian(1)).epsilon_bounds(1e-6).lower == PrivacyLoss.gaussian(
        1
    ).epsilon_bounds(1e-6).lower
    assert three.delta_bounds(0).lower > 0


HUGE, SMALL = 10**400, Fraction(1, 10**400)


@pytest.mark.parametrize(
    "ask",
    [
        lambda: PrivacyLoss.pure(800).shuffled(10).epsilon_bounds(1e-6),
        lambda: PrivacyLoss.pure(1e-20).shuffled(10).epsilon_bounds(1e-6),
        lambda: PrivacyLoss.pure(1).shuffled(10**19).epsilon_bounds(1e-6),
        lambda: PrivacyLoss.pure(1).shuffled(HUGE).epsilon_bounds(1e-6),
        lambda: (PrivacyLoss.pure(HUGE) * 2).epsilon_bounds(1e-6),
        lambda: (PrivacyLoss.bounded_range(HUGE) * 3).epsilon_bounds(1e-6),
        lambda: (PrivacyLoss.discrete_laplace(HUGE) * 3).epsilon_bounds(1e-6),
        lambda: (PrivacyLoss.discrete_gaussian(10**700) * 3).epsilon_bounds(1e-6),
        lambda: (PrivacyLoss.discrete_laplace(SMALL) * 3).epsilon_bounds(1e-6),
        lambda: PrivacyLoss.from_renyi({HUGE: 1}).epsilon_bounds(1e-6),
        lambda: (PrivacyLoss.laplace(SMALL) * 2).epsilon_bounds(Fraction(1, 10**500)),
        lambda: PrivacyLoss.gaussian(1).poisson_subsampled(SMALL).epsilon_bounds(1e-6),
        lambda: (PrivacyLoss.bounded_range(1e-320) * 3).epsilon_bounds(1e-6),
        lambda: PrivacyLoss.gaussian(1000).poisson_subsampled(Fraction(1, 2)).epsilon_bounds(1e-6),
        lambda: PrivacyLoss.pure(10**7).poisson_subsampled(Fraction(1, 2)).epsilon_bounds(1e-6),
        lambda: (
            PrivacyLoss.gaussian(3).poisson_subsampled(Fraction(1, 1000)).for_group(32).epsilon_bounds(1e-6)
        ),
    ],
)
def test_largest_and_smallest_doubles_are_accounted(ask):
    low, high = ask()
    assert 0 <= low <= high


def test_composition_handles_extreme_doubles():
    assert 0 <= PrivacyLoss.laplace(1).tradeoff(SMALL) <= 1
    assert PrivacyLoss.gaussian(1).poisson_subsampled(Fraction(1, 10)).delta(10**7) < 1e-300
    assert PrivacyLoss.gaussian(1).poisson_subsampled(Fraction(1, 10)).for_group(3000).cost().rho is None
    with refused(InvalidInput, match="times"):
        PrivacyLoss.pure(1) * HUGE


# ---- rounded parameters


@pytest.mark.parametrize("added", [False, True])
def test_parameters_rounded_down_are_enclosed_by_those_rounded_up(monkeypatch, added):
    """Rounding is made large: ε falls visibly, and by no more than is said."""
    eta, steps, delta = 1e-5, 50, 1e-4
    monkeypatch.setattr(subsampled_pairs, "_ULPS", eta)
    monkeypatch.setattr(subsampled_pairs, "_MAX_SHIFT", 0.01)
    pairs = [
        ((subsampled_pairs.SubsampledGaussianPair(rate, sigma, added), steps),)
        for rate, sigma in ((0.01, 1.1), (0.01 * (1 - 0.99 * eta), 1.1 * (1 + 0.99 * eta)))
    ]
    shift = subsampled_pairs.bound_rounding(*pairs, delta, delta)
    assert 0 < shift < 0.01
    low, high = (composition.bounds_of_pairs("epsilon", delta, pair) for pair in pairs)
    assert high.upper < low.lower
    more = composition.bounds_of_pairs("epsilon", delta * math.exp(shift) * (1 + 1e-12), pairs[0])
    assert more.lower - shift <= high.upper


def test_only_parameters_next_to_each_other_share_an_integral():
    near, far = (
        ((subsampled_pairs.SubsampledGaussianPair(0.01, sigma, added=False), 10),)
        for sigma in (1.1, 1.1 + 1e-12)
    )
    assert subsampled_pairs.bound_rounding(near, near, 1e-5, 1e-5) < 1e-12
    assert subsampled_pairs.bound_rounding(near, far, 1e-5, 1e-5) is None
    assert subsampled_pairs.bound_rounding(far, near, 1e-5, 1e-5) is None
    loss = PrivacyLoss.gaussian(Fraction(10, 11)).poisson_subsampled(Fraction(1, 3)) * 100
    assert loss.epsilon_bounds(1e-5).lower <= loss.epsilon(1e-5)
