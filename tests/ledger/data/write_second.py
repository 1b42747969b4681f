"""How second.ledger was written: windows, and an answer that an analyst sees again."""

import sys
from fractions import Fraction

from hubbub.accounting import Budget, PrivacyLoss
from hubbub.ledger import Ledger
from hubbub.unit import Unit, Window

TENTH = PrivacyLoss.pure(Fraction(1, 10))


def write(path: str) -> None:
    with Ledger.open(path) as ledger:
        for period in ("2026-10", "2026-11"):
            unit = Unit("patient", window=Window.of("day", period))
            owner = ledger.account("visits", unit, Budget(1))
            owner.grant("ada", Budget(Fraction(1, 2)))
            for key in ("f 1", "f 2"):
                charge = owner.begin("a count", TENTH, unit=unit, key=key, dataset="visits")
                owner.keep(charge.number, f'{{"n": {key[-1]}}}')
        owner.for_analyst("ada").begin("a count", TENTH, unit=unit, key="f 2")


if __name__ == "__main__":
    write(sys.argv[1])
