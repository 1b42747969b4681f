"""Limits that were found are used again, at no cost; and `limits()` measures them beforehand."""

from fractions import Fraction

import duckdb
import numpy as np
import pandas as pd
import pytest

import hubbub as hb
from hubbub.errors import InvalidInput, Refused
from hubbub.sql import released_limits
from hubbub.sql.released_limits import read_histograms
from refusing import refused


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("rows") / "t.parquet"
    with duckdb.connect() as connection:
        connection.execute(
            "COPY (SELECT i // 4 AS who, 'g' || (i % 4) AS g, (i % 10) * 1.0 AS x FROM range(8000) r(i)) "
            f"TO '{path}'"
        )
    return path


def open_data(file, ledger=None, **options):
    budget = hb.Budget(20, 1e-4)
    return hb.open(file, table="t", unit="who", bounds={"x": (0, 9)}, ledger=ledger, budget=budget, **options)


def spent(data):
    return float(sum(each.loss.epsilon(1e-5) for each in data.account.receipts))


@pytest.mark.slow
def test_a_second_query_on_the_same_rows_searches_nothing(file):
    with open_data(file) as data:
        first = data.sql("SELECT COUNT(*) AS n FROM t WHERE x > 3", epsilon=1)
        assert first.split.rows > 0
        label = first.run().value.facts
        assert list(read_histograms(label))
        second = data.sql("SELECT SUM(x) AS s FROM t WHERE x > 3", epsilon=1)
        assert not second.bounded.estimates_limits
        assert second.split.limits == 0
        assert second.split.aggregates == 1
        # Each query chooses its own limit: with more ε for the answer it may be a larger one.
        assert second.contribution_bounds.rows
        answer = second.run().value
        note = answer.facts["limits"]["rows"]
        assert "found before, at no cost now" in note
        # The plan says it beforehand, and the printed answer says it again.
        assert f"rows per unit: {note}" in str(second)
        assert f"rows per unit: {note}" in str(answer)
        # Other rows are others: the limit is searched.
        assert data.sql("SELECT SUM(x) AS s FROM t WHERE x > 4", epsilon=1).split.rows > 0
        assert data.sql(
            "SELECT g, COUNT(DISTINCT who) AS n FROM t GROUP BY g", epsilon=1, delta=1e-6
        ).split.groups


@pytest.mark.slow
def test_printed_answers_say_what_declared_limits_cut(file):
    question = "SELECT COUNT(*) AS n FROM t"
    with open_data(file) as data:
        text = str(data.sql(question, epsilon=1, rows_per_unit=3).run().value)
        assert "rows per unit: limit 3, declared; the part above it is cut off, and not measured" in text
        assert "intervals cover" not in text
    with open_data(file, max_rows_per_unit=4) as data:
        text = str(data.sql(question, epsilon=1).run().value)
        assert "rows per unit: limit 4; nothing is cut off, as is declared" in text
        assert "intervals cover the exact answer" in text


@pytest.mark.slow
def test_a_declared_limit_has_the_estimate_that_the_ledger_keeps(file, tmp_path):
    """In another process, too: the same stored answer said that nothing was measured there."""
    ledger, question = tmp_path / "l.db", "SELECT COUNT(*) AS n FROM t"
    with open_data(file, ledger) as data:
        data.limits(epsilon=1)
        first = data.sql(question, epsilon=1, rows_per_unit=2).run().value.facts
    assert first["limits"]["rows"].startswith("limit 2, declared; an estimated ")
    with open_data(file, ledger) as data:
        plan = data.sql(question, epsilon=1, rows_per_unit=2)
        assert f"rows per unit: {first['limits']['rows']}" in str(plan)
        again = plan.run().value.facts
    assert again["asked before"]
    assert (again["limits"], again["interval covers"]) == (first["limits"], first["interval covers"])


@pytest.mark.slow
def test_a_histogram_of_other_bins_is_not_read(file, tmp_path, monkeypatch):
    """Another version may have as many bins that end elsewhere: they were told apart by their number."""
    ledger, text = tmp_path / "l.db", "SELECT COUNT(*) AS n FROM t"
    with open_data(file, ledger) as data:
        [stored] = data.limits(epsilon=1).value.facts["histograms"]
        assert len(stored["ends"]) == len(stored["counts"])
        assert data.sql(text, epsilon=1).split.rows == 0
    monkeypatch.setattr(released_limits, "ROW_BINS", (*stored["ends"][:-1], stored["ends"][-1] + 1))
    with open_data(file, ledger) as data:
        assert data.sql(text, epsilon=1).split.rows > 0
        assert "an estimated" not in str(data.sql(text, epsilon=1, rows_per_unit=3))


