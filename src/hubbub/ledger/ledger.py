"""The ledger: append-only, chained, and charged before anything runs.

Entries hold what was done, not epsilons: these are views of it.

Proof: docs/proofs/ledger.md
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn, Self

from hubbub.accounting import Budget, PrivacyFilter, PrivacyLoss
from hubbub.accounting.budget import refuse_copy
from hubbub.engines.data_identity import DataIdentity
from hubbub.errors import InvalidInput, Refused
from hubbub.ledger.account import Account, check_name, window_of
from hubbub.ledger.backup import back_up, restore, store_at
from hubbub.ledger.data_claims import check_claims, refuse_public
from hubbub.ledger.entries import EVERYBODY, START, Entries, Entry, damaged, now, read_as_written
from hubbub.ledger.signing import Head, Seal, sign_head
from hubbub.ledger.sqlite import Rows, Store
from hubbub.ledger.verify import Replay, Verdict, verify_entries
from hubbub.unit import Neighbours, Unit

__all__ = ["Ledger"]


class Ledger:
    """A ledger in a store: a file, or a database that a team shares.

    >>> import tempfile
    >>> from hubbub.accounting import PrivacyLoss
    >>> folder = tempfile.TemporaryDirectory()
    >>> ledger = Ledger.open(f"{folder.name}/visits.ledger")
    >>> account = ledger.account("visits", Unit("patient"), Budget(1, 1e-6))
    >>> account.charge("a count", PrivacyLoss.pure(0.25)).what
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

    def __init__(self, store: Store, seal: Seal | None = None) -> None:
        self._store = store
        self._seal = seal or Seal()
        if self._seal.is_open:
            self._seal.key = store.key_path

    @classmethod
    def open(cls, where: str | Path, *, secret: str | Path | None = None) -> "Ledger":
        """The ledger at a path, made if it is not there, or at a `postgresql://…` address.

        With a `secret`, the path of a file that `hubbub ledger key --secret` made, what is released is stored
        sealed, and only who has the secret can read it.
        """
        seal = Seal(secret)
        return cls(store_at(where), seal)

    @classmethod
    def look(cls, where: str | Path) -> "Ledger":
        """The ledger at a path or an address, to look at: also a copy, a backup, or one that was moved."""
        return cls(store_at(where, is_looked_at=True))

    @property
    def key_path(self) -> Path | None:
        """Where the key is kept that marks releases; None where a secret seals them."""
        return self._seal.key

    def backup(self, path: str | Path) -> None:
        """Write all of the ledger, at one moment, to a new file that cannot be spent from.

        `Ledger.restore` makes a ledger of it again. The key that marks releases is not part of it: keep that
        file, too, or what was released before is charged anew when it is asked for again.
        """
        back_up(self._store, path)

    @classmethod
    def restore(
        cls, where: str | Path, backup: str | Path | None = None, *, spent_since: Mapping[str, PrivacyLoss]
    ) -> Verdict:
        """Make a ledger of a backup; or, without one, go on with one that was copied or moved to a place.

        `spent_since` says by account what was spent that the file does not know of, and {} that nothing was.
        It is charged, and recorded in a line of each account; an account that it does not fit is closed.

        Guarantee: nothing can be spent of a copy before this was said, and what was said is spent.
        Assumes: the owner knows what was spent since. An analyst's own budget is not charged for it: by whom
            it was spent is not known.
        Proof: docs/proofs/ledger.md, "One ledger"
        """
        restore(where, backup, spent_since)
        with cls.open(where) as ledger:
            return ledger.verify()

    @property
    def where(self) -> str:
        """Its path or address."""
        return self._store.where

    def account(
        self,
        name: str,
        unit: Unit | None = None,
        budget: Budget | None = None,
        *,
        rows: Mapping[str, DataIdentity] | None = None,
        new_rows: bool = False,
        override: bool = False,
    ) -> Account:
        """An account by its name; with a unit and a budget it is opened if it is not there.

        An account that is there keeps its unit and its budget: others are refused. A unit with a window has
        an account for each window, under the name and the window's days; windows do not overlap. `rows` says
        for which it pays, by the names of tables and by what they are known: no other account may. With
        `new_rows` the owner says that no other does, with `override` that another does for another unit.
        """
        check_name(name, "the account")
        family = name
        if unit is not None and unit.window is not None:
            name = f"{name} {unit.window.start}..{unit.window.end}"
        found = self._store.read(lambda rows: Entries(rows).opening(name))
        if found is None:
            if unit is None or budget is None:
                raise InvalidInput(
                    f"there is no account {name!r}",
                    why="it must be opened with a unit and a budget first",
                    fix="pass the unit and the budget",
                )
            claimed, unit_, budget_ = rows or {}, unit, budget

            def work(opened: Rows) -> dict[str, Any]:
                # Or nothing is opened.
                check_claims(Entries(opened), family, unit_, claimed, new_rows=new_rows, override=override)
                return _opened(Entries(opened), name, family, unit_, budget_)

            found = self._store.write(work)
        with read_as_written():
            known = Unit(found["unit"], Neighbours(found["neighbours"]), window_of(found))
        if unit is not None and unit != known:
            raise Refused(
                f"the account {name!r} is for {known}",
                why="an account protects one unit under one relation",
                fix="open an account of another name",
            )
        asked = None if budget is None else [str(budget.epsilon), str(budget.delta)]
        if asked is not None and asked != [found["epsilon"], found["delta"]]:
            raise Refused(
                f"the account {name!r} has another budget",
                why="a budget is fixed before anything is spent of it",
                fix="leave the budget out to use the account as it is, or open one of another name",
            )
        made = Account(self._store, name, known, family=found.get("family", name), seal=self._seal)
        if rows:
            made.claim(rows, new_rows=new_rows, override=override)
        return made

    def refuse_public(self, rows: Mapping[str, DataIdentity]) -> None:
        """Refuse, as public, rows that an account pays for."""
        self._store.read(lambda stored: refuse_public(Entries(stored), rows))

    def accounts(self) -> list[str]:
        """The names of all accounts."""
        return self._store.read(lambda rows: Entries(rows).accounts())

    def entries(self) -> Iterator[Entry]:
        """All lines, in their order."""
        after = 0
        while page := self._store.read(lambda rows: Entries(rows).page(after)):  # noqa: B023 - used at once
            after = page[-1].number
            yield from page

    def head(self) -> str:
        """The digest of the last line: kept elsewhere, it lets `verify` find a truncation."""
        last = self._store.read(lambda rows: Entries(rows).last())
        return START if last is None else last.digest

    def sign(self, key: str | Path) -> str:
        """The head, signed with the owner's private key: to be kept elsewhere, or published.

        Who keeps it finds any later change of the lines so far, also a truncation, with the public key alone.

        Proof: docs/proofs/ledger.md, "Tamper evidence"
        """
        last = self._store.read(lambda rows: Entries(rows).last())
        number, digest = (0, START) if last is None else (last.number, last.digest)
        return sign_head(Head(number, digest, now()), key)

    def verify(self, head: str | None = None) -> Verdict:
        """Whether all lines are as they were written, none is missing, and the totals are their sums.

        `head` is the digest that the owner kept: with it a ledger that was cut short is found too.

        Proof: docs/proofs/ledger.md, "Tamper evidence"
        """
        before = self._store.remembered()

        def work(rows: Rows) -> Verdict:
            found = verify_entries(Entries(rows), head)
            store = self._store.check(rows, before)
            return found if store is None else replace(found, problems=(*found.problems, store))

        return self._store.read(work)

    def totals(self, until: int) -> dict[tuple[str, str], PrivacyFilter]:
        """What had been spent when this line was written, by account and analyst: added up anew."""

        def work(rows: Rows) -> dict[tuple[str, str], PrivacyFilter]:
            replay = Replay()
            for entry in Entries(rows).lines():
                if entry.number > until:
                    break
                replay.follow(entry)
            replay.settle()
            return replay.totals

        return self._store.read(work)

    def close(self) -> None:
        """Let go of the store."""
        self._store.close()

    def __reduce__(self) -> NoReturn:
        refuse_copy("a ledger", "open it where it is needed, as Ledger.open(…), also in another process")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _opened(book: Entries, name: str, family: str, unit: Unit, budget: Budget) -> dict[str, Any]:
    known = book.opening(name)  # somebody else may have been first
    if known is not None:
        return known
    if book.total(name, EVERYBODY) is not None:
        raise damaged(f"the opening of the account {name!r}")
    _refuse_second_budget(book, family, unit)
    made = PrivacyFilter.for_queries(budget)
    body: dict[str, Any] = {
        "unit": unit.key,
        "neighbours": unit.neighbours.value,
        "epsilon": str(budget.epsilon),
        "delta": str(budget.delta),
        "population": budget.population,
        "filter": made.to_json(),
    }
    if unit.window is not None:
        ends = {"start": str(unit.window.start), "end": str(unit.window.end)}
        body |= {"family": family, "window": {"column": unit.window.column, **ends}}
    book.append(name, "open", EVERYBODY, body)
    book.keep(name, EVERYBODY, made)
    return body


def _refuse_second_budget(book: Entries, family: str, unit: Unit) -> None:
    """No row is paid for by two budgets of one name.

    Guarantee: of the accounts of a family each row is in one at most.
    Proof: docs/proofs/ledger.md, "Windows"
    """
    for entry in book.openings():
        if entry.body.get("family", entry.account) != family:
            continue
        window = window_of(entry.body)
        if window is None or unit.window is None:
            raise Refused(
                f"the account {family!r} is {'for all time' if window is None else 'divided into windows'}",
                why="a row that two budgets pay for is protected by neither of them",
                fix="use it as it is, or open an account of another name",
            )
        same = (entry.body["unit"], entry.body["neighbours"], window.column)
        if same != (unit.key, unit.neighbours.value, unit.window.column):
            raise Refused(
                f"the windows of {family!r} are for another unit, or by another column",
                why="a row that two budgets pay for is protected by neither of them",
                fix=f"use the column {window.column}, or open an account of another name",
            )
        if window.overlaps(unit.window):
            raise Refused(
                f"the window overlaps with another of {family!r}: {window}",
                why="a row that two budgets pay for is protected by neither of them",
                fix="use windows that follow each other",
            )
