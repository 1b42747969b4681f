"""What runs in processes of its own, beside and against others."""

import secrets
from fractions import Fraction

from hubbub.accounting import PrivacyLoss
from hubbub.errors import BudgetExceeded
from hubbub.ledger import Ledger
from hubbub.ledger.stored_outcomes import charge_and_run


def charge_many(address: str, count: int, price: Fraction) -> int:
    """Charge so often; how many were let through."""
    done = 0
    with Ledger.open(address) as ledger:
        spender = ledger.account("visits")
        for _ in range(count):
            try:
                spender.charge("a count", PrivacyLoss.pure(price))
            except BudgetExceeded:
                break
            done += 1
    return done


def open_and_charge(address: str, count: int, price: Fraction) -> int:
    """Open it anew for each charge, so that who closes it last is another each time."""
    for _ in range(count):
        with Ledger.open(address) as ledger:
            ledger.account("visits").charge("a count", PrivacyLoss.pure(price))
    return count


def charge_keys(address: str, count: int, price: Fraction) -> list[tuple[bool, str]]:
    """Ask the same as all others do: what is charged, run and stored once; what is shown."""
    out = []
    with Ledger.open(address) as ledger:
        spender = ledger.account("visits")
        for key in range(count):
            requests = {"what": "a count", "loss": PrivacyLoss.pure(price), "key": f"key {key}"}
            charge, text = charge_and_run(spender, lambda _: secrets.token_hex(8), **requests)
            out.append((charge.is_new, text))
    return out


def live(address: str, first: int, pipe) -> None:
    """Charge, run, record, key after key, and say so after each step, until killed."""
    ledger = Ledger.open(address)
    spender = ledger.account("visits")
    key = first

    def run(charge):
        pipe.send(("charged", key, charge.number))
        return secrets.token_hex(8)

    while True:
        requests = {"what": "a count", "loss": PrivacyLoss.pure(Fraction(1, 10**6)), "key": f"key {key}"}
        charge, text = charge_and_run(spender, run, **requests)
        pipe.send(("shown", key, (charge.number, text)))
        key += 1
