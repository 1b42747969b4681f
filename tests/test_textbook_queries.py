import math
from collections import Counter
from decimal import Decimal
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hubbub.errors import InvalidInput, Refused
from hubbub.sensitivity import MAX_MAGNITUDE, Sensitivity, unwrap
from hubbub.textbook import Universe, count, counts, fraction, histogram, linear
from hubbub.unit import Neighbours, Unit

SECRET = 987654321
ADD_REMOVE, SUBSTITUTE = Neighbours
RELATIONS = pytest.mark.parametrize("relation", list(Neighbours))
SMALL = Universe("abc", max_rows=3)
PREDICATES = [set(chosen).__contains__ for chosen in ("", "a", "b", "c", "ab", "ac", "bc", "abc")]


class Hostile:
    """A row that fails at whatever is done with it."""

    def _fail(self, *_):
        raise RuntimeError(SECRET)

    __bool__ = __eq__ = __hash__ = __int__ = __float__ = __len__ = __getattr__ = _fail


def _raise(kind):
    def function(row):
        raise kind(row)

    return function


HOSTILE = [
    Hostile(),
    None,
    math.nan,
    math.inf,
    -math.inf,
    "",
    str(SECRET),
    [],
    {},
    [SECRET],
    10**400,
    Fraction(1, 2**10_000),
    Decimal("sNaN"),
    Decimal("1e999999"),
    np.array([1, 2]),
    np.array(math.nan),
    np.longdouble("1e400"),
    np.timedelta64("NaT"),
    1j,
    object(),
    Ellipsis,
]


def _worst(universe, relation, rule):
    """What the rule's answers move by, at most, over all neighbouring databases of the universe."""

    def f(x):
        value = unwrap(rule(universe.rows(x), Unit.row(relation)))
        return value.tolist() if isinstance(value, np.ndarray) else value

    return universe.sensitivity(f, relation)


def _covers(claimed, result):
    return claimed.l1 >= result.l1 and claimed.l2_squared >= result.l2_squared and claimed.linf >= result.linf


# The sensitivities, by enumeration: never exceeded, and attained


@RELATIONS
def test_one_unit_moves_a_count_by_at_most_one_and_by_one(relation):
    results = [
        _worst(SMALL, relation, lambda rows, unit, predicate_=predicate: count(rows, predicate_, unit=unit))
        for predicate in PREDICATES
    ]
    claimed = count([], PREDICATES[0], unit=Unit.row(relation)).sensitivity

    assert all(_covers(claimed, one) for one in results)
    assert claimed == Sensitivity(1)
    assert claimed in results


def test_one_unit_moves_the_number_of_rows_by_one():
    result = _worst(SMALL, ADD_REMOVE, lambda rows, unit: count(rows, unit=unit))

    assert result == count([]).sensitivity == Sensitivity(1)


@RELATIONS
@pytest.mark.parametrize("m", [1, 2])
def test_one_unit_moves_m_counts_by_at_most_one_each_and_by_one_each(relation, m):
    two = Universe("abc", max_rows=2)
    results = [
        _worst(two, relation, lambda rows, unit, predicate_=predicate_: counts(rows, predicate_, unit=unit))
        for predicate_ in product(PREDICATES, repeat=m)
    ]
    claimed = counts([], PREDICATES[:m], unit=Unit.row(relation)).sensitivity

    assert all(_covers(claimed, one) for one in results)
    assert claimed == Sensitivity(m, l2_squared=m, linf=1)
    assert claimed in results


@RELATIONS
@pytest.mark.parametrize("m", [3, 7])
def test_equal_counts_attain_the_claimed_sensitivity(relation, m):
    def rule(rows, unit):
        return counts(rows, [PREDICATES[1]] * m, unit=unit)

    assert _worst(SMALL, relation, rule) == rule([], Unit.row(relation)).sensitivity


