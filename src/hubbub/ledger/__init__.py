"""The ledger: what was spent, on whose behalf, in a record that cannot be overspent."""

from hubbub.ledger.account import Account, Charge
from hubbub.ledger.entries import Entry
from hubbub.ledger.ledger import Ledger
from hubbub.ledger.signing import Head, check_signature, new_secret, new_signing_key
from hubbub.ledger.verify import Verdict

__all__ = [
    "Account",
    "Charge",
    "Entry",
    "Head",
    "Ledger",
    "Verdict",
    "check_signature",
    "new_secret",
    "new_signing_key",
]
