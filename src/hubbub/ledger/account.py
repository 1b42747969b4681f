"""The ledger's account: one unit, one neighbouring relation, one budget, and what was spent of it.

Proof: docs/proofs/ledger.md
"""

import html
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NoReturn

from hubbub.accounting import Budget, PrivacyFilter, PrivacyLoss, Receipt
from hubbub.accounting.budget import refuse_copy, refuse_other_relation, refuse_other_unit
from hubbub.accounting.filter_second_stage import FilterCharge, OdometerReading, encode_charge
from hubbub.accounting.filters import Remaining
from hubbub.accounting.serialization import encode_loss
from hubbub.engines.data_identity import DataIdentity
from hubbub.errors import BudgetExceeded, InvalidInput, LedgerFailed, Refused
from hubbub.ledger.data_claims import plan_claims
from hubbub.ledger.entries import (
    OWNER,
    Entries,
    Entry,
    EntryKind,
    check_name,
    check_text,
    digest,
    is_fully_paid,
    read_loss,
    refuse_malformed,
)
from hubbub.ledger.lifetime_loss import LifetimeLoss, lifetime_loss
from hubbub.ledger.signing import Seal
from hubbub.ledger.store import Store, Transaction
from hubbub.numbers import Number, format_down, format_up
from hubbub.unit import Unit

__all__ = ["Charge", "LedgerAccount", "LifetimeLoss"]

_MAX_TEXT_LENGTH = 100_000
_MAX_RELEASE_LENGTH = 1 << 30


@dataclass(frozen=True)
class Charge:
    """A recorded charge: its entry, and whether it was made now or earlier."""

    receipt: Receipt
    number: int
    """The number of its entry."""
    is_new: bool
    timestamp: str
    has_outcome: bool = False
    """True if its outcome is recorded."""
    attempt: str | None = None
    """The attempt that made it, the only one that may run it."""


