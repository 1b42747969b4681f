"""The ledger: what was spent, on whose behalf, in a record that cannot be overspent."""

from hubbub.ledger.account import Account, Charge
from hubbub.ledger.book import Entry
from hubbub.ledger.ledger import Ledger
from hubbub.ledger.verify import Verdict

__all__ = ["Account", "Charge", "Entry", "Ledger", "Verdict"]
