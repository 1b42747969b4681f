import array
import copy
import dataclasses
import math
import pickle
import sys
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hubbub.errors import InvalidInput
from hubbub.sensitivity import MAX_MAGNITUDE, Bounded, Sensitivity, unwrap
from hubbub.unit import Neighbours, Unit

SECRET = 987654321
BOTH = pytest.mark.parametrize("make", [Bounded.user_asserted, lambda *of: Bounded(*of, Unit.row(), "rule")])


def _refusal(call, *arguments, **options):
    with pytest.raises(InvalidInput) as caught:
        call(*arguments, **options)
    error = caught.value
    assert error.what
    assert error.why
    assert error.fix
    return error


# Sensitivity


VECTORS = st.lists(st.fractions(-1000, 1000, max_denominator=50), max_size=6)


def _norms(vector):
    sizes = [abs(cell) for cell in vector]
    return (
        sum(sizes, Fraction(0)),
        sum((size**2 for size in sizes), Fraction(0)),
        max(sizes, default=Fraction(0)),
    )


def _covers(sensitivity, vector):
    l1, l2_squared, linf = _norms(vector)
    return sensitivity.l1 >= l1 and sensitivity.l2_squared >= l2_squared and sensitivity.linf >= linf


@pytest.mark.slow
@given(VECTORS)
def test_derived_norms_cover_the_vector(vector):
    l1, l2_squared, linf = _norms(vector)

    assert _covers(Sensitivity(l1), vector)
    assert _covers(Sensitivity(l1, linf=linf), vector)
    assert _covers(Sensitivity(l1, l2_squared=l2_squared), vector)
    exact = Sensitivity(l1, l2_squared=l2_squared, linf=linf)
    assert (exact.l1, exact.l2_squared, exact.linf) == (l1, l2_squared, linf)


@given(
    st.fractions(0, 10**6),
    st.none() | st.fractions(0, 10**6),
    st.none() | st.fractions(0, 10**6),
)
def test_derived_norms_are_ordered_and_at_most_the_given_ones(l1, l2_squared, linf):
    known = Sensitivity(l1, l2_squared=l2_squared, linf=linf)

    assert known.l1 == l1
    assert known.linf <= known.l1
    assert known.l2_squared <= known.l1 * known.linf
    assert l2_squared is None or known.l2_squared <= l2_squared
    assert linf is None or known.linf <= linf


def test_one_number_has_one_sensitivity():
    assert Sensitivity(3) == Sensitivity(3, l2=3, linf=3) == Sensitivity(3, l2_squared=9) == Sensitivity.of(3)
    assert Sensitivity(3, l2=99) == Sensitivity(3, l2_squared=99) == Sensitivity(3, linf=99) == Sensitivity(3)
    assert str(Sensitivity(3)) == "ℓ1 ≤ 3, ℓ2 ≤ 3, ℓ∞ ≤ 3"


def test_l2_squared_follows_from_l1_and_linf():
    assert Sensitivity(6, linf=2).l2_squared == 12


def test_linf_follows_from_l2_rounded_up():
    root = Sensitivity(10, l2_squared=2).linf

    assert 2 < root**2 < 2 + Fraction(1, 2**60)


def test_linf_is_not_above_l1_when_the_rounded_root_would_be():
    l1 = Fraction(10**30 + 1, 10**30)
    almost = l1**2 - Fraction(1, 10**90)

    assert Sensitivity(l1, l2_squared=almost).linf == l1


def test_l2_as_a_double_is_not_below_the_root():
    assert Fraction(Sensitivity(2, linf=1).l2) ** 2 >= 2
    assert Sensitivity(2, linf=1).l2 == pytest.approx(math.sqrt(2), rel=1e-15)
    assert Sensitivity(4, l2=3).l2 == 3.0


def test_a_float_sensitivity_is_the_decimal_that_was_typed():
    assert Sensitivity.of(0.1).l1 == Fraction(1, 10)
    assert Sensitivity(0.3, l2=0.2, linf=0.1).l2_squared == Fraction(3, 100)


def test_a_sensitivity_stays_as_it_is():
    given_one = Sensitivity(2, linf=1)

    assert Sensitivity.of(given_one) is given_one
    assert pickle.loads(pickle.dumps(given_one)) == given_one  # noqa: S301 - our own bytes
    assert hash(given_one) == hash(Sensitivity(2, linf=1))
    with pytest.raises(dataclasses.FrozenInstanceError):
        given_one.l1 = Fraction(0)


