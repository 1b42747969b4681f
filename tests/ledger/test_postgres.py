"""PostgreSQL's own: roles that raw SQL cannot get around, and named interleavings of two who spend."""

import threading
from fractions import Fraction

import pytest

from hubbub.errors import BudgetExceeded, InvalidInput, LedgerFailed, Refused
from hubbub.ledger import Ledger
from hubbub.loss import Budget, Loss
from ledger.places import PATIENT, account

psycopg = pytest.importorskip("psycopg", reason="psycopg is not installed")
from hubbub.ledger.postgres import Postgres  # noqa: E402 - it needs psycopg

HALF, MOST = Loss.pure(Fraction(1, 2)), Loss.pure(Fraction(7, 10))


class Paused(Postgres):
    """A store whose next writer stops with all its work done, just before it commits, until told to go on."""

    def __init__(self, address):
        super().__init__(address)
        self.is_there, self.may_go, self.is_armed, self.fails = (
            threading.Event(),
            threading.Event(),
            False,
            False,
        )

    def write(self, work):
        def stopping(rows):
            out = work(rows)
            if self.is_armed:
                self.is_armed = False
                self.is_there.set()
                assert self.may_go.wait(60)
                if self.fails:
                    raise KeyboardInterrupt
            return out

        return super().write(stopping)


class Call(threading.Thread):
    """A call in a thread of its own, with what it gave or raised."""

    def __init__(self, call):
        super().__init__(daemon=True)
        self.call, self.gave, self.raised = call, None, None
        self.start()

    def run(self):
        try:
            self.gave = self.call()
        except BaseException as problem:
            self.raised = problem

    def ended(self):
        self.join(60)
        assert not self.is_alive()
        return type(self.raised) if self.raised is not None else None


class Two:
    """Two who share a ledger: the first stops before its commit, the second meets it there."""

    def __init__(self, database):
        self.database = database
        self.store = Paused(database.address)
        self.one, self.two = account(Ledger(self.store)), account(database.open())

    def overlap(self, first, second, *, fails=False, waits=True):
        self.store.is_armed, self.store.fails = True, fails
        calls = [Call(first)]
        assert self.store.is_there.wait(60)
        calls.append(Call(second))
        if waits:
            while not self.database.attack("SELECT 1 FROM pg_locks WHERE NOT granted"):
                assert calls[1].is_alive()
        else:
            calls[1].ended()
        self.store.may_go.set()
        return [call.ended() for call in calls], [call.gave for call in calls]

    def check(self, spent):
        ledger = self.database.open()
        assert ledger.account("visits").spent.epsilon == spent
        assert ledger.verify().is_whole


@pytest.fixture
def two(database):
    made = Two(database)
    yield made
    made.store.close()


def test_charge_charge_both_fit(two):
    ends, _ = two.overlap(lambda: two.one.charge("a", HALF), lambda: two.two.charge("b", HALF))
    assert ends == [None, None]
    two.check(1)


def test_charge_charge_one_fits(two):
    ends, _ = two.overlap(lambda: two.one.charge("a", MOST), lambda: two.two.charge("b", MOST))
    assert ends == [None, BudgetExceeded]
    two.check(Fraction(7, 10))


def test_charge_undone_charge_fits(two):
    ends, _ = two.overlap(lambda: two.one.charge("a", MOST), lambda: two.two.charge("b", MOST), fails=True)
    assert ends == [KeyboardInterrupt, None]
    two.check(Fraction(7, 10))


def test_same_key_same_key(two):
    _, gave = two.overlap(
        lambda: two.one.begin("a", HALF, key="k"), lambda: two.two.begin("a", HALF, key="k")
    )
    assert [charge.is_new for charge in gave] == [True, False]
    assert gave[0].number == gave[1].number
    two.check(Fraction(1, 2))


def test_same_key_undone_same_key(two):
    _, gave = two.overlap(
        lambda: two.one.begin("a", HALF, key="k"), lambda: two.two.begin("a", HALF, key="k"), fails=True
    )
    assert gave[1].is_new
    two.check(Fraction(1, 2))


