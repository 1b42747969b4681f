"""What stands in a ledger, and every statement that reads or writes it.

Lines are chained: each holds the digest of the one before. Totals are running sums of the lines, sealed so
that a byte that rots is noticed before it is charged against; `verify` adds them up again.

Proof: docs/proofs/ledger.md, "Tamper evidence"
"""

import hashlib
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from fractions import Fraction
from typing import Any

from hubbub.accounting import ComposableCost, PrivacyFilter
from hubbub.errors import HubbubError, InvalidInput, LedgerFailed
from hubbub.ledger.sqlite import Rows

__all__ = [
    "EVERYBODY",
    "START",
    "Entries",
    "Entry",
    "cost_from_plain",
    "cost_to_plain",
    "covers",
    "damaged",
    "digest",
    "now",
    "plain_text",
    "read_as_written",
]

START = "0" * 64
EVERYBODY = ""
"""The owner's name, under which an account's own total is kept."""
_COLUMNS = "number, account, kind, who, moment, body, previous, digest"
_PAGE = 1000
_FIGURE = re.compile(r"[0-9]{1,4000}(/[1-9][0-9]{0,3999})?", re.ASCII)
_SLACK = 1 + Fraction(1, 2**30)
"""Another machine's mathematics may round up to another last digit."""


@dataclass(frozen=True)
class Entry:
    """One line of the ledger."""

    number: int
    account: str
    kind: str
    """open, rows, grant, charge, seen, release, version, exact, restored, close."""
    who: str
    """On whose behalf; empty for the owner."""
    moment: str
    """By the clock of the machine; the order is the numbers', not the clock's."""
    text: str
    """What happened, as JSON."""
    previous: str
    digest: str

    @property
    def body(self) -> dict[str, Any]:
        """What happened."""
        try:
            found = json.loads(self.text)
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            raise damaged(f"line {self.number}")
        return found

    def expected_digest(self) -> str:
        """What the digest must be: of all the rest, and of the line before."""
        try:
            return digest(
                [self.number, self.account, self.kind, self.who, self.moment, self.text, self.previous]
            )
        except TypeError:  # SQLite keeps bytes in a column of texts if it is told to
            return ""


