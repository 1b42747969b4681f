"""PostgreSQL as an engine: what it is asked, what it leaves behind, and what becomes of its faults."""

import threading
from contextlib import suppress
from itertools import count
from pathlib import Path

import numpy as np
import pytest

import hubbub as hb
from hubbub.errors import EngineFailed, InvalidInput
from internals import connection_of, engine_of
from refusing import refused
from servers import Server, in_memory

psycopg = pytest.importorskip("psycopg", reason="psycopg is not installed")
SECRET = "Ludwigshafen"  # noqa: S105 - a town, which no error may name
_NAMES = count()


@pytest.fixture
def owner(server):
    """A database of its own, with a table in it."""
    name = f"clinic{next(_NAMES)}"
    with psycopg.connect(server.address(), autocommit=True) as root:
        root.execute(f"CREATE DATABASE {name}")
    with psycopg.connect(server.address(database=name), autocommit=True) as connection:
        connection.execute(
            "CREATE TABLE visits AS SELECT i % 500 AS patient, "
            f"CASE i % 3 WHEN 0 THEN 'North' WHEN 1 THEN 'South' ELSE '{SECRET}' END AS region, "
            "(i % 97)::double precision AS cost FROM generate_series(1, 5000) AS i"
        )
        connection.address = server.address(database=name)
        yield connection


def open_data(address, **options):
    known = {"keys": {"region": ["North", "South"]}, "bounds": {"cost": (0, 100)}, "rows_per_unit": 5}
    return hb.open(address, table="visits", unit="patient", **known | options)


BY_REGION = "SELECT region, COUNT(*) AS n, AVG(cost) AS c FROM visits GROUP BY region"


def test_server_table_works_like_any_other(owner):
    with open_data(owner.address) as data:
        result = data.run(data.sql(BY_REGION, epsilon=50, allow_large_epsilon=True)).value
        assert list(result["region"]) == ["North", "South"]
        assert all(abs(n - 500 * 5 / 2) < 60 for n in result["n"])
        assert all(abs(c - 48) < 3 for c in result["c"])


def test_all_steps_of_a_plan_see_one_snapshot(owner):
    """Between the first step and the second somebody empties the table."""
    with open_data(owner.address) as data:
        plan = data.sql(
            "SELECT AVG(cost) AS c, COUNT(DISTINCT patient) AS n FROM visits",
            epsilon=100,
            allow_large_epsilon=True,
        )
        seen = []

        def between(word):
            seen.append(word)
            if seen.count("counting") == 2:
                owner.execute("DELETE FROM visits")

        result = data.run(plan, between).value
        assert abs(result["n"][0] - 500) < 2
        assert abs(result["c"][0] - 48) < 3
        assert (
            data.run(
                data.sql(
                    "SELECT COUNT(DISTINCT patient) AS n FROM visits", epsilon=100, allow_large_epsilon=True
                )
            ).value["n"][0]
            < 2
        )


def test_nothing_is_written_and_nothing_is_left_behind(owner):
    def objects():
        return owner.execute("SELECT count(*), max(oid::bigint) FROM pg_class").fetchone()

    before = objects()
    with open_data(owner.address) as data:
        data.run(data.sql(BY_REGION, epsilon=1))
        data.run(
            data.sql("SELECT region, COUNT(*) FROM visits GROUP BY region", epsilon=1, delta=1e-6, keys=None)
        )
        assert objects() == before
        with engine_of(data).snapshot(), pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
            connection_of(data).execute("CREATE TEMP TABLE x (i int)")
        with engine_of(data).snapshot(), pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
            connection_of(data).execute("DELETE FROM public.visits")
        ours = "application_name = 'hubbub' AND datname = current_database()"
        assert owner.execute(f"SELECT state FROM pg_stat_activity WHERE {ours}").fetchall() == [("idle",)]
    assert objects() == before


