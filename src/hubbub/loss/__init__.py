"""Privacy loss: what a release may cost one person, and how losses add up."""

from hubbub.loss.budget import (
    Account,
    Budget,
    Receipt,
    refuse_large_delta,
    refuse_large_epsilon,
    spendable,
)
from hubbub.loss.calibrate import calibrate
from hubbub.loss.closed import largest_mu
from hubbub.loss.compose import Cost, Filter, Odometer
from hubbub.loss.engine import Bounds
from hubbub.loss.loss import Loss, parallel
from hubbub.loss.meaning import Posterior

__all__ = [
    "Account",
    "Bounds",
    "Budget",
    "Cost",
    "Filter",
    "Loss",
    "Odometer",
    "Posterior",
    "Receipt",
    "calibrate",
    "largest_mu",
    "parallel",
    "refuse_large_delta",
    "refuse_large_epsilon",
    "spendable",
]
