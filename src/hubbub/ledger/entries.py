"""The entries of a ledger, and every statement that reads or writes them.

Entries are chained: each contains the digest of the one before. The state of each privacy filter (a running
sum of the entries) is stored beside them with a digest, so that a corrupted byte is noticed before anything
is charged against it; `verify` adds the entries up again.

Proof: docs/proofs/ledger.md, "Tamper evidence"
"""

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, date, datetime
from enum import StrEnum
from typing import Any

from hubbub.accounting import FilterCharge, PrivacyFilter, PrivacyLoss
from hubbub.accounting.codec import canonical_json
from hubbub.accounting.filter_pricing import is_charge_true
from hubbub.accounting.filter_second_stage import decode_charge
from hubbub.accounting.serialization import stored_loss
from hubbub.errors import HubbubError, InvalidInput, LedgerFailed
from hubbub.ledger.store import Transaction
from hubbub.unit import Window

__all__ = [
    "ERROR_PREFIX",
    "OWNER",
    "START",
    "Entries",
    "Entry",
    "EntryKind",
    "check_name",
    "check_text",
    "corruption_error",
    "digest",
    "is_fully_paid",
    "read_charge",
    "read_loss",
    "read_window",
    "refuse_malformed",
    "utc_now",
]

START = "0" * 64
"""The digest before the first entry."""
OWNER = ""
"""The owner's name, under which an account's own filter is stored."""
ERROR_PREFIX = '{"format": "hubbub outcome/1"'
"""The first characters of an outcome that is an error."""
_COLUMNS = "number, account, kind, analyst, timestamp, body, previous, digest"
_PAGE_SIZE = 1000
_MAX_NAME_LENGTH = 200
_MAX_CACHED_FILTERS = 64


class EntryKind(StrEnum):
    """What an entry records; the value is what is stored.

    A new kind is added here, written by `account`, and replayed by `verify`. docs/ledger.md, "Format", lists
    the fields of each body.
    """

    OPEN = "open"
    """An account is opened: its unit, budget and window."""
    CLAIM = "claim"
    """An account pays for the rows of a dataset."""
    GRANT = "grant"
    """An analyst gets a budget within the account's."""
    CHARGE = "charge"
    """A loss is charged, before its mechanism runs."""
    VIEW = "view"
    """An analyst pays to view a release that somebody else charged."""
    RELEASE = "release"
    """The outcome of a charge is stored."""
    VERSION = "version"
    """The owner names a new version of the rows."""
    NONPRIVATE_ACCESS = "nonprivate_access"
    """The owner has looked at exact values."""
    OVERRIDE = "override"
    """The owner has overridden a declaration of hubbub.toml."""
    RESTORE = "restore"
    """A backup became the ledger, with what its owner says was spent since."""
    CLOSE = "close"
    """Nothing more is charged to the account."""


@dataclass(frozen=True)
class Entry:
    """One entry of the ledger."""

    number: int
    account: str
    kind: str
    """An `EntryKind`; anything else was not written by hubbub."""
    analyst: str
    """The analyst who asked; empty for the owner."""
    timestamp: str
    """By the machine's clock; entries are ordered by number, not by time."""
    text: str
    """The body as canonical JSON."""
    previous: str
    """The digest of the entry before."""
    digest: str

    @property
    def body(self) -> dict[str, Any]:
        """What happened; the fields depend on the kind (docs/ledger.md, "Format")."""
        try:
            body = json.loads(self.text)
        except (ValueError, RecursionError):
            body = None
        if not isinstance(body, dict):
            raise corruption_error(f"entry {self.number}")
        return body

    def expected_digest(self) -> str:
        """Compute the digest from all other fields, and so from the entry before."""
        try:
            return digest(
                [
                    self.number,
                    self.account,
                    self.kind,
                    self.analyst,
                    self.timestamp,
                    self.text,
                    self.previous,
                ]
            )
        except TypeError:  # SQLite stores bytes in a column of texts if it is asked to
            return ""