def test_zero_sensitivity_is_a_sensitivity():
    assert Sensitivity(0) == Sensitivity(0, l2=0, linf=0)
    assert Sensitivity(0).l2 == 0.0


BAD_SENSITIVITIES = [
    math.nan,
    math.inf,
    -math.inf,
    -1,
    -5e-324,
    "1",
    True,
    None,
    [1],
    np.array(1.0),
    np.array([1.0]),
    np.longdouble(1),
    1j,
    -(10**400),
    Fraction(1, 2**10_000),
    Decimal("NaN"),
    Decimal("sNaN"),
]


@pytest.mark.parametrize("bad", BAD_SENSITIVITIES, ids=range(len(BAD_SENSITIVITIES)))
def test_invalid_sensitivities_are_refused(bad):
    _refusal(Sensitivity, bad)
    assert _refusal(Sensitivity.of, bad).what.startswith("sensitivity")
    _refusal(Bounded.user_asserted, 42, bad)
    for name in ("l2", "l2_squared", "linf"):
        if bad is not None:  # there it means: not given
            assert _refusal(Sensitivity, 1, **{name: bad}).what.startswith(name)


def test_l2_is_given_only_once():
    assert "l2_squared" in _refusal(Sensitivity, 1, l2=1, l2_squared=1).what


# Bounded: what goes in


@BOTH
@pytest.mark.parametrize(
    "value",
    [42, 0, -7, MAX_MAGNITUDE, -MAX_MAGNITUDE, np.int8(3), np.uint64(MAX_MAGNITUDE)],
)
def test_integers_stay_integers(make, value):
    bounded = make(value, Sensitivity(1))

    assert type(unwrap(bounded)) is int
    assert unwrap(bounded) == value
    assert (bounded.coordinates, bounded.is_vector) == (1, False)


@BOTH
@pytest.mark.parametrize(
    ("value", "exact"),
    [
        (0.1, Fraction(0.1)),
        (-0.0, Fraction(0)),
        (3.0, Fraction(3)),
        (np.float32(0.1), Fraction(float(np.float32(0.1)))),
        (5e-324, Fraction(5e-324)),
        (1.7976931348623157e308, Fraction(1.7976931348623157e308)),
        (Fraction(1, 3), Fraction(1, 3)),
        (Fraction(7), Fraction(7)),
        (Decimal("0.1"), Fraction(1, 10)),
        (Decimal(3), Fraction(3)),
        (Fraction(1, 10**400), Fraction(1, 10**400)),
    ],
)
def test_non_integers_are_fractions_even_if_whole(make, value, exact):
    inside = unwrap(make(value, Sensitivity(1)))

    assert type(inside) is Fraction
    assert inside == exact


@BOTH
@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ([1, 2, 3], np.int64),
        ((1, np.int8(2)), np.int64),
        ([], np.int64),
        ([MAX_MAGNITUDE, -MAX_MAGNITUDE], np.int64),
        (np.array([1, 2], dtype=np.uint64), np.int64),
        (np.array([1, 2], dtype=">i4"), np.int64),
        (np.array([], dtype=np.float32), np.float64),
        ([1.5, 2], np.float64),
        ([Fraction(3), Fraction(1, 2)], np.float64),
        ([Decimal(3)], np.float64),
        (np.array([0.1, 0.2], dtype=np.float32), np.float64),
        (np.array([1.7976931348623157e308]), np.float64),
    ],
)
def test_vector_type_follows_the_given_type(make, value, kind):
    bounded = make(value, Sensitivity(1))

    assert unwrap(bounded).dtype == kind
    assert unwrap(bounded).tolist() == [float(cell) if kind is np.float64 else int(cell) for cell in value]
    assert (bounded.coordinates, bounded.is_vector) == (len(value), True)


def test_a_negative_zero_in_a_vector_is_zero():
    assert not np.signbit(unwrap(Bounded.user_asserted([-0.0, 1.0], 1))).any()
    assert not np.signbit(unwrap(Bounded.user_asserted(np.array([-0.0]), 1))).any()


def test_bounded_value_is_copied():
    given_array = np.array([1, 2])
    bounded = Bounded.user_asserted(given_array, 1)
    given_array[0] = 100

    assert unwrap(bounded).tolist() == [1, 2]
    assert type(unwrap(Bounded.user_asserted(given_array.view(np.memmap), 1))) is np.ndarray
    with pytest.raises(ValueError, match="read-only"):
        unwrap(bounded)[0] = 100