@pytest.mark.slow
def test_a_declared_limit_is_what_is_declared(file):
    with open_data(file) as data:
        data.sql("SELECT COUNT(*) AS n FROM t", epsilon=1).run()
        assert data.sql("SELECT SUM(x) AS s FROM t", epsilon=1, rows_per_unit=3).contribution_bounds.rows == 3


@pytest.mark.slow
def test_a_ledger_keeps_it_and_the_same_question_keeps_its_answer(file, tmp_path):
    ledger = tmp_path / "l.db"
    question = "SELECT COUNT(*) AS n FROM t"
    with open_data(file, ledger) as data:
        first = data.sql(question, epsilon=1).run().value
    with open_data(file, ledger) as data:
        # The question has its answer, with the search that it paid for.
        again = data.sql(question, epsilon=1)
        assert again.split.rows > 0
        assert again.run().value.to_dict() == first.to_dict()
        # Others on the same rows need no search; asked twice, they have one answer too.
        answers = [data.sql("SELECT AVG(x) AS a FROM t", epsilon=1).run().value for _ in range(2)]
        assert answers[0].to_dict() == answers[1].to_dict()
        assert answers[1].facts["asked before"]
        assert "found before" in answers[0].facts["limits"]["rows"]


@pytest.mark.slow
def test_a_histogram_with_too_little_epsilon_does_not_spoil_later_limits(file):
    """Noise of scale 1/0.002 hides 2,000 units; a search with ε = 1 sees them."""
    with open_data(file) as data:
        data.sql("SELECT COUNT(*) AS n FROM t", epsilon=0.01).run()
        plan = data.sql("SELECT AVG(x) AS a FROM t", epsilon=1)
        assert plan.split.rows > 0
        assert "what is known of rows per unit was released with too little ε" in str(plan)
        assert plan.run().value.facts["rows per unit"] >= 4
        # What this search has found serves later queries, and those with little ε have all for their answer.
        for epsilon in (0.9, 0.01):
            later = data.sql("SELECT SUM(x) AS s FROM t", epsilon=epsilon)
            assert later.split.limits == 0
            assert "too little" not in str(later)
            assert later.contribution_bounds.rows <= 8
        # An error can be asked for, whatever is known.
        assert data.sql("SELECT COUNT(*) AS n FROM t", error={"n": 100}).split.limits == 0


@pytest.mark.slow
def test_the_most_precise_histogram_is_used_and_answers_stay(file, tmp_path):
    with open_data(file, tmp_path / "l.db") as data:
        data.limits(epsilon=0.25)
        question = data.sql("SELECT COUNT(*) AS n FROM t", epsilon=1)
        assert [each.scale for each in question.found_limits] == [4]
        first = question.run().value
        data.limits(epsilon=2)
        data.limits(epsilon=0.5)
        other = data.sql("SELECT SUM(x) AS s FROM t", epsilon=1)
        assert [each.scale for each in other.found_limits] == [Fraction(1, 2)]
        # The first question has its answer, with the limit of that time: nothing is charged.
        left = data.account.remaining().epsilon
        again = data.sql("SELECT COUNT(*) AS n FROM t", epsilon=1)
        assert data.is_answered(again)
        assert again.run().value.to_dict() == first.to_dict()
        assert data.account.remaining().epsilon == left


@pytest.mark.slow
def test_a_statement_of_several_queries_keeps_its_answer(file, tmp_path):
    """The limits that its own parts have found make no other question of it."""
    text = (
        "WITH a AS (SELECT COUNT(*) AS n FROM t), b AS (SELECT AVG(x) AS m FROM t WHERE x > 3) "
        "SELECT n, m FROM a CROSS JOIN b"
    )
    with open_data(file, tmp_path / "l.db") as data:
        first = data.sql(text, epsilon=1).run().value
        left = data.account.remaining().epsilon
        # Limits that are measured meanwhile make none, either.
        for _ in range(2):
            again = data.sql(text, epsilon=1)
            assert data.is_answered(again)
            assert again.run().value.to_dict() == first.to_dict()
            assert data.account.remaining().epsilon == left
            data.limits(epsilon=2)
            left = data.account.remaining().epsilon


@pytest.mark.slow
def test_another_version_of_the_rows_is_searched_anew(file, tmp_path):
    ledger = tmp_path / "l.db"
    with open_data(file, ledger, version="one") as data:
        data.sql("SELECT COUNT(*) AS n FROM t", epsilon=1).run()
    with open_data(file, ledger, version="two") as data:
        assert data.sql("SELECT AVG(x) AS a FROM t", epsilon=1).split.rows > 0


