import json
import math
from fractions import Fraction
from functools import cache
from itertools import product

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hubbub.accounting import PrivacyLoss
from hubbub.errors import InvalidInput, Refused, Unsupported
from hubbub.mechanisms import (
    GaussianPartitionSelection,
    TruncatedGeometricSelection,
    choose_partition_selection,
    from_json,
    partition_selection,
)
from hubbub.noise import MAX_SCALE
from hubbub.noise.inversion import MAX_DRAW
from hubbub.sensitivity import MAX_MAGNITUDE, Bounded, Sensitivity
from hubbub.unit import Neighbours, Unit
from internals import inject_bits
from mechanisms.reference import fits, stream
from refusing import refusal, refused

mp = mpmath.mp.clone()
mp.prec = 800

HALF = Fraction(1, 2)
TOTAL = {"epsilon": 1, "delta": 1e-6}
BOTH = [TruncatedGeometricSelection(Fraction(1), 3, 2), GaussianPartitionSelection(Fraction(3, 2), 4, 2)]
both = pytest.mark.parametrize("mechanism", BOTH, ids=lambda mechanism: mechanism.kind)
both_kinds = pytest.mark.parametrize("kind", [TruncatedGeometricSelection, GaussianPartitionSelection])


def name_of(mechanism):
    return f"{mechanism.kind} {mechanism.threshold}"


def real(x):
    return mp.mpf(Fraction(x).numerator) / Fraction(x).denominator


@cache
def law(mechanism, x):
    """Pr[noise = x], by summation and by the error function."""
    if isinstance(mechanism, GaussianPartitionSelection):
        ends = [(x + end) / real(mechanism.sigma) for end in (-mp.mpf(1) / 2, mp.mpf(1) / 2)]
        return mp.ncdf(-ends[0]) - mp.ncdf(-ends[1])
    weights = [
        mp.exp(-real(mechanism.epsilon) * abs(y))
        for y in range(-mechanism.truncation, mechanism.truncation + 1)
    ]
    return mp.exp(-real(mechanism.epsilon) * abs(x)) / sum(weights)


def chance(mechanism, units):
    """The probability that a key of these units is kept: the same, by the published rule."""
    if units < 1:
        return mp.mpf(0)
    if isinstance(mechanism, GaussianPartitionSelection):
        return mp.ncdf((units - mechanism.threshold + mp.mpf(1) / 2) / real(mechanism.sigma))
    lowest = max(mechanism.truncation + 1 - units, -mechanism.truncation)
    return sum((law(mechanism, x) for x in range(lowest, mechanism.truncation + 1)), mp.mpf(0))


LAWS = [
    *BOTH,
    TruncatedGeometricSelection(Fraction(1, 1000), 5, 1),
    TruncatedGeometricSelection(Fraction(7), 1, 1),
    TruncatedGeometricSelection(Fraction(1, 3), 60, 1),
    GaussianPartitionSelection(Fraction(1, 3), 2, 1),
    GaussianPartitionSelection(Fraction(20), 100, 1),
]
every_law = pytest.mark.parametrize("mechanism", LAWS, ids=name_of)


# The chances


@every_law
def test_key_is_selected_with_the_exact_probability(mechanism):
    for units in range(2 * mechanism.threshold + 4):
        low, high = mechanism.keep_probability_bounds(units)
        exact = chance(mechanism, units)
        assert real(low) - mp.mpf(2) ** -700 <= exact <= real(high) + mp.mpf(2) ** -700
        assert high - low <= min(low + Fraction(1, 1 << 1000), 1) / 2**100 + Fraction(1, 1 << 150)
        result = mechanism.keep_probability(units)
        assert Fraction(result) <= low
        assert float(exact) == pytest.approx(result, rel=1e-15, abs=1e-300)


@every_law
def test_delta_is_the_selection_probability_of_one_unit_rounded_up(mechanism):
    assert 1 <= real(mechanism.delta) / chance(mechanism, 1) <= 1 + mp.mpf(2) ** -100


