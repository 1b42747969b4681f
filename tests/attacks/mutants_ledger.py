"""The ledger is one thing: as it was before, kept so that each attack is seen to find what it looks for."""

from fractions import Fraction

from hubbub.accounting import Receipt
from hubbub.accounting.in_memory_account import InMemoryAccount
from hubbub.errors import HubbubError, Refused
from hubbub.ledger.account import Account
from hubbub.ledger.signing import Seal
from hubbub.ledger.sqlite import SQLite


class Anywhere(SQLite):
    """A40: a file in WAL mode that is believed wherever it lies, and whatever it holds."""

    def _refuse_elsewhere(self, rows, before):
        pass

    def _refuse_replaced(self):
        pass

    def remembered(self):
        return set()


class InEveryChild(InMemoryAccount):
    """A41: an account in memory that goes on in each child that the process forks."""

    def _refuse_fork(self):
        pass


class Believing(Seal):
    """A42: what is stored as a release is taken for one, whoever wrote it."""

    def closed(self, text, line):
        del line
        return text

    def opened(self, stored, line):
        del line
        return stored


class Blocked(Account):
    """A42: a line under the key of a question keeps everybody from asking it, if it says something else."""

    def _stands(self, book, number, asked, fingerprint):
        if not super()._stands(book, number, asked, fingerprint):
            raise Refused("the key was charged for another question", why="", fix="")
        return True


def raises_at_odd_lines(ledger):
    """A42: what it was thought that a line can fail with is caught, and a divisor of 0 was forgotten."""
    for entry in ledger.entries():
        try:
            Fraction(entry.body["cost"]["epsilon"])
        except (KeyError, TypeError, ValueError, AttributeError, HubbubError):
            continue


class TakesItsWord(InMemoryAccount):
    """A45: a loss costs what it says that it costs."""

    def charge(self, what, loss, *, unit=None):
        del unit
        if self._filter is not None:
            self._filter = self._filter.charge(loss.cost())
        return Receipt(what, loss)