def test_grant_charge(two):
    ada = two.two.for_analyst("ada")
    ends, _ = two.overlap(lambda: two.one.grant("ada", Budget(1)), lambda: ada.charge("a", HALF))
    assert ends == [None, None]
    two.check(Fraction(1, 2))


def test_charge_grant(two):
    two.one.grant("ada", Budget(Fraction(1, 2)))
    ada = two.one.for_analyst("ada")
    ends, _ = two.overlap(lambda: ada.charge("a", HALF), lambda: two.two.grant("ada", Budget(Fraction(1, 4))))
    assert ends == [None, InvalidInput]  # what she spent a moment ago stays spent
    two.check(Fraction(1, 2))


def test_charge_close(two):
    ends, _ = two.overlap(lambda: two.one.charge("a", HALF), two.two.close)
    assert ends == [None, None]
    two.check(Fraction(1, 2))


def test_close_charge(two):
    ends, _ = two.overlap(two.one.close, lambda: two.two.charge("a", HALF))
    assert ends == [None, Refused]
    two.check(0)


def test_keep_keep(two):
    number = two.one.begin("a", HALF).number
    _, gave = two.overlap(lambda: two.one.keep(number, "42"), lambda: two.two.keep(number, "43"))
    assert gave == ["42", "42"]
    two.check(Fraction(1, 2))


def test_keep_undone_keep(two):
    number = two.one.begin("a", HALF).number
    _, gave = two.overlap(lambda: two.one.keep(number, "42"), lambda: two.two.keep(number, "43"), fails=True)
    assert gave == [None, "43"]
    two.check(Fraction(1, 2))


def test_open_open(two):
    ledgers = [Ledger(two.store), two.database.open()]
    ends, _ = two.overlap(
        lambda: ledgers[0].account("new", PATIENT, Budget(1)),
        lambda: ledgers[1].account("new", PATIENT, Budget(1)),
    )
    assert ends == [None, None]
    assert [entry.kind for entry in ledgers[1].entries() if entry.account == "new"] == ["open"]


def test_open_open_with_another_budget(two):
    ledgers = [Ledger(two.store), two.database.open()]
    ends, _ = two.overlap(
        lambda: ledgers[0].account("new", PATIENT, Budget(1)),
        lambda: ledgers[1].account("new", PATIENT, Budget(9)),
    )
    assert ends == [None, Refused]


def test_charge_see(two):
    for who in ("ada", "bob"):
        two.one.grant(who, Budget(1))
    ada, bob = two.one.for_analyst("ada"), two.two.for_analyst("bob")
    ends, gave = two.overlap(lambda: ada.begin("a", HALF, key="k"), lambda: bob.begin("a", HALF, key="k"))
    assert ends == [None, None]
    assert [charge.is_new for charge in gave] == [True, False]
    assert bob.spent.epsilon == Fraction(1, 2)
    two.check(Fraction(1, 2))


def test_charge_look(two):
    """Who looks does not wait, and sees nothing that is not committed."""
    _, gave = two.overlap(lambda: two.one.charge("a", HALF), lambda: two.two.spent.epsilon, waits=False)
    assert gave[1] == 0
    two.check(Fraction(1, 2))


def test_charge_verify(two):
    ledger = two.database.open()
    _, gave = two.overlap(lambda: two.one.charge("a", HALF), ledger.verify, waits=False)
    assert (gave[1].is_whole, gave[1].entries) == (True, 1)
    two.check(Fraction(1, 2))


def test_a_serialisation_failure_and_a_deadlock_are_tried_again_and_charged_once(two, monkeypatch):
    failures = ["serialization_failure", "deadlock_detected"]
    write = Postgres.write

    def unlucky(store, work):
        def trying(rows):
            out = work(rows)  # all is done, and then undone
            if failures:
                rows.run(f"DO $$ BEGIN RAISE EXCEPTION USING ERRCODE = '{failures.pop()}'; END $$")
            return out

        return write(store, trying)

    monkeypatch.setattr(Postgres, "write", unlucky)
    two.two.charge("a", HALF)
    assert not failures
    two.check(Fraction(1, 2))


