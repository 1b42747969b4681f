"""Categories that are selected privately: what is charged, what is shown, what is refused."""

from fractions import Fraction

import pandas as pd
import pytest

import hubbub as hb
from hubbub.accounting import PrivacyLoss
from hubbub.errors import HubbubError
from hubbub.synthesis.category_selection import MAX_SELECTED

PRICE = {"epsilon": 8, "delta": 1e-6}


def people(count=4000):
    frame = pd.DataFrame({"who": range(count)})
    frame["city"] = ["Bern", "Zug", "Uri", None][0:1] * count
    frame.loc[frame.who % 2 == 0, "city"] = "Zug"
    frame.loc[frame.who == 7, "city"] = "Rare"
    frame.loc[frame.who % 10 == 3, "city"] = None
    frame["sex"] = ["f", "m"] * (count // 2)
    return frame


def open_people(frame=None, **options):
    return hb.open(
        people() if frame is None else frame, table="t", unit="who", rows_per_unit=1,
        keys={"sex": ["f", "m"]}, **options,
    )  # fmt: skip


@pytest.mark.slow
def test_frequent_categories_are_cells_and_others_share_one():
    with open_people(budget=hb.Budget(8, 1e-6)) as data:
        plan = data.plan_synopsis(2, **PRICE, private_keys=["city"], columns=["city", "sex"])
        assert "selected privately" in str(plan)
        synopsis = plan.run().value
        with pytest.raises(HubbubError):  # all of it was charged
            data.plan_synopsis(1, epsilon=0.1, delta=0, columns=["sex"]).run()
    # Thousands of units are kept, a single one with probability below 1e-7.
    assert set(synopsis.domain.column("city").categories) == {"Bern", "Zug"}
    assert synopsis.facts["epsilon"] == "8"
    assert synopsis.facts["private keys"]["selected"] == {"city": 2}
    table = synopsis.table("city").to_pandas().set_index("city")["n"]
    assert abs(table["Zug"] - 2000) < 100
    assert abs(table["other"] - 1) < 100
    again = hb.Synopsis.from_json(synopsis.to_json())
    assert len(again.sql("SELECT city, COUNT(*) AS n FROM t GROUP BY city").to_pandas()) == 2


def test_the_loss_is_that_of_the_selection_and_of_the_tables():
    with open_people() as data:
        plan = data.plan_synopsis(2, **PRICE, private_keys=["city"], columns=["city", "sex"])
        assert plan.loss.epsilon(1e-6) <= 8
        own = plan.selection
        assert (own.epsilon, own.delta) == (Fraction(8, 10), Fraction(1, 10**7))
        assert own.loss.epsilon(1e-7) <= 0.8 + 1e-12
        larger = data.plan_synopsis(
            2, **PRICE, private_keys=["city"], private_keys_share=0.5, columns=["city", "sex"]
        )
        assert larger.selection.epsilon == 4
        assert max(larger.errors.values()) > max(plan.errors.values())
        synthesis = data.plan_synthesis(**PRICE, private_keys=["city"], columns=["city", "sex"])
        assert synthesis.loss.epsilon(1e-6) <= 8


@pytest.mark.parametrize("kind", ["plan_synopsis", "plan_synthesis"])
def test_the_rest_costs_the_same_whatever_was_selected(kind):
    with open_people() as data:
        plan = getattr(data, kind)(**PRICE, private_keys=["city"], columns=["city", "sex"])
        for count in (0, 1, 5, MAX_SELECTED):
            rest = plan.make_rest({"city": tuple(f"c{number}" for number in range(count))})
            together = PrivacyLoss.compose([plan.selection.loss, rest.loss])
            assert together == plan.loss
            assert rest.loss.epsilon(9e-7) <= 7.2 + 1e-9


@pytest.mark.slow
def test_the_plan_does_not_depend_on_the_rows():
    texts = set()
    for frame in (people(), people(4), people().assign(city="Genf")):
        with open_people(frame) as data:
            plan = data.plan_synopsis(2, **PRICE, private_keys=["city"], columns=["city", "sex"])
            texts.add((str(plan), str(plan.label())))
    assert len(texts) == 1


@pytest.mark.slow
def test_synthetic_rows_have_selected_categories():
    with open_people() as data:
        synthesis = data.plan_synthesis(**PRICE, private_keys=["city"], columns=["city", "sex"]).run().value
    rows = synthesis.synthetic(500).to_pandas()
    assert set(rows["city"]) <= {"Bern", "Zug", "other"}
    assert synthesis.facts["private keys"]["selected"] == {"city": 2}


@pytest.mark.slow
def test_tables_without_frequent_categories_have_the_cell_for_others_alone():
    with open_people(people(4)) as data:
        synopsis = data.plan_synopsis(2, **PRICE, private_keys=["city"], columns=["city", "sex"]).run().value
    assert synopsis.domain.column("city").size == 1
    assert set(synopsis.synthetic(5).to_pandas()["city"]) == {"other"}
    assert synopsis.sql("SELECT sex, COUNT(*) AS n FROM t GROUP BY sex")


def test_numbers_can_be_selected_too():
    frame = people().assign(ward=lambda each: (each.who % 3).astype(float))
    frame.loc[frame.who == 8, "ward"] = float("inf")
    with open_people(frame) as data:
        plan = data.plan_synopsis(1, **PRICE, private_keys=["WARD"], columns=["ward"], nulls=["ward"])
        synopsis = plan.run().value
    assert set(synopsis.domain.column("ward").categories) == {0.0, 1.0, 2.0}
    assert set(synopsis.synthetic(300).to_pandas()["ward"].dropna()) == {0.0, 1.0, 2.0}


def test_more_categories_than_planned_are_counted_as_others():
    frame = people(4000)
    frame["city"] = [f"c{number % 80:02}" for number in range(4000)]
    with open_people(frame) as data:
        plan = data.plan_synopsis(1, epsilon=900, delta=1e-6, private_keys=["city"],
                                  columns=["city", "sex"], allow_large_epsilon=True)  # fmt: skip
        synopsis = plan.run().value
    assert len(synopsis.domain.column("city").categories) == MAX_SELECTED


@pytest.mark.parametrize(
    "changes",
    [
        {"delta": 0},
        {"private_keys": ["who"]},
        {"private_keys": ["missing"]},
        {"private_keys_share": 0},
        {"private_keys_share": 1},
        {"keys": {"city": ["Bern"]}},
        {"impossible": ["city = 'Bern' AND sex = 'f'"]},
        {"functions": {"sex": {"of": "city", "table": {}}}},
    ],
)
def test_selections_that_could_fail_are_refused_before_anything_is_charged(changes):
    with open_people(budget=hb.Budget(8, 1e-6)) as data:
        options = {**PRICE, "private_keys": ["city"], "columns": ["city", "sex"], **changes}
        with pytest.raises(HubbubError):
            data.plan_synopsis(2, **options)
        data.plan_synopsis(1, **PRICE, columns=["sex"]).run()  # the budget is untouched


@pytest.mark.parametrize("kind", ["plan_synopsis", "plan_synthesis"])
def test_a_rule_about_a_selected_column_with_a_quoted_name_is_refused_before_anything_is_charged(kind):
    """It was charged, and refused where no category that was selected was below the constant."""
    frame = people().rename(columns={"city": 'ci"ty'})
    rule = """ "ci""ty" < 'm' AND sex = 'f' """
    with open_people(frame, budget=hb.Budget(8, 1e-6)) as data:
        with pytest.raises(HubbubError, match="names ci"):
            getattr(data, kind)(**PRICE, private_keys=['ci"ty'], columns=['ci"ty', "sex"], impossible=[rule])
        with pytest.raises(HubbubError, match="not a table"):
            getattr(data, kind)(**PRICE, private_keys=['ci"ty'], columns=["sex"], functions={"sex": "x"})


def test_selected_categories_are_one_outcome_of_one_charge(tmp_path):
    with open_people(ledger=tmp_path / "x.ledger", account="a", budget=hb.Budget(8, 1e-6)) as data:
        plans = [
            data.plan_synopsis(2, **PRICE, private_keys=["city"], columns=["city", "sex"]) for _ in range(2)
        ]
        assert len({plan.run().value.to_json() for plan in plans}) == 1


@pytest.mark.slow
def test_frequent_texts_that_no_engine_takes_as_keys_are_counted_as_others():
    frame = people()
    frame.loc[frame.city == "Bern", "city"] = "Be\0rn"
    with open_people(frame) as data:
        price = {**PRICE, "private_keys": ["city"], "columns": ["city", "sex"]}
        synopsis = data.plan_synopsis(2, **price).run().value
        assert data.plan_synthesis(**price).run().value.synthetic(10)
    assert synopsis.domain.column("city").categories == ("Zug",)
    table = synopsis.table("city").to_pandas().set_index("city")["n"]
    assert abs(table["other"] - 1600) < 100
