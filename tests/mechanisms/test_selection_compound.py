"""The k best by peeling, and a winner with its score: what they cost, and that nothing else leaves."""

import dataclasses
import math
from fractions import Fraction

import mpmath
import pytest

from hubbub.errors import InvalidInput, Refused
from hubbub.mechanisms import (
    Exponential,
    Gaussian,
    Laplace,
    PermuteAndFlip,
    ReportNoisyMax,
    ReportNoisyMaxWithGap,
    TopK,
    from_json,
    select_and_measure,
    selection,
)
from hubbub.mechanisms.selection import SelectAndMeasure, WinnerWithScore
from hubbub.sensitivity import Bounded, Sensitivity, unwrap
from hubbub.unit import Neighbours, Unit
from internals import inject_bits
from mechanisms import reference
from mechanisms.reference import check_stored, fits, stream
from refusing import refusal

HALF = Fraction(1, 2)
each_index_only = pytest.mark.parametrize("kind", [PermuteAndFlip, Exponential, ReportNoisyMax])


# Peeling


@each_index_only
def test_peeling_selects_the_best_remaining_candidate(kind):
    scores = [10**6, 7 * 10**6, 0, 3 * 10**6, 5 * 10**6]
    round_ = kind.of(sensitivity=1, epsilon=0.5)

    assert TopK(round_, k=3).release(scores).value == [1, 4, 3]
    assert TopK(round_, k=5).release(scores).value == [1, 4, 3, 0, 2]
    assert TopK(round_, k=3).loss() == round_.loss() * 3 == TopK(round_, k=3).release(scores).loss
    assert TopK(round_, k=3).loss().epsilon() == 1.5


@pytest.mark.slow
def test_peeling_follows_the_reference_law():
    mechanism = TopK(PermuteAndFlip.of(sensitivity=1, epsilon=2), k=2)
    scores, z = (2, 0, 1), mpmath.exp(-1)
    first = reference.permute_and_flip(scores, z)
    law = {}
    for winner in range(3):
        left = [i for i in range(3) if i != winner]
        for second, chance in zip(
            left, reference.permute_and_flip([scores[i] for i in left], z), strict=True
        ):
            law[winner, second] = first[winner] * chance
    counts = dict.fromkeys(law, 0)

    with inject_bits(stream("peeling")):
        for _ in range(3000):
            counts[tuple(mechanism.release(list(scores)).value)] += 1

    assert fits(list(counts.values()), list(law.values()))


def test_the_top_k_are_k_different_indices_and_nothing_else():
    release = TopK(ReportNoisyMax.of(sensitivity=1, epsilon=1), k=2).release(
        [987654321, 987654320, 987654000]
    )

    assert [type(index) for index in release.value] == [int, int]
    assert len(set(release.value)) == 2
    assert "98765" not in repr(release) + release.source.to_json()


def test_k_is_a_number_of_candidates():
    inner = PermuteAndFlip.of(sensitivity=1, epsilon=1)
    for bad in (0, -1, 1.5, math.nan, "2", True, None):
        assert refusal(InvalidInput, TopK, inner, bad).what.startswith("k is")
    assert TopK(inner, 2.0).k == 2
    error = refusal(InvalidInput, TopK(inner, k=4).release, [1, 2, 3])
    assert "4" in error.what
    assert "3" in error.what


@pytest.mark.parametrize(
    "bad",
    [
        ReportNoisyMaxWithGap.of(sensitivity=1, epsilon=1),
        TopK(PermuteAndFlip.of(sensitivity=1, epsilon=1), k=1),
        Laplace.of(sensitivity=1, epsilon=1),
        None,
    ],
)
def test_a_round_releases_one_index(bad):
    assert type(bad).__name__ in refusal(InvalidInput, TopK, bad, 2).what
    assert (
        type(bad).__name__
        in refusal(InvalidInput, SelectAndMeasure, bad, Laplace.of(sensitivity=1, epsilon=1)).what
    )


def test_the_regret_of_k_rounds_holds_for_all_of_them():
    inner = PermuteAndFlip.of(sensitivity=1, epsilon=0.5)
    top = TopK(inner, k=4)

    assert (
        top.error(0.95, coordinates=50)
        == inner.error(1 - Fraction(5, 400), coordinates=50)
        > inner.error(0.95, coordinates=50)
    )
    assert top.error(coordinates=50) == top.error(0.95, coordinates=50)
    assert TopK(inner, k=1).error(0.9, coordinates=7) == inner.error(0.9, coordinates=7)
    assert TopK(inner, k=1).error() == 0
    refusal(InvalidInput, TopK(inner, k=2).error)
    assert top.error(coordinates=4) > 0
    assert "3" in refusal(InvalidInput, top.error, 0.95, coordinates=3).what


# The winner's score, at its price


def test_measured_winner_costs_choice_and_measurement():
    select = PermuteAndFlip.of(sensitivity=1, epsilon=HALF)
    measure = Laplace.of(sensitivity=1, epsilon=Fraction(1, 4))
    release = select_and_measure([3, 10**6, 5], select, measure)

    assert type(release.value) is WinnerWithScore
    assert release.value.winner == 1
    assert type(release.value.winner) is int
    assert abs(release.value.score - 10**6) < 1000
    assert release.loss == select.loss() + measure.loss() == release.source.loss()
    assert release.loss.epsilon() == 0.75
    assert release.source == SelectAndMeasure(select, measure)
    assert release.error(0.9) == select.error(0.9, coordinates=3)
    assert release.source.error(coordinates=3) == select.error(0.95, coordinates=3)
    assert release.source.error() == 0
    assert release.coordinates == 3
    assert release.user_asserted
    refusal(InvalidInput, release.interval)


