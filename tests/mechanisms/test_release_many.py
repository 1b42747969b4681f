"""Many releases at once: the law of one release, the loss of all, and no value that one would refuse."""

import copy
import pickle
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest

from hubbub.errors import InvalidInput, Refused
from hubbub.mechanisms import (
    AboveThreshold,
    Exponential,
    Gaussian,
    Laplace,
    PermuteAndFlip,
    RandomizedResponse,
    ReportNoisyMax,
    ReportNoisyMaxWithGap,
    TopK,
    laplace_gaussian,
)
from hubbub.noise import discrete_laplace, inversion, rounded_gaussian
from hubbub.noise.inversion import MAX_DRAW
from hubbub.sensitivity import MAX_MAGNITUDE, Bounded, Sensitivity
from hubbub.unit import Unit
from mechanisms.reference import fits, repeatable_bits
from refusing import refused

ONE = Sensitivity(1)
ADDITIVE = [
    Laplace.of(sensitivity=1, epsilon=0.5),
    Gaussian(Fraction(3), ONE),
    Laplace.of(sensitivity=1, epsilon=0.5, real=True, coordinates=3),
    Gaussian(Fraction(3), ONE, Fraction(1, 2**20), 3),
]
SELECTED = PermuteAndFlip.of(sensitivity=1, epsilon=1)
SELECTIONS = [PermuteAndFlip, Exponential, ReportNoisyMax, ReportNoisyMaxWithGap]


@pytest.mark.parametrize("mechanism", ADDITIVE, ids=str)
def test_the_loss_is_that_of_all_releases(mechanism):
    for count in (1, 2, 50):
        release = mechanism.release_many(42, count)
        assert release.loss == mechanism.loss() * count
        assert release.value.shape == (count,)
        assert release.value.dtype == (np.int64 if mechanism.grid is None else np.float64)
        assert release.coordinates == count
        assert release.source is mechanism
        assert 0 <= release.error(0.9) - mechanism.error(0.9) < 1e-9
        assert release.error(0.9, simultaneous=True) >= mechanism.error(0.9, coordinates=count)


@pytest.mark.parametrize("mechanism", ADDITIVE, ids=str)
def test_a_vector_gives_one_row_for_each_release(mechanism):
    vector = [10**6, -(10**6), 0] if mechanism.grid is None else [1e6, -1e6, 0.0]
    release = mechanism.release_many(vector, 50)
    assert release.value.shape == (50, 3)
    assert release.coordinates == 150
    assert np.abs(release.value - np.array(vector)).max() < 1000
    assert len({tuple(row) for row in release.value.tolist()}) > 40  # every row has noise of its own


@pytest.mark.parametrize("count", [1, 20, 100])
@pytest.mark.parametrize("value", [0, -7, 2**60, MAX_MAGNITUDE, -MAX_MAGNITUDE])
@pytest.mark.parametrize("mechanism", ADDITIVE[:2], ids=str)
def test_integers_plus_the_draws_of_a_vector(mechanism, value, count):
    with repeatable_bits("many"):
        draws = (discrete_laplace if isinstance(mechanism, Laplace) else rounded_gaussian)(
            mechanism.scale, count
        )
    with repeatable_bits("many"):
        answers = mechanism.release_many(value, count).value
    expected = [max(-MAX_MAGNITUDE, min(MAX_MAGNITUDE, value + x)) for x in draws.tolist()]
    assert answers.tolist() == expected


@pytest.mark.parametrize("value", [0, 1, -(2**40), 0.1, -1e-300, 1e300, Fraction(1, 3), 2**61, -(2.0**90)])
@pytest.mark.parametrize("mechanism", ADDITIVE[2:], ids=str)
def test_reals_are_what_single_releases_of_these_draws_show(mechanism, value, monkeypatch):
    draws = [0, 1, -1, 12345, -(2**52), 2**53 + 1, MAX_DRAW - 1, MAX_DRAW, -MAX_DRAW]
    sampler = "discrete_laplace" if isinstance(mechanism, Laplace) else "rounded_gaussian"
    # A Laplace draw that a vector cannot hold is continued.
    more = 12345 if isinstance(mechanism, Laplace) else 0
    monkeypatch.setattr(laplace_gaussian, "geometric", lambda scale: more)
    monkeypatch.setattr(laplace_gaussian, sampler, lambda scale, size: np.array(draws))
    many = mechanism.release_many(value, len(draws)).value
    for sample, answer in zip(draws, many.tolist(), strict=True):
        sign = 1 if sample > 0 else -1
        whole = sign * (MAX_DRAW + more) if abs(sample) == MAX_DRAW else sample
        monkeypatch.setattr(laplace_gaussian, sampler, lambda scale, whole=whole: whole)
        assert mechanism.release(value).value == answer


