"""Which rows a question is about: answers are given again, and budgets kept, by where rows really are."""

import os
from tempfile import TemporaryDirectory

import duckdb
import hypothesis
import pandas as pd
import pyarrow.dataset
import pyarrow.fs
import pytest
from hypothesis import strategies as st

import hubbub as hb
from hubbub.accounting import Budget
from hubbub.engines import data_identity
from hubbub.engines.data_identity import DataIdentity
from hubbub.errors import InvalidInput, Refused
from hubbub.ledger import Ledger
from hubbub.ledger.entries import Entries
from internals import store_of

COUNT = "SELECT COUNT(*) AS n FROM t"


def open_data(folder, data, ledger="l", **source):
    source = {
        "table": "t",
        "unit": "p",
        "budget": Budget(100, allow_large_epsilon=True),
        "rows_per_unit": 1,
        **source,
    }
    return hb.open(data, ledger=folder / ledger, **source)


def ask(data, epsilon=1, text=COUNT):
    return data.run(data.sql(text, epsilon=epsilon)).value.facts


def frame(count):
    return pd.DataFrame({"p": range(count)})


def filled(connection, count, name="t"):
    connection.execute(f"CREATE TABLE {name} AS SELECT i AS p FROM range({count}) r(i)")
    return connection


def test_rows_without_identity_are_charged_at_each_opening(tmp_path):
    for rows in (frame(9), frame(900), filled(duckdb.connect(), 9), filled(duckdb.connect(), 900)):
        with open_data(tmp_path, rows) as data:
            assert ask(data)["asked before"] is False
            assert ask(data)["asked before"] is True


def test_rows_without_identity_are_identified_by_the_owner(tmp_path):
    with open_data(tmp_path, frame(9), version="1") as data:
        ask(data)
    with open_data(tmp_path, frame(9), version="1") as data:
        assert ask(data)["asked before"] is True


def test_database_table_has_one_identity_however_it_is_opened(tmp_path, monkeypatch):
    path = tmp_path / "one.duckdb"
    filled(duckdb.connect(str(path)), 9).close()
    (tmp_path / "link.duckdb").symlink_to(path)
    with open_data(tmp_path, path) as data:
        ask(data)
    monkeypatch.chdir("/")
    for source in (tmp_path / "link.duckdb", duckdb.connect(str(path), read_only=True)):
        with open_data(tmp_path, source) as data:
            assert ask(data)["asked before"] is True


def test_same_table_name_in_two_schemas_is_two_identities(tmp_path):
    connection = duckdb.connect(str(tmp_path / "one.duckdb"))
    for schema in ("a", "b"):
        connection.execute(f"CREATE SCHEMA {schema}")
        filled(connection, 9, f"{schema}.t")
        with open_data(tmp_path, connection, table=f"{schema}.t") as data:
            assert ask(data)["asked before"] is False
    with open_data(tmp_path, connection, table="a.t") as data:
        assert ask(data)["asked before"] is True


def test_view_has_no_identity_and_is_refused(tmp_path):
    connection = filled(duckdb.connect(str(tmp_path / "one.duckdb")), 9, "s")
    connection.execute("CREATE VIEW t AS SELECT * FROM s")
    with pytest.raises(hb.InvalidInput, match="not a table of the database"):
        open_data(tmp_path, connection)


def test_content_of_a_public_table_is_part_of_the_question(tmp_path):
    text = "SELECT COUNT(*) AS n FROM t JOIN places ON t.p = places.p WHERE places.keep = 1"
    for keep, is_swapped in (([0, 1], False), ([1, 0], False), ([0, 1], True)):
        public = {"places": pd.DataFrame({"p": [0, 1], "keep": keep})}
        with open_data(tmp_path, frame(9), version="1", public=public) as data:
            assert ask(data, text=text)["asked before"] is is_swapped