class Entries:
    """The entries of a ledger, and the tables derived from them, within one transaction."""

    def __init__(self, transaction: Transaction) -> None:
        self.transaction = transaction

    # Entries

    def append(self, account: str, kind: EntryKind, analyst: str, body: dict[str, Any]) -> Entry:
        """Write the next entry."""
        last, previous = self.head() or (0, START)
        fields = (last + 1, account, str(kind), analyst, utc_now(), canonical_json(body), previous)
        entry = Entry(*fields, digest(list(fields)))
        self.transaction.execute(
            "INSERT INTO entries VALUES (?, ?, ?, ?, ?, ?, ?, ?)", (*fields, entry.digest)
        )
        return entry

    def head(self) -> tuple[int, str] | None:
        """Return the number and the digest of the last entry, which must be unchanged."""
        last = self.last()
        if last is None:
            return None
        _check_digest(last)
        return last.number, last.digest

    def last(self) -> Entry | None:
        """Return the last entry."""
        entries = self._select("ORDER BY number DESC LIMIT 1")
        return entries[0] if entries else None

    def get(self, number: int) -> Entry:
        """Return one entry, which must be unchanged."""
        entries = self._select("WHERE number = ?", number)
        if not entries:
            raise corruption_error(f"entry {number}")
        _check_digest(entries[0])
        return entries[0]

    def iterate(self) -> Iterator[Entry]:
        """Iterate over all entries in order."""
        for row in self.transaction.stream(f"SELECT {_COLUMNS} FROM entries ORDER BY number"):  # noqa: S608
            yield Entry(*row)

    def page(self, after: int) -> list[Entry]:
        """Return up to a thousand entries after this number."""
        return self._select(f"WHERE number > ? ORDER BY number LIMIT {_PAGE_SIZE}", after)

    def of_kind(self, kind: EntryKind, account: str) -> list[Entry]:
        """Return an account's entries of one of the rare kinds."""
        entries = self._select("WHERE kind = ? AND account = ? ORDER BY number", str(kind), account)
        for entry in entries:
            _check_digest(entry)
        return entries

    def entries_of_kind(self, kind: EntryKind) -> list[Entry]:
        """Return all accounts' entries of one of the rare kinds."""
        entries = self._select("WHERE kind = ? ORDER BY number", str(kind))
        for entry in entries:
            _check_digest(entry)
        return entries

    def accounts(self) -> list[str]:
        """Return the names of all accounts."""
        rows = self.transaction.execute(
            "SELECT account FROM entries WHERE kind = ? ORDER BY account", (str(EntryKind.OPEN),)
        )
        return [row[0] for row in rows]

    def openings(self) -> list[Entry]:
        """Return the entries that opened the accounts."""
        return self.entries_of_kind(EntryKind.OPEN)

    def opening(self, account: str) -> dict[str, Any] | None:
        """Return the body of the entry that opened an account."""
        entries = self.of_kind(EntryKind.OPEN, account)
        return entries[0].body if entries else None

    def _select(self, clause: str, *parameters: object) -> list[Entry]:
        rows = self.transaction.execute(f"SELECT {_COLUMNS} FROM entries {clause}", parameters)  # noqa: S608
        return [Entry(*row) for row in rows]

    def losses_of(
        self, account: str, analyst: str = OWNER, until: float = float("inf")
    ) -> Iterator[PrivacyLoss]:
        """Iterate over what an account paid for, up to an entry, in order; or an analyst asked or viewed."""
        kinds = f"kind IN ('{EntryKind.CHARGE}', '{EntryKind.VIEW}', '{EntryKind.RESTORE}')"
        for entry in self._select(f"WHERE account = ? AND {kinds} ORDER BY number", account):
            is_hers = analyst in {OWNER, entry.analyst}
            if entry.number > until:
                break
            with refuse_malformed():
                body = entry.body
                if entry.kind == EntryKind.CHARGE and is_hers:
                    yield read_loss(body["loss"])
                elif entry.kind == EntryKind.VIEW and analyst != OWNER and is_hers:
                    yield read_loss(self.get(body["charge"]).body["loss"])
                elif entry.kind == EntryKind.RESTORE and analyst == OWNER and body.get("fits"):
                    yield read_loss(body["loss"])

    # Filters

    def get_filter(self, account: str, analyst: str) -> PrivacyFilter | None:
        """Return what somebody may spend and has spent."""
        rows = self.transaction.execute(
            "SELECT state, digest FROM filters WHERE account = ? AND analyst = ?", (account, analyst)
        )
        if not rows:
            return None
        state, stored_digest = rows[0]
        if stored_digest != digest([account, analyst, state]):
            raise corruption_error("a filter")
        known = _FILTERS.get(state)
        if known is None:
            try:
                known = PrivacyFilter.from_json(state)
            except InvalidInput:
                raise corruption_error("a filter") from None
            # Another thread may clear what is remembered at any time.
            _cache_filter(state, known)
        return known

    def store_filter(self, account: str, analyst: str, new: PrivacyFilter) -> None:
        """Store the new state of a filter."""
        state = new.to_json()
        self.transaction.execute(
            "INSERT INTO filters VALUES (?, ?, ?, ?) ON CONFLICT (account, analyst) "
            "DO UPDATE SET state = excluded.state, digest = excluded.digest",
            (account, analyst, state, digest([account, analyst, state])),
        )
        _cache_filter(state, new)

    def analysts(self, account: str) -> list[str]:
        """Return the analysts with a budget in an account."""
        rows = self.transaction.execute(
            "SELECT analyst FROM filters WHERE account = ? AND analyst <> '' ORDER BY analyst", (account,)
        )
        return [row[0] for row in rows]

    # Charges and their releases

    def find_charge(self, account: str, key: str) -> int | None:
        """Return the number of the entry that charged this key."""
        rows = self.transaction.execute(
            "SELECT number FROM charges WHERE account = ? AND charge_key = ?", (account, key)
        )
        return int(rows[0][0]) if rows else None

    def store_charge(self, account: str, key: str | None, number: int) -> None:
        """Store which entry charged a key."""
        self.transaction.execute("INSERT INTO charges VALUES (?, ?, ?, NULL)", (number, account, key))

    def has_outcome(self, number: int) -> bool:
        """Return whether the outcome of a charge is stored, or the charge is not there."""
        rows = self.transaction.execute("SELECT released FROM charges WHERE number = ?", (number,))
        return not rows or rows[0][0] is not None

    def detach_key(self, number: int) -> None:
        """Detach the key from a charge: another entry replaces it."""
        self.transaction.execute("UPDATE charges SET charge_key = NULL WHERE number = ?", (number,))

    def has_viewed(self, number: int, analyst: str) -> bool:
        """Return whether an analyst has paid to view a release that somebody else charged."""
        statement = "SELECT 1 FROM views WHERE number = ? AND analyst = ?"
        return bool(self.transaction.execute(statement, (number, analyst)))

    def store_view(self, number: int, analyst: str) -> None:
        """Store that an analyst has paid to view a release."""
        self.transaction.execute("INSERT INTO views VALUES (?, ?)", (number, analyst))

    def get_release(self, account: str, number: int) -> str | None:
        """Return the stored release of a charge, None if there is none; raise if it was changed."""
        rows = self.transaction.execute(
            "SELECT charges.released, releases.body FROM charges "
            "LEFT JOIN releases ON releases.number = charges.number "
            "WHERE charges.number = ? AND charges.account = ?",
            (number, account),
        )
        if not rows:
            raise InvalidInput(
                f"entry {number} is not a charge of this account",
                why="only charges have a release",
                fix="pass the number of a charge",
            )
        entry_number, body = rows[0]
        if entry_number is None and body is None:
            return None
        if entry_number is None or body is None or self.get(entry_number).body.get("digest") != digest(body):
            raise corruption_error(f"the release of entry {number}")
        return str(body)

    def last_release_prefix(self) -> str:
        """Return the first characters of the last release."""
        rows = self.transaction.execute(
            "SELECT substr(body, 1, 20) FROM releases ORDER BY number DESC LIMIT 1"
        )
        return str(rows[0][0]) if rows else ""

    def store_release(self, number: int, entry_number: int, body: str) -> None:
        """Store the release of a charge."""
        self.transaction.execute("INSERT INTO releases VALUES (?, ?)", (number, body))
        self.transaction.execute("UPDATE charges SET released = ? WHERE number = ?", (entry_number, number))


