"""The protocol, message by message: signing in, free descriptions, charges, portals, transactions, errors."""

import re
import ssl
import struct
import threading
from datetime import UTC, datetime, timedelta

import pytest

from hubbub.server.service_types import Question, Role
from server.hospital import BY_REGION, COUNT, PASSWORD, open_hospital
from server.wire import (
    SYNC,
    RawClient,
    bind,
    errors_in,
    execute,
    fields_of,
    kinds_of,
    message,
    parse,
    query,
    rows_in,
    running_listener,
    startup,
    text,
    url,
)

HARMLESS = {b"R", b"E", b"N"}
"""Types of messages that somebody who has not signed in may be sent."""


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    service = open_hospital(tmp_path_factory.mktemp("wire") / "hospital", "requests_per_minute = 100000")
    yield service
    service.close()


@pytest.fixture(scope="module")
def port(service):
    with running_listener(service) as port:
        yield port


@pytest.fixture
def client(port):
    with RawClient(port) as client:
        client.sign_in(options="-c hubbub.epsilon=0.01")
        yield client


def charges(service, user="ada"):
    return service.budget(service.auth.sign_in(user, PASSWORD), "visits").charges


# Signing in


@pytest.mark.parametrize(
    "sent",
    [
        query("SELECT 1"),
        query(COUNT),
        parse(COUNT) + bind() + execute() + SYNC,
        SYNC,
        message(b"X"),
        message(b"p", b"SCRAM-SHA-256\0" + struct.pack(">i", -1)),
        message(b"p", text("SCRAM-SHA-256-PLUS") + struct.pack(">i", 4) + b"n,,n"),
        message(b"p", text(PASSWORD)),
        message(b"p", b"\xff" * 100),
        message(b"F", b"\0" * 20),
        message(b"?", b""),
        b"\0" * 100,
        b"GET / HTTP/1.1\r\n\r\n",
    ],
)
@pytest.mark.parametrize("start", [b"", startup()], ids=["at once", "after the start-up packet"])
def test_nothing_but_errors_before_signing_in(port, start, sent):
    with RawClient(port) as client:
        client.send(start, sent)
        client.socket.shutdown(1)
        messages = client.read_until()

    assert {kind for kind, _ in messages} <= HARMLESS
    assert all(payload[:4] == struct.pack(">i", 10) for kind, payload in messages if kind == b"R")


def test_wrong_password_and_unknown_user_look_alike(port):
    replies = []
    for user, password in (("bob", "wrong horse battery"), ("nobody", PASSWORD)):
        with RawClient(port) as client:
            kind, payload = client.sign_in(user, password)
            replies.append((kind, fields_of(payload)))

    assert replies[0] == replies[1]
    assert replies[0][1]["C"] == "28P01"
    assert replies[0][1]["S"] == "FATAL"


def test_salt_of_an_unknown_user_stays_the_same(port):
    salts = set()
    for _ in range(2):
        with RawClient(port) as client:
            client.send(startup("nobody"), message(b"p", text("SCRAM-SHA-256") + b"\0\0\0\x0en,,n=,r=abcdef"))
            client.read()
            salts.add(client.read()[1].decode(errors="replace").split(",")[1])

    assert len(salts) == 1


def test_dataset_of_others_is_refused_as_one_that_does_not_exist(port):
    replies = []
    for database in ("lab", "nothing"):
        with RawClient(port) as client:
            kind, payload = client.sign_in(database=database)
            replies.append((kind, fields_of(payload)))

    assert replies[0] == replies[1]
    assert replies[0][1]["C"] == "3D000"


def test_reader_may_look_and_not_ask(port):
    with RawClient(port) as client:
        client.sign_in("rita", options="-c hubbub.epsilon=0.01")
        assert rows_in(client.ask(query("SELECT relname FROM pg_class WHERE relname = 'visits'"))) == [
            ("visits",)
        ]
        (error,) = errors_in(client.ask(query(COUNT)))

    assert error["C"] == "42501"