def test_rows_have_one_budget_under_every_name(tmp_path):
    path = tmp_path / "t.csv"
    frame(9).to_csv(path, index=False)
    (tmp_path / "other.csv").symlink_to(path)
    open_data(tmp_path, path).close()
    open_data(tmp_path, path).close()
    for data, source in (
        (path, {"table": "s"}),
        (path, {"account": "s"}),
        (tmp_path / "other.csv", {"table": "s"}),
    ):
        for unit in ("p", "P"):
            with pytest.raises(Refused, match="paid for by the account 't'"):
                open_data(tmp_path, data, unit=unit, **source)
    open_data(tmp_path, path, table="s", account="t").close()
    with pytest.raises(Refused, match="by the account 't', for another unit"):
        open_data(tmp_path, path, account="rows", unit=hb.Unit.row())
    for override in (True, False):  # once it is said
        open_data(tmp_path, path, account="rows", unit=hb.Unit.row(), override=override).close()
    with Ledger.open(tmp_path / "l") as ledger:
        assert ledger.verify().ok
        assert [entry.kind for entry in ledger.account("t").entries()] == ["open", "claim"]
        assert [entry.body.get("override") for entry in ledger.account("rows").entries()] == [None, True]


def test_two_budgets_for_one_identity_are_detected(tmp_path):
    with Ledger.open(tmp_path / "l") as ledger:
        for name in "ab":
            account = ledger.account(name, hb.Unit("p"), Budget(1))
            account.claim_data({"t": DataIdentity(frozenset({("file", f"/{name}")}))})
        assert ledger.verify().ok
        first = next(entry for entry in ledger.entries() if entry.kind == "claim")
        store_of(account).write(lambda rows: Entries(rows).append("b", "claim", "", first.body))
        assert "claims rows" in ledger.verify().problem


def bodies(folder, account):
    with Ledger.open(folder / "l") as ledger:
        assert ledger.verify().ok
        return [entry.body for entry in ledger.account(account).entries() if entry.kind == "claim"]


def csv(folder, name, count=9):
    frame(count).to_csv(folder / name, index=False)
    return folder / name


def test_unknown_rows_must_be_confirmed_once(tmp_path):
    open_data(tmp_path, csv(tmp_path, "a.csv"), table="a").close()
    other = csv(tmp_path, "b.csv")
    with pytest.raises(Refused, match="does not know the rows of b") as error:
        open_data(tmp_path, other, table="b")
    assert "one of a" in error.value.fix
    assert "new_rows=True" in error.value.fix
    with Ledger.open(tmp_path / "l") as ledger:
        assert ledger.accounts() == ["a"]
    for word in (True, False):
        open_data(tmp_path, other, table="b", new_rows=word).close()
    assert [body.get("new_rows") for body in bodies(tmp_path, "a") + bodies(tmp_path, "b")] == [None, True]


def test_rows_of_the_same_account_need_no_confirmation(tmp_path):
    """It pays for all of them, whatever they are."""
    for name in ("a.csv", "b.csv"):
        open_data(tmp_path, csv(tmp_path, name), table="t").close()
    open_data(tmp_path, frame(9)).close()
    assert len(bodies(tmp_path, "t")) == 2


def test_account_opened_alone_claims_its_first_rows(tmp_path):
    with Ledger.open(tmp_path / "l") as ledger:
        for name in "ab":
            ledger.account(name, hb.Unit("p"), Budget(100, allow_large_epsilon=True))
    for name in ("a", "b"):
        open_data(tmp_path, csv(tmp_path, f"{name}.csv"), table=name).close()
    with pytest.raises(Refused, match="the account 'a' does not know the rows of a") as error:
        open_data(tmp_path, csv(tmp_path, "c.csv"), table="a")
    assert "there are others: b" in error.value.what
    assert "account=" not in error.value.fix  # it is passed already
    assert "were moved" in error.value.fix
    with pytest.raises(Refused, match="does not know the rows of a"):
        open_data(tmp_path, frame(9), table="a")


def test_rows_in_memory_are_known_by_their_account(tmp_path):
    open_data(tmp_path, csv(tmp_path, "a.csv"), table="a").close()
    with pytest.raises(Refused, match="does not know the rows of t"):
        open_data(tmp_path, frame(9))
    for word in (True, False):
        open_data(tmp_path, frame(9), new_rows=word).close()
    assert bodies(tmp_path, "t") == [{"dataset": "t", "names": [], "numbers": [], "new_rows": True}]


@pytest.mark.parametrize("tells", [True, False])
def test_new_version_at_the_same_path_is_the_same_data(tmp_path, monkeypatch, tells):
    if not tells:
        monkeypatch.setattr(data_identity, "read_birth_time", lambda *_: None)
    paths = {name: csv(tmp_path, f"{name}.csv") for name in "ab"}
    for day in range(5):
        for name, path in paths.items():
            # Over and over the disk gives the number of an old file to a new one.
            csv(tmp_path, "new.csv", 9 + day).rename(path)
            open_data(tmp_path, path, table=name, new_rows=day == 0).close()


