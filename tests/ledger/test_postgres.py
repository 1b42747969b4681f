"""PostgreSQL's own: roles that raw SQL cannot get around, durability, and what is said where it fails."""

from fractions import Fraction
from pathlib import Path

import pytest

from hubbub.accounting import Budget, PrivacyLoss
from hubbub.errors import InvalidInput, LedgerFailed, Refused
from hubbub.ledger import Ledger
from internals import store_of
from ledger.storage import account

psycopg = pytest.importorskip("psycopg", reason="psycopg is not installed")

HALF = PrivacyLoss.pure(Fraction(1, 2))

# Roles


@pytest.fixture
def roles(database):
    """Roles of the database: a reader, one who may charge, and one who was never let in."""
    with database.open() as ledger:
        owner = account(ledger)
        for who in ("ada", "bob"):
            owner.grant(who, Budget(1))
            analyst = owner.for_analyst(who)
            analyst.record_release(
                analyst.record_charge(f"the question of {who}", PrivacyLoss.pure(Fraction(1, 10))).number,
                f"for {who}",
            )
        for name, role in (("rita", "reader"), ("sven", "spender")):
            database.attack(f"CREATE ROLE {name} LOGIN")
            store_of(ledger).grant_role(name, role)
            store_of(ledger).grant_role(name, role)  # twice is once
        with pytest.raises(LedgerFailed, match="no such role"):
            store_of(ledger).grant_role("nobody", "reader")
        database.attack("CREATE ROLE eve LOGIN")
    yield database
    for name in ("rita", "sven", "eve"):
        database.attack(f"DROP OWNED BY {name}; DROP ROLE {name}")


WRITES = [
    "INSERT INTO entries SELECT 99, account, kind, who, moment, body, previous, digest FROM entries LIMIT 1",
    "UPDATE entries SET analyst = 'eve'",
    "DELETE FROM entries",
    "TRUNCATE entries",
    "DELETE FROM filters",
    "UPDATE filters SET state = ''",
    "INSERT INTO filters VALUES ('visits', 'eve', '', '')",
    "UPDATE charges SET released = NULL",
    "DELETE FROM charges",
    "INSERT INTO views VALUES (4, 'bob'), (4, 'ada')",
    "UPDATE releases SET body = '0'",
    "DELETE FROM releases",
    "INSERT INTO releases VALUES (1, '0')",
    "UPDATE write_lock SET version = 3",
    "SELECT version FROM write_lock FOR UPDATE",
    "LOCK TABLE filters IN SHARE ROW EXCLUSIVE MODE",
    "ALTER TABLE entries DISABLE ROW LEVEL SECURITY",
    "UPDATE location SET location = ''",
    "CREATE POLICY all_mine ON entries USING (true)",
    "DROP TABLE entries",
    "CREATE TABLE hubbub.mine (x int)",
    "DROP SCHEMA hubbub CASCADE",
    "GRANT SELECT ON entries TO eve",
    "SET ROLE postgres",
    "SET SESSION AUTHORIZATION sven",
    "ALTER ROLE rita BYPASSRLS",
]


@pytest.mark.parametrize("user", ["rita", "eve"])
def test_reader_cannot_write_by_raw_sql(roles, user):
    tables = ("entries", "filters", "charges", "views", "releases", "write_lock")
    before = [sorted(map(str, roles.attack(f"TABLE {table}"))) for table in tables]
    went_through = []
    for text in WRITES:
        try:
            roles.attack(f"BEGIN; {text}; COMMIT", user=user)
            went_through.append(text)
        except psycopg.Error:
            pass
    # Granting what one does not have is a warning, and grants nothing.
    assert set(went_through) <= {"GRANT SELECT ON entries TO eve"}
    with pytest.raises(psycopg.Error):
        roles.attack("SELECT * FROM entries", user="eve")
    assert [sorted(map(str, roles.attack(f"TABLE {table}"))) for table in tables] == before
    with roles.open() as ledger:
        assert ledger.verify().ok


@pytest.mark.sweep(7)
@pytest.mark.parametrize(
    "text",
    [
        "UPDATE entries SET analyst = 'eve'",
        "DELETE FROM entries",
        "TRUNCATE entries",
        "DELETE FROM filters",
        "DELETE FROM charges",
        "UPDATE charges SET account = 'x'",
        "UPDATE location SET location = ''",
        "UPDATE releases SET body = '0'",
        "DELETE FROM releases",
        "DROP TABLE entries",
    ],
)
def test_spender_cannot_change_entries(roles, text):
    with pytest.raises(psycopg.Error):
        roles.attack(text, user="sven")


def test_spender_can_charge(roles):
    with Ledger.open(roles.server.address("sven")) as ledger:
        spender = ledger.account("visits").for_analyst("ada")
        spender.record_release(
            spender.record_charge("a sum", PrivacyLoss.pure(Fraction(1, 10)), key="k").number, "7"
        )
        ledger.account("visits").for_analyst("bob").record_charge(
            "a sum", PrivacyLoss.pure(Fraction(1, 10)), key="k"
        )
        assert ledger.verify().ok


def test_reader_sees_all_and_can_verify(roles):
    with Ledger.open(roles.server.address("rita")) as ledger:
        assert ledger.verify().ok
        assert ledger.account("visits").spent().epsilon == Fraction(1, 5)
        with pytest.raises(LedgerFailed, match="may not do this"):
            ledger.account("visits").charge("a count", PrivacyLoss.pure(Fraction(1, 10)))