class Entries:
    """A ledger's lines and totals within one transaction."""

    def __init__(self, rows: Rows) -> None:
        self.rows = rows

    # Lines

    def append(self, account: str, kind: str, who: str, body: dict[str, Any]) -> Entry:
        """Write the next line."""
        last, previous = self.head() or (0, START)
        number = last + 1
        moment = now()
        text = plain_text(body)
        parts = (number, account, kind, who, moment, text, previous)
        entry = Entry(*parts, digest(list(parts)))
        self.rows.run("INSERT INTO entries VALUES (?, ?, ?, ?, ?, ?, ?, ?)", (*parts, entry.digest))
        return entry

    def head(self) -> tuple[int, str] | None:
        """The number and the digest of the last line, which must be as it was written."""
        last = self.last()
        if last is None:
            return None
        _check(last)
        return last.number, last.digest

    def last(self) -> Entry | None:
        """The last line."""
        found = self.rows.run(f"SELECT {_COLUMNS} FROM entries ORDER BY number DESC LIMIT 1")  # noqa: S608
        return Entry(*found[0]) if found else None

    def line(self, number: int) -> Entry:
        """One line, as it was written."""
        found = self.rows.run(f"SELECT {_COLUMNS} FROM entries WHERE number = ?", (number,))  # noqa: S608
        if not found:
            raise damaged(f"line {number}")
        entry = Entry(*found[0])
        _check(entry)
        return entry

    def lines(self) -> Iterator[Entry]:
        """All lines in their order."""
        for row in self.rows.each(f"SELECT {_COLUMNS} FROM entries ORDER BY number"):  # noqa: S608
            yield Entry(*row)

    def page(self, after: int) -> list[Entry]:
        """The lines that follow one, a thousand of them."""
        text = f"SELECT {_COLUMNS} FROM entries WHERE number > ? ORDER BY number LIMIT {_PAGE}"  # noqa: S608
        return [Entry(*row) for row in self.rows.run(text, (after,))]

    def of_kind(self, kind: str, account: str) -> list[Entry]:
        """An account's lines of one of the rare kinds."""
        text = f"SELECT {_COLUMNS} FROM entries WHERE kind = ? AND account = ? ORDER BY number"  # noqa: S608
        found = [Entry(*row) for row in self.rows.run(text, (kind, account))]
        for entry in found:
            _check(entry)
        return found

    def accounts(self) -> list[str]:
        """The names of all accounts."""
        found = self.rows.run("SELECT account FROM entries WHERE kind = 'open' ORDER BY account")
        return [row[0] for row in found]

    def openings(self) -> list[Entry]:
        """How all accounts were opened."""
        return self.all_of_kind("open")

    def all_of_kind(self, kind: str) -> list[Entry]:
        """All accounts' lines of one of the rare kinds."""
        text = f"SELECT {_COLUMNS} FROM entries WHERE kind = ? ORDER BY number"  # noqa: S608
        found = [Entry(*row) for row in self.rows.run(text, (kind,))]
        for entry in found:
            _check(entry)
        return found

    def opening(self, account: str) -> dict[str, Any] | None:
        """How an account was opened."""
        found = self.of_kind("open", account)
        return found[0].body if found else None

    # Totals

    def total(self, account: str, who: str) -> PrivacyFilter | None:
        """What somebody may spend and has spent."""
        found = self.rows.run("SELECT state, seal FROM totals WHERE account = ? AND who = ?", (account, who))
        if not found:
            return None
        state, seal = found[0]
        if seal != digest([account, who, state]):
            raise damaged("a total")
        if state not in _READ:
            try:
                _remember(state, PrivacyFilter.from_json(state))
            except InvalidInput:
                raise damaged("a total") from None
        return _READ[state]

    def keep(self, account: str, who: str, total: PrivacyFilter) -> None:
        """Keep a new total."""
        state = total.to_json()
        self.rows.run(
            "INSERT INTO totals VALUES (?, ?, ?, ?) ON CONFLICT (account, who) "
            "DO UPDATE SET state = excluded.state, seal = excluded.seal",
            (account, who, state, digest([account, who, state])),
        )
        _remember(state, total)

    def analysts(self, account: str) -> list[str]:
        """Who has a budget in an account."""
        text = "SELECT who FROM totals WHERE account = ? AND who <> '' ORDER BY who"
        return [row[0] for row in self.rows.run(text, (account,))]

    # Charges and their releases

    def charge_of(self, account: str, key: str) -> int | None:
        """The line that charged this key."""
        found = self.rows.run(
            "SELECT number FROM charges WHERE account = ? AND charge_key = ?", (account, key)
        )
        return int(found[0][0]) if found else None

    def charged(self, account: str, key: str | None, number: int) -> None:
        """Remember where a key was charged."""
        self.rows.run("INSERT INTO charges VALUES (?, ?, ?, NULL)", (number, account, key))

    def is_settled(self, number: int) -> bool:
        """Whether the outcome of a charge is stored; so it is taken to be by who may not look."""
        found = self.rows.run("SELECT released FROM charges WHERE number = ?", (number,))
        return not found or found[0][0] is not None

    def give_up(self, number: int) -> None:
        """Free the key of a charge that does not stand for it: another line is charged in its place."""
        self.rows.run("UPDATE charges SET charge_key = NULL WHERE number = ?", (number,))

    def saw(self, number: int, who: str) -> bool:
        """Whether an analyst has paid to see what another had charged."""
        return bool(self.rows.run("SELECT 1 FROM seen WHERE number = ? AND who = ?", (number, who)))

    def see(self, number: int, who: str) -> None:
        """Remember that she has."""
        self.rows.run("INSERT INTO seen VALUES (?, ?)", (number, who))

    def release(self, account: str, number: int) -> str | None:
        """What was released for a charge; an error where it was, and is not there as it was."""
        found = self.rows.run(
            "SELECT charges.released, releases.body FROM charges "
            "LEFT JOIN releases ON releases.number = charges.number "
            "WHERE charges.number = ? AND charges.account = ?",
            (number, account),
        )
        if not found:
            raise InvalidInput(
                f"line {number} is no charge of this account", why="only charges have a release", fix="charge"
            )
        line, body = found[0]
        if line is None and body is None:
            return None
        if line is None or body is None or self.line(line).body.get("release") != digest(body):
            raise damaged(f"the release of line {number}")
        return str(body)

    def last_release(self) -> str:
        """How the last one begins."""
        found = self.rows.run("SELECT substr(body, 1, 20) FROM releases ORDER BY number DESC LIMIT 1")
        return str(found[0][0]) if found else ""

    def keep_release(self, number: int, line: int, body: str) -> None:
        """Keep what was released."""
        self.rows.run("INSERT INTO releases VALUES (?, ?)", (number, body))
        self.rows.run("UPDATE charges SET released = ? WHERE number = ?", (line, number))


