"""Integer scores: what those that choose, and those that compare, ask of them and add to them.

Proof: docs/proofs/selection.md
"""

from fractions import Fraction
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from hubbub.bounded import Bounded, Sensitivity, unwrap
from hubbub.errors import InvalidInput, Refused
from hubbub.mechanisms.mechanism import Mechanism, check_sensitivity
from hubbub.noise import discrete_laplace, geometric
from hubbub.noise.real import exp_neg
from hubbub.noise.table import MOST
from hubbub.release import Release
from hubbub.unit import Neighbours, Unit

__all__ = ["Integers", "check_monotone", "check_scores", "check_whole", "noisy", "overtaking", "released"]

Integers: TypeAlias = NDArray[np.int64]


def check_whole(sensitivity: Any, monotone: Any) -> None:
    """Refuse a sensitivity that integer scores cannot have, and a `monotone` that is no plain yes or no."""
    if not isinstance(sensitivity, Sensitivity):
        raise InvalidInput(
            f"the sensitivity is of type {type(sensitivity).__name__}",
            why="nobody could say how far one unit moves a score",
            fix="make the mechanism with of(sensitivity=…)",
        )
    if sensitivity.linf == 0 or sensitivity.linf.denominator != 1:
        raise InvalidInput(
            "the ℓ∞ sensitivity is 0 or not a whole number",
            why="integers move by whole numbers, and what nobody can move needs no mechanism",
            fix="scale real scores to integers by a public factor, and pass the sensitivity of these",
        )
    if not isinstance(monotone, bool):
        raise InvalidInput(
            f"monotone is of type {type(monotone).__name__}",
            why="half the noise rests on it, so it is said plainly",
            fix="pass True only where adding a unit lowers no score, else False",
        )


def check_monotone(unit: Unit, *, monotone: bool) -> None:
    """Refuse the smaller noise of monotone scores under substitution."""
    if monotone and unit.neighbours is Neighbours.SUBSTITUTE:
        raise Refused(
            "monotone scores under substitution",
            why="a substituted unit may raise one score and lower another",
            fix="make the mechanism with monotone=False, or protect a unit that is added or removed",
        )


def check_scores(value: Any, sensitivity: Sensitivity, *, monotone: bool) -> tuple[Bounded, Integers]:
    """The value as a Bounded that the mechanism was calibrated for, and its integers."""
    bounded = check_sensitivity(value, sensitivity, "linf")
    check_monotone(bounded.unit, monotone=monotone)
    exact = unwrap(bounded)
    if not isinstance(exact, np.ndarray) or exact.dtype.kind != "i":
        raise InvalidInput(
            "the scores are not a list of integers",
            why="only integers are compared exactly",
            fix="scale them to integers by a public factor, and pass the sensitivity of these",
        )
    if exact.size == 0:
        raise InvalidInput(
            "there are no scores", why="nothing can be chosen from nothing", fix="pass one score or more"
        )
    return bounded, exact.astype(np.int64, copy=False)


def released(mechanism: Mechanism, value: Any, bounded: Bounded, *, monotone: bool) -> Release:
    """The release; where scores are taken to be monotone, on a person's word."""
    # No rule proves that scores are monotone, so that is a person's word too.
    asserted = bounded.is_asserted or monotone
    return Release(value, mechanism.loss(), mechanism, bounded.unit, asserted=asserted, cells=bounded.cells)


def noisy(values: Integers, scale: Fraction) -> NDArray[Any]:
    """Values plus discrete Laplace noise: 64-bit integers, or Python's where noise was cut at ±2^62.

    Such noise goes on as a geometric variable (it has no memory), so that the law is the whole law.
    """
    noise = discrete_laplace(scale, values.size)
    total: NDArray[Any] = values + noise  # values within ±2^61, so this fits
    cut = np.flatnonzero(np.abs(noise) == MOST)
    if cut.size:
        total = total.astype(object)
        for lane in cut:
            total[lane] += geometric(scale) * int(np.sign(noise[lane]))
    return total


def overtaking(rate: Fraction, distance: int, bits: int) -> Fraction:
    """Pr[X − Y ≥ distance] for two discrete Laplace variables of scale 1/rate, rounded up; distance ≥ 0.

    q^c·((c+1)(1−q) + q + 2q²/(1+q))/(1+q)² with q = e^−rate.

    >>> round(float(overtaking(Fraction(1), 1, 64)), 4)
    0.3598
    """
    one = 1 << bits
    low, high = (Fraction(end, one) for end in exp_neg(rate, bits))
    far = Fraction(exp_neg(rate * distance, bits)[1], one)
    inner = (distance + 1) * (1 - low) + high + 2 * high**2 / (1 + low)
    return far * inner / (1 + low) ** 2
