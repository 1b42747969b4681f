"""Parts of a loss: their pairs and divergences against exact sums, and what simulates what."""

import itertools
import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest

from hubbub.accounting import PrivacyLoss, parallel_composition
from hubbub.accounting.discrete_events import (
    DiscreteGaussian,
    DiscreteLaplace,
    FiniteDistributions,
    RandomizedResponse,
)
from hubbub.accounting.discrete_pairs import DiscretePair, discrete_laplace_pair
from hubbub.accounting.dominating_pairs import BoundedRangePair, GaussianPair, LaplacePair
from hubbub.accounting.events import BoundedRange, EpsilonDelta, Gaussian, Laplace, Subsampled
from hubbub.accounting.float_bounds import Uncertified, float_above, float_below
from hubbub.accounting.pld_accountant import PldAccountant
from hubbub.accounting.renyi import RenyiCurve, ZeroConcentrated
from hubbub.accounting.subsampled_pairs import SubsampledGaussianGroupPair
from hubbub.errors import InvalidInput, Unsupported
from refusing import refused

mp = mpmath.mp.clone()
mp.dps = 40

EPSILONS = (0.0, 0.1, 0.4, 0.9, 1.3)


def hockey_stick(p, q, epsilon):
    return sum(max(mp.mpf(0), a - mp.exp(epsilon) * b) for a, b in zip(p, q, strict=True))


def discrete_laplace(scale, shift, reach=400):
    a = mp.exp(-1 / mp.mpf(scale))
    return [(1 - a) / (1 + a) * a ** abs(x - shift) for x in range(-reach, reach + 1)]


# ---- doubles on the safe side


@pytest.mark.parametrize(
    "exact", [Fraction(1, 3), Fraction(2, 3), Fraction(1, 2), Fraction(10**400), Fraction(0)]
)
def test_float_above_and_below_enclose_the_number(exact):
    low, high = float_below(exact), float_above(exact)
    assert Fraction(low) <= exact
    assert high == math.inf or Fraction(high) >= exact
    assert (low == high) == (exact in (0, Fraction(1, 2)))
    assert high <= math.nextafter(low, math.inf)


@pytest.mark.sweep(5)
@pytest.mark.parametrize(
    "part", [Gaussian(Fraction(1, 3)), Laplace(Fraction(1, 3)), BoundedRange(Fraction(1, 3))]
)
@pytest.mark.parametrize("rate", [None, Fraction(1, 3)])
def test_upper_pair_dominates_lower_pair(part, rate):
    part = part if rate is None else Subsampled(part, rate)
    for epsilon in (0.0, 0.1):
        high = PldAccountant([(part.dominating_pair(added=False, upper=True), 1)], accuracy=1e-6).delta(
            epsilon
        )[1]
        low = PldAccountant([(part.dominating_pair(added=False, upper=False), 1)], accuracy=1e-6).delta(
            epsilon
        )[0]
        assert low <= high


# ---- bounded ranges


@pytest.mark.slow
@pytest.mark.parametrize("width", [0.1, 1.0, 5.0])
def test_a_bounded_range_has_its_curve(width):
    for share in (0.0, 0.3, 0.8):
        epsilon = share * width
        low, high = PldAccountant([(BoundedRangePair(width), 1)]).delta(epsilon)
        truth = mp.expm1((mp.mpf(epsilon) - width) / 2) ** 2 / -mp.expm1(-mp.mpf(width))
        assert low <= truth * (1 + 1e-12)
        assert truth * (1 - 1e-12) <= high <= truth * (1 + 1e-7)
        # No pair with two losses in such an interval is worse, wherever the interval lies.
        for t in np.linspace(0.01, 0.99, 23) * width:
            p = mp.expm1(t - width) / mp.expm1(-mp.mpf(width))
            assert p * max(0, -mp.expm1(epsilon - t)) <= truth * (1 + mp.mpf("1e-30"))


def test_many_bounded_ranges_cost_no_more_than_their_zcdp():
    many = PrivacyLoss.bounded_range(0.1) * 1000
    assert many.epsilon(1e-6) <= PrivacyLoss.zcdp(Fraction(1000, 800)).epsilon(1e-6) * (1 + 1e-9)
    assert many.epsilon_bounds(1e-6).lower <= many.epsilon(1e-6)
    assert PrivacyLoss.bounded_range(1).epsilon() == 1


# ---- Laplace noise