def test_role_with_one_column_reads_that_column(owner, server):
    owner.execute("CREATE ROLE reader LOGIN")
    owner.execute("GRANT SELECT (patient, cost) ON visits TO reader")
    address = owner.address.replace("postgres@", "reader@")
    try:
        with hb.open(
            address, table="visits", unit="patient", bounds={"cost": (0, 100)}, rows_per_unit=5
        ) as data:
            assert [column.name for column in data.tables["visits"].columns] == ["patient", "cost"]
            data.run(data.sql("SELECT AVG(cost) FROM visits", epsilon=1))
            with refused(InvalidInput, match="region"):
                data.sql("SELECT COUNT(*) FROM visits WHERE region = 'North'", epsilon=1)
            plan = data.sql("SELECT AVG(cost) FROM visits", epsilon=1)
            owner.execute("REVOKE ALL ON visits FROM reader")
            failed(data, plan, "may not")
    finally:
        owner.execute("DROP OWNED BY reader")
        owner.execute("DROP ROLE reader")


def test_search_path_is_pinned(owner):
    """Functions and operators that somebody put into the path are not called."""
    for function, body in {"floor": "SELECT 1e9::float8", "abs": "SELECT 1 / 0::float8"}.items():
        owner.execute(f"CREATE FUNCTION public.{function}(float8) RETURNS float8 LANGUAGE sql AS '{body}'")
    name = owner.info.dbname
    owner.execute(f"ALTER DATABASE {name} SET search_path = public, pg_catalog")
    with open_data(owner.address) as data:
        assert (
            abs(
                data.run(
                    data.sql("SELECT AVG(cost) AS c FROM visits", epsilon=100, allow_large_epsilon=True)
                ).value["c"][0]
                - 48
            )
            < 3
        )


@pytest.mark.parametrize(
    "text",
    [
        "SELECT COUNT(*) FROM pg_catalog.pg_user", "SELECT COUNT(*) FROM pg_user",
        "SELECT COUNT(*) FROM other",
        "SELECT COUNT(pg_sleep(1)) FROM visits", "SELECT COUNT(*) FROM visits; DROP TABLE visits",
        "SELECT COUNT(query_to_xml('select 1', true, true, '')) FROM visits",
        "SELECT COUNT(*) FROM visits WHERE region = U&'x' UESCAPE '!'",
        "SELECT COUNT(dblink('host=127.0.0.1', 'select 1')) FROM visits",
        "SELECT COUNT(current_setting('is_superuser')) FROM visits",
        "SELECT COUNT(region::regclass) FROM visits",
        "SELECT COUNT(lo_import('/etc/passwd')) FROM visits", "SELECT COUNT(EXP(cost)) FROM visits",
    ],
)  # fmt: skip
def test_queries_reach_nothing_else_in_the_server(owner, text):
    owner.execute("CREATE TABLE other AS SELECT 1 AS patient")
    with open_data(owner.address) as data:
        with refused(hb.HubbubError):
            data.sql(text, epsilon=1)
        assert not data.account.receipts


@pytest.mark.parametrize(
    "key", ["O'Brien", "'; DROP TABLE visits; --", "$1", "%s", '"', "\\", "{x}", "E'\\n'", "é🙂"]
)
def test_keys_and_literals_are_never_parsed_as_sql(owner, key):
    owner.execute("INSERT INTO visits SELECT 1000 + i, %s, 1 FROM generate_series(1, 300) AS i", [key])
    with open_data(owner.address, keys={"region": ["North", key]}) as data:
        result = data.run(data.sql(BY_REGION, epsilon=50, allow_large_epsilon=True)).value
        assert abs(result["n"][1] - 300) < 20
        quoted = key.replace("'", "''")
        one = data.run(
            data.sql(
                f"SELECT COUNT(*) AS n FROM visits WHERE region = '{quoted}'",
                epsilon=50,
                allow_large_epsilon=True,
            )
        ).value
        assert abs(one["n"][0] - 300) < 20


def test_only_tables_are_opened(owner):
    owner.execute("CREATE VIEW seen AS SELECT patient, 1 / (cost - 1) AS x FROM visits")
    with refused(InvalidInput, match="is not a table"):
        hb.open(owner.address, table="seen", unit="patient")
    with refused(EngineFailed, match="does not exist"):
        hb.open(owner.address, table="nowhere", unit="patient")
    with refused(InvalidInput, match="no table is named"):
        hb.open(owner.address, unit="patient")
    with refused(EngineFailed):
        hb.open(owner.address.replace("postgres@", "nobody@"), table="visits", unit="patient")


