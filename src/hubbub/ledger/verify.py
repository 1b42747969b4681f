"""Doing again what the lines say, to see whether all is as it was written.

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
from hubbub.accounting.serialization import cost_from_json
from hubbub.errors import BudgetExceeded
from hubbub.ledger.account import window_of
from hubbub.ledger.data_claims import places_in
from hubbub.ledger.entries import (
    EVERYBODY,
    START,
    Entries,
    Entry,
    cost_from_plain,
    covers,
    digest,
    plain_text,
)
from hubbub.unit import Window

__all__ = ["Replay", "Verdict", "charged_together", "verify_entries"]

_REMEMBERED = 4096
_MOST_PROBLEMS = 100
_TOGETHER = 1000
"""So many lines are added up at once."""
_AFTER_CLOSE = {"release", "exact", "version", "rows", "override", "restored"}
_EXACT = 1 << 256
"""Sums with no larger denominator are exact (hubbub.accounting.filters)."""


@dataclass(frozen=True)
class Verdict:
    """What `verify` found: nothing wrong, or what is."""

    entries: int
    head: str
    """The digest of the last line: who keeps it finds any later change, also a truncation."""
    problems: tuple[str, ...] = ()
    """In the order of the lines; what follows from a bad line may be among them."""

    @property
    def problem(self) -> str | None:
        """The first thing that is wrong."""
        return self.problems[0] if self.problems else None

    @property
    def is_whole(self) -> bool:
        """Whether nothing is wrong."""
        return not self.problems


@dataclass
class Replay:
    """What the lines so far come to."""

    totals: dict[tuple[str, str], PrivacyFilter] = field(default_factory=dict)
    closed: set[str] = field(default_factory=set)
    windows: dict[str, list[Window | None]] = field(default_factory=dict)
    """By the name that accounts share: which time each of them is for."""
    families: dict[str, str] = field(default_factory=dict)
    units: dict[str, tuple[str | None, str]] = field(default_factory=dict)
    by: dict[str, tuple[str | None, str, str | None]] = field(default_factory=dict)
    """Of a family: unit, relation, and the column of its windows."""
    places: dict[tuple[str, str | None], str] = field(default_factory=dict)
    """Which family pays for the rows of a place, for one unit."""
    charges: dict[int, tuple[str, str | None, int | None]] = field(default_factory=dict)
    """By their line: the account, the key, and the line of the release."""
    costs: dict[int, ComposableCost] = field(default_factory=dict)
    who: dict[int, str] = field(default_factory=dict)
    seen: set[tuple[int, str]] = field(default_factory=set)
    releases: dict[int, str] = field(default_factory=dict)

    def follow(self, entry: Entry) -> str | None:
        """Do what a line says, or say why it cannot have been done."""
        known = _KINDS.get(entry.kind)
        is_open = (entry.account, EVERYBODY) in self.totals
        if known is None or is_open == (entry.kind == "open"):
            return "is of no kind that can be here"
        if entry.kind not in {"charge", "seen", "release"} and entry.who != EVERYBODY:
            return "is not that analyst's to write"
        if entry.account in self.closed and entry.kind not in _AFTER_CLOSE:
            return "came after the account was closed"
        try:
            return known(self, entry)
        except Exception:  # noqa: BLE001 - whatever stands in a line, it is said and not raised
            return "does not say what it should"

    def _open(self, entry: Entry) -> str | None:
        body = entry.body
        window, family = window_of(body), body.get("family", entry.account)
        others, made = self.windows.setdefault(family, []), PrivacyFilter.from_json(body["filter"])
        if others and (window is None or any(other is None or window.overlaps(other) for other in others)):
            return "opens a second budget for the same rows"
        unit = (body["unit"], body["neighbours"])
        known = (*unit, None if window is None else window.column)
        if self.by.setdefault(family, known) != known:
            return "opens a window for another unit, or by another column"
        stated = (Fraction(body["epsilon"]), Fraction(body["delta"]))
        if (made.epsilon, made.delta) != stated or made.spent != PrivacyFilter(
            made, made.orders, made.split
        ).spent:
            return "opens another budget than it says"
        others.append(window)
        self.families[entry.account], self.units[entry.account] = family, unit
        self.totals[entry.account, EVERYBODY] = made
        return None

    def _rows(self, entry: Entry) -> str | None:
        family, (unit, _) = self.families[entry.account], self.units[entry.account]
        key = None if unit is None else unit.lower()
        for place in places_in(entry.body):
            if self.places.setdefault((place, key), family) != family:
                return "claims rows that another account pays for"
        return None

    def _grant(self, entry: Entry) -> str | None:
        name, made = (entry.account, entry.body["analyst"]), PrivacyFilter.from_json(entry.body["filter"])
        if self.settle():  # what she spent until now must fit the budget she had
            return "came after a charge that does not fit"
        before = self.totals.get(name)
        if made.spent != (PrivacyFilter(made, made.orders, made.split) if before is None else before).spent:
            return "forgets what the analyst had spent"
        self.totals[name] = made
        return None

    def _charge(self, entry: Entry) -> str | None:
        body = entry.body
        if (body["unit"], body["neighbours"]) != self.units[entry.account]:
            return "was charged for another unit"
        orders = self.totals[entry.account, EVERYBODY].orders
        known = self._costs.setdefault(entry.account, {})
        figures = (plain_text(body["cost"]), plain_text(body["loss"]))
        if figures not in known:
            if len(known) >= _REMEMBERED:
                known.clear()
            known[figures] = _checked(body["cost"], figures[1], orders)
        cost = known[figures]
        if cost is None:
            return "was charged less than it costs"
        name = (entry.account, body["key"])
        if self._keys.get(name) != body.get("instead of"):
            return "charges a key again"
        if "instead of" in body:  # a line whose outcome is lost, or that did not stand for its key
            account, _, released = self.charges[body["instead of"]]
            self.charges[body["instead of"]] = (account, None, released)
        if body["key"] is not None:
            self._keys[name] = entry.number
        self.charges[entry.number] = (entry.account, body["key"], None)
        self.costs[entry.number], self.who[entry.number] = cost, entry.who
        return self._spend(entry.number, entry.account, dict.fromkeys((EVERYBODY, entry.who)), cost)

    def _saw(self, entry: Entry) -> str | None:
        number = entry.body["charge"]
        if (number, entry.who) in self.seen or self.charges[number][0] != entry.account:
            return "sees what cannot be seen"
        self.seen.add((number, entry.who))
        return self._spend(entry.number, entry.account, (entry.who,), self.costs[number])

    def _is_seen(self, number: int, who: str) -> bool:
        return who in {EVERYBODY, self.who[number]} or (number, who) in self.seen

    def _release(self, entry: Entry) -> str | None:
        number = entry.body["charge"]
        account, key, before = self.charges[number]
        if account != entry.account or before is not None or not self._is_seen(number, entry.who):
            return "releases what was not charged, or was released"
        self.charges[number] = (account, key, entry.number)
        self.releases[number] = entry.body["release"]
        return None

    def _restored(self, entry: Entry) -> str | None:
        body = entry.body
        if body["loss"] is None:
            return None
        total = self.totals[entry.account, EVERYBODY]
        cost = _checked(body["cost"], plain_text(body["loss"]), total.orders)
        if cost is None:
            return "was charged less than it costs"
        if body["fits"] is not True:
            return None if entry.account in self.closed else "does not fit, and the account is not closed"
        return self._spend(entry.number, entry.account, (EVERYBODY,), cost)

    def _close(self, entry: Entry) -> None:
        self.closed.add(entry.account)

    def _note(self, entry: Entry) -> None:
        json.loads(entry.text)

    def _spend(self, number: int, account: str, names: Iterable[str], cost: ComposableCost) -> str | None:
        for who in names:
            self.totals[account, who]  # there must be one
            self._pending.setdefault((account, who), []).append((number, cost))
        return None

    def settle(self) -> list[tuple[int, str]]:
        """Add up what was charged since; the first line that does not fit its budget, if one does not.

        A sum only grows, so that all charges fit where the last one does.
        """
        failed = []
        for name, charges in self._pending.items():
            try:
                self.totals[name] = charged_together(self.totals[name], [cost for _, cost in charges])
            except BudgetExceeded:
                failed.append(self._first_beyond(name, charges))
        self._pending.clear()
        return [(min(failed), "does not fit the budget")] if failed else []

    def _first_beyond(self, name: tuple[str, str], charges: list[tuple[int, ComposableCost]]) -> int:
        total = self.totals[name]
        for number, cost in charges:
            if not total.allows(cost):
                return number
            total = total.charge(cost)
        return charges[-1][0]

    _keys: dict[tuple[str, str | None], int] = field(default_factory=dict)
    """The line that stands for a key."""
    _costs: dict[str, dict[tuple[str, str], ComposableCost | None]] = field(default_factory=dict)
    """What was charged for a loss, if that covers it, by account: a million lines have few different ones."""
    _pending: dict[tuple[str, str], list[tuple[int, ComposableCost]]] = field(default_factory=dict)
    """Charges that are not added up yet, with their lines."""


_KINDS: dict[str, Callable[[Replay, Entry], str | None]] = {
    "open": Replay._open,  # noqa: SLF001 - its own table of what each kind of line does
    "rows": Replay._rows,  # noqa: SLF001
    "grant": Replay._grant,  # noqa: SLF001
    "charge": Replay._charge,  # noqa: SLF001
    "seen": Replay._saw,  # noqa: SLF001
    "release": Replay._release,  # noqa: SLF001
    "close": Replay._close,  # noqa: SLF001
    "restored": Replay._restored,  # noqa: SLF001
    "exact": Replay._note,  # noqa: SLF001
    "version": Replay._note,  # noqa: SLF001
    "override": Replay._note,  # noqa: SLF001
}


def verify_entries(book: Entries, head: str | None) -> Verdict:
    """Whether all lines are as they were written, none is missing, and all else follows from them.

    It goes on after what is wrong: one line that nobody can read must not hide the others.
    """
    previous, number, seen = START, 0, head is None or head == START
    replay, wrong = Replay(), list[tuple[int, str]]()
    for entry in book.lines():
        number += 1
        problem = None
        if entry.number != number or entry.previous != previous:
            problem = "is missing, or not in its place"
        elif entry.digest != entry.expected_digest():
            problem = "has been changed"
        if problem is not None or entry.kind == "grant" or number % _TOGETHER == 0:
            wrong += replay.settle()
        problem = problem or replay.follow(entry)
        if problem is not None:
            wrong += [*replay.settle(), (number, problem)]
        # What follows a line that is out of place is counted from there, unless its number has rotted.
        number = entry.number if type(entry.number) is int else number
        previous, seen = entry.digest, seen or entry.digest == head
    wrong += replay.settle()
    if wrong:
        wrong.sort(key=lambda each: each[0])
        said = tuple(f"line {line} {problem}" for line, problem in wrong[:_MOST_PROBLEMS])
        return Verdict(wrong[0][0], previous, said)
    if not seen:
        return Verdict(
            number, previous, ("the kept digest is nowhere: lines were cut off, or all was rewritten",)
        )
    return Verdict(number, previous, tuple(islice(_beside(book, replay), _MOST_PROBLEMS)))


def _beside(book: Entries, replay: Replay) -> Iterator[str]:
    """What is kept beside the lines must be just what follows from them."""
    totals = {(account, who): state.to_json() for (account, who), state in replay.totals.items()}
    kept = {(account, who): (state, seal) for account, who, state, seal in _all(book, "totals")}
    if kept != {name: (state, digest([*name, state])) for name, state in totals.items()}:
        yield "the totals are not the sums of the lines"
    charges = dict(replay.charges)
    for number, *rest in book.rows.each("SELECT number, account, charge_key, released FROM charges"):
        if charges.pop(number, None) != tuple(rest):
            yield f"the key of the charge in line {number} is not that of the line"
    for number in charges:
        yield f"the key of the charge in line {number} is missing"
    if {(number, who) for number, who in _all(book, "seen")} != replay.seen:
        yield "who saw what is not as the lines say"
    left = dict(replay.releases)
    for number, body in book.rows.each("SELECT number, body FROM releases"):
        if not isinstance(body, str) or left.get(number) != digest(body):
            yield f"the release of line {number} has been changed"
        left.pop(number, None)
    for number in left:
        yield f"the release of line {number} is missing"


def _all(book: Entries, table: str) -> "list[tuple[object, ...]]":
    return book.rows.run(f"SELECT * FROM {table}")  # noqa: S608 - a name of ours


def _checked(charged: dict[str, Any], loss: str, orders: tuple[Fraction, ...]) -> ComposableCost | None:
    """The figures that were charged; None where they are below what the loss costs."""
    cost = cost_from_plain(charged, orders)
    return cost if covers(cost, cost_from_json(loss, orders)) else None


def charged_together(total: PrivacyFilter, costs: Sequence[ComposableCost]) -> PrivacyFilter:
    """The filter after all of them: what charging them one by one gives, to the last digit."""
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
    """Whether some sum of these may be too long to be exact, so that it matters how they are added up."""
    return lcm(*(figure.denominator for figure in figures if figure is not None)) > _EXACT
