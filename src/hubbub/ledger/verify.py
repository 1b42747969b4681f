"""Verification: replay all entries, and compare the result with what is stored.

Proof: docs/proofs/ledger.md, "Tamper evidence"
"""

import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import islice
from typing import Any

from hubbub.accounting import FilterCharge, PrivacyFilter, PrivacyLoss
from hubbub.accounting.budget import refuse_other_relation
from hubbub.accounting.codec import canonical_json
from hubbub.errors import Refused
from hubbub.ledger.entries import (
    OWNER,
    START,
    Entries,
    Entry,
    EntryKind,
    digest,
    read_charge,
    read_loss,
    read_window,
)
from hubbub.unit import Neighbours, Window

__all__ = ["Replay", "VerificationReport", "verify_entries"]

_CACHE_SIZE = 4096
_MAX_PROBLEMS = 100
_ALLOWED_TO_ANALYSTS = {EntryKind.CHARGE, EntryKind.VIEW, EntryKind.RELEASE}
_ALLOWED_AFTER_CLOSE = {
    EntryKind.RELEASE,
    EntryKind.NONPRIVATE_ACCESS,
    EntryKind.VERSION,
    EntryKind.CLAIM,
    EntryKind.OVERRIDE,
    EntryKind.RESTORE,
}


@dataclass(frozen=True)
class VerificationReport:
    """The result of `verify`: OK, or a list of problems."""

    entries: int
    head_digest: str
    """The digest of the last entry: stored elsewhere, it shows any later change, also a truncation."""
    problems: tuple[str, ...] = ()
    """In the order of the entries; a bad entry may cause further problems."""

    @property
    def problem(self) -> str | None:
        """The first problem."""
        return self.problems[0] if self.problems else None

    @property
    def ok(self) -> bool:
        """True if there is no problem."""
        return not self.problems