def test_two_tables_of_one_name_are_refused(owner):
    """One of them would silently replace the other."""
    owner.execute("CREATE SCHEMA other; CREATE TABLE other.visits AS SELECT * FROM visits")
    for options in ({"table": ["public.visits", "other.visits"]}, {"public": {"VISITS": "other.visits"}}):
        with refused(InvalidInput, match="the same name"):
            hb.open(owner.address, **{"table": "visits", "unit": "patient"} | options)


def test_text_too_long_for_server_functions_is_null(owner):
    """Else one row with a text of this size would make a query fail."""
    owner.execute("CREATE TABLE notes (patient int, note text)")
    owner.execute("INSERT INTO notes SELECT 1, repeat('x', 140000000) UNION ALL SELECT 2, ' x'")
    with hb.open(owner.address, table="notes", unit="patient", rows_per_unit=1) as data:
        plan = data.sql("SELECT COUNT(TRIM(note)) AS n FROM notes", epsilon=100, allow_large_epsilon=True)
        assert round(data.run(plan).value["n"][0]) == 1


def test_incomparable_unit_is_refused(owner):
    owner.execute("CREATE TABLE odd AS SELECT '{}'::json AS who, 1 AS x")
    with refused(InvalidInput, match="type that no unit has"):
        hb.open(owner.address, table="odd", unit="who")


# What might stand between a query and its rows


def reader(owner, table):
    """The address of a role that may read one table and no more."""
    name = f"reader{owner.info.dbname}"
    owner.execute(f"CREATE ROLE {name} LOGIN; GRANT SELECT ON {table} TO {name}")
    return owner.address.replace("postgres@", f"{name}@")


@pytest.mark.parametrize(
    "policy",
    ["1 / (cost - 3) IS NOT NULL", "region IN (SELECT region FROM visits WHERE cost > 90)", "patient > 7"],
)
def test_table_with_a_row_policy_is_refused(owner, policy):
    """What it computes may fail on some row, or look at others."""
    address = reader(owner, "visits")
    with open_data(address) as data:
        plan = data.sql(BY_REGION, epsilon=1)
        owner.execute("ALTER TABLE visits ENABLE ROW LEVEL SECURITY")
        owner.execute(f"CREATE POLICY hides ON visits USING ({policy})")
        failed(data, plan, "may not")
    with refused(InvalidInput, match="is not a table"):
        open_data(address)
    with open_data(owner.address) as data:  # for whom it does not hold
        assert len(data.run(data.sql(BY_REGION, epsilon=1)).value) == 2


@pytest.mark.parametrize("how", ["a partition", "a child", "a child's child"])
def test_foreign_rows_are_refused(owner, how):
    """A line that cannot be read fails, and nobody knows what another server computes."""
    owner.execute("CREATE EXTENSION file_fdw; CREATE SERVER files FOREIGN DATA WRAPPER file_fdw")
    columns = "patient int, region text, cost float8"
    if how == "a partition":
        owner.execute(f"CREATE TABLE parted ({columns}) PARTITION BY LIST (region)")
        below = "PARTITION OF parted FOR VALUES IN ('North')"
    else:
        owner.execute(f"CREATE TABLE parted ({columns}); CREATE TABLE child () INHERITS (parted)")
        below = "() INHERITS (parted)" if how == "a child" else "() INHERITS (child)"
    known = {"table": "parted", "unit": "patient", "rows_per_unit": 1}
    with hb.open(owner.address, **known) as data:
        plan = data.sql("SELECT COUNT(*) AS n FROM parted WHERE cost > 0", epsilon=1)
        assert len(data.run(plan).value) == 1
        owner.execute(
            f"CREATE FOREIGN TABLE far {below} SERVER files OPTIONS (filename '/dev/null', format 'csv')"
        )
        failed(data, plan, "changed since it was opened")
    with refused(InvalidInput, match="is not a table"):
        hb.open(owner.address, **known)


def test_types_are_compared_beyond_their_names(owner):
    """One that is called int8 and holds texts is no number: it could not be cast on some rows."""
    owner.execute("CREATE DOMAIN public.int8 AS text; CREATE DOMAIN word AS public.int8")
    owner.execute("CREATE TYPE public.float8 AS ENUM ('x')")
    owner.execute("CREATE TABLE odd (patient int, x word, y public.float8)")
    owner.execute("INSERT INTO odd VALUES (1, '7', 'x'), (2, 'seven', 'x')")
    with hb.open(owner.address, table="odd", unit="patient", rows_per_unit=1) as data:
        assert [column.kind.value for column in data.tables["odd"].columns] == ["number", "opaque", "text"]
        with refused(InvalidInput):
            data.sql("SELECT COUNT(*) FROM odd WHERE x > 3", epsilon=1)


