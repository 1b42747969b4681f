"""An account: one unit, one neighbour relation, one budget, and what was spent of it.

Proof: docs/proofs/ledger.md
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from fractions import Fraction
from functools import cached_property
from typing import Any, NoReturn

from hubbub.accounting import Budget, ComposableCost, PrivacyFilter, PrivacyLoss, PrivacyOdometer, Receipt
from hubbub.accounting.budget import refuse_copy, refuse_other_unit
from hubbub.accounting.filters import OdometerReading, Remaining
from hubbub.accounting.serialization import cost_from_json, encode_loss
from hubbub.engines.data_identity import DataIdentity
from hubbub.errors import BudgetExceeded, HubbubError, InvalidInput, LedgerFailed, Refused
from hubbub.ledger.data_claims import check_claims
from hubbub.ledger.entries import (
    EVERYBODY,
    Entries,
    Entry,
    cost_from_plain,
    cost_to_plain,
    covers,
    digest,
    plain_text,
)
from hubbub.ledger.signing import Seal
from hubbub.ledger.sqlite import Rows, Store
from hubbub.numbers import Number, format_up, round_up
from hubbub.unit import Unit, Window

__all__ = ["RAISED", "Account", "Charge", "Lifetime", "check_name", "check_text", "window_of"]

RAISED = '{"format": "hubbub outcome/1"'
"""How the text of an outcome begins that was raised."""
_LONGEST = 100_000
_LONGEST_RELEASE = 1 << 30


@dataclass(frozen=True)
class Charge:
    """What was charged, where it stands, and whether it was charged just now or before."""

    receipt: Receipt
    number: int
    is_new: bool
    moment: str
    is_settled: bool = False
    """Whether its outcome is stored."""
    attempt: str | None = None
    """Who made it, and alone may run it."""


@dataclass(frozen=True)
class Lifetime:
    """What somebody loses who is in all windows."""

    reading: OdometerReading
    windows: int

    def said(self) -> str:
        """In words."""
        epsilon = "∞" if self.reading.epsilon is None else format_up(self.reading.epsilon)
        return f"ε = {epsilon}, δ = {format_up(self.reading.delta)} over {self.windows} windows so far"


class Account:
    """One unit, one relation, one budget, on behalf of its owner, an analyst or a reader.

    Analysts and readers are told apart by this class: it runs in the process that holds the rows, and who can
    write the file or the database can do as she likes, and is found by `verify`.
    """

    def __init__(
        self,
        store: Store,
        name: str,
        unit: Unit,
        who: str = EVERYBODY,
        *,
        family: str | None = None,
        seal: Seal | None = None,
        is_reader: bool = False,
    ) -> None:
        self._store = store
        self.name = name
        self.family = family or name
        """The name that the accounts of all windows share."""
        self.unit = unit
        self.who = who
        self._seal = seal or Seal()
        self._is_reader = is_reader

    def for_analyst(self, who: str) -> "Account":
        """The same account, charged on behalf of an analyst, within a budget of her own."""
        self._only_owner("act for an analyst")
        check_name(who, "the analyst")
        return Account(self._store, self.name, self.unit, who, family=self.family, seal=self._seal)

    def for_reader(self) -> "Account":
        """The same account, only to look at."""
        self._only_owner("act for a reader")
        return Account(self._store, self.name, self.unit, family=self.family, seal=self._seal, is_reader=True)

    # Spending

    def charge(self, what: str, loss: PrivacyLoss, *, unit: Unit | None = None) -> Receipt:
        """Charge before anything runs; durable when it returns.

        Guarantee: the account's charges, and each analyst's, fit their budgets, whoever charges at the same
            time. Nothing is ever given back.
        Proof: docs/proofs/ledger.md, "Never overspent"
        """
        return self.begin(what, loss, unit=unit).receipt

    def begin(
        self,
        what: str,
        loss: PrivacyLoss,
        *,
        unit: Unit | None = None,
        key: str | None = None,
        fingerprint: str | None = None,
        dataset: str = "",
        attempt: str | None = None,
        lost: int | None = None,
        failed: int | None = None,
    ) -> Charge:
        """As `charge`, with the line under which the outcome is to be kept. A key is charged once.

        `unit` is whom the charge protects: another than the account's is refused, and with an account of a
        window it must be said. `fingerprint` stands for the question; without one, `what` does. A key that
        was charged for another question, or at another cost, is refused. An analyst who comes with a key that
        somebody else charged is charged herself once there is something to see, and the account is not.

        A charge belongs to the `attempt` that made it: one that is not new may not be run. If the line `lost`
        has the key and still no outcome, the key is charged anew in its place; so it is if the line `failed`
        has it, whose outcome is a failure that nobody wants again.

        Guarantee: a charge is new once.
        Proof: docs/proofs/ledger.md, "One outcome per charge"
        """
        if self._is_reader:
            raise _not_allowed("a reader cannot charge")
        refuse_other_unit(self.unit, unit)
        check_text(what, "what is charged", _LONGEST)
        check_text(dataset, "the dataset", _LONGEST)
        if key is not None:
            check_name(key, "the key")
        # Before the turn is taken: it may take long.
        stored = encode_loss(loss)
        cost = cost_from_json(plain_text(stored), self._orders)
        question = digest(what) if fingerprint is None else fingerprint
        check_name(question, "the fingerprint")

        def work(rows: Rows) -> Charge:
            book = Entries(rows)
            known = None if key is None else book.charge_of(self.name, key)
            if known is not None and self._stands(book, known, (question, stored), fingerprint):
                line = book.line(known)
                is_settled = book.is_settled(known)
                if is_settled and known != failed:
                    self._see(book, line)
                if known != failed and (is_settled or known != lost):
                    return Charge(
                        Receipt(what, loss),
                        known,
                        is_new=False,
                        moment=line.moment,
                        is_settled=is_settled,
                        attempt=line.body.get("attempt"),
                    )
            self._refuse_closed(book)
            if attempt is not None:  # an outcome is to be kept: whether it can be is known before
                self._refuse_unsealed(book)
                self._seal.check()
            for who in dict.fromkeys((EVERYBODY, self.who)):
                self._spend(book, who, cost)
            body: dict[str, Any] = {
                "what": what,
                "dataset": dataset,
                "loss": stored,
                "cost": cost_to_plain(cost),
                "unit": self.unit.key,
                "neighbours": self.unit.neighbours.value,
                "fingerprint": question,
                "key": key,
            }
            if attempt is not None:
                body["attempt"] = attempt
            if known is not None:
                body["instead of"] = known
                book.give_up(known)
            entry = book.append(self.name, "charge", self.who, body)
            book.charged(self.name, key, entry.number)
            return Charge(
                Receipt(what, loss),
                entry.number,
                is_new=True,
                moment=entry.moment,
                attempt=attempt,
            )

        return self._store.write(work)

    def keep(self, number: int, release: str) -> str:
        """Keep the outcome of a charge before anybody sees it, and give the one that may be shown.

        Guarantee: for one charge this is always the same text: the first that was kept.
        Proof: docs/proofs/ledger.md, "One outcome per charge"
        """
        if self._is_reader:
            raise _not_allowed("a reader cannot release")
        check_text(release, "the release", _LONGEST_RELEASE)

        def work(rows: Rows) -> str:
            book = Entries(rows)
            kept = book.release(self.name, number)
            charge = book.line(number)
            self._refuse_unseen(book, charge)
            if kept is not None:
                return self._authentic(kept, charge)
            self._refuse_unsealed(book)
            stored = self._seal.closed(release, charge.digest)
            line = book.append(self.name, "release", self.who, {"charge": number, "release": digest(stored)})
            book.keep_release(number, line.number, stored)
            return release

        return self._store.write(work)

    def released(self, number: int) -> str | None:
        """What was released for a charge, if anything was."""

        def work(rows: Rows) -> str | None:
            book = Entries(rows)
            kept = book.release(self.name, number)
            charge = book.line(number)
            self._refuse_unseen(book, charge)
            return None if kept is None else self._authentic(kept, charge)

        return self._store.read(work)

    def line(self, number: int) -> Entry:
        """What was charged in a line, to one who may see its release."""

        def work(rows: Rows) -> Entry:
            line = Entries(rows).line(number)
            self._refuse_unseen(Entries(rows), line)
            return line

        return self._store.read(work)

    # The owner's

    def grant(self, analyst: str, budget: Budget) -> None:
        """A budget of an analyst's own, within the account's; what she has spent stays spent."""
        self._only_owner("grant")
        check_name(analyst, "the analyst")

        def work(rows: Rows) -> None:
            book = Entries(rows)
            self._refuse_closed(book)
            account, known = self._total(book, EVERYBODY), book.total(self.name, analyst)
            made = PrivacyFilter.for_queries(
                budget, account.orders, spent=known.spent if known is not None else None
            )
            book.append(self.name, "grant", EVERYBODY, {"analyst": analyst, "filter": made.to_json()})
            book.keep(self.name, analyst, made)

        self._store.write(work)

    def exact(self, what: str) -> None:
        """Record that the owner looked at exact answers, before she does."""
        self._record("exact", {"what": what})

    def version(self, version: str, dataset: str) -> None:
        """Record that a dataset is of this version from now on, unless it already is."""
        self._record("version", {"version": version, "dataset": dataset}, once=True)

    def override(self, what: str) -> None:
        """Record, before it is done, that the owner sets aside what she declared."""
        self._record("override", {"what": what})

    def claim(
        self, rows: Mapping[str, DataIdentity], *, new_rows: bool = False, override: bool = False
    ) -> None:
        """Record that this account pays for these rows, given by the names of their tables.

        Guarantee: no other account of the ledger pays for rows that are known by one name, or by a number
            that no other file can have had, for the same unit; those of windows are one family. In a ledger
            with other accounts, rows that it does not know are claimed with the owner's word, `new_rows`, or
            not at all.
        Assumes: the owner's word is true: rows in memory, copies and views cannot be told from new ones.
        Proof: docs/proofs/ledger.md, "Windows"
        """

        def lines(stored: Rows) -> list[dict[str, Any]]:
            return check_claims(
                Entries(stored), self.family, self.unit, rows, new_rows=new_rows, override=override
            )

        def work(stored: Rows) -> None:
            for body in lines(stored):
                Entries(stored).append(self.name, "rows", EVERYBODY, body)

        if self._store.read(lines):
            self._only_owner("say what an account pays for")
            self._store.write(work)

    def latest_version(self, dataset: str) -> str | None:
        """The version that was last declared of a dataset."""
        found = self._store.read(lambda rows: Entries(rows).of_kind("version", self.name))
        said = [entry.body["version"] for entry in found if entry.body["dataset"] == dataset]
        return said[-1] if said else None

    def close(self) -> None:
        """No more charges, ever."""
        self._only_owner("close an account")

        def work(rows: Rows) -> None:
            self._refuse_closed(Entries(rows))
            Entries(rows).append(self.name, "close", EVERYBODY, {})

        self._store.write(work)

    # Looking

    @property
    def total(self) -> PrivacyFilter:
        """The filter itself: its budget, its split, what was spent."""
        return self._store.read(lambda rows: self._total(Entries(rows), self.who))

    @property
    def spent(self) -> ComposableCost:
        """All that was charged, in figures that add up."""
        return self.total.spent

    def totals(self) -> list[PrivacyFilter]:
        """All filters that must allow a charge: the account's, and an analyst's own."""

        def work(rows: Rows) -> list[PrivacyFilter]:
            return [self._total(Entries(rows), who) for who in dict.fromkeys((EVERYBODY, self.who))]

        return self._store.read(work)

    def left(self) -> Remaining:
        """What one more charge may cost: of an analyst, by her own budget and by the account's."""
        lefts = [total.left() for total in self.totals()]
        return Remaining(
            min(left.epsilon for left in lefts),
            min(left.delta for left in lefts),
            min(left.mu_squared for left in lefts),
        )

    def epsilon(self, delta: Number = 0) -> float:
        """The ε at which everything charged so far holds with this δ; infinite where none does."""
        found = PrivacyOdometer.epsilon_of(self.spent, delta)
        return math.inf if found is None else round_up(found)

    def lifetime(self) -> Lifetime:
        """What all windows cost somebody who is in all of them; of an account without windows, its own.

        Proof: docs/proofs/ledger.md, "Windows"
        """

        def work(rows: Rows) -> Lifetime:
            book = Entries(rows)
            names = [
                entry.account
                for entry in book.openings()
                if entry.body.get("family", entry.account) == self.family
            ]
            totals = [self._total_of(book, name, EVERYBODY) for name in names]
            odometer = PrivacyOdometer(max(total.delta for total in totals), totals[0].orders)
            for total in totals:
                odometer = odometer.after(total.spent)
            return Lifetime(odometer.reading(), len(totals))

        return self._store.read(work)

    def analysts(self) -> dict[str, PrivacyFilter]:
        """What each analyst may spend and has spent; an analyst sees only herself."""

        def work(rows: Rows) -> dict[str, PrivacyFilter]:
            names = Entries(rows).analysts(self.name) if self.who == EVERYBODY else [self.who]
            return {who: self._total(Entries(rows), who) for who in names}

        return self._store.read(work)

    def entries(self) -> Iterator[Entry]:
        """The account's lines, in their order; an analyst sees only her own."""
        after = 0
        while page := self._store.read(lambda rows: Entries(rows).page(after)):  # noqa: B023 - used at once
            after = page[-1].number
            for entry in page:
                if entry.account == self.name and (self.who in {EVERYBODY, entry.who}):
                    yield entry

    @property
    def is_closed(self) -> bool:
        """Whether its owner closed it."""
        return self._store.read(lambda rows: bool(Entries(rows).of_kind("close", self.name)))

    @cached_property
    def _orders(self) -> tuple[Fraction, ...]:
        """The account's Rényi orders, which were fixed when it was opened."""
        return self._store.read(lambda rows: self._total(Entries(rows), EVERYBODY)).orders

    def _spend(self, book: Entries, who: str, cost: ComposableCost) -> None:
        try:
            book.keep(self.name, who, self._total(book, who).charge(cost))
        except BudgetExceeded as refusal:
            whose = f"the budget of {who}" if who else f"the account {self.name!r}"
            raise refusal.reword(lambda _: f"the charge does not fit what is left of {whose}") from None

    def _stands(self, book: Entries, number: int, asked: tuple[str, Any], fingerprint: str | None) -> bool:
        """Whether a line pays for a question at its whole cost, with a release that is this ledger's own.

        Where a key is made of the question's fingerprint, a line that says something else was written by
        somebody else: the question is charged anew, and nobody is kept from asking it.
        """
        line = book.line(number)
        is_paid = _is_paid(line, self._orders) and (line.body["fingerprint"], line.body["loss"]) == asked
        if not is_paid and fingerprint is None:
            raise _other_question()
        kept = book.release(self.name, number) if is_paid else None
        return is_paid and (kept is None or self._seal.opened(kept, line.digest) is not None)

    def _authentic(self, kept: str, charge: Entry) -> str:
        """A release that this ledger's key or secret wrote, for this charge; or an error.

        Guarantee: what is given again was kept by a process that holds the rows.
        Proof: docs/proofs/ledger.md, "Tamper evidence"
        """
        found = self._seal.opened(kept, charge.digest)
        if found is None:
            raise LedgerFailed(
                f"the release of line {charge.number} does not have the mark of this ledger's key",
                why="whoever wrote it may have made it up",
                fix="put the key back beside the ledger, or ask the question: it is charged anew",
            )
        return found

    def _see(self, book: Entries, line: Entry) -> None:
        """An analyst's own budget pays once for what somebody else's question told her."""
        if self.who in {EVERYBODY, line.who} or book.saw(line.number, self.who):
            return
        self._refuse_closed(book)
        total = self._total(book, self.who)
        self._spend(book, self.who, cost_from_plain(line.body["cost"], total.orders))
        book.append(self.name, "seen", self.who, {"charge": line.number})
        book.see(line.number, self.who)

    def _refuse_unsealed(self, book: Entries) -> None:
        """Refuse to keep what can be read in a ledger whose releases are sealed."""
        if self._seal.is_open and Seal.is_on(book.last_release()):
            raise Refused(
                "the releases of this ledger are sealed, and it was opened without its secret",
                why="what is kept could be read by whoever reads the file",
                fix="open the ledger with the secret: Ledger.open(…, secret=…), or secret in hubbub.toml",
            )

    def _refuse_unseen(self, book: Entries, line: Entry) -> None:
        if self._is_reader or self.who in {EVERYBODY, line.who} or book.saw(line.number, self.who):
            return
        raise _not_allowed("this release is another analyst's")

    def _record(self, kind: str, body: dict[str, Any], *, once: bool = False) -> None:
        self._only_owner(f"record what is {kind}")
        for text in body.values():
            check_text(text, "what is recorded", _LONGEST)

        def work(rows: Rows) -> None:
            book = Entries(rows)
            if not (once and body in [entry.body for entry in book.of_kind(kind, self.name)][-1:]):
                book.append(self.name, kind, EVERYBODY, body)

        self._store.write(work)

    def _total(self, book: Entries, who: str) -> PrivacyFilter:
        return self._total_of(book, self.name, who)

    @staticmethod
    def _total_of(book: Entries, name: str, who: str) -> PrivacyFilter:
        found = book.total(name, who)
        if found is None:
            raise Refused(
                f"{who} has no budget in the account {name!r}",
                why="an analyst spends within a budget of her own",
                fix="ask the owner to grant one: hubbub budget grant",
            )
        return found

    def _refuse_closed(self, book: Entries) -> None:
        if book.of_kind("close", self.name):
            raise Refused(
                f"the account {self.name!r} is closed",
                why="its owner closed it",
                fix="ask for another account",
            )

    def _only_owner(self, what: str) -> None:
        if self._is_reader or self.who != EVERYBODY:
            raise _not_allowed(f"only the owner can {what}")

    def __reduce__(self) -> NoReturn:
        refuse_copy(
            "an account of a ledger",
            "open the ledger where it is needed, as Ledger.open(…).account(…), also in another process",
        )

    def __repr__(self) -> str:
        return f"Account({self.name!r}, {self.unit}{f', for {self.who}' if self.who else ''})"


