"""The public domain: cells, rules and functions."""

from datetime import date
from fractions import Fraction

import numpy as np
import pytest

from hubbub.errors import InvalidInput
from hubbub.synthesis.domain import (
    OTHER,
    Column,
    ColumnKind,
    Condition,
    Domain,
    Function,
    Interval,
    Rule,
    to_number,
)

AGE = Column.of_numbers("age", (0, 100), cuts=(15, 65), unit=1)
MARITAL = Column.of_categories("marital", ["single", "married", None])
CHILDREN_DO_NOT_MARRY = Rule(
    (
        Condition("age", high=Fraction(15), is_range=True),
        Condition("marital", frozenset({"married"})),
    )
)


def test_cells_are_categories_then_other_then_null():
    column = Column.of_categories("c", ["a", "b", None], has_other=True)
    assert [column.decode(cell) for cell in range(column.size)] == ["a", "b", OTHER, None]
    assert column.encode(["b", "z", None, float("nan")]).tolist() == [1, 2, 3, 3]


def test_undeclared_values_are_outside_the_domain():
    assert Column.of_categories("c", ["a"]).encode(["a", "z", None]).tolist() == [0, -1, -1]


def test_numbers_beyond_the_bounds_are_in_the_outer_bins():
    values = [-np.inf, -1, 0, 14.99, 15, 65, 100, 1e308, np.inf, np.nan]
    assert AGE.encode(np.array(values)).tolist() == [-1, 0, 0, 0, 1, 2, 2, 2, -1, -1]


def test_dates_are_binned_by_days():
    low, high = to_number(date(2020, 1, 1)), to_number(date(2021, 1, 1))
    column = Column.of_numbers(
        "day", (low, high), cuts=[to_number(date(2020, 7, 1))], unit=1, kind=ColumnKind.DATES
    )
    assert column.encode([date(2020, 6, 30), date(2020, 7, 1)]).tolist() == [0, 1]
    assert column.label(0) == "2020-01-01 to before 2020-07-01"


def test_labels_of_whole_numbers_name_the_last_value():
    assert [AGE.label(cell) for cell in range(3)] == ["0 to 14", "15 to 64", "65 to 100"]
    assert AGE.decode(1) == Interval(Fraction(15), Fraction(65))


def test_rules_are_structural_zeros_in_any_order_of_columns():
    domain = Domain((AGE, MARITAL), rules=(CHILDREN_DO_NOT_MARRY,))
    mask = domain.mask(("age", "marital"))
    assert mask.tolist() == [[True, False, True], [True] * 3, [True] * 3]
    assert domain.mask(("marital", "age")).tolist() == mask.T.tolist()
    assert domain.mask(("age",)).all()


def test_rule_holds_only_for_bins_that_are_wholly_inside_it():
    domain = Domain((AGE.with_cuts([10, 20]), MARITAL), rules=(CHILDREN_DO_NOT_MARRY,))
    assert domain.mask(("age", "marital"))[:, 1].tolist() == [False, True, True]
    forced = AGE.with_forced_cuts(CHILDREN_DO_NOT_MARRY.impossible[0].cuts).with_cuts([10, 20])
    assert forced.cuts == (10, 15, 20)


def test_functions_are_structural_zeros():
    code = Column.of_categories("code", ["a1", "a2", "b1"])
    cat = Column.of_categories("cat", ["a", "b"])
    domain = Domain((code, cat), functions=(Function("cat", "code", (0, 0, 1)),))
    assert domain.mask(("cat", "code")).tolist() == [[True, True, False], [False, False, True]]


def test_rule_that_leaves_no_cell_is_refused():
    everyone = Rule((Condition("marital", frozenset({"single", "married"}), with_null=True),))
    with pytest.raises(InvalidInput, match="no possible cell"):
        Domain((MARITAL,), rules=(everyone,))


@pytest.mark.parametrize(
    "make",
    [
        lambda: Column.of_categories("c", []),
        lambda: Column.of_categories("c", ["a", "a"]),
        lambda: Column.of_numbers("x", (1, 1)),
        lambda: Column.of_numbers("x", (0, 1), cuts=[2]),
        lambda: Domain(()),
        lambda: Domain((AGE, AGE)),
        lambda: Domain((AGE,), focus="region"),
        lambda: Domain((AGE, MARITAL), functions=(Function("marital", "age", (0,)),)),
        lambda: Domain((AGE,)).column("nobody"),
    ],
)
def test_unusable_declarations_are_refused(make):
    with pytest.raises(InvalidInput):
        make()