def test_user_defined_cast_is_not_called(owner):
    owner.execute("CREATE TYPE mood AS ENUM ('good', 'bad'); CREATE TYPE pair AS (a int, b int)")
    for name in ("mood", "pair"):
        owner.execute(
            f"CREATE FUNCTION cast_{name}({name}) RETURNS varchar LANGUAGE plpgsql AS "
            "$$ BEGIN RAISE 'called'; END $$"
        )
        owner.execute(f"CREATE CAST ({name} AS varchar) WITH FUNCTION cast_{name}({name})")
    owner.execute("CREATE TABLE moods (who mood, felt mood, two pair)")
    owner.execute("INSERT INTO moods VALUES ('bad', 'bad', ROW(1, NULL)), ('good', NULL, NULL)")
    with hb.open(owner.address, table="moods", unit="who", rows_per_unit=1, types={"two": "text"}) as data:
        text = "SELECT {} AS k, COUNT(*) AS n FROM moods GROUP BY k"
        for column, keys in {"felt": [None, "bad"], "two": [None, "(1,)"]}.items():
            plan = data.sql(text.format(column), epsilon=100, keys={column: keys}, allow_large_epsilon=True)
            assert [round(n) for n in data.run(plan).value["n"]] == [1, 1]


def test_opening_calls_no_user_defined_function(owner):
    """Operators are looked up in the path, too."""
    owner.execute("CREATE TABLE called (i int)")
    for left, right in (("oid", "regclass"), ("oid", "oid"), ("int2", "int4")):
        for name, own in (("=", "="), (">", ">")):
            function = f"evil_{left}_{right}_{'equal' if name == '=' else 'above'}"
            owner.execute(
                f"CREATE FUNCTION {function}({left}, {right}) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN "
                f"INSERT INTO public.called VALUES (1); RETURN $1::int8 OPERATOR(pg_catalog.{own}) $2::int8; "
                "END $$"
            )
            owner.execute(
                f"CREATE OPERATOR public.{name} (leftarg = {left}, rightarg = {right}, function = {function})"
            )
    owner.execute(f"ALTER DATABASE {owner.info.dbname} SET search_path = public, pg_catalog")
    with open_data(owner.address) as data:
        data.run(data.sql(BY_REGION, epsilon=1))
    assert owner.execute("SELECT count(*) FROM called").fetchone() == (0,)


@pytest.mark.parametrize(
    "setting", ["array_nulls%3Doff", "bytea_output%3Descape", "IntervalStyle%3Diso_8601"]
)
def test_keys_do_not_depend_on_server_settings(owner, setting):
    owner.execute("CREATE TABLE odd (patient int, raw bytea, long interval)")
    owner.execute("INSERT INTO odd VALUES (1, '\\xff00', '26 hours'), (2, NULL, NULL), (3, NULL, NULL)")
    known = {"table": "odd", "unit": "patient", "rows_per_unit": 1, "types": {"raw": "text", "long": "text"}}
    with hb.open(f"{owner.address}?options=-c%20{setting}", **known) as data:
        for column, key in {"raw": "\\xff00", "long": "26:00:00"}.items():
            text = f"SELECT {column}, COUNT(*) AS n FROM odd GROUP BY {column}"
            result = data.run(
                data.sql(text, epsilon=100, keys={column: [key, None]}, allow_large_epsilon=True)
            ).value
            assert [round(n) for n in result["n"]] == [1, 2]