_FILTERS: dict[str, PrivacyFilter] = {}
"""Filters by the text that was read or written last: the next charge reads the same text again."""


def _cache_filter(state: str, new: PrivacyFilter) -> None:
    if len(_FILTERS) >= _MAX_CACHED_FILTERS:
        _FILTERS.clear()
    _FILTERS[state] = new


def _check_digest(entry: Entry) -> None:
    if entry.digest != entry.expected_digest():
        raise corruption_error(f"entry {entry.number}")


def corruption_error(what: str) -> LedgerFailed:
    """Return the error for something that is not as it was written."""
    return LedgerFailed(
        f"{what} of the ledger was changed after it was written",
        why="it no longer shows what was spent",
        fix="run `hubbub ledger verify`, and restore the file from an intact copy",
    )


@contextmanager
def refuse_malformed() -> Iterator[None]:
    """Turn the failure to read an entry's fields into an error that says so: the entry was tampered with."""
    try:
        yield
    except HubbubError:
        raise
    except (KeyError, IndexError, TypeError, ValueError, AttributeError):
        raise corruption_error("an entry") from None


def utc_now() -> str:
    """Return the time by this machine's clock."""
    return datetime.now(UTC).isoformat(timespec="microseconds")


def digest(value: Any) -> str:
    """Return the SHA-256 of a JSON value."""
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()


