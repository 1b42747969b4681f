"""Parts of which only divergences are known: zero-concentrated privacy, and Rényi curves.

Proof: docs/proofs/parts.md
"""

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from hubbub.errors import Unsupported
from hubbub.loss import pairs
from hubbub.loss.parts import CLOSE, Part
from hubbub.loss.rounding import above, below
from hubbub.loss.sampled import Uncertified
from hubbub.rational import shown_up

__all__ = ["Curve", "Zcdp"]


@dataclass(frozen=True)
class Zcdp(Part):
    """Zero-concentrated privacy, and nothing more is known."""

    concentrated: Fraction

    def side(self, *, added: bool, up: bool) -> pairs.Bell:  # noqa: ARG002
        """None above; below, Gaussian noise is one such mechanism."""
        if up:
            raise Uncertified
        return pairs.Bell(below(2 * self.concentrated))

    @property
    def most(self) -> None:
        """None is known."""
        return

    @property
    def rho(self) -> Fraction:
        """ρ."""
        return self.concentrated

    def renyi(self, alpha: float) -> float:
        """αρ."""
        return alpha * above(self.concentrated) * CLOSE

    def group(self, size: int) -> "Zcdp":
        """k²ρ."""
        return Zcdp(size**2 * self.concentrated)

    def sampled(self, rate: Fraction) -> Part:
        """Not known."""
        raise _no_pair("zCDP", rate)

    def __str__(self) -> str:
        return f"ρ = {shown_up(self.concentrated)}"


@dataclass(frozen=True)
class Curve(Part):
    """Rényi divergences at some orders, and nothing more is known."""

    points: tuple[tuple[Fraction, Fraction], ...]
    """Rising orders, and the divergence at each."""

    def side(self, *, added: bool, up: bool) -> Any:  # noqa: ARG002
        """None; below, no loss at all."""
        if up:
            raise Uncertified
        return pairs.two_points(0)

    @property
    def most(self) -> None:
        """None is known."""
        return

    def renyi(self, alpha: float) -> float:
        """That of the next order that is known: divergences rise with the order."""
        known = [value for order, value in self.points if Fraction(alpha) <= order]
        return above(min(known)) if known else math.inf

    def group(self, size: int) -> "Curve":
        """(α, ε) becomes (α/2^c, 3^c·ε) for 2^c members or fewer."""
        c = (size - 1).bit_length()
        points = tuple((a / 2**c, 3**c * e) for a, e in self.points if a >= 2 ** (c + 1))
        return Curve(points)

    def sampled(self, rate: Fraction) -> Part:
        """Not known."""
        raise _no_pair("a Rényi curve", rate)

    def __str__(self) -> str:
        return f"Rényi divergences at {len(self.points)} orders"


def _no_pair(what: str, rate: Fraction) -> Unsupported:
    return Unsupported(
        f"{what} is sampled at rate {shown_up(rate)}",
        why="sampling needs the mechanism's law, not only a bound of its divergence",
        fix="state the mechanism itself, such as Loss.gaussian(mu)",
    )
