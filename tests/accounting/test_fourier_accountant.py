"""The Fourier integral against reference values, itself, and sums it cannot know of."""

import math
from types import SimpleNamespace

import numpy as np
import pytest

from hubbub.accounting import fourier_accountant
from hubbub.accounting.dominating_pairs import LaplacePair
from hubbub.accounting.float_bounds import Uncertified
from hubbub.accounting.fourier_accountant import FourierAccountant
from hubbub.accounting.subsampled_gaussian import SubsampledGaussians

# Poisson-subsampled Gaussian, add/remove, the worse direction: 160–200-bit tilted Laplace inversion.
# (rate, σ, steps), δ, ε.
REFERENCES = [
    ((0.01, 1.1, 1000), 1e-5, 1.5153619166644845),
    ((0.01, 1.1, 1000), 1e-10, 2.6256757152258965),
    ((256 / 60000, 1.1, 14063), 1e-5, 2.3816897261416488),
    ((0.001, 0.8, 10**5), 1e-5, 2.574959309352611),
    ((0.02, 4.0, 10**6), 1e-6, 36.335210085412335),
    ((0.01, 1.0, 1000), 1e-12, 3.9142981560374657),
    ((0.01, 1.0, 1000), 1e-15, 4.854537750604919),
    ((0.2, 1.0, 500), 1e-5, 38.170247206487794),
    ((0.5, 0.5, 1000), 1e-5, 877.6568458560857),
]
# δ at ε of (0.01, 1.1, 1000).
DELTAS = [(0.0, 0.140320985988883444460), (0.5, 0.0182080562278006918206), (1.0, 0.000766909089514076895180)]


class NormalLoss:
    """Gaussian noise, as the integral wants it: L is normal with mean μ²/2 and variance μ²."""

    infinity_mass = 0.0

    def __init__(self, mu_squared):
        self.mu_squared = mu_squared

    def log_moment(self, z):
        return self.mu_squared / 2 * (z + z * z)

    def derivatives(self, c):
        return self.mu_squared / 2 * (c + c * c), self.mu_squared * (0.5 + c), self.mu_squared

    def decay(self, t):
        return -self.mu_squared * t * t / 2


def steps(rate, sigma, count, *, added):
    one = (np.array([float(value)]) for value in (rate, sigma, count))
    return FourierAccountant([], SubsampledGaussians(*one, added=added))


def both(find):
    sides = [find(added) for added in (False, True)]
    return max(low for low, _ in sides), max(high for _, high in sides)


@pytest.mark.parametrize(("case", "delta", "epsilon"), REFERENCES)
def test_epsilon_of_sampled_gaussians_is_enclosed_to_a_millionth(case, delta, epsilon):
    low, high = both(lambda added: steps(*case, added=added).epsilon(delta))
    assert low <= epsilon * (1 + 1e-15)
    assert high >= epsilon * (1 - 1e-15)
    assert high - low <= 1e-6 * epsilon
    assert high <= epsilon * (1 + 1e-7)


@pytest.mark.parametrize(("epsilon", "delta"), DELTAS)
def test_delta_of_sampled_gaussians_is_enclosed(epsilon, delta):
    low, high = both(lambda added: steps(0.01, 1.1, 1000, added=added).delta(epsilon))
    assert low <= delta <= high
    assert high - low <= 1e-7 * delta


@pytest.mark.parametrize(
    ("count", "epsilon"), [(1, 4.377178095681224628), (10, 17.85658683010761393), (100, 91.81728962466374468)]
)
def test_plain_gaussians_agree_with_the_closed_form(count, epsilon):
    low, high = FourierAccountant([(NormalLoss(1.0), count)], None).epsilon(1e-5)
    assert low <= epsilon <= high
    assert high - low <= 1e-10 * epsilon