def test_measured_score_is_that_of_the_winner(monkeypatch):
    measured = []
    measure = Laplace.of(sensitivity=2, epsilon=1)
    plain = type(measure).release

    def record(self, value):
        measured.append((unwrap(value), value.sensitivity, value.unit, value.derivation))
        return plain(self, value)

    monkeypatch.setattr(type(measure), "release", record)
    unit = Unit("patient")
    bounded = Bounded([7, 10**9, 8], Sensitivity(30, linf=2), unit, "counts")
    release = select_and_measure(bounded, ReportNoisyMax.of(sensitivity=2, epsilon=1), measure)

    assert measured == [(10**9, Sensitivity(2), unit, "counts")]
    assert release.unit == unit
    assert not release.user_asserted


def test_a_gaussian_may_measure_too():
    select = Exponential.of(sensitivity=1, epsilon=1)
    measure = Gaussian.of(sensitivity=1, epsilon=1, delta=1e-6)
    release = select_and_measure([0, 10**6], select, measure)

    assert release.loss == select.loss() + measure.loss()
    real = select_and_measure([0, 10**6], select, Laplace.of(sensitivity=1, epsilon=1, real=True))
    assert type(real.value.score) is float


@pytest.mark.parametrize(
    "measure",
    [
        Laplace.of(sensitivity=1, epsilon=1),
        Gaussian.of(sensitivity=Sensitivity(5, l2=1), epsilon=1, delta=1e-6),
    ],
)
def test_measurement_with_too_small_sensitivity_is_refused_first(monkeypatch, measure):
    monkeypatch.setattr(selection, "bernoulli_exp_each", None)

    refusal(Refused, select_and_measure, [1, 2], PermuteAndFlip.of(sensitivity=2, epsilon=1), measure)


def test_measuring_mechanism_must_be_additive():
    select = PermuteAndFlip.of(sensitivity=1, epsilon=1)
    for bad in (select, None, 1):
        assert type(bad).__name__ in refusal(InvalidInput, select_and_measure, [1, 2], select, bad).what


# Both


@each_index_only
def test_single_candidate_is_chosen(kind):
    assert TopK(kind.of(sensitivity=1, epsilon=1), k=1).release([5]).value == [0]


def test_the_zcdp_of_k_rounds_is_k_times_the_rounds():
    assert TopK(Exponential.of(sensitivity=1, epsilon=1), k=3).rho == Fraction(3, 8)
    assert TopK(PermuteAndFlip.of(sensitivity=1, epsilon=1), k=3).rho == Fraction(3, 2)


@each_index_only
def test_monotone_is_refused_under_substitution(kind):
    bounded = Bounded([1, 2], Sensitivity(2, linf=1), Unit.row(Neighbours.SUBSTITUTE), "histogram")
    monotone = kind.of(sensitivity=1, epsilon=1, monotone=True)

    refusal(Refused, TopK(monotone, k=1).release, bounded)
    refusal(Refused, select_and_measure, bounded, monotone, Laplace.of(sensitivity=1, epsilon=1))


@each_index_only
def test_user_asserted_sensitivity_is_stated(kind):
    bounded = Bounded([1, 2], Sensitivity(2, linf=1), Unit("patient"), "counts")
    plain, monotone = kind.of(sensitivity=1, epsilon=1), kind.of(sensitivity=1, epsilon=1, monotone=True)
    measure = Laplace.of(sensitivity=1, epsilon=1)

    for command in (lambda inner: TopK(inner, k=1), lambda inner: SelectAndMeasure(inner, measure)):
        assert not command(plain).release(bounded).user_asserted
        assert command(plain).release([1, 2]).user_asserted
        assert command(monotone).release(bounded).user_asserted
        assert command(plain).release(bounded).unit == Unit("patient")
        assert command(plain).release(bounded).coordinates == 2


STORED = {
    "top-k/1": TopK(Exponential.of(sensitivity=1, epsilon=0.1), k=3),
    "select-and-measure/1": SelectAndMeasure(
        ReportNoisyMax.of(sensitivity=1, epsilon=0.1), Laplace.of(sensitivity=1, epsilon=1)
    ),
}


@pytest.mark.parametrize("kind", STORED)
def test_mechanism_survives_storage(kind):
    mechanism = STORED[kind]
    check_stored(mechanism, kind)
    with pytest.raises(dataclasses.FrozenInstanceError):
        mechanism.k = 2


def test_stored_form_is_stable():
    inner, measure = PermuteAndFlip.of(sensitivity=1, epsilon=0.1), Laplace.of(sensitivity=1, epsilon=1)

    assert TopK(inner, k=3).to_json() == f'{{"k":3,"kind":"top-k/1","mechanism":{inner.to_json()}}}'
    assert SelectAndMeasure(inner, measure).to_json() == (
        f'{{"kind":"select-and-measure/1","measure":{measure.to_json()},"select":{inner.to_json()}}}'
    )


def test_altered_stored_mechanism_is_refused():
    refusal(InvalidInput, from_json, '{"k":3,"kind":"top-k/1","mechanism":7}')


def test_mechanisms_describe_themselves():
    how = "integer scores that one unit moves by at most 1: ε = 0.1"
    assert str(STORED["top-k/1"]) == (
        f"Top 3 by peeling, each round: Exponential mechanism on {how}; in total ε = 0.3"
    )
    assert str(STORED["select-and-measure/1"]) == (
        f"Report noisy max with Laplace noise of scale 20 on {how}; then its score with "
        "Laplace noise of scale 1 on integers: ε = 1; in total ε = 1.1"
    )