def test_database_schema_has_no_functions(roles):
    text = "SELECT count(*) FROM pg_proc WHERE pronamespace = 'hubbub'::regnamespace"
    assert roles.attack(text) == [(0,)]


def test_copied_database_is_refused(database):
    for text in ("DROP DATABASE IF EXISTS other", "CREATE DATABASE other"):
        database.attack(text)
    other = database.server.address(database="other")
    with Ledger.open(other) as ledger:
        account(ledger)
    with psycopg.connect(other, autocommit=True) as raw:
        (lies,) = raw.execute("SELECT location FROM hubbub.location").fetchone()
        raw.execute("UPDATE hubbub.location SET location = replace(location, 'database', 'base')")
    with pytest.raises(Refused, match="a copy, or was moved"):
        Ledger.open(other)
    with Ledger.open_read_only(other) as ledger:
        assert "copy" in ledger.verify().problem
    assert Ledger.restore(other, spent_since={"visits": HALF}).ok
    with psycopg.connect(other) as raw:
        assert raw.execute("SELECT location FROM hubbub.location").fetchone() == (lies,)
    with Ledger.open(other) as ledger:
        assert ledger.account("visits").spent().epsilon == Fraction(1, 2)


def test_database_backup_restores_into_an_empty_database(database, tmp_path):
    with database.open() as ledger:
        account(ledger).charge("a count", HALF)
        ledger.backup(tmp_path / "b")
    with pytest.raises(Refused, match="there is a ledger at this location"):
        Ledger.restore(database.address, tmp_path / "b", spent_since={})
    database.close()
    assert Ledger.restore(database.address, tmp_path / "b", spent_since={}).ok
    with database.open() as ledger:
        assert ledger.account("visits").spent().epsilon == Fraction(1, 2)


def test_role_without_rights_sees_nothing(roles):
    with pytest.raises(LedgerFailed):
        Ledger.open(roles.server.address("eve"))


def test_only_known_roles_are_granted(database):
    with database.open() as ledger, pytest.raises(InvalidInput, match="no such role"):
        store_of(ledger).grant_role("ada", "king")


def test_error_of_a_missing_database_hides_its_address():
    with pytest.raises(LedgerFailed) as caught:
        Ledger.open("postgresql://someone:secret@127.0.0.1:1/nowhere")
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(("version", "refusal"), [(1, "an earlier version"), (4, "a later version")])
def test_ledger_of_another_format_version_is_refused(database, version, refusal):
    database.open()
    database.attack(f"UPDATE write_lock SET version = {version}")
    with pytest.raises(InvalidInput, match=refusal):
        database.open()


def test_every_commit_is_synchronous(database):
    database.attack("ALTER DATABASE postgres SET synchronous_commit = off")
    try:
        store = store_of(database.open())
        assert store.write(lambda rows: rows.execute("SHOW synchronous_commit")) == [("on",)]
    finally:
        database.attack("ALTER DATABASE postgres RESET synchronous_commit")


TABLES = ("entries", "filters", "charges", "views", "releases", "location")


def test_dump_restored_over_the_ledger_is_refused(database):
    with database.open() as ledger:
        account(ledger).charge("a count", HALF)
    for table in TABLES:
        database.attack(f"DROP TABLE IF EXISTS public.{table}; CREATE TABLE public.{table} AS TABLE {table}")
    with database.open() as ledger:
        account(ledger).charge("another", HALF)
        for table in TABLES:
            database.attack(f"TRUNCATE {table}; INSERT INTO {table} TABLE public.{table}")
            database.attack(f"DROP TABLE public.{table}")
        with pytest.raises(Refused, match="replaced by an older state"):
            ledger.account("visits").charge("a third", HALF)
    with pytest.raises(Refused, match="replaced by an older state"):
        database.open()
    with Ledger.open_read_only(database.address) as ledger:
        assert "an older state" in ledger.verify().problem
    with pytest.raises(Refused, match="something was spent since"):
        Ledger.restore(database.address, spent_since={})
    assert Ledger.restore(database.address, spent_since={"visits": HALF}).ok
    with database.open() as ledger:
        assert ledger.account("visits").spent().epsilon == 1


def test_dropped_database_ledger_gets_no_fresh_budget(database, tmp_path):
    with database.open():
        pass
    database.attack("DROP SCHEMA hubbub CASCADE")  # nothing was in it
    with database.open() as ledger:
        account(ledger).charge("a count", HALF)
        ledger.backup(tmp_path / "b")
        database.attack("DROP SCHEMA hubbub CASCADE")
        with pytest.raises(LedgerFailed):
            account(ledger)
    with pytest.raises(Refused, match=r"its schema was dropped.*restore"):
        database.open()
    assert database.attack("SELECT to_regclass('hubbub.write_lock')") == [(None,)]
    assert Ledger.restore(database.address, tmp_path / "b", spent_since={}).ok
    with database.open() as ledger:
        assert ledger.account("visits").spent().epsilon == Fraction(1, 2)


def test_owner_can_discard_a_dropped_ledger(database):
    with database.open() as ledger:
        account(ledger)
    database.attack("DROP SCHEMA hubbub CASCADE")
    with pytest.raises(Refused, match="dropped") as refused:
        database.open()
    Path(refused.value.fix.rpartition("remove ")[2]).unlink()
    with database.open() as ledger:
        assert account(ledger).spent().epsilon == 0
