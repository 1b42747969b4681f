"""Draws the pictures of docs/budgets.md: `python benchmarks/budget_pictures.py`."""

from fractions import Fraction
from pathlib import Path

from hubbub.accounting import Budget, PrivacyFilter, PrivacyLoss
from hubbub.report.charts import draw_burn_down


def room_after(loss: PrivacyLoss, every: int) -> list[tuple[int, float]]:
    """The largest ε that one more charge may cost, after each of the charges that fit."""
    account, moments, count = PrivacyFilter(Budget(1, Fraction(1, 10**6))), [], 0
    while account.allows(loss):
        account, count = account.charge(loss), count + 1
        if count % every == 0:
            moments.append((count, float(account.remaining().epsilon)))
    return [*moments, (count, float(account.remaining().epsilon))]


folder = Path(__file__).parents[1] / "docs" / "pictures"
(folder / "budget-sums.svg").write_text(draw_burn_down(room_after(PrivacyLoss.approximate(0.1, 1e-7), 1)))
(folder / "budget-curve.svg").write_text(draw_burn_down(room_after(PrivacyLoss.pure(0.01), 8)))
