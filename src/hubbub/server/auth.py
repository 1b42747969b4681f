"""Identities: passwords, SCRAM verifiers, tokens, sessions, and limits on guessing.

Passwords are stored as scrypt hashes and, beside them, as SCRAM-SHA-256 verifiers for the PostgreSQL wire,
both made when the password is set. Somebody unknown takes as long as somebody with a wrong password.
"""

import base64
import hashlib
import hmac
import re
import sqlite3
import threading
import unicodedata
from dataclasses import dataclass, replace
from fractions import Fraction

from hubbub.errors import AccessDenied, InvalidInput, Unavailable
from hubbub.noise.entropy import random_bytes
from hubbub.numbers import format_down, format_up, parse_positive
from hubbub.server.service_types import Principal, Role, Token, parse_number
from hubbub.server.state import State, append_audit, moment, now

__all__ = ["Auth", "ScramVerifier", "Session"]

_NAME = re.compile(r"[a-z][a-z0-9._@-]{0,62}")
_MIN_PASSWORD = 12
_MAX_PASSWORD = 1024
_ITERATIONS = 4096
"""As PostgreSQL's own; each client computes them at every connection."""
_TOKEN = re.compile(r"hub_([0-9a-f]{16})_([0-9A-Za-z_-]{43})")
_SESSION_SECONDS = 12 * 3600.0
_IDLE_SECONDS = 3600.0
_FREE_FAILURES = 5
_SOURCE_FAILURES = 50
_LOCK_SECONDS = (30.0, 3600.0)
_DAY = 86400.0


@dataclass(frozen=True)
class ScramVerifier:
    """What a server needs to check SCRAM-SHA-256 (RFC 7677); the password does not follow from it."""

    salt: bytes
    iterations: int
    stored_key: bytes
    server_key: bytes

    def __repr__(self) -> str:
        return "ScramVerifier(…)"

    def to_text(self) -> str:
        """Return it in PostgreSQL's format."""
        parts = [base64.b64encode(each).decode() for each in (self.salt, self.stored_key, self.server_key)]
        return f"SCRAM-SHA-256${self.iterations}:{parts[0]}${parts[1]}:{parts[2]}"

    @classmethod
    def from_text(cls, text: str) -> "ScramVerifier":
        """Read PostgreSQL's format."""
        _, head, keys = text.split("$")
        iterations, salt = head.split(":")
        stored, server = keys.split(":")
        return cls(
            base64.b64decode(salt), int(iterations), base64.b64decode(stored), base64.b64decode(server)
        )

    @classmethod
    def of(cls, password: str, salt: bytes | None = None) -> "ScramVerifier":
        """Make a verifier of a password."""
        salt = random_bytes(16) if salt is None else salt
        salted = hashlib.pbkdf2_hmac("sha256", _normalize(password), salt, _ITERATIONS)
        client_key = hmac.digest(salted, b"Client Key", "sha256")
        server_key = hmac.digest(salted, b"Server Key", "sha256")
        return cls(salt, _ITERATIONS, hashlib.sha256(client_key).digest(), server_key)


@dataclass(frozen=True)
class Session:
    """A session of the console: what goes into the cookie, and into forms."""

    principal: Principal
    secret: str
    """For the cookie; not stored."""
    csrf: str
    """For every form: a request that changes something must repeat it."""

    def __repr__(self) -> str:
        return f"Session({self.principal.user!r})"


