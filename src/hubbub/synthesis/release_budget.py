"""The budget of one release with many steps: all of them are fixed in advance, and charged together.

Measurements add Gaussian noise of μ², selections are exponential mechanisms of bounded range ε. Beside what
is left of the budget after it, a selection costs hardly more than μ² = ε²/4, so that the whole release is
dominated by one Gaussian mechanism. Its δ(ε) is exact, and leaves 15 % more ρ than the conversion from zCDP.

Proof: docs/proofs/synopsis.md, "The whole release"
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from hubbub.accounting import PrivacyLoss, largest_mu, parse_spendable_epsilon
from hubbub.accounting.gaussian_dominance import bounded_range_mu_squared, floor_digits
from hubbub.errors import BudgetExceeded, InvalidInput
from hubbub.numbers import Number, parse_positive, parse_probability

__all__ = ["LEAST_PART", "ReleaseBudget", "floor_sqrt", "share_batch"]

_ROOT_BITS = 64
_MAX_RESERVE = Fraction(6)
"""Beyond it, the bound on selections is not proved."""
_PURE_SHARE = Fraction(7, 11)
"""Below 2/π: μ² = ε²·π/2 dominates a selection that leaves nothing behind."""

LEAST_PART = Fraction(1, 2)
"""Of what each measurement had if all had the same: the least that is kept for each of the later ones."""
_MOST_PART = 2.0


@dataclass
class ReleaseBudget:
    """μ² = 2ρ for the steps of one release. Steps draw from it; none is possible beyond it.

    >>> budget = ReleaseBudget.of(epsilon=1, delta=1e-6)
    >>> round(float(budget.rho), 4)
    0.028
    >>> half = budget.rho / 2
    >>> mu = budget.spend_gaussian(half)
    >>> float(budget.left) == float(half)
    True

    Guarantee: all steps together are dominated by Gaussian noise of `mu_squared`, if each Gaussian
        measurement has no more than the μ that was drawn for it, and each selection no more than its ε.
    Assumes: ρ of every step follows from public facts and from what was released before.
    Proof: docs/proofs/synopsis.md, "The whole release"
    """

    mu_squared: Fraction
    """μ² of the Gaussian mechanism that dominates the whole release."""
    _gaussian: Fraction = field(default=Fraction(0), init=False)
    _selections: Fraction = field(default=Fraction(0), init=False)

    @classmethod
    def of(cls, *, epsilon: Number, delta: Number, allow_large_epsilon: bool = False) -> "ReleaseBudget":
        """The budget of a release that is (ε, δ)-private, by the exact δ(ε) of Gaussian noise."""
        price = parse_spendable_epsilon(epsilon, allow=allow_large_epsilon)
        return cls(floor_digits(largest_mu(price, parse_probability(delta, "delta")) ** 2))

    @property
    def rho(self) -> Fraction:
        """ρ of the whole release: μ²/2."""
        return self.mu_squared / 2

    @property
    def spent(self) -> Fraction:
        """ρ that was drawn."""
        return (self._gaussian + self._selections) / 2

    @property
    def left(self) -> Fraction:
        """ρ that is left."""
        return self.rho - self.spent

    @property
    def loss(self) -> PrivacyLoss:
        """The privacy loss of the whole release, however much of it was drawn."""
        return PrivacyLoss.gaussian_from_mu_squared(self.mu_squared)

    def spend_gaussian(self, rho: Number) -> Fraction:
        """Draw ρ for a measurement with Gaussian noise: returns μ = √(2ρ), rounded down.

        The noise has σ = Δ₂/μ, for the ℓ2 sensitivity Δ₂ of all that it is added to.
        """
        square = 2 * parse_positive(rho, "rho")
        self._refuse_overdraft(square)
        self._gaussian += square
        return floor_sqrt(square)

    def spend_selection(self, rho: Number, times: int = 1) -> Fraction:
        """Draw ρ for `times` selections by the exponential mechanism: returns the ε of each.

        Their figure in μ² is at most 2ρ. While much more than that is left afterwards, ε is a hair below
        √(8ρ/times); a selection that leaves next to nothing has 0.8 of it.

        Guarantee: each selection, composed with Gaussian noise of what is left after all of them, is
            dominated by Gaussian noise of that and its figure together, whatever was released before.
        Proof: docs/proofs/synopsis.md, "The whole release"
        """
        figure = 2 * parse_positive(rho, "rho")
        if times < 1:
            raise InvalidInput(
                "a selection is drawn less than once",
                why="ρ is divided among the selections",
                fix="draw for one selection or more",
                parameter="times",
            )
        self._refuse_overdraft(figure)
        # What was drawn before does not count: the score, and so the worst law, depend on its outcomes.
        reserve = floor_digits(min(_MAX_RESERVE, 2 * self.left - figure))
        self._selections += figure
        figure /= times
        if reserve:
            # s/(1 − s/reserve) ≤ figure for s = ε²/4 = figure/(1 + figure/reserve).
            epsilon = floor_sqrt(4 * figure / (1 + figure / reserve))
            if bounded_range_mu_squared(epsilon, reserve) <= figure:
                return epsilon
        return floor_sqrt(_PURE_SHARE * figure)

    def _refuse_overdraft(self, figure: Fraction) -> None:
        if figure > 2 * self.left:
            raise BudgetExceeded(
                "a step of the release draws more than is left",
                why="the charge was planned for all steps together, and is made once",
                fix="draw less for each step: their sum is planned beforehand",
            )

    def to_json(self) -> dict[str, Any]:
        """What was drawn, for the label."""
        return {"mu_squared": str(self.mu_squared), "rho": float(self.rho), "rho spent": float(self.spent)}


def floor_sqrt(square: Fraction) -> Fraction:
    """The square root, rounded down at about the 64th binary place."""
    bits = 2 * (_ROOT_BITS + max(0, square.denominator.bit_length() - square.numerator.bit_length()))
    return Fraction(math.isqrt((square.numerator << bits) // square.denominator), 1 << (bits // 2))


def share_batch(
    weights: Sequence[float],
    earlier: Sequence[float],
    *,
    equal: Fraction,
    available: Fraction,
    reserve: Fraction,
) -> list[Fraction]:
    """Return ρ for each table of a batch: in proportion to its weight, and more if the batch's are larger.

    >>> shares = share_batch([2, 6], [4, 4], equal=Fraction(1), available=Fraction(9), reserve=Fraction(4))
    >>> [float(each) for each in shares]
    [0.5, 1.5]

    Args:
        weights: of the tables.
        earlier: the weights in earlier batches.
        equal: what each table would have if all had the same.
        available: what can be drawn; all of it, if nothing is reserved.
        reserve: what has to be left for later batches.
    """
    if not weights:
        return []
    usual = (sum(weights) + sum(earlier)) / (len(weights) + len(earlier))
    larger = min(max(sum(weights) / len(weights) / usual, float(LEAST_PART)), _MOST_PART)
    whole = min(equal * len(weights) * Fraction(larger), available - reserve) if reserve else available
    return [Fraction(float(whole) * weight / sum(weights)) for weight in weights]