class LedgerAccount:
    """An account of a ledger, used on behalf of its owner, an analyst or a reader.

    This class enforces these roles: it runs in the process that holds the rows. Somebody who can write the
    file or the database can bypass them; `Ledger.verify` finds that.
    """

    def __init__(
        self,
        store: Store,
        name: str,
        unit: Unit,
        analyst: str = OWNER,
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
        self.analyst = analyst
        """The analyst charged in addition to the account; empty for the owner."""
        self._seal = seal or Seal()
        self._is_reader = is_reader

    def for_analyst(self, analyst: str) -> "LedgerAccount":
        """Return the same account, charged on behalf of an analyst within her own budget."""
        self._require_owner("act for an analyst")
        check_name(analyst, "the analyst")
        return LedgerAccount(self._store, self.name, self.unit, analyst, family=self.family, seal=self._seal)

    def for_reader(self) -> "LedgerAccount":
        """Return the same account, read-only."""
        self._require_owner("act for a reader")
        return LedgerAccount(
            self._store, self.name, self.unit, family=self.family, seal=self._seal, is_reader=True
        )

    # Spending

    def charge(self, what: str, loss: PrivacyLoss, *, unit: Unit | None = None) -> Receipt:
        """Charge a privacy loss before anything runs; durable when it returns.

        Args: as in `Account.charge`.

        Guarantee: the charges of the account and of each analyst fit their budgets, with any number of
            concurrent writers. Charges are never refunded.
        Proof: docs/proofs/ledger.md, "Never overspent"
        """
        return self.record_charge(what, loss, unit=unit).receipt

    def record_charge(
        self,
        what: str,
        loss: PrivacyLoss,
        *,
        unit: Unit | None = None,
        key: str | None = None,
        fingerprint: str | None = None,
        dataset: str = "",
        attempt: str | None = None,
        replace_lost: int | None = None,
        replace_failed: int | None = None,
        plan: Sequence[Mapping[str, Any]] | None = None,
    ) -> Charge:
        """Charge like `charge`, and return the entry under which the outcome is recorded.

        A key is charged once. A key that was charged for another question, or at another cost, is refused.
        If another analyst charged the key and its release is recorded, the caller's own budget pays for
        seeing it, and the account does not pay again.

        Args:
            what: a description of the release.
            loss: what it costs.
            unit: the unit that the release protects. A unit other than the account's is refused; it is
                required if the account has a window.
            key: identifies the question; the same key is charged once.
            fingerprint: stands for the question; by default `what` does.
            dataset: the name of the data.
            attempt: the attempt that makes the charge. Only that attempt may run it.
            replace_lost: charge the key again if this entry has it and still has no outcome.
            replace_failed: charge the key again if this entry has it: its outcome is a failure.
            plan: how it is released, for the label; free of data, and of what earlier releases found.

        Guarantee: a charge is new once.
        Proof: docs/proofs/ledger.md, "One outcome per charge"
        """
        if self._is_reader:
            raise _role_error("a reader cannot charge")
        refuse_other_unit(self.unit, unit)
        check_text(what, "the description", _MAX_TEXT_LENGTH)
        check_text(dataset, "the dataset", _MAX_TEXT_LENGTH)
        if key is not None:
            check_name(key, "the key")
        stored = encode_loss(loss)
        recorded = read_loss(stored)
        refuse_other_relation(self.unit.neighbours, recorded)
        self._prepare(recorded)
        question = digest(what) if fingerprint is None else fingerprint
        check_name(question, "the fingerprint")

        def work(transaction: Transaction) -> Charge:
            entries = Entries(transaction)
            known = None if key is None else entries.find_charge(self.name, key)
            if known is not None and self._matches(entries, known, (question, stored), fingerprint):
                entry = entries.get(known)
                has_outcome = entries.has_outcome(known)
                if has_outcome and known != replace_failed:
                    self._pay_for_view(entries, entry)
                if known != replace_failed and (has_outcome or known != replace_lost):
                    return Charge(
                        Receipt(what, loss),
                        known,
                        is_new=False,
                        timestamp=entry.timestamp,
                        has_outcome=has_outcome,
                        attempt=entry.body.get("attempt"),
                    )
            self._refuse_closed(entries)
            if attempt is not None:  # an outcome will be recorded: fail now if that is impossible
                self._refuse_without_secret(entries)
                self._seal.check()
            charged = {
                analyst: encode_charge(self._spend(entries, analyst, recorded))
                for analyst in dict.fromkeys((OWNER, self.analyst))
            }
            body: dict[str, Any] = {
                "description": what,
                "dataset": dataset,
                "loss": stored,
                "charged": charged,
                "unit": self.unit.key,
                "neighbours": self.unit.neighbours.value,
                "fingerprint": question,
                "key": key,
            }
            body |= {"plan": list(plan)} if plan else {}
            if attempt is not None:
                body["attempt"] = attempt
            if known is not None:
                body["replaces"] = known
                entries.detach_key(known)
            entry = entries.append(self.name, EntryKind.CHARGE, self.analyst, body)
            entries.store_charge(self.name, key, entry.number)
            return Charge(
                Receipt(what, loss),
                entry.number,
                is_new=True,
                timestamp=entry.timestamp,
                attempt=attempt,
            )

        return self._store.write(work)

    def record_release(self, number: int, release: str) -> str:
        """Record the outcome of a charge before anybody sees it, and return the outcome that may be shown.

        Guarantee: for one charge this is always the same text: the first that was recorded.
        Proof: docs/proofs/ledger.md, "One outcome per charge"
        """
        if self._is_reader:
            raise _role_error("a reader cannot release")
        check_text(release, "the release", _MAX_RELEASE_LENGTH)

        def work(transaction: Transaction) -> str:
            entries = Entries(transaction)
            earlier = entries.get_release(self.name, number)
            charge = entries.get(number)
            self._refuse_unviewed(entries, charge)
            if earlier is not None:
                return self._unseal(earlier, charge)
            self._refuse_without_secret(entries)
            stored = self._seal.seal(release, charge.digest)
            body = {"charge": number, "digest": digest(stored)}
            entry = entries.append(self.name, EntryKind.RELEASE, self.analyst, body)
            entries.store_release(number, entry.number, stored)
            return release

        return self._store.write(work)

    def get_release(self, number: int) -> str | None:
        """Return the recorded outcome of a charge; None if there is none."""

        def work(transaction: Transaction) -> str | None:
            entries = Entries(transaction)
            stored = entries.get_release(self.name, number)
            charge = entries.get(number)
            self._refuse_unviewed(entries, charge)
            return None if stored is None else self._unseal(stored, charge)

        return self._store.read(work)

    def entry(self, number: int) -> Entry:
        """Return the entry of a charge, if the caller may see its release."""

        def work(transaction: Transaction) -> Entry:
            entry = Entries(transaction).get(number)
            self._refuse_unviewed(Entries(transaction), entry)
            return entry

        return self._store.read(work)

    # For the owner

    def grant(self, analyst: str, budget: Budget) -> None:
        """Give an analyst a budget of her own within the account's; what she has spent stays spent.

        Guarantee: the account's own budget holds, whatever is granted.
        Assumes: for the analyst's own budget: how it is raised does not depend on her answers.
        Proof: docs/proofs/ledger.md, "Never overspent"
        """
        self._require_owner("grant")
        check_name(analyst, "the analyst")

        def work(transaction: Transaction) -> None:
            entries = Entries(transaction)
            self._refuse_closed(entries)
            granted, carried = PrivacyFilter(budget), list[dict[str, Any]]()
            body = {"analyst": analyst, "filter": granted.to_json(), "carried": carried}
            earlier = entries.get_filter(self.name, analyst)
            # A purpose divides δ. Chosen after an answer, it would cost the δ of either division.
            if earlier is not None and earlier.is_bound_to_another(budget.purpose):
                raise InvalidInput(
                    f"the {{purpose}} of the analyst's budget is {earlier.purpose or 'none'!r}",
                    why="it was fixed before anything was spent",
                    fix="grant the budget with the same purpose", parameter="purpose",
                )  # fmt: skip
            # What she asked until now is charged to the new budget as if it had been there from the start.
            try:
                for loss in entries.losses_of(self.name, analyst) if earlier is not None else ():
                    charge = granted.price(loss)
                    granted = granted.apply(loss, charge)
                    carried.append(encode_charge(charge))
            except BudgetExceeded:
                raise InvalidInput(
                    "more is spent than fits the budget", why="what the analyst has spent stays spent",
                    fix="grant a larger budget",
                ) from None  # fmt: skip
            entries.append(self.name, EntryKind.GRANT, OWNER, body)
            entries.store_filter(self.name, analyst, granted)

        self._store.write(work)

    def record_nonprivate_access(self, what: str) -> None:
        """Record that the owner is about to look at exact answers."""
        self._record(EntryKind.NONPRIVATE_ACCESS, {"description": what})

    def record_version(self, version: str, dataset: str) -> None:
        """Record the current version of a dataset, unless it is the latest already."""
        self._record(EntryKind.VERSION, {"version": version, "dataset": dataset}, once=True)

    def record_override(self, what: str) -> None:
        """Record that the owner is about to override what she declared."""
        self._record(EntryKind.OVERRIDE, {"description": what})

    def claim_data(
        self, data: Mapping[str, DataIdentity], *, new_rows: bool = False, override: bool = False
    ) -> None:
        """Record that this account pays for these rows.

        Args:
            data: the identity of each dataset's rows, by the dataset's name.
            new_rows: the owner asserts that no other account pays for these rows.
            override: the owner accepts that an account of another unit pays for them too.

        Guarantee: no other account of the ledger pays for rows with the same name, or with a file number that
            no other file can have had, for the same unit; the accounts of all windows are one family. In a
            ledger with other accounts, unknown rows are claimed with `new_rows` or not at all.
        Assumes: the owner's assertion is true: rows in memory, copies and views look like new rows.
        Proof: docs/proofs/ledger.md, "Windows"
        """

        def make_bodies(transaction: Transaction) -> list[dict[str, Any]]:
            return plan_claims(
                Entries(transaction), self.family, self.unit, data, new_rows=new_rows, override=override
            )

        def work(transaction: Transaction) -> None:
            for body in make_bodies(transaction):
                Entries(transaction).append(self.name, EntryKind.CLAIM, OWNER, body)

        if self._store.read(make_bodies):
            self._require_owner("say what an account pays for")
            self._store.write(work)

    def latest_version(self, dataset: str) -> str | None:
        """Return the version of a dataset that was recorded last."""
        entries = self._entries_of_kind(EntryKind.VERSION)
        versions = [entry.body["version"] for entry in entries if entry.body["dataset"] == dataset]
        return versions[-1] if versions else None

    def close(self) -> None:
        """Close the account: no more charges, ever."""
        self._require_owner("close an account")

        def work(transaction: Transaction) -> None:
            self._refuse_closed(Entries(transaction))
            Entries(transaction).append(self.name, EntryKind.CLOSE, OWNER, {})

        self._store.write(work)

    # Reading

    @property
    def privacy_filter(self) -> PrivacyFilter:
        """The filter of the account, or of the analyst: its budget, its split and what was spent."""
        return self._store.read(lambda transaction: self._get_filter(Entries(transaction), self.analyst))

    def spent(self) -> OdometerReading:
        """Return what was spent so far: a pair (ε, δ) that holds, at any moment.

        Guarantee: as `PrivacyFilter.spent`.
        Proof: docs/proofs/filters.md, "The odometer"
        """
        return self.privacy_filter.spent()

    def privacy_filters(self) -> list[PrivacyFilter]:
        """Return all filters that must allow a charge: the account's, and the analyst's own."""

        def work(transaction: Transaction) -> list[PrivacyFilter]:
            entries = Entries(transaction)
            return [self._get_filter(entries, analyst) for analyst in dict.fromkeys((OWNER, self.analyst))]

        return self._store.read(work)

    def remaining(self) -> Remaining:
        """Return what one more charge may cost; an analyst's is limited by her own budget too."""
        each = [one.remaining() for one in self.privacy_filters()]
        return Remaining(
            min(one.epsilon for one in each),
            min(one.delta for one in each),
            min(one.mu_squared for one in each),
        )

    def epsilon(self, delta: Number = 0) -> float:
        """Return the ε of all charges so far at this δ; infinite if there is none."""
        return self.privacy_filter.spent_epsilon(delta)

    def count_more(self, loss: PrivacyLoss) -> int:
        """Return about how many more charges like this one fit; an analyst's own budget counts, too."""
        return min(one.count_more(loss) for one in self.privacy_filters())

    def lifetime_loss(self, until: float = float("inf")) -> LifetimeLoss:
        """Return the loss of somebody who is in all windows, up to an entry; without windows, the account's.

        Proof: docs/proofs/ledger.md, "Windows"
        """

        def work(transaction: Transaction) -> LifetimeLoss:
            entries = Entries(transaction)
            names = [
                entry.account
                for entry in entries.openings()
                if entry.body.get("family", entry.account) == self.family and entry.number <= until
            ]
            filters = [self._filter_of(entries, name, OWNER) for name in names]
            if self.unit.window is None:
                return LifetimeLoss(filters[0].spent(), 1)
            return lifetime_loss(filters, (x for name in names for x in entries.losses_of(name, until=until)))

        return self._store.read(work)

    def analysts(self) -> dict[str, PrivacyFilter]:
        """Return the filter of each analyst; an analyst sees only her own."""

        def work(transaction: Transaction) -> dict[str, PrivacyFilter]:
            entries = Entries(transaction)
            names = entries.analysts(self.name) if self.analyst == OWNER else [self.analyst]
            return {analyst: self._get_filter(entries, analyst) for analyst in names}

        return self._store.read(work)

    def find_charge(self, key: str) -> int | None:
        """Return the number of the entry that paid for a question with this key; None if none did."""
        return self._store.read(lambda transaction: Entries(transaction).find_charge(self.name, key))

    def entries(self, after: int = 0) -> Iterator[Entry]:
        """Iterate over the account's entries in order, after a number; an analyst sees only her own."""
        while page := self._store.read(lambda t: Entries(t).page(after)):  # noqa: B023 - used at once
            after = page[-1].number
            for entry in page:
                if entry.account == self.name and (self.analyst in {OWNER, entry.analyst}):
                    yield entry

    @property
    def is_closed(self) -> bool:
        """True if its owner closed it."""
        return bool(self._entries_of_kind(EntryKind.CLOSE))

    # Helpers

    def _prepare(self, loss: PrivacyLoss) -> None:
        """Find what is charged before the write lock is taken: it may take long, and is remembered."""
        with suppress(Refused):
            for payer in self.privacy_filters():
                payer.allows(loss)

    def _spend(self, entries: Entries, analyst: str, loss: PrivacyLoss) -> FilterCharge:
        payer = self._get_filter(entries, analyst)
        try:
            charge = payer.price(loss)
            entries.store_filter(self.name, analyst, payer.apply(loss, charge))
        except BudgetExceeded as refusal:
            name = f"the budget of {analyst}" if analyst else f"the account {self.name!r}"
            raise refusal.reword(lambda _: f"the charge does not fit what is left of {name}") from None
        return charge

    def _matches(
        self, entries: Entries, number: int, request: tuple[str, Any], fingerprint: str | None
    ) -> bool:
        """Check that an entry pays for a question in full, and that its release has this ledger's seal.

        If a key is derived from the question's fingerprint, an entry that says something else was planted.
        The question is then charged again: a planted entry must not keep anybody from asking it.
        """
        entry = entries.get(number)
        is_paid = is_fully_paid(entry, self._get_filter(entries, OWNER))
        is_paid = is_paid and (entry.body["fingerprint"], entry.body["loss"]) == request
        if not is_paid and fingerprint is None:
            raise Refused(
                "the key was charged for another question, or at another cost",
                why="one charge pays for one answer",
                fix="use a new key",
            )
        release = entries.get_release(self.name, number) if is_paid else None
        return is_paid and (release is None or self._seal.unseal(release, entry.digest) is not None)

    def _unseal(self, stored: str, charge: Entry) -> str:
        """Return a release that was sealed with this ledger's key or secret for this charge; or raise.

        Guarantee: a release that is shown again was recorded by a process that holds the rows.
        Proof: docs/proofs/ledger.md, "Tamper evidence"
        """
        release = self._seal.unseal(stored, charge.digest)
        if release is None:
            raise LedgerFailed(
                f"the release of entry {charge.number} is not authenticated by this ledger's key",
                why="it may have been planted",
                fix="put the key back beside the ledger, or ask the question again: it is charged again",
            )
        return release

    def _may_view(self, entries: Entries, entry: Entry) -> bool:
        return self.analyst in {OWNER, entry.analyst} or entries.has_viewed(entry.number, self.analyst)

    def _pay_for_view(self, entries: Entries, entry: Entry) -> None:
        """Charge an analyst's own budget, once, for a release that somebody else charged."""
        if self._may_view(entries, entry):
            return
        self._refuse_closed(entries)
        with refuse_malformed():
            loss = read_loss(entry.body["loss"])
        charge = self._spend(entries, self.analyst, loss)
        entries.append(
            self.name,
            EntryKind.VIEW,
            self.analyst,
            {"charge": entry.number, "charged": encode_charge(charge)},
        )
        entries.store_view(entry.number, self.analyst)

    def _refuse_without_secret(self, entries: Entries) -> None:
        """Refuse to record a readable release in a ledger with encrypted releases."""
        if not self._seal.has_secret and Seal.is_encrypted(entries.last_release_prefix()):
            raise Refused(
                "the releases of this ledger are encrypted, and it was opened without its secret",
                why="anybody who can read the file could read this release",
                fix="open the ledger with the secret: Ledger.open(…, secret=…), or secret in hubbub.toml",
            )

    def _refuse_unviewed(self, entries: Entries, entry: Entry) -> None:
        if not (self._is_reader or self._may_view(entries, entry)):
            raise _role_error("this release is another analyst's")

    def _entries_of_kind(self, kind: EntryKind) -> list[Entry]:
        return self._store.read(lambda transaction: Entries(transaction).of_kind(kind, self.name))

    def _record(self, kind: EntryKind, body: dict[str, Any], *, once: bool = False) -> None:
        self._require_owner(f"record entries of kind {kind}")
        for text in body.values():
            check_text(text, "the description", _MAX_TEXT_LENGTH)

        def work(transaction: Transaction) -> None:
            entries = Entries(transaction)
            if not (once and body in [entry.body for entry in entries.of_kind(kind, self.name)][-1:]):
                entries.append(self.name, kind, OWNER, body)

        self._store.write(work)

    def _get_filter(self, entries: Entries, analyst: str) -> PrivacyFilter:
        return self._filter_of(entries, self.name, analyst)

    @staticmethod
    def _filter_of(entries: Entries, name: str, analyst: str) -> PrivacyFilter:
        state = entries.get_filter(name, analyst)
        if state is None:
            raise Refused(
                f"{analyst} has no budget in the account {name!r}",
                why="an analyst spends from her own budget",
                fix="ask the owner to grant one: hubbub budget grant",
            )
        return state

    def _refuse_closed(self, entries: Entries) -> None:
        if entries.of_kind(EntryKind.CLOSE, self.name):
            raise Refused(
                f"the account {self.name!r} is closed",
                why="its owner closed it",
                fix="ask for another account",
            )

    def _require_owner(self, what: str) -> None:
        if self._is_reader or self.analyst != OWNER:
            raise _role_error(f"only the owner can {what}")

    def __reduce__(self) -> NoReturn:
        refuse_copy(
            "an account of a ledger",
            "open the ledger where it is needed, as Ledger.open(…).account(…), also in another process",
        )

    def __repr__(self) -> str:
        on_behalf = f", for {self.analyst}" if self.analyst else ""
        return f"LedgerAccount({self.name!r}, {self.unit}{on_behalf})"

    def _repr_html_(self) -> str:
        one = self.privacy_filter
        spent = one.spent().epsilon
        figures = (
            f"ε = {format_up(spent)} of {format_up(one.epsilon)} spent, "
            f"{format_down(self.remaining().epsilon)} remaining"
        )
        return f"<p><b>{html.escape(self.name)}</b> ({html.escape(str(self.unit))}): {figures}</p>"


def _role_error(what: str) -> Refused:
    return Refused(
        what, why="roles protect the budget and other analysts' questions", fix="ask the owner of the account"
    )
