import dataclasses
import math
import pickle
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hubbub.errors import InvalidInput, Unsupported
from hubbub.sensitivity import Sensitivity
from hubbub.textbook import Universe
from hubbub.unit import Neighbours, Unit

ADD_REMOVE, SUBSTITUTE = Neighbours
RELATIONS = pytest.mark.parametrize("relation", list(Neighbours))
SMALL = Universe("abc", max_rows=3)


def _refusal(call, *arguments, kind=InvalidInput):
    with pytest.raises(kind) as caught:
        call(*arguments)
    error = caught.value
    assert error.what
    assert error.why
    assert error.fix
    return error


# Databases


@pytest.mark.parametrize(("elements", "most"), [(1, 1), (1, 5), (2, 1), (3, 3), (4, 2), (5, 4)])
def test_every_histogram_up_to_the_size_occurs_once(elements, most):
    databases = list(Universe(range(elements), most).databases())

    assert len(databases) == len(set(databases)) == math.comb(elements + most, most)
    assert all(len(x) == elements and min(x) >= 0 and sum(x) <= most for x in databases)


def test_the_rows_of_a_database_are_its_elements_as_often_as_they_count():
    assert SMALL.rows((2, 0, 1)) == ["a", "a", "c"]
    assert SMALL.rows([0, np.int64(0), 0]) == []


def test_rows_and_histogram_say_the_same():
    for x in SMALL.databases():
        assert tuple(map(SMALL.rows(x).count, "abc")) == x


@pytest.mark.slow
def test_distance_is_a_metric_on_databases():
    databases = list(SMALL.databases())
    for x in databases:
        for y in databases:
            assert (SMALL.distance(x, y) == 0) == (x == y)
            assert SMALL.distance(x, y) == SMALL.distance(y, x)
            assert all(
                SMALL.distance(x, y) <= SMALL.distance(x, z) + SMALL.distance(z, y) for z in databases[::3]
            )


# Neighbours


@RELATIONS
def test_neighbours_are_exactly_the_databases_one_row_away(relation):
    def near(x, y):
        same_size = sum(x) == sum(y)
        return SMALL.distance(x, y) == relation.histogram_distance and same_size == (relation is SUBSTITUTE)

    databases = list(SMALL.databases())
    for x in databases:
        neighbours = list(SMALL.neighbours(x, relation))
        assert len(neighbours) == len(set(neighbours))
        assert set(neighbours) == {y for y in databases if near(x, y)}


@RELATIONS
def test_pairs_are_ordered_and_come_in_both_orders(relation):
    pairs = list(SMALL.pairs(relation))

    assert len(pairs) == len(set(pairs))
    assert {(y, x) for x, y in pairs} == set(pairs)
    assert set(pairs) == {(x, y) for x in SMALL.databases() for y in SMALL.neighbours(x, relation)}


def test_universe_of_one_element_has_no_substitution():
    assert list(Universe("a", 3).pairs(SUBSTITUTE)) == []
    assert Universe("a", 3).sensitivity(lambda x: x, SUBSTITUTE) == Sensitivity(0)


# Sensitivity


def test_the_histogram_itself_moves_by_one_or_by_two():
    assert SMALL.sensitivity(lambda x: x, ADD_REMOVE) == Sensitivity(1)
    assert SMALL.sensitivity(lambda x: x, SUBSTITUTE) == Sensitivity(2, l2_squared=2, linf=1)


def test_each_norm_is_the_largest_over_pairs_of_its_own():
    # One step moves (1, 1, 1), the other (0, 0, 2): no pair attains all three.
    def f(x):
        return [x[0], x[0], x[0] + 2 * x[1]]

    two = Universe("ab", max_rows=2)
    assert two.sensitivity(f, ADD_REMOVE) == Sensitivity(3, l2_squared=4, linf=2)
    assert two.sensitivity(f, SUBSTITUTE) == Sensitivity(3, l2_squared=3, linf=1)


def test_a_sum_of_squares_moves_by_what_the_largest_database_allows():
    one = Universe("a", max_rows=5)

    assert one.sensitivity(lambda x: x[0] ** 2, ADD_REMOVE).l1 == 5**2 - 4**2


@RELATIONS
def test_a_constant_and_an_answer_without_numbers_do_not_move(relation):
    assert SMALL.sensitivity(lambda x: 7, relation) == Sensitivity(0)
    assert SMALL.sensitivity(lambda x: [], relation) == Sensitivity(0)


