"""Doing again what the lines say, to see whether all is as it was written.

Proof: docs/proofs/ledger.md, "Tamper evidence"
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache

from hubbub.errors import HubbubError
from hubbub.ledger.book import EVERYBODY, START, Book, Entry, cost_from_plain, digest, known_cost, plain_text
from hubbub.loss import Cost, Filter

__all__ = ["Replay", "Verdict", "verified"]

_SLACK = 1 + Fraction(1, 2**30)
"""Another machine's mathematics may round up to another last digit."""


@dataclass(frozen=True)
class Verdict:
    """What `verify` found: nothing wrong, or the first thing that is."""

    entries: int
    head: str
    """The digest of the last line: who keeps it finds any later change, also a truncation."""
    problem: str | None = None

    @property
    def is_whole(self) -> bool:
        """Whether nothing is wrong."""
        return self.problem is None


@dataclass
class Replay:
    """What the lines so far come to."""

    totals: dict[tuple[str, str], Filter] = field(default_factory=dict)
    closed: set[str] = field(default_factory=set)
    charges: dict[int, tuple[str, str | None, int | None]] = field(default_factory=dict)
    """By their line: the account, the key, and the line of the release."""
    costs: dict[int, Cost] = field(default_factory=dict)
    who: dict[int, str] = field(default_factory=dict)
    seen: set[tuple[int, str]] = field(default_factory=set)
    releases: dict[int, str] = field(default_factory=dict)

    def follow(self, entry: Entry) -> str | None:
        """Do what a line says, or say why it cannot have been done."""
        known = _KINDS.get(entry.kind)
        is_open = (entry.account, EVERYBODY) in self.totals
        if known is None or is_open == (entry.kind == "open"):
            return "is of no kind that can be here"
        if entry.account in self.closed and entry.kind not in {"release", "exact", "version"}:
            return "came after the account was closed"
        try:
            return known(self, entry)
        except (KeyError, TypeError, ValueError, AttributeError, HubbubError):
            return "does not say what it should"

    def _open(self, entry: Entry) -> None:
        self.totals[entry.account, EVERYBODY] = Filter.from_json(entry.body["filter"])

    def _grant(self, entry: Entry) -> str | None:
        name, made = (entry.account, entry.body["analyst"]), Filter.from_json(entry.body["filter"])
        before = self.totals.get(name)
        if made.spent != (Filter(made, made.orders, made.split) if before is None else before).spent:
            return "forgets what the analyst had spent"
        self.totals[name] = made
        return None

    def _charge(self, entry: Entry) -> str | None:
        body = entry.body
        orders = self.totals[entry.account, EVERYBODY].orders
        cost = _charged(plain_text(body["cost"]), orders)
        if not _covers(cost, known_cost(plain_text(body["loss"]), orders)):
            return "was charged less than it costs"
        if body["key"] is not None and (entry.account, body["key"]) in self._keys:
            return "charges a key again"
        self._keys.add((entry.account, body["key"]))
        self.charges[entry.number] = (entry.account, body["key"], None)
        self.costs[entry.number], self.who[entry.number] = cost, entry.who
        return self._spend(entry.account, dict.fromkeys((EVERYBODY, entry.who)), cost)

    def _saw(self, entry: Entry) -> str | None:
        number = entry.body["charge"]
        if (number, entry.who) in self.seen or self.charges[number][0] != entry.account:
            return "sees what cannot be seen"
        self.seen.add((number, entry.who))
        return self._spend(entry.account, (entry.who,), self.costs[number])

    def _release(self, entry: Entry) -> str | None:
        number = entry.body["charge"]
        account, key, before = self.charges[number]
        if account != entry.account or before is not None:
            return "releases what was not charged, or was released"
        self.charges[number] = (account, key, entry.number)
        self.releases[number] = entry.body["release"]
        return None

    def _close(self, entry: Entry) -> None:
        self.closed.add(entry.account)

    def _note(self, entry: Entry) -> None:
        json.loads(entry.text)

    def _spend(self, account: str, names: "dict[str, None] | tuple[str, ...]", cost: Cost) -> str | None:
        for who in names:
            total = self.totals[account, who]
            if not total.allows(cost):
                return "does not fit the budget"
            self.totals[account, who] = total.charge(cost)
        return None

    _keys: set[tuple[str, str | None]] = field(default_factory=set)