@pytest.mark.sweep(3)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("scale", "shifts"), [(2, (1, 1)), (2, (3, 1)), (Fraction(1, 2), (2, 2)), (5, (1, 2, 3))]
)
def test_laplace_noise_on_many_coordinates_is_no_worse_than_on_one(scale, shifts):
    """All outcomes within reach enumerated; what is beyond has one loss and is added to the ends."""
    scale, reach = mp.mpf(scale.numerator) / scale.denominator, 8
    laws = []
    for shift in shifts:
        p, q = (discrete_laplace(scale, s, 600) for s in (shift, 0))
        middle = 600
        cut = slice(middle - reach, middle + reach + 1)
        ends = [slice(0, middle - reach), slice(middle + reach + 1, None)]
        laws.append([([*law[cut], *(sum(law[end]) for end in ends)]) for law in (p, q)])
    ours = [mp.fprod(cell) for cell in itertools.product(*(law[0] for law in laws))]
    theirs = [mp.fprod(cell) for cell in itertools.product(*(law[1] for law in laws))]
    total = sum(shifts)
    single = [discrete_laplace(scale, s, 600) for s in (total, 0)]
    for share in np.linspace(0, 1, 9):
        epsilon = mp.mpf(share) * total / scale
        assert hockey_stick(ours, theirs, epsilon) <= hockey_stick(*single, epsilon) + mp.mpf("1e-25")
    # and at its own losses the curve is 1 − e^((ε − r)/2).
    for j in range(total + 1):
        epsilon = (total - 2 * j) / scale
        assert abs(hockey_stick(*single, epsilon) + mp.expm1((epsilon - total / scale) / 2)) < mp.mpf("1e-25")


def test_discrete_laplace_with_many_losses_is_bounded_by_simpler_pairs():
    """Beyond 2^10 integers: a Laplace law a little further apart, or integers taken together."""
    wide, narrow = DiscreteLaplace(Fraction(3), 2000), DiscreteLaplace(Fraction(1, 3), 2500)
    assert wide.dominating_pair(added=False, upper=True) == LaplacePair(
        float_above(Fraction(2000, 3) + Fraction(1, 18))
    )
    assert wide.dominating_pair(added=False, upper=False) == LaplacePair(float_below(Fraction(2000, 3)))
    assert narrow.dominating_pair(added=False, upper=True) == discrete_laplace_pair(Fraction(1, 9), 834)
    assert DiscreteLaplace(Fraction(1), 1025).dominating_pair(added=False, upper=True) == LaplacePair(1025.5)
    assert DiscreteLaplace(Fraction(3), 1024).dominating_pair(
        added=False, upper=True
    ) == discrete_laplace_pair(3, 1024)


def test_discrete_laplace_curve_lies_between_coarser_and_continuous_ones():
    part = DiscreteLaplace(Fraction(5000), 5003)
    up, down = part.dominating_pair(added=False, upper=True), part.dominating_pair(added=False, upper=False)
    assert isinstance(up, LaplacePair)
    assert isinstance(down, LaplacePair)
    exact = discrete_laplace_pair(Fraction(5000), 5003)
    for epsilon in (0.0, 0.3, 0.9999):
        low, high = PldAccountant([(down, 1)]).delta(epsilon)[0], PldAccountant([(up, 1)]).delta(epsilon)[1]
        truth = PldAccountant([(exact, 1)]).delta(epsilon)
        assert low <= truth[1]
        assert truth[0] <= high
        assert high - low <= 1e-7
    steep = DiscreteLaplace(Fraction(1, 2), 5003).dominating_pair(added=False, upper=True)
    assert isinstance(steep, DiscretePair)
    assert len(steep.losses) <= 1026
    assert max(steep.losses) >= 10006
    for t in np.linspace(0.01, 1, 50):  # the inequality of the proof
        assert -math.expm1(-t * t / 4) >= math.expm1(t) * math.tanh(t / 2) / 4
    assert DiscreteLaplace(Fraction(5000), 5000).max_loss == 1


# ---- samples


@pytest.mark.parametrize(("rate", "epsilon"), [(0.1, 1), (0.5, 2), (0.9, 0.1)])
def test_subsampled_randomized_response_against_enumeration(rate, epsilon):
    loss = PrivacyLoss.pure(epsilon).poisson_subsampled(rate)
    keep = 1 / (1 + mp.exp(-mp.mpf(epsilon)))
    q = [1 - keep, keep]
    p = [mp.mpf(rate) * a + (1 - mp.mpf(rate)) * b for a, b in zip(q[::-1], q, strict=True)]
    for at in EPSILONS:
        truth = max(hockey_stick(p, q, at), hockey_stick(q, p, at))
        low, high = loss.delta_bounds(at)
        assert low <= truth * (1 + mp.mpf("1e-12"))
        assert truth <= high <= truth * (1 + 1e-9) + 1e-300
    assert loss.epsilon() == pytest.approx(math.log1p(rate * math.expm1(epsilon)), rel=1e-14)