class Auth:
    """Users, tokens and sessions in the server's file. All calls block: hashing takes a tenth of a second.

    Args:
        state: the server's file.
        scrypt_cost: log2 of scrypt's N.
    """

    def __init__(self, state: State, *, scrypt_cost: int = 15) -> None:
        self._state = state
        self._cost = scrypt_cost
        self._hashing = threading.BoundedSemaphore(2)  # each takes 32 MB
        self._unknown = self._hash(random_bytes(16).hex())

    # Users

    def add_user(self, name: str, password: str | None, *, by: str, subject: str | None = None) -> None:
        """Add a user; without a password she signs in through her identity provider only."""
        if _NAME.fullmatch(name) is None:
            raise InvalidInput(
                "the name of the user is not usable", why="it is a name in the ledger and in addresses",
                fix="use up to 63 of a–z, 0–9, '.', '_', '@' and '-', a letter first", parameter="user",
            )  # fmt: skip
        secrets = self._secrets(password)

        def work(connection: sqlite3.Connection) -> None:
            if connection.execute("SELECT 1 FROM users WHERE name = ?", [name]).fetchone():
                raise InvalidInput(
                    f"there is a user {name} already", why="names are unique",
                    fix="choose another name, or set a new password", parameter="user",
                )  # fmt: skip
            row = [name, *secrets, subject, 1, now()]
            connection.execute("INSERT INTO users VALUES (?, ?, ?, ?, ?, ?)", row)
            append_audit(connection, by, "add user", user=name)

        self._state.write(work)

    def set_password(self, name: str, password: str, *, by: str) -> None:
        """Set a password; all sessions of the user end, and connections that the old one opened."""
        secrets = self._secrets(password)

        def work(connection: sqlite3.Connection) -> None:
            _require_user(connection, name)
            connection.execute("UPDATE users SET password = ?, verifier = ? WHERE name = ?", [*secrets, name])
            connection.execute("DELETE FROM sessions WHERE user = ?", [name])
            append_audit(connection, by, "set password", user=name)

        self._state.write(work)

    def set_active(self, name: str, *, is_active: bool, by: str) -> None:
        """Lock a user out, with all sessions and tokens, or let her in again."""

        def work(connection: sqlite3.Connection) -> None:
            _require_user(connection, name)
            connection.execute("UPDATE users SET is_active = ? WHERE name = ?", [int(is_active), name])
            connection.execute("DELETE FROM sessions WHERE user = ?", [name])
            append_audit(connection, by, "unlock user" if is_active else "lock user", user=name)

        self._state.write(work)

    def set_role(self, name: str, dataset: str, role: Role | None, *, by: str) -> None:
        """Give a user a role in a dataset, or take it away."""

        def work(connection: sqlite3.Connection) -> None:
            _require_user(connection, name)
            connection.execute("DELETE FROM roles WHERE user = ? AND dataset = ?", [name, dataset])
            if role is not None:
                connection.execute("INSERT INTO roles VALUES (?, ?, ?)", [name, dataset, role.value])
            append_audit(connection, by, "set role", dataset, user=name, role=role and role.value)

        self._state.write(work)

    def users(self) -> dict[str, dict[str, Role]]:
        """Return all active users with their roles by dataset."""

        def work(connection: sqlite3.Connection) -> dict[str, dict[str, Role]]:
            names = connection.execute("SELECT name FROM users WHERE is_active ORDER BY name").fetchall()
            return {name: _roles(connection, name) for (name,) in names}

        return self._state.read(work)

    def roles(self, principal: Principal) -> dict[str, Role]:
        """Return what somebody may do now, by dataset; nothing if she, her token or session is not valid.

        Guarantee: a role that was taken away, a token that was revoked or expired, and a session that ended
            allow nothing from that moment on.
        """
        return self._state.read(lambda connection: _current_roles(connection, principal))

    # Signing in

    def sign_in(self, name: str, password: str, source: str = "") -> Principal:
        """Check a password.

        Args:
            name: the user.
            password: as typed.
            source: where the attempt comes from, for limits on guessing: an address of the network.
        """
        self.check_attempt(name, source)
        row = self._state.read(
            lambda connection: connection.execute(
                "SELECT password FROM users WHERE name = ? AND is_active AND password IS NOT NULL", [name]
            ).fetchone()
        )
        stored = self._unknown if row is None else row[0]
        is_right = self._matches(password[: _MAX_PASSWORD + 1], stored) and row is not None
        return self.finish_attempt(name, source, is_right=is_right)

    def sign_in_with_token(self, secret: str, source: str = "") -> Principal:
        """Check a token. Nobody guesses 256 bits: a right one is let in, whatever else its source tried."""
        match = _TOKEN.fullmatch(secret)
        token_id = "" if match is None else match[1]

        def work(connection: sqlite3.Connection) -> Principal | None:
            row = connection.execute("SELECT user, digest FROM tokens WHERE id = ?", [token_id]).fetchone()
            user, expected = ("", "0" * 64) if row is None else row
            principal = Principal(user, token_id=token_id)
            is_right = hmac.compare_digest(_digest(secret), expected) and row is not None
            if not is_right or not _is_valid(connection, principal):
                return None
            return replace(principal, roles=_current_roles(connection, principal))

        principal = self._state.read(work)
        if principal is None:
            self.check_attempt("", source)
            self._note_failure(f"source {source}", _SOURCE_FAILURES)
            raise _unknown_error()
        return principal

    def sign_in_with_subject(self, subject: str, email: str | None) -> Principal:
        """Let in whom an identity provider vouches for: a user that was added, by subject or by address.

        Args:
            subject: the issuer and the provider's name of a person, which never changes.
            email: her address, if the provider has verified it. The first time, a user of this name without a
                password is hers from then on.
        """

        def work(connection: sqlite3.Connection) -> str | None:
            known = connection.execute("SELECT name FROM users WHERE subject = ?", [subject]).fetchone()
            if known is None and email is not None:
                connection.execute(
                    "UPDATE users SET subject = ? WHERE name = ? AND subject IS NULL AND password IS NULL",
                    [subject, email],
                )
                known = connection.execute("SELECT name FROM users WHERE subject = ?", [subject]).fetchone()
            return None if known is None else str(known[0])

        principal = Principal(self._state.write(work) or "")
        if not principal.user or not self._is_valid(principal):
            raise _unknown_error()
        self._state.audit(principal.user, "sign in", provider=True)
        return replace(principal, roles=self.roles(principal))

    def scram_verifier(self, name: str) -> ScramVerifier:
        """Return the verifier of a user, or of a token by its id; of somebody unknown, a made-up one.

        A door that speaks SCRAM calls `check_attempt`, then this, and `finish_attempt` with what came out.
        """

        def work(connection: sqlite3.Connection) -> tuple[str] | None:
            row: tuple[str] | None = connection.execute(
                "SELECT verifier FROM users WHERE name = ? AND is_active AND verifier IS NOT NULL "
                "UNION ALL SELECT verifier FROM tokens WHERE id = ? AND is_active AND expires > ?",
                [name, name, now()],
            ).fetchone()
            return row

        row, secret = self._state.read(work), self._state.secret
        salt = hmac.digest(secret, b"salt " + name.encode(errors="replace"), "sha256")[:16]
        unknown = ScramVerifier(salt, _ITERATIONS, random_bytes(32), random_bytes(32))
        return unknown if row is None else ScramVerifier.from_text(row[0])

    def check_attempt(self, name: str, source: str) -> None:
        """Refuse an attempt to sign in where there were too many wrong ones."""
        keys = [f"pair {name} {source}", f"source {source}"]

        def work(connection: sqlite3.Connection) -> bool:
            question = "SELECT 1 FROM failures WHERE key IN (?, ?) AND until > ?"
            return connection.execute(question, [*keys, now()]).fetchone() is not None

        if self._state.read(work):
            raise Unavailable(
                "there were too many wrong attempts to sign in", why="guessing is limited",
                fix="wait, and try again", parameter="authorization",
            )  # fmt: skip

    def finish_attempt(self, name: str, source: str, *, is_right: bool) -> Principal:
        """Return the principal of a right attempt; count and refuse a wrong one.

        Args:
            name: the user, or the id of a token.
            source: as for `sign_in`.
            is_right: whether the proof was right.
        """
        token, password = self._state.read(
            lambda connection: (
                connection.execute("SELECT user, id FROM tokens WHERE id = ?", [name]).fetchone(),
                connection.execute("SELECT verifier FROM users WHERE name = ?", [name]).fetchone(),
            )
        )
        user, token_id = (name, None) if token is None else token
        password_id = None if token is not None or password is None else _digest(str(password[0]))
        principal = Principal(user, token_id=token_id, password_id=password_id)
        if not is_right or not self._is_valid(principal):
            self._note_failure(f"pair {name} {source}", _FREE_FAILURES)
            self._note_failure(f"source {source}", _SOURCE_FAILURES)
            raise _unknown_error()
        roles = self.roles(principal)
        self._state.write(
            lambda connection: connection.execute(
                "DELETE FROM failures WHERE key = ?", [f"pair {name} {source}"]
            )
        )
        self._state.audit(user, "sign in", token=token_id)
        return replace(principal, roles=roles)

    def _is_valid(self, principal: Principal) -> bool:
        return self._state.read(lambda connection: _is_valid(connection, principal))

    def _note_failure(self, key: str, free: int) -> None:
        """Count a wrong attempt; from `free` on, lock for a time that doubles."""

        def work(connection: sqlite3.Connection) -> None:
            connection.execute("DELETE FROM failures WHERE until < ?", [now() - _DAY])
            row = connection.execute("SELECT count FROM failures WHERE key = ?", [key]).fetchone()
            count = 1 if row is None else row[0] + 1
            lock = min(_LOCK_SECONDS[0] * 2.0 ** min(count - free, 10), _LOCK_SECONDS[1])
            until = now() + (lock if count >= free else 0)
            connection.execute("INSERT OR REPLACE INTO failures VALUES (?, ?, ?)", [key, count, until])
            if count == free:
                append_audit(connection, "", "lock after wrong attempts")

        self._state.write(work)

    # Sessions

    def start_session(self, principal: Principal) -> Session:
        """Start a session of somebody who has signed in; its secret is for a cookie."""
        secret, csrf = _make_secret(), _make_secret()
        key = _digest(secret)
        row = [key, principal.user, csrf, now(), now() + _SESSION_SECONDS]

        def work(connection: sqlite3.Connection) -> None:
            connection.execute("DELETE FROM sessions WHERE expires < ?", [now()])
            connection.execute("INSERT INTO sessions VALUES (?, ?, ?, ?, ?)", row)

        self._state.write(work)
        return Session(replace(principal, session_id=key), secret, csrf)

    def find_session(self, secret: str) -> Session | None:
        """Return the session of a cookie, if it is still valid; each use prolongs it."""
        key = _digest(secret)

        def work(connection: sqlite3.Connection) -> tuple[Session, float] | None:
            row = connection.execute(
                "SELECT user, csrf, used FROM sessions WHERE digest = ?", [key]
            ).fetchone()
            principal = Principal("" if row is None else row[0], session_id=key)
            if row is None or not _is_valid(connection, principal):
                return None
            principal = replace(principal, roles=_current_roles(connection, principal))
            return Session(principal, secret, row[1]), row[2]

        # A cookie can be made up: only a valid session writes, so that no stranger waits for the disk.
        known = self._state.read(work)
        if known is None:
            return None
        session, used = known
        if now() - used > 60:
            self._state.write(
                lambda connection: connection.execute(
                    "UPDATE sessions SET used = ? WHERE digest = ?", [now(), key]
                )
            )
        return session

    def end_session(self, session: Session) -> None:
        """End a session."""
        self._state.write(
            lambda connection: connection.execute(
                "DELETE FROM sessions WHERE digest = ?", [session.principal.session_id]
            )
        )

    # Tokens

    def make_token(
        self,
        principal: Principal,
        name: str,
        *,
        datasets: tuple[str, ...] | None = None,
        role: Role = Role.ANALYST,
        epsilon: str | None = None,
        days: float = 30,
    ) -> tuple[Token, str]:
        """Make a token of one's own; return it with its secret, which is not stored and shown once.

        Args:
            principal: the user; somebody who came with a token cannot make another.
            name: what it is for.
            datasets: where it may be used; None for everywhere.
            role: the most that it allows.
            epsilon: the most ε that may be spent through it.
            days: after which it expires, at most 366.
        """
        if principal.token_id is not None or not principal.user:
            raise AccessDenied(
                "a token cannot make tokens", why="it could outlive itself",
                fix="sign in with a password to make one",
            )  # fmt: skip
        cap = None if epsilon is None else str(parse_positive(parse_number(epsilon, "epsilon"), "epsilon"))
        if not 0 < days <= 366:
            raise InvalidInput(
                "{days} is not between 0 and 366", why="a token that is forgotten must expire",
                fix="pass a number of days", parameter="days",
            )  # fmt: skip
        token_id, secret = random_bytes(8).hex(), _make_secret()
        text = f"hub_{token_id}_{secret}"
        expires = now() + days * _DAY
        listed = None if datasets is None else ",".join(datasets)
        row = [
            token_id, principal.user, _digest(text), ScramVerifier.of(text).to_text(), name[:100], listed,
            role.value, cap, "0", expires, 1, now(),
        ]  # fmt: skip

        def work(connection: sqlite3.Connection) -> None:
            connection.execute(f"INSERT INTO tokens VALUES ({', '.join('?' * len(row))})", row)  # noqa: S608 - no text of others
            append_audit(connection, principal.user, "make token", token=token_id)

        self._state.write(work)
        return self._token(token_id), text

    def own_tokens(self, principal: Principal) -> list[Token]:
        """Return the tokens of somebody; who came with a token sees that one alone."""
        every = self.tokens(principal.user)
        return [each for each in every if principal.token_id in {None, each.token_id}]

    def revoke_own_token(self, principal: Principal, token_id: str) -> None:
        """Revoke a token of one's own; a token revokes itself alone, so that a stolen one stops no other."""
        if principal.token_id not in {None, token_id}:
            raise AccessDenied(
                "a token cannot revoke another", why="whoever holds it could stop all programs of its user",
                fix="sign in with a password to revoke it",
            )  # fmt: skip
        self.revoke_token(token_id, by=principal.user, user=principal.user)

    def tokens(self, user: str | None = None) -> list[Token]:
        """Return the tokens of a user, or of all."""
        rows = self._state.read(
            lambda connection: connection.execute(
                "SELECT id FROM tokens WHERE user = ? OR ? IS NULL ORDER BY created", [user, user]
            ).fetchall()
        )
        return [self._token(token_id) for (token_id,) in rows]

    def _token(self, token_id: str) -> Token:
        columns = "user, name, datasets, role, epsilon, spent, expires, is_active"
        user, name, listed, role, most, spent, expires, is_active = self._state.read(
            lambda connection: connection.execute(
                f"SELECT {columns} FROM tokens WHERE id = ?",  # noqa: S608 - our own names
                [token_id],
            ).fetchone()
        )
        datasets = None if listed is None else tuple(filter(None, listed.split(",")))
        cap = None if most is None else format_down(Fraction(most))
        paid, is_usable = format_up(Fraction(spent)), bool(is_active) and expires > now()
        return Token(token_id, user, name, datasets, Role(role), cap, paid, moment(expires), is_usable)

    def revoke_token(self, token_id: str, *, by: str, user: str | None) -> None:
        """Revoke a token; `user` is its owner, None for anybody's."""

        def work(connection: sqlite3.Connection) -> None:
            changed = connection.execute(
                "UPDATE tokens SET is_active = 0 WHERE id = ? AND (user = ? OR ? IS NULL)",
                [token_id, user, user],
            )
            if changed.rowcount == 0:
                raise InvalidInput(
                    "there is no such token", why="you can revoke only your own tokens",
                    fix="list your tokens to see their ids", parameter="token_id",
                )  # fmt: skip
            append_audit(connection, by, "revoke token", token=token_id)

        self._state.write(work)

    def reserve(self, principal: Principal, epsilon: Fraction) -> None:
        """Count an ε against the cap of the token that was used, before anything is charged; or refuse.

        Guarantee: what is charged through a token never exceeds its cap, with any number of requests at once.
        """
        if principal.token_id is None:
            return

        def work(connection: sqlite3.Connection) -> None:
            cap, spent = connection.execute(
                "SELECT epsilon, spent FROM tokens WHERE id = ?", [principal.token_id]
            ).fetchone()
            total = Fraction(spent) + epsilon
            if cap is not None and total > Fraction(cap):
                raise AccessDenied(
                    "the question costs more than is left of the token's cap",
                    why="whoever made the token limited what it may spend",
                    fix="ask for less ε, or use another token",
                    parameter="epsilon",
                )
            connection.execute(
                "UPDATE tokens SET spent = ? WHERE id = ?", [str(max(total, Fraction(0))), principal.token_id]
            )

        self._state.write(work)

    # Hashing

    def _secrets(self, password: str | None) -> tuple[str | None, str | None]:
        if password is None:
            return None, None
        if not _MIN_PASSWORD <= len(password) <= _MAX_PASSWORD:
            raise InvalidInput(
                f"the password has fewer than {_MIN_PASSWORD} characters, or more than {_MAX_PASSWORD}",
                why="short ones are guessed", fix="use a sentence, or a generated one", parameter="password",
            )  # fmt: skip
        return self._hash(password), ScramVerifier.of(password).to_text()

    def _hash(self, password: str, salt: bytes | None = None, cost: int | None = None) -> str:
        salt, cost = salt or random_bytes(16), cost or self._cost
        with self._hashing:
            out = hashlib.scrypt(
                _normalize(password), salt=salt, n=1 << cost, r=8, p=3, maxmem=1 << (cost + 12), dklen=32
            )
        return f"scrypt${cost}${salt.hex()}${out.hex()}"

    def _matches(self, password: str, stored: str) -> bool:
        _, cost, salt, _ = stored.split("$")
        return hmac.compare_digest(self._hash(password, bytes.fromhex(salt), int(cost)), stored)


