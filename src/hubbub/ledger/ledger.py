"""Accounts, charges and releases: append-only, chained, and charged before anything runs.

An account is one unit and one neighbour relation; tables that share a unit share the account. Every charge
must fit the account's filter and, where an analyst has a budget of her own, hers too. Entries hold what was
done, not epsilons: these are views of it.

Proof: docs/proofs/ledger.md
"""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from hubbub.errors import InvalidInput, Refused
from hubbub.ledger.store import Rows, SQLite, Store
from hubbub.loss import Budget, Cost, Filter, Loss, Receipt
from hubbub.loss.stored import loss_from_json, loss_to_json
from hubbub.unit import Neighbours, Unit

__all__ = ["Account", "Entry", "Ledger", "Verdict"]

_START = "0" * 64
_EVERYBODY = ""
"""Under this name the account's own total is kept."""
_LONGEST = 100_000


@dataclass(frozen=True)
class Entry:
    """One line of the ledger."""

    number: int
    account: str
    kind: str
    """open, grant, charge, release, version, exact, close."""
    who: str
    moment: str
    body: dict[str, Any]
    previous: str
    digest: str

    def expected_digest(self) -> str:
        """What the digest must be: of all the rest, and of the line before."""
        parts = [self.number, self.account, self.kind, self.who, self.moment, self.body, self.previous]
        return hashlib.sha256(_text(parts).encode()).hexdigest()


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


