"""The ledger: a durable record of what was spent, by whom and for what, that cannot be overspent."""

from hubbub.ledger.account import Charge, LedgerAccount, LifetimeLoss
from hubbub.ledger.entries import Entry
from hubbub.ledger.ledger import Ledger
from hubbub.ledger.signing import Head, check_signature, new_secret, new_signing_key
from hubbub.ledger.verify import VerificationReport

__all__ = [
    "Charge",
    "Entry",
    "Head",
    "Ledger",
    "LedgerAccount",
    "LifetimeLoss",
    "VerificationReport",
    "check_signature",
    "new_secret",
    "new_signing_key",
]