@every_law
@pytest.mark.parametrize("confidence", [0.01, 0.5, 0.95, 1 - 1e-9])
def test_min_units_is_minimal(mechanism, confidence):
    least = mechanism.min_units(confidence)
    assert chance(mechanism, least - 1) < confidence <= chance(mechanism, least)


@both
def test_key_at_the_threshold_is_selected_with_probability_at_least_one_half(mechanism):
    assert mechanism.min_units(HALF) == mechanism.threshold
    assert mechanism.min_units() == mechanism.min_units(0.95)


def test_key_beyond_twice_the_cut_is_always_selected():
    mechanism = TruncatedGeometricSelection(Fraction(1), 3, 1)
    assert (
        mechanism.keep_probability(6)
        < mechanism.keep_probability(7)
        == mechanism.keep_probability(10**30)
        == 1
    )
    assert [mechanism.keep_probability(0), str(mechanism.keep_probability(0))] == [0, "0.0"]


@pytest.mark.parametrize(
    "mechanism",
    [
        TruncatedGeometricSelection(Fraction(1, MAX_SCALE), 1, 1),
        TruncatedGeometricSelection(Fraction(1, MAX_SCALE), MAX_MAGNITUDE - 1, 1),
        TruncatedGeometricSelection(Fraction(10**9), 1, 1),
        TruncatedGeometricSelection(Fraction(10**9), MAX_MAGNITUDE - 1, 1),
        GaussianPartitionSelection(Fraction(1, 10**9), 2, 1),
        GaussianPartitionSelection(Fraction(MAX_SCALE), 2, 1),
        GaussianPartitionSelection(Fraction(MAX_SCALE), MAX_MAGNITUDE, 1),
    ],
    ids=name_of,
)
def test_extreme_parameters_work(mechanism):
    assert 0 < mechanism.delta < HALF
    assert mechanism.loss().delta(mechanism.loss().cost().epsilon or 0) > 0
    assert mechanism.release([MAX_MAGNITUDE] * 40).value.size <= 40
    assert from_json(mechanism.to_json()) == mechanism


def test_noise_at_tiny_epsilon_is_nearly_uniform():
    assert float(TruncatedGeometricSelection(Fraction(1, MAX_SCALE), 1, 1).delta) == pytest.approx(1 / 3)
    assert float(TruncatedGeometricSelection(Fraction(1, 10**9), 10**6, 1).delta) == pytest.approx(
        1 / 2000001, rel=1e-3
    )


def test_tiny_probabilities_are_rounded_up():
    assert GaussianPartitionSelection(Fraction(1), 10**6, 1).delta == Fraction(1, 2**1200)
    assert GaussianPartitionSelection(Fraction(1), 10**6, 1).keep_probability_bounds(2)[0] == 0
    assert 0 < TruncatedGeometricSelection(Fraction(1), 10**6, 1).delta < Fraction(1, 2**1200)
    edge = math.isqrt(1680)  # Pr[Z ≥ 40.99] is about 2^-1218
    assert GaussianPartitionSelection(Fraction(1), edge + 2, 1).keep_probability_bounds(1)[0] > Fraction(
        1, 2**1300
    )


# Privacy


@cache
def _probability_of(mechanism, database):
    """The law of the set of keys shown."""
    chances = [chance(mechanism, units) for units in database]
    return [
        mp.fprod(p if is_selected else 1 - p for p, is_selected in zip(chances, outcome, strict=True))
        for outcome in product((False, True), repeat=len(database))
    ]


def _delta(one, other, epsilon):
    return mp.fsum(max(mp.mpf(0), p - mp.exp(real(epsilon)) * q) for p, q in zip(one, other, strict=True))


