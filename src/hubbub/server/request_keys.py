"""Idempotency keys: a client's own names for its requests, so that one it repeats is not made twice."""

import sqlite3
from typing import Any

from hubbub.errors import InvalidInput
from hubbub.ledger.entries import digest
from hubbub.server.state import State, now

__all__ = ["RequestKeys"]

_SECONDS = 7 * 86400.0
"""Time for which a key is remembered."""


class RequestKeys:
    """The keys in the server's file, by user; each identifies one request."""

    def __init__(self, state: State) -> None:
        self._state = state

    def remember(self, user: str, key: str, request: list[Any]) -> float | None:
        """Remember a request under a key, and return since when; None if it was made before.

        Another request under a known key is refused.
        """
        if not 0 < len(key) <= 255 or not key.isprintable():
            raise InvalidInput(
                "the idempotency key is empty or too long", why="it identifies one request",
                fix="use a random one of up to 255 characters", parameter="idempotency_key",
            )  # fmt: skip
        stated, since = digest(request), now()

        def work(connection: sqlite3.Connection) -> str | None:
            connection.execute("DELETE FROM requests WHERE created < ?", [since - _SECONDS])
            row = connection.execute(
                "SELECT digest FROM requests WHERE user = ? AND key = ?", [user, key]
            ).fetchone()
            if row is None:
                connection.execute("INSERT INTO requests VALUES (?, ?, ?, ?)", [user, key, stated, since])
            return None if row is None else str(row[0])

        known = self._state.write(work)
        if known not in {None, stated}:
            raise InvalidInput(
                "the idempotency key was used for another request", why="one key identifies one request",
                fix="use a new key", parameter="idempotency_key",
            )  # fmt: skip
        return since if known is None else None

    def confirm(self, user: str, key: str, request: list[Any]) -> None:
        """Remember a request that has an outcome; if it was made twice, the other one forgets it no more."""
        row = [user, key, digest(request), now()]
        self._state.write(
            lambda connection: connection.execute(
                "INSERT INTO requests VALUES (?, ?, ?, ?) ON CONFLICT (user, key) DO UPDATE "
                "SET created = max(excluded.created, created + 1e-3) WHERE digest = excluded.digest",
                row,
            )
        )

    def forget(self, user: str, key: str, since: float) -> None:
        """Forget a request for which nothing was charged: its repetition is the first.

        Args:
            user: who made it.
            key: its name.
            since: what `remember` returned; a request that was confirmed later stays.
        """
        self._state.write(
            lambda connection: connection.execute(
                "DELETE FROM requests WHERE user = ? AND key = ? AND created = ?", [user, key, since]
            )
        )
