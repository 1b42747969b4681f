"""Claims that an audit tests: pure and approximate ε, δ at ε, zCDP, Rényi, Gaussian, and any privacy loss.

A claim is a set of pairs (ε, δ), all of which hold if the claim does. Claims of one kind are ordered by one
number; an audit tests a grid of such numbers at once and reports the largest that it refutes.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hubbub.accounting import PrivacyLoss
from hubbub.audit.betting import Constraints

__all__ = ["Claim", "renyi_delta"]

Floats = NDArray[np.float64]
Pairs = list[tuple[float, float]]

_FINE = np.exp(np.linspace(-0.75, 0.75, 151))
"""Factors of the claim that are tested: one per cent apart around it …"""
_COARSE = np.concatenate([np.geomspace(0.02, 0.45, 14), np.geomspace(2.3, 60, 24)])
"""… and fewer far from it."""
_UP_TO_LIMIT = 60
_ORDERS = np.concatenate([1 + np.geomspace(0.05, 1, 8), np.geomspace(2.5, 256, 16)])
_LOSSES = np.concatenate([[0.0], np.geomspace(0.1, 12, 13)])
"""The ε of a curve at which δ is tested."""
_MAX_EPSILON = 20.0
"""Beyond this, e^−ε is lost beside 1 in doubles."""


@dataclass(frozen=True)
class Claim:
    """A claim, and the weaker and stronger claims of its kind."""

    symbol: str
    """The symbol of the number: ε, δ, ρ, μ or τ."""
    value: float
    at: str
    """The fixed part of the claim, such as "at δ = 1e-6"; may be empty."""
    pairs_of: Callable[[float], Pairs]
    limit: float = math.inf
    """The largest number that makes sense."""
    kind: str = ""
    """Its stored form; empty if it cannot be stored."""
    fixed: float = 0.0
    """The number of the fixed part: δ, ε or α."""

    def __repr__(self) -> str:
        return f"Claim({self.symbol} = {self.value:g}{' ' + self.at if self.at else ''})"

    @classmethod
    def approximate(cls, epsilon: float, delta: float = 0.0) -> "Claim":
        """(ε, δ)-DP, or pure ε-DP; the audit bounds ε."""
        at = f"at δ = {delta:g}" if delta else ""
        return cls("ε", epsilon, at, lambda value: [(value, delta)], _MAX_EPSILON, "approximate", delta)

    @classmethod
    def delta_at(cls, epsilon: float, delta: float) -> "Claim":
        """(ε, δ)-DP; the audit bounds δ."""
        at = f"at ε = {epsilon:g}"
        return cls("δ", delta, at, lambda value: [(epsilon, value)], 1.0, "delta", epsilon)

    @classmethod
    def gaussian(cls, mu: float) -> "Claim":
        """Gaussian DP: no easier to tell apart than N(0, 1) and N(μ, 1)."""

        def pairs(value: float) -> Pairs:
            return [(epsilon, _gaussian_delta(epsilon, value)) for epsilon in _LOSSES]

        return cls("μ", mu, "", pairs, 12.0, "gaussian")

    @classmethod
    def renyi(cls, order: float, tau: float) -> "Claim":
        """(α, τ)-Rényi DP."""

        def pairs(value: float) -> Pairs:
            grid = [value, *(value + _LOSSES), *np.linspace(0, value, 4)[:-1]]
            return [(epsilon, renyi_delta(epsilon, order, value)) for epsilon in grid]

        return cls("τ", tau, f"of order {order:g}", pairs, kind="renyi", fixed=order)

    @classmethod
    def zcdp(cls, rho: float) -> "Claim":
        """ρ-zCDP: (α, ρα)-Rényi DP for every α > 1."""

        def pairs(value: float) -> Pairs:
            grid = [*(math.sqrt(2 * value) * np.linspace(0, 5, 9)), *_LOSSES]
            return [
                (epsilon, min(renyi_delta(epsilon, order, value * order) for order in _ORDERS))
                for epsilon in grid
            ]

        return cls("ρ", rho, "", pairs, kind="zcdp")

    @classmethod
    def of_loss(cls, loss: PrivacyLoss, points: Sequence[float] = tuple(_LOSSES)) -> "Claim":
        """The whole curve δ(ε) of a privacy loss; the audit bounds the share of it that is refuted.

        The number is a factor on ε and δ: at 1 it is the loss itself.
        """
        curve = [(float(epsilon), float(loss.delta(float(epsilon)))) for epsilon in points]
        pure = float(loss.epsilon())
        if math.isfinite(pure):
            curve.append((pure, 0.0))

        def pairs(value: float) -> Pairs:
            # A larger factor is a weaker claim: δ at factor·ε is at most factor·δ(ε).
            return [(epsilon * value, delta * value) for epsilon, delta in curve]

        return cls("factor", 1.0, f"on {loss}", pairs)

    @classmethod
    def restore(cls, kind: str, value: float, fixed: float) -> "Claim | None":
        """Make the claim of a stored kind and its numbers; None if there is no such kind.

        Args:
            kind: the stored kind.
            value: the number that is claimed.
            fixed: the number of the fixed part: δ, ε or α.

        >>> Claim.restore("delta", 1e-5, 1.0).at
        'at ε = 1'
        """
        if not (math.isfinite(value) and math.isfinite(fixed)) or value < 0 or fixed < 0:
            return None
        if kind == "renyi" and fixed > 1:
            return cls.renyi(fixed, value)
        makers = {
            "approximate": lambda: cls.approximate(value, fixed),
            "delta": lambda: cls.delta_at(fixed, value),
            "gaussian": lambda: cls.gaussian(value),
            "zcdp": lambda: cls.zcdp(value),
        }
        return makers[kind]() if kind in makers else None

    def is_broken_by(self, low: Sequence[float], high: Sequence[float], value: float) -> bool:
        """True if no law that satisfies the claim with this number has an event of these probabilities.

        Args:
            low: lower bounds of the event's probabilities on x and x′.
            high: upper bounds of them.
            value: the number of the claim, or another one.
        """
        return any(
            low[i] > math.exp(min(epsilon, _MAX_EPSILON)) * high[1 - i] + delta
            for epsilon, delta in self.pairs_of(value)
            if epsilon <= _MAX_EPSILON
            for i in (0, 1)
        )

    def lower_bound(self, low: Sequence[float], high: Sequence[float]) -> float:
        """Return the largest number that an event of these probabilities breaks, rounded down; or 0.

        >>> round(Claim.approximate(1.0, 0.01).lower_bound([0.3, 0.1], [0.31, 0.11]), 2)
        0.97

        Guarantee: the claim with this number does not hold, if the bounds do.
        Proof: docs/proofs/sequential-audit.md
        """
        broken, upper = 0.0, min(self.limit, 1e3)
        for _ in range(60):
            middle = (broken + upper) / 2
            broken, upper = (middle, upper) if self.is_broken_by(low, high, middle) else (broken, middle)
        return broken

    def grid(self) -> Floats:
        """The numbers that are tested, in increasing order, the claim among them."""
        factors = np.unique(np.concatenate([_COARSE, _FINE, [1.0]]))
        scale = self.value
        # A claim of 0 has no multiples: δ = 0 and ε = 0 are tested beside small numbers.
        tested = factors * scale if scale > 0 else np.concatenate([[0.0], np.geomspace(1e-7, 1, 120)])
        if 0 < scale < self.limit < math.inf:
            tested = np.concatenate([tested, np.geomspace(scale, self.limit, _UP_TO_LIMIT)])
        numbers: Floats = np.unique(np.concatenate([tested[tested <= self.limit], [scale]]))
        return numbers

    def constraints(self, grid: Floats) -> Constraints:
        """Return the pairs (ε, δ) of each number of a grid."""
        rows = [self.pairs_of(float(value)) for value in grid]
        table = np.array(rows, dtype=np.float64)
        epsilon, delta = table[:, :, 0], np.clip(table[:, :, 1], 0.0, 1.0)
        # Beyond what doubles carry a claim says nothing, so that nothing is held against it.
        return Constraints(np.minimum(epsilon, _MAX_EPSILON), np.where(epsilon > _MAX_EPSILON, 1.0, delta))


def renyi_delta(epsilon: float, order: float, tau: float) -> float:
    """Return a δ that holds at ε for every mechanism of (α, τ)-Rényi DP.

    The conversion of Canonne, Kamath and Steinke (2020), proposition 12.

    >>> renyi_delta(5.0, 2.0, 1.0) < renyi_delta(4.0, 2.0, 1.0) < 0.02
    True

    Guarantee: an upper bound of δ.
    Proof: docs/proofs/sequential-audit.md
    """
    log_delta = (order - 1) * (tau - epsilon) - math.log(order - 1) + order * math.log1p(-1 / order)
    return min(1.0, math.exp(min(0.0, log_delta)) * (1 + 1e-12))


def _gaussian_delta(epsilon: float, mu: float) -> float:
    """δ at ε of N(0, 1) against N(μ, 1), rounded up by more than the error of doubles."""
    if mu <= 0:
        return 0.0
    above = math.erfc((epsilon / mu - mu / 2) / math.sqrt(2)) / 2
    below = math.erfc((epsilon / mu + mu / 2) / math.sqrt(2)) / 2
    return min(1.0, max(0.0, above - math.exp(epsilon) * below) + 1e-13 + 1e-10 * above)