_READ: dict[str, PrivacyFilter] = {}
"""Totals by the text that was read or written last: who charges next reads the same one again."""


def _remember(state: str, total: PrivacyFilter) -> None:
    if len(_READ) >= 64:
        _READ.clear()
    _READ[state] = total


def _check(entry: Entry) -> None:
    if entry.digest != entry.expected_digest():
        raise damaged(f"line {entry.number}")


def damaged(what: str) -> LedgerFailed:
    """The error for what is not as it was written."""
    return LedgerFailed(
        f"{what} of the ledger is not as it was written",
        why="what was spent can no longer be told from it",
        fix="run `hubbub ledger verify`, and restore the file from a copy that is whole",
    )


@contextmanager
def read_as_written() -> Iterator[None]:
    """Where a line does not say what lines of its kind do, somebody else wrote it: that is said."""
    try:
        yield
    except HubbubError:
        raise
    except (KeyError, IndexError, TypeError, ValueError, AttributeError):
        raise damaged("a line") from None


def now() -> str:
    """By the clock of this machine."""
    return datetime.now(UTC).isoformat(timespec="microseconds")


def plain_text(value: Any) -> str:
    """JSON in one way only."""
    return json.dumps(value, sort_keys=True, ensure_ascii=True, separators=(",", ":"))


def digest(value: Any) -> str:
    """SHA-256 of a JSON value."""
    return hashlib.sha256(plain_text(value).encode()).hexdigest()


def cost_to_plain(cost: ComposableCost) -> dict[str, Any]:
    """The figures that were charged, beside the facts: a later version may state sharper ones."""
    return {
        "epsilon": _said(cost.epsilon),
        "delta": _said(cost.delta),
        "mu_squared": _said(cost.mu_squared),
        "rho": _said(cost.rho),
        "renyi": [_said(value) for value in cost.renyi],
    }


def cost_from_plain(stored: dict[str, Any], orders: tuple[Fraction, ...]) -> ComposableCost:
    """The figures that were charged, at the orders of the account."""
    return ComposableCost(
        _read(stored["epsilon"]),
        _given(stored["delta"]),
        tuple(_read(value) for value in stored["renyi"]),
        _read(stored["mu_squared"]),
        _read(stored["rho"]),
        orders,
    )


def _said(value: Fraction | None) -> str | None:
    return None if value is None else str(value)


def _read(value: Any) -> Fraction | None:
    return None if value is None else _given(value)


def _given(value: Any) -> Fraction:
    """A figure as it is written; another text might take for ever to be read, such as 1e999999999."""
    if not isinstance(value, str) or not _FIGURE.fullmatch(value):
        raise damaged("a figure")
    return Fraction(value)


def covers(charged: ComposableCost, known: ComposableCost) -> bool:
    """Whether no figure charged is below what is known now; a later version may know sharper ones."""
    pairs = [
        (charged.epsilon, known.epsilon),
        (charged.mu_squared, known.mu_squared),
        (charged.rho, known.rho),
        (charged.delta, known.delta),
        *zip(charged.renyi, known.renyi, strict=True),
    ]
    return all(was is None or (now is not None and was * _SLACK >= now) for was, now in pairs)
