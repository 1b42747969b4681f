import math
from decimal import Context, Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hubbub.errors import InvalidInput
from hubbub.numbers import (
    ceil_sqrt,
    format_down,
    format_nearest,
    format_percent,
    format_up,
    parse_exact,
    parse_integer,
    parse_nonnegative,
    parse_positive,
    parse_probability,
    parse_rational,
    round_down,
    round_up,
)


def short(value):
    return getattr(value, "__name__", None) or f"{value!r:.24}"


PARSERS = [parse_rational, parse_exact, parse_positive, parse_nonnegative, parse_probability, parse_integer]

NOT_A_NUMBER = [
    None,
    "0.5",
    b"1",
    True,
    False,
    np.True_,
    1j,
    np.complex128(1),
    [1],
    (1,),
    {1},
    np.array(1.0),
    np.array([1.0]),
    np.zeros((2, 2)),
    np.longdouble(1),
    np.timedelta64(5, "s"),
    np.timedelta64("NaT"),
    np.datetime64("2020-01-01"),
    object(),
    int,
]
NOT_FINITE = [
    *(
        kind(text)
        for kind in (float, np.float64, np.float32, np.float16, Decimal)
        for text in ("nan", "inf", "-inf")
    ),
    Decimal("sNaN"),
]
TOO_LONG = [
    2**8192,
    -(10**5000),
    Fraction(1, 2**10_000),
    Fraction(2**10_000 + 1, 3),
    Decimal("1e-2049"),
    Decimal("-1e999999"),
    Decimal("1e-999999"),
]


def _refusal(parse, value):
    with pytest.raises(InvalidInput) as caught:
        parse(value, "epsilon")
    assert caught.value.what.startswith("epsilon")
    assert caught.value.why
    assert "epsilon" in caught.value.fix
    return caught.value


@pytest.mark.parametrize("parse", PARSERS)
@pytest.mark.parametrize("value", NOT_A_NUMBER, ids=lambda value: type(value).__name__)
def test_a_non_number_is_refused_and_its_type_named(parse, value):
    assert type(value).__name__ in _refusal(parse, value).what


@pytest.mark.parametrize("parse", PARSERS)
@pytest.mark.parametrize("value", NOT_FINITE, ids=short)
def test_nan_and_infinity_are_refused(parse, value):
    assert _refusal(parse, value).what == "epsilon is not finite"


@pytest.mark.parametrize("parse", PARSERS)
@pytest.mark.parametrize("value", TOO_LONG, ids=range(len(TOO_LONG)))
def test_a_very_long_number_is_refused_and_not_repeated(parse, value):
    assert len(str(_refusal(parse, value))) < 200


@pytest.mark.parametrize("parse", [parse_rational, parse_exact])
@pytest.mark.parametrize(
    ("value", "exact"),
    [
        (0, 0),
        (-0.0, 0),
        (10**400, 10**400),
        (2**8191, 2**8191),
        (Fraction(-1, 3), Fraction(-1, 3)),
        (Fraction(1, 10**400), Fraction(1, 10**400)),
        (Decimal("0.1"), Fraction(1, 10)),
        (Decimal("1e-400"), Fraction(1, 10**400)),
        (np.int8(-128), -128),
        (np.uint64(2**64 - 1), 2**64 - 1),
        (0.5, Fraction(1, 2)),
        (np.float16(0.25), Fraction(1, 4)),
        (1e300, None),
        (5e-324, None),
    ],
    ids=short,
)
def test_every_numeric_type_becomes_an_exact_fraction(parse, value, exact):
    result = parse(value, "epsilon")

    assert type(result) is Fraction
    assert type(result.numerator) is int
    if exact is None:
        assert float(result) == value
    else:
        assert result == exact


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_parameter_is_read_as_decimal_and_data_as_binary(value):
    assert parse_rational(value, "epsilon") == Fraction(repr(value))
    assert parse_exact(value, "the value") == Fraction(value)
    assert parse_rational(np.float64(value), "epsilon") == Fraction(repr(value))


def test_ten_times_a_tenth_is_one():
    assert sum(parse_rational(0.1, "epsilon") for _ in range(10)) == 1


@pytest.mark.parametrize("value", [0, 0.0, -0.0, -1, -1e-300, Fraction(-1, 10**400), -(10**400)], ids=short)
def test_parse_positive_refuses_zero_and_below(value):
    assert "positive" in _refusal(parse_positive, value).why


@pytest.mark.parametrize("value", [-1, -5e-324, Fraction(-1, 10**400), -(10**400)], ids=short)
def test_parse_nonnegative_refuses_below_zero(value):
    assert "negative" in _refusal(parse_nonnegative, value).why


@pytest.mark.parametrize(
    "value", [0, 1, -0.5, 1.5, 10**400, -(10**400), Fraction(10**30 + 1, 10**30)], ids=short
)
def test_parse_probability_refuses_zero_and_one(value):
    assert "probability" in _refusal(parse_probability, value).why


@pytest.mark.parametrize("value", [0, -3, 2.5, Fraction(1, 3), -(10**400)], ids=short)
def test_parse_integer_refuses_fractions_and_below_one(value):
    assert "at least 1" in _refusal(parse_integer, value).fix


def test_parse_integer_with_another_minimum():
    assert parse_integer(0, "degree", minimum=0) == 0
    assert "at least 5" in _refusal(lambda value, name: parse_integer(value, name, minimum=5), 4).fix


