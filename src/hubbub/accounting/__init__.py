"""Privacy loss: what a release may cost one person, and how losses add up."""

from hubbub.accounting.budget import (
    Account,
    Budget,
    Receipt,
    parse_spendable_epsilon,
    refuse_large_delta,
    refuse_large_epsilon,
)
from hubbub.accounting.calibration import calibrate
from hubbub.accounting.closed_form import largest_mu
from hubbub.accounting.composable_cost import ComposableCost
from hubbub.accounting.composition import Bounds
from hubbub.accounting.filters import FilterCharge, PrivacyFilter
from hubbub.accounting.interpretation import Posterior
from hubbub.accounting.odometer import PrivacyOdometer
from hubbub.accounting.privacy_loss import PrivacyLoss, parallel_composition

__all__ = [
    "Account",
    "Bounds",
    "Budget",
    "ComposableCost",
    "FilterCharge",
    "Posterior",
    "PrivacyFilter",
    "PrivacyLoss",
    "PrivacyOdometer",
    "Receipt",
    "calibrate",
    "largest_mu",
    "parallel_composition",
    "parse_spendable_epsilon",
    "refuse_large_delta",
    "refuse_large_epsilon",
]