@pytest.mark.slow
@pytest.mark.parametrize("make", [PrivacyLoss.gaussian, PrivacyLoss.laplace], ids=["gaussian", "laplace"])
def test_fixed_size_sample_has_the_mixture_curve_in_both_directions(make):
    """One sampled mechanism: γ·δ(ln(1 + (e^ε − 1)/γ)), as when a unit is removed from a Poisson sample."""
    rate = Fraction(1, 10)
    fixed = make(1).subsampled_without_replacement(1000, 100)
    for epsilon in (0.0, 0.05, 0.2):
        inner = math.log1p(math.expm1(epsilon) / float(rate))
        truth = float(rate) * make(1).delta(inner)
        low, high = fixed.delta_bounds(epsilon)
        assert low <= truth * (1 + 1e-9)
        assert truth * (1 - 1e-9) <= high <= truth * (1 + 1e-5)
    both = fixed * 10
    poisson = make(1).poisson_subsampled(rate) * 10
    assert both.epsilon(1e-5) >= poisson.epsilon_bounds(1e-5).lower
    assert both.epsilon_bounds(1e-5).lower <= both.epsilon(1e-5)


def test_a_finite_pair_of_a_fixed_sample_is_mirrored_atom_by_atom():
    fixed = PrivacyLoss.randomized_response(0.75, 3).subsampled_without_replacement(4, 1)
    sides = fixed.alternatives[0][0][0].dominating_pair(added=False, upper=True)
    assert sides.losses[: len(sides.losses) // 2] == tuple(
        -loss for loss in sides.losses[len(sides.losses) // 2 : -1]
    )
    assert math.fsum(sides.p) == pytest.approx(1, abs=1e-15)
    assert sides.p[-1] == sides.q[-1]


def test_sampling_rates_of_zero_and_one():
    loss = PrivacyLoss.gaussian(1)
    assert loss.poisson_subsampled(1) == loss.subsampled_without_replacement(5, 5) == loss
    assert loss.poisson_subsampled(0) == loss.subsampled_without_replacement(5, 0) == PrivacyLoss.pure(0)
    assert loss.poisson_subsampled(0.5).poisson_subsampled(0.5) == loss.poisson_subsampled(0.25)


def test_approximate_loss_is_amplified_by_subsampling():
    sampled = PrivacyLoss.approximate(1, 1e-6).poisson_subsampled(0.1)
    assert sampled.cost().delta == Fraction(1, 10**7)
    assert sampled.epsilon(1e-7) == pytest.approx(math.log1p(0.1 * math.expm1(1)), rel=1e-14)


def test_losses_that_cannot_be_subsampled_are_refused():
    with pytest.raises(Unsupported, match="several"):
        (PrivacyLoss.pure(1) + PrivacyLoss.laplace(1)).poisson_subsampled(0.1)
    for unknown in (PrivacyLoss.zcdp(1), PrivacyLoss.from_renyi({2: 1})):
        with pytest.raises(Unsupported, match="sampled"):
            unknown.poisson_subsampled(0.1)
        with pytest.raises(Unsupported, match="sampled"):
            unknown.subsampled_without_replacement(10, 1)
    with pytest.raises(Unsupported):
        PrivacyLoss.gaussian(1).subsampled_without_replacement(10, 1).poisson_subsampled(0.5)
    with pytest.raises(Unsupported):
        PrivacyLoss.from_distributions([1, 0], [0.5, 0.5]).subsampled_without_replacement(10, 1)


def test_losses_about_different_neighbours_are_not_composed():
    poisson, fixed = (
        PrivacyLoss.gaussian(1).poisson_subsampled(0.1),
        PrivacyLoss.gaussian(1).subsampled_without_replacement(10, 1),
    )
    shuffled = PrivacyLoss.pure(1).shuffled(100)
    for one, other in ((poisson, fixed), (poisson, shuffled), (poisson.for_group(2), fixed)):
        with pytest.raises(Unsupported, match="neighbouring relations"):
            one + other
        with pytest.raises(Unsupported, match="neighbouring relations"):
            PrivacyLoss.compose([one, PrivacyLoss.pure(1), other])
    assert (fixed + shuffled + PrivacyLoss.pure(1)).epsilon(1e-5) > 0


# ---- groups


def test_group_privacy_scales_each_event():
    assert PrivacyLoss.laplace(0.5).for_group(3) == PrivacyLoss.laplace(1.5)
    assert PrivacyLoss.discrete_laplace(4, 1).for_group(3) == PrivacyLoss.discrete_laplace(4, 3)
    assert PrivacyLoss.discrete_gaussian(4, 1).for_group(3) == PrivacyLoss.discrete_gaussian(4, 3)
    assert PrivacyLoss.discrete_laplace(4, 2).for_group(3) == PrivacyLoss.discrete_laplace(4, 6)
    assert PrivacyLoss.discrete_gaussian(4, 2).for_group(3) == PrivacyLoss.discrete_gaussian(4, 6)
    assert PrivacyLoss.bounded_range(0.5).for_group(2) == PrivacyLoss.bounded_range(1)
    assert PrivacyLoss.zcdp(0.5).for_group(3) == PrivacyLoss.zcdp(4.5)
    assert PrivacyLoss.randomized_response(0.75).for_group(2).epsilon() == pytest.approx(2 * math.log(3))
    assert PrivacyLoss.from_renyi({3: 1, 4: 1, 16: 2}).for_group(2) == PrivacyLoss.from_renyi({2: 3, 8: 6})
    assert PrivacyLoss.from_renyi({7: 1, 8: 1, 16: 2}).for_group(3) == PrivacyLoss.from_renyi({2: 9, 4: 18})
    assert (PrivacyLoss.pure(1).poisson_subsampled(0.5)).for_group(2).epsilon() == pytest.approx(
        2 * math.log1p(0.5 * math.expm1(1))
    )
    assert (PrivacyLoss.gaussian(1).poisson_subsampled(0.5) * 3).for_group(1) == PrivacyLoss.gaussian(
        1
    ).poisson_subsampled(0.5) * 3
    with pytest.raises(Unsupported):
        PrivacyLoss.from_distributions([1, 0], [0.5, 0.5]).for_group(2)


@pytest.mark.sweep(5)
@pytest.mark.slow
@pytest.mark.parametrize("added", [False, True])
@pytest.mark.parametrize("size", [1, 2, 3])
def test_sampled_group_has_the_binomial_mixture_curve(size, added):
    """δ(0) and δ(½) by quadrature of the mixture's densities."""
    x, step = np.linspace(-12.0, 16.0, 280_001, retstep=True)
    plain = np.exp(-(x**2) / 2) / math.sqrt(2 * math.pi)
    chances = [math.comb(size, j) * 0.3**j * 0.7 ** (size - j) for j in range(size + 1)]
    mixture = sum(w * np.exp(-((x - j) ** 2) / 2) / math.sqrt(2 * math.pi) for j, w in enumerate(chances))
    one, other = (plain, mixture) if added else (mixture, plain)
    for epsilon in (0.0, 0.5):
        truth = float(np.maximum(0.0, one - math.exp(epsilon) * other).sum()) * step
        low, high = PldAccountant(
            [(SubsampledGaussianGroupPair(0.3, 1.0, size, added), 1)], accuracy=1e-6
        ).delta(epsilon)
        assert low <= truth * (1 + 1e-6)
        assert high >= truth * (1 - 1e-6)
        assert high - low <= 1e-5 * high


@pytest.mark.slow
def test_sampled_group_costs_more_than_one_and_less_than_all():
    one = PrivacyLoss.gaussian(1).poisson_subsampled(0.1) * 20
    two = one.for_group(2)
    assert (
        one.epsilon(1e-6)
        < two.epsilon(1e-6)
        < (PrivacyLoss.gaussian(2).poisson_subsampled(0.1) * 20).epsilon(1e-6) * 2
    )
    assert two.epsilon(1e-6) < (PrivacyLoss.gaussian(2) * 20).epsilon(1e-6)
    large = one.for_group(40)
    assert large.epsilon(1e-6) == pytest.approx((PrivacyLoss.gaussian(40) * 20).epsilon(1e-6))
    assert large.epsilon_bounds(1e-6).lower == 0


# ---- divergences


def exact_renyi(p, q, alpha):
    return mp.log(sum(a**alpha * b ** (1 - alpha) for a, b in zip(p, q, strict=True) if a)) / (alpha - 1)


@pytest.mark.parametrize("alpha", [1.01, 1.5, 2.0, 8.0, 64.0])
def test_renyi_divergences_are_not_below_the_truth(alpha):
    keep = 1 / (1 + mp.exp(-mp.mpf("0.3")))
    cases = [
        (EpsilonDelta(Fraction(3, 10)), [keep, 1 - keep], [1 - keep, keep], 1e-9),
        (
            RandomizedResponse(Fraction(3, 5), 4),
            [0.6, *[mp.mpf("0.4") / 3] * 3],
            [mp.mpf("0.4") / 3, 0.6, *[mp.mpf("0.4") / 3] * 2],
            1e-9,
        ),
        (DiscreteLaplace(Fraction(2), 3), discrete_laplace(2, 3), discrete_laplace(2, 0), 1e-9),
        (
            FiniteDistributions((Fraction(1, 4), Fraction(3, 4)), (Fraction(1, 2), Fraction(1, 2))),
            [0.25, 0.75],
            [0.5, 0.5],
            1e-1,
        ),
    ]
    for part, p, q, close in cases:
        truth = max(exact_renyi(p, q, alpha), exact_renyi(q, p, alpha))
        assert truth * (1 - mp.mpf("1e-15")) <= part.renyi(alpha) <= truth * (1 + close), part
        rate = mp.mpf("0.2")
        mixture = [rate * a + (1 - rate) * b for a, b in zip(p, q, strict=True)]
        truth = max(exact_renyi(mixture, q, alpha), exact_renyi(q, mixture, alpha))
        if part.symmetric:
            assert Subsampled(part, Fraction(1, 5)).renyi(alpha) >= truth * (1 - mp.mpf("1e-15")), part


@pytest.mark.parametrize("alpha", [2, 5, 32])
@pytest.mark.parametrize(
    ("rate", "sigma"), [(mp.mpf("0.01"), 1), (mp.mpf("0.3"), mp.mpf("0.5")), (mp.mpf("0.0001"), 2)]
)
def test_renyi_divergences_of_sampled_gaussians(alpha, rate, sigma):
    """For whole orders a finite sum of exponentials; adding a unit is never worse there."""
    truth = mp.log(
        sum(
            mp.binomial(alpha, k) * (1 - rate) ** (alpha - k) * rate**k * mp.exp(k * (k - 1) / (2 * sigma**2))
            for k in range(alpha + 1)
        )
    ) / (alpha - 1)
    result = (
        PrivacyLoss.gaussian(1 / Fraction(str(sigma))).poisson_subsampled(Fraction(str(rate))).renyi(alpha)
    )
    assert truth <= result <= truth * (1 + mp.mpf("1e-6"))


@pytest.mark.parametrize("alpha", [1.0001, 3.0, 50.0])
def test_closed_form_renyi_divergences_are_raised_slightly(alpha):
    """α·ρ of what is Gaussian or concentrated, and of a bounded range no more than its length."""
    cases = [
        (Gaussian(Fraction(1, 3)), alpha / 6),
        (DiscreteGaussian(Fraction(3), 2), alpha * 2 / 3),
        (ZeroConcentrated(Fraction(1, 3)), alpha / 3),
        (BoundedRange(Fraction(1, 3)), min(alpha / 72, 1 / 3)),
        (BoundedRange(Fraction(7)), min(alpha * 49 / 8, 7.0)),
        (RandomizedResponse(Fraction(3, 4), 2), None),
        (Laplace(Fraction(1, 2)), None),
    ]
    for part, truth in cases:
        if truth is not None:
            assert truth * (1 - 1e-15) <= part.renyi(alpha) <= truth * (1 + 1e-10)
        assert part.renyi(alpha) <= float_above(part.max_loss) if part.max_loss is not None else True


@pytest.mark.parametrize("epsilon", [1e-60, 1e-3, 1.0, 30.0, 500.0])
def test_divergences_of_pure_losses_are_upper_bounds(epsilon):
    part, e = EpsilonDelta(Fraction(epsilon)), mp.mpf(epsilon)
    for alpha in (1.001, 2.0, 100.0):
        a = mp.mpf(alpha)
        with mp.workdps(200):
            truth = mp.log(mp.cosh((a - 0.5) * e) / mp.cosh(e / 2)) / (a - 1)
        close = 2.01 if alpha * epsilon < 1e-50 else 1 + mp.mpf("1e-9")
        assert truth <= part.renyi(alpha) <= max(e if alpha * epsilon > 600 else 0, truth * close)


@pytest.mark.parametrize("ratio", [1e-3, 1.0, 20.0, 400.0])
def test_divergences_of_laplace_noise_match_the_closed_form(ratio):
    for alpha in (1.5, 2.0, 30.0):
        a, r = mp.mpf(alpha), mp.mpf(ratio)
        growth = a * mp.exp((a - 1) * r) + (a - 1) * mp.exp(-a * r)
        truth = mp.log(growth / (2 * a - 1)) / (a - 1)
        assert truth <= Laplace(Fraction(ratio)).renyi(alpha) <= truth * (1 + mp.mpf("1e-9"))


@pytest.mark.parametrize("size", [2, 8, 9])
def test_divergences_of_sampled_groups_are_upper_bounds(size):
    """A mixture's powers are no more than the mixture of powers; of many, all are taken to be sampled."""
    rate, mu_squared = Fraction(1, 10), Fraction(1, 4)
    group = Subsampled(Gaussian(mu_squared), rate).for_group(size)
    for alpha in (1.5, 4.0):
        growth = math.fsum(
            math.comb(size, j) * 0.1**j * 0.9 ** (size - j) * math.expm1((alpha - 1) * alpha * j * j / 8)
            for j in range(1, size + 1)
        )
        truth = math.log1p(growth) / (alpha - 1) if size <= 8 else alpha * size**2 / 8
        assert truth < group.renyi(alpha) < truth * (1 + 1e-9)
    # Where e^x would overflow, as if all were sampled.
    assert group.renyi(200.0) == pytest.approx(200 * size**2 / 8)


@pytest.mark.parametrize("alpha", [1.5, 8.0, 300.0])
def test_divergences_of_fixed_size_samples_are_upper_bounds(alpha):
    """The mixture of powers, what a pure part allows, and never more than without sampling."""
    rate = 0.25
    for base in (
        Laplace(Fraction(1)),
        EpsilonDelta(Fraction(2)),
        EpsilonDelta(Fraction(5)),
        DiscreteGaussian(Fraction(1), 1),
    ):
        alone = base.renyi(alpha)
        mixed = math.log1p(rate * math.expm1(min(700.0, (alpha - 1) * alone))) / (alpha - 1)
        known = [alone, mixed] if (alpha - 1) * alone < 700 else [alone]
        if base.max_loss is not None:
            known.append(
                EpsilonDelta(Fraction(math.log1p(rate * math.expm1(float(base.max_loss))))).renyi(alpha)
            )
        assert Subsampled(base, Fraction(1, 4)).renyi(alpha) == pytest.approx(min(known), rel=1e-9)


def test_renyi_curve_bounds_smaller_orders():
    curve = RenyiCurve(((Fraction(2), Fraction(1)), (Fraction(8), Fraction(3))))
    assert curve.renyi(1.5) == curve.renyi(2.0) == 1
    assert curve.renyi(2.1) == curve.renyi(8.0) == 3
    assert curve.renyi(9.0) == math.inf
    assert ZeroConcentrated(Fraction(1, 2)).renyi(4.0) == pytest.approx(2)
    assert set(curve.dominating_pair(added=False, upper=False).losses) == {0.0}
    assert ZeroConcentrated(Fraction(1, 2)).dominating_pair(added=False, upper=False) == GaussianPair(1.0)
    for part in (curve, ZeroConcentrated(Fraction(1))):
        with pytest.raises(Uncertified):
            part.dominating_pair(added=False, upper=True)


def test_a_schedule_has_the_sum_of_its_divergences():
    schedule = [
        PrivacyLoss.gaussian(1 / Fraction(k, 10)).poisson_subsampled(Fraction(1, 50)) * 3 for k in (8, 11, 15)
    ]
    together = schedule[0] + schedule[1] + schedule[2]
    for alpha in (2, 10):
        assert together.renyi(alpha) <= sum(loss.renyi(alpha) for loss in schedule) * (1 + 1e-9)
        assert together.renyi(alpha) >= max(loss.renyi(alpha) for loss in schedule)


def test_renyi_divergence_is_infinite_with_an_infinity_mass():
    assert PrivacyLoss.approximate(1, 0.1).renyi(2) == math.inf
    assert PrivacyLoss.from_distributions([1, 0], [0.5, 0.5]).renyi(2) == math.inf
    cost = PrivacyLoss.from_distributions([0.5, 0.5, 0], [0.25, 0.5, 0.25]).cost()
    assert cost.delta == Fraction(1, 4)
    assert cost.epsilon == pytest.approx(math.log(2), abs=1e-15)


def test_the_discrete_gaussian_is_as_concentrated_as_the_continuous():
    assert DiscreteGaussian(Fraction(4), 2).rho == Fraction(1, 2)
    assert PrivacyLoss.discrete_gaussian(4, 2).renyi(3) == pytest.approx(1.5)


# ---- the door, and words


def test_invalid_losses_are_refused():
    with refused(InvalidInput, match="curve"):
        PrivacyLoss.from_renyi({})
    with refused(InvalidInput, match="curve"):
        PrivacyLoss.from_renyi({1: 2})
    with refused(InvalidInput, match="distributions"):
        PrivacyLoss.from_distributions([Fraction(1, 2)], [1])
    with refused(InvalidInput, match="truth_probability"):
        PrivacyLoss.randomized_response(Fraction(1, 10), 3)
    with refused(InvalidInput, match="size"):
        PrivacyLoss.gaussian(1).subsampled_without_replacement(10, 11)
    with refused(InvalidInput, match="rate"):
        PrivacyLoss.gaussian(1).poisson_subsampled(2)
    with refused(InvalidInput, match="alpha"):
        PrivacyLoss.gaussian(1).renyi(1)


def test_properties_of_events():
    poisson, fixed = (
        Subsampled(Gaussian(Fraction(1)), Fraction(1, 4)),
        Subsampled(Gaussian(Fraction(1)), Fraction(1, 4), without_replacement=True),
    )
    group = poisson.for_group(2)
    assert [part.symmetric for part in (EpsilonDelta(Fraction(1)), poisson, fixed, group)] == [
        True,
        False,
        False,
        False,
    ]
    assert [part.relation for part in (EpsilonDelta(Fraction(1)), poisson, fixed, group)] == [
        "",
        "add/remove",
        "substitution",
        "add/remove",
    ]
    assert [
        part.max_loss for part in (Gaussian(Fraction(1)), poisson, group, ZeroConcentrated(Fraction(1)))
    ] == [None] * 4
    assert [
        part.infinity_mass for part in (EpsilonDelta(Fraction(1)), EpsilonDelta(Fraction(1), Fraction(1, 3)))
    ] == [
        0,
        Fraction(1, 3),
    ]
    assert Subsampled(EpsilonDelta(Fraction(2)), Fraction(1, 4)).rho < 2
    assert Subsampled(BoundedRange(Fraction(1)), Fraction(1, 4)).rho <= Fraction(1, 8)
    assert poisson.for_group(1) is poisson
    assert (group.group_size, group.for_group(3).group_size) == (2, 6)
    assert fixed.for_group(1) is fixed
    with pytest.raises(Unsupported):
        fixed.for_group(2)
    with refused(Unsupported, match="fixed size is Poisson-subsampled"):
        fixed.poisson_subsampled(Fraction(1, 2))
    assert [EpsilonDelta(Fraction(2)).rho, BoundedRange(Fraction(2)).rho, Gaussian(Fraction(3)).rho] == [
        2,
        Fraction(1, 2),
        Fraction(3, 2),
    ]
    assert str(EpsilonDelta(Fraction(1), Fraction(1, 2))) == "ε = 1, δ = 0.5"
    assert DiscreteGaussian(Fraction(1), 0).is_zero
    assert not DiscreteGaussian(Fraction(1), 1).is_zero


def test_groups_and_samples_of_approximate_events_scale_delta():
    pair = EpsilonDelta(Fraction(1), Fraction(1, 100))
    assert pair.for_group(2) == EpsilonDelta(Fraction(2), pair.for_group(2).delta)
    assert float(pair.for_group(2).delta) == pytest.approx(0.01 * (1 + math.e))
    assert not pair.for_group(2).tight
    assert pair.for_group(50).delta == 1
    assert pair.poisson_subsampled(Fraction(1, 2)).delta == Fraction(1, 200)
    assert not pair.poisson_subsampled(Fraction(1, 2)).tight
    assert not RandomizedResponse(Fraction(3, 4), 2).for_group(2).tight


def test_impossible_outcomes_become_infinity_mass_of_the_truncated_event():
    law = FiniteDistributions(
        (Fraction(1, 2), Fraction(1, 4), Fraction(1, 4), Fraction(0)),
        (Fraction(1, 8), 0, Fraction(3, 8), Fraction(1, 2)),
    )
    assert law.max_loss is None
    assert law.truncated().infinity_mass == Fraction(1, 2)
    assert float(law.truncated().max_loss) == pytest.approx(math.log(4))
    apart = FiniteDistributions((Fraction(1), Fraction(0)), (Fraction(0), Fraction(1)))
    assert (apart.truncated().max_loss, apart.truncated().infinity_mass) == (0, 1)
    both = FiniteDistributions((Fraction(1, 4), Fraction(3, 4)), (Fraction(3, 4), Fraction(1, 4)))
    assert both.truncated() is both
    assert float(both.max_loss) == pytest.approx(math.log(3))
    assert float(
        FiniteDistributions((Fraction(1, 4), Fraction(3, 4), 0), (Fraction(1, 2), Fraction(1, 2), 0)).max_loss
    ) == pytest.approx(math.log(2))


def test_discrete_noise_defaults_to_sensitivity_one():
    assert PrivacyLoss.discrete_laplace(2).epsilon() == 0.5
    assert PrivacyLoss.discrete_gaussian(4).rho == Fraction(1, 8)
    assert (PrivacyLoss.pure(1) * 10**18).epsilon() == 1e18
    with refused(InvalidInput, match="times"):
        PrivacyLoss.pure(1) * (10**18 + 1)


def test_zero_losses_stay_zero():
    nothing = PrivacyLoss.pure(0)
    assert (
        nothing.poisson_subsampled(Fraction(1, 2)) == nothing.subsampled_without_replacement(10, 1) == nothing
    )
    assert nothing.for_group(3) == nothing


def test_losses_with_several_alternatives_are_composed():
    either = parallel_composition(PrivacyLoss.pure(1), PrivacyLoss.gaussian(1))
    assert PrivacyLoss.compose([either, PrivacyLoss.pure(1)]) == either + PrivacyLoss.pure(1)


@pytest.mark.parametrize(
    ("loss", "words"),
    [
        (
            PrivacyLoss.laplace(Fraction(1, 2)).poisson_subsampled(Fraction(1, 4)),
            "(ε = 0.5) of a Poisson sample, rate 0.25",
        ),
        (
            PrivacyLoss.discrete_laplace(2).poisson_subsampled(Fraction(1, 4)),
            "(ε = 0.5) of a Poisson sample, rate 0.25",
        ),
        (
            PrivacyLoss.bounded_range(1).poisson_subsampled(Fraction(1, 4)),
            "(ε = 1) of a Poisson sample, rate 0.25",
        ),
        (
            PrivacyLoss.randomized_response(Fraction(3, 4)).poisson_subsampled(Fraction(1, 4)),
            "(ε = 1.09862) of a Poisson sample, rate 0.25",
        ),
        (PrivacyLoss.discrete_gaussian(4), "discrete Gaussian Δ²/σ² = 0.25"),
        (
            PrivacyLoss.from_distributions([1, 0], [Fraction(1, 2), Fraction(1, 2)]),
            "two distributions on 2 outcomes",
        ),
        (PrivacyLoss.zcdp(Fraction(1, 2)), "ρ = 0.5"),
        (PrivacyLoss.from_renyi({2: 1, 3: 2}), "Rényi divergences at 2 orders"),
        (
            PrivacyLoss.gaussian(1).poisson_subsampled(Fraction(1, 4)).for_group(2).for_group(3),
            "(Gaussian μ = 1) of a Poisson sample, rate 0.25, group of 6",
        ),
        (
            PrivacyLoss.gaussian(1).subsampled_without_replacement(4, 1) * 2,
            "2 × ((Gaussian μ = 1) of a fixed-size sample, rate 0.25)",
        ),
    ],
    ids=str,
)
def test_each_event_has_a_description(loss, words):
    assert str(loss) == words


@pytest.mark.slow
def test_cost_figures_of_each_event():
    assert PrivacyLoss.zcdp(Fraction(1, 2)).cost().rho == Fraction(1, 2)
    assert PrivacyLoss.gaussian(1).poisson_subsampled(Fraction(1, 4)).cost().mu_squared == 1
    finite = PrivacyLoss.from_distributions(
        [Fraction(1, 4), Fraction(3, 4)], [Fraction(1, 2), Fraction(1, 2)]
    )
    assert finite.cost().epsilon == pytest.approx(math.log(2), abs=1e-15)
    assert (PrivacyLoss.gaussian(10**4).poisson_subsampled(Fraction(1, 2)).for_group(2)).renyi(
        2
    ) == pytest.approx(4e8)
    assert (
        PrivacyLoss.gaussian(1).poisson_subsampled(Fraction(1, 5)) + PrivacyLoss.zcdp(Fraction(1, 5))
    ).epsilon(1e-6) > 0


def test_subsampled_events_have_no_infinity_mass():
    with refused(InvalidInput, "infinity mass"):
        Subsampled(EpsilonDelta(Fraction(1), Fraction(1, 10)), Fraction(1, 2))
