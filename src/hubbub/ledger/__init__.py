"""The ledger: what was spent, on whose behalf, in a record that cannot be overspent."""

from hubbub.ledger.ledger import Account, Entry, Ledger, Verdict

__all__ = ["Account", "Entry", "Ledger", "Verdict"]