def test_tokens_sign_in_until_they_are_revoked(service, port):
    token, secret = service.auth.make_token(service.auth.sign_in("bob", PASSWORD), "a notebook")
    with RawClient(port) as client:
        client.sign_in(token.token_id, secret, options="-c hubbub.epsilon=0.01")
        assert rows_in(client.ask(query(COUNT)))
        service.auth.revoke_token(token.token_id, by="bob", user="bob")
        denied = [
            errors_in(client.ask(query(sql)))[0]["C"] for sql in (COUNT, "SELECT 1", f"EXPLAIN {COUNT}")
        ]
    with RawClient(port) as client:
        _, payload = client.sign_in(token.token_id, secret)

    assert denied == ["42501", "42501", "42501"]
    assert fields_of(payload)["C"] == "28P01"


def test_role_that_is_taken_away_ends_at_once(service, port):
    service.auth.add_user("zoe", PASSWORD, by="test")
    service.auth.set_role("zoe", "visits", Role.READER, by="test")
    with RawClient(port) as client:
        client.sign_in("zoe")
        assert rows_in(client.ask(query("SELECT 1"))) == [("1",)]
        service.auth.set_role("zoe", "visits", None, by="test")
        errors = [
            errors_in(client.ask(query(sql)))[0]["C"]
            for sql in ("SELECT relname FROM pg_class", "SELECT * FROM hubbub.budget", COUNT)
        ]

    assert errors == ["42501"] * 3


@pytest.mark.parametrize("size", [0, 4, 7, 10_001, 2**31 - 1])
def test_start_up_packet_has_a_limit(port, size):
    with RawClient(port) as client:
        client.send(struct.pack(">i", size), b"\0" * 16)
        ((kind, payload),) = client.read_until()

    assert kind == b"E"
    assert fields_of(payload)["C"] == "08P01"


def test_messages_have_a_limit(client):
    client.send(b"Q" + struct.pack(">i", 1 << 30))

    ((kind, payload),) = client.read_until()

    assert kind == b"E"
    assert fields_of(payload)["C"] == "54000"


def test_new_password_ends_connections_of_the_old_one(service, port):
    with RawClient(port) as client:
        client.sign_in("bob")
        service.auth.set_password("bob", PASSWORD, by="test")

        assert errors_in(client.ask(query(COUNT)))[0]["C"] == "42501"
        assert errors_in(client.ask(query("SELECT * FROM hubbub.history")))[0]["C"] == "42501"
    with RawClient(port) as client:
        assert len(client.sign_in("bob")) == 8


def test_slow_start_is_ended(service):
    with running_listener(service, startup_seconds=0.05) as port, RawClient(port) as client:
        ((kind, payload),) = client.read_until()

    assert kind == b"E"
    assert fields_of(payload)["C"] == "08006"


def test_newer_minor_versions_learn_what_is_spoken(port):
    payload = struct.pack(">i", (3 << 16) + 2) + text("user", "ada", "_pq_.x", "1") + b"\0"
    with RawClient(port) as client:
        client.send(struct.pack(">i", len(payload) + 4), payload)
        kind, answer = client.read()

    assert kind == b"v"
    assert answer == struct.pack(">ii", 0, 1) + b"_pq_.x\0"


# TLS


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    folder = tmp_path_factory.mktemp("tls")
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = datetime.now(UTC)
    signed = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    (folder / "cert.pem").write_bytes(signed.public_bytes(serialization.Encoding.PEM))
    (folder / "key.pem").write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )
    return folder


@pytest.fixture(scope="module")
def tls_port(service, certificate):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate / "cert.pem", certificate / "key.pem")
    with running_listener(service, context) as port:
        yield port


def test_tls_is_verified_by_the_client(tls_port, certificate):
    import psycopg

    address = url(tls_port).replace("127.0.0.1", "localhost")
    with psycopg.connect(
        f"{address}&sslmode=verify-full&sslrootcert={certificate / 'cert.pem'}"
    ) as connection:
        assert connection.pgconn.ssl_in_use
        assert connection.execute("SELECT 1").fetchone() == (1,)


