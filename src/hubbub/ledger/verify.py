"""Verification: replay all entries, and compare the result with what is stored.

Proof: docs/proofs/ledger.md, "Tamper evidence"
"""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import reduce
from itertools import islice
from math import lcm
from typing import Any

from hubbub.accounting import ComposableCost, PrivacyFilter
from hubbub.accounting.codec import canonical_json
from hubbub.accounting.serialization import cost_from_json
from hubbub.errors import BudgetExceeded
from hubbub.ledger.entries import (
    OWNER,
    START,
    Entries,
    Entry,
    cost_from_dict,
    digest,
    is_cost_sufficient,
    read_window,
)
from hubbub.ledger.entry_kinds import EntryKind
from hubbub.unit import Window

__all__ = ["Replay", "VerificationReport", "charge_all", "verify_entries"]

_CACHE_SIZE = 4096
_MAX_PROBLEMS = 100
_BATCH_SIZE = 1000
"""How many entries are added up at once."""
_ALLOWED_TO_ANALYSTS = {EntryKind.CHARGE, EntryKind.VIEW, EntryKind.RELEASE}
_ALLOWED_AFTER_CLOSE = {
    EntryKind.RELEASE,
    EntryKind.NONPRIVATE_ACCESS,
    EntryKind.VERSION,
    EntryKind.CLAIM,
    EntryKind.OVERRIDE,
    EntryKind.RESTORE,
}
_EXACT = 1 << 256
"""Sums with no larger denominator are exact (hubbub.accounting.filters)."""


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
        """Whether there is no problem."""
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
    costs: dict[int, ComposableCost] = field(default_factory=dict)
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
        others, made = self.windows.setdefault(family, []), PrivacyFilter.from_json(body["filter"])
        if others and (window is None or any(other is None or window.overlaps(other) for other in others)):
            return "opens a second budget for the same rows"
        unit = (body["unit"], body["neighbours"])
        known = (*unit, None if window is None else window.column)
        if self.family_units.setdefault(family, known) != known:
            return "opens a window for another unit, or by another column"
        stated = (Fraction(body["epsilon"]), Fraction(body["delta"]))
        if (made.epsilon, made.delta) != stated or made.spent != PrivacyFilter(
            made, made.orders, made.split
        ).spent:
            return "opens a budget other than it states"
        others.append(window)
        self.families[entry.account], self.units[entry.account] = family, unit
        self.filters[entry.account, OWNER] = made
        return None

    def _claim(self, entry: Entry) -> str | None:
        family, (unit, _) = self.families[entry.account], self.units[entry.account]
        key = None if unit is None else unit.lower()
        for name in entry.body["names"]:
            if self.claims.setdefault((name, key), family) != family:
                return "claims rows that another account pays for"
        return None

    def _grant(self, entry: Entry) -> str | None:
        name, made = (entry.account, entry.body["analyst"]), PrivacyFilter.from_json(entry.body["filter"])
        if self.apply_pending():  # what she spent until now must fit the budget she had
            return "came after a charge that does not fit"
        before = self.filters.get(name)
        if made.spent != (PrivacyFilter(made, made.orders, made.split) if before is None else before).spent:
            return "forgets what the analyst had spent"
        self.filters[name] = made
        return None

    def _charge(self, entry: Entry) -> str | None:
        body = entry.body
        if (body["unit"], body["neighbours"]) != self.units[entry.account]:
            return "was charged for another unit"
        orders = self.filters[entry.account, OWNER].orders
        known = self._costs.setdefault(entry.account, {})
        figures = (canonical_json(body["cost"]), canonical_json(body["loss"]))
        if figures not in known:
            if len(known) >= _CACHE_SIZE:
                known.clear()
            known[figures] = _read_cost(body["cost"], figures[1], orders)
        cost = known[figures]
        if cost is None:
            return "was charged less than it costs"
        name = (entry.account, body["key"])
        if self._keys.get(name) != body.get("replaces"):
            return "charges a key again"
        if "replaces" in body:  # a charge that failed, lost its outcome or did not match its key
            account, _, released = self.charges[body["replaces"]]
            self.charges[body["replaces"]] = (account, None, released)
        if body["key"] is not None:
            self._keys[name] = entry.number
        self.charges[entry.number] = (entry.account, body["key"], None)
        self.costs[entry.number], self.charged_by[entry.number] = cost, entry.analyst
        return self._spend(entry.number, entry.account, dict.fromkeys((OWNER, entry.analyst)), cost)

    def _view(self, entry: Entry) -> str | None:
        number = entry.body["charge"]
        if (number, entry.analyst) in self.views or self.charges[number][0] != entry.account:
            return "views a release that cannot be viewed"
        self.views.add((number, entry.analyst))
        return self._spend(entry.number, entry.account, (entry.analyst,), self.costs[number])

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
        total = self.filters[entry.account, OWNER]
        cost = _read_cost(body["cost"], canonical_json(body["loss"]), total.orders)
        if cost is None:
            return "was charged less than it costs"
        if body["fits"] is not True:
            return None if entry.account in self.closed else "does not fit, and the account is not closed"
        return self._spend(entry.number, entry.account, (OWNER,), cost)

    def _close(self, entry: Entry) -> None:
        self.closed.add(entry.account)

    def _note(self, entry: Entry) -> None:
        json.loads(entry.text)

    def _spend(self, number: int, account: str, names: Iterable[str], cost: ComposableCost) -> str | None:
        for analyst in names:
            self.filters[account, analyst]  # must exist
            self._pending.setdefault((account, analyst), []).append((number, cost))
        return None

    def apply_pending(self) -> list[tuple[int, str]]:
        """Add up the pending charges, and return the first entry that does not fit its budget, if any.

        A sum only grows, so all charges fit if the last one does.
        """
        failed = []
        for name, charges in self._pending.items():
            try:
                self.filters[name] = charge_all(self.filters[name], [cost for _, cost in charges])
            except BudgetExceeded:
                failed.append(self._first_overspent(name, charges))
        self._pending.clear()
        return [(min(failed), "does not fit the budget")] if failed else []

    def _first_overspent(self, name: tuple[str, str], charges: list[tuple[int, ComposableCost]]) -> int:
        total = self.filters[name]
        for number, cost in charges:
            if not total.allows(cost):
                return number
            total = total.charge(cost)
        return charges[-1][0]

    _keys: dict[tuple[str, str | None], int] = field(default_factory=dict)
    """By account and key: the entry that charged it."""
    _costs: dict[str, dict[tuple[str, str], ComposableCost | None]] = field(default_factory=dict)
    """By account: checked costs; a million entries have few different ones."""
    _pending: dict[tuple[str, str], list[tuple[int, ComposableCost]]] = field(default_factory=dict)
    """Charges that are not added up yet, with their entries."""


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
        if problem is not None or entry.kind == EntryKind.GRANT or number % _BATCH_SIZE == 0:
            wrong += replay.apply_pending()
        problem = problem or replay.apply(entry)
        if problem is not None:
            wrong += [*replay.apply_pending(), (number, problem)]
        # After an entry out of order, numbers are counted from there, unless its number is corrupted.
        number = entry.number if type(entry.number) is int else number
        previous, is_head_found = entry.digest, is_head_found or entry.digest == head
    wrong += replay.apply_pending()
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
    kept = {(account, analyst): (state, seal) for account, analyst, state, seal in _all(entries, "filters")}
    if kept != {name: (state, digest([*name, state])) for name, state in totals.items()}:
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


def _read_cost(charged: dict[str, Any], loss: str, orders: tuple[Fraction, ...]) -> ComposableCost | None:
    """Return the charged figures; None if they are below what the loss costs."""
    cost = cost_from_dict(charged, orders)
    return cost if is_cost_sufficient(cost, cost_from_json(loss, orders)) else None


def charge_all(total: PrivacyFilter, costs: Sequence[ComposableCost]) -> PrivacyFilter:
    """Return the filter after all charges: exactly what charging them one by one gives."""
    counts = Counter(map(id, costs))
    different = {id(cost): cost for cost in costs}
    columns = zip(total.spent.figures, *(cost.figures for cost in different.values()), strict=True)
    if not costs or any(_may_round(column) for column in columns):
        for cost in costs:
            total = total.charge(cost)
        return total
    return total.charge(
        reduce(ComposableCost.__add__, (cost.times(counts[name]) for name, cost in different.items()))
    )


def _may_round(figures: Iterable[Fraction | None]) -> bool:
    """Return whether a sum of these may be rounded, so that the order of additions matters."""
    return lcm(*(figure.denominator for figure in figures if figure is not None)) > _EXACT