@pytest.mark.parametrize("groups", [1, 2, 3])
@pytest.mark.parametrize(
    "mechanism",
    [
        GaussianPartitionSelection(Fraction(3, 2), 4, 1),
        GaussianPartitionSelection(Fraction(1), 3, 1),
        TruncatedGeometricSelection(HALF, 2, 1),
    ],
)
def test_unit_with_many_keys_stays_within_the_curve(mechanism, groups):
    charged = type(mechanism)(
        *(getattr(mechanism, name) for name in list(mechanism.__dict__)[:2]), groups
    ).loss()
    levels = {1: range(9), 2: (0, 1, 3, 4), 3: (0, 1, 4)}[groups]
    for epsilon in (0, Fraction(1, 4), 1, 3):
        allowed = charged.delta(epsilon)
        for database in product(levels, repeat=groups):
            more = _probability_of(mechanism, tuple(units + 1 for units in database))
            less = _probability_of(mechanism, database)
            assert max(_delta(more, less, epsilon), _delta(less, more, epsilon)) <= allowed * (1 + 1e-12)


@pytest.mark.parametrize("groups", [1, 2, 3, 10])
@both_kinds
def test_loss_covers_showing_the_only_key_of_a_unit(kind, groups):
    mechanism = kind.of(max_groups=groups, **TOTAL)
    alone = 1 - (1 - chance(mechanism, 1)) ** groups
    assert alone * (1 - mp.mpf(2) ** -40) <= mechanism.loss().delta(1) <= 1e-6
    if kind is TruncatedGeometricSelection:
        assert mechanism.loss().delta(1) <= alone * (1 + mp.mpf(2) ** -40)


def test_losses_match_the_proof():
    geometric = TruncatedGeometricSelection(HALF, 9, 3)
    assert geometric.loss() == PrivacyLoss.approximate(HALF, geometric.delta) * 3
    gaussian = GaussianPartitionSelection(Fraction(5), 30, 7)
    alone = PrivacyLoss.approximate(0, gaussian.delta) * 7
    assert gaussian.loss() == PrivacyLoss.gaussian_from_mu_squared(Fraction(7, 25)) + alone


# Calibration


@pytest.mark.parametrize("groups", [1, 2, 3, 30, 1000])
@pytest.mark.parametrize(("epsilon", "delta"), [(1, 1e-6), (0.01, 1e-9), (20, 1e-3), (0.1, 0.3), (1, 1e-100)])
def test_calibration_meets_the_target(epsilon, delta, groups):
    geometric = TruncatedGeometricSelection.of(max_groups=groups, epsilon=epsilon, delta=delta, population=3)
    gaussian = GaussianPartitionSelection.of(max_groups=groups, epsilon=epsilon, delta=delta, population=3)
    share = Fraction(str(delta)) / groups

    assert geometric.epsilon * groups == Fraction(str(epsilon))
    assert geometric.delta <= share
    assert (
        geometric.truncation == 1
        or TruncatedGeometricSelection(geometric.epsilon, geometric.truncation - 1, groups).delta > share
    )
    assert gaussian.delta <= share / 2
    assert gaussian.threshold == 2 or (
        GaussianPartitionSelection(gaussian.sigma, gaussian.threshold - 1, groups).delta > share / 2
    )
    for mechanism in (geometric, gaussian):
        assert mechanism.max_groups == groups
        assert mechanism.loss().delta(epsilon) <= delta
    curve = PrivacyLoss.gaussian_from_mu_squared(groups / gaussian.sigma**2)
    assert delta * 0.4999 < curve.delta(epsilon) <= delta / 2


@both_kinds
def test_smallest_double_is_accepted_as_delta(kind):
    mechanism = kind.of(max_groups=1000, epsilon=1, delta=5e-324)
    assert Fraction(1, 2**1100) < mechanism.delta <= Fraction("5e-324") / 1000