@pytest.mark.slow
@pytest.mark.parametrize("has_ledger", [True, False])
def test_limits_are_measured_once_for_all_later_queries(file, tmp_path, has_ledger):
    with open_data(file, tmp_path / "l.db" if has_ledger else None) as data:
        release = data.limits(epsilon=0.5, by=["g"])
        assert release.loss.epsilon() == pytest.approx(0.5)
        assert release.value["contributions"] == ["rows per unit", 'groups per unit by "g"']
        assert all(limit >= 4 for limit in release.value["limit"])  # noise may be taken for larger ones
        for text in (
            "SELECT COUNT(*) AS n FROM t WHERE x > 2",
            "SELECT g, COUNT(DISTINCT who) AS n, SUM(x) AS s FROM t GROUP BY g",
            "SELECT g, COUNT(DISTINCT who) AS n FROM t WHERE x < 7 GROUP BY g",
        ):
            plan = data.sql(text, epsilon=1, delta=1e-6)
            assert plan.split.limits == 0
            assert "found before" in plan.label()["limits"]["groups" if "WHERE x < 7" in text else "rows"]
        if has_ledger:
            again = data.limits(epsilon=0.5, by=["g"]).value
            assert again.to_dict() == release.value.to_dict()
            assert [each.facts["asked before"] for each in (release.value, again)] == [False, True]
            left = data.account.remaining().epsilon
            assert left == pytest.approx(19.5, abs=0.01)


@pytest.mark.slow
def test_an_analyst_does_not_see_what_others_paid_for(file, tmp_path):
    ledger = tmp_path / "l.db"
    with open_data(file, ledger) as data:
        data.account.grant("ada", hb.Budget(5, 1e-5))
        data.sql("SELECT COUNT(*) AS n FROM t", epsilon=1).run()
    with hb.open(file, table="t", unit="who", ledger=ledger, analyst="ada", bounds={"x": (0, 9)}) as data:
        assert data.sql("SELECT AVG(x) AS a FROM t", epsilon=1).split.rows > 0


@pytest.mark.slow
def test_a_plan_does_not_depend_on_what_other_analysts_asked(file, tmp_path):
    """It searched again where another had charged this very question: a free plan told her SQL and ε."""
    ledger, text = tmp_path / "l.db", "SELECT SUM(x) AS s FROM t"

    def as_analyst(name):
        return hb.open(file, table="t", unit="who", ledger=ledger, analyst=name, bounds={"x": (0, 9)})

    with open_data(file, ledger) as data:
        for name in ("ada", "bob"):
            data.account.grant(name, hb.Budget(5, 1e-5))
    with as_analyst("bob") as data:
        data.sql("SELECT COUNT(*) AS n FROM t", epsilon=1).run()
        before = str(data.sql(text, epsilon=0.5))
    with as_analyst("ada") as data:
        data.sql(text, epsilon=0.5).run()
    with as_analyst("bob") as data:
        plan = data.sql(text, epsilon=0.5)
        assert str(plan) == before
        assert plan.split.rows == 0
        assert not data.is_answered(plan)


@pytest.mark.slow
def test_a_question_by_its_error_keeps_its_answer_and_price(file, tmp_path):
    """Limits that were measured later made it another question, of another ε."""
    with open_data(file, tmp_path / "l.db") as data:
        data.sql("SELECT COUNT(*) AS n FROM t", epsilon=0.01).run()
        first = data.sql("SELECT SUM(x) AS s FROM t", error={"s": 20_000})
        answer = first.run().value.to_dict()
        data.limits(epsilon=2)
        again = data.sql("SELECT SUM(x) AS s FROM t", error={"s": 20_000})
        assert data.is_answered(again)
        assert again.epsilon == first.epsilon
        assert again.run().value.to_dict() == answer


@pytest.mark.slow
def test_an_analyst_pays_once_for_limits_that_the_owner_measured(file, tmp_path):
    """From her own budget: the account has paid, and the histogram is the same."""
    ledger, ada = tmp_path / "l.db", {"table": "t", "unit": "who", "analyst": "ada", "bounds": {"x": (0, 9)}}
    with open_data(file, ledger) as data:
        data.account.grant("ada", hb.Budget(5, 1e-5))
        measured = data.limits(epsilon=0.5).value.to_dict()
        before = data.account.remaining().epsilon
    with hb.open(file, ledger=ledger, **ada) as data:
        assert data.sql("SELECT AVG(x) AS a FROM t", epsilon=1).split.rows > 0
        assert data.limits(epsilon=0.5).value.to_dict() == measured
        assert data.account.remaining().epsilon == pytest.approx(4.5, abs=0.01)
    for _ in range(2):  # later, and in another process
        with hb.open(file, ledger=ledger, **ada) as data:
            assert data.sql("SELECT AVG(x) AS a FROM t", epsilon=1).split.rows == 0
    with open_data(file, ledger) as data:
        assert data.account.remaining().epsilon == before


