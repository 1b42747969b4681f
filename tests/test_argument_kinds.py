"""Arguments of a wrong kind are refused as such, by their name."""

import pyarrow as pa
import pytest

import hubbub as hb

ROWS = pa.table({"u": [1, 2], "g": ["a", "b"], "x": [1.0, 2.0]})
TEXT = "SELECT g, SUM(x) AS s FROM t GROUP BY g"


@pytest.mark.parametrize("name", ["types", "bounds", "keys", "public"])
@pytest.mark.parametrize("value", [["p"], "p", 5, {5: "x"}])
def test_open_refuses_what_is_no_mapping(name, value):
    with pytest.raises(hb.InvalidInput, match=f"{name} is not a mapping") as caught:
        hb.open(ROWS, table="t", unit="u", **{name: value})
    assert caught.value.parameter == name


@pytest.mark.parametrize("name", ["budget", "ledger", "partitions"])
def test_open_refuses_other_arguments_of_a_wrong_kind(name):
    with pytest.raises(hb.InvalidInput, match=f"{name} is not a") as caught:
        hb.open(ROWS, table="t", unit="u", **{name: 5})
    assert caught.value.parameter == name


@pytest.mark.parametrize("name", ["bounds", "keys"])
@pytest.mark.parametrize("value", [["p"], 5, {5: "x"}])
def test_sql_refuses_what_is_no_mapping(name, value):
    data = hb.open(ROWS, table="t", unit="u", rows_per_unit=1)
    with pytest.raises(hb.InvalidInput, match=f"{name} is not a mapping"):
        data.sql(TEXT, epsilon=1, **{name: value})
