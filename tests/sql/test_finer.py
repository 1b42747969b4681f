"""A finer answer is combined with the earlier ones to the same question; what is selected is not."""

import json
from dataclasses import replace
from fractions import Fraction
from unittest import mock

import numpy as np
import pandas as pd
import pytest

import hubbub as hb
from hubbub.accounting import Budget, PrivacyLoss
from hubbub.errors import BudgetExceeded, EngineFailed
from hubbub.ledger import Ledger
from hubbub.ledger.entries import digest
from hubbub.sql.fingerprint import family, fingerprint
from hubbub.sql.result import Result

GROUPS = 1500
ROWS = pd.DataFrame(
    {
        "who": range(2 * GROUPS),
        "g": [i % GROUPS for i in range(2 * GROUPS)],
        "x": [i % 7 - 3.0 for i in range(2 * GROUPS)],
    }
)
QUESTION = "SELECT g, COUNT(*) AS n FROM people GROUP BY g"


@pytest.fixture
def ledger(tmp_path):
    with Ledger.open(tmp_path / "people.ledger") as made:
        made.account("people", hb.Unit("who"), Budget(10, 1e-3))
        yield made


def opened(ledger, **given):
    given = {"keys": {"g": [0, 1, 2]}, "bounds": {"x": (-3, 3)}, "rows_per_unit": 1, "version": "1", **given}
    return hb.open({"people": ROWS}, unit="who", ledger=ledger, **given)


def ask(data, epsilon, text=QUESTION, **given):
    return data.run(data.sql(text, epsilon=epsilon, **given)).value


def test_a_finer_answer_is_charged_in_full_and_combined_by_inverse_variance(ledger):
    data = opened(ledger)
    coarse, fine = ask(data, 0.1), ask(data, 0.2)
    assert data.account.spent.epsilon == Fraction(3, 10)
    assert fine.facts["combined with lines"] == [coarse.facts["line"]]
    assert "combined with lines" not in coarse.facts
    kept = Result.from_json(data.account.released(fine.facts["line"]))
    own = kept.own[1].values
    for place in range(3):
        # The variances of both are 2/ε², so that the shares are 1/5 and 4/5.
        mean = 0.2 * coarse["n"][place] + 0.8 * own[place]
        assert fine["n"][place] == pytest.approx(
            float(np.clip(mean, fine["n_low"][place], fine["n_high"][place]))
        )
    # The interval is its own, whatever was seen before its price was chosen.
    assert (fine["n_low"], fine["n_high"]) == (kept.own[1].low.tolist(), kept.own[1].high.tolist())
    assert ask(data, 0.2).to_dict() == fine.to_dict()
    assert ask(data, 0.1).to_dict() == coarse.to_dict()
    assert data.account.spent.epsilon == Fraction(3, 10)
    assert ledger.verify().is_whole


def test_all_earlier_answers_count_each_by_its_own_noise(ledger):
    data = opened(ledger)
    releases = [ask(data, epsilon) for epsilon in (0.1, 0.2, 0.4)]
    assert releases[2].facts["combined with lines"] == [each.facts["line"] for each in releases[:2]]
    own = [
        (stored.own or stored.columns)[1].values
        for stored in (Result.from_json(data.account.released(each.facts["line"])) for each in releases)
    ]
    shares = np.array([1, 4, 16]) / 21
    mean = shares @ np.array(own, dtype=float)
    assert releases[2]["n"] == pytest.approx(list(np.clip(mean, releases[2]["n_low"], releases[2]["n_high"])))


@pytest.mark.parametrize(
    ("text", "given"),
    [
        ("SELECT g, SUM(x) AS n FROM people GROUP BY g", {}),
        ("SELECT g, COUNT(DISTINCT who) AS n FROM people GROUP BY g", {}),
        ("SELECT g, COUNT(*) AS n, SUM(x) AS s FROM people GROUP BY g", {}),
        (QUESTION, {"delta": 1e-6, "groups_per_unit": 8, "rows_per_unit": 8}),
        (QUESTION, {"confidence": 0.5}),
    ],
)
def test_combined_intervals_cover_as_often_as_they_say(ledger, text, given):
    """Each cell misses with 5 % at most (50 % in the last): more than the bound below has p < 1e-9."""
    data = opened(ledger, keys={"g": range(GROUPS)})
    ask(data, 0.5, text, **given)
    fine = ask(data, 0.6, text, **given)
    exact = data.exact(data.sql(text, epsilon=1, **{**given, "confidence": 0.95}))
    for name in ("n", "s") if " AS s" in text else ("n",):
        low, high, value = (np.array(fine[f"{name}{end}"], dtype=float) for end in ("_low", "_high", ""))
        truth = np.array(exact[name], dtype=float)
        missed = int(((truth < low) | (truth > high)).sum())
        assert missed <= (145 if given.get("confidence") is None else 870)
        # It is no guess either: some are missed, and the noise is a mean of both.
        assert abs(float((value - truth).mean())) < 8 * float((high - low).mean()) / GROUPS**0.5
    assert "combined with lines" in fine.facts