@pytest.mark.parametrize(
    ("relation", "categories", "l1"),
    [
        (ADD_REMOVE, "a", 1),
        (ADD_REMOVE, "ab", 1),
        (ADD_REMOVE, "abc", 1),
        (ADD_REMOVE, "abcd", 1),
        (SUBSTITUTE, "a", 1),  # a row goes in or out
        (SUBSTITUTE, "ab", 2),
        (SUBSTITUTE, "abc", 2),
        (SUBSTITUTE, "abcd", 2),
    ],
)
def test_one_unit_moves_a_histogram_by_one_or_from_cell_to_cell_by_two(relation, categories, l1):
    def rule(rows, unit):
        return histogram(rows, list(categories), unit=unit)

    claimed = rule([], Unit.row(relation)).sensitivity
    assert claimed == Sensitivity(l1, l2_squared=l1, linf=1)
    assert _worst(SMALL, relation, rule) == claimed


def test_one_substituted_unit_moves_a_fraction_of_n_by_at_most_one_nth_and_by_that():
    worst = dict.fromkeys([1, 2, 3], Fraction(0))
    claimed = {n: fraction(["a"] * n, bool).sensitivity for n in worst}
    for predicate in PREDICATES:
        for x, y in SMALL.pairs(SUBSTITUTE):
            one, other = (unwrap(fraction(SMALL.rows(database), predicate)) for database in (x, y))
            worst[sum(x)] = max(worst[sum(x)], abs(one - other))

    assert claimed == {n: Sensitivity(Fraction(1, n)) for n in worst}
    assert {n: Sensitivity(moved) for n, moved in worst.items()} == claimed


WEIGHTS = {
    "below": -(10**400),
    "low": -1.5,
    "zero": 0,
    "third": Fraction(1, 3),
    "high": 2.5,
    "above": 1e300,
    "nan": math.nan,
    "inf": math.inf,
    "text": "7",
}


@RELATIONS
@pytest.mark.parametrize(
    ("low", "high"),
    [
        (0, 1),
        (-1, 0),
        (-2, 3),
        (-3, 2),
        (1, 4),
        (-4, -1),
        (0.1, 0.3),
        (Fraction(1, 3), Fraction(22, 7)),
        (Decimal("-0.7"), 5e-324),
        (-MAX_MAGNITUDE, MAX_MAGNITUDE),
    ],
)
def test_one_unit_moves_a_sum_by_what_the_bounds_allow_and_by_that(relation, low, high):
    universe = Universe([*WEIGHTS, "missing"], max_rows=2)

    def rule(rows, unit):
        return linear(rows, WEIGHTS.__getitem__, low, high, unit=unit)

    claimed = rule([], Unit.row(relation)).sensitivity
    bounds = [Fraction(str(low)), Fraction(str(high))]
    assert claimed == Sensitivity(max(map(abs, bounds)) if relation is ADD_REMOVE else bounds[1] - bounds[0])
    assert _worst(universe, relation, rule) == claimed


def test_a_weight_that_is_the_same_for_every_row_is_a_scaled_count():
    bounded = linear(["a", "c"], lambda row: 5, 5, 5)

    assert unwrap(bounded) == 10
    assert bounded.sensitivity == Sensitivity(5)


# The answers


@given(st.lists(st.integers(-5, 5)))
def test_counts_and_histograms_count(rows):
    def even(row):
        return row % 2 == 0

    assert unwrap(count(rows)) == len(rows)
    assert unwrap(count(rows, even)) == len([row for row in rows if even(row)])
    assert unwrap(counts(rows, [even, lambda row: row > 0])).tolist() == [
        len([row for row in rows if even(row)]),
        len([row for row in rows if row > 0]),
    ]
    assert unwrap(histogram(rows, range(-2, 3))).tolist() == [Counter(rows)[cell] for cell in range(-2, 3)]


@given(st.lists(st.booleans(), min_size=1))
def test_a_fraction_is_exact(rows):
    assert unwrap(fraction(rows, bool)) == Fraction(sum(rows), len(rows))