@pytest.mark.parametrize(
    "answer",
    [
        lambda n: n,
        Fraction,
        Decimal,
        float,
        np.int8,
        np.float32,
        np.array,
        lambda n: [n],
        lambda n: (n,),
        lambda n: np.array([n]),
        lambda n: np.array([n], dtype=np.float16),
    ],
)
def test_f_may_answer_with_any_exact_number_or_vector(answer):
    assert SMALL.sensitivity(lambda x: answer(sum(x)), ADD_REMOVE) == Sensitivity(1)


def test_floats_are_taken_as_the_binary_numbers_they_are():
    two = Universe("a", max_rows=2)
    result = two.sensitivity(lambda x: [0.0, 0.1, 0.3][x[0]], ADD_REMOVE)

    assert result.l1 == Fraction(0.3) - Fraction(0.1)
    assert result.l1 != Fraction(1, 5)


def test_the_widest_doubles_have_a_sensitivity():
    wide = Universe("ab", max_rows=1).sensitivity(
        lambda x: 1.7976931348623157e308 * x[0] + 5e-324 * x[1], SUBSTITUTE
    )

    assert wide.l1 == Fraction(1.7976931348623157e308) - Fraction(5e-324)
    assert wide.l2_squared == wide.l1**2


def test_function_is_called_once_per_database():
    calls = []
    SMALL.sensitivity(lambda x: calls.append(x) or 0, SUBSTITUTE)

    assert len(calls) == len(set(calls))


STEPS = [Fraction(1, 4), Fraction(1), Fraction(8)]


@given(st.lists(st.fractions(-20, 20, max_denominator=12), min_size=6, max_size=6), st.sampled_from(STEPS))
def test_clamping_moves_nothing_further_and_rounding_by_one_step_at_most(values, step):
    """The lemmas of docs/proofs/sensitivity.md, on a function of two coordinates."""
    two = Universe("ab", max_rows=2)
    f = dict(zip(two.databases(), zip(values, reversed(values), strict=True), strict=True))
    moved = two.sensitivity(f.get, ADD_REMOVE)
    clamped = two.sensitivity(lambda x: [min(max(cell, -3), 5) for cell in f[x]], ADD_REMOVE)
    rounded = two.sensitivity(lambda x: [round(cell / step) * step for cell in f[x]], ADD_REMOVE)

    assert clamped.l1 <= moved.l1
    assert clamped.l2_squared <= moved.l2_squared
    assert clamped.linf <= moved.linf
    assert rounded.l1 <= moved.l1 + 2 * step
    assert rounded.linf <= moved.linf + step
    # ℓ2 + √2·step, exact without roots: R ≤ (√A + √B)² if R − A − B ≤ 2√(AB).
    over = max(rounded.l2_squared - moved.l2_squared - 2 * step**2, 0)
    assert over**2 <= 4 * moved.l2_squared * 2 * step**2


def test_rounding_can_cost_the_whole_step():
    # Ties go to even, so 1/2 and 3/2, one apart, become 0 and 2.
    one = Universe("a", max_rows=1)

    assert one.sensitivity(lambda x: round(x[0] + Fraction(1, 2)), ADD_REMOVE) == Sensitivity(2)


# Deterministic functions


@RELATIONS
@pytest.mark.parametrize(
    "f",
    [
        lambda x: x[0] > 1,
        lambda x: "many" if x[1] == 3 else "few",
        np.array,
        lambda x: [x[2], None],
        lambda x: x == (1, 1, 1),
    ],
)
def test_non_constant_function_distinguishes_neighbours(f, relation):
    x, y = SMALL.find_distinguishing_pair(f, relation)

    assert (x, y) in set(SMALL.pairs(relation))
    assert np.any(f(x) != f(y))


@RELATIONS
@pytest.mark.parametrize("f", [lambda x: 7, lambda x: None, lambda x: np.zeros(2)])
def test_constant_distinguishes_nothing(f, relation):
    assert SMALL.find_distinguishing_pair(f, relation) is None


def test_size_distinguishes_nothing_under_substitution_only():
    assert SMALL.find_distinguishing_pair(sum, SUBSTITUTE) is None
    assert SMALL.find_distinguishing_pair(sum, ADD_REMOVE) == ((0, 0, 0), (1, 0, 0))


