"""Writes the committed ledgers of the current format, their keys and their head digests.

Run it once when the format changes, and never for a format that was released:

    cd tests && PYTHONPATH=../src:. python -m ledger.data.write
"""

import shutil
import tempfile
from fractions import Fraction
from pathlib import Path

from hubbub.accounting import Budget, PrivacyLoss
from hubbub.ledger import Ledger
from hubbub.unit import Neighbours, Unit, Window

TENTH = PrivacyLoss.pure(Fraction(1, 10))


def write_first(path: str) -> None:
    """Two accounts, two analysts, and every kind of loss that was stored first."""
    with Ledger.open(path) as ledger:
        owner = ledger.account("visits", Unit("patient"), Budget(3, 1e-6, population=1000))
        owner.grant("ada", Budget(1, 1e-7))
        owner.grant("bob", Budget(1))
        ada, bob = owner.for_analyst("ada"), owner.for_analyst("bob")
        ada.record_release(ada.record_charge("a count", TENTH, key="monday").number, '{"n": 42}')
        bob.record_charge("a count", TENTH, key="monday")
        owner.record_version("2026-11", "visits")
        owner.charge(
            "sums",
            PrivacyLoss.gaussian(Fraction(1, 10))
            + PrivacyLoss.approximate(Fraction(1, 10), Fraction(1, 10**9)),
        )
        owner.charge("training", PrivacyLoss.gaussian(1).poisson_subsampled(Fraction(1, 100)) * 20)
        owner.record_nonprivate_access("all rows")
        other = ledger.account("sales", Unit.row(Neighbours.SUBSTITUTE), Budget(2))
        other.charge("a coin", PrivacyLoss.randomized_response(Fraction(3, 4)))
        other.close()


def write_second(path: str) -> None:
    """Windows, and an answer that an analyst views again."""
    with Ledger.open(path) as ledger:
        for period in ("2026-10", "2026-11"):
            unit = Unit("patient", window=Window.of("day", period))
            owner = ledger.account("visits", unit, Budget(1))
            owner.grant("ada", Budget(Fraction(1, 2)))
            for key in ("f 1", "f 2"):
                charge = owner.record_charge("a count", TENTH, unit=unit, key=key, dataset="visits")
                owner.record_release(charge.number, f'{{"n": {key[-1]}}}')
        owner.for_analyst("ada").record_charge("a count", TENTH, unit=unit, key="f 2")


def main() -> None:
    """Replace the committed files."""
    data = Path(__file__).parent
    with tempfile.TemporaryDirectory() as folder:
        for name, write in (("first", write_first), ("second", write_second)):
            path = Path(folder) / f"{name}.ledger"
            write(str(path))
            with Ledger.open(path) as ledger:
                (data / f"{name}.head").write_text(ledger.head_digest() + "\n")
            for ending in (".ledger", ".ledger.key"):
                shutil.copyfile(path.with_suffix(ending), data / f"{name}{ending}")


if __name__ == "__main__":
    main()
