"""Who somebody is: hashes, lockout, sessions, tokens, the audit log. ASVS 5.0 sections are named in tests."""

import base64
import hashlib
import hmac
import sqlite3
import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction

import pytest

from hubbub.errors import AccessDenied, InvalidInput, Unavailable
from hubbub.server import auth as auth_module
from hubbub.server.auth import Auth, ScramVerifier
from hubbub.server.service_types import Principal, Role
from hubbub.server.state import State

PASSWORD = "correct horse battery"  # noqa: S105 - of made-up people


@pytest.fixture
def state(tmp_path):
    state = State(tmp_path / "server.db")
    yield state
    state.close()


@pytest.fixture
def auth(state):
    auth = Auth(state, scrypt_cost=10)
    auth.add_user("ada", PASSWORD, by="test")
    auth.set_role("ada", "visits", Role.ANALYST, by="test")
    return auth


def prove(verifier, password, message=b"n=x,r=y"):
    """What a SCRAM client computes, by RFC 5802; and what the server checks."""
    salted = hashlib.pbkdf2_hmac("sha256", password.encode(), verifier.salt, verifier.iterations)
    client_key = hmac.digest(salted, b"Client Key", "sha256")
    signature = hmac.digest(hashlib.sha256(client_key).digest(), message, "sha256")
    proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
    expected = hmac.digest(verifier.stored_key, message, "sha256")
    key = bytes(a ^ b for a, b in zip(proof, expected, strict=True))
    return hashlib.sha256(key).digest() == verifier.stored_key


def test_passwords_are_stored_as_hashes_only(auth, state):
    [(password, verifier)] = state.read(
        lambda connection: connection.execute("SELECT password, verifier FROM users").fetchall()
    )
    assert password.startswith("scrypt$")
    assert verifier.startswith("SCRAM-SHA-256$4096:")
    assert PASSWORD not in state.path.read_bytes().decode("latin-1")
    assert state.path.stat().st_mode & 0o777 == 0o600


def test_scram_verifiers_are_those_of_the_password(auth):
    verifier = auth.scram_verifier("ada")

    assert prove(verifier, PASSWORD)
    assert not prove(verifier, "another password")
    assert ScramVerifier.from_text(verifier.to_text()) == verifier
    assert "…" in repr(verifier)


def test_scram_verifiers_of_unknown_users_look_like_those_of_known_ones(auth):
    one, two = auth.scram_verifier("nobody"), auth.scram_verifier("nobody")

    assert one.salt == two.salt  # a salt that changes would tell
    assert (len(one.salt), one.iterations) == (16, 4096)
    assert one.salt != auth.scram_verifier("somebody").salt
    assert not prove(one, PASSWORD)


def test_a_token_signs_in_over_scram_by_its_id(auth):
    token, secret = auth.make_token(auth.sign_in("ada", PASSWORD), "psql")

    assert prove(auth.scram_verifier(token.token_id), secret)
    assert auth.finish_attempt(token.token_id, "here", is_right=True).token_id == token.token_id


@pytest.mark.slow
def test_unknown_users_take_as_long_as_wrong_passwords(state):
    """ASVS 6.3.8: medians of processor time; a missing hash would be fifty times faster."""
    auth = Auth(state, scrypt_cost=13)
    auth.add_user("ada", PASSWORD, by="test")
    times = {"ada": [], "nobody": []}
    for attempt in range(4):
        for user, durations in times.items():
            started = time.process_time()
            with pytest.raises(AccessDenied):
                auth.sign_in(user, "a wrong password", source=f"{user}{attempt}")
            durations.append(time.process_time() - started)
    medians = [statistics.median(durations) for durations in times.values()]
    assert max(medians) < 10 * min(medians)


@pytest.mark.parametrize("password", ["short", "x" * 1025])
def test_passwords_have_a_length(auth, password):
    with pytest.raises(InvalidInput, match="password"):
        auth.add_user("bob", password, by="test")


