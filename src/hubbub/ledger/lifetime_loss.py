"""What all windows of an account cost somebody who is in all of them.

Proof: docs/proofs/ledger.md, "Windows"
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from hubbub.accounting import PrivacyFilter, PrivacyLoss, PrivacyOdometer
from hubbub.accounting.filter_stages import OdometerReading
from hubbub.numbers import format_up

__all__ = ["LifetimeLoss", "lifetime_loss"]


@dataclass(frozen=True)
class LifetimeLoss:
    """The privacy loss of somebody who is in all windows so far."""

    reading: OdometerReading
    windows: int

    def describe(self) -> str:
        """Return a sentence for labels."""
        epsilon = format_up(self.reading.epsilon)
        return f"ε = {epsilon}, δ = {format_up(self.reading.delta)} over {self.windows} windows so far"


def lifetime_loss(filters: Sequence[PrivacyFilter], losses: Iterable[PrivacyLoss]) -> LifetimeLoss:
    """Return what all windows cost together: the account's own reading if there is one window only.

    Args:
        filters: the filter of each window.
        losses: what all of them were charged for.

    Proof: docs/proofs/ledger.md, "Windows"
    """
    if len(filters) == 1:
        return LifetimeLoss(filters[0].spent(), 1)
    odometer = PrivacyOdometer(max(each.delta for each in filters))
    for loss, times in Counter(losses).items():
        odometer = odometer.charge(loss, times)
    return LifetimeLoss(odometer.reading(), len(filters))
