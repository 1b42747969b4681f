"""The privacy loss of all windows of an account, for somebody who is in all of them.

Proof: docs/proofs/ledger.md, "Windows"
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction

from hubbub.accounting import PrivacyFilter, PrivacyLoss, PrivacyOdometer
from hubbub.accounting.filter_second_stage import OdometerReading
from hubbub.numbers import format_up

__all__ = ["LifetimeLoss", "lifetime_loss"]

_DEFAULT_DELTA = Fraction(1, 10**6)
"""The δ of the curve if the first window has none."""


@dataclass(frozen=True)
class LifetimeLoss:
    """The privacy loss of somebody who is in all windows so far."""

    reading: OdometerReading
    windows: int

    def describe(self) -> str:
        """Return a sentence for labels."""
        epsilon = format_up(self.reading.epsilon)
        windows = "1 window" if self.windows == 1 else f"{self.windows} windows"
        return f"ε = {epsilon}, δ = {format_up(self.reading.delta)} over {windows} so far"


def lifetime_loss(filters: Sequence[PrivacyFilter], losses: Iterable[PrivacyLoss]) -> LifetimeLoss:
    """Return what all windows cost together, by one odometer; with one window, too.

    Args:
        filters: the filter of each window, in the order in which they were opened.
        losses: what all of them were charged for.

    Guarantee: as `PrivacyOdometer`, also if it depends on answers whether a window is opened, and with what
        budget.
    Proof: docs/proofs/ledger.md, "Windows"
    """
    # One δ, which is known before anything is answered: with the first window's own reading until a second
    # one is opened, or the largest δ so far, answers would choose between two ways to divide δ.
    odometer = PrivacyOdometer(filters[0].delta or _DEFAULT_DELTA)
    for loss, times in Counter(losses).items():
        odometer = odometer.charge(loss, times)
    return LifetimeLoss(odometer.reading(), len(filters))