def test_bytes_before_tls_are_refused(tls_port):
    with RawClient(tls_port) as client:
        client.send(struct.pack(">ii", 8, 80877103), startup(), query("SELECT 1"))
        answer = client.file.read(1)

    assert answer == b"E"


def test_tls_is_declined_where_there_is_none(port):
    with RawClient(port) as client:
        client.send(struct.pack(">ii", 8, 80877103))
        assert client.file.read(1) == b"N"
        client.send(struct.pack(">ii", 8, 80877104))
        assert client.file.read(1) == b"N"
        client.send(startup())
        assert client.read()[0] == b"R"


# Questions


def test_describing_is_free_and_executing_is_charged_once(service, client):
    before = charges(service)
    question = f"{COUNT} WHERE age > $1"
    for _ in range(3):
        described = client.ask(parse(question), message(b"D", text("S")), SYNC)
        assert kinds_of(described) == b"1tTZ"
        bound = client.ask(parse(question), bind(values=[b"21"]), message(b"D", text("P")), SYNC)
        assert kinds_of(bound) == b"12TZ"
    client.ask(query(f"EXPLAIN {COUNT} WHERE age > 21"))
    assert charges(service) == before

    first = client.ask(parse(question), bind(values=[b"21"]), execute(), SYNC)
    assert charges(service) == before + 1
    again = client.ask(query(f"{COUNT} WHERE age > 21"))
    copied = client.ask(query(f"COPY ({COUNT} WHERE age > 21) TO STDOUT"))
    assert charges(service) == before + 1
    assert rows_in(first) == rows_in(again)
    assert b"\t".join(cell.encode() for cell in rows_in(first)[0]) + b"\n" in dict(copied)[b"d"]


@pytest.mark.sweep(5)
@pytest.mark.parametrize(
    "question",
    [
        "SELECT COUNT(*), SUM(cost) FROM visits",
        "SELECT region, n FROM (SELECT region, COUNT(*) AS n FROM visits GROUP BY region) t ORDER BY n",
        f"SELECT region, n, RANK() OVER (ORDER BY n) AS r FROM ({BY_REGION})",
        "SELECT region, COUNT(*) > 10 AS many FROM visits GROUP BY region",
        "SELECT region, CASE WHEN COUNT(*) > 50 THEN 'a' ELSE 'b' END AS size FROM visits GROUP BY region",
        "SELECT AVG(cost) AS a, MEDIAN(age) AS m, STDDEV(cost) AS s FROM visits",
        "SELECT COUNT(*) AS n FROM visits UNION ALL SELECT COUNT(*) FROM visits WHERE age > 30",
        "SELECT COUNT(DISTINCT patient) AS p, NULL AS x, 1 AS one, 'a' AS t FROM visits",
    ],
)
def test_answers_have_the_columns_that_were_described(client, question):
    described = client.ask(parse(question), message(b"D", text("S")), SYNC)
    executed = client.ask(bind(results=[1]), execute(), SYNC)
    simple = client.ask(query(question))

    assert kinds_of(described) == b"1tTZ"
    assert set(kinds_of(executed)) == set(b"2DCZ")
    assert dict(simple)[b"T"] == dict(described)[b"T"]


def test_parameters_have_the_types_of_the_columns_beside_them(client):
    question = f"{COUNT} WHERE age > $1 AND region = $2 AND cost BETWEEN $3 AND 10"

    described = dict(client.ask(parse(question), message(b"D", text("S")), SYNC))

    assert struct.unpack(">h3I", described[b"t"]) == (3, 701, 25, 701)


def test_binary_results_are_those_of_the_text(client):
    in_text = rows_in(client.ask(query(COUNT)))[0]
    answer = dict(client.ask(parse(COUNT), bind(results=[1]), execute(), SYNC))[b"D"]

    numbers = [struct.unpack_from(">d", answer, 6 + 12 * place)[0] for place in range(3)]

    assert numbers == [float(cell) for cell in in_text]


