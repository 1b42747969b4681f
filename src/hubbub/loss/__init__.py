"""Privacy loss: what a release may cost one person, and how losses add up."""

from hubbub.loss.budget import Account, Budget, Receipt, refuse_large_delta
from hubbub.loss.loss import Cost, Loss, largest_mu

__all__ = ["Account", "Budget", "Cost", "Loss", "Receipt", "largest_mu", "refuse_large_delta"]