@given(st.lists(st.floats() | st.integers(-(10**20), 10**20)), st.integers(-9, 9), st.integers(10, 99))
def test_a_sum_is_the_exact_sum_of_clamped_weights(rows, low, high):
    def clamped(row):
        return min(max(Fraction(row) if math.isfinite(row) else Fraction(0), Fraction(low)), Fraction(high))

    assert unwrap(linear(rows, lambda row: row, low, high)) == sum(map(clamped, rows))


@pytest.mark.parametrize(
    ("low", "high", "nearest"),
    [(-1, 1, 0), (0, 1, 0), (-1, 0, 0), (2, 5, 2), (-5, -2, -2), (Fraction(1, 3), 5, Fraction(1, 3))],
)
@pytest.mark.parametrize(
    "weight",
    [
        lambda row: math.nan,
        lambda row: -math.inf,
        lambda row: None,
        lambda row: "3",
        _raise(KeyError),
        lambda row: [4],
    ],
)
def test_non_finite_weight_counts_as_the_bound_nearest_zero(weight, low, high, nearest):
    assert unwrap(linear(["row"], weight, low, high)) == nearest


@pytest.mark.parametrize(
    ("weight", "total"),
    [
        (True, 1),
        (np.True_, 1),
        (False, 0),
        (Decimal("0.25"), Fraction(1, 4)),
        (np.int8(2), 2),
        (np.float32(0.5), 0.5),
    ],
)
def test_weights_of_every_kind_of_number_count(weight, total):
    assert unwrap(linear(["row"], lambda row: weight, 0, 9)) == total


def test_a_sum_is_a_fraction_also_where_it_happens_to_be_whole():
    assert type(unwrap(linear([1, 2], lambda row: row, 0, 5))) is Fraction
    assert type(unwrap(fraction([1], bool))) is Fraction


def test_no_rows_can_make_a_sum_longer_than_can_be_held():
    rows = range(1, 6500)
    exact = sum(Fraction(1, row) for row in rows)
    total = unwrap(linear(rows, lambda row: Fraction(1, row), 0, 1))

    assert exact.denominator.bit_length() > 8192  # more than a value may have
    assert 0 < exact - total < Fraction(6500, 2**1074)


def test_a_row_outside_the_categories_counts_in_no_cell():
    assert unwrap(histogram(["a", "z", ["a"], None, "c", "a"], ["c", "b", "a"])).tolist() == [1, 0, 2]


@pytest.mark.parametrize(
    "rows",
    [[1, 2, 2], (1, 2, 2), np.array([1, 2, 2]), iter([1, 2, 2]), np.array([1.0, 2.0, 2.0]), range(1, 3)],
    ids=["list", "tuple", "array", "iterator", "array of doubles", "range"],
)
def test_rows_may_be_any_iterable(rows):
    assert unwrap(histogram(rows, [1, 2])).tolist()[0] == 1


def test_each_row_of_a_matrix_is_a_row():
    assert unwrap(count(np.eye(4))) == 4
    assert unwrap(count(np.eye(4), lambda row: row[0] == 1)) == 1


@pytest.mark.parametrize(
    ("bounded", "rule", "coordinates"),
    [
        (count([1]), "count", 1),
        (counts([1], [bool, bool]), "counts", 2),
        (histogram([1], [1, 2, 3]), "histogram", 3),
        (fraction([1], bool), "fraction", 1),
        (linear([1], float, 0, 1), "linear", 1),
    ],
)
def test_an_answer_names_its_rule_and_its_unit(bounded, rule, coordinates):
    assert bounded.derivation == rule
    assert not bounded.is_user_asserted
    assert bounded.coordinates == coordinates
    assert bounded.unit.key is None


RULES = [
    lambda rows, unit: count(rows, bool, unit=unit),
    lambda rows, unit: counts(rows, [bool], unit=unit),
    lambda rows, unit: histogram(rows, [1], unit=unit),
    lambda rows, unit: fraction(rows, bool, unit=unit),
    lambda rows, unit: linear(rows, float, 0, 1, unit=unit),
]


