"""Objects show themselves to people: one short line, and a page fragment in notebooks."""

from fractions import Fraction

import duckdb
import pytest

import hubbub as hb
from hubbub.audit import audit

THIRD = Fraction(1, 3)


@pytest.fixture(scope="module")
def data():
    connection = duckdb.connect()
    connection.execute("CREATE TABLE t AS SELECT i AS who, '<b>' || (i % 3) AS g FROM range(300) r(i)")
    keys = {"g": ["<b>0", "<b>1", "<b>2"]}
    with hb.open(
        connection, table="t", unit="who", rows_per_unit=1, keys=keys, budget=hb.Budget(9, 1e-6)
    ) as one:
        yield one


def objects(data):
    """Each kind of object that people look at, with figures that are no short decimals."""
    plan = data.sql("SELECT g, COUNT(*) AS n FROM t GROUP BY g", epsilon=THIRD)
    synopsis_plan = data.plan_synopsis(epsilon=THIRD, delta=1e-6, columns=["g"])
    finding = audit(hb.Laplace.of(sensitivity=1, epsilon=8), epsilon=1, rows="int:0:1", samples=600)
    yield hb.Budget(THIRD, 1e-6)
    yield hb.PrivacyLoss.gaussian(THIRD) * 3 + hb.PrivacyLoss.pure(THIRD)
    yield hb.Laplace.of(sensitivity=1, epsilon=THIRD)
    yield plan
    yield plan.run()
    yield plan.run().value
    yield data.account
    yield synopsis_plan
    yield synopsis_plan.run().value
    yield finding


@pytest.mark.slow
def test_a_display_is_one_short_line_without_fractions_or_functions(data):
    others = [data.account.spent(), hb.audit.Claim.approximate(1)]
    for each in [*objects(data), *others]:
        text = repr(each)
        assert len(text) < 200, text
        assert text.isprintable(), text
        assert not any(word in text for word in ("Fraction", "<function", "array(", "SELECT")), text


@pytest.mark.slow
def test_a_notebook_shows_a_fragment_with_names_escaped(data):
    for each in objects(data):
        page = each._repr_html_()
        assert page.startswith("<"), repr(each)
        assert "<b>0" not in page, repr(each)


def test_a_finding_displays_its_verdict_and_its_witness_the_event():
    finding = audit(hb.Laplace.of(sensitivity=1, epsilon=8), epsilon=1, rows="int:0:1", samples=2000)
    assert repr(finding).startswith("Audit(VIOLATION: ε ≥ ")
    assert repr(finding.witness).startswith(f"Witness({finding.witness.event}: ")