def test_borrowed_integers_are_checked_and_not_copied():
    integers = np.array([1, -MAX_MAGNITUDE, MAX_MAGNITUDE])
    bounded = Bounded.borrow(integers, Sensitivity(3), Unit("patient"), "sum")

    assert np.shares_memory(unwrap(bounded), integers)
    assert (bounded.sensitivity, bounded.unit, bounded.derivation) == (Sensitivity(3), Unit("patient"), "sum")
    assert (bounded.coordinates, bounded.is_vector, bounded.is_user_asserted) == (3, True, False)
    with pytest.raises(ValueError, match="read-only"):
        unwrap(bounded)[0] = 100
    integers[0] = 2  # its owner may, before the next sum
    assert unwrap(bounded).tolist() == integers.tolist()


@pytest.mark.parametrize(
    "value",
    [
        [1, 2],
        5,
        np.array(5),
        np.array([[1, 2]]),
        np.array([1.0]),
        np.array([1], dtype=np.int32),
        np.array([1], dtype=np.uint64),
        np.ma.array([1, 2]),
        np.array([MAX_MAGNITUDE + 1]),
        np.array([0, -MAX_MAGNITUDE - 1]),
    ],
    ids=repr,
)
def test_only_64_bit_integers_are_borrowed(value):
    with pytest.raises(InvalidInput):
        Bounded.borrow(value, Sensitivity(1), Unit.row(), "sum")


def test_borrowed_value_has_a_sensitivity_and_a_unit():
    for sensitivity, unit in ((1, Unit.row()), (Sensitivity(1), "patient")):
        with pytest.raises(InvalidInput, match="not a Sensitivity"):
            Bounded.borrow(np.array([1]), sensitivity, unit, "sum")


SIGNALLING = np.array([0x7F800001], dtype=np.uint32).view(np.float32)
BAD_VALUES = {
    "nan": math.nan,
    "inf": math.inf,
    "-inf": -math.inf,
    "numpy nan": np.float32("nan"),
    "decimal nan": Decimal("NaN"),
    "decimal signalling nan": Decimal("sNaN"),
    "decimal inf": Decimal("Infinity"),
    "string": str(SECRET),
    "bytes": b"987654321",
    "bool": True,
    "numpy bool": np.False_,
    "none": None,
    "complex": complex(SECRET),
    "set": {SECRET},
    "dict": {SECRET: SECRET},
    "generator": (cell for cell in [SECRET]),
    "array.array": array.array("i", [SECRET]),
    "beyond 2^62": MAX_MAGNITUDE + 1,
    "below -2^62": -MAX_MAGNITUDE - 1,
    "beyond 2^63": 2**63,
    "10^400": 10**400,
    "-10^5000": -(10**5000),
    "fraction 10^400": Fraction(10**400),
    "fraction beyond the largest double": -Fraction(sys.float_info.max) - Fraction(1, 3),
    "fraction of 10000 bits": Fraction(SECRET, 2**10_000 + 1),
    "decimal 1e400": Decimal("-1e400"),
    "decimal 1e999999": Decimal("987654321e999999"),
    "longdouble": np.longdouble(SECRET),
    "longdouble beyond doubles": np.longdouble("1e400"),
    "timedelta": np.timedelta64(SECRET, "s"),
    "not a time": np.timedelta64("NaT"),
    "0-d array": np.array(SECRET),
    "0-d array of doubles": np.array(0.5),
    "2-d array": np.array([[SECRET]]),
    "empty 2-d array": np.zeros((0, 3)),
    "nested list": [[SECRET]],
    "nested tuple": [1, (SECRET,)],
    "list of arrays": [np.array([SECRET])],
    "list with nan": [1.0, math.nan],
    "list with inf": [1, math.inf],
    "list with a string": [1, str(SECRET)],
    "list with a bool": [1, True],
    "list with none": [1.0, None],
    "list beyond 2^62": [1, MAX_MAGNITUDE + 1],
    "list with a huge fraction": [Fraction(10**400)],
    "list with a third": [0.5, Fraction(1, 3)],
    "list with a decimal tenth": [Decimal("0.1")],
    "list with an integer no double holds": [0.5, 2**60 + 1],
    "array with nan": np.array([1.0, np.nan]),
    "array with inf": np.array([np.inf], dtype=np.float16),
    "array with a signalling nan": SIGNALLING,
    "array beyond 2^62": np.array([MAX_MAGNITUDE + 1]),
    "array below -2^62": np.array([-(2**63)]),
    "uint64 array": np.array([2**64 - 1], dtype=np.uint64),
    "object array": np.array([SECRET, None]),
    "object array of ints": np.array([SECRET], dtype=object),
    "bool array": np.array([True]),
    "string array": np.array([str(SECRET)]),
    "complex array": np.array([1j]),
    "longdouble array": np.array([SECRET], dtype=np.longdouble),
    "timedelta array": np.array([SECRET], dtype="m8[s]"),
    "masked array": np.ma.array([1, SECRET], mask=[False, True]),
    "masked array of doubles": np.ma.array([0.5], mask=[True]),
}