def _is_paid(line: Entry, orders: tuple[Fraction, ...]) -> bool:
    """Whether a charge has all its facts, and was charged what its loss costs."""
    try:
        body = line.body
        known = cost_from_json(plain_text(body["loss"]), orders)
        is_charge = line.kind == "charge" and "fingerprint" in body
        return is_charge and covers(cost_from_plain(body["cost"], orders), known)
    except (KeyError, TypeError, ValueError, AttributeError, HubbubError):
        return False


def window_of(body: dict[str, Any]) -> Window | None:
    """The window of the account that was opened so."""
    found = body.get("window")
    if found is None:
        return None
    return Window(found["column"], date.fromisoformat(found["start"]), date.fromisoformat(found["end"]))


def check_name(name: Any, what: str) -> None:
    """Refuse what cannot be a name in one line."""
    if not isinstance(name, str) or not name.strip() or len(name) > 200 or not name.isprintable():
        raise InvalidInput(
            f"{what} has no name", why="lines are kept under it", fix="pass a short text of one line"
        )


def check_text(text: Any, what: str, longest: int) -> None:
    """Refuse what cannot be stored."""
    if not isinstance(text, str) or len(text) > longest or "\0" in text or not _is_unicode(text):
        raise InvalidInput(
            f"{what} is not a text that can be kept", why="people read it", fix="say it in words"
        )


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _not_allowed(what: str) -> Refused:
    return Refused(what, why="roles keep the budget and others' questions apart", fix="ask the owner")


def _other_question() -> Refused:
    return Refused(
        "the key was charged for another question, or at another cost",
        why="one charge pays for one answer",
        fix="use a new key",
    )
