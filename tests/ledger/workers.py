"""What runs in processes of its own, beside and against others."""

import secrets
from fractions import Fraction

from hubbub.errors import BudgetExceeded
from hubbub.ledger import Ledger
from hubbub.loss import Loss


def charge_many(address: str, count: int, price: Fraction) -> int:
    """Charge so often; how many were let through."""
    done = 0
    with Ledger.open(address) as ledger:
        spender = ledger.account("visits")
        for _ in range(count):
            try:
                spender.charge("a count", Loss.pure(price))
            except BudgetExceeded:
                break
            done += 1
    return done


def charge_keys(address: str, count: int, price: Fraction) -> list[tuple[bool, str]]:
    """Charge the same keys as all others do, and keep a release of each; what may be shown."""
    out = []
    with Ledger.open(address) as ledger:
        spender = ledger.account("visits")
        for key in range(count):
            charge = spender.begin("a count", Loss.pure(price), key=f"key {key}")
            out.append((charge.is_new, spender.keep(charge.number, secrets.token_hex(8))))
    return out


def live(address: str, first: int, pipe) -> None:
    """Charge, run, record, key after key, and say so after each step, until killed."""
    ledger = Ledger.open(address)
    spender = ledger.account("visits")
    key = first
    while True:
        charge = spender.begin("a count", Loss.pure(Fraction(1, 10**6)), key=f"key {key}")
        pipe.send(("charged", key, charge.number))
        text = spender.released(charge.number)
        if text is None:
            text = spender.keep(charge.number, secrets.token_hex(8))
        pipe.send(("shown", key, text))
        key += 1