@pytest.mark.parametrize("tells", [True, False])
def test_renamed_file_is_known_or_must_be_confirmed(tmp_path, monkeypatch, tells):
    if not tells:
        monkeypatch.setattr(data_identity, "read_birth_time", lambda *_: None)
    path = csv(tmp_path, "a.csv")
    if tells and data_identity.read_birth_time(path, path.stat()) is None:
        monkeypatch.setattr(data_identity, "read_birth_time", lambda *_: "then")
    open_data(tmp_path, path, table="a").close()
    path.rename(tmp_path / "b.csv")
    with pytest.raises(Refused, match="paid for by the account 'a'" if tells else "does not know"):
        open_data(tmp_path, tmp_path / "b.csv", table="b")
    open_data(tmp_path, tmp_path / "b.csv", table="a").close()


@pytest.mark.parametrize("tells", [True, False])
def test_hard_link_is_the_same_file_with_or_without_birth_time(tmp_path, monkeypatch, tells):
    if not tells:
        monkeypatch.setattr(data_identity, "read_birth_time", lambda *_: None)
    path = csv(tmp_path, "a.csv")
    open_data(tmp_path, path, table="a").close()
    os.link(path, tmp_path / "b.csv")
    with pytest.raises(Refused, match="paid for by the account 'a'"):
        open_data(tmp_path, tmp_path / "b.csv", table="b", new_rows=True)


def test_growing_file_pattern_is_the_same_data(tmp_path):
    open_data(tmp_path, csv(tmp_path, "other.csv"), table="o").close()
    csv(tmp_path, "day_1.csv")
    open_data(tmp_path, tmp_path / "day_*.csv", new_rows=True).close()
    csv(tmp_path, "day_2.csv")
    open_data(tmp_path, tmp_path / "day_*.csv").close()
    open_data(tmp_path, tmp_path / "day_2.csv").close()
    for data in ("day_2.csv", "day_?.csv", "*.csv"):
        with pytest.raises(Refused, match="paid for by the account"):
            open_data(tmp_path, tmp_path / data, account="x", new_rows=True)


def test_database_file_with_two_names_is_one(tmp_path):
    filled(duckdb.connect(str(tmp_path / "one.duckdb")), 9).close()
    open_data(tmp_path, tmp_path / "one.duckdb").close()
    os.link(tmp_path / "one.duckdb", tmp_path / "two.duckdb")
    with pytest.raises(Refused, match="paid for by the account 't'"):
        open_data(tmp_path, tmp_path / "two.duckdb", account="b", new_rows=True)


def test_owner_confirmations_need_a_ledger_and_no_analyst(tmp_path):
    path = csv(tmp_path, "a.csv")
    for word in ("new_rows", "override"):
        with pytest.raises(InvalidInput, match=f"{word} is given without a ledger"):
            hb.open(path, unit="p", **{word: True})
        with pytest.raises(Refused, match=f"{word} is passed on behalf of an analyst"):
            open_data(tmp_path, path, analyst="ada", **{word: True})


NAMES = st.frozensets(st.sampled_from([("file", f"/{letter}") for letter in "abcd"]), max_size=3)
NUMBERS = st.frozensets(st.sampled_from([("number", "1", digit) for digit in "123"]), max_size=2)
OPENINGS = st.tuples(
    st.sampled_from("xyz"), st.sampled_from(["p", "P", None]), NAMES, NUMBERS, NUMBERS, st.booleans()
)


@hypothesis.settings(max_examples=20)
@hypothesis.given(st.lists(OPENINGS, max_size=8))
def test_no_table_is_charged_to_two_accounts(cases):
    payers = {}
    with TemporaryDirectory() as folder, Ledger.open(f"{folder}/l") as ledger:
        for account, unit, names, numbers, certain, word in cases:
            rows = DataIdentity(names, numbers | certain, certain)
            who = hb.Unit.row() if unit is None else hb.Unit(unit)
            try:
                ledger.account(account, who, Budget(1), data={"t": rows}, new_rows=word)
            except Refused:
                continue
            for name in names:
                # Without an override not even for another unit.
                assert payers.setdefault(name, account) == account
        assert ledger.verify().ok


