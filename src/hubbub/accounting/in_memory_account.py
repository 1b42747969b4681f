"""An account in memory, for use without a ledger."""

import os
import threading
from typing import Literal, NoReturn

from hubbub.accounting import (
    Account,
    Budget,
    PrivacyFilter,
    PrivacyLoss,
    PrivacyOdometer,
    Receipt,
)
from hubbub.accounting.budget import (
    check_unit_and_budget,
    refuse_copy,
    refuse_fork,
    refuse_other_relation,
    refuse_other_unit,
)
from hubbub.accounting.filter_second_stage import OdometerReading
from hubbub.accounting.filters import Remaining
from hubbub.accounting.serialization import loss_to_json, stored_loss
from hubbub.errors import InvalidInput
from hubbub.numbers import Number, format_up
from hubbub.unit import Unit

__all__ = ["UNSPECIFIED", "InMemoryAccount", "Unspecified", "resolve_account"]


Unspecified = Literal["unspecified"]
UNSPECIFIED: Unspecified = "unspecified"
"""The default of `account`; a text, because scikit-learn's tools take no other object for a default."""


def resolve_account(account: Account | Unspecified | None) -> Account | None:
    """The account; None only if None was passed explicitly.

    Without an account nothing adds up what several fits of the same rows cost together, so a search over ten
    models would look like one.
    """
    if isinstance(account, str):
        raise InvalidInput(
            "{account} is not given",
            why="each fit of the same rows costs again, and nothing would add up the costs",
            fix="pass {account=hb.InMemoryAccount(hb.Budget(1, 1e-6))}, the account of a dataset or a "
            "ledger; or {account=None} to keep no account",
        )
    return account


class InMemoryAccount:
    """An account in this process's memory.

    >>> account = InMemoryAccount(Budget(1))
    >>> account.charge("a count", PrivacyLoss.pure(0.25)).what
    'a count'
    >>> account.spent().epsilon
    Fraction(1, 4)

    Guarantee: everything charged to it fits its budget; a child process cannot charge it.
    Proof: docs/proofs/filters.md, "The filter"
    """

    def __init__(self, budget: Budget | None = None, unit: Unit | None = None) -> None:
        check_unit_and_budget(unit, budget)
        self.budget = budget
        self.unit = unit
        """The protected privacy unit; None until a charge names it."""
        self._filter = PrivacyFilter(budget) if budget is not None else None
        self._odometer = PrivacyOdometer()
        self._relation = ""
        self._busy = threading.Lock()
        self._process = os.getpid()
        self.receipts: list[Receipt] = []

    def charge(self, what: str, loss: PrivacyLoss, *, unit: Unit | None = None) -> Receipt:
        """Charge before anything runs; raises if it does not fit, or protects another unit.

        Args: as in `Account.charge`.
        """
        self._refuse_fork()
        stored = stored_loss(loss_to_json(loss))  # what is charged follows from the events alone
        with self._busy:
            refuse_other_unit(self.unit, unit)
            protected = self.unit or unit
            relation = refuse_other_relation(
                None if protected is None else protected.neighbours, stored, self._relation
            )
            if self._filter is not None:
                self._filter = self._filter.charge(stored)
            else:
                self._odometer = self._odometer.charge(stored)
            # Losses of different units do not add up: all later charges must be for this one.
            self.unit, self._relation = protected, relation
            receipt = Receipt(what, loss)
            self.receipts.append(receipt)
        return receipt

    def __reduce__(self) -> NoReturn:
        refuse_copy("an account in memory", "share the account itself, or keep it in a ledger")

    def record_nonprivate_access(self, what: str) -> None:
        """Record a non-private access: the owner looks at exact answers."""
        self._refuse_fork()
        self.receipts.append(Receipt(f"EXACT PREVIEW, not private: {what}", PrivacyLoss.pure(2**20)))

    def __repr__(self) -> str:
        budget = "no budget" if self.budget is None else str(self.budget)
        charges = "1 charge" if len(self.receipts) == 1 else f"{len(self.receipts)} charges"
        return f"InMemoryAccount({budget}; {charges})"

    def _repr_html_(self) -> str:
        spent, budget = format_up(self.spent().epsilon), self.budget or "no budget"
        return f"<p><b>Account in memory</b> ({budget}): ε = {spent} spent</p>"

    def _refuse_fork(self) -> None:
        refuse_fork(self._process, "an account in memory", "open one there, or share a ledger in a file")

    def spent(self) -> OdometerReading:
        """What was spent so far: a pair (ε, δ) that holds, at any moment.

        Guarantee: as `PrivacyFilter.spent`; without a budget, as `PrivacyOdometer`, at a δ of 10⁻⁶.
        Proof: docs/proofs/filters.md, "The odometer"
        """
        return self._filter.spent() if self._filter is not None else self._odometer.reading()

    def remaining(self) -> Remaining | None:
        """What one more charge may cost; None without a budget."""
        return None if self._filter is None else self._filter.remaining()

    def count_more(self, loss: PrivacyLoss) -> int | None:
        """About how many more charges like this one fit; None without a budget."""
        return None if self._filter is None else self._filter.count_more(loss)

    def epsilon(self, delta: Number = 0) -> float:
        """The ε of everything charged so far, at this δ; infinite if there is none."""
        if self._filter is not None:
            return self._filter.spent_epsilon(delta)
        return self._odometer.epsilon(delta)