def test_table_changed_while_waiting_for_its_lock_fails(owner):
    """The snapshot is older than the change, and so is what the catalog says in it."""
    owner.execute("ALTER TABLE visits ADD other text DEFAULT 'x'")
    with open_data(owner.address) as data, psycopg.connect(owner.address, autocommit=True) as watch:
        plan = data.sql(BY_REGION, epsilon=1)
        caught = []

        def ask():
            try:
                failed(data, plan, "changed since it was opened")
            except BaseException as problem:
                caught.append(problem)

        asking = threading.Thread(target=ask)
        with owner.transaction():
            for old, new in (("cost", "old"), ("other", "cost"), ("old", "other")):
                owner.execute(f"ALTER TABLE visits RENAME {old} TO {new}")
            asking.start()
            waiting = "SELECT count(*) FROM pg_locks JOIN pg_database d ON d.oid = database "
            waiting += "WHERE NOT granted AND datname = current_database()"
            while asking.is_alive() and watch.execute(waiting).fetchone() == (0,):
                pass
        asking.join()
        assert not caught


# Faults


def failed(data, plan, word=""):
    """It fails in our own words, and what was charged stays charged."""
    before = len(data.account.receipts)
    with pytest.raises(EngineFailed) as caught:
        data.run(plan)
    assert SECRET not in str(caught.value)
    assert "charged stays charged" in str(caught.value)
    assert word in str(caught.value)
    assert caught.value.__cause__ is None
    assert len(data.account.receipts) == before + 1


def test_table_dropped_between_plan_and_run_fails(owner):
    with open_data(owner.address) as data:
        plan = data.sql(BY_REGION, epsilon=1)
        owner.execute("ALTER TABLE visits RENAME TO elsewhere")
        failed(data, plan, "not there")
        owner.execute("ALTER TABLE elsewhere RENAME TO visits")
        assert len(data.run(plan).value) == 2


@pytest.mark.parametrize(
    "change",
    [
        "ALTER TABLE visits ALTER cost TYPE text", "ALTER TABLE visits DROP COLUMN cost",
        "ALTER TABLE visits RENAME cost TO price",
    ],
)  # fmt: skip
def test_table_changed_between_plan_and_run_fails(owner, change):
    with open_data(owner.address) as data:
        plan = data.sql(BY_REGION, epsilon=1)
        owner.execute(change)
        failed(data, plan, "changed since it was opened")


def test_locked_table_fails(owner):
    with open_data(owner.address + "?options=-c%20statement_timeout%3D300ms") as data:
        plan = data.sql(BY_REGION, epsilon=1)
        with owner.transaction():
            owner.execute("LOCK TABLE visits IN ACCESS EXCLUSIVE MODE")
            failed(data, plan, "longer")
        assert len(data.run(plan).value) == 2


def test_interrupt_leaves_no_transaction_open(owner, monkeypatch):
    """Else the next plan would see an old state, or fail for nothing."""
    ours = "application_name = 'hubbub' AND datname = current_database()"
    with open_data(owner.address) as data:
        plan = data.sql(
            "SELECT COUNT(DISTINCT patient) AS n FROM visits", epsilon=100, allow_large_epsilon=True
        )

        def interrupted(scan):
            raise KeyboardInterrupt

        with monkeypatch.context() as patched:
            patched.setattr(engine_of(data), "_check_relation", interrupted)
            with pytest.raises(KeyboardInterrupt):
                data.run(plan)
        assert owner.execute(f"SELECT state FROM pg_stat_activity WHERE {ours}").fetchall() == [("idle",)]
        owner.execute("DELETE FROM visits")
        assert data.run(plan).value["n"][0] < 2


def test_lost_connection_is_reopened(owner):
    with open_data(owner.address) as data:
        plan = data.sql("SELECT AVG(cost) AS c, COUNT(DISTINCT patient) AS n FROM visits", epsilon=1)

        def cut(word):
            owner.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'hubbub'"
            )

        with pytest.raises(EngineFailed, match="lost"):
            data.run(plan, cut)
        assert len(data.run(plan).value) == 1


def test_server_killed_during_a_query_fails(tmp_path):
    with in_memory() as postgres:
        server = Server(Path(postgres))
        try:
            with psycopg.connect(server.address(), autocommit=True) as owner:
                owner.execute(
                    "CREATE TABLE visits AS SELECT i AS patient, 'North' AS region, 1.0::float8 AS cost "
                    "FROM generate_series(1, 400000) AS i"
                )
                data = open_data(server.address())
                plan = data.sql(BY_REGION, epsilon=1)
                killer = threading.Timer(0.15, server.stop)
                killer.start()
                with suppress(EngineFailed):
                    while True:
                        data.run(plan)
                killer.join()
            failed(data, plan)
            server.start()
            assert len(data.run(plan).value) == 2
            data.close()
        finally:
            server.stop()


