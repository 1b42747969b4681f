"""Which rows a question is about: answers are given again, and budgets kept, by where rows really are."""

import duckdb
import pandas as pd
import pytest

import hubbub as hb
from hubbub.errors import InvalidInput, Refused
from hubbub.ledger import Ledger
from hubbub.ledger.book import Book
from hubbub.loss import Budget

COUNT = "SELECT COUNT(*) AS n FROM t"


def opened(folder, data, ledger="l", **given):
    given = {
        "table": "t",
        "unit": "p",
        "budget": Budget(100, allow_large_epsilon=True),
        "rows_per_unit": 1,
        **given,
    }
    return hb.open(data, ledger=folder / ledger, **given)


def ask(data, epsilon=1, text=COUNT):
    return data.run(data.sql(text, epsilon=epsilon)).value.facts


def frame(count):
    return pd.DataFrame({"p": range(count)})


def filled(connection, count, name="t"):
    connection.execute(f"CREATE TABLE {name} AS SELECT i AS p FROM range({count}) r(i)")
    return connection


def test_rows_without_a_place_are_asked_anew_at_each_opening(tmp_path):
    for rows in (frame(9), frame(900), filled(duckdb.connect(), 9), filled(duckdb.connect(), 900)):
        with opened(tmp_path, rows) as data:
            assert ask(data)["asked before"] is False
            assert ask(data)["asked before"] is True
    with opened(tmp_path, frame(9)) as data:
        assert "combined with lines" not in ask(data, 2)


def test_rows_without_a_place_are_known_by_the_owner_s_word(tmp_path):
    with opened(tmp_path, frame(9), version="1") as data:
        ask(data)
    with opened(tmp_path, frame(9), version="1") as data:
        assert ask(data)["asked before"] is True


def test_a_table_in_a_database_file_is_one_place_however_it_is_opened(tmp_path, monkeypatch):
    path = tmp_path / "one.duckdb"
    filled(duckdb.connect(str(path)), 9).close()
    (tmp_path / "link.duckdb").symlink_to(path)
    with opened(tmp_path, path) as data:
        ask(data)
    monkeypatch.chdir("/")
    for given in (tmp_path / "link.duckdb", duckdb.connect(str(path), read_only=True)):
        with opened(tmp_path, given) as data:
            assert ask(data)["asked before"] is True


def test_tables_of_one_name_in_two_schemas_are_two(tmp_path):
    connection = duckdb.connect(str(tmp_path / "one.duckdb"))
    for schema in ("a", "b"):
        connection.execute(f"CREATE SCHEMA {schema}")
        filled(connection, 9, f"{schema}.t")
        with opened(tmp_path, connection, table=f"{schema}.t") as data:
            assert ask(data)["asked before"] is False
    with opened(tmp_path, connection, table="a.t") as data:
        assert ask(data)["asked before"] is True


def test_a_view_has_no_place(tmp_path):
    connection = filled(duckdb.connect(str(tmp_path / "one.duckdb")), 9, "s")
    connection.execute("CREATE VIEW t AS SELECT * FROM s")
    for _ in range(2):
        with opened(tmp_path, connection) as data:
            assert ask(data)["asked before"] is False


def test_what_a_public_table_holds_is_part_of_the_question(tmp_path):
    text = "SELECT COUNT(*) AS n FROM t JOIN places ON t.p = places.p WHERE places.keep = 1"
    for keep, asked in (([0, 1], False), ([1, 0], False), ([0, 1], True)):
        public = {"places": pd.DataFrame({"p": [0, 1], "keep": keep})}
        with opened(tmp_path, frame(9), version="1", public=public) as data:
            assert ask(data, text=text)["asked before"] is asked


def test_rows_have_one_budget_by_whatever_name_they_are_opened(tmp_path):
    path = tmp_path / "t.csv"
    frame(9).to_csv(path, index=False)
    (tmp_path / "other.csv").symlink_to(path)
    opened(tmp_path, path).close()
    opened(tmp_path, path).close()
    for data, given in (
        (path, {"table": "s"}),
        (path, {"account": "s"}),
        (tmp_path / "other.csv", {"table": "s"}),
    ):
        for unit in ("p", "P"):
            with pytest.raises(Refused, match="paid for by the account 't'"):
                opened(tmp_path, data, unit=unit, **given)
    opened(tmp_path, path, table="s", account="t").close()
    opened(tmp_path, path, account="rows", unit=hb.Unit.row()).close()  # a budget for somebody else
    with Ledger.open(tmp_path / "l") as ledger:
        assert ledger.verify().is_whole
        assert [entry.kind for entry in ledger.account("t").entries()] == ["open", "rows"]


def test_two_budgets_for_one_place_are_found(tmp_path):
    with Ledger.open(tmp_path / "l") as ledger:
        for name in "ab":
            account = ledger.account(name, hb.Unit("p"), Budget(1))
            account.claim({"t": ["file", f"/{name}"]})
        assert ledger.verify().is_whole
        first = next(entry for entry in ledger.entries() if entry.kind == "rows")
        account._store.write(lambda rows: Book(rows).append("b", "rows", "", first.body))
        assert "claims rows" in ledger.verify().problem


def test_several_tables_need_an_account_that_is_named(tmp_path):
    rows = {"t": frame(9), "s": frame(9)}
    with pytest.raises(InvalidInput, match="no account is named"):
        opened(tmp_path, rows, table=None)
    opened(tmp_path, rows, table=None, account="t").close()


def test_an_analyst_declares_no_version(tmp_path):
    opened(tmp_path, frame(9), version="1").account.grant("ada", Budget(1))
    opened(tmp_path, frame(9), version="1", analyst="ada").close()
    with pytest.raises(Refused, match="not the one that was last declared"):
        opened(tmp_path, frame(9), version="2", analyst="ada")
    with Ledger.open(tmp_path / "l") as ledger:
        assert ledger.account("t").latest_version("t") == "1"