@RELATIONS
def test_function_distinguishes_neighbours_iff_sensitivity_is_positive(relation):
    two = Universe("ab", max_rows=2)
    databases = list(two.databases())
    for bits in range(2 ** len(databases)):
        f = {x: bits >> place & 1 for place, x in enumerate(databases)}
        assert (two.find_distinguishing_pair(f.get, relation) is None) == (
            two.sensitivity(f.get, relation).l1 == 0
        )


# What is refused


@pytest.mark.parametrize(
    "elements",
    [[], "", None, 3, ["a", "a"], [1, True], [["a"]], [{}], np.array(5), {"a": 1}.get],
    ids=lambda elements: repr(elements)[:12],
)
def test_elements_must_be_distinct_hashable_and_there(elements):
    _refusal(Universe, elements, 2)


@pytest.mark.parametrize(
    "most", [0, -1, 2.5, math.nan, math.inf, "2", True, None, [2], np.array(2), Fraction(1, 2)]
)
def test_the_size_must_be_a_whole_number_of_at_least_one(most):
    assert _refusal(Universe, "ab", most).what.startswith("max_rows")


@pytest.mark.sweep(3)
@pytest.mark.parametrize(
    ("elements", "most"),
    [(2, 10**400), (10**5, 10**5), (10**5, 2), (1, 2_000_000), (1_999_999, 2), (30, 30), (2, 1999)],
    ids=range(7),
)
def test_a_universe_with_too_many_databases_is_refused_at_once(elements, most):
    _refusal(Universe, range(elements), most, kind=Unsupported)


def test_two_million_databases_are_not_too_many():
    assert Universe("a", 1_999_999).max_rows == 1_999_999
    assert Universe(range(1_999_999), 1).max_rows == 1
    assert len(Universe(range(20), 5).elements) == 20


NOT_DATABASES = [
    (),
    (1, 1),
    (1, 1, 1, 1),
    (2, 2, 0),
    (-1, 1, 1),
    (0.5, 0, 0),
    "abc",
    None,
    3,
    (True, 0, 0),
    (987654321, 0, 0),
    ("987654321", 0, 0),
    (math.nan, 0, 0),
]


@pytest.mark.parametrize("x", NOT_DATABASES, ids=repr)
def test_foreign_database_is_refused_and_not_shown(x):
    for call in (
        lambda: SMALL.rows(x),
        lambda: SMALL.neighbours(x, ADD_REMOVE),
        lambda: SMALL.distance(x, (0, 0, 0)),
        lambda: SMALL.distance((0, 0, 0), x),
    ):
        assert "987654321" not in str(_refusal(call))


@pytest.mark.parametrize("relation", ["add/remove", None, 1, Unit.row(), Neighbours])
def test_unknown_relation_is_refused(relation):
    _refusal(SMALL.neighbours, (0, 0, 0), relation)
    _refusal(SMALL.pairs, relation)
    _refusal(SMALL.sensitivity, len, relation)
    _refusal(SMALL.find_distinguishing_pair, len, relation)


@pytest.mark.parametrize(
    "answer",
    [
        math.nan,
        math.inf,
        [-math.inf],
        np.float32("nan"),
        Decimal("sNaN"),
        True,
        np.True_,
        np.array([False]),
        None,
        "987654321",
        ["987654321"],
        {987654321},
        [[987654321]],
        np.array([[987654321]]),
        np.array([None]),
        np.longdouble(987654321),
        np.array([987654321], dtype=np.longdouble),
        Fraction(1, 2**10_000),
    ],
    ids=range(18),
)
def test_non_finite_answer_is_refused_and_not_shown(answer):
    error = _refusal(SMALL.sensitivity, lambda x: answer, ADD_REMOVE)

    assert "answer" in error.what
    assert "987654321" not in str(error)


def test_vectors_of_several_lengths_have_no_sensitivity():
    assert "lengths" in _refusal(SMALL.sensitivity, lambda x: [0] * sum(x), ADD_REMOVE).what


def test_a_universe_is_frozen_data():
    assert Universe(["a", "b"], 2) == Universe("ab", np.int64(2))
    assert hash(Universe(["a", "b"], 2)) == hash(Universe(("a", "b"), 2.0))
    assert pickle.loads(pickle.dumps(SMALL)) == SMALL  # noqa: S301 - our own bytes
    assert repr(Universe("ab", 2)) == "Universe(elements=('a', 'b'), max_rows=2)"
    with pytest.raises(dataclasses.FrozenInstanceError):
        SMALL.max_rows = 4
