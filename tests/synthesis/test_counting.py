"""Counting in memory: cells, weights and other bins."""

import numpy as np
import pytest

from hubbub.errors import InvalidInput
from hubbub.synthesis.counting import InMemoryCounts, bound_table, table_sensitivity
from hubbub.synthesis.domain import Column, Domain
from hubbub.unit import Neighbours

SEX = Column.of_categories("sex", ["f", "m"])
AGE = Column.of_numbers("age", (0, 100), cuts=(18, 65), unit=1, is_nullable=True)
DOMAIN = Domain((SEX, AGE))
VALUES = {"sex": ["f", "m", "m", "x", "f"], "age": [17, 18, None, 40, 1e300]}


def test_table_counts_each_row_in_one_cell():
    counts = InMemoryCounts.of(DOMAIN, VALUES)
    assert counts.count(("sex", "age")).tolist() == [[1, 0, 1, 0], [0, 1, 0, 1]]
    assert counts.count(("age", "sex")).T.tolist() == counts.count(("sex", "age")).tolist()
    assert counts.count(()).tolist() == 4  # a row outside the domain in one column counts nowhere


def test_all_tables_are_marginals_of_one():
    counts = InMemoryCounts.of(DOMAIN, VALUES)
    tables = counts.count_many([("sex", "age"), ("sex",), ("age",), ()])
    both = tables["sex", "age"]
    assert both.sum(1).tolist() == tables[("sex",)].tolist()
    assert both.sum(0).tolist() == tables[("age",)].tolist()
    assert both.sum() == tables[()]


def test_unit_with_more_rows_than_its_limit_counts_less_for_each():
    counts = InMemoryCounts.of(DOMAIN, VALUES, units=["a", "a", "a", "b", None], max_weight=2)
    table = counts.count(("sex", "age"))
    each = 2 * counts.scale // 3
    assert table.tolist() == [[each, 0, 0, 0], [0, each, 0, each]]
    assert table.sum() <= counts.scale * counts.max_weight


def test_histogram_uses_other_cuts_and_the_same_rows():
    counts = InMemoryCounts.of(DOMAIN, VALUES)
    assert counts.histogram("age", [10, 17, 20]).tolist() == [0, 0, 2, 1, 1]
    other = counts.with_domain(DOMAIN.with_columns(AGE.with_cuts([50])))
    assert other.count(("age",)).tolist() == [2, 1, 1]
    assert other.count(("sex",)).tolist() == counts.count(("sex",)).tolist()


@pytest.mark.parametrize("neighbours", Neighbours)
def test_sensitivity_is_attained_by_one_unit(neighbours):
    counts = InMemoryCounts.of(DOMAIN, VALUES, neighbours=neighbours)
    bounded = bound_table(counts, counts.count(("sex", "age")))
    assert bounded.coordinates == 8
    less = {name: each[1:] for name, each in VALUES.items()}
    moved = np.abs(counts.count(("age",)) - InMemoryCounts.of(DOMAIN, less).count(("age",)))
    assert moved.sum() <= table_sensitivity(counts).l1


def test_missing_column_is_refused():
    with pytest.raises(InvalidInput, match="no values"):
        InMemoryCounts.of(DOMAIN, {"sex": ["f"]})