_KINDS: dict[str, Callable[[Replay, Entry], str | None]] = {
    "open": Replay._open,  # noqa: SLF001 - its own table of what each kind of line does
    "grant": Replay._grant,  # noqa: SLF001
    "charge": Replay._charge,  # noqa: SLF001
    "seen": Replay._saw,  # noqa: SLF001
    "release": Replay._release,  # noqa: SLF001
    "close": Replay._close,  # noqa: SLF001
    "exact": Replay._note,  # noqa: SLF001
    "version": Replay._note,  # noqa: SLF001
}


def verified(book: Book, head: str | None) -> Verdict:
    """Whether all lines are as they were written, none is missing, and all else follows from them."""
    previous, number, seen = START, 0, head is None or head == START
    replay = Replay()
    for entry in book.lines():
        number += 1
        if entry.number != number or entry.previous != previous:
            return Verdict(number, previous, f"line {number} is missing, or not in its place")
        if entry.digest != entry.expected_digest():
            return Verdict(number, previous, f"line {number} has been changed")
        previous, seen = entry.digest, seen or entry.digest == head
        problem = replay.follow(entry)
        if problem is not None:
            return Verdict(number, previous, f"line {number} {problem}")
    if not seen:
        return Verdict(
            number, previous, "the kept digest is nowhere: lines were cut off, or all was rewritten"
        )
    return Verdict(number, previous, _beside(book, replay))


def _beside(book: Book, replay: Replay) -> str | None:
    """What is kept beside the lines must be just what follows from them."""
    totals = {(account, who): state.to_json() for (account, who), state in replay.totals.items()}
    kept = {(account, who): (state, seal) for account, who, state, seal in _all(book, "totals")}
    if kept != {name: (state, digest([*name, state])) for name, state in totals.items()}:
        return "the totals are not the sums of the lines"
    charges = dict(replay.charges)
    for number, *rest in book.rows.each("SELECT number, account, charge_key, released FROM charges"):
        if charges.pop(number, None) != tuple(rest):
            return f"the key of the charge in line {number} is not that of the line"
    if charges:
        return f"the key of the charge in line {next(iter(charges))} is missing"
    if {(number, who) for number, who in _all(book, "seen")} != replay.seen:
        return "who saw what is not as the lines say"
    left = dict(replay.releases)
    for number, body in book.rows.each("SELECT number, body FROM releases"):
        if left.pop(number, None) != digest(body):
            return f"the release of line {number} has been changed"
    return f"the release of line {next(iter(left))} is missing" if left else None


def _all(book: Book, table: str) -> "list[tuple[object, ...]]":
    return book.rows.run(f"SELECT * FROM {table}")  # noqa: S608 - a name of ours


@lru_cache(maxsize=4096)
def _charged(text: str, orders: tuple[Fraction, ...]) -> Cost:
    """Equal figures are kept once: a million lines have few different ones."""
    return cost_from_plain(json.loads(text), orders)


def _covers(charged: Cost, known: Cost) -> bool:
    """Whether no figure charged is below what is known now; a later version may know sharper ones."""
    pairs = [
        (charged.epsilon, known.epsilon),
        (charged.mu_squared, known.mu_squared),
        (charged.rho, known.rho),
        (charged.delta, known.delta),
        *zip(charged.renyi, known.renyi, strict=True),
    ]
    return all(was is None or (now is not None and was * _SLACK >= now) for was, now in pairs)
