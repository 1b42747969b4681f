"""Windows: for data that grows, a budget for each stretch of time, which pays for its rows alone."""

from dataclasses import replace
from datetime import date, datetime, timedelta
from fractions import Fraction

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hubbub as hb
from cli.terminal import run
from hubbub.accounting import Budget, PrivacyLoss, PrivacyOdometer
from hubbub.errors import BudgetExceeded, InvalidInput, Refused
from hubbub.ledger import Ledger

NOVEMBER, DECEMBER = hb.Window.of("day", "2026-11"), hb.Window.of("day", "2026-12")
COUNT = "SELECT COUNT(*) AS n FROM visits"
ROWS = pd.DataFrame(
    {
        "who": [i // 3 for i in range(180)],
        "day": pd.to_datetime([date(2026, 10, 15) + timedelta(i % 90) for i in range(180)]),
        "x": [1.0] * 180,
    }
)


@pytest.fixture
def ledger(storage):
    with storage.open() as handle:
        yield handle


def open_data(ledger, window=NOVEMBER, rows=ROWS, **options):
    options = {"budget": Budget(1), "rows_per_unit": 3, "version": "1", **options}
    return hb.open({"visits": rows}, unit="who", ledger=ledger, window=window, **options)


def ask(data, epsilon=1.0, text=COUNT):
    return data.run(data.sql(text, epsilon=epsilon))


@pytest.mark.parametrize(
    ("text", "start", "end"),
    [
        ("2026", date(2026, 1, 1), date(2027, 1, 1)),
        ("2026-Q1", date(2026, 1, 1), date(2026, 4, 1)),
        ("2026-Q4", date(2026, 10, 1), date(2027, 1, 1)),
        ("2026-01", date(2026, 1, 1), date(2026, 2, 1)),
        ("2026-12", date(2026, 12, 1), date(2027, 1, 1)),
        (" 2024-02-29 ", date(2024, 2, 29), date(2024, 3, 1)),
    ],
)
def test_a_period_has_a_first_day_and_a_day_after_the_last(text, start, end):
    assert hb.Window.of("day", text) == hb.Window("day", start, end)


@pytest.mark.parametrize(
    "text", ["", "26", "2026-13", "2026-Q5", "2026-02-30", "2026-1", "9999", "0000", "now"]
)
def test_invalid_periods_are_refused(text):
    with pytest.raises(InvalidInput, match="not a year, a quarter, a month or a day"):
        hb.Window.of("day", text)


@pytest.mark.parametrize(
    "ends",
    [
        ("day", date(2026, 1, 2), date(2026, 1, 2)),
        ("", date(2026, 1, 1), date(2026, 1, 2)),
        ("day", "2026-01-01", "2026-02-01"),
        ("day", datetime(2026, 1, 1), datetime(2026, 1, 2)),  # noqa: DTZ001 - it is refused
    ],
)
def test_invalid_windows_are_refused(ends):
    with pytest.raises(InvalidInput, match="not a column and two dates in order"):
        hb.Window(*ends)
    with pytest.raises(InvalidInput, match="window is of type"):
        hb.Unit("who", window=ends)


def test_each_window_has_its_own_budget_and_rows(ledger):
    november, december = open_data(ledger), open_data(ledger, DECEMBER)
    ask(november)
    with pytest.raises(BudgetExceeded, match=r"'visits 2026-11-01\.\.2026-12-01'"):
        ask(november, text=COUNT + " WHERE x > 0")
    ask(december)
    assert ledger.accounts() == ["visits 2026-11-01..2026-12-01", "visits 2026-12-01..2027-01-01"]
    assert ledger.verify().ok
    for data, window in ((november, NOVEMBER), (december, DECEMBER)):
        exact = data.exact(data.sql(COUNT, epsilon=1))["n"]
        assert exact == [sum(window.start <= day < window.end for day in ROWS["day"].dt.date)]


def test_label_states_cost_per_window_and_per_lifetime(ledger):
    first = ask(open_data(ledger), 0.5).label()
    assert first["unit"] == "who × window (day from 2026-11-01 to before 2026-12-01)"
    assert first["lifetime"] == "ε = 0.5, δ = 0 over 1 window so far"
    second = ask(open_data(ledger, DECEMBER), 0.75)
    assert second.label()["lifetime"] == "ε = 1.25, δ = 0 over 2 windows so far"
    assert "× window (day from 2026-12-01" in str(second.unit)
    again = ask(open_data(ledger), 0.5).label()
    assert (again["asked before"], again["lifetime"]) == (True, second.label()["lifetime"])


def test_label_without_windows_does_not_mention_them(ledger):
    assert "lifetime" not in ask(open_data(ledger, None)).label()


DAYS = st.one_of(st.none(), st.dates(date(2026, 10, 28), date(2026, 12, 4)), st.just(date(1, 1, 1)))


@settings(max_examples=12, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 4), DAYS, st.sampled_from([0.0, 1.0, 2.0])), min_size=1, max_size=12),
    st.lists(st.tuples(st.integers(1, 4), DAYS, st.just(2.0)), max_size=6),
    st.booleans(),
)
def test_rows_outside_of_a_window_change_nothing(rows, more, is_timestamp):
    outside = [row for row in more if row[1] is None or not NOVEMBER.start <= row[1] < NOVEMBER.end]
    answers = []
    for each in (rows, rows + outside, outside[::-1] + rows):
        frame = pd.DataFrame(each, columns=["who", "day", "x"]).astype({"day": "string"})
        kind = "timestamp" if is_timestamp else "date"
        data = hb.open(
            {"visits": frame},
            unit="who",
            window=NOVEMBER,
            types={"day": kind},
            rows_per_unit=2,
            bounds={"x": (0, 2)},
        )
        text = "SELECT COUNT(*) AS n, SUM(x) AS s, COUNT(DISTINCT who) AS u FROM visits"
        answers.append(data.exact(data.sql(text, epsilon=1)).to_dict())
        data.close()
    assert answers[0] == answers[1] == answers[2]