def test_a_rate_of_one_is_the_plain_gaussian():
    low, high = steps(1 - 2.0**-53, 1.0, 100, added=False).epsilon(1e-5)
    assert low <= 91.81728962466374468 * (1 + 1e-12)
    assert high >= 91.81728962466374468 * (1 - 1e-12)


def test_a_schedule_is_the_sum_of_its_steps():
    law = SubsampledGaussians(
        np.full(4, 0.01), np.full(4, 1.1), np.array([100.0, 200.0, 300.0, 400.0]), added=False
    )
    together = FourierAccountant([], law).epsilon(1e-5)
    alone = steps(0.01, 1.1, 1000, added=False).epsilon(1e-5)
    assert together[0] <= alone[1]
    assert alone[0] <= together[1]
    assert together[1] == pytest.approx(alone[1], rel=1e-7)


def test_many_different_sigmas_lie_between_their_extremes():
    law = SubsampledGaussians(np.full(50, 0.01), np.linspace(1.0, 1.2, 50), np.full(50, 20.0), added=False)
    low, high = FourierAccountant([], law).epsilon(1e-5)
    assert steps(0.01, 1.2, 1000, added=False).epsilon(1e-5)[0] < low
    assert high < steps(0.01, 1.0, 1000, added=False).epsilon(1e-5)[1]
    assert high - low <= 1e-6 * high


def test_gaussians_and_sampled_gaussians_add_up():
    law = SubsampledGaussians(np.array([0.01]), np.array([1.1]), np.array([1000.0]), added=False)
    low, high = FourierAccountant([(NormalLoss(0.25), 1)], law).epsilon(1e-5)
    assert high > steps(0.01, 1.1, 1000, added=False).epsilon(1e-5)[1]
    assert high < 1.5153619166644845 + 2.0  # and below the sum of the two at half of δ each
    assert high - low <= 1e-6 * high


def test_epsilon_is_zero_if_delta_is_met_at_zero():
    assert steps(0.01, 1.1, 1000, added=False).epsilon(0.2) == (0.0, 0.0)


@pytest.mark.parametrize("epsilon", [0.5, 1.5, 3.0])
def test_chernoff_bound_is_above_and_close(epsilon):
    integral = steps(0.01, 1.1, 1000, added=False)
    _, high = integral.delta(epsilon)
    assert high <= integral.chernoff(epsilon) <= 100 * high


def test_delta_is_decreasing_and_convex():
    integral = steps(0.01, 1.1, 1000, added=False)
    points = [integral.delta(epsilon)[1] for epsilon in (0.1, 0.6, 1.1, 1.6)]
    assert points == sorted(points, reverse=True)
    powers = [math.exp(epsilon) for epsilon in (0.1, 0.6, 1.1)]
    slopes = [(b - a) / (y - x) for a, b, x, y in zip(points, points[1:], powers, powers[1:], strict=False)]
    assert slopes[0] < slopes[1] < 0


@pytest.mark.parametrize("case", [(1e-8, 0.01, 10**7), (1e-7, 1.0, 10**7)])
def test_pairs_without_decay_are_uncertified(case):
    with pytest.raises(Uncertified):
        steps(*case, added=False).epsilon(1e-5)


# ---- where doubles end: each of these once came out below the truth


@pytest.mark.parametrize(
    ("case", "added", "epsilon", "delta"),
    [
        # Truths by mpmath at 60 digits.
        ((3e-4, 4.0, 10**7), False, 0.5665905323052043, 0.000999999999762559),
        ((0.3, 10.0, 10**8), True, 1.0, 1.0),
        ((0.01, 1.0, 10**9), True, 1.0, 1.0),
        ((0.02, 4.0, 10**9), True, 1.0, 1.0),
    ],
)
def test_many_steps_are_enclosed(case, added, epsilon, delta):
    low, high = steps(*case, added=added).delta(epsilon)
    assert 0 <= low <= delta
    assert delta * (1 - 1e-9) <= high <= 1


