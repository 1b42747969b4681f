"""Upper bounds of a whole curve δ(ε), within about a percent: what a filter's certificates need, and fast.

A few composed PLDs, each tilted to another ε, bound δ at every ε; the least of them counts.

Proof: docs/proofs/pld.md
"""

import contextlib
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np

from hubbub.accounting.composition import Composition
from hubbub.accounting.float_bounds import Uncertified, float_below
from hubbub.accounting.pld import TiltedPld
from hubbub.accounting.pld_accountant import PldAccountant
from hubbub.accounting.privacy_loss import PrivacyLoss
from hubbub.numbers import round_up

__all__ = ["CurveBounds", "curve_bounds", "delta_bound"]

_ACCURACY = 1e-2
_PLACES = (0.02, 0.3, 0.8)
_UNCERTIFIED = (Uncertified, ArithmeticError, ValueError, MemoryError)


@lru_cache(maxsize=512)
def delta_bound(loss: PrivacyLoss, epsilon: Fraction) -> float:
    """An upper bound of δ at one ε.

    >>> run = PrivacyLoss.gaussian(1).poisson_subsampled(0.01) * 100
    >>> 1 <= delta_bound(run, Fraction(1)) / run.delta(1) < 1.02
    True

    Guarantee: not below δ(ε), in both directions.
    Proof: docs/proofs/pld.md
    """
    return max(_delta_of(each, epsilon) for each in loss.compositions)


def _delta_of(composition: Composition, epsilon: Fraction) -> float:
    is_beyond = composition.max_loss is not None and epsilon >= composition.max_loss
    if not is_beyond and composition.closed_form is None:
        with contextlib.suppress(*_UNCERTIFIED), np.errstate(all="ignore"):
            accountants = [PldAccountant(pairs, accuracy=_ACCURACY) for pairs in _pairs(composition)]
            high = max(each.delta(float_below(epsilon))[1] for each in accountants)
            return _with_infinity_mass(composition, high)
    return composition.delta(epsilon, lower=False).upper


@dataclass(frozen=True)
class CurveBounds:
    """Upper bounds of δ at every ε from 0 to an end, from where on δ is at most a given one."""

    loss: PrivacyLoss
    end: Fraction | None
    """None if there is no such ε."""
    plds: tuple[tuple[Composition, tuple[tuple[TiltedPld, ...], ...]], ...]
    """For each alternative and direction, PLDs tilted to several ε; none if δ is computed one by one."""

    def delta(self, epsilon: Fraction) -> float:
        """An upper bound of δ at ε, in both directions."""
        worst, at = 0.0, float_below(epsilon)
        for composition, directions in self.plds:
            if not directions:
                worst = max(worst, _delta_of(composition, epsilon))
                continue
            with np.errstate(all="ignore"):
                high = max(min(each.delta_upper(at) for each in tilted) for tilted in directions)
            worst = max(worst, _with_infinity_mass(composition, high))
        return worst


@lru_cache(maxsize=64)
def curve_bounds(loss: PrivacyLoss, delta: Fraction) -> CurveBounds:
    """Bounds of a curve, up to an ε at which δ(ε) is at most this δ.

    Guarantee: not below δ(ε), in both directions; δ(end) is at most `delta`.
    Proof: docs/proofs/pld.md
    """
    ends, plds = list[float](), list[tuple[Composition, tuple[tuple[TiltedPld, ...], ...]]]()
    for composition in loss.compositions:
        try:
            with np.errstate(all="ignore"):
                end, directions = _tilted(composition, delta)
        except _UNCERTIFIED:
            end, directions = composition.epsilon(delta, lower=False).upper, ()
        ends.append(end)
        plds.append((composition, directions))
    last = max(ends)
    end_found = Fraction(last) if math.isfinite(last) else None
    return CurveBounds(loss, end_found, tuple(plds))


def _tilted(composition: Composition, delta: Fraction) -> tuple[float, tuple[tuple[TiltedPld, ...], ...]]:
    rest = delta - composition.infinity_mass_bounds[1]
    if composition.closed_form is not None or rest <= 0:
        raise Uncertified
    target = float_below(rest)
    accountants = [PldAccountant(pairs, accuracy=_ACCURACY) for pairs in _pairs(composition)]
    ends = [each.epsilon(target)[1] for each in accountants]
    end = max(ends)
    if not math.isfinite(end):
        raise Uncertified
    directions = []
    for accountant, own_end in zip(accountants, ends, strict=True):
        tilted: list[TiltedPld] = []
        for place in _PLACES:
            epsilon = max(place * own_end, 1e-9)
            found: list[TiltedPld] = []

            def ask(
                lower: TiltedPld, upper: TiltedPld, at: float = epsilon, kept: Any = found
            ) -> tuple[float, float]:
                kept.append(upper)
                return lower.delta_lower(at), upper.delta_upper(at)

            accountant.refine(ask, epsilon, target, seek=False)
            tilted += found[-1:]
        if not tilted:
            raise Uncertified
        directions.append(tuple(tilted))
    return end, tuple(directions)


def _keep(epsilon: float, kept: list[TiltedPld]) -> Callable[[TiltedPld, TiltedPld], tuple[float, float]]:
    """Ask for δ at ε, and keep the PLDs that were refined for it."""

    def ask(lower: TiltedPld, upper: TiltedPld) -> tuple[float, float]:
        kept.append(upper)
        return lower.delta_lower(epsilon), upper.delta_upper(epsilon)

    return ask


def _pairs(composition: Composition) -> Iterator[tuple[tuple[Any, int], ...]]:
    """The dominating pairs when a unit is removed, and when it is added, if they differ."""
    is_symmetric = all(event.symmetric for event, _ in composition.events)
    for added in (False,) if is_symmetric else (False, True):
        yield tuple(
            (event.dominating_pair(added=added, upper=True), count)
            for event, count in composition.events
            if event.max_loss != 0
        )


def _with_infinity_mass(composition: Composition, high: float) -> float:
    told = composition.infinity_mass_bounds[1]
    return min(1.0, round_up(told + (1 - told) * Fraction(min(1.0, max(0.0, high)))))