PARTED = """
CREATE TABLE parted (p int, day date) PARTITION BY RANGE (day);
CREATE TABLE parted_1 PARTITION OF parted FOR VALUES FROM ('2026-01-01') TO ('2026-02-01');
CREATE TABLE parted_2 PARTITION OF parted FOR VALUES FROM ('2026-02-01') TO ('2026-03-01');
CREATE TABLE older (p int); CREATE TABLE newer (q int) INHERITS (older);
CREATE TABLE alone (p int); CREATE MATERIALIZED VIEW seen AS SELECT * FROM alone;
INSERT INTO parted VALUES (1, '2026-01-02'); INSERT INTO newer VALUES (1, 2); INSERT INTO alone VALUES (1);
"""


@pytest.fixture
def parted(server):
    import psycopg

    with psycopg.connect(server.address(), autocommit=True) as connection:
        connection.execute("DROP SCHEMA IF EXISTS places CASCADE; CREATE SCHEMA places")
        connection.execute("SET search_path = places")
        connection.execute(PARTED)
        yield server.address(), connection
        connection.execute("DROP SCHEMA places CASCADE")


@pytest.mark.sweep(3)
@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("parted", "parted_1"),
        ("parted_1", "parted"),
        ("parted_1", "parted_2"),
        ("older", "newer"),
        ("newer", "older"),
    ],
)
def test_partition_belongs_to_its_parent_table(tmp_path, parted, first, second):
    address, _ = parted
    open_data(tmp_path, address, table=f"places.{first}", account="a").close()
    with pytest.raises(Refused, match="paid for by the account 'a'"):
        open_data(tmp_path, address, table=f"places.{second}", account="b", new_rows=True)
    open_data(tmp_path, address, table=f"places.{second}", account="a").close()
    with pytest.raises(Refused, match="is passed as public"):
        open_data(tmp_path, address, table=f"places.{first}", account="a", public={"q": f"places.{second}"})


def test_renamed_or_attached_table_keeps_its_identity(tmp_path, parted):
    address, connection = parted
    open_data(tmp_path, address, table="places.alone", account="a").close()
    with pytest.raises(Refused, match="does not know the rows of seen"):
        open_data(tmp_path, address, table="places.seen", account="b")
    connection.execute("ALTER TABLE alone RENAME TO other")
    with pytest.raises(Refused, match="paid for by the account 'a'"):
        open_data(tmp_path, address, table="places.other", account="b", new_rows=True)
    connection.execute("CREATE TABLE above (p int); ALTER TABLE other INHERIT above")
    with pytest.raises(Refused, match="paid for by the account 'a'"):
        open_data(tmp_path, address, table="places.above", account="b", new_rows=True)


def test_several_tables_need_a_named_account(tmp_path):
    rows = {"t": frame(9), "s": frame(9)}
    with pytest.raises(InvalidInput, match="no account is named"):
        open_data(tmp_path, rows, table=None)
    open_data(tmp_path, rows, table=None, account="t").close()


def test_analyst_cannot_declare_a_version(tmp_path):
    open_data(tmp_path, frame(9), version="1").account.grant("ada", Budget(1))
    open_data(tmp_path, frame(9), version="1", analyst="ada").close()
    with pytest.raises(Refused, match="not the latest that was declared"):
        open_data(tmp_path, frame(9), version="2", analyst="ada")
    with Ledger.open(tmp_path / "l") as ledger:
        assert ledger.account("t").latest_version("t") == "1"


def test_arrow_dataset_is_identified_by_its_files(tmp_path):
    for name in ("a.csv", "b.csv"):
        csv(tmp_path, name)
    local = pyarrow.fs.SubTreeFileSystem(str(tmp_path), pyarrow.fs.LocalFileSystem())
    one = pyarrow.dataset.dataset("a.csv", format="csv", filesystem=local)
    both = pyarrow.dataset.dataset([one, pyarrow.dataset.dataset(tmp_path / "b.csv", format="csv")])
    known = [data_identity.identify_files([tmp_path / name]) for name in ("a.csv", "b.csv")]
    identity = data_identity.identify_files(data_identity.list_files(one))
    assert [each.overlaps(identity) for each in known] == [
        True,
        False,
    ]
    assert [
        each.overlaps(data_identity.identify_files(data_identity.list_files(both))) for each in known
    ] == [
        True,
        True,
    ]