@pytest.mark.parametrize("name", ["", "Ada", "1a", "a b", "a/b", "a" * 64, "ä"])
def test_names_of_users_are_plain(auth, name):
    with pytest.raises(InvalidInput, match="name of the user"):
        auth.add_user(name, PASSWORD, by="test")


# Guessing (ASVS 2.4.1, 6.3.1)


def test_guessing_is_stopped_after_five_attempts(auth, monkeypatch):
    clock = [time.time()]
    monkeypatch.setattr(auth_module, "now", lambda: clock[0])
    for _ in range(5):
        with pytest.raises(AccessDenied):
            auth.sign_in("ada", "a wrong password", "10.0.0.1")
    with pytest.raises(Unavailable):
        auth.sign_in("ada", PASSWORD, "10.0.0.1")
    assert auth.sign_in("ada", PASSWORD, "10.0.0.2").user == "ada"  # she is not locked out elsewhere

    clock[0] += 31
    assert auth.sign_in("ada", PASSWORD, "10.0.0.1").user == "ada"


def test_locks_grow_with_further_attempts(auth, monkeypatch):
    clock = [time.time()]
    monkeypatch.setattr(auth_module, "now", lambda: clock[0])
    waits = []
    for attempt in range(9):
        with pytest.raises(AccessDenied):
            auth.sign_in("ada", "a wrong password", "10.0.0.1")
        if attempt >= 4:
            start = clock[0]
            while True:
                try:
                    auth.check_attempt("ada", "10.0.0.1")
                    break
                except Unavailable:
                    clock[0] += 10
            waits.append(clock[0] - start)
    assert waits == sorted(waits)
    assert waits[-1] >= 8 * waits[0]


def test_one_source_cannot_try_many_names(auth):
    for attempt in range(50):
        with pytest.raises(AccessDenied):
            auth.sign_in(f"user{attempt}", "a wrong password", "10.0.0.1")
    with pytest.raises(Unavailable):
        auth.sign_in("ada", PASSWORD, "10.0.0.1")


# Sessions (ASVS 7)


def test_sessions_end_when_they_should(auth, state, monkeypatch):
    session = auth.start_session(auth.sign_in("ada", PASSWORD))
    assert len(base64.urlsafe_b64decode(session.secret + "=")) * 8 >= 128  # ASVS 7.2.3
    assert session.secret.encode() not in state.path.read_bytes()
    assert session.secret not in repr(session)
    result = auth.find_session(session.secret)
    assert (result.principal.user, result.csrf) == ("ada", session.csrf)
    assert auth.roles(result.principal) == {"visits": Role.ANALYST}

    auth.end_session(result)

    assert auth.find_session(session.secret) is None
    assert auth.roles(result.principal) == {}


@pytest.mark.parametrize("seconds", [3601, 12 * 3600 + 1])
def test_sessions_expire(auth, monkeypatch, seconds):
    session = auth.start_session(auth.sign_in("ada", PASSWORD))
    later = time.time() + seconds
    monkeypatch.setattr(auth_module, "now", lambda: later)

    assert auth.find_session(session.secret) is None
    assert auth.roles(session.principal) == {}


@pytest.mark.parametrize("end", ["password", "lock"])
def test_sessions_end_with_the_password_and_with_the_user(auth, end):
    session = auth.start_session(auth.sign_in("ada", PASSWORD))
    if end == "password":
        auth.set_password("ada", "another good password", by="test")
    else:
        auth.set_active("ada", is_active=False, by="test")

    assert auth.find_session(session.secret) is None


def test_a_cookie_writes_nothing_unless_its_session_is_valid(auth, state, monkeypatch):
    session = auth.start_session(auth.sign_in("ada", PASSWORD))
    with monkeypatch.context() as patch:
        patch.setattr(state, "write", lambda _: pytest.fail("the file was locked"))
        assert auth.find_session("x" * 43) is None
        assert auth.find_session(session.secret) is not None

    # Used every half an hour, it lasts for longer than an idle one.
    start = time.time()
    for minutes in (30, 60, 90):
        monkeypatch.setattr(auth_module, "now", lambda minutes=minutes: start + 60 * minutes)
        assert auth.find_session(session.secret) is not None