@pytest.mark.parametrize(
    ("parse", "value", "exact"),
    [
        (parse_positive, 5e-324, Fraction("5e-324")),
        (parse_positive, Fraction(1, 10**400), Fraction(1, 10**400)),
        (parse_nonnegative, -0.0, 0),
        (parse_nonnegative, 10**400, 10**400),
        (parse_probability, 1e-300, Fraction(1, 10**300)),
        (parse_probability, Fraction(10**30 - 1, 10**30), Fraction(10**30 - 1, 10**30)),
        (parse_integer, 1, 1),
        (parse_integer, 3.0, 3),
        (parse_integer, np.int32(7), 7),
    ],
    ids=short,
)
def test_an_accepted_parameter_is_exact(parse, value, exact):
    assert parse(value, "epsilon") == exact


def test_parse_integer_returns_a_plain_int():
    assert type(parse_integer(np.int64(3), "steps")) is int


@pytest.mark.parametrize(
    ("value", "output"),
    [
        (-1, "-1"),
        (Fraction(-1, 3), "-1/3"),
        (-(10**400), "about -1.00000E+400"),
        (Fraction(-1, 3 * 10**400), "about -3.33333E-401"),
    ],
    ids=short,
)
def test_the_error_abbreviates_a_long_parameter(value, output):
    with localcontext(Context(prec=2)):  # what is shown does not depend on a setting of the caller's
        assert _refusal(parse_positive, value).what == f"epsilon is {output}"


FRACTIONS = st.builds(
    lambda top, bottom, power: Fraction(top, bottom) * Fraction(2) ** power,
    st.integers(-(2**80), 2**80),
    st.integers(1, 2**80),
    st.integers(-1300, 1300),
)


@given(FRACTIONS)
def test_round_up_is_the_least_double_not_below(exact):
    up = round_up(exact)

    assert up == math.inf or Fraction(up) >= exact
    below = math.nextafter(up, -math.inf)
    assert below == -math.inf or min(Fraction(below), Fraction(repr(below))) < exact


@pytest.mark.parametrize(
    ("exact", "up"),
    [
        (Fraction(1, 2), 0.5),
        (Fraction(0), 0.0),
        (Fraction(10**400), math.inf),
        (Fraction(-(10**400)), -1.7976931348623157e308),
        (Fraction(1.7976931348623157e308), 1.7976931348623157e308),
        (Fraction(1.7976931348623157e308) + 1, math.inf),
        (Fraction(1, 10**400), 5e-324),
        (Fraction(-1, 10**400), 0.0),
        (1 + Fraction(1, 2**53), math.nextafter(1, 2)),
    ],
    ids=short,
)
def test_round_up_at_the_edges_of_doubles(exact, up):
    assert round_up(exact) == up


@given(FRACTIONS.map(abs))
def test_ceil_sqrt_is_not_below_the_root_and_close_to_it(square):
    root = ceil_sqrt(square)

    assert root * root >= square
    assert root * root <= square * (1 + Fraction(1, 2**64))


@given(FRACTIONS.map(abs))
def test_ceil_sqrt_is_exact_where_the_root_is_rational(root):
    assert ceil_sqrt(root * root) == root


@pytest.mark.parametrize(
    "square", [2, 3, Fraction(1, 2), Fraction(2, 9), Fraction(4, 3), 10**401, Fraction(1, 10**401)]
)
def test_ceil_sqrt_of_an_irrational_root_lies_above_it(square):
    assert ceil_sqrt(Fraction(square)) ** 2 > square


@pytest.mark.parametrize(
    "exact", [Fraction(1998, 977), Fraction(68, 37), Fraction(1, 3), Fraction(1, 10), Fraction(7)]
)
def test_round_up_is_not_below_even_as_printed_decimal(exact):
    result = round_up(exact)
    assert Fraction(result) >= exact
    assert Fraction(repr(result)) >= exact
    assert result <= exact * (1 + Fraction(1, 2**51))


@given(st.fractions(min_value=0, max_value=10**6))
def test_reading_back_a_rounded_up_double_is_not_below(exact):
    assert parse_rational(round_up(exact), "x") >= exact


@given(FRACTIONS)
def test_round_down_mirrors_round_up(exact):
    assert round_down(exact) == -round_up(-exact)
    assert math.copysign(1, round_down(Fraction(0))) == 1


@given(st.fractions(), st.integers(1, 12))
def test_format_up_and_down_enclose_the_value(value, digits):
    assert Fraction(format_down(value, digits)) <= value <= Fraction(format_up(value, digits))
    assert format_nearest(value, digits) in {format_down(value, digits), format_up(value, digits)}


@pytest.mark.parametrize(
    ("value", "up", "down"),
    [
        (Fraction(1, 3), "0.333334", "0.333333"),
        (Fraction(-1, 3), "-0.333333", "-0.333334"),
        (Fraction(0), "0", "0"),
        (0.1, "0.1", "0.1"),
        (1234567, "1234570", "1234560"),
        (Fraction(1, 10**6), "1e-6", "1e-6"),
        (Fraction(2, 3 * 10**6), "6.66667e-7", "6.66666e-7"),
        (Fraction(1, 10**4), "0.0001", "0.0001"),
        (10**14, "100000000000000", "100000000000000"),
        (10**15, "1e15", "1e15"),
        (10**400, "1e400", "1e400"),
        (math.inf, "∞", "∞"),
        (-math.inf, "-∞", "-∞"),
    ],
    ids=short,
)
def test_a_bound_is_formatted_with_six_digits_rounded_outward(value, up, down):
    with localcontext(Context(prec=2)):
        assert (format_up(value), format_down(value)) == (up, down)


def test_a_percentage_is_rounded_to_the_nearest():
    assert format_percent(0.95) == "95 %"
    assert format_percent(Fraction(999999, 10**6)) == "99.9999 %"
    assert format_percent(Fraction(2, 3), 2) == "67 %"