@BOTH
@pytest.mark.parametrize("name", BAD_VALUES)
def test_unsupported_value_is_refused_without_being_shown(make, name):
    error = _refusal(make, BAD_VALUES[name], Sensitivity(1))

    assert str(SECRET) not in str(error)
    assert "'" not in error.what
    assert len(str(error)) < 300
    assert error.__cause__ is None


def test_length_of_a_string_is_not_shown():
    lengths = {_refusal(Bounded.user_asserted, np.array(["x" * size]), 1).what for size in (1, 288)}

    assert len(lengths) == 1


@pytest.mark.parametrize(
    ("sensitivity", "unit"),
    [
        (1, Unit.row()),
        (None, Unit.row()),
        (Sensitivity(1), "patient"),
        (Sensitivity(1), None),
        (Sensitivity(1), ""),
    ],
)
def test_a_derived_value_needs_a_sensitivity_and_a_unit(sensitivity, unit):
    _refusal(Bounded, SECRET, sensitivity, unit, "rule")


@pytest.mark.parametrize("unit", ["patient", "", 0, Neighbours.SUBSTITUTE])
def test_an_asserted_value_needs_a_unit_if_it_is_given_one(unit):
    _refusal(Bounded.user_asserted, SECRET, 1, unit)


def test_the_plain_constructor_checks_too():
    _refusal(Bounded, math.nan, Sensitivity(1), Unit.row(), "rule")


# Bounded: what stays in


def test_a_derived_value_names_its_rule_and_an_asserted_one_says_so():
    derived = Bounded(SECRET, Sensitivity(1), Unit("patient"), "count")
    asserted = Bounded.user_asserted(SECRET, 1)

    assert (derived.derivation, derived.is_user_asserted) == ("count", False)
    assert (asserted.derivation, asserted.is_user_asserted) == ("user-asserted", True)
    assert asserted.unit == Unit.row()
    assert Bounded.user_asserted(SECRET, 1, Unit("patient")).unit == Unit("patient")


def test_the_text_says_everything_but_the_value():
    unit = Unit("patient", Neighbours.SUBSTITUTE)

    assert repr(Bounded([SECRET] * 3, Sensitivity(2, linf=1), unit, "histogram")) == (
        "Bounded(3 coordinates, ℓ1 ≤ 2, ℓ2 ≤ 1.41422, ℓ∞ ≤ 1, of one patient, substitute; histogram)"
    )


@pytest.mark.parametrize(
    "value",
    [SECRET, float(SECRET), Fraction(SECRET), Decimal(SECRET), [SECRET], [float(SECRET)], np.array([SECRET])],
    ids=lambda value: type(value).__name__,
)
@pytest.mark.parametrize(
    "output",
    [repr, str, ascii, "{}".format, "{0!r:>200}".format, "%s".__mod__, lambda one: repr([one, {"x": one}])],
)
def test_no_representation_shows_the_value(value, output):
    text = output(Bounded.user_asserted(value, 1))

    assert "Bounded(" in text
    assert str(SECRET) not in text


@pytest.mark.parametrize(
    "leave", [pickle.dumps, copy.copy, copy.deepcopy, lambda one: copy.deepcopy({"held": [one]})]
)
def test_bounded_value_cannot_be_copied_or_pickled(leave):
    error = _refusal(leave, Bounded.user_asserted(SECRET, 1))

    assert str(SECRET) not in str(error)


@pytest.mark.parametrize(
    "use", [float, int, lambda one: one + 1, lambda one: one < 5, len, iter, "{:d}".format]
)
def test_bounded_value_has_no_arithmetic(use):
    with pytest.raises(TypeError) as caught:
        use(Bounded.user_asserted(SECRET, 1))

    assert str(SECRET) not in str(caught.value)


def test_two_values_cannot_be_compared():
    assert Bounded.user_asserted(SECRET, 1) != Bounded.user_asserted(SECRET, 1)


def test_bounded_value_is_immutable():
    bounded = Bounded.user_asserted(SECRET, 1)

    with pytest.raises(dataclasses.FrozenInstanceError) as caught:
        bounded.sensitivity = Sensitivity(0)
    assert str(SECRET) not in str(caught.value)