def _normalize(password: str) -> bytes:
    return unicodedata.normalize("NFKC", password).encode(errors="replace")


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode(errors="replace")).hexdigest()


def _make_secret() -> str:
    return base64.urlsafe_b64encode(random_bytes(32)).rstrip(b"=").decode()


def _require_user(connection: sqlite3.Connection, name: str) -> None:
    if connection.execute("SELECT 1 FROM users WHERE name = ?", [name]).fetchone() is None:
        raise InvalidInput(
            "there is no such user", why="users are added first", fix="add the user", parameter="user"
        )


def _roles(connection: sqlite3.Connection, user: str) -> dict[str, Role]:
    rows = connection.execute("SELECT dataset, role FROM roles WHERE user = ? ORDER BY dataset", [user])
    return {dataset: Role(role) for dataset, role in rows.fetchall()}


def _is_valid(connection: sqlite3.Connection, principal: Principal) -> bool:
    """True if the user, and her password, token or session, may be used now."""
    if principal.password_id is not None:
        row = connection.execute("SELECT verifier FROM users WHERE name = ?", [principal.user]).fetchone()
        if row is None or _digest(str(row[0])) != principal.password_id:
            return False
    questions: list[tuple[str, list[object]]] = [
        ("SELECT 1 FROM users WHERE name = ? AND is_active", [principal.user])
    ]
    if principal.token_id is not None:
        text = "SELECT 1 FROM tokens WHERE id = ? AND user = ? AND is_active AND expires > ?"
        questions.append((text, [principal.token_id, principal.user, now()]))
    if principal.session_id is not None:
        text = "SELECT 1 FROM sessions WHERE digest = ? AND user = ? AND expires > ? AND used > ?"
        questions.append((text, [principal.session_id, principal.user, now(), now() - _IDLE_SECONDS]))
    return all(connection.execute(text, values).fetchone() for text, values in questions)


def _current_roles(connection: sqlite3.Connection, principal: Principal) -> dict[str, Role]:
    if not _is_valid(connection, principal):
        return {}
    roles = _roles(connection, principal.user)
    if principal.token_id is None:
        return roles
    listed, most = connection.execute(
        "SELECT datasets, role FROM tokens WHERE id = ?", [principal.token_id]
    ).fetchone()
    scope = None if listed is None else set(listed.split(","))
    return {
        dataset: min(role, Role(most), key=lambda each: each.rank)
        for dataset, role in roles.items()
        if scope is None or dataset in scope
    }


def _unknown_error() -> AccessDenied:
    return AccessDenied(
        "the user, the password or the token is wrong",
        why="the answer is the same for each, so that names cannot be guessed",
        fix="check them; a token may have expired",
        parameter="authorization",
    )