@pytest.mark.slow
def test_a_question_keeps_its_answer_though_limits_were_seen_later(file, tmp_path):
    """The owner's limits are older than her question, and she saw them after it: it was charged again."""
    ledger, ada = tmp_path / "l.db", {"table": "t", "unit": "who", "analyst": "ada", "bounds": {"x": (0, 9)}}
    question = "SELECT SUM(x) AS s FROM t"
    with open_data(file, ledger) as data:
        data.account.grant("ada", hb.Budget(9, 1e-5))
        data.limits(epsilon=4)
    with hb.open(file, ledger=ledger, **ada) as data:
        data.limits(epsilon=1)
        first = data.sql(question, epsilon=1)
        assert [each.scale for each in first.found_limits] == [1]
        answer = first.run().value.to_dict()
        data.limits(epsilon=4)
        left = data.account.remaining()
        for reopened in (data, hb.open(file, ledger=ledger, **ada)):
            again = reopened.sql(question, epsilon=1)
            assert reopened.is_answered(again)
            assert again.run().value.to_dict() == answer
            assert [each.scale for each in reopened.sql(question, epsilon=2).found_limits] == [Fraction(1, 4)]
        assert data.account.remaining() == left


@pytest.mark.slow
def test_an_error_is_kept_for_a_limit_that_was_measured(file):
    with open_data(file) as data:
        with pytest.raises(hb.Refused, match="estimated when the query runs"):
            data.sql("SELECT COUNT(*) AS n FROM t", error={"n": 100})
        data.limits(epsilon=0.5)
        plan = data.sql("SELECT COUNT(*) AS n FROM t", error={"n": 100})
        assert plan.split.limits == 0
        assert plan.half_width(0) <= 100


@pytest.mark.slow
def test_an_analyst_does_not_read_a_histogram_from_the_answers_of_others(file, tmp_path):
    ledger, question = tmp_path / "l.db", "SELECT SUM(x) AS s FROM t"
    with open_data(file, ledger) as data:
        data.account.grant("ada", hb.Budget(5, 1e-5))
        data.account.grant("bob", hb.Budget(5, 1e-5))
    as_analyst = {"table": "t", "unit": "who", "ledger": ledger, "bounds": {"x": (0, 9)}}
    with (
        hb.open(file, **as_analyst, analyst="ada") as ada,
        hb.open(file, **as_analyst, analyst="bob") as bob,
    ):
        ada.sql("SELECT COUNT(*) AS n FROM t", epsilon=1).run()
        plan = ada.sql(question, epsilon=0.5)
        limit = plan.contribution_bounds.rows
        plan.run()
        # Bob declares the limit that was chosen for Ada: nothing tells him that it was.
        answer = bob.sql(question, epsilon=0.5, rows_per_unit=limit).run().value.facts
        assert not answer["asked before"]
        assert answer["limits"] == {
            "rows": f"limit {limit}, declared; the part above it is cut off, and not measured"
        }
        # Ada declares a limit, and her histogram says what it cuts off; the stored answer does not.
        other = limit - 1
        ours = ada.sql(question, epsilon=0.5, rows_per_unit=other).run().value.facts
        assert "an estimated" in ours["limits"]["rows"]
        theirs = bob.sql(question, epsilon=0.5, rows_per_unit=other).run().value.facts
        assert theirs["asked before"]
        assert "estimated" not in theirs["limits"]["rows"] + theirs["interval covers"]


def test_keys_of_limits_are_names_or_lists_of_them(file):
    with open_data(file) as data:
        for by in ("g", ["g"], [("g",)], ["g", ["g"]]):
            release = data.limits(epsilon=0.1, by=by)
            assert release.value["contributions"] == ["rows per unit", 'groups per unit by "g"']
        charged = len(data.account.receipts)
        for by in (None, [1], [[]], ["g", None], {"g": ["g0"]}, 5, b"g"):
            with refused(InvalidInput, "by is not a list of names of columns"):
                data.limits(epsilon=0.1, by=by)
        assert len(data.account.receipts) == charged == 4


def test_row_units_have_no_limits(file):
    with (
        hb.open(file, table="t", unit=hb.Unit.row()) as data,
        pytest.raises(InvalidInput, match="each row is"),
    ):
        data.limits(epsilon=1)