def test_one_who_always_fails_is_not_tried_for_ever(two):
    text = "DO $$ BEGIN RAISE EXCEPTION USING ERRCODE = 'serialization_failure'; END $$"
    with pytest.raises(LedgerFailed, match="in use by others"):
        two.two._store.write(lambda rows: rows.run(text))
    two.check(0)


def test_a_connection_that_is_cut_charges_nothing(two):
    def cut():
        two.database.attack(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE state = 'idle in transaction'"
        )

    ends, _ = two.overlap(lambda: two.one.charge("a", HALF), cut, waits=False)
    assert ends == [LedgerFailed, None]
    two.check(0)
    two.one.charge("a", HALF)  # with a new connection
    two.check(Fraction(1, 2))


def test_nobody_waits_for_ever(two):
    impatient = account(Ledger(Postgres(two.database.address, wait="1ms")))
    ends, _ = two.overlap(lambda: two.one.charge("a", HALF), lambda: impatient.charge("b", HALF), waits=False)
    assert ends == [None, LedgerFailed]
    two.check(Fraction(1, 2))
    impatient._store.close()


# Roles


@pytest.fixture
def roles(database):
    """Roles of the database: two analysts, a reader, one who may charge, and one who was never let in."""
    with database.open() as ledger:
        owner = account(ledger)
        for who in ("ada", "bob"):
            owner.grant(who, Budget(1))
            analyst = owner.for_analyst(who)
            analyst.keep(
                analyst.begin(f"the question of {who}", Loss.pure(Fraction(1, 10))).number, f"for {who}"
            )
        for name, role in (("ada", "analyst"), ("bob", "analyst"), ("rita", "reader"), ("sven", "spender")):
            database.attack(f"CREATE ROLE {name} LOGIN")
            ledger._store.admit(name, role)
            ledger._store.admit(name, role)  # twice is once
        database.attack("CREATE ROLE eve LOGIN")
    yield database
    for name in ("ada", "bob", "rita", "sven", "eve"):
        database.attack(f"DROP OWNED BY {name}; DROP ROLE {name}")


WRITES = [
    "INSERT INTO entries SELECT 99, account, kind, who, moment, body, previous, digest FROM entries LIMIT 1",
    "UPDATE entries SET who = 'eve'",
    "DELETE FROM entries",
    "TRUNCATE entries",
    "DELETE FROM totals",
    "UPDATE totals SET state = ''",
    "INSERT INTO totals VALUES ('visits', 'eve', '', '')",
    "UPDATE charges SET released = NULL",
    "DELETE FROM charges",
    "INSERT INTO seen VALUES (4, 'bob'), (4, 'ada')",
    "UPDATE releases SET body = '0'",
    "DELETE FROM releases",
    "INSERT INTO releases VALUES (1, '0')",
    "UPDATE turn SET version = 2",
    "SELECT version FROM turn FOR UPDATE",
    "LOCK TABLE totals IN SHARE ROW EXCLUSIVE MODE",
    "ALTER TABLE entries DISABLE ROW LEVEL SECURITY",
    'DROP POLICY "analyst ada" ON entries',
    "CREATE POLICY all_mine ON entries USING (true)",
    "DROP TABLE entries",
    "CREATE TABLE hubbub.mine (x int)",
    "DROP SCHEMA hubbub CASCADE",
    "GRANT SELECT ON entries TO eve",
    "SET ROLE postgres",
    "SET SESSION AUTHORIZATION bob",
    "ALTER ROLE ada BYPASSRLS",
]


@pytest.mark.parametrize("text", WRITES)
@pytest.mark.parametrize("user", ["ada", "rita", "eve"])
def test_who_may_not_write_cannot_by_raw_sql(roles, user, text):
    before = (
        roles.attack("SELECT * FROM entries ORDER BY number"),
        roles.attack("SELECT * FROM totals ORDER BY who"),
    )
    try:
        roles.attack(text if "LOCK" not in text else f"BEGIN; {text}", user=user)
    except psycopg.Error:
        pass
    else:
        assert text == "GRANT SELECT ON entries TO eve"  # a warning, and nothing granted
        with pytest.raises(psycopg.Error):
            roles.attack("SELECT * FROM entries", user="eve")
    after = (
        roles.attack("SELECT * FROM entries ORDER BY number"),
        roles.attack("SELECT * FROM totals ORDER BY who"),
    )
    assert after == before
    with roles.open() as ledger:
        assert ledger.verify().is_whole