# What was charged. It is stored beside the loss: a later version may charge less for the same loss.


def read_charge(stored: Any) -> FilterCharge:
    """Read what was charged to a filter."""
    try:
        return decode_charge(stored)
    except (TypeError, ValueError, KeyError, AttributeError):
        raise corruption_error("a charge") from None


def read_loss(stored: Any) -> PrivacyLoss:
    """Read a stored loss; the same few are read often."""
    try:
        return stored_loss(canonical_json(stored))
    except InvalidInput:
        raise corruption_error("a loss") from None


def is_fully_paid(entry: Entry, payer: PrivacyFilter) -> bool:
    """Return whether a charge is complete, and was charged no less than its loss costs.

    Args:
        entry: the entry of the charge.
        payer: the account's filter as it is now. It has the limits with which its second stage was opened.
    """
    try:
        body = entry.body
        if entry.kind != EntryKind.CHARGE or "fingerprint" not in body:
            return False
        loss, charge = read_loss(body["loss"]), read_charge(body["charged"][OWNER])
        if charge.opens is not None:
            return payer.certifies_opener(loss, charge)
        return is_charge_true(loss, charge)
    except (KeyError, TypeError, ValueError, AttributeError, HubbubError):
        return False


# What may be stored


def read_window(body: dict[str, Any]) -> Window | None:
    """Return the window in the body of an `open` entry."""
    window = body.get("window")
    if window is None:
        return None
    return Window(window["column"], date.fromisoformat(window["start"]), date.fromisoformat(window["end"]))


def check_name(name: Any, what: str) -> None:
    """Refuse a name that is empty, long, or not one printable line."""
    is_text = isinstance(name, str) and bool(name.strip())
    if not is_text or len(name) > _MAX_NAME_LENGTH or not name.isprintable():
        raise InvalidInput(
            f"{what} has no name",
            why="entries are stored under it",
            fix=f"pass one printable line of at most {_MAX_NAME_LENGTH} characters",
        )


def check_text(text: Any, what: str, max_length: int) -> None:
    """Refuse a text that cannot be stored."""
    if not isinstance(text, str) or len(text) > max_length or "\0" in text or not _is_unicode(text):
        raise InvalidInput(
            f"{what} is not a text that can be stored",
            why="it is stored in the ledger as Unicode",
            fix=f"pass a text of at most {max_length:,} characters",
        )


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