@pytest.mark.parametrize("rule", RULES)
def test_substitution_can_be_chosen(rule):
    unit = Unit.row(SUBSTITUTE)
    assert rule([1], unit).unit is unit


@pytest.mark.parametrize("rule", RULES)
def test_a_unit_that_may_have_many_rows_is_refused(rule):
    with pytest.raises(Refused, match="one patient"):
        rule([1], Unit("patient", SUBSTITUTE))


class Panic(BaseException):
    """What bindings to other languages raise: no Exception."""


def panic(row):
    raise Panic(row)


def test_panic_of_a_predicate_does_not_escape():
    assert unwrap(count([1, 2], panic)) == 0
    assert unwrap(linear([1, 2], panic, 0, 1)) == 0

    class Unhashable:
        def __hash__(self):
            raise Panic

    assert unwrap(histogram([Unhashable(), 1], [1])).tolist() == [1]


def interrupt(row):
    raise KeyboardInterrupt


def test_keyboard_interrupt_is_raised():
    for rule in (lambda: count([1], interrupt), lambda: linear([1], interrupt, 0, 1)):
        with pytest.raises(KeyboardInterrupt):
            rule()

    class Interrupting:
        def __hash__(self):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        histogram([Interrupting()], [1])


def test_no_answer_shows_its_value():
    rows = [SECRET] * 3
    for bounded in (
        count(rows),
        counts(rows, [bool]),
        histogram(rows, [SECRET]),
        linear(rows, float, 0, 10**9),
    ):
        assert "3" not in repr(bounded)
        assert str(SECRET) not in repr(bounded)


# No row can raise


@pytest.mark.parametrize("row", HOSTILE, ids=lambda row: type(row).__name__)
@RELATIONS
def test_no_row_makes_any_query_raise(row, relation):
    unit = Unit.row(relation)
    rows = ["a", row, "a"]

    assert unwrap(count(rows, lambda row: row == "a", unit=unit)) == 2
    assert unwrap(counts(rows, [lambda row: row == "a"], unit=unit)).tolist() == [2]
    assert unwrap(histogram(rows, ["a", "b"], unit=unit)).tolist() == [2, 0]
    assert unwrap(fraction(rows, lambda row: row == "a")) == Fraction(2, 3)
    assert 0 <= unwrap(linear(rows, lambda row: row, 0, 1, unit=unit)) <= 1
    assert unwrap(count(rows)) == 3


@pytest.mark.parametrize(
    "kind", [ValueError, KeyError, ZeroDivisionError, StopIteration, RecursionError, InvalidInput]
)
def test_exception_of_a_predicate_does_not_escape(kind):
    fail = _raise(kind)

    assert unwrap(count([SECRET], fail)) == 0
    assert unwrap(counts([SECRET], [fail, bool])).tolist() == [0, 1]
    assert unwrap(fraction([SECRET], fail)) == 0
    assert unwrap(linear([SECRET], fail, 0, 1)) == 0


def test_non_boolean_predicate_counts_as_false():
    assert unwrap(count([1, 2], lambda row: np.array([True, True]))) == 0


def test_interrupt_within_a_predicate_is_raised():
    with pytest.raises(KeyboardInterrupt):
        count([1], _raise(KeyboardInterrupt))


# What is refused


def _refusal(call, *arguments, kind=InvalidInput, **options):
    with pytest.raises(kind) as caught:
        call(*arguments, **options)
    error = caught.value
    assert error.what
    assert error.why
    assert error.fix
    assert str(SECRET) not in str(error)
    return error


class Frame:
    """As data frames do, it goes by columns."""

    columns = ("a", str(SECRET))

    def __iter__(self):
        return iter(self.columns)


@pytest.mark.parametrize(
    "rows",
    [None, SECRET, str(SECRET), b"987654321", {SECRET: 1}, np.array(SECRET), Frame(), object()],
    ids=range(8),
)
def test_non_iterable_rows_are_refused(rows):
    for call in (
        lambda: count(rows),
        lambda: count(rows, bool),
        lambda: counts(rows, [bool]),
        lambda: histogram(rows, [1]),
        lambda: fraction(rows, bool),
        lambda: linear(rows, float, 0, 1),
    ):
        assert "rows" in _refusal(call).what


