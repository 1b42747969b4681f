import math
import random
from fractions import Fraction

import numpy as np
import pytest

from hubbub.accounting import PrivacyLoss
from hubbub.errors import InvalidInput
from hubbub.mechanisms import Gaussian, Laplace
from hubbub.release import Release
from hubbub.sensitivity import Bounded, Sensitivity
from hubbub.unit import Neighbours, Unit
from internals import inject_bits
from refusing import refused


class Made:
    """A mechanism to the extent that a release knows it."""

    def __init__(self, error_kind, width=3):
        self.error_kind = error_kind
        self.width = width
        self.calls = []

    def error(self, confidence=0.95, *, coordinates=1):
        self.calls.append((confidence, coordinates))
        return self.width

    def to_json(self):
        return "{}"


def release(value, error_kind="additive", width=3, **more):
    return Release(
        value, PrivacyLoss.pure(1), Made(error_kind, width), Unit.row(), user_asserted=False, **more
    )


def test_mapping_keeps_everything_but_the_error():
    first = Release(
        4,
        PrivacyLoss.gaussian(1),
        Made("additive"),
        Unit("patient", Neighbours.SUBSTITUTE),
        user_asserted=True,
        model="local",
        coordinates=7,
    )
    second = first.map(lambda answer: answer + 1)

    assert (first.value, second.value) == (4, 5)
    assert (first.post_processed, second.post_processed) == (False, True)
    assert second.loss == first.loss
    assert second.source is first.source
    assert second.unit == first.unit
    assert (second.user_asserted, second.model, second.coordinates) == (True, "local", 7)
    with refused(InvalidInput, match="no error of its own"):
        second.error()
    with refused(InvalidInput, match="no error of its own"):
        second.interval()
    assert first.error() == 3


def test_mechanism_without_an_error_bound_has_none():
    with refused(InvalidInput, match="has no error bound"):
        release(4, "none").error()
    with refused(InvalidInput, match="has no error bound"):
        release(4, "none").interval()


def test_errors_are_per_coordinate_or_simultaneous():
    answer = release(np.array([1, 2]), coordinates=2)

    assert answer.error(0.9) == answer.error(0.9, simultaneous=True) == 3
    assert answer.source.calls == [(0.9, 1), (0.9, 2)]
    answer.error()
    assert answer.source.calls[-1] == (0.95, 1)
    answer.interval(0.5, simultaneous=True)
    assert answer.source.calls[-1] == (0.5, 2)
    answer.interval()
    assert answer.source.calls[-1] == (0.95, 1)


def test_a_choice_has_a_regret_over_all_candidates_and_no_interval():
    answer = release(2, "regret", coordinates=9)

    assert answer.error() == 3
    assert answer.source.calls == [(0.95, 9)]
    with refused(InvalidInput, match="a selection has no interval"):
        answer.interval()
    assert release(2.5, "regret", width=0.5).error() == 0.5


def test_integers_have_an_interval_of_integers():
    assert release(10).interval() == (7, 13)
    low, high = release(np.array([10, 20])).interval()
    assert (low.tolist(), high.tolist()) == ([7, 17], [13, 23])
    assert low.dtype == np.int64
    assert type(release(10).error()) is int


def test_error_of_a_double_includes_its_rounding():
    answer = release(1e15, width=3.0)

    assert answer.error() == math.nextafter(3.0 + 0.0625, math.inf)
    assert release(-1e15, width=3.0).error() == answer.error()
    assert release(np.array([1.0, -1e15, 3.0]), width=3.0, coordinates=3).error() == answer.error()
    assert 3.0 < release(0.0, width=3.0).error() <= math.nextafter(math.nextafter(3.0, 4), 4)
    assert 3.0 < release(np.zeros(0), width=3.0).error() <= math.nextafter(math.nextafter(3.0, 4), 4)
    assert release(np.finfo(float).max, width=3.0).error() < 1e293
    for tiny in (1e-30, np.array([1e-30, -1e-31]), np.zeros(0)):
        assert 1e-30 < release(tiny, width=1e-30).error() < 1.000000000000001e-30


def test_the_interval_of_doubles_is_rounded_outward():
    for value, width in [(0.1, 0.2), (1e15, 3.0), (-7.3, 0.1), (1 / 3, 1e-30), (5.0, 1e-300)]:
        answer = release(value, width=width)
        low, high = answer.interval()
        assert type(low) is type(high) is float
        assert Fraction(low) <= Fraction(value) - Fraction(answer.error())
        assert Fraction(high) >= Fraction(value) + Fraction(answer.error())
        assert Fraction(high) - Fraction(low) <= 2 * Fraction(answer.error()) + 4 * Fraction(
            math.ulp(abs(value) + width)
        )
        lows, highs = release(np.array([value, value]), width=width, coordinates=2).interval()
        assert (lows.tolist(), highs.tolist()) == ([low, low], [high, high])


def test_an_interval_may_reach_beyond_all_doubles():
    top = np.finfo(float).max
    low, high = release(np.array([top, -top]), width=1e300, coordinates=2).interval()

    assert high.tolist()[0] == math.inf
    assert low.tolist()[1] == -math.inf
    assert release(float(top), width=1e300).interval()[1] == math.inf


@pytest.mark.sweep(7)
@pytest.mark.slow
@pytest.mark.parametrize("size", [None, 50])
@pytest.mark.parametrize("exact", [0.1, 1e6 + 1 / 3, 1e15 + 0.125, -1e17, 3e300])
def test_exact_answer_is_within_the_error(exact, size):
    """As often as is said, exactly; 1e15 and more are shown on doubles wider apart than the grid."""
    mechanism = Laplace.of(sensitivity=1, epsilon=1, real=True, coordinates=size or 1)
    hits = total = 0
    for seed in range(4 if size else 60):
        with inject_bits(random.Random(seed).randbytes):
            noisy = mechanism.release(exact if size is None else np.full(size, exact))
        low, high = noisy.interval(0.8)
        width = Fraction(noisy.error(0.8))
        for answer, left, right in np.broadcast(noisy.value, low, high):
            near = abs(Fraction(float(answer)) - Fraction(exact)) <= width
            hits += near
            total += 1
            assert not near or Fraction(float(left)) <= Fraction(exact) <= Fraction(float(right))
    assert hits / total > 0.65


def test_repr_of_a_release_hides_its_input():
    mechanism = Gaussian.of(sensitivity=1, epsilon=1, delta=1e-6)
    bounded = Bounded(987654321, Sensitivity(1), Unit("patient"), "count")
    answer = mechanism.release(bounded)

    assert (
        repr(answer)
        == f"Release({answer.value!r}, {mechanism.loss()}, of one patient, add/remove, central model)"
    )
    asserted = mechanism.release(5)
    assert repr(asserted).endswith("of one row, add/remove, central model; user-asserted sensitivity)")
    assert repr(asserted.map(str)) == (
        f"Release({str(asserted.value)!r}, post-processed, {mechanism.loss()}, "
        "of one row, add/remove, central model; user-asserted sensitivity)"
    )


def test_releases_are_compared_by_identity():
    assert release(1) != release(1)


def test_a_release_cannot_be_changed():
    with pytest.raises(AttributeError):
        release(1).value = 2