@dataclass
class Replay:
    """The state that follows from the entries so far."""

    filters: dict[tuple[str, str], PrivacyFilter] = field(default_factory=dict)
    closed: set[str] = field(default_factory=set)
    windows: dict[str, list[Window | None]] = field(default_factory=dict)
    """By family: the window of each account."""
    families: dict[str, str] = field(default_factory=dict)
    units: dict[str, tuple[str | None, str]] = field(default_factory=dict)
    family_units: dict[str, tuple[str | None, str, str | None]] = field(default_factory=dict)
    """By family: unit, neighbouring relation, and the column of its windows."""
    claims: dict[tuple[str, str | None], str] = field(default_factory=dict)
    """By data name and unit: the family that pays for the rows."""
    charges: dict[int, tuple[str, str | None, int | None]] = field(default_factory=dict)
    """By entry: the account, the key, and the entry of the release."""
    losses: dict[int, PrivacyLoss] = field(default_factory=dict)
    charged_by: dict[int, str] = field(default_factory=dict)
    views: set[tuple[int, str]] = field(default_factory=set)
    releases: dict[int, str] = field(default_factory=dict)

    def apply(self, entry: Entry) -> str | None:
        """Apply an entry; return the problem if it cannot have been written."""
        handler = _HANDLERS.get(entry.kind)
        is_open = (entry.account, OWNER) in self.filters
        if handler is None or is_open == (entry.kind == EntryKind.OPEN):
            return "is of a kind that cannot be here"
        if entry.kind not in _ALLOWED_TO_ANALYSTS and entry.analyst != OWNER:
            return "may be written by the owner only"
        if entry.account in self.closed and entry.kind not in _ALLOWED_AFTER_CLOSE:
            return "came after the account was closed"
        try:
            return handler(self, entry)
        except Exception:  # noqa: BLE001 - whatever an entry contains, it is reported and not raised
            return "is malformed"

    def _open(self, entry: Entry) -> str | None:
        body = entry.body
        window, family = read_window(body), body.get("family", entry.account)
        others, state = self.windows.setdefault(family, []), PrivacyFilter.from_json(body["filter"])
        if others and (window is None or any(other is None or window.overlaps(other) for other in others)):
            return "opens a second budget for the same rows"
        unit = (body["unit"], body["neighbours"])
        known = (*unit, None if window is None else window.column)
        if self.family_units.setdefault(family, known) != known:
            return "opens a window for another unit, or by another column"
        stated = (Fraction(body["epsilon"]), Fraction(body["delta"]), body["purpose"])
        if (state.epsilon, state.delta, state.purpose) != stated or state != PrivacyFilter(state):
            return "opens a budget other than it states"
        others.append(window)
        self.families[entry.account], self.units[entry.account] = family, unit
        self.filters[entry.account, OWNER] = state
        return None

    def _claim(self, entry: Entry) -> str | None:
        family, (unit, _) = self.families[entry.account], self.units[entry.account]
        key = None if unit is None else unit.lower()
        for name in entry.body["names"]:
            if self.claims.setdefault((name, key), family) != family:
                return "claims rows that another account pays for"
        return None

    def _grant(self, entry: Entry) -> str | None:
        name, state = (entry.account, entry.body["analyst"]), PrivacyFilter.from_json(entry.body["filter"])
        if name[1] == OWNER:
            return "grants a budget to the owner, who has the account's own"
        if state != PrivacyFilter(state):
            return "grants a budget other than it states"
        earlier = self.filters.get(name)
        if earlier is not None and earlier.is_bound_to_another(state.purpose):
            return "changes the purpose of a budget that is in use"
        carried = [read_charge(stored) for stored in entry.body["carried"]]
        for loss, charge in zip(self._losses.get(name, []), carried, strict=True):
            if not state.certifies(loss, charge) or (after := state.after(loss, charge)) is None:
                return "forgets what the analyst had spent"
            state = after
        self.filters[name] = state
        return None

    def _charge(self, entry: Entry) -> str | None:
        body = entry.body
        if (body["unit"], body["neighbours"]) != self.units[entry.account]:
            return "was charged for another unit"
        payers = list(dict.fromkeys((OWNER, entry.analyst)))
        if list(body["charged"]) != payers:
            return "was not charged to all who pay"
        loss = read_loss(body["loss"])
        if not self._has_relation(entry.account, loss):
            return "was charged for another neighbouring relation"
        name = (entry.account, body["key"])
        if self._keys.get(name) != body.get("replaces"):
            return "charges a key again"
        if "replaces" in body:  # a charge that failed, lost its outcome or did not match its key
            account, _, released = self.charges[body["replaces"]]
            self.charges[body["replaces"]] = (account, None, released)
        if body["key"] is not None:
            self._keys[name] = entry.number
        self.charges[entry.number] = (entry.account, body["key"], None)
        self.losses[entry.number], self.charged_by[entry.number] = loss, entry.analyst
        # All who pay are looked at, also if the charge does not fit the first.
        problems = [self._spend(entry.account, payer, loss, body["charged"][payer]) for payer in payers]
        return next((problem for problem in problems if problem is not None), None)

    def _view(self, entry: Entry) -> str | None:
        number = entry.body["charge"]
        if (number, entry.analyst) in self.views or self.charges[number][0] != entry.account:
            return "views a release that cannot be viewed"
        self.views.add((number, entry.analyst))
        return self._spend(entry.account, entry.analyst, self.losses[number], entry.body["charged"])

    def _may_view(self, number: int, analyst: str) -> bool:
        return analyst in {OWNER, self.charged_by[number]} or (number, analyst) in self.views

    def _release(self, entry: Entry) -> str | None:
        number = entry.body["charge"]
        account, key, before = self.charges[number]
        if account != entry.account or before is not None or not self._may_view(number, entry.analyst):
            return "releases what was not charged, or was released already"
        self.charges[number] = (account, key, entry.number)
        self.releases[number] = entry.body["digest"]
        return None

    def _restore(self, entry: Entry) -> str | None:
        body = entry.body
        if body["loss"] is None:
            return None
        if body["fits"] is not True:
            return None if entry.account in self.closed else "does not fit, and the account is not closed"
        loss = read_loss(body["loss"])
        if not self._has_relation(entry.account, loss):
            return "was charged for another neighbouring relation"
        return self._spend(entry.account, OWNER, loss, body["charged"])

    def _has_relation(self, account: str, loss: PrivacyLoss) -> bool:
        with suppress(Refused):
            refuse_other_relation(Neighbours(self.units[account][1]), loss)
            return True
        return False

    def _close(self, entry: Entry) -> None:
        self.closed.add(entry.account)

    def _note(self, entry: Entry) -> None:
        json.loads(entry.text)

    def _spend(self, account: str, payer: str, loss: PrivacyLoss, stored: Any) -> str | None:
        """Add up a charge, of which the certificate is checked again."""
        state, name = self.filters[account, payer], (canonical_json(stored), loss)
        known = self._charges.get(name)
        if known is None:
            charge = read_charge(stored)
            if not state.certifies(loss, charge):
                return "was charged less than it costs"
            if len(self._charges) >= _CACHE_SIZE:
                self._charges.clear()
            known = charge
            # The certificate of an opening holds for one state of the filter only.
            if charge.opens is None:
                self._charges[name] = charge
        if payer != OWNER:
            self._losses.setdefault((account, payer), []).append(loss)
        after = state.after(loss, known)
        if after is None:
            return "does not fit the budget"
        self.filters[account, payer] = after
        return None

    _keys: dict[tuple[str, str | None], int] = field(default_factory=dict)
    """By account and key: the entry that charged it."""
    _charges: dict[tuple[str, PrivacyLoss], FilterCharge] = field(default_factory=dict)
    """Charges with their certificates checked; a million entries have few different ones."""
    _losses: dict[tuple[str, str], list[PrivacyLoss]] = field(default_factory=dict)
    """By account and analyst: the losses that her budget paid for."""