def test_window_includes_its_start_and_excludes_its_end(tmp_path):
    path = tmp_path / "visits.csv"
    moments = (
        "2026-10-31 23:59:59.999999",
        "2026-11-01 00:00:00",
        "2026-11-30 23:59:59.999999",
        "2026-12-01",
    )
    path.write_text(
        "who,day\n" + "\n".join(f"{i},{each}" for i, each in enumerate([*moments, "", "nonsense"]))
    )
    with hb.open(path, unit="who", types={"day": "timestamp"}, window=NOVEMBER, rows_per_unit=1) as data:
        assert data.exact(data.sql(COUNT, epsilon=1))["n"] == [2]


# No row is paid for twice


def test_windows_that_overlap_are_refused(ledger):
    open_data(ledger)
    for period in ("2026", "2026-Q4", "2026-11-15"):
        with pytest.raises(Refused, match="overlaps"):
            open_data(ledger, hb.Window.of("day", period))
    open_data(ledger, hb.Window.of("day", "2026-10"))


def test_account_has_windows_or_covers_all_time(ledger):
    open_data(ledger, None)
    with pytest.raises(Refused, match="'visits' is for all time"):
        open_data(ledger)
    with pytest.raises(Refused, match="does not know the rows of visits"):
        open_data(ledger, account="other")
    open_data(ledger, account="other", new_rows=True)
    with pytest.raises(Refused, match="'other' is divided into windows"):
        open_data(ledger, None, account="other")


def test_windows_share_one_unit_and_one_column(ledger):
    rows = ROWS.assign(paid=ROWS["day"], doctor=1)
    open_data(ledger, rows=rows)
    with pytest.raises(Refused, match="for another unit, or by another column"):
        open_data(ledger, hb.Window.of("paid", "2026-12"), rows=rows)
    with pytest.raises(Refused, match="for another unit, or by another column"):
        hb.open({"visits": rows}, unit="doctor", ledger=ledger, window=DECEMBER, budget=Budget(1))
    with pytest.raises(Refused, match="is for one who × window"):
        ledger.account("visits 2026-11-01..2026-12-01", hb.Unit("who"))


@pytest.mark.parametrize("column", ["x", "no"])
def test_table_without_the_window_column_is_refused(ledger, column):
    with pytest.raises(InvalidInput, match=r"not a date or timestamp|no column"):
        open_data(ledger, hb.Window.of(column, "2026-11"))
    with pytest.raises(InvalidInput, match="no column"):
        hb.open({"visits": ROWS, "stays": ROWS[["who", "x"]]}, unit="who", window=NOVEMBER, budget=Budget(1))
    assert ledger.accounts() == []