def test_epsilon_of_a_billion_steps_is_enclosed():
    low, high = steps(1e-4, 2.0, 10**9, added=False).epsilon(1e-6)
    assert low <= 8.9582806138 <= high
    assert high - low <= 1e-7


@pytest.mark.parametrize("epsilon", [38.4, 38.7, 39.0, 45.0, 60.0])
def test_a_delta_as_small_as_the_least_doubles_is_rounded_up(epsilon):
    integral = FourierAccountant([(NormalLoss(1.0), 1)], None)
    low, high = integral.delta(epsilon)
    assert low == 0
    assert high >= 1e-290
    assert integral.chernoff(epsilon) >= 1e-290


def test_moments_exclude_infinite_losses():
    part = NormalLoss(1.0)
    part.infinity_mass = 1e-3
    with pytest.raises(Uncertified):
        FourierAccountant([(part, 1)], None)


class Falling:
    """A contour on which the sum is e^−ε, or a share of it, and errs by so much."""

    def __init__(self, error=0.0, aliases=0.0, share=1.0):
        self.error, self.aliases, self.share = error, aliases, share

    def at(self, epsilon):
        return fourier_accountant._Sum(self.share * math.exp(-epsilon), self.error, self.aliases)

    def slope(self, epsilon):
        return self.share * math.exp(-epsilon)


def answered(monkeypatch, contour):
    monkeypatch.setattr(FourierAccountant, "_contour", lambda *_: contour)
    return FourierAccountant([(NormalLoss(1.0), 1)], None)


@pytest.mark.parametrize(("error", "aliases"), [(0.0, 0.0), (1e-9, 1e-7), (1e-6, 0.0), (5e-6, 3e-6)])
def test_errors_widen_both_bounds(monkeypatch, error, aliases):
    integral = answered(monkeypatch, Falling(error, aliases))
    assert integral.delta(2.0) == (math.exp(-2) - error - aliases, math.exp(-2) + error)
    low, high = integral.epsilon(1e-5)
    assert math.exp(-high) + error <= 1e-5
    assert math.exp(-low) - error - aliases >= 1e-5
    truth = -math.log(1e-5)
    assert truth + error / 1e-5 <= high <= truth + 2.01 * error / 1e-5 + 1e-13
    assert truth - 2.01 * (error + aliases) / 1e-5 - 1e-13 <= low <= truth - (error + aliases) / 1e-5


def test_epsilon_zero_is_returned_only_if_verified(monkeypatch):
    """Where the saddle lies below 0, δ(0) itself is looked at."""
    monkeypatch.setattr(FourierAccountant, "_epsilon_at", lambda *_: -1.0)
    assert answered(monkeypatch, Falling(share=0.3)).epsilon(0.3) == (0.0, 0.0)
    low, high = answered(monkeypatch, Falling(share=0.5)).epsilon(0.3)
    assert low <= math.log(5 / 3) <= high <= math.log(5 / 3) * (1 + 1e-12)
    low, high = answered(monkeypatch, Falling(0.02, share=0.29)).epsilon(0.3)
    assert low == 0
    assert 0.29 * math.exp(-high) + 0.02 <= 0.3


def test_unverified_bounds_are_uncertified(monkeypatch):
    integral = answered(monkeypatch, Falling(1e-4))
    with pytest.raises(Uncertified):
        integral.epsilon(1e-5)
    low, high = answered(monkeypatch, Falling(0.0, 1e-4)).epsilon(1e-5)
    assert (low, math.exp(-high)) == (0.0, pytest.approx(1e-5))
    for broken in (math.nan, -2.0):
        with pytest.raises(Uncertified):
            answered(monkeypatch, Falling(broken)).delta(0.5)
    low, high = answered(monkeypatch, Falling(0.0)).delta(680.0)
    assert (low, high) == (0.0, 1e-290)
    assert answered(monkeypatch, Falling(3.0)).delta(0.5)[1] == 1