def test_delta_share_trades_noise_against_threshold():
    low, middle, high = (
        GaussianPartitionSelection.of(max_groups=2, **TOTAL, share=share) for share in (0.01, 0.5, 0.99)
    )
    assert middle == GaussianPartitionSelection.of(max_groups=2, **TOTAL)
    assert low.sigma < middle.sigma < high.sigma
    assert low.delta <= Fraction(1, 2 * 10**8) < middle.delta <= Fraction(1, 4 * 10**6) < high.delta
    assert max(m.loss().delta(1) for m in (low, middle, high)) <= 1e-6


@pytest.mark.parametrize(
    ("groups", "kind"),
    [(1, TruncatedGeometricSelection), (2, TruncatedGeometricSelection), (5, GaussianPartitionSelection)],
)
def test_mechanism_with_the_lower_threshold_is_chosen(groups, kind):
    chosen = choose_partition_selection(max_groups=groups, **TOTAL)
    assert type(chosen) is kind
    assert chosen == kind.of(max_groups=groups, **TOTAL)
    other = (
        GaussianPartitionSelection if kind is TruncatedGeometricSelection else TruncatedGeometricSelection
    ).of(max_groups=groups, **TOTAL)
    assert chosen.min_units(0.5) < other.min_units(0.5)


def test_tie_between_mechanisms_goes_to_the_truncated_geometric():
    geometric, gaussian = (
        kind.of(max_groups=3, **TOTAL) for kind in (TruncatedGeometricSelection, GaussianPartitionSelection)
    )
    assert geometric.min_units(0.5) == gaussian.min_units(0.5) == 41
    assert choose_partition_selection(max_groups=3, **TOTAL) == geometric


@pytest.mark.parametrize(
    "make", [TruncatedGeometricSelection.of, GaussianPartitionSelection.of, choose_partition_selection]
)
def test_delta_is_judged_against_the_population(make):
    assert make(max_groups=2, epsilon=1, delta=1e-6, population=999_999) == make(max_groups=2, **TOTAL)
    assert "1/population" in refusal(Refused, make, max_groups=2, **TOTAL, population=10**6).what
    refusal(InvalidInput, make, max_groups=2, **TOTAL, population=0)


# Sampling


def _scripted(monkeypatch, *rounds):
    """Let geometric draws and signs be these; what was asked for is written down."""
    left, calls = list(rounds), []

    def sizes(scale, size=None):
        calls.append((scale, size))
        return left.pop(0)

    monkeypatch.setattr(partition_selection, "geometric", sizes)
    monkeypatch.setattr(
        partition_selection, "uniform", lambda bound, size: left.pop(0) if bound == 2 else None
    )
    return calls


def test_noise_is_a_geometric_draw_folded_at_the_cut_with_a_sign_and_one_zero(monkeypatch):
    # Pr[y] ∝ q^y folded at k + 1 is ∝ q^s on 0…k: what is added to s is the same for all.
    mechanism = TruncatedGeometricSelection(HALF, 2, 1)
    draws, signs = (np.array(part) for part in zip(*product(range(9), (0, 1)), strict=True))
    requests = _scripted(monkeypatch, draws, signs)
    noise = mechanism._draw_noise(15)

    assert noise.tolist() == [0, 1, -1, 2, -2] * 3
    assert requests == [(2, partition_selection.lanes_needed(30))]


def test_rejected_draws_are_repeated(monkeypatch):
    zero, one = np.array([0, 0]), np.array([1, 1])
    requests = _scripted(monkeypatch, zero, one, zero, np.array([0, 1]), one * 2, one, one, one)
    assert TruncatedGeometricSelection(HALF, 2, 1)._draw_noise(4).tolist() == [0, -2, -2, -1]
    assert requests == [(2, partition_selection.lanes_needed(2 * missing)) for missing in (4, 4, 3, 1)]


