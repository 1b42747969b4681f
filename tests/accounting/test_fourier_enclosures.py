"""Each error of the Fourier integral is made large in turn: bounds hold, but not without its enclosure."""

import math

import numpy as np
import pytest

from hubbub.accounting import subsampled_gaussian
from hubbub.accounting.fourier_accountant import FourierAccountant
from hubbub.accounting.fourier_contour import FarOutcomes
from hubbub.accounting.smooth_partitions import Window
from hubbub.accounting.subsampled_gaussian import QuadratureNodes, SubsampledGaussians

# δ at ε = 1 of 1000 steps, q = 0.01, σ = 1.1, to more digits than doubles have.
EPSILON, DELTA = 1.0, 0.000766909089514076895180


def steps(rate=0.01, sigma=1.1, count=1000):
    one = (np.array([float(value)]) for value in (rate, sigma, count))
    return FourierAccountant([], SubsampledGaussians(*one, added=False))


def holds(contour, epsilon=EPSILON, delta=DELTA):
    total = contour.at(epsilon)
    return total.value - total.error - total.aliases <= delta <= total.value + total.error


def make_plan(whole, epsilon=EPSILON, delta=DELTA):
    return whole.fair_plan(epsilon, math.log(delta), far=False)


def test_aliases_are_enclosed():
    whole = steps()
    plan = make_plan(whole)
    plan.period /= 3
    contour = whole.make_contour(plan)
    assert holds(contour)
    contour.bound_aliases = lambda _: 0.0
    assert not holds(contour)


def test_the_cut_is_enclosed():
    whole = steps()
    plan = make_plan(whole)
    plan.reach /= 4
    contour = whole.make_contour(plan)
    assert holds(contour)
    contour.beyond = 0.0
    assert not holds(contour)


def test_quadrature_is_enclosed(monkeypatch):
    """Nodes that end too early."""
    monkeypatch.setattr(subsampled_gaussian, "NEGLIGIBLE", 6.0)
    monkeypatch.setattr(subsampled_gaussian, "TAIL_DEVIATIONS", 3.0)
    monkeypatch.setattr(subsampled_gaussian, "MAX_LOST", math.inf)
    whole = steps()
    plan = make_plan(whole)
    assert holds(whole.make_contour(plan))
    original = QuadratureNodes.error_bound
    monkeypatch.setattr(QuadratureNodes, "error_bound", lambda nodes, t: 0.0 * original(nodes, t))
    assert not holds(whole.make_contour(plan))


@pytest.mark.parametrize("simple", [False, True])
def test_the_step_of_the_nodes_is_enclosed(monkeypatch, simple):
    """Nodes that lie too far apart, with a bound on shifted lines and with one in closed form."""
    monkeypatch.setattr(subsampled_gaussian, "NODES_EXPONENT", -8.0)
    monkeypatch.setattr(subsampled_gaussian, "MAX_LOST", math.inf)
    whole = steps(0.3, 4.0, 1)
    # One step in closed form.
    epsilon, delta = 0.1, 0.00484326377392980
    plan = make_plan(whole, epsilon, delta)
    plan.is_simple = simple
    assert holds(whole.make_contour(plan), epsilon, delta)
    make = QuadratureNodes.__init__

    def without(nodes, *values, log_error, **more):
        make(nodes, *values, log_error=tuple(np.full_like(side, -math.inf) for side in log_error), **more)

    monkeypatch.setattr(QuadratureNodes, "__init__", without)
    assert not holds(whole.make_contour(plan), epsilon, delta)


FEW = (1e-3, 0.8, 2)
FEW_EPSILON, FEW_DELTA = 1e-3, 0.0005202382170811
"""δ of two steps: the closed form of one, averaged over the other by a fine sum."""


def windowed():
    whole = steps(*FEW)
    plan = whole.windowed_plan(FEW_EPSILON, math.log(FEW_DELTA))
    assert plan.has_far
    return whole, plan


def test_far_outcomes_are_enclosed(monkeypatch):
    """Outcomes are called far though their loss may be small."""
    whole, plan = windowed()
    assert holds(whole.make_contour(plan), FEW_EPSILON, FEW_DELTA)
    plan.near = Window(plan.near.at - 1.0, plan.near.width)
    plan.decay = np.minimum(plan.decay, 0.0)
    assert holds(whole.make_contour(plan), FEW_EPSILON, FEW_DELTA)
    original = FarOutcomes.at
    monkeypatch.setattr(FarOutcomes, "at", lambda *arguments: (original(*arguments)[0], 0.0, 0.0))
    assert not holds(whole.make_contour(plan), FEW_EPSILON, FEW_DELTA)


def test_far_outcomes_count():
    whole, plan = windowed()
    plan.has_far = False
    assert not holds(whole.make_contour(plan), FEW_EPSILON, FEW_DELTA)


def test_outcomes_below_a_division_are_enclosed():
    whole = steps(0.01, 0.4, 200)
    epsilon, delta = 14.98792488093, 1e-5
    plan = whole.make_plan(epsilon, math.log(delta), None, whole.plain_scan)
    below = Window(np.array([2.6]), whole.subsampled.split_width)
    plan.below, plan.below_moment = below, (0.7, whole.moment(0.7, below))
    contour = whole.make_contour(plan)
    assert holds(contour, epsilon, delta)
    plan.below_moment = None
    assert not holds(contour, epsilon, delta)


def test_a_law_and_what_lies_below_a_division_add_up():
    whole = steps(0.01, 0.4, 200)
    epsilon, delta = 14.98792488093, 1e-5
    plan = whole.make_plan(epsilon, math.log(delta), None, whole.plain_scan)
    below = Window(np.array([2.6]), whole.subsampled.split_width / 10)
    rest = whole.make_plan(epsilon, math.log(delta), below, whole.scan(below))
    plan.below, plan.rest = below, rest
    total = whole.make_contour(plan).at(epsilon)
    assert total.value == pytest.approx(delta, rel=1e-6)
    assert whole.make_contour(rest).at(epsilon).value > 1e-4 * delta