@pytest.mark.parametrize("predicate", [3, "x > 3", True, [bool], np.array([True])])
def test_a_predicate_must_be_a_function(predicate):
    assert "predicate" in _refusal(count, [1], predicate).what
    assert "predicate" in _refusal(counts, [1], [bool, predicate]).what
    assert "predicate" in _refusal(fraction, [1], predicate).what
    assert "weight" in _refusal(linear, [1], predicate, 0, 1).what


def test_a_fraction_and_a_sum_need_their_function():
    _refusal(fraction, [1], None)
    _refusal(linear, [1], None, 0, 1)


@pytest.mark.parametrize(
    "predicate_", [[], (), None, "", "ab", b"ab", {1, 2}, {1: 2}, bool, iter([bool]), np.array([1]), 3]
)
def test_predicates_must_be_a_non_empty_list(predicate_):
    assert "predicates" in _refusal(counts, [1], predicate_).what
    assert "categories" in _refusal(histogram, [1], predicate_).what


@pytest.mark.parametrize(
    "categories", [["a", "a"], [1, True], [0.0, -0.0], [["a"]], [math.nan], [Hostile()]], ids=range(6)
)
def test_categories_must_be_distinct(categories):
    assert "categories" in _refusal(histogram, [1], categories).what


@pytest.mark.parametrize("unit", [None, "patient", SUBSTITUTE, 1, Unit])
def test_unit_must_be_a_unit(unit):
    for call in (
        lambda: count([1], bool, unit=unit),
        lambda: counts([1], [bool], unit=unit),
        lambda: histogram([1], [1], unit=unit),
        lambda: fraction([1], bool, unit=unit),
        lambda: linear([1], float, 0, 1, unit=unit),
    ):
        assert "unit" in _refusal(call).what


def test_under_substitution_the_number_of_rows_is_public_and_not_released():
    error = _refusal(count, [SECRET], unit=Unit.row(SUBSTITUTE))

    assert "public" in error.why


@pytest.mark.parametrize("rows", [[], [SECRET]])
def test_fraction_is_refused_if_the_row_count_is_secret(rows):
    error = _refusal(fraction, rows, bool, unit=Unit.row(), kind=Refused)

    assert "post-processing" in error.fix


def test_a_fraction_of_no_rows_is_refused():
    _refusal(fraction, [], bool)


BAD_BOUNDS = [
    math.nan,
    math.inf,
    -math.inf,
    "1",
    True,
    None,
    [1],
    np.array(1.0),
    np.longdouble(1),
    1j,
    Decimal("sNaN"),
]


@pytest.mark.parametrize(
    "bad",
    [*BAD_BOUNDS, 10**400, MAX_MAGNITUDE + 1, -MAX_MAGNITUDE - 1, Fraction(1, 2**10_000)],
    ids=range(15),
)
def test_bounds_must_be_numbers_that_can_be_summed(bad):
    assert _refusal(linear, [1], float, bad, MAX_MAGNITUDE).what.startswith("low")
    assert _refusal(linear, [1], float, -MAX_MAGNITUDE, bad).what.startswith("high")


@pytest.mark.parametrize(
    ("low", "high", "relation"),
    [(1, 0, ADD_REMOVE), (1, 0, SUBSTITUTE), (0, 0, ADD_REMOVE), (2, 2, SUBSTITUTE), (0.3, 0.1, ADD_REMOVE)],
)
def test_bounds_between_which_no_row_can_move_a_sum_are_refused(low, high, relation):
    assert "low" in _refusal(linear, [1], float, low, high, unit=Unit.row(relation)).what


def test_bounds_of_too_many_digits_are_refused():
    for rows in ([], [1]):
        assert "digits" in _refusal(linear, rows, float, 0, Fraction(1, 3**2500)).what
