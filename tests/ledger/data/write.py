"""Writes the ledger of this version: run once for each format, and never again for one that is committed."""

import sys
from fractions import Fraction

from hubbub.accounting import Budget, PrivacyLoss
from hubbub.ledger import Ledger
from hubbub.unit import Neighbours, Unit


def write(path: str) -> None:
    with Ledger.open(path) as ledger:
        owner = ledger.account("visits", Unit("patient"), Budget(3, 1e-6, population=1000))
        owner.grant("ada", Budget(1, 1e-7))
        owner.grant("bob", Budget(1))
        ada, bob = owner.for_analyst("ada"), owner.for_analyst("bob")
        ada.keep(ada.begin("a count", PrivacyLoss.pure(Fraction(1, 10)), key="monday").number, '{"n": 42}')
        bob.begin("a count", PrivacyLoss.pure(Fraction(1, 10)), key="monday")
        owner.version("2026-11", "visits")
        owner.charge(
            "sums",
            PrivacyLoss.gaussian(Fraction(1, 10))
            + PrivacyLoss.approximate(Fraction(1, 10), Fraction(1, 10**9)),
        )
        owner.charge("training", PrivacyLoss.gaussian(1).poisson_subsampled(Fraction(1, 100)) * 20)
        owner.exact("all rows")
        other = ledger.account("sales", Unit.row(Neighbours.SUBSTITUTE), Budget(2))
        other.charge("a coin", PrivacyLoss.randomized_response(Fraction(3, 4)))
        other.close()


if __name__ == "__main__":
    write(sys.argv[1])
