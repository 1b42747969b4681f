"""GoogleSQL's way of asking."""

from fractions import Fraction

import pytest

from hubbub.errors import InvalidInput
from hubbub.sql.parser import Options, without_options

FULL = (
    "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1, delta=1e-6, max_groups_contributed=2, "
    "privacy_unit_column=id) item, COUNT(*, contribution_bounds_per_group=>(0,5)) AS n FROM t GROUP BY item"
)


def test_the_clause_becomes_options():
    text, options, dialect = without_options(FULL)
    assert options == Options(Fraction(1), Fraction(1, 10**6), 2, None, "id")
    assert text == "SELECT  item, hubbub_per_group(COUNT(*), 0, 5) AS n FROM t GROUP BY item"
    assert dialect == "bigquery"


def test_plain_sql_is_left_alone():
    assert without_options("SELECT COUNT(*) FROM t") == ("SELECT COUNT(*) FROM t", Options(), "duckdb")


def test_the_clause_may_come_without_options():
    text, options, _ = without_options("SELECT WITH DIFFERENTIAL_PRIVACY COUNT(*) FROM t")
    assert (text, options) == ("SELECT  COUNT(*) FROM t", Options())


def test_bounds_may_be_negative_and_stand_in_several_places():
    text, _, _ = without_options(
        "SELECT SUM(a + (b), contribution_bounds_per_group => (-1.5, 2)) "
        "/ AVG(c, contribution_bounds_per_group=>(0, 1)) FROM t"
    )
    assert text == "SELECT hubbub_per_group(SUM(a + (b)), -1.5, 2) / hubbub_per_group(AVG(c), 0, 1) FROM t"


def test_rows_may_be_limited_too():
    _, options, _ = without_options(
        "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(max_rows_contributed = 3) COUNT(*) FROM t"
    )
    assert options.rows == 3


@pytest.mark.parametrize(
    "text",
    [
        "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon) COUNT(*) FROM t",
        "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilom=1) COUNT(*) FROM t",
        "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1 COUNT(*) FROM t",
        "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=x) COUNT(*) FROM t",
        "SELECT COUNT(*, contribution_bounds_per_group=>0) FROM t",
        "SELECT COUNT(*, contribution_bounds_per_group=>(0)) FROM t",
        "SELECT COUNT(*, contribution_bounds_per_group=>(0,1), x) FROM t",
        "SELECT COUNT(*, contribution_bounds_per_group=>(a,b)) FROM t",
        "SELECT contribution_bounds_per_group=>(0,1) FROM t",
        "SELECT COUNT(*, contribution_bounds_per_group=>",
        "SELECT COUNT(*, contribution_bounds_per_group",
    ],
)
def test_unreadable_input_is_refused(text):
    with pytest.raises(InvalidInput):
        without_options(text)


def test_text_without_tokens_is_left_to_the_parser():
    assert without_options("SELECT 'DIFFERENTIAL_PRIVACY")[2] == "duckdb"