def test_many_answers_follow_the_law():
    # χ² at a false alarm of 1e-9; and the bits are the same in every run.
    mechanism = ADDITIVE[0]
    steps = inversion.discrete_laplace_size(Fraction(2), 64)
    edges = [next(steps)[0] / 2**64 for _ in range(12)]
    sizes = [edges[0], *(high - low for low, high in pairwise(edges)), 1 - edges[-1]]
    with repeatable_bits("law"):
        answers = mechanism.release_many(42, 20_000).value
    counts = np.bincount(np.minimum(np.abs(answers - 42), len(sizes) - 1), minlength=len(sizes))
    assert fits(counts.tolist(), sizes)
    assert abs(int((answers > 42).sum()) - int((answers < 42).sum())) < 900


@pytest.mark.parametrize("kind", SELECTIONS)
def test_selections_are_independent_and_cost_as_many_losses(kind):
    mechanism = kind.of(sensitivity=1, epsilon=0.1)
    release = mechanism.release_many([0, 0, 0], 200)
    winners = [getattr(value, "winner", value) for value in release.value]
    assert len(winners) == 200
    assert set(winners) == {0, 1, 2}
    assert release.loss == mechanism.loss() * 200
    assert release.coordinates == 3
    assert release.user_asserted


def test_every_other_mechanism_releases_many_one_by_one():
    top = TopK(PermuteAndFlip.of(sensitivity=1, epsilon=1), 2)
    release = top.release_many([100, 200, 300], 3)
    assert [len(each) for each in release.value] == [2, 2, 2]
    assert release.loss == top.loss() * 3
    assert len(AboveThreshold(ONE, Fraction(1), 5).release_many([1, 100], 4).value) == 4
    coin = RandomizedResponse(Fraction(3, 4), 2)
    assert coin.release_many(1, 5).loss == coin.loss() * 5


def test_a_bounded_value_keeps_its_unit_and_its_rule():
    bounded = Bounded(5, ONE, Unit("patient"), "count")
    for mechanism in ADDITIVE:
        release = mechanism.release_many(bounded, 4)
        assert (release.unit, release.user_asserted) == (Unit("patient"), False)
        assert mechanism.release_many(5, 4).user_asserted


@pytest.mark.parametrize("bad", [0, -1, 1.5, "3", None, True, float("nan")])
def test_a_count_is_a_positive_integer(bad):
    for mechanism in (ADDITIVE[0], PermuteAndFlip.of(sensitivity=1, epsilon=1), TopK(SELECTED, 1)):
        with refused(InvalidInput, match="count"):
            mechanism.release_many([1, 2], bad)


def test_release_many_refuses_what_release_refuses():
    with refused(InvalidInput, match="integers"):
        ADDITIVE[0].release_many(0.5, 10)
    with refused(Refused, match="coordinates"):
        ADDITIVE[2].release_many([1.0] * 4, 10)
    with refused(Refused, match="sensitivity"):
        ADDITIVE[0].release_many(Bounded.user_asserted(1, 2), 10)


@pytest.mark.parametrize("mechanism", [*ADDITIVE, SELECTED], ids=str)
def test_a_loss_is_made_once_and_is_no_part_of_what_is_stored_or_compared(mechanism):
    fresh = copy.copy(
        type(mechanism)(**{name: getattr(mechanism, name) for name in mechanism.__match_args__})
    )
    text = fresh.to_json()
    assert fresh.loss() is fresh.loss()
    assert fresh.loss() == mechanism.loss()
    assert fresh.to_json() == text
    assert fresh == mechanism
    assert hash(fresh) == hash(mechanism)
    again = pickle.loads(pickle.dumps(fresh))  # noqa: S301
    assert again == fresh
    assert again.loss() == fresh.loss()