def test_a_public_table_is_the_same_in_every_window(ledger):
    towns = pd.DataFrame({"x": [1.0], "town": ["Kiel"]})
    data = open_data(ledger, public={"towns": towns})
    text = "SELECT COUNT(*) AS n FROM visits JOIN towns ON visits.x = towns.x"
    assert data.exact(data.sql(text, epsilon=1))["n"] == [60]


def test_an_analyst_has_a_grant_for_each_window(ledger):
    open_data(ledger).account.grant("ada", Budget(0.5))
    open_data(ledger, DECEMBER)
    ask(open_data(ledger, analyst="ada"), 0.5)
    with pytest.raises(Refused, match="ada has no budget"):
        ask(open_data(ledger, DECEMBER, analyst="ada"), 0.5)
    assert open_data(ledger, analyst="ada").account.lifetime_loss().reading.epsilon == Fraction(1, 2)


def test_lifetime_loss_divides_delta_the_same_way_before_and_after_a_second_window(ledger):
    """Otherwise answers could choose between two ways to divide δ, by opening a window or not."""
    budget = Budget(1, 1e-6)
    november = open_data(ledger, budget=budget).account
    first = PrivacyLoss.gaussian(Fraction(1, 10))
    november.charge("q", first, unit=november.unit)
    alone = november.lifetime_loss().reading
    assert alone == PrivacyOdometer(Fraction(1, 10**6)).charge(first).reading()
    # A later window with a larger δ changes nothing of what was read.
    december = open_data(ledger, DECEMBER, budget=Budget(1, 1e-3)).account
    assert december.lifetime_loss().reading == alone
    december.charge("q", PrivacyLoss.approximate(Fraction(1, 10), Fraction(1, 10**4)), unit=december.unit)
    assert december.lifetime_loss().reading.delta == Fraction(1, 10**6) + Fraction(1, 10**4)


# Declared once


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ROWS.to_csv("visits.csv", index=False)
    (tmp_path / "hubbub.toml").write_text(
        'ledger = "visits.ledger"\nwindow = "day"\nrows_per_unit = 3\n[budget]\nepsilon = 1\n'
        '[tables.visits]\npath = "visits.csv"\nunit = "who"\ntypes = { day = "date", x = "number" }\n'
    )
    return tmp_path


def test_window_must_be_given_if_windows_are_declared(folder):
    with pytest.raises(InvalidInput, match="no window is given"):
        hb.open("visits.csv")
    assert not (folder / "visits.ledger").exists()
    with hb.open("visits.csv", window="2026-11") as data:
        ask(data)
    with Ledger.open("visits.ledger") as ledger:
        assert ledger.accounts() == ["visits 2026-11-01..2026-12-01"]
    with pytest.raises(InvalidInput, match="column of the window is not known"):
        hb.open({"visits": ROWS}, unit="who", window="2026-11")


def test_from_the_shell(folder):
    words = ("visits.csv", COUNT, "--epsilon", "1")
    assert "no --window is given" in run("query", *words).stderr
    assert run("query", *words, "--window", "2026-11").code == 0
    assert (
        "does not fit"
        in run("query", *words[:1], COUNT + " WHERE x > 0", *words[2:], "--window", "2026-11").stderr
    )
    assert run("query", *words, "--window", "day=2026-12").code == 0
    assert run("plan", *words, "--window", "2026-10").code == 0
    (folder / "hubbub.toml").unlink()
    out = run("query", *words, "--unit", "who", "--window", "2026-11")
    assert "--window has no column" in out.stderr
    assert "write --window day=2026-11" in out.stderr


def test_account_of_a_window_pays_only_for_its_rows(ledger):
    account = open_data(ledger).account
    for unit in (None, hb.Unit("who"), replace(account.unit, window=DECEMBER)):
        with pytest.raises(Refused, match="the account protects"):
            account.charge("a count of whatever", PrivacyLoss.pure(0.5), unit=unit)
    assert account.spent().epsilon == 0