def test_root_search_takes_steps_of_at_most_one():
    """Where the sum is flat the steps of Newton's rule are all alike, and it gives up in the end."""

    class Flat(Falling):
        def __init__(self, value):
            self.value, self.asked = value, []

        def at(self, epsilon):
            self.asked.append(epsilon)
            return fourier_accountant._Sum(self.value, 0.0, 0.0)

        def slope(self, epsilon):
            return self.value

    assert fourier_accountant._root(Flat(2.0), 0.5, 1.0) == pytest.approx(0.5 + 50 * math.log(2))
    assert fourier_accountant._root(Flat(100.0), 0.5, 1.0) == pytest.approx(50.5)
    assert fourier_accountant._root(Flat(0.01), 0.5, 1.0) == pytest.approx(-49.5)
    assert fourier_accountant._root(Flat(1.0), 0.5, 1.0) == 0.5
    for value in (0.0, -1.0):
        with pytest.raises(Uncertified):
            fourier_accountant._root(Flat(value), 0.5, 1.0)


def test_tail_without_decay_is_bounded_loosely():
    """One Laplace mechanism: δ is 1 − e^((ε − r)/2), and its atom's moments never fall."""
    low, high = FourierAccountant([(LaplacePair(1.0), 1)], None).delta(0.5)
    assert low <= 1 - math.exp(-0.25) <= high


@pytest.mark.parametrize("count", [1, 40])
def test_pieces_of_an_integral_add_up(count):
    whole = FourierAccountant([(NormalLoss(0.25), count), (NormalLoss(0.5), 2)], None)
    size = 0.25 * count + 1
    for c in (0.3, 2.0, 9.0):
        assert whole._derivatives(c) == pytest.approx(
            (size / 2 * (c + c * c), size * (0.5 + c), size), rel=1e-12
        )
        assert size / 2 * (c + c * c) < whole.moment(c) < size / 2 * (c + c * c) * (1 + 1e-12) + 1e-12
        assert whole._epsilon_at(c) == pytest.approx(size * (0.5 + c) - 1 / c - 1 / (1 + c), rel=1e-12)
        # By the saddle-point formula, to some percent.
        near = whole._epsilon_at(c)
        if near > 0:
            truth = math.log(FourierAccountant([(NormalLoss(size), 1)], None).delta(near)[1])
            assert whole._log_delta_at(c) == pytest.approx(truth, abs=0.2)


def test_the_contour_has_the_period_of_its_aliases():
    whole = FourierAccountant([(NormalLoss(0.25), 40)], None)
    middle = whole._epsilon_at(2.0)
    period, bound = fourier_accountant._aliases(whole, 2.0, middle, whole._derivatives(2.0)[0])
    contour = whole._contour(2.0, middle)
    assert contour.step == pytest.approx(2 * math.pi / period, rel=1e-15)
    assert (contour.z.real == 2).all()
    assert contour.z.imag == pytest.approx(contour.step * np.arange(contour.z.size))
    assert contour.power == pytest.approx(5 * (contour.z + contour.z**2), rel=1e-12)
    assert (contour.log_error >= 0.99 * 2.0**-48 * (1 + np.abs(5 * (contour.z + contour.z**2)))).all()
    assert contour.kernel[1:] == pytest.approx(1 / (contour.z[1:] * (1 + contour.z[1:])), rel=1e-12)
    assert contour.kernel[0] == pytest.approx(1 / 12)
    # The δ's a period apart, grown by the tilt.
    for epsilon in (middle - 0.1, middle, middle + 0.1):
        after = math.fsum(
            math.exp(2.0 * m * period)
            * FourierAccountant([(NormalLoss(10.0), 1)], None).delta(epsilon + m * period)[1]
            for m in (1, 2)
        )
        before = math.fsum(math.exp(-2.0 * m * period) for m in (1, 2, 3))
        assert before * (1 - 1e-12) <= bound(epsilon) >= after
        assert bound(epsilon) <= math.exp(-25) * contour.at(epsilon).value * 50
    # Of e^(−10t²/2)/t² what lies beyond the last point.
    last = float(contour.z.imag[-1])
    t = np.linspace(last, 4 * last, 100_001)
    truth = float((np.exp(-5 * t * t) / t**2).sum()) * 3 * last / 100_000
    assert truth <= contour.beyond <= 100 * truth