_HANDLERS: dict[str, Callable[[Replay, Entry], str | None]] = {
    EntryKind.OPEN: Replay._open,  # noqa: SLF001 - its own table of entry kinds
    EntryKind.CLAIM: Replay._claim,  # noqa: SLF001
    EntryKind.GRANT: Replay._grant,  # noqa: SLF001
    EntryKind.CHARGE: Replay._charge,  # noqa: SLF001
    EntryKind.VIEW: Replay._view,  # noqa: SLF001
    EntryKind.RELEASE: Replay._release,  # noqa: SLF001
    EntryKind.CLOSE: Replay._close,  # noqa: SLF001
    EntryKind.RESTORE: Replay._restore,  # noqa: SLF001
    EntryKind.NONPRIVATE_ACCESS: Replay._note,  # noqa: SLF001
    EntryKind.VERSION: Replay._note,  # noqa: SLF001
    EntryKind.OVERRIDE: Replay._note,  # noqa: SLF001
}


def verify_entries(entries: Entries, head: str | None) -> VerificationReport:
    """Check that all entries are unchanged, none is missing, and all other tables follow from them.

    It continues after a problem: one unreadable entry must not hide the others.
    """
    previous, number, is_head_found = START, 0, head is None or head == START
    replay, wrong = Replay(), list[tuple[int, str]]()
    for entry in entries.iterate():
        number += 1
        problem = None
        if entry.number != number or entry.previous != previous:
            problem = "is missing or out of order"
        elif entry.digest != entry.expected_digest():
            problem = "has been changed"
        problem = problem or replay.apply(entry)
        if problem is not None:
            wrong.append((number, problem))
        # After an entry out of order, numbers are counted from there, unless its number is corrupted.
        number = entry.number if type(entry.number) is int else number
        previous, is_head_found = entry.digest, is_head_found or entry.digest == head
    if wrong:
        wrong.sort(key=lambda each: each[0])
        problems = tuple(f"entry {entry_number} {problem}" for entry_number, problem in wrong[:_MAX_PROBLEMS])
        return VerificationReport(wrong[0][0], previous, problems)
    if not is_head_found:
        return VerificationReport(
            number,
            previous,
            ("the given head digest is not in the chain: entries were cut off, or all were rewritten",),
        )
    return VerificationReport(number, previous, tuple(islice(_check_tables(entries, replay), _MAX_PROBLEMS)))


def _check_tables(entries: Entries, replay: Replay) -> Iterator[str]:
    """Check that the other tables are exactly what follows from the entries."""
    totals = {(account, analyst): state.to_json() for (account, analyst), state in replay.filters.items()}
    rows = {(account, analyst): (state, seal) for account, analyst, state, seal in _all(entries, "filters")}
    if rows != {name: (state, digest([*name, state])) for name, state in totals.items()}:
        yield "the filters are not the sums of the entries"
    charges = dict(replay.charges)
    for number, *rest in entries.transaction.stream(
        "SELECT number, account, charge_key, released FROM charges"
    ):
        if charges.pop(number, None) != tuple(rest):
            yield f"the key of the charge in entry {number} differs from the entry"
    for number in charges:
        yield f"the key of the charge in entry {number} is missing"
    if {(number, analyst) for number, analyst in _all(entries, "views")} != replay.views:
        yield "the views differ from the entries"
    left = dict(replay.releases)
    for number, body in entries.transaction.stream("SELECT number, body FROM releases"):
        if not isinstance(body, str) or left.get(number) != digest(body):
            yield f"the release of entry {number} has been changed"
        left.pop(number, None)
    for number in left:
        yield f"the release of entry {number} is missing"


def _all(entries: Entries, table: str) -> "list[tuple[object, ...]]":
    return entries.transaction.execute(f"SELECT * FROM {table}")  # noqa: S608 - a table of ours