@pytest.mark.parametrize(
    ("text", "given"),
    [
        (QUESTION + " HAVING COUNT(*) > 1", {}),
        (QUESTION + " ORDER BY n", {}),
        (QUESTION + " LIMIT 2", {}),
        ("SELECT g FROM people GROUP BY g ORDER BY COUNT(*) DESC LIMIT 1", {}),
        ("SELECT g, AVG(x) AS n FROM people GROUP BY g", {}),
        ("SELECT g, COUNT(*) + 1 AS n FROM people GROUP BY g", {}),
        ("SELECT MEDIAN(x) AS n FROM people", {}),
        ("SELECT SUM(x) AS n FROM people", {"bounds": {"x": "auto"}}),
        ("SELECT x, COUNT(*) AS n FROM people GROUP BY x", {"delta": 1e-6}),
        (QUESTION, {"bounding_report": True}),
    ],
)
def test_what_is_chosen_by_its_value_is_not_combined(ledger, text, given):
    data = opened(ledger)
    for epsilon in (0.5, 0.75):
        assert "combined with lines" not in ask(data, epsilon, text, **given).facts
    assert ledger.verify().is_whole


def test_limits_that_are_found_privately_are_not_combined(ledger):
    data = opened(ledger, rows_per_unit=None)
    for epsilon in (0.5, 0.75):
        assert "combined with lines" not in ask(data, epsilon).facts


def test_other_versions_bounds_limits_and_keys_are_other_questions(ledger):
    text = "SELECT g, SUM(x) AS n FROM people GROUP BY g"
    ask(opened(ledger), 0.1, text)
    others = [
        ask(opened(ledger), 0.2, text, bounds={"x": (-2, 3)}),
        ask(opened(ledger), 0.2, text, keys={"g": [0, 1]}),
        ask(opened(ledger), 0.2, text, rows_per_unit=2),
        ask(
            opened(ledger), 0.2, text + " -- the same\n".replace("GROUP", "WHERE x > 0 GROUP"), confidence=0.9
        ),
        ask(opened(ledger), 0.2, text.replace("GROUP", "WHERE x > 0 GROUP")),
        ask(opened(ledger, version="2"), 0.2, text),
    ]
    assert ["combined with lines" in each.facts for each in others] == [
        False,
        False,
        False,
        True,
        False,
        False,
    ]


def test_an_analyst_pays_for_every_part_of_what_she_sees(ledger):
    owner = ledger.account("people")
    for who, epsilon in (("ada", 1), ("bob", 1), ("eve", Fraction(1, 4))):
        owner.grant(who, Budget(epsilon))
    ada, bob, eve = (opened(ledger, analyst=who) for who in ("ada", "bob", "eve"))
    ask(ada, 0.1)
    alone = ask(bob, 0.3)
    assert "combined with lines" not in alone.facts  # he has not seen hers
    fine = ask(ada, 0.2)
    assert len(fine.facts["combined with lines"]) == 1  # nor she his
    assert ask(bob, 0.2).to_dict() == fine.to_dict()
    assert bob.account.spent.epsilon == Fraction(6, 10)  # his own, and both parts of hers
    ask(bob, 0.2)
    assert bob.account.spent.epsilon == Fraction(6, 10)
    with pytest.raises(BudgetExceeded, match="the budget of eve"):
        ask(eve, 0.2)
    assert eve.account.spent.epsilon == 0
    assert owner.spent.epsilon == Fraction(6, 10)
    assert ledger.verify().is_whole


def test_what_failed_is_combined_with_nothing(ledger):
    data = opened(ledger)
    first = ask(data, 0.1)
    with mock.patch.object(data._engine, "aggregates", side_effect=RuntimeError), pytest.raises(EngineFailed):
        ask(data, 0.2)
    third = ask(data, 0.3)
    assert third.facts["combined with lines"] == [first.facts["line"]]
    with pytest.raises(EngineFailed):
        ask(data, 0.2)
    assert ledger.verify().is_whole


def test_what_is_kept_has_the_answer_by_itself_too(ledger):
    data = opened(ledger)
    ask(data, 0.1)
    fine = ask(data, 0.2)
    stored = json.loads(data.account.released(fine.facts["line"]))
    assert set(stored) == {"format", "columns", "label", "own"}
    again = Result.from_json(data.account.released(fine.facts["line"]))
    assert Result.from_json(again.to_json()).own[1].values.tolist() == again.own[1].values.tolist()


def poisoned(data, account, price, said):
    """A release of nonsense under a related key, which says that more was paid for it."""
    plan, stated = data.sql(QUESTION, epsilon=0.2), data.sql(QUESTION, epsilon=said)
    question = fingerprint(stated, data._origin)
    related = digest([family(plan, data._origin), data.version])
    charge = account.begin(
        "anything", PrivacyLoss.pure(price), key=f"{related} {question}", fingerprint=question
    )
    true = data._answers(stated, lambda _: None)
    false = replace(true, columns=(true.columns[0], replace(true.columns[1], values=np.full(3, 1e9))))
    account.keep(charge.number, false.to_json())


@pytest.mark.parametrize(("who", "price", "said"), [("", 2**-20, 5), ("ada", 2**-20, 5), ("ada", 1, 1)])
def test_a_release_that_says_more_than_was_paid_is_not_combined(ledger, who, price, said):
    data = opened(ledger)
    data.account.grant("ada", Budget(5))
    poisoned(data, data.account.for_analyst(who) if who else data.account, Fraction(price), said)
    fine = ask(data, 0.2)
    assert "combined with lines" not in fine.facts
    assert max(fine["n"]) < 1e6
