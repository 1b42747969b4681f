"""The ledger is one thing: as it was before, kept so that each attack is seen to find what it looks for."""

from fractions import Fraction

from hubbub.accounting import PrivacyLoss, Receipt
from hubbub.accounting.in_memory_account import InMemoryAccount
from hubbub.errors import HubbubError, Refused
from hubbub.ledger.account import LedgerAccount
from hubbub.ledger.signing import Seal
from hubbub.ledger.sqlite import SQLiteStore


class Anywhere(SQLiteStore):
    """A40: a file in WAL mode that is believed wherever it lies, and whatever it holds."""

    def _refuse_other_location(self, rows, before):
        pass

    def _refuse_replaced(self):
        pass

    def known_heads(self):
        return set()

    def _had_ledger(self):
        return False


class InEveryChild(InMemoryAccount):
    """A41: an account in memory that goes on in each child that the process forks."""

    def _refuse_fork(self):
        pass


class Believing(Seal):
    """A42: what is stored as a release is taken for one, whoever wrote it."""

    def seal(self, text, line):
        del line
        return text

    def unseal(self, stored, line):
        del line
        return stored


class Blocked(LedgerAccount):
    """A42: a line under the key of a question keeps everybody from asking it, if it says something else."""

    def _matches(self, entries, number, request, fingerprint):
        if not super()._matches(entries, number, request, fingerprint):
            raise Refused("the key was charged for another question", why="", fix="")
        return True


def raises_at_odd_lines(ledger):
    """A42: what it was thought that a line can fail with is caught, and a divisor of 0 was forgotten."""
    for entry in ledger.entries():
        try:
            Fraction(entry.body["charged"][""]["epsilon"])
        except (KeyError, TypeError, ValueError, AttributeError, HubbubError):
            continue


class TakesItsWord(InMemoryAccount):
    """A45: a loss costs what it says that it costs."""

    def charge(self, what, loss, *, unit=None):
        del unit
        if self._filter is not None:
            self._filter = self._filter.charge(PrivacyLoss.pure(loss.cost().epsilon))
        return Receipt(what, loss)