def test_plan_states_errors_up_to_the_largest_limit_that_may_be_found():
    """Of three groups nobody has more than three, and the interval is of what is found among one to three."""
    rows = pd.DataFrame({"who": np.repeat(np.arange(400), 3), "g": ["a", "b", "c"] * 400})
    with hb.open(rows, table="t", unit="who", keys={"g": ["a", "b", "c"]}) as data:
        units, both = (
            data.sql(f"SELECT g, {what} FROM t GROUP BY g", epsilon=10)
            for what in ("COUNT(DISTINCT who) AS n", "COUNT(DISTINCT who) AS n, COUNT(*) AS m")
        )
        limit = {output.name: error for output, error in units.errors}["n"]
        least, most = (float(part.split("±")[1].split()[0]) for part in limit.split(", "))
        assert "at a limit on groups per unit of 1, " in limit
        assert limit.endswith(" at 3")
        # Counts of weights are rounded to whole ones, which adds 1 to each error.
        assert most - 1 == pytest.approx(3 * (least - 1), rel=0.1)
        errors = {output.name: error for output, error in both.errors}
        assert " at 3" in errors["n"]
        assert " at 8" not in errors["n"]
        assert " at 100" in errors["m"]
        answers = units.run().value.to_dict()
        assert (np.array(answers["n_high"]) - answers["n_low"]).max() <= 2.2 * most


@pytest.mark.slow
def test_error_can_be_asked_for_once_limits_are_measured():
    rows = pd.DataFrame({"who": np.repeat(np.arange(400), 3), "g": ["a", "b", "c"] * 400})
    with hb.open(rows, table="t", unit="who", keys={"g": ["a", "b", "c"]}) as data:
        counts = "SELECT g, COUNT(*) AS n FROM t GROUP BY g"
        with refused(Refused, "the limit on rows per unit is estimated when the query runs"):
            data.sql(counts, error={"n": 20})
        with refused(Refused, "the limit on groups per unit"):
            data.sql("SELECT g, COUNT(DISTINCT who) AS n FROM t GROUP BY g", error={"n": 20})
        with refused(InvalidInput, "error does not name an output"):
            data.sql(counts, error=20)
        data.limits(epsilon=1, by=["g"])
        plan = data.sql(counts, error={"n": 20})
        assert "n: ± 20" in str(plan) or "n: ± 19" in str(plan)


@pytest.mark.slow
def test_limits_are_measured_for_the_keys_of_later_queries():
    rows = pd.DataFrame({"who": np.repeat(np.arange(400), 3), "g": ["a", "b", "c"] * 400})
    units, keys = "SELECT g, COUNT(DISTINCT who) AS n FROM t GROUP BY g", {"g": ["a", "b"]}
    with hb.open(rows, table="t", unit="who") as data:
        data.limits(epsilon=1, by=["g"], keys=keys)
        plan = data.sql(units, epsilon=1, keys=keys)
        assert plan.split.limits == 0
        facts = plan.run().value.facts
        assert facts["limits"]["groups"] == (
            "limit 2, found before, at no cost now; nothing is cut off, as there are no more groups"
        )
        assert facts["interval covers"] == "the exact answer"
        assert data.sql(units, epsilon=1, keys={"g": ["a", "c"]}).split.limits > 0
        with refused(InvalidInput, "which the query does not group by"):
            data.limits(epsilon=1, keys=keys)


def test_an_estimate_of_more_rows_than_the_querys_says_so():
    """Of the 300 units with forty rows of h a limit of 5 cuts off far more than of all rows."""
    rows = pd.DataFrame({"who": [*range(20_000), *range(300)], "g": ["l"] * 20_000 + ["h"] * 300})
    rows = rows.loc[np.repeat(rows.index, np.where(rows["g"] == "h", 40, 2))]
    left_out = "of all rows above it, also of those that the query leaves out"
    with hb.open(rows, table="t", unit="who") as data:
        data.limits(epsilon=1)
        for limits in ({}, {"rows_per_unit": 5}):
            for more, text in (
                (True, "SELECT COUNT(*) AS n FROM t WHERE g = 'h'"),
                (False, "SELECT COUNT(*) AS n FROM t"),
            ):
                plan = data.sql(text, epsilon=1, **limits)
                note = data.run(plan).value.facts["limits"]["rows"]
                assert (left_out in note) == more
                assert note in str(plan)
        keys = data.sql("SELECT g, COUNT(*) AS n FROM t GROUP BY g", epsilon=1, keys={"g": ["h"]})
        assert left_out in str(keys)