def test_portals_are_read_in_parts_and_charged_once(service, client):
    question = f"{BY_REGION.replace(' GROUP', ' WHERE age > 22 GROUP')}"
    before = charges(service)

    whole = rows_in(client.ask(query(question)))
    client.ask(query("BEGIN"))
    first = client.ask(parse(question), bind("rows"), execute("rows", 1), SYNC)
    second = client.ask(execute("rows", 5), SYNC)
    client.ask(query("COMMIT"))
    gone = client.ask(execute("rows"), SYNC)

    assert kinds_of(first) == b"12DsZ"
    assert kinds_of(second) == b"DCZ"
    assert rows_in(first) + rows_in(second) == whole
    assert errors_in(gone)[0]["C"] == "34000"
    assert charges(service) == before + 1


def test_declared_cursors_are_charged_at_the_first_fetch(service, client):
    before = charges(service)
    client.ask(query("BEGIN"), query(f"DECLARE c CURSOR FOR {BY_REGION} HAVING COUNT(*) > -1000"))
    client.read_until(b"Z")
    assert charges(service) == before

    first = client.ask(query("FETCH 1 FROM c"))
    moved = client.ask(query("MOVE FORWARD 1 IN c"))
    rest = client.ask(query("FETCH ALL FROM c"))
    client.ask(query("CLOSE c; COMMIT"))

    assert len(rows_in(first)) == 1
    assert dict(moved)[b"C"] == b"MOVE 1\0"
    assert rows_in(rest) == []
    assert charges(service) == before + 1


def test_error_skips_to_the_next_sync(client):
    messages = client.ask(parse("SELECT nothing FROM visits"), bind(), execute(), execute(), SYNC)

    assert kinds_of(messages) == b"12EZ"
    assert rows_in(client.ask(query("SELECT 1"))) == [("1",)]


def test_several_statements_stop_at_the_first_error(client):
    messages = client.ask(query("SELECT 1; SELECT nothing FROM visits; SELECT 2"))

    assert rows_in(messages) == [("1",)]
    assert len(errors_in(messages)) == 1


def test_rollback_says_that_nothing_is_given_back(client):
    client.ask(query("BEGIN"))
    client.ask(query(f"{COUNT} WHERE age > 23"))

    (notice,) = [fields_of(payload) for kind, payload in client.ask(query("ROLLBACK")) if kind == b"N"]

    assert "gives nothing back" in notice["M"]


def test_transactions_fail_until_they_end(client):
    assert client.ask(query("BEGIN"))[-1][1] == b"T"
    assert client.ask(query("SAVEPOINT a"))[-1][1] == b"T"
    assert client.ask(query("SELECT nothing FROM visits"))[-1][1] == b"E"
    assert errors_in(client.ask(query("SELECT 1")))[0]["C"] == "25P02"
    assert client.ask(query("ROLLBACK TO a"))[-1][1] == b"T"
    assert rows_in(client.ask(query("SELECT 1"))) == [("1",)]
    client.ask(query("SELECT nothing FROM visits"))
    ended = client.ask(query("COMMIT"))
    assert dict(ended)[b"C"] == b"ROLLBACK\0"
    assert ended[-1][1] == b"I"


@pytest.mark.slow
def test_cancel_leaves_the_answer_stored(tmp_path):
    service = open_hospital(tmp_path / "hospital", deadlines="[4]")
    try:
        service.plan(service.auth.sign_in("ada", PASSWORD), "visits", Question(COUNT, epsilon=0.01))
        with running_listener(service) as port, RawClient(port) as client:
            key = client.sign_in(options="-c hubbub.epsilon=0.01")
            is_done = threading.Event()

            def cancel():
                # Again and again: a request that comes before the query cancels nothing.
                while not is_done.wait(0.2):
                    send_cancel(port, key)

            stopper = threading.Thread(target=cancel)
            stopper.start()
            (error,) = errors_in(client.ask(query(COUNT)))
            is_done.set()
            stopper.join()
            assert rows_in(client.ask(query(COUNT)))
        assert error["C"] == "57014"
        assert charges(service) == 1
    finally:
        service.close()