@pytest.mark.parametrize(
    "text",
    [
        "UPDATE entries SET who = 'eve'",
        "DELETE FROM entries",
        "TRUNCATE entries",
        "DELETE FROM totals",
        "DELETE FROM charges",
        "UPDATE charges SET charge_key = 'x'",
        "UPDATE releases SET body = '0'",
        "DELETE FROM releases",
        "DROP TABLE entries",
    ],
)
def test_who_may_charge_cannot_change_what_was_written(roles, text):
    with pytest.raises(psycopg.Error):
        roles.attack(text, user="sven")


def test_who_may_charge_charges(roles):
    with Ledger.open(roles.server.address("sven")) as ledger:
        spender = ledger.account("visits").for_analyst("ada")
        spender.keep(spender.begin("a sum", Loss.pure(Fraction(1, 10)), key="k").number, "7")
        ledger.account("visits").for_analyst("bob").charge("a sum", Loss.pure(Fraction(1, 10)), key="k")
        assert ledger.verify().is_whole


@pytest.mark.parametrize(("user", "other"), [("ada", "bob"), ("bob", "ada")])
def test_an_analyst_sees_nothing_of_another_s(roles, user, other):
    seen = str(
        [
            roles.attack(f"SELECT * FROM {table}", user=user)
            for table in ("entries", "totals", "charges", "releases", "seen")
        ]
    )
    assert f"for {user}" in seen
    assert f"'{other}'" not in seen
    assert f"of {other}" not in seen
    assert f"for {other}" not in seen
    for text in (
        f"SELECT count(*) FROM entries WHERE who = '{other}'",
        f"SELECT count(*) FROM entries WHERE body LIKE '%{other}%'",
        f"SELECT count(*) FROM releases WHERE body LIKE '%{other}%'",
    ):
        assert roles.attack(text, user=user) == [(0,)]
    with Ledger.open(roles.server.address(user)) as ledger:
        mine = ledger.account("visits").for_analyst(user)
        assert mine.spent.epsilon == Fraction(1, 10)
        assert [entry.kind for entry in mine.entries()] == ["charge", "release"]
        with pytest.raises(LedgerFailed, match="InsufficientPrivilege"):
            mine.charge("a", HALF)


def test_a_reader_sees_all_and_finds_it_whole(roles):
    with Ledger.open(roles.server.address("rita")) as ledger:
        assert ledger.verify().is_whole
        assert ledger.account("visits").spent.epsilon == Fraction(1, 5)


def test_one_who_was_not_let_in_sees_nothing(roles):
    with pytest.raises(LedgerFailed):
        Ledger.open(roles.server.address("eve"))


def test_only_known_roles_are_given(database):
    with database.open() as ledger, pytest.raises(InvalidInput, match="no such role"):
        ledger._store.admit("ada", "king")


def test_a_database_that_is_not_there_is_said_without_its_address():
    with pytest.raises(LedgerFailed) as caught:
        Ledger.open("postgresql://someone:secret@127.0.0.1:1/nowhere")
    assert "secret" not in str(caught.value)


def test_a_ledger_of_a_later_version_is_refused(database):
    database.open()
    database.attack("UPDATE turn SET version = 2")
    with pytest.raises(InvalidInput, match="later version"):
        database.open()


def test_every_commit_waits_for_the_disk_whatever_the_server_s_default(database):
    database.attack("ALTER DATABASE postgres SET synchronous_commit = off")
    try:
        store = database.open()._store
        assert store.write(lambda rows: rows.run("SHOW synchronous_commit")) == [("on",)]
    finally:
        database.attack("ALTER DATABASE postgres RESET synchronous_commit")