@pytest.mark.parametrize("turn", [None, 1.0, 3.0, 1e3])
@pytest.mark.parametrize("start", [0.1, 1.0, 20.0])
def test_truncated_tail_is_bounded_in_steps(turn, start):
    """∫ e^−t/t² from the start on, by an upper sum of steps of a tenth."""
    whole = SimpleNamespace(_log_decay=lambda _, t: -t)
    found = fourier_accountant._tail_bound(whole, None if turn is None else SimpleNamespace(turn=turn), start)
    t = start * np.exp(np.linspace(0, 12, 200_001))
    truth = float((np.exp(-t) / t).sum()) * 12 / 200_000
    assert truth * (1 - 1e-3) <= found <= max(truth * 1.1 ** (start + 2), 1e-12)


def test_moments_of_sampled_steps_are_raised_by_their_error():
    law = steps(0.1, 1.0, 50, added=False).subsampled
    nodes = law.quadrature(2.0, 0.0)
    whole = FourierAccountant([(NormalLoss(0.5), 3)], law)
    assert FourierAccountant([], law).moment(2.0) == nodes.moment + nodes.error > nodes.moment
    assert whole.moment(2.0) == pytest.approx(nodes.moment + nodes.error + 4.5, rel=1e-12)
    assert whole._derivatives(2.0) == pytest.approx(
        (nodes.moment + 4.5, 50 * nodes.mean[0] + 3.75, 50 * nodes.variance[0] + 1.5), rel=1e-3
    )


@pytest.mark.parametrize("root", [1e-3, 0.4, 3.0, 5.0, 700.0])
def test_tilt_search_converges_in_a_few_steps(root):
    asked = []
    found = FourierAccountant._tilt(lambda c: asked.append(c) or c**3 - root**3)
    assert abs(math.log(found / root)) < 0.12
    assert len(asked) <= 16
    assert FourierAccountant._tilt(lambda _: -1.0) == pytest.approx(math.exp(12.5))
    assert FourierAccountant._tilt(lambda _: 1.0) == pytest.approx(math.exp(-7.5))


def test_tilt_search_returns_for_any_function():
    """One that leaps to and fro: after six steps any place will do."""
    leaps = iter([-9, 1, 50, -1000, 10**4, -(10**5), 10**6, -1])
    found = FourierAccountant._tilt(lambda _: next(leaps) * 1e-6)
    assert math.exp(1.5) < found < math.exp(2.5)
    assert next(leaps, None) is None


def test_too_many_points_are_uncertified(monkeypatch):
    monkeypatch.setattr(fourier_accountant, "_MAX_POINTS", 3)
    for integral in (FourierAccountant([(NormalLoss(1.0), 1)], None), steps(0.1, 1.0, 50, added=False)):
        with pytest.raises(Uncertified):
            integral.delta(1.0)


def test_chernoff_bound_uses_the_best_tilt():
    """Of Gaussian noise: the least over c of e^(K(c) − cε)·c^c/(1 + c)^(1 + c)."""
    for mu_squared, epsilon in ((1.0, 3.0), (0.01, 0.5), (4.0, 0.0)):
        c = np.exp(np.linspace(-6, 6, 100_001))
        power = mu_squared / 2 * (c + c * c) - c * epsilon + c * np.log(c) - (1 + c) * np.log1p(c)
        truth = math.exp(min(0.0, float(power.min())))
        found = FourierAccountant([(NormalLoss(mu_squared), 1)], None).chernoff(epsilon)
        assert truth <= found <= truth * 1.02