def send_cancel(port, key):
    with RawClient(port) as other:
        other.send(struct.pack(">ii", 16, 80877102), key)
        assert other.read() is None


def test_wrong_cancel_key_cancels_nothing(port, client):
    with RawClient(port) as other:
        other.send(struct.pack(">ii", 16, 80877102), struct.pack(">i", 1) + b"abcd")
        assert other.read() is None

    assert rows_in(client.ask(query("SELECT 1"))) == [("1",)]


# Settings


def test_settings_decide_the_price(service, client):
    client.ask(query("SET hubbub.epsilon = 0.02"))
    plan = "\n".join(row[0] for row in rows_in(client.ask(query(f"EXPLAIN {COUNT}"))))
    assert "costs ε = 0.02" in plan
    client.ask(query("SET hubbub.error = 'n=5000'"))
    assert rows_in(client.ask(query("SHOW hubbub.epsilon"))) == [("",)]
    plan = "\n".join(row[0] for row in rows_in(client.ask(query(f"EXPLAIN {COUNT}"))))
    assert "costs ε = 0.02" not in plan
    client.ask(query("RESET ALL"))
    assert rows_in(client.ask(query("SHOW hubbub.epsilon"))) == [("0.01",)]
    options = "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon = 0.05) COUNT(*) AS n FROM visits"
    plan = "\n".join(row[0] for row in rows_in(client.ask(query(f"EXPLAIN {options}"))))
    assert "costs ε = 0.05" in plan


def test_explain_fits_a_terminal_and_shows_the_engines_sql_on_demand(client):
    question = BY_REGION.replace(" GROUP BY", " WHERE age < 87 GROUP BY")  # nobody has asked it
    plan, verbose = (
        [row[0] for row in rows_in(client.ask(query(f"EXPLAIN {option} {question}")))]
        for option in ("", "VERBOSE")
    )

    assert plan[0].startswith("costs ε = 0.01")
    assert any("± " in line for line in plan)
    assert max(map(len, plan)) <= 120
    assert any(line.startswith("  SQL: ") for line in verbose)


def test_intervals_are_left_out_by_a_setting(client):
    client.ask(query("SET hubbub.intervals = off"))

    rows = rows_in(client.ask(query(f"{COUNT} WHERE age > 24")))

    assert len(rows[0]) == 1


def test_local_settings_end_with_the_transaction(client):
    client.ask(query("BEGIN; SET LOCAL hubbub.epsilon = 0.5"))
    assert rows_in(client.ask(query("SHOW hubbub.epsilon"))) == [("0.5",)]
    client.ask(query("COMMIT"))
    assert rows_in(client.ask(query("SHOW hubbub.epsilon"))) == [("0.01",)]
    client.ask(query("BEGIN; SET hubbub.epsilon = 0.5; ROLLBACK"))
    assert rows_in(client.ask(query("SHOW hubbub.epsilon"))) == [("0.01",)]


def test_set_config_sets(client):
    client.ask(query("SELECT set_config('hubbub.epsilon', '0.25', false)"))

    assert rows_in(client.ask(query("SELECT current_setting('hubbub.epsilon')"))) == [("0.25",)]


