"""The ledger: append-only, chained, and charged before anything runs.

Entries store what was done (events), not epsilons: these are computed from it.

Proof: docs/proofs/ledger.md
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn, Self

from hubbub.accounting import Budget, PrivacyFilter, PrivacyLoss
from hubbub.accounting.budget import check_unit_and_budget, refuse_copy
from hubbub.engines.data_identity import DataIdentity
from hubbub.errors import InvalidInput, Refused
from hubbub.escaping import escape
from hubbub.ledger.account import LedgerAccount
from hubbub.ledger.backup import back_up, open_store, restore
from hubbub.ledger.data_claims import plan_claims, refuse_public
from hubbub.ledger.entries import (
    OWNER,
    START,
    Entries,
    Entry,
    EntryKind,
    check_name,
    corruption_error,
    read_window,
    refuse_malformed,
    utc_now,
)
from hubbub.ledger.postgres import is_postgres_url
from hubbub.ledger.signing import Head, Seal, sign_head
from hubbub.ledger.store import Store, Transaction
from hubbub.ledger.verify import Replay, VerificationReport, verify_entries
from hubbub.unit import Neighbours, Unit

__all__ = ["Ledger", "missing_account_error"]


class Ledger:
    """A ledger in a store: a file, or a database that a team shares.

    >>> import tempfile
    >>> from hubbub.accounting import PrivacyLoss
    >>> folder = tempfile.TemporaryDirectory()
    >>> ledger = Ledger.open(f"{folder.name}/visits.ledger")
    >>> account = ledger.account("visits", Unit("patient"), Budget(1, 1e-6))
    >>> account.charge("a count", PrivacyLoss.pure(0.25)).what
    'a count'
    >>> float(account.remaining().epsilon)
    0.75
    >>> ledger.verify().ok
    True
    >>> ledger.close(); folder.cleanup()

    Guarantee: the sum of all charges never exceeds a budget, with any number of concurrent writers; a charge
        with a receipt is on the disk.
    Proof: docs/proofs/ledger.md
    """

    def __init__(self, store: Store, seal: Seal | None = None) -> None:
        if not hasattr(store, "find_problem"):  # a path, most likely
            raise InvalidInput(
                "a ledger is not made from its location",
                why="only opening it finds out whether it is a file or a database",
                fix='open it with hb.Ledger.open("visits.ledger"), or pass ledger="visits.ledger" to hb.open',
            )
        self._store = store
        self._seal = seal or Seal()
        if not self._seal.has_secret:
            self._seal.key_path = store.key_path

    @classmethod
    def open(cls, location: str | Path, *, secret: str | Path | None = None) -> "Ledger":
        """Open a ledger, and create it if it does not exist.

        Args:
            location: a path, or a `postgresql://…` URL.
            secret: the path of a file made by `hubbub ledger key --secret`. Releases are then stored
                encrypted, and can be read with the secret only.
        """
        seal = Seal(secret)
        return cls(open_store(location), seal)

    @classmethod
    def open_read_only(cls, location: str | Path) -> "Ledger":
        """Open a ledger for reading: also a copy, a backup, or one that was moved."""
        return cls(open_store(location, read_only=True))

    @property
    def key_path(self) -> Path | None:
        """The path of the key that authenticates releases; None if a secret encrypts them."""
        return self._seal.key_path

    def backup(self, path: str | Path) -> None:
        """Write one consistent state of the ledger to a new file that cannot be spent from.

        `Ledger.restore` makes a ledger of it again. The key that authenticates releases is not part of it.
        Keep that file too: without it, earlier questions are charged again when they are asked again.
        """
        back_up(self._store, path)

    def admit(self, name: str, role: str) -> None:
        """Give a role of the database access to a ledger in PostgreSQL.

        Args:
            name: the database role; its earlier rights end.
            role: "reader", which sees all entries and adds none; or "spender", for the process that holds the
                rows, which adds entries and changes none.
        """
        grant_role = getattr(self._store, "grant_role", None)
        if grant_role is None:
            raise InvalidInput(
                "the ledger is a file, which has no roles",
                why="only a database enforces who may read and who may charge",
                fix="set who may read the file, or move to a ledger in PostgreSQL",
            )
        grant_role(name, role)

    @classmethod
    def restore(
        cls, location: str | Path, backup: str | Path | None = None, *, spent_since: Mapping[str, PrivacyLoss]
    ) -> VerificationReport:
        """Make a ledger of a backup; or, without one, adopt a ledger that was copied or moved.

        Args:
            location: where the ledger will be, or where it was copied or moved to.
            backup: the path of a backup.
            spent_since: for each account, what was spent that the file does not contain; {} for nothing. It
                is charged and recorded; an account that it overspends is closed.

        Guarantee: nothing can be spent from a copy before the owner said what was spent since, and that is
            charged.
        Assumes: the owner knows what was spent since. An analyst's own budget is not charged for it: it is
            not known who spent it.
        Proof: docs/proofs/ledger.md, "One ledger"
        """
        restore(location, backup, spent_since)
        with cls.open(location) as ledger:
            return ledger.verify()

    @property
    def location(self) -> str:
        """Its path or URL."""
        return self._store.location

    def account(
        self,
        name: str,
        unit: Unit | None = None,
        budget: Budget | None = None,
        *,
        data: Mapping[str, DataIdentity] | None = None,
        new_rows: bool = False,
        override: bool = False,
    ) -> LedgerAccount:
        """Return an account; with a unit and a budget, open it if it does not exist.

        An existing account keeps its unit and its budget: others are refused. A unit with a window has one
        account per window, named after the account and the window's days; windows do not overlap.

        Args:
            name: the name of the account.
            unit: the unit of privacy.
            budget: the budget of a new account.
            data: the identity of the rows that the account pays for, by the dataset's name. No other account
                may pay for them.
            new_rows: the owner asserts that no other account pays for these rows.
            override: the owner accepts that an account of another unit pays for them too.
        """
        check_name(name, "the account")
        check_unit_and_budget(unit, budget)
        family = name
        if unit is not None and unit.window is not None:
            name = f"{name} {unit.window.start}..{unit.window.end}"
        opening = self._store.read(lambda transaction: Entries(transaction).opening(name))
        if opening is None:
            if unit is None or budget is None:
                raise missing_account_error(name, family, self.accounts())
            claimed, new_unit, new_budget = data or {}, unit, budget

            def work(transaction: Transaction) -> dict[str, Any]:
                entries = Entries(transaction)
                # Raises if the claim is refused: then no account is opened.
                plan_claims(entries, family, new_unit, claimed, new_rows=new_rows, override=override)
                return _open_account(entries, name, family, new_unit, new_budget)

            opening = self._store.write(work)
        with refuse_malformed():
            known_unit = Unit(opening["unit"], Neighbours(opening["neighbours"]), read_window(opening))
        if unit is not None and unit != known_unit:
            raise Refused(
                f"the account {name!r} is for {known_unit}",
                why="an account protects one unit under one neighbouring relation",
                fix="open an account with another name",
            )
        figures = None if budget is None else [str(budget.epsilon), str(budget.delta), budget.purpose]
        if figures is not None and figures != [opening["epsilon"], opening["delta"], opening["purpose"]]:
            raise Refused(
                f"the account {name!r} has another budget",
                why="a budget is fixed before anything is spent from it",
                fix="leave the budget out to use the account as it is, or open one with another name",
            )
        account = LedgerAccount(
            self._store, name, known_unit, family=opening.get("family", name), seal=self._seal
        )
        if data:
            account.claim_data(data, new_rows=new_rows, override=override)
        return account

    def refuse_public(self, data: Mapping[str, DataIdentity]) -> None:
        """Refuse a public table if an account pays for its rows."""
        self._store.read(lambda transaction: refuse_public(Entries(transaction), data))

    def accounts(self) -> list[str]:
        """Return the names of all accounts."""
        return self._store.read(lambda transaction: Entries(transaction).accounts())

    def entries(self) -> Iterator[Entry]:
        """Iterate over all entries in order."""
        after = 0
        while page := self._store.read(lambda t: Entries(t).page(after)):  # noqa: B023 - used at once
            after = page[-1].number
            yield from page

    def head_digest(self) -> str:
        """Return the digest of the last entry: stored elsewhere, it lets `verify` find a truncation."""
        last = self._store.read(lambda transaction: Entries(transaction).last())
        return START if last is None else last.digest

    def sign(self, key: str | Path) -> str:
        """Return the head, signed with the owner's private key: to be stored elsewhere, or published.

        With the public key alone it proves any later change of the entries so far, also a truncation.

        Args:
            key: the path of the private key.

        Proof: docs/proofs/ledger.md, "Tamper evidence"
        """
        last = self._store.read(lambda transaction: Entries(transaction).last())
        number, digest = (0, START) if last is None else (last.number, last.digest)
        return sign_head(Head(number, digest, utc_now()), key)

    def verify(self, head: str | None = None) -> VerificationReport:
        """Check that all entries are unchanged, none is missing, and the filters are their sums.

        Args:
            head: the head digest that the owner stored elsewhere: with it a truncation is found too.

        Proof: docs/proofs/ledger.md, "Tamper evidence"
        """
        heads = self._store.known_heads()

        def work(transaction: Transaction) -> VerificationReport:
            report = verify_entries(Entries(transaction), head)
            problem = self._store.find_problem(transaction, heads)
            return report if problem is None else replace(report, problems=(*report.problems, problem))

        return self._store.read(work)

    def filters_at(self, number: int) -> dict[tuple[str, str], PrivacyFilter]:
        """Replay the entries up to this number, and return the filters by account and analyst."""

        def work(transaction: Transaction) -> dict[tuple[str, str], PrivacyFilter]:
            replay = Replay()
            for entry in Entries(transaction).iterate():
                if entry.number > number:
                    break
                replay.apply(entry)
            return replay.filters

        return self._store.read(work)

    def close(self) -> None:
        """Close the store."""
        self._store.close()

    def __repr__(self) -> str:
        location = self._store.location
        # A URL may contain a password.
        return f"Ledger({'postgresql://…' if is_postgres_url(location) else escape(location)})"

    def __reduce__(self) -> NoReturn:
        refuse_copy("a ledger", "open it where it is needed, as Ledger.open(…), also in another process")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _open_account(entries: Entries, name: str, family: str, unit: Unit, budget: Budget) -> dict[str, Any]:
    opening = entries.opening(name)  # somebody else may have been first
    if opening is not None:
        return opening
    if entries.get_filter(name, OWNER) is not None:
        raise corruption_error(f"the opening of the account {name!r}")
    _refuse_second_budget(entries, family, unit)
    new = PrivacyFilter(budget)
    body: dict[str, Any] = {
        "unit": unit.key,
        "neighbours": unit.neighbours.value,
        "epsilon": str(budget.epsilon),
        "delta": str(budget.delta),
        "population": budget.population,
        "purpose": budget.purpose,
        "filter": new.to_json(),
    }
    if unit.window is not None:
        ends = {"start": str(unit.window.start), "end": str(unit.window.end)}
        body |= {"family": family, "window": {"column": unit.window.column, **ends}}
    entries.append(name, EntryKind.OPEN, OWNER, body)
    entries.store_filter(name, OWNER, new)
    return body


def _refuse_second_budget(entries: Entries, family: str, unit: Unit) -> None:
    """Refuse an account that would give some rows a second budget under one name.

    Guarantee: each row is in at most one account of a family.
    Proof: docs/proofs/ledger.md, "Windows"
    """
    for entry in entries.openings():
        if entry.body.get("family", entry.account) != family:
            continue
        window = read_window(entry.body)
        if window is None or unit.window is None:
            raise Refused(
                f"the account {family!r} is {'for all time' if window is None else 'divided into windows'}",
                why="a row with two budgets is protected by neither of them",
                fix="use it as it is, or open an account with another name",
            )
        known = (entry.body["unit"], entry.body["neighbours"], window.column)
        if known != (unit.key, unit.neighbours.value, unit.window.column):
            raise Refused(
                f"the windows of {family!r} are for another unit, or by another column",
                why="a row with two budgets is protected by neither of them",
                fix=f"use the column {window.column}, or open an account with another name",
            )
        if window.overlaps(unit.window):
            raise Refused(
                f"the window overlaps with another of {family!r}: {window}",
                why="a row with two budgets is protected by neither of them",
                fix="use windows that do not overlap",
            )


def missing_account_error(name: str, family: str, others: Sequence[str] = ()) -> InvalidInput:
    """The refusal of an account that does not exist, where nothing says how to open it."""
    return InvalidInput(
        f"there is no account {name!r}",
        why="a new account needs a unit and a budget",
        fix=(f"use one of: {', '.join(others)}; or " if others else "") + f"{{open_account={family}}}",
        parameter="account",
    )