def test_sessions_of_strangers_are_nobody(auth):
    assert auth.find_session("") is None
    assert auth.find_session("x" * 43) is None


# Tokens


def test_tokens_are_never_wider_than_their_user(auth):
    _, secret = auth.make_token(auth.sign_in("ada", PASSWORD), "wide", role=Role.OWNER)
    principal = auth.sign_in_with_token(secret)
    assert principal.roles == {"visits": Role.ANALYST}

    auth.set_role("ada", "visits", Role.READER, by="test")

    assert auth.roles(principal) == {"visits": Role.READER}


def test_tokens_have_more_than_128_bits_and_are_stored_as_digests(auth, state):
    _, secret = auth.make_token(auth.sign_in("ada", PASSWORD), "one")
    assert len(base64.urlsafe_b64decode(secret.split("_", 2)[2] + "=")) * 8 == 256  # ASVS 11.5.1
    state.close()
    files = [path.read_bytes() for path in state.path.parent.iterdir()]
    assert not any(secret.encode() in each or secret.split("_", 2)[2].encode() in each for each in files)


def test_caps_hold_with_many_requests_at_once(auth):
    """ASVS 2.3.4, 15.4.2: what is reserved is reserved in one transaction."""
    _, secret = auth.make_token(auth.sign_in("ada", PASSWORD), "capped", epsilon="1")
    principal = auth.sign_in_with_token(secret)

    def reserve(_):
        try:
            auth.reserve(principal, Fraction(1, 10))
        except AccessDenied:
            return 0
        return 1

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(reserve, range(40))) == 10


@pytest.mark.parametrize("days", [0, -1, 367, float("nan")])
def test_tokens_expire(auth, days):
    with pytest.raises(InvalidInput, match="days"):
        auth.make_token(auth.sign_in("ada", PASSWORD), "long", days=days)


def test_principals_of_locked_users_may_nothing(auth):
    ada = auth.sign_in("ada", PASSWORD)
    auth.set_active("ada", is_active=False, by="test")

    assert auth.roles(ada) == {}
    with pytest.raises(AccessDenied):
        auth.sign_in("ada", PASSWORD)
    assert auth.roles(Principal.anonymous()) == {}


# The audit log (ASVS 16.4.2)


@pytest.mark.parametrize(
    "tampering",
    [
        "UPDATE audit SET user = 'eve' WHERE number = 2",
        "UPDATE audit SET detail = '{}' WHERE number = 1",
        "DELETE FROM audit WHERE number = 2",
        "UPDATE audit SET number = 9 WHERE number = 3",
    ],
)
def test_changes_of_the_audit_log_are_found(auth, state, tampering):
    auth.sign_in("ada", PASSWORD)
    assert state.verify_audit() == []
    with sqlite3.connect(state.path) as connection:
        connection.execute(tampering)
    connection.close()

    assert state.verify_audit()


def test_a_log_that_was_cut_off_is_found_by_its_kept_head(auth, state):
    auth.sign_in("ada", PASSWORD)
    head = state.audit_records()[-1].digest
    assert state.verify_audit(head) == []
    state.write(lambda connection: connection.execute("DELETE FROM audit WHERE number > 1"))

    assert state.verify_audit() == []
    assert state.verify_audit(head)


def test_files_of_another_version_are_refused(tmp_path):
    with sqlite3.connect(tmp_path / "other.db") as connection:
        connection.execute("PRAGMA user_version = 99")
    connection.close()
    with pytest.raises(InvalidInput, match="another version"):
        State(tmp_path / "other.db")
    (tmp_path / "text.db").write_text("this is no database, and long enough to be seen as none")
    with pytest.raises(InvalidInput, match="cannot be opened"):
        State(tmp_path / "text.db")