@pytest.mark.parametrize(
    ("statement", "code"),
    [
        ("SET hubbub.epsilon = -1", "22023"),
        ("SET hubbub.epsilon = 'much'", "22023"),
        ("SET hubbub.epsilom = 1", "42704"),
        ("SET nothing = 1", "42704"),
        ("SET hubbub.error = '50'", "22023"),
        ("SET client_encoding = 'LATIN1'", "22023"),
        ("SET server_version = '16'", "55P02"),
        ("SHOW nothing", "42704"),
        ("SELECT nothing FROM visits", "42703"),
        ("SELECT COUNT(*) FROM nothing", "42P01"),
        ("SELECT COUNT(*) FROM visits WHERE", "42601"),
        ("SELECT 'a", "42601"),
        ("SELECT * FROM visits", "42501"),
        ("SELECT COUNT(*) FROM visits WHERE nothing(age) > 1", "42883"),
        ("SELECT MEDIANN(age) FROM visits", "42883"),
        ("SELECT patient, COUNT(*) FROM visits GROUP BY patient", "42501"),
        ("EXPLAIN ANALYZE SELECT COUNT(*) FROM visits", "0A000"),
        ("COPY visits TO STDOUT", "42501"),
        ("COPY visits FROM STDIN", "42501"),
        ("COPY (SELECT COUNT(*) FROM visits) TO '/tmp/x'", "42501"),
        ("COPY (SELECT COUNT(*) FROM visits) TO PROGRAM 'ls'", "42501"),
        ("INSERT INTO visits VALUES (1)", "25006"),
        ("CREATE TABLE t (a int)", "25006"),
        ("DROP TABLE visits", "25006"),
        ("SET hubbub.epsilon = 3; SELECT COUNT(*) FROM visits", "53400"),
        ("SELECT hubbub.nothing.a FROM hubbub.nothing", "42P01"),
        ("SELECT age, COUNT(*) FROM visits GROUP BY age", "42501"),
        ("SELECT SUM(patient) FROM visits", "22023"),
        ("SET hubbub.epsilon = 100; SELECT COUNT(*) FROM visits", "42501"),
    ],
)
def test_refusals_have_a_sqlstate_and_a_hint(client, statement, code):
    (error,) = errors_in(client.ask(query(statement)))

    assert error["C"] == code
    hint = error.get("H", "")
    assert hint or code in {"55P02", "42704"}
    for setting in re.findall(r"SET hubbub\.\w+ = (?:'[^']*'|\w+(?:[.-]\w+)?)", hint):
        assert errors_in(client.ask(query(setting))) == [], setting


@pytest.mark.parametrize("number", ["1e-6", "1E-6", "0.000001", ".000001", "1.0e-6", "0.1e-5", "'1e-6'"])
def test_settings_are_numbers_as_sql_writes_them(client, number):
    assert errors_in(client.ask(query(f"SET hubbub.delta = {number}"))) == []
    plan = rows_in(client.ask(query("EXPLAIN SELECT age, COUNT(*) FROM visits GROUP BY age")))
    assert "δ = 1e-6" in str(plan)


def test_texts_of_engines_do_not_pass(service, client, monkeypatch):
    async def fail(*_args, **_options):
        raise RuntimeError("row 17 says 4711")

    monkeypatch.setattr(service, "ask", fail)
    (error,) = errors_in(client.ask(query(COUNT)))

    assert error["C"] == "XX000"
    assert not any("4711" in part for part in error.values())


def test_history_is_ones_own(port, client):
    client.ask(query(f"{COUNT} WHERE age > 25"))
    with RawClient(port) as other:
        other.sign_in("bob", options="-c hubbub.epsilon=0.01")
        other.ask(query(f"{COUNT} WHERE age > 26"))
        theirs = [row[0] for row in rows_in(other.ask(query("SELECT query FROM hubbub.history")))]
    ours = [row[0] for row in rows_in(client.ask(query("SELECT query FROM hubbub.history")))]

    assert f"{COUNT} WHERE age > 26" in theirs
    assert f"{COUNT} WHERE age > 25" not in theirs
    assert f"{COUNT} WHERE age > 25" in ours
    assert f"{COUNT} WHERE age > 26" not in ours


def test_budget_and_functions_are_relations(client):
    (row,) = rows_in(client.ask(query("SELECT dataset, epsilon, left_epsilon FROM hubbub.budget")))
    (functions,) = rows_in(
        client.ask(query("SELECT count(*) FROM hubbub.functions WHERE example LIKE 'ABS%'"))
    )

    assert row[:2] == ("visits", "2")
    assert 0 < float(row[2]) <= 2
    assert int(functions[0]) >= 1