def test_draw_beyond_64_bits_is_extended(monkeypatch):
    mechanism = TruncatedGeometricSelection(HALF, 4, 1)
    requests = _scripted(monkeypatch, np.array([7, MAX_DRAW, MAX_DRAW - 1]), 0, np.array([0, 0, 1]))
    expected = [2, MAX_DRAW % 5, -((MAX_DRAW - 1) % 5)]
    assert mechanism._draw_noise(3).tolist() == expected
    assert requests[1] == (2, None)
    _scripted(monkeypatch, np.array([7, MAX_DRAW, MAX_DRAW - 1]), 10**30 + 3, np.array([0, 0, 1]))
    assert mechanism._draw_noise(3).tolist() == [2, (MAX_DRAW + 10**30 + 3) % 5, expected[2]]


@pytest.mark.parametrize("size", [7, 500])
@pytest.mark.parametrize(
    "mechanism",
    [
        TruncatedGeometricSelection(Fraction(1, 2), 3, 1),
        TruncatedGeometricSelection(Fraction(1, 100), 5, 1),
        TruncatedGeometricSelection(Fraction(3), 1, 1),
    ],
    ids=name_of,
)
def test_the_noise_follows_its_law(mechanism, size):
    # χ² at a false alarm of 1e-9; and the bits are the same in every run.
    k = mechanism.truncation
    with inject_bits(stream(f"noise/{mechanism}/{size}")):
        draws = np.concatenate([mechanism._draw_noise(size) for _ in range(10_000 // size)])

    assert set(draws.tolist()) == set(range(-k, k + 1))
    counts = [int(np.sum(draws == x)) for x in range(-k, k + 1)]
    assert fits(counts, [law(mechanism, x) for x in range(-k, k + 1)])


@both
@pytest.mark.parametrize("units", [1, 3, 4, 5])
def test_selection_frequency_matches_its_probability(mechanism, units):
    with inject_bits(stream(f"kept/{mechanism.kind}/{units}")):
        is_selected = mechanism.release(np.full(20_000, units)).value.size

    p = mechanism.keep_probability(units)
    assert fits([is_selected, 20_000 - is_selected], [p, 1 - p])


# Releases


@both
def test_key_is_selected_if_units_plus_noise_reach_the_threshold(monkeypatch, mechanism):
    assert mechanism.threshold == 4
    units, noise = (np.array(part) for part in zip(*product(range(-1, 9), range(-9, 10)), strict=True))
    monkeypatch.setattr(type(mechanism), "_draw_noise", lambda self, size: noise[:size])
    is_selected = mechanism.release(units).value

    assert is_selected.tolist() == [
        i for i, (n, x) in enumerate(zip(units, noise, strict=True)) if n >= 1 and n + x >= 4
    ]


@both
def test_key_without_units_is_never_selected(mechanism):
    assert mechanism.release([0] * 20_000).value.size == 0
    assert mechanism.release([-1, -MAX_MAGNITUDE]).value.size == 0


@both
@pytest.mark.parametrize(
    "units", [[], [1], [MAX_MAGNITUDE, 1, MAX_MAGNITUDE], np.arange(3, dtype=np.uint8)], ids=str
)
def test_any_number_of_keys_is_accepted(mechanism, units):
    is_selected = mechanism.release(units).value
    assert is_selected.dtype == np.int64
    assert is_selected.ndim == 1
    assert set(np.flatnonzero(np.array(units) > 10**6)) <= set(is_selected.tolist()) <= set(range(len(units)))


def test_large_counts_are_accepted(monkeypatch):
    mechanism = GaussianPartitionSelection(Fraction(MAX_SCALE), MAX_MAGNITUDE, 1)
    units = np.array([1, 1, MAX_MAGNITUDE, MAX_MAGNITUDE])
    monkeypatch.setattr(
        partition_selection, "rounded_gaussian", lambda sigma, size: np.array([MAX_DRAW, -MAX_DRAW] * 2)
    )
    assert mechanism.release(units).value.tolist() == [0, 2]


@both
def test_release_does_not_contain_the_number_of_keys(mechanism):
    one, many = (mechanism.release([10**6] + [-1] * more) for more in (0, 1234))
    assert repr(one) == repr(many)
    assert [one.coordinates, many.coordinates] == [1, 1]
    assert mechanism.release([10**6] * 3).coordinates == 3
    assert mechanism.release([]).coordinates == 1


@both
def test_release_states_cost_and_unit(mechanism):
    unit = Unit("patient", Neighbours.SUBSTITUTE)
    bounded = Bounded(np.array([10**6]), Sensitivity(2, linf=1), unit, "distinct patients")
    release = mechanism.release(bounded)
    assert release.loss == mechanism.loss()
    assert release.source == mechanism
    assert release.unit == unit
    assert not release.user_asserted
    assert mechanism.release([1]).user_asserted
    assert mechanism.release([1]).unit == Unit.row()


@both
@pytest.mark.parametrize("sensitivity", [Sensitivity(3, linf=1), Sensitivity(2, linf=2), Sensitivity(2)])
def test_sensitivity_above_the_declared_one_is_refused(mechanism, sensitivity):
    error = refusal(Refused, mechanism.release, Bounded.user_asserted([5, 5], sensitivity))
    assert "sensitivity" in error.what


@both
def test_sensitivity_below_the_declared_one_is_accepted(mechanism):
    for sensitivity in (
        Sensitivity(2, linf=1),
        Sensitivity(1),
        Sensitivity(0),
        Sensitivity(Fraction(3, 2), linf=1),
    ):
        assert mechanism.release(Bounded.user_asserted([10**6], sensitivity)).value.tolist() == [0]


@both
@pytest.mark.parametrize(
    "bad", [7, 2.5, [1.0, 2.0], np.array([]), "12", None, [[1]], [True], [1, None]], ids=repr
)
def test_non_integer_lists_are_refused_without_drawing(monkeypatch, mechanism, bad):
    monkeypatch.setattr(type(mechanism), "_draw_noise", None)
    with refused(InvalidInput):
        mechanism.release(bad)


@both
def test_partition_selection_has_no_error(mechanism):
    assert mechanism.error_kind == "none"
    assert "min_units" in refusal(InvalidInput, mechanism.error).fix
    refusal(InvalidInput, mechanism.error, 0.9, coordinates=3)
    refusal(InvalidInput, mechanism.release([1]).error)


# Parameters


BAD = [
    *({"epsilon": value} for value in (0, -1, math.nan, math.inf, None, "1", True)),
    *({"delta": value} for value in (0, 1, -1e-6, 2, math.nan, None)),
    *({"max_groups": value} for value in (0, -1, 1.5, None, "2", math.inf)),
]


@pytest.mark.parametrize("parameters", BAD, ids=str)
@pytest.mark.parametrize(
    "make", [TruncatedGeometricSelection.of, GaussianPartitionSelection.of, choose_partition_selection]
)
def test_invalid_parameters_are_refused(make, parameters):
    with refused(InvalidInput, match=next(iter(parameters))):
        make(**{"max_groups": 2, **TOTAL, **parameters})


@pytest.mark.parametrize("share", [0, 1, -1, 2, math.nan, None])
def test_invalid_delta_shares_are_refused(share):
    with refused(InvalidInput, match="share"):
        GaussianPartitionSelection.of(max_groups=2, **TOTAL, share=share)


@pytest.mark.parametrize(
    ("kind", "fields", "name"),
    [
        (TruncatedGeometricSelection, (0, 3, 1), "epsilon"),
        (TruncatedGeometricSelection, (1, 0, 1), "truncation"),
        (TruncatedGeometricSelection, (1, 2.5, 1), "truncation"),
        (TruncatedGeometricSelection, (1, 3, 0), "max_groups"),
        (GaussianPartitionSelection, (-1, 3, 1), "sigma"),
        (GaussianPartitionSelection, (1, 1, 1), "threshold"),
        (GaussianPartitionSelection, (1, None, 1), "threshold"),
        (GaussianPartitionSelection, (1, 3, 0.5), "max_groups"),
    ],
)
def test_plain_constructor_checks_parameters(kind, fields, name):
    with refused(InvalidInput, match=name):
        kind(*fields)


def test_numbers_are_made_exact():
    assert TruncatedGeometricSelection(0.1, 3.0, 2.0) == TruncatedGeometricSelection(Fraction(1, 10), 3, 2)
    assert GaussianPartitionSelection(0.1, 3.0, 2.0) == GaussianPartitionSelection(Fraction(1, 10), 3, 2)
    assert [
        type(part)
        for part in (
            TruncatedGeometricSelection(1, 3.0, 2.0).truncation,
            TruncatedGeometricSelection(1, 3.0, 2.0).max_groups,
        )
    ] == [int] * 2


@pytest.mark.parametrize(
    ("kind", "widest", "wider"),
    [
        (TruncatedGeometricSelection, (Fraction(1, 2**48), 1, 1), (Fraction(1, 2**48 + 1), 1, 1)),
        (TruncatedGeometricSelection, (1, MAX_MAGNITUDE - 1, 1), (1, MAX_MAGNITUDE, 1)),
        (TruncatedGeometricSelection, (1, 1, 2**48), (1, 1, 2**48 + 1)),
        (GaussianPartitionSelection, (2**48, 2, 1), (2**48 + 1, 2, 1)),
        (GaussianPartitionSelection, (1, MAX_MAGNITUDE, 1), (1, MAX_MAGNITUDE + 1, 1)),
        (GaussianPartitionSelection, (1, 2, 2**48), (1, 2, 2**48 + 1)),
    ],
)
def test_inexact_parameters_are_refused(kind, widest, wider):
    assert "δ" in str(kind(*widest))
    with refused(Unsupported, match=r"2\^48"):
        kind(*wider)


@pytest.mark.parametrize(
    "make", [TruncatedGeometricSelection.of, GaussianPartitionSelection.of, choose_partition_selection]
)
def test_unreachable_targets_are_refused(make):
    refusal(Unsupported, make, max_groups=1, epsilon=1, delta=Fraction(1, 2**2000))
    refusal(Unsupported, make, max_groups=2**50, epsilon=1, delta=1e-6)
    refusal(Unsupported, make, max_groups=2**2200, epsilon=1, delta=1e-6)


@pytest.mark.parametrize("units", [-1, 1.5, None, "3"])
def test_invalid_numbers_of_units_are_refused(units):
    with refused(InvalidInput, match="units"):
        BOTH[0].keep_probability(units)


@pytest.mark.parametrize("confidence", [0, 1, 2, None])
def test_invalid_confidence_is_refused(confidence):
    with refused(InvalidInput, match="confidence"):
        BOTH[0].min_units(confidence)


@given(
    st.sampled_from([TruncatedGeometricSelection, GaussianPartitionSelection]),
    st.fractions(Fraction(1, 10**6), 10**6),
    st.integers(2, 10**9),
    st.integers(1, 10**9),
)
def test_mechanism_survives_storage(kind, number, bar, groups):
    mechanism = kind(number, bar, groups)
    assert from_json(mechanism.to_json()) == mechanism
    assert json.loads(mechanism.to_json())["kind"] == kind.kind


def test_mechanism_describes_itself():
    assert str(TruncatedGeometricSelection(HALF, 9, 1)) == (
        "Group keys of 10 or more units after geometric noise of scale 2 within ±9; "
        "at most 1 group per unit: ε = 0.5, δ = 0.00274382"
    )
    assert str(GaussianPartitionSelection(Fraction(7, 3), 9, 4)) == (
        "Group keys of 9 or more units after Gaussian noise of σ = 2.33334; at most 4 groups per unit: "
        "ε = 0, δ = 0.00261283, Gaussian μ = 0.857143"
    )