class Ledger:
    """A ledger in a store.

    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> ledger = Ledger.open(f"{folder.name}/visits.ledger")
    >>> account = ledger.account("visits", Unit("patient"), Budget(1, 1e-6))
    >>> account.charge("a count", Loss.pure(0.25)).what
    'a count'
    >>> float(account.left().epsilon)
    0.75
    >>> ledger.verify().is_whole
    True
    >>> ledger.close(); folder.cleanup()

    Guarantee: the sum of all charges never exceeds a budget, whoever charges at the same time; what `charge`
        gave a receipt for is on the disk.
    Proof: docs/proofs/ledger.md
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    @classmethod
    def open(cls, where: str | Path) -> "Ledger":
        """The ledger at a path; made if it is not there."""
        return cls(SQLite(where))

    def account(self, name: str, unit: Unit | None = None, budget: Budget | None = None) -> "Account":
        """An account by its name; with a unit and a budget it is opened if it is not there."""
        _check_name(name, "the account")
        with self._store.writing() as rows:
            opened = _opening(rows, name)
            if opened is None:
                if unit is None or budget is None:
                    raise InvalidInput(
                        f"there is no account {name!r}",
                        why="it must be opened with a unit and a budget first",
                        fix="pass the unit and the budget",
                    )
                body = {
                    "unit": unit.key,
                    "neighbours": unit.neighbours.value,
                    "epsilon": str(budget.epsilon),
                    "delta": str(budget.delta),
                    "population": budget.population,
                    "filter": Filter(budget).to_json(),
                }
                _append(rows, name, "open", _EVERYBODY, body)
                _keep(rows, name, _EVERYBODY, Filter(budget))
                return Account(self._store, name, unit)
            known = Unit(opened["unit"], Neighbours(opened["neighbours"]))
            if unit is not None and unit != known:
                raise Refused(
                    f"the account {name!r} is for {known}",
                    why="an account protects one unit under one relation",
                    fix="open an account of another name",
                )
            return Account(self._store, name, known)

    def accounts(self) -> list[str]:
        """The names of all accounts."""
        with self._store.reading() as rows:
            return [row[0] for row in rows.run("SELECT DISTINCT account FROM entries ORDER BY account")]

    def entries(self, account: str | None = None) -> list[Entry]:
        """All lines, or those of one account."""
        with self._store.reading() as rows:
            return [entry for entry in _entries(rows) if account is None or entry.account == account]

    def verify(self, head: str | None = None) -> Verdict:
        """Whether all lines are as they were written, none is missing, and the totals are their sums.

        `head` is the digest that the owner kept: with it a ledger that was cut short is found too.
        """
        with self._store.reading() as rows:
            return _verified(rows, head)

    def close(self) -> None:
        """Let go of the store."""
        self._store.close()


class Account:
    """One unit, one relation, one budget, and what was spent of it."""

    def __init__(self, store: Store, name: str, unit: Unit, who: str = _EVERYBODY) -> None:
        self._store = store
        self.name = name
        self.unit = unit
        self.who = who

    def for_analyst(self, who: str) -> "Account":
        """The same account, charged on behalf of an analyst, within her own budget if she has one."""
        _check_name(who, "the analyst")
        return Account(self._store, self.name, self.unit, who)

    def charge(self, what: str, loss: Loss, *, key: str | None = None) -> Receipt:
        """Charge before anything runs; durable when it returns. A key is charged once, however often.

        Guarantee: as `Ledger`. Nothing is ever given back.
        Proof: docs/proofs/ledger.md, "Never overspent"
        """
        return self.charged(what, loss, key=key)[0]

    def charged(self, what: str, loss: Loss, *, key: str | None = None) -> tuple[Receipt, int, bool]:
        """The receipt, the number of its line, and whether it was charged just now."""
        if not isinstance(what, str) or len(what) > _LONGEST:
            raise InvalidInput(
                "what is charged is not a short text", why="people read it", fix="say it in words"
            )
        cost = loss.cost()  # before the turn is taken: it may take long
        with self._store.writing() as rows:
            if key is not None:
                found = rows.run(
                    "SELECT number FROM charges WHERE account = ? AND charge_key = ?", (self.name, key)
                )
                if found:
                    return Receipt(what, loss), int(found[0][0]), False
            self._refuse_closed(rows)
            for who in dict.fromkeys((_EVERYBODY, self.who)):
                state = _state(rows, self.name, who)
                if state is None:
                    raise Refused(
                        f"{who} has no budget in the account {self.name!r}",
                        why="an analyst spends within a budget of her own",
                        fix="ask the owner to grant one",
                    )
                _keep(rows, self.name, who, state.charge(cost))
            body = {"what": what, "loss": json.loads(loss_to_json(loss)), "key": key}
            number = _append(rows, self.name, "charge", self.who, body)
            if key is not None:
                rows.run("INSERT INTO charges VALUES (?, ?, ?)", (self.name, key, number))
        return Receipt(what, loss), number, True

    def grant(self, analyst: str, budget: Budget) -> None:
        """A budget of an analyst's own, within the account's."""
        _check_name(analyst, "the analyst")
        with self._store.writing() as rows:
            self._refuse_closed(rows)
            known = _state(rows, self.name, analyst)
            made = Filter(budget, spent=known.spent if known is not None else None)
            body = {"analyst": analyst, "filter": made.to_json()}
            _append(rows, self.name, "grant", self.who, body)
            _keep(rows, self.name, analyst, made)

    def left(self, who: str | None = None) -> Any:
        """What one more charge may cost, of the account or of an analyst."""
        return self._filter(who).left()

    def spent(self, who: str | None = None) -> Cost:
        """All that was charged, in figures that add up."""
        return self._filter(who).spent

    def budget(self, who: str | None = None) -> Filter:
        """The filter itself: its budget, its split, what was spent."""
        return self._filter(who)

    def store(self, number: int, fingerprint: str, text: str) -> None:
        """Keep a release, once, before anybody sees it."""
        with self._store.writing() as rows:
            if not rows.run("SELECT 1 FROM releases WHERE number = ?", (number,)):
                rows.run("INSERT INTO releases VALUES (?, ?, ?, ?)", (number, self.name, fingerprint, text))
                kept = hashlib.sha256(text.encode()).hexdigest()
                body = {"charge": number, "fingerprint": fingerprint, "release": kept}
                _append(rows, self.name, "release", self.who, body)

    def stored(self, number: int) -> str | None:
        """The release of a charge, if one was kept."""
        with self._store.reading() as rows:
            found = rows.run(
                "SELECT body FROM releases WHERE number = ? AND account = ?", (number, self.name)
            )
            return str(found[0][0]) if found else None

    def answered(self, fingerprint: str) -> str | None:
        """The latest release of this very question, if there is one."""
        with self._store.reading() as rows:
            found = rows.run(
                "SELECT body FROM releases WHERE account = ? AND fingerprint = ? "
                "ORDER BY number DESC LIMIT 1",
                (self.name, fingerprint),
            )
            return str(found[0][0]) if found else None

    def close(self) -> None:
        """No more charges, ever."""
        with self._store.writing() as rows:
            self._refuse_closed(rows)
            _append(rows, self.name, "close", self.who, {})

    def record(self, kind: str, body: dict[str, Any]) -> None:
        """A line that costs nothing: an exact preview, a new version of the data."""
        if kind not in {"exact", "version"}:
            raise InvalidInput(
                "this kind of line cannot be written", why="charges are charged", fix="use charge()"
            )
        with self._store.writing() as rows:
            _append(rows, self.name, kind, self.who, body)

    def _filter(self, who: str | None) -> Filter:
        name = self.who if who is None else who
        with self._store.reading() as rows:
            state = _state(rows, self.name, name) or _state(rows, self.name, _EVERYBODY)
        assert state is not None
        return state

    def _refuse_closed(self, rows: Rows) -> None:
        if rows.run("SELECT 1 FROM entries WHERE account = ? AND kind = 'close' LIMIT 1", (self.name,)):
            raise Refused(
                f"the account {self.name!r} is closed",
                why="its owner closed it",
                fix="ask for another account",
            )


def _append(rows: Rows, account: str, kind: str, who: str, body: dict[str, Any]) -> int:
    last = rows.run("SELECT number, digest FROM entries ORDER BY number DESC LIMIT 1")
    number, previous = (int(last[0][0]) + 1, str(last[0][1])) if last else (1, _START)
    moment = datetime.now(UTC).isoformat(timespec="microseconds")
    entry = Entry(number, account, kind, who, moment, body, previous, "")
    rows.run(
        "INSERT INTO entries VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        (number, account, kind, who, moment, _text(body), previous, entry.expected_digest()),
    )
    return number


def _entries(rows: Rows) -> Iterator[Entry]:
    text = "SELECT number, account, kind, who, moment, body, previous, digest FROM entries ORDER BY number"
    for number, account, kind, who, moment, body, previous, digest in rows.run(text):
        yield Entry(number, account, kind, who, moment, json.loads(body), previous, digest)


def _state(rows: Rows, account: str, who: str) -> Filter | None:
    found = rows.run("SELECT state FROM totals WHERE account = ? AND who = ?", (account, who))
    return Filter.from_json(str(found[0][0])) if found else None


def _keep(rows: Rows, account: str, who: str, state: Filter) -> None:
    rows.run(
        "INSERT INTO totals VALUES (?, ?, ?) ON CONFLICT (account, who) DO UPDATE SET state = excluded.state",
        (account, who, state.to_json()),
    )


def _opening(rows: Rows, account: str) -> dict[str, Any] | None:
    found = rows.run("SELECT body FROM entries WHERE account = ? AND kind = 'open'", (account,))
    return json.loads(found[0][0]) if found else None


def _verified(rows: Rows, head: str | None) -> Verdict:
    previous, number, seen = _START, 0, head is None or head == _START
    states: dict[tuple[str, str], Filter] = {}
    kept: dict[int, str] = {}
    for entry in _entries(rows):
        number += 1
        if entry.number != number or entry.previous != previous:
            return Verdict(number, previous, f"line {number} is missing, or not in its place")
        if entry.digest != entry.expected_digest():
            return Verdict(number, previous, f"line {number} has been changed")
        previous, seen = entry.digest, seen or entry.digest == head
        problem = _replayed(entry, states, kept)
        if problem is not None:
            return Verdict(number, previous, problem)
    if not seen:
        return Verdict(
            number, previous, "the kept digest is nowhere: lines were cut off, or all was rewritten"
        )
    found = rows.run("SELECT account, who, state FROM totals")
    if {(account, who): state for account, who, state in found} != {
        name: state.to_json() for name, state in states.items()
    }:
        return Verdict(number, previous, "the totals are not the sums of the lines")
    for charge, body in rows.run("SELECT number, body FROM releases"):
        if kept.get(charge) != hashlib.sha256(str(body).encode()).hexdigest():
            return Verdict(number, previous, f"the release of line {charge} has been changed")
    return Verdict(number, previous)


def _replayed(entry: Entry, states: dict[tuple[str, str], Filter], kept: dict[int, str]) -> str | None:
    """Do again what a line says; what it says may not be possible."""
    body, everybody = entry.body, (entry.account, _EVERYBODY)
    if entry.kind == "open":
        states[everybody] = Filter.from_json(body["filter"])
    elif entry.kind == "grant":
        states[entry.account, body["analyst"]] = Filter.from_json(body["filter"])
    elif entry.kind == "charge":
        cost = loss_from_json(json.dumps(body["loss"])).cost()
        for name in dict.fromkeys((everybody, (entry.account, entry.who))):
            if name in states:
                if not states[name].allows(cost):
                    return f"line {entry.number} does not fit the budget"
                states[name] = states[name].charge(cost)
    elif entry.kind == "release":
        kept[body["charge"]] = body["release"]
    return None


def _check_name(name: Any, what: str) -> None:
    if not isinstance(name, str) or not name.strip() or len(name) > 200:
        raise InvalidInput(f"{what} has no name", why="entries are kept under it", fix="pass a short text")


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