FAULTS = {
    "the connection is lost": (
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'hubbub'", "",
    ),
    "the table is gone": ("ALTER TABLE visits RENAME TO gone", "ALTER TABLE gone RENAME TO visits"),
    "it may not be read": ("REVOKE SELECT ON visits FROM {}", "GRANT SELECT ON visits TO {}"),
    "it is changed": (
        "ALTER TABLE visits RENAME cost TO price",
        "ALTER TABLE visits RENAME price TO cost",
    ),
}  # fmt: skip


@pytest.mark.sweep(5)
@pytest.mark.parametrize("is_opened_anew", [False, True], ids=["", "opened anew"])
@pytest.mark.parametrize("fault", FAULTS)
def test_failure_is_the_outcome_until_charged_again(owner, tmp_path, fault, is_opened_anew):
    """Before its first step, or after it: that it failed is the outcome of its charge."""
    address = reader(owner, "visits")
    broken, mended = (text.format(f"reader{owner.info.dbname}") for text in FAULTS[fault])
    text = "SELECT AVG(cost) AS c, COUNT(DISTINCT patient) AS n FROM visits"

    def opening():
        return open_data(address, ledger=tmp_path / "ledger", budget=hb.Budget(10))

    first = opening()
    plan = first.sql(text, epsilon=1)
    seen = []

    def between(word):
        seen.append(word)
        if fault == "the connection is lost" and len(seen) == 2:
            owner.execute(broken)

    if fault != "the connection is lost":
        owner.execute(broken)
    with pytest.raises(EngineFailed, match="charged stays charged") as caught:
        first.run(plan, between)
    assert SECRET not in str(caught.value)
    assert first.account.spent().epsilon == 1
    owner.execute(mended)
    second = opening() if is_opened_anew else first
    plans = second.sql(text, epsilon=1)
    with pytest.raises(EngineFailed) as repeated:
        second.run(plans)
    assert str(repeated.value) == str(caught.value)
    assert second.account.spent().epsilon == 1
    result = second.run(plans, again=True).value
    assert not result.facts["asked before"]
    assert abs(result["n"][0] - 500) < 100
    for later in (first.run(plan), first.run(plan, again=True)):
        assert later.value.to_dict() == result.to_dict()
    assert (first.account.spent().epsilon, second.account.spent().epsilon) == (2, 2)
    first.close()
    second.close()


# Many keys


def test_many_keys_are_joined_in_the_server(owner):
    keys = [f"k{number}" for number in range(50_000)]
    owner.execute("INSERT INTO visits SELECT 10000 + i, 'k' || i % 3, 1 FROM generate_series(1, 3000) AS i")
    with open_data(owner.address, keys={"region": keys}) as data:
        plan = data.sql("SELECT region, COUNT(*) AS n FROM visits GROUP BY region", epsilon=20)
        measured = plan.bounded.bounded_aggregates[0]
        assert "k49999" not in engine_of(data).compile(measured.sql)
        result = data.run(plan).value
        assert len(result) == len(keys)
        assert np.abs(np.asarray(result["n"][:3]) - 1000).max() < 30


def test_same_table_name_in_two_databases_is_two_identities(owner, server, tmp_path):
    def ask_one(address):
        with open_data(address, ledger=tmp_path / "l", budget=hb.Budget(10)) as data:
            return data.run(data.sql("SELECT COUNT(*) AS n FROM visits", epsilon=1)).value.facts[
                "asked before"
            ]

    assert ask_one(owner.address) is False
    name = f"clinic{next(_NAMES)}"
    with psycopg.connect(server.address(), autocommit=True) as root:
        root.execute(f"CREATE DATABASE {name}")
    with psycopg.connect(server.address(database=name), autocommit=True) as other:
        other.execute("CREATE TABLE visits (patient bigint, region text, cost double precision)")
    assert ask_one(server.address(database=name)) is False
    owner.execute(f"CREATE ROLE looker{name} LOGIN; GRANT SELECT ON visits TO looker{name}")
    assert ask_one(owner.address.replace("postgres@", f"looker{name}@")) is True
